//! `muster up` as whoever starts it meets it: what it says when it cannot begin, and that it goes on where it was killed.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use expect_test::expect;
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far longer than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

/// Where in an SQLite file it says of which format its tables are.
const FORMAT_AT: usize = 60;

/// A directory that is removed at the end of a test that passes.
struct TestDir(TempDir);

impl TestDir {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        self.0.disable_cleanup(std::thread::panicking());
    }
}

fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A `muster up` that is ready.
struct Up {
    child: Child,
    line: String,
}

impl Up {
    fn new(dir: &Path, nodes: &str) -> Self {
        Self::with(dir, nodes, &[])
    }

    fn with(dir: &Path, nodes: &str, flags: &[&str]) -> Self {
        let mut up = muster(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", nodes]);
        up.args(flags).arg("--data-dir").arg(dir).stdout(Stdio::piped());
        Self::spawn(up)
    }

    /// Starts the command, whose standard output is piped, and waits until it is ready.
    fn spawn(mut up: Command) -> Self {
        let mut child = up.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{line}");
        Self { child, line }
    }
}

/// As by `kill -9`.
impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The code it ended with, and its last words.
fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    // Log lines begin with the time.
    let err: String = err.split_inclusive('\n').filter(|it| !it.contains("Z  WARN ")).collect();
    format!("{} {out}{err}", output.status.code().unwrap_or(-1))
}

/// Ends by itself, or is given up.
fn run(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if PATIENCE < began.elapsed() {
            let _ = child.kill();
            let mut err = String::new();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("{command:?} did not end, and said: {err}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    said(&child.wait_with_output().unwrap())
}

#[test]
fn whoever_cannot_begin_says_why_and_what_to_do() {
    let root = TestDir::new();
    let at = |name: &str| root.0.path().join(name);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();

    // A good store, for the bad ones to be made of.
    let good = at("good.db");
    {
        let _up = Up::new(&at("good"), "0");
        let backup = muster(&["backup", "--data-dir"]).arg(at("good")).arg(&good).output().unwrap();
        assert!(backup.status.success(), "{}", said(&backup));
    }
    let store = |dir: &str, content: &[u8]| {
        fs::create_dir(at(dir)).unwrap();
        fs::write(at(dir).join("muster.db"), content).unwrap();
    };
    let good = fs::read(good).unwrap();
    let mut newer = good.clone();
    newer[FORMAT_AT..FORMAT_AT + 4].copy_from_slice(&999_u32.to_be_bytes());
    store("newer", &newer);
    store("foreign", b"a letter to somebody else");
    store("damaged", &good[..good.len() / 2]);
    fs::write(at("file"), "").unwrap();
    fs::create_dir(at("home")).unwrap();
    fs::write(at("home/letter"), "").unwrap();
    fs::create_dir(at("keys")).unwrap();
    fs::write(at("keys/ca.crt"), "").unwrap();
    fs::write(at("keys/ca.key"), "no key").unwrap();
    // What has certificates had a cluster.
    fs::create_dir(at("lost")).unwrap();
    fs::write(at("lost/ca.key"), "").unwrap();
    fs::create_dir(at("half")).unwrap();
    fs::write(at("half/ca.crt"), "").unwrap();
    for dir in ["keys", "half"] {
        fs::write(at(dir).join("muster.db"), &good).unwrap();
        fs::copy(at("good/encryption.key"), at(dir).join("encryption.key")).unwrap();
    }

    let mut told = String::new();
    let mut check = |dir: &str, args: &[&str]| {
        let mut command = muster(&["up", "--sim-nodes", "0", "--data-dir"]);
        command.arg(at(dir)).args(args);
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        writeln!(told, "{dir} {}: {}", args.join(" "), run(command)).unwrap();
    };
    check("file", &[]);
    check("file/below", &[]);
    check("home", &[]);
    check("foreign", &[]);
    check("newer", &[]);
    check("damaged", &[]);
    check("keys", &[]);
    check("lost", &[]);
    check("half", &[]);
    check("new", &["--listen", &taken]);
    check("new", &["--listen", "192.0.2.1:0"]);
    check("new", &["--kubeconfig", "/nowhere/kubeconfig"]);
    check("new", &["--audit-log", "/nowhere/audit.log"]);
    check("new", &["--sim-nodes", "many"]);
    let told = told.replace(root.0.path().to_str().unwrap(), "DIR").replace(&taken, "TAKEN");
    expect![[r#"
        file : 1 muster: DIR/file or one of its parents is not a directory: choose another --data-dir

        file/below : 1 muster: DIR/file/below or one of its parents is not a directory: choose another --data-dir

        home : 1 muster: DIR/home has files in it that are not muster's: choose another --data-dir

        foreign : 1 muster: the data file DIR/foreign/muster.db is damaged: it is not an SQLite database. Restore a backup with `muster restore --replace`. Without one, --new-cluster begins an empty cluster: its nodes then end all pods

        newer : 1 muster: the data file DIR/newer/muster.db has format 999, and this version reads formats up to 2. Use the version of muster that wrote it, or a later one

        damaged : 1 muster: the data file DIR/damaged/muster.db is damaged: database disk image is malformed. Restore a backup with `muster restore --replace`. Without one, --new-cluster begins an empty cluster: its nodes then end all pods

        keys : 1 muster: set up the certificates: use the certificates in DIR/keys: if they are damaged, remove ca.crt and ca.key: PEM error: malformedframing

        lost : 1 muster: the data file DIR/lost/muster.db is missing, and this data directory had a cluster. Restore a backup with `muster restore --replace`, or put the file back. Without one, --new-cluster begins an empty cluster: its nodes then end all pods

        half : 1 muster: set up the certificates: ca.key is missing in DIR/half, but ca.crt exists: restore the key from a backup, or remove ca.crt too to generate a new CA, after which every client and node needs new credentials

        new --listen TAKEN: 1 muster: TAKEN is in use: is another server running? Choose another with --listen

        new --listen 192.0.2.1:0: 1 muster: listen on 192.0.2.1:0: choose an address of this machine with --listen: Cannot assign requested address (os error 99)

        new --kubeconfig /nowhere/kubeconfig: 1 muster: choose another --kubeconfig: /nowhere/kubeconfig cannot be written: No such file or directory (os error 2)

        new --audit-log /nowhere/audit.log: 1 muster: choose another --audit-log: /nowhere/audit.log cannot be written: No such file or directory (os error 2)

        new --sim-nodes many: 2 error: the argument '--sim-nodes <N>' cannot be used multiple times

        Usage: muster up [OPTIONS]

        For more information, try '--help'.

    "#]].assert_eq(&told);
}

/// Sets the owner of a directory, and gives it back to the user of the test on drop, so that it can be removed.
struct ForeignOwner<'a>(&'a Path);

impl<'a> ForeignOwner<'a> {
    fn new(dir: &'a Path, uid: u32) -> Self {
        std::os::unix::fs::chown(dir, Some(uid), None)
            .expect("only root can change the owner of a directory");
        Self(dir)
    }
}

impl Drop for ForeignOwner<'_> {
    fn drop(&mut self) {
        let _ = std::os::unix::fs::chown(self.0, Some(0), None);
    }
}

#[test]
#[ignore = "needs root"]
fn a_data_directory_of_another_user_is_refused() {
    let root = TestDir::new();
    let owned = ForeignOwner::new(root.0.path(), 65534);
    let mut command = muster(&["up", "--sim-nodes", "0", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(root.0.path());
    let told = run(command).replace(root.0.path().to_str().unwrap(), "DIR");
    expect![[r#"
        1 muster: DIR belongs to another user (UID 65534), who could replace its keys: change its owner, or choose another --data-dir
    "#]]
    .assert_eq(&told);
    assert_eq!(fs::read_dir(root.0.path()).unwrap().count(), 0, "nothing is created in it");
    drop(owned);
}

#[test]
fn the_mode_of_a_data_directory_is_repaired() {
    let root = TestDir::new();
    fs::set_permissions(root.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut up = muster(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", "0", "--data-dir"]);
    let log = root.0.path().with_extension("log");
    up.arg(root.0.path()).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    drop(Up::spawn(up));
    assert_eq!(fs::metadata(root.0.path()).unwrap().permissions().mode() & 0o7777, 0o700);
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("other users could write to the data directory (mode 0777)"), "{said}");
    fs::remove_file(log).unwrap();
}

/// The key of the Secrets is in a file outside of the data directory, and the flag that names it is missing.
#[test]
fn encryption_without_the_key_file_creates_no_key() {
    let root = TestDir::new();
    let at = |name: &str| root.0.path().join(name);
    drop(Up::new(&at("d"), "0"));
    fs::rename(at("d/encryption.key"), at("k")).unwrap();
    for flags in [&[][..], &["--rotate"], &["--decrypt"]] {
        let mut command = muster(&["encrypt", "--data-dir"]);
        command.arg(at("d")).args(flags);
        let told = run(command);
        assert!(
            told.starts_with("1 muster: ") && told.contains("are encrypted with key "),
            "{flags:?}: {told}"
        );
        assert!(!at("d/encryption.key").exists(), "{flags:?}: a key file was created");
    }
    let mut command = muster(&["encrypt", "--rotate", "--data-dir"]);
    command.arg(at("d")).arg("--encryption-key-file").arg(at("k"));
    let told = run(command);
    assert!(told.starts_with("0 encrypted "), "{told}");
}

#[test]
fn a_data_directory_has_one_process() {
    let root = TestDir::new();
    let mut told = String::new();
    let mut check = |expected_of: &[&str], file: Option<&Path>| {
        let mut command = muster(expected_of);
        command.arg("--data-dir").arg(root.0.path()).args(file);
        writeln!(told, "{}: {}", expected_of.join(" "), run(command)).unwrap();
    };
    check(&["down"], None);
    let up = Up::new(root.0.path(), "0");
    let pid = up.child.id().to_string();
    check(&["up", "--sim-nodes", "0", "--listen", "127.0.0.1:0"], None);
    check(&["server", "--listen", "127.0.0.1:0"], None);
    check(&["restore"], Some(&root.0.path().join("none.db")));
    check(&["down"], None);
    drop(up);
    check(&["down"], None);
    let told = told.replace(root.0.path().to_str().unwrap(), "DIR").replace(&pid, "PID");
    expect![[r#"
        down: 1 muster: DIR is not the data directory of a `muster up`: choose another --data-dir

        up --sim-nodes 0 --listen 127.0.0.1:0: 1 muster: another muster (process PID) is running on DIR: stop that one, or choose another --data-dir

        server --listen 127.0.0.1:0: 1 muster: another muster (process PID) is running on DIR: stop that one, or choose another --data-dir

        restore: 1 muster: another muster (process PID) is running on DIR: stop that one, or choose another --data-dir

        down: 1 muster: muster (process PID) is still running on DIR: stop it with Ctrl-C or SIGTERM

        down: 0 nothing is running on DIR. `muster up --data-dir DIR` continues with its data; to delete the cluster, remove the directory

    "#]].assert_eq(&told);
}

#[test]
fn it_says_how_many_nodes_there_will_be_if_nobody_does() {
    let root = TestDir::new();
    let mut up = muster(&["up", "--listen", "127.0.0.1:0", "--data-dir"]);
    // Without a containerd, whoever runs it.
    up.env("PATH", "");
    let mut child = up.arg(root.0.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let told = format!("{line}{}", said(&child.wait_with_output().unwrap()));
    // What is missing depends on the machine.
    let (told, missing) = told.split_once(" (").unwrap();
    assert!(missing.contains("containerd"), "{missing}");
    expect![[r#"
        ready: 3 simulated nodes; export KUBECONFIG=DIR/kubeconfig
        0 muster: neither --nodes nor --sim-nodes is given: starting 3 simulated nodes"#]]
    .assert_eq(&told.replace(root.0.path().to_str().unwrap(), "DIR"));
}

async fn client(dir: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

async fn create_set(client: &Client, name: &str) {
    let labels = json!({"app": name});
    let containers = json!([{"name": "c", "image": "example.com/daemon:1"}]);
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    let request =
        Request::post(SETS).header("Content-Type", "application/json").body(set.to_string().into_bytes());
    client.request::<Value>(request.unwrap()).await.unwrap();
}

async fn runs(client: &Client, set: &str, count: u64) {
    let began = Instant::now();
    while get(client, &format!("{SETS}/{set}")).await["status"]["numberReady"] != json!(count) {
        assert!(began.elapsed() < PATIENCE, "{set} has not {count} pods that are ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Nodes and pods, each with what would be another if it had been made or started anew.
async fn who_is_there(client: &Client, app: &str) -> String {
    let mut there = Vec::new();
    for node in get(client, NODES).await["items"].as_array().unwrap() {
        there.push(format!("{} {}", node["metadata"]["name"], node["metadata"]["uid"]));
    }
    for pod in get(client, &format!("{PODS}?labelSelector=app%3D{app}")).await["items"].as_array().unwrap() {
        let container = &pod["status"]["containerStatuses"][0];
        let (uid, started) = (&pod["metadata"]["uid"], &container["state"]["running"]["startedAt"]);
        there.push(format!("{} {uid} {} {started}", pod["metadata"]["name"], container["restartCount"]));
    }
    there.sort();
    there.join("\n")
}

#[tokio::test]
async fn after_a_kill_it_goes_on_and_nothing_is_made_anew() {
    let root = TestDir::new();
    let up = Up::new(root.0.path(), "3");
    let line = up.line.clone();
    let before = {
        let client = client(root.0.path()).await;
        create_set(&client, "first").await;
        runs(&client, "first", 3).await;
        who_is_there(&client, "first").await
    };
    drop(up);
    let up = Up::new(root.0.path(), "3");
    assert_eq!(up.line, line);
    let client = client(root.0.path()).await;
    // A second set shows that every part works again.
    create_set(&client, "second").await;
    runs(&client, "second", 3).await;
    assert_eq!(who_is_there(&client, "first").await, before);
}

#[tokio::test]
async fn a_new_data_directory_has_no_secret_in_clear_text() {
    let root = TestDir::new();
    let up = Up::new(root.0.path(), "1");
    let client = client(root.0.path()).await;
    let (secret, public) = ("correct-horse-battery", "a-value-of-a-config-map");
    for (path, name, field, value) in
        [("secrets", "s", "stringData", secret), ("configmaps", "m", "data", public)]
    {
        let object = json!({"metadata": {"name": name}, field: {"key": value}}).to_string().into_bytes();
        let request = Request::post(format!("/api/v1/namespaces/default/{path}"));
        let request = request.header("Content-Type", "application/json").body(object).unwrap();
        client.request::<Value>(request).await.unwrap();
    }
    let stored = get(&client, "/api/v1/namespaces/default/secrets/s").await;
    let base64 = stored["data"]["key"].as_str().unwrap().to_owned();
    drop(up);
    let files: Vec<u8> = ["muster.db", "muster.db-wal"]
        .iter()
        .flat_map(|it| fs::read(root.0.path().join(it)).unwrap())
        .collect();
    let contains = |text: &str| files.windows(text.len()).any(|it| it == text.as_bytes());
    assert_eq!([contains(public), contains(secret), contains(&base64)], [true, false, false]);
    assert!(root.0.path().join("encryption.key").exists());
}

#[tokio::test]
async fn events_show_which_pods_pod_security_refuses_and_other_sets_run() {
    let root = TestDir::new();
    let flags = ["--pod-security-default", "baseline", "--pod-security-exempt-namespaces", "kube-system"];
    let _up = Up::with(root.0.path(), "1", &flags);
    let client = client(root.0.path()).await;
    create_set(&client, "plain").await;
    runs(&client, "plain", 1).await;
    let labels = json!({"app": "host"});
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "host"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "example.com/daemon:1"}]},
            },
        },
    });
    let exempt = SETS.replace("default", "kube-system");
    for path in [SETS, exempt.as_str()] {
        let request =
            Request::post(path).header("Content-Type", "application/json").body(set.to_string().into_bytes());
        client.request::<Value>(request.unwrap()).await.unwrap();
    }
    let began = Instant::now();
    let event = loop {
        let events = get(&client, "/api/v1/namespaces/default/events").await;
        let failed =
            events["items"].as_array().unwrap().iter().find(|it| it["reason"] == "FailedCreate").cloned();
        match failed {
            Some(event) => break event,
            None => assert!(began.elapsed() < PATIENCE, "there is no event: {events}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let why = r#"violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"#;
    assert!(event["message"].as_str().unwrap().contains(why), "{event}");
    while get(&client, &format!("{exempt}/host")).await["status"]["numberReady"] != json!(1) {
        assert!(began.elapsed() < PATIENCE, "the exempt set has no pod");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
