//! A proxy between a server and etcd that delivers the events of watches late.
//!
//! Servers on one machine get an event within a millisecond, which is less than a client takes for its next request. So
//! a read that does not wait for the read barrier would hardly ever be stale. Behind this proxy it is always stale after
//! a write through another server.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Path of the gRPC method whose responses are delayed.
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// The proxy. It stops on drop, and closes all connections.
pub(crate) struct LateWatchProxy {
    address: SocketAddr,
    /// `None` only while the proxy is dropped.
    runtime: Option<Runtime>,
}

impl LateWatchProxy {
    /// Starts a proxy on loopback to the member of etcd at this address.
    pub(crate) fn start(etcd: SocketAddr, delay: Duration) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // The server opens a connection that fails again.
                tokio::spawn(serve_connection(stream, etcd, delay));
            }
        });
        Self { address, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LateWatchProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may run in a runtime of its own, in which this one must not be waited for.
            runtime.shutdown_background();
        }
    }
}

/// Serves one connection of a server, with a connection to etcd.
async fn serve_connection(stream: TcpStream, etcd: SocketAddr, delay: Duration) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let upstream = TcpStream::connect(etcd).await?;
    upstream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(upstream)).await?;
    tokio::spawn(connection);
    let service = service_fn(move |request| forward(request, sender.clone(), delay));
    server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn forward(
    request: Request<Incoming>,
    mut etcd: SendRequest<Incoming>,
    delay: Duration,
) -> Result<Response<UnsyncBoxBody<Bytes, hyper::Error>>, hyper::Error> {
    let is_watch = request.uri().path() == WATCH;
    let response = etcd.send_request(request).await?;
    Ok(response.map(|it| if is_watch { delayed(it, delay).boxed_unsync() } else { it.boxed_unsync() }))
}

/// Delays every frame of a body.
fn delayed(mut body: Incoming, delay: Duration) -> impl Body<Data = Bytes, Error = hyper::Error> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                // The server has ended the watch.
                () = sender.closed() => return,
            };
            let Some(frame) = frame else { return };
            let _ = sender.send((Instant::now() + delay, frame));
        }
    });
    StreamBody::new(stream::unfold(receiver, |mut receiver| async move {
        let (at, frame) = receiver.recv().await?;
        tokio::time::sleep_until(at).await;
        Some((frame, receiver))
    }))
}
