//! The RBAC roles and bindings in the store, and the permissions that they grant.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::rule::Rule;
use crate::request::{RequestAttributes, User, account_name};
use crate::unstructured::{list, str_at};

/// Objects by namespace and name. The namespace of cluster-scoped objects is empty.
type Named<T> = HashMap<String, HashMap<String, T>>;

/// The RBAC authorizer: rules by role, and bindings by subject.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    roles: Named<Arc<[Rule]>>,
    bindings: Named<Arc<Binding>>,
    bound: HashMap<String, BoundSubject>,
}

/// The bindings of one namespace by user and group, each with the index of the matching subject.
#[derive(Debug, Default)]
struct BoundSubject {
    users: BTreeMap<String, Vec<(Arc<Binding>, usize)>>,
    groups: BTreeMap<String, Vec<(Arc<Binding>, usize)>>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug)]
pub(crate) struct Binding {
    namespace: String,
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role that a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// The user, group or service account that a binding names.
#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// A permission granted by a binding, as shown in reviews and the audit log.
#[derive(Debug, Clone)]
pub(crate) struct RoleGrant {
    binding: Arc<Binding>,
    /// Index of the subject in the binding.
    subject: usize,
}

/// Whether an RBAC object is a role or a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RbacObject {
    Role,
    Binding,
}

impl Roles {
    /// Applies a change of a role or binding. `object` is `None` if it was deleted.
    pub(crate) fn apply(
        &mut self,
        object_type: RbacObject,
        namespace: &str,
        name: &str,
        object: Option<&Value>,
    ) {
        match object_type {
            RbacObject::Role => {
                let rules = object.map(|it| Rule::all(&it["rules"]).into());
                put(&mut self.roles, namespace, name, rules);
            }
            RbacObject::Binding => {
                let binding = object.map(|it| Arc::new(Binding::read(namespace, name, it)));
                let before = put(&mut self.bindings, namespace, name, binding.clone());
                let bound = self.bound.entry(namespace.to_owned()).or_default();
                before.into_iter().for_each(|it| bound.remove(&it));
                binding.into_iter().for_each(|it| bound.add(&it));
                if bound.users.is_empty() && bound.groups.is_empty() {
                    self.bound.remove(namespace);
                }
            }
        }
    }

    /// Rule: a request is allowed only if a binding gives the user or one of the user's groups a role with a rule that
    /// matches it. A RoleBinding grants permissions in its namespace only.
    /// Upstream: `RBACAuthorizer`. The error lists bindings to missing roles.
    pub(crate) fn grant(&self, user: &User, attributes: &RequestAttributes) -> Result<RoleGrant, String> {
        let mut dangling = Vec::new();
        for (binding, subject) in self.bindings_of(user, attributes.namespace()) {
            match self.rules_of(&binding.role, &binding.namespace) {
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

    /// All rules of the user in the namespace, and errors for bindings to missing roles.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        for (binding, _) in self.bindings_of(user, namespace) {
            match self.rules_of(&binding.role, &binding.namespace) {
                Ok(it) => rules.extend(it.iter().cloned()),
                Err(it) => missing.push(it),
            }
        }
        (rules, missing)
    }

    /// The rules of the role that a binding in `namespace` refers to. Fails if the role is missing.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&Arc<[Rule]>, String> {
        let (namespace, resource) = match role.kind.as_str() {
            "Role" => (namespace, "role.rbac.authorization.k8s.io"),
            "ClusterRole" => ("", "clusterrole.rbac.authorization.k8s.io"),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        let found = self.roles.get(namespace).and_then(|it| it.get(&role.name));
        found.ok_or_else(|| format!("{resource} {:?} not found", role.name))
    }

    /// The cluster-wide bindings of the user and those in the namespace, with the index of the matching subject.
    fn bindings_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a (Arc<Binding>, usize)> {
        let namespaces = std::iter::once("").chain(Some(namespace).filter(|it| !it.is_empty()));
        let bound = namespaces.filter_map(|it| self.bound.get(it));
        bound.flat_map(|bound| {
            let by_name = bound.users.get(&user.name);
            let by_group = user.groups.iter().filter_map(|it| bound.groups.get(it));
            by_name.into_iter().chain(by_group).flatten()
        })
    }
}

impl BoundSubject {
    fn add(&mut self, binding: &Arc<Binding>) {
        for (index, subject) in binding.subjects.iter().enumerate() {
            if let Some((map, name)) = self.place(subject, &binding.namespace) {
                map.entry(name).or_default().push((binding.clone(), index));
            }
        }
    }

    fn remove(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            if let Some((map, name)) = self.place(subject, &binding.namespace)
                && let Some(all) = map.get_mut(&name)
            {
                all.retain(|(it, _)| !Arc::ptr_eq(it, binding));
                if all.is_empty() {
                    map.remove(&name);
                }
            }
        }
    }

    /// The map that holds the bindings of a subject, and the subject's key in it.
    #[expect(clippy::type_complexity, reason = "the map of users or of groups, and a key in it")]
    fn place(
        &mut self,
        subject: &Subject,
        namespace: &str,
    ) -> Option<(&mut BTreeMap<String, Vec<(Arc<Binding>, usize)>>, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                (!namespace.is_empty()).then(|| (&mut self.users, account_name(namespace, &subject.name)))
            }
            _ => None,
        }
    }
}

impl Binding {
    fn read(namespace: &str, name: &str, object: &Value) -> Self {
        let subjects = list(object, "subjects").iter().map(|it| Subject {
            kind: str_at(it, "kind").to_owned(),
            namespace: str_at(it, "namespace").to_owned(),
            name: str_at(it, "name").to_owned(),
        });
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            role: RoleRef::read(&object["roleRef"]),
            subjects: subjects.collect(),
        }
    }
}

impl RoleRef {
    pub(crate) fn read(role: &Value) -> Self {
        Self { kind: str_at(role, "kind").to_owned(), name: str_at(role, "name").to_owned() }
    }
}

impl fmt::Display for RoleGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { namespace, name, role, subjects } = &*self.binding;
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

/// Inserts a value, or removes it if `None`. Returns the previous value.
fn put<T>(all: &mut Named<T>, namespace: &str, name: &str, value: Option<T>) -> Option<T> {
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
