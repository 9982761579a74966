//! Fuzzing with arbitrary requests. They must cause no panic, no hang, and no access to other namespaces.
//!
//! Each case starts a server and sends it a few requests. In about half of the cases, their user has permissions in one
//! namespace (open) and none in the others (closed). In the other cases, an administrator sends requests for the open
//! namespace. Objects in closed namespaces contain a marker. No response may contain the marker, and no object with the
//! marker may change.
//!
//! `MUSTER_FUZZ=N` sends about N requests in each test instead of `REQUESTS_PER_TEST`.

/// Fuzzing with arbitrary HTTP/2 frames.
mod frames;
/// Generators of arbitrary requests.
mod inputs;

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestError, TestRng, TestRunner};
use serde_json::{Value, json};

use self::inputs::FuzzRequest;
pub(super) use self::inputs::header_names;
use super::tests::Server;
use crate::request::User;
use crate::unstructured::str_at;

/// Default number of requests that each test sends, approximately. The environment variable `MUSTER_FUZZ` overrides it.
const REQUESTS_PER_TEST: u32 = 500;

/// Maximum number of requests of one case, which is large enough for a request to depend on an earlier one.
const CASE_REQUESTS_MAX: u32 = 12;
/// Maximum number of requests of one case if `MUSTER_FUZZ` asks for a long run. It is larger, because starting a server
/// for each case costs as much as a hundred requests.
const LONG_CASE_REQUESTS_MAX: u32 = 400;

/// Time after which a request counts as hanging. A request that does not wait needs less than a thousandth of this
/// time.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

/// Wall-clock time to wait for a response before the paused tokio clock is advanced by `CLOCK_STEP`.
const WALL_CLOCK_WAIT: Duration = Duration::from_millis(1);
/// Time by which the paused clock is advanced after each `WALL_CLOCK_WAIT` without a response.
const CLOCK_STEP: Duration = Duration::from_secs(60);

/// The marker in every object of a closed namespace.
const LEAK_MARKER: &str = "not-for-your-eyes";

/// The namespace in which the user has permissions. The names of some closed namespaces begin with its name, so that a
/// wrong prefix comparison is detected.
const OPEN_NAMESPACE: &str = "a";
/// Namespaces in which the user has no permissions.
const CLOSED_NAMESPACES: [&str; 3] = ["aa", "b", "a-b"];

/// URLs of the lists that are compared before and after a case. Outside the open namespace, a case must not change the
/// objects in them.
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
    "/apis/muster.dev/v1alpha1/clusterrolloutpolicies",
    "/apis/muster.dev/v1alpha1/daemonrollouts",
    "/apis/muster.dev/v1alpha1/rolloutpolicies",
];

/// Sends requests with arbitrary methods, paths, queries and bodies. They must not read or change objects in closed
/// namespaces.
#[test]
fn arbitrary_requests_do_not_leak() {
    check_no_leak(inputs::arbitrary_request(
        inputs::arbitrary_path(),
        inputs::arbitrary_query(),
        inputs::arbitrary_body(),
    ));
}

/// Sends arbitrary patches. They must not read or change objects in closed namespaces.
#[test]
fn arbitrary_patches_do_not_leak() {
    check_no_leak(inputs::arbitrary_patch_request());
}

/// Sends arbitrary label and field selectors. They must not read or change objects in closed namespaces.
#[test]
fn arbitrary_selectors_do_not_leak() {
    check_no_leak(inputs::arbitrary_collection_request(inputs::selector_queries()));
}

/// Sends arbitrary continue tokens. They must not read or change objects in closed namespaces.
#[test]
fn arbitrary_continue_tokens_do_not_leak() {
    check_no_leak(inputs::arbitrary_collection_request(inputs::paging_queries()));
}

/// Sends arbitrary protobuf bodies. They must not read or change objects in closed namespaces.
#[test]
fn arbitrary_protobuf_bodies_do_not_leak() {
    check_no_leak(inputs::arbitrary_request(
        inputs::arbitrary_path(),
        inputs::arbitrary_query(),
        inputs::protobuf_body(),
    ));
}

/// Sends arbitrary headers. They must not give access to objects in closed namespaces.
#[test]
fn arbitrary_headers_do_not_leak() {
    check_no_leak(inputs::requests_with_arbitrary_headers());
}

/// Checks that a leak is detected: if the user has permissions in all namespaces, a response contains the marker.
#[test]
fn checks_detect_leaks() {
    let noticed = |said: Result<(), TestError<_>>| match said {
        Ok(()) => "nothing",
        Err(why) if why.to_string().contains("an object in a closed namespace was changed") => "a change",
        Err(why) if why.to_string().contains(LEAK_MARKER) => "the marker",
        Err(_) => "something else",
    };
    assert_eq!(
        noticed(run_cases(
            FuzzPermissions::AllNamespaces,
            REQUESTS_PER_TEST,
            inputs::arbitrary_collection_request(inputs::selector_queries())
        )),
        "the marker"
    );
    assert_eq!(
        noticed(run_cases(
            FuzzPermissions::AllNamespaces,
            REQUESTS_PER_TEST,
            inputs::arbitrary_collection_request(inputs::paging_queries())
        )),
        "the marker"
    );
    assert_eq!(
        noticed(run_cases(
            FuzzPermissions::AllNamespaces,
            REQUESTS_PER_TEST,
            inputs::arbitrary_patch_request()
        )),
        "the marker"
    );
}

/// Sends generated requests, and panics if one of them panics, hangs, or reads or changes an object in a closed
/// namespace.
fn check_no_leak(input: impl Strategy<Value = FuzzRequest>) {
    run_cases(FuzzPermissions::OpenNamespace, requests_per_test(), input)
        .unwrap_or_else(|why| panic!("{why}"));
}

/// Returns the number of requests that each test sends: `MUSTER_FUZZ`, or `REQUESTS_PER_TEST` if it is not set.
fn requests_per_test() -> u32 {
    std::env::var("MUSTER_FUZZ").map_or(REQUESTS_PER_TEST, |it| it.parse().expect("MUSTER_FUZZ is a number"))
}

/// Creates a proptest runner for `cases` cases, which persists the seeds of failing cases.
fn test_runner(cases: u32) -> TestRunner {
    TestRunner::new(proptest_config(cases))
}

/// Returns a proptest configuration for `cases` cases, which persists the seeds of failing cases.
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
enum FuzzPermissions {
    /// The user has permissions in the open namespace only.
    OpenNamespace,
    /// The user has permissions in all namespaces, as if the server did not authorize.
    AllNamespaces,
}

/// Sends about `inputs` generated requests, split into cases with a server each. Fails with the first case in which a
/// request hangs, or reads or changes an object in a closed namespace.
fn run_cases<S: Strategy<Value = FuzzRequest>>(
    permissions: FuzzPermissions,
    inputs: u32,
    input: S,
) -> Result<(), TestError<(bool, Vec<FuzzRequest>)>> {
    let per_case = if inputs <= REQUESTS_PER_TEST { CASE_REQUESTS_MAX } else { LONG_CASE_REQUESTS_MAX };
    let config = proptest_config(inputs.div_ceil(per_case / 2));
    let mut runner = match permissions {
        FuzzPermissions::OpenNamespace => TestRunner::new(config),
        // Deterministic, since the leak must be found; the first failure is enough.
        FuzzPermissions::AllNamespaces => {
            let config = Config { failure_persistence: None, max_shrink_iters: 0, ..config };
            TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let case = (prop::bool::ANY, prop::collection::vec(input, 1..=per_case as usize));
    runner.run(&case, |(is_restricted, inputs)| {
        runtime.block_on(async {
            let world = FuzzServer::new(permissions).await;
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

/// Waits for a response. Returns `None` if there is none within `HANG_TIMEOUT`.
///
/// Advances the paused clock while it waits, so that a watch of an hour ends soon. The clock advances in small steps,
/// so that timers do not fire before the thread of the store has done its work.
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

/// A server with the same objects in the open namespace and in each closed namespace.
struct FuzzServer {
    server: Server,
}

impl FuzzServer {
    async fn new(permissions: FuzzPermissions) -> Self {
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
            let policies = format!("/apis/muster.dev/v1alpha1/namespaces/{namespace}/rolloutpolicies");
            make(&policies, json!({"metadata": metadata("r"), "spec": {"selector": {}}})).await;
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
        let bindings = match permissions {
            FuzzPermissions::OpenNamespace => {
                format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{OPEN_NAMESPACE}/rolebindings")
            }
            FuzzPermissions::AllNamespaces => {
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned()
            }
        };
        let (code, answer) = server.json("POST", &bindings, binding).await;
        assert_eq!(code, 201, "{answer}");
        Self { server }
    }

    /// Sends a request as the restricted user, or as an administrator if `is_restricted` is false. The requests of the
    /// administrator, who has all permissions, are redirected to the open namespace. A request that cannot be
    /// redirected is not sent.
    ///
    /// Fails if the request hangs, if the response contains the marker, or if a failed request changed the store.
    async fn send_as(&self, is_restricted: bool, input: &FuzzRequest) -> Result<(), TestCaseError> {
        let user = if is_restricted {
            User { name: "guest".into(), groups: vec!["system:authenticated".into()], ..User::default() }
        } else {
            User::server()
        };
        let Some(request) = input.to_http_request(!is_restricted) else { return Ok(()) };
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
        if status.is_client_error() || status.is_server_error() {
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

    /// Returns all objects in `CHECKED_LISTS` outside the open namespace, with their resourceVersions.
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
