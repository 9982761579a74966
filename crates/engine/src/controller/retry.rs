//! [`Attempt`]: at most one call about an object is in flight, and a failed call is retried with exponential backoff.

use core::time::Duration;

use muster_api::time::Time;

use crate::controller::{BackoffPolicy, CallError, Outcome, WrittenObject};

/// Maximum time to wait until the watch delivers a write. After this time the object is reconciled again, and the write
/// may be made a second time.
pub(crate) const WATCH_DELAY_MAX: Duration = Duration::from_secs(10);

/// Backoff after consecutive failed calls.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_millis(100), max: Duration::from_secs(60) };

/// The state of the last call about an object. It determines when the next call about this object may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Attempt {
    /// No call about the object is in flight, no failed call waits for a retry, and the watch has delivered every
    /// write.
    #[default]
    None,
    /// A call was made, and its outcome is not known yet. `failures` counts the consecutive failed calls before it.
    InFlight { failures: u32 },
    /// The last call succeeded or found no object. The watch is expected to deliver resource version `version` or a
    /// later one. If the watch does not deliver it, the call may be made again at `retry_at`.
    Done { version: u64, retry_at: Time },
    /// The last call failed. `failures` counts the consecutive failed calls. The next call may be made at `retry_at`.
    Failed { failures: u32, retry_at: Time },
}

/// When the next call about an object may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextAttempt {
    /// The next call about the object may be made now.
    Now,
    /// The next call about the object may be made once the outcome of the call in flight is known.
    AfterOutcome,
    /// The next call about the object may be made at this time.
    At(Time),
}

impl Attempt {
    /// Returns when the next call may be made. `version` is the resource version of the object that the watch last
    /// delivered. If the remaining wait exceeds the maximum backoff, the clock was set back, and the call may be made
    /// now.
    pub(crate) fn next_attempt(self, version: u64, now: Time) -> NextAttempt {
        let waits = |until: Time| now < until && until <= now + BACKOFF.max;
        match self {
            Self::InFlight { .. } => NextAttempt::AfterOutcome,
            Self::Done { version: written, retry_at } if version < written && waits(retry_at) => {
                NextAttempt::At(retry_at)
            }
            Self::Failed { retry_at, .. } if waits(retry_at) => NextAttempt::At(retry_at),
            Self::None | Self::Done { .. } | Self::Failed { .. } => NextAttempt::Now,
        }
    }

    /// Records that a call is in flight from now on.
    pub(crate) fn begin(&mut self) {
        let failures = if let Self::Failed { failures, .. } = self { *failures } else { 0 };
        *self = Self::InFlight { failures };
    }

    /// Applies the outcome of a write. `version` is the resource version that the object had before the write. After a
    /// success, the next call waits until the watch has delivered the written version, at most [`WATCH_DELAY_MAX`].
    /// After NotFound, or after a success whose response has no resource version, the next call waits in the same way
    /// for a version later than `version`. After any other error, the call is retried after a backoff ([`Attempt::record_failure`]).
    pub(crate) fn apply_outcome(&mut self, version: u64, outcome: &Outcome, now: Time) {
        match outcome {
            Outcome::Done(answer) => {
                let written = WrittenObject::decode(answer).and_then(|it| it.resource_version);
                self.expect_version(written.unwrap_or(version.saturating_add(1)), now)
            }
            Outcome::Refused(CallError::NotFound) => self.expect_version(version.saturating_add(1), now),
            Outcome::Refused(refusal) => self.record_failure(refusal, now),
        }
    }

    /// Records that the watch is expected to deliver resource version `version` or a later one, for at most
    /// [`WATCH_DELAY_MAX`].
    pub(crate) fn expect_version(&mut self, version: u64, now: Time) {
        *self = Self::Done { version, retry_at: now + WATCH_DELAY_MAX };
    }

    /// Records that a call failed, and sets the time of the next attempt.
    ///
    /// Rule: a failed call is retried after a backoff that doubles with each failure. If the `Retry-After` of the
    /// response is longer than the backoff, the call is retried after that time instead.
    pub(crate) fn record_failure(&mut self, refusal: &CallError, now: Time) {
        let before = match self {
            Self::InFlight { failures } | Self::Failed { failures, .. } => *failures,
            Self::None | Self::Done { .. } => 0,
        };
        let failures = before.saturating_add(1);
        let wait = BACKOFF.delay(failures).max(refusal.retry_after());
        *self = Self::Failed { failures, retry_at: now + wait };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_makes_no_backoff_longer() {
        let (now, hour) = (Time::from_secs(1_000_000), Duration::from_secs(3600));
        let mut refused = Attempt::default();
        refused.record_failure(&CallError::NoAnswer, now);
        let mut done = Attempt::default();
        done.expect_version(5, now);
        for (attempt, until) in [(refused, now + BACKOFF.min), (done, now + WATCH_DELAY_MAX)] {
            assert_eq!(attempt.next_attempt(4, now), NextAttempt::At(until));
            assert_eq!(attempt.next_attempt(4, until), NextAttempt::Now);
            assert_eq!(attempt.next_attempt(4, now - hour), NextAttempt::Now);
        }
    }
}
