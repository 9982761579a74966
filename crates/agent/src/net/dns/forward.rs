//! Forwards DNS queries to the node's own resolvers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::shares::Shares;

/// Maximum number of queries in flight; further ones are refused.
const UNDER_WAY_MAX: usize = 256;

/// Maximum number of queries in flight from one client, so that one pod cannot exhaust the limit.
const UNDER_WAY_OF_CLIENT_MAX: usize = 32;

/// Time for one resolver to respond; clients retry after 5 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of resolvers that are tried.
const RESOLVERS_MAX: usize = 2;

/// Interval at which `resolv.conf` is read again.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The upstream resolvers of systemd-resolved: its stub on loopback cannot be reached from other network
/// namespaces.
const BEHIND_STUB: &str = "/run/systemd/resolve/resolv.conf";

/// Forwards queries to the resolvers of a `resolv.conf`.
pub(super) struct Forward {
    file: PathBuf,
    /// Address of this DNS server, which is excluded from the resolvers.
    own: IpAddr,
    under_way: Semaphore,
    shares: Arc<Shares>,
    resolvers: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl Forward {
    pub(super) fn new(file: &Path, own: IpAddr) -> Self {
        let under_way = Semaphore::new(UNDER_WAY_MAX);
        let shares = Shares::new(UNDER_WAY_OF_CLIENT_MAX);
        Self { file: file.to_owned(), own, under_way, shares, resolvers: Mutex::default() }
    }

    /// Forwards a request and returns the first conclusive response, else the last inconclusive one. `None`: no
    /// resolver responded, or too many queries are in flight.
    pub(super) async fn ask(&self, client: IpAddr, request: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let _share = self.shares.take(client)?;
        let _permit = self.under_way.try_acquire().ok()?;
        let mut inconclusive = None;
        for resolver in self.resolvers() {
            let at = SocketAddr::new(resolver, 53);
            let response =
                async { if is_udp { over_udp(at, request).await } else { over_tcp(at, request).await } };
            match timeout(PATIENCE, response).await {
                Ok(Ok(answer)) if knows(&answer) => return Some(answer),
                Ok(Ok(answer)) => inconclusive = Some(answer),
                Ok(Err(error)) => tracing::debug!(%resolver, %error, "a resolver failed"),
                Err(_) => tracing::debug!(%resolver, "a resolver timed out"),
            }
        }
        inconclusive
    }

    /// Resolves a query on behalf of a client.
    pub(super) async fn ask_for(&self, client: IpAddr, query: &Query) -> Option<Vec<u8>> {
        let mut message = Message::new(chance(), MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(1_232);
        message.set_edns(edns);
        let question = message.to_vec().ok()?;
        let answer = self.ask(client, &question, true).await?;
        // A truncated response is retried over TCP: the client could not see the truncation.
        let is_cut = Message::from_vec(&answer).is_ok_and(|it| it.metadata.truncation);
        if is_cut { self.ask(client, &question, false).await } else { Some(answer) }
    }

    fn resolvers(&self) -> Vec<IpAddr> {
        let mut resolvers = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner);
        match &*resolvers {
            Some((read, addresses)) if read.elapsed() < READ_EVERY => addresses.clone(),
            _ => {
                let addresses = read(&self.file, self.own);
                *resolvers = Some((Instant::now(), addresses.clone()));
                addresses
            }
        }
    }
}

fn read(file: &Path, own: IpAddr) -> Vec<IpAddr> {
    let of = |path: &Path| resolvers(&std::fs::read_to_string(path).unwrap_or_default(), own);
    let resolvers = of(file);
    match resolvers.iter().all(IpAddr::is_loopback) {
        true => Some(of(Path::new(BEHIND_STUB))).filter(|it| !it.is_empty()).unwrap_or(resolvers),
        false => resolvers,
    }
}

fn resolvers(text: &str, own: IpAddr) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|it| *it == "nameserver").and_then(|_| words.next())?;
        address.split('%').next()?.parse().ok()
    });
    named.filter(|it| *it != own).take(RESOLVERS_MAX).collect()
}

/// Sends a query over UDP from a random port and with a random ID: a spoofed response would have to guess both.
async fn over_udp(resolver: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = match resolver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    let (question, id) = renumbered(request);
    socket.send(&question).await?;
    let mut buffer = vec![0; 65_535];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = accepted(&buffer[..length], &question, id) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(resolver: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let (question, id) = renumbered(request);
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    accepted(&answer, &question, id).ok_or_else(|| io::Error::other("the response does not match the query"))
}

/// The request with a random ID, and its original ID.
fn renumbered(request: &[u8]) -> (Vec<u8>, [u8; 2]) {
    let mut question = request.to_vec();
    let mut id = [0; 2];
    if let Some(own) = question.get_mut(..2) {
        id.copy_from_slice(own);
        own.copy_from_slice(&chance().to_be_bytes());
    }
    (question, id)
}

/// The response with the client's ID, if it answers the question.
fn accepted(answer: &[u8], question: &[u8], id: [u8; 2]) -> Option<Vec<u8>> {
    let is_answer = answer.get(2).is_some_and(|it| it & 0x80 != 0);
    let (response, query) = (Message::from_vec(answer).ok()?, Message::from_vec(question).ok()?);
    if !is_answer || answer.get(..2) != question.get(..2) || response.queries != query.queries {
        return None;
    }
    let mut answer = answer.to_vec();
    answer.get_mut(..2)?.copy_from_slice(&id);
    Some(answer)
}

/// Whether a response is conclusive. Like the C library, the next resolver is tried after SERVFAIL, NOTIMP or
/// REFUSED.
fn knows(answer: &[u8]) -> bool {
    let cannot = [ResponseCode::ServFail, ResponseCode::NotImp, ResponseCode::Refused];
    Message::from_vec(answer).is_ok_and(|it| !cannot.contains(&it.metadata.response_code))
}

/// A random number; the key of a hasher is the only randomness in the standard library.
pub(super) fn chance() -> u16 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolvers_of_a_file() {
        let text = "# nameserver 1.1.1.1\nnameserver 10.96.0.10\nnameserver\t9.9.9.9 # quad\nsearch a.b\nnameserver fe80::1%eth0\nnameserver 8.8.8.8\n";
        let own = IpAddr::from([10, 96, 0, 10]);
        let all: Vec<String> = resolvers(text, own).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["9.9.9.9", "fe80::1"]);
        assert_eq!(resolvers("nonsense\nnameserver x\n", own), Vec::<IpAddr>::new());
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let asked = |name: &str| {
            let mut message = Message::new(7, MessageType::Query, OpCode::Query);
            let name = hickory_proto::rr::Name::from_ascii(name).expect("a name");
            message.add_query(Query::query(name, hickory_proto::rr::RecordType::A));
            message
        };
        let question = asked("example.org.").to_vec().expect("bytes");
        let of = |message: Message| message.into_response().to_vec().expect("bytes");
        let given = accepted(&of(asked("example.org.")), &question, [1, 2]).expect("accepted");
        assert_eq!(given[..2], [1, 2]);
        assert_eq!(accepted(&of(asked("example.com.")), &question, [1, 2]), None);
        assert_eq!(accepted(&question, &question, [1, 2]), None);
        assert_eq!(accepted(&[], &question, [1, 2]), None);
        let mut other = of(asked("example.org."));
        other[0] ^= 1;
        assert_eq!(accepted(&other, &question, [1, 2]), None);
    }

    #[test]
    fn who_cannot_say_is_not_the_last_to_be_asked() {
        let codes = [
            ResponseCode::NoError,
            ResponseCode::NXDomain,
            ResponseCode::ServFail,
            ResponseCode::NotImp,
            ResponseCode::Refused,
        ];
        let known = codes.map(|code| {
            let said = Message::error_msg(7, OpCode::Query, code).to_vec().expect("bytes");
            (code, knows(&said))
        });
        let expected = [true, true, false, false, false];
        assert_eq!(known.map(|it| it.1), expected, "{known:?}");
        assert!(!knows(b"nonsense"));
    }

    #[tokio::test]
    async fn one_client_leaves_room_for_the_questions_of_others() {
        // A resolver that takes every question and answers none.
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let forward = Arc::new(Forward::new(Path::new("/nowhere"), IpAddr::from([10, 96, 0, 10])));
        *forward.resolvers.lock().unwrap() =
            Some((Instant::now(), vec![silent.local_addr().unwrap().ip(); 1]));
        let (greedy, other) = (IpAddr::from([10, 244, 1, 2]), IpAddr::from([10, 244, 1, 3]));
        let ask = |client| {
            let forward = forward.clone();
            tokio::spawn(async move { forward.ask(client, &[0; 12], false).await })
        };
        let flood: Vec<_> = (0..UNDER_WAY_MAX * 2).map(|_| forward.shares.take(greedy)).collect();
        assert_eq!(flood.iter().flatten().count(), UNDER_WAY_OF_CLIENT_MAX);
        assert_eq!(ask(greedy).await.unwrap(), None, "it has its share under way");
        assert_eq!(forward.under_way.available_permits(), UNDER_WAY_MAX, "and took nothing of the others'");
        assert!(forward.shares.take(other).is_some());
    }
}
