//! The one table of types: what fields an object has, and how each is decoded, merged, owned and explained.
//!
//! Strict decoding, pruning, strategic merge, server-side apply, OpenAPI and the protobuf decoder all read it,
//! and nothing else knows a field by type.

#[rustfmt::skip]
mod generated;

/// The group, version and kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupVersionKind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// The type of the objects of a kind, if it is known.
pub(crate) fn of(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let (group, version) = match (group, version, kind) {
        // Every group has these.
        (_, _, "DeleteOptions" | "Status") => ("meta.k8s.io", "v1"),
        // The same in both versions.
        ("policy", "v1beta1", "Eviction") => ("policy", "v1"),
        _ => (group, version),
    };
    let known =
        generated::KINDS.binary_search_by(|it| (it.0, it.1, it.2).cmp(&(group, version, kind))).ok()?;
    Some(generated::KINDS[known].3)
}

/// Every kind with its type: group, version, kind.
pub(crate) fn kinds() -> &'static [(&'static str, &'static str, &'static str, &'static Type)] {
    generated::KINDS
}

/// A type with named fields.
#[derive(Debug)]
pub(crate) struct Type {
    /// `io.k8s.api.apps.v1.DaemonSetSpec`
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Ordered by name.
    pub(crate) fields: &'static [Field],
    /// Owned and replaced as a whole: `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    pub(crate) presence: Presence,
    /// What an absent field means where it is part of a list's key, as JSON: `"TCP"` in quotes.
    pub(crate) default: Option<&'static str>,
    /// How a strategic merge patch changes it.
    pub(crate) patch: Patch,
    /// The field numbers that lead to it in protobuf: more than one where Go embeds a struct that the wire
    /// nests; none where protobuf does not carry it.
    pub(crate) proto: &'static [u32],
    /// The struct that Go embeds it with: errors name it.
    pub(crate) embedded: Option<&'static str>,
    /// What Go calls its type, where that is not what JSON calls it: `v1.RestartPolicy`.
    pub(crate) go_type: Option<&'static str>,
}

/// When Go writes a field, which is when our objects have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Unless it is zero or empty.
    NotEmpty,
    /// When it was set, be it to zero.
    Set,
    /// Always: `{}`, `0`, `""`, or `null` for a list, a map or a time that is not there.
    Always,
    /// Always, as `null` when it was not set.
    OrNull,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Bool,
    Int32,
    Int64,
    String,
    /// Base64 in JSON.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON at all: `RawExtension`.
    Any,
    /// The set of fields of a manager: any object.
    FieldsV1,
    Object(&'static Type),
    List(&'static Shape, Keys),
    /// From names to values. `atomic` maps are owned and replaced as a whole.
    Map(&'static Shape, MapKind),
}

/// How the items of a list are told apart by server-side apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// They are not: the list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Fields(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapKind {
    Granular,
    Atomic,
}

/// `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`. The key may differ from [`Keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patch {
    /// Objects and maps merge, all else is replaced.
    Plain,
    /// `merge`: a list is merged by this key, or as a set of values where there is none.
    Merge(Option<&'static str>),
    /// `replace`: an object that does not merge.
    Replace,
    /// `merge,retainKeys`: besides, what `$retainKeys` does not name goes.
    MergeRetainKeys(&'static str),
}

impl Shape {
    /// The name and the description of a type that JSON does not write as an object with fields.
    pub(crate) fn special(&self) -> Option<(&'static str, &'static str)> {
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
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        Some(&self.fields[self.position(name)?])
    }

    /// The place of a field among the fields.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|it| it.name.cmp(name)).ok()
    }
}
