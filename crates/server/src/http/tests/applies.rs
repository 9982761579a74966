//! Patches and server-side apply through the whole pipeline.

use super::*;

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

impl Server {
    pub(super) async fn apply(&self, path: &str, body: &str) -> (u16, Value) {
        self.send("PATCH", path, "application/apply-patch+yaml", body).await
    }
}

/// The response code, and the owners of the fields or the error message. In a response, entries are sorted by
/// time; here they are sorted by name, because a test does not know when a second begins.
fn owners((code, object): (u16, Value)) -> String {
    let mut said = format!("{code} {}\n", str_at(&object, "message"));
    let mut entries: Vec<_> = object["metadata"]["managedFields"].as_array().into_iter().flatten().collect();
    entries.sort_by_key(|it| {
        let [operation, manager, subresource] =
            ["operation", "manager", "subresource"].map(|name| str_at(it, name));
        (operation, it["time"].is_string(), manager, subresource)
    });
    for entry in entries {
        let has_time = if entry["time"].is_string() { "" } else { " never" };
        let [operation, manager, subresource] =
            ["operation", "manager", "subresource"].map(|it| str_at(entry, it));
        writeln!(said, "{operation} {manager} {subresource}{has_time} {}", entry["fieldsV1"]).unwrap();
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
async fn the_writer_of_a_set_owns_the_generation_that_the_server_sets() {
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
async fn binding_a_pod_clears_its_nominated_node() {
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
async fn apply_errors_name_the_field() {
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

const OLD_SET: &str = "/apis/extensions/v1beta1/namespaces/default/daemonsets/d";
const SET: &str = "/apis/apps/v1/namespaces/default/daemonsets/d";

fn set_in(version: &str, image: &str) -> Value {
    json!({
        "apiVersion": version,
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    })
}

/// Manager, operation, subresource and version of each entry, and the fields below `spec`.
fn entries(set: &Value) -> String {
    let line = |it: &Value| {
        let spec = it["fieldsV1"]["f:spec"].as_object();
        let spec: Vec<&str> = spec.into_iter().flat_map(|it| it.keys()).map(String::as_str).collect();
        let above: Vec<&str> = it["fieldsV1"].as_object().unwrap().keys().map(String::as_str).collect();
        let said = ["manager", "operation", "apiVersion", "subresource"].map(|name| str_at(it, name));
        let (above, spec) = (above.join(","), spec.join(","));
        let words = said.into_iter().chain([&*above, &*spec]).filter(|it| !it.is_empty());
        format!("{}\n", words.collect::<Vec<_>>().join(" "))
    };
    unstructured::list_at(&set["metadata"], "managedFields").iter().map(line).collect()
}

#[tokio::test]
async fn an_apply_in_an_old_version_keeps_the_entries_of_the_new_one() {
    let server = Server::new().await;
    let path = |path: &str, manager: &str| format!("{path}?fieldManager={manager}");
    let old = set_in("extensions/v1beta1", "i:1").to_string();
    let (code, made) = server.apply(&path(OLD_SET, "a"), &old).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["apiVersion"], &made["spec"]["updateStrategy"]["type"]),
        (&json!("extensions/v1beta1"), &json!("OnDelete"))
    );
    // A controller that speaks the new version.
    let status = json!({"status": {"numberReady": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0}});
    let (code, _) = server.merge(&path(&format!("{SET}/status"), "controller"), status).await;
    assert_eq!(code, 200);
    let (code, again) = server.apply(&path(OLD_SET, "a"), &old).await;
    assert_eq!(code, 200, "{again}");
    expect![[r#"
        a Apply extensions/v1beta1 f:spec f:selector,f:template
        controller Update apps/v1 status f:status
    "#]]
    .assert_eq(&entries(&again));
    let version = again["metadata"]["resourceVersion"].clone();
    let (_, third) = server.apply(&path(OLD_SET, "a"), &old).await;
    assert_eq!(third["metadata"]["resourceVersion"], version, "an apply that changes nothing writes nothing");

    // The same manager goes on in the new version: it has one entry, and no conflict with itself.
    let (code, newer) = server.apply(&path(SET, "a"), &set_in("apps/v1", "i:2").to_string()).await;
    assert_eq!(code, 200, "{newer}");
    expect![[r#"
        a Apply apps/v1 f:spec f:selector,f:template
        controller Update apps/v1 status f:status
    "#]]
    .assert_eq(&entries(&newer));
    // Another manager conflicts with it in either version.
    let theirs = set_in("extensions/v1beta1", "i:3").to_string();
    check(
        server.apply(&path(OLD_SET, "b"), &theirs).await,
        &expect![[
            r#"409 Apply failed with 1 conflict: conflict with "a": .spec.template.spec.containers[name="c"].image"#
        ]],
    );
    let (code, forced) = server.apply(&format!("{OLD_SET}?fieldManager=b&force=true"), &theirs).await;
    assert_eq!(code, 200, "{forced}");
    check(
        server.apply(&path(OLD_SET, "b"), &set_in("apps/v1", "i:3").to_string()).await,
        &expect!["400 invalid object type: apps/v1, Kind=DaemonSet"],
    );
}

#[tokio::test]
async fn writes_in_an_old_version_are_recorded_in_it() {
    let server = Server::new().await;
    let all = OLD_SET.trim_end_matches("/d");
    let mut old = set_in("extensions/v1beta1", "i:1");
    old["spec"]["templateGeneration"] = json!(5);
    let (code, made) = server.json("POST", &format!("{all}?fieldManager=creator"), old).await;
    assert_eq!(code, 201, "{made}");
    expect![[r#"
        creator Update extensions/v1beta1 f:metadata,f:spec f:revisionHistoryLimit,f:selector,f:template,f:templateGeneration,f:updateStrategy
    "#]].assert_eq(&entries(&made));
    let (_, seen) = server.get(SET).await;
    assert_eq!(seen["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    // A write through the new version takes the field from the entry of the old one, under its name there.
    let annotation = json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": "9"}}});
    let (code, taken) = server.merge(&format!("{SET}?fieldManager=other"), annotation).await;
    assert_eq!(code, 200, "{taken}");
    expect![[r#"
        creator Update extensions/v1beta1 f:metadata,f:spec f:revisionHistoryLimit,f:selector,f:template,f:updateStrategy
        other Update apps/v1 f:metadata
    "#]].assert_eq(&entries(&taken));

    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "n", "reason": "r", "action": "a",
        "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "k/c", "reportingInstance": "i",
    });
    let (code, made) = server.json("POST", &format!("{events}?fieldManager=recorder"), event).await;
    assert_eq!(code, 201, "{made}");
    let (code, made) =
        server.merge("/api/v1/namespaces/default/events/e?fieldManager=core", json!({"message": "m"})).await;
    assert_eq!(code, 200, "{made}");
    expect![[r#"
        core Update v1 f:message
        recorder Update events.k8s.io/v1 f:action,f:eventTime,f:reason,f:regarding,f:reportingController,f:reportingInstance,f:type
    "#]].assert_eq(&entries(&made));
}

#[tokio::test]
async fn too_many_field_managers_are_refused_and_can_be_removed() {
    let server = Server::new().await;
    let map = format!("{MAPS}/m");
    let keys: Vec<String> = (0..40).map(|it| format!("k{it}")).collect();
    let data: Value =
        keys.iter().map(|it| (it.clone(), json!("1"))).collect::<serde_json::Map<_, _>>().into();
    let owned: Value =
        keys.iter().map(|it| (format!("f:{it}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    // A few less than the values of one object may be.
    let entry = |it: usize| json!({"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": owned}, "manager": format!("m{it}"), "operation": "Apply"});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    let applied = object.to_string();
    assert_eq!(server.json("POST", MAPS, object).await.0, 201);
    let entries: Value = (0..1290).map(entry).collect();
    let (code, said) = server.merge(&map, json!({"metadata": {"managedFields": entries}})).await;
    assert_eq!(code, 200, "{}", said["message"]);

    let mut refused = None;
    for it in 0..10 {
        let (code, answer) = server.apply(&format!("{map}?fieldManager=other{it}"), &applied).await;
        if code != 200 {
            refused = Some(format!("{code} {} {}", str_at(&answer, "reason"), str_at(&answer, "message")));
            break;
        }
    }
    let refused = refused.expect("there is a limit");
    expect!["413 RequestEntityTooLarge Request entity too large: metadata.managedFields has entries of 1296 field managers, which is too many: apply with fewer names of field managers, and remove the entries with a merge patch that sets metadata.managedFields to [{}]"].assert_eq(&refused);
    let (code, _) = server.merge(&map, json!({"metadata": {"managedFields": [{}]}})).await;
    assert_eq!(code, 200);
    let (code, _) = server.apply(&format!("{map}?fieldManager=other"), &applied).await;
    assert_eq!(code, 200);
}
