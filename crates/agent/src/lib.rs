//! The node agent. A real node runs pods as containers through any CRI runtime. A simulated node registers, sends
//! heartbeats and reports pods as running, without containers.

mod address_limits;
mod clock;
pub mod config;
pub mod endpoint;
mod error_chain;
pub mod image;
pub mod join;
/// Several nodes on one machine, for `muster up --nodes`.
pub mod local_node;
/// The cluster that the node has joined.
pub mod membership;
pub mod metrics;
pub mod net;
pub mod node;
/// A pod from the API server or from a manifest.
mod parsed_pod;
/// Secrets, ConfigMaps and tokens that pods refer to.
pub mod references;
pub mod runtime;
/// Simulated nodes.
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
