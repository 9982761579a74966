//! The rollout policy controller: writes the status of RolloutPolicies and ClusterRolloutPolicies.
//!
//! The status reports how many DaemonSets a policy governs, how their rollouts proceed, which fields of the policy are
//! invalid, and which of the selected DaemonSets another policy governs. The DaemonSet controller does not read this
//! status.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use crate::daemonset::progressive::decode::WatchedPolicy;
pub use call::RolloutPolicyCall;
pub use decode::{RolloutPolicyObject, RolloutState};

use muster_api::interner::Interner;
use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::retry::{Attempt, NextAttempt};
use crate::controller::{
    self, Controller, DecodedObject as _, Event, FactStore, Malformed, Outcome, Reconcile, Request, Requeue,
    Watch,
};
use crate::daemonset::facts::Kind;
use crate::daemonset::progressive::policy::{Policy, PolicyKind, SelectableSet, governing_policy};

/// The calls of the rollout policy controller and their API requests.
mod call;
/// Decodes the objects that the rollout policy controller watches.
mod decode;
/// Computes the status of a policy.
mod status;

/// Minimum time between two writes of a policy's status.
const STATUS_WRITE_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The rollout policy controller. It keeps the policies, DaemonSets, namespaces and DaemonRollouts that it watches, and
/// the state of its status writes.
#[derive(Debug)]
pub struct RolloutPolicyController {
    scope: PolicyScope,
    policies: BTreeMap<PolicyKey, PolicyState>,
    sets: BTreeMap<ObjectKey, WatchedSet>,
    /// Labels of the namespaces by name.
    namespaces: BTreeMap<Text, Labels>,
    /// The state of each rollout, by the key of its DaemonRollout. The DaemonSet has the same key.
    rollouts: BTreeMap<ObjectKey, RolloutState>,
}

/// The policies whose status the controller writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyScope {
    /// All policies. The controller watches the DaemonSets of all namespaces.
    Cluster,
    /// RolloutPolicies only. The controller watches the DaemonSets of one namespace, so it does not know all DaemonSets
    /// of a ClusterRolloutPolicy.
    Namespace,
}

/// Kind, namespace and name of a policy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PolicyKey {
    pub kind: PolicyKind,
    /// Namespace and name of the policy. A ClusterRolloutPolicy has no namespace.
    pub key: ObjectKey,
}

impl PolicyKey {
    /// Returns the key of a policy.
    pub(crate) fn for_policy(policy: &Policy) -> Self {
        Self { kind: policy.kind, key: policy.key.clone() }
    }
}

/// A policy, and the state of the writes of its status.
#[derive(Debug)]
struct PolicyState {
    policy: Arc<WatchedPolicy>,
    /// The state of the last write of the status. It determines when the next write may be made.
    attempt: Attempt,
    /// Time at which the controller last wrote the status. `None` before the first write.
    written_at: Option<Time>,
}

/// The labels of a watched DaemonSet, and the policy that governs it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct WatchedSet {
    labels: Labels,
    /// The policy that governs the DaemonSet. `None` if no policy selects it.
    governed_by: Option<PolicyKey>,
}

impl RolloutPolicyController {
    /// Creates a controller that has not received any objects yet.
    pub fn new(scope: PolicyScope) -> Self {
        Self {
            scope,
            policies: BTreeMap::new(),
            sets: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            rollouts: BTreeMap::new(),
        }
    }

    /// Adds or updates a policy. If the policy is new or its selection changed, determines again which policy governs
    /// each DaemonSet that the policy selects now or selected before the update. Adds to `keys` the policies to
    /// reconcile.
    fn put_policy(&mut self, policy: Arc<WatchedPolicy>, keys: &mut BTreeSet<PolicyKey>) {
        let key = PolicyKey::for_policy(&policy.policy);
        keys.insert(key.clone());
        let before = self.policies.get_mut(&key).map(|it| core::mem::replace(&mut it.policy, policy.clone()));
        let precedence = |it: &WatchedPolicy| (it.policy.selection.clone(), it.policy.created);
        match before {
            Some(before) if precedence(&before) == precedence(&policy) => {}
            Some(before) => self.update_selected_sets(&[&before.policy, &policy.policy], keys),
            None => {
                let attempt = Attempt::default();
                let entry = PolicyState { policy: policy.clone(), attempt, written_at: None };
                self.policies.insert(key, entry);
                self.update_selected_sets(&[&policy.policy], keys);
            }
        }
    }

    /// Removes a deleted policy, and determines which other policies govern its DaemonSets from now on. Adds to `keys`
    /// the policies to reconcile.
    fn remove_policy(&mut self, kind: PolicyKind, key: &ObjectKey, keys: &mut BTreeSet<PolicyKey>) {
        if let Some(entry) = self.policies.remove(&PolicyKey { kind, key: key.clone() }) {
            self.update_selected_sets(&[&entry.policy.policy], keys);
        }
    }

    /// Determines again which policy governs each DaemonSet that one of these policies selects. Adds to `keys` the
    /// policies to reconcile.
    fn update_selected_sets(&mut self, policies: &[&Policy], keys: &mut BTreeSet<PolicyKey>) {
        let is_selected = |(key, set): &(&ObjectKey, &WatchedSet)| {
            let set = self.selectable_set(key, &set.labels);
            policies.iter().any(|it| it.selects(set))
        };
        let selected: Vec<ObjectKey> =
            self.sets.iter().filter(is_selected).map(|(key, _)| key.clone()).collect();
        selected.iter().for_each(|key| self.update_governing_policy(key, keys));
    }

    /// Determines again which policy governs each DaemonSet of a namespace, after the namespace was added or deleted,
    /// or its labels have changed. Adds to `keys` the policies to reconcile, among them all ClusterRolloutPolicies.
    fn update_sets_of_namespace(&mut self, namespace: &Text, keys: &mut BTreeSet<PolicyKey>) {
        // A policy that selected the namespace by its previous labels loses its DaemonSets.
        let is_cluster = |it: &&PolicyKey| it.kind == PolicyKind::ClusterRolloutPolicy;
        keys.extend(self.policies.keys().filter(is_cluster).cloned());
        let first = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
        let of_namespace = self.sets.range(first..).take_while(|(key, _)| key.namespace == *namespace);
        let sets: Vec<ObjectKey> = of_namespace.map(|(key, _)| key.clone()).collect();
        sets.iter().for_each(|key| self.update_governing_policy(key, keys));
    }

    /// Determines and stores which policy governs a DaemonSet. Adds to `keys` all policies that select the DaemonSet,
    /// and the policy that governed it before.
    fn update_governing_policy(&mut self, key: &ObjectKey, keys: &mut BTreeSet<PolicyKey>) {
        let Some(set) = self.sets.get(key) else { return };
        let selected = self.selectable_set(key, &set.labels);
        let (governing, others) = governing_policy(self.policies_for(&key.namespace), selected);
        let of = |it: &WatchedPolicy| PolicyKey::for_policy(&it.policy);
        let governing = governing.map(of);
        keys.extend(others.into_iter().map(of));
        keys.extend(governing.clone());
        if let Some(set) = self.sets.get_mut(key) {
            keys.extend(core::mem::replace(&mut set.governed_by, governing));
        }
    }

    /// Adds to `keys` all policies that select the DaemonSet with this key and these labels.
    fn add_selecting_policies(&self, key: &ObjectKey, labels: &Labels, keys: &mut BTreeSet<PolicyKey>) {
        let set = self.selectable_set(key, labels);
        let selecting = self.policies_for(&key.namespace).filter(|it| it.policy.selects(set));
        keys.extend(selecting.map(|it| PolicyKey::for_policy(&it.policy)));
    }

    /// Returns the fields by which policies select the DaemonSet with this key and these labels.
    fn selectable_set<'a>(&'a self, key: &'a ObjectKey, labels: &'a Labels) -> SelectableSet<'a> {
        SelectableSet { key, labels, namespace_labels: self.namespaces.get(&key.namespace) }
    }

    /// Returns the policies that can select DaemonSets of a namespace: the RolloutPolicies of the namespace, and all
    /// ClusterRolloutPolicies.
    fn policies_for<'a>(&'a self, namespace: &'a Text) -> impl Iterator<Item = &'a WatchedPolicy> {
        let first = |kind, namespace: &Text| {
            let key = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
            PolicyKey { kind, key }
        };
        let own = self.policies.range(first(PolicyKind::RolloutPolicy, namespace)..);
        let own = own.take_while(move |(it, _)| {
            it.kind == PolicyKind::RolloutPolicy && it.key.namespace == *namespace
        });
        let cluster = self.policies.range(first(PolicyKind::ClusterRolloutPolicy, &Text::from(""))..);
        own.chain(cluster).map(|(_, entry)| &*entry.policy)
    }

    /// Counts the DaemonSets that a policy governs, and collects the DaemonSets that it selects but another policy
    /// governs.
    fn summarize(&self, policy: &Policy) -> status::PolicySummary<'_> {
        let own = PolicyKey::for_policy(policy);
        let mut summary = status::PolicySummary::default();
        for (key, set) in &self.sets {
            if !policy.selects(self.selectable_set(key, &set.labels)) {
                continue;
            }
            match &set.governed_by {
                Some(governing) if *governing != own => summary.add_conflict(key, governing),
                _ => summary.add_governed(self.rollouts.get(key).copied().unwrap_or_default()),
            }
        }
        summary
    }
}

/// The watched kinds, in the order of [`Controller::watches`].
const WATCHED_KINDS: [Kind; 5] =
    [Kind::Policies, Kind::ClusterPolicies, Kind::Rollouts, Kind::Namespaces, Kind::Sets];

impl FactStore for RolloutPolicyController {
    type Id = ObjectKey;
    type Keys = BTreeSet<PolicyKey>;

    fn id(fact: &RolloutPolicyObject) -> ObjectKey {
        fact.key()
    }

    fn stored_ids(&self, kind: usize) -> Vec<ObjectKey> {
        let policies = |kind| {
            let of_kind = self.policies.keys().filter(move |it| it.kind == kind);
            of_kind.map(|it| it.key.clone()).collect()
        };
        match WATCHED_KINDS[kind] {
            Kind::Policies => policies(PolicyKind::RolloutPolicy),
            Kind::ClusterPolicies => policies(PolicyKind::ClusterRolloutPolicy),
            Kind::Namespaces => self.namespaces.keys().map(|it| ObjectKey::new("", it.clone())).collect(),
            Kind::Rollouts => self.rollouts.keys().cloned().collect(),
            _ => self.sets.keys().cloned().collect(),
        }
    }

    fn put(&mut self, fact: RolloutPolicyObject, _: Time, keys: &mut BTreeSet<PolicyKey>) {
        match fact {
            RolloutPolicyObject::Policy(policy) => self.put_policy(policy, keys),
            RolloutPolicyObject::Set { key, labels, .. } => {
                let before = self.sets.get(&key);
                if before.is_some_and(|it| it.labels == labels) {
                    return;
                }
                if let Some(before) = before.map(|it| it.labels.clone()) {
                    self.add_selecting_policies(&key, &before, keys);
                }
                self.sets.insert(key.clone(), WatchedSet { labels, governed_by: None });
                self.update_governing_policy(&key, keys);
            }
            RolloutPolicyObject::Namespace { name, labels, .. } => {
                let before = self.namespaces.insert(name.clone(), labels.clone());
                if before.as_ref() != Some(&labels) {
                    self.update_sets_of_namespace(&name, keys);
                }
            }
            RolloutPolicyObject::Rollout { key, state, .. } => {
                if self.rollouts.insert(key.clone(), state) != Some(state) {
                    keys.extend(self.sets.get(&key).and_then(|it| it.governed_by.clone()));
                }
            }
        }
    }

    fn remove(&mut self, kind: usize, key: &ObjectKey, _: Time, keys: &mut BTreeSet<PolicyKey>) {
        match WATCHED_KINDS[kind] {
            Kind::Policies => self.remove_policy(PolicyKind::RolloutPolicy, key, keys),
            Kind::ClusterPolicies => self.remove_policy(PolicyKind::ClusterRolloutPolicy, key, keys),
            Kind::Namespaces => {
                if self.namespaces.remove(&key.name).is_some() {
                    self.update_sets_of_namespace(&key.name, keys);
                }
            }
            Kind::Rollouts => {
                if self.rollouts.remove(key).is_some() {
                    keys.extend(self.sets.get(key).and_then(|it| it.governed_by.clone()));
                }
            }
            _ => {
                if let Some(set) = self.sets.remove(key) {
                    self.add_selecting_policies(key, &set.labels, keys);
                }
            }
        }
    }
}

impl Controller for RolloutPolicyController {
    type DecodedObject = RolloutPolicyObject;
    type Key = PolicyKey;
    type Call = RolloutPolicyCall;

    fn watches(&self) -> Vec<Watch> {
        let watch = |kind: Kind| Watch {
            metadata_only: kind == Kind::Sets || kind.watch().metadata_only,
            ..kind.watch()
        };
        WATCHED_KINDS.map(watch).into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<RolloutPolicyObject, Malformed> {
        decode::decode_fact(watch, object, shared)
    }

    fn apply(&mut self, event: Event<RolloutPolicyObject>, now: Time) -> Vec<PolicyKey> {
        let mut keys = BTreeSet::new();
        controller::apply_event(self, event, now, &mut keys);
        keys.into_iter().collect()
    }

    /// Returns the call that writes the status of a policy, if the status has changed and may be written now. Returns
    /// no call for a ClusterRolloutPolicy with [`PolicyScope::Namespace`].
    ///
    /// Rule: the status of a policy is written at most once per second, and only if it has changed.
    fn reconcile(&mut self, key: &PolicyKey, now: Time) -> Reconcile<RolloutPolicyCall> {
        if self.scope == PolicyScope::Namespace && key.kind == PolicyKind::ClusterRolloutPolicy {
            return Reconcile::default();
        }
        let Some(entry) = self.policies.get(key) else { return Reconcile::default() };
        let wake_at = |at| Reconcile { wake_at: Some(at), ..Reconcile::default() };
        match entry.attempt.next_attempt(entry.policy.policy.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return wake_at(at),
        }
        let throttled_until = entry.written_at.map(|it| it + STATUS_WRITE_INTERVAL_MIN);
        // After the clock was set back, the write does not wait longer than the interval.
        let throttled_until =
            throttled_until.filter(|it| now < *it && it.since(now) <= STATUS_WRITE_INTERVAL_MIN);
        if let Some(at) = throttled_until {
            return wake_at(at);
        }
        let policy = entry.policy.clone();
        let status = status::policy_status(&policy, &self.summarize(&policy.policy), now);
        let Some(entry) = self.policies.get_mut(key) else { return Reconcile::default() };
        if status == policy.status {
            entry.attempt = Attempt::default();
            return Reconcile::default();
        }
        entry.written_at = Some(now);
        entry.attempt.begin();
        Reconcile { calls: Vec::from([RolloutPolicyCall { policy, status }]), ..Reconcile::default() }
    }

    fn request(call: &RolloutPolicyCall) -> Request {
        call.request()
    }

    fn apply_outcome(&mut self, call: &RolloutPolicyCall, outcome: Outcome, now: Time) -> Requeue<PolicyKey> {
        let key = PolicyKey::for_policy(&call.policy.policy);
        // There is no entry if the policy was deleted meanwhile.
        if let Some(entry) = self.policies.get_mut(&key) {
            entry.attempt.apply_outcome(call.policy.policy.resource_version, &outcome, now);
        }
        Vec::from([key]).into()
    }
}

#[cfg(test)]
mod tests;
