//! What the server alone says of the objects of a kind, beyond what it says of every object: one function for a row of
//! the table of kinds. Upstream: `PrepareForCreate` and `PrepareForUpdate` of the kind's strategy.
//!
//! Each is given the object that would be stored, the one that stands if there is one, and the door of the write.

use serde_json::{Value, json};

use crate::object::{is_set, list, map_mut};
use crate::route::Part;

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

/// A pod's owners are not its status, and a status does not forget what it once said of the pod's class.
pub(crate) fn pod(new: &mut Value, old: Option<&Value>, part: Part) {
    let (Some(old), Part::Status) = (old, part) else { return };
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

/// A DaemonSet that carries the old API's template generation has it raised with every change of its template: pods are
/// told old from new by it, so one that stood still would stop every update.
pub(crate) fn daemonset(new: &mut Value, old: Option<&Value>, _: Part) {
    const ANNOTATION: &str = "deprecated.daemonset.template.generation";
    let Some(old) = old.filter(|old| new["spec"]["template"] != old["spec"]["template"]) else { return };
    let before = old["metadata"]["annotations"][ANNOTATION].as_str().and_then(|it| it.parse::<i64>().ok());
    if let Some(before) = before {
        let annotations = map_mut(&mut new["metadata"], "annotations");
        annotations.insert(ANNOTATION.into(), before.saturating_add(1).to_string().into());
    }
}
