//! Volumes as they are on disk, seen whole. What mounts needs root: without it these tests say so and look no further.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{Pod, VolumeMount};
use kube::client::Body;
use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use serde_json::{Value, json};

use super::{Volumes, mount_table};
use crate::config::{Config, example};
use crate::references::References;

/// A node's directory, and an API server that knows these objects, by their paths.
struct Bed {
    root: PathBuf,
    volumes: Volumes,
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    tokens: Arc<AtomicU32>,
}

impl Bed {
    /// Needs root: volumes are mounted.
    fn new(test: &str) -> Self {
        let root = std::env::temp_dir().join(format!("muster-volumes-{}-{test}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let root = root.canonicalize().unwrap();
        let objects: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let tokens: Arc<AtomicU32> = Arc::default();
        let (known, given) = (objects.clone(), tokens.clone());
        let answer = move |request: Request<Body>| {
            let (known, given) = (known.clone(), given.clone());
            async move {
                let path = request.uri().path().to_owned();
                let body = if path.ends_with("/token") {
                    let asked = request.into_body().collect_bytes().await.unwrap();
                    let asked: Value = serde_json::from_slice(&asked).unwrap();
                    let number = given.fetch_add(1, Ordering::Relaxed) + 1;
                    let bound = &asked["spec"]["boundObjectRef"]["uid"];
                    let token =
                        format!("token {number} of {path} for {} {bound}", asked["spec"]["audiences"]);
                    let lifetime_s = asked["spec"]["expirationSeconds"].as_i64().unwrap();
                    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(lifetime_s);
                    json!({"status": {"token": token, "expirationTimestamp": expires.to_string()}})
                } else {
                    let missing =
                        json!({"kind": "Status", "status": "Failure", "code": 404, "message": "not found"});
                    known.lock().unwrap().get(&path).cloned().unwrap_or(missing)
                };
                let code = body["code"].as_u64().unwrap_or(200) as u16;
                let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
                answer.body(Body::from(serde_json::to_vec(&body).unwrap()))
            }
        };
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let var_log = root.join("var-log");
        fs::create_dir_all(&var_log).unwrap();
        let config = Config {
            root_dir: root.join("node"),
            host_path_mappings: vec![("/var/log".into(), var_log.clone())],
            var_log,
            ..example()
        };
        fs::create_dir_all(config.root_dir.join("pods")).unwrap();
        let volumes = Volumes::new(Arc::new(config), References::new(client));
        Self { root, volumes, objects, tokens }
    }

    fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(format!("/api/v1/namespaces/shop/{path}"), object);
    }

    async fn prepare(&self, pod: &Pod) -> String {
        let node: ResourceQuantities =
            [("cpu".into(), Quantity::from_units(2)), ("memory".into(), Quantity::from_units(1 << 30))]
                .into();
        match self.volumes.prepare(pod, &serde_json::to_value(pod).unwrap(), &node).await {
            Ok(()) if self.volumes.are_settled("u1") => "made, and settled".to_owned(),
            Ok(()) => "made".to_owned(),
            Err(why) => self.without_root(&why.to_string()),
        }
    }

    async fn mounts(&self, pod: &Pod) -> String {
        let env = [("POD".to_owned(), "web-1".to_owned()), ("UP".to_owned(), "../..".to_owned())].into();
        let mut told = String::new();
        for container in &pod.spec.as_ref().unwrap().containers {
            for (at, one) in container.volume_mounts.iter().flatten().enumerate() {
                // One at a time, so that the others are seen beside one that fails.
                let mut alone: Vec<VolumeMount> = container.volume_mounts.clone().unwrap();
                alone.truncate(at + 1);
                alone.drain(..at);
                match self
                    .volumes
                    .container_mounts(pod, &format!("{}-{at}", container.name), &alone, &env, false)
                    .await
                {
                    Err(why) => writeln!(told, "{}! {why}", one.mount_path).unwrap(),
                    Ok(mounts) => {
                        for it in mounts {
                            let mode = if it.readonly { "ro" } else { "rw" };
                            let propagation = it.propagation().as_str_name();
                            writeln!(told, "{} <- {} {mode} {propagation}", it.container_path, it.host_path)
                                .unwrap();
                        }
                    }
                }
            }
        }
        self.without_root(&told)
    }

    fn without_root(&self, text: &str) -> String {
        text.replace(self.root.to_str().unwrap(), "ROOT")
    }

    fn pod_dir(&self) -> PathBuf {
        self.root.join("node/pods/u1")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        mount_table::unmount_below(&self.root).unwrap();
        super::removal::remove_pod_dir(&self.root).unwrap();
    }
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// All that is in a directory: kind and mode, owner and group, where links lead, what files hold.
fn tree(dir: &Path) -> String {
    let mut lines = Vec::new();
    look(dir, dir, &mut lines);
    lines.join("\n")
}

fn look(top: &Path, at: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(at).unwrap().map(|it| it.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(top).unwrap().to_str().unwrap();
        // `..2026_…` is the directory of now.
        let plain = |text: &str| {
            let of = |it: &str| {
                if it.starts_with("..2") { "..TIME".to_owned() } else { it.to_owned() }
            };
            text.split('/').map(of).collect::<Vec<_>>().join("/")
        };
        let (kind, what) = if meta.is_dir() {
            let fs = if mount_table::is_mounted(&path).unwrap() { " mounted" } else { "" };
            ('d', fs.to_owned())
        } else if meta.is_symlink() {
            ('l', format!(" -> {}", plain(fs::read_link(&path).unwrap().to_str().unwrap())))
        } else if meta.file_type().is_file() {
            ('f', format!(" {:?}", String::from_utf8_lossy(&fs::read(&path).unwrap())))
        } else {
            ('?', String::new())
        };
        lines.push(format!(
            "{kind}{:o} {}:{} {}{what}",
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid(),
            plain(name)
        ));
        if meta.is_dir() {
            look(top, &path, lines);
        }
    }
}

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

#[tokio::test]
#[ignore = "needs root"]
async fn files_of_every_kind() {
    let bed = Bed::new("kinds");
    bed.put("configmaps/settings", json!({"data": {"a": "1", "b": "2"}, "binaryData": {"raw": "AP8="}}));
    bed.put("secrets/key", json!({"data": {"password": "aHVudGVyMg=="}, "immutable": true}));
    let pod = pod(json!({
        "serviceAccountName": "robot",
        "securityContext": {"fsGroup": 2000, "runAsUser": 1000},
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "250m"}}, "volumeMounts": [
            {"name": "all", "mountPath": "/all"}, {"name": "scratch", "mountPath": "/all/in/scratch"}]}],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "settings", "configMap": {"name": "settings", "defaultMode": 0o640}},
            {"name": "picked", "configMap": {"name": "settings", "items": [
                {"key": "a", "path": "deep/er/a", "mode": 0o400}, {"key": "a", "path": "again"}]}},
            {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}},
            {"name": "none", "secret": {"secretName": "none", "optional": true}},
            {"name": "self", "downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "cpu", "mode": 0o444,
                 "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}}]}},
            {"name": "all", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "bank"}},
                {"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}},
                {"secret": {"name": "key"}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        ],
    }));
    check(&bed.prepare(&pod).await, expect!["made"]);
    check(
        &tree(&bed.pod_dir()),
        expect![[r#"
        d755 0:0 plugins
        d755 0:0 plugins/kubernetes.io~empty-dir
        d755 0:0 plugins/kubernetes.io~empty-dir/all
        f644 0:0 plugins/kubernetes.io~empty-dir/all/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/fast
        f644 0:0 plugins/kubernetes.io~empty-dir/fast/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/key
        f644 0:0 plugins/kubernetes.io~empty-dir/key/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/none
        f644 0:0 plugins/kubernetes.io~empty-dir/none/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/picked
        f644 0:0 plugins/kubernetes.io~empty-dir/picked/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/scratch
        f644 0:0 plugins/kubernetes.io~empty-dir/scratch/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/self
        f644 0:0 plugins/kubernetes.io~empty-dir/self/ready ""
        d755 0:0 plugins/kubernetes.io~empty-dir/settings
        f644 0:0 plugins/kubernetes.io~empty-dir/settings/ready ""
        d755 0:0 volumes
        d755 0:0 volumes/kubernetes.io~configmap
        d2777 0:2000 volumes/kubernetes.io~configmap/picked
        d2755 0:2000 volumes/kubernetes.io~configmap/picked/..TIME
        f644 0:2000 volumes/kubernetes.io~configmap/picked/..TIME/again "1"
        d2755 0:2000 volumes/kubernetes.io~configmap/picked/..TIME/deep
        d2755 0:2000 volumes/kubernetes.io~configmap/picked/..TIME/deep/er
        f440 0:2000 volumes/kubernetes.io~configmap/picked/..TIME/deep/er/a "1"
        l777 0:2000 volumes/kubernetes.io~configmap/picked/..data -> ..TIME
        l777 0:2000 volumes/kubernetes.io~configmap/picked/again -> ..data/again
        l777 0:2000 volumes/kubernetes.io~configmap/picked/deep -> ..data/deep
        d2777 0:2000 volumes/kubernetes.io~configmap/settings
        d2755 0:2000 volumes/kubernetes.io~configmap/settings/..TIME
        f640 0:2000 volumes/kubernetes.io~configmap/settings/..TIME/a "1"
        f640 0:2000 volumes/kubernetes.io~configmap/settings/..TIME/b "2"
        f640 0:2000 volumes/kubernetes.io~configmap/settings/..TIME/raw "\0�"
        l777 0:2000 volumes/kubernetes.io~configmap/settings/..data -> ..TIME
        l777 0:2000 volumes/kubernetes.io~configmap/settings/a -> ..data/a
        l777 0:2000 volumes/kubernetes.io~configmap/settings/b -> ..data/b
        l777 0:2000 volumes/kubernetes.io~configmap/settings/raw -> ..data/raw
        d755 0:0 volumes/kubernetes.io~downward-api
        d3777 0:2000 volumes/kubernetes.io~downward-api/self mounted
        d2755 0:2000 volumes/kubernetes.io~downward-api/self/..TIME
        f444 0:2000 volumes/kubernetes.io~downward-api/self/..TIME/cpu "250"
        f644 0:2000 volumes/kubernetes.io~downward-api/self/..TIME/labels "app=\"web\""
        l777 0:2000 volumes/kubernetes.io~downward-api/self/..data -> ..TIME
        l777 0:2000 volumes/kubernetes.io~downward-api/self/cpu -> ..data/cpu
        l777 0:2000 volumes/kubernetes.io~downward-api/self/labels -> ..data/labels
        d755 0:0 volumes/kubernetes.io~empty-dir
        d3777 0:2000 volumes/kubernetes.io~empty-dir/fast mounted
        d2777 0:2000 volumes/kubernetes.io~empty-dir/scratch
        d755 0:0 volumes/kubernetes.io~projected
        d3777 0:2000 volumes/kubernetes.io~projected/all mounted
        d2755 0:2000 volumes/kubernetes.io~projected/all/..TIME
        f644 0:2000 volumes/kubernetes.io~projected/all/..TIME/b "2"
        f644 0:2000 volumes/kubernetes.io~projected/all/..TIME/name "web-1"
        f644 0:2000 volumes/kubernetes.io~projected/all/..TIME/password "hunter2"
        f640 1000:2000 volumes/kubernetes.io~projected/all/..TIME/token "token 1 of /api/v1/namespaces/shop/serviceaccounts/robot/token for [\"bank\"] \"u1\""
        l777 0:2000 volumes/kubernetes.io~projected/all/..data -> ..TIME
        l777 0:2000 volumes/kubernetes.io~projected/all/b -> ..data/b
        d755 0:2000 volumes/kubernetes.io~projected/all/in
        d755 0:0 volumes/kubernetes.io~projected/all/in/scratch
        l777 0:2000 volumes/kubernetes.io~projected/all/name -> ..data/name
        l777 0:2000 volumes/kubernetes.io~projected/all/password -> ..data/password
        l777 0:2000 volumes/kubernetes.io~projected/all/token -> ..data/token
        d755 0:0 volumes/kubernetes.io~secret
        d3777 0:2000 volumes/kubernetes.io~secret/key mounted
        d2755 0:2000 volumes/kubernetes.io~secret/key/..TIME
        f440 0:2000 volumes/kubernetes.io~secret/key/..TIME/password "hunter2"
        l777 0:2000 volumes/kubernetes.io~secret/key/..data -> ..TIME
        l777 0:2000 volumes/kubernetes.io~secret/key/password -> ..data/password
        d3777 0:2000 volumes/kubernetes.io~secret/none mounted
        d2755 0:2000 volumes/kubernetes.io~secret/none/..TIME
        l777 0:2000 volumes/kubernetes.io~secret/none/..data -> ..TIME"#]],
    );

    // Nothing changed: nothing is written, and the token is the same one.
    let before = tree(&bed.pod_dir());
    let data = bed.pod_dir().join("volumes/kubernetes.io~configmap/settings/..data");
    let link = fs::read_link(&data).unwrap();
    bed.prepare(&pod).await;
    assert_eq!(before, tree(&bed.pod_dir()));
    assert_eq!((link, 1), (fs::read_link(&data).unwrap(), bed.tokens.load(Ordering::Relaxed)));

    bed.volumes.clean_up("u1").await.unwrap();
    bed.volumes.clean_up("u1").await.unwrap();
    assert_eq!(tree(&bed.root.join("node")), "d755 0:0 pods");
}

#[tokio::test]
#[ignore = "needs root"]
async fn files_change_together() {
    let bed = Bed::new("change");
    bed.put("configmaps/settings", json!({"data": {"a": "1", "b": "2", "dir.x": "3"}}));
    let items = json!([{"key": "a", "path": "a"}, {"key": "b", "path": "d/b"}]);
    let some = json!({"name": "some", "configMap": {"name": "settings", "optional": true, "items": items}});
    let all = json!({"name": "all", "configMap": {"name": "settings", "optional": true}});
    let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [some, all]}));
    let dir = bed.pod_dir().join("volumes/kubernetes.io~configmap");
    bed.prepare(&pod).await;
    check(
        &tree(&dir),
        expect![[r#"
        d777 0:0 all
        d755 0:0 all/..TIME
        f644 0:0 all/..TIME/a "1"
        f644 0:0 all/..TIME/b "2"
        f644 0:0 all/..TIME/dir.x "3"
        l777 0:0 all/..data -> ..TIME
        l777 0:0 all/a -> ..data/a
        l777 0:0 all/b -> ..data/b
        l777 0:0 all/dir.x -> ..data/dir.x
        d777 0:0 some
        d755 0:0 some/..TIME
        f644 0:0 some/..TIME/a "1"
        d755 0:0 some/..TIME/d
        f644 0:0 some/..TIME/d/b "2"
        l777 0:0 some/..data -> ..TIME
        l777 0:0 some/a -> ..data/a
        l777 0:0 some/d -> ..data/d"#]],
    );

    bed.put("configmaps/settings", json!({"data": {"a": "one", "c": "4"}}));
    // As an agent leaves it that is killed while it writes.
    fs::create_dir(dir.join("all/..2020_01_01_00_00_00.1")).unwrap();
    symlink("..2020_01_01_00_00_00.1", dir.join("all/..data_tmp")).unwrap();
    check(&bed.prepare(&pod).await, expect!["made"]);
    check(
        &tree(&dir),
        expect![[r#"
        d777 0:0 all
        d755 0:0 all/..TIME
        f644 0:0 all/..TIME/a "one"
        f644 0:0 all/..TIME/c "4"
        l777 0:0 all/..data -> ..TIME
        l777 0:0 all/a -> ..data/a
        l777 0:0 all/c -> ..data/c
        d777 0:0 some
        d755 0:0 some/..TIME
        f644 0:0 some/..TIME/a "one"
        l777 0:0 some/..data -> ..TIME
        l777 0:0 some/a -> ..data/a"#]],
    );

    // It is deleted, which an optional one may be: the files go too.
    bed.objects.lock().unwrap().clear();
    bed.prepare(&pod).await;
    check(
        &tree(&dir),
        expect![[r#"
        d777 0:0 all
        d755 0:0 all/..TIME
        l777 0:0 all/..data -> ..TIME
        d777 0:0 some
        d755 0:0 some/..TIME
        l777 0:0 some/..data -> ..TIME"#]],
    );
}

#[tokio::test]
#[ignore = "needs root"]
async fn what_cannot_change_is_settled() {
    let bed = Bed::new("settled");
    bed.put("configmaps/fixed", json!({"data": {"a": "1"}, "immutable": true}));
    bed.put("configmaps/open", json!({"data": {"a": "1"}}));
    let mut told = String::new();
    for (what, volume) in [
        ("emptyDir", json!({"emptyDir": {}})),
        ("hostPath", json!({"hostPath": {"path": "/"}})),
        ("immutable", json!({"configMap": {"name": "fixed"}})),
        ("config map", json!({"configMap": {"name": "open"}})),
        ("missing", json!({"configMap": {"name": "none", "optional": true}})),
        (
            "labels",
            json!({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
        ),
        ("projected", json!({"projected": {"sources": [{"configMap": {"name": "fixed"}}]}})),
        ("token", json!({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})),
    ] {
        let mut named = volume;
        named["name"] = "v".into();
        let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [named]}));
        writeln!(told, "{what}: {}", bed.prepare(&pod).await).unwrap();
        bed.volumes.clean_up("u1").await.unwrap();
    }
    check(
        &told,
        expect![[r#"
            emptyDir: made, and settled
            hostPath: made, and settled
            immutable: made, and settled
            config map: made
            missing: made
            labels: made
            projected: made, and settled
            token: made
        "#]],
    );
}

#[tokio::test]
#[ignore = "needs root"]
async fn what_cannot_be_made_says_why() {
    let bed = Bed::new("why");
    bed.put("configmaps/small", json!({"data": {"a": "1"}}));
    bed.put("configmaps/up", json!({"data": {"a": "1"}}));
    let big = "x".repeat(900 << 10);
    bed.put("configmaps/big", json!({"data": {"x": big}}));
    let forbidden =
        "secrets \"theirs\" is forbidden: no relationship found between node 'n1' and this object";
    bed.put(
        "secrets/theirs",
        json!({"kind": "Status", "status": "Failure", "code": 403, "message": forbidden}),
    );
    let at = |path: &str| json!({"configMap": {"name": "up", "items": [{"key": "a", "path": path}]}});
    let many: Vec<Value> = (0..20)
        .map(|at| json!({"configMap": {"name": "big", "items": [{"key": "x", "path": format!("x{at}")}]}}))
        .collect();
    let volumes = [
        json!({"configMap": {"name": "none"}}),
        json!({"secret": {"secretName": "none"}}),
        json!({"secret": {"secretName": "theirs"}}),
        json!({"secret": {"secretName": "theirs", "optional": true}}),
        json!({"configMap": {"name": "small", "items": [{"key": "b", "path": "b"}]}}),
        at("../../etc/cron.d/x"),
        at("/etc/cron.d/x"),
        at("..data"),
        at("a/../../b"),
        at(""),
        at("."),
        at(&"x".repeat(300)),
        json!({"projected": {"sources": many}}),
        json!({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.containers"}}]}}),
        json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "x", "name": "y"}}]}}),
        json!({"persistentVolumeClaim": {"claimName": "data"}}),
        json!({"csi": {"driver": "d"}}),
        json!({"nfs": {"server": "s", "path": "/"}}),
        json!({"image": {"reference": "i"}}),
        json!({"ephemeral": {}}),
        json!({"emptyDir": {"medium": "HugePages"}}),
        json!({"hostPath": {"path": "/var/log/../../etc"}}),
        json!({"hostPath": {"path": "etc"}}),
        json!({"hostPath": {"path": "/none", "type": "Pipe"}}),
        json!({}),
    ];
    let mut told = String::new();
    for mut volume in volumes {
        volume["name"] = "v".into();
        let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [volume]}));
        writeln!(told, "{}", bed.prepare(&pod).await).unwrap();
    }
    for name in ["..", "a/b", "/etc", "", "."] {
        let volume = json!({"name": name, "emptyDir": {}});
        let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [volume]}));
        writeln!(told, "{}", bed.prepare(&pod).await).unwrap();
    }
    for uid in ["..", "a/b", "../..", "", "/"] {
        writeln!(told, "{uid:?}: {:?}", bed.volumes.clean_up(uid).await.map_err(|it| it.to_string()))
            .unwrap();
    }
    check(
        &told,
        expect![[r#"
        MountVolume.SetUp failed for volume "v" : configmap "none" not found
        MountVolume.SetUp failed for volume "v" : secret "none" not found
        MountVolume.SetUp failed for volume "v" : secret "theirs": secrets "theirs" is forbidden: no relationship found between node 'n1' and this object
        MountVolume.SetUp failed for volume "v" : secret "theirs": secrets "theirs" is forbidden: no relationship found between node 'n1' and this object
        MountVolume.SetUp failed for volume "v" : references non-existent configmap key: b (configmap "small")
        MountVolume.SetUp failed for volume "v" : invalid path: must not contain '..': ../../etc/cron.d/x
        MountVolume.SetUp failed for volume "v" : invalid path: must be relative path: /etc/cron.d/x
        MountVolume.SetUp failed for volume "v" : invalid path: must not start with '..': ..data
        MountVolume.SetUp failed for volume "v" : invalid path: must not contain '..': a/../../b
        MountVolume.SetUp failed for volume "v" : invalid path: must not be empty: 
        MountVolume.SetUp failed for volume "v" : invalid path: must not be empty: .
        MountVolume.SetUp failed for volume "v" : invalid path: filenames must be less than or equal to 255 characters: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        MountVolume.SetUp failed for volume "v" : its files exceed 16777216 bytes in total
        MountVolume.SetUp failed for volume "v" : unsupported fieldPath: spec.containers
        MountVolume.SetUp failed for volume "v" : a projected source clusterTrustBundle is not supported by this node
        MountVolume.SetUp failed for volume "v" : volume type persistentVolumeClaim is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and projected
        MountVolume.SetUp failed for volume "v" : volume type csi is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and projected
        MountVolume.SetUp failed for volume "v" : volume type nfs is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and projected
        MountVolume.SetUp failed for volume "v" : volume type image is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and projected
        MountVolume.SetUp failed for volume "v" : volume type ephemeral is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and projected
        MountVolume.SetUp failed for volume "v" : emptyDir medium "HugePages" is not supported by this node: it supports the disk ("") and "Memory"
        MountVolume.SetUp failed for volume "v" : invalid path: must not contain '..': /var/log/../../etc
        MountVolume.SetUp failed for volume "v" : invalid path: must be an absolute path: etc
        MountVolume.SetUp failed for volume "v" : Pipe is an invalid volume type
        MountVolume.SetUp failed for volume "v" : volume type unknown is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and projected
        MountVolume.SetUp failed for volume ".." : invalid path: must be a single path component: ..
        MountVolume.SetUp failed for volume "a/b" : invalid path: must be a single path component: a/b
        MountVolume.SetUp failed for volume "/etc" : invalid path: must be a single path component: /etc
        MountVolume.SetUp failed for volume "" : invalid path: must be a single path component: 
        MountVolume.SetUp failed for volume "." : invalid path: must be a single path component: .
        "..": Err("invalid path: must be a single path component: ..")
        "a/b": Err("invalid path: must be a single path component: a/b")
        "../..": Err("invalid path: must be a single path component: ../..")
        "": Err("invalid path: must be a single path component: ")
        "/": Err("invalid path: must be a single path component: /")
    "#]],
    );
    assert_eq!(tree(&bed.root.join("node/pods")), "d750 0:0 u1");
}

#[tokio::test]
#[ignore = "needs root"]
async fn paths_of_the_machine_are_what_they_say() {
    let bed = Bed::new("host");
    let host = bed.root.join("host");
    fs::create_dir(&host).unwrap();
    fs::create_dir(host.join("dir")).unwrap();
    fs::write(host.join("file"), "").unwrap();
    symlink("dir", host.join("to-dir")).unwrap();
    symlink("nowhere", host.join("dangling")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        host.join("block"),
        rustix::fs::FileType::BlockDevice,
        rustix::fs::Mode::RUSR,
        rustix::fs::makedev(7, 0),
    )
    .unwrap();
    let kinds =
        ["", "Directory", "File", "Socket", "CharDevice", "BlockDevice", "DirectoryOrCreate", "FileOrCreate"];
    let mut told = String::new();
    for path in ["dir", "file", "to-dir", "dangling", "socket", "block", "none/deep", "none", "/dev/null"] {
        let path = host.join(path);
        for kind in kinds {
            let volume = json!({"name": "v", "hostPath": {"path": path, "type": kind}});
            let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [volume]}));
            let made = bed.prepare(&pod).await;
            let made = made.strip_prefix("MountVolume.SetUp failed for volume \"v\" : ").unwrap_or("yes");
            writeln!(told, "{} is {kind:?}: {made}", bed.without_root(path.to_str().unwrap())).unwrap();
        }
    }
    check(
        &told,
        expect![[r#"
        ROOT/host/dir is "": yes
        ROOT/host/dir is "Directory": yes
        ROOT/host/dir is "File": hostPath type check failed: ROOT/host/dir is not a file
        ROOT/host/dir is "Socket": hostPath type check failed: ROOT/host/dir is not a socket file
        ROOT/host/dir is "CharDevice": hostPath type check failed: ROOT/host/dir is not a character device
        ROOT/host/dir is "BlockDevice": hostPath type check failed: ROOT/host/dir is not a block device
        ROOT/host/dir is "DirectoryOrCreate": yes
        ROOT/host/dir is "FileOrCreate": hostPath type check failed: ROOT/host/dir is not a file
        ROOT/host/file is "": yes
        ROOT/host/file is "Directory": hostPath type check failed: ROOT/host/file is not a directory
        ROOT/host/file is "File": yes
        ROOT/host/file is "Socket": hostPath type check failed: ROOT/host/file is not a socket file
        ROOT/host/file is "CharDevice": hostPath type check failed: ROOT/host/file is not a character device
        ROOT/host/file is "BlockDevice": hostPath type check failed: ROOT/host/file is not a block device
        ROOT/host/file is "DirectoryOrCreate": hostPath type check failed: ROOT/host/file is not a directory
        ROOT/host/file is "FileOrCreate": yes
        ROOT/host/to-dir is "": yes
        ROOT/host/to-dir is "Directory": yes
        ROOT/host/to-dir is "File": hostPath type check failed: ROOT/host/to-dir is not a file
        ROOT/host/to-dir is "Socket": hostPath type check failed: ROOT/host/to-dir is not a socket file
        ROOT/host/to-dir is "CharDevice": hostPath type check failed: ROOT/host/to-dir is not a character device
        ROOT/host/to-dir is "BlockDevice": hostPath type check failed: ROOT/host/to-dir is not a block device
        ROOT/host/to-dir is "DirectoryOrCreate": yes
        ROOT/host/to-dir is "FileOrCreate": hostPath type check failed: ROOT/host/to-dir is not a file
        ROOT/host/dangling is "": yes
        ROOT/host/dangling is "Directory": hostPath type check failed: ROOT/host/dangling is not a directory
        ROOT/host/dangling is "File": hostPath type check failed: ROOT/host/dangling is not a file
        ROOT/host/dangling is "Socket": hostPath type check failed: ROOT/host/dangling is not a socket file
        ROOT/host/dangling is "CharDevice": hostPath type check failed: ROOT/host/dangling is not a character device
        ROOT/host/dangling is "BlockDevice": hostPath type check failed: ROOT/host/dangling is not a block device
        ROOT/host/dangling is "DirectoryOrCreate": cannot create the directory ROOT/host/dangling: File exists (os error 17)
        ROOT/host/dangling is "FileOrCreate": yes
        ROOT/host/socket is "": yes
        ROOT/host/socket is "Directory": hostPath type check failed: ROOT/host/socket is not a directory
        ROOT/host/socket is "File": hostPath type check failed: ROOT/host/socket is not a file
        ROOT/host/socket is "Socket": yes
        ROOT/host/socket is "CharDevice": hostPath type check failed: ROOT/host/socket is not a character device
        ROOT/host/socket is "BlockDevice": hostPath type check failed: ROOT/host/socket is not a block device
        ROOT/host/socket is "DirectoryOrCreate": hostPath type check failed: ROOT/host/socket is not a directory
        ROOT/host/socket is "FileOrCreate": hostPath type check failed: ROOT/host/socket is not a file
        ROOT/host/block is "": yes
        ROOT/host/block is "Directory": hostPath type check failed: ROOT/host/block is not a directory
        ROOT/host/block is "File": hostPath type check failed: ROOT/host/block is not a file
        ROOT/host/block is "Socket": hostPath type check failed: ROOT/host/block is not a socket file
        ROOT/host/block is "CharDevice": hostPath type check failed: ROOT/host/block is not a character device
        ROOT/host/block is "BlockDevice": yes
        ROOT/host/block is "DirectoryOrCreate": hostPath type check failed: ROOT/host/block is not a directory
        ROOT/host/block is "FileOrCreate": hostPath type check failed: ROOT/host/block is not a file
        ROOT/host/none/deep is "": yes
        ROOT/host/none/deep is "Directory": hostPath type check failed: ROOT/host/none/deep is not a directory
        ROOT/host/none/deep is "File": hostPath type check failed: ROOT/host/none/deep is not a file
        ROOT/host/none/deep is "Socket": hostPath type check failed: ROOT/host/none/deep is not a socket file
        ROOT/host/none/deep is "CharDevice": hostPath type check failed: ROOT/host/none/deep is not a character device
        ROOT/host/none/deep is "BlockDevice": hostPath type check failed: ROOT/host/none/deep is not a block device
        ROOT/host/none/deep is "DirectoryOrCreate": yes
        ROOT/host/none/deep is "FileOrCreate": hostPath type check failed: ROOT/host/none/deep is not a file
        ROOT/host/none is "": yes
        ROOT/host/none is "Directory": yes
        ROOT/host/none is "File": hostPath type check failed: ROOT/host/none is not a file
        ROOT/host/none is "Socket": hostPath type check failed: ROOT/host/none is not a socket file
        ROOT/host/none is "CharDevice": hostPath type check failed: ROOT/host/none is not a character device
        ROOT/host/none is "BlockDevice": hostPath type check failed: ROOT/host/none is not a block device
        ROOT/host/none is "DirectoryOrCreate": yes
        ROOT/host/none is "FileOrCreate": hostPath type check failed: ROOT/host/none is not a file
        /dev/null is "": yes
        /dev/null is "Directory": hostPath type check failed: /dev/null is not a directory
        /dev/null is "File": hostPath type check failed: /dev/null is not a file
        /dev/null is "Socket": hostPath type check failed: /dev/null is not a socket file
        /dev/null is "CharDevice": yes
        /dev/null is "BlockDevice": hostPath type check failed: /dev/null is not a block device
        /dev/null is "DirectoryOrCreate": hostPath type check failed: /dev/null is not a directory
        /dev/null is "FileOrCreate": hostPath type check failed: /dev/null is not a file
    "#]],
    );
    let made = fs::symlink_metadata(host.join("none/deep")).unwrap();
    assert!(made.is_dir() && !made.file_type().is_fifo());
}

#[tokio::test]
#[ignore = "needs root"]
async fn mounts_of_a_container() {
    let bed = Bed::new("mounts");
    bed.put("configmaps/settings", json!({"data": {"a": "1"}}));
    fs::create_dir_all(bed.root.join("host/sub")).unwrap();
    let host = bed.root.join("host");
    let pod = pod(json!({
        "containers": [{"name": "c", "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "scratch", "mountPath": "/part", "subPath": "new/er"},
            {"name": "scratch", "mountPath": "/named", "subPathExpr": "$(POD)/x"},
            {"name": "scratch", "mountPath": "/unknown", "subPathExpr": "$(WHO)/x"},
            {"name": "scratch", "mountPath": "/up", "subPathExpr": "$(UP)/etc"},
            {"name": "scratch", "mountPath": "/abs", "subPath": "/etc"},
            {"name": "settings", "mountPath": "/settings"},
            {"name": "settings", "mountPath": "/a", "subPath": "a"},
            {"name": "host", "mountPath": "/host", "readOnly": true, "mountPropagation": "HostToContainer"},
            {"name": "host", "mountPath": "/both", "mountPropagation": "Bidirectional"},
            {"name": "shared", "mountPath": "/shared", "mountPropagation": "Bidirectional"},
            {"name": "shared", "mountPath": "/received", "mountPropagation": "HostToContainer"},
            {"name": "logs", "mountPath": "/logs"},
            {"name": "machine", "mountPath": "/machine", "readOnly": true},
            {"name": "host", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "IfPossible"},
            {"name": "host", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "Enabled"},
            {"name": "none", "mountPath": "/none"},
        ]}],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "host", "hostPath": {"path": host}},
            {"name": "shared", "emptyDir": {}},
            {"name": "logs", "hostPath": {"path": "/var/log/pods/"}},
            {"name": "machine", "hostPath": {"path": "/"}},
        ],
    }));
    fs::create_dir(bed.root.join("private")).unwrap();
    rustix::mount::mount_bind(bed.root.join("private"), &host).unwrap();
    rustix::mount::mount_change(&host, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
    bed.prepare(&pod).await;
    check(
        &bed.mounts(&pod).await,
        expect![[r#"
        /scratch <- ROOT/node/pods/u1/volumes/kubernetes.io~empty-dir/scratch rw PROPAGATION_PRIVATE
        /part <- ROOT/node/pods/u1/volume-subpaths/scratch/c-1/0 rw PROPAGATION_PRIVATE
        /named <- ROOT/node/pods/u1/volume-subpaths/scratch/c-2/0 rw PROPAGATION_PRIVATE
        /unknown! volumeMount "scratch" of container "c-3": missing value for WHO
        /up! volumeMount "scratch" of container "c-4": invalid path: must not contain '..': ../../etc
        /abs! volumeMount "scratch" of container "c-5": invalid path: must be relative path: /etc
        /settings <- ROOT/node/pods/u1/volumes/kubernetes.io~configmap/settings ro PROPAGATION_PRIVATE
        /a <- ROOT/node/pods/u1/volume-subpaths/settings/c-7/0 ro PROPAGATION_PRIVATE
        /host <- ROOT/host ro PROPAGATION_PRIVATE
        /both! volumeMount "host" of container "c-9": path ROOT/host is mounted on ROOT/host but it is not a shared mount: `mount --make-rshared ROOT/host` on the machine makes it one
        /shared <- ROOT/node/pods/u1/volumes/kubernetes.io~empty-dir/shared rw PROPAGATION_BIDIRECTIONAL
        /received <- ROOT/node/pods/u1/volumes/kubernetes.io~empty-dir/shared rw PROPAGATION_HOST_TO_CONTAINER
        /logs <- ROOT/var-log/pods rw PROPAGATION_PRIVATE
        /machine <- / ro PROPAGATION_PRIVATE
        /machine/var/log <- ROOT/var-log ro PROPAGATION_PRIVATE
        /rro <- ROOT/host ro PROPAGATION_PRIVATE
        /rro! volumeMount "host" of container "c-15": requested recursive read-only mode, but it is not supported by the runtime
        /none! cannot find volume "none" to mount into container "c-16"
    "#]],
    );
    // The same again, as when a container restarts; and what its parts are.
    let again = bed.mounts(&pod).await;
    assert_eq!(again, bed.mounts(&pod).await);
    check(
        &tree(&bed.pod_dir().join("volume-subpaths")),
        expect![[r#"
        d755 0:0 scratch
        d755 0:0 scratch/c-1
        d777 0:0 scratch/c-1/0 mounted
        d755 0:0 scratch/c-2
        d777 0:0 scratch/c-2/0 mounted
        d755 0:0 settings
        d755 0:0 settings/c-7
        f644 0:0 settings/c-7/0 "1""#]],
    );
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_sub_path_stays_in_its_volume() {
    let bed = Bed::new("sub");
    let sub_paths =
        ["out", "out/shadow", "up", "up/x", "fd", "in", "in/file", "dangling", "loop", "file/x", "file"];
    let mounts: Vec<Value> = sub_paths
        .iter()
        .map(|it| json!({"name": "v", "mountPath": format!("/{it}"), "subPath": it}))
        .collect();
    let spec = json!({"containers": [{"name": "c", "volumeMounts": mounts}], "volumes": [{"name": "v", "emptyDir": {}}]});
    let pod = pod(spec);
    bed.prepare(&pod).await;
    let dir = bed.pod_dir().join("volumes/kubernetes.io~empty-dir/v");
    fs::create_dir(bed.root.join("secrets")).unwrap();
    fs::write(bed.root.join("secrets/shadow"), "not yours").unwrap();
    symlink(bed.root.join("secrets"), dir.join("out")).unwrap();
    symlink("../../../../..", dir.join("up")).unwrap();
    symlink("/proc/self/fd", dir.join("fd")).unwrap();
    symlink("real", dir.join("in")).unwrap();
    symlink("nowhere/at/all", dir.join("dangling")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    fs::create_dir(dir.join("real")).unwrap();
    fs::write(dir.join("real/file"), "mine").unwrap();
    fs::write(dir.join("file"), "").unwrap();
    check(
        &bed.mounts(&pod).await,
        expect![[r#"
        /out! volumeMount "v" of container "c-0": failed to prepare subPath: it does not exist, or leads out of its volume
        /out/shadow! volumeMount "v" of container "c-1": failed to prepare subPath: it does not exist, or leads out of its volume
        /up! volumeMount "v" of container "c-2": failed to prepare subPath: it does not exist, or leads out of its volume
        /up/x! volumeMount "v" of container "c-3": failed to prepare subPath: it does not exist, or leads out of its volume
        /fd! volumeMount "v" of container "c-4": failed to prepare subPath: it does not exist, or leads out of its volume
        /in <- ROOT/node/pods/u1/volume-subpaths/v/c-5/0 rw PROPAGATION_PRIVATE
        /in/file <- ROOT/node/pods/u1/volume-subpaths/v/c-6/0 rw PROPAGATION_PRIVATE
        /dangling! volumeMount "v" of container "c-7": failed to prepare subPath: it does not exist, or leads out of its volume
        /loop! volumeMount "v" of container "c-8": failed to prepare subPath: it does not exist, or leads out of its volume
        /file/x! volumeMount "v" of container "c-9": failed to prepare subPath: it does not exist, or leads out of its volume
        /file <- ROOT/node/pods/u1/volume-subpaths/v/c-10/0 rw PROPAGATION_PRIVATE
    "#]],
    );
    check(
        &tree(&bed.pod_dir().join("volume-subpaths")),
        expect![[r#"
        d755 0:0 v
        d755 0:0 v/c-10
        f644 0:0 v/c-10/0 ""
        d755 0:0 v/c-5
        d755 0:0 v/c-5/0 mounted
        f644 0:0 v/c-5/0/file "mine"
        d755 0:0 v/c-6
        f644 0:0 v/c-6/0 "mine""#]],
    );
    check(&tree(&bed.root.join("secrets")), expect![[r#"f644 0:0 shadow "not yours""#]]);
}

/// A container exchanges a directory for a link out of the volume, as fast as it can, while its part is mounted.
#[tokio::test]
#[ignore = "needs root"]
async fn a_link_that_comes_and_goes_leads_nowhere() {
    let bed = Bed::new("race");
    let volume = bed.root.join("volume");
    let outside = bed.root.join("outside");
    fs::create_dir_all(volume.join("a/b")).unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::write(outside.join("b/secret"), "not yours").unwrap();
    symlink(&outside, volume.join("link")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (swapping, at) = (is_over.clone(), volume.clone());
    let swapper = std::thread::spawn(move || {
        while !swapping.load(Ordering::Relaxed) {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let (a, link) = (at.join("a"), at.join("link"));
            rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, link, exchange).unwrap();
        }
    });
    let target = bed.root.join("target");
    let (mut made, mut refused) = (0, 0);
    for _ in 0..100 {
        let opened = super::sub_path::open_sub_path(&volume, Path::new("a/b"));
        match opened.and_then(|it| super::sub_path::bind_mount(&it, &target)) {
            Ok(()) => {
                made += 1;
                assert!(!target.join("secret").exists(), "the link was followed");
                mount_table::unmount_point(&target).unwrap();
            }
            Err(_) => refused += 1,
        }
    }
    is_over.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(made + refused, 100);
}

#[tokio::test]
#[ignore = "needs root"]
async fn what_is_left_is_deleted_and_nothing_beside_it() {
    let bed = Bed::new("remove");
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]);
    let pod = pod(json!({"containers": [{"name": "c"}], "volumes": volumes}));
    bed.prepare(&pod).await;
    let outside = bed.root.join("outside");
    fs::create_dir_all(outside.join("dir")).unwrap();
    fs::write(outside.join("dir/file"), "stays").unwrap();
    let dir = bed.pod_dir().join("volumes/kubernetes.io~empty-dir/v");
    symlink(&outside, dir.join("link")).unwrap();
    symlink(outside.join("dir/file"), dir.join("file-link")).unwrap();
    // A mount of the machine's in the volume, shared with it, and one on top of another.
    fs::create_dir(dir.join("bound")).unwrap();
    fs::create_dir(outside.join("sub")).unwrap();
    rustix::mount::mount_bind(&outside, &outside).unwrap();
    rustix::mount::mount_change(&outside, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    rustix::mount::mount_bind(outside.join("dir"), outside.join("sub")).unwrap();
    rustix::mount::mount_bind_recursive(&outside, dir.join("bound")).unwrap();
    rustix::mount::mount_bind(outside.join("dir"), dir.join("bound")).unwrap();
    // Deeper than a path can be, and than there are files to open.
    let mut at =
        rustix::fs::openat(rustix::fs::CWD, &dir, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    for _ in 0..1000 {
        rustix::fs::mkdirat(&at, "deep", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "deep", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    }
    fs::write(dir.join(".deep-1"), "in the way").unwrap();

    bed.volumes.clean_up("u1").await.unwrap();
    assert_eq!(tree(&bed.root.join("node")), "d755 0:0 pods");
    check(
        &tree(&outside),
        expect![[r#"
        d755 0:0 dir
        f644 0:0 dir/file "stays"
        d755 0:0 sub mounted
        f644 0:0 sub/file "stays""#]],
    );
}

#[tokio::test]
async fn a_path_of_the_machine_that_does_not_answer_holds_up_nobody() {
    use std::time::Duration;
    let (looks, soon) = (super::host_path::HostPathChecks::default(), Duration::from_millis(20));
    let begun: Arc<AtomicU32> = Arc::default();
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let counted = begun.clone();
    let hangs = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        wait.recv().ok();
        Ok(())
    };
    let told = looks.run(Path::new("/gone"), soon, hangs).await.unwrap_err().to_string();
    expect!["hostPath /gone does not respond: its disk or file server may be gone"].assert_eq(&told);
    for _ in 0..10 {
        let counted = begun.clone();
        let looked = looks.run(Path::new("/gone"), soon, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(looked.await.is_err(), "it is asked once, until it answers");
    }
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    let long = Duration::from_secs(600);
    looks.run(Path::new("/here"), long, || Ok(())).await.unwrap();
    answer.send(()).unwrap();
    looks.run(Path::new("/gone"), long, || Ok(())).await.unwrap();
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_host_path_through_a_symbolic_link_is_resolved_where_mounts_propagate() {
    let bed = Bed::new("linked");
    let real = bed.root.join("real");
    fs::create_dir(&real).unwrap();
    rustix::mount::mount_bind(&real, &real).unwrap();
    rustix::mount::mount_change(&real, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    symlink("real", bed.root.join("link")).unwrap();
    let pod = pod(json!({
        "containers": [{"name": "c", "volumeMounts": [
            {"name": "host", "mountPath": "/both", "mountPropagation": "Bidirectional"},
            {"name": "host", "mountPath": "/received", "mountPropagation": "HostToContainer"},
            {"name": "host", "mountPath": "/plain"},
        ]}],
        "volumes": [{"name": "host", "hostPath": {"path": bed.root.join("link"), "type": "Directory"}}],
    }));
    bed.prepare(&pod).await;
    let mounts = bed.mounts(&pod).await;
    rustix::mount::unmount(&real, rustix::mount::UnmountFlags::empty()).unwrap();
    check(
        &mounts,
        expect![[r#"
        /both <- ROOT/real rw PROPAGATION_BIDIRECTIONAL
        /received <- ROOT/real rw PROPAGATION_HOST_TO_CONTAINER
        /plain <- ROOT/link rw PROPAGATION_PRIVATE
    "#]],
    );
}
