//! Since when heartbeats have been observed without a gap. A node is not silent while this controller could not receive
//! its heartbeats.

use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

/// The time since which heartbeats have been observed without a gap. A pause of this process, of the watches or of the
/// API server is a gap.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HeartbeatObservation {
    since: Time,
    last_run: Option<Time>,
    /// Time of the last heartbeat of any node.
    last_heartbeat: Option<Time>,
    /// Whether the API server failed to execute one of our writes, and no heartbeat was received since: it may refuse
    /// heartbeats too.
    writes_fail: bool,
    /// While writes fail, the node whose write tests whether they succeed again.
    probe: Option<Text>,
}

impl HeartbeatObservation {
    /// The time from which on missing heartbeats count.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// Rule: after a gap of this process every node gets its grace period again. It is a gap if the controller did not
    /// run for a fifth of the grace period, because the process was stopped or the clock was set. Returns whether the
    /// clock was set back.
    pub(super) fn check_gap(&mut self, grace: Duration, now: Time) -> bool {
        let before = self.last_run.replace(now);
        let gap = grace / 5;
        let was_set_back = before.is_some_and(|it| now + gap < it);
        if was_set_back || before.is_none_or(|it| it + gap < now) {
            self.restart_observation(now);
        }
        was_set_back
    }

    /// How often [`Self::check_gap`] must be called.
    pub(super) fn check_interval(grace: Duration) -> Duration {
        grace / 10
    }

    /// Records that a node sent a heartbeat.
    ///
    /// Rule: if no node sent a heartbeat for three fifths of the grace period and then one does, the fault was not the
    /// nodes': every node gets its grace period again. The remaining two fifths are longer than a heartbeat interval.
    /// If three fifths are not longer than two heartbeat intervals, the rule does not apply: a single healthy node
    /// would pause that long between any two heartbeats, and the failed nodes would never become Unknown.
    pub(super) fn heartbeat(&mut self, grace: Duration, interval: Duration, now: Time) {
        if core::mem::take(&mut self.writes_fail) {
            self.restart_observation(now);
        }
        let before = self.last_heartbeat.replace(now);
        let silence = grace * 3 / 5;
        if interval * 2 < silence && before.is_some_and(|it| it + silence < now) {
            self.restart_observation(now);
        }
    }

    /// Records that the API server failed to execute a write.
    ///
    /// Rule: an API server that cannot write, as on a full disk, refuses heartbeats as well: every node gets its grace
    /// period again, and once more when a heartbeat is received or a write succeeds.
    pub(super) fn write_failed(&mut self, now: Time) {
        self.writes_fail = true;
        self.probe = None;
        self.restart_observation(now);
    }

    /// Records that a write succeeded which marked a node Unknown.
    pub(super) fn write_succeeded(&mut self, now: Time) {
        self.probe = None;
        if core::mem::take(&mut self.writes_fail) {
            self.restart_observation(now);
        }
    }

    /// Records that the write about the node failed for a reason that does not concern other writes, such as a
    /// conflict.
    pub(super) fn write_rejected(&mut self, node: &Text) {
        self.probe.take_if(|it| it == node);
    }

    /// Whether the node may be marked Unknown now. While writes fail, only one node is attempted at a time: as soon as
    /// its write succeeds, the others can send heartbeats again.
    pub(super) fn may_mark_unknown(&mut self, node: &Text) -> bool {
        !self.writes_fail || self.probe.get_or_insert_with(|| node.clone()) == node
    }

    /// Restarts the observation: every node gets its grace period again.
    pub(super) fn restart_observation(&mut self, now: Time) {
        self.since = now;
    }
}
