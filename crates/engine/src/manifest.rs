//! Decisions become API objects here, and nowhere else. Templates travel as JSON, so that fields which only
//! a newer cluster knows survive the way from the set to its pods.
mod call;

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use serde_json::{Map, Value, json};

pub use call::{Patch, Target, Verb, body, label_selector, status_body, target, verb};

use crate::go_json;
use crate::mutant;

/// The label that says of which revision a pod, or a ControllerRevision, is.
pub const HASH_LABEL: &str = "controller-revision-hash";
/// The label of the time before revisions; kept for sets that still carry the annotation.
pub const GENERATION_LABEL: &str = "pod-template-generation";
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
    Automatic { key: "node.kubernetes.io/not-ready", effect: "NoExecute" },
    Automatic { key: "node.kubernetes.io/unreachable", effect: "NoExecute" },
    Automatic { key: "node.kubernetes.io/disk-pressure", effect: "NoSchedule" },
    Automatic { key: "node.kubernetes.io/memory-pressure", effect: "NoSchedule" },
    Automatic { key: "node.kubernetes.io/pid-pressure", effect: "NoSchedule" },
    Automatic { key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" },
];

/// Only for pods on the host's network: they are often what brings the node's network up.
pub const AUTOMATIC_ON_HOST_NETWORK: Automatic =
    Automatic { key: "node.kubernetes.io/network-unavailable", effect: "NoSchedule" };

/// Rule: what a daemon pod tolerates without asking. Placement decides by this list and pods are made with
/// it: two lists would let one side evict for ever what the other side recreates.
/// Upstream: `AddOrUpdateDaemonPodTolerations`.
pub fn automatic_tolerations(host_network: bool) -> impl Iterator<Item = Automatic> {
    let forgotten = |it: &Automatic| mutant::is("B27") && it.key.ends_with("pid-pressure");
    let all = AUTOMATIC.into_iter().chain(host_network.then_some(AUTOMATIC_ON_HOST_NETWORK));
    all.filter(move |it| !forgotten(it))
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
        if mutant::is("B24") && effect == "NoExecute" {
            continue;
        }
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
        "blockOwnerDeletion": !mutant::is("B60"),
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
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const OWNER: Owner<'static> = Owner { namespace: "ops", name: "web", uid: "u-1" };

    fn pretty(value: &Value) -> String {
        serde_json::to_string_pretty(value).unwrap()
    }

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        })
    }

    fn pod(template: &Value, binding: Binding) -> Value {
        daemon_pod(OWNER, template, "n1", "abc", None, binding)
    }

    fn pod_of_spec(spec: Value) -> Value {
        pod(&json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}), Binding::Scheduler)
    }

    fn tolerations(spec: Value) -> String {
        let pod = pod_of_spec(spec);
        let lines: Vec<String> =
            pod["spec"]["tolerations"].as_array().unwrap().iter().map(go_json::to_string).collect();
        lines.join("\n")
    }

    /// What the template says of affinity, and what the pod then says.
    fn check_affinity(affinity: Value, want: Expect) {
        want.assert_eq(&go_json::to_string(&pod_of_spec(json!({"affinity": affinity}))["spec"]["affinity"]));
    }

    fn required(terms: Value) -> Value {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    }

    #[test]
    fn a_whole_pod() {
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Pod",
              "metadata": {
                "generateName": "web-",
                "labels": {
                  "app": "web",
                  "controller-revision-hash": "abc"
                },
                "namespace": "ops",
                "ownerReferences": [
                  {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": true,
                    "controller": true,
                    "kind": "DaemonSet",
                    "name": "web",
                    "uid": "u-1"
                  }
                ]
              },
              "spec": {
                "affinity": {
                  "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                      "nodeSelectorTerms": [
                        {
                          "matchFields": [
                            {
                              "key": "metadata.name",
                              "operator": "In",
                              "values": [
                                "n1"
                              ]
                            }
                          ]
                        }
                      ]
                    }
                  }
                },
                "containers": [
                  {
                    "image": "web:1",
                    "name": "web"
                  }
                ],
                "tolerations": [
                  {
                    "effect": "NoExecute",
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoExecute",
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/disk-pressure",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/memory-pressure",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/pid-pressure",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/unschedulable",
                    "operator": "Exists"
                  }
                ]
              }
            }"#]]
        .assert_eq(&pretty(&pod(&template(), Binding::Scheduler)));
    }

    #[test]
    fn a_pod_bound_by_us_keeps_its_affinity() {
        let mut template = template();
        let wanted = required(json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]));
        template["spec"]["affinity"] = wanted.clone();
        let pod = pod(&template, Binding::Direct);
        assert_eq!(pod["spec"]["nodeName"], "n1");
        assert_eq!(pod["spec"]["schedulerName"], "kubernetes.io/daemonset-controller");
        assert_eq!(pod["spec"]["affinity"], wanted);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn a_pod_bound_by_the_scheduler_has_no_node_name() {
        let pod = pod(&template(), Binding::Scheduler);
        assert_eq!(pod["spec"].get("nodeName"), None);
        assert_eq!(pod["spec"].get("schedulerName"), None);
    }

    /// Upstream: TestCreatePodTemplate.
    #[test]
    fn the_generation_label_comes_with_the_generation_and_the_hash_label_with_a_hash() {
        let labels = |generation, hash| {
            let pod = daemon_pod(OWNER, &json!({}), "n1", hash, generation, Binding::Scheduler);
            go_json::to_string(&pod["metadata"]["labels"])
        };
        assert_eq!(labels(Some(1), ""), r#"{"pod-template-generation":"1"}"#);
        assert_eq!(
            labels(Some(2), "3242341807"),
            r#"{"controller-revision-hash":"3242341807","pod-template-generation":"2"}"#
        );
        assert_eq!(labels(None, "x"), r#"{"controller-revision-hash":"x"}"#);
        assert_eq!(labels(None, ""), "{}");
    }

    #[test]
    fn our_labels_win_over_the_template_s() {
        let template = json!({"metadata": {"labels": {HASH_LABEL: "old", GENERATION_LABEL: "1", "a": "b"}}});
        let pod = daemon_pod(OWNER, &template, "n1", "new", Some(7), Binding::Scheduler);
        expect![[r#"{"a":"b","controller-revision-hash":"new","pod-template-generation":"7"}"#]]
            .assert_eq(&go_json::to_string(&pod["metadata"]["labels"]));
    }

    #[test]
    fn of_the_template_s_metadata_only_labels_annotations_and_finalizers_reach_the_pod() {
        let template = json!({"metadata": {
            "name": "x", "generateName": "y", "namespace": "z", "uid": "u", "creationTimestamp": null,
            "ownerReferences": [{"uid": "other"}],
            "labels": {"app": "web"}, "annotations": {"a": "1"}, "finalizers": ["f/f"],
        }});
        let mut pod = pod(&template, Binding::Scheduler);
        pod["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        expect![[r#"{"annotations":{"a":"1"},"finalizers":["f/f"],"generateName":"web-","labels":{"app":"web","controller-revision-hash":"abc"},"namespace":"ops"}"#]]
            .assert_eq(&go_json::to_string(&pod["metadata"]));
    }

    #[test]
    fn unknown_fields_survive_at_every_depth() {
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "flightMode": {"on": true},
                "containers": [{"name": "web", "image": "web:1", "warp": 9}],
                "tolerations": [{"key": "gpu", "operator": "Exists", "until": "dawn"}],
                "affinity": {"moonAffinity": [1], "nodeAffinity": {"soon": 2,
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [], "mode": "any"}}},
            },
        });
        let spec = &pod(&template, Binding::Scheduler)["spec"];
        assert_eq!(spec["flightMode"], json!({"on": true}));
        assert_eq!(spec["containers"], template["spec"]["containers"]);
        assert_eq!(spec["tolerations"][0], template["spec"]["tolerations"][0]);
        assert_eq!(spec["affinity"]["moonAffinity"], json!([1]));
        assert_eq!(spec["affinity"]["nodeAffinity"]["soon"], 2);
        let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(required["mode"], "any");
        assert_eq!(required["nodeSelectorTerms"].as_array().unwrap().len(), 1);
        assert!(revision_data(&template).contains(r#""warp":9"#));
    }

    #[test]
    fn the_user_s_template_is_left_as_it_was() {
        let before = template();
        let after = before.clone();
        let _ = pod(&after, Binding::Scheduler);
        let _ = pod(&after, Binding::Direct);
        let _ = controller_revision(OWNER, &Value::Null, &after, "abc", 1);
        let _ = revision_data(&after);
        assert_eq!(before, after);
    }

    #[test]
    fn everything_but_tolerations_and_affinity_equals_the_template() {
        let template = json!({"spec": {
            "hostNetwork": true, "nodeName": "n9", "nodeSelector": {"zone": "a"}, "priority": 0,
            "containers": [], "volumes": [{"name": "v", "emptyDir": {}}], "schedulerName": "mine",
        }});
        let mut made = pod(&template, Binding::Scheduler);
        let spec = made["spec"].as_object_mut().unwrap();
        spec.remove("tolerations");
        spec.remove("affinity");
        assert_eq!(made["spec"], template["spec"]);
    }

    #[test]
    fn odd_input_gives_a_pod_all_the_same() {
        for odd in [json!(null), json!("x"), json!([]), json!({"metadata": 1, "spec": []})] {
            let pod = pod(&odd, Binding::Scheduler);
            assert_eq!(pod["kind"], "Pod");
            assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
            let _ = (
                revision_data(&odd),
                revision_hash(&odd, None),
                controller_revision(OWNER, &odd, &odd, "", 0),
            );
        }
        let spec = json!({"tolerations": "all", "affinity": [1], "hostNetwork": "yes"});
        assert_eq!(pod_of_spec(spec)["spec"]["tolerations"].as_array().unwrap().len(), 6);
        assert_eq!(tolerations(json!({"tolerations": [null, 7]})).lines().count(), 8);
    }

    #[test]
    fn pods_on_the_host_network_tolerate_its_absence() {
        let keys = |host| automatic_tolerations(host).map(|it| it.key).collect::<Vec<_>>();
        assert_eq!(keys(false).len(), 6);
        assert_eq!(keys(true)[..6], keys(false));
        assert_eq!(keys(true)[6], "node.kubernetes.io/network-unavailable");
        let lines = tolerations(json!({"hostNetwork": true}));
        expect![[
            r#"{"effect":"NoSchedule","key":"node.kubernetes.io/network-unavailable","operator":"Exists"}"#
        ]]
        .assert_eq(lines.lines().last().unwrap());
        assert!(!tolerations(json!({"hostNetwork": false})).contains("network-unavailable"));
    }

    #[test]
    fn own_tolerations_come_first_and_the_same_one_is_replaced_in_place() {
        let lines = tolerations(json!({"tolerations": [
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule", "value": ""},
        ]}));
        expect![[r#"
            {"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists"}
            {"effect":"NoSchedule","key":"gpu","operator":"Equal","value":"yes"}
            {"effect":"NoSchedule","key":"node.kubernetes.io/pid-pressure","operator":"Exists"}
            {"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"}
            {"effect":"NoSchedule","key":"node.kubernetes.io/disk-pressure","operator":"Exists"}
            {"effect":"NoSchedule","key":"node.kubernetes.io/memory-pressure","operator":"Exists"}
            {"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","operator":"Exists"}"#]]
        .assert_eq(&lines);
    }

    #[test]
    fn a_toleration_with_another_effect_operator_or_value_is_another_one() {
        let key = "node.kubernetes.io/not-ready";
        for other in [
            json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}),
            json!({"key": key, "operator": "Exists"}),
            json!({"key": key, "effect": "NoExecute"}),
            json!({"key": key, "operator": "Equal", "effect": "NoExecute"}),
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "value": "x"}),
            json!({"operator": "Exists"}),
        ] {
            let lines = tolerations(json!({"tolerations": [other]}));
            assert_eq!(lines.lines().next().unwrap(), go_json::to_string(&other));
            assert_eq!(lines.lines().count(), 7, "{other}");
        }
    }

    #[test]
    fn making_a_pod_of_a_pod_s_own_spec_changes_nothing() {
        let once = pod(&template(), Binding::Scheduler);
        assert_eq!(pod_of_spec(once["spec"].clone())["spec"], once["spec"]);
    }

    /// Upstream: the eight cases of TestReplaceDaemonSetPodNodeNameNodeAffinity.
    #[test]
    fn the_node_replaces_what_was_required_of_nodes() {
        let only_the_node = r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}"#;
        let field = |key: &str, operator: &str, values: &[&str]| json!({"matchFields": [{"key": key, "operator": operator, "values": values}]});
        let hostname = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]});
        for affinity in [
            Value::Null,
            required(json!([hostname])),
            required(json!([field("metadata.name", "In", &["n1", "n2"])])),
            json!({}),
            required(json!([hostname, field("metadata.name", "In", &["n2"])])),
            required(json!([field("metadata.name", "NotIn", &["n2"])])),
            required(json!([field("metadata.foo", "In", &["bar"])])),
        ] {
            let pod = pod_of_spec(json!({"affinity": affinity}));
            assert_eq!(go_json::to_string(&pod["spec"]["affinity"]), only_the_node, "{affinity}");
        }
        check_affinity(
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": hostname}]}}),
            expect![[
                r#"{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]},"weight":1}],"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}"#
            ]],
        );
    }

    #[test]
    fn affinity_to_other_pods_is_kept() {
        check_affinity(
            json!({"podAffinity": {"a": 1}, "podAntiAffinity": {"b": 2}, "nodeAffinity": null}),
            expect![[
                r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}},"podAffinity":{"a":1},"podAntiAffinity":{"b":2}}"#
            ]],
        );
    }

    #[test]
    fn a_whole_revision() {
        let annotations = json!({"kubernetes.io/change-cause": "because"});
        expect![[r#"
            {
              "apiVersion": "apps/v1",
              "data": {
                "spec": {
                  "template": {
                    "$patch": "replace",
                    "metadata": {
                      "labels": {
                        "app": "web"
                      }
                    },
                    "spec": {
                      "containers": [
                        {
                          "image": "web:1",
                          "name": "web"
                        }
                      ]
                    }
                  }
                }
              },
              "kind": "ControllerRevision",
              "metadata": {
                "annotations": {
                  "kubernetes.io/change-cause": "because"
                },
                "labels": {
                  "app": "web",
                  "controller-revision-hash": "abc"
                },
                "name": "web-abc",
                "namespace": "ops",
                "ownerReferences": [
                  {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": true,
                    "controller": true,
                    "kind": "DaemonSet",
                    "name": "web",
                    "uid": "u-1"
                  }
                ]
              },
              "revision": 3
            }"#]]
        .assert_eq(&pretty(&controller_revision(OWNER, &annotations, &template(), "abc", 3)));
    }

    #[test]
    fn a_revision_of_a_set_without_annotations_has_none() {
        for none in [Value::Null, json!({})] {
            let revision = controller_revision(OWNER, &none, &template(), "abc", 1);
            assert_eq!(revision["metadata"].get("annotations"), None);
        }
    }

    #[test]
    fn revision_data_is_spelt_as_go_spells_it() {
        let template = json!({
            "spec": {"containers": [{"name": "web", "image": "web:1", "command": ["sh", "-c", "a <b && c>d"]}]},
            "metadata": {"labels": {"app": "web"}, "creationTimestamp": null},
        });
        let text = revision_data(&template);
        expect![[r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"command":["sh","-c","a \u003cb \u0026\u0026 c\u003ed"],"image":"web:1","name":"web"}]}}}}"#]]
            .assert_eq(&text);
        // What a revision carries, written in Go's spelling, is that very text.
        let revision = controller_revision(OWNER, &Value::Null, &template, "abc", 1);
        assert!(go_json::to_string(&revision).contains(&text));
    }

    #[test]
    fn hashes() {
        let mut other = template();
        other["spec"]["containers"][0]["image"] = "web:2".into();
        let all = [
            revision_hash(&template(), None),
            revision_hash(&template(), Some(0)),
            revision_hash(&template(), Some(1)),
            revision_hash(&template(), Some(-1)),
            revision_hash(&other, None),
        ];
        expect!["794686fc5b 6996875cb8 855f4f85fc 57967565b 849fb4b4d5"].assert_eq(&all.join(" "));
    }

    #[test]
    fn fnv_and_the_alphabet() {
        assert_eq!(fnv1a_32("".bytes()), 0x811c_9dc5);
        assert_eq!(fnv1a_32("a".bytes()), 0xe40c_292c);
        assert_eq!(fnv1a_32("foobar".bytes()), 0xbf9c_f968);
        assert_eq!(safe_encode("0123456789"), "456789bcdf");
    }

    #[test]
    fn patches() {
        let check = |patch: Value, want: Expect| want.assert_eq(&go_json::to_string(&patch));
        check(
            adopt_patch(OWNER, "p-1", "7"),
            expect![[
                r#"{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"web","uid":"u-1"}],"resourceVersion":"7","uid":"p-1"}}"#
            ]],
        );
        check(
            release_patch("u-1", "p-1", "7"),
            expect![[
                r#"{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-1"}],"resourceVersion":"7","uid":"p-1"}}"#
            ]],
        );
        check(
            relabel_patch("abc", "p-1", "7"),
            expect![[
                r#"{"metadata":{"labels":{"controller-revision-hash":"abc"},"resourceVersion":"7","uid":"p-1"}}"#
            ]],
        );
        check(
            renumber_patch(4, "r-1", "7"),
            expect![[r#"{"metadata":{"resourceVersion":"7","uid":"r-1"},"revision":4}"#]],
        );
        check(
            label_revision_patch("web-x", "r-1", "7"),
            expect![[
                r#"{"metadata":{"labels":{"controller-revision-hash":"web-x"},"resourceVersion":"7","uid":"r-1"}}"#
            ]],
        );
    }
}
