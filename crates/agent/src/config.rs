//! Configuration of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_api::cidr::Ipv4Cidr;
use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::eviction::{self, Thresholds};
use serde_json::Value;

use crate::api_servers::ApiServers;

/// Configuration of a node, from its flags. Nodes on one machine must not share a name, root directory, runtime socket,
/// parent cgroup or address.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the Node object.
    pub name: String,
    /// Directory of the agent's own files, such as the node's certificates, and of the pods' volumes, which are in
    /// `pods/UID`. Container logs are in `var_log` instead.
    pub root_dir: PathBuf,
    /// Path of the container runtime's CRI socket.
    pub runtime_socket: PathBuf,
    /// Directory that the node's pods see as the hostPath `/var/log`. Container logs are in its subdirectory `pods`,
    /// and links to them in its subdirectory `containers`.
    pub var_log: PathBuf,
    /// Maps hostPath volumes to other directories of the machine: a hostPath at or below the first path of a pair is
    /// resolved at or below the second path. The first matching pair applies. For example, each of several nodes on one
    /// machine can have its own `/var/log`.
    pub host_path_mappings: Vec<(PathBuf, PathBuf)>,
    /// Parent cgroup of the node's pods in each cgroup hierarchy, for example `/kubepods`.
    pub cgroup_parent: String,
    /// The node's InternalIP.
    pub address: IpAddr,
    /// Port of the agent's HTTPS endpoint, which serves logs, exec, metrics and more.
    pub port: u16,
    /// Labels of the Node object, in addition to the well-known labels that every node has.
    pub labels: BTreeMap<String, String>,
    /// Taints that the Node object is registered with.
    pub taints: Vec<Value>,
    /// Maximum number of pods: the `pods` capacity of the Node object.
    pub pods_max: u16,
    /// Pod CIDR of the node, for example `10.244.1.0/24`. With `None`, the API server assigns the CIDR.
    pub pod_cidr: Option<String>,
    /// Directory from which the runtime reads its CNI configuration. The agent writes a configuration file there when
    /// the pod CIDR is known, unless another program's configuration file exists. With `None`, the agent writes no CNI
    /// configuration.
    pub cni_conf_dir: Option<PathBuf>,
    /// Directory of static pod manifests. With `None`, the node has no static pods.
    pub static_pod_dir: Option<PathBuf>,
    /// The API servers that the agent knows.
    pub api_servers: Arc<ApiServers>,
    /// CIDRs that are allowed for the `externalIPs` of Services. The node ignores external IPs outside these CIDRs.
    pub external_ip_ranges: Vec<Ipv4Cidr>,
    /// Address of the cluster DNS, at which the agent serves DNS. It is the nameserver of pods whose `dnsPolicy`
    /// selects the cluster DNS. With `None`, the agent serves no DNS, and these pods use the DNS of the node.
    pub cluster_dns: Option<IpAddr>,
    /// Path of the node's resolver configuration, usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// DNS domain of the cluster, usually `cluster.local`.
    pub cluster_domain: String,
    /// Whether containers without a seccomp profile run with `RuntimeDefault`. If false, they run unconfined.
    /// Privileged containers always run unconfined.
    pub seccomp_default: bool,
    /// Settings of eviction, image garbage collection and log rotation, and the resources reserved for the system.
    pub eviction_and_gc: EvictionAndGcConfig,
}

/// Settings of eviction, image garbage collection and log rotation, and the resources reserved for the system. The
/// default thresholds are the kubelet's.
#[derive(Debug, Clone)]
pub struct EvictionAndGcConfig {
    /// Resources reserved for system daemons. The node's allocatable resources are its capacity minus these resources
    /// and the hard eviction thresholds. Upstream: `systemReserved`.
    pub system_reserved: ResourceQuantities,
    /// Eviction thresholds, hard and soft.
    pub eviction_thresholds: Thresholds,
    /// Time for which a pressure condition of the node stays True after the pressure was last observed. Upstream:
    /// `evictionPressureTransitionPeriod`.
    pub pressure_transition_period: Duration,
    /// Maximum termination grace period of a pod that is evicted because of a soft threshold. Upstream:
    /// `evictionMaxPodGracePeriod`.
    pub eviction_grace_max: Duration,
    /// Usage of the image filesystem, in percent, at which the removal of unused images starts. 100 disables the
    /// removal.
    pub image_gc_high_percent: u8,
    /// Usage of the image filesystem, in percent, at which the removal of unused images stops.
    pub image_gc_low_percent: u8,
    /// Minimum time that an unused image is kept after the agent first saw it. It does not apply under disk pressure.
    /// Upstream: `imageMinimumGCAge`.
    pub image_age_min: Duration,
    /// Size in bytes above which the log of a container is rotated. Upstream: `containerLogMaxSize`.
    pub log_bytes_max: u64,
    /// Maximum number of log files of a container instance, including rotated files. Values below 2 count as 2.
    /// Upstream: `containerLogMaxFiles`.
    pub log_files_max: u16,
    /// Interval between two checks of the eviction thresholds, of the pods' storage limits, and of the log sizes.
    /// Images are checked less often.
    pub check_interval: Duration,
}

impl Default for EvictionAndGcConfig {
    fn default() -> Self {
        Self {
            system_reserved: ResourceQuantities::new(),
            eviction_thresholds: Thresholds::default(),
            pressure_transition_period: eviction::PRESSURE_TRANSITION_PERIOD,
            eviction_grace_max: Duration::ZERO,
            image_gc_high_percent: 85,
            image_gc_low_percent: 80,
            image_age_min: Duration::from_secs(120),
            log_bytes_max: 10 << 20,
            log_files_max: 5,
            check_interval: Duration::from_secs(10),
        }
    }
}

impl EvictionAndGcConfig {
    /// Parses a list such as `cpu=100m,memory=500Mi`, and sets `system_reserved` to it. The error is a message for the
    /// user.
    pub fn set_system_reserved(&mut self, text: &str) -> Result<(), String> {
        let amount = |part: &str| {
            let (name, amount) =
                part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=AMOUNT"))?;
            let amount = Quantity::parse(amount).map_err(|it| format!("{amount:?} of {name}: {it}"))?;
            Ok((name.to_owned(), amount))
        };
        let parts = text.split(',').filter(|it| !it.is_empty());
        self.system_reserved = parts.map(amount).collect::<Result<_, String>>()?;
        Ok(())
    }
}

impl Config {
    /// Returns the path on the machine that a hostPath refers to, according to `host_path_mappings`. A path without a
    /// mapping is returned unchanged.
    pub fn resolve_host_path(&self, path: &Path) -> PathBuf {
        let own = self
            .host_path_mappings
            .iter()
            .find_map(|(from, to)| Some(to.join(path.strip_prefix(from).ok()?)));
        own.unwrap_or_else(|| path.to_owned())
    }

    /// Returns the directory of the node's keys and certificates.
    pub fn pki_dir(&self) -> PathBuf {
        self.root_dir.join("pki")
    }

    /// Returns the directory of a pod's volumes and other files.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }

    /// Returns the directory with one marker file for each pod whose logs this node owns. Several nodes may share the
    /// log directory, so the log directory does not show which node owns a log.
    pub(crate) fn log_markers_dir(&self) -> PathBuf {
        self.root_dir.join("logs")
    }

    /// Returns the directory in which the runtime writes the logs of a pod's containers.
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
            root_dir: "/root-of-m1".into(),
            runtime_socket: "/run/m1.sock".into(),
            var_log: "/root-of-m1/log".into(),
            host_path_mappings: vec![("/var/log".into(), "/root-of-m1/log".into())],
            cgroup_parent: "/m1/kubepods".to_owned(),
            address: IpAddr::from([10, 1, 0, 1]),
            port: 10250,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            pods_max: 110,
            pod_cidr: None,
            cni_conf_dir: None,
            static_pod_dir: None,
            api_servers: Arc::new(ApiServers::load(
                vec!["https://10.1.0.100:6443".parse().unwrap()],
                Path::new("/root-of-m1/pki"),
            )),
            external_ip_ranges: Vec::new(),
            cluster_dns: Some(IpAddr::from([10, 96, 0, 10])),
            resolv_conf: "/etc/resolv.conf".into(),
            cluster_domain: "cluster.local".to_owned(),
            seccomp_default: false,
            eviction_and_gc: EvictionAndGcConfig::default(),
        }
    }
}
