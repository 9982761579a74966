//! The real controller against the real server, in one process, with a line between them that fails.
//!
//! `bed` is the cluster, `line` what goes wrong, `judge` holds the run against the simulator's invariants; the scenarios
//! are in `faults`, `leaders`, `behaviour`, `nodes` and `lifecycle`, and `bites` shows that the judge finds what it should.

mod bed;
mod behaviour;
mod bites;
mod faults;
mod judge;
mod leaders;
mod lifecycle;
mod line;
mod nodes;
mod scheduling;
mod soak;
