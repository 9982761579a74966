//! The wall clock.

use jiff::Timestamp;
use muster_api::time::Time;

/// Returns the current wall-clock time.
pub(crate) fn now() -> Time {
    Time::from_micros(Timestamp::now().as_microsecond())
}
