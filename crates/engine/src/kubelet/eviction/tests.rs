use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use expect_test::{Expect, expect};

use super::*;

fn measures(of: &[(Signal, i64, i64)]) -> Measures {
    of.iter()
        .map(|(signal, available, capacity)| {
            (*signal, Measure { available: *available, capacity: *capacity })
        })
        .collect()
}

#[test]
fn thresholds_are_read_over_a_kubelets() {
    let check = |text: &str, expected: Expect| {
        let said = match Thresholds::default().with_hard(text) {
            Ok(read) => read
                .hard
                .iter()
                .map(|(signal, least)| match least {
                    Least::Of(amount) => format!("{} < {amount}\n", signal.name()),
                    Least::Share(it) => format!("{} < {it}‰\n", signal.name()),
                })
                .collect::<String>(),
            Err(error) => error,
        };
        expected.assert_eq(&said);
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
        expect![[r#""memory.available" is no threshold: write it as memory.available<100Mi"#]],
    );
    check(
        "ram<1Gi",
        expect![[
            r#""ram" is not measured: it is one of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available"#
        ]],
    );
    check(
        "memory.available<lots",
        expect![[
            r#""lots" of memory.available: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#
        ]],
    );
    check("memory.available<-1", expect![[r#""-1" of memory.available is less than nothing"#]]);
    check("memory.available<101%", expect![[r#""101%" of memory.available is no share: write it as 10%"#]]);
}

#[test]
fn a_pressure_lasts_until_it_was_not_seen_for_a_while() {
    let mut watcher = Watcher::new(Thresholds::default(), PRESSURE_MIN);
    let mut said = String::new();
    let story = [
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
    for (at, measures) in story {
        let (pressures, shortage) = watcher.see(&measures, Time::from_secs(at));
        let Pressures { memory, disk, pids } = pressures;
        said += &format!("{at:>3}: memory {memory}, disk {disk}, pids {pids}");
        said += &shortage.map_or(String::new(), |it| {
            format!("; short: {} {} < {}", it.signal.name(), it.available, it.least)
        });
        said += "\n";
    }
    expect![[r#"
          0: memory false, disk false, pids false
         10: memory false, disk false, pids false
         20: memory true, disk false, pids false; short: memory.available 103809024 < 104857600
         30: memory true, disk true, pids false; short: imagefs.available 149 < 150
        319: memory true, disk true, pids false
        320: memory false, disk true, pids false
        330: memory true, disk true, pids false; short: memory.available 0 < 104857600
    "#]]
    .assert_eq(&said);
}

#[test]
fn soft_thresholds_are_read_with_their_time() {
    let minute = Duration::from_secs(60);
    let check = |text: &str, graces: &[&str], expected: Expect| {
        let graces: Vec<_> = graces.iter().map(|it| (String::from(*it), minute)).collect();
        let said = match Thresholds::default().with_soft(text, &graces) {
            Ok(read) => format!("{:?}", read.soft),
            Err(error) => error,
        };
        expected.assert_eq(&said);
    };
    check("", &[], expect!["{}"]);
    check("memory.available<10%", &["memory.available"], expect!["{MemoryAvailable: (Share(100), 60s)}"]);
    check("memory.available<0%", &[], expect!["{}"]);
    check(
        "memory.available<10%",
        &[],
        expect![
            "it is not said for how long memory.available may be short: add memory.available=1m to --eviction-soft-grace-period"
        ],
    );
    check(
        "",
        &["memory.available"],
        expect![
            "memory.available has a grace period, and no threshold: add memory.available<AMOUNT to --eviction-soft"
        ],
    );
    check(
        "",
        &["ram"],
        expect![[
            r#""ram" is not measured: it is one of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available"#
        ]],
    );
    let said = Thresholds::default().with_reclaim("memory.available").unwrap_err();
    expect![[r#""memory.available" is no threshold: write it as memory.available=100Mi"#]].assert_eq(&said);
}

#[test]
fn what_is_short_by_a_soft_threshold_may_be_so_for_a_while() {
    let grace = [(String::from("memory.available"), Duration::from_secs(60))];
    let thresholds = Thresholds::default()
        .with_soft("memory.available<30%", &grace)
        .and_then(|it| it.with_reclaim("memory.available=10%"))
        .unwrap();
    let mut watcher = Watcher::new(thresholds, Duration::from_secs(10));
    let mut said = String::new();
    let story = [
        (0, 29, "short, and it may be"),
        (50, 29, ""),
        (59, 31, "it is not: its time begins anew"),
        (60, 29, ""),
        (119, 29, ""),
        (120, 29, "for too long"),
        (130, 31, "more is to be reclaimed"),
        (140, 39, ""),
        (150, 40, "that was enough"),
        (160, 31, ""),
        (170, 29, "short again"),
        (180, 5, "a hard threshold does not wait"),
    ];
    for (at, percent, what) in story {
        let measures = measures(&[(Signal::MemoryAvailable, percent << 23, 100 << 23)]);
        let (pressures, shortage) = watcher.see(&measures, Time::from_secs(at));
        let shortage = shortage.map_or("nobody goes", |it| if it.is_soft { "soft" } else { "hard" });
        let pressure = if pressures.memory { "pressure" } else { "no pressure" };
        said += &format!("{at:>3} {percent:>2} %: {pressure}, {shortage}  {what}\n");
    }
    expect![[r#"
          0 29 %: pressure, nobody goes  short, and it may be
         50 29 %: pressure, nobody goes  
         59 31 %: pressure, nobody goes  it is not: its time begins anew
         60 29 %: pressure, nobody goes  
        119 29 %: pressure, nobody goes  
        120 29 %: pressure, soft  for too long
        130 31 %: pressure, soft  more is to be reclaimed
        140 39 %: pressure, soft  
        150 40 %: no pressure, nobody goes  that was enough
        160 31 %: no pressure, nobody goes  
        170 29 %: pressure, nobody goes  short again
        180  5 %: pressure, hard  a hard threshold does not wait
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_has_its_time_where_that_can_wait() {
    let grace = |is_soft, own, longest| {
        let shortage = Shortage { signal: Signal::MemoryAvailable, least: 1, available: 0, is_soft };
        shortage.grace(Duration::from_secs(own), Duration::from_secs(longest)).as_secs()
    };
    assert_eq!(
        [grace(false, 30, 60), grace(true, 30, 60), grace(true, 30, 10), grace(true, 0, 0)],
        [1, 30, 10, 1]
    );
}

fn pod(uid: &str, priority: i32, request: i64, usage: Option<i64>) -> Candidate {
    let containers = Vec::from([Taker { name: "main".into(), request, usage }]);
    Candidate { uid: uid.into(), priority, is_static: false, is_daemon: false, request, usage, containers }
}

/// Who goes one after the other.
fn order(signal: Signal, mut pods: Vec<Candidate>) -> String {
    let shortage = Shortage { signal, least: 100, available: 50, is_soft: false };
    let mut said = String::new();
    while let Some(first) = first_to_go(shortage, &pods).cloned() {
        pods.retain(|it| it.uid != first.uid);
        said += &format!("{}\n", first.uid);
    }
    let left: Vec<_> = pods.iter().map(|it| &*it.uid).collect();
    said + &format!("stay: {}", left.join(" "))
}

fn everyone() -> Vec<Candidate> {
    Vec::from([
        pod("modest", 0, 100, Some(50)),
        pod("greedy", 0, 100, Some(150)),
        pod("greedier", 0, 100, Some(300)),
        pod("unknown", 0, 100, None),
        pod("greedy-but-important", 1000, 100, Some(900)),
        Candidate { is_daemon: true, ..pod("daemon", 0, 0, Some(5000)) },
        Candidate { is_static: true, ..pod("static", 0, 0, Some(5000)) },
        pod("critical", CRITICAL, 0, Some(5000)),
    ])
}

#[test]
fn who_takes_more_than_they_asked_for_goes_first_and_daemons_go_last() {
    expect![[r#"
        unknown
        greedier
        greedy
        greedy-but-important
        modest
        daemon
        stay: static critical"#]]
    .assert_eq(&order(Signal::MemoryAvailable, everyone()));
}

#[test]
fn of_pids_the_least_important_goes_first() {
    expect![[r#"
        unknown
        greedier
        greedy
        modest
        greedy-but-important
        daemon
        stay: static critical"#]]
    .assert_eq(&order(Signal::PidAvailable, everyone()));
}

#[test]
fn a_pod_is_told_why_it_goes() {
    let mut pod = pod("greedy", 0, 1 << 20, Some(3 << 20));
    pod.containers.push(Taker { name: "modest".into(), request: 100, usage: Some(100) });
    let said = |signal, least, available| {
        message(Shortage { signal, least, available, is_soft: false }, &pod) + "\n"
    };
    let said = said(Signal::MemoryAvailable, 100 << 20, (50 << 20) + 1)
        + &said(Signal::ImagefsAvailable, 1 << 30, 0)
        + &said(Signal::NodefsInodesFree, 5000, 17)
        + &said(Signal::PidAvailable, 100, 3);
    expect![[r#"
        The node was low on resource: memory. Threshold quantity: 100Mi, available: 52428801. Container main was using 3Mi, request is 1Mi, has larger consumption of memory. 
        The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 0. Container main was using 3Mi, request is 1Mi, has larger consumption of ephemeral-storage. 
        The node was low on resource: inodes. Threshold quantity: 5k, available: 17. 
        The node was low on resource: pids. Threshold quantity: 100, available: 3. 
    "#]]
    .assert_eq(&said);
}

#[test]
fn under_pressure_few_pods_come_in() {
    let mut said = String::new();
    let memory = Pressures { memory: true, ..Pressures::default() };
    let both = Pressures { disk: true, ..memory };
    for (name, pressures) in [("none", Pressures::default()), ("memory", memory), ("memory and disk", both)] {
        for (pod, is_critical, is_best_effort, tolerates) in [
            ("critical", true, true, false),
            ("burstable", false, false, false),
            ("tolerant", false, true, true),
            ("best effort", false, true, false),
        ] {
            let verdict = admit(pressures, is_critical, is_best_effort, tolerates);
            said += &format!("{name}, {pod}: {}\n", verdict.err().unwrap_or_else(|| "in".into()));
        }
    }
    expect![[r#"
        none, critical: in
        none, burstable: in
        none, tolerant: in
        none, best effort: in
        memory, critical: in
        memory, burstable: in
        memory, tolerant: in
        memory, best effort: The node had condition: [MemoryPressure]. 
        memory and disk, critical: in
        memory and disk, burstable: The node had condition: [MemoryPressure DiskPressure]. 
        memory and disk, tolerant: The node had condition: [MemoryPressure DiskPressure]. 
        memory and disk, best effort: The node had condition: [MemoryPressure DiskPressure]. 
    "#]]
    .assert_eq(&said);
}
