//! Validation of pod updates, which may change only a few fields.

use muster_api::core_v1::is_sidecar_policy;
use serde_json::Value;

use super::container::check_pod_image;
use super::pod::check_immutable_annotations;
use super::scheduling::REQUIRED_AFFINITY;
use super::{check_immutable, check_required, label_pairs, scheduling};
use crate::small_map::{SmallMap, SmallSet};
use crate::subresource::Subresource;
use crate::unstructured::{is_set, list_at, map_at_mut, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{address, labels, names};

/// Checks an update of a pod itself, or of its subresource `ephemeralcontainers`, which may only add ephemeral
/// containers. For the subresource `binding`, checks only the annotations.
///
/// Rule: an update of a pod spec may only change images, add tolerations, change `tolerationSeconds`, set or shorten
/// the active deadline, remove scheduling gates, and set a negative termination grace period to 1. While the pod has
/// scheduling gates, the update may also add node selectors and required node affinity, and change preferred node
/// affinity. Upstream: `ValidatePodUpdate`.
pub(super) fn check_pod_update(new: &Value, old: &Value, subresource: Subresource, out: &mut FieldErrors) {
    check_immutable_annotations(new, old, out);
    let (new, old, at) = (&new["spec"], &old["spec"], ErrorPath::new("spec"));
    match subresource {
        Subresource::EphemeralContainers => {
            check_ephemeral_containers_update(new, old, &at.field("ephemeralContainers"), out)
        }
        Subresource::Binding => {}
        _ => check_spec_update(new, old, &at, out),
    }
}

/// Checks that an update changes only the fields of the pod spec that [`check_pod_update`] lists.
fn check_spec_update(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    for name in ["containers", "initContainers"] {
        let (now, before) = (list_at(new, name), list_at(old, name));
        if now.len() != before.len() {
            return out.forbidden(&at.field(name), "pod updates may not add or remove containers");
        }
        for (index, container) in now.iter().enumerate() {
            let at = at.field(name);
            let at = at.index(index);
            check_required(container, &["image"], &at, out);
            check_pod_image(container, &at, out);
        }
    }
    let deadline_at = at.field("activeDeadlineSeconds");
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            let why = format!("must be between 0 and {}, inclusive", i32::MAX);
            return out.invalid(&deadline_at, now, &why);
        }
        (Some(now), Some(before)) if before < now => {
            return out.invalid(&deadline_at, now, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            out.invalid(&deadline_at, &Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    check_tolerations_update(new, old, &at.field("tolerations"), out);
    check_scheduling_gates_update(new, old, &at.field("schedulingGates"), out);
    if new == old {
        return;
    }
    let mut rest = new.clone();
    for name in ["containers", "initContainers"] {
        let images = list_at(old, name).iter().map(|it| it.get("image"));
        let containers = rest.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, image) in containers.zip(images) {
            restore_field(container, "image", image);
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore_field(&mut rest, name, old.get(name));
    }
    let grace = "terminationGracePeriodSeconds";
    if old[grace].as_i64().is_some_and(|it| it < 0) && rest[grace] == 1 {
        restore_field(&mut rest, grace, old.get(grace));
    }
    if is_set(&old["schedulingGates"]) {
        check_and_restore_gated_fields(&mut rest, old, at, out);
    }
    if rest != *old {
        out.forbidden(at, IMMUTABLE_FIELDS_MESSAGE);
    }
}

/// Upstream's message for an update that changes an immutable field of a pod spec.
const IMMUTABLE_FIELDS_MESSAGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                          `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                          additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
                          set to 1 if it was previously negative)";

/// Restores the field `name` of an object to its old value, which is `value`. Removes the field if `value` is `None`.
fn restore_field(object: &mut Value, name: &str, value: Option<&Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match value {
        Some(value) => drop(object.insert(name.into(), value.clone())),
        None => drop(object.remove(name)),
    }
}

/// Checks that an update only adds tolerations or changes `tolerationSeconds` of existing ones.
fn check_tolerations_update(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let without_seconds = |it: &Value| {
        let mut it = it.clone();
        restore_field(&mut it, "tolerationSeconds", None);
        it
    };
    let now: SmallSet<_> = list_at(new, "tolerations").iter().map(without_seconds).collect();
    if list_at(old, "tolerations").iter().any(|it| !now.contains(&without_seconds(it))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        return out.forbidden(at, why);
    }
    scheduling::check_tolerations(list_at(new, "tolerations"), at, out);
}

/// Checks that scheduling gates are only removed.
fn check_scheduling_gates_update(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let before: SmallSet<_> = list_at(old, "schedulingGates").iter().map(|it| str_at(it, "name")).collect();
    for (index, gate) in list_at(new, "schedulingGates").iter().enumerate() {
        let name = str_at(gate, "name");
        if !before.contains(name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            out.forbidden(&at.index(index).field("name"), &why);
        }
    }
}

/// Checks that an update of a pod with scheduling gates only adds to its node selector and required node affinity.
/// Preferred node affinity may change. Then sets these fields in `rest`, a copy of the new spec, to their old values.
fn check_and_restore_gated_fields(rest: &mut Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Name of the field with the terms of a required node affinity.
    const NODE_SELECTOR_TERMS: &str = "nodeSelectorTerms";
    if rest["nodeSelector"] != old["nodeSelector"] {
        let is_changed =
            label_pairs(&old["nodeSelector"]).any(|(key, value)| rest["nodeSelector"][key] != *value);
        if is_changed {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            out.invalid(&at.field("nodeSelector"), &rest["nodeSelector"], why);
        }
        restore_field(rest, "nodeSelector", old.get("nodeSelector"));
    }
    let before = &old["affinity"]["nodeAffinity"];
    if rest["affinity"]["nodeAffinity"] == *before {
        return;
    }
    let now = rest["affinity"]["nodeAffinity"].clone();
    let (old_terms, new_terms) = (
        list_at(&before[REQUIRED_AFFINITY], NODE_SELECTOR_TERMS),
        list_at(&now[REQUIRED_AFFINITY], NODE_SELECTOR_TERMS),
    );
    if !before[REQUIRED_AFFINITY].is_null() {
        let at = at.field("affinity.nodeAffinity");
        let at = at.field(REQUIRED_AFFINITY);
        let at = at.field(NODE_SELECTOR_TERMS);
        if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
            let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
            out.invalid(&at, &now[REQUIRED_AFFINITY][NODE_SELECTOR_TERMS], why);
        }
        for (index, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
            if ["matchExpressions", "matchFields"]
                .iter()
                .any(|it| !list_at(new, it).starts_with(list_at(old, it)))
            {
                let why = "only additions are allowed (no mutations or deletions)";
                out.invalid(&at.index(index), new, why);
            }
        }
    }
    if before.is_null() {
        let is_alone =
            rest["affinity"].as_object().is_some_and(|it| it.keys().all(|it| it == "nodeAffinity"));
        if old["affinity"].is_null() && is_alone {
            restore_field(rest, "affinity", None);
        } else if let Some(affinity) = rest.get_mut("affinity") {
            restore_field(affinity, "nodeAffinity", None);
        }
    } else {
        map_at_mut(rest, "affinity").insert("nodeAffinity".into(), before.clone());
    }
}

/// Returns the items of a list by the field `name`.
fn items_by_name(items: &[Value]) -> SmallMap<&str, &Value> {
    items.iter().map(|it| (str_at(it, "name"), it)).collect()
}

/// Checks that ephemeral containers are only added, not changed or removed.
fn check_ephemeral_containers_update(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let by_name = items_by_name(list_at(new, "ephemeralContainers"));
    for before in list_at(old, "ephemeralContainers") {
        let name = str_at(before, "name");
        match by_name.get(name).copied() {
            None => {
                out.forbidden(at, &format!("existing ephemeral containers {name:?} may not be removed\n"))
            }
            Some(now) if now != before => {
                out.forbidden(at, &format!("existing ephemeral containers {name:?} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
}

/// Checks an update of a pod's status. Upstream: `ValidatePodStatusUpdate`.
pub(super) fn check_status_update(new: &Value, old: &Value, out: &mut FieldErrors) {
    check_immutable_annotations(new, old, out);
    let (spec, at) = (&old["spec"], ErrorPath::new("status"));
    let (new, old) = (&new["status"], &old["status"]);
    for (index, it) in list_at(new, "conditions").iter().enumerate() {
        let at = at.field("conditions");
        let at = at.index(index);
        let kind = str_at(it, "type");
        if let Some(number) = it["observedGeneration"].as_i64().filter(|it| *it < 0) {
            out.invalid(&at.field("observedGeneration"), number, "must be a non-negative integer");
        }
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            labels::check_label_key(kind, &at.field("Type"), out);
        }
    }
    let nominated = str_at(new, "nominatedNodeName");
    if !nominated.is_empty() && nominated != str_at(old, "nominatedNodeName") {
        out.invalid_for_each(
            &at.field("nominatedNodeName"),
            nominated,
            names::dns_subdomain_errors(nominated),
        );
        if is_set(&spec["nodeName"]) {
            let why = "may not be set on pods that are already bound to a node";
            out.forbidden(&at.field("nominatedNodeName"), why);
        }
    }
    if let Some(number) = new["observedGeneration"].as_i64().filter(|it| *it < 0) {
        out.invalid(&at.field("observedGeneration"), number, "must be a non-negative integer");
    }
    check_immutable(&new["qosClass"], &old["qosClass"], &at.field("qosClass"), out);
    for name in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        check_terminated_containers(name, new, old, spec, &at.field(name), out);
    }
    for (name, single) in [("podIPs", "podIP"), ("hostIPs", "hostIP")] {
        check_status_ips(name, single, new, old, &at.field(name), out);
    }
}

/// Checks that a terminated container stays terminated, unless it may be restarted. The restart policy of the container
/// or of the pod, or the restart rules of the container, may allow a restart. An ephemeral container is never
/// restarted. `name` is the status field that lists the containers, such as `containerStatuses`. Upstream:
/// `ValidateContainerStateTransition`.
fn check_terminated_containers(
    name: &str,
    new: &Value,
    old: &Value,
    spec: &Value,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let statuses = items_by_name(list_at(new, name));
    let containers = match name {
        "initContainerStatuses" => "initContainers",
        _ => "containers",
    };
    let containers = items_by_name(list_at(spec, containers));
    let can_restart = |container: &str, code: i64| match name {
        "ephemeralContainerStatuses" => false,
        "initContainerStatuses" => {
            let it = containers.get(container);
            let is_sidecar = it.is_some_and(|it| is_sidecar_policy(it["restartPolicy"].as_str()));
            is_sidecar || spec["restartPolicy"] != "Never"
        }
        _ => {
            let Some(it) = containers.get(container) else { return false };
            let has_rules = is_set(&it["restartPolicyRules"]);
            let policy = it["restartPolicy"].as_str().unwrap_or_else(|| str_at(spec, "restartPolicy"));
            has_rules || policy == "Always" || (policy == "OnFailure" && code != 0)
        }
    };
    for (index, before) in list_at(old, name).iter().enumerate() {
        let terminated = &before["state"]["terminated"];
        let container = str_at(before, "name");
        let Some(now) = statuses.get(container) else { continue };
        let is_running_again = !terminated.is_null() && now["state"]["terminated"].is_null();
        if is_running_again && !can_restart(container, terminated["exitCode"].as_i64().unwrap_or(0)) {
            out.forbidden(&at.index(index).field("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// Checks the IP addresses in the status field `name`, which is `podIPs` or `hostIPs`. `single` is the field that
/// repeats the first address: `podIP` or `hostIP`.
fn check_status_ips(
    name: &str,
    single: &str,
    new: &Value,
    old: &Value,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let ips: Vec<_> = list_at(new, name).iter().map(|it| str_at(it, "ip")).collect();
    if let Some(first) = ips.first()
        && single == "hostIP"
        && *first != str_at(new, single)
    {
        out.invalid(&at.index(0).field("ip"), *first, "must be equal to `hostIP`");
    }
    let old_ips: SmallSet<_> = list_at(old, name).iter().map(|it| str_at(it, "ip")).collect();
    for (index, ip) in ips.iter().enumerate() {
        if !old_ips.contains(*ip) {
            address::check_ip(ip, &at.index(index), out);
        }
    }
    let families = ips.iter().filter(|it| it.contains(':')).count();
    if 1 < ips.len() && (families != 1 || 2 < ips.len()) {
        let ips_in_go: Vec<_> = ips.iter().map(|it| format!("{{\"IP\":{it:?}}}")).collect();
        let ips_in_go = crate::validation::field_error::InvalidValue::Formatted(
            format!("[{}]", ips_in_go.join(",")).into(),
        );
        out.invalid(at, ips_in_go, "may specify no more than one IP for each IP family");
    }
}
