//! `/openapi/v2` in protobuf, the only form in which kubectl takes that document (it reads it for lists of objects and for
//! `explain --output=plaintext-openapiv2`). Field numbers are those of the messages `openapi.v2` in which Go's OpenAPI
//! libraries keep a document; what the documents here never have is left out.

use longshore_util::yaml;
use prost::{Message, Oneof};
use serde_json::{Map, Value};

/// As it is asked for, and as the answer is marked: an `@` may not stand in a media type.
pub(crate) const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub(crate) const MARKED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
    #[prost(message, optional, tag = "8")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "9")]
    definitions: Option<Schemas>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Paths {
    #[prost(message, repeated, tag = "2")]
    path: Vec<NamedPath>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedPath {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Path>,
}

#[derive(Clone, PartialEq, Message)]
struct Path {
    #[prost(message, optional, tag = "2")]
    get: Option<Operation>,
    #[prost(message, optional, tag = "8")]
    patch: Option<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(string, tag = "5")]
    id: String,
    #[prost(string, repeated, tag = "6")]
    produces: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    consumes: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    parameters: Vec<ParameterItem>,
    #[prost(message, optional, tag = "9")]
    responses: Option<Responses>,
    #[prost(message, repeated, tag = "13")]
    extensions: Vec<NamedAny>,
}

/// A parameter of the query, in the three shells that the messages put around it.
#[derive(Clone, PartialEq, Message)]
struct ParameterItem {
    #[prost(message, optional, tag = "1")]
    parameter: Option<Parameter>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(message, optional, tag = "2")]
    not_a_body: Option<NotABody>,
}

#[derive(Clone, PartialEq, Message)]
struct NotABody {
    #[prost(message, optional, tag = "3")]
    query: Option<Query>,
}

#[derive(Clone, PartialEq, Message)]
struct Query {
    #[prost(string, tag = "2")]
    place: String,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(string, tag = "6")]
    kind: String,
    #[prost(bool, tag = "20")]
    unique_items: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Responses {
    #[prost(message, repeated, tag = "1")]
    codes: Vec<NamedResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedResponse {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<ResponseValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseValue {
    #[prost(message, optional, tag = "1")]
    response: Option<Response>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    description: String,
    #[prost(message, optional, tag = "2")]
    schema: Option<Wrapped>,
}

/// A schema, or schemas, in the one shell that items and answers have.
#[derive(Clone, PartialEq, Message)]
struct Wrapped {
    #[prost(message, repeated, tag = "1")]
    schema: Vec<Schema>,
}

/// Definitions and properties.
#[derive(Clone, PartialEq, Message)]
struct Schemas {
    #[prost(message, repeated, tag = "1")]
    all: Vec<NamedSchema>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedSchema {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct Schema {
    #[prost(string, tag = "1")]
    reference: String,
    #[prost(string, tag = "2")]
    format: String,
    #[prost(string, tag = "3")]
    title: String,
    #[prost(string, tag = "4")]
    description: String,
    #[prost(message, optional, tag = "5")]
    default: Option<Any>,
    #[prost(double, tag = "6")]
    multiple_of: f64,
    #[prost(double, tag = "7")]
    maximum: f64,
    #[prost(bool, tag = "8")]
    exclusive_maximum: bool,
    #[prost(double, tag = "9")]
    minimum: f64,
    #[prost(bool, tag = "10")]
    exclusive_minimum: bool,
    #[prost(int64, tag = "11")]
    max_length: i64,
    #[prost(int64, tag = "12")]
    min_length: i64,
    #[prost(string, tag = "13")]
    pattern: String,
    #[prost(int64, tag = "14")]
    max_items: i64,
    #[prost(int64, tag = "15")]
    min_items: i64,
    #[prost(bool, tag = "16")]
    unique_items: bool,
    #[prost(int64, tag = "17")]
    max_properties: i64,
    #[prost(int64, tag = "18")]
    min_properties: i64,
    #[prost(string, repeated, tag = "19")]
    required: Vec<String>,
    #[prost(message, repeated, tag = "20")]
    values: Vec<Any>,
    #[prost(message, optional, tag = "21")]
    additional: Option<Additional>,
    #[prost(message, optional, tag = "22")]
    kind: Option<Kinds>,
    #[prost(message, optional, tag = "23")]
    items: Option<Wrapped>,
    #[prost(message, repeated, tag = "24")]
    all_of: Vec<Self>,
    #[prost(message, optional, tag = "25")]
    properties: Option<Schemas>,
    #[prost(message, repeated, tag = "31")]
    extensions: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, Message)]
struct Kinds {
    #[prost(string, repeated, tag = "1")]
    value: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Additional {
    #[prost(oneof = "SchemaOrNot", tags = "1, 2")]
    value: Option<SchemaOrNot>,
}

#[derive(Clone, PartialEq, Oneof)]
enum SchemaOrNot {
    #[prost(message, boxed, tag = "1")]
    Schema(Box<Schema>),
    #[prost(bool, tag = "2")]
    Boolean(bool),
}

/// A value of any kind, as YAML.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "2")]
    yaml: String,
}

#[derive(Clone, PartialEq, Message)]
struct NamedAny {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
}

/// Encodes what [`super::v2`] made.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    let path = |(name, item): (&String, &Value)| NamedPath {
        name: name.clone(),
        value: Some(Path { get: item.get("get").map(operation), patch: item.get("patch").map(operation) }),
    };
    let document = Document {
        swagger: text(document, "swagger"),
        info: document.get("info").map(|info| Info { title: text(info, "title"), version: text(info, "version") }),
        paths: Some(Paths { path: entries(document, "paths").map(path).collect() }),
        definitions: Some(schemas(document, "definitions")),
    };
    document.encode_to_vec()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let texts = value[field].as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[field].as_object().into_iter().flat_map(Map::iter)
}

fn any(value: &Value) -> Any {
    Any { yaml: yaml::to_string(value).unwrap_or_default() }
}

fn extensions(value: &Value) -> Vec<NamedAny> {
    let all = value.as_object().into_iter().flat_map(Map::iter).filter(|(name, _)| name.starts_with("x-"));
    all.map(|(name, value)| NamedAny { name: name.clone(), value: Some(any(value)) }).collect()
}

fn operation(value: &Value) -> Operation {
    let parameter = |value: &Value| {
        let query = Query {
            place: text(value, "in"),
            name: text(value, "name"),
            kind: text(value, "type"),
            unique_items: value["uniqueItems"] == true,
        };
        ParameterItem { parameter: Some(Parameter { not_a_body: Some(NotABody { query: Some(query) }) }) }
    };
    let response = |(name, value): (&String, &Value)| {
        let schema = value.get("schema").map(|value| Wrapped { schema: vec![schema(value)] });
        let response = Response { description: text(value, "description"), schema };
        NamedResponse { name: name.clone(), value: Some(ResponseValue { response: Some(response) }) }
    };
    Operation {
        id: text(value, "operationId"),
        produces: texts(value, "produces"),
        consumes: texts(value, "consumes"),
        parameters: value["parameters"].as_array().into_iter().flatten().map(parameter).collect(),
        responses: Some(Responses { codes: entries(value, "responses").map(response).collect() }),
        extensions: extensions(value),
    }
}

fn schemas(value: &Value, field: &str) -> Schemas {
    let named = |(name, value): (&String, &Value)| NamedSchema { name: name.clone(), value: Some(schema(value)) };
    Schemas { all: entries(value, field).map(named).collect() }
}

fn schema(value: &Value) -> Schema {
    let double = |field: &str| value[field].as_f64().unwrap_or_default();
    let number = |field: &str| value[field].as_i64().unwrap_or_default();
    let one_or_many = |value: &Value| match value {
        Value::Array(all) => all.iter().map(schema).collect(),
        one => vec![schema(one)],
    };
    let kind = match &value["type"] {
        Value::String(kind) => Some(Kinds { value: vec![kind.clone()] }),
        Value::Array(_) => Some(Kinds { value: texts(value, "type") }),
        _ => None,
    };
    let additional = value.get("additionalProperties").map(|value| match value {
        Value::Bool(value) => SchemaOrNot::Boolean(*value),
        value => SchemaOrNot::Schema(Box::new(schema(value))),
    });
    Schema {
        reference: text(value, "$ref"),
        format: text(value, "format"),
        title: text(value, "title"),
        description: text(value, "description"),
        default: value.get("default").map(any),
        multiple_of: double("multipleOf"),
        maximum: double("maximum"),
        exclusive_maximum: value["exclusiveMaximum"] == true,
        minimum: double("minimum"),
        exclusive_minimum: value["exclusiveMinimum"] == true,
        max_length: number("maxLength"),
        min_length: number("minLength"),
        pattern: text(value, "pattern"),
        max_items: number("maxItems"),
        min_items: number("minItems"),
        unique_items: value["uniqueItems"] == true,
        max_properties: number("maxProperties"),
        min_properties: number("minProperties"),
        required: texts(value, "required"),
        values: value["enum"].as_array().into_iter().flatten().map(any).collect(),
        additional: additional.map(|value| Additional { value: Some(value) }),
        kind,
        items: value.get("items").map(|items| Wrapped { schema: one_or_many(items) }),
        all_of: value["allOf"].as_array().into_iter().flatten().map(schema).collect(),
        properties: value.get("properties").map(|_| schemas(value, "properties")),
        extensions: extensions(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_reads_back_as_it_was() {
        let document = json!({"swagger": "2.0", "info": {"title": "T", "version": "v1"},
            "paths": {"/api/v1/things/{name}": {"patch": {"operationId": "patchThing",
                "parameters": [{"name": "fieldValidation", "in": "query", "type": "string", "uniqueItems": true}],
                "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}}},
                "x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": "Thing"}}}},
            "definitions": {"Thing": {"type": "object", "required": ["a"],
                "properties": {"a": {"type": "array", "items": {"type": "string"}}, "b": {"type": "object",
                    "additionalProperties": {"type": "integer", "format": "int32"}},
                    "c": {"type": "object", "additionalProperties": true}, "d": {"enum": ["x"], "minimum": 1.5}},
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}]}}});
        let read = Document::decode(encode(&document).as_slice()).unwrap();
        let path = &read.paths.unwrap().path[0];
        let patch = path.value.as_ref().unwrap().patch.as_ref().unwrap();
        assert_eq!((path.name.as_str(), patch.id.as_str()), ("/api/v1/things/{name}", "patchThing"));
        let kind: Value = yaml::documents(&patch.extensions[0].value.as_ref().unwrap().yaml).unwrap().remove(0);
        assert_eq!(kind["kind"], "Thing");
        let thing = read.definitions.unwrap().all.remove(0).value.unwrap();
        let properties = thing.properties.unwrap().all;
        let names: Vec<&str> = properties.iter().map(|named| named.name.as_str()).collect();
        assert_eq!((names, thing.required), (vec!["a", "b", "c", "d"], vec!["a".to_owned()]));
        let property = |index: usize| properties[index].value.as_ref().unwrap();
        assert_eq!(property(0).items.as_ref().unwrap().schema[0].kind.as_ref().unwrap().value, ["string"]);
        let Some(SchemaOrNot::Schema(inner)) = &property(1).additional.as_ref().unwrap().value else { panic!() };
        assert_eq!(inner.format, "int32");
        assert_eq!(property(2).additional.as_ref().unwrap().value, Some(SchemaOrNot::Boolean(true)));
        assert_eq!((property(3).minimum, property(3).values[0].yaml.trim()), (1.5, "x"));
    }
}
