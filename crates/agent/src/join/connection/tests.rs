use std::collections::BTreeSet;

use http_body_util::BodyExt as _;

use super::super::test_servers::{
    SLOW_PATH, TestCa, TestProxy, TestServer, UNAVAILABLE_PATH, servers_and_node,
};
use super::*;

/// Maximum time of each step. It is long, so that a slow machine does not fail the tests.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeouts with which a server that never answers is detected soon.
const SHORT: Timeouts = Timeouts {
    connect: Duration::from_millis(500),
    ping_interval: Duration::from_millis(100),
    ping: Duration::from_millis(500),
    unavailable: Duration::from_millis(200),
};
/// Timeouts that do not end within a test.
const LONG: Timeouts = Timeouts {
    connect: Duration::from_secs(600),
    ping_interval: Duration::from_secs(600),
    ping: Duration::from_secs(600),
    unavailable: Duration::from_secs(600),
};

/// Creates the connection of a node that tries the servers in this order.
fn connect_to(ca: &TestCa, urls: &[ServerUrl], timeouts: Timeouts) -> Arc<ServerConnection> {
    let (servers, node) = servers_and_node(urls);
    let credentials = Credentials::Token("abcdef.0123456789abcdef".to_owned());
    let mut connection = ServerConnection::new(servers, &node, &ca.pem, credentials).unwrap();
    (connection.single_server_timeouts, connection.failover_timeouts) = (timeouts, timeouts);
    Arc::new(connection)
}

/// Sends a request, and returns the authority that the server received, or the error.
async fn send(connection: &ServerConnection, path: &str) -> Result<String, String> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let sending = tokio::time::timeout(STEP_TIMEOUT, connection.send(request));
    let response = sending.await.expect("a response or an error").map_err(|it| it.to_string())?;
    let body = response.into_body().collect().await.map_err(|it| it.to_string())?;
    Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

/// Sends a request, and checks which server received it.
async fn check_server(connection: &ServerConnection, expected: &ServerUrl) {
    assert_eq!(send(connection, "/version").await, Ok(expected.authority()));
}

/// Sends a request that the server does not answer, and waits until the server has received it.
async fn send_slow_request(
    connection: &Arc<ServerConnection>,
    server: &TestServer,
) -> tokio::task::JoinHandle<Result<String, String>> {
    let line = connection.clone();
    let request = tokio::spawn(async move { send(&line, SLOW_PATH).await });
    while server.slow_request_count() == 0 {
        tokio::task::yield_now().await;
    }
    request
}

#[tokio::test]
async fn a_node_stays_with_a_server_while_it_works() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    let connection = connect_to(&ca, &[a.url(), b.url()], LONG);
    for _ in 0..5 {
        check_server(&connection, &a.url()).await;
    }
    assert_eq!((a.connection_count(), b.connection_count()), (1, 0));
}

#[tokio::test]
async fn the_next_server_is_used_if_one_refuses_connections() {
    let ca = TestCa::new();
    let [a, b, c] =
        [TestServer::start(&ca).await, TestServer::start(&ca).await, TestServer::start(&ca).await];
    a.kill().await;
    b.kill().await;
    let connection = connect_to(&ca, &[a.url(), b.url(), c.url()], LONG);
    check_server(&connection, &c.url()).await;
}

#[tokio::test]
async fn the_next_server_is_used_if_one_never_answers() {
    let ca = TestCa::new();
    let (silent, b) = (TestProxy::start(None).await, TestServer::start(&ca).await);
    let connection = connect_to(&ca, &[silent.url(), b.url()], SHORT);
    check_server(&connection, &b.url()).await;
    assert_eq!(silent.connection_count(), 1);
}

#[tokio::test]
async fn the_next_server_is_used_if_the_certificate_is_not_for_the_address() {
    let ca = TestCa::new();
    let (wrong, b) = (TestServer::start_with_wrong_certificate(&ca).await, TestServer::start(&ca).await);
    let connection = connect_to(&ca, &[wrong.url(), b.url()], LONG);
    check_server(&connection, &b.url()).await;
    let foreign = TestServer::start(&TestCa::new()).await;
    let error = send(&connect_to(&ca, &[wrong.url(), foreign.url()], LONG), "/").await.unwrap_err();
    assert!(error.contains("not valid for name") && error.contains("BadSignature"), "{error}");
}

#[tokio::test]
async fn the_next_server_is_used_after_goaway_and_open_requests_are_answered() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    let connection = connect_to(&ca, &[a.url(), b.url()], LONG);
    let slow = send_slow_request(&connection, &a).await;
    a.drain();
    // GOAWAY reaches the client some time after the drain began.
    let began = std::time::Instant::now();
    while send(&connection, "/version").await.unwrap() == a.url().authority() {
        assert!(began.elapsed() < STEP_TIMEOUT, "the client ignores GOAWAY");
    }
    check_server(&connection, &b.url()).await;
    a.release_slow_requests();
    assert_eq!(slow.await.unwrap(), Ok(a.url().authority()));
}

/// The server is cut off from etcd.
#[tokio::test]
async fn the_next_server_is_used_if_one_answers_503_for_some_time_and_is_not_ready() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    a.set_readyz_status(Some(StatusCode::INTERNAL_SERVER_ERROR));
    let connection = connect_to(&ca, &[a.url(), b.url()], SHORT);
    for _ in 0..3 {
        assert_eq!(send(&connection, UNAVAILABLE_PATH).await, Ok(a.url().authority()));
        tokio::time::sleep(SHORT.unavailable).await;
        check_server(&connection, &a.url()).await;
    }
    assert_eq!(b.connection_count(), 0, "another response came between");
    send(&connection, UNAVAILABLE_PATH).await.unwrap();
    tokio::time::sleep(SHORT.unavailable).await;
    assert_eq!(send(&connection, UNAVAILABLE_PATH).await, Ok(a.url().authority()));
    check_server(&connection, &b.url()).await;
}

/// Not even `/readyz` is answered.
#[tokio::test]
async fn the_next_server_is_used_if_one_answers_503_and_its_readiness_is_unknown() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    a.set_readyz_status(None);
    let connection = connect_to(&ca, &[a.url(), b.url()], SHORT);
    send(&connection, UNAVAILABLE_PATH).await.unwrap();
    tokio::time::sleep(SHORT.unavailable).await;
    assert_eq!(send(&connection, UNAVAILABLE_PATH).await, Ok(a.url().authority()));
    check_server(&connection, &b.url()).await;
}

/// The database of etcd is full: all servers answer writes with 503, and all are ready.
#[tokio::test]
async fn a_node_stays_with_a_server_that_answers_503_and_is_ready() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    for unavailable in [SHORT.unavailable, Duration::ZERO] {
        let connection = connect_to(&ca, &[a.url(), b.url()], Timeouts { unavailable, ..SHORT });
        for _ in 0..3 {
            assert_eq!(send(&connection, UNAVAILABLE_PATH).await, Ok(a.url().authority()));
            tokio::time::sleep(unavailable).await;
        }
        assert_eq!(send(&connection, UNAVAILABLE_PATH).await, Ok(a.url().authority()));
        // The node leaves the server when the server is not ready any more.
        a.set_readyz_status(Some(StatusCode::INTERNAL_SERVER_ERROR));
        let began = std::time::Instant::now();
        while send(&connection, UNAVAILABLE_PATH).await.unwrap() == a.url().authority() {
            assert!(began.elapsed() < STEP_TIMEOUT, "the node stays with a server that is not ready");
            tokio::time::sleep(unavailable).await;
        }
        a.set_readyz_status(Some(StatusCode::OK));
    }
    assert_eq!((a.connection_count(), b.connection_count()), (2, 2));
}

#[tokio::test]
async fn the_next_server_is_used_at_once_after_a_connection_ends() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    let connection = connect_to(&ca, &[a.url(), b.url()], LONG);
    let slow = send_slow_request(&connection, &a).await;
    a.kill().await;
    slow.await.unwrap().expect_err("the request is not repeated");
    check_server(&connection, &b.url()).await;
    // The node stays with the new server.
    let _a = TestServer::start_at(&ca, a.address()).await;
    check_server(&connection, &b.url()).await;
}

#[tokio::test]
async fn pings_detect_a_server_that_is_cut_off() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    let proxy = TestProxy::start(Some(a.address())).await;
    let connection = connect_to(&ca, &[proxy.url(), b.url()], SHORT);
    let slow = send_slow_request(&connection, &a).await;
    proxy.freeze();
    slow.await.unwrap().expect_err("no response can arrive");
    check_server(&connection, &b.url()).await;
}

#[tokio::test]
async fn an_error_names_every_server_and_requests_succeed_when_one_is_back() {
    let ca = TestCa::new();
    let (silent, b) = (TestProxy::start(None).await, TestServer::start(&ca).await);
    b.kill().await;
    let connection = connect_to(&ca, &[silent.url(), b.url()], SHORT);
    let error = send(&connection, "/").await.unwrap_err();
    let no_response = format!("{}: no response within 500ms", silent.url());
    let refused = format!("{}: Connection refused", b.url());
    assert!(error.contains(&no_response) && error.contains(&refused), "{error}");
    let b = TestServer::start_at(&ca, b.address()).await;
    check_server(&connection, &b.url()).await;
}

#[tokio::test]
async fn a_single_server_is_used_again_when_it_is_back() {
    let ca = TestCa::new();
    let a = TestServer::start(&ca).await;
    let connection = connect_to(&ca, &[a.url()], LONG);
    check_server(&connection, &a.url()).await;
    a.kill().await;
    let error = send(&connection, "/").await.unwrap_err();
    assert!(error.contains(&format!("{}: Connection refused", a.url())), "{error}");
    let a = TestServer::start_at(&ca, a.address()).await;
    check_server(&connection, &a.url()).await;
}

#[tokio::test]
async fn a_cancelled_request_does_not_hold_the_next_one_at_the_same_server() {
    let ca = TestCa::new();
    let (silent, b) = (TestProxy::start(None).await, TestServer::start(&ca).await);
    let connection = connect_to(&ca, &[silent.url(), b.url()], LONG);
    let request = Request::get("/").body(Body::empty()).unwrap();
    let cancelled = tokio::time::timeout(Duration::from_millis(100), connection.send(request)).await;
    assert!(cancelled.is_err());
    check_server(&connection, &b.url()).await;
}

#[tokio::test]
async fn requests_that_wait_for_the_same_attempt_share_its_failure() {
    let ca = TestCa::new();
    let silent = TestProxy::start(None).await;
    let connection = connect_to(&ca, &[silent.url()], SHORT);
    let requests = (0..5).map(|_| send(&connection, "/"));
    for result in futures::future::join_all(requests).await {
        result.unwrap_err();
    }
    assert_eq!(silent.connection_count(), 1);
    send(&connection, "/").await.unwrap_err();
    assert_eq!(silent.connection_count(), 2, "a later request tries again");
}

#[tokio::test]
async fn new_credentials_open_a_new_connection_to_the_same_server() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    let connection = connect_to(&ca, &[a.url(), b.url()], LONG);
    check_server(&connection, &a.url()).await;
    connection.replace_credentials(Credentials::Token("other".to_owned()));
    check_server(&connection, &a.url()).await;
    check_server(&connection, &a.url()).await;
    assert_eq!((a.connection_count(), b.connection_count()), (2, 0));
}

#[tokio::test]
async fn timeouts_are_shorter_as_soon_as_several_servers_are_known() {
    let ca = TestCa::new();
    let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
    let (servers, node) = servers_and_node(&[a.url()]);
    let credentials = Credentials::Token(String::new());
    let connection = ServerConnection::new(servers.clone(), &node, &ca.pem, credentials).unwrap();
    let timeouts = async || connection.state.lock().await.open.as_ref().map(|it| it.timeouts);
    check_server(&connection, &a.url()).await;
    assert_eq!(timeouts().await, Some(SINGLE_SERVER_TIMEOUTS));
    servers.replace_learned(&BTreeSet::from([a.address(), b.address()]));
    check_server(&connection, &a.url()).await;
    check_server(&connection, &a.url()).await;
    assert_eq!(timeouts().await, Some(FAILOVER_TIMEOUTS));
    assert_eq!((a.connection_count(), b.connection_count()), (2, 0));
}
