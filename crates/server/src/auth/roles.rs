//! The roles and bindings that stand, and what they grant to whom.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::rule::Rule;
use crate::request::{RequestAttributes, User, account_name};
use crate::unstructured::{list, str_at};

/// By namespace, which is empty for those of the cluster, and by name.
type Named<T> = HashMap<String, HashMap<String, T>>;

#[derive(Debug, Default)]
pub(crate) struct Roles {
    roles: Named<Arc<[Rule]>>,
    bindings: Named<Arc<Binding>>,
    bound: HashMap<String, BoundSubject>,
}

/// The bindings of one namespace, by whom they name; each with the number of the subject.
#[derive(Debug, Default)]
struct BoundSubject {
    users: BTreeMap<String, Vec<(Arc<Binding>, usize)>>,
    groups: BTreeMap<String, Vec<(Arc<Binding>, usize)>>,
}

#[derive(Debug)]
pub(crate) struct Binding {
    namespace: String,
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// A grant by a binding, as reviews and the audit log tell it.
#[derive(Debug, Clone)]
pub(crate) struct RoleGrant {
    binding: Arc<Binding>,
    subject: usize,
}

/// One of the four kinds that say who may do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RbacObject {
    Role,
    Binding,
}

impl Roles {
    /// Takes over what the store says of a role or a binding now: `None` if it is gone.
    pub(crate) fn apply(&mut self, held: RbacObject, namespace: &str, name: &str, object: Option<&Value>) {
        match held {
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

    /// Rule: what is not granted by a rule of a role that a binding gives to the user or to one of their groups is
    /// refused. A binding in a namespace grants there only.
    /// Upstream: `RBACAuthorizer`. The refusal tells of bindings to roles that are not there.
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

    /// All rules that the user has in the namespace, and the roles among them that are not there.
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

    /// The rules of a role that a binding in `namespace` refers to, or what is missing.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&Arc<[Rule]>, String> {
        let (namespace, resource) = match role.kind.as_str() {
            "Role" => (namespace, "role.rbac.authorization.k8s.io"),
            "ClusterRole" => ("", "clusterrole.rbac.authorization.k8s.io"),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        let found = self.roles.get(namespace).and_then(|it| it.get(&role.name));
        found.ok_or_else(|| format!("{resource} {:?} not found", role.name))
    }

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
        for (at, subject) in binding.subjects.iter().enumerate() {
            if let Some((by, name)) = self.place(subject, &binding.namespace) {
                by.entry(name).or_default().push((binding.clone(), at));
            }
        }
    }

    fn remove(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            if let Some((by, name)) = self.place(subject, &binding.namespace)
                && let Some(all) = by.get_mut(&name)
            {
                all.retain(|(it, _)| !Arc::ptr_eq(it, binding));
                if all.is_empty() {
                    by.remove(&name);
                }
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "one of the two maps, and a key in it")]
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

/// What was there before.
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
