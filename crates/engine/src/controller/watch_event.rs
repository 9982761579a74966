//! Decodes the lines of a watch response into watch events.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use muster_api::text::Text;
use muster_api::well_known::ANNOTATION_INITIAL_EVENTS_END;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The error for an object or a watch event whose JSON cannot be decoded. The API server validates objects, so this is
/// rare. The reflector logs such an object and skips it.
#[derive(Debug)]
pub struct Malformed {
    /// Plural name of the resource of the malformed object, such as `pods`.
    kind: Text,
    /// The error of the JSON parser.
    source: serde_json::Error,
}

impl Malformed {
    /// Creates the error. `kind` is the plural name of the resource, such as `pods`.
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

/// An event of a watch. `F` is the type of a decoded object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEvent<F> {
    /// The object was added or modified. Holds the object, decoded.
    Applied(F),
    /// The object was deleted. Holds its last state, decoded.
    Deleted(F),
    /// The watch has delivered all changes up to this resource version.
    Bookmark {
        resource_version: u64,
        /// Whether this bookmark ends a streaming list: all objects that existed when the watch began have been sent
        /// (`k8s.io/initial-events-end`).
        ends_list: bool,
    },
    /// The server ended the watch with an error. Code 410 means that the history since the requested resource version
    /// was compacted, so that a new list is needed.
    Error { code: i64, message: String },
}

impl<F> WatchEvent<F> {
    /// Returns the object of the event. `None` for a bookmark or an error.
    pub fn into_fact(self) -> Option<F> {
        match self {
            Self::Applied(fact) | Self::Deleted(fact) => Some(fact),
            Self::Bookmark { .. } | Self::Error { .. } => None,
        }
    }
}

/// Decodes one line of a watch response, `{"type":…,"object":…}`. `kind` is the plural name of the resource, for
/// errors. `decode` decodes the object: its arguments are whether the object was deleted, and the JSON of the object.
/// `decode` may be called twice for one line.
pub(crate) fn decode_watch_line<F>(
    kind: &str,
    line: &[u8],
    mut decode: impl FnMut(bool, &[u8]) -> Result<F, Malformed>,
) -> Result<WatchEvent<F>, Malformed> {
    /// A line of a watch response.
    #[derive(Deserialize)]
    struct WatchLine<'a> {
        #[serde(borrow, rename = "type")]
        event: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    if let Some((event, object)) = split_line(line)
        && let Ok(event) = decode_event(kind, event, object, &mut decode)
    {
        return Ok(event);
    }
    let line: WatchLine<'_> = parse_json(kind, line)?;
    decode_event(kind, line.event.as_ref(), line.object.get().as_bytes(), &mut decode)
}

/// Splits a line of a watch response into the event type and the JSON of the object, without parsing JSON. `None` if
/// the line does not have the exact form that API servers write. The caller then parses the line as JSON, which is
/// slower.
fn split_line(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let (event, rest) = rest.split_at_checked(rest.iter().position(|it| *it == b'"')?)?;
    let object = rest.strip_prefix(br#"","object":"#)?;
    Some((core::str::from_utf8(event).ok()?, object.trim_ascii_end().strip_suffix(b"}")?))
}

/// Decodes a watch event from its type, such as `ADDED`, and the JSON of its object. `kind` is the plural name of the
/// resource, for errors. `decode` is called for the object of every event except bookmarks and errors. An unknown type
/// counts as an added or modified object.
fn decode_event<F>(
    kind: &str,
    event: &str,
    object: &[u8],
    decode: &mut impl FnMut(bool, &[u8]) -> Result<F, Malformed>,
) -> Result<WatchEvent<F>, Malformed> {
    /// The object of a bookmark event, which has only metadata.
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow, default)]
        metadata: BookmarkMetadata<'a>,
    }
    /// The metadata of a bookmark event.
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct BookmarkMetadata<'a> {
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
        #[serde(borrow)]
        annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    }
    /// The `Status` object of an error event.
    #[derive(Deserialize)]
    struct StatusError {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    Ok(match event {
        "DELETED" => WatchEvent::Deleted(decode(true, object)?),
        "BOOKMARK" => {
            let meta = parse_json::<Bookmark<'_>>(kind, object)?.metadata;
            let annotations = meta.annotations.as_ref();
            let ends_list =
                annotations.is_some_and(|it| it.get(LIST_END_ANNOTATION).is_some_and(|it| it == "true"));
            WatchEvent::Bookmark {
                resource_version: meta.resource_version.parse().unwrap_or_default(),
                ends_list,
            }
        }
        "ERROR" => {
            let failure: StatusError = parse_json(kind, object)?;
            WatchEvent::Error { code: failure.code, message: failure.message }
        }
        _ => WatchEvent::Applied(decode(false, object)?),
    })
}

/// Annotation `k8s.io/initial-events-end` of the bookmark that ends a streaming list.
const LIST_END_ANNOTATION: &str = ANNOTATION_INITIAL_EVENTS_END;

/// Parses JSON into a `T`. `kind` is the plural name of the resource, for the error.
fn parse_json<'a, T: Deserialize<'a>>(kind: &str, json: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(json).map_err(|source| Malformed::new(kind, source))
}
