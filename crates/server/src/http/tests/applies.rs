//! Patches and server-side apply through the whole pipeline.

use super::*;

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

impl Server {
    async fn apply(&self, path: &str, body: &str) -> (u16, Value) {
        self.send("PATCH", path, "application/apply-patch+yaml", body).await
    }
}

/// The answer: its code, and who owns what, or else what was wrong. Whoever wrote in a later second comes later in an answer; here they
/// come by name, since no test knows when a second begins.
fn owners((code, object): (u16, Value)) -> String {
    let mut said = format!("{code} {}\n", str_at(&object, "message"));
    let mut entries: Vec<_> = object["metadata"]["managedFields"].as_array().into_iter().flatten().collect();
    entries.sort_by_key(|it| {
        let [operation, manager, part] = ["operation", "manager", "subresource"].map(|name| str_at(it, name));
        (operation, it["time"].is_string(), manager, part)
    });
    for entry in entries {
        let has_time = if entry["time"].is_string() { "" } else { " never" };
        let [operation, manager, part] = ["operation", "manager", "subresource"].map(|it| str_at(entry, it));
        writeln!(said, "{operation} {manager} {part}{has_time} {}", entry["fieldsV1"]).unwrap();
    }
    said
}

#[tokio::test]
async fn an_apply_creates_shares_conflicts_and_insists() {
    let server = Server::new().await;
    let map = format!("{MAPS}/m");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: '1'\n  b: '1'\n";
    let other = r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2"}}"#;
    expect![[r#"
        422 PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch
    "#]]
    .assert_eq(&owners(server.apply(&map, yaml).await));
    expect![[r#"
        201 
        Apply a  {"f:data":{"f:a":{},"f:b":{}}}
    "#]]
    .assert_eq(&owners(server.apply(&format!("{map}?fieldManager=a"), yaml).await));
    let (_, once) = server.get(&map).await;
    expect![[r#"
        200 
        Apply a  {"f:data":{"f:a":{},"f:b":{}}}
    "#]]
    .assert_eq(&owners(server.apply(&format!("{map}?fieldManager=a"), yaml).await));
    let (_, twice) = server.get(&map).await;
    assert_eq!(once, twice, "to apply again changes nothing");
    expect![[r#"
        409 Apply failed with 1 conflict: conflict with "a": .data.a
    "#]]
    .assert_eq(&owners(server.apply(&format!("{map}?fieldManager=b"), other).await));
    expect![[r#"
        200 
        Apply a  {"f:data":{"f:b":{}}}
        Apply b  {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&owners(server.apply(&format!("{map}?fieldManager=b&force=true"), other).await));
    // Who sets what is so already owns it with the others, since no time at all.
    expect![[r#"
        200 
        Apply c  never {"f:data":{"f:a":{}}}
        Apply a  {"f:data":{"f:b":{}}}
        Apply b  {"f:data":{"f:a":{}}}
    "#]]
    .assert_eq(&owners(server.apply(&format!("{map}?fieldManager=c"), other).await));
    expect![[r#"
        422 PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch
    "#]]
    .assert_eq(&owners(server.merge(&format!("{map}?force=true"), json!({})).await));
    let (_, reset) = server.merge(&map, json!({"metadata": {"managedFields": []}})).await;
    expect![[r#"
        200 
    "#]]
    .assert_eq(&owners((200, reset)));
}

#[tokio::test]
async fn whoever_writes_a_set_owns_what_the_server_counts_in_it() {
    let server = Server::new().await;
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]}}});
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "s"}, "spec": spec});
    expect![[r#"
        201 
        Update u  {"f:metadata":{"f:annotations":{".":{},"f:deprecated.daemonset.template.generation":{}}},"f:spec":{"f:revisionHistoryLimit":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}},"f:updateStrategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}}}}
    "#]].assert_eq(&owners(server.json("POST", &format!("{SETS}?fieldManager=u"), set.clone()).await));
    // It is not in what is put, so it is put there anew.
    let path = format!("{SETS}/s?fieldManager=v");
    expect![[r#"
        200 
        Update u  {"f:metadata":{"f:annotations":{}},"f:spec":{"f:revisionHistoryLimit":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}},"f:updateStrategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}}}}
        Update v  {"f:metadata":{"f:annotations":{"f:deprecated.daemonset.template.generation":{}}}}
    "#]].assert_eq(&owners(server.json("PUT", &path, set).await));
    let status = json!({"status": {"numberReady": 1, "conditions": [{"type": "X", "status": "True"}]}});
    let path = format!("{SETS}/s/status?fieldManager=w");
    expect![[r#"
        200 
        Update u  {"f:metadata":{"f:annotations":{}},"f:spec":{"f:revisionHistoryLimit":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}},"f:updateStrategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}}}}
        Update v  {"f:metadata":{"f:annotations":{"f:deprecated.daemonset.template.generation":{}}}}
        Update w status {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"X\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:numberReady":{}}}
    "#]].assert_eq(&owners(server.merge(&path, status).await));
    // As `kubectl rollout undo` says it.
    let template = json!({"$patch": "replace", "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "d", "image": "i:2"}]}});
    let undo = json!({"spec": {"template": template}}).to_string();
    let media_type = "application/strategic-merge-patch+json";
    let (_, undone) = server.send("PATCH", &format!("{SETS}/s?fieldManager=u"), media_type, &undo).await;
    expect![[r#"[{"image":"i:2","imagePullPolicy":"IfNotPresent","name":"d","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]"#]].assert_eq(&undone["spec"]["template"]["spec"]["containers"].to_string());
    expect![[r#"
        200 
        Update u  {"f:metadata":{"f:annotations":{}},"f:spec":{"f:revisionHistoryLimit":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"d\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}},"f:updateStrategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}}}}
        Update v  {"f:metadata":{"f:annotations":{"f:deprecated.daemonset.template.generation":{}}}}
        Update w status {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"X\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:numberReady":{}}}
    "#]].assert_eq(&owners((200, undone)));
}

#[tokio::test]
async fn a_binding_changes_no_owners() {
    let server = Server::new().await;
    let (_, before) = server.json("POST", PODS, pod("p", "")).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    server.json("POST", &format!("{PODS}/p/binding"), binding).await;
    let (_, after) = server.get(&format!("{PODS}/p")).await;
    assert_eq!(str_at(&after, "spec.nodeName"), "n");
    assert_eq!(before["metadata"]["managedFields"], after["metadata"]["managedFields"]);
}

#[tokio::test]
async fn no_room_is_held_for_a_pod_that_is_bound() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("p", "")).await;
    let held = r#"{"status": {"nominatedNodeName": "m"}}"#;
    let status = format!("{PODS}/p/status");
    let (code, it) = server.send("PATCH", &status, "application/merge-patch+json", held).await;
    assert_eq!((code, str_at(&it, "status.nominatedNodeName")), (200, "m"));
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    server.json("POST", &format!("{PODS}/p/binding"), binding).await;
    let (_, it) = server.get(&format!("{PODS}/p")).await;
    assert_eq!((str_at(&it, "spec.nodeName"), str_at(&it, "status.nominatedNodeName")), ("n", ""));
}

#[tokio::test]
async fn what_cannot_be_applied_says_where() {
    let server = Server::new().await;
    let set = format!("{SETS}/s?fieldManager=a");
    for (body, golden) in [
        (
            r#"[]"#,
            expect![[r#"
            400 error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}
        "#]],
        ),
        (
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            expect![[r#"
            400 invalid object type: /v1, Kind=Pod
        "#]],
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"bogus":1}}"#,
            expect![[r#"
            500 failed to create typed patch object (/; apps/v1, Kind=DaemonSet): .spec.bogus: field not declared in schema
        "#]],
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"t"}}"#,
            expect![[r#"
            400 the name of the object (t) does not match the name on the URL (s)
        "#]],
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"managedFields":[{}]}}"#,
            expect![[r#"
            400 metadata.managedFields must be nil
        "#]],
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"template":{"spec":{"containers":[{"name":[]}]}}}}"#,
            expect![[r#"
            500 failed to create typed patch object (/; apps/v1, Kind=DaemonSet): .spec.template.spec.containers[name=[]].name: expected string, got &value.valueUnstructured{Value:[]interface {}{}}
        "#]],
        ),
    ] {
        golden.assert_eq(&owners(server.apply(&set, body).await));
    }
    let map = format!("{MAPS}/m?fieldManager=a");
    let bytes = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"binaryData":{"a":"%"}}"#;
    expect![[r#"
        500 failed to convert new object (/m; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0
    "#]].assert_eq(&owners(server.apply(&map, bytes).await));
}
