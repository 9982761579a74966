//! The node itself: what it says of itself, pods from files, logs and room, and how it ends.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

use crate::bed::{Cluster, IMAGE, PATIENCE, is_ready, items, make_image, wait_for};

const FLAGS: &[&str] = &[
    "--agent-flag=--housekeeping-interval=1s",
    "--agent-flag=--container-log-max-size=20000",
    "--agent-flag=--container-log-max-files=3",
    "--agent-flag=--eviction-hard=nodefs.available<30Mi",
    "--agent-flag=--eviction-pressure-transition-period=5s",
    "--agent-flag=--drain-on-stop",
];

/// The same, and it does not shut down when it is stopped.
const RESTING: &[&str] = FLAGS.split_last().unwrap().1;

/// An image of a registry.
const OTHER: &str = "registry.example/unused:1";

/// It is short of memory, and has been for long enough; and of PIDs, which can wait.
const UNDER_PRESSURE: &[&str] = &[
    "--agent-flag=--housekeeping-interval=1s",
    "--agent-flag=--eviction-soft=memory.available<99%,pid.available<100M",
    "--agent-flag=--eviction-soft-grace-period=memory.available=1s,pid.available=1h",
    "--agent-flag=--eviction-max-pod-grace-period=5",
];

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_node_evicts_pods_and_collects_garbage() {
    let mut cluster = Cluster::up_with("host", 1, FLAGS);
    what_it_says_of_itself(&cluster);
    a_pod_from_a_file(&cluster);
    a_log_that_grows(&cluster);
    pods_are_held_to_their_limits(&cluster);
    pods_end_with_their_node(&mut cluster);
    a_disk_that_is_full(&cluster);
    pods_rest_with_their_node(&mut cluster);
    a_node_under_pressure(&mut cluster);
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
    let file = cluster.node(1).static_pod_dir().join("web.yaml");
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
    let words = "n=0; while true; do n=$((n+1)); echo words that fill a log, number $n; usleep 2000; done";
    pod(cluster, "talker", words, "");
    let talker = cluster.wait("the pod runs", || {
        let pod = cluster.get(&["pod", "talker"]);
        is_ready(&pod).then_some(pod)
    });
    let uid = talker["metadata"]["uid"].as_str().unwrap();
    let dir = cluster.node(1).var_log().join("pods").join(format!("default_talker_{uid}")).join("main");
    let heard = cluster.dir.join("heard");
    let mut follow = cluster.kubectl_command(&["logs", "-f", "talker"]);
    let follow = follow.stdout(fs::File::create(&heard).unwrap()).spawn().unwrap();
    cluster.wait("old logs are compressed, and no more than three are kept", || {
        let names: Vec<String> = names(&dir);
        let is_packed = names.iter().filter(|it| it.ends_with(".gz")).count() == 1;
        (is_packed && names.len() == 3 && names.contains(&"0.log".to_owned())).then_some(())
    });
    cluster.kubectl(&["delete", "pod", "talker"]);
    // Who follows it hears every word, however often it is set aside, until it ends.
    assert_eq!(wait_for(follow, PATIENCE), Some(0));
    let heard = fs::read_to_string(heard).unwrap();
    let numbers: Vec<usize> =
        heard.lines().map(|it| it.rsplit(' ').next().and_then(|it| it.parse().ok()).unwrap()).collect();
    let whole: Vec<usize> = (numbers[0]..numbers[0] + numbers.len()).collect();
    assert_eq!(numbers, whole);
    // More than a file holds.
    assert!(400 < numbers.len(), "{}", numbers.len());
    cluster.wait("its logs go with it", || (!dir.exists()).then_some(()));
    assert_eq!(names(&cluster.node(1).var_log().join("containers")), Vec::<String>::new());
}

/// What they take on the disk is measured by the runtime every ten seconds.
fn pods_are_held_to_their_limits(cluster: &Cluster) {
    let fill = |file: &str| format!("dd if=/dev/zero of={file} bs=1M count=3; sleep 100000");
    let limited = |name: &str, spec: &str| {
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n{spec}"
        ));
    };
    let container = |name: &str, script: &str, limit: &str, mounts: &str| {
        format!(
            "  - name: {name}\n    image: {IMAGE}\n    command: [sh, -c, '{script}']\n    \
             resources: {{limits: {{{limit}}}}}\n    volumeMounts: [{mounts}]\n"
        )
    };
    let data = "{name: data, mountPath: /data}";
    limited(
        "over-volume",
        &format!(
            "  volumes: [{{name: data, emptyDir: {{sizeLimit: 1Mi}}}}]\n  containers:\n{}",
            container("main", &fill("/data/file"), "", data)
        ),
    );
    limited(
        "over-sum",
        &format!(
            "  volumes: [{{name: data, emptyDir: {{}}}}]\n  containers:\n{}",
            container("main", &fill("/data/file"), "ephemeral-storage: 2Mi", data)
        ),
    );
    limited(
        "over-layer",
        &format!(
            "  containers:\n{}{}",
            container("main", &fill("/file"), "ephemeral-storage: 1Mi", ""),
            container("other", "sleep 100000", "ephemeral-storage: 1Gi", "")
        ),
    );
    limited(
        "within",
        &format!(
            "  volumes: [{{name: data, emptyDir: {{sizeLimit: 4Mi}}}}]\n  containers:\n{}",
            container("main", &fill("/data/file"), "ephemeral-storage: 8Mi", data)
        ),
    );
    let mut said = String::new();
    for name in ["over-volume", "over-sum", "over-layer"] {
        let pod = cluster.wait("who takes too much goes", || {
            let pod = cluster.get(&["pod", name]);
            (pod["status"]["phase"] == "Failed").then_some(pod)
        });
        let words = ["reason", "message"].map(|it| pod["status"][it].as_str().unwrap_or_default().to_owned());
        said += &format!("{name}: {}\n", words.join(": "));
    }
    expect![[r#"
        over-volume: Evicted: Usage of EmptyDir volume "data" exceeds the limit "1Mi". 
        over-sum: Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. 
        over-layer: Evicted: Container main exceeded its local ephemeral storage limit "1Mi". 
    "#]]
    .assert_eq(&said);
    // Who asked for no CPU has the least there is of it, together with all others who did not.
    let class = format!("/sys/fs/cgroup/cpu{}/besteffort/cpu.shares", cluster.node(1).cgroup_parent());
    if let Ok(shares) = fs::read_to_string(class) {
        assert_eq!(shares, "2\n");
    }
    let counted = cluster.wait("the node counts them", || {
        let (_, said) = cluster.try_kubectl(&["get", "--raw", "/api/v1/nodes/node-1/proxy/metrics"]);
        said.contains("muster_pods{phase=\"Failed\"} 3").then_some(said)
    });
    let of = |names: &[&str]| {
        let is_of = |it: &&str| names.iter().any(|name| it.starts_with(name));
        let mut lines: Vec<&str> = counted.lines().filter(is_of).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    expect![[r#"
        kubelet_evictions_total{eviction_signal="emptydirfs.limit"} 1
        kubelet_evictions_total{eviction_signal="ephemeralcontainerfs.limit"} 1
        kubelet_evictions_total{eviction_signal="ephemeralpodfs.limit"} 1
        muster_pods{phase="Failed"} 3
        muster_pods{phase="Pending"} 0
        muster_pods{phase="Running"} 1
        muster_pods{phase="Succeeded"} 0"#]]
    .assert_eq(&of(&["kubelet_evictions_total", "muster_pods{"]));
    let is_told = |name: &str| counted.lines().any(|it| it.starts_with(name) && !it.ends_with(" 0"));
    for name in [
        "kubelet_pod_start_duration_seconds_count",
        "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"}",
        "kubelet_certificate_manager_client_ttl_seconds",
        "kubelet_certificate_manager_server_ttl_seconds",
        "muster_pod_actions_total{action=\"start\",result=\"success\"}",
        "process_resident_memory_bytes",
    ] {
        assert!(is_told(name), "{name}: {counted}");
    }
    assert_eq!(cluster.get(&["pod", "within"])["status"]["phase"], "Running");
    cluster.kubectl(&["delete", "pod", "over-volume", "over-sum", "over-layer", "within"]);
}

fn pods_end_with_their_node(cluster: &mut Cluster) {
    // Each writes when it ends; the first does not until it is let go.
    let log = cluster.node(1).var_log().join("order");
    let last_words = |name: &str, wait: &str| {
        format!(
            "trap \"{wait} echo {name} >> /var/log/order/words; exit 0\" TERM; while true; do usleep 50000; done"
        )
    };
    let waits = "until [ -e /var/log/order/go ]; do usleep 50000; done;";
    let node = "  nodeName: node-1\n";
    ending(cluster, "plain", &last_words("plain", waits), "");
    ending(cluster, "critical", &last_words("critical", ""), "  priorityClassName: system-node-critical\n");
    cluster.wait("the pods run", || {
        ["plain", "critical"].iter().all(|it| is_ready(&cluster.get(&["pod", it]))).then_some(())
    });
    cluster.interrupt();
    cluster.wait("the node says that it shuts down", || {
        let node = cluster.get(&["node", "node-1"]);
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["message"] == "node is shutting down").then_some(())
    });
    ending(cluster, "late", "sleep 100000", node);
    let how = |pod: &Value| {
        let words = ["phase", "reason", "message"]
            .map(|it| pod["status"][it].as_str().unwrap_or_default().to_owned());
        format!("{}: {}\n", pod["metadata"]["name"].as_str().unwrap_or_default(), words.join(", "))
    };
    let late = cluster.wait("a new pod is refused", || {
        let pod = cluster.get(&["pod", "late"]);
        (pod["status"]["phase"] == "Failed").then_some(pod)
    });
    fs::write(log.join("go"), "").unwrap();
    cluster.has_stopped();
    assert_eq!(fs::read_to_string(log.join("words")).unwrap(), "plain\ncritical\n");
    // Its own disk is small from now on, and it joins anew.
    let root = cluster.dir.join("nodes").join("node-1").join("agent");
    fs::remove_dir_all(&root).unwrap();
    fs::create_dir_all(&root).unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=100m", "tmpfs", root.to_str().unwrap()]);
    cluster.start_with(RESTING);
    let said = how(&late) + &how(&cluster.get(&["pod", "plain"])) + &how(&cluster.get(&["pod", "critical"]));
    expect![[r#"
        late: Failed, NodeShutdown, Pod was rejected: Pod was rejected as the node is shutting down.
        plain: Failed, Terminated, Pod was terminated in response to imminent node shutdown.
        critical: Failed, Terminated, Pod was terminated in response to imminent node shutdown.
    "#]]
    .assert_eq(&said);
    cluster.kubectl(&["delete", "pod", "plain", "critical", "late"]);
}

/// One that asks for some memory, and sees where the node's logs are.
fn ending(cluster: &Cluster, name: &str, script: &str, more: &str) {
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 30\n{more}  \
         volumes: [{{name: order, hostPath: {{path: /var/log/order, type: DirectoryOrCreate}}}}]\n  containers:\n  \
         - name: main\n    image: {IMAGE}\n    command: [sh, -c, '{script}']\n    resources: {{requests: {{memory: 1Mi}}}}\n    \
         lifecycle: {{preStop: {{exec: {{command: [sh, -c, 'echo hook of {name} >> /var/log/order/hooks']}}}}}}\n    \
         volumeMounts: [{{name: order, mountPath: /var/log/order}}]\n"
    ));
}

/// It has a digest, as what was pulled has, and differs from all others.
fn an_image_of_a_registry(cluster: &Cluster) {
    let dir = cluster.dir.join("other");
    fs::create_dir_all(&dir).unwrap();
    let path = std::env::var("PATH").unwrap();
    let busybox = path.split(':').map(|it| Path::new(it).join("busybox")).find(|it| it.exists()).unwrap();
    let own = dir.join("busybox");
    fs::copy(busybox, &own).unwrap();
    fs::OpenOptions::new().append(true).open(&own).and_then(|mut it| it.write_all(b"\n")).unwrap();
    let archive = dir.join("other.tar");
    make_image(&archive, OTHER, &format!("{}:{path}", dir.display()));
    ctr(cluster, &["images", "import", "--no-unpack", archive.to_str().unwrap()]);
    let listed = ctr(cluster, &["images", "ls", &format!("name=={OTHER}")]);
    let digest = listed.split_whitespace().find(|it| it.starts_with("sha256:")).unwrap();
    ctr(cluster, &["images", "tag", OTHER, &OTHER.replace(":1", &format!("@{digest}"))]);
}

fn ctr(cluster: &Cluster, args: &[&str]) -> String {
    let socket = cluster.node(1).containerd_socket();
    let mut command = Command::new("ctr");
    let output = command.arg("--address").arg(socket).args(["-n", "k8s.io"]).args(args).output().unwrap();
    assert!(output.status.success(), "ctr {}: {output:?}", args.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

fn a_disk_that_is_full(cluster: &Cluster) {
    let images = || {
        let all = ctr(cluster, &["images", "ls", "-q"]);
        let mut names: Vec<&str> = all.lines().map(|it| it.split('@').next().unwrap_or(it)).collect();
        names.retain(|it| !it.starts_with("sha256:"));
        names.sort_unstable();
        names.dedup();
        names.join("\n")
    };
    an_image_of_a_registry(cluster);
    cluster.wait("the image is there", || images().contains("unused").then_some(()));
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
    // What nobody used went, but for what nobody could bring back.
    expect![[r#"
        docker.io/library/busybox:1.36
        localhost/muster/pause:1"#]]
    .assert_eq(&images());
    // Who is of a DaemonSet stays.
    let after = cluster.ready_pods("app=daemon", 1).remove(0);
    assert_eq!(after["metadata"]["uid"], daemon["metadata"]["uid"]);
}

fn pods_rest_with_their_node(cluster: &mut Cluster) {
    let order = cluster.node(1).var_log().join("order");
    fs::remove_dir_all(&order).unwrap();
    ending(
        cluster,
        "rests",
        "trap \"echo term >> /var/log/order/hooks; exit 0\" TERM; while true; do usleep 50000; done",
        "",
    );
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  \
         - {{name: main, image: {IMAGE}, command: [sleep, '100000']}}\n"
    );
    fs::write(cluster.node(1).static_pod_dir().join("web.yaml"), text).unwrap();
    cluster.wait("the pods run", || {
        ["rests", "web-node-1"].iter().all(|it| is_ready(&cluster.get(&["pod", it]))).then_some(())
    });
    let uid = cluster.get(&["pod", "rests"])["metadata"]["uid"].clone();
    cluster.stop();
    assert_eq!(fs::read_to_string(order.join("hooks")).unwrap(), "hook of rests\nterm\n");
    cluster.start_with(UNDER_PRESSURE);
    assert_eq!(cluster.get(&["pod", "rests"])["metadata"]["uid"], uid);
}

fn a_node_under_pressure(cluster: &mut Cluster) {
    let words = |it: &Value, keys: &[&str]| {
        keys.iter().map(|key| it[key].as_str().unwrap_or_default()).collect::<Vec<_>>().join(" ")
    };
    let said = cluster.wait("the node says what it is short of, and is tainted", || {
        let node = cluster.get(&["node", "node-1"]);
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut said: Vec<String> = taints.iter().map(|it| words(it, &["key", "effect"])).collect();
        said.sort();
        said.extend(
            conditions
                .iter()
                .filter(|it| it["type"] != "Ready")
                .map(|it| words(it, &["type", "status", "reason", "message"])),
        );
        (taints.len() == 2).then(|| said.join("\n"))
    });
    expect![[r#"
        node.kubernetes.io/memory-pressure NoSchedule
        node.kubernetes.io/pid-pressure NoSchedule
        MemoryPressure True KubeletHasInsufficientMemory kubelet has insufficient memory available
        DiskPressure False KubeletHasNoDiskPressure kubelet has no disk pressure
        PIDPressure True KubeletHasInsufficientPID kubelet has insufficient PID available"#]]
    .assert_eq(&said);

    ending(cluster, "refused", "sleep 100000", "  nodeName: node-1\n");
    let refused = cluster.wait("a new pod is refused", || {
        let pod = cluster.get(&["pod", "refused"]);
        (pod["status"]["phase"] == "Failed").then_some(pod)
    });
    expect!["Evicted Pod was rejected: The node had condition: [MemoryPressure PIDPressure]. "]
        .assert_eq(&words(&refused["status"], &["reason", "message"]));

    // One goes after the other, and who is of a DaemonSet last.
    let gone = cluster.wait("pods go", || {
        let mut events = items(&cluster.get(&["events", "-A", "--field-selector=reason=Evicted"]));
        let version =
            |it: &Value| it["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok());
        events.sort_by_key(version);
        events.retain(|it| {
            it["message"].as_str().is_some_and(|it| it.contains("low on resource: memory. Threshold"))
        });
        let name = |it: &Value| it["involvedObject"]["name"].as_str().unwrap_or_default().to_owned();
        let names: Vec<String> = events.iter().map(name).collect();
        (2 <= names.len()).then_some(names)
    });
    assert_eq!(gone[0], "rests");
    assert!(gone[1].starts_with("daemon-"), "{gone:?}");
    let rests = cluster.get(&["pod", "rests"]);
    assert_eq!(words(&rests["status"], &["phase", "reason"]), "Failed Evicted");
    // What comes from a file stays, for nobody could put it anywhere else.
    cluster.wait("the pod of a file runs", || is_ready(&cluster.get(&["pod", "web-node-1"])).then_some(()));
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
