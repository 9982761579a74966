//! The node's clock. Waits use node time, which follows the monotonic clock; timestamps in API objects are wall-clock
//! times.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_api::time::Time;
use muster_engine::kubelet::wall_clock::WallClock;

/// The node's clock, which the whole process shares. `None` until it is first read.
static NODE_CLOCK: Mutex<Option<NodeClock>> = Mutex::new(None);

/// Returns the current node time. It is for waits only, because it does not follow changes of the wall clock.
pub(crate) fn now() -> Time {
    with_clock(|clock| clock.node_time)
}

/// Returns the wall clock, which converts between node time and wall-clock time.
pub(crate) fn wall_clock() -> WallClock {
    with_clock(|clock| clock.wall_clock.clone())
}

/// Converts a timestamp of the container runtime to node time. `nanos` is the number of nanoseconds since the Unix
/// epoch on the machine's wall clock. The result is never later than the current node time.
pub(super) fn from_runtime_nanos(nanos: i64) -> Time {
    with_clock(|clock| clock.wall_clock.node_time(Time::from_micros(nanos / 1000), clock.node_time))
}

/// Advances the node's clock to the current time, passes it to `with`, and returns the result of `with`.
fn with_clock<T>(with: impl FnOnce(&NodeClock) -> T) -> T {
    let mut clock = NODE_CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let (wall, at) = (muster_events::clock::now(), Instant::now());
    let clock = clock.get_or_insert_with(|| NodeClock::new(wall, at));
    if let Some(seconds) = clock.advance_time(wall, at.duration_since(clock.started_at)) {
        tracing::warn!(seconds, "the wall clock was changed; waits are not affected");
    }
    with(clock)
}

/// The node's clock: its time begins at the wall-clock time at which the process first reads the clock, and then follows
/// the monotonic clock.
struct NodeClock {
    /// Monotonic time at which the clock was first read.
    started_at: Instant,
    /// Wall-clock time at which the clock was first read.
    started: Time,
    /// Node time when the clock was last read.
    node_time: Time,
    /// The wall clock when the clock was last read.
    wall_clock: WallClock,
}

impl NodeClock {
    /// Creates a clock that is first read at the wall-clock time `wall` and the monotonic time `at`.
    fn new(wall: Time, at: Instant) -> Self {
        Self { started_at: at, started: wall, node_time: wall, wall_clock: WallClock::default() }
    }

    /// Advances the node time. `wall` is the current wall-clock time, and `passed` is the time since the clock was
    /// first read. Returns the change of the wall clock in seconds, or `None` if it was not changed.
    ///
    /// Rule: node time follows the monotonic clock, so a change of the wall clock makes no wait longer or shorter:
    /// grace periods, backoffs, probes, eviction delays and the age of images.
    fn advance_time(&mut self, wall: Time, passed: Duration) -> Option<i64> {
        self.node_time = self.started + passed;
        self.wall_clock.detect_step(self.node_time, wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time after this number of seconds.
    fn at(seconds: i64) -> Time {
        Time::from_secs(seconds)
    }

    #[test]
    fn node_time_does_not_follow_changes_of_the_wall_clock() {
        let mut clock = NodeClock::new(at(36_000), Instant::now());
        // Seconds that have passed, and what the wall clock shows.
        for (passed, wall) in [(60_i64, 36_060), (120, 39_720), (180, 32_580), (240, 32_640), (300, 122_700)]
        {
            let before = clock.wall_clock.wall_time(at(36_000));
            clock.advance_time(at(wall), Duration::from_secs(passed.unsigned_abs()));
            assert_eq!(clock.node_time, at(36_000 + passed));
            assert_eq!(
                clock.wall_clock.wall_time(clock.node_time),
                at(wall),
                "new timestamps are wall-clock times"
            );
            assert_eq!(clock.wall_clock.wall_time(at(36_000)), before, "earlier timestamps do not change");
        }
    }
}
