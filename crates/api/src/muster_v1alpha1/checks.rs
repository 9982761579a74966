//! The types of the checks in a RolloutPolicy, which decide whether the new revision of a DaemonSet is good.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
#[cfg(feature = "schema")]
use alloc::string::ToString as _;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::syntax;
#[cfg(feature = "schema")]
use super::validation::{self, rules};
use super::values::GoDuration;

/// A check of the new revision. Exactly one of prometheus, webhook and external must be set.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend(
    "required" = ["name"],
    "x-kubernetes-validations" = rules::exactly_one_check_type(),
)))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutCheck {
    /// Name of the check, unique in the policy.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::DNS_LABEL_PATTERN)))]
    pub name: String,
    /// Queries Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusCheck>,
    /// Calls a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookCheck>,
    /// Waits for a result in spec.checkReports of the DaemonRollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalCheck>,
    /// Time between two runs of the check, from 5s to 1h. Defaults to 1m.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-validations" = rules::duration(&validation::CHECK_INTERVAL_BOUNDS)))
    )]
    pub interval: GoDuration,
    /// Number of consecutive failures that fail the rollout. Defaults to 3.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = validation::FAILURE_THRESHOLD_MAX)))]
    pub failure_threshold: i32,
}

impl Default for RolloutCheck {
    fn default() -> Self {
        Self {
            name: String::new(),
            prometheus: None,
            webhook: None,
            external: None,
            interval: GoDuration::new("1m"),
            failure_threshold: 3,
        }
    }
}

/// A check by a Prometheus query, which is written like an alert: any result fails the check.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["url", "query"])))]
#[serde(rename_all = "camelCase", default)]
pub struct PrometheusCheck {
    /// Base URL of Prometheus, with the scheme http or https.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::URL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::URL_PATTERN)))]
    pub url: String,
    /// PromQL query. The check fails if the query returns anything.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = validation::QUERY_LENGTH_MAX)))]
    pub query: String,
    /// PromQL query that must return something for the check to pass. Without a result the check is inconclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = validation::QUERY_LENGTH_MAX)))]
    pub presence_query: Option<String>,
    /// Secret with a bearer token, in the namespace of the policy. For a ClusterRolloutPolicy, it is in the namespace
    /// of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<TokenSecretRef>,
    /// ConfigMap with the CA certificates of the server, in the namespace of the policy. For a ClusterRolloutPolicy, it
    /// is in the namespace of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<CaConfigMapRef>,
}

/// A check by a webhook, which gets the status of the rollout and responds with a result.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["url"])))]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookCheck {
    /// URL of the webhook, with the scheme http or https.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::URL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::URL_PATTERN)))]
    pub url: String,
    /// Timeout of a call, from 1s to 30s. Defaults to 10s.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-validations" = rules::duration(&validation::WEBHOOK_TIMEOUT_BOUNDS)))
    )]
    pub timeout: GoDuration,
    /// Secret with a bearer token, in the namespace of the policy. For a ClusterRolloutPolicy, it is in the namespace
    /// of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<TokenSecretRef>,
    /// ConfigMap with the CA certificates of the server, in the namespace of the policy. For a ClusterRolloutPolicy, it
    /// is in the namespace of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<CaConfigMapRef>,
}

impl Default for WebhookCheck {
    fn default() -> Self {
        Self { url: String::new(), timeout: GoDuration::new("10s"), secret_ref: None, ca_ref: None }
    }
}

/// A check whose results are reported in spec.checkReports of the DaemonRollout.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExternalCheck {}

/// Refers to a Secret with a bearer token.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
#[serde(default)]
pub struct TokenSecretRef {
    /// Name of the Secret.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::dns_subdomain_schema))]
    pub name: String,
    /// Key of the token in the Secret. Defaults to token.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::config_key_schema))]
    pub key: String,
}

impl Default for TokenSecretRef {
    fn default() -> Self {
        Self { name: String::new(), key: "token".to_owned() }
    }
}

/// Refers to a ConfigMap with CA certificates.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
#[serde(default)]
pub struct CaConfigMapRef {
    /// Name of the ConfigMap.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::dns_subdomain_schema))]
    pub name: String,
    /// Key of the PEM certificates in the ConfigMap. Defaults to ca.crt.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::config_key_schema))]
    pub key: String,
}

impl Default for CaConfigMapRef {
    fn default() -> Self {
        Self { name: String::new(), key: "ca.crt".to_owned() }
    }
}
