//! Joins a machine to a cluster. The machine gets its first client certificate with a bootstrap token, and
//! authenticates each renewal with its current certificate. Upstream: TLS bootstrapping.

/// Reads the cluster CA from a file, or fetches it from the server and checks its fingerprint.
mod ca;
/// The node's HTTP/2 connection to an API server.
mod connection;
/// Files with a certificate and its key.
mod pem;
/// API servers for tests.
#[cfg(test)]
mod test_servers;

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use muster_api::backoff::{BackoffPolicy, RetryDelay};
use muster_api::well_known::{
    SIGNER_KUBELET_CLIENT, SIGNER_KUBELET_SERVING, USER_GROUP_NODES, USER_NODE_PREFIX,
};
use muster_events::error_chain::format_error_chain;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tokio_util::sync::CancellationToken;

use self::connection::{Credentials, ServerConnection};
use self::pem::Certificate;
use crate::api_servers::{ApiServers, ServerFailures};

pub use self::ca::fingerprint;
pub(crate) use self::pem::write_private_file;

/// Signer and key usage of the node's client certificate.
const CLIENT_SIGNER: (&str, &str) = (SIGNER_KUBELET_CLIENT, "client auth");
/// Signer and key usage of the node's serving certificate.
const SERVING_SIGNER: (&str, &str) = (SIGNER_KUBELET_SERVING, "server auth");

/// Name of the file with the client certificate and its key.
const CLIENT_FILE: &str = "client.pem";
/// Name of the file with the serving certificate and its key.
const SERVING_FILE: &str = "serving.pem";

/// Maximum time that the node waits for the certificate of a CertificateSigningRequest. After it, a join
/// fails, and a renewal is tried again with a new request. The time is long because, on a Kubernetes cluster, an
/// administrator may have to approve the request.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Interval at which a CertificateSigningRequest or the Node is polled. It doubles with each poll.
const POLL_INTERVAL: BackoffPolicy =
    BackoffPolicy { min: Duration::from_millis(50), max: Duration::from_secs(5) };

/// Pause after a renewal of a certificate. While renewals fail, the pause doubles. Upstream: `rotateCerts`.
const RENEWAL_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(2), max: Duration::from_secs(32) };

/// Maximum time that a machine without a certificate waits for an existing Node with the same name and address to
/// become NotReady. With the default node monitor grace period, a node becomes NotReady after about a minute.
const NOT_READY_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Interval between join attempts while an existing Node with the machine's name and address is Ready.
const NOT_READY_POLL_INTERVAL: Duration = Duration::from_secs(3);

/// Maximum sleep before the renewal time of a certificate is checked again. A longer sleep would not notice that the
/// clock jumped or that the machine was suspended.
const RENEWAL_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of attempts of an API call that requests a certificate or reads its state.
const CALL_ATTEMPTS_MAX: usize = 3;

/// An error of joining a cluster, or of renewing a certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("access {path}")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "the cluster CA is unknown: give --ca-hash or --ca-cert, as `muster token create` prints it, or copy ca.crt from the \
         server's data directory"
    )]
    UnknownCa,
    #[error("{path} is not a certificate: {why}")]
    InvalidCa { path: PathBuf, why: String },
    #[error("{0:?} is not sha256: followed by 64 hexadecimal digits, as `muster token create` prints it")]
    InvalidCaHash(String),
    #[error("reach the server at {0}")]
    Unreachable(ServerFailures),
    #[error("the server does not have the CA of --ca-hash: {0}")]
    CaMismatch(ServerFailures),
    #[error(
        "{path} has no valid certificate{why}: give a --token, which `muster token create` creates on the server"
    )]
    NoToken { path: PathBuf, why: &'static str },
    // Prints the message of the server's Status only, not the whole Status.
    #[error("request a certificate{hint}: {}", format_error_chain(error))]
    Request { hint: &'static str, error: kube::Error },
    #[error(
        "a node {name:?} exists and is Ready at {at}: choose another --node-name; or, if this machine is to take \
         its place, stop the other one, and kubectl delete node {name}"
    )]
    NodeNameInUse { name: String, at: String },
    #[error("the request for a certificate was refused: {0}")]
    Denied(String),
    /// The server refused the certificate, because a Ready node with this name exists. Holds the server's message.
    #[error("the request for a certificate was refused: {0}")]
    NodeIsReady(String),
    #[error("CertificateSigningRequest {0} is not approved: kubectl certificate approve {0}")]
    NotApproved(String),
    #[error("generate a key")]
    Key(#[from] rcgen::Error),
    #[error("parse the certificate: {0}")]
    Certificate(String),
}

/// Returns the expiry of the client certificate and of the serving certificate in a node's directory. An entry is
/// `None` if its file cannot be read or parsed.
pub fn certificate_expiries(dir: &Path) -> [Option<Timestamp>; 2] {
    [CLIENT_FILE, SERVING_FILE].map(|it| Some(Certificate::read(&dir.join(it)).ok()??.not_after))
}

/// Options for joining a cluster.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// The API servers. The first one that responds is used.
    pub servers: Arc<ApiServers>,
    /// Name of the node.
    pub name: String,
    /// Directory of the node's keys and certificates.
    pub dir: PathBuf,
    /// Bootstrap token. Not needed if the directory has a valid certificate.
    pub token: Option<BootstrapToken>,
    /// Source of the cluster CA. Not needed after the first join.
    pub ca: Option<CaSource>,
    /// The node's InternalIP.
    pub address: IpAddr,
}

/// From where a node gets the cluster CA.
#[derive(Debug, Clone)]
pub enum CaSource {
    /// PEM file with the CA certificate.
    Certificate(PathBuf),
    /// The CA certificate is fetched from an API server. It must have this fingerprint, as [`fingerprint`] returns it.
    Fingerprint(String),
}

/// A bootstrap token, given literally or as a file.
#[derive(Clone)]
pub enum BootstrapToken {
    Literal(String),
    /// File with the token. It is read at each use, so that a replaced token takes effect.
    File(PathBuf),
}

/// Prints a placeholder instead of the token.
impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootstrapToken")
    }
}

impl BootstrapToken {
    /// Returns the token, or `None` if it is empty or its file cannot be read.
    fn read(&self) -> Option<String> {
        let text = match self {
            Self::Literal(token) => token.clone(),
            Self::File(path) => fs::read_to_string(path).ok()?,
        };
        Some(text.trim().to_owned()).filter(|it| !it.is_empty())
    }
}

/// Whether the node's directory has a client certificate that has not expired, so that no token is needed.
pub fn has_valid_certificate(dir: &Path) -> bool {
    let stored = Certificate::read(&dir.join(CLIENT_FILE)).ok().flatten();
    stored.is_some_and(|it| !it.is_expired())
}

/// A node that has joined the cluster: its client certificate, and its connection to the API servers.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct JoinedNode {
    options: JoinOptions,
    ca_pem: String,
    /// The client certificate at the time of [`Self::join`]. A renewal does not replace it here.
    certificate: Certificate,
    connection: Arc<ServerConnection>,
    client: Client,
}

impl JoinedNode {
    /// Joins the cluster. If the directory has a client certificate that has not expired, the node uses it. Otherwise
    /// the node gets a certificate with its token.
    ///
    /// Rule: a node uses its token only to get its first client certificate, or a new one after its certificate has
    /// expired.
    pub async fn join(options: &JoinOptions) -> Result<Self, JoinError> {
        pem::create_private_dir(&options.dir)?;
        let authority_pem = ca::find_and_store_ca(options).await?;
        let stored = Certificate::read(&options.dir.join(CLIENT_FILE))?;
        let certificate = match stored {
            Some(stored) if !stored.is_expired() => stored,
            stored => join_with_token(options, &authority_pem, stored.is_some()).await?,
        };
        let credentials = Credentials::Certificate(certificate.pem.clone());
        let line =
            ServerConnection::new(options.servers.clone(), &options.name, &authority_pem, credentials)?;
        let line = Arc::new(line);
        let client = line.client();
        Ok(Self { options: options.clone(), ca_pem: authority_pem, certificate, connection: line, client })
    }

    /// Returns the node's API client. It picks up renewed certificates.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the certificate of the cluster CA in PEM. With it, the node verifies the API server and the clients of
    /// its own endpoint.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Renews the client certificate and the serving certificate until `stop` is cancelled. `address` is the node's
    /// address in the serving certificate. Calls `serve` with the stored serving certificate, if it has this address
    /// and has not expired, and with each new one. `serve` gets the certificate and its key in PEM.
    ///
    /// Rule: a certificate is renewed after 70 to 90 % of its lifetime. The exact time depends on the node's name, so
    /// that the nodes of a fleet do not renew simultaneously.
    pub async fn renew_certificates(&self, address: IpAddr, serve: impl Fn(&str), stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.renew_client_certificate() => {}
            () = self.renew_serving_certificate(address, serve) => {}
        }
    }

    /// Renews the client certificate whenever its renewal time comes. Never returns.
    async fn renew_client_certificate(&self) {
        let mut current = self.certificate.clone();
        let mut pause = RetryDelay::new(RENEWAL_BACKOFF);
        loop {
            self.wait_for_renewal(Some(&current)).await;
            match self.request_client_certificate(&current).await {
                Ok(new) => {
                    tracing::info!(until = %new.not_after, "renewed the client certificate");
                    current = new;
                    pause.reset();
                }
                Err(error) => {
                    let (error, until) = (format_error_chain(&error), current.not_after);
                    tracing::warn!(error, %until, "cannot renew the client certificate, retrying");
                }
            }
            // The pause also applies to a certificate that is due for renewal as soon as it is issued.
            tokio::time::sleep(pause.next_delay()).await;
        }
    }

    /// Requests a new client certificate, stores it, and uses it for new requests. If the current certificate has
    /// expired, the node joins again with its token.
    async fn request_client_certificate(&self, current: &Certificate) -> Result<Certificate, JoinError> {
        let new = if current.is_expired() {
            join_with_token(&self.options, &self.ca_pem, true).await?
        } else {
            let new = request_certificate(&self.client, &self.options.name, CLIENT_SIGNER, &[]).await?;
            pem::write_private_file(&self.options.dir.join(CLIENT_FILE), &new.pem)?;
            new
        };
        self.connection.replace_credentials(Credentials::Certificate(new.pem.clone()));
        Ok(new)
    }

    /// Renews the serving certificate whenever its renewal time comes. Calls `serve` with the stored certificate, if it
    /// has this address and has not expired, and with each new one. Never returns.
    async fn renew_serving_certificate(&self, address: IpAddr, serve: impl Fn(&str)) {
        let path = self.options.dir.join(SERVING_FILE);
        let mut current = Certificate::read(&path).ok().flatten();
        // The stored certificate may be for another address, or of a server that was replaced.
        current = current.filter(|it| it.addresses == [address] && !it.is_expired());
        let mut pause = RetryDelay::new(RENEWAL_BACKOFF);
        if let Some(current) = &current {
            serve(&current.pem);
        }
        loop {
            self.wait_for_renewal(current.as_ref()).await;
            match self.request_serving_certificate(address).await {
                Ok(new) => {
                    if let Err(error) = pem::write_private_file(&path, &new.pem) {
                        tracing::warn!(
                            error = format_error_chain(&error),
                            "cannot store the serving certificate"
                        );
                    }
                    serve(&new.pem);
                    tracing::info!(until = %new.not_after, "renewed the serving certificate");
                    current = Some(new);
                    pause.reset();
                }
                Err(error) => {
                    let error = format_error_chain(&error);
                    tracing::warn!(
                        error,
                        "cannot get a serving certificate, retrying: logs and exec fail once the old one expires"
                    );
                }
            }
            tokio::time::sleep(pause.next_delay()).await;
        }
    }

    /// Requests a serving certificate. The certificate is granted only for addresses in the Node's status, so the
    /// method first waits until the status has the address.
    async fn request_serving_certificate(&self, address: IpAddr) -> Result<Certificate, JoinError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut poll_interval = RetryDelay::new(POLL_INTERVAL);
        loop {
            let node = nodes
                .get_opt(&self.options.name)
                .await
                .map_err(|error| JoinError::Request { hint: "", error })?;
            let status = node.and_then(|it| it.status);
            let mut addresses = status.iter().flat_map(|it| it.addresses.iter().flatten());
            if addresses.any(|it| it.address.parse() == Ok(address)) {
                break;
            }
            tokio::time::sleep(poll_interval.next_delay()).await;
        }
        let name = &self.options.name;
        request_certificate(&self.client, name, SERVING_SIGNER, &[name.clone(), address.to_string()]).await
    }

    /// Waits until the renewal time of the certificate. Returns immediately if there is no certificate.
    async fn wait_for_renewal(&self, certificate: Option<&Certificate>) {
        while let Some(certificate) = certificate {
            let left = renewal_time(&self.options.name, certificate.not_before, certificate.not_after)
                .duration_since(Timestamp::now());
            let Ok(left) = Duration::try_from(left) else { return };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(RENEWAL_CHECK_INTERVAL_MAX)).await;
        }
    }
}

/// Gets a client certificate with the bootstrap token, and stores the certificate. Waits while a Node with this name
/// and address is Ready, at most [`NOT_READY_TIMEOUT`]. Fails if another machine uses the name of the node.
/// `had_certificate` is true if the directory has a certificate that has expired.
async fn join_with_token(
    options: &JoinOptions,
    authority_pem: &str,
    had_certificate: bool,
) -> Result<Certificate, JoinError> {
    let path = options.dir.join(CLIENT_FILE);
    let Some(token) = options.token.as_ref().and_then(BootstrapToken::read) else {
        return Err(JoinError::NoToken { path, why: if had_certificate { " any more" } else { "" } });
    };
    let credentials = Credentials::Token(token);
    let line = ServerConnection::new(options.servers.clone(), &options.name, authority_pem, credentials)?;
    let line = Arc::new(line.with_immediate_failover());
    let began = tokio::time::Instant::now();
    let new = loop {
        match request_certificate(&line.client(), &options.name, CLIENT_SIGNER, &[]).await {
            // This machine lost its certificate: the server grants a new one when the node is NotReady.
            Err(JoinError::NodeIsReady(why))
                if why.contains(&format!("at {}:", options.address))
                    && began.elapsed() < NOT_READY_TIMEOUT =>
            {
                tracing::warn!("the node is still Ready; waiting until it is NotReady to join again");
                tokio::time::sleep(NOT_READY_POLL_INTERVAL).await;
            }
            signed => break signed,
        }
    };
    let new = new.map_err(|error| match error {
        JoinError::Request { error: error @ kube::Error::Api(_), .. } => {
            JoinError::Request { hint: token_error_hint(&error), error }
        }
        JoinError::Request { hint, error: kube::Error::Service(error) } => match error.downcast() {
            Ok(failures) => JoinError::Unreachable(*failures),
            Err(error) => JoinError::Request { hint, error: kube::Error::Service(error) },
        },
        other => other,
    })?;
    line.replace_credentials(Credentials::Certificate(new.pem.clone()));
    check_name_is_free(&line.client(), options).await?;
    pem::write_private_file(&path, &new.pem)?;
    Ok(new)
}

/// Checks that the name of the node is not used by another machine.
///
/// Rule: a machine cannot join with the name of a node that is Ready at another address, because two agents for one
/// node would interfere with each other's pods. Upstream: kubeadm's check before joining.
async fn check_name_is_free(client: &Client, options: &JoinOptions) -> Result<(), JoinError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get_opt(&options.name).await.map_err(|error| JoinError::Request { hint: "", error })?;
    let status = node.and_then(|it| it.status).unwrap_or_default();
    let is_ready = |it: &NodeCondition| it.type_ == "Ready" && it.status == "True";
    let addresses: Vec<_> = status.addresses.iter().flatten().map(|it| it.address.as_str()).collect();
    let is_own_address = addresses.iter().any(|it| it.parse() == Ok(options.address));
    if is_own_address || !status.conditions.iter().flatten().any(is_ready) {
        return Ok(());
    }
    let at = addresses.first().copied().unwrap_or("an unknown address").to_owned();
    Err(JoinError::NodeNameInUse { name: options.name.clone(), at })
}

/// Creates a key and a CertificateSigningRequest for it, and waits for the certificate. `subject_alt_names` are the DNS
/// names and IP addresses of a serving certificate. They are empty for a client certificate.
async fn request_certificate(
    client: &Client,
    node: &str,
    (signer, usage): (&str, &str),
    subject_alt_names: &[String],
) -> Result<Certificate, JoinError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(subject_alt_names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, USER_GROUP_NODES);
    params.distinguished_name.push(DnType::CommonName, format!("{USER_NODE_PREFIX}{node}"));
    let request = params.serialize_request(&key)?.pem()?;
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let unanswered = |error| JoinError::Request { hint: "", error };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let parameters = PostParams::default();
    let created = call_with_failover(async || requests.create(&parameters, &object).await).await;
    let created = created.map_err(unanswered)?;
    let name = created.metadata.name.unwrap_or_default();

    let began = tokio::time::Instant::now();
    let mut poll_interval = RetryDelay::new(POLL_INTERVAL);
    while began.elapsed() < SIGNING_TIMEOUT {
        tokio::time::sleep(poll_interval.next_delay()).await;
        let read = call_with_failover(async || requests.get(&name).await).await.map_err(unanswered)?;
        let status = read.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        if let Some(denial) = conditions.iter().find(|it| ["Denied", "Failed"].contains(&it.type_.as_str())) {
            let why = denial.message.clone().unwrap_or_else(|| denial.type_.clone());
            let is_name_in_use = denial.reason.as_deref() == Some("NodeIsReady");
            return Err(if is_name_in_use { JoinError::NodeIsReady(why) } else { JoinError::Denied(why) });
        }
        if let Some(ByteString(certificate)) = status.certificate {
            let certificate = String::from_utf8_lossy(&certificate);
            return Certificate::parse(&format!("{certificate}\n{}", key.serialize_pem()));
        }
    }
    Err(JoinError::NotApproved(name))
}

/// Calls the API server. If the connection fails during the call, or the server answers 503, repeats the call, with at
/// most [`CALL_ATTEMPTS_MAX`] attempts in all. The connection chooses the server: the next server if the connection has
/// failed, and with [`ServerConnection::with_immediate_failover`] also after a 503 of a server that is not ready.
async fn call_with_failover<T>(call: impl AsyncFn() -> Result<T, kube::Error>) -> Result<T, kube::Error> {
    for _ in 1..CALL_ATTEMPTS_MAX {
        let result = call().await;
        let error = match &result {
            Err(error @ kube::Error::HyperError(_)) => error,
            // The server does not reach etcd.
            Err(error @ kube::Error::Api(status)) if status.code == 503 => error,
            // With these failures, all servers were tried.
            Err(error @ kube::Error::Service(source)) if !source.is::<ServerFailures>() => error,
            _ => return result,
        };
        tracing::debug!(error = format_error_chain(error), "a call of the API server failed");
    }
    call().await
}

/// Returns the time at which a certificate is renewed: after 70 to 90 % of its lifetime, depending on the name of the
/// node.
fn renewal_time(name: &str, not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    let lifetime_s = not_after.duration_since(not_before).as_secs();
    // A number from 0 to 999 that depends on the node's name.
    let offset = name.bytes().fold(0_i64, |all, it| (all * 31 + i64::from(it)) % 1000);
    not_before + SignedDuration::from_secs(lifetime_s / 10 * 7 + lifetime_s / 5 * offset / 1000)
}

/// Returns a hint for the user if the server refused the bootstrap token with this error, otherwise an empty string.
fn token_error_hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            ": the token is invalid or expired. `muster token create` creates a new one"
        }
        kube::Error::Api(status) if status.code == 403 => ": this token does not allow this node to join",
        _ => "",
    }
}

/// Returns a function that converts an I/O error of this file to a [`JoinError`].
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> JoinError {
    let path = path.to_owned();
    move |source| JoinError::File { path, source }
}

/// Returns the content of a file, or `None` if the file does not exist.
fn read_if_exists(path: &Path) -> Result<Option<String>, JoinError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::test_servers::{SLOW_PATH, TestCa, TestServer, UNAVAILABLE_PATH, servers_and_node};
    use super::*;

    #[test]
    fn certificates_are_replaced_in_time() {
        let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let until = from + SignedDuration::from_hours(1000);
        let hours = |name: &str| renewal_time(name, from, until).duration_since(from).as_hours();
        let all: Vec<i64> = (0..200).map(|it| hours(&format!("node-{it}"))).collect();
        assert!(all.iter().all(|it| (700..=900).contains(it)), "{all:?}");
        assert!(all.iter().any(|it| *it != all[0]), "they do not all come at once");
        assert_eq!(hours("node-1"), hours("node-1"));
    }
    fn options(servers: Arc<ApiServers>, name: &str, dir: &Path, ca: CaSource) -> JoinOptions {
        JoinOptions {
            servers,
            name: name.to_owned(),
            dir: dir.to_owned(),
            token: Some(BootstrapToken::Literal("abcdef.0123456789abcdef".to_owned())),
            ca: Some(ca),
            address: IpAddr::from([10, 0, 0, 1]),
        }
    }

    #[tokio::test]
    async fn the_error_of_a_join_names_all_servers() {
        let ca = TestCa::new();
        let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
        a.kill().await;
        b.kill().await;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("given.crt");
        fs::write(&file, &ca.pem).unwrap();
        let (servers, name) = servers_and_node(&[a.url(), b.url()]);
        for source in [CaSource::Certificate(file), CaSource::Fingerprint(ca.fingerprint())] {
            let options = options(servers.clone(), &name, &dir.path().join("pki"), source);
            fs::remove_dir_all(&options.dir).ok();
            let error = JoinedNode::join(&options).await.err().unwrap().to_string();
            let [a, b] = [&a, &b].map(|it| it.url().to_string());
            let refused = "Connection refused (os error 111)";
            assert_eq!(error, format!("reach the server at {a}: {refused}; {b}: {refused}"));
        }
    }

    #[tokio::test]
    async fn the_ca_is_fetched_from_any_server_that_has_it() {
        let ca = TestCa::new();
        let [a, c] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
        let b = TestServer::start(&TestCa::new()).await;
        a.kill().await;
        let dir = tempfile::tempdir().unwrap();
        let (servers, name) = servers_and_node(&[a.url(), b.url(), c.url()]);
        let options_of =
            |servers| options(servers, &name, dir.path(), CaSource::Fingerprint(ca.fingerprint()));
        let found = ca::find_and_store_ca(&options_of(servers)).await.unwrap();
        assert_eq!(
            found.split_whitespace().collect::<String>(),
            ca.pem.split_whitespace().collect::<String>()
        );
        fs::remove_file(dir.path().join("ca.crt")).unwrap();
        let (servers, _) = servers_and_node(&[a.url(), b.url()]);
        let error = ca::find_and_store_ca(&options_of(servers)).await.unwrap_err().to_string();
        assert!(error.starts_with("the server does not have the CA of --ca-hash: "), "{error}");
        assert!(error.contains(&a.url().to_string()) && error.contains(&b.url().to_string()), "{error}");
    }
    #[tokio::test]
    async fn a_call_whose_connection_ends_is_repeated_at_the_next_server() {
        let ca = TestCa::new();
        let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
        let (servers, name) = servers_and_node(&[a.url(), b.url()]);
        let credentials = Credentials::Token(String::new());
        let client = Arc::new(ServerConnection::new(servers, &name, &ca.pem, credentials).unwrap()).client();
        let call_count = AtomicUsize::new(0);
        let called = call_with_failover(async || {
            let is_first = call_count.fetch_add(1, Ordering::SeqCst) == 0;
            let path = if is_first { SLOW_PATH } else { "/version" };
            client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
        });
        let kill = async {
            while a.slow_request_count() == 0 {
                tokio::task::yield_now().await;
            }
            a.kill().await;
        };
        let (called, ()) = tokio::join!(called, kill);
        assert_eq!(called.unwrap(), b.url().authority());
        b.kill().await;
        call_with_failover(async || {
            call_count.fetch_add(1, Ordering::SeqCst);
            client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await
        })
        .await
        .unwrap_err();
        assert!(call_count.load(Ordering::SeqCst) <= 2 + CALL_ATTEMPTS_MAX);
    }

    /// The first server does not reach etcd.
    #[tokio::test]
    async fn a_call_that_is_answered_with_503_is_repeated_at_the_next_server() {
        let ca = TestCa::new();
        let [a, b] = [TestServer::start(&ca).await, TestServer::start(&ca).await];
        a.set_readyz_status(Some(http::StatusCode::INTERNAL_SERVER_ERROR));
        let (servers, name) = servers_and_node(&[a.url(), b.url()]);
        let connection = ServerConnection::new(servers, &name, &ca.pem, Credentials::Token(String::new()));
        let client = Arc::new(connection.unwrap().with_immediate_failover()).client();
        let call_count = AtomicUsize::new(0);
        let called = call_with_failover(async || {
            let is_first = call_count.fetch_add(1, Ordering::SeqCst) == 0;
            let path = if is_first { UNAVAILABLE_PATH } else { "/version" };
            client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
        });
        assert_eq!(called.await.unwrap(), b.url().authority());
        assert_eq!(a.connection_count(), 1);
    }
}
