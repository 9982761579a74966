//! Nobody gives away what they do not have.

use serde_json::Value;

use crate::auth::roles::{RbacObject, RoleRef};
use crate::auth::rule::{Rule, go_strings, missing};
use crate::auth::{Access, RBAC, RBAC_OBJECTS, authorize};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{MASTERS, RequestAttributes, ResourceAttributes, Target, User};
use crate::unstructured::list;

/// Rule: whoever writes a role must have every right in it, or the verb `escalate` on it; whoever binds one must have every
/// right in it, or the verb `bind` on it. A role that is gathered from others takes every right there is.
/// Upstream: the `policybased` storages. `old` is what stands.
pub(crate) fn check(
    access: &Access,
    user: &User,
    target: &Target,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if user.is_in(MASTERS) || old.is_some_and(|old| is_housekeeping(new, old)) {
        return Ok(());
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let forbid = |why: &str| ApiError::forbidden(target.kind, &target.name, why);
    let may = |verb: &str, plural: &str, name: &str| {
        let on = ResourceAttributes {
            group: RBAC.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        authorize(access, user, &RequestAttributes::resource(verb, on)).is_ok()
    };
    let held_kind =
        RBAC_OBJECTS.iter().find(|(plural, _)| *plural == target.kind.plural).map(|(_, held)| *held);
    if held_kind == Some(RbacObject::Role) {
        // On a create the request has no name, so only a right to all of them will do.
        if may("escalate", target.kind.plural, if old.is_some() { &target.name } else { "" }) {
            return Ok(());
        }
        held(access, user, namespace, &Rule::all(&new["rules"])).map_err(|why| forbid(&why))?;
        let is_gathered = |it: &Value| !list(&it["aggregationRule"], "clusterRoleSelectors").is_empty();
        if (is_gathered(new) || old.is_some_and(is_gathered))
            && held(access, user, namespace, &everything()).is_err()
        {
            return Err(forbid("must have cluster-admin privileges to use the aggregationRule"));
        }
        return Ok(());
    }
    let role = RoleRef::read(&new["roleRef"]);
    let plural = if role.kind == "Role" { "roles" } else { "clusterroles" };
    if may("bind", plural, &role.name) {
        return Ok(());
    }
    let rules = access.with(|roles| roles.rules_of(&role, namespace).cloned());
    let kind = Kind::builtin(RBAC, "v1", plural);
    let rules = rules.map_err(|_| ApiError::not_found(kind, &role.name))?;
    held(access, user, namespace, &rules).map_err(|why| forbid(&why))
}

/// Only what leads to the object's own end is changed.
fn is_housekeeping(new: &Value, old: &Value) -> bool {
    let bare = |it: &Value| {
        let mut it = it.clone();
        if let Some(meta) = it["metadata"].as_object_mut() {
            for name in ["finalizers", "ownerReferences", "managedFields", "resourceVersion"] {
                meta.remove(name);
            }
        }
        it
    };
    bare(new) == bare(old)
}

fn held(access: &Access, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), String> {
    let (own, dangling) = access.with(|roles| roles.rules_for(user, namespace));
    let lacking = missing(&own, rules);
    if lacking.is_empty() {
        return Ok(());
    }
    let mut said: Vec<_> = lacking.iter().map(Rule::compact).collect();
    said.sort();
    said.dedup();
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        go_strings(&user.groups),
        said.join("\n")
    );
    if !dangling.is_empty() {
        why = format!("{why}; resolution errors: [{}]", dangling.join(", "));
    }
    Err(why)
}

fn everything() -> [Rule; 2] {
    let star = || vec!["*".to_owned()];
    [
        Rule { groups: star(), resources: star(), verbs: star(), ..Rule::default() },
        Rule { urls: star(), verbs: star(), ..Rule::default() },
    ]
}
