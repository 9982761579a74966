//! What the parameters of a request say.

use hyper::Uri;
use serde_json::Value;

use crate::context::FieldValidation;
use crate::kinds::Kind;
use crate::object::{self, str_at};
use crate::refusal::Refusal;
use crate::registry::{DeleteOptions, Propagation};
use crate::selector::Selector;
use crate::watch;

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(it, _)| it == name).map_or("", |(_, value)| value)
    }

    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.get(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Refusal::bad_request(format!("{name}: {text:?} is not a number"))),
            },
        }
    }

    pub(super) fn selector(&self, kind: &Kind) -> Result<Selector, Refusal> {
        Selector::parse(kind, self.get("labelSelector"), self.get("fieldSelector"))
    }

    pub(super) fn dry_run(&self) -> Result<bool, Refusal> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(unknown_dry_run(other)),
        }
    }

    pub(super) fn field_validation(&self) -> Result<FieldValidation, Refusal> {
        match self.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(Refusal::invalid_options(format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }

    pub(super) fn watch_from(&self) -> Result<watch::From, Refusal> {
        let from_anywhere = matches!(self.get("resourceVersion"), "" | "0");
        match (self.get("sendInitialEvents"), self.get("resourceVersionMatch")) {
            ("", "") if from_anywhere => Ok(watch::From::State { say_end: false }),
            ("", "") => {
                Ok(watch::From::After(self.number("resourceVersion")?.expect("it is neither empty nor 0")))
            }
            ("true" | "1", "NotOlderThan") => {
                Ok(watch::From::State { say_end: self.is("allowWatchBookmarks") })
            }
            ("false" | "0", "NotOlderThan") if from_anywhere => Ok(watch::From::Now),
            ("false" | "0", "NotOlderThan") => {
                Ok(watch::From::After(self.number("resourceVersion")?.expect("it is neither empty nor 0")))
            }
            ("", _) => Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            _ => Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
        }
    }
}

fn unknown_dry_run(value: &str) -> Refusal {
    Refusal::invalid_options(format!("dryRun: Unsupported value: {value:?}: supported values: \"All\""))
}

/// The options come in the body, which kubectl sends without kind and version, or in the query.
pub(super) fn delete_options(query: &Query, said: &Value) -> Result<(DeleteOptions, bool), Refusal> {
    let propagation = match (str_at(said, "propagationPolicy"), query.get("propagationPolicy")) {
        ("", it) | (it, _) => match it {
            "" if said["orphanDependents"] == true => Some(Propagation::Orphan),
            "" => None,
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                return Err(Refusal::invalid_options(format!(
                    "propagationPolicy: Unsupported value: {other:?}: supported values: \"Background\", \"Foreground\", \"Orphan\""
                )));
            }
        },
    };
    let dry_run = match object::list(said, "dryRun") {
        [] => false,
        [all] if all == "All" => true,
        [other, ..] => return Err(unknown_dry_run(other.as_str().unwrap_or_default())),
    };
    let text = |path| Some(str_at(said, path).to_owned()).filter(|it| !it.is_empty());
    let in_query = query.number("gracePeriodSeconds")?.and_then(|it| i64::try_from(it).ok());
    let options = DeleteOptions {
        grace_s: said["gracePeriodSeconds"].as_i64().or(in_query),
        propagation,
        uid: text("preconditions.uid"),
        version: text("preconditions.resourceVersion"),
    };
    Ok((options, dry_run))
}
