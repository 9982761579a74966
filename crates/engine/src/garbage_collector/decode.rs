//! Decodes objects of any kind, whole or metadata only. All fields that the garbage collector does not read are
//! skipped.

use alloc::sync::Arc;

use muster_api::core_v1::{self, PodPhase, PodWithoutContainers};
use muster_api::interner::Interner;
use muster_api::json;
use muster_api::meta_v1::{ObjectMeta, PartialObjectMetadata};
use muster_api::well_known::{NODE_READY, TAINT_NODE_OUT_OF_SERVICE};
use serde::de::Error as _;

use super::{OwnerReference, Pod, Resource, TrackedObject};

/// Whether the garbage collector watches whole objects of a kind, not only their metadata. True for pods and nodes.
pub(super) fn needs_whole_object(resource: &Resource) -> bool {
    resource.group.is_empty() && matches!(&*resource.kind, "Pod" | "Node")
}

/// Decodes an object of any kind into a [`TrackedObject`].
pub(super) fn decode_object(
    resource: &Arc<Resource>,
    json: &[u8],
    shared: &mut Interner,
) -> Result<TrackedObject, serde_json::Error> {
    Ok(match &*resource.kind {
        "Pod" if needs_whole_object(resource) => {
            let pod: PodWithoutContainers<'_> = json::from_slice(json)?;
            let fact = Arc::new(pod_fact(&pod, shared));
            TrackedObject { pod: Some(fact), ..decode_metadata(resource, &pod.metadata, shared)? }
        }
        "Node" if needs_whole_object(resource) => {
            let node: core_v1::Node<'_> = json::from_slice(json)?;
            let out_of_service = Some(is_out_of_service(&node));
            TrackedObject { out_of_service, ..decode_metadata(resource, &node.metadata, shared)? }
        }
        _ => {
            let object: PartialObjectMetadata<'_> = json::from_slice(json)?;
            decode_metadata(resource, &object.metadata, shared)?
        }
    })
}

/// Decodes the metadata of an object. Returns an error for an object without a UID, because owner references identify
/// owners by UID.
fn decode_metadata(
    resource: &Arc<Resource>,
    meta: &ObjectMeta<'_>,
    shared: &mut Interner,
) -> Result<TrackedObject, serde_json::Error> {
    let uid = meta.uid.as_deref().ok_or_else(|| serde_json::Error::missing_field("metadata.uid"))?;
    let owners = meta.owner_references.iter().flatten().map(|it| OwnerReference {
        api_version: shared.intern_text(it.api_version.as_deref().unwrap_or_default()),
        kind: shared.intern_text(it.kind.as_deref().unwrap_or_default()),
        name: shared.intern_text(it.name.as_deref().unwrap_or_default()),
        uid: shared.intern_text(it.uid.as_deref().unwrap_or_default()),
        block_owner_deletion: it.block_owner_deletion == Some(true),
    });
    let owners = owners.collect();
    Ok(TrackedObject {
        resource: resource.clone(),
        key: meta.key(shared),
        uid: shared.intern_text(uid),
        resource_version: meta.resource_version(),
        owners,
        deleting: meta.is_deleting(),
        finalizers: meta.finalizers.iter().flatten().map(|it| shared.intern_text(it)).collect(),
        pod: None,
        out_of_service: None,
    })
}

/// Extracts the fields of a pod that pod garbage collection reads.
fn pod_fact(pod: &PodWithoutContainers<'_>, shared: &mut Interner) -> Pod {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let is_evicted = |it: &core_v1::PodStatus<'_, _>| {
        it.phase() == PodPhase::Failed && it.reason.as_deref() == Some("Evicted")
    };
    Pod {
        node: shared.intern_text(spec.and_then(|it| it.node_name.as_deref()).unwrap_or_default()),
        terminated: status.is_some_and(core_v1::PodStatus::is_terminal),
        evicted: status.is_some_and(is_evicted),
        created: pod.metadata.creation_time(),
        has_zero_grace_period: pod.metadata.deletion_grace_period_seconds == Some(0),
    }
}

/// Whether the node has the out-of-service taint and is not ready.
fn is_out_of_service(node: &core_v1::Node<'_>) -> bool {
    let mut taints = node.spec.iter().flat_map(|it| it.taints.iter().flatten());
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    taints.any(|it| it.key.as_deref() == Some(TAINT_NODE_OUT_OF_SERVICE))
        && !conditions
            .any(|it| it.type_.as_deref() == Some(NODE_READY) && it.status.as_deref() == Some("True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_uid_is_malformed() {
        let resource = |kind: &str, plural: &str| {
            Arc::new(Resource {
                group: "".into(),
                version: "v1".into(),
                kind: kind.into(),
                plural: plural.into(),
                namespaced: true,
            })
        };
        for resource in [resource("Pod", "pods"), resource("Node", "nodes"), resource("Secret", "secrets")] {
            let read = |json: &str| decode_object(&resource, json.as_bytes(), &mut Interner::default());
            assert!(read(r#"{"metadata": {"name": "a", "uid": "u"}}"#).is_ok());
            assert!(read(r#"{"metadata": {"name": "a"}}"#).is_err());
            assert!(read("{}").is_err());
        }
    }
}
