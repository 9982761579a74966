//! Bootstrap tokens: with one a new node asks for its certificate. Each is a Secret in `kube-system`.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use jiff::Timestamp;
use serde_json::Value;

use super::defaults::BOOTSTRAPPERS;
use super::user::{AUTHENTICATED, User};
use crate::kinds::Kind;
use crate::object::{self, is_set, str_at};
use crate::registry::Registry;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";

/// Rule: a bootstrap token is good while its Secret stands, says that it is for authentication, and has not expired; it
/// makes its bearer a member of `system:bootstrappers`, and of further groups whose names begin so.
/// Upstream: the bootstrap token authenticator.
pub(crate) fn user(registry: &Registry, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = parts(token)?;
    let secrets = Kind::find("", "v1", "secrets").expect("it is in the table");
    let stored = registry.peek(secrets, Some(NAMESPACE), &format!("bootstrap-token-{id}"))?;
    let stored = object::parse(&stored);
    let field = |name: &str| {
        let bytes = BASE64.decode(str_at(&stored["data"], name)).ok()?;
        String::from_utf8(bytes).ok()
    };
    let is_good = stored["type"] == TYPE
        && !is_set(&stored["metadata"]["deletionTimestamp"])
        && field("token-id").as_deref() == Some(id)
        && same(field("token-secret")?.as_bytes(), secret.as_bytes())
        && field("usage-bootstrap-authentication").as_deref() == Some("true")
        && !is_expired(&stored, field("expiration"), now);
    if !is_good {
        return None;
    }
    let mut groups = vec![BOOTSTRAPPERS.to_owned()];
    for group in field("auth-extra-groups").unwrap_or_default().split(',').map(str::trim) {
        match group.strip_prefix(BOOTSTRAPPERS).and_then(|it| it.strip_prefix(':')) {
            Some(rest) if !rest.is_empty() => groups.push(group.to_owned()),
            // A Secret that claims another group is not to be trusted at all.
            _ if !group.is_empty() => return None,
            _ => {}
        }
    }
    groups.push(AUTHENTICATED.to_owned());
    Some(User::new(format!("system:bootstrap:{id}"), groups))
}

/// Without a time it does not expire; a time that cannot be read is past.
fn is_expired(stored: &Value, expiration: Option<String>, now: Timestamp) -> bool {
    if !is_set(&stored["data"]["expiration"]) {
        return false;
    }
    expiration.and_then(|it| it.parse::<Timestamp>().ok()).is_none_or(|it| it < now)
}

/// Six and sixteen letters or digits, with a dot between them.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_word = |it: &str, length| {
        it.len() == length && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
    };
    (is_word(id, 6) && is_word(secret, 16)).then_some((id, secret))
}

/// Takes as long for a wrong secret that begins right as for any other.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
