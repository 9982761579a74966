//! What only agents serve, with agents that are good, and others.

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::agents::AgentClient;
use crate::pki::Pki;

/// A server, and one agent that listens for real. What it says is for the test to say.
pub(super) struct Bed {
    pub(super) server: Server,
    agent: TcpListener,
    tls: TlsAcceptor,
    _dir: tempfile::TempDir,
}

impl Bed {
    /// The agent's certificate is for this user.
    pub(super) async fn new(who: &str, group: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let tls = TlsAcceptor::from(Arc::new(crate::pki::tests::agent(&pki, who, group)));
        let agent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut server = Server::new().await;
        server.api.agents = Some(Arc::new(AgentClient::new(&pki).unwrap()));
        let node = json!({
            "metadata": {"name": "n"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": agent.local_addr().unwrap().port()}},
            },
        });
        server.json("POST", "/api/v1/nodes", node).await;
        server.json("POST", PODS, pod("p", "n")).await;
        Self { server, agent, tls, _dir: dir }
    }

    /// Serves all requests to the agent: refuses them, and sends their methods and URLs to the returned channel.
    pub(super) fn serve_agent(self) -> (Server, UnboundedReceiver<String>) {
        let Self { server, agent, tls, _dir } = self;
        let (sender, received) = unbounded_channel();
        tokio::spawn(async move {
            let _dir = _dir;
            loop {
                let (stream, _) = agent.accept().await.unwrap();
                let stream = tls.accept(stream).await.unwrap();
                let sender = sender.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    sender.send(format!("{} {}", request.method(), request.uri())).unwrap();
                    let answer = hyper::Response::builder().status(400).body(Full::new(Bytes::new()));
                    async move { answer }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(serving);
            }
        });
        (server, received)
    }

    pub(super) async fn accept(&self) -> TlsStream<TcpStream> {
        let (stream, _) = self.agent.accept().await.unwrap();
        self.tls.accept(stream).await.unwrap()
    }

    /// The request that the agent gets, and the response that the client gets if the agent answers with this one.
    async fn asked(&self, path: &str, said: &[u8]) -> String {
        let agent = async {
            let mut stream = self.accept().await;
            let head = head(&mut stream).await;
            // Whoever has heard enough may hang up.
            let _ = stream.write_all(said).await;
            let _ = stream.shutdown().await;
            head
        };
        let (head, answer) = tokio::join!(agent, self.text("GET", path));
        format!("{}\n{answer}", head.lines().next().unwrap_or_default())
    }

    async fn text(&self, method: &str, path: &str) -> String {
        let request = Request::builder().method(method).uri(path).body(Full::new(Bytes::new())).unwrap();
        let response = self.server.handle(Some(&User::server()), request).await;
        let code = response.status();
        let body = match response.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return format!("{} then {error}", code.as_u16()),
        };
        let text = match serde_json::from_slice::<Value>(&body) {
            Ok(status) if status["kind"] == "Status" => str_at(&status, "message").to_owned(),
            _ => String::from_utf8_lossy(&body).into_owned(),
        };
        let text = text.replace(&self.agent.local_addr().unwrap().port().to_string(), "PORT");
        format!("{} {text}", code.as_u16())
    }
}

pub(super) async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

pub(super) const LOG: &str = "/api/v1/namespaces/default/pods/p/log";

#[tokio::test]
async fn a_log_is_asked_of_the_agent_of_the_pods_node() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let chunked = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let options = "follow=true&tailLines=5&sinceSeconds=3&timestamps=1&previous=0&limitBytes=9&insecureSkipTLSVerifyBackend=1";
    expect![[r#"
        GET /containerLogs/default/p/c?follow=true&timestamps=true&sinceSeconds=3&tailLines=5&limitBytes=9 HTTP/1.1
        200 hello"#]]
    .assert_eq(&bed.asked(&format!("{LOG}?{options}"), chunked).await);
    let refused = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\nwhy\n";
    expect![[r#"
        GET /containerLogs/default/p/c HTTP/1.1
        400 why"#]]
    .assert_eq(&bed.asked(&format!("{LOG}?container=c"), refused).await);

    let mut said = String::new();
    for query in
        ["container=x", "tailLines=-1", "limitBytes=0&sinceSeconds=0", "sinceTime=now", "tailLines=x"]
    {
        writeln!(said, "{}", bed.text("GET", &format!("{LOG}?{query}")).await).unwrap();
    }
    for path in [PODS, "/api/v1/nodes"] {
        let subresource = if path == PODS { "x/log" } else { "x/proxy/healthz" };
        writeln!(said, "{}", bed.text("GET", &format!("{path}/{subresource}")).await).unwrap();
    }
    expect![[r#"
        400 container x is not valid for pod p
        422 PodLogOptions "" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0
        422 PodLogOptions "" is invalid: [sinceSeconds: Invalid value: 0: must be greater than 0, limitBytes: Invalid value: 0: must be greater than 0]
        400 sinceTime: "now" is not a time: write it as 2006-01-02T15:04:05Z
        400 strconv.ParseInt: parsing "x": invalid syntax
        404 pods "x" not found
        404 nodes "x" not found
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn an_agent_is_that_of_its_node_or_it_is_not_heard() {
    let mut said = String::new();
    for (who, group) in
        [("system:node:m", "system:nodes"), ("system:node:n", "others"), ("n", "system:nodes")]
    {
        let bed = Bed::new(who, group).await;
        let agent = async {
            let mut stream = bed.accept().await;
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).await;
            assert_eq!(heard, b"", "nothing is said to a stranger");
        };
        let ((), answer) = tokio::join!(agent, bed.text("GET", LOG));
        writeln!(said, "{answer}").unwrap();
    }
    expect![[r#"
        503 the node "n" of pod "p" cannot be reached: 127.0.0.1:PORT does not authenticate as node "n": its certificate is issued to "system:node:m"
        503 the node "n" of pod "p" cannot be reached: 127.0.0.1:PORT does not authenticate as node "n": its certificate is issued to "system:node:n"
        503 the node "n" of pod "p" cannot be reached: 127.0.0.1:PORT does not authenticate as node "n": its certificate is issued to "n"
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn an_agent_that_answers_with_anything_else_is_cut_off() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let endless = [&b"HTTP/1.1 200 OK\r\nx: "[..], &vec![b'x'; 200 << 10]].concat();
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(500));
    let cases: [&[u8]; 8] = [
        b"",
        b"garbage\r\n\r\n",
        &endless,
        many.as_bytes(),
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
        b"HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ];
    let mut said = String::new();
    for case in cases {
        let answer = bed.asked(LOG, case).await;
        writeln!(said, "{}", answer.lines().last().unwrap_or_default()).unwrap();
    }
    // One that takes the request, and says nothing.
    let mut silent = Bed::new("system:node:n", "system:nodes").await;
    let agents = silent.server.api.agents.as_mut().and_then(Arc::get_mut).unwrap();
    agents.response_timeout = Duration::from_millis(100);
    let (_held, answer) = tokio::join!(silent.accept(), silent.text("GET", LOG));
    writeln!(said, "{answer}").unwrap();
    drop(bed.agent);
    let gone = Request::builder().uri(LOG).body(Full::new(Bytes::new())).unwrap();
    let gone = bed.server.handle(Some(&User::server()), gone).await.status();
    writeln!(said, "{}", gone.as_u16()).unwrap();
    expect![[r#"
        503 the node "n" of pod "p" cannot be reached: the request to the agent failed: connection closed before message completed
        503 the node "n" of pod "p" cannot be reached: the request to the agent failed: invalid HTTP version parsed
        503 the node "n" of pod "p" cannot be reached: the request to the agent failed: message head is too large
        503 the node "n" of pod "p" cannot be reached: the request to the agent failed: message head is too large
        500 Internal error occurred: the agent of node "n" answered 101 Switching Protocols
        500 Internal error occurred: the agent of node "n" answered 302 Found
        200 then error reading a body from connection
        503 the node "n" of pod "p" cannot be reached: the request to the agent failed: error reading a body from connection
        503 the node "n" of pod "p" cannot be reached: the agent did not answer in time
        503
    "#]]
    .assert_eq(&said);
    assert_eq!(
        bed.server.api.registry.metrics.long_running_requests.get(),
        0,
        "nobody holds a place any more"
    );
}

/// A client's connection, which the server answers on behalf of this user.
/// `peer` is the user of the client certificate, if the client has one.
pub(super) fn connect(bed: &Bed, peer: impl Into<Option<User>>) -> tokio::io::DuplexStream {
    let (client, line) = tokio::io::duplex(4096);
    let (api, peer) = (bed.server.api.clone(), peer.into());
    tokio::spawn(async move {
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (api, peer) = (api.clone(), peer.clone());
            async move { Ok::<_, std::convert::Infallible>(api.handle(peer.as_ref(), request).await) }
        });
        let http1 = hyper::server::conn::http1::Builder::new();
        http1.serve_connection(TokioIo::new(line), service).with_upgrades().await
    });
    client
}

#[tokio::test]
async fn a_connection_that_becomes_something_else_is_spliced() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let mut client = connect(&bed, User::server());
    let path =
        "/api/v1/namespaces/default/pods/p/exec?command=ls&command=a%26b&stdout=true&stdin=false&tty=1";
    let ask = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer t\r\ncookie: c\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
         x-stream-protocol-version: v4.channel.k8s.io\r\n\r\n"
    );
    client.write_all(ask.as_bytes()).await.unwrap();
    let mut agent = bed.accept().await;
    let asked = head(&mut agent).await;
    let mut asked: Vec<&str> = asked.lines().filter(|it| !it.starts_with("host") && !it.is_empty()).collect();
    asked[1..].sort_unstable();
    expect![[r#"
        POST /exec/default/p/c?output=1&tty=1&command=ls&command=a%26b HTTP/1.1
        connection: Upgrade
        upgrade: SPDY/3.1
        x-stream-protocol-version: v4.channel.k8s.io"#]]
    .assert_eq(&asked.join("\n"));
    let answer =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\nset-cookie: c\r\n\
                   x-stream-protocol-version: v4.channel.k8s.io\r\n\r\nhello";
    agent.write_all(answer).await.unwrap();
    let answered = head(&mut client).await;
    assert!(answered.starts_with("HTTP/1.1 101"), "{answered}");
    assert!(answered.contains("x-stream-protocol-version: v4") && !answered.contains("cookie"), "{answered}");
    let mut bytes = [0; 5];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    client.write_all(b"to you").await.unwrap();
    let mut bytes = [0; 6];
    agent.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"to you");
    assert_eq!(bed.server.api.registry.metrics.long_running_requests.get(), 1);
    // A server that stops ends it.
    bed.server.api.stop.cancel();
    assert_eq!(client.read(&mut bytes).await.unwrap(), 0);
    let _ = agent.read(&mut bytes).await;
    while bed.server.api.registry.metrics.long_running_requests.get() != 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_log_is_sent_as_web_socket_messages_on_request() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let mut said = String::new();
    for (upgrade, answer) in [
        ("websocket", "101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nmessages"),
        ("SPDY/3.1", "200 OK\r\ncontent-length: 4\r\n\r\ntext"),
    ] {
        let mut client = connect(&bed, User::server());
        let ask = format!(
            "GET {LOG} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: {upgrade}\r\nsec-websocket-key: k\r\n\r\n"
        );
        client.write_all(ask.as_bytes()).await.unwrap();
        let mut agent = bed.accept().await;
        let asked = head(&mut agent).await.lines().any(|it| it.starts_with("upgrade: "));
        agent.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
        let answered = head(&mut client).await;
        let answered = answered.lines().next().unwrap_or_default();
        writeln!(said, "{upgrade}: {answered}, the agent was asked for it: {asked}").unwrap();
    }
    expect![[r"
        websocket: HTTP/1.1 101 Switching Protocols, the agent was asked for it: true
        SPDY/3.1: HTTP/1.1 200 OK, the agent was asked for it: false
    "]]
    .assert_eq(&said);
}

const PROXY: &str = "/api/v1/namespaces/default/pods/p:8080/proxy";

#[tokio::test]
async fn a_request_goes_through_to_a_pod() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let mut client = connect(&bed, User::server());
    let ask = format!(
        "PUT {PROXY}/a%2Fb/../c?timeout=soon&dryRun=x HTTP/1.1\r\nhost: here:8001\r\nauthorization: Bearer t\r\n\
         cookie: c\r\nconnection: close, x-hop\r\nx-hop: 1\r\nmuster-reached: 1\r\n\
         content-type: text/plain\r\ncontent-length: 4\r\nx-forwarded-for: 192.0.2.1\r\n\r\nbody"
    );
    client.write_all(ask.as_bytes()).await.unwrap();
    let mut agent = bed.accept().await;
    let asked = head(&mut agent).await;
    let mut asked: Vec<&str> = asked.lines().filter(|it| !it.starts_with("host") && !it.is_empty()).collect();
    asked[1..].sort_unstable();
    expect![[r"
        PUT /podProxy/default/p/http/8080/a%2Fb/../c?timeout=soon&dryRun=x HTTP/1.1
        content-length: 4
        content-type: text/plain
        cookie: c
        x-forwarded-for: 192.0.2.1
        x-forwarded-host: here:8001
        x-forwarded-proto: https
        x-forwarded-uri: /api/v1/namespaces/default/pods/p:8080/proxy/a%2Fb/../c"]]
    .assert_eq(&asked.join("\n"));
    let mut body = [0; 4];
    agent.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"body");
    let answer = b"HTTP/1.1 302 Found\r\nmuster-reached: 1\r\nlocation: http://here:8001/d\r\nset-cookie: s\r\nconnection: x-hop\r\nx-hop: 1\r\ncontent-length: 5\r\n\r\nthere";
    agent.write_all(answer).await.unwrap();
    let answered = head(&mut client).await;
    let mut answered: Vec<&str> =
        answered.lines().filter(|it| !it.starts_with("date") && !it.is_empty()).collect();
    answered[1..].sort_unstable();
    expect![[r"
        HTTP/1.1 302 Found
        connection: close
        content-length: 5
        location: /api/v1/namespaces/default/pods/p:8080/proxy/d
        set-cookie: s"]]
    .assert_eq(&answered.join("\n"));
    let mut body = String::new();
    client.read_to_string(&mut body).await.unwrap();
    assert_eq!(body, "there");
}

#[tokio::test]
async fn proxy_requests_that_never_reach_an_agent() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let mut said = String::new();
    for answer in [
        "200 OK\r\nmuster-reached: 1\r\ncontent-length: 2\r\n\r\nhi",
        "503 No\r\nmuster-reached: 1\r\ncontent-length: 8\r\n\r\nits word",
        "503 No\r\ncontent-length: 7\r\n\r\nrefused",
        "400 No\r\ncontent-length: 19\r\n\r\naddress not allowed",
        "403 No\r\ncontent-length: 8\r\n\r\nport 1: ",
        "200 OK\r\ncontent-length: 2\r\n\r\nhi",
        "101 OK\r\nmuster-reached: 1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ] {
        let answer = format!("HTTP/1.1 {answer}");
        writeln!(said, "{}", bed.asked(&format!("{PROXY}/"), answer.as_bytes()).await).unwrap();
    }
    for name in ["p:x", "ftp:p:1", "other", "p:0"] {
        writeln!(said, "{}", bed.text("GET", &format!("{PODS}/{name}/proxy/")).await).unwrap();
    }
    bed.server.json("POST", PODS, pod("nowhere", "")).await;
    writeln!(said, "{}", bed.text("GET", &format!("{PODS}/nowhere/proxy/")).await).unwrap();
    writeln!(said, "{}", bed.text("GET", PROXY).await).unwrap();
    expect![[r#"
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        200 hi
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        503 its word
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        503 error trying to reach service: refused
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        400 address not allowed
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        403 pods "p:8080" is forbidden: port 1:
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        503 error trying to reach service: hi
        GET /podProxy/default/p/http/8080/ HTTP/1.1
        503 error trying to reach service: it switches to a protocol that was not requested
        400 invalid pod request "p:x"
        400 invalid pod request "ftp:p:1"
        404 pods "other" not found
        400 invalid pod request "p:0"
        400 pod nowhere does not have a host assigned
        301 
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn a_service_leads_to_a_ready_pod_of_its_namespace() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    let services = "/api/v1/namespaces/default/services";
    let ports = json!([{"name": "web", "port": 80, "targetPort": 8080}, {"name": "other", "port": 81}]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": ports}});
    assert_eq!(bed.server.json("POST", services, service).await.0, 201);
    let uid = bed.server.get(&format!("{PODS}/p")).await.1["metadata"]["uid"].clone();
    let reference =
        |namespace: &str, uid: Value| json!({"kind": "Pod", "name": "p", "namespace": namespace, "uid": uid});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = |name: &str, endpoint: Value| {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4",
            "ports": [{"name": "web", "port": 8080}],
            "endpoints": [endpoint],
        })
    };
    // Whoever else is written there is nobody that a request is passed on to.
    for (name, endpoint) in [
        ("elsewhere", json!({"addresses": ["10.0.0.1"], "targetRef": reference("kube-system", uid.clone())})),
        ("another", json!({"addresses": ["10.0.0.1"], "targetRef": reference("default", json!("u"))})),
        ("no-pod", json!({"addresses": ["10.0.0.1"]})),
        (
            "not-ready",
            json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}, "targetRef": reference("default", uid.clone())}),
        ),
    ] {
        let (code, why) = bed.server.json("POST", slices, slice(name, endpoint)).await;
        assert_eq!(code, 201, "{why}");
    }
    let mut said = String::new();
    for path in ["podProxy/default/p/http/80/", "nodeProxy/http/22/"] {
        let answer = bed.text("GET", &format!("/api/v1/nodes/n/proxy/{path}")).await;
        writeln!(said, "{}", answer.trim_end()).unwrap();
    }
    for id in ["s:80", "s:web", "s:81", "s:82", "s", "t:80", "s:80:80:80"] {
        writeln!(said, "{id} {}", bed.text("GET", &format!("{services}/{id}/proxy/")).await).unwrap();
    }
    let good = json!({"addresses": ["10.0.0.1"], "targetRef": reference("default", uid)});
    assert_eq!(bed.server.json("POST", slices, slice("good", good)).await.0, 201);
    let answer = b"HTTP/1.1 200 OK\r\nmuster-reached: 1\r\ncontent-length: 2\r\n\r\nhi";
    for id in ["s:80", "https:s:web"] {
        writeln!(said, "{}", bed.asked(&format!("{services}/{id}/proxy/a?b=c"), answer).await).unwrap();
    }
    let port = bed.agent.local_addr().unwrap().port().to_string();
    for id in ["n".to_owned(), format!("n:{port}"), "n:9100".to_owned(), "https:n:1".to_owned()] {
        let asked = bed.asked(&format!("/api/v1/nodes/{id}/proxy/metrics"), answer).await;
        writeln!(said, "{}", asked.replace(&port, "PORT")).unwrap();
    }
    expect![[r#"
        404 404 page not found
        404 404 page not found
        s:80 503 no endpoints available for service "s"
        s:web 503 no endpoints available for service "s"
        s:81 503 no endpoints available for service "s"
        s:82 503 no service port 82 found for service "s"
        s 503 no endpoints available for service "s"
        t:80 404 services "t" not found
        s:80:80:80 400 invalid service request "s:80:80:80"
        GET /podProxy/default/p/http/8080/a?b=c HTTP/1.1
        200 hi
        GET /podProxy/default/p/https/8080/a?b=c HTTP/1.1
        200 hi
        GET /metrics HTTP/1.1
        200 hi
        GET /metrics HTTP/1.1
        200 hi
        GET /nodeProxy/http/9100/metrics HTTP/1.1
        200 hi
        GET /nodeProxy/https/1/metrics HTTP/1.1
        200 hi
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn exec_requires_permission_to_create() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    crate::controllers::cluster_roles::ensure_default_roles(&bed.server.api.registry, Timestamp::now())
        .await
        .unwrap();
    let role = json!({
        "metadata": {"name": "reads"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec", "pods/log"], "verbs": ["get"]}],
    });
    let of_nodes = json!({
        "metadata": {"name": "reads"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}],
    });
    let group = "/apis/rbac.authorization.k8s.io/v1";
    for (roles, kind, role) in [
        (format!("{group}/namespaces/default/roles"), "Role", role),
        (format!("{group}/clusterroles"), "ClusterRole", of_nodes),
    ] {
        assert_eq!(bed.server.json("POST", &roles, role).await.0, 201);
        let binding = json!({
            "metadata": {"name": "reads"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "reads"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
        });
        let bindings = roles.replace("roles", "rolebindings");
        assert_eq!(bed.server.json("POST", &bindings, binding).await.0, 201);
    }
    let mut said = String::new();
    let node = User::new("system:node:n", ["system:nodes", "system:authenticated"]);
    let reader = || User::new("reader", ["system:authenticated"]);
    let of_pod = |namespace: &str| {
        ["exec", "attach", "portforward", "log"]
            .map(|subresource| format!("namespaces/{namespace}/pods/p/{subresource}"))
    };
    let mut asked: Vec<(User, String, bool)> = Vec::new();
    for (user, namespace) in [(reader(), "default"), (node.clone(), "default"), (reader(), "kube-system")] {
        asked.extend(of_pod(namespace).map(|path| (user.clone(), path, false)));
    }
    for user in [reader(), node] {
        asked.push((user.clone(), "nodes/n/proxy/healthz".to_owned(), false));
        asked.push((user, "nodes/n/proxy/exec/default/p/c".to_owned(), true));
    }
    for (user, path, upgrades) in asked {
        let mut request = Request::builder().uri(format!("/api/v1/{path}?command=id&stdout=1"));
        if upgrades {
            request = request.header("connection", "upgrade").header("upgrade", "websocket");
        }
        let answering = bed.server.handle(Some(&user), request.body(Full::new(Bytes::new())).unwrap());
        let response = tokio::select! {
            response = answering => response,
            // What comes to the agent was allowed.
            _ = bed.agent.accept() => {
                writeln!(said, "{} {path} allowed", user.name).unwrap();
                continue;
            }
        };
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        writeln!(said, "{} {path} {code} {}", user.name, str_at(&status, "message")).unwrap();
    }
    expect![[r#"
        reader namespaces/default/pods/p/exec 403 pods "p" is forbidden: User "reader" cannot create resource "pods/exec" in API group "" in the namespace "default"
        reader namespaces/default/pods/p/attach 403 pods "p" is forbidden: User "reader" cannot get resource "pods/attach" in API group "" in the namespace "default"
        reader namespaces/default/pods/p/portforward 403 pods "p" is forbidden: User "reader" cannot get resource "pods/portforward" in API group "" in the namespace "default"
        reader namespaces/default/pods/p/log allowed
        system:node:n namespaces/default/pods/p/exec 403 pods "p" is forbidden: User "system:node:n" cannot get resource "pods/exec" in API group "" in the namespace "default"
        system:node:n namespaces/default/pods/p/attach 403 pods "p" is forbidden: User "system:node:n" cannot get resource "pods/attach" in API group "" in the namespace "default"
        system:node:n namespaces/default/pods/p/portforward 403 pods "p" is forbidden: User "system:node:n" cannot get resource "pods/portforward" in API group "" in the namespace "default"
        system:node:n namespaces/default/pods/p/log 403 pods "p" is forbidden: User "system:node:n" cannot get resource "pods/log" in API group "" in the namespace "default"
        reader namespaces/kube-system/pods/p/exec 403 pods "p" is forbidden: User "reader" cannot get resource "pods/exec" in API group "" in the namespace "kube-system"
        reader namespaces/kube-system/pods/p/attach 403 pods "p" is forbidden: User "reader" cannot get resource "pods/attach" in API group "" in the namespace "kube-system"
        reader namespaces/kube-system/pods/p/portforward 403 pods "p" is forbidden: User "reader" cannot get resource "pods/portforward" in API group "" in the namespace "kube-system"
        reader namespaces/kube-system/pods/p/log 403 pods "p" is forbidden: User "reader" cannot get resource "pods/log" in API group "" in the namespace "kube-system"
        reader nodes/n/proxy/healthz allowed
        reader nodes/n/proxy/exec/default/p/c 403 nodes "n" is forbidden: User "reader" cannot create resource "nodes/proxy" in API group "" at the cluster scope
        system:node:n nodes/n/proxy/healthz 403 nodes "n" is forbidden: User "system:node:n" cannot get resource "nodes/proxy" in API group "" at the cluster scope
        system:node:n nodes/n/proxy/exec/default/p/c 403 nodes "n" is forbidden: User "system:node:n" cannot get resource "nodes/proxy" in API group "" at the cluster scope
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn figures_are_those_of_the_agents_own_node() {
    let bed = Bed::new("system:node:n", "system:nodes").await;
    bed.server.json("POST", PODS, pod("other", "m")).await;
    let uid = |name: &str| {
        let path = format!("{PODS}/{name}");
        let server = &bed.server;
        async move { server.get(&path).await.1["metadata"]["uid"].clone() }
    };
    let used = json!({"name": "c", "cpu": {"time": "2026-01-02T03:04:05Z", "usageNanoCores": 7}, "memory": {"workingSetBytes": 2048}});
    let of = |name: &str, uid: Value| json!({"podRef": {"name": name, "namespace": "default", "uid": uid}, "containers": [used]});
    let summary =
        json!({"node": used, "pods": [of("p", uid("p").await), of("other", uid("other").await)]}).to_string();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{summary}", summary.len());
    let mut said = String::new();
    for path in [
        "nodes",
        "nodes/n",
        "pods",
        "namespaces/default/pods/p",
        "namespaces/default/pods?labelSelector=a%3Db",
    ] {
        let path = format!("/apis/metrics.k8s.io/v1beta1/{path}");
        if path.contains("labelSelector") {
            // Nobody is chosen, so nobody is asked.
            writeln!(said, "{}", bed.text("GET", &path).await).unwrap();
        } else {
            writeln!(said, "{}", bed.asked(&path, answer.as_bytes()).await).unwrap();
        }
    }
    let said = without_revisions(&said);
    expect![[r#"
        GET /stats/summary HTTP/1.1
        200 {"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{RV},"items":[{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"n"},"timestamp":"2026-01-02T03:04:05Z","usage":{"cpu":"7n","memory":"2Ki"},"window":"10s"}]}
        GET /stats/summary HTTP/1.1
        200 {"apiVersion":"metrics.k8s.io/v1beta1","kind":"NodeMetrics","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"n"},"timestamp":"2026-01-02T03:04:05Z","usage":{"cpu":"7n","memory":"2Ki"},"window":"10s"}
        GET /stats/summary HTTP/1.1
        200 {"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{RV},"items":[{"apiVersion":"metrics.k8s.io/v1beta1","containers":[{"name":"c","usage":{"cpu":"7n","memory":"2Ki"}}],"kind":"PodMetrics","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"p","namespace":"default"},"timestamp":"2026-01-02T03:04:05Z","window":"10s"}]}
        GET /stats/summary HTTP/1.1
        200 {"apiVersion":"metrics.k8s.io/v1beta1","containers":[{"name":"c","usage":{"cpu":"7n","memory":"2Ki"}}],"kind":"PodMetrics","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"p","namespace":"default"},"timestamp":"2026-01-02T03:04:05Z","window":"10s"}
        200 {"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{RV},"items":[]}
    "#]]
    .assert_eq(&said);
}

/// Without what differs from run to run.
fn without_revisions(text: &str) -> String {
    let mut said = text.to_owned();
    while let Some(at) = said.find("\"resourceVersion\":\"") {
        let end = at + 19 + said[at + 19..].find('"').unwrap_or(0) + 1;
        said.replace_range(at..end, "RV");
    }
    said
}
