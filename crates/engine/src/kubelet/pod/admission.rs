//! Is a pod let in on its node? Whoever bound it may not have known what else is there.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::qos::QosClass;
use muster_api::taints::{TaintEffect, any_tolerates};
use muster_api::text::Text;
use serde::Deserialize;
use serde_json::Value;

use super::Ending;
use crate::daemonset::facts::Malformed;
use crate::daemonset::placement;
use crate::kubelet::static_pod;
use crate::scheduler::{self, Node};

/// What is decided of a pod that comes to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    Admitted,
    /// It fails, with this.
    Rejected(Ending),
    /// It is let in once these have ended, by UID: it is more important than they are. Ask again then.
    AfterOthers(Vec<Text>),
}

/// A pod, as far as it asks for something on its node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionCandidate {
    pod: scheduler::Pod,
    /// It came to this node before, and was let in.
    pub was_admitted: bool,
    is_static: bool,
    is_on_linux: bool,
    runtime_class: Option<Text>,
    /// What is wrong with the kernel's settings that it wants.
    forbidden_sysctl: Option<String>,
    qos: QosClass,
}

/// Above this, a pod is critical: the cluster does not work without it.
const CRITICAL: i32 = 2_000_000_000;

impl AdmissionCandidate {
    /// From an object that is parsed already.
    pub fn from_value(object: &Value) -> Result<Self, Malformed> {
        let malformed = |it| Malformed::new("pods", it);
        let wire = Wire::deserialize(object).map_err(malformed)?;
        let annotations = wire.metadata.annotations.unwrap_or_default();
        let WireSpec { host_network, host_ipc, security_context, .. } = &wire.spec;
        let sysctls = security_context.iter().flat_map(|it| it.sysctls.iter().flatten());
        let forbidden_sysctl =
            sysctls.filter_map(|it| forbidden_sysctl(&it.name, *host_network, *host_ipc)).next();
        Ok(Self {
            pod: scheduler::pod_from_value(object, &mut Interner::default()).map_err(malformed)?,
            was_admitted: wire.status.start_time.is_some(),
            is_static: static_pod::is_static(&annotations),
            is_on_linux: wire.spec.os.is_none_or(|it| it.name == "linux"),
            runtime_class: wire.spec.runtime_class_name.filter(|it| !it.is_empty()).map(Text::from),
            forbidden_sysctl,
            qos: wire.status.qos_class.as_deref().and_then(QosClass::parse).unwrap_or(QosClass::Burstable),
        })
    }

    pub fn uid(&self) -> &Text {
        &self.pod.uid
    }

    /// Rule: static pods, and pods of the two priorities that the system keeps for itself, are critical.
    pub fn is_critical(&self) -> bool {
        self.is_static || CRITICAL <= self.pod.priority
    }

    fn asks(&self, resource: &str) -> i64 {
        match resource {
            "pods" => 1,
            _ => self.pod.requirements.request(resource).unwrap_or(0),
        }
    }

    /// Rule: a critical pod comes before all that are not, and of two with a priority the higher one comes first.
    fn comes_before(&self, other: &Self) -> bool {
        (self.is_critical() && !other.is_critical()) || other.pod.priority < self.pod.priority
    }
}

/// Rule: a pod is let in if it fits beside those that are there, of whatever the node has to give; if its node has the
/// labels, the name and the runtime that it asks for, and no taint that would send it away; and if its ports are free. A
/// critical pod that finds too little left takes the place of others. Upstream: `predicateAdmitHandler`,
/// `CriticalPodAdmissionHandler`.
///
/// `others` are those that were let in and have not ended; `runtimes` the runtime classes that can be had.
pub fn admit(
    node: &Node,
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
    runtimes: &BTreeSet<Text>,
) -> Admission {
    if let Some(rejected) = unsuitable(node, others, candidate, runtimes) {
        return Admission::Rejected(rejected);
    }
    let lacks = lacks(node, others, candidate);
    let Some(first) = lacks.first() else { return Admission::Admitted };
    if !candidate.is_critical() {
        return Admission::Rejected(rejection(first.reason(), &first.message()));
    }
    match make_room(others, candidate, &lacks) {
        Some(uids) => Admission::AfterOthers(uids),
        None => {
            let lacks: Vec<String> =
                lacks.iter().map(|it| format!("(res: {}, q: {})", it.resource, it.missing())).collect();
            let message = format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error \
                 finding a set of pods to preempt: no set of running pods found to reclaim resources: [{}]",
                lacks.join(", ")
            );
            Admission::Rejected(rejection("UnexpectedAdmissionError".into(), &message))
        }
    }
}

/// What becomes of a pod that makes room for a critical one.
pub fn preempted() -> Ending {
    Ending {
        reason: "Preempting".into(),
        message: "Preempted in order to admit critical pod".into(),
        grace: None,
        is_rejection: false,
        is_disruption: true,
    }
}

/// What becomes of a pod that is not let in.
pub fn rejection(reason: Text, message: &str) -> Ending {
    Ending {
        reason,
        message: format!("Pod was rejected: {message}").into(),
        grace: None,
        is_rejection: true,
        is_disruption: false,
    }
}

/// Those that touch nobody but the pod itself.
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

/// Rule: a pod sets only those of the kernel's settings that are its own and touch nobody else; not even those where it
/// shares the node's network or IPC. Upstream: `SafeSysctlAllowlist`.
fn forbidden_sysctl(name: &str, on_host_network: bool, on_host_ipc: bool) -> Option<String> {
    let name = match name.find(['.', '/']) {
        // With slashes a dot is part of a word.
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

/// What no other pod's leaving would change, and taken ports.
fn unsuitable(
    node: &Node,
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
    runtimes: &BTreeSet<Text>,
) -> Option<Ending> {
    let wants = &candidate.pod.requirements;
    if !candidate.is_on_linux {
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
    let sends_away = |it: &&muster_api::taints::Taint| {
        it.effect == TaintEffect::NoExecute && !any_tolerates(&wants.tolerations, it)
    };
    let ports_taken = || {
        let mut taken = others.iter().flat_map(|it| &it.pod.requirements.ports);
        taken.any(|port| wants.ports.iter().any(|it| it.conflicts_with(port)))
    };
    let predicate = if placement::wanted(&wants.node_selector, &wants.node_affinity, &node.fact).is_err() {
        ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    } else if candidate.pod.node.as_ref().is_some_and(|it| *it != node.fact.name) {
        ("NodeName", "node(s) didn't match the requested node name")
    } else if ports_taken() {
        ("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    } else if !candidate.is_static && node.fact.taints.iter().any(|it| sends_away(&it)) {
        ("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    } else {
        return None;
    };
    let (name, why) = predicate;
    Some(rejection(name.into(), &format!("Predicate {name} failed: {why}")))
}

/// Something that a node has too little of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lack {
    resource: Text,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Lack {
    fn reason(&self) -> Text {
        format!("OutOf{}", self.resource).into()
    }

    fn message(&self) -> String {
        let Self { resource, requested, used, capacity } = self;
        format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }

    fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

fn lacks(node: &Node, others: &[&AdmissionCandidate], candidate: &AdmissionCandidate) -> Vec<Lack> {
    let used = |resource: &str| others.iter().map(|it| it.asks(resource)).fold(0_i64, i64::saturating_add);
    let capacity = |resource: &str| node.allocatable.get(resource).copied().unwrap_or(0);
    // What the node has never heard of is somebody else's to give.
    let is_ours = |it: &str| !it.contains('/') || node.allocatable.contains_key(it);
    let asked = candidate.pod.requirements.requests.iter().filter(|(name, _)| is_ours(name));
    let asked: BTreeMap<&str, i64> = asked.map(|(name, amount)| (&**name, *amount)).collect();
    let first = ["pods", "cpu", "memory", "ephemeral-storage"];
    let rest = asked.keys().copied().filter(|it| !first.contains(it));
    first
        .into_iter()
        .chain(rest)
        .map(|name| Lack {
            resource: name.into(),
            requested: if name == "pods" { 1 } else { asked.get(name).copied().unwrap_or(0) },
            used: used(name),
            capacity: capacity(name),
        })
        .filter(|it| 0 < it.requested && 0 < it.missing())
        .collect()
}

/// Rule: as few pods as can be make room, those without any guarantee before all others, and of those that would do the
/// one that is closest to what is missing.
fn make_room(
    others: &[&AdmissionCandidate],
    candidate: &AdmissionCandidate,
    lacks: &[Lack],
) -> Option<Vec<Text>> {
    let may_go: Vec<&AdmissionCandidate> =
        others.iter().copied().filter(|it| candidate.comes_before(it)).collect();
    let of = |qos: QosClass| -> Vec<&AdmissionCandidate> {
        may_go.iter().copied().filter(|it| it.qos == qos).collect()
    };
    let (low, middle, high) = (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    let missing: Missing = lacks.iter().map(|it| (it.resource.clone(), it.missing())).collect();
    // Of the better ones only as many go as are needed if all the lesser ones went too.
    let high = closest(high, without(without(missing.clone(), &low), &middle))?;
    let middle = closest(middle, without(without(missing.clone(), &low), &high))?;
    let low = closest(low, without(without(missing, &middle), &high))?;
    Some(low.iter().chain(&middle).chain(&high).map(|it| it.pod.uid.clone()).collect())
}

type Missing = BTreeMap<Text, i64>;

fn without(mut missing: Missing, gone: &[&AdmissionCandidate]) -> Missing {
    for (resource, amount) in &mut missing {
        let freed = gone.iter().map(|it| it.asks(resource)).fold(0_i64, i64::saturating_add);
        *amount = amount.saturating_sub(freed);
    }
    missing.retain(|_, amount| 0 < *amount);
    missing
}

fn closest(mut pods: Vec<&AdmissionCandidate>, mut missing: Missing) -> Option<Vec<&AdmissionCandidate>> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let place = (0..pods.len()).min_by_key(|place| {
            let pod = pods[*place];
            (distance(pod, &missing), pod.asks("memory"), pod.asks("cpu"), pod.pod.uid.clone())
        })?;
        let pod = pods.swap_remove(place);
        missing = without(missing, &[pod]);
        chosen.push(pod);
    }
    Some(chosen)
}

/// The squares of what would still be missing, each in millionths of what is missing now.
fn distance(pod: &AdmissionCandidate, missing: &Missing) -> u128 {
    let squares = missing.iter().map(|(resource, amount)| {
        let rest = amount.saturating_sub(pod.asks(resource)).max(0);
        let share = i128::from(rest) * 1_000_000 / i128::from(*amount).max(1);
        share.unsigned_abs() * share.unsigned_abs()
    });
    squares.sum()
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireMetadata {
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    os: Option<WireOs>,
    runtime_class_name: Option<String>,
    host_network: bool,
    #[serde(rename = "hostIPC")]
    host_ipc: bool,
    security_context: Option<WireSecurity>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireSecurity {
    sysctls: Option<Vec<WireSysctl>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireSysctl {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireOs {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    start_time: Option<String>,
    qos_class: Option<String>,
}
