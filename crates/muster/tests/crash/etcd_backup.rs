//! Backup, restore and migration of clusters on a real etcd, the program `etcd` on PATH.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::sync::atomic::{AtomicU64, Ordering};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::*;
use crate::cluster::etcd::Etcd;

/// What `content` compares: objects that no controller of an idle server changes.
const LISTS: [&str; 10] = [
    "/api/v1/namespaces",
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/controllerrevisions",
    "/apis/muster.dev/v1alpha1/rolloutpolicies",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
];

const KEY_FILES: [&str; 6] = ["ca.crt", "ca.key", "nodes-ca.crt", "nodes-ca.key", "sa.key", "encryption.key"];

/// Creates a namespace with a Secret, a ConfigMap, a Service, a DaemonSet, its ControllerRevision and a policy.
async fn fill(client: &Client) {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (path, object) in [
        ("/api/v1/namespaces", json!({"metadata": {"name": "team"}})),
        (
            "/api/v1/namespaces/team/secrets",
            json!({"metadata": {"name": "password"}, "stringData": {"password": "correct horse"}}),
        ),
        ("/api/v1/namespaces/team/configmaps", json!({"metadata": {"name": "settings"}, "data": {"k": "v"}})),
        (
            "/api/v1/namespaces/team/services",
            json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
        ),
        (
            "/apis/apps/v1/namespaces/team/daemonsets",
            json!({
                "metadata": {"name": "agent"},
                "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
            }),
        ),
        (
            "/apis/apps/v1/namespaces/team/controllerrevisions",
            json!({
                "metadata": {"name": "agent-1"},
                "revision": 1,
                // A resourceVersion that is not that of the object.
                "data": {"metadata": {"resourceVersion": "17"}, "spec": {"template": template}},
            }),
        ),
        (
            "/apis/muster.dev/v1alpha1/namespaces/team/rolloutpolicies",
            json!({
                "metadata": {"name": "careful"},
                "spec": {"selector": {"matchLabels": {"app": "a"}}, "steps": [{"name": "all", "nodes": "100%"}]},
            }),
        ),
    ] {
        create(client, path, &object).await;
    }
    // A controller creates both in a new namespace.
    for path in [
        "/api/v1/namespaces/team/serviceaccounts",
        "/api/v1/namespaces/team/configmaps?fieldSelector=metadata.name=kube-root-ca.crt",
    ] {
        while list(client, path).await["items"].as_array().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let request = http::Request::post(path)
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(object).unwrap())
        .unwrap();
    client.request(request).await.unwrap_or_else(|error| panic!("create {object} at {path}: {error}"))
}

async fn list(client: &Client, path: &str) -> Value {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

/// All objects but those with the label `load`, without resourceVersion, status and managed fields. Returns the resourceVersion of the last list
/// too.
async fn content(client: &Client) -> (BTreeMap<String, Value>, Revision) {
    let mut found = BTreeMap::new();
    let mut revision = 0;
    for path in LISTS {
        let objects = list(client, path).await;
        revision = number(objects["metadata"]["resourceVersion"].as_str());
        for object in objects["items"].as_array().unwrap() {
            let mut object = object.clone();
            // The controller of policies writes it when it sees the policy.
            object.as_object_mut().unwrap().remove("status");
            let metadata = object["metadata"].as_object_mut().unwrap();
            let version = metadata.remove("resourceVersion").unwrap();
            assert!(number(version.as_str()) <= revision);
            assert!(metadata.contains_key("uid"));
            metadata.remove("managedFields");
            let name =
                format!("{path} {}/{}", metadata.get("namespace").unwrap_or(&Value::Null), metadata["name"]);
            // Every server that starts in a new data directory issues a certificate.
            let is_record = metadata["name"].as_str().unwrap().starts_with("muster-issued-certificates-");
            if !is_record && metadata.get("labels").is_none_or(|it| it.get("load").is_none()) {
                found.insert(name, object);
            }
        }
    }
    (found, revision)
}

/// Fails with the objects that differ.
fn assert_same(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>) {
    let names: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differs = |name: &&String| found.get(*name) != expected.get(*name);
    let text = |it: Option<&Value>| {
        it.map_or_else(|| "none".to_owned(), |it| it.to_string().chars().take(500).collect())
    };
    let describe =
        |it: &String| format!("{it}: {}, expected {}", text(found.get(it)), text(expected.get(it)));
    let different: Vec<String> = names.into_iter().filter(differs).map(describe).collect();
    assert!(
        different.is_empty(),
        "{} objects differ: {:#?}",
        different.len(),
        &different[..different.len().min(5)]
    );
}

async fn check_secret(client: &Client) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "team");
    assert_eq!(secrets.get("password").await.unwrap().data.unwrap()["password"].0, b"correct horse");
}

/// A client with the certificate in `kubeconfig`, for another server of the same cluster.
async fn client_of(kubeconfig: &Kubeconfig, server: &Server) -> Client {
    let mut kubeconfig = kubeconfig.clone();
    let current = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let url = current.clusters[0].cluster.as_ref().unwrap().server.clone();
    kubeconfig.clusters[0].cluster.as_mut().unwrap().server = url;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Writes an object again and again until the task is aborted.
fn keep_writing(client: &Client) -> tokio::task::JoinHandle<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    tokio::spawn(async move {
        for count in 0_u64.. {
            let patch = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "steady", "labels": {"load": "yes"}},
                "data": {"count": count.to_string()},
            });
            maps.patch("steady", &PatchParams::apply("test"), &Patch::Apply(patch)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
}

/// Runs a command with these arguments. Returns whether it succeeded, and its output.
fn muster(dir: &Path, args: &[&str], flags: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_muster")).args(args).args(flags).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).replace(&dir.display().to_string(), "DIR"))
}

fn same_keys(one: &Path, two: &Path) {
    for name in KEY_FILES {
        assert_eq!(fs::read(one.join(name)).unwrap(), fs::read(two.join(name)).unwrap(), "{name}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_backup_of_etcd_under_load_is_restored_to_etcd_and_to_sqlite() {
    let (etcd, other_etcd) = (Etcd::start(), Etcd::start());
    let dir = fresh_dir("etcd-backup");
    let first = dir.join("first");
    let server = Server::start_with(&first, &etcd.flags());
    let client = server.client().await;
    fill(&client).await;
    let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    // The second of two objects is never ahead of the first one, and at most one write behind.
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let map = |name: &str, count: u64| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("load".to_owned(), "yes".to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("count".to_owned(), count.to_string())].into()),
        ..ConfigMap::default()
    };
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &map(name, 0)).await.unwrap();
    }
    let written = Arc::new(AtomicU64::new(0));
    let writer = {
        let (maps, written) = (maps.clone(), written.clone());
        tokio::spawn(async move {
            for count in 1.. {
                for name in ["a", "b"] {
                    maps.replace(name, &PostParams::default(), &map(name, count)).await.unwrap();
                }
                written.store(count, Ordering::Relaxed);
            }
        })
    };
    while written.load(Ordering::Relaxed) < 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let file = dir.join("backup.db");
    let backup = ["backup", "--data-dir", text(&first), text(&file)];
    let before = written.load(Ordering::Relaxed);
    let said = muster(&dir, &backup, &etcd.flags());
    let after = written.load(Ordering::Relaxed);
    assert!(
        said.0 && said.1.starts_with("backed up ") && said.1.ends_with(" to DIR/backup.db\n"),
        "{said:?}"
    );
    assert!(before < after, "nothing was written during the backup");
    let counts = async |client: &Client| {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
        let count = |it: ConfigMap| it.data.unwrap()["count"].parse::<u64>().unwrap();
        (count(maps.get("a").await.unwrap()), count(maps.get("b").await.unwrap()))
    };
    let is_consistent = |(a, b): (u64, u64)| before <= b && (a == b || a == b + 1) && a <= after + 1;
    writer.abort();
    let (expected, revision) = content(&client).await;
    assert!(expected.len() > 20);
    let said = muster(&dir, &backup, &etcd.flags());
    assert_eq!(
        said,
        (false, "muster: DIR/backup.db already exists. Choose another name, or move it away\n".into())
    );
    let secret = b"Y29ycmVjdCBob3JzZQ";
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(secret.len()).any(|it| it == secret), "the Secret is in the backup in clear");
    server.stop();

    // Into another etcd, with the server token.
    let token = dir.join("token");
    fs::copy(first.join("server-token"), &token).unwrap();
    let (second, third) = (dir.join("second"), dir.join("third"));
    let restore = ["restore", "--data-dir", text(&second), text(&file)];
    let said = muster(&dir, &restore, &other_etcd.flags());
    assert!(
        !said.0 && said.1.contains("does not exist: name the file with the token with --token-file"),
        "{said:?}"
    );
    let flags = other_etcd.flags_with_token(&token);
    let said = muster(&dir, &restore, &flags);
    assert!(said.0 && said.1.contains(" objects of DIR/backup.db to /muster/v1 in etcd; "), "{said:?}");
    let server = Server::start_with(&second, &flags);
    let client = client_of(&kubeconfig, &server).await;
    let (restored, at) = content(&client).await;
    assert_same(&restored, &expected);
    assert!(revision < at && 1_000_000_000 < at, "{revision}, {at}");
    check_secret(&client).await;
    assert!(is_consistent(counts(&client).await));
    same_keys(&first, &second);
    let events =
        Api::<ConfigMap>::all(client.clone()).watch(&WatchParams::default(), &revision.to_string()).await;
    match events.unwrap().boxed().next().await {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        other => panic!("the watch should be told to list again: {other:?}"),
    }
    // A restored cluster takes writes: addresses and resourceVersions are not used twice.
    let service = json!({"metadata": {"name": "new"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let service = create(&client, "/api/v1/namespaces/team/services", &service).await;
    assert!(at < number(service["metadata"]["resourceVersion"].as_str()));
    let old = &expected["/api/v1/services \"team\"/\"web\""];
    assert_ne!(service["spec"]["clusterIP"], old["spec"]["clusterIP"]);
    // Not while a server runs, and not without --replace.
    let said = muster(&dir, &restore, &flags);
    assert!(
        !said.0 && said.1.contains("etcd already has a cluster below the prefix /muster/v1: add --replace"),
        "{said:?}"
    );
    let replace = [&restore[..], &["--replace"]].concat();
    let writer = keep_writing(&client);
    let said = muster(&dir, &replace, &flags);
    writer.abort();
    assert!(!said.0 && said.1.contains("checking for running servers: waiting 12 s"), "{said:?}");
    assert!(said.1.contains("servers are running on etcd: "), "{said:?}");
    assert_eq!(content(&client).await.0.len(), expected.len() + 1, "nothing was changed");
    server.stop();
    let said = muster(&dir, &replace, &flags);
    assert!(said.0, "{said:?}");
    let server = Server::start_with(&second, &flags);
    let (replaced, again) = content(&client_of(&kubeconfig, &server).await).await;
    assert_same(&replaced, &expected);
    assert!(at + 1_000_000_000 < again, "{at}, {again}");
    server.stop();

    // Into a data directory that has nothing but the server token.
    fs::create_dir_all(&third).unwrap();
    fs::copy(&token, third.join("server-token")).unwrap();
    let said = muster(&dir, &["restore", "--data-dir", text(&third), text(&file)], &[]);
    assert!(said.0 && said.1.contains("clients must list again"), "{said:?}");
    let server = Server::start(&third);
    let client = client_of(&kubeconfig, &server).await;
    assert_same(&content(&client).await.0, &expected);
    check_secret(&client).await;
    assert!(is_consistent(counts(&client).await));
    same_keys(&first, &third);
    server.stop();
    fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_cluster_moves_to_etcd_and_back() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-migrate");
    let data = dir.join("data");
    let migrate = ["migrate", "--data-dir", text(&data)];
    let server = Server::start(&data);
    let client = server.client().await;
    fill(&client).await;
    let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let (expected, revision) = content(&client).await;
    let said = muster(&dir, &migrate, &etcd.flags());
    assert!(!said.0 && said.1.contains("is running on DIR/data: stop that one"), "{said:?}");
    server.stop();
    let said = muster(&dir, &["encrypt", "--data-dir", text(&data)], &[]);
    assert!(said.0, "{said:?}");
    let keys = KEY_FILES.map(|it| fs::read(data.join(it)).unwrap());
    let said = muster(&dir, &migrate, &etcd.flags());
    assert!(said.0 && said.1.starts_with("moved "), "{said:?}");
    assert!(!data.join("muster.db").exists() && data.join("muster.db.moved").exists());
    let refused = Server::spawn(&data, &[]).err().unwrap();
    assert!(refused.contains("was moved to etcd: start the server with --etcd"), "{refused}");
    // As if it had been interrupted before the last step.
    fs::rename(data.join("muster.db.moved"), data.join("muster.db")).unwrap();
    let said = muster(&dir, &migrate, &etcd.flags());
    assert!(said.0 && said.1.starts_with("completed the earlier migration from DIR/data"), "{said:?}");
    // A database that has changed since is not renamed: its last writes are not in etcd.
    let changed = dir.join("changed");
    copy_dir(&data, &changed);
    fs::rename(changed.join("muster.db.moved"), changed.join("muster.db")).unwrap();
    let server = Server::start(&changed);
    create(
        &server.client().await,
        "/api/v1/namespaces/team/configmaps",
        &json!({"metadata": {"name": "late"}}),
    )
    .await;
    server.stop();
    let said = muster(&dir, &["migrate", "--data-dir", text(&changed)], &etcd.flags());
    assert!(!said.0 && said.1.contains("etcd already has a cluster below the prefix"), "{said:?}");
    assert!(changed.join("muster.db").exists());

    let server = Server::start_with(&data, &etcd.flags());
    let client = client_of(&kubeconfig, &server).await;
    let (moved, at) = content(&client).await;
    assert_same(&moved, &expected);
    assert!(revision < at && at < revision + 1_000_000, "{revision}, {at}");
    check_secret(&client).await;
    create(&client, "/api/v1/namespaces/team/configmaps", &json!({"metadata": {"name": "born-in-etcd"}}))
        .await;
    let (expected, at) = content(&client).await;
    assert_eq!(KEY_FILES.map(|it| fs::read(data.join(it)).unwrap()), keys);
    // Another data directory, because the server has locked its own.
    let (elsewhere, token) = (dir.join("elsewhere"), data.join("server-token"));
    let back = ["migrate", "--to-sqlite", "--data-dir", text(&elsewhere)];
    let writer = keep_writing(&client);
    let said = muster(&dir, &back, &etcd.flags_with_token(&token));
    writer.abort();
    assert!(!said.0 && said.1.contains("servers are running on etcd: "), "{said:?}");
    server.stop();
    let said = muster(&dir, &back, &etcd.flags_with_token(&token));
    assert!(said.0 && said.1.contains("Start the server without --etcd"), "{said:?}");
    let refused = Server::spawn(&data, &etcd.flags()).err().unwrap();
    assert!(refused.contains("was moved from etcd to a data directory"), "{refused}");
    let said = muster(&dir, &["backup", "--data-dir", text(&data), text(&dir.join("late"))], &etcd.flags());
    assert!(!said.0 && said.1.contains("was moved from etcd to a data directory"), "{said:?}");

    let server = Server::start(&elsewhere);
    let client = client_of(&kubeconfig, &server).await;
    let (back, now) = content(&client).await;
    assert_same(&back, &expected);
    assert!(at <= now && now < at + 1_000_000, "{at}, {now}");
    check_secret(&client).await;
    same_keys(&data, &elsewhere);
    create(&client, "/api/v1/namespaces/team/configmaps", &json!({"metadata": {"name": "born-in-sqlite"}}))
        .await;
    let (expected, at) = content(&client).await;
    server.stop();
    // And once more, in the place of what the first migration left in etcd.
    let migrate = ["migrate", "--data-dir", text(&elsewhere), "--token-file", text(&token)];
    let said = muster(&dir, &migrate, &etcd.flags());
    assert!(said.0, "{said:?}");
    let server = Server::start_with(&data, &etcd.flags());
    let (moved, now) = content(&client_of(&kubeconfig, &server).await).await;
    assert_same(&moved, &expected);
    assert!(at < now, "{at}, {now}");
    server.stop();
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
#[ignore = "needs etcd"]
fn the_commands_for_etcd_say_what_is_missing() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-missing");
    let (data, empty, file) = (dir.join("data"), dir.join("empty"), dir.join("backup.db"));
    Server::start(&data).stop();
    assert!(muster(&dir, &["backup", "--data-dir", text(&data), text(&file)], &[]).0);
    let refused = |args: &[&str], flags: &[&str]| {
        let (is_done, said) = muster(&dir, args, flags);
        assert!(!is_done, "{said}");
        said
    };
    assert_eq!(
        refused(&["migrate", "--data-dir", text(&data)], &[]),
        "muster: name the members of etcd with --etcd, such as --etcd https://10.0.0.1:2379\n"
    );
    assert_eq!(
        refused(&["migrate", "--data-dir", text(&empty)], &etcd.flags()),
        "muster: DIR/empty has no state to move: choose another --data-dir\n"
    );
    let no_cluster =
        "muster: etcd has no cluster below the prefix /muster/v1: choose another --etcd or --etcd-prefix\n";
    assert_eq!(refused(&["backup", text(&dir.join("new.db"))], &etcd.flags()), no_cluster);
    let migrate_back = ["migrate", "--to-sqlite", "--data-dir", text(&empty)];
    assert_eq!(refused(&migrate_back, &etcd.flags()), no_cluster);
    let restore = ["restore", "--data-dir", text(&empty), text(&file)];
    assert_eq!(
        refused(&restore, &etcd.flags()),
        "muster: DIR/empty/ca.key does not exist: name the data directory that has the certificates and keys of the cluster with \
         --data-dir\n"
    );
    // Nothing was written: the prefix is still empty.
    let said = muster(&dir, &["migrate", "--data-dir", text(&data)], &etcd.flags());
    assert!(said.0, "{said:?}");
    let wrong = dir.join("wrong");
    muster_files::write_private_file(&wrong, "w".repeat(32).as_bytes()).unwrap();
    let said = refused(&["backup", text(&dir.join("new.db"))], &etcd.flags_with_token(&wrong));
    assert!(said.starts_with("muster: the server token is wrong: "), "{said}");
    assert!(!dir.join("new.db").exists() && !dir.join("new.db.partial").exists());
    fs::remove_dir_all(&dir).unwrap();
}

/// Root runs the commands in the data directory of the user of a systemd unit, who cannot read the files of root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and etcd"]
async fn root_leaves_the_files_of_a_data_directory_to_its_owner() {
    const OWNER: u32 = 4711;
    let etcd = Etcd::start();
    let dir = fresh_dir("foreign-data-dir");
    let (data, file) = (dir.join("data"), dir.join("backup.db"));
    Server::start(&data).stop();
    let files = || fs::read_dir(&data).unwrap().map(|it| it.unwrap().path());
    files().chain([data.clone()]).for_each(|it| chown(it, Some(OWNER), Some(OWNER)).unwrap());
    let refused = Server::spawn(&data, &[]).err().unwrap();
    assert!(refused.contains("belongs to another user (UID 4711)"), "{refused}");
    let run = |args: &[&str], flags: &[&str]| {
        let said = muster(&dir, &[args, &["--data-dir", text(&data)]].concat(), flags);
        assert!(said.0, "{args:?}: {said:?}");
        let foreign: Vec<_> = files().filter(|it| fs::metadata(it).unwrap().uid() != OWNER).collect();
        assert!(foreign.is_empty(), "{args:?}: {foreign:?}");
    };
    run(&["backup", text(&file)], &[]);
    run(&["restore", "--replace", text(&file)], &[]);
    run(&["encrypt"], &[]);
    run(&["signing-key", "rotate"], &[]);
    run(&["migrate"], &etcd.flags());
    assert!(data.join("server-token").exists());
    run(&["migrate", "--to-sqlite"], &etcd.flags());
    assert!(data.join("muster.db").exists());
    run(&["restore", text(&file)], &[&etcd.flags()[..], &["--etcd-prefix", "/other"]].concat());
    fs::remove_dir_all(&dir).unwrap();
}

/// Number of objects that a killed command has to copy, and their size.
const LARGE_OBJECTS: usize = 1200;
const LARGE_BYTES: usize = 16 << 10;
const KILLS: u32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_killed_migration_or_restore_is_completed_by_running_it_again() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-killed");
    let origin = dir.join("origin");
    let server = Server::start(&origin);
    let client = server.client().await;
    fill(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let create = (0..LARGE_OBJECTS).map(|at| {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(format!("m-{at:04}")), ..ObjectMeta::default() },
            data: Some([("value".to_owned(), "v".repeat(LARGE_BYTES))].into()),
            ..ConfigMap::default()
        };
        let maps = maps.clone();
        async move { maps.create(&PostParams::default(), &map).await.map(drop) }
    });
    let created: Vec<_> = futures::stream::iter(create).buffer_unordered(32).collect().await;
    assert!(created.iter().all(Result::is_ok));
    let (expected, _) = content(&client).await;
    let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    server.stop();
    let file = dir.join("backup.db");
    assert!(muster(&dir, &["backup", "--data-dir", text(&origin), text(&file)], &[]).0);
    let (mut restoring, mut migrations, mut moves_back) = (0, 0, 0);
    for round in 0..=KILLS {
        let data = dir.join(round.to_string());
        copy_dir(&origin, &data);
        let prefix = format!("/killed/{round}");
        let flags = [&etcd.flags()[..], &["--etcd-prefix", &prefix]].concat();
        let migrate = ["migrate", "--data-dir", text(&data)];
        // Restores in odd rounds. A backup of a data directory needs the keys of the directory.
        let restore = ["restore", "--data-dir", text(&data), text(&file)];
        let command = if round.is_multiple_of(2) { &migrate[..] } else { &restore[..] };
        let killed = killed(command, &flags, round);
        migrations += u32::from(killed);
        let said = muster(&dir, &["backup", "--data-dir", text(&data), text(&dir.join("partial"))], &flags);
        if said.1.contains("was interrupted") {
            restoring += 1;
            let refused = Server::spawn(&data, &flags).err().unwrap();
            assert!(refused.contains("a restore or a migration into etcd was interrupted"), "{refused}");
        }
        let _ = fs::remove_file(dir.join("partial"));
        let has_database = data.join("muster.db").exists();
        let said = muster(&dir, command, &flags);
        let is_done = said.1.contains("was moved to etcd") || said.1.contains("already has a cluster");
        assert!(said.0 || is_done, "round {round}: {said:?}");
        if round.is_multiple_of(2) {
            assert!(has_database != is_done, "round {round}: {said:?}");
            assert!(!data.join("muster.db").exists() && data.join("muster.db.moved").exists());
        }
        // Back again. No server has written to etcd, so the command does not wait.
        let target = dir.join(format!("{round}-back"));
        fs::create_dir_all(&target).unwrap();
        fs::copy(data.join("server-token"), target.join("server-token")).unwrap();
        let back = ["migrate", "--to-sqlite", "--data-dir", text(&target)];
        moves_back += u32::from(self::killed(&back, &flags, round));
        let said = muster(&dir, &back, &flags);
        assert!(said.0, "round {round}: {said:?}");
        let server = Server::start(&target);
        let found = content(&client_of(&kubeconfig, &server).await).await.0;
        assert_same(&found, &expected);
        server.stop();
    }
    println!(
        "{migrations} restores and {moves_back} moves to SQLite were killed, {restoring} while they wrote"
    );
    assert!(0 < restoring && 0 < moves_back, "no kill came while a command wrote");
    fs::remove_dir_all(&dir).unwrap();
}

/// Runs a command, and kills it after a part of the time that it usually takes. `true` if it was killed.
fn killed(args: &[&str], flags: &[&str], round: u32) -> bool {
    let mut muster = Command::new(env!("CARGO_BIN_EXE_muster"));
    let muster = muster.args(args).args(flags).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = muster.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(250 * u64::from(round)));
    child.kill().unwrap();
    child.wait().unwrap().signal().is_some()
}

fn copy_dir(from: &Path, to: &Path) {
    muster_files::create_private_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // The reserve is only disk space.
        if entry.file_name() != "reserve" {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
