//! A pod of the node, parsed once and shared by all components of the agent.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use muster_api::object_key::ObjectKey;
use muster_engine::kubelet::pod::PodObject;
use muster_engine::kubelet::pod::admission::AdmissionCandidate;
use muster_engine::kubelet::static_pod;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// A pod from the watch or from a manifest, in all parsed forms. It dereferences to the API type.
#[derive(Debug, Clone)]
pub struct ParsedPod {
    /// The pod as the API type.
    api: Pod,
    /// The pod as the engine's kubelet rules read it.
    pub object: Arc<PodObject>,
    /// The pod as pod admission reads it. `None` if the pod cannot be parsed for admission.
    pub candidate: Option<AdmissionCandidate>,
    /// The object as JSON, without `managedFields`.
    pub json: Value,
    /// The init, main and ephemeral containers, in this order. An `Action` refers to a container by its index in this
    /// list.
    pub containers: Vec<PodContainer>,
}

/// An init, main or ephemeral container of a pod spec. Only an init container can be a sidecar, and only an ephemeral
/// container can have a `target`.
#[derive(Debug, Clone)]
pub struct PodContainer {
    pub container: Container,
    pub is_sidecar: bool,
    /// `targetContainerName` of an ephemeral container: the container whose process namespace it shares. `None` if not
    /// set.
    pub target: Option<String>,
}

impl ParsedPod {
    /// Parses all forms of a pod from one JSON value. Drops `managedFields`.
    pub fn new(mut tree: Value) -> Result<Self, serde_json::Error> {
        if let Some(metadata) = tree["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let api = Pod::deserialize(&tree)?;
        let object = PodObject::from_value(&tree).map_err(serde_json::Error::custom)?;
        let containers = api.spec.as_ref().map(pod_containers).unwrap_or_default();
        let candidate = AdmissionCandidate::from_value(&tree).ok();
        Ok(Self { api, object: Arc::new(object), candidate, json: tree, containers })
    }

    /// Parses a pod from the API server. Removes the annotation `kubernetes.io/config.source`
    /// (`static_pod::SOURCE_ANNOTATION`) unless the pod is a mirror pod, so that a client cannot make its pod static or
    /// critical with this annotation.
    pub fn from_api(mut tree: Value) -> Result<Self, serde_json::Error> {
        if let Some(annotations) = tree["metadata"]["annotations"].as_object_mut()
            && !annotations.contains_key(static_pod::MIRROR_ANNOTATION)
        {
            annotations.remove(static_pod::SOURCE_ANNOTATION);
        }
        Self::new(tree)
    }

    /// Returns a pod of which only the namespace, name and UID are known. It has no spec.
    pub fn placeholder_pod(key: &ObjectKey, uid: &str) -> Result<Self, serde_json::Error> {
        Self::new(json!({"metadata": {"name": key.name, "namespace": key.namespace, "uid": uid}}))
    }

    /// Returns a copy of the pod with another status.
    pub fn with_status(&self, status: Value) -> Result<Self, serde_json::Error> {
        let mut tree = self.json.clone();
        tree["status"] = status;
        Self::new(tree)
    }

    /// Returns the container with this name, or `None` if the spec has none.
    pub fn container(&self, name: &str) -> Option<&PodContainer> {
        self.containers.iter().find(|it| it.container.name == name)
    }
}

/// Returns the init, main and ephemeral containers of a spec, in this order.
fn pod_containers(spec: &PodSpec) -> Vec<PodContainer> {
    let is_sidecar = |it: &Container| it.restart_policy.as_deref() == Some("Always");
    let init = spec.init_containers.iter().flatten();
    let init =
        init.map(|it| PodContainer { container: it.clone(), is_sidecar: is_sidecar(it), target: None });
    let main = spec.containers.iter();
    let main = main.map(|it| PodContainer { container: it.clone(), is_sidecar: false, target: None });
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|it| {
        // An ephemeral container has all the fields of a container, and one more.
        let container = serde_json::to_value(it).and_then(serde_json::from_value).unwrap_or_default();
        PodContainer { container, is_sidecar: false, target: it.target_container_name.clone() }
    });
    init.chain(main).chain(ephemeral).collect()
}

impl Deref for ParsedPod {
    type Target = Pod;

    fn deref(&self) -> &Pod {
        &self.api
    }
}

impl<'de> Deserialize<'de> for ParsedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_api(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Resource for ParsedPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind(dynamic: &()) -> Cow<'_, str> {
        Pod::kind(dynamic)
    }

    fn group(dynamic: &()) -> Cow<'_, str> {
        Pod::group(dynamic)
    }

    fn version(dynamic: &()) -> Cow<'_, str> {
        Pod::version(dynamic)
    }

    fn plural(dynamic: &()) -> Cow<'_, str> {
        Pod::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.api.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.api.metadata
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn actions_name_containers_by_their_position() {
        let pod = ParsedPod::new(json!({
            "metadata": {"name": "web", "uid": "u-1", "managedFields": [{"manager": "kubectl"}]},
            "spec": {
                "initContainers": [{"name": "first"}, {"name": "proxy", "restartPolicy": "Always"}],
                "containers": [{"name": "main"}],
                "ephemeralContainers": [{"name": "debug", "targetContainerName": "main"}],
            },
        }));
        let pod = pod.unwrap();
        let decided = pod.object.spec.all_containers().map(|it| format!("{} {}", it.position, it.name));
        let executed = pod.containers.iter().enumerate();
        let executed = executed.map(|(position, it)| format!("{position} {}", it.container.name));
        assert_eq!(decided.collect::<Vec<_>>(), executed.collect::<Vec<_>>());
        let roles = pod
            .containers
            .iter()
            .map(|it| format!("{} {} {:?}", it.container.name, it.is_sidecar, it.target));
        expect![[r#"
            first false None
            proxy true None
            main false None
            debug false Some("main")"#]]
        .assert_eq(&roles.collect::<Vec<_>>().join("\n"));
        assert_eq!(pod.json["metadata"], json!({"name": "web", "uid": "u-1"}));
    }
}
