//! Checks of commits, of delivered events and of the store, mostly of invariants with the prefix S.

use muster_api::time::Time;
use muster_engine::daemonset::facts::{Kind, Set, UpdateStrategy, WatchedObject};

use super::InvariantChecks;
use super::oracle::{self, ClusterView};
use crate::server::{SimCommit, SimServer, store_key_prefix};

impl InvariantChecks {
    /// Checks a new commit. S1: a set has at most one pod on a node. S2: an object has at most one controller. W16: the
    /// data of a revision never changes.
    pub(super) fn check_commit(&mut self, server: &SimServer, commit: &SimCommit, now: Time) {
        match (&commit.fact, commit.kind) {
            (Some(WatchedObject::Pod(pod)), _) => {
                let set = server.sets.values().find(|it| pod.owner.as_ref() == Some(&it.uid)).cloned();
                if let (Some(set), Some(node)) = (set, pod.target.clone()) {
                    self.check_one_pod_per_node(server, &set, &node, now);
                }
                self.check_owners(server, commit);
            }
            (Some(WatchedObject::Revision(revision)), _) => {
                let before = server.versions_between(
                    Kind::Revisions,
                    &commit.key,
                    0,
                    commit.revision.saturating_sub(1),
                );
                let changed = before.into_iter().flatten().any(|it| match it {
                    WatchedObject::Revision(it) => it.uid == revision.uid && it.data != revision.data,
                    _ => false,
                });
                if changed {
                    self.report_violation("W16", || format!("the data of {} has changed", revision.key));
                }
                self.check_owners(server, commit);
            }
            _ => {}
        }
    }

    /// Checks S1: a set has at most one pod on a node. With surge, it may have two active pods, if they have different
    /// revisions, and at most two terminating pods of each revision. S1 is not checked if a second pod on the node is
    /// excused.
    fn check_one_pod_per_node(
        &mut self,
        server: &SimServer,
        set: &Set,
        node: &muster_api::text::Text,
        now: Time,
    ) {
        if self.excused.contains(&(set.uid.clone(), node.clone())) || self.is_non_leader_write_excused(now) {
            return;
        }
        let view = ClusterView::current(server);
        let here: Vec<_> =
            view.pods_on(set, node).filter(|it| !oracle::is_deleted_and_finished(it)).cloned().collect();
        let has_too_many_pods = match set.rollout {
            UpdateStrategy::Surge(_) => {
                let live: Vec<_> = here.iter().filter(|it| oracle::is_active_pod(it)).collect();
                let same = live
                    .iter()
                    .any(|a| live.iter().any(|b| a.uid != b.uid && a.hash_label() == b.hash_label()));
                let leaving = here.iter().filter(|it| it.deleting);
                let has_too_many_terminating = leaving
                    .clone()
                    .any(|a| 2 < leaving.clone().filter(|b| a.hash_label() == b.hash_label()).count());
                same || 2 < live.len() || has_too_many_terminating
            }
            UpdateStrategy::Drain(_) | UpdateStrategy::OnDelete => 1 < here.len(),
        };
        if has_too_many_pods {
            let names: Vec<_> = here.iter().map(|it| it.key.name.to_string()).collect();
            self.report_violation("S1", || format!("too many pods of {} on {node}: {names:?}", set.key));
        }
    }

    /// Checks S2: an object has at most one owner reference with `controller: true`. If this owner is a DaemonSet, it
    /// is in the namespace of the object.
    fn check_owners(&mut self, server: &SimServer, commit: &SimCommit) {
        let Some(object) = server.object(commit.kind, &commit.key) else { return };
        let owners = object["metadata"]["ownerReferences"].as_array();
        let controllers: Vec<_> =
            owners.into_iter().flatten().filter(|it| it["controller"] == true).collect();
        let elsewhere = controllers.iter().any(|owner| {
            let set = server.sets.values().find(|it| owner["uid"] == *it.uid);
            set.is_some_and(|it| it.key.namespace != commit.key.namespace)
        });
        if 1 < controllers.len() || elsewhere {
            self.report_violation("S2", || format!("{} has the controllers {controllers:?}", commit.key));
        }
    }

    /// Checks S4: a watch delivers events in order and without gaps. `cursor` is the revision of the event that the
    /// watch delivered last, and `revision` is the revision of the event that it delivers now. Two injected faults are
    /// tolerated: a repetition of the last event, and an event that is replaced by a later change of the same object.
    pub fn check_delivered_event(
        &mut self,
        server: &SimServer,
        replica: usize,
        kind: Kind,
        cursor: u64,
        revision: u64,
    ) {
        let same_again = cursor == revision;
        let missed =
            server.log.iter().rev().take_while(|it| cursor < it.revision).filter(|it| it.kind == kind);
        let mut missed = missed.filter(|it| it.revision < revision);
        // An event that was replaced by a later change of the same object is not a gap.
        let key = server
            .log
            .binary_search_by_key(&revision, |it| it.revision)
            .ok()
            .map(|at| server.log[at].key.clone());
        let gap = missed.any(|it| Some(&it.key) != key.as_ref());
        if (revision < cursor && !same_again) || gap {
            self.report_violation("S4", || {
                format!(
                    "replica {replica} was at r{cursor} of {} and got r{revision}",
                    store_key_prefix(kind)
                )
            });
        }
    }

    /// Checks S4 for the store: the revision of the store is the revision of the last commit in the simulator's log.
    pub fn check_store_revision(&mut self, server: &SimServer, _now: Time) {
        let counted = server.log.last().map_or(muster_store::Store::FIRST_REVISION, |it| it.revision);
        if server.store.revision() != counted {
            self.report_violation("S4", || {
                format!("the store is at r{}, its last commit was r{counted}", server.store.revision())
            });
        }
    }
}
