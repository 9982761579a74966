//! The node agent. A real node runs pods as containers through any CRI runtime. A simulated node registers, sends
//! heartbeats and reports pods as running, without containers.

/// Limits on the permits that each IP address may hold.
mod address_limits;
/// The API servers that the agent knows.
pub mod api_servers;
/// The node's clock.
mod clock;
/// Configuration of a node.
pub mod config;
/// SHA-256 digests as text.
mod digest;
/// The agent's HTTPS endpoint.
pub mod endpoint;
/// Imports images into containerd without a registry.
pub mod image;
/// Joins a cluster, and renews the node's certificates.
pub mod join;
/// Several nodes on one machine, for `muster up --nodes`.
pub mod local_node;
/// The cluster that the node has joined.
pub mod membership;
/// Metrics of the node agent.
pub mod metrics;
/// The network of a node: Services, DNS and routes.
pub mod net;
/// A real node, whose pods run as containers.
pub mod node;
/// A pod from the API server or from a manifest.
mod parsed_pod;
/// Secrets, ConfigMaps and service account tokens that pods refer to.
pub mod references;
/// The container runtime interface.
pub mod runtime;
/// Simulated nodes.
pub mod sim;
/// The volumes of a node's pods.
pub mod volumes;

/// Returns the name of this machine's architecture in image platforms and in the label `kubernetes.io/arch`, such as
/// `amd64`.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
