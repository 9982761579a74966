//! The API servers of `muster up --servers`: processes that share a trial etcd cluster, behind a load balancer in this
//! process.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use hyper::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_agent::local_node::{LocalCluster, NODES_MAX};
use muster_server::{BuiltinUser, SERVER_TOKEN_FILE};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::balancer::{Backend, Balancer};
use super::child_process::{
    RunningProcess, data_dir_argument, open_log, read_log_tail, run_until_stop, stop_leftover_processes,
};
use super::standby::Takeover;
use super::trial_etcd::{EtcdMember, MEMBER_COUNT, member_dir};
use crate::logging::print_to_stderr;
use crate::serving_flags::{ServingFlags, user_agent};
use crate::supervisor::{Supervisor, restart_until_stopped};

/// First port on which the servers listen. A port that is in use is skipped.
const FIRST_PORT: u16 = 16_443;

/// Maximum time for a server to accept requests after its start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time that a server gets to exit. It drains its requests first.
const SERVER_EXIT_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum time that a member of etcd gets to exit, after the servers.
const ETCD_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Flags of `muster up` about its servers.
#[derive(Debug, clap::Args)]
pub(super) struct ServersFlags {
    /// Number of API servers, each a process, which share a trial etcd cluster of three members on this machine. Any
    /// process may die, the process of `muster up` included. Needs the program `etcd` on PATH. For trying, not for
    /// production
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: Option<u8>,
    /// Accept an etcd on PATH that is known to lose watch events, such as 3.4 of Debian 12
    #[arg(long, requires = "servers")]
    etcd_any_version: bool,
}

impl ServersFlags {
    /// Returns the number of servers. `None` if the API server runs in this process.
    pub(super) fn count(&self) -> Option<u8> {
        self.servers
    }

    /// Fails if the data directory has a cluster with one server and `--servers` is given, or a cluster with several
    /// servers and `--servers` is not given. The existing cluster would otherwise be ignored, and an empty one created.
    pub(super) fn check_data_dir(&self, data_dir: &Path) -> anyhow::Result<()> {
        let dir = data_dir.display();
        let has_etcd = member_dir(data_dir, 1).exists();
        match self.servers {
            None if has_etcd => {
                bail!(
                    "{dir} has a cluster with several servers: add --servers N, or choose another --data-dir"
                )
            }
            Some(_) if muster_server::has_store(data_dir) => {
                bail!("{dir} has a cluster with one server: omit --servers, or choose another --data-dir")
            }
            _ => Ok(()),
        }
    }
}

/// The API servers of `muster up --servers`, after they were started.
pub(super) struct ApiServers {
    /// Addresses of the servers themselves.
    pub(super) addresses: Vec<SocketAddr>,
    /// Data directory of the first server, which has the certificates and keys of the cluster.
    keys_dir: PathBuf,
    /// URL of the load balancer for clients in this process.
    url: String,
    /// Another file descriptor of the load balancer's listener.
    pub(super) listener: OwnedFd,
    /// The `export KUBECONFIG=…` line for the administrator's shell.
    pub(super) export: String,
}

impl ApiServers {
    /// Starts etcd, the servers and the load balancer as tasks of `supervisor`, and waits until all servers accept
    /// requests. `machine` is the network of the real nodes, if there are any. `flags` are additional flags for each
    /// server.
    ///
    /// With `takeover`, the processes that a killed `muster up` started run on. Those that do not run are restarted later,
    /// as after any other end, and the function waits for nothing.
    pub(super) async fn start(
        count: u8,
        args: &ServersFlags,
        serving: &ServingFlags,
        flags: &[OsString],
        machine: Option<&LocalCluster>,
        takeover: Option<Takeover>,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<Self> {
        serving.check_flags_for_several_servers()?;
        let data_dir = std::path::absolute(serving.data_dir())?;
        let log_dir = data_dir.join("logs");
        fs::create_dir_all(&log_dir).with_context(|| format!("create {}", log_dir.display()))?;
        let members = EtcdMember::of_data_dir(&data_dir, &log_dir);
        let is_takeover = takeover.is_some();
        let mut running_members = Vec::new();
        if is_takeover {
            running_members.extend(members.iter().map(|it| RunningProcess::find(it.data_dir())));
        } else {
            stop_leftover_processes(&data_dir).await?;
            print_to_stderr(format_args!(
                "muster: starting {MEMBER_COUNT} members of etcd and {count} {} on this machine: this is for trying, not for production",
                if count == 1 { "server" } else { "servers" }
            ));
            running_members
                .extend(start_members(&members).await?.into_iter().map(RunningProcess::Child).map(Some));
        }

        let token = data_dir.join(SERVER_TOKEN_FILE);
        muster_server::create_server_token_if_missing(&token)?;
        let (listener, addresses) = match takeover {
            Some(it) => (it.listener, it.server_addresses),
            None => {
                let listen = serving.listen_address();
                let listener = TcpListener::bind(listen)
                    .await
                    .map_err(|error| anyhow!("choose another --listen: {listen} cannot be used: {error}"))?;
                let ip = machine.map_or(Ipv4Addr::LOCALHOST, LocalCluster::address);
                (listener, free_addresses(ip.into(), count)?)
            }
        };
        let listen = listener.local_addr().context("read the address of the load balancer")?;
        let url = format!("https://{}", reachable_from_here(listen));
        let endpoints: Vec<String> = members.iter().map(EtcdMember::client_url).collect();
        let server = |(number, address): (u8, SocketAddr)| ServerProcess {
            number,
            data_dir: data_dir.join(format!("server-{number}")),
            log: log_dir.join(format!("server-{number}.log")),
            address,
            arguments: server_arguments(args, &endpoints, &token, &url, machine, flags),
        };
        let servers: Vec<ServerProcess> = (1..=count).zip(addresses.iter().copied()).map(server).collect();
        let mut running_servers = Vec::new();
        if is_takeover {
            running_servers.extend(servers.iter().map(|it| RunningProcess::find(&it.data_dir)));
        } else {
            let started = futures::future::try_join_all(servers.iter().map(ServerProcess::start)).await?;
            running_servers.extend(started.into_iter().map(RunningProcess::Child).map(Some));
        }

        let backends: Vec<_> = addresses.iter().map(|it| Arc::new(Backend::new(*it))).collect();
        let keys_dir = servers[0].data_dir.clone();
        for (backend, address) in backends.iter().zip(&addresses) {
            let kubeconfig = muster_server::issue_kubeconfig(
                &keys_dir,
                &format!("https://{address}"),
                BuiltinUser::Admin,
            )?;
            backend.set_client(client_from_kubeconfig(&kubeconfig, "up").await?);
        }
        let balancer = Arc::new(Balancer::new(backends.clone()));
        let kept_listener = listener.as_fd().try_clone_to_owned().context("keep the load balancer")?;
        let (stop_servers, stop_etcd) = (supervisor.server_stop_token(), CancellationToken::new());
        let serving_servers = serve(
            (members, running_members),
            (servers, running_servers),
            (balancer, listener),
            stop_servers,
            stop_etcd,
        );
        supervisor.spawn_server_task(
            SERVER_EXIT_TIMEOUT + ETCD_EXIT_TIMEOUT + Duration::from_secs(1),
            serving_servers,
        );
        for backend in backends.iter().filter(|_| !is_takeover) {
            let healthy = tokio::time::timeout(START_TIMEOUT, backend.wait_until_healthy()).await;
            healthy.map_err(|_| {
                anyhow!("the server at {} is not ready: see {}", backend.address, log_dir.display())
            })?;
        }
        let kubeconfig =
            fs::read(keys_dir.join("kubeconfig")).context("read the kubeconfig of the first server")?;
        let export = serving.write_kubeconfig(&kubeconfig)?;
        Ok(Self { addresses, keys_dir, url, listener: kept_listener, export })
    }

    /// Returns a client of the load balancer with the identity `user` and the user agent `muster-NAME`.
    pub(super) async fn client(&self, user: BuiltinUser, name: &str) -> anyhow::Result<kube::Client> {
        client_from_kubeconfig(&muster_server::issue_kubeconfig(&self.keys_dir, &self.url, user)?, name).await
    }

    /// Returns the file with the CA certificate of the cluster.
    pub(super) fn ca_certificate(&self) -> PathBuf {
        self.keys_dir.join("ca.crt")
    }
}

/// Starts the members of etcd, and waits until they have a leader.
async fn start_members(members: &[EtcdMember]) -> anyhow::Result<Vec<Child>> {
    let mut running = Vec::new();
    for member in members {
        running.push(member.spawn()?);
    }
    for (member, process) in members.iter().zip(&mut running) {
        member.wait_until_healthy(process).await?;
    }
    Ok(running)
}

/// Serves until `stop_servers` is cancelled: starts processes that do not run, restarts those that exit, and runs the load
/// balancer. Then stops the servers, and after them the members of etcd.
async fn serve(
    (members, running_members): (Vec<EtcdMember>, Vec<Option<RunningProcess>>),
    (servers, running_servers): (Vec<ServerProcess>, Vec<Option<RunningProcess>>),
    (balancer, listener): (Arc<Balancer>, TcpListener),
    stop_servers: CancellationToken,
    stop_etcd: CancellationToken,
) -> anyhow::Result<()> {
    let mut member_tasks = JoinSet::new();
    for (member, mut running) in members.into_iter().zip(running_members) {
        let stop = stop_etcd.clone();
        member_tasks.spawn(async move {
            let start = || {
                let (running, member, stop) = (running.take(), member.clone(), stop.clone());
                async move {
                    let process = match running {
                        Some(process) => process,
                        None => RunningProcess::Child(member.spawn()?),
                    };
                    run_until_stop(process, ETCD_EXIT_TIMEOUT, &stop).await
                }
            };
            restart_until_stopped(&format!("member {} of etcd", member.name()), start, &stop).await;
        });
    }
    let mut server_tasks = JoinSet::new();
    for (server, mut running) in servers.into_iter().zip(running_servers) {
        let stop = stop_servers.clone();
        server_tasks.spawn(async move {
            let start = || {
                let (running, server, stop) = (running.take(), server.clone(), stop.clone());
                async move {
                    let process = match running {
                        Some(process) => process,
                        None => match stop.run_until_cancelled(server.start()).await {
                            Some(started) => RunningProcess::Child(started?),
                            None => return Ok(()),
                        },
                    };
                    run_until_stop(process, SERVER_EXIT_TIMEOUT, &stop).await
                }
            };
            restart_until_stopped(&format!("API server {}", server.number), start, &stop).await;
        });
    }
    let mut balancer_tasks = JoinSet::new();
    balancer_tasks.spawn(balancer.clone().check_health());
    balancer_tasks.spawn(balancer.run(listener));
    // Servers may still be restarted while the tasks of the cluster finish their requests.
    while server_tasks.join_next().await.is_some() {}
    stop_etcd.cancel();
    while member_tasks.join_next().await.is_some() {}
    Ok(())
}

/// A `muster server` process: its number, files, address and flags.
#[derive(Debug, Clone)]
struct ServerProcess {
    /// The number of the server, from 1 on.
    number: u8,
    data_dir: PathBuf,
    log: PathBuf,
    address: SocketAddr,
    /// The flags that are the same for all servers.
    arguments: Vec<OsString>,
}

impl ServerProcess {
    /// Starts the process and waits until it accepts requests.
    async fn start(&self) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("find the path of this executable")?;
        let mut command = Command::new(program);
        command
            .arg("server")
            .arg(data_dir_argument(&self.data_dir))
            .args(["--listen", &self.address.to_string()])
            .args(&self.arguments);
        // The server has its own process group, so that Ctrl-C signals only this process. If this process is killed, the
        // server goes on, and the standby process takes it over.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(open_log(&self.log)?);
        let mut process = command.process_group(0).kill_on_drop(true).spawn().context("run muster server")?;
        let stdout = process.stdout.take().context("the server has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        match line {
            Ok(Ok(Some(line))) if line.starts_with("ready:") => Ok(process),
            Err(_) => bail!(
                "server {} is not ready after {} s: see {}",
                self.number,
                START_TIMEOUT.as_secs(),
                self.log.display()
            ),
            _ => bail!("server {} does not start: {}", self.number, read_log_tail(&self.log)),
        }
    }
}

/// Returns the flags that are the same for all servers.
fn server_arguments(
    args: &ServersFlags,
    endpoints: &[String],
    token: &Path,
    url: &str,
    machine: Option<&LocalCluster>,
    flags: &[OsString],
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--etcd".into(), endpoints.join(",").into()];
    arguments.extend(["--token-file".into(), token.into()]);
    if args.etcd_any_version {
        arguments.push("--etcd-any-version".into());
    }
    if let Some(machine) = machine {
        arguments.extend(["--cluster-cidr".into(), machine.pod_cidr().into()]);
        arguments.extend(["--reserved-pod-cidrs".into(), (u32::from(NODES_MAX) + 1).to_string().into()]);
    }
    let is_advertise = |it: &OsString| it.as_encoded_bytes().starts_with(b"--advertise=");
    if !flags.iter().any(is_advertise) {
        arguments.extend(["--advertise".into(), url.into()]);
    }
    arguments.extend(flags.iter().cloned());
    arguments
}

/// Returns the address at which this machine reaches a listener.
fn reachable_from_here(listen: SocketAddr) -> SocketAddr {
    match listen.ip().is_unspecified() {
        true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listen.port()),
        false => listen,
    }
}

/// Returns `count` addresses on `ip` with free ports. Ports are tried in order from [`FIRST_PORT`] on, so that the
/// addresses are usually the same as at the last start.
fn free_addresses(ip: IpAddr, count: u8) -> anyhow::Result<Vec<SocketAddr>> {
    let all = (FIRST_PORT..FIRST_PORT + 1000).map(|port| SocketAddr::new(ip, port));
    let free: Vec<_> = all.filter(|it| StdListener::bind(it).is_ok()).take(count.into()).collect();
    if free.len() < count.into() {
        bail!("{ip} has no free ports between {FIRST_PORT} and {}", FIRST_PORT + 999);
    }
    Ok(free)
}

/// Creates a client from a kubeconfig, with the user agent `muster-NAME/VERSION`.
async fn client_from_kubeconfig(kubeconfig: &str, name: &str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, user_agent(name)));
    Ok(kube::Client::try_from(config)?)
}
