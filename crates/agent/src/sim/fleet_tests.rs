//! API calls of a fleet over simulated time, against a fake API server with one node and one pod.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::expect;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};

use super::clock::{FleetClock, shift_timestamp};
use super::fleet::{FleetOptions, FleetRunner};

/// Returns a client of a fake API server that has one node and one terminating pod. Each request except watches is
/// added to `asked`.
fn fake_api_client(asked: Arc<Mutex<Vec<String>>>) -> kube::Client {
    let answer = move |request: Request<Body>| {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let is_watch = uri.query().is_some_and(|it| it.contains("watch=true"));
        if !is_watch {
            asked.lock().unwrap().push(format!("{method} {}", uri.path()));
        }
        async move {
            if is_watch {
                // A watch that brings nothing.
                return std::future::pending().await;
            }
            let list = |kind: &str, item: Value| json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [item]});
            let answer = match (&method, uri.path()) {
                (&Method::GET, "/api/v1/nodes") => list("NodeList", node_json()),
                (&Method::GET, "/api/v1/pods") => list("PodList", pod_json()),
                _ => json!({"metadata": {"resourceVersion": "2"}}),
            };
            Ok::<_, std::io::Error>(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
        }
    };
    kube::Client::new(tower::service_fn(answer), "default")
}

/// Returns the Node that the fake API server has.
fn node_json() -> Value {
    let labels = json!({"sim.muster.dev/fleet": "up"});
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    json!({
        "metadata": {"name": "sim-1", "uid": "n", "resourceVersion": "1", "labels": labels},
        "spec": {"podCIDR": "10.0.1.0/24"},
        "status": {"conditions": conditions},
    })
}

/// Returns the pod that the fake API server has: it is terminating, and its container takes 60 s to stop.
fn pod_json() -> Value {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let status =
        json!([{"name": "main", "ready": true, "started": true, "restartCount": 0, "state": running}]);
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "p", "resourceVersion": "1",
            "annotations": {"sim.muster.dev/stop-delay": "60s"},
            "deletionTimestamp": "2026-01-01T01:10:00Z", "deletionGracePeriodSeconds": 300,
        },
        "spec": {"nodeName": "sim-1", "containers": [{"name": "main", "image": "web:1"}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": status},
    })
}

/// Runs a fleet for two minutes and changes the wall clock by `step` after 30 s. Returns the number of lease
/// renewals in the last 90 s, and whether the pod was deleted.
async fn renewals_after_clock_change(step: SignedDuration) -> (usize, bool) {
    let (asked, set) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(SignedDuration::ZERO)));
    let (began, start) = (tokio::time::Instant::now(), "2026-01-01T01:00:00Z".parse::<Timestamp>().unwrap());
    let shown = set.clone();
    let clock = FleetClock::new(move || {
        let passed = SignedDuration::try_from(began.elapsed()).unwrap();
        shift_timestamp(shift_timestamp(start, passed), *shown.lock().unwrap())
    });
    let mut play = FleetRunner::new(fake_api_client(asked.clone()), FleetOptions::default(), clock);
    let playing = async {
        play.run().await;
        panic!("it ended");
    };
    let judging = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        asked.lock().unwrap().clear();
        *set.lock().unwrap() = step;
        tokio::time::sleep(Duration::from_secs(90)).await;
        let asked = asked.lock().unwrap();
        let lease = "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/sim-1";
        let removed = asked.iter().any(|it| it == "DELETE /api/v1/namespaces/shop/pods/web");
        (asked.iter().filter(|it| *it == lease).count(), removed)
    };
    tokio::select! {
        never = playing => never,
        seen = judging => seen,
    }
}

#[tokio::test(start_paused = true)]
async fn clock_change_affects_neither_heartbeats_nor_pod_deletion() {
    for hours in [0, -1, 1, 24] {
        let (renewals, removed) = renewals_after_clock_change(SignedDuration::from_hours(hours)).await;
        assert!((8..=10).contains(&renewals), "{hours} h: {renewals} renewals in 90 s");
        assert!(removed, "{hours} h: the pod was not removed");
    }
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_simulated_node_has_the_fields_of_a_real_one() {
    let (sent, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    let client = kube::Client::new(
        tower::service_fn(move |request: Request<Body>| {
            let sent = sent.clone();
            async move {
                let (parts, body) = request.into_parts();
                if parts.uri.query().is_some_and(|it| it.contains("watch=true")) {
                    return std::future::pending().await;
                }
                if parts.uri.path().contains("/leases") {
                    let body = body.collect().await.unwrap().to_bytes();
                    sent.send(format!("{} {}", parts.method, String::from_utf8_lossy(&body))).unwrap();
                }
                let items =
                    if parts.uri.path() == "/api/v1/nodes" { json!([node_json()]) } else { json!([]) };
                let answer = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
                Ok::<_, std::io::Error>(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
            }
        }),
        "default",
    );
    let start = "2026-01-01T01:00:00.25Z".parse::<Timestamp>().unwrap();
    let began = tokio::time::Instant::now();
    let clock =
        FleetClock::new(move || shift_timestamp(start, SignedDuration::try_from(began.elapsed()).unwrap()));
    let mut fleet = FleetRunner::new(client, FleetOptions::default(), clock);
    let requests = async { [bodies.recv().await.unwrap(), bodies.recv().await.unwrap()].join("\n") };
    let requests = tokio::select! {
        () = fleet.run() => panic!("the fleet has stopped"),
        requests = requests => requests,
    };
    expect![[r#"
        POST {"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"sim-1","namespace":"kube-node-lease","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"sim-1","uid":"n"}]},"spec":{"holderIdentity":"sim-1","leaseDurationSeconds":40,"renewTime":"2026-01-01T01:00:00.250000Z"}}
        PATCH {"spec":{"holderIdentity":"sim-1","leaseDurationSeconds":40,"renewTime":"2026-01-01T01:00:06.431000Z"}}"#]].assert_eq(&requests);
}
