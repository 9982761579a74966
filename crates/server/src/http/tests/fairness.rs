//! Clients that hold what they can: open bodies, unread responses, watches. Others are served as if they were not there.
//!
//! Connections are pipes in memory. The clock stands still but when every task waits, and then goes to the next timer, so a test
//! that takes no time of the clock has waited for nothing.

use std::convert::Infallible;

use futures::stream;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::connections::{ConnectionGuard, RequestClient};
use crate::flow_control::UsageKind;
use crate::pki::PeerCertificate;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

type Sent = BoxBody<Bytes, Infallible>;

async fn api() -> Api {
    let api = Server::with_history(1000).await.api;
    crate::controllers::cluster_roles::ensure_default_roles(&api.registry, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    api
}

fn account() -> User {
    account_of("default")
}

fn account_of(name: &str) -> User {
    let mut user = User::service_account("default", name);
    user.groups.push("system:authenticated".to_owned());
    user
}

fn node() -> User {
    User::new("system:node:a", ["system:nodes", "system:authenticated"])
}

/// The client's end of a new connection.
fn open(api: &Api, user: Option<User>, is_http2: bool) -> DuplexStream {
    serve(api, user, is_http2).0
}

/// The client's end of a new connection, and the task that serves it.
pub(in crate::http) fn serve(
    api: &Api,
    user: Option<User>,
    is_http2: bool,
) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(256 << 10);
    let address = [127, 0, 0, 1].into();
    let permit = Arc::new(api.limits.connections.admit_connection(address).unwrap());
    permit.finish_handshake(user.as_ref());
    let client = RequestClient {
        address,
        connection: Some(permit.connection.clone()),
        guard: Some(ConnectionGuard::new(permit)),
        peer: user.clone().map(PeerCertificate::for_user),
        is_in_process: false,
    };
    let streams_max = crate::limits::http2_streams_max(user.as_ref());
    let api = api.clone();
    let serving = tokio::spawn(async move {
        let graceful = GracefulShutdown::new();
        let _ =
            crate::serve_http(far, is_http2, streams_max, Arc::new(client), api, graceful.watcher()).await;
    });
    (near, serving)
}

async fn connect(api: &Api, user: Option<User>, window: Option<u32>) -> SendRequest<Sent> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_reset_streams(1000).max_send_buf_size(64 << 10);
    if let Some(window) = window {
        builder.initial_stream_window_size(window);
    }
    let (sender, connection) = builder.handshake(TokioIo::new(open(api, user, true))).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A body of which the first bytes come and then nothing.
fn open_body() -> Sent {
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"{")))]);
    BoxBody::new(StreamBody::new(first.chain(stream::pending()).boxed_sync()))
}

trait BoxedSync: Sized {
    fn boxed_sync(self) -> SyncStream<Self> {
        SyncStream(std::sync::Mutex::new(Box::pin(self)))
    }
}

impl<S: futures::Stream> BoxedSync for S {}

/// A stream that may be shared by threads, as a boxed body must be.
struct SyncStream<S>(std::sync::Mutex<std::pin::Pin<Box<S>>>);

impl<S: futures::Stream> futures::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        self.get_mut().0.get_mut().unwrap().as_mut().poll_next(context)
    }
}

fn whole(body: impl Into<Bytes>) -> Sent {
    BoxBody::new(Full::new(body.into()))
}

fn request(method: &str, path: &str, body: Sent) -> Request<Sent> {
    let uri = format!("https://localhost{path}");
    Request::builder().method(method).uri(uri).header(CONTENT_TYPE, JSON_MEDIA_TYPE).body(body).unwrap()
}

async fn code(client: &mut SendRequest<Sent>, method: &str, path: &str, body: Sent) -> u16 {
    client.ready().await.unwrap();
    let response = client.send_request(request(method, path, body)).await.unwrap();
    let code = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    code
}

/// An administrator and a node's heartbeat are served, and wait for nothing.
async fn others_are_served(api: &Api) {
    let stop = ClockStop::new();
    let began = Instant::now();
    let mut admin = connect(api, Some(User::server()), None).await;
    let mut node = connect(api, Some(node()), None).await;
    for round in 0..3 {
        let map = map(&format!("m{}", api.registry.storage.revision()), "x").to_string();
        assert_eq!(code(&mut admin, "GET", PODS, whole("")).await, 200);
        assert_eq!(code(&mut admin, "POST", MAPS, whole(map)).await, 201, "round {round}");
        let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}}).to_string();
        let created = code(&mut node, "POST", LEASES, whole(lease)).await;
        assert!(matches!(created, 201 | 409), "{created}");
        let patch =
            request("PATCH", &format!("{LEASES}/a"), whole(r#"{"spec":{"leaseDurationSeconds":40}}"#));
        let (mut parts, body) = patch.into_parts();
        parts.headers.insert(CONTENT_TYPE, "application/merge-patch+json".parse().unwrap());
        let response = node.send_request(Request::from_parts(parts, body)).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing was queued");
    stop.end().await;
}

#[tokio::test(start_paused = true)]
async fn open_bodies_of_strangers_hold_nothing() {
    let api = api().await;
    let mut stranger = connect(&api, None, None).await;
    let mut held = Vec::new();
    for at in 0..450 {
        let (method, path) = if at % 2 == 0 { ("GET", "/version") } else { ("POST", REVIEWS) };
        stranger.ready().await.unwrap();
        held.push(tokio::spawn(stranger.send_request(request(method, path, open_body()))));
    }
    others_are_served(&api).await;
    assert_eq!(api.limits.usage.total_usage(UsageKind::UnfinishedBodies), 0, "no body of a stranger is read");
    let codes: Vec<u16> = futures::future::join_all(held)
        .await
        .into_iter()
        .map(|it| it.unwrap().unwrap().status().as_u16())
        .collect();
    assert!(codes.iter().all(|it| matches!(it, 200 | 401)), "{codes:?}");
}

#[tokio::test(start_paused = true)]
async fn open_bodies_of_an_account_are_bounded_and_given_up() {
    let api = api().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(connect(&api, Some(account()), None).await);
    }
    let mut held = Vec::new();
    for at in 0..450 {
        let client = &mut clients[at % 3];
        client.ready().await.unwrap();
        held.push(tokio::spawn(client.send_request(request("POST", REVIEWS, open_body()))));
    }
    let began = Instant::now();
    // Those of one user are bounded.
    wait_until(|| api.limits.usage.total_usage(UsageKind::UnfinishedBodies) == 100).await;
    others_are_served(&api).await;
    assert!(api.limits.flow_control.level_metrics().iter().all(|it| it.waiting == 0));
    let codes =
        futures::future::join_all(held).await.into_iter().map(|it| it.unwrap().unwrap().status().as_u16());
    let codes: Vec<u16> = codes.collect();
    let count = |code| codes.iter().filter(|it| **it == code).count();
    assert_eq!((count(429), count(408)), (350, 100));
    assert_eq!(
        (api.limits.usage.total_usage(UsageKind::UnfinishedBodies), began.elapsed().as_secs()),
        (0, 10)
    );
}

/// One connection may hold fewer open bodies, and fewer bytes of bodies, than its user.
#[tokio::test(start_paused = true)]
async fn what_one_connection_holds_is_bounded() {
    let api = api().await;
    let usage = |kind| api.limits.usage.total_usage(kind);
    let mut client = connect(&api, Some(account()), None).await;
    let mut held = Vec::new();
    for _ in 0..90 {
        client.ready().await.unwrap();
        held.push(tokio::spawn(client.send_request(request("POST", REVIEWS, open_body()))));
    }
    wait_until(|| usage(UsageKind::UnfinishedBodies) == 64).await;
    let mut client = connect(&api, Some(account_of("bytes")), None).await;
    for _ in 0..15 {
        let first = stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; 100 << 10])))]);
        let body = BoxBody::new(StreamBody::new(first.chain(stream::pending()).boxed_sync()));
        client.ready().await.unwrap();
        held.push(tokio::spawn(client.send_request(request("POST", REVIEWS, body))));
    }
    // Each may become 3 MiB.
    wait_until(|| usage(UsageKind::BodyBytes) == 10 * (3 << 20)).await;
    others_are_served(&api).await;
    for held in held {
        let code = held.await.unwrap().unwrap().status().as_u16();
        assert!(matches!(code, 408 | 429), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_must_keep_to_a_rate() {
    let api = api().await;
    let mut client = connect(&api, Some(account()), None).await;
    let took = async |client: &mut SendRequest<Sent>, chunk: usize, pause: Duration| {
        let chunks = stream::unfold(0, move |sent| async move {
            tokio::time::sleep(pause).await;
            (sent < 1 << 20).then(|| (Ok(Frame::data(Bytes::from(vec![b' '; chunk]))), sent + chunk))
        });
        let began = Instant::now();
        let body = BoxBody::new(StreamBody::new(chunks.boxed_sync()));
        let code = code(client, "POST", REVIEWS, body).await;
        (code, began.elapsed().as_secs())
    };
    // 64 KiB in a second is enough; 1 KiB is not, though something arrives all the time.
    assert_eq!(took(&mut client, 64 << 10, Duration::from_millis(1000)).await, (400, 17));
    assert_eq!(took(&mut client, 1 << 10, Duration::from_millis(1000)).await, (408, 10));
    assert_eq!(api.limits.usage.total_usage(UsageKind::BodyBytes), 0);
}

#[tokio::test(start_paused = true)]
async fn large_bodies_of_a_user_are_bounded_in_bytes() {
    let api = api().await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut client = connect(&api, Some(account()), None).await;
        let first = stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; 100 << 10])))]);
        let body = BoxBody::new(StreamBody::new(first.chain(stream::pending()).boxed_sync()));
        client.ready().await.unwrap();
        held.push((tokio::spawn(client.send_request(request("POST", REVIEWS, body))), client));
    }
    // Each may become 3 MiB.
    wait_until(|| api.limits.usage.total_usage(UsageKind::BodyBytes) == 21 * (3 << 20)).await;
    others_are_served(&api).await;
}

/// A request whose response is large: the server sends the object back.
fn large(name: &str) -> Request<Sent> {
    let data = "x".repeat(900_000);
    request("POST", MAPS, whole(json!({"metadata": {"name": name}, "data": {"k": data}}).to_string()))
}

async fn editor(api: &Api) -> User {
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    });
    let context = RequestContext::for_server("create", Timestamp::UNIX_EPOCH);
    let kind = Kind::builtin(rbac, "v1", "clusterrolebindings");
    api.registry.create(&context, kind, None, binding).await.unwrap();
    account()
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_not_read_are_dropped() {
    let api = api().await;
    let user = editor(&api).await;
    for window in [0, 1] {
        let mut client = connect(&api, Some(user.clone()), Some(window)).await;
        let mut held = Vec::new();
        for at in 0..30 {
            client.ready().await.unwrap();
            held.push(tokio::spawn(client.send_request(large(&format!("w{window}-{at}")))));
        }
        let began = Instant::now();
        // The seats are free when the responses are made.
        wait_until(|| 30 * 900_000 <= api.limits.usage.total_usage(UsageKind::UnsentResponseBytes)).await;
        let seats: usize = api.limits.flow_control.level_metrics().iter().map(|it| it.seats).sum();
        assert_eq!(seats, 0);
        others_are_served(&api).await;
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(api.limits.usage.total_usage(UsageKind::UnsentResponseBytes), 0, "window {window}");
        assert!(api.limits.flow_control.level_metrics().iter().all(|it| (it.seats, it.waiting) == (0, 0)));
        assert_eq!(began.elapsed().as_secs(), 61);
        client.ready().await.unwrap();
        let response = client.send_request(request("GET", "/api", whole(""))).await.unwrap();
        assert_eq!(response.status(), 200, "the connection is still good");
        drop(held);
    }
}

/// Clients that read nothing: without credentials, with rights that do not suffice, as somebody else, and on a health check.
#[tokio::test(start_paused = true)]
async fn small_responses_that_are_not_read_are_bounded_by_user_and_address() {
    let api = api().await;
    let user = editor(&api).await;
    let pool = |api: &Api| api.limits.usage.total_usage(UsageKind::UnsentSmallResponses);
    let as_other = |path: &str, at: usize| {
        let mut request = request("GET", path, whole(""));
        let name = format!("system:serviceaccount:default:x{at}");
        request.headers_mut().insert("impersonate-user", name.parse().unwrap());
        request
    };
    for (user, path) in
        [(None, PODS), (None, "/readyz"), (Some(user.clone()), "/api/v1/nodes"), (Some(user), "/apis")]
    {
        let mut held = Vec::new();
        for connection in 0..8 {
            let mut client = connect(&api, user.clone(), Some(0)).await;
            for at in 0..200 {
                client.ready().await.unwrap();
                let request =
                    if user.is_some() { as_other(path, at % 50) } else { request("GET", path, whole("")) };
                held.push(tokio::spawn(client.send_request(request)));
            }
            wait_until(|| pool(&api) == (200 * (connection + 1)).min(500)).await;
        }
        let seats: usize =
            api.limits.flow_control.level_metrics().iter().map(|it| it.seats + it.waiting).sum();
        assert_eq!((pool(&api), seats), (500, 0), "{path}");
        others_are_served(&api).await;
        // A client that reads at all takes a small response at once.
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(pool(&api), 0, "{path}");
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_taken_too_slowly_is_dropped() {
    let api = api().await;
    let user = editor(&api).await;
    let mut client = connect(&api, Some(user), Some(1024)).await;
    let stop = ClockStop::new();
    let response = client.send_request(large("slow")).await.unwrap();
    assert_eq!(response.status(), 201);
    stop.end().await;
    let mut body = response.into_body();
    let began = Instant::now();
    while let Some(Ok(_)) = body.frame().await {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(300), "it takes 1 KiB/s for 900 kB");
    }
    assert!((60..130).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(api.limits.usage.total_usage(UsageKind::UnsentResponseBytes), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_read_is_dropped_and_a_quiet_one_is_not() {
    let api = api().await;
    let mut admin = connect(&api, Some(User::server()), None).await;
    let mut blind = connect(&api, Some(User::server()), Some(0)).await;
    let path = format!("{MAPS}?watch=1&timeoutSeconds=600");
    let quiet = admin.send_request(request("GET", &path, whole(""))).await.unwrap();
    let unread = blind.send_request(request("GET", &path, whole(""))).await.unwrap();
    let watches = || api.registry.metrics.long_running_requests.get();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(watches(), 2, "there was nothing to send");
    // The store writes on a thread of its own: without this the paused clock runs on while it does.
    let stop = ClockStop::new();
    assert_eq!(code(&mut admin, "POST", MAPS, whole(map("a", "x").to_string())).await, 201);
    let mut quiet = quiet.into_body();
    assert!(quiet.frame().await.unwrap().unwrap().is_data());
    stop.end().await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(watches(), 1);
    drop((unread, quiet));
    wait_until(|| watches() == 0).await;
}

/// A client that opens the window of each stream by one byte makes the server read a frame that cannot be sent.
#[tokio::test(start_paused = true)]
async fn unread_events_of_watches_are_bounded_in_bytes() {
    const OBJECT_BYTES: usize = 60_000;
    const USER_BYTES_MAX: usize = 64 << 20;
    let api = api().await;
    let user = editor(&api).await;
    let mut admin = connect(&api, Some(User::server()), None).await;
    let object = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(OBJECT_BYTES)}});
    assert_eq!(code(&mut admin, "POST", MAPS, whole(object.to_string())).await, 201);
    let usage = || api.limits.usage.total_usage(UsageKind::UnsentResponseBytes);
    let path = format!("{MAPS}?watch=1&timeoutSeconds=600&fieldSelector=metadata.name%3Dlarge");
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut client = connect(&api, Some(user.clone()), Some(1)).await;
        for _ in 0..200 {
            client.ready().await.unwrap();
            // A watch whose first event exceeds the limit is reset.
            held.extend(client.send_request(request("GET", &path, whole(""))).await);
        }
    }
    wait_until(|| USER_BYTES_MAX - 2 * OBJECT_BYTES < usage()).await;
    assert!(usage() <= USER_BYTES_MAX, "{}", usage());
    let held_max = i64::try_from(USER_BYTES_MAX / OBJECT_BYTES).unwrap();
    wait_until(|| api.registry.metrics.long_running_requests.get() <= held_max).await;
    others_are_served(&api).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!((usage(), api.registry.metrics.long_running_requests.get()), (0, 0));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn an_unread_event_of_a_watch_over_a_web_socket_is_charged() {
    let api = api().await;
    let user = editor(&api).await;
    let mut unread = open(&api, Some(user), false);
    let upgrade = format!(
        "GET {MAPS}?watch=1&resourceVersion={} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        api.registry.storage.revision()
    );
    unread.write_all(upgrade.as_bytes()).await.unwrap();
    let watches = || api.registry.metrics.long_running_requests.get();
    wait_until(|| watches() == 1).await;
    // The connection buffers 256 KiB, and each event is smaller than a chunk of a response.
    let mut admin = connect(&api, Some(User::server()), None).await;
    for index in 0..10 {
        let object = json!({"metadata": {"name": format!("m{index}")}, "data": {"k": "x".repeat(50_000)}});
        assert_eq!(code(&mut admin, "POST", MAPS, whole(object.to_string())).await, 201);
    }
    let usage = || api.limits.usage.total_usage(UsageKind::UnsentResponseBytes);
    wait_until(|| 50_000 < usage()).await;
    drop(unread);
    wait_until(|| usage() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_watches_leaves_watches_for_others() {
    let mut api = api().await;
    api.limits = Arc::new(ServerLimits::new(LimitsConfig { watches: 2_000, ..api.limits.config }));
    let user = editor(&api).await;
    let path = format!("{PODS}?watch=1");
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..6 {
        let mut client = connect(&api, Some(user.clone()), None).await;
        for _ in 0..200 {
            client.ready().await.unwrap();
            let response = client.send_request(request("GET", &path, whole(""))).await.unwrap();
            match response.status().as_u16() {
                200 => held.push(response),
                429 => refused += 1,
                code => panic!("{code}"),
            }
        }
    }
    assert_eq!((held.len(), refused), (800, 400), "three fifths of the watches are reserved");
    let mut admin = connect(&api, Some(User::server()), None).await;
    admin.ready().await.unwrap();
    assert_eq!(admin.send_request(request("GET", &path, whole(""))).await.unwrap().status(), 200);
    let mut node = connect(&api, Some(node()), None).await;
    let own = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Da".to_string();
    assert_eq!(node.send_request(request("GET", &own, whole(""))).await.unwrap().status(), 200);
    others_are_served(&api).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_a_user_has_250_streams_and_one_of_our_own_more() {
    let own = User::new("system:muster-simulated-nodes", ["system:authenticated"]);
    let counts: Vec<u32> = [None, Some(account()), Some(node()), Some(User::server()), Some(own)]
        .iter()
        .map(|it| crate::limits::http2_streams_max(it.as_ref()))
        .collect();
    assert_eq!(counts, [250, 250, 250, 4_000, 4_000]);
    let api = api().await;
    assert_eq!(announced_streams_max(&api, Some(account())).await, 250);
    assert_eq!(announced_streams_max(&api, Some(User::server())).await, 4_000);
}

/// The maximum number of streams in the SETTINGS frame with which the server answers a new HTTP/2 connection.
async fn announced_streams_max(api: &Api, user: Option<User>) -> u32 {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut connection = open(api, user, true);
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    connection.write_all(&EMPTY_SETTINGS).await.unwrap();
    let mut header = [0; 9];
    connection.read_exact(&mut header).await.unwrap();
    assert_eq!(header[3], 4, "the first frame is SETTINGS");
    let mut settings = vec![0; usize::from(u16::from_be_bytes([header[1], header[2]]))];
    connection.read_exact(&mut settings).await.unwrap();
    let value = |it: &[u8]| u32::from_be_bytes([it[2], it[3], it[4], it[5]]);
    let is_streams_max = |it: &&[u8]| u16::from_be_bytes([it[0], it[1]]) == MAX_CONCURRENT_STREAMS;
    settings.chunks_exact(6).find(is_streams_max).map(value).expect("a maximum number of streams")
}

/// What the server says to these bytes over HTTP/1.
async fn say(api: &Api, bytes: &str) -> String {
    let mut line = open(api, Some(User::server()), false);
    line.write_all(bytes.as_bytes()).await.unwrap();
    let mut said = vec![0; 4096];
    let length = line.read(&mut said).await.unwrap();
    String::from_utf8_lossy(&said[..length]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn http1_requests_name_the_host_and_have_bounded_headers() {
    let api = api().await;
    assert_eq!(say(&api, "GET /version HTTP/1.1\r\nhost: x\r\n\r\n").await, "HTTP/1.1 200 OK");
    assert_eq!(say(&api, "GET /version HTTP/1.1\r\n\r\n").await, "HTTP/1.1 400 Bad Request");
    assert_eq!(say(&api, "GET /version HTTP/1.0\r\n\r\n").await, "HTTP/1.0 200 OK");
    let long = format!("GET /version HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "a".repeat(70_000));
    assert_eq!(say(&api, &long).await, "HTTP/1.1 431 Request Header Fields Too Large");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_rights_or_credentials_are_gone() {
    let api = api().await;
    let user = editor(&api).await;
    let watch = async || {
        let mut client = connect(&api, Some(user.clone()), None).await;
        let path = format!("{PODS}?watch=1&timeoutSeconds=600");
        client.send_request(request("GET", &path, whole(""))).await.unwrap().into_body()
    };
    let mut body = watch().await;
    let began = Instant::now();
    assert!(tokio::time::timeout(Duration::from_secs(200), body.frame()).await.is_err(), "it is allowed");
    let target = RequestTarget {
        kind: Kind::builtin("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
        namespace: None,
        name: "edit".to_owned(),
        subresource: Subresource::Whole,
    };
    let context = RequestContext::for_server("delete", Timestamp::UNIX_EPOCH);
    // The store writes on a thread of its own: without this the paused clock runs on while it does.
    let stop = ClockStop::new();
    api.registry.delete(&context, &target, &DeleteOptions::default()).await.unwrap();
    stop.end().await;
    let last = body.collect().await.unwrap().to_bytes();
    let event: Value = serde_json::from_slice(&last).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(403)));
    assert!(began.elapsed().as_secs() <= 260, "{:?}", began.elapsed());
    assert_eq!(api.registry.metrics.long_running_requests.get(), 0);
}
