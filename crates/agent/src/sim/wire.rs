//! Decodes only the fields of pods and nodes that simulated nodes need, from watch events and responses to writes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use muster_engine::controller::Malformed;
use muster_engine::kubelet::pod::PodObject;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A pod in a watch event. Only its metadata and node name are decoded. The other fields are parsed on demand.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) metadata: ObjectMeta,
    pub(super) node_name: Option<Box<str>>,
    json: Box<RawValue>,
}

impl Pod {
    /// Returns the pod's resourceVersion as a number.
    pub(super) fn resource_version(&self) -> u64 {
        resource_version(&self.metadata)
    }

    /// Parses the whole pod for the kubelet rules.
    pub(super) fn parse(&self) -> Result<PodObject, Malformed> {
        PodObject::parse(self.json.get().as_bytes())
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The fields of a pod that are decoded.
        #[derive(Deserialize)]
        struct PartialPod {
            #[serde(deserialize_with = "deserialize_metadata")]
            metadata: ObjectMeta,
            #[serde(default)]
            spec: PartialPodSpec,
        }
        /// The fields of a pod's spec that are decoded.
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct PartialPodSpec {
            node_name: Option<Box<str>>,
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let PartialPod { metadata, spec } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self { metadata, node_name: spec.node_name, json })
    }
}

/// A condition in the status of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeCondition {
    pub(super) r#type: Box<str>,
    pub(super) status: Box<str>,
    pub(super) last_transition_time: Option<Timestamp>,
}

/// A node in a watch event.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Node {
    #[serde(deserialize_with = "deserialize_metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: NodeSpec,
    #[serde(default)]
    pub(super) status: NodeStatus,
}

/// The fields of a node's spec that simulated nodes need.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeSpec {
    #[serde(rename = "podCIDR")]
    pub(super) pod_cidr: Option<Box<str>>,
}

/// The fields of a node's status that simulated nodes need.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub(super) conditions: Vec<NodeCondition>,
}

/// The response of the API server to a write.
#[derive(Debug, Deserialize)]
pub(super) struct WriteResponse {
    #[serde(deserialize_with = "deserialize_metadata")]
    pub(super) metadata: ObjectMeta,
}

/// Decodes only the metadata fields that simulated nodes need. Above all, `managedFields`, which make up half of the
/// size of a pod, are skipped.
fn deserialize_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    /// The metadata fields that are decoded.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct MetadataSubset {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        annotations: Option<BTreeMap<String, String>>,
        deletion_timestamp: Option<Timestamp>,
        deletion_grace_period_seconds: Option<i64>,
    }
    let meta = MetadataSubset::deserialize(deserializer)?;
    Ok(ObjectMeta {
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        annotations: meta.annotations,
        deletion_timestamp: meta.deletion_timestamp.map(Time),
        deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    })
}

/// Returns the resourceVersion as a number, or 0 if it is missing or not a number. The numbers of one API server only
/// increase.
pub(super) fn resource_version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|it| it.parse().ok()).unwrap_or_default()
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Pod".into()
    }
    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }
    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural(_: &()) -> Cow<'_, str> {
        "pods".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for Node {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Node".into()
    }
    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }
    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural(_: &()) -> Cow<'_, str> {
        "nodes".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
