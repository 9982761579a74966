//! The Service `kubernetes`, through which pods reach the API servers, with its Endpoints and EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use muster_api::well_known::{LABEL_SERVICE_NAME, LABEL_SKIP_MIRROR};
use serde_json::{Value, json};

use super::BootstrapObject;
use crate::admission::API_SERVER_IP;
use crate::kinds::Kind;

/// Name of the Service `kubernetes`, of its Endpoints object and of its first EndpointSlice. The names of further
/// EndpointSlices begin with it.
pub(super) const SERVICE_NAME: &str = "kubernetes";

/// Namespace of the Service `kubernetes`.
pub(super) const SERVICE_NAMESPACE: &str = "default";

/// Returns the Service `kubernetes`. `port` is the port on which the API server listens.
pub(super) fn service(port: u16) -> BootstrapObject {
    let service = json!({
        "metadata": {"name": SERVICE_NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": API_SERVER_IP.to_string(),
            "clusterIPs": [API_SERVER_IP.to_string()],
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
            "sessionAffinity": "None",
        },
    });
    (Kind::builtin("", "v1", "services"), Some(SERVICE_NAMESPACE), service)
}

/// Returns the Endpoints and the EndpointSlices of the Service. `servers` are the addresses at which other machines
/// reach the API servers. If there are none, the only EndpointSlice has no endpoints and the port `port`.
///
/// Rule: the endpoints of the Service `kubernetes` are the API servers that other machines reach. All endpoints of an
/// EndpointSlice have the same IP family and port, so the Service may have several EndpointSlices.
pub(super) fn endpoints(servers: &BTreeSet<SocketAddr>, port: u16) -> Vec<BootstrapObject> {
    let mut groups: BTreeMap<(bool, u16), Vec<IpAddr>> = BTreeMap::new();
    for server in servers {
        groups.entry((server.is_ipv6(), server.port())).or_default().push(server.ip());
    }
    let subsets: Vec<Value> = groups
        .iter()
        .map(|((_, port), addresses)| {
            let addresses: Vec<_> = addresses.iter().map(|it| json!({"ip": it.to_string()})).collect();
            json!({"addresses": addresses, "ports": [endpoint_port(*port)]})
        })
        .collect();
    let mut endpoints = json!({
        "metadata": {"name": SERVICE_NAME, "labels": {(LABEL_SKIP_MIRROR): "true"}},
    });
    if !subsets.is_empty() {
        endpoints["subsets"] = json!(subsets);
    }
    if groups.is_empty() {
        groups.insert((false, port), Vec::new());
    }
    let slices = groups.iter().enumerate().map(|(at, ((is_ipv6, port), addresses))| {
        let family = if *is_ipv6 { "IPv6" } else { "IPv4" };
        let name = match at {
            0 => SERVICE_NAME.to_owned(),
            _ => format!("{SERVICE_NAME}-{}-{port}", family.to_lowercase()),
        };
        let endpoints: Vec<_> = addresses
            .iter()
            .map(|it| json!({"addresses": [it.to_string()], "conditions": {"ready": true}}))
            .collect();
        let slice = json!({
            "metadata": {"name": name, "labels": {(LABEL_SERVICE_NAME): SERVICE_NAME}},
            "addressType": family,
            "ports": [endpoint_port(*port)],
            "endpoints": endpoints,
        });
        (Kind::builtin("discovery.k8s.io", "v1", "endpointslices"), Some(SERVICE_NAMESPACE), slice)
    });
    [(Kind::builtin("", "v1", "endpoints"), Some(SERVICE_NAMESPACE), endpoints)]
        .into_iter()
        .chain(slices)
        .collect()
}

fn endpoint_port(port: u16) -> Value {
    json!({"name": "https", "port": port, "protocol": "TCP"})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns name, address type, port and addresses of each EndpointSlice.
    fn slices(servers: &[&str]) -> Vec<String> {
        let servers = servers.iter().map(|it| it.parse().unwrap()).collect();
        let slices = endpoints(&servers, 6443).into_iter().skip(1);
        slices
            .map(|(_, _, it)| {
                let addresses: Vec<_> = it["endpoints"].as_array().unwrap().iter().collect();
                let addresses: Vec<_> =
                    addresses.iter().map(|it| it["addresses"][0].as_str().unwrap()).collect();
                let (name, family) = (&it["metadata"]["name"], &it["addressType"]);
                let text = |it: &Value| it.as_str().unwrap().to_owned();
                format!("{} {} {} {addresses:?}", text(name), text(family), it["ports"][0]["port"])
            })
            .collect()
    }

    #[test]
    fn servers_with_one_port_and_family_share_a_slice() {
        assert_eq!(slices(&[]), ["kubernetes IPv4 6443 []"]);
        assert_eq!(
            slices(&["10.0.0.2:6443", "10.0.0.1:6443"]),
            [r#"kubernetes IPv4 6443 ["10.0.0.1", "10.0.0.2"]"#]
        );
        assert_eq!(
            slices(&["10.0.0.2:6444", "10.0.0.1:6443", "[fd00::1]:6443", "10.0.0.3:6443"]),
            [
                r#"kubernetes IPv4 6443 ["10.0.0.1", "10.0.0.3"]"#,
                r#"kubernetes-ipv4-6444 IPv4 6444 ["10.0.0.2"]"#,
                r#"kubernetes-ipv6-6443 IPv6 6443 ["fd00::1"]"#
            ]
        );
    }

    #[test]
    fn endpoints_have_a_subset_for_each_port() {
        let servers = ["10.0.0.1:6443", "10.0.0.2:6444"].map(|it| it.parse().unwrap()).into();
        let (_, _, object) = &endpoints(&servers, 6443)[0];
        let port = |port: u16| json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        assert_eq!(
            object["subsets"],
            json!([
                {"addresses": [{"ip": "10.0.0.1"}], "ports": port(6443)},
                {"addresses": [{"ip": "10.0.0.2"}], "ports": port(6444)},
            ])
        );
    }
}
