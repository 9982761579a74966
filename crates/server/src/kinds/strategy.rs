//! The strategies of kinds. A strategy sets the server-owned fields of an object that is created or updated. Upstream:
//! `rest.BeforeCreate` and `rest.BeforeUpdate`, which call the strategy of the kind.
//!
//! [`Kind::prepare_for_create`] and [`Kind::prepare_for_update`] set the server-owned fields that every kind has, and
//! then call [`Kind::prepare`], which sets those that only one kind has.

use jiff::Timestamp;
use muster_api::names;
use muster_api::qos::QosClass;
use muster_api::well_known::POD_SCHEDULED;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Kind, StatusPolicy, reset_fields};
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list_at, map_at_mut};
use crate::validation::resources::merge_match_label_keys;
use muster_api::well_known::ANNOTATION_TEMPLATE_GENERATION;

impl Kind {
    /// Sets the server-owned fields of a new object. `now` is its creation time.
    pub(crate) fn prepare_for_create(&self, object: &mut Value, now: Timestamp) {
        let meta = map_at_mut(object, "metadata");
        meta.insert("uid".into(), json!(Uuid::new_v4().to_string()));
        meta.insert("creationTimestamp".into(), json!(unstructured::format_time(now)));
        if self.generation_fields.is_some() {
            meta.insert("generation".into(), json!(1));
        }
        match self.status {
            StatusPolicy::NoSubresource | StatusPolicy::SubresourceAndCreate => {}
            StatusPolicy::SubresourceOnly(initial) => {
                object["status"] = serde_json::from_str(initial).expect("the table of kinds holds JSON");
            }
        }
        (self.prepare)(object, None, Subresource::Whole);
    }

    /// Sets the server-owned fields of the updated object `new`, and restores the fields that an update of
    /// `subresource` may not change. `old` is the stored object.
    pub(crate) fn prepare_for_update(&self, subresource: Subresource, new: &mut Value, old: &Value) {
        reset_fields::reset_fields(self, subresource, new, old);
        new["apiVersion"] = json!(self.storage_kind().api_version());
        new["kind"] = json!(self.kind);
        let (meta, stored) = (map_at_mut(new, "metadata"), &old["metadata"]);
        // An absent field keeps its value; validation refuses another value than the stored one.
        for name in ["uid", "deletionGracePeriodSeconds"] {
            if !meta.get(name).is_some_and(is_set) {
                match stored.get(name) {
                    Some(value) => drop(meta.insert(name.into(), value.clone())),
                    None => drop(meta.remove(name)),
                }
            }
        }
        (self.prepare)(new, Some(old), subresource);
        // Binding a pod to its node does not increment the generation.
        if subresource != Subresource::Binding && self.increments_generation(new, old) {
            new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
    }
}

/// [`Kind::prepare`] for a kind that has no server-owned fields of its own. Does nothing.
pub(super) fn prepare_nothing(_: &mut Value, _: Option<&Value>, _: Subresource) {}

/// [`Kind::prepare`] for Namespaces. Adds the finalizer `kubernetes` to a new Namespace. After a delete of the
/// Namespace, this finalizer delays the deletion until the Namespace contains no objects.
pub(super) fn prepare_namespace(new: &mut Value, old: Option<&Value>, _: Subresource) {
    if old.is_some() {
        return;
    }
    let mut finalizers = list_at(&new["spec"], "finalizers").to_vec();
    if !finalizers.contains(&json!("kubernetes")) {
        finalizers.push(json!("kubernetes"));
    }
    map_at_mut(new, "spec").insert("finalizers".into(), Value::Array(finalizers));
}

/// [`Kind::prepare`] for pods. Calls [`prepare_new_pod`] for a new pod. If an update of the status contains no
/// `qosClass`, keeps the stored `qosClass`.
pub(super) fn prepare_pod(new: &mut Value, old: Option<&Value>, subresource: Subresource) {
    let Some(old) = old else { return prepare_new_pod(new) };
    if subresource != Subresource::Status {
        return;
    }
    let class = &old["status"]["qosClass"];
    if is_set(class) && !is_set(&new["status"]["qosClass"]) {
        map_at_mut(new, "status").insert("qosClass".into(), class.clone());
    }
}

/// Sets `status.qosClass` of a new pod and, if the pod has scheduling gates, the condition `PodScheduled`. Also merges
/// `matchLabelKeys` into the label selectors of the spec.
fn prepare_new_pod(pod: &mut Value) {
    let class = QosClass::of_pod_spec(&pod["spec"]).as_str();
    let since = pod["metadata"]["creationTimestamp"].clone();
    let is_gated = is_set(&pod["spec"]["schedulingGates"]);
    let status = map_at_mut(pod, "status");
    status.insert("qosClass".into(), json!(class));
    if is_gated {
        let gated = json!({
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": since,
        });
        status.insert("conditions".into(), json!([gated]));
    }
    merge_match_label_keys(pod);
}

/// [`Kind::prepare`] for DaemonSets. Sets the template generation in the annotation [`ANNOTATION_TEMPLATE_GENERATION`].
/// In `extensions/v1beta1`, the conversion maps this annotation to the field `spec.templateGeneration`. Only a change
/// of the pod template increments the template generation, because controllers use it to distinguish pods of the old
/// template from pods of the new template.
pub(super) fn prepare_daemon_set(new: &mut Value, old: Option<&Value>, subresource: Subresource) {
    let of = |set: &Value| {
        set["metadata"]["annotations"][ANNOTATION_TEMPLATE_GENERATION]
            .as_str()
            .and_then(|it| it.parse::<i64>().ok())
    };
    let generation = match old {
        None => of(new).unwrap_or(1).max(1),
        Some(old)
            if subresource != Subresource::Status && new["spec"]["template"] != old["spec"]["template"] =>
        {
            of(old).unwrap_or(0).saturating_add(1)
        }
        Some(old) => of(old).unwrap_or(0),
    };
    let annotations = map_at_mut(&mut new["metadata"], "annotations");
    annotations.insert(ANNOTATION_TEMPLATE_GENERATION.into(), generation.to_string().into());
}

/// Returns five random characters to append to `generateName`. Upstream: `SimpleNameGenerator`.
pub(crate) fn generate_name_suffix() -> String {
    names::random_string(std::iter::repeat_with(|| Uuid::new_v4().into_bytes()), 5)
}
