//! Whether we have listened: a node that we could not hear is not silent.

use core::time::Duration;

use crate::time::Time;

/// When we began to listen, and whether we ever stopped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listening {
    since: Time,
    awake_at: Option<Time>,
    /// When any node was last heard of.
    voice_at: Option<Time>,
}

impl Listening {
    /// No silence counts that began before.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// Rule: after a gap of our own every node has its grace anew. It is a gap when we were not asked for a fifth of
    /// the grace period, as when the process was stopped or the clock was set; says whether the clock was set back.
    pub(super) fn awake(&mut self, grace: Duration, now: Time) -> bool {
        let before = self.awake_at.replace(now);
        let gap = grace / 5;
        let is_back = before.is_some_and(|it| now + gap < it);
        if is_back || before.is_none_or(|it| it + gap < now) {
            self.anew(now);
        }
        is_back
    }

    /// How often we must be asked, so that not to be asked is a gap.
    pub(super) fn pulse(grace: Duration) -> Duration {
        grace / 10
    }

    /// Rule: where no node at all was heard of for three fifths of the grace period and then one is, it was we who
    /// could not hear, and every node has its grace anew. What is left of the grace is more than the time between two
    /// heartbeats. Where so short a silence is not longer than two heartbeats it says nothing: the only node that is left
    /// would be silent so long each time, and the lost ones would never be seen to be lost.
    pub(super) fn hear(&mut self, grace: Duration, heartbeat: Duration, now: Time) {
        let before = self.voice_at.replace(now);
        let silence = grace * 3 / 5;
        if heartbeat * 2 < silence && before.is_some_and(|it| it + silence < now) {
            self.anew(now);
        }
    }

    pub(super) fn anew(&mut self, now: Time) {
        self.since = now;
    }
}
