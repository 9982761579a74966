//! What must hold, checked on the authoritative state: W when a controller plans and writes, S after every step, L after
//! faults have stopped. The ids are those of the invariants' list in ARCHITECTURE.md.

pub mod liveness;
pub mod oracle;
mod plans;
mod states;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::execution::{Call, Outcome, Refusal};
use muster_engine::daemonset::facts::{Kind, Set, Watched};
use muster_engine::daemonset::plan::Plan;

use crate::faults::WriteFault;
use crate::server::{Actor, Commit, Server};

/// An invariant that was broken, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub invariant: &'static str,
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

/// What a write was decided on.
#[derive(Clone, Debug)]
pub struct Decided {
    pub replica: usize,
    pub life: u64,
    pub snapshot: BTreeMap<Kind, u64>,
    /// What the replica's clock said.
    pub clock: Time,
    pub plan: Arc<Plan>,
    /// UID and deletion of the set as read past the caches, where that was done.
    pub rechecked: Option<(Text, bool)>,
}

/// One retry of two seconds, a slow network, and a little.
const LEASE_TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// How long what a late writer broke may take to heal.
const HEALED_WITHIN: Duration = Duration::from_secs(90);

/// The shortest wait after a write that failed.
const RETRIED_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Checks {
    pub violation: Option<Violation>,
    /// Who holds the lease, and until when an earlier holder's late writes excuse what they broke.
    holder: Option<(usize, u64)>,
    rogue_until: Option<Time>,
    /// Cells in which somebody else put or changed pods, or whose set changed its strategy: two pods may be there.
    excused: BTreeSet<(Text, Text)>,
    /// Available pods that a rollout took, by set and node, until one is available there again; with the revision that
    /// was being rolled out.
    taken: BTreeMap<(Text, Text), Text>,
    /// Writes that the server has acknowledged, by replica and set.
    acknowledged: BTreeMap<(usize, Text), Acknowledged>,
    /// Deletes of finished pods: by replica's life, set, generation and node, when and how long the wait was.
    failures: BTreeMap<Failing, (Time, u32)>,
    /// Creates of acts under way, by set: for slow start.
    batches: BTreeMap<(usize, ObjectKey), Batches>,
    /// Since when the lease has been free while somebody could have taken it.
    lease_free_since: Option<Time>,
    /// A clock was set: from then on no lease tells two leaders apart.
    clock_was_set: bool,
    /// Nothing goes wrong in this run, not even once.
    pub calm: bool,
    /// When a write last failed, by process and set, and at which generation.
    failed_at: BTreeMap<(usize, u64, Text), (Time, i64)>,
    /// Most creates, and most deletes, of one plan.
    pub burst: usize,
    /// Writes by controllers, for whoever asks whether all is quiet.
    pub controller_writes: u64,
    /// Creates and deletes of pods by controllers, by node: what two runs are compared by.
    pub summary: BTreeMap<(Text, &'static str), u64>,
}

/// Replica and life, the set's UID and generation, the node.
type Failing = (usize, u64, Text, i64, Text);

#[derive(Debug, Default)]
struct Acknowledged {
    wrote: BTreeMap<Kind, u64>,
    deleted: BTreeMap<Text, ObjectKey>,
}

#[derive(Debug, Default)]
struct Batches {
    in_flight: usize,
    batch: usize,
    sent_in_batch: usize,
    failed: bool,
    status_puts: usize,
    status_refused: bool,
}

impl Checks {
    pub fn fail(&mut self, invariant: &'static str, detail: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, detail: detail() });
        }
    }

    fn is_excused(&self, now: Time) -> bool {
        self.rogue_until.is_some_and(|until| now <= until)
    }

    /// A process has died: what it remembered is gone.
    pub fn forget_replica(&mut self, replica: usize) {
        self.acknowledged.retain(|(it, _), _| *it != replica);
        self.batches.retain(|(it, _), _| *it != replica);
    }

    /// Waits that were measured with the old clock say nothing any more, and no lease tells two leaders apart.
    pub fn clock_stepped(&mut self, replica: usize) {
        self.clock_was_set = true;
        self.failures.retain(|(it, ..), _| *it != replica);
    }

    pub fn renewed(&mut self, by: (usize, u64)) {
        self.holder = Some(by);
    }

    /// W12: the lease outlasts every write that was sent under it, unless clocks were set.
    pub fn check_leader(&mut self, replica: usize, leads: bool, now: Time) {
        if leads {
            return;
        }
        if !self.clock_was_set {
            let holder = self.holder;
            self.fail("W12", || format!("replica {replica} writes while {holder:?} leads"));
        }
        self.rogue_until = Some(now + HEALED_WITHIN);
    }

    /// Whether a replica holds the lease, as far as the server knows.
    pub fn holds_lease(&self, replica: usize) -> bool {
        self.holder.is_some_and(|(it, _)| it == replica)
    }

    /// L10: a lease that has run out is taken within one retry of whoever is there to take it.
    pub fn check_lease(&mut self, free: bool, somebody: bool, now: Time) {
        if !free || !somebody {
            self.lease_free_since = None;
            return;
        }
        let since = *self.lease_free_since.get_or_insert(now);
        if since + LEASE_TAKEN_WITHIN < now {
            self.fail("L10", || format!("the lease has been free since {since:?}, and nobody takes it"));
        }
    }

    pub fn committed(&mut self, server: &Server, commit: &Commit, now: Time) {
        self.note_up_again(server, commit, now);
        self.note_strangers(server, commit);
        self.check_commit(server, commit, now);
    }

    pub fn begun(&mut self, decided: &Decided) {
        self.check_retry(decided);
        let key = (decided.replica, decided.plan.set.key.clone());
        self.batches.insert(key, Batches { batch: 1, ..Batches::default() });
    }

    pub fn finished(&mut self, server: &Server, decided: &Decided) {
        let set = &decided.plan.set;
        let batches = self.batches.remove(&(decided.replica, set.key.clone()));
        // L2: a status that was refused because somebody was faster is written again in the same round.
        let lives = server.sets.get(&set.key).is_some_and(|it| it.uid == set.uid && !it.deleting);
        if self.calm && lives && batches.is_some_and(|it| it.status_refused && it.status_puts == 1) {
            self.fail("L2", || format!("{}: a refused status was not written again", set.key));
        }
    }

    /// `cached`: the sets that the plan was made from.
    pub fn planned<'a>(
        &mut self,
        server: &Server,
        cached: impl Iterator<Item = &'a Arc<Set>>,
        decided: &Decided,
    ) {
        self.check_gate(server, decided.replica, &decided.plan, &decided.snapshot);
        self.check_cache(server, cached, &decided.snapshot);
        if !decided.plan.is_idle() {
            self.check_plan(server, &decided.plan, &decided.snapshot, decided.clock);
        }
    }

    /// The server's answer is on its way: from now on the replica may be held to it.
    pub fn answered(&mut self, decided: &Decided, call: &Call, outcome: &Outcome, fault: Option<WriteFault>) {
        let lost = matches!(
            fault,
            Some(WriteFault::LostApplied | WriteFault::CrashAfter | WriteFault::ServerApplied)
        );
        let failed = matches!(
            outcome,
            Outcome::Refused(
                Refusal::Forbidden(_)
                    | Refusal::Invalid(_)
                    | Refusal::Server(_)
                    | Refusal::TooManyRequests { .. }
            )
        );
        if failed && !matches!(call, Call::PutStatus { .. }) {
            let set = &decided.plan.set;
            let id = (decided.replica, decided.life, set.uid.clone());
            self.failed_at.insert(id, (decided.clock, set.generation));
        }
        if lost || matches!(outcome, Outcome::Refused(_)) {
            return;
        }
        let entry = self.acknowledged.entry((decided.replica, decided.plan.set.uid.clone())).or_default();
        match (call, outcome) {
            (Call::DeletePod { pod, .. }, Outcome::Deleted) => {
                entry.deleted.insert(pod.uid.clone(), pod.key.clone());
            }
            (_, Outcome::Wrote { resource_version, .. }) => {
                let kind = kind_of(call);
                let highest = entry.wrote.entry(kind).or_default();
                *highest = (*highest).max(*resource_version);
            }
            _ => {}
        }
    }

    /// A node whose pod was up until now, or which somebody else has touched, is no longer down by our hand.
    fn note_up_again(&mut self, server: &Server, commit: &Commit, now: Time) {
        let Some(Watched::Pod(before)) = server.at(Kind::Pods, &commit.key, commit.revision - 1) else {
            return;
        };
        let (Some(owner), Some(node)) = (before.owner.clone(), before.target.clone()) else { return };
        if commit.kind != Kind::Pods || matches!(commit.actor, Actor::Controller(_)) {
            return;
        }
        let set = server.sets.values().find(|it| it.uid == owner);
        let was_up = set.is_some_and(|set| oracle::available(set, before, now));
        if was_up || matches!(commit.actor, Actor::User | Actor::Garbage) {
            self.taken.remove(&(owner, node));
        }
    }

    /// W14: after a write that failed, the next round waits.
    fn check_retry(&mut self, decided: &Decided) {
        let set = &decided.plan.set;
        let id = (decided.replica, decided.life, set.uid.clone());
        let Some((at, generation)) = self.failed_at.remove(&id) else { return };
        let waited = decided.clock.since(at);
        if waited < RETRIED_AFTER && generation == set.generation && !self.clock_was_set {
            self.fail("W14", || format!("{} is tried again after {waited:?}", set.key));
        }
    }

    /// A set takes pods over as they stand, two on a node among them; the surplus goes next.
    fn note_adoption(&mut self, server: &Server, commit: &Commit) {
        let before = server.at(Kind::Pods, &commit.key, commit.revision.saturating_sub(1));
        let (Some(Watched::Pod(before)), Some(Watched::Pod(now))) = (before, &commit.fact) else { return };
        if let (None, Some(owner), Some(node)) = (&before.owner, &now.owner, &now.target) {
            self.excused.insert((owner.clone(), node.clone()));
        }
    }

    /// Remembers where others than the controllers have put pods.
    fn note_strangers(&mut self, server: &Server, commit: &Commit) {
        if let Actor::Controller(_) = commit.actor {
            self.controller_writes += 1;
            self.note_adoption(server, commit);
            return;
        }
        if !matches!(commit.actor, Actor::User | Actor::Garbage) {
            return;
        }
        match commit.kind {
            Kind::Pods => {
                let target = server.pods.get(&commit.key).and_then(|it| it.target.clone());
                let Some(node) = target else { return };
                for set in server.sets.values() {
                    self.excused.insert((set.uid.clone(), node.clone()));
                }
            }
            Kind::Sets => {
                let Some(set) = server.sets.get(&commit.key) else { return };
                let before = server.at(Kind::Sets, &commit.key, commit.revision.saturating_sub(1));
                let same = match before {
                    Some(Watched::Set(it)) => it.uid != set.uid || it.rollout == set.rollout,
                    _ => true,
                };
                if same {
                    return;
                }
                for node in server.nodes.keys() {
                    self.excused.insert((set.uid.clone(), node.clone()));
                }
            }
            Kind::Nodes | Kind::Revisions => {}
        }
    }
}

fn kind_of(call: &Call) -> Kind {
    use muster_engine::daemonset::plan::Claim;
    match call {
        Call::Step(_) | Call::DeleteRevision { .. } | Call::ReadRevision { .. } => Kind::Revisions,
        Call::Claim(Claim::AdoptRevision(_) | Claim::ReleaseRevision(_)) => Kind::Revisions,
        Call::PutStatus { .. } | Call::ReadSet => Kind::Sets,
        _ => Kind::Pods,
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(_))
}

fn is_wait(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NamespaceTerminating)
}

fn describe(set: &Set) -> String {
    set.key.to_string()
}
