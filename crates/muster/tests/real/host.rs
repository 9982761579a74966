//! The node itself: what it says of itself, pods from files, logs and room, and how it ends.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

use crate::bed::{Cluster, IMAGE, is_ready, items};

const FLAGS: &[&str] = &[
    "--agent-flag=--housekeeping-interval=1s",
    "--agent-flag=--container-log-max-size=20000",
    "--agent-flag=--container-log-max-files=3",
    "--agent-flag=--eviction-hard=nodefs.available<30Mi",
    "--agent-flag=--eviction-pressure-transition-period=5s",
    "--agent-flag=--drain-on-stop",
];

#[test]
fn a_node_looks_after_itself() {
    let Some(mut cluster) = Cluster::up_with("host", 1, FLAGS) else { return };
    what_it_says_of_itself(&cluster);
    a_pod_from_a_file(&cluster);
    a_log_that_grows(&cluster);
    pods_end_with_their_node(&mut cluster);
    a_disk_that_is_full(&mut cluster);
}

fn what_it_says_of_itself(cluster: &Cluster) {
    let node = cluster.wait("the images are told of", || {
        let node = cluster.get(&["node", "node-1"]);
        is_set(&node["status"]["images"]).then_some(node)
    });
    let keys = |it: &Value| {
        let keys: Vec<&str> = it.as_object().unwrap().keys().map(String::as_str).collect();
        keys.join(" ")
    };
    let status = &node["status"];
    let list = |it: &Value, fields: &[&str]| {
        let line = |it: &Value| {
            let words: Vec<&str> = fields.iter().map(|key| it[key].as_str().unwrap_or_default()).collect();
            format!("  {}\n", words.join(" "))
        };
        it.as_array().unwrap().iter().map(line).collect::<String>()
    };
    let said = [
        format!("labels: {}\n", keys(&node["metadata"]["labels"])),
        format!("capacity: {}\n", keys(&status["capacity"])),
        format!("allocatable: {}\n", keys(&status["allocatable"])),
        format!("conditions:\n{}", list(&status["conditions"], &["type", "status", "reason", "message"])),
        format!("addresses:\n{}", list(&status["addresses"], &["type"])),
        format!("endpoint: {}\n", status["daemonEndpoints"]["kubeletEndpoint"]["Port"]),
        format!("info: {}\n", keys(&status["nodeInfo"])),
    ];
    expect![[r#"
        labels: beta.kubernetes.io/arch beta.kubernetes.io/os kubernetes.io/arch kubernetes.io/hostname kubernetes.io/os
        capacity: cpu ephemeral-storage hugepages-1Gi hugepages-2Mi memory pods
        allocatable: cpu ephemeral-storage hugepages-1Gi hugepages-2Mi memory pods
        conditions:
          MemoryPressure False KubeletHasSufficientMemory kubelet has sufficient memory available
          DiskPressure False KubeletHasNoDiskPressure kubelet has no disk pressure
          PIDPressure False KubeletHasSufficientPID kubelet has sufficient PID available
          Ready True KubeletReady kubelet is posting ready status
        addresses:
          InternalIP
          Hostname
        endpoint: 10250
        info: architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion machineID operatingSystem osImage systemUUID
    "#]]
    .assert_eq(&said.concat());
    let lease = cluster.get(&["lease", "-n", "kube-node-lease", "node-1"]);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    let renewed = lease["spec"]["renewTime"].clone();
    cluster.wait("the lease is renewed", || {
        let lease = cluster.get(&["lease", "-n", "kube-node-lease", "node-1"]);
        (is_set(&lease["spec"]["renewTime"]) && lease["spec"]["renewTime"] != renewed).then_some(())
    });
}

fn a_pod_from_a_file(cluster: &Cluster) {
    let file = cluster.place(1).static_pods().join("web.yaml");
    let write = |words: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  \
             - name: main\n    image: {IMAGE}\n    command: [sh, -c, 'echo {words}; sleep 100000']\n"
        );
        fs::write(&file, text).unwrap();
    };
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let look = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        cluster.wait(what, || {
            let pod = cluster.get(&["pod", "web-node-1"]);
            (is_ready(&pod) && is_it(&pod)).then_some(pod)
        })
    };
    write("one");
    let first = look("the pod of the file runs", &|_| true);
    assert_eq!(cluster.kubectl(&["logs", "web-node-1"]), "one\n");

    // What was deleted only stood for it. It is back so soon that kubectl would wait for ever to see it gone.
    cluster.kubectl(&["delete", "pod", "web-node-1", "--wait=false"]);
    let second = look("it is shown again", &|it| it["metadata"]["uid"] != first["metadata"]["uid"]);
    assert_eq!(container(&second), container(&first));

    write("two");
    look("the file as it is now runs", &|it| container(it) != container(&first));
    assert_eq!(cluster.kubectl(&["logs", "web-node-1"]), "two\n");

    fs::remove_file(&file).unwrap();
    cluster.wait("nothing is shown of it", || items(&cluster.get(&["pods", "-A"])).is_empty().then_some(()));
}

fn a_log_that_grows(cluster: &Cluster) {
    pod(
        cluster,
        "talker",
        "while true; do echo words that fill a log, one after the other; usleep 2000; done",
        "",
    );
    let talker = cluster.wait("the pod runs", || {
        let pod = cluster.get(&["pod", "talker"]);
        is_ready(&pod).then_some(pod)
    });
    let uid = talker["metadata"]["uid"].as_str().unwrap();
    let dir = cluster.place(1).var_log().join("pods").join(format!("default_talker_{uid}")).join("main");
    cluster.wait("old logs are compressed, and no more than three are kept", || {
        let names: Vec<String> = names(&dir);
        let is_packed = names.iter().filter(|it| it.ends_with(".gz")).count() == 1;
        (is_packed && names.len() == 3 && names.contains(&"0.log".to_owned())).then_some(())
    });
    cluster.kubectl(&["delete", "pod", "talker"]);
    cluster.wait("its logs go with it", || (!dir.exists()).then_some(()));
    assert_eq!(names(&cluster.place(1).var_log().join("containers")), Vec::<String>::new());
}

fn pods_end_with_their_node(cluster: &mut Cluster) {
    pod(cluster, "plain", "sleep 100000", "");
    cluster.wait("the pod runs", || is_ready(&cluster.get(&["pod", "plain"])).then_some(()));
    cluster.stop();
    // Its own disk is small from now on, and it joins anew.
    let root = cluster.dir.join("nodes").join("node-1").join("agent");
    fs::remove_dir_all(&root).unwrap();
    fs::create_dir_all(&root).unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=100m", "tmpfs", root.to_str().unwrap()]);
    cluster.start();
    let plain = cluster.get(&["pod", "plain"]);
    let said =
        ["phase", "reason", "message"].map(|it| plain["status"][it].as_str().unwrap_or_default().to_owned());
    expect!["Failed, Terminated, Pod was terminated in response to imminent node shutdown."]
        .assert_eq(&said.join(", "));
    cluster.kubectl(&["delete", "pod", "plain"]);
}

fn a_disk_that_is_full(cluster: &mut Cluster) {
    cluster.apply(&format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: daemon}}\nspec:\n  selector: {{matchLabels: {{app: daemon}}}}\n  \
         template:\n    metadata: {{labels: {{app: daemon}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      \
         containers:\n      - {{name: main, image: {IMAGE}, command: [sleep, '100000']}}\n"
    ));
    let daemon = cluster.ready_pods("app=daemon", 1).remove(0);
    pod(cluster, "hog", "dd if=/dev/zero of=/data/file bs=1M count=80; sleep 100000", "data");
    cluster.wait("the node says that it is short of disk, and is tainted", || {
        let node = cluster.get(&["node", "node-1"]);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().any(|it| it["key"] == "node.kubernetes.io/disk-pressure").then_some(())
    });
    let hog = cluster.wait("who took it goes", || {
        let pod = cluster.get(&["pod", "hog"]);
        (pod["status"]["phase"] == "Failed").then_some(pod)
    });
    assert_eq!(hog["status"]["reason"], "Evicted");
    let message = hog["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: 30Mi, "),
        "{message}"
    );
    let conditions = hog["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|it| it["type"] == "DisruptionTarget").unwrap();
    assert_eq!([&target["status"], &target["reason"]], ["True", "TerminationByKubelet"]);
    cluster.wait("the node has room again", || {
        let node = cluster.get(&["node", "node-1"]);
        (is_set(&node["status"]) && node["spec"]["taints"].is_null()).then_some(())
    });
    // Who is of a DaemonSet stays.
    let after = cluster.ready_pods("app=daemon", 1).remove(0);
    assert_eq!(after["metadata"]["uid"], daemon["metadata"]["uid"]);
}

fn pod(cluster: &Cluster, name: &str, script: &str, volume: &str) {
    let (mounts, volumes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            format!("    volumeMounts: [{{name: {volume}, mountPath: /{volume}}}]\n"),
            format!("  volumes: [{{name: {volume}, emptyDir: {{}}}}]\n"),
        ),
    };
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  \
         - name: main\n    image: {IMAGE}\n    command: [sh, -c, '{script}']\n{mounts}{volumes}"
    ));
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn is_set(it: &Value) -> bool {
    !it.is_null()
}

fn run(program: &str, args: &[&str]) {
    assert!(Command::new(program).args(args).status().unwrap().success(), "{program} {}", args.join(" "));
}
