//! Exponential backoff between repeated failures. Upstream: `flowcontrol.Backoff`.

use core::time::Duration;

use crate::time::Time;

/// The range of the delays of an exponential backoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackoffPolicy {
    /// Delay after the first failure.
    pub min: Duration,
    /// Maximum delay.
    pub max: Duration,
}

/// A backoff after one or more failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// Delay before the next attempt.
    pub delay: Duration,
    /// Time at which the backoff began or its delay was last increased.
    pub since: Time,
}

impl BackoffPolicy {
    /// Returns the delay after this number of consecutive failures: the minimum after the first, doubled by each
    /// further failure, up to the maximum. Zero counts as one failure.
    pub fn delay(&self, failures: u32) -> Duration {
        self.min.saturating_mul(1 << failures.saturating_sub(1).min(31)).min(self.max)
    }

    /// Returns the delay after another failure. `before` is the previous delay, or `None` if this is the first failure.
    pub fn next_delay(&self, before: Option<Duration>) -> Duration {
        before.map_or(self.min, |it| it.saturating_mul(2)).min(self.max)
    }

    /// Returns the backoff after the first failure. `now` is the time at which it begins.
    pub fn initial(&self, now: Time) -> Backoff {
        Backoff { delay: self.min, since: now }
    }

    /// Returns the backoff after a failure at the time `at`. `before` is the previous backoff, `None` if there was
    /// none. `now` is the time at which the new backoff begins.
    ///
    /// Rule: each failure doubles the delay, from the minimum up to the maximum. If the last failure was longer ago
    /// than twice the maximum, the delay starts at the minimum again. Upstream: `flowcontrol.Backoff.Next`.
    pub fn next(&self, before: Option<Backoff>, at: Time, now: Time) -> Backoff {
        let before = before.filter(|it| !self.has_expired(*it, at));
        Backoff { delay: self.next_delay(before.map(|it| it.delay)), since: now }
    }

    /// Whether the delay of a backoff was last increased so long before `at` that the next failure starts at the
    /// minimum delay again.
    pub fn has_expired(&self, backoff: Backoff, at: Time) -> bool {
        self.max * 2 < at.since(backoff.since)
    }
}

impl Backoff {
    /// Returns the end of the backoff.
    pub fn ends_at(self) -> Time {
        self.since + self.delay
    }
}

/// The delays between the attempts of a loop that retries a failed operation. The delay doubles with each failure.
#[derive(Clone, Debug)]
pub struct RetryDelay {
    policy: BackoffPolicy,
    /// The delay before the last attempt. `None` before the first failure, and after [`Self::reset`].
    last: Option<Duration>,
}

impl RetryDelay {
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, last: None }
    }

    /// Returns the delay before the next attempt, after a failed one.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.policy.next_delay(self.last);
        self.last = Some(delay);
        delay
    }

    /// Makes the next delay the minimum again, after a success.
    pub fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_with_each_failure_up_to_its_maximum() {
        let policy = BackoffPolicy { min: Duration::from_millis(100), max: Duration::from_secs(60) };
        let delays_ms = |count: u32| (0..count).map(|it| policy.delay(it).as_millis());
        assert!(delays_ms(6).eq([100, 100, 200, 400, 800, 1600]));
        assert_eq!([10, 11, 33, u32::MAX].map(|it| policy.delay(it).as_secs_f64()), [51.2, 60.0, 60.0, 60.0]);
        let mut delay = None;
        for failures in 1..40 {
            delay = Some(policy.next_delay(delay));
            assert_eq!(delay, Some(policy.delay(failures)), "after {failures} failures");
        }
    }

    /// Upstream: `TestBackoffReset`, `TestBackoffHighWaterMark`.
    #[test]
    fn the_delay_doubles_up_to_its_maximum_and_starts_again_after_twice_the_maximum() {
        let seconds = Duration::from_secs;
        let policy = BackoffPolicy { min: seconds(2), max: seconds(5) };
        let mut now = Time::from_secs(1000);
        let mut backoff = None;
        for (pause_s, delay_s) in [(0, 2), (1, 4), (1, 5), (10, 5), (11, 2), (10, 4)] {
            now = now + seconds(pause_s);
            let next = policy.next(backoff, now, now);
            assert_eq!(next, Backoff { delay: seconds(delay_s), since: now }, "after {pause_s} s");
            assert_eq!(next.ends_at(), now + seconds(delay_s));
            backoff = Some(next);
        }
    }

    #[test]
    fn the_retry_delay_doubles_until_a_success() {
        let policy = BackoffPolicy { min: Duration::from_secs(2), max: Duration::from_secs(7) };
        let mut retry = RetryDelay::new(policy);
        let delays = [false, false, false, false, true, false].map(|is_after_success| {
            if is_after_success {
                retry.reset();
            }
            retry.next_delay().as_secs()
        });
        assert_eq!(delays, [2, 4, 7, 7, 2, 4]);
    }
}
