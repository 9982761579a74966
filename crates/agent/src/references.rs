//! ConfigMaps, Secrets and service account tokens that the pods of a node refer to.
//!
//! ConfigMaps and Secrets are not cached: each is read when a pod needs it, so a starting pod gets the newest version
//! and no Secret stays in the agent's memory. Tokens are cached, and renewed before they expire.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

/// Timeout for a response of the API server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum age of a service account token at its renewal. A token is renewed after 80 % of its lifetime, but at the
/// latest at this age. Upstream: `requiresRefresh`.
const TOKEN_RENEWAL_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Default lifetime of a service account token, in seconds.
const TOKEN_LIFETIME_DEFAULT_S: i64 = 3600;

/// Client for the API objects that pods refer to. Reads ConfigMaps and Secrets, and requests and caches service account
/// tokens.
#[derive(Clone)]
pub struct PodReferenceClient {
    client: Client,
    tokens: Arc<Mutex<BTreeMap<TokenKey, CachedToken>>>,
}

/// A kind of object with data that a pod refers to by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataKind {
    ConfigMap,
    Secret,
}

impl DataKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// Returns the name of the kind in error messages of the API server.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// The data of a ConfigMap or Secret.
#[derive(Default)]
pub(crate) struct ReferencedData {
    /// The values in the field `data`, by key.
    pub(crate) data: BTreeMap<String, Vec<u8>>,
    /// The values in the field `binaryData` of a ConfigMap, by key.
    pub(crate) binary_data: BTreeMap<String, Vec<u8>>,
    pub(crate) is_immutable: bool,
}

impl From<ConfigMap> for ReferencedData {
    fn from(object: ConfigMap) -> Self {
        let ConfigMap { data, binary_data, immutable, .. } = object;
        let data = data.unwrap_or_default().into_iter();
        Self {
            data: data.map(|(key, text)| (key, text.into_bytes())).collect(),
            binary_data: to_bytes(binary_data),
            is_immutable: immutable == Some(true),
        }
    }
}

impl From<Secret> for ReferencedData {
    fn from(object: Secret) -> Self {
        let Secret { data, immutable, .. } = object;
        Self { data: to_bytes(data), is_immutable: immutable == Some(true), ..Self::default() }
    }
}

/// Returns the bytes of each value, by key.
fn to_bytes(values: Option<BTreeMap<String, ByteString>>) -> BTreeMap<String, Vec<u8>> {
    values.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect()
}

/// Returns the namespace of a pod, or `default` if it is not set.
pub(crate) fn pod_namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// Key of a cached token: pod UID, audience and lifetime.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TokenKey {
    pod_uid: String,
    audience: Option<String>,
    /// Requested lifetime in seconds.
    lifetime_s: i64,
}

/// A service account token, with the times of its renewal and expiry.
#[derive(Clone)]
struct CachedToken {
    token: Arc<str>,
    renew_at: Timestamp,
    expires: Timestamp,
}

/// Why an object that a pod refers to cannot be read, or a service account token cannot be issued.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("{kind} \"{name}\" not found")]
    NotFound { kind: &'static str, name: String },
    #[error("{kind} \"{name}\": {message}")]
    Denied { kind: &'static str, name: String, message: String },
    #[error("{kind} \"{name}\": the API server does not respond: {message}")]
    NoResponse { kind: &'static str, name: String, message: String },
}

impl ReferenceError {
    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl PodReferenceClient {
    pub fn new(client: Client) -> Self {
        Self { client, tokens: Arc::default() }
    }

    /// Reads the data of a ConfigMap or Secret in the pod's namespace from the API server. Returns `None` if the object
    /// does not exist and `is_optional` is true.
    pub(crate) async fn data(
        &self,
        kind: DataKind,
        pod: &Pod,
        name: &str,
        is_optional: bool,
    ) -> Result<Option<ReferencedData>, ReferenceError> {
        let namespace = pod_namespace(pod);
        let found = match kind {
            DataKind::ConfigMap => {
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                await_response(kind.resource(), name, api.get(name)).await.map(ReferencedData::from)
            }
            DataKind::Secret => self.secret(namespace, name).await.map(ReferencedData::from),
        };
        match found {
            Err(error) if is_optional && error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reads a Secret from the API server.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, ReferenceError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        await_response(DataKind::Secret.resource(), name, api.get(name)).await
    }

    /// Returns a token of the pod's service account that is bound to the pod. A cached token is returned until it is
    /// due for renewal. If the renewal fails, the cached token is returned while it is valid.
    pub async fn service_account_token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        lifetime_s: Option<i64>,
    ) -> Result<Arc<str>, ReferenceError> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let lifetime_s = lifetime_s.unwrap_or(TOKEN_LIFETIME_DEFAULT_S);
        let key = TokenKey { pod_uid: uid.clone(), audience: audience.map(str::to_owned), lifetime_s };
        let cached = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let now = Timestamp::now();
        if let Some(cached) = &cached
            && now < cached.renew_at
        {
            return Ok(cached.token.clone());
        }

        let account = pod.spec.as_ref().and_then(|it| it.service_account_name.as_deref());
        let account = account.filter(|it| !it.is_empty()).unwrap_or("default");
        let namespace = pod_namespace(pod);
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|it| vec![it.to_owned()]),
                expiration_seconds: Some(lifetime_s),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: Some(uid),
                }),
            }),
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let answer =
            await_response("serviceaccount", account, api.create_token_request(account, &params, &request))
                .await;
        let status = match answer {
            Ok(answer) => answer.status.unwrap_or_default(),
            Err(why) => {
                let Some(cached) = cached.filter(|it| now < it.expires) else { return Err(why) };
                tracing::warn!(
                    namespace,
                    account,
                    "cannot renew a service account token, using the old one: {why}"
                );
                return Ok(cached.token);
            }
        };
        let (Some(token), Some(expires)) = (status.token, status.expiration_timestamp) else {
            let message = "the response of the API server has no token".to_owned();
            return Err(ReferenceError::Denied { kind: "serviceaccount", name: account.to_owned(), message });
        };
        let cached =
            CachedToken { token: token.into(), renew_at: renewal_time(now, expires.0), expires: expires.0 };
        let token = cached.token.clone();
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(key, cached);
        Ok(token)
    }

    /// Drops the cached tokens of the deleted pod with this UID.
    pub fn forget_tokens(&self, uid: &str) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).retain(|token, _| token.pod_uid != uid);
    }
}

impl std::fmt::Debug for PodReferenceClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PodReferenceClient")
    }
}

/// Returns the time at which a token is renewed: after 80 % of its lifetime, but at the latest after a day.
fn renewal_time(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let lifetime = expires.duration_since(issued).max(SignedDuration::ZERO);
    issued.checked_add((lifetime * 4 / 5).min(TOKEN_RENEWAL_AGE_MAX)).unwrap_or(issued)
}

/// Awaits the response to the API request `call`, with a timeout. `kind` and `name` identify the requested object in
/// the error.
async fn await_response<T>(
    kind: &'static str,
    name: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ReferenceError> {
    let name = || name.to_owned();
    match tokio::time::timeout(RESPONSE_TIMEOUT, call).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(ReferenceError::NotFound { kind, name: name() })
        }
        Ok(Err(kube::Error::Api(status))) => {
            Err(ReferenceError::Denied { kind, name: name(), message: status.message.clone() })
        }
        Ok(Err(other)) => Err(ReferenceError::NoResponse { kind, name: name(), message: other.to_string() }),
        Err(_) => Err(ReferenceError::NoResponse {
            kind,
            name: name(),
            message: format!("no response within {} s", RESPONSE_TIMEOUT.as_secs()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_token_is_renewed_in_time() {
        let given: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let told: Vec<String> = ["PT10M", "PT1H", "P3D", "-PT1M"]
            .into_iter()
            .map(|it| {
                let lifetime: SignedDuration = it.replace("P3D", "PT72H").parse().unwrap();
                format!("{it}: {}", renewal_time(given, given + lifetime))
            })
            .collect();
        expect![[r#"
            PT10M: 2030-01-01T00:08:00Z
            PT1H: 2030-01-01T00:48:00Z
            P3D: 2030-01-02T00:00:00Z
            -PT1M: 2030-01-01T00:00:00Z"#]]
        .assert_eq(&told.join("\n"));
    }
}
