//! The server on a storage backend of several servers: revisions have gaps, and the state of this server may be behind.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use muster_store::{
    Backend, Commit, CommitConflict, CommitError, CommitEvent, CommitWrite, Db, Fence, HistoryWindow,
    OnCommitted, OnReadBarrier, PublishedStore, ReadBarrierError, Revision, Store, SyncStatistics,
    WriteClass,
};

use super::*;
use crate::BuiltinUser;
use crate::auth::TokenSigner;
use crate::connections::RequestClient;
use crate::controllers::{certificate_records, certificate_signing, cluster_roles};
use crate::flow_control::UsageKind;
use crate::pki::Pki;
use crate::pki::tests::signing_request;

/// Another server commits between any two commits of this one.
const GAP: Revision = 128;

#[derive(Clone)]
struct Remote {
    published: Arc<PublishedStore>,
    /// The revision that the storage has reached. It may be higher than that of the last commit.
    reached: Arc<AtomicU64>,
    /// Whether the storage has no space, and accepts only deletions.
    is_full: Arc<AtomicBool>,
    /// Requests that wait for a fresh state, while the state is behind.
    waiting: Arc<Mutex<Option<Vec<OnReadBarrier>>>>,
}

impl Remote {
    fn fall_behind(&self) {
        *self.waiting.lock().unwrap() = Some(Vec::new());
    }

    /// Ends all waits, and returns how many there were.
    fn catch_up(&self, outcome: &Result<(), ReadBarrierError>) -> usize {
        let waiting = self.waiting.lock().unwrap().take().unwrap_or_default();
        let count = waiting.len();
        waiting.into_iter().for_each(|it| it(outcome.clone()));
        count
    }

    /// Loads all objects again, without one of them: its deletion is not known.
    fn reload_without(&self, key: &str) {
        let window = HistoryWindow { events_max: 100, bytes_max: usize::MAX };
        let objects: Vec<_> = self.published.read().list("").filter(|it| *it.key != *key).cloned().collect();
        let mut store = Store::empty_after(self.published.read().revision() + GAP, window);
        objects.into_iter().for_each(|it| store.restore_object(it));
        self.published.replace(store);
    }

    fn event(&self, commit: Commit) -> Result<Arc<CommitEvent>, CommitError> {
        let store = self.published.read();
        let before = store.get(&commit.key).cloned();
        use muster_store::Precondition;
        match (commit.expect, &before) {
            (Precondition::Absent, Some(it)) => return Err(CommitConflict::Exists { at: it.modified }.into()),
            (Precondition::At(_), None) => return Err(CommitConflict::Missing.into()),
            (Precondition::At(at), Some(it)) if at != it.modified => {
                return Err(CommitConflict::Modified { at: it.modified }.into());
            }
            _ => {}
        }
        let revision = store.revision() + GAP;
        Ok(match commit.write {
            CommitWrite::Put { index, expires_s, draft } => CommitEvent::put(
                revision,
                &commit.key,
                before,
                draft.with_revision(revision),
                index,
                expires_s,
            ),
            CommitWrite::Delete => CommitEvent::delete(revision, before.ok_or(CommitConflict::Missing)?),
        })
    }
}

impl Backend for Remote {
    fn commit(&self, commit: Commit, done: OnCommitted) {
        if commit.key.ends_with("/large") {
            return done(Err(CommitError::TooLarge { bytes: 2_000_000, bytes_max: 1_500_000 }));
        }
        if self.is_full.load(Ordering::Relaxed) && commit.class != WriteClass::Deletion {
            return done(Err(CommitError::StorageFull { why: "etcd is full".to_owned() }));
        }
        let event = self.event(commit);
        if let Ok(event) = &event {
            self.published.publish(std::slice::from_ref(event), |_| ());
        }
        done(event);
    }

    fn read_barrier(&self, done: OnReadBarrier) {
        match &mut *self.waiting.lock().unwrap() {
            Some(waiting) => waiting.push(done),
            None => done(Ok(())),
        }
    }

    fn read_barrier_at(&self, revision: Revision, done: OnReadBarrier) {
        if revision <= self.reached.load(Ordering::Relaxed) {
            self.published.skip_to_revision(revision);
        }
        self.read_barrier(done);
    }

    fn compact(&self, floor: Revision, _: Option<Fence>) {
        self.published.compact(floor, |_| ());
    }

    fn sync_statistics(&self) -> Option<SyncStatistics> {
        Some(SyncStatistics {
            reloads_after_compaction: 1,
            reloads_after_loss: 2,
            checks_passed: 3,
            checks_failed: 4,
            checks_with_error: 5,
        })
    }

    fn close(&self) {}
}

async fn server(events_max: usize) -> (Server, Remote) {
    let window = HistoryWindow { events_max, bytes_max: usize::MAX };
    let mut remote = None;
    let open = |options: muster_store::DbOptions| {
        let published =
            PublishedStore::new(Store::empty_after(Store::FIRST_REVISION, options.window), options.on_commit);
        let backend = Remote {
            published: published.clone(),
            reached: Arc::default(),
            is_full: Arc::default(),
            waiting: Arc::default(),
        };
        remote = Some(backend.clone());
        Ok::<_, muster_store::LogError>(Db::new(published, backend))
    };
    let registry = Registry::open(
        open,
        window,
        muster_store::StoreLimits::UNLIMITED,
        Box::new(|_| ()),
        TokenSigner::with_generated_key(),
    )
    .unwrap();
    (Server::on(TestStore::in_memory(), vec![registry]).await, remote.unwrap())
}

#[tokio::test(start_paused = true)]
async fn lists_pages_and_watches_work_across_gaps_of_revisions() {
    let (server, _) = server(5).await;
    let (_, empty) = server.get(MAPS).await;
    let begun = str_at(&empty, "metadata.resourceVersion").to_owned();
    for name in ["a", "b", "c"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let (_, page) = server.get(&format!("{MAPS}?limit=2")).await;
    let next = str_at(&page, "metadata.continue").to_owned();
    server.merge(&format!("{MAPS}/a"), map("a", "y")).await;
    server.json("DELETE", &format!("{MAPS}/c"), json!({})).await;

    // The second page is of the revision of the first.
    let (_, rest) = server.get(&format!("{MAPS}?limit=2&continue={next}")).await;
    let names = |it: &Value| {
        unstructured::list_at(it, "items")
            .iter()
            .map(|it| str_at(it, "metadata.name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((names(&page), names(&rest)), (vec!["a".into(), "b".into()], vec!["c".into()]));
    let watch = |after: &str| format!("{MAPS}?watch=true&resourceVersion={after}&timeoutSeconds=1");
    expect![[r#"
        ADDED ConfigMap a 641
        ADDED ConfigMap b 769
        ADDED ConfigMap c 897
        MODIFIED ConfigMap a 1025
        DELETED ConfigMap c 1153
    "#]]
    .assert_eq(&server.watch(&watch(&begun)).await);
    // A version between two commits, as another server may have given to a commit of another kind.
    assert_eq!(server.watch(&watch("1000")).await, "MODIFIED ConfigMap a 1025\nDELETED ConfigMap c 1153\n");
    let selected = format!("{}&labelSelector=app%3Dx", watch("897"));
    assert_eq!(server.watch(&selected).await, "DELETED ConfigMap a 1025\nDELETED ConfigMap c 1153\n");
    assert_eq!(server.json("POST", MAPS, map("a", "x")).await.0, 409);
    server.json("POST", MAPS, map("d", "x")).await;
    assert_eq!(server.watch(&watch(&begun)).await, "ERROR Status  \n", "the first commit left the history");
}

/// The backend does not know the commits before a reload one by one, so no watch may skip them: also not one of a single
/// object, which skips the commits to other objects.
#[tokio::test(start_paused = true)]
async fn after_a_reload_watches_and_paged_lists_begin_again() {
    let (server, remote) = server(100).await;
    for name in ["a", "b", "c"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let (_, page) = server.get(&format!("{MAPS}?limit=1")).await;
    let next = str_at(&page, "metadata.continue").to_owned();
    let listed = str_at(&page, "metadata.resourceVersion").to_owned();
    let watch = |after: &str| format!("{MAPS}?watch=true&resourceVersion={after}&timeoutSeconds=5");
    let of_all = watch(&listed);
    let of_one = format!("{of_all}&fieldSelector=metadata.name%3Da");
    let bookmarks = format!("{of_one}&allowWatchBookmarks=true");
    let changes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.json("POST", MAPS, map("d", "x")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        remote.reload_without(&Kind::builtin("", "v1", "configmaps").store_key(Some("default"), "b"));
        server.json("POST", MAPS, map("e", "x")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.merge(&format!("{MAPS}/a"), map("a", "y")).await;
    };
    let (of_all, of_one, bookmarks, ()) =
        tokio::join!(server.watch(&of_all), server.watch(&of_one), server.watch(&bookmarks), changes);
    assert_eq!(of_all, "ADDED ConfigMap d 1025\nERROR Status  \n");
    assert_eq!((&*of_one, &*bookmarks), ("ERROR Status  \n", "ERROR Status  \n"));
    let (code, refused) = server.get(&format!("{MAPS}?limit=1&continue={next}")).await;
    assert_eq!((code, str_at(&refused, "reason")), (410, "Expired"));
    // Clients list again.
    let (_, list) = server.get(MAPS).await;
    let names: Vec<_> =
        unstructured::list_at(&list, "items").iter().map(|it| str_at(it, "metadata.name")).collect();
    assert_eq!(names, ["a", "c", "d", "e"]);
    let listed = str_at(&list, "metadata.resourceVersion").to_owned();
    server.json("DELETE", &format!("{MAPS}/c"), json!({})).await;
    assert_eq!(server.watch(&watch(&listed)).await, "DELETED ConfigMap c 1537\n");
}

/// After a reload, the revision of a server is higher than that of the last commit, which other servers show. Requests
/// with this revision are answered by other servers too.
#[tokio::test(start_paused = true)]
async fn requests_with_the_revision_of_a_reload_of_another_server_are_answered() {
    let (server, remote) = server_with_two_maps().await;
    let last: Revision = str_at(&server.get(MAPS).await.1, "metadata.resourceVersion").parse().unwrap();
    let reloaded = last + GAP - 1;
    remote.published.skip_to_revision(reloaded);
    let (_, page) = server.get(&format!("{MAPS}?limit=1")).await;
    assert_eq!(str_at(&page, "metadata.resourceVersion"), reloaded.to_string());
    let next = str_at(&page, "metadata.continue").to_owned();
    let requests = [
        format!("{MAPS}?limit=1&continue={next}"),
        format!("{MAPS}?resourceVersion={reloaded}&resourceVersionMatch=NotOlderThan"),
        format!("{MAPS}?resourceVersion={reloaded}&resourceVersionMatch=Exact"),
        format!("{MAPS}/a?resourceVersion={reloaded}"),
    ];
    for request in &requests {
        let (other, remote) = server_with_two_maps().await;
        // The storage is not there yet.
        let (code, refused) = other.get(request).await;
        assert_eq!((code, str_at(&refused, "reason")), (504, "Timeout"), "{request}");
        remote.reached.store(reloaded, Ordering::Relaxed);
        assert_eq!(other.get(request).await.0, 200, "{request}");
    }
}

async fn server_with_two_maps() -> (Server, Remote) {
    let (server, remote) = server(100).await;
    for name in ["a", "b"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    (server, remote)
}

#[tokio::test]
async fn an_object_that_the_storage_cannot_hold_is_refused_with_its_size() {
    let (server, _) = server(5).await;
    check(
        server.json("POST", MAPS, map("large", "x")).await,
        &expect![[
            r#"413 Request entity too large: configmaps "large": the object needs 2000000 bytes in the storage, with its labels stored twice, limit is 1500000"#
        ]],
    );
}

/// A load balancer must not take a server away because of a full etcd: the deletes that free space could not arrive.
#[tokio::test]
async fn a_server_on_a_full_etcd_is_ready() {
    let (server, remote) = server(100).await;
    for name in ["a", "b"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let health = async || {
        let response = server.answer("GET", "/readyz?verbose", "", "").await;
        let code = response.status().as_u16();
        let text = String::from_utf8(server.body(response).await.to_vec()).unwrap();
        let is_full = server.api.metrics_text().lines().any(|it| it == "muster_store_full 1");
        (code, text.contains("the database of etcd is full"), is_full)
    };
    assert_eq!(health().await, (200, false, false));
    remote.is_full.store(true, Ordering::Relaxed);
    let full = expect!["503 etcd is full"];
    check(server.json("POST", MAPS, map("c", "x")).await, &full);
    assert_eq!(health().await, (200, true, true));
    // A deletion does not show that there is space.
    assert_eq!(server.json("DELETE", &format!("{MAPS}/a"), json!({})).await.0, 200);
    assert_eq!(health().await, (200, true, true));
    remote.is_full.store(false, Ordering::Relaxed);
    assert_eq!(server.json("POST", MAPS, map("c", "x")).await.0, 201);
    assert_eq!(health().await, (200, false, false));
}

/// The server checks all requests every ten minutes, but a request whose write fails must not wait for that.
#[tokio::test(start_paused = true)]
async fn a_signing_request_is_signed_as_soon_as_the_storage_has_space() {
    let (server, remote) = server(100).await;
    let registry = server.api.registry.clone();
    cluster_roles::ensure_default_roles(&registry, Timestamp::UNIX_EPOCH).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let pki = Arc::new(Pki::open(dir.path()).unwrap());
    let lifetime_max = certificate_signing::DEFAULT_LIFETIME_MAX;
    tokio::spawn(certificate_signing::run(registry.clone(), pki, lifetime_max, server.api.stop.clone()));
    // The first check of all requests is over.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
    let object = json!({
        "metadata": {"name": "r"},
        "spec": {
            "request": signing_request("system:node:n", "system:nodes"),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth", "digital signature"],
        },
    });
    let node = User::new("system:node:n", ["system:nodes", "system:authenticated"]);
    let context = RequestContext::new(node, "create", Timestamp::now());
    registry.create(&context, kind, None, object).await.unwrap();
    remote.is_full.store(true, Ordering::Relaxed);
    let is_signed = || {
        let stored = registry.storage.find(kind, None, "r").expect("it is not deleted");
        unstructured::is_set(&unstructured::parse_stored(&stored)["status"]["certificate"])
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!is_signed(), "there is no space for it");
    remote.is_full.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(is_signed());
    server.api.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn issued_certificates_are_recorded_as_soon_as_the_storage_has_space() {
    let (server, remote) = server(100).await;
    let registry = server.api.registry.clone();
    let dir = tempfile::tempdir().unwrap();
    let pki = Arc::new(Pki::open(dir.path()).unwrap());
    tokio::spawn(certificate_records::run(registry.clone(), pki.clone(), server.api.stop.clone()));
    remote.is_full.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        pki.issue_kubeconfig("https://localhost", BuiltinUser::Admin).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    remote.is_full.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let kind = Kind::builtin("", "v1", "configmaps");
    let records = registry.storage.find(kind, Some("kube-system"), "muster-issued-certificates-0");
    let records = unstructured::parse_stored(&records.expect("they are recorded"))["data"].clone();
    assert_eq!(records.as_object().unwrap().len(), 2);
    server.api.stop.cancel();
}

#[tokio::test]
async fn metrics_show_how_well_the_store_follows_its_storage() {
    let (server, _) = server(5).await;
    let text = server.api.metrics_text();
    let of_store = text.lines().filter(|it| {
        it.starts_with("muster_store_reloads") || it.starts_with("muster_store_consistency_checks")
    });
    let mut of_store: Vec<_> = of_store.collect();
    of_store.sort_unstable();
    expect![[r#"
        muster_store_consistency_checks_total{status="error"} 5
        muster_store_consistency_checks_total{status="failure"} 4
        muster_store_consistency_checks_total{status="success"} 3
        muster_store_reloads_total{reason="compaction"} 1
        muster_store_reloads_total{reason="loss"} 2"#]]
    .assert_eq(&of_store.join("\n"));
    // A server with a database has neither.
    let text = Server::on_store(TestStore::in_memory(), 100).await.api.metrics_text();
    assert!(!text.contains("muster_store_reloads_total") && !text.contains("consistency_checks_total"));
}

/// A server that cannot reach etcd must not accept a revoked credential, or use removed roles, without a limit of time.
#[tokio::test(start_paused = true)]
async fn requests_of_any_version_need_a_state_that_was_confirmed() {
    let (server, remote) = server(100).await;
    server.json("POST", MAPS, map("a", "x")).await;
    let unavailable = Err(ReadBarrierError { why: "no quorum".into() });
    let any_version = format!("{MAPS}/a?resourceVersion=0");
    let watch_after = format!("{MAPS}?watch=true&timeoutSeconds=0&resourceVersion=5");
    for path in [any_version, watch_after] {
        let code = async |outcome: &Result<(), ReadBarrierError>| {
            remote.fall_behind();
            let mut request = pin!(server.answer("GET", &path, "", ""));
            let response = futures::poll!(&mut request);
            let waits = remote.catch_up(outcome);
            let response = match response {
                Poll::Ready(response) => response,
                Poll::Pending => request.await,
            };
            (waits, response.status().as_u16())
        };
        tokio::time::sleep(Duration::from_secs(290)).await;
        assert_eq!(code(&unavailable).await, (0, 200), "{path}");
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(code(&unavailable).await, (1, 503), "{path}");
        assert_eq!(code(&Ok(())).await, (1, 200), "{path}");
        assert_eq!(code(&unavailable).await, (0, 200), "{path}");
    }
}

/// While etcd does not respond, requests of strangers hold little, and an administrator is served as soon as etcd
/// responds.
#[tokio::test]
async fn few_requests_without_a_certificate_wait_for_a_fresh_state() {
    let (server, remote) = server(100).await;
    let api = &server.api;
    cluster_roles::ensure_default_roles(&api.registry, Timestamp::UNIX_EPOCH).await.unwrap();
    let ask = async |address: u8, token: bool, path: &str| {
        let mut request = Request::builder().uri(path);
        if token {
            request = request.header(hyper::header::AUTHORIZATION, "Bearer abcdef.0123456789abcdef");
        }
        let client = RequestClient {
            address: [192, 0, 2, address].into(),
            connection: None,
            guard: None,
            peer: None,
            is_in_process: false,
        };
        let request = request.extension(Arc::new(client)).body(Full::new(Bytes::new())).unwrap();
        api.handle(None, request).await.status().as_u16()
    };
    let waiting = || api.limits.usage.total_usage(UsageKind::UnverifiedWaits);
    remote.fall_behind();
    for _ in 0..1_000 {
        let code = pin!(ask(1, false, MAPS));
        assert_eq!(futures::poll!(code), Poll::Ready(401), "a request without credentials does not wait");
    }
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..800 {
        let mut code = Box::pin(ask(1, true, MAPS));
        match futures::poll!(&mut code) {
            Poll::Pending => held.push(code),
            Poll::Ready(code) => {
                assert_eq!(code, 429);
                refused += 1;
            }
        }
    }
    assert_eq!((held.len(), refused, waiting()), (500, 300, 500));
    assert_eq!(ask(1, false, "/readyz").await, 200, "its address may be that of a load balancer");
    assert_eq!(ask(1, true, MAPS).await, 429);
    let mut other = pin!(ask(2, true, MAPS));
    assert!(futures::poll!(&mut other).is_pending(), "each address has its own limit");
    let mut administrator = pin!(server.get(MAPS));
    assert!(futures::poll!(&mut administrator).is_pending());
    assert_eq!(remote.catch_up(&Ok(())), 502);
    assert_eq!(administrator.await.0, 200);
    assert_eq!(other.await, 401);
    for code in held {
        assert_eq!(code.await, 401);
    }
    assert_eq!(waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_fresh_state() {
    let (server, remote) = server(100).await;
    server.json("POST", MAPS, map("a", "x")).await;
    let a = format!("{MAPS}/a");
    let any_version = format!("{a}?resourceVersion=0");
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=0");
    let watch_after = format!("{watch}&resourceVersion=5");
    let mut seen = String::new();
    for (method, path, body) in [
        ("GET", &*a, Value::Null),
        ("GET", MAPS, Value::Null),
        ("GET", "/api", Value::Null),
        ("GET", &*watch, Value::Null),
        ("POST", MAPS, map("b", "x")),
        ("PATCH", &*any_version, map("a", "y")),
        ("DELETE", &*a, Value::Null),
        ("GET", &*any_version, Value::Null),
        ("GET", &*watch_after, Value::Null),
        ("GET", "/livez", Value::Null),
        ("GET", "/readyz", Value::Null),
    ] {
        remote.fall_behind();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let media_type = if method == "PATCH" { "application/merge-patch+json" } else { JSON_MEDIA_TYPE };
        let mut request = pin!(server.answer(method, path, media_type, &body));
        let response = futures::poll!(&mut request);
        let waits = remote.catch_up(&Ok(()));
        let response = match response {
            Poll::Ready(response) => response,
            Poll::Pending => request.await,
        };
        writeln!(seen, "{method} {path}: {waits} {}", response.status().as_u16()).unwrap();
    }
    expect![[r#"
        GET /api/v1/namespaces/default/configmaps/a: 1 200
        GET /api/v1/namespaces/default/configmaps: 1 200
        GET /api: 1 200
        GET /api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=0: 1 200
        POST /api/v1/namespaces/default/configmaps: 1 201
        PATCH /api/v1/namespaces/default/configmaps/a?resourceVersion=0: 1 200
        DELETE /api/v1/namespaces/default/configmaps/a: 1 200
        GET /api/v1/namespaces/default/configmaps/a?resourceVersion=0: 0 404
        GET /api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=0&resourceVersion=5: 0 200
        GET /livez: 0 200
        GET /readyz: 0 200
    "#]]
    .assert_eq(&seen);

    remote.fall_behind();
    let mut request = pin!(server.get(MAPS));
    assert!(futures::poll!(&mut request).is_pending());
    remote.catch_up(&Err(ReadBarrierError { why: "no quorum".into() }));
    check(request.await, &expect!["503 the store cannot confirm that its state is current: no quorum"]);
    // The last barrier was passed too long ago.
    tokio::time::sleep(Duration::from_secs(2)).await;
    remote.fall_behind();
    let mut request = pin!(server.get("/readyz"));
    assert!(futures::poll!(&mut request).is_pending());
    remote.catch_up(&Err(ReadBarrierError { why: "no quorum".into() }));
    assert_eq!(request.await.0, 500);
}
