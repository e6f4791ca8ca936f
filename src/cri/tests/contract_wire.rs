//! What is generated from `proto/cri-v1.proto` is the wire contract in `data/cri-v1.tsv`, row by row, both ways.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

const TABLE: &str = include_str!("data/cri-v1.tsv");
const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cri-v1.bin"));

const REDACTED: &str = " debug_redact";

fn table() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn file() -> FileDescriptorProto {
    let mut set = FileDescriptorSet::decode(DESCRIPTOR).unwrap();
    assert_eq!(set.file.len(), 1, "the contract stands in one file");
    set.file.remove(0)
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

fn enum_rows(rows: &mut BTreeSet<String>, parent: &str, list: &[EnumDescriptorProto]) {
    for declared in list {
        for value in &declared.value {
            rows.insert(format!("enum\t{parent}{}\t{}\t{}\tenum\t-", declared.name(), value.name(), value.number()));
        }
    }
}

/// Type and label of a field in the table's words.
fn shape(message: &DescriptorProto, field: &FieldDescriptorProto) -> (String, String) {
    let map = message.nested_type.iter().find(|nested| {
        nested.options.as_ref().is_some_and(|options| options.map_entry()) && last(field.type_name()) == nested.name()
    });
    let mut label = match (map.is_some(), field.proto3_optional(), field.label()) {
        (true, ..) => "map".to_owned(),
        (false, true, _) => "optional".to_owned(),
        (false, false, Label::Repeated) => "repeated".to_owned(),
        (false, false, _) => match field.oneof_index {
            Some(index) => format!("oneof:{}", message.oneof_decl[usize::try_from(index).unwrap()].name()),
            None => "singular".to_owned(),
        },
    };
    if field.options.as_ref().is_some_and(|options| options.deprecated()) {
        label.push_str(" deprecated");
    }
    let kind = match map {
        Some(entry) => format!("map<{},{}>", scalar(&entry.field[0]), scalar(&entry.field[1])),
        None => scalar(field),
    };
    (kind, label)
}

fn scalar(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => last(field.type_name()).to_owned(),
        Type::String => "string".to_owned(),
        Type::Bytes => "bytes".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Double => "double".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Uint32 => "uint32".to_owned(),
        Type::Uint64 => "uint64".to_owned(),
        other => format!("{other:?}"),
    }
}

fn generated_rows() -> BTreeSet<String> {
    let file = file();
    let mut rows = BTreeSet::new();
    for service in &file.service {
        for method in &service.method {
            assert!(!method.client_streaming(), "{} streams from the client", method.name());
            let stream = if method.server_streaming() { "stream " } else { "" };
            rows.insert(format!(
                "rpc\t{}\t{}\t-\t{}\t{stream}{}",
                service.name(),
                method.name(),
                last(method.input_type()),
                last(method.output_type())
            ));
        }
    }
    enum_rows(&mut rows, "", &file.enum_type);
    for message in &file.message_type {
        let parent = message.name();
        if message.field.is_empty() {
            rows.insert(format!("message\t{parent}\t-\t-\t(empty)\t-"));
        }
        for field in &message.field {
            let (kind, label) = shape(message, field);
            rows.insert(format!("field\t{parent}\t{}\t{}\t{kind}\t{label}", field.name(), field.number()));
        }
        enum_rows(&mut rows, &format!("{parent}."), &message.enum_type);
    }
    rows
}

#[test]
fn every_message_field_enum_and_call_is_as_the_table_says() {
    // The descriptor types at hand do not know this option; the test below reads it from the source.
    let wanted: BTreeSet<String> = table().map(|row| row.replace(REDACTED, "")).collect();
    assert!(wanted.len() > 600, "the table lost rows: {}", wanted.len());
    let got = generated_rows();
    let missing: Vec<_> = wanted.difference(&got).collect();
    let surplus: Vec<_> = got.difference(&wanted).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing: {missing:#?}\nsurplus: {surplus:#?}");
}

#[test]
fn calls_go_to_the_package_that_runtimes_serve() {
    assert_eq!(file().package(), "runtime.v1");
    assert_eq!(file().syntax(), "proto3");
}

#[test]
fn fields_with_credentials_are_marked() {
    let source = include_str!("../../../proto/cri-v1.proto");
    let marked: BTreeSet<&str> = source
        .lines()
        .filter(|line| line.contains("debug_redact = true"))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let wanted: BTreeSet<&str> =
        table().filter(|row| row.ends_with(REDACTED)).filter_map(|row| row.split('\t').nth(2)).collect();
    assert_eq!(marked, wanted);
}
