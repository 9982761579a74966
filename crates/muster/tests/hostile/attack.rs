//! One attack: a cluster, four hostile identities that commit every abuse of `abuse` at once, and `neighbor` beside them as an
//! administrator and as a node. None of the neighbors' requests may be refused or queued, every node must stay Ready, and the
//! server's memory is bounded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::abuse::{ABUSES, Outcome, STORE_IS_FULL};
use crate::bed::cluster::{TestCluster, UpFlags};
use crate::connection::Endpoint;
use crate::identity::Identities;
use crate::neighbor::{self, Report};

/// How long the abuses go on: on a slow machine until each was tried, the store is full, and the neighbors made enough
/// requests to prove something.
const ABUSE_MIN: Duration = Duration::from_secs(40);
const ABUSE_MAX: Duration = Duration::from_secs(280);

/// What came of an attack.
pub(crate) struct Attacked {
    /// Answers, by abuse and identity.
    pub(crate) outcomes: BTreeMap<(&'static str, &'static str), String>,
    pub(crate) report: Report,
}

pub(crate) fn run(dir: &Path) -> Attacked {
    let server = ["--store-bytes-max", "16Mi"];
    let cluster = TestCluster::up(dir, UpFlags { nodes: 5, server: &server, ..UpFlags::default() });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(attack(&cluster.kubeconfig(), cluster.server_pid()))
}

async fn attack(kubeconfig: &Path, server_pid: u32) -> Attacked {
    let identities = Identities::make(kubeconfig, &Endpoint::of(kubeconfig)).await;
    let stop = CancellationToken::new();
    let neighbors = neighbor::start(kubeconfig, &identities, server_pid, stop.clone()).await;

    let mut attacks = tokio::task::JoinSet::new();
    let mut outcomes = BTreeMap::new();
    for attacker in identities.hostile() {
        for (name, abuse) in ABUSES {
            let outcome = Outcome::default();
            outcomes.insert((*name, attacker.name), outcome.clone());
            let attacker = attacker.clone();
            attacks.spawn(async move {
                // A client that gets no connection tries again.
                while outcome.is_empty() {
                    let _ = abuse(attacker.clone(), outcome.clone()).await;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
        }
    }
    let began = Instant::now();
    // The store must be full for a while, so that the neighbors notice if they cannot write to it.
    let is_enough = || {
        neighbors.made_enough_requests()
            && !outcomes.values().any(Outcome::is_empty)
            && outcomes[&("filling the reserve", "node")].contains(STORE_IS_FULL)
    };
    while began.elapsed() < ABUSE_MIN || (began.elapsed() < ABUSE_MAX && !is_enough()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    attacks.shutdown().await;
    stop.cancel();
    let report = neighbors.end().await;
    let outcomes = outcomes.into_iter().map(|(of, outcome)| (of, outcome.to_string())).collect();
    identities.check_nothing_was_changed().await;
    Attacked { outcomes, report }
}
