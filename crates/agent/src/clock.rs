//! The node's clock: wall-clock time that never goes back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_api::time::Time;

static CLOCK: Mutex<Option<Clock>> = Mutex::new(None);

/// Returns the current time of the node.
pub(crate) fn now() -> Time {
    read(|clock| clock.shown)
}

/// Converts a timestamp of the container runtime, in nanoseconds of the machine's clock, to the node's time.
pub(super) fn then(nanos: i64) -> Time {
    read(|clock| clock.then(Time::from_micros(nanos / 1000)))
}

fn read<T>(with: impl FnOnce(&Clock) -> T) -> T {
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let wall = Time::from_micros(jiff::Timestamp::now().as_microsecond());
    let at = Instant::now();
    let clock = clock.get_or_insert(Clock { wall, shown: wall, at });
    clock.go_on(wall, at.duration_since(clock.at));
    clock.at = at;
    with(clock)
}

/// Monotonic view of the machine's wall clock.
struct Clock {
    /// The machine's wall clock at the last reading.
    wall: Time,
    /// The node's time at the last reading: never earlier than `wall`, and never going back.
    shown: Time,
    /// When the clock was last read, on the monotonic clock.
    at: Instant,
}

impl Clock {
    /// Rule: the node's time does not go back. When the machine's clock is set back, the node's time advances at
    /// half speed until the machine's clock has caught up. So a wait of seconds does not become a wait of hours.
    fn go_on(&mut self, wall: Time, passed: Duration) {
        self.wall = wall;
        self.shown = wall.max(self.shown + passed / 2);
    }

    /// Converts a wall-clock time to the node's time, at most now: a container that was started while the clock
    /// was ahead counts as just started.
    fn then(&self, dated: Time) -> Time {
        let ahead = self.shown.since(self.wall);
        (dated + ahead).min(self.shown)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let at = |minutes: i64| Time::from_secs(minutes * 60);
        let mut clock = Clock { wall: at(600), shown: at(600), at: Instant::now() };
        let mut said = String::new();
        // What the machine's clock says, after how many minutes.
        for (wall, passed) in [(601, 1), (720, 1), (600, 1), (620, 20), (840, 220), (850, 10)] {
            clock.go_on(at(wall), Duration::from_secs(passed * 60));
            let minutes = |it: Time| it.as_micros() as f64 / 60e6;
            let (shown, just, before) = (clock.shown, clock.then(at(wall)), clock.then(at(wall - 1)));
            said += &format!("{wall}: {}, {} {}\n", minutes(shown), minutes(just), minutes(before));
            assert!(clock.then(at(10_000)) == shown, "nothing is later than now");
        }
        expect![[r#"
            601: 601, 601 600
            720: 720, 720 719
            600: 720.5, 720.5 719.5
            620: 730.5, 730.5 729.5
            840: 840.5, 840.5 839.5
            850: 850, 850 849
        "#]]
        .assert_eq(&said);
    }
}
