//! Defaults of pods, pod templates and pod specs.

use serde_json::{Value, json};

use super::{
    container::set_container_defaults, copy_missing_resources, for_each_object, remove_field,
    round_to_millis, set_if_absent, set_if_zero, volume::set_volume_defaults, with_object,
};
use crate::unstructured::is_set;
use crate::validation::resources;
use muster_api::resources::{is_huge_pages, is_pod_level_resource};
use muster_api::well_known::DEFAULT_SCHEDULER_NAME;

/// Sets the defaults of a pod. Upstream: `SetDefaults_Pod`.
pub(crate) fn set_pod_defaults(pod: &mut Value) {
    set_if_absent(pod, "spec", json!({}));
    with_object(pod, "spec", |spec| {
        // For pods only, not for templates: defaults added later must not change existing templates.
        for containers in ["containers", "initContainers"] {
            for_each_object(spec, containers, |it| {
                with_object(it, "resources", |it| copy_missing_resources(it, "requests", "limits"))
            });
        }
        set_pod_level_resource_defaults(spec);
        set_if_absent(spec, "enableServiceLinks", true);
        if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|it| it < 0) {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        if spec["hostNetwork"] == true {
            for containers in ["containers", "initContainers"] {
                for_each_object(spec, containers, |it| {
                    for_each_object(it, "ports", |port| {
                        let number = port["containerPort"].clone();
                        set_if_zero(port, "hostPort", number);
                    });
                });
            }
        }
        set_pod_spec_defaults(spec);
    });
    // The deprecated field holds the first item of the list, and takes precedence: old kubelets write only `podIP`.
    with_object(pod, "status", |status| {
        let (one, all) = (status["podIP"].clone(), status["podIPs"].clone());
        if is_set(&one) && all[0]["ip"] != one {
            status["podIPs"] = json!([{"ip": one}]);
        } else if !is_set(&one) && is_set(&all[0]["ip"]) {
            status["podIP"] = all[0]["ip"].clone();
        }
    });
}

/// Sets the defaults of an object of the kind PodTemplate.
pub(crate) fn set_pod_template_defaults(object: &mut Value) {
    with_object(object, "template", |template| {
        set_if_absent(template, "spec", json!({}));
        with_object(template, "spec", set_pod_spec_defaults);
    });
}

/// Sets the defaults of a pod spec, in a pod or in a pod template. Upstream: `SetDefaults_PodSpec`.
pub(super) fn set_pod_spec_defaults(spec: &mut Value) {
    remove_field(spec, "schedulingGroup");
    set_if_zero(spec, "dnsPolicy", "ClusterFirst");
    set_if_zero(spec, "restartPolicy", "Always");
    set_if_zero(spec, "schedulerName", DEFAULT_SCHEDULER_NAME);
    set_if_absent(spec, "securityContext", json!({}));
    set_if_absent(spec, "terminationGracePeriodSeconds", 30);
    // The deprecated field `serviceAccount` mirrors `serviceAccountName`, which takes precedence.
    if is_set(&spec["serviceAccountName"]) {
        spec["serviceAccount"] = spec["serviceAccountName"].clone();
    } else if is_set(&spec["serviceAccount"]) {
        spec["serviceAccountName"] = spec["serviceAccount"].clone();
    }
    for_each_object(spec, "volumes", set_volume_defaults);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for_each_object(spec, containers, set_container_defaults);
    }
    round_to_millis(spec, "overhead");
    with_object(spec, "resources", |it| {
        round_to_millis(it, "limits");
        round_to_millis(it, "requests");
    });
}

/// Sets missing pod-level requests (`spec.resources.requests`) and missing pod-level limits of huge pages. A pod
/// without pod-level resources is not changed.
///
/// A limit of huge pages is set to the sum of the containers' limits, unless the pod has a pod-level request for that
/// page size. The requests for cpu and memory are set to the sum of the containers' requests. A request that is still
/// missing is set from the pod-level limit. Without pod-level limits, no request is set. Upstream:
/// `defaultPodRequests`.
fn set_pod_level_resource_defaults(spec: &mut Value) {
    let resources = &spec["resources"];
    if !is_set(&resources["limits"]) && !is_set(&resources["requests"]) {
        return;
    }
    for (name, amount) in resources::total_container_resources(spec, "limits") {
        if is_huge_pages(&name) && spec["resources"]["requests"][&name].is_null() {
            set_pod_level_resource(spec, "limits", &name, amount.to_string());
        }
    }
    if !is_set(&spec["resources"]["limits"]) {
        return;
    }
    for (name, amount) in resources::total_container_resources(spec, "requests") {
        if matches!(name.as_str(), "cpu" | "memory") {
            set_pod_level_resource(spec, "requests", &name, amount.to_string());
        }
    }
    for (name, amount) in spec["resources"]["limits"].as_object().cloned().into_iter().flatten() {
        if is_pod_level_resource(&name) {
            set_pod_level_resource(spec, "requests", &name, amount);
        }
    }
}

/// Sets a pod-level request or limit if it is absent. `list` is `requests` or `limits`.
fn set_pod_level_resource(spec: &mut Value, list: &str, name: &str, amount: impl Into<Value>) {
    with_object(spec, "resources", |it| {
        super::with_object_or_new(it, list, |it| set_if_absent(it, name, amount))
    });
}
