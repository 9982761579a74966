//! What a node is told about itself before it begins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::eviction::{self, Thresholds};
use muster_engine::service_proxy::Range;
use serde_json::Value;

/// What a node is told about itself before it begins. Two nodes on one machine differ in all that is here.
#[derive(Debug, Clone)]
pub struct Config {
    pub name: String,
    /// All that the node keeps: its certificates, and each pod's volumes in `pods/UID`.
    pub root: PathBuf,
    /// The runtime's socket.
    pub runtime: PathBuf,
    /// What the node's pods see as `/var/log`. Container logs are in `pods` there, with links in `containers`.
    pub var_log: PathBuf,
    /// A hostPath in one of the first is in the second instead: with several nodes on a machine, each has its own.
    pub own_paths: Vec<(PathBuf, PathBuf)>,
    /// Where the node's pods are in each cgroup hierarchy, as `/kubepods`.
    pub cgroup_parent: String,
    /// Where others reach the node.
    pub address: IpAddr,
    /// Where the API server reaches it: logs, exec and figures.
    pub port: u16,
    /// Beside those that every node has.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Value>,
    pub pods_max: u16,
    /// The addresses of its pods, as `10.244.1.0/24`; none: those that the API server gives it.
    pub pod_range: Option<String>,
    /// Where the runtime reads what the network of its pods is. Said there once the range is known, unless another file says it.
    pub cni_conf: Option<PathBuf>,
    /// Manifests of pods that the node runs whatever the API server says.
    pub static_pods: Option<PathBuf>,
    /// The URL of the API server.
    pub server: String,
    /// The addresses that `externalIPs` of Services may have.
    pub external_ips: Vec<Range>,
    pub cluster_dns: Option<IpAddr>,
    /// Whom the node itself asks for names, as `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    pub cluster_domain: String,
    /// Containers that name no seccomp profile have the runtime's.
    pub seccomp_default: bool,
    /// Eviction and image garbage collection.
    pub reclaim: ReclaimConfig,
}

/// Thresholds and intervals of eviction, image garbage collection and log rotation. The defaults are a kubelet's.
#[derive(Debug, Clone)]
pub struct ReclaimConfig {
    /// What pods do not get, for the system needs it.
    pub reserved: ResourceQuantities,
    /// What must be left, or pods are sent off.
    pub thresholds: Thresholds,
    /// A pressure is over when it was not seen for so long.
    pub pressure_min: Duration,
    /// The longest that a pod gets to end by itself that goes for a soft threshold.
    pub grace_max: Duration,
    /// When more than this of the disk is taken, in percent, unused images go …
    pub images_high: u8,
    /// … until no more than this is.
    pub images_low: u8,
    /// An image that came later than this before is not unused yet.
    pub image_age_min: Duration,
    /// A log that is larger is set aside, of which so many are kept.
    pub log_bytes_max: u64,
    pub logs_max: u16,
    /// How often it looks.
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
    /// Reads `cpu=100m,memory=500Mi`.
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
    /// Where a path of this machine is for the node's pods.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        let own = self.own_paths.iter().find_map(|(from, to)| Some(to.join(path.strip_prefix(from).ok()?)));
        own.unwrap_or_else(|| path.to_owned())
    }

    /// Where its keys and certificates are.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// What the node keeps for a pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// A file for each pod whose logs are this node's: others may have theirs in the same place.
    pub(crate) fn logs_kept(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Where the runtime writes the logs of a pod's containers.
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
