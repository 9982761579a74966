//! Pod admission: the node checks each pod that is bound to it, because the scheduler may not have known the node's
//! current state.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::core_v1::{self, PodWithoutContainerStatuses};
use muster_api::interner::Interner;
use muster_api::qos::QosClass;
use muster_api::taints::{TaintEffect, any_tolerates};
use muster_api::text::Text;
use muster_api::well_known::SYSTEM_CRITICAL_PRIORITY;

use super::PodTermination;
use crate::daemonset::placement;
use crate::kubelet::static_pod;
use crate::scheduler;

/// Whether a node admits a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// The pod is admitted and may start.
    Admitted,
    /// The pod is rejected and becomes Failed.
    Rejected(PodTermination),
    /// The pod is critical and preempts the pods with these UIDs. It is admitted when these pods have terminated.
    AfterOthers(Vec<Text>),
}

/// The fields of a pod that admission depends on. The pod is to be admitted, or was admitted before. Upstream:
/// `PodAdmitAttributes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionCandidate {
    /// The fields of the pod that the scheduler's checks need.
    pod: scheduler::Pod,
    /// Whether the pod was admitted on this node before, for example by an earlier agent process: its status has a
    /// `startTime`.
    pub was_admitted: bool,
    /// Whether the pod is a static pod or a mirror pod.
    pub is_static: bool,
    /// Whether the pod's `spec.os` is Linux or absent.
    is_for_linux: bool,
    /// The pod's `runtimeClassName`. `None` if it is absent or empty.
    runtime_class: Option<Text>,
    /// Error message about the first sysctl of the pod that is forbidden. `None` if all are allowed.
    forbidden_sysctl: Option<String>,
    /// QoS class of the pod, which decides the order of preemption.
    qos: QosClass,
}

impl AdmissionCandidate {
    /// Extracts the fields that admission depends on from a decoded pod. `qos` is the pod's QoS class.
    pub fn from_pod(pod: &PodWithoutContainerStatuses<'_>, qos: QosClass) -> Self {
        let no_spec = core_v1::PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&no_spec);
        let (on_host_network, on_host_ipc) = (spec.host_network == Some(true), spec.host_ipc == Some(true));
        let mut sysctls = spec.security_context.iter().flat_map(|it| it.sysctls.iter().flatten());
        let forbidden_sysctl = sysctls.find_map(|it| {
            sysctl_error(it.name.as_deref().unwrap_or_default(), on_host_network, on_host_ipc)
        });
        let runtime_class = spec.runtime_class_name.as_deref().filter(|it| !it.is_empty());
        Self {
            pod: scheduler::extract_pod(pod, &mut Interner::default()),
            was_admitted: pod.status.as_ref().is_some_and(|it| it.start_time.is_some()),
            is_static: static_pod::is_static_or_mirror(&pod.metadata),
            is_for_linux: spec.os.as_ref().is_none_or(|it| it.name.as_deref() == Some("linux")),
            runtime_class: runtime_class.map(Text::from),
            forbidden_sysctl,
            qos,
        }
    }

    pub fn uid(&self) -> &Text {
        &self.pod.uid
    }

    /// Whether the pod is critical, so that it may preempt other pods on the node.
    ///
    /// Rule: static pods, mirror pods, and pods with at least the priority of the class `system-cluster-critical` are
    /// critical. Upstream: `IsCriticalPod`.
    pub fn is_critical(&self) -> bool {
        self.is_static || SYSTEM_CRITICAL_PRIORITY <= self.pod.priority
    }

    /// Returns the amount of a resource that the pod requests. For the resource `pods`, it is 1.
    fn requested_amount(&self, resource: &str) -> i64 {
        match resource {
            "pods" => 1,
            _ => self.pod.requirements.request(resource).unwrap_or(0),
        }
    }

    /// Whether this pod may preempt the other pod. Only called for a critical pod.
    ///
    /// Rule: a critical pod may preempt a pod that is not critical, and a pod of lower priority. Upstream:
    /// `Preemptable`.
    fn outranks(&self, other: &Self) -> bool {
        (self.is_critical() && !other.is_critical()) || other.pod.priority < self.pod.priority
    }
}

/// Decides whether a pod is admitted on a node. `others` are the other pods on the node that are admitted and have not
/// terminated. `runtimes` are the names of the RuntimeClasses that the node supports.
///
/// Rule: a pod is admitted if all of these conditions are met. The node matches the pod's OS, node selector, node
/// affinity, `nodeName` and runtime class. The pod sets no forbidden sysctl. The pod's host ports are free. The pod
/// tolerates the node's `NoExecute` taints, or is a static pod. The node has enough allocatable resources for the pod
/// in addition to the other pods; extended resources that the node does not have are ignored. If only resources are
/// missing, a critical pod preempts other pods, or is rejected if that cannot free enough. Upstream:
/// `predicateAdmitHandler`, `CriticalPodAdmissionHandler`.
pub fn admit(
    node: &scheduler::Node,
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
    runtimes: &BTreeSet<Text>,
) -> Admission {
    if let Some(rejected) = failed_predicate(node, others, candidate, runtimes) {
        return Admission::Rejected(rejected);
    }
    let insufficient = insufficient_resources(node, others, candidate);
    let Some(first) = insufficient.first() else { return Admission::Admitted };
    if !candidate.is_critical() {
        return Admission::Rejected(rejection(first.reason(), &first.message()));
    }
    match choose_victims(others, candidate, &insufficient) {
        Some(uids) => Admission::AfterOthers(uids),
        None => {
            let insufficient: Vec<String> = insufficient
                .iter()
                .map(|it| format!("(res: {}, q: {})", it.resource, it.missing_amount()))
                .collect();
            let message = format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error \
                 finding a set of pods to preempt: no set of running pods found to reclaim resources: [{}]",
                insufficient.join(", ")
            );
            Admission::Rejected(rejection("UnexpectedAdmissionError".into(), &message))
        }
    }
}

/// Returns the [`PodTermination`] of a pod that is preempted for a critical pod.
pub fn preemption() -> PodTermination {
    PodTermination {
        reason: "Preempting".into(),
        message: "Preempted in order to admit critical pod".into(),
        grace: None,
        is_rejection: false,
        is_disruption: true,
    }
}

/// Returns the [`PodTermination`] of a pod that is rejected at admission.
pub fn rejection(reason: Text, message: &str) -> PodTermination {
    PodTermination {
        reason,
        message: format!("Pod was rejected: {message}").into(),
        grace: None,
        is_rejection: true,
        is_disruption: false,
    }
}

/// Namespaced sysctls that a pod may set because they do not affect other pods.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Returns the error message about a sysctl that a pod may not set. `None` if the pod may set it.
///
/// Rule: a pod may set only safe sysctls, and no sysctl of a Linux namespace that the pod shares with the node.
/// Upstream: `SafeSysctlAllowlist`.
fn sysctl_error(name: &str, on_host_network: bool, on_host_ipc: bool) -> Option<String> {
    let name = match name.find(['.', '/']) {
        // With slashes as separators, a dot is part of a name.
        Some(at) if name[at..].starts_with('/') => name
            .chars()
            .map(|it| match it {
                '/' => '.',
                '.' => '/',
                it => it,
            })
            .collect(),
        _ => String::from(name),
    };
    if !SAFE_SYSCTLS.contains(&name.as_str()) {
        return Some(format!("{name:?} not allowlisted"));
    }
    let (namespace, is_shared) =
        if name.starts_with("net.") { ("Net", on_host_network) } else { ("IPC", on_host_ipc) };
    is_shared.then(|| format!("{name:?} not allowed with host {namespace} enabled"))
}

/// Checks the requirements for which no pod is preempted: OS, runtime class, sysctls, node selector, node affinity,
/// node name, host ports and `NoExecute` taints. Returns the rejection of the pod, or `None` if all are satisfied.
fn failed_predicate(
    node: &scheduler::Node,
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
    runtimes: &BTreeSet<Text>,
) -> Option<PodTermination> {
    let requirements = &candidate.pod.requirements;
    if !candidate.is_for_linux {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(rejection("PodOSNotSupported".into(), message));
    }
    if let Some(class) = candidate.runtime_class.as_ref().filter(|it| !runtimes.contains(*it)) {
        let message = format!("RuntimeClass {class:?} is not known to the node's container runtime");
        return Some(rejection("UnexpectedAdmissionError".into(), &message));
    }
    if let Some(why) = &candidate.forbidden_sysctl {
        return Some(rejection("SysctlForbidden".into(), &format!("forbidden sysctl: {why}")));
    }
    let is_not_tolerated = |it: &&muster_api::taints::Taint| {
        it.effect == TaintEffect::NoExecute && !any_tolerates(&requirements.tolerations, it)
    };
    let has_port_conflict = || {
        let mut in_use = others.iter().flat_map(|it| &it.pod.requirements.ports);
        in_use.any(|port| requirements.ports.iter().any(|it| it.conflicts_with(port)))
    };
    let predicate = if placement::check_selector_and_affinity(
        &requirements.node_selector,
        &requirements.node_affinity,
        &node.fact,
    )
    .is_err()
    {
        ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    } else if candidate.pod.node.as_ref().is_some_and(|it| *it != node.fact.name) {
        ("NodeName", "node(s) didn't match the requested node name")
    } else if has_port_conflict() {
        ("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    } else if !candidate.is_static && node.fact.taints.iter().any(|it| is_not_tolerated(&it)) {
        ("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    } else {
        return None;
    };
    let (name, why) = predicate;
    Some(rejection(name.into(), &format!("Predicate {name} failed: {why}")))
}

/// A resource that does not suffice on the node for a pod. Upstream: `InsufficientResourceError`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InsufficientResource {
    resource: Text,
    /// Amount of the resource that the pod requests.
    requested: i64,
    /// Amount of the resource that the other pods on the node request.
    used: i64,
    /// Allocatable amount of the resource on the node.
    capacity: i64,
}

impl InsufficientResource {
    /// Returns the reason of the rejection, such as `OutOfcpu`.
    fn reason(&self) -> Text {
        format!("OutOf{}", self.resource).into()
    }

    /// Returns the message of the rejection.
    fn message(&self) -> String {
        let Self { resource, requested, used, capacity } = self;
        format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }

    /// Returns how much of the resource the node lacks for the pod.
    fn missing_amount(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

/// Returns the resources that do not suffice on the node to run the pod in addition to the other pods. Empty if all
/// resources suffice. Extended resources that the node does not have are ignored.
fn insufficient_resources(
    node: &scheduler::Node,
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
) -> Vec<InsufficientResource> {
    let used = |resource: &str| {
        others.iter().map(|it| it.requested_amount(resource)).fold(0_i64, i64::saturating_add)
    };
    let capacity = |resource: &str| node.allocatable.get(resource).copied().unwrap_or(0);
    // Extended resources that the node does not advertise are ignored.
    let is_checked = |it: &str| !it.contains('/') || node.allocatable.contains_key(it);
    let asked = candidate.pod.requirements.requests.iter().filter(|(name, _)| is_checked(name));
    let asked: BTreeMap<&str, i64> = asked.map(|(name, amount)| (&**name, *amount)).collect();
    let first = ["pods", "cpu", "memory", "ephemeral-storage"];
    let rest = asked.keys().copied().filter(|it| !first.contains(it));
    first
        .into_iter()
        .chain(rest)
        .map(|name| InsufficientResource {
            resource: name.into(),
            requested: if name == "pods" { 1 } else { asked.get(name).copied().unwrap_or(0) },
            used: used(name),
            capacity: capacity(name),
        })
        .filter(|it| 0 < it.requested && 0 < it.missing_amount())
        .collect()
}

/// Returns the UIDs of the pods to preempt for `candidate`. `None` if preemption cannot free enough resources.
///
/// Rule: pods of a lower QoS class are preempted first. Guaranteed pods are chosen only for the amounts that would
/// still be missing if all BestEffort and Burstable pods were preempted. Burstable pods are chosen only for the amounts
/// that would still be missing if all BestEffort pods and the chosen Guaranteed pods were preempted. Within a QoS
/// class, the pod whose requests are closest to the missing amounts is chosen first. Upstream: `getPodsToPreempt`.
fn choose_victims(
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
    insufficient: &[InsufficientResource],
) -> Option<Vec<Text>> {
    let preemptable: Vec<&AdmissionCandidate> =
        others.iter().copied().filter(|it| candidate.outranks(it)).collect();
    let of = |qos: QosClass| -> Vec<&AdmissionCandidate> {
        preemptable.iter().copied().filter(|it| it.qos == qos).collect()
    };
    let (low, middle, high) = (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    let missing: MissingAmounts =
        insufficient.iter().map(|it| (it.resource.clone(), it.missing_amount())).collect();
    // From a higher class, only the pods are chosen that are needed when all pods of the lower classes are preempted.
    let high = closest_victims(high, missing_without(missing_without(missing.clone(), &low), &middle))?;
    let middle = closest_victims(middle, missing_without(missing_without(missing.clone(), &low), &high))?;
    let low = closest_victims(low, missing_without(missing_without(missing, &middle), &high))?;
    Some(low.iter().chain(&middle).chain(&high).map(|it| it.pod.uid.clone()).collect())
}

/// The amount of each resource that the node lacks for the pod.
type MissingAmounts = BTreeMap<Text, i64>;

/// Returns the amounts that are still missing if the pods `gone` are removed. Resources that then suffice are left out.
fn missing_without(mut missing: MissingAmounts, gone: &[&AdmissionCandidate]) -> MissingAmounts {
    for (resource, amount) in &mut missing {
        let freed = gone.iter().map(|it| it.requested_amount(resource)).fold(0_i64, i64::saturating_add);
        *amount = amount.saturating_sub(freed);
    }
    missing.retain(|_, amount| 0 < *amount);
    missing
}

/// Chooses pods to preempt until no resource is missing. The pod whose requests are closest to the missing amounts is
/// chosen first. `None` if all pods together do not free enough.
fn closest_victims(
    mut pods: Vec<&AdmissionCandidate>,
    mut missing: MissingAmounts,
) -> Option<Vec<&AdmissionCandidate>> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let index = (0..pods.len()).min_by_key(|index| {
            let pod = pods[*index];
            (
                distance_to_missing(pod, &missing),
                pod.requested_amount("memory"),
                pod.requested_amount("cpu"),
                pod.pod.uid.clone(),
            )
        })?;
        let pod = pods.swap_remove(index);
        missing = missing_without(missing, &[pod]);
        chosen.push(pod);
    }
    Some(chosen)
}

/// Returns how far the pod's requests are from the missing amounts: the sum of squares of the amounts that would still
/// be missing if the pod were removed. Each amount is in millionths of the amount that is missing now. Upstream:
/// `admissionRequirementList.distance`.
fn distance_to_missing(pod: &AdmissionCandidate, missing: &MissingAmounts) -> u128 {
    let squares = missing.iter().map(|(resource, amount)| {
        let rest = amount.saturating_sub(pod.requested_amount(resource)).max(0);
        let share = i128::from(rest) * 1_000_000 / i128::from(*amount).max(1);
        share.unsigned_abs() * share.unsigned_abs()
    });
    squares.sum()
}
