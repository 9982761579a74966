use serde_json::{Value, json};

use super::{each, fill, fill_absent, forget, with, within};
use crate::unstructured::{is_set, str_at};

/// Sets the defaults of a Service. Cluster IPs and node ports are allocated by admission. Upstream:
/// `SetDefaults_Service`.
pub(crate) fn service(service: &mut Value) {
    within(service, "spec", |spec| {
        fill(spec, "sessionAffinity", "None");
        match str_at(spec, "sessionAffinity") {
            "None" => forget(spec, "sessionAffinityConfig"),
            "ClientIP" if spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() => {
                spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
            }
            _ => {}
        }
        fill(spec, "type", "ClusterIP");
        each(spec, "ports", |port| {
            fill(port, "protocol", "TCP");
            let number = port["port"].clone();
            fill(port, "targetPort", number);
        });
        let kind = str_at(spec, "type").to_owned();
        let is_load_balancer = kind == "LoadBalancer";
        if is_load_balancer || kind == "NodePort" || (kind == "ClusterIP" && is_set(&spec["externalIPs"])) {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if is_load_balancer || kind == "NodePort" || kind == "ClusterIP" {
            fill_absent(spec, "internalTrafficPolicy", "Cluster");
        }
        if is_load_balancer {
            fill_absent(spec, "allocateLoadBalancerNodePorts", true);
        }
    });
    if service["spec"]["type"] == "LoadBalancer" {
        with(service, "status.loadBalancer", |it| {
            each(it, "ingress", |it| {
                if is_set(&it["ip"]) {
                    fill_absent(it, "ipMode", "VIP");
                }
            });
        });
    }
}

/// Sets the port protocols of Endpoints.
pub(crate) fn endpoints(endpoints: &mut Value) {
    each(endpoints, "subsets", |it| each(it, "ports", |it| fill(it, "protocol", "TCP")));
}
