//! The standby process of `muster up --servers`: waits until the running `muster up` is gone, and continues in its place.
//! It is started with the same flags and with those of [`StandbyFlags`].

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::child_process::{RunningProcess, run_until_stop};
use crate::data_dir::wait_until_unlocked;
use crate::logging::print_to_stderr;
use crate::supervisor::Supervisor;

/// Maximum time that the standby process gets to exit. It has nothing to finish.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Flags of the standby process. Its standard input is the listener of the load balancer.
#[derive(Debug, clap::Args)]
pub(super) struct StandbyFlags {
    /// Wait until the `muster up` with this data directory, an absolute path, is gone, and continue in its place
    #[arg(long, hide = true, value_name = "DIR", requires_all = ["servers", "server_addresses"])]
    standby_for: Option<PathBuf>,
    /// Addresses of the servers that are taken over
    #[arg(long, hide = true, value_name = "ADDR:PORT,…", value_delimiter = ',', requires = "standby_for")]
    server_addresses: Vec<SocketAddr>,
}

/// What the standby process continues with.
pub(super) struct Takeover {
    /// The listener of the load balancer. It was open all the time: clients that connected meanwhile are accepted.
    pub(super) listener: TcpListener,
    /// Addresses of the servers.
    pub(super) server_addresses: Vec<SocketAddr>,
}

impl StandbyFlags {
    /// Waits until the running `muster up` is gone. Returns `None` at once if this process is not a standby process.
    pub(super) async fn wait_for_takeover(&self) -> anyhow::Result<Option<Takeover>> {
        let Some(data_dir) = &self.standby_for else { return Ok(None) };
        // Ctrl-C signals this process too. The running `muster up` then stops, and terminates this process.
        let _interrupts = signal(SignalKind::interrupt())?;
        wait_until_unlocked(data_dir).await?;
        let id = std::process::id();
        print_to_stderr(format_args!(
            "muster: the process of `muster up` has died: process {id} continues in its place; to stop it: kill {id}"
        ));
        let listener = inherited_listener().context("take over the load balancer")?;
        Ok(Some(Takeover { listener, server_addresses: self.server_addresses.clone() }))
    }
}

/// Returns the listener that is the standard input of this process.
fn inherited_listener() -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Runs a standby process for this process as a task of `supervisor`. `data_dir` is an absolute path. `listener` is the
/// listener of the load balancer.
pub(super) fn supervise_standby(
    data_dir: PathBuf,
    listener: OwnedFd,
    server_addresses: Vec<SocketAddr>,
    supervisor: &mut Supervisor,
) {
    let stop = supervisor.stop_token();
    supervisor.supervise("standby process", move || {
        let started = spawn_standby(&data_dir, &listener, &server_addresses);
        let stop = stop.clone();
        async move { run_until_stop(RunningProcess::Child(started?), EXIT_TIMEOUT, &stop).await }
    });
}

/// Starts a standby process for this process, in its process group: a closed terminal ends both.
fn spawn_standby(
    data_dir: &Path,
    listener: &OwnedFd,
    server_addresses: &[SocketAddr],
) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("find the path of this executable")?;
    let standby_for = standby_argument(data_dir);
    // After a takeover, the arguments of this process end with those of a standby process.
    let own_arguments = std::env::args_os().skip(1).take_while(|it| *it != standby_for);
    let addresses = server_addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(program);
    command.args(own_arguments).arg(&standby_for).arg(format!("--server-addresses={addresses}"));
    let input = listener.try_clone().context("pass on the listener of the load balancer")?;
    command.stdin(Stdio::from(input)).kill_on_drop(true).spawn().context("run muster up")
}

/// Returns the command line argument by which the standby process of a data directory is found.
pub(super) fn standby_argument(data_dir: &Path) -> OsString {
    let mut argument = OsString::from("--standby-for=");
    argument.push(data_dir);
    argument
}
