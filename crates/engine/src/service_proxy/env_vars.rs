//! The environment variables that containers get for Services (`REDIS_SERVICE_HOST` …).

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::net::IpAddr;

use super::{ProxyState, ServiceType};

/// Returns the environment variables, by name, that describe Services to a container in this namespace.
///
/// Rule: every container has variables for the Service `kubernetes`. Unless `enableServiceLinks` is false, it also has
/// variables for the Services of its namespace. A Service without a cluster IP or without ports has no variables.
/// Upstream: `getServiceEnvVarMap`, `envvars.FromServices`.
pub fn service_env_vars(
    state: &ProxyState,
    namespace: &str,
    enable_service_links: bool,
) -> BTreeMap<String, String> {
    let mut of_namespace = BTreeMap::new();
    for (key, service) in &state.services {
        let is_server = *key.namespace == *"default" && *key.name == *"kubernetes";
        if *key.namespace == *namespace && enable_service_links {
            of_namespace.insert(&key.name, service);
        } else if is_server {
            of_namespace.entry(&key.name).or_insert(service);
        }
    }
    let mut variables = BTreeMap::new();
    for (name, service) in of_namespace {
        let ServiceType::Cluster(addresses) = &service.kind else { continue };
        let (Some(address), Some(first)) = (addresses.first(), service.ports.first()) else { continue };
        let prefix = variable_name_part(name);
        let mut set = |name: String, value: String| _ = variables.insert(name, value);
        set(format!("{prefix}_SERVICE_HOST"), address.to_string());
        set(format!("{prefix}_SERVICE_PORT"), first.number.to_string());
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        for (at, port) in service.ports.iter().enumerate() {
            if !port.name.is_empty() {
                set(
                    format!("{prefix}_SERVICE_PORT_{}", variable_name_part(&port.name)),
                    port.number.to_string(),
                );
            }
            let protocol = port.protocol.as_str();
            let url = format!("{protocol}://{host}:{}", port.number);
            if at == 0 {
                set(format!("{prefix}_PORT"), url.clone());
            }
            let of_port = format!("{prefix}_PORT_{}_{}", port.number, protocol.to_uppercase());
            set(format!("{of_port}_PROTO"), protocol.to_owned());
            set(format!("{of_port}_PORT"), port.number.to_string());
            set(format!("{of_port}_ADDR"), address.to_string());
            set(of_port, url);
        }
    }
    variables
}

/// Converts the name of a Service or port to a part of a variable name: in upper case, with `_` instead of `-`.
fn variable_name_part(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use muster_api::object_key::ObjectKey;
    use muster_api::time::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::service_proxy::Service;

    #[test]
    fn variables_with_and_without_service_links() {
        let mut state = ProxyState::default();
        let mut put = |namespace: &str, name: &str, address: &str, ports: Value| {
            let object = json!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": address, "clusterIPs": [address], "ports": ports}});
            let service = Service::decode(Time::default(), &object).unwrap();
            state.put_service(ObjectKey::new(namespace, name), service);
        };
        put("default", "kubernetes", "10.96.0.1", json!([{"name": "https", "port": 443}]));
        let ports = json!([{"port": 53, "protocol": "UDP"}, {"name": "m-1", "port": 80}]);
        put("shop", "my-db", "10.96.0.7", ports);
        put("shop", "headless", "None", json!([{"port": 1}]));
        put("other", "web", "10.96.0.8", json!([{"port": 1}]));
        let lines = |enable_service_links: bool| {
            let variables = service_env_vars(&state, "shop", enable_service_links);
            variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect::<String>()
        };
        expect![[r#"
            KUBERNETES_PORT=tcp://10.96.0.1:443
            KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
            KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
            KUBERNETES_PORT_443_TCP_PORT=443
            KUBERNETES_PORT_443_TCP_PROTO=tcp
            KUBERNETES_SERVICE_HOST=10.96.0.1
            KUBERNETES_SERVICE_PORT=443
            KUBERNETES_SERVICE_PORT_HTTPS=443
            MY_DB_PORT=udp://10.96.0.7:53
            MY_DB_PORT_53_UDP=udp://10.96.0.7:53
            MY_DB_PORT_53_UDP_ADDR=10.96.0.7
            MY_DB_PORT_53_UDP_PORT=53
            MY_DB_PORT_53_UDP_PROTO=udp
            MY_DB_PORT_80_TCP=tcp://10.96.0.7:80
            MY_DB_PORT_80_TCP_ADDR=10.96.0.7
            MY_DB_PORT_80_TCP_PORT=80
            MY_DB_PORT_80_TCP_PROTO=tcp
            MY_DB_SERVICE_HOST=10.96.0.7
            MY_DB_SERVICE_PORT=53
            MY_DB_SERVICE_PORT_M_1=80
        "#]]
        .assert_eq(&lines(true));
        expect![[r#"
            KUBERNETES_PORT=tcp://10.96.0.1:443
            KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
            KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
            KUBERNETES_PORT_443_TCP_PORT=443
            KUBERNETES_PORT_443_TCP_PROTO=tcp
            KUBERNETES_SERVICE_HOST=10.96.0.1
            KUBERNETES_SERVICE_PORT=443
            KUBERNETES_SERVICE_PORT_HTTPS=443
        "#]]
        .assert_eq(&lines(false));
    }
}
