use serde_json::{Value, json};

use super::{
    container::container, each, fill, fill_absent, fill_resources, forget, round_resources, volume::volume,
    with,
};
use crate::unstructured::is_set;
use crate::validation::resources;

pub(crate) fn pod(pod: &mut Value) {
    fill_absent(pod, "spec", json!({}));
    with(pod, "spec", |spec| {
        // These are of pods alone, and not of templates: they came late, and must not change templates that stand.
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
    // The old field holds the first of the new one, and wins: old nodes write it alone.
    with(pod, "status", |status| {
        let (one, all) = (status["podIP"].clone(), status["podIPs"].clone());
        if is_set(&one) && all[0]["ip"] != one {
            status["podIPs"] = json!([{"ip": one}]);
        } else if !is_set(&one) && is_set(&all[0]["ip"]) {
            status["podIP"] = all[0]["ip"].clone();
        }
    });
}

pub(crate) fn pod_template(object: &mut Value) {
    with(object, "template", |template| {
        fill_absent(template, "spec", json!({}));
        with(template, "spec", pod_spec);
    });
}

/// Of a pod, or of the template in another object.
pub(super) fn pod_spec(spec: &mut Value) {
    forget(spec, "schedulingGroup");
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill_absent(spec, "securityContext", json!({}));
    fill_absent(spec, "terminationGracePeriodSeconds", 30);
    // The old name of the field is kept in step with the new one, which wins.
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

/// What a pod asks for as a whole follows from its containers where it only says its limits.
fn pod_level_resources(spec: &mut Value) {
    let said = &spec["resources"];
    if !is_set(&said["limits"]) && !is_set(&said["requests"]) {
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

fn within_resources(spec: &mut Value, part: &str, name: &str, amount: impl Into<Value>) {
    with(spec, "resources", |it| super::within(it, part, |it| fill_absent(it, name, amount)));
}
