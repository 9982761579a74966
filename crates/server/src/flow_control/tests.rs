use expect_test::expect;
use hyper::Method;

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn action(method: &str, path: &str) -> RequestAttributes {
    RequestAttributes::from_request(&Method::from_bytes(method.as_bytes()).unwrap(), path, |_| None)
}

#[test]
fn requests_are_classified_by_user_and_action() {
    let node = User::new("system:node:a", ["system:nodes"]);
    let system_account = User::service_account("kube-system", "election");
    let users = [
        User::server(),
        User::anonymous(),
        User::new("system:muster-controller", ["system:authenticated"]),
        node.clone(),
        node.clone(),
        node.clone(),
        node.clone(),
        node,
        system_account.clone(),
        system_account,
        User::service_account("default", "default"),
        User::service_account("muster-system", "muster-controller"),
        User::service_account("muster-system", "muster-controller"),
        User::new("jane", ["system:authenticated"]),
    ];
    let leader = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x";
    let actions = [
        ("GET", PODS.to_owned()),
        ("GET", "/version".to_owned()),
        ("POST", PODS.to_owned()),
        ("PUT", format!("{LEASES}/a")),
        ("POST", LEASES.to_owned()),
        ("PATCH", "/api/v1/nodes/a/status".to_owned()),
        ("PUT", format!("{LEASES}/b")),
        ("PATCH", "/api/v1/nodes/b/status".to_owned()),
        ("PUT", leader.to_owned()),
        ("DELETE", leader.to_owned()),
        ("PUT", leader.to_owned()),
        ("PUT", leader.replace("kube-system", "muster-system")),
        ("PUT", leader.to_owned()),
        ("GET", PODS.to_owned()),
    ];
    let mut said = String::new();
    for (user, (method, path)) in users.iter().zip(actions) {
        let class = match classify(user, &action(method, &path), false) {
            FlowClass::Exempt => "exempt".to_owned(),
            FlowClass::Queued { level, flow, seat_limit } => {
                format!("{} {flow} {seat_limit:?}", level.name())
            }
        };
        said += &format!("{} {method} {path}: {class}\n", user.name);
    }
    expect![[r#"
        system:apiserver GET /api/v1/namespaces/default/pods: exempt
        system:anonymous GET /version: anonymous system:anonymous Level
        system:muster-controller POST /api/v1/namespaces/default/pods: system system:muster-controller Level
        system:node:a PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a: system system:node:a Heartbeat
        system:node:a POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases: system system:node:a Heartbeat
        system:node:a PATCH /api/v1/nodes/a/status: system system:node:a Heartbeat
        system:node:a PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/b: workload system:node:a Quarter
        system:node:a PATCH /api/v1/nodes/b/status: workload system:node:a Quarter
        system:serviceaccount:kube-system:election PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x: system system:serviceaccount:kube-system:election Heartbeat
        system:serviceaccount:kube-system:election DELETE /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x: workload system:serviceaccount:kube-system:election Quarter
        system:serviceaccount:default:default PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x: workload system:serviceaccount:default:default Quarter
        system:serviceaccount:muster-system:muster-controller PUT /apis/coordination.k8s.io/v1/namespaces/muster-system/leases/x: system system:serviceaccount:muster-system:muster-controller Heartbeat
        system:serviceaccount:muster-system:muster-controller PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x: workload system:serviceaccount:muster-system:muster-controller Quarter
        jane GET /api/v1/namespaces/default/pods: workload jane Quarter
    "#]]
    .assert_eq(&said);
    assert_eq!(classify(&User::anonymous(), &action("GET", "/readyz"), true), FlowClass::Exempt);
}

fn workload(flow: &str) -> FlowClass<'_> {
    FlowClass::Queued { level: PriorityLevel::Workload, flow, seat_limit: FlowSeatLimit::Quarter }
}

/// Takes seats until the next one would have to wait.
async fn fill(control: &Arc<FlowControl>, class: FlowClass<'_>, is_read: bool) -> Vec<Seat> {
    let mut held = Vec::new();
    while let Some(Ok((seat, _))) = futures::FutureExt::now_or_never(control.acquire_seat(class, is_read)) {
        held.push(seat);
    }
    held
}

#[tokio::test]
async fn the_default_seats_suffice_for_every_level() {
    let control = Arc::new(FlowControl::new(400, 200, Duration::from_secs(10)));
    for (is_read, flow_max, level_max, anonymous_max) in [(true, 100, 300, 10), (false, 50, 150, 5)] {
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for flow in ["a", "b", "c", "d"] {
            let seats = fill(&control, workload(flow), is_read).await;
            counts.push(seats.len());
            held.extend(seats);
        }
        assert_eq!(counts[0], flow_max, "a flow has a quarter of the seats");
        assert!(held.len() <= level_max);
        let anonymous = FlowClass::Queued {
            level: PriorityLevel::Anonymous,
            flow: "system:anonymous",
            seat_limit: FlowSeatLimit::Level,
        };
        let of_anonymous = fill(&control, anonymous, is_read).await;
        assert_eq!(of_anonymous.len(), anonymous_max);
        for node in 0..10 {
            let flow = format!("system:node:{node}");
            let heartbeat = FlowClass::Queued {
                level: PriorityLevel::System,
                flow: &flow,
                seat_limit: FlowSeatLimit::Heartbeat,
            };
            let seats = fill(&control, heartbeat, is_read).await;
            assert_eq!(seats.len(), HEARTBEAT_SEATS_MAX);
            held.extend(seats);
        }
        let (exempt, waited) = control.acquire_seat(FlowClass::Exempt, is_read).await.unwrap();
        assert_eq!(waited, None);
        drop((exempt, held, of_anonymous));
    }
    assert!(control.level_metrics().iter().all(|it| (it.seats, it.waiting) == (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_its_turn_and_not_for_ever() {
    let control = Arc::new(FlowControl::new(1, 1, Duration::from_secs(10)));
    let (first, _) = control.acquire_seat(workload("a"), false).await.unwrap();
    assert!(control.acquire_seat(workload("a"), true).await.is_ok(), "reads have seats of their own");
    let second = tokio::spawn({
        let control = control.clone();
        async move { control.acquire_seat(workload("b"), false).await.map(|it| it.1) }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(first);
    assert_eq!(second.await.unwrap(), Ok(Some(Duration::from_secs(3))));

    let (held, _) = control.acquire_seat(workload("a"), false).await.unwrap();
    let began = Instant::now();
    assert_eq!(control.acquire_seat(workload("a"), false).await.map(drop), Err(RejectReason::TimeOut));
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    drop(held);
    assert!(control.acquire_seat(workload("a"), false).await.is_ok());
    assert!(control.level_metrics().iter().all(|it| (it.seats, it.waiting) == (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_leaves_the_queue_and_loses_no_seat() {
    let control = Arc::new(FlowControl::new(4, 4, Duration::from_secs(10)));
    for round in 0..100 {
        let held = fill(&control, workload("a"), false).await;
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let control = control.clone();
                tokio::spawn(async move { control.acquire_seat(workload("a"), false).await.is_ok() })
            })
            .collect();
        tokio::task::yield_now().await;
        if round % 2 == 0 {
            drop(held);
            // Some have their seat already when they are given up.
            waiting.iter().for_each(|it| it.abort());
        } else {
            waiting.iter().for_each(|it| it.abort());
            drop(held);
        }
        for it in waiting {
            let _ = it.await;
        }
        assert!(control.level_metrics().iter().all(|it| (it.seats, it.waiting) == (0, 0)), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_floods_does_not_delay_another() {
    let control = Arc::new(FlowControl::new(40, 40, Duration::from_secs(10)));
    let flood = async |at: usize| {
        let flow = format!("flood-{}", at % 3);
        if let Ok((seat, _)) = control.acquire_seat(workload(&flow), false).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(seat);
        }
    };
    let flooding = futures::future::join_all((0..1000).map(flood));
    let quiet = async {
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let (seat, waited) = control.acquire_seat(workload("quiet"), false).await.unwrap();
            longest = longest.max(waited.unwrap_or_default());
            drop(seat);
        }
        longest
    };
    let (_, longest) = tokio::join!(flooding, quiet);
    assert!(
        longest <= Duration::from_millis(100),
        "the next released seat is for the quiet flow: {longest:?}"
    );
}
