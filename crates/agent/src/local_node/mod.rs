//! Several nodes on one machine. Each node has its own network namespace and its own containerd, hence its own
//! ports and pods, and fails on its own. A cluster has one address range; everything else is named after its data
//! directory, so that clusters do not collide and the leftovers of a killed one can be found.
//!
//! prerequisites -> network -> containerd -> cleanup. Read in this order.

mod clear;
mod containerd;
mod network;
mod tools;

use std::fs::{self, DirBuilder};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

pub use self::clear::{GRACE, Left, clear, clear_abandoned, leftovers, pods, sockets, user_of};
pub use self::containerd::Containerd;
pub use self::network::is_hub;
pub use self::tools::{Missing, is_root, missing, missing_for_agent, wanting_for_agent};

use crate::image::ImageError;
use crate::volumes::table;

/// Maximum number of nodes of a cluster: each has one /24 of the cluster's /16, with space to spare.
pub const NODES_MAX: u16 = 200;

/// File in the data directory that holds the cluster's address range.
const RANGE_FILE: &str = "nodes/range";

/// Directory of sockets and state that need not survive a reboot; short, because socket paths are limited.
const RUN: &str = "/run/muster";

#[derive(Debug, thiserror::Error)]
pub enum LocalNodeError {
    #[error("access {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("run {program}")]
    Run { program: &'static str, source: io::Error },
    #[error("{command}: {said}")]
    Command { command: String, said: String },
    #[error(
        "no address range is free: 10.{}.0.0/16 to 10.{}.0.0/16 all have routes on this machine. `muster down` cleans up after clusters \
         that were killed",
        network::RANGES.start(),
        network::RANGES.end()
    )]
    NoRange,
    #[error("containerd of {node} does not respond; the last line of its log {log}: {said}")]
    Silent { node: String, log: PathBuf, said: String },
    #[error("import the sandbox image on {node}")]
    Image { node: String, source: ImageError },
}

/// A cluster of local nodes: its directory, ID and address range.
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
    number: u16,
    id: String,
    range: u8,
    /// Directory of everything the node persists.
    dir: PathBuf,
}

impl LocalCluster {
    /// Finds or creates the cluster's network. Does not touch the nodes.
    pub async fn open(data_dir: &Path) -> Result<Self, LocalNodeError> {
        let (dir, id) = identity(data_dir)?;
        let nodes = dir.join("nodes");
        make_dir(&nodes)?;
        make_dir(&PathBuf::from(RUN).join(&id))?;
        let range = network::make_hub(&dir.join(RANGE_FILE), &id).await?;
        Ok(Self { dir, id, range })
    }

    /// Address of this machine on the cluster's bridge.
    pub fn address(&self) -> Ipv4Addr {
        network::hub_address(self.range)
    }

    /// CIDR of all pods of the cluster.
    pub fn pods(&self) -> String {
        format!("10.{}.0.0/16", self.range)
    }

    pub fn node(&self, number: u16) -> LocalNode {
        assert!((1..=NODES_MAX).contains(&number));
        let name = format!("node-{number}");
        let dir = self.dir.join("nodes").join(&name);
        LocalNode { name, number, id: self.id.clone(), range: self.range, dir }
    }

    /// Directory of image archives that are imported on every node.
    pub fn images(&self) -> PathBuf {
        self.dir.join("images")
    }
}

impl LocalNode {
    pub fn address(&self) -> Ipv4Addr {
        network::node_address(self.range, self.number)
    }

    /// Pod CIDR of the node.
    pub fn pods(&self) -> String {
        format!("10.{}.{}.0/24", self.range, self.number)
    }

    /// Path of the node's network namespace.
    pub fn netns(&self) -> PathBuf {
        Path::new("/run/netns").join(self.netns_name())
    }

    fn netns_name(&self) -> String {
        format!("muster-{}-{}", self.id, self.name)
    }

    /// Name of the host end of the node's veth pair.
    pub fn link(&self) -> String {
        network::link(&self.id, self.number)
    }

    pub fn cgroup_parent(&self) -> String {
        format!("/muster-{}/{}", self.id, self.name)
    }

    /// Root directory of the node's agent.
    pub fn root(&self) -> PathBuf {
        self.dir.join("agent")
    }

    /// Directory that the node's pods see as `/var/log`.
    pub fn var_log(&self) -> PathBuf {
        self.dir.join("var-log")
    }

    /// Directory of the node's CNI configuration.
    pub fn cni_conf(&self) -> PathBuf {
        self.dir.join("cni")
    }

    /// Directory of the node's static pod manifests.
    pub fn static_pods(&self) -> PathBuf {
        self.dir.join("static-pods")
    }

    pub fn agent_log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    fn run(&self) -> PathBuf {
        Path::new(RUN).join(&self.id).join(&self.name)
    }

    pub fn socket(&self) -> PathBuf {
        self.run().join("containerd.sock")
    }

    /// Creates the node's directories and network.
    pub async fn make(&self) -> Result<(), LocalNodeError> {
        for dir in [&self.dir, &self.root(), &self.cni_conf(), &self.static_pods(), &self.run()] {
            make_dir(dir)?;
        }
        // World-readable, for log shippers that run as any user.
        let var_log = self.var_log();
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&var_log);
        made.map_err(failed(&var_log))?;
        self.share_mounts()?;
        network::make_node(self).await
    }

    /// Restores the routes to and from the node that were lost when a link went down.
    pub async fn keep_routes(&self) -> Result<(), LocalNodeError> {
        network::keep_routes(self).await
    }

    /// Makes the root directory a shared mount, which mount propagation needs; `/` may be private.
    fn share_mounts(&self) -> Result<(), LocalNodeError> {
        let root = self.root();
        if !table::is_mounted(&root).map_err(failed(&root))? {
            mount_bind(&root, &root)
                .map_err(|it| LocalNodeError::File { path: root.clone(), source: it.into() })?;
        }
        let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change(&root, flags)
            .map_err(|it| LocalNodeError::File { path: root.clone(), source: it.into() })
    }
}

/// Canonical path of the data directory, and the cluster ID derived from it.
fn identity(data_dir: &Path) -> Result<(PathBuf, String), LocalNodeError> {
    let dir = canonical(data_dir).map_err(failed(data_dir))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, dir.as_os_str().as_encoded_bytes());
    let id = digest.as_ref().iter().take(3).map(|it| format!("{it:02x}")).collect();
    Ok((dir, id))
}

/// The canonical path; for a directory that does not exist, that of its parent plus its name.
fn canonical(dir: &Path) -> io::Result<PathBuf> {
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

fn make_dir(path: &Path) -> Result<(), LocalNodeError> {
    DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> LocalNodeError {
    let path = path.to_owned();
    move |source| LocalNodeError::File { path, source }
}
