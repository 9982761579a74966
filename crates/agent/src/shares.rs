//! Limits the number of permits that each IP address may hold.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the permits of each address. Addresses without permits take no memory.
#[derive(Debug)]
pub(crate) struct Shares {
    each: usize,
    held: Mutex<HashMap<IpAddr, usize>>,
}

/// A permit of one address; released on drop.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Shares>,
    address: IpAddr,
}

impl Shares {
    pub(crate) fn new(each: usize) -> Arc<Self> {
        Arc::new(Self { each, held: Mutex::default() })
    }

    /// Takes a permit. `None` if the address already holds the maximum.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Share> {
        let address = address.to_canonical();
        let mut held = self.held();
        let count = held.entry(address).or_default();
        if self.each <= *count {
            return None;
        }
        *count += 1;
        drop(held);
        Some(Share { of: self.clone(), address })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.of.held();
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
        let shares = Shares::new(2);
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let held = [shares.take(one), shares.take(one)];
        assert!(held.iter().all(Option::is_some));
        assert!(shares.take(one).is_none(), "its share is used up");
        assert!(shares.take("::ffff:10.0.0.1".parse().unwrap()).is_none(), "also by its other spelling");
        assert!(shares.take(other).is_some());
        drop(held);
        assert!(shares.take(one).is_some());
        assert!(shares.held().is_empty(), "nothing is remembered of those that hold nothing");
    }
}
