//! The node's clock: wall-clock time that never goes back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_api::time::Time;

/// The node's clock, which the whole process shares. `None` until it is first read.
static NODE_CLOCK: Mutex<Option<NodeClock>> = Mutex::new(None);

/// Returns the current time of the node's clock, which never goes back.
pub(crate) fn now() -> Time {
    with_clock(|clock| clock.node_time)
}

/// Converts a timestamp of the container runtime to the node's time. `nanos` is the number of nanoseconds since the
/// Unix epoch on the machine's clock. The result is never later than the node's current time.
pub(super) fn from_runtime_nanos(nanos: i64) -> Time {
    with_clock(|clock| clock.node_time_at(Time::from_micros(nanos / 1000)))
}

/// Advances the node's clock to the current time, passes it to `with`, and returns the result of `with`.
fn with_clock<T>(with: impl FnOnce(&NodeClock) -> T) -> T {
    let mut clock = NODE_CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let wall = muster_events::clock::now();
    let at = Instant::now();
    let clock = clock.get_or_insert(NodeClock { wall, node_time: wall, read_at: at });
    clock.advance_time(wall, at.duration_since(clock.read_at));
    clock.read_at = at;
    with(clock)
}

/// The node's clock: follows the machine's wall clock, but never goes back.
struct NodeClock {
    /// The machine's wall-clock time when the clock was last read.
    wall: Time,
    /// The node's time when the clock was last read. It is never earlier than `wall`, and never goes back.
    node_time: Time,
    /// Monotonic time at which the clock was last read.
    read_at: Instant,
}

impl NodeClock {
    /// Advances the node's time. `wall` is the machine's current wall-clock time, and `passed` is the time since the
    /// clock was last read.
    ///
    /// Rule: the node's time does not go back. When the machine's clock is set back, the node's time advances at half
    /// speed until the machine's clock has caught up. If the node's time went back too, a wait of seconds could become
    /// a wait of hours.
    fn advance_time(&mut self, wall: Time, passed: Duration) {
        self.wall = wall;
        self.node_time = wall.max(self.node_time + passed / 2);
    }

    /// Converts a wall-clock time to the node's time. The result is never later than the node's current time. A
    /// container that was started while the wall clock was ahead therefore counts as just started.
    fn node_time_at(&self, wall: Time) -> Time {
        let ahead = self.node_time.since(self.wall);
        (wall + ahead).min(self.node_time)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let at = |minutes: i64| Time::from_secs(minutes * 60);
        let mut clock = NodeClock { wall: at(600), node_time: at(600), read_at: Instant::now() };
        let mut said = String::new();
        // What the machine's clock says, after how many minutes.
        for (wall, passed) in [(601, 1), (720, 1), (600, 1), (620, 20), (840, 220), (850, 10)] {
            clock.advance_time(at(wall), Duration::from_secs(passed * 60));
            let minutes = |it: Time| it.as_micros() as f64 / 60e6;
            let (shown, just, before) =
                (clock.node_time, clock.node_time_at(at(wall)), clock.node_time_at(at(wall - 1)));
            said += &format!("{wall}: {}, {} {}\n", minutes(shown), minutes(just), minutes(before));
            assert!(clock.node_time_at(at(10_000)) == shown, "nothing is later than now");
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
