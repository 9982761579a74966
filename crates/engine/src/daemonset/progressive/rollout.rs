//! The progressive rollout of one DaemonSet: its policy and its DaemonRollout, the current and the stable revision, and
//! the revision that each node is assigned.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::text::Text;
use muster_api::time::Time;

use super::analysis::{self, NodeHealth};
use super::counts::NodeProgress;
use super::membership::{AssignedRevision, Candidate, MembershipInput, MembershipScope, RolloutMembership};
use super::phase::admitted_if_created_after;
use super::policy::{Policy, PolicySpec, ReplaceMethod, Step};
use super::record::{ALL_STEPS, Phase, RevisionReference, RolloutRecord, RolloutStatus};
use super::verdict::{RevisionVerdict, RevisionWithVerdict};
use crate::daemonset::facts::decode::decode_revision_template;
use crate::daemonset::facts::{Node, Pod, Revision, Set, Template, UpdateStrategy};
use crate::daemonset::placement::{self, Verdict};
use crate::daemonset::revision::TargetRevision;
use crate::daemonset::status::check_availability;

/// The progressive rollout of one DaemonSet. A DaemonSet has one if a policy selects it, if it has a DaemonRollout, if
/// its current revision has the verdict `Bad`, or if the API server forbids the controller to read policies or
/// DaemonRollouts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProgressiveRollout {
    /// The policy that governs the DaemonSet. `None` if no policy selects it.
    pub(crate) policy: Option<Arc<Policy>>,
    /// The DaemonRollout. `None` if it does not exist yet.
    pub(crate) record: Option<Arc<RolloutRecord>>,
    /// Whether the DaemonRollout of a deleted DaemonSet of the same name still exists. While it exists, no
    /// DaemonRollout can be created for this DaemonSet.
    pub(crate) has_stale_record: bool,
    /// The current revision: the one that records the DaemonSet's template.
    pub(crate) current: RevisionWithVerdict,
    /// The stable revision. `None` if no existing revision with the verdict `Good` has a template that can be decoded.
    pub(crate) stable: Option<StableRevision>,
    /// All ControllerRevisions of the DaemonSet.
    pub(crate) revisions: Vec<Arc<Revision>>,
    /// Hash labels of the revisions with the verdict `Good`.
    good: BTreeSet<Text>,
    /// Decides which nodes are assigned the current revision.
    membership: RolloutMembership,
    /// The step of the policy that the stored status names. `None` if the status names no step or is about another
    /// revision, if the policy no longer has that step, if all nodes are admitted at once, or if the rollout is frozen.
    pub(crate) step: Option<Step>,
    /// Why the rollout is frozen. `None` if it is not frozen. While a rollout is frozen, it replaces no outdated pods,
    /// and neither its DaemonRollout nor a verdict is written.
    pub(crate) frozen: Option<FreezeReason>,
    /// Whether the controller runs in assist mode, in which upstream's controller creates the pods.
    pub(crate) is_assisting: bool,
}

/// Why a rollout is frozen: it replaces no outdated pods, whatever the policy of the DaemonSet says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FreezeReason {
    /// The API server forbids the controller to read policies or DaemonRollouts.
    KindsForbidden,
    /// This version of the controller cannot decode the DaemonRollout. The text is the error.
    UnreadableRecord(Text),
    /// The current revision has the verdict `Bad`, and the DaemonSet has neither a policy nor a DaemonRollout.
    KnownBad,
    /// In assist mode, the update strategy is not `OnDelete`, so upstream's controller replaces the pods itself.
    NotOnDelete,
}

/// Message about a DaemonSet that assist mode does not roll out, because its update strategy is not `OnDelete`.
pub const NOT_ON_DELETE_MESSAGE: &str = "kube-controller-manager replaces the pods: set spec.updateStrategy.type to \
                                         OnDelete, or run the controller without --assist";

impl FreezeReason {
    /// Returns the `reason` of the conditions that report the frozen rollout, in CamelCase.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::KindsForbidden => "RolloutsForbidden",
            Self::UnreadableRecord(_) => "UnknownDaemonRollout",
            Self::KnownBad => "KnownBad",
            Self::NotOnDelete => "NotOnDelete",
        }
    }

    /// Returns the `message` of the conditions that report the frozen rollout: the problem, and what to do about it.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::KindsForbidden => {
                "the controller's role must grant it the verbs list and watch on the kinds of muster.dev"
            }
            Self::UnreadableRecord(problem) => problem,
            Self::KnownBad => "the revision failed before: retry it, or change the template",
            Self::NotOnDelete => NOT_ON_DELETE_MESSAGE,
        }
    }
}

/// The stable revision, with its template. Unless the controller runs in assist mode, the pods of nodes that are
/// assigned the stable revision are created from this template, and the template decides which of these nodes run a
/// pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StableRevision {
    pub(crate) judged: RevisionWithVerdict,
    pub(crate) target: TargetRevision,
    pub(crate) template: Arc<Template>,
}

/// How the rolling update treats outdated pods on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpdateMode {
    /// There is no progressive rollout. Outdated pods are replaced as the update strategy demands.
    Plain,
    /// Outdated pods are replaced when the phase of the rollout allows it.
    Progressive,
    /// Outdated pods are not replaced.
    Hold,
}

/// The revision that a node is assigned, and how the rolling update treats the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeTarget<'a> {
    pub(crate) assigned: AssignedRevision,
    pub(crate) revision: &'a TargetRevision,
    pub(crate) template: &'a Template,
    pub(crate) mode: UpdateMode,
}

impl ProgressiveRollout {
    /// Builds the progressive rollout of a DaemonSet. `None` if the DaemonSet has no progressive rollout. `owned` are
    /// the revisions of the DaemonSet. `stored` is the DaemonRollout with the DaemonSet's name. `is_forbidden` is
    /// whether the API server forbids the controller to read policies or DaemonRollouts. In assist mode, `assisted` is
    /// the update strategy in the spec of the DaemonSet. Outside assist mode, `assisted` is `None`.
    ///
    /// Rule: a DaemonSet is rolled out by its update strategy alone if it has no policy and no DaemonRollout, and its
    /// current revision does not have the verdict `Bad`. If the API server forbids the controller to read policies or
    /// DaemonRollouts, they may still exist, so no outdated pod is replaced. In assist mode no outdated pod is replaced
    /// unless the update strategy is `OnDelete`.
    pub(crate) fn for_set(
        set: &Set,
        owned: &[Arc<Revision>],
        current: &TargetRevision,
        policy: Option<&Arc<Policy>>,
        stored: Option<&Arc<RolloutRecord>>,
        is_forbidden: bool,
        assisted: Option<UpdateStrategy>,
    ) -> Option<Self> {
        let record = stored.filter(|it| it.belongs_to(&set.uid));
        let is_bad = verdict_of(&current.revision) == Some(RevisionVerdict::Bad);
        if policy.is_none() && record.is_none() && !is_bad && !is_forbidden {
            return None;
        }
        let stable = stable_revision(set, owned);
        let frozen = if is_forbidden {
            Some(FreezeReason::KindsForbidden)
        } else if let Some(problem) = record.and_then(|it| it.unreadable.clone()) {
            Some(FreezeReason::UnreadableRecord(problem))
        } else if assisted.is_some_and(|it| it != UpdateStrategy::OnDelete) {
            Some(FreezeReason::NotOnDelete)
        } else {
            (policy.is_none() && record.is_none()).then_some(FreezeReason::KnownBad)
        };
        let judged = revision_with_verdict(&current.revision, current.hash.clone());
        let spec_default = PolicySpec::default();
        let spec = policy.map_or(&spec_default, |it| &it.spec);
        // The status of another revision says nothing about this one.
        let status = record
            .map(|it| &it.status)
            .filter(|it| frozen.is_none() && it.current.as_ref().is_some_and(|it| it.hash == current.hash));
        let is_stable = stable.as_ref().is_some_and(|it| current.is_equivalent(&it.target.hash));
        let scope = match status.and_then(|it| it.phase) {
            _ if is_stable => MembershipScope::AllNodes,
            Some(phase) => MembershipScope::for_phase(phase, stable.is_some()),
            None => MembershipScope::for_phase(Phase::Rolling, stable.is_some()),
        };
        let membership = RolloutMembership {
            scope,
            order: spec.order.clone(),
            stable_hash: stable.as_ref().map_or_else(|| Text::from(""), |it| it.target.hash.clone()),
            admitted: status.map(|it| it.admitted.clone()).unwrap_or_default(),
            steps: spec.steps.clone(),
            admitted_if_created_after: status.and_then(|it| admitted_if_created_after(spec, it)),
        };
        let step = status.and_then(|it| it.step.as_ref()).filter(|it| *it.name != *ALL_STEPS);
        Some(Self {
            policy: policy.cloned(),
            record: record.cloned(),
            has_stale_record: stored.is_some() && record.is_none(),
            current: judged,
            good: good_hashes(owned),
            step: step.and_then(|it| spec.steps.iter().find(|step| step.name == it.name)).cloned(),
            stable,
            revisions: owned.to_vec(),
            membership,
            frozen,
            is_assisting: assisted.is_some(),
        })
    }

    /// Replaces the DaemonRollout by a newer version. Unless the rollout is frozen, the admitted nodes of the newer
    /// version apply from now on. Current revision, step and [`MembershipScope`] must be the same in both versions.
    pub(crate) fn replace_record(&mut self, record: Arc<RolloutRecord>) {
        let is_of_current =
            record.status.current.as_ref().is_some_and(|it| it.hash == self.current.reference.hash);
        if is_of_current && self.frozen.is_none() {
            self.membership.admitted.clone_from(&record.status.admitted);
        }
        self.record = Some(record);
    }

    /// Returns which nodes are assigned the current revision: all, none, or the admitted ones.
    pub(crate) fn scope(&self) -> MembershipScope {
        self.membership.scope
    }

    /// Returns the revision that a node is assigned, and how the rolling update treats the node. `current` is the
    /// revision of the DaemonSet's template. `node` is `None` if the node was deleted; a deleted node is assigned the
    /// current revision.
    ///
    /// Rule: the template of the revision that a node is assigned decides whether the node runs a pod. Exception: in
    /// assist mode the DaemonSet's template always decides, because upstream's controller places the pods.
    pub(crate) fn target<'a>(
        &'a self,
        set: &'a Set,
        current: &'a TargetRevision,
        node: Option<&Node>,
    ) -> NodeTarget<'a> {
        let is_admitted = node.is_none_or(|it| self.is_admitted(it));
        let is_held = self.frozen.is_some() || (!is_admitted && self.scope() == MembershipScope::Admitted);
        let mode = if is_held { UpdateMode::Hold } else { UpdateMode::Progressive };
        match &self.stable {
            Some(stable) if !is_admitted => NodeTarget {
                assigned: AssignedRevision::Stable,
                revision: &stable.target,
                template: if self.is_assisting { &set.template } else { &stable.template },
                mode,
            },
            _ => NodeTarget {
                assigned: AssignedRevision::Current,
                revision: current,
                template: &set.template,
                mode,
            },
        }
    }

    /// Returns whether the rollout deletes or evicts an outdated pod that is Ready. Without a policy, the rollout
    /// deletes the pod.
    pub(crate) fn replace_method(&self) -> ReplaceMethod {
        self.policy.as_ref().map_or(ReplaceMethod::Delete, |it| it.spec.replace_method)
    }

    /// Whether a node is admitted, that is, assigned the current revision.
    fn is_admitted(&self, node: &Node) -> bool {
        self.membership.is_admitted(membership_input(node))
    }

    /// Whether the node will be assigned the current revision once the status `next` is stored. Assumes that `next`
    /// does not change the [`MembershipScope`].
    pub(crate) fn will_admit(&self, next: &RolloutStatus, node: &Node) -> bool {
        let spec_default = PolicySpec::default();
        let spec = self.policy.as_ref().map_or(&spec_default, |it| &it.spec);
        let membership = RolloutMembership {
            admitted: next.admitted.clone(),
            admitted_if_created_after: admitted_if_created_after(spec, next),
            ..self.membership.clone()
        };
        membership.is_admitted(membership_input(node))
    }

    /// Returns the revision with this hash label. `None` if no revision has it. Of several revisions with this hash
    /// label, returns the one with the highest number. Revisions that are being deleted count only if there are no
    /// others.
    pub(crate) fn revision_with_hash(&self, hash: &str) -> Option<&Arc<Revision>> {
        let with_hash = self.revisions.iter().filter(|it| it.hash_label().is_some_and(|it| **it == *hash));
        with_hash.max_by_key(|it| (!it.deleting, it.number))
    }

    /// Returns the state of one node in the rollout, and the time at which the state must be computed again even
    /// without an event. `None` if the node was deleted. `pods` are the DaemonSet's pods on the node. `is_charged` is
    /// whether the node counts against `maxUnavailable` or `maxSurge`.
    pub(crate) fn node_progress(
        &self,
        set: &Set,
        current: &TargetRevision,
        node: Option<&Node>,
        pods: &[Arc<Pod>],
        is_charged: bool,
        now: Time,
    ) -> Option<(NodeProgress, Option<Time>)> {
        let node = node?;
        let present = || pods.iter().filter(|it| !it.is_terminal_and_deleting());
        let mut current_pods = present().filter(|it| current.is_up_to_date(it));
        let pod = current_pods.clone().find(|it| it.is_live()).or_else(|| current_pods.next());
        let is_available = pod.is_some_and(|it| check_availability(set, it, now).is_ok());
        let spec_default = PolicySpec::default();
        let spec = self.policy.as_ref().map_or(&spec_default, |it| &it.spec);
        let health = pod.map_or_else(NodeHealth::default, |it| {
            analysis::node_health(&spec.failures, it, is_available, Some(node), now)
        });
        let step = self.step.as_ref();
        let soak = step.map(|it| it.soak).unwrap_or_default();
        let group_soak = step.and_then(|it| it.groups.as_ref()).map_or(soak, |it| it.soak);
        let soak_ends_at = pod.and_then(|it| analysis::soak_ends_at(it, set.min_ready, soak));
        let group_soak_ends_at = pod.and_then(|it| analysis::soak_ends_at(it, set.min_ready, group_soak));
        let is_past = |at: Option<Time>| is_available && at.is_some_and(|at| at <= now);
        let recheck_at = [soak_ends_at, group_soak_ends_at].into_iter().fold(None, |at, soak_ends_at| {
            muster_api::time::earliest(at, analysis::recheck_at(&health, soak_ends_at, now))
        });
        let group = step.and_then(|it| node.labels.get(it.group_label()?)).cloned();
        let order = &self.membership.order;
        let progress = NodeProgress {
            is_eligible: placement::verdict(&set.template, node) == Verdict::Run,
            is_in_step: step.is_none_or(|it| it.selector.matches(&node.labels)),
            group: group.unwrap_or_else(|| Text::from("")),
            is_admitted: self.is_admitted(node),
            has_unproven_pod: present().any(|it| it.hash_label().is_some_and(|it| !self.good.contains(it))),
            has_current_pod: pod.is_some(),
            is_available,
            is_soaked: is_past(soak_ends_at),
            is_group_soaked: is_past(group_soak_ends_at),
            soak_ends_at: soak_ends_at.filter(|at| is_available && now < *at),
            is_charged,
            failure: health.failure,
            candidate: Candidate {
                key: order.key(&self.membership.stable_hash, &node.name, &node.labels),
                node: node.name.clone(),
                created: node.created,
            },
        };
        Some((progress, recheck_at))
    }

    /// Returns the revision with the highest number among the revisions of these available pods, other than the current
    /// revision. `None` if no other revision of these pods exists.
    pub(crate) fn newest_other_revision<'a>(
        &self,
        available: impl Iterator<Item = &'a Arc<Pod>>,
    ) -> Option<RevisionWithVerdict> {
        let hashes: BTreeSet<&Text> = available.filter_map(|it| it.hash_label()).collect();
        let others = self.revisions.iter().filter(|it| {
            it.hash_label().is_some_and(|it| hashes.contains(it) && *it != self.current.reference.hash)
        });
        let highest = others.max_by_key(|it| it.number)?;
        Some(revision_with_verdict(highest, highest.hash_label().cloned()?))
    }
}

/// Returns the fields of a node that decide whether it is admitted, that is, assigned the current revision.
fn membership_input(node: &Node) -> MembershipInput<'_> {
    MembershipInput { name: &node.name, labels: &node.labels, created: node.created }
}

/// Returns the stored verdict about a revision. `None` if the revision has no verdict or an unknown one.
fn verdict_of(revision: &Revision) -> Option<RevisionVerdict> {
    revision.verdict.as_ref().map(|it| it.verdict)
}

/// Returns a revision with its stored verdict. `hash` is the hash label of its pods.
pub(crate) fn revision_with_verdict(revision: &Revision, hash: Text) -> RevisionWithVerdict {
    RevisionWithVerdict {
        reference: RevisionReference { hash, number: revision.number },
        verdict: verdict_of(revision),
        reason: revision.verdict.as_ref().map(|it| it.reason.clone()),
        created: revision.created,
    }
}

/// Returns the hash labels of the revisions with the verdict `Good`.
fn good_hashes(owned: &[Arc<Revision>]) -> BTreeSet<Text> {
    let good = owned.iter().filter(|it| verdict_of(it) == Some(RevisionVerdict::Good));
    good.filter_map(|it| it.hash_label().cloned()).collect()
}

/// Returns the stable revision. `None` if there is none.
///
/// Rule: the stable revision is the revision with the latest `Good` verdict. If several verdicts have the same time,
/// the revision with the highest number counts. Revisions that are being deleted, that have no hash label, or whose
/// template cannot be decoded are skipped.
fn stable_revision(set: &Set, owned: &[Arc<Revision>]) -> Option<StableRevision> {
    let is_good = |it: &&Arc<Revision>| !it.deleting && verdict_of(it) == Some(RevisionVerdict::Good);
    let mut good: Vec<&Arc<Revision>> = owned.iter().filter(is_good).collect();
    good.sort_by_key(|it| (it.verdict.as_ref().map(|it| it.at), it.number));
    let shared = &mut Interner::default();
    good.into_iter().rev().find_map(|revision| {
        let template = decode_revision_template(revision, shared)?;
        let hash = revision.hash_label()?.clone();
        Some(StableRevision {
            judged: revision_with_verdict(revision, hash),
            target: TargetRevision::of_revision(set, revision, owned),
            template: Arc::new(template),
        })
    })
}
