//! One call at a time about each object, and when the next one may follow.

use alloc::borrow::Cow;
use core::time::Duration;

use muster_api::time::Time;
use serde::Deserialize;

use crate::controller::Outcome;
use crate::daemonset::execution::Refusal;

/// A write that has not come back by then is tried again, which changes nothing if it was done.
pub(crate) const WRITE_SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// First wait after a refusal, and the longest; doubled in between.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What became of the last call about an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Attempt {
    #[default]
    None,
    UnderWay {
        refused: u32,
    },
    /// The watch has not shown it yet.
    Done {
        version: u64,
        again_at: Time,
    },
    Refused {
        times: u32,
        again_at: Time,
    },
}

/// Whether a call may be made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Now,
    /// When the one under way has come back.
    Later,
    At(Time),
}

impl Attempt {
    /// `version` is the object's, as the watch shows it. A wait that is longer than any is one that began before the clock was
    /// set back: it is over.
    pub(crate) fn turn(self, version: u64, now: Time) -> Turn {
        let waits = |until: Time| now < until && until <= now + RETRY_MAX;
        match self {
            Self::UnderWay { .. } => Turn::Later,
            Self::Done { version: written, again_at } if version < written && waits(again_at) => {
                Turn::At(again_at)
            }
            Self::Refused { again_at, .. } if waits(again_at) => Turn::At(again_at),
            Self::None | Self::Done { .. } | Self::Refused { .. } => Turn::Now,
        }
    }

    pub(crate) fn begin(&mut self) {
        let refused = if let Self::Refused { times, .. } = self { *times } else { 0 };
        *self = Self::UnderWay { refused };
    }

    /// Something was written on `version`: nothing more follows before the watch has shown it. What is not there any more
    /// is as good as written.
    pub(crate) fn wrote(&mut self, version: u64, outcome: &Outcome, now: Time) {
        match outcome {
            Outcome::Done(answer) => {
                self.shown_by(version_of(answer).unwrap_or(version.saturating_add(1)), now)
            }
            Outcome::Refused(Refusal::NotFound) => self.shown_by(version.saturating_add(1), now),
            Outcome::Refused(refusal) => self.refuse(refusal, now),
        }
    }

    /// Something was written that the watch shows with `version`.
    pub(crate) fn shown_by(&mut self, version: u64, now: Time) {
        *self = Self::Done { version, again_at: now + WRITE_SHOWN_WITHIN };
    }

    /// Rule: a refused call is made again after a wait that doubles each time.
    pub(crate) fn refuse(&mut self, refusal: &Refusal, now: Time) {
        let before = match self {
            Self::UnderWay { refused: times } | Self::Refused { times, .. } => *times,
            Self::None | Self::Done { .. } => 0,
        };
        let wait = (RETRY_MIN * 2_u32.saturating_pow(before.min(16))).min(RETRY_MAX);
        let wait = wait.max(refusal.asks_to_wait());
        *self = Self::Refused { times: before.saturating_add(1), again_at: now + wait };
    }
}

/// The version of the object in an answer, if it is one.
fn version_of(answer: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta<'a> {
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
    }
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    answer.metadata.resource_version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_makes_no_wait_longer() {
        let (now, hour) = (Time::from_secs(1_000_000), Duration::from_secs(3600));
        let mut refused = Attempt::default();
        refused.refuse(&Refusal::NoAnswer, now);
        let mut done = Attempt::default();
        done.shown_by(5, now);
        for (attempt, until) in [(refused, now + RETRY_MIN), (done, now + WRITE_SHOWN_WITHIN)] {
            assert_eq!(attempt.turn(4, now), Turn::At(until));
            assert_eq!(attempt.turn(4, until), Turn::Now);
            assert_eq!(attempt.turn(4, now - hour), Turn::Now);
        }
    }
}
