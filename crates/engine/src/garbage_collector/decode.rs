//! Objects as the API server sends them, whole or their metadata alone. What no rule reads is skipped, not kept.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::time::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{OwnerReference, Pod, Resource, TrackedObject};

/// An object of any kind, read and not yet understood: which kind it is does not stand in it.
#[derive(Deserialize, Clone, Debug)]
pub struct Raw {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

/// Of pods and nodes, which are the only ones that come whole.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    node_name: Option<String>,
    taints: Option<Vec<RawTaint>>,
}

#[derive(Deserialize, Clone, Debug)]
struct RawTaint {
    #[serde(default)]
    key: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
struct RawStatus {
    phase: Option<String>,
    reason: Option<String>,
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize, Clone, Debug)]
struct RawCondition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    #[serde(default)]
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<RawOwner>>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct RawOwner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    block_owner_deletion: Option<bool>,
}

impl Raw {
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Whether the rules read more of a kind than its metadata.
    pub fn is_read_whole(resource: &Resource) -> bool {
        resource.group.is_empty() && matches!(&*resource.kind, "Pod" | "Node")
    }

    pub fn object(self, resource: &Arc<Resource>, shared: &mut Interner) -> TrackedObject {
        let is = |kind: &str| Self::is_read_whole(resource) && *resource.kind == *kind;
        let pod = is("Pod").then(|| Arc::new(self.pod(shared)));
        let out_of_service = is("Node").then(|| self.is_out_of_service());
        let meta = self.metadata;
        let owners = meta.owner_references.unwrap_or_default().into_iter().map(|it| OwnerReference {
            api_version: shared.intern_text(&it.api_version),
            kind: shared.intern_text(&it.kind),
            name: shared.intern_text(&it.name),
            uid: shared.intern_text(&it.uid),
            block_owner_deletion: it.block_owner_deletion == Some(true),
        });
        let owners = owners.collect();
        let finalizers = meta.finalizers.unwrap_or_default();
        TrackedObject {
            resource: resource.clone(),
            key: ObjectKey {
                namespace: shared.intern_text(meta.namespace.as_deref().unwrap_or_default()),
                name: meta.name.as_str().into(),
            },
            uid: shared.intern_text(&meta.uid),
            resource_version: meta.resource_version.parse().unwrap_or_default(),
            owners,
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: finalizers.iter().map(|it| shared.intern_text(it)).collect(),
            pod,
            out_of_service,
        }
    }

    fn pod(&self, shared: &mut Interner) -> Pod {
        let (meta, status) = (&self.metadata, &self.status);
        Pod {
            node: shared.intern_text(self.spec.node_name.as_deref().unwrap_or_default()),
            terminated: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            evicted: status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted"),
            created: meta.creation_timestamp.as_deref().and_then(Time::parse).unwrap_or_default(),
            has_zero_grace_period: meta.deletion_grace_period_seconds == Some(0),
        }
    }

    fn is_out_of_service(&self) -> bool {
        let is_ready = |it: &RawCondition| it.kind == "Ready" && it.status == "True";
        let is_marked = |it: &RawTaint| it.key == "node.kubernetes.io/out-of-service";
        self.spec.taints.iter().flatten().any(is_marked)
            && !self.status.conditions.iter().flatten().any(is_ready)
    }
}
