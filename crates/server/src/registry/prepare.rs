//! What the server alone says of the objects of a kind, beyond what it says of every object: one function for a row of
//! the table of kinds. Upstream: `PrepareForCreate` and `PrepareForUpdate` of the kind's strategy.
//!
//! Each is given the object that would be stored, the one that stands if there is one, and the door of the write.

use serde_json::{Value, json};

use crate::admit::resources;
use crate::object::{is_set, list, map_mut};
use crate::route::Part;

pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) fn nothing(_: &mut Value, _: Option<&Value>, _: Part) {}

/// A new namespace has the finalizer `kubernetes`, which stands for its content.
pub(crate) fn namespace(new: &mut Value, old: Option<&Value>, _: Part) {
    if old.is_some() {
        return;
    }
    let mut finalizers = list(&new["spec"], "finalizers").to_vec();
    if !finalizers.contains(&json!("kubernetes")) {
        finalizers.push(json!("kubernetes"));
    }
    map_mut(new, "spec").insert("finalizers".into(), Value::Array(finalizers));
}

/// The QoS class of a pod is set when it is created; a status that leaves it out keeps it.
pub(crate) fn pod(new: &mut Value, old: Option<&Value>, part: Part) {
    let Some(old) = old else { return first_status(new) };
    if part != Part::Status {
        return;
    }
    let class = &old["status"]["qosClass"];
    if is_set(class) && !is_set(&new["status"]["qosClass"]) {
        map_mut(new, "status").insert("qosClass".into(), class.clone());
    }
}

fn first_status(pod: &mut Value) {
    let class = resources::class(&pod["spec"]);
    let since = pod["metadata"]["creationTimestamp"].clone();
    let is_gated = is_set(&pod["spec"]["schedulingGates"]);
    let status = map_mut(pod, "status");
    status.insert("qosClass".into(), json!(class));
    if is_gated {
        let gated = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": since,
        });
        status.insert("conditions".into(), json!([gated]));
    }
    resources::spell_out_label_keys(pod);
}

/// A DaemonSet carries the old API's template generation, raised with every change of its template and with nothing
/// else: old pods are told from new ones by it, so one that stood still would stop every update.
pub(crate) fn daemonset(new: &mut Value, old: Option<&Value>, part: Part) {
    let of = |set: &Value| {
        set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|it| it.parse::<i64>().ok())
    };
    let generation = match old {
        None => of(new).unwrap_or(1).max(1),
        Some(old) if part != Part::Status && new["spec"]["template"] != old["spec"]["template"] => {
            of(old).unwrap_or(0).saturating_add(1)
        }
        Some(old) => of(old).unwrap_or(0),
    };
    let annotations = map_mut(&mut new["metadata"], "annotations");
    annotations.insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
}
