//! A line of a watch, taken apart: what happened, and to which object.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use muster_api::text::Text;
use muster_api::well_known::ANNOTATION_INITIAL_EVENTS_END;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An object that is not of its kind's shape at all. The API server lets none through; one that
/// comes all the same is reported and left out, and stops nothing else.
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

/// What a line tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The object was added or changed.
    Put,
    Gone,
    Bookmark {
        resource_version: u64,
        /// What there was when the watch began has been told: from here on it tells changes.
        ends_list: bool,
    },
    Error {
        code: i64,
        message: String,
    },
}

/// Reads one line, `{"type":…,"object":…}`; `read` makes something of what it tells and of the object.
pub fn line<T>(
    kind: &str,
    line: &[u8],
    mut read: impl FnMut(Told, &[u8]) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow, rename = "type")]
        event: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    if let Some((event, object)) = split(line)
        && let Ok(told) = told(kind, event, object)
        && let Ok(read) = read(told, object)
    {
        return Ok(read);
    }
    let line: Line<'_> = from_slice(kind, line)?;
    let object = line.object.get().as_bytes();
    read(told(kind, line.event.as_ref(), object)?, object)
}

/// A line as API servers spell it is taken apart without being read: to find where an object ends costs as much as to
/// read it. What is spelled otherwise is read the long way.
fn split(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let (event, rest) = rest.split_at_checked(rest.iter().position(|it| *it == b'"')?)?;
    let object = rest.strip_prefix(br#"","object":"#)?;
    Some((core::str::from_utf8(event).ok()?, object.trim_ascii_end().strip_suffix(b"}")?))
}

fn told(kind: &str, event: &str, object: &[u8]) -> Result<Told, Malformed> {
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow, default)]
        metadata: Meta<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta<'a> {
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
        #[serde(borrow)]
        annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    }
    #[derive(Deserialize)]
    struct Failure {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    Ok(match event {
        "DELETED" => Told::Gone,
        "BOOKMARK" => {
            let meta = from_slice::<Bookmark<'_>>(kind, object)?.metadata;
            let annotations = meta.annotations.as_ref();
            let ends_list = annotations.is_some_and(|it| it.get(LIST_ENDS).is_some_and(|it| it == "true"));
            Told::Bookmark { resource_version: meta.resource_version.parse().unwrap_or_default(), ends_list }
        }
        "ERROR" => {
            let failure: Failure = from_slice(kind, object)?;
            Told::Error { code: failure.code, message: failure.message }
        }
        _ => Told::Put,
    })
}

/// On the bookmark that ends a list which came as a watch.
const LIST_ENDS: &str = ANNOTATION_INITIAL_EVENTS_END;

fn from_slice<'a, T: Deserialize<'a>>(kind: &str, json: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(json).map_err(|source| Malformed::new(kind, source))
}
