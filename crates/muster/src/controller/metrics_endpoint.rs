//! Serves `/metrics`, `/healthz`, `/livez`, `/readyz` and `/debug/explain` of the controller over plain HTTP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use muster_control::{ExplainQueries, Monitor, QueryError};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Maximum number of concurrent connections, enough for a metrics scraper, the kubelet's probes and a few users.
const CONNECTIONS_MAX: usize = 32;

/// Maximum duration of a connection. A connection that lasts longer is closed.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after a failed call of `accept`, for example because no file descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The listener for metrics, health checks and explain queries.
pub(crate) struct MetricsEndpoint(TcpListener);

impl MetricsEndpoint {
    /// Opens the listener at this address.
    pub(crate) async fn bind(at: SocketAddr) -> anyhow::Result<Self> {
        let listening = TcpListener::bind(at).await;
        Ok(Self(
            listening
                .with_context(|| format!("listen on {at} for metrics: choose another --metrics-addr"))?,
        ))
    }

    pub(crate) fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    /// Serves connections until the future is dropped.
    pub(crate) async fn serve(&self, monitor: Arc<Monitor>, queries: ExplainQueries) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let permit = permits.clone().acquire_owned().await.expect("it is never closed");
            let stream = match self.0.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accept a connection for metrics");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            let (monitor, queries) = (monitor.clone(), queries.clone());
            tokio::spawn(async move {
                let answering = service_fn(move |request: Request<Incoming>| {
                    let (monitor, queries) = (monitor.clone(), queries.clone());
                    async move {
                        let uri = request.uri();
                        if request.method() == Method::GET && uri.path() == ExplainQueries::PATH {
                            let query = uri.query().unwrap_or_default();
                            return Ok::<_, Infallible>(explain_response(queries.answer(query).await));
                        }
                        let accept = request.headers().get(ACCEPT).and_then(|it| it.to_str().ok());
                        Ok(health_or_metrics_response(
                            &monitor,
                            request.method(),
                            uri.path(),
                            accept.unwrap_or_default(),
                        ))
                    }
                });
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), answering);
                // A client that disconnects is not an error.
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serving).await;
                drop(permit);
            });
        }
    }
}

/// Builds the response to a query at `/debug/explain`.
fn explain_response(answer: Result<String, QueryError>) -> Response<Full<Bytes>> {
    match answer {
        Ok(json) => text_response(StatusCode::OK, "application/json", json),
        Err(why @ QueryError::NoSuchSet) => {
            text_response(StatusCode::NOT_FOUND, "text/plain", why.to_string())
        }
        Err(why @ QueryError::NotLeading) => {
            text_response(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why.to_string())
        }
    }
}

/// Builds the response to any request but a GET of `/debug/explain`. `accept` is the `Accept` header.
fn health_or_metrics_response(
    monitor: &Monitor,
    method: &Method,
    path: &str,
    accept: &str,
) -> Response<Full<Bytes>> {
    let health = |is_healthy: bool, problem: &str| match is_healthy {
        true => (StatusCode::OK, "text/plain", "ok".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", problem.to_owned()),
    };
    let (code, media_type, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let (media_type, text) = monitor.metrics(accept);
            (StatusCode::OK, media_type, text)
        }
        (&Method::GET | &Method::HEAD, "/healthz" | "/livez") => {
            health(monitor.is_alive(), "the control loop is stuck")
        }
        (&Method::GET | &Method::HEAD, "/readyz") => {
            health(monitor.is_ready(), "the initial lists are not complete")
        }
        (_, "/metrics" | "/healthz" | "/livez" | "/readyz" | ExplainQueries::PATH) => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET".to_owned())
        }
        _ => {
            (StatusCode::NOT_FOUND, "text/plain", "/metrics, /healthz, /readyz or /debug/explain".to_owned())
        }
    };
    text_response(code, media_type, text)
}

fn text_response(code: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(media_type));
    response
}
