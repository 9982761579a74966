//! A scenario in, the writes and events out, as text. Services are created at 00:00:01, and pods become ready at
//! 00:00:02.
//!
//! A line is an object of namespace `a`:
//! - `service NAME`: `headless`, `external`, `bare` (no selector, else `app=NAME`), `unready`
//!   (`publishNotReadyAddresses`), `port=NAME:TARGET[/PROTOCOL]`, `label=KEY:VALUE`, `families=IPv4,IPv6`, `prefers=…`,
//!   `deleting`;
//! - `pod NAME app=APP ip=IP[,IP] on=NODE`, and then `ready`, `deleting`, `terminated`, `port=NAME:NUMBER`,
//!   `as=HOST.DOMAIN`;
//! - `node NAME [zone=ZONE]`;
//! - `endpoints NAME IP…`: `not=IP` for one that is not ready, `port=NAME:NUMBER`, `label=…`, `note=…`: an annotation.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::test_cluster::TestCluster;

fn check(scenario: &str, expected: Expect) {
    expected.assert_eq(&cluster(scenario).run(Duration::from_secs(5)));
}

fn cluster(scenario: &str) -> TestCluster<EndpointsController> {
    let lines = scenario.lines().map(str::trim).filter(|it| !it.is_empty());
    TestCluster::new(EndpointsController::default(), lines.map(object))
}

fn object(line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = words[1];
    let is = |word: &str| words.contains(&word);
    let all = |word: &'static str| words.iter().filter_map(move |it| it.strip_prefix(word));
    let value_of = |word: &'static str| all(word).next();
    let pairs = |word: &'static str| -> Value {
        let pairs = all(word).map(|it| it.split_once(':').unwrap_or((it, "")));
        Value::Object(pairs.map(|(key, value)| (key.into(), json!(value))).collect())
    };
    let number = |it: &str| it.parse::<i64>().map_or(json!(it), |it| json!(it));
    let mut meta =
        json!({"namespace": "a", "name": name, "labels": pairs("label="), "annotations": pairs("note=")});
    if is("deleting") {
        meta["deletionTimestamp"] = json!("1970-01-01T00:00:03Z");
    }
    let ports = |key: &str| -> Value {
        let one = |it: &str| {
            let (port, protocol) = it.split_once('/').unwrap_or((it, "TCP"));
            let (name, number_or_name) = port.split_once(':').unwrap();
            json!({"name": name, "protocol": protocol, "port": 80, key: number(number_or_name)})
        };
        all("port=").map(one).collect()
    };
    match words[0] {
        "service" => {
            meta["creationTimestamp"] = json!("1970-01-01T00:00:01Z");
            json!({
                "kind": "Service",
                "metadata": meta,
                "spec": {
                    "type": if is("external") { "ExternalName" } else { "ClusterIP" },
                    "clusterIP": if is("headless") { "None" } else { "10.96.0.7" },
                    "ipFamilies": value_of("families=").unwrap_or("IPv4").split(',').collect::<Vec<_>>(),
                    "selector": if is("bare") { json!(null) } else { json!({"app": name}) },
                    "ports": ports("targetPort"),
                    "publishNotReadyAddresses": is("unready"),
                    "trafficDistribution": value_of("prefers="),
                },
            })
        }
        "pod" => {
            meta["labels"]["app"] = json!(value_of("app="));
            let host = value_of("as=").map(|it| it.split_once('.').unwrap());
            let ips = value_of("ip=").map(|it| it.split(',').map(|it| json!({"ip": it})).collect::<Value>());
            json!({
                "kind": "Pod",
                "metadata": meta,
                "spec": {
                    "nodeName": value_of("on="),
                    "hostname": host.map(|it| it.0),
                    "subdomain": host.map(|it| it.1),
                    "containers": [{"ports": ports("containerPort")}],
                },
                "status": {
                    "phase": if is("terminated") { "Succeeded" } else { "Running" },
                    "podIPs": ips,
                    "conditions": [{
                        "type": "Ready",
                        "status": if is("ready") { "True" } else { "False" },
                        "lastTransitionTime": "1970-01-01T00:00:02Z",
                    }],
                },
            })
        }
        "node" => {
            let mut labels = json!({});
            if let Some(zone) = value_of("zone=") {
                labels["topology.kubernetes.io/zone"] = json!(zone);
            }
            json!({"kind": "Node", "metadata": {"name": name, "labels": labels}})
        }
        _ => {
            let is_ip = |it: &&&str| it.chars().all(|it| it.is_ascii_hexdigit() || matches!(it, '.' | ':'));
            let ready: Value = words.iter().skip(2).filter(is_ip).map(|it| json!({"ip": it})).collect();
            let unready: Value = all("not=").map(|it| json!({"ip": it})).collect();
            let subset = json!({"addresses": ready, "notReadyAddresses": unready, "ports": ports("port")});
            json!({"kind": "Endpoints", "metadata": meta, "subsets": [subset]})
        }
    }
}

fn ready(word: &str, at: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": word, "lastTransitionTime": at}]}})
}

#[test]
fn selected_pods_in_every_state() {
    check(
        "
        node n1 zone=east
        node n2
        service web port=http:8080 port=dns:53/UDP label=team:x
        pod web-1 app=web ip=10.0.0.1 on=n1 ready
        pod web-2 app=web ip=10.0.0.2 on=n2
        pod web-3 app=web ip=10.0.0.3 on=n2 ready deleting
        pod web-4 app=web ip=10.0.0.4 on=n2 ready terminated
        pod web-5 app=web on=n2
        pod web-6 app=web ip=10.0.0.6 on=gone ready
        pod other app=other ip=10.0.0.7 on=n1 ready
        ",
        expect![[r#"
            create endpoints a/web
                dns:53/UDP http:8080/TCP 10.0.0.1 10.0.0.6 10.0.0.2 (not ready)
                endpoints.kubernetes.io/managed-by=endpoint-controller team=x @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4 dns:53/UDP http:8080/TCP
                10.0.0.1 web-1 on n1 in east ready serving
                10.0.0.2 web-2 on n2
                10.0.0.3 web-3 on n2 serving terminating
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web team=x @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        "#]],
    );
}

#[test]
fn a_headless_service_needs_no_ports_and_has_hostnames() {
    check(
        "
        node n1
        service web headless
        pod web-1 app=web ip=10.0.0.1 on=n1 ready as=one.web
        pod web-2 app=web ip=10.0.0.2 on=n1 ready as=two.other
        ",
        expect![[r#"
            create endpoints a/web
                10.0.0.1 10.0.0.2
                endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4
                10.0.0.1 web-1 as one on n1 ready serving
                10.0.0.2 web-2 on n1 ready serving
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        "#]],
    );
}

#[test]
fn publish_not_ready_addresses() {
    check(
        "
        node n1
        service web headless unready
        pod web-1 app=web ip=10.0.0.1 on=n1
        pod web-2 app=web ip=10.0.0.2 on=n1 ready deleting
        pod web-3 app=web ip=10.0.0.3 on=gone
        ",
        expect![[r#"
            create endpoints a/web
                10.0.0.1 10.0.0.2 10.0.0.3
                endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4
                10.0.0.1 web-1 on n1 ready
                10.0.0.2 web-2 on n1 ready serving terminating
                10.0.0.3 web-3 on gone ready
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        "#]],
    );
}

#[test]
fn a_named_target_port_is_resolved_for_each_pod() {
    check(
        "
        node n1
        service web port=http:web port=metrics:9100
        pod web-1 app=web ip=10.0.0.1 on=n1 ready port=web:8080
        pod web-2 app=web ip=10.0.0.2 on=n1 ready port=web:8081
        pod web-3 app=web ip=10.0.0.3 on=n1 ready port=web:8080/UDP
        ",
        expect![[r#"
            create endpoints a/web
                http:8080/TCP 10.0.0.1
                http:8081/TCP 10.0.0.2
                metrics:9100/TCP 10.0.0.1 10.0.0.2 10.0.0.3
                endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4 http:8080/TCP metrics:9100/TCP
                10.0.0.1 web-1 on n1 ready serving
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4 http:8081/TCP metrics:9100/TCP
                10.0.0.2 web-2 on n1 ready serving
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4 metrics:9100/TCP
                10.0.0.3 web-3 on n1 ready serving
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        "#]],
    );
}

#[test]
fn dual_stack_services_and_host_network_pods() {
    check(
        "
        node n1
        service web families=IPv6,IPv4 port=http:80
        pod web-1 app=web ip=10.0.0.1,fd00::1 on=n1 ready
        pod web-2 app=web ip=10.0.0.1 on=n1 ready
        ",
        expect![[r#"
            create endpoints a/web
                http:80/TCP fd00::1
                endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv6 http:80/TCP
                fd00::1 web-1 on n1 ready serving
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4 http:80/TCP
                10.0.0.1 web-1 on n1 ready serving
                10.0.0.1 web-2 on n1 ready serving
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        "#]],
    );
}

#[test]
fn traffic_distribution_adds_hints() {
    check(
        "
        node n1 zone=east
        node n2 zone=west
        service web prefers=PreferSameNode
        service far prefers=PreferClose
        pod web-1 app=web ip=10.0.0.1 on=n1 ready
        pod web-2 app=web ip=10.0.0.2 on=n2
        pod far-1 app=far ip=10.0.0.3 on=n2 ready
        ",
        expect![[r#"
            create endpoints a/far
                endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/far IPv4
                10.0.0.3 far-1 on n2 in west ready serving for west
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=far @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create endpoints a/web
                endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
            create slice of a/web IPv4
                10.0.0.1 web-1 on n1 in east ready serving for east for n1
                10.0.0.2 web-2 on n2 in west
                endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        "#]],
    );
}

#[test]
fn services_without_pods_and_without_selectors() {
    check(
        "service web port=http:80",
        expect![[r#"
        create endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
    "#]],
    );
    check("service web external", expect![]);
    check("service web bare port=http:80", expect![]);
    check(
        "
        node n1
        service web deleting
        pod web-1 app=web ip=10.0.0.1 on=n1 ready
        ",
        expect![],
    );
}

#[test]
fn only_changed_slices_are_written() {
    let mut cluster = cluster(
        "
        node n1
        service web port=http:80
        pod web-1 app=web ip=10.0.0.1 on=n1 ready
        pod web-2 app=web ip=10.0.0.2 on=n1
        ",
    );
    cluster.run(Duration::from_secs(5));
    let mut told = String::new();
    let mut then = |what: &str, cluster: &mut TestCluster<EndpointsController>| {
        told += &format!("{what}\n{}", cluster.run(Duration::from_secs(5)));
    };
    cluster.patch("Pod", "web-1", &json!({"metadata": {"annotations": {"a": "b"}}}));
    then("# an annotation", &mut cluster);
    cluster.patch("Pod", "web-2", &ready("True", "1970-01-01T00:00:09Z"));
    then("# the second is ready", &mut cluster);
    cluster.patch("Pod", "web-1", &json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:11Z"}}));
    then("# the first is being deleted", &mut cluster);
    cluster.delete("Pod", "web-1");
    then("# the first is gone", &mut cluster);
    cluster.put(object("node n1 zone=north"));
    then("# the node is in a zone", &mut cluster);
    cluster.patch("Service", "web", &json!({"metadata": {"labels": {"team": "y"}}}));
    then("# the service has a label", &mut cluster);
    cluster.patch(
        "Service",
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 81}]}}),
    );
    then("# the service has another port", &mut cluster);
    cluster.patch("Service", "web", &json!({"spec": {"selector": {"app": "none"}}}));
    then("# the service selects others", &mut cluster);
    cluster.delete("Endpoints", "web");
    then("# somebody deletes the endpoints", &mut cluster);
    cluster.delete("Service", "web");
    then("# the service is gone", &mut cluster);
    expect![[r#"
        # an annotation
        # the second is ready
        update endpoints a/web
            http:80/TCP 10.0.0.1 10.0.0.2
            endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:09Z
        update slice a/web-5 IPv4 http:80/TCP
            10.0.0.1 web-1 on n1 ready serving
            10.0.0.2 web-2 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:09Z
        # the first is being deleted
        update endpoints a/web
            http:80/TCP 10.0.0.2
            endpoints.kubernetes.io/managed-by=endpoint-controller
        update slice a/web-5 IPv4 http:80/TCP
            10.0.0.1 web-1 on n1 serving terminating
            10.0.0.2 web-2 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web
        # the first is gone
        update slice a/web-5 IPv4 http:80/TCP
            10.0.0.2 web-2 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web
        # the node is in a zone
        update slice a/web-5 IPv4 http:80/TCP
            10.0.0.2 web-2 on n1 in north ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web
        # the service has a label
        update endpoints a/web
            http:80/TCP 10.0.0.2
            endpoints.kubernetes.io/managed-by=endpoint-controller team=y
        update slice a/web-5 IPv4 http:80/TCP
            10.0.0.2 web-2 on n1 in north ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web team=y
        # the service has another port
        update endpoints a/web
            http:81/TCP 10.0.0.2
            endpoints.kubernetes.io/managed-by=endpoint-controller team=y
        update slice a/web-5 IPv4 http:81/TCP
            10.0.0.2 web-2 on n1 in north ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web team=y
        # the service selects others
        update endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller team=y
        update slice a/web-5 IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web team=y
        # somebody deletes the endpoints
        create endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller team=y
        # the service is gone
        delete endpoints a/web
    "#]].assert_eq(&told);
}

#[test]
fn changes_are_batched() {
    let mut cluster = cluster("service web headless\nnode n1");
    cluster.run(Duration::from_secs(5));
    let mut told = String::new();
    for index in 0..250 {
        cluster.put(object(&format!("pod web-{index:03} app=web ip=10.0.1.{index} on=n1 ready")));
        told += &cluster.run(Duration::from_millis(10));
    }
    told += &cluster.run(Duration::from_secs(5));
    cluster.delete("Pod", "web-007");
    told += &format!("# one goes\n{}", cluster.run(Duration::from_secs(5)));
    cluster.put(object("pod xeb app=web ip=10.0.2.1 on=n1 ready"));
    told += &format!("# another comes\n{}", cluster.run(Duration::from_secs(5)));
    expect![[r#"
        update endpoints a/web
            10.0.1.0
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update slice a/web-3 IPv4
            10.0.1.0 web-000 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update endpoints a/web
            10.0.1.0 10.0.1.1 10.0.1.10 10.0.1.11 10.0.1.12 … 100 in all
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update slice a/web-3 IPv4
            10.0.1.0 web-000 on n1 ready serving
            10.0.1.1 web-001 on n1 ready serving
            10.0.1.10 web-010 on n1 ready serving
            10.0.1.11 web-011 on n1 ready serving
            10.0.1.12 web-012 on n1 ready serving … 100 in all
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update endpoints a/web
            10.0.1.0 10.0.1.1 10.0.1.10 10.0.1.100 10.0.1.101 … 200 in all
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        create slice of a/web IPv4
            10.0.1.100 web-100 on n1 ready serving
            10.0.1.101 web-101 on n1 ready serving
            10.0.1.102 web-102 on n1 ready serving
            10.0.1.103 web-103 on n1 ready serving
            10.0.1.104 web-104 on n1 ready serving … 100 in all
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update endpoints a/web
            10.0.1.0 10.0.1.1 10.0.1.10 10.0.1.100 10.0.1.101 … 250 in all
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        create slice of a/web IPv4
            10.0.1.200 web-200 on n1 ready serving
            10.0.1.201 web-201 on n1 ready serving
            10.0.1.202 web-202 on n1 ready serving
            10.0.1.203 web-203 on n1 ready serving
            10.0.1.204 web-204 on n1 ready serving … 50 in all
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        # one goes
        update endpoints a/web
            10.0.1.0 10.0.1.1 10.0.1.10 10.0.1.100 10.0.1.101 … 249 in all
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless=
        update slice a/web-3 IPv4
            10.0.1.0 web-000 on n1 ready serving
            10.0.1.1 web-001 on n1 ready serving
            10.0.1.10 web-010 on n1 ready serving
            10.0.1.11 web-011 on n1 ready serving
            10.0.1.12 web-012 on n1 ready serving … 99 in all
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless=
        # another comes
        update endpoints a/web
            10.0.1.0 10.0.1.1 10.0.1.10 10.0.1.100 10.0.1.101 … 250 in all
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update slice a/web-3 IPv4
            10.0.1.0 web-000 on n1 ready serving
            10.0.1.1 web-001 on n1 ready serving
            10.0.1.10 web-010 on n1 ready serving
            10.0.1.11 web-011 on n1 ready serving
            10.0.1.12 web-012 on n1 ready serving … 100 in all
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
    "#]].assert_eq(&told);
}

#[test]
fn endpoints_are_truncated_to_ready_addresses() {
    let mut world = String::from("service web headless\nnode n1\n");
    for index in 0..1200 {
        let state = if index < 900 { "ready" } else { "" };
        world +=
            &format!("pod web-{index:04} app=web ip=10.0.{}.{} on=n1 {state}\n", index / 200, index % 200);
    }
    let mut cluster = cluster(&world);
    let told = cluster.run(Duration::from_secs(5));
    let lines: String = told.lines().filter(|it| !it.contains("web-")).map(|it| format!("{it}\n")).collect();
    expect![[r#"
        create endpoints a/web
            10.0.0.0 10.0.0.1 10.0.0.10 10.0.0.100 10.0.0.101 … 1000 in all
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z @endpoints.kubernetes.io/over-capacity=truncated
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
    "#]].assert_eq(&lines);
    // The address was already left out.
    cluster.delete("Pod", "web-1199");
    let told = cluster.run(Duration::from_secs(5));
    expect!["update slice a/web-1214 IPv4"].assert_eq(told.lines().next().unwrap_or_default());
}

#[test]
fn endpoints_without_a_selector_are_mirrored() {
    let mut cluster = cluster(
        "
        service db bare
        endpoints db 192.168.0.1 fd00::5 not=192.168.0.2 port=sql:5432 label=team:x note=why:because
        service skipped bare
        endpoints skipped 192.168.0.9 port=sql:5432 label=endpointslice.kubernetes.io/skip-mirror:true
        endpoints election note=control-plane.alpha.kubernetes.io/leader:me
        endpoints orphan 192.168.0.8
        ",
    );
    let mut told = String::new();
    let mut then = |what: &str, cluster: &mut TestCluster<EndpointsController>| {
        told += &format!("{what}\n{}", cluster.run(Duration::from_secs(5)));
    };
    then("# at first", &mut cluster);
    cluster.put(object("endpoints db 192.168.0.1 port=sql:5433 port=admin:80"));
    then("# other ports", &mut cluster);
    cluster.put(object("endpoints alone 192.168.0.7"));
    then("# endpoints without a service are left alone", &mut cluster);
    cluster.patch("Service", "db", &json!({"spec": {"selector": {"app": "db"}}}));
    then("# the service selects pods", &mut cluster);
    cluster.patch("Service", "db", &json!({"spec": {"selector": null}}));
    then("# and no longer", &mut cluster);
    cluster.delete("Endpoints", "db");
    then("# the endpoints are gone", &mut cluster);
    expect![[r#"
        # at first
        create slice of a/db IPv4 sql:5432/TCP
            192.168.0.1 ready
            192.168.0.2
            endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io kubernetes.io/service-name=db team=x @why=because
        create slice of a/db IPv6 sql:5432/TCP
            fd00::5 ready
            endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io kubernetes.io/service-name=db team=x @why=because
        delete endpoints a/orphan
        # other ports
        update slice a/db-6 IPv4 admin:80/TCP sql:5433/TCP
            192.168.0.1 ready
            endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io kubernetes.io/service-name=db
        delete slice a/db-7
        # endpoints without a service are left alone
        # the service selects pods
        update endpoints a/db
            endpoints.kubernetes.io/managed-by=endpoint-controller @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/db IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=db @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        delete slice a/db-6
        # and no longer
        # the endpoints are gone
    "#]].assert_eq(&told);
}

#[test]
fn own_writes_are_awaited_and_failed_writes_retried() {
    let mut cluster = cluster("service web headless\nnode n1");
    cluster.refusals.extend([CallError::Server("not now".into()), CallError::NamespaceTerminating]);
    let mut told = format!("# refused\n{}", cluster.run(Duration::from_secs(59)));
    told += &format!("# later\n{}", cluster.run(Duration::from_secs(5)));
    cluster.delay_watches();
    cluster.put(object("pod web-1 app=web ip=10.0.0.1 on=n1 ready"));
    cluster.deliver_watches();
    cluster.delay_watches();
    told += &format!("# not shown yet\n{}", cluster.run(Duration::from_secs(5)));
    cluster.deliver_watches();
    told += &format!("# shown\n{}", cluster.run(Duration::from_secs(5)));
    expect![[r#"
        # refused
        create endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z  -> not now
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z  -> the namespace is being terminated
          Warning event for Service a/web: FailedToCreateEndpoint Failed to create endpoint for service a/web: not now
        # later
        create endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless=
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless=
        # not shown yet
        update endpoints a/web
            10.0.0.1
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        update slice a/web-3 IPv4
            10.0.0.1 web-1 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:02Z
        # shown
    "#]].assert_eq(&told);
}

#[test]
fn a_recreated_namespace_has_no_backoff() {
    let mut cluster = cluster("service web headless\nnode n1");
    cluster.refusals.extend([CallError::NamespaceTerminating, CallError::NamespaceTerminating]);
    let mut told = format!("# it is being deleted\n{}", cluster.run(Duration::from_secs(5)));
    cluster.delete("Service", "web");
    cluster.put(object("service web headless"));
    told += &format!("# and is there again\n{}", cluster.run(Duration::from_secs(5)));
    expect![[r#"
        # it is being deleted
        create endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z  -> the namespace is being terminated
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z  -> the namespace is being terminated
        # and is there again
        create endpoints a/web
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        create slice of a/web IPv4
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
    "#]].assert_eq(&told);
}

#[test]
fn foreign_slices_stay_and_slices_of_a_former_service_are_deleted() {
    let slice = |name: &str, managed_by: &str, uid: &str| {
        json!({
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": "a",
                "name": name,
                "labels": {SERVICE_NAME_LABEL: "web", MANAGED_BY_LABEL: managed_by},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": uid}],
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.9"], "conditions": {"ready": true}}],
        })
    };
    let mut cluster = cluster("service web headless\nnode n1\npod web-1 app=web ip=10.0.0.1 on=n1 ready");
    cluster.put(slice("web-old", slices::MANAGED_BY_VALUE, "another"));
    cluster.put(slice("web-own", slices::MANAGED_BY_VALUE, "uid-web"));
    cluster.put(slice("web-theirs", "somebody", "uid-web"));
    let mut told = cluster.run(Duration::from_secs(5));
    cluster.patch(
        "EndpointSlice",
        "web-own",
        &json!({"metadata": {"labels": {MANAGED_BY_LABEL: "somebody"}}}),
    );
    told += &format!("# given away\n{}", cluster.run(Duration::from_secs(5)));
    expect![[r#"
        create endpoints a/web
            10.0.0.1
            endpoints.kubernetes.io/managed-by=endpoint-controller service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        update slice a/web-own IPv4
            10.0.0.1 web-1 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless= @endpoints.kubernetes.io/last-change-trigger-time=1970-01-01T00:00:01Z
        delete slice a/web-old
        # given away
        create slice of a/web IPv4
            10.0.0.1 web-1 on n1 ready serving
            endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io kubernetes.io/service-name=web service.kubernetes.io/headless=
    "#]].assert_eq(&told);
}

#[test]
fn addresses_are_parsed_as_in_go() {
    let read = |text: &str| decode::parse_address(text).map_or_else(|| "-".into(), |it| format!("{it}"));
    let all =
        ["10.0.0.1", "010.000.0.01", "::ffff:10.0.0.1", "FD00::0:1", "10.0.0", "10.0.0.256", "1.2.3.4.5", ""];
    let read: Vec<String> = all.iter().map(|it| read(it)).collect();
    expect!["10.0.0.1 10.0.0.1 10.0.0.1 fd00::1 - - - -"].assert_eq(&read.join(" "));
}
