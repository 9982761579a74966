//! `muster up`: everything on this machine, in one process.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_agent::sim;
use muster_control::{Binding, Settings};
use muster_server::{Server, Who, write_private};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The server gives its answers five seconds to end; whatever hangs longer is left behind.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Run an API server, the controllers and simulated nodes on this machine, until Ctrl-C
///
/// The cluster's state is kept in memory for now: it is gone when the command ends. The certificates and the
/// kubeconfig stay in the data directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Real nodes, on containerd (not there yet)
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,
    /// Simulated nodes: they run nothing, and answer as nodes do
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=i64::from(sim::NODES_MAX)))]
    sim_nodes: u16,
    /// Where the certificates and the kubeconfig are kept
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Where the API server listens; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Where to write the administrator's kubeconfig [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    if args.nodes.is_some_and(|it| 0 < it) {
        bail!("real nodes are not there yet: leave --nodes away, and use --sim-nodes N");
    }
    // Asked for before anything is started, so that a Ctrl-C is never lost.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let asked = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };

    let _lock = lock(&args.data_dir)?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let ended = tokio::select! {
        () = asked => Ok(()),
        ended = serve(&args, &stop, &mut tasks) => ended,
    };
    stop.cancel();
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
        tracing::warn!("some tasks did not end in time");
    }
    ended
}

/// Comes back only if something fails.
async fn serve(
    args: &Args,
    stop: &CancellationToken,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let server = Server::bind(args.listen, &args.data_dir).await?;
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| args.data_dir.join("kubeconfig"));
    let kubeconfig = std::path::absolute(&kubeconfig)?;
    let admin = server.kubeconfig(Who::Admin)?;
    let controller = server.kubeconfig(Who::Controller)?;
    let simulated = server.kubeconfig(Who::SimulatedNodes)?;
    write_private(&kubeconfig, admin.as_bytes())
        .with_context(|| format!("write the kubeconfig to {}", kubeconfig.display()))?;
    let serving = server.serve(stop.clone());
    tasks.spawn(async move { Ok(serving.await?) });

    let nodes = client(&simulated).await?;
    let nodes = sim::register(nodes, args.sim_nodes).await.context("register the simulated nodes")?;
    let running = nodes.run(stop.clone());
    tasks.spawn(async move {
        running.await;
        Ok(())
    });

    // There is no scheduler yet, so each pod is told its node by the controller itself.
    let settings = Settings { binding: Binding::Direct, ..Settings::default() };
    let controlling = muster_control::daemonsets(client(&controller).await?, settings, stop.clone());
    tasks.spawn(async move {
        controlling.await;
        Ok(())
    });

    println!(
        "ready: {} simulated nodes, state in memory only; export KUBECONFIG={}",
        args.sim_nodes,
        shell_word(&kubeconfig)
    );
    match tasks.join_next().await {
        Some(ended) => ended
            .context("a part of the server panicked")?
            .and(Err(anyhow::anyhow!("a part of the server ended"))),
        None => unreachable!("three tasks were just started"),
    }
}

/// Each part of the process asks in its own name.
async fn client(kubeconfig: &str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// One `up` for each data directory: two would overwrite each other's kubeconfig and, soon, data.
fn lock(dir: &Path) -> anyhow::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("make the data directory {}", dir.display()))?;
    let path = dir.join("lock");
    let open = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = open.with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another `muster up` is running on {}: stop that one, or choose another --data-dir",
            dir.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

/// Quoted where a shell would not take it as it is.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%,".contains(it);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
