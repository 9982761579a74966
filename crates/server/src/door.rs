//! The way in for the parts of Muster that run in the server's own process: no line and no TLS between them, and all else as
//! for those who come over the wire. Roles decide, limits hold, the audit log tells.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::auth::User;
use crate::connections::Client;
use crate::http::{Api, BoxError, SentResponse};

/// Requests at once through all doors: beyond those that have a place there may be as many as may wait for one, and watches
/// that begin.
const PASSING_MAX: u32 = 4_000;

#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    #[error("the server stops, or too much is asked of it at once")]
    Closed,
    #[error("the server panicked while it answered")]
    Panicked,
}

/// A door for one of the parts: who comes through it is known.
#[derive(Debug, Clone)]
pub struct Door {
    api: Api,
    user: Arc<User>,
    doors: Doors,
}

/// What all doors have in common: how many requests are on their way through them.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    places: Arc<Semaphore>,
    client: Arc<Client>,
}

impl Door {
    /// The answer to a request. Whoever no longer waits for it takes it back, as on a line that is closed; and so does whoever
    /// drops the body of a watch. A body that nobody reads makes nothing ready.
    pub async fn ask<B>(
        &self,
        mut request: Request<B>,
    ) -> Result<hyper::Response<impl Body<Data = Bytes, Error = BoxError> + Send + use<B>>, DoorError>
    where
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let place = self.doors.places.clone().try_acquire_owned().map_err(|_| DoorError::Closed)?;
        request.extensions_mut().insert(self.doors.client.clone());
        let (api, user) = (self.api.clone(), self.user.clone());
        // A task of its own, as each request over the wire has: one client's requests are answered side by side.
        let mut answering = JoinSet::new();
        answering.spawn(async move {
            let _place = place;
            api.answer(Some(&user), request).await
        });
        let answered: Option<Result<SentResponse, _>> = answering.join_next().await;
        answered.and_then(Result::ok).ok_or(DoorError::Panicked)
    }
}

impl Doors {
    pub(crate) fn new() -> Self {
        let client = Client {
            address: IpAddr::from(Ipv4Addr::LOCALHOST),
            connection: None,
            held: None,
            peer: None,
            is_in_process: true,
        };
        Self { places: Arc::new(Semaphore::new(PASSING_MAX as usize)), client: Arc::new(client) }
    }

    pub(crate) fn door(&self, api: Api, user: User) -> Door {
        Door { api, user: Arc::new(user), doors: self.clone() }
    }

    /// Lets nobody in any more, and waits for those who are.
    pub(crate) async fn close(&self) {
        // Whoever waits for all places is before everyone who comes now.
        drop(self.places.acquire_many(PASSING_MAX).await);
        self.places.close();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::expect;
    use http_body_util::{BodyExt as _, Full};
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::pki::tests::Dir;
    use crate::{Server, Who};

    const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

    fn request(method: &str, path: &str) -> Request<Full<Bytes>> {
        Request::builder().method(method).uri(path).body(Full::default()).unwrap()
    }

    async fn server(dir: &Dir) -> Server {
        Server::bind((Ipv4Addr::LOCALHOST, 0).into(), None, &dir.0).await.unwrap()
    }

    #[tokio::test]
    async fn roles_decide_and_the_audit_log_tells_who_came() {
        let dir = Dir::new();
        let mut server = server(&dir).await;
        let log = dir.0.join("audit");
        server.audit_to(&log).unwrap();
        let (controller, admin) = (server.door(Who::Controller), server.door(Who::Admin));
        let mut said = String::new();
        for (door, method) in [(&controller, "GET"), (&controller, "DELETE"), (&admin, "DELETE")] {
            let answer = door.ask(request(method, SETS)).await.unwrap();
            let code = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            writeln!(said, "{code} {}", body["message"].as_str().unwrap_or_default()).unwrap();
        }
        drop((server, controller, admin));
        for line in std::fs::read_to_string(log).unwrap().lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let code = &event["responseStatus"]["code"];
            let decision = &event["annotations"]["authorization.k8s.io/decision"];
            writeln!(said, "{} {} {code} {decision} {}", event["verb"], event["user"], event["sourceIPs"])
                .unwrap();
        }
        expect![[r#"
            200 
            403 daemonsets.apps is forbidden: User "system:muster-controller" cannot deletecollection resource "daemonsets" in API group "apps" in the namespace "default"
            200 
            "list" {"groups":["system:authenticated"],"username":"system:muster-controller"} 200 "allow" ["127.0.0.1"]
            "deletecollection" {"groups":["system:authenticated"],"username":"system:muster-controller"} 403 "forbid" ["127.0.0.1"]
            "deletecollection" {"groups":["system:masters","system:authenticated"],"username":"kubernetes-admin"} 200 "allow" ["127.0.0.1"]
        "#]].assert_eq(&said);
    }

    #[tokio::test]
    async fn a_watch_ends_when_the_server_stops_and_the_door_is_closed_then() {
        let dir = Dir::new();
        let server = server(&dir).await;
        let (door, stop) = (server.door(Who::Controller), CancellationToken::new());
        let serving = tokio::spawn(server.serve(stop.clone()));
        let watched = door.ask(request("GET", &format!("{SETS}?watch=1"))).await.unwrap();
        stop.cancel();
        watched.into_body().collect().await.unwrap();
        serving.await.unwrap().unwrap();
        assert!(matches!(door.ask(request("GET", SETS)).await, Err(DoorError::Closed)));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_given_up() {
        let dir = Dir::new();
        let server = server(&dir).await;
        let door = server.door(Who::Admin);
        let watched = door.ask(request("GET", &format!("{SETS}?watch=1"))).await.unwrap();
        let watches = || server.api.registry.metrics.watches.get();
        assert_eq!(watches(), 1);
        drop(watched);
        assert_eq!(watches(), 0);

        // The body never comes, so there is no answer.
        let body = http_body_util::StreamBody::new(futures::stream::pending::<
            Result<hyper::body::Frame<Bytes>, std::convert::Infallible>,
        >());
        let asking = door.ask(Request::builder().method("POST").uri(SETS).body(body).unwrap());
        let mut asking = Box::pin(asking);
        for _ in 0..10 {
            assert!(futures::poll!(&mut asking).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(door.doors.places.available_permits(), PASSING_MAX as usize - 1);
        drop(asking);
        server.doors.close().await;
        assert_eq!(door.doors.places.available_permits(), PASSING_MAX as usize);
    }
}
