//! A node agent with several API servers, which end, hang or are cut off one after the other. The agent runs without a
//! container runtime, and in a network namespace of its own, because it changes routes and nftables rules.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;

use super::etcd::{FAILOVER_TIMEOUT, write_token};
use super::*;
use crate::cluster::etcd::Etcd;

/// Set in the process of the test that runs in a network namespace of its own.
const IN_NAMESPACE: &str = "MUSTER_TEST_IN_NETWORK_NAMESPACE";

/// Addresses of the two servers, and of the node.
const FIRST: &str = "10.9.0.1:6443";
const SECOND: &str = "10.9.0.2:6443";
const NODE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);

/// Maximum time until an agent that was just started renews the Lease of its node. It renews it every 10 s.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The process `muster agent`, killed on drop.
struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    fn start(dir: &Path, flags: &[&str]) -> Self {
        let log = dir.join("agent.log");
        let output = fs::File::options().create(true).append(true).open(&log).unwrap();
        let path = |name: &str| dir.join(name).display().to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args([
                "agent",
                "--node-name",
                "n1",
                "--cluster-dns",
                "none",
                "--cgroup-parent",
                "/muster-failover",
            ])
            .args(["--node-ip", &NODE.to_string(), "--root", &path("agent"), "--var-log", &path("log")])
            .args(["--cni-conf-dir", &path("cni"), "--runtime-endpoint", &path("no-runtime.sock")])
            .args(flags)
            .env("RUST_LOG", "muster_agent=info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs etcd in network namespaces: root, etcd, ip, nft"]
fn an_agent_connects_to_another_server_when_its_server_fails() {
    if std::env::var_os(IN_NAMESPACE).is_none() {
        let mut test = Command::new("unshare");
        test.arg("--net").arg(std::env::current_exe().unwrap()).args(["--nocapture", "--ignored", "--exact"]);
        test.arg("agent_failover::an_agent_connects_to_another_server_when_its_server_fails");
        let output = test.env(IN_NAMESPACE, "1").stderr(Stdio::inherit()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        println!("{stdout}");
        // The process also succeeds if no test has this name.
        assert!(output.status.success() && stdout.contains("1 passed"), "the test in a namespace fails");
        return;
    }
    let ip = |arguments: &[&str]| assert!(Command::new("ip").args(arguments).status().unwrap().success());
    ip(&["link", "set", "lo", "up"]);
    for address in ["10.9.0.1/32", "10.9.0.2/32", "10.9.0.3/32"] {
        ip(&["address", "add", address, "dev", "lo"]);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(check_failover());
}

async fn check_failover() {
    let etcd = Etcd::start();
    let dir = fresh_dir("agent-failover");
    let token = write_token(&dir);
    let start = |name: &str, address: &str| {
        let flags = [&etcd.flags_with_token(&token)[..], &["--listen", address]].concat();
        Server::start_with(&dir.join(name), &flags)
    };
    let (first, second) = (start("first", FIRST), start("second", SECOND));
    let created = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["token", "create", "--data-dir"])
        .arg(dir.join("first"))
        .output();
    let bootstrap_token = String::from_utf8(created.unwrap().stdout).unwrap();
    let ca = dir.join("first/ca.crt").display().to_string();
    let join = ["--token", bootstrap_token.trim(), "--ca-cert", &ca];
    // Nothing listens at the first URL.
    let [servers, another] = [format!("https://10.9.0.1:1,https://{FIRST}"), format!("https://{SECOND}")];
    let flags = [&["--server", &servers, "--server", &another], &join[..]].concat();
    let agent = Agent::start(&dir, &flags);
    wait_for_heartbeat("the start of the agent", &first, &agent, START_TIMEOUT).await;

    drop(first);
    wait_for_heartbeat("SIGKILL", &second, &agent, FAILOVER_TIMEOUT).await;
    let first = start("first", FIRST);
    second.stop();
    wait_for_heartbeat("SIGTERM", &first, &agent, FAILOVER_TIMEOUT).await;
    assert!(agent.log().contains("connected to another API server"), "{}", agent.log());

    // The connections stay open. The server accepts new ones, because the kernel does, and never answers.
    let second = start("second", SECOND);
    signal(&first, "-STOP");
    wait_for_heartbeat("SIGSTOP", &second, &agent, FAILOVER_TIMEOUT).await;
    check_node_is_known(&second).await;
    signal(&first, "-CONT");
    wait_until_ready(&first).await;
    // Only the agent is cut off from the server: the server reaches etcd at another address.
    nft(&format!(
        "add table inet fault
         add chain inet fault output {{ type filter hook output priority 0; }}
         add rule inet fault output ip daddr {} drop
         add rule inet fault output ip saddr {} drop",
        host(SECOND),
        host(SECOND)
    ));
    wait_for_heartbeat("a loss of all packets", &first, &agent, FAILOVER_TIMEOUT).await;
    check_node_is_known(&first).await;
    nft("delete table inet fault");
    drop(second);

    // The agent has learned the address of a server, and needs none of its flags after a restart.
    let stored = dir.join("agent/pki/servers");
    let began = Instant::now();
    while !fs::read_to_string(&stored).is_ok_and(|it| it.lines().any(|it| it == format!("https://{FIRST}"))) {
        let stored = fs::read_to_string(&stored);
        assert!(began.elapsed() < START_TIMEOUT, "{stored:?}\n{}", agent.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(agent);
    let agent = Agent::start(&dir, &["--server", "https://10.9.0.1:1"]);
    wait_for_heartbeat("a restart of the agent", &first, &agent, START_TIMEOUT).await;
    drop((agent, first));
    fs::remove_dir_all(&dir).unwrap();
}

/// Waits until the Lease of the node has a renewal time after the call of this function, as this server shows it. Fails
/// after `timeout`. `fault` is what happened right before the call.
async fn wait_for_heartbeat(fault: &str, server: &Server, agent: &Agent, timeout: Duration) {
    let (began, began_at) = (Instant::now(), Timestamp::now());
    let leases: Api<Lease> = Api::namespaced(server.client().await, "kube-node-lease");
    let renewed_at = async || leases.get_opt("n1").await.unwrap()?.spec?.renew_time;
    while renewed_at().await.is_none_or(|it| it.0 <= began_at) {
        assert!(
            began.elapsed() < timeout,
            "the agent does not renew its Lease after {fault}\n{}",
            agent.log()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("Lease renewed {:.1} s after {fault}", began.elapsed().as_secs_f64());
}

/// Fails if the node was lost, so that its condition `Ready` is `Unknown`. The condition is `False` while the node has no
/// container runtime.
async fn check_node_is_known(server: &Server) {
    let nodes: Api<Node> = Api::all(server.client().await);
    let node = nodes.get("n1").await.unwrap();
    let conditions = node.status.and_then(|it| it.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|it| it.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "False", "{ready:?}");
}

/// Waits until a server that was stopped has seen what was written meanwhile.
async fn wait_until_ready(server: &Server) {
    let client = server.client().await;
    let began = Instant::now();
    while let Err(error) = client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap()).await
    {
        assert!(began.elapsed() < FAILOVER_TIMEOUT, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Executes commands of nft in the network namespace of the test.
fn nft(commands: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{commands}");
}

/// Returns the host of an address with a port.
fn host(address: &str) -> &str {
    address.split_once(':').unwrap().0
}
