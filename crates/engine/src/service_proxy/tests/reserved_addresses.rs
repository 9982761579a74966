//! No rule captures an address that belongs to something other than the Service.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use expect_test::expect;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The API server, addresses of nodes and pods, cluster IPs, DNS, special addresses, and free ones.
const ADDRESSES: [&str; 14] = [
    "172.30.0.100",
    "172.30.0.1",
    "172.30.0.2",
    "203.0.113.1",
    "10.244.1.5",
    "10.244.2.77",
    "10.96.1.1",
    "10.96.1.2",
    "10.96.0.10",
    "127.0.0.1",
    "169.254.1.1",
    "0.0.0.0",
    "192.0.2.7",
    "198.51.100.9",
];

const PORTS: [u16; 4] = [53, 80, 6443, 10250];

#[derive(Debug, Clone)]
struct Claims {
    cluster_ip: usize,
    external_ips: Vec<usize>,
    ingress: Vec<usize>,
    port: usize,
    node_port: Option<u16>,
    is_local: bool,
    has_endpoints: bool,
    created_s: i64,
}

fn claims() -> impl Strategy<Value = Claims> {
    let address = 0..ADDRESSES.len();
    (
        address.clone(),
        vec(address.clone(), 0..4),
        vec(address, 0..3),
        0..PORTS.len(),
        prop::option::of(prop::sample::select(&[6443_u16, 30_001, 30_002][..])),
        any::<bool>(),
        any::<bool>(),
        0..3_i64,
    )
        .prop_map(
            |(cluster_ip, external_ips, ingress, port, node_port, is_local, has_endpoints, created_s)| {
                Claims {
                    cluster_ip,
                    external_ips,
                    ingress,
                    port,
                    node_port,
                    is_local,
                    has_endpoints,
                    created_s,
                }
            },
        )
}

fn claimed(all: &[Claims]) -> ProxyState {
    let mut state = state();
    let second = json!({
        "spec": {"podCIDR": "10.244.2.0/24"},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "172.30.0.2"},
            {"type": "ExternalIP", "address": "203.0.113.1"},
        ]},
    });
    state.put_node("n2".into(), Node::decode(&BTreeMap::new(), &second).expect("a node"));
    let text = |at: &Vec<usize>| at.iter().map(|it| ADDRESSES[*it]).collect::<Vec<_>>();
    for (at, it) in all.iter().enumerate() {
        let name = format!("s{at}");
        let ingress: Vec<Value> = text(&it.ingress).iter().map(|it| json!({"ip": it})).collect();
        let object = json!({
            "spec": {
                "clusterIP": ADDRESSES[it.cluster_ip],
                "externalIPs": text(&it.external_ips),
                "externalTrafficPolicy": if it.is_local { "Local" } else { "Cluster" },
                "ports": [{"name": "http", "port": PORTS[it.port], "nodePort": it.node_port}],
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let created = Time::from_secs(it.created_s);
        state.put_service(
            ObjectKey::new("shop", &*name),
            Service::decode(created, &object).expect("a service"),
        );
        if it.has_endpoints {
            slice(&mut state, &name, &format!("{name}-1"), json!({"endpoints": [endpoint(1, 5)]}));
        }
    }
    state
}

/// The addresses that the rules of a table capture, each with its verdict, which names the Service.
fn captured(table: &NftTable) -> Vec<(Ipv4Addr, String)> {
    let mut captured = Vec::new();
    for set in ["services", "refused", "cluster-ips"] {
        for (key, verdict) in &table.sets[set].elements {
            let address = key.split(' ').next().expect("an address");
            captured.push((address.parse().expect("an address"), format!("{set} {verdict}")));
        }
    }
    captured
}

proptest! {
    #[test]
    fn no_address_of_the_cluster_is_captured_by_a_service_that_does_not_own_it(all in vec(claims(), 0..6)) {
        let state = claimed(&all);
        // The operator allows all external addresses.
        let me = ThisNode { external_ips: [Ipv4Cidr::parse("0.0.0.0/0").expect("a range")].into(), ..me() };
        let made = build_table(&state, &me, &pod_routes(&state, "n1", Ipv4Cidr::parse("172.30.0.0/24").ok()));
        let nodes: BTreeSet<Ipv4Addr> =
            ["172.30.0.1", "172.30.0.2", "203.0.113.1"].iter().map(|it| it.parse().expect("it is one")).collect();
        let owners = |address: Ipv4Addr| -> Vec<String> {
            let all = state.services.iter().filter(|(_, it)| match &it.kind {
                ServiceType::Cluster(own) => own.contains(&address.into()),
                _ => false,
            });
            all.map(|(key, _)| key.to_string()).collect()
        };
        for (address, rule) in captured(&made) {
            prop_assert!(address != Ipv4Addr::new(172, 30, 0, 100), "the API server: {rule}");
            prop_assert!(address != Ipv4Addr::new(172, 30, 0, 1), "this node: {rule}");
            prop_assert!(!Ipv4Cidr::parse("10.244.1.0/24").expect("a range").contains(address), "pod {address}: {rule}");
            let owners = owners(address);
            // Cluster IPs have a range of their own: addresses in other Node objects do not override them.
            if owners.is_empty() {
                prop_assert!(!nodes.contains(&address), "node {address}: {rule}");
                prop_assert!(!Ipv4Cidr::parse("10.244.0.0/16").expect("a range").contains(address), "pod {address}: {rule}");
            }
            if !owners.is_empty() || Some(address) == me.dns {
                prop_assert!(!rule.contains("goto out/") && !rule.starts_with("refused"), "{address}: {rule}");
                let is_own = |it: &String| rule.contains(&format!("/{it}/"));
                let is_led = rule.contains("goto ");
                prop_assert!(!is_led || owners.iter().any(is_own), "{address} of {owners:?}: {rule}");
            }
        }
        // An external address and port belongs to the oldest Service that has it.
        for set in ["services", "refused"] {
            for (element, verdict) in &made.sets[set].elements {
                let mut parts = element.split(" . ");
                let address: Ipv4Addr = parts.next().expect("an address").parse().expect("an address");
                let protocol = parts.next().expect("a protocol");
                let port: u16 = parts.next().expect("a port").parse().expect("a port");
                let has = |it: &Service| it.external_ips.contains(&address) || it.ingress.contains(&address);
                let is_same = |it: &Port| it.number == port && it.protocol.as_str() == protocol;
                let of_port = |it: &Service| has(it) && it.ports.iter().any(is_same);
                let all = state.services.iter().filter(|(_, it)| of_port(it));
                let Some((oldest, it)) = all.min_by_key(|(key, it)| (it.created, *key)) else { continue };
                let is_led = verdict.contains("goto out/");
                prop_assert!(!is_led || verdict.contains(&format!("/{oldest}/")), "{element} of {oldest}: {verdict}");
                let has_endpoints = state.slices_of(oldest).next().is_some();
                prop_assert!(set == "services" || !has_endpoints, "{element} of {oldest} {it:?} is refused");
            }
        }
        // The rule for the API server comes first.
        for chain in ["nat-prerouting", "nat-output", "filter-forward", "filter-output"] {
            prop_assert_eq!(made.chains[chain].rules[0].as_str(), "ip daddr . tcp dport @api-server accept");
        }
        prop_assert!(made.sets["api-server"].elements.contains_key("172.30.0.100 . 6443"));
    }
}

#[test]
fn only_allowed_external_addresses_are_programmed() {
    let mut state = state();
    service(
        &mut state,
        "open",
        json!({
            "clusterIP": "10.96.1.3",
            "externalIPs": ["192.0.2.9", "198.51.100.9", "172.30.0.100", "10.96.1.1"],
            "ports": [{"port": 80}],
        }),
    );
    let of = |external_ips: &[&str]| {
        let external_ips = external_ips.iter().filter_map(|it| Ipv4Cidr::parse(it).ok()).collect();
        let me = ThisNode { external_ips, ..me() };
        let made = build_table(&state, &me, &pod_routes(&state, "n1", Ipv4Cidr::parse("172.30.0.0/24").ok()));
        let mut refused: Vec<&str> = made.sets["refused"].elements.keys().map(String::as_str).collect();
        refused.sort_unstable();
        refused.join(", ")
    };
    let said = [of(&[]), of(&["192.0.2.0/24"]), of(&["0.0.0.0/0"])];
    expect![[r#"

        192.0.2.7 . udp . 53, 192.0.2.9 . tcp . 80
        192.0.2.7 . udp . 53, 192.0.2.9 . tcp . 80, 198.51.100.9 . tcp . 80"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn addresses_in_other_node_objects_do_not_override_a_cluster_ip() {
    let mut state = state();
    service(&mut state, "web", json!({"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 443}]}));
    slice(&mut state, "web", "web-1", json!({"endpoints": [endpoint(1, 5)]}));
    let before = made(&state);
    let evil = json!({
        "spec": {"podCIDR": "10.96.0.0/24"},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "10.96.0.1"},
            {"type": "ExternalIP", "address": "10.96.1.1"},
        ]},
    });
    state.put_node("evil".into(), Node::decode(&BTreeMap::new(), &evil).expect("a node"));
    let after = made(&state);
    for set in ["services", "cluster-ips"] {
        assert_eq!(after.sets[set].elements, before.sets[set].elements, "{set}");
    }
    assert!(after.sets["services"].elements.contains_key("10.96.0.1 . tcp . 443"));
    // The addresses of this node come from its kernel, not from Node objects.
    let here = ThisNode { addresses: [[10, 96, 0, 1].into()].into(), ..me() };
    let made = build_table(&state, &here, &pod_routes(&state, "n1", Ipv4Cidr::parse("172.30.0.0/24").ok()));
    assert!(!made.sets["services"].elements.contains_key("10.96.0.1 . tcp . 443"));
}

#[test]
fn a_younger_service_does_not_take_an_external_address_from_an_older_one() {
    let claim =
        |state: &mut ProxyState, name: &str, created_s: i64, cluster_ip: &str, has_endpoints: bool| {
            let object = json!({"spec": {
                "clusterIP": cluster_ip,
                "externalIPs": ["192.0.2.9"],
                "ports": [{"name": "http", "port": 80}],
            }});
            let service = Service::decode(Time::from_secs(created_s), &object).expect("a service");
            state.put_service(ObjectKey::new("shop", name), service);
            if has_endpoints {
                slice(state, name, &format!("{name}-1"), json!({"endpoints": [endpoint(1, 5)]}));
            }
        };
    let external = |state: &ProxyState| {
        let table = build_table(state, &me(), &pod_routes(state, "n1", None));
        let of = |set: &str| table.sets[set].elements.get("192.0.2.9 . tcp . 80").cloned();
        (of("services"), of("refused"))
    };
    let mut state = state();
    claim(&mut state, "a-younger", 20, "10.96.1.3", true);
    claim(&mut state, "z-older", 10, "10.96.1.4", true);
    assert_eq!(external(&state), (Some("goto out/shop/z-older/tcp/80".into()), None));
    // The address of a Service without endpoints is not free.
    let key = ObjectKey::new("shop", "z-older-1");
    state.remove_slice(&key);
    assert_eq!(external(&state), (None, Some(String::new())));
    state.remove_service(&ObjectKey::new("shop", "z-older"));
    assert_eq!(external(&state), (Some("goto out/shop/a-younger/tcp/80".into()), None));
}
