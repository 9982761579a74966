//! Decodes only the fields of pods and nodes that simulated nodes need, from watch events and responses to writes.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use muster_api::json::Str;
use muster_api::{core_v1, meta_v1};
use muster_engine::controller::Malformed;
use muster_engine::kubelet::pod::PodObject;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A pod in a watch event. Only its metadata and node name are decoded. The other fields are parsed on demand.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) metadata: ObjectMeta,
    pub(super) node_name: Option<Box<str>>,
    json: Box<RawValue>,
}

impl Pod {
    /// Returns the pod's resourceVersion as a number, or 0 if it is missing or not a number. The numbers of one API
    /// server only increase.
    pub(super) fn resource_version(&self) -> u64 {
        self.metadata.resource_version.as_deref().and_then(|it| it.parse().ok()).unwrap_or_default()
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
        struct PartialPod<'a> {
            #[serde(borrow)]
            metadata: meta_v1::ObjectMeta<'a>,
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
        let metadata = kube_metadata(&metadata).map_err(D::Error::custom)?;
        Ok(Self { metadata, node_name: spec.node_name, json })
    }
}

/// A node in a watch event.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) metadata: ObjectMeta,
    pub(super) pod_cidr: Option<Box<str>>,
    pub(super) conditions: NodeConditions,
}

/// The conditions in the status of a node, as JSON text. The text needs less memory than the parsed conditions.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct NodeConditions(Option<Box<RawValue>>);

impl NodeConditions {
    /// Parses the conditions. Returns `null` if the node has none.
    pub(super) fn parse(&self) -> Value {
        self.0.as_ref().and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The fields of a node that are decoded.
        #[derive(Deserialize)]
        struct PartialNode<'a> {
            #[serde(borrow)]
            metadata: meta_v1::ObjectMeta<'a>,
            #[serde(borrow)]
            spec: Option<core_v1::NodeSpec<'a>>,
            #[serde(default)]
            status: PartialNodeStatus,
        }
        /// The fields of a node's status that are decoded.
        #[derive(Default, Deserialize)]
        struct PartialNodeStatus {
            #[serde(default)]
            conditions: NodeConditions,
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let PartialNode { metadata, spec, status } =
            serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self {
            metadata: kube_metadata(&metadata).map_err(D::Error::custom)?,
            pod_cidr: spec.and_then(|it| it.pod_cidr).map(|it| (*it).into()),
            conditions: status.conditions,
        })
    }
}

/// Converts the metadata fields that simulated nodes need. Above all, `managedFields`, which make up half of the size
/// of a pod, are not decoded.
fn kube_metadata(metadata: &meta_v1::ObjectMeta<'_>) -> Result<ObjectMeta, jiff::Error> {
    let text = |it: &Option<Str<'_>>| it.as_deref().map(str::to_owned);
    let annotations = metadata.annotations.as_ref();
    let annotations =
        annotations.map(|all| all.pairs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    let deletion_timestamp = metadata.deletion_timestamp.as_deref().map(str::parse).transpose()?;
    Ok(ObjectMeta {
        namespace: text(&metadata.namespace),
        name: text(&metadata.name),
        uid: text(&metadata.uid),
        resource_version: text(&metadata.resource_version),
        generation: metadata.generation,
        annotations,
        deletion_timestamp: deletion_timestamp.map(Time),
        deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    })
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
