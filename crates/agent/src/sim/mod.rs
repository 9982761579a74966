//! Simulated nodes: any number in one process, all behind one watch of the nodes and one of the pods.
//!
//! `behaviour` lists how they can be made to behave; `wire` is what a watch delivers; `pod` drives the kubelet rules of the engine
//! over the fake `runtime`; `node` is the Node object; `fleet` makes the calls, by `clock`.
//!
//! All that a pod needs can be read back from its status: a process that starts again goes on where the last one was.

mod behaviour;
mod clock;
mod fleet;
mod node;
mod pod;
mod runtime;
mod wire;

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;

pub use behaviour::{FAIL, FLEET, Pace, Trouble, WORDS, span};
pub use fleet::{Fleet, Options, add, free, remove_all};
pub use node::{NODES_MAX, New};
