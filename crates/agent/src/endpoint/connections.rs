//! How many connections the agent's port takes, and whose.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::{Share, Shares};

/// Connections that are served at once; only the API server gets that far.
const SERVED_MAX: usize = 256;
/// Handshakes at once, some 20 kB each: so many of the API server's addresses, and so many of all others together.
const HANDSHAKES_MAX: usize = 64;
/// Of those, from one address that is not the API server's.
const HANDSHAKES_OF_ADDRESS_MAX: usize = 16;
/// Addresses from which the API server came: it may have more than the one in its URL.
const SERVERS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Connections {
    served: Arc<Semaphore>,
    of_server: Arc<Semaphore>,
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
    /// `servers` are the addresses that the API server is known by.
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

    /// Rule: a handshake takes a permit of its own, which no served connection holds; those of the API server's addresses are
    /// apart from all others, of which each address has a share. `None`: the connection is closed.
    pub(super) fn begin(&self, peer: IpAddr) -> Option<Handshake> {
        let is_server = self.servers().contains(&peer.to_canonical());
        let (permits, share) = match is_server {
            true => (&self.of_server, None),
            false => (&self.of_others, Some(self.shares.take(peer)?)),
        };
        Some(Handshake { _permit: permits.clone().try_acquire_owned().ok()?, _share: share })
    }

    /// The peer proved that it is the API server: the handshake is over, and its address is known from now on.
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
