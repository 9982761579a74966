use std::io::Write;
use std::sync::Mutex;

use muster_api::muster_v1alpha1::checks::{PrometheusCheck, WebhookCheck};
use muster_api::muster_v1alpha1::values::GoDuration;
use muster_api::time::Time;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;

const TOKEN: &str = "s3cret-token";

const EMPTY_VECTOR: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
const ONE_SERIES: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"a"},"value":[1,"3"]}]}}"#;

/// Responds to a request, given its head and body. `None` means that it never responds.
type Handler = fn(&str, &str) -> Option<String>;

/// The requests that a stub has received: head and body.
type Requests = Arc<Mutex<Vec<String>>>;

/// A server for one test, on a local port. It stops with the test.
struct Stub {
    port: u16,
    requests: Requests,
}

fn response(code: u16, body: &str) -> Option<String> {
    let length = body.len();
    Some(format!("HTTP/1.1 {code} Stub\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"))
}

async fn serve_connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    handler: Handler,
    requests: Requests,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|it| it.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let body = String::from_utf8(body).unwrap();
    requests.lock().unwrap().push(format!("{head}{body}"));
    match handler(&head, &body) {
        // The client may have closed the connection before it has read all.
        Some(response) => drop(stream.write_all(response.as_bytes()).await),
        None => std::future::pending().await,
    }
    let _ = stream.shutdown().await;
}

impl Stub {
    async fn start(handler: Handler, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, requests) = (listener.local_addr().unwrap().port(), Requests::default());
        let received = requests.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, received) = (tls.clone(), received.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve_connection(stream, handler, received).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            serve_connection(stream, handler, received).await;
                        }
                    }
                });
            }
        });
        Self { port, requests }
    }

    async fn plain(handler: Handler) -> Self {
        Self::start(handler, None).await
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A client of checks whose API server and allowed endpoints are stubs.
fn check_client(api: &str, allowed: &[&str]) -> CheckClient {
    let config = Config::new(api.parse().unwrap());
    let caller = Caller { client: crate::client(config).unwrap(), limits: None };
    let endpoints = allowed.iter().map(|it| it.parse().unwrap()).collect();
    CheckClient::new(caller, CheckOptions { endpoints, namespace: "muster-system".to_owned() })
}

fn measurement(request: MeasurementRequest) -> Measurement {
    Measurement {
        set: ObjectKey::new("logging", "agent"),
        uid: "u".into(),
        revision: "r".into(),
        attempt: 1,
        check: "errors".into(),
        started: Time::from_secs(0),
        references_in: Some("logging".into()),
        request,
    }
}

fn prometheus(url: &str, presence_query: Option<&str>) -> PrometheusCheck {
    PrometheusCheck {
        url: url.to_owned(),
        query: "errors > 1".to_owned(),
        presence_query: presence_query.map(str::to_owned),
        ..PrometheusCheck::default()
    }
}

async fn measure_prometheus(handler: Handler, presence: Option<&str>) -> (MeasurementResult, Vec<String>) {
    let stub = Stub::plain(handler).await;
    let client = check_client("http://127.0.0.1:1", &[&stub.url()]);
    let request = MeasurementRequest::Prometheus(prometheus(&stub.url(), presence));
    (client.measure(&measurement(request)).await, stub.requests())
}

async fn measure_webhook(handler: Handler) -> (MeasurementResult, Vec<String>) {
    let stub = Stub::plain(handler).await;
    let client = check_client("http://127.0.0.1:1", &[&stub.url()]);
    let webhook = WebhookCheck {
        url: format!("{}/check?team=a", stub.url()),
        timeout: GoDuration::new("1s"),
        ..WebhookCheck::default()
    };
    let request = MeasurementRequest::Webhook { webhook, body: r#"{"check":"errors"}"#.to_owned() };
    (client.measure(&measurement(request)).await, stub.requests())
}

#[track_caller]
fn assert_inconclusive(measured: &MeasurementResult, expected: &str) {
    let MeasurementResult::Inconclusive(message) = measured else {
        panic!("expected Inconclusive: {measured:?}")
    };
    assert!(message.contains(expected), "{message}");
}

#[tokio::test]
async fn a_query_without_result_passes_and_one_with_a_result_fails() {
    let (measured, requests) = measure_prometheus(|_, _| response(200, EMPTY_VECTOR), None).await;
    assert_eq!(measured, MeasurementResult::Pass);
    assert!(requests[0].starts_with("post /api/v1/query http/1.1\r\n"), "{requests:?}");
    assert!(requests[0].ends_with("\r\n\r\nquery=errors+%3E+1"), "{requests:?}");
    assert!(!requests[0].contains("authorization"));
    let (measured, _) = measure_prometheus(|_, _| response(200, ONE_SERIES), None).await;
    assert_eq!(measured.message(), "the query returned 1 series: {pod=\"a\"} 3");
    assert!(matches!(measured, MeasurementResult::Fail(_)));
}

#[tokio::test]
async fn a_presence_query_without_result_is_inconclusive() {
    let (measured, requests) = measure_prometheus(|_, _| response(200, EMPTY_VECTOR), Some("up")).await;
    assert_inconclusive(&measured, "no data");
    assert_eq!(requests.len(), 2);
    let present: Handler =
        |_, body| response(200, if body == "query=up" { ONE_SERIES } else { EMPTY_VECTOR });
    assert_eq!(measure_prometheus(present, Some("up")).await.0, MeasurementResult::Pass);
}

#[tokio::test]
async fn errors_are_inconclusive_and_say_why() {
    let cases: [(Handler, &str); 5] = [
        (|_, _| response(500, "oops"), "query: Prometheus responded with status 500"),
        (|_, _| response(200, "<html>"), "not JSON"),
        (|_, _| response(200, &"x".repeat(RESPONSE_BYTES_MAX + 1)), "larger than 1048576 bytes"),
        (|_, _| Some("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n".to_owned()), "query:"),
        (|_, _| Some("nonsense\r\n\r\n".to_owned()), "query:"),
    ];
    for (handler, expected) in cases {
        assert_inconclusive(&measure_prometheus(handler, None).await.0, expected);
    }
    let client = check_client("http://127.0.0.1:1", &["http://127.0.0.1:1"]);
    let request = MeasurementRequest::Prometheus(prometheus("http://127.0.0.1:1", None));
    assert_inconclusive(&client.measure(&measurement(request)).await, "refused");
}

#[tokio::test]
async fn a_large_response_without_length_is_cut_off() {
    let endless: Handler = |_, _| Some(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(4 << 20)));
    assert_inconclusive(&measure_prometheus(endless, None).await.0, "larger than 1048576 bytes");
}

#[tokio::test]
async fn a_slow_endpoint_is_inconclusive_after_the_timeout() {
    let began = std::time::Instant::now();
    assert_inconclusive(&measure_webhook(|_, _| None).await.0, "no response within 1 s");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let redirect: Handler = |head, _| {
        if head.starts_with("post /api/v1/query ") {
            return Some("HTTP/1.1 307 Stub\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_owned());
        }
        response(200, EMPTY_VECTOR)
    };
    let (measured, requests) = measure_prometheus(redirect, None).await;
    assert_inconclusive(&measured, "redirects (status 307)");
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn a_webhook_gets_the_body_and_decides() {
    let (measured, requests) = measure_webhook(|_, _| response(200, r#"{"result":"Pass"}"#)).await;
    assert_eq!(measured, MeasurementResult::Pass);
    assert!(requests[0].starts_with("post /check?team=a http/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("\r\ncontent-type: application/json\r\n"), "{requests:?}");
    assert!(requests[0].ends_with(r#"{"check":"errors"}"#), "{requests:?}");
    let failed: Handler = |_, _| response(200, r#"{"result":"Fail","message":"slow"}"#);
    assert_eq!(measure_webhook(failed).await.0, MeasurementResult::Fail("slow".to_owned()));
    assert_inconclusive(&measure_webhook(|_, _| response(503, "")).await.0, "status 503");
}

#[tokio::test]
async fn an_endpoint_that_is_not_allowed_gets_no_request() {
    let stub = Stub::plain(|_, _| response(200, EMPTY_VECTOR)).await;
    let below = format!("{}/team-a", stub.url());
    for allowed in [&[][..], &["http://prometheus:9090"], &[&below]] {
        // The API server is not asked for the Secret, either.
        let client = check_client(&stub.url(), allowed);
        let secret_ref = Some(TokenSecretRef { name: "t".to_owned(), ..TokenSecretRef::default() });
        let check = PrometheusCheck { secret_ref, ..prometheus(&stub.url(), None) };
        let measured = client.measure(&measurement(MeasurementRequest::Prometheus(check))).await;
        assert_inconclusive(&measured, "is not allowed: add it to --check-endpoints");
    }
    let client = check_client(&stub.url(), &[&stub.url()]);
    let url = stub.url().replace("http://", "http://user:password@");
    let measured = client.measure(&measurement(MeasurementRequest::Prometheus(prometheus(&url, None)))).await;
    assert_inconclusive(&measured, "user name or password");
    assert!(!measured.message().contains("password@"));
    assert_eq!(stub.requests(), Vec::<String>::new());
}

/// Writes log lines to a buffer.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An API server with the Secret `prometheus` in the namespace `logging`, and no other object.
async fn api_with_secret() -> Stub {
    Stub::plain(|head, _| {
        if head.starts_with("get /api/v1/namespaces/logging/secrets/prometheus ") {
            // The token `s3cret-token`, with a line break.
            return response(200, &json!({"data": {"token": "czNjcmV0LXRva2VuCg=="}}).to_string());
        }
        response(404, "{}")
    })
    .await
}

#[tokio::test]
async fn the_token_is_sent_and_in_no_log_or_message() {
    let log = LogBuffer::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // Global, because callsites that other tests used first are not enabled for the subscriber of one thread.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let api = api_with_secret().await;
    // A webhook that sends the token back in its message.
    let stub = Stub::plain(|head, _| {
        let token = head.lines().find_map(|it| it.strip_prefix("authorization: bearer ")).unwrap_or("none");
        response(200, &json!({"result": "Fail", "message": format!("got {token}")}).to_string())
    })
    .await;
    let client = check_client(&api.url(), &[&stub.url()]);
    let secret_ref = Some(TokenSecretRef { name: "prometheus".to_owned(), ..TokenSecretRef::default() });
    let webhook = WebhookCheck { url: stub.url(), secret_ref, ..WebhookCheck::default() };
    let request = MeasurementRequest::Webhook { webhook, body: "{}".to_owned() };
    let measured = client.measure(&measurement(request)).await;
    assert!(stub.requests()[0].contains(&format!("\r\nauthorization: bearer {TOKEN}\r\n")));
    assert_eq!(measured, MeasurementResult::Fail("got [token]".to_owned()));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("got [token]"), "{log}");
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn references_are_read_from_the_namespace_of_the_policy_or_of_the_controller() {
    let api = api_with_secret().await;
    let stub = Stub::plain(|_, _| response(200, EMPTY_VECTOR)).await;
    let client = check_client(&api.url(), &[&stub.url()]);
    let measure = async |name: &str, key: &str, namespace: Option<&str>| {
        let secret_ref = Some(TokenSecretRef { name: name.to_owned(), key: key.to_owned() });
        let check = PrometheusCheck { secret_ref, ..prometheus(&stub.url(), None) };
        let measurement = Measurement {
            references_in: namespace.map(Into::into),
            ..measurement(MeasurementRequest::Prometheus(check))
        };
        client.measure(&measurement).await
    };
    assert_eq!(measure("prometheus", "token", Some("logging")).await, MeasurementResult::Pass);
    let missing = measure("prometheus", "token", None).await;
    assert_inconclusive(&missing, "secretRef: Secret muster-system/prometheus: does not exist");
    assert_inconclusive(&measure("prometheus", "other", Some("logging")).await, "has no key \"other\"");
    assert_eq!(stub.requests().len(), 1, "without its token a check sends nothing");
}

#[tokio::test]
async fn a_forbidden_secret_says_which_right_is_missing() {
    let api = Stub::plain(|_, _| response(403, "{}")).await;
    let client = check_client(&api.url(), &["http://127.0.0.1:1"]);
    let secret_ref = Some(TokenSecretRef { name: "t".to_owned(), ..TokenSecretRef::default() });
    let check = PrometheusCheck { secret_ref, ..prometheus("http://127.0.0.1:1", None) };
    let measured = client.measure(&measurement(MeasurementRequest::Prometheus(check))).await;
    assert_inconclusive(&measured, "grant it get on secrets by a Role");
}

#[tokio::test]
async fn tls_is_verified_with_the_certificates_of_the_config_map() {
    static CA: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    CA.set(certified.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let stub = Stub::start(|_, _| response(200, EMPTY_VECTOR), Some(tls)).await;
    let api = Stub::plain(|head, _| {
        if head.starts_with("get /api/v1/namespaces/logging/configmaps/ca ") {
            return response(200, &json!({"data": {"ca.crt": CA.get().unwrap(), "bad": "x"}}).to_string());
        }
        response(404, "{}")
    })
    .await;
    let url = format!("https://localhost:{}", stub.port);
    let client = check_client(&api.url(), &[&url]);
    let measure = async |ca_ref: Option<CaConfigMapRef>| {
        let check = PrometheusCheck { ca_ref, ..prometheus(&url, None) };
        client.measure(&measurement(MeasurementRequest::Prometheus(check))).await
    };
    let ca_ref = |key: &str| Some(CaConfigMapRef { name: "ca".to_owned(), key: key.to_owned() });
    assert_eq!(measure(ca_ref("ca.crt")).await, MeasurementResult::Pass);
    assert_inconclusive(&measure(None).await, "certificate");
    assert_inconclusive(
        &measure(ca_ref("bad")).await,
        "caRef: ConfigMap logging/ca: \"bad\" has no certificate",
    );
    assert_eq!(stub.requests().len(), 1);
}
