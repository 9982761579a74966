//! The user that a client certificate authenticates.

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{ISSUE_TIME_OID, decode_issue_time};
use crate::request::{AUTHENTICATED_GROUP, CREDENTIAL_ID_KEY, ClientCertificate, User};

/// The client certificate of a connection: the user that it authenticates, and when it expires.
#[derive(Debug)]
pub(crate) struct PeerCertificate {
    user: User,
    /// End of the validity of the certificate.
    not_after: Timestamp,
}

impl PeerCertificate {
    /// Parses the client certificate of a connection, in DER. Returns `None` if it is malformed or has no user name.
    pub(crate) fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let until = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
        Some(Self { user: user_from_der(der)?, not_after: until })
    }

    /// Returns a certificate of `user` that never expires, for tests.
    #[cfg(test)]
    pub(crate) fn for_user(user: User) -> Self {
        Self { user, not_after: Timestamp::MAX }
    }

    /// Returns the user of the certificate, or `None` if the certificate has expired at `now`. This function must be
    /// called for each request, because a connection may outlive its certificate.
    pub(crate) fn user(&self, now: Timestamp) -> Option<&User> {
        (now <= self.not_after).then_some(&self.user)
    }
}

/// Returns the user of a client certificate that TLS has already verified. The common name is the user name. The groups
/// are the organizations and `system:authenticated`. Returns `None` if the certificate is malformed or has no user
/// name.
pub(crate) fn user_from_der(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let text = |it: &x509_parser::x509::AttributeTypeAndValue<'_>| it.as_str().ok().map(str::to_owned);
    let name = subject.iter_common_name().last().and_then(text)?;
    if name.is_empty() {
        return None;
    }
    let mut groups: Vec<String> = subject.iter_organization().filter_map(text).collect();
    groups.push(AUTHENTICATED_GROUP.to_owned());
    let mut user = User::new(name, groups);
    let fingerprint: String = digest(&SHA256, der).as_ref().iter().map(|it| format!("{it:02x}")).collect();
    user.client_certificate = Some(ClientCertificate {
        serial: format_serial(certificate.raw_serial()).into(),
        issued_at: issued_at(&certificate)?,
    });
    user.extra.insert(CREDENTIAL_ID_KEY.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
    Some(user)
}

/// Returns the issue time of a certificate.
///
/// Rule: a certificate without the issue time extension counts as issued at its `notBefore`, which is never later than
/// its real issue time. Such a certificate was issued by an earlier version of the server, or was signed by other
/// means.
fn issued_at(certificate: &X509Certificate<'_>) -> Option<Timestamp> {
    let has_oid = |it: &&x509_parser::extensions::X509Extension<'_>| {
        it.oid.iter().is_some_and(|it| it.eq(ISSUE_TIME_OID.iter().copied()))
    };
    let issue_time = certificate.extensions().iter().find(has_oid).and_then(|it| decode_issue_time(it.value));
    issue_time.or_else(|| Timestamp::from_second(certificate.validity().not_before.timestamp()).ok())
}

/// Returns a serial number in the format that `muster cert revoke` expects: lowercase hexadecimal digits without
/// leading zeros.
pub(crate) fn format_serial(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    }
}
