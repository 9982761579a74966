//! Evictions of a DaemonSet's pods that the API server refused: when a node is tried again, and what the status reports.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use crate::daemonset::execution::{ExecutionReport, RefusalReason};
use crate::daemonset::facts::Pod;

/// Delay before the eviction on a node is tried again after its first refusal. The delay doubles with each refusal.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
/// Maximum delay before the eviction on a node is tried again.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Time between two plans with evictions while the API server refuses all of them.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of evictions in one plan while the API server refuses all of them. With one such plan per second, the
/// 5,000 nodes of a large cluster are all tried within about 8 minutes.
const PROBES_MAX: usize = 10;

/// Start of the part of a message that reports refused evictions.
const MESSAGE_START: &str = "evictions refused: ";

/// The evictions of one DaemonSet's pods that the API server refused. A restart of the controller forgets them, and
/// tries them again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RefusedEvictions {
    /// The last refusal on each node.
    nodes: BTreeMap<Text, NodeRefusal>,
    /// Time before which no eviction is sent. `None` unless the API server refused all evictions of the last plan.
    probe_at: Option<Time>,
}

/// A refused eviction on one node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NodeRefusal {
    /// UID of the pod.
    pod: Text,
    reason: RefusalReason,
    /// Delay before `retry_at`, which the next refusal doubles.
    delay: Duration,
    /// Time before which the eviction is not tried again.
    retry_at: Time,
}

impl RefusedEvictions {
    /// Applies the report of an execution.
    ///
    /// Rule: a refused eviction uses no rollout budget, and is tried again after a delay that doubles with each
    /// refusal, from 1 s to 30 s, or after the delay that the API server requested if that is longer. While all
    /// evictions are refused, at most 10 are tried per second.
    pub(crate) fn apply_report(&mut self, report: &ExecutionReport, now: Time) {
        report.deleted_on().for_each(|node| drop(self.nodes.remove(node)));
        for (node, refusal) in &report.eviction_refusals {
            let before = self.nodes.get(node).filter(|it| it.pod == refusal.pod);
            let delay = before.map_or(RETRY_DELAY_MIN, |it| (it.delay * 2).min(RETRY_DELAY_MAX));
            let (pod, reason) = (refusal.pod.clone(), refusal.reason.clone());
            let retry_at = now + delay.max(refusal.retry_after);
            self.nodes.insert(node.clone(), NodeRefusal { pod, reason, delay, retry_at });
        }
        if 0 < report.evicted {
            self.probe_at = None;
        } else if !report.eviction_refusals.is_empty() {
            self.probe_at = Some(now + PROBE_INTERVAL);
        }
    }

    /// Forgets the refusal on a node if its pod no longer runs.
    pub(crate) fn retain_pods<'a>(&mut self, pods_of: impl Fn(&Text) -> &'a [Arc<Pod>]) {
        self.nodes.retain(|node, refusal| is_running(refusal, pods_of(node)));
    }

    /// Forgets the refusal on one node if its pod is not one of the running `pods` of the node.
    pub(crate) fn update_node(&mut self, node: &Text, pods: &[Arc<Pod>]) {
        if self.nodes.get(node).is_some_and(|it| !is_running(it, pods)) {
            self.nodes.remove(node);
        }
    }

    /// Shortens delays after the clock was set back.
    pub(crate) fn adjust_to_clock(&mut self, now: Time) {
        for refusal in self.nodes.values_mut() {
            refusal.retry_at = refusal.retry_at.min(now + RETRY_DELAY_MAX);
        }
        self.probe_at = self.probe_at.map(|at| at.min(now + PROBE_INTERVAL));
    }

    /// Returns the time before which the pod on a node must not be evicted. `None` if it may be evicted now.
    pub(crate) fn retry_at(&self, node: &Text, pod: &Pod, now: Time) -> Option<Time> {
        let refusal = self.nodes.get(node).filter(|it| it.pod == pod.uid)?;
        Some(refusal.retry_at).filter(|at| now < *at)
    }

    /// Returns the time before which no pod must be evicted. `None` if pods may be evicted now.
    pub(crate) fn waits_until(&self, now: Time) -> Option<Time> {
        self.probe_at.filter(|at| now < *at)
    }

    /// Returns the maximum number of evictions in the next plan.
    pub(crate) fn limit(&self) -> usize {
        if self.probe_at.is_some() { PROBES_MAX } else { usize::MAX }
    }

    /// Returns what the status reports about the refused evictions on the nodes for which `is_counted` is true. `None`
    /// if there are none.
    pub(crate) fn message(&self, is_counted: impl Fn(&Text) -> bool) -> Option<String> {
        let mut counts: BTreeMap<&RefusalReason, usize> = BTreeMap::new();
        for (_, refusal) in self.nodes.iter().filter(|(node, _)| is_counted(node)) {
            *counts.entry(&refusal.reason).or_default() += 1;
        }
        let count = |reason| counts.get(&reason).copied().filter(|it| 0 < *it);
        let mut parts = Vec::new();
        if let Some(nodes) = count(RefusalReason::DisruptionBudget) {
            parts.push(format!("a PodDisruptionBudget holds {}", node_count(nodes)));
        }
        if let Some(nodes) = count(RefusalReason::MissingRole) {
            parts.push(format!(
                "the controller's role does not grant create on pods/eviction ({}): apply \
                 deploy/kubernetes/access/eviction-role.yaml",
                node_count(nodes)
            ));
        }
        let is_other = |(reason, _): &(&RefusalReason, usize)| matches!(reason, RefusalReason::Other(_));
        let others: Vec<(&RefusalReason, usize)> = counts.into_iter().filter(is_other).collect();
        if let Some((RefusalReason::Other(message), _)) = others.first() {
            let nodes = others.iter().map(|(_, nodes)| nodes).sum();
            parts.push(format!("{}: {message}", node_count(nodes)));
        }
        (!parts.is_empty()).then(|| format!("{MESSAGE_START}{}", parts.join(", ")))
    }
}

/// Whether the pod whose eviction was refused is one of these pods and runs.
fn is_running(refusal: &NodeRefusal, pods: &[Arc<Pod>]) -> bool {
    pods.iter().any(|it| it.uid == refusal.pod && it.is_live())
}

/// Formats a number of nodes: `1 node`, `2 nodes`.
fn node_count(nodes: usize) -> String {
    if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") }
}

/// Returns a status message with the report about refused evictions at its end. Replaces an earlier report.
pub(crate) fn with_refused_evictions(message: &str, refused: Option<&str>) -> String {
    let end = message.find(MESSAGE_START).unwrap_or(message.len());
    let base = message[..end].trim_end_matches("; ");
    match refused {
        None => base.into(),
        Some(refused) if base.is_empty() => refused.into(),
        Some(refused) => format!("{base}; {refused}"),
    }
}
