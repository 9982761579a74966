//! The node agent. A real node runs pods as containers through any CRI runtime. A simulated node registers, sends
//! heartbeats and reports pods as running, without containers.

mod address_limits;
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
mod parsed_pod;
pub mod references;
pub mod runtime;
pub mod sim;
pub mod volumes;

/// This machine's architecture, as in image platforms and the label `kubernetes.io/arch`.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
