//! Who asks, and whether they may.
//!
//! A request is authenticated (`certificate`, …), may speak for another (`impersonate`), and is then put in the words of
//! the rules (`attributes`). What a user may do is what the bindings and roles in the store grant (`roles`, `rule`); a node has
//! rights of its own (`node`). `defaults` are the roles that every cluster has.

pub(crate) mod bootstrap_token;
pub(crate) mod default_roles;
mod impersonate;
pub(crate) mod node;
pub(crate) mod node_addresses;
mod reauthorize;
pub(crate) mod review;
pub(crate) mod revoked;
pub(crate) mod roles;
pub(crate) mod rule;
mod token;
pub(crate) mod token_request;

use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use hyper::HeaderMap;
use jiff::Timestamp;
use muster_store::{Change, Revision};
use serde_json::Value;

pub(crate) use self::impersonate::impersonated;
use self::node_addresses::NodeAddresses;
pub(crate) use self::reauthorize::Reauthorization;
use self::revoked::Revoked;
pub use self::revoked::revoked_subject_key;
use self::roles::{RbacObject, Roles};
pub(crate) use self::token::{Claims, ISSUER, Ref, Tokens, discovery as issuer};
use crate::error::ApiError;
use crate::headers;
use crate::kinds::Kind;
use crate::request::{AccessTarget, MASTERS, RequestAttributes, User};
use crate::selector::Selector;
use crate::storage::ObjectStorage;
use crate::unstructured::{self, str_at};

pub(crate) const RBAC_OBJECTS: [(&str, RbacObject); 4] = [
    ("roles", RbacObject::Role),
    ("clusterroles", RbacObject::Role),
    ("rolebindings", RbacObject::Binding),
    ("clusterrolebindings", RbacObject::Binding),
];

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// Authentication and authorization: reads credentials and roles from the store.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) storage: Arc<ObjectStorage>,
    /// As of a revision, once there was one to look at. Before each decision they are brought up to the store's, so a
    /// change acts at once.
    roles: RwLock<(Option<Revision>, Roles)>,
    pub(crate) tokens: Tokens,
    revoked: Revoked,
    addresses: NodeAddresses,
}

/// Why a request is allowed.
#[derive(Debug)]
pub(crate) enum Grant {
    Masters,
    Node,
    Role(roles::RoleGrant),
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masters | Self::Node => Ok(()),
            Self::Role(it) => it.fmt(f),
        }
    }
}

/// Why the user may do this; a refusal if they may not.
pub(crate) fn allow(access: &Access, user: &User, attributes: &RequestAttributes) -> Result<Grant, ApiError> {
    authorize(access, user, attributes).map_err(|why| denied(user, attributes, &why))
}

/// The same for one who did not say who they are: they may see what is public, and nothing that is stored, whatever roles
/// say. They are asked who they are before they are told no.
pub(crate) fn allow_stranger(
    access: &Access,
    user: &User,
    attributes: &RequestAttributes,
) -> Result<Grant, ApiError> {
    match attributes.on {
        AccessTarget::Path(_) => authorize(access, user, attributes).map_err(|_| ApiError::unauthorized()),
        AccessTarget::Resource(_) => Err(ApiError::unauthorized()),
    }
}

/// Rule: a certificate of our own authority says who asks, or else a bearer token does. Whoever shows neither is anonymous,
/// and a false, expired or revoked credential is refused.
pub(crate) fn authenticate(
    access: &Access,
    peer: Option<&User>,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<User, ApiError> {
    headers::check(headers)?;
    if let Some(user) = peer {
        let certificate = user.client_certificate.as_ref();
        if certificate.is_some_and(|it| revoked::has_revoked(access, &user.name, it)) {
            return Err(ApiError::unauthorized());
        }
        return Ok(user.clone());
    }
    let Some(token) = headers::bearer(headers)? else { return Ok(User::anonymous()) };
    user_of_token(access, token, &[token::ISSUER], now).map_err(|_| ApiError::unauthorized())
}

/// The error says what is wrong with it, but never what it is.
fn user_of_token(access: &Access, token: &str, audiences: &[&str], now: Timestamp) -> Result<User, String> {
    if let Some(claims) = access.tokens.read(token) {
        let user = claims.user(access, audiences, now)?;
        let is_bound_to_revoked = |it: &Ref| revoked::contains(access, &revoked::secret_key(&it.uid));
        if revoked::contains(access, &revoked::token_key(&claims.id))
            || claims.secret.as_ref().is_some_and(is_bound_to_revoked)
        {
            return Err("the token has been revoked".to_owned());
        }
        return Ok(user);
    }
    bootstrap_token::user(access, token, now).ok_or_else(|| "invalid bearer token".to_owned())
}

/// Rule: members of `system:masters` may do anything; a node what concerns it; all others, and nodes too, what roles grant.
/// `Err` says more than that nothing grants it, where there is more to say.
pub(crate) fn authorize(
    access: &Access,
    user: &User,
    attributes: &RequestAttributes,
) -> Result<Grant, String> {
    if user.is_in(MASTERS) {
        return Ok(Grant::Masters);
    }
    let by_node = match user.node() {
        Some(name) => match node::grant(access, name, attributes) {
            Ok(()) => return Ok(Grant::Node),
            Err(why) => why,
        },
        None => String::new(),
    };
    match access.with(|roles| roles.grant(user, attributes)) {
        Ok(grant) => Ok(Grant::Role(grant)),
        Err(why) => {
            let both = [by_node, why].into_iter().filter(|it| !it.is_empty());
            Err(both.collect::<Vec<_>>().join(", "))
        }
    }
}

impl Access {
    pub(crate) fn token_keys(&self) -> Value {
        self.tokens.keys()
    }

    pub(crate) fn new(storage: Arc<ObjectStorage>, tokens: Tokens) -> Self {
        Self {
            storage,
            roles: RwLock::default(),
            tokens,
            revoked: Revoked::default(),
            addresses: NodeAddresses::default(),
        }
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&Roles) -> T) -> T {
        let known = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        if known.0.is_some_and(|seen| kinds().all(|(kind, _)| self.storage.last_commit_to(kind) <= seen)) {
            return read(&known.1);
        }
        drop(known);
        let mut known = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        catch_up(&self.storage, &mut known);
        read(&known.1)
    }
}

fn kinds() -> impl Iterator<Item = (&'static Kind, RbacObject)> {
    static KINDS: LazyLock<Vec<(&Kind, RbacObject)>> = LazyLock::new(|| {
        let row = |plural| Kind::builtin(RBAC, "v1", plural);
        RBAC_OBJECTS.iter().map(|(plural, held)| (row(plural), *held)).collect()
    });
    KINDS.iter().copied()
}

fn catch_up(storage: &ObjectStorage, (seen, roles): &mut (Option<Revision>, Roles)) {
    // What is committed meanwhile is met again as an event, and ends in the same state.
    let head = storage.revision();
    let after = seen.replace(head);
    let events = |(kind, held): (&Kind, RbacObject)| {
        let (events, _) = storage.since(&kind.prefix(None), after?).ok()?;
        Some(events.into_iter().map(move |it| (held, it)))
    };
    let Some(events) = kinds().map(events).collect::<Option<Vec<_>>>() else {
        // Nothing is known, or the history does not reach back to what is.
        *roles = read_all(storage);
        return;
    };
    for (held, event) in events.into_iter().flatten() {
        let mut key = event.key.splitn(3, '/').skip(1);
        let (namespace, name) = (key.next().unwrap_or_default(), key.next().unwrap_or_default());
        let object = match &event.change {
            Change::Put { now, .. } => Some(unstructured::parse(&now.value)),
            Change::Delete { .. } => None,
        };
        roles.apply(held, namespace, name, object.as_ref());
    }
}

fn read_all(storage: &ObjectStorage) -> Roles {
    let mut roles = Roles::default();
    for (kind, held) in kinds() {
        let (objects, _) = storage.list(kind, None, &Selector::default());
        for object in objects.iter().map(|it| unstructured::parse(it)) {
            let [namespace, name] = ["namespace", "name"].map(|it| str_at(&object["metadata"], it));
            roles.apply(held, namespace, name, Some(&object));
        }
    }
    roles
}

/// The refusal of a request that nothing grants.
pub(crate) fn denied(user: &User, attributes: &RequestAttributes, why: &str) -> ApiError {
    // Upstream escapes what a browser would take for HTML.
    let said = format!("User {:?} {attributes}", user.name);
    let said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let said = if why.is_empty() { said } else { format!("{said}: {why}") };
    match &attributes.on {
        AccessTarget::Path(_) => ApiError::not_granted("", "", "", &said),
        AccessTarget::Resource(it) => ApiError::not_granted(&it.group, &it.plural, &it.name, &said),
    }
}

#[cfg(test)]
mod tests;
