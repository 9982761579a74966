//! The objects that an API server has in memory. Upstream: the watch cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::object_key::ObjectKey;
use muster_engine::daemonset::facts::Kind;
use serde_json::Value;

/// The objects of an API server as JSON, all at the same revision of the store.
#[derive(Debug, Default)]
pub struct WatchCache {
    objects: BTreeMap<(Kind, ObjectKey), Arc<Value>>,
}

impl WatchCache {
    /// Returns an object, or `None` if the object does not exist.
    pub fn object(&self, kind: Kind, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.objects.get(&(kind, key.clone()))
    }

    /// Returns all objects of a kind.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &Arc<Value>)> {
        self.objects.iter().filter(move |((it, _), _)| *it == kind).map(|((_, key), value)| (key, value))
    }

    /// Returns the resourceVersion of an object, or 0 if the object does not exist.
    pub fn resource_version(&self, kind: Kind, key: &ObjectKey) -> u64 {
        let version =
            self.object(kind, key).and_then(|it| it["metadata"]["resourceVersion"].as_str()?.parse().ok());
        version.unwrap_or(0)
    }

    /// Adds an object, or replaces it with a new version.
    pub fn put(&mut self, kind: Kind, key: ObjectKey, object: Value) {
        self.objects.insert((kind, key), Arc::new(object));
    }

    /// Removes an object, and returns its last version.
    pub fn remove(&mut self, kind: Kind, key: ObjectKey) -> Option<Arc<Value>> {
        self.objects.remove(&(kind, key))
    }
}
