//! Fuzzing with arbitrary requests: no panic, no hang, and no access to other namespaces.
//!
//! A case is a few requests to a server of its own, on which the user has permissions in one namespace (open) and
//! none in others (closed). Objects in closed namespaces contain a marker. No response may contain the marker,
//! and no object with it may change.
//!
//! `MUSTER_FUZZ=N` sends N requests of each kind instead of a few.

mod frames;
mod inputs;

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestError, TestRng, TestRunner};
use serde_json::{Value, json};

use self::inputs::FuzzRequest;
use super::tests::Server;
use crate::request::User;
use crate::unstructured::str_at;

/// Number of requests of each kind in `make test`.
const REQUESTS_PER_KIND: u32 = 500;

/// Number of requests of one case: enough that one may depend on another. A long run has fewer servers, because
/// creating one costs as much as a hundred requests.
const INPUTS_PER_CASE: u32 = 12;
const INPUTS_PER_LONG_CASE: u32 = 400;

/// Time after which a request counts as hanging: a few thousand times the duration of a request that does not
/// wait.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

/// Wall-clock time to wait for a response before the paused clock is advanced by `CLOCK_STEP`.
const WALL_CLOCK_WAIT: Duration = Duration::from_millis(1);
const CLOCK_STEP: Duration = Duration::from_secs(60);

/// The marker in every object of a closed namespace.
const LEAK_MARKER: &str = "not-for-your-eyes";

/// The namespace in which the user has permissions. Its name is a prefix and a part of the names of others.
const OPEN_NAMESPACE: &str = "a";
const CLOSED_NAMESPACES: [&str; 3] = ["aa", "b", "a-b"];

/// URLs of the lists that contain all objects that must not change.
const CHECKED_LISTS: &[&str] = &[
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/apps/v1/controllerrevisions",
    "/apis/apps/v1/daemonsets",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
];

#[test]
fn any_request() {
    check_no_leak(inputs::arbitrary_request(
        inputs::arbitrary_path(),
        inputs::arbitrary_query(),
        inputs::arbitrary_body(),
    ));
}

#[test]
fn any_patch() {
    check_no_leak(inputs::arbitrary_patch_request());
}

#[test]
fn any_selector() {
    check_no_leak(inputs::arbitrary_collection_request(inputs::selector_queries()));
}

#[test]
fn any_continue_token() {
    check_no_leak(inputs::arbitrary_collection_request(inputs::paging_queries()));
}

#[test]
fn any_protobuf() {
    check_no_leak(inputs::arbitrary_request(
        inputs::arbitrary_path(),
        inputs::arbitrary_query(),
        inputs::protobuf_body(),
    ));
}

#[test]
fn any_headers() {
    check_no_leak(inputs::requests_with_arbitrary_headers());
}

/// With permissions in all namespaces, the checks must notice the leak.
#[test]
fn a_leak_is_noticed() {
    let noticed = |said: Result<(), TestError<_>>| match said {
        Ok(()) => "nothing",
        Err(why) if why.to_string().contains("an object in a closed namespace was changed") => "a change",
        Err(why) if why.to_string().contains(LEAK_MARKER) => "the marker",
        Err(_) => "something else",
    };
    assert_eq!(
        noticed(run_cases(
            FuzzRights::Leaking,
            REQUESTS_PER_KIND,
            inputs::arbitrary_collection_request(inputs::selector_queries())
        )),
        "the marker"
    );
    assert_eq!(
        noticed(run_cases(
            FuzzRights::Leaking,
            REQUESTS_PER_KIND,
            inputs::arbitrary_collection_request(inputs::paging_queries())
        )),
        "the marker"
    );
    assert_eq!(
        noticed(run_cases(FuzzRights::Leaking, REQUESTS_PER_KIND, inputs::arbitrary_patch_request())),
        "the marker"
    );
}

fn check_no_leak(input: impl Strategy<Value = FuzzRequest>) {
    run_cases(FuzzRights::Proper, requests_per_kind(), input).unwrap_or_else(|why| panic!("{why}"));
}

/// Number of requests of each kind, from `MUSTER_FUZZ` or the default.
fn requests_per_kind() -> u32 {
    std::env::var("MUSTER_FUZZ").map_or(REQUESTS_PER_KIND, |it| it.parse().expect("MUSTER_FUZZ is a number"))
}

/// Creates a proptest runner of this many cases, which persists the seeds of failing cases.
fn test_runner(cases: u32) -> TestRunner {
    TestRunner::new(proptest_config(cases))
}

fn proptest_config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::SourceParallel("proptest-regressions"))),
        source_file: Some(file!()),
        ..Config::default()
    }
}

/// The namespaces in which the user has permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FuzzRights {
    /// The user has permissions in the open namespace only.
    Proper,
    /// The user has permissions in all namespaces, as if the server did not authorize.
    Leaking,
}

fn run_cases<S: Strategy<Value = FuzzRequest>>(
    rights: FuzzRights,
    inputs: u32,
    input: S,
) -> Result<(), TestError<(bool, Vec<FuzzRequest>)>> {
    let per_case = if inputs <= REQUESTS_PER_KIND { INPUTS_PER_CASE } else { INPUTS_PER_LONG_CASE };
    let config = proptest_config(inputs.div_ceil(per_case / 2));
    let mut runner = match rights {
        FuzzRights::Proper => TestRunner::new(config),
        // Deterministic, since the leak must be found; the first failure is enough.
        FuzzRights::Leaking => {
            let config = Config { failure_persistence: None, max_shrink_iters: 0, ..config };
            TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let case = (prop::bool::ANY, prop::collection::vec(input, 1..=per_case as usize));
    runner.run(&case, |(is_restricted, inputs)| {
        runtime.block_on(async {
            let world = FuzzServer::new(rights).await;
            let before = world.closed_objects().await;
            for input in &inputs {
                world.send_as(is_restricted, input).await?;
            }
            prop_assert_eq!(
                before,
                world.closed_objects().await,
                "an object in a closed namespace was changed"
            );
            Ok(())
        })
    })
}

/// Waits for a response, or returns `None` if the request hangs. The paused clock is advanced, so that a watch of
/// an hour ends soon, but only step by step, because it must not overtake the store's thread.
async fn response_or_hang<T>(mut answered: impl Future<Output = T> + Unpin) -> Option<T> {
    let began = Instant::now();
    while began.elapsed() < HANG_TIMEOUT {
        if let Poll::Ready(answer) = futures::poll!(&mut answered) {
            return Some(answer);
        }
        let wait = tokio::task::spawn_blocking(|| std::thread::sleep(WALL_CLOCK_WAIT));
        tokio::select! {
            answer = &mut answered => return Some(answer),
            _ = wait => tokio::time::advance(CLOCK_STEP).await,
        }
    }
    None
}

struct FuzzServer {
    server: Server,
}

impl FuzzServer {
    async fn new(rights: FuzzRights) -> Self {
        let server = Server::new().await;
        for namespace in [OPEN_NAMESPACE].iter().chain(&CLOSED_NAMESPACES) {
            let mark = if *namespace == OPEN_NAMESPACE { "open" } else { LEAK_MARKER };
            let labels = json!({"mark": mark, "app": "x"});
            let metadata = |name: &str| json!({"name": name, "labels": labels});
            let make = async |path: &str, object: Value| {
                let (code, answer) = server.json("POST", path, object).await;
                assert_eq!(code, 201, "{path}: {answer}");
            };
            make("/api/v1/namespaces", json!({"metadata": metadata(namespace)})).await;
            let core = format!("/api/v1/namespaces/{namespace}");
            let pod = json!({"containers": [{"name": "c", "image": mark}], "nodeName": "n"});
            make(&format!("{core}/serviceaccounts"), json!({"metadata": metadata("default")})).await;
            make(&format!("{core}/configmaps"), json!({"metadata": metadata("m"), "data": {"k": mark}}))
                .await;
            make(&format!("{core}/secrets"), json!({"metadata": metadata("s"), "stringData": {"k": mark}}))
                .await;
            make(&format!("{core}/pods"), json!({"metadata": metadata("p"), "spec": pod})).await;
            // A user who writes endpoints may name a pod of another namespace.
            let service =
                json!({"metadata": metadata("w"), "spec": {"ports": [{"name": "http", "port": 80}]}});
            make(&format!("{core}/services"), service).await;
            let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
            let endpoint = |namespace: &str| {
                let pod = json!({"kind": "Pod", "namespace": namespace, "name": "p"});
                json!({"addresses": ["10.0.0.1"], "targetRef": pod})
            };
            let slice = json!({
                "metadata": {"name": "w", "labels": {"kubernetes.io/service-name": "w", "mark": mark}},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 80}],
                "endpoints": [endpoint(namespace), endpoint(CLOSED_NAMESPACES[0])],
            });
            make(&slices, slice).await;
            let template = json!({"metadata": {"labels": labels}, "spec": {"containers": pod["containers"]}});
            let set = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
            let sets = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
            make(&sets, json!({"metadata": metadata("d"), "spec": set})).await;
        }
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let role = json!({"metadata": {"name": "everything"}, "rules": everything});
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let (code, answer) = server.json("POST", roles, role).await;
        assert_eq!(code, 201, "{answer}");
        let binding = json!({
            "metadata": {"name": "guest"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "guest"}],
        });
        let bindings = match rights {
            FuzzRights::Proper => {
                format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{OPEN_NAMESPACE}/rolebindings")
            }
            FuzzRights::Leaking => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        };
        let (code, answer) = server.json("POST", &bindings, binding).await;
        assert_eq!(code, 201, "{answer}");
        Self { server }
    }

    /// Sends a request as the restricted user or as an administrator. The requests of the administrator, who has
    /// all permissions, are changed to the open namespace.
    async fn send_as(&self, is_restricted: bool, input: &FuzzRequest) -> Result<(), TestCaseError> {
        let user = if is_restricted {
            User { name: "guest".into(), groups: vec!["system:authenticated".into()], ..User::default() }
        } else {
            User::server()
        };
        let Some(request) = input.to_http_request(!is_restricted) else { return Ok(()) };
        let is_of_many = *request.method() == hyper::Method::DELETE;
        let revision = self.server.api.registry.storage.revision();
        let answered = pin!(async {
            let response = self.server.api.handle(Some(&user), request).await;
            let status = response.status();
            (status, response.into_body().collect().await)
        });
        let Some((status, body)) = response_or_hang(answered).await else {
            return Err(TestCaseError::fail("it hangs"));
        };
        let body = body.map_err(|it| TestCaseError::fail(format!("the body broke off: {it}")))?.to_bytes();
        let body = String::from_utf8_lossy(&body);
        // The deletion of a collection may fail after the first objects were deleted.
        if (status.is_client_error() || status.is_server_error()) && !is_of_many {
            prop_assert_eq!(
                self.server.api.registry.storage.revision(),
                revision,
                "{} changed something: {}",
                status,
                body
            );
        }
        prop_assert!(!body.contains(LEAK_MARKER), "{status}: {body}");
        Ok(())
    }

    /// Returns all objects outside the open namespace, with their resourceVersions.
    async fn closed_objects(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for list in CHECKED_LISTS {
            let (code, mut list) = self.server.json("GET", list, Value::Null).await;
            assert_eq!(code, 200, "{list}");
            all.extend(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default());
        }
        all.retain(|it| {
            str_at(it, "metadata.namespace") != OPEN_NAMESPACE
                && str_at(it, "metadata.name") != OPEN_NAMESPACE
        });
        all
    }
}
