use std::net::SocketAddr;

use expect_test::expect;
use http_body_util::Empty;
use kube::client::Body as KubeBody;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::config::example;
use crate::node::NodeAgent;
use crate::parsed_pod::ParsedPod;
use crate::runtime::CriClient;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key, for who is named so.
    fn issue(&self, name: &str, groups: &[&str], usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A node without a runtime, and where it listens.
async fn served(authority: &Authority, stop: CancellationToken) -> SocketAddr {
    let nobody = tower::service_fn(|_: http::Request<KubeBody>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(KubeBody::empty()))
    });
    let client = kube::Client::new(nobody, "default");
    let runtime = Arc::new(CriClient::connect_lazy(std::path::Path::new("/nowhere/at/all.sock")));
    let (recorder, _) = crate::node::event_recorder(client.clone(), "m1".to_owned());
    let node = NodeAgent::new(client, Arc::new(example()), runtime, recorder, Arc::default());
    let identity = Arc::new(ServingIdentity::new(authority.pem.as_bytes()).unwrap());
    let (certificate, key) =
        authority.issue("system:node:m1", &["system:nodes"], ExtendedKeyUsagePurpose::ServerAuth);
    identity.set_certificate(certificate.as_bytes(), key.as_bytes()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Arc::new(Endpoint::new(node)).serve(listener, identity, stop));
    address
}

/// The response to a client with this certificate.
async fn get(
    authority: &Authority,
    address: SocketAddr,
    identity: Option<&(String, String)>,
    path: &str,
) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::builder().uri(path).header("host", "m1").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.ok()?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some(format!("{code} {}", String::from_utf8_lossy(&body)))
}

#[tokio::test]
async fn only_the_api_server_is_let_in() {
    let (authority, other) = (Authority::new(), Authority::new());
    let stop = CancellationToken::new();
    let address = served(&authority, stop.clone()).await;
    let of = |authority: &Authority, name: &str, groups: &[&str]| {
        authority.issue(name, groups, ExtendedKeyUsagePurpose::ClientAuth)
    };
    let server = of(&authority, "kube-apiserver-kubelet-client", &["system:masters"]);
    let others = [
        of(&other, "kube-apiserver-kubelet-client", &["system:masters"]),
        of(&authority, "kube-apiserver-kubelet-client", &[]),
        of(&authority, "kube-apiserver-kubelet-client", &["system:nodes"]),
        of(&authority, "kubernetes-admin", &["system:masters"]),
        of(&authority, "system:node:m1", &["system:nodes"]),
        authority.issue(
            "kube-apiserver-kubelet-client",
            &["system:masters"],
            ExtendedKeyUsagePurpose::ServerAuth,
        ),
    ];
    assert_eq!(get(&authority, address, Some(&server), "/healthz").await.as_deref(), Some("200 ok"));
    assert_eq!(get(&authority, address, None, "/healthz").await, None);
    for identity in &others {
        assert_eq!(get(&authority, address, Some(identity), "/healthz").await, None, "{}", identity.0);
    }
    stop.cancel();
}

#[tokio::test]
async fn no_path_leads_anywhere_else() {
    let authority = Authority::new();
    let stop = CancellationToken::new();
    let address = served(&authority, stop.clone()).await;
    let groups = ["system:masters"];
    let server =
        authority.issue("kube-apiserver-kubelet-client", &groups, ExtendedKeyUsagePurpose::ClientAuth);
    let mut said = String::new();
    for path in [
        "/pods",
        "/containerLogs/default/p/c",
        "/containerLogs/../../../etc/passwd",
        "/containerLogs/default/p/..%2F..%2F..%2Fetc%2Fpasswd",
        "/containerLogs/default/p/c?tailLines=-1",
        "/containerLogs/default/p/c?sinceTime=never",
        "/logs/",
        "/exec/default/p/c?command=id&output=1",
        "/run/default/p/c?cmd=id",
        "/portForward/default/p?port=99999",
        "/debug/pprof",
    ] {
        let answer = get(&authority, address, Some(&server), path).await.unwrap_or_default();
        said += &format!("{path}: {answer}\n");
    }
    stop.cancel();
    expect![[r#"
        /pods: 200 {"apiVersion":"v1","items":[],"kind":"PodList","metadata":{}}
        /containerLogs/default/p/c: 404 pod does not exist
        /containerLogs/../../../etc/passwd: 404 404 page not found
        /containerLogs/default/p/..%2F..%2F..%2Fetc%2Fpasswd: 404 pod does not exist
        /containerLogs/default/p/c?tailLines=-1: 400 tailLines is not a number
        /containerLogs/default/p/c?sinceTime=never: 400 sinceTime is not an RFC 3339 time
        /logs/: 404 404 page not found
        /exec/default/p/c?command=id&output=1: 404 pod does not exist
        /run/default/p/c?cmd=id: 404 404 page not found
        /portForward/default/p?port=99999: 404 pod does not exist
        /debug/pprof: 404 404 page not found
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn idle_connections_of_others_do_not_keep_the_api_server_out() {
    let authority = Authority::new();
    let stop = CancellationToken::new();
    let address = served(&authority, stop.clone()).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        idle.push(socket.connect(address).await.unwrap());
    }
    let groups = ["system:masters"];
    let server =
        authority.issue("kube-apiserver-kubelet-client", &groups, ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(get(&authority, address, Some(&server), "/healthz").await.as_deref(), Some("200 ok"));
    drop(idle);
    stop.cancel();
}

#[test]
fn a_pod_of_the_list_has_its_kind_and_the_reported_status() {
    let served = |reported: Value| {
        let pod = json!({
            "metadata": {"name": "web", "uid": "u-1", "managedFields": [{"manager": "kubectl"}]},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Pending"},
        });
        pod_with_status(&PodSnapshot {
            object: Arc::new(ParsedPod::from_api(pod).unwrap()),
            runtime_state: Default::default(),
            status: reported,
            has_ended: false,
            mirror_uid: None,
        })
        .to_string()
    };
    let shown = [served(Value::Null), served(json!({"phase": "Running"}))].join("\n");
    expect![[r#"
        {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","uid":"u-1"},"spec":{"containers":[{"name":"main"}]},"status":{"phase":"Pending"}}
        {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","uid":"u-1"},"spec":{"containers":[{"name":"main"}]},"status":{"phase":"Running"}}"#]]
    .assert_eq(&shown);
}

#[test]
fn only_zero_and_false_are_false() {
    let query = |text: &str| QueryParameters(vec![("follow".to_owned(), text.to_owned())]);
    for text in ["0", "false", "False", "FALSE", "fal\u{17f}e"] {
        assert!(!query(text).is_set("follow"), "{text:?}");
    }
    for text in ["", "1", "true", "True", "t", "yes"] {
        assert!(query(text).is_set("follow"), "{text:?}");
    }
    assert!(!query("1").is_set("previous"));
}
