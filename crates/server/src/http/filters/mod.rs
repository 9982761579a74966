//! The filters around every handler: authentication, authorization, limits, metrics and audit.
//! Upstream: `DefaultBuildHandlerChain`.

/// Makes a request wait for a state that is current enough (read barrier) and for a seat of flow control, and charges
/// its response to the memory for unsent responses.
mod limits;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, IF_NONE_MATCH, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Uri, Version};
use jiff::Timestamp;

pub(in crate::http) use self::limits::RequiredState;
use self::limits::{ResponseRejection, UNCONFIRMED_STATE_AGE_MAX, charged_user, response_size};
use super::agent::ClientUpgrade;
use super::query::RequestQuery;
use super::reply::{self, error_response, no_route_response};
use super::route::Route;
use super::{Api, ApiRequest, ApiResponse, OutgoingResponse};
use crate::audit::AuditEvent;
use crate::auth::{self, AuthorizationGrant, Reauthorization};
use crate::connections::RequestClient;
use crate::error::ApiError;
use crate::flow_control::request_body::{RequestBody, RequestBodyContext, receive_body};
use crate::flow_control::response::{self, ResponseCharges};
use crate::flow_control::{self, BodyError, Seat};
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, URL_BYTES_MAX};
use crate::request::{AuditAnnotation, RequestAttributes, RequestContext, ResourceAttributes, User};
use crate::subresource::Subresource;
use crate::{headers, metrics};

/// What the method and the URI of a request say.
struct ParsedRequest {
    /// `None` if the server does not serve the path.
    route: Option<Route>,
    query: RequestQuery,
    attributes: RequestAttributes,
    labels: metrics::RequestLabels,
    /// Whether the request is a watch, or an agent answers it.
    is_stream: bool,
    /// The timeout of the request, or `None` if it has none. An error if the query parameter `timeout` is invalid.
    timeout: Result<Option<Duration>, ApiError>,
}

/// The state of a request while it passes the filters: its attributes, and the results of the filters so far.
struct RequestState<'a> {
    attributes: RequestAttributes,
    /// Metric labels of the request.
    labels: metrics::RequestLabels,
    /// Time at which the request was received.
    now: Timestamp,
    /// The client that sent the request. `None` if it is unknown.
    client: Option<&'a Arc<RequestClient>>,
    /// The authenticated user. `None` before authentication, and if it fails.
    user: Option<User>,
    /// The user that `user` impersonates. `None` if the request has no impersonation headers.
    impersonated: Option<User>,
    /// Why authorization allows the request. `None` before authorization, and if it fails.
    grant: Option<AuthorizationGrant>,
    /// Annotations of the audit event of the request.
    audit_annotations: Vec<AuditAnnotation>,
    /// The flow control seat, which is held while the request is handled. `None` before and after that. Watches and
    /// agent requests need no seat.
    seat: Option<Seat>,
}

impl RequestState<'_> {
    /// Returns the user whose limits the request counts against. `None` before authentication.
    fn charged_user(&self) -> Option<&User> {
        self.user.as_ref().map(|user| charged_user(user, self.impersonated.as_ref()))
    }

    /// Whether the request is from a client in this process.
    fn is_in_process(&self) -> bool {
        self.client.is_some_and(|it| it.is_in_process)
    }
}

impl Api {
    /// Handles one request from its headers to its response. `peer` is the user of the client certificate or of the
    /// in-process client. It is `None` for a network client without a valid certificate. The extensions of the request
    /// contain the [`RequestClient`], if it is known.
    pub(crate) async fn handle<B>(&self, peer: Option<&User>, request: Request<B>) -> OutgoingResponse
    where
        B: hyper::body::Body<Error: Into<BodyError>>,
    {
        let (now, started) = (Timestamp::now(), Instant::now());
        let uri = request.uri().clone();
        let client = request.extensions().get::<Arc<RequestClient>>().cloned();
        let user_agent = headers::header_text(request.headers(), USER_AGENT).to_owned();
        let accept = headers::header_text(request.headers(), ACCEPT).to_owned();
        let is_head = request.method() == Method::HEAD;
        // A panic is answered, counted and audited like any other error, here and below.
        let parsed = catch_panic(|| self.parse_request(request.method(), &uri));
        let (attributes, labels, is_stream, parsed) = match parsed {
            Ok(ParsedRequest { route, query, attributes, labels, is_stream, timeout }) => {
                (attributes, labels, is_stream, timeout.map(|it| (it, route, query)))
            }
            Err(panicked) => {
                let attributes = RequestAttributes::for_path(request.method(), uri.path());
                let labels = metrics::RequestLabels::new(&attributes.verb, None);
                (attributes, labels, false, Err(panicked))
            }
        };

        let mut state = RequestState {
            attributes,
            labels,
            now,
            client: client.as_ref(),
            user: None,
            impersonated: None,
            grant: None,
            audit_annotations: Vec::new(),
            seat: None,
        };
        let handled = match parsed {
            Err(refusal) => Err(refusal),
            Ok((timeout, route, query)) => {
                let handling = AssertUnwindSafe(self.run_filters(peer, request, route, query, &mut state));
                run_with_timeout(timeout, handling.catch_unwind())
                    .await
                    .unwrap_or_else(|refusal| Ok(Err(refusal)))
                    .unwrap_or_else(|_| Err(ApiError::handler_panicked()))
            }
        };
        let response = handled.unwrap_or_else(|it| error_response(&it));
        let response = catch_panic(|| reply::negotiate_response(response, &accept, is_head))
            .unwrap_or_else(|it| error_response(&it));
        // The seat is released here: unsent responses have limits of their own.
        state.seat = None;
        let held = match self.charge_response(response_size(&response), &state).await {
            Err(ResponseRejection::Refused(it)) => {
                self.registry.metrics.count_refused_request("response");
                self.charge_small_response(&state).map(|charges| (error_response(&it), charges))
            }
            held => held.map(|charges| (response, charges)),
        };
        let (response, charges) = held.unwrap_or_else(|_| {
            self.registry.metrics.count_refused_request("response");
            (reply::reset_response(), ResponseCharges::default())
        });

        let code = response.status().as_u16();
        self.registry.metrics.record_request(&state.labels, code, started.elapsed());
        tracing::debug!(verb = %state.attributes.verb, path = uri.path(), code);
        if let Some(audit) = &self.audit {
            let event = AuditEvent {
                attributes: &state.attributes,
                uri: uri.path_and_query().map_or("", |it| it.as_str()),
                user: state.user.as_ref(),
                impersonated: state.impersonated.as_ref(),
                source_ip: client.as_ref().map(|it| it.address),
                user_agent: &user_agent,
                code,
                reason: state.grant.as_ref().map(ToString::to_string),
                annotations: &state.audit_annotations,
                received_at: now,
                completed_at: Timestamp::now(),
            };
            audit.record_event(&event, &self.registry.metrics);
        }
        let is_on_wire = client.as_ref().is_some_and(|it| it.connection.is_some());
        let read_timeout = (!is_stream && is_on_wire).then_some(self.limits.config.response_timeout);
        response.map(|body| response::SendingBody::new(body, charges, is_on_wire, read_timeout))
    }

    /// Parses what the filters need from the method and the URI of a request.
    fn parse_request(&self, method: &Method, uri: &Uri) -> ParsedRequest {
        let route = Route::parse(&self.registry.storage.kinds, uri.path());
        let query = RequestQuery::from_uri(uri);
        let attributes = RequestAttributes::from_request(method, uri.path(), |name| {
            query.first_value(name).map(str::to_owned)
        });
        let labels = metrics::RequestLabels::new(&attributes.verb, route.as_ref().and_then(Route::kind));
        let is_stream = labels.is_watch() || is_agent_request(route.as_ref());
        let timeout = self.request_timeout(is_stream, &query);
        ParsedRequest { route, query, attributes, labels, is_stream, timeout }
    }

    /// Returns the timeout of a request, or `None` if it has none. Fails if the query parameter `timeout` is invalid.
    ///
    /// Rule: a request must complete within `--request-timeout`, or within the query parameter `timeout` if that is
    /// shorter. Watches, and requests that an agent answers (such as logs and exec), have no timeout.
    fn request_timeout(&self, is_stream: bool, query: &RequestQuery) -> Result<Option<Duration>, ApiError> {
        if is_stream {
            // The query parameters of an agent request belong to the agent's endpoint, and a watch has
            // `timeoutSeconds`.
            return Ok(None);
        }
        let limit = self.limits.config.request_timeout;
        let deadline = query.timeout()?.map_or(limit, |it| it.min(limit));
        Ok(Some(deadline).filter(|it| *it != Duration::MAX))
    }

    /// Passes a request through the filters and calls its handler.
    ///
    /// Rule: no body is read before the request is authorized. No seat is acquired before the whole body is received,
    /// so that a slow client does not occupy a seat.
    async fn run_filters<B>(
        &self,
        peer: Option<&User>,
        mut request: Request<B>,
        route: Option<Route>,
        query: RequestQuery,
        state: &mut RequestState<'_>,
    ) -> Result<ApiResponse, ApiError>
    where
        B: hyper::body::Body<Error: Into<BodyError>>,
    {
        check_request_head(&request, state.client.map(AsRef::as_ref))?;
        let RequestState { attributes, labels, now, client, .. } = state;
        let has_credentials =
            peer.is_some() || headers::bearer_token(request.headers()).is_ok_and(|it| it.is_some());
        let required = required_state(route.as_ref(), &query, labels, has_credentials);
        let address = client.filter(|_| peer.is_none()).map(|it| it.address);
        self.wait_for_state(required, address).await?;
        let user =
            state.user.insert(auth::authenticate(&self.registry.access, peer, request.headers(), *now)?);
        let is_anonymous = user.is_anonymous();
        if let Some(connection) = state.client.and_then(|it| it.connection.as_deref()) {
            self.limits.connections.record_request(connection, Some(&*user).filter(|_| !is_anonymous));
        }
        state.impersonated = auth::impersonated_user(&self.registry.access, user, request.headers())?;
        let charged = charged_user(user, state.impersonated.as_ref());
        let user = state.impersonated.as_ref().unwrap_or(user);
        let allow = if is_anonymous { auth::require_authorized_anonymous } else { auth::require_authorized };
        state.grant = Some(allow(&self.registry.access, user, attributes)?);
        let Some(route) = route else {
            return no_route_response(&self.registry.storage.kinds.served(), request.uri().path());
        };

        let fence = headers::parse_lease_fence(request.headers())?;
        if let Some(fence) = &fence {
            // A write with a lost Lease is refused together with the writes of other users in its transaction.
            let update =
                RequestAttributes::for_resource("update", ResourceAttributes::of_target(fence.lease(), ""));
            auth::require_authorized(&self.registry.access, user, &update)?;
        }
        let is_of_agent = is_agent_request(Some(&route));
        let upgrade = ClientUpgrade::from_request(&mut request);
        let (parts, body) = request.into_parts();
        let header = |name| headers::header_text(&parts.headers, name);
        let options = query.write_options();
        if !is_of_agent && !options.causes.is_empty() {
            let kind = match attributes.verb.as_ref() {
                "create" => "CreateOptions",
                "update" => "UpdateOptions",
                "patch" => "PatchOptions",
                _ => "DeleteOptions",
            };
            return Err(ApiError::invalid_options(kind, &options.causes));
        }
        // Reads have no body, except for requests that are proxied.
        let has_body = is_of_agent || !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let received = if has_body {
            let context = RequestBodyContext {
                user: charged,
                client: state.client.map(AsRef::as_ref),
                usage: &self.limits.usage,
                initial_timeout: self.limits.config.body_timeout,
            };
            receive_body(body, context).await.inspect_err(|it| self.count_rejection(it, "body"))?
        } else {
            drop(body);
            RequestBody::default()
        };
        // Watches and agent streams have permits of their own instead of a seat.
        if !labels.is_watch() && !is_of_agent {
            let class = flow_control::classify(charged, attributes, matches!(route, Route::Health(_)));
            state.seat = Some(self.acquire_seat(class, labels.is_read()).await?);
        }
        let api_request = ApiRequest {
            context: RequestContext {
                dry_run: options.dry_run,
                field_manager: query.get("fieldManager").to_owned(),
                field_validation: options.field_validation,
                user_agent: header(USER_AGENT).to_owned(),
                ..RequestContext::new(user.clone(), attributes.verb.clone(), *now)
            },
            uri: parts.uri.clone(),
            query,
            method: parts.method.clone(),
            upgrade,
            accept: header(ACCEPT).to_owned(),
            if_none_match: header(IF_NONE_MATCH).to_owned(),
            media_type: header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned(),
            source_ip: state.client.map(|it| it.address),
            reauthorization: (labels.is_watch() || is_of_agent).then(|| {
                let (client, every) = (state.client, self.limits.config.reauthorize_interval);
                Reauthorization::new(peer, client, &parts.headers, attributes, every)
            }),
            charged_user: state.impersonated.is_some().then(|| charged.clone()),
            headers: if is_of_agent { parts.headers.clone() } else { HeaderMap::new() },
            body: received.bytes.clone(),
        };
        // On the heap, because the caller moves its future several times, and the futures of handlers are large.
        let handling = Box::pin(self.dispatch(route, &api_request));
        // A request that an agent answers may take hours, and its body is not decoded.
        let decoded_bytes = if is_of_agent { 0 } else { api_request.body.len() };
        let handling = self.limits.large_bodies.run(handling, decoded_bytes, charged);
        let dispatched = match fence {
            None => handling.await,
            Some(fence) => fence.run_fenced(handling).await,
        };
        let mut response = dispatched.unwrap_or_else(|it| error_response(&it));
        reply::add_warnings(&mut response, api_request.context.take_warnings());
        state.audit_annotations = api_request.context.take_audit_annotations();
        Ok(response)
    }
}

/// Returns the result of `work`, or the error for a panic in it.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, ApiError> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| ApiError::handler_panicked())
}

/// Waits for `handling` and returns its output. Fails with a timeout error if it takes longer than `timeout`. Without a
/// timeout, waits forever.
async fn run_with_timeout<F: Future>(timeout: Option<Duration>, handling: F) -> Result<F::Output, ApiError> {
    match timeout {
        None => Ok(handling.await),
        Some(timeout) => tokio::time::timeout(timeout, handling).await.map_err(|_| ApiError::timeout()),
    }
}

/// Checks the URL and the headers of a request before its body is read.
///
/// Rule: the sizes of the URL and of the headers are limited, over HTTP/1 and over HTTP/2. An HTTP/1.1 request over the
/// network must have a Host header.
fn check_request_head<B>(request: &Request<B>, client: Option<&RequestClient>) -> Result<(), ApiError> {
    if request.uri().path_and_query().is_some_and(|it| URL_BYTES_MAX < it.as_str().len()) {
        return Err(ApiError::url_too_long(URL_BYTES_MAX));
    }
    let headers = request.headers();
    if HEADERS_MAX < headers.len() {
        return Err(ApiError::too_many_headers(HEADERS_MAX));
    }
    // Counted as HTTP/2 does, which refuses larger headers itself.
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>();
    if HEADER_BYTES_MAX < bytes {
        return Err(ApiError::headers_too_large(HEADER_BYTES_MAX));
    }
    let is_on_wire = client.is_some_and(|it| it.connection.is_some());
    if is_on_wire && request.version() == Version::HTTP_11 && !headers.contains_key(HOST) {
        return Err(ApiError::bad_request("missing required Host header"));
    }
    Ok(())
}

/// Returns how current the state of this server must be before a request is authenticated.
///
/// Rule: a request sees every write that any server acknowledged before the request, for its credentials and roles as
/// well as for the objects that it reads. Reads with `resourceVersion=0`, watches from a resourceVersion and requests
/// without credentials use the state that the server has in memory, unless the server could not confirm it within the
/// last five minutes. Health checks use any state.
fn required_state(
    route: Option<&Route>,
    query: &RequestQuery,
    labels: &metrics::RequestLabels,
    has_credentials: bool,
) -> RequiredState {
    let version = query.get("resourceVersion");
    let is_of_any_version =
        if labels.is_watch() { !version.is_empty() } else { labels.is_read() && version == "0" };
    match route {
        Some(Route::Health(_)) => RequiredState::Any,
        _ if !has_credentials || is_of_any_version => {
            RequiredState::ConfirmedWithin(UNCONFIRMED_STATE_AGE_MAX)
        }
        _ => RequiredState::Current,
    }
}

/// Whether the request is for a subresource that a node agent serves.
fn is_agent_request(route: Option<&Route>) -> bool {
    matches!(route, Some(Route::Object(it)) if matches!(it.subresource, Subresource::Agent(_)))
}
