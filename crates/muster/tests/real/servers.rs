//! Real nodes with several API servers: `muster up --servers 3 --nodes 2`. While a DaemonSet is rolled out again and
//! again, servers and members of etcd are killed, stopped and cut off. kubectl reaches into pods through every server.
//!
//! Variable: MUSTER_TEST_ETCD (another program than the `etcd` on PATH).

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use muster_agent::local_node::{self, LocalNode};
use muster_agent::runtime::{CriClient, Runtime as _, label};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::bed::{Cluster, IMAGE, PATIENCE, find_pids, items};
use crate::deaths::{self, Seen, compare, kill};
use crate::rollout_judge::{JudgedSet, complete_manifest, retry, version_patch};

/// The processes of the cluster, by the names of their data directories.
const PROCESSES: [&str; 6] = ["server-1", "etcd-1", "server-2", "etcd-2", "server-3", "etcd-3"];

const NODES: u16 = 2;

/// The DaemonSet that is rolled out again and again.
const SET: JudgedSet =
    JudgedSet { name: "app", nodes: NODES as usize, min_ready: SignedDuration::from_secs(5) };

/// Time from the restart of a process until the next one is killed. Of three members of etcd, one may be gone.
const KILL_PAUSE: Duration = Duration::from_secs(3);

/// Duration of the stop of a server.
const STOP_HOLD: Duration = Duration::from_secs(30);

/// Duration of the cut between a server and the nodes, or between a server and etcd.
const CUT_HOLD: Duration = Duration::from_secs(15);

/// Duration of the loss of the quorum. It is longer than the time after which a node without heartbeats is Unknown.
const QUORUM_HOLD: Duration = Duration::from_secs(60);

/// Time from the end of the last rollout until its pods and all others are compared once more.
const AFTER_ROLLOUTS: Duration = Duration::from_secs(20);

/// Ports of a member of etcd, for clients and for the other members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// The manifest of a DaemonSet that writes its version to its log and serves the version on port 80.
fn daemon_set(name: &str) -> Value {
    let mut set: Value = deaths::set(name, "1", &json!({})).parse().unwrap();
    let command = "echo version $VERSION; mkdir /www; echo serves $VERSION > /www/index.html; exec httpd -f -p 80 -h /www";
    set["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", command]);
    set
}

/// A pod on a node, without a controller.
fn bare_pod(node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("bare-{node}"), "namespace": "default", "labels": {"app": "bare"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}],
        },
    })
}

/// The PID of the process with this data directory. `None` if it does not run.
fn find_pid(cluster: &Cluster, name: &str) -> Option<u32> {
    find_pids(&format!("--data-dir={}", cluster.dir.join(name).display())).first().copied()
}

#[track_caller]
fn pid(cluster: &Cluster, name: &str) -> u32 {
    find_pid(cluster, name).unwrap_or_else(|| panic!("{name} does not run"))
}

/// The address on which a process listens, from this flag of it.
fn listen_address(pid: u32, flag: &str) -> SocketAddrV4 {
    let line = String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).unwrap()).unwrap();
    let value = line.split('\0').skip_while(|it| *it != flag).nth(1).expect("the process has this flag");
    value.trim_start_matches("http://").parse().unwrap()
}

/// Pods that no fault of the control plane may touch: the pods of a DaemonSet and pods without a controller, by node, as
/// the API server has them, and their containers as the runtimes of the nodes have them.
#[derive(Debug, PartialEq, Eq)]
struct Untouched {
    pods: [BTreeMap<String, Seen>; 2],
    containers: BTreeSet<String>,
}

impl Untouched {
    /// Returns the pods as soon as all of them are Ready.
    fn find(cluster: &Cluster, nodes: &[LocalNode]) -> Self {
        let pods = ["stays", "bare"]
            .map(|it| cluster.pods_when(&format!("the pods of {it} run"), it, nodes.len(), |_| true));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let containers = nodes.iter().flat_map(|node| {
            let client = CriClient::connect_lazy;
            let listed = async { client(&node.containerd_socket()).list_containers(None).await };
            let describe = |it: &muster_agent::runtime::v1::Container| {
                let attempt = it.metadata.as_ref().map_or(0, |it| it.attempt);
                format!("{} {} {attempt} {} {}", node.name, it.labels[label::POD_NAME], it.id, it.state)
            };
            let is_untouched = |it: &&muster_agent::runtime::v1::Container| {
                !it.labels[label::POD_NAME].starts_with(&format!("{}-", SET.name))
            };
            let listed = runtime.block_on(listed).unwrap();
            listed.iter().filter(is_untouched).map(describe).collect::<Vec<_>>()
        });
        Self { pods, containers: containers.collect() }
    }
}

/// Rollouts of [`SET`], one after the other, each judged in every state, in a thread of their own.
struct Rollouts {
    thread: thread::JoinHandle<u32>,
    is_over: Arc<AtomicBool>,
    /// Number of nodes that have a pod of the newest version.
    updated: watch::Receiver<usize>,
}

impl Rollouts {
    /// Starts the rollout of version 2, and after it the next.
    fn start(cluster: &Cluster) -> Self {
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let (is_over, (sender, updated)) = (Arc::new(AtomicBool::new(false)), watch::channel(0));
        let is_last = is_over.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let options = KubeConfigOptions::default();
                let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
                roll_repeatedly(&Client::try_from(config).unwrap(), &sender, &is_last).await
            })
        });
        Self { thread, is_over, updated }
    }

    /// Waits until the next or the current rollout has replaced the pod of one node, and not of the other one.
    fn wait_for_middle(&self, cluster: &Cluster) {
        cluster.wait("a rollout is in its middle", || {
            assert!(!self.thread.is_finished(), "the judge of the rollouts has panicked");
            (*self.updated.borrow() == 1).then_some(())
        });
    }

    /// Waits until the current rollout has ended. Returns its version.
    fn finish(self, cluster: &Cluster) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        cluster.wait("the last rollout ends", || self.thread.is_finished().then_some(()));
        self.thread.join().expect("the judge of the rollouts has not panicked")
    }
}

/// Rolls [`SET`] out from version 1 to the next version and so on, until `is_over`. Returns the last version.
async fn roll_repeatedly(client: &Client, updated: &watch::Sender<usize>, is_over: &AtomicBool) -> u32 {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "default");
    let mut pods = SET.list_pods(client, PATIENCE).await;
    let mut version = 1;
    loop {
        version += 1;
        updated.send_replace(0);
        let mut patch = version_patch(&version.to_string());
        let environment = json!([{"name": "VERSION", "value": version.to_string()}]);
        patch["spec"]["template"]["spec"] = json!({"containers": [{"name": "app", "env": environment}]});
        let patch = Patch::Strategic(patch);
        retry(PATIENCE, "roll the DaemonSet", async || {
            sets.patch(SET.name, &PatchParams::default(), &patch).await
        })
        .await;
        let began = Instant::now();
        pods = SET.judge_rollout(client, pods, &version.to_string(), updated).await;
        println!("  version {version} was rolled out in {:.0} s", began.elapsed().as_secs_f64());
        if is_over.load(Ordering::Relaxed) {
            return version;
        }
    }
}

/// A function that makes a fault and repairs it, given the cluster and its nodes.
type Fault = fn(&Cluster, &[LocalNode]);

/// Kills one process after the other, and waits until each runs again.
fn kill_all(cluster: &Cluster, _: &[LocalNode]) {
    for name in PROCESSES {
        let pid = pid(cluster, name);
        kill(pid);
        cluster.wait(&format!("{name} runs again"), || find_pid(cluster, name).filter(|it| *it != pid));
        thread::sleep(KILL_PAUSE);
    }
}

/// A stopped process, which is continued on drop.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.0.to_string()]).status();
    }
}

fn stop_a_server(cluster: &Cluster, _: &[LocalNode]) {
    let stopped = Stopped::new(pid(cluster, "server-1"));
    thread::sleep(STOP_HOLD);
    drop(stopped);
}

/// Packets that this machine drops, without an answer to their sender. A shell removes the rules when this value is
/// dropped, and also when the test is killed.
struct DroppedPackets {
    table: String,
    shell: Child,
}

impl DroppedPackets {
    /// Drops packets that arrive at a process of this machine or leave one, and match one of these expressions of nft.
    fn new(matches: &[String]) -> Self {
        let table = format!("muster-test-{}", std::process::id());
        let script = format!("trap '' HUP INT TERM; cat; nft delete table ip {table}");
        let shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let dropped = Self { table, shell };
        let table = &dropped.table;
        run_nft(&format!(
            "add table ip {table}\n\
             add chain ip {table} arriving {{ type filter hook input priority 0; }}\n\
             add chain ip {table} leaving {{ type filter hook output priority 0; }}\n"
        ));
        dropped.add(matches);
        dropped
    }

    fn add(&self, matches: &[String]) {
        let rule =
            |chain: &str, it: &String| format!("add rule ip {} {chain} {it} counter drop\n", self.table);
        let rules: String =
            matches.iter().flat_map(|it| [rule("arriving", it), rule("leaving", it)]).collect();
        run_nft(&rules);
    }

    /// Passes all packets on again. Panics if no packet was dropped.
    fn end(self) {
        let output = Command::new("nft").args(["list", "table", "ip", &self.table]).output().unwrap();
        let rules = String::from_utf8(output.stdout).unwrap();
        let counts = rules.lines().filter_map(|it| it.split_once("counter packets ")?.1.split(' ').next());
        let dropped: u64 = counts.map(|it| it.parse::<u64>().unwrap()).sum();
        assert!(0 < dropped, "no packet was dropped:\n{rules}");
    }
}

impl Drop for DroppedPackets {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn run_nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "nft:\n{rules}");
}

/// Established TCP connections of this machine with this port on either side: the own address, the address of the other
/// side, and the process.
fn connections(port: u16) -> Vec<(SocketAddrV4, SocketAddrV4, String)> {
    let port = format!(":{port}");
    let filter = ["(", "sport", "=", &port, "or", "dport", "=", &port, ")"];
    let output =
        Command::new("ss").args(["-H", "-4", "-t", "-n", "-p", "state", "established"]).args(filter).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let connection = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let (own, peer) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((own, peer, words.next().unwrap_or_default().to_owned()))
    };
    output.lines().filter_map(connection).collect()
}

fn list<T: ToString>(elements: impl IntoIterator<Item = T>) -> String {
    let elements: Vec<String> = elements.into_iter().map(|it| it.to_string()).collect();
    format!("{{ {} }}", elements.join(", "))
}

/// No packet passes between the nodes and a server to which the first node is connected.
fn cut_a_server_from_the_nodes(cluster: &Cluster, nodes: &[LocalNode]) {
    let servers = ["server-1", "server-2", "server-3"].map(|it| listen_address(pid(cluster, it), "--listen"));
    let server = cluster.wait("an agent is connected to a server", || {
        let is_connected = |server: &&SocketAddrV4| {
            let is_with = |it: &(SocketAddrV4, SocketAddrV4, String)| {
                it.0 == **server && *it.1.ip() == nodes[0].address()
            };
            connections(server.port()).iter().any(is_with)
        };
        servers.iter().find(is_connected).copied()
    });
    let (address, port) = (server.ip(), server.port());
    let nodes = list(nodes.iter().map(LocalNode::address));
    let dropped = DroppedPackets::new(&[
        format!("ip saddr {nodes} ip daddr {address} tcp dport {port}"),
        format!("ip daddr {nodes} ip saddr {address} tcp sport {port}"),
    ]);
    thread::sleep(CUT_HOLD);
    dropped.end();
}

/// The addresses of the members of etcd.
fn member_addresses(cluster: &Cluster) -> [Ipv4Addr; 3] {
    ["etcd-1", "etcd-2", "etcd-3"].map(|it| *listen_address(pid(cluster, it), "--listen-client-urls").ip())
}

/// No packet passes between one server and etcd. The other servers keep their connections to etcd.
fn cut_a_server_from_etcd(cluster: &Cluster, _: &[LocalNode]) {
    let pid = pid(cluster, "server-1");
    let members = list(member_addresses(cluster));
    // Servers have the same source address. So nobody can open a connection, and those of one server are cut.
    let opens = format!("ip daddr {members} tcp dport {CLIENT_PORT} tcp flags & (syn | ack) == syn");
    let dropped = DroppedPackets::new(&[opens]);
    let process = format!("pid={pid},");
    let is_own =
        |it: &(SocketAddrV4, SocketAddrV4, String)| it.1.port() == CLIENT_PORT && it.2.contains(&process);
    let own: Vec<u16> =
        connections(CLIENT_PORT).iter().filter(|it| is_own(it)).map(|it| it.0.port()).collect();
    assert!(!own.is_empty(), "server-1 is not connected to etcd");
    let ports = list(own);
    dropped.add(&[
        format!("ip daddr {members} tcp dport {CLIENT_PORT} tcp sport {ports}"),
        format!("ip saddr {members} tcp sport {CLIENT_PORT} tcp dport {ports}"),
    ]);
    let began = Instant::now();
    let is_ready = |server: &str| {
        let url = format!("--server=https://{}", listen_address(self::pid(cluster, server), "--listen"));
        cluster.try_kubectl(&[&url, "get", "--raw", "/readyz", "--request-timeout=5s"]).0
    };
    cluster.wait("the server is not ready", || (!is_ready("server-1")).then_some(()));
    assert!(is_ready("server-2") && is_ready("server-3"), "another server is cut off, too");
    thread::sleep(CUT_HOLD.saturating_sub(began.elapsed()));
    dropped.end();
}

/// No packet passes between two members of etcd and anybody else.
fn cut_two_members(cluster: &Cluster, _: &[LocalNode]) {
    let members = list(&member_addresses(cluster)[1..]);
    let ports = list([CLIENT_PORT, PEER_PORT]);
    let began = Instant::now();
    let dropped = DroppedPackets::new(&[
        format!("ip daddr {members} tcp dport {ports}"),
        format!("ip saddr {members} tcp sport {ports}"),
    ]);
    let write = |value: &str| {
        let annotation = format!("test={value}");
        cluster.try_kubectl(&["annotate", "--overwrite", "namespace", "default", &annotation]).0
    };
    cluster.wait("writes fail", || (!write("refused")).then_some(()));
    thread::sleep(QUORUM_HOLD.saturating_sub(began.elapsed()));
    assert!(!write("refused"), "a write was made without a quorum");
    dropped.end();
    cluster.wait("writes succeed", || write("done").then_some(()));
}

/// The URLs of the servers themselves, from the Leases of the servers.
fn server_urls(cluster: &Cluster) -> BTreeSet<String> {
    let leases = items(&cluster.get(&["leases", "-n", "kube-system"]));
    let endpoint =
        |it: &Value| it["metadata"]["annotations"]["muster.dev/server-endpoint"].as_str().map(str::to_owned);
    leases.iter().filter_map(endpoint).map(|it| format!("https://{it}")).collect()
}

/// What a pod serves on port 80, through `kubectl port-forward` with a server.
fn forwarded(cluster: &Cluster, server: &str, pod: &str) -> String {
    let mut command = cluster.kubectl_command(&[server, "port-forward", pod, ":80"]);
    let mut client = command.stdout(Stdio::piped()).spawn().unwrap();
    // kubectl ends if it cannot write a line about each connection.
    let mut stdout = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let port = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|it| it.split(' ').next());
    let port: u16 = port.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    response.lines().last().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "needs real nodes and etcd in network namespaces: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox, etcd"]
fn rollouts_continue_when_servers_and_members_fail() {
    let started = Instant::now();
    // Debian's etcd is older than the supported versions.
    let cluster = Cluster::up_with("servers", NODES, &["--servers", "3", "--etcd-any-version"]);
    let nodes: Vec<LocalNode> = (1..=NODES).map(|it| cluster.node(it)).collect();
    cluster.apply(&daemon_set("stays").to_string());
    for node in &nodes {
        cluster.apply(&bare_pod(&node.name).to_string());
    }
    let mut app = daemon_set(SET.name);
    complete_manifest(&mut app, &SET, "1");
    cluster.apply(&app.to_string());
    cluster.pods_when("the set runs", SET.name, nodes.len(), |_| true);
    let untouched = Untouched::find(&cluster, &nodes);
    // The rollouts begin with available pods.
    thread::sleep(SET.min_ready.unsigned_abs());

    let rollouts = Rollouts::start(&cluster);
    let faults: [(&str, Fault); 5] = [
        ("SIGKILL of all processes", kill_all),
        ("SIGSTOP of a server", stop_a_server),
        ("a server cut from the nodes", cut_a_server_from_the_nodes),
        ("a server cut from etcd", cut_a_server_from_etcd),
        ("two members cut off", cut_two_members),
    ];
    for (what, fault) in faults {
        rollouts.wait_for_middle(&cluster);
        println!("{what}, {:.0} s after the start", started.elapsed().as_secs_f64());
        fault(&cluster, &nodes);
        assert_eq!(Untouched::find(&cluster, &nodes), untouched, "after {what}");
        println!("  repaired {:.0} s after the start", started.elapsed().as_secs_f64());
    }
    let version = rollouts.finish(&cluster);
    let is_any = |_: &BTreeMap<String, Seen>| true;
    let ended = Instant::now();
    let after = cluster.pods_when("the last rollout has ended", SET.name, nodes.len(), is_any);
    let pods = items(&cluster.get(&["pods", "-l", "app=app"]));
    let revisions: BTreeSet<_> =
        pods.iter().map(|it| it["metadata"]["labels"]["controller-revision-hash"].to_string()).collect();
    assert_eq!(revisions.len(), 1, "{revisions:?}");

    let urls = server_urls(&cluster);
    assert_eq!(urls.len(), 3, "{urls:?}");
    for url in urls {
        let server = format!("--server={url}");
        for pod in &pods {
            let pod = pod["metadata"]["name"].as_str().unwrap();
            assert_eq!(cluster.kubectl(&[&server, "logs", pod]), format!("version {version}\n"));
            let served = format!("serves {version}");
            assert_eq!(
                cluster.kubectl(&[&server, "exec", pod, "--", "cat", "/www/index.html"]),
                format!("{served}\n")
            );
            assert_eq!(forwarded(&cluster, &server, pod), served, "port-forward through {url}");
        }
    }

    // Long enough for whatever acts on a wrong state after the rollout.
    thread::sleep(AFTER_ROLLOUTS.saturating_sub(ended.elapsed()));
    assert_eq!(Untouched::find(&cluster, &nodes), untouched, "after the last rollout");
    let rolled = cluster.pods_when("the set runs", SET.name, nodes.len(), is_any);
    let same = "the same pod, the same container, 0 restarts more";
    assert_eq!(compare(&after, &rolled), format!("node-1: {same}\nnode-2: {same}"));
}

#[test]
#[ignore = "needs real nodes and etcd in network namespaces: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox, etcd"]
fn containers_stay_when_a_standby_process_continues_in_place_of_muster_up() {
    let mut cluster = Cluster::up_with("takeover", NODES, &["--servers", "3", "--etcd-any-version"]);
    cluster.apply(&daemon_set("app").to_string());
    let before = cluster.pods_when("the set runs", "app", NODES.into(), |_| true);
    let standby = || find_pids(&format!("--standby-for={}", cluster.dir.display()));
    let [first] = standby()[..] else { panic!("another number of standby processes: {:?}", standby()) };
    let agents = || (1..=NODES).map(|it| cluster.node(it).agent_pids()).collect::<Vec<_>>();
    let first_agents = agents();
    let processes = || PROCESSES.map(|it| find_pid(&cluster, it));
    let first_processes = processes();
    // The process is a zombie until the bed waits for it.
    kill(fs::read_to_string(cluster.dir.join("lock")).unwrap().trim().parse().unwrap());
    cluster.wait("the agents are started again", || {
        let now = agents();
        now.iter().zip(&first_agents).all(|(now, first)| !now.is_empty() && now != first).then_some(())
    });
    cluster.wait("there is another standby process", || (standby().len() == 2).then_some(()));
    let stayed = cluster.pods_when("the set runs", "app", NODES.into(), |_| true);
    let same = "the same pod, the same container, 0 restarts more";
    assert_eq!(compare(&before, &stayed), format!("node-1: {same}\nnode-2: {same}"));
    assert_eq!(processes(), first_processes, "the servers and the members of etcd are the same processes");

    // The agents, the DaemonSet controller and the servers work.
    let pod =
        items(&cluster.get(&["pods", "-l", "app=app"]))[0]["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.kubectl(&["delete", "pod", &pod]);
    let replaced = |now: &BTreeMap<String, Seen>| {
        now.iter().filter(|(node, it)| it.uid != before[*node].uid).count() == 1
    };
    cluster.pods_when("the pod is replaced", "app", NODES.into(), replaced);

    // SIGTERM stops the cluster as Ctrl-C would have.
    assert!(Command::new("kill").arg(first.to_string()).status().unwrap().success());
    cluster.wait("all processes end", || {
        (standby().is_empty() && processes().iter().all(Option::is_none)).then_some(())
    });
    cluster.kill();
    let left = local_node::find_leftovers(&cluster.dir).unwrap();
    assert_eq!(left.0, Vec::<String>::new(), "it is left after an orderly stop");
}
