//! Every field of a pod that a container can notice, noticed from inside one. The pods are in `fields/`.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Cluster, is_ready, items};

const NAMESPACE: &str = "fields";

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn pod_fields_take_effect_in_containers() {
    let cluster = Cluster::up("fields", 1);
    let machine = cluster.dir.join("machine");
    let socket = make_machine(&machine);
    cluster.apply(include_str!("fields/references.yaml"));
    let at = |manifests: &str| manifests.replace("MACHINE", machine.to_str().unwrap());
    cluster.apply(include_str!("fields/env.yaml"));
    cluster.apply(include_str!("fields/rights.yaml"));
    cluster.apply(&at(include_str!("fields/volumes.yaml")));
    cluster.apply(&at(include_str!("fields/course.yaml")));

    what_it_is_told(&cluster);
    what_it_may_do(&cluster);
    what_it_finds(&cluster, &machine);
    how_it_comes_and_goes(&cluster, &machine);
    drop(socket);
}

/// Something of each type that a hostPath can have.
fn make_machine(machine: &Path) -> UnixListener {
    fs::create_dir_all(machine.join("dir")).unwrap();
    fs::create_dir_all(machine.join("any")).unwrap();
    fs::write(machine.join("dir/file"), "on the machine\n").unwrap();
    symlink("/etc", machine.join("any/link")).unwrap();
    let made = Command::new("mknod").arg(machine.join("block")).args(["b", "7", "0"]).status().unwrap();
    assert!(made.success() && fs::metadata(machine.join("block")).unwrap().file_type().is_block_device());
    // A socket's path is short: it is made from within its directory.
    let dir = tempfile::tempdir().unwrap();
    let short = dir.path().join("machine");
    symlink(machine, &short).unwrap();
    UnixListener::bind(short.join("socket")).unwrap()
}

fn what_it_is_told(cluster: &Cluster) {
    let pod = ended(cluster, "env");
    expect![[r#"
        arguments: first hello $(GREETING) $(NOBODY)
        /var/log
        COLOR=blue
        CPU_LIMIT=1
        CPU_REQUEST=100
        EMPTY=
        GREETING=hello
        HOSTNAME=told
        HOST_IP=HOST_IP
        KEPT=$(GREETING) $(NOBODY)
        K_password=hunter2
        K_user=bob
        MEMORY_LIMIT=32
        MY_ACCOUNT=robot
        MY_APP=env
        MY_NAME=env
        MY_NAMESPACE=fields
        MY_NODE=node-1
        MY_NOTE=say "hi"
        MY_UID=UID
        PASSWORD=hunter2
        POD_IP=POD_IP
        POD_IPS=POD_IP
        S_color=blue
        TWICE=hello hello
        hostname: told
        api: there, 443
        hosts:
        127.0.0.1	localhost
        ::1	localhost ip6-localhost ip6-loopback
        fe00::0	ip6-localnet
        fe00::0	ip6-mcastprefix
        fe00::1	ip6-allnodes
        fe00::2	ip6-allrouters
        POD_IP	told.group.fields.svc.cluster.local	told

        10.1.2.3	alias.example	other.example
        resolv.conf:
        search example.org
        nameserver 10.9.8.7
        options ndots:3 edns0
        memory: 33554432
        cpu: 50000
        shares: 102
        service account: ls: /var/run/secrets: No such file or directory
    "#]]
    .assert_eq(&whole_log(cluster, &pod, "told"));
    let spec = &pod["spec"];
    assert_eq!((&spec["priority"], &pod["status"]["qosClass"]), (&1234.into(), &"Burstable".into()));
    assert_eq!(spec["overhead"], json!({"memory": "10Mi"}), "what its runtime class costs is the pod's");
    assert_eq!(states(&pod), "told: exited with 3 Error, 0 restarts\n");
}

fn what_it_may_do(cluster: &Cluster) {
    let pod = ended(cluster, "rights");
    expect![[r#"
        1000
        1001
        1001 1002 2000
        CapEff:	0000000000000000
        CapBnd:	0000000000000000
        NoNewPrivs:	1
        Seccomp:	2
        touch: /new: Read-only file system
        80
        shares processes
    "#]]
    .assert_eq(&whole_log(cluster, &pod, "few"));
    expect![[r#"
        0
        0 1002 2000
        CapEff:	0000000000001003
        NoNewPrivs:	0
        Seccomp:	0
        written
    "#]]
    .assert_eq(&whole_log(cluster, &pod, "some"));

    // It is where the machine is, but for its network, which is the node's.
    let pod = ended(cluster, "machine");
    let mut said = whole_log(cluster, &pod, "all");
    for kind in ["pid", "ipc", "uts", "mnt", "net"] {
        let own = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        said = said.replace(own.to_str().unwrap(), "the machine's");
    }
    let of_node = fs::metadata(cluster.node(1).netns_path()).unwrap();
    let of_node = format!("net:[{}]", std::os::unix::fs::MetadataExt::ino(&of_node));
    said = said.replace(&of_node, "the node's");
    let plain = said.lines().map(|it| if it.starts_with("mnt mnt:[") { "mnt its own" } else { it });
    let plain: Vec<&str> = plain.collect();
    expect![[r#"
        net the node's
        pid the machine's
        ipc the machine's
        uts the machine's
        mnt its own
        devices: all
        Seccomp:	0
        mounts"#]]
    .assert_eq(&plain.join("\n"));
}

fn what_it_finds(cluster: &Cluster, machine: &Path) {
    let pod = cluster.wait("the pod with the volumes", || {
        let pod = get(cluster, "volumes");
        is_ready(&pod).then_some(pod)
    });
    expect![[r#"
        -- emptyDir
        /scratch/file: made by init
        /part/file: a part
        /expr/file: a part
        drwxrwsrwx 0:2000
        written
        -- memory
        tmpfs 4096 KiB
        drwxrwsrwt 0:2000
        -- configMap
        /settings/..data drwxr-sr-x 0:2000 -> TIME
        /settings/color -rw-r----- 0:2000 -> ..data/color
        /settings/conf.ini -rw-r----- 0:2000 -> ..data/conf.ini
        /settings/raw -rw-r----- 0:2000 -> ..data/raw
        /settings/color: blue
        00000000  00 ff 0a                                          |...|
        /one-file: blue
        touch: /settings/new: Read-only file system
        -- secret
        /key/..data drwxr-sr-x 0:2000 -> TIME
        /key/password -r--r----- 0:2000 -> ..data/password
        /key/password: hunter2
        tmpfs
        -- downwardAPI
        /self/..data drwxr-sr-x 0:2000 -> TIME
        /self/cpu -rw-r--r-- 0:2000 -> ..data/cpu
        /self/labels -rw-r--r-- 0:2000 -> ..data/labels
        /self/labels: app="volumes"
        /self/cpu: 250
        -- projected
        /all/..data drwxr-sr-x 0:2000 -> TIME
        /all/conf drwxr-sr-x 0:2000 -> ..data/conf
        /all/name -rw-r--r-- 0:2000 -> ..data/name
        /all/token -rw-r----- 0:2000 -> ..data/token
        /all/user -rw-r--r-- 0:2000 -> ..data/user
        /all/conf/ini: [a]
        b=c
        /all/user: bob
        /all/name: volumes
        -- hostPath
        /host/file: on the machine
        /host-file: on the machine
        touch: /host-ro/new: Read-only file system
        directory 755
        regular empty file 644
        socket
        block
        char
        link
        -- account
        ca.crt
        namespace
        token
        fields
        reaches the API server
        -- names
        search fields.svc.cluster.local svc.cluster.local cluster.local
        options ndots:5
    "#]]
    .assert_eq(&whole_log(cluster, &pod, "sees"));
    assert_eq!(fs::read_to_string(machine.join("dir/written")).unwrap(), "more\n");

    // Its token lets it do what its account may, and nothing else.
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let volumes = cluster.node(1).agent_root().join("pods").join(uid).join("volumes/kubernetes.io~projected");
    let mut all = fs::read_dir(volumes).unwrap().map(|it| it.unwrap().path());
    let token = all.find(|it| it.to_string_lossy().contains("kube-api-access")).unwrap().join("token");
    let token = fs::read_to_string(token).unwrap();
    let asks = |args: &[&str]| {
        let mut all = vec!["--token", &token, "--server"];
        let config = fs::read_to_string(cluster.kubeconfig()).unwrap();
        let server = config.lines().find_map(|it| it.trim().strip_prefix("server: ")).unwrap().to_owned();
        let authority = cluster.dir.join("ca.crt");
        all.extend([server.as_str(), "--certificate-authority", authority.to_str().unwrap()]);
        all.extend(["--kubeconfig", "/dev/null"]);
        all.extend(args);
        let output = Command::new(crate::bed::newest_kubectl()).args(all).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let name = asks(&["get", "pod", "-n", NAMESPACE, "volumes", "-o", "jsonpath={.metadata.name}"]);
    assert_eq!(name, "volumes");
    let refused = asks(&["get", "secret", "-n", NAMESPACE, "key"]);
    expect![[r#"
        Error from server (Forbidden): secrets "key" is forbidden: User "system:serviceaccount:fields:robot" cannot get resource "secrets" in API group "" in the namespace "fields"
    "#]].assert_eq(&refused);

    // The files follow the object.
    cluster.kubectl(&["patch", "-n", NAMESPACE, "configmap/settings", "-p", r#"{"data":{"color":"green"}}"#]);
    cluster.wait("the new color", || log(cluster, &pod, "sees").contains("color is green\n").then_some(()));

    let pod = cluster.wait("the mount of another container", || {
        let pod = get(cluster, "propagation");
        states(&pod).contains("sees: exited").then_some(pod)
    });
    assert_eq!(whole_log(cluster, &pod, "sees"), "from the other\n");
}

/// Waits until the pod that takes too much memory was OOMKilled. containerd learns of that by an event beside the one of
/// the container's end. If it comes later, the container has ended with `Error`, and the pod is created again.
fn wait_for_oom_kill(cluster: &Cluster) {
    let manifests = include_str!("fields/course.yaml").split("\n---\n");
    let manifest = manifests.into_iter().find(|it| it.contains("name: too-much")).unwrap();
    for _ in 0..10 {
        let states = cluster.wait("the pod that takes too much memory", || {
            let states = states(&get(cluster, "too-much"));
            states.contains("exited with 137").then_some(states)
        });
        if states.contains("OOMKilled") {
            return;
        }
        cluster.kubectl(&["delete", "pod", "-n", NAMESPACE, "too-much", "--timeout=120s"]);
        cluster.apply(manifest);
    }
    panic!("a container that takes too much memory is never OOMKilled");
}

fn how_it_comes_and_goes(cluster: &Cluster, machine: &Path) {
    let pod = cluster.wait("the pod that is served", || {
        let pod = get(cluster, "course");
        is_ready(&pod).then_some(pod)
    });
    let address = pod["status"]["hostIP"].as_str().unwrap();
    let mut stream = TcpStream::connect(format!("{address}:18080")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("well\n"), "{answer}");

    cluster.kubectl(&["delete", "pod", "-n", NAMESPACE, "course", "--timeout=120s"]);
    expect![[r#"
        first
        beside
        second
        main
        main has started
        main will end
        main is told to end
        beside ends
    "#]]
    .assert_eq(&fs::read_to_string(machine.join("order/order")).unwrap());

    wait_for_oom_kill(cluster);
    let mut told = String::new();
    for (name, until) in [
        ("unwell", &["waits for CrashLoopBackOff", "last exited with 9"][..]),
        ("on-failure", &["exited with 0"]),
        ("too-much", &["exited with 137"]),
        ("crash", &["waits for CrashLoopBackOff"]),
        ("last-words", &["exited with 5"]),
        (
            "waits",
            &["no-program: waits for CrashLoopBackOff", "NeverPull", "is-root: waits for Create", "\"none\""],
        ),
    ] {
        let pod = cluster.wait(&format!("{name}: {until:?}"), || {
            let pod = get(cluster, name);
            let states = states(&pod);
            until.iter().all(|it| states.contains(it)).then_some(pod)
        });
        // How often it was begun again by now is a matter of time.
        let states = states(&pod).lines().map(without_count).collect::<Vec<_>>().join("\n");
        let states = named(&pod, states);
        writeln!(told, "{name}, {}\n{states}\n", pod["status"]["phase"].as_str().unwrap()).unwrap();
    }
    expect![[r#"
        unwell, Running
        sick: waits for CrashLoopBackOff (back-off), last exited with 9 Error

        on-failure, Succeeded
        c: exited with 0 Completed, last exited with 4 Error (the last words)

        too-much, Failed
        c: exited with 137 OOMKilled

        crash, Running
        c: waits for CrashLoopBackOff (back-off), last exited with 1 Error

        last-words, Failed
        c: exited with 5 Error (it broke)

        waits, Pending
        bad-name: waits for InvalidImageName (Failed to apply default image tag "Not/A_Name!": couldn't parse image name "Not/A_Name!": invalid reference format: repository name (A_Name!) must be lowercase)
        is-root: waits for CreateContainerConfigError (container has runAsNonRoot and image will run as root (pod: "waits_fields(UID)", container: is-root))
        never: waits for ErrImageNeverPull (Container image "localhost/none:1" is not present with pull policy of Never)
        no-key: waits for CreateContainerConfigError (configmap "none" not found)
        no-program: waits for CrashLoopBackOff (back-off), last exited with 128 StartError

    "#]].assert_eq(&told);

    let events = [
        ("no-volume", "FailedMount"),
        ("no-runtime", "FailedCreatePodSandBox"),
        ("unwell", "Unhealthy"),
        ("crash", "BackOff"),
    ];
    let events = events.map(|(pod, reason)| {
        let found = cluster.wait(&format!("an event {reason}"), || {
            let all = items(&cluster.get(&["events", "-n", NAMESPACE]));
            all.into_iter().find(|it| it["reason"] == reason && it["involvedObject"]["name"] == pod)
        });
        format!("{reason}: {}\n", named(&get(cluster, pod), found["message"].as_str().unwrap().to_owned()))
    });
    expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "v" : configmap "none" not found
        FailedCreatePodSandBox: Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nosuch" is configured
        Unhealthy: Liveness probe failed: Get "http://POD_IP:8080/": dial tcp POD_IP:8080: connect: connection refused
        BackOff: Back-off restarting failed container c in pod crash_fields(UID)
    "#]]
    .assert_eq(&events.concat());
}

fn get(cluster: &Cluster, pod: &str) -> Value {
    cluster.get(&["pod", "-n", NAMESPACE, pod])
}

fn ended(cluster: &Cluster, pod: &str) -> Value {
    cluster.wait(&format!("the end of {pod}"), || {
        let pod = get(cluster, pod);
        matches!(pod["status"]["phase"].as_str()?, "Succeeded" | "Failed").then_some(pod)
    })
}

/// What a container has said before it said that this is all.
fn whole_log(cluster: &Cluster, pod: &Value, container: &str) -> String {
    cluster.wait(&format!("all that {container} says"), || {
        log(cluster, pod, container).split_once("-- end\n").map(|it| it.0.to_owned())
    })
}

/// What a container has said, as the runtime wrote it down; what differs from run to run is named.
pub(crate) fn log(cluster: &Cluster, pod: &Value, container: &str) -> String {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    let (namespace, name, uid) =
        (text(&metadata["namespace"]), text(&metadata["name"]), text(&metadata["uid"]));
    let node = text(&pod["spec"]["nodeName"]);
    let dir =
        cluster.dir.join("nodes").join(node).join("var-log/pods").join(format!("{namespace}_{name}_{uid}"));
    let written = fs::read_to_string(dir.join(container).join("0.log")).unwrap_or_default();
    let mut said = String::new();
    for line in written.lines() {
        // A line is as `TIME stdout F TEXT`.
        said.push_str(line.splitn(4, ' ').nth(3).unwrap_or_default());
        said.push('\n');
    }
    named(pod, said)
}

/// What differs from run to run, by its name.
fn named(pod: &Value, mut text: String) -> String {
    let known = [
        (&pod["metadata"]["uid"], "UID"),
        (&pod["status"]["podIP"], "POD_IP"),
        (&pod["status"]["hostIP"], "HOST_IP"),
    ];
    for (found, word) in known {
        if let Some(found) = found.as_str().filter(|it| !it.is_empty()) {
            text = text.replace(found, word);
        }
    }
    text
}

/// A line for each container: its state, the one before, and how often it was begun again.
pub(crate) fn states(pod: &Value) -> String {
    let mut told = String::new();
    for it in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
        let name = it["name"].as_str().unwrap();
        write!(told, "{name}: {}", state(&it["state"])).unwrap();
        if it["lastState"]["terminated"].is_object() {
            write!(told, ", last {}", state(&it["lastState"])).unwrap();
        }
        writeln!(told, ", {} restarts", it["restartCount"]).unwrap();
    }
    told
}

fn state(state: &Value) -> String {
    let text = |it: &Value| it.as_str().unwrap_or_default().trim_end().to_owned();
    let message = |it: &Value| match text(&it["message"]) {
        message if message.is_empty() => String::new(),
        // How long it waits is a matter of time, and how the runtime says why is its own.
        message if message.starts_with("back-off ") => " (back-off)".to_owned(),
        _ if it["reason"] == "StartError" => String::new(),
        message => format!(" ({message})"),
    };
    if let Some(it) = state.get("waiting") {
        return format!("waits for {}{}", text(&it["reason"]), message(it));
    }
    match state.get("terminated") {
        Some(it) => format!("exited with {} {}{}", it["exitCode"], text(&it["reason"]), message(it)),
        None => "runs".into(),
    }
}

fn without_count(line: &str) -> &str {
    line.rsplit_once(", ").map_or(line, |it| it.0)
}
