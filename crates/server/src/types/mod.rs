//! The type table: the fields of every API type, and how each field is decoded, merged, owned and explained.
//!
//! The table is used by strict decoding, pruning, strategic merge patch, server-side apply, OpenAPI and the protobuf
//! decoder.

/// The generated table of types.
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

/// A kind with the type of its objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedKind<'a> {
    pub(crate) gvk: GroupVersionKind<'a>,
    /// `None` if the type is not known.
    pub(crate) object_type: Option<&'static Type>,
}

impl<'a> From<GroupVersionKind<'a>> for TypedKind<'a> {
    /// Looks up the type in the type table.
    fn from(gvk: GroupVersionKind<'a>) -> Self {
        Self { gvk, object_type: find_type(gvk.group, gvk.version, gvk.kind) }
    }
}

/// Returns the type of a kind, or `None` if the type table does not contain the kind.
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

/// Returns the group, version, kind and type of every kind in the type table.
pub(crate) fn all_kinds() -> &'static [(&'static str, &'static str, &'static str, &'static Type)] {
    generated::KINDS
}

/// Returns the values of an enum of `muster.dev` by its name, such as `v1alpha1.OrderBy`. Returns `None` for other
/// names.
pub(crate) fn enum_values(name: &str) -> Option<&'static [&'static str]> {
    let known = generated::ENUM_VALUES.binary_search_by(|it| it.0.cmp(name)).ok()?;
    Some(generated::ENUM_VALUES[known].1)
}

/// An API type with named fields: a Go struct.
#[derive(Debug)]
pub(crate) struct Type {
    /// Full name of the type, such as `io.k8s.api.apps.v1.DaemonSetSpec`.
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Fields of the type, ordered by name.
    pub(crate) fields: &'static [Field],
    /// Whether a field manager owns and replaces an object of this type as a whole: `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
}

/// A field of a [`Type`].
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Type of the value of the field.
    pub(crate) shape: Shape,
    /// Whether OpenAPI lists the field as required.
    pub(crate) required: bool,
    /// When the field is serialized.
    pub(crate) presence: Presence,
    /// Default value of the field as JSON text, such as `"TCP"` with quotes. It is used in OpenAPI, and for key fields
    /// that are absent in list items.
    pub(crate) default: Option<&'static str>,
    /// How a strategic merge patch merges the field.
    pub(crate) patch: PatchStrategy,
    /// The path of protobuf field numbers to the field. The path has several numbers if the field is declared in a
    /// struct that Go embeds. The path is empty if the type has no protobuf message, or if the message does not contain
    /// the field.
    pub(crate) proto: &'static [u32],
    /// Name of the embedded Go struct that declares the field, for error messages. `None` if the type itself declares
    /// the field.
    pub(crate) embedded: Option<&'static str>,
    /// Name of the Go type of the field, such as `v1.RestartPolicy`. `None` if it is not a named type.
    pub(crate) go_type: Option<&'static str>,
}

/// When Go serializes a field. Stored objects contain the field in the same cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The field is serialized unless it is zero or empty (`omitempty`).
    NotEmpty,
    /// The field is serialized if it was set, even to zero (a pointer with `omitempty`).
    Set,
    /// The field is always serialized. If it is unset, its value is Go's zero value, see [`Shape::go_zero_value`].
    Always,
    /// The field is always serialized. If it is unset, its value is `null`.
    OrNull,
}

/// The type of a value in JSON: a scalar, an object with named fields, a list, a map or arbitrary JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Bool,
    Int32,
    Int64,
    String,
    /// Bytes, which are base64 in JSON.
    Bytes,
    /// `metav1.Time`: a time in whole seconds.
    Time,
    /// `metav1.MicroTime`: a time in microseconds.
    MicroTime,
    /// `resource.Quantity`: a string or number such as `100Mi`.
    Quantity,
    /// `intstr.IntOrString`: an integer or a string.
    IntOrString,
    /// `runtime.RawExtension`: any JSON value.
    Any,
    /// `metav1.FieldsV1`: the field set in an entry of `managedFields`. Any JSON object.
    FieldsV1,
    /// An object with named fields.
    Object(&'static Type),
    /// A list with items of this shape.
    List(&'static Shape, ListKeys),
    /// A map from strings to values of this shape.
    Map(&'static Shape, MapType),
}

/// How server-side apply identifies the items of a list. Upstream: `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKeys {
    /// The items are not identified. A manager owns the list as a whole.
    Atomic,
    /// The items are identified by their value.
    Set,
    /// The items are identified by the values of these fields.
    Fields(&'static [&'static str]),
}

/// Whether field managers own the entries of a map separately or the map as a whole. Upstream: `x-kubernetes-map-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapType {
    /// Managers own entries separately.
    Granular,
    /// A manager owns the map as a whole.
    Atomic,
}

/// How a strategic merge patch merges a field. OpenAPI: `x-kubernetes-patch-strategy` and
/// `x-kubernetes-patch-merge-key`. The merge key may differ from the key fields in [`ListKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// The default: objects and maps are merged, and other values are replaced.
    Plain,
    /// `merge`: a list of objects is merged by this key. A list of primitives has no key, and its values are merged as
    /// a set.
    Merge(Option<&'static str>),
    /// `replace`: an object is replaced as a whole.
    Replace,
    /// `merge,retainKeys`: like `merge` with this key, and the directive `$retainKeys` removes all fields that it does
    /// not list.
    MergeRetainKeys(&'static str),
}

impl Shape {
    /// Returns the full name and the description of an API type that has a JSON encoding of its own instead of a
    /// [`Type`] with fields: `Time`, `MicroTime`, `Quantity`, `IntOrString`, `RawExtension` or `FieldsV1`. Returns
    /// `None` for all other shapes.
    pub(crate) fn custom_json_type_name_and_description(&self) -> Option<(&'static str, &'static str)> {
        let name = match self {
            Self::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
            Self::FieldsV1 => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
            Self::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            Self::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            Self::Any => "io.k8s.apimachinery.pkg.runtime.RawExtension",
            Self::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            _ => return None,
        };
        generated::CUSTOM_JSON_TYPES.iter().find(|it| it.0 == name).copied()
    }

    /// Returns the JSON that Go writes for an unset value of this shape, if its field is always serialized.
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
    /// Returns the field with this name, or `None` if the type does not declare it.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        Some(&self.fields[self.field_index(name)?])
    }

    /// Returns the index in [`Type::fields`] of the field with this name, or `None` if the type does not declare it.
    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|it| it.name.cmp(name)).ok()
    }

    /// Whether objects of the type can be sent as protobuf. Objects of the kinds of `muster.dev` cannot.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.fields.iter().any(|it| !it.proto.is_empty())
    }

    /// Adds to an object of this type the absent fields that Go serializes even if they are unset.
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
