//! Images come to real nodes from archives: what `docker save` wrote, gzipped or not, and OCI layouts. So what texts on DaemonSets name
//! can be run where no registry is: under its own name, by something that stands in for it.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Cluster, archive, is_ready, items, muster};
use crate::registry;

/// What stands in for a daemon: it says how it was called, and stays.
const DAEMON: [&str; 4] =
    ["sh", "-c", "echo called with \"$@\"; trap exit TERM; while :; do sleep 1; done", "daemon"];

/// The node exporter of an old text, which names its image by digest.
const EXPORTER: &str = include_str!("../../../../examples/node-exporter-v1beta1.yaml");
const EXPORTER_IMAGE: &str =
    "prom/node-exporter@sha256:ffc3e0adf58771cb2097aa0b074a6fe68b4925ba75c2e1c41f41ae656eebee11";
const FLUENTD: &str = include_str!("../../../../examples/fluentd-v1beta1.yaml");
const FLUENTD_IMAGE: &str = "gcr.io/google-containers/fluentd-elasticsearch:1.20";

/// The image of busybox as `docker save` wrote it of old, gzipped; with an entry point of its own, if there is one.
fn docker_archive(cluster: &Cluster, name: &str, tag: &str, entry_point: &[&str]) -> std::path::PathBuf {
    let dir = cluster.dir.join(format!("docker-{name}"));
    fs::create_dir_all(dir.join("layer")).unwrap();
    let tar = |args: &[&str]| {
        assert!(Command::new("tar").args(args).current_dir(&dir).status().unwrap().success());
    };
    tar(&["-xf", archive().to_str().unwrap()]);
    let read = |digest: &Value| {
        let hex = digest.as_str().unwrap().trim_start_matches("sha256:");
        dir.join("blobs").join("sha256").join(hex)
    };
    let parse =
        |path: std::path::PathBuf| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let index = parse(dir.join("index.json"));
    let manifest = parse(read(&index["manifests"][0]["digest"]));
    fs::copy(read(&manifest["layers"][0]["digest"]), dir.join("layer").join("layer.tar")).unwrap();
    let mut config = parse(read(&manifest["config"]["digest"]));
    if !entry_point.is_empty() {
        config["config"]["Entrypoint"] = json!(entry_point);
    }
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let docker = json!([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer/layer.tar"]}]);
    fs::write(dir.join("manifest.json"), docker.to_string()).unwrap();
    let made = cluster.dir.join(format!("{name}.tar.gz"));
    tar(&["-czf", made.to_str().unwrap(), "layer", "config.json", "manifest.json"]);
    made
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn images_come_from_archives_and_registries() {
    let cluster = Cluster::up("images", 1);
    let said = |args: &[&str]| {
        let output = muster(args).arg("--data-dir").arg(&cluster.dir).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        text.replace(cluster.dir.to_str().unwrap(), "DIR")
    };
    let docker = docker_archive(&cluster, "tool", "tool:2", &[]);
    let letter = cluster.dir.join("letter.tar");
    fs::write(&letter, "dear").unwrap();
    let mut told = said(&["image", "import", docker.to_str().unwrap()]);
    told += &said(&["image", "import", archive().to_str().unwrap(), "--name", "registry.example:5000/a/b:c"]);
    told += &said(&["image", "import", letter.to_str().unwrap()]);
    told += &said(&["image", "import", "/nowhere.tar"]);
    told += &said(&["image", "import", docker.to_str().unwrap(), "--name", "No Name"]);
    expect![[r#"
        node-1: docker.io/library/tool:2
        node-1: registry.example:5000/a/b:c
        muster: import DIR/letter.tar on node-1: DIR/letter.tar is not an image archive: failed to read entire block. `docker save` and OCI layouts in a tar are, gzipped or not
        muster: import /nowhere.tar on node-1: read /nowhere.tar: No such file or directory (os error 2)
        muster: import DIR/tool.tar.gz on node-1: "No Name" is not a valid image reference
    "#]].assert_eq(&told);
    let list = said(&["image", "list"]);
    let names: Vec<_> = list.lines().filter_map(|it| it.split_whitespace().nth(1)).collect();
    expect![[r#"
        IMAGE
        docker.io/library/busybox:1.36
        docker.io/library/tool:2
        localhost/muster/pause:1
        registry.example:5000/a/b:c"#]]
    .assert_eq(&names.join("\n"));

    for (name, image) in [("tool", "tool:2"), ("other", "registry.example:5000/a/b:c")] {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "node-1",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": image, "command": ["sleep", "3600"]}],
            },
        });
        cluster.apply(&pod.to_string());
        cluster.wait("the pod runs", || is_ready(&cluster.get(&["pod", name])).then_some(()));
    }
    registry::images_are_pulled(&cluster);

    let daemon = docker_archive(&cluster, "daemon", FLUENTD_IMAGE, &DAEMON);
    let mut told = said(&["image", "import", daemon.to_str().unwrap()]);
    told += &said(&["image", "import", daemon.to_str().unwrap(), "--name", EXPORTER_IMAGE]);
    assert_eq!(told, format!("node-1: {FLUENTD_IMAGE}\nnode-1: docker.io/{EXPORTER_IMAGE}\n"));
    daemons_of_old_texts_run(&cluster);
}

/// On the host's network and with its paths, with the arguments of the text; and the shipper finds the exporter's log.
fn daemons_of_old_texts_run(cluster: &Cluster) {
    let made = Path::new("/var/lib/docker/containers");
    let was_there = made.exists();
    cluster.apply(EXPORTER);
    cluster.apply(FLUENTD);
    let exporter = cluster.ready_pods("name=node-exporter", 1).remove(0);
    let shipper = cluster.ready_pods("name=fluentd-elasticsearch", 1).remove(0);
    assert_eq!(exporter["status"]["podIP"], exporter["status"]["hostIP"], "it is on the host's network");
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let (exporter, shipper) = (name(&exporter), name(&shipper));
    let script = format!(
        "cut -d' ' -f2- /var/log/containers/{exporter}_default_*.log; touch /var/lib/docker/containers/x 2>&1 || :"
    );
    let seen = cluster.wait("the exporter's log is found", || {
        let seen = cluster.kubectl(&["exec", "-n", "kube-system", &shipper, "--", "sh", "-c", &script]);
        seen.contains("called with").then_some(seen)
    });
    let script = "ls -d /host/proc/1 /rootfs/etc/passwd /host/sys/kernel /host/dev/null";
    let found = cluster.kubectl(&["exec", &exporter, "--", "sh", "-c", script]);
    expect![[r#"
        stdout F called with --collector.procfs /host/proc --collector.sysfs /host/sys --collector.filesystem.ignored-mount-points "^/(sys|proc|dev|host|etc)($|/)"
        touch: /var/lib/docker/containers/x: Read-only file system
        /host/dev/null
        /host/proc/1
        /host/sys/kernel
        /rootfs/etc/passwd
    "#]].assert_eq(&(seen + &found));
    cluster.kubectl(&["delete", "ds", "node-exporter"]);
    cluster.kubectl(&["delete", "ds", "-n", "kube-system", "fluentd-elasticsearch"]);
    cluster.wait("its pod is gone", || {
        items(&cluster.get(&["pods", "-n", "kube-system"])).is_empty().then_some(())
    });
    if !was_there {
        let _ = fs::remove_dir(made).and_then(|()| fs::remove_dir(made.parent().unwrap()));
    }
}
