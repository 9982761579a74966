//! The node. A real one runs pods as containers, through any runtime that speaks CRI; a simulated one talks to the API
//! server as a node does, and runs nothing.

mod clock;
pub mod config;
pub mod endpoint;
mod error_chain;
pub mod image;
pub mod join;
pub mod local_node;
pub mod membership;
pub mod metrics;
pub mod net;
pub mod node;
mod pod;
pub mod record;
pub mod references;
pub mod runtime;
mod shares;
pub mod sim;
pub mod volumes;

/// This machine's processor, as images and labels of nodes call it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
