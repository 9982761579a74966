//! Parses the URLs of rollout checks, and decides which URLs the checks may call.

use std::str::FromStr;

use http::Uri;

/// A URL prefix that rollout checks may call. It allows every URL that has the same scheme, host and port, and a path
/// that begins with the same segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckEndpoint(EndpointUrl);

/// A parsed http or https URL. It has no user information, no fragment, and no path that two parsers could read
/// differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EndpointUrl {
    /// URL scheme: `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Host name in lower case, or IP address; an IPv6 address is in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path, beginning with `/`.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
}

/// Why a string is not a valid URL of an endpoint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    #[error("expected a URL such as https://prometheus.monitoring:9090/path")]
    Malformed,
    #[error("the scheme of the URL must be http or https")]
    Scheme,
    #[error("the URL must not have a user name or password: use secretRef")]
    UserInfo,
    #[error("the URL must not have a fragment (#)")]
    Fragment,
    #[error("the host of the URL must be a DNS name or an IP address")]
    Host,
    #[error("the path of the URL must not have the segments . and .., backslashes, %2e, %2f or %5c")]
    Path,
    #[error("the URL must not have a query (?)")]
    Query,
}

impl EndpointUrl {
    /// Parses an http or https URL.
    ///
    /// Rule: a URL is refused if two parsers could read it as different endpoints. Therefore it must not contain user
    /// information, a fragment, dot segments, backslashes, or percent-encoded dots, slashes or backslashes.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidEndpoint> {
        if text.contains('#') {
            return Err(InvalidEndpoint::Fragment);
        }
        if text.contains('\\') {
            return Err(InvalidEndpoint::Path);
        }
        let uri: Uri = text.parse().map_err(|_| InvalidEndpoint::Malformed)?;
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => ("http", 80),
            Some("https") => ("https", 443),
            Some(_) => return Err(InvalidEndpoint::Scheme),
            None => return Err(InvalidEndpoint::Malformed),
        };
        let authority = uri.authority().ok_or(InvalidEndpoint::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(InvalidEndpoint::UserInfo);
        }
        let host = authority.host().to_ascii_lowercase();
        let is_address = host
            .strip_prefix('[')
            .and_then(|it| it.strip_suffix(']'))
            .is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
        let is_name = !host.is_empty()
            && host.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.' | b'_'));
        if !is_address && !is_name {
            return Err(InvalidEndpoint::Host);
        }
        let port = match authority.as_str().len() == authority.host().len() {
            true => default_port,
            false => authority.port_u16().ok_or(InvalidEndpoint::Malformed)?,
        };
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        let encoded = path.to_ascii_lowercase();
        let is_ambiguous = path.split('/').any(|it| matches!(it, "." | ".."))
            || ["%2e", "%2f", "%5c"].iter().any(|it| encoded.contains(it));
        if is_ambiguous {
            return Err(InvalidEndpoint::Path);
        }
        Ok(Self { scheme, host, port, path: path.to_owned(), query: uri.query().map(str::to_owned) })
    }

    /// Returns scheme, host and port of the URL, such as `https://prometheus:9090`.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}:{}", self.scheme, self.host, self.port)
    }

    /// Returns the path of the URL, followed by `?` and the query if there is one.
    pub(crate) fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Returns the URL with path segments such as `api/v1/query` appended to its path.
    pub(crate) fn join(&self, segments: &str) -> Self {
        Self { path: format!("{}/{segments}", self.path.trim_end_matches('/')), ..self.clone() }
    }
}

impl FromStr for CheckEndpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let url = EndpointUrl::parse(text)?;
        if url.query.is_some() { Err(InvalidEndpoint::Query) } else { Ok(Self(url)) }
    }
}

impl CheckEndpoint {
    /// Whether checks may call `url`: it has the same scheme, host and port as this endpoint, and its path begins with
    /// the path segments of this endpoint.
    pub(crate) fn allows(&self, url: &EndpointUrl) -> bool {
        let Self(allowed) = self;
        let prefix = allowed.path.trim_end_matches('/');
        let is_below = url.path.strip_prefix(prefix).is_some_and(|it| it.is_empty() || it.starts_with('/'));
        (allowed.scheme, &allowed.host, allowed.port) == (url.scheme, &url.host, url.port) && is_below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(endpoint: &str, url: &str) -> bool {
        let endpoint: CheckEndpoint = endpoint.parse().unwrap();
        EndpointUrl::parse(url).is_ok_and(|it| endpoint.allows(&it))
    }

    #[test]
    fn scheme_host_port_and_path_segments_are_compared() {
        let endpoint = "https://prometheus.example/team-a";
        for url in [
            "https://prometheus.example/team-a",
            "https://PROMETHEUS.example:443/team-a/",
            "https://prometheus.example/team-a/api/v1/query?x=1",
        ] {
            assert!(allows(endpoint, url), "{url}");
        }
        for url in [
            "http://prometheus.example/team-a",
            "https://prometheus.example:8443/team-a",
            "https://prometheus.example/team-ab",
            "https://prometheus.example/",
            "https://prometheus.example/team-a/../team-b",
            "https://prometheus.example/team-a/%2E%2e/team-b",
            "https://prometheus.example/team-a/..%2fteam-b",
            "https://prometheus.example/team-a\\..\\team-b",
            "https://prometheus.example.evil.example/team-a",
            "https://prometheus.example@evil.example/team-a",
            "https://user:password@prometheus.example/team-a",
            "https://evil.example/https://prometheus.example/team-a",
            "https://prometheus.example/team-a#fragment",
        ] {
            assert!(!allows(endpoint, url), "{url}");
        }
        assert!(allows("http://[::1]:9090", "http://[::1]:9090/api/v1/query"));
        assert!(allows("http://prometheus:9090/", "http://prometheus:9090/any/path"));
        assert!(!allows("http://prometheus:90", "http://prometheus:9090/"));
    }

    #[test]
    fn a_text_that_is_not_an_endpoint_is_refused_with_its_problem() {
        let problem = |text: &str| text.parse::<CheckEndpoint>().unwrap_err();
        assert_eq!(problem("prometheus:9090"), InvalidEndpoint::Malformed);
        assert_eq!(problem("/path"), InvalidEndpoint::Malformed);
        assert_eq!(problem("ftp://prometheus"), InvalidEndpoint::Scheme);
        assert_eq!(problem("http://a:b@prometheus"), InvalidEndpoint::UserInfo);
        assert_eq!(problem("http://prometheus/#x"), InvalidEndpoint::Fragment);
        assert_eq!(problem("http://prometheus/?x"), InvalidEndpoint::Query);
        assert_eq!(problem("http://prometheus/a/../b"), InvalidEndpoint::Path);
        assert_eq!(problem("http://prometheus:/"), InvalidEndpoint::Malformed);
        assert_eq!(problem("http://prom!theus/"), InvalidEndpoint::Host);
    }
}
