//! Prevents privilege escalation through RBAC: users can only grant permissions that they hold.

use muster_api::well_known::{API_GROUP_RBAC, USER_GROUP_MASTERS};
use serde_json::Value;

use crate::auth::policy_rule::{PolicyRule, go_string_list, missing_rules};
use crate::auth::roles::{RbacObjectType, RoleRef};
use crate::auth::{AccessControl, RBAC_RESOURCES, authorize};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{RequestAttributes, RequestTarget, ResourceAttributes, User};
use crate::unstructured::list_at;

/// Checks whether the user may write a role or a binding. Writes by members of `system:masters`, and updates of only
/// garbage collection fields, are not checked.
///
/// Rule: writing a role requires all permissions in it, or the verb `escalate` on it (for a create, on all roles of its
/// kind). Writing a binding requires all permissions of its role, or the verb `bind` on that role. Writing a
/// ClusterRole that has an aggregation rule before or after the write requires permission for every verb on every
/// resource and path, or the verb `escalate`.
/// Upstream: the `policybased` storages.
///
/// `old` is the stored object, or `None` for a create.
pub(crate) fn check_rbac_write(
    access: &AccessControl,
    user: &User,
    target: &RequestTarget,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if user.is_in_group(USER_GROUP_MASTERS) || old.is_some_and(|old| changes_only_gc_fields(new, old)) {
        return Ok(());
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let forbid = |why: &str| ApiError::forbidden(target.kind, &target.name, why);
    let is_allowed = |verb: &str, plural: &str, name: &str| {
        let attributes = ResourceAttributes {
            group: API_GROUP_RBAC.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        authorize(access, user, &RequestAttributes::for_resource(verb, attributes)).is_ok()
    };
    let rbac_object =
        RBAC_RESOURCES.iter().find(|(plural, _)| *plural == target.kind.plural).map(|(_, object)| *object);
    if rbac_object == Some(RbacObjectType::Role) {
        // A create has no name yet, so `escalate` is needed on all roles.
        if is_allowed("escalate", target.kind.plural, if old.is_some() { &target.name } else { "" }) {
            return Ok(());
        }
        check_permissions_held(access, user, namespace, &PolicyRule::parse_list(&new["rules"]))
            .map_err(|why| forbid(&why))?;
        let is_aggregated = |it: &Value| !list_at(&it["aggregationRule"], "clusterRoleSelectors").is_empty();
        if (is_aggregated(new) || old.is_some_and(is_aggregated))
            && check_permissions_held(access, user, namespace, &all_permissions()).is_err()
        {
            return Err(forbid("must have cluster-admin privileges to use the aggregationRule"));
        }
        return Ok(());
    }
    let role = RoleRef::parse(&new["roleRef"]);
    let plural = if role.kind == "Role" { "roles" } else { "clusterroles" };
    if is_allowed("bind", plural, &role.name) {
        return Ok(());
    }
    let rules = access.with_synced_rbac_index(|roles| roles.role_rules(&role, namespace).cloned());
    let kind = Kind::builtin(API_GROUP_RBAC, "v1", plural);
    let rules = rules.map_err(|_| ApiError::not_found(kind, &role.name))?;
    check_permissions_held(access, user, namespace, &rules).map_err(|why| forbid(&why))
}

/// Whether an update changes only `finalizers`, `ownerReferences`, `managedFields` and `resourceVersion`. Upstream:
/// `IsOnlyMutatingGCFields`.
fn changes_only_gc_fields(new: &Value, old: &Value) -> bool {
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

/// Maximum memory of the rules that are checked, split by verb and resource: about 100,000 combinations. A rule with
/// four lists of a thousand items would have 10¹² combinations. Upstream has no limit.
const SPLIT_BYTES_MAX: usize = 32 << 20;

/// Checks that the user holds all permissions of `rules` in the namespace. Otherwise returns upstream's error message.
fn check_permissions_held(
    access: &AccessControl,
    user: &User,
    namespace: &str,
    rules: &[PolicyRule],
) -> Result<(), String> {
    let bytes = rules.iter().map(PolicyRule::split_bytes).fold(0, usize::saturating_add);
    if SPLIT_BYTES_MAX < bytes {
        return Err(format!(
            "the rules have too many combinations of verbs and resources: each combination is checked, and together \
             they would take {bytes} bytes of memory, at most {SPLIT_BYTES_MAX} are allowed"
        ));
    }
    let (own, dangling) = access.with_synced_rbac_index(|roles| roles.user_rules(user, namespace));
    let missing = missing_rules(&own, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut missing_rules: Vec<_> = missing.iter().map(PolicyRule::format_compact).collect();
    missing_rules.sort();
    missing_rules.dedup();
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        go_string_list(&user.groups),
        missing_rules.join("\n")
    );
    if !dangling.is_empty() {
        why = format!("{why}; resolution errors: [{}]", dangling.join(", "));
    }
    Err(why)
}

/// Returns rules that allow every verb on every resource and every path.
fn all_permissions() -> [PolicyRule; 2] {
    let star = || vec!["*".to_owned()];
    [
        PolicyRule { api_groups: star(), resources: star(), verbs: star(), ..PolicyRule::default() },
        PolicyRule { non_resource_urls: star(), verbs: star(), ..PolicyRule::default() },
    ]
}
