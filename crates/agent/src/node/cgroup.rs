//! The cgroup of a pod, the parent of its containers' cgroups.
//!
//! cgroup v1 has one hierarchy for each controller, v2 one for all. The runtime does not remove pod cgroups; the
//! agent does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;
use muster_api::qos::{ComputeResources, CpuAndMemory, QosClass};
use muster_api::quantity::Quantity;
use muster_api::resources::{self, ResourceQuantities};

use crate::runtime::v1::{HugepageLimit, LinuxContainerResources};

const ROOT: &str = "/sys/fs/cgroup";

/// CFS period in microseconds.
const PERIOD_US: i64 = 100_000;
const QUOTA_US_MIN: i64 = 1_000;
const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;

/// The QoS class of a pod.
pub(crate) fn qos_class(spec: &PodSpec) -> QosClass {
    let of = |it: Option<&ResourceRequirements>| {
        let compute = |of: ResourceQuantities| {
            let amount = |name: &str| of.get(name).copied().unwrap_or(Quantity::ZERO);
            CpuAndMemory { cpu: amount("cpu"), memory: amount("memory") }
        };
        ComputeResources { requests: compute(requests(it)), limits: compute(limits(it)) }
    };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    QosClass::compute(
        spec.resources.as_ref().map(|it| of(Some(it))),
        containers.map(|it| of(it.resources.as_ref())),
    )
}

fn amounts(of: Option<&BTreeMap<String, resource::Quantity>>) -> ResourceQuantities {
    let parsed =
        |(name, it): (&String, &resource::Quantity)| Some((name.clone(), Quantity::parse(&it.0).ok()?));
    of.into_iter().flatten().filter_map(parsed).collect()
}

fn limits(of: Option<&ResourceRequirements>) -> ResourceQuantities {
    amounts(of.and_then(|it| it.limits.as_ref()))
}

/// Requests, defaulted to the limits.
fn requests(of: Option<&ResourceRequirements>) -> ResourceQuantities {
    let mut requests = limits(of);
    requests.extend(amounts(of.and_then(|it| it.requests.as_ref())));
    requests
}

/// Path of a pod's cgroup below the root of each hierarchy.
pub(crate) fn path(parent: &str, qos: QosClass, uid: &str) -> String {
    let parent = parent.trim_end_matches('/');
    match qos {
        QosClass::Guaranteed => format!("{parent}/pod{uid}"),
        QosClass::Burstable => format!("{parent}/burstable/pod{uid}"),
        QosClass::BestEffort => format!("{parent}/besteffort/pod{uid}"),
    }
}

/// Possible paths of a pod's cgroup: the QoS class is unknown once the object is gone.
fn paths(parent: &str, uid: &str) -> [String; 3] {
    [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort].map(|qos| path(parent, qos, uid))
}

/// CRI resources of a container: CPU shares and quota, memory limit, OOM score, huge pages.
pub(crate) fn of_container(
    spec: &PodSpec,
    container: &Container,
    is_sidecar: bool,
    node_memory: i64,
) -> LinuxContainerResources {
    let (requested, limited) = (requests(container.resources.as_ref()), limits(container.resources.as_ref()));
    LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: limited.get("cpu").map_or(0, |it| quota(*it)),
        cpu_shares: shares(requested.get("cpu").copied()),
        memory_limit_in_bytes: limited.get("memory").map_or(0, |it| units(*it)),
        oom_score_adj: oom_score(spec, container, is_sidecar, node_memory),
        hugepage_limits: limited.iter().filter_map(hugepages).collect(),
        ..Default::default()
    }
}

fn hugepages((name, amount): (&String, &Quantity)) -> Option<HugepageLimit> {
    let size = name.strip_prefix("hugepages-")?.strip_suffix('i')?;
    let limit = u64::try_from(units(*amount)).ok()?;
    Some(HugepageLimit { page_size: format!("{size}B"), limit })
}

fn units(amount: Quantity) -> i64 {
    i64::try_from(amount.units()).unwrap_or(i64::MAX)
}

fn millis(amount: Quantity) -> i64 {
    i64::try_from(amount.millis()).unwrap_or(i64::MAX)
}

/// CPU shares of a CPU request. Upstream: `MilliCPUToShares`.
fn shares(request: Option<Quantity>) -> i64 {
    let millis = request.map_or(0, millis);
    (millis.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// CFS quota of a CPU limit; zero means no quota. Upstream: `MilliCPUToQuota`.
fn quota(limit: Quantity) -> i64 {
    match millis(limit) {
        0 => 0,
        millis => (millis.saturating_mul(PERIOD_US) / 1000).max(QUOTA_US_MIN),
    }
}

/// Rule: when the node runs out of memory, containers are killed in the order of their OOM scores: the smaller the
/// memory request, the higher the score.
/// Upstream: `GetContainerOOMScoreAdjust`.
fn oom_score(spec: &PodSpec, container: &Container, is_sidecar: bool, node_memory: i64) -> i64 {
    const GUARANTEED: i64 = -997;
    const NODE_CRITICAL: i32 = 2_000_001_000;
    let qos = qos_class(spec);
    if spec.priority.is_some_and(|it| NODE_CRITICAL <= it) || qos == QosClass::Guaranteed {
        return GUARANTEED;
    }
    if qos == QosClass::BestEffort {
        return 1000;
    }
    let request_bytes =
        |it: &Container| requests(it.resources.as_ref()).get("memory").map_or(0, |it| units(*it));
    let score = |bytes: i64| 1000 - i128::from(bytes) * 1000 / i128::from(node_memory.max(1));
    let mut adjust = score(request_bytes(container));
    if is_sidecar {
        // A sidecar must not be killed before the containers that it serves.
        adjust = adjust.min(score(spec.containers.iter().map(request_bytes).min().unwrap_or(0)));
    }
    i64::try_from(adjust.clamp(i128::from(1000 + GUARANTEED), 999)).unwrap_or(999)
}

/// Limits of a pod's cgroup, which hold for all its containers together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfPod {
    pub shares: i64,
    pub quota_us: Option<i64>,
    pub memory_bytes: Option<i64>,
}

impl OfPod {
    /// Rule: a pod's cgroup has a limit if all of its containers have one, or if the pod has one itself.
    /// Upstream: `ResourceConfigForPod`.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        if qos_class(spec) == QosClass::BestEffort {
            return Self { shares: SHARES_MIN, quota_us: None, memory_bytes: None };
        }
        let is_sidecar = |it: &Container| it.restart_policy.as_deref() == Some("Always");
        let init = || spec.init_containers.iter().flatten();
        let sum = |of: fn(Option<&ResourceRequirements>) -> ResourceQuantities| {
            let mut sum = resources::pod_total(
                spec.containers.iter().map(|it| of(it.resources.as_ref())),
                init().map(|it| (is_sidecar(it), of(it.resources.as_ref()))),
            );
            if let Some(overhead) = &spec.overhead {
                resources::add_quantities(&mut sum, &amounts(Some(overhead)));
            }
            // Pod-level resources override the sum of the containers.
            sum.extend(of(spec.resources.as_ref()));
            sum
        };
        let is_limited = |name: &str| {
            let has =
                |it: Option<&ResourceRequirements>| limits(it).get(name).is_some_and(|it| !it.is_zero());
            has(spec.resources.as_ref())
                || spec.containers.iter().chain(init()).all(|it| has(it.resources.as_ref()))
        };
        let limited = sum(limits);
        Self {
            shares: shares(sum(requests).get("cpu").copied()),
            quota_us: limited.get("cpu").filter(|_| is_limited("cpu")).map(|it| quota(*it)),
            memory_bytes: limited.get("memory").filter(|_| is_limited("memory")).map(|it| units(*it)),
        }
    }
}

/// Creates the pod's cgroup or updates its limits, and returns its path.
pub(crate) fn make(parent: &str, uid: &str, spec: &PodSpec) -> io::Result<String> {
    let path = path(parent, qos_class(spec), uid);
    let limits = OfPod::of(spec);
    if is_v2() {
        make_v2(&path, &limits)?
    } else {
        make_v1(&path, &limits)?
    }
    Ok(path)
}

/// Rule: the Burstable cgroup has CPU shares for the sum of its pods' requests, and the BestEffort cgroup has the
/// minimum, however many pods there are. Upstream: `qosContainerManager`.
pub(crate) fn share_out<'a>(parent: &str, pods: impl Iterator<Item = &'a PodSpec>) -> io::Result<()> {
    for (class, shares) in class_shares(pods) {
        let path = format!("{}/{class}", parent.trim_end_matches('/'));
        let (dir, file, value) = if is_v2() {
            (below(Path::new(ROOT), &path), "cpu.weight", weight(shares))
        } else {
            (below(&Path::new(ROOT).join("cpu"), &path), "cpu.shares", shares)
        };
        match std::fs::read_to_string(dir.join(file)) {
            Ok(now) if now.trim() == value.to_string() => {}
            Ok(_) => write(&dir, file, value)?,
            // The QoS class has no pod.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn class_shares<'a>(pods: impl Iterator<Item = &'a PodSpec>) -> [(&'static str, i64); 2] {
    let burstable: i64 =
        pods.filter(|it| qos_class(it) == QosClass::Burstable).map(|it| OfPod::of(it).shares).sum();
    [("burstable", burstable.clamp(SHARES_MIN, SHARES_MAX)), ("besteffort", SHARES_MIN)]
}

/// Converts cgroup v1 shares to a v2 weight. Upstream: `CpuSharesToCpuWeight`.
fn weight(shares: i64) -> i64 {
    1 + (shares - SHARES_MIN) * 9999 / (SHARES_MAX - SHARES_MIN)
}

fn is_v2() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

fn below(hierarchy: &Path, path: &str) -> PathBuf {
    hierarchy.join(path.trim_start_matches('/'))
}

fn make_v1(path: &str, limits: &OfPod) -> io::Result<()> {
    let cpu = below(&Path::new(ROOT).join("cpu"), path);
    let memory = below(&Path::new(ROOT).join("memory"), path);
    std::fs::create_dir_all(&memory).map_err(at(&memory))?;
    std::fs::create_dir_all(&cpu).map_err(at(&cpu))?;
    write(&cpu, "cpu.shares", limits.shares)?;
    write(&cpu, "cpu.cfs_period_us", PERIOD_US)?;
    write(&cpu, "cpu.cfs_quota_us", limits.quota_us.unwrap_or(-1))?;
    write(&memory, "memory.limit_in_bytes", limits.memory_bytes.unwrap_or(-1))
}

fn make_v2(path: &str, limits: &OfPod) -> io::Result<()> {
    // Every parent must enable the controllers for its children.
    let mut dir = PathBuf::from(ROOT);
    for part in path.split('/').filter(|it| !it.is_empty()) {
        for controller in ["+cpu", "+memory", "+pids", "+cpuset", "+io", "+hugetlb"] {
            // Controllers that the kernel lacks are skipped.
            std::fs::write(dir.join("cgroup.subtree_control"), controller).ok();
        }
        dir.push(part);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(&dir)(error)),
            _ => {}
        }
    }
    write(&dir, "cpu.weight", weight(limits.shares))?;
    let quota = limits.quota_us.map_or("max".to_owned(), |it| it.to_string());
    write(&dir, "cpu.max", format!("{quota} {PERIOD_US}"))?;
    write(&dir, "memory.max", limits.memory_bytes.map_or("max".to_owned(), |it| it.to_string()))
}

fn write(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = dir.join(file);
    std::fs::write(&path, value.to_string()).map_err(at(&path))
}

/// Adds the path of the cgroup to an error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("cgroup {path}: {error}"))
}

/// Removes the pod's cgroup from every hierarchy. Fails while processes are in it.
pub(crate) fn remove(parent: &str, uid: &str) -> io::Result<()> {
    let hierarchies = if is_v2() {
        vec![PathBuf::from(ROOT)]
    } else {
        let all = std::fs::read_dir(ROOT)?.filter_map(Result::ok);
        // A hierarchy with two controllers also has a symbolic link for each of them.
        all.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
    };
    let mut outcome = Ok(());
    for path in paths(parent, uid) {
        for hierarchy in &hierarchies {
            let removed = remove_tree(&below(hierarchy, &path));
            outcome = outcome.and(removed);
        }
    }
    outcome
}

/// Removes a cgroup and its children. Only empty directories can be removed in cgroupfs, so the deepest go first.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let children = match std::fs::read_dir(dir) {
        Ok(children) => children,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for child in children.filter_map(Result::ok) {
        if child.file_type().is_ok_and(|it| it.is_dir()) {
            remove_tree(&child.path())?;
        }
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(dir)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_classes_have() {
        let pod = |requests: serde_json::Value| -> PodSpec {
            serde_json::from_value(
                json!({"containers": [{"name": "a", "resources": {"requests": requests}}]}),
            )
            .unwrap()
        };
        let pods = [
            pod(json!({})),
            pod(json!({"cpu": "500m"})),
            pod(json!({"memory": "1Gi"})),
            pod(json!({"cpu": "2"})),
        ];
        assert_eq!(class_shares(pods.iter()), [("burstable", 512 + 2 + 2048), ("besteffort", 2)]);
        assert_eq!(class_shares([].iter()), [("burstable", 2), ("besteffort", 2)]);
        assert_eq!([weight(2), weight(1024), weight(SHARES_MAX)], [1, 39, 10_000]);
    }

    #[test]
    fn what_a_pod_may_have() {
        let pods = [
            ("nothing", json!({"containers": [{"name": "a"}]})),
            (
                "sure",
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}]}),
            ),
            (
                "one without a limit",
                json!({"containers": [
                    {"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}},
                    {"name": "b", "resources": {"requests": {"memory": "256Mi"}}}]}),
            ),
            (
                "with init and sidecar",
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "64Mi"},
                        "requests": {"cpu": "10m", "memory": "1Mi"}}}],
                    "initContainers": [
                        {"name": "i", "resources": {"limits": {"cpu": "2", "memory": "16Mi"}}},
                        {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1m", "memory": "8Mi"}}}]}),
            ),
            (
                "critical",
                json!({"priority": 2_000_001_000, "containers": [{"name": "a", "resources": {"requests": {"cpu": "1m"}}}]}),
            ),
            (
                "of its own",
                json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "containers": [{"name": "a"}]}),
            ),
        ];
        let lines = pods.map(|(name, spec)| {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            let OfPod { shares, quota_us, memory_bytes } = OfPod::of(&spec);
            let qos = qos_class(&spec);
            let mut text =
                format!("{name}: {qos:?} shares {shares} quota {quota_us:?} memory {memory_bytes:?}");
            let all = spec.containers.iter().map(|it| (it, false));
            let init = spec.init_containers.iter().flatten();
            for (it, is_sidecar) in all.chain(init.map(|it| (it, it.restart_policy.is_some()))) {
                let of = of_container(&spec, it, is_sidecar, 1 << 30);
                text += &format!(
                    "\n  {}: shares {} quota {} memory {} oom {}",
                    it.name, of.cpu_shares, of.cpu_quota, of.memory_limit_in_bytes, of.oom_score_adj
                );
            }
            text
        });
        expect![[r#"
            nothing: BestEffort shares 2 quota None memory None
              a: shares 2 quota 0 memory 0 oom 1000
            sure: Guaranteed shares 512 quota Some(50000) memory Some(67108864)
              a: shares 512 quota 50000 memory 67108864 oom -997
            one without a limit: Burstable shares 512 quota None memory None
              a: shares 512 quota 50000 memory 67108864 oom 938
              b: shares 2 quota 0 memory 0 oom 750
            with init and sidecar: Burstable shares 2048 quota Some(200000) memory Some(75497472)
              a: shares 10 quota 100000 memory 67108864 oom 999
              i: shares 2048 quota 200000 memory 16777216 oom 985
              s: shares 2 quota 1000 memory 8388608 oom 993
            critical: Burstable shares 2 quota None memory None
              a: shares 2 quota 0 memory 0 oom -997
            of its own: Guaranteed shares 1024 quota Some(100000) memory Some(1073741824)
              a: shares 2 quota 0 memory 0 oom -997"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn empty_resources_of_the_pod_are_used_in_place_of_those_of_containers() {
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let class = |spec| qos_class(&serde_json::from_value(spec).unwrap());
        let containers = json!([{"name": "a", "resources": limits}]);
        assert_eq!(class(json!({"containers": containers})), QosClass::Guaranteed);
        assert_eq!(class(json!({"resources": {}, "containers": containers})), QosClass::BestEffort);
    }
}
