//! The attributes of a request on which authorization decides: a verb, and a resource or a path. Upstream:
//! `RequestInfo` and `authorizer.Attributes`.

use std::borrow::Cow;
use std::fmt;

use hyper::Method;
use muster_api::query_parameters::parse_bool_parameter;
use percent_encoding::percent_decode_str;

use super::RequestTarget;

/// Subresources of a Namespace. Any other path segment after `namespaces/NAME` is a resource in that namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// The input of authorization: the verb of a request, and the resource or path that the request accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestAttributes {
    /// The verb that is authorized. For a non-resource path, it is the HTTP method in lower case.
    pub(crate) verb: Cow<'static, str>,
    pub(crate) target: AccessTarget,
}

/// The resource or non-resource path that a request accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessTarget {
    /// An API resource, such as `pods`.
    Resource(ResourceAttributes),
    /// A non-resource path, such as `/metrics`.
    Path(String),
}

/// The resource that a request accesses. Fields that the request does not specify are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceAttributes {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Plural name of the resource, such as `pods`.
    pub(crate) plural: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The value that the field selector of a list or watch requires for `spec.nodeName`. Empty if it requires none.
    pub(crate) node_name: String,
}

impl RequestAttributes {
    /// Returns the attributes of a request for a non-resource path.
    pub(crate) fn for_path(method: &Method, path: &str) -> Self {
        Self {
            verb: method.as_str().to_lowercase().into(),
            target: AccessTarget::Path(percent_decode_str(path).decode_utf8_lossy().into_owned()),
        }
    }

    /// Parses the attributes of a request from its method, path and query. `query` returns the first value of a query
    /// parameter. A path without a resource below `/api/VERSION` or `/apis/GROUP/VERSION` is a non-resource path, and
    /// so is a path that is not valid UTF-8.
    ///
    /// Rule: the verb follows from the method, from whether the path contains a name, and from the parameter `watch`. A
    /// list or watch with a field selector for a name is authorized for that name only. The route is parsed from the
    /// same path segments, so that the authorized object is the one that is accessed.
    /// Upstream: `NewRequestInfo`.
    pub(crate) fn from_request(method: &Method, path: &str, query: impl Fn(&str) -> Option<String>) -> Self {
        let other = || Self::for_path(method, path);
        let segments: Result<Vec<_>, _> =
            path_segments(path).map(|it| percent_decode_str(it).decode_utf8()).collect();
        let Ok(segments) = segments else { return other() };
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        let (group, version, rest) = match segments[..] {
            ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
            ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
            _ => return other(),
        };
        // The deprecated watch path: always a watch.
        let (is_watch_path, rest) = match *rest {
            ["watch", ref rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, rest),
        };
        let (namespace, rest) = match *rest {
            ["namespaces", namespace, subresource, ..] if !NAMESPACE_SUBRESOURCES.contains(&subresource) => {
                (namespace, &rest[2..])
            }
            ["namespaces", namespace, ..] => (namespace, rest),
            _ => ("", rest),
        };
        let at = |it: usize| rest.get(it).copied().unwrap_or_default().to_owned();
        let mut on = ResourceAttributes {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: at(0),
            name: at(1),
            subresource: at(2),
            namespace: namespace.to_owned(),
            node_name: String::new(),
        };
        let is_collection = on.name.is_empty();
        let verb = match *method {
            _ if is_watch_path => "watch",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if is_collection => "deletecollection",
            Method::DELETE => "delete",
            Method::GET | Method::HEAD if is_collection => {
                let selector = query("fieldSelector").unwrap_or_default();
                on.name = required_field_value(&selector, "metadata.name");
                on.node_name = required_field_value(&selector, "spec.nodeName");
                if query("watch").is_some_and(|it| parse_bool_parameter(&it)) { "watch" } else { "list" }
            }
            Method::GET | Method::HEAD => "get",
            _ => "",
        };
        Self { verb: verb.into(), target: AccessTarget::Resource(on) }
    }

    /// Returns the attributes of a request with this verb for a resource.
    pub(crate) fn for_resource(verb: &str, resource: ResourceAttributes) -> Self {
        Self { verb: verb.to_owned().into(), target: AccessTarget::Resource(resource) }
    }

    /// Returns the namespace of the resource. In a request for a Namespace, it is the name of the Namespace. Empty for
    /// other cluster-scoped resources, for all namespaces, and for a non-resource path.
    pub(crate) fn namespace(&self) -> &str {
        match &self.target {
            AccessTarget::Resource(it) => &it.namespace,
            AccessTarget::Path(_) => "",
        }
    }
}

/// Prints the text of a Forbidden error: `cannot list resource "pods" in API group "" at the cluster scope`.
impl fmt::Display for RequestAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = &self.verb;
        match &self.target {
            AccessTarget::Path(path) => write!(f, "cannot {verb} path {path:?}"),
            AccessTarget::Resource(it) => {
                write!(
                    f,
                    "cannot {verb} resource {:?} in API group {:?}",
                    it.resource_and_subresource(),
                    it.group
                )?;
                if it.namespace.is_empty() {
                    write!(f, " at the cluster scope")
                } else {
                    write!(f, " in the namespace {:?}", it.namespace)
                }
            }
        }
    }
}

impl ResourceAttributes {
    /// Returns the attributes of the target's object, or of its subresource `subresource` if that is not empty.
    pub(crate) fn of_target(target: &RequestTarget, subresource: &str) -> Self {
        Self {
            group: target.kind.group.to_owned(),
            version: target.kind.version.to_owned(),
            plural: target.kind.plural.to_owned(),
            subresource: subresource.to_owned(),
            namespace: target.namespace.clone().unwrap_or_default(),
            name: target.name.clone(),
            node_name: String::new(),
        }
    }

    /// Returns the plural name of the resource with its subresource, such as `pods` or `pods/status`.
    pub(crate) fn resource_and_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.plural.clone()
        } else {
            format!("{}/{}", self.plural, self.subresource)
        }
    }
}

/// Returns the value that a field selector requires for `field`, or "" if it requires none. A selector with escape
/// sequences, and a value with a slash, percent sign or equals sign, are ignored, so that the request needs permission
/// for all names.
fn required_field_value(selector: &str, field: &str) -> String {
    let value = |term: &str| {
        let rest = term.strip_prefix(field)?;
        let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
        (!value.is_empty() && !value.contains(['\\', '/', '%', '='])).then(|| value.to_owned())
    };
    if selector.contains('\\') {
        return String::new();
    }
    selector.split(',').find_map(value).unwrap_or_default()
}

/// Returns the segments of a path, without empty segments. The segments after the subresource `proxy` of a core
/// resource are omitted, because they do not select a resource of this server: they are the path on the proxied server.
pub(crate) fn path_segments(path: &str) -> impl Iterator<Item = &str> {
    let all = || path.split('/').filter(|it| !it.is_empty());
    let until = if all().nth(2) == Some("namespaces") { 7 } else { 5 };
    let is_proxy = all().next() == Some("api") && all().nth(until - 1) == Some("proxy");
    all().take(if is_proxy { until } else { usize::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, uri: &str, means: &str) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let get = |name: &str| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(it, _)| it == name);
            found.map(|(_, value)| value.into_owned())
        };
        let attributes = RequestAttributes::from_request(&method.parse().unwrap(), path, get);
        let said = match &attributes.target {
            AccessTarget::Path(path) => format!("{} {path}", attributes.verb),
            AccessTarget::Resource(it) => {
                let mut said = format!("{} {}.{}", attributes.verb, it.resource_and_subresource(), it.group);
                for (what, value) in [("in", &it.namespace), ("named", &it.name), ("on", &it.node_name)] {
                    if !value.is_empty() {
                        said = format!("{said} {what} {value}");
                    }
                }
                said
            }
        };
        assert_eq!(said, means, "{method} {uri}");
    }

    #[test]
    fn verbs() {
        check("GET", "/api/v1/pods", "list pods.");
        check("GET", "/api/v1/pods?watch=true", "watch pods.");
        check("GET", "/api/v1/pods?watch=0", "list pods.");
        check("GET", "/api/v1/pods?watch", "watch pods.");
        check("GET", "/api/v1/pods?watch=&watch=0", "watch pods.");
        check("GET", "/api/v1/pods?watch=False&watch=1", "list pods.");
        check("HEAD", "/api/v1/namespaces/a/pods/p", "get pods. in a named p");
        check("POST", "/apis/apps/v1/namespaces/a/daemonsets", "create daemonsets.apps in a");
        check("PUT", "/api/v1/nodes/n/status", "update nodes/status. named n");
        check("PATCH", "/api/v1/nodes/n", "patch nodes. named n");
        check("DELETE", "/api/v1/nodes/n", "delete nodes. named n");
        check("DELETE", "/api/v1/nodes", "deletecollection nodes.");
        check("GET", "/api/v1/nodes/n/proxy/a/b", "get nodes/proxy. named n");
        check("GET", "/api/v1/namespaces/a/pods/p:80/proxy/%ff/..", "get pods/proxy. in a named p:80");
        check("OPTIONS", "/api/v1/nodes", " nodes.");
        check("GET", "/api/v1/watch/pods?watch=0", "watch pods.");
        check("GET", "/api/v1/watch/namespaces/a/pods/p", "watch pods. in a named p");
        check("DELETE", "/apis/apps/v1/watch/namespaces/a/daemonsets", "watch daemonsets.apps in a");
        check("GET", "/api/v1/watch", "list watch.");
    }

    #[test]
    fn a_namespace_is_in_itself() {
        check("GET", "/api/v1/namespaces", "list namespaces.");
        check("GET", "/api/v1/namespaces/a", "get namespaces. in a named a");
        check("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize. in a named a");
        check("GET", "/api/v1/namespaces/a/what", "list what. in a");
    }

    #[test]
    fn a_list_by_name_asks_for_that_name() {
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list pods. named p");
        check("GET", "/api/v1/pods?fieldSelector=a=b,metadata.name==p", "list pods. named p");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name!=p", "list pods.");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name=a%5C,b", "list pods.");
        check("GET", "/api/v1/pods?fieldSelector=spec.nodeName=n", "list pods. on n");
        check("DELETE", "/api/v1/nodes?fieldSelector=metadata.name=n", "deletecollection nodes.");
    }

    #[test]
    fn the_rest_are_paths() {
        check("GET", "/", "get /");
        check("GET", "/version", "get /version");
        check("GET", "/api/v1", "get /api/v1");
        check("GET", "/apis/apps/v1/", "get /apis/apps/v1/");
        check("POST", "/metrics", "post /metrics");
        check("GET", "/api/v1/%ff", "get /api/v1/\u{fffd}");
    }
}
