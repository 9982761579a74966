//! Probes and hooks against servers of their own, of every kind.

use std::convert::Infallible;

use expect_test::expect;
use http::{HeaderMap, Response};
use http_body_util::{Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;
use crate::runtime::CriClient;

/// Responds to a probe depending on its path.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| request.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let response = Response::builder();
    let response = match request.uri().path() {
        "/well" => response.status(204),
        "/ill" => response.status(503),
        "/moved" => response.status(302).header("location", "/ill"),
        "/away" => response.status(302).header("location", "http://elsewhere.invalid/ill"),
        "/round" => response.status(302).header("location", "/round"),
        "/asked" => {
            let is_as_asked = (header("host"), header("x-team"), header("user-agent"))
                == ("shop.test", "a", "kube-probe/1.36");
            response.status(if is_as_asked { 200 } else { 400 })
        }
        "/slow" => {
            std::future::pending::<()>().await;
            response
        }
        _ => response.status(404),
    };
    // More than anybody reads.
    Ok(response.body(Full::new(Bytes::from(vec![b'x'; 64 << 10]))).unwrap())
}

/// A gRPC server that knows a service that is well and one that is not.
async fn health(
    request: Request<Incoming>,
) -> Result<Response<StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>>>>, Infallible> {
    let asked = request.into_body().collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    let service = String::from_utf8_lossy(asked.get(7..).unwrap_or_default()).into_owned();
    let (status, message): (&str, &[u8]) = match service.as_str() {
        "" => ("0", &[0, 0, 0, 0, 2, 8, 1]),
        "sick" => ("0", &[0, 0, 0, 0, 2, 8, 2]),
        "old" => ("12", &[]),
        _ => ("5", &[]),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    trailers.insert("grpc-message", "never heard of it".parse().unwrap());
    let mut frames = vec![Ok(Frame::trailers(trailers))];
    if !message.is_empty() {
        frames.insert(0, Ok(Frame::data(Bytes::copy_from_slice(message))));
    }
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(StreamBody::new(futures::stream::iter(frames))).unwrap())
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Http,
    Https,
    Grpc,
    Silent,
}

async fn serve(kind: Kind) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let key = rcgen::generate_simple_self_signed(vec!["nobody.test".to_owned()]).unwrap();
    let provider = Arc::new(ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let der = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let tls = tls.with_no_client_auth().with_single_cert(vec![key.cert.der().clone()], der).unwrap();
    let tls = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                match kind {
                    Kind::Http => drop(http.serve_connection(TokioIo::new(stream), service_fn(answer)).await),
                    Kind::Https => {
                        let Ok(stream) = tls.accept(stream).await else { return };
                        drop(http.serve_connection(TokioIo::new(stream), service_fn(answer)).await);
                    }
                    Kind::Grpc => {
                        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        drop(http.serve_connection(TokioIo::new(stream), service_fn(health)).await);
                    }
                    Kind::Silent => std::future::pending::<()>().await,
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_container_is_asked() {
    let (http, https, grpc) = (serve(Kind::Http).await, serve(Kind::Https).await, serve(Kind::Grpc).await);
    let silent = serve(Kind::Silent).await;
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let runtime = CriClient::connect_lazy("/nowhere/runtime.sock".as_ref());
    let ports = json!([{"name": "web", "containerPort": http}]);
    let container: Container = serde_json::from_value(json!({"name": "c", "ports": ports})).unwrap();
    let asked = HandlerRunner { runtime: &runtime, container: &container, id: "id", address: "127.0.0.1" };
    let get = |port: Value, path: &str| json!({"httpGet": {"port": port, "path": path}});
    let headers = json!([{"name": "Host", "value": "shop.test"}, {"name": "X-Team", "value": "a"}]);
    let probes = [
        ("well", get(json!("web"), "/well")),
        ("ill", get(json!(http), "ill")),
        ("moved", get(json!(http), "/moved")),
        ("moved to another host", get(json!(http), "/away")),
        ("moved round and round", get(json!(http), "/round")),
        ("asked with headers", json!({"httpGet": {"port": http, "path": "/asked", "httpHeaders": headers}})),
        (
            "a certificate of nobody's",
            json!({"httpGet": {"port": https, "path": "/well", "scheme": "HTTPS"}}),
        ),
        ("TLS where there is none", json!({"httpGet": {"port": http, "path": "/well", "scheme": "HTTPS"}})),
        ("nobody listens", get(json!(gone), "/well")),
        ("too slow", get(json!(http), "/slow")),
        ("no such port", get(json!("admin"), "/well")),
        ("a connection", json!({"tcpSocket": {"port": silent}})),
        ("no connection", json!({"tcpSocket": {"port": gone}})),
        ("gRPC", json!({"grpc": {"port": grpc}})),
        ("gRPC, a sick service", json!({"grpc": {"port": grpc, "service": "sick"}})),
        ("gRPC, an unknown service", json!({"grpc": {"port": grpc, "service": "unknown"}})),
        ("gRPC, without health", json!({"grpc": {"port": grpc, "service": "old"}})),
        ("gRPC, silent", json!({"grpc": {"port": silent}})),
        ("a command, and no runtime", json!({"exec": {"command": ["true"]}})),
        ("nothing", json!({})),
    ];
    let mut lines = Vec::new();
    for (name, mut probe) in probes {
        probe["timeoutSeconds"] =
            json!(if name.contains("slow") || name.contains("silent") { 1 } else { 60 });
        let probe: Probe = serde_json::from_value(probe).unwrap();
        let answer = match asked.run_probe(&probe).await {
            Ok(ProbeResult { passed: true, message }) if message.is_empty() => "passed".to_owned(),
            Ok(ProbeResult { passed: true, message }) => format!("passed: {}", &message[..60]),
            Ok(ProbeResult { message, .. }) => format!("failed: {message}"),
            Err(message) => format!("not asked: {message}"),
        };
        lines.push(format!("{name}: {answer}"));
    }
    let mut text = lines.join("\n");
    for (port, name) in [(http, "HTTP"), (https, "HTTPS"), (grpc, "GRPC"), (silent, "SILENT"), (gone, "GONE")]
    {
        text = text.replace(&format!(":{port}"), &format!(":{name}"));
    }
    expect![[r#"
        well: passed
        ill: failed: HTTP probe failed with statuscode: 503
        moved: failed: HTTP probe failed with statuscode: 503
        moved to another host: passed: Probe terminated redirects, Response body: xxxxxxxxxxxxxxxxx
        moved round and round: failed: Get "http://127.0.0.1:HTTP/round": stopped after 10 redirects
        asked with headers: passed
        a certificate of nobody's: passed
        TLS where there is none: failed: Get "https://127.0.0.1:HTTP/well": received corrupt message of type InvalidContentType
        nobody listens: failed: Get "http://127.0.0.1:GONE/well": dial tcp 127.0.0.1:GONE: connect: connection refused
        too slow: failed: Get "http://127.0.0.1:HTTP/slow": context deadline exceeded (Client.Timeout exceeded while awaiting headers)
        no such port: not asked: couldn't find port: "admin" in the container
        a connection: passed
        no connection: failed: dial tcp 127.0.0.1:GONE: connect: connection refused
        gRPC: passed
        gRPC, a sick service: failed: service unhealthy (responded with "NOT_SERVING")
        gRPC, an unknown service: failed: error: health rpc probe failed: rpc error: code = NotFound desc = never heard of it
        gRPC, without health: failed: error: this server does not implement the grpc health protocol (grpc.health.v1.Health): never heard of it
        gRPC, silent: failed: timeout: failed to connect service "127.0.0.1:SILENT" within 1s: context deadline exceeded
        a command, and no runtime: not asked: No such file or directory (os error 2)
        nothing: not asked: missing probe handler"#]].assert_eq(&text);
}

#[tokio::test]
async fn a_hook_is_called() {
    let http = serve(Kind::Http).await;
    let runtime = CriClient::connect_lazy("/nowhere/runtime.sock".as_ref());
    let container: Container = serde_json::from_value(json!({"name": "c"})).unwrap();
    let asked = HandlerRunner { runtime: &runtime, container: &container, id: "id", address: "127.0.0.1" };
    let hooks = [
        // It was told: what it makes of it is its own affair.
        json!({"httpGet": {"port": http, "path": "/ill"}}),
        json!({"httpGet": {"port": "none", "path": "/ill"}}),
        json!({"sleep": {"seconds": 0}}),
        json!({"exec": {"command": ["say", "it"]}}),
        json!({"tcpSocket": {"port": http}}),
    ];
    let mut lines = Vec::new();
    for hook in hooks {
        let hook: LifecycleHandler = serde_json::from_value(hook).unwrap();
        lines.push(format!("{:?}", asked.run_hook(&hook, "p_n(u)").await));
    }
    expect![[r#"
        Ok(())
        Err("HTTP lifecycle hook (/ill) for Container \"c\" in Pod \"p_n(u)\" failed - error: couldn't find port: \"none\" in the container")
        Ok(())
        Err("Exec lifecycle hook ([say it]) for Container \"c\" in Pod \"p_n(u)\" failed - error: No such file or directory (os error 2), message: \"\"")
        Err("Cannot run handler: invalid handler")"#]].assert_eq(&lines.join("\n"));
}
