//! Query parameters of a request.

use std::str::FromStr;
use std::time::Duration;

use hyper::Uri;
use muster_api::query_parameters::parse_bool_parameter;
use muster_api::time::{GoDurationError, parse_go_duration};
use muster_store::Revision;
use serde_json::{Value, json};

use super::watch_stream;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, DeletePropagation};
use crate::request::{FIELD_MANAGER_BYTES_MAX, FieldValidation};
use crate::selector::ObjectSelector;
use crate::storage::{ContinueToken, ListOptions, ListStart};
use crate::unstructured::{self, str_at};
use crate::validation::FieldError;

/// The query parameters of a request as names and values, in their order in the URL.
#[derive(Debug)]
pub(super) struct RequestQuery(Vec<(String, String)>);

#[cfg(test)]
std::thread_local! {
    /// The names of the query parameters that this thread has read, whether or not the requests had them.
    pub(super) static READ_NAMES: std::cell::RefCell<std::collections::BTreeSet<String>> = const {
        std::cell::RefCell::new(std::collections::BTreeSet::new())
    };
}

/// Options that the query parameters of a write request specify, and the errors in these parameters.
pub(super) struct WriteOptions {
    /// Whether the parameter `dryRun` requests a dry run.
    pub(super) dry_run: bool,
    /// How unknown and duplicate fields in the request body are handled.
    pub(super) field_validation: FieldValidation,
    /// Validation errors for the query parameters. Empty if all are valid.
    pub(super) causes: Vec<FieldError>,
}

impl RequestQuery {
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns the first value of a parameter, or "" if the parameter is absent. [`Self::first_value`] distinguishes an
    /// absent parameter from an empty one.
    pub(super) fn get(&self, name: &str) -> &str {
        self.first_value(name).unwrap_or_default()
    }

    /// Whether the query has the parameter, with any value.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.first_value(name).is_some()
    }

    /// Returns the first value of a parameter, which may be empty, or `None` if the parameter is absent.
    pub(super) fn first_value(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Whether the parameter is present and true. See [`parse_bool_parameter`].
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.bool_value(name) == Some(true)
    }

    /// Returns all values of a parameter.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        #[cfg(test)]
        READ_NAMES.with_borrow_mut(|it| it.insert(name.to_owned()));
        self.0.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// Parses a parameter as a boolean with [`parse_bool_parameter`]. Returns `None` if the parameter is absent.
    pub(super) fn bool_value(&self, name: &str) -> Option<bool> {
        self.first_value(name).map(parse_bool_parameter)
    }

    /// Parses a parameter as a number. Returns `None` if the parameter is absent or empty. Fails if it is not a number.
    pub(super) fn parse_number<T: FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => {
                    Err(ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
                }
            },
        }
    }

    /// Parses the parameter `timeout`: the time after which the request times out. Returns `None` if the parameter is
    /// absent, empty, zero or negative. Fails if it is not a Go duration.
    pub(super) fn timeout(&self) -> Result<Option<Duration>, ApiError> {
        let text = self.get("timeout");
        if text.is_empty() {
            return Ok(None);
        }
        let timeout = parse_go_duration(text).map_err(|error| {
            let why = duration_error_message(text, error);
            ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
        })?;
        Ok(Duration::try_from(timeout).ok().filter(|it| !it.is_zero()))
    }

    /// Parses the parameters `labelSelector` and `fieldSelector` into a selector for objects of `kind`. Fails if one of
    /// them is invalid.
    pub(super) fn selector(&self, kind: &Kind) -> Result<ObjectSelector, ApiError> {
        ObjectSelector::parse(kind, self.get("labelSelector"), self.get("fieldSelector"))
    }

    /// Parses the parameters `dryRun` and `fieldValidation`, and validates `fieldManager`. All write requests support
    /// these parameters. Errors are returned in [`WriteOptions::causes`].
    pub(super) fn write_options(&self) -> WriteOptions {
        let mut causes = Vec::new();
        let manager = self.get("fieldManager");
        if FIELD_MANAGER_BYTES_MAX < manager.len() {
            causes.push(FieldError {
                reason: "FieldValueTooLong",
                field: "fieldManager".into(),
                message: format!("Too long: may not be more than {FIELD_MANAGER_BYTES_MAX} bytes"),
            });
        }
        if let Some((at, unprintable)) = manager.char_indices().find(|(_, it)| it.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(unprintable));
            causes.push(FieldError::invalid("fieldManager", &json!(manager), &why));
        }
        let dry_run: Vec<&str> = self.values("dryRun").filter(|it| !it.is_empty()).collect();
        causes.extend(dry_run_error(&dry_run));
        let field_validation = match self.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                causes.push(FieldError::unsupported(
                    "fieldValidation",
                    &json!(other),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        WriteOptions { dry_run: !dry_run.is_empty(), field_validation, causes }
    }

    /// Parses the parameters that determine where a watch starts: `resourceVersion`, `resourceVersionMatch`,
    /// `sendInitialEvents` and `allowWatchBookmarks`. Fails if a parameter or the combination of parameters is invalid.
    pub(super) fn watch_start(&self) -> Result<watch_stream::WatchStart, ApiError> {
        let from_anywhere = matches!(self.get("resourceVersion"), "" | "0");
        let matching = self.get("resourceVersionMatch");
        let initial = match self.bool_value("sendInitialEvents") {
            None if matching.is_empty() && from_anywhere => {
                return Ok(watch_stream::WatchStart::CurrentState { sends_initial_events_end: false });
            }
            it => it,
        };
        let mut causes = Vec::new();
        if initial.is_some() && matching != MATCH_NOT_OLDER_THAN {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if !matching.is_empty() {
            if initial.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(FieldError::forbidden("resourceVersionMatch", why));
            }
            if matching != MATCH_NOT_OLDER_THAN {
                causes.push(FieldError::unsupported(
                    "resourceVersionMatch",
                    &json!(matching),
                    &[MATCH_NOT_OLDER_THAN],
                ));
            }
            if !self.get("continue").is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(FieldError::forbidden("resourceVersionMatch", why));
            }
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid_options("ListOptions", &causes));
        }
        match (initial, self.resource_version()?) {
            (Some(true), _) => Ok(watch_stream::WatchStart::CurrentState {
                sends_initial_events_end: self.is_true("allowWatchBookmarks"),
            }),
            (Some(false), 0) => Ok(watch_stream::WatchStart::Now),
            (_, after) => Ok(watch_stream::WatchStart::After(after)),
        }
    }

    /// Parses the options of a list or delete collection request: the selectors, `limit`, `continue`, `resourceVersion`
    /// and `resourceVersionMatch`. Fails if a parameter or the combination of parameters is invalid.
    pub(super) fn list_options(&self, kind: &Kind) -> Result<ListOptions, ApiError> {
        let (version, matching) = (self.get("resourceVersion"), self.get("resourceVersionMatch"));
        let next = self.get("continue");
        let mut causes = Vec::new();
        let mut forbid = |field, why| causes.push(FieldError::forbidden(field, why));
        if !matching.is_empty() {
            if version.is_empty() {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !next.is_empty() {
                forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(matching, MATCH_EXACT | MATCH_NOT_OLDER_THAN) {
                causes.push(FieldError::unsupported(
                    "resourceVersionMatch",
                    matching,
                    &[MATCH_EXACT, MATCH_NOT_OLDER_THAN, ""],
                ));
            }
            if matching == MATCH_EXACT && version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(FieldError::forbidden("resourceVersionMatch", why));
            }
        }
        if self.bool_value("sendInitialEvents").is_some() {
            causes
                .push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid_options("ListOptions", &causes));
        }
        // A negative limit means no limit.
        let limit = usize::try_from(self.parse_number::<i64>("limit")?.unwrap_or(0)).unwrap_or(0);
        let from = match (next, self.resource_version()?) {
            ("", 0) => ListStart::Now,
            ("", at) if matching == MATCH_EXACT || (matching.is_empty() && limit != 0) => ListStart::At(at),
            ("", _) => ListStart::Now,
            (next, 0) => ListStart::Page(
                ContinueToken::parse(next)
                    .map_err(|why| ApiError::bad_request(format!("invalid continue token: {why}")))?,
            ),
            _ => {
                let why = "specifying resource version is not allowed when using continue";
                return Err(ApiError::bad_request(why));
            }
        };
        Ok(ListOptions { selector: self.selector(kind)?, limit, from })
    }

    /// Returns the parameter `resourceVersion` as a revision, or 0 if the parameter is absent or empty. Fails if it is
    /// not a number.
    pub(super) fn resource_version(&self) -> Result<Revision, ApiError> {
        let text = self.get("resourceVersion");
        if text.is_empty() {
            return Ok(0);
        }
        text.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })
    }
}

/// Value of `resourceVersionMatch` that requests a result at least as new as `resourceVersion`.
const MATCH_NOT_OLDER_THAN: &str = "NotOlderThan";
/// Value of `resourceVersionMatch` that requests the state at exactly `resourceVersion`.
const MATCH_EXACT: &str = "Exact";

/// Returns a validation error if one of the values of `dryRun` is not `All`, and `None` if all are valid.
fn dry_run_error(values: &[&str]) -> Option<FieldError> {
    let is_unknown = values.iter().any(|it| *it != "All");
    is_unknown.then(|| {
        let message = format!("Unsupported value: [{}]: supported values: \"All\"", quote_values(values));
        FieldError { reason: "FieldValueNotSupported", field: "dryRun".into(), message }
    })
}

/// Returns the error message of Go's `time.ParseDuration` for `text`, which is not a valid duration.
fn duration_error_message(text: &str, error: GoDurationError<'_>) -> String {
    match error {
        GoDurationError::Invalid => format!("time: invalid duration {text:?}"),
        GoDurationError::MissingUnit => format!("time: missing unit in duration {text:?}"),
        GoDurationError::UnknownUnit(unit) => format!("time: unknown unit {unit:?} in duration {text:?}"),
    }
}

/// Quotes the values and joins them with commas.
fn quote_values(values: &[&str]) -> String {
    values.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(", ")
}

/// Parses the delete options from the body, or from the query if there is no body. Also returns whether the body
/// requests a dry run, or `false` if there is no body.
pub(super) fn delete_options(
    query: &RequestQuery,
    body: Option<&Value>,
) -> Result<(DeleteOptions, bool), ApiError> {
    let text = |path: &str| match body {
        Some(body) => str_at(body, path),
        None => query.get(path),
    };
    let orphan = match body {
        Some(body) => body["orphanDependents"].as_bool(),
        None => query.bool_value("orphanDependents"),
    };
    let mut causes = Vec::new();
    let policy = text("propagationPolicy");
    if orphan.is_some() && !policy.is_empty() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(FieldError::invalid("propagationPolicy", &json!(policy), why));
    }
    let propagation = match (policy, orphan) {
        ("", Some(true)) | ("Orphan", _) => Some(DeletePropagation::Orphan),
        ("", Some(false)) | ("Background", _) => Some(DeletePropagation::Background),
        ("Foreground", _) => Some(DeletePropagation::Foreground),
        ("", None) => None,
        (other, _) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(FieldError::unsupported("propagationPolicy", &json!(other), &supported));
            None
        }
    };
    let dry_run: Vec<&str> = match body {
        Some(body) => {
            unstructured::list_at(body, "dryRun").iter().map(|it| it.as_str().unwrap_or_default()).collect()
        }
        None => Vec::new(),
    };
    causes.extend(dry_run_error(&dry_run));
    if !causes.is_empty() {
        return Err(ApiError::invalid_options("DeleteOptions", &causes));
    }
    let some = |path| Some(text(path).to_owned()).filter(|it| !it.is_empty());
    let options = DeleteOptions {
        grace_s: match body {
            Some(body) => body["gracePeriodSeconds"].as_i64(),
            None => query.parse_number("gracePeriodSeconds")?,
        },
        propagation,
        uid: some("preconditions.uid"),
        resource_version: some("preconditions.resourceVersion"),
        requests_cascade: orphan == Some(false),
    };
    Ok((options, !dry_run.is_empty()))
}
