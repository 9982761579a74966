//! How many calls at once, how many in a second, and who goes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// How much the API server is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls under way at once, over all sets.
    pub calls: usize,
    /// Calls in a second, on average; none means as many as the server takes.
    pub qps: Option<u32>,
    /// Calls that may be made at once after a quiet time.
    pub burst: u32,
}

impl Limits {
    /// More than most API servers write in a second: what holds the controller back is their own word. Upstream's default
    /// is 20, with which a DaemonSet of 5,000 pods takes four minutes.
    pub const QPS: u32 = 2000;
}

/// Each call under way takes a connection, and the API server has other clients.
impl Default for Limits {
    fn default() -> Self {
        Self { calls: 64, qps: Some(Self::QPS), burst: 2 * Self::QPS }
    }
}

/// Which calls a call gives way to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What pods depend on.
    Work,
    /// What only tells: it goes when nothing else waits, or when it has waited for many others.
    Word,
}

/// Of so many calls that are let through while a word waits, one is a word: it yields, but it comes through.
const WORD_EVERY: u32 = 16;

#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    state: Arc<Mutex<State>>,
    limits: Limits,
}

#[derive(Debug)]
struct State {
    free: usize,
    work: VecDeque<oneshot::Sender<Permit>>,
    words: VecDeque<oneshot::Sender<Permit>>,
    passed_by: u32,
    /// When the next call may begin, if calls came one by one at the allowed rate; a quiet time leaves it behind.
    next_at: Instant,
}

/// Leave to make one call. The next one waiting gets it when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Option<Lanes>);

impl Lanes {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            free: limits.calls.max(1),
            work: VecDeque::new(),
            words: VecDeque::new(),
            passed_by: 0,
            next_at: Instant::now(),
        };
        Self { state: Arc::new(Mutex::new(state)), limits }
    }

    /// Waits for a place, and then for the rate.
    pub(crate) async fn enter(&self, lane: Lane) -> Permit {
        let waiting = {
            let mut state = self.lock();
            if 0 < state.free {
                state.free -= 1;
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                match lane {
                    Lane::Work => state.work.push_back(sender),
                    Lane::Word => state.words.push_back(sender),
                }
                Some(receiver)
            }
        };
        let permit = match waiting {
            None => Permit(Some(self.clone())),
            Some(receiver) => receiver.await.expect("whoever waits is let in before the lanes go"),
        };
        let now = Instant::now();
        let at = self.reserve(now);
        if now < at {
            tokio::time::sleep_until(at).await;
        }
        permit
    }

    /// When a call that asks now may begin.
    fn reserve(&self, now: Instant) -> Instant {
        let Some(qps) = self.limits.qps else { return now };
        let step = Duration::from_secs(1) / qps.max(1);
        // After a quiet time this many are due already.
        let ahead = step.saturating_mul(self.limits.burst.max(1) - 1);
        let mut state = self.lock();
        let at = state.next_at.max(now.checked_sub(ahead).unwrap_or(now));
        state.next_at = at + step;
        at.max(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<oneshot::Sender<Permit>> {
        let mut state = self.lock();
        let is_words_turn = WORD_EVERY <= state.passed_by + 1 || state.work.is_empty();
        if is_words_turn && let Some(word) = state.words.pop_front() {
            state.passed_by = 0;
            return Some(word);
        }
        let work = state.work.pop_front();
        match &work {
            Some(_) if !state.words.is_empty() => state.passed_by += 1,
            Some(_) => {}
            None => state.free += 1,
        }
        work
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(lanes) = self.0.take() else { return };
        while let Some(next) = lanes.next() {
            match next.send(Permit(Some(lanes.clone()))) {
                Ok(()) => return,
                // Nobody waits there any more: what came back is not given away a second time.
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn lanes(calls: usize, qps: Option<u32>, burst: u32) -> Lanes {
        Lanes::new(Limits { calls, qps, burst })
    }

    /// The order in which those who wait get the one place there is.
    #[tokio::test]
    async fn words_yield_but_come_through() {
        let lanes = lanes(1, None, 1);
        let first = lanes.enter(Lane::Work).await;
        let mut waiting: Vec<_> =
            (0..3).map(|at| (format!("word {at}"), Box::pin(lanes.enter(Lane::Word)))).collect();
        waiting.extend((0..20).map(|at| (format!("work {at}"), Box::pin(lanes.enter(Lane::Work)))));
        for (_, entering) in &mut waiting {
            assert!(entering.now_or_never().is_none());
        }
        // One that no longer waits is passed over.
        waiting.retain(|(name, _)| name != "work 1");
        drop(first);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let at = waiting.iter_mut().position(|(_, it)| it.now_or_never().is_some());
            order.push(waiting.remove(at.expect("somebody is let in")).0);
        }
        let words: Vec<_> = order.iter().enumerate().filter(|(_, it)| it.starts_with("word")).collect();
        assert_eq!(format!("{words:?}"), r#"[(14, "word 0"), (20, "word 1"), (21, "word 2")]"#);
        assert_eq!(lanes.lock().free, 1);
    }

    #[tokio::test]
    async fn calls_come_at_their_rate_after_a_burst() {
        let lanes = lanes(1, Some(10), 3);
        let now = Instant::now() + Duration::from_secs(60);
        let waits: Vec<u128> = (0..5).map(|_| (lanes.reserve(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        // Whatever the quiet time, no more than a burst is due.
        let later = now + Duration::from_secs(3600);
        let waits: Vec<u128> = (0..5).map(|_| (lanes.reserve(later) - later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
    }
}
