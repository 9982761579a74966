//! Programs of the machine's that do what only the kernel can: nothing that comes from outside is ever a word of a command.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::NetError;

/// Where programs are that PATH does not name for everybody.
const SYSTEM_DIRS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// What is not done by then never is: it is killed, and tried again.
const RUN_MAX: Duration = Duration::from_secs(60);

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
    let done = timeout(RUN_MAX, async { tokio::join!(feed, child.wait_with_output()).1 });
    let silent = |_| NetError::Refused { program, said: "it does not end".to_owned() };
    let output = done.await.map_err(silent)?.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(NetError::Refused { program, said: said.trim().chars().take(2_000).collect() })
}
