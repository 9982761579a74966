//! Hostile neighbors: clients with few rights abuse the server side by side, while an administrator and the nodes work on.

#[path = "../bed/mod.rs"]
#[allow(dead_code, reason = "the tests of kubectl use the rest")]
mod bed;

mod abuse;
mod attack;
mod connection;
mod identity;
mod neighbor;

/// Most that the server may have resident, in a build without optimization: some 100 MiB at rest; 16 MiB of objects, of
/// which the store holds two versions; bodies, decoded objects and responses of all clients.
const RESIDENT_MIB_MAX: u64 = 1_000;

#[test]
fn an_administrator_and_nodes_keep_working_beside_hostile_clients() {
    let dir = bed::fresh_dir("hostile");
    let attacked = attack::run(&dir);
    for ((abuse, identity), outcome) in &attacked.outcomes {
        println!("{abuse:<28} {identity:<16} {outcome}");
    }
    println!("{}", attacked.report);
    let mut complaints = attacked.report.complaints(RESIDENT_MIB_MAX);
    let is_broken = |outcome: &str| outcome.contains("broken:") || outcome.is_empty();
    let broken = attacked.outcomes.iter().filter(|(_, outcome)| is_broken(outcome));
    complaints.extend(broken.map(|((abuse, identity), outcome)| format!("{abuse} by {identity}: {outcome}")));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
