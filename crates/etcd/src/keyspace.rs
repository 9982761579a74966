//! The keys of one cluster in etcd, below a prefix:
//!
//! | key | content or purpose |
//! |---|---|
//! | `o/KEY` | the object with the store key `KEY`, see [`object_value`](crate::object_value) |
//! | `l/SERVER/N` | the number of the last transaction in the lane `N` of a server, see [`lane`](crate::lane) |
//! | `t/KEY` | the term of the Lease with the store key `KEY`, see below |
//! | `a/POOL` | marks the last allocation from a pool, see [`allocation_pool`](crate::allocation_pool) |
//! | `m/keys` | the private keys of the cluster, encrypted, see [`cluster_keys`](crate::cluster_keys) |
//! | `m/settings` | the settings that all servers must have, see [`cluster_settings`](crate::cluster_settings) |
//! | `m/base` | the offset of resourceVersions, in decimal |
//! | `m/compacted` | the etcd revision up to which the history was compacted, in decimal |
//! | `m/format` | the feature level of the cluster, in decimal, see [`feature_level`](crate::feature_level) |
//! | `m/source` | what the cluster was restored or moved from, see [`ClusterSource`](crate::ClusterSource), or empty |
//! | `m/restoring` | mark of a restore that is in progress or was interrupted, see [`restore`](crate::restore()) |
//! | `m/moved` | mark of a cluster that was moved from etcd to a data directory |
//!
//! `t/KEY` and `a/POOL` have no value: transactions compare the etcd revision of their last write. `t/KEY` is written
//! whenever the Lease gets another holder, so that transactions of the previous holder fail, see
//! [`Fence`](muster_store::Fence). Every transaction of a server also compares the etcd revision of `m/source`, which is
//! written by a restore and by a change of the settings. No server may use a cluster that has the key `m/restoring` or `m/moved`.
//!
//! # resourceVersion
//!
//! One transaction writes many objects at one etcd revision. A watch that resumes between two of these objects needs a
//! version for each object, so the resourceVersion is `base + 128 × revision + position`. The position is the index of
//! the object among the objects that the transaction writes. etcd allows 128 operations in a transaction.

use bytes::Bytes;
use muster_store::Revision;

/// Number of resourceVersions that belong to one etcd revision: one for each position.
pub(crate) const POSITIONS_PER_REVISION: u64 = 128;

/// The highest position that an object can have in its transaction.
pub(crate) const POSITION_MAX: u8 = (POSITIONS_PER_REVISION - 1) as u8;

/// The groups of keys below the prefix, in order: the first segments of the keys in the table above.
const KEY_GROUPS: [&str; 5] = ["a", "l", "m", "o", "t"];

/// Why a prefix cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{prefix} has the segment \"{segment}\", which is reserved for keys of Muster")]
pub struct InvalidPrefix {
    prefix: String,
    segment: String,
}

/// The keys of one cluster, and the mapping between etcd revisions and resourceVersions.
#[derive(Debug, Clone)]
pub struct Keyspace {
    /// Prefix of all keys. It ends with a slash.
    prefix: String,
    /// Offset of resourceVersions. It is above zero if the cluster was restored or moved from another backend, so that
    /// resourceVersions continue to increase.
    base: Revision,
    /// Upper limit of the [feature level](crate::feature_level) that this process supports. A limit above that of its
    /// version has no effect.
    feature_level_max: u32,
}

/// A range of keys in an etcd request: `start` is included, `end` is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

impl Keyspace {
    /// Creates the key space below `prefix`. `base` is the offset of resourceVersions. Loading the objects replaces it
    /// with the value of `m/base`, or with 0 if this key does not exist.
    pub fn new(prefix: &str, base: Revision) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')), base, feature_level_max: u32::MAX }
    }

    /// Returns the same key space for a process that reads only the feature levels up to `level`, like an earlier
    /// version. A level above [`FEATURE_LEVEL`](crate::FEATURE_LEVEL) has no effect.
    #[must_use]
    pub fn with_feature_level_max(self, level: u32) -> Self {
        Self { feature_level_max: level, ..self }
    }

    /// Returns the level of [`Self::with_feature_level_max`], or `u32::MAX` without it.
    pub(crate) fn feature_level_max(&self) -> u32 {
        self.feature_level_max
    }

    /// Returns the same key space with another offset of resourceVersions.
    #[must_use]
    pub(crate) fn with_base(self, base: Revision) -> Self {
        Self { base, ..self }
    }

    /// Returns the etcd key of the object with the store key `key`.
    pub(crate) fn object_key(&self, key: &str) -> Bytes {
        format!("{}o/{key}", self.prefix).into()
    }

    /// Returns the store key of an object, or `None` if `key` is not the etcd key of an object or is not UTF-8.
    pub(crate) fn store_key<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let key = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"o/")?;
        std::str::from_utf8(key).ok()
    }

    /// Returns the etcd key of the lane `number` of a server. `server` is the ID of the server.
    pub(crate) fn lane_key(&self, server: &str, number: usize) -> Bytes {
        format!("{}l/{server}/{number}", self.prefix).into()
    }

    /// Returns the etcd key of an allocation pool.
    pub(crate) fn allocation_pool_key(&self, pool: &str) -> Bytes {
        format!("{}a/{pool}", self.prefix).into()
    }

    /// Returns the etcd key of the term of a Lease. `lease` is the store key of the Lease.
    pub(crate) fn term_key(&self, lease: &str) -> Bytes {
        format!("{}t/{lease}", self.prefix).into()
    }

    /// Returns the etcd key of the encrypted private keys of the cluster.
    pub(crate) fn cluster_keys_key(&self) -> Bytes {
        format!("{}m/keys", self.prefix).into()
    }

    /// Returns the etcd key of the settings of the cluster.
    pub(crate) fn settings_key(&self) -> Bytes {
        format!("{}m/settings", self.prefix).into()
    }

    /// Returns the etcd key of the offset of resourceVersions.
    pub(crate) fn base_key(&self) -> Bytes {
        format!("{}m/base", self.prefix).into()
    }

    /// Returns the etcd key of the revision up to which the history was compacted.
    pub(crate) fn compacted_key(&self) -> Bytes {
        format!("{}m/compacted", self.prefix).into()
    }

    /// Returns the etcd key of the [`ClusterSource`](crate::ClusterSource).
    pub(crate) fn source_key(&self) -> Bytes {
        format!("{}m/source", self.prefix).into()
    }

    /// Returns the etcd key of the mark of a restore.
    pub(crate) fn restoring_key(&self) -> Bytes {
        format!("{}m/restoring", self.prefix).into()
    }

    /// Returns the etcd key of the feature level of the cluster.
    pub(crate) fn feature_level_key(&self) -> Bytes {
        format!("{}m/format", self.prefix).into()
    }

    /// Returns the etcd key of the mark of a cluster that was moved to a data directory.
    pub(crate) fn moved_key(&self) -> Bytes {
        format!("{}m/moved", self.prefix).into()
    }

    /// Returns the ranges below the prefix in which this cluster has no keys, in order. The keys of another cluster are
    /// in these ranges if its prefix begins with this prefix.
    pub(crate) fn foreign_ranges(&self) -> Vec<KeyRange> {
        let all = self.all();
        let mut start = all.start;
        let mut ranges = Vec::new();
        for group in KEY_GROUPS {
            let own = KeyRange::with_prefix(&format!("{}{group}/", self.prefix));
            ranges.push(KeyRange { start, end: own.start });
            start = own.end;
        }
        ranges.push(KeyRange { start, end: all.end });
        ranges
    }

    /// Returns a key space for each proper beginning of this prefix that ends with a slash. A cluster in such a key
    /// space would have the keys of this cluster among its own.
    pub(crate) fn outer_keyspaces(&self) -> Vec<Self> {
        let outer = self.prefix.match_indices('/').map(|(at, _)| &self.prefix[..=at]);
        let outer = outer.filter(|it| it.len() < self.prefix.len());
        outer.map(|it| Self { prefix: it.to_owned(), base: 0, ..self.clone() }).collect()
    }

    /// Returns the prefix of all keys. It ends with a slash.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Fails if a segment of `prefix` is the name of a group of keys, such as `o`.
    ///
    /// Rule: without this check, the keys of a cluster with the prefix `/x/o` would look like objects of a cluster with
    /// the prefix `/x`.
    pub fn check_prefix(prefix: &str) -> Result<(), InvalidPrefix> {
        match prefix.split('/').find(|it| KEY_GROUPS.contains(it)) {
            Some(segment) => Err(InvalidPrefix { prefix: prefix.to_owned(), segment: segment.to_owned() }),
            None => Ok(()),
        }
    }

    /// Returns the range of all keys of the cluster.
    pub(crate) fn all(&self) -> KeyRange {
        KeyRange::with_prefix(&self.prefix)
    }

    /// Returns the range of the keys of all objects.
    pub(crate) fn objects(&self) -> KeyRange {
        KeyRange::with_prefix(&format!("{}o/", self.prefix))
    }

    /// Returns the range of the keys of the objects whose store keys begin with `prefix`.
    pub(crate) fn objects_with_prefix(&self, prefix: &str) -> KeyRange {
        KeyRange::with_prefix(&format!("{}o/{prefix}", self.prefix))
    }

    /// Returns the range of the keys of all [lanes](crate::lane) of all servers. The highest etcd revision of these keys
    /// is at least the revision of the last write of an object, because every transaction that writes an object also
    /// writes the key of a lane.
    pub(crate) fn lanes(&self) -> KeyRange {
        KeyRange::with_prefix(&format!("{}l/", self.prefix))
    }

    /// Returns the resourceVersion of the object at `position` among the objects that were written at an etcd revision.
    pub(crate) fn resource_version(&self, etcd_revision: i64, position: u8) -> Revision {
        self.base + u64::try_from(etcd_revision).unwrap_or(0) * POSITIONS_PER_REVISION + u64::from(position)
    }

    /// Returns the highest resourceVersion that an object written at an etcd revision can have.
    pub(crate) fn last_resource_version(&self, etcd_revision: i64) -> Revision {
        self.resource_version(etcd_revision, POSITION_MAX)
    }

    /// Returns the etcd revision that a resourceVersion contains, or 0 if the resourceVersion is below the offset.
    pub(crate) fn etcd_revision(&self, resource_version: Revision) -> i64 {
        i64::try_from(resource_version.saturating_sub(self.base) / POSITIONS_PER_REVISION).unwrap_or(i64::MAX)
    }

    /// Returns the position that a resourceVersion contains.
    pub(crate) fn position(&self, resource_version: Revision) -> u8 {
        (resource_version.saturating_sub(self.base) % POSITIONS_PER_REVISION) as u8
    }
}

impl KeyRange {
    /// Returns the range of all keys that start with `prefix`, which must not be empty.
    pub(crate) fn with_prefix(prefix: &str) -> Self {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix is not empty") += 1;
        Self { start: Bytes::copy_from_slice(prefix.as_bytes()), end: end.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_versions_increase_with_revision_and_position() {
        let keys = Keyspace::new("/muster/v1", 1_000);
        assert_eq!(keys.resource_version(1, 0), 1_128);
        assert_eq!(keys.resource_version(1, 127) + 1, keys.resource_version(2, 0));
        for (revision, position) in [(1, 0), (1, 127), (77, 3)] {
            let version = keys.resource_version(revision, position);
            assert_eq!((keys.etcd_revision(version), keys.position(version)), (revision, position));
        }
    }

    #[test]
    fn keys_of_other_clusters_are_in_the_foreign_ranges() {
        let keys = Keyspace::new("/muster", 0);
        let is_foreign =
            |key: &Bytes| keys.foreign_ranges().iter().any(|it| it.start <= *key && *key < it.end);
        let own = |it: &Keyspace| {
            [
                it.object_key("pods/a/b"),
                it.lane_key("s", 0),
                it.term_key("leases/a"),
                it.allocation_pool_key("services"),
                it.cluster_keys_key(),
            ]
        };
        assert!(!own(&keys).iter().any(is_foreign));
        for inner in ["/muster/v1", "/muster/a1", "/muster/zzz", "/muster/0/x"] {
            let inner = Keyspace::new(inner, 0);
            assert!(own(&inner).iter().all(is_foreign), "{inner:?}");
        }
        // A key beside the prefix is not below it.
        assert!(!own(&Keyspace::new("/muster-2", 0)).iter().any(is_foreign));
        let outer = |it: &str| Keyspace::new(it, 0).outer_keyspaces().into_iter().map(|it| it.prefix);
        assert_eq!(outer("/muster/v1").collect::<Vec<_>>(), ["/", "/muster/"]);
        assert_eq!(outer("muster").collect::<Vec<_>>(), [""; 0]);
        for prefix in ["/muster/o", "/m", "a/b", "/muster/l/"] {
            assert!(Keyspace::check_prefix(prefix).is_err(), "{prefix}");
        }
        assert_eq!(Keyspace::check_prefix("/muster/v1"), Ok(()));
    }

    #[test]
    fn object_keys_are_distinct_from_other_keys() {
        let keys = Keyspace::new("/muster/v1/", 0);
        assert_eq!(keys.object_key("pods/default/a"), "/muster/v1/o/pods/default/a");
        assert_eq!(keys.store_key(&keys.object_key("pods/default/a")), Some("pods/default/a"));
        assert_eq!(keys.store_key(&keys.lane_key("s", 0)), None);
        assert_eq!(keys.store_key(b"/other/o/pods/default/a"), None);
        let range = keys.objects();
        assert!(range.start <= keys.object_key("") && keys.object_key("zzz") < range.end);
        assert!(keys.lane_key("s", 0) < range.start);
    }
}
