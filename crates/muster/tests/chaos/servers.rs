//! The API servers: their processes and clients. A server that ends by itself is started again, as systemd does it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::process;
use super::topology::Host;

const PORT: u16 = 6443;

/// Delay before a server that has ended is started again.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// The metric that counts how often a server has loaded all objects again after a compaction.
const RELOADS_AFTER_COMPACTION: &str = "muster_store_reloads_total{reason=\"compaction\"}";

/// Maximum time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// One API server.
pub(crate) struct ApiServer {
    pub(crate) host: Host,
    /// Number of the server, from 0.
    number: usize,
    dir: PathBuf,
    flags: Vec<String>,
    child: Option<Child>,
    is_stopped: bool,
    /// When the server ended by itself and was not started again yet.
    ended: Option<Instant>,
    /// Whether a fault keeps the server from answering, so that clients that can choose do not use it.
    is_away: Arc<AtomicBool>,
}

impl ApiServer {
    /// `flags` are those that all servers share.
    pub(crate) fn new(host: Host, number: usize, dir: &Path, flags: &[String]) -> Self {
        let dir = dir.join(host.name());
        let is_away = Arc::new(AtomicBool::new(false));
        Self {
            host,
            number,
            dir,
            flags: flags.to_vec(),
            child: None,
            is_stopped: false,
            ended: None,
            is_away,
        }
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.host.name());
        let listen = format!("{}:{PORT}", self.host.address);
        let mut command = self.host.command(env!("CARGO_BIN_EXE_muster"));
        command.args(["server", "--listen", &listen, "--data-dir"]).arg(&self.dir).args(&self.flags);
        self.child = Some(process::spawn(&mut command, &self.log()));
        self.ended = None;
        self.is_away.store(false, Ordering::Relaxed);
    }

    pub(crate) fn kill(&mut self) {
        self.is_away.store(true, Ordering::Relaxed);
        process::kill(&mut self.child);
        self.ended = None;
    }

    pub(crate) fn stop(&mut self) {
        self.is_away.store(true, Ordering::Relaxed);
        process::signal(self.child.as_ref(), "STOP");
        self.is_stopped = true;
    }

    /// Starts the server if it was killed or has ended, and continues it if it is stopped.
    pub(crate) fn ensure_running(&mut self) {
        if self.child.is_none() {
            self.start();
        } else if self.is_stopped {
            process::signal(self.child.as_ref(), "CONT");
            self.is_stopped = false;
            self.is_away.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_away(&self) -> Arc<AtomicBool> {
        self.is_away.clone()
    }

    /// Starts a server again that has ended by itself. Returns its last words when it has just ended.
    pub(crate) fn supervise(&mut self) -> Option<String> {
        if self.ended.is_some_and(|it| RESTART_DELAY <= it.elapsed()) {
            self.start();
        }
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        self.ended = Some(Instant::now());
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last = log.lines().next_back().unwrap_or_default();
        Some(format!("server {} ended by itself ({status}): {last}", self.number + 1))
    }

    /// A client of the administrator. The server must have been started before.
    pub(crate) async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A write that is sent again is refused because of itself.
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    /// Number of times that the server has loaded all objects again since its start, because etcd had dropped changes
    /// that it had not seen.
    pub(crate) async fn reloads_after_compaction(&self) -> u64 {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = self.client().await.request_text(request).await.unwrap();
        let value = metrics.lines().find_map(|it| it.strip_prefix(RELOADS_AFTER_COMPACTION));
        value.map_or(0, |it| it.trim().parse().unwrap())
    }

    /// Whether the server has been started once.
    pub(crate) fn has_kubeconfig(&self) -> bool {
        self.kubeconfig().exists()
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    fn log(&self) -> PathBuf {
        self.dir.with_extension("log")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
    }
}
