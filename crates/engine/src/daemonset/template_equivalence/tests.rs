use alloc::{format, vec};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::daemonset::manifest;

fn same(one: Value, other: Value) {
    assert_eq!(
        template_identity(&one),
        template_identity(&other),
        "{} and {}",
        normalize(&one),
        normalize(&other)
    );
}

fn differ(one: Value, other: Value) {
    assert_ne!(template_identity(&one), template_identity(&other), "{}", normalize(&one));
}

fn spec(spec: Value) -> Value {
    json!({"spec": spec})
}

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "c:1"});
    for (key, value) in fields.as_object().unwrap() {
        container[key] = value.clone();
    }
    spec(json!({"containers": [container]}))
}

fn volume(source: Value) -> Value {
    let mut volume = json!({"name": "v"});
    for (key, value) in source.as_object().unwrap() {
        volume[key] = value.clone();
    }
    spec(json!({"volumes": [volume]}))
}

/// A template as its author wrote it, and as two API servers return it.
fn written() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "hostNetwork": true,
            "serviceAccountName": "web",
            "containers": [{
                "name": "web",
                "image": "web:1",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "securityContext": {"privileged": true},
                "livenessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "tmp"}],
        },
    })
}

fn served() -> Value {
    json!({
        "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
        "spec": {
            "hostNetwork": true,
            "serviceAccountName": "web",
            "serviceAccount": "web",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {},
            "containers": [{
                "name": "web",
                "image": "web:1",
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "securityContext": {"privileged": true},
                "livenessProbe": {
                    "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
                    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "volumes": [
                {"name": "v", "configMap": {"name": "c", "defaultMode": 420}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    })
}

#[test]
fn what_the_api_server_fills_in_changes_nothing() {
    same(written(), served());
}

/// K07: Kubernetes 1.12 began to default `procMount`, and all daemon pods were restarted.
#[test]
fn a_newer_server_that_fills_in_one_more_field_changes_nothing() {
    let mut newer = served();
    newer["spec"]["containers"][0]["securityContext"]["procMount"] = "Default".into();
    newer["spec"]["enableServiceLinks"] = true.into();
    newer["spec"]["containers"][0]["volumeMounts"] = json!([]);
    newer["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    same(served(), newer);
}

#[test]
fn a_revision_means_what_its_template_means() {
    let data: Value = serde_json::from_str(&manifest::revision_data(&served())).unwrap();
    assert_eq!(revision_identity(&data), Some(template_identity(&written())));
}

#[test]
fn other_patches_have_no_meaning() {
    for data in [
        json!(null),
        json!({}),
        json!({"spec": {}}),
        json!({"spec": {"template": null}}),
        json!({"spec": {"template": {"spec": {}}}}),
        json!({"spec": {"template": {"$patch": "merge"}}}),
        json!({"spec": {"template": {"$patch": "replace"}, "minReadySeconds": 1}}),
        json!({"spec": {"template": {"$patch": "replace"}}, "metadata": {}}),
    ] {
        assert_eq!(revision_identity(&data), None, "{data}");
    }
    assert!(revision_identity(&json!({"spec": {"template": {"$patch": "replace"}}})).is_some());
}

/// Checks every entry of the table: its value is equivalent to absence, another value is not.
#[test]
fn every_entry_of_the_table_holds() {
    for (pattern, absent) in EQUIVALENT_TO_ABSENT {
        let defaults = match absent {
            Text(text) => vec![json!(text), json!("")],
            NumberOrZero(count) => vec![json!(count), json!(0)],
            Number(number) => vec![json!(number)],
            False => vec![json!(false)],
            True => vec![json!(true)],
            Empty => vec![json!({}), json!([]), json!("")],
        };
        let other = match absent {
            Text(_) => json!("other"),
            NumberOrZero(_) | Number(_) => json!(77),
            False => json!(true),
            True => json!(false),
            Empty => json!({"other": "x"}),
        };
        for path in paths(pattern) {
            for default in &defaults {
                same(at(&path, Some(default.clone())), at(&path, None));
            }
            differ(at(&path, Some(other.clone())), at(&path, None));
            differ(at(&path, Some(other.clone())), at(&path, Some(defaults[0].clone())));
        }
    }
}

/// The paths that a pattern matches, with an arbitrary prefix for `**`.
fn paths(pattern: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![vec![]];
    for part in pattern.split('.') {
        let names: Vec<String> = match FIELD_GROUPS.iter().find(|it| it.0 == part) {
            // Probes and affinities are objects; containers and terms are list items.
            Some((_, names)) if part == "CONTAINER" => names.iter().map(|it| format!("{it}[]")).collect(),
            Some((_, names)) => names.iter().map(|it| it.to_string()).collect(),
            None if part == "**" => vec!["somewhere".to_string()],
            None => vec![part.to_string()],
        };
        all = all
            .iter()
            .flat_map(|path| names.iter().map(move |name| path.iter().chain([name]).cloned().collect()))
            .collect();
    }
    all
}

/// A template with a sibling of every field on the path, so that no object becomes empty.
fn at(path: &[String], value: Option<Value>) -> Value {
    let Some((first, rest)) = path.split_first() else { return value.unwrap_or(json!({"beside": 1})) };
    let (key, in_list) = first.strip_suffix("[]").map_or((first.as_str(), false), |it| (it, true));
    let mut fields = json!({"beside": 1});
    if rest.is_empty() {
        if let Some(value) = value {
            fields[key] = value;
        }
    } else {
        let inner = at(rest, value);
        fields[key] = if in_list { json!([inner]) } else { inner };
    }
    fields
}

#[test]
fn no_pattern_of_the_tables_is_misspelt() {
    for pattern in EQUIVALENT_TO_ABSENT.iter().map(|it| it.0).chain(QUANTITY_FIELDS.iter().map(|it| it.0)) {
        let (first, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
        assert!(["metadata", "spec", "**"].contains(&first), "{pattern}");
        assert!(!rest.contains("**"), "{pattern}");
        assert!(first != "**" || rest.contains('.'), "{pattern}");
        for part in pattern.split('.').filter(|it| it.chars().all(|it| it.is_ascii_uppercase())) {
            assert!(FIELD_GROUPS.iter().any(|it| it.0 == part), "{pattern}");
        }
    }
}

#[test]
fn zero_seconds_of_grace_and_mode_zero_are_not_the_default() {
    differ(spec(json!({"terminationGracePeriodSeconds": 0})), spec(json!({})));
    differ(volume(json!({"secret": {"defaultMode": 0}})), volume(json!({"secret": {}})));
}

#[test]
fn the_pull_policy_follows_the_tag() {
    for (image, policy) in [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("host:5000/web", "Always"),
        ("host:5000/team/web:latest", "Always"),
        ("web:latest@sha256:0000000000000000000000000000000000000000000000000000000000000000", "Always"),
        ("web:1", "IfNotPresent"),
        ("host:5000/web:1", "IfNotPresent"),
        ("web@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
        ("web:1@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
    ] {
        let with = |policy: &str| container(json!({"image": image, "imagePullPolicy": policy}));
        same(with(policy), container(json!({"image": image})));
        let other = if policy == "Always" { "IfNotPresent" } else { "Always" };
        differ(with(other), container(json!({"image": image})));
        differ(with("Never"), container(json!({"image": image})));
        let mounted = |fields: Value| volume(json!({"image": fields}));
        same(
            mounted(json!({"reference": image, "pullPolicy": policy})),
            mounted(json!({"reference": image})),
        );
    }
}

#[test]
fn a_host_port_is_the_container_s_only_on_the_host_network() {
    let with = |host_network: bool, port: Value| {
        let ports = json!([{"name": "c", "image": "c:1", "ports": [port]}]);
        spec(json!({"hostNetwork": host_network, "containers": ports, "initContainers": ports}))
    };
    let (both, one) = (json!({"containerPort": 80, "hostPort": 80}), json!({"containerPort": 80}));
    same(with(true, both.clone()), with(true, one.clone()));
    differ(with(false, both), with(false, one.clone()));
    differ(with(true, json!({"containerPort": 80, "hostPort": 81})), with(true, one));
}

#[test]
fn the_old_name_of_the_service_account() {
    let new = || spec(json!({"serviceAccountName": "a"}));
    same(new(), spec(json!({"serviceAccount": "a"})));
    same(new(), spec(json!({"serviceAccount": "a", "serviceAccountName": "a"})));
    same(new(), spec(json!({"serviceAccount": "a", "serviceAccountName": ""})));
    differ(new(), spec(json!({"serviceAccountName": "b"})));
    differ(new(), spec(json!({})));
}

#[test]
fn requests_follow_limits_one_by_one() {
    let resources = |value: Value| container(json!({"resources": value}));
    let limits = || resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
    same(limits(), resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}})));
    same(
        limits(),
        resources(json!({"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"memory": "1Gi"}})),
    );
    differ(limits(), resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0"}})));
    differ(limits(), resources(json!({"requests": {"cpu": "1", "memory": "1Gi"}})));
}

#[test]
fn quantities() {
    for (one, other) in [
        ("1", "1000m"),
        ("1Gi", "1024Mi"),
        ("1Ki", "1024"),
        ("1k", "1000"),
        ("1e3", "1k"),
        ("1E3", "1k"),
        ("1.5", "1500m"),
        ("0.5Gi", "512Mi"),
        ("+1", "1.0"),
        ("1.", "1"),
        (".5", "500m"),
        ("100n", "0.1u"),
        ("1E", "1000P"),
        ("-0.5", "-500m"),
        ("2Ei", "2048Pi"),
        ("8Ei", "10Ei"),
        ("8Ei", "9223372036854775807"),
    ] {
        assert_eq!(
            canonical_quantity(&json!(one), false),
            canonical_quantity(&json!(other), false),
            "{one} {other}"
        );
        assert!(Quantity::parse(one).is_ok());
    }
    for text in ["", "1Q", "1mm", "1e", "1ee3", "1.2.3", "1 ", "1e99", "9e2147483647"] {
        assert_eq!(canonical_quantity(&json!(text), true), text, "not a quantity, so unchanged");
    }
    let text = |it: &str, rounded| canonical_quantity(&json!(it), rounded);
    assert_eq!(text("0.0001", true), "1m");
    assert_eq!(text("-0.0001", true), "-1m");
    assert_eq!(text("0.0001", false), "100u");
    assert_eq!(text("64Mi", true), "67108864");
    assert_eq!(text("lots", true), "lots");
    assert_eq!(canonical_quantity(&json!(2), true), "2");
    assert_eq!(canonical_quantity(&json!(0.5), true), "500m");
}

#[test]
fn quantities_are_read_where_they_stand_and_only_there() {
    let size = |it: &str| volume(json!({"emptyDir": {"sizeLimit": it}}));
    same(size("1Gi"), size("1024Mi"));
    differ(size("1Gi"), size("1G"));
    let overhead = |it: &str| spec(json!({"overhead": {"cpu": it}}));
    same(overhead("250m"), overhead("0.25"));
    let gpus = |it: Value| container(json!({"resources": {"limits": {"nvidia.com/gpu": it}}}));
    same(gpus(json!(1)), gpus(json!("1")));
    let value = |it: &str| container(json!({"env": [{"name": "CPU", "value": it}]}));
    differ(value("1"), value("1000m"));
}

#[test]
fn an_empty_selector_is_not_an_absent_one() {
    for selector in ["labelSelector", "namespaceSelector"] {
        let term = |fields: Value| {
            let mut term = json!({"topologyKey": "zone"});
            if !fields.is_null() {
                term[selector] = fields;
            }
            spec(
                json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
            )
        };
        differ(term(json!({})), term(Value::Null));
        same(term(json!({})), term(json!({"matchLabels": {}, "matchExpressions": []})));
        differ(term(json!({})), term(json!({"matchLabels": {"a": ""}})));
    }
    let spread = |fields: Value| spec(json!({"topologySpreadConstraints": [fields]}));
    differ(spread(json!({"labelSelector": {}})), spread(json!({})));
}

#[test]
fn a_required_term_without_expressions_still_requires() {
    let required = |terms: Value| {
        spec(json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}))
    };
    differ(required(json!([])), spec(json!({})));
    differ(required(json!([{}])), required(json!([])));
    same(required(json!([{}])), required(json!([{"matchExpressions": [], "matchFields": null}])));
}

#[test]
fn what_a_user_can_see_makes_a_difference() {
    differ(container(json!({"image": "c:1"})), container(json!({"image": "c:2"})));
    differ(container(json!({"command": ["a", "b"]})), container(json!({"command": ["b", "a"]})));
    differ(container(json!({"args": [""]})), container(json!({})));
    differ(container(json!({"unheardOf": {}})), container(json!({})));
    differ(container(json!({"unheardOf": false})), container(json!({})));
    differ(spec(json!({"automountServiceAccountToken": false})), spec(json!({})));
    differ(
        spec(json!({"containers": [{"name": "a"}, {"name": "b"}]})),
        spec(json!({"containers": [{"name": "b"}, {"name": "a"}]})),
    );
    differ(json!({"metadata": {"labels": {"a": ""}}}), json!({"metadata": {"labels": {}}}));
    differ(json!({"metadata": {"annotations": {"a": "1"}}}), json!({}));
    differ(json!({"metadata": {"annotations": {"namespaces": "", "path": ""}}}), json!({}));
    differ(volume(json!({"emptyDir": {"medium": "Memory"}})), volume(json!({})));
    differ(volume(json!({"hostPath": {"path": "/a"}})), volume(json!({})));
    differ(container(json!({"securityContext": {"runAsNonRoot": false}})), container(json!({})));
    differ(container(json!({"livenessProbe": {}})), container(json!({})));
}

#[test]
fn an_empty_value_of_a_variable_is_none() {
    same(container(json!({"env": [{"name": "A", "value": ""}]})), container(json!({"env": [{"name": "A"}]})));
}

#[test]
fn odd_input_has_a_meaning_too() {
    for odd in [
        json!(null),
        json!(7),
        json!("x"),
        json!([null]),
        json!({"spec": [{"containers": 1}]}),
        json!({"spec": {"containers": {}, "volumes": [7, null], "serviceAccount": 5}}),
    ] {
        let _ = template_identity(&odd);
        let _ = revision_identity(&odd);
    }
}

#[test]
fn fnv() {
    assert_eq!(fnv1a_128(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    assert_eq!(fnv1a_128("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
}

/// Fields of a template as an API server returns it, each of which may be absent.
fn some_of(value: Value) -> impl Strategy<Value = Value> {
    let fields: Vec<(String, Value)> = value.as_object().unwrap().clone().into_iter().collect();
    let most = fields.len();
    prop::sample::subsequence(fields, 0..=most).prop_map(|it| it.into_iter().collect())
}

proptest! {
    #[test]
    fn what_is_normal_stays_as_it_is(
        spec in some_of(served()["spec"].clone()),
        container in some_of(served()["spec"]["containers"][0].clone()),
    ) {
        let mut template = json!({"spec": spec});
        template["spec"]["containers"] = json!([container]);
        let once = normalize(&template);
        prop_assert_eq!(normalize(&once), once);
    }

    #[test]
    fn any_subset_of_the_defaults_means_the_same(
        spec in some_of(json!({
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "hostPID": false, "volumes": [],
            "serviceAccount": "web", "affinity": {"nodeAffinity": {}}, "priority": null,
        })),
        container in some_of(json!({
            "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File", "securityContext": {"procMount": "Default", "privileged": true},
            "tty": false, "command": [], "lifecycle": null,
        })),
    ) {
        let mut template = written();
        for (key, value) in spec.as_object().unwrap() {
            if key != "volumes" {
                template["spec"][key] = value.clone();
            }
        }
        for (key, value) in container.as_object().unwrap() {
            template["spec"]["containers"][0][key] = value.clone();
        }
        prop_assert_eq!(template_identity(&template), template_identity(&written()));
    }

    #[test]
    fn no_quantity_makes_it_panic(text in "[+-]?[0-9.]{0,40}[a-zA-Z]{0,2}[+-]?[0-9]{0,12}") {
        let _ = canonical_quantity(&json!(text), true);
    }

    #[test]
    fn quantities_are_equal_if_their_canonical_forms_are(one in quantity_text(), other in quantity_text()) {
        let form = |text: &String| canonical_quantity(&json!(text), false);
        prop_assert_eq!(Quantity::parse(&one) == Quantity::parse(&other), form(&one) == form(&other));
    }
}

/// Texts of quantities. Many of them are equal in value, and some exceed the maximum of binary suffixes.
fn quantity_text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "8Ei",
            "10Ei",
            "9223372036854775807",
            "9223372036854775808",
            "7Ei",
            "-8Ei"
        ])
        .prop_map(String::from),
        "-?[0-4]{1,2}(\\.[05])?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-3])?",
        "(1000|1024|1)(m|k|M|Ki|Mi|Ei)?",
    ]
}
