//! Deterministic simulation testing. The shipped engine and store run in a simulated cluster with injected faults.
//!
//! A seed determines the cluster, the fault rates and the user actions. A run has two phases. In the first phase every
//! component may fail, and safety invariants are checked at every step. Then all faults stop, and the cluster must
//! converge to the desired state and stay there. `cargo sim SEED` replays one seed and prints its trace. `cargo sim
//! --seeds N` runs N seeds.

/// Cases of the catalogue: scripts with an expected final state.
pub mod case;
/// The simulated container runtime of a node.
pub mod container_runtime;
/// Simulated processes of the garbage collector, the node lifecycle controller and the scheduler.
pub mod controllers;
/// Fault injection.
pub mod faults;
/// Invariants of the simulation, and their checks.
pub mod invariants;
/// The simulated kubelet of a node, with its container runtime.
pub mod kubelet;
/// Invariants of a kubelet's actions.
pub mod kubelet_checks;
/// A second API server, whose state lags behind.
pub mod lagging_server;
/// Simulation of a single pod on a single node.
pub mod pod_simulation;
/// The seeded random number generator.
pub mod rng;
/// Runs the simulation of one seed.
pub mod run;
/// The simulated API server.
pub mod server;
/// The trace of a run.
pub mod trace;
/// User actions on the cluster.
pub mod user_action;
/// The objects that an API server has in memory.
pub mod watch_cache;
/// The simulated cluster.
pub mod world;
