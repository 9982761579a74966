//! The simulated cluster: API server, controller replicas, built-in controllers, kubelets and users. A queue of tasks
//! drives the cluster on one thread with simulated time. The same seed always produces the same run.

/// Random faults.
mod chaos;
/// Steps of the built-in controllers.
mod controller_steps;
/// Runs the cluster until it has converged.
mod convergence;
/// Nodes and their kubelets.
mod nodes;
/// Rollout policies, and the actions of operators on progressive rollouts.
mod operators;
/// Replicas of the DaemonSet controller.
pub mod replica;
/// The second, lagging API server: which server handles a request, and how clients move between the servers.
mod servers;
/// Execution of user actions.
mod users;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::facts::Kind;
use muster_engine::daemonset::plan::Settings;
use muster_engine::scenario;

use self::convergence::CONVERGENCE_TIMEOUT;
use self::replica::{LeaderLease, Replica};
use crate::controllers::{self, ControllerProcess, ControllerStep, SimController};
use crate::faults::{FaultRates, InjectedFault, RequestFault};
use crate::invariants::{InvariantChecks, Violation};
use crate::kubelet::{ImageBehaviour, Kubelet};
use crate::lagging_server::{LaggingServer, ServerId};
use crate::rng::Rng;
use crate::server::SimServer;
use crate::trace::Trace;
use crate::user_action::FaultTrigger;

/// A scheduled task of the simulation. `replica` is an index in [`World::replicas`], and `call` is an index in
/// `Replica::calls`. A task with a process number is ignored if the process has crashed since, except
/// `HandleRequest` and the start of a built-in controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimTask {
    /// Delivers the next watch event of a kind to a replica's cache.
    DeliverEvent { replica: usize, process_number: u64, kind: Kind },
    /// A replica reconciles the next key of its work queue.
    Reconcile { replica: usize, process_number: u64 },
    /// A replica's request reaches the API server.
    HandleRequest { replica: usize, process_number: u64, call: usize },
    /// The API server's response reaches the replica.
    DeliverResponse { replica: usize, process_number: u64, call: usize },
    /// A list that a replica has requested reaches the replica, if the API server has the state that the list must
    /// contain.
    ReceiveList { replica: usize, process_number: u64, kind: Kind },
    /// The lagging API server acknowledges a write of a replica. The server had committed the write earlier, and its
    /// state now contains the write. If the server was killed in between, or the acknowledgement comes too late, the
    /// write gets no response.
    AcknowledgeWrite { replica: usize, process_number: u64, call: usize },
    /// The timer for the next reconcile of a set fires.
    FireTimer { replica: usize, process_number: u64, key: ObjectKey },
    /// A replica renews the Lease if it holds the Lease, and tries to acquire it otherwise.
    RenewLease { replica: usize, process_number: u64 },
    /// A replica starts after a crash.
    StartReplica { replica: usize },
    /// A frozen replica resumes.
    ResumeReplica { replica: usize },
    /// The kubelet of a node runs an iteration of its sync loop.
    SyncKubelet(Text),
    /// All live nodes send their heartbeats.
    SendHeartbeats,
    /// A built-in controller executes a step.
    ControllerStep { controller: SimController, process_number: u64, step: ControllerStep },
    /// The watches of all replicas that run and are not frozen receive a bookmark, except watches with pending events.
    SendBookmarks,
    /// The lagging API server applies some of the commits that it misses.
    CatchUp,
    /// A killed API server starts again.
    StartServer(ServerId),
    /// Injects random faults into nodes and processes, and executes random user actions.
    InjectFaults,
}

/// Maximum number of executed tasks in a run that uses [`World::run_for`]. A normal run takes some thousands of tasks,
/// so a run that exceeds this maximum has a hot loop.
const RUN_STEPS_MAX: u64 = 100_000;

/// The simulated cluster.
#[derive(Debug)]
pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub server: SimServer,
    /// The second API server. `None` in a cluster with one server.
    pub lagging: Option<LaggingServer>,
    pub replicas: Vec<Replica>,
    pub controllers: BTreeMap<SimController, Box<dyn ControllerProcess>>,
    /// The Lease of the DaemonSet controller's leader election.
    pub lease: LeaderLease,
    pub kubelets: BTreeMap<Text, Kubelet>,
    /// Behaviour of the containers of each image.
    pub image_behaviours: BTreeMap<String, ImageBehaviour>,
    /// Probabilities of random faults.
    pub fault_rates: FaultRates,
    /// The injected fault of this run, if it has one, in addition to the random faults.
    pub injected_fault: InjectedFault,
    /// Settings of the DaemonSet controller.
    pub settings: Settings,
    pub checks: InvariantChecks,
    pub trace: Trace,
    /// Number of Kubernetes Events that the DaemonSet controller recorded, by reason.
    pub events: BTreeMap<String, usize>,
    /// Scheduled tasks, by time and sequence number.
    tasks: BTreeMap<(Time, u64), SimTask>,
    /// Tasks that wait until the lagging server has reached a revision, by this revision and by sequence number.
    waiting_tasks: BTreeMap<(u64, u64), SimTask>,
    /// Sequence number of the last task. It orders tasks at the same time and tasks that wait for the same revision.
    sequence: u64,
    /// Number of commits that [`World::process_new_commits`] has processed.
    processed_commits: usize,
    /// Number of write requests of the DaemonSet controller so far, including those that failed. An [`InjectedFault`]
    /// selects a write by this number.
    pub writes: usize,
    /// Number of watch events that were delivered to replicas so far. An [`InjectedFault`] selects an event by this
    /// number.
    pub deliveries: usize,
    /// Time of each kubelet's next scheduled sync.
    pub kubelet_sync_due: BTreeMap<Text, Time>,
    /// Whether the scheduler is switched on.
    pub scheduler_runs: bool,
    /// Whether the garbage collector is switched on.
    pub garbage_collector_runs: bool,
    /// Whether random user actions include those of operators on progressive rollouts and their policies.
    pub has_policies: bool,
    /// Number of random user actions that may still be executed.
    pub user_actions_left: u64,
    /// Maximum number of executed tasks in the whole run. A run with more tasks has a hot loop. [`World::run_for`] has
    /// a lower maximum.
    pub steps_max: u64,
    /// Time within which [`World::run_until_converged`] expects the cluster to converge.
    pub convergence_timeout: Duration,
    /// A fault from the script of a case. The next write of the DaemonSet controller that the trigger selects gets the
    /// fault, whatever the fault rates. `None` if no such fault is pending.
    pub next_fault: Option<(FaultTrigger, RequestFault)>,
}

impl World {
    /// Returns an empty cluster with this number of replicas of the DaemonSet controller. Nothing is started.
    pub fn new(seed: u64, replicas: usize, fault_rates: FaultRates) -> Self {
        let start = Time::from_secs(scenario::EPOCH_S + 1000);
        let mut rng = Rng::new(seed);
        let skew_s = fault_rates.skew_s;
        let mut world = Self {
            now: start,
            server: SimServer::default(),
            lagging: None,
            replicas: (0..replicas).map(|_| Replica::new(&mut rng, skew_s)).collect(),
            controllers: controllers::all_controllers(),
            lease: LeaderLease::default(),
            kubelets: BTreeMap::new(),
            image_behaviours: BTreeMap::new(),
            fault_rates,
            injected_fault: InjectedFault::default(),
            settings: Settings::default(),
            checks: InvariantChecks::default(),
            trace: Trace::default(),
            events: BTreeMap::new(),
            tasks: BTreeMap::new(),
            waiting_tasks: BTreeMap::new(),
            sequence: 0,
            processed_commits: 0,
            writes: 0,
            deliveries: 0,
            kubelet_sync_due: BTreeMap::new(),
            scheduler_runs: true,
            garbage_collector_runs: true,
            has_policies: false,
            user_actions_left: 0,
            steps_max: 2_000_000,
            convergence_timeout: CONVERGENCE_TIMEOUT,
            next_fault: None,
            rng,
        };
        world.server.set_now(start);
        world
    }

    /// Starts all processes. The first list of each controller contains the objects that were created before this call.
    pub fn start_processes(&mut self) {
        if let Some(lagging) = &mut self.lagging {
            lagging.apply_commits(&self.server, u64::MAX);
        }
        self.checks.burst = self.settings.burst;
        for replica in 0..self.replicas.len() {
            self.start_replica(replica);
        }
        self.schedule_after(Duration::from_millis(10), SimTask::SendHeartbeats);
        for controller in self.controllers.keys().copied().collect::<Vec<_>>() {
            let delay = self.random_delay();
            self.schedule_after(
                delay,
                SimTask::ControllerStep { controller, process_number: 0, step: ControllerStep::Start },
            );
        }
        self.schedule_after(Duration::from_secs(30), SimTask::SendBookmarks);
        self.schedule_after(Duration::from_millis(500), SimTask::InjectFaults);
        self.process_new_commits();
    }

    /// Schedules a task after a delay.
    pub fn schedule_after(&mut self, delay: Duration, task: SimTask) {
        self.sequence += 1;
        self.tasks.insert((self.now + delay, self.sequence), task);
    }

    /// Returns a random network latency, at most `FaultRates::lag_ms`.
    pub fn random_delay(&mut self) -> Duration {
        Duration::from_micros(self.rng.between(100, self.fault_rates.lag_ms.max(1) * 1000))
    }

    /// Executes the next task. Returns `false` if no task is scheduled.
    pub fn execute_next_task(&mut self) -> bool {
        let Some(((at, _), task)) = self.tasks.pop_first() else { return false };
        self.now = self.now.max(at);
        self.server.set_now(self.now);
        self.trace.record_step(self.now, &task);
        if self.steps_max < self.trace.steps {
            let steps = self.trace.steps;
            self.checks.report_violation("W14", || format!("{steps} steps without an end: a hot loop"));
        }
        match task {
            SimTask::DeliverEvent { replica, process_number, kind } => {
                self.deliver_event(replica, process_number, kind)
            }
            SimTask::Reconcile { replica, process_number } => {
                self.reconcile_next_key(replica, process_number)
            }
            SimTask::HandleRequest { replica, process_number, call } => {
                self.handle_replica_request(replica, process_number, call)
            }
            SimTask::DeliverResponse { replica, process_number, call } => {
                self.deliver_response(replica, process_number, call)
            }
            SimTask::ReceiveList { replica, process_number, kind } => {
                self.receive_list(replica, process_number, kind)
            }
            SimTask::AcknowledgeWrite { replica, process_number, call } => {
                self.acknowledge_write(replica, process_number, call)
            }
            SimTask::FireTimer { replica, process_number, key } => {
                self.fire_timer(replica, process_number, &key)
            }
            SimTask::RenewLease { replica, process_number } => self.renew_lease(replica, process_number),
            SimTask::StartReplica { replica } => self.start_replica(replica),
            SimTask::ResumeReplica { replica } => self.resume_replica(replica),
            SimTask::SyncKubelet(node) => self.sync_kubelet(&node),
            SimTask::SendHeartbeats => self.send_heartbeats(),
            SimTask::ControllerStep { controller, process_number, step } => {
                self.step_controller(controller, process_number, step)
            }
            SimTask::SendBookmarks => self.send_bookmarks(),
            SimTask::CatchUp => self.catch_up(),
            SimTask::StartServer(server) => self.start_server(server),
            SimTask::InjectFaults => self.inject_faults(),
        }
        self.process_new_commits();
        true
    }

    /// Schedules the delivery of new commits to watches and kubelets, and lets the lagging server follow the store.
    /// Checks invariants on these commits, on the store and on the Lease. Deletes the DaemonRollouts of deleted sets.
    pub fn process_new_commits(&mut self) {
        while let Some(commit) = self.server.log.get(self.processed_commits).cloned() {
            self.processed_commits += 1;
            let object = self.server.object_json(commit.kind, &commit.key);
            self.trace.record_commit(&commit, &object);
            self.checks.on_commit(&self.server, &commit, self.now);
            for replica in 0..self.replicas.len() {
                self.schedule_delivery(replica, commit.kind);
            }
            self.schedule_delivery_to_controllers(ServerId::Current, commit.kind);
            match commit.kind {
                // The garbage collector of the simulation does not watch DaemonRollouts.
                Kind::Sets if commit.fact.is_none() => self.garbage_collect_rollout(&commit.key),
                Kind::Rollouts if self.is_owner_gone(&commit.key) => {
                    self.garbage_collect_rollout(&commit.key)
                }
                Kind::Pods => {
                    let fact = match &commit.fact {
                        Some(muster_engine::daemonset::facts::WatchedObject::Pod(pod)) => {
                            pod.target.clone().filter(|_| pod.bound)
                        }
                        _ => None,
                    };
                    if let Some(node) = fact {
                        self.schedule_kubelet_sync(&node);
                    }
                }
                Kind::Nodes => {
                    self.schedule_kubelet_sync(&commit.key.name);
                }
                _ => {}
            }
        }
        self.follow_store();
        self.checks.check_store_revision(&self.server, self.now);
        let is_electable = self.replicas.iter().any(|it| it.can_send_requests(self.now));
        self.checks.check_lease(self.lease.until <= self.now, is_electable, self.now);
    }

    /// Schedules a sync of a node's kubelet after a random network latency.
    pub fn schedule_kubelet_sync(&mut self, node: &Text) {
        if self.kubelets.contains_key(node) {
            let delay = self.random_delay();
            self.schedule_kubelet_sync_at(node, self.now + delay);
        }
    }

    /// Schedules a sync of a node's kubelet, unless an earlier one is scheduled.
    pub fn schedule_kubelet_sync_at(&mut self, node: &Text, at: Time) {
        if self.kubelet_sync_due.get(node).is_none_or(|earlier| at < *earlier) {
            self.kubelet_sync_due.insert(node.clone(), at);
            self.schedule_after(at.since(self.now), SimTask::SyncKubelet(node.clone()));
        }
    }

    /// Runs for a duration of simulated time, or until an invariant is violated.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.violation().is_none() {
            match self.tasks.first_key_value() {
                Some(((at, _), _)) if *at <= end => {}
                _ => break,
            }
            if !self.execute_next_task() {
                break;
            }
            if RUN_STEPS_MAX < self.trace.steps {
                self.checks.report_violation("W14", || "a hot loop: many steps without progress".to_owned());
            }
        }
        if self.violation().is_none() {
            self.now = self.now.max(end);
            self.server.set_now(self.now);
        }
    }

    /// Returns the first violation of the run, or `None` if no invariant was violated.
    pub fn violation(&self) -> Option<&Violation> {
        self.checks.violation.as_ref()
    }

    /// Whether all replicas are settled, no delivery, request or response is pending, and the lagging server, if there
    /// is one, has all commits. Periodic tasks and timers do not count.
    pub fn has_no_pending_requests(&self) -> bool {
        let is_behind = |it: &LaggingServer| it.down.is_some() || it.revision() < self.server.revision();
        self.replicas.iter().all(Replica::is_settled)
            && !self.lagging.as_ref().is_some_and(is_behind)
            && self.waiting_tasks.is_empty()
            && !self.tasks.values().any(|task| {
                matches!(
                    task,
                    SimTask::DeliverEvent { .. }
                        | SimTask::HandleRequest { .. }
                        | SimTask::DeliverResponse { .. }
                        | SimTask::ReceiveList { .. }
                        | SimTask::AcknowledgeWrite { .. }
                        | SimTask::ControllerStep {
                            step: ControllerStep::DeliverEvent(_)
                                | ControllerStep::ReceiveList(_)
                                | ControllerStep::AcknowledgeWrite(_)
                                | ControllerStep::SendRequest(_)
                                | ControllerStep::ReceiveResponse(_),
                            ..
                        }
                )
            })
    }

    /// Returns the pods of each node as text, one line per node, such as `a  d@1 ready, e@2 starting`. A pod has the
    /// name of its set, the number of its template and its state. A pod without a set has its own name in parentheses,
    /// and a node without pods has the text `-`. Pods without a target node are on the line `?`.
    pub fn format_pods_by_node(&self) -> String {
        let mut lines: BTreeMap<Text, Vec<String>> =
            self.server.nodes.keys().map(|it| (it.clone(), Vec::new())).collect();
        for pod in self.server.pods.values() {
            let set = self.server.sets.values().find(|it| pod.owner.as_ref() == Some(&it.uid));
            let name = set.map_or_else(|| format!("({})", pod.key.name), |it| it.key.name.to_string());
            let image = self
                .server
                .object(Kind::Pods, &pod.key)
                .map(|it| it["spec"]["containers"][0]["image"].clone());
            let image = image.as_ref().and_then(|it| it.as_str()).unwrap_or("?").to_owned();
            let version = image.rsplit(':').next().unwrap_or("?").to_owned();
            let state = match (pod.deleting, pod.phase, pod.is_ready(), pod.bound) {
                (true, ..) => "leaving",
                (_, muster_engine::daemonset::facts::Phase::Failed, ..) => "failed",
                (_, muster_engine::daemonset::facts::Phase::Succeeded, ..) => "ended",
                (_, _, true, _) => "ready",
                (_, _, _, true) => "starting",
                _ => "pending",
            };
            let node = pod.target.clone().unwrap_or_else(|| Text::from("?"));
            lines.entry(node).or_default().push(format!("{name}@{version} {state}"));
        }
        let mut out = String::new();
        for (node, mut pods) in lines {
            pods.sort();
            let pods = if pods.is_empty() { "-".to_owned() } else { pods.join(", ") };
            out += &format!("{node}  {pods}\n");
        }
        out
    }
}
