//! Behaviour that differs between kinds, as a client sees it: conversion, quotas, evictions, Services.

use super::*;
use crate::admission::parse_external_ip_ranges;

const OLD: &str = "/apis/extensions/v1beta1/namespaces/default/daemonsets";
const NEW: &str = "/apis/apps/v1/namespaces/default/daemonsets";

/// Two manifests of the time before `apps`, as they still go around.
const EXPORTER: &str = r#"
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata:
  name: node-exporter
  labels:
    name: node-exporter
spec:
  template:
    metadata:
      labels:
        name: node-exporter
      annotations:
         prometheus.io/scrape: "true"
         prometheus.io/port: "9100"
    spec:
      hostPID: true
      hostIPC: true
      hostNetwork: true
      containers:
        - name: node-exporter
          image: prom/node-exporter@sha256:ffc3e0adf58771cb2097aa0b074a6fe68b4925ba75c2e1c41f41ae656eebee11
          securityContext:
            privileged: true
          args:
            - --collector.procfs
            - /host/proc
            - --collector.sysfs
            - /host/sys
            - --collector.filesystem.ignored-mount-points
            - '"^/(sys|proc|dev|host|etc)($|/)"'
          ports:
            - containerPort: 9100
              protocol: TCP
          resources:
            limits:
              cpu: 100m
              memory: 100Mi
            requests:
              cpu: 10m
              memory: 100Mi
          volumeMounts:
            - name: dev
              mountPath: /host/dev
            - name: proc
              mountPath: /host/proc
            - name: sys
              mountPath: /host/sys
            - name: rootfs
              mountPath: /rootfs
      volumes:
        - name: proc
          hostPath:
            path: /proc
        - name: dev
          hostPath:
            path: /dev
        - name: sys
          hostPath:
            path: /sys
        - name: rootfs
          hostPath:
            path: /
"#;
const FLUENTD: &str = "
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata:
  name: fluentd-elasticsearch
  labels:
    k8s-app: fluentd-logging
spec:
  template:
    metadata:
      labels:
        name: fluentd-elasticsearch
    spec:
      containers:
      - name: fluentd-elasticsearch
        image: gcr.io/google-containers/fluentd-elasticsearch:1.20
        resources:
          limits:
            memory: 200Mi
          requests:
            cpu: 100m
            memory: 200Mi
        volumeMounts:
        - name: varlog
          mountPath: /var/log
        - name: varlibdockercontainers
          mountPath: /var/lib/docker/containers
          readOnly: true
      terminationGracePeriodSeconds: 30
      volumes:
      - name: varlog
        hostPath:
          path: /var/log
      - name: varlibdockercontainers
        hostPath:
          path: /var/lib/docker/containers
";

fn outline(set: &Value) -> String {
    let spec = &set["spec"];
    format!(
        "{} labels={} selector={} strategy={} templateGeneration={} annotations={}",
        str_at(set, "metadata.name"),
        set["metadata"]["labels"],
        spec["selector"]["matchLabels"],
        spec["updateStrategy"],
        spec["templateGeneration"],
        set["metadata"]["annotations"],
    )
}

#[tokio::test]
async fn daemon_sets_have_two_doors() {
    let server = Server::new().await;
    for manifest in [EXPORTER, FLUENTD] {
        let (code, made) = server.send("POST", OLD, "application/yaml", manifest).await;
        assert_eq!(code, 201, "{made}");
    }
    let (_, old) = server.get(OLD).await;
    let (_, new) = server.get(NEW).await;
    let said: Vec<_> =
        [&old, &new].into_iter().flat_map(|it| unstructured::list_at(it, "items")).map(outline).collect();
    expect![[r#"
        fluentd-elasticsearch labels={"k8s-app":"fluentd-logging"} selector={"name":"fluentd-elasticsearch"} strategy={"type":"OnDelete"} templateGeneration=1 annotations=null
        node-exporter labels={"name":"node-exporter"} selector={"name":"node-exporter"} strategy={"type":"OnDelete"} templateGeneration=1 annotations=null
        fluentd-elasticsearch labels={"k8s-app":"fluentd-logging"} selector={"name":"fluentd-elasticsearch"} strategy={"type":"OnDelete"} templateGeneration=null annotations={"deprecated.daemonset.template.generation":"1"}
        node-exporter labels={"name":"node-exporter"} selector={"name":"node-exporter"} strategy={"type":"OnDelete"} templateGeneration=null annotations={"deprecated.daemonset.template.generation":"1"}"#]].assert_eq(&said.join("\n"));
    assert_eq!((str_at(&old, "apiVersion"), str_at(&new, "apiVersion")), ("extensions/v1beta1", "apps/v1"));

    // A change of the template through either door is one more generation of it.
    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "node-exporter", "image": "i:2"}]}}}});
    let patch = "application/strategic-merge-patch+json";
    let path = format!("{OLD}/node-exporter");
    let (code, patched) = server.send("PATCH", &path, patch, &image.to_string()).await;
    assert_eq!((code, &patched["spec"]["templateGeneration"]), (200, &json!(2)), "{patched}");
    let (code, whole) = server.get(&path).await;
    assert_eq!(code, 200);
    let (code, put) = server.json("PUT", &path, whole.clone()).await;
    assert_eq!((code, put), (200, whole), "what a client got it may send back");
    check(
        server.get(&format!("{OLD}/nope")).await,
        &expect![[r#"404 daemonsets.extensions "nope" not found"#]],
    );

    let seen = server.watch(&format!("{OLD}?watch=true&timeoutSeconds=1")).await;
    expect![[r#"
        ADDED DaemonSet fluentd-elasticsearch 7
        ADDED DaemonSet node-exporter 8
    "#]]
    .assert_eq(&seen);
}

#[tokio::test]
async fn events_have_two_doors() {
    let server = Server::new().await;
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Pulled", "note": "said", "type": "Normal", "action": "Pull",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/x", "reportingInstance": "x-1",
    });
    let (code, made) = server.json("POST", new, event).await;
    assert_eq!(code, 201, "{made}");
    let (_, found) = server.get(&format!("{new}?fieldSelector=regarding.name=p")).await;
    assert_eq!(unstructured::list_at(&found, "items").len(), 1);
    let (_, core) = server.get("/api/v1/namespaces/default/events/e").await;
    let said = [str_at(&core, "apiVersion"), str_at(&core, "message"), str_at(&core, "involvedObject.name")];
    assert_eq!(said, ["v1", "said", "p"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_at_once_do_not_exceed_a_quota() {
    let server = Arc::new(Server::new().await);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
    server.json("POST", quotas, quota).await;
    // As upstream: a quota that was not counted yet holds nothing off.
    assert_eq!(server.json("POST", PODS, pod("early", "")).await.0, 201);
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    assert!(
        crate::admission::recalculate_quotas(
            &server.api.registry.admission,
            &*server.api.registry,
            "default",
            now
        )
        .await
    );

    let creates = (0..20).map(|at| {
        let server = server.clone();
        tokio::spawn(async move { server.json("POST", PODS, pod(&format!("p{at}"), "")).await })
    });
    let answers: Vec<_> = futures::future::join_all(creates).await.into_iter().map(Result::unwrap).collect();
    let refused: Vec<_> = answers.iter().filter(|it| it.0 != 201).collect();
    assert_eq!(refused.len(), 16);
    assert!(
        str_at(&refused[0].1, "message")
            .ends_with("exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5")
    );
    let used = async || server.get(&format!("{quotas}/q")).await.1["status"].clone();
    assert_eq!(used().await, json!({"hard": {"pods": "5"}, "used": {"pods": "5"}}));

    // What goes frees its share, once it is counted.
    let (_, list) = server.get(PODS).await;
    let first = str_at(&list["items"][0], "metadata.name").to_owned();
    server.json("DELETE", &format!("{PODS}/{first}"), json!({})).await;
    assert!(
        crate::admission::recalculate_quotas(
            &server.api.registry.admission,
            &*server.api.registry,
            "default",
            now
        )
        .await
    );
    assert_eq!(used().await, json!({"hard": {"pods": "5"}, "used": {"pods": "4"}}));
    // One that is refused charges nothing.
    let taken = str_at(&list["items"][1], "metadata.name");
    assert_eq!(server.json("POST", PODS, pod(taken, "")).await.0, 409);
    assert_eq!(used().await["used"]["pods"], "4");
}

#[tokio::test]
async fn an_eviction_respects_the_budget() {
    let server = Server::new().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    server.json("POST", budgets, budget).await;
    for name in ["a", "b", "c"] {
        let mut it = pod(name, "n1");
        it["metadata"]["labels"] = json!({"app": "x"});
        server.json("POST", PODS, it).await;
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        server.merge(&format!("{PODS}/{name}/status"), running).await;
    }
    let evict = async |name: &str, version: &str| {
        let body = json!({"apiVersion": version, "kind": "Eviction", "metadata": {"name": name}});
        let (code, said) = server.json("POST", &format!("{PODS}/{name}/eviction"), body).await;
        format!("{code} {} {}", str_at(&said, "message"), said["details"])
    };
    // No one has looked at the budget yet.
    expect![[r#"429 Cannot evict pod as it would violate the pod's disruption budget. {"causes":[{"message":"The disruption budget b is still being processed by the server.","reason":"DisruptionBudget"}],"retryAfterSeconds":10}"#]].assert_eq(&evict("a", "policy/v1").await);
    let observed = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 3}});
    server.merge(&format!("{budgets}/b/status"), observed).await;
    expect!["201  null"].assert_eq(&evict("a", "policy/v1beta1").await);
    let (_, budget) = server.get(&format!("{budgets}/b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string());
    let (_, gone) = server.get(&format!("{PODS}/a")).await;
    assert!(unstructured::is_set(&gone["metadata"]["deletionTimestamp"]));
    assert_eq!(gone["status"]["conditions"][1]["type"], "DisruptionTarget");
    expect![[r#"429 Cannot evict pod as it would violate the pod's disruption budget. {"causes":[{"message":"The disruption budget b does not allow evicting pods currently","reason":"DisruptionBudget"}]}"#]].assert_eq(&evict("b", "policy/v1").await);
    // One that is not ready does not count while the others are enough.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    server.merge(&format!("{PODS}/c/status"), unready).await;
    expect!["201  null"].assert_eq(&evict("c", "policy/v1").await);
    expect![[r#"404 pods "nope" not found {"kind":"pods","name":"nope"}"#]]
        .assert_eq(&evict("nope", "policy/v1").await);
    let other = json!({"metadata": {"name": "b2"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    server.json("POST", budgets, other).await;
    expect!["500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support. null"].assert_eq(&evict("b", "policy/v1").await);
}

/// Upstream: `LabelSelectorAsSelector`, as in `policy/v1`.
#[tokio::test]
async fn a_budget_without_a_selector_covers_no_pod_and_an_empty_selector_covers_all() {
    let server = Server::new().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    for name in ["a", "b"] {
        server.json("POST", PODS, pod(name, "n1")).await;
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        server.merge(&format!("{PODS}/{name}/status"), running).await;
    }
    let evict = async |name: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        server.json("POST", &format!("{PODS}/{name}/eviction"), body).await.0
    };
    let of_none = json!({"metadata": {"name": "none"}, "spec": {"minAvailable": 1}});
    assert_eq!(server.json("POST", budgets, of_none).await.0, 201);
    assert_eq!(evict("a").await, 201);
    let of_all = json!({"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {}}});
    assert_eq!(server.json("POST", budgets, of_all).await.0, 201);
    assert_eq!(evict("b").await, 429);
}

#[tokio::test]
async fn a_service_has_an_address_of_its_own() {
    let server = Server::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: Value| {
        let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        for (field, value) in spec.as_object().unwrap() {
            service["spec"][field] = value.clone();
        }
        service
    };
    let mut said = String::new();
    for (name, spec) in [
        ("a", json!({})),
        ("b", json!({"type": "NodePort"})),
        ("c", json!({"clusterIP": "10.96.0.10"})),
        ("d", json!({"clusterIP": "10.96.0.10"})),
        ("e", json!({"clusterIP": "10.0.0.1"})),
        ("f", json!({"clusterIP": "None"})),
        ("g", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]})),
        ("h", json!({"type": "ExternalName", "externalName": "example.com"})),
    ] {
        let (code, made) = server.json("POST", services, service(name, spec)).await;
        let (spec, why) = (&made["spec"], str_at(&made, "message"));
        writeln!(said, "{name} {code} {} {} {why}", spec["clusterIPs"], spec["ports"][0]["nodePort"])
            .unwrap();
    }
    expect![[r#"
        a 201 ["10.96.1.0"] null 
        b 201 ["10.96.1.1"] 30000 
        c 201 ["10.96.0.10"] null 
        d 422 null null Service "d" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated
        e 422 null null Service "e" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.1"]: failed to allocate IP 10.0.0.1: the provided network does not match the current range
        f 201 ["None"] null 
        g 422 null null Service "g" is invalid: spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated
        h 201 null null 
    "#]].assert_eq(&said);
    // The address of one that went is free again.
    server.json("DELETE", &format!("{services}/c"), json!({})).await;
    let (_, made) = server.json("POST", services, service("c", json!({"clusterIP": "10.96.0.10"}))).await;
    assert_eq!(str_at(&made, "spec.clusterIP"), "10.96.0.10");
}

#[tokio::test]
async fn external_addresses_of_services_are_refused_unless_they_are_allowed() {
    let server = Server::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, addresses: Value| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "externalIPs": addresses}});
    let allow = |ranges: &[&str]| {
        let ranges: Vec<String> = ranges.iter().map(|it| (*it).to_owned()).collect();
        for it in server.registries() {
            it.admission.external_ips.set_ranges(parse_external_ip_ranges(&ranges).unwrap());
        }
    };
    let mut said = String::new();
    let mut tell = |what: &str, (code, made): (u16, Value)| {
        let why = str_at(&made, "message");
        writeln!(said, "{what}: {code} {} {why}", made["spec"]["externalIPs"]).unwrap();
    };
    tell("none is allowed", server.json("POST", services, service("a", json!(["192.0.2.7"]))).await);
    allow(&["192.0.2.0/24", "203.0.112.0/24"]);
    tell("one is", server.json("POST", services, service("a", json!(["192.0.2.7"]))).await);
    let both = json!(["192.0.2.8", "198.51.100.1", "203.0.113.1"]);
    tell("some of several are", server.json("POST", services, service("b", both)).await);
    let one = format!("{services}/a");
    let more = |addresses: Value| json!({"spec": {"externalIPs": addresses}});
    tell("one more that is not", server.merge(&one, more(json!(["192.0.2.7", "198.51.100.1"]))).await);
    tell("one more that is", server.merge(&one, more(json!(["192.0.2.7", "192.0.2.8"]))).await);
    allow(&[]);
    tell("another change later", server.merge(&one, json!({"metadata": {"labels": {"a": "b"}}})).await);
    tell("one less", server.merge(&one, more(json!(["192.0.2.8"]))).await);
    tell("that one again", server.merge(&one, more(json!(["192.0.2.7", "192.0.2.8"]))).await);
    expect![[r#"
        none is allowed: 403 null services "a" is forbidden: spec.externalIPs 192.0.2.7: not in a range allowed by --allow-external-ips
        one is: 201 ["192.0.2.7"] 
        some of several are: 403 null services "b" is forbidden: spec.externalIPs 198.51.100.1, 203.0.113.1: not in a range allowed by --allow-external-ips
        one more that is not: 403 null services "a" is forbidden: spec.externalIPs 198.51.100.1: not in a range allowed by --allow-external-ips
        one more that is: 200 ["192.0.2.7","192.0.2.8"] 
        another change later: 200 ["192.0.2.7","192.0.2.8"] 
        one less: 200 ["192.0.2.8"] 
        that one again: 403 null services "a" is forbidden: spec.externalIPs 192.0.2.7: not in a range allowed by --allow-external-ips
    "#]].assert_eq(&said);
}

#[tokio::test]
async fn a_service_that_changes_its_type_keeps_nothing_of_the_last() {
    let server = Server::new().await;
    let service = "/api/v1/namespaces/default/services/s";
    let ports = json!([{"port": 80}]);
    let new = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    server.json("POST", "/api/v1/namespaces/default/services", new).await;
    let mut said = String::new();
    for spec in [
        json!({"type": "NodePort"}),
        json!({"type": "ClusterIP"}),
        json!({"type": "LoadBalancer"}),
        json!({"type": "ClusterIP"}),
        json!({"type": "ExternalName", "externalName": "example.com"}),
        json!({"type": "ClusterIP", "externalName": null}),
    ] {
        let (code, made) = server.merge(service, json!({"spec": spec})).await;
        let (is, why) = (&made["spec"], str_at(&made, "message"));
        let of = ["clusterIP", "externalTrafficPolicy", "allocateLoadBalancerNodePorts", "ipFamilyPolicy"];
        let of: Vec<String> = of.iter().map(|it| is[it].to_string()).collect();
        writeln!(said, "{spec} {code} {} {} {why}", is["ports"][0]["nodePort"], of.join(" ")).unwrap();
    }
    expect![[r#"
        {"type":"NodePort"} 200 30000 "10.96.1.0" "Cluster" null "SingleStack" 
        {"type":"ClusterIP"} 200 null "10.96.1.0" null null "SingleStack" 
        {"type":"LoadBalancer"} 200 30000 "10.96.1.0" "Cluster" true "SingleStack" 
        {"type":"ClusterIP"} 200 null "10.96.1.0" null null "SingleStack" 
        {"externalName":"example.com","type":"ExternalName"} 200 null null null null null 
        {"externalName":null,"type":"ClusterIP"} 200 null "10.96.1.1" null null "SingleStack" 
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn requests_that_need_a_node_fail_with_a_reason() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("p", "n1")).await;
    server.json("POST", PODS, pod("q", "")).await;
    check(
        server.get(&format!("{PODS}/p/log")).await,
        &expect![[r#"503 the node "n1" of pod "p" has no address"#]],
    );
    check(
        server.json("POST", &format!("{PODS}/p/exec?command=ls"), json!({})).await,
        &expect![[r#"503 the node "n1" of pod "p" has no address"#]],
    );
    check(
        server.json("POST", &format!("{PODS}/q/exec?command=ls"), json!({})).await,
        &expect!["400 pod q does not have a host assigned"],
    );
    check(server.get(&format!("{PODS}/q/log")).await, &expect!["204 "]);
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}});
    let (code, made) = server.merge(&format!("{PODS}/p/ephemeralcontainers"), debug).await;
    assert_eq!((code, str_at(&made["spec"]["ephemeralContainers"][0], "name")), (200, "debug"), "{made}");
}

#[tokio::test]
async fn a_pod_gets_overhead_and_scheduling_of_its_runtime_class() {
    let server = Server::new().await;
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let class = json!({
        "metadata": {"name": "heavy"},
        "handler": "vm",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {
            "nodeSelector": {"vm": "yes"},
            "tolerations": [{"key": "vm", "operator": "Exists", "effect": "NoSchedule"}],
        },
    });
    assert_eq!(server.json("POST", classes, class).await.0, 201);
    assert_eq!(
        server.json("POST", classes, json!({"metadata": {"name": "light"}, "handler": "runc"})).await.0,
        201
    );
    let mut said = String::new();
    let mut tell = |answer: (u16, Value)| {
        let spec = &answer.1["spec"];
        let keys = unstructured::list_at(spec, "tolerations")
            .iter()
            .map(|it| str_at(it, "key"))
            .collect::<Vec<_>>()
            .join(" ");
        match answer.0 {
            201 => writeln!(said, "{} {} {keys}", spec["overhead"], spec["nodeSelector"]).unwrap(),
            code => writeln!(said, "{code} {}", str_at(&answer.1, "message")).unwrap(),
        }
    };
    for (index, more) in [
        json!({"runtimeClassName": "heavy"}),
        json!({"runtimeClassName": "heavy", "overhead": {"cpu": "0.25"}, "nodeSelector": {"a": "b"}}),
        json!({"runtimeClassName": "heavy", "overhead": {"cpu": "1"}}),
        json!({"runtimeClassName": "heavy", "nodeSelector": {"vm": "no"}}),
        json!({"runtimeClassName": "light"}),
        json!({"runtimeClassName": "light", "overhead": {"cpu": "1"}}),
        json!({"overhead": {"cpu": "1"}}),
        json!({"runtimeClassName": "none"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut pod = pod(&format!("p{index}"), "");
        pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        tell(server.json("POST", PODS, pod).await);
    }
    // A pod outlives its class, and may still be changed.
    tell(server.send("DELETE", &format!("{classes}/heavy"), "", "").await);
    tell(server.merge(&format!("{PODS}/p0"), json!({"metadata": {"labels": {"a": "b"}}})).await);
    tell(server.merge(&format!("{classes}/light"), json!({"handler": "other"})).await);
    expect![[r#"
        {"cpu":"250m"} {"vm":"yes"} node.kubernetes.io/not-ready node.kubernetes.io/unreachable vm
        {"cpu":"250m"} {"a":"b","vm":"yes"} node.kubernetes.io/not-ready node.kubernetes.io/unreachable vm
        403 pods "p2" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead
        403 pods "p3" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no
        null null node.kubernetes.io/not-ready node.kubernetes.io/unreachable
        403 pods "p5" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead
        403 pods "p6" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead
        403 pods "p7" is forbidden: pod rejected: RuntimeClass "none" not found
        200 
        200 
        422 RuntimeClass.node.k8s.io "light" is invalid: handler: Invalid value: "other": field is immutable
    "#]]
    .assert_eq(&said);
}
