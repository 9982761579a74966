//! A pod of the node, parsed once and shared by all components of the agent.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use muster_api::core_v1::{PodWithoutContainerStatuses, is_sidecar_policy};
use muster_api::object_key::ObjectKey;
use muster_api::qos::QosClass;
use muster_api::resources::{ResourceQuantities, quantities_from_json};
use muster_engine::kubelet::pod::PodObject;
use muster_engine::kubelet::pod::admission::AdmissionCandidate;
use muster_engine::kubelet::static_pod;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// A pod from the watch or from a manifest. It dereferences to the API type.
///
/// The JSON text of a pod is parsed once, into [`Self::json`]. All other forms are decoded from this tree at the same
/// time, so that a pod that one component accepts is not malformed for another one. The components share the parsed pod
/// in an `Arc`.
#[derive(Debug, Clone)]
pub struct ParsedPod {
    /// The pod as the API type.
    api: Pod,
    /// The ephemeral containers as the API type of a container, in the order of the spec.
    ephemeral_containers: Vec<Container>,
    /// The pod as the engine's kubelet rules read it.
    pub object: Arc<PodObject>,
    /// The pod as pod admission reads it.
    pub candidate: AdmissionCandidate,
    /// The object as JSON, without `managedFields`.
    pub json: Value,
    pub qos: QosClass,
}

/// An init, main or ephemeral container of a pod spec. Only an init container can be a sidecar, and only an ephemeral
/// container can have a `target`.
#[derive(Debug, Clone, Copy)]
pub struct PodContainer<'a> {
    pub container: &'a Container,
    /// The container as JSON.
    json: &'a Value,
    pub is_sidecar: bool,
    /// `targetContainerName` of an ephemeral container: the container whose process namespace it shares. `None` if not
    /// set.
    pub target: Option<&'a str>,
}

impl PodContainer<'_> {
    /// Returns the resource requests of the container. An invalid quantity is zero, see [`quantities_from_json`].
    pub(crate) fn requests(&self) -> ResourceQuantities {
        quantities_from_json(&self.json["resources"]["requests"])
    }

    /// Returns the resource limits of the container. An invalid quantity is zero, see [`quantities_from_json`].
    pub(crate) fn limits(&self) -> ResourceQuantities {
        quantities_from_json(&self.json["resources"]["limits"])
    }
}

impl ParsedPod {
    /// Decodes all forms of a pod from one JSON value. Drops `managedFields`.
    pub fn new(mut tree: Value) -> Result<Self, serde_json::Error> {
        if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let api = Pod::deserialize(&tree)?;
        // An ephemeral container has all the fields of a container, and one more.
        let ephemeral_containers = tree["spec"]["ephemeralContainers"].as_array().into_iter().flatten();
        let ephemeral_containers =
            ephemeral_containers.map(Container::deserialize).collect::<Result<_, _>>()?;
        let qos = QosClass::of_pod(&tree);
        let pod = PodWithoutContainerStatuses::deserialize(&tree)?;
        let object = Arc::new(PodObject::from_pod(&pod, &tree));
        let candidate = AdmissionCandidate::from_pod(&pod, qos);
        #[cfg(test)]
        tests::DECODED_PODS.with(|it| it.set(it.get() + 1));
        Ok(Self { api, ephemeral_containers, object, candidate, json: tree, qos })
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

    /// Returns the init containers.
    pub fn init_containers(&self) -> impl Iterator<Item = PodContainer<'_>> {
        let containers = self.api.spec.iter().flat_map(|it| it.init_containers.iter().flatten());
        self.with_json("initContainers", containers).map(|it| {
            let is_sidecar = is_sidecar_policy(it.container.restart_policy.as_deref());
            PodContainer { is_sidecar, ..it }
        })
    }

    /// Returns the main containers.
    pub fn main_containers(&self) -> impl Iterator<Item = PodContainer<'_>> {
        self.with_json("containers", self.api.spec.iter().flat_map(|it| &it.containers))
    }

    /// Returns the ephemeral containers.
    fn ephemeral_containers(&self) -> impl Iterator<Item = PodContainer<'_>> {
        self.with_json("ephemeralContainers", &self.ephemeral_containers)
            .map(|it| PodContainer { target: it.json["targetContainerName"].as_str(), ..it })
    }

    /// Returns the init, main and ephemeral containers, in this order. An `Action` refers to a container by its
    /// position in this order.
    pub fn containers(&self) -> impl Iterator<Item = PodContainer<'_>> {
        self.init_containers().chain(self.main_containers()).chain(self.ephemeral_containers())
    }

    /// Returns the container at a position in [`Self::containers`]. Panics if the pod has no such container: the
    /// positions in actions come from the same pod.
    pub fn container_at(&self, position: usize) -> PodContainer<'_> {
        self.containers().nth(position).expect("the position in an action is that of a container of the pod")
    }

    /// Returns the container with this name, or `None` if the spec has none.
    pub fn container(&self, name: &str) -> Option<PodContainer<'_>> {
        self.containers().find(|it| it.container.name == name)
    }

    /// Adds its JSON to each of `containers`. `list` is the field of the spec that has these containers.
    fn with_json<'a>(
        &'a self,
        list: &str,
        containers: impl IntoIterator<Item = &'a Container>,
    ) -> impl Iterator<Item = PodContainer<'a>> {
        let json = &self.json["spec"][list];
        let containers = containers.into_iter().enumerate();
        containers.map(move |(index, container)| PodContainer {
            container,
            json: &json[index],
            is_sidecar: false,
            target: None,
        })
    }
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
pub(crate) mod tests {
    use std::cell::Cell;

    use expect_test::expect;
    use muster_api::quantity::Quantity;
    use muster_api::resources::spec_pod_total;

    use super::*;

    thread_local! {
        /// Number of pods that this thread has decoded.
        pub(crate) static DECODED_PODS: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn invalid_quantities_of_a_container_are_zero_as_in_totals_of_the_pod() {
        let resources =
            json!({"requests": {"cpu": "1x", "memory": "1Mi"}, "limits": {"cpu": "2", "memory": ""}});
        let spec = json!({"containers": [{"name": "main", "resources": resources}]});
        let pod = ParsedPod::new(json!({"spec": spec})).unwrap();
        let main = pod.container("main").unwrap();
        for (amounts, part) in [(main.requests(), "requests"), (main.limits(), "limits")] {
            assert_eq!(amounts, spec_pod_total(&pod.json["spec"], part), "{part}");
        }
        assert_eq!(main.requests().get("cpu"), Some(&Quantity::ZERO));
        assert_eq!(main.limits().get("memory"), Some(&Quantity::ZERO));
    }

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
        let executed = pod.containers().enumerate();
        let executed = executed.map(|(position, it)| format!("{position} {}", it.container.name));
        assert_eq!(decided.collect::<Vec<_>>(), executed.collect::<Vec<_>>());
        let roles =
            pod.containers().map(|it| format!("{} {} {:?}", it.container.name, it.is_sidecar, it.target));
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
        assert_eq!(serde_json::to_value(pod.container("debug").unwrap().container).unwrap(), fields);
    }

    /// As in Go, `null` is an absent field, and a field of another type makes the whole pod malformed. Exception:
    /// `metadata` must not be `null`.
    #[test]
    fn null_fields_are_absent_and_wrong_types_are_refused() {
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
