//! The type table: the fields of every API type, and how each field is decoded, merged, owned and explained.
//!
//! The table is used by strict decoding, pruning, strategic merge patch, server-side apply, OpenAPI and the protobuf
//! decoder.

#[rustfmt::skip]
mod generated;

use serde_json::{Map, Value};

/// The group, version and kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupVersionKind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// Returns the type of a kind, if it is in the table.
pub(crate) fn find_type(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let (group, version) = match (group, version, kind) {
        // These are the same in every group.
        (_, _, "DeleteOptions" | "Status") => ("meta.k8s.io", "v1"),
        // The same type in both versions.
        ("policy", "v1beta1", "Eviction") => ("policy", "v1"),
        _ => (group, version),
    };
    let known =
        generated::KINDS.binary_search_by(|it| (it.0, it.1, it.2).cmp(&(group, version, kind))).ok()?;
    Some(generated::KINDS[known].3)
}

/// Returns the group, version, kind and type of every kind in the table.
pub(crate) fn all_kinds() -> &'static [(&'static str, &'static str, &'static str, &'static Type)] {
    generated::KINDS
}

/// A type with named fields.
#[derive(Debug)]
pub(crate) struct Type {
    /// Full name of the type: `io.k8s.api.apps.v1.DaemonSetSpec`.
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Fields of the type, ordered by name.
    pub(crate) fields: &'static [Field],
    /// Whether an object of the type is owned and replaced as a whole: `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
}

/// A field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    pub(crate) presence: Presence,
    /// Default value of the field as JSON (`"TCP"` with quotes), for OpenAPI and for absent key fields of list items.
    pub(crate) default: Option<&'static str>,
    /// Merge strategy of the field in a strategic merge patch.
    pub(crate) patch: PatchStrategy,
    /// The path of protobuf field numbers to the field. It has several numbers if Go embeds a struct, and none if the
    /// protobuf message does not contain the field.
    pub(crate) proto: &'static [u32],
    /// Name of the embedded Go struct that contains the field, for error messages.
    pub(crate) embedded: Option<&'static str>,
    /// Name of the field's Go type if it is a named type, such as `v1.RestartPolicy`.
    pub(crate) go_type: Option<&'static str>,
}

/// When Go serializes a field. A stored object contains the field in the same cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The field is serialized unless it is zero or empty (`omitempty`).
    NotEmpty,
    /// The field is serialized if it was set, even to zero (a pointer with `omitempty`).
    Set,
    /// The field is always serialized: as `{}`, `0` or `""`, or as `null` for an absent list, map or time.
    Always,
    /// The field is always serialized, as `null` if it is unset.
    OrNull,
}

/// The shape of a value: scalar, object, list or map.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Bool,
    Int32,
    Int64,
    String,
    /// Bytes, which are base64 in JSON.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON value: `RawExtension`.
    Any,
    /// The field set of a field manager: any object.
    FieldsV1,
    Object(&'static Type),
    List(&'static Shape, ListKeys),
    /// A map with string keys.
    Map(&'static Shape, MapType),
}

/// How server-side apply identifies the items of a list. Upstream: `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKeys {
    /// The items are not identified. The list is one value.
    Atomic,
    /// The items are identified by their value.
    Set,
    /// The items are identified by the values of these fields.
    Fields(&'static [&'static str]),
}

/// Whether the entries of a map are owned separately (granular), or the map as a whole (atomic). Upstream:
/// `x-kubernetes-map-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapType {
    Granular,
    Atomic,
}

/// The merge strategy of a field: `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`. The merge key may
/// differ from the key fields in [`ListKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// Default: objects and maps are merged, other values are replaced.
    Plain,
    /// `merge`: a list is merged by this key. Without a key, it is merged as a set of values.
    Merge(Option<&'static str>),
    /// `replace`: an object is replaced as a whole.
    Replace,
    /// `merge,retainKeys`: like `merge`, and fields that `$retainKeys` does not list are removed.
    MergeRetainKeys(&'static str),
}

impl Shape {
    /// Name and description of a type whose JSON is not an object with fields, such as `Quantity`.
    pub(crate) fn special_type_name_and_description(&self) -> Option<(&'static str, &'static str)> {
        let name = match self {
            Self::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
            Self::FieldsV1 => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
            Self::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            Self::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            Self::Any => "io.k8s.apimachinery.pkg.runtime.RawExtension",
            Self::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            _ => return None,
        };
        generated::SPECIAL.iter().find(|it| it.0 == name).copied()
    }

    /// The value that Go serializes for an unset field.
    pub(crate) fn go_zero_value(self) -> Value {
        match self {
            Self::Bool => false.into(),
            Self::Int32 | Self::Int64 | Self::IntOrString => 0.into(),
            Self::String => "".into(),
            Self::Quantity => "0".into(),
            Self::Bytes | Self::Time | Self::MicroTime | Self::Any | Self::FieldsV1 => Value::Null,
            Self::List(..) | Self::Map(..) => Value::Null,
            Self::Object(of) => {
                let mut object = Map::new();
                of.add_always_serialized_fields(&mut object);
                Value::Object(object)
            }
        }
    }
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        Some(&self.fields[self.field_index(name)?])
    }

    /// Index of a field in `fields`.
    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|it| it.name.cmp(name)).ok()
    }

    /// Adds the fields that Go serializes even if they are unset.
    pub(crate) fn add_always_serialized_fields(&self, object: &mut Map<String, Value>) {
        for field in self.fields {
            let value = match field.presence {
                Presence::NotEmpty | Presence::Set => continue,
                _ if object.contains_key(field.name) => continue,
                Presence::Always => field.shape.go_zero_value(),
                Presence::OrNull => Value::Null,
            };
            object.insert(field.name.to_owned(), value);
        }
    }
}
