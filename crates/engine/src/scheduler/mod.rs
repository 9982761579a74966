//! Which node a pending pod goes to.
//!
//! The scheduler keeps what every node has left ([`rooms`]), and the pods that have none ([`queue`]): the more important
//! first, the older first among equals. A pod fits ([`fit`], [`around`]) on some nodes, of which it gets the best
//! ([`score`]), or on none: then others may have to leave for it ([`preempt`]), it is told why, and it is parked until
//! something happens that could help: a node changes, a pod leaves or, where it looks for company, comes. It comes back
//! after some minutes all the same, so that nothing is ever forgotten.
//!
//! A binding counts from the moment it is decided until it is refused, so the next decision sees its room taken before any
//! watch does.

mod around;
mod call;
mod facts;
mod fit;
mod obstacle;
mod preempt;
mod queue;
mod rooms;
mod score;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use call::Call;
pub use facts::{
    Budget, Fact, Namespace, Node, Pod, PodTerm, Port, SCHEDULER_NAME, Spread, Wants, budget, namespace,
    node, pod, pod_from_value,
};
pub use fit::{Lack, Unfit};
pub use obstacle::{Fitting, Obstacle};

use muster_api::interner::Interner;
use muster_api::labels::Labels;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::{
    Controller, Event, EventRecord, Fact as _, ObjectReference, Outcome, Reconcile, Request, Requeue, Watch,
};
use crate::daemonset::execution::Refusal;
use crate::daemonset::facts::Malformed;
use crate::daemonset::plan;
use crate::mutant;
use around::Around;
use preempt::Preemption;
use queue::{Help, Queue};
use rooms::{Room, Rooms};

/// Calls that are asked for before the answers of others have come. What is decided later knows more.
const CALLS_MAX: usize = 100;

/// Pods decided about in one go: 15,000 pods on 15,000 nodes must not keep a watch from being read.
const DECISIONS_MAX: usize = 100;

/// All nodes are compared where there are no more than this. Upstream: `minFeasibleNodesToFind`.
const COMPARED_MIN: usize = 100;

#[derive(Debug, Default)]
pub struct Scheduler {
    rooms: Rooms,
    queue: Queue,
    /// Pods that have their room, and the server does not show it yet; and how often each was tried in vain before.
    binding: BTreeMap<ObjectKey, (Arc<Pod>, u32)>,
    /// What pods are being told, until the server has answered.
    explaining: BTreeMap<ObjectKey, Told>,
    /// Pods that were told to leave, by UID.
    victims: BTreeSet<Text>,
    namespaces: BTreeMap<Text, Labels>,
    budgets: BTreeMap<ObjectKey, Budget>,
    /// The node after which the next search begins, where not all are compared.
    cursor: Text,
    /// Calls that follow from the outcome of others.
    ready: Vec<Call>,
    under_way: usize,
}

/// Why a pod waits, and which node is kept free for it.
type Told = (Text, Option<Text>);

/// What is to become of a pod.
enum Decision {
    Bind(Text),
    Wait {
        message: String,
        preemption: Option<Preemption>,
        /// It matters to it which pods are where.
        is_social: bool,
    },
}

impl Controller for Scheduler {
    type Fact = Fact;
    /// Whose turn it is, the queue says.
    type Key = ();
    type Call = Call;

    fn watches(&self) -> Vec<Watch> {
        [
            call::pods(),
            Watch::whole("", "v1", "Node", "nodes", false),
            Watch::metadata("", "v1", "Namespace", "namespaces", false),
            Watch::whole("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
        ]
        .into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Fact, Malformed> {
        let read = match &*watch.resource.kind {
            "Pod" => pod(object, shared).map(|it| Fact::Pod(Arc::new(it))),
            "Node" => node(object, shared).map(|it| Fact::Node(Arc::new(it))),
            "Namespace" => namespace(object, shared).map(Fact::Namespace),
            _ => budget(object, shared).map(Fact::Budget),
        };
        read.map_err(|source| Malformed::new(&watch.resource.plural, source))
    }

    fn apply(&mut self, event: Event<Fact>, _: Time) -> Vec<()> {
        match event {
            Event::Listed { kind, facts } => {
                let listed: BTreeSet<ObjectKey> = facts.iter().map(Fact::key).collect();
                self.keep_only(kind, &listed);
                facts.into_iter().for_each(|it| self.put(it));
            }
            Event::Applied { fact, .. } => self.put(fact),
            Event::Deleted { fact, .. } => self.gone(&fact),
        }
        [()].into()
    }

    fn reconcile(&mut self, (): &(), now: Time) -> Reconcile<Call> {
        if mutant::is("L11") {
            return Reconcile::default();
        }
        let mut reconcile = Reconcile { calls: core::mem::take(&mut self.ready), ..Reconcile::default() };
        for _ in 0..DECISIONS_MAX {
            if CALLS_MAX <= self.under_way + reconcile.calls.len() {
                break;
            }
            let Some(key) = self.queue.next(now) else { break };
            self.decide(&key, now, &mut reconcile);
        }
        self.under_way += reconcile.calls.len();
        reconcile.wake_at = match self.queue.is_someone_in_line() {
            // Each outcome brings the next look.
            true if CALLS_MAX <= self.under_way => None,
            true => Some(now),
            false => self.queue.wake_at(),
        };
        reconcile
    }

    fn request(call: &Call) -> Request {
        call::request(call)
    }

    fn done(&mut self, call: &Call, outcome: Outcome, now: Time) -> Requeue<()> {
        self.under_way = self.under_way.saturating_sub(1);
        let refusal = match outcome {
            Outcome::Done(_) => None,
            Outcome::Refused(it) => Some(it),
        };
        let events = match (call, refusal) {
            (Call::Bind { pod, node }, None) => {
                let message = format!("Successfully assigned {} to {node}", pod.key);
                Some(tell(pod, plan::Event::normal("Scheduled", message)))
            }
            (Call::Bind { pod, .. }, Some(refusal)) => self.not_bound(pod, &refusal, now),
            (Call::Warn { victim, node, by, .. }, None) => {
                self.ready.push(Call::Evict { victim: victim.clone(), node: node.clone(), by: by.clone() });
                None
            }
            (Call::Evict { victim, node, by }, None) => {
                let message = format!("Preempted by pod {} on node {node}", by.uid);
                Some(tell(victim, plan::Event::normal("Preempted", message)))
            }
            (Call::Warn { victim, by, .. } | Call::Evict { victim, by, .. }, Some(refusal)) => {
                self.victims.remove(&victim.uid);
                self.ask_again(&by.key, &refusal, now);
                None
            }
            (Call::Explain { pod, message, nominee, .. }, refusal) => {
                // Something else may have been said since.
                if self.explaining.get(&pod.key).is_some_and(|it| it.0 == *message && it.1 == *nominee) {
                    self.explaining.remove(&pod.key);
                }
                if let Some(refusal) = refusal {
                    self.ask_again(&pod.key, &refusal, now);
                }
                None
            }
            (Call::Unnominate { pod }, Some(refusal)) => {
                self.ask_again(&pod.key, &refusal, now);
                None
            }
            (Call::Unnominate { .. }, None) => None,
        };
        Requeue { keys: [()].into(), events: events.into_iter().collect() }
    }
}

impl Scheduler {
    /// How many pods look for a node.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Takes an object in, as it is now.
    pub fn put(&mut self, fact: Fact) {
        match fact {
            Fact::Pod(pod) => self.put_pod(pod),
            Fact::Node(node) => {
                let name = node.fact.name.clone();
                if self.rooms.put_node(node) {
                    self.help(Help::Node(&name));
                }
            }
            Fact::Namespace(it) => {
                if self.namespaces.insert(it.name, it.labels.clone()).is_none_or(|before| before != it.labels)
                {
                    self.help(Help::Company);
                }
            }
            Fact::Budget(it) => drop(self.budgets.insert(it.key.clone(), it)),
        }
    }

    fn gone(&mut self, fact: &Fact) {
        match fact {
            Fact::Pod(pod) => self.pod_gone(&pod.key),
            Fact::Node(node) => self.node_gone(&node.fact.name),
            Fact::Namespace(it) => drop(self.namespaces.remove(&it.name)),
            Fact::Budget(it) => drop(self.budgets.remove(&it.key)),
        }
    }

    /// What a fresh list does not name is gone.
    fn keep_only(&mut self, kind: usize, listed: &BTreeSet<ObjectKey>) {
        match &*self.watches()[kind].resource.kind {
            "Pod" => {
                let known = self.rooms.placed().chain(self.queue.keys());
                let gone: Vec<ObjectKey> = known.filter(|it| !listed.contains(*it)).cloned().collect();
                gone.iter().for_each(|it| self.pod_gone(it));
            }
            "Node" => {
                let names = self.rooms.names().into_iter();
                let gone: Vec<Text> =
                    names.filter(|it| !listed.contains(&ObjectKey::new("", it.clone()))).collect();
                gone.iter().for_each(|it| self.node_gone(it));
            }
            "Namespace" => {
                self.namespaces.retain(|name, _| listed.contains(&ObjectKey::new("", name.clone())));
            }
            _ => self.budgets.retain(|key, _| listed.contains(key)),
        }
    }

    fn put_pod(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        let known = self.rooms.pod(&key).or_else(|| self.queue.pod(&key));
        if pod.finished || known.is_some_and(|it| it.uid != pod.uid) {
            self.pod_gone(&key);
        }
        match pod.node.clone() {
            _ if pod.finished => {}
            Some(node) => self.stands(pod, &node),
            None => match self.binding.get_mut(&key) {
                // Our own binding, which this event is older than.
                Some((binding, _)) => *binding = pod,
                None if pod.ours && !pod.deleting => self.queue.put(pod),
                None => self.leave_queue(&key, None),
            },
        }
    }

    /// The server shows the pod on a node.
    fn stands(&mut self, pod: Arc<Pod>, node: &Text) {
        let key = pod.key.clone();
        self.binding.remove(&key);
        self.leave_queue(&key, Some(node));
        let before = self.rooms.pod(&key).cloned();
        let left = self.rooms.place(&key).filter(|it| *it != node).cloned();
        self.rooms.enter(pod.clone(), node.clone());
        if let Some(left) = &left {
            self.help(Help::Node(left));
        }
        match before {
            Some(it) if it.wants != pod.wants => self.help(Help::Node(node)),
            Some(it) if left.is_none() && it.labels == pod.labels && it.deleting == pod.deleting => {}
            _ => self.help(Help::Company),
        }
    }

    fn pod_gone(&mut self, key: &ObjectKey) {
        self.binding.remove(key);
        if let Some(uid) = self.rooms.pod(key).map(|it| it.uid.clone()) {
            self.victims.remove(&uid);
        }
        self.leave_queue(key, None);
        if let Some(node) = self.rooms.leave(key) {
            self.help(Help::Node(&node));
        }
    }

    fn node_gone(&mut self, name: &Text) {
        if self.rooms.remove_node(name) {
            self.help(Help::Company);
        }
    }

    /// The pod looks for no node any more; it may be on `node`. The one that was kept free for it may help others.
    fn leave_queue(&mut self, key: &ObjectKey, node: Option<&Text>) {
        if let Some(kept) = self.queue.remove(key)
            && Some(&kept) != node
        {
            self.help(Help::Node(&kept));
        }
    }

    /// Rule: a parked pod is looked at again when a node has changed, or is left by a pod, that could take it if less
    /// important pods left too; or when pods came, went or changed anywhere and it failed for which pods are where.
    fn help(&mut self, help: Help<'_>) {
        for (pod, needs_look) in self.queue.helped(help) {
            let could_take = |name: &Text| self.rooms.get(name).is_some_and(|it| self.could_take(&pod, it));
            let helps = match help {
                Help::Node(name) if needs_look => could_take(name),
                Help::Node(_) | Help::Company => true,
            };
            if helps {
                self.queue.give_hope(&pod.key);
            }
        }
    }

    fn could_take(&self, pod: &Pod, room: &Room) -> bool {
        let may_go = room.pods.values().filter(|it| pod.preempts && it.priority < pod.priority);
        let may_go = may_go.map(|it| it.key.clone()).collect();
        fit::check_alone(self, pod, room, &may_go).is_ok()
    }

    /// Decides about the pod that is first in line.
    fn decide(&mut self, key: &ObjectKey, now: Time, reconcile: &mut Reconcile<Call>) {
        let Some(pod) = self.queue.pod(key).cloned() else { return };
        match self.judge(&pod) {
            Decision::Bind(node) => {
                if COMPARED_MIN < self.rooms.len() {
                    self.cursor = node.clone();
                }
                self.binding.insert(key.clone(), (pod.clone(), self.queue.tries(key)));
                self.leave_queue(key, Some(&node));
                self.rooms.enter(pod.clone(), node.clone());
                self.help(Help::Company);
                reconcile.calls.push(Call::Bind { pod, node });
            }
            Decision::Wait { message, preemption, is_social } => {
                self.queue.park(key, is_social, now);
                match preemption {
                    Some(Preemption::Remove { node, victims }) => {
                        self.make_room(&pod, &node, victims, now, reconcile);
                    }
                    Some(Preemption::InVain(_)) => self.keep_free(key, None),
                    Some(Preemption::NotNow(_)) | None => {}
                }
                reconcile
                    .events
                    .push(tell(&pod, plan::Event::warning("FailedScheduling", call::note(&message))));
                let telling: Told = (message.into(), self.queue.nominee(key).cloned());
                let told = pod.told.as_ref().filter(|(reason, _)| **reason == *"Unschedulable");
                let told = told.map(|(_, message)| (message.clone(), pod.nominated.clone()));
                if self.explaining.get(key).or(told.as_ref()) != Some(&telling) {
                    self.explaining.insert(key.clone(), telling.clone());
                    let (message, nominee) = telling;
                    reconcile.calls.push(Call::Explain { pod, message, nominee, at: now });
                }
            }
        }
    }

    /// Pods leave the node for this one, and it is kept free.
    fn make_room(
        &mut self,
        pod: &Arc<Pod>,
        node: &Text,
        victims: Vec<Arc<Pod>>,
        now: Time,
        reconcile: &mut Reconcile<Call>,
    ) {
        // Less important ones for which it was kept free may not fit any more.
        let lower = self.queue.nominated(node).filter(|it| it.priority < pod.priority);
        for other in lower.cloned().collect::<Vec<_>>() {
            self.queue.nominate(&other.key, None);
            self.queue.give_hope(&other.key);
            if other.nominated.is_some() {
                reconcile.calls.push(Call::Unnominate { pod: other });
            }
        }
        self.keep_free(&pod.key, Some(node.clone()));
        for victim in victims {
            if !victim.deleting && self.victims.insert(victim.uid.clone()) {
                reconcile.calls.push(Call::Warn { victim, node: node.clone(), by: pod.clone(), at: now });
            }
        }
    }

    fn keep_free(&mut self, key: &ObjectKey, node: Option<Text>) {
        if let Some(before) = self.queue.nominate(key, node) {
            self.help(Help::Node(&before));
        }
    }

    fn judge(&self, pod: &Pod) -> Decision {
        if self.rooms.len() == 0 {
            let message = String::from("no nodes available to schedule pods");
            return Decision::Wait { message, preemption: None, is_social: false };
        }
        let around = Around::of(self, pod);
        let nobody = BTreeSet::new();
        let fits = |room: &Room| fit::check(self, pod, &around, room, &nobody);
        // The node that was made free for it is its own, if it still fits.
        let nominee = self.queue.nominee(&pod.key).and_then(|it| self.rooms.get(it));
        if let Some(room) = nominee.filter(|it| fits(it).is_ok()) {
            return Decision::Bind(room.name().clone());
        }

        let names = pod.wants.named_nodes();
        let named = names.iter().flatten().filter_map(|it| self.rooms.get(it));
        let any = self.rooms.iter_after(&self.cursor).filter(|_| names.is_none());
        let enough = enough(self.rooms.len());
        let (mut fitting, mut unfit) = (Vec::new(), Vec::new());
        for room in named.chain(any) {
            match fits(room) {
                Ok(()) => fitting.push(room),
                Err(why) => unfit.push((room, why)),
            }
            if enough <= fitting.len() {
                break;
            }
        }
        if let Some(node) = score::best(self, pod, &fitting) {
            return Decision::Bind(node);
        }
        let preemption = preempt::choose(self, pod, &around, &unfit);
        let said = match &preemption {
            Preemption::Remove { .. } => None,
            Preemption::NotNow(why) | Preemption::InVain(why) => Some(why.as_str()),
        };
        Decision::Wait {
            message: self.message(&unfit, said),
            is_social: unfit.iter().any(|(_, why)| why.is_about_others_elsewhere()),
            preemption: Some(preemption),
        }
    }

    /// Rule: a pod that fits nowhere is told on how many nodes it failed for what. Upstream: `FitError`.
    fn message(&self, unfit: &[(&Room, Unfit)], preemption: Option<&str>) -> String {
        let mut alike: BTreeMap<&Unfit, usize> = BTreeMap::new();
        for (_, why) in unfit {
            *alike.entry(why).or_default() += 1;
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (why, count) in alike {
            for reason in why.reasons() {
                *reasons.entry(reason).or_default() += count;
            }
        }
        // The nodes that a pod which names others never looked at.
        if unfit.len() < self.rooms.len() {
            let others = String::from("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            *reasons.entry(others).or_default() += self.rooms.len() - unfit.len();
        }
        let message = histogram(self.rooms.len(), &reasons);
        preemption.map_or_else(|| message.clone(), |it| format!("{message} preemption: {it}"))
    }

    /// Rule: a pod whose binding was refused, or not answered, has no room any more, and is looked at again after a wait:
    /// if it is bound after all, a watch will show it.
    fn not_bound(&mut self, pod: &Arc<Pod>, refusal: &Refusal, now: Time) -> Option<EventRecord> {
        let (latest, tries) = self.binding.get(&pod.key).filter(|(it, _)| it.uid == pod.uid)?.clone();
        self.binding.remove(&pod.key);
        if let Some(node) = self.rooms.leave(&pod.key) {
            self.help(Help::Node(&node));
        }
        if latest.ours && !latest.deleting {
            self.queue.put_back(latest, tries, now);
        }
        let message = call::note(&format!("binding rejected: {refusal}"));
        (*refusal != Refusal::NotFound).then(|| tell(pod, plan::Event::warning("FailedScheduling", message)))
    }

    /// Something about the pod could not be written. Where that may pass, it is decided about anew.
    fn ask_again(&mut self, key: &ObjectKey, refusal: &Refusal, now: Time) {
        if !matches!(refusal, Refusal::NotFound | Refusal::Conflict) {
            self.queue.postpone(key, now);
        }
    }
}

/// Of how many nodes that fit the best is taken: of all where they are few, of a smaller and smaller part where they are
/// many. Upstream: `numFeasibleNodesToFind`.
fn enough(nodes: usize) -> usize {
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(COMPARED_MIN)
}

/// Reasons with their counts, as text.
fn histogram(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut reasons: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

fn tell(pod: &Pod, event: plan::Event) -> EventRecord {
    let about = ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        key: pod.key.clone(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version,
    };
    EventRecord { about, event }
}

#[cfg(test)]
mod tests;
