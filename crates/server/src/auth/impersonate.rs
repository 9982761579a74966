//! Asking as someone else: `kubectl --as`.

use hyper::HeaderMap;
use percent_encoding::percent_decode_str;

use super::deed::{Deed, Resource};
use super::user::{AUTHENTICATED, UNAUTHENTICATED, User, account_groups, account_of};
use super::{authorize, denied};
use crate::refusal::Refusal;
use crate::registry::Registry;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

const AUTHENTICATION: &str = "authentication.k8s.io";

/// Rule: whoever asks as someone else needs the verb `impersonate` on the user or service account, and on each group,
/// UID and extra value they take on.
/// Upstream: `WithImpersonation`. `None` if the request is made in one's own name.
pub(crate) fn impersonated(
    registry: &Registry,
    user: &User,
    headers: &HeaderMap,
) -> Result<Option<User>, Refusal> {
    let texts = |name: &str| headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    let wanted = texts(USER).next().unwrap_or_default();
    let groups: Vec<&str> = texts(GROUP).collect();
    let uid = texts(UID).next().unwrap_or_default();
    let extra = headers.iter().filter_map(|(name, value)| {
        let key = name.as_str().strip_prefix(EXTRA)?;
        let key = percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), Into::into);
        Some((key, value.to_str().ok()?))
    });
    let extra: Vec<(String, &str)> = extra.collect();
    if wanted.is_empty() {
        return match (&groups[..], &extra[..], uid) {
            ([], [], "") => Ok(None),
            _ => Err(Refusal::bad_request(
                "requested groups, extra or uid without impersonating a user: send Impersonate-User too",
            )),
        };
    }

    let may = |resource: Resource| {
        let deed = Deed::resource("impersonate", resource);
        match authorize(registry, user, &deed) {
            Ok(_) => Ok(()),
            Err(why) => Err(denied(user, &deed, &why)),
        }
    };
    let on = |group: &str, plural: &str, name: &str| Resource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        name: name.to_owned(),
        ..Resource::default()
    };
    let mut other = User::new(wanted, groups.iter().copied());
    if let Some((namespace, name)) = account_of(wanted) {
        may(Resource { namespace: namespace.to_owned(), ..on("", "serviceaccounts", name) })?;
        if groups.is_empty() {
            other.groups = account_groups(namespace);
        }
    } else {
        may(on("", "users", wanted))?;
    }
    for group in groups {
        may(on("", "groups", group))?;
    }
    for (key, value) in extra {
        may(Resource { part: key.clone(), ..on(AUTHENTICATION, "userextras", value) })?;
        other.extra.entry(key).or_default().push(value.to_owned());
    }
    if !uid.is_empty() {
        may(on(AUTHENTICATION, "uids", uid))?;
        other.uid = uid.to_owned();
    }
    // Groups that are said are the whole truth, but for the one that says whether the user is anyone.
    let said = other.is_in(UNAUTHENTICATED) || (!other.is_anonymous() && other.is_in(AUTHENTICATED));
    if !said {
        let group = if other.is_anonymous() { UNAUTHENTICATED } else { AUTHENTICATED };
        other.groups.push(group.to_owned());
    }
    Ok(Some(other))
}
