//! A world in, what is written and told out, as text.
//!
//! A line is an object of namespace `a`:
//! - `budget NAME`: `min=N`, `min=N%`, `max=N` or `max=N%`; selects `app=NAME`, or with `all` everything;
//! - `pod NAME app=APP`, and then `ready`, `deleting`, `of=DaemonSet`, `disrupted` (its condition says so), `ended`.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::test_cluster::TestCluster;
use crate::daemonset::execution::Refusal;

fn check(world: &str, story: Expect) {
    story.assert_eq(&cluster(world).run(Duration::from_secs(1)));
}

fn cluster(world: &str) -> TestCluster<Budgets> {
    let lines = world.lines().map(str::trim).filter(|it| !it.is_empty());
    TestCluster::new(Budgets::default(), lines.map(object))
}

fn object(line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let said = |word: &str| words.iter().find_map(|it| it.strip_prefix(word));
    let name = words[1];
    if words[0] == "budget" {
        let share = |word: &str| said(word).map(|it| it.parse::<i64>().map_or(json!(it), |it| json!(it)));
        let selector = if words.contains(&"all") { json!({}) } else { json!({"matchLabels": {"app": name}}) };
        return json!({
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "a", "name": name, "generation": 1},
            "spec": {"selector": selector, "minAvailable": share("min="), "maxUnavailable": share("max=")},
        });
    }
    let is = |word: &str| if words.contains(&word) { "True" } else { "False" };
    let mut pod = json!({
        "kind": "Pod",
        "metadata": {"namespace": "a", "name": name, "labels": {"app": said("app=")}},
        "status": {
            "phase": if words.contains(&"ended") { "Failed" } else { "Running" },
            "conditions": [{"type": "Ready", "status": is("ready")}],
        },
    });
    if words.contains(&"deleting") {
        pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    }
    if words.contains(&"disrupted") {
        pod["status"]["conditions"].as_array_mut().unwrap().push(json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": said("because=").unwrap_or("EvictionByEvictionAPI"),
            "message": "Eviction API: evicting",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }));
    }
    if let Some(kind) = said("of=") {
        let api_version = if kind == "Node" { "v1" } else { "apps/v1" };
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "x", "controller": true}]);
    }
    pod
}

#[test]
fn a_number_that_must_be_healthy() {
    check(
        "
        budget web min=2
        pod web-1 app=web ready
        pod web-2 app=web ready
        pod web-3 app=web ready of=DaemonSet
        pod web-4 app=web
        pod web-5 app=web ready deleting
        pod other app=other ready
        ",
        expect![[r#"
            status of a/web: generation 1: 3 of 5 healthy, 2 wanted, 1 may go; DisruptionAllowed True SufficientPods
        "#]],
    );
    check(
        "
        budget web min=2
        pod web-1 app=web ready
        pod web-2 app=web ready
        ",
        expect![[r#"
            status of a/web: generation 1: 2 of 2 healthy, 2 wanted, 0 may go; DisruptionAllowed False InsufficientPods
        "#]],
    );
    check(
        "budget web min=0",
        expect![[r#"
          says of PodDisruptionBudget a/web: NoPods No matching pods found
        status of a/web: generation 1: 0 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False InsufficientPods
    "#]],
    );
}

#[test]
fn a_budget_of_a_whole_namespace_and_one_that_asks_for_nothing() {
    check(
        "
        budget every min=1 all
        pod web-1 app=web ready
        pod other app=other ready
        ",
        expect![[r#"
            status of a/every: generation 1: 2 of 2 healthy, 1 wanted, 1 may go; DisruptionAllowed True SufficientPods
        "#]],
    );
    check(
        "
        budget web
        pod web-1 app=web ready
        ",
        expect![[r#"
            status of a/web: generation 1: 1 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False InsufficientPods
        "#]],
    );
}

#[test]
fn shares_need_controllers_with_a_scale() {
    check(
        "
        budget web max=1
        pod web-1 app=web ready of=DaemonSet
        ",
        expect![[r#"
              warns of PodDisruptionBudget a/web: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: daemonsets.apps does not implement the scale subresource
            status of a/web: generation 0: 0 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False SyncFailed: daemonsets.apps does not implement the scale subresource
        "#]],
    );
    check(
        "
        budget web min=50%
        pod web-1 app=web ready of=ReplicaSet
        ",
        expect![[r#"
              warns of PodDisruptionBudget a/web: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: no matches for kind "ReplicaSet" in version "apps/v1"
            status of a/web: generation 0: 0 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False SyncFailed: no matches for kind "ReplicaSet" in version "apps/v1"
        "#]],
    );
    check(
        "
        budget web max=1
        pod web-1 app=web ready of=Node
        ",
        expect![[r#"
              warns of PodDisruptionBudget a/web: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: nodes does not implement the scale subresource
            status of a/web: generation 0: 0 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False SyncFailed: nodes does not implement the scale subresource
        "#]],
    );
    check(
        "
        budget web max=50%
        pod web-1 app=web ready
        ",
        expect![[r#"
              warns of PodDisruptionBudget a/web: UnmanagedPods Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.
            status of a/web: generation 1: 1 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False InsufficientPods
        "#]],
    );
}

#[test]
fn a_pod_that_two_budgets_select() {
    check(
        "
        budget web min=1
        budget every min=1 all
        pod web-1 app=web ready
        ",
        expect![[r#"
              warns of Pod a/web-1: MultiplePodDisruptionBudgets Pod "a"/"web-1" matches multiple PodDisruptionBudgets.  Chose "every" arbitrarily.
            status of a/every: generation 1: 1 of 1 healthy, 1 wanted, 0 may go; DisruptionAllowed False InsufficientPods
            status of a/web: generation 1: 1 of 1 healthy, 1 wanted, 0 may go; DisruptionAllowed False InsufficientPods
        "#]],
    );
}

#[test]
fn an_evicted_pod_counts_as_gone_until_it_is_or_two_minutes_have_passed() {
    let mut cluster = cluster(
        "
        budget web min=1
        pod web-1 app=web ready
        pod web-2 app=web ready
        pod web-3 app=web ready
        ",
    );
    expect![[r#"
        status of a/web: generation 1: 3 of 3 healthy, 1 wanted, 2 may go; DisruptionAllowed True SufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    // Two evictions charge the budget. One pod begins to go, the other does not.
    let charged = json!({"status": {
        "disruptionsAllowed": 0,
        "disruptedPods": {"web-1": "1970-01-01T00:00:01Z", "web-2": "1970-01-01T00:00:01Z", "none": "1970-01-01T00:00:01Z"},
    }});
    cluster.patch("PodDisruptionBudget", "web", &charged);
    expect![[r#"
        status of a/web: generation 1: 1 of 3 healthy, 1 wanted, 0 may go, web-1 goes since 1970-01-01T00:00:01Z, web-2 goes since 1970-01-01T00:00:01Z; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.patch("Pod", "web-1", &json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:02Z"}}));
    expect![[r#"
        status of a/web: generation 1: 1 of 3 healthy, 1 wanted, 0 may go, web-2 goes since 1970-01-01T00:00:01Z; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.delete("Pod", "web-1");
    expect![[r#"
        status of a/web: generation 1: 1 of 2 healthy, 1 wanted, 0 may go, web-2 goes since 1970-01-01T00:00:01Z; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    expect![[r#"
          warns of Pod a/web-2: NotDeleted Pod was expected by PDB a/web to be deleted but it wasn't
        status of a/web: generation 1: 2 of 2 healthy, 1 wanted, 1 may go; DisruptionAllowed True SufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(200)));
    expect![[r#"
        {
          "conditions": [
            {
              "lastTransitionTime": "1970-01-01T00:02:01Z",
              "message": "",
              "observedGeneration": 1,
              "reason": "SufficientPods",
              "status": "True",
              "type": "DisruptionAllowed"
            }
          ],
          "currentHealthy": 2,
          "desiredHealthy": 1,
          "disruptionsAllowed": 1,
          "expectedPods": 2,
          "observedGeneration": 1
        }"#]]
    .assert_eq(&format!("{:#}", cluster.get("PodDisruptionBudget", "web")["status"]));
}

#[test]
fn a_change_of_the_spec_is_seen_at_once_and_the_condition_keeps_its_time() {
    let mut cluster = cluster(
        "
        budget web min=1
        pod web-1 app=web ready
        pod web-2 app=web ready
    ",
    );
    cluster.run(Duration::from_secs(10));
    cluster.patch(
        "PodDisruptionBudget",
        "web",
        &json!({"metadata": {"generation": 2}, "spec": {"minAvailable": 0}}),
    );
    expect![[r#"
        status of a/web: generation 2: 2 of 2 healthy, 0 wanted, 2 may go; DisruptionAllowed True SufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    expect![[r#"
        [
          {
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "message": "",
            "observedGeneration": 2,
            "reason": "SufficientPods",
            "status": "True",
            "type": "DisruptionAllowed"
          }
        ]"#]]
    .assert_eq(&format!("{:#}", cluster.get("PodDisruptionBudget", "web")["status"]["conditions"]));
}

#[test]
fn what_allows_less_is_written_at_once_and_the_rest_four_times_a_second() {
    let mut cluster = cluster(
        "
        budget web min=1
        pod web-1 app=web
        pod web-2 app=web
        pod web-3 app=web
    ",
    );
    let ready = |word: &str| json!({"status": {"conditions": [{"type": "Ready", "status": word}]}});
    cluster.run(Duration::from_secs(1));
    let mut told = String::new();
    for pod in ["web-1", "web-2", "web-3"] {
        cluster.patch("Pod", pod, &ready("True"));
        told += &format!("{pod} is ready\n{}", cluster.run(Duration::from_millis(10)));
    }
    told += &format!("later\n{}", cluster.run(Duration::from_secs(1)));
    for pod in ["web-1", "web-2", "web-3"] {
        cluster.patch("Pod", pod, &ready("False"));
        told += &format!("{pod} is not ready\n{}", cluster.run(Duration::from_millis(10)));
    }
    expect![[r#"
        web-1 is ready
        status of a/web: generation 1: 1 of 3 healthy, 1 wanted, 0 may go; DisruptionAllowed False InsufficientPods
        web-2 is ready
        web-3 is ready
        later
        status of a/web: generation 1: 3 of 3 healthy, 1 wanted, 2 may go; DisruptionAllowed True SufficientPods
        web-1 is not ready
        status of a/web: generation 1: 2 of 3 healthy, 1 wanted, 1 may go; DisruptionAllowed True SufficientPods
        web-2 is not ready
        status of a/web: generation 1: 1 of 3 healthy, 1 wanted, 0 may go; DisruptionAllowed False InsufficientPods
        web-3 is not ready
    "#]].assert_eq(&told);
}

#[test]
fn a_refused_write_is_tried_again_and_a_late_watch_waited_for() {
    let mut cluster = cluster(
        "
        budget web min=0
        pod web-1 app=web ready
    ",
    );
    cluster.refusals.extend([Refusal::Conflict, Refusal::NoAnswer]);
    expect![[r#"
        status of a/web: generation 1: 1 of 1 healthy, 0 wanted, 1 may go; DisruptionAllowed True SufficientPods  -> the object has changed
        status of a/web: generation 1: 1 of 1 healthy, 0 wanted, 1 may go; DisruptionAllowed True SufficientPods  -> no answer in time
        status of a/web: generation 1: 1 of 1 healthy, 0 wanted, 1 may go; DisruptionAllowed True SufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.delay_watches();
    cluster.patch("Pod", "web-1", &json!({"status": {"conditions": []}}));
    expect![].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.deliver_watches();
    cluster.delay_watches();
    expect![[r#"
        status of a/web: generation 1: 0 of 1 healthy, 0 wanted, 0 may go; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.patch("Pod", "web-1", &json!({"metadata": {"labels": {"app": "none"}}}));
    cluster.deliver_watches();
    expect![[r#"
          says of PodDisruptionBudget a/web: NoPods No matching pods found
        status of a/web: generation 1: 0 of 0 healthy, 0 wanted, 0 may go; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
}

#[test]
fn a_pod_that_is_not_disrupted_after_all_says_so_after_two_minutes() {
    let mut cluster = cluster(
        "
        pod web-1 app=web disrupted
        pod web-2 app=web disrupted deleting
        pod web-3 app=web disrupted ended
        pod web-4 app=web disrupted because=TerminationByKubelet
    ",
    );
    expect![].assert_eq(&cluster.run(Duration::from_secs(119)));
    expect![[r#"
        a/web-1 is not being disrupted
    "#]]
    .assert_eq(&cluster.run(Duration::from_secs(20)));
    expect![[r#"
        {
          "conditions": [
            {
              "status": "False",
              "type": "Ready"
            },
            {
              "lastTransitionTime": "1970-01-01T00:02:00Z",
              "status": "False",
              "type": "DisruptionTarget"
            }
          ],
          "phase": "Running"
        }"#]]
    .assert_eq(&format!("{:#}", cluster.get("Pod", "web-1")["status"]));
}
