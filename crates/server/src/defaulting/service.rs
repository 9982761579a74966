//! Defaults of Services and Endpoints.

use muster_api::defaulting::{
    for_each_object, remove_field, set_if_absent, set_if_zero, with_object, with_object_or_new,
};
use serde_json::{Value, json};

use crate::unstructured::{is_set, str_at};

/// Sets the defaults of a Service, except cluster IPs and node ports, which admission allocates. Upstream:
/// `SetDefaults_Service`.
pub(crate) fn set_service_defaults(service: &mut Value) {
    with_object_or_new(service, "spec", |spec| {
        set_if_zero(spec, "sessionAffinity", "None");
        match str_at(spec, "sessionAffinity") {
            "None" => remove_field(spec, "sessionAffinityConfig"),
            "ClientIP" if spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() => {
                spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
            }
            _ => {}
        }
        set_if_zero(spec, "type", "ClusterIP");
        for_each_object(spec, "ports", |port| {
            set_if_zero(port, "protocol", "TCP");
            let number = port["port"].clone();
            set_if_zero(port, "targetPort", number);
        });
        let kind = str_at(spec, "type").to_owned();
        let is_load_balancer = kind == "LoadBalancer";
        if is_load_balancer || kind == "NodePort" || (kind == "ClusterIP" && is_set(&spec["externalIPs"])) {
            set_if_zero(spec, "externalTrafficPolicy", "Cluster");
        }
        if is_load_balancer || kind == "NodePort" || kind == "ClusterIP" {
            set_if_absent(spec, "internalTrafficPolicy", "Cluster");
        }
        if is_load_balancer {
            set_if_absent(spec, "allocateLoadBalancerNodePorts", true);
        }
    });
    if service["spec"]["type"] == "LoadBalancer" {
        with_object(service, "status.loadBalancer", |it| {
            for_each_object(it, "ingress", |it| {
                if is_set(&it["ip"]) {
                    set_if_absent(it, "ipMode", "VIP");
                }
            });
        });
    }
}

/// Sets the default protocol of the ports of an Endpoints object.
pub(crate) fn set_endpoints_defaults(endpoints: &mut Value) {
    for_each_object(endpoints, "subsets", |it| {
        for_each_object(it, "ports", |it| set_if_zero(it, "protocol", "TCP"))
    });
}
