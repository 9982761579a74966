//! Images come to real nodes from archives: what `docker save` wrote, gzipped or not, and OCI layouts.

use std::fs;
use std::process::Command;

use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Cluster, archive, is_ready, muster};
use crate::registry;

/// The image of busybox as `docker save` wrote it of old, gzipped.
fn docker_archive(cluster: &Cluster) -> std::path::PathBuf {
    let dir = cluster.dir.join("docker");
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
    fs::copy(read(&manifest["config"]["digest"]), dir.join("config.json")).unwrap();
    let docker = json!([{"Config": "config.json", "RepoTags": ["tool:2"], "Layers": ["layer/layer.tar"]}]);
    fs::write(dir.join("manifest.json"), docker.to_string()).unwrap();
    tar(&["-czf", "../tool.tar.gz", "layer", "config.json", "manifest.json"]);
    cluster.dir.join("tool.tar.gz")
}

#[test]
fn images_come_from_archives_and_registries() {
    let Some(cluster) = Cluster::up("images", 1) else { return };
    let said = |args: &[&str]| {
        let output = muster(args).arg("--data-dir").arg(&cluster.dir).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        text.replace(cluster.dir.to_str().unwrap(), "DIR")
    };
    let docker = docker_archive(&cluster);
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
        muster: import DIR/tool.tar.gz on node-1: the image is called "No Name", which is no name of an image
    "#]].assert_eq(&told);
    let list = said(&["image", "list"]);
    let names: Vec<_> = list.lines().filter_map(|it| it.split_whitespace().nth(1)).collect();
    expect![[r#"
        IMAGE
        localhost/muster/pause:1
        docker.io/library/busybox:1.36"#]]
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
}
