//! [`HeartbeatObservation`]: the time since which this controller has observed heartbeats without a gap. A node must
//! not be marked Unknown because the controller could not receive its heartbeats.

use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

/// Tracks since when heartbeats have been observed without a gap. A pause of this process, of the watches or of the API
/// server is a gap: heartbeats may have been missed, so every node gets its grace period again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HeartbeatObservation {
    /// Time since which heartbeats have been observed without a gap: the end of the last gap.
    since: Time,
    /// Time of the last call of [`Self::check_gap`], which the controller makes whenever it runs. `None` before the
    /// first call.
    last_run: Option<Time>,
    /// Time at which the controller last received a heartbeat, from any node. `None` before the first heartbeat.
    last_heartbeat: Option<Time>,
    /// Whether the API server failed to execute the last write that marks a node Unknown, and no heartbeat was received
    /// since then. An API server that cannot write may refuse heartbeats too.
    writes_fail: bool,
    /// The only node that the controller tries to mark Unknown while writes fail, to test whether writes succeed again.
    /// `None` if no node is reserved for that.
    probe: Option<Text>,
}

impl HeartbeatObservation {
    /// Returns the end of the last gap in the observation of heartbeats. A grace period is counted from this time, or
    /// from the last heartbeat of the node if that is later.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// Checks whether this process has paused since the last call, and restarts the observation on the first call and
    /// after a pause. Returns whether the clock was set back.
    ///
    /// Rule: after a pause of this process every node gets its grace period `grace` again. The process counts as paused
    /// if more than a fifth of the grace period has passed since the last call of this function, or if the clock was
    /// set back by more than that.
    pub(super) fn check_gap(&mut self, grace: Duration, now: Time) -> bool {
        let before = self.last_run.replace(now);
        let gap = grace / 5;
        let was_set_back = before.is_some_and(|it| now + gap < it);
        if was_set_back || before.is_none_or(|it| it + gap < now) {
            self.restart_observation(now);
        }
        was_set_back
    }

    /// Returns the maximum interval between two calls of [`Self::check_gap`]. A longer interval could count as a gap.
    /// `grace` is the grace period of nodes.
    pub(super) fn gap_check_interval(grace: Duration) -> Duration {
        grace / 10
    }

    /// Records that a node sent a heartbeat. If writes failed before, restarts the observation. `grace` is the grace
    /// period of nodes, and `interval` their heartbeat interval.
    ///
    /// Rule: if a heartbeat is received after no node sent one for three fifths of the grace period, every node gets
    /// its grace period again, because the nodes were not the cause of the pause. After a shorter pause, each node
    /// still has two fifths of its grace period left, which is longer than a heartbeat interval.
    ///
    /// The rule does not apply if three fifths of the grace period are at most two heartbeat intervals. If it did, and
    /// only one node were healthy, the normal time between two heartbeats of that node would count as a pause. Then the
    /// failed nodes would never become Unknown.
    pub(super) fn record_heartbeat(&mut self, grace: Duration, interval: Duration, now: Time) {
        if core::mem::take(&mut self.writes_fail) {
            self.restart_observation(now);
        }
        let before = self.last_heartbeat.replace(now);
        let silence = grace * 3 / 5;
        if interval * 2 < silence && before.is_some_and(|it| it + silence < now) {
            self.restart_observation(now);
        }
    }

    /// Records that the API server failed to execute the write that marks a node Unknown (status 5xx).
    ///
    /// Rule: an API server that cannot write, for example because its disk is full, refuses heartbeats as well. So
    /// every node gets its grace period again, now and once more when a heartbeat is received or a write succeeds.
    pub(super) fn record_write_failure(&mut self, now: Time) {
        self.writes_fail = true;
        self.probe = None;
        self.restart_observation(now);
    }

    /// Records that the write that marks a node Unknown succeeded.
    pub(super) fn record_write_success(&mut self, now: Time) {
        self.probe = None;
        if core::mem::take(&mut self.writes_fail) {
            self.restart_observation(now);
        }
    }

    /// Records that the write that marks `node` Unknown failed with an error that does not concern other nodes, such as
    /// a conflict. So another node may be tried next.
    pub(super) fn record_write_rejection(&mut self, node: &Text) {
        self.probe.take_if(|it| it == node);
    }

    /// Reserves the attempt to mark this node Unknown, and returns whether the attempt may be made now. While writes
    /// fail, only one node is tried at a time, because the other nodes can send heartbeats as soon as writes succeed
    /// again.
    pub(super) fn reserve_mark_attempt(&mut self, node: &Text) -> bool {
        !self.writes_fail || self.probe.get_or_insert_with(|| node.clone()) == node
    }

    /// Restarts the observation now, so that every node gets its grace period again.
    pub(super) fn restart_observation(&mut self, now: Time) {
        self.since = now;
    }
}
