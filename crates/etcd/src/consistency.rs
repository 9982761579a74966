//! Compares the published objects with those in etcd. Without this comparison, a server whose watch loses an event
//! would keep an old object until that object changes again. Watches of etcd have lost events in the past.

use std::sync::Arc;
use std::time::Duration;

use muster_store::Store;

use crate::api::{EtcdApi, EtcdError};
use crate::keyspace::Keyspace;
use crate::paged_range::PagedRange;

/// Maximum number of keys that one request reads.
const PAGE_KEYS_MAX: i64 = 2000;

/// Pause between two requests, in which etcd and the driver can handle other requests. With this pause, the comparison
/// of 50,000 objects takes two to three seconds.
const PAGE_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of keys in [`Differences::keys`].
const NAMED_KEYS_MAX: usize = 5;

/// The keys of all objects that a server has published, with the etcd revisions of their last writes.
#[derive(Debug)]
pub(crate) struct PublishedRevisions {
    /// The etcd revision up to which the server has published all events.
    pub(crate) revision: i64,
    /// The store key of each object and the etcd revision of its last write, ordered by key.
    objects: Vec<(Arc<str>, i64)>,
}

/// The objects whose published state differs from their state in etcd.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    /// Number of objects that differ.
    pub(crate) count: usize,
    /// The store keys of the first objects that differ, at most [`NAMED_KEYS_MAX`], for the log.
    pub(crate) keys: Vec<String>,
}

impl PublishedRevisions {
    /// Returns the revisions of all objects in `store`. `revision` is the etcd revision up to which `store` has all
    /// events.
    pub(crate) fn of(store: &Store, keys: &Keyspace, revision: i64) -> Self {
        let objects = store.list("").map(|it| (it.key.clone(), keys.etcd_revision(it.modified)));
        Self { revision, objects: objects.collect() }
    }

    /// Compares the published objects with those that etcd had at the same revision. An object differs if only one side
    /// has it, or if the two sides have different revisions of its last write.
    pub(crate) async fn compare(self, api: &impl EtcdApi, keys: &Keyspace) -> Result<Differences, EtcdError> {
        let mut pages = PagedRange::new(keys.objects(), self.revision, true, PAGE_KEYS_MAX);
        let mut published = self.objects.into_iter().peekable();
        let mut differences = Differences::default();
        while let Some(page) = pages.next(api).await {
            for kv in page? {
                let Some(key) = keys.store_key(&kv.key) else { continue };
                while let Some((missing, _)) = published.next_if(|it| *it.0 < *key) {
                    differences.add(&missing);
                }
                match published.next_if(|it| *it.0 == *key) {
                    Some((_, revision)) if revision == kv.mod_revision => {}
                    _ => differences.add(key),
                }
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
        published.for_each(|(missing, _)| differences.add(&missing));
        Ok(differences)
    }
}

impl Differences {
    /// Counts an object that differs, and adds its store key to `keys` if there is space for it.
    fn add(&mut self, key: &str) {
        self.count += 1;
        if self.keys.len() < NAMED_KEYS_MAX {
            self.keys.push(key.to_owned());
        }
    }
}
