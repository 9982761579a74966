//! A node keeps its containers when the API server is no longer that of the cluster which the node joined.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::bed::{daemon_set, muster};
use crate::join::{agent, control, how_to_join, kubectl, machines, ready_nodes, serve, until};

/// Much longer than a node takes to remove containers of pods that the API server does not know.
const LONG_ENOUGH: Duration = Duration::from_secs(25);

/// The files of a data directory without its database: another cluster with the same certificates.
fn copy_certificates(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".crt") || name.ends_with(".key") || name.ends_with(".pub") {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_new_server_at_the_same_address_removes_no_container() {
    let (mut running, machine, places) = machines("cluster", 1);
    let (dir, place) = (running.dir.clone(), &places[0]);
    let server = serve(&mut running, &format!("{}:0", machine.address()), &[]);
    control(&mut running);
    let join = how_to_join(&dir);
    let join: Vec<&str> = join.iter().map(String::as_str).collect();
    let first = running.spawn(agent(place, &join).stdout(Stdio::null()));
    until(&running, "the node is Ready", || ready_nodes(&dir) == r#""node-1""#);
    fs::write(dir.join("set.json"), daemon_set(&["sleep", "3600"]).to_string()).unwrap();
    kubectl(&dir, &["apply", "-f", dir.join("set.json").to_str().unwrap()]);
    let rolled = || kubectl(&dir, &["rollout", "status", "ds/app", "--timeout=5s"]).0;
    until(&running, "the set runs", rolled);
    let shims = place.shim_pids();
    assert!(!shims.is_empty());

    // The server is replaced by one with an empty database, the agent that runs sees it come back.
    running.kill(server);
    let address = join[1].strip_prefix("https://").unwrap();
    let other = dir.join("other");
    copy_certificates(&dir, &other);
    // Certificates without a database are otherwise taken for a cluster whose database is lost.
    let mut command = muster(&["server", "--new-cluster", "--listen", address, "--data-dir"]);
    let replaced = running.spawn(command.arg(&other).stdout(Stdio::null()));
    let condition = || {
        let path = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].message}"#;
        kubectl(&other, &["get", "nodes", "-o", path]).1
    };
    until(&running, "the agent notices", || running.log().contains("this node joined cluster"));
    thread::sleep(LONG_ENOUGH);
    assert_eq!(place.shim_pids(), shims, "the running agent kept the containers");

    // The same for an agent that starts now, which knows of no pod.
    running.kill(first);
    running.spawn(agent(place, &join[..2]).stdout(Stdio::null()));
    until(&running, "the node says why it is not ready", || condition().contains("this node joined cluster"));
    assert!(condition().contains("containers are kept"), "{}", condition());
    thread::sleep(LONG_ENOUGH);
    assert_eq!(place.shim_pids(), shims, "the restarted agent kept the containers");

    // The first cluster is back: the node goes on with the same containers, and no agent was restarted for it.
    running.kill(replaced);
    serve(&mut running, address, &[]);
    until(&running, "the node is Ready again", || ready_nodes(&dir) == r#""node-1""#);
    until(&running, "the set runs", rolled);
    assert_eq!(place.shim_pids(), shims, "the same containers");

    // And pods that are deleted there go.
    kubectl(&dir, &["delete", "ds/app"]);
    until(&running, "the containers are removed", || place.shim_pids().is_empty());
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn an_emptied_database_removes_no_container() {
    let mut cluster = crate::bed::Cluster::up("emptied", 1);
    cluster.apply(&daemon_set(&["sleep", "3600"]).to_string());
    cluster.ready_pods("app=app", 1);
    let shims = cluster.node(1).shim_pids();
    assert!(!shims.is_empty());
    cluster.kill();
    for name in ["muster.db", "muster.db-wal", "muster.db-shm"] {
        let path = cluster.dir.join(name);
        if path.exists() {
            fs::rename(&path, cluster.dir.join(format!("{name}.kept"))).unwrap();
        }
    }
    fs::write(cluster.dir.join("muster.db"), "").unwrap();
    // Whether the server refuses to start or starts empty: the node keeps what it runs.
    let mut up = muster(&["up", "--nodes", "1", "--listen", "127.0.0.1:0", "--data-dir"]);
    let log = fs::File::create(cluster.dir.join("emptied.log")).unwrap();
    let mut up = up.arg(&cluster.dir).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    thread::sleep(LONG_ENOUGH);
    let _ = up.kill();
    let _ = up.wait();
    assert_eq!(cluster.node(1).shim_pids(), shims, "the containers run on");
    for name in ["muster.db", "muster.db-wal", "muster.db-shm"] {
        let _ = fs::remove_file(cluster.dir.join(name));
        let kept = cluster.dir.join(format!("{name}.kept"));
        if kept.exists() {
            fs::rename(kept, cluster.dir.join(name)).unwrap();
        }
    }
    cluster.start();
    cluster.ready_pods("app=app", 1);
    assert_eq!(cluster.node(1).shim_pids(), shims, "the same containers, with the database back");
}
