//! The trace of a run: hashes that identify the run, and log lines to print.

use std::fmt::{Debug, Write as _};

use muster_api::time::Time;
use muster_engine::daemonset::facts::WatchedObject;
use muster_engine::scenario;

use crate::server::{Actor, SimCommit};

/// The hashes that identify a run, and optionally its log lines.
#[derive(Clone, Debug)]
pub struct Trace {
    /// FNV-1a hash of the steps and commits so far.
    hash: u64,
    /// FNV-1a hash of the objects that DaemonSet controllers have written so far.
    controller_writes_hash: u64,
    /// Number of executed tasks so far.
    pub steps: u64,
    /// Log lines. `None` if the run is not verbose.
    pub lines: Option<Vec<String>>,
}

/// Start value of a 64-bit FNV-1a hash (the offset basis).
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

impl Default for Trace {
    fn default() -> Self {
        Self { hash: HASH_START, controller_writes_hash: HASH_START, steps: 0, lines: None }
    }
}

impl Trace {
    /// Returns the hash of the steps and commits so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the hash of the objects that DaemonSet controllers have written so far. The steps of the simulation do
    /// not affect this hash, so that it can be compared between versions of the simulator.
    pub fn controller_writes_hash(&self) -> u64 {
        self.controller_writes_hash
    }

    /// Adds an executed task to the hash, and counts it as a step.
    pub fn record_step(&mut self, now: Time, task: &impl Debug) {
        self.steps += 1;
        let mut text = String::new();
        let _ = write!(text, "{} {task:?}", now.as_micros());
        update_hash(&mut self.hash, text.as_bytes());
    }

    /// Adds a commit to the hash. A commit of a DaemonSet controller is also added to the hash of controller writes. If
    /// the run is verbose, also adds a log line about the commit. `object` is the current JSON of the object, empty if
    /// the object does not exist.
    pub fn record_commit(&mut self, commit: &SimCommit, object: &[u8]) {
        let what = if commit.fact.is_some() { "wrote" } else { "removed" };
        self.add_line(commit.at, || {
            let line =
                format!("{:?} {what} {:?} {} r{}", commit.actor, commit.kind, commit.key, commit.revision);
            match &commit.fact {
                Some(WatchedObject::Rollout(rollout)) => format!("{line}: {}", rollout.status),
                _ => line,
            }
        });
        let text = format!("{} {:?} {}", commit.revision, commit.kind, commit.key);
        update_hash(&mut self.hash, text.as_bytes());
        if matches!(commit.actor, Actor::Controller(_)) {
            update_hash(&mut self.controller_writes_hash, text.as_bytes());
            update_hash(&mut self.controller_writes_hash, object);
        }
    }

    /// Adds a log line, if the run is verbose.
    pub fn add_line(&mut self, now: Time, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let micros = now.as_micros() - scenario::EPOCH_S * 1_000_000;
            lines.push(format!("{:>6}.{:06}  {}", micros / 1_000_000, micros % 1_000_000, line()));
        }
    }
}

/// Adds bytes to an FNV-1a hash.
fn update_hash(hash: &mut u64, bytes: &[u8]) {
    for byte in bytes {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
