//! The identities that take part: four hostile ones, a node that only does its work, and objects that no hostile one may touch.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD as BASE64, BASE64_URL_SAFE_NO_PAD as BASE64URL},
};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use crate::connection::{Credential, Endpoint};

/// Namespace in which one hostile identity has the role `edit`.
pub(crate) const TEAM: &str = "team";

/// Namespace in which no hostile identity has rights.
pub(crate) const VAULT: &str = "vault";

/// Name of the node that is hostile. Its Node and Lease exist, and the pod [`OWN_POD`] is bound to it.
pub(crate) const HOSTILE_NODE: &str = "hostile-node";

/// Name of a pod in the namespace `default` that is bound to the hostile node.
pub(crate) const OWN_POD: &str = "on-hostile-node";

/// Name of a ConfigMap of 60 kB in [`TEAM`].
pub(crate) const WATCHED: &str = "watched";

/// Name of the node that only does its work.
pub(crate) const GOOD_NODE: &str = "good-node";

#[derive(Debug, Clone)]
pub(crate) struct Attacker {
    pub(crate) name: &'static str,
    pub(crate) endpoint: Endpoint,
    pub(crate) credential: Credential,
    /// Credentials that are not valid, each with the reason.
    pub(crate) invalid: Arc<Vec<(&'static str, Credential)>>,
}

pub(crate) struct Identities {
    admin: Client,
    hostile: Vec<Attacker>,
    pub(crate) node: Credential,
    vault_before: Value,
}

impl Identities {
    pub(crate) async fn make(kubeconfig: &Path, endpoint: &Endpoint) -> Self {
        let admin = admin(kubeconfig).await;
        for namespace in [TEAM, VAULT] {
            let body = json!({"metadata": {"name": namespace}});
            call(&admin, "POST", "/api/v1/namespaces", Some(body)).await.expect("a namespace");
        }
        make_vault(&admin).await;
        let editor = service_account(&admin, TEAM, "builder").await;
        let binding = json!({
            "metadata": {"name": "builder"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": TEAM}],
        });
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/rolebindings");
        call(&admin, "POST", &path, Some(binding)).await.expect("a role binding");

        let invalid = Arc::new(invalid_credentials(&admin, kubeconfig, &editor).await);
        let attacker = |name, credential| Attacker {
            name,
            endpoint: endpoint.clone(),
            credential,
            invalid: invalid.clone(),
        };
        let default = token(&admin, "default", "default").await;
        let hostile_node = node_certificate(&admin, HOSTILE_NODE).await;
        make_own_objects(&admin, &with_certificate(endpoint, &hostile_node).await).await;
        let hostile = vec![
            attacker("anonymous", Credential::None),
            attacker("service account", Credential::Token(default)),
            attacker("editor", Credential::Token(editor)),
            attacker("node", hostile_node),
        ];
        let node = node_certificate(&admin, GOOD_NODE).await;
        let vault_before = vault(&admin).await;
        Self { admin, hostile, node, vault_before }
    }

    pub(crate) fn hostile(&self) -> impl Iterator<Item = &Attacker> {
        self.hostile.iter()
    }

    /// The namespace that no hostile identity has rights in is byte for byte as it was.
    pub(crate) async fn check_nothing_was_changed(&self) {
        assert_eq!(vault(&self.admin).await, self.vault_before);
    }
}

pub(crate) async fn admin(kubeconfig: &Path) -> Client {
    client(Kubeconfig::read_from(kubeconfig).expect("a kubeconfig")).await
}

/// A well-behaved client with this credential.
pub(crate) async fn with_certificate(endpoint: &Endpoint, credential: &Credential) -> Client {
    let Credential::Certificate { certificate_pem, key_pem } = credential else { panic!("no certificate") };
    let kubeconfig = json!({
        "clusters": [{"name": "it", "cluster": {
            "server": endpoint.url, "certificate-authority-data": BASE64.encode(&endpoint.ca_pem)}}],
        "users": [{"name": "it", "user": {
            "client-certificate-data": BASE64.encode(certificate_pem), "client-key-data": BASE64.encode(key_pem)}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    });
    client(serde_json::from_value(kubeconfig).expect("a kubeconfig")).await
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

pub(crate) async fn call(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> kube::Result<Value> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map_or_else(Vec::new, |it| it.to_string().into_bytes());
    let request = http::Request::builder().method(method).uri(path).header("content-type", media_type);
    client.request(request.body(body).expect("a request")).await
}

async fn make_vault(admin: &Client) {
    let secret = json!({"metadata": {"name": "payroll"}, "stringData": {"password": "hunter2"}});
    let pod = json!({
        "metadata": {"name": "ledger"},
        "spec": {
            "schedulerName": "none",
            "containers": [{"name": "c", "image": "app:1", "envFrom": [{"secretRef": {"name": "payroll"}}]}],
        },
    });
    let budget = json!({
        "metadata": {"name": "ledger"},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "ledger"}}},
    });
    for (path, body) in [
        (format!("/api/v1/namespaces/{VAULT}/secrets"), secret),
        (format!("/api/v1/namespaces/{VAULT}/pods"), pod),
        (format!("/apis/policy/v1/namespaces/{VAULT}/poddisruptionbudgets"), budget),
    ] {
        call(admin, "POST", &path, Some(body)).await.expect("an object in the vault");
    }
    // The scheduler ignores the pod, and the disruption controller writes the status of the budget once.
    let budget = format!("/apis/policy/v1/namespaces/{VAULT}/poddisruptionbudgets/ledger");
    for _ in 0..300 {
        let found = call(admin, "GET", &budget, None).await.expect("the budget");
        if found["status"]["observedGeneration"] == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the disruption controller did not write the status of the budget");
}

/// Creates the objects that hostile identities may write and watch: those of the hostile node, and ConfigMaps.
async fn make_own_objects(admin: &Client, hostile_node: &Client) {
    let large = "x".repeat(60_000);
    let node = json!({"metadata": {"name": HOSTILE_NODE, "annotations": {"large": large}}});
    let lease = json!({"metadata": {"name": HOSTILE_NODE}, "spec": {"holderIdentity": HOSTILE_NODE}});
    let pod = json!({
        "metadata": {"name": OWN_POD},
        "spec": {"nodeName": HOSTILE_NODE, "containers": [{"name": "c", "image": "app:1"}]},
    });
    let watched = json!({"metadata": {"name": WATCHED}, "data": {"a": large}});
    let grown = json!({"metadata": {"name": "grown"}});
    let patched = json!({"metadata": {"name": "patched"}, "data": {"a": "x".repeat(1_000)}});
    let maps = format!("/api/v1/namespaces/{TEAM}/configmaps");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_owned();
    for (client, path, body) in [
        (hostile_node, "/api/v1/nodes".to_owned(), node),
        (hostile_node, leases, lease),
        (admin, "/api/v1/namespaces/default/pods".to_owned(), pod),
        (admin, maps.clone(), watched),
        (admin, maps.clone(), grown),
        (admin, maps, patched),
    ] {
        call(client, "POST", &path, Some(body)).await.expect("an object of a hostile identity");
    }
}

async fn vault(admin: &Client) -> Value {
    let mut all = Vec::new();
    for path in [
        "/api/v1/namespaces/vault/secrets",
        "/api/v1/namespaces/vault/pods",
        "/apis/policy/v1/namespaces/vault/poddisruptionbudgets",
    ] {
        all.push(call(admin, "GET", path, None).await.expect("a list")["items"].take());
    }
    Value::Array(all)
}

async fn invalid_credentials(
    admin: &Client,
    kubeconfig: &Path,
    valid_token: &str,
) -> Vec<(&'static str, Credential)> {
    let deleted = service_account(admin, TEAM, "deleted").await;
    let path = format!("/api/v1/namespaces/{TEAM}/serviceaccounts/deleted");
    call(admin, "DELETE", &path, None).await.expect("the account is deleted");
    let mut forged = valid_token.to_owned();
    forged.replace_range(forged.len() - 8.., "AAAAAAAA");

    let revoked = token(admin, TEAM, "builder").await;
    let dir = kubeconfig.parent().expect("the data directory");
    let token_file = dir.join("revoked-token");
    std::fs::write(&token_file, &revoked).expect("the token is written");
    muster(kubeconfig, &["token", "revoke", "-"], &token_file);
    let revoked_certificate = node_certificate(admin, "revoked-node").await;
    let Credential::Certificate { certificate_pem, .. } = &revoked_certificate else { unreachable!() };
    let certificate_file = dir.join("revoked-certificate");
    std::fs::write(&certificate_file, certificate_pem).expect("the certificate is written");
    let file = certificate_file.to_str().expect("a path of UTF-8");
    muster(kubeconfig, &["cert", "revoke", "--file", file], Path::new("/dev/null"));
    vec![
        ("token of a deleted account", Credential::Token(deleted)),
        ("forged token", Credential::Token(forged)),
        ("revoked token", Credential::Token(revoked)),
        ("expired token", Credential::Token(expired_token(admin, dir, valid_token).await)),
        ("revoked certificate", revoked_certificate),
        ("expired certificate", expired_certificate(dir)),
    ]
}

fn muster(kubeconfig: &Path, args: &[&str], stdin: &Path) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_muster"));
    let stdin = std::fs::File::open(stdin).expect("the input");
    let output = command.args(args).arg("--kubeconfig").arg(kubeconfig).stdin(stdin).output();
    let output = output.expect("muster runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A token with the claims of `valid_token`, signed with the cluster's own key, which expired an hour ago.
async fn expired_token(admin: &Client, dir: &Path, valid_token: &str) -> String {
    let key = std::fs::read_to_string(dir.join("sa.key")).expect("the key of the tokens");
    let key = rcgen::KeyPair::from_pem(&key).expect("a key");
    let random = ring::rand::SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der(), &random);
    let key = key.expect("a key on the curve P-256");
    let mut parts = valid_token.split('.');
    let (header, claims) = (parts.next().expect("a header"), parts.next().expect("claims"));
    let mut claims: Value =
        serde_json::from_slice(&BASE64URL.decode(claims).expect("base64")).expect("claims in JSON");
    let sign = |claims: &Value| {
        let signed = format!("{header}.{}", BASE64URL.encode(claims.to_string()));
        let signature = key.sign(&random, signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", BASE64URL.encode(signature))
    };
    // The same token before it expires is valid, so that its time is the only reason to refuse it.
    claims["jti"] = json!("expiring");
    assert_eq!(review(admin, &sign(&claims)).await, json!({"authenticated": true}));
    let now = claims["iat"].as_i64().expect("a time");
    for (claim, at) in [("iat", now - 7_200), ("nbf", now - 7_200), ("exp", now - 3_600)] {
        claims[claim] = json!(at);
    }
    let expired = sign(&claims);
    let refused = json!({"error": "service account token has expired"});
    assert_eq!(review(admin, &expired).await, refused);
    expired
}

/// What a TokenReview says of a token: whether it is valid, and if not, why.
async fn review(admin: &Client, token: &str) -> Value {
    let body = json!({"spec": {"token": token}});
    let answer = call(admin, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", Some(body)).await;
    let mut status = answer.expect("a review")["status"].take();
    let fields = ["authenticated", "error"].into_iter();
    fields.filter_map(|it| Some((it.to_owned(), status.get_mut(it)?.take()))).collect()
}

/// An administrator's certificate from the cluster's own CA, which expired a year ago.
fn expired_certificate(dir: &Path) -> Credential {
    let ca_key = std::fs::read_to_string(dir.join("ca.key")).expect("the CA's key");
    let mut ca = rcgen::CertificateParams::default();
    ca.distinguished_name = rcgen::DistinguishedName::new();
    ca.distinguished_name.push(rcgen::DnType::CommonName, "muster-ca");
    let ca = rcgen::Issuer::new(ca, rcgen::KeyPair::from_pem(&ca_key).expect("a key"));
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes-admin");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2025, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate_pem = params.signed_by(&key, &ca).expect("a certificate").pem();
    Credential::Certificate { certificate_pem, key_pem: key.serialize_pem() }
}

async fn service_account(admin: &Client, namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    call(admin, "POST", &path, Some(json!({"metadata": {"name": name}}))).await.expect("a service account");
    token(admin, namespace, name).await
}

async fn token(admin: &Client, namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let answer = call(admin, "POST", &path, Some(json!({"spec": {}}))).await.expect("a token");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

/// A certificate signing request in PEM for the client certificate of a node.
pub(crate) fn node_signing_request(node: &str, key: &rcgen::KeyPair) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    params.serialize_request(key).and_then(|it| it.pem()).expect("a signing request")
}

/// The client certificate of a node.
async fn node_certificate(admin: &Client, node: &str) -> Credential {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = node_signing_request(node, &key);
    let body = json!({
        "metadata": {"name": node},
        "spec": {
            "request": BASE64.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth", "digital signature"],
        },
    });
    // An administrator's request for a node is approved automatically.
    call(admin, "POST", REQUESTS, Some(body)).await.expect("a signing request");
    for _ in 0..100 {
        let made =
            call(admin, "GET", &format!("{REQUESTS}/{node}"), None).await.expect("the signing request");
        if let Some(certificate) = made["status"]["certificate"].as_str() {
            let certificate_pem =
                String::from_utf8(BASE64.decode(certificate).expect("base64")).expect("PEM");
            return Credential::Certificate { certificate_pem, key_pem: key.serialize_pem() };
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the signing request of {node} was not signed within 10 s");
}
