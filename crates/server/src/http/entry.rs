//! The way in: who asks, whether they may, whether there is room, and what is told of it afterwards.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, IF_NONE_MATCH, USER_AGENT};
use hyper::{HeaderMap, Method, Request};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::agent::Upgrade;
use super::query::Query;
use super::reply::{self, nothing_at, refusal};
use super::{Api, Asked, BODY_BYTES_MAX, BoxError, Response};
use crate::audit::Told;
use crate::auth::{self, Deed, Grant, User};
use crate::context::{AuditAnnotation, Context};
use crate::headers;
use crate::limits::{BODY_TIMEOUT, HEADERS_MAX, Limits, URL_BYTES_MAX};
use crate::metrics::{self, Counted};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::{Part, Route};

/// A request, and what becomes known of it on its way in.
struct Visit {
    deed: Deed,
    kind: metrics::Kind,
    now: Timestamp,
    user: Option<User>,
    impersonated: Option<User>,
    grant: Option<Grant>,
    audit_annotations: Vec<AuditAnnotation>,
}

impl Api {
    pub(crate) fn new(registry: Arc<Registry>, stop: CancellationToken) -> Self {
        Self { registry, limits: Arc::new(Limits::default()), audit: None, knower: None, agents: None, stop }
    }

    /// `peer` is who the connection's certificate names. The address of the client is an extension of the request.
    pub(crate) async fn answer<B>(&self, peer: Option<&User>, request: Request<B>) -> Response
    where
        B: hyper::body::Body<Error: Into<BoxError>>,
    {
        let (now, started) = (Timestamp::now(), Instant::now());
        let uri = request.uri().clone();
        let source = request.extensions().get::<IpAddr>().copied();
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
            user: None,
            impersonated: None,
            grant: None,
            audit_annotations: Vec::new(),
        };
        // The parameters of what an agent serves are not ours.
        let timeout =
            if visit.kind.is_watch() || is_of_agent(route.as_ref()) { Ok(None) } else { query.timeout() };
        let answered = match timeout {
            Err(refusal) => Err(refusal),
            Ok(None) => self.let_in(peer, request, route, query, &mut visit).await,
            Ok(Some(timeout)) => {
                let answering = self.let_in(peer, request, route, query, &mut visit);
                tokio::time::timeout(timeout, answering).await.unwrap_or_else(|_| Err(Refusal::timeout()))
            }
        };
        let response = reply::negotiated(answered.unwrap_or_else(|it| refusal(&it)), &accept, is_head);

        let code = response.status().as_u16();
        self.registry.metrics.answered(&visit.kind, code, started.elapsed());
        tracing::debug!(verb = %visit.deed.verb, path = uri.path(), code);
        if let Some(audit) = &self.audit {
            let told = Told {
                deed: &visit.deed,
                uri: uri.path_and_query().map_or("", |it| it.as_str()),
                user: visit.user.as_ref(),
                impersonated: visit.impersonated.as_ref(),
                source,
                user_agent: &user_agent,
                code,
                reason: visit.grant.as_ref().map(ToString::to_string),
                annotations: &visit.audit_annotations,
                begun: now,
                ended: Timestamp::now(),
            };
            audit.tell(&told, &self.registry.metrics);
        }
        response
    }

    /// Nothing of a body is read before it is known that the request may be made, and has its turn.
    async fn let_in<B>(
        &self,
        peer: Option<&User>,
        mut request: Request<B>,
        route: Option<Route>,
        query: Query,
        visit: &mut Visit,
    ) -> Result<Response, Refusal>
    where
        B: hyper::body::Body<Error: Into<BoxError>>,
    {
        if request.uri().path_and_query().is_some_and(|it| URL_BYTES_MAX < it.as_str().len()) {
            return Err(Refusal::url_too_long(URL_BYTES_MAX));
        }
        // HTTP/2 counts their bytes only.
        if HEADERS_MAX < request.headers().len() {
            return Err(Refusal::too_many_headers(HEADERS_MAX));
        }
        let Visit { deed, kind, now, .. } = visit;
        let user = visit.user.insert(auth::authenticate(&self.registry, peer, request.headers(), *now)?);
        let is_stranger = user.is_anonymous();
        let other = auth::impersonated(&self.registry, user, request.headers())?;
        let user = match other {
            Some(other) => visit.impersonated.insert(other),
            None => user,
        };
        // A watch has a place of its own, and so has what an agent serves; health is asked most when there is no room.
        let is_of_agent = is_of_agent(route.as_ref());
        let is_exempt = kind.is_watch() || is_of_agent || matches!(route, Some(Route::Health(_)));
        let _place = if is_exempt {
            None
        } else {
            let Some(place) = self.limits.enter(kind.is_read()).await else {
                self.registry.metrics.refused.inc();
                return Err(Refusal::too_many_requests(1));
            };
            Some((place, Counted::new(&self.registry.metrics.in_flight(kind.is_read()))))
        };
        let allow = if is_stranger { auth::allow_stranger } else { auth::allow };
        visit.grant = Some(allow(&self.registry, user, deed)?);
        let Some(route) = route else { return nothing_at(request.uri().path()) };

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
            source: parts.extensions.get().copied(),
            headers: if is_of_agent { parts.headers.clone() } else { HeaderMap::new() },
            body: whole(body).await?,
        };
        let mut response = self.dispatch(route, &asked).await.unwrap_or_else(|it| refusal(&it));
        reply::warn(&mut response, asked.context.take_warnings());
        visit.audit_annotations = asked.context.take_audit_annotations();
        Ok(response)
    }
}

fn is_of_agent(route: Option<&Route>) -> bool {
    matches!(route, Some(Route::Object(it)) if matches!(it.part, Part::Agent(_)))
}

async fn whole<B>(body: B) -> Result<Bytes, Refusal>
where
    B: hyper::body::Body<Error: Into<BoxError>>,
{
    let read = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::too_large(BODY_BYTES_MAX)),
        Ok(Err(error)) => Err(Refusal::bad_request(format!("read the request's body: {error}"))),
        Err(_) => Err(Refusal::bad_request("the request's body did not come in time")),
    }
}
