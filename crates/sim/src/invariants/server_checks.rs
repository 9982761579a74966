//! Checks of reads, watches and writes in a cluster with two API servers: the invariants S17 to S19 of ARCHITECTURE.md.

use muster_engine::daemonset::facts::Kind;
use muster_store::KeyChange;

use super::InvariantChecks;
use crate::server::{Actor, SimCommit, SimServer};

impl InvariantChecks {
    /// Records that the lagging server has acknowledged the write with the revision `written`. Checks S17: the state of
    /// the server, which has the revision `published`, contains the write.
    pub fn on_write_acknowledged(&mut self, written: u64, published: u64) {
        self.acknowledged_revision = self.acknowledged_revision.max(written);
        if published < written {
            self.report_violation("S17", || {
                format!("the write r{written} is acknowledged by a server that shows r{published}")
            });
        }
    }

    /// Checks S17: a request is handled in a state that contains every write that was acknowledged before the request.
    /// `acknowledged` is the highest revision that was acknowledged when the request arrived, and `served` is the
    /// revision of the state.
    pub fn check_fresh_state(&mut self, acknowledged: u64, served: u64) {
        if served < acknowledged {
            self.report_violation("S17", || {
                format!("a request sees r{served}, although r{acknowledged} was acknowledged before it")
            });
        }
    }

    /// Checks S18 for a list: the list is not older than the client has asked for. `wanted` is the lowest revision that
    /// the list may have, and `listed` is the revision that it has.
    pub fn check_list(&mut self, client: Actor, kind: Kind, wanted: u64, listed: u64) {
        if listed < wanted {
            self.report_violation("S18", || {
                format!("{client:?} lists {kind:?} at r{listed}, and asked for r{wanted} or later")
            });
        }
    }

    /// Records that a client lists a kind at a revision, from which the client then watches the kind.
    pub fn on_list(&mut self, client: Actor, kind: Kind, revision: u64) {
        self.watch_positions.insert((client, kind), revision);
    }

    /// Checks S18 for a watch: an event or a bookmark is not older than any that the watch has delivered before, on
    /// either server. Records `revision`, the revision of the event or bookmark.
    pub fn check_watch_position(&mut self, client: Actor, kind: Kind, revision: u64) {
        let position = self.watch_positions.entry((client, kind)).or_default();
        let before = *position;
        *position = before.max(revision);
        if revision < before {
            self.report_violation("S18", || {
                format!("the watch of {kind:?} of {client:?} goes back from r{before} to r{revision}")
            });
        }
    }

    /// Checks S19 for a commit of the lagging server: the write is based on the newest version of the object in the
    /// store. A commit of the current server is not checked, but recorded as acknowledged.
    pub(super) fn check_base_of_write(&mut self, server: &SimServer, commit: &SimCommit) {
        let Some(based_on) = commit.based_on else {
            self.acknowledged_revision = self.acknowledged_revision.max(commit.revision);
            return;
        };
        let event = server.store.commits_since("", commit.revision - 1).ok().and_then(|mut it| it.next());
        let before = event.and_then(|it| match &it.change {
            KeyChange::Put { before, .. } => before.as_ref(),
            KeyChange::Delete { before, .. } => Some(before),
        });
        let newest = before.map_or(0, |it| it.modified);
        if newest != based_on {
            self.report_violation("S19", || {
                format!(
                    "the write r{} of {} is based on r{based_on}, not on r{newest}",
                    commit.revision, commit.key
                )
            });
        }
    }
}
