//! Asking as someone else: `kubectl --as`.

use hyper::HeaderMap;

use super::Access;
use super::{authorize, denied};
use crate::error::ApiError;
use crate::headers::{self, Impersonation};
use crate::request::{
    AUTHENTICATED, RequestAttributes, ResourceAttributes, UNAUTHENTICATED, User, account_groups, account_of,
};

const AUTHENTICATION: &str = "authentication.k8s.io";

/// Rule: whoever asks as someone else needs the verb `impersonate` on the user or service account, and on each group,
/// UID and extra value they take on.
/// Upstream: `WithImpersonation`. `None` if the request is made in one's own name.
pub(crate) fn impersonated(
    access: &Access,
    user: &User,
    headers: &HeaderMap,
) -> Result<Option<User>, ApiError> {
    let Some(Impersonation { user: wanted, uid, groups, extra }) = headers::impersonation(headers)? else {
        return Ok(None);
    };
    let mut other = User::new(wanted, groups);
    if let Some((namespace, _)) = account_of(&other.name)
        && other.groups.is_empty()
    {
        other.groups = account_groups(namespace);
    }
    for (key, value) in extra {
        other.extra.entry(key).or_default().push(value);
    }
    other.uid = uid;
    check(access, user, &other)?;
    // Explicit groups replace all others except system:authenticated or system:unauthenticated.
    let said = other.is_in(UNAUTHENTICATED) || (!other.is_anonymous() && other.is_in(AUTHENTICATED));
    if !said {
        let group = if other.is_anonymous() { UNAUTHENTICATED } else { AUTHENTICATED };
        other.groups.push(group.to_owned());
    }
    Ok(Some(other))
}

/// Whether the user may act as the other. The groups that every service account is in need no right of their own.
fn check(access: &Access, user: &User, other: &User) -> Result<(), ApiError> {
    let may = |resource: ResourceAttributes| {
        let attributes = RequestAttributes::resource("impersonate", resource);
        match authorize(access, user, &attributes) {
            Ok(_) => Ok(()),
            Err(why) => Err(denied(user, &attributes, &why)),
        }
    };
    let on = |group: &str, plural: &str, name: &str| ResourceAttributes {
        group: group.to_owned(),
        plural: plural.to_owned(),
        name: name.to_owned(),
        ..ResourceAttributes::default()
    };
    let mut own_groups = Vec::new();
    match account_of(&other.name) {
        Some((namespace, name)) => {
            may(ResourceAttributes { namespace: namespace.to_owned(), ..on("", "serviceaccounts", name) })?;
            own_groups = account_groups(namespace);
        }
        None => may(on("", "users", &other.name))?,
    }
    let is_default = other.groups == own_groups;
    for group in other.groups.iter().filter(|_| !is_default) {
        may(on("", "groups", group))?;
    }
    for (key, value) in other.extra.iter().flat_map(|(key, values)| values.iter().map(move |it| (key, it))) {
        may(ResourceAttributes { subresource: key.clone(), ..on(AUTHENTICATION, "userextras", value) })?;
    }
    if !other.uid.is_empty() {
        may(on(AUTHENTICATION, "uids", &other.uid))?;
    }
    Ok(())
}
