//! PKCS #10 certificate requests, and the certificates that the server issues for them.
//!
//! The subject and the public key of the request are copied to the certificate byte for byte. A subject may contain
//! many organizations, one for each group of the user.

use std::net::IpAddr;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use jiff::{Timestamp, tz::TimeZone};
use muster_api::pem::certificate_to_pem;
use rcgen::SigningKey as _;
use serde_json::Value;
use uuid::Uuid;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

use super::{Pki, PkiError};
use crate::unstructured::str_at;

/// Why a PKCS #10 request is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateRequestError {
    /// The request is not a PEM block `CERTIFICATE REQUEST`.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// The content of the PEM block is not a valid PKCS #10 request. Contains the reason.
    #[error("the request is malformed: {0}")]
    Malformed(String),
    /// The signature of the request does not match its public key.
    #[error("the request is not signed with its own key")]
    Signature,
}

/// A parsed PKCS #10 request whose signature was verified with its own public key.
#[derive(Debug, Default)]
pub(crate) struct CertificateRequest {
    /// Common name of the subject: the requested user name.
    pub(crate) common_name: String,
    /// Organizations of the subject: the requested groups.
    pub(crate) organizations: Vec<String>,
    /// DNS names among the subject alternative names.
    pub(crate) dns_names: Vec<String>,
    /// IP addresses among the subject alternative names.
    pub(crate) ip_addresses: Vec<IpAddr>,
    /// Number of email addresses among the subject alternative names.
    pub(crate) email_count: usize,
    /// Number of URIs among the subject alternative names.
    pub(crate) uri_count: usize,
    /// The subject in DER. It is copied to the certificate.
    subject_der: Vec<u8>,
    /// The public key in DER. It is copied to the certificate.
    public_key_der: Vec<u8>,
    /// The subject alternative names in DER, which are copied to the certificate. `None` if the request has none.
    subject_alt_names_der: Option<Vec<u8>>,
}

/// A purpose for which the key of a certificate may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyUsage {
    DigitalSignature,
    KeyEncipherment,
    ServerAuth,
    ClientAuth,
}

impl CertificateRequest {
    /// Parses the PKCS #10 request in `spec.request` of a CertificateSigningRequest.
    pub(crate) fn from_object(object: &Value) -> Result<Self, CertificateRequestError> {
        let pem = BASE64.decode(str_at(object, "spec.request")).map_err(|_| CertificateRequestError::Pem)?;
        Self::parse(&pem)
    }

    /// Parses a PKCS #10 request in PEM and verifies its signature.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, CertificateRequestError> {
        let text = std::str::from_utf8(pem).map_err(|_| CertificateRequestError::Pem)?;
        let (_, rest) =
            text.split_once("-----BEGIN CERTIFICATE REQUEST-----").ok_or(CertificateRequestError::Pem)?;
        let (base64, _) =
            rest.split_once("-----END CERTIFICATE REQUEST-----").ok_or(CertificateRequestError::Pem)?;
        let base64: String = base64.split_whitespace().collect();
        let der = BASE64.decode(base64).map_err(|_| CertificateRequestError::Pem)?;
        let malformed = |it: &dyn std::fmt::Display| CertificateRequestError::Malformed(it.to_string());
        let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|it| malformed(&it))?;
        parsed.verify_signature().map_err(|_| CertificateRequestError::Signature)?;

        let info = &parsed.certification_request_info;
        let text = |it: &x509_parser::x509::AttributeTypeAndValue<'_>| it.as_str().ok().map(str::to_owned);
        // The subject is copied to the certificate, so every name in it must be readable by the checks.
        let mut names = info.subject.iter_common_name().chain(info.subject.iter_organization());
        if names.any(|it| it.as_str().is_err()) {
            return Err(CertificateRequestError::Malformed(
                "a name in the subject is not a string".to_owned(),
            ));
        }
        let mut request = Self {
            common_name: info.subject.iter_common_name().last().and_then(text).unwrap_or_default(),
            organizations: info.subject.iter_organization().filter_map(text).collect(),
            subject_der: info.subject.as_raw().to_vec(),
            public_key_der: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for attribute in info.iter_attributes() {
            let x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(requested) =
                attribute.parsed_attribute()
            else {
                continue;
            };
            for extension in &requested.extensions {
                let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                    continue;
                };
                for name in &names.general_names {
                    match name {
                        GeneralName::DNSName(it) => request.dns_names.push((*it).to_owned()),
                        GeneralName::IPAddress(it) => request.ip_addresses.push(parse_ip(it)?),
                        GeneralName::RFC822Name(_) => request.email_count += 1,
                        GeneralName::URI(_) => request.uri_count += 1,
                        other => {
                            return Err(CertificateRequestError::Malformed(format!(
                                "unsupported subject alternative name: {other}"
                            )));
                        }
                    }
                }
                request.subject_alt_names_der = Some(extension.value.to_vec());
            }
        }
        Ok(request)
    }
}

/// Parses an IP address from its four (IPv4) or sixteen (IPv6) bytes.
fn parse_ip(bytes: &[u8]) -> Result<IpAddr, CertificateRequestError> {
    let (v4, v6) = (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes));
    let parsed = v4.map(IpAddr::from).or_else(|_| v6.map(IpAddr::from));
    parsed.map_err(|_| CertificateRequestError::Malformed(format!("an IP address of {} bytes", bytes.len())))
}

impl Pki {
    /// Issues a certificate for a request, and returns it in PEM. `now` is the issue time of the certificate. Its
    /// validity starts at `not_before`, which may be earlier, and ends at `not_after` or with the validity of the CA,
    /// whichever is earlier.
    ///
    /// Rule: a separate CA signs the serving certificates of nodes. Clients trust only the cluster CA. They therefore
    /// never mistake a node for the API server, whatever names the certificate of the node contains.
    pub(crate) fn issue_certificate(
        &self,
        request: &CertificateRequest,
        usages: &[KeyUsage],
        (not_before, not_after): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let authority = if usages.contains(&KeyUsage::ServerAuth) { &self.node_serving_ca } else { &self.ca };
        let unusable = |it: String| authority.unusable_error(it.into());
        let (_, pem) = x509_parser::pem::parse_x509_pem(authority.pem.as_bytes())
            .map_err(|it| unusable(it.to_string()))?;
        let (_, ca) = X509Certificate::from_der(&pem.contents).map_err(|it| unusable(it.to_string()))?;
        let authority_key = ca.extensions().iter().find_map(|it| match it.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });

        // A certificate does not outlive its CA.
        let ca_not_after = Timestamp::from_second(ca.validity().not_after.timestamp()).unwrap_or(not_after);
        let not_after = not_after.min(ca_not_after);
        let mut extensions = vec![
            encode_extension(&[0x55, 0x1d, 0x25], false, &encode_extended_key_usage(usages)),
            // Basic constraints: not a CA.
            encode_extension(&[0x55, 0x1d, 0x13], true, &encode_sequence(&[])),
            encode_extension(&[0x55, 0x1d, 0x10], false, &encode_issue_time(now)),
        ];
        extensions
            .extend(encode_key_usage(usages).map(|it| encode_extension(&[0x55, 0x1d, 0x0f], true, &it)));
        if let Some(id) = authority_key {
            extensions.push(encode_extension(
                &[0x55, 0x1d, 0x23],
                false,
                &encode_sequence(&[encode_tlv(0x80, &id)]),
            ));
        }
        if let Some(names) = &request.subject_alt_names_der {
            extensions.push(encode_extension(&[0x55, 0x1d, 0x11], false, names));
        }
        // ecdsa-with-SHA256: the CA's key is on the curve P-256.
        let algorithm =
            encode_sequence(&[encode_tlv(0x06, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02])]);
        let tbs = encode_sequence(&[
            encode_tlv(0xa0, &encode_tlv(0x02, &[2])),
            encode_tlv(0x02, &random_serial()),
            algorithm.clone(),
            ca.subject().as_raw().to_vec(),
            encode_sequence(&[encode_time(not_before), encode_time(not_after)]),
            request.subject_der.clone(),
            request.public_key_der.clone(),
            encode_tlv(0xa3, &encode_sequence(&extensions)),
        ]);
        let mut signature = vec![0];
        signature.extend(authority.issuer.key().sign(&tbs)?);
        let der = encode_sequence(&[tbs, algorithm, encode_tlv(0x03, &signature)]);
        Ok(certificate_to_pem(&BASE64.encode(der)))
    }
}

/// Returns a random serial number. It is positive, and long enough to be unique.
fn random_serial() -> [u8; 16] {
    let mut serial = Uuid::new_v4().into_bytes();
    serial[0] = (serial[0] & 0x7f) | 0x40;
    serial
}

/// Encodes the value of the key usage extension. Returns `None` if `usages` has no usage for this extension, because an
/// empty value is not allowed.
fn encode_key_usage(usages: &[KeyUsage]) -> Option<Vec<u8>> {
    let bit = |usage: KeyUsage, bit: u8| if usages.contains(&usage) { bit } else { 0 };
    let bits = bit(KeyUsage::DigitalSignature, 0x80) | bit(KeyUsage::KeyEncipherment, 0x20);
    let unused = u8::try_from(bits.trailing_zeros()).expect("at most eight");
    (bits != 0).then(|| encode_tlv(0x03, &[unused, bits]))
}

/// Encodes the value of the extended key usage extension. It contains `ServerAuth` and `ClientAuth` if they are in
/// `usages`.
fn encode_extended_key_usage(usages: &[KeyUsage]) -> Vec<u8> {
    let purpose = |it: u8| encode_tlv(0x06, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, it]);
    let purposes = usages.iter().filter_map(|it| match it {
        KeyUsage::ServerAuth => Some(purpose(1)),
        KeyUsage::ClientAuth => Some(purpose(2)),
        KeyUsage::DigitalSignature | KeyUsage::KeyEncipherment => None,
    });
    encode_sequence(&purposes.collect::<Vec<_>>())
}

/// Object identifier of the certificate extension that contains the issue time. It is `privateKeyUsagePeriod` of RFC
/// 3280.
pub(crate) const ISSUE_TIME_OID: &[u64] = &[2, 5, 29, 16];

/// Encodes the issue time as the value of the extension [`ISSUE_TIME_OID`]. The extension is necessary because
/// `notBefore` is earlier than the issue time. OpenSSL prints the extension, and TLS libraries ignore it.
pub(super) fn encode_issue_time(at: Timestamp) -> Vec<u8> {
    let text = at.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%SZ").to_string();
    encode_sequence(&[encode_tlv(0x80, text.as_bytes())])
}

/// Decodes the issue time from the value of the extension [`ISSUE_TIME_OID`]. Returns `None` if the value is not in the
/// format of [`encode_issue_time`].
pub(crate) fn decode_issue_time(value: &[u8]) -> Option<Timestamp> {
    let text = value.strip_prefix(&[0x30, 0x11, 0x80, 0x0f])?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let at = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    Some(at.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Encodes an X.509 extension. `oid` is the DER content of its object identifier.
fn encode_extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![encode_tlv(0x06, oid)];
    if critical {
        parts.push(encode_tlv(0x01, &[0xff]));
    }
    parts.push(encode_tlv(0x04, value));
    encode_sequence(&parts)
}

/// Encodes a time as X.509 requires: as UTCTime up to 2049, and as GeneralizedTime from 2050 on.
fn encode_time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    if at.year() < 2050 {
        encode_tlv(0x17, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        encode_tlv(0x18, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

/// Encodes an ASN.1 SEQUENCE of the DER values `parts`.
fn encode_sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    encode_tlv(0x30, &parts.concat())
}

/// Encodes a DER value: tag, length and content.
fn encode_tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut all = vec![tag];
    let length = content.len();
    if let Ok(short @ ..0x80) = u8::try_from(length) {
        all.push(short);
    } else {
        let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|it| *it == 0).collect();
        all.push(0x80 | u8::try_from(bytes.len()).expect("a length has at most eight bytes"));
        all.extend(bytes);
    }
    all.extend(content);
    all
}
