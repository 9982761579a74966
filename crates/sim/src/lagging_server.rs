//! A second API server over the shared store. It keeps the objects in its own state, which is fed by a watch of the
//! store and is behind the store by a seeded number of commits.
//!
//! The server handles requests as an API server on etcd does. A request waits for the read barrier, so that it sees
//! every write that was acknowledged before. A write is committed only if the state of the server has the newest
//! version of the written object. The write is acknowledged when the state of the server contains it. A list with
//! `resourceVersion=0` and the watches see the state as it is.
//!
//! Users and kubelets write to the current server. Reads and writes through the lagging server are linearizable, so
//! their requests would only take longer there.

use muster_api::object_key::ObjectKey;
use muster_engine::daemonset::facts::Kind;
use muster_store::{KeyChange, Store};

use crate::rng::Rng;
use crate::server::SimServer;
use crate::watch_cache::WatchCache;

/// One of the two API servers. Without a second server, every request goes to the current one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ServerId {
    /// The server whose state is always that of the store.
    #[default]
    Current,
    /// The [`LaggingServer`].
    Lagging,
}

impl ServerId {
    /// Returns the other server.
    pub fn other(self) -> Self {
        match self {
            Self::Current => Self::Lagging,
            Self::Lagging => Self::Current,
        }
    }
}

/// The maximum lag of the lagging server, and the rates of the faults that a second server makes possible. The rates
/// are per thousand opportunities.
#[derive(Clone, Copy, Debug)]
pub struct ServerFaults {
    /// Maximum number of commits that the lagging server is behind the store.
    pub lag_max: u64,
    /// Maximum delay in milliseconds until the lagging server applies at least one of the missing commits.
    pub catch_up_ms_max: u64,
    /// Rate at which a client, such as a controller or a kubelet, moves its watches to the other server.
    pub move_client: u64,
    /// Rate at which one of the two servers is killed.
    pub kill: u64,
    /// Rate of requests that a client sends to the server on which it has no watches, as with a load balancer.
    pub other_server: u64,
    /// Rate of processes that connect to the lagging server when they start.
    pub lagging_clients: u64,
}

impl ServerFaults {
    /// Returns faults that consist only of a lag of at most `lag_max` commits. All processes connect to the lagging
    /// server.
    pub fn only_lag(lag_max: u64) -> Self {
        Self {
            lag_max,
            catch_up_ms_max: 1000,
            move_client: 0,
            kill: 0,
            other_server: 0,
            lagging_clients: 1000,
        }
    }

    /// Draws a random lag and random rates.
    pub fn random(rng: &mut Rng) -> Self {
        let mut pick = |of: &[u64]| rng.pick(of).copied().unwrap_or_default();
        Self {
            lag_max: pick(&[1, 5, 20, 100]),
            catch_up_ms_max: pick(&[20, 200, 1000, 3000]),
            move_client: pick(&[0, 5, 40]),
            kill: pick(&[0, 2, 10]),
            other_server: pick(&[0, 100, 500]),
            lagging_clients: pick(&[300, 600, 1000]),
        }
    }

    /// Turns off all faults. From then on, the lagging server applies every commit immediately.
    pub fn turn_off(&mut self) {
        *self = Self { lagging_clients: self.lagging_clients, ..Self::only_lag(0) };
    }
}

/// What a request to the lagging server must see: the state of the store when the request arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReadBarrier {
    /// The revision of the store when the request arrived.
    pub revision: u64,
    /// The highest revision whose commit was acknowledged when the request arrived.
    pub acknowledged: u64,
}

/// Returns the revision up to which the state of a server is complete.
pub fn visible_revision(server: ServerId, store: &SimServer, lagging: Option<&LaggingServer>) -> u64 {
    match (server, lagging) {
        (ServerId::Lagging, Some(lagging)) => lagging.revision,
        _ => store.revision(),
    }
}

/// The API server whose state lags behind the store.
#[derive(Debug)]
pub struct LaggingServer {
    pub faults: ServerFaults,
    /// The revision of the store up to which the state is complete.
    revision: u64,
    /// The objects at `revision`.
    cache: WatchCache,
    /// Whether a task is scheduled that applies further commits to the state.
    pub is_catch_up_scheduled: bool,
    /// The server that was killed and has not started again. Only one of the two servers is down at a time.
    pub down: Option<ServerId>,
}

impl LaggingServer {
    /// Returns a server with an empty state.
    pub fn new(faults: ServerFaults) -> Self {
        Self {
            faults,
            revision: Store::FIRST_REVISION,
            cache: WatchCache::default(),
            is_catch_up_scheduled: false,
            down: None,
        }
    }

    /// Returns the revision of the store up to which the state of this server is complete.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the objects in the state of this server.
    pub fn cache(&self) -> &WatchCache {
        &self.cache
    }

    /// Returns the revision that this server must reach before it can handle a request. Returns `None` if it can handle
    /// the request now. `written` is the object that the request writes, if it writes a known object.
    ///
    /// Rule: a request waits for the read barrier. The store refuses a write if the object has a newer version than in
    /// the state of this server. The request is then handled again when the state contains the newer version.
    pub fn revision_to_wait_for(
        &self,
        store: &SimServer,
        barrier: ReadBarrier,
        written: Option<&(Kind, ObjectKey)>,
    ) -> Option<u64> {
        if self.revision < barrier.revision {
            return Some(barrier.revision);
        }
        let (kind, key) = written?;
        (self.cache.resource_version(*kind, key) != store.resource_version(*kind, key))
            .then(|| store.revision())
    }

    /// Draws the server to which a process connects when it starts. A server that is down is not drawn.
    pub fn random_server(&self, rng: &mut Rng) -> ServerId {
        let prefers_lagging = rng.chance(self.faults.lagging_clients);
        self.down.map_or(if prefers_lagging { ServerId::Lagging } else { ServerId::Current }, ServerId::other)
    }

    /// Draws the server to which a client sends a request. `server` is the one on which the client has its watches.
    pub fn route_request(&self, server: ServerId, rng: &mut Rng) -> ServerId {
        let goes_to_other = rng.chance(self.faults.other_server) && self.down != Some(server.other());
        if goes_to_other { server.other() } else { server }
    }

    /// Returns the number of commits of the store that the state does not contain yet.
    pub fn count_missing_commits(&self, store: &SimServer) -> u64 {
        let missing = store.log.len() - store.log.partition_point(|it| it.revision <= self.revision);
        u64::try_from(missing).unwrap_or(0)
    }

    /// Applies at most `count` of the commits that the state does not contain yet, in order. Returns the kind of each
    /// applied commit.
    pub fn apply_commits(&mut self, store: &SimServer, count: u64) -> Vec<Kind> {
        let first = store.log.partition_point(|it| it.revision <= self.revision);
        let events = store.store.commits_since("", self.revision).expect("it is all kept");
        let mut kinds = Vec::new();
        for (commit, event) in store.log[first..].iter().zip(events).take(usize::try_from(count).unwrap_or(0))
        {
            match &event.change {
                KeyChange::Put { now, .. } => {
                    let object = serde_json::from_slice(&now.value).expect("JSON");
                    self.cache.put(commit.kind, commit.key.clone(), object);
                }
                KeyChange::Delete { .. } => drop(self.cache.remove(commit.kind, commit.key.clone())),
            }
            self.revision = commit.revision;
            kinds.push(commit.kind);
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::server::Actor;

    fn node(name: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"zone": "a"}}})
    }

    fn relabel(store: &mut SimServer, name: &str, zone: &str) {
        let change = |it: &mut Value| it["metadata"]["labels"]["zone"] = zone.into();
        store.update(Kind::Nodes, &ObjectKey::new("", name), Actor::User, change).unwrap();
    }

    #[test]
    fn the_state_is_that_of_the_store_some_commits_ago() {
        let mut store = SimServer::default();
        let mut server = LaggingServer::new(ServerFaults::only_lag(2));
        let mut states = vec![Vec::new()];
        let state_of_store = |store: &SimServer| -> Vec<Arc<Value>> {
            store.objects(Kind::Nodes).map(|(_, it)| it.clone()).collect()
        };
        for name in ["a", "b"] {
            store.create(Kind::Nodes, node(name), Actor::User).unwrap();
            states.push(state_of_store(&store));
        }
        relabel(&mut store, "a", "b");
        states.push(state_of_store(&store));
        store.delete(Kind::Nodes, &ObjectKey::new("", "b"), None, None, true, Actor::User).unwrap();
        states.push(state_of_store(&store));
        for (applied, expected) in states.iter().enumerate() {
            let found: Vec<Arc<Value>> =
                server.cache().objects(Kind::Nodes).map(|(_, it)| it.clone()).collect();
            assert_eq!(found, *expected, "after {applied} commits");
            assert_eq!(server.count_missing_commits(&store), 4 - applied as u64);
            server.apply_commits(&store, 1);
        }
        assert_eq!(server.revision(), store.revision());
    }

    #[test]
    fn a_request_waits_for_the_read_barrier_and_a_write_for_the_newest_version() {
        let mut store = SimServer::default();
        let mut server = LaggingServer::new(ServerFaults::only_lag(2));
        for name in ["a", "b"] {
            store.create(Kind::Nodes, node(name), Actor::User).unwrap();
        }
        let barrier = ReadBarrier { revision: store.revision(), acknowledged: 0 };
        assert_eq!(server.revision_to_wait_for(&store, barrier, None), Some(barrier.revision));
        server.apply_commits(&store, 2);
        relabel(&mut store, "a", "b");
        let written = |name: &str| (Kind::Nodes, ObjectKey::new("", name));
        let wait = |server: &LaggingServer, written: Option<&(Kind, ObjectKey)>| {
            server.revision_to_wait_for(&store, barrier, written)
        };
        assert_eq!(wait(&server, None), None);
        assert_eq!(wait(&server, Some(&written("b"))), None);
        assert_eq!(wait(&server, Some(&written("new"))), None);
        assert_eq!(wait(&server, Some(&written("a"))), Some(store.revision()));
        server.apply_commits(&store, 1);
        assert_eq!(wait(&server, Some(&written("a"))), None);
    }
}
