//! The node. For now there is the simulated one: it talks to the API server as a node does, and runs nothing.

pub mod sim;
