//! Real nodes with several API servers: `muster up --servers 3 --nodes 2`. Servers and members of etcd are killed during
//! a rollout, and kubectl reaches into pods through every server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bed::{Cluster, items};
use crate::deaths::{self, Seen, compare, kill};

/// The processes of the cluster, by the names of their data directories.
const PROCESSES: [&str; 6] = ["server-1", "etcd-1", "server-2", "etcd-2", "server-3", "etcd-3"];

const NODES: usize = 2;

/// `minReadySeconds` of the DaemonSet that is rolled. All processes are killed before the second node has its turn.
const MIN_READY_S: u64 = 40;

/// Time from the restart of a process until the next one is killed. Of three members of etcd, one may be gone.
const KILL_PAUSE: Duration = Duration::from_secs(3);

/// A DaemonSet that writes its version to its log and serves it on port 80.
fn set(name: &str, version: &str, min_ready_s: u64) -> String {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    let mut set: Value = deaths::set(name, version, &strategy).parse().unwrap();
    set["spec"]["minReadySeconds"] = json!(min_ready_s);
    let command = "echo version $VERSION; mkdir /www; echo serves $VERSION > /www/index.html; exec httpd -f -p 80 -h /www";
    set["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", command]);
    set.to_string()
}

/// The PID of the process with this data directory. `None` if it does not run.
fn find_pid(cluster: &Cluster, name: &str) -> Option<u32> {
    let argument = format!("--data-dir={}", cluster.dir.join(name).display()).into_bytes();
    fs::read_dir("/proc").unwrap().flatten().find_map(|it| {
        let pid = it.file_name().to_str()?.parse::<u32>().ok()?;
        let line = fs::read(it.path().join("cmdline")).ok()?;
        line.split(|it| *it == 0).any(|it| it == argument).then_some(pid)
    })
}

/// Kills one process after the other, and waits until each runs again. Returns when each was killed.
fn kill_all(cluster: &Cluster) -> Vec<Timestamp> {
    let mut killed_at = Vec::new();
    for name in PROCESSES {
        let pid = find_pid(cluster, name).unwrap_or_else(|| panic!("{name} does not run"));
        kill(pid);
        killed_at.push(Timestamp::now());
        cluster.wait(&format!("{name} runs again"), || find_pid(cluster, name).filter(|it| *it != pid));
        thread::sleep(KILL_PAUSE);
    }
    killed_at
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
fn a_rollout_goes_on_when_servers_and_members_are_killed() {
    // Debian's etcd is older than the supported versions.
    let cluster = Cluster::up_with("servers", 2, &["--servers", "3", "--etcd-any-version"]);
    cluster.apply(&set("stays", "1", 0));
    cluster.apply(&set("app", "1", MIN_READY_S));
    let stays = cluster.pods_when("the first set runs", "stays", NODES, |_| true);
    let before = cluster.pods_when("the second set runs", "app", NODES, |_| true);
    // The rollout begins with available pods.
    thread::sleep(Duration::from_secs(MIN_READY_S));

    cluster.apply(&set("app", "2", MIN_READY_S));
    let old = before.clone();
    cluster.wait("the first node has a new pod", || {
        let pods = items(&cluster.get(&["pods", "-l", "app=app"]));
        pods.iter().any(|it| !old.values().any(|old| it["metadata"]["uid"] == old.uid.as_str())).then_some(())
    });
    let killed_at = kill_all(&cluster);
    let is_new = |now: &BTreeMap<String, Seen>| now.iter().all(|(node, it)| it.uid != before[node].uid);
    let after = cluster.pods_when("the rollout ends", "app", NODES, is_new);
    let pods = items(&cluster.get(&["pods", "-l", "app=app"]));
    let created = pods.iter().map(|it| it["metadata"]["creationTimestamp"].as_str().unwrap());
    let last_created: Timestamp = created.max().unwrap().parse().unwrap();
    for (name, at) in PROCESSES.iter().zip(&killed_at) {
        assert!(*at < last_created, "{name} was killed at {at}, the last pod was created at {last_created}");
    }
    let version = |it: &Value| it["spec"]["containers"][0]["env"][0]["value"].clone();
    assert_eq!(pods.iter().map(version).collect::<Vec<_>>(), ["2"; NODES], "{after:?}");
    let revisions: BTreeSet<_> =
        pods.iter().map(|it| it["metadata"]["labels"]["controller-revision-hash"].to_string()).collect();
    assert_eq!(revisions.len(), 1, "{revisions:?}");

    // Long enough for whatever acts on a wrong state after the rollout.
    thread::sleep(Duration::from_secs(20));
    let stayed = cluster.pods_when("the first set runs", "stays", NODES, |_| true);
    let same = "the same pod, the same container, 0 restarts more";
    assert_eq!(compare(&stays, &stayed), format!("node-1: {same}\nnode-2: {same}"));
    let rolled = cluster.pods_when("the second set runs", "app", NODES, |_| true);
    assert_eq!(compare(&after, &rolled), format!("node-1: {same}\nnode-2: {same}"));

    let urls = server_urls(&cluster);
    assert_eq!(urls.len(), 3, "{urls:?}");
    for url in urls {
        let server = format!("--server={url}");
        for pod in &pods {
            let pod = pod["metadata"]["name"].as_str().unwrap();
            assert_eq!(cluster.kubectl(&[&server, "logs", pod]), "version 2\n");
            assert_eq!(
                cluster.kubectl(&[&server, "exec", pod, "--", "cat", "/www/index.html"]),
                "serves 2\n"
            );
            assert_eq!(forwarded(&cluster, &server, pod), "serves 2", "port-forward through {url}");
        }
    }
}
