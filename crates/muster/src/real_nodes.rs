//! The real nodes of `muster up`. Each node has its own network namespace with a containerd and a `muster agent`, which
//! this process supervises. The agents join the cluster as agents on other machines do.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use muster_agent::image;
use muster_agent::join;
use muster_agent::local_node::{LocalCluster, LocalNode};
use muster_agent::node::host;
use muster_agent::runtime::CriClient;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::supervisor::Supervisor;
use crate::token;

/// Lifetime of the bootstrap token for new nodes.
const BOOTSTRAP_TOKEN_TTL: Duration = Duration::from_secs(3600);

/// Maximum time that an agent may take to exit after its pods have terminated. An agent that takes longer is killed.
const AGENT_EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the routes to and in the nodes' network namespaces are checked and restored.
const ROUTE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Hard eviction thresholds of the nodes. Upstream's percentages would evict pods unnecessarily, because the nodes
/// share the machine's disk, which is often nearly full.
const SHARED_DISK_EVICTION_HARD: &str =
    "nodefs.available<500Mi,imagefs.available<500Mi,nodefs.inodesFree<1%,imagefs.inodesFree<1%";

/// The API servers to which the agents of real nodes connect, and the CA certificate with which the agents verify the
/// servers.
pub(crate) struct ServersForNodes {
    /// Addresses of the servers.
    pub(crate) addresses: Vec<SocketAddr>,
    /// File with the CA certificate of the cluster.
    pub(crate) ca_certificate: PathBuf,
}

/// The real nodes that were started. The nodes run as tasks of the supervisor. This struct has only their bootstrap
/// token and its file, because the token is revoked after the nodes have joined.
pub(crate) struct RealNodes {
    /// The bootstrap token. `None` if all nodes already had a valid certificate.
    token: Option<String>,
    /// The file from which the agents read the token.
    token_file: PathBuf,
}

impl RealNodes {
    /// Creates `count` nodes on this machine, and starts them as tasks of `supervisor`. The nodes join the cluster
    /// through the API servers `api`. `agent_flags` are additional flags for each agent.
    pub(crate) async fn start(
        machine: &LocalCluster,
        count: u16,
        api: &ServersForNodes,
        data_dir: &Path,
        agent_flags: &[String],
        administrator: &Client,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<Self> {
        let nodes: Vec<LocalNode> = (1..=count).map(|it| machine.node(it)).collect();
        for node in &nodes {
            node.create().await.with_context(|| format!("make {}", node.name))?;
        }
        let data_dir = std::path::absolute(data_dir)?;
        let token_file = data_dir.join("nodes").join("token");
        let mut token = None;
        if nodes.iter().any(|it| !join::has_valid_certificate(&it.agent_root().join("pki"))) {
            let created = token::create_bootstrap_token(
                administrator,
                BOOTSTRAP_TOKEN_TTL,
                "for the nodes of muster up",
            )
            .await?;
            muster_files::write_private_file(&token_file, created.as_bytes())
                .with_context(|| format!("write {}", token_file.display()))?;
            token = Some(created);
        }
        let program = std::env::current_exe().context("find the path of this executable")?;
        let servers = api.addresses.iter().map(|it| format!("https://{it}")).collect::<Vec<_>>().join(",");
        for node in nodes {
            let (images, stop) = (machine.image_dir(), supervisor.stop_token());
            let kept = node.clone();
            supervisor.supervise(format!("containerd of {}", node.name), move || {
                let (node, images, stop) = (kept.clone(), images.clone(), stop.clone());
                async move {
                    tokio::select! {
                        // containerd keeps running until the node is removed: it is needed to stop the pods.
                        () = stop.cancelled() => Ok(()),
                        ended = run_containerd(&node, &images) => ended,
                    }
                }
            });
            let (kept, stop) = (node.clone(), supervisor.stop_token());
            supervisor.supervise(format!("network of {}", node.name), move || {
                let (node, stop) = (kept.clone(), stop.clone());
                async move {
                    tokio::select! {
                        () = stop.cancelled() => Ok(()),
                        () = restore_routes_periodically(&node) => Ok(()),
                    }
                }
            });
            let mut arguments = agent_arguments(&node, &servers, &api.ca_certificate, &token_file);
            arguments.extend(agent_flags.iter().map(OsString::from));
            let (program, stop, abort) = (program.clone(), supervisor.stop_token(), supervisor.abort_token());
            supervisor.extend_stop_timeout(agent_stop_timeout() + Duration::from_secs(1));
            supervisor.supervise(format!("agent of {}", node.name), move || {
                let agent = spawn_agent(&program, &node, &arguments);
                let (node, stop, abort) = (node.clone(), stop.clone(), abort.clone());
                async move { run_agent_until_stop(agent?, &node, stop, abort).await }
            });
        }
        Ok(Self { token, token_file })
    }

    /// Revokes the bootstrap token and removes its file, after the nodes have joined.
    pub(crate) async fn revoke_bootstrap_token(&self, administrator: &Client) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(&self.token_file);
        match &self.token {
            Some(token) => token::delete_bootstrap_token(administrator, token).await,
            None => Ok(()),
        }
    }
}

/// Restores lost routes of a node every [`ROUTE_CHECK_INTERVAL`]. Routes are lost when a link goes down, or when a
/// network manager of the machine removes them. Never returns.
async fn restore_routes_periodically(node: &LocalNode) {
    loop {
        tokio::time::sleep(ROUTE_CHECK_INTERVAL).await;
        // While the link is down, no route can be added.
        if let Err(error) = node.restore_routes().await {
            tracing::debug!("{}: {:#}", node.name, anyhow::Error::from(error));
        }
    }
}

/// Starts the containerd of a node, imports the image archives of the directory `images`, and waits until the
/// containerd exits. Always returns an error, so that the supervisor calls this function again.
async fn run_containerd(node: &LocalNode, images: &Path) -> anyhow::Result<()> {
    let mut containerd = node.start_containerd().await?;
    import_image_archives(node, &containerd.runtime, images).await;
    containerd.wait_for_exit().await;
    bail!("exited; its containers keep running")
}

/// Imports all image archives of a directory. An archive that cannot be imported is logged and skipped.
async fn import_image_archives(node: &LocalNode, runtime: &CriClient, images: &Path) {
    let entries = std::fs::read_dir(images).into_iter().flatten().flatten().map(|it| it.path());
    let is_archive = |it: &PathBuf| {
        let name = it.to_string_lossy();
        [".tar", ".tar.gz", ".tgz"].iter().any(|end| name.ends_with(end))
    };
    let mut archives: Vec<PathBuf> = entries.filter(is_archive).collect();
    archives.sort();
    for archive in archives {
        if let Err(error) = image::import_archive(runtime, &archive, None).await {
            tracing::warn!("{}: {:#}", node.name, anyhow::Error::from(error));
        }
    }
}

/// Builds the command line arguments of a node's agent.
fn agent_arguments(
    node: &LocalNode,
    servers: &str,
    ca_certificate: &Path,
    token_file: &Path,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["agent".into()];
    let mut flag = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    let own = |from: &str, to: &Path| {
        let mut own = OsString::from(format!("{from}="));
        own.push(to);
        own
    };
    let mut endpoint = OsString::from("unix://");
    endpoint.push(node.containerd_socket());
    flag("--server", servers.into());
    flag("--ca-cert", ca_certificate.into());
    flag("--token-file", token_file.into());
    flag("--node-name", node.name.clone().into());
    flag("--node-ip", node.address().to_string().into());
    flag("--root", node.agent_root().into());
    flag("--runtime-endpoint", endpoint);
    flag("--pod-cidr", node.pod_cidr().into());
    flag("--cni-conf-dir", node.cni_conf_dir().into());
    flag("--cgroup-parent", node.cgroup_parent().into());
    flag("--var-log", node.var_log().into());
    flag("--static-pods", node.static_pod_dir().into());
    flag("--eviction-hard", SHARED_DISK_EVICTION_HARD.into());
    flag("--image-gc-high-threshold", "100".into());
    flag("--own-path", own("/var/log", &node.var_log()));
    flag("--own-path", own("/var/lib/kubelet", &node.agent_root()));
    flag("--own-path", own("/run/containerd/containerd.sock", &node.containerd_socket()));
    arguments.extend(["--rest-on-stop".into(), "--until-stdin-ends".into()]);
    arguments
}

/// Starts the agent of a node in the node's network namespace.
fn spawn_agent(program: &Path, node: &LocalNode, arguments: &[OsString]) -> anyhow::Result<Child> {
    let path = node.agent_log();
    // The node runs without a log if the file cannot be opened, for example on a full disk.
    let log = || match OpenOptions::new().create(true).append(true).open(&path) {
        Ok(file) => Stdio::from(file),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "open the agent's log; its lines are lost");
            Stdio::null()
        }
    };
    let mut netns = OsString::from("--net=");
    netns.push(node.netns_path());
    // The agent has its own process group, so that Ctrl-C signals only this process, which then stops the agent. If
    // this process is killed, the agent's standard input ends and the agent exits.
    let mut command = Command::new("nsenter");
    command.arg(netns).arg(program).args(arguments).process_group(0);
    let spawned = command.stdin(Stdio::piped()).stdout(log()).stderr(log()).spawn();
    spawned.context("run nsenter")
}

/// Waits until the agent exits or `stop` is cancelled. Returns an error if the agent exits first. When `stop` is
/// cancelled, terminates the agent and waits until it has exited. Kills the agent if it does not exit within
/// [`agent_stop_timeout`], or if `abort` is cancelled during this wait.
async fn run_agent_until_stop(
    mut agent: Child,
    node: &LocalNode,
    stop: CancellationToken,
    abort: CancellationToken,
) -> anyhow::Result<()> {
    // `wait` closes the child's standard input, and the agent exits when its input ends: keep it open here.
    let input = agent.stdin.take();
    tokio::select! {
        ended = agent.wait() => bail!("exited ({}); its containers keep running", ended?),
        () = stop.cancelled() => {}
    }
    node.terminate_agent();
    let in_time = tokio::select! {
        ended = tokio::time::timeout(agent_stop_timeout(), agent.wait()) => ended.is_ok(),
        () = abort.cancelled() => false,
    };
    if !in_time {
        agent.kill().await?;
    }
    drop(input);
    Ok(())
}

/// Returns the maximum time that an agent may take to terminate its pods and exit.
fn agent_stop_timeout() -> Duration {
    host::ShutdownGrace::default().total_max() + AGENT_EXIT_TIMEOUT
}
