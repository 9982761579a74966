//! Removes all resources that a local cluster created on the machine, except its data directory. The cleanup also works
//! after the cluster was killed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::process::Command;

use super::{LocalNode, LocalNodeError, RANGE_FILE, RUN_DIR, cluster_identity, containerd, network};
use crate::node::CGROUP_ROOT;
use crate::runtime::{CriClient, Runtime, annotation, v1};
use crate::volumes::mount_table;

/// Maximum number of sandboxes that are stopped concurrently. More concurrent stops would slow each other down.
const SANDBOX_STOPS_MAX: usize = 8;

/// Maximum termination grace period of containers that the cleanup stops because no agent is left to stop them. Also
/// the grace period of a container if its pod's grace period is unknown.
pub const STOP_GRACE_MAX: Duration = Duration::from_secs(30);

/// Timeout for the runtime to stop all pods of a node. After it, their processes are killed.
const PODS_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for a runtime to list its sandboxes. After it, the runtime is assumed to have none.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout for a process to exit after a signal. A process that does not exit within this time gets SIGKILL.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks whether a signalled process has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Descriptions of the resources that a cluster left on the machine: processes, mounts, network namespaces and so on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LeftoverResources(pub Vec<String>);

/// Removes the resources of the cluster in this data directory, and returns those that were found. A resource that
/// cannot be removed causes no error. Each container gets the termination grace period of its pod, but at most `grace`.
/// The function is idempotent.
///
/// Rule: when a cluster stops, its pods, containerds, network namespaces, bridges, mounts and cgroups are removed. The
/// data directory stays.
pub async fn clean_up(data_dir: &Path, grace: Duration) -> Result<LeftoverResources, LocalNodeError> {
    let (dir, id) = cluster_identity(data_dir)?;
    let nodes = find_nodes(&dir, &id);
    let found = list_leftovers(&dir, &id, &nodes);
    futures::future::join_all(nodes.iter().map(|it| stop_node(it, grace))).await;

    // Processes that hold a mount must exit before it is unmounted.
    let remaining = processes_in_cgroups(&id);
    terminate_processes(&remaining, Signal::KILL).await;
    for at in [Path::new(RUN_DIR).join(&id), dir.join("nodes")] {
        if let Err(error) = mount_table::unmount_below(&at) {
            tracing::warn!(%error, "cannot unmount everything below {}", at.display());
        }
    }
    for node in &nodes {
        if node.netns_path().exists() {
            let name = node.netns_name();
            if let Err(error) = network::run_command(Command::new("ip").args(["netns", "del", &name])).await {
                tracing::warn!(name, %error, "cannot remove the network namespace");
            }
        }
    }
    network::remove_network(&id).await;
    for cgroup in cluster_cgroups(&id) {
        remove_cgroup(&cgroup);
    }
    let run = Path::new(RUN_DIR).join(&id);
    if let Err(error) = fs::remove_dir_all(&run)
        && run.exists()
    {
        tracing::warn!(path = %run.display(), %error, "cannot remove the run directory");
    }
    Ok(found)
}

/// Lists the resources of the cluster that exist on the machine, without removing anything.
pub fn find_leftovers(data_dir: &Path) -> Result<LeftoverResources, LocalNodeError> {
    let (dir, id) = cluster_identity(data_dir)?;
    Ok(list_leftovers(&dir, &id, &find_nodes(&dir, &id)))
}

/// Removes the resources that an earlier cluster in this data directory left on the machine, if the files of that
/// cluster are gone. Returns the removed resources. If the files still exist, removes nothing and returns an empty
/// list. Called before a cluster starts in this data directory.
///
/// Rule: the resources of a cluster whose data directory was removed cannot be reused, because their files are gone.
pub async fn clean_up_abandoned(data_dir: &Path) -> Result<LeftoverResources, LocalNodeError> {
    let (dir, id) = cluster_identity(data_dir)?;
    let nodes = find_nodes(&dir, &id);
    let leftovers = list_leftovers(&dir, &id, &nodes);
    let is_without_files = |it: &LocalNode| {
        let runs = !it.containerd_pids().is_empty() || !it.shim_pids().is_empty();
        runs && !it.has_containerd_files()
    };
    let is_abandoned = !dir.join(RANGE_FILE).exists() || nodes.iter().any(is_without_files);
    if leftovers.0.is_empty() || !is_abandoned {
        return Ok(LeftoverResources::default());
    }
    // A containerd without its files cannot stop pods gracefully.
    for node in &nodes {
        terminate_processes(&node.containerd_pids(), Signal::KILL).await;
    }
    clean_up(data_dir, Duration::ZERO).await
}

/// Stops the processes of this machine that have one of these command line arguments, and returns their PIDs. Processes
/// that do not exit after SIGTERM are killed.
pub async fn stop_processes_with_argument(arguments: &[OsString]) -> Vec<i32> {
    let has_argument =
        |args: &[&[u8]]| args.iter().any(|it| arguments.iter().any(|own| *it == own.as_bytes()));
    let processes = containerd::find_processes(has_argument);
    terminate_processes(&processes, Signal::TERM).await;
    processes.iter().map(|it| it.as_raw_nonzero().get()).collect()
}

/// Returns the PID of a process of this machine that has this command line argument, or `None` if there is none.
pub fn find_process_with_argument(argument: &OsStr) -> Option<Pid> {
    containerd::find_processes(|args| args.contains(&argument.as_bytes())).first().copied()
}

/// Returns the PID of the `muster up` process that runs the cluster's agents, or `None` if there is none. The process
/// is found as the parent of an agent, because a removed data directory has no lock file.
pub fn supervisor_pid(data_dir: &Path) -> Result<Option<u32>, LocalNodeError> {
    let (dir, id) = cluster_identity(data_dir)?;
    let agents = find_nodes(&dir, &id).into_iter().flat_map(|it| it.agent_pids());
    let mut parents = agents.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    });
    let is_up = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|it| *it == 0).nth(1) == Some(b"up")
    };
    Ok(parents.find(is_up))
}

/// Returns the name and containerd socket of each node whose containerd is running.
pub fn runtime_sockets(data_dir: &Path) -> Result<Vec<(String, PathBuf)>, LocalNodeError> {
    let (dir, id) = cluster_identity(data_dir)?;
    let running = find_nodes(&dir, &id).into_iter().filter(|it| !it.containerd_pids().is_empty());
    Ok(running.map(|it| (it.name.clone(), it.containerd_socket())).collect())
}

/// Returns the number of pods with a ready sandbox, summed over all nodes. Pods of a node whose containerd does not
/// respond do not count.
pub async fn count_running_pods(data_dir: &Path) -> usize {
    let count = async |(_, socket): (String, PathBuf)| {
        let runtime = CriClient::connect_lazy(&socket);
        let sandboxes = tokio::time::timeout(LIST_TIMEOUT, runtime.list_sandboxes(None)).await;
        let is_ready = |it: &&v1::PodSandbox| it.state == v1::PodSandboxState::SandboxReady as i32;
        sandboxes.map_or(0, |it| it.unwrap_or_default().iter().filter(is_ready).count())
    };
    let counts = runtime_sockets(data_dir).unwrap_or_default().into_iter().map(count);
    futures::future::join_all(counts).await.into_iter().sum()
}

/// Returns the nodes of a cluster that left something on the machine: a directory in the data directory, a directory in
/// the run directory, or a network namespace. `dir` is the data directory and `id` the ID of the cluster. The address
/// range of the returned nodes is not set, so their addresses must not be used.
fn find_nodes(dir: &Path, id: &str) -> Vec<LocalNode> {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|it| it.file_name().into_string().ok()).collect::<Vec<String>>()
    };
    let namespace = format!("muster-{id}-");
    let namespaces = names(Path::new("/run/netns"));
    let namespaces = namespaces.iter().filter_map(|it| it.strip_prefix(&namespace)).map(str::to_owned);
    let dirs = [dir.join("nodes"), Path::new(RUN_DIR).join(id)];
    let names: BTreeSet<String> = dirs.iter().flat_map(|it| names(it)).chain(namespaces).collect();
    let nodes = names.into_iter().filter_map(|name| {
        let number = name.strip_prefix("node-")?.parse().ok()?;
        let dir = dir.join("nodes").join(&name);
        Some(LocalNode { name, number, id: id.to_owned(), range: 0, dir })
    });
    nodes.collect()
}

/// Lists the resources of these nodes and of the cluster that exist on the machine.
fn list_leftovers(dir: &Path, id: &str, nodes: &[LocalNode]) -> LeftoverResources {
    let mut leftovers = Vec::new();
    for node in nodes {
        let processes = node.agent_pids().into_iter().chain(node.containerd_pids()).chain(node.shim_pids());
        leftovers.extend(processes.map(|pid| format!("process {}", pid.as_raw_nonzero())));
        if node.netns_path().exists() {
            leftovers.push(format!("network namespace {}", node.netns_name()));
        }
    }
    leftovers.extend(processes_in_cgroups(id).iter().map(|it| format!("process {}", it.as_raw_nonzero())));
    let mounts = [Path::new(RUN_DIR).join(id), dir.join("nodes")];
    let mounts = mounts.iter().filter_map(|it| mount_table::mounts_below(it).ok()).flatten();
    leftovers.extend(mounts.map(|it| format!("mount {}", it.display())));
    leftovers.extend(cluster_cgroups(id).iter().map(|it| format!("cgroup {}", it.display())));
    if network::link_exists(&network::bridge_name(id)) {
        leftovers.push(format!("bridge {}", network::bridge_name(id)));
    }
    let run = Path::new(RUN_DIR).join(id);
    if run.exists() {
        leftovers.push(format!("directory {}", run.display()));
    }
    LeftoverResources(leftovers)
}

/// Stops the agent, the pods and the containerd of a node.
async fn stop_node(node: &LocalNode, grace: Duration) {
    terminate_processes(&node.agent_pids(), Signal::TERM).await;
    if !node.containerd_pids().is_empty() {
        // Stopping pods through the runtime also releases their IP addresses and snapshots.
        let runtime = CriClient::connect_lazy(&node.containerd_socket());
        if tokio::time::timeout(PODS_STOP_TIMEOUT, stop_pods(&runtime, grace)).await.is_err() {
            tracing::warn!(node = node.name, "the pods did not stop in time and are killed");
        }
    }
    terminate_processes(&node.containerd_pids(), Signal::TERM).await;
    terminate_processes(&node.shim_pids(), Signal::KILL).await;
}

/// Stops all running containers simultaneously, each with the termination grace period of its pod, but at most `grace`.
/// Then stops and removes the sandboxes.
async fn stop_pods(runtime: &impl Runtime, grace: Duration) {
    let containers = runtime.list_containers(None).await.unwrap_or_default();
    let is_running = |it: &v1::Container| it.state == v1::ContainerState::ContainerRunning as i32;
    let ends = containers.into_iter().filter(is_running).map(async |it| {
        // A container that cannot be stopped is killed with its sandbox.
        let own = it.annotations.get(annotation::POD_GRACE_PERIOD).and_then(|it| it.parse().ok());
        let own = own.map_or(STOP_GRACE_MAX, Duration::from_secs);
        let _ = runtime.stop_container(&it.id, own.min(grace)).await;
    });
    futures::future::join_all(ends).await;
    let sandboxes = runtime.list_sandboxes(None).await.unwrap_or_default();
    let ends = futures::stream::iter(sandboxes).map(async |sandbox| {
        // Sandboxes whose network is gone cannot be stopped; their processes are killed later.
        let stopped = runtime.stop_sandbox(&sandbox.id).await;
        if stopped.is_ok() {
            let _ = runtime.remove_sandbox(&sandbox.id).await;
        }
    });
    ends.buffer_unordered(SANDBOX_STOPS_MAX).collect::<Vec<()>>().await;
}

/// Sends `first_signal` to the processes, and SIGKILL to those that do not exit within [`EXIT_TIMEOUT`].
async fn terminate_processes(processes: &[Pid], first_signal: Signal) {
    for signal in [first_signal, Signal::KILL] {
        let began = Instant::now();
        for pid in processes {
            let _ = kill_process(*pid, signal);
        }
        while began.elapsed() < EXIT_TIMEOUT {
            if processes.iter().all(|it| has_exited(*it)) {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whether a process has exited. A zombie process counts as exited.
pub fn has_exited(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    test_kill_process(pid).is_err() || state.starts_with(['Z', 'X'])
}

impl LocalNode {
    /// Sends SIGTERM to the agent, which stops its pods and exits.
    pub fn terminate_agent(&self) {
        for pid in self.agent_pids() {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Returns the PIDs of the agents that were started with this node's root directory.
    pub fn agent_pids(&self) -> Vec<Pid> {
        let root = self.agent_root();
        containerd::find_processes(|args| {
            args.get(1).is_some_and(|it| *it == b"agent")
                && args.iter().any(|it| *it == root.as_os_str().as_bytes())
        })
    }
}

/// Returns the existing cgroups of a cluster, one in each cgroup hierarchy. `id` is the ID of the cluster.
fn cluster_cgroups(id: &str) -> Vec<PathBuf> {
    let name = format!("muster-{id}");
    let hierarchies = fs::read_dir(CGROUP_ROOT).into_iter().flatten().flatten().map(|it| it.path());
    // One hierarchy may be mounted under two names.
    let hierarchies: BTreeSet<PathBuf> =
        hierarchies.chain([PathBuf::from(CGROUP_ROOT)]).filter_map(|it| fs::canonicalize(it).ok()).collect();
    hierarchies.into_iter().map(|it| it.join(&name)).filter(|it| it.is_dir()).collect()
}

/// Returns the PIDs of all processes in the cgroups of a cluster.
fn processes_in_cgroups(id: &str) -> Vec<Pid> {
    let mut pids = BTreeSet::new();
    let mut groups = cluster_cgroups(id);
    while let Some(group) = groups.pop() {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|it| it.trim().parse::<i32>().ok()));
        groups.extend(child_dirs(&group));
    }
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

/// Removes a cgroup and its children. A failure is only logged.
fn remove_cgroup(group: &Path) {
    for group in child_dirs(group) {
        remove_cgroup(&group);
    }
    if let Err(error) = fs::remove_dir(group) {
        tracing::warn!(group = %group.display(), %error, "cannot remove the cgroup");
    }
}

/// Returns the subdirectories of a directory.
fn child_dirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
}
