//! The RBAC roles and bindings in the store, and the permissions that they grant.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::policy_rule::PolicyRule;
use crate::request::{RequestAttributes, User, service_account_user_name};
use crate::unstructured::{list_at, str_at};

/// Objects by namespace and name. The namespace of cluster-scoped objects is empty.
type ByNamespaceAndName<T> = HashMap<String, HashMap<String, T>>;

/// Index of all RBAC roles and bindings, with which requests are authorized.
#[derive(Debug, Default)]
pub(crate) struct RbacIndex {
    /// Rules of each Role and ClusterRole.
    roles: ByNamespaceAndName<Arc<[PolicyRule]>>,
    /// All RoleBindings and ClusterRoleBindings.
    bindings: ByNamespaceAndName<Arc<RbacBinding>>,
    /// The bindings of each namespace, indexed by subject. The namespace of ClusterRoleBindings is empty.
    bindings_by_subject: HashMap<String, NamespaceBindings>,
}

/// The bindings of one namespace, indexed by the users and groups that they name. Each entry is a binding and the index
/// of the matching subject in `RbacBinding::subjects`.
#[derive(Debug, Default)]
struct NamespaceBindings {
    /// Bindings by user name. A service account is listed under its user name, `system:serviceaccount:NAMESPACE:NAME`.
    users: BTreeMap<String, Vec<(Arc<RbacBinding>, usize)>>,
    /// Bindings by group name.
    groups: BTreeMap<String, Vec<(Arc<RbacBinding>, usize)>>,
}

/// A RoleBinding or ClusterRoleBinding. The namespace of a ClusterRoleBinding is empty.
#[derive(Debug)]
pub(crate) struct RbacBinding {
    namespace: String,
    name: String,
    role: RoleRef,
    subjects: Vec<RbacSubject>,
}

/// The Role or ClusterRole whose permissions a binding grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// A subject of a binding: a user, group or service account.
#[derive(Debug)]
struct RbacSubject {
    /// `User`, `Group` or `ServiceAccount`.
    kind: String,
    /// Namespace of a service account. If it is empty, the namespace of the binding applies.
    namespace: String,
    name: String,
}

/// The binding and subject that allow a request, as shown in reviews and the audit log.
#[derive(Debug, Clone)]
pub(crate) struct RoleGrant {
    binding: Arc<RbacBinding>,
    /// Index of the subject in `RbacBinding::subjects`.
    subject: usize,
}

/// Whether an RBAC object is a role (Role, ClusterRole) or a binding (RoleBinding, ClusterRoleBinding).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RbacObjectType {
    Role,
    Binding,
}

impl RbacIndex {
    /// Applies a change of a role or binding. `object` is `None` if the role or binding was deleted.
    pub(crate) fn apply_change(
        &mut self,
        object_type: RbacObjectType,
        namespace: &str,
        name: &str,
        object: Option<&Value>,
    ) {
        match object_type {
            RbacObjectType::Role => {
                let rules = object.map(|it| PolicyRule::parse_list(&it["rules"]).into());
                replace_entry(&mut self.roles, namespace, name, rules);
            }
            RbacObjectType::Binding => {
                let binding = object.map(|it| Arc::new(RbacBinding::parse(namespace, name, it)));
                let before = replace_entry(&mut self.bindings, namespace, name, binding.clone());
                let bound = self.bindings_by_subject.entry(namespace.to_owned()).or_default();
                before.into_iter().for_each(|it| bound.remove_binding(&it));
                binding.into_iter().for_each(|it| bound.add_binding(&it));
                if bound.users.is_empty() && bound.groups.is_empty() {
                    self.bindings_by_subject.remove(namespace);
                }
            }
        }
    }

    /// Returns the binding and subject that allow a request, or an error message.
    ///
    /// Rule: a request is allowed only if a binding gives the user or one of the user's groups a role with a rule that
    /// matches the request. A RoleBinding grants permissions in its namespace only.
    /// Upstream: `RBACAuthorizer`.
    ///
    /// The error message lists the roles to which the user's bindings refer and which do not exist or have an
    /// unsupported kind. It is empty if there are none.
    pub(crate) fn authorize(&self, user: &User, attributes: &RequestAttributes) -> Result<RoleGrant, String> {
        let mut dangling = Vec::new();
        for (binding, subject) in self.user_bindings(user, attributes.namespace()) {
            match self.role_rules(&binding.role, &binding.namespace) {
                Ok(rules) if rules.iter().any(|it| it.allows(attributes)) => {
                    return Ok(RoleGrant { binding: binding.clone(), subject: *subject });
                }
                Ok(_) => {}
                Err(missing) => dangling.push(missing),
            }
        }
        dangling.sort();
        dangling.dedup();
        match &dangling[..] {
            [] => Err(String::new()),
            [one] => Err(format!("RBAC: {one}")),
            many => Err(format!("RBAC: [{}]", many.join(", "))),
        }
    }

    /// Returns all rules that bindings grant to the user in the namespace, and an error message for each of the user's
    /// bindings that refers to a missing role.
    pub(crate) fn user_rules(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        for (binding, _) in self.user_bindings(user, namespace) {
            match self.role_rules(&binding.role, &binding.namespace) {
                Ok(it) => rules.extend(it.iter().cloned()),
                Err(it) => missing.push(it),
            }
        }
        (rules, missing)
    }

    /// Returns the rules of the role that a binding in `namespace` refers to. Returns an error message if the role does
    /// not exist or its kind is unsupported.
    pub(crate) fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<&Arc<[PolicyRule]>, String> {
        let (namespace, resource) = match role.kind.as_str() {
            "Role" => (namespace, "role.rbac.authorization.k8s.io"),
            "ClusterRole" => ("", "clusterrole.rbac.authorization.k8s.io"),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        let found = self.roles.get(namespace).and_then(|it| it.get(&role.name));
        found.ok_or_else(|| format!("{resource} {:?} not found", role.name))
    }

    /// Returns the bindings of the user in the namespace and the user's ClusterRoleBindings, each with the index of the
    /// matching subject in `RbacBinding::subjects`.
    fn user_bindings<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a (Arc<RbacBinding>, usize)> {
        let namespaces = std::iter::once("").chain(Some(namespace).filter(|it| !it.is_empty()));
        let bound = namespaces.filter_map(|it| self.bindings_by_subject.get(it));
        bound.flat_map(|bound| {
            let by_name = bound.users.get(&user.name);
            let by_group = user.groups.iter().filter_map(|it| bound.groups.get(it));
            by_name.into_iter().chain(by_group).flatten()
        })
    }
}

impl NamespaceBindings {
    /// Adds a binding to the index, under each of its subjects.
    fn add_binding(&mut self, binding: &Arc<RbacBinding>) {
        for (index, subject) in binding.subjects.iter().enumerate() {
            if let Some((map, name)) = self.subject_map_and_key(subject, &binding.namespace) {
                map.entry(name).or_default().push((binding.clone(), index));
            }
        }
    }

    /// Removes a binding from the index, under each of its subjects.
    fn remove_binding(&mut self, binding: &Arc<RbacBinding>) {
        for subject in &binding.subjects {
            if let Some((map, name)) = self.subject_map_and_key(subject, &binding.namespace)
                && let Some(all) = map.get_mut(&name)
            {
                all.retain(|(it, _)| !Arc::ptr_eq(it, binding));
                if all.is_empty() {
                    map.remove(&name);
                }
            }
        }
    }

    /// Returns the map (`users` or `groups`) that lists the bindings of a subject, and the subject's key in that map.
    /// `namespace` is the namespace of the binding. Returns `None` if the kind of the subject is unknown, or if a
    /// service account has no namespace.
    #[expect(clippy::type_complexity, reason = "the map of users or of groups, and a key in it")]
    fn subject_map_and_key(
        &mut self,
        subject: &RbacSubject,
        namespace: &str,
    ) -> Option<(&mut BTreeMap<String, Vec<(Arc<RbacBinding>, usize)>>, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                (!namespace.is_empty())
                    .then(|| (&mut self.users, service_account_user_name(namespace, &subject.name)))
            }
            _ => None,
        }
    }
}

impl RbacBinding {
    /// Parses a RoleBinding or ClusterRoleBinding.
    fn parse(namespace: &str, name: &str, object: &Value) -> Self {
        let subjects = list_at(object, "subjects").iter().map(|it| RbacSubject {
            kind: str_at(it, "kind").to_owned(),
            namespace: str_at(it, "namespace").to_owned(),
            name: str_at(it, "name").to_owned(),
        });
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            role: RoleRef::parse(&object["roleRef"]),
            subjects: subjects.collect(),
        }
    }
}

impl RoleRef {
    /// Parses `roleRef` of a binding.
    pub(crate) fn parse(role: &Value) -> Self {
        Self { kind: str_at(role, "kind").to_owned(), name: str_at(role, "name").to_owned() }
    }
}

impl fmt::Display for RoleGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RbacBinding { namespace, name, role, subjects } = &*self.binding;
        let subject = &subjects[self.subject];
        write!(f, "RBAC: allowed by ")?;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {name:?}")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\"")?;
        }
        write!(f, " of {} {:?} to {} ", role.kind, role.name, subject.kind)?;
        match subject.kind.as_str() {
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                write!(f, "\"{}/{namespace}\"", subject.name)
            }
            _ => write!(f, "{:?}", subject.name),
        }
    }
}

/// Sets the value for a namespace and name, or removes it if `value` is `None`. Returns the previous value.
fn replace_entry<T>(
    all: &mut ByNamespaceAndName<T>,
    namespace: &str,
    name: &str,
    value: Option<T>,
) -> Option<T> {
    match value {
        Some(value) => all.entry(namespace.to_owned()).or_default().insert(name.to_owned(), value),
        None => {
            let in_namespace = all.get_mut(namespace)?;
            let before = in_namespace.remove(name);
            if in_namespace.is_empty() {
                all.remove(namespace);
            }
            before
        }
    }
}
