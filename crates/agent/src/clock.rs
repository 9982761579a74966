//! What time it is on the node.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_api::time::Time;

static CLOCK: Mutex<Option<Clock>> = Mutex::new(None);

/// What time it is.
pub(crate) fn now() -> Time {
    read(|clock| clock.shown)
}

/// When something was that the runtime has dated, in nanoseconds by the machine's clock.
pub(super) fn then(nanos: i64) -> Time {
    read(|clock| clock.then(Time::from_micros(nanos / 1000)))
}

fn read<T>(answer: impl FnOnce(&Clock) -> T) -> T {
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let wall = Time::from_micros(jiff::Timestamp::now().as_microsecond());
    let at = Instant::now();
    let clock = clock.get_or_insert(Clock { wall, shown: wall, at });
    clock.go_on(wall, at.duration_since(clock.at));
    clock.at = at;
    answer(clock)
}

struct Clock {
    /// The machine's, when it was last read.
    wall: Time,
    shown: Time,
    at: Instant,
}

impl Clock {
    /// Rule: the node's time does not go back. Where the machine's clock does, the node's goes on at half its pace until both are
    /// the same again: what was to wait for seconds does not wait for the hours that the clock was wrong by.
    fn go_on(&mut self, wall: Time, passed: Duration) {
        self.wall = wall;
        self.shown = wall.max(self.shown + passed / 2);
    }

    /// Nothing was later than now: a container that was begun when the clock was ahead is as one that has just begun.
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
