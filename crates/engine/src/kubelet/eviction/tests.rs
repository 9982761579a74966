use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use expect_test::{Expect, expect};

use super::*;

fn measures(of: &[(Signal, i64, i64)]) -> SignalObservations {
    of.iter()
        .map(|(signal, available, capacity)| {
            (*signal, SignalObservation { available: *available, capacity: *capacity })
        })
        .collect()
}

#[test]
fn hard_thresholds_override_the_defaults() {
    let check = |text: &str, expected: Expect| {
        let report = match Thresholds::default().with_hard_thresholds(text) {
            Ok(read) => read
                .hard
                .iter()
                .map(|(signal, least)| match least {
                    ThresholdValue::Quantity(amount) => format!("{} < {amount}\n", signal.name()),
                    ThresholdValue::CapacityThousandths(it) => format!("{} < {it}‰\n", signal.name()),
                })
                .collect::<String>(),
            Err(error) => error,
        };
        expected.assert_eq(&report);
    };
    check(
        "",
        expect![[r#"
            memory.available < 100Mi
            nodefs.available < 100‰
            nodefs.inodesFree < 50‰
            imagefs.available < 150‰
            imagefs.inodesFree < 50‰
        "#]],
    );
    check(
        "memory.available<1.5Gi, pid.available=5%,nodefs.available<0%,imagefs.available<12.5%,imagefs.inodesFree<100%",
        expect![[r#"
            memory.available < 1536Mi
            nodefs.inodesFree < 50‰
            imagefs.available < 125‰
            pid.available < 50‰
        "#]],
    );
    check(
        "memory.available",
        expect![[r#""memory.available" is not a threshold: write it as memory.available<100Mi"#]],
    );
    check(
        "ram<1Gi",
        expect![[
            r#""ram" is not an eviction signal: use one of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available"#
        ]],
    );
    check(
        "memory.available<lots",
        expect![[
            r#""lots" of memory.available: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#
        ]],
    );
    check("memory.available<-1", expect![[r#""-1" of memory.available is negative"#]]);
    check(
        "memory.available<101%",
        expect![[r#""101%" of memory.available is not a percentage: write it as 10%"#]],
    );
}

#[test]
fn a_pressure_condition_lasts_for_the_transition_period() {
    let mut monitor = ThresholdMonitor::new(Thresholds::default(), PRESSURE_TRANSITION_PERIOD);
    let mut report = String::new();
    let observations = [
        (0, measures(&[])),
        (10, measures(&[(Signal::MemoryAvailable, 101 << 20, 1 << 30)])),
        (20, measures(&[(Signal::MemoryAvailable, 99 << 20, 1 << 30)])),
        (
            30,
            measures(&[(Signal::MemoryAvailable, 200 << 20, 1 << 30), (Signal::ImagefsAvailable, 149, 1000)]),
        ),
        (319, measures(&[(Signal::MemoryAvailable, 200 << 20, 1 << 30)])),
        (320, measures(&[(Signal::MemoryAvailable, 200 << 20, 1 << 30)])),
        (330, measures(&[(Signal::MemoryAvailable, 0, 1 << 30), (Signal::NodefsInodesFree, 0, 1000)])),
    ];
    for (at, measures) in observations {
        let (pressures, shortage) = monitor.observe(&measures, Time::from_secs(at));
        let Pressures { memory, disk, pids } = pressures;
        report += &format!("{at:>3}: memory {memory}, disk {disk}, pids {pids}");
        report += &shortage.map_or(String::new(), |it| {
            format!("; crossed: {} {} < {}", it.signal.name(), it.available, it.threshold)
        });
        report += "\n";
    }
    expect![[r#"
          0: memory false, disk false, pids false
         10: memory false, disk false, pids false
         20: memory true, disk false, pids false; crossed: memory.available 103809024 < 104857600
         30: memory true, disk true, pids false; crossed: imagefs.available 149 < 150
        319: memory true, disk true, pids false
        320: memory false, disk true, pids false
        330: memory true, disk true, pids false; crossed: memory.available 0 < 104857600
    "#]]
    .assert_eq(&report);
}

#[test]
fn soft_thresholds_need_grace_periods() {
    let minute = Duration::from_secs(60);
    let check = |text: &str, graces: &[&str], expected: Expect| {
        let graces: Vec<_> = graces.iter().map(|it| (String::from(*it), minute)).collect();
        let report = match Thresholds::default().with_soft_thresholds(text, &graces) {
            Ok(read) => format!("{:?}", read.soft),
            Err(error) => error,
        };
        expected.assert_eq(&report);
    };
    check("", &[], expect!["{}"]);
    check(
        "memory.available<10%",
        &["memory.available"],
        expect!["{MemoryAvailable: (CapacityThousandths(100), 60s)}"],
    );
    check("memory.available<0%", &[], expect!["{}"]);
    check(
        "memory.available<10%",
        &[],
        expect![
            "memory.available has a soft threshold, but no grace period: add memory.available=1m to --eviction-soft-grace-period"
        ],
    );
    check(
        "",
        &["memory.available"],
        expect![
            "memory.available has a grace period, but no soft threshold: add memory.available<AMOUNT to --eviction-soft"
        ],
    );
    check(
        "",
        &["ram"],
        expect![[
            r#""ram" is not an eviction signal: use one of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available"#
        ]],
    );
    let report = Thresholds::default().with_minimum_reclaim("memory.available").unwrap_err();
    expect![[r#""memory.available" is not a threshold: write it as memory.available=100Mi"#]]
        .assert_eq(&report);
}

#[test]
fn a_soft_threshold_evicts_after_its_grace_period() {
    let grace = [(String::from("memory.available"), Duration::from_secs(60))];
    let thresholds = Thresholds::default()
        .with_soft_thresholds("memory.available<30%", &grace)
        .and_then(|it| it.with_minimum_reclaim("memory.available=10%"))
        .unwrap();
    let mut monitor = ThresholdMonitor::new(thresholds, Duration::from_secs(10));
    let mut report = String::new();
    let observations = [
        (0, 29, "crossed: the grace period starts"),
        (50, 29, ""),
        (59, 31, "available again: the grace period starts again"),
        (60, 29, ""),
        (119, 29, ""),
        (120, 29, "the grace period is over"),
        (130, 31, "the minimum reclaim is missing"),
        (140, 39, ""),
        (150, 40, "the minimum reclaim is available"),
        (160, 31, ""),
        (170, 29, "crossed again"),
        (180, 5, "a hard threshold has no grace period"),
    ];
    for (at, percent, what) in observations {
        let measures = measures(&[(Signal::MemoryAvailable, percent << 23, 100 << 23)]);
        let (pressures, shortage) = monitor.observe(&measures, Time::from_secs(at));
        let shortage = shortage.map_or("no eviction", |it| if it.is_soft { "soft" } else { "hard" });
        let pressure = if pressures.memory { "pressure" } else { "no pressure" };
        report += &format!("{at:>3} {percent:>2} %: {pressure}, {shortage}  {what}\n");
    }
    expect![[r#"
          0 29 %: pressure, no eviction  crossed: the grace period starts
         50 29 %: pressure, no eviction  
         59 31 %: pressure, no eviction  available again: the grace period starts again
         60 29 %: pressure, no eviction  
        119 29 %: pressure, no eviction  
        120 29 %: pressure, soft  the grace period is over
        130 31 %: pressure, soft  the minimum reclaim is missing
        140 39 %: pressure, soft  
        150 40 %: no pressure, no eviction  the minimum reclaim is available
        160 31 %: no pressure, no eviction  
        170 29 %: pressure, no eviction  crossed again
        180  5 %: pressure, hard  a hard threshold has no grace period
    "#]]
    .assert_eq(&report);
}

#[test]
fn the_grace_period_of_an_evicted_pod() {
    let grace = |is_soft, own, longest| {
        let shortage =
            CrossedThreshold { signal: Signal::MemoryAvailable, threshold: 1, available: 0, is_soft };
        shortage.pod_grace_period(Duration::from_secs(own), Duration::from_secs(longest)).as_secs()
    };
    assert_eq!(
        [grace(false, 30, 60), grace(true, 30, 60), grace(true, 30, 10), grace(true, 0, 0)],
        [1, 30, 10, 1]
    );
}

fn pod(uid: &str, priority: i32, request: i64, usage: Option<i64>) -> EvictionCandidate {
    let containers = Vec::from([ContainerUsage { name: "main".into(), request, usage }]);
    EvictionCandidate {
        uid: uid.into(),
        priority,
        is_static: false,
        is_daemon: false,
        request,
        usage,
        containers,
    }
}

/// The order in which pods are evicted.
fn order(signal: Signal, mut pods: Vec<EvictionCandidate>) -> String {
    let shortage = CrossedThreshold { signal, threshold: 100, available: 50, is_soft: false };
    let mut report = String::new();
    while let Some(first) = choose_pod_to_evict(shortage, &pods).cloned() {
        pods.retain(|it| it.uid != first.uid);
        report += &format!("{}\n", first.uid);
    }
    let left: Vec<_> = pods.iter().map(|it| &*it.uid).collect();
    report + &format!("never: {}", left.join(" "))
}

fn everyone() -> Vec<EvictionCandidate> {
    Vec::from([
        pod("modest", 0, 100, Some(50)),
        pod("greedy", 0, 100, Some(150)),
        pod("greedier", 0, 100, Some(300)),
        pod("unknown", 0, 100, None),
        pod("greedy-but-important", 1000, 100, Some(900)),
        EvictionCandidate { is_daemon: true, ..pod("daemon", 0, 0, Some(5000)) },
        EvictionCandidate { is_static: true, ..pod("static", 0, 0, Some(5000)) },
        pod("critical", SYSTEM_CRITICAL_PRIORITY, 0, Some(5000)),
    ])
}

#[test]
fn pods_above_their_requests_are_evicted_first_and_daemon_pods_last() {
    expect![[r#"
        unknown
        greedier
        greedy
        greedy-but-important
        modest
        daemon
        never: static critical"#]]
    .assert_eq(&order(Signal::MemoryAvailable, everyone()));
}

#[test]
fn for_pids_the_priority_decides() {
    expect![[r#"
        unknown
        greedier
        greedy
        modest
        greedy-but-important
        daemon
        never: static critical"#]]
    .assert_eq(&order(Signal::PidAvailable, everyone()));
}

#[test]
fn eviction_messages() {
    let mut pod = pod("greedy", 0, 1 << 20, Some(3 << 20));
    pod.containers.push(ContainerUsage { name: "modest".into(), request: 100, usage: Some(100) });
    let message = |signal, least, available| {
        eviction_message(CrossedThreshold { signal, threshold: least, available, is_soft: false }, &pod)
            + "\n"
    };
    let report = message(Signal::MemoryAvailable, 100 << 20, (50 << 20) + 1)
        + &message(Signal::ImagefsAvailable, 1 << 30, 0)
        + &message(Signal::NodefsInodesFree, 5000, 17)
        + &message(Signal::PidAvailable, 100, 3);
    expect![[r#"
        The node was low on resource: memory. Threshold quantity: 100Mi, available: 52428801. Container main was using 3Mi, request is 1Mi, has larger consumption of memory. 
        The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 0. Container main was using 3Mi, request is 1Mi, has larger consumption of ephemeral-storage. 
        The node was low on resource: inodes. Threshold quantity: 5k, available: 17. 
        The node was low on resource: pids. Threshold quantity: 100, available: 3. 
    "#]]
    .assert_eq(&report);
}

#[test]
fn admission_under_pressure() {
    let mut report = String::new();
    let memory = Pressures { memory: true, ..Pressures::default() };
    let both = Pressures { disk: true, ..memory };
    for (name, pressures) in [("none", Pressures::default()), ("memory", memory), ("memory and disk", both)] {
        for (pod, is_critical, is_best_effort, tolerates) in [
            ("critical", true, true, false),
            ("burstable", false, false, false),
            ("tolerant", false, true, true),
            ("best effort", false, true, false),
        ] {
            let result = admit(pressures, is_critical, is_best_effort, tolerates);
            report += &format!("{name}, {pod}: {}\n", result.err().unwrap_or_else(|| "admitted".into()));
        }
    }
    expect![[r#"
        none, critical: admitted
        none, burstable: admitted
        none, tolerant: admitted
        none, best effort: admitted
        memory, critical: admitted
        memory, burstable: admitted
        memory, tolerant: admitted
        memory, best effort: The node had condition: [MemoryPressure]. 
        memory and disk, critical: admitted
        memory and disk, burstable: The node had condition: [MemoryPressure DiskPressure]. 
        memory and disk, tolerant: The node had condition: [MemoryPressure DiskPressure]. 
        memory and disk, best effort: The node had condition: [MemoryPressure DiskPressure]. 
    "#]]
    .assert_eq(&report);
}
