use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use expect_test::{Expect, expect};
use muster_api::cidr::Ipv4Cidr;
use muster_api::time::Time;
use serde_json::{Value, json};

use super::*;

mod reserved_addresses;

/// Two nodes; a Service with an endpoint on each and one that is not ready; a headless Service; one without endpoints.
fn state() -> ProxyState {
    let mut state = ProxyState::default();
    for (name, number) in [("n1", 1), ("n2", 2)] {
        let node = json!({
            "spec": {"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")]},
            "status": {"addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": format!("172.30.0.{number}")},
            ]},
        });
        state.put_node(name.into(), Node::decode(&BTreeMap::new(), &node).expect("a node"));
    }
    service(
        &mut state,
        "web",
        json!({"clusterIP": "10.96.1.1", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}),
    );
    slice(
        &mut state,
        "web",
        "web-1",
        json!({"endpoints": [endpoint(1, 5), endpoint(2, 6), not_ready(endpoint(2, 7))]}),
    );
    service(&mut state, "peers", json!({"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]}));
    let mut named = endpoint(2, 9);
    named["hostname"] = json!("Two");
    slice(
        &mut state,
        "peers",
        "peers-1",
        json!({"endpoints": [endpoint(1, 9), named, not_ready(endpoint(2, 10))]}),
    );
    service(
        &mut state,
        "empty",
        json!({"clusterIP": "10.96.1.2", "ports": [{"port": 53, "protocol": "UDP"}], "externalIPs": ["192.0.2.7"]}),
    );
    state
}

fn service(state: &mut ProxyState, name: &str, spec: Value) {
    let service = Service::decode(Time::default(), &json!({"spec": spec})).expect("a service");
    state.put_service(ObjectKey::new("shop", name), service);
}

fn slice(state: &mut ProxyState, of: &str, name: &str, mut slice: Value) {
    let labels = BTreeMap::from([("kubernetes.io/service-name".to_string(), of.to_string())]);
    slice["addressType"] = json!("IPv4");
    if slice["ports"].is_null() {
        slice["ports"] = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    }
    state.put_slice(ObjectKey::new("shop", name), Slice::decode(&labels, &slice).expect("a slice"));
}

fn endpoint(node: u8, last: u8) -> Value {
    json!({
        "addresses": [format!("10.244.{node}.{last}")],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("n{node}"),
    })
}

fn not_ready(mut endpoint: Value) -> Value {
    endpoint["conditions"] = json!({"ready": false, "serving": false, "terminating": false});
    endpoint
}

fn terminating(mut endpoint: Value) -> Value {
    endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    endpoint
}

fn me() -> ThisNode {
    ThisNode {
        name: "n1".into(),
        addresses: [[172, 30, 0, 1].into()].into(),
        dns: Some([10, 96, 0, 10].into()),
        bridge_netfilter_disabled: false,
        server: [([172, 30, 0, 100].into(), 6443)].into(),
        external_ips: [Ipv4Cidr::parse("192.0.2.0/24").expect("a range")].into(),
    }
}

fn made(state: &ProxyState) -> NftTable {
    let network = Ipv4Cidr::parse("172.30.0.0/24").ok();
    build_table(state, &me(), &pod_routes(state, "n1", network))
}

/// Compares the rules of Services, without those of every node.
fn check(state: &ProxyState, expected: Expect) {
    let plain = ProxyState { nodes: state.nodes.clone(), ..ProxyState::default() };
    expected.assert_eq(&made(state).incremental_script(&made(&plain)));
}

#[test]
fn base_rules_of_every_node() {
    let state = ProxyState { nodes: state().nodes, ..ProxyState::default() };
    expect![[r#"
        add table ip muster
        delete table ip muster
        add table ip muster
        add set ip muster api-server { type ipv4_addr . inet_service; }
        add set ip muster cluster-ips { type ipv4_addr; }
        add set ip muster hairpins { type ipv4_addr . ipv4_addr; }
        add map ip muster node-ports { type inet_proto . inet_service : verdict; }
        add set ip muster pods { type ipv4_addr; flags interval; }
        add set ip muster refused { type ipv4_addr . inet_proto . inet_service; }
        add map ip muster services { type ipv4_addr . inet_proto . inet_service : verdict; }
        add chain ip muster balance
        add chain ip muster filter-forward { type filter hook forward priority filter; policy accept; }
        add chain ip muster filter-output { type filter hook output priority filter; policy accept; }
        add chain ip muster nat-output { type nat hook output priority -100; policy accept; }
        add chain ip muster nat-postrouting { type nat hook postrouting priority srcnat; policy accept; }
        add chain ip muster nat-prerouting { type nat hook prerouting priority dstnat; policy accept; }
        add chain ip muster raw-output { type filter hook output priority raw; policy accept; }
        add chain ip muster raw-prerouting { type filter hook prerouting priority raw; policy accept; }
        add rule ip muster balance ip daddr . meta l4proto . th dport vmap @services
        add rule ip muster balance fib daddr type local ip daddr != 127.0.0.0/8 ip daddr != 10.96.0.10 meta l4proto . th dport vmap @node-ports
        add rule ip muster filter-forward ip daddr . tcp dport @api-server accept
        add rule ip muster filter-forward ct state new meta l4proto tcp ip daddr @cluster-ips reject with tcp reset
        add rule ip muster filter-forward ct state new ip daddr @cluster-ips reject
        add rule ip muster filter-forward ct state new meta l4proto tcp ip daddr . meta l4proto . th dport @refused reject with tcp reset
        add rule ip muster filter-forward ct state new ip daddr . meta l4proto . th dport @refused reject
        add rule ip muster filter-output ip daddr . tcp dport @api-server accept
        add rule ip muster filter-output ct state new meta l4proto tcp ip daddr @cluster-ips reject with tcp reset
        add rule ip muster filter-output ct state new ip daddr @cluster-ips reject
        add rule ip muster filter-output ct state new meta l4proto tcp ip daddr . meta l4proto . th dport @refused reject with tcp reset
        add rule ip muster filter-output ct state new ip daddr . meta l4proto . th dport @refused reject
        add rule ip muster nat-output ip daddr . tcp dport @api-server accept
        add rule ip muster nat-output jump balance
        add rule ip muster nat-postrouting meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade fully-random
        add rule ip muster nat-postrouting ct status dnat ip saddr . ip daddr @hairpins masquerade fully-random
        add rule ip muster nat-postrouting ip saddr 10.244.1.0/24 ip daddr != @pods oifname != "cni0" masquerade fully-random
        add rule ip muster nat-prerouting ip daddr . tcp dport @api-server accept
        add rule ip muster nat-prerouting ip daddr @cluster-ips ip saddr != @pods meta mark set meta mark | 0x4000
        add rule ip muster nat-prerouting jump balance
        add rule ip muster raw-output ip daddr 10.96.0.10 meta l4proto { tcp, udp } th dport 53 notrack
        add rule ip muster raw-output ip saddr 10.96.0.10 meta l4proto { tcp, udp } th sport 53 notrack
        add rule ip muster raw-prerouting ip daddr 10.96.0.10 meta l4proto { tcp, udp } th dport 53 notrack
        add element ip muster api-server { 172.30.0.100 . 6443 }
        add element ip muster pods { 10.244.1.0/24, 10.244.2.0/24 }
    "#]].assert_eq(&made(&state).replacement_script());
}

#[test]
fn a_service_leads_to_its_ready_endpoints() {
    check(
        &state(),
        expect![[r#"
        add chain ip muster all/shop/web/tcp/80
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080, 1 : 10.244.2.6 . 8080 }
        add element ip muster cluster-ips { 10.96.1.1, 10.96.1.2 }
        add element ip muster hairpins { 10.244.1.5 . 10.244.1.5 }
        add element ip muster refused { 192.0.2.7 . udp . 53 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : goto all/shop/web/tcp/80 }
    "#]],
    );
}

#[test]
fn a_difference_leaves_unchanged_objects() {
    let before = state();
    let mut after = state();
    slice(&mut after, "web", "web-1", json!({"endpoints": [endpoint(1, 5)]}));
    slice(
        &mut after,
        "empty",
        "empty-1",
        json!({
            "endpoints": [endpoint(2, 3)],
            "ports": [{"name": "", "port": 5353, "protocol": "UDP"}],
        }),
    );
    after.remove_service(&ObjectKey::new("shop", "peers"));
    expect![[r#"
        delete element ip muster refused { 192.0.2.7 . udp . 53 }
        flush chain ip muster all/shop/web/tcp/80
        add chain ip muster all/shop/empty/udp/53
        add chain ip muster out/shop/empty/udp/53
        add rule ip muster all/shop/empty/udp/53 meta l4proto udp dnat ip to 10.244.2.3:5353
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to 10.244.1.5:8080
        add rule ip muster out/shop/empty/udp/53 meta mark set meta mark | 0x4000
        add rule ip muster out/shop/empty/udp/53 goto all/shop/empty/udp/53
        add element ip muster services { 10.96.1.2 . udp . 53 : goto all/shop/empty/udp/53, 192.0.2.7 . udp . 53 : goto out/shop/empty/udp/53 }
    "#]].assert_eq(&made(&after).incremental_script(&made(&before)));
    assert_eq!(made(&after).incremental_script(&made(&after)), "");
}

#[test]
fn terminating_endpoints_serve_if_none_is_ready() {
    let mut state = state();
    slice(
        &mut state,
        "web",
        "web-1",
        json!({"endpoints": [terminating(endpoint(1, 5)), not_ready(endpoint(2, 6))]}),
    );
    check(
        &state,
        expect![[r#"
        add chain ip muster all/shop/web/tcp/80
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to 10.244.1.5:8080
        add element ip muster cluster-ips { 10.96.1.1, 10.96.1.2 }
        add element ip muster hairpins { 10.244.1.5 . 10.244.1.5 }
        add element ip muster refused { 192.0.2.7 . udp . 53 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : goto all/shop/web/tcp/80 }
    "#]],
    );
}

#[test]
fn client_ip_session_affinity() {
    let mut state = state();
    state.remove_service(&ObjectKey::new("shop", "empty"));
    service(
        &mut state,
        "web",
        json!({
            "clusterIP": "10.96.1.1",
            "ports": [{"name": "http", "port": 80}],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        }),
    );
    check(
        &state,
        expect![[r#"
        add set ip muster clients/shop/web/tcp/80/10.244.1.5/8080 { type ipv4_addr; flags dynamic,timeout; timeout 60s; }
        add set ip muster clients/shop/web/tcp/80/10.244.2.6/8080 { type ipv4_addr; flags dynamic,timeout; timeout 60s; }
        add chain ip muster all/shop/web/tcp/80
        add chain ip muster one/shop/web/tcp/80/10.244.1.5/8080
        add chain ip muster one/shop/web/tcp/80/10.244.2.6/8080
        add rule ip muster all/shop/web/tcp/80 ip saddr @clients/shop/web/tcp/80/10.244.1.5/8080 goto one/shop/web/tcp/80/10.244.1.5/8080
        add rule ip muster all/shop/web/tcp/80 ip saddr @clients/shop/web/tcp/80/10.244.2.6/8080 goto one/shop/web/tcp/80/10.244.2.6/8080
        add rule ip muster all/shop/web/tcp/80 numgen random mod 2 vmap { 0 : goto one/shop/web/tcp/80/10.244.1.5/8080, 1 : goto one/shop/web/tcp/80/10.244.2.6/8080 }
        add rule ip muster one/shop/web/tcp/80/10.244.1.5/8080 update @clients/shop/web/tcp/80/10.244.1.5/8080 { ip saddr }
        add rule ip muster one/shop/web/tcp/80/10.244.1.5/8080 meta l4proto tcp dnat ip to 10.244.1.5:8080
        add rule ip muster one/shop/web/tcp/80/10.244.2.6/8080 update @clients/shop/web/tcp/80/10.244.2.6/8080 { ip saddr }
        add rule ip muster one/shop/web/tcp/80/10.244.2.6/8080 meta l4proto tcp dnat ip to 10.244.2.6:8080
        add element ip muster cluster-ips { 10.96.1.1 }
        add element ip muster hairpins { 10.244.1.5 . 10.244.1.5 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : goto all/shop/web/tcp/80 }
    "#]],
    );
}

#[test]
fn local_traffic_policies() {
    let mut state = state();
    let local = json!({
        "clusterIP": "10.96.1.1",
        "type": "NodePort",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        "internalTrafficPolicy": "Local",
        "externalTrafficPolicy": "Local",
    });
    state.remove_service(&ObjectKey::new("shop", "empty"));
    service(&mut state, "web", local);
    check(
        &state,
        expect![[r#"
        add chain ip muster all/shop/web/tcp/80
        add chain ip muster local/shop/web/tcp/80
        add chain ip muster out/shop/web/tcp/80
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080, 1 : 10.244.2.6 . 8080 }
        add rule ip muster local/shop/web/tcp/80 meta l4proto tcp dnat ip to 10.244.1.5:8080
        add rule ip muster out/shop/web/tcp/80 ip saddr @pods goto all/shop/web/tcp/80
        add rule ip muster out/shop/web/tcp/80 fib saddr type local meta mark set meta mark | 0x4000 goto all/shop/web/tcp/80
        add rule ip muster out/shop/web/tcp/80 goto local/shop/web/tcp/80
        add element ip muster cluster-ips { 10.96.1.1 }
        add element ip muster hairpins { 10.244.1.5 . 10.244.1.5 }
        add element ip muster node-ports { tcp . 30080 : goto out/shop/web/tcp/80 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : goto local/shop/web/tcp/80 }
    "#]],
    );
    slice(&mut state, "web", "web-1", json!({"endpoints": [endpoint(2, 6)]}));
    check(
        &state,
        expect![[r#"
        add chain ip muster all/shop/web/tcp/80
        add chain ip muster out/shop/web/tcp/80
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to 10.244.2.6:8080
        add rule ip muster out/shop/web/tcp/80 ip saddr @pods goto all/shop/web/tcp/80
        add rule ip muster out/shop/web/tcp/80 fib saddr type local meta mark set meta mark | 0x4000 goto all/shop/web/tcp/80
        add rule ip muster out/shop/web/tcp/80 drop
        add element ip muster cluster-ips { 10.96.1.1 }
        add element ip muster node-ports { tcp . 30080 : goto out/shop/web/tcp/80 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : drop }
    "#]],
    );
}

#[test]
fn node_ports() {
    let mut state = state();
    state.remove_service(&ObjectKey::new("shop", "empty"));
    service(
        &mut state,
        "web",
        json!({
            "clusterIP": "10.96.1.1",
            "type": "LoadBalancer",
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
            "externalIPs": ["192.0.2.1"],
        }),
    );
    check(
        &state,
        expect![[r#"
        add chain ip muster all/shop/web/tcp/80
        add chain ip muster out/shop/web/tcp/80
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080, 1 : 10.244.2.6 . 8080 }
        add rule ip muster out/shop/web/tcp/80 meta mark set meta mark | 0x4000
        add rule ip muster out/shop/web/tcp/80 goto all/shop/web/tcp/80
        add element ip muster cluster-ips { 10.96.1.1 }
        add element ip muster hairpins { 10.244.1.5 . 10.244.1.5 }
        add element ip muster node-ports { tcp . 30080 : goto out/shop/web/tcp/80 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : goto all/shop/web/tcp/80, 192.0.2.1 . tcp . 80 : goto out/shop/web/tcp/80 }
    "#]],
    );
}

#[test]
fn topology_hints_apply_if_all_endpoints_have_them() {
    let mut state = state();
    state.remove_service(&ObjectKey::new("shop", "empty"));
    let hinted = |mut endpoint: Value, node: &str| {
        endpoint["hints"] = json!({"forNodes": [{"name": node}]});
        endpoint
    };
    let both = json!({"endpoints": [hinted(endpoint(1, 5), "n1"), hinted(endpoint(2, 6), "n2")]});
    slice(&mut state, "web", "web-1", both);
    check(
        &state,
        expect![[r#"
        add chain ip muster all/shop/web/tcp/80
        add rule ip muster all/shop/web/tcp/80 meta l4proto tcp dnat ip to 10.244.1.5:8080
        add element ip muster cluster-ips { 10.96.1.1 }
        add element ip muster hairpins { 10.244.1.5 . 10.244.1.5 }
        add element ip muster services { 10.96.1.1 . tcp . 80 : goto all/shop/web/tcp/80 }
    "#]],
    );
}

#[test]
fn a_service_at_the_dns_address_replaces_the_dns_of_the_node() {
    let mut state = state();
    state.remove_service(&ObjectKey::new("shop", "empty"));
    state.remove_service(&ObjectKey::new("shop", "web"));
    service(
        &mut state,
        "dns",
        json!({"clusterIP": "10.96.0.10", "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}),
    );
    check(&state, expect![[""]]);
    slice(
        &mut state,
        "dns",
        "dns-1",
        json!({
            "endpoints": [endpoint(2, 3)],
            "ports": [{"name": "dns", "port": 5353, "protocol": "UDP"}],
        }),
    );
    check(
        &state,
        expect![[r#"
        flush chain ip muster raw-output
        flush chain ip muster raw-prerouting
        add chain ip muster all/shop/dns/udp/53
        add rule ip muster all/shop/dns/udp/53 meta l4proto udp dnat ip to 10.244.2.3:5353
        add element ip muster cluster-ips { 10.96.0.10 }
        add element ip muster services { 10.96.0.10 . udp . 53 : goto all/shop/dns/udp/53 }
    "#]],
    );
}

#[test]
fn udp_flows_to_a_removed_endpoint_are_stale() {
    let udp = |state: &mut ProxyState, endpoints: Value| {
        let ports = json!([{"name": "", "port": 5353, "protocol": "UDP"}]);
        slice(state, "empty", "empty-1", json!({"endpoints": endpoints, "ports": ports}));
    };
    let (mut before, mut after) = (state(), state());
    udp(&mut before, json!([endpoint(1, 5), endpoint(2, 6)]));
    udp(&mut after, json!([endpoint(2, 6)]));
    let (before, after) = (made(&before), made(&after));
    let flow = |to: [u8; 4], port, backend: [u8; 4], got_port| UdpFlow {
        destination: (to.into(), port),
        backend: (backend.into(), got_port),
    };
    let to_gone = flow([10, 96, 1, 2], 53, [10, 244, 1, 5], 5353);
    let cases = [
        ("to a removed endpoint", to_gone),
        ("to a remaining endpoint", flow([10, 96, 1, 2], 53, [10, 244, 2, 6], 5353)),
        ("external, to a removed endpoint", flow([192, 0, 2, 7], 53, [10, 244, 1, 5], 5353)),
        ("to another port", flow([10, 96, 1, 2], 54, [10, 244, 1, 5], 5353)),
        ("not translated", flow([10, 96, 1, 2], 53, [10, 96, 1, 2], 53)),
        ("to another address", flow([192, 0, 2, 1], 53, [10, 244, 1, 5], 5353)),
    ];
    let stale: Vec<&str> =
        cases.iter().filter(|(_, it)| after.is_stale_flow(&before, *it)).map(|(name, _)| *name).collect();
    assert_eq!(stale, ["to a removed endpoint", "external, to a removed endpoint"]);
    assert!(after.changes_udp_endpoints(&before) && !after.changes_udp_endpoints(&after));
    let nothing = made(&ProxyState::default());
    assert!(nothing.is_stale_flow(&before, to_gone) && !nothing.is_stale_flow(&nothing, to_gone));
}

#[test]
fn invalid_names_are_not_in_the_script() {
    let mut state = state();
    let service = Service::decode(
        Time::default(),
        &json!({"spec": {"clusterIP": "10.96.9.9", "ports": [{"port": 80}]}}),
    );
    state.put_service(ObjectKey::new("shop", "a; flush ruleset"), service.expect("a service"));
    assert!(!made(&state).replacement_script().contains("10.96.9.9"));
}

fn ask(state: &ProxyState, name: &str, query_type: QueryType) -> String {
    let labels: Vec<String> = name.split('.').map(Into::into).collect();
    match resolve(state, "cluster.local", Question { labels: &labels, query_type }) {
        Answer::Records(records) => {
            let all: Vec<String> = records.iter().map(|it| format!("{it:?}")).collect();
            if all.is_empty() { "no records".to_string() } else { all.join(" ") }
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn dns_names() {
    let mut state = state();
    service(&mut state, "out", json!({"type": "ExternalName", "externalName": "example.org"}));
    let mut all = String::new();
    for (name, query_type) in [
        ("web.shop.svc.cluster.local", QueryType::A),
        ("web.shop.svc.cluster.local", QueryType::Aaaa),
        ("web.shop.svc.cluster.local", QueryType::Srv),
        ("_http._tcp.web.shop.svc.cluster.local", QueryType::Srv),
        ("_http._udp.web.shop.svc.cluster.local", QueryType::Srv),
        ("_tcp.web.shop.svc.cluster.local", QueryType::Srv),
        ("peers.shop.svc.cluster.local", QueryType::A),
        ("_http._tcp.peers.shop.svc.cluster.local", QueryType::Srv),
        ("two.peers.shop.svc.cluster.local", QueryType::A),
        ("10-244-1-9.peers.shop.svc.cluster.local", QueryType::A),
        ("10-244-2-10.peers.shop.svc.cluster.local", QueryType::A),
        ("empty.shop.svc.cluster.local", QueryType::A),
        ("missing.shop.svc.cluster.local", QueryType::A),
        ("out.shop.svc.cluster.local", QueryType::A),
        ("shop.svc.cluster.local", QueryType::A),
        ("none.svc.cluster.local", QueryType::A),
        ("svc.cluster.local", QueryType::A),
        ("cluster.local", QueryType::Soa),
        ("example.org.shop.svc.cluster.local", QueryType::A),
        ("10-244-2-9.shop.pod.cluster.local", QueryType::A),
        ("fd00--1.shop.pod.cluster.local", QueryType::Aaaa),
        ("10-244-2.shop.pod.cluster.local", QueryType::A),
        ("dns-version.cluster.local", QueryType::Txt),
        ("other.cluster.local", QueryType::A),
        ("example.org", QueryType::A),
        ("local", QueryType::A),
        ("1.1.96.10.in-addr.arpa", QueryType::Ptr),
        ("9.2.244.10.in-addr.arpa", QueryType::Ptr),
        ("77.2.244.10.in-addr.arpa", QueryType::Ptr),
        ("8.8.8.8.in-addr.arpa", QueryType::Ptr),
    ] {
        all += &format!("{name} {query_type:?}: {}\n", ask(&state, name, query_type));
    }
    expect![[r#"
        web.shop.svc.cluster.local A: Address(10.96.1.1)
        web.shop.svc.cluster.local Aaaa: no records
        web.shop.svc.cluster.local Srv: Srv { number: 80, target: "web.shop.svc.cluster.local", addresses: [10.96.1.1] }
        _http._tcp.web.shop.svc.cluster.local Srv: Srv { number: 80, target: "web.shop.svc.cluster.local", addresses: [10.96.1.1] }
        _http._udp.web.shop.svc.cluster.local Srv: NxDomain
        _tcp.web.shop.svc.cluster.local Srv: no records
        peers.shop.svc.cluster.local A: Address(10.244.1.9) Address(10.244.2.9)
        _http._tcp.peers.shop.svc.cluster.local Srv: Srv { number: 8080, target: "10-244-1-9.peers.shop.svc.cluster.local", addresses: [10.244.1.9] } Srv { number: 8080, target: "two.peers.shop.svc.cluster.local", addresses: [10.244.2.9] }
        two.peers.shop.svc.cluster.local A: Address(10.244.2.9)
        10-244-1-9.peers.shop.svc.cluster.local A: Address(10.244.1.9)
        10-244-2-10.peers.shop.svc.cluster.local A: NxDomain
        empty.shop.svc.cluster.local A: Address(10.96.1.2)
        missing.shop.svc.cluster.local A: NxDomain
        out.shop.svc.cluster.local A: Alias("example.org")
        shop.svc.cluster.local A: no records
        none.svc.cluster.local A: NxDomain
        svc.cluster.local A: no records
        cluster.local Soa: Soa
        example.org.shop.svc.cluster.local A: NxDomain
        10-244-2-9.shop.pod.cluster.local A: Address(10.244.2.9)
        fd00--1.shop.pod.cluster.local Aaaa: Address(fd00::1)
        10-244-2.shop.pod.cluster.local A: NxDomain
        dns-version.cluster.local Txt: Txt("1.1.0")
        other.cluster.local A: NxDomain
        example.org A: OutsideDomain
        local A: OutsideDomain
        1.1.96.10.in-addr.arpa Ptr: Ptr("web.shop.svc.cluster.local")
        9.2.244.10.in-addr.arpa Ptr: Ptr("two.peers.shop.svc.cluster.local")
        77.2.244.10.in-addr.arpa Ptr: NxDomain
        8.8.8.8.in-addr.arpa Ptr: OutsideDomain
    "#]].assert_eq(&all);
}

#[test]
fn only_nodes_on_the_same_network_are_routed() {
    let mut state = state();
    let node = |address: &str, range: &str| {
        let object = json!({
            "spec": {"podCIDR": range},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        Node::decode(&BTreeMap::new(), &object).expect("a node")
    };
    state.put_node("far".into(), node("10.200.0.9", "10.0.9.0/24"));
    state.put_node("greedy".into(), node("172.30.0.9", "0.0.0.0/0"));
    state.put_node("m-same".into(), node("172.30.0.8", "10.244.1.128/25"));
    state.put_node("z-late".into(), node("172.30.0.7", "10.244.2.0/24"));
    let all: Vec<String> = pod_routes(&state, "n1", Ipv4Cidr::parse("172.30.0.0/24").ok())
        .iter()
        .map(|(range, node)| format!("{range} via {node}"))
        .collect();
    expect!["10.244.2.0/24 via 172.30.0.2"].assert_eq(&all.join("\n"));
    assert!(pod_routes(&state, "n1", None).is_empty());
}

#[test]
fn objects_missing_from_a_list_are_removed() {
    let mut state = state();
    assert!(state.retain_services(&BTreeSet::from([ObjectKey::new("shop", "web")])));
    assert!(state.retain_slices(&BTreeSet::from([ObjectKey::new("shop", "web-1")])));
    assert!(!state.retain_slices(&BTreeSet::from([ObjectKey::new("shop", "web-1")])));
    assert!(state.retain_nodes(&BTreeSet::from([ObjectKey::new("", "n1")])));
    assert_eq!(ask(&state, "peers.shop.svc.cluster.local", QueryType::A), "NxDomain");
    assert_eq!(ask(&state, "web.shop.svc.cluster.local", QueryType::A), "Address(10.96.1.1)");
}

#[test]
fn api_servers_are_the_ready_endpoints_of_the_kubernetes_service() {
    let mut state = state();
    let mut put = |namespace: &str, service: &str, name: &str, port: Value, addresses: &[(&str, bool)]| {
        let labels = BTreeMap::from([("kubernetes.io/service-name".to_string(), service.to_string())]);
        let endpoint = |it: &(&str, bool)| json!({"addresses": [it.0], "conditions": {"ready": it.1}});
        let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
        let slice = Slice::decode(&labels, &json!({"ports": [port], "endpoints": endpoints}));
        state.put_slice(ObjectKey::new(namespace, name), slice.expect("a slice"));
    };
    let https = |port: u16| json!({"name": "https", "port": port, "protocol": "TCP"});
    put("default", "kubernetes", "kubernetes", https(6443), &[("10.0.0.6", true), ("10.0.0.5", true)]);
    put("default", "kubernetes", "other-port", https(7443), &[("10.0.0.7", true), ("10.0.0.8", false)]);
    put("default", "kubernetes", "ipv6", https(6443), &[("fd00::5", true)]);
    put("default", "kubernetes", "other-name", json!({"name": "dns", "port": 53}), &[("10.0.0.9", true)]);
    put("shop", "kubernetes", "other-namespace", https(6443), &[("10.0.0.10", true)]);
    put("default", "web", "other-service", https(6443), &[("10.0.0.11", true)]);
    let found: Vec<String> = api_server_addresses(&state).iter().map(|it| it.to_string()).collect();
    assert_eq!(found, ["10.0.0.5:6443", "10.0.0.6:6443", "10.0.0.7:7443", "[fd00::5]:6443"]);
}
