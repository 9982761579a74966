//! Evictions of a DaemonSet's pods that the API server refused: when each eviction is retried, and what the status
//! reports about them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::BackoffPolicy;
use crate::daemonset::execution::{ExecutionReport, RefusalReason};
use crate::daemonset::facts::Pod;

/// Backoff after consecutive refusals of a pod's eviction. If the API server requests a longer delay, that delay is
/// used.
const EVICTION_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(1), max: Duration::from_secs(30) };

/// Minimum time between two plans with evictions while the API server refuses all evictions of the DaemonSet's pods.
const EVICTION_INTERVAL_WHILE_REFUSED_MIN: Duration = Duration::from_secs(1);
/// Maximum number of evictions in one plan while the API server refuses all evictions of the DaemonSet's pods. Such a
/// plan only tests whether the API server accepts evictions again.
const EVICTIONS_WHILE_REFUSED_MAX: usize = 10;

/// Start of the part of a status message that reports refused evictions.
pub(crate) const REFUSED_EVICTIONS_MESSAGE_PREFIX: &str = "evictions refused: ";

/// The evictions of one DaemonSet's pods that the API server refused. They are kept only in memory: after a restart,
/// the controller tries these evictions again without delay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RefusedEvictions {
    /// The last refused eviction on each node, by name of the node.
    nodes: BTreeMap<Text, RefusedEviction>,
    /// Time before which no eviction is sent. Set after a plan in which evictions were refused and none was accepted.
    /// `None` before the first such plan, and after an accepted eviction.
    no_eviction_before: Option<Time>,
}

/// The last refused eviction on one node, and the time of its retry.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RefusedEviction {
    /// UID of the pod whose eviction was refused.
    pod: Text,
    reason: RefusalReason,
    /// Current retry delay, see [`EVICTION_BACKOFF`].
    delay: Duration,
    /// Time before which the eviction of the pod is not retried.
    retry_at: Time,
}

impl RefusedEvictions {
    /// Updates the refused evictions from the report of an execution: adds the new refusals, and removes the refusals
    /// on nodes whose pod was deleted or evicted. If evictions were refused and none was accepted, sets the time before
    /// which no eviction is sent. If an eviction was accepted, clears that time.
    ///
    /// Rule: a refused eviction uses no rollout budget. It is tried again after a delay that doubles with each refusal,
    /// from 1 s to 30 s. If the API server requested a longer delay, that delay is used. While all evictions are
    /// refused, at most 10 are tried per second.
    pub(crate) fn apply_report(&mut self, report: &ExecutionReport, now: Time) {
        report.nodes_with_deleted_pods().for_each(|node| drop(self.nodes.remove(node)));
        for (node, refusal) in &report.eviction_refusals {
            let before = self.nodes.get(node).filter(|it| it.pod == refusal.pod);
            let delay = EVICTION_BACKOFF.next_delay(before.map(|it| it.delay));
            let (pod, reason) = (refusal.pod.clone(), refusal.reason.clone());
            let retry_at = now + delay.max(refusal.retry_after);
            self.nodes.insert(node.clone(), RefusedEviction { pod, reason, delay, retry_at });
        }
        if 0 < report.evicted {
            self.no_eviction_before = None;
        } else if !report.eviction_refusals.is_empty() {
            self.no_eviction_before = Some(now + EVICTION_INTERVAL_WHILE_REFUSED_MIN);
        }
    }

    /// Removes all refusals whose pod no longer exists, is being deleted or is terminal. `pods_of` returns all pods of
    /// the DaemonSet on a node.
    pub(crate) fn drop_ended_refusals<'a>(&mut self, pods_of: impl Fn(&Text) -> &'a [Arc<Pod>]) {
        self.nodes.retain(|node, refusal| is_refused_pod_live(refusal, pods_of(node)));
    }

    /// Removes the refusal on a node if its pod no longer exists, is being deleted or is terminal. `pods` are all pods
    /// of the DaemonSet on the node.
    pub(crate) fn drop_ended_refusal(&mut self, node: &Text, pods: &[Arc<Pod>]) {
        if self.nodes.get(node).is_some_and(|it| !is_refused_pod_live(it, pods)) {
            self.nodes.remove(node);
        }
    }

    /// Limits each retry time to `now` plus the maximum of [`EVICTION_BACKOFF`], and the time before which no eviction
    /// is sent to `now` plus [`EVICTION_INTERVAL_WHILE_REFUSED_MIN`], so that retries are not late after the clock was
    /// set back.
    pub(crate) fn adjust_to_clock(&mut self, now: Time) {
        for refusal in self.nodes.values_mut() {
            refusal.retry_at = refusal.retry_at.min(now + EVICTION_BACKOFF.max);
        }
        self.no_eviction_before =
            self.no_eviction_before.map(|at| at.min(now + EVICTION_INTERVAL_WHILE_REFUSED_MIN));
    }

    /// Returns the time before which a pod must not be evicted, because the eviction of this pod was refused. `None` if
    /// that time has passed, or if the eviction of this pod was not refused.
    pub(crate) fn retry_at(&self, node: &Text, pod: &Pod, now: Time) -> Option<Time> {
        let refusal = self.nodes.get(node).filter(|it| it.pod == pod.uid)?;
        Some(refusal.retry_at).filter(|at| now < *at)
    }

    /// Returns the time before which no pod of the DaemonSet may be evicted, because all evictions were refused. `None`
    /// if there is no such time, or if it has passed.
    pub(crate) fn no_eviction_before(&self, now: Time) -> Option<Time> {
        self.no_eviction_before.filter(|at| now < *at)
    }

    /// Returns the maximum number of evictions in the next plan: [`EVICTIONS_WHILE_REFUSED_MAX`] while the API server
    /// refuses all evictions, otherwise unlimited.
    pub(crate) fn max_evictions_per_plan(&self) -> usize {
        if self.no_eviction_before.is_some() { EVICTIONS_WHILE_REFUSED_MAX } else { usize::MAX }
    }

    /// Returns the part of the status message about refused evictions. It counts only nodes with a refused eviction for
    /// which `is_counted` returns true. `None` if there are no such nodes.
    pub(crate) fn message(&self, is_counted: impl Fn(&Text) -> bool) -> Option<String> {
        let mut counts: BTreeMap<&RefusalReason, usize> = BTreeMap::new();
        for (_, refusal) in self.nodes.iter().filter(|(node, _)| is_counted(node)) {
            *counts.entry(&refusal.reason).or_default() += 1;
        }
        let count = |reason| counts.get(&reason).copied().filter(|it| 0 < *it);
        let mut parts = Vec::new();
        if let Some(nodes) = count(RefusalReason::DisruptionBudget) {
            parts.push(format!("a PodDisruptionBudget blocks {}", node_count_text(nodes)));
        }
        if let Some(nodes) = count(RefusalReason::MissingPermission) {
            parts.push(format!(
                "the controller's role does not grant create on pods/eviction ({}): apply \
                 deploy/kubernetes/access/eviction-role.yaml",
                node_count_text(nodes)
            ));
        }
        let is_other = |(reason, _): &(&RefusalReason, usize)| matches!(reason, RefusalReason::Other(_));
        let others: Vec<(&RefusalReason, usize)> = counts.into_iter().filter(is_other).collect();
        if let Some((RefusalReason::Other(message), _)) = others.first() {
            let nodes = others.iter().map(|(_, nodes)| nodes).sum();
            parts.push(format!("{}: {message}", node_count_text(nodes)));
        }
        (!parts.is_empty()).then(|| format!("{REFUSED_EVICTIONS_MESSAGE_PREFIX}{}", parts.join(", ")))
    }
}

/// Whether the pod whose eviction was refused is in `pods`, and is neither being deleted nor terminal.
fn is_refused_pod_live(refusal: &RefusedEviction, pods: &[Arc<Pod>]) -> bool {
    pods.iter().any(|it| it.uid == refusal.pod && it.is_live())
}

/// Formats a number of nodes: `1 node`, `2 nodes`.
fn node_count_text(nodes: usize) -> String {
    if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") }
}
