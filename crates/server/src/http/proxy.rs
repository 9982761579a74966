//! The `proxy` subresource: forwards requests to a pod, to a pod behind a Service, or to a node. The agent of the node
//! forwards each request. The agent determines the addresses of its pods itself, so that an address in an API object
//! cannot redirect a request.
//!
//! Upstream: `ResourceLocation` of the three kinds, and `UpgradeAwareHandler` with its `Transport`.

use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use hyper::{Method, Request, StatusCode, Uri};
use muster_api::well_known;
use serde_json::Value;

use super::agent::{AGENT_ERROR_BYTES_MAX, agent_request_error};
use super::reply::{TEXT_PLAIN, full_response, not_found_page};
use super::{Api, ApiRequest, ApiResponse};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::RequestTarget;
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, list_at, str_at};
use crate::{agents, headers};

/// Maximum time to wait for the response headers of a proxied request. It is long because the backend may use long
/// polling.
const PROXY_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Response header that an agent adds to each response of a backend (the pod or node port). The header distinguishes
/// such a response from a response of the agent itself.
const BACKEND_RESPONSE_HEADER: HeaderName = HeaderName::from_static(well_known::BACKEND_RESPONSE_HEADER);

/// Path prefixes of the agent endpoints that forward requests to pods and to ports of the node.
const AGENT_PROXY_PATH_PREFIXES: [&str; 2] = ["/podProxy/", "/nodeProxy/"];

/// The path segment before `proxy` in a proxy URL, in the form `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct ProxyName<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> ProxyName<'a> {
    /// Parses the path segment. The default scheme is `http`, and an absent port is empty. Returns `None` if the
    /// segment is malformed. Upstream: `SplitSchemeNamePort`.
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        let scheme = match scheme {
            "" | "http" => "http",
            "https" => "https",
            _ => return None,
        };
        (!name.is_empty()).then_some(Self { scheme, name, port })
    }
}

/// The pod or node to which a proxy request is forwarded, and the agent and path prefix through which the pod or node
/// is reached.
struct ProxyRoute {
    /// The pod or node, which error messages name.
    target: RequestTarget,
    /// The stored object of `target`.
    stored: Value,
    /// Name of the node whose agent forwards the request.
    node: String,
    /// Path prefix on the agent, which selects the pod or port. Empty if the request is for the agent itself.
    agent_path: String,
}

impl Api {
    /// Forwards a request for the subresource `proxy` through a node agent, and returns the response of the backend.
    /// Exception: a GET or HEAD request whose path ends with `proxy` is redirected to the path with a trailing slash.
    pub(super) async fn proxy(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        let singular = target.kind.singular();
        let malformed = || ApiError::bad_request(format!("invalid {singular} request {:?}", target.name));
        let proxy_name = ProxyName::parse(&target.name).ok_or_else(malformed)?;
        let by = RequestTarget {
            name: proxy_name.name.to_owned(),
            subresource: Subresource::Whole,
            ..target.clone()
        };
        let way = match target.kind.resource() {
            ("", "nodes") => self.route_to_node(by, &proxy_name)?,
            ("", "pods") => {
                let stored = unstructured::parse_stored(&self.registry.storage.get(&by)?);
                let port = pod_port(&stored, &proxy_name).ok_or_else(malformed)?;
                route_to_pod(by, stored, proxy_name.scheme, port)
            }
            _ => self.route_to_service(&by, &proxy_name, api_request)?,
        };
        let (prefix, path) = split_proxy_path(&api_request.uri, if target.kind.namespaced { 7 } else { 5 });
        let query = api_request.uri.query().map(|it| format!("?{it}")).unwrap_or_default();
        let is_read = matches!(api_request.method, Method::GET | Method::HEAD);
        if path.is_empty() && is_read && api_request.upgrade.is_none() {
            // Relative links in the response need a path that ends with a slash.
            let mut response = full_response(StatusCode::MOVED_PERMANENTLY, TEXT_PLAIN, bytes::Bytes::new());
            let to = HeaderValue::from_str(&format!("{prefix}/{query}"));
            response.headers_mut().extend(to.ok().map(|it| (LOCATION, it)));
            return Ok(response);
        }
        let path = if path.is_empty() { "/" } else { path };
        let is_of_agent = way.agent_path.is_empty();
        let mut reauthorization = api_request.reauthorization.clone();
        // An upgrade of a request to the agent itself runs a command in some pod.
        if is_of_agent && api_request.upgrade.is_some() {
            let create = self.authorize_create(target, "proxy", api_request)?;
            reauthorization = reauthorization.map(|it| it.with_action(create));
        }
        // Access to the agent does not imply access to the pods and ports behind it.
        if is_of_agent && AGENT_PROXY_PATH_PREFIXES.iter().any(|it| path.starts_with(it)) {
            return Ok(not_found_page());
        }
        let mut request = Request::builder()
            .method(api_request.method.clone())
            .uri(format!("{}{path}{query}", way.agent_path))
            .body(Full::new(api_request.body.clone()))
            .map_err(|it| ApiError::bad_request(format!("ask node {:?}: {it}", way.node)))?;
        *request.headers_mut() = forwarded_headers(api_request, prefix, path);
        let (agents, place) = self.agent_of_node(&way.target, &way.stored, &way.node)?;
        let guard = self.acquire_agent_stream(api_request)?;
        let answer = agents.send_with_timeout(&place, request, PROXY_RESPONSE_TIMEOUT).await;
        let answer = answer.map_err(|error| agent_request_error(&way.target, &way.node, &error))?;

        if !is_of_agent && !answer.headers().contains_key(BACKEND_RESPONSE_HEADER) {
            let code = answer.status();
            let why = agents::read_body(answer.into_body(), AGENT_ERROR_BYTES_MAX).await.unwrap_or_default();
            let why = String::from_utf8_lossy(&why).trim().to_owned();
            return Err(match code {
                StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => ApiError::from_agent(code, why),
                StatusCode::FORBIDDEN => ApiError::forbidden(target.kind, &target.name, &why),
                _ => ApiError::service_unavailable(format!("error trying to reach service: {why}")),
            });
        }
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(upgrade) = &api_request.upgrade else {
                return Err(ApiError::service_unavailable(
                    "error trying to reach service: it switches to a protocol that was not requested",
                ));
            };
            let spliced = self.splice_connections(upgrade, answer, guard, reauthorization);
            return spliced.map_err(|it| ApiError::service_unavailable(it.to_string()));
        }
        let code = answer.status();
        let mut headers = without_hop_by_hop_headers(answer.headers());
        if let Some(location) = headers.get(LOCATION).and_then(|it| it.to_str().ok())
            && let Ok(through) =
                HeaderValue::from_str(&rewrite_location(location, prefix, &request_host(api_request)))
        {
            headers.insert(LOCATION, through);
        }
        let mut response = self.stream_response(answer, TEXT_PLAIN, guard, reauthorization);
        if api_request.method == Method::HEAD {
            *response.body_mut() = Either::Left(Full::default());
        }
        *response.status_mut() = code;
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Returns the route to a port of the node, or to the agent itself if the URL has no port or has the port of the
    /// agent.
    fn route_to_node(&self, node: RequestTarget, proxy_name: &ProxyName<'_>) -> Result<ProxyRoute, ApiError> {
        let stored = unstructured::parse_stored(&self.registry.storage.get(&node)?);
        let own = stored["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let malformed = |_| ApiError::bad_request(format!("invalid node request {:?}", proxy_name.port));
        let port = match proxy_name.port {
            "" => None,
            port => Some(port.parse::<u16>().map_err(malformed)?).filter(|it| own != Some(u64::from(*it))),
        };
        let at = port.map(|it| format!("/nodeProxy/{}/{it}", proxy_name.scheme)).unwrap_or_default();
        Ok(ProxyRoute { node: node.name.clone(), target: node, stored, agent_path: at })
    }

    /// Returns the route to one of the ready pods behind the Service. Uses only endpoints that refer to a pod, see
    /// [`Api::pod_of_endpoint`]. Returns a 503 error if no ready endpoint refers to a pod, or if the Service lacks the
    /// port in the URL. Upstream: `REST.ResourceLocation`.
    fn route_to_service(
        &self,
        service: &RequestTarget,
        proxy_name: &ProxyName<'_>,
        api_request: &ApiRequest,
    ) -> Result<ProxyRoute, ApiError> {
        let stored_service = unstructured::parse_stored(&self.registry.storage.get(service)?);
        let mut port = proxy_name.port;
        if let Ok(number) = port.parse::<i64>() {
            let ports = list_at(&stored_service["spec"], "ports");
            let found = ports.iter().find(|it| it["port"].as_i64() == Some(number)).ok_or_else(|| {
                ApiError::service_unavailable(format!(
                    "no service port {number} found for service {:?}",
                    proxy_name.name
                ))
            })?;
            port = str_at(found, "name");
        }
        let no_endpoints = || {
            ApiError::service_unavailable(format!("no endpoints available for service {:?}", proxy_name.name))
        };
        let slices = Kind::builtin("discovery.k8s.io", "v1", "endpointslices");
        let of_service = format!("{}={}", well_known::LABEL_SERVICE_NAME, proxy_name.name);
        let selector = ObjectSelector::parse(slices, &of_service, "").map_err(|_| no_endpoints())?;
        let (slices, _) = self.registry.storage.list(slices, service.namespace.as_deref(), &selector);
        let slices: Vec<Value> = slices.iter().map(|it| unstructured::parse_stored(it)).collect();
        let mut ready = Vec::new();
        for slice in &slices {
            let of_slice = list_at(slice, "ports").iter().find(|it| str_at(it, "name") == port);
            let Some(port) = of_slice.and_then(|it| u16::try_from(it["port"].as_u64()?).ok()) else {
                continue;
            };
            let all = list_at(slice, "endpoints").iter();
            ready.extend(all.filter(|it| it["conditions"]["ready"] != false).map(|it| (it, port)));
        }
        // Start at an arbitrary endpoint to spread the load.
        let first =
            usize::try_from(api_request.context.now.subsec_nanosecond()).unwrap_or(0) % ready.len().max(1);
        let found = ready.iter().cycle().skip(first).take(ready.len()).find_map(|(endpoint, port)| {
            let (pod, stored) = self.pod_of_endpoint(service, &endpoint["targetRef"])?;
            Some(route_to_pod(pod, stored, proxy_name.scheme, *port))
        });
        found.ok_or_else(no_endpoints)
    }

    /// Returns the target and the stored object of the pod to which the `targetRef` of an endpoint refers. Returns
    /// `None` if the `targetRef` does not refer to an existing pod in the namespace of the Service, or has the UID of
    /// another pod.
    ///
    /// Rule: a request to a Service always goes to a pod in the namespace of the Service. A user who writes endpoints
    /// therefore cannot redirect requests to other addresses or namespaces.
    fn pod_of_endpoint(&self, service: &RequestTarget, reference: &Value) -> Option<(RequestTarget, Value)> {
        let namespace = service.namespace.as_deref()?;
        let is_same_namespace =
            matches!(str_at(reference, "namespace"), "") || reference["namespace"] == namespace;
        if reference["kind"] != "Pod" || !is_same_namespace {
            return None;
        }
        let (kind, name) = (Kind::builtin("", "v1", "pods"), str_at(reference, "name"));
        let stored = unstructured::parse_stored(&self.registry.storage.find(kind, Some(namespace), name)?);
        let is_same = matches!(str_at(reference, "uid"), "") || stored["metadata"]["uid"] == reference["uid"];
        let pod = RequestTarget { kind, name: name.to_owned(), ..service.clone() };
        is_same.then_some((pod, stored))
    }
}

/// Returns the route to a port of the pod. `stored` is the stored object of the pod.
fn route_to_pod(pod: RequestTarget, stored: Value, scheme: &str, port: u16) -> ProxyRoute {
    let at =
        format!("/podProxy/{}/{}/{scheme}/{port}", pod.namespace.as_deref().unwrap_or_default(), pod.name);
    ProxyRoute { node: str_at(&stored, "spec.nodeName").to_owned(), target: pod, stored, agent_path: at }
}

/// Returns the port to which a proxy request for the pod goes. The URL specifies the port by number or by name:
/// - A number must be between 1 and 65535, but need not be a declared container port.
/// - A name must be the name of a container port.
/// - Without a port in the URL, the port is the first container port of the pod, or the default port of the scheme if
///   the pod declares no ports.
///
/// Returns `None` if the number or name is invalid.
fn pod_port(pod: &Value, proxy_name: &ProxyName<'_>) -> Option<u16> {
    let containers = list_at(&pod["spec"], "containers").iter();
    let mut ports = containers.flat_map(|it| list_at(it, "ports"));
    let number = |it: &Value| u16::try_from(it["containerPort"].as_u64()?).ok();
    match proxy_name.port {
        "" => match ports.next() {
            Some(first) => number(first),
            None => Some(if proxy_name.scheme == "https" { 443 } else { 80 }),
        },
        port => match port.parse::<u16>() {
            Ok(port) => Some(port).filter(|it| *it != 0),
            Err(_) => number(ports.find(|it| it["name"] == port)?),
        },
    }
}

/// Splits the path of a proxy URL after the segment `proxy`. Returns the path up to and including this segment, and the
/// path on the backend. `segments` is the number of segments up to and including `proxy`.
fn split_proxy_path(uri: &Uri, segments: usize) -> (&str, &str) {
    let path = uri.path();
    let (mut at, mut seen) = (0, 0);
    for segment in path.split('/') {
        at += segment.len();
        seen += usize::from(!segment.is_empty());
        if seen == segments {
            return path.split_at(at);
        }
        at += 1;
    }
    (path, "")
}

/// Returns the host and port by which the client addresses this server.
fn request_host(api_request: &ApiRequest) -> String {
    match headers::header_text(&api_request.headers, HOST) {
        "" => api_request.uri.authority().map_or("", |it| it.as_str()).to_owned(),
        host => host.to_owned(),
    }
}

/// Returns the headers to forward to the backend. Copies the headers of the request, except credentials, impersonation
/// headers, hop-by-hop headers, `Content-Length`, `Expect` and `Host`. Adds the `X-Forwarded-…` headers and, for an
/// upgrade, the headers of the upgrade. `prefix` and `path` are the two parts of the path, as from
/// [`split_proxy_path`].
fn forwarded_headers(api_request: &ApiRequest, prefix: &str, path: &str) -> HeaderMap {
    let mut headers = without_hop_by_hop_headers(&api_request.headers);
    for name in [AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST] {
        headers.remove(name);
    }
    let impersonation: Vec<_> =
        headers.keys().filter(|it| it.as_str().starts_with(headers::IMPERSONATE_PREFIX)).cloned().collect();
    for name in impersonation {
        headers.remove(name);
    }
    let before = headers::header_text(&headers, headers::FORWARDED_FOR_HEADER);
    let source = api_request.source_ip.map(|it| it.to_string());
    let both: Vec<_> = [before.to_owned()].into_iter().chain(source).filter(|it| !it.is_empty()).collect();
    let forwarded = [
        (headers::FORWARDED_FOR_HEADER, both.join(", ")),
        (HeaderName::from_static("x-forwarded-host"), request_host(api_request)),
        (HeaderName::from_static("x-forwarded-proto"), "https".to_owned()),
        (HeaderName::from_static("x-forwarded-uri"), format!("{prefix}{path}")),
    ];
    for (name, value) in forwarded {
        if let Ok(value) = HeaderValue::from_str(&value)
            && !value.is_empty()
        {
            headers.insert(name, value);
        }
    }
    if let Some(upgrade) = &api_request.upgrade {
        upgrade.replace_upgrade_headers(&mut headers);
    }
    headers
}

/// Returns the headers without those of [`well_known::not_forwarded_headers`].
fn without_hop_by_hop_headers(headers: &HeaderMap) -> HeaderMap {
    let mut left = headers.clone();
    for name in well_known::not_forwarded_headers(headers::header_texts(headers, CONNECTION)) {
        left.remove(name);
    }
    left
}

/// Returns the `Location` header of a response, rewritten so that a redirect to the same host goes through the proxy
/// again. `prefix` is the path of the proxy URL up to and including `proxy`, and `host` is the host by which the client
/// addresses this server. Upstream: `rewriteURL`.
fn rewrite_location(location: &str, prefix: &str, host: &str) -> String {
    let rest = ["http://", "https://", "//"].iter().find_map(|it| location.strip_prefix(it));
    let path = match rest {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if authority != host {
                return location.to_owned();
            }
            if path.is_empty() { "/" } else { path }
        }
        None => location,
    };
    let is_through = path.strip_prefix(prefix).is_some_and(|it| it.is_empty() || it.starts_with(['/', '?']));
    if path.starts_with('/') && !is_through { format!("{prefix}{path}") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_with_scheme_and_port() {
        let said = |text| ProxyName::parse(text).map(|it| (it.scheme, it.name, it.port));
        assert_eq!(said("p"), Some(("http", "p", "")));
        assert_eq!(said("p:80"), Some(("http", "p", "80")));
        assert_eq!(said("https:p:web"), Some(("https", "p", "web")));
        assert_eq!(said("https:p:"), Some(("https", "p", "")));
        for wrong in ["", ":80", "ftp:p:80", "a:b:c:d", "http::80"] {
            assert_eq!(said(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_port_of_a_pod() {
        let ports = json!([{"containerPort": 8080, "name": "web"}, {"containerPort": 9}]);
        let pod = json!({"spec": {"containers": [{}, {"ports": ports}]}});
        let port = |pod: &Value, text| pod_port(pod, &ProxyName::parse(text).unwrap());
        assert_eq!(port(&pod, "p"), Some(8080));
        assert_eq!(port(&pod, "p:web"), Some(8080));
        assert_eq!(port(&pod, "p:1"), Some(1));
        for wrong in ["p:other", "p:0", "p:65536", "p:-1"] {
            assert_eq!(port(&pod, wrong), None, "{wrong}");
        }
        assert_eq!((port(&json!({}), "p"), port(&json!({}), "https:p:")), (Some(80), Some(443)));
    }

    #[test]
    fn a_path_ends_where_its_proxy_does() {
        let split = |uri: &str, segments| {
            let uri: Uri = uri.parse().unwrap();
            let (prefix, path) = split_proxy_path(&uri, segments);
            (prefix.to_owned(), path.to_owned())
        };
        let both = |prefix: &str, path: &str| (prefix.to_owned(), path.to_owned());
        let in_proxy = "/api/v1/namespaces/proxy/pods/proxy/proxy";
        assert_eq!(split(&format!("{in_proxy}/proxy/../x?y"), 7), both(in_proxy, "/proxy/../x"));
        assert_eq!(split(in_proxy, 7), both(in_proxy, ""));
        assert_eq!(split("/api//v1/nodes/n/proxy//", 5), both("/api//v1/nodes/n/proxy", "//"));
        assert_eq!(split("/api", 5), both("/api", ""));
    }

    #[test]
    fn an_answer_that_leads_to_its_own_host_leads_through_here() {
        for (location, leads_to) in [
            ("/a?b", "/api/proxy/a?b"),
            ("/", "/api/proxy/"),
            ("http://here:8001/a", "/api/proxy/a"),
            ("//here:8001", "/api/proxy/"),
            ("/api/proxy/a", "/api/proxy/a"),
            ("/api/proxyother", "/api/proxy/api/proxyother"),
            ("a/b", "a/b"),
            ("http://elsewhere/a", "http://elsewhere/a"),
            ("//elsewhere/a", "//elsewhere/a"),
        ] {
            assert_eq!(rewrite_location(location, "/api/proxy", "here:8001"), leads_to, "{location}");
        }
    }
}
