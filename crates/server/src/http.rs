//! From an HTTP request to the registry, and back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::Frame;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use jiff::Timestamp;
use muster_store::Revision;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kinds::Kind;
use crate::object::{self, str_at};
use crate::patch::PatchType;
use crate::refusal::Refusal;
use crate::registry::{DeleteOptions, Deleted, Propagation, Registry, Write};
use crate::route::{Part, Route, Target};
use crate::selector::Selector;
use crate::view::View;
use crate::{discovery, openapi, watch};

/// As upstream: a ConfigMap may hold 1 MiB, and travels as JSON with escapes.
const BODY_BYTES_MAX: usize = 3 << 20;

/// How long a list waits for a revision that its client has seen elsewhere.
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// A watch whose client sets no limit ends after this, so that dead clients do not gather.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45 * 60);

pub(crate) type Response = hyper::Response<Body>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) registry: Arc<Registry>,
    pub(crate) stop: CancellationToken,
}

/// Who asks. A certificate of our own CA is an administrator's: there is no one else yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Anonymous,
    Admin,
}

impl Api {
    pub(crate) async fn answer<B>(&self, caller: Caller, request: Request<B>) -> Response
    where
        B: hyper::body::Body<Error: Into<BoxError>>,
    {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some(route) = Route::parse(&path) else {
            if caller == Caller::Anonymous {
                return refusal(&Refusal::unauthorized());
            }
            return plain(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        if caller == Caller::Anonymous && !route.is_public() {
            return refusal(&Refusal::unauthorized());
        }
        // No body is read for a stranger.
        let response = match whole(request).await {
            Ok(request) => self.dispatch(route, request).await.unwrap_or_else(|it| refusal(&it)),
            Err(it) => refusal(&it),
        };
        tracing::debug!(%method, path, status = response.status().as_u16());
        response
    }

    async fn dispatch(&self, route: Route, request: Request<Bytes>) -> Result<Response, Refusal> {
        let found = |document: Option<Value>| {
            document.map_or_else(
                || plain(StatusCode::NOT_FOUND, "404 page not found\n"),
                |it| json_of(StatusCode::OK, &it),
            )
        };
        match route {
            Route::Collection { kind, namespace } => self.collection(kind, namespace, request).await,
            Route::Object(target) => self.object(target, request).await,
            _ if request.method() != Method::GET && request.method() != Method::HEAD => {
                Err(Refusal::method_not_allowed())
            }
            Route::Health => Ok(plain(StatusCode::OK, "ok")),
            Route::Version => Ok(json_of(StatusCode::OK, &discovery::version())),
            Route::CoreVersions => Ok(json_of(StatusCode::OK, &discovery::core_versions())),
            Route::Groups => Ok(json_of(StatusCode::OK, &discovery::groups())),
            Route::Group(group) => Ok(found(discovery::group(&group))),
            Route::Resources { group, version } => Ok(found(discovery::resources(&group, &version))),
            Route::OpenApiV2 => Ok(respond(StatusCode::OK, openapi::V2_MEDIA_TYPE, openapi::v2())),
            Route::OpenApiV3Index => Ok(json_of(StatusCode::OK, &openapi::v3_index())),
            Route::OpenApiV3 { group, version } => Ok(found(openapi::v3(&group, &version))),
        }
    }

    async fn collection(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        request: Request<Bytes>,
    ) -> Result<Response, Refusal> {
        let query = Query::of(&request);
        let view = View::of(&header(&request, ACCEPT), query.get("includeObject"))?;
        match *request.method() {
            Method::GET if query.is("watch") => {
                let wanted = watch::Wanted {
                    from: query.watch_from()?,
                    selector: query.selector(kind)?,
                    bookmarks: query.is("allowWatchBookmarks"),
                    timeout: query
                        .number("timeoutSeconds")?
                        .filter(|s| *s != 0)
                        .map_or(WATCH_TIMEOUT, Duration::from_secs),
                    kind,
                    namespace,
                    view,
                };
                let frames = watch::stream(self.registry.clone(), wanted, self.stop.clone());
                let body = StreamBody::new(frames.map(|it| Ok(Frame::data(it))).boxed());
                Ok(with_body(StatusCode::OK, JSON, Either::Right(body)))
            }
            Method::GET => {
                self.wait_for(&query).await?;
                let selector = query.selector(kind)?;
                let (objects, revision) = self.registry.list(kind, namespace.as_deref(), &selector);
                Ok(respond(StatusCode::OK, JSON, view.of_list(kind, &objects, revision, Timestamp::now())))
            }
            Method::POST => {
                if kind.namespaced && namespace.is_none() {
                    return Err(Refusal::method_not_allowed());
                }
                let write = query.write()?;
                let object = object_in(kind, &request)?;
                let created = self.registry.create(kind, namespace.as_deref(), object, write)?;
                Ok(show(StatusCode::CREATED, view, kind, created))
            }
            Method::DELETE => {
                let (selector, write) = (query.selector(kind)?, query.write()?);
                let (options, dry_run) = delete_options(&query, &request)?;
                let write = Write { dry_run: write.dry_run || dry_run, ..write };
                let (objects, revision) = self.registry.list(kind, namespace.as_deref(), &selector);
                for object in &objects {
                    let object = object::parse(object);
                    let target = Target {
                        kind,
                        namespace: kind.namespaced.then(|| str_at(&object, "metadata.namespace").to_owned()),
                        name: str_at(&object, "metadata.name").to_owned(),
                        part: Part::Whole,
                    };
                    match self.registry.delete(&target, &options, write) {
                        Ok(_) => {}
                        // Someone else was quicker, which is as good.
                        Err(it) if it.code == StatusCode::NOT_FOUND => {}
                        Err(it) => return Err(it),
                    }
                }
                Ok(respond(StatusCode::OK, JSON, view.of_list(kind, &objects, revision, Timestamp::now())))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    async fn object(&self, target: Target, request: Request<Bytes>) -> Result<Response, Refusal> {
        let query = Query::of(&request);
        let kind = target.kind;
        let view = View::of(&header(&request, ACCEPT), query.get("includeObject"))?;
        match (request.method().clone(), target.part) {
            (Method::GET, Part::Whole | Part::Status) => {
                Ok(show(StatusCode::OK, view, kind, self.registry.get(&target)?))
            }
            (Method::PUT, Part::Whole | Part::Status) => {
                let write = query.write()?;
                let object = object_in(kind, &request)?;
                refuse_other_name(&target, &object)?;
                Ok(show(StatusCode::OK, view, kind, self.registry.update(&target, write, |_| Ok(object))?))
            }
            (Method::PATCH, Part::Whole | Part::Status) => {
                let write = query.write()?;
                let patch_type = PatchType::of(&media_type(&request))?;
                let patch = parse(request.body())?;
                let patched = self.registry.update(&target, write, |mut object| {
                    patch_type.apply(&mut object, &patch)?;
                    refuse_other_name(&target, &object)?;
                    Ok(object)
                })?;
                Ok(show(StatusCode::OK, view, kind, patched))
            }
            (Method::DELETE, Part::Whole) => {
                let write = query.write()?;
                let (options, dry_run) = delete_options(&query, &request)?;
                let write = Write { dry_run: write.dry_run || dry_run, ..write };
                match self.registry.delete(&target, &options, write)? {
                    Deleted::Marked { now } => Ok(show(StatusCode::OK, view, kind, now)),
                    Deleted::Gone { last } => {
                        let details = json!({
                            "name": target.name,
                            "group": kind.group,
                            "kind": kind.plural,
                            "uid": object::parse(&last)["metadata"]["uid"],
                        });
                        Ok(json_of(StatusCode::OK, &success(details)))
                    }
                }
            }
            (Method::POST, Part::Binding) => {
                let write = query.write()?;
                refuse_other_format(&request)?;
                let binding = parse(request.body())?;
                self.registry.bind(&target, &binding, write)?;
                Ok(json_of(StatusCode::CREATED, &success(Value::Null)))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    /// A list must not be older than what its client has seen already.
    async fn wait_for(&self, query: &Query) -> Result<(), Refusal> {
        if !query.get("continue").is_empty() {
            return Err(Refusal::expired("the continue parameter is not one of ours: list from the start"));
        }
        let Some(wanted) = query.number("resourceVersion")? else { return Ok(()) };
        let mut heads = self.registry.heads();
        let came = heads.wait_for(|head| wanted <= *head);
        // The head is let go at once: a writer that holds the store waits for it.
        let came = tokio::time::timeout(REVISION_WAIT, came).await.map(drop);
        let current: Revision = self.registry.revision();
        if came.is_err() {
            return Err(Refusal::revision_not_yet(wanted, current));
        }
        // The state of the past is not kept, only its changes.
        if query.get("resourceVersionMatch") == "Exact" && wanted < current {
            return Err(Refusal::expired("The resourceVersion for the provided list is too old."));
        }
        Ok(())
    }
}

struct Query(Vec<(String, String)>);

impl Query {
    fn of(request: &Request<Bytes>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(it, _)| it == name).map_or("", |(_, value)| value)
    }

    fn is(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.get(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Refusal::bad_request(format!("{name}: {text:?} is not a number"))),
            },
        }
    }

    fn selector(&self, kind: &Kind) -> Result<Selector, Refusal> {
        Selector::parse(kind, self.get("labelSelector"), self.get("fieldSelector"))
    }

    fn write(&self) -> Result<Write, Refusal> {
        let dry_run = match self.get("dryRun") {
            "" => false,
            "All" => true,
            other => return Err(unknown_dry_run(other)),
        };
        Ok(Write { now: Timestamp::now(), dry_run })
    }

    fn watch_from(&self) -> Result<watch::From, Refusal> {
        let from_anywhere = matches!(self.get("resourceVersion"), "" | "0");
        match (self.get("sendInitialEvents"), self.get("resourceVersionMatch")) {
            ("", "") if from_anywhere => Ok(watch::From::State { say_end: false }),
            ("", "") => {
                Ok(watch::From::After(self.number("resourceVersion")?.expect("it is neither empty nor 0")))
            }
            ("true" | "1", "NotOlderThan") => {
                Ok(watch::From::State { say_end: self.is("allowWatchBookmarks") })
            }
            ("false" | "0", "NotOlderThan") if from_anywhere => Ok(watch::From::Now),
            ("false" | "0", "NotOlderThan") => {
                Ok(watch::From::After(self.number("resourceVersion")?.expect("it is neither empty nor 0")))
            }
            ("", _) => Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            _ => Err(Refusal::invalid_options(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
        }
    }
}

fn unknown_dry_run(value: &str) -> Refusal {
    Refusal::invalid_options(format!("dryRun: Unsupported value: {value:?}: supported values: \"All\""))
}

/// The options come in the body, which kubectl sends without kind and version, or in the query.
fn delete_options(query: &Query, request: &Request<Bytes>) -> Result<(DeleteOptions, bool), Refusal> {
    refuse_other_format(request)?;
    let said = if request.body().is_empty() { Value::Null } else { parse(request.body())? };
    let propagation = match (str_at(&said, "propagationPolicy"), query.get("propagationPolicy")) {
        ("", it) | (it, _) => match it {
            "" if said["orphanDependents"] == true => Some(Propagation::Orphan),
            "" => None,
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                return Err(Refusal::invalid_options(format!(
                    "propagationPolicy: Unsupported value: {other:?}: supported values: \"Background\", \"Foreground\", \"Orphan\""
                )));
            }
        },
    };
    let dry_run = match object::list(&said, "dryRun") {
        [] => false,
        [all] if all == "All" => true,
        [other, ..] => return Err(unknown_dry_run(other.as_str().unwrap_or_default())),
    };
    let text = |path| Some(str_at(&said, path).to_owned()).filter(|it| !it.is_empty());
    let in_query = query.number("gracePeriodSeconds")?.and_then(|it| i64::try_from(it).ok());
    let options = DeleteOptions {
        grace_s: said["gracePeriodSeconds"].as_i64().or(in_query),
        propagation,
        uid: text("preconditions.uid"),
        version: text("preconditions.resourceVersion"),
    };
    Ok((options, dry_run))
}

/// The object in a body, of the kind that the path says.
fn object_in(kind: &Kind, request: &Request<Bytes>) -> Result<Value, Refusal> {
    refuse_other_format(request)?;
    let object = parse(request.body())?;
    for (field, must) in [("kind", kind.kind), ("apiVersion", &kind.api_version())] {
        let said = str_at(&object, field);
        if !said.is_empty() && said != must {
            return Err(Refusal::bad_request(format!(
                "the {field} in the data ({said}) does not match the expected {field} ({must})"
            )));
        }
    }
    Ok(object)
}

fn refuse_other_name(target: &Target, object: &Value) -> Result<(), Refusal> {
    let url = [("name", Some(target.name.as_str())), ("namespace", target.namespace.as_deref())];
    for (field, must) in url {
        let said = str_at(&object["metadata"], field);
        if !said.is_empty() && said != must.unwrap_or_default() {
            return Err(Refusal::bad_request(format!(
                "the {field} of the object ({said}) does not match the {field} on the URL ({})",
                must.unwrap_or_default()
            )));
        }
    }
    Ok(())
}

fn refuse_other_format(request: &Request<Bytes>) -> Result<(), Refusal> {
    match media_type(request).as_str() {
        "" | JSON => Ok(()),
        other => Err(Refusal::unsupported_media(other, JSON)),
    }
}

fn media_type(request: &Request<Bytes>) -> String {
    header(request, CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned()
}

fn header(request: &Request<Bytes>, name: hyper::header::HeaderName) -> String {
    request.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned()
}

async fn whole<B>(request: Request<B>) -> Result<Request<Bytes>, Refusal>
where
    B: hyper::body::Body<Error: Into<BoxError>>,
{
    let (parts, body) = request.into_parts();
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(Request::from_parts(parts, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large(BODY_BYTES_MAX)),
        Err(error) => Err(Refusal::bad_request(format!("read the request's body: {error}"))),
    }
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}")))
}

fn success(details: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details})
}

const JSON: &str = "application/json";

fn show(code: StatusCode, view: View, kind: &Kind, object: Bytes) -> Response {
    match view {
        View::Whole => respond(code, JSON, object),
        view => json_of(code, &view.of_object(kind, object::parse(&object), Timestamp::now())),
    }
}

fn refusal(refusal: &Refusal) -> Response {
    json_of(refusal.code, &refusal.status())
}

fn json_of(code: StatusCode, value: &Value) -> Response {
    respond(code, JSON, object::bytes(value))
}

fn plain(code: StatusCode, text: &'static str) -> Response {
    respond(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn respond(code: StatusCode, media_type: &'static str, body: Bytes) -> Response {
    with_body(code, media_type, Either::Left(Full::new(body)))
}

fn with_body(code: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = hyper::Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests;
