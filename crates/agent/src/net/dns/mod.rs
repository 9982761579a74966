//! Cluster DNS: each node answers the queries of its own pods.

mod answer;
mod forward;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use self::answer::{Known, Reply};
use self::forward::{Forward, chance};
use super::service_cache::ServiceCache;
use crate::config::Config;
use crate::shares::Shares;

const PORT: u16 = 53;

/// Concurrent TCP connections; UDP queries are limited where they are forwarded.
const CONNECTIONS_MAX: usize = 64;

/// Concurrent TCP connections from one client.
const CONNECTIONS_OF_CLIENT_MAX: usize = 8;

/// Idle timeout of a TCP connection.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Largest request that is read over UDP; no name needs more.
const REQUEST_MAX: usize = 4_096;

const RETRY: Duration = Duration::from_secs(1);

/// Serves DNS on UDP and TCP at the cluster DNS address; never returns. Without a cluster DNS address it returns
/// immediately.
pub(super) async fn serve(config: &Config, cache: &Arc<ServiceCache>) {
    let Some(address) = config.cluster_dns else { return };
    let names = Arc::new(Names {
        cache: cache.clone(),
        domain: config.cluster_domain.trim_matches('.').to_ascii_lowercase(),
        forward: Forward::new(&config.resolv_conf, address),
    });
    tokio::join!(
        again(address, "UDP", || over_udp(address, &names)),
        again(address, "TCP", || over_tcp(address, &names)),
    );
}

/// Serves again after each failure: the address is added later, and other programs may remove it.
async fn again<F: Future<Output = std::io::Result<()>>>(address: IpAddr, over: &str, serve: impl Fn() -> F) {
    let mut has_failed = false;
    loop {
        if let Err(error) = serve().await
            // The first failure is expected: the address has not been added yet.
            && std::mem::replace(&mut has_failed, true)
        {
            tracing::warn!(%address, over, %error, "cannot serve DNS, retrying");
        }
        sleep(RETRY).await;
    }
}

/// The DNS server of a node.
struct Names {
    cache: Arc<ServiceCache>,
    domain: String,
    forward: Forward,
}

impl Names {
    fn answer(&self, request: &[u8], is_udp: bool) -> Reply {
        let is_synced = self.cache.is_synced();
        let picture = self.cache.picture();
        let zone = Known { picture: is_synced.then_some(&*picture), domain: &self.domain };
        answer::answer(&zone, request, is_udp, usize::from(chance()))
    }

    /// Completes a reply, upstream if necessary. `None`: no response is sent.
    async fn ask_others(
        &self,
        client: IpAddr,
        request: &[u8],
        reply: Reply,
        is_udp: bool,
    ) -> Option<Vec<u8>> {
        match reply {
            Reply::Nothing => None,
            Reply::Now(answer) => Some(answer),
            Reply::Forward => match self.forward.ask(client, request, is_udp).await {
                Some(answer) => Some(answer),
                None => answer::failure(request),
            },
            Reply::Complete(half) => {
                let rest = self.forward.ask_for(client, &half.ask).await;
                Some(half.complete(rest.as_deref()))
            }
        }
    }
}

async fn over_udp(address: IpAddr, names: &Arc<Names>) -> std::io::Result<()> {
    let socket = Arc::new(UdpSocket::bind(SocketAddr::new(address, PORT)).await?);
    let mut buffer = vec![0; REQUEST_MAX];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await?;
        let request = &buffer[..length];
        match names.answer(request, true) {
            Reply::Nothing => {}
            // A send error concerns this client only.
            Reply::Now(answer) => drop(socket.send_to(&answer, client).await),
            reply => {
                let (names, socket, request) = (names.clone(), socket.clone(), request.to_vec());
                tokio::spawn(async move {
                    if let Some(answer) = names.ask_others(client.ip(), &request, reply, true).await {
                        drop(socket.send_to(&answer, client).await);
                    }
                });
            }
        }
    }
}

async fn over_tcp(address: IpAddr, names: &Arc<Names>) -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(address, PORT)).await?;
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let shares = Shares::new(CONNECTIONS_OF_CLIENT_MAX);
    loop {
        let (stream, client) = listener.accept().await?;
        let Some(share) = shares.take(client.ip()) else { continue };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let names = names.clone();
        tokio::spawn(async move {
            // A connection error concerns this client only.
            let _ = converse(stream, client.ip(), &names).await;
            drop((permit, share));
        });
    }
}

async fn converse(mut stream: TcpStream, client: IpAddr, names: &Names) -> std::io::Result<()> {
    loop {
        let read = async {
            let length = stream.read_u16().await?;
            let mut request = vec![0; usize::from(length)];
            stream.read_exact(&mut request).await?;
            std::io::Result::Ok(request)
        };
        let request = timeout(SILENCE_MAX, read).await??;
        let reply = names.answer(&request, false);
        let Some(answer) = names.ask_others(client, &request, reply, false).await else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(SILENCE_MAX, stream.write_all(&framed)).await??;
    }
}
