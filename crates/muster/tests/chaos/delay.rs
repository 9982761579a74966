//! Connections that take longer: proxies that pass on every byte after a delay, in both directions. The kernel can
//! delay packets too, but not every kernel has the module for it (`sch_netem`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::topology::TEST_ADDRESS;

/// Time until a byte is passed on.
pub(crate) const DELAY: Duration = Duration::from_millis(200);

/// Proxies that end, with their connections, when this value is dropped.
#[derive(Default)]
pub(crate) struct DelayProxies {
    tasks: JoinSet<()>,
    /// Number of connections so far.
    connections: Arc<AtomicUsize>,
}

impl DelayProxies {
    /// Number of connections that were delayed so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Starts a proxy to `target`. Returns its port.
    pub(crate) async fn add(&mut self, target: SocketAddr) -> u16 {
        let listener = TcpListener::bind((TEST_ADDRESS, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = self.connections.clone();
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                connections.spawn(pass_on(stream, target));
                while connections.try_join_next().is_some() {}
            }
        });
        port
    }
}

/// Passes on the bytes of a connection until one side closes it.
async fn pass_on(client: TcpStream, target: SocketAddr) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let is_set = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let (client, server) = (client.into_split(), server.into_split());
    if is_set.is_ok() {
        tokio::select! {
            () = copy_late(client.0, server.1) => {}
            () = copy_late(server.0, client.1) => {}
        }
    }
}

async fn copy_late(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (queue, mut queued) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let _ = queue.send((Instant::now() + DELAY, buffer[..length].to_vec()));
        }
        // What was read before is still written.
        drop(queue);
        std::future::pending().await
    };
    let write = async {
        while let Some((at, bytes)) = queued.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
