//! Authentication and authorization.
//!
//! A request is authenticated by client certificate or bearer token (`service_account_token`, `bootstrap_token`),
//! unless the credential is revoked (`revocation`). It may impersonate another user (`impersonation`). It is then
//! authorized by the RBAC objects in the store (`roles`, `policy_rule`) and, for nodes, by the node authorizer
//! (`node_authorizer`). A long-running request is checked again at intervals (`reauthorization`).
//!
//! `default_roles` has the roles that every cluster has. `token_request` issues service account tokens. `reviews`
//! answers TokenReviews and access reviews. `node_addresses` is an index of the addresses of Nodes, against which
//! signing requests are checked.

/// Authenticates bootstrap tokens, with which new nodes join.
pub(crate) mod bootstrap_token;
/// The ClusterRoles and ClusterRoleBindings that every cluster has.
pub(crate) mod default_roles;
/// Resolves and authorizes the `Impersonate-…` headers.
mod impersonation;
/// Index of the IP addresses of Nodes.
pub(crate) mod node_addresses;
/// Authorizes the requests of nodes, many of them only for objects related to the node.
pub(crate) mod node_authorizer;
/// RBAC policy rules, and the requests that they allow.
pub(crate) mod policy_rule;
/// Authorizes long-running requests again at intervals.
mod reauthorization;
/// Answers TokenReviews and access reviews.
pub(crate) mod reviews;
/// The list of revoked credentials.
pub(crate) mod revocation;
/// The RBAC roles and bindings in the store.
pub(crate) mod roles;
/// Signs and verifies service account tokens.
mod service_account_token;
/// Issues service account tokens.
pub(crate) mod token_request;

use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use hyper::HeaderMap;
use jiff::Timestamp;
use muster_api::well_known::{API_GROUP_RBAC, USER_GROUP_MASTERS};
use muster_store::{KeyChange, Revision};
use serde_json::Value;

pub(crate) use self::impersonation::impersonated_user;
use self::node_addresses::NodeAddresses;
pub(crate) use self::reauthorization::Reauthorization;
use self::revocation::RevocationListCache;
pub use self::revocation::revoked_subject_key;
use self::roles::{RbacIndex, RbacObjectType};
pub(crate) use self::service_account_token::{
    BoundObjectRef, TOKEN_ISSUER, TokenClaims, TokenSigner, openid_configuration,
};
use crate::error::ApiError;
use crate::headers;
use crate::kinds::Kind;
use crate::request::{AccessTarget, RequestAttributes, User};
use crate::selector::ObjectSelector;
use crate::storage::ObjectStorage;
use crate::unstructured::{self, str_at};

/// Plural names of the four RBAC resources, and whether each contains roles or bindings.
pub(crate) const RBAC_RESOURCES: [(&str, RbacObjectType); 4] = [
    ("roles", RbacObjectType::Role),
    ("clusterroles", RbacObjectType::Role),
    ("rolebindings", RbacObjectType::Binding),
    ("clusterrolebindings", RbacObjectType::Binding),
];

/// Authenticates and authorizes requests. Reads credentials and RBAC objects from the store.
#[derive(Debug)]
pub(crate) struct AccessControl {
    pub(crate) storage: Arc<ObjectStorage>,
    /// The RBAC objects, and the revision of the store up to which they are synced (`None` before the first sync). They
    /// are synced before each decision, so that changes take effect immediately.
    roles: RwLock<(Option<Revision>, RbacIndex)>,
    /// Signs and verifies service account tokens.
    pub(crate) tokens: TokenSigner,
    /// The revocation list, parsed from the ConfigMap `muster-revoked-credentials`.
    revocations: RevocationListCache,
    /// Index of the addresses of all Nodes.
    node_addresses: NodeAddresses,
}

/// The reason why a request is allowed.
#[derive(Debug)]
pub(crate) enum AuthorizationGrant {
    /// The user is a member of `system:masters`.
    Masters,
    /// The user is a node, and the node authorizer allows the request.
    Node,
    /// An RBAC binding allows the request.
    Role(roles::RoleGrant),
}

impl fmt::Display for AuthorizationGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masters | Self::Node => Ok(()),
            Self::Role(it) => it.fmt(f),
        }
    }
}

/// Authorizes a request. Returns the grant that allows the request, or a 403 error.
pub(crate) fn require_authorized(
    access: &AccessControl,
    user: &User,
    attributes: &RequestAttributes,
) -> Result<AuthorizationGrant, ApiError> {
    authorize(access, user, attributes).map_err(|why| forbidden_error(user, attributes, &why))
}

/// Authorizes an anonymous request. Returns the grant that allows the request. Otherwise returns a 401 error and not a
/// 403 error, so that the client authenticates. Requests for resources are never allowed, whatever RBAC grants.
pub(crate) fn require_authorized_anonymous(
    access: &AccessControl,
    user: &User,
    attributes: &RequestAttributes,
) -> Result<AuthorizationGrant, ApiError> {
    match attributes.target {
        AccessTarget::Path(_) => authorize(access, user, attributes).map_err(|_| ApiError::unauthorized()),
        AccessTarget::Resource(_) => Err(ApiError::unauthorized()),
    }
}

/// Returns the user of a request. `peer` is the user of the client certificate or of the in-process client. It is
/// `None` for a network client without a valid certificate.
///
/// Rule: a client certificate of the cluster's CA takes precedence over a bearer token. A request with neither is
/// anonymous. An invalid or expired token and a revoked credential are refused with 401. A client certificate that has
/// expired since the TLS handshake is ignored.
pub(crate) fn authenticate(
    access: &AccessControl,
    peer: Option<&User>,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<User, ApiError> {
    headers::check_utf8(headers)?;
    if let Some(user) = peer {
        let certificate = user.client_certificate.as_ref();
        if certificate.is_some_and(|it| revocation::is_certificate_revoked(access, &user.name, it)) {
            return Err(ApiError::unauthorized());
        }
        return Ok(user.clone());
    }
    let Some(token) = headers::bearer_token(headers)? else { return Ok(User::anonymous()) };
    authenticate_token(access, token, &[service_account_token::TOKEN_ISSUER], now)
        .map_err(|_| ApiError::unauthorized())
}

/// Authenticates a bearer token for one of the audiences and returns its user. The error describes the problem and
/// never contains the token.
fn authenticate_token(
    access: &AccessControl,
    token: &str,
    audiences: &[&str],
    now: Timestamp,
) -> Result<User, String> {
    if let Some(claims) = access.tokens.verified_claims(token) {
        let user = claims.authenticated_user(access, audiences, now)?;
        let is_bound_to_revoked = |it: &BoundObjectRef| {
            revocation::is_revoked(access, &revocation::revocation_key_for_secret(&it.uid))
        };
        if revocation::is_revoked(access, &revocation::revocation_key_for_token(&claims.id))
            || claims.secret.as_ref().is_some_and(is_bound_to_revoked)
        {
            return Err("the token has been revoked".to_owned());
        }
        return Ok(user);
    }
    bootstrap_token::bootstrap_token_user(access, token, now).ok_or_else(|| "invalid bearer token".to_owned())
}

/// Authorizes a request. Returns the grant that allows the request, or an error message.
///
/// Rule: members of `system:masters` may do anything. Nodes have the permissions that the node authorizer grants. All
/// users, including nodes, have the permissions of their RBAC roles.
///
/// The error message is added to the message of the 403 response. It may be empty.
pub(crate) fn authorize(
    access: &AccessControl,
    user: &User,
    attributes: &RequestAttributes,
) -> Result<AuthorizationGrant, String> {
    if user.is_in_group(USER_GROUP_MASTERS) {
        return Ok(AuthorizationGrant::Masters);
    }
    let node_reason = match user.node_name() {
        Some(name) => match node_authorizer::authorize_node(access, name, attributes) {
            Ok(()) => return Ok(AuthorizationGrant::Node),
            Err(why) => why,
        },
        None => String::new(),
    };
    match access.with_synced_rbac_index(|roles| roles.authorize(user, attributes)) {
        Ok(grant) => Ok(AuthorizationGrant::Role(grant)),
        Err(why) => {
            let both = [node_reason, why].into_iter().filter(|it| !it.is_empty());
            Err(both.collect::<Vec<_>>().join(", "))
        }
    }
}

impl AccessControl {
    /// Returns the public keys with which service account tokens are verified, as a JSON Web Key Set.
    pub(crate) fn token_keys(&self) -> Value {
        self.tokens.json_web_key_set()
    }

    pub(crate) fn new(storage: Arc<ObjectStorage>, tokens: TokenSigner) -> Self {
        Self {
            storage,
            roles: RwLock::default(),
            tokens,
            revocations: RevocationListCache::default(),
            node_addresses: NodeAddresses::default(),
        }
    }

    /// Calls `read` with the current RBAC roles and bindings, and returns its result. Syncs the roles and bindings with
    /// the store first if one of them has changed.
    pub(crate) fn with_synced_rbac_index<T>(&self, read: impl FnOnce(&RbacIndex) -> T) -> T {
        let synced = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        if synced.0.is_some_and(|seen| rbac_kinds().all(|(kind, _)| self.storage.kind_revision(kind) <= seen))
        {
            return read(&synced.1);
        }
        drop(synced);
        let mut synced = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        sync_roles(&self.storage, &mut synced);
        read(&synced.1)
    }
}

/// Returns the four RBAC kinds, and whether each contains roles or bindings.
fn rbac_kinds() -> impl Iterator<Item = (&'static Kind, RbacObjectType)> {
    /// The four RBAC kinds, looked up on first use.
    static RBAC_KINDS: LazyLock<Vec<(&Kind, RbacObjectType)>> = LazyLock::new(|| {
        let kind = |plural| Kind::builtin(API_GROUP_RBAC, "v1", plural);
        RBAC_RESOURCES.iter().map(|(plural, object)| (kind(plural), *object)).collect()
    });
    RBAC_KINDS.iter().copied()
}

/// Applies the changes of RBAC roles and bindings in the store since the last sync. Reads all roles and bindings on the
/// first sync, and if the store no longer has these changes.
fn sync_roles(storage: &ObjectStorage, (seen, roles): &mut (Option<Revision>, RbacIndex)) {
    // A commit during the sync is applied again by the next one, with the same result.
    let head = storage.revision();
    let after = seen.replace(head);
    let events = |(kind, object_type): (&Kind, RbacObjectType)| {
        let (events, _) = storage.events_since(&kind.store_key_prefix(None), after?).ok()?;
        Some(events.into_iter().map(move |it| (object_type, it)))
    };
    let Some(events) = rbac_kinds().map(events).collect::<Option<Vec<_>>>() else {
        // First read, or the history no longer reaches back to the synced revision.
        *roles = read_roles(storage);
        return;
    };
    for (object_type, event) in events.into_iter().flatten() {
        let mut key = event.key.splitn(3, '/').skip(1);
        let (namespace, name) = (key.next().unwrap_or_default(), key.next().unwrap_or_default());
        let object = match &event.change {
            KeyChange::Put { now, .. } => Some(unstructured::parse_stored(&now.value)),
            KeyChange::Delete { .. } => None,
        };
        roles.apply_change(object_type, namespace, name, object.as_ref());
    }
}

/// Builds the index from all stored RBAC roles and bindings.
fn read_roles(storage: &ObjectStorage) -> RbacIndex {
    let mut roles = RbacIndex::default();
    for (kind, object_type) in rbac_kinds() {
        let (objects, _) = storage.list(kind, None, &ObjectSelector::default());
        for object in objects.iter().map(|it| unstructured::parse_stored(it)) {
            let [namespace, name] = ["namespace", "name"].map(|it| str_at(&object["metadata"], it));
            roles.apply_change(object_type, namespace, name, Some(&object));
        }
    }
    roles
}

/// Returns the 403 error for a request that is not allowed. `why` is added to the message unless it is empty.
pub(crate) fn forbidden_error(user: &User, attributes: &RequestAttributes, why: &str) -> ApiError {
    // Upstream escapes HTML characters.
    let message = format!("User {:?} {attributes}", user.name);
    let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let message = if why.is_empty() { message } else { format!("{message}: {why}") };
    match &attributes.target {
        AccessTarget::Path(_) => ApiError::not_authorized("", "", "", &message),
        AccessTarget::Resource(it) => ApiError::not_authorized(&it.group, &it.plural, &it.name, &message),
    }
}

#[cfg(test)]
mod tests;
