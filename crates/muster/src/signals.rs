//! Receives the events that end the process: SIGINT, SIGTERM, and the end of standard input.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Receives SIGINT and SIGTERM. Register the signals before any task is started, so that no signal is lost.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl TerminationSignals {
    /// Starts to receive SIGINT and SIGTERM.
    pub(crate) fn register() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next SIGINT or SIGTERM.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits until standard input ends. The parent process holds the other end of the pipe and writes nothing. A detached
/// thread reads the pipe, so that a pending read does not prevent the process from exiting.
pub(crate) async fn wait_for_stdin_end() {
    let (ended, input_ended) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = input_ended.await;
}
