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

use crate::address_limits::AddressLimits;

/// Maximum number of forwarded queries in flight. Further queries are not forwarded, and get the response SERVFAIL.
const QUERIES_MAX: usize = 256;

/// Maximum number of forwarded queries in flight from one client, so that one pod cannot exhaust [`QUERIES_MAX`].
const QUERIES_PER_CLIENT_MAX: usize = 32;

/// Timeout for the response of one resolver. Clients retry after 5 s, and by then [`RESOLVERS_MAX`] resolvers have been
/// tried.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of resolvers that are tried for one query.
const RESOLVERS_MAX: usize = 2;

/// Interval at which `resolv.conf` is read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// File with the upstream resolvers of systemd-resolved. It is read if `resolv.conf` has no resolver, or only loopback
/// addresses, such as the address of systemd-resolved itself. Loopback addresses cannot be reached from other network
/// namespaces.
const SYSTEMD_RESOLV_CONF: &str = "/run/systemd/resolve/resolv.conf";

/// Forwards queries to the resolvers of a `resolv.conf`.
pub(super) struct Forwarder {
    resolv_conf: PathBuf,
    /// Address of this DNS server, which is excluded from the resolvers.
    own_address: IpAddr,
    /// Permits for queries in flight.
    queries: Semaphore,
    /// Limits the queries in flight of each client.
    queries_by_client: Arc<AddressLimits>,
    /// The resolvers, and when they were read from `resolv_conf`. `None` before the first read.
    resolvers: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl Forwarder {
    pub(super) fn new(resolv_conf: &Path, own_address: IpAddr) -> Self {
        let queries = Semaphore::new(QUERIES_MAX);
        let queries_by_client = AddressLimits::new(QUERIES_PER_CLIENT_MAX);
        Self {
            resolv_conf: resolv_conf.to_owned(),
            own_address,
            queries,
            queries_by_client,
            resolvers: Mutex::default(),
        }
    }

    /// Forwards a request to one resolver after the other until a response is conclusive: it can be parsed and is not
    /// SERVFAIL, NOTIMP or REFUSED. Returns the conclusive response, or else the last response. Returns `None` if no
    /// resolver responded, or if too many queries are in flight, from this client or in total.
    pub(super) async fn forward(&self, client: IpAddr, request: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let _client_permit = self.queries_by_client.acquire(client)?;
        let _permit = self.queries.try_acquire().ok()?;
        let mut inconclusive = None;
        for resolver in self.current_resolvers() {
            let at = SocketAddr::new(resolver, 53);
            let response =
                async { if is_udp { query_udp(at, request).await } else { query_tcp(at, request).await } };
            match timeout(RESOLVER_TIMEOUT, response).await {
                Ok(Ok(answer)) if is_conclusive(&answer) => return Some(answer),
                Ok(Ok(answer)) => inconclusive = Some(answer),
                Ok(Err(error)) => tracing::debug!(%resolver, %error, "a resolver failed"),
                Err(_) => tracing::debug!(%resolver, "a resolver timed out"),
            }
        }
        inconclusive
    }

    /// Resolves a query on behalf of a client, and returns the encoded response. Uses TCP if the response over UDP is
    /// truncated. Returns `None` if no resolver responded, or if too many queries are in flight, from this client or in
    /// total.
    pub(super) async fn resolve(&self, client: IpAddr, query: &Query) -> Option<Vec<u8>> {
        let mut message = Message::new(random_u16(), MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(1_232);
        message.set_edns(edns);
        let question = message.to_vec().ok()?;
        let answer = self.forward(client, &question, true).await?;
        // A truncated response is retried over TCP: the client could not see the truncation.
        let is_cut = Message::from_vec(&answer).is_ok_and(|it| it.metadata.truncation);
        if is_cut { self.forward(client, &question, false).await } else { Some(answer) }
    }

    /// Returns the node's resolvers, which were read at most [`RELOAD_INTERVAL`] ago.
    fn current_resolvers(&self) -> Vec<IpAddr> {
        let mut resolvers = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner);
        match &*resolvers {
            Some((read, addresses)) if read.elapsed() < RELOAD_INTERVAL => addresses.clone(),
            _ => {
                let addresses = read_resolvers(&self.resolv_conf, self.own_address);
                *resolvers = Some((Instant::now(), addresses.clone()));
                addresses
            }
        }
    }
}

/// Reads the resolvers of a `resolv.conf`, without `own`, the address of this DNS server. If the file has no resolver,
/// or only loopback addresses, returns the resolvers of [`SYSTEMD_RESOLV_CONF`] instead, if there are any.
fn read_resolvers(file: &Path, own: IpAddr) -> Vec<IpAddr> {
    let of = |path: &Path| parse_resolvers(&std::fs::read_to_string(path).unwrap_or_default(), own);
    let resolvers = of(file);
    match resolvers.iter().all(IpAddr::is_loopback) {
        true => Some(of(Path::new(SYSTEMD_RESOLV_CONF))).filter(|it| !it.is_empty()).unwrap_or(resolvers),
        false => resolvers,
    }
}

/// Parses the first [`RESOLVERS_MAX`] resolvers of a `resolv.conf`, without `own`, the address of this DNS server.
fn parse_resolvers(text: &str, own: IpAddr) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|it| *it == "nameserver").and_then(|_| words.next())?;
        address.split('%').next()?.parse().ok()
    });
    named.filter(|it| *it != own).take(RESOLVERS_MAX).collect()
}

/// Sends a query over UDP and returns the response. The source port and the ID are random, so that an attacker who
/// spoofs a response must guess both.
async fn query_udp(resolver: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = match resolver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    let (question, id) = with_random_id(request);
    socket.send(&question).await?;
    let mut buffer = vec![0; 65_535];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = validate_response(&buffer[..length], &question, id) {
            return Ok(answer);
        }
    }
}

/// Sends a query over TCP and returns the response.
async fn query_tcp(resolver: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let (question, id) = with_random_id(request);
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    validate_response(&answer, &question, id)
        .ok_or_else(|| io::Error::other("the response does not match the query"))
}

/// Replaces the ID of a request with a random ID. Returns the new request and the original ID.
fn with_random_id(request: &[u8]) -> (Vec<u8>, [u8; 2]) {
    let mut question = request.to_vec();
    let mut id = [0; 2];
    if let Some(own) = question.get_mut(..2) {
        id.copy_from_slice(own);
        own.copy_from_slice(&random_u16().to_be_bytes());
    }
    (question, id)
}

/// Checks that `answer` is a response to `question`, and returns it with the ID `id` of the client's request. Returns
/// `None` if it is not.
fn validate_response(answer: &[u8], question: &[u8], id: [u8; 2]) -> Option<Vec<u8>> {
    let is_answer = answer.get(2).is_some_and(|it| it & 0x80 != 0);
    let (response, query) = (Message::from_vec(answer).ok()?, Message::from_vec(question).ok()?);
    if !is_answer || answer.get(..2) != question.get(..2) || response.queries != query.queries {
        return None;
    }
    let mut answer = answer.to_vec();
    answer.get_mut(..2)?.copy_from_slice(&id);
    Some(answer)
}

/// Whether a response is used without asking another resolver. As in the C library, another resolver is asked after
/// SERVFAIL, NOTIMP or REFUSED. It is also asked after a response that cannot be parsed.
fn is_conclusive(answer: &[u8]) -> bool {
    let cannot = [ResponseCode::ServFail, ResponseCode::NotImp, ResponseCode::Refused];
    Message::from_vec(answer).is_ok_and(|it| !cannot.contains(&it.metadata.response_code))
}

/// Returns a random number. It comes from the key of a hasher, which is the only source of randomness in the standard
/// library.
pub(super) fn random_u16() -> u16 {
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
        let all: Vec<String> = parse_resolvers(text, own).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["9.9.9.9", "fe80::1"]);
        assert_eq!(parse_resolvers("nonsense\nnameserver x\n", own), Vec::<IpAddr>::new());
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
        let given = validate_response(&of(asked("example.org.")), &question, [1, 2]).expect("accepted");
        assert_eq!(given[..2], [1, 2]);
        assert_eq!(validate_response(&of(asked("example.com.")), &question, [1, 2]), None);
        assert_eq!(validate_response(&question, &question, [1, 2]), None);
        assert_eq!(validate_response(&[], &question, [1, 2]), None);
        let mut other = of(asked("example.org."));
        other[0] ^= 1;
        assert_eq!(validate_response(&other, &question, [1, 2]), None);
    }

    #[test]
    fn the_next_resolver_is_tried_after_an_inconclusive_response() {
        let codes = [
            ResponseCode::NoError,
            ResponseCode::NXDomain,
            ResponseCode::ServFail,
            ResponseCode::NotImp,
            ResponseCode::Refused,
        ];
        let known = codes.map(|code| {
            let said = Message::error_msg(7, OpCode::Query, code).to_vec().expect("bytes");
            (code, is_conclusive(&said))
        });
        let expected = [true, true, false, false, false];
        assert_eq!(known.map(|it| it.1), expected, "{known:?}");
        assert!(!is_conclusive(b"nonsense"));
    }

    #[tokio::test]
    async fn one_client_cannot_exhaust_the_query_limit() {
        // A resolver that takes every question and answers none.
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let forward = Arc::new(Forwarder::new(Path::new("/nowhere"), IpAddr::from([10, 96, 0, 10])));
        *forward.resolvers.lock().unwrap() =
            Some((Instant::now(), vec![silent.local_addr().unwrap().ip(); 1]));
        let (greedy, other) = (IpAddr::from([10, 244, 1, 2]), IpAddr::from([10, 244, 1, 3]));
        let ask = |client| {
            let forward = forward.clone();
            tokio::spawn(async move { forward.forward(client, &[0; 12], false).await })
        };
        let flood: Vec<_> = (0..QUERIES_MAX * 2).map(|_| forward.queries_by_client.acquire(greedy)).collect();
        assert_eq!(flood.iter().flatten().count(), QUERIES_PER_CLIENT_MAX);
        assert_eq!(ask(greedy).await.unwrap(), None, "it has its share under way");
        assert_eq!(forward.queries.available_permits(), QUERIES_MAX, "and took nothing of the others'");
        assert!(forward.queries_by_client.acquire(other).is_some());
    }
}
