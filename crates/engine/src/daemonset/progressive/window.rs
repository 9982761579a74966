//! Maintenance windows: the times of the week at which a rollout advances.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use jiff::civil::{self, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use muster_api::text::Text;
use muster_api::time::{Time, earliest};

/// A maintenance window: a daily period on some days of the week, in local time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// The days of the week on which the window starts.
    pub days: Vec<Weekday>,
    /// Local time at which the window opens.
    pub start: civil::Time,
    /// Local time at which the window closes. If it is not after `start`, the window closes on the next day.
    pub end: civil::Time,
    pub time_zone: TimeZone,
}

/// Whether any window of a policy is open at a given time, and when that may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowState {
    /// Whether at least one window is open, or the policy has no windows.
    pub is_open: bool,
    /// Time at which `is_open` may change. `None` if the policy has no window that opens or closes within the next
    /// week.
    pub changes_at: Option<Time>,
}

impl Window {
    /// Parses a window. `days` are names such as `Mon`, `start` and `end` have the format `HH:MM`, and `time_zone` is
    /// an IANA name. The error is a message for the user.
    pub fn parse(days: &[Text], start: &str, end: &str, time_zone: &str) -> Result<Self, String> {
        let time = |text: &str| {
            civil::Time::strptime("%H:%M", text)
                .map_err(|_| alloc::format!("{text:?} is not a time such as 09:00"))
        };
        let days = days.iter().map(|it| parse_weekday(it)).collect::<Result<Vec<Weekday>, String>>()?;
        let time_zone = TimeZone::get(time_zone)
            .map_err(|_| alloc::format!("{time_zone:?} is not a time zone such as Europe/Berlin"))?;
        Ok(Self { days, start: time(start)?, end: time(end)?, time_zone })
    }

    /// Returns when this window opens on `day`, and when it closes after that. `None` if the window does not open on
    /// that day of the week.
    fn occurrence_on(&self, day: civil::Date) -> Option<(Time, Time)> {
        if !self.days.contains(&day.weekday()) {
            return None;
        }
        let last = if self.start < self.end { day } else { day.tomorrow().ok()? };
        let at = |day: civil::Date, time: civil::Time| -> Option<Time> {
            let zoned = day.to_datetime(time).to_zoned(self.time_zone.clone()).ok()?;
            Some(Time::from(zoned.timestamp()))
        };
        Some((at(day, self.start)?, at(last, self.end)?))
    }
}

/// Parses the name of a day of the week, such as `Mon`. The error is a message for the user.
fn parse_weekday(text: &str) -> Result<Weekday, String> {
    Ok(match text {
        "Mon" => Weekday::Monday,
        "Tue" => Weekday::Tuesday,
        "Wed" => Weekday::Wednesday,
        "Thu" => Weekday::Thursday,
        "Fri" => Weekday::Friday,
        "Sat" => Weekday::Saturday,
        "Sun" => Weekday::Sunday,
        _ => return Err(alloc::format!("{text:?} is not one of Mon, Tue, Wed, Thu, Fri, Sat, Sun")),
    })
}

/// Returns whether any window of a policy is open at `now`, and when that may change.
///
/// Rule: a rollout advances (admits nodes and replaces pods) only while a window is open, or always if the policy has
/// no windows. Exception: a rollback does not wait for a window. A window whose end is not after its start ends on the
/// next day. A local time that is skipped by the switch to daylight saving time is moved forward by the length of the
/// switch.
pub fn window_state(windows: &[Window], now: Time) -> WindowState {
    if windows.is_empty() {
        return WindowState { is_open: true, changes_at: None };
    }
    let mut is_open = false;
    let mut changes_at = None;
    for window in windows {
        for (start, end) in occurrences_around(window, now) {
            is_open |= start <= now && now < end;
            let next = [start, end].into_iter().filter(|it| now < *it).min();
            changes_at = earliest(changes_at, next);
        }
    }
    WindowState { is_open, changes_at }
}

/// Returns the start and end of each period in which a window is open, for all periods that start between yesterday and
/// a week from now.
fn occurrences_around(window: &Window, now: Time) -> Vec<(Time, Time)> {
    let Ok(timestamp) = Timestamp::from_microsecond(now.as_micros()) else { return Vec::new() };
    let today = timestamp.to_zoned(window.time_zone.clone()).date();
    (-1..=7).filter_map(|day| window.occurrence_on(today.checked_add(day.days()).ok()?)).collect()
}

/// Maximum time between two evaluations of the windows, so that a clock that was set forward is noticed.
pub const WINDOW_RECHECK_INTERVAL_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &[&str], start: &str, end: &str, zone: &str) -> Window {
        let days: Vec<Text> = days.iter().map(|it| Text::from(*it)).collect();
        Window::parse(&days, start, end, zone).unwrap()
    }

    fn state(window: &Window, now: &str) -> (bool, Option<String>) {
        let state = window_state(core::slice::from_ref(window), Time::parse(now).unwrap());
        (state.is_open, state.changes_at.map(Time::to_rfc3339))
    }

    #[test]
    fn a_window_is_open_from_its_start_until_before_its_end() {
        // 2026-11-16 is a Monday; Berlin is one hour ahead of UTC in winter.
        let window = window(&["Mon", "Tue"], "09:00", "16:00", "Europe/Berlin");
        assert_eq!(state(&window, "2026-11-16T07:59:59Z"), (false, Some("2026-11-16T08:00:00Z".into())));
        assert_eq!(state(&window, "2026-11-16T08:00:00Z"), (true, Some("2026-11-16T15:00:00Z".into())));
        assert_eq!(state(&window, "2026-11-16T15:00:00Z"), (false, Some("2026-11-17T08:00:00Z".into())));
        assert_eq!(state(&window, "2026-11-17T15:00:00Z"), (false, Some("2026-11-23T08:00:00Z".into())));
    }

    #[test]
    fn a_window_may_end_on_the_next_day() {
        let window = window(&["Sat"], "22:00", "04:00", "UTC");
        assert_eq!(state(&window, "2026-11-22T03:59:59Z"), (true, Some("2026-11-22T04:00:00Z".into())));
        assert_eq!(state(&window, "2026-11-22T04:00:00Z"), (false, Some("2026-11-28T22:00:00Z".into())));
    }

    #[test]
    fn a_window_follows_daylight_saving_time() {
        // Berlin changed to summer time on 2026-03-29.
        let window = window(&["Sun", "Sat"], "09:00", "10:00", "Europe/Berlin");
        assert_eq!(state(&window, "2026-03-28T08:30:00Z"), (true, Some("2026-03-28T09:00:00Z".into())));
        assert_eq!(state(&window, "2026-03-29T07:30:00Z"), (true, Some("2026-03-29T08:00:00Z".into())));
    }

    #[test]
    fn without_windows_every_time_is_open() {
        let state = window_state(&[], Time::from_secs(0));
        assert_eq!(state, WindowState { is_open: true, changes_at: None });
    }

    #[test]
    fn an_unknown_day_time_or_zone_is_refused() {
        for (day, time, zone, error) in [
            ("Monday", "09:00", "UTC", "\"Monday\" is not one of Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
            ("Mon", "9 am", "UTC", "\"9 am\" is not a time such as 09:00"),
            ("Mon", "09:00", "Mars/Base", "\"Mars/Base\" is not a time zone such as Europe/Berlin"),
        ] {
            assert_eq!(Window::parse(&[day.into()], time, "10:00", zone), Err(error.into()));
        }
    }
}
