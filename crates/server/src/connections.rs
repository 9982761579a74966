//! Client connections of the server: their number by address and by user, and the choice of the connection to close
//! when there are too many.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::pki::PeerCertificate;
use crate::request::{TrustLevel, User};

/// Maximum number of connections from one address. It is high, because many clients may share an address. The maximum
/// is lower if the server allows few connections in total.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 4_000;

/// Number of connections that an authenticated user keeps when the server is full. A connection of a user with at most
/// this many connections is never closed to make room.
const PROTECTED_CONNECTIONS_PER_USER: usize = 16;

/// Maximum number of TLS handshakes in progress. Each needs about 30 kB of memory. The maximum is lower if the server
/// allows few connections in total.
const HANDSHAKES_MAX: usize = 1_000;

/// Maximum number of request bodies on one connection that have not arrived completely.
const UNFINISHED_BODIES_MAX: usize = 64;
/// Maximum total size in KiB of the large request bodies (above 64 KiB) of one connection.
const LARGE_BODIES_KIB_MAX: usize = 32 << 10;

/// Maximum total size in KiB of the large responses (above 64 KiB) that wait to be sent on one connection.
pub(crate) const UNSENT_RESPONSES_KIB_MAX: u32 = 32 << 10;

/// Tracks all open connections and enforces their limits.
#[derive(Debug)]
pub(crate) struct ConnectionTracker {
    connections_max: usize,
    /// Maximum number of connections from one address.
    per_address_max: usize,
    /// Maximum number of TLS handshakes in progress.
    handshakes_max: usize,
    /// Time at which the tracker was created, from which `Connection::last_request_ms` counts.
    started_at: Instant,
    state: Mutex<ConnectionTable>,
}

/// The open connections, and their counts by address and by user.
#[derive(Debug, Default)]
struct ConnectionTable {
    /// ID of the next connection.
    next_id: u64,
    /// Number of connections by client address.
    by_address: HashMap<IpAddr, usize>,
    /// Number of connections by user name.
    by_user: HashMap<Arc<str>, usize>,
    /// All connections by ID. IDs grow in the order of arrival.
    by_id: BTreeMap<u64, Arc<Connection>>,
    /// Connections whose TLS handshake is not finished, by ID.
    handshakes: BTreeMap<u64, Arc<Connection>>,
}

/// State of one open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Key in `ConnectionTable::by_id`.
    id: u64,
    address: IpAddr,
    /// Time of the last request, in milliseconds after `ConnectionTracker::started_at`. Before the first request, the
    /// time at which the TLS handshake finished, and before that, the time at which the connection was admitted.
    last_request_ms: AtomicU64,
    /// The first user that was authenticated on the connection.
    user: OnceLock<ConnectionUser>,
    /// The task that serves the connection. Aborting it closes the connection.
    task: OnceLock<AbortHandle>,
    /// Permits for request bodies that have not arrived completely.
    pub(crate) unfinished_bodies: Arc<Semaphore>,
    /// Permits for large request bodies (above 64 KiB), one for each KiB.
    pub(crate) large_body_kib: Arc<Semaphore>,
    /// Permits for large responses (above 64 KiB) that wait to be sent, one for each KiB.
    pub(crate) unsent_response_kib: Arc<Semaphore>,
}

/// The first user that was authenticated on a connection. Connections are counted per user name.
#[derive(Debug)]
struct ConnectionUser {
    name: Arc<str>,
    /// Whether the connections of the user are never closed to make room.
    is_trusted: bool,
}

/// Permit for one connection. Dropping the permit removes the connection from the tracker.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<ConnectionTracker>,
    pub(crate) connection: Arc<Connection>,
}

/// The client of a request: address, connection and certificate. Stored as an extension of the request.
#[derive(Debug)]
pub(crate) struct RequestClient {
    pub(crate) address: IpAddr,
    /// The client's connection. `None` for a client in this process.
    pub(crate) connection: Option<Arc<Connection>>,
    /// Holds the permit of the connection until the connection is closed, even after an upgrade to another protocol.
    /// `None` for a client in this process.
    pub(crate) guard: Option<ConnectionGuard>,
    /// The client certificate. `None` if the client sent none, or one that names no user.
    pub(crate) peer: Option<PeerCertificate>,
    /// Whether the client runs in the server's process.
    pub(crate) is_in_process: bool,
}

/// Owns a value, such as a permit, until all clones of the guard are dropped. A connection holds a clone until it is
/// closed, even after an upgrade to another protocol.
#[derive(Clone)]
pub(crate) struct ConnectionGuard {
    _held: Arc<dyn Any + Send + Sync>,
}

impl ConnectionGuard {
    pub(crate) fn new(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Arc::new(held) }
    }
}

impl fmt::Debug for ConnectionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGuard").finish_non_exhaustive()
    }
}

impl ConnectionTracker {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            connections_max: max,
            per_address_max: CONNECTIONS_PER_ADDRESS_MAX.min(max - max / 4),
            handshakes_max: HANDSHAKES_MAX.min((max / 4).max(1)),
            started_at: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Admits a new connection, or returns `None` if it must be refused.
    ///
    /// Rule: a new connection evicts another one when its address or the server has too many connections. If it is the
    /// address, only connections of the same address may be evicted. The unauthenticated connection that has been idle
    /// longest is evicted. If all connections are authenticated, the user with the most connections loses the
    /// connection that has been idle longest. Trusted users, and users with at most `PROTECTED_CONNECTIONS_PER_USER`
    /// connections, lose none. If no connection can be evicted, the new one is refused. When too many TLS handshakes
    /// are in progress, the oldest of them is evicted.
    pub(crate) fn admit_connection(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.per_address_max <= state.by_address.get(&address).copied().unwrap_or(0) {
            // Only another connection of the same address makes room.
            state.evict_connection(|it| it.address == address)?;
        } else if self.connections_max <= state.by_id.len() {
            state.evict_connection(|_| true)?;
        } else if self.handshakes_max <= state.handshakes.len() {
            let oldest = state.handshakes.first_key_value().map(|(_, it)| it.clone())?;
            state.close_connection(&oldest);
        }
        let id = state.next_id;
        state.next_id += 1;
        let connection = Arc::new(Connection {
            id,
            address,
            last_request_ms: AtomicU64::new(self.elapsed_ms()),
            user: OnceLock::new(),
            task: OnceLock::new(),
            unfinished_bodies: Arc::new(Semaphore::new(UNFINISHED_BODIES_MAX)),
            large_body_kib: Arc::new(Semaphore::new(LARGE_BODIES_KIB_MAX)),
            unsent_response_kib: Arc::new(Semaphore::new(UNSENT_RESPONSES_KIB_MAX as usize)),
        });
        *state.by_address.entry(address).or_default() += 1;
        state.by_id.insert(id, connection.clone());
        state.handshakes.insert(id, connection.clone());
        drop(state);
        Some(ConnectionPermit { connections: self.clone(), connection })
    }

    /// Returns the milliseconds since `started_at`.
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records the time of a request on the connection. The first call with a user also records the user.
    pub(crate) fn record_request(&self, connection: &Connection, user: Option<&User>) {
        connection.last_request_ms.store(self.elapsed_ms(), Ordering::Relaxed);
        let Some(user) = user.filter(|_| connection.user.get().is_none()) else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.by_id.contains_key(&connection.id) {
            return;
        }
        let name = match state.by_user.get_key_value(user.name.as_str()) {
            Some((name, _)) => name.clone(),
            None => Arc::from(user.name.as_str()),
        };
        let is_trusted = user.trust_level() == TrustLevel::Trusted;
        if connection.user.set(ConnectionUser { name: name.clone(), is_trusted }).is_ok() {
            *state.by_user.entry(name).or_default() += 1;
        }
    }
}

impl ConnectionTable {
    /// Closes one of the connections for which `may_evict` returns true, chosen by the rule of
    /// [`ConnectionTracker::admit_connection`]. Returns `Some` if it closed a connection, and `None` if no connection
    /// may be closed.
    fn evict_connection(&mut self, may_evict: impl Fn(&Connection) -> bool) -> Option<()> {
        let connections_of = |it: &Connection| match it.user.get() {
            None => usize::MAX,
            Some(user) if user.is_trusted => 0,
            Some(user) => self.by_user.get(&user.name).copied().unwrap_or(0),
        };
        let ranked = self.by_id.values().filter(|it| may_evict(it)).map(|it| (connections_of(it), it));
        let (connections, evicted) = ranked.max_by_key(|(connections, it)| {
            (*connections, Reverse(it.last_request_ms.load(Ordering::Relaxed)))
        })?;
        if connections <= PROTECTED_CONNECTIONS_PER_USER {
            return None;
        }
        let evicted = evicted.clone();
        self.close_connection(&evicted);
        Some(())
    }

    /// Removes the connection from the table and aborts its task.
    fn close_connection(&mut self, connection: &Connection) {
        tracing::debug!(address = %connection.address, "closing an idle connection to make room");
        self.remove_connection(connection);
        if let Some(task) = connection.task.get() {
            task.abort();
        }
    }

    /// Removes the connection from the table and from the counts.
    fn remove_connection(&mut self, connection: &Connection) {
        self.handshakes.remove(&connection.id);
        if self.by_id.remove(&connection.id).is_none() {
            return;
        }
        decrement_count(&mut self.by_address, &connection.address);
        if let Some(user) = connection.user.get() {
            decrement_count(&mut self.by_user, &user.name);
        }
    }
}

/// Decrements the count of `key`, and removes the entry when its count is zero.
fn decrement_count<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl ConnectionPermit {
    /// Sets the task that serves the connection. Evicting the connection aborts the task.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        let _ = self.connection.task.set(task);
    }

    /// Records that the TLS handshake is finished. `user` is the user of the client certificate, or `None` if the
    /// client sent no valid certificate.
    pub(crate) fn finish_handshake(&self, user: Option<&User>) {
        let mut state = self.connections.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.handshakes.remove(&self.connection.id);
        drop(state);
        self.connections.record_request(&self.connection, user);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove_connection(&self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(
        connections: &Arc<ConnectionTracker>,
        address: IpAddr,
        user: Option<&str>,
    ) -> Option<ConnectionPermit> {
        let permit = connections.admit_connection(address)?;
        let user = user.map(|it| match it {
            "admin" => User::new(it, [muster_api::well_known::USER_GROUP_MASTERS]),
            it => User::new(it, ["system:authenticated"]),
        });
        permit.finish_handshake(user.as_ref());
        Some(permit)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// How many connections each user has that is named.
    fn counts(connections: &ConnectionTracker, users: &[&str]) -> Vec<usize> {
        let state = connections.state.lock().unwrap();
        users.iter().map(|it| state.by_user.get(*it).copied().unwrap_or(0)).collect()
    }

    #[test]
    fn one_address_does_not_take_every_connection() {
        let connections = Arc::new(ConnectionTracker::new(10_000));
        let held: Vec<_> = std::iter::from_fn(|| open(&connections, address(1), Some("admin"))).collect();
        assert_eq!(held.len(), CONNECTIONS_PER_ADDRESS_MAX);
        assert!(open(&connections, address(2), None).is_some());
        drop(held);
        assert!(
            connections.admit_connection(address(1)).is_some(),
            "a permit that was dropped is free again"
        );
    }

    #[test]
    fn all_addresses_together_have_a_limit() {
        let connections = Arc::new(ConnectionTracker::new(100));
        let addresses = (0..=u8::MAX).cycle().map(address);
        let held: Vec<_> = addresses.map_while(|it| open(&connections, it, Some("admin"))).collect();
        assert_eq!(held.len(), 100);
    }

    #[tokio::test]
    async fn the_longest_idle_unauthenticated_connection_is_evicted() {
        let connections = Arc::new(ConnectionTracker::new(8));
        let mut held: Vec<ConnectionPermit> = Vec::new();
        let mut tasks = Vec::new();
        for at in 0..8 {
            let permit = open(&connections, address(at), (at < 4).then_some("a")).unwrap();
            let task = tokio::spawn(std::future::pending::<()>());
            permit.set_task(task.abort_handle());
            permit.connection.last_request_ms.store(u64::from(100 - at), Ordering::Relaxed);
            held.push(permit);
            tasks.push(task);
        }
        let late =
            open(&connections, address(9), Some("b")).expect("an unauthenticated connection makes room");
        assert!(tasks.pop().unwrap().await.unwrap_err().is_cancelled(), "the one that was idle longest");
        assert!(tasks.iter().all(|it| !it.is_finished()));
        let more: Vec<_> = (10..20).map_while(|it| open(&connections, address(it), Some("b"))).collect();
        assert_eq!(more.len(), 3, "users with few connections keep them");
        drop((late, held, more));
        let state = connections.state.lock().unwrap();
        assert!(state.by_id.is_empty() && state.by_address.is_empty() && state.handshakes.is_empty());
        assert!(state.by_user.is_empty());
    }

    #[test]
    fn a_connection_of_the_user_with_most_is_evicted() {
        let connections = Arc::new(ConnectionTracker::new(100));
        let many = |user: &'static str, from: u8, count: usize| -> Vec<_> {
            (0..count).map_while(|_| open(&connections, address(from), Some(user))).collect()
        };
        let held = (many("admin", 1, 20), many("flood", 2, 50), many("node", 3, 10), many("flood", 4, 20));
        assert_eq!(counts(&connections, &["admin", "flood", "node"]), [20, 70, 10]);
        // From the flooded address too.
        let new = (many("admin", 5, 30), many("node", 2, 10));
        assert_eq!(counts(&connections, &["admin", "flood", "node"]), [50, 30, 20]);
        drop((held, new));
    }

    #[test]
    fn silent_handshakes_are_evicted_for_new_ones() {
        let connections = Arc::new(ConnectionTracker::new(40));
        let held: Vec<_> = (0..30).map(|it| connections.admit_connection(address(it)).unwrap()).collect();
        let state = connections.state.lock().unwrap();
        assert_eq!((state.handshakes.len(), state.by_id.len()), (10, 10));
        drop(state);
        drop(held);
    }
}
