//! Who a client certificate names.

use ring::digest::{SHA256, digest};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::user::{AUTHENTICATED, User};

/// The common name is the user, each organization a group. TLS has checked the certificate before.
pub(crate) fn user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let text = |it: &x509_parser::x509::AttributeTypeAndValue<'_>| it.as_str().ok().map(str::to_owned);
    let name = subject.iter_common_name().last().and_then(text)?;
    if name.is_empty() {
        return None;
    }
    let mut groups: Vec<String> = subject.iter_organization().filter_map(text).collect();
    groups.push(AUTHENTICATED.to_owned());
    let mut user = User::new(name, groups);
    let print: String = digest(&SHA256, der).as_ref().iter().map(|it| format!("{it:02x}")).collect();
    user.extra.insert(super::CREDENTIAL.to_owned(), vec![format!("X509SHA256={print}")]);
    Some(user)
}
