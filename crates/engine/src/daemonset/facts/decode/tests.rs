use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::*;

fn decoded<T>(decode: fn(&[u8], &mut Interner) -> Result<T, Malformed>, object: &Value) -> T {
    decode(object.to_string().as_bytes(), &mut Interner::default()).expect("well-formed")
}

fn line(kind: Kind, line: &Value) -> Result<WatchEvent<WatchedObject>, Malformed> {
    decode_watch_event(kind, line.to_string().as_bytes(), &mut Interner::default())
}

#[test]
fn a_watch_s_lines() {
    let meta = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
    let gone = WatchEvent::Deleted(WatchedObject::Gone {
        kind: Kind::Nodes,
        key: ObjectKey::new("", "a"),
        resource_version: 7,
    });
    assert_eq!(line(Kind::Nodes, &json!({"type": "DELETED", "object": meta})).unwrap(), gone);
    let bookmark = line(Kind::Nodes, &json!({"type": "BOOKMARK", "object": meta})).unwrap();
    assert_eq!(bookmark, WatchEvent::Bookmark { resource_version: 7, ends_list: false });
    let end =
        json!({"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}});
    let bookmark = line(Kind::Nodes, &json!({"type": "BOOKMARK", "object": end})).unwrap();
    assert_eq!(bookmark, WatchEvent::Bookmark { resource_version: 7, ends_list: true });
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
    let error = WatchEvent::Error { code: 410, message: "too old".into() };
    assert_eq!(line(Kind::Nodes, &expired).unwrap(), error);
    // `type` may follow `object`: the field order of JSON is not guaranteed.
    let text = br#"{"object":{"metadata":{"name":"a","resourceVersion":"7"}},"type":"DELETED"}"#;
    assert_eq!(decode_watch_event(Kind::Nodes, text, &mut Interner::default()).unwrap(), gone);
    // A field that a later version adds changes nothing.
    let text = br#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"7"}},"later":{}}"#;
    assert_eq!(decode_watch_event(Kind::Nodes, text, &mut Interner::default()).unwrap(), gone);
    assert!(line(Kind::Nodes, &json!({"type": "ADDED", "object": {"metadata": 5}})).is_err());
}

#[test]
fn a_pod_that_another_controller_takes_is_gone_for_us() {
    let object = |kind: &str| {
        json!({"metadata": {
            "name": "p", "namespace": "default", "resourceVersion": "3",
            "ownerReferences": [{"kind": kind, "uid": "u", "controller": true}],
        }})
    };
    let ours = line(Kind::Pods, &json!({"type": "MODIFIED", "object": object("DaemonSet")})).unwrap();
    assert!(
        matches!(ours, WatchEvent::Applied(WatchedObject::Pod(pod)) if pod.owner.as_deref() == Some("u"))
    );
    let theirs = line(Kind::Pods, &json!({"type": "MODIFIED", "object": object("ReplicaSet")})).unwrap();
    let gone =
        WatchedObject::Gone { kind: Kind::Pods, key: ObjectKey::new("default", "p"), resource_version: 3 };
    assert_eq!(theirs, WatchEvent::Applied(gone));
}

/// Upstream: `TestGetTargetNodeName`.
#[test]
fn a_pod_belongs_to_the_node_it_names_or_else_to_the_one_its_affinity_names() {
    let target = |node_name: Value, values: Value| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]});
        let affinity = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        }});
        let object = json!({"metadata": {}, "spec": {"nodeName": node_name, "affinity": affinity}});
        decoded(decode_pod, &object).unwrap().target.map(|it| it.to_string())
    };
    assert_eq!(target(json!("a"), json!(["b"])).as_deref(), Some("a"));
    assert_eq!(target(json!(""), json!(["b"])).as_deref(), Some("b"));
    assert_eq!(target(Value::Null, json!(["b", "c"])), None);
    assert_eq!(target(Value::Null, json!([])), None);
    let bare = json!({"metadata": {}, "spec": {}});
    assert_eq!(decoded(decode_pod, &bare).unwrap().target, None);
}

#[test]
fn what_a_pod_suffers_from_in_the_kubelet_s_word() {
    let problem = |status: Value| {
        let object = json!({"metadata": {}, "status": status});
        decoded(decode_pod, &object).unwrap().problem.map(|it| it.to_string())
    };
    let waiting = |reason: &str| json!([{"state": {"waiting": {"reason": reason}}}]);
    assert_eq!(problem(json!({"containerStatuses": waiting("ContainerCreating")})), None);
    let crashes = problem(json!({"containerStatuses": waiting("CrashLoopBackOff")}));
    assert_eq!(crashes.as_deref(), Some("CrashLoopBackOff"));
    let pulls = problem(json!({"initContainerStatuses": waiting("ImagePullBackOff")}));
    assert_eq!(pulls.as_deref(), Some("ImagePullBackOff"));
    assert_eq!(problem(json!({"phase": "Failed", "reason": "Evicted"})).as_deref(), Some("Evicted"));
    assert_eq!(problem(json!({"phase": "Failed"})).as_deref(), Some("Failed"));
    let condition = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    assert_eq!(problem(json!({"conditions": condition})).as_deref(), Some("Unschedulable"));
}

#[test]
fn a_strategy_is_one_thing_or_a_fault() {
    let read = |strategy: Value| {
        let object = json!({"metadata": {}, "spec": {"selector": {}, "updateStrategy": strategy}});
        let set = decoded(decode_set, &object);
        let faults: Vec<String> = set.faults.iter().map(ToString::to_string).collect();
        (set.rollout, faults)
    };
    let rolling = |down: Value, surge: Value| {
        read(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": down, "maxSurge": surge}}))
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(read(Value::Null), (UpdateStrategy::Drain(IntOrPercent::Count(1)), none.clone()));
    assert_eq!(read(json!({"type": "OnDelete"})), (UpdateStrategy::OnDelete, none.clone()));
    assert_eq!(rolling(json!(2), Value::Null), (UpdateStrategy::Drain(IntOrPercent::Count(2)), none.clone()));
    assert_eq!(
        rolling(json!("10%"), json!(0)),
        (UpdateStrategy::Drain(IntOrPercent::Percent(10)), none.clone())
    );
    assert_eq!(
        rolling(json!(0), json!("25%")),
        (UpdateStrategy::Surge(IntOrPercent::Percent(25)), none.clone())
    );
    assert_eq!(rolling(json!(0), json!("0%")), (UpdateStrategy::Drain(IntOrPercent::Count(1)), none));
    for bad in [json!("5"), json!(-1), json!("-5%"), json!("+5%"), json!(1.5), json!({}), json!("ten%")] {
        let (rollout, faults) = rolling(bad.clone(), json!(0));
        assert_eq!(rollout, UpdateStrategy::OnDelete, "{bad} replaces nothing");
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("maxUnavailable") && faults[0].contains(&bad.to_string()), "{faults:?}");
    }
}
