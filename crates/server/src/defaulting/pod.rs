use serde_json::{Value, json};

use super::{
    container::container, each, fill, fill_absent, fill_resources, forget, round_resources, volume::volume,
    with,
};
use crate::unstructured::is_set;
use crate::validation::resources;

/// Sets the defaults of a pod. Upstream: `SetDefaults_Pod`.
pub(crate) fn pod(pod: &mut Value) {
    fill_absent(pod, "spec", json!({}));
    with(pod, "spec", |spec| {
        // For pods only, not for templates: defaults added later must not change existing templates.
        for containers in ["containers", "initContainers"] {
            each(spec, containers, |it| with(it, "resources", |it| fill_resources(it, "requests", "limits")));
        }
        pod_level_resources(spec);
        fill_absent(spec, "enableServiceLinks", true);
        if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|it| it < 0) {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        if spec["hostNetwork"] == true {
            for containers in ["containers", "initContainers"] {
                each(spec, containers, |it| {
                    each(it, "ports", |port| {
                        let number = port["containerPort"].clone();
                        fill(port, "hostPort", number);
                    });
                });
            }
        }
        pod_spec(spec);
    });
    // The deprecated field holds the first item of the list, and takes precedence: old kubelets write only `podIP`.
    with(pod, "status", |status| {
        let (one, all) = (status["podIP"].clone(), status["podIPs"].clone());
        if is_set(&one) && all[0]["ip"] != one {
            status["podIPs"] = json!([{"ip": one}]);
        } else if !is_set(&one) && is_set(&all[0]["ip"]) {
            status["podIP"] = all[0]["ip"].clone();
        }
    });
}

/// Sets the defaults of a PodTemplate.
pub(crate) fn pod_template(object: &mut Value) {
    with(object, "template", |template| {
        fill_absent(template, "spec", json!({}));
        with(template, "spec", pod_spec);
    });
}

/// Sets the defaults of a pod spec, in a pod or in a template. Upstream: `SetDefaults_PodSpec`.
pub(super) fn pod_spec(spec: &mut Value) {
    forget(spec, "schedulingGroup");
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill_absent(spec, "securityContext", json!({}));
    fill_absent(spec, "terminationGracePeriodSeconds", 30);
    // The deprecated field `serviceAccount` mirrors `serviceAccountName`, which takes precedence.
    if is_set(&spec["serviceAccountName"]) {
        spec["serviceAccount"] = spec["serviceAccountName"].clone();
    } else if is_set(&spec["serviceAccount"]) {
        spec["serviceAccountName"] = spec["serviceAccount"].clone();
    }
    each(spec, "volumes", volume);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, containers, container);
    }
    round_resources(spec, "overhead");
    with(spec, "resources", |it| {
        round_resources(it, "limits");
        round_resources(it, "requests");
    });
}

/// Sets pod-level requests from the containers' requests or from the pod-level limits. Upstream: `defaultPodRequests`.
fn pod_level_resources(spec: &mut Value) {
    let resources = &spec["resources"];
    if !is_set(&resources["limits"]) && !is_set(&resources["requests"]) {
        return;
    }
    for (name, amount) in resources::of_containers(spec, "limits") {
        if name.starts_with("hugepages-") && spec["resources"]["requests"][&name].is_null() {
            within_resources(spec, "limits", &name, amount.to_string());
        }
    }
    if !is_set(&spec["resources"]["limits"]) {
        return;
    }
    for (name, amount) in resources::of_containers(spec, "requests") {
        if matches!(name.as_str(), "cpu" | "memory") {
            within_resources(spec, "requests", &name, amount.to_string());
        }
    }
    for (name, amount) in spec["resources"]["limits"].as_object().cloned().into_iter().flatten() {
        if resources::is_pod_level(&name) {
            within_resources(spec, "requests", &name, amount);
        }
    }
}

/// Sets a pod-level request or limit if it is absent.
fn within_resources(spec: &mut Value, list: &str, name: &str, amount: impl Into<Value>) {
    with(spec, "resources", |it| super::within(it, list, |it| fill_absent(it, name, amount)));
}
