//! Credentials that were revoked before they expire: a ConfigMap in `kube-system`, with a key for each.
//!
//! `muster cert revoke` and `muster token revoke` write it; no one but members of `system:masters` may. The set is read
//! again when the ConfigMap changes, so that a request pays for look-ups in hash tables only.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::Access;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::pki::CA_DAYS;
use crate::request::{ClientCertificate, MASTERS, Target, User};
use crate::unstructured::{self, is_set, str_at};

pub(crate) const NAMESPACE: &str = "kube-system";
/// What the names of the ConfigMaps with issued certificates begin with; a number follows.
pub(crate) const RECORDS_PREFIX: &str = "muster-issued-certificates-";
pub(super) const NAME: &str = "muster-revoked-credentials";

/// What every certificate of one user up to a time is revoked by, followed by the digest of the user's name: names have
/// characters that a key of a ConfigMap must not have.
const SUBJECT_PREFIX: &str = "subject.";

/// From the time that the server puts into an entry until the entry is committed, requests with the certificates that it
/// revokes are still answered. Signing requests and certificates from that time are refused too.
const COMMIT_MAX: SignedDuration = SignedDuration::from_secs(5);

/// More than ten years have of them.
const LEAP_DAYS: i64 = 4;

/// The list as it was last read.
#[derive(Debug, Default)]
pub(crate) struct Revoked(RwLock<Arc<List>>);

#[derive(Debug, Default)]
struct List {
    /// What it was read from.
    bytes: Option<Bytes>,
    keys: HashSet<String>,
    /// By user name.
    subjects: HashMap<String, RevokedSubject>,
}

/// The certificates of a user that were issued up to a time are revoked.
#[derive(Debug)]
struct RevokedSubject {
    issued_until: Timestamp,
    /// The serial number of the one certificate that stays valid, or empty.
    kept: String,
}

/// `serial` is in hexadecimal digits.
pub(super) fn certificate_key(serial: &str) -> String {
    format!("certificate.{serial}")
}

pub(super) fn token_key(id: &str) -> String {
    format!("token.{id}")
}

/// Revokes all tokens that are bound to a Secret: by its UID, which stands in the tokens, so that it does not matter what the
/// Secret holds.
pub(super) fn secret_key(uid: &str) -> String {
    format!("secret.{uid}")
}

/// The key of the entry that revokes the certificates of a user, in the ConfigMap of revoked credentials.
pub fn revoked_subject_key(user: &str) -> String {
    let digits: String =
        digest(&SHA256, user.as_bytes()).as_ref().iter().map(|it| format!("{it:02x}")).collect();
    format!("{SUBJECT_PREFIX}{digits}")
}

/// Rule: a revoked credential is refused from the next request on.
pub(super) fn contains(access: &Access, key: &str) -> bool {
    current(access).keys.contains(key)
}

/// Rule: a certificate is revoked by its serial number, or by its user if it was issued at or before the entry's
/// `issuedUntil` and is not the one that the entry keeps.
pub(super) fn has_revoked(access: &Access, user: &str, certificate: &ClientCertificate) -> bool {
    let list = current(access);
    let by_subject = list
        .subjects
        .get(user)
        .is_some_and(|it| certificate.issued_at <= it.issued_until && *certificate.serial != *it.kept);
    by_subject || list.keys.contains(&certificate_key(&certificate.serial))
}

/// Until when the certificates of this user, and their signing requests, are revoked.
pub(crate) fn issued_until(access: &Access, user: &str) -> Option<Timestamp> {
    current(access).subjects.get(user).map(|it| it.issued_until)
}

fn current(access: &Access) -> Arc<List> {
    let kind = Kind::builtin("", "v1", "configmaps");
    let stored = access.storage.peek(kind, Some(NAMESPACE), NAME);
    let known = access.revoked.0.read().unwrap_or_else(PoisonError::into_inner).clone();
    // The bytes of an object are never changed in place, and these are still held: the same place is the same object.
    let is_same = match (&stored, &known.bytes) {
        (None, None) => true,
        (Some(stored), Some(known)) => stored.as_ptr() == known.as_ptr() && stored.len() == known.len(),
        _ => false,
    };
    if is_same {
        return known;
    }
    let read = Arc::new(stored.map(List::read).unwrap_or_default());
    *access.revoked.0.write().unwrap_or_else(PoisonError::into_inner) = read.clone();
    read
}

impl List {
    fn read(bytes: Bytes) -> Self {
        let object = unstructured::parse(&bytes);
        let mut list = Self { bytes: Some(bytes), ..Self::default() };
        for (key, entry) in object["data"].as_object().into_iter().flatten() {
            if key.starts_with(SUBJECT_PREFIX)
                && let Some(entry) = entry_of(entry)
            {
                // An entry without a time revokes all.
                let issued_until = str_at(&entry, "issuedUntil").parse().unwrap_or(Timestamp::MAX);
                let kept = str_at(&entry, "kept").to_owned();
                let subject = str_at(&entry, "subject").to_owned();
                list.subjects.insert(subject, RevokedSubject { issued_until, kept });
            }
            list.keys.insert(key.clone());
        }
        list
    }
}

fn entry_of(text: &Value) -> Option<Value> {
    text.as_str().and_then(|it| serde_json::from_str(it).ok()).filter(Value::is_object)
}

fn is_list(target: &Target, new: &Value) -> bool {
    let name = if target.name.is_empty() { str_at(new, "metadata.name") } else { &target.name };
    target.kind.group.is_empty()
        && target.kind.plural == "configmaps"
        && target.namespace.as_deref() == Some(NAMESPACE)
        && name == NAME
}

/// Rule: the server says when the certificates of a user were revoked, by the clock that also dates certificates, and keeps
/// the entry until none of them can be valid: no certificate is valid for longer than an authority is.
pub(crate) fn complete(now: Timestamp, target: &Target, new: &mut Value) {
    if !is_list(target, new) {
        return;
    }
    let Some(data) = new.get_mut("data").and_then(Value::as_object_mut) else { return };
    for (_, text) in data.iter_mut().filter(|(key, _)| key.starts_with(SUBJECT_PREFIX)) {
        let Some(mut entry) = entry_of(text) else { continue };
        if is_set(&entry["issuedUntil"]) {
            continue;
        }
        entry["revokedAt"] = json!(unstructured::time(now));
        entry["issuedUntil"] = json!(unstructured::time(now + COMMIT_MAX));
        entry["notAfter"] =
            json!(unstructured::time(now + SignedDuration::from_hours((CA_DAYS + LEAP_DAYS) * 24)));
        *text = json!(entry.to_string());
    }
}

/// Rule: none but members of `system:masters` write the ConfigMaps of issued and of revoked credentials, whatever roles
/// they have. `new` is null for a delete.
pub(crate) fn check(user: &User, target: &Target, new: &Value) -> Result<(), ApiError> {
    if target.kind.plural != "configmaps" || target.namespace.as_deref() != Some(NAMESPACE) {
        return Ok(());
    }
    let name = if target.name.is_empty() { str_at(new, "metadata.name") } else { &target.name };
    let is_unreadable = |(key, entry): (&String, &Value)| {
        let is_of = |it: Value| *key == revoked_subject_key(str_at(&it, "subject"));
        key.starts_with(SUBJECT_PREFIX) && !entry_of(entry).is_some_and(is_of)
    };
    if name == NAME && new["data"].as_object().into_iter().flatten().any(is_unreadable) {
        let why = "an entry that revokes the certificates of a user is JSON with this user as subject";
        return Err(ApiError::bad_request(why));
    }
    if (name == NAME || name.starts_with(RECORDS_PREFIX)) && !user.is_in(MASTERS) {
        let why = "only members of system:masters may write the records of issued and revoked credentials";
        return Err(ApiError::forbidden(target.kind, name, why));
    }
    Ok(())
}
