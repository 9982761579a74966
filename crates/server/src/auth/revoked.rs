//! Credentials that were revoked before they expire: a ConfigMap in `kube-system`, with a key for each.
//!
//! `muster cert revoke` and `muster token revoke` write it; no one but members of `system:masters` may. The set is read
//! again when the ConfigMap changes, so that a request pays for a look-up in a hash set only.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde_json::Value;

use super::issued;
use super::user::{MASTERS, User};
use crate::kinds::Kind;
use crate::object::{self, str_at};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::Target;

pub(super) const NAMESPACE: &str = "kube-system";
pub(super) const NAME: &str = "muster-revoked-credentials";

/// The set, and the bytes that it was read from.
#[derive(Debug, Default)]
pub(crate) struct Revoked(RwLock<Arc<(Option<Bytes>, HashSet<String>)>>);

/// `serial` is in hexadecimal digits.
pub(super) fn certificate_key(serial: &str) -> String {
    format!("certificate.{serial}")
}

pub(super) fn token_key(id: &str) -> String {
    format!("token.{id}")
}

/// Rule: a revoked credential is refused from the next request on.
pub(super) fn contains(registry: &Registry, key: &str) -> bool {
    let kind = Kind::find("", "v1", "configmaps").expect("it is in the table");
    let stored = registry.peek(kind, Some(NAMESPACE), NAME);
    let known = registry.access.revoked.0.read().unwrap_or_else(PoisonError::into_inner).clone();
    // The bytes of an object are never changed in place, and these are still held: the same place is the same object.
    let is_same = match (&stored, &known.0) {
        (None, None) => true,
        (Some(stored), Some(known)) => stored.as_ptr() == known.as_ptr() && stored.len() == known.len(),
        _ => false,
    };
    if is_same {
        return known.1.contains(key);
    }
    let keys = match &stored {
        Some(stored) => {
            let object = object::parse(stored);
            object["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        }
        None => HashSet::new(),
    };
    let is_there = keys.contains(key);
    *registry.access.revoked.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new((stored, keys));
    is_there
}

/// Rule: none but members of `system:masters` write the ConfigMaps of issued and of revoked credentials, whatever roles
/// they have. `new` is null for a delete.
pub(super) fn check(user: &User, target: &Target, new: &Value) -> Result<(), Refusal> {
    if target.kind.plural != "configmaps" || target.namespace.as_deref() != Some(NAMESPACE) {
        return Ok(());
    }
    let name = if target.name.is_empty() { str_at(new, "metadata.name") } else { &target.name };
    if (name == NAME || name.starts_with(issued::PREFIX)) && !user.is_in(MASTERS) {
        let why = "only members of system:masters may write the records of issued and revoked credentials";
        return Err(Refusal::forbidden(target.kind, name, why));
    }
    Ok(())
}
