use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::service_proxy::{Service, Slice};
use serde_json::json;

use super::*;

/// A Service with an address, a headless one with so many endpoints, and three that are other names.
fn proxy_state(endpoints: u32) -> ProxyState {
    let mut proxy_state = ProxyState::default();
    for (name, spec) in [
        ("web", json!({"clusterIP": "10.96.1.1", "ports": [{"name": "http", "port": 80}]})),
        ("peers", json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]})),
        ("alias", json!({"type": "ExternalName", "externalName": "Web.shop.svc.cluster.local."})),
        ("outside", json!({"type": "ExternalName", "externalName": "example.org"})),
        ("circle", json!({"type": "ExternalName", "externalName": "circle.shop.svc.cluster.local"})),
    ] {
        let service = Service::decode(Time::default(), &json!({"spec": spec})).expect("a service");
        proxy_state.put_service(ObjectKey::new("shop", name), service);
    }
    let of = |it: u32| json!({"addresses": [std::net::Ipv4Addr::from(0x0af4_0000 + it).to_string()]});
    let slice = json!({
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": (1..=endpoints).map(of).collect::<Vec<_>>(),
    });
    let labels = BTreeMap::from([("kubernetes.io/service-name".to_owned(), "peers".to_owned())]);
    proxy_state
        .put_slice(ObjectKey::new("shop", "peers-1"), Slice::decode(&labels, &slice).expect("a slice"));
    proxy_state
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    message
}

fn reply(proxy_state: Option<&ProxyState>, message: &Message, is_udp: bool) -> DnsAction {
    let known = ZoneData { proxy_state, domain: "cluster.local" };
    decide_action(&known, &message.to_vec().expect("bytes"), is_udp, 0)
}

fn said(reply: &DnsAction) -> Message {
    match reply {
        DnsAction::Respond(bytes) => Message::from_vec(bytes).expect("an answer"),
        other => panic!("{other:?}"),
    }
}

fn told(reply: DnsAction) -> String {
    let DnsAction::Respond(_) = reply else { return format!("{reply:?}") };
    let message = said(&reply);
    let mut text = format!("{:?}", message.metadata.response_code);
    for (flag, is_set) in [
        ("aa", message.metadata.authoritative),
        ("tc", message.metadata.truncation),
        ("ra", message.metadata.recursion_available),
    ] {
        if is_set {
            text += &format!(" {flag}");
        }
    }
    for (section, records) in
        [("", &message.answers), ("authority ", &message.authorities), ("more ", &message.additionals)]
    {
        for record in records {
            text += &format!("\n{section}{record}");
        }
    }
    text
}

fn check(name: &str, kind: RecordType, expected: Expect) {
    expected.assert_eq(&told(reply(Some(&proxy_state(2)), &question(name, kind), true)));
}

#[test]
fn a_service_and_missing_names() {
    check(
        "WEB.shop.svc.cluster.local.",
        RecordType::A,
        expect![[r#"
        NoError aa ra
        WEB.shop.svc.cluster.local. 5 IN A 10.96.1.1"#]],
    );
    check(
        "web.shop.svc.cluster.local.",
        RecordType::AAAA,
        expect![[r#"
        NoError aa ra
        authority cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"#]],
    );
    check(
        "web.shop.svc.cluster.local.",
        RecordType::ANY,
        expect![[r#"
        NoError aa ra
        authority cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"#]],
    );
    check(
        "nothing.shop.svc.cluster.local.",
        RecordType::A,
        expect![[r#"
        NXDomain aa ra
        authority cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"#]],
    );
    check(
        "cluster.local.",
        RecordType::SOA,
        expect![[r#"
        NoError aa ra
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"#]],
    );
    check(
        "cluster.local.",
        RecordType::NS,
        expect![[r#"
        NoError aa ra
        cluster.local. 5 IN NS ns.dns.cluster.local."#]],
    );
}

#[test]
fn ports_and_addresses_back_to_names() {
    check(
        "_http._tcp.peers.shop.svc.cluster.local.",
        RecordType::SRV,
        expect![[r#"
        NoError aa ra
        _http._tcp.peers.shop.svc.cluster.local. 5 IN SRV 0 100 8080 10-244-0-1.peers.shop.svc.cluster.local.
        _http._tcp.peers.shop.svc.cluster.local. 5 IN SRV 0 100 8080 10-244-0-2.peers.shop.svc.cluster.local.
        more 10-244-0-1.peers.shop.svc.cluster.local. 5 IN A 10.244.0.1
        more 10-244-0-2.peers.shop.svc.cluster.local. 5 IN A 10.244.0.2"#]],
    );
    check(
        "1.1.96.10.in-addr.arpa.",
        RecordType::PTR,
        expect![[r#"
        NoError aa ra
        1.1.96.10.in-addr.arpa. 5 IN PTR web.shop.svc.cluster.local."#]],
    );
    check(
        "dns-version.cluster.local.",
        RecordType::TXT,
        expect![[r#"
        NoError aa ra
        dns-version.cluster.local. 5 IN TXT 1.1.0"#]],
    );
}

#[test]
fn aliases() {
    check(
        "alias.shop.svc.cluster.local.",
        RecordType::A,
        expect![[r#"
        NoError aa ra
        alias.shop.svc.cluster.local. 5 IN CNAME Web.shop.svc.cluster.local.
        Web.shop.svc.cluster.local. 5 IN A 10.96.1.1"#]],
    );
    check(
        "outside.shop.svc.cluster.local.",
        RecordType::CNAME,
        expect![[r#"
        NoError aa ra
        outside.shop.svc.cluster.local. 5 IN CNAME example.org."#]],
    );
    check("circle.shop.svc.cluster.local.", RecordType::A, expect!["ServFail aa ra"]);
    let half =
        reply(Some(&proxy_state(1)), &question("outside.shop.svc.cluster.local.", RecordType::A), true);
    let DnsAction::CompleteAlias(half) = half else { panic!("{half:?}") };
    let mut rest = question("example.org.", RecordType::A).into_response();
    let example = Name::from_ascii("example.org.").expect("a name");
    rest.add_answer(Record::from_rdata(example, 300, address_data([192, 0, 2, 1].into())));
    let bytes = half.complete_alias(Some(&rest.to_vec().expect("bytes")));
    expect![[r#"
        NoError aa ra
        outside.shop.svc.cluster.local. 5 IN CNAME example.org.
        example.org. 300 IN A 192.0.2.1"#]]
    .assert_eq(&told(DnsAction::Respond(bytes)));
}

#[test]
fn others_are_asked_about_the_rest() {
    let ask = |name| reply(Some(&proxy_state(1)), &question(name, RecordType::A), true);
    assert_eq!(ask("example.org."), DnsAction::Forward);
    assert_eq!(ask("cluster.local.example.org."), DnsAction::Forward);
    assert_eq!(ask("."), DnsAction::Forward);
}

#[test]
fn no_name_is_denied_before_the_cache_is_synced() {
    let ask = |name| told(reply(None, &question(name, RecordType::A), true));
    expect!["ServFail ra"].assert_eq(&ask("web.shop.svc.cluster.local."));
    expect!["Forward"].assert_eq(&ask("example.org."));
}

#[test]
fn an_answer_that_is_too_long_is_cut() {
    let (many, peers) = (proxy_state(300), "peers.shop.svc.cluster.local.");
    let small = reply(Some(&many), &question(peers, RecordType::A), true);
    let DnsAction::Respond(bytes) = &small else { panic!("{small:?}") };
    assert!(bytes.len() <= 512, "{}", bytes.len());
    assert!(said(&small).metadata.truncation);
    assert!(20 < said(&small).answers.len(), "{}", said(&small).answers.len());

    let mut larger = question(peers, RecordType::A);
    larger.set_edns(Edns::new());
    larger.edns.as_mut().expect("it was set").set_max_payload(1_232);
    let cut = reply(Some(&many), &larger, true);
    assert!(said(&cut).edns.is_some() && said(&cut).metadata.truncation && 60 < said(&cut).answers.len());

    let whole = said(&reply(Some(&many), &larger, false));
    assert_eq!((whole.answers.len(), whole.metadata.truncation), (300, false));
}

#[test]
fn answers_take_turns() {
    let known = proxy_state(3);
    let known = ZoneData { proxy_state: Some(&known), domain: "cluster.local" };
    let request = question("peers.shop.svc.cluster.local.", RecordType::A).to_vec().expect("bytes");
    let first = |turn| said(&decide_action(&known, &request, true, turn)).answers[0].data.to_string();
    assert_eq!(
        [first(0), first(1), first(2), first(3)],
        ["10.244.0.1", "10.244.0.2", "10.244.0.3", "10.244.0.1"]
    );
}

#[test]
fn messages_that_are_no_query() {
    let known = ZoneData { proxy_state: None, domain: "cluster.local" };
    assert_eq!(decide_action(&known, &[], true, 0), DnsAction::Ignore);
    assert_eq!(decide_action(&known, &[0, 7], true, 0), DnsAction::Ignore);
    expect!["FormErr"].assert_eq(&told(decide_action(&known, &[0, 7, 0, 0, 0], true, 0)));
    let ours = question("example.org.", RecordType::A);
    assert_eq!(reply(None, &ours.clone().into_response(), true), DnsAction::Ignore);
    let mut two = ours.clone();
    two.add_query(ours.queries[0].clone());
    expect!["FormErr ra"].assert_eq(&told(reply(None, &two, true)));
    let mut update = ours.clone();
    update.metadata.op_code = OpCode::Update;
    expect!["NotImp ra"].assert_eq(&told(reply(None, &update, true)));
    let mut chaos = ours.clone();
    chaos.queries[0].query_class = DNSClass::CH;
    expect!["Refused ra"].assert_eq(&told(reply(None, &chaos, true)));
    expect!["Refused ra"].assert_eq(&told(reply(None, &question("cluster.local.", RecordType::AXFR), false)));
}
