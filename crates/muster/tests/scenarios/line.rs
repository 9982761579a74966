//! The line between a client and the server. It writes down what was asked and what really became of it, and where it
//! is told to, it fails: as a network, a server under load or a load balancer does.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use muster_engine::daemonset::facts::Kind;
use muster_sim::rng::Rng;
use muster_sim::server::Actor;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Error>;

/// What was sent over all lines, in order.
pub(crate) type Log = Arc<Mutex<Vec<Sent>>>;

/// A request, and what really became of it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) actor: Actor,
    /// Which of the actor's processes sent it.
    pub(crate) life: u64,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
    pub(crate) fate: Fate,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// It has not reached the server.
    Lost,
    UnderWay,
    /// What the server said, whether or not anybody heard it.
    Answered {
        status: u16,
        resource_version: Option<u64>,
    },
}

/// One line of a watch that was delivered: after which revision, and which one it was.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) replica: usize,
    pub(crate) kind: Kind,
    pub(crate) after: u64,
    pub(crate) revision: u64,
}

/// What may happen to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Conflict,
    TooManyRequests,
    Server,
    /// Done, and answered with an error all the same.
    ServerApplied,
    /// Done, and answered as if it never could be: what no server does.
    InvalidApplied,
    /// Done, and the connection breaks before the answer.
    LostAnswer,
    /// The connection breaks before the server hears of it.
    LostRequest,
    /// The request takes this long to reach the server, if anybody waits for so long.
    StalledRequest(Duration),
    /// The answer takes this long.
    StalledAnswer(Duration),
    /// Nobody waits for it any more, and it reaches the server all the same.
    Late(Duration),
}

/// What may happen to a watch when a line of it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchFault {
    Cut,
    CutInMidLine,
    /// The history that the client asks for is gone.
    Expired,
    /// This watch stands still for a while, others do not.
    Freeze(Duration),
    /// The line does not come: what no server does.
    Swallow,
}

/// How often things go wrong, per mille of their occasions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) watches: u64,
    pub(crate) freeze_ms: u64,
}

/// Decides on faults. What strikes depends on the seed and on which request of its sort it is, not on the time.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    seed: u64,
    now: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rates: Rates,
    occasions: BTreeMap<String, u64>,
    /// Faults for requests that begin like this, used up one after the other.
    strikes: Vec<(String, Fault)>,
    watch_strikes: Vec<(Kind, WatchFault)>,
    struck: Vec<String>,
    /// Nothing gets through, in either direction.
    is_cut: bool,
}

impl Weather {
    pub(crate) fn fair() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn stormy(seed: u64, rates: Rates) -> Arc<Self> {
        let now = Mutex::new(State { rates, ..State::default() });
        Arc::new(Self { seed, now })
    }

    /// Nothing goes wrong any more.
    pub(crate) fn clear(&self) {
        let mut now = self.now.lock().unwrap();
        (now.rates, now.strikes, now.watch_strikes) = (Rates::default(), Vec::new(), Vec::new());
        now.is_cut = false;
    }

    /// The next request that begins like this, such as `POST pods`, meets this fault.
    pub(crate) fn strike(&self, request: &str, fault: Fault) {
        self.now.lock().unwrap().strikes.push((request.to_owned(), fault));
    }

    pub(crate) fn strike_watch(&self, kind: Kind, fault: WatchFault) {
        self.now.lock().unwrap().watch_strikes.push((kind, fault));
    }

    /// Nothing gets through any more, or everything again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.now.lock().unwrap().is_cut = is_cut;
    }

    fn is_cut(&self) -> bool {
        self.now.lock().unwrap().is_cut
    }

    /// What has gone wrong so far.
    pub(crate) fn struck(&self) -> Vec<String> {
        self.now.lock().unwrap().struck.clone()
    }

    fn rng(&self, state: &mut State, occasion: &str) -> Rng {
        let count = state.occasions.entry(occasion.to_owned()).or_default();
        *count += 1;
        let sort = occasion.bytes().fold(0_u64, |sum, it| sum.wrapping_mul(31).wrapping_add(u64::from(it)));
        Rng::new(self.seed ^ sort.rotate_left(17) ^ (*count << 40))
    }

    fn of_request(&self, method: &Method, resource: &str) -> Option<Fault> {
        let mut state = self.now.lock().unwrap();
        let occasion = format!("{method} {resource}");
        let struck =
            state.strikes.iter().position(|(it, _)| *it == occasion).map(|at| state.strikes.remove(at).1);
        let fault = struck.or_else(|| {
            let mut rng = self.rng(&mut state, &occasion);
            let is_read = *method == Method::GET;
            let rate = if is_read { state.rates.reads } else { state.rates.writes };
            if !rng.chance(rate) {
                return None;
            }
            let short = Duration::from_millis(rng.between(20, 400));
            let of_reads =
                [Fault::TooManyRequests, Fault::Server, Fault::LostAnswer, Fault::StalledAnswer(short)];
            let of_writes = [
                Fault::Conflict,
                Fault::TooManyRequests,
                Fault::Server,
                Fault::ServerApplied,
                Fault::LostAnswer,
                Fault::LostRequest,
                Fault::StalledRequest(short),
                Fault::StalledAnswer(short),
            ];
            rng.pick(if is_read { &of_reads[..] } else { &of_writes[..] }).copied()
        });
        if let Some(fault) = fault {
            state.struck.push(format!("{occasion}: {fault:?}"));
        }
        fault
    }

    fn of_watch(&self, kind: Kind) -> Option<WatchFault> {
        let mut state = self.now.lock().unwrap();
        let struck = state.watch_strikes.iter().position(|(it, _)| *it == kind);
        let fault = struck.map(|at| state.watch_strikes.remove(at).1).or_else(|| {
            let mut rng = self.rng(&mut state, &format!("watch {kind:?}"));
            if !rng.chance(state.rates.watches) {
                return None;
            }
            let freeze = Duration::from_millis(rng.between(50, state.rates.freeze_ms.max(50)));
            let all =
                [WatchFault::Cut, WatchFault::CutInMidLine, WatchFault::Expired, WatchFault::Freeze(freeze)];
            rng.pick(&all).copied()
        });
        if let Some(fault) = fault {
            state.struck.push(format!("watch {kind:?}: {fault:?}"));
        }
        fault
    }
}

/// Breaks what a client sends or hears: how a controller with a bug would behave.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tamper {
    pub(crate) request: Option<fn(&Method, &str, &mut Value)>,
    pub(crate) answer: Option<fn(&Method, &str, &mut Value)>,
    /// Every request of this sort is sent twice.
    pub(crate) twice: Option<&'static str>,
}

/// A client whose requests go over a line.
pub(crate) fn client(
    (server, runtime): (Client, Handle),
    (actor, life): (Actor, u64),
    weather: Arc<Weather>,
    tamper: Tamper,
    log: Log,
    delivered: Arc<Mutex<Vec<Delivered>>>,
) -> Client {
    let line = Arc::new(Line { server, runtime, actor, life, weather, tamper, log, delivered });
    Client::new(tower::service_fn(move |request| line.clone().carry(request)), "default")
}

struct Line {
    server: Client,
    runtime: Handle,
    actor: Actor,
    life: u64,
    weather: Arc<Weather>,
    tamper: Tamper,
    log: Log,
    delivered: Arc<Mutex<Vec<Delivered>>>,
}

impl Line {
    async fn carry(self: Arc<Self>, request: Request<kube::client::Body>) -> Result<Response<Body>, Error> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        if self.weather.is_cut() {
            return Err(reset());
        }
        if head.uri.query().is_some_and(|it| it.contains("watch=true") || it.contains("watch=1")) {
            return self.watch(head).await;
        }
        let resource = resource(head.uri.path());
        let fault = self.weather.of_request(&head.method, &resource);
        let mut value = serde_json::from_slice(&body).unwrap_or_default();
        let body = match self.tamper.request {
            Some(tamper) if !body.is_empty() => {
                tamper(&head.method, &resource, &mut value);
                Bytes::from(value.to_string())
            }
            _ => body,
        };
        if self.tamper.twice == Some(format!("{} {resource}", head.method).as_str()) {
            let at = self.note(&head, value.clone());
            self.ask(at, &head, body.clone()).await?;
        }
        let at = self.note(&head, value);
        let ask = self.ask(at, &head, body.clone());
        match fault {
            None => ask.await,
            Some(Fault::Conflict) => Ok(status(409, "Conflict", "the object has been modified")),
            Some(Fault::TooManyRequests) => Ok(status(429, "TooManyRequests", "too many requests")),
            Some(Fault::Server) => Ok(status(500, "InternalError", "the store is away")),
            Some(Fault::ServerApplied) => {
                ask.await?;
                Ok(status(500, "InternalError", "it was done, and this is said all the same"))
            }
            Some(Fault::InvalidApplied) => {
                ask.await?;
                Ok(status(422, "Invalid", "it was done, and is said to be invalid"))
            }
            Some(Fault::LostAnswer) => {
                ask.await?;
                Err(reset())
            }
            Some(Fault::LostRequest) => Err(reset()),
            Some(Fault::StalledRequest(wait)) => {
                tokio::time::sleep(wait).await;
                ask.await
            }
            Some(Fault::StalledAnswer(wait)) => {
                let answer = ask.await;
                tokio::time::sleep(wait).await;
                answer
            }
            Some(Fault::Late(wait)) => {
                let (line, head) = (self.clone(), head.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    line.ask(at, &head, body).await.map(drop)
                });
                Err(reset())
            }
        }
    }

    /// What is on its way is no longer the client's: it reaches the server even if the client is gone by then.
    async fn ask(&self, at: usize, head: &Parts, body: Bytes) -> Result<Response<Body>, Error> {
        let request = Request::from_parts(head.clone(), kube::client::Body::from(body));
        let (server, log) = (self.server.clone(), self.log.clone());
        let asking = self.runtime.spawn(async move {
            let fate = |it: Fate| log.lock().unwrap()[at].fate = it;
            fate(Fate::UnderWay);
            let (head, answer) = server.send(request).await?.into_parts();
            let answer = answer.collect_bytes().await?;
            let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let resource_version =
                value["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
            fate(Fate::Answered { status: head.status.as_u16(), resource_version });
            Ok::<_, Error>((head, answer, value))
        });
        let (head_of_answer, mut answer, value) = asking.await??;
        if let Some(tamper) = self.tamper.answer {
            let mut tampered = value.clone();
            tamper(&head.method, &resource(head.uri.path()), &mut tampered);
            if tampered != value {
                answer = Bytes::from(tampered.to_string());
            }
        }
        Ok(Response::from_parts(head_of_answer, whole(answer)))
    }

    /// Writes down what is asked, and where in the log that is.
    fn note(&self, head: &Parts, body: Value) -> usize {
        let (actor, life) = (self.actor, self.life);
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let mut log = self.log.lock().unwrap();
        log.push(Sent { actor, life, method, path, body, fate: Fate::Lost });
        log.len() - 1
    }

    async fn watch(self: Arc<Self>, head: Parts) -> Result<Response<Body>, Error> {
        let query = head.uri.query().unwrap_or_default().to_owned();
        let kind = match resource(head.uri.path()).as_str() {
            "daemonsets" => Some(Kind::Sets),
            "nodes" => Some(Kind::Nodes),
            "pods" => Some(Kind::Pods),
            "controllerrevisions" => Some(Kind::Revisions),
            _ => None,
        };
        let (head, mut body) =
            self.server.send(Request::from_parts(head, kube::client::Body::empty())).await?.into_parts();
        if !head.status.is_success() {
            let said = body.collect_bytes().await?;
            return Ok(Response::from_parts(head, whole(said)));
        }
        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, Error>>(64);
        tokio::spawn(async move {
            let mut cursor = Cursor::of(&query);
            let mut left = Vec::new();
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = sender.closed() => return,
                };
                let Some(Ok(frame)) = frame else { return };
                left.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = left.iter().position(|it| *it == b'\n') {
                    let line: Vec<u8> = left.drain(..=end).collect();
                    if !self.pass(kind, line, &mut cursor, &sender).await {
                        return;
                    }
                }
            }
        });
        let lines =
            futures::stream::unfold(receiver, |mut it| async { it.recv().await.map(|line| (line, it)) });
        Ok(Response::from_parts(head, StreamBody::new(lines).boxed_unsync()))
    }

    /// Passes one line of a watch on. `false`: the watch is over.
    async fn pass(
        &self,
        kind: Option<Kind>,
        line: Vec<u8>,
        cursor: &mut Cursor,
        sender: &mpsc::Sender<Result<Frame<Bytes>, Error>>,
    ) -> bool {
        if self.weather.is_cut() {
            return false;
        }
        let send = |bytes: Vec<u8>| sender.send(Ok(Frame::data(Bytes::from(bytes))));
        match kind.and_then(|it| self.weather.of_watch(it)) {
            None => {}
            Some(WatchFault::Cut) => return false,
            Some(WatchFault::CutInMidLine) => {
                let half = line[..line.len() / 2].to_vec();
                drop(send(half).await);
                drop(sender.send(Err(reset())).await);
                return false;
            }
            Some(WatchFault::Expired) => {
                let said =
                    json!({"type": "ERROR", "object": failure(410, "Expired", "too old resource version")});
                drop(send(format!("{said}\n").into_bytes()).await);
                return false;
            }
            Some(WatchFault::Freeze(span)) => tokio::time::sleep(span).await,
            Some(WatchFault::Swallow) => return true,
        }
        if let (Some(kind), Actor::Controller(replica)) = (kind, self.actor)
            && let Some((after, revision)) = cursor.advance(&line)
        {
            self.delivered.lock().unwrap().push(Delivered { replica, kind, after, revision });
        }
        send(line).await.is_ok()
    }
}

/// How far a watch has come; nothing, as long as it tells the state as it is, which has no order.
struct Cursor(Option<u64>);

impl Cursor {
    fn of(query: &str) -> Self {
        let of = |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
        let lists_first = of("sendInitialEvents") == Some("true");
        Self(of("resourceVersion").and_then(|it| it.parse().ok()).filter(|_| !lists_first))
    }

    /// Where it was, and where it is with this line, if that is a change.
    fn advance(&mut self, line: &[u8]) -> Option<(u64, u64)> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let revision: u64 = line["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
        if line["type"] == "BOOKMARK" {
            self.0 = Some(revision);
            return None;
        }
        let after = self.0?;
        self.0 = Some(revision);
        Some((after, revision))
    }
}

/// `pods`, `daemonsets/status`: what a path is about, without names.
pub(crate) fn resource(path: &str) -> String {
    let mut parts = path.split('/').filter(|it| !it.is_empty());
    if parts.next() == Some("apis") {
        parts.next();
    }
    parts.next();
    let rest: Vec<&str> = parts.collect();
    let rest = match rest.as_slice() {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    match rest {
        [plural, _, subresource] => format!("{plural}/{subresource}"),
        [plural, ..] => (*plural).to_owned(),
        [] => String::new(),
    }
}

fn reset() -> Error {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    if code == 429 {
        status["details"] = json!({"retryAfterSeconds": 1});
    }
    status
}

fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    if code == 429 {
        response = response.header("retry-after", "1");
    }
    response.body(whole(Bytes::from(failure(code, reason, message).to_string()))).unwrap()
}
