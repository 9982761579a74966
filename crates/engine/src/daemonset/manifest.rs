//! Builds the API objects and patches that the DaemonSet controller writes, such as pods, ControllerRevisions and the
//! patches that adopt them. Pod templates are not decoded, so that fields unknown to this controller are copied from
//! the DaemonSet to its pods.
/// Builds the verb, path and body of the HTTP request for each [`PlannedCall`](crate::daemonset::execution::PlannedCall).
mod call;

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use muster_api::go_json;
use muster_api::muster_v1alpha1;
use muster_api::time::Time;
use muster_api::well_known::{
    ANNOTATION_VERDICT, ANNOTATION_VERDICT_REASON, ANNOTATION_VERDICT_TIME, LABEL_CONTROLLER_REVISION_HASH,
    LABEL_POD_TEMPLATE_GENERATION, TAINT_NODE_DISK_PRESSURE, TAINT_NODE_MEMORY_PRESSURE,
    TAINT_NODE_NETWORK_UNAVAILABLE, TAINT_NODE_NOT_READY, TAINT_NODE_PID_PRESSURE, TAINT_NODE_UNREACHABLE,
    TAINT_NODE_UNSCHEDULABLE,
};
use serde_json::{Map, Value, json};

use crate::controller::new_controller_ref;
use crate::daemonset::progressive::verdict::RevisionVerdict;

pub use call::{
    ASSIST_FIELD_MANAGER, CONTROLLER_FIELD_MANAGER, CallTarget, EncodedPod, call_body, call_path,
    call_target, call_verb, label_selector_query, status_body,
};

/// Key of the label that holds the revision hash of a pod or ControllerRevision.
pub const REVISION_HASH_LABEL: &str = LABEL_CONTROLLER_REVISION_HASH;
/// Key of the pod label that holds the template generation, by which Kubernetes recognized up-to-date pods before
/// ControllerRevisions existed. Pods get this label only if their DaemonSet has the annotation
/// `deprecated.daemonset.template.generation`.
pub const TEMPLATE_GENERATION_LABEL: &str = LABEL_POD_TEMPLATE_GENERATION;
/// Value of `schedulerName` in pods that the DaemonSet controller, instead of the scheduler, binds to their node.
pub const DIRECT_BINDING_SCHEDULER_NAME: &str = "kubernetes.io/daemonset-controller";

/// The DaemonSet that owns the objects that this module builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// How a daemon pod is bound to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The scheduler binds the pod. The pod's node affinity allows one node only.
    Scheduler,
    /// The DaemonSet controller sets `spec.nodeName` when it creates the pod.
    Direct,
}

/// Builds the pod that a DaemonSet creates on a node. If `hash` is empty, the pod gets no revision hash label.
///
/// Rule: a daemon pod is the template plus the revision hash label, the template generation label (if any), the owner
/// reference, the automatic tolerations and its node. The node is set as required node affinity
/// ([`Binding::Scheduler`]), or as `nodeName` with [`DIRECT_BINDING_SCHEDULER_NAME`] as `schedulerName`
/// ([`Binding::Direct`]). Labels, annotations, finalizers and all other spec fields are copied from the template
/// without being decoded.
/// Upstream: `CreatePodTemplate`, `GetPodFromTemplate`.
pub fn daemon_pod(
    owner: Owner<'_>,
    template: &Value,
    node: &str,
    hash: &str,
    template_generation: Option<i64>,
    binding: Binding,
) -> Value {
    let mut labels = template_labels(template);
    if let Some(generation) = template_generation {
        labels.insert(TEMPLATE_GENERATION_LABEL.to_string(), generation.to_string().into());
    }
    if !hash.is_empty() {
        labels.insert(REVISION_HASH_LABEL.to_string(), hash.into());
    }

    let mut metadata = Map::new();
    metadata.insert("generateName".to_string(), format!("{}-", owner.name).into());
    metadata.insert("namespace".to_string(), owner.namespace.into());
    metadata.insert("labels".to_string(), labels.into());
    metadata.insert("ownerReferences".to_string(), json!([owner_reference(owner)]));
    for key in ["annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key).filter(|it| !it.is_null()) {
            metadata.insert(key.to_string(), value.clone());
        }
    }

    let mut spec = template["spec"].as_object().cloned().unwrap_or_default();
    add_automatic_tolerations(&mut spec);
    match binding {
        Binding::Scheduler => pin_to_node(&mut spec, node),
        Binding::Direct => {
            spec.insert("nodeName".to_string(), node.into());
            spec.insert("schedulerName".to_string(), DIRECT_BINDING_SCHEDULER_NAME.into());
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// A toleration that the controller adds to daemon pods. Its operator is `Exists`, and it has no time limit
/// (`tolerationSeconds`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutomaticToleration {
    /// Key of the taint that the pod tolerates.
    pub key: &'static str,
    /// Effect of the taint that the pod tolerates.
    pub effect: &'static str,
}

/// Tolerations that every daemon pod gets, in upstream's order. With them, daemon pods are not evicted from a node that
/// is not ready or unreachable, and are created on nodes that are cordoned or under pressure.
pub const AUTOMATIC_TOLERATIONS: [AutomaticToleration; 6] = [
    AutomaticToleration { key: TAINT_NODE_NOT_READY, effect: "NoExecute" },
    AutomaticToleration { key: TAINT_NODE_UNREACHABLE, effect: "NoExecute" },
    AutomaticToleration { key: TAINT_NODE_DISK_PRESSURE, effect: "NoSchedule" },
    AutomaticToleration { key: TAINT_NODE_MEMORY_PRESSURE, effect: "NoSchedule" },
    AutomaticToleration { key: TAINT_NODE_PID_PRESSURE, effect: "NoSchedule" },
    AutomaticToleration { key: TAINT_NODE_UNSCHEDULABLE, effect: "NoSchedule" },
];

/// Toleration that only pods with `hostNetwork` get, because such pods often set up the node's network.
pub const HOST_NETWORK_TOLERATION: AutomaticToleration =
    AutomaticToleration { key: TAINT_NODE_NETWORK_UNAVAILABLE, effect: "NoSchedule" };

/// Returns [`AUTOMATIC_TOLERATIONS`] and, with `host_network`, also [`HOST_NETWORK_TOLERATION`].
///
/// Rule: the controller adds these tolerations to daemon pods, and placement uses the same list to decide which nodes
/// should run a pod. With two different lists, the controller might create and delete a pod again and again.
/// Upstream: `AddOrUpdateDaemonPodTolerations`.
pub fn automatic_tolerations(host_network: bool) -> impl Iterator<Item = AutomaticToleration> {
    AUTOMATIC_TOLERATIONS.into_iter().chain(host_network.then_some(HOST_NETWORK_TOLERATION))
}

/// Builds the ControllerRevision that records a template.
///
/// Rule: a ControllerRevision is named `<name of the DaemonSet>-<hash>`. It has the labels of the template, and the
/// revision hash label. It has the annotations of the DaemonSet, from which `kubectl rollout history` reads the change
/// cause. Exception: annotations that store a verdict about a revision (see [`verdict_patch`]) are left out.
///
/// Encode the result with `go_json::to_string`, because the API server stores the bytes of `data` as received, and
/// upstream compares those bytes.
/// Upstream: `snapshot`.
pub fn controller_revision(
    owner: Owner<'_>,
    annotations: &Value,
    template: &Value,
    hash: &str,
    revision: i64,
) -> Value {
    let mut labels = template_labels(template);
    labels.insert(REVISION_HASH_LABEL.to_string(), hash.into());
    let mut metadata = Map::new();
    metadata.insert("name".to_string(), format!("{}-{hash}", owner.name).into());
    metadata.insert("namespace".to_string(), owner.namespace.into());
    metadata.insert("labels".to_string(), labels.into());
    metadata.insert("ownerReferences".to_string(), json!([owner_reference(owner)]));
    // A verdict is about one revision: one that a user copied to the DaemonSet is not about the new revision.
    let is_copied =
        |key: &str| ![ANNOTATION_VERDICT, ANNOTATION_VERDICT_TIME, ANNOTATION_VERDICT_REASON].contains(&key);
    let annotations = annotations.as_object().into_iter().flatten().filter(|(key, _)| is_copied(key));
    let annotations: Map<String, Value> = annotations.map(|(key, it)| (key.clone(), it.clone())).collect();
    if !annotations.is_empty() {
        metadata.insert("annotations".to_string(), annotations.into());
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": restore_template_patch(template),
        "revision": revision,
    })
}

/// Returns the `data` of the ControllerRevision for a template, as JSON text.
///
/// Rule: the data of a ControllerRevision is the strategic merge patch that restores the recorded template in the
/// DaemonSet.
/// Upstream: `getPatch`.
pub fn revision_data(template: &Value) -> String {
    go_json::to_string(&restore_template_patch(template))
}

/// Returns the hash of a template, which becomes part of the name of its revision and the revision hash label of its
/// pods.
///
/// Rule: the hash of a revision is a short name for its template. The DaemonSet's `collisionCount` (`collisions`)
/// changes the hash when another template has the same hash. The hash never decides whether two templates are equal.
///
/// Upstream hashes a dump of a Go struct, but this function hashes the JSON. So upstream's controller computes another
/// hash for the same template, and no code may rely on equal hashes. Upstream: `ComputeHash`.
pub fn revision_hash(template: &Value, collisions: Option<i32>) -> String {
    let text = go_json::to_string(template);
    // Upstream writes the 32-bit collision count into an eight-byte buffer.
    let collisions = collisions.map(|it| (u64::from(it.cast_unsigned())).to_le_bytes());
    let sum = fnv1a_32(text.bytes().chain(collisions.into_iter().flatten()));
    safe_encode(&sum.to_string())
}

/// Returns the patch that makes the DaemonSet the controller of an object. `uid` and `resource_version` are those of
/// the object.
///
/// Rule: the adoption patch, a strategic merge patch, adds the DaemonSet's owner reference and keeps the other owner
/// references. The UID makes the patch fail on another object with the same name. The resource version makes the patch
/// fail on an object that changed since it was read.
/// Upstream: `ownerRefControllerPatch`.
pub fn adopt_patch(owner: Owner<'_>, uid: &str, resource_version: &str) -> Value {
    let mut patch = precondition_metadata(uid, resource_version);
    patch.insert("ownerReferences".to_string(), json!([owner_reference(owner)]));
    json!({"metadata": patch})
}

/// Returns the patch that ends the DaemonSet's ownership of an object. `owner_uid` is the UID of the DaemonSet.
///
/// Rule: the release patch, a strategic merge patch, removes the DaemonSet's owner reference and keeps the other owner
/// references.
/// Upstream: `GenerateDeleteOwnerRefStrategicMergeBytes`.
pub fn release_patch(owner_uid: &str, uid: &str, resource_version: &str) -> Value {
    let mut patch = precondition_metadata(uid, resource_version);
    patch.insert("ownerReferences".to_string(), json!([{"$patch": "delete", "uid": owner_uid}]));
    json!({"metadata": patch})
}

/// Returns the patch that sets the revision hash label of an object.
///
/// Rule: pods of a duplicate revision get the hash label of the revision that is kept, by a merge patch.
/// Upstream: `dedupCurHistories`.
pub fn relabel_patch(hash: &str, uid: &str, resource_version: &str) -> Value {
    let mut patch = precondition_metadata(uid, resource_version);
    patch.insert("labels".to_string(), json!({ REVISION_HASH_LABEL: hash }));
    json!({"metadata": patch})
}

/// Returns the patch that sets the revision number of a ControllerRevision.
///
/// Rule: a revision that becomes current again gets the next revision number, by a merge patch.
/// Upstream: `constructHistory`.
pub fn renumber_patch(revision: i64, uid: &str, resource_version: &str) -> Value {
    json!({"metadata": precondition_metadata(uid, resource_version), "revision": revision})
}

/// Returns the patch that sets the revision hash label of a ControllerRevision to the name of the ControllerRevision.
///
/// Rule: a revision without a hash label gets its own name as hash label, by a merge patch. No other revision of the
/// namespace has that name.
/// Upstream: `constructHistory`.
pub fn label_revision_patch(name: &str, uid: &str, resource_version: &str) -> Value {
    relabel_patch(name, uid, resource_version)
}

/// Returns the patch that stores the verdict about a revision, or removes it if `verdict` is `None`.
///
/// Rule: the verdict of a progressive rollout is stored in annotations of the ControllerRevision, by a merge patch.
pub fn verdict_patch(
    verdict: Option<RevisionVerdict>,
    reason: &str,
    at: Time,
    uid: &str,
    resource_version: &str,
) -> Value {
    let mut metadata = precondition_metadata(uid, resource_version);
    let annotations = match verdict {
        Some(verdict) => json!({
            ANNOTATION_VERDICT: verdict.as_str(),
            ANNOTATION_VERDICT_TIME: at.to_rfc3339(),
            ANNOTATION_VERDICT_REASON: reason,
        }),
        None => json!({
            ANNOTATION_VERDICT: null,
            ANNOTATION_VERDICT_TIME: null,
            ANNOTATION_VERDICT_REASON: null,
        }),
    };
    metadata.insert("annotations".to_string(), annotations);
    json!({"metadata": metadata})
}

/// Returns the JSON of the DaemonRollout that the controller creates for a DaemonSet.
///
/// Rule: a DaemonRollout has the name of its DaemonSet. The DaemonSet owns the DaemonRollout, but is not its
/// controller. The garbage collector deletes the DaemonRollout when the DaemonSet is deleted.
pub fn daemon_rollout(owner: Owner<'_>) -> Value {
    let reference =
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner.name, "uid": owner.uid});
    json!({
        "apiVersion": muster_v1alpha1::API_VERSION,
        "kind": "DaemonRollout",
        "metadata": {"namespace": owner.namespace, "name": owner.name, "ownerReferences": [reference]},
        "spec": {},
    })
}

/// Adds the automatic tolerations to a pod spec.
///
/// Rule: an automatic toleration replaces the template's toleration with the same key, effect, operator and value. So a
/// time limit of the template's toleration is lost. If the template has no such toleration, the automatic toleration is
/// appended. The order of the tolerations is kept.
/// Upstream: `AddOrUpdateTolerationInPodSpec`.
pub(crate) fn add_automatic_tolerations(spec: &mut Map<String, Value>) {
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
    let mut tolerations: Vec<Value> = match spec.remove("tolerations") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    for AutomaticToleration { key, effect } in automatic_tolerations(host_network) {
        let wanted = json!({"key": key, "operator": "Exists", "effect": effect});
        let mut found = false;
        for toleration in &mut tolerations {
            let text = |field: &str| toleration[field].as_str().unwrap_or_default();
            if text("key") == key
                && text("effect") == effect
                && text("operator") == "Exists"
                && text("value").is_empty()
            {
                *toleration = wanted.clone();
                found = true;
            }
        }
        if !found {
            tolerations.push(wanted);
        }
    }
    spec.insert("tolerations".to_string(), tolerations.into());
}

/// Sets the required node affinity of a pod spec so that the pod fits only on `node`.
///
/// Rule: a term that matches only the target node replaces the template's required node affinity, because placement has
/// already checked the template's affinity. Preferred node affinity and pod affinity stay.
/// Upstream: `ReplaceDaemonSetPodNodeNameNodeAffinity`.
fn pin_to_node(spec: &mut Map<String, Value>, node: &str) {
    /// Field of `nodeAffinity` that holds the required terms.
    const REQUIRED_AFFINITY_FIELD: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let mut affinity = remove_object(spec, "affinity");
    let mut node_affinity = remove_object(&mut affinity, "nodeAffinity");
    let mut required = remove_object(&mut node_affinity, REQUIRED_AFFINITY_FIELD);
    required.insert("nodeSelectorTerms".to_string(), json!([node_name_term(node)]));
    node_affinity.insert(REQUIRED_AFFINITY_FIELD.to_string(), required.into());
    affinity.insert("nodeAffinity".to_string(), node_affinity.into());
    spec.insert("affinity".to_string(), affinity.into());
}

/// Returns a node selector term that matches one node by name.
pub(crate) fn node_name_term(node: &str) -> Value {
    json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]})
}

/// Removes the value at `key` and returns it. Returns an empty object if there is no value, or if it is not an object.
fn remove_object(fields: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match fields.remove(key) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

/// Returns the labels of a pod template. Empty if it has none.
fn template_labels(template: &Value) -> Map<String, Value> {
    template["metadata"]["labels"].as_object().cloned().unwrap_or_default()
}

/// Returns the owner reference of pods and ControllerRevisions of the DaemonSet.
///
/// Rule: the DaemonSet is the controller of its pods and ControllerRevisions. A foreground deletion of the DaemonSet
/// waits until these objects are deleted.
fn owner_reference(owner: Owner<'_>) -> Value {
    new_controller_ref("apps/v1", "DaemonSet", owner.name, owner.uid)
}

/// Returns the strategic merge patch that restores a template: the `data` of a ControllerRevision.
fn restore_template_patch(template: &Value) -> Value {
    let mut template = template.as_object().cloned().unwrap_or_default();
    template.insert("$patch".to_string(), "replace".into());
    json!({"spec": {"template": template}})
}

/// Returns the metadata of a patch, with UID and resource version as preconditions, so that the patch fails on any
/// other object or version.
fn precondition_metadata(uid: &str, resource_version: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("uid".to_string(), uid.into());
    metadata.insert("resourceVersion".to_string(), resource_version.into());
    metadata
}

/// Returns the 32-bit FNV-1a hash of the bytes.
fn fnv1a_32(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Replaces each character of a hash with a character of a safe alphabet.
///
/// Rule: a hash is encoded in an alphabet without vowels and without digits that resemble vowels, so that the hash
/// spells no word.
/// Upstream: `rand.SafeEncodeString`.
fn safe_encode(text: &str) -> String {
    const SAFE_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    text.bytes().map(|byte| char::from(SAFE_ALPHABET[usize::from(byte) % SAFE_ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests;
