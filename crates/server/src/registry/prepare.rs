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

/// The finalizer `kubernetes` of a namespace stands for its content, and only `/finalize` takes it away.
pub(crate) fn namespace(new: &mut Value, old: Option<&Value>, part: Part) {
    match (old, part) {
        (None, _) => {
            let mut finalizers = list(&new["spec"], "finalizers").to_vec();
            if !finalizers.contains(&json!("kubernetes")) {
                finalizers.push(json!("kubernetes"));
            }
            map_mut(new, "spec").insert("finalizers".into(), Value::Array(finalizers));
        }
        (Some(_), Part::Finalize) => {}
        (Some(old), _) => match old["spec"].get("finalizers") {
            Some(finalizers) => drop(map_mut(new, "spec").insert("finalizers".into(), finalizers.clone())),
            None => drop(map_mut(new, "spec").remove("finalizers")),
        },
    }
}

/// A pod's class is known from its first day, and a status does not forget it. Its owners are not its status.
pub(crate) fn pod(new: &mut Value, old: Option<&Value>, part: Part) {
    let Some(old) = old else { return first_status(new) };
    if part != Part::Status {
        return;
    }
    let meta = map_mut(new, "metadata");
    match old["metadata"].get("ownerReferences") {
        Some(owners) => drop(meta.insert("ownerReferences".into(), owners.clone())),
        None => drop(meta.remove("ownerReferences")),
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
