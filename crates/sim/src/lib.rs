//! Deterministic simulation testing. The shipped engine and store run in a simulated cluster with injected faults.
//!
//! A seed determines the cluster, the fault rates and the user actions. A run has two phases. In the first phase every
//! component may fail, and safety invariants are checked at every step. Then all faults stop, and the cluster must
//! converge to the desired state and stay there. `cargo sim SEED` replays one seed and prints its trace. `cargo sim
//! --seeds N` runs N seeds.

pub mod case;
pub mod container_runtime;
pub mod controllers;
pub mod faults;
pub mod invariants;
pub mod kubelet;
pub mod kubelet_checks;
pub mod pod_simulation;
pub mod rng;
pub mod run;
pub mod server;
pub mod trace;
pub mod user_action;
pub mod world;
