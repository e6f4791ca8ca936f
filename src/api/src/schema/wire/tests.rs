use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::schema::schema;

/// Decodes a whole body.
fn decode(body: &[u8]) -> Result<Value, WireError> {
    let envelope = Envelope::read(body)?;
    let id = schema().kind(&envelope.api_version, &envelope.kind).unwrap();
    let mut object = message(schema(), id, envelope.raw)?;
    object.insert("apiVersion".to_owned(), envelope.api_version.into());
    object.insert("kind".to_owned(), envelope.kind.into());
    Ok(object.into())
}

fn sent(kind: &str, raw: &[u8]) -> Result<Value, WireError> {
    message(schema(), schema().kind("v1", kind).unwrap(), raw).map(Value::Object)
}

/// A field with bytes.
fn part(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    out.extend_from_slice(content);
    out
}

#[test]
fn what_kubectl_sends_reads_as_its_own_json() {
    let samples = include_str!("../../../tests/data/protobuf.txt");
    let mut compared = 0;
    for line in samples.lines().filter(|line| !line.starts_with('#')) {
        let (body, json) = line.split_once(' ').unwrap();
        let mut want: Value = serde_json::from_str(json).unwrap();
        crate::schema::tests::drop_nulls(&mut want);
        assert_eq!(decode(&STANDARD.decode(body).unwrap()).unwrap(), want);
        compared += 1;
    }
    assert!(compared >= 15);
}

#[test]
fn the_envelope_must_begin_as_such_and_hold_protobuf() {
    assert_eq!(Envelope::read(b"{}"), Err(WireError::NoMagic));
    let json = [MAGIC, &part(4, b"application/json")].concat();
    assert_eq!(Envelope::read(&json), Err(WireError::Content("application/json".to_owned())));
    let odd =
        [MAGIC, &part(1, &[part(2, b"Pod"), part(9, b"?")].concat()), &part(2, b"raw"), &part(8, b"new")].concat();
    assert_eq!(Envelope::read(&odd), Ok(Envelope { api_version: String::new(), kind: "Pod".to_owned(), raw: b"raw" }));
}

#[test]
fn zeros_stay_only_behind_pointers_and_where_json_writes_them() {
    // hostNetwork (11) false, automountServiceAccountToken (21) false, terminationGracePeriodSeconds (4) 0.
    let spec = [11 << 3, 0, 0xa8, 1, 0, 4 << 3, 0];
    let pod = sent("Pod", &part(2, &spec)).unwrap();
    assert_eq!(pod, json!({"spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0}}));
    let container = part(2, &part(2, &[part(1, b""), part(2, b"")].concat()));
    assert_eq!(sent("Pod", &container).unwrap(), json!({"spec": {"containers": [{"name": ""}]}}));
}

#[test]
fn times_show_seconds_or_microseconds_and_the_zero_time_is_nothing() {
    let at = [0x8, 0x80, 0x95, 0xd8, 0xc3, 0x6, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x1];
    let event = [part(1, &part(8, b"")), part(6, &at), part(10, &at)].concat();
    assert_eq!(
        sent("Event", &event).unwrap(),
        json!({"metadata": {}, "firstTimestamp": "2025-07-15T08:00:00Z", "eventTime": "2025-07-15T08:00:00.500000Z"})
    );
    let far = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert!(matches!(sent("Event", &part(6, &far)), Err(WireError::BadValue { .. })));
}

#[test]
fn maps_keep_entries_without_a_value() {
    let data = [part(2, &part(1, b"k")), part(2, &[part(1, b"l"), part(2, b"v")].concat())].concat();
    assert_eq!(sent("ConfigMap", &data).unwrap(), json!({"data": {"k": "", "l": "v"}}));
}

#[test]
fn negative_numbers_and_numbers_or_texts_are_read() {
    let minus = [7 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(sent("Pod", &part(1, &minus)).unwrap(), json!({"metadata": {"generation": -1}}));
    let target = |value: &[u8]| part(2, &part(1, &part(4, value)));
    let number = sent("Service", &target(&[8, 0, 16, 80, 26, 0])).unwrap();
    assert_eq!(number, json!({"spec": {"ports": [{"targetPort": 80}]}}));
    let text = sent("Service", &target(&[8, 1, 16, 0, 26, 1, b'w'])).unwrap();
    assert_eq!(text, json!({"spec": {"ports": [{"targetPort": "w"}]}}));
}

#[test]
fn raw_objects_are_json_inside() {
    let id = schema().kind("apps/v1", "ControllerRevision").unwrap();
    let read = |raw: &[u8]| message(schema(), id, &part(2, &part(1, raw))).map(Value::Object);
    assert_eq!(read(br#"{"a":[1]}"#).unwrap(), json!({"data": {"a": [1]}}));
    assert!(matches!(read(b"{"), Err(WireError::BadValue { .. })));
    let inner =
        [MAGIC, &part(1, &[part(1, b"v1"), part(2, b"ConfigMap")].concat()), &part(2, &part(2, &part(1, b"k")))];
    let nested = read(&inner.concat()).unwrap();
    assert_eq!(nested, json!({"data": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": ""}}}));
}

#[test]
fn schemas_may_be_booleans_lists_and_texts() {
    let id = schema().named("apiextensions/v1", "JSONSchemaProps").unwrap();
    let read = |raw: &[u8]| message(schema(), id, raw).map(Value::Object).unwrap();
    let string = part(5, b"string");
    let field = |number: u8, content: &[u8]| {
        let mut out = vec![(number & 0xf) << 3 | 0x82, number >> 4];
        out.push(u8::try_from(content.len()).unwrap());
        out.extend_from_slice(content);
        out
    };
    assert_eq!(schema().field(id, "items").unwrap().number, 24);
    assert_eq!(read(&field(24, &part(1, &string))), json!({"items": {"type": "string"}}));
    assert_eq!(schema().field(id, "additionalProperties").unwrap().number, 30);
    assert_eq!(read(&field(30, &[8, 1])), json!({"additionalProperties": true}));
    assert_eq!(
        read(&field(30, &[&[8, 0][..], &part(2, &string)].concat())),
        json!({"additionalProperties": {"type": "string"}})
    );
}

#[test]
fn bodies_that_end_early_or_lie_are_refused() {
    assert_eq!(sent("Pod", &[10, 5, 1]), Err(WireError::Short));
    assert_eq!(sent("Pod", &[0x80]), Err(WireError::Short));
    assert_eq!(sent("Pod", &[0]), Err(WireError::Malformed));
    assert_eq!(sent("Pod", &[0xff; 12]), Err(WireError::Malformed));
    let error = sent("Pod", &[8, 1]).unwrap_err();
    assert_eq!(error.to_string(), "proto: wrong wireType = 0 for field metadata");
    assert_eq!(sent("Pod", &[0xfa, 1, 3, 1, 2, 3]).unwrap(), json!({}), "an unknown field is passed over");
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let id = schema().named("apiextensions/v1", "JSONSchemaProps").unwrap();
    let mut deep = Vec::new();
    for _ in 0..100 {
        let length = deep.len();
        let mut outer = vec![0xca, 1];
        let mut rest = length;
        while rest >= 0x80 {
            outer.push(u8::try_from(rest & 0x7f | 0x80).unwrap());
            rest >>= 7;
        }
        outer.push(u8::try_from(rest).unwrap());
        outer.extend(deep);
        deep = outer;
    }
    assert_eq!(schema().field(id, "allOf").unwrap().number, 25);
    assert_eq!(message(schema(), id, &deep), Err(WireError::TooMuch));
    // Two bytes for each empty item.
    let many = [10, 0].repeat(600_000);
    let list = schema().named("core/v1", "PodSpec").unwrap();
    assert_eq!(message(schema(), list, &many), Err(WireError::TooMuch));
}

proptest::proptest! {
    #[test]
    fn no_bytes_bring_the_decoder_down(raw in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        for kind in ["Pod", "Secret", "Service", "Event"] {
            drop(sent(kind, &raw));
        }
        drop(Envelope::read(&[MAGIC, &raw].concat()));
    }
}
