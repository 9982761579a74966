//! The way in: who asks, whether they may, whether there is room, and what is told of it afterwards.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use http_body_util::Either;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, IF_NONE_MATCH, USER_AGENT};
use hyper::{HeaderMap, Method, Request, StatusCode, Version};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::agent::Upgrade;
use super::query::Query;
use super::reply::{self, nothing_at, refusal};
use super::{Api, Asked, BoxError, Response, SentResponse};
use crate::audit::Told;
use crate::auth::{self, Deed, Grant, Reauthorization, User};
use crate::connections::{Client, RESPONSE_KIB_MAX};
use crate::context::{AuditAnnotation, Context};
use crate::flow_control::body::{Received, Sender, receive};
use crate::flow_control::response::{self, Holds, Meter};
use crate::flow_control::{self, Class, Seat, Standing, What};
use crate::headers;
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, Limits, URL_BYTES_MAX};
use crate::metrics;
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::{Part, Route};

/// A request, and what becomes known of it on its way in.
struct Visit<'a> {
    deed: Deed,
    kind: metrics::Kind,
    now: Timestamp,
    client: Option<&'a Arc<Client>>,
    user: Option<User>,
    impersonated: Option<User>,
    grant: Option<Grant>,
    audit_annotations: Vec<AuditAnnotation>,
    seat: Option<Seat>,
}

/// A larger response is charged to its user by its bytes, a smaller one by its number.
const LARGE_RESPONSE_BYTES: usize = 64 << 10;

/// Why a response is not sent.
enum Unsent {
    Refused(Refusal),
    /// Not even a refusal is sent: the client has too many unsent responses.
    Reset,
}

impl Visit<'_> {
    fn charged(&self) -> Option<&User> {
        self.user.as_ref().map(|user| charged(user, self.impersonated.as_ref()))
    }

    fn is_in_process(&self) -> bool {
        self.client.is_some_and(|it| it.is_in_process)
    }
}

impl Api {
    pub(crate) fn new(registry: Arc<Registry>, stop: CancellationToken) -> Self {
        Self { registry, limits: Arc::new(Limits::default()), audit: None, knower: None, agents: None, stop }
    }

    /// `peer` is who the connection's certificate names. The [`Client`] is an extension of the request.
    pub(crate) async fn answer<B>(&self, peer: Option<&User>, request: Request<B>) -> SentResponse
    where
        B: hyper::body::Body<Error: Into<BoxError>>,
    {
        let (now, started) = (Timestamp::now(), Instant::now());
        let uri = request.uri().clone();
        let client = request.extensions().get::<Arc<Client>>().cloned();
        let user_agent = headers::text(request.headers(), USER_AGENT).to_owned();
        let accept = headers::text(request.headers(), ACCEPT).to_owned();
        let is_head = request.method() == Method::HEAD;
        let route = Route::parse(uri.path());
        let query = Query::of(&uri);
        let deed = Deed::of(request.method(), uri.path(), |name| query.value(name).map(str::to_owned));
        let kind = metrics::Kind::of(&deed.verb, route.as_ref());

        let mut visit = Visit {
            deed,
            kind,
            now,
            client: client.as_ref(),
            user: None,
            impersonated: None,
            grant: None,
            audit_annotations: Vec::new(),
            seat: None,
        };
        let is_stream = visit.kind.is_watch() || is_of_agent(route.as_ref());
        let answered = match self.deadline(is_stream, &query) {
            Err(refusal) => Err(refusal),
            Ok(deadline) => {
                // A panic is answered, counted and audited like any other error.
                let answering = AssertUnwindSafe(self.let_in(peer, request, route, query, &mut visit));
                within(deadline, answering.catch_unwind())
                    .await
                    .unwrap_or_else(|refusal| Ok(Err(refusal)))
                    .unwrap_or_else(|_| Err(Refusal::panicked()))
            }
        };
        let response = reply::negotiated(answered.unwrap_or_else(|it| refusal(&it)), &accept, is_head);
        // The work is done: what waits to be sent is bounded by itself.
        visit.seat = None;
        let held = match self.hold(whole_bytes(&response), &visit).await {
            Err(Unsent::Refused(it)) => {
                self.registry.metrics.rejected("response");
                self.hold_small(&visit).map(|holds| (refusal(&it), holds))
            }
            held => held.map(|holds| (response, holds)),
        };
        let (response, holds) = held.unwrap_or_else(|_| {
            self.registry.metrics.rejected("response");
            (reply::reset(), Holds::default())
        });

        let code = response.status().as_u16();
        self.registry.metrics.answered(&visit.kind, code, started.elapsed());
        tracing::debug!(verb = %visit.deed.verb, path = uri.path(), code);
        if let Some(audit) = &self.audit {
            let told = Told {
                deed: &visit.deed,
                uri: uri.path_and_query().map_or("", |it| it.as_str()),
                user: visit.user.as_ref(),
                impersonated: visit.impersonated.as_ref(),
                source: client.as_ref().map(|it| it.address),
                user_agent: &user_agent,
                code,
                reason: visit.grant.as_ref().map(ToString::to_string),
                annotations: &visit.audit_annotations,
                begun: now,
                ended: Timestamp::now(),
            };
            audit.tell(&told, &self.registry.metrics);
        }
        let is_on_wire = client.as_ref().is_some_and(|it| it.connection.is_some());
        let patience = (!is_stream && is_on_wire).then_some(self.limits.config.response_timeout);
        response.map(|body| response::Response::new(body, holds, is_on_wire, patience))
    }

    /// Rule: a request has `--request-timeout`, or less if its client says so; watches and what agents serve have none.
    fn deadline(&self, is_stream: bool, query: &Query) -> Result<Option<Duration>, Refusal> {
        if is_stream {
            // The parameters of what an agent serves are not ours.
            return Ok(None);
        }
        let limit = self.limits.config.request_timeout;
        let deadline = query.timeout()?.map_or(limit, |it| it.min(limit));
        Ok(Some(deadline).filter(|it| *it != Duration::MAX))
    }

    /// Rule: nothing of a body is read before the request is authorized, and no seat is taken before the body is read: a client
    /// that does not send holds nothing that others need.
    async fn let_in<B>(
        &self,
        peer: Option<&User>,
        mut request: Request<B>,
        route: Option<Route>,
        query: Query,
        visit: &mut Visit<'_>,
    ) -> Result<Response, Refusal>
    where
        B: hyper::body::Body<Error: Into<BoxError>>,
    {
        check_head(&request, visit.client.map(AsRef::as_ref))?;
        let Visit { deed, kind, now, .. } = visit;
        if needs_fresh_state(route.as_ref(), &query, kind) {
            self.registry.fresh().await?;
        }
        let user = visit.user.insert(auth::authenticate(&self.registry, peer, request.headers(), *now)?);
        let is_stranger = user.is_anonymous();
        if let Some(connection) = visit.client.and_then(|it| it.connection.as_deref()) {
            self.limits.connections.saw_request(connection, Some(&*user).filter(|_| !is_stranger));
        }
        visit.impersonated = auth::impersonated(&self.registry, user, request.headers())?;
        let charged = charged(user, visit.impersonated.as_ref());
        let user = visit.impersonated.as_ref().unwrap_or(user);
        let allow = if is_stranger { auth::allow_stranger } else { auth::allow };
        visit.grant = Some(allow(&self.registry, user, deed)?);
        let Some(route) = route else { return nothing_at(request.uri().path()) };

        let is_of_agent = is_of_agent(Some(&route));
        let upgrade = Upgrade::of(&mut request);
        let (parts, body) = request.into_parts();
        let header = |name| headers::text(&parts.headers, name);
        let options = query.write_options();
        if !is_of_agent && !options.causes.is_empty() {
            let kind = match deed.verb.as_ref() {
                "create" => "CreateOptions",
                "update" => "UpdateOptions",
                "patch" => "PatchOptions",
                _ => "DeleteOptions",
            };
            return Err(Refusal::invalid_options(kind, &options.causes));
        }
        // Reads have no body, except for requests that are proxied.
        let has_body = is_of_agent || !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let received = if has_body {
            let sender = Sender {
                user: charged,
                client: visit.client.map(AsRef::as_ref),
                usage: &self.limits.usage,
                patience: self.limits.config.body_timeout,
            };
            receive(body, sender).await.inspect_err(|it| self.count_rejection(it, "body"))?
        } else {
            drop(body);
            Received::default()
        };
        // A watch has a permit of its own, and so has what an agent serves.
        if !kind.is_watch() && !is_of_agent {
            let class = flow_control::classify(charged, deed, matches!(route, Route::Health(_)));
            visit.seat = Some(self.seat(class, kind.is_read()).await?);
        }
        let asked = Asked {
            context: Context {
                dry_run: options.dry_run,
                field_manager: query.get("fieldManager").to_owned(),
                field_validation: options.field_validation,
                user_agent: header(USER_AGENT).to_owned(),
                ..Context::new(user.clone(), deed.verb.clone(), *now)
            },
            uri: parts.uri.clone(),
            query,
            method: parts.method.clone(),
            upgrade,
            view_wanted: header(ACCEPT).to_owned(),
            if_none_match: header(IF_NONE_MATCH).to_owned(),
            media_type: header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned(),
            source: visit.client.map(|it| it.address),
            reauthorization: (kind.is_watch() || is_of_agent).then(|| {
                let (client, every) = (visit.client, self.limits.config.reauthorize_every);
                Reauthorization::new(peer, client, &parts.headers, deed, every)
            }),
            charged: visit.impersonated.is_some().then(|| charged.clone()),
            headers: if is_of_agent { parts.headers.clone() } else { HeaderMap::new() },
            body: received.bytes.clone(),
        };
        let mut response = self.dispatch(route, &asked).await.unwrap_or_else(|it| refusal(&it));
        reply::warn(&mut response, asked.context.take_warnings());
        visit.audit_annotations = asked.context.take_audit_annotations();
        Ok(response)
    }

    async fn seat(&self, class: Class<'_>, is_read: bool) -> Result<Seat, Refusal> {
        let metrics = &self.registry.metrics;
        match self.limits.flow_control.seat(class, is_read).await {
            Ok((seat, None)) => Ok(seat),
            Ok((seat, Some(waited))) => {
                metrics.flow_waited(class, waited);
                Ok(seat)
            }
            Err(why) => {
                metrics.flow_rejected(class, why);
                Err(Refusal::too_many_requests(1))
            }
        }
    }

    fn count_rejection(&self, refusal: &Refusal, what: &'static str) {
        if refusal.code == StatusCode::TOO_MANY_REQUESTS {
            self.registry.metrics.rejected(what);
        }
    }

    /// Rule: an unsent response is charged to its user: a small one as one response, a large one by its bytes. A large one also waits
    /// until enough bytes of earlier responses on its connection are sent. Clients in this process are exempt.
    /// `bytes` is the size of a response that is no stream.
    async fn hold(&self, bytes: Option<usize>, visit: &Visit<'_>) -> Result<Holds, Unsent> {
        let Some(bytes) = bytes else {
            let meter = visit.charged().map(|user| self.meter(user));
            return Ok(Holds { meter, ..Holds::default() });
        };
        if bytes <= LARGE_RESPONSE_BYTES {
            return self.hold_small(visit);
        }
        let Some(user) = visit.charged().filter(|_| !visit.is_in_process()) else {
            return Ok(Holds::default());
        };
        let standing = flow_control::standing(user);
        if standing == Standing::Trusted {
            return Ok(Holds::default());
        }
        // What was written is written: its client is not to try again.
        let is_read = visit.kind.is_read();
        let too_many =
            || Unsent::Refused(if is_read { Refusal::too_many_requests(1) } else { Refusal::timeout() });
        let taken = self.limits.usage.take(&user.name, standing, What::ResponseBytes, bytes);
        let mut holds = Holds { charge: Some(taken.ok_or_else(too_many)?), ..Holds::default() };
        if let Some(connection) = visit.client.and_then(|it| it.connection.as_ref()) {
            let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(RESPONSE_KIB_MAX);
            let acquiring = connection.response_kib.clone().acquire_many_owned(kib);
            let acquired = tokio::time::timeout(self.limits.config.response_timeout, acquiring).await;
            let acquired = acquired.ok().and_then(Result::ok);
            holds.kib_of_connection = Some(acquired.ok_or_else(|| Unsent::Refused(Refusal::timeout()))?);
        }
        Ok(holds)
    }

    /// Rule: the small responses of anonymous clients are charged to their address, so that one of them does not reset those of others.
    fn hold_small(&self, visit: &Visit<'_>) -> Result<Holds, Unsent> {
        let (Some(client), false) = (visit.client, visit.is_in_process()) else {
            return Ok(Holds::default());
        };
        let user = visit.charged();
        let standing = user.map_or(Standing::Ordinary, flow_control::standing);
        if standing == Standing::Trusted {
            return Ok(Holds::default());
        }
        let usage = &self.limits.usage;
        let taken = match user.filter(|it| !it.is_anonymous()) {
            Some(user) => usage.take(&user.name, standing, What::SmallResponses, 1),
            None => usage.take(&client.address.to_string(), standing, What::SmallResponses, 1),
        };
        let charge = Some(taken.ok_or(Unsent::Reset)?);
        Ok(Holds { charge, is_small: true, ..Holds::default() })
    }

    /// Charges the large pieces of a stream to `user`.
    pub(super) fn meter(&self, user: &User) -> Meter {
        let standing = flow_control::standing(user);
        Meter { usage: self.limits.usage.clone(), user: user.name.clone(), standing }
    }
}

/// Rule: requests of a user that impersonates another are charged to the impersonator, so that impersonation gives no further shares.
/// Those of a trusted impersonator are charged to the other user.
fn charged<'a>(user: &'a User, impersonated: Option<&'a User>) -> &'a User {
    impersonated.filter(|_| flow_control::standing(user) == Standing::Trusted).unwrap_or(user)
}

/// The size of a response that is no stream.
fn whole_bytes(response: &Response) -> Option<usize> {
    match response.body() {
        Either::Left(whole) => usize::try_from(hyper::body::Body::size_hint(whole).lower()).ok(),
        Either::Right(_) => None,
    }
}

async fn within<F: Future>(deadline: Option<Duration>, answering: F) -> Result<F::Output, Refusal> {
    match deadline {
        None => Ok(answering.await),
        Some(deadline) => tokio::time::timeout(deadline, answering).await.map_err(|_| Refusal::timeout()),
    }
}

/// Rule: URL and headers are bounded, over HTTP/1 as over HTTP/2, and HTTP/1.1 names the host.
fn check_head<B>(request: &Request<B>, client: Option<&Client>) -> Result<(), Refusal> {
    if request.uri().path_and_query().is_some_and(|it| URL_BYTES_MAX < it.as_str().len()) {
        return Err(Refusal::url_too_long(URL_BYTES_MAX));
    }
    let headers = request.headers();
    if HEADERS_MAX < headers.len() {
        return Err(Refusal::too_many_headers(HEADERS_MAX));
    }
    // As HTTP/2 counts them, which refuses larger ones itself.
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>();
    if HEADER_BYTES_MAX < bytes {
        return Err(Refusal::headers_too_large(HEADER_BYTES_MAX));
    }
    let is_on_wire = client.is_some_and(|it| it.connection.is_some());
    if is_on_wire && request.version() == Version::HTTP_11 && !headers.contains_key(HOST) {
        return Err(Refusal::bad_request("missing required Host header"));
    }
    Ok(())
}

/// Rule: a request sees every write that any server acknowledged before it. Health checks, reads with `resourceVersion=0` and watches
/// from a resourceVersion do not wait for that.
fn needs_fresh_state(route: Option<&Route>, query: &Query, kind: &metrics::Kind) -> bool {
    let version = query.get("resourceVersion");
    match route {
        Some(Route::Health(_)) => false,
        _ if kind.is_watch() => version.is_empty(),
        _ => !(kind.is_read() && version == "0"),
    }
}

fn is_of_agent(route: Option<&Route>) -> bool {
    matches!(route, Some(Route::Object(it)) if matches!(it.part, Part::Agent(_)))
}
