//! The backoffs of failed actions, image pulls and container restarts.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use core::time::Duration;

use muster_api::time::Time;

/// Backoffs of failed actions, by [`Action::backoff_key`](super::Action::backoff_key). Each value is the current delay
/// and the time of the next attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionBackoffs(BTreeMap<String, (Duration, Time)>);

/// Backoff after the first failure of an action. It doubles with each further failure, up to
/// [`Action::backoff_max`](super::Action::backoff_max).
const BACKOFF_MIN: Duration = Duration::from_millis(500);

impl ActionBackoffs {
    /// Updates the backoff of an action: a failure starts or doubles it, up to `backoff_max`, and a success removes it.
    /// `action` is its [`Action::backoff_key`](super::Action::backoff_key).
    pub(super) fn update(&mut self, action: &str, has_failed: bool, backoff_max: Duration, now: Time) {
        if !has_failed {
            self.0.remove(action);
            return;
        }
        let wait = self.0.get(action).map_or(BACKOFF_MIN, |(wait, _)| (*wait * 2).min(backoff_max));
        self.0.insert(action.to_string(), (wait, now + wait));
    }

    /// Whether no action has a backoff.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the time until which an action must not be issued again. `None` if the action has no backoff.
    pub(super) fn retry_at(&self, action: &str) -> Option<Time> {
        self.0.get(action).map(|(_, until)| *until)
    }
}

/// Backoff of the restarts of a crashing container, or of its failed image pulls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ContainerBackoff {
    /// Delay before the next restart of the container, or the next pull of its image.
    pub delay: Duration,
    /// Time at which the backoff began or its delay was last increased.
    pub since: Time,
}

impl ContainerBackoff {
    /// Initial delay of restarts and pulls.
    const BACKOFF_MIN: Duration = Duration::from_secs(10);
    /// Maximum delay of restarts and pulls.
    const BACKOFF_MAX: Duration = Duration::from_secs(300);

    /// Returns the backoff with the initial delay. `now` is the time at which it begins.
    pub(super) fn initial(now: Time) -> Self {
        Self { delay: Self::BACKOFF_MIN, since: now }
    }

    /// Returns the backoff after a crash of the container or a failed pull at the time `at`. `before` is the previous
    /// backoff, `None` if there was none. `now` is the time at which the new backoff begins.
    ///
    /// Rule: the backoff of restarts and failed pulls is 10 s at first, and doubles with each failure up to 5 min.
    /// After 10 min without a failure it starts again at 10 s. Upstream: `flowcontrol.Backoff`.
    pub(super) fn next(before: Option<Self>, at: Time, now: Time) -> Self {
        match before.filter(|it| !it.is_stale(at)) {
            Some(before) => Self { delay: (before.delay * 2).min(Self::BACKOFF_MAX), since: now },
            None => Self::initial(now),
        }
    }

    /// Whether the delay was last increased more than 10 min before `at`, so that the backoff starts again at the
    /// initial delay.
    pub(super) fn is_stale(&self, at: Time) -> bool {
        Self::BACKOFF_MAX * 2 < at.since(self.since)
    }
}
