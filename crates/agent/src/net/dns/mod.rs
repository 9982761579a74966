//! The names of the cluster, answered on each node for its own pods.

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

/// Connections at once; over UDP what is under way is limited where others are asked.
const CONNECTIONS_MAX: usize = 64;

/// So many of them from one address.
const CONNECTIONS_OF_CLIENT_MAX: usize = 8;

/// A connection on which nothing is asked for so long is closed.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The longest question that is read over UDP: more than any that a name fits in.
const REQUEST_MAX: usize = 4_096;

const RETRY: Duration = Duration::from_secs(1);

/// Answers under the cluster's address for names, as long as it is asked. A node without such an address has no answers.
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

/// The address is not there at first, and others may take it away.
async fn again<F: Future<Output = std::io::Result<()>>>(address: IpAddr, over: &str, serve: impl Fn() -> F) {
    let mut is_told = false;
    loop {
        if let Err(error) = serve().await
            // Its first second is the time it takes to put the address there.
            && std::mem::replace(&mut is_told, true)
        {
            tracing::warn!(%address, over, %error, "names cannot be answered: it is tried again");
        }
        sleep(RETRY).await;
    }
}

struct Names {
    cache: Arc<ServiceCache>,
    domain: String,
    forward: Forward,
}

impl Names {
    fn answer(&self, request: &[u8], is_udp: bool) -> Reply {
        let is_synced = self.cache.is_synced();
        let picture = self.cache.picture();
        let known = Known { picture: is_synced.then_some(&*picture), domain: &self.domain };
        answer::answer(&known, request, is_udp, usize::from(chance()))
    }

    /// What takes others to answer. `None`: there is nothing to say.
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
            // A client that is gone does not concern the others.
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
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let shares = Shares::new(CONNECTIONS_OF_CLIENT_MAX);
    loop {
        let (stream, client) = listener.accept().await?;
        let Some(share) = shares.take(client.ip()) else { continue };
        let Ok(permit) = room.clone().try_acquire_owned() else { continue };
        let names = names.clone();
        tokio::spawn(async move {
            // Whatever ends a connection is the client's affair.
            let _ = converse(stream, client.ip(), &names).await;
            drop((permit, share));
        });
    }
}

async fn converse(mut stream: TcpStream, client: IpAddr, names: &Names) -> std::io::Result<()> {
    loop {
        let asked = async {
            let length = stream.read_u16().await?;
            let mut request = vec![0; usize::from(length)];
            stream.read_exact(&mut request).await?;
            std::io::Result::Ok(request)
        };
        let request = timeout(SILENCE_MAX, asked).await??;
        let reply = names.answer(&request, false);
        let Some(answer) = names.ask_others(client, &request, reply, false).await else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(SILENCE_MAX, stream.write_all(&framed)).await??;
    }
}
