//! The JSON Schema of the records, made from their types: records.schema.json. The test that it is
//! up to date also writes it, so that installed programs do not contain schemars.

use crate::Record;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The description of the whole schema: rules for every record.
const DESCRIPTION: &str = "A line of the stream between the tools of dgl-tools; its `type` has the \
    definition of that name. The name of a quantity ends with its unit: `_bytes`, `_ms` \
    (milliseconds), `_s` (seconds), `_percent`, `_per_s`; `time_ms` is in milliseconds since 1970. \
    A field without a value is absent, never null, and what is required is in each record that a \
    tool of this version writes. Later versions add types and fields: ignore those that you do not \
    know.";

/// The definition of a record: its fields, and its `type`.
pub fn of<R: Record + JsonSchema>(generator: &mut SchemaGenerator) -> (String, Value) {
    let schema = R::json_schema(generator).to_value();
    let (mut properties, mut required) = (json!({ "type": { "const": R::TYPE } }), json!(["type"]));
    let fields = schema["properties"].as_object().unwrap().clone();
    properties.as_object_mut().unwrap().extend(fields);
    let fields = schema["required"].as_array().unwrap().clone();
    required.as_array_mut().unwrap().extend(fields);
    let definition = json!({
        "description": schema["description"],
        "type": "object",
        "properties": properties,
        "required": required,
    });
    (R::TYPE.to_owned(), definition)
}

/// Removes details that only concern Rust: that an absent field could be null, the number of bits
/// of a number, and the line ends of comments.
fn for_readers(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [name] = types.as_slice() {
            let name = name.clone();
            schema.insert("type".to_owned(), name);
        }
    }
    let of_option = schema.get("anyOf").and_then(Value::as_array);
    if let Some([one, null]) = of_option.map(Vec::as_slice)
        && null["type"] == "null"
    {
        let one = one.as_object().unwrap().clone();
        schema.remove("anyOf");
        schema.ensure_object().extend(one);
    }
    if matches!(schema.get("type"), Some(Value::String(name)) if name != "string") {
        schema.remove("format");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    transform_subschemas(&mut for_readers, schema);
}

fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    let mut definitions = Map::from_iter(crate::schemas(&mut generator));
    let case = |name: &String| {
        json!({
            "if": { "properties": { "type": { "const": name } }, "required": ["type"] },
            "then": { "$ref": format!("#/$defs/{name}") },
        })
    };
    let cases: Vec<Value> = definitions.keys().map(case).collect();
    definitions.extend(generator.take_definitions(false));
    let mut schema: Schema = serde_json::from_value(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of dgl-tools",
        "description": DESCRIPTION,
        "type": "object",
        "properties": { "type": { "type": "string" } },
        "required": ["type"],
        "allOf": cases,
        "$defs": definitions,
    }))
    .unwrap();
    for_readers(&mut schema);
    schema.to_value()
}

/// With DGL_TOOLS_WRITE_SCHEMA (`make schema`), writes it.
#[test]
fn records_schema_json_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/records.schema.json");
    let text = format!("{:#}\n", schema());
    if std::env::var_os("DGL_TOOLS_WRITE_SCHEMA").is_some() {
        return std::fs::write(path, text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "the types of records have changed: run make schema"
    );
}

/// Readers of the schema must learn what each number counts.
#[test]
fn the_description_of_a_quantity_has_its_unit() {
    let schema = schema();
    let units = [
        ("_bytes", "byte"),
        ("_ms", "millisecond"),
        ("_s", "second"),
        ("_percent", "percent"),
    ];
    let mut wrong = Vec::new();
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let Some(fields) = definition["properties"].as_object() else {
            continue;
        };
        for (field, of) in fields.iter().filter(|(field, _)| *field != "type") {
            let text = of["description"]
                .as_str()
                .unwrap_or_default()
                .to_lowercase();
            let unit = units.iter().find(|(end, _)| field.ends_with(end));
            if text.is_empty() || unit.is_some_and(|(_, unit)| !text.contains(unit)) {
                wrong.push(format!("{name}.{field}: {text:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The manual wraps an example: a line begins with four blanks if the record has a blank there, and
/// with two if it has none.
#[test]
fn each_example_of_the_manual_is_what_its_type_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/dgl-tools-records.5");
    let manual = std::fs::read_to_string(path).unwrap();
    for &kind in crate::TYPES {
        let (_, section) = manual.split_once(&format!("\n.Ss {kind}\n")).expect(kind);
        let (section, _) = section.split_once("\n.S").expect(kind);
        let (_, example) = section
            .split_once("\n.Bd -literal -offset indent\n")
            .expect(kind);
        let (example, _) = example.split_once("\n.Ed").expect(kind);
        let line = example.replace("\n    ", " ").replace("\n  ", "");
        let mut record: Map<String, Value> = serde_json::from_str(&line.replace("\\e", "\\"))
            .unwrap_or_else(|error| panic!("{kind}: {error}: {line}"));
        assert_eq!(record.shift_remove("type"), Some(json!(kind)));
        let rewritten = crate::rewritten(kind, Value::Object(record.clone()));
        assert_eq!(rewritten.expect(kind), Value::Object(record), "{kind}");
    }
}
