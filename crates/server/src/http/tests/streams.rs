//! Watches and streams of agents end when their client is no longer authorized.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_rustls::server::TlsStream;

use super::agents::{Bed, LOG, connect, head};
use super::*;
use crate::request::ClientCertificate;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REAUTHORIZE_EVERY: Duration = Duration::from_millis(100);

/// Who opens the streams, and with which credential.
struct Client {
    /// The user of the client certificate.
    peer: Option<User>,
    /// The header with the bearer token.
    authorization: String,
}

impl Client {
    fn with_certificate(serial: &str) -> Self {
        let mut user = User::new("developer", ["system:authenticated"]);
        user.client_certificate =
            Some(ClientCertificate { serial: serial.into(), issued_at: Timestamp::UNIX_EPOCH });
        Self { peer: Some(user), authorization: String::new() }
    }

    /// A client with a new token of the service account `developer`, and the ID of the token.
    async fn with_token(bed: &Bed) -> (Self, String) {
        let path = format!("{ACCOUNTS}/developer/token");
        let (code, answer) = bed.server.json("POST", &path, json!({"spec": {}})).await;
        assert_eq!(code, 201);
        let token = str_at(&answer, "status.token");
        let claims = BASE64URL.decode(token.split('.').nth(1).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        let authorization = format!("authorization: Bearer {token}\r\n");
        (Self { peer: None, authorization }, str_at(&claims, "jti").to_owned())
    }
}

/// A server that authorizes streams again and again, a user and a service account who may use pods as long as the RoleBinding
/// `uses` exists, and a client of the user.
async fn bed() -> (Bed, Client) {
    let mut bed = Bed::new("system:node:n", "system:nodes").await;
    let config = LimitsConfig { reauthorize_interval: REAUTHORIZE_EVERY, ..bed.server.api.limits.config };
    bed.server.api.limits = Arc::new(ServerLimits::new(config));
    let verbs = ["get", "list", "watch", "create"];
    let resources = ["pods", "pods/log", "pods/exec", "pods/attach", "pods/portforward"];
    let role = json!({
        "metadata": {"name": "uses"},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}],
    });
    assert_eq!(bed.server.json("POST", &format!("{RBAC}/roles"), role).await.0, 201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "uses"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "uses"},
        "subjects": [
            {"apiGroup": group, "kind": "User", "name": "developer"},
            {"kind": "ServiceAccount", "name": "developer", "namespace": "default"},
        ],
    });
    assert_eq!(bed.server.json("POST", &format!("{RBAC}/rolebindings"), binding).await.0, 201);
    let account = json!({"metadata": {"name": "developer"}});
    assert_eq!(bed.server.json("POST", ACCOUNTS, account).await.0, 201);
    (bed, Client::with_certificate("1"))
}

/// A stream that the client has open, and the agent's end of it, which says nothing more.
struct Stream {
    name: &'static str,
    client: DuplexStream,
    _agent: Option<TlsStream<tokio::net::TcpStream>>,
}

impl Stream {
    /// `answer` is what the agent says, if the server asks one. The stream is open once the client has read a byte of the body.
    async fn open(bed: &Bed, by: &Client, name: &'static str, request: &str, answer: Option<&str>) -> Self {
        let mut client = connect(bed, by.peer.clone());
        let request = request.replacen("host: x\r\n", &format!("host: x\r\n{}", by.authorization), 1);
        client.write_all(request.as_bytes()).await.unwrap();
        let agent = match answer {
            None => None,
            Some(answer) => {
                let mut agent = bed.accept().await;
                head(&mut agent).await;
                agent.write_all(answer.as_bytes()).await.unwrap();
                Some(agent)
            }
        };
        let answered = head(&mut client).await;
        let code = answered.split(' ').nth(1).unwrap();
        assert!(matches!(code, "200" | "101"), "{name}: {answered}");
        client.read_u8().await.unwrap();
        Self { name, client, _agent: agent }
    }

    async fn open_all(bed: &Bed, by: &Client) -> Vec<Self> {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let upgrade = |what: &str| {
            format!(
                "POST /api/v1/namespaces/default/pods/p/{what} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\n\
                 upgrade: SPDY/3.1\r\n\r\n"
            )
        };
        let chunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let switched =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\nhello";
        let mut streams = Vec::new();
        for (name, request, answer) in [
            ("watch", get(&format!("{PODS}?watch=1")), None),
            ("log", get(&format!("{LOG}?follow=true")), Some(chunk)),
            ("exec", upgrade("exec?command=sh&stdin=1"), Some(switched)),
            ("attach", upgrade("attach?stdout=1"), Some(switched)),
            ("portforward", upgrade("portforward"), Some(switched)),
        ] {
            streams.push(Self::open(bed, by, name, &request, answer).await);
        }
        streams
    }

    /// What the client reads until the stream ends.
    async fn end(mut self) -> String {
        let mut said = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let read = tokio::time::timeout(Duration::from_secs(30), self.client.read(&mut bytes)).await;
            match read.unwrap_or_else(|_| panic!("{} does not end", self.name)) {
                Ok(0) | Err(_) => return String::from_utf8_lossy(&said).into_owned(),
                Ok(read) => said.extend_from_slice(&bytes[..read]),
            }
            // A connection stays open behind a body that has ended.
            if said.ends_with(b"\r\n0\r\n\r\n") {
                return String::from_utf8_lossy(&said).into_owned();
            }
        }
    }
}

#[tokio::test]
async fn a_stream_stays_open_while_its_client_is_authorized() {
    let (bed, client) = bed().await;
    let mut streams = Stream::open_all(&bed, &client).await;
    tokio::time::sleep(REAUTHORIZE_EVERY * 4).await;
    assert_eq!(bed.server.api.registry.metrics.long_running_requests.get(), 5);
    for stream in &mut streams {
        // Of what it said before, the first byte was read. Nothing but that may follow.
        let mut bytes = [0; 4096];
        let read = tokio::time::timeout(REAUTHORIZE_EVERY, stream.client.read(&mut bytes)).await;
        assert!(!matches!(read, Ok(Ok(0) | Err(_))), "{} has ended", stream.name);
    }
}

/// A client that always has another event to read is stopped all the same.
#[tokio::test]
async fn a_watch_that_is_always_behind_ends_with_its_time_and_its_rights() {
    let (bed, client) = bed().await;
    let server = &bed.server;
    for (query, is_revoked) in [("timeoutSeconds=1", false), ("timeoutSeconds=3600", true)] {
        let uri = format!("{PODS}?watch=1&{query}");
        let request = Request::builder().uri(uri).body(Full::new(Bytes::new())).unwrap();
        let mut body = server.handle(client.peer.as_ref(), request).await.into_body();
        if is_revoked {
            assert_eq!(server.json("DELETE", &format!("{RBAC}/rolebindings/uses"), json!({})).await.0, 200);
        }
        let began = std::time::Instant::now();
        loop {
            // The next event is there before the last one is read.
            for _ in 0..2 {
                let label =
                    json!({"metadata": {"labels": {"at": format!("{:?}", began.elapsed().as_nanos())}}});
                assert_eq!(server.merge(&format!("{PODS}/p"), label).await.0, 200);
            }
            let Some(frame) = body.frame().await else { break };
            if String::from_utf8_lossy(&frame.unwrap().into_data().unwrap()).contains("\"code\":403") {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{query} does not end");
        }
    }
}

/// Opens all streams, and takes something away from their client. All streams end, and the watch says why.
async fn check_streams_end(bed: &Bed, by: &Client, code: u16, take: impl Future<Output = (u16, Value)>) {
    let streams = Stream::open_all(bed, by).await;
    let taken = take.await;
    assert!(matches!(taken.0, 200 | 201), "{taken:?}");
    for stream in streams {
        let name = stream.name;
        let said = stream.end().await;
        // A watch can say why; the others carry what the agent sends.
        assert_eq!(said.contains(&format!("\"code\":{code}")), name == "watch", "{name}: {said}");
    }
    wait_until(|| bed.server.api.registry.metrics.long_running_requests.get() == 0).await;
}

#[tokio::test]
async fn every_stream_ends_when_the_role_binding_is_deleted() {
    let (bed, client) = bed().await;
    let path = format!("{RBAC}/rolebindings/uses");
    check_streams_end(&bed, &client, 403, bed.server.json("DELETE", &path, json!({}))).await;
}

#[tokio::test]
async fn every_stream_ends_when_its_token_is_revoked() {
    let (bed, _) = bed().await;
    let (client, id) = Client::with_token(&bed).await;
    check_streams_end(&bed, &client, 401, revoke(&bed, &format!("token.{id}"))).await;
}

#[tokio::test]
async fn every_stream_ends_when_its_service_account_is_deleted() {
    let (bed, _) = bed().await;
    let (client, _) = Client::with_token(&bed).await;
    let path = format!("{ACCOUNTS}/developer");
    check_streams_end(&bed, &client, 401, bed.server.json("DELETE", &path, json!({}))).await;
}

#[tokio::test]
async fn every_stream_ends_when_its_certificate_is_revoked() {
    let (bed, client) = bed().await;
    check_streams_end(&bed, &client, 401, revoke(&bed, "certificate.1")).await;
}

/// Writes a revocation list with this entry.
async fn revoke(bed: &Bed, key: &str) -> (u16, Value) {
    let list = json!({"metadata": {"name": "muster-revoked-credentials"}, "data": {key: "{}"}});
    bed.server.json("POST", "/api/v1/namespaces/kube-system/configmaps", list).await
}
