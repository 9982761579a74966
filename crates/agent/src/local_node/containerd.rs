//! Runs one containerd for each node. A containerd and its containers outlive the process that started them, and are
//! found again by their command lines.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities};
use tokio::process::{Child, Command};

use super::{LocalNode, LocalNodeError, cleanup, create_dir, file_error, prerequisites};
use crate::image::{SANDBOX_IMAGE, import_built_image, sandbox_image};
use crate::runtime::{CriClient, Runtime as _};

/// Timeout for a started containerd to respond. It usually responds after 250 ms, but takes much longer on a busy
/// machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between checks whether a started containerd responds.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval between checks whether a containerd that an earlier process started has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Number of bytes at the end of containerd's log that are read to find its last line. The error message for an
/// unresponsive containerd shows this line.
const LOG_TAIL_BYTES: usize = 1000;

/// A running containerd and a client for it.
#[derive(Debug)]
pub struct Containerd {
    process: ContainerdProcess,
    /// CRI client of the containerd.
    pub runtime: CriClient,
}

/// The process of a containerd.
#[derive(Debug)]
enum ContainerdProcess {
    /// A containerd that this process started.
    Child(Child),
    /// A running containerd that an earlier process started.
    Found(Pid),
}

impl Containerd {
    /// Waits until the containerd process ends.
    pub async fn wait_for_exit(&mut self) {
        self.process.wait_for_exit().await;
    }
}

impl ContainerdProcess {
    /// Waits until the process ends.
    async fn wait_for_exit(&mut self) {
        match self {
            Self::Child(child) => drop(child.wait().await),
            Self::Found(pid) => {
                while !cleanup::has_exited(*pid) {
                    tokio::time::sleep(EXIT_POLL_INTERVAL).await;
                }
            }
        }
    }
}

impl LocalNode {
    /// Finds the node's running containerd or starts a new one, waits until it responds, and imports the sandbox image.
    pub async fn start_containerd(&self) -> Result<Containerd, LocalNodeError> {
        let config_path = self.containerd_config();
        let mut process = match self.containerd_pids().first() {
            Some(found) => ContainerdProcess::Found(*found),
            None => {
                create_dir(&self.run_dir())?;
                fs::write(&config_path, self.containerd_toml()).map_err(file_error(&config_path))?;
                ContainerdProcess::Child(self.spawn_containerd()?)
            }
        };
        let runtime = CriClient::connect_lazy(&self.containerd_socket());
        let began = Instant::now();
        loop {
            tokio::select! {
                () = process.wait_for_exit() => return Err(self.unresponsive_error()),
                answer = runtime.version() => if answer.is_ok() { break },
            }
            if READY_TIMEOUT < began.elapsed() {
                return Err(self.unresponsive_error());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let given = import_built_image(&runtime, &sandbox_image()).await;
        given.map_err(|source| LocalNodeError::Image { node: self.name.clone(), source })?;
        Ok(Containerd { process, runtime })
    }

    /// Starts containerd in the node's network namespace.
    fn spawn_containerd(&self) -> Result<Child, LocalNodeError> {
        let log_path = self.containerd_log();
        let open =
            || OpenOptions::new().create(true).append(true).open(&log_path).map_err(file_error(&log_path));
        let mut command = Command::new("nsenter");
        command
            .arg(path_option("--net=", &self.netns_path()))
            .args(["containerd", "--config"])
            .arg(self.containerd_config());
        // A process group of its own: Ctrl-C reaches only this process, which then stops containerd in order.
        let spawned = command
            .env("PATH", prerequisites::search_path())
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .process_group(0)
            .spawn();
        spawned.map_err(|source| LocalNodeError::Spawn { program: "nsenter", source })
    }

    /// Returns the error for a containerd that does not respond or has exited, with the last line of its log.
    fn unresponsive_error(&self) -> LocalNodeError {
        let log = self.containerd_log();
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
        let message = text.lines().last().unwrap_or("(empty)").to_owned();
        LocalNodeError::Unresponsive { node: self.name.clone(), log, message }
    }

    fn containerd_config(&self) -> PathBuf {
        self.dir.join("containerd.toml")
    }

    fn containerd_log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// Whether containerd's configuration and root directory still exist.
    pub(super) fn has_containerd_files(&self) -> bool {
        self.containerd_config().exists() && self.containerd_root().is_dir()
    }

    /// Returns the directory in which containerd stores images and snapshots.
    fn containerd_root(&self) -> PathBuf {
        self.dir.join("containerd")
    }

    /// Returns the PIDs of the containerds that were started with this node's configuration.
    pub fn containerd_pids(&self) -> Vec<Pid> {
        let config = self.containerd_config();
        find_processes(|args| {
            let program = args.first().map(|it| Path::new(OsStr::from_bytes(it)));
            program.is_some_and(|it| it.ends_with("containerd"))
                && args.iter().any(|it| *it == config.as_os_str().as_bytes())
        })
    }

    /// Returns the PIDs of this node's containerd-shim processes.
    pub fn shim_pids(&self) -> Vec<Pid> {
        let socket = self.containerd_socket();
        find_processes(|args| {
            args.first().is_some_and(|it| String::from_utf8_lossy(it).contains("containerd-shim"))
                && args.iter().any(|it| *it == socket.as_os_str().as_bytes())
        })
    }

    /// Builds the content of containerd's configuration file.
    fn containerd_toml(&self) -> String {
        let plugins = prerequisites::cni_plugin_dir().unwrap_or_else(|| PathBuf::from("/opt/cni/bin"));
        let registries = self.dir.parent().and_then(Path::parent).unwrap_or(&self.dir).join("registries");
        format!(
            r#"# Rewritten at each start.
version = 2
root = {root}
state = {state}
[grpc]
  address = {socket}
[plugins."io.containerd.internal.v1.opt"]
  path = {opt}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX_IMAGE}"
  restrict_oom_score_adj = {restricted}
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {plugins}
    conf_dir = {conf}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {registries}
"#,
            root = toml_string(&self.containerd_root()),
            state = toml_string(&self.run_dir().join("state")),
            socket = toml_string(&self.containerd_socket()),
            opt = toml_string(&self.dir.join("opt")),
            restricted = !may_lower_oom_score_adj(),
            plugins = toml_string(&plugins),
            conf = toml_string(&self.cni_conf_dir()),
            registries = toml_string(&registries),
        )
    }
}

/// Whether sandboxes may have a negative `oom_score_adj`, so that the kernel's OOM killer kills them last. A negative
/// value needs CAP_SYS_RESOURCE.
fn may_lower_oom_score_adj() -> bool {
    capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// Formats a path as a TOML string, which has the syntax of a JSON string.
fn toml_string(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

/// Builds the command line option `flag` with a path, such as `--config=PATH`.
pub(super) fn path_option(flag: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(flag);
    option.push(path);
    option
}

/// Finds the PIDs of all processes of this machine whose command line satisfies `matches`.
pub(super) fn find_processes(matches: impl Fn(&[&[u8]]) -> bool) -> Vec<Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    let matching = numbers.filter(|pid| {
        // A zombie has an empty command line.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = line.split(|it| *it == 0).collect();
        matches(&args)
    });
    matching.filter_map(Pid::from_raw).collect()
}
