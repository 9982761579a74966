//! Conversion between node time and wall-clock time.
//!
//! Node time follows the monotonic clock, so all waits use it. API objects and the container runtime have wall-clock
//! times. The difference of the two clocks changes whenever the wall clock is set.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use muster_api::time::Time;

/// Minimum change of the difference between the clocks that counts as a change of the wall clock, in microseconds. A
/// smaller change is drift.
const CLOCK_STEP_MIN_MICROS: u64 = 1_000_000;

/// Maximum number of changes of the wall clock whose node times are kept. Earlier changes are forgotten first, and then
/// older wall-clock times are converted with the difference of the earliest change that is kept.
const CLOCK_STEPS_MAX: usize = 32;

/// The wall clock of a node: converts between node time and wall-clock time. By default, both are the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WallClock {
    /// Wall-clock time minus node time before the first of `steps`, in microseconds.
    initial_offset: i64,
    /// The changes of the wall clock, ordered by time.
    steps: Arc<VecDeque<ClockStep>>,
}

/// A change of the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClockStep {
    /// Node time at which the change was detected.
    at: Time,
    /// Wall-clock time minus node time since then, in microseconds.
    offset: i64,
}

impl WallClock {
    /// Detects whether the wall clock was changed. `wall` is the wall-clock time at the node time `now`. Returns the
    /// change in seconds, which is positive if the clock was set forward, or `None` if it was not changed.
    pub fn detect_step(&mut self, now: Time, wall: Time) -> Option<i64> {
        let offset = wall.as_micros().saturating_sub(now.as_micros());
        let before = self.steps.back().map_or(self.initial_offset, |it| it.offset);
        let change = offset.saturating_sub(before);
        if change.unsigned_abs() < CLOCK_STEP_MIN_MICROS {
            return None;
        }
        let steps = Arc::make_mut(&mut self.steps);
        steps.push_back(ClockStep { at: now, offset });
        if CLOCK_STEPS_MAX < steps.len()
            && let Some(earliest) = steps.pop_front()
        {
            self.initial_offset = earliest.offset;
        }
        Some(change / 1_000_000)
    }

    /// Converts a node time to wall-clock time.
    ///
    /// Rule: each time is converted with the difference that the clocks had at that time. A change of the wall clock
    /// therefore changes no timestamp from before the change.
    pub fn wall_time(&self, at: Time) -> Time {
        let step = self.steps.iter().rev().find(|it| it.at <= at);
        Time::from_micros(at.as_micros().saturating_add(step.map_or(self.initial_offset, |it| it.offset)))
    }

    /// Converts a wall-clock time that has passed to node time. `now` is the current node time.
    ///
    /// Rule: if the wall clock showed the time more than once, the result is the last of the node times at which it
    /// did. If it has never shown the time, because the time was skipped or is in the future, the result is the node
    /// time at which it was skipped, or `now`.
    pub fn node_time(&self, wall: Time, now: Time) -> Time {
        let (mut skipped_at, mut until) = (now, now);
        let initial = ClockStep { at: Time::from_micros(i64::MIN), offset: self.initial_offset };
        for step in self.steps.iter().rev().chain([&initial]) {
            let at = Time::from_micros(wall.as_micros().saturating_sub(step.offset));
            if step.at <= at && at <= until {
                return at;
            }
            if at < step.at {
                skipped_at = step.at;
            }
            until = step.at;
        }
        skipped_at
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use expect_test::expect;

    use super::*;

    /// Returns the time after this number of minutes.
    fn at(minutes: i64) -> Time {
        Time::from_secs(minutes * 60)
    }

    #[test]
    fn a_change_of_the_wall_clock_changes_no_earlier_timestamp() {
        let mut clock = WallClock::default();
        let mut said = String::new();
        // Node time, and what the wall clock shows, in minutes. Each line of the result has the wall-clock times of four
        // node times, and the node times of five wall-clock times.
        for (now, wall) in [(600, 600), (610, 670), (615, 675), (620, 590), (630, 600), (640, 730)] {
            let change = clock.detect_step(at(now), at(wall));
            assert_eq!(clock.wall_time(at(now)), at(wall));
            let minutes = |it: Time| it.as_micros() / 60_000_000;
            let walls = [599, 605, 612, 625].map(|it| minutes(clock.wall_time(at(it))));
            let nodes = [595, 605, 650, 671, 9999].map(|it| minutes(clock.node_time(at(it), at(now))));
            said += &format!("{now}: {wall} {change:?} {walls:?} {nodes:?}\n");
        }
        expect![[r#"
            600: 600 None [599, 605, 612, 625] [595, 600, 600, 600, 600]
            610: 670 Some(3600) [599, 605, 672, 685] [595, 605, 610, 610, 610]
            615: 675 None [599, 605, 672, 685] [595, 605, 610, 611, 615]
            620: 590 Some(-5400) [599, 605, 672, 595] [595, 605, 610, 611, 620]
            630: 600 None [599, 605, 672, 595] [625, 605, 610, 611, 630]
            640: 730 Some(7200) [599, 605, 672, 595] [625, 635, 610, 611, 640]
        "#]]
        .assert_eq(&said);
    }

    #[test]
    fn drift_is_not_a_change_of_the_wall_clock() {
        let mut clock = WallClock::default();
        assert_eq!(clock.detect_step(at(1), at(1) + core::time::Duration::from_millis(900)), None);
        assert_eq!(clock, WallClock::default());
    }

    #[test]
    fn the_earliest_changes_are_forgotten() {
        let mut clock = WallClock::default();
        for hour in 1..=100 {
            assert_eq!(clock.detect_step(at(hour), at(61 * hour)), Some(3600));
        }
        assert_eq!(clock.steps.len(), CLOCK_STEPS_MAX);
        assert_eq!(
            clock.wall_time(at(1)),
            at(1 + 60 * 68),
            "the change at minute 68 is the earliest whose offset is known"
        );
        assert_eq!(clock.wall_time(at(99)), at(61 * 99));
    }
}
