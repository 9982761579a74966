//! The machine goes down: pods end in order, and the node says why it is not ready.

use std::sync::Arc;
use std::time::Duration;

use muster_engine::eviction::CRITICAL;
use muster_engine::pod::Ending;
use tokio::time::{Instant, sleep};

use crate::node::{Entry, Node, Shown};
use crate::runtime::Runtime;

const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long pods get when the machine goes down.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    pub of_pods: Duration,
    /// Those that the machine needs to run come after all others.
    pub of_critical_pods: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { of_pods: Duration::from_secs(30), of_critical_pods: Duration::from_secs(10) }
    }
}

/// Ends the node's pods: critical ones last, each within its own time or the one that is given, whichever is shorter.
/// Upstream: `pkg/kubelet/nodeshutdown`.
pub async fn shut_down<R: Runtime>(node: &Node<R>, grace: Grace) {
    tracing::info!(node = node.config.name, "the node shuts down: its pods are ended");
    node.standing.shut_down();
    let is_critical = |it: &Arc<Entry>| {
        let priority = it.shown().object.spec.as_ref().and_then(|it| it.priority);
        CRITICAL <= priority.unwrap_or(0)
    };
    let (critical, others): (Vec<_>, Vec<_>) = node.pods.all().into_iter().partition(is_critical);
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
    // What is killed at the end of its time needs a moment to be gone.
    let until = Instant::now() + grace + Duration::from_secs(5);
    let is_over = |it: &Arc<Entry>| {
        let Shown { has_ended, status, .. } = it.shown();
        has_ended && (status["reason"] == REASON || status["phase"] == "Succeeded")
    };
    while !pods.iter().all(is_over) && Instant::now() < until {
        sleep(LOOK_EVERY).await;
    }
}
