//! The storage backend on etcd: several servers share one key space, and every server has all objects in memory.
//!
//! Every server follows one watch over the whole key space and applies its events in order to a
//! [`PublishedStore`](muster_store::PublishedStore). A write is a transaction that compares the revision of each key it
//! depends on. A write is acknowledged when etcd has committed it and this server's own watch has delivered it, so a
//! client reads its own writes from this server's memory. A read that must be current first waits for a read barrier:
//! until this server has published all writes that any server acknowledged before.
//!
//! No other crate depends on etcd's interface. The backend runs on a thread of its own, so the store and the simulator
//! stay synchronous.

/// Allocation pools: values that no two objects may share, such as cluster IPs.
mod allocation_pool;
/// Calls of etcd's gRPC interface, as the backend uses them.
mod api;
/// The backend: its thread and its interface to the store.
mod backend;
/// The transaction of a batch of commits.
mod batch;
/// The gRPC client of an etcd cluster.
mod client;
/// The private keys of the cluster, which all servers share.
mod cluster_keys;
/// The settings that all servers of the cluster must have in common.
mod cluster_settings;
/// The state of a cluster in etcd: whether servers may use it, and when a server last wrote to it.
mod cluster_state;
/// Compaction of the history in etcd.
mod compaction;
/// Compares the published objects with those in etcd.
mod consistency;
/// The task that batches commits, follows the watch and answers callers.
mod driver;
/// The version of an etcd member, and the check that the version is supported.
mod etcd_version;
/// The feature level of a cluster: which formats in etcd a server must be able to read.
mod feature_level;
/// The keys of a cluster in etcd, and the mapping between etcd revisions and resourceVersions.
mod keyspace;
/// Lanes: etcd keys that a server's transactions compare and write, each lane one transaction at a time, so that the
/// server can find out whether a transaction whose response was lost was applied.
mod lane;
/// Lists all objects when the backend is opened, and again when it has missed changes.
mod load;
/// The members of an etcd cluster, and the choice of the member that gets a call.
mod member_pool;
/// Encoding of an object as a value in etcd.
mod object_value;
/// Reads a range of keys in pages.
mod paged_range;
/// Writes the objects of a backup or of a data directory as a cluster in etcd.
mod restore;
/// Values that are stored under one key of the cluster and that all servers share.
mod shared_value;
/// Reads a whole cluster at one revision.
mod snapshot;

/// An etcd in memory with injected faults, for tests.
#[cfg(test)]
mod fake_etcd;
#[cfg(test)]
mod tests;

/// Messages and clients that are generated from `proto/etcd.proto`.
#[allow(missing_debug_implementations, unreachable_pub, clippy::all)]
pub mod proto {
    tonic::include_proto!("etcdserverpb");
}

pub use crate::api::{EtcdApi, EtcdError, WatchStream};
pub use crate::backend::{EtcdBackend, OpenError, open};
pub use crate::client::{ClientError, ClientTls, EtcdClient};
pub use crate::cluster_keys::{create_cluster_keys, has_objects, read_cluster_keys, replace_cluster_keys};
pub use crate::cluster_settings::{create_cluster_settings, read_cluster_settings, replace_cluster_settings};
pub use crate::cluster_state::{
    ClusterSource, ClusterState, PrefixConflict, UnusableError, mark_moved, read as read_cluster_state,
};
pub use crate::etcd_version::EtcdVersion;
pub use crate::feature_level::{FEATURE_LEVEL, raise_feature_level};
pub use crate::keyspace::{InvalidPrefix, Keyspace};
pub use crate::load::{LoadError, read_objects_with_prefix};
pub use crate::restore::{RestoreError, RestoreInput, restore};
pub use crate::snapshot::EtcdSnapshot;
