//! Table columns of Services, Endpoints and EndpointSlices.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    AGE_COLUMN, Column, Field, NAME_COLUMN, format_first_three, format_labels, non_empty_or, text_column,
};
use crate::unstructured::{list_at, str_at};

pub(crate) const SERVICE_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Type", Field("spec.type"), |it, _| json!(str_at(it, "spec.type"))),
    text_column("Cluster-IP", Field("spec.clusterIP"), |it, _| {
        json!(list_at(&it["spec"], "clusterIPs").first().and_then(Value::as_str).unwrap_or("<none>"))
    }),
    text_column("External-IP", Field("spec.externalIPs"), |it, _| json!(external_ip(it))),
    text_column("Port(s)", Field("spec.ports"), |it, _| {
        let ports: Vec<_> = list_at(&it["spec"], "ports").iter().map(format_service_port).collect();
        json!(non_empty_or(&ports.join(","), "<none>"))
    }),
    AGE_COLUMN,
    text_column("Selector", Field("spec.selector"), |it, _| json!(format_labels(&it["spec"]["selector"])))
        .only_wide(),
];

pub(crate) const ENDPOINTS_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Endpoints", Field("subsets"), |it, _| json!(format_endpoints(it))),
    AGE_COLUMN,
];

pub(crate) const ENDPOINT_SLICE_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("AddressType", Field("addressType"), |it, _| json!(str_at(it, "addressType"))),
    text_column("Ports", Field("ports"), |it, _| {
        let port = |it: &Value| match (it["port"].as_i64(), it["name"].as_str()) {
            (Some(port), _) => port.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        };
        let ports = list_at(it, "ports").iter().map(port).collect();
        json!(non_empty_or(&format_first_three(ports), "<unset>"))
    }),
    text_column("Endpoints", Field("endpoints"), |it, _| {
        let addresses = list_at(it, "endpoints").iter().flat_map(|it| list_at(it, "addresses"));
        let addresses = addresses.map(|it| it.as_str().unwrap_or_default().to_owned()).collect();
        json!(non_empty_or(&format_first_three(addresses), "<unset>"))
    }),
    AGE_COLUMN,
];

/// Returns the text of the column `External-IP` of a Service: the external name for the type `ExternalName`, and the
/// external addresses for the other types. Without external addresses, the text is `<pending>` for the type
/// `LoadBalancer` and `<none>` for the types `ClusterIP` and `NodePort`.
fn external_ip(service: &Value) -> String {
    let external = list_at(&service["spec"], "externalIPs").iter().filter_map(Value::as_str);
    match str_at(service, "spec.type") {
        "ClusterIP" | "NodePort" => {
            non_empty_or(&external.collect::<Vec<_>>().join(","), "<none>").to_owned()
        }
        "LoadBalancer" => {
            let ingress = list_at(&service["status"]["loadBalancer"], "ingress").iter();
            let balancers: BTreeSet<&str> = ingress
                .map(|it| non_empty_or(str_at(it, "ip"), str_at(it, "hostname")))
                .filter(|it| !it.is_empty())
                .collect();
            let all: Vec<_> = balancers.into_iter().chain(external).collect();
            non_empty_or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => str_at(service, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Formats a port of a Service, such as `80:30080/TCP`.
fn format_service_port(port: &Value) -> String {
    let (number, protocol) = (port["port"].as_i64().unwrap_or(0), str_at(port, "protocol"));
    match port["nodePort"].as_i64() {
        Some(node_port) if 0 < node_port => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

/// Returns the text of the column `Endpoints` of an Endpoints object: the first three pairs of address and port, such
/// as `10.1.0.1:80`, and the number of the others, such as `+ 2 more...`. An address of a subset without ports is shown
/// without a port. Returns `<none>` if the object has no subsets.
fn format_endpoints(endpoints: &Value) -> String {
    let subsets = list_at(endpoints, "subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = list_at(subset, "addresses").iter().map(|it| str_at(it, "ip"));
        let ports = list_at(subset, "ports");
        // A headless service may have no ports.
        if ports.is_empty() {
            all.extend(addresses.clone().map(str::to_owned));
        }
        for port in ports {
            let port = port["port"].as_i64().unwrap_or(0);
            all.extend(addresses.clone().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    format_first_three(all)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::rows;
    use super::*;

    #[test]
    fn services_and_endpoints() {
        let named = |spec: Value| json!({"metadata": {"name": "s", "creationTimestamp": "2026-01-09T23:00:00Z"}, "spec": spec});
        let mut balanced = named(json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.2"],
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}], "externalIPs": ["1.2.3.4"]}));
        let pending = named(json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.2"]}));
        balanced["status"] = json!({"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "9.9.9.9"}]}});
        let services = [
            named(json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "selector": {"a": "b"},
                "ports": [{"port": 443, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]})),
            named(json!({"type": "ClusterIP", "clusterIPs": ["None"]})),
            named(json!({"type": "ExternalName", "externalName": "example.com"})),
            balanced,
            pending,
        ];
        let subset = json!({"addresses": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}, {"port": 81}]});
        let endpoints = [
            json!({"metadata": {"name": "e"}, "subsets": [subset]}),
            json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.1.0.1"}]}]}),
            json!({"metadata": {"name": "e"}}),
        ];
        let slices = [
            json!({"metadata": {"name": "x"}, "addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}, {}, {}],
                "endpoints": [{"addresses": ["10.1.0.1"]}]}),
            json!({"metadata": {"name": "x"}, "addressType": "IPv4"}),
        ];
        let said = [
            rows(SERVICE_COLUMNS, &services),
            rows(ENDPOINTS_COLUMNS, &endpoints),
            rows(ENDPOINT_SLICE_COLUMNS, &slices),
        ];
        expect![[r#"
            s | ClusterIP | 10.0.0.1 | <none> | 443/TCP,53/UDP | 60m | a=b
            s | ClusterIP | None | <none> | <none> | 60m | <none>
            s | ExternalName | <none> | example.com | <none> | 60m | <none>
            s | LoadBalancer | 10.0.0.2 | 9.9.9.9,b,1.2.3.4 | 80:30080/TCP | 60m | <none>
            s | LoadBalancer | 10.0.0.2 | <pending> | <none> | 60m | <none>
            e | 10.1.0.1:80,[fd00::1]:80,10.1.0.1:81 + 1 more... | <unknown>
            e | 10.1.0.1 | <unknown>
            e | <none> | <unknown>
            x | IPv4 | 80,any,* + 1 more... | 10.1.0.1 | <unknown>
            x | IPv4 | <unset> | <unset> | <unknown>
        "#]]
        .assert_eq(&said.concat());
    }
}
