//! The server's own certificate authority: made once, kept in the data directory, and the only one whose
//! certificates the server trusts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("use the certificates in {path}: if they are damaged, remove ca.crt and ca.key there")]
    Use { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

#[derive(Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
    ca: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Opens the authority in `dir`, or makes one there.
    pub(crate) fn open(dir: &Path) -> Result<Self, PkiError> {
        let (ca_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| PkiError::File { path, source }
        };
        let params = ca_params()?;
        if !fs::exists(&key_path).map_err(file(&key_path))? {
            let key = KeyPair::generate()?;
            let ca = params.self_signed(&key)?;
            write_private(&ca_path, ca.pem().as_bytes()).map_err(file(&ca_path))?;
            // The key last: a half-made authority is made again.
            write_private(&key_path, key.serialize_pem().as_bytes()).map_err(file(&key_path))?;
        }
        let ca = fs::read_to_string(&ca_path).map_err(file(&ca_path))?;
        let key = fs::read_to_string(&key_path).map_err(file(&key_path))?;
        Ok(Self { dir: dir.to_owned(), ca, issuer: Issuer::new(params, KeyPair::from_pem(&key)?) })
    }

    /// For the one who runs the cluster.
    pub(crate) fn admin(&self) -> Result<Identity, PkiError> {
        let mut params = leaf_params(Vec::new(), ExtendedKeyUsagePurpose::ClientAuth)?;
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(DnType::CommonName, "muster:admin");
        self.issue(&params)
    }

    /// TLS for the server at `address`. A client may come without a certificate, but not with a false one.
    pub(crate) fn server_config(&self, address: IpAddr) -> Result<ServerConfig, PkiError> {
        let mut names: Vec<String> =
            ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(str::to_owned)
                .into();
        if !address.is_unspecified() && !address.is_loopback() {
            names.push(address.to_string());
        }
        let mut params = leaf_params(names, ExtendedKeyUsagePurpose::ServerAuth)?;
        params.distinguished_name.push(DnType::CommonName, "muster");
        let identity = self.issue(&params)?;
        self.config_of(&identity).map_err(|source| PkiError::Use { path: self.dir.clone(), source })
    }

    /// A kubeconfig that holds all it needs.
    pub(crate) fn kubeconfig(&self, url: &str) -> Result<String, PkiError> {
        let admin = self.admin()?;
        let [ca, certificate, key] =
            [&self.ca, &admin.certificate, &admin.key].map(|it| BASE64.encode(it.as_bytes()));
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

    fn issue(&self, params: &CertificateParams) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn config_of(
        &self,
        identity: &Identity,
    ) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes())?)?;
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Writes a file that only its owner may read, whole or not at all.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_added_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// The name is part of every certificate issued, so it must stay as it is.
fn ca_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "muster-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid_for_years(&mut params, 10);
    Ok(params)
}

/// Issued anew at each start, so a year is long enough.
fn leaf_params(
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    valid_for_years(&mut params, 1);
    Ok(params)
}

/// From yesterday on, because clocks differ.
fn valid_for_years(params: &mut CertificateParams, years: i16) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let yesterday = today.saturating_sub(Span::new().days(1));
    let end = today.saturating_add(Span::new().years(years));
    let ymd = |it: jiff::civil::Date| {
        rcgen::date_time_ymd(i32::from(it.year()), it.month().unsigned_abs(), it.day().unsigned_abs())
    };
    params.not_before = ymd(yesterday);
    params.not_after = ymd(end);
}
