//! Parses the path of a request into a route.

use percent_encoding::percent_decode_str;

use crate::health;
use crate::kinds::{Kind, KindRegistry};
use crate::request::{RequestTarget, path_segments};
use crate::subresource::Subresource;

/// The endpoint that the path of a request selects.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/` or `/index.html`: the list of paths that the server serves.
    Root,
    /// `/healthz`, `/livez` or `/readyz`, or a single health check below one of them, such as `/livez/ping`.
    Health(health::HealthRequest),
    /// `/metrics`: the metrics of the server.
    Metrics,
    /// `/metrics/slis`: the results of the health checks as metrics.
    HealthMetrics,
    /// `/debug/explain`: the state of one DaemonSet in the memory of the DaemonSet controller in this process.
    Explain,
    /// `/.well-known/openid-configuration`: the OpenID discovery document of the service account token issuer.
    OpenIdConfiguration,
    /// `/openid/v1/jwks`: the public keys of the service account token issuer.
    Jwks,
    /// `/version`: the version of the server.
    Version,
    /// `/api`: the versions of the core group.
    CoreVersions,
    /// `/apis`: all API groups except the core group.
    Groups,
    /// `/apis/GROUP`: the versions of one API group.
    Group(String),
    /// `/api/VERSION` or `/apis/GROUP/VERSION`: the resources of one group and version.
    Resources { group: String, version: String },
    /// `/openapi/v2`: the OpenAPI v2 document of all groups.
    OpenApiV2,
    /// `/openapi/v3`: the paths of the OpenAPI v3 documents.
    OpenApiV3Index,
    /// `/openapi/v3/api/VERSION` or `/openapi/v3/apis/GROUP/VERSION`: the OpenAPI v3 document of one group and version.
    OpenApiV3 { group: String, version: String },
    /// The collection of all objects of a kind, in one namespace or, if `namespace` is `None`, in all namespaces.
    Collection { kind: &'static Kind, namespace: Option<String> },
    /// The deprecated watch path of a collection or of one object, such as `/api/v1/watch/pods`. The server supports
    /// such paths because the Ruby client watches only through them.
    Watch { kind: &'static Kind, namespace: Option<String>, name: Option<String> },
    /// One object, or a subresource of it.
    Object(RequestTarget),
}

impl Route {
    /// Returns the kind of the objects that the path selects, or `None` for a non-resource path.
    pub(crate) fn kind(&self) -> Option<&'static Kind> {
        match self {
            Self::Collection { kind, .. } | Self::Watch { kind, .. } => Some(kind),
            Self::Object(target) => Some(target.kind),
            _ => None,
        }
    }

    /// Parses the path of a request. Returns `None` if no endpoint has this path.
    pub(crate) fn parse(kinds: &KindRegistry, path: &str) -> Option<Self> {
        let segments: Vec<String> = path_segments(path)
            .map(|it| percent_decode_str(it).decode_utf8().map(|it| it.into_owned()))
            .collect::<Result<_, _>>()
            .ok()?;
        // No segment may contain a slash or be a relative path.
        if path.starts_with("//")
            || has_empty_segment(path, segments.len())
            || segments.iter().any(|it| it.contains('/') || matches!(&**it, "." | ".."))
        {
            return None;
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        Some(match &segments[..] {
            [] | ["index.html"] => Self::Root,
            [which @ ("healthz" | "livez" | "readyz"), check @ ..] => {
                let which = ["healthz", "livez", "readyz"].into_iter().find(|it| it == which)?;
                let check = (!check.is_empty()).then(|| check.join("/"));
                Self::Health(health::HealthRequest { endpoint: which, check })
            }
            ["metrics"] => Self::Metrics,
            ["metrics", "slis"] => Self::HealthMetrics,
            ["debug", "explain"] => Self::Explain,
            [".well-known", "openid-configuration"] => Self::OpenIdConfiguration,
            ["openid", "v1", "jwks"] => Self::Jwks,
            ["version"] => Self::Version,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiV3Index,
            ["openapi", "v3", "api", version] => {
                Self::OpenApiV3 { group: String::new(), version: (*version).to_owned() }
            }
            ["openapi", "v3", "apis", group, version] => {
                Self::OpenApiV3 { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            ["api", version, rest @ ..] => parse_resource_path(kinds, "", version, rest)?,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["apis", group, version, rest @ ..] => parse_resource_path(kinds, group, version, rest)?,
            _ => return None,
        })
    }
}

/// Whether one of the first `count` segments of the path is empty, as in `/api/v1//pods`. Later segments may be empty,
/// as after a trailing slash.
fn has_empty_segment(path: &str, count: usize) -> bool {
    path.strip_prefix('/').unwrap_or(path).split('/').take(count).any(str::is_empty)
}

/// Parses `path`, the path segments after the API group and version. Returns `None` if no endpoint has this path.
fn parse_resource_path(kinds: &KindRegistry, group: &str, version: &str, path: &[&str]) -> Option<Route> {
    match path {
        [] => Some(Route::Resources { group: group.to_owned(), version: version.to_owned() }),
        ["watch", rest @ ..] => match parse_resource_path(kinds, group, version, rest)? {
            Route::Collection { kind, namespace } => Some(Route::Watch { kind, namespace, name: None }),
            Route::Object(RequestTarget { kind, namespace, name, subresource: Subresource::Whole }) => {
                Some(Route::Watch { kind, namespace, name: Some(name) })
            }
            _ => None,
        },
        [plural, rest @ ..] => {
            // A namespace contains resources, and is itself an object with subresources.
            if let ["namespaces", namespace, plural, rest @ ..] = path
                && let Some(kind) = kinds.find(group, version, plural).filter(|it| it.namespaced)
            {
                return parse_object_path(kind, Some(namespace), rest);
            }
            let kind = kinds.find(group, version, plural)?;
            // Across all namespaces only lists are possible.
            (!kind.namespaced || rest.is_empty()).then(|| parse_object_path(kind, None, rest))?
        }
    }
}

/// Parses `rest`, the path segments after the plural name of `kind`: nothing for a collection, or the name of an object
/// and optionally a subresource. Returns `None` if no endpoint has this path.
fn parse_object_path(kind: &'static Kind, namespace: Option<&str>, rest: &[&str]) -> Option<Route> {
    let namespace = namespace.map(str::to_owned);
    let object = |name: &str, subresource| {
        Some(Route::Object(RequestTarget {
            kind,
            namespace: namespace.clone(),
            name: name.to_owned(),
            subresource,
        }))
    };
    match rest {
        [] => Some(Route::Collection { kind, namespace }),
        [name] => object(name, Subresource::Whole),
        [name, "status"] if kind.has_status_subresource() => object(name, Subresource::Status),
        // The rest of the path belongs to the proxied backend.
        [name, subresource @ "proxy", ..] | [name, subresource] => {
            object(name, kind.subresources.iter().find(|it| it.name == *subresource)?.subresource)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, means: &str) {
        let said = match Route::parse(&KindRegistry::builtin(), path) {
            Some(Route::Collection { kind, namespace }) => {
                format!("{} in {namespace:?}", kind.group_resource())
            }
            Some(Route::Object(it)) => {
                format!("{} {:?} {} {:?}", it.kind.group_resource(), it.namespace, it.name, it.subresource)
            }
            Some(Route::Watch { kind, namespace, name }) => {
                format!("watch {} in {namespace:?}, {name:?}", kind.group_resource())
            }
            other => format!("{other:?}"),
        };
        assert_eq!(said, means, "{path}");
    }

    #[test]
    fn paths() {
        check("/api/v1/nodes", "nodes in None");
        check("/api/v1/nodes/n1/status", "nodes None n1 Status");
        check("/api/v1/pods", "pods in None");
        check("/api/v1/namespaces/a/pods", "pods in Some(\"a\")");
        check("/api/v1/namespaces/a/pods/p/proxy/a/b", "pods Some(\"a\") p Agent(\"proxy\")");
        check("/api/v1/namespaces/a/pods/p:80/proxy/..%2F%ff/../x", "pods Some(\"a\") p:80 Agent(\"proxy\")");
        check("/api/v1/nodes/n/proxy/../x", "nodes None n Agent(\"proxy\")");
        check("/api/v1/namespaces/proxy/pods/proxy/..", "None");
        check("/api/v1/namespaces/a/pods/../proxy/x", "None");
        check("/api/v1/namespaces/a/pods/p/log/x", "None");
        check("/api/v1/namespaces/a/pods/p/binding", "pods Some(\"a\") p Binding");
        check("/api/v1/namespaces/a", "namespaces None a Whole");
        check("/api/v1/namespaces/a/status", "namespaces None a Status");
        check("/apis/apps/v1/namespaces/a/daemonsets/d%2Ee", "daemonsets.apps Some(\"a\") d.e Whole");
        check("/apis/apps/v1/namespaces/a/daemonsets/d/scale", "None");
        check("/apis/apps/v1/daemonsets/d", "None");
        check("/apis/apps/v2/daemonsets", "None");
        check("//api/v1/nodes", "None");
        check("/api/v1/nodes/", "nodes in None");
        check("/api/v1/namespaces/a/pods/%2e%2e", "None");
        check("/api/v1/namespaces/a%2Fb/pods", "None");
        check("/api/v1//pods", "None");
        check("/api/v1/namespaces//pods", "None");
        check("/api/v1/namespaces/a/pods/p/proxy//x", "pods Some(\"a\") p Agent(\"proxy\")");
        check("/", "Some(Root)");
        check("//", "None");
        check("/metrics/slis", "Some(HealthMetrics)");
        check("/livez/ping", "Some(Health(HealthRequest { endpoint: \"livez\", check: Some(\"ping\") }))");
        check("/metrics", "Some(Metrics)");
    }
    #[test]
    fn deprecated_watch_paths() {
        check("/api/v1/watch/pods", "watch pods in None, None");
        check("/api/v1/watch/namespaces/a/pods", "watch pods in Some(\"a\"), None");
        check("/api/v1/watch/namespaces/a/pods/p", "watch pods in Some(\"a\"), Some(\"p\")");
        check("/api/v1/watch/nodes/n", "watch nodes in None, Some(\"n\")");
        check("/api/v1/watch/namespaces/a", "watch namespaces in None, Some(\"a\")");
        check("/apis/apps/v1/watch/daemonsets", "watch daemonsets.apps in None, None");
        check("/api/v1/watch", "None");
        check("/api/v1/watch/watch/pods", "None");
        check("/api/v1/watch/pods/p", "None");
        check("/api/v1/watch/namespaces/a/pods/p/status", "None");
        check("/api/v1/watch/nodes/n/proxy", "None");
    }
}
