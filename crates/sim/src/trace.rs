//! The trace of a run: a hash that identifies the steps of the run, and log lines to print.

use std::fmt::{Debug, Write as _};

use muster_api::time::Time;
use muster_engine::scenario;

use crate::server::SimCommit;

/// The hash of all steps and commits of a run, and optionally its log lines.
#[derive(Clone, Debug)]
pub struct Trace {
    /// FNV-1a hash of the steps and commits so far.
    hash: u64,
    /// Number of executed tasks so far.
    pub steps: u64,
    /// Log lines. `None` if the run is not verbose.
    pub lines: Option<Vec<String>>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, steps: 0, lines: None }
    }
}

impl Trace {
    /// Returns the hash of the steps and commits so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds an executed task to the hash, and counts it as a step.
    pub fn record_step(&mut self, now: Time, task: &impl Debug) {
        self.steps += 1;
        let mut text = String::new();
        let _ = write!(text, "{} {task:?}", now.as_micros());
        self.update_hash(&text);
    }

    /// Adds a commit to the hash. If the run is verbose, also adds a log line about the commit.
    pub fn record_commit(&mut self, commit: &SimCommit) {
        let what = if commit.fact.is_some() { "wrote" } else { "removed" };
        self.add_line(commit.at, || {
            format!("{:?} {what} {:?} {} r{}", commit.actor, commit.kind, commit.key, commit.revision)
        });
        let text = format!("{} {:?} {}", commit.revision, commit.kind, commit.key);
        self.update_hash(&text);
    }

    /// Adds a log line, if the run is verbose.
    pub fn add_line(&mut self, now: Time, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let micros = now.as_micros() - scenario::EPOCH_S * 1_000_000;
            lines.push(format!("{:>6}.{:06}  {}", micros / 1_000_000, micros % 1_000_000, line()));
        }
    }

    /// Adds a text to the hash.
    fn update_hash(&mut self, text: &str) {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
