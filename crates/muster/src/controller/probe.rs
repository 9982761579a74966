//! `/metrics`, `/healthz`, `/readyz` and `/debug/explain` of the controller, in plain HTTP.

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

/// A scraper, the node's probes, and somebody who looks.
const CONNECTIONS_MAX: usize = 32;

/// Whoever takes longer to ask, or to read, is not waited for.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// After an error, such as no file being left to open.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

pub(crate) struct Probe(TcpListener);

impl Probe {
    pub(crate) async fn bind(at: SocketAddr) -> anyhow::Result<Self> {
        let listening = TcpListener::bind(at).await;
        Ok(Self(
            listening
                .with_context(|| format!("listen on {at} for metrics: choose another --metrics-addr"))?,
        ))
    }

    pub(crate) fn at(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    /// Answers for as long as it is waited for.
    pub(crate) async fn serve(&self, monitor: Arc<Monitor>, inquiries: ExplainQueries) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            let stream = match self.0.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection for metrics was not taken");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let (monitor, inquiries) = (monitor.clone(), inquiries.clone());
            tokio::spawn(async move {
                let answering = service_fn(move |request: Request<Incoming>| {
                    let (monitor, inquiries) = (monitor.clone(), inquiries.clone());
                    async move {
                        let uri = request.uri();
                        if request.method() == Method::GET && uri.path() == ExplainQueries::PATH {
                            let query = uri.query().unwrap_or_default();
                            return Ok::<_, Infallible>(explained(inquiries.answer(query).await));
                        }
                        let accept = request.headers().get(ACCEPT).and_then(|it| it.to_str().ok());
                        Ok(answer(&monitor, request.method(), uri.path(), accept.unwrap_or_default()))
                    }
                });
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), answering);
                // A client that goes away is no news.
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serving).await;
                drop(place);
            });
        }
    }
}

fn explained(known: Result<String, QueryError>) -> Response<Full<Bytes>> {
    match known {
        Ok(json) => response(StatusCode::OK, "application/json", json),
        Err(why @ QueryError::NoSuchSet) => response(StatusCode::NOT_FOUND, "text/plain", why.to_string()),
        Err(why @ QueryError::NotLeading) => {
            response(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why.to_string())
        }
    }
}

fn answer(monitor: &Monitor, method: &Method, path: &str, accept: &str) -> Response<Full<Bytes>> {
    let said = |is_good: bool, bad: &str| match is_good {
        true => (StatusCode::OK, "text/plain", "ok".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", bad.to_owned()),
    };
    let (code, media_type, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let (media_type, text) = monitor.metrics(accept);
            (StatusCode::OK, media_type, text)
        }
        (&Method::GET | &Method::HEAD, "/healthz" | "/livez") => said(monitor.is_alive(), "the loop hangs"),
        (&Method::GET | &Method::HEAD, "/readyz") => said(monitor.is_ready(), "the cluster is not known yet"),
        (_, "/metrics" | "/healthz" | "/livez" | "/readyz" | ExplainQueries::PATH) => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET".to_owned())
        }
        _ => {
            (StatusCode::NOT_FOUND, "text/plain", "/metrics, /healthz, /readyz or /debug/explain".to_owned())
        }
    };
    response(code, media_type, text)
}

fn response(code: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(media_type));
    response
}
