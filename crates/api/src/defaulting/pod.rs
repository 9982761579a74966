//! Defaults of pods and pod specs.

use serde_json::{Map, Value, json};

use super::{
    container::set_container_defaults, for_each_object, remove_field, round_to_millis, set_if_absent,
    set_if_zero, volume::set_volume_defaults, with_object, with_object_or_new,
};
use crate::json::is_set;
use crate::resources::set_default_resources;
use crate::well_known::{DEFAULT_SCHEDULER_NAME, DEFAULT_TERMINATION_GRACE_PERIOD_S};

/// Sets the defaults of a pod. `pod` is a JSON object. Upstream: `SetDefaults_Pod`.
pub fn set_pod_defaults(pod: &mut Value) {
    with_object_or_new(pod, "spec", |spec| {
        // For pods only, not for templates: defaults added later must not change existing templates.
        set_default_resources(spec);
        set_if_absent(spec, "enableServiceLinks", true);
        if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|it| it < 0) {
            spec["terminationGracePeriodSeconds"] = 1.into();
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

/// Sets the defaults of a pod spec, in a pod or in a pod template. `spec` is a JSON object. Upstream:
/// `SetDefaults_PodSpec`.
pub fn set_pod_spec_defaults(spec: &mut Value) {
    remove_field(spec, "schedulingGroup");
    set_if_zero(spec, "dnsPolicy", "ClusterFirst");
    set_if_zero(spec, "restartPolicy", "Always");
    set_if_zero(spec, "schedulerName", DEFAULT_SCHEDULER_NAME);
    set_if_absent(spec, "securityContext", Map::new());
    set_if_absent(spec, "terminationGracePeriodSeconds", DEFAULT_TERMINATION_GRACE_PERIOD_S);
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
