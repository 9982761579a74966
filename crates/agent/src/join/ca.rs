//! Gets the certificate of the cluster CA before the first connection: from a file, or from an API server. A
//! certificate from an API server must have the expected fingerprint.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::connection::connect_timeout;
use super::{CaSource, JoinError, JoinOptions, file_error, pem, read_if_exists};
use crate::api_servers::{ServerFailures, ServerUrl};
use crate::digest::sha256_digest;
use muster_api::pem::certificate_to_pem;

/// Returns the fingerprint of a certificate: `sha256:` and the SHA-256 of its DER in lower-case hexadecimal digits.
pub fn fingerprint(der: &[u8]) -> String {
    sha256_digest(der)
}

/// Returns the fingerprint of the first certificate of a PEM text, or `None` if the text has no certificate.
fn pem_fingerprint(pem: &str) -> Option<String> {
    CertificateDer::from_pem_slice(pem.as_bytes()).ok().map(|it| fingerprint(&it))
}

/// Returns the certificate of the cluster CA in PEM, from the source that the options name, and stores it in the node's
/// directory. A stored certificate with the expected fingerprint is not fetched again. If the options name no source,
/// returns the certificate that an earlier join stored.
pub(super) async fn find_and_store_ca(options: &JoinOptions) -> Result<String, JoinError> {
    let stored_path = options.dir.join("ca.crt");
    let found = match &options.ca {
        Some(CaSource::Certificate(path)) => {
            let text = std::fs::read_to_string(path).map_err(file_error(path))?;
            if let Err(error) = CertificateDer::from_pem_slice(text.as_bytes()) {
                return Err(JoinError::InvalidCa { path: path.clone(), why: error.to_string() });
            }
            text
        }
        Some(CaSource::Fingerprint(expected)) => {
            match read_if_exists(&stored_path)?.filter(|it| pem_fingerprint(it).as_ref() == Some(expected)) {
                Some(stored) => stored,
                None => fetch_ca_from_any(&options.servers.in_order_for(&options.name), expected).await?,
            }
        }
        None => return read_if_exists(&stored_path)?.ok_or(JoinError::UnknownCa),
    };
    pem::write_private_file(&stored_path, &found)?;
    Ok(found)
}

/// Why the CA could not be fetched from a server.
enum FetchError {
    /// The server could not be reached.
    Unreachable(String),
    /// The server does not have the CA with the expected fingerprint.
    CaMismatch(String),
}

/// Fetches the CA certificate from the first of the servers that can be reached and has the CA with this fingerprint.
async fn fetch_ca_from_any(servers: &[ServerUrl], expected: &str) -> Result<String, JoinError> {
    let is_digest = expected.strip_prefix("sha256:").is_some_and(|it| {
        it.len() == 64 && it.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
    });
    if !is_digest {
        return Err(JoinError::InvalidCaHash(expected.to_owned()));
    }
    let mut failures = Vec::new();
    let mut is_mismatch = false;
    for server in servers {
        let fetching = tokio::time::timeout(connect_timeout(servers.len()), fetch_ca(server, expected)).await;
        let why = match fetching.unwrap_or_else(|_| Err(FetchError::Unreachable("no response".to_owned()))) {
            Ok(pem) => return Ok(pem),
            Err(FetchError::Unreachable(why)) => why,
            Err(FetchError::CaMismatch(why)) => {
                is_mismatch = true;
                why
            }
        };
        tracing::warn!(%server, error = why, "cannot fetch the cluster CA");
        failures.push((server.clone(), why));
    }
    let failures = ServerFailures(failures);
    Err(if is_mismatch { JoinError::CaMismatch(failures) } else { JoinError::Unreachable(failures) })
}

/// Fetches the CA certificate from the certificate chain that the server presents, and verifies its fingerprint.
async fn fetch_ca(server: &ServerUrl, expected: &str) -> Result<String, FetchError> {
    let unreachable = |why: String| FetchError::Unreachable(why);
    let provider = Arc::new(ring::default_provider());
    let pinned = Arc::new(PinnedCaVerifier { expected: expected.to_owned(), provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|it| unreachable(it.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.authority()).await.map_err(|it| unreachable(it.to_string()))?;
    let ca_mismatch = |why: String| FetchError::CaMismatch(why);
    let stream = TlsConnector::from(Arc::new(config)).connect(server.certificate_name(), stream).await;
    let stream = stream.map_err(|it| ca_mismatch(it.to_string()))?;
    let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let found = presented.iter().find(|it| fingerprint(it) == expected);
    found
        .map(|it| certificate_to_pem(&BASE64.encode(it)))
        .ok_or_else(|| ca_mismatch("its certificate chain lacks that CA".to_owned()))
}

/// TLS verifier that accepts a server certificate only if the CA with the expected fingerprint has signed it. The
/// server must present the certificate of that CA.
#[derive(Debug)]
struct PinnedCaVerifier {
    /// Fingerprint of the CA certificate, as [`fingerprint`] returns it.
    expected: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCaVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = intermediates.iter().find(|it| fingerprint(it) == self.expected);
        let authority = presented.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|it| Error::General(it.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
