//! Runs one seed. A run draws the cluster, injects faults, ends all faults, and checks that the cluster converges.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use muster_api::text::panic_message;

use crate::faults::FaultRates;
use crate::invariants::Violation;
use crate::kubelet::ImageBehaviour;
use crate::lagging_server::ServerFaults;
use crate::rng::Rng;
use crate::world::World;

/// The result of the run of one seed.
#[derive(Debug)]
pub struct RunResult {
    pub seed: u64,
    pub violation: Option<Violation>,
    /// Hash of the trace. Two runs with the same hash had the same steps.
    pub hash: u64,
    /// Hash of the objects that DaemonSet controllers wrote.
    pub controller_writes_hash: u64,
    /// Number of executed steps.
    pub steps: u64,
    /// Number of write requests of the DaemonSet controller, including those that failed.
    pub writes: usize,
    /// The cluster at the end of the run, as scenario text.
    pub scenario: String,
    /// The log lines of the run. Empty unless the run is verbose.
    pub trace: Vec<String>,
}

/// Duration of the phase with faults, in simulated time.
const FAULTS_DURATION: Duration = Duration::from_secs(240);

/// Runs one seed: a phase with faults, then a phase without faults in which the cluster must converge. If `verbose` is
/// true, the result contains the log lines of the run.
pub fn run_seed(seed: u64, verbose: bool) -> RunResult {
    let mut world = random_world(seed);
    world.trace.lines = verbose.then(Vec::new);
    // S9: nothing panics. A panic is reported as a violation of the seed.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        world.start_processes();
        world.run_for(FAULTS_DURATION);
        world.end_all_faults();
        world.run_until_converged();
        world.check_stays_converged();
    }));
    if let Err(panic) = outcome {
        let message = panic_message(&*panic).unwrap_or("a panic");
        world.checks.report_violation("S9", || message.to_owned());
    }
    RunResult {
        seed,
        violation: world.violation().cloned(),
        hash: world.trace.hash(),
        controller_writes_hash: world.trace.controller_writes_hash(),
        steps: world.trace.steps,
        writes: world.writes,
        scenario: world.server.scenario_text(),
        trace: world.trace.lines.take().unwrap_or_default(),
    }
}

/// Returns the random cluster of a seed: one to six nodes, one or two sets, and one or two controller replicas. Some
/// clusters also have a RolloutPolicy ([`has_policies`]), and some a second API server ([`has_second_server`]). The
/// policy and the second server are drawn after the rest of the cluster.
fn random_world(seed: u64) -> World {
    let mut rng = Rng::new(seed);
    let fault_rates = FaultRates::random(&mut rng);
    let replicas = usize::try_from(rng.between(1, 2)).unwrap_or(1);
    let mut world = World::new(seed, replicas, fault_rates);
    let nodes = rng.between(1, 6);
    let mut text = String::new();
    for node in 0..nodes {
        let zone = if rng.chance(700) { " label=zone:a" } else { "" };
        let taint = if rng.chance(100) { " taint=gpu:NoSchedule" } else { "" };
        text += &format!("node n{node}{zone}{taint}\n");
    }
    for name in ["d", "e"].iter().take(usize::try_from(rng.between(1, 2)).unwrap_or(1)) {
        let strategy = world.random_strategy();
        let min_ready = rng.below(3) * 5;
        let history = rng.below(4);
        let tolerate = if rng.chance(200) { " tolerate=gpu:NoSchedule" } else { "" };
        text += &format!("set {name} {strategy} min-ready={min_ready} history={history}{tolerate}\n");
    }
    world.add_scenario_objects(&text);
    if rng.chance(250) {
        let behaviours = [
            ImageBehaviour::NeverReady,
            ImageBehaviour::PodFails,
            ImageBehaviour::Completes,
            ImageBehaviour::CrashesNode,
            ImageBehaviour::CrashLoops,
        ];
        let behaviour = rng.pick(&behaviours).copied().unwrap_or_default();
        world.image_behaviours.insert(format!("d:{}", rng.between(1, 4)), behaviour);
    }
    world.settings.burst =
        usize::try_from([1, 3, 250][usize::try_from(rng.below(3)).unwrap_or(0)]).unwrap_or(250);
    world.user_actions_left = rng.between(0, 60);
    if has_policies(seed) {
        world.add_random_policy();
    }
    if has_second_server(seed) {
        let faults = ServerFaults::random(&mut rng);
        world.add_lagging_server(faults);
    }
    world
}

/// The first seed whose random cluster has a RolloutPolicy. All later seeds below [`FIRST_SECOND_SERVER_SEED`] have
/// one, too.
pub const FIRST_POLICY_SEED: u64 = 1_000_000;

/// The first seed whose random cluster has a second API server. All later seeds have one, too.
pub const FIRST_SECOND_SERVER_SEED: u64 = 2_000_000;

/// Whether the random cluster of this seed has a RolloutPolicy. Of the clusters with a second API server, only those of
/// odd seeds have a policy.
pub fn has_policies(seed: u64) -> bool {
    FIRST_POLICY_SEED <= seed && (!has_second_server(seed) || seed % 2 == 1)
}

/// Whether the random cluster of this seed has a second API server.
pub fn has_second_server(seed: u64) -> bool {
    FIRST_SECOND_SERVER_SEED <= seed
}
