//! Limits on connections and TLS handshakes at the port of the agent's endpoint.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::address_limits::{AddressLimits, AddressPermit};

/// Maximum number of connections that are served concurrently. A connection from a client other than the API server is
/// closed after the TLS handshake and does not count towards this limit.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of concurrent TLS handshakes, which use about 20 kB each. There are two limits of this size: one for
/// all addresses of the API server together, and one for all other addresses together.
const HANDSHAKES_MAX: usize = 64;
/// Maximum number of concurrent TLS handshakes from one IP address that is not the API server's.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;
/// Maximum number of IP addresses that the agent remembers for the API servers: those of their URLs, and those from
/// which an API server has connected to the agent.
const SERVER_ADDRESSES_MAX: usize = 16;

/// Limits the concurrent connections and TLS handshakes at the port of the agent's endpoint.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    /// Permits for connections that are being served.
    connections: Arc<Semaphore>,
    /// Permits for TLS handshakes from the API server's addresses.
    server_handshakes: Arc<Semaphore>,
    /// Permits for TLS handshakes from addresses that are not the API server's.
    other_handshakes: Arc<Semaphore>,
    /// Limits the handshakes from each address that is not the API server's.
    handshakes_by_address: Arc<AddressLimits>,
    /// IP addresses of the API servers: those of their URLs, and those from which one has connected.
    server_addresses: Mutex<VecDeque<IpAddr>>,
}

/// Permit for a TLS handshake. Released on drop.
#[derive(Debug)]
pub(super) struct HandshakePermit {
    _permit: OwnedSemaphorePermit,
    _address_permit: Option<AddressPermit>,
}

impl ConnectionLimits {
    /// Creates the limits. `servers` are the IP addresses of the API servers' URLs.
    pub(super) fn new(servers: impl IntoIterator<Item = IpAddr>) -> Arc<Self> {
        let semaphore = |max| Arc::new(Semaphore::new(max));
        Arc::new(Self {
            connections: semaphore(CONNECTIONS_MAX),
            server_handshakes: semaphore(HANDSHAKES_MAX),
            other_handshakes: semaphore(HANDSHAKES_MAX),
            handshakes_by_address: AddressLimits::new(HANDSHAKES_PER_ADDRESS_MAX),
            server_addresses: Mutex::new(
                servers.into_iter().map(|it| it.to_canonical()).take(SERVER_ADDRESSES_MAX).collect(),
            ),
        })
    }

    /// Returns a permit for a TLS handshake with `peer`, or `None` if the connection must be closed.
    ///
    /// Rule: handshakes and served connections have separate permits. Handshakes from the API server's addresses and
    /// handshakes from all other addresses have separate limits. Other addresses also have a limit per address.
    pub(super) fn admit_handshake(&self, peer: IpAddr) -> Option<HandshakePermit> {
        let is_server = self.lock_server_addresses().contains(&peer.to_canonical());
        let (permits, address_permit) = match is_server {
            true => (&self.server_handshakes, None),
            false => (&self.other_handshakes, Some(self.handshakes_by_address.acquire(peer)?)),
        };
        Some(HandshakePermit {
            _permit: permits.clone().try_acquire_owned().ok()?,
            _address_permit: address_permit,
        })
    }

    /// Returns a permit to serve a connection whose client has proved in the handshake to be the API server. Releases
    /// the handshake permit, and remembers `peer` as an address of the API server. Returns `None` if too many
    /// connections are being served.
    pub(super) fn admit_server_connection(
        &self,
        peer: IpAddr,
        handshake: HandshakePermit,
    ) -> Option<OwnedSemaphorePermit> {
        drop(handshake);
        let peer = peer.to_canonical();
        let mut servers = self.lock_server_addresses();
        if !servers.contains(&peer) {
            servers.push_front(peer);
            servers.truncate(SERVER_ADDRESSES_MAX);
        }
        self.connections.clone().try_acquire_owned().ok()
    }

    fn lock_server_addresses(&self) -> std::sync::MutexGuard<'_, VecDeque<IpAddr>> {
        self.server_addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn handshakes_of_other_addresses_do_not_block_the_api_server() {
        let connections = ConnectionLimits::new([address(1)]);
        let of = |last: u8, count: usize| -> Vec<HandshakePermit> {
            (0..count).filter_map(|_| connections.admit_handshake(address(last))).collect()
        };
        let flood: Vec<HandshakePermit> = (2..20).flat_map(|it| of(it, 100)).collect();
        assert_eq!(flood.len(), HANDSHAKES_MAX, "all others together");
        assert_eq!(of(1, 100).len(), HANDSHAKES_MAX, "the API server has its own");
        drop(flood);
        assert_eq!(of(2, 100).len(), HANDSHAKES_PER_ADDRESS_MAX, "one address");
    }

    #[test]
    fn an_address_of_the_api_server_is_learned_and_served_connections_are_bounded() {
        let connections = ConnectionLimits::new([]);
        let held: Vec<_> = (0..CONNECTIONS_MAX + 1)
            .map(|_| {
                connections
                    .admit_handshake(address(7))
                    .and_then(|it| connections.admit_server_connection(address(7), it))
            })
            .collect();
        assert_eq!(held.iter().flatten().count(), CONNECTIONS_MAX);
        let flood: Vec<_> = (20..=255).filter_map(|it| connections.admit_handshake(address(it))).collect();
        assert_eq!(flood.len(), HANDSHAKES_MAX);
        assert!(connections.admit_handshake(address(7)).is_some());
    }
}
