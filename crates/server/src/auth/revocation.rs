//! Revocation of credentials before they expire. The revocation list is the ConfigMap `muster-revoked-credentials` in
//! `kube-system`, with one entry in `data` for each revocation.
//!
//! `muster cert revoke` and `muster token revoke` write the list. Only members of `system:masters` may write it. The
//! list is parsed when it changes, so that a request costs only hash table lookups.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use muster_api::well_known::{
    CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX, CONFIG_MAP_REVOKED_CREDENTIALS, NAMESPACE_SYSTEM,
    USER_GROUP_MASTERS,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::AccessControl;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::pki::CA_LIFETIME_DAYS;
use crate::request::{ClientCertificate, RequestTarget, User};
use crate::unstructured::{self, is_set, str_at};

/// Key prefix of the revocation list entries that revoke all certificates of one user that were issued up to a time.
/// The SHA-256 of the user name follows the prefix, because a ConfigMap key cannot contain all characters of a user
/// name.
const SUBJECT_KEY_PREFIX: &str = "subject.";

/// Upper bound for the time between the request that adds an entry to the revocation list and the commit of that
/// request. The server sets `issuedUntil` of the entry to the time of the request plus this duration, so that
/// certificates issued or requested in between are revoked too.
const REVOCATION_COMMIT_DURATION_MAX: SignedDuration = SignedDuration::from_secs(5);

/// Upper bound for the number of leap days in the ten years for which a CA certificate is valid.
const LEAP_DAYS_IN_CA_LIFETIME_MAX: i64 = 4;

/// Cache of the parsed revocation list. The list is parsed again after it has changed.
#[derive(Debug, Default)]
pub(crate) struct RevocationListCache(RwLock<Arc<RevocationList>>);

/// The parsed ConfigMap `muster-revoked-credentials`.
#[derive(Debug, Default)]
struct RevocationList {
    /// The stored ConfigMap from which the list was parsed. `None` if the ConfigMap does not exist.
    config_map: Option<Bytes>,
    /// Keys of all entries of the ConfigMap.
    keys: HashSet<String>,
    /// By user name: the entries that revoke the certificates of one user that were issued up to a time.
    subjects: HashMap<String, RevokedSubject>,
}

/// An entry of the revocation list that revokes the certificates of one user that were issued up to a time.
#[derive(Debug)]
struct RevokedSubject {
    /// `issuedUntil` of the entry: certificates issued up to this time are revoked. `Timestamp::MAX` if the entry has
    /// no `issuedUntil`.
    issued_until: Timestamp,
    /// `kept` of the entry: the serial number of the only certificate of the user that stays valid. Empty if all are
    /// revoked.
    exempt_serial: String,
}

/// Returns the key of the revocation list entry that revokes one certificate. `serial` is the serial number in
/// hexadecimal.
pub(super) fn revocation_key_for_certificate(serial: &str) -> String {
    format!("certificate.{serial}")
}

/// Returns the key of the revocation list entry that revokes one token. `id` is the claim `jti` of the token.
pub(super) fn revocation_key_for_token(id: &str) -> String {
    format!("token.{id}")
}

/// Returns the key of the revocation list entry that revokes all tokens bound to a Secret. `uid` is the UID of the
/// Secret.
pub(super) fn revocation_key_for_secret(uid: &str) -> String {
    format!("secret.{uid}")
}

/// Returns the key of the revocation list entry for a user. The entry revokes the certificates of the user that were
/// issued up to the time in its field `issuedUntil`.
pub fn revoked_subject_key(user: &str) -> String {
    let digits: String =
        digest(&SHA256, user.as_bytes()).as_ref().iter().map(|it| format!("{it:02x}")).collect();
    format!("{SUBJECT_KEY_PREFIX}{digits}")
}

/// Whether the revocation list has an entry with this key.
///
/// Rule: a revoked credential is refused from the next request on.
pub(super) fn is_revoked(access: &AccessControl, key: &str) -> bool {
    current_revocation_list(access).keys.contains(key)
}

/// Whether the certificate of a user is revoked.
///
/// Rule: a certificate is revoked if the revocation list has an entry for its serial number. It is also revoked by an
/// entry for its user if it was issued up to the entry's `issuedUntil` and is not the certificate that the entry keeps
/// valid.
pub(super) fn is_certificate_revoked(
    access: &AccessControl,
    user: &str,
    certificate: &ClientCertificate,
) -> bool {
    let list = current_revocation_list(access);
    let by_subject = list.subjects.get(user).is_some_and(|it| {
        certificate.issued_at <= it.issued_until && *certificate.serial != *it.exempt_serial
    });
    by_subject || list.keys.contains(&revocation_key_for_certificate(&certificate.serial))
}

/// Returns the time up to which the certificates and signing requests of a user are revoked, or `None` if the
/// revocation list has no entry for the user.
pub(crate) fn revoked_until(access: &AccessControl, user: &str) -> Option<Timestamp> {
    current_revocation_list(access).subjects.get(user).map(|it| it.issued_until)
}

/// Returns the revocation list. Parses it again if the ConfigMap has changed.
fn current_revocation_list(access: &AccessControl) -> Arc<RevocationList> {
    let kind = Kind::builtin("", "v1", "configmaps");
    let stored = access.storage.find(kind, Some(NAMESPACE_SYSTEM), CONFIG_MAP_REVOKED_CREDENTIALS);
    let cached = access.revocations.0.read().unwrap_or_else(PoisonError::into_inner).clone();
    // Stored bytes are never changed in place, and the cache holds them, so equal pointers mean the same object.
    let is_same = match (&stored, &cached.config_map) {
        (None, None) => true,
        (Some(stored), Some(cached)) => stored.as_ptr() == cached.as_ptr() && stored.len() == cached.len(),
        _ => false,
    };
    if is_same {
        return cached;
    }
    let list = Arc::new(stored.map(RevocationList::parse).unwrap_or_default());
    *access.revocations.0.write().unwrap_or_else(PoisonError::into_inner) = list.clone();
    list
}

impl RevocationList {
    /// Parses the stored ConfigMap `muster-revoked-credentials`.
    fn parse(bytes: Bytes) -> Self {
        let object = unstructured::parse_stored(&bytes);
        let mut list = Self { config_map: Some(bytes), ..Self::default() };
        for (key, entry) in object["data"].as_object().into_iter().flatten() {
            if key.starts_with(SUBJECT_KEY_PREFIX)
                && let Some(entry) = parse_revocation_entry(entry)
            {
                // An entry without a time revokes all certificates of the user.
                let issued_until = str_at(&entry, "issuedUntil").parse().unwrap_or(Timestamp::MAX);
                let kept = str_at(&entry, "kept").to_owned();
                let subject = str_at(&entry, "subject").to_owned();
                list.subjects.insert(subject, RevokedSubject { issued_until, exempt_serial: kept });
            }
            list.keys.insert(key.clone());
        }
        list
    }
}

/// Parses the value of a revocation list entry, which is JSON text. Returns `None` if it is not a JSON object.
fn parse_revocation_entry(text: &Value) -> Option<Value> {
    text.as_str().and_then(|it| serde_json::from_str(it).ok()).filter(Value::is_object)
}

/// Whether the target of a write is the ConfigMap `muster-revoked-credentials`.
fn is_revocation_list(target: &RequestTarget, new: &Value) -> bool {
    let name = if target.name.is_empty() { str_at(new, "metadata.name") } else { &target.name };
    target.kind.resource() == ("", "configmaps")
        && target.namespace.as_deref() == Some(NAMESPACE_SYSTEM)
        && name == CONFIG_MAP_REVOKED_CREDENTIALS
}

/// Sets the times in new revocation list entries that revoke the certificates of a user. Entries that have
/// `issuedUntil` already are not changed. Does nothing if `target` is not the revocation list.
///
/// Rule: the server sets `issuedUntil`, up to which the certificates of a user are revoked, from the same clock that it
/// uses for `notBefore` of certificates. It also sets `notAfter`, after which the entry can be removed. By then all
/// revoked certificates have expired, because no certificate is valid for longer than a CA certificate.
pub(crate) fn set_revocation_times(now: Timestamp, target: &RequestTarget, new: &mut Value) {
    if !is_revocation_list(target, new) {
        return;
    }
    let Some(data) = new.get_mut("data").and_then(Value::as_object_mut) else { return };
    for (_, text) in data.iter_mut().filter(|(key, _)| key.starts_with(SUBJECT_KEY_PREFIX)) {
        let Some(mut entry) = parse_revocation_entry(text) else { continue };
        if is_set(&entry["issuedUntil"]) {
            continue;
        }
        entry["revokedAt"] = json!(unstructured::format_time(now));
        entry["issuedUntil"] = json!(unstructured::format_time(now + REVOCATION_COMMIT_DURATION_MAX));
        entry["notAfter"] = json!(unstructured::format_time(
            now + SignedDuration::from_hours((CA_LIFETIME_DAYS + LEAP_DAYS_IN_CA_LIFETIME_MAX) * 24)
        ));
        *text = json!(entry.to_string());
    }
}

/// Checks a write to the ConfigMaps of issued and revoked credentials. Allows writes to other objects.
///
/// Rule: only members of `system:masters` may write the ConfigMaps of issued and revoked credentials, whatever RBAC
/// grants. In an entry that revokes the certificates of a user, the key must match the `subject` in the value.
///
/// `new` is the object to be written, or null for a delete.
pub(crate) fn check_credential_record_write(
    user: &User,
    target: &RequestTarget,
    new: &Value,
) -> Result<(), ApiError> {
    if target.kind.resource() != ("", "configmaps") || target.namespace.as_deref() != Some(NAMESPACE_SYSTEM) {
        return Ok(());
    }
    let name = if target.name.is_empty() { str_at(new, "metadata.name") } else { &target.name };
    let is_invalid = |(key, entry): (&String, &Value)| {
        let is_for_subject = |it: Value| *key == revoked_subject_key(str_at(&it, "subject"));
        key.starts_with(SUBJECT_KEY_PREFIX) && !parse_revocation_entry(entry).is_some_and(is_for_subject)
    };
    if name == CONFIG_MAP_REVOKED_CREDENTIALS && new["data"].as_object().into_iter().flatten().any(is_invalid)
    {
        let why =
            "an entry with the prefix subject. must be a JSON object whose subject is the user in its key";
        return Err(ApiError::bad_request(why));
    }
    if (name == CONFIG_MAP_REVOKED_CREDENTIALS || name.starts_with(CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX))
        && !user.is_in_group(USER_GROUP_MASTERS)
    {
        let why = "only members of system:masters may write the records of issued and revoked credentials";
        return Err(ApiError::forbidden(target.kind, name, why));
    }
    Ok(())
}
