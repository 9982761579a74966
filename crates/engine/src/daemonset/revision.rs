//! Which revision is current, when to make one, and which are pruned.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use crate::daemonset::facts::{GENERATION_LABEL, Pod, Revision, Set};
use crate::daemonset::manifest;
use crate::hash_ordered_map;

/// The current revision, as far as pods are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Current {
    /// The label of new pods.
    pub(crate) hash: Text,
    /// Labels of every revision that means the same: their pods are up to date too.
    same: BTreeSet<Text>,
    generation: Option<Text>,
    /// When the set was made.
    set_made_at: Time,
    /// When it was made: it became current then, or later if it was rolled back to.
    pub(crate) made_at: Option<Time>,
}

impl Current {
    /// Rule: a pod is new if its revision means what the template means, or if it carries the template generation that
    /// the set is annotated with (the API server raises it with every change of the template). A pod that is older than
    /// the set has its generation from another one, so that says nothing. There is no other notion of new. Upstream:
    /// `IsPodUpdated`.
    pub(crate) fn is_new(&self, pod: &Pod) -> bool {
        pod.hash().is_some_and(|it| self.same.contains(it))
            || self.set_made_at <= pod.created
                && self.generation.as_ref().is_some_and(|it| pod.labels.get(GENERATION_LABEL) == Some(it))
    }

    /// Rule: nodes are updated in the order of this number, the same every time for one revision, another for the next:
    /// spread over racks and zones, and not always the same victims first.
    pub(crate) fn order(&self, node: &str) -> u64 {
        hash_ordered_map::hash_pair(&self.hash, node)
    }
}

/// What is to be done about the history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
    /// Known once the history holds a revision of the template; pods are made from then on.
    pub(crate) current: Option<Current>,
    /// Revisions that may go, fewest numbers first, unless a pod still carries them.
    pub(crate) prunable: Vec<Arc<Revision>>,
    /// How many of them are too many.
    pub(crate) too_many: usize,
    /// Byte-equal duplicates of the current revision: their pods are relabelled, then they go.
    pub(crate) folded: Vec<Arc<Revision>>,
    pub(crate) again_at: Option<Time>,
}

/// One write to the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Record the template.
    Create { name: Text, hash: Text, number: i64 },
    /// The template went back to this revision, so it is the newest again.
    Renumber { revision: Arc<Revision>, number: i64 },
    /// Upstream gives a revision without the hash label its own name.
    Label { revision: Arc<Revision> },
}

/// How long two byte-equal revisions are left alone, whichever of them is the younger: whoever made one by hand may be
/// about to delete the other, which Kubernetes' conformance tests do.
const FOLD_AFTER: Duration = Duration::from_secs(60);

/// Rule: the current revision is the one that means what the template means: one with the very bytes before others, the
/// highest number before lower ones. There is none: one is made. It always has the highest number.
/// Upstream: `constructHistory`; ours compares meaning, so that a field defaulted by a newer API server restarts nothing.
pub(crate) fn history(set: &Set, owned: &[Arc<Revision>], now: Time) -> History {
    let present: Vec<&Arc<Revision>> = owned.iter().filter(|it| !it.deleting).collect();
    let unlabelled: Vec<Step> = present
        .iter()
        .filter(|it| it.hash().is_none())
        .map(|it| Step::Label { revision: Arc::clone(it) })
        .collect();
    if !unlabelled.is_empty() {
        return History { steps: unlabelled, ..History::default() };
    }
    let same = |it: &Revision| it.data == set.template.data || it.meaning == Some(set.template.meaning);
    // One that is on its way out but held by a finalizer still names what pods run; a new one could not take its name.
    let rank = |it: &Revision| (!it.deleting, it.data == set.template.data, it.number, it.key.name.clone());
    let current = owned.iter().filter(|it| same(it) && it.hash().is_some()).max_by_key(|it| rank(it));
    let Some(current) = current else {
        return History { steps: [create(set, owned, None)].into(), ..History::default() };
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
    let number = next_number(others);
    let step = if respelt(set, current) {
        Some(create(set, owned, current.hash()))
    } else {
        (current.number < number && !current.deleting)
            .then(|| Step::Renumber { revision: Arc::clone(current), number })
    };
    let twins_since = |it: &Revision| it.created.max(current.created);
    let (folded, young): (Vec<_>, Vec<_>) =
        duplicates.into_iter().partition(|it| twins_since(it) + FOLD_AFTER <= now);
    let means_the_same = owned.iter().filter(|it| same(it)).filter_map(|it| it.hash().cloned());
    History {
        steps: step.into_iter().collect(),
        current: Some(Current {
            hash: current.hash().cloned().unwrap_or_else(|| current.key.name.clone()),
            same: means_the_same.collect(),
            generation: set.template_generation.map(|it| Text::from(format!("{it}"))),
            set_made_at: set.created,
            made_at: Some(current.created),
        }),
        too_many: old.len().saturating_sub(set.history_max),
        prunable: old,
        folded,
        again_at: young.iter().fold(None, |at, it| earliest(at, Some(twins_since(it) + FOLD_AFTER))),
    }
}

/// Rule: numbers go up and are never used again, not even one whose revision is on its way out.
fn next_number<'a>(others: impl Iterator<Item = &'a Arc<Revision>>) -> i64 {
    others.map(|it| it.number).max().unwrap_or(0).max(0).saturating_add(1)
}

/// Rule: a template that somebody spelt anew, without a change of meaning, is recorded with the label of the revision it
/// equals: its pods are up to date, for us and for upstream, which compares bytes and would restart them all when it takes
/// over. Nobody spelt it anew where the template generation is the one the revision was made at: an API server that
/// fills in more than before does not raise it, and upstream takes the pods for new by it.
fn respelt(set: &Set, current: &Revision) -> bool {
    let generations = set.template_generation.zip(current.template_generation);
    current.data != set.template.data && generations.is_some_and(|(now, then)| now != then)
}

/// Labelled like its pods: by its own hash, unless there are pods of that meaning already.
fn create(set: &Set, owned: &[Arc<Revision>], label: Option<&Text>) -> Step {
    let template = serde_json::from_str(&set.template.raw).unwrap_or_default();
    let hash = manifest::revision_hash(&template, set.status.collisions);
    let name = format!("{}-{hash}", set.key.name).into();
    Step::Create {
        name,
        hash: label.cloned().unwrap_or_else(|| hash.into()),
        number: next_number(owned.iter()),
    }
}
