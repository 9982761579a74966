//! Terminates the node's pods when the node stops, critical pods last.

use std::sync::Arc;
use std::time::Duration;

use muster_engine::kubelet::eviction::CRITICAL;
use muster_engine::kubelet::pod::Ending;
use tokio::time::{Instant, sleep};

use super::End;
use crate::node::{Entry, Node, Shown};
use crate::runtime::Runtime;

const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time for killed containers to disappear after the grace period.
const GONE_MAX: Duration = Duration::from_secs(5);

/// Grace periods of pods when their node stops.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    pub of_pods: Duration,
    /// Grace period of critical pods, which are terminated after all others.
    pub of_critical_pods: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { of_pods: Duration::from_secs(30), of_critical_pods: Duration::from_secs(10) }
    }
}

impl Grace {
    /// Longest time until all pods are terminated.
    pub fn longest(self) -> Duration {
        self.of_pods + self.of_critical_pods + GONE_MAX * 2
    }
}

/// Terminates the node's pods, with their preStop hooks and critical pods last. Each gets its own grace period, at
/// most the given one. Upstream: `pkg/kubelet/nodeshutdown`.
pub async fn end_pods<R: Runtime>(node: &Node<R>, how: End, grace: Grace) {
    tracing::info!(node = node.config.name, ?how, "the node stops: terminating its pods");
    node.standing.end(how);
    let is_critical = |it: &Arc<Entry>| {
        let priority = it.shown().object.spec.as_ref().and_then(|it| it.priority);
        CRITICAL <= priority.unwrap_or(0)
    };
    let all = node.pods.all().into_iter().filter(|it| !was_over(&it.shown()));
    let (critical, others): (Vec<_>, Vec<_>) = all.partition(is_critical);
    for (pods, grace) in [(others, grace.of_pods), (critical, grace.of_critical_pods)] {
        end(&pods, grace).await;
    }
}

async fn end(pods: &[Arc<Entry>], grace: Duration) {
    for pod in pods {
        let own = pod.shown().object.spec.as_ref().and_then(|it| it.termination_grace_period_seconds);
        let own =
            own.and_then(|it| u64::try_from(it).ok()).map_or(Duration::from_secs(30), Duration::from_secs);
        pod.end(Ending {
            reason: REASON.into(),
            message: MESSAGE.into(),
            grace: Some(own.min(grace)),
            is_rejection: false,
            is_disruption: true,
        });
    }
    let until = Instant::now() + grace + GONE_MAX;
    while !pods.iter().all(|it| is_over(&it.shown())) && Instant::now() < until {
        sleep(LOOK_EVERY).await;
    }
}

/// Whether the pod had finished before the shutdown.
fn was_over(Shown { has_ended, status, .. }: &Shown) -> bool {
    *has_ended && (status["phase"] == "Failed" || status["phase"] == "Succeeded")
}

/// Whether the pod has ended and its end is reported.
fn is_over(Shown { has_ended, status, object, .. }: &Shown) -> bool {
    let is_reported = status["reason"] == REASON || status["phase"] == "Succeeded";
    *has_ended && (is_reported || object.metadata.deletion_timestamp.is_some())
}
