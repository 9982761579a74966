//! The connections of the server: how many there are, of which address, and which one makes room.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::auth::Peer;
use crate::http::Held;

/// Of the connections, what may come from one address: generous, because many clients may be behind one.
const OF_ADDRESS_MAX: usize = 4_000;

/// TLS handshakes under way: at some 30 kB each, 1,000 are 30 MB.
const HANDSHAKES_MAX: usize = 1_000;

/// Request bodies on one connection that have not arrived completely, and KiB of the large ones.
const BODIES_MAX: usize = 64;
const BODY_KIB_MAX: usize = 32 << 10;

/// KiB of large responses on one connection that wait to be sent.
pub(crate) const RESPONSE_KIB_MAX: u32 = 32 << 10;

#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    of_address_max: usize,
    handshakes_max: usize,
    /// What `Connection::active_ms` counts from.
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    by_address: HashMap<IpAddr, usize>,
    /// In the order of arrival.
    all: BTreeMap<u64, Arc<Connection>>,
    /// Those whose TLS handshake is not finished.
    handshakes: BTreeMap<u64, Arc<Connection>>,
}

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    id: u64,
    address: IpAddr,
    /// When it last carried a request.
    active_ms: AtomicU64,
    /// A client certificate or a token was good.
    is_authenticated: AtomicBool,
    task: OnceLock<AbortHandle>,
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) body_kib: Arc<Semaphore>,
    pub(crate) response_kib: Arc<Semaphore>,
}

/// Permit for one connection; released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    connections: Arc<Connections>,
    pub(crate) connection: Arc<Connection>,
}

/// Where a request comes from; an extension of the request.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    /// `None` for a client in this process.
    pub(crate) connection: Option<Arc<Connection>>,
    /// What lasts as long as the connection, whatever protocol it switches to.
    pub(crate) held: Option<Held>,
    /// The client certificate.
    pub(crate) peer: Option<Peer>,
    pub(crate) is_in_process: bool,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            of_address_max: OF_ADDRESS_MAX.min(max - max / 4),
            handshakes_max: HANDSHAKES_MAX.min((max / 4).max(1)),
            start: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Rule: a connection beyond the limit of its address is closed at once. Beyond the limit of all, the unauthenticated
    /// connection that has been idle longest is closed to make room, or the new one if all are authenticated. Of the TLS handshakes
    /// under way, the oldest makes room.
    pub(crate) fn connect(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of_address_max <= state.by_address.get(&address).copied().unwrap_or(0) {
            // Its own idle connections make room first.
            state.evict(|it| it.address == address)?;
        } else if self.max <= state.all.len() {
            state.evict(|_| true)?;
        } else if self.handshakes_max <= state.handshakes.len() {
            let oldest = state.handshakes.first_key_value().map(|(_, it)| it.clone())?;
            state.close(&oldest);
        }
        let id = state.next_id;
        state.next_id += 1;
        let connection = Arc::new(Connection {
            id,
            address,
            active_ms: AtomicU64::new(self.now_ms()),
            is_authenticated: AtomicBool::new(false),
            task: OnceLock::new(),
            bodies: Arc::new(Semaphore::new(BODIES_MAX)),
            body_kib: Arc::new(Semaphore::new(BODY_KIB_MAX)),
            response_kib: Arc::new(Semaphore::new(RESPONSE_KIB_MAX as usize)),
        });
        *state.by_address.entry(address).or_default() += 1;
        state.all.insert(id, connection.clone());
        state.handshakes.insert(id, connection.clone());
        drop(state);
        Some(Permit { connections: self.clone(), connection })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A request of `connection` was authenticated, or not.
    pub(crate) fn saw_request(&self, connection: &Connection, is_authenticated: bool) {
        if connection.is_authenticated.load(Ordering::Relaxed) {
            return;
        }
        connection.active_ms.store(self.now_ms(), Ordering::Relaxed);
        if is_authenticated {
            connection.is_authenticated.store(true, Ordering::Relaxed);
        }
    }
}

impl State {
    /// Closes the unauthenticated connection that has been idle longest.
    fn evict(&mut self, may: impl Fn(&Connection) -> bool) -> Option<()> {
        let open = self.all.values().filter(|it| !it.is_authenticated.load(Ordering::Relaxed) && may(it));
        let idlest = open.min_by_key(|it| it.active_ms.load(Ordering::Relaxed))?.clone();
        self.close(&idlest);
        Some(())
    }

    fn close(&mut self, connection: &Connection) {
        tracing::debug!(address = %connection.address, "an idle connection is closed to make room");
        self.remove(connection);
        if let Some(task) = connection.task.get() {
            task.abort();
        }
    }

    fn remove(&mut self, connection: &Connection) {
        self.handshakes.remove(&connection.id);
        if self.all.remove(&connection.id).is_none() {
            return;
        }
        if let Some(count) = self.by_address.get_mut(&connection.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&connection.address);
            }
        }
    }
}

impl Permit {
    /// The task that serves the connection, which is aborted to make room for others.
    pub(crate) fn served_by(&self, task: AbortHandle) {
        let _ = self.connection.task.set(task);
    }

    pub(crate) fn finished_handshake(&self, is_authenticated: bool) {
        let mut state = self.connections.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.handshakes.remove(&self.connection.id);
        drop(state);
        self.connections.saw_request(&self.connection, is_authenticated);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove(&self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(connections: &Arc<Connections>, address: IpAddr, is_authenticated: bool) -> Option<Permit> {
        let permit = connections.connect(address)?;
        permit.finished_handshake(is_authenticated);
        Some(permit)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_address_does_not_take_every_connection() {
        let connections = Arc::new(Connections::new(10_000));
        let mut held: Vec<_> = std::iter::from_fn(|| open(&connections, address(1), true)).collect();
        assert_eq!(held.len(), OF_ADDRESS_MAX);
        assert!(connections.connect(address(2)).is_some());
        held.pop();
        assert!(connections.connect(address(1)).is_some(), "a permit that was dropped is free again");
    }

    #[test]
    fn all_addresses_together_have_a_limit() {
        let connections = Arc::new(Connections::new(100));
        let addresses = (0..=u8::MAX).cycle().map(address);
        let held: Vec<_> = addresses.map_while(|it| open(&connections, it, true)).collect();
        assert_eq!(held.len(), 100);
    }

    #[tokio::test]
    async fn the_idlest_unauthenticated_connection_makes_room() {
        let connections = Arc::new(Connections::new(8));
        let mut held: Vec<Permit> = Vec::new();
        let mut tasks = Vec::new();
        for at in 0..8 {
            let permit = open(&connections, address(at), at < 4).unwrap();
            let task = tokio::spawn(std::future::pending::<()>());
            permit.served_by(task.abort_handle());
            permit.connection.active_ms.store(u64::from(100 - at), Ordering::Relaxed);
            held.push(permit);
            tasks.push(task);
        }
        let late = open(&connections, address(9), true).expect("an unauthenticated connection makes room");
        assert!(tasks.pop().unwrap().await.unwrap_err().is_cancelled(), "the one that was idle longest");
        assert!(tasks.iter().all(|it| !it.is_finished()));
        let more: Vec<_> = (10..20).map_while(|it| open(&connections, address(it), true)).collect();
        assert_eq!(more.len(), 3, "authenticated connections are kept");
        drop((late, held, more));
        let state = connections.state.lock().unwrap();
        assert!(state.all.is_empty() && state.by_address.is_empty() && state.handshakes.is_empty());
    }

    #[test]
    fn silent_handshakes_make_room_for_others() {
        let connections = Arc::new(Connections::new(40));
        let held: Vec<_> = (0..30).map(|it| connections.connect(address(it)).unwrap()).collect();
        let state = connections.state.lock().unwrap();
        assert_eq!((state.handshakes.len(), state.all.len()), (10, 10));
        drop(state);
        drop(held);
    }
}
