//! Whether we have listened: a node that we could not hear is not silent.

use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

/// When we began to listen, and whether we ever stopped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listening {
    since: Time,
    awake_at: Option<Time>,
    /// When any node was last heard of.
    voice_at: Option<Time>,
    /// The API server failed to carry out a write of ours, and no node was heard of since: it may refuse heartbeats too.
    is_refused: bool,
    /// The node whose write shows whether it still does.
    probe: Option<Text>,
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
        if core::mem::take(&mut self.is_refused) {
            self.anew(now);
        }
        let before = self.voice_at.replace(now);
        let silence = grace * 3 / 5;
        if heartbeat * 2 < silence && before.is_some_and(|it| it + silence < now) {
            self.anew(now);
        }
    }

    /// Rule: when the API server fails to carry out a write, as on a full disk, it refuses heartbeats as well: every node's grace
    /// starts again, and again when a node is heard of or a write succeeds.
    pub(super) fn refused(&mut self, now: Time) {
        self.is_refused = true;
        self.probe = None;
        self.anew(now);
    }

    /// A node was marked as lost.
    pub(super) fn written(&mut self, now: Time) {
        self.probe = None;
        if core::mem::take(&mut self.is_refused) {
            self.anew(now);
        }
    }

    /// The write about the node came to nothing for another reason.
    pub(super) fn not_written(&mut self, node: &Text) {
        self.probe.take_if(|it| it == node);
    }

    /// Whether a node may be marked as lost now: while writes may be refused, one at a time, for those after it may be able to
    /// speak again as soon as it succeeds.
    pub(super) fn may_doubt(&mut self, node: &Text) -> bool {
        !self.is_refused || self.probe.get_or_insert_with(|| node.clone()) == node
    }

    pub(super) fn anew(&mut self, now: Time) {
        self.since = now;
    }
}
