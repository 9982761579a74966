//! Volumes with generated files: ConfigMap, Secret, downward API and projected.

use super::*;
use crate::volumes::empty_dir::EmptyDirMedium;
use crate::volumes::empty_dir_medium;
use crate::volumes::payload::PodContext;

#[tokio::test]
#[ignore = "needs root"]
async fn files_of_every_kind() {
    let bed = Bed::new();
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

    bed.volumes.clean_up_pod("u1").await.unwrap();
    bed.volumes.clean_up_pod("u1").await.unwrap();
    assert_eq!(tree(&bed.root.join("node")), "d755 0:0 pods");
}

#[tokio::test]
#[ignore = "needs root"]
async fn files_change_together() {
    let bed = Bed::new();
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
    let bed = Bed::new();
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
        bed.volumes.clean_up_pod("u1").await.unwrap();
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
    let bed = Bed::new();
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
        writeln!(told, "{uid:?}: {:?}", bed.volumes.clean_up_pod(uid).await.map_err(|it| it.to_string()))
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

/// Upstream: `calculateEmptyDirMemorySize`.
#[test]
fn an_empty_dir_in_memory_is_no_larger_than_the_limit_of_the_pods_cgroup() {
    let bytes_max = |size_limit: Value, spec: Value| {
        let pod = json!({"metadata": {"name": "web"}, "spec": spec});
        let source = serde_json::from_value(json!({"medium": "Memory", "sizeLimit": size_limit})).unwrap();
        let allocatable = ResourceQuantities::from([("memory".into(), Quantity::from_units(1000))]);
        let api = serde_json::from_value(pod.clone()).unwrap();
        let context = PodContext {
            pod: &api,
            pod_json: &pod,
            addresses: PodAddresses::default(),
            allocatable: &allocatable,
        };
        match empty_dir_medium(&source, &context) {
            Ok(EmptyDirMedium::Memory { bytes_max: Some(bytes) }) => bytes,
            other => panic!("{other:?}"),
        }
    };
    let limited = |memory: &str| json!({"name": memory, "resources": {"limits": {"memory": memory}}});
    let unlimited = json!({"name": "unlimited"});
    assert_eq!(bytes_max(Value::Null, json!({"containers": [limited("30"), limited("40")]})), 70);
    assert_eq!(bytes_max(json!("50"), json!({"containers": [limited("30"), limited("40")]})), 50);
    // The cgroup of a pod has no limit if one of the containers has none.
    assert_eq!(bytes_max(Value::Null, json!({"containers": [limited("30"), unlimited]})), 1000);
    let pod_level = json!({"limits": {"memory": "60"}});
    assert_eq!(bytes_max(Value::Null, json!({"containers": [unlimited], "resources": pod_level})), 60);
    assert_eq!(bytes_max(Value::Null, json!({"containers": [limited("5000")]})), 1000);
}
