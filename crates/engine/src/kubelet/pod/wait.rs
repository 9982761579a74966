//! How long to wait before something is tried again.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use core::time::Duration;

use muster_api::time::Time;

/// Backoff of failed actions by name: the current delay and the time of the next attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(BTreeMap<String, (Duration, Time)>);

/// Backoff after the first failure; it doubles with each further failure.
const FIRST: Duration = Duration::from_millis(500);

impl Waits {
    pub(super) fn note(&mut self, action: &str, has_failed: bool, wait_max: Duration, now: Time) {
        if !has_failed {
            self.0.remove(action);
            return;
        }
        let wait = self.0.get(action).map_or(FIRST, |(wait, _)| (*wait * 2).min(wait_max));
        self.0.insert(action.to_string(), (wait, now + wait));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn until(&self, action: &str) -> Option<Time> {
        self.0.get(action).map(|(_, until)| *until)
    }
}

/// How long a container waits before it comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BackOff {
    pub delay: Duration,
    /// When it last grew.
    pub since: Time,
}

impl BackOff {
    const FIRST: Duration = Duration::from_secs(10);
    const MAX: Duration = Duration::from_secs(300);

    pub(super) fn first(now: Time) -> Self {
        Self { delay: Self::FIRST, since: now }
    }

    /// Rule: a restart, and a pull that failed, waits 10 s at first, then twice as long each time up to 5 min; what went
    /// well for 10 min begins anew. Upstream: `flowcontrol.Backoff`.
    ///
    /// The one that follows when something went wrong at `at` and is tried again now.
    pub(super) fn next(before: Option<Self>, at: Time, now: Time) -> Self {
        match before.filter(|it| !it.is_stale(at)) {
            Some(before) => Self { delay: (before.delay * 2).min(Self::MAX), since: now },
            None => Self::first(now),
        }
    }

    pub(super) fn is_stale(&self, at: Time) -> bool {
        Self::MAX * 2 < at.since(self.since)
    }
}
