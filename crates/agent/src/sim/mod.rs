//! Simulated nodes: any number in one process, all behind one watch of the nodes and one of the pods.
//!
//! `told` lists what they can be told; `seen` is what a watch brings; `container`, `pod` and `node` decide, without a clock and
//! without a call; `status` has the words; `fleet` makes the calls, by `clock`.
//!
//! What a pod needs next is read from the pod and from the little that is remembered of it, and all that is remembered can be
//! read back from its status: a process that ends and comes again goes on where it was.

mod clock;
mod container;
mod fleet;
mod node;
mod pod;
mod seen;
mod status;
mod told;

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;

pub use fleet::{Fleet, Options, add, free, remove_all};
pub use node::{NODES_MAX, New};
pub use told::{FAIL, FLEET, Pace, Trouble, WORDS, span};
