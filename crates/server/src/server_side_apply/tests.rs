//! A story of writes in, the object and who owns what out.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::Map;

use super::path_element::{ElementValue, PathElement};
use super::*;
use crate::request::User;

/// What a story is about: a kind of the table.
struct Story {
    kind: &'static Kind,
    object: Option<Value>,
    /// Each write comes a second after the one before.
    second: i64,
    said: String,
}

impl Story {
    fn of(group: &str, plural: &str) -> Self {
        let kind = Kind::builtin(group, "v1", plural);
        Self { kind, object: None, second: 0, said: String::new() }
    }

    /// One line is one write: `apply NAME JSON`, `force NAME JSON`, `put NAME JSON`, `status NAME JSON`,
    /// `apply/status NAME JSON`.
    fn tell(&mut self, line: &str) {
        let (verb, rest) = line.split_once(' ').unwrap();
        let (manager, body) = rest.split_once(' ').unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        self.second += 1;
        let now = jiff::Timestamp::from_second(1_767_225_600 + self.second).unwrap();
        let mut context = RequestContext::new(User::server(), "patch", now);
        context.field_manager = manager.to_owned();
        let subresource = if verb.contains("status") { Subresource::Status } else { Subresource::Whole };
        let target = RequestTarget { kind: self.kind, namespace: None, name: "x".into(), subresource };
        let mut made = match verb {
            "put" | "status" => {
                let mut new = body;
                track_field_ownership(
                    &context,
                    &KindRegistry::builtin(),
                    &target,
                    &mut new,
                    self.object.as_ref(),
                );
                new
            }
            "apply" | "force" | "apply/status" => {
                match apply_configuration(
                    &context,
                    &KindRegistry::builtin(),
                    &target,
                    &body,
                    verb == "force",
                    self.object.as_ref(),
                ) {
                    Ok(new) => new,
                    Err(refusal) => {
                        let status = refusal.status();
                        self.said.push_str(&format!("{} {}\n", status["code"], str_at(&status, "message")));
                        return;
                    }
                }
            }
            other => panic!("no such verb: {other}"),
        };
        // What the registry does to a new object.
        if self.object.is_none() {
            made["metadata"]["uid"] = json!("1");
        }
        self.object = Some(without_nulls(made));
    }

    fn show(mut self) -> String {
        let Some(mut object) = self.object else { return self.said };
        let managed = object["metadata"].as_object_mut().and_then(|it| it.remove("managedFields"));
        self.said.push_str(&format!("{object}\n"));
        for entry in managed.iter().flat_map(|it| it.as_array().unwrap()) {
            self.said.push_str(&format!(
                "{} {} {} {} {}\n",
                str_at(entry, "operation"),
                str_at(entry, "manager"),
                str_at(entry, "subresource"),
                str_at(entry, "time").trim_start_matches("2026-01-01T00:"),
                entry["fieldsV1"]
            ));
        }
        self.said
    }
}

/// What decoding does to them.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let kept = entries.into_iter().filter(|(_, it)| !it.is_null());
            Value::Object(kept.map(|(name, it)| (name, without_nulls(it))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        plain => plain,
    }
}

fn check((group, plural): (&str, &str), story: &str, golden: &Expect) {
    let mut told = Story::of(group, plural);
    story.lines().map(str::trim).filter(|it| !it.is_empty()).for_each(|it| told.tell(it));
    golden.assert_eq(&told.show());
}

const CONFIG_MAP: (&str, &str) = ("", "configmaps");
const POD: (&str, &str) = ("", "pods");
const DAEMON_SET: (&str, &str) = ("apps", "daemonsets");
const SERVICE: (&str, &str) = ("", "services");

#[test]
fn the_creator_owns_all_fields_but_identity() {
    check(
        POD,
        r#"put kubectl {"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"a":"b"},"generateName":"g-"},"spec":{"containers":[{"name":"c","image":"i","resources":{},"ports":[{"containerPort":443,"protocol":"TCP"},{"containerPort":80,"protocol":"TCP"}]}],"nodeSelector":{"k":"v"},"securityContext":{}},"status":{"phase":"Pending"}}"#,
        &expect![[r#"
            {"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"g-","labels":{"a":"b"},"name":"x","uid":"1"},"spec":{"containers":[{"image":"i","name":"c","ports":[{"containerPort":443,"protocol":"TCP"},{"containerPort":80,"protocol":"TCP"}],"resources":{}}],"nodeSelector":{"k":"v"},"securityContext":{}},"status":{"phase":"Pending"}}
            Update kubectl  00:01Z {"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":443,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{}}},"f:nodeSelector":{},"f:securityContext":{}}}
        "#]],
    );
}

#[test]
fn two_appliers_share_a_map() {
    check(
        CONFIG_MAP,
        r#"apply a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1","c":"1"}}
           apply b {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"b":"1","c":"1"}}
           apply a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"2"}}"#,
        &expect![[r#"
            {"apiVersion":"v1","data":{"a":"2","b":"1","c":"1"},"kind":"ConfigMap","metadata":{"name":"x","uid":"1"}}
            Apply b  00:02Z {"f:data":{"f:b":{},"f:c":{}}}
            Apply a  00:03Z {"f:data":{"f:a":{}}}
        "#]],
    );
}

#[test]
fn a_conflict_names_the_owner_and_the_field() {
    check(
        CONFIG_MAP,
        r#"apply a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"1"}}
           apply b {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"2"}}"#,
        &expect![[r#"
            409 Apply failed with 1 conflict: conflict with "a": .data.k
            {"apiVersion":"v1","data":{"k":"1"},"kind":"ConfigMap","metadata":{"name":"x","uid":"1"}}
            Apply a  00:01Z {"f:data":{"f:k":{}}}
        "#]],
    );
    check(
        DAEMON_SET,
        r#"put u {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{},"spec":{"containers":[{"name":"c","image":"1"}]}},"minReadySeconds":1,"updateStrategy":{}},"status":{"desiredNumberScheduled":1}}
           status s {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{},"spec":{"containers":[{"name":"c","image":"1"}]}},"minReadySeconds":1,"updateStrategy":{}},"status":{"desiredNumberScheduled":2}}
           apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"2"}]}},"minReadySeconds":2}}
           apply/status a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"status":{"desiredNumberScheduled":3}}
           force a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"2"}]}},"minReadySeconds":2}}"#,
        &expect![[r#"
            409 Apply failed with 2 conflicts: conflicts with "u" using apps/v1:
            - .spec.minReadySeconds
            - .spec.template.spec.containers[name="c"].image
            409 Apply failed with 1 conflict: conflict with "s" with subresource "status" using apps/v1: .status.desiredNumberScheduled
            {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"minReadySeconds":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{},"spec":{"containers":[{"image":"2","name":"c"}]}},"updateStrategy":{}},"status":{"desiredNumberScheduled":2}}
            Apply a  00:05Z {"f:spec":{"f:minReadySeconds":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
            Update u  00:01Z {"f:spec":{"f:selector":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}}}}}}}
            Update s status 00:02Z {"f:status":{"f:desiredNumberScheduled":{}}}
        "#]],
    );
}

#[test]
fn ports_are_keyed_by_protocol_even_if_it_is_defaulted() {
    check(
        SERVICE,
        r#"apply a {"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":53,"protocol":"UDP","name":"u"},{"port":53,"name":"t"}]}}
           apply a {"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":53,"name":"t2"}]}}"#,
        &expect![[r#"
            {"apiVersion":"v1","kind":"Service","metadata":{"name":"x","uid":"1"},"spec":{"ports":[{"name":"t2","port":53}]},"status":{"loadBalancer":{}}}
            Apply a  00:02Z {"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}}
        "#]],
    );
}

#[test]
fn a_field_no_longer_applied_is_removed_unless_another_manager_owns_it() {
    check(
        POD,
        r#"apply a {"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"a":"1"},"finalizers":["f/a","f/b"]},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"1"}]},{"name":"d","image":"i"}]}}
           apply b {"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","finalizers":["f/b"]},"spec":{"containers":[{"name":"d","tty":true}]}}
           apply a {"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
        &expect![[r#"
            {"apiVersion":"v1","kind":"Pod","metadata":{"finalizers":["f/b"],"name":"x","uid":"1"},"spec":{"containers":[{"image":"i","name":"c"},{"name":"d","tty":true}]},"status":{}}
            Apply b  00:02Z {"f:metadata":{"f:finalizers":{"v:\"f/b\"":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"d\"}":{".":{},"f:name":{},"f:tty":{}}}}}
            Apply a  00:03Z {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}
        "#]],
    );
}

#[test]
fn an_update_takes_ownership_of_changed_and_removed_fields() {
    check(
        CONFIG_MAP,
        r#"apply a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1","b":"1","c":"1"}}
           put u {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","uid":"1"},"data":{"a":"2","b":"1","d":"1"}}
           put u {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","uid":"1"},"data":{"a":"2","b":"1","d":"1"}}"#,
        &expect![[r#"
            {"apiVersion":"v1","data":{"a":"2","b":"1","d":"1"},"kind":"ConfigMap","metadata":{"name":"x","uid":"1"}}
            Apply a  00:01Z {"f:data":{"f:b":{}}}
            Update u  00:02Z {"f:data":{"f:a":{},"f:d":{}}}
        "#]],
    );
}

#[test]
fn the_eleventh_updater_makes_the_oldest_ancient() {
    let story: String = (0..12)
        .map(|it| format!("put u{it:02} {{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"x\",\"uid\":\"1\"}},\"data\":{}}}\n", json!((0..=it).map(|it| (format!("k{it:02}"), "")).collect::<std::collections::BTreeMap<_, _>>())))
        .collect();
    check(
        CONFIG_MAP,
        &story,
        &expect![[r#"
        {"apiVersion":"v1","data":{"k00":"","k01":"","k02":"","k03":"","k04":"","k05":"","k06":"","k07":"","k08":"","k09":"","k10":"","k11":""},"kind":"ConfigMap","metadata":{"name":"x","uid":"1"}}
        Update ancient-changes  00:03Z {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{}}}
        Update u03  00:04Z {"f:data":{"f:k03":{}}}
        Update u04  00:05Z {"f:data":{"f:k04":{}}}
        Update u05  00:06Z {"f:data":{"f:k05":{}}}
        Update u06  00:07Z {"f:data":{"f:k06":{}}}
        Update u07  00:08Z {"f:data":{"f:k07":{}}}
        Update u08  00:09Z {"f:data":{"f:k08":{}}}
        Update u09  00:10Z {"f:data":{"f:k09":{}}}
        Update u10  00:11Z {"f:data":{"f:k10":{}}}
        Update u11  00:12Z {"f:data":{"f:k11":{}}}
    "#]],
    );
}

#[test]
fn managed_fields_can_be_reset_and_begin_again_with_the_first_apply() {
    check(
        CONFIG_MAP,
        r#"put u {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}
           put v {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","uid":"1","managedFields":[{}]},"data":{"a":"2"}}
           put v {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","uid":"1"},"data":{"a":"3"}}
           apply a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"3","b":"1"}}"#,
        &expect![[r#"
            {"apiVersion":"v1","data":{"a":"3","b":"1"},"kind":"ConfigMap","metadata":{"name":"x","uid":"1"}}
            Apply a  00:04Z {"f:data":{"f:a":{},"f:b":{}}}
            Update before-first-apply  00:04Z {"f:data":{".":{},"f:a":{}}}
        "#]],
    );
}

#[test]
fn kubectl_takes_over_from_its_client_side_apply() {
    check(
        CONFIG_MAP,
        r#"put kubectl-client-side-apply {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"x\"},\"data\":{\"a\":\"1\",\"b\":\"1\"}}\n"}},"data":{"a":"1","b":"1"}}
           apply kubectl {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"<2>"}}"#,
        &expect![[r#"
            {"apiVersion":"v1","data":{"a":"<2>","b":"1"},"kind":"ConfigMap","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\u003c2\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}\n"},"name":"x","uid":"1"}}
            Apply kubectl  00:02Z {"f:data":{"f:a":{}}}
            Update kubectl-client-side-apply  00:01Z {"f:data":{".":{},"f:b":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
        "#]],
    );
}

#[test]
fn schema_errors_name_the_path() {
    check(
        DAEMON_SET,
        r#"apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"bogus":1}}
           apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"minReadySeconds":"1"}}
           apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}}
           apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x"},"spec":{"template":{"spec":{"containers":[{"name":"c"},{"name":"c"}]}}}}
           apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x","labels":{"a":1}},"spec":[]}
           apply a {"apiVersion":"v1","kind":"DaemonSet","metadata":{"name":"x"}}
           apply a {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x","managedFields":[]}}"#,
        &expect![[r#"
            500 failed to create typed patch object (/x; apps/v1, Kind=DaemonSet): .spec.bogus: field not declared in schema
            500 failed to create typed patch object (/x; apps/v1, Kind=DaemonSet): .spec.minReadySeconds: expected numeric (int or float), got string
            500 failed to create typed patch object (/x; apps/v1, Kind=DaemonSet): .spec.template.spec.containers: duplicate entries for key [name="c"]
            500 failed to create typed patch object (/x; apps/v1, Kind=DaemonSet): errors:
              .metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}
              .spec: expected map, got &{[]}
            400 invalid object type: /v1, Kind=DaemonSet
            400 metadata.managedFields must be nil
            {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x","uid":"1"},"spec":{"template":{"metadata":{},"spec":{"containers":[{"image":"i"}]}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}}
            Apply a  00:03Z {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"\"}":{".":{},"f:image":{}}}}}}}
        "#]],
    );
}

/// `fieldsV1` is written by json-iterator. Manager identifiers and the last applied configuration are written by
/// `encoding/json`, which escapes U+0008 and U+000C differently.
#[test]
fn each_text_is_written_by_the_encoder_of_upstream() {
    let value = |it: Value| PathElement::Value(ElementValue(Cow::Owned(it)));
    let text = |it: Value| value(it).to_fields_v1();
    assert_eq!(text(json!("<\u{8}\u{c}\u{2028}")), r#"v:"\u003c\u0008\u000c\u2028""#);
    assert_eq!(text(json!(1e15)), "v:1000000000000000");
    assert_eq!(text(json!(1e21)), "v:1e+21");
    assert_eq!(text(json!(1e-7)), "v:1e-07");
    assert_eq!(text(json!({"b": 1, "a": 2})), r#"v:{"a":2,"b":1}"#);
    let port = ElementValue(Cow::Owned(json!(80.0)));
    let name = ElementValue(Cow::Owned(json!("&")));
    let key = PathElement::Key(vec![("<port".into(), port), ("name".into(), name)]);
    assert_eq!(key.to_fields_v1(), r#"k:{"<port":80,"name":"\u0026"}"#);

    let manager = ManagerIdentifier::for_apply("<\u{8}", "status");
    assert_eq!(manager.sort_key(), r#"{"manager":"\u003c\b","operation":"Apply","subresource":"status"}"#);
    let mut object = json!({"metadata": {}});
    set_last_applied_configuration(&mut object, &json!({"b": 1e21, "a": "\u{c}"}));
    assert_eq!(last_applied_configuration(&object), "{\"a\":\"\\f\",\"b\":1e+21}\n");
}

/// Sets of few enough steps that they meet.
fn sets() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("f:a"),
        Just("f:b"),
        Just("k:{\"name\":\"x\"}"),
        Just("k:{\"port\":443}"),
        Just("k:{\"port\":80}"),
        Just("v:\"x\""),
        Just("v:1"),
        Just("i:0"),
        Just("."),
    ];
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 24, 4, move |inner| {
        proptest::collection::btree_map(name.clone(), inner, 0..4)
            .prop_map(|it| it.into_iter().map(|(name, it)| (name.to_owned(), it)).collect())
    })
    .prop_map(|mut it: Value| {
        it.as_object_mut().unwrap().remove(".");
        it
    })
}

proptest! {
    #[test]
    fn sets_obey_their_laws(a in sets(), b in sets()) {
        let (a, b) = (FieldSet::from_json(&a).unwrap(), FieldSet::from_json(&b).unwrap());
        let written = Value::Object(a.to_json());
        prop_assert_eq!(&FieldSet::from_json(&written).unwrap(), &a);
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert!(a.recursive_difference(&a).is_empty());
    }

    #[test]
    fn to_apply_again_changes_nothing(
        data in proptest::collection::btree_map("[a-c]", "[x-y]", 0..3),
        other in proptest::collection::btree_map("[a-c]", "[x-y]", 0..3),
    ) {
        let body = |data: &std::collections::BTreeMap<String, String>| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})
        };
        let mut story = Story::of("", "configmaps");
        story.tell(&format!("put u {}", body(&other)));
        story.tell(&format!("force a {}", body(&data)));
        let once = story.object.clone();
        story.tell(&format!("apply a {}", body(&data)));
        prop_assert_eq!(&story.object, &once);
        story.tell(r#"apply a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#);
        let left = story.object.unwrap();
        let entries = left["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        prop_assert!(entries.iter().all(|it| it["manager"] != "a"));
    }

    #[test]
    fn managed_fields_of_any_shape_are_taken(names in proptest::collection::vec(".{0,12}", 0..4)) {
        let fields: Map<String, Value> = names.into_iter().map(|it| (it, json!({}))).collect();
        let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "managedFields": [entry]}});
        let mut story = Story::of("", "configmaps");
        story.tell(&format!("put u {body}"));
        story.tell(&format!("put v {body}"));
    }
}
