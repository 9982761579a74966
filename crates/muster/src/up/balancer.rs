//! A TCP load balancer in front of several API servers, so that clients with one URL reach a server that works. It
//! forwards TLS connections as they are, and has no certificates of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use kube::Client;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Maximum number of open connections. Clients beyond it wait until another connection closes.
const CONNECTIONS_MAX: usize = 2048;

/// Maximum time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between two health checks of a server.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time for the response to a health check.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of consecutive failed health checks after which a server counts as unhealthy.
const FAILED_CHECKS_MAX: usize = 2;

/// Delay after a failed call of `accept`, for example because too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// An API server behind the balancer.
pub(super) struct Backend {
    pub(super) address: SocketAddr,
    /// Client that connects to this server directly, for health checks. `None` until [`Self::set_client`] is called.
    client: Mutex<Option<Client>>,
    /// Whether the server counts as healthy.
    is_healthy: watch::Sender<bool>,
}

impl Backend {
    /// Creates a server that counts as unhealthy until its first health check succeeds.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, client: Mutex::default(), is_healthy: watch::Sender::new(false) }
    }

    /// Sets the client for health checks.
    pub(super) fn set_client(&self, client: Client) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// Waits until the server is healthy.
    pub(super) async fn wait_until_healthy(&self) {
        // The sender is in `self`, so the channel is open.
        let _ = self.is_healthy.subscribe().wait_for(|it| *it).await;
    }

    /// Checks the health of the server repeatedly. Never returns.
    async fn check_repeatedly(&self) {
        let mut failed = 0;
        loop {
            failed = if self.is_ready().await { 0 } else { failed + 1 };
            let is_healthy = match failed {
                0 => true,
                1..FAILED_CHECKS_MAX => *self.is_healthy.borrow(),
                _ => false,
            };
            self.is_healthy.send_if_modified(|it| std::mem::replace(it, is_healthy) != is_healthy);
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }

    /// Whether the server answers `/readyz` with success in time.
    async fn is_ready(&self) -> bool {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(client) = client else { return false };
        let request = Request::get("/readyz").body(Vec::new()).expect("the path is valid");
        let response = tokio::time::timeout(HEALTH_CHECK_TIMEOUT, client.request_text(request)).await;
        matches!(response, Ok(Ok(_)))
    }
}

/// The load balancer: forwards each connection to one of the healthy servers in turn.
pub(super) struct Balancer {
    backends: Vec<Arc<Backend>>,
    /// Index of the server that gets the next connection, modulo the number of servers.
    next: AtomicUsize,
    /// One permit for each connection that may be open.
    permits: Arc<Semaphore>,
}

impl Balancer {
    pub(super) fn new(backends: Vec<Arc<Backend>>) -> Self {
        Self { backends, next: AtomicUsize::new(0), permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Checks the health of all servers repeatedly. Never returns.
    pub(super) async fn check_health(self: Arc<Self>) {
        futures::future::join_all(self.backends.iter().map(|it| it.check_repeatedly())).await;
    }

    /// Accepts and forwards the connections of a listener, from the first successful health check of a server on. If all
    /// checks fail, connections are accepted after [`HEALTH_CHECK_TIMEOUT`], so that clients get an error. Never returns.
    pub(super) async fn run(self: Arc<Self>, listener: TcpListener) {
        let any_healthy = self.backends.iter().map(|it| Box::pin(it.wait_until_healthy()));
        let any_healthy = futures::future::select_all(any_healthy);
        let _ = tokio::time::timeout(HEALTH_CHECK_TIMEOUT, any_healthy).await;
        let mut tasks = JoinSet::new();
        loop {
            let permit = self.permits.clone().acquire_owned().await.expect("the semaphore is not closed");
            match listener.accept().await {
                Ok((connection, _)) => {
                    let balancer = self.clone();
                    tasks.spawn(async move {
                        balancer.forward(connection).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the load balancer cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Forwards one connection until either side closes it or the server becomes unhealthy. Closes the connection if no
    /// server can be reached.
    async fn forward(&self, mut client: TcpStream) {
        let Some((mut server, backend)) = self.connect().await else { return };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let mut is_healthy = backend.is_healthy.subscribe();
        tokio::select! {
            // An error ends the connection, and the client sees that.
            _ = copy_bidirectional(&mut client, &mut server) => {}
            _ = is_healthy.wait_for(|it| !*it) => {}
        }
    }

    /// Connects to the next healthy server. Tries the others if this fails. Returns `None` if all fail.
    async fn connect(&self) -> Option<(TcpStream, Arc<Backend>)> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.backends.len();
        let (before, from) = self.backends.split_at(first);
        for backend in from.iter().chain(before).filter(|it| *it.is_healthy.borrow()) {
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(backend.address));
            if let Ok(Ok(server)) = connecting.await {
                return Some((server, backend.clone()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Starts a server that sends its name to every client, and then keeps the connection open.
    async fn start_named_server(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    connection.write_all(name.as_bytes()).await.unwrap();
                    let _ = connection.read_u8().await;
                });
            }
        });
        address
    }

    async fn read_name(connection: &mut TcpStream) -> String {
        let mut name = [0; 8];
        let length = connection.read(&mut name).await.unwrap();
        String::from_utf8_lossy(&name[..length]).into_owned()
    }

    #[tokio::test]
    async fn connections_go_to_the_healthy_servers_in_turn() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let backends = [start_named_server("a").await, start_named_server("b").await, gone];
        let backends: Vec<_> = backends.map(|it| Arc::new(Backend::new(it))).into();
        let balancer = Arc::new(Balancer::new(backends.clone()));
        assert!(balancer.connect().await.is_none(), "no server is healthy");
        for backend in &backends {
            backend.is_healthy.send_replace(true);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(balancer.clone().run(listener));
        let mut names = Vec::new();
        let mut open = Vec::new();
        for _ in 0..6 {
            let mut connection = TcpStream::connect(address).await.unwrap();
            names.push(read_name(&mut connection).await);
            open.push(connection);
        }
        // The third server refuses connections, so its connections go to the first.
        assert_eq!(names.iter().filter(|it| *it == "a").count(), 4, "{names:?}");
        assert_eq!(names.iter().filter(|it| *it == "b").count(), 2, "{names:?}");
        // Connections to a server that becomes unhealthy are closed, and the others stay open.
        backends[1].is_healthy.send_replace(false);
        for (connection, name) in open.iter_mut().zip(&names) {
            let closed = tokio::time::timeout(Duration::from_millis(200), connection.read_u8()).await;
            assert_eq!(closed.is_ok(), name == "b", "{name}");
        }
        let mut connection = TcpStream::connect(address).await.unwrap();
        assert_eq!(read_name(&mut connection).await, "a");
    }
}
