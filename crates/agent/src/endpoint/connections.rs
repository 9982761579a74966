//! Limits on connections and TLS handshakes at the agent's port.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::{Share, Shares};

/// Connections served concurrently; only the API server's connections get past the handshake.
const SERVED_MAX: usize = 256;
/// Concurrent TLS handshakes, about 20 kB each: one limit for the API server's addresses, and the same limit for
/// all other addresses together.
const HANDSHAKES_MAX: usize = 64;
/// Concurrent handshakes from one address that is not the API server's.
const HANDSHAKES_OF_ADDRESS_MAX: usize = 16;
/// Addresses remembered as the API server's: it may have more than the one in its URL.
const SERVERS_MAX: usize = 16;

/// Limits the connections and handshakes of the agent's port.
#[derive(Debug)]
pub(super) struct Connections {
    /// Permits for connections that are being served.
    served: Arc<Semaphore>,
    /// Permits for handshakes from the API server's addresses.
    of_server: Arc<Semaphore>,
    /// Permits for handshakes from all other addresses.
    of_others: Arc<Semaphore>,
    shares: Arc<Shares>,
    servers: Mutex<VecDeque<IpAddr>>,
}

/// Permit for a handshake; released on drop.
#[derive(Debug)]
pub(super) struct Handshake {
    _permit: OwnedSemaphorePermit,
    _share: Option<Share>,
}

impl Connections {
    /// `servers` are the known addresses of the API server.
    pub(super) fn new(servers: impl IntoIterator<Item = IpAddr>) -> Arc<Self> {
        let semaphore = |max| Arc::new(Semaphore::new(max));
        Arc::new(Self {
            served: semaphore(SERVED_MAX),
            of_server: semaphore(HANDSHAKES_MAX),
            of_others: semaphore(HANDSHAKES_MAX),
            shares: Shares::new(HANDSHAKES_OF_ADDRESS_MAX),
            servers: Mutex::new(servers.into_iter().map(|it| it.to_canonical()).take(SERVERS_MAX).collect()),
        })
    }

    /// Rule: handshakes and served connections have separate permits. The handshakes of the API server's addresses
    /// are limited separately from all others, which are also limited per address. `None`: the connection is to be
    /// closed.
    pub(super) fn begin(&self, peer: IpAddr) -> Option<Handshake> {
        let is_server = self.servers().contains(&peer.to_canonical());
        let (permits, share) = match is_server {
            true => (&self.of_server, None),
            false => (&self.of_others, Some(self.shares.take(peer)?)),
        };
        Some(Handshake { _permit: permits.clone().try_acquire_owned().ok()?, _share: share })
    }

    /// Ends the handshake of a peer that has proved to be the API server, remembers its address, and returns a
    /// permit to serve the connection.
    pub(super) fn serve(&self, peer: IpAddr, handshake: Handshake) -> Option<OwnedSemaphorePermit> {
        drop(handshake);
        let peer = peer.to_canonical();
        let mut servers = self.servers();
        if !servers.contains(&peer) {
            servers.push_front(peer);
            servers.truncate(SERVERS_MAX);
        }
        self.served.clone().try_acquire_owned().ok()
    }

    fn servers(&self) -> std::sync::MutexGuard<'_, VecDeque<IpAddr>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn handshakes_of_others_leave_room_for_the_api_server() {
        let connections = Connections::new([address(1)]);
        let of = |last: u8, count: usize| -> Vec<Handshake> {
            (0..count).filter_map(|_| connections.begin(address(last))).collect()
        };
        let flood: Vec<Handshake> = (2..20).flat_map(|it| of(it, 100)).collect();
        assert_eq!(flood.len(), HANDSHAKES_MAX, "all others together");
        assert_eq!(of(1, 100).len(), HANDSHAKES_MAX, "the API server has its own");
        drop(flood);
        assert_eq!(of(2, 100).len(), HANDSHAKES_OF_ADDRESS_MAX, "one address");
    }

    #[test]
    fn an_address_of_the_api_server_is_learned_and_served_connections_are_bounded() {
        let connections = Connections::new([]);
        let held: Vec<_> = (0..SERVED_MAX + 1)
            .map(|_| connections.begin(address(7)).and_then(|it| connections.serve(address(7), it)))
            .collect();
        assert_eq!(held.iter().flatten().count(), SERVED_MAX);
        let flood: Vec<_> = (20..=255).filter_map(|it| connections.begin(address(it))).collect();
        assert_eq!(flood.len(), HANDSHAKES_MAX);
        assert!(connections.begin(address(7)).is_some());
    }
}
