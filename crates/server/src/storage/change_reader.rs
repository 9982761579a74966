//! Reads the changes of the stored objects of one kind, to update an index of them in memory.

use muster_store::{KeyChange, Revision};

use super::ObjectStorage;
use crate::kinds::Kind;
use crate::selector::ObjectSelector;

/// Reads the changes of the stored objects of one kind, each once.
#[derive(Debug, Default)]
pub(crate) struct ObjectChangeReader {
    /// Revision of the store up to which the changes have been read. `None` before the first read.
    synced_revision: Option<Revision>,
}

/// A change to apply to an index of stored objects. The objects are JSON.
#[derive(Debug)]
pub(crate) enum ObjectChange<'a> {
    /// The index is obsolete. All stored objects follow as [`ObjectChange::Put`].
    Reset,
    /// The object exists. `before` is the object that it replaced: `None` for a create, and after a reset.
    Put { now: &'a [u8], before: Option<&'a [u8]> },
    /// The object `before` was deleted.
    Delete { before: &'a [u8] },
}

impl ObjectChangeReader {
    /// Calls `apply` with each change since the last call, oldest first. On the first call, and if the store no longer
    /// has the changes, calls `apply` with a reset and then with each stored object.
    pub(crate) fn for_each_change(
        &mut self,
        storage: &ObjectStorage,
        kind: &Kind,
        mut apply: impl FnMut(ObjectChange<'_>),
    ) {
        let changes = self
            .synced_revision
            .and_then(|seen| storage.events_since(&kind.store_key_prefix(None), seen).ok());
        let Some((events, revision)) = changes else {
            let (objects, revision) = storage.list(kind, None, &ObjectSelector::default());
            apply(ObjectChange::Reset);
            for object in &objects {
                apply(ObjectChange::Put { now: object, before: None });
            }
            self.synced_revision = Some(revision);
            return;
        };
        for event in events {
            apply(match &event.change {
                KeyChange::Put { now, before } => {
                    ObjectChange::Put { now: &now.value, before: before.as_ref().map(|it| it.value.as_ref()) }
                }
                KeyChange::Delete { before, .. } => ObjectChange::Delete { before: &before.value },
            });
        }
        self.synced_revision = Some(revision);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::registry::{DeleteOptions, Registry};
    use crate::request::{RequestContext, RequestTarget};
    use crate::subresource::Subresource;
    use crate::unstructured::{parse_stored, str_at};

    /// The changes of namespaces since the last call, such as `+a -b`, with `reset` for a reset.
    fn changes(reader: &mut ObjectChangeReader, registry: &Registry) -> String {
        let mut found = Vec::new();
        reader.for_each_change(&registry.storage, Kind::namespace_kind(), |change| {
            let name = |object: &[u8]| str_at(&parse_stored(object), "metadata.name").to_owned();
            found.push(match change {
                ObjectChange::Reset => "reset".to_owned(),
                ObjectChange::Put { now, before: None } => format!("+{}", name(now)),
                ObjectChange::Put { now, before: Some(before) } => format!("{}~{}", name(before), name(now)),
                ObjectChange::Delete { before } => format!("-{}", name(before)),
            });
        });
        found.join(" ")
    }

    #[tokio::test]
    async fn each_change_is_read_once_and_all_objects_after_a_gap() {
        let registry = Registry::new(4);
        let context = RequestContext::for_server("create", Timestamp::UNIX_EPOCH);
        let create = async |name: &str| {
            let object = json!({"metadata": {"name": name}});
            registry.create(&context, Kind::namespace_kind(), None, object).await.unwrap();
        };
        let target = |name: &str| RequestTarget {
            kind: Kind::namespace_kind(),
            namespace: None,
            name: name.to_owned(),
            subresource: Subresource::Whole,
        };
        let reader = &mut ObjectChangeReader::default();
        create("a").await;
        assert_eq!(changes(reader, &registry), "reset +a");
        assert_eq!(changes(reader, &registry), "");

        create("b").await;
        let label = |old: &serde_json::Value| {
            let mut new = old.clone();
            new["metadata"]["labels"] = json!({"of": "test"});
            Ok(new)
        };
        registry.update(&context, &target("a"), label).await.unwrap();
        assert_eq!(changes(reader, &registry), "+b a~a");

        // The first delete of a namespace only marks it.
        registry.delete(&context, &target("b"), &DeleteOptions::default()).await.unwrap();
        let finalize = RequestTarget { subresource: Subresource::Finalize, ..target("b") };
        let without_finalizers = |old: &serde_json::Value| {
            let mut new = old.clone();
            new["spec"]["finalizers"] = json!([]);
            Ok(new)
        };
        registry.update(&context, &finalize, without_finalizers).await.unwrap();
        assert_eq!(changes(reader, &registry), "b~b -b");

        for number in 0..8 {
            create(&format!("c{number}")).await;
        }
        assert_eq!(changes(reader, &registry), "reset +a +c0 +c1 +c2 +c3 +c4 +c5 +c6 +c7");
    }
}
