//! A pod of the node, parsed once and shared by all components of the agent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use muster_api::core_v1::{PodWithoutContainerStatuses, is_sidecar_policy};
use muster_api::object_key::ObjectKey;
use muster_api::qos::QosClass;
use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
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
    /// The pod as pod admission reads it.
    pub candidate: AdmissionCandidate,
    /// The object as JSON, without `managedFields`.
    pub json: Value,
    pub qos: QosClass,
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
        if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let api = Pod::deserialize(&tree)?;
        let containers = match &api.spec {
            Some(spec) => pod_containers(spec, &tree["spec"])?,
            None => Vec::new(),
        };
        let qos = QosClass::of_pod(&tree);
        let pod = PodWithoutContainerStatuses::deserialize(&tree)?;
        let object = Arc::new(PodObject::from_pod(&pod, &tree));
        let candidate = AdmissionCandidate::from_pod(&pod, qos);
        Ok(Self { api, object, candidate, json: tree, qos, containers })
    }

    /// Parses a pod from the API server. Removes the annotation `kubernetes.io/config.source`
    /// (`static_pod::SOURCE_ANNOTATION`) unless the pod is a mirror pod, so that a client cannot make its pod static or
    /// critical with this annotation.
    pub fn from_api(mut tree: Value) -> Result<Self, serde_json::Error> {
        if let Some(annotations) = tree.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            && !annotations.contains_key(static_pod::MIRROR_ANNOTATION)
        {
            annotations.remove(static_pod::SOURCE_ANNOTATION);
        }
        Self::new(tree)
    }

    /// Returns a pod that has a namespace, a name and a UID, but no spec.
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

/// Returns the init, main and ephemeral containers of a spec, in this order. `json` is the JSON of the spec.
fn pod_containers(spec: &PodSpec, json: &Value) -> Result<Vec<PodContainer>, serde_json::Error> {
    let init = spec.init_containers.iter().flatten().map(|it| {
        let is_sidecar = is_sidecar_policy(it.restart_policy.as_deref());
        PodContainer { container: it.clone(), is_sidecar, target: None }
    });
    let main = spec.containers.iter();
    let main = main.map(|it| PodContainer { container: it.clone(), is_sidecar: false, target: None });
    let ephemeral = spec.ephemeral_containers.iter().flatten().enumerate().map(|(index, it)| {
        // An ephemeral container has all the fields of a container, and one more.
        let container = Container::deserialize(&json["ephemeralContainers"][index])?;
        Ok(PodContainer { container, is_sidecar: false, target: it.target_container_name.clone() })
    });
    init.chain(main).map(Ok).chain(ephemeral).collect()
}

/// Returns the resource requests of a container. Malformed quantities are omitted.
pub(crate) fn container_requests(container: &Container) -> ResourceQuantities {
    parse_quantities(container.resources.as_ref().and_then(|it| it.requests.as_ref()))
}

/// Returns the resource limits of a container. Malformed quantities are omitted.
pub(crate) fn container_limits(container: &Container) -> ResourceQuantities {
    parse_quantities(container.resources.as_ref().and_then(|it| it.limits.as_ref()))
}

/// Parses quantities by resource name. Malformed quantities are omitted.
fn parse_quantities(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> ResourceQuantities {
    let parse = |(name, ApiQuantity(amount)): (&String, &ApiQuantity)| {
        Some((name.clone(), Quantity::parse(amount).ok()?))
    };
    amounts.into_iter().flatten().filter_map(parse).collect()
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

    #[test]
    fn an_ephemeral_container_has_the_fields_of_a_container() {
        let debug = json!({
            "name": "debug", "image": "busybox", "command": ["sh"], "stdin": true, "targetContainerName": "web",
            "resources": {"limits": {"cpu": "1"}}, "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        });
        let spec = json!({"containers": [{"name": "web"}], "ephemeralContainers": [debug]});
        let pod = ParsedPod::new(json!({"spec": spec})).unwrap();
        let mut fields = debug;
        fields.as_object_mut().unwrap().remove("targetContainerName");
        assert_eq!(serde_json::to_value(&pod.container("debug").unwrap().container).unwrap(), fields);
    }

    /// As in Go: `null` is an absent field, and a field of another type makes the whole pod malformed.
    #[test]
    fn a_pod_is_parsed_in_all_forms_or_refused() {
        let nulls =
            json!({"hostNetwork": null, "hostIPC": null, "os": null, "containers": null, "priority": null});
        let pod =
            ParsedPod::from_api(json!({"metadata": {"uid": "u-1"}, "spec": nulls, "status": null})).unwrap();
        assert_eq!(&**pod.candidate.uid(), "u-1");
        assert_eq!(pod.json["metadata"], json!({"uid": "u-1"}));
        for malformed in [
            json!(7),
            json!({"metadata": null}),
            json!({"spec": {"hostIPC": 1}}),
            json!({"spec": {"tolerations": [1]}}),
            json!({"spec": {"ephemeralContainers": [1]}}),
            json!({"status": {"containerStatuses": [1]}}),
        ] {
            assert!(ParsedPod::from_api(malformed.clone()).is_err(), "{malformed}");
        }
    }
}
