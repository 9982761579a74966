//! The processes of `muster up --servers`: opens and quotes their logs, waits until they exit, and stops them, including
//! those that a killed `muster up` left behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_agent::local_node;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use super::standby::standby_argument;
use super::trial_etcd::{MEMBER_COUNT, member_dir};

/// Maximum number of bytes, from the end of a log, that an error message quotes.
const LOG_TAIL_BYTES_MAX: u64 = 1024;
/// Maximum number of lines, from the end of a log, that an error message quotes.
const LOG_TAIL_LINES_MAX: usize = 3;

/// Interval of checks whether a process that is not a child of this process has exited.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Opens the log of a child process for appending.
pub(super) fn open_log(path: &Path) -> anyhow::Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open the log {}", path.display()))
}

/// Returns the last lines of a log that are not empty, joined with `; `, for an error message. Returns `see PATH` if
/// the log cannot be read.
pub(super) fn read_log_tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES_MAX)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        io::Result::Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    let Ok(tail) = read() else { return format!("see {}", path.display()) };
    let lines: Vec<&str> = tail.lines().filter(|it| !it.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES_MAX)..].join("; ")
}

/// A running process of the cluster: a server, a member of etcd, or the standby process.
#[derive(Debug)]
pub(super) enum RunningProcess {
    /// A child of this process.
    Child(Child),
    /// A process that a killed `muster up` started.
    Adopted(Pid),
}

impl RunningProcess {
    /// Returns the process that a killed `muster up` started with this data directory. `None` if it does not run.
    pub(super) fn find(data_dir: &Path) -> Option<Self> {
        local_node::find_process_with_argument(&data_dir_argument(data_dir)).map(Self::Adopted)
    }

    /// Waits until the process exits. Returns its exit status if the process is a child.
    async fn wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Self::Child(child) => child.wait().await.map(Some),
            Self::Adopted(pid) => {
                while !local_node::has_exited(*pid) {
                    tokio::time::sleep(EXIT_CHECK_INTERVAL).await;
                }
                Ok(None)
            }
        }
    }

    /// Sends a signal to the process. Does nothing if the process has exited.
    fn signal(&self, signal: Signal) {
        let pid = match self {
            Self::Child(child) => child.id().and_then(|it| Pid::from_raw(it.cast_signed())),
            Self::Adopted(pid) => Some(*pid),
        };
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Waits until the process exits or `stop` is cancelled. Fails if it exits first. When `stop` is cancelled, sends SIGTERM,
/// and SIGKILL if the process does not exit within `timeout`.
pub(super) async fn run_until_stop(
    mut process: RunningProcess,
    timeout: Duration,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        exited = process.wait() => match exited? {
            Some(status) => bail!("exited ({status})"),
            None => bail!("exited"),
        },
        () = stop.cancelled() => {}
    }
    process.signal(Signal::TERM);
    if tokio::time::timeout(timeout, process.wait()).await.is_err() {
        process.signal(Signal::KILL);
        process.wait().await?;
    }
    Ok(())
}

/// Returns the command line argument by which the process with this data directory is found.
pub(super) fn data_dir_argument(data_dir: &Path) -> OsString {
    let mut argument = OsString::from("--data-dir=");
    argument.push(data_dir);
    argument
}

/// Stops the members of etcd, the servers and the standby process that a killed `muster up --servers` left behind in this
/// data directory. Returns their PIDs.
pub(crate) async fn stop_leftover_processes(data_dir: &Path) -> anyhow::Result<Vec<i32>> {
    let data_dir = std::path::absolute(data_dir)?;
    let servers = fs::read_dir(&data_dir).into_iter().flatten().flatten().map(|it| it.path());
    let is_server =
        |it: &PathBuf| it.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"server-"));
    let members = (1..=MEMBER_COUNT).map(|it| member_dir(&data_dir, it));
    let arguments: Vec<_> = members
        .chain(servers.filter(is_server))
        .map(|it| data_dir_argument(&it))
        .chain([standby_argument(&data_dir)])
        .collect();
    Ok(local_node::stop_processes_with_argument(&arguments).await)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::process::Command;

    use super::*;

    #[test]
    fn an_error_quotes_the_last_lines_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(read_log_tail(&log), format!("see {}", log.display()));
        fs::write(&log, "one\ntwo\n\nthree\nfour\n").unwrap();
        assert_eq!(read_log_tail(&log), "two; three; four");
        fs::write(&log, "x".repeat(10_000)).unwrap();
        assert_eq!(read_log_tail(&log).len(), 1024);
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed() {
        let spawn = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.kill_on_drop(true).spawn().unwrap()
        };
        let child = |script: &str| RunningProcess::Child(spawn(script));
        let stop = CancellationToken::new();
        let exited = run_until_stop(child("exit 3"), Duration::from_secs(5), &stop).await;
        assert_eq!(exited.unwrap_err().to_string(), "exited (exit status: 3)");
        let mut stubborn = spawn("trap '' TERM; echo; while :; do sleep 0.1; done");
        // The trap is set.
        tokio::io::AsyncReadExt::read_u8(&mut stubborn.stdout.take().unwrap()).await.unwrap();
        stop.cancel();
        run_until_stop(RunningProcess::Child(stubborn), Duration::from_millis(300), &stop).await.unwrap();
        run_until_stop(child("sleep 60"), Duration::from_secs(30), &stop).await.unwrap();
    }
}
