//! Decodes the headers of a request.
//!
//! HTTP allows any byte from 0x80 on in a header. The headers that the server reads must be UTF-8. A request with a
//! header that cannot be decoded is refused, so that no header is mistaken for an absent one.

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, IF_NONE_MATCH,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE, USER_AGENT,
};
use muster_api::well_known::LEASE_FENCE_HEADER;
use percent_encoding::percent_decode_str;

use crate::error::ApiError;
use crate::storage::fence::LeaderFence;

/// Prefix of all impersonation headers.
pub(crate) const IMPERSONATE_PREFIX: &str = "impersonate-";
/// Header with the name of the user to impersonate.
pub(crate) const IMPERSONATE_USER_HEADER: &str = "impersonate-user";
/// Header with a group of the user to impersonate. It may occur several times.
pub(crate) const IMPERSONATE_GROUP_HEADER: &str = "impersonate-group";
/// Header with the UID of the user to impersonate.
pub(crate) const IMPERSONATE_UID_HEADER: &str = "impersonate-uid";
/// Prefix of the impersonation headers for `extra` attributes. The key of the attribute follows.
pub(crate) const IMPERSONATE_EXTRA_PREFIX: &str = "impersonate-extra-";
/// Header with the addresses of the client and of the proxies that forwarded the request.
pub(crate) const FORWARDED_FOR_HEADER: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Header with the Lease of the writer.
pub(crate) const LEASE_FENCE: HeaderName = HeaderName::from_static(LEASE_FENCE_HEADER);

/// The headers that the server reads as text, except `Authorization` and `Impersonate-*`. [`check_utf8`] refuses
/// requests in which one of them is not UTF-8.
static UTF8_HEADERS: [HeaderName; 11] = [
    ACCEPT,
    CONNECTION,
    CONTENT_TYPE,
    HOST,
    IF_NONE_MATCH,
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
    USER_AGENT,
    FORWARDED_FOR_HEADER,
    LEASE_FENCE,
];

/// The user that a client wants to impersonate, from the `Impersonate-*` headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Impersonation {
    /// Name of the user to impersonate.
    pub(crate) user: String,
    /// UID of the user to impersonate. Empty if no header sets it.
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    /// Keys and values of the `extra` attributes of the user to impersonate. A key may occur several times.
    pub(crate) extra: Vec<(String, String)>,
}

/// Returns the names of all headers that the server reads, with one `Impersonate-Extra-*` header for all of them.
#[cfg(test)]
pub(crate) fn read_header_names() -> impl Iterator<Item = &'static str> {
    let impersonation = [
        IMPERSONATE_USER_HEADER,
        IMPERSONATE_GROUP_HEADER,
        IMPERSONATE_UID_HEADER,
        "impersonate-extra-scopes",
    ];
    UTF8_HEADERS.iter().chain([&AUTHORIZATION]).map(HeaderName::as_str).chain(impersonation)
}

/// Checks that all headers that the server reads are UTF-8.
///
/// Rule: a header that the server reads must be UTF-8. Otherwise the request is refused, and the error names the
/// header. An `Authorization` header that is not UTF-8 is an invalid credential (401).
pub(crate) fn check_utf8(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_read =
        |name: &HeaderName| UTF8_HEADERS.contains(name) || name.as_str().starts_with(IMPERSONATE_PREFIX);
    if headers.get_all(AUTHORIZATION).iter().any(|it| decode_utf8(it).is_none()) {
        return Err(ApiError::unauthorized());
    }
    match headers.iter().find(|(name, value)| is_read(name) && decode_utf8(value).is_none()) {
        Some((name, _)) => Err(not_utf8_error(name.as_str())),
        None => Ok(()),
    }
}

/// Returns the first value of the header, or "" if the header is absent. [`check_utf8`] has already refused values that
/// cannot be decoded.
pub(crate) fn header_text(headers: &HeaderMap, name: HeaderName) -> &str {
    debug_assert!(UTF8_HEADERS.contains(&name), "{name} is not in the list of headers that are checked");
    headers.get(name).and_then(decode_utf8).unwrap_or_default()
}

/// Returns all values of the header. [`check_utf8`] has already refused values that cannot be decoded.
pub(crate) fn header_texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    debug_assert!(UTF8_HEADERS.contains(&name), "{name} is not in the list of headers that are checked");
    headers.get_all(name).iter().filter_map(decode_utf8)
}

/// Returns the bearer token of the `Authorization` header, or `None` if the request has no such header. Returns a 401
/// error if the header has a scheme other than `Bearer`, is malformed or occurs more than once.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let token = decode_utf8(value).and_then(|it| it.split_once(' '));
    match token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
        Some((_, token)) if all.next().is_none() => Ok(Some(token.trim())),
        _ => Err(ApiError::unauthorized()),
    }
}

/// Parses the header with the Lease that the writer holds. Returns `None` if the request has no such header.
///
/// Rule: a request with this header must name one Lease whose holder is fenced. Otherwise the request is refused, and
/// never executed without the fence.
pub(crate) fn parse_lease_fence(headers: &HeaderMap) -> Result<Option<LeaderFence>, ApiError> {
    let mut all = header_texts(headers, LEASE_FENCE);
    let Some(value) = all.next() else { return Ok(None) };
    match LeaderFence::from_header(value).filter(|_| all.next().is_none()) {
        None => Err(ApiError::bad_request(format!(
            "the header {LEASE_FENCE} must be NAMESPACE/NAME/RESOURCEVERSION of a Lease `muster-…` in kube-system or muster-system"
        ))),
        fence => Ok(fence),
    }
}

/// Parses the `Impersonate-*` headers. Returns `None` if the request has none.
///
/// Rule: a request with any `Impersonate-*` header must name the impersonated user exactly once. Otherwise the request
/// is refused, and never executed as the client itself.
pub(crate) fn parse_impersonation(headers: &HeaderMap) -> Result<Option<Impersonation>, ApiError> {
    let mut impersonation = Impersonation::default();
    let mut is_requested = false;
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with(IMPERSONATE_PREFIX) {
            continue;
        }
        is_requested = true;
        let value = decode_utf8(value).ok_or_else(|| not_utf8_error(name))?.to_owned();
        match name {
            IMPERSONATE_USER_HEADER | IMPERSONATE_UID_HEADER => {
                let slot = if name == IMPERSONATE_USER_HEADER {
                    &mut impersonation.user
                } else {
                    &mut impersonation.uid
                };
                if 1 < headers.get_all(name).iter().count() {
                    return Err(ApiError::bad_request(format!("the header {name} occurs more than once")));
                }
                *slot = value;
            }
            IMPERSONATE_GROUP_HEADER => impersonation.groups.push(value),
            _ => match name.strip_prefix(IMPERSONATE_EXTRA_PREFIX) {
                Some(key) => {
                    let key = percent_decode_str(key).decode_utf8().map_err(|_| not_utf8_error(name))?;
                    impersonation.extra.push((key.into_owned(), value));
                }
                None => {
                    return Err(ApiError::bad_request(format!("the impersonation header {name} is unknown")));
                }
            },
        }
    }
    if is_requested && impersonation.user.is_empty() {
        return Err(ApiError::bad_request(
            "requested groups, extra or uid without impersonating a user: send Impersonate-User too",
        ));
    }
    Ok(is_requested.then_some(impersonation))
}

/// Returns the value as text, or `None` if it is not UTF-8.
fn decode_utf8(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// Returns the error for the header `name`, whose value is not UTF-8.
fn not_utf8_error(name: &str) -> ApiError {
    ApiError::bad_request(format!("the header {name} is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        headers
    }

    fn said(all: &[(&str, &[u8])]) -> String {
        match parse_impersonation(&headers(all)) {
            Ok(None) => "own name".to_owned(),
            Ok(Some(it)) => format!("{} {:?} {:?} {:?}", it.user, it.groups, it.uid, it.extra),
            Err(refusal) => refusal.message().to_owned(),
        }
    }

    #[test]
    fn impersonation_is_read_whole_or_refused() {
        assert_eq!(said(&[]), "own name");
        assert_eq!(said(&[("impersonate-user", "jörg".as_bytes())]), "jörg [] \"\" []");
        assert_eq!(
            said(&[
                ("impersonate-user", b"a"),
                ("impersonate-group", "gäste".as_bytes()),
                ("impersonate-extra-a%2fb", b"c"),
                ("impersonate-uid", b"7"),
            ]),
            "a [\"gäste\"] \"7\" [(\"a/b\", \"c\")]"
        );
        for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-a"] {
            let refused = format!("the header {name} is not UTF-8 text");
            assert_eq!(said(&[(name, b"j\xf6rg")]), refused);
            assert_eq!(said(&[("impersonate-group", b"g"), (name, b"\xff")]), refused);
        }
        let lacking =
            "requested groups, extra or uid without impersonating a user: send Impersonate-User too";
        assert_eq!(said(&[("impersonate-user", b"")]), lacking);
        assert_eq!(said(&[("impersonate-group", b"system:masters")]), lacking);
        assert_eq!(said(&[("impersonate-extra-a", b"b")]), lacking);
        for first in [&b"a"[..], b""] {
            assert_eq!(
                said(&[("impersonate-user", first), ("impersonate-user", b"b")]),
                "the header impersonate-user occurs more than once"
            );
        }
        assert_eq!(
            said(&[("impersonate-user", b"a"), ("impersonate-role", b"b")]),
            "the impersonation header impersonate-role is unknown"
        );
        assert_eq!(
            said(&[("impersonate-user", b"a"), ("impersonate-extra-%ff", b"b")]),
            "the header impersonate-extra-%ff is not UTF-8 text"
        );
    }

    #[test]
    fn each_header_that_is_read_must_be_text() {
        for name in UTF8_HEADERS.iter().map(HeaderName::as_str).chain(["impersonate-anything"]) {
            let refused = check_utf8(&headers(&[(name, b"a\x80b")])).unwrap_err();
            assert_eq!(refused.message(), format!("the header {name} is not UTF-8 text"));
            assert!(check_utf8(&headers(&[(name, "ä".as_bytes())])).is_ok(), "{name}");
        }
        // What the server does not read is no concern of it.
        assert!(check_utf8(&headers(&[("x-other", b"\xff")])).is_ok());
    }

    /// A header that is read past this module is not in the list, and what cannot be read of it is dropped.
    #[test]
    fn headers_of_requests_are_read_here_alone() {
        // Of answers of agents and of the server itself, and copied as they are.
        const OTHERS: [(&str, &str); 4] = [
            ("http/agent.rs", "headers.get_all(&name)"),
            ("http/agent.rs", "headers.get(UPGRADE)"),
            ("http/proxy.rs", "headers.get(LOCATION)"),
            ("http/reply.rs", "headers().get(CONTENT_TYPE)"),
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut folders, mut found) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                let is_test = ["tests", "fuzz", "tests.rs"].iter().any(|it| path.ends_with(it));
                if is_test || name == "headers.rs" {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let text: String = text.split_whitespace().collect();
                for start in ["headers.get(", "headers.get_all(", "headers().get(", "headers().get_all("] {
                    for (at, _) in text.match_indices(start) {
                        let end = text[at + start.len()..].find(')').unwrap() + at + start.len() + 1;
                        found.push((name.clone(), text[at..end].to_owned()));
                    }
                }
            }
        }
        found.sort_unstable();
        let found: Vec<_> = found.iter().map(|(name, read)| (name.as_str(), read.as_str())).collect();
        let mut others = OTHERS.to_vec();
        others.sort_unstable();
        assert_eq!(found, others, "use headers::text, which names what `check` refuses");
    }

    /// The fuzz tests send all headers that this module reads.
    #[test]
    fn read_header_names_are_complete() {
        let all: Vec<&str> = read_header_names().collect();
        let source = include_str!("headers.rs").split("#[cfg(test)]\nmod tests {").next().unwrap();
        let imports = source.split_once("use hyper::header::{").unwrap().1.split_once("};").unwrap().0;
        let imported = imports.split(',').map(|it| it.trim().to_ascii_lowercase().replace('_', "-"));
        let imported =
            imported.filter(|it| !it.is_empty() && !["headername", "headervalue"].contains(&it.as_str()));
        let own = source.lines().filter(|it| it.starts_with("pub(crate) const ")).filter_map(|it| {
            it.contains("LEASE_FENCE_HEADER").then_some(LEASE_FENCE_HEADER).or_else(|| it.split('"').nth(1))
        });
        let declared: Vec<String> = imported.chain(own.map(str::to_owned)).collect();
        assert!(13 < declared.len(), "{declared:?}");
        for name in declared {
            let is_sent = all.iter().any(|it| *it == name || (name.ends_with('-') && it.starts_with(&name)));
            assert!(is_sent, "{name} is not in read_header_names");
        }
    }

    #[test]
    fn a_bearer_token_is_one_and_readable() {
        let said = |all: &[(&str, &[u8])]| match bearer_token(&headers(all)) {
            Ok(token) => token.unwrap_or("none").to_owned(),
            Err(refusal) => refusal.code.as_str().to_owned(),
        };
        assert_eq!(said(&[]), "none");
        assert_eq!(said(&[("authorization", b"bearer  a.b ")]), "a.b");
        assert_eq!(said(&[("authorization", b"Bearer a\xff")]), "401");
        assert_eq!(said(&[("authorization", b"\xffBearer a")]), "401");
        assert_eq!(said(&[("authorization", b"Basic a")]), "401");
        assert_eq!(said(&[("authorization", b"Bearer")]), "401");
        assert_eq!(said(&[("authorization", b"Bearer a"), ("authorization", b"Bearer b")]), "401");
    }
}
