//! HTTP client that measures the checks of progressive rollouts: it queries Prometheus and calls webhooks.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use k8s_openapi::ByteString;
use kube::client::Body;
use kube::{Client, Config};
use muster_api::muster_v1alpha1::checks::{CaConfigMapRef, TokenSecretRef};
use muster_api::object_key::ObjectKey;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_api::well_known::NAMESPACE_SYSTEM;
use muster_engine::controller::measurement::{decode_query_response, evaluate_prometheus, evaluate_webhook};
use muster_engine::controller::{
    Accept, CallError, EncodedRequest, Measurement, MeasurementRequest, MeasurementResult, Outcome, Priority,
    Verb, Watch,
};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::CONTROLLER_NAME;
use crate::call::Caller;
use crate::check_endpoints::{CheckEndpoint, EndpointUrl};

/// Maximum number of concurrent measurements of one [`CheckClient`]. It bounds the memory for responses, which have at
/// most 1 MiB each.
const MEASUREMENTS_MAX: usize = 16;

/// Maximum size of a response of Prometheus or a webhook. With a larger response the check is inconclusive.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Timeout of one Prometheus check, for all its queries together.
const PROMETHEUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for reading the Secret (token) and the ConfigMap (CA certificates) that a check refers to.
const REFERENCES_TIMEOUT: Duration = Duration::from_secs(20);

/// Minimum and maximum timeout of a webhook call. The timeout in the rollout policy is clamped to this range.
const WEBHOOK_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Options for measuring the checks of rollouts: which endpoints may be called, and in which namespace the Secrets and
/// ConfigMaps of ClusterRolloutPolicies are.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Endpoints that checks may call. If the list is empty, every Prometheus or webhook check is inconclusive.
    pub endpoints: Vec<CheckEndpoint>,
    /// Namespace of the controller. It contains the Secrets and ConfigMaps to which checks of ClusterRolloutPolicies
    /// refer.
    pub namespace: String,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { endpoints: Vec::new(), namespace: NAMESPACE_SYSTEM.to_owned() }
    }
}

/// HTTP client that measures the checks of rollouts (Prometheus queries and webhooks). It sends requests only to
/// allowed endpoints, follows no redirects and uses no proxy.
#[derive(Clone)]
pub(crate) struct CheckClient {
    /// Reads Secrets and ConfigMaps from the API server.
    caller: Caller,
    options: Arc<CheckOptions>,
    permits: Arc<Semaphore>,
}

/// Bearer token and CA certificates for the requests to an endpoint.
struct EndpointCredentials {
    /// Bearer token. Empty if the check refers to no Secret.
    token: String,
    /// CA certificates (DER) with which the endpoint's certificate is verified. `None` means the CA certificates of the
    /// system.
    roots: Option<Vec<Vec<u8>>>,
}

/// The field `data` of a Secret. Other fields are not decoded.
#[derive(Deserialize)]
struct SecretData {
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

/// The field `data` of a ConfigMap. Other fields are not decoded.
#[derive(Deserialize)]
struct ConfigMapData {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl CheckClient {
    pub(crate) fn new(caller: Caller, options: CheckOptions) -> Self {
        let permits = Arc::new(Semaphore::new(MEASUREMENTS_MAX));
        Self { caller, options: Arc::new(options), permits }
    }

    /// Measures a check and returns its result. Waits while [`MEASUREMENTS_MAX`] other measurements run. If the check
    /// cannot be measured, the result is `Inconclusive` with a message that says why.
    pub(crate) async fn measure(&self, measurement: &Measurement) -> MeasurementResult {
        let Ok(_permit) = self.permits.acquire().await else {
            return MeasurementResult::inconclusive("the controller is stopping");
        };
        let measured = match self.try_measure(measurement).await {
            Ok(measured) => measured,
            Err(problem) => MeasurementResult::Inconclusive(problem),
        };
        let (set, check, result) = (&measurement.set, &measurement.check, measured.as_str());
        tracing::debug!(%set, %check, result, message = measured.message(), "measured check");
        measured
    }

    /// Checks that the endpoint is allowed, reads the token and the CA certificates, sends the requests, and evaluates
    /// the responses. The error is the message of an inconclusive result.
    async fn try_measure(&self, measurement: &Measurement) -> Result<MeasurementResult, String> {
        let (url, secret, ca) = match &measurement.request {
            MeasurementRequest::Prometheus(it) => (&it.url, &it.secret_ref, &it.ca_ref),
            MeasurementRequest::Webhook { webhook, .. } => {
                (&webhook.url, &webhook.secret_ref, &webhook.ca_ref)
            }
        };
        let mut url = EndpointUrl::parse(url).map_err(|problem| format!("url: {problem}"))?;
        let timeout = match &measurement.request {
            MeasurementRequest::Prometheus(_) if url.query.is_some() => {
                return Err("url: the base URL of Prometheus must not have a query (?)".to_owned());
            }
            MeasurementRequest::Prometheus(_) => {
                url = url.join("api/v1/query");
                PROMETHEUS_TIMEOUT
            }
            MeasurementRequest::Webhook { webhook, .. } => {
                webhook.timeout.duration_or_zero().clamp(WEBHOOK_TIMEOUTS.0, WEBHOOK_TIMEOUTS.1)
            }
        };
        if !self.options.endpoints.iter().any(|it| it.allows(&url)) {
            let origin = url.origin();
            return Err(format!("the endpoint {origin} is not allowed: add it to --check-endpoints"));
        }
        let namespace = measurement.references_in.as_deref().unwrap_or(&self.options.namespace);
        let reading = self.read_credentials(namespace, secret.as_ref(), ca.as_ref());
        let credentials = tokio::time::timeout(REFERENCES_TIMEOUT, reading)
            .await
            .map_err(|_| "the Secret or ConfigMap of the check could not be read in time".to_owned())??;
        let measuring = send_and_evaluate(&url, &credentials, &measurement.request);
        let measured = match tokio::time::timeout(timeout, measuring).await {
            Err(_) => MeasurementResult::Inconclusive(format!("no response within {} s", timeout.as_secs())),
            Ok(Err(problem)) => MeasurementResult::Inconclusive(problem),
            Ok(Ok(measured)) => measured,
        };
        Ok(measured.without_secret(&credentials.token))
    }

    /// Reads the bearer token from the Secret and the CA certificates from the ConfigMap that a check refers to. The
    /// error says which of them cannot be read, and why.
    async fn read_credentials(
        &self,
        namespace: &str,
        secret: Option<&TokenSecretRef>,
        ca: Option<&CaConfigMapRef>,
    ) -> Result<EndpointCredentials, String> {
        let mut credentials = EndpointCredentials { token: String::new(), roots: None };
        if let Some(TokenSecretRef { name, key }) = secret {
            let about = format!("secretRef: Secret {namespace}/{name}");
            let body = self.read_object("Secret", "secrets", namespace, name).await;
            let body = body.map_err(|problem| format!("{about}: {problem}"))?;
            let SecretData { mut data } =
                serde_json::from_slice(&body).map_err(|_| format!("{about}: cannot be decoded"))?;
            let ByteString(token) = data.remove(key).ok_or_else(|| format!("{about}: has no key {key:?}"))?;
            let token = String::from_utf8(token).map_err(|_| format!("{about}: {key:?} is not text"))?;
            credentials.token = token.trim().to_owned();
            if credentials.token.is_empty() {
                return Err(format!("{about}: {key:?} is empty"));
            }
        }
        if let Some(CaConfigMapRef { name, key }) = ca {
            let about = format!("caRef: ConfigMap {namespace}/{name}");
            let body = self.read_object("ConfigMap", "configmaps", namespace, name).await;
            let body = body.map_err(|problem| format!("{about}: {problem}"))?;
            let ConfigMapData { mut data } =
                serde_json::from_slice(&body).map_err(|_| format!("{about}: cannot be decoded"))?;
            let pem = data.remove(key).ok_or_else(|| format!("{about}: has no key {key:?}"))?;
            let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            let roots = roots.map_err(|_| format!("{about}: {key:?} is not PEM"))?;
            if roots.is_empty() {
                return Err(format!("{about}: {key:?} has no certificate"));
            }
            credentials.roots = Some(roots.into_iter().map(|it| it.to_vec()).collect());
        }
        Ok(credentials)
    }

    /// Reads an object of the core API group from the API server, and returns its JSON. The error says why it cannot be
    /// read.
    async fn read_object(
        &self,
        kind: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<u8>, String> {
        let watch = Watch::whole_objects("", "v1", kind, plural, true);
        let request = EncodedRequest {
            verb: Verb::Get,
            path: watch.resource.path(&ObjectKey::new(namespace, name)),
            body: String::new(),
            accept: Accept::Object,
            priority: Priority::Low,
        };
        match self.caller.call(request).await.0 {
            Outcome::Done(body) => Ok(body),
            Outcome::Refused(CallError::NotFound) => Err("does not exist".to_owned()),
            Outcome::Refused(CallError::Forbidden(_)) => {
                Err(format!("the controller may not read it: grant it get on {plural} by a Role"))
            }
            Outcome::Refused(error) => Err(error.to_string()),
        }
    }
}

/// Sends the requests of a measurement to the endpoint, and evaluates the responses. The error is the message of an
/// inconclusive result.
async fn send_and_evaluate(
    url: &EndpointUrl,
    credentials: &EndpointCredentials,
    request: &MeasurementRequest,
) -> Result<MeasurementResult, String> {
    let client = endpoint_client(url, credentials)?;
    match request {
        MeasurementRequest::Webhook { body, .. } => {
            let (code, response) = post(&client, url, credentials, JSON_MEDIA_TYPE, body.clone()).await?;
            Ok(evaluate_webhook(code, &response))
        }
        MeasurementRequest::Prometheus(check) => {
            let query = async |query: &str| {
                let form =
                    form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
                let form_type = "application/x-www-form-urlencoded";
                let (code, response) = post(&client, url, credentials, form_type, form).await?;
                decode_query_response(code, &response)
            };
            let result = query(&check.query).await.map_err(|problem| format!("query: {problem}"))?;
            let is_empty = (result.series, result.nan) == (0, 0);
            let presence = match check.presence_query.as_ref().filter(|_| is_empty) {
                Some(text) => Some(query(text).await.map_err(|problem| format!("presenceQuery: {problem}"))?),
                None => None,
            };
            Ok(evaluate_prometheus(&result, presence.as_ref()))
        }
    }
}

/// Creates an HTTP client for one endpoint. It ignores the proxy settings of the environment, retries nothing and
/// follows no redirects.
fn endpoint_client(url: &EndpointUrl, credentials: &EndpointCredentials) -> Result<Client, String> {
    let origin = url.origin().parse().map_err(|_| "url: malformed".to_owned())?;
    let mut config = Config::new(origin);
    config.root_cert.clone_from(&credentials.roots);
    config.default_retry = false;
    config.disable_compression = true;
    Client::try_from(config).map_err(|error| format!("caRef: {}", root_cause(&error)))
}

/// Sends a POST request. Returns the status code and the body of the response. The error says what went wrong, for
/// example that the endpoint redirects or that the response is too large.
async fn post(
    client: &Client,
    url: &EndpointUrl,
    credentials: &EndpointCredentials,
    media_type: &str,
    body: String,
) -> Result<(u16, Vec<u8>), String> {
    let agent = format!("{CONTROLLER_NAME}/{}", env!("CARGO_PKG_VERSION"));
    let mut request = Request::post(url.path_and_query())
        .header(ACCEPT, JSON_MEDIA_TYPE)
        .header(CONTENT_TYPE, media_type)
        .header(USER_AGENT, agent);
    if !credentials.token.is_empty() {
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", credentials.token))
            .map_err(|_| "secretRef: the token has characters that no header may have".to_owned())?;
        bearer.set_sensitive(true);
        request = request.header(AUTHORIZATION, bearer);
    }
    let request = request.body(Body::from(body.into_bytes())).map_err(|_| "url: malformed".to_owned())?;
    let response = client.send(request).await.map_err(|error| root_cause(&error))?;
    let code = response.status();
    if code.is_redirection() && code != StatusCode::NOT_MODIFIED {
        return Err(format!(
            "the endpoint redirects (status {}), which is not followed: set url to the new one",
            code.as_u16()
        ));
    }
    let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => format!("the response is larger than {RESPONSE_BYTES_MAX} bytes"),
        None => root_cause(error.as_ref()),
    })?;
    Ok((code.as_u16(), body.to_bytes().to_vec()))
}

/// Returns the message of the innermost source of an error ([`Error::source`]). If the error has no source, returns the
/// message of the error itself.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
