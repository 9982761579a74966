//! Several nodes on one machine, for `muster up --nodes`. Each node has its own network namespace and its own
//! containerd. It therefore has its own ports and pods, and fails independently.
//!
//! Each cluster has its own address range. All other resources are named after the cluster's data directory, so that
//! clusters do not collide, and the leftovers of a killed cluster can be found.
//!
//! Reading order: prerequisites, network, containerd, cleanup.

/// Removal of all resources of a cluster from the machine.
mod cleanup;
/// The containerd of each node.
mod containerd;
/// Bridge, network namespaces and routes of a cluster.
mod network;
/// Programs and cgroups that the machine needs.
mod prerequisites;

use std::fs::{self, DirBuilder};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

pub use self::cleanup::{
    LeftoverResources, STOP_GRACE_MAX, clean_up, clean_up_abandoned, count_running_pods, find_leftovers,
    find_process_with_argument, has_exited, runtime_sockets, stop_processes_with_argument, supervisor_pid,
};
pub use self::containerd::Containerd;
pub use self::network::is_bridge_address;
pub use self::prerequisites::{
    MissingPrerequisites, find_missing_prerequisites, is_root, missing_agent_prerequisites,
    missing_optional_tools,
};

use crate::digest::format_hex;
use crate::image::ImageError;
use crate::volumes::mount_table;

/// Maximum number of nodes of a cluster. Each node uses one /24 of the cluster's /16, which has space for more.
pub const NODES_MAX: u16 = 200;

/// File in the data directory that holds the cluster's address range.
const RANGE_FILE: &str = "nodes/range";

/// Directory of sockets and state that need not survive a reboot. The path is short because the length of socket paths
/// is limited.
const RUN_DIR: &str = "/run/muster";

/// An error of setting up or removing local nodes.
#[derive(Debug, thiserror::Error)]
pub enum LocalNodeError {
    #[error("access {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("run {program}")]
    Spawn { program: &'static str, source: io::Error },
    #[error("{command}: {message}")]
    CommandFailed { command: String, message: String },
    #[error(
        "no address range is free: 10.{}.0.0/16 to 10.{}.0.0/16 all have routes on this machine. `muster down` cleans up after clusters \
         that were killed",
        network::CLUSTER_SECOND_OCTETS.start(),
        network::CLUSTER_SECOND_OCTETS.end()
    )]
    NoFreeRange,
    #[error("containerd of {node} does not respond; the last line of its log {log}: {message}")]
    Unresponsive { node: String, log: PathBuf, message: String },
    #[error("import the sandbox image on {node}")]
    Image { node: String, source: ImageError },
}

/// A cluster of local nodes.
#[derive(Debug, Clone)]
pub struct LocalCluster {
    /// Absolute path of the data directory.
    dir: PathBuf,
    /// Six hexadecimal digits derived from the path of the data directory.
    id: String,
    /// Second octet of the cluster's addresses, `10.RANGE.x.x`.
    range: u8,
}

/// One local node: its paths, addresses and processes on the machine.
#[derive(Debug, Clone)]
pub struct LocalNode {
    pub name: String,
    /// Number of the node in its cluster, which determines its addresses.
    number: u16,
    /// ID of the cluster.
    id: String,
    /// Second octet of the cluster's addresses, `10.RANGE.x.x`.
    range: u8,
    /// Directory of all files that the node persists.
    dir: PathBuf,
}

impl LocalCluster {
    /// Opens the cluster of this data directory, creates its bridge if it is missing, and sets up IP forwarding and
    /// masquerading. The nodes are not changed.
    pub async fn open_or_create(data_dir: &Path) -> Result<Self, LocalNodeError> {
        let (dir, id) = cluster_identity(data_dir)?;
        create_dir(&dir.join("nodes"))?;
        create_dir(&PathBuf::from(RUN_DIR).join(&id))?;
        let range = network::ensure_bridge(&dir.join(RANGE_FILE), &id).await?;
        Ok(Self { dir, id, range })
    }

    /// Returns the address of this machine on the cluster's bridge.
    pub fn address(&self) -> Ipv4Addr {
        network::bridge_address(self.range)
    }

    /// Returns the CIDR that contains the pod CIDRs and the addresses of all nodes.
    pub fn pod_cidr(&self) -> String {
        format!("10.{}.0.0/16", self.range)
    }

    /// Returns the node with this number, which must be from 1 to [`NODES_MAX`]. Its resources may not exist yet.
    pub fn node(&self, number: u16) -> LocalNode {
        assert!((1..=NODES_MAX).contains(&number));
        let name = format!("node-{number}");
        let dir = self.dir.join("nodes").join(&name);
        LocalNode { name, number, id: self.id.clone(), range: self.range, dir }
    }

    /// Returns the directory of image archives, which are imported on every node.
    pub fn image_dir(&self) -> PathBuf {
        self.dir.join("images")
    }
}

impl LocalNode {
    /// Returns the node's InternalIP.
    pub fn address(&self) -> Ipv4Addr {
        network::node_address(self.range, self.number)
    }

    pub fn pod_cidr(&self) -> String {
        format!("10.{}.{}.0/24", self.range, self.number)
    }

    /// Returns the path of the node's network namespace.
    pub fn netns_path(&self) -> PathBuf {
        Path::new("/run/netns").join(self.netns_name())
    }

    fn netns_name(&self) -> String {
        format!("muster-{}-{}", self.id, self.name)
    }

    /// Returns the name of the network interface on the machine that connects the node (the host end of its veth pair).
    pub fn link_name(&self) -> String {
        network::link_name(&self.id, self.number)
    }

    /// Returns the parent cgroup of the node's pods.
    pub fn cgroup_parent(&self) -> String {
        format!("/muster-{}/{}", self.id, self.name)
    }

    /// Returns the root directory of the node's agent.
    pub fn agent_root(&self) -> PathBuf {
        self.dir.join("agent")
    }

    /// Returns the directory that the node's pods see as the hostPath `/var/log`.
    pub fn var_log(&self) -> PathBuf {
        self.dir.join("var-log")
    }

    /// Returns the directory of the node's CNI configuration.
    pub fn cni_conf_dir(&self) -> PathBuf {
        self.dir.join("cni")
    }

    /// Returns the directory of the node's static pod manifests.
    pub fn static_pod_dir(&self) -> PathBuf {
        self.dir.join("static-pods")
    }

    /// Returns the path of the log of the node's agent.
    pub fn agent_log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    /// Returns the directory of the node's sockets and of the state that need not survive a reboot.
    fn run_dir(&self) -> PathBuf {
        Path::new(RUN_DIR).join(&self.id).join(&self.name)
    }

    /// Returns the path of the socket of the node's containerd.
    pub fn containerd_socket(&self) -> PathBuf {
        self.run_dir().join("containerd.sock")
    }

    /// Creates the node's directories and network.
    pub async fn create(&self) -> Result<(), LocalNodeError> {
        for dir in
            [&self.dir, &self.agent_root(), &self.cni_conf_dir(), &self.static_pod_dir(), &self.run_dir()]
        {
            create_dir(dir)?;
        }
        // World-readable, for log shippers that run as any user.
        let var_log = self.var_log();
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&var_log);
        made.map_err(file_error(&var_log))?;
        self.make_agent_root_shared()?;
        network::ensure_node_network(self).await
    }

    /// Restores the routes to and from the node that were lost when a link went down.
    pub async fn restore_routes(&self) -> Result<(), LocalNodeError> {
        network::restore_routes(self).await
    }

    /// Makes the agent's root directory a shared mount. Mount propagation needs it, and `/` may be a private mount.
    fn make_agent_root_shared(&self) -> Result<(), LocalNodeError> {
        let root = self.agent_root();
        if !mount_table::is_mounted(&root).map_err(file_error(&root))? {
            mount_bind(&root, &root)
                .map_err(|it| LocalNodeError::File { path: root.clone(), source: it.into() })?;
        }
        let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change(&root, flags)
            .map_err(|it| LocalNodeError::File { path: root.clone(), source: it.into() })
    }
}

/// Returns the canonical path of the data directory, and the cluster ID that is derived from this path.
fn cluster_identity(data_dir: &Path) -> Result<(PathBuf, String), LocalNodeError> {
    let dir = canonical_path(data_dir).map_err(file_error(data_dir))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, dir.as_os_str().as_encoded_bytes());
    Ok((dir, format_hex(&digest.as_ref()[..3])))
}

/// Returns the canonical path of a directory. If the directory does not exist, the canonical path of its parent is
/// joined with its name. If the parent does not exist either, the path is only made absolute.
fn canonical_path(dir: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = std::path::absolute(dir)?;
            match (dir.parent().map(fs::canonicalize), dir.file_name()) {
                (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
                _ => Ok(dir),
            }
        }
        found => found,
    }
}

/// Creates a directory and its parents, with mode 0711.
fn create_dir(path: &Path) -> Result<(), LocalNodeError> {
    DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(file_error(path))
}

/// Returns a function that converts an I/O error of this file to a [`LocalNodeError`].
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> LocalNodeError {
    let path = path.to_owned();
    move |source| LocalNodeError::File { path, source }
}
