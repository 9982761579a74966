//! Client-side rate limiting: limits the calls in flight and the calls per second, and prefers other calls to status
//! writes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_engine::controller::Priority;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Limits on the calls of one replica to the API server. Watches and their lists, Lease renewals and Events are not
/// limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Maximum number of calls in flight, over all DaemonSets. Each call in flight may need a connection.
    pub calls: usize,
    /// Maximum average number of calls per second. `None` means no limit.
    pub qps: Option<u32>,
    /// Maximum number of calls that may be sent at once after an idle period.
    pub burst: u32,
}

impl RateLimits {
    /// Default of [`RateLimits::qps`]. Most API servers handle fewer writes per second than this, so in effect only
    /// their own flow control limits the writes. With upstream's default of 20, it takes four minutes to create the
    /// 5,000 pods of a DaemonSet.
    pub const DEFAULT_QPS: u32 = 2000;
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { calls: 64, qps: Some(Self::DEFAULT_QPS), burst: 2 * Self::DEFAULT_QPS }
    }
}

/// While both status writes and normal calls wait, one of this many calls is a status write. So status writes have low
/// priority, but are not starved.
const STATUS_CALL_RATIO: u32 = 16;

/// Limits the calls in flight and the calls per second: each call needs a permit. All runners of one replica share the
/// limiter.
#[derive(Debug, Clone)]
pub(crate) struct RateLimiter {
    /// The permits and the waiting calls, which all clones share.
    state: Arc<Mutex<LimiterState>>,
    limits: RateLimits,
}

/// The permits of a [`RateLimiter`], and the calls that wait for one.
#[derive(Debug)]
struct LimiterState {
    /// Number of permits that no call holds. A call with a permit may still wait for the rate, see `next_at`.
    free_permits: usize,
    /// Calls of [`Priority::Normal`] that wait for a permit.
    normal_waiters: VecDeque<oneshot::Sender<Permit>>,
    /// Calls of [`Priority::Low`], such as status writes, that wait for a permit. They are called status calls below.
    status_waiters: VecDeque<oneshot::Sender<Permit>>,
    /// Number of normal calls that got a permit while a status call waited.
    calls_since_status: u32,
    /// Earliest start time of the next call at the allowed rate. After an idle period it is in the past.
    next_at: Instant,
}

/// Permit for one call. When it is dropped, the next waiting call, if any, gets a permit.
#[derive(Debug)]
pub(crate) struct Permit(Option<RateLimiter>);

impl RateLimiter {
    pub(crate) fn new(limits: RateLimits) -> Self {
        let state = LimiterState {
            free_permits: limits.calls.max(1),
            normal_waiters: VecDeque::new(),
            status_waiters: VecDeque::new(),
            calls_since_status: 0,
            next_at: Instant::now(),
        };
        Self { state: Arc::new(Mutex::new(state)), limits }
    }

    /// Waits until fewer than [`RateLimits::calls`] calls are in flight, and then until the rate limit allows another
    /// call. Returns the permit, which must be held until the call has ended.
    pub(crate) async fn acquire(&self, priority: Priority) -> Permit {
        let waiting = {
            let mut state = self.lock();
            if 0 < state.free_permits {
                state.free_permits -= 1;
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                match priority {
                    Priority::Normal => state.normal_waiters.push_back(sender),
                    Priority::Low => state.status_waiters.push_back(sender),
                }
                Some(receiver)
            }
        };
        let permit = match waiting {
            None => Permit(Some(self.clone())),
            Some(receiver) => {
                receiver.await.expect("every waiting call gets a permit before the limiter is dropped")
            }
        };
        let now = Instant::now();
        let at = self.reserve_start(now);
        if now < at {
            tokio::time::sleep_until(at).await;
        }
        permit
    }

    /// Reserves and returns the start time of the next call at the allowed rate.
    fn reserve_start(&self, now: Instant) -> Instant {
        let Some(qps) = self.limits.qps else { return now };
        let step = Duration::from_secs(1) / qps.max(1);
        // After an idle period a burst may start at once.
        let ahead = step.saturating_mul(self.limits.burst.max(1) - 1);
        let mut state = self.lock();
        let at = state.next_at.max(now.checked_sub(ahead).unwrap_or(now));
        state.next_at = at + step;
        at.max(now)
    }

    /// Locks the state, even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the waiting call that gets the permit of a call that ended. If no call waits, returns `None`
    /// and adds the permit to the free permits.
    fn next_waiter(&self) -> Option<oneshot::Sender<Permit>> {
        let mut state = self.lock();
        let is_status_turn =
            STATUS_CALL_RATIO <= state.calls_since_status + 1 || state.normal_waiters.is_empty();
        if is_status_turn && let Some(status) = state.status_waiters.pop_front() {
            state.calls_since_status = 0;
            return Some(status);
        }
        let next = state.normal_waiters.pop_front();
        match &next {
            Some(_) if !state.status_waiters.is_empty() => state.calls_since_status += 1,
            Some(_) => {}
            None => state.free_permits += 1,
        }
        next
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(rate_limiter) = self.0.take() else { return };
        while let Some(next) = rate_limiter.next_waiter() {
            match next.send(Permit(Some(rate_limiter.clone()))) {
                Ok(()) => return,
                // The waiting call was cancelled; the returned permit must not run `drop` a second time.
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn rate_limiter(calls: usize, qps: Option<u32>, burst: u32) -> RateLimiter {
        RateLimiter::new(RateLimits { calls, qps, burst })
    }

    /// The order in which waiting calls get the only permit.
    #[tokio::test]
    async fn status_calls_yield_but_are_not_starved() {
        let rate_limiter = rate_limiter(1, None, 1);
        let first = rate_limiter.acquire(Priority::Normal).await;
        let mut waiting: Vec<_> = (0..3)
            .map(|at| (format!("status {at}"), Box::pin(rate_limiter.acquire(Priority::Low))))
            .collect();
        waiting.extend(
            (0..20).map(|at| (format!("pods {at}"), Box::pin(rate_limiter.acquire(Priority::Normal)))),
        );
        for (_, acquiring) in &mut waiting {
            assert!(acquiring.now_or_never().is_none());
        }
        // A cancelled call is skipped.
        waiting.retain(|(name, _)| name != "pods 1");
        drop(first);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let at = waiting.iter_mut().position(|(_, it)| it.now_or_never().is_some());
            order.push(waiting.remove(at.expect("one call gets the permit")).0);
        }
        let status: Vec<_> = order.iter().enumerate().filter(|(_, it)| it.starts_with("status")).collect();
        assert_eq!(format!("{status:?}"), r#"[(14, "status 0"), (20, "status 1"), (21, "status 2")]"#);
        assert_eq!(rate_limiter.lock().free_permits, 1);
    }

    #[tokio::test]
    async fn calls_start_at_the_allowed_rate_after_a_burst() {
        let rate_limiter = rate_limiter(1, Some(10), 3);
        let now = Instant::now() + Duration::from_secs(60);
        let waits: Vec<u128> = (0..5).map(|_| (rate_limiter.reserve_start(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        // However long the idle period, at most one burst starts at once.
        let later = now + Duration::from_secs(3600);
        let waits: Vec<u128> =
            (0..5).map(|_| (rate_limiter.reserve_start(later) - later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
    }
}
