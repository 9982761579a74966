//! The node ends: its pods do, in order. When the machine goes down, the node says why it is not ready.

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

/// What is killed at the end of its time needs a moment to be gone.
const GONE_MAX: Duration = Duration::from_secs(5);

/// How long pods get when their node ends.
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

impl Grace {
    /// What it takes at most until no pod is left.
    pub fn longest(self) -> Duration {
        self.of_pods + self.of_critical_pods + GONE_MAX * 2
    }
}

/// Ends the node's pods, with their hooks: critical ones last, each within its own time or the one that is given, whichever
/// is shorter. Upstream: `pkg/kubelet/nodeshutdown`.
pub async fn end_pods<R: Runtime>(node: &Node<R>, how: End, grace: Grace) {
    tracing::info!(node = node.config.name, ?how, "the node ends: its pods are ended");
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

/// Before it was told to end.
fn was_over(Shown { has_ended, status, .. }: &Shown) -> bool {
    *has_ended && (status["phase"] == "Failed" || status["phase"] == "Succeeded")
}

/// It has ended, and that was said.
fn is_over(Shown { has_ended, status, object, .. }: &Shown) -> bool {
    let is_told = status["reason"] == REASON || status["phase"] == "Succeeded";
    *has_ended && (is_told || object.metadata.deletion_timestamp.is_some())
}
