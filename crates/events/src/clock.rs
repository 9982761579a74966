//! The wall clock.

use jiff::Timestamp;
use muster_api::time::Time;

/// Returns the current time of the wall clock.
pub fn now() -> Time {
    Timestamp::now().into()
}
