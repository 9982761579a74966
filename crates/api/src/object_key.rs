//! [`ObjectKey`]: namespace and name of an object.

use alloc::collections::BTreeMap;
use core::fmt;
use core::ops::RangeFrom;

use crate::text::Text;

/// Namespace and name of an object. The namespace of a cluster-scoped object is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    pub namespace: Text,
    pub name: Text,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the range of all keys in a namespace and in the namespaces after it.
    fn range_from_namespace(namespace: &Text) -> RangeFrom<Self> {
        Self { namespace: namespace.clone(), name: Text::from("") }..
    }
}

/// Returns the entries of a map whose keys are in a namespace.
pub fn entries_in_namespace<'a, T>(
    all: &'a BTreeMap<ObjectKey, T>,
    namespace: &'a Text,
) -> impl Iterator<Item = (&'a ObjectKey, &'a T)> {
    let entries = all.range(ObjectKey::range_from_namespace(namespace));
    entries.take_while(move |(key, _)| key.namespace == *namespace)
}

/// Returns the entries of a map whose keys are in a namespace, with mutable values.
pub fn entries_in_namespace_mut<'a, T>(
    all: &'a mut BTreeMap<ObjectKey, T>,
    namespace: &'a Text,
) -> impl Iterator<Item = (&'a ObjectKey, &'a mut T)> {
    let entries = all.range_mut(ObjectKey::range_from_namespace(namespace));
    entries.take_while(move |(key, _)| key.namespace == *namespace)
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
