//! TLS of the agent's endpoint: the node's serving certificate, replaceable while in use, and the check that the
//! client is the API server.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use muster_api::well_known::{USER_AGENT_CLIENT, USER_GROUP_MASTERS};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Error for a cluster CA or serving certificate that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("load the node's serving certificate: {0}")]
pub struct ServingIdentityError(Box<dyn std::error::Error + Send + Sync>);

/// The node's serving certificate, and the cluster CA that verifies clients.
pub struct ServingIdentity {
    /// The CA that must have signed client certificates.
    ca: CertificateDer<'static>,
    /// The current serving certificate and its key. `None` before the first [`Self::set_certificate`].
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl fmt::Debug for ServingIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingIdentity").finish_non_exhaustive()
    }
}

impl ServingIdentity {
    /// Creates an identity without a certificate: handshakes fail until `set_certificate` is called.
    pub fn new(ca_pem: &[u8]) -> Result<Self, ServingIdentityError> {
        let ca = CertificateDer::from_pem_slice(ca_pem).map_err(|it| ServingIdentityError(it.into()))?;
        Ok(Self { ca, current: RwLock::new(None) })
    }

    /// Sets the serving certificate that new connections use.
    pub fn set_certificate(
        &self,
        certificate_pem: &[u8],
        key_pem: &[u8],
    ) -> Result<(), ServingIdentityError> {
        let certified = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
            let chain = CertificateDer::pem_slice_iter(certificate_pem).collect::<Result<Vec<_>, _>>()?;
            let key = PrivateKeyDer::from_pem_slice(key_pem)?;
            Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
        };
        let certified = Arc::new(certified().map_err(ServingIdentityError)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
        Ok(())
    }

    /// Returns the TLS configuration of the endpoint. Clients must have a certificate that the cluster CA signed.
    pub(super) fn tls_config(self: &Arc<Self>) -> Result<ServerConfig, ServingIdentityError> {
        let config = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
            let mut roots = RootCertStore::empty();
            roots.add(self.ca.clone())?;
            let provider = Arc::new(ring::default_provider());
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            Ok(ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_client_cert_verifier(clients.build()?)
                .with_cert_resolver(self.clone()))
        };
        config().map_err(ServingIdentityError)
    }
}

impl ResolvesServerCert for ServingIdentity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a client certificate is the API server's.
///
/// Rule: only the API server may connect to a node. A client certificate signed by the cluster CA is not enough: its
/// subject must be the API server's.
pub(super) fn is_api_server(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let subject = certificate.subject();
    let names: Vec<&str> = subject.iter_common_name().filter_map(|it| it.as_str().ok()).collect();
    let is_master =
        subject.iter_organization().any(|it| it.as_str().is_ok_and(|it| it == USER_GROUP_MASTERS));
    names == [USER_AGENT_CLIENT] && is_master
}
