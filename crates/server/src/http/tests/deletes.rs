//! Deletes: immediate, with a deletion timestamp, and waiting for finalizers.

use super::*;

#[tokio::test]
async fn a_bound_pod_gets_its_grace_period() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("loose", "")).await;
    server.json("POST", PODS, pod("bound", "")).await;
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}});
    let bind = format!("{PODS}/bound/binding");
    assert_eq!(server.json("POST", &bind, binding.clone()).await.0, 201);
    check(
        server.json("POST", &bind, binding).await,
        &expect![[
            r#"409 Operation cannot be fulfilled on pods "bound": pod bound is already assigned to node "n1""#
        ]],
    );

    let delete = async |name: &str, options: Value| {
        let (code, it) = server.json("DELETE", &format!("{PODS}/{name}"), options).await;
        let grace_s = &it["metadata"]["deletionGracePeriodSeconds"];
        format!("{code} {} {grace_s}", str_at(&it, "kind"))
    };
    assert_eq!(delete("loose", json!({})).await, "200 Pod 0", "no node has to stop it");
    assert_eq!(delete("bound", json!({"preconditions": {"uid": "x"}})).await, "409 Status null");
    assert_eq!(delete("bound", json!({})).await, "200 Pod 30");
    assert_eq!(delete("bound", json!({"gracePeriodSeconds": 60})).await, "200 Pod 30", "never longer");
    assert_eq!(delete("bound", json!({"gracePeriodSeconds": -1})).await, "200 Pod 1", "but shorter");
    assert_eq!(delete("bound", json!({"gracePeriodSeconds": 0})).await, "200 Pod 0");
    assert_eq!(server.get(&format!("{PODS}/bound")).await.0, 404);
}

/// Upstream: `Store.Delete`; the etcd3 watch decodes the previous value with the revision of the deletion.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_deletion_has_the_last_stored_object() {
    let server = Server::new().await;
    server.json("POST", MAPS, map("m", "x")).await;
    server.json("POST", PODS, pod("loose", "")).await;
    server.json("POST", PODS, pod("bound", "n1")).await;
    let delete = async |path: String, options: Value| server.json("DELETE", &path, options).await.1;
    delete(format!("{MAPS}/m"), json!({})).await;
    let loose = delete(format!("{PODS}/loose"), json!({})).await;
    delete(format!("{PODS}/bound"), json!({})).await;
    // With the version that the object has, as a client that has just read it sends it.
    let version = server.get(&format!("{PODS}/bound")).await.1["metadata"]["resourceVersion"].clone();
    let now = json!({"gracePeriodSeconds": 0, "preconditions": {"resourceVersion": version}});
    let bound = delete(format!("{PODS}/bound"), now).await;

    let (mut seen, mut last) = (String::new(), Vec::new());
    for path in [MAPS, PODS] {
        let path = format!("{path}?watch=true&resourceVersion=5&timeoutSeconds=1");
        let body = server.body(server.answer("GET", &path, "", "").await).await;
        for event in body.split(|it| *it == b'\n').filter(|it| !it.is_empty()) {
            let event: Value = serde_json::from_slice(event).unwrap();
            let meta = &event["object"]["metadata"];
            writeln!(
                seen,
                "{} {} {}: generation {}, {}grace {}",
                str_at(&event, "type"),
                str_at(meta, "name"),
                str_at(meta, "resourceVersion"),
                meta["generation"],
                if unstructured::is_set(&meta["deletionTimestamp"]) { "timestamp, " } else { "" },
                meta["deletionGracePeriodSeconds"]
            )
            .unwrap();
            if event["type"] == "DELETED" {
                last.push(event["object"].clone());
            }
        }
    }
    expect![[r#"
        ADDED m 6: generation null, grace null
        DELETED m 9: generation null, grace null
        ADDED loose 7: generation 1, grace null
        ADDED bound 8: generation 1, grace null
        MODIFIED loose 10: generation 2, timestamp, grace 0
        DELETED loose 11: generation 2, timestamp, grace 0
        MODIFIED bound 12: generation 2, timestamp, grace 30
        MODIFIED bound 13: generation 2, timestamp, grace 0
        DELETED bound 14: generation 2, timestamp, grace 0
    "#]]
    .assert_eq(&seen);
    assert_eq!(last[1..], [loose, bound], "the client gets the same object");
}

#[tokio::test]
async fn a_namespace_is_emptied_and_then_goes() {
    let server = Server::new().await;
    server.json("POST", "/api/v1/namespaces", json!({"metadata": {"name": "a"}})).await;
    server.json("POST", "/api/v1/namespaces/a/configmaps", map("m", "x")).await;
    let mut held = map("held", "x");
    held["metadata"]["finalizers"] = json!(["example.com/mine"]);
    server.json("POST", "/api/v1/namespaces/a/configmaps", held).await;
    server
        .json("POST", "/api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "default"}}))
        .await;
    let mut first = pod("first", "");
    first["metadata"]["finalizers"] = json!(["example.com/mine"]);
    assert_eq!(server.json("POST", "/api/v1/namespaces/a/pods", first).await.0, 201);
    let delete = async |path: &str| server.json("DELETE", path, json!({})).await;
    check(
        delete("/api/v1/namespaces/default").await,
        &expect![[r#"403 namespaces "default" is forbidden: this namespace may not be deleted"#]],
    );
    check(
        delete("/api/v1/namespaces").await,
        &expect![[r#"405 the server does not allow this method on the requested resource"#]],
    );
    let (code, marked) = delete("/api/v1/namespaces/a").await;
    assert_eq!((code, str_at(&marked, "status.phase")), (200, "Terminating"));
    assert_eq!(marked["spec"]["finalizers"], json!(["kubernetes"]));
    check(
        server.json("POST", "/api/v1/namespaces/a/configmaps", map("late", "x")).await,
        &expect![[
            r#"403 configmaps "late" is forbidden: unable to create new content in namespace a because it is being terminated"#
        ]],
    );

    let draining = tokio::spawn(crate::controllers::namespace_deletion::run(
        server.api.registry.clone(),
        server.api.stop.clone(),
    ));
    let mut commits = server.api.registry.storage.watch_revision();
    let told = async |commits: &mut tokio::sync::watch::Receiver<_>, subresource: &str| {
        loop {
            let (_, namespace) = server.get("/api/v1/namespaces/a").await;
            let told = unstructured::list_at(&namespace["status"], "conditions").iter().map(|it| {
                format!("{} {} {}", str_at(it, "type"), str_at(it, "status"), str_at(it, "message"))
            });
            let told = told.collect::<Vec<_>>().join("\n");
            if told.contains(subresource) {
                return told;
            }
            commits.changed().await.unwrap();
        }
    };
    expect![[r#"
        NamespaceDeletionDiscoveryFailure False All resources successfully discovered
        NamespaceDeletionGroupVersionParsingFailure False All legacy kube types successfully parsed
        NamespaceDeletionContentFailure False All content successfully deleted, may be waiting on finalization
        NamespaceContentRemaining True Some resources are remaining: pods. has 1 resource instances
        NamespaceFinalizersRemaining True Some content in the namespace has finalizers remaining: example.com/mine in 1 resource instances"#]]
    .assert_eq(&told(&mut commits, "pods.").await);
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/m").await.0, 200, "the pods go first");
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(server.merge("/api/v1/namespaces/a/pods/first", release.clone()).await.0, 200);
    expect![[r#"
        NamespaceDeletionDiscoveryFailure False All resources successfully discovered
        NamespaceDeletionGroupVersionParsingFailure False All legacy kube types successfully parsed
        NamespaceDeletionContentFailure False All content successfully deleted, may be waiting on finalization
        NamespaceContentRemaining True Some resources are remaining: configmaps. has 1 resource instances
        NamespaceFinalizersRemaining True Some content in the namespace has finalizers remaining: example.com/mine in 1 resource instances"#]].assert_eq(&told(&mut commits, "configmaps.").await);
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/m").await.0, 404);
    let path = "/api/v1/namespaces/a/configmaps/held";
    assert_eq!(server.merge(path, release).await.0, 200);
    while server.get("/api/v1/namespaces/a").await.0 != 404 {
        commits.changed().await.unwrap();
    }
    server.api.stop.cancel();
    draining.await.unwrap();
}

#[tokio::test]
async fn finalizers_of_the_collector_follow_the_policy() {
    let server = Server::new().await;
    let mut seen = String::new();
    for (at, policy) in ["", "Background", "Foreground", "Orphan"].into_iter().enumerate() {
        for mine in [json!([]), json!(["example.com/mine"]), json!(["orphan"])] {
            let name = format!("m{at}");
            let mut object = map(&name, "x");
            object["metadata"]["finalizers"] = mine.clone();
            server.json("POST", MAPS, object).await;
            let options = if policy.is_empty() { json!({}) } else { json!({"propagationPolicy": policy}) };
            let (code, it) = server.json("DELETE", &format!("{MAPS}/{name}"), options).await;
            let meta = &it["metadata"];
            writeln!(
                seen,
                "{mine} {policy}: {code} {} {} {}",
                str_at(&it, "kind"),
                meta["finalizers"],
                meta["deletionGracePeriodSeconds"]
            )
            .unwrap();
            server.merge(&format!("{MAPS}/{name}"), json!({"metadata": {"finalizers": null}})).await;
        }
    }
    expect![[r#"
        [] : 200 Status null null
        ["example.com/mine"] : 200 ConfigMap ["example.com/mine"] 0
        ["orphan"] : 200 ConfigMap ["orphan"] 0
        [] Background: 200 Status null null
        ["example.com/mine"] Background: 200 ConfigMap ["example.com/mine"] 0
        ["orphan"] Background: 200 Status null null
        [] Foreground: 200 ConfigMap ["foregroundDeletion"] 0
        ["example.com/mine"] Foreground: 200 ConfigMap ["example.com/mine","foregroundDeletion"] 0
        ["orphan"] Foreground: 200 ConfigMap ["foregroundDeletion"] 0
        [] Orphan: 200 ConfigMap ["orphan"] 0
        ["example.com/mine"] Orphan: 200 ConfigMap ["example.com/mine","orphan"] 0
        ["orphan"] Orphan: 200 ConfigMap ["orphan"] 0
    "#]]
    .assert_eq(&seen);
    check(
        server
            .json(
                "DELETE",
                &format!("{MAPS}/m"),
                json!({"propagationPolicy": "Sideways", "dryRun": ["Some"]}),
            )
            .await,
        &expect![[
            r#"422 DeleteOptions.meta.k8s.io "" is invalid: [propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil", dryRun: Unsupported value: ["Some"]: supported values: "All"]"#
        ]],
    );
    check(
        server
            .json("DELETE", &format!("{MAPS}/m?propagationPolicy=Orphan&orphanDependents=true"), json!({}))
            .await,
        &expect![[r#"404 configmaps "m" not found"#]],
    );
    check(
        server
            .send("DELETE", &format!("{MAPS}/m?propagationPolicy=Orphan&orphanDependents=true"), "", "")
            .await,
        &expect![[
            r#"422 DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set"#
        ]],
    );
}

#[tokio::test]
async fn preconditions_name_the_object_that_is_meant() {
    let server = Server::new().await;
    let (_, made) = server.json("POST", MAPS, map("a", "x")).await;
    let uid = str_at(&made, "metadata.uid");
    let delete = async |preconditions: Value| {
        let options = json!({"preconditions": preconditions});
        let (code, it) = server.json("DELETE", &format!("{MAPS}/a"), options).await;
        (code, json!({"message": str_at(&it, "message").replace(uid, "UID")}))
    };
    check(
        delete(json!({"uid": "other"})).await,
        &expect![[
            r#"409 Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not match the UID in record (UID). The object might have been deleted and then recreated"#
        ]],
    );
    check(
        delete(json!({"uid": uid, "resourceVersion": "1"})).await,
        &expect![[
            r#"409 Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (6). The object might have been modified"#
        ]],
    );
    check(
        delete(json!({"uid": uid, "resourceVersion": made["metadata"]["resourceVersion"]})).await,
        &expect!["200 "],
    );
}

#[tokio::test]
async fn a_terminating_object_gets_no_new_finalizer_and_no_twin() {
    let server = Server::new().await;
    let mut object = map("a", "x");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.json("POST", MAPS, object).await;
    server.json("DELETE", &format!("{MAPS}/a"), json!({})).await;
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}});
    check(
        server.merge(&format!("{MAPS}/a"), more).await,
        &expect![[
            r#"422 ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/b"}"#
        ]],
    );
    check(
        server.json("POST", MAPS, map("a", "x")).await,
        &expect![[r#"409 object is being deleted: configmaps "a" already exists"#]],
    );
}

#[tokio::test]
async fn a_collection_goes_as_far_as_it_is_chosen() {
    let server = Server::new().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")] {
        server.json("POST", MAPS, map(name, app)).await;
    }
    let names = |list: &Value| {
        let names: Vec<_> = unstructured::list_at(list, "items")
            .iter()
            .map(|it| str_at(it, "metadata.name").to_owned())
            .collect();
        names.join(" ")
    };
    let delete =
        async |query: &str| names(&server.json("DELETE", &format!("{MAPS}?{query}"), json!({})).await.1);
    assert_eq!(delete("labelSelector=app%3Dx&dryRun=All").await, "a b c");
    assert_eq!(delete("labelSelector=app%3Dx&limit=2").await, "a b");
    assert_eq!(names(&server.get(MAPS).await.1), "c d");
    assert_eq!(delete("").await, "c d");
    assert_eq!(names(&server.get(MAPS).await.1), "");
}
