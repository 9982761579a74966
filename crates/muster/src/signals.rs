//! Receives the signals that end the process: SIGINT and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

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
