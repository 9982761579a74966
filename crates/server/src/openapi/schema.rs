//! OpenAPI schemas of the types in the type table.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::OpenApiVersion;
use super::enum_values::enum_values;
use crate::kinds::{Kind, ServedKinds};
use crate::types::{self, Field, ListKeys, MapType, PatchStrategy, Presence, Shape, Type};

/// Builds the schemas of an OpenAPI document: one for each added type, and one for each type to which an added type
/// refers, directly or indirectly.
#[derive(Debug)]
pub(super) struct SchemasBuilder<'a> {
    /// All kinds that the server serves, also those that the document does not describe.
    served: &'a ServedKinds,
    version: OpenApiVersion,
    /// Schemas of types by the name of the type. The value is null while a schema is being built.
    schemas: BTreeMap<&'static str, Value>,
    /// Schemas of the lists of kinds, such as `…PodList`, by name.
    list_schemas: BTreeMap<String, Value>,
}

impl<'a> SchemasBuilder<'a> {
    pub(super) fn new(served: &'a ServedKinds, version: OpenApiVersion) -> Self {
        Self { served, version, schemas: BTreeMap::new(), list_schemas: BTreeMap::new() }
    }

    pub(super) fn into_schemas(self) -> Map<String, Value> {
        let found = self.schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema));
        found.chain(self.list_schemas).collect()
    }

    /// Adds the schema of the type of this group, version and kind, if the type table contains it.
    pub(super) fn add_kind_type(&mut self, group: &str, version: &str, kind: &str) {
        if let Some(of) = types::find_type(group, version, kind) {
            self.add_type(of);
        }
    }

    /// Adds the schema of a kind and, if the kind can be listed, that of its list. Does nothing if the type of the kind
    /// is not known.
    pub(super) fn add_kind(&mut self, kind: &Kind) {
        let Some(of) = kind.object_type() else { return };
        self.add_type(of);
        if !kind.verbs.contains(&"list") {
            return;
        }
        self.add_kind_type("meta.k8s.io", "v1", "ListMeta");
        let item = self.schema_reference(of.name);
        let described = |name: &str| of.field(name).map_or("", |it| it.description);
        let schema = json!({
            "description": format!("{0}List is a list of {0} objects.", kind.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": described("apiVersion")},
                "kind": {"type": "string", "description": described("kind")},
                "metadata": self.schema_reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"),
                "items": {"type": "array", "description": "Items is the list.", "items": item},
            },
            "x-kubernetes-group-version-kind": [
                {"group": kind.group, "version": kind.version, "kind": format!("{}List", kind.kind)}
            ],
        });
        self.list_schemas.insert(format!("{}List", of.name), schema);
    }

    /// Adds the schema of a type and the schemas of the types of its fields. Does nothing if the schema of the type was
    /// already added.
    fn add_type(&mut self, of: &'static Type) {
        if self.schemas.contains_key(of.name) {
            return;
        }
        // Inserted before its fields, since a type may contain itself.
        self.schemas.insert(of.name, Value::Null);
        let mut schema = json!({"type": "object", "description": of.description});
        let properties: Map<String, Value> =
            of.fields.iter().map(|it| (it.name.to_owned(), self.field_schema(it))).collect();
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        let required: Vec<&str> = of.fields.iter().filter(|it| it.required).map(|it| it.name).collect();
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if of.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        let kinds = group_version_kinds(self.served, of);
        if !kinds.is_empty() {
            schema["x-kubernetes-group-version-kind"] = kinds.into();
        }
        self.schemas.insert(of.name, schema);
    }

    /// Returns the schema of a field, with its description and `x-kubernetes-…` extensions, and in OpenAPI v3 also with
    /// its default.
    fn field_schema(&mut self, field: &'static Field) -> Value {
        let mut schema = self.schema_of_shape(field.shape);
        let mut description = field.description.to_owned();
        let go_type = field.go_type.unwrap_or_default();
        match field.shape {
            Shape::List(..) => {
                if let Some(values) = enum_values(go_type.trim_start_matches("[]")) {
                    schema["items"]["enum"] = values.into();
                }
            }
            _ => {
                if let Some(values) = enum_values(go_type) {
                    schema["enum"] = values.into();
                    let lines = values.iter().map(|it| format!("\n - `{it:?}`"));
                    description.extend(["\n\nPossible enum values:".to_owned()].into_iter().chain(lines));
                }
            }
        }
        if !description.is_empty() {
            schema["description"] = description.into();
        }
        if self.version == OpenApiVersion::V3 {
            // OpenAPI v2 does not allow a default beside a reference.
            let zero = (field.presence == Presence::Always).then(|| zero_default(field.shape)).flatten();
            let declared = field.default.and_then(|it| serde_json::from_str(it).ok());
            if let Some(default) = declared.or(zero) {
                schema["default"] = default;
            }
        }
        let (strategy, key) = match field.patch {
            PatchStrategy::Plain => ("", None),
            PatchStrategy::Merge(key) => ("merge", key),
            PatchStrategy::Replace => ("replace", None),
            PatchStrategy::MergeRetainKeys(key) => ("merge,retainKeys", Some(key)),
        };
        if !strategy.is_empty() {
            schema["x-kubernetes-patch-strategy"] = strategy.into();
        }
        if let Some(key) = key {
            schema["x-kubernetes-patch-merge-key"] = key.into();
        }
        match field.shape {
            Shape::List(_, ListKeys::Atomic) => schema["x-kubernetes-list-type"] = "atomic".into(),
            Shape::List(_, ListKeys::Set) => schema["x-kubernetes-list-type"] = "set".into(),
            Shape::List(_, ListKeys::Fields(keys)) => {
                schema["x-kubernetes-list-type"] = "map".into();
                schema["x-kubernetes-list-map-keys"] = keys.into();
            }
            Shape::Map(_, MapType::Atomic) => schema["x-kubernetes-map-type"] = "atomic".into(),
            _ => {}
        }
        schema
    }

    /// Returns the schema of a value of the type `shape`, without description and default. Adds the schemas of the
    /// types to which it refers.
    fn schema_of_shape(&mut self, shape: Shape) -> Value {
        match shape {
            Shape::Bool => json!({"type": "boolean"}),
            Shape::Int32 => json!({"type": "integer", "format": "int32"}),
            Shape::Int64 => json!({"type": "integer", "format": "int64"}),
            Shape::String => json!({"type": "string"}),
            Shape::Bytes => json!({"type": "string", "format": "byte"}),
            Shape::Object(of) => {
                self.add_type(of);
                self.schema_reference(of.name)
            }
            Shape::List(items, _) => json!({"type": "array", "items": self.item_schema(*items)}),
            Shape::Map(values, _) => {
                json!({"type": "object", "additionalProperties": self.item_schema(*values)})
            }
            Shape::Time
            | Shape::MicroTime
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::Any
            | Shape::FieldsV1 => self.add_custom_json_schema(shape),
        }
    }

    /// Returns the schema of the items of a list or of the values of a map, which have the type `shape`. In OpenAPI v3,
    /// the schema contains their default.
    fn item_schema(&mut self, shape: Shape) -> Value {
        let mut schema = self.schema_of_shape(shape);
        match (self.version, zero_default(shape)) {
            (OpenApiVersion::V2, _) => schema,
            (OpenApiVersion::V3, Some(zero)) => {
                schema["default"] = zero;
                schema
            }
            // A reference with nothing beside it needs no `allOf`.
            (OpenApiVersion::V3, None) => schema.pointer("/allOf/0").cloned().unwrap_or(schema),
        }
    }

    /// Adds the schema of a type that has a JSON encoding of its own, such as Quantity, and returns a reference to the
    /// schema. `shape` must be one for which [`Shape::custom_json_type_name_and_description`] returns a name.
    fn add_custom_json_schema(&mut self, shape: Shape) -> Value {
        let Some((name, description)) = shape.custom_json_type_name_and_description() else {
            return json!({});
        };
        let v3 = self.version == OpenApiVersion::V3;
        let mut schema = match shape {
            Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
            Shape::Quantity if v3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Shape::IntOrString if v3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            Shape::IntOrString => json!({"type": "string", "format": "int-or-string"}),
            Shape::Quantity => json!({"type": "string"}),
            _ => json!({"type": "object"}),
        };
        schema["description"] = description.into();
        self.schemas.insert(name, schema);
        self.schema_reference(name)
    }

    /// Returns a reference to the schema with this name.
    fn schema_reference(&self, name: &str) -> Value {
        match self.version {
            OpenApiVersion::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            // Nothing may be beside a reference, so `allOf` wraps it: a description will be added.
            OpenApiVersion::V3 => json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]}),
        }
    }
}

/// Returns the default that upstream's OpenAPI v3 documents contain for a value of the type `shape`. This is Go's zero
/// value, or `None` for a type without default.
fn zero_default(shape: Shape) -> Option<Value> {
    match shape {
        Shape::Bool => Some(false.into()),
        Shape::Int32 | Shape::Int64 => Some(0.into()),
        Shape::String => Some("".into()),
        Shape::Object(_) => Some(json!({})),
        _ => None,
    }
}

/// Returns the value of `x-kubernetes-group-version-kind` for a type: the kinds with this type. `DeleteOptions` is a
/// kind of every served group and version, and `Status` is a kind of the core group. The other kinds of `meta.k8s.io`
/// are left out.
fn group_version_kinds(served: &ServedKinds, of: &'static Type) -> Vec<Value> {
    let named =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut found = Vec::new();
    for (group, version, kind, it) in types::all_kinds() {
        match (*group, *kind) {
            _ if !std::ptr::eq(*it, of) => {}
            // DeleteOptions are registered in every group.
            (_, "DeleteOptions") => {
                let all = served.group_versions();
                found.extend(all.into_iter().map(|(group, version)| named(group, version, kind)));
            }
            (_, "Status") => found.push(named("", version, kind)),
            ("meta.k8s.io", _) => {}
            _ => found.push(named(group, version, kind)),
        }
    }
    let added = served.all().filter(|it| it.added_type.is_some_and(|it| std::ptr::eq(it, of)));
    found.extend(added.map(|it| named(it.group, it.version, it.kind)));
    found
}
