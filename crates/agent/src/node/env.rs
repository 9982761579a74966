//! The variables of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret, Service};
use muster_engine::downward;
use muster_engine::resources::Amounts;
use serde_json::Value;

use crate::references::{ReferenceError, References};

/// What a container's variables are made of, beside the container.
pub(crate) struct Source<'a> {
    pub references: &'a References,
    pub pod: &'a Pod,
    /// The pod with the addresses it has now.
    pub value: &'a Value,
    pub allocatable: &'a Amounts,
    pub services: &'a BTreeMap<String, String>,
}

impl Source<'_> {
    /// Rule: a container has the variables of its config maps and secrets, then its own, which see those before them, and
    /// those of services where nothing else has their name. Upstream: `makeEnvironmentVariables`.
    pub(crate) async fn variables(&self, container: &Container) -> Result<BTreeMap<String, String>, String> {
        let mut read = Read { source: self, config_maps: BTreeMap::new(), secrets: BTreeMap::new() };
        let mut variables = BTreeMap::new();
        for from in container.env_from.iter().flatten() {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            if let Some(map) = &from.config_map_ref {
                let found = read.config_map(&map.name, map.optional == Some(true)).await?;
                for (key, value) in found.into_iter().flat_map(|it| it.data.iter().flatten()) {
                    variables.insert(format!("{prefix}{key}"), value.clone());
                }
            }
            if let Some(secret) = &from.secret_ref {
                let found = read.secret(&secret.name, secret.optional == Some(true)).await?;
                for (key, value) in found.into_iter().flat_map(|it| it.data.iter().flatten()) {
                    variables
                        .insert(format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
                }
            }
        }
        for variable in container.env.iter().flatten() {
            let value = match (variable.value.as_deref(), &variable.value_from) {
                (Some(text), _) if !text.is_empty() => {
                    let meaning =
                        |name: &str| variables.get(name).or_else(|| self.services.get(name)).cloned();
                    Some(downward::expand(text, meaning, &mut |_| {}))
                }
                (_, Some(from)) => read.value(container, from).await?,
                _ => Some(String::new()),
            };
            if let Some(value) = value {
                variables.insert(variable.name.clone(), value);
            }
        }
        for (name, value) in self.services {
            variables.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if let Some(name) = variables.iter().find_map(|(name, value)| {
            (name.contains(['\0', '=']) || name.is_empty() || value.contains('\0')).then_some(name)
        }) {
            return Err(format!(
                "environment variable {name:?} cannot be set: it has a NUL byte or an = in it"
            ));
        }
        Ok(variables)
    }
}

/// What was read for one container: it sees each object once.
struct Read<'a> {
    source: &'a Source<'a>,
    config_maps: BTreeMap<String, ConfigMap>,
    secrets: BTreeMap<String, Secret>,
}

impl Read<'_> {
    fn namespace(&self) -> &str {
        self.source.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    async fn config_map(&mut self, name: &str, is_optional: bool) -> Result<Option<&ConfigMap>, String> {
        if !self.config_maps.contains_key(name) {
            let found = self.source.references.config_map(self.namespace(), name).await;
            let Some(found) = found_or_optional(found, is_optional)? else { return Ok(None) };
            self.config_maps.insert(name.to_owned(), found);
        }
        Ok(self.config_maps.get(name))
    }

    async fn secret(&mut self, name: &str, is_optional: bool) -> Result<Option<&Secret>, String> {
        if !self.secrets.contains_key(name) {
            let found = self.source.references.secret(self.namespace(), name).await;
            let Some(found) = found_or_optional(found, is_optional)? else { return Ok(None) };
            self.secrets.insert(name.to_owned(), found);
        }
        Ok(self.secrets.get(name))
    }

    /// `None` where it is missing and may be.
    async fn value(&mut self, container: &Container, from: &EnvVarSource) -> Result<Option<String>, String> {
        let namespace = self.namespace().to_owned();
        if let Some(field) = &from.field_ref {
            return downward::field(self.source.value, &field.field_path)
                .map(Some)
                .map_err(|it| it.to_string());
        }
        if let Some(resource) = &from.resource_field_ref {
            let of =
                resource.container_name.as_deref().filter(|it| !it.is_empty()).unwrap_or(&container.name);
            let divisor = resource.divisor.as_ref().map_or("1", |it| &it.0);
            let Source { value, allocatable, .. } = *self.source;
            let told = downward::resource(value, of, &resource.resource, divisor, allocatable);
            return told.map(Some).map_err(|it| it.to_string());
        }
        if let Some(it) = &from.config_map_key_ref {
            let is_optional = it.optional == Some(true);
            let map = self.config_map(&it.name, is_optional).await?;
            let value = map.and_then(|map| map.data.as_ref()?.get(&it.key).cloned());
            return match value {
                None if !is_optional => {
                    Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", it.key, it.name))
                }
                value => Ok(value),
            };
        }
        if let Some(it) = &from.secret_key_ref {
            let is_optional = it.optional == Some(true);
            let secret = self.secret(&it.name, is_optional).await?;
            let value = secret.and_then(|secret| secret.data.as_ref()?.get(&it.key));
            let value = value.map(|it| String::from_utf8_lossy(&it.0).into_owned());
            return match value {
                None if !is_optional => {
                    Err(format!("couldn't find key {} in Secret {namespace}/{}", it.key, it.name))
                }
                value => Ok(value),
            };
        }
        Err("a variable's valueFrom names no source that is known here".to_owned())
    }
}

fn found_or_optional<T>(found: Result<T, ReferenceError>, is_optional: bool) -> Result<Option<T>, String> {
    match found {
        Err(error) if is_optional && error.is_missing() => Ok(None),
        found => found.map(Some).map_err(|it| it.to_string()),
    }
}

/// Rule: every container is told where the API server is, and where the services of its namespace are unless its pod
/// does not want to know. Upstream: `getServiceEnvVarMap`, `envvars.FromServices`.
pub(crate) fn of_services<'a>(
    namespace: &str,
    with_links: bool,
    services: impl Iterator<Item = &'a Service>,
) -> BTreeMap<String, String> {
    let mut of_namespace = BTreeMap::new();
    for service in services {
        let own_namespace = service.metadata.namespace.as_deref().unwrap_or("default");
        let Some(name) = service.metadata.name.as_deref() else { continue };
        let is_server = own_namespace == "default" && name == "kubernetes";
        if own_namespace == namespace && with_links {
            of_namespace.insert(name, service);
        } else if is_server {
            of_namespace.entry(name).or_insert(service);
        }
    }
    let mut variables = BTreeMap::new();
    for (name, service) in of_namespace {
        let Some(spec) = &service.spec else { continue };
        let Some(address) = spec.cluster_ip.as_deref().filter(|it| !it.is_empty() && *it != "None") else {
            continue;
        };
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first() else { continue };
        let prefix = variable_name(name);
        let mut set = |name: String, value: String| variables.insert(name, value);
        set(format!("{prefix}_SERVICE_HOST"), address.to_owned());
        set(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        for (at, port) in ports.iter().enumerate() {
            if let Some(name) = port.name.as_deref().filter(|it| !it.is_empty()) {
                set(format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), port.port.to_string());
            }
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
            if at == 0 {
                set(format!("{prefix}_PORT"), url.clone());
            }
            let of_port = format!("{prefix}_PORT_{}_{protocol}", port.port);
            set(format!("{of_port}_PROTO"), protocol.to_lowercase());
            set(format!("{of_port}_PORT"), port.port.to_string());
            set(format!("{of_port}_ADDR"), address.to_owned());
            set(of_port, url);
        }
    }
    variables
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_container_is_told_of_services() {
        let service = |namespace: &str, name: &str, address: &str, ports: Value| -> Service {
            serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": address, "ports": ports}}))
            .unwrap()
        };
        let all = [
            service("default", "kubernetes", "10.96.0.1", json!([{"name": "https", "port": 443}])),
            service(
                "shop",
                "my-db",
                "10.96.0.7",
                json!([{"port": 53, "protocol": "UDP"}, {"name": "m-1", "port": 80}]),
            ),
            service("shop", "headless", "None", json!([{"port": 1}])),
            service("other", "web", "10.96.0.8", json!([{"port": 1}])),
        ];
        let told = |links: bool| {
            let variables = of_services("shop", links, all.iter());
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
        .assert_eq(&told(true));
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
        .assert_eq(&told(false));
    }
}
