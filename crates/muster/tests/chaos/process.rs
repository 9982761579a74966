//! Processes with a log file, and commands that must succeed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

/// Starts a process whose output is appended to a file.
pub(crate) fn spawn(command: &mut Command, log: &Path) -> Child {
    let output = fs::File::options().create(true).append(true).open(log).unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap()
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// Sends a signal to a process that runs.
pub(crate) fn signal(child: Option<&Child>, signal: &str) {
    let pid = child.expect("the process runs").id().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
}

/// Kills a process, also if it is stopped.
pub(crate) fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}
