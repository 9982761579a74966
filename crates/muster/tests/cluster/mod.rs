//! The cluster of a test, in processes of the real binary. MUSTER_TEST_STORE selects where its servers store objects:
//!
//! - not set: one server with SQLite, in `muster up` or `muster server`;
//! - `etcd`: one `muster server` on an etcd with one member;
//! - `etcd-balanced`: three `muster server` on one etcd, behind a balancer that sends every request to another server.
//!   All servers but the first get the events of etcd late, so that a read without a read barrier is stale.
//!
//! With etcd, `muster sim-nodes` and `muster controller` run what `muster up` runs beside its server. Their requests
//! pass through the balancer, too.

#![allow(dead_code, reason = "each test binary uses a part")]

mod balancer;
pub(crate) mod etcd;
mod late_watch;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};

use balancer::Balancer;
use etcd::Etcd;
use late_watch::LateWatchProxy;

/// Number of servers behind the balancer. With two servers, a client that writes and reads in turn would always read
/// from the same server.
pub(crate) const BALANCED_SERVERS: usize = 3;

/// Time by which the servers that get events late are behind. It is longer than a client takes for its next request.
const WATCH_DELAY: Duration = Duration::from_millis(100);

/// Maximum time until simulated nodes are Ready, also on a busy machine.
const NODES_READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Where the servers of a test store objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestStore {
    Sqlite,
    Etcd,
    EtcdBalanced,
}

impl TestStore {
    /// Reads MUSTER_TEST_STORE.
    pub(crate) fn from_env() -> Self {
        match std::env::var("MUSTER_TEST_STORE").as_deref() {
            Err(_) => Self::Sqlite,
            Ok("etcd") => Self::Etcd,
            Ok("etcd-balanced") => Self::EtcdBalanced,
            Ok(other) => panic!("MUSTER_TEST_STORE is {other:?}, and not etcd or etcd-balanced"),
        }
    }
}

/// Number of simulated nodes, and further flags of `muster up`, by the command that takes them if the store is on etcd.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UpFlags<'a> {
    pub(crate) nodes: u16,
    pub(crate) sim_nodes: &'a [&'a str],
    pub(crate) controller: &'a [&'a str],
    pub(crate) server: &'a [&'a str],
    /// File to which all processes write the log, with level `trace`. `None` logs warnings to standard error.
    pub(crate) trace_log: Option<&'a Path>,
}

/// A cluster. On drop, its processes are killed. Its data directory is removed unless the test has failed.
pub(crate) struct TestCluster {
    dir: PathBuf,
    /// The DaemonSet controller and the simulated nodes, unless `muster up` runs them.
    others: Vec<Process>,
    /// The servers, or `muster up`.
    servers: Vec<Process>,
    balancer: Option<Balancer>,
    late_watches: Vec<LateWatchProxy>,
    etcd: Option<Etcd>,
}

impl TestCluster {
    /// Starts a cluster with a DaemonSet controller and simulated nodes. Waits until the nodes are Ready. `dir` is the
    /// data directory of the first server, and has the kubeconfig of the administrator.
    pub(crate) fn up(dir: &Path, flags: UpFlags<'_>) -> Self {
        let count = flags.nodes.to_string();
        if TestStore::from_env() == TestStore::Sqlite {
            let mut up = muster(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", &count], flags.trace_log);
            up.args(flags.sim_nodes).args(flags.controller).args(flags.server).arg("--data-dir").arg(dir);
            let (up, ready) = Process::spawn_until_ready(&mut up);
            let nodes = match flags.nodes {
                0 => "no nodes".to_owned(),
                1 => "1 simulated node".to_owned(),
                count => format!("{count} simulated nodes"),
            };
            let kubeconfig = dir.join("kubeconfig");
            assert_eq!(ready, format!("ready: {nodes}; export KUBECONFIG={}\n", kubeconfig.display()));
            return Self::of_server(dir, up);
        }
        let (store, ip) = (TestStore::from_env(), Ipv4Addr::LOCALHOST.into());
        let mut cluster = Self::start_servers(store, ip, dir, flags.server, flags.trace_log);
        let mut nodes = muster(&["sim-nodes", "--keep", "--count", &count], flags.trace_log);
        nodes.args(flags.sim_nodes).arg("--kubeconfig").arg(cluster.kubeconfig());
        cluster.others.push(Process::spawn_until_ready(&mut nodes).0);
        let mut controller = muster(&["controller", "--leader-elect=false"], flags.trace_log);
        controller.args(["--metrics-addr", "off", "--log-level", "warn"]).args(flags.controller);
        controller.arg("--kubeconfig").arg(cluster.kubeconfig());
        cluster.others.push(Process::spawn(&mut controller));
        cluster.wait_until_nodes_are_ready(usize::from(flags.nodes));
        cluster
    }

    /// Starts servers without a DaemonSet controller and without nodes.
    pub(crate) fn serve(dir: &Path, flags: &[&str]) -> Self {
        Self::serve_at(Ipv4Addr::LOCALHOST.into(), dir, flags)
    }

    /// Starts servers behind the balancer, whatever MUSTER_TEST_STORE selects.
    pub(crate) fn serve_balanced(dir: &Path) -> Self {
        Self::start_servers(TestStore::EtcdBalanced, Ipv4Addr::LOCALHOST.into(), dir, &[], None)
    }

    /// Like [`TestCluster::serve`], with another address than that of the loopback interface.
    pub(crate) fn serve_at(ip: IpAddr, dir: &Path, flags: &[&str]) -> Self {
        Self::start_servers(TestStore::from_env(), ip, dir, flags, None)
    }

    fn start_servers(
        store: TestStore,
        ip: IpAddr,
        dir: &Path,
        flags: &[&str],
        trace_log: Option<&Path>,
    ) -> Self {
        let listen = SocketAddr::new(ip, 0).to_string();
        let start_server = |dir: &Path, store: &[&str]| {
            let mut server = muster(&["server", "--listen", &listen], trace_log);
            server.args(store).args(flags).arg("--data-dir").arg(dir);
            Process::spawn_until_ready(&mut server).0
        };
        if store == TestStore::Sqlite {
            return Self::of_server(dir, start_server(dir, &[]));
        }
        let etcd = Etcd::start();
        // The first server creates the cluster in etcd, and the server token for the other servers.
        let mut cluster = Self::of_server(dir, start_server(dir, &etcd.flags()));
        if store == TestStore::EtcdBalanced {
            let token = dir.join("server-token");
            let dirs: Vec<PathBuf> =
                (2..=BALANCED_SERVERS).map(|it| dir.join(format!("server-{it}"))).collect();
            let proxies: Vec<_> =
                dirs.iter().map(|_| LateWatchProxy::start(etcd.address(), WATCH_DELAY)).collect();
            thread::scope(|scope| {
                let start = |(dir, proxy): (&'_ PathBuf, &'_ LateWatchProxy)| {
                    let (dir, url) = (dir.clone(), proxy.url());
                    let (token, start_server) = (&token, &start_server);
                    scope.spawn(move || start_server(&dir, &etcd::flags_with_token(&url, token)))
                };
                let starting: Vec<_> = dirs.iter().zip(&proxies).map(start).collect();
                cluster.servers.extend(starting.into_iter().map(|it| it.join().unwrap()));
            });
            let addresses = std::iter::once(dir).chain(dirs.iter().map(PathBuf::as_path));
            let addresses: Vec<SocketAddr> = addresses.map(server_address).collect();
            let balancer = Balancer::start(ip, &addresses, dir);
            replace_address(&cluster.kubeconfig(), addresses[0], balancer.address());
            cluster.balancer = Some(balancer);
            cluster.late_watches = proxies;
        }
        cluster.etcd = Some(etcd);
        cluster
    }

    fn of_server(dir: &Path, server: Process) -> Self {
        Self {
            dir: dir.to_owned(),
            others: Vec::new(),
            servers: vec![server],
            balancer: None,
            late_watches: Vec::new(),
            etcd: None,
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Returns a client of the administrator.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// Returns the process ID of the first server, or of `muster up`.
    pub(crate) fn server_pid(&self) -> u32 {
        self.servers[0].child.id()
    }

    /// Sends a signal, such as `-STOP`, to all servers.
    pub(crate) fn signal_servers(&self, name: &str) {
        self.servers.iter().for_each(|it| it.signal(name));
    }

    /// Stops all processes as Ctrl-C does. Each must exit with code 0, and must not have printed anything after it was
    /// ready.
    pub(crate) fn stop(mut self) {
        for process in self.others.drain(..).chain(self.servers.drain(..)) {
            process.signal("-INT");
            process.check_exit();
        }
    }

    /// Waits until there are `count` nodes, all of them Ready and without a taint, as `muster up` does.
    fn wait_until_nodes_are_ready(&self, count: usize) {
        let waiting = async {
            let (nodes, began) = (Api::<Node>::all(self.client().await), Instant::now());
            loop {
                let found = nodes.list(&ListParams::default()).await.unwrap().items;
                if found.len() == count && found.iter().all(is_ready) {
                    return;
                }
                let ready: Vec<_> = found.iter().filter(|it| is_ready(it)).map(|it| it.name_any()).collect();
                assert!(began.elapsed() < NODES_READY_TIMEOUT, "of {} nodes, Ready: {ready:?}", found.len());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        // The test may run in a runtime of its own, which must not block.
        thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(waiting);
            });
        });
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.others.clear();
        self.servers.clear();
        if !thread::panicking() {
            fs::remove_dir_all(&self.dir).unwrap();
        }
    }
}

/// Returns a command of the real binary, which writes its log as [`UpFlags::trace_log`] says.
fn muster(args: &[&str], trace_log: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args);
    if let Some(path) = trace_log {
        let log = File::options().create(true).append(true).open(path).unwrap();
        command.env("RUST_LOG", "trace").stderr(log);
    }
    command
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    is_ready && node.spec.as_ref().is_none_or(|it| it.taints.iter().flatten().next().is_none())
}

/// Reads the address of a server from the kubeconfig in its data directory.
fn server_address(dir: &Path) -> SocketAddr {
    let kubeconfig = fs::read_to_string(dir.join("kubeconfig")).unwrap();
    let url = kubeconfig.lines().find_map(|it| it.trim().strip_prefix("server: https://"));
    url.expect("a kubeconfig has the URL of a server").parse().unwrap()
}

/// Replaces the address of the server in a kubeconfig.
fn replace_address(kubeconfig: &Path, from: SocketAddr, to: SocketAddr) {
    let before = fs::read_to_string(kubeconfig).unwrap();
    let after = before.replace(&format!("https://{from}"), &format!("https://{to}"));
    assert_ne!(after, before);
    fs::write(kubeconfig, after).unwrap();
}

/// A process of a cluster, killed on drop.
struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdout }
    }

    /// Starts a process, and waits for its `ready:` line, which is returned.
    fn spawn_until_ready(command: &mut Command) -> (Self, String) {
        let mut process = Self::spawn(command);
        let mut line = String::new();
        process.stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{command:?} printed {line:?}");
        (process, line)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits until the process exits, which must be with code 0 and without further output.
    fn check_exit(mut self) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
