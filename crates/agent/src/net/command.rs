//! Runs system programs such as `ip` and `nft`. Their arguments are constants, except for the configured DNS address.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::NetworkError;

/// Directories of system programs. Not every user has them on the PATH.
const SYSTEM_DIRS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Maximum run time of a program, after which it is killed.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a program with `input` on stdin and returns its stdout.
pub(super) async fn run_program(
    program: &'static str,
    args: &[&str],
    input: &str,
) -> Result<Vec<u8>, NetworkError> {
    let failed = |source| NetworkError::Spawn { program, source };
    let path = format!("{}:{SYSTEM_DIRS}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    let command = command.args(args).env("PATH", path).kill_on_drop(true);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin.take() {
            // A program that exits before it has read everything explains why on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let done = timeout(RUN_TIMEOUT, async { tokio::join!(feed, child.wait_with_output()).1 });
    let timed_out = |_| NetworkError::CommandFailed { program, message: "timed out".to_owned() };
    let output = done.await.map_err(timed_out)?.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(NetworkError::CommandFailed { program, message: stderr.trim().chars().take(2_000).collect() })
}
