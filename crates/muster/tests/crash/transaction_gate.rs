//! A proxy between a server and etcd that holds the transactions which write a certain object, until they may pass.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Failure>;

/// Path of the gRPC method of transactions.
const TXN: &str = "/etcdserverpb.KV/Txn";

/// The proxy. It is open at first. It stops on drop, and closes all connections.
pub(super) struct TransactionGate {
    address: SocketAddr,
    state: Arc<GateState>,
    /// `None` only while the proxy is dropped.
    runtime: Option<Runtime>,
}

struct GateState {
    etcd: SocketAddr,
    /// The store key of the object, as a part of its key in etcd.
    object: Vec<u8>,
    is_open: watch::Sender<bool>,
    /// Number of transactions that were held.
    held: watch::Sender<usize>,
    /// For each transaction that wrote the object and was sent to etcd since the first one was held: whether its
    /// compares held, so that it was applied.
    applied: Mutex<Vec<bool>>,
}

impl TransactionGate {
    /// Starts a proxy on loopback to the member of etcd at this address. `object` is the store key of an object.
    pub(super) fn start(etcd: SocketAddr, object: &str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let object = format!("/o/{object}").into_bytes();
        let (is_open, held, applied) = (watch::Sender::new(true), watch::Sender::new(0), Mutex::default());
        let state = Arc::new(GateState { etcd, object, is_open, held, applied });
        let shared = state.clone();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // The server opens a connection that fails again.
                tokio::spawn(serve_connection(stream, shared.clone()));
            }
        });
        Self { address, state, runtime: Some(runtime) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds all transactions from now on that write the object.
    pub(super) fn close(&self) {
        self.state.is_open.send_replace(false);
    }

    /// Lets all transactions pass, also those that are held.
    pub(super) fn open(&self) {
        self.state.is_open.send_replace(true);
    }

    /// Waits until a transaction is held.
    pub(super) async fn wait_until_held(&self) {
        self.state.held.subscribe().wait_for(|it| 0 < *it).await.expect("the sender is in `self`");
    }

    /// For each transaction that wrote the object and was sent to etcd since the first one was held: whether etcd applied
    /// it.
    pub(super) fn applied(&self) -> Vec<bool> {
        self.state.applied.lock().unwrap().clone()
    }
}

impl Drop for TransactionGate {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may run in a runtime of its own, in which this one must not be waited for.
            runtime.shutdown_background();
        }
    }
}

/// Serves one connection of a server, with a connection to etcd.
async fn serve_connection(stream: TcpStream, state: Arc<GateState>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let upstream = TcpStream::connect(state.etcd).await?;
    upstream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(upstream)).await?;
    tokio::spawn(connection);
    let service = service_fn(move |request| forward(request, sender.clone(), state.clone()));
    server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn forward(
    request: Request<Incoming>,
    mut etcd: SendRequest<Body>,
    state: Arc<GateState>,
) -> Result<Response<Body>, Failure> {
    if request.uri().path() != TXN {
        let request = request.map(|it| it.map_err(Failure::from).boxed_unsync());
        let response = etcd.send_request(request).await?;
        return Ok(response.map(|it| it.map_err(Failure::from).boxed_unsync()));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    // A task of its own: as in a slow network, a held transaction reaches etcd although the server has given it up.
    tokio::spawn(async move {
        let mut is_open = state.is_open.subscribe();
        let writes_object = body.windows(state.object.len()).any(|it| it == state.object);
        if writes_object && !*is_open.borrow() {
            state.held.send_modify(|it| *it += 1);
            is_open.wait_for(|it| *it).await?;
        }
        // Without a length, as gRPC sends it.
        let body = StreamBody::new(stream::iter([Ok(Frame::data(body))])).boxed_unsync();
        let response = etcd.send_request(Request::from_parts(head, body)).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        let body = body.to_bytes();
        // Also a transaction that was sent again after the gate was opened.
        if writes_object && 0 < *state.held.borrow() {
            state.applied.lock().unwrap().push(is_applied(&body));
        }
        let body = Full::new(body).map_err(|never| match never {}).with_trailers(async { trailers.map(Ok) });
        Ok(Response::from_parts(head, body.boxed_unsync()))
    })
    .await?
}

/// Whether the compares of a transaction held. `message` is a gRPC message with a `TxnResponse`, whose field 1 is the
/// header and field 2 is `succeeded`, which is left out if it is false.
fn is_applied(message: &[u8]) -> bool {
    let Some([0x0a, rest @ ..]) = message.get(5..) else {
        panic!("no response of a transaction: {message:?}")
    };
    // The header is shorter than 128 bytes, so its length is one byte.
    let length = usize::from(rest[0]);
    assert!(length < 0x80, "{message:?}");
    matches!(&rest[1 + length..], [0x10, 1, ..])
}
