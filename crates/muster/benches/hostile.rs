//! How an administrator fares beside hostile clients: latency of its requests, and of a node's heartbeats, while four identities
//! commit every abuse of `tests/hostile` at once. Latencies are shown and not checked: the clients share the
//! machine with the server.

#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/hostile/abuse.rs"]
mod abuse;
#[path = "../tests/hostile/attack.rs"]
mod attack;
#[path = "../tests/bed/mod.rs"]
#[allow(dead_code, reason = "the tests of kubectl use the rest")]
mod bed;
#[path = "../tests/hostile/connection.rs"]
mod connection;
#[path = "../tests/hostile/identity.rs"]
mod identity;
#[path = "../tests/hostile/neighbor.rs"]
mod neighbor;

use std::process::ExitCode;

/// Most that an optimized server may have resident meanwhile.
const RESIDENT_MIB_MAX: u64 = 1_000;

fn main() -> ExitCode {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let attacked = attack::run(dir.path());
    for ((abuse, identity), outcome) in &attacked.outcomes {
        println!("{abuse:<28} {identity:<16} {outcome}");
    }
    println!("{}", attacked.report);
    let complaints = attacked.report.complaints(RESIDENT_MIB_MAX);
    for complaint in &complaints {
        eprintln!("broken: {complaint}");
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
