//! From an HTTP request to the registry, and back.

mod agent;
mod entry;
mod figures;
mod proxy;
mod query;
mod reply;
mod web_socket;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{Either, StreamBody};
use hyper::body::Frame;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use muster_api::metrics_exposition::Format;
use muster_store::Revision;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::query::{Query, delete_options};
use self::reply::{TEXT, json_of, not_found, respond, show, show_list, success, with_body};
use crate::agents::Agents;
use crate::audit::Audit;
use crate::auth::{self, Reauthorization, User};
use crate::context::Context;
use crate::decode::{self, Gvk, JSON};
use crate::document::Document;
use crate::health::State;
use crate::kinds::Kind;
use crate::knower::Knower;
use crate::limits::{Limits, WATCH_TIMEOUT_MAX};
use crate::metrics::Counted;
use crate::object::{self, str_at};
use crate::patch::PatchType;
use crate::refusal::Refusal;
use crate::registry::{DeleteOptions, Deleted, Registry, Written};
use crate::route::{Part, Route, Target};
use crate::selector::Selector;
use crate::view::{Encoding, View, wants_yaml};
use crate::{convert, discovery, health, openapi, watch};

pub(crate) use self::agent::Held;
use self::agent::Upgrade;
pub(crate) use self::figures::{Figures, total as total_used};
pub(crate) use self::query::is_true;
pub(crate) use self::reply::Response;

/// A response with what it holds until it is sent.
pub(crate) type SentResponse = hyper::Response<crate::flow_control::response::Response<reply::Body>>;

/// How long a list waits for a revision that its client has seen elsewhere.
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// A watch whose client sets no limit ends after this, so that dead clients do not gather.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45 * 60);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) knower: Option<Knower>,
    /// Without it no agent is asked anything.
    pub(crate) agents: Option<Arc<Agents>>,
    pub(crate) stop: CancellationToken,
}

/// A request that was let in, whole.
struct Asked {
    context: Context,
    uri: Uri,
    query: Query,
    method: Method,
    upgrade: Option<Upgrade>,
    view_wanted: String,
    if_none_match: String,
    /// Without its parameters; empty if the client says none.
    media_type: String,
    /// Where the client is.
    source: Option<IpAddr>,
    /// All that it says, if an agent serves it.
    headers: HeaderMap,
    /// For what lasts: a watch, or what an agent serves.
    reauthorization: Option<Reauthorization>,
    /// Whose shares a watch or a stream counts against, if not its user's.
    charged: Option<User>,
    body: Bytes,
}

impl Asked {
    fn charged(&self) -> &User {
        self.charged.as_ref().unwrap_or(&self.context.user)
    }
}

impl Api {
    async fn dispatch(&self, route: Route, asked: &Asked) -> Result<Response, Refusal> {
        let found =
            |document: Option<Value>| document.map_or_else(not_found, |it| json_of(StatusCode::OK, &it));
        let kind = match &route {
            Route::Collection { kind, .. } | Route::Watch { kind, .. } => Some(*kind),
            Route::Object(target) => Some(target.kind),
            _ => None,
        };
        if let Some(text) = kind.and_then(|it| it.deprecated) {
            asked.context.warn(text);
        }
        match route {
            Route::Collection { kind, namespace } => self.collection(kind, namespace, asked).await,
            Route::Watch { kind, namespace, name } => {
                self.watch(kind, namespace, name.as_deref(), asked).await
            }
            Route::Object(target) => self.object(target, asked).await,
            _ if asked.method != Method::GET && asked.method != Method::HEAD => {
                Err(Refusal::method_not_allowed())
            }
            Route::Root => Ok(json_of(StatusCode::OK, &discovery::paths())),
            Route::Health(health) => {
                let excluded: Vec<_> = asked.query.all("exclude").collect();
                let (code, text) =
                    health::answer(&health, self.state(), asked.query.has("verbose"), &excluded);
                Ok(respond(code, TEXT, text.into()))
            }
            Route::Metrics => {
                let text = self.registry.metrics.text(&self.registry, &self.limits.flow_control);
                let format = Format::of(&asked.view_wanted);
                Ok(respond(StatusCode::OK, format.media_type(), format.write(text).into()))
            }
            Route::HealthMetrics => {
                let format = Format::of(&asked.view_wanted);
                Ok(respond(
                    StatusCode::OK,
                    format.media_type(),
                    format.write(health::metrics(self.state())).into(),
                ))
            }
            Route::Explain => match &self.knower {
                Some(knower) => {
                    let (query, of) = (&asked.query, |it: &str| it.to_owned());
                    match knower.ask(of(query.get("namespace")), of(query.get("name"))).await {
                        Ok(json) => Ok(respond(StatusCode::OK, JSON, json.into())),
                        Err(why) => Ok(respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, why.into())),
                    }
                }
                None => Ok(not_found()),
            },
            Route::TokenIssuer => Ok(json_of(StatusCode::OK, &auth::issuer())),
            Route::TokenKeys => {
                let keys = self.registry.access.token_keys().to_string();
                Ok(respond(StatusCode::OK, "application/jwk-set+json", keys.into()))
            }
            Route::Version => Ok(json_of(StatusCode::OK, &discovery::version())),
            Route::CoreVersions => Ok(asked.document(discovery::core(&asked.view_wanted))),
            Route::Groups => Ok(asked.document(discovery::groups(&asked.view_wanted))),
            Route::Group(group) => Ok(found(discovery::group(&group))),
            Route::Resources { group, version } => match discovery::resources(&group, &version) {
                Some(document) => Ok(json_of(StatusCode::OK, &document)),
                None if group.is_empty() || discovery::group(&group).is_some() => {
                    Err(Refusal::no_such_resource())
                }
                None => Ok(not_found()),
            },
            Route::OpenApiV2 => Ok(asked.document(openapi::v2(&asked.view_wanted))),
            Route::OpenApiV3Index => Ok(asked.document(openapi::v3_index())),
            Route::OpenApiV3 { group, version } => {
                Ok(openapi::v3(&group, &version).map_or_else(not_found, |it| asked.document(it)))
            }
        }
    }

    async fn collection(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        asked: &Asked,
    ) -> Result<Response, Refusal> {
        let (context, query) = (&asked.context, &asked.query);
        // What is served is what was authorized.
        if context.verb == "watch" {
            return self.watch(kind, namespace, None, asked).await;
        }
        let view = asked.view()?;
        if !kind.verbs.contains(&context.verb.as_ref()) {
            return Err(kind.method_not_allowed());
        }
        if let Some(of) = kind.figures {
            let listed = self.figures(kind, of, namespace.as_deref(), &query.selector(kind)?).await?;
            return Ok(show_list(context, asked.list_as(view), kind, listed));
        }
        match asked.method {
            Method::GET => {
                watch_timeout(query)?;
                let options = query.list_options(kind)?;
                self.wait_for(query.version()?).await?;
                let listed = self.registry.list_page(kind, namespace.as_deref(), &options)?;
                Ok(show_list(context, asked.list_as(view), kind, listed))
            }
            Method::POST => {
                if kind.namespaced && namespace.is_none() {
                    return Err(Refusal::method_not_allowed());
                }
                if let Some(answer) = kind.answer {
                    view.must_be_whole()?;
                    let target = Target { kind, namespace, name: String::new(), part: Part::Whole };
                    let answered = answer(self, context, &target, asked.object(kind.gvk())?).await?;
                    return Ok(json_of(StatusCode::CREATED, &answered));
                }
                let object = convert::inward(kind, asked.object(kind.gvk())?);
                let created = self.registry.create(context, kind, namespace.as_deref(), object).await?;
                Ok(show(context, StatusCode::CREATED, view, kind, created))
            }
            Method::DELETE => {
                let chosen = query.list_options(kind)?;
                let (options, context) = asked.delete_options()?;
                let listed = self.registry.list_page(kind, namespace.as_deref(), &chosen)?;
                let target = |object: &Bytes| {
                    let object = object::parse(object);
                    Target {
                        kind,
                        namespace: kind.namespaced.then(|| str_at(&object, "metadata.namespace").to_owned()),
                        name: str_at(&object, "metadata.name").to_owned(),
                        part: Part::Whole,
                    }
                };
                let targets: Vec<Target> = listed.objects.iter().map(target).collect();
                // All or none: a request that is refused for one object deletes no other.
                for target in &targets {
                    match self.registry.may_delete(&context, target, &options).await {
                        Err(it) if !it.is_not_found() => return Err(it),
                        _ => {}
                    }
                }
                for target in targets {
                    match self.registry.delete(&context, &target, &options).await {
                        Ok(_) => {}
                        // Someone else was quicker, which is as good.
                        Err(it) if it.is_not_found() => {}
                        Err(it) => return Err(it),
                    }
                }
                Ok(show_list(&context, asked.list_as(view), kind, listed))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    /// The changes of a collection, or of one object of it, as the body or as messages of a WebSocket.
    async fn watch(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        name: Option<&str>,
        asked: &Asked,
    ) -> Result<Response, Refusal> {
        let query = &asked.query;
        let view = asked.view()?;
        if !kind.verbs.contains(&"watch") || asked.method != Method::GET {
            return Err(kind.method_not_allowed());
        }
        if wants_yaml(&asked.view_wanted) {
            return Err(Refusal::no_such_view());
        }
        let mut selector = query.selector(kind)?;
        if let Some(name) = name {
            selector = selector.of_one(name)?;
        }
        let from = query.watch_from()?;
        if let watch::From::State { .. } = from {
            self.wait_for(query.version()?).await?;
        }
        let wanted = watch::Wanted {
            from,
            selector,
            bookmarks: query.is("allowWatchBookmarks"),
            timeout: watch_timeout(query)?,
            reauthorization: asked.reauthorization.clone(),
            kind,
            namespace,
            view,
        };
        let Some(permit) = self.limits.watch(asked.charged()) else {
            self.registry.metrics.rejected("watch");
            return Err(Refusal::too_many_requests(1));
        };
        let held = (permit, Counted::new(&self.registry.metrics.watches));
        let frames = watch::stream(self.registry.clone(), wanted, self.stop.clone());
        let frames = frames.map(move |it| {
            let _place = &held;
            it
        });
        if let Some(upgrade) = asked.upgrade.as_ref().filter(|it| it.is_to_web_socket()) {
            return web_socket::events(upgrade, frames.boxed(), self.meter(asked.charged()));
        }
        let body = StreamBody::new(frames.map(|it| Ok(Frame::data(it))).boxed());
        Ok(with_body(StatusCode::OK, JSON, Either::Right(body)))
    }

    fn state(&self) -> State {
        let is_full = self.registry.is_full.load(Ordering::Relaxed);
        State {
            is_stopping: self.stop.is_cancelled(),
            is_writable: !is_full,
            store_bytes: self.registry.bytes(),
        }
    }

    async fn object(&self, target: Target, asked: &Asked) -> Result<Response, Refusal> {
        let context = &asked.context;
        let kind = target.kind;
        if let Part::Agent(what) = target.part {
            let verbs = kind.parts.iter().find(|it| it.part == target.part).map_or(&[][..], |it| it.verbs);
            // What is reached through a proxy may be asked what it can do.
            let is_known = verbs.contains(&context.verb.as_ref()) || asked.method == Method::OPTIONS;
            return match what {
                "proxy" if is_known => self.proxied(&target, asked).await,
                what if verbs.contains(&context.verb.as_ref()) => self.of_agent(&target, what, asked).await,
                _ => Err(Refusal::method_not_allowed()),
            };
        }
        let view = asked.view()?;
        let show = |code, object| show(context, code, view, kind, object);
        let written = |it| match it {
            Written::Created(object) => show(StatusCode::CREATED, object),
            Written::Updated(object) => show(StatusCode::OK, object),
        };
        let verbs = match target.part {
            Part::Whole => kind.verbs,
            Part::Status => &["get", "patch", "update"],
            part => kind.parts.iter().find(|it| it.part == part).map_or(&[][..], |it| it.verbs),
        };
        if !verbs.contains(&context.verb.as_ref()) {
            return Err(kind.method_not_allowed());
        }
        if let Some(of) = kind.figures {
            let selector = Selector::parse(kind, "", &format!("metadata.name={}", target.name))?;
            let told = self.figures(kind, of, target.namespace.as_deref(), &selector).await?.objects.pop();
            let missing = || Refusal::not_found(kind, &target.name);
            return Ok(show(StatusCode::OK, told.ok_or_else(missing)?));
        }
        match (asked.method.clone(), target.part) {
            (Method::GET, part) if part.is_written() => {
                self.wait_for(asked.query.version()?).await?;
                Ok(show(StatusCode::OK, self.registry.get(&target)?))
            }
            (Method::PUT, part) if part.is_written() || part == Part::Finalize => {
                let mut object = asked.object(kind.gvk())?;
                hold_to_url(&target, &mut object)?;
                let object = convert::inward(kind, object);
                Ok(written(self.registry.replace(context, &target, object).await?))
            }
            (Method::PATCH, part) if part.is_written() => {
                let patch_type = PatchType::of(&asked.media_type)?;
                patch_type.refuse_options(&context.field_manager, asked.query.has("force"))?;
                if patch_type == PatchType::Apply {
                    let (applied, complaints) = decode::applied(&asked.body)?;
                    let force = asked.query.is("force");
                    let check = |object: &mut Value| {
                        decode::complain_of_yaml(context, &complaints)?;
                        hold_to_url(&target, object)
                    };
                    return Ok(written(self.registry.apply(context, &target, &applied, force, check).await?));
                }
                let change = |old: &Value| {
                    let old = convert::outward_value(kind, old.clone());
                    let (object, complaints) = patch_type.apply(kind.gvk(), &old, &asked.body)?;
                    let mut object = decode::patched(context, kind.gvk(), object, complaints)?;
                    hold_to_url(&target, &mut object)?;
                    Ok(convert::inward(kind, object))
                };
                Ok(show(StatusCode::OK, self.registry.update(context, &target, change).await?))
            }
            (Method::DELETE, Part::Whole) => {
                let (options, context) = asked.delete_options()?;
                match self.registry.delete(&context, &target, &options).await? {
                    Deleted::Marked { now } if options.is_cascade_asked => {
                        Ok(show(StatusCode::ACCEPTED, now))
                    }
                    Deleted::Marked { now } => Ok(show(StatusCode::OK, now)),
                    Deleted::Gone { last } if kind.returns_deleted => Ok(show(StatusCode::OK, last)),
                    Deleted::Gone { last } => {
                        let mut details = json!({
                            "name": target.name,
                            "kind": kind.plural,
                            "uid": object::parse(&last)["metadata"]["uid"],
                        });
                        if !kind.group.is_empty() {
                            details["group"] = json!(kind.group);
                        }
                        Ok(json_of(StatusCode::OK, &success(details)))
                    }
                }
            }
            (Method::POST, part) => {
                let Some(sub) = kind.parts.iter().find(|it| it.part == part) else {
                    return Err(Refusal::method_not_allowed());
                };
                let (Some((group, version, kind)), Some(answer)) = (sub.body, sub.answer) else {
                    return Err(Refusal::method_not_allowed());
                };
                view.must_be_whole()?;
                let body = match (asked.object(Gvk { group, version, kind }), sub.older) {
                    (Err(_), Some(version)) => asked.object(Gvk { group, version, kind })?,
                    (body, _) => body?,
                };
                Ok(json_of(StatusCode::CREATED, &answer(self, context, &target, body).await?))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    /// What is read must not be older than what its client has seen already.
    async fn wait_for(&self, wanted: Revision) -> Result<(), Refusal> {
        if wanted <= self.registry.revision() {
            return Ok(());
        }
        let mut heads = self.registry.heads();
        let came = heads.wait_for(|head| wanted <= *head);
        // The head is let go at once: a writer waits for it.
        match tokio::time::timeout(REVISION_WAIT, came).await.map(drop) {
            Ok(()) => Ok(()),
            Err(_) => Err(Refusal::revision_not_yet(wanted, self.registry.revision())),
        }
    }
}

impl Asked {
    fn view(&self) -> Result<View, Refusal> {
        View::of(&self.view_wanted, self.query.get("includeObject"))
    }

    fn list_as(&self, view: View) -> (View, Encoding) {
        (view, if wants_yaml(&self.view_wanted) { Encoding::Yaml } else { Encoding::Json })
    }

    fn document(&self, document: &Document) -> Response {
        reply::document(document, &self.if_none_match)
    }

    fn object(&self, expected: Gvk<'_>) -> Result<Value, Refusal> {
        decode::object(&self.context, expected, &self.media_type, &self.body)
    }

    /// The options come in the body, which kubectl sends without kind and version, or in the query. They may ask for a
    /// dry run too.
    fn delete_options(&self) -> Result<(DeleteOptions, Context), Refusal> {
        let expected = Gvk { group: "", version: "v1", kind: "DeleteOptions" };
        let said = if self.body.is_empty() { None } else { Some(self.object(expected)?) };
        let (options, dry_run) = delete_options(&self.query, said.as_ref())?;
        let context = Context {
            dry_run: self.context.dry_run || dry_run,
            field_manager: self.context.field_manager.clone(),
            user_agent: self.context.user_agent.clone(),
            ..Context::new(self.context.user.clone(), self.context.verb.clone(), self.context.now)
        };
        Ok((options, context))
    }
}

/// Rule: a watch lasts as long as its client asks for, 12 hours at most; 45 minutes if it does not ask. A negative time is over at
/// once, as upstream.
fn watch_timeout(query: &Query) -> Result<Duration, Refusal> {
    Ok(match query.parsed::<i64>("timeoutSeconds")? {
        None | Some(0) => WATCH_TIMEOUT,
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(WATCH_TIMEOUT_MAX),
    })
}

/// The object must be the one that the URL names.
fn hold_to_url(target: &Target, object: &mut Value) -> Result<(), Refusal> {
    let meta = object::map_mut(object, "metadata");
    match (target.namespace.as_deref(), meta.get("namespace").and_then(Value::as_str)) {
        (Some(namespace), Some(said)) if said == namespace => {}
        (Some(namespace), None | Some("")) => drop(meta.insert("namespace".into(), json!(namespace))),
        (None, _) => drop(meta.remove("namespace")),
        (Some(_), Some(_)) => {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    match str_at(object, "metadata.name") {
        "" => Err(Refusal::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        name if name == target.name => Ok(()),
        name => Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
