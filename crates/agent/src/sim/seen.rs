//! Pods and nodes as a watch brings them: only what a node asks about is read, and the rest is passed over.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pod {
    #[serde(deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: PodSpec,
    #[serde(default)]
    pub(super) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<Box<str>>,
    pub(super) host_network: bool,
    pub(super) restart_policy: Option<Box<str>>,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) readiness_gates: Vec<Gate>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: Box<str>,
    pub(super) image: Box<str>,
    pub(super) restart_policy: Option<Box<str>>,
    pub(super) startup_probe: Option<Probe>,
    pub(super) readiness_probe: Option<Probe>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Probe {
    pub(super) initial_delay_seconds: i32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gate {
    pub(super) condition_type: Box<str>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: Option<Box<str>>,
    pub(super) start_time: Option<Timestamp>,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<Box<str>>,
    pub(super) conditions: Vec<Condition>,
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    pub(super) r#type: Box<str>,
    pub(super) status: Box<str>,
    pub(super) last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: Box<str>,
    pub(super) ready: bool,
    pub(super) started: Option<bool>,
    pub(super) restart_count: u32,
    pub(super) state: ContainerState,
    pub(super) last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) waiting: Option<Waiting>,
    pub(super) running: Option<Running>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) reason: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Running {
    pub(super) started_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) reason: Option<Box<str>>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Node {
    #[serde(deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: NodeSpec,
    #[serde(default)]
    pub(super) status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeSpec {
    #[serde(rename = "podCIDR")]
    pub(super) pod_cidr: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub(super) conditions: Vec<Condition>,
}

/// All that is kept of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    #[serde(deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
}

/// Who manages which field is half of a pod, and nothing to a node.
fn meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        annotations: Option<BTreeMap<String, String>>,
        deletion_timestamp: Option<Timestamp>,
        deletion_grace_period_seconds: Option<i64>,
    }
    let meta = Meta::deserialize(deserializer)?;
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

/// Versions of one server only go up.
pub(super) fn version(meta: &ObjectMeta) -> u64 {
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
