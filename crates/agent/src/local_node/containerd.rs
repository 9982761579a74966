//! One containerd for each node. containerd and its containers outlive the process that started them, and are
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

use super::{LocalNode, LocalNodeError, clear, failed, make_dir, tools};
use crate::image::{SANDBOX_IMAGE, import_made, sandbox_image};
use crate::runtime::{Cri, Runtime as _};

/// Time for containerd to respond: usually 250 ms, much longer on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How often a containerd that is not our child is checked for exit.
const LOOK_FOR_END: Duration = Duration::from_secs(1);

/// Bytes read from the end of containerd's log for the error message.
const SAID_MAX: usize = 1000;

/// A running containerd and a client for it.
#[derive(Debug)]
pub struct Containerd {
    process: Process,
    pub runtime: Cri,
}

#[derive(Debug)]
enum Process {
    /// Started by this process.
    Child(Child),
    /// Started by an earlier process.
    Found(Pid),
}

impl Containerd {
    /// Waits until the process ends.
    pub async fn ended(&mut self) {
        self.process.ended().await;
    }
}

impl Process {
    async fn ended(&mut self) {
        match self {
            Self::Child(child) => drop(child.wait().await),
            Self::Found(pid) => {
                while !clear::has_ended(*pid) {
                    tokio::time::sleep(LOOK_FOR_END).await;
                }
            }
        }
    }
}

impl LocalNode {
    /// Finds the node's running containerd or starts one, and waits until it responds.
    pub async fn containerd(&self) -> Result<Containerd, LocalNodeError> {
        let config_path = self.containerd_config();
        let mut process = match self.containerd_pids().first() {
            Some(found) => Process::Found(*found),
            None => {
                make_dir(&self.run())?;
                fs::write(&config_path, self.config()).map_err(failed(&config_path))?;
                Process::Child(self.spawn()?)
            }
        };
        let runtime = Cri::connect(&self.socket());
        let began = Instant::now();
        loop {
            tokio::select! {
                () = process.ended() => return Err(self.silent()),
                answer = runtime.version() => if answer.is_ok() { break },
            }
            if READY_MAX < began.elapsed() {
                return Err(self.silent());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let given = import_made(&runtime, &sandbox_image()).await;
        given.map_err(|source| LocalNodeError::Image { node: self.name.clone(), source })?;
        Ok(Containerd { process, runtime })
    }

    fn spawn(&self) -> Result<Child, LocalNodeError> {
        let log_path = self.containerd_log();
        let open = || OpenOptions::new().create(true).append(true).open(&log_path).map_err(failed(&log_path));
        let mut command = Command::new("nsenter");
        command
            .arg(option("--net=", &self.netns()))
            .args(["containerd", "--config"])
            .arg(self.containerd_config());
        // A process group of its own: Ctrl-C reaches only this process, which then stops containerd in order.
        let spawned = command
            .env("PATH", tools::path())
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .process_group(0)
            .spawn();
        spawned.map_err(|source| LocalNodeError::Run { program: "nsenter", source })
    }

    fn silent(&self) -> LocalNodeError {
        let log = self.containerd_log();
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(SAID_MAX)..]).into_owned();
        let said = text.lines().last().unwrap_or("(empty)").to_owned();
        LocalNodeError::Silent { node: self.name.clone(), log, said }
    }

    fn containerd_config(&self) -> PathBuf {
        self.dir.join("containerd.toml")
    }

    fn containerd_log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// Whether containerd's configuration and root directory still exist.
    pub(super) fn has_files(&self) -> bool {
        self.containerd_config().exists() && self.containerd_root().is_dir()
    }

    fn containerd_root(&self) -> PathBuf {
        self.dir.join("containerd")
    }

    /// The containerd processes that were started with this node's configuration.
    pub fn containerd_pids(&self) -> Vec<Pid> {
        let config = self.containerd_config();
        processes(|args| {
            let program = args.first().map(|it| Path::new(OsStr::from_bytes(it)));
            program.is_some_and(|it| it.ends_with("containerd"))
                && args.iter().any(|it| *it == config.as_os_str().as_bytes())
        })
    }

    /// The containerd-shim processes of this node.
    pub fn shim_pids(&self) -> Vec<Pid> {
        let socket = self.socket();
        processes(|args| {
            args.first().is_some_and(|it| String::from_utf8_lossy(it).contains("containerd-shim"))
                && args.iter().any(|it| *it == socket.as_os_str().as_bytes())
        })
    }

    fn config(&self) -> String {
        let plugins = tools::plugin_dir().unwrap_or_else(|| PathBuf::from("/opt/cni/bin"));
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
            root = quoted(&self.containerd_root()),
            state = quoted(&self.run().join("state")),
            socket = quoted(&self.socket()),
            opt = quoted(&self.dir.join("opt")),
            restricted = !may_be_preferred(),
            plugins = quoted(&plugins),
            conf = quoted(&self.cni_conf()),
            registries = quoted(&registries),
        )
    }
}

/// Whether sandboxes may have a negative OOM score, so that they are killed last; this needs CAP_SYS_RESOURCE.
fn may_be_preferred() -> bool {
    capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// A path as a TOML string, which is written like a JSON string.
fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

pub(super) fn option(flag: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(flag);
    option.push(path);
    option
}

/// The processes of this machine whose command line matches.
pub(super) fn processes(matches: impl Fn(&[&[u8]]) -> bool) -> Vec<Pid> {
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
