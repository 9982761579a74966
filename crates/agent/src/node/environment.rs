//! Environment variables of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::downward_api::{self, PodAddresses};
use serde_json::Value;

use crate::references::{PodReferenceClient, ReferenceError};

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
        let mut read =
            EnvironmentReader { source: self, config_maps: BTreeMap::new(), secrets: BTreeMap::new() };
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
                    let lookup =
                        |name: &str| variables.get(name).or_else(|| self.services.get(name)).cloned();
                    Some(downward_api::expand_variables(text, lookup, &mut |_| {}))
                }
                (_, Some(from)) => read.resolve_value_from(container, from).await?,
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
    config_maps: BTreeMap<String, ConfigMap>,
    secrets: BTreeMap<String, Secret>,
}

impl EnvironmentReader<'_> {
    fn namespace(&self) -> &str {
        self.source.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    /// Returns the ConfigMap with this name, or `None` if it does not exist and `is_optional` is true.
    async fn config_map(&mut self, name: &str, is_optional: bool) -> Result<Option<&ConfigMap>, String> {
        if !self.config_maps.contains_key(name) {
            let found = self.source.references.config_map(self.namespace(), name).await;
            let Some(found) = none_if_optional(found, is_optional)? else { return Ok(None) };
            self.config_maps.insert(name.to_owned(), found);
        }
        Ok(self.config_maps.get(name))
    }

    /// Returns the Secret with this name, or `None` if it does not exist and `is_optional` is true.
    async fn secret(&mut self, name: &str, is_optional: bool) -> Result<Option<&Secret>, String> {
        if !self.secrets.contains_key(name) {
            let found = self.source.references.secret(self.namespace(), name).await;
            let Some(found) = none_if_optional(found, is_optional)? else { return Ok(None) };
            self.secrets.insert(name.to_owned(), found);
        }
        Ok(self.secrets.get(name))
    }

    /// Resolves a `valueFrom`. Returns `None` if the reference is optional and its object or key is missing.
    async fn resolve_value_from(
        &mut self,
        container: &Container,
        from: &EnvVarSource,
    ) -> Result<Option<String>, String> {
        let namespace = self.namespace().to_owned();
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
        Err("valueFrom of an environment variable has no supported source".to_owned())
    }
}

/// Turns the error of a missing object into `None` if the reference is optional.
fn none_if_optional<T>(found: Result<T, ReferenceError>, is_optional: bool) -> Result<Option<T>, String> {
    match found {
        Err(error) if is_optional && error.is_not_found() => Ok(None),
        found => found.map(Some).map_err(|it| it.to_string()),
    }
}
