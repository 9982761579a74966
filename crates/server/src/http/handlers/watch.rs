//! Watches: GET with the query parameter `watch`, or of a deprecated watch path. Streams the changes of a collection or
//! of one object.

use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::{Either, StreamBody};
use hyper::body::Frame;
use hyper::{Method, StatusCode};
use muster_api::well_known::JSON_MEDIA_TYPE;

use crate::error::ApiError;
use crate::http::negotiation::prefers_yaml;
use crate::http::query::RequestQuery;
use crate::http::reply::response_with_body;
use crate::http::{Api, ApiRequest, ApiResponse, watch_stream, web_socket};
use crate::kinds::Kind;
use crate::limits::WATCH_TIMEOUT_MAX;
use crate::metrics::GaugeGuard;

/// Timeout of a watch whose `timeoutSeconds` is absent or 0. Without a timeout, the watches of dead clients would
/// accumulate.
const WATCH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(45 * 60);

impl Api {
    /// Streams the changes of a collection, or of one object in it, as a response body or as WebSocket
    /// messages.
    pub(super) async fn watch(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        name: Option<&str>,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        let query = &api_request.query;
        let view = api_request.representation()?;
        if !kind.verbs.contains(&"watch") || api_request.method != Method::GET {
            return Err(ApiError::method_not_allowed_on(kind));
        }
        if prefers_yaml(&api_request.accept) {
            return Err(ApiError::representation_not_acceptable());
        }
        let mut selector = query.selector(kind)?;
        if let Some(name) = name {
            selector = selector.for_object(name)?;
        }
        let from = query.watch_start()?;
        if let watch_stream::WatchStart::CurrentState { .. } = from {
            self.wait_for_revision(query.resource_version()?).await?;
        }
        let options = watch_stream::WatchOptions {
            from,
            selector,
            sends_bookmarks: query.is_true("allowWatchBookmarks"),
            timeout: watch_timeout(query)?,
            reauthorization: api_request.reauthorization.clone(),
            kind,
            namespace,
            view,
        };
        let Some(permit) = self.limits.acquire_watch(api_request.charged_user()) else {
            self.registry.metrics.count_refused_request("watch");
            return Err(ApiError::too_many_requests(1));
        };
        let held = (permit, GaugeGuard::new(&self.registry.metrics.long_running_requests));
        let frames = watch_stream::watch_frames(self.registry.clone(), options, self.stop.clone());
        let frames = frames.map(move |it| {
            let _held = &held;
            it
        });
        if let Some(upgrade) = api_request.upgrade.as_ref().filter(|it| it.is_web_socket_upgrade()) {
            return web_socket::serve_watch(
                upgrade,
                frames.boxed(),
                self.response_meter(api_request.charged_user()),
            );
        }
        let body = StreamBody::new(frames.map(|it| Ok(Frame::data(it))).boxed());
        Ok(response_with_body(StatusCode::OK, JSON_MEDIA_TYPE, Either::Right(body)))
    }
}

/// Returns the duration of a watch.
///
/// Rule: a watch lasts as long as its client requests in `timeoutSeconds`, but at most 12 hours. If `timeoutSeconds` is
/// absent or 0, it lasts 45 minutes. A watch with a negative timeout ends immediately, as upstream.
pub(super) fn watch_timeout(query: &RequestQuery) -> Result<Duration, ApiError> {
    Ok(match query.parse_number::<i64>("timeoutSeconds")? {
        None | Some(0) => WATCH_TIMEOUT_DEFAULT,
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(WATCH_TIMEOUT_MAX),
    })
}
