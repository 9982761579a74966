//! Limits on requests, and access of anonymous users.

use expect_test::expect;
use futures::FutureExt as _;

use super::*;
use crate::flow_control::{FlowClass, FlowSeatLimit, PriorityLevel, Seat};
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, URL_BYTES_MAX};

/// Code, `Retry-After` and message of the answer to a GET.
async fn get(api: &Api, user: Option<&User>, path: &str) -> String {
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let response = api.handle(user, request).await;
    let code = response.status().as_u16();
    let after = response.headers().get("retry-after").map(|it| it.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    format!("{code} {after:?} {}", str_at(&body, "message"))
}

fn limited(config: LimitsConfig) -> Arc<ServerLimits> {
    Arc::new(ServerLimits::new(config))
}

/// Seats for everything that a user may have.
async fn all_seats(api: &Api, user: &str, is_read: bool) -> Vec<Seat> {
    let class =
        FlowClass::Queued { level: PriorityLevel::Workload, flow: user, seat_limit: FlowSeatLimit::Quarter };
    let mut held = Vec::new();
    while let Some(Ok((seat, _))) = api.limits.flow_control.acquire_seat(class, is_read).now_or_never() {
        held.push(seat);
    }
    held
}

#[tokio::test(start_paused = true)]
async fn a_user_without_a_free_seat_gets_429_and_others_are_served() {
    let mut api = Server::new().await.api;
    crate::controllers::cluster_roles::ensure_default_roles(&api.registry, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    api.limits = limited(LimitsConfig { watches: 0, ..api.limits.config });
    let account = User::service_account("default", "default");
    let known = User { groups: vec!["system:authenticated".to_owned()], ..account };
    let held = all_seats(&api, &known.name, true).await;
    let other = User { name: "other".to_owned(), ..known.clone() };
    let began = tokio::time::Instant::now();
    let mut said = String::new();
    for (user, path) in [
        (&other, "/apis"),
        (&User::server(), PODS),
        (&known, "/readyz"),
        (&User::server(), &format!("{PODS}?watch=true")),
    ] {
        writeln!(said, "{} {path} {}", user.name, get(&api, Some(user), path).await).unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits for the seats of another user");
    writeln!(said, "{} /apis {}", known.name, get(&api, Some(&known), "/apis").await).unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    drop(held);
    writeln!(said, "{} /apis {}", known.name, get(&api, Some(&known), "/apis").await).unwrap();
    expect![[r#"
        other /apis 200 None 
        system:apiserver /api/v1/namespaces/default/pods 200 None 
        system:serviceaccount:default:default /readyz 200 None 
        system:apiserver /api/v1/namespaces/default/pods?watch=true 429 Some("1") Too many requests, please try again later.
        system:serviceaccount:default:default /apis 429 Some("1") Too many requests, please try again later.
        system:serviceaccount:default:default /apis 200 None 
    "#]]
    .assert_eq(&said);
    let text = api.metrics_text();
    for line in [
        "muster_requests_refused_total{limit=\"seats\"} 1",
        "muster_requests_refused_total{limit=\"watch\"} 1",
        "apiserver_flowcontrol_rejected_requests_total{priority_level=\"workload\",reason=\"time-out\"} 1",
        "muster_flowcontrol_flow_queued_requests_total{priority_level=\"workload\",request_kind=\"readOnly\",\
         flow=\"system:serviceaccount:default:default\"} 2",
        "muster_flowcontrol_flow_rejected_requests_total{priority_level=\"workload\",request_kind=\"readOnly\",\
         flow=\"system:serviceaccount:default:default\"} 1",
        "apiserver_flowcontrol_current_executing_seats{priority_level=\"workload\",request_kind=\"readOnly\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn metrics_show_the_users_that_use_most() {
    let api = Server::new().await.api;
    let mut held = all_seats(&api, "busy", false).await;
    for at in 0..30 {
        let class = FlowClass::Queued {
            level: PriorityLevel::System,
            flow: &format!("u{at}"),
            seat_limit: FlowSeatLimit::Heartbeat,
        };
        held.push(api.limits.flow_control.acquire_seat(class, false).await.unwrap().0);
    }
    let text = api.metrics_text();
    let flows: Vec<&str> =
        text.lines().filter(|it| it.starts_with("muster_flowcontrol_flow_seats{")).collect();
    let busy = "muster_flowcontrol_flow_seats{priority_level=\"workload\",request_kind=\"mutating\",flow=\"busy\"} 50";
    assert!(flows.contains(&busy), "{flows:?}");
    assert_eq!(flows.len(), 20, "user names make a bounded number of series");
    assert!(text.contains("apiserver_current_inflight_requests{request_kind=\"mutating\"} 80"), "{text}");
    drop(held);
    let text = api.metrics_text();
    assert!(!text.contains("muster_flowcontrol_flow_seats{"), "{text}");
    let counts: Vec<&str> = text.lines().filter(|it| it.contains("flow=\"busy\"")).collect();
    assert_eq!(
        counts,
        [
            "muster_flowcontrol_flow_queued_requests_total{priority_level=\"workload\",request_kind=\"mutating\",flow=\"busy\"} 1",
            "muster_flowcontrol_flow_rejected_requests_total{priority_level=\"workload\",request_kind=\"mutating\",flow=\"busy\"} 0",
        ]
    );
}

#[tokio::test]
async fn nothing_begins_when_the_clients_time_is_over() {
    let mut api = Server::new().await.api;
    crate::controllers::cluster_roles::ensure_default_roles(&api.registry, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    api.limits =
        limited(LimitsConfig { queue_timeout: Duration::from_secs(3600), ..LimitsConfig::default() });
    let user = User::new("system:muster-simulated-nodes", ["system:authenticated"]);
    let class = FlowClass::Queued {
        level: PriorityLevel::System,
        flow: &user.name,
        seat_limit: FlowSeatLimit::Level,
    };
    let mut held = Vec::new();
    while let Some(Ok((seat, _))) = api.limits.flow_control.acquire_seat(class, false).now_or_never() {
        held.push(seat);
    }
    let create = async |timeout: &str| {
        let node = json!({"metadata": {"name": "a"}});
        let request = Request::builder()
            .method("POST")
            .uri(format!("/api/v1/nodes?timeout={timeout}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(node.to_string())))
            .unwrap();
        let response = api.handle(Some(&user), request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        format!("{code} {}", str_at(&body, "message"))
    };
    let mut said = create("1ms").await;
    for timeout in ["soon", "5", "5x", "--1s", "1h1"] {
        write!(said, "\n{}", create(timeout).await).unwrap();
    }
    drop(held);
    assert_eq!(get(&api, Some(&User::server()), "/api/v1/nodes/a").await.get(..3), Some("404"));
    for timeout in ["1h0m1.5s", "0s", "0", "-1s", ""] {
        write!(said, "\n{}", create(timeout).await).unwrap();
    }
    expect![[r#"
        504 Timeout: request did not complete within requested timeout - context deadline exceeded
        400 invalid timeout specified in the request URL - time: invalid duration "soon"
        400 invalid timeout specified in the request URL - time: missing unit in duration "5"
        400 invalid timeout specified in the request URL - time: unknown unit "x" in duration "5x"
        400 invalid timeout specified in the request URL - time: invalid duration "--1s"
        400 invalid timeout specified in the request URL - time: missing unit in duration "1h1"
        201 
        409 nodes "a" already exists
        409 nodes "a" already exists
        409 nodes "a" already exists
        409 nodes "a" already exists"#]]
    .assert_eq(&said);
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_at_its_deadline() {
    let mut api = Server::new().await.api;
    api.limits = limited(LimitsConfig::default());
    api.explain_provider = Some(ExplainProvider::new(|_, _| std::future::pending()));
    let began = tokio::time::Instant::now();
    let said = get(&api, Some(&User::server()), "/debug/explain").await;
    assert_eq!((said.get(..3), began.elapsed().as_secs()), (Some("504"), 60));
    // A client may ask for less, and not for more.
    let said = get(&api, Some(&User::server()), "/debug/explain?timeout=5s").await;
    assert_eq!((said.get(..3), began.elapsed().as_secs()), (Some("504"), 65));
    let said = get(&api, Some(&User::server()), "/debug/explain?timeout=1h").await;
    assert_eq!((said.get(..3), began.elapsed().as_secs()), (Some("504"), 125));
}

#[tokio::test]
async fn a_panic_is_answered_counted_and_audited() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let mut api = Server::new().await.api;
    api.audit = Some(Arc::new(crate::audit::AuditLog::open(&path).unwrap()));
    api.explain_provider = Some(ExplainProvider::new(|_, _| async { panic!("expected by a test") }));
    let said = get(&api, Some(&User::server()), "/debug/explain").await;
    expect!["500 None Internal error occurred: this request caused the server to panic: see its log"]
        .assert_eq(&said);
    let text = api.metrics_text();
    assert!(text.contains("code=\"500\"} 1"), "{text}");
    assert_eq!(get(&api, Some(&User::server()), "/readyz").await, "200 None ");
    drop(api);
    let log = std::fs::read_to_string(path).unwrap();
    let event: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["responseStatus"]["code"], &event["requestURI"]),
        (&json!(500), &json!("/debug/explain"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_watch_is_bounded() {
    let api = Server::new().await.api;
    let admin = User::server();
    let mut said = String::new();
    for timeout in ["abc", "1.5", "9223372036854775808"] {
        let path = format!("{PODS}?watch=1&timeoutSeconds={timeout}");
        writeln!(said, "{timeout}: {}", get(&api, Some(&admin), &path).await).unwrap();
    }
    for timeout in ["9223372036854775807", "-1", "0", "7"] {
        let path = format!("{PODS}?watch=1&timeoutSeconds={timeout}");
        let began = tokio::time::Instant::now();
        let code = get(&api, Some(&admin), &path).await;
        writeln!(said, "{timeout}: {code}after {} s", began.elapsed().as_secs()).unwrap();
    }
    writeln!(said, "list: {}", get(&api, Some(&admin), &format!("{PODS}?timeoutSeconds=abc")).await).unwrap();
    expect![[r#"
        abc: 400 None strconv.ParseInt: parsing "abc": invalid syntax
        1.5: 400 None strconv.ParseInt: parsing "1.5": invalid syntax
        9223372036854775808: 400 None strconv.ParseInt: parsing "9223372036854775808": invalid syntax
        9223372036854775807: 200 None after 43200 s
        -1: 200 None after 0 s
        0: 200 None after 2700 s
        7: 200 None after 7 s
        list: 400 None strconv.ParseInt: parsing "abc": invalid syntax
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn a_url_has_a_length() {
    let api = Server::new().await.api;
    let path = format!("{PODS}?labelSelector={}", "a".repeat(URL_BYTES_MAX));
    expect!["414 None the URL of the request is longer than 32768 bytes"]
        .assert_eq(&get(&api, Some(&User::server()), &path).await);
}

#[tokio::test]
async fn headers_are_counted() {
    let api = Server::new().await.api;
    let code = async |count: usize| {
        let mut request = Request::builder().uri(PODS);
        for number in 0..count {
            request = request.header(format!("x-{number}"), "1");
        }
        api.handle(Some(&User::server()), request.body(Full::new(Bytes::new())).unwrap())
            .await
            .status()
            .as_u16()
    };
    assert_eq!((code(HEADERS_MAX).await, code(HEADERS_MAX + 1).await), (200, 431));
    let code = async |bytes: usize| {
        let request =
            Request::builder().uri(PODS).header("x", "a".repeat(bytes)).body(Full::new(Bytes::new()));
        api.handle(Some(&User::server()), request.unwrap()).await.status().as_u16()
    };
    assert_eq!((code(HEADER_BYTES_MAX - 33).await, code(HEADER_BYTES_MAX).await), (200, 431));
}

#[tokio::test]
async fn a_watch_has_its_place_until_it_ends() {
    let mut api = Server::new().await.api;
    api.limits = limited(LimitsConfig { watches: 1, ..LimitsConfig::default() });
    let watch = async || {
        let request =
            Request::builder().uri(format!("{PODS}?watch=true")).body(Full::new(Bytes::new())).unwrap();
        api.handle(Some(&User::server()), request).await
    };
    let first = watch().await;
    assert_eq!((first.status().as_u16(), watch().await.status().as_u16()), (200, 429));
    drop(first);
    assert_eq!(watch().await.status().as_u16(), 200);
}

#[tokio::test]
async fn an_anonymous_user_with_a_role_has_no_permissions() {
    let api = Server::new().await.api;
    crate::controllers::cluster_roles::ensure_default_roles(&api.registry, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:unauthenticated"}],
    });
    let context = RequestContext::for_server("create", Timestamp::UNIX_EPOCH);
    let kind = Kind::builtin(rbac, "v1", "clusterrolebindings");
    api.registry.create(&context, kind, None, binding).await.unwrap();
    assert_eq!(get(&api, None, PODS).await, "401 None Unauthorized");
}
