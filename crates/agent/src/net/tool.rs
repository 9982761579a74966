//! Programs of the machine's that do what only the kernel can: nothing that comes from outside is ever a word of a command.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::NetError;

/// Where programs are that PATH does not name for everybody.
const SYSTEM_DIRS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Runs it with the text as its input, and gives what it says.
pub(super) async fn run(program: &'static str, args: &[&str], input: &str) -> Result<Vec<u8>, NetError> {
    let failed = |source| NetError::Run { program, source };
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
            // One that ends before it has read all says itself why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(NetError::Refused { program, said: said.trim().chars().take(2_000).collect() })
}
