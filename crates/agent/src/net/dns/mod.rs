//! Cluster DNS: each node answers the queries of its own pods.

/// Decides how a query is answered, and builds the response.
mod answer;
/// Forwards queries to the node's own resolvers.
mod forwarder;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use self::answer::{DnsAction, ZoneData};
use self::forwarder::{Forwarder, random_u16};
use super::service_cache::ServiceCache;
use crate::address_limits::AddressLimits;
use crate::config::Config;

const DNS_PORT: u16 = 53;

/// Maximum number of concurrent TCP connections. Over UDP, the forwarder limits the number of queries.
const CONNECTIONS_MAX: usize = 64;

/// Maximum number of concurrent TCP connections from one client.
const CONNECTIONS_PER_CLIENT_MAX: usize = 8;

/// Timeout for the next request on a TCP connection, and for sending a response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a request over UDP. A request for the longest possible name is smaller.
const UDP_REQUEST_BYTES_MAX: usize = 4_096;

/// Delay before the DNS server is restarted after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Serves DNS over UDP and TCP at the cluster DNS address. Never returns, unless no cluster DNS address is configured.
pub(super) async fn serve(config: &Config, cache: &Arc<ServiceCache>) {
    let Some(address) = config.cluster_dns else { return };
    let server = Arc::new(DnsServer {
        cache: cache.clone(),
        domain: config.cluster_domain.trim_matches('.').to_ascii_lowercase(),
        forwarder: Forwarder::new(&config.resolv_conf, address),
    });
    tokio::join!(
        serve_with_retry(address, "UDP", || serve_udp(address, &server)),
        serve_with_retry(address, "TCP", || serve_tcp(address, &server)),
    );
}

/// Calls `serve`, and calls it again after each failure. Never returns. `serve` fails until the DNS address is added to
/// the loopback interface, and when another program removes that address.
async fn serve_with_retry<F: Future<Output = std::io::Result<()>>>(
    address: IpAddr,
    over: &str,
    serve: impl Fn() -> F,
) {
    let mut has_failed = false;
    loop {
        if let Err(error) = serve().await
            // The first failure is expected: the address has not been added yet.
            && std::mem::replace(&mut has_failed, true)
        {
            tracing::warn!(%address, over, %error, "cannot serve DNS, retrying");
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// The DNS server of a node.
struct DnsServer {
    cache: Arc<ServiceCache>,
    domain: String,
    /// Forwards queries for names outside the cluster domain.
    forwarder: Forwarder,
}

impl DnsServer {
    /// Decides from the service cache what to do with a request.
    fn decide_dns_action(&self, request: &[u8], is_udp: bool) -> DnsAction {
        let is_synced = self.cache.is_synced();
        let proxy_state = self.cache.lock_state();
        let zone = ZoneData { proxy_state: is_synced.then_some(&*proxy_state), domain: &self.domain };
        answer::decide_action(&zone, request, is_udp, usize::from(random_u16()))
    }

    /// Executes a [`DnsAction`], which may send a query to an upstream resolver. Returns the response to send, or
    /// `None` if no response is sent.
    async fn execute_dns_action(
        &self,
        client: IpAddr,
        request: &[u8],
        action: DnsAction,
        is_udp: bool,
    ) -> Option<Vec<u8>> {
        match action {
            DnsAction::Ignore => None,
            DnsAction::Respond(answer) => Some(answer),
            DnsAction::Forward => match self.forwarder.forward(client, request, is_udp).await {
                Some(answer) => Some(answer),
                None => answer::servfail_response(request),
            },
            DnsAction::CompleteAlias(half) => {
                let rest = self.forwarder.resolve(client, &half.query).await;
                Some(half.complete_alias(rest.as_deref()))
            }
        }
    }
}

/// Serves DNS over UDP until the socket fails.
async fn serve_udp(address: IpAddr, server: &Arc<DnsServer>) -> std::io::Result<()> {
    let socket = Arc::new(UdpSocket::bind(SocketAddr::new(address, DNS_PORT)).await?);
    let mut buffer = vec![0; UDP_REQUEST_BYTES_MAX];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await?;
        let request = &buffer[..length];
        match server.decide_dns_action(request, true) {
            DnsAction::Ignore => {}
            // A send error concerns this client only.
            DnsAction::Respond(answer) => drop(socket.send_to(&answer, client).await),
            action => {
                let (server, socket, request) = (server.clone(), socket.clone(), request.to_vec());
                tokio::spawn(async move {
                    if let Some(answer) = server.execute_dns_action(client.ip(), &request, action, true).await
                    {
                        drop(socket.send_to(&answer, client).await);
                    }
                });
            }
        }
    }
}

/// Serves DNS over TCP until the socket fails.
async fn serve_tcp(address: IpAddr, server: &Arc<DnsServer>) -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(address, DNS_PORT)).await?;
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let shares = AddressLimits::new(CONNECTIONS_PER_CLIENT_MAX);
    loop {
        let (stream, client) = listener.accept().await?;
        let Some(share) = shares.acquire(client.ip()) else { continue };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let server = server.clone();
        tokio::spawn(async move {
            // A connection error concerns this client only.
            let _ = serve_connection(stream, client.ip(), &server).await;
            drop((permit, share));
        });
    }
}

/// Answers the requests of one TCP connection.
async fn serve_connection(mut stream: TcpStream, client: IpAddr, server: &DnsServer) -> std::io::Result<()> {
    loop {
        let read = async {
            let length = stream.read_u16().await?;
            let mut request = vec![0; usize::from(length)];
            stream.read_exact(&mut request).await?;
            std::io::Result::Ok(request)
        };
        let request = timeout(IDLE_TIMEOUT, read).await??;
        let action = server.decide_dns_action(&request, false);
        let Some(answer) = server.execute_dns_action(client, &request, action, false).await else {
            return Ok(());
        };
        let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(IDLE_TIMEOUT, stream.write_all(&framed)).await??;
    }
}
