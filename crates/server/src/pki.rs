//! The certificate authorities of the cluster, and the certificates and kubeconfigs that the server issues. The
//! authorities are generated once and stored in the data directory; several servers share them through etcd. The server
//! trusts no other authorities.

/// Reads the user from a client certificate.
mod client_certificate;
/// Parses and signs PKCS #10 requests.
mod sign;

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use jiff::{Span, Timestamp, tz::TimeZone};
use muster_api::well_known::{USER_AGENT_CLIENT, USER_GROUP_MASTERS};
use muster_files::write_private_file;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};

use tokio::sync::Notify;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::machine_address::machine_address;
use crate::request::{
    AUTHENTICATED_GROUP, DAEMONSET_CONTROLLER_USER, DISRUPTION_USER, ENDPOINTS_USER, GARBAGE_COLLECTOR_USER,
    NODE_LIFECYCLE_USER, ROLLOUT_POLICY_USER, SCHEDULER_USER, SIMULATED_NODES_USER, User,
};
use crate::signing_keys::{self, SIGNING_KEY_FILE, SigningKeys};

pub(crate) use self::client_certificate::{PeerCertificate, user_from_der as certificate_user};
pub(crate) use self::sign::{CertificateRequest, ISSUE_TIME_OID, KeyUsage, decode_issue_time};

/// Validity of the server's serving certificate in years.
const SERVING_CERTIFICATE_YEARS: i16 = 1;

/// Age in months at which the serving certificate is renewed, so that a third of its validity remains.
const SERVING_CERTIFICATE_RENEWAL_MONTHS: i32 = 8;

/// Validity of the administrator's certificate in years, as with kubeadm. The server issues a new certificate at each
/// start.
const ADMIN_CERTIFICATE_YEARS: i16 = 1;

/// Validity of the certificates of Muster's own components in years. Their keys exist only in the memory of a
/// long-running process, so a shorter validity would not protect anything.
const COMPONENT_CERTIFICATE_YEARS: i16 = CA_LIFETIME_YEARS;

/// Validity of the CA certificates in years.
const CA_LIFETIME_YEARS: i16 = 10;

/// Validity of the CA certificates in days, without leap days.
pub(crate) const CA_LIFETIME_DAYS: i64 = CA_LIFETIME_YEARS as i64 * 365;

/// Cluster IP of the Service `kubernetes`.
const KUBERNETES_SERVICE_IP: &str = "10.96.0.1";

/// Why a certificate or key of the data directory could not be read, generated or used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("generate a certificate")]
    Generate(#[from] rcgen::Error),
    #[error("use the certificates in {path}: if they are damaged, remove {name}.crt and {name}.key")]
    Unusable { path: PathBuf, name: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(
        "{name}.key is missing in {path}, but {name}.crt exists: restore the key from a backup, or remove {name}.crt too to generate a new CA, \
         after which every client and node needs new credentials"
    )]
    KeyMissing { path: PathBuf, name: &'static str },
    #[error(
        "use the key in {path}: if it is damaged, remove it, which invalidates all service account tokens"
    )]
    TokenKey { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// A built-in user, for whom the server creates kubeconfigs and loopback clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinUser {
    /// The administrator, a member of `system:masters`.
    Admin,
    /// The DaemonSet controller.
    Controller,
    /// The disruption controller.
    Disruption,
    /// The endpoints controller.
    Endpoints,
    /// The garbage collector.
    GarbageCollector,
    /// The node lifecycle controller.
    NodeLifecycle,
    /// The rollout policy controller.
    RolloutPolicy,
    /// The scheduler.
    Scheduler,
    /// The process that runs simulated nodes.
    SimulatedNodes,
}

impl BuiltinUser {
    /// Returns the name of the user, and the group of the user in addition to `system:authenticated`. The group is
    /// `None` if the user has no other group.
    fn name_and_group(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Admin => ("kubernetes-admin", Some(USER_GROUP_MASTERS)),
            Self::Controller => (DAEMONSET_CONTROLLER_USER, None),
            Self::Disruption => (DISRUPTION_USER, None),
            Self::Endpoints => (ENDPOINTS_USER, None),
            Self::GarbageCollector => (GARBAGE_COLLECTOR_USER, None),
            Self::NodeLifecycle => (NODE_LIFECYCLE_USER, None),
            Self::RolloutPolicy => (ROLLOUT_POLICY_USER, None),
            Self::Scheduler => (SCHEDULER_USER, None),
            Self::SimulatedNodes => (SIMULATED_NODES_USER, None),
        }
    }

    /// Returns the user that authentication yields for this built-in user, including the group `system:authenticated`.
    pub(crate) fn user(self) -> User {
        let (name, group) = self.name_and_group();
        User::new(name, group.into_iter().chain([AUTHENTICATED_GROUP]))
    }
}

/// A certificate and its private key, in PEM.
pub(crate) struct CertificateAndKey {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAndKey").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority: its certificate, and the private key that signs the certificates that it issues.
struct CertificateAuthority {
    /// Directory of the certificate and key files.
    dir: PathBuf,
    /// Name of the certificate and key files without their suffix, such as `ca` for `ca.crt` and `ca.key`.
    name: &'static str,
    /// The certificate of the authority in PEM.
    pem: String,
    /// Name and key of the authority, for signing.
    issuer: Issuer<'static, KeyPair>,
}

/// The certificate authorities and the token signing key of the data directory.
pub(crate) struct Pki {
    /// The data directory of the server, which contains the certificate and key files.
    dir: PathBuf,
    /// The cluster CA, which signs client certificates and the serving certificate of the server. All clients trust it.
    ca: CertificateAuthority,
    /// The CA that signs the serving certificates of node agents. Only the server trusts it.
    node_serving_ca: CertificateAuthority,
    /// Keys that sign service account tokens.
    signing_keys: Arc<SigningKeys>,
    /// Issued client certificates that are not yet stored as certificate records for `muster cert list`.
    issued: Mutex<Vec<IssuedCertificate>>,
    /// Notification that is sent when a certificate is added to `issued`.
    issued_notify: Notify,
}

/// An issued client certificate, as `muster cert list` shows it.
#[derive(Debug, Clone)]
pub(crate) struct IssuedCertificate {
    /// Serial number of the certificate in hexadecimal digits.
    pub(crate) serial: String,
    /// User name: the common name of the certificate.
    pub(crate) subject: String,
    /// Groups of the user, without `system:authenticated`.
    pub(crate) groups: Vec<String>,
    pub(crate) issued_at: Timestamp,
    /// End of the validity of the certificate.
    pub(crate) not_after: Timestamp,
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Returns a kubeconfig for the server at `url` with a new client certificate for `user`. The CA in the data directory
/// of a server issues the certificate. `muster cert list` does not show the certificate, because it is not recorded.
pub fn issue_kubeconfig(data_dir: &Path, url: &str, user: BuiltinUser) -> Result<String, PkiError> {
    Pki::open(data_dir)?.issue_kubeconfig(url, user)
}

impl Pki {
    /// Returns the cluster CA certificate in PEM.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca.pem
    }

    /// Opens the certificate authorities and the token signing key in `dir`. Generates those that do not exist.
    pub(crate) fn open(dir: &Path) -> Result<Self, PkiError> {
        let ca = CertificateAuthority::open(dir, "ca", "muster-ca")?;
        let nodes = CertificateAuthority::open(dir, "nodes-ca", "muster-nodes-ca")?;
        let path = dir.join(SIGNING_KEY_FILE);
        let unusable = |source| PkiError::TokenKey { path: path.clone(), source: Box::new(source) };
        if !fs::exists(&path).map_err(file_error(&path))? {
            let key = signing_keys::new_key_file().map_err(unusable)?;
            write_private_file(&path, key.as_bytes()).map_err(file_error(&path))?;
        }
        let text = fs::read_to_string(&path).map_err(file_error(&path))?;
        let signing_keys = Arc::new(SigningKeys::parse(&text).map_err(unusable)?);
        let (issued, has_issued) = (Mutex::default(), Notify::new());
        Ok(Self {
            dir: dir.to_owned(),
            ca,
            node_serving_ca: nodes,
            signing_keys,
            issued,
            issued_notify: has_issued,
        })
    }

    /// Returns the keys that sign service account tokens.
    pub(crate) fn signing_keys(&self) -> &Arc<SigningKeys> {
        &self.signing_keys
    }

    /// Issues a client certificate for a built-in user.
    fn issue_client_certificate(&self, user: BuiltinUser) -> Result<CertificateAndKey, PkiError> {
        let (name, group) = user.name_and_group();
        let years =
            if user == BuiltinUser::Admin { ADMIN_CERTIFICATE_YEARS } else { COMPONENT_CERTIFICATE_YEARS };
        let mut params = leaf_params(Vec::new(), ExtendedKeyUsagePurpose::ClientAuth, years)?;
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        let issue_time = sign::encode_issue_time(Timestamp::now());
        params.custom_extensions.push(CustomExtension::from_oid_content(ISSUE_TIME_OID, issue_time));
        self.ca.issue_with_new_key(&params)
    }

    /// Queues an issued client certificate, in PEM, until it is stored as a certificate record for `muster cert list`.
    /// A certificate that cannot be parsed is ignored.
    pub(crate) fn queue_issued_certificate(&self, pem: &str) {
        let Some(der) = CertificateDer::from_pem_slice(pem.as_bytes()).ok() else { return };
        let Some(issued) = parse_issued_certificate(&der) else { return };
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).push(issued);
        self.issued_notify.notify_one();
    }

    /// Returns the queued client certificates and empties the queue, see [`Pki::queue_issued_certificate`].
    pub(crate) fn take_issued_certificates(&self) -> Vec<IssuedCertificate> {
        std::mem::take(&mut self.issued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a client certificate is queued. Returns immediately if one was queued since the last call.
    pub(crate) async fn wait_for_issued_certificate(&self) {
        self.issued_notify.notified().await;
    }

    /// Issues a client certificate for `user`, and returns a kubeconfig for the server at `url` with this certificate,
    /// its key and the CA certificate. The certificate is queued like every issued client certificate.
    pub(crate) fn issue_kubeconfig(&self, url: &str, user: BuiltinUser) -> Result<String, PkiError> {
        let client = self.issue_client_certificate(user)?;
        self.queue_issued_certificate(&client.certificate);
        let [ca, certificate, key] =
            [&self.ca.pem, &client.certificate, &client.key].map(|it| BASE64.encode(it.as_bytes()));
        Ok(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: muster
  cluster:
    server: {url}
    certificate-authority-data: {ca}
users:
- name: admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: muster
  context:
    cluster: muster
    user: admin
current-context: muster
"
        ))
    }

    /// Issues the serving certificate of the server for the names that [`server_names`] returns.
    fn issue_serving_certificate(
        &self,
        addresses: &[IpAddr],
        advertised_host: Option<&str>,
    ) -> Result<CertifiedKey, PkiError> {
        let mut params = leaf_params(
            server_names(addresses, advertised_host),
            ExtendedKeyUsagePurpose::ServerAuth,
            SERVING_CERTIFICATE_YEARS,
        )?;
        params.distinguished_name.push(DnType::CommonName, "muster");
        let identity = self.ca.issue_with_new_key(&params)?;
        self.certified_key(&identity).map_err(|source| self.ca.unusable_error(source))
    }

    /// Returns the TLS configuration for connections to node agents. It contains a new client certificate of the
    /// server, and trusts only the CA of node serving certificates.
    pub(crate) fn agent_client_config(&self) -> Result<ClientConfig, PkiError> {
        let mut params =
            leaf_params(Vec::new(), ExtendedKeyUsagePurpose::ClientAuth, COMPONENT_CERTIFICATE_YEARS)?;
        params.distinguished_name.push(DnType::OrganizationName, USER_GROUP_MASTERS);
        params.distinguished_name.push(DnType::CommonName, USER_AGENT_CLIENT);
        let identity = self.ca.issue_with_new_key(&params)?;
        let config = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.node_serving_ca.pem.as_bytes())?)?;
            let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
            Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![certificate], key)?)
        };
        config().map_err(|source| self.ca.unusable_error(source))
    }

    /// Converts the serving certificate and its key to the rustls type. The certificate chain includes the CA.
    fn certified_key(
        &self,
        identity: &CertificateAndKey,
    ) -> Result<CertifiedKey, Box<dyn std::error::Error + Send + Sync>> {
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
        // The chain includes the CA, so that a client that only has its digest can verify it.
        let authority = CertificateDer::from_pem_slice(self.ca.pem.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        Ok(CertifiedKey::from_der(vec![certificate, authority], key, &ring::default_provider())?)
    }
}

impl CertificateAuthority {
    /// Opens the certificate authority whose files are `name.crt` and `name.key` in `dir`. Generates the authority if
    /// neither file exists.
    ///
    /// Rule: the key is written before the certificate. A certificate without its key is an error. For a key without
    /// its certificate, a new certificate is generated, which verifies the same signatures.
    fn open(dir: &Path, name: &'static str, common_name: &str) -> Result<Self, PkiError> {
        let params = ca_params(common_name)?;
        let (path, key_path) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        let exists = |path: &Path| fs::exists(path).map_err(file_error(path));
        if !exists(&key_path)? {
            if exists(&path)? {
                return Err(PkiError::KeyMissing { path: dir.to_owned(), name });
            }
            let key = KeyPair::generate()?;
            write_private_file(&key_path, key.serialize_pem().as_bytes()).map_err(file_error(&key_path))?;
        }
        let unusable = |source| PkiError::Unusable { path: dir.to_owned(), name, source: Box::new(source) };
        let key = read_key(&key_path)?.map_err(unusable)?;
        if !exists(&path)? {
            write_private_file(&path, params.self_signed(&key)?.pem().as_bytes())
                .map_err(file_error(&path))?;
        }
        let pem = fs::read_to_string(&path).map_err(file_error(&path))?;
        let issuer = Issuer::new(params, key);
        Ok(Self { dir: dir.to_owned(), name, pem, issuer })
    }

    /// Generates a key, and issues a certificate for it with these parameters.
    fn issue_with_new_key(&self, params: &CertificateParams) -> Result<CertificateAndKey, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(CertificateAndKey { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Returns the error for a certificate or key of this authority that cannot be used.
    fn unusable_error(&self, source: Box<dyn std::error::Error + Send + Sync>) -> PkiError {
        PkiError::Unusable { path: self.dir.clone(), name: self.name, source }
    }
}

/// The server's serving certificate, which is renewed while the server runs. New TLS connections use the current one.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    pki: Arc<Pki>,
    /// IP addresses of the server, from which [`server_names`] derives the names of the certificate.
    addresses: Vec<IpAddr>,
    /// Host name or IP address in the URL of the flag `--advertise`.
    advertised_host: Option<String>,
    /// The current certificate with its key, and its issue time.
    current_key: RwLock<(Arc<CertifiedKey>, Timestamp)>,
}

impl ServingCertificate {
    /// Issues the first serving certificate.
    pub(crate) fn new(
        pki: Arc<Pki>,
        addresses: Vec<IpAddr>,
        advertised_host: Option<String>,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let first = pki.issue_serving_certificate(&addresses, advertised_host.as_deref())?;
        let current_key = RwLock::new((Arc::new(first), now));
        Ok(Self { pki, addresses, advertised_host, current_key })
    }

    /// Returns the server-side TLS configuration with this certificate. A client need not send a certificate, but a
    /// certificate that it sends must be signed by the cluster CA.
    pub(crate) fn server_config(self: &Arc<Self>) -> Result<ServerConfig, PkiError> {
        let config = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.pki.ca.pem.as_bytes())?)?;
            let provider = Arc::new(ring::default_provider());
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()?;
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_client_cert_verifier(clients)
                .with_cert_resolver(self.clone());
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Ok(config)
        };
        config().map_err(|source| self.pki.ca.unusable_error(source))
    }

    /// Issues a new certificate if the current one is due for renewal. Returns whether it issued one.
    ///
    /// Rule: the serving certificate is renewed when a third of its validity remains. Open connections continue.
    pub(crate) fn renew_if_due(&self, now: Timestamp) -> Result<bool, PkiError> {
        let issued_at = self.current_key.read().unwrap_or_else(PoisonError::into_inner).1;
        let renew_at = issued_at
            .to_zoned(TimeZone::UTC)
            .saturating_add(Span::new().months(SERVING_CERTIFICATE_RENEWAL_MONTHS));
        if now < renew_at.timestamp() {
            return Ok(false);
        }
        let new = self.pki.issue_serving_certificate(&self.addresses, self.advertised_host.as_deref())?;
        let new = Arc::new(new);
        *self.current_key.write().unwrap_or_else(PoisonError::into_inner) = (new, now);
        Ok(true)
    }

    /// Returns the certificate and key for new connections.
    fn current_certificate(&self) -> Arc<CertifiedKey> {
        self.current_key.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current_certificate())
    }
}

/// Parses a client certificate that this server issued. Returns `None` if it cannot be parsed.
fn parse_issued_certificate(der: &[u8]) -> Option<IssuedCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let user = client_certificate::user_from_der(der)?;
    let client_certificate = user.client_certificate?;
    Some(IssuedCertificate {
        serial: client_certificate.serial.as_ref().to_owned(),
        issued_at: client_certificate.issued_at,
        subject: user.name,
        groups: user.groups.into_iter().filter(|it| it != AUTHENTICATED_GROUP).collect(),
        not_after: Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?,
    })
}

/// Returns the serial number of the first certificate in a PEM file, in the format that `muster cert revoke` expects.
/// Returns `None` if the file contains no valid certificate.
pub fn certificate_serial(pem: &[u8]) -> Option<String> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Some(client_certificate::format_serial(certificate.raw_serial()))
}

/// Reads a private key from a PEM file. The inner error means that the file contains no valid private key.
fn read_key(path: &Path) -> Result<Result<KeyPair, rcgen::Error>, PkiError> {
    let text = fs::read_to_string(path).map_err(file_error(path))?;
    Ok(KeyPair::from_pem(&text))
}

/// Returns a function that converts an IO error of the file at `path` to a [`PkiError`].
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::File { path, source }
}

/// Returns the DNS names and IP addresses for which the serving certificate is valid: fixed names, the host name of
/// this machine, `addresses` and the host of `--advertise`. An unspecified address such as `0.0.0.0` stands for the
/// address of this machine.
fn server_names(addresses: &[IpAddr], advertised_host: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        KUBERNETES_SERVICE_IP,
    ]
    .map(str::to_owned)
    .into();
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let hostname = hostname.trim();
    let is_dns = |it: &str| it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'.');
    if !hostname.is_empty() && is_dns(hostname) {
        names.push(hostname.to_owned());
    }
    let addresses = addresses.iter().filter_map(|it| match it.is_unspecified() {
        true => machine_address(),
        false => Some(*it),
    });
    names.extend(addresses.map(|it| it.to_string()));
    names.extend(advertised_host.map(str::to_owned));
    names.sort();
    names.dedup();
    names
}

/// Returns the parameters of a CA certificate. The common name must never change, because every certificate that the CA
/// has issued contains it.
fn ca_params(common_name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, CA_LIFETIME_YEARS);
    Ok(params)
}

/// Returns the parameters of a client or server certificate. `names` are its subject alternative names, and `years` is
/// its validity.
fn leaf_params(
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
    years: i16,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, years);
    Ok(params)
}

/// Sets the validity of a certificate. It starts yesterday, because the clocks of other machines may be slow, and ends
/// `years` from today.
fn set_validity(params: &mut CertificateParams, years: i16) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let yesterday = today.saturating_sub(Span::new().days(1));
    let end = today.saturating_add(Span::new().years(years));
    let ymd = |it: jiff::civil::Date| {
        rcgen::date_time_ymd(i32::from(it.year()), it.month().unsigned_abs(), it.day().unsigned_abs())
    };
    params.not_before = ymd(yesterday);
    params.not_after = ymd(end);
}

#[cfg(test)]
pub(crate) mod tests;
