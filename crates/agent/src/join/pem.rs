//! A certificate and its key in one PEM file, so that the two always match.

use std::net::IpAddr;
use std::path::Path;

use jiff::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{JoinError, file_error, read_if_exists};

/// A certificate with its key, and the validity and addresses of the certificate.
#[derive(Clone)]
pub(super) struct Certificate {
    /// Certificate and key in PEM.
    pub(super) pem: String,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// IP addresses for which the certificate is valid.
    pub(super) addresses: Vec<IpAddr>,
}

impl Certificate {
    /// Parses a PEM text with a certificate and its key. The key is not checked.
    pub(super) fn parse(pem: &str) -> Result<Self, JoinError> {
        let bad = |why: String| JoinError::Certificate(why);
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|it| bad(it.to_string()))?;
        let (_, read) = X509Certificate::from_der(&der).map_err(|it| bad(it.to_string()))?;
        let time = |it: i64| Timestamp::from_second(it).map_err(|it| bad(it.to_string()));
        let names = read.subject_alternative_name().ok().flatten();
        let addresses = names.iter().flat_map(|it| &it.value.general_names).filter_map(|it| match it {
            GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
                .ok(),
            _ => None,
        });
        Ok(Self {
            pem: pem.to_owned(),
            not_before: time(read.validity().not_before.timestamp())?,
            not_after: time(read.validity().not_after.timestamp())?,
            addresses: addresses.collect(),
        })
    }

    pub(super) fn is_expired(&self) -> bool {
        self.not_after <= Timestamp::now()
    }

    /// Reads a certificate file. Returns `None` if the file is missing or cannot be parsed, so that the caller requests
    /// a new certificate.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, JoinError> {
        let Some(pem) = read_if_exists(path)? else { return Ok(None) };
        Ok(Self::parse(&pem).ok())
    }
}

/// Creates a directory that only its owner can access. If it exists, removes the temporary files that interrupted
/// writes left in it.
pub(super) fn create_private_dir(path: &Path) -> Result<(), JoinError> {
    muster_files::create_private_dir(path).map_err(file_error(path))?;
    muster_files::remove_temporary_files(path).map_err(file_error(path))
}

/// Replaces a file atomically. Only its owner can access it.
pub(crate) fn write_private_file(path: &Path, content: &str) -> Result<(), JoinError> {
    muster_files::write_private_file(path, content.as_bytes()).map_err(file_error(path))
}
