//! A node that is left alone: its server is away, its machine starts without one, its certificates run out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::expect;
use muster_agent::join::has_valid_certificate;
use muster_agent::local_node::LocalNode;
use muster_agent::runtime::{CriClient, Runtime as _, v1::ContainerState};
use serde_json::{Value, json};

use crate::bed::{IMAGE, daemon_set};
use crate::deaths::{kill, kill_in_cgroup};
use crate::join::{Running, agent, control, how_to_join, kubectl, machines, ready_nodes, serve, until};

/// How long certificates are good while they are looked at: the node renews them after 12 s.
const SHORT: [&str; 2] = ["--cluster-signing-duration", "30s"];

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_node_goes_on_alone() {
    let (mut running, machine, places) = machines("alone", 1);
    let place = &places[0];
    let dir = running.dir.clone();
    let server = serve(&mut running, &format!("{}:0", machine.address()), &[]);
    let controller = control(&mut running);
    let join = how_to_join(&dir);
    let at = join[1].strip_prefix("https://").unwrap().to_owned();
    let flags = Flags::of(&dir, place, &join);
    write_static_pod(place, "early");
    let agent = flags.start(&mut running, place);
    until(&running, "it is Ready", || ready_nodes(&dir) == r#""node-1""#);
    fs::write(dir.join("set.json"), daemon_set(&["sh", "-c", SCRIPT]).to_string()).unwrap();
    kubectl(&dir, &["apply", "-f", dir.join("set.json").to_str().unwrap()]);
    until(&running, "both run", || has(place, &["app 0", "early 0"]));
    until(&running, "both are known", || {
        let (_, phases) = kubectl(&dir, &["get", "pods", "-o", "jsonpath={.items[*].status.phase}"]);
        phases == "Running Running"
    });
    for at in [server, controller] {
        running.kill(at);
    }
    let agent = without_a_server(&mut running, place, &flags, agent);

    // The server is back, and is told all that was.
    let server = serve(&mut running, &at, &[]);
    let controller = control(&mut running);
    until(&running, "what was done meanwhile is known", || {
        let (_, pods) = kubectl(&dir, &["get", "pods", "-o", "json"]);
        let pods: Value = serde_json::from_str(&pods).unwrap_or_default();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let mut told: Vec<String> = pods.iter().map(told).collect();
        told.sort();
        told == ["app: Running, 2 restarts", "early: Running, 2 restarts", "late: Running, 2 restarts"]
    });

    // The node joins anew, and is given certificates for a short time.
    for at in [server, controller, agent] {
        running.kill(at);
    }
    let server = serve(&mut running, &at, &SHORT);
    control(&mut running);
    for name in ["client.pem", "serving.pem"] {
        fs::remove_file(place.agent_root().join("pki").join(name)).unwrap();
    }
    fs::write(&flags.token_file, &how_to_join(&dir)[3]).unwrap();
    let agent = flags.start(&mut running, place);
    certificates_are_renewed(&mut running, place, &flags, agent, &join[1]);
    a_certificate_runs_out(&mut running, place, &flags, server, &at);
}

/// The machine runs and starts without a server: what it was told runs on and is begun again, and so is what its files say.
fn without_a_server(running: &mut Running, place: &LocalNode, flags: &Flags, agent: usize) -> usize {
    kill_in_cgroup(&container(place, "app"));
    kill_in_cgroup(&container(place, "early"));
    write_static_pod(place, "late");
    until(running, "what ended is begun again, and what came runs", || {
        has(place, &["app 1", "early 1", "late 0"])
    });

    // Another agent begins nothing that runs.
    running.kill(agent);
    let before = ["app", "early"].map(|it| container(place, it));
    let agent = flags.start(running, place);
    kill_in_cgroup(&container(place, "late"));
    until(running, "the next agent is at work", || has(place, &["app 1", "early 1", "late 1"]));
    assert_eq!(["app", "early"].map(|it| container(place, it)), before, "they ran on");

    // The machine starts: nothing of what ran is left.
    running.kill(agent);
    for pid in place.containerd_pids().into_iter().chain(place.shim_pids()) {
        kill(pid.as_raw_nonzero().get().unsigned_abs());
    }
    kill_in_cgroup(&place.cgroup_parent());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    drop(runtime.block_on(place.start_containerd()).unwrap());
    let agent = flags.start(running, place);
    // Of the pod that only the server knows nothing can be done.
    until(running, "what the files say runs", || has(place, &["early 2", "late 2"]));
    agent
}

/// Both certificates are replaced while the node works, with nothing but the ones before.
fn certificates_are_renewed(
    running: &mut Running,
    place: &LocalNode,
    flags: &Flags,
    agent: usize,
    server: &str,
) {
    let dir = running.dir.clone();
    let kept = |name: &str| fs::read_to_string(place.agent_root().join("pki").join(name)).unwrap_or_default();
    until(running, "it joined again", || !kept("client.pem").is_empty() && !kept("serving.pem").is_empty());
    let before = (kept("client.pem"), kept("serving.pem"));
    fs::remove_file(&flags.token_file).unwrap();
    kubectl(&dir, &["delete", "secrets", "-n", "kube-system", "--all"]);
    until(running, "both were replaced", || {
        let now = (kept("client.pem"), kept("serving.pem"));
        now.0 != before.0 && now.1 != before.1
    });

    // Whoever still has the old one is let in until its end.
    let old = dir.join("old.pem");
    fs::write(&old, &before.0).unwrap();
    let mut ask = Command::new(crate::bed::newest_kubectl());
    ask.args(["--kubeconfig", "/dev/null", "--server", server, "get", "node", "node-1", "-o", "name"]);
    ask.arg("--certificate-authority").arg(dir.join("ca.crt"));
    ask.arg("--client-certificate").arg(&old).arg("--client-key").arg(&old);
    let output = ask.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "node/node-1\n");

    // It is as before for everybody: its lease, its watches, and whoever comes to it.
    let lease = || {
        let at = "jsonpath={.spec.renewTime}";
        kubectl(&dir, &["get", "lease", "-n", "kube-node-lease", "node-1", "-o", at]).1
    };
    let last = lease();
    until(running, "its lease is renewed", || lease() != last);
    kubectl(&dir, &["delete", "pod", "-l", "app=app", "--wait=false"]);
    until(running, "it is told of a pod that goes and one that comes", || {
        kubectl(&dir, &["rollout", "status", "ds/app", "--timeout=5s"]).0
    });
    until(running, "it serves logs", || kubectl(&dir, &["logs", "ds/app"]).1 == "it runs\n");
    let columns = "custom-columns=W:.spec.username,S:.spec.signerName,M:.status.conditions[*].message";
    let (_, asked) = kubectl(&dir, &["get", "csr", "--no-headers", "-o", columns]);
    let mut asked: Vec<String> = asked
        .lines()
        .map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "))
        .map(|it| if it.starts_with("system:bootstrap:") { it.replacen(&it[17..23], "TOKEN", 1) } else { it })
        .collect();
    asked.sort();
    asked.dedup();
    // A token gets no certificate for a node that is Ready, so the node had to wait until it was not.
    let count = asked.len();
    asked.retain(|it| !it.contains("a Ready node"));
    assert_eq!(count - asked.len(), 1, "requests of a Ready node are denied");
    expect![[r#"
        system:bootstrap:TOKEN kubernetes.io/kube-apiserver-client-kubelet Auto approving kubelet client certificate after SubjectAccessReview.
        system:node:node-1 kubernetes.io/kube-apiserver-client-kubelet Auto approving self kubelet client certificate after SubjectAccessReview.
        system:node:node-1 kubernetes.io/kubelet-serving Auto approving kubelet serving certificate: it names only the node and its addresses."#]].assert_eq(&asked.join("\n"));
    let log = running.log();
    assert!(
        !log.contains("cannot renew the client certificate")
            && !log.contains("cannot get a serving certificate"),
        "{log}"
    );

    // One that was killed while it wrote has what it had.
    running.kill(agent);
    fs::write(place.agent_root().join("pki").join("client.pem.new"), "-----BEGIN CERT").unwrap();
    flags.start(running, place);
    let last = lease();
    until(running, "its lease is renewed", || lease() != last);
}

/// A node whose server was away for too long says what it needs, and takes it when it is there.
fn a_certificate_runs_out(running: &mut Running, place: &LocalNode, flags: &Flags, server: usize, at: &str) {
    let dir = running.dir.clone();
    running.kill(server);
    let pki = place.agent_root().join("pki");
    until(running, "its certificate is not good any more", || !has_valid_certificate(&pki));
    serve(running, at, &[]);
    let wanted =
        "client.pem has no valid certificate any more: give a --token, which `muster token create` creates";
    until(running, "it says what it needs", || running.log().contains(wanted));

    fs::write(&flags.token_file, &how_to_join(&dir)[3]).unwrap();
    until(running, "it joined by itself", || has_valid_certificate(&pki));
    until(running, "it is Ready", || ready_nodes(&dir) == r#""node-1""#);
    assert!(has(place, &["app 0", "early 2", "late 2"]), "{:?}", containers(place));
}

/// What its agent is told.
struct Flags {
    join: Vec<String>,
    token_file: std::path::PathBuf,
}

impl Flags {
    fn of(dir: &Path, place: &LocalNode, join: &[String]) -> Self {
        let token_file = dir.join("token");
        fs::write(&token_file, &join[3]).unwrap();
        let text = |it: &Path| it.to_str().unwrap().to_owned();
        let mut flags = vec![join[0].clone(), join[1].clone(), "--token-file".to_owned(), text(&token_file)];
        flags.extend([
            join[4].clone(),
            join[5].clone(),
            "--static-pods".to_owned(),
            text(&place.static_pod_dir()),
        ]);
        Self { join: flags, token_file }
    }

    fn start(&self, running: &mut Running, place: &LocalNode) -> usize {
        let join: Vec<&str> = self.join.iter().map(String::as_str).collect();
        running.spawn(agent(place, &join).stdout(Stdio::null()))
    }
}

const SCRIPT: &str = "trap 'exit 0' TERM; echo it runs; while :; do sleep 1; done";

fn write_static_pod(place: &LocalNode, name: &str) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": name, "image": IMAGE, "command": ["sh", "-c", SCRIPT]}],
        },
    });
    fs::write(place.static_pod_dir().join(format!("{name}.yaml")), pod.to_string()).unwrap();
}

/// Those that run, as the runtime has them: name, how often each was begun again, and which it is.
fn containers(place: &LocalNode) -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listed = runtime
        .block_on(async { CriClient::connect_lazy(&place.containerd_socket()).list_containers(None).await });
    let running = ContainerState::ContainerRunning as i32;
    let mut all: Vec<_> = listed
        .unwrap_or_default()
        .into_iter()
        .filter(|it| it.state == running)
        .filter_map(|it| it.metadata.map(|named| (format!("{} {}", named.name, named.attempt), it.id)))
        .collect();
    all.sort();
    all
}

fn has(place: &LocalNode, wanted: &[&str]) -> bool {
    containers(place).iter().map(|it| it.0.as_str()).eq(wanted.iter().copied())
}

#[track_caller]
fn container(place: &LocalNode, name: &str) -> String {
    let all = containers(place);
    let found = all.iter().find(|it| it.0.split(' ').next() == Some(name));
    found.unwrap_or_else(|| panic!("{name} is not in {all:?}")).1.clone()
}

/// A pod as the server knows it.
fn told(pod: &Value) -> String {
    let status = &pod["status"];
    let name = pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default();
    let phase = status["phase"].as_str().unwrap_or_default();
    format!("{name}: {phase}, {} restarts", status["containerStatuses"][0]["restartCount"])
}
