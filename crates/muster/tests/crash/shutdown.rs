//! A server that is stopped with SIGTERM: its clients lose no request.

use std::time::Instant;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use bytes::Bytes;
use h2::Reason;
use http::{Request, StatusCode};
use serde_json::json;

use super::*;
use crate::connection::{Credential, Endpoint};

/// `--shutdown-delay` of the server. It is long enough for the requests of the test during this time.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(6);

/// Maximum time for each step of the test after the delay. The server waits 5 s for requests in flight.
const STEP_TIMEOUT: Duration = Duration::from_secs(4);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_terminated_sends_goaway_and_answers_requests_in_flight() {
    let dir = fresh_dir("shutdown");
    let delay = format!("{}s", SHUTDOWN_DELAY.as_secs());
    let mut server = Server::start_with(&dir, &["--shutdown-delay", &delay]);
    let (endpoint, credential) = (Endpoint::of(&server.kubeconfig), administrator(&server.kubeconfig));
    let connection = endpoint.http2(&credential, 1 << 16).await.unwrap();
    // A request in flight: half of its body is sent.
    let map = json!({"metadata": {"name": "in-flight"}, "data": {"a": "b"}}).to_string().into_bytes();
    let (begin, end) = map.split_at(map.len() / 2);
    let request = connection.request("POST", MAPS).body(()).unwrap();
    let mut sender = connection.sender.clone().ready().await.unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    body.send_data(Bytes::copy_from_slice(begin), false).unwrap();
    let client = server.client().await;
    let status = async |path: &str| -> StatusCode {
        let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
        client.send(request).await.unwrap().status()
    };
    for path in ["/readyz", "/livez", MAPS] {
        assert_eq!(status(path).await, 200, "{path}");
    }

    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let terminated = Instant::now();
    // Load balancers see that it stops, and it serves whatever comes until the delay is over.
    while status("/readyz").await == 200 {
        assert!(terminated.elapsed() < SHUTDOWN_DELAY, "/readyz does not fail");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(status("/readyz").await, 500);
    assert_eq!(status("/livez").await, 200);
    let mut other = endpoint.http2(&credential, 1 << 16).await.unwrap();
    let list = other.request("GET", MAPS).body(()).unwrap();
    assert_eq!(other.send(list, Bytes::new()).await.unwrap().0, 200, "on a new connection");

    // GOAWAY ends the connection for new requests, and not for the one in flight.
    let refused = loop {
        match sender.clone().ready().await {
            Ok(_) => {
                let since = terminated.elapsed();
                assert!(since < SHUTDOWN_DELAY + STEP_TIMEOUT, "no GOAWAY after {since:?}");
            }
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(SHUTDOWN_DELAY <= terminated.elapsed(), "GOAWAY came before the delay was over");
    let is_goaway = refused.is_go_away() && refused.is_remote();
    assert!(is_goaway && refused.reason() == Some(Reason::NO_ERROR), "{refused:?}");
    body.send_data(Bytes::copy_from_slice(end), true).unwrap();
    let response = tokio::time::timeout(STEP_TIMEOUT, response).await.expect("the request is answered");
    assert_eq!(response.unwrap().status(), 201);
    drop((connection, other));
    let ended = tokio::task::spawn_blocking(move || server.child.wait().unwrap().code());
    assert_eq!(tokio::time::timeout(STEP_TIMEOUT, ended).await.expect("the server ends").unwrap(), Some(0));
    let server = Server::start(&dir);
    assert!(server.maps().await.get_opt("in-flight").await.unwrap().is_some());
    drop(server);
    fs::remove_dir_all(&dir).unwrap();
}

/// The client certificate in a kubeconfig.
fn administrator(kubeconfig: &Path) -> Credential {
    let user = Kubeconfig::read_from(kubeconfig).unwrap().auth_infos[0].auth_info.clone().unwrap();
    let decode = |it: &str| String::from_utf8(BASE64.decode(it).unwrap()).unwrap();
    let config = serde_json::to_value(user).unwrap();
    let field = |name: &str| decode(config[name].as_str().unwrap());
    Credential::Certificate {
        certificate_pem: field("client-certificate-data"),
        key_pem: field("client-key-data"),
    }
}
