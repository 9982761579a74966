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
