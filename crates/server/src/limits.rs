//! How much at once: connections, requests and watches. Whoever comes when it is full is told to come again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections in all. 5,000 nodes take one or two each; at some 50 kB of buffers, 10,000 are 500 MB at most.
const CONNECTIONS_MAX: usize = 10_000;

/// Connections from one address. Generous, because many clients may stand behind one.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 4_000;

/// Watches in all. 5,000 nodes hold some eight each; at some 4 kB, 50,000 are 200 MB.
const WATCHES_MAX: usize = 50_000;

/// What agents serve at once: logs that are followed, commands, connections that are forwarded. At two buffers of 16 kB and two
/// TLS connections each, 2,000 are some 200 MB.
const AGENT_STREAMS_MAX: usize = 2_000;

/// Requests being worked on: as upstream's `--max-mutating-requests-inflight` and `--max-requests-inflight`.
const WRITES_MAX: usize = 200;
const READS_MAX: usize = 400;

/// Requests that wait for their turn, first come first served: at a thousand answers a second the last one waits two
/// seconds, and with 3 MiB bodies read only when it is their turn, they cost next to nothing.
const WAITING_MAX: usize = 2_000;

/// None waits longer: its client is told to come again.
const WAIT: Duration = Duration::from_secs(10);

/// Streams on one HTTP/2 connection: a client of many parts may watch thousands of things over one.
pub(crate) const STREAMS_MAX: u32 = 4_000;

/// Headers of a request: a token of 8 KiB, many groups to impersonate, and a URL.
pub(crate) const HEADERS_MAX: usize = 100;
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;

/// Label selectors make URLs long; half of what the headers may take is enough for any that a program writes.
pub(crate) const URL_BYTES_MAX: usize = 32 << 10;

/// An HTTP/1 connection that sends no whole header for this long is closed, whether it is idle or slow.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(90);

/// A body of 3 MiB over a slow line takes half of this.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// An HTTP/2 connection whose peer does not answer is closed after the two together.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(30);
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Limits {
    connections: Arc<Connections>,
    watches: Arc<Semaphore>,
    agent_streams: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    wait: Duration,
}

#[derive(Debug, Default)]
struct Connections {
    by_address: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

/// A place among the connections, kept for as long as it is there.
#[derive(Debug)]
pub(crate) struct Connected {
    connections: Arc<Connections>,
    address: IpAddr,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(WRITES_MAX, READS_MAX, WATCHES_MAX, WAITING_MAX, WAIT)
    }
}

impl Limits {
    pub(crate) fn new(writes: usize, reads: usize, watches: usize, waiting: usize, wait: Duration) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            connections: Arc::default(),
            watches: places(watches),
            agent_streams: places(AGENT_STREAMS_MAX),
            writes: places(writes),
            reads: places(reads),
            waiting: places(waiting),
            wait,
        }
    }

    /// Rule: a connection beyond the limit, of all or of its address, is closed at once.
    pub(crate) fn connect(&self, address: IpAddr) -> Option<Connected> {
        let mut taken = self.connections.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = taken.1.get(&address).copied().unwrap_or(0);
        if CONNECTIONS_MAX <= taken.0 || CONNECTIONS_OF_ADDRESS_MAX <= of_address {
            return None;
        }
        taken.0 += 1;
        taken.1.insert(address, of_address + 1);
        Some(Connected { connections: self.connections.clone(), address })
    }

    /// Rule: reads and writes have so many places each; a request waits its turn for a while, behind those that came before
    /// it, and is told to come again if too many wait already. `None` tells it so.
    pub(crate) async fn enter(&self, is_read: bool) -> Option<OwnedSemaphorePermit> {
        let places = if is_read { &self.reads } else { &self.writes };
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Some(place);
        }
        let _waiting = self.waiting.clone().try_acquire_owned().ok()?;
        let turn = tokio::time::timeout(self.wait, places.clone().acquire_owned()).await;
        turn.ok()?.ok()
    }

    /// A place among the watches, or none.
    pub(crate) fn watch(&self) -> Option<OwnedSemaphorePermit> {
        self.watches.clone().try_acquire_owned().ok()
    }

    /// A place among what agents serve, or none.
    pub(crate) fn agent_stream(&self) -> Option<OwnedSemaphorePermit> {
        self.agent_streams.clone().try_acquire_owned().ok()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut taken = self.connections.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        taken.0 -= 1;
        if let Some(count) = taken.1.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.1.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_take_every_connection() {
        let limits = Limits::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut held: Vec<_> = std::iter::from_fn(|| limits.connect(one)).collect();
        assert_eq!(held.len(), CONNECTIONS_OF_ADDRESS_MAX);
        assert!(limits.connect(other).is_some());
        held.pop();
        assert!(limits.connect(one).is_some(), "a place that is left is free again");
    }

    #[test]
    fn all_addresses_together_have_a_limit() {
        let limits = Limits::default();
        let addresses = (0..=u8::MAX).cycle().map(|it| IpAddr::from([10, 0, 0, it]));
        let held: Vec<_> = addresses.map_while(|it| limits.connect(it)).collect();
        assert_eq!(held.len(), CONNECTIONS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_their_turn_and_not_for_ever() {
        let limits = Arc::new(Limits::new(1, 1, 1, 1, Duration::from_secs(10)));
        let first = limits.enter(false).await.unwrap();
        assert!(limits.enter(true).await.is_some(), "reads have places of their own");

        let second = tokio::spawn({
            let limits = limits.clone();
            async move { limits.enter(false).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(limits.enter(false).await.is_none(), "too many wait");
        drop(first);
        assert!(second.await.unwrap(), "its turn came");

        let held = limits.enter(false).await.unwrap();
        assert!(limits.enter(false).await.is_none(), "its turn did not come in time");
        drop(held);
        assert!(limits.enter(false).await.is_some());
    }

    #[test]
    fn watches_have_a_limit() {
        let limits = Limits::new(1, 1, 1, 1, WAIT);
        let one = limits.watch().unwrap();
        assert!(limits.watch().is_none());
        drop(one);
        assert!(limits.watch().is_some());
    }
}
