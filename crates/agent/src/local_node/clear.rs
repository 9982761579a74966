//! Removes everything that a local cluster created on the machine, whether the cluster was stopped or killed. The
//! data directory stays.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::process::Command;

use super::{LocalNode, LocalNodeError, RANGE_FILE, RUN, containerd, identity, network};
use crate::runtime::{Cri, Runtime, annotation, v1};
use crate::volumes::table;

/// Sandboxes stopped concurrently: more would slow each other down.
const AT_ONCE: usize = 8;

/// Longest termination grace period of containers when no agent is there to stop them.
pub const GRACE: Duration = Duration::from_secs(30);

/// Time for a runtime to stop all pods; after that their processes are killed.
const PODS_MAX: Duration = Duration::from_secs(60);

/// Time for a runtime to list its sandboxes; after that none are assumed.
const COUNT_MAX: Duration = Duration::from_secs(1);

/// Time for a process to exit after each signal.
const END_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

const CGROUPS: &str = "/sys/fs/cgroup";

/// The leftovers of a cluster on the machine, as text: processes, mounts, network namespaces and so on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Left(pub Vec<String>);

/// Rule: when a cluster stops, its pods, containerds, network namespaces, bridges, mounts and cgroups are removed;
/// the data directory stays. Returns what was found. Idempotent.
/// Containers get their own grace period, at most `grace`.
pub async fn clear(data_dir: &Path, grace: Duration) -> Result<Left, LocalNodeError> {
    let (dir, id) = identity(data_dir)?;
    let nodes = places(&dir, &id);
    let found = left(&dir, &id, &nodes);
    futures::future::join_all(nodes.iter().map(|it| end_node(it, grace))).await;

    // Processes that hold a mount must exit before it is unmounted.
    let remaining = processes_in_cgroups(&id);
    end(&remaining, Signal::KILL).await;
    for at in [Path::new(RUN).join(&id), dir.join("nodes")] {
        if let Err(error) = table::unmount_below(&at) {
            tracing::warn!(%error, "cannot unmount everything below {}", at.display());
        }
    }
    for node in &nodes {
        if node.netns().exists() {
            let name = node.netns_name();
            if let Err(error) = network::run(Command::new("ip").args(["netns", "del", &name])).await {
                tracing::warn!(name, %error, "cannot remove the network namespace");
            }
        }
    }
    network::unmake(&id).await;
    for cgroup in cgroups(&id) {
        remove_cgroup(&cgroup);
    }
    let run = Path::new(RUN).join(&id);
    if let Err(error) = fs::remove_dir_all(&run)
        && run.exists()
    {
        tracing::warn!(path = %run.display(), %error, "cannot remove the run directory");
    }
    Ok(found)
}

/// Lists the leftovers of the cluster without removing anything.
pub fn leftovers(data_dir: &Path) -> Result<Left, LocalNodeError> {
    let (dir, id) = identity(data_dir)?;
    Ok(left(&dir, &id, &places(&dir, &id)))
}

/// Rule: the leftovers of a cluster whose data directory was removed cannot be reused, because their files are
/// gone: they are removed before a new cluster starts in that directory. Returns what was removed; nothing if
/// there was nothing, or if it can be reused.
pub async fn clear_abandoned(data_dir: &Path) -> Result<Left, LocalNodeError> {
    let (dir, id) = identity(data_dir)?;
    let nodes = places(&dir, &id);
    let leftovers = left(&dir, &id, &nodes);
    let is_without_files = |it: &LocalNode| {
        let runs = !it.containerd_pids().is_empty() || !it.shim_pids().is_empty();
        runs && !it.has_files()
    };
    let is_abandoned = !dir.join(RANGE_FILE).exists() || nodes.iter().any(is_without_files);
    if leftovers.0.is_empty() || !is_abandoned {
        return Ok(Left::default());
    }
    // A containerd without its files cannot stop pods gracefully.
    for node in &nodes {
        end(&node.containerd_pids(), Signal::KILL).await;
    }
    clear(data_dir, Duration::ZERO).await
}

/// The `muster up` process that runs the cluster's agents, if any. It is found by its command line, because a
/// removed data directory has no lock file.
pub fn user_of(data_dir: &Path) -> Result<Option<u32>, LocalNodeError> {
    let (dir, id) = identity(data_dir)?;
    let agents = places(&dir, &id).into_iter().flat_map(|it| it.agent_pids());
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

/// The containerd sockets of the running nodes, with the nodes' names.
pub fn sockets(data_dir: &Path) -> Result<Vec<(String, PathBuf)>, LocalNodeError> {
    let (dir, id) = identity(data_dir)?;
    let running = places(&dir, &id).into_iter().filter(|it| !it.containerd_pids().is_empty());
    Ok(running.map(|it| (it.name.clone(), it.socket())).collect())
}

/// Number of running pods on all nodes.
pub async fn pods(data_dir: &Path) -> usize {
    let count = async |(_, socket): (String, PathBuf)| {
        let runtime = Cri::connect(&socket);
        let sandboxes = tokio::time::timeout(COUNT_MAX, runtime.sandboxes(None)).await;
        let is_ready = |it: &&v1::PodSandbox| it.state == v1::PodSandboxState::SandboxReady as i32;
        sandboxes.map_or(0, |it| it.unwrap_or_default().iter().filter(is_ready).count())
    };
    let counts = sockets(data_dir).unwrap_or_default().into_iter().map(count);
    futures::future::join_all(counts).await.into_iter().sum()
}

/// The nodes found in the data directory, in the run directory and among the network namespaces.
fn places(dir: &Path, id: &str) -> Vec<LocalNode> {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|it| it.file_name().into_string().ok()).collect::<Vec<String>>()
    };
    let namespace = format!("muster-{id}-");
    let namespaces = names(Path::new("/run/netns"));
    let namespaces = namespaces.iter().filter_map(|it| it.strip_prefix(&namespace)).map(str::to_owned);
    let dirs = [dir.join("nodes"), Path::new(RUN).join(id)];
    let names: BTreeSet<String> = dirs.iter().flat_map(|it| names(it)).chain(namespaces).collect();
    let nodes = names.into_iter().filter_map(|name| {
        let number = name.strip_prefix("node-")?.parse().ok()?;
        let dir = dir.join("nodes").join(&name);
        Some(LocalNode { name, number, id: id.to_owned(), range: 0, dir })
    });
    nodes.collect()
}

fn left(dir: &Path, id: &str, nodes: &[LocalNode]) -> Left {
    let mut leftovers = Vec::new();
    for node in nodes {
        let processes = node.agent_pids().into_iter().chain(node.containerd_pids()).chain(node.shim_pids());
        leftovers.extend(processes.map(|pid| format!("process {}", pid.as_raw_nonzero())));
        if node.netns().exists() {
            leftovers.push(format!("network namespace {}", node.netns_name()));
        }
    }
    leftovers.extend(processes_in_cgroups(id).iter().map(|it| format!("process {}", it.as_raw_nonzero())));
    let mounts = [Path::new(RUN).join(id), dir.join("nodes")];
    let mounts = mounts.iter().filter_map(|it| table::below(it).ok()).flatten();
    leftovers.extend(mounts.map(|it| format!("mount {}", it.display())));
    leftovers.extend(cgroups(id).iter().map(|it| format!("cgroup {}", it.display())));
    if network::exists(&network::hub(id)) {
        leftovers.push(format!("bridge {}", network::hub(id)));
    }
    let run = Path::new(RUN).join(id);
    if run.exists() {
        leftovers.push(format!("directory {}", run.display()));
    }
    Left(leftovers)
}

/// Stops the agent, the pods and the containerd of a node.
async fn end_node(node: &LocalNode, grace: Duration) {
    end(&node.agent_pids(), Signal::TERM).await;
    if !node.containerd_pids().is_empty() {
        // Stopping pods through the runtime also releases their IP addresses and snapshots.
        let runtime = Cri::connect(&node.socket());
        if tokio::time::timeout(PODS_MAX, end_pods(&runtime, grace)).await.is_err() {
            tracing::warn!(node = node.name, "the pods did not stop in time and are killed");
        }
    }
    end(&node.containerd_pids(), Signal::TERM).await;
    end(&node.shim_pids(), Signal::KILL).await;
}

/// Stops all containers simultaneously, so that each gets its grace period, then removes the sandboxes.
async fn end_pods(runtime: &impl Runtime, grace: Duration) {
    let containers = runtime.containers(None).await.unwrap_or_default();
    let is_running = |it: &v1::Container| it.state == v1::ContainerState::ContainerRunning as i32;
    let ends = containers.into_iter().filter(is_running).map(async |it| {
        // A container that cannot be stopped is killed with its sandbox.
        let own = it.annotations.get(annotation::GRACE).and_then(|it| it.parse().ok());
        let own = own.map_or(GRACE, Duration::from_secs);
        let _ = runtime.stop_container(&it.id, own.min(grace)).await;
    });
    futures::future::join_all(ends).await;
    let sandboxes = runtime.sandboxes(None).await.unwrap_or_default();
    let ends = futures::stream::iter(sandboxes).map(async |sandbox| {
        // Sandboxes whose network is gone cannot be stopped; their processes are killed later.
        let stopped = runtime.stop_sandbox(&sandbox.id).await;
        if stopped.is_ok() {
            let _ = runtime.remove_sandbox(&sandbox.id).await;
        }
    });
    ends.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// Sends the signal to the processes, and SIGKILL to those that do not exit.
async fn end(processes: &[Pid], ask: Signal) {
    for signal in [ask, Signal::KILL] {
        let began = Instant::now();
        for pid in processes {
            let _ = kill_process(*pid, signal);
        }
        while began.elapsed() < END_MAX {
            if processes.iter().all(|it| has_ended(*it)) {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Whether a process has exited; a zombie counts as exited.
pub(super) fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    test_kill_process(pid).is_err() || state.starts_with(['Z', 'X'])
}

impl LocalNode {
    /// Sends SIGTERM to the agent, which stops its pods and exits.
    pub fn ask_agent_to_end(&self) {
        for pid in self.agent_pids() {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// The agent processes that were started with this node's root directory.
    pub fn agent_pids(&self) -> Vec<Pid> {
        let root = self.root();
        containerd::processes(|args| {
            args.get(1).is_some_and(|it| *it == b"agent")
                && args.iter().any(|it| *it == root.as_os_str().as_bytes())
        })
    }
}

/// The cluster's cgroups, one in each hierarchy.
fn cgroups(id: &str) -> Vec<PathBuf> {
    let name = format!("muster-{id}");
    let hierarchies = fs::read_dir(CGROUPS).into_iter().flatten().flatten().map(|it| it.path());
    // One hierarchy may be mounted under two names.
    let hierarchies: BTreeSet<PathBuf> =
        hierarchies.chain([PathBuf::from(CGROUPS)]).filter_map(|it| fs::canonicalize(it).ok()).collect();
    hierarchies.into_iter().map(|it| it.join(&name)).filter(|it| it.is_dir()).collect()
}

fn processes_in_cgroups(id: &str) -> Vec<Pid> {
    let mut pids = BTreeSet::new();
    let mut groups = cgroups(id);
    while let Some(group) = groups.pop() {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|it| it.trim().parse::<i32>().ok()));
        groups.extend(below(&group));
    }
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

fn remove_cgroup(group: &Path) {
    for group in below(group) {
        remove_cgroup(&group);
    }
    if let Err(error) = fs::remove_dir(group) {
        tracing::warn!(group = %group.display(), %error, "cannot remove the cgroup");
    }
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
}
