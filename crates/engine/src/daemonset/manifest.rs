//! Decisions become API objects here, and nowhere else. Templates travel as JSON, so that fields which only
//! a newer cluster knows survive the way from the set to its pods.
mod call;

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use muster_api::go_json;
use muster_api::well_known::{
    LABEL_CONTROLLER_REVISION_HASH, LABEL_POD_TEMPLATE_GENERATION, TAINT_NODE_DISK_PRESSURE,
    TAINT_NODE_MEMORY_PRESSURE, TAINT_NODE_NETWORK_UNAVAILABLE, TAINT_NODE_NOT_READY,
    TAINT_NODE_PID_PRESSURE, TAINT_NODE_UNREACHABLE, TAINT_NODE_UNSCHEDULABLE,
};
use serde_json::{Map, Value, json};

pub use call::{Stencil, Target, body, label_selector, path, status_body, target, verb};

/// The label that says of which revision a pod, or a ControllerRevision, is.
pub const HASH_LABEL: &str = LABEL_CONTROLLER_REVISION_HASH;
/// The label of the time before revisions; kept for sets that still carry the annotation.
pub const GENERATION_LABEL: &str = LABEL_POD_TEMPLATE_GENERATION;
/// Who binds a pod that never passes a scheduler.
pub const DIRECT_SCHEDULER: &str = "kubernetes.io/daemonset-controller";

/// The DaemonSet that owns what is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// Who puts the pod on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The scheduler, which is told the one node it may choose.
    Scheduler,
    /// We do, by `spec.nodeName`.
    Direct,
}

/// Rule: a daemon pod is the template with its revision in the labels, its owner, the automatic tolerations
/// and its node; everything else is the template's, unread.
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
        labels.insert(GENERATION_LABEL.to_string(), generation.to_string().into());
    }
    if !hash.is_empty() {
        labels.insert(HASH_LABEL.to_string(), hash.into());
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
    tolerate(&mut spec);
    match binding {
        Binding::Scheduler => pin(&mut spec, node),
        Binding::Direct => {
            spec.insert("nodeName".to_string(), node.into());
            spec.insert("schedulerName".to_string(), DIRECT_SCHEDULER.into());
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// A toleration (operator `Exists`, for ever) that every daemon pod gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Automatic {
    pub key: &'static str,
    pub effect: &'static str,
}

/// Trouble of a node that must not send its daemons away, nor keep them from coming. Upstream's order.
pub const AUTOMATIC: [Automatic; 6] = [
    Automatic { key: TAINT_NODE_NOT_READY, effect: "NoExecute" },
    Automatic { key: TAINT_NODE_UNREACHABLE, effect: "NoExecute" },
    Automatic { key: TAINT_NODE_DISK_PRESSURE, effect: "NoSchedule" },
    Automatic { key: TAINT_NODE_MEMORY_PRESSURE, effect: "NoSchedule" },
    Automatic { key: TAINT_NODE_PID_PRESSURE, effect: "NoSchedule" },
    Automatic { key: TAINT_NODE_UNSCHEDULABLE, effect: "NoSchedule" },
];

/// Only for pods on the host's network: they are often what brings the node's network up.
pub const AUTOMATIC_ON_HOST_NETWORK: Automatic =
    Automatic { key: TAINT_NODE_NETWORK_UNAVAILABLE, effect: "NoSchedule" };

/// Rule: what a daemon pod tolerates without asking. Placement decides by this list and pods are made with
/// it: two lists would let one side evict for ever what the other side recreates.
/// Upstream: `AddOrUpdateDaemonPodTolerations`.
pub fn automatic_tolerations(host_network: bool) -> impl Iterator<Item = Automatic> {
    AUTOMATIC.into_iter().chain(host_network.then_some(AUTOMATIC_ON_HOST_NETWORK))
}

/// Rule: a revision is named after set and hash, labelled like its pods, and carries the set's annotations,
/// from which `kubectl rollout history` reads the cause of the change.
///
/// Send it as `go_json::to_string` spells it: the server keeps the bytes of `data` as they came, and
/// upstream compares those. Upstream: `snapshot`.
pub fn controller_revision(
    owner: Owner<'_>,
    annotations: &Value,
    template: &Value,
    hash: &str,
    revision: i64,
) -> Value {
    let mut labels = template_labels(template);
    labels.insert(HASH_LABEL.to_string(), hash.into());
    let mut metadata = Map::new();
    metadata.insert("name".to_string(), format!("{}-{hash}", owner.name).into());
    metadata.insert("namespace".to_string(), owner.namespace.into());
    metadata.insert("labels".to_string(), labels.into());
    metadata.insert("ownerReferences".to_string(), json!([owner_reference(owner)]));
    if annotations.as_object().is_some_and(|it| !it.is_empty()) {
        metadata.insert("annotations".to_string(), annotations.clone());
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": revision_patch(template),
        "revision": revision,
    })
}

/// Rule: a revision's data is the strategic merge patch that puts its template back in place.
/// Upstream: `getPatch`.
pub fn revision_data(template: &Value) -> String {
    go_json::to_string(&revision_patch(template))
}

/// Rule: a revision's hash is a short name for its template, and the collision count moves it out of the way
/// of another template of the same name. It never decides whether two templates are equal.
///
/// Upstream hashes a dump of a Go struct, we the JSON: the names differ, and nothing may rely on them.
/// Upstream: `ComputeHash`.
pub fn revision_hash(template: &Value, collisions: Option<i32>) -> String {
    let text = go_json::to_string(template);
    // Eight bytes for a four-byte number, as upstream has it.
    let collisions = collisions.map(|it| (u64::from(it.cast_unsigned())).to_le_bytes());
    let sum = fnv1a_32(text.bytes().chain(collisions.into_iter().flatten()));
    safe_encode(&sum.to_string())
}

/// Rule: adopting adds our reference to the others; the uid makes it fail on another object of the same
/// name, the resourceVersion on one that changed since we looked. A strategic merge patch.
/// Upstream: `ownerRefControllerPatch`.
pub fn adopt_patch(owner: Owner<'_>, uid: &str, resource_version: &str) -> Value {
    let mut patch = guarded(uid, resource_version);
    patch.insert("ownerReferences".to_string(), json!([owner_reference(owner)]));
    json!({"metadata": patch})
}

/// Rule: releasing takes away our reference and leaves the others. A strategic merge patch.
/// Upstream: `GenerateDeleteOwnerRefStrategicMergeBytes`.
pub fn release_patch(owner_uid: &str, uid: &str, resource_version: &str) -> Value {
    let mut patch = guarded(uid, resource_version);
    patch.insert("ownerReferences".to_string(), json!([{"$patch": "delete", "uid": owner_uid}]));
    json!({"metadata": patch})
}

/// Rule: a pod of a revision that was folded into another says so in its label. A merge patch.
/// Upstream: `dedupCurHistories`.
pub fn relabel_patch(hash: &str, uid: &str, resource_version: &str) -> Value {
    let mut patch = guarded(uid, resource_version);
    patch.insert("labels".to_string(), json!({ HASH_LABEL: hash }));
    json!({"metadata": patch})
}

/// Rule: a revision that becomes the current one again gets the next number. A merge patch.
/// Upstream: `constructHistory`.
pub fn renumber_patch(revision: i64, uid: &str, resource_version: &str) -> Value {
    json!({"metadata": guarded(uid, resource_version), "revision": revision})
}

/// Rule: a revision without a hash label takes its own name as hash, which no other can have.
/// A merge patch. Upstream: `constructHistory`.
pub fn label_revision_patch(name: &str, uid: &str, resource_version: &str) -> Value {
    relabel_patch(name, uid, resource_version)
}

/// Rule: an automatic toleration takes the place of the template's one with the same key, effect, operator
/// and value (it may have been for a limited time only), or comes last. The order is kept.
/// Upstream: `AddOrUpdateTolerationInPodSpec`.
pub(crate) fn tolerate(spec: &mut Map<String, Value>) {
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
    let mut tolerations: Vec<Value> = match spec.remove("tolerations") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    for Automatic { key, effect } in automatic_tolerations(host_network) {
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

/// Rule: the one node replaces whatever the template required of nodes, since placement has already held
/// that against the node; what it prefers, and what it says of other pods, stays.
/// Upstream: `ReplaceDaemonSetPodNodeNameNodeAffinity`.
fn pin(spec: &mut Map<String, Value>, node: &str) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let mut affinity = take_object(spec, "affinity");
    let mut node_affinity = take_object(&mut affinity, "nodeAffinity");
    let mut required = take_object(&mut node_affinity, REQUIRED);
    required.insert("nodeSelectorTerms".to_string(), json!([only_on(node)]));
    node_affinity.insert(REQUIRED.to_string(), required.into());
    affinity.insert("nodeAffinity".to_string(), node_affinity.into());
    spec.insert("affinity".to_string(), affinity.into());
}

/// The term that only one node matches.
pub(crate) fn only_on(node: &str) -> Value {
    json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]})
}

/// Takes the object at `key` out, or an empty one where there is none.
fn take_object(fields: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match fields.remove(key) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

fn template_labels(template: &Value) -> Map<String, Value> {
    template["metadata"]["labels"].as_object().cloned().unwrap_or_default()
}

/// Rule: the set is the one controller of what it made, and its foreground deletion waits for it.
fn owner_reference(owner: Owner<'_>) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": owner.name,
        "uid": owner.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn revision_patch(template: &Value) -> Value {
    let mut template = template.as_object().cloned().unwrap_or_default();
    template.insert("$patch".to_string(), "replace".into());
    json!({"spec": {"template": template}})
}

/// Metadata that makes a patch fail unless the object is the one we looked at.
fn guarded(uid: &str, resource_version: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("uid".to_string(), uid.into());
    metadata.insert("resourceVersion".to_string(), resource_version.into());
    metadata
}

fn fnv1a_32(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Rule: no vowels, and nothing that reads like them, so that no hash spells a word.
/// Upstream: `rand.SafeEncodeString`.
fn safe_encode(text: &str) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    text.bytes().map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).collect()
}

#[cfg(test)]
mod tests;
