//! GET with `watch`: streams the changes of a collection or of one object.

use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::{Either, StreamBody};
use hyper::body::Frame;
use hyper::{Method, StatusCode};

use crate::decode::JSON;
use crate::error::ApiError;
use crate::http::negotiation::wants_yaml;
use crate::http::query::Query;
use crate::http::reply::with_body;
use crate::http::{Api, ApiRequest, Response, watch_stream, web_socket};
use crate::kinds::Kind;
use crate::limits::WATCH_TIMEOUT_MAX;
use crate::metrics::Counted;

/// Timeout of a watch whose client sets none, so that dead clients do not accumulate.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45 * 60);

impl Api {
    /// Streams the changes of a collection, or of one object in it, as a response body or as WebSocket
    /// messages.
    pub(super) async fn watch(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        name: Option<&str>,
        asked: &ApiRequest,
    ) -> Result<Response, ApiError> {
        let query = &asked.query;
        let view = asked.view()?;
        if !kind.verbs.contains(&"watch") || asked.method != Method::GET {
            return Err(ApiError::method_not_allowed_on(kind));
        }
        if wants_yaml(&asked.view_wanted) {
            return Err(ApiError::no_such_view());
        }
        let mut selector = query.selector(kind)?;
        if let Some(name) = name {
            selector = selector.of_one(name)?;
        }
        let from = query.watch_from()?;
        if let watch_stream::WatchStart::State { .. } = from {
            self.wait_for(query.version()?).await?;
        }
        let options = watch_stream::WatchOptions {
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
            return Err(ApiError::too_many_requests(1));
        };
        let held = (permit, Counted::new(&self.registry.metrics.watches));
        let frames = watch_stream::stream(self.registry.clone(), options, self.stop.clone());
        let frames = frames.map(move |it| {
            let _held = &held;
            it
        });
        if let Some(upgrade) = asked.upgrade.as_ref().filter(|it| it.is_to_web_socket()) {
            return web_socket::events(upgrade, frames.boxed(), self.meter(asked.charged()));
        }
        let body = StreamBody::new(frames.map(|it| Ok(Frame::data(it))).boxed());
        Ok(with_body(StatusCode::OK, JSON, Either::Right(body)))
    }
}

/// Rule: a watch lasts as long as its client asks for, at most 12 hours; 45 minutes by default. A watch with a
/// negative timeout ends immediately, as upstream.
pub(super) fn watch_timeout(query: &Query) -> Result<Duration, ApiError> {
    Ok(match query.parsed::<i64>("timeoutSeconds")? {
        None | Some(0) => WATCH_TIMEOUT,
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(WATCH_TIMEOUT_MAX),
    })
}
