//! Parses one line of a watch into the type of the event and the JSON of its object.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use muster_api::text::Text;
use muster_api::well_known::ANNOTATION_INITIAL_EVENTS_END;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Error: an object does not have the structure of its kind. The API server refuses such objects. A malformed object
/// that is received nevertheless is logged and skipped.
#[derive(Debug)]
pub struct Malformed {
    kind: Text,
    source: serde_json::Error,
}

impl Malformed {
    pub fn new(kind: &str, source: serde_json::Error) -> Self {
        Self { kind: kind.into(), source }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read an object of {}: {}", self.kind, self.source)
    }
}

impl core::error::Error for Malformed {}

/// The type of a watch event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEventType {
    /// The object was added or modified.
    Applied,
    Deleted,
    Bookmark {
        resource_version: u64,
        /// Whether all objects that existed when the watch began have been sent (`k8s.io/initial-events-end`).
        ends_list: bool,
    },
    Error {
        code: i64,
        message: String,
    },
}

/// Parses one line, `{"type":…,"object":…}`, and passes the type of the event and the JSON of the object to `read`.
pub fn watch_event<T>(
    kind: &str,
    line: &[u8],
    mut read: impl FnMut(WatchEventType, &[u8]) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    #[derive(Deserialize)]
    struct WatchLine<'a> {
        #[serde(borrow, rename = "type")]
        event: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    if let Some((event, object)) = split_line(line)
        && let Ok(event) = event_type(kind, event, object)
        && let Ok(read) = read(event, object)
    {
        return Ok(read);
    }
    let line: WatchLine<'_> = parse_json(kind, line)?;
    let object = line.object.get().as_bytes();
    read(event_type(kind, line.event.as_ref(), object)?, object)
}

/// Splits a line of a watch into event type and object without parsing it, if it has the exact form that API servers
/// write. `None` for any other form; such a line is parsed as JSON, which is slower.
fn split_line(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let (event, rest) = rest.split_at_checked(rest.iter().position(|it| *it == b'"')?)?;
    let object = rest.strip_prefix(br#"","object":"#)?;
    Some((core::str::from_utf8(event).ok()?, object.trim_ascii_end().strip_suffix(b"}")?))
}

fn event_type(kind: &str, event: &str, object: &[u8]) -> Result<WatchEventType, Malformed> {
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow, default)]
        metadata: BookmarkMetadata<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct BookmarkMetadata<'a> {
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
        #[serde(borrow)]
        annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    }
    #[derive(Deserialize)]
    struct StatusError {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    Ok(match event {
        "DELETED" => WatchEventType::Deleted,
        "BOOKMARK" => {
            let meta = parse_json::<Bookmark<'_>>(kind, object)?.metadata;
            let annotations = meta.annotations.as_ref();
            let ends_list =
                annotations.is_some_and(|it| it.get(LIST_END_ANNOTATION).is_some_and(|it| it == "true"));
            WatchEventType::Bookmark {
                resource_version: meta.resource_version.parse().unwrap_or_default(),
                ends_list,
            }
        }
        "ERROR" => {
            let failure: StatusError = parse_json(kind, object)?;
            WatchEventType::Error { code: failure.code, message: failure.message }
        }
        _ => WatchEventType::Applied,
    })
}

/// Annotation of the bookmark that ends a streaming list.
const LIST_END_ANNOTATION: &str = ANNOTATION_INITIAL_EVENTS_END;

fn parse_json<'a, T: Deserialize<'a>>(kind: &str, json: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(json).map_err(|source| Malformed::new(kind, source))
}
