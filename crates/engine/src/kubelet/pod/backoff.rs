//! The backoffs of failed actions, image pulls and container restarts.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use core::time::Duration;

use muster_api::time::Time;

use crate::controller::BackoffPolicy;

/// Backoffs of failed actions, by [`Action::backoff_key`](super::Action::backoff_key). Each value is the current delay
/// and the time of the next attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionBackoffs(BTreeMap<String, (Duration, Time)>);

impl ActionBackoffs {
    /// Updates the backoff of an action: a failure starts or increases it, and a success removes it. `action` is its
    /// [`Action::backoff_key`](super::Action::backoff_key).
    pub(super) fn update(&mut self, action: &str, has_failed: bool, policy: BackoffPolicy, now: Time) {
        if !has_failed {
            self.0.remove(action);
            return;
        }
        let wait = policy.next_delay(self.0.get(action).map(|(wait, _)| *wait));
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

/// Backoff of the restarts of a crashing container, and of its failed image pulls. Upstream: `initialCrashLoopBackOff`,
/// `MaxCrashLoopBackOff`, `imageBackOffPeriod`, `MaxImageBackOff`.
pub(super) const CONTAINER_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(10), max: Duration::from_secs(300) };
