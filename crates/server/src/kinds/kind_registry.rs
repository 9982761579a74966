//! Looks up kinds by group, version and plural name.

use std::collections::HashMap;

use super::{Kind, WRITABLE_KINDS, served_kinds};

/// The kinds that a server serves, indexed by their resource. Requests look up their kind here and not in the static
/// tables. Currently a registry contains only the built-in kinds.
#[derive(Debug)]
pub(crate) struct KindRegistry {
    /// Kinds that clients can write.
    writable: Vec<&'static Kind>,
    /// All kinds that clients can read or write, in the order in which discovery lists them.
    served: Vec<&'static Kind>,
    /// The kinds by group, version and plural.
    by_resource: HashMap<(&'static str, &'static str, &'static str), &'static Kind>,
}

impl KindRegistry {
    /// Returns a registry with the built-in kinds.
    pub(crate) fn builtin() -> Self {
        Self {
            writable: WRITABLE_KINDS.iter().collect(),
            served: served_kinds().collect(),
            by_resource: served_kinds().map(|it| ((it.group, it.version, it.plural), it)).collect(),
        }
    }

    /// Returns the kind with this group, version and plural name, or `None` if it is not served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.by_resource.get(&(group, version, plural)).copied()
    }

    /// Returns the kinds that clients can write.
    pub(crate) fn writable_kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.writable.iter().copied()
    }

    /// Returns all kinds that clients can read or write, in the order in which discovery lists them.
    pub(crate) fn served_kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.served.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_own_path_alone() {
        let kinds = KindRegistry::builtin();
        for kind in served_kinds() {
            let found = kinds.find(kind.group, kind.version, kind.plural).expect("it is served");
            assert!(std::ptr::eq(found, kind), "{}: another kind has the same path", kind.group_resource());
        }
        assert!(kinds.find("", "v2", "pods").is_none());
    }
}
