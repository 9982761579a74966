//! Limits the number of permits that each IP address may hold, for example for connections or DNS queries.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits the number of permits that each IP address may hold. An address is forgotten when its last permit is
/// released.
#[derive(Debug)]
pub(crate) struct AddressLimits {
    max_per_address: usize,
    /// Number of permits in use, by address.
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// A permit held by one address. Released on drop.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    limits: Arc<AddressLimits>,
    address: IpAddr,
}

impl AddressLimits {
    pub(crate) fn new(max_per_address: usize) -> Arc<Self> {
        Arc::new(Self { max_per_address, counts: Mutex::default() })
    }

    /// Acquires a permit for an address. An IPv4-mapped IPv6 address counts as its IPv4 address. Returns `None` if the
    /// address already holds the maximum.
    pub(crate) fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let address = address.to_canonical();
        let mut held = self.lock_counts();
        let count = held.entry(address).or_default();
        if self.max_per_address <= *count {
            return None;
        }
        *count += 1;
        drop(held);
        Some(AddressPermit { limits: self.clone(), address })
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut held = self.limits.lock_counts();
        if let Some(count) = held.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_leaves_others_theirs() {
        let shares = AddressLimits::new(2);
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let held = [shares.acquire(one), shares.acquire(one)];
        assert!(held.iter().all(Option::is_some));
        assert!(shares.acquire(one).is_none(), "its share is used up");
        assert!(shares.acquire("::ffff:10.0.0.1".parse().unwrap()).is_none(), "also by its other spelling");
        assert!(shares.acquire(other).is_some());
        drop(held);
        assert!(shares.acquire(one).is_some());
        assert!(shares.lock_counts().is_empty(), "nothing is remembered of those that hold nothing");
    }
}
