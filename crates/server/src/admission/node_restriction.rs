//! Restricts a node's writes to Nodes, Leases, pods, service account tokens and CertificateSigningRequests to those
//! that concern the node itself. Upstream: `NodeRestriction`.

use serde_json::Value;

use crate::auth::{AccessControl, node_authorizer};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::pki::CertificateRequest;
use crate::request::{RequestTarget, User};
use crate::unstructured::{self, is_set, list_at, str_at};
use muster_api::well_known::{
    ANNOTATION_CONFIG_MIRROR, API_GROUP_CERTIFICATES, KUBELET_LABELS, NAMESPACE_NODE_LEASE,
    SIGNER_KUBELET_CLIENT, SIGNER_KUBELET_SERVING, USER_NODE_PREFIX,
};

/// Domains below `kubernetes.io` in which a node may set labels on its Node. Subdomains are allowed too.
const ALLOWED_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// A write that [`check_node_write`] checks: the operation and its objects. `new` is the object as written, and `old`
/// is the stored object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeWrite<'a> {
    Create { new: &'a Value },
    Update { new: &'a Value, old: &'a Value },
    Delete,
}

/// Checks whether a node may perform a write. Refuses all writes by a user in the group `system:nodes` whose name is
/// not that of a node. Writes by users outside that group are not checked.
///
/// Rule: a node may write its Node (but not change taints or owner references, and set only some labels), its Lease,
/// and the status of pods bound to it. It may delete and evict those pods, create mirror pods on itself, and create
/// tokens for those pods. A kubelet certificate that a node requests must have the name of that node. Writes to other
/// kinds are left to RBAC.
pub(crate) fn check_node_write(
    access: &AccessControl,
    user: &User,
    target: &RequestTarget,
    subresource: &str,
    write: NodeWrite<'_>,
) -> Result<(), ApiError> {
    if user.is_unknown_node() {
        let why = "could not determine node from user: it is in the group system:nodes, and its name is not system:node: and a node's name";
        return Err(ApiError::forbidden(target.kind, &target.name, why));
    }
    let Some(node) = user.node_name() else { return Ok(()) };
    let object_name = match write {
        NodeWrite::Create { new } | NodeWrite::Update { new, .. } => str_at(new, "metadata.name"),
        NodeWrite::Delete => "",
    };
    let name = if target.name.is_empty() { object_name } else { &target.name };
    let checked = match target.kind.resource() {
        ("", "pods") => check_pod_write(access, node, target, subresource, write),
        ("", "nodes") => check_node_object_write(node, name, write),
        ("", "serviceaccounts") if subresource == "token" => check_token_request(access, node, target, write),
        ("coordination.k8s.io", "leases") => {
            if target.namespace.as_deref() != Some(NAMESPACE_NODE_LEASE) {
                Err(format!("can only access leases in the {NAMESPACE_NODE_LEASE:?} system namespace"))
            } else if name != node {
                Err("can only access node lease with the same name as the requesting node".to_owned())
            } else {
                Ok(())
            }
        }
        (API_GROUP_CERTIFICATES, "certificatesigningrequests") => check_signing_request(node, write),
        _ => Ok(()),
    };
    checked.map_err(|why| ApiError::forbidden(target.kind, name, &why))
}

/// Checks a node's write to a pod or to a subresource of a pod. The error is the reason for the refusal.
fn check_pod_write(
    access: &AccessControl,
    node: &str,
    target: &RequestTarget,
    subresource: &str,
    write: NodeWrite<'_>,
) -> Result<(), String> {
    let stored_pod = || {
        let stored = access.storage.find(target.kind, target.namespace.as_deref(), &target.name);
        stored.map(|it| unstructured::parse_stored(&it))
    };
    let is_on_node = |pod: &Value| str_at(pod, "spec.nodeName") == node;
    match (subresource, write) {
        ("", NodeWrite::Create { new }) => check_mirror_pod(access, node, new),
        // A missing pod passes: the registry answers with 404.
        ("", NodeWrite::Delete) if stored_pod().is_none_or(|it| is_on_node(&it)) => Ok(()),
        ("", NodeWrite::Delete) => {
            Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        ("", NodeWrite::Update { .. }) => Err(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        ("status", NodeWrite::Update { old, .. }) if !is_on_node(old) => {
            Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"))
        }
        ("status", NodeWrite::Update { new, old }) => {
            let labels = |it: &Value| it["metadata"]["labels"].clone();
            if labels(new) == labels(old) {
                Ok(())
            } else {
                Err(format!("node {node:?} cannot update labels through pod status"))
            }
        }
        ("eviction", _) if stored_pod().is_none_or(|it| is_on_node(&it)) => Ok(()),
        ("eviction", _) => Err(format!("node {node} can only evict pods with spec.nodeName set to itself")),
        (subresource, _) => Err(format!(
            "unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

/// Checks a pod that a node creates. The pod must be a mirror pod that is bound to the node. The Node must be its
/// controller and only owner, without `blockOwnerDeletion`. The pod must not reference Secrets, ConfigMaps, service
/// accounts or resource claims, and must not have volumes of the types `persistentVolumeClaim`, `projected`, `csi` or
/// `ephemeral`. The error is the reason for the refusal.
fn check_mirror_pod(access: &AccessControl, node: &str, pod: &Value) -> Result<(), String> {
    if pod["metadata"]["annotations"].get(ANNOTATION_CONFIG_MIRROR).is_none() {
        return Err(format!(
            "pod does not have {ANNOTATION_CONFIG_MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if str_at(pod, "spec.nodeName") != node {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owner = match list_at(&pod["metadata"], "ownerReferences") {
        [one] => one,
        [] => {
            return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        _ => {
            return Err(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return Err(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let nodes = Kind::builtin("", "v1", "nodes");
    let stored = access.storage.find(nodes, None, node).ok_or_else(|| format!("nodes {node:?} not found"))?;
    let stored = unstructured::parse_stored(&stored);
    let (uid, referenced_uid) = (str_at(&stored, "metadata.uid"), str_at(owner, "uid"));
    if uid != referenced_uid {
        return Err(format!("node {node} UID mismatch: expected {referenced_uid} got {uid}"));
    }
    // A reference would let the node read objects that it is not authorized to read.
    if let Some(plural) = ["secrets", "configmaps"]
        .iter()
        .find(|it| !node_authorizer::names_referenced_by_pod(&pod["spec"], it).is_empty())
    {
        return Err(format!("node {node:?} can not create pods that reference {plural}"));
    }
    for field in ["serviceAccountName", "resourceClaims"] {
        if is_set(&pod["spec"][field]) {
            return Err(format!("node {node:?} can not create pods that reference {}", field.to_lowercase()));
        }
    }
    let sources = ["persistentVolumeClaim", "projected", "csi", "ephemeral"];
    for volume in list_at(&pod["spec"], "volumes") {
        if let Some(source) = sources.iter().find(|it| is_set(&volume[**it])) {
            return Err(format!(
                "node {node:?} can not create pods that reference {}s",
                source.to_lowercase()
            ));
        }
    }
    Ok(())
}

/// Checks a write that the kubelet of the node `node` makes to the Node object `name`. The two names must be equal. The
/// kubelet must not set or change the labels that [`forbidden_label_changes`] returns. An update must not change taints
/// or owner references. The error is the reason for the refusal.
fn check_node_object_write(node: &str, name: &str, write: NodeWrite<'_>) -> Result<(), String> {
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    match write {
        NodeWrite::Delete => Ok(()),
        NodeWrite::Create { new } => {
            let labels = forbidden_label_changes(&new["metadata"]["labels"], &Value::Null);
            if labels.is_empty() {
                return Ok(());
            }
            Err(format!("node {node:?} is not allowed to set the following labels: {}", labels.join(", ")))
        }
        NodeWrite::Update { new, old } => {
            if list_at(&new["spec"], "taints") != list_at(&old["spec"], "taints") {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            if list_at(&new["metadata"], "ownerReferences") != list_at(&old["metadata"], "ownerReferences") {
                return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let labels = forbidden_label_changes(&new["metadata"]["labels"], &old["metadata"]["labels"]);
            if labels.is_empty() {
                return Ok(());
            }
            Err(format!("is not allowed to modify labels: {}", labels.join(", ")))
        }
    }
}

/// Returns the sorted keys of the labels that differ between `new` and `old` and that a node may not change.
fn forbidden_label_changes(new: &Value, old: &Value) -> Vec<String> {
    let keys =
        |it: &Value| it.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    let mut changed: Vec<String> =
        keys(new).into_iter().chain(keys(old)).filter(|it| new.get(it) != old.get(it)).collect();
    changed.sort();
    changed.dedup();
    let is_under = |domain: &str, of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    changed.retain(|key| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_reserved = ["kubernetes.io", "k8s.io"].iter().any(|it| is_under(domain, it));
        let is_allowed = KUBELET_LABELS.contains(&key.as_str())
            || ALLOWED_LABEL_DOMAINS.iter().any(|it| is_under(domain, it));
        is_under(domain, "node-restriction.kubernetes.io") || (is_reserved && !is_allowed)
    });
    changed
}

/// Checks a TokenRequest that a node creates. The token must be bound to a pod on that node. The request must name at
/// most one audience. A volume of the pod must request a token with that audience, or without an audience if the
/// request names none. The error is the reason for the refusal.
fn check_token_request(
    access: &AccessControl,
    node: &str,
    target: &RequestTarget,
    write: NodeWrite<'_>,
) -> Result<(), String> {
    let NodeWrite::Create { new: request } = write else { return Ok(()) };
    let bound = &request["spec"]["boundObjectRef"];
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || !is_set(&bound["name"]) {
        return Err("node requested token not bound to a pod".to_owned());
    }
    let uid = str_at(bound, "uid");
    if uid.is_empty() {
        return Err("node requested token with a pod binding without a uid".to_owned());
    }
    let pods = Kind::builtin("", "v1", "pods");
    let name = str_at(bound, "name");
    let stored = access.storage.find(pods, target.namespace.as_deref(), name);
    let pod = unstructured::parse_stored(&stored.ok_or_else(|| format!("pods {name:?} not found"))?);
    if str_at(&pod, "metadata.uid") != uid {
        return Err(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if str_at(&pod, "spec.nodeName") != node {
        return Err("node requested token bound to a pod scheduled on a different node".to_owned());
    }
    let audience = match list_at(&request["spec"], "audiences") {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".to_owned()),
    };
    let sources = list_at(&pod["spec"], "volumes").iter().flat_map(|it| list_at(&it["projected"], "sources"));
    let mut tokens = sources.filter_map(|it| it.get("serviceAccountToken"));
    if tokens.any(|it| str_at(it, "audience") == audience) {
        return Ok(());
    }
    Err(format!(
        "audience {audience:?} not found in pod spec volume, system:node:{node} is not authorized to request tokens for this \
         audience"
    ))
}

/// Checks a CertificateSigningRequest that a node creates. If it asks for a kubelet certificate (serving or client),
/// its common name must be the user name of the node (`system:node:NAME`). Requests to all other signers pass. The
/// error is the reason for the refusal.
fn check_signing_request(node: &str, write: NodeWrite<'_>) -> Result<(), String> {
    let NodeWrite::Create { new } = write else { return Ok(()) };
    let signer = str_at(new, "spec.signerName");
    if !matches!(signer, SIGNER_KUBELET_SERVING | SIGNER_KUBELET_CLIENT) {
        return Ok(());
    }
    let request =
        CertificateRequest::from_object(new).map_err(|error| format!("unable to parse csr: {error}"))?;
    if request.common_name == format!("{USER_NODE_PREFIX}{node}") {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN={USER_NODE_PREFIX}{node}"))
}
