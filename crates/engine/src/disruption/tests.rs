//! A scenario in, the calls and events out, as text.
//!
//! A line is an object of namespace `a`:
//! - `budget NAME`: `min=N`, `min=N%`, `max=N` or `max=N%`; selects `app=NAME`, or with `all` everything;
//! - `pod NAME app=APP`, and then `ready`, `deleting`, `of=DaemonSet`, `disrupted` (condition `DisruptionTarget`),
//!   `terminated`.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::CallError;
use crate::controller::test_cluster::TestCluster;

fn check(scenario: &str, expected: Expect) {
    expected.assert_eq(&cluster(scenario).run(Duration::from_secs(1)));
}

fn cluster(scenario: &str) -> TestCluster<DisruptionController> {
    let lines = scenario.lines().map(str::trim).filter(|it| !it.is_empty());
    TestCluster::new(DisruptionController::default(), lines.map(object))
}

fn object(line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let value_of = |word: &str| words.iter().find_map(|it| it.strip_prefix(word));
    let name = words[1];
    if words[0] == "budget" {
        let share = |word: &str| value_of(word).map(|it| it.parse::<i64>().map_or(json!(it), |it| json!(it)));
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
        "metadata": {"namespace": "a", "name": name, "labels": {"app": value_of("app=")}},
        "status": {
            "phase": if words.contains(&"terminated") { "Failed" } else { "Running" },
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
            "reason": value_of("because=").unwrap_or("EvictionByEvictionAPI"),
            "message": "Eviction API: evicting",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }));
    }
    if let Some(kind) = value_of("of=") {
        let api_version = if kind == "Node" { "v1" } else { "apps/v1" };
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "x", "controller": true}]);
    }
    pod
}

#[test]
fn min_available_as_a_number() {
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
            status of a/web: generation 1: 3 of 5 healthy, 2 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods
        "#]],
    );
    check(
        "
        budget web min=2
        pod web-1 app=web ready
        pod web-2 app=web ready
        ",
        expect![[r#"
            status of a/web: generation 1: 2 of 2 healthy, 2 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
        "#]],
    );
    check(
        "budget web min=0",
        expect![[r#"
          Normal event for PodDisruptionBudget a/web: NoPods No matching pods found
        status of a/web: generation 1: 0 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
    "#]],
    );
}

#[test]
fn an_empty_selector_and_a_budget_without_target() {
    check(
        "
        budget every min=1 all
        pod web-1 app=web ready
        pod other app=other ready
        ",
        expect![[r#"
            status of a/every: generation 1: 2 of 2 healthy, 1 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods
        "#]],
    );
    check(
        "
        budget web
        pod web-1 app=web ready
        ",
        expect![[r#"
            status of a/web: generation 1: 1 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
        "#]],
    );
}

#[test]
fn percentages_need_controllers_with_a_scale() {
    check(
        "
        budget web max=1
        pod web-1 app=web ready of=DaemonSet
        ",
        expect![[r#"
              Warning event for PodDisruptionBudget a/web: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: daemonsets.apps does not implement the scale subresource
            status of a/web: generation 0: 0 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False SyncFailed: daemonsets.apps does not implement the scale subresource
        "#]],
    );
    check(
        "
        budget web min=50%
        pod web-1 app=web ready of=ReplicaSet
        ",
        expect![[r#"
              Warning event for PodDisruptionBudget a/web: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: no matches for kind "ReplicaSet" in version "apps/v1"
            status of a/web: generation 0: 0 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False SyncFailed: no matches for kind "ReplicaSet" in version "apps/v1"
        "#]],
    );
    check(
        "
        budget web max=1
        pod web-1 app=web ready of=Node
        ",
        expect![[r#"
              Warning event for PodDisruptionBudget a/web: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: nodes does not implement the scale subresource
            status of a/web: generation 0: 0 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False SyncFailed: nodes does not implement the scale subresource
        "#]],
    );
    check(
        "
        budget web max=50%
        pod web-1 app=web ready
        ",
        expect![[r#"
              Warning event for PodDisruptionBudget a/web: UnmanagedPods Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.
            status of a/web: generation 1: 1 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
        "#]],
    );
}

#[test]
fn a_pod_with_two_budgets_is_reported() {
    check(
        "
        budget web min=1
        budget every min=1 all
        pod web-1 app=web ready
        ",
        expect![[r#"
              Warning event for Pod a/web-1: MultiplePodDisruptionBudgets Pod "a"/"web-1" matches multiple PodDisruptionBudgets.  Chose "every" arbitrarily.
            status of a/every: generation 1: 1 of 1 healthy, 1 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
            status of a/web: generation 1: 1 of 1 healthy, 1 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
        "#]],
    );
}

#[test]
fn an_evicted_pod_is_unhealthy_for_two_minutes() {
    let mut cluster = cluster(
        "
        budget web min=1
        pod web-1 app=web ready
        pod web-2 app=web ready
        pod web-3 app=web ready
        ",
    );
    expect![[r#"
        status of a/web: generation 1: 3 of 3 healthy, 1 desired, 2 disruptions allowed; DisruptionAllowed True SufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    // Two evictions charge the budget. One pod starts to terminate, the other does not.
    let charged = json!({"status": {
        "disruptionsAllowed": 0,
        "disruptedPods": {"web-1": "1970-01-01T00:00:01Z", "web-2": "1970-01-01T00:00:01Z", "none": "1970-01-01T00:00:01Z"},
    }});
    cluster.patch("PodDisruptionBudget", "web", &charged);
    expect![[r#"
        status of a/web: generation 1: 1 of 3 healthy, 1 desired, 0 disruptions allowed, web-1 disrupted since 1970-01-01T00:00:01Z, web-2 disrupted since 1970-01-01T00:00:01Z; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.patch("Pod", "web-1", &json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:02Z"}}));
    expect![[r#"
        status of a/web: generation 1: 1 of 3 healthy, 1 desired, 0 disruptions allowed, web-2 disrupted since 1970-01-01T00:00:01Z; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.delete("Pod", "web-1");
    expect![[r#"
        status of a/web: generation 1: 1 of 2 healthy, 1 desired, 0 disruptions allowed, web-2 disrupted since 1970-01-01T00:00:01Z; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    expect![[r#"
          Warning event for Pod a/web-2: NotDeleted Pod was expected by PDB a/web to be deleted but it wasn't
        status of a/web: generation 1: 2 of 2 healthy, 1 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods
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
fn a_changed_spec_is_observed_at_once_and_the_condition_keeps_its_transition_time() {
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
        status of a/web: generation 2: 2 of 2 healthy, 0 desired, 2 disruptions allowed; DisruptionAllowed True SufficientPods
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
fn fewer_disruptions_are_written_at_once_and_other_changes_four_times_a_second() {
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
    let mut log = String::new();
    for pod in ["web-1", "web-2", "web-3"] {
        cluster.patch("Pod", pod, &ready("True"));
        log += &format!("{pod} is ready\n{}", cluster.run(Duration::from_millis(10)));
    }
    log += &format!("later\n{}", cluster.run(Duration::from_secs(1)));
    for pod in ["web-1", "web-2", "web-3"] {
        cluster.patch("Pod", pod, &ready("False"));
        log += &format!("{pod} is not ready\n{}", cluster.run(Duration::from_millis(10)));
    }
    expect![[r#"
        web-1 is ready
        status of a/web: generation 1: 1 of 3 healthy, 1 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
        web-2 is ready
        web-3 is ready
        later
        status of a/web: generation 1: 3 of 3 healthy, 1 desired, 2 disruptions allowed; DisruptionAllowed True SufficientPods
        web-1 is not ready
        status of a/web: generation 1: 2 of 3 healthy, 1 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods
        web-2 is not ready
        status of a/web: generation 1: 1 of 3 healthy, 1 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
        web-3 is not ready
    "#]].assert_eq(&log);
}

#[test]
fn a_failed_write_is_retried_and_a_delayed_watch_awaited() {
    let mut cluster = cluster(
        "
        budget web min=0
        pod web-1 app=web ready
    ",
    );
    cluster.refusals.extend([CallError::Conflict, CallError::NoAnswer]);
    expect![[r#"
        status of a/web: generation 1: 1 of 1 healthy, 0 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods  -> the object has changed
        status of a/web: generation 1: 1 of 1 healthy, 0 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods  -> no answer in time
        status of a/web: generation 1: 1 of 1 healthy, 0 desired, 1 disruptions allowed; DisruptionAllowed True SufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.delay_watches();
    cluster.patch("Pod", "web-1", &json!({"status": {"conditions": []}}));
    expect![].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.deliver_watches();
    cluster.delay_watches();
    expect![[r#"
        status of a/web: generation 1: 0 of 1 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
    cluster.patch("Pod", "web-1", &json!({"metadata": {"labels": {"app": "none"}}}));
    cluster.deliver_watches();
    expect![[r#"
          Normal event for PodDisruptionBudget a/web: NoPods No matching pods found
        status of a/web: generation 1: 0 of 0 healthy, 0 desired, 0 disruptions allowed; DisruptionAllowed False InsufficientPods
    "#]].assert_eq(&cluster.run(Duration::from_secs(1)));
}

#[test]
fn a_stale_disruption_target_is_cleared_after_two_minutes() {
    let mut cluster = cluster(
        "
        pod web-1 app=web disrupted
        pod web-2 app=web disrupted deleting
        pod web-3 app=web disrupted terminated
        pod web-4 app=web disrupted because=TerminationByKubelet
    ",
    );
    expect![].assert_eq(&cluster.run(Duration::from_secs(119)));
    expect![[r#"
        clear DisruptionTarget of a/web-1
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
