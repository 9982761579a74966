//! Configuration of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::eviction::{self, Thresholds};
use muster_engine::service_proxy::Range;
use serde_json::Value;

/// Configuration of a node, from its flags. Two nodes on one machine differ in every field that names a path, an
/// address or a port.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the Node object.
    pub name: String,
    /// Directory of everything the node persists: its certificates, and the volumes of each pod in `pods/UID`.
    pub root: PathBuf,
    /// Path of the container runtime's CRI socket.
    pub runtime: PathBuf,
    /// Directory that the node's pods see as `/var/log`. Container logs are in `pods`, with links to them in
    /// `containers`.
    pub var_log: PathBuf,
    /// Maps directories of the machine to directories of the node: a hostPath below the first path of a pair is
    /// taken from the second. With several nodes on one machine, each node gets its own `/var/log`, for example.
    pub own_paths: Vec<(PathBuf, PathBuf)>,
    /// Parent cgroup of the node's pods in each cgroup hierarchy, for example `/kubepods`.
    pub cgroup_parent: String,
    /// The node's InternalIP.
    pub address: IpAddr,
    /// Port of the agent's endpoint: logs, exec, metrics.
    pub port: u16,
    /// Labels of the Node object, besides the well-known ones that every node has.
    pub labels: BTreeMap<String, String>,
    /// Taints that the Node object is registered with.
    pub taints: Vec<Value>,
    /// Maximum number of pods: the `pods` capacity of the Node object.
    pub pods_max: u16,
    /// Pod CIDR of the node, for example `10.244.1.0/24`. `None`: the API server assigns one.
    pub pod_range: Option<String>,
    /// Directory from which the runtime reads its CNI configuration. The agent writes one there when the pod CIDR
    /// is known, unless another file already exists.
    pub cni_conf: Option<PathBuf>,
    /// Directory of static pod manifests.
    pub static_pods: Option<PathBuf>,
    /// The URL of the API server.
    pub server: String,
    /// CIDRs that `externalIPs` of Services may be in.
    pub external_ips: Vec<Range>,
    /// Address of the cluster DNS, written to the resolv.conf of pods.
    pub cluster_dns: Option<IpAddr>,
    /// Resolver configuration of the node, usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// DNS domain of the cluster, usually `cluster.local`.
    pub cluster_domain: String,
    /// Whether containers without a seccomp profile run with `RuntimeDefault`.
    pub seccomp_default: bool,
    /// Eviction, image garbage collection and log rotation.
    pub reclaim: ReclaimConfig,
}

/// Thresholds and intervals of eviction, image garbage collection and log rotation. The defaults are the
/// kubelet's.
#[derive(Debug, Clone)]
pub struct ReclaimConfig {
    /// Resources reserved for the system: allocatable is the capacity without them.
    pub reserved: ResourceQuantities,
    /// Eviction thresholds, hard and soft.
    pub thresholds: Thresholds,
    /// A pressure condition ends when its threshold has not been met for this long. Upstream:
    /// `evictionPressureTransitionPeriod`.
    pub pressure_min: Duration,
    /// Maximum termination grace period of a pod that is evicted for a soft threshold. Upstream:
    /// `evictionMaxPodGracePeriod`.
    pub grace_max: Duration,
    /// Disk usage in percent above which unused images are removed.
    pub images_high: u8,
    /// Disk usage in percent at which the removal of unused images stops.
    pub images_low: u8,
    /// Minimum age of an unused image before it may be removed. Upstream: `imageMinimumGCAge`.
    pub image_age_min: Duration,
    /// Size of a container log at which it is rotated.
    pub log_bytes_max: u64,
    /// Maximum number of log files of a container, rotated ones included.
    pub logs_max: u16,
    /// Interval between two checks of thresholds, images and logs.
    pub look_every: Duration,
}

impl Default for ReclaimConfig {
    fn default() -> Self {
        Self {
            reserved: ResourceQuantities::new(),
            thresholds: Thresholds::default(),
            pressure_min: eviction::PRESSURE_MIN,
            grace_max: Duration::ZERO,
            images_high: 85,
            images_low: 80,
            image_age_min: Duration::from_secs(120),
            log_bytes_max: 10 << 20,
            logs_max: 5,
            look_every: Duration::from_secs(10),
        }
    }
}

impl ReclaimConfig {
    /// Parses a list such as `cpu=100m,memory=500Mi`.
    pub fn set_reserved(&mut self, text: &str) -> Result<(), String> {
        let amount = |part: &str| {
            let (name, amount) =
                part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=AMOUNT"))?;
            let amount = Quantity::parse(amount).map_err(|it| format!("{amount:?} of {name}: {it}"))?;
            Ok((name.to_owned(), amount))
        };
        let parts = text.split(',').filter(|it| !it.is_empty());
        self.reserved = parts.map(amount).collect::<Result<_, String>>()?;
        Ok(())
    }
}

impl Config {
    /// Resolves a hostPath through `host_path_mappings`.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        let own = self.own_paths.iter().find_map(|(from, to)| Some(to.join(path.strip_prefix(from).ok()?)));
        own.unwrap_or_else(|| path.to_owned())
    }

    /// Directory of the node's keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Directory of a pod's volumes and other files.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// Directory with one marker file for each pod whose logs this node owns: several nodes may share the log
    /// directory.
    pub(crate) fn logs_kept(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Directory in which the runtime writes the logs of a pod's containers.
    pub fn log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.var_log.join("pods").join(format!("{namespace}_{name}_{uid}"))
    }
}

#[cfg(test)]
pub(crate) use self::tests::example;

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn example() -> Config {
        Config {
            name: "m1".to_owned(),
            root: "/root-of-m1".into(),
            runtime: "/run/m1.sock".into(),
            var_log: "/root-of-m1/log".into(),
            own_paths: vec![("/var/log".into(), "/root-of-m1/log".into())],
            cgroup_parent: "/m1/kubepods".to_owned(),
            address: IpAddr::from([10, 1, 0, 1]),
            port: 10250,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            pods_max: 110,
            pod_range: None,
            cni_conf: None,
            static_pods: None,
            server: "https://10.1.0.100:6443".to_owned(),
            external_ips: Vec::new(),
            cluster_dns: Some(IpAddr::from([10, 96, 0, 10])),
            resolv_conf: "/etc/resolv.conf".into(),
            cluster_domain: "cluster.local".to_owned(),
            seccomp_default: false,
            reclaim: ReclaimConfig::default(),
        }
    }
}
