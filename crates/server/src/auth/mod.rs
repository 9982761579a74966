//! Who asks, and whether they may.
//!
//! A request is authenticated (`certificate`, …), may speak for another (`impersonate`), and is then put in the words of
//! the rules (`deed`). What a user may do is what the bindings and roles in the store grant (`roles`, `rule`); a node has
//! rights of its own (`node`). `defaults` are the roles that every cluster has.

mod addresses;
pub(crate) mod answer;
mod bootstrap;
mod certificate;
mod csr;
mod deed;
mod defaults;
mod escalate;
mod impersonate;
mod issued;
mod node;
mod reauthorize;
mod restrict;
mod review;
mod revoked;
mod roles;
mod rule;
mod standing;
mod token;
mod token_request;
mod user;

use std::fmt;
use std::sync::{LazyLock, PoisonError, RwLock};

use hyper::HeaderMap;
use jiff::Timestamp;
use muster_store::{Change, Revision};
use serde_json::Value;

use self::addresses::NodeAddresses;
pub(crate) use self::certificate::{Peer, serial_of, user as named_by};
pub(crate) use self::csr::{LIFE as CERTIFICATE_LIFE, keep as keep_signing_requests};
pub(crate) use self::deed::{Deed, On, Resource};
pub(crate) use self::defaults::{
    CONTROLLER, DISRUPTION, ENDPOINTS, GARBAGE_COLLECTOR, NODE_LIFECYCLE, SCHEDULER, SIMULATED_NODES,
};
pub(crate) use self::impersonate::impersonated;
pub(crate) use self::issued::keep as keep_certificate_records;
pub(crate) use self::reauthorize::Reauthorization;
use self::revoked::Revoked;
pub use self::revoked::revoked_subject_key;
use self::roles::{Held, Roles};
pub(crate) use self::standing::make as make_default_roles;
use self::token::Tokens;
pub(crate) use self::token::{Claims, ISSUER, Ref, discovery as issuer};
pub(crate) use self::user::{AUTHENTICATED, MASTERS, User, account_of};
use crate::admission::{Attempt, Operation};
use crate::headers;
use crate::kinds::Kind;
use crate::object::{self, str_at};
use crate::pki::{Pki, PkiError};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::Part;
use crate::selector::Selector;

/// Under this key of a user's extras stands which certificate or token showed who they are.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

const HELD: [(&str, Held); 4] = [
    ("roles", Held::Role),
    ("clusterroles", Held::Role),
    ("rolebindings", Held::Binding),
    ("clusterrolebindings", Held::Binding),
];

const RBAC: &str = "rbac.authorization.k8s.io";

/// What decides who may do what: the roles, and the key of the tokens.
#[derive(Debug)]
pub(crate) struct Access {
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
    Role(roles::Grant),
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
pub(crate) fn allow(registry: &Registry, user: &User, deed: &Deed) -> Result<Grant, Refusal> {
    authorize(registry, user, deed).map_err(|why| denied(user, deed, &why))
}

/// The same for one who did not say who they are: they may see what is public, and nothing that is stored, whatever roles
/// say. They are asked who they are before they are told no.
pub(crate) fn allow_stranger(registry: &Registry, user: &User, deed: &Deed) -> Result<Grant, Refusal> {
    match deed.on {
        On::Path(_) => authorize(registry, user, deed).map_err(|_| Refusal::unauthorized()),
        On::Resource(_) => Err(Refusal::unauthorized()),
    }
}

/// Rule: a certificate of our own authority says who asks, or else a bearer token does. Whoever shows neither is anonymous,
/// and a false, expired or revoked credential is refused.
pub(crate) fn authenticate(
    registry: &Registry,
    peer: Option<&User>,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<User, Refusal> {
    headers::check(headers)?;
    if let Some(user) = peer {
        let certificate = user.client_certificate.as_ref();
        if certificate.is_some_and(|it| revoked::has_revoked(registry, &user.name, it)) {
            return Err(Refusal::unauthorized());
        }
        return Ok(user.clone());
    }
    let Some(token) = headers::bearer(headers)? else { return Ok(User::anonymous()) };
    user_of_token(registry, token, &[token::ISSUER], now).map_err(|_| Refusal::unauthorized())
}

/// The error says what is wrong with it, but never what it is.
fn user_of_token(
    registry: &Registry,
    token: &str,
    audiences: &[&str],
    now: Timestamp,
) -> Result<User, String> {
    if let Some(claims) = registry.access.tokens.read(token) {
        let user = claims.user(registry, audiences, now)?;
        let is_bound_to_revoked = |it: &Ref| revoked::contains(registry, &revoked::secret_key(&it.uid));
        if revoked::contains(registry, &revoked::token_key(&claims.id))
            || claims.secret.as_ref().is_some_and(is_bound_to_revoked)
        {
            return Err("the token has been revoked".to_owned());
        }
        return Ok(user);
    }
    bootstrap::user(registry, token, now).ok_or_else(|| "invalid bearer token".to_owned())
}

/// Rule: members of `system:masters` may do anything; a node what concerns it; all others, and nodes too, what roles grant.
/// `Err` says more than that nothing grants it, where there is more to say.
pub(crate) fn authorize(registry: &Registry, user: &User, deed: &Deed) -> Result<Grant, String> {
    if user.is_in(user::MASTERS) {
        return Ok(Grant::Masters);
    }
    let by_node = match user.node() {
        Some(name) => match node::grant(registry, name, deed) {
            Ok(()) => return Ok(Grant::Node),
            Err(why) => why,
        },
        None => String::new(),
    };
    match registry.access.with(registry, |roles| roles.grant(user, deed)) {
        Ok(grant) => Ok(Grant::Role(grant)),
        Err(why) => {
            let both = [by_node, why].into_iter().filter(|it| !it.is_empty());
            Err(both.collect::<Vec<_>>().join(", "))
        }
    }
}

/// With a key of its own, which is gone with it.
impl Default for Access {
    fn default() -> Self {
        let key = rcgen::KeyPair::generate().expect("there is randomness");
        let tokens = Tokens::new(&key).expect("the key was just made for this");
        Self {
            roles: RwLock::default(),
            tokens,
            revoked: Revoked::default(),
            addresses: NodeAddresses::default(),
        }
    }
}

impl Access {
    pub(crate) fn token_keys(&self) -> Value {
        self.tokens.keys()
    }

    pub(crate) fn new(pki: &Pki) -> Result<Self, PkiError> {
        let tokens = Tokens::new(pki.tokens_key()).map_err(|source| pki.bad_token_key(source))?;
        Ok(Self {
            roles: RwLock::default(),
            tokens,
            revoked: Revoked::default(),
            addresses: NodeAddresses::default(),
        })
    }

    fn with<T>(&self, registry: &Registry, read: impl FnOnce(&Roles) -> T) -> T {
        let known = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        if known.0.is_some_and(|seen| kinds().all(|(kind, _)| registry.head_of(kind) <= seen)) {
            return read(&known.1);
        }
        drop(known);
        let mut known = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        catch_up(registry, &mut known);
        read(&known.1)
    }
}

fn kinds() -> impl Iterator<Item = (&'static Kind, Held)> {
    static KINDS: LazyLock<Vec<(&Kind, Held)>> = LazyLock::new(|| {
        let row = |plural| Kind::find(RBAC, "v1", plural).expect("it is in the table");
        HELD.iter().map(|(plural, held)| (row(plural), *held)).collect()
    });
    KINDS.iter().copied()
}

fn catch_up(registry: &Registry, (seen, roles): &mut (Option<Revision>, Roles)) {
    // What is committed meanwhile is met again as an event, and ends in the same state.
    let head = registry.revision();
    let after = seen.replace(head);
    let events = |(kind, held): (&Kind, Held)| {
        let (events, _) = registry.since(&kind.prefix(None), after?).ok()?;
        Some(events.into_iter().map(move |it| (held, it)))
    };
    let Some(events) = kinds().map(events).collect::<Option<Vec<_>>>() else {
        // Nothing is known, or the history does not reach back to what is.
        *roles = read_all(registry);
        return;
    };
    for (held, event) in events.into_iter().flatten() {
        let mut key = event.key.splitn(3, '/').skip(1);
        let (namespace, name) = (key.next().unwrap_or_default(), key.next().unwrap_or_default());
        let object = match &event.change {
            Change::Put { now, .. } => Some(object::parse(&now.value)),
            Change::Delete { .. } => None,
        };
        roles.apply(held, namespace, name, object.as_ref());
    }
}

fn read_all(registry: &Registry) -> Roles {
    let mut roles = Roles::default();
    for (kind, held) in kinds() {
        let (objects, _) = registry.list(kind, None, &Selector::default());
        for object in objects.iter().map(|it| object::parse(it)) {
            let [namespace, name] = ["namespace", "name"].map(|it| str_at(&object["metadata"], it));
            roles.apply(held, namespace, name, Some(&object));
        }
    }
    roles
}

/// What the server says of a write to a part that only it knows.
pub(crate) fn complete_write(now: Timestamp, attempt: Attempt<'_>, new: &mut Value) {
    if let Operation::Update { old } = attempt.operation
        && attempt.target.kind.group == csr::GROUP
        && attempt.target.part != Part::Whole
    {
        csr::date_conditions(now, new, old);
    }
    // The request may have waited since it came, and certificates been issued meanwhile.
    revoked::complete(now.max(Timestamp::now()), attempt.target, new);
}

/// Whether the user may write this, by what it says: rights that they give away, certificates that they approve, and what
/// is a node's own. `new` is null for a delete.
pub(crate) fn check_write(
    registry: &Registry,
    user: &User,
    attempt: Attempt<'_>,
    new: &Value,
) -> Result<(), Refusal> {
    let target = attempt.target;
    let part = target.kind.name_of(target.part);
    let (write, old) = match attempt.operation {
        Operation::Create => (restrict::Write::Create { new }, None),
        Operation::Update { old } => (restrict::Write::Update { new, old }, Some(old)),
        Operation::Delete => (restrict::Write::Delete, None),
    };
    restrict::check(registry, user, target, part, write)?;
    revoked::check(user, target, new)?;
    if matches!(attempt.operation, Operation::Delete) {
        return Ok(());
    }
    match target.kind.group {
        RBAC => escalate::check(registry, user, target, new, old),
        csr::GROUP => csr::check(registry, user, target, part, new, old),
        _ => Ok(()),
    }
}

/// The refusal of a request that nothing grants.
pub(crate) fn denied(user: &User, deed: &Deed, why: &str) -> Refusal {
    // Upstream escapes what a browser would take for HTML.
    let said = format!("User {:?} {deed}", user.name);
    let said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let said = if why.is_empty() { said } else { format!("{said}: {why}") };
    match &deed.on {
        On::Path(_) => Refusal::not_granted("", "", "", &said),
        On::Resource(it) => Refusal::not_granted(&it.group, &it.plural, &it.name, &said),
    }
}

#[cfg(test)]
mod tests;
