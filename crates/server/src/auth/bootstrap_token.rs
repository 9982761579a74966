//! Bootstrap tokens, with which new nodes authenticate to request a certificate. Each token is stored as a Secret in
//! `kube-system`.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use jiff::Timestamp;
use muster_api::well_known::{NAMESPACE_SYSTEM, SECRET_BOOTSTRAP_TOKEN_PREFIX, SECRET_TYPE_BOOTSTRAP_TOKEN};
use serde_json::Value;

use super::AccessControl;
use super::default_roles::BOOTSTRAPPERS_GROUP;
use crate::kinds::Kind;
use crate::request::{AUTHENTICATED_GROUP, User};
use crate::unstructured::{self, is_set, str_at};

/// Key in `User::extra` of a bootstrap token's user. Its value is the name of the only node that may join with the
/// token. The key is absent if the token is not restricted to one node.
pub(crate) const NODE_EXTRA_KEY: &str = "muster.bootstrap/node";

/// Returns the user of a bootstrap token, or `None` if the token is not valid.
///
/// Rule: a bootstrap token is valid while its Secret exists, is enabled for authentication and has not expired. Its
/// user is in the groups `system:bootstrappers` and `system:authenticated` and in the groups that the Secret lists. The
/// names of the listed groups must begin with `system:bootstrappers:`. If the Secret names a node, the token is valid
/// for that node only.
/// Upstream: the bootstrap token authenticator.
pub(crate) fn bootstrap_token_user(access: &AccessControl, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = split_token(token)?;
    let stored = BootstrapTokenSecret::find_valid(access, id, now)?;
    if !constant_time_eq(stored.decoded_field("token-secret")?.as_bytes(), secret.as_bytes()) {
        return None;
    }
    let mut groups = vec![BOOTSTRAPPERS_GROUP.to_owned()];
    for group in stored.decoded_field("auth-extra-groups").unwrap_or_default().split(',').map(str::trim) {
        match group.strip_prefix(BOOTSTRAPPERS_GROUP).and_then(|it| it.strip_prefix(':')) {
            Some(rest) if !rest.is_empty() => groups.push(group.to_owned()),
            // A Secret that lists any other group is invalid.
            _ if !group.is_empty() => return None,
            _ => {}
        }
    }
    groups.push(AUTHENTICATED_GROUP.to_owned());
    let mut user = User::new(format!("system:bootstrap:{id}"), groups);
    if let Some(node) = stored.decoded_field("node").filter(|it| !it.is_empty()) {
        user.extra.insert(NODE_EXTRA_KEY.to_owned(), vec![node]);
    }
    Some(user)
}

/// The Secret of a valid bootstrap token.
struct BootstrapTokenSecret(Value);

impl BootstrapTokenSecret {
    /// Finds the Secret of the bootstrap token with this ID. Returns `None` if the Secret is missing, malformed, being
    /// deleted, expired or not enabled for authentication.
    fn find_valid(access: &AccessControl, id: &str, now: Timestamp) -> Option<Self> {
        let secrets = Kind::builtin("", "v1", "secrets");
        let stored = access.storage.find(
            secrets,
            Some(NAMESPACE_SYSTEM),
            &format!("{SECRET_BOOTSTRAP_TOKEN_PREFIX}{id}"),
        )?;
        let stored = Self(unstructured::parse_stored(&stored));
        let is_valid = stored.0["type"] == SECRET_TYPE_BOOTSTRAP_TOKEN
            && !is_set(&stored.0["metadata"]["deletionTimestamp"])
            && stored.decoded_field("token-id").as_deref() == Some(id)
            && stored.decoded_field("usage-bootstrap-authentication").as_deref() == Some("true")
            && !is_expired(&stored.0, stored.decoded_field("expiration"), now);
        is_valid.then_some(stored)
    }

    /// Returns the base64-decoded value of a field of the Secret's `data`, or `None` if it is not base64-encoded UTF-8.
    /// The value of a missing field is empty.
    fn decoded_field(&self, name: &str) -> Option<String> {
        let bytes = BASE64.decode(str_at(&self.0["data"], name)).ok()?;
        String::from_utf8(bytes).ok()
    }
}

/// Whether the bootstrap token in the Secret `stored` has expired. `expiration` is the decoded field of that name. A
/// Secret without this field never expires. A value that cannot be parsed counts as expired.
fn is_expired(stored: &Value, expiration: Option<String>, now: Timestamp) -> bool {
    if !is_set(&stored["data"]["expiration"]) {
        return false;
    }
    expiration.and_then(|it| it.parse::<Timestamp>().ok()).is_none_or(|it| it < now)
}

/// Splits a bootstrap token `id.secret` into its ID and its secret. Returns `None` unless the ID has 6 and the secret
/// has 16 lowercase letters or digits.
fn split_token(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_word = |it: &str, length| {
        it.len() == length && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
    };
    (is_word(id, 6) && is_word(secret, 16)).then_some((id, secret))
}

/// Whether two byte strings are equal. Compares strings of equal length in constant time, to prevent timing attacks.
fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
