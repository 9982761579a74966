//! Whatever dies comes back, and a DaemonSet holds: one pod on each node, the same containers where they lived on.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Cluster, IMAGE, PATIENCE, is_ready, items, wait_for};

/// A DaemonSet that waits, and ends when it is told to.
pub(crate) fn set(name: &str, version: &str, strategy: &Value) -> String {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "app",
                        "image": IMAGE,
                        "imagePullPolicy": "Never",
                        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do echo tick; sleep 1; done"],
                        "env": [{"name": "VERSION", "value": version}],
                    }],
                },
            },
        },
    })
    .to_string()
}

/// What is known of the pod on a node, to be compared with later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    container: String,
    restarts: i64,
}

fn seen(pod: &Value) -> (String, Seen) {
    let status = &pod["status"]["containerStatuses"][0];
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let seen = Seen {
        uid: text(&pod["metadata"]["uid"]),
        container: text(&status["containerID"]),
        restarts: status["restartCount"].as_i64().unwrap_or(-1),
    };
    (text(&pod["spec"]["nodeName"]), seen)
}

impl Cluster {
    /// The pods of the set, by node, as soon as each node has one that is ready, and they are as wanted.
    #[track_caller]
    pub(crate) fn pods_when(
        &self,
        what: &str,
        name: &str,
        count: usize,
        wanted: impl Fn(&BTreeMap<String, Seen>) -> bool,
    ) -> BTreeMap<String, Seen> {
        let selector = format!("app={name}");
        self.wait(what, || {
            let pods = items(&self.get(&["pods", "-l", &selector]));
            let by_node: BTreeMap<String, Seen> = pods.iter().map(seen).collect();
            let is_whole = pods.len() == count && by_node.len() == count && pods.iter().all(is_ready);
            (is_whole && wanted(&by_node)).then_some(by_node)
        })
    }
}

/// What became of each node's pod.
pub(crate) fn compare(before: &BTreeMap<String, Seen>, after: &BTreeMap<String, Seen>) -> String {
    let told = after.iter().map(|(node, now)| {
        let was = &before[node];
        let pod = if was.uid == now.uid { "the same pod" } else { "another pod" };
        let container =
            if was.container == now.container { "the same container" } else { "another container" };
        format!("{node}: {pod}, {container}, {} restarts more", now.restarts - was.restarts)
    });
    told.collect::<Vec<_>>().join("\n")
}

/// Kills whatever has these in its group's name.
pub(crate) fn kill_in_cgroup(part: &str) {
    let mut killed = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse::<u32>().ok()) else { continue };
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if groups.contains(part) {
            kill(pid);
            killed += 1;
        }
    }
    assert!(0 < killed, "nothing runs in {part}");
}

/// One that is gone already went with another that was killed.
pub(crate) fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status().unwrap();
    assert!(
        killed.success() || !Path::new(&format!("/proc/{pid}")).exists(),
        "process {pid} cannot be killed"
    );
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn killed_processes_and_containers_are_restarted() {
    let mut cluster = Cluster::up("deaths", 2);
    cluster.apply(&set("app", "1", &json!({})));
    let mut last = cluster.pods_when("the set runs", "app", 2, |_| true);
    let place = cluster.node(1);
    let mut told = String::new();
    let mut tell = |what: &str, last: &mut BTreeMap<String, Seen>, now: BTreeMap<String, Seen>| {
        told += &format!("{what}\n{}\n", compare(last, &now));
        *last = now;
    };
    let is_another = |before: &BTreeMap<String, Seen>| {
        let was = before["node-1"].container.clone();
        move |now: &BTreeMap<String, Seen>| now["node-1"].container != was
    };

    let id = last["node-1"].container.trim_start_matches("containerd://").to_owned();
    kill_in_cgroup(&id);
    let now = cluster.pods_when("a container is killed", "app", 2, is_another(&last));
    tell("a container is killed", &mut last, now);

    for pid in place.shim_pids() {
        kill(pid.as_raw_nonzero().get().unsigned_abs());
    }
    let now = cluster.pods_when("a shim is killed", "app", 2, is_another(&last));
    tell("its shim is killed", &mut last, now);

    let before = place.containerd_pids();
    kill(before[0].as_raw_nonzero().get().unsigned_abs());
    cluster.wait("containerd is back", || {
        let now = place.containerd_pids();
        (!now.is_empty() && now != before).then_some(())
    });
    // It runs pods again.
    cluster.apply(&set("later", "1", &json!({})));
    cluster.ready_pods("app=later", 2);
    let now = cluster.pods_when("containerd is killed", "app", 2, |_| true);
    tell("its containerd is killed", &mut last, now);

    let pod = pod_on(&cluster, "node-1");
    let held = Held::all(&cluster, &pod);
    let before = place.agent_pids();
    kill(before[0].as_raw_nonzero().get().unsigned_abs());
    let mut ends: Vec<String> = held.into_iter().map(Held::end).collect();
    cluster.wait("the agent is back", || {
        let now = place.agent_pids();
        (!now.is_empty() && now != before).then_some(())
    });
    // What was run for whoever is gone is gone, and others are served.
    cluster.wait("nothing is left of what ran", || {
        let said = cluster.try_kubectl(&["exec", &pod, "--", "sh", "-c", "pidof cat || echo none"]).1;
        (said == "none\n").then_some(())
    });
    large_files_are_copied(&cluster, &pod);
    cluster.apply(&set("last", "1", &json!({})));
    cluster.ready_pods("app=last", 2);
    let now = cluster.pods_when("the agent is killed", "app", 2, |_| true);
    tell("its agent is killed", &mut last, now);

    let held = Held::all(&cluster, &pod);
    cluster.kill();
    ends.extend(held.into_iter().map(Held::end));
    expect![[r#"
        exec: ends with 1
        attach: ends with 1
        logs -f: ends with 1
        port-forward: ends with 1
        exec: ends with 1
        attach: ends with 1
        logs -f: ends with 1
        port-forward: ends with 1"#]]
    .assert_eq(&ends.join("\n"));
    let alone: Vec<_> = place.containerd_pids();
    assert!(!alone.is_empty(), "containerd runs on");
    cluster.start();
    let now = cluster.pods_when("muster up is killed", "app", 2, |_| true);
    tell("muster up is killed, and started again", &mut last, now);

    // And one after which nothing runs on.
    cluster.stop();
    cluster.start();
    let now = cluster.pods_when("muster up is stopped", "app", 2, is_another(&last));
    tell("muster up is stopped, and started again", &mut last, now);
    expect![[r#"
        a container is killed
        node-1: the same pod, another container, 1 restarts more
        node-2: the same pod, the same container, 0 restarts more
        its shim is killed
        node-1: the same pod, another container, 1 restarts more
        node-2: the same pod, the same container, 0 restarts more
        its containerd is killed
        node-1: the same pod, the same container, 0 restarts more
        node-2: the same pod, the same container, 0 restarts more
        its agent is killed
        node-1: the same pod, the same container, 0 restarts more
        node-2: the same pod, the same container, 0 restarts more
        muster up is killed, and started again
        node-1: the same pod, the same container, 0 restarts more
        node-2: the same pod, the same container, 0 restarts more
        muster up is stopped, and started again
        node-1: the same pod, another container, 1 restarts more
        node-2: the same pod, another container, 1 restarts more
    "#]]
    .assert_eq(&told);
}

fn pod_on(cluster: &Cluster, node: &str) -> String {
    let on_node = format!("spec.nodeName={node}");
    let pods = items(&cluster.get(&["pods", "-l", "app=app", "--field-selector", &on_node]));
    pods[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// A client that holds on to a pod.
struct Held {
    what: &'static str,
    client: Child,
    /// Held open, as by somebody who has not said all yet.
    _stdin: Option<ChildStdin>,
}

impl Held {
    /// All ways to hold on to one, each of which has heard something.
    fn all(cluster: &Cluster, pod: &str) -> Vec<Self> {
        let ways: [(&str, &[&str]); 4] = [
            ("exec", &["exec", "-i", pod, "--", "cat"]),
            ("attach", &["attach", pod]),
            ("logs -f", &["logs", "-f", pod]),
            ("port-forward", &["port-forward", pod, ":80"]),
        ];
        let hold = |(what, args): (&'static str, &[&str])| {
            let mut command = cluster.kubectl_command(args);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut client = command.spawn().unwrap();
            let mut stdin = client.stdin.take();
            if what == "exec" {
                stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
            }
            let mut stdout = BufReader::new(client.stdout.take().unwrap());
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "{what} hears nothing");
            thread::spawn(move || drop(std::io::copy(&mut stdout, &mut std::io::sink())));
            Self { what, client, _stdin: stdin }
        };
        ways.map(hold).into()
    }

    /// How it ends by itself.
    fn end(self) -> String {
        let code = wait_for(self.client, PATIENCE);
        format!("{}: {}", self.what, code.map_or("it hangs".to_owned(), |it| format!("ends with {it}")))
    }
}

/// What goes into a container and comes out of it again is the same.
fn large_files_are_copied(cluster: &Cluster, pod: &str) {
    let (sent, back) = (cluster.dir.join("sent"), cluster.dir.join("back"));
    let mut content = Vec::new();
    fs::File::open("/dev/urandom").unwrap().take(50 << 20).read_to_end(&mut content).unwrap();
    fs::write(&sent, &content).unwrap();
    let inside = format!("{pod}:/tmp/file");
    cluster.kubectl(&["cp", sent.to_str().unwrap(), &inside]);
    cluster.kubectl(&["cp", &inside, back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == content, "it came back otherwise");
    for file in [sent, back] {
        fs::remove_file(file).unwrap();
    }
}

/// Whether a node is Ready, as kubectl shows it.
fn ready(cluster: &Cluster, node: &str) -> String {
    let node = cluster.get(&["node", node]);
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|it| it["type"] == "Ready");
    ready.map_or(String::new(), |it| it["status"].as_str().unwrap_or_default().to_owned())
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_node_that_is_cut_off_comes_back_with_the_same_pod() {
    let cluster = Cluster::up_with("cut-off", 2, &["--node-monitor-grace-period", "15s"]);
    cluster.apply(&set("app", "1", &json!({})));
    let before = cluster.pods_when("the set runs", "app", 2, |_| true);
    let link = cluster.node(2).link_name();
    let set_link = |to: &str| {
        assert!(Command::new("ip").args(["link", "set", &link, to]).status().unwrap().success());
    };
    set_link("down");
    cluster.wait("the node is lost", || (ready(&cluster, "node-2") == "Unknown").then_some(()));
    // A minute in which nobody may think of a second pod.
    for _ in 0..60 {
        thread::sleep(Duration::from_secs(1));
        let pods = items(&cluster.get(&["pods", "-l", "app=app"]));
        assert_eq!(pods.len(), 2, "{pods:?}");
    }
    set_link("up");
    cluster.wait("the node is back", || (ready(&cluster, "node-2") == "True").then_some(()));
    let after = cluster.pods_when("the set runs", "app", 2, |_| true);
    expect![[r#"
        node-1: the same pod, the same container, 0 restarts more
        node-2: the same pod, the same container, 0 restarts more"#]]
    .assert_eq(&compare(&before, &after));
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn real_pods_roll_and_move() {
    let cluster = Cluster::up("moves", 2);
    cluster.apply(&set("app", "1", &json!({})));
    let first = cluster.pods_when("the set runs", "app", 2, |_| true);
    let all_differ = |before: &BTreeMap<String, Seen>| {
        let before = before.clone();
        move |now: &BTreeMap<String, Seen>| {
            now.iter().all(|(node, it)| before.get(node).is_none_or(|was| was.uid != it.uid))
        }
    };

    // Rolled out one by one: never are both gone at once.
    let roll = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    cluster.apply(&set("app", "2", &roll));
    let second = cluster.pods_when("the second version runs", "app", 2, all_differ(&first));

    // With a surge the new one runs before the old one goes.
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster.apply(&set("app", "3", &surge));
    let third = cluster.pods_when("the third version runs", "app", 2, all_differ(&second));

    // A drain leaves daemons alone, and sends the others off.
    let bare = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": "default"},
        "spec": {
            "nodeName": "node-2",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}],
        },
    });
    cluster.apply(&bare.to_string());
    cluster.wait("the bare pod runs", || is_ready(&cluster.get(&["pod", "bare"])).then_some(()));
    cluster.kubectl(&["drain", "node-2", "--ignore-daemonsets", "--force", "--timeout=120s"]);
    assert!(cluster.get(&["pod", "bare"]).is_null(), "it was sent off");
    cluster.kubectl(&["uncordon", "node-2"]);
    let drained = cluster.pods_when("the daemon stays", "app", 2, |_| true);
    assert_eq!(drained, third);

    // A node that is removed comes back under the same name when its agent is started again, with a new pod.
    cluster.kubectl(&["delete", "node", "node-2"]);
    cluster.wait("its pod is gone", || {
        (items(&cluster.get(&["pods", "-l", "app=app"])).len() == 1).then_some(())
    });
    kill(cluster.node(2).agent_pids()[0].as_raw_nonzero().get().unsigned_abs());
    let was = third["node-2"].uid.clone();
    let again = cluster.pods_when("the node is back", "app", 2, move |now| now["node-2"].uid != was);
    assert_eq!(again["node-1"], third["node-1"]);
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_node_has_thirty_pods() {
    let cluster = Cluster::up("thirty", 1);
    let pods: Vec<String> = (1..=30)
        .map(|number| {
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": format!("p{number}"), "namespace": "default", "labels": {"app": "many"}},
                "spec": {
                    "nodeName": "node-1",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}],
                },
            })
            .to_string()
        })
        .collect();
    cluster.apply(&pods.join("\n---\n"));
    let pods = cluster.ready_pods("app=many", 30);
    let addresses: std::collections::BTreeSet<_> =
        pods.iter().map(|it| it["status"]["podIP"].to_string()).collect();
    assert_eq!(addresses.len(), 30, "each has an address of its own");
    let agent = cluster.node(1).agent_pids()[0].as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{agent}/status")).unwrap();
    let rss = status.lines().find(|it| it.starts_with("VmRSS")).unwrap_or_default();
    println!("the agent with 30 pods: {rss}");
    cluster.kubectl(&["delete", "pods", "-l", "app=many", "--timeout=180s"]);
}
