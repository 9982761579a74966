//! What every command that serves has in common: a data directory of its own, an address, and an end when asked.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_server::{Server, Who, write_private};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::parts::{self, Parts};

/// The server gives its answers five seconds to end; whatever hangs longer is left behind.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Serving {
    /// Where the cluster's state, the certificates and the kubeconfig are kept
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Where the API server listens; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Where to write the administrator's kubeconfig [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Tell every request to this file, one line of JSON each, without bodies
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
}

impl Serving {
    /// Does `start` and waits until a signal comes or something fails, and then ends every part.
    pub(crate) async fn run(
        &self,
        start: impl AsyncFnOnce(&mut Parts) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // Asked for before anything is started, so that a Ctrl-C is never lost.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let asked = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };

        let _lock = lock(&self.data_dir)?;
        let stop = CancellationToken::new();
        let mut parts = Parts::new(stop.clone());
        let working = async {
            start(&mut parts).await?;
            Err(parts.ended().await)
        };
        let ended = tokio::select! {
            () = asked => Ok(()),
            ended = working => ended,
        };
        stop.cancel();
        if tokio::time::timeout(STOP_TIMEOUT, parts.all_ended()).await.is_err() {
            tracing::warn!("did not end in time: {}", parts.still_running());
        }
        ended
    }

    pub(crate) async fn bind(&self) -> anyhow::Result<Server> {
        let mut server = Server::bind(self.listen, &self.data_dir).await?;
        if let Some(path) = &self.audit_log {
            server.audit_to(path)?;
        }
        Ok(server)
    }

    /// Starts the server and the loops beside it, and writes the administrator's kubeconfig. Gives the line that the
    /// administrator's shell needs.
    pub(crate) fn serve(
        &self,
        server: Server,
        without: &[String],
        parts: &mut Parts,
    ) -> anyhow::Result<String> {
        let path = self.kubeconfig.clone().unwrap_or_else(|| self.data_dir.join("kubeconfig"));
        let path = std::path::absolute(&path)?;
        write_private(&path, server.kubeconfig(Who::Admin)?.as_bytes())
            .with_context(|| format!("write the kubeconfig to {}", path.display()))?;
        for it in parts::loops(without) {
            let (kubeconfig, stop) = (server.kubeconfig(it.who)?, parts.stop());
            parts.keep(it.name, move || {
                let (kubeconfig, stop) = (kubeconfig.clone(), stop.clone());
                async move {
                    let client = kube::Client::try_from(config(&kubeconfig).await?)?;
                    (it.run)(client, stop).await;
                    Ok(())
                }
            });
        }
        let serving = server.serve(parts.stop());
        parts.need("server", async move { Ok(serving.await?) });
        Ok(format!("export KUBECONFIG={}", shell_word(&path)))
    }
}

/// Each part of the process asks in its own name.
pub(crate) async fn config(kubeconfig: &str) -> anyhow::Result<kube::Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// One process for each data directory: two would write the same files.
pub(crate) fn lock(dir: &Path) -> anyhow::Result<File> {
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
            "another muster is running on {}: stop that one, or choose another --data-dir",
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
