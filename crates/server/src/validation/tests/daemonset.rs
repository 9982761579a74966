use expect_test::expect;
use serde_json::{Value, json};

use super::{check, check_change, check_status};

fn set(more: Value) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"spec": spec})
}

#[test]
fn a_selector_matches_the_template_and_is_not_empty() {
    check("DaemonSet", &set(json!({})), &expect![""]);
    check(
        "DaemonSet",
        &set(json!({"selector": null})),
        &expect![[
            r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
        ]],
    );
    check(
        "DaemonSet",
        &set(json!({"selector": {}})),
        &expect!["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"],
    );
    check(
        "DaemonSet",
        &set(json!({"selector": {"matchLabels": {"a": "x"}}})),
        &expect![[
            r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
        ]],
    );
    let odd = json!({"matchExpressions": [
        {"key": "a", "operator": "In"},
        {"key": "a/b/c", "operator": "Exists", "values": ["v"]},
        {"key": "a", "operator": "Like", "values": ["-"]},
    ]});
    check(
        "DaemonSet",
        &set(json!({"selector": odd})),
        &expect![[r#"
        spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
        spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
        spec.selector.matchExpressions[1].key: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
        spec.selector.matchExpressions[2].operator: Invalid value: "Like": not a valid selector operator
        spec.selector.matchExpressions[2].values[0]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#]],
    );
}

#[test]
fn a_selector_stays() {
    let other = json!({
        "selector": {"matchLabels": {"a": "x"}},
        "template": {"metadata": {"labels": {"a": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    check_change(
        "DaemonSet",
        &set(json!({})),
        &set(other),
        &expect![[r#"spec.selector: Invalid value: {"matchLabels":{"a":"x"}}: field is immutable"#]],
    );
}

#[test]
fn forbidden_fields_of_a_template() {
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "activeDeadlineSeconds": 5, "containers": [{"name": "c", "image": "i"}],
                 "ephemeralContainers": [{"name": "e", "image": "i"}]},
    });
    check(
        "DaemonSet",
        &set(json!({"template": template})),
        &expect![[r#"
        spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template
        spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
        spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"#]],
    );
    check(
        "DaemonSet",
        &json!({"metadata": {"name": "UP"}}),
        &expect![[r#"
        metadata.name: Invalid value: "UP": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
        spec.template.spec.containers: Required value"#]],
    );
}

#[test]
fn exactly_one_of_max_unavailable_and_max_surge_is_set() {
    let rolling = |unavailable: Value, surge: Value| {
        set(json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}}))
    };
    check("DaemonSet", &rolling(json!("25%"), json!(0)), &expect![""]);
    check("DaemonSet", &rolling(json!(0), json!("100%")), &expect![""]);
    check(
        "DaemonSet",
        &rolling(json!(1), json!("1%")),
        &expect![[
            r#"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "1%": may not be set when maxUnavailable is non-zero"#
        ]],
    );
    check(
        "DaemonSet",
        &rolling(json!("0%"), json!(0)),
        &expect![
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"
        ],
    );
    check(
        "DaemonSet",
        &rolling(json!(-1), json!(0)),
        &expect![
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"
        ],
    );
    check(
        "DaemonSet",
        &rolling(json!("101%"), json!("many")),
        &expect![[r#"
        spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "many": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')
        spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#]],
    );
    check(
        "DaemonSet",
        &set(json!({"updateStrategy": {"type": "Never"}})),
        &expect![[
            r#"spec.updateStrategy: Unsupported value: {"Type":"Never","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete""#
        ]],
    );
    check(
        "DaemonSet",
        &set(json!({"minReadySeconds": -1, "revisionHistoryLimit": -1})),
        &expect![[r#"
        spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0
        spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn counts_of_a_status() {
    let mut new = set(json!({}));
    new["status"] = json!({"numberReady": -1, "collisionCount": 1});
    let mut old = set(json!({}));
    old["status"] = json!({"collisionCount": 2});
    check_status(
        "DaemonSet",
        &old,
        &new,
        &expect![[r#"
        status.numberReady: Invalid value: -1: must be greater than or equal to 0
        status.collisionCount: Invalid value: 1: cannot be decremented"#]],
    );
}

#[test]
fn a_revision_holds_data_that_stays() {
    check(
        "ControllerRevision",
        &json!({"revision": -1}),
        &expect![[r#"
        revision: Invalid value: -1: must be greater than or equal to 0
        data: Required value: data is mandatory"#]],
    );
    check(
        "ControllerRevision",
        &json!({"revision": 1, "data": 1}),
        &expect!["data: Required value: data must be a valid JSON object"],
    );
    let old = json!({"revision": 1, "data": {"a": 1}});
    check_change("ControllerRevision", &old, &json!({"revision": 2, "data": {"a": 1}}), &expect![""]);
    check_change(
        "ControllerRevision",
        &old,
        &json!({"revision": 2, "data": {"a": 2}}),
        &expect![[r#"data: Invalid value: {"a":2}: field is immutable"#]],
    );
}

#[test]
fn the_example_is_taken() {
    let example = include_str!("../../../../../examples/fluentd.yaml");
    check("DaemonSet", &serde_saphyr::from_str(example).unwrap(), &expect![""]);
}
