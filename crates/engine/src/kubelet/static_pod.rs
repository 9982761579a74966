//! Static pods, which are pods from manifests on the node, and their mirror pods on the API server. Upstream:
//! `pkg/kubelet/config`, `pkg/kubelet/pod`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::defaulting::{set_if_absent, set_pod_defaults};
use muster_api::meta_v1::ObjectMeta;
use muster_api::names::{dns_label_errors, dns_subdomain_errors};
use muster_api::well_known::{ANNOTATION_CONFIG_MIRROR, ANNOTATION_CONFIG_SOURCE};
use serde_json::{Map, Value, json};

/// Annotation `kubernetes.io/config.source`: the source of a pod. It is `file` for a static pod, and `api` or absent
/// for a pod from the API server.
pub const SOURCE_ANNOTATION: &str = ANNOTATION_CONFIG_SOURCE;
/// Annotation `kubernetes.io/config.seen` of a static pod: the time at which its manifest was read.
const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
/// Annotation `kubernetes.io/config.hash` of a static pod: a hash of its manifest, file name and node name.
const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
/// Annotation `kubernetes.io/config.mirror` of a mirror pod: the value of [`HASH_ANNOTATION`] of its static pod.
pub const MIRROR_ANNOTATION: &str = ANNOTATION_CONFIG_MIRROR;

/// Whether a pod with this metadata is a static pod.
pub(super) fn is_static(meta: &ObjectMeta<'_>) -> bool {
    meta.annotation(SOURCE_ANNOTATION).is_some_and(|it| it != "api")
}

/// Whether a pod with this metadata is a static pod or a mirror pod.
pub(super) fn is_static_or_mirror(meta: &ObjectMeta<'_>) -> bool {
    is_static(meta) || meta.annotation(MIRROR_ANNOTATION).is_some()
}

/// Builds a static pod from its manifest. `hash` is a hash of the manifest's content, its file name and the node's
/// name. `seen` is the time at which the manifest was read. The error is a message for the user.
///
/// Rule: the name of a static pod is the name in its manifest, a hyphen, and the name of the node in lower case. The
/// pod is bound to the node. Its UID is the hash, so that a changed manifest is another pod. It tolerates all
/// `NoExecute` taints. A static pod cannot reference API objects such as Secrets.
pub fn parse_manifest(manifest: Value, node: &str, hash: &str, seen: &str) -> Result<Value, String> {
    let Value::Object(mut pod) = manifest else { return Err("not an object".into()) };
    let of = |pod: &Map<String, Value>, key: &str| pod.get(key).and_then(Value::as_str).map(String::from);
    if of(&pod, "apiVersion").as_deref() != Some("v1") || of(&pod, "kind").as_deref() != Some("Pod") {
        return Err("not a pod: apiVersion must be v1 and kind Pod".into());
    }
    let metadata = pod.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or("metadata.name: required")?;
    let name = of(metadata, "name").filter(|it| !it.is_empty()).ok_or("metadata.name: required")?;
    let name = format!("{name}-{}", node.to_lowercase());
    // Names become parts of file paths.
    if !dns_subdomain_errors(&name).is_empty() {
        return Err(format!("metadata.name: {name:?} is not a valid pod name"));
    }
    let namespace = of(metadata, "namespace").filter(|it| !it.is_empty()).unwrap_or_else(|| "default".into());
    if !dns_label_errors(&namespace).is_empty() {
        return Err(format!("metadata.namespace: {namespace:?} is not a valid namespace name"));
    }
    for dropped in
        ["uid", "resourceVersion", "generateName", "deletionTimestamp", "ownerReferences", "finalizers"]
    {
        metadata.remove(dropped);
    }
    metadata.insert("name".into(), name.into());
    metadata.insert("namespace".into(), namespace.into());
    metadata.insert("uid".into(), hash.into());
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[SOURCE_ANNOTATION] = "file".into();
    annotations[SEEN_ANNOTATION] = seen.into();
    annotations[HASH_ANNOTATION] = hash.into();

    pod.insert("status".into(), json!({"phase": "Pending"}));
    check_spec(pod.get("spec").filter(|it| it.is_object()).ok_or("spec: required")?)?;
    let mut pod = Value::Object(pod);
    set_pod_defaults(&mut pod);
    let spec = &mut pod["spec"];
    spec["nodeName"] = node.into();
    let everything = json!({"operator": "Exists", "effect": "NoExecute"});
    set_if_absent(spec, "tolerations", json!([]));
    if let Some(tolerations) = spec["tolerations"].as_array_mut()
        && !tolerations.contains(&everything)
    {
        tolerations.push(everything);
    }
    Ok(pod)
}

/// Validates the spec of a static pod. The error is a message for the user.
fn check_spec(spec: &Value) -> Result<(), String> {
    let list = |key: &str| spec[key].as_array().map(Vec::as_slice).unwrap_or_default();
    if list("containers").is_empty() {
        return Err("spec.containers: required".into());
    }
    let mut names: Vec<&str> = Vec::new();
    for key in ["initContainers", "containers"] {
        for (index, container) in list(key).iter().enumerate() {
            let at = format!("spec.{key}[{index}]");
            let name = container["name"].as_str().unwrap_or_default();
            if !dns_label_errors(name).is_empty() {
                return Err(format!("{at}.name: {name:?} is not a valid container name"));
            }
            if names.contains(&name) {
                return Err(format!("{at}.name: duplicate name {name:?}"));
            }
            names.push(name);
            if container["image"].as_str().is_none_or(str::is_empty) {
                return Err(format!("{at}.image: required"));
            }
            let env = container["env"].as_array().into_iter().flatten();
            let of_env =
                env.flat_map(|it| ["configMapKeyRef", "secretKeyRef"].map(|key| &it["valueFrom"][key]));
            if of_env.into_iter().any(|it| !it.is_null()) || !container["envFrom"].is_null() {
                return Err(format!("{at}.env: static pods may not reference configmaps or secrets"));
            }
        }
    }
    if !list("ephemeralContainers").is_empty() {
        return Err("spec.ephemeralContainers: not allowed in a static pod".into());
    }
    for field in ["serviceAccountName", "serviceAccount", "imagePullSecrets", "resourceClaims"] {
        if !spec[field].is_null() && spec[field] != "" && spec[field] != json!([]) {
            return Err(format!("spec.{field}: static pods may not reference {}", field.to_lowercase()));
        }
    }
    for (index, volume) in list("volumes").iter().enumerate() {
        for source in ["configMap", "secret", "persistentVolumeClaim", "projected", "csi", "ephemeral"] {
            if !volume[source].is_null() {
                return Err(format!(
                    "spec.volumes[{index}].{source}: static pods may not reference {}s",
                    source.to_lowercase()
                ));
            }
        }
    }
    Ok(())
}

/// Returns the mirror pod to create on the API server for the static pod `pod`. Its owner is the Node with the name
/// `node` and the UID `node_uid`.
pub fn mirror_pod(pod: &Value, node: &str, node_uid: &str) -> Value {
    let mut mirror = pod.clone();
    mirror["metadata"]["annotations"][MIRROR_ANNOTATION] =
        pod["metadata"]["annotations"][HASH_ANNOTATION].clone();
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true}]);
    if let Some(metadata) = mirror["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    mirror
}

/// Whether an existing mirror pod is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MirrorDecision {
    /// The mirror pod is kept, because it represents the current static pod.
    Keep,
    /// The mirror pod is deleted. If the static pod still exists, a new mirror pod is created afterwards.
    Delete,
}

/// Decides whether an existing mirror pod is kept. `pod` is its static pod, `None` if the manifest was removed.
/// `node_uid` is the UID of the Node.
///
/// Rule: a mirror pod is deleted and created again if it belongs to another version of the manifest or to a former Node
/// of that name, or if a user deletes it. The static pod keeps running. When the manifest is removed, the mirror pod is
/// deleted and not created again.
pub fn decide_mirror(mirror: &Value, pod: Option<&Value>, node_uid: &str) -> MirrorDecision {
    let Some(pod) = pod else { return MirrorDecision::Delete };
    let hash = &pod["metadata"]["annotations"][HASH_ANNOTATION];
    let is_of_it = mirror["metadata"]["annotations"][MIRROR_ANNOTATION] == *hash;
    let is_deleted = !mirror["metadata"]["deletionTimestamp"].is_null();
    let owners = mirror["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let is_of_node = owners.into_iter().any(|it| it["kind"] == "Node" && it["uid"] == node_uid);
    if is_of_it && is_of_node && !is_deleted { MirrorDecision::Keep } else { MirrorDecision::Delete }
}

#[cfg(test)]
mod tests;
