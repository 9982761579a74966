//! What a name in the cluster's domain stands for. Upstream: the specification of DNS-based service discovery, and CoreDNS
//! where that leaves something open.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use muster_api::meta::ObjectKey;
use muster_api::text::Text;

use super::Picture;
use super::facts::{Endpoint, Kind, Service, Slice};

/// The version of the specification that the names follow.
const SPECIFICATION: &str = "1.1.0";

#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// In lower case, the first one first.
    pub labels: &'a [String],
    pub asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    A,
    Aaaa,
    Srv,
    Ptr,
    Txt,
    Soa,
    Ns,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Somebody else knows.
    NotOurs,
    NoName,
    /// There is such a name, be it with nothing of what was asked for.
    Records(Vec<Record>),
    /// Another name for this one.
    Alias(Text),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    Address(IpAddr),
    /// A port, and where it is.
    Port {
        number: u16,
        target: String,
        addresses: Vec<IpAddr>,
    },
    Pointer(String),
    Text(&'static str),
    /// The domain's own.
    Authority,
    NameServer,
}

/// Rule: a Service's name leads to its address, that of a headless one to its ready endpoints; names that are not in the
/// cluster's domain are somebody else's.
pub fn resolve(picture: &Picture, domain: &str, question: Question<'_>) -> Answer {
    let Question { labels, asked } = question;
    if let [d, c, b, a, "in-addr", "arpa"] = &labels.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return match format!("{a}.{b}.{c}.{d}").parse() {
            Ok(address) => reverse(picture, domain, address, asked),
            Err(_) => Answer::NotOurs,
        };
    }
    let of_domain: Vec<&str> = domain.split('.').collect();
    let Some(count) = labels.len().checked_sub(of_domain.len()) else { return Answer::NotOurs };
    let (inner, outer) = labels.split_at(count);
    if !outer.iter().zip(&of_domain).all(|(one, other)| *one == **other) {
        return Answer::NotOurs;
    }
    let inner: Vec<&str> = inner.iter().map(String::as_str).collect();
    let nothing = || Answer::Records(Vec::new());
    let places = Places { picture, domain };
    match &inner[..] {
        [] => Answer::Records(match asked {
            Asked::Soa => [Record::Authority].into(),
            Asked::Ns => [Record::NameServer].into(),
            _ => Vec::new(),
        }),
        ["dns-version"] if asked == Asked::Txt => Answer::Records([Record::Text(SPECIFICATION)].into()),
        ["dns-version"] | ["svc" | "pod"] | [_, "pod"] => nothing(),
        [namespace, "svc"] if places.has(namespace) => nothing(),
        [name, namespace, "svc"] => places.service(namespace, name, asked),
        ["_tcp" | "_udp" | "_sctp", name, namespace, "svc"] if places.get(namespace, name).is_some() => {
            nothing()
        }
        [host, name, namespace, "svc"] => places.endpoint(namespace, name, host, asked),
        [port, protocol, name, namespace, "svc"] => {
            match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                (Some(port), Some(protocol)) => places.port(namespace, name, port, protocol, asked),
                _ => Answer::NoName,
            }
        }
        [host, _, "pod"] => match undashed(host) {
            Some(address) => Answer::Records(of_kind([address], asked)),
            None => Answer::NoName,
        },
        _ => Answer::NoName,
    }
}

struct Places<'a> {
    picture: &'a Picture,
    domain: &'a str,
}

impl<'a> Places<'a> {
    fn has(&self, namespace: &str) -> bool {
        let first = ObjectKey::new(namespace, "");
        let next = self.picture.services.range(first..).next();
        next.is_some_and(|(key, _)| *key.namespace == *namespace)
    }

    fn get(&self, namespace: &str, name: &str) -> Option<(ObjectKey, &'a Service)> {
        let key = ObjectKey::new(namespace, name);
        let service = self.picture.services.get(&key)?;
        Some((key, service))
    }

    fn service(&self, namespace: &str, name: &str, asked: Asked) -> Answer {
        let Some((key, service)) = self.get(namespace, name) else { return Answer::NoName };
        let all = |_: &str, _: &str| true;
        match (&service.kind, asked) {
            (Kind::External(target), _) => match target.parse() {
                Ok(address) => Answer::Records(of_kind([address], asked)),
                Err(_) => Answer::Alias(target.clone()),
            },
            (_, Asked::Srv) => Answer::Records(self.ports(&key, service, all)),
            (Kind::Cluster(addresses), _) => Answer::Records(of_kind(addresses.iter().copied(), asked)),
            (Kind::Headless, _) => {
                let ready = self.ready(&key).map(|(_, it)| it.address);
                Answer::Records(of_kind(ready, asked))
            }
        }
    }

    fn endpoint(&self, namespace: &str, name: &str, host: &str, asked: Asked) -> Answer {
        let Some((key, _)) = self.get(namespace, name) else { return Answer::NoName };
        let named: Vec<_> = self.ready(&key).filter(|(_, it)| host_of(it) == *host).collect();
        if named.is_empty() {
            return Answer::NoName;
        }
        if asked == Asked::Srv {
            let ports = named.iter().flat_map(|(slice, it)| slice.ports.iter().map(move |port| (*it, port)));
            let ports = ports.map(|(it, port)| self.at(&key, it, port.number));
            return Answer::Records(once(ports));
        }
        Answer::Records(of_kind(named.iter().map(|(_, it)| it.address), asked))
    }

    fn port(&self, namespace: &str, name: &str, port: &str, protocol: &str, asked: Asked) -> Answer {
        let Some((key, service)) = self.get(namespace, name) else { return Answer::NoName };
        let ports = self.ports(&key, service, |a, b| a == port && b == protocol);
        match (ports.is_empty(), asked) {
            (true, _) => Answer::NoName,
            (false, Asked::Srv) => Answer::Records(ports),
            (false, _) => Answer::Records(Vec::new()),
        }
    }

    fn ports(&self, key: &ObjectKey, service: &Service, wanted: impl Fn(&str, &str) -> bool) -> Vec<Record> {
        match &service.kind {
            Kind::External(_) => Vec::new(),
            Kind::Cluster(addresses) => {
                let ports = service.ports.iter().filter(|it| wanted(&it.name, it.protocol.as_str()));
                let target = self.name(key);
                once(ports.map(|it| Record::Port {
                    number: it.number,
                    target: target.clone(),
                    addresses: addresses.clone(),
                }))
            }
            Kind::Headless => once(self.ready(key).flat_map(|(slice, endpoint)| {
                let ports = slice.ports.iter().filter(|it| wanted(&it.name, it.protocol.as_str()));
                ports.map(|it| self.at(key, endpoint, it.number)).collect::<Vec<_>>()
            })),
        }
    }

    fn at(&self, key: &ObjectKey, endpoint: &Endpoint, number: u16) -> Record {
        let target = format!("{}.{}", host_of(endpoint), self.name(key));
        Record::Port { number, target, addresses: [endpoint.address].into() }
    }

    fn ready(&self, key: &ObjectKey) -> impl Iterator<Item = (&'a Slice, &'a Endpoint)> + use<'a> {
        let slices = self.picture.slices.get(key).into_iter().flat_map(|it| it.values());
        slices.flat_map(|slice| slice.endpoints.iter().filter(|it| it.ready).map(move |it| (slice, it)))
    }

    fn name(&self, key: &ObjectKey) -> String {
        format!("{}.{}.svc.{}", key.name, key.namespace, self.domain)
    }
}

/// Rule: an address of a Service leads back to its name, and that of an endpoint to its name within its Service. Of addresses
/// that are the cluster's nobody else knows anything.
fn reverse(picture: &Picture, domain: &str, address: Ipv4Addr, asked: Asked) -> Answer {
    let places = Places { picture, domain };
    let address = IpAddr::V4(address);
    let is_its =
        |it: &&ObjectKey| matches!(&picture.services[*it].kind, Kind::Cluster(its) if its.contains(&address));
    let of_service = picture.services.keys().find(is_its).map(|it| places.name(it));
    let names: Vec<String> = match of_service {
        Some(name) => [name].into(),
        None => {
            let keys = picture.slices.keys().filter(|it| picture.services.contains_key(it));
            let all = keys.flat_map(|key| places.ready(key).map(move |(_, it)| (key, it)));
            let its = all.filter(|(_, it)| it.address == address);
            its.map(|(key, it)| format!("{}.{}", host_of(it), places.name(key))).collect()
        }
    };
    let is_pods =
        |it: Ipv4Addr| picture.nodes.values().filter_map(|it| it.range).any(|range| range.contains(it));
    match address {
        _ if !names.is_empty() && asked == Asked::Ptr => {
            Answer::Records(once(names.into_iter().map(Record::Pointer)))
        }
        _ if !names.is_empty() => Answer::Records(Vec::new()),
        IpAddr::V4(it) if is_pods(it) => Answer::NoName,
        _ => Answer::NotOurs,
    }
}

/// What a single endpoint is called: as it says, or as its address.
fn host_of(endpoint: &Endpoint) -> String {
    match (&endpoint.hostname, endpoint.address) {
        (Some(hostname), _) => hostname.to_string(),
        (None, IpAddr::V4(it)) => it.to_string().replace('.', "-"),
        (None, IpAddr::V6(it)) => it.to_string().replace(':', "-"),
    }
}

fn undashed(host: &str) -> Option<IpAddr> {
    let v4 = host.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    v4.ok().or_else(|| host.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6).ok())
}

/// Those of the family that was asked for, each once.
fn of_kind(addresses: impl IntoIterator<Item = IpAddr>, asked: Asked) -> Vec<Record> {
    let wanted = addresses.into_iter().filter(|it| match asked {
        Asked::A => it.is_ipv4(),
        Asked::Aaaa => it.is_ipv6(),
        _ => false,
    });
    once(wanted.map(Record::Address))
}

/// Each once, and in an order that does not depend on where it was found.
fn once(records: impl Iterator<Item = Record>) -> Vec<Record> {
    records.collect::<BTreeSet<_>>().into_iter().collect()
}
