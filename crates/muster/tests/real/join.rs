//! Machines that join with a token: `muster server`, `muster controller`, and an agent in each of two network namespaces.

#![allow(clippy::print_stdout)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use muster_agent::image;
use muster_agent::local_node::{self, LocalCluster, LocalNode};
use muster_agent::runtime::{CriClient, Runtime as _};
use serde_json::Value;

use crate::bed::{PATIENCE, archive, check_prerequisites, daemon_set, muster, wait_for};

/// What runs for the test, which ends with it.
pub(crate) struct Running {
    pub(crate) dir: PathBuf,
    children: Vec<Child>,
}

impl Running {
    pub(crate) fn spawn(&mut self, command: &mut Command) -> usize {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).unwrap();
        self.children.push(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
        self.children.len() - 1
    }

    /// As by `kill -9`.
    pub(crate) fn kill(&mut self, at: usize) {
        self.children[at].kill().unwrap();
        self.children[at].wait().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            println!("{}", self.log());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let machines = machines_dir(&self.dir);
        let cleared = runtime.block_on(local_node::clean_up(&machines, Duration::ZERO));
        if !thread::panicking() {
            cleared.unwrap();
            assert_eq!(local_node::find_leftovers(&machines).unwrap().0, Vec::<String>::new(), "it is left");
            fs::remove_dir_all(&self.dir).unwrap();
        }
    }
}

pub(crate) fn agent(place: &LocalNode, join: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", place.netns_path().display()))
        .arg(env!("CARGO_BIN_EXE_muster"))
        .arg("agent");
    command.args(join).args(["--node-name", &place.name, "--cgroup-parent", &place.cgroup_parent()]);
    command.arg("--runtime-endpoint").arg(format!("unix://{}", place.containerd_socket().display()));
    command.arg("--root").arg(place.agent_root()).arg("--var-log").arg(place.var_log());
    command.arg("--cni-conf-dir").arg(place.cni_conf_dir());
    command
}

pub(crate) fn kubectl(dir: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(crate::bed::newest_kubectl());
    let output = command.arg("--kubeconfig").arg(dir.join("kubeconfig")).args(args).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[track_caller]
pub(crate) fn until(running: &Running, what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: not in time\n{}", running.log());
        thread::sleep(Duration::from_millis(200));
    }
}

/// The names of the nodes that are Ready.
pub(crate) fn ready_nodes(dir: &Path) -> String {
    let (_, text) = kubectl(dir, &["get", "nodes", "-o", "json"]);
    let nodes: Value = serde_json::from_str(&text).unwrap_or_default();
    let is_ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    let names: Vec<_> = nodes.iter().filter(is_ready).map(|it| it["metadata"]["name"].to_string()).collect();
    names.join(" ")
}

/// Machines with a containerd each and the image of busybox, and nothing else yet.
pub(crate) fn machines(name: &str, count: u16) -> (Running, LocalCluster, Vec<LocalNode>) {
    check_prerequisites();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("real-{name}"));
    if dir.exists() {
        let _ = muster(&["down", "--data-dir"]).arg(machines_dir(&dir)).output();
        fs::remove_dir_all(&dir).unwrap();
    }
    // As those that have been data directories before, for other files come first.
    for dir in [&dir, &machines_dir(&dir)] {
        fs::create_dir_all(dir.join("images")).unwrap();
    }
    let running = Running { dir: dir.clone(), children: Vec::new() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (machine, places) = runtime.block_on(async {
        let machine = LocalCluster::open_or_create(&machines_dir(&dir)).await.unwrap();
        let places: Vec<LocalNode> = (1..=count).map(|it| machine.node(it)).collect();
        for place in &places {
            place.create().await.unwrap();
            let containerd = place.start_containerd().await.unwrap();
            image::import_archive(&containerd.runtime, archive(), None).await.unwrap();
        }
        (machine, places)
    });
    (running, machine, places)
}

/// The directory of the machines, beside the data of the server that they join.
fn machines_dir(dir: &Path) -> PathBuf {
    dir.join("machines")
}

/// Starts `muster server`, and waits until it is ready.
pub(crate) fn serve(running: &mut Running, listen: &str, flags: &[&str]) -> usize {
    let mut server = muster(&["server", "--listen", listen, "--data-dir"]);
    server.arg(&running.dir).args(flags).stdout(Stdio::piped());
    let server = running.spawn(&mut server);
    let mut line = String::new();
    let stdout = running.children[server].stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready: "), "{line}\n{}", running.log());
    server
}

pub(crate) fn control(running: &mut Running) -> usize {
    let mut controller =
        muster(&["controller", "--leader-elect=false", "--metrics-addr", "127.0.0.1:0", "--kubeconfig"]);
    controller.arg(running.dir.join("kubeconfig")).stdout(Stdio::null());
    running.spawn(&mut controller)
}

/// What `muster token create` prints for a new machine, with the token itself: `--server URL --token TOKEN --ca-hash DIGEST`.
pub(crate) fn how_to_join(dir: &Path) -> Vec<String> {
    let output = muster(&["token", "create", "--data-dir"]).arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, join) = said.split_once("muster agent ").unwrap_or_else(|| panic!("{said}"));
    let join = join.lines().next().unwrap_or_default();
    let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let join = join.replace("--token-file muster-token", &format!("--token {token}"));
    join.split_whitespace().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_missing_sandbox_image_is_brought_along() {
    let (_running, _, places) = machines("pause", 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let containerd = CriClient::connect_lazy(&places[0].containerd_socket());
        let wanted = containerd.sandbox_image().await.unwrap().expect("containerd names its sandbox image");
        containerd.remove_image(&wanted).await.unwrap();
        assert!(containerd.image_status(&wanted).await.unwrap().is_none());
        assert_eq!(image::ensure_sandbox_image(&containerd).await.unwrap(), Some(wanted.clone()));
        let began = Instant::now();
        // containerd shows an image a moment after it was made.
        while containerd.image_status(&wanted).await.unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "{wanted} is not there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(image::ensure_sandbox_image(&containerd).await.unwrap(), None, "it is there");
    });
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn machines_join_with_a_token() {
    let (mut running, machine, places) = machines("join", 2);
    let dir = running.dir.clone();
    serve(&mut running, &format!("{}:0", machine.address()), &[]);
    control(&mut running);
    let join = how_to_join(&dir);
    let join: Vec<&str> = join.iter().map(String::as_str).collect();

    // Who gives another digest, or no good token, is told so, and has nothing.
    let refused = |join: &[&str]| {
        let output = agent(&places[0], join).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines().last().unwrap_or_default().to_owned()
    };
    let with = |flag: &str, value: &'static str| {
        let at = join.iter().position(|it| *it == flag).unwrap();
        let mut other = join.clone();
        other[at + 1] = value;
        other
    };
    let wrong = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let said = refused(&with("--ca-hash", wrong));
    assert!(said.contains("does not have the CA of --ca-hash"), "{said}");
    let said = refused(&with("--token", "aaaaaa.aaaaaaaaaaaaaaaa"));
    assert!(said.contains("the token is invalid or expired"), "{said}");
    let said = refused(&join[..2]);
    assert!(said.contains("give a --token") || said.contains("give --ca-hash"), "{said}");

    let ca = dir.join("ca.crt").display().to_string();
    let nowhere = ["--server", "https://127.0.0.1:1", "--token", "aaaaaa.aaaaaaaaaaaaaaaa", "--ca-cert", &ca];
    let said = refused(&nowhere);
    assert!(said.contains("reach the server at https://127.0.0.1:1"), "{said}");

    let mut agents = Vec::new();
    for place in &places {
        agents.push(running.spawn(agent(place, &join).stdout(Stdio::null())));
    }
    until(&running, "both are Ready", || ready_nodes(&dir) == r#""node-1" "node-2""#);

    // A machine that would take the name of one that is ready is told so, and has no certificate.
    let twin = dir.join("twin");
    let mut command = agent(&places[1], &join);
    let output = command.args(["--node-name", "node-1", "--root"]).arg(&twin).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(r#"node "node-1" already exists"#), "{said}");
    assert!(said.contains(&places[0].address().to_string()), "{said}");
    assert!(!twin.join("pki/client.pem").exists());

    let set = daemon_set(&["sleep", "3600"]);
    fs::write(dir.join("set.json"), set.to_string()).unwrap();
    kubectl(&dir, &["apply", "-f", dir.join("set.json").to_str().unwrap()]);
    let rolled = || kubectl(&dir, &["rollout", "status", "ds/app", "--timeout=5s"]).0;
    until(&running, "the set runs on both", rolled);

    // Once it has joined, it needs no token; and whoever else has the token's name cannot be it.
    let (_, before) = kubectl(&dir, &["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
    for at in agents {
        running.kill(at);
    }
    kubectl(&dir, &["delete", "secrets", "-n", "kube-system", "--all"]);
    for place in &places {
        running.spawn(agent(place, &join[..2]).stdout(Stdio::null()));
    }
    until(&running, "both are Ready again", || ready_nodes(&dir) == r#""node-1" "node-2""#);
    let (_, after) = kubectl(&dir, &["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
    assert_eq!(before, after);

    // Each ends when it is asked, and leaves its containers alone.
    while 2 < running.children.len() {
        let agent = running.children.pop().unwrap();
        Command::new("kill").arg(agent.id().to_string()).status().unwrap();
        let code = wait_for(agent, PATIENCE);
        assert!(matches!(code, Some(0) | None), "{code:?}");
    }
    assert!(places.iter().all(|it| !it.shim_pids().is_empty()), "the containers run on");
}
