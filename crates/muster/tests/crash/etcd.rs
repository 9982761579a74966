//! Servers on a real etcd, the program `etcd` on PATH.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ResourceQuota, Service, ServiceAccount};
use muster_etcd::EtcdVersion;

use super::*;
use crate::cluster::etcd::Etcd;

/// Number of kills in `make test`. A start takes longer than on SQLite, because the keys of the cluster are decrypted.
const ROUNDS: u64 = 25;

/// Time within which another server or agent connection has taken over after a server was killed.
pub(super) const FAILOVER_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates the directory `dir`, and a file with a server token in it.
pub(super) fn write_token(dir: &Path) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    let token = dir.join("token");
    muster_files::write_private_file(&token, "t".repeat(32).as_bytes()).unwrap();
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_killed_server_on_etcd_loses_no_acknowledged_write() {
    let etcd = Etcd::start();
    let rounds = std::env::var("MUSTER_TEST_CRASHES").map_or(ROUNDS, |it| it.parse().expect("a number"));
    kill_again_and_again("crash-etcd", &etcd.flags(), rounds).await;
}

/// All of them generate keys, and those of one are used.
#[tokio::test]
#[ignore = "needs etcd"]
async fn servers_that_start_together_on_an_empty_etcd_have_one_ca() {
    const SERVERS: usize = 10;
    let etcd = Etcd::start();
    let dir = fresh_dir("one-ca");
    let token = write_token(&dir);
    let flags = etcd.flags_with_token(&token);
    let servers: Vec<(PathBuf, Server)> = std::thread::scope(|scope| {
        let start = |it: usize| {
            let (dir, flags) = (dir.join(it.to_string()), &flags);
            scope.spawn(move || (dir.clone(), Server::start_with(&dir, flags)))
        };
        let started: Vec<_> = (0..SERVERS).map(start).collect();
        started.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut uids = Vec::new();
    for name in
        ["ca.crt", "ca.key", "nodes-ca.crt", "nodes-ca.key", "sa.key", "encryption.key", "server-token"]
    {
        let first = fs::read(servers[0].0.join(name)).unwrap();
        assert!(servers.iter().all(|(dir, _)| fs::read(dir.join(name)).unwrap() == first), "{name} differs");
    }
    for (_, server) in &servers {
        uids.push(server.cluster_uid().await);
    }
    assert!(uids.iter().all(|it| *it == uids[0]), "{uids:?}");
    // A Secret that one server wrote is read by another one, and etcd does not have it in clear.
    let secrets: Api<Secret> = Api::namespaced(servers[0].1.client().await, "default");
    let secret = Secret {
        metadata: ObjectMeta { name: Some("s".to_owned()), ..ObjectMeta::default() },
        data: Some([("password".to_owned(), ByteString(b"correct horse battery staple".to_vec()))].into()),
        ..Secret::default()
    };
    let created = secrets.create(&PostParams::default(), &secret).await.unwrap();
    for (_, server) in &servers {
        let secrets: Api<Secret> = Api::namespaced(server.client().await, "default");
        assert_eq!(secrets.get("s").await.unwrap(), created, "a read is never older than an answered write");
    }
    let has_clear_text = |path: &Path| {
        let content = fs::read(path).unwrap();
        let encoded = b"Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ";
        content.windows(encoded.len()).any(|it| it == encoded)
    };
    let wal = etcd.dir.path().join("data/member/wal");
    for file in fs::read_dir(&wal).unwrap() {
        assert!(!has_clear_text(&file.unwrap().path()), "the Secret is in etcd's log in clear");
    }
    drop(servers);
    fs::remove_dir_all(&dir).unwrap();
}

/// Every server chooses the lowest free value, so all of them choose the same at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn servers_allocate_no_address_twice() {
    const SERVERS: usize = 3;
    const OBJECTS: usize = 200;
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-addresses");
    let token = write_token(&dir);
    let flags = etcd.flags_with_token(&token);
    let servers: Vec<Server> =
        (0..SERVERS).map(|it| Server::start_with(&dir.join(it.to_string()), &flags)).collect();
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(server.client().await);
    }
    let create = clients.iter().cycle().take(OBJECTS).enumerate().map(|(number, client)| {
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        let service = serde_json::json!({
            "metadata": {"name": format!("s-{number}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        });
        async move {
            services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await
        }
    });
    let created = future::join_all(create).await;
    let failed: Vec<_> = created.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    // Nodes get pod CIDRs when they write themselves.
    let create = clients.iter().cycle().take(OBJECTS).enumerate();
    let create = create.map(|(number, client)| create_as_node(client.clone(), format!("n-{number}")));
    let created = future::join_all(create).await;
    let failed: Vec<_> = created.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    for client in &clients {
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        let services = services.list(&ListParams::default()).await.unwrap();
        let specs: Vec<_> = services.iter().filter_map(|it| it.spec.as_ref()).collect();
        let addresses: Vec<_> = specs.iter().filter_map(|it| it.cluster_ip.clone()).collect();
        let ports: Vec<_> =
            specs.iter().flat_map(|it| it.ports.iter().flatten()).filter_map(|it| it.node_port).collect();
        let nodes: Api<Node> = Api::all(client.clone());
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        let cidrs: Vec<_> = nodes.iter().filter_map(|it| it.spec.as_ref()?.pod_cidr.clone()).collect();
        let distinct = [
            addresses.iter().collect::<BTreeSet<_>>().len(),
            ports.iter().collect::<BTreeSet<_>>().len(),
            cidrs.iter().collect::<BTreeSet<_>>().len(),
        ];
        // The Service `kubernetes` has an address and no node port.
        let expected = [OBJECTS + 1, OBJECTS, OBJECTS];
        assert_eq!([addresses.len(), ports.len(), cidrs.len()], expected);
        assert_eq!(distinct, expected, "a value was allocated twice");
    }
    drop(servers);
    fs::remove_dir_all(&dir).unwrap();
}

/// Each controller runs on the server that holds its Lease. When that server is killed, another one takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn controllers_move_to_another_server_when_theirs_is_killed() {
    const CONTROLLERS: [&str; 11] = [
        "muster-bootstrap-objects",
        "muster-certificate-signing",
        "muster-cluster-roles",
        "muster-disruption",
        "muster-endpoints",
        "muster-garbage-collector",
        "muster-history",
        "muster-namespace-deletion",
        "muster-node-lifecycle",
        "muster-rollout-policy",
        "muster-scheduler",
    ];
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-leaders");
    let token = write_token(&dir);
    let flags = etcd.flags_with_token(&token);
    let first = Server::start_with(&dir.join("first"), &flags);
    let leases = async |server: &Server| -> BTreeMap<String, String> {
        let leases: Api<Lease> = Api::namespaced(server.client().await, "kube-system");
        let leases = leases.list(&ListParams::default()).await.unwrap();
        let holder = |it: &Lease| Some((it.name_any(), it.spec.as_ref()?.holder_identity.clone()?));
        let held = leases.iter().filter_map(holder).filter(|(_, it)| !it.is_empty());
        held.filter(|(name, _)| name.starts_with("muster-")).collect()
    };
    // Waits until one server, other than `not`, holds all Leases.
    let wait_for_holder = async |server: &Server, not: &str| -> String {
        let began = std::time::Instant::now();
        loop {
            let held = leases(server).await;
            let holders: BTreeSet<&String> = held.values().collect();
            if held.keys().eq(CONTROLLERS) && holders.len() == 1 && !holders.iter().any(|it| *it == not) {
                return (*holders.first().unwrap()).clone();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{held:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let leader = wait_for_holder(&first, "").await;
    let second = Server::start_with(&dir.join("second"), &flags);
    assert_eq!(wait_for_holder(&second, "").await, leader, "a second server does not take the Leases over");
    drop(first);
    let began = std::time::Instant::now();
    let next = wait_for_holder(&second, &leader).await;
    let moved_after = began.elapsed();
    println!("the controllers moved within {moved_after:?}");
    assert!(moved_after < FAILOVER_TIMEOUT, "docs/high-availability.md promises less: {moved_after:?}");
    // A server that stops in order releases the Leases, so that the next one need not wait until they expire.
    let third = Server::start_with(&dir.join("third"), &flags);
    second.stop();
    let began = std::time::Instant::now();
    wait_for_holder(&third, &next).await;
    let moved_after = began.elapsed();
    println!("the released controllers moved within {moved_after:?}");
    // A server that is not preferred leaves a free Lease to the others for two seconds.
    assert!(moved_after < Duration::from_secs(6), "the Leases were not released: {moved_after:?}");
    drop(third);
    fs::remove_dir_all(&dir).unwrap();
}

/// Creates a Node as the node itself, which the administrator impersonates.
async fn create_as_node(client: Client, name: String) -> Result<Node, kube::Error> {
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let request = http::Request::post("/api/v1/nodes")
        .header("Content-Type", "application/json")
        .header("Impersonate-User", format!("system:node:{name}"))
        .header("Impersonate-Group", "system:nodes")
        .body(serde_json::to_vec(&node).unwrap())
        .unwrap();
    client.request(request).await
}

#[test]
#[ignore = "needs etcd"]
fn a_server_on_etcd_says_what_is_wrong() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-refused");
    fs::create_dir_all(&dir).unwrap();
    let refused = |name: &str, flags: &[&str]| {
        let said = Server::spawn(&dir.join(name), flags).err().expect("the server refuses to start");
        said.replace(&dir.display().to_string(), "DIR").replace(&etcd.url, "URL")
    };
    let version = etcd_version();
    if version.is_supported() {
        // With a prefix of its own, because the servers below begin with an empty etcd.
        Server::start_with(&dir.join("supported"), &["--etcd", &etcd.url, "--etcd-prefix", "/supported"])
            .stop();
    } else {
        let old = refused("old", &["--etcd", &etcd.url]);
        let expected = format!(
            "muster: open the store on etcd: URL runs etcd {version}, which can lose watch events: upgrade it to 3.5.28, 3.6.9 or \
             later, or accept it for tests with --etcd-any-version\n"
        );
        assert_eq!(old, expected);
    }
    let nobody = refused("nobody", &["--etcd", "http://127.0.0.1:1", "--etcd-any-version"]);
    assert!(
        nobody.starts_with("muster: open the store on etcd: etcd did not respond: no member responds, so check that etcd runs; "),
        "{nobody}"
    );
    let remote = refused("remote", &["--etcd", "http://192.0.2.1:2379"]);
    assert_eq!(
        remote,
        "muster: choose another --etcd: http://192.0.2.1:2379 is not on this machine, so it must use https\n"
    );
    Server::start_with(&dir.join("first"), &etcd.flags()).stop();
    let no_token = refused("second", &etcd.flags());
    assert_eq!(
        no_token,
        "muster: etcd already has a cluster: start this server with its token, in the file that --token-file names. A server of the \
         cluster has it in its data directory as server-token\n"
    );
    let wrong = dir.join("wrong");
    muster_files::write_private_file(&wrong, "w".repeat(32).as_bytes()).unwrap();
    let wrong_token = refused("second", &etcd.flags_with_token(&wrong));
    assert!(wrong_token.starts_with("muster: the server token is wrong: "), "{wrong_token}");
    // The data directory of a cluster on SQLite is not used for another cluster.
    Server::start(&dir.join("sqlite")).stop();
    let token = dir.join("first/server-token");
    let other = refused("sqlite", &[&etcd.flags()[..], &["--token-file", token.to_str().unwrap()]].concat());
    assert_eq!(
        other,
        "muster: DIR/sqlite has the certificates of another cluster than etcd: choose another --data-dir or --etcd-prefix\n"
    );
    let empty_etcd = Etcd::start();
    let sqlite = Server::spawn(&dir.join("sqlite"), &empty_etcd.flags()).err().unwrap();
    assert!(sqlite.contains("has a database of its own, and etcd has no cluster"), "{sqlite}");
    // The cluster in etcd is lost, and its keys are still in the data directory.
    let lost = Server::spawn(&dir.join("first"), &empty_etcd.flags()).err().unwrap();
    assert!(lost.contains("restore a backup of etcd, or begin an empty cluster"), "{lost}");
    let authority = fs::read(dir.join("first/ca.crt")).unwrap();
    let flags = [&empty_etcd.flags()[..], &["--new-cluster"]].concat();
    Server::start_with(&dir.join("first"), &flags).stop();
    assert_eq!(fs::read(dir.join("first/ca.crt")).unwrap(), authority);
    fs::remove_dir_all(&dir).unwrap();
}

/// Returns the version of the program `etcd` on PATH.
fn etcd_version() -> EtcdVersion {
    let output = Command::new("etcd").arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let version = said.lines().find_map(|it| it.strip_prefix("etcd Version: "));
    version.and_then(EtcdVersion::parse).unwrap_or_else(|| panic!("{said}"))
}

/// Servers with different ranges of pod IPs would assign them differently. The range of a cluster is changed by a server
/// that starts while no other one runs.
#[tokio::test]
#[ignore = "needs etcd"]
async fn servers_on_etcd_have_the_same_range_of_pod_ips() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-settings");
    let token = write_token(&dir);
    let flags =
        |range: &'static str| [&etcd.flags_with_token(&token)[..], &["--cluster-cidr", range]].concat();
    let invalid = Server::spawn(&dir.join("first"), &flags("10.250.0.0/30")).err().unwrap();
    assert!(invalid.starts_with("muster: choose another --cluster-cidr: "), "{invalid}");
    let first = Server::start_with(&dir.join("first"), &flags("10.250.0.0/16"));
    let refused = Server::spawn(&dir.join("second"), &etcd.flags_with_token(&token)).err().unwrap();
    let expected = "muster: the servers of this cluster run with --cluster-cidr=10.250.0.0/16, and this one was started with \
                    --cluster-cidr=10.244.0.0/16: start it with --cluster-cidr=10.250.0.0/16. To change the setting, stop all servers, \
                    and start them with the new value\n";
    assert!(refused.ends_with(expected), "{refused}");
    let second = Server::start_with(&dir.join("second"), &flags("10.250.0.0/16"));
    let node = create_as_node(second.client().await, "a".to_owned()).await.unwrap();
    assert_eq!(node.spec.unwrap().pod_cidr.as_deref(), Some("10.250.0.0/24"));
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["token", "create", "--server", "--data-dir"])
        .arg(dir.join("second"))
        .output()
        .unwrap();
    let command = String::from_utf8(output.stderr).unwrap();
    assert!(command.contains("--cluster-cidr=10.250.0.0/16"), "{command}");

    // Killed, as far as other servers can see. It is suspended, and continues when the range has changed.
    signal(&first, "-STOP");
    second.stop();
    let third = Server::start_with(&dir.join("third"), &flags("10.251.0.0/16"));
    let node = create_as_node(third.client().await, "b".to_owned()).await.unwrap();
    assert_eq!(node.spec.unwrap().pod_cidr.as_deref(), Some("10.251.0.0/24"));
    signal(&first, "-CONT");
    let mut first = first;
    let began = std::time::Instant::now();
    while first.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < FAILOVER_TIMEOUT, "the server runs with the old range");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = Server::spawn(&dir.join("first"), &flags("10.250.0.0/16")).err().unwrap();
    assert!(refused.contains("--cluster-cidr=10.251.0.0/16"), "{refused}");
    drop(third);
    fs::remove_dir_all(&dir).unwrap();
}

/// Clients of three servers create and delete Secrets in a namespace with a quota.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_quota_is_never_exceeded_through_three_servers_and_is_exact_at_rest() {
    const HARD: usize = 50;
    const SECRETS_PER_CLIENT: usize = 34;
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-quota");
    let token = write_token(&dir);
    let flags = etcd.flags_with_token(&token);
    let servers: Vec<Server> =
        (0..3).map(|it| Server::start_with(&dir.join(it.to_string()), &flags)).collect();
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(server.client().await);
    }
    let quotas: Api<ResourceQuota> = Api::namespaced(clients[0].clone(), "default");
    let quota =
        serde_json::json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": HARD.to_string()}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let used = async || -> usize {
        let quota = quotas.get("q").await.unwrap();
        let used = quota.status.and_then(|it| it.used?.get("count/secrets").cloned());
        used.map_or(usize::MAX, |it| it.0.parse().unwrap())
    };
    let began = std::time::Instant::now();
    while used().await != 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "the usage is not calculated");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Every event after a create has at most HARD Secrets.
    let secrets: Api<Secret> = Api::namespaced(clients[1].clone(), "default");
    let begin = secrets.list(&ListParams::default()).await.unwrap();
    let from = begin.metadata.resource_version.unwrap();
    let is_done = tokio_util::sync::CancellationToken::new();
    let watching = {
        let (secrets, is_done) = (secrets.clone(), is_done.clone());
        async move {
            let events = secrets.watch(&WatchParams::default(), &from).await.unwrap();
            let mut events = std::pin::pin!(events);
            let (mut count, mut highest) = (begin.items.len(), 0);
            while let Some(Some(event)) = is_done.run_until_cancelled(events.next()).await {
                match event.unwrap() {
                    WatchEvent::Added(_) => count += 1,
                    WatchEvent::Deleted(_) => count -= 1,
                    _ => {}
                }
                highest = highest.max(count);
                assert!(count <= HARD, "{count} Secrets");
            }
            highest
        }
    };
    let writing = async {
        let writes = clients
            .iter()
            .enumerate()
            .flat_map(|(server, client)| (0..2).map(move |it| (server, it, client)));
        let writes = writes.map(|(server, client_number, client)| async move {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
            let (mut created, mut refused) = (0, 0);
            for it in 0..SECRETS_PER_CLIENT {
                let name = format!("s-{server}-{client_number}-{it}");
                let secret = serde_json::json!({"metadata": {"name": name}});
                match secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await {
                    Ok(_) => created += 1,
                    Err(kube::Error::Api(error)) if error.code == 403 => refused += 1,
                    Err(error) => panic!("{error}"),
                }
                // Every third Secret is deleted again.
                if it % 3 == 2 && secrets.delete(&name, &DeleteParams::default()).await.is_ok() {
                    created -= 1;
                }
            }
            (created, refused)
        });
        let outcomes = future::join_all(writes).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_done.cancel();
        outcomes
    };
    let (highest, outcomes) = tokio::join!(watching, writing);
    let (left, refused) = outcomes.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    println!("{left} Secrets are left, {refused} creates were refused, at most {highest} existed");
    assert!(0 < refused && HARD - 5 < highest, "the quota limits the test: {outcomes:?}");
    let began = std::time::Instant::now();
    while used().await != left {
        assert!(began.elapsed() < Duration::from_secs(30), "used {} with {left} Secrets", used().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), left);
    drop(servers);
    fs::remove_dir_all(&dir).unwrap();
}

/// Returns a new token of the default service account.
async fn create_account_token(client: &Client) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let request = accounts.create_token_request("default", &PostParams::default(), &request).await.unwrap();
    request.status.unwrap().token.unwrap()
}

/// Whether a server accepts a service account token.
async fn accepts_token(server: &Server, token: &str) -> bool {
    let review = serde_json::json!({"spec": {"token": token}});
    let reviews: Api<TokenReview> = Api::all(server.client().await);
    let review =
        reviews.create(&PostParams::default(), &serde_json::from_value(review).unwrap()).await.unwrap();
    review.status.unwrap().authenticated == Some(true)
}

/// The servers go on running while the key is replaced. Each command returns when all live servers use the changed keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_rotated_signing_key_is_used_by_all_servers() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-signing-key");
    let token = write_token(&dir);
    let flags = etcd.flags_with_token(&token);
    let servers: Vec<(PathBuf, Server)> = (1..=2)
        .map(|it| {
            let dir = dir.join(it.to_string());
            (dir.clone(), Server::start_with(&dir, &flags))
        })
        .collect();
    let signing_key = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.arg("signing-key").args(arguments).args(&flags).arg("--data-dir").arg(&servers[0].0);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Its Lease stays.
    let killed = Server::start_with(&dir.join("killed"), &flags);
    signal(&killed, "-KILL");
    let old = create_account_token(&servers[0].1.client().await).await;
    let rotated = signing_key(&["rotate"]);
    let key_ids = || {
        signing_key(&["list"]).lines().skip(1).map(|it| it.split(' ').next().unwrap().to_owned()).collect()
    };
    let ids: Vec<String> = key_ids();
    assert_eq!(
        rotated,
        format!(
            "key {} signs new tokens\nkey {} is still accepted: `muster signing-key remove {}` removes it\n",
            ids[0], ids[1], ids[1]
        )
    );
    let signed_by = async |server: &Server| {
        let token = create_account_token(&server.client().await).await;
        let header = token.split('.').next().unwrap().to_owned();
        let header = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, header).unwrap();
        let header: serde_json::Value = serde_json::from_slice(&header).unwrap();
        (header["kid"].as_str().unwrap().to_owned(), token)
    };
    for (_, server) in &servers {
        let (key, new) = signed_by(server).await;
        assert_eq!(key, ids[0], "the new key does not sign");
        for (_, server) in &servers {
            assert!(accepts_token(server, &new).await && accepts_token(server, &old).await);
        }
    }
    assert_eq!(
        signing_key(&["remove", &ids[1]]),
        format!("removed key {}: the tokens that it has signed are invalid\n", ids[1])
    );
    for (_, server) in &servers {
        assert!(!accepts_token(server, &old).await, "the old key is still accepted");
    }
    assert_eq!(key_ids(), [ids[0].clone()]);
    let files = servers.iter().map(|(dir, _)| fs::read(dir.join("sa.key")).unwrap()).collect::<BTreeSet<_>>();
    assert_eq!(files.len(), 1, "the copies of the key differ");
    drop(servers);
    fs::remove_dir_all(&dir).unwrap();
}

/// The URL for clients in the test of `--advertise`, and its host.
const ADVERTISED_URL: &str = "https://api.example.test:6443";
const ADVERTISED_HOST: &str = "api.example.test";

/// Returns the UID of the cluster, from the server at `address`. Fails if its certificate is not valid for `host`. The
/// kubeconfig must have the advertised URL.
async fn read_cluster_uid(kubeconfig: &Path, address: SocketAddr, host: &str) -> Result<String, kube::Error> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    assert_eq!(config.cluster_url, ADVERTISED_URL);
    config.cluster_url = format!("https://{address}").parse().unwrap();
    config.tls_server_name = Some(host.to_owned());
    config.default_retry = false;
    let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
    Ok(namespaces.get("kube-system").await?.uid().unwrap())
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The printed command starts another server, which has the same URL for clients.
#[tokio::test]
#[ignore = "needs etcd"]
async fn the_command_for_another_server_starts_one() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-join");
    let addresses = [free_address(), free_address()];
    let listen = addresses.map(|it| it.to_string());
    let flags = ["--listen", &listen[0], "--advertise", ADVERTISED_URL, "--max-watches", "1000"];
    let policy = ["--pod-security-default", "restricted", "--pod-security-exempt-users", "it's me,b"];
    let flags = [&flags[..], &policy].concat();
    let first = Server::start_with(&dir.join("first"), &[&etcd.flags()[..], &flags].concat());
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["token", "create", "--server", "--data-dir"])
        .arg(dir.join("first"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let token = dir.join("token");
    muster_files::write_private_file(&token, &output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let (_, command) = said.split_once("--token-file server-token").unwrap();
    // As a shell would pass the flags.
    let words = Command::new("sh").arg("-c").arg(format!("printf '%s\\n' {command}")).output().unwrap();
    let words = String::from_utf8(words.stdout).unwrap();
    let flags: Vec<&str> = words.lines().collect();
    let etcd_flag = format!("--etcd={}", etcd.flags()[1]);
    let advertise_flag = format!("--advertise={ADVERTISED_URL}");
    assert_eq!(
        flags,
        [
            &etcd_flag,
            "--etcd-any-version",
            &advertise_flag,
            "--pod-security-default=restricted",
            "--pod-security-exempt-users=it's me,b",
        ]
    );
    let etcd_flags = [&etcd_flag, "--etcd-any-version", "--token-file", token.to_str().unwrap()];
    let other_policy = Server::spawn(&dir.join("other"), &etcd_flags).err().unwrap();
    assert!(
        other_policy.contains(
            "the servers of this cluster run with --pod-security-default=restricted:latest, and this one was started with \
             --pod-security-default=privileged:latest"
        ),
        "{other_policy}"
    );
    let flags = [&flags[..], &["--listen", &listen[1], "--token-file", token.to_str().unwrap()]].concat();
    let second = Server::start_with(&dir.join("second"), &flags);
    let mut uids = BTreeSet::new();
    for (server, address) in [&first, &second].into_iter().zip(addresses) {
        uids.insert(read_cluster_uid(&server.kubeconfig, address, ADVERTISED_HOST).await.unwrap());
        let other = read_cluster_uid(&server.kubeconfig, address, "other.example.test").await;
        assert!(other.is_err(), "the certificate is valid for any host");
    }
    assert_eq!(uids.len(), 1, "{uids:?}");
    let elsewhere = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["token", "create", "--server", "--data-dir"])
        .arg(dir.join("none"))
        .output()
        .unwrap();
    let said = String::from_utf8(elsewhere.stderr).unwrap();
    assert!(
        said.contains("run this command on the machine of a server that was started with --etcd"),
        "{said}"
    );
    drop((first, second));
    fs::remove_dir_all(&dir).unwrap();
}

/// Replaces the server token through the data directory `dir`, and returns the new token.
fn rotate_server_token(dir: &Path, etcd: &Etcd) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(["token", "rotate", "--server", "--data-dir"]).arg(dir).args(etcd.flags());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("On the machine of each other server, put the token into the file server-token"),
        "{said}"
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The servers go on running while the token is replaced. A server that gets the new token gets new signing keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_replaced_server_token_is_refused_and_the_new_one_is_used_by_all_servers() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-server-token");
    let file = write_token(&dir);
    let flags = etcd.flags_with_token(&file);
    let (first, second) = (dir.join("first"), dir.join("second"));
    let servers = [Server::start_with(&first, &flags), Server::start_with(&second, &flags)];
    let old = fs::read_to_string(&file).unwrap();
    let new = rotate_server_token(&first, &etcd);
    assert_ne!(new, old);
    assert_eq!(fs::read_to_string(first.join("server-token")).unwrap(), new);
    assert_eq!(fs::metadata(first.join("server-token")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!first.join("server-token.next").exists());

    // A server with the old token only does not start. The running ones serve.
    let third = dir.join("third");
    let refused = Server::spawn(&third, &flags).err().expect("the old token is refused");
    assert!(refused.starts_with("muster: the server token is wrong: "), "{refused}");
    assert!(
        refused.contains("If `muster token rotate --server` has replaced it, put the new token there"),
        "{refused}"
    );
    for server in &servers {
        server.cluster_uid().await;
    }

    // Without the token, the second server does not get a new signing key, so the key does not sign.
    let signing_key = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.arg("signing-key").args(arguments).args(etcd.flags()).arg("--data-dir").arg(&first);
        let output = command.output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        (output.status.code(), stdout, stderr)
    };
    let leases: Api<Lease> = Api::namespaced(servers[1].client().await, "kube-system");
    let leases = leases.list(&ListParams::default()).await.unwrap().items;
    let leases = leases.into_iter().filter_map(|it| it.metadata.name);
    let leases: Vec<_> = leases.filter(|it| it.starts_with("apiserver-")).collect();
    assert_eq!(leases.len(), 2, "{leases:?}");
    let named = |text: &str| leases.iter().filter(|it| text.contains(&**it)).count();
    let signing = |listed: &str| {
        let line = listed.lines().find(|it| it.contains("signs new tokens")).unwrap();
        line.split(' ').next().unwrap().to_owned()
    };
    let (_, before, _) = signing_key(&["list"]);
    let (code, said, why) = signing_key(&["rotate"]);
    assert_eq!((code, &*said), (Some(1), ""), "{why}");
    let why = why.lines().last().unwrap();
    assert!(
        why.contains("does not sign yet, because one server does not accept it: the server of Lease"),
        "{why}"
    );
    assert!(why.contains("put the token of the cluster into `server-token`") && named(why) == 1, "{why}");
    let (_, listed, lagging) = signing_key(&["list"]);
    assert_eq!(signing(&listed), signing(&before));
    assert!(listed.contains("accepted; a rotation is not complete"), "{listed}");
    assert!(lagging.starts_with("muster: one server does not use these keys yet: "), "{lagging}");
    let mut unreadable = Vec::new();
    for server in &servers {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = server.client().await.request_text(request).await.unwrap();
        unreadable.push(metrics.lines().any(|it| it == "muster_cluster_keys_unreadable 1"));
    }
    assert_eq!(unreadable, [false, true]);

    // The second server gets the token while it runs, and the rotation goes on.
    muster_files::write_private_file(&second.join("server-token"), new.as_bytes()).unwrap();
    let (code, said, why) = signing_key(&["rotate"]);
    assert_eq!(code, Some(0), "{why}");
    let (_, listed, lagging) = signing_key(&["list"]);
    assert_ne!(signing(&listed), signing(&before));
    assert!(
        said.starts_with(&format!("key {} signs new tokens\n", signing(&listed))) && lagging.is_empty(),
        "{lagging}"
    );
    assert_eq!(fs::read(first.join("sa.key")).unwrap(), fs::read(second.join("sa.key")).unwrap());
    // Both start again, although the file of --token-file has the old token.
    servers.into_iter().for_each(Server::stop);
    for dir in [&first, &second] {
        Server::start_with(dir, &flags).stop();
        assert_eq!(fs::read_to_string(dir.join("server-token")).unwrap(), new);
    }
    // Without etcd nothing changes.
    let unreachable = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args([
            "token",
            "rotate",
            "--server",
            "--etcd",
            "http://127.0.0.1:1",
            "--etcd-any-version",
            "--data-dir",
        ])
        .arg(&first)
        .output()
        .unwrap();
    let said = String::from_utf8(unreachable.stderr).unwrap();
    assert!(!unreachable.status.success() && said.contains("etcd did not respond"), "{said}");
    assert!(!first.join("server-token.next").exists());
    assert_eq!(fs::read_to_string(first.join("server-token")).unwrap(), new);
    fs::remove_dir_all(&dir).unwrap();
}

/// The command is killed at any time, and a server starts in the data directory without another token.
#[tokio::test]
#[ignore = "needs etcd"]
async fn a_killed_rotation_of_the_server_token_leaves_a_token_that_works() {
    const ROUNDS: u32 = 12;
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-server-token-killed");
    Server::start_with(&dir, &etcd.flags()).stop();
    let began = std::time::Instant::now();
    let mut token = rotate_server_token(&dir, &etcd);
    let whole = began.elapsed();
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["token", "rotate", "--server", "--data-dir"]).arg(&dir).args(etcd.flags());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let next = dir.join("server-token.next");
        if round.is_multiple_of(2) {
            tokio::time::sleep(whole * round / ROUNDS).await;
        } else {
            // From "as soon as the next token is written" to "about when it has replaced the old one".
            while !next.exists() && child.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(whole / 2 * (round - 1) / ROUNDS).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        interrupted += usize::from(next.exists());
        Server::start_with(&dir, &etcd.flags()).stop();
        // The command continues.
        let rotated = rotate_server_token(&dir, &etcd);
        assert_ne!(rotated, token, "round {round}");
        assert_eq!(fs::read_to_string(dir.join("server-token")).unwrap(), rotated, "round {round}");
        assert!(!next.exists(), "round {round}");
        token = rotated;
    }
    println!("{interrupted} of {ROUNDS} kills came while the token was replaced");
    assert!(0 < interrupted, "no kill came while the token was replaced");
    Server::start_with(&dir, &etcd.flags()).stop();
    fs::remove_dir_all(&dir).unwrap();
}
