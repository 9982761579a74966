//! Who asks, and whether they may.

use std::collections::BTreeMap;

use hyper::HeaderMap;

use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::Route;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    const ANONYMOUS: &str = "system:anonymous";

    pub(crate) fn anonymous() -> Self {
        Self {
            name: Self::ANONYMOUS.into(),
            groups: vec!["system:unauthenticated".into()],
            ..Self::default()
        }
    }

    /// The server itself.
    pub(crate) fn server() -> Self {
        Self { name: "system:apiserver".into(), groups: vec!["system:masters".into()], ..Self::default() }
    }

    /// A certificate of our own CA is an administrator's: there is no one else yet.
    pub(crate) fn of_certificate(_der: &[u8]) -> Option<Self> {
        Some(Self {
            name: "kubernetes-admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
            ..Self::default()
        })
    }
}

/// `peer` is who the connection's certificate names.
pub(crate) fn authenticate(peer: Option<&User>, _headers: &HeaderMap) -> Result<User, Refusal> {
    Ok(peer.cloned().unwrap_or_else(User::anonymous))
}

/// `route` is missing where the path means nothing.
pub(crate) fn authorize(
    _registry: &Registry,
    user: &User,
    _verb: &str,
    route: Option<&Route>,
    _path: &str,
) -> Result<(), Refusal> {
    if user.name == User::ANONYMOUS && !route.is_some_and(Route::is_public) {
        return Err(Refusal::unauthorized());
    }
    Ok(())
}
