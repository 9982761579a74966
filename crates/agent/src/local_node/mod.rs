//! Several nodes on one machine: each has a network namespace and a containerd of its own, so each has its own ports, pods and
//! deaths. A cluster has one range of addresses, and everything else is named after its data directory: clusters do not meet,
//! and whatever a killed one left is found again.
//!
//! tools -> network -> containerd -> clear. Read in this order.

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

/// As many nodes as there are ranges of pods, with room for what else wants an address.
pub const NODES_MAX: u16 = 200;

/// In the data directory: which addresses the cluster has.
const RANGE_FILE: &str = "nodes/range";

/// What is in memory only, and short, for the names of sockets are.
const RUN: &str = "/run/muster";

#[derive(Debug, thiserror::Error)]
pub enum LocalNodeError {
    #[error("use {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("run {program}")]
    Run { program: &'static str, source: io::Error },
    #[error("{command} failed: {said}")]
    Command { command: String, said: String },
    #[error(
        "no range of addresses is free: 10.{}.0.0/16 to 10.{}.0.0/16 all have routes here. `muster down` clears up after clusters \
         that were killed",
        network::RANGES.start(),
        network::RANGES.end()
    )]
    NoRange,
    #[error("containerd of {node} does not answer; its log is {log}, and says at last: {said}")]
    Silent { node: String, log: PathBuf, said: String },
    #[error("give {node} its image for sandboxes")]
    Image { node: String, source: ImageError },
}

/// What a cluster has of the machine.
#[derive(Debug, Clone)]
pub struct LocalCluster {
    /// The data directory, from the root.
    dir: PathBuf,
    /// Six digits that are the data directory's alone.
    id: String,
    /// The cluster has the addresses `10.RANGE.x.x`.
    range: u8,
}

/// Where a node is on the machine.
#[derive(Debug, Clone)]
pub struct LocalNode {
    pub name: String,
    number: u16,
    id: String,
    range: u8,
    /// All that it keeps.
    dir: PathBuf,
}

impl LocalCluster {
    /// Finds the cluster's network again, or makes it. Nothing of the nodes is touched.
    pub async fn open(data_dir: &Path) -> Result<Self, LocalNodeError> {
        let (dir, id) = identity(data_dir)?;
        let nodes = dir.join("nodes");
        make_dir(&nodes)?;
        make_dir(&PathBuf::from(RUN).join(&id))?;
        let range = network::make_hub(&dir.join(RANGE_FILE), &id).await?;
        Ok(Self { dir, id, range })
    }

    /// Where the nodes reach this machine.
    pub fn address(&self) -> Ipv4Addr {
        network::hub_address(self.range)
    }

    /// The addresses of all its pods.
    pub fn pods(&self) -> String {
        format!("10.{}.0.0/16", self.range)
    }

    pub fn node(&self, number: u16) -> LocalNode {
        assert!((1..=NODES_MAX).contains(&number));
        let name = format!("node-{number}");
        let dir = self.dir.join("nodes").join(&name);
        LocalNode { name, number, id: self.id.clone(), range: self.range, dir }
    }

    /// Archives of images that every node has.
    pub fn images(&self) -> PathBuf {
        self.dir.join("images")
    }
}

impl LocalNode {
    pub fn address(&self) -> Ipv4Addr {
        network::node_address(self.range, self.number)
    }

    /// The addresses of its pods.
    pub fn pods(&self) -> String {
        format!("10.{}.{}.0/24", self.range, self.number)
    }

    /// The file that its network namespace is held by.
    pub fn netns(&self) -> PathBuf {
        Path::new("/run/netns").join(self.netns_name())
    }

    fn netns_name(&self) -> String {
        format!("muster-{}-{}", self.id, self.name)
    }

    /// What it hangs on the cluster's bridge by, in the machine's own network.
    pub fn link(&self) -> String {
        network::link(&self.id, self.number)
    }

    pub fn cgroup_parent(&self) -> String {
        format!("/muster-{}/{}", self.id, self.name)
    }

    /// What the agent keeps.
    pub fn root(&self) -> PathBuf {
        self.dir.join("agent")
    }

    /// What its pods see as `/var/log`.
    pub fn var_log(&self) -> PathBuf {
        self.dir.join("var-log")
    }

    /// Where the agent says what the network of its pods is.
    pub fn cni_conf(&self) -> PathBuf {
        self.dir.join("cni")
    }

    /// Manifests of pods that it runs whatever the API server says.
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

    /// Makes what the node needs before anything runs on it: directories, and its network.
    pub async fn make(&self) -> Result<(), LocalNodeError> {
        for dir in [&self.dir, &self.root(), &self.cni_conf(), &self.static_pods(), &self.run()] {
            make_dir(dir)?;
        }
        // Log shippers read it as whoever they are.
        let var_log = self.var_log();
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&var_log);
        made.map_err(failed(&var_log))?;
        self.share_mounts()?;
        network::make_node(self).await
    }

    /// Puts back the routes by which the node is reached and reaches others, if a link that went down took them along.
    pub async fn keep_routes(&self) -> Result<(), LocalNodeError> {
        network::keep_routes(self).await
    }

    /// What is mounted in a pod's volumes is seen by others only if what is around it is shared, which `/` need not be.
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

/// The data directory as everybody calls it, and the digits that stand for it.
fn identity(data_dir: &Path) -> Result<(PathBuf, String), LocalNodeError> {
    let dir = canonical(data_dir).map_err(failed(data_dir))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, dir.as_os_str().as_encoded_bytes());
    let id = digest.as_ref().iter().take(3).map(|it| format!("{it:02x}")).collect();
    Ok((dir, id))
}

/// The canonical path; of a removed directory, its parent is canonicalized.
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
