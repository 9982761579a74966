//! Sets a pod's priority from its PriorityClass. Upstream: `Priority`.

use serde_json::{Value, json};

use super::AdmissionChain;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::selector::ObjectSelector;
use crate::unstructured::{self, is_set, map_at_mut, str_at};

/// Sets `spec.priority`, `spec.priorityClassName` and `spec.preemptionPolicy` of a new pod from the PriorityClass that
/// the pod names, or else from the default PriorityClass. If the pod names none and there is no default, the priority
/// is 0, the preemption policy is `PreemptLowerPriority`, and `priorityClassName` is not set. An update that leaves out
/// `priority` or `preemptionPolicy` keeps the stored value.
///
/// Refuses a new pod whose PriorityClass does not exist, or whose `priority` or `preemptionPolicy` differs from the
/// value that this function would set. Does nothing for PriorityClasses.
pub(super) fn mutate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    if std::ptr::eq(attributes.target.kind, priority_class_kind()) {
        return Ok(());
    }
    if let AdmissionOperation::Update { old } = attributes.operation {
        // An update by a client without these fields must not remove them.
        for name in ["priority", "preemptionPolicy"] {
            if !is_set(&object["spec"][name]) && is_set(&old["spec"][name]) {
                object["spec"][name] = old["spec"][name].clone();
            }
        }
        return Ok(());
    }
    let (name, value, policy) = match str_at(object, "spec.priorityClassName") {
        "" => match default_priority_class(admission) {
            Some(class) => priority_class_fields(&class),
            None => (String::new(), 0, Some("PreemptLowerPriority".to_owned())),
        },
        name => match admission.storage.find(priority_class_kind(), None, name) {
            Some(class) => priority_class_fields(&unstructured::parse_stored(&class)),
            None => {
                return Err(
                    attributes.forbidden(object, &format!("no PriorityClass with name {name} was found"))
                );
            }
        },
    };
    if let Some(given) = object["spec"]["priority"].as_i64().filter(|it| *it != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(object, &why));
    }
    let given = str_at(object, "spec.preemptionPolicy");
    if let Some(policy) = policy.as_ref().filter(|it| !given.is_empty() && given != **it) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(object, &why));
    }
    let spec = map_at_mut(object, "spec");
    spec.insert("priority".into(), json!(value));
    if !name.is_empty() {
        spec.insert("priorityClassName".into(), json!(name));
    }
    if let Some(policy) = policy {
        spec.insert("preemptionPolicy".into(), json!(policy));
    }
    Ok(())
}

/// Refuses a PriorityClass with `globalDefault` if another PriorityClass has `globalDefault` already.
pub(super) fn validate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
) -> Result<(), ApiError> {
    if !std::ptr::eq(attributes.target.kind, priority_class_kind()) || object["globalDefault"] != true {
        return Ok(());
    }
    match default_priority_class(admission) {
        Some(other) if attributes.is_create() || other["metadata"]["name"] != object["metadata"]["name"] => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                str_at(&other, "metadata.name")
            );
            Err(attributes.forbidden(object, &why))
        }
        _ => Ok(()),
    }
}

/// Returns the PriorityClass with `globalDefault`, or `None` if there is none. If concurrent writes created several,
/// returns the one with the lowest value.
fn default_priority_class(admission: &AdmissionChain) -> Option<Value> {
    let (classes, _) = admission.storage.list(priority_class_kind(), None, &ObjectSelector::default());
    let classes =
        classes.iter().map(|it| unstructured::parse_stored(it)).filter(|it| it["globalDefault"] == true);
    classes.min_by_key(|it| it["value"].as_i64().unwrap_or(0))
}

/// Returns the name, value and preemption policy of a PriorityClass.
fn priority_class_fields(class: &Value) -> (String, i64, Option<String>) {
    (
        str_at(class, "metadata.name").to_owned(),
        class["value"].as_i64().unwrap_or(0),
        class["preemptionPolicy"].as_str().map(str::to_owned),
    )
}

fn priority_class_kind() -> &'static Kind {
    Kind::builtin("scheduling.k8s.io", "v1", "priorityclasses")
}
