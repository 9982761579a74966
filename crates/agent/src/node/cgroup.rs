//! The cgroup of a pod, the parent of its containers' cgroups.
//!
//! cgroup v1 has one hierarchy for each controller, and v2 has one hierarchy for all controllers. The runtime does not
//! remove pod cgroups, so the agent does.

use std::io;
use std::path::{Path, PathBuf};

use muster_api::qos::QosClass;
use muster_api::quantity::Quantity;
use muster_api::resources::{add_quantities, pod_limit, quantities_from_json, spec_pod_total};
use muster_api::well_known::NODE_CRITICAL_PRIORITY;

use crate::parsed_pod::{ParsedPod, PodContainer};
use crate::runtime::v1::{HugepageLimit, LinuxContainerResources};

/// Mount point of cgroup v2, or the directory with the mount points of the cgroup v1 hierarchies.
pub(crate) const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Period of the CFS CPU quota, in microseconds.
const CPU_PERIOD_US: i64 = 100_000;
/// Minimum CFS CPU quota that the kernel accepts, in microseconds per period.
const CPU_QUOTA_US_MIN: i64 = 1_000;
/// Minimum of `cpu.shares` in the kernel.
const CPU_SHARES_MIN: i64 = 2;
/// Maximum of `cpu.shares` in the kernel.
const CPU_SHARES_MAX: i64 = 262_144;

/// Returns the path of a pod's cgroup, relative to the root of each cgroup hierarchy.
pub(crate) fn pod_cgroup_path(parent: &str, qos: QosClass, uid: &str) -> String {
    let parent = parent.trim_end_matches('/');
    match qos {
        QosClass::Guaranteed => format!("{parent}/pod{uid}"),
        QosClass::Burstable => format!("{parent}/burstable/pod{uid}"),
        QosClass::BestEffort => format!("{parent}/besteffort/pod{uid}"),
    }
}

/// Returns all possible paths of a pod's cgroup, one for each QoS class, because the QoS class is unknown after the pod
/// object was deleted.
fn possible_cgroup_paths(parent: &str, uid: &str) -> [String; 3] {
    [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort]
        .map(|qos| pod_cgroup_path(parent, qos, uid))
}

/// Returns the CRI resources of a container: CPU shares and quota, memory limit, `oom_score_adj`, huge pages.
/// `node_memory` is the allocatable memory of the node in bytes.
pub(crate) fn container_resources(
    pod: &ParsedPod,
    container: PodContainer<'_>,
    node_memory: i64,
) -> LinuxContainerResources {
    let (requested, limited) = (container.requests(), container.limits());
    LinuxContainerResources {
        cpu_period: CPU_PERIOD_US,
        cpu_quota: limited.get("cpu").map_or(0, |it| cpu_quota(*it)),
        cpu_shares: cpu_shares(requested.get("cpu").copied()),
        memory_limit_in_bytes: limited.get("memory").map_or(0, |it| whole_units(*it)),
        oom_score_adj: oom_score_adjust(pod, container, node_memory),
        hugepage_limits: limited.iter().filter_map(hugepage_limit).collect(),
        ..Default::default()
    }
}

/// Converts a limit of a resource such as `hugepages-2Mi` to a CRI limit. Returns `None` for other resources and for
/// negative amounts.
fn hugepage_limit((name, amount): (&String, &Quantity)) -> Option<HugepageLimit> {
    let size = name.strip_prefix("hugepages-")?.strip_suffix('i')?;
    let limit = u64::try_from(whole_units(*amount)).ok()?;
    Some(HugepageLimit { page_size: format!("{size}B"), limit })
}

/// Converts a quantity to whole units, rounded away from zero. A value out of range becomes `i64::MAX`.
fn whole_units(amount: Quantity) -> i64 {
    i64::try_from(amount.units()).unwrap_or(i64::MAX)
}

/// Converts a quantity to thousandths, rounded away from zero. A value out of range becomes `i64::MAX`.
fn milli_units(amount: Quantity) -> i64 {
    i64::try_from(amount.millis()).unwrap_or(i64::MAX)
}

/// Converts a CPU request to CPU shares. Without a request, returns the minimum. Upstream: `MilliCPUToShares`.
fn cpu_shares(request: Option<Quantity>) -> i64 {
    let millis = request.map_or(0, milli_units);
    (millis.saturating_mul(1024) / 1000).clamp(CPU_SHARES_MIN, CPU_SHARES_MAX)
}

/// Converts a CPU limit to a CFS quota in microseconds per period. Zero means no quota. Upstream: `MilliCPUToQuota`.
fn cpu_quota(limit: Quantity) -> i64 {
    match milli_units(limit) {
        0 => 0,
        millis => (millis.saturating_mul(CPU_PERIOD_US) / 1000).max(CPU_QUOTA_US_MIN),
    }
}

/// Returns the `oom_score_adj` of a container.
///
/// Rule: when the node runs out of memory, the kernel kills containers with a high `oom_score_adj` first. The value is
/// lowest in Guaranteed and node-critical pods and highest in BestEffort pods. In Burstable pods, a smaller memory
/// request causes a higher value. A sidecar's value is at most the value of the main container with the smallest
/// request. Upstream: `GetContainerOOMScoreAdjust`.
fn oom_score_adjust(pod: &ParsedPod, container: PodContainer<'_>, node_memory: i64) -> i64 {
    /// `oom_score_adj` of containers in Guaranteed and node-critical pods.
    const GUARANTEED_SCORE: i64 = -997;
    let priority = pod.spec.as_ref().and_then(|it| it.priority);
    if priority.is_some_and(|it| NODE_CRITICAL_PRIORITY <= it) || pod.qos == QosClass::Guaranteed {
        return GUARANTEED_SCORE;
    }
    if pod.qos == QosClass::BestEffort {
        return 1000;
    }
    let request_bytes = |it: PodContainer<'_>| it.requests().get("memory").map_or(0, |it| whole_units(*it));
    let score = |bytes: i64| 1000 - i128::from(bytes) * 1000 / i128::from(node_memory.max(1));
    let mut adjust = score(request_bytes(container));
    if container.is_sidecar {
        // A sidecar must not be killed before the containers that it serves.
        let main = pod.main_containers().map(request_bytes);
        adjust = adjust.min(score(main.min().unwrap_or(0)));
    }
    i64::try_from(adjust.clamp(i128::from(1000 + GUARANTEED_SCORE), 999)).unwrap_or(999)
}

/// CPU shares and limits of a pod's cgroup. They apply to all containers of the pod together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodCgroupLimits {
    /// CPU shares in the scale of cgroup v1.
    pub shares: i64,
    /// CPU quota in microseconds per period. `None` means no limit.
    pub quota_us: Option<i64>,
    /// Memory limit in bytes. `None` means no limit.
    pub memory_bytes: Option<i64>,
}

impl PodCgroupLimits {
    /// Computes the CPU shares and limits of the pod's cgroup.
    ///
    /// Rule: the CPU shares follow from the total CPU request of the pod with its overhead. A BestEffort pod has the
    /// minimum shares. The CPU quota and the memory limit are the limits of the pod, if it has them. Upstream:
    /// `ResourceConfigForPod`.
    pub(crate) fn from_pod(pod: &ParsedPod) -> Self {
        let spec = &pod.json["spec"];
        let mut requested = spec_pod_total(spec, "requests");
        add_quantities(&mut requested, &quantities_from_json(&spec["overhead"]));
        let request = requested.get("cpu").filter(|_| pod.qos != QosClass::BestEffort);
        Self {
            shares: cpu_shares(request.copied()),
            quota_us: pod_limit(&pod.json, "cpu").map(cpu_quota),
            memory_bytes: pod_limit(&pod.json, "memory").map(whole_units),
        }
    }
}

/// Creates the pod's cgroup or updates its limits. Returns the path of the cgroup relative to the root of each cgroup
/// hierarchy.
pub(crate) fn ensure_pod_cgroup(parent: &str, uid: &str, pod: &ParsedPod) -> io::Result<String> {
    let path = pod_cgroup_path(parent, pod.qos, uid);
    let limits = PodCgroupLimits::from_pod(pod);
    if is_cgroup_v2() {
        write_v2_limits(&path, &limits)?
    } else {
        write_v1_limits(&path, &limits)?
    }
    Ok(path)
}

/// Sets the CPU shares of the cgroups of the QoS classes Burstable and BestEffort. A cgroup that does not exist is
/// skipped.
///
/// Rule: the CPU shares of the Burstable cgroup are the sum of its pods' shares, limited to the kernel's range. The
/// BestEffort cgroup always has the minimum. Upstream: `qosContainerManager`.
pub(crate) fn set_qos_cpu_shares<'a>(
    parent: &str,
    pods: impl Iterator<Item = &'a ParsedPod>,
) -> io::Result<()> {
    for (class, shares) in qos_cpu_shares(pods) {
        let path = format!("{}/{class}", parent.trim_end_matches('/'));
        let (dir, file, value) = if is_cgroup_v2() {
            (cgroup_dir(Path::new(CGROUP_ROOT), &path), "cpu.weight", shares_to_weight(shares))
        } else {
            (cgroup_dir(&Path::new(CGROUP_ROOT).join("cpu"), &path), "cpu.shares", shares)
        };
        match std::fs::read_to_string(dir.join(file)) {
            Ok(now) if now.trim() == value.to_string() => {}
            Ok(_) => write_cgroup_file(&dir, file, value)?,
            // The QoS class has no pod.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the CPU shares of the Burstable and of the BestEffort cgroup, each with the name of the cgroup.
fn qos_cpu_shares<'a>(pods: impl Iterator<Item = &'a ParsedPod>) -> [(&'static str, i64); 2] {
    let burstable: i64 =
        pods.filter(|it| it.qos == QosClass::Burstable).map(|it| PodCgroupLimits::from_pod(it).shares).sum();
    [("burstable", burstable.clamp(CPU_SHARES_MIN, CPU_SHARES_MAX)), ("besteffort", CPU_SHARES_MIN)]
}

/// Converts cgroup v1 shares to a v2 weight. Upstream: `CpuSharesToCpuWeight`.
fn shares_to_weight(shares: i64) -> i64 {
    1 + (shares - CPU_SHARES_MIN) * 9999 / (CPU_SHARES_MAX - CPU_SHARES_MIN)
}

/// Whether the machine uses only cgroup v2.
fn is_cgroup_v2() -> bool {
    Path::new(CGROUP_ROOT).join("cgroup.controllers").exists()
}

/// Returns the directory of a cgroup in one hierarchy. `path` is the path of the cgroup relative to the hierarchy.
fn cgroup_dir(hierarchy: &Path, path: &str) -> PathBuf {
    hierarchy.join(path.trim_start_matches('/'))
}

/// Creates a cgroup in the CPU and memory hierarchies of cgroup v1 and writes its limits.
fn write_v1_limits(path: &str, limits: &PodCgroupLimits) -> io::Result<()> {
    let cpu = cgroup_dir(&Path::new(CGROUP_ROOT).join("cpu"), path);
    let memory = cgroup_dir(&Path::new(CGROUP_ROOT).join("memory"), path);
    std::fs::create_dir_all(&memory).map_err(error_with_path(&memory))?;
    std::fs::create_dir_all(&cpu).map_err(error_with_path(&cpu))?;
    write_cgroup_file(&cpu, "cpu.shares", limits.shares)?;
    write_cgroup_file(&cpu, "cpu.cfs_period_us", CPU_PERIOD_US)?;
    write_cgroup_file(&cpu, "cpu.cfs_quota_us", limits.quota_us.unwrap_or(-1))?;
    write_cgroup_file(&memory, "memory.limit_in_bytes", limits.memory_bytes.unwrap_or(-1))
}

/// Creates a cgroup and its parents in the hierarchy of cgroup v2, enables the controllers in the parents, and writes
/// the limits of the cgroup.
fn write_v2_limits(path: &str, limits: &PodCgroupLimits) -> io::Result<()> {
    // Every parent must enable the controllers for its children.
    let mut dir = PathBuf::from(CGROUP_ROOT);
    for part in path.split('/').filter(|it| !it.is_empty()) {
        for controller in ["+cpu", "+memory", "+pids", "+cpuset", "+io", "+hugetlb"] {
            // Controllers that the kernel lacks are skipped.
            std::fs::write(dir.join("cgroup.subtree_control"), controller).ok();
        }
        dir.push(part);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error_with_path(&dir)(error));
            }
            _ => {}
        }
    }
    write_cgroup_file(&dir, "cpu.weight", shares_to_weight(limits.shares))?;
    let quota = limits.quota_us.map_or("max".to_owned(), |it| it.to_string());
    write_cgroup_file(&dir, "cpu.max", format!("{quota} {CPU_PERIOD_US}"))?;
    write_cgroup_file(&dir, "memory.max", limits.memory_bytes.map_or("max".to_owned(), |it| it.to_string()))
}

/// Writes a value to a file of a cgroup.
fn write_cgroup_file(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = dir.join(file);
    std::fs::write(&path, value.to_string()).map_err(error_with_path(&path))
}

/// Returns a function that adds the path of a cgroup or of one of its files to an error.
fn error_with_path(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("cgroup {path}: {error}"))
}

/// Removes the pod's cgroup from every hierarchy. Fails while the cgroup has processes.
pub(crate) fn remove_pod_cgroup(parent: &str, uid: &str) -> io::Result<()> {
    let hierarchies = if is_cgroup_v2() {
        vec![PathBuf::from(CGROUP_ROOT)]
    } else {
        let all = std::fs::read_dir(CGROUP_ROOT)?.filter_map(Result::ok);
        // A hierarchy with two controllers also has a symbolic link for each of them.
        all.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
    };
    let mut outcome = Ok(());
    for path in possible_cgroup_paths(parent, uid) {
        for hierarchy in &hierarchies {
            let removed = remove_cgroup_tree(&cgroup_dir(hierarchy, &path));
            outcome = outcome.and(removed);
        }
    }
    outcome
}

/// Removes a cgroup and its children. In cgroupfs a directory can be removed only without children, so the deepest
/// directories are removed first.
fn remove_cgroup_tree(dir: &Path) -> io::Result<()> {
    let children = match std::fs::read_dir(dir) {
        Ok(children) => children,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for child in children.filter_map(Result::ok) {
        if child.file_type().is_ok_and(|it| it.is_dir()) {
            remove_cgroup_tree(&child.path())?;
        }
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error_with_path(dir)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use muster_api::resources::set_default_resources;
    use serde_json::json;

    use super::*;

    /// A pod with this spec and the default requests.
    fn pod(mut spec: serde_json::Value) -> ParsedPod {
        set_default_resources(&mut spec);
        ParsedPod::new(json!({"metadata": {"name": "web", "uid": "u1"}, "spec": spec})).unwrap()
    }

    #[test]
    fn cpu_shares_of_the_qos_classes() {
        let pod = |requests: serde_json::Value| {
            pod(json!({"containers": [{"name": "a", "resources": {"requests": requests}}]}))
        };
        let pods = [
            pod(json!({})),
            pod(json!({"cpu": "500m"})),
            pod(json!({"memory": "1Gi"})),
            pod(json!({"cpu": "2"})),
        ];
        assert_eq!(qos_cpu_shares(pods.iter()), [("burstable", 512 + 2 + 2048), ("besteffort", 2)]);
        assert_eq!(qos_cpu_shares([].iter()), [("burstable", 2), ("besteffort", 2)]);
        assert_eq!(
            [shares_to_weight(2), shares_to_weight(1024), shares_to_weight(CPU_SHARES_MAX)],
            [1, 39, 10_000]
        );
    }

    #[test]
    fn cgroup_limits_of_a_pod() {
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
            (
                "of its own, with overhead",
                json!({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, "containers": [{"name": "a"}],
                    "overhead": {"cpu": "500m", "memory": "1Gi"}}),
            ),
            ("nothing, with overhead", json!({"containers": [{"name": "a"}], "overhead": {"cpu": "500m"}})),
        ];
        let lines = pods.map(|(name, spec)| {
            let pod = pod(spec);
            let PodCgroupLimits { shares, quota_us, memory_bytes } = PodCgroupLimits::from_pod(&pod);
            let qos = pod.qos;
            let mut text =
                format!("{name}: {qos:?} shares {shares} quota {quota_us:?} memory {memory_bytes:?}");
            for it in pod.containers() {
                let of = container_resources(&pod, it, 1 << 30);
                text += &format!(
                    "\n  {}: shares {} quota {} memory {} oom {}",
                    it.container.name,
                    of.cpu_shares,
                    of.cpu_quota,
                    of.memory_limit_in_bytes,
                    of.oom_score_adj
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
              i: shares 2048 quota 200000 memory 16777216 oom 985
              s: shares 2 quota 1000 memory 8388608 oom 993
              a: shares 10 quota 100000 memory 67108864 oom 999
            critical: Burstable shares 2 quota None memory None
              a: shares 2 quota 0 memory 0 oom -997
            of its own: Guaranteed shares 1024 quota Some(100000) memory Some(1073741824)
              a: shares 2 quota 0 memory 0 oom -997
            of its own, with overhead: Burstable shares 1536 quota Some(250000) memory None
              a: shares 2 quota 0 memory 0 oom 999
            nothing, with overhead: BestEffort shares 2 quota None memory None
              a: shares 2 quota 0 memory 0 oom 1000"#]]
        .assert_eq(&lines.join("\n"));
    }
}
