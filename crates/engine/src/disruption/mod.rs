//! How many pods may be sent off now: what a PodDisruptionBudget allows, kept in its status, where an eviction reads it.
//!
//! A budget keeps running totals of the pods it selects, so an event costs what it touches. Evictions charge the status
//! themselves, and say in it which pods they are about to delete: until those are seen to go, they count as gone.
//! Upstream: `pkg/controller/disruption`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use call::Call;
pub use decode::{Budget, Demand, Fact, Pod, PodController, Status};

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use crate::controller::retry::{Attempt, NextAttempt};
use crate::controller::{
    Controller, Event, EventRecord, Fact as _, Outcome, Reconcile, Request, Requeue, Watch,
};
use crate::daemonset::facts::Malformed;
use crate::daemonset::plan;

mod call;
mod decode;
mod status;

/// A pod that an eviction was about to delete, and that is still there then, will not be deleted any more; and a pod that
/// says for so long that it is being disrupted is not. Upstream: `DeletionTimeout`, `stalePodDisruptionTimeout`.
const DELETED_WITHIN: Duration = Duration::from_secs(120);

/// A status that does not allow less than before is written this often, however much happens.
const WRITE_EVERY: Duration = Duration::from_millis(250);

/// All budgets, and the pods they are about.
#[derive(Debug, Default)]
pub struct Budgets {
    budgets: BTreeMap<ObjectKey, Entry>,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
    attempts: BTreeMap<Subject, Attempt>,
}

/// What is looked at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    Budget(ObjectKey),
    /// For what it says of its own disruption.
    Pod(ObjectKey),
}

#[derive(Debug)]
struct Entry {
    budget: Arc<Budget>,
    selected: Selected,
    written_at: Option<Time>,
}

/// The pods that a budget selects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Selected {
    pub(crate) pods: i64,
    pub(crate) healthy: i64,
    /// By name, those with a controller and those without.
    pub(crate) controlled: BTreeSet<Text>,
    pub(crate) unmanaged: BTreeSet<Text>,
}

impl Selected {
    fn add(&mut self, pod: &Pod) {
        self.pods += 1;
        self.healthy += i64::from(pod.is_healthy());
        self.side(pod).insert(pod.key.name.clone());
    }

    fn take(&mut self, pod: &Pod) {
        self.pods -= 1;
        self.healthy -= i64::from(pod.is_healthy());
        self.side(pod).remove(&pod.key.name);
    }

    fn side(&mut self, pod: &Pod) -> &mut BTreeSet<Text> {
        if pod.controller.is_some() { &mut self.controlled } else { &mut self.unmanaged }
    }
}

impl Controller for Budgets {
    type Fact = Fact;
    type Key = Subject;
    type Call = Call;

    fn watches(&self) -> Vec<Watch> {
        [
            Watch::whole("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
            Watch::whole("", "v1", "Pod", "pods", true),
        ]
        .into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Fact, Malformed> {
        decode::fact(watch, object, shared)
    }

    fn apply(&mut self, event: Event<Fact>, _: Time) -> Vec<Subject> {
        let mut subjects = BTreeSet::new();
        match event {
            Event::Applied { fact, .. } => self.put(fact, &mut subjects),
            Event::Deleted { fact, .. } => self.remove(&fact, &mut subjects),
            Event::Listed { kind, facts } => {
                for gone in self.unlisted(kind, &facts) {
                    self.remove(&gone, &mut subjects);
                }
                facts.into_iter().for_each(|it| self.put(it, &mut subjects));
            }
        }
        subjects.into_iter().collect()
    }

    fn reconcile(&mut self, subject: &Subject, now: Time) -> Reconcile<Call> {
        match subject {
            Subject::Budget(key) => self.look_at_budget(subject, key, now),
            Subject::Pod(key) => self.look_at_pod(subject, key, now),
        }
    }

    fn request(call: &Call) -> Request {
        call::request(call)
    }

    fn done(&mut self, call: &Call, outcome: Outcome, now: Time) -> Requeue<Subject> {
        let subject = call.subject();
        // Nobody waits for what has gone meanwhile.
        if let Some(attempt) = self.attempts.get_mut(&subject) {
            attempt.wrote(call.of_version(), &outcome, now);
        }
        Vec::from([subject]).into()
    }
}

impl Budgets {
    fn unlisted(&self, kind: usize, facts: &[Fact]) -> Vec<Fact> {
        let listed: BTreeSet<ObjectKey> = facts.iter().map(Fact::key).collect();
        match kind {
            0 => {
                let gone = self.budgets.iter().filter(|(key, _)| !listed.contains(key));
                gone.map(|(_, it)| Fact::Budget(it.budget.clone())).collect()
            }
            _ => {
                let gone = self.pods.iter().filter(|(key, _)| !listed.contains(key));
                gone.map(|(_, it)| Fact::Pod(it.clone())).collect()
            }
        }
    }

    fn put(&mut self, fact: Fact, subjects: &mut BTreeSet<Subject>) {
        match fact {
            Fact::Pod(pod) => {
                let before = self.pods.insert(pod.key.clone(), pod.clone());
                self.change(before.as_deref(), Some(&pod), subjects);
            }
            Fact::Budget(budget) => {
                subjects.insert(Subject::Budget(budget.key.clone()));
                if let Some(entry) = self.budgets.get_mut(&budget.key)
                    && entry.budget.selector == budget.selector
                {
                    entry.budget = budget;
                    return;
                }
                let mut selected = Selected::default();
                let pods = within(&self.pods, &budget.key.namespace).map(|(_, pod)| pod);
                pods.filter(|it| budget.selects(it)).for_each(|it| selected.add(it));
                let entry = Entry { budget: budget.clone(), selected, written_at: None };
                self.budgets.insert(budget.key.clone(), entry);
            }
        }
    }

    fn remove(&mut self, fact: &Fact, subjects: &mut BTreeSet<Subject>) {
        match fact {
            Fact::Pod(pod) => {
                let before = self.pods.remove(&pod.key);
                self.attempts.remove(&Subject::Pod(pod.key.clone()));
                self.change(before.as_deref(), None, subjects);
            }
            Fact::Budget(budget) => {
                self.budgets.remove(&budget.key);
                self.attempts.remove(&Subject::Budget(budget.key.clone()));
            }
        }
    }

    /// A pod has come or gone or changed.
    fn change(&mut self, before: Option<&Pod>, now: Option<&Pod>, subjects: &mut BTreeSet<Subject>) {
        let Some(key) = now.or(before).map(|it| &it.key) else { return };
        let is_same = before.zip(now).is_some_and(|(before, now)| before.looks_like(now));
        let mut selecting = 0;
        for (name, entry) in within_mut(&mut self.budgets, &key.namespace) {
            let was = before.filter(|it| entry.budget.selects(it));
            let is = now.filter(|it| entry.budget.selects(it));
            was.into_iter().for_each(|it| entry.selected.take(it));
            is.into_iter().for_each(|it| entry.selected.add(it));
            selecting += usize::from(is.is_some());
            if !is_same && (was.is_some() || is.is_some()) {
                subjects.insert(Subject::Budget(name.clone()));
            }
        }
        let has_new_labels = now.is_some_and(|now| before.is_none_or(|it| it.labels != now.labels));
        let is_marked = now.is_some_and(|it| it.disrupted_since.is_some());
        let was_marked = before.is_some_and(|it| it.disrupted_since.is_some());
        if (1 < selecting && has_new_labels) || is_marked || was_marked {
            subjects.insert(Subject::Pod(key.clone()));
        }
    }

    fn look_at_budget(&mut self, subject: &Subject, key: &ObjectKey, now: Time) -> Reconcile<Call> {
        let Some(entry) = self.budgets.get_mut(key) else { return Reconcile::default() };
        let budget = entry.budget.clone();
        let attempt = self.attempts.entry(subject.clone()).or_default();
        match attempt.next(budget.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..Reconcile::default() },
        }
        let found = status::found(&budget, &entry.selected, &self.pods, now);
        let status = found.status(&budget, now);
        let wake_at = found.look_again_at();
        if status == budget.status {
            self.attempts.remove(subject);
            return Reconcile { wake_at, ..Reconcile::default() };
        }
        // What allows less is for the safety of pods, and what has not seen the last change of the spec allows nothing.
        let is_urgent = status.allowed < budget.status.allowed
            || budget.status.observed_generation != status.observed_generation;
        let held_until = entry.written_at.map(|it| it + WRITE_EVERY).filter(|it| now < *it && !is_urgent);
        if held_until.is_some_and(|it| it.since(now) <= WRITE_EVERY) {
            return Reconcile { wake_at: earliest(held_until, wake_at), ..Reconcile::default() };
        }
        entry.written_at = Some(now);
        attempt.begin();
        let events = found.events(&budget, &entry.selected);
        Reconcile { calls: Vec::from([Call::WriteStatus { budget, status }]), events, wake_at }
    }

    /// Rule: a pod that has said for two minutes that it is being disrupted, and is not being deleted, says so no longer;
    /// the kubelet's own word stands. Upstream: `syncStalePodDisruption`.
    fn look_at_pod(&mut self, subject: &Subject, key: &ObjectKey, now: Time) -> Reconcile<Call> {
        let Some(pod) = self.pods.get(key).cloned() else { return Reconcile::default() };
        let events: Vec<EventRecord> = self.rivals(&pod).into_iter().collect();
        let Some(since) = pod.disrupted_since else {
            self.attempts.remove(subject);
            return Reconcile { events, ..Reconcile::default() };
        };
        let stale_at = since + DELETED_WITHIN;
        if now < stale_at {
            return Reconcile { events, wake_at: Some(stale_at), ..Reconcile::default() };
        }
        let attempt = self.attempts.entry(subject.clone()).or_default();
        match attempt.next(pod.resource_version, now) {
            NextAttempt::AfterOutcome => Reconcile { events, ..Reconcile::default() },
            NextAttempt::At(at) => Reconcile { events, wake_at: Some(at), ..Reconcile::default() },
            NextAttempt::Now => {
                attempt.begin();
                Reconcile { calls: Vec::from([Call::Unmark { pod, at: now }]), events, wake_at: None }
            }
        }
    }

    /// An eviction refuses a pod with two budgets, so somebody should know.
    fn rivals(&self, pod: &Pod) -> Option<EventRecord> {
        let mut selecting =
            within(&self.budgets, &pod.key.namespace).filter(|(_, entry)| entry.budget.selects(pod));
        let (first, _) = selecting.next()?;
        selecting.next()?;
        let ObjectKey { namespace, name } = &pod.key;
        Some(EventRecord {
            about: pod.reference(),
            event: plan::Event::warning(
                "MultiplePodDisruptionBudgets",
                format!(
                    "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                    first.name
                ),
            ),
        })
    }
}

fn within<'a, T>(
    all: &'a BTreeMap<ObjectKey, T>,
    namespace: &'a Text,
) -> impl Iterator<Item = (&'a ObjectKey, &'a T)> {
    let first = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
    all.range(first..).take_while(move |(key, _)| key.namespace == *namespace)
}

fn within_mut<'a, T>(
    all: &'a mut BTreeMap<ObjectKey, T>,
    namespace: &'a Text,
) -> impl Iterator<Item = (&'a ObjectKey, &'a mut T)> {
    let first = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
    all.range_mut(first..).take_while(move |(key, _)| key.namespace == *namespace)
}

#[cfg(test)]
mod tests;
