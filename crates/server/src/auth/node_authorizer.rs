//! The node authorizer: a node has the permissions of `system:node`, many of them only for itself and the pods bound to
//! it.

use std::sync::LazyLock;

use muster_api::well_known::{NAMESPACE_NODE_LEASE, NAMESPACE_SYSTEM};
use serde_json::Value;

use super::AccessControl;
use super::default_roles;
use super::policy_rule::PolicyRule;
use crate::kinds::Kind;
use crate::request::{AccessTarget, RequestAttributes, ResourceAttributes};
use crate::selector::ObjectSelector;
use crate::unstructured::{self, list_at, str_at};

/// Namespace of the Leases that nodes renew as heartbeats.
const LEASE_NAMESPACE: &str = NAMESPACE_NODE_LEASE;

/// Namespace whose UID identifies the cluster. A node compares this UID with the UID of the cluster that it joined.
const IDENTITY_NAMESPACE: &str = NAMESPACE_SYSTEM;

/// The policy rules of the ClusterRole `system:node`.
static NODE_RULES: LazyLock<Vec<PolicyRule>> =
    LazyLock::new(|| PolicyRule::parse_list(&default_roles::node_rules()));

/// Checks whether the node authorizer allows a request of a node.
///
/// Rule: a node may read its Node, its pods, and the Secrets, ConfigMaps and service accounts that its pods use, and
/// may request tokens for these service accounts. It may read the Namespace object `kube-system`. It may read and write
/// its Lease, write Nodes and the status of pods, and create, delete and evict pods. NodeRestriction admission checks
/// that these writes concern only its Node and its pods. For other resources, the node has the permissions of
/// `system:node`.
/// Upstream: the node authorizer.
///
/// The error is the reason for the refusal, and may be empty. An RBAC binding may still allow the request.
pub(crate) fn authorize_node(
    access: &AccessControl,
    node: &str,
    attributes: &RequestAttributes,
) -> Result<(), String> {
    let by_rules = || {
        if NODE_RULES.iter().any(|it| it.allows(attributes)) { Ok(()) } else { Err(String::new()) }
    };
    let AccessTarget::Resource(on) = &attributes.target else { return by_rules() };
    let verb = attributes.verb.as_ref();
    match (on.group.as_str(), on.plural.as_str()) {
        ("", "secrets" | "configmaps") => authorize_read_of_pod_reference(access, node, verb, on),
        ("", "serviceaccounts") => match (verb, on.subresource.as_str()) {
            ("get", "") => authorize_read_of_pod_reference(access, node, verb, on),
            ("create", "token") if !on.name.is_empty() => authorize_pod_or_reference(access, node, on),
            ("create", _) if !on.name.is_empty() => {
                Err("can only create token subresource of serviceaccount".to_owned())
            }
            _ => Err("can only create tokens for individual service accounts".to_owned()),
        },
        ("coordination.k8s.io", "leases") => match verb {
            "get" | "create" | "update" | "patch" | "delete" if on.namespace != LEASE_NAMESPACE => {
                Err(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"))
            }
            // A create has the name in its body, which NodeRestriction admission checks.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" if on.name == node => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                Err("can only access node lease with the same name as the requesting node".to_owned())
            }
            _ => Err("can only get, create, update, patch, or delete a node lease".to_owned()),
        },
        ("", "nodes") => match (on.subresource.as_str(), verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match on.name.as_str() {
                name if name == node => Ok(()),
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                name => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
            },
            _ => Err(String::new()),
        },
        ("", "pods") => match (on.subresource.as_str(), verb) {
            ("", "get") => authorize_pod_or_reference(access, node, on),
            ("", "list" | "watch") if on.node_name == node => Ok(()),
            ("", "list" | "watch") if !on.name.is_empty() => authorize_pod_or_reference(access, node, on),
            ("", "list" | "watch") => {
                Err("can only list/watch pods with spec.nodeName field selector".to_owned())
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        },
        ("", "namespaces") => match (on.subresource.as_str(), verb) {
            ("", "get") if on.name == IDENTITY_NAMESPACE => Ok(()),
            _ => Err(format!("can only get the namespace {IDENTITY_NAMESPACE:?}")),
        },
        _ => by_rules(),
    }
}

/// Checks that a request reads one Secret, ConfigMap or service account that a pod on the node uses. Otherwise returns
/// the reason for the refusal.
fn authorize_read_of_pod_reference(
    access: &AccessControl,
    node: &str,
    verb: &str,
    on: &ResourceAttributes,
) -> Result<(), String> {
    if !matches!(verb, "get" | "list" | "watch") {
        return Err("can only read resources of this type".to_owned());
    }
    if !on.subresource.is_empty() {
        return Err("cannot read subresource".to_owned());
    }
    if on.namespace.is_empty() {
        return Err("can only read namespaced object of this type".to_owned());
    }
    if on.name.is_empty() {
        return Err("No Object name found".to_owned());
    }
    authorize_pod_or_reference(access, node, on)
}

/// Checks that the target of a request is a pod on the node, or an object that a pod on the node uses. Otherwise
/// returns the reason for the refusal. The caller checks the verb.
fn authorize_pod_or_reference(
    access: &AccessControl,
    node: &str,
    on: &ResourceAttributes,
) -> Result<(), String> {
    let uses = |pod: &Value| match on.plural.as_str() {
        "pods" => str_at(pod, "metadata.name") == on.name,
        "serviceaccounts" => str_at(pod, "spec.serviceAccountName") == on.name,
        plural => names_referenced_by_pod(&pod["spec"], plural).contains(&on.name.as_str()),
    };
    if !on.namespace.is_empty() && pods_on_node(access, node, &on.namespace).iter().any(uses) {
        return Ok(());
    }
    Err(format!("no relationship found between node '{node}' and this object"))
}

/// Returns the pods in the namespace that are bound to the node.
fn pods_on_node(access: &AccessControl, node: &str, namespace: &str) -> Vec<Value> {
    let pods = Kind::builtin("", "v1", "pods");
    let Ok(selector) = ObjectSelector::parse(pods, "", &format!("spec.nodeName={node}")) else {
        return Vec::new();
    };
    let (pods, _) = access.storage.list(pods, Some(namespace), &selector);
    pods.iter().map(|it| unstructured::parse_stored(it)).collect()
}

/// Returns the names of the Secrets or ConfigMaps that a pod spec references: in volumes, in the environment of
/// containers, or as image pull secrets. `plural` selects `secrets` or `configmaps`.
pub(crate) fn names_referenced_by_pod<'a>(spec: &'a Value, plural: &str) -> Vec<&'a str> {
    let is_secret = plural == "secrets";
    let (volume, key, env, env_from) = if is_secret {
        ("secret", "secretName", "secretKeyRef", "secretRef")
    } else {
        ("configMap", "name", "configMapKeyRef", "configMapRef")
    };
    let mut all = Vec::new();
    for it in list_at(spec, "volumes") {
        all.push(str_at(&it[volume], key));
        all.extend(list_at(&it["projected"], "sources").iter().map(|it| str_at(&it[volume], "name")));
        if is_secret {
            all.push(str_at(it, "azureFile.secretName"));
        }
        // All other volume plugins reference a Secret in one of these two ways.
        for source in it.as_object().filter(|_| is_secret).into_iter().flat_map(|it| it.values()) {
            all.extend(["secretRef.name", "nodePublishSecretRef.name"].map(|it| str_at(source, it)));
        }
    }
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    for container in containers.iter().flat_map(|it| list_at(spec, it)) {
        all.extend(list_at(container, "env").iter().map(|it| str_at(&it["valueFrom"][env], "name")));
        all.extend(list_at(container, "envFrom").iter().map(|it| str_at(&it[env_from], "name")));
    }
    if is_secret {
        all.extend(list_at(spec, "imagePullSecrets").iter().map(|it| str_at(it, "name")));
    }
    all.retain(|it| !it.is_empty());
    all
}
