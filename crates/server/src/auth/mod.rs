//! Who asks, and whether they may.
//!
//! A request is authenticated (`certificate`, …), may speak for another (`impersonate`), and is then put in the words of
//! the rules (`deed`). What a user may do is what the bindings and roles in the store grant (`roles`, `rule`); a node has
//! rights of its own (`node`). `defaults` are the roles that every cluster has.

mod deed;
mod certificate;
mod defaults;
mod impersonate;
mod node;
mod roles;
mod rule;
mod user;

use std::fmt;
use std::sync::{PoisonError, RwLock};

use hyper::HeaderMap;
use muster_store::{Change, Revision};

pub(crate) use self::deed::{Deed, On, Resource};
use self::roles::{Held, Roles};
pub(crate) use self::user::User;
use crate::kinds::Kind;
use crate::object;
use crate::refusal::Refusal;
use crate::registry::Registry;

/// Under this key of a user's extras stands which certificate or token showed who they are.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

const HELD: [(&str, Held); 4] = [
    ("roles", Held::Role),
    ("clusterroles", Held::Role),
    ("rolebindings", Held::Binding),
    ("clusterrolebindings", Held::Binding),
];

/// The roles as of a revision. Before each decision they are brought up to the store's, so a change acts at once.
#[derive(Debug, Default)]
pub(crate) struct Access {
    known: RwLock<(Revision, Roles)>,
}

/// Why a request is allowed.
#[derive(Debug)]
pub(crate) enum Grant {
    /// Health and version say nothing of what the cluster holds.
    Public,
    Masters,
    Node,
    Role(roles::Grant),
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public | Self::Masters | Self::Node => Ok(()),
            Self::Role(it) => it.fmt(f),
        }
    }
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

impl Access {
    fn with<T>(&self, registry: &Registry, read: impl FnOnce(&Roles) -> T) -> T {
        let head = registry.revision();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if head <= known.0 {
            return read(&known.1);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        catch_up(registry, &mut known, head);
        read(&known.1)
    }
}

fn catch_up(registry: &Registry, (seen, roles): &mut (Revision, Roles), head: Revision) {
    for (plural, held) in HELD {
        let Some(kind) = Kind::find("rbac.authorization.k8s.io", "v1", plural) else { continue };
        match registry.since(&kind.prefix(None), *seen) {
            Ok((events, _)) => {
                for event in events {
                    let mut key = event.key.splitn(3, '/').skip(1);
                    let (namespace, name) = (key.next().unwrap_or_default(), key.next().unwrap_or_default());
                    let object = match &event.change {
                        Change::Put { now, .. } => Some(object::parse(&now.value)),
                        Change::Delete { .. } => None,
                    };
                    roles.apply(held, namespace, name, object.as_ref());
                }
            }
            // The history does not reach back to what is known: all of it is read anew, once.
            Err(_) => {
                *roles = Roles::default();
                *seen = 0;
                break;
            }
        }
    }
    *seen = head;
}

/// The refusal of a request that nothing grants.
pub(crate) fn denied(user: &User, deed: &Deed, why: &str) -> Refusal {
    // Upstream escapes what a browser would take for HTML.
    let said = format!("User {:?} {deed}", user.name);
    let said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let said = if why.is_empty() { said } else { format!("{said}: {why}") };
    match &deed.on {
        On::Path(_) => Refusal::forbidden_path(&said),
        On::Resource(it) => Refusal::forbidden_resource(&it.group, &it.plural, &it.name, &said),
    }
}
