//! Terminates the node's pods when the node stops, critical pods last.

use std::sync::Arc;
use std::time::Duration;

use muster_api::core_v1::PodPhase;
use muster_api::well_known::SYSTEM_CRITICAL_PRIORITY;
use muster_engine::kubelet::pod::PodTermination;
use tokio::time::{Instant, sleep};

use super::NodeStop;
use crate::node::{NodeAgent, PodEntry, PodSnapshot};
use crate::runtime::Runtime;

/// Reason in the status of a pod that is terminated because its node stops. Upstream: `nodeShutdownReason`.
const TERMINATED_REASON: &str = "Terminated";
/// Message in the status of a pod that is terminated because its node stops. Upstream: `nodeShutdownMessage`.
const TERMINATED_MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Interval at which the agent checks whether the pods have terminated.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Additional wait after the grace period, until killed containers have disappeared from the runtime.
const KILL_MARGIN: Duration = Duration::from_secs(5);

/// Maximum grace periods of pods when their node stops.
#[derive(Debug, Clone, Copy)]
pub struct ShutdownGrace {
    /// Maximum grace period of pods that are not critical.
    pub pods: Duration,
    /// Maximum grace period of critical pods, which are terminated after all other pods.
    pub critical_pods: Duration,
}

impl Default for ShutdownGrace {
    fn default() -> Self {
        Self { pods: Duration::from_secs(30), critical_pods: Duration::from_secs(10) }
    }
}

impl ShutdownGrace {
    /// Returns the approximate maximum duration of [`terminate_pods`].
    pub fn total_max(self) -> Duration {
        self.pods + self.critical_pods + KILL_MARGIN * 2
    }
}

/// Begins the stop of the node, and terminates the node's pods, critical pods last, with their preStop hooks. Each pod
/// gets its own grace period, limited by `grace`. Upstream: `pkg/kubelet/nodeshutdown`.
pub async fn terminate_pods<R: Runtime>(node: &NodeAgent<R>, how: NodeStop, grace: ShutdownGrace) {
    tracing::info!(node = node.config.name, ?how, "the node stops: terminating its pods");
    node.state.begin_node_stop(how);
    let is_critical = |it: &Arc<PodEntry>| {
        let priority = it.snapshot().object.spec.as_ref().and_then(|it| it.priority);
        SYSTEM_CRITICAL_PRIORITY <= priority.unwrap_or(0)
    };
    let all = node.pods.all_pods().into_iter().filter(|it| !has_finished(&it.snapshot()));
    let (critical, others): (Vec<_>, Vec<_>) = all.partition(is_critical);
    for (pods, grace) in [(others, grace.pods), (critical, grace.critical_pods)] {
        terminate_group(&pods, grace).await;
    }
}

/// Terminates these pods, and waits until they have terminated, at most for the grace period and [`KILL_MARGIN`].
async fn terminate_group(pods: &[Arc<PodEntry>], grace: Duration) {
    for pod in pods {
        let own = pod.snapshot().object.spec.as_ref().and_then(|it| it.termination_grace_period_seconds);
        let own =
            own.and_then(|it| u64::try_from(it).ok()).map_or(Duration::from_secs(30), Duration::from_secs);
        pod.terminate(PodTermination {
            reason: TERMINATED_REASON.into(),
            message: TERMINATED_MESSAGE.into(),
            grace: Some(own.min(grace)),
            is_rejection: false,
            is_disruption: true,
        });
    }
    let until = Instant::now() + grace + KILL_MARGIN;
    while !pods.iter().all(|it| is_termination_complete(&it.snapshot())) && Instant::now() < until {
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether the pod has already succeeded or failed, so that it need not be terminated.
fn has_finished(PodSnapshot { has_ended, status, .. }: &PodSnapshot) -> bool {
    *has_ended && status["phase"].as_str().is_some_and(|it| PodPhase::parse(it).is_terminal())
}

/// Whether the pod has terminated, and its termination was reported. For a pod that is being deleted, no report is
/// needed.
fn is_termination_complete(PodSnapshot { has_ended, status, object, .. }: &PodSnapshot) -> bool {
    let is_reported =
        status["reason"] == TERMINATED_REASON || status["phase"] == PodPhase::Succeeded.as_str();
    *has_ended && (is_reported || object.metadata.deletion_timestamp.is_some())
}
