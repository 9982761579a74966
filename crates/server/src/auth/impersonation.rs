//! User impersonation: `kubectl --as`.

use hyper::HeaderMap;
use muster_api::well_known::API_GROUP_AUTHENTICATION;

use super::AccessControl;
use super::{authorize, forbidden_error};
use crate::error::ApiError;
use crate::headers::{self, Impersonation};
use crate::request::{
    AUTHENTICATED_GROUP, RequestAttributes, ResourceAttributes, UNAUTHENTICATED_GROUP, User,
    parse_service_account, service_account_groups,
};

/// Returns the user that the `Impersonate-…` headers name, or `None` if the request has no such headers. Returns a 403
/// error if `user` may not impersonate that user, and a 400 error if the headers are invalid.
///
/// Rule: impersonation requires the verb `impersonate` on the user or service account, and on each group, UID and extra
/// value.
/// Upstream: `WithImpersonation`.
pub(crate) fn impersonated_user(
    access: &AccessControl,
    user: &User,
    headers: &HeaderMap,
) -> Result<Option<User>, ApiError> {
    let Some(Impersonation { user: name, uid, groups, extra }) = headers::parse_impersonation(headers)?
    else {
        return Ok(None);
    };
    let mut target = User::new(name, groups);
    if let Some((namespace, _)) = parse_service_account(&target.name)
        && target.groups.is_empty()
    {
        target.groups = service_account_groups(namespace);
    }
    for (key, value) in extra {
        target.extra.entry(key).or_default().push(value);
    }
    target.uid = uid;
    check_impersonation(access, user, &target)?;
    // Explicit groups replace all others except system:authenticated or system:unauthenticated.
    let has_base_group = target.is_in_group(UNAUTHENTICATED_GROUP)
        || (!target.is_anonymous() && target.is_in_group(AUTHENTICATED_GROUP));
    if !has_base_group {
        let group = if target.is_anonymous() { UNAUTHENTICATED_GROUP } else { AUTHENTICATED_GROUP };
        target.groups.push(group.to_owned());
    }
    Ok(Some(target))
}

/// Returns a 403 error unless `user` may impersonate `other`. If `other` is a service account with exactly its default
/// groups, no permission for these groups is needed.
fn check_impersonation(access: &AccessControl, user: &User, other: &User) -> Result<(), ApiError> {
    let require = |resource: ResourceAttributes| {
        let attributes = RequestAttributes::for_resource("impersonate", resource);
        match authorize(access, user, &attributes) {
            Ok(_) => Ok(()),
            Err(why) => Err(forbidden_error(user, &attributes, &why)),
        }
    };
    let resource = |group: &str, plural: &str, name: &str| ResourceAttributes {
        group: group.to_owned(),
        plural: plural.to_owned(),
        name: name.to_owned(),
        ..ResourceAttributes::default()
    };
    let mut default_groups = Vec::new();
    match parse_service_account(&other.name) {
        Some((namespace, name)) => {
            require(ResourceAttributes {
                namespace: namespace.to_owned(),
                ..resource("", "serviceaccounts", name)
            })?;
            default_groups = service_account_groups(namespace);
        }
        None => require(resource("", "users", &other.name))?,
    }
    let is_default = other.groups == default_groups;
    for group in other.groups.iter().filter(|_| !is_default) {
        require(resource("", "groups", group))?;
    }
    // Extra values and the UID are impersonated as the resources `userextras` and `uids`.
    for (key, value) in other.extra.iter().flat_map(|(key, values)| values.iter().map(move |it| (key, it))) {
        require(ResourceAttributes {
            subresource: key.clone(),
            ..resource(API_GROUP_AUTHENTICATION, "userextras", value)
        })?;
    }
    if !other.uid.is_empty() {
        require(resource(API_GROUP_AUTHENTICATION, "uids", &other.uid))?;
    }
    Ok(())
}
