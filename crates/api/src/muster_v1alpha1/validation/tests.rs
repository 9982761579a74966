use alloc::string::ToString as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::muster_v1alpha1::daemon_rollout::{DaemonRollout, DaemonRolloutSpec, DaemonRolloutStatus};
use crate::muster_v1alpha1::policy::{
    ClusterRolloutPolicy, ClusterRolloutPolicySpec, RolloutPolicy, RolloutPolicySpec,
};
use crate::muster_v1alpha1::values::{FailureAction, RolloutPhase};

fn policy(spec: Value) -> RolloutPolicySpec {
    serde_json::from_value(spec).expect("the types decode any spec of the right shape")
}

fn check(invalid: &[InvalidField], expected: &Expect) {
    let lines: Vec<String> = invalid.iter().map(|it| it.to_string()).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn absent_fields_have_their_defaults() {
    let spec = policy(json!({"selector": {}, "steps": [{"name": "canary", "groups": {"labelKey": "zone"}}],
        "windows": [{"start": "09:00", "end": "17:00"}],
        "checks": [{"name": "a", "webhook": {"url": "http://a", "secretRef": {"name": "s"}, "caRef": {"name": "c"}}}]}));
    assert_eq!(spec.validate(), []);
    expect![[r#"
        {
          "selector": {},
          "paused": false,
          "windows": [
            {
              "days": [
                "Mon",
                "Tue",
                "Wed",
                "Thu",
                "Fri",
                "Sat",
                "Sun"
              ],
              "start": "09:00",
              "end": "17:00",
              "timeZone": "UTC"
            }
          ],
          "maxUnavailable": 1,
          "order": {
            "by": "Hash"
          },
          "steps": [
            {
              "name": "canary",
              "nodes": "100%",
              "soak": "0s",
              "approval": "Automatic",
              "groups": {
                "labelKey": "zone",
                "maxConcurrent": 1,
                "maxUnavailable": "100%",
                "soak": "0s"
              }
            }
          ],
          "failures": {
            "maxNodes": "2%",
            "maxRestarts": 2,
            "readyTimeout": "5m",
            "immediateFailureReasons": [
              "InvalidImageName",
              "ErrImageNeverPull",
              "CreateContainerConfigError"
            ],
            "nodeNotReady": "Count"
          },
          "onFailure": "Auto",
          "progressDeadline": "10m",
          "onDeadline": "Report",
          "newNodes": "Stable",
          "checks": [
            {
              "name": "a",
              "webhook": {
                "url": "http://a",
                "timeout": "10s",
                "secretRef": {
                  "name": "s",
                  "key": "token"
                },
                "caRef": {
                  "name": "c",
                  "key": "ca.crt"
                }
              },
              "interval": "1m",
              "failureThreshold": 3
            }
          ],
          "replace": {
            "method": "Delete"
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&spec).unwrap());
    assert_eq!(policy(json!({"daemonSets": ["web"]})).settings.steps[0].name, "all");
}

#[test]
fn objects_decode_with_their_metadata() {
    let policy: RolloutPolicy<'_> = serde_json::from_str(
        r#"{"kind": "RolloutPolicy", "metadata": {"name": "p", "generation": 3}, "spec": {"daemonSets": ["web"]}}"#,
    )
    .unwrap();
    assert_eq!((policy.metadata.name(), policy.metadata.generation()), ("p", 3));
    assert_eq!((policy.spec.validate(), policy.status.sets.matched), ([].into(), 0));
    let cluster: ClusterRolloutPolicy<'_> = serde_json::from_str(r#"{"metadata": {"name": "all"}}"#).unwrap();
    assert_eq!(cluster.spec.validate().len(), 1);
    let rollout: DaemonRollout<'_> = serde_json::from_str(
        r#"{"metadata": {"name": "web"}, "status": {"phase": "Soaking", "later": 1, "lastProgressTime": "2026-01-02T03:04:05Z"}}"#,
    )
    .unwrap();
    assert_eq!((rollout.spec.paused, &rollout.status.phase), (false, &RolloutPhase::Soaking));
    let status = serde_json::to_value(&rollout.status).unwrap();
    assert_eq!(status["lastProgressTime"], "2026-01-02T03:04:05Z");
}

/// A policy of a later version is readable, and its unknown values are reported.
#[test]
fn unknown_fields_are_ignored_and_unknown_values_reported() {
    let spec = policy(json!({"selector": {}, "later": {"field": 1}, "onFailure": "Retry", "steps": [
        {"name": "a", "nodes": {"odd": true}, "approval": "Vote", "soak": "soon"},
    ]}));
    assert_eq!(spec.settings.on_failure, FailureAction::Unknown("Retry".to_owned()));
    check(
        &spec.validate(),
        &expect![[r#"
            spec.steps[0].nodes: Invalid value: {"odd":true}: must be a number of at least 1 or a percentage from 1% to 100%
            spec.steps[0].soak: Invalid value: "soon": must be a duration such as 90s, 10m or 1h30m, of at most 720h
            spec.steps[0].approval: Unsupported value: "Vote": supported values: "Automatic", "Manual"
            spec.onFailure: Unsupported value: "Retry": supported values: "Auto", "Rollback", "Stop""#]],
    );
    let status: DaemonRolloutStatus = serde_json::from_value(json!({"phase": "Thinking"})).unwrap();
    assert_eq!(status.phase, RolloutPhase::Unknown("Thinking".to_owned()));
    check(
        &status.validate(),
        &expect![[
            r#"status.phase: Unsupported value: "Thinking": supported values: "Complete", "Rolling", "Soaking", "Waiting", "PartiallyComplete", "Stopped", "RollingBack", "RolledBack""#
        ]],
    );
}

#[test]
fn errors_have_the_path_and_what_is_allowed() {
    check(
        &policy(json!({
            "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "daemonSets": ["web", "web", "Web"],
            "windows": [{"days": [], "start": "9:00", "end": "9:00", "timeZone": "Mars Time"}],
            "maxUnavailable": 0,
            "order": {"by": "Label"},
            "steps": [
                {"name": "one", "nodes": "50%", "groups": {"labelKey": "zone", "sequence": ["a", "a"], "maxConcurrent": 0}},
                {"name": "one", "nodes": "10%", "spread": {}},
            ],
            "failures": {"maxNodes": "51%", "maxRestarts": 1001, "readyTimeout": "0s", "immediateFailureReasons": [""]},
            "checks": [{"name": "x"}, {"name": "y", "external": {}, "webhook": {"url": "ftp://a", "timeout": "31s"}}],
        }))
        .validate(),
        &expect![[r#"
            spec.daemonSets: Forbidden: exactly one of `selector` and `daemonSets` must be set
            spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            spec.daemonSets[2]: Invalid value: "Web": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.daemonSets[1]: Duplicate value: "web"
            spec.windows[0].days: Required value: must have at least one day
            spec.windows[0].start: Invalid value: "9:00": must be a time from 00:00 to 23:59
            spec.windows[0].end: Invalid value: "9:00": must be a time from 00:00 to 23:59
            spec.windows[0].end: Invalid value: "9:00": must not be equal to `start`
            spec.windows[0].timeZone: Invalid value: "Mars Time": must be an IANA time zone name such as UTC or Europe/Berlin
            spec.maxUnavailable: Invalid value: 0: must be a number of at least 1 or a percentage from 1% to 100%
            spec.order.labelKey: Required value: must be set if `by` is Label
            spec.steps[0].groups: Forbidden: may be set only in the last step
            spec.steps[0].groups.sequence[1]: Duplicate value: "a"
            spec.steps[0].groups.maxConcurrent: Invalid value: 0: must be greater than or equal to 1
            spec.steps[1].spread.labelKey: Required value
            spec.steps[1].name: Duplicate value: "one"
            spec.steps[1].nodes: Invalid value: "10%": must not be lower than that of the earlier step "one"
            spec.failures.maxNodes: Invalid value: "51%": must be a number from 0 to 200 or a percentage from 0% to 50%
            spec.failures.maxRestarts: Invalid value: 1001: must be between 0 and 1000, inclusive
            spec.failures.readyTimeout: Invalid value: "0s": must be a duration such as 90s, 10m or 1h30m, longer than 0s and of at most 720h
            spec.failures.immediateFailureReasons[0]: Required value
            spec.checks[0]: Required value: exactly one of `prometheus`, `webhook` and `external` must be set
            spec.checks[1]: Forbidden: exactly one of `prometheus`, `webhook` and `external` must be set
            spec.checks[1].webhook.url: Invalid value: "ftp://a": must be a URL with the scheme http or https, such as https://example.com/path
            spec.checks[1].webhook.timeout: Invalid value: "31s": must be a duration such as 90s, 10m or 1h30m, from 1s to 30s"#]],
    );
    let cluster: ClusterRolloutPolicySpec = serde_json::from_value(json!({})).unwrap();
    check(&cluster.validate(), &expect!["spec.selector: Required value"]);
    let rollout: DaemonRolloutSpec = serde_json::from_value(json!({
        "approve": {"revision": "a b", "step": "**"},
        "retry": {"revision": "a"},
        "checkReports": [
            {"check": "a", "revision": "r", "message": "m".repeat(1025)},
            {"check": "a", "revision": "r", "result": "Maybe"},
        ],
    }))
    .unwrap();
    check(
        &rollout.validate(),
        &expect![[r#"
            spec.approve.revision: Invalid value: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            spec.approve.step: Invalid value: "**": must be the name of a step, or * for all steps
            spec.retry.attempt: Invalid value: 0: must be greater than or equal to 1
            spec.checkReports[0].result: Required value
            spec.checkReports[0].message: Too long: may not be more than 1024 characters
            spec.checkReports[1].result: Unsupported value: "Maybe": supported values: "Pass", "Fail"
            spec.checkReports[1].check: Duplicate value: "a""#]],
    );
}
