//! Determines the current ControllerRevision of a DaemonSet, and which revisions to create, label, renumber and prune.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use crate::daemonset::facts::{Pod, Revision, Set, TEMPLATE_GENERATION_LABEL};
use crate::daemonset::manifest;
use crate::daemonset::progressive::verdict::RevisionVerdict;
use crate::hash_ordered_map;

/// The revision that the pods of a node should have: the current revision of the DaemonSet or, in a progressive
/// rollout, its stable revision. The target revision decides which pods are up to date.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TargetRevision {
    /// Value of the `controller-revision-hash` label on new pods.
    pub(crate) hash: Text,
    /// `controller-revision-hash` values of all revisions with an equivalent template. Pods of these revisions are up
    /// to date too.
    equivalent: BTreeSet<Text>,
    /// Value of the template generation label of up-to-date pods. For the current revision, it is the value of the
    /// DaemonSet's annotation. For an older revision, it is the value with which that revision was recorded. `None` if
    /// there is no such value, or if the value of an older revision is also that of the annotation.
    pub(crate) generation: Option<Text>,
    /// Creation time of the DaemonSet.
    set_created: Time,
    /// Creation time of the ControllerRevision. If a rollback made the revision current again, this time is long before
    /// the start of the rollout. Always set.
    pub(crate) created: Option<Time>,
    /// The ControllerRevision that records the template of the pods.
    pub(crate) revision: Arc<Revision>,
}

impl TargetRevision {
    /// Creates the target for nodes that keep an older revision of a DaemonSet. `owned` are all revisions of the
    /// DaemonSet.
    ///
    /// Rule: pods of an older revision get the template generation with which that revision was recorded. Exception: if
    /// that is the DaemonSet's present template generation, the pods get no template generation label, because with the
    /// label they would count as pods of the current revision.
    pub(crate) fn of_revision(set: &Set, revision: &Arc<Revision>, owned: &[Arc<Revision>]) -> Self {
        let is_equivalent = |it: &Revision| {
            it.data == revision.data || (it.identity.is_some() && it.identity == revision.identity)
        };
        let generation = revision.template_generation.filter(|it| Some(*it) != set.template_generation);
        Self {
            hash: revision.hash_label().cloned().unwrap_or_else(|| revision.key.name.clone()),
            equivalent: owned
                .iter()
                .filter(|it| is_equivalent(it))
                .filter_map(|it| it.hash_label().cloned())
                .collect(),
            generation: generation.map(|it| Text::from(format!("{it}"))),
            set_created: set.created,
            created: Some(revision.created),
            revision: Arc::clone(revision),
        }
    }

    /// Whether the revision with this hash label has a template that is equivalent to that of the target revision, so
    /// that pods with this label are up to date.
    pub(crate) fn is_equivalent(&self, hash: &Text) -> bool {
        self.equivalent.contains(hash)
    }

    /// Whether a pod is up to date with regard to this revision.
    ///
    /// Rule: a pod is up to date if its revision has a template equivalent to that of the target revision, or if its
    /// template generation label has the template generation of the target revision. The template generation of the
    /// current revision is the value of the DaemonSet's annotation, which the API server increments with every change
    /// of the template. The generation label of a pod that is older than the DaemonSet is ignored, because another
    /// DaemonSet created that pod. Upstream: `IsPodUpdated`.
    pub(crate) fn is_up_to_date(&self, pod: &Pod) -> bool {
        pod.hash_label().is_some_and(|it| self.equivalent.contains(it))
            || self.set_created <= pod.created
                && self
                    .generation
                    .as_ref()
                    .is_some_and(|it| pod.labels.get(TEMPLATE_GENERATION_LABEL) == Some(it))
    }

    /// Returns the sort key of a node in the order of the rolling update.
    ///
    /// Rule: a rolling update visits nodes in ascending order of a hash of revision and node name. The order is the
    /// same during the whole update to one revision, and differs between revisions. So updates spread over racks and
    /// zones, and do not always begin with the same nodes.
    pub(crate) fn update_order(&self, node: &str) -> u64 {
        hash_ordered_map::hash_pair(&self.hash, node)
    }
}

/// The current revision of a DaemonSet, the revisions that may be deleted, and the writes of revisions that are needed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RevisionHistory {
    /// Writes of ControllerRevisions, which precede the writes of pods.
    pub(crate) writes: Vec<RevisionWrite>,
    /// The current revision. `None` until a revision records the template and all revisions that are not terminating
    /// have a hash label. Until then no pod is created.
    pub(crate) current: Option<TargetRevision>,
    /// Revisions other than the current one and its duplicates that are not terminating, lowest revision number first.
    /// They are the candidates for deletion. Exception: a revision whose hash label a pod still has is kept.
    pub(crate) prunable: Vec<Arc<Revision>>,
    /// Number of revisions in `prunable` that exceed `revisionHistoryLimit`.
    pub(crate) excess: usize,
    /// Byte-equal duplicates of the current revision that are old enough to be deleted. Their pods are relabelled, then
    /// the duplicates are deleted.
    pub(crate) duplicates: Vec<Arc<Revision>>,
    /// Time at which the next duplicate is old enough to be deleted. `None` if no duplicate is too young.
    pub(crate) recheck_at: Option<Time>,
}

/// A write of one ControllerRevision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RevisionWrite {
    /// Create a ControllerRevision with this name, hash label and revision number for the template.
    Create { name: Text, hash: Text, number: i64 },
    /// Give the current revision the highest revision number, for example because the template was rolled back to that
    /// revision.
    Renumber { revision: Arc<Revision>, number: i64 },
    /// Set the missing hash label of a revision to the revision's name, as upstream does.
    Label { revision: Arc<Revision> },
    /// Store the verdict of a progressive rollout about this revision, or remove the stored verdict if `verdict` is
    /// `None`.
    StoreVerdict { revision: Arc<Revision>, verdict: Option<RevisionVerdict>, reason: &'static str, at: Time },
}

/// Minimum age of the younger of two byte-equal revisions before one of them is deleted. A user who created one of the
/// revisions may be about to delete the other, as the Kubernetes conformance tests do.
const DEDUP_AGE_MIN: Duration = Duration::from_secs(60);

/// Determines the revision history of a DaemonSet from the ControllerRevisions that it owns.
///
/// Rule: the revision history is determined in these steps:
///
/// 1. Revisions without a hash label get one, and the other steps wait until then. Terminating revisions are ignored
///    in this step.
/// 2. The current revision is the revision whose template is equivalent to the DaemonSet's template. Of several such
///    revisions, one that is not terminating has precedence over a terminating one, then a byte-equal one over one that
///    is only equivalent, then one with a higher revision number.
/// 3. If there is no current revision, one is created.
/// 4. If a user changed the bytes of the template, but not its meaning, a new revision is created (see
///    [`was_template_edited`]). Otherwise the current revision gets the highest number, unless it is terminating.
///
/// Upstream: `constructHistory`. Upstream compares bytes. This controller compares normalized templates, so that a
/// field defaulted by a newer API server restarts no pod.
pub(crate) fn revision_history(set: &Set, owned: &[Arc<Revision>], now: Time) -> RevisionHistory {
    let present: Vec<&Arc<Revision>> = owned.iter().filter(|it| !it.deleting).collect();
    let unlabelled: Vec<RevisionWrite> = present
        .iter()
        .filter(|it| it.hash_label().is_none())
        .map(|it| RevisionWrite::Label { revision: Arc::clone(it) })
        .collect();
    if !unlabelled.is_empty() {
        return RevisionHistory { writes: unlabelled, ..RevisionHistory::default() };
    }
    let is_equivalent =
        |it: &Revision| it.data == set.template.data || it.identity == Some(set.template.identity);
    // A terminating revision that a finalizer holds can still be current: pods have its hash, and a new revision could
    // not have its name.
    let rank = |it: &Revision| (!it.deleting, it.data == set.template.data, it.number, it.key.name.clone());
    let current =
        owned.iter().filter(|it| is_equivalent(it) && it.hash_label().is_some()).max_by_key(|it| rank(it));
    let Some(current) = current else {
        return RevisionHistory {
            writes: [new_revision_write(set, owned, None)].into(),
            ..RevisionHistory::default()
        };
    };
    let duplicates: Vec<Arc<Revision>> = present
        .iter()
        .filter(|it| it.uid != current.uid && it.data == current.data)
        .map(|it| Arc::clone(it))
        .collect();
    let mut old: Vec<Arc<Revision>> = present
        .iter()
        .filter(|it| it.uid != current.uid && it.data != current.data)
        .map(|it| Arc::clone(it))
        .collect();
    old.sort_by_key(|it| (it.number, it.key.name.clone()));
    let others = owned.iter().filter(|it| it.uid != current.uid && (it.data != current.data || it.deleting));
    let number = next_revision_number(others);
    let write = if was_template_edited(set, current) {
        Some(new_revision_write(set, owned, current.hash_label()))
    } else {
        (current.number < number && !current.deleting)
            .then(|| RevisionWrite::Renumber { revision: Arc::clone(current), number })
    };
    let duplicate_since = |it: &Revision| it.created.max(current.created);
    let (duplicates, young): (Vec<_>, Vec<_>) =
        duplicates.into_iter().partition(|it| duplicate_since(it) + DEDUP_AGE_MIN <= now);
    let equivalent_hashes =
        owned.iter().filter(|it| is_equivalent(it)).filter_map(|it| it.hash_label().cloned());
    RevisionHistory {
        writes: write.into_iter().collect(),
        current: Some(TargetRevision {
            hash: current.hash_label().cloned().unwrap_or_else(|| current.key.name.clone()),
            equivalent: equivalent_hashes.collect(),
            generation: set.template_generation.map(|it| Text::from(format!("{it}"))),
            set_created: set.created,
            created: Some(current.created),
            revision: Arc::clone(current),
        }),
        excess: old.len().saturating_sub(set.history_max),
        prunable: old,
        duplicates,
        recheck_at: young.iter().fold(None, |at, it| earliest(at, Some(duplicate_since(it) + DEDUP_AGE_MIN))),
    }
}

/// Returns the number of the next revision: one more than the highest number of `others`, and at least 1.
///
/// Rule: a new revision number is higher than all existing ones, including those of terminating revisions.
fn next_revision_number<'a>(others: impl Iterator<Item = &'a Arc<Revision>>) -> i64 {
    others.map(|it| it.number).max().unwrap_or(0).max(0).saturating_add(1)
}

/// Whether a user edited the DaemonSet's template since `current` was recorded: both the bytes of the template and the
/// template generation differ from those of `current`. `false` if one of the template generations is not known. The
/// caller has checked that the two templates are equivalent.
///
/// Rule: after such an edit, the template is recorded as a new revision that has the hash label of `current`.
/// Upstream's controller looks for a revision with exactly the bytes of the template, and compares the hash label of
/// that revision with the hash labels of the pods. It finds the new revision, so it restarts no pod when it takes over.
/// An API server that only sets more defaults changes the bytes, but not the template generation. Then no revision is
/// needed, because upstream's controller accepts the pods by their template generation.
fn was_template_edited(set: &Set, current: &Revision) -> bool {
    let generations = set.template_generation.zip(current.template_generation);
    current.data != set.template.data && generations.is_some_and(|(now, then)| now != then)
}

/// Returns the write that creates a revision for the DaemonSet's template. `owned` are all revisions of the DaemonSet.
/// `label` is the hash label of an equivalent revision, which the new revision gets too. If `label` is `None`, the hash
/// in the name of the new revision becomes its hash label.
fn new_revision_write(set: &Set, owned: &[Arc<Revision>], label: Option<&Text>) -> RevisionWrite {
    let template = serde_json::from_str(&set.template.raw).unwrap_or_default();
    let hash = manifest::revision_hash(&template, set.status.collisions);
    let name = format!("{}-{hash}", set.key.name).into();
    RevisionWrite::Create {
        name,
        hash: label.cloned().unwrap_or_else(|| hash.into()),
        number: next_revision_number(owned.iter()),
    }
}
