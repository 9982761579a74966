//! [`ObjectKey`]: namespace and name of an object.

use core::fmt;

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
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
