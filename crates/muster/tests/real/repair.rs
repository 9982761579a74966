//! What others take away from a node's network, or claim of it, and what a removed data directory leaves.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use muster_agent::local_node::{self, LocalNode};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Cluster, IMAGE, archive, daemon_set, is_ready, items, muster};

/// Runs it in the node's network namespace. What it prints, on both outputs.
fn inside(place: &LocalNode, words: &[&str]) -> String {
    let mut command = Command::new("nsenter");
    let output = command.arg(format!("--net={}", place.netns_path().display())).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Stops the node's agent (SIGSTOP) for the duration of `break_network`, so that no repair comes before its checks.
fn while_stopped(place: &LocalNode, break_network: impl FnOnce()) {
    let pids = place.agent_pids();
    assert!(!pids.is_empty(), "an agent runs");
    pids.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
    break_network();
    pids.iter().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
}

/// Pods that serve their own name, and the Service that leads to them.
fn server(namespace: &str, name: &str, external: &Value) -> String {
    let labels = json!({"app": name});
    let serve = format!("mkdir /www; echo {name} > /www/index.html; exec httpd -f -p 80 -h /www");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {
            "terminationGracePeriodSeconds": 1,
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", serve]}],
        }},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": {
            "selector": labels, "ports": [{"port": 80}], "externalIPs": external,
        }},
    ]});
    list.to_string()
}

fn renewed(cluster: &Cluster) -> String {
    let lease = cluster.get(&["lease", "node-1", "-n", "kube-node-lease"]);
    lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_service_neither_cuts_a_node_off_nor_takes_the_traffic_of_another() {
    let flags = ["--allow-external-ips", "198.51.100.0/24,10.0.0.0/8"];
    let cluster = Cluster::up_with("capture", 1, &flags);
    let place = cluster.node(1);
    cluster.kubectl(&["create", "namespace", "team"]);
    cluster.kubectl(&["create", "namespace", "zeta"]);
    cluster.apply(&server("zeta", "db", &json!([])));
    let pod_is_ready =
        |namespace: &str, name: &str| is_ready(&cluster.get(&["pod", name, "-n", namespace])).then_some(());
    cluster.wait("db is ready", || pod_is_ready("zeta", "db"));
    let db = cluster.get(&["service", "db", "-n", "zeta"])["spec"]["clusterIP"].as_str().unwrap().to_owned();

    let (is_taken, said) = cluster.try_apply(&server("team", "x", &json!(["203.0.113.7"])));
    assert!(!is_taken && said.contains("--allow-external-ips"), "{said}");

    // The API server's address as nodes see it, and the cluster IP of another namespace's Service.
    let kubeconfig = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let port =
        kubeconfig.lines().find_map(|it| it.trim().strip_prefix("server: ")?.rsplit_once(':')).unwrap().1;
    let api = cluster.address().to_string();
    let cut_off = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "cut-off", "namespace": "team"},
        "spec": {"ports": [{"port": port.parse::<u16>().unwrap()}], "externalIPs": [api]},
    });
    cluster.apply(&cut_off.to_string());
    cluster.apply(&server("team", "a-evil", &json!([db, "198.51.100.7"])));
    cluster.wait("the other Service is programmed", || {
        inside(&place, &["nft", "list", "map", "ip", "muster", "services"])
            .contains("198.51.100.7")
            .then_some(())
    });
    cluster.wait("the other pod is ready", || pod_is_ready("team", "a-evil"));
    let before = renewed(&cluster);
    cluster.wait("the node is heard of", || (before < renewed(&cluster)).then_some(()));
    let refused = inside(&place, &["nft", "list", "set", "ip", "muster", "refused"]);
    assert!(!refused.contains(&api), "{refused}");
    let ask = format!("for i in 1 2 3 4 5; do timeout 5 wget -q -O - http://{db}; done");
    let (_, answers) = cluster.try_kubectl(&["exec", "-n", "zeta", "db", "--", "sh", "-c", &ask]);
    assert_eq!(answers.split_whitespace().collect::<Vec<_>>(), ["db"; 5], "{answers}");

    // Rules that cut the node off, as an earlier version could leave them: the next agent repairs them.
    let reject = format!(
        "flush chain ip muster filter-output\n\
         add element ip muster refused {{ {api} . tcp . {port} }}\n\
         add rule ip muster filter-output meta l4proto tcp ip daddr . meta l4proto . th dport @refused reject with tcp reset\n"
    );
    fs::write(cluster.dir.join("reject.nft"), reject).unwrap();
    let said = inside(&place, &["nft", "-f", cluster.dir.join("reject.nft").to_str().unwrap()]);
    assert_eq!(said, "");
    thread::sleep(Duration::from_secs(12));
    let before = renewed(&cluster);
    thread::sleep(Duration::from_secs(12));
    assert_eq!(before, renewed(&cluster), "the node is cut off");
    for pid in place.agent_pids() {
        let pid = pid.as_raw_nonzero().to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    }
    cluster.wait("the next agent is heard of", || (before < renewed(&cluster)).then_some(()));
    cluster.wait("the rules are as they should be", || {
        let chain = inside(&place, &["nft", "list", "chain", "ip", "muster", "filter-output"]);
        (chain.contains("@api-server accept") && chain.contains("ct state new")).then_some(())
    });
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn routes_of_a_node_are_put_back() {
    let cluster = Cluster::up("routes", 2);
    let place = cluster.node(1);
    let other = cluster.node(2).address().to_string();
    let routes = || inside(&place, &["ip", "route", "show", "proto", "77"]);
    let names = || inside(&place, &["ip", "addr", "show", "dev", "lo"]).contains("10.96.0.10/32");
    let gateway = || inside(&place, &["ip", "route", "show", "default"]).contains("via");
    cluster.wait("there is a route", || (routes().contains(&other) && names()).then_some(()));

    while_stopped(&place, || {
        inside(&place, &["ip", "route", "flush", "proto", "77"]);
        assert!(!routes().contains(&other));
    });
    cluster.wait("the flushed route is back", || routes().contains(&other).then_some(()));

    while_stopped(&place, || {
        inside(&place, &["ip", "addr", "del", "10.96.0.10/32", "dev", "lo"]);
        assert!(!names());
    });
    cluster.wait("the address for names is back", || names().then_some(()));

    // The agent runs while the link is down: its first repairs fail.
    let defaults = inside(
        &place,
        &["sh", "-c", "ip link set eth0 down; ip route show default; sleep 3; ip link set eth0 up"],
    );
    assert_eq!(defaults, "", "the default route went with the link");
    cluster
        .wait("the routes are back with the link", || (routes().contains(&other) && gateway()).then_some(()));

    let table = || inside(&place, &["nft", "list", "table", "ip", "muster"]).contains("cluster-ips");
    let forwards = || inside(&place, &["cat", "/proc/sys/net/ipv4/ip_forward"]).trim() == "1";
    assert!(table() && forwards());
    while_stopped(&place, || {
        inside(&place, &["nft", "delete", "table", "ip", "muster"]);
        inside(&place, &["sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"]);
        assert!(!table() && !forwards());
    });
    cluster.wait("the nft table and IP forwarding are back", || (table() && forwards()).then_some(()));
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn what_a_removed_data_directory_left_is_cleared() {
    let mut cluster = Cluster::up("removed", 1);
    let dir = cluster.dir.clone();
    let remove = |cluster: &mut Cluster| {
        cluster.apply(&daemon_set(&["sleep", "3600"]).to_string());
        cluster.ready_pods("app=app", 1);
        cluster.kill();
        // Mount points in it stay, as with everybody who does this.
        let _ = Command::new("rm").arg("-rf").arg(&dir).stderr(Stdio::null()).status().unwrap();
        assert!(!dir.join("lock").exists());
        assert!(!local_node::find_leftovers(&dir).unwrap().0.is_empty(), "something is left");
    };
    remove(&mut cluster);
    let output = muster(&["down", "--data-dir"]).arg(&dir).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("removed: network namespace"), "{said}");
    assert_eq!(local_node::find_leftovers(&dir).unwrap().0, Vec::<String>::new());

    // The same, and `muster up` comes first.
    let begin = |cluster: &mut Cluster| {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("images")).unwrap();
        fs::copy(archive(), dir.join("images").join("busybox.tar")).unwrap();
        cluster.start();
    };
    begin(&mut cluster);
    remove(&mut cluster);
    begin(&mut cluster);
    let said = fs::read_to_string(dir.join("up.log")).unwrap();
    assert!(said.contains("removed a leftover of an earlier cluster in"), "{said}");
    assert_eq!(items(&cluster.get(&["pods", "-A"])).len(), 0);
    cluster.apply(&daemon_set(&["sleep", "3600"]).to_string());
    cluster.ready_pods("app=app", 1);
}
