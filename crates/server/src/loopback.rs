//! In-process clients for the components of Muster. Their requests use no connection and no TLS, but pass the same
//! authorization, flow control, metrics and audit as requests over the network.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::connections::RequestClient;
use crate::flow_control::BodyError;
use crate::http::{Api, OutgoingResponse};
use crate::request::User;
use crate::storage::fence::LeaderFence;

/// Maximum number of requests that all loopback clients together may have in flight. This includes requests that wait
/// for a seat. A watch is in flight only until its response begins.
const REQUESTS_IN_FLIGHT_MAX: u32 = 4_000;

/// Why a request of a loopback client got no response.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    /// The server is stopping, or `REQUESTS_IN_FLIGHT_MAX` requests are in flight.
    #[error("the server is stopping, or it has too many requests in flight")]
    Unavailable,
    /// The handler of the request panicked.
    #[error("the server panicked while it handled the request")]
    Panicked,
}

/// An in-process client whose requests are authorized as one built-in user. Upstream: `LoopbackClientConfig`.
#[derive(Debug, Clone)]
pub struct LoopbackClient {
    api: Api,
    /// All requests are authorized as this user.
    user: Arc<User>,
    /// The fence of all writes, if the client belongs to a leader.
    fence: Option<LeaderFence>,
    /// State that this client shares with the other loopback clients of the server.
    shared: SharedLoopbackState,
}

/// State that all loopback clients of a server share.
#[derive(Debug, Clone)]
pub(crate) struct SharedLoopbackState {
    /// Permits for requests in flight, at most `REQUESTS_IN_FLIGHT_MAX`. Closed when the server stops.
    permits: Arc<Semaphore>,
    /// The client that handlers see in the extensions of a request: it has the loopback address and no connection.
    client: Arc<RequestClient>,
}

impl LoopbackClient {
    /// Returns the same client with a fence: its writes are refused once the Lease of the fence has another holder.
    #[must_use]
    pub fn with_fence(self, fence: LeaderFence) -> Self {
        Self { fence: Some(fence), ..self }
    }

    /// Sends a request and returns its response. The body of the response produces data only when it is read.
    ///
    /// Dropping the future cancels the request, as closing a connection does. Dropping the body of a watch ends the
    /// watch.
    pub async fn send<B>(
        &self,
        mut request: Request<B>,
    ) -> Result<hyper::Response<impl Body<Data = Bytes, Error = BodyError> + Send + use<B>>, LoopbackError>
    where
        B: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let permit =
            self.shared.permits.clone().try_acquire_owned().map_err(|_| LoopbackError::Unavailable)?;
        request.extensions_mut().insert(self.shared.client.clone());
        let (api, user, fence) = (self.api.clone(), self.user.clone(), self.fence.clone());
        // Each request is a task, as over the network, so that one client's requests run concurrently.
        let mut handling = JoinSet::new();
        handling.spawn(async move {
            let _permit = permit;
            match fence {
                None => api.handle(Some(&user), request).await,
                Some(fence) => fence.run_fenced(api.handle(Some(&user), request)).await,
            }
        });
        let response: Option<Result<OutgoingResponse, _>> = handling.join_next().await;
        response.and_then(Result::ok).ok_or(LoopbackError::Panicked)
    }
}

impl SharedLoopbackState {
    pub(crate) fn new() -> Self {
        let client = RequestClient {
            address: IpAddr::from(Ipv4Addr::LOCALHOST),
            connection: None,
            guard: None,
            peer: None,
            is_in_process: true,
        };
        Self { permits: Arc::new(Semaphore::new(REQUESTS_IN_FLIGHT_MAX as usize)), client: Arc::new(client) }
    }

    /// Returns a client whose requests are authorized as `user`.
    pub(crate) fn client(&self, api: Api, user: User) -> LoopbackClient {
        LoopbackClient { api, user: Arc::new(user), fence: None, shared: self.clone() }
    }

    /// Refuses new requests of all loopback clients, and waits until the requests in flight are complete.
    pub(crate) async fn close(&self) {
        // The semaphore is fair: this acquires before requests that come later.
        drop(self.permits.acquire_many(REQUESTS_IN_FLIGHT_MAX).await);
        self.permits.close();
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
    use crate::{ApiServer, BuiltinUser};

    const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

    fn request(method: &str, path: &str) -> Request<Full<Bytes>> {
        Request::builder().method(method).uri(path).body(Full::default()).unwrap()
    }

    async fn server(dir: &tempfile::TempDir) -> ApiServer {
        ApiServer::open((Ipv4Addr::LOCALHOST, 0).into(), None, dir.path()).await.unwrap()
    }

    #[tokio::test]
    async fn loopback_requests_are_authorized_and_audited() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = server(&dir).await;
        let log = dir.path().join("audit");
        server.enable_audit_log(&log).unwrap();
        let (controller, admin) =
            (server.loopback_client(BuiltinUser::Controller), server.loopback_client(BuiltinUser::Admin));
        let mut said = String::new();
        for (client, method) in [(&controller, "GET"), (&controller, "DELETE"), (&admin, "DELETE")] {
            let answer = client.send(request(method, SETS)).await.unwrap();
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
    async fn a_loopback_watch_ends_when_the_server_stops() {
        let dir = tempfile::tempdir().unwrap();
        let server = server(&dir).await;
        let (client, stop) = (server.loopback_client(BuiltinUser::Controller), CancellationToken::new());
        let serving = tokio::spawn(server.serve(stop.clone()));
        let watched = client.send(request("GET", &format!("{SETS}?watch=1"))).await.unwrap();
        stop.cancel();
        watched.into_body().collect().await.unwrap();
        serving.await.unwrap().unwrap();
        assert!(matches!(client.send(request("GET", SETS)).await, Err(LoopbackError::Unavailable)));
    }

    #[tokio::test]
    async fn a_server_that_shuts_down_is_not_ready_but_serves_until_the_delay_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = server(&dir).await;
        server.set_shutdown_delay(std::time::Duration::from_secs(3600));
        let (client, stop) = (server.loopback_client(BuiltinUser::Admin), CancellationToken::new());
        let serving = tokio::spawn(server.serve(stop.clone()));
        let code = async |path: &str| client.send(request("GET", path)).await.unwrap().status().as_u16();
        assert_eq!([code("/readyz").await, code("/livez").await, code(SETS).await], [200, 200, 200]);
        stop.cancel();
        while code("/readyz").await == 200 {
            tokio::task::yield_now().await;
        }
        assert_eq!([code("/readyz").await, code("/livez").await, code(SETS).await], [500, 200, 200]);
        assert!(!serving.is_finished());
        serving.abort();
    }

    #[tokio::test]
    async fn a_dropped_loopback_request_is_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let server = server(&dir).await;
        let client = server.loopback_client(BuiltinUser::Admin);
        let watched = client.send(request("GET", &format!("{SETS}?watch=1"))).await.unwrap();
        let watches = || server.api.registry.metrics.long_running_requests.get();
        assert_eq!(watches(), 1);
        drop(watched);
        assert_eq!(watches(), 0);

        // The body never comes, so there is no answer.
        let body = http_body_util::StreamBody::new(futures::stream::pending::<
            Result<hyper::body::Frame<Bytes>, std::convert::Infallible>,
        >());
        let asking = client.send(Request::builder().method("POST").uri(SETS).body(body).unwrap());
        let mut asking = Box::pin(asking);
        for _ in 0..10 {
            assert!(futures::poll!(&mut asking).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(client.shared.permits.available_permits(), REQUESTS_IN_FLIGHT_MAX as usize - 1);
        drop(asking);
        server.loopback_clients.close().await;
        assert_eq!(client.shared.permits.available_permits(), REQUESTS_IN_FLIGHT_MAX as usize);
    }
}
