//! Flags, start and shutdown of the API server, shared by `muster up` and `muster server`.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::ArgMatches;
use hyper::Request;
use hyper::header::{HeaderValue, USER_AGENT};
use muster_agent::local_node::{LocalCluster, NODES_MAX};
use muster_api::well_known::NAMESPACE_SYSTEM;
use muster_control::{ElectionCallbacks, LeaderElectionConfig, LeaseConfig, run_while_leading};
use muster_files::{overwrite_private_file, write_private_file};
use muster_server::{
    AdvertisedUrl, ApiServer, BuiltinUser, ClusterPolicy, ClusterSettings, DEFAULT_CLUSTER_CIDR, EtcdOptions,
    LeaderFence, LoopbackClient, SettingsError, StoreOptions,
};

use crate::command_line::{find_given_flags, quote_for_shell};
use crate::data_dir::lock;
use crate::encrypt;
use crate::limit_flags::LimitFlags;
use crate::signals::TerminationSignals;
use crate::supervisor::{self, NodeLifecycleFlags, Supervisor};
use crate::{duration_flag, pod_security_flags};

/// Minimum value of `--store-bytes-max`. It has space for the bootstrap objects and a few large objects.
const STORE_BYTES_MIN: usize = 16 << 20;

/// Flags of the API server, shared by `muster up` and `muster server`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServingFlags {
    /// Directory for the cluster's state, certificates and kubeconfig
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Address and port on which the API server listens; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// URL for clients, such as https://k8s.example.com:6443, if they reach the server through a load balancer or a DNS
    /// name: it is written to kubeconfigs, and the serving certificate is valid for its host
    #[arg(long, value_name = "URL")]
    advertise: Option<AdvertisedUrl>,
    /// File to which the administrator's kubeconfig is written [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Audit log: append one JSON line per request to this file, without bodies
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// CIDR range of pod IPs; each node that joins without its own --pod-cidr is assigned a /24 of it. All servers on one
    /// etcd need the same range
    #[arg(long, value_name = "RANGE", default_value = DEFAULT_CLUSTER_CIDR)]
    cluster_cidr: String,
    /// IPv4 CIDR ranges allowed in spec.externalIPs of Services; none by default. Agents need the same flag
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',')]
    allow_external_ips: Vec<String>,
    /// Maximum lifetime of certificates signed through the CertificateSigningRequest API, node certificates included
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = duration_flag::parse_duration)]
    cluster_signing_duration: Duration,
    /// Start an empty cluster if the old database is lost or damaged. Nodes of `muster up` then stop all pods. Other
    /// nodes keep their pods, and join the new cluster after the file `cluster` in their --root is removed and the
    /// agent is restarted
    #[arg(long)]
    new_cluster: bool,
    /// Encrypt Secrets at rest with the first key in this file, which `muster encrypt` creates [default:
    /// DIR/encryption.key if it exists]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Maximum total size of all objects, such as 512Mi or 2Gi. The last tenth is reserved for nodes, leases,
    /// kube-system and system:masters; one namespace may use at most half
    #[arg(long, value_name = "BYTES", default_value = "2Gi", value_parser = parse_store_bytes)]
    store_bytes_max: usize,
    /// Maximum lifetime of requested service account tokens, not of those in Secrets [default: one day for tokens that
    /// are not bound to an object]
    #[arg(long, value_name = "TIME", value_parser = duration_flag::parse_duration)]
    service_account_max_token_expiration: Option<Duration>,
    /// Time for which a server that is stopped with SIGTERM still serves while /readyz fails, so that load balancers stop
    /// sending requests to it
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration_flag::parse_nonnegative_duration)]
    shutdown_delay: Duration,
    #[command(flatten)]
    pod_security: pod_security_flags::PodSecurityFlags,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    node_lifecycle: NodeLifecycleFlags,
}

impl ServingFlags {
    /// Returns the value of `--data-dir`.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the value of `--listen`.
    pub(crate) fn listen_address(&self) -> SocketAddr {
        self.listen
    }

    /// Fails if a flag is given that cannot be used with `--servers`, that is, with several servers that share etcd.
    pub(crate) fn check_flags_for_several_servers(&self) -> anyhow::Result<()> {
        let refused = [
            (self.new_cluster, "--new-cluster", "remove the data directory to start an empty cluster"),
            (self.encryption_key_file.is_some(), "--encryption-key-file", "the servers share a key in etcd"),
            (
                self.audit_log.is_some(),
                "--audit-log",
                "every server needs a file of its own: start them with `muster server`",
            ),
        ];
        match refused.into_iter().find(|(is_given, ..)| *is_given) {
            Some((_, flag, why)) => bail!("{flag} cannot be used with --servers: {why}"),
            None => Ok(()),
        }
    }

    /// Returns the flags on the command line of `muster up --servers` that every server process gets. The flags that
    /// `muster up` chooses for each server are left out, and so are those that
    /// [`Self::check_flags_for_several_servers`] refuses.
    pub(crate) fn flags_for_several_servers(matches: &ArgMatches) -> Vec<OsString> {
        /// IDs of flags that are not passed on.
        const NOT_FORWARDED: [&str; 6] =
            ["data_dir", "listen", "kubeconfig", "audit_log", "new_cluster", "encryption_key_file"];
        find_given_flags::<Self>(matches, |it| !NOT_FORWARDED.contains(&it))
    }

    /// Whether `--new-cluster` is given.
    pub(crate) fn has_new_cluster_flag(&self) -> bool {
        self.new_cluster
    }

    /// Returns the CIDR ranges that `--allow-external-ips` allows in `spec.externalIPs` of Services.
    pub(crate) fn allow_external_ips(&self) -> &[String] {
        &self.allow_external_ips
    }

    /// Creates an encryption key file in a new data directory, unless the command line names a key file.
    pub(crate) fn create_key_if_new(&self) -> anyhow::Result<()> {
        match self.encryption_key_file {
            Some(_) => Ok(()),
            None => encrypt::create_key_for_new_data_dir(&self.data_dir),
        }
    }

    /// Locks the data directory, calls `start`, waits for a signal or a failure, and stops all tasks.
    ///
    /// Calls `announce_stop` after the first signal. A second signal stops the tasks immediately. So does a failure,
    /// after which `announce_stop` is not called. Finally calls `finish`, while the lock is still held.
    pub(crate) async fn run_until_signal(
        &self,
        start: impl AsyncFnOnce(&mut Supervisor) -> anyhow::Result<()>,
        announce_stop: impl AsyncFnOnce(),
        finish: impl AsyncFnOnce(ShutdownMode) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // Registered before anything is started, so that no signal is lost.
        let mut signals = TerminationSignals::register()?;

        let lock = lock(&self.data_dir)?;
        let mut supervisor = Supervisor::default();
        let working = async {
            start(&mut supervisor).await?;
            tokio::select! {
                ended = supervisor.wait_for_server_end() => Err(ended),
                lost = lock.wait_until_lost() => Err(lost),
            }
        };
        let ended = tokio::select! {
            () = signals.recv() => Ok(()),
            ended = working => ended,
        };
        let (abort, has_failed) = (supervisor.abort_token(), ended.is_err());
        let ending = async {
            if has_failed {
                // After a failure the containers keep running for the next start.
                supervisor.abort_token().cancel();
            } else {
                announce_stop().await;
            }
            supervisor.stop_all().await;
        };
        tokio::pin!(ending);
        let shutdown = tokio::select! {
            () = &mut ending => ShutdownMode::Orderly,
            () = signals.recv() => {
                abort.cancel();
                ending.await;
                ShutdownMode::Immediate
            }
        };
        let shutdown = if has_failed { ShutdownMode::AfterFailure } else { shutdown };
        let finished = finish(shutdown).await;
        ended.and(finished)
    }

    /// Returns the settings that all servers of the cluster must have in common. The first `reserved_pod_cidrs` ranges of
    /// `--cluster-cidr` are not assigned to nodes. With `machine`, the pod CIDRs are those of the local cluster instead.
    pub(crate) fn cluster_settings(
        &self,
        machine: Option<&LocalCluster>,
        reserved_pod_cidrs: u32,
    ) -> Result<ClusterSettings, SettingsError> {
        let policy = ClusterPolicy {
            pod_security: self.pod_security.pod_security_settings(),
            allow_external_ips: self.allow_external_ips.clone(),
            certificate_lifetime_max: self.cluster_signing_duration,
            token_lifetime_max: self.service_account_max_token_expiration,
        };
        match machine {
            Some(machine) => ClusterSettings::new(&machine.pod_cidr(), u32::from(NODES_MAX) + 1, policy),
            None => ClusterSettings::new(&self.cluster_cidr, reserved_pod_cidrs, policy),
        }
    }

    /// Opens the store, binds the listen address, and configures the server from the flags.
    ///
    /// With `machine`, the server also listens on the bridge of the local nodes and uses the pod CIDR of the local
    /// cluster. Each local node configures its own range of this CIDR.
    ///
    /// With `etcd`, the objects are stored there, and the encryption keys of the data directory are not used.
    pub(crate) async fn bind_server(
        &self,
        machine: Option<&LocalCluster>,
        settings: ClusterSettings,
        etcd: Option<EtcdOptions>,
    ) -> anyhow::Result<ApiServer> {
        let nodes = machine.map(|it| it.address().into());
        let options = StoreOptions {
            new_cluster: self.new_cluster,
            bytes_max: self.store_bytes_max,
            keys: match etcd {
                Some(_) => None,
                None => encrypt::read_keys(&self.data_dir, self.encryption_key_file.as_deref())?,
            },
            etcd,
        };
        let mut server =
            ApiServer::open_with_options(self.listen, nodes, &self.data_dir, &options, Some(settings))
                .await?;
        if let Some(path) = &self.audit_log {
            server.enable_audit_log(path)?;
        }
        if let Some(url) = &self.advertise {
            server.set_advertised_url(url.clone());
        }
        server.set_limits(self.limits.limits_config());
        Ok(server)
    }

    /// Writes the administrator's kubeconfig, and starts the server and the built-in controllers, except those in
    /// `without`. If other servers share the store (`is_shared`), each controller and each singleton task of the server
    /// runs on the server that holds its Lease.
    ///
    /// Returns the `export KUBECONFIG=…` line for the administrator's shell.
    pub(crate) fn start_server(
        &self,
        mut server: ApiServer,
        without: &[String],
        is_shared: bool,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<String> {
        let export = self.write_kubeconfig(server.issue_kubeconfig(BuiltinUser::Admin)?.as_bytes())?;
        // Unique for each process: two servers with the same identity would both be leader.
        let identity = uuid::Uuid::new_v4().to_string();
        let lease = |name: &str| LeaseConfig {
            namespace: NAMESPACE_SYSTEM.to_owned(),
            name: format!("muster-{name}"),
            identity: identity.clone(),
            election: LeaderElectionConfig::default(),
        };
        let preference = server.lease_preference();
        let callbacks = |lease: &LeaseConfig, fence: &LeaderFence| {
            let (fence, preference, name) = (fence.clone(), preference.clone(), lease.name.clone());
            ElectionCallbacks::new(
                move |version| fence.record_held(version),
                move || preference.is_preferred(&name),
            )
        };
        for it in supervisor::enabled_controllers(without) {
            let lease = is_shared.then(|| lease(it.name));
            let fence = lease.as_ref().map(|it| LeaderFence::new(&it.name));
            let lease_client = loopback_kube_client(&server, BuiltinUser::Admin, it.name);
            let client = server.loopback_client(it.user);
            let client = match &fence {
                None => client,
                Some(fence) => client.with_fence(fence.clone()),
            };
            let client = to_kube_client(client, it.name);
            let election = lease.clone().zip(fence).map(|(lease, fence)| (callbacks(&lease, &fence), lease));
            let (choices, stop) = (self.node_lifecycle, supervisor.stop_token());
            supervisor.supervise(it.name, move || {
                let (client, stop) = (client.clone(), stop.clone());
                let (election, lease_client) = (election.clone(), lease_client.clone());
                async move {
                    let run = |stop| (it.run)(client.clone(), &choices, stop);
                    match election {
                        None => run(stop).await,
                        Some((callbacks, lease)) => {
                            run_while_leading(lease_client, lease, stop, callbacks, run).await;
                        }
                    }
                    Ok(())
                }
            });
        }
        let singleton_tasks = if is_shared { server.take_singleton_tasks() } else { Vec::new() };
        for task in singleton_tasks {
            let client = loopback_kube_client(&server, BuiltinUser::Admin, task.name);
            let (lease, stop, task) = (lease(task.name), supervisor.stop_token(), Arc::new(task));
            let fence = LeaderFence::new(&lease.name);
            let callbacks = callbacks(&lease, &fence);
            supervisor.supervise(task.name, move || {
                let (client, lease, stop, task) = (client.clone(), lease.clone(), stop.clone(), task.clone());
                let (fence, callbacks) = (fence.clone(), callbacks.clone());
                async move {
                    let run = |stop| task.run_fenced(fence.clone(), stop);
                    run_while_leading(client, lease, stop, callbacks, run).await;
                    Ok(())
                }
            });
        }
        supervisor.spawn_server(server, self.shutdown_delay);
        Ok(export)
    }

    /// Writes the administrator's kubeconfig to the file that the flags select. Returns the `export KUBECONFIG=…` line for
    /// the administrator's shell.
    pub(crate) fn write_kubeconfig(&self, kubeconfig: &[u8]) -> anyhow::Result<String> {
        let path = self.kubeconfig.clone().unwrap_or_else(|| self.data_dir.join("kubeconfig"));
        let path = std::path::absolute(&path)?;
        let written = write_private_file(&path, kubeconfig).or_else(|error| {
            // On a full disk, the blocks of the previous kubeconfig can hold the new one.
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            let is_overwritten = is_full && overwrite_private_file(&path, kubeconfig).is_ok();
            if is_overwritten { Ok(()) } else { Err(error) }
        });
        written.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                anyhow!("the disk is full: cannot write {}. Free disk space, and try again", path.display())
            }
            _ => {
                let what = format!("choose another --kubeconfig: {} cannot be written", path.display());
                anyhow::Error::from(error).context(what)
            }
        })?;
        Ok(format!("export KUBECONFIG={}", quote_for_shell(&path.display().to_string())))
    }
}

/// Parses a number of bytes, with an optional binary suffix such as `Mi`. Fails if it is less than [`STORE_BYTES_MIN`].
fn parse_store_bytes(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    let bytes = number.parse::<usize>().ok().and_then(|it| it.checked_mul(1 << shift));
    bytes
        .filter(|it| STORE_BYTES_MIN <= *it)
        .ok_or_else(|| "must be at least 16Mi, in bytes or with a suffix, such as 512Mi or 2Gi".to_owned())
}

/// Why and how the process shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownMode {
    /// One signal was received. Tasks finish their work.
    Orderly,
    /// A second signal was received. Tasks stop immediately.
    Immediate,
    /// The start failed, or after the start the server failed or the lock of the data directory was lost. Tasks stop
    /// immediately.
    AfterFailure,
}

/// Returns a kube client for one component of this process, with the identity `user` and the user agent `muster-NAME`.
/// Requests go directly to the server in this process, without a network connection and without retries.
pub(crate) fn loopback_kube_client(server: &ApiServer, user: BuiltinUser, name: &str) -> kube::Client {
    to_kube_client(server.loopback_client(user), name)
}

/// Returns a kube client that sends its requests with `client`, with the user agent `muster-NAME`.
fn to_kube_client(client: LoopbackClient, name: &str) -> kube::Client {
    let agent = user_agent(name);
    let send = move |mut request: Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        let client = client.clone();
        async move { client.send(request).await }
    };
    kube::Client::new(tower::service_fn(send), "default")
}

/// Returns the value of the header `User-Agent` for a component of Muster.
pub(crate) fn user_agent(component: &str) -> HeaderValue {
    let agent = format!("muster-{component}/{}", env!("CARGO_PKG_VERSION"));
    HeaderValue::from_str(&agent).expect("a name and a version are plain text")
}
