//! `muster agent`: runs the node agent (kubelet and service proxy) on this machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_agent::api_servers::{ApiServers, ServerUrl};
use muster_agent::config::{Config, EvictionAndGcConfig};
use muster_agent::endpoint::{Endpoint, ServingIdentity};
use muster_agent::image;
use muster_agent::join::{BootstrapToken, CaSource, JoinOptions, JoinedNode};
use muster_agent::local_node;
use muster_agent::metrics::AgentMetrics;
use muster_agent::net::{self, Ipv4Cidr};
use muster_agent::node::{self, NodeAgent, host};
use muster_agent::runtime::{CriClient, Runtime as _};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::duration_flag;
use crate::signals::{TerminationSignals, wait_for_stdin_end};
use crate::sim_node::{parse_label, parse_taint};

/// Interval at which the agent checks that the runtime has its sandbox (pause) image.
const SANDBOX_IMAGE_CHECK_INTERVAL: Duration = Duration::from_secs(600);
/// Delay before a failed check or import of the sandbox image is retried.
const SANDBOX_IMAGE_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Run this machine as a node: join the cluster and run the pods bound to it, until Ctrl-C or SIGTERM
///
/// The agent joins once with a bootstrap token; `muster token create` on the server prints the whole command. After
/// that, the agent uses and renews its own client certificate. When the agent stops, containers keep running, and the
/// next start of the agent takes them over.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  muster agent --server https://10.0.0.5:6443 --token-file muster-token --ca-hash sha256:…
  muster agent --server https://10.0.0.5:6443 --node-name rack7 --labels disk=ssd --taints gpu=yes:NoSchedule
  muster agent --server https://10.0.0.5:6443,https://10.0.0.6:6443 --token-file muster-token --ca-hash sha256:…"
)]
pub(crate) struct AgentArgs {
    /// URL of an API server. Repeatable; one is enough, because the agent learns the others from it and stores them
    #[arg(long, value_name = "URL,…", value_delimiter = ',', required = true)]
    server: Vec<ServerUrl>,
    /// Bootstrap token. Other users of this machine can see it in `ps`: prefer --token-file
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// File with the bootstrap token, read to join, and again if the certificate has expired
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// SHA-256 fingerprint of the cluster CA certificate
    #[arg(long, value_name = "sha256:…", conflicts_with = "ca_cert")]
    ca_hash: Option<String>,
    /// File with the cluster CA certificate
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// Name of the node [default: the hostname]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// CRI socket of the container runtime
    #[arg(long, value_name = "unix://PATH", default_value = "unix:///run/containerd/containerd.sock", value_parser = parse_runtime_socket)]
    runtime_endpoint: PathBuf,
    /// Directory for the node's certificates and its pods' volumes
    #[arg(long, value_name = "DIR", default_value = "/var/lib/muster")]
    root: PathBuf,
    /// IP address of the node [default: the local address used to reach the API server]
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<IpAddr>,
    /// Port on which the agent serves logs, exec, port-forward and metrics to the API server
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    port: u16,
    /// Labels for the node, in addition to the well-known ones
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Taints with which the node registers
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT,…", value_delimiter = ',', value_parser = parse_taint)]
    taints: Vec<Value>,
    /// Maximum number of pods on the node
    #[arg(long, value_name = "N", default_value_t = 110)]
    max_pods: u16,
    /// Directory of static pod manifests: the node runs these pods independently of the API server
    #[arg(long, value_name = "DIR")]
    static_pods: Option<PathBuf>,
    /// IP address of the cluster DNS; `none`: pods use the DNS servers of the machine
    #[arg(long, value_name = "ADDRESS", default_value = "10.96.0.10", value_parser = parse_optional_address)]
    cluster_dns: OptionalAddress,
    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
    /// CIDR range of the node's pod IPs, such as 10.244.1.0/24 [default: assigned by the server]
    #[arg(long, value_name = "RANGE")]
    pod_cidr: Option<String>,
    /// IPv4 CIDR ranges allowed in spec.externalIPs of Services, such as 192.0.2.0/24; other external IPs are not
    /// programmed. The API server needs the same flag
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', value_parser = parse_cidr)]
    allow_external_ips: Vec<Ipv4Cidr>,
    /// DNS resolver configuration of the machine
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Directory of the CNI configuration. A configuration is written only if the directory has none
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Use the RuntimeDefault seccomp profile for containers that do not specify one, instead of Unconfined
    #[arg(long)]
    seccomp_default: bool,
    /// Parent cgroup of the node's pods
    #[arg(long, value_name = "PATH", default_value = "/kubepods")]
    cgroup_parent: String,
    /// Directory for the logs of pods and containers
    #[arg(long, value_name = "DIR", default_value = "/var/log")]
    var_log: PathBuf,
    /// Mount TO instead of FROM for hostPath volumes at or below FROM, for several nodes on one machine; repeatable
    #[arg(long, value_name = "FROM=TO", value_parser = parse_path_mapping)]
    own_path: Vec<(PathBuf, PathBuf)>,
    #[command(flatten)]
    eviction_and_gc: EvictionAndGcFlags,
    /// On exit, terminate the pods first, critical pods last, as in a graceful node shutdown. Without this flag, pods
    /// keep running
    #[arg(long)]
    drain_on_stop: bool,
    /// On exit, stop the pods first without reporting that they stopped; the next start of the agent starts them again
    #[arg(long, hide = true)]
    rest_on_stop: bool,
    /// Exit when standard input ends, that is, when the parent process has exited
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Flags for eviction, reserved resources, image garbage collection and log rotation. The defaults are the kubelet's.
#[derive(Debug, clap::Args)]
struct EvictionAndGcFlags {
    /// Hard eviction thresholds, such as memory.available<200Mi,nodefs.available<5%, in addition to the kubelet's
    /// defaults. Repeatable; a threshold of 0% disables a signal
    #[arg(long, value_name = "SIGNAL<AMOUNT,…")]
    eviction_hard: Vec<String>,
    /// Soft eviction thresholds, such as memory.available<10%; each needs an --eviction-soft-grace-period
    #[arg(long, value_name = "SIGNAL<AMOUNT,…")]
    eviction_soft: Vec<String>,
    /// How long a soft eviction threshold must be crossed before pods are evicted, such as memory.available=1m
    #[arg(long, value_name = "SIGNAL=TIME,…", value_delimiter = ',', value_parser = parse_signal_duration)]
    eviction_soft_grace_period: Vec<(String, Duration)>,
    /// Maximum termination grace period of pods evicted for a soft threshold, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    eviction_max_pod_grace_period: u32,
    /// Minimum amount of a resource that an eviction reclaims beyond the threshold, such as memory.available=200Mi
    #[arg(long, value_name = "SIGNAL=AMOUNT,…")]
    eviction_minimum_reclaim: Vec<String>,
    /// Resources reserved for the system and subtracted from the node's allocatable, such as cpu=100m,memory=500Mi
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "")]
    system_reserved: String,
    /// Time without pressure after which a pressure condition returns to False
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration_flag::parse_duration)]
    eviction_pressure_transition_period: Duration,
    /// Disk usage in percent from which garbage collection removes unused images; 100 turns it off
    #[arg(long, value_name = "PERCENT", default_value_t = 85, overrides_with = "image_gc_high_threshold", value_parser = clap::value_parser!(u8).range(0..=100))]
    image_gc_high_threshold: u8,
    /// Disk usage in percent down to which unused images are removed
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(0..=100))]
    image_gc_low_threshold: u8,
    /// Minimum age of an unused image before it is removed
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration_flag::parse_duration)]
    minimum_image_ttl_duration: Duration,
    /// Size at which a container's log file is rotated
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20)]
    container_log_max_size: u64,
    /// Maximum number of log files per container, including the current file
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..))]
    container_log_max_files: u16,
    /// Interval of checks of eviction thresholds, pod storage limits and log sizes; every sixth check, or the first
    /// one after 60s, also starts image garbage collection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_flag::parse_duration)]
    housekeeping_interval: Duration,
}

impl EvictionAndGcFlags {
    /// Builds the configuration that the flags specify.
    fn config(&self) -> anyhow::Result<EvictionAndGcConfig> {
        let mut config = EvictionAndGcConfig::default();
        config
            .set_system_reserved(&self.system_reserved)
            .map_err(|why| anyhow::anyhow!("choose another --system-reserved: {why}"))?;
        let choose = |flag: &'static str| move |why: String| anyhow::anyhow!("choose another {flag}: {why}");
        let thresholds = config
            .eviction_thresholds
            .with_hard_thresholds(&self.eviction_hard.join(","))
            .map_err(choose("--eviction-hard"))?
            .with_soft_thresholds(&self.eviction_soft.join(","), &self.eviction_soft_grace_period)
            .map_err(choose("--eviction-soft"))?
            .with_minimum_reclaim(&self.eviction_minimum_reclaim.join(","))
            .map_err(choose("--eviction-minimum-reclaim"))?;
        Ok(EvictionAndGcConfig {
            eviction_thresholds: thresholds,
            system_reserved: config.system_reserved,
            pressure_transition_period: self.eviction_pressure_transition_period,
            eviction_grace_max: Duration::from_secs(self.eviction_max_pod_grace_period.into()),
            image_gc_high_percent: self.image_gc_high_threshold,
            image_gc_low_percent: self.image_gc_low_threshold,
            image_age_min: self.minimum_image_ttl_duration,
            log_bytes_max: self.container_log_max_size,
            log_files_max: self.container_log_max_files,
            check_interval: self.housekeeping_interval,
        })
    }
}

/// Executes `muster agent`: runs the node agent until SIGINT or SIGTERM, or with `--until-stdin-ends` until standard
/// input ends.
pub(crate) async fn run(args: AgentArgs) -> anyhow::Result<()> {
    if !local_node::is_root() {
        bail!("nodes that run containers need root: use sudo");
    }
    let mut signals = TerminationSignals::register()?;
    // The first signal requests a graceful stop, the second one an immediate stop.
    let (graceful_stop, stop) = (CancellationToken::new(), CancellationToken::new());
    let stopping = async {
        tokio::select! {
            () = signals.recv() => {
                graceful_stop.cancel();
                signals.recv().await;
            }
            // The parent process has exited: leave the containers running for the next agent.
            () = wait_for_stdin_end(), if args.until_stdin_ends => {}
        }
        stop.cancel();
        graceful_stop.cancel();
        std::future::pending().await
    };
    tokio::select! {
        ended = run_node(&args, &graceful_stop, stop.clone()) => ended,
        ended = stopping => ended,
    }
}

/// Joins the cluster and runs the node until `graceful_stop` or `stop` is cancelled. The first SIGINT or SIGTERM
/// cancels `graceful_stop`. A second signal cancels `stop` too, and the end of standard input cancels both.
async fn run_node(
    args: &AgentArgs,
    graceful_stop: &CancellationToken,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let missing = local_node::missing_agent_prerequisites();
    if !missing.is_empty() {
        bail!("this machine cannot run pods: {}", missing.join("; "));
    }
    for it in local_node::missing_optional_tools() {
        tracing::warn!("{it}");
    }
    let name = match &args.node_name {
        Some(name) => name.clone(),
        None => hostname()?,
    };
    let token = match (&args.token_file, &args.token) {
        (Some(path), _) => Some(BootstrapToken::File(path.clone())),
        (None, token) => token.clone().map(BootstrapToken::Literal),
    };
    let ca_source = match (&args.ca_cert, &args.ca_hash) {
        (Some(path), _) => Some(CaSource::Certificate(path.clone())),
        (None, hash) => hash.clone().map(CaSource::Fingerprint),
    };
    let dir = args.root.join("pki");
    let servers = Arc::new(ApiServers::load(args.server.clone(), &dir));
    let address = match args.node_ip {
        Some(address) => address,
        None => local_address_towards_any(&servers.all())?,
    };
    let join_options =
        JoinOptions { servers: servers.clone(), name: name.clone(), dir, token, ca: ca_source, address };
    net::insert_api_server_accept_rules(&servers.all()).await;
    let joined = tokio::select! {
        () = graceful_stop.cancelled() => return Ok(()),
        joined = JoinedNode::join(&join_options) => joined?,
    };
    let config = Arc::new(node_config(args, name, address, servers)?);
    let metrics = Arc::new(AgentMetrics::default());
    let runtime =
        Arc::new(CriClient::connect_lazy(&config.runtime_socket).with_metrics(metrics.runtime_calls.clone()));
    if let Err(error) = runtime.version().await {
        tracing::warn!(
            error = format!("{:#}", anyhow::Error::from(error)),
            "no container runtime responds at {}: the node is NotReady until one does; start it, or give another \
             --runtime-endpoint",
            config.runtime_socket.display()
        );
    }
    let sandbox_image = ensure_sandbox_image_periodically(runtime.clone(), stop.clone());
    let identity = Arc::new(ServingIdentity::new(joined.ca_pem().as_bytes())?);
    let serve = |pem: &str| {
        if let Err(error) = identity.set_certificate(pem.as_bytes(), pem.as_bytes()) {
            tracing::warn!(%error, "load the serving certificate of the node");
        }
    };
    let at = SocketAddr::new(config.address, config.port);
    let listener = TcpListener::bind(at).await;
    let listener = listener.with_context(|| format!("listen on {at}: choose another --port or --node-ip"))?;

    let (recorder, recording) = node::event_recorder(joined.client(), config.name.clone());
    let node = NodeAgent::new(joined.client(), config.clone(), runtime, recorder, metrics);
    let ending = async {
        graceful_stop.cancelled().await;
        let how = match (args.drain_on_stop, args.rest_on_stop) {
            (true, _) => Some(host::NodeStop::Shutdown),
            (false, true) => Some(host::NodeStop::Suspend),
            (false, false) => None,
        };
        if let Some(how) = how.filter(|_| !stop.is_cancelled()) {
            tokio::select! {
                () = stop.cancelled() => {}
                () = host::terminate_pods(&node, how, host::ShutdownGrace::default()) => {}
            }
        }
        stop.cancel();
    };
    let components = async {
        let ((), (), (), (), served, ()) = tokio::join!(
            ending,
            sandbox_image,
            joined.renew_certificates(config.address, serve, stop.clone()),
            net::run(
                config.clone(),
                joined.client(),
                node.service_cache.clone(),
                node.membership.clone(),
                stop.clone()
            ),
            Arc::new(Endpoint::new(node.clone())).serve(listener, identity.clone(), stop.clone()),
            node.clone().run(stop.clone()),
        );
        served
    };
    tokio::select! {
        () = recording => bail!("the event recorder ended"),
        served = components => Ok(served?),
    }
}

/// Imports the built-in sandbox image whenever the runtime's sandbox image is missing, until `stop` is cancelled. The
/// image can be missing on a machine that cannot reach a registry, or after images were removed.
async fn ensure_sandbox_image_periodically(runtime: Arc<CriClient>, stop: CancellationToken) {
    let keeping = async {
        let mut is_logged = false;
        loop {
            let wait = match image::ensure_sandbox_image(&runtime).await {
                Ok(imported) => {
                    if let Some(name) = imported {
                        tracing::info!(
                            "the sandbox image {name} was missing: imported the built-in one under that name"
                        );
                    }
                    SANDBOX_IMAGE_CHECK_INTERVAL
                }
                Err(error) => {
                    // Logged once: an unreachable runtime is reported elsewhere.
                    if !std::mem::replace(&mut is_logged, true) {
                        let error = format!("{:#}", anyhow::Error::from(error));
                        tracing::warn!(
                            error,
                            "the runtime has no sandbox image, which pods need: pull it, or configure another"
                        );
                    }
                    SANDBOX_IMAGE_RETRY_INTERVAL
                }
            };
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = keeping => {}
    }
}

/// Builds the node's configuration from the flags.
fn node_config(
    args: &AgentArgs,
    name: String,
    address: IpAddr,
    api_servers: Arc<ApiServers>,
) -> anyhow::Result<Config> {
    Ok(Config {
        name,
        root_dir: args.root.clone(),
        runtime_socket: args.runtime_endpoint.clone(),
        var_log: args.var_log.clone(),
        host_path_mappings: args.own_path.clone(),
        cgroup_parent: args.cgroup_parent.clone(),
        address,
        port: args.port,
        labels: args.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        taints: args.taints.clone(),
        pods_max: args.max_pods,
        pod_cidr: args.pod_cidr.clone(),
        cni_conf_dir: Some(args.cni_conf_dir.clone()),
        static_pod_dir: args.static_pods.clone(),
        api_servers,
        external_ip_ranges: args.allow_external_ips.clone(),
        cluster_dns: args.cluster_dns.0,
        resolv_conf: args.resolv_conf.clone(),
        cluster_domain: args.cluster_domain.clone(),
        seccomp_default: args.seccomp_default,
        eviction_and_gc: args.eviction_and_gc.config()?,
    })
}

/// Returns the machine's hostname in lower case.
fn hostname() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the hostname")?;
    Ok(name.trim().to_lowercase())
}

/// Tries the servers in order, and returns the local address from which this machine reaches the first one that it has
/// a route to. If it has a route to none, returns the error about the first server.
fn local_address_towards_any(servers: &[ServerUrl]) -> anyhow::Result<IpAddr> {
    let mut first_error = None;
    for server in servers {
        match local_address_towards(server) {
            Ok(address) => return Ok(address),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| anyhow::anyhow!("no API server is known: give a --server")))
}

/// Returns the local address from which this machine reaches the server, according to the kernel's routing table. No
/// packet is sent to the server, but a host name is resolved.
fn local_address_towards(server: &ServerUrl) -> anyhow::Result<IpAddr> {
    let found = std::net::ToSocketAddrs::to_socket_addrs(&server.authority()).map(|mut it| it.next());
    let to = found.ok().flatten().with_context(|| {
        format!(
            "cannot resolve the name in {server}: give the server's address as --server https://ADDRESS:PORT"
        )
    })?;
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to).with_context(|| {
        format!("this machine has no route to {}: give its own address as --node-ip", to.ip())
    })?;
    Ok(socket.local_addr()?.ip())
}

/// Parses the path of a Unix socket, with or without `unix://`.
pub(crate) fn parse_runtime_socket(text: &str) -> anyhow::Result<PathBuf> {
    let path = text.strip_prefix("unix://").unwrap_or(text);
    if !Path::new(path).is_absolute() {
        bail!(
            "{text:?} is not unix:// and the path of a socket, such as unix:///run/containerd/containerd.sock"
        );
    }
    Ok(path.into())
}

fn parse_cidr(text: &str) -> anyhow::Result<Ipv4Cidr> {
    Ipv4Cidr::parse(text)
        .ok()
        .with_context(|| format!("{text:?} is not an IPv4 CIDR range such as 192.0.2.0/24"))
}

/// Parses the mapping `FROM=TO` of a host path to another path. Both paths must be absolute.
fn parse_path_mapping(text: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
    match text.split_once('=') {
        Some((from, to)) if Path::new(from).is_absolute() && Path::new(to).is_absolute() => {
            Ok((from.into(), to.into()))
        }
        _ => bail!("{text:?} is not FROM=TO with two absolute paths"),
    }
}

/// Parses an eviction signal and a duration, such as `memory.available=1m`.
fn parse_signal_duration(text: &str) -> anyhow::Result<(String, Duration)> {
    let Some((signal, time)) = text.split_once('=') else {
        bail!("{text:?} is not SIGNAL=TIME, such as memory.available=1m");
    };
    Ok((signal.trim().to_owned(), duration_flag::parse_duration(time.trim())?))
}

/// IP address from a flag, or `None` for the value `none`.
#[derive(Debug, Clone, Copy)]
struct OptionalAddress(Option<IpAddr>);

/// Parses an IP address, or the word `none`.
fn parse_optional_address(text: &str) -> anyhow::Result<OptionalAddress> {
    if text == "none" {
        return Ok(OptionalAddress(None));
    }
    Ok(OptionalAddress(Some(text.parse()?)))
}
