//! Carrying a plan out, call by call: a plan and the outcome of each call give the next call.
//!
//! Slow start, what each error means, when to read before writing: all of it is decided here, so that it is simulated
//! and mutated like every other rule. A shell asks [`Act::next`], makes the call, and hands the [`Outcome`] back.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::daemonset::expectations::Gate;
use crate::daemonset::facts::{Kind, Pod, Revision, Set, Status};
use crate::daemonset::plan::{Claim, Event, Plan, Step};
use crate::daemonset::why::Why;

/// One call to the API server. `manifest` has the bodies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// GET of the set, not from a cache.
    ReadSet,
    /// LIST of the set's pods by its selector, not from a cache.
    ListPods,
    /// GET of a revision by name, not from a cache.
    ReadRevision {
        name: Text,
    },
    Claim(Claim),
    Step(Step),
    RelabelPod {
        pod: Arc<Pod>,
        hash: Text,
    },
    DeletePod {
        pod: Arc<Pod>,
        why: Why,
    },
    CreatePod {
        node: Text,
        hash: Text,
        why: Why,
    },
    DeleteRevision {
        revision: Arc<Revision>,
    },
    /// PUT of the status, computed from this version of the set.
    PutStatus {
        of: Arc<Set>,
        status: Status,
    },
}

/// What the API server said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Wrote {
        name: Text,
        resource_version: u64,
    },
    Deleted,
    Set(Arc<Set>),
    /// `None`: something that is no DaemonSet has it.
    Revision(Option<Arc<Revision>>),
    /// UID, resource version and whether it is being deleted.
    Pods(Vec<(Text, u64, bool)>),
    Refused(Refusal),
}

/// The ways a call fails, sorted by what follows from them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    NotFound,
    AlreadyExists,
    /// 409: the object has changed, or is another one of that name.
    Conflict,
    /// 403, quota among them.
    Forbidden(String),
    /// 422
    Invalid(String),
    /// 429
    TooManyRequests {
        retry_after: Option<Duration>,
    },
    /// 5xx: done or not, nobody knows.
    Server(String),
    /// No answer: done or not, nobody knows.
    NoAnswer,
    NamespaceTerminating,
}

impl Refusal {
    /// How long the server asked us to wait, within reason.
    pub(crate) fn asks_to_wait(&self) -> Duration {
        match self {
            Self::TooManyRequests { retry_after } => retry_after.unwrap_or_default().min(RETRY_AFTER_MAX),
            _ => Duration::ZERO,
        }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::AlreadyExists => f.write_str("already exists"),
            Self::Conflict => f.write_str("the object has changed"),
            Self::Forbidden(message) | Self::Invalid(message) | Self::Server(message) => f.write_str(message),
            Self::TooManyRequests { .. } => f.write_str("too many requests"),
            Self::NoAnswer => f.write_str("no answer in time"),
            Self::NamespaceTerminating => f.write_str("the namespace is being terminated"),
        }
    }
}

/// What became of the last pods that were to be created.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Creates {
    /// None was tried yet.
    #[default]
    Unknown,
    WentWell,
    /// The API server refuses them, and says why.
    Refused(Text),
    /// The API server fails, which may be over soon.
    Failed(Text),
    /// The namespace is being deleted: no pod can be created in it again, so later refusals add nothing.
    NamespaceTerminating,
}

impl Creates {
    /// Rule: a create that policy refuses (a missing account, quota, priority class, Pod Security) stays refused until somebody
    /// changes something, so its reason is worth telling; one that got no answer, or came too early, says nothing of the pod.
    fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Forbidden(_) | Refusal::Invalid(_) | Refusal::NotFound => Self::Refused(reason(refusal)),
            Refusal::Server(_) => Self::Failed(reason(refusal)),
            Refusal::NamespaceTerminating => Self::NamespaceTerminating,
            Refusal::AlreadyExists
            | Refusal::Conflict
            | Refusal::TooManyRequests { .. }
            | Refusal::NoAnswer => Self::Unknown,
        }
    }
}

/// Most bytes of a reason that are kept: a condition is no place for a page of text.
const REASON_BYTES_MAX: usize = 512;

/// A message without the name of the pod, which is another one each time.
fn reason(refusal: &Refusal) -> Text {
    let message = format!("{refusal}");
    let from = ["\" is forbidden: ", "\" is invalid: "];
    let from = from.iter().filter_map(|it| Some(message.find(it)? + it.len())).min().unwrap_or(0);
    let reason = &message[from..];
    let mut until = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(until) {
        until -= 1;
    }
    Text::from(&reason[..until])
}

/// What the shell does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Make this call; more may follow at once.
    Call(Call),
    /// Nothing more until one of the calls under way has come back.
    Wait,
    Done,
}

/// A plan being carried out.
#[derive(Debug)]
pub struct Act {
    plan: Plan,
    stage: Stage,
    ready: VecDeque<Call>,
    under_way: usize,
    /// How many creates the next batch has, and where it starts.
    batch: usize,
    at: usize,
    batch_failed: bool,
    failed: bool,
    /// Something that the pods depend on failed: nothing after it is tried.
    stopped: bool,
    status_tries: u8,
    report: Report,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Confirm,
    Recheck,
    Claim,
    Steps,
    Relabel,
    Delete,
    Create,
    Prune,
    Status,
    Done,
}

/// How it went: for the gate, for the back-off, and for whoever records events.
#[derive(Debug, Default)]
pub struct Report {
    pub(crate) uid: Text,
    wrote: Vec<(Kind, u64)>,
    deleted: Vec<Arc<Pod>>,
    pruned: Vec<Arc<Revision>>,
    doubt: bool,
    doubted: Vec<Arc<Pod>>,
    confirmed: Option<Vec<(Text, u64, bool)>>,
    /// Nodes whose finished pod was deleted: the next failure there waits longer.
    pub(crate) failed_on: Vec<Text>,
    /// Try again, no sooner than this.
    pub(crate) retry: Option<Duration>,
    pub(crate) creates: Creates,
    pub events: Vec<Event>,
}

impl Report {
    /// Nobody knows how it went: whatever was begun may have been done.
    pub fn unknown(set: &Set) -> Self {
        Self { uid: set.uid.clone(), doubt: true, retry: Some(Duration::ZERO), ..Self::default() }
    }

    pub(crate) fn tell(&self, gate: &mut Gate, now: Time) {
        if let Some(pods) = &self.confirmed {
            gate.confirmed(pods, now);
        }
        for (kind, resource_version) in &self.wrote {
            gate.wrote(*kind, *resource_version);
        }
        self.deleted.iter().for_each(|pod| gate.deleted(pod));
        self.pruned.iter().for_each(|revision| gate.pruned(revision));
        self.doubted.iter().for_each(|pod| gate.doubt_delete(pod));
        if self.doubt {
            gate.doubt();
        }
    }

    /// Nodes on which a pod was deleted.
    pub(crate) fn deleted_on(&self) -> impl Iterator<Item = &Text> {
        self.deleted.iter().filter_map(|it| it.target.as_ref())
    }

    pub(crate) fn wrote_status(&self) -> bool {
        self.wrote.iter().any(|(kind, _)| *kind == Kind::Sets)
    }

    /// Whether the API server was asked what there is.
    pub(crate) fn confirms(&self) -> bool {
        self.confirmed.is_some()
    }

    fn retry(&mut self, after: Duration) {
        self.retry = Some(self.retry.unwrap_or_default().max(after));
    }
}

/// A namespace that is being deleted takes the set along: it is only looked at again in case it does not.
const NAMESPACE_TERMINATING_RETRY: Duration = Duration::from_secs(60);
/// Longest that a server may make us wait with Retry-After.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

impl Act {
    pub fn new(plan: Plan) -> Self {
        let report = Report { uid: plan.set.uid.clone(), events: plan.events.clone(), ..Report::default() };
        Self {
            plan,
            stage: Stage::Confirm,
            ready: VecDeque::new(),
            under_way: 0,
            batch: 1,
            at: 0,
            batch_failed: false,
            failed: false,
            stopped: false,
            status_tries: 0,
            report,
        }
        .entered()
    }

    pub fn key(&self) -> &ObjectKey {
        &self.plan.set.key
    }

    pub fn set(&self) -> &Arc<Set> {
        &self.plan.set
    }

    #[expect(clippy::should_implement_trait, reason = "`Wait` is no end: it comes before more calls")]
    pub fn next(&mut self) -> Next {
        loop {
            if let Some(call) = self.ready.pop_front() {
                self.under_way += 1;
                return Next::Call(call);
            }
            if 0 < self.under_way {
                return Next::Wait;
            }
            if self.stage == Stage::Done {
                return Next::Done;
            }
            self.advance();
        }
    }

    pub fn finish(self) -> Report {
        self.report
    }

    fn entered(mut self) -> Self {
        self.fill();
        self
    }

    /// The next batch of this stage, or the next stage.
    fn advance(&mut self) {
        let more = self.at < self.plan.create.len() && !self.batch_failed && !self.stopped;
        if self.stage == Stage::Create && more {
            return self.fill();
        }
        self.stage = match self.stage {
            Stage::Confirm => Stage::Recheck,
            Stage::Recheck => Stage::Claim,
            Stage::Claim => Stage::Steps,
            Stage::Steps => Stage::Relabel,
            Stage::Relabel => Stage::Delete,
            Stage::Delete => Stage::Create,
            Stage::Create => Stage::Prune,
            Stage::Prune => Stage::Status,
            Stage::Status | Stage::Done => Stage::Done,
        };
        self.fill();
    }

    /// Rule: first find out what there is, then claim it, then settle the history, then the pods, the status last.
    /// Where the first of these fail the rest is not tried; where pods fail the status still says what is true.
    fn fill(&mut self) {
        let plan = &self.plan;
        if self.stopped {
            return;
        }
        match self.stage {
            Stage::Confirm if plan.confirm => self.ready.push_back(Call::ListPods),
            // Rule: before the first adoption the set is read anew, past every cache: it may have been deleted with its
            // pods orphaned on purpose. Upstream: `RecheckDeletionTimestamp`.
            Stage::Recheck if plan.claims.iter().any(Claim::adopts) => {
                self.ready.push_back(Call::ReadSet);
            }
            Stage::Claim => self.ready.extend(plan.claims.iter().cloned().map(Call::Claim)),
            Stage::Steps => self.ready.extend(plan.steps.iter().cloned().map(Call::Step)),
            Stage::Relabel => {
                let relabel = plan.relabel.iter().cloned();
                self.ready.extend(relabel.map(|(pod, hash)| Call::RelabelPod { pod, hash }));
            }
            Stage::Delete => {
                let delete = plan.delete.iter().cloned();
                self.ready.extend(delete.map(|(pod, why)| Call::DeletePod { pod, why }));
            }
            Stage::Create => self.fill_batch(),
            Stage::Prune => {
                let prune = plan.prune.iter().cloned();
                self.ready.extend(prune.map(|revision| Call::DeleteRevision { revision }));
            }
            Stage::Status => {
                if let Some(status) = plan.status.clone() {
                    self.ready.push_back(Call::PutStatus { of: plan.set.clone(), status });
                }
            }
            Stage::Confirm | Stage::Recheck | Stage::Done => {}
        }
    }

    /// Rule: creates go in batches of 1, 2, 4 …, and stop after the first batch in which one fails: a quota or a bad
    /// template costs one refused call, not one per node.
    fn fill_batch(&mut self) {
        let left = self.plan.create.len() - self.at;
        let batch = self.batch.min(left);
        for (node, why) in &self.plan.create[self.at..self.at + batch] {
            let hash = self.plan.hash.clone();
            self.ready.push_back(Call::CreatePod { node: node.clone(), hash, why: why.clone() });
        }
        self.at += batch;
        self.batch = batch.max(1) * 2;
        self.batch_failed = false;
    }

    /// Takes in what the API server said to a call.
    pub fn outcome(&mut self, call: &Call, outcome: Outcome) {
        self.under_way -= 1;
        match outcome {
            Outcome::Refused(refusal) => self.refused(call, &refusal),
            outcome => self.went_well(call, outcome),
        }
    }

    fn went_well(&mut self, call: &Call, outcome: Outcome) {
        match (call, outcome) {
            (Call::ListPods, Outcome::Pods(pods)) => self.report.confirmed = Some(pods),
            (Call::ReadSet, Outcome::Set(set)) => self.read_set(&set),
            (Call::ReadRevision { .. }, Outcome::Revision(revision)) => {
                self.read_revision(revision.as_deref())
            }
            (Call::Claim(claim), Outcome::Wrote { resource_version, .. }) => {
                self.report.wrote.push((kind_of(claim), resource_version));
            }
            (Call::Step(_), Outcome::Wrote { resource_version, .. }) => {
                self.report.wrote.push((Kind::Revisions, resource_version));
            }
            (Call::RelabelPod { .. }, Outcome::Wrote { resource_version, .. }) => {
                self.report.wrote.push((Kind::Pods, resource_version));
            }
            (Call::CreatePod { .. }, Outcome::Wrote { name, resource_version }) => {
                self.report.wrote.push((Kind::Pods, resource_version));
                if self.report.creates == Creates::Unknown {
                    self.report.creates = Creates::WentWell;
                }
                self.report.events.push(Event::normal("SuccessfulCreate", format!("Created pod: {name}")));
            }
            (Call::DeletePod { pod, why }, Outcome::Deleted | Outcome::Wrote { .. }) => {
                self.report.deleted.push(pod.clone());
                self.note_finished(pod, why);
                let message = format!("Deleted pod: {}", pod.key.name);
                self.report.events.push(Event::normal("SuccessfulDelete", message));
            }
            (Call::PutStatus { .. }, Outcome::Wrote { resource_version, .. }) => {
                self.report.wrote.push((Kind::Sets, resource_version));
            }
            (Call::DeleteRevision { revision }, Outcome::Deleted | Outcome::Wrote { .. }) => {
                self.report.pruned.push(revision.clone());
            }
            _ => {}
        }
    }

    /// Rule: what each refusal means. Gone is as good as deleted; changed means look again; a name that is taken is
    /// looked at; a write without an answer is found out about before the next plan; the rest is tried again later.
    fn refused(&mut self, call: &Call, refusal: &Refusal) {
        if let Call::PutStatus { .. } = call {
            return self.status_refused(refusal);
        }
        match (call, refusal) {
            (Call::Step(Step::Create { name, .. }), Refusal::AlreadyExists) => {
                self.ready.push_back(Call::ReadRevision { name: name.clone() });
                return;
            }
            (Call::DeletePod { pod, why }, Refusal::NotFound) => {
                self.note_finished(pod, why);
                return self.report.deleted.push(pod.clone());
            }
            // The pod, or what it was, has changed since we looked: the watch will show it, and nothing was done.
            (Call::DeletePod { .. } | Call::DeleteRevision { .. }, Refusal::Conflict) => {
                self.failed = true;
                return self.report.retry(Duration::ZERO);
            }
            (Call::DeleteRevision { revision }, Refusal::NotFound) => {
                return self.report.pruned.push(revision.clone());
            }
            // Behind a 5xx the store may have done it all the same, as when only its answer was late.
            (Call::DeletePod { pod, why }, Refusal::NoAnswer | Refusal::Server(_)) => {
                self.note_finished(pod, why);
                self.report.doubted.push(pod.clone());
            }
            (Call::CreatePod { .. }, Refusal::NoAnswer | Refusal::Server(_)) => self.report.doubt = true,
            (Call::CreatePod { .. }, Refusal::NamespaceTerminating) => {
                self.batch_failed = true;
                self.report.creates = Creates::of(refusal);
                return self.report.retry(NAMESPACE_TERMINATING_RETRY);
            }
            _ => {}
        }
        self.fail();
        if let Call::CreatePod { .. } = call {
            self.batch_failed = true;
            let creates = Creates::of(refusal);
            if creates != Creates::Unknown {
                self.report.creates = creates;
            }
        }
        self.report.retry(refusal.asks_to_wait());
        self.tell_failure(call, refusal);
    }

    fn fail(&mut self) {
        self.failed = true;
        self.stopped |= self.stage < Stage::Delete;
    }

    fn note_finished(&mut self, pod: &Pod, why: &Why) {
        if let (Why::Failed { .. } | Why::Succeeded, Some(node)) = (why, &pod.target) {
            self.report.failed_on.push(node.clone());
        }
    }

    fn tell_failure(&mut self, call: &Call, refusal: &Refusal) {
        let event = match call {
            Call::CreatePod { node, .. } => {
                Event::warning("FailedCreate", format!("Error creating: pod for node {node}: {refusal}"))
            }
            Call::DeletePod { pod, .. } => {
                Event::warning("FailedDelete", format!("Error deleting: pod {}: {refusal}", pod.key.name))
            }
            Call::Step(Step::Create { name, .. }) => {
                Event::warning("FailedCreate", format!("Error creating: revision {name}: {refusal}"))
            }
            _ => return,
        };
        self.report.events.push(event);
    }

    /// Read for an adoption, for a status that was refused, or for a name that was taken.
    fn read_set(&mut self, fresh: &Arc<Set>) {
        let same = fresh.uid == self.plan.set.uid && !fresh.deleting;
        match self.stage {
            Stage::Recheck if same => {}
            Stage::Steps if same => self.bump_collisions(fresh),
            Stage::Status if same => self.put_status_again(fresh),
            // Deleted, or another one of its name: nothing more is done for the old one until the watch shows it, or pods
            // would be made for an owner that is gone.
            _ => {
                self.report.wrote.push((Kind::Sets, fresh.resource_version));
                self.fail();
                self.report.retry(Duration::ZERO);
            }
        }
    }

    /// Rule: a revision of that name with the very data is the one we wanted, made earlier by us, or one that we shall
    /// adopt. One with other data, or somebody else's, is a collision: the set's collision count goes up by one and the
    /// name changes. Either way the cache will show more, and is given time to: one that is being deleted is there for as
    /// long as a finalizer likes.
    fn read_revision(&mut self, found: Option<&Revision>) {
        let set = &self.plan.set;
        let ours = |it: &&Revision| {
            let owned = it.owner.as_ref().map(|uid| *uid == set.uid);
            owned.unwrap_or_else(|| set.selector.matches(&it.labels)) && it.data == set.template.data
        };
        match found.filter(ours) {
            Some(revision) => {
                self.report.wrote.push((Kind::Revisions, revision.resource_version));
                self.fail();
                self.report.retry(Duration::ZERO);
            }
            None => self.ready.push_back(Call::ReadSet),
        }
    }

    /// Rule: the count goes up only if the set still has the count that the name was made from.
    fn bump_collisions(&mut self, fresh: &Arc<Set>) {
        self.fail();
        self.report.retry(Duration::ZERO);
        if fresh.status.collisions != self.plan.set.status.collisions {
            return;
        }
        let mut status = fresh.status.clone();
        status.collisions = Some(status.collisions.unwrap_or(0).saturating_add(1));
        self.status_tries = 2;
        self.ready.push_back(Call::PutStatus { of: fresh.clone(), status });
    }

    /// Rule: a status that was refused is written once more on top of what is there now, unless somebody has said more
    /// than we know. Upstream: `StatusUpdateRetries`.
    fn status_refused(&mut self, refusal: &Refusal) {
        self.status_tries += 1;
        let hopeless = matches!(
            refusal,
            Refusal::NotFound | Refusal::Forbidden(_) | Refusal::Invalid(_) | Refusal::TooManyRequests { .. }
        );
        if self.status_tries < 2 && !hopeless {
            self.ready.push_back(Call::ReadSet);
            return;
        }
        self.fail();
        self.report.retry(refusal.asks_to_wait());
    }

    fn put_status_again(&mut self, fresh: &Arc<Set>) {
        let Some(mut status) = self.plan.status.clone() else { return };
        if status.observed_generation < fresh.status.observed_generation {
            return self.report.retry(Duration::ZERO);
        }
        status.collisions = fresh.status.collisions;
        status.raw.clone_from(&fresh.status.raw);
        self.ready.push_back(Call::PutStatus { of: fresh.clone(), status });
    }
}

fn kind_of(claim: &Claim) -> Kind {
    match claim {
        Claim::AdoptPod(_) | Claim::ReleasePod(_) => Kind::Pods,
        Claim::AdoptRevision(_) | Claim::ReleaseRevision(_) => Kind::Revisions,
    }
}
