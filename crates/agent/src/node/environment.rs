//! Environment variables of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::downward_api::{self, PodAddresses};
use serde_json::Value;

use crate::references::{DataKind, PodReferenceClient, pod_namespace};

/// The inputs, besides the container's spec, from which its environment variables are resolved.
pub(crate) struct EnvironmentSource<'a> {
    pub references: &'a PodReferenceClient,
    pub pod: &'a Pod,
    /// The pod object as JSON.
    pub pod_json: &'a Value,
    /// The current IP addresses of the pod and the node.
    pub addresses: PodAddresses<'a>,
    /// Allocatable resources of the node, which replace missing limits in `resourceFieldRef`.
    pub allocatable: &'a ResourceQuantities,
    /// Environment variables that announce Services, such as `WEB_SERVICE_HOST`.
    pub services: &'a BTreeMap<String, String>,
}

impl EnvironmentSource<'_> {
    /// Resolves the environment variables of a container. Fails if a reference that is not optional cannot be resolved,
    /// or if the name or value of a variable is not valid.
    ///
    /// Rule: a container gets the variables of `envFrom`, `env` and the Services. A variable of `env` replaces a
    /// variable of `envFrom` with the same name. A variable of a Service is set only if no other variable has its name.
    /// The values in `env` may refer to earlier variables and to the variables of the Services. Upstream:
    /// `makeEnvironmentVariables`.
    pub(crate) async fn resolve_variables(
        &self,
        container: &Container,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut reader = EnvironmentReader { source: self, values: BTreeMap::new() };
        let mut variables = BTreeMap::new();
        for from in container.env_from.iter().flatten() {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            let config_map = from.config_map_ref.as_ref();
            let config_map = config_map.map(|it| (DataKind::ConfigMap, it.name.as_str(), it.optional));
            let secret = from.secret_ref.as_ref();
            let secret = secret.map(|it| (DataKind::Secret, it.name.as_str(), it.optional));
            for (kind, name, optional) in config_map.into_iter().chain(secret) {
                let found = reader.values(kind, name, optional == Some(true)).await?;
                for (key, value) in found.into_iter().flatten() {
                    variables.insert(format!("{prefix}{key}"), value.clone());
                }
            }
        }
        for variable in container.env.iter().flatten() {
            let value = match (variable.value.as_deref(), &variable.value_from) {
                (Some(text), _) if !text.is_empty() => {
                    let lookup =
                        |name: &str| variables.get(name).or_else(|| self.services.get(name)).cloned();
                    Some(downward_api::expand_variables(text, lookup, &mut |_| {}))
                }
                (_, Some(from)) => reader.resolve_value_from(container, from).await?,
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
                "environment variable {name:?} cannot be set: it contains a NUL byte or an ="
            ));
        }
        Ok(variables)
    }
}

/// Reads ConfigMaps and Secrets for one container. Each existing object is read once.
struct EnvironmentReader<'a> {
    source: &'a EnvironmentSource<'a>,
    /// The values in the `data` of the objects that were read, by kind and name of the object.
    values: BTreeMap<(DataKind, String), BTreeMap<String, String>>,
}

impl EnvironmentReader<'_> {
    /// Returns the values of a ConfigMap or Secret, by key. Returns `None` if the object does not exist and
    /// `is_optional` is true.
    async fn values(
        &mut self,
        kind: DataKind,
        name: &str,
        is_optional: bool,
    ) -> Result<Option<&BTreeMap<String, String>>, String> {
        let object = (kind, name.to_owned());
        if !self.values.contains_key(&object) {
            let EnvironmentSource { references, pod, .. } = *self.source;
            let found = references.data(kind, pod, name, is_optional).await.map_err(|it| it.to_string())?;
            let Some(found) = found else { return Ok(None) };
            let values = found.data.into_iter();
            let values = values.map(|(key, value)| (key, String::from_utf8_lossy(&value).into_owned()));
            self.values.insert(object.clone(), values.collect());
        }
        Ok(self.values.get(&object))
    }

    /// Resolves a `valueFrom`. Returns `None` if the reference is optional and its object or key is missing.
    async fn resolve_value_from(
        &mut self,
        container: &Container,
        from: &EnvVarSource,
    ) -> Result<Option<String>, String> {
        if let Some(field) = &from.field_ref {
            let EnvironmentSource { pod_json, addresses, .. } = *self.source;
            return downward_api::field_value(pod_json, addresses, &field.field_path)
                .map(Some)
                .map_err(|it| it.to_string());
        }
        if let Some(resource) = &from.resource_field_ref {
            let of =
                resource.container_name.as_deref().filter(|it| !it.is_empty()).unwrap_or(&container.name);
            let divisor = resource.divisor.as_ref().map_or("1", |it| &it.0);
            let EnvironmentSource { pod_json: value, allocatable, .. } = *self.source;
            let resolved = downward_api::resource_value(value, of, &resource.resource, divisor, allocatable);
            return resolved.map(Some).map_err(|it| it.to_string());
        }
        let config_map = from.config_map_key_ref.as_ref();
        let config_map = config_map.map(|it| (DataKind::ConfigMap, &it.name, &it.key, it.optional));
        let secret = from.secret_key_ref.as_ref();
        let secret = secret.map(|it| (DataKind::Secret, &it.name, &it.key, it.optional));
        let Some((kind, name, key, optional)) = config_map.or(secret) else {
            return Err("valueFrom of an environment variable has no supported source".to_owned());
        };
        let is_optional = optional == Some(true);
        match self.values(kind, name, is_optional).await?.and_then(|it| it.get(key).cloned()) {
            None if !is_optional => {
                let (kind, namespace) = (kind.as_str(), pod_namespace(self.source.pod));
                Err(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
            }
            value => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use expect_test::expect;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn variables_from_config_maps_and_secrets() {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        let answer = move |request: Request<Body>| {
            let path = request.uri().path().trim_start_matches("/api/v1/namespaces/shop/").to_owned();
            let (code, body) = match path.as_str() {
                "configmaps/app" => (200, json!({"data": {"color": "red"}, "binaryData": {"logo": "AAE="}})),
                "secrets/app" => (200, json!({"data": {"color": "Ymx1ZQ==", "raw": "/w=="}})),
                _ => (404, json!({"kind": "Status", "status": "Failure", "code": 404})),
            };
            log.lock().unwrap().push(path);
            let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
            std::future::ready(response.body(Body::from(serde_json::to_vec(&body).unwrap())))
        };
        let references = PodReferenceClient::new(kube::Client::new(tower::service_fn(answer), "default"));
        let pod: Pod = serde_json::from_value(json!({"metadata": {"namespace": "shop"}})).unwrap();
        let source = EnvironmentSource {
            references: &references,
            pod: &pod,
            pod_json: &Value::Null,
            addresses: PodAddresses::default(),
            allocatable: &ResourceQuantities::new(),
            services: &BTreeMap::new(),
        };
        let resolve = async |from: Value, reference: Value| {
            let env = json!([{"name": "V", "valueFrom": reference}]);
            let container = json!({"name": "main", "envFrom": from, "env": env});
            let container: Container = serde_json::from_value(container).unwrap();
            format!("{:?}\n", source.resolve_variables(&container).await)
        };
        let both = json!([{"configMapRef": {"name": "app"}, "secretRef": {"name": "app"}, "prefix": "P_"}]);
        let missing = json!([{"configMapRef": {"name": "none", "optional": true}}]);
        let mut report = resolve(both, json!({"secretKeyRef": {"name": "app", "key": "color"}})).await;
        report += &format!("  {:?}\n", requests.lock().unwrap());
        for (from, reference) in [
            (missing, json!({"configMapKeyRef": {"name": "app", "key": "color"}})),
            (json!([]), json!({"configMapKeyRef": {"name": "app", "key": "logo"}})),
            (json!([]), json!({"secretKeyRef": {"name": "app", "key": "none"}})),
            (json!([]), json!({"secretKeyRef": {"name": "app", "key": "none", "optional": true}})),
            (json!([]), json!({"secretKeyRef": {"name": "none", "key": "color"}})),
            (json!([]), json!({"configMapKeyRef": {"name": "none", "key": "color", "optional": true}})),
            (json!([]), json!({})),
        ] {
            report += &resolve(from, reference).await;
        }
        expect![[r#"
            Ok({"P_color": "blue", "P_raw": "�", "V": "blue"})
              ["configmaps/app", "secrets/app"]
            Ok({"V": "red"})
            Err("couldn't find key logo in ConfigMap shop/app")
            Err("couldn't find key none in Secret shop/app")
            Ok({})
            Err("secret \"none\" not found")
            Ok({})
            Err("valueFrom of an environment variable has no supported source")
        "#]]
        .assert_eq(&report);
    }
}
