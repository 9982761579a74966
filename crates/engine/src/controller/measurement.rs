//! Measurements of rollout checks by Prometheus queries and webhooks. A reconcile returns the measurements to make, and
//! the runner sends their requests in the background. This module evaluates the responses.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::json;
use muster_api::muster_v1alpha1::checks::{PrometheusCheck, WebhookCheck};
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;

/// One measurement of a rollout check: the request to send, and the check, DaemonSet, revision and rollout attempt that
/// the measurement is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measurement {
    /// Namespace and name of the DaemonSet whose rollout is checked.
    pub set: ObjectKey,
    /// UID of the DaemonSet whose rollout is checked.
    pub uid: Text,
    /// Revision hash of the revision that is rolled out.
    pub revision: Text,
    /// Number of the attempt to roll out this revision.
    pub attempt: u32,
    /// Name of the check that is measured, as in the policy.
    pub check: Text,
    /// Time at which the reconcile returned the measurement.
    pub started: Time,
    /// Namespace of the Secret and ConfigMap that the check refers to. `None` means the namespace of the controller.
    pub references_in: Option<Text>,
    pub request: MeasurementRequest,
}

/// The HTTP request that a measurement sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeasurementRequest {
    /// Queries Prometheus. The placeholders in the queries are already replaced by their values.
    Prometheus(PrometheusCheck),
    /// Posts a JSON body to a webhook.
    Webhook { webhook: WebhookCheck, body: String },
}

/// The result of a measurement. `Fail` and `Inconclusive` hold a message that explains them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeasurementResult {
    Pass,
    Fail(String),
    /// The check neither passes nor fails, for example because the endpoint is not allowed, did not respond in time, or
    /// responded with an error or without data.
    Inconclusive(String),
}

/// Maximum length of a result's message in characters, not counting the ellipsis of a message that was cut. The message
/// is part of the status of a DaemonRollout.
const MESSAGE_CHARS_MAX: usize = 256;

/// Maximum number of Prometheus series that the message of a failed check lists.
const SERIES_IN_MESSAGE_MAX: usize = 3;

impl MeasurementResult {
    /// Creates an inconclusive result with this message.
    pub fn inconclusive(message: &str) -> Self {
        Self::Inconclusive(message.into())
    }

    /// Creates a failed result with this message.
    pub fn fail(message: &str) -> Self {
        Self::Fail(message.into())
    }

    /// Returns the name of the result, as it is written in the status, in logs and in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pass => "Pass",
            Self::Fail(_) => "Fail",
            Self::Inconclusive(_) => "Inconclusive",
        }
    }

    /// Returns the message of the result without control characters, cut to [`MESSAGE_CHARS_MAX`] characters. If it is
    /// cut, an ellipsis is appended. Empty for `Pass`.
    pub fn message(&self) -> String {
        match self {
            Self::Pass => String::new(),
            Self::Fail(message) | Self::Inconclusive(message) => sanitize_message(message),
        }
    }

    /// Returns the result with each occurrence of the secret in its message replaced by `[token]`, because an endpoint
    /// may repeat the secret in its response.
    #[must_use]
    pub fn without_secret(self, secret: &str) -> Self {
        if secret.is_empty() {
            return self;
        }
        match self {
            Self::Pass => Self::Pass,
            Self::Fail(message) => Self::Fail(message.replace(secret, "[token]")),
            Self::Inconclusive(message) => Self::Inconclusive(message.replace(secret, "[token]")),
        }
    }
}

/// Returns the text without control characters. If more than [`MESSAGE_CHARS_MAX`] characters are left, the text is cut
/// to that length and an ellipsis is appended.
fn sanitize_message(text: &str) -> String {
    let mut printable = text.chars().filter(|it| !it.is_control());
    let mut message: String = printable.by_ref().take(MESSAGE_CHARS_MAX).collect();
    if printable.next().is_some() {
        message.push('…');
    }
    message
}

/// Summary of the series that a Prometheus query returned: counts and a few examples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueryResult {
    /// Number of series in the query result whose value is not NaN.
    pub series: usize,
    /// Number of series in the query result whose value is NaN.
    pub nan: usize,
    /// The first [`SERIES_IN_MESSAGE_MAX`] series whose value is not NaN, formatted like `{label="value"} 1.5`.
    examples: Vec<String>,
}

/// A response of the Prometheus HTTP API.
#[derive(Deserialize)]
struct PrometheusResponse {
    #[serde(default)]
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: Option<PrometheusData>,
}

/// The `data` of a successful response of the Prometheus HTTP API.
#[derive(Deserialize)]
struct PrometheusData {
    #[serde(rename = "resultType")]
    result_type: String,
    result: serde_json::Value,
}

/// One sample of an instant vector: the labels of a series, and its value.
#[derive(Deserialize)]
struct PrometheusSample {
    #[serde(default)]
    metric: serde_json::Map<String, serde_json::Value>,
    /// Timestamp and value. Prometheus sends the value as a string, because JSON has no NaN.
    value: (serde_json::Value, String),
}

/// Decodes the response to an instant query of Prometheus. Returns an error message if Prometheus reported an error, or
/// if the response is malformed or not an instant vector.
pub fn decode_query_response(code: u16, body: &[u8]) -> Result<QueryResult, String> {
    let response: Option<PrometheusResponse> = json::from_slice(body).ok();
    let Some(PrometheusResponse { status, error, data }) = response else {
        return Err(match code {
            200 => "the response is not JSON of the Prometheus API".to_string(),
            code => format!("Prometheus responded with status {code}"),
        });
    };
    if code != 200 || status != "success" {
        return Err(match &*error {
            "" => format!("Prometheus responded with status {code}"),
            error => format!("Prometheus responded with status {code}: {error}"),
        });
    }
    let data = data.ok_or("the response has no data")?;
    if data.result_type != "vector" {
        return Err(format!("the query returns a {}: it must return an instant vector", data.result_type));
    }
    let samples: Vec<PrometheusSample> =
        serde_json::from_value(data.result).map_err(|_| "the response is not an instant vector")?;
    let mut result = QueryResult::default();
    for sample in samples {
        let value: f64 = sample.value.1.parse().map_err(|_| "a sample has a value that is not a number")?;
        if value.is_nan() {
            result.nan += 1;
            continue;
        }
        result.series += 1;
        if result.examples.len() < SERIES_IN_MESSAGE_MAX {
            let label = |(name, value): (&String, &serde_json::Value)| format!("{name}={value}");
            let labels: Vec<String> = sample.metric.iter().map(label).collect();
            result.examples.push(format!("{{{}}} {}", labels.join(", "), sample.value.1));
        }
    }
    Ok(result)
}

/// Evaluates a Prometheus check from the results of its queries. `presence` is the result of the presence query. It is
/// `None` if the check has no presence query, or if that query was not sent.
///
/// Rule: a check fails if its query returns a series whose value is not NaN. It is inconclusive if the query returns
/// only NaN. If the query returns nothing, the check is inconclusive if the presence query returns nothing or only NaN.
/// Otherwise it passes.
pub fn evaluate_prometheus(query: &QueryResult, presence: Option<&QueryResult>) -> MeasurementResult {
    if 0 < query.series {
        let more = if query.examples.len() < query.series { ", …" } else { "" };
        let series = query.examples.join(", ");
        return MeasurementResult::fail(&format!(
            "the query returned {} series: {series}{more}",
            query.series
        ));
    }
    if 0 < query.nan {
        return MeasurementResult::inconclusive("the query returned only NaN");
    }
    match presence {
        Some(QueryResult { series: 0, nan: 0, .. }) => {
            MeasurementResult::inconclusive("no data: the presence query returned nothing")
        }
        Some(QueryResult { series: 0, .. }) => {
            MeasurementResult::inconclusive("no data: the presence query returned only NaN")
        }
        _ => MeasurementResult::Pass,
    }
}

/// The JSON body of a webhook's response.
#[derive(Deserialize)]
struct WebhookResponse {
    result: String,
    #[serde(default)]
    message: String,
}

/// Evaluates the response of a webhook.
///
/// Rule: a webhook passes or fails a check only with status 200 and a JSON body whose `result` is `Pass` or `Fail`. Any
/// other response is inconclusive.
pub fn evaluate_webhook(code: u16, body: &[u8]) -> MeasurementResult {
    if code != 200 {
        return MeasurementResult::inconclusive(&format!(
            "the webhook responded with status {code}: it must be 200"
        ));
    }
    let Ok(WebhookResponse { result, message }) = json::from_slice::<WebhookResponse>(body) else {
        return MeasurementResult::inconclusive("the webhook responded without JSON that has a field result");
    };
    match (&*result, &*message) {
        ("Pass", _) => MeasurementResult::Pass,
        ("Fail", "") => MeasurementResult::fail("the webhook reported a failure"),
        ("Fail", message) => MeasurementResult::fail(message),
        ("Inconclusive", "") => MeasurementResult::inconclusive("the webhook has no result yet"),
        ("Inconclusive", message) => MeasurementResult::inconclusive(message),
        (result, _) => MeasurementResult::inconclusive(&format!(
            "the webhook responded with the result {result:?}: it must be Pass, Fail or Inconclusive"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(samples: &str) -> String {
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{samples}]}}}}"#)
    }

    fn query(body: &str) -> QueryResult {
        decode_query_response(200, body.as_bytes()).unwrap()
    }

    #[test]
    fn any_number_fails_and_only_nan_or_no_presence_is_inconclusive() {
        let (one, nan, none) = (
            query(&vector(r#"{"metric":{"pod":"a"},"value":[1,"2.5"]},{"metric":{},"value":[1,"NaN"]}"#)),
            query(&vector(r#"{"metric":{},"value":[1,"NaN"]}"#)),
            query(&vector("")),
        );
        let failed = "the query returned 1 series: {pod=\"a\"} 2.5";
        assert_eq!(evaluate_prometheus(&one, Some(&one)), MeasurementResult::Fail(failed.into()));
        assert_eq!(evaluate_prometheus(&none, None), MeasurementResult::Pass);
        assert_eq!(evaluate_prometheus(&none, Some(&one)), MeasurementResult::Pass);
        for (query, presence) in [(&nan, None), (&none, Some(&none)), (&none, Some(&nan))] {
            let measured = evaluate_prometheus(query, presence);
            assert!(matches!(measured, MeasurementResult::Inconclusive(_)), "{measured:?}");
        }
    }

    #[test]
    fn a_message_names_few_series() {
        let many = Vec::from([r#"{"metric":{"pod":"a"},"value":[1,"1"]}"#; 1000]).join(",");
        let MeasurementResult::Fail(message) = evaluate_prometheus(&query(&vector(&many)), None) else {
            panic!()
        };
        assert_eq!(message.matches("pod=").count(), SERIES_IN_MESSAGE_MAX);
        assert!(message.starts_with("the query returned 1000 series") && message.ends_with(", …"));
    }

    #[test]
    fn a_response_other_than_an_instant_vector_is_an_error() {
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#;
        let error = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
        let cases = [
            (200, scalar, "the query returns a scalar"),
            (400, error, "status 400: parse error"),
            (200, error, "parse error"),
            (503, "<html>", "status 503"),
            (200, "<html>", "not JSON"),
            (500, r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "status 500"),
            (200, r#"{"status":"success"}"#, "no data"),
        ];
        for (code, body, expected) in cases {
            let message = decode_query_response(code, body.as_bytes()).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let malformed = [r#"{"metric":{},"value":[1,"x"]}"#, r#"{"metric":{}}"#];
        assert!(malformed.iter().all(|it| decode_query_response(200, vector(it).as_bytes()).is_err()));
    }

    #[test]
    fn only_a_response_with_pass_or_fail_is_conclusive() {
        let evaluate = |code, body: &str| evaluate_webhook(code, body.as_bytes());
        assert_eq!(evaluate(200, r#"{"result":"Pass"}"#), MeasurementResult::Pass);
        assert_eq!(
            evaluate(200, r#"{"result":"Fail","message":"slow"}"#),
            MeasurementResult::Fail("slow".into())
        );
        for (code, body) in [
            (200, r#"{"result":"Inconclusive"}"#),
            (200, r#"{"result":"pass"}"#),
            (200, "{}"),
            (200, ""),
            (204, r#"{"result":"Pass"}"#),
            (302, r#"{"result":"Fail"}"#),
        ] {
            assert!(matches!(evaluate(code, body), MeasurementResult::Inconclusive(_)), "{code} {body}");
        }
    }

    #[test]
    fn messages_are_bounded_and_have_no_secret() {
        let long = MeasurementResult::fail(&"ä\u{1b}".repeat(1000));
        assert_eq!(long.message().chars().count(), MESSAGE_CHARS_MAX + 1);
        assert!(!long.message().contains('\u{1b}'));
        // The secret is replaced before the message is cut.
        let echoed = MeasurementResult::fail(&format!("{}s3cret", "x".repeat(MESSAGE_CHARS_MAX - 3)));
        assert!(!echoed.without_secret("s3cret").message().contains("s3"));
    }
}
