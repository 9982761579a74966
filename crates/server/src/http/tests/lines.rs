//! Idle connections. The clock is paused; it advances to the next timer when all tasks wait.

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::idle_timeout::IdleTimeoutStream;
use crate::pki::{Pki, ServingCertificate};

/// What a socket holds.
const SOCKET_BYTES: usize = 4096;

#[tokio::test(start_paused = true)]
async fn a_watcher_that_stops_reading_is_cut_off() {
    let server = Server::with_history(1000).await;
    for at in 0..100 {
        let data = json!({"metadata": {"name": format!("m{at}")}, "data": {"k": "x".repeat(20_000)}});
        server.json("POST", MAPS, data).await;
    }
    let watches = || server.api.registry.metrics.long_running_requests.get();
    for reads in [0, 5] {
        let (mut client, line) = tokio::io::duplex(SOCKET_BYTES);
        let api = server.api.clone();
        let serving = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let api = api.clone();
                async move { Ok::<_, std::convert::Infallible>(api.handle(Some(&User::server()), request).await) }
            });
            hyper::server::conn::http1::Builder::new()
                .serve_connection(
                    TokioIo::new(IdleTimeoutStream::new(line, Duration::from_secs(60))),
                    service,
                )
                .await
        });
        let began = Instant::now();
        let request = format!("GET {MAPS}?watch=1&timeoutSeconds=10 HTTP/1.1\r\nhost: x\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        // As long as it takes something now and then, it is not cut off.
        for _ in 0..reads {
            tokio::time::sleep(Duration::from_secs(50)).await;
            client.read_exact(&mut [0; 1000]).await.unwrap();
            assert_eq!(watches(), 1);
        }
        let error = serving.await.unwrap().unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("the connection made no progress for too long"));
        assert_eq!(began.elapsed().as_secs(), 60 + 50 * reads);
        assert_eq!(watches(), 0, "its place is free again");
    }
}

/// What becomes of a client that connects and says nothing, and when.
async fn silent(offers: Option<&[u8]>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let pki = Arc::new(Pki::open(dir.path()).unwrap());
    let serving = Arc::new(
        ServingCertificate::new(pki.clone(), vec![[127, 0, 0, 1].into()], None, Timestamp::now()).unwrap(),
    );
    let tls = TlsAcceptor::from(Arc::new(serving.server_config().unwrap()));
    let (client, line) = tokio::io::duplex(SOCKET_BYTES);
    let api = Server::new().await.api;
    let graceful = GracefulShutdown::new();
    let began = Instant::now();
    let serving = tokio::spawn(crate::serve_tls(
        IdleTimeoutStream::new(line, Duration::from_secs(60)),
        [127, 0, 0, 1].into(),
        Arc::new(api.limits.connections.admit_connection([127, 0, 0, 1].into()).unwrap()),
        tls,
        api,
        graceful.watcher(),
    ));
    let _held: Box<dyn std::any::Any> = match offers {
        None => Box::new(client),
        Some(protocol) => Box::new(connect(client, &pki, protocol).await),
    };
    let ended = match tokio::time::timeout(Duration::from_secs(1000), serving).await {
        Ok(ended) => ended.unwrap().map_err(|it| it.to_string()),
        Err(_) => Err("it is still there".to_owned()),
    };
    format!("{ended:?} after {} s", began.elapsed().as_secs())
}

async fn connect(line: DuplexStream, pki: &Pki, protocol: &[u8]) -> impl Sized + 'static {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, line).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed() {
    expect![[r#"Err("deadline has elapsed") after 10 s"#]].assert_eq(&silent(None).await);
    expect![[r#"Err("read header from client timeout") after 90 s"#]]
        .assert_eq(&silent(Some(b"http/1.1")).await);
    expect![[r#"Err("connection error") after 90 s"#]].assert_eq(&silent(Some(b"h2")).await);
}
