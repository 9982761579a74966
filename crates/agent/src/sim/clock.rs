//! The fleet's clock. Timestamps in objects are wall-clock times, but waits must not depend on changes of the wall
//! clock.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Minimum difference between wall clock and monotonic clock that counts as a change of the wall clock. A smaller
/// difference is drift.
const CLOCK_STEP_MIN: SignedDuration = SignedDuration::from_secs(1);

/// Reads the wall clock, and compares it with the monotonic clock to detect that the wall clock was set.
#[derive(Clone)]
pub(super) struct FleetClock {
    /// Reads the wall clock.
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Wall-clock time and monotonic time at the last call of [`Self::read_and_detect_step`].
    last_read: (Timestamp, Instant),
}

impl FleetClock {
    pub(super) fn new(wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { last_read: (wall(), Instant::now()), wall: Arc::new(wall) }
    }

    /// Returns the current wall-clock time, and the change of the wall clock since the last call. The change is
    /// positive if the clock was set forward, and negative if it was set back. A change of less than [`CLOCK_STEP_MIN`]
    /// counts as zero.
    pub(super) fn read_and_detect_step(&mut self) -> (Timestamp, SignedDuration) {
        let now = ((self.wall)(), Instant::now());
        let before = std::mem::replace(&mut self.last_read, now);
        let passed = SignedDuration::try_from(now.1.duration_since(before.1)).unwrap_or_default();
        let step = now.0.duration_since(before.0).saturating_sub(passed);
        (now.0, if step.abs() < CLOCK_STEP_MIN { SignedDuration::ZERO } else { step })
    }

    /// Returns the current wall-clock time, without detection of clock changes.
    pub(super) fn now(&self) -> Timestamp {
        (self.wall)()
    }
}

/// Adds a change of the wall clock to a timestamp. The sum saturates.
pub(super) fn shift_timestamp(at: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.checked_add(by).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_is_noticed_and_one_that_drifts_is_not() {
        let wall = Arc::new(Mutex::new(Timestamp::from_second(1_767_225_600).unwrap()));
        let shown = wall.clone();
        let mut clock = FleetClock::new(move || *shown.lock().unwrap());
        // Milliseconds that pass, and what the wall clock says has passed.
        for (passed, shown, step) in [
            (10_000, 10_000, 0),
            (10_000, 10_500, 0),
            (10_000, -3_590_000, -3_600_000),
            (10_000, 10_000, 0),
            (0, 86_400_000, 86_400_000),
        ] {
            tokio::time::advance(Duration::from_millis(passed)).await;
            let mut wall = wall.lock().unwrap();
            *wall = shift_timestamp(*wall, SignedDuration::from_millis(shown));
            let expected = *wall;
            drop(wall);
            assert_eq!(clock.read_and_detect_step(), (expected, SignedDuration::from_millis(step)));
        }
    }
}
