//! The fleet's clock. Times in objects are the wall clock's; waits must not depend on how that is set.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A difference below this is drift, or the two clocks not being read at the same moment.
const STEP_MIN: SignedDuration = SignedDuration::from_secs(1);

/// Reads the wall clock and, by the monotonic clock, notices when it was set.
#[derive(Clone)]
pub(super) struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Both clocks, when they were last read.
    read: (Timestamp, Instant),
}

impl Clock {
    pub(super) fn new(wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { read: (wall(), Instant::now()), wall: Arc::new(wall) }
    }

    /// The time, and how much the clock was set forward (or back, below zero) since it was last read.
    pub(super) fn read(&mut self) -> (Timestamp, SignedDuration) {
        let now = ((self.wall)(), Instant::now());
        let before = std::mem::replace(&mut self.read, now);
        let passed = SignedDuration::try_from(now.1.duration_since(before.1)).unwrap_or_default();
        let step = now.0.duration_since(before.0).saturating_sub(passed);
        (now.0, if step.abs() < STEP_MIN { SignedDuration::ZERO } else { step })
    }

    /// The time, for a wait that begins now.
    pub(super) fn now(&self) -> Timestamp {
        (self.wall)()
    }
}

/// The same moment by a clock that was set by so much.
pub(super) fn shifted(at: Timestamp, by: SignedDuration) -> Timestamp {
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
        let mut clock = Clock::new(move || *shown.lock().unwrap());
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
            *wall = shifted(*wall, SignedDuration::from_millis(shown));
            let expected = *wall;
            drop(wall);
            assert_eq!(clock.read(), (expected, SignedDuration::from_millis(step)));
        }
    }
}
