//! Resolves DNS names in the cluster domain. Upstream: the specification of DNS-based service discovery, and CoreDNS
//! for details that the specification does not define.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

use super::ProxyState;
use super::facts::{Endpoint, Service, ServiceType, Slice};

/// Version of the DNS-based service discovery specification. It is the content of the TXT record `dns-version`.
const DNS_SPECIFICATION_VERSION: &str = "1.1.0";

/// A DNS query for one name and one record type.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The labels of the queried name in lower case, leftmost first.
    pub labels: &'a [String],
    /// The queried record type, such as `A`.
    pub query_type: QueryType,
}

/// The record type of a DNS query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryType {
    A,
    Aaaa,
    Srv,
    Ptr,
    Txt,
    Soa,
    Ns,
    /// Any other record type. The service proxy has no records of these types.
    Other,
}

/// The answer to a DNS query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The name is not in the cluster domain, and is not the reverse name of an address in the cluster. The query must
    /// be forwarded to another DNS server.
    OutsideDomain,
    /// The name is in the cluster domain, or is the reverse name of a pod address, but does not exist.
    NxDomain,
    /// The name exists. Holds its records of the queried type, possibly none.
    Records(Vec<Record>),
    /// The name is an alias of this other name (CNAME record).
    Alias(Text),
}

/// A DNS record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// An A or AAAA record with this address.
    Address(IpAddr),
    /// An SRV record. `target` is a fully qualified name, and `addresses` are its addresses.
    Srv {
        /// The port number in the SRV record.
        number: u16,
        target: String,
        addresses: Vec<IpAddr>,
    },
    /// A PTR record with this name.
    Ptr(String),
    Txt(&'static str),
    /// The SOA record of the cluster domain.
    Soa,
    /// The NS record of the cluster domain.
    Ns,
}

/// Answers a DNS query. `domain` is the cluster domain, such as `cluster.local`.
///
/// Rule: the name of a Service resolves to its cluster IP, the name of a headless Service to its ready endpoints, and
/// the name of an ExternalName Service to its external name. Queries for names outside the cluster domain are
/// forwarded, except for the reverse names of cluster IPs of Services, of ready endpoints, and of addresses in the pod
/// CIDRs of nodes.
pub fn resolve(state: &ProxyState, domain: &str, question: Question<'_>) -> Answer {
    let Question { labels, query_type } = question;
    if let [d, c, b, a, "in-addr", "arpa"] = &labels.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return match format!("{a}.{b}.{c}.{d}").parse() {
            Ok(address) => resolve_reverse(state, domain, address, query_type),
            Err(_) => Answer::OutsideDomain,
        };
    }
    let of_domain: Vec<&str> = domain.split('.').collect();
    let Some(count) = labels.len().checked_sub(of_domain.len()) else { return Answer::OutsideDomain };
    let (inner, outer) = labels.split_at(count);
    if !outer.iter().zip(&of_domain).all(|(one, other)| *one == **other) {
        return Answer::OutsideDomain;
    }
    let inner: Vec<&str> = inner.iter().map(String::as_str).collect();
    let nothing = || Answer::Records(Vec::new());
    let resolver = Resolver { state, domain };
    match &inner[..] {
        [] => Answer::Records(match query_type {
            QueryType::Soa => [Record::Soa].into(),
            QueryType::Ns => [Record::Ns].into(),
            _ => Vec::new(),
        }),
        ["dns-version"] if query_type == QueryType::Txt => {
            Answer::Records([Record::Txt(DNS_SPECIFICATION_VERSION)].into())
        }
        ["dns-version"] | ["svc" | "pod"] | [_, "pod"] => nothing(),
        [namespace, "svc"] if resolver.has_namespace(namespace) => nothing(),
        [name, namespace, "svc"] => resolver.resolve_service(namespace, name, query_type),
        ["_tcp" | "_udp" | "_sctp", name, namespace, "svc"]
            if resolver.find_service(namespace, name).is_some() =>
        {
            nothing()
        }
        [host, name, namespace, "svc"] => resolver.resolve_endpoint(namespace, name, host, query_type),
        [port, protocol, name, namespace, "svc"] => {
            match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                (Some(port), Some(protocol)) => {
                    resolver.resolve_port(namespace, name, port, protocol, query_type)
                }
                _ => Answer::NxDomain,
            }
        }
        [host, _, "pod"] => match parse_dashed_address(host) {
            Some(address) => Answer::Records(address_records([address], query_type)),
            None => Answer::NxDomain,
        },
        _ => Answer::NxDomain,
    }
}

/// Resolves names in the cluster domain from the state of the service proxy.
struct Resolver<'a> {
    state: &'a ProxyState,
    /// The cluster domain, such as `cluster.local`.
    domain: &'a str,
}

impl<'a> Resolver<'a> {
    /// Whether the namespace exists for DNS, that is, has at least one Service.
    fn has_namespace(&self, namespace: &str) -> bool {
        let first = ObjectKey::new(namespace, "");
        let next = self.state.services.range(first..).next();
        next.is_some_and(|(key, _)| *key.namespace == *namespace)
    }

    /// Returns the Service with this namespace and name, together with its key. `None` if it does not exist.
    fn find_service(&self, namespace: &str, name: &str) -> Option<(ObjectKey, &'a Service)> {
        let key = ObjectKey::new(namespace, name);
        let service = self.state.services.get(&key)?;
        Some((key, service))
    }

    /// Resolves the name of a Service, `NAME.NAMESPACE.svc`.
    fn resolve_service(&self, namespace: &str, name: &str, query_type: QueryType) -> Answer {
        let Some((key, service)) = self.find_service(namespace, name) else { return Answer::NxDomain };
        let all = |_: &str, _: &str| true;
        match (&service.kind, query_type) {
            (ServiceType::External(target), _) => match target.parse() {
                Ok(address) => Answer::Records(address_records([address], query_type)),
                Err(_) => Answer::Alias(target.clone()),
            },
            (_, QueryType::Srv) => Answer::Records(self.srv_records(&key, service, all)),
            (ServiceType::Cluster(addresses), _) => {
                Answer::Records(address_records(addresses.iter().copied(), query_type))
            }
            (ServiceType::Headless, _) => {
                let ready = self.ready_endpoints(&key).map(|(_, it)| it.address);
                Answer::Records(address_records(ready, query_type))
            }
        }
    }

    /// Resolves the name of an endpoint of a Service, `HOST.NAME.NAMESPACE.svc`.
    fn resolve_endpoint(&self, namespace: &str, name: &str, host: &str, query_type: QueryType) -> Answer {
        let Some((key, _)) = self.find_service(namespace, name) else { return Answer::NxDomain };
        let named: Vec<_> =
            self.ready_endpoints(&key).filter(|(_, it)| endpoint_hostname(it) == *host).collect();
        if named.is_empty() {
            return Answer::NxDomain;
        }
        if query_type == QueryType::Srv {
            let ports = named.iter().flat_map(|(slice, it)| slice.ports.iter().map(move |port| (*it, port)));
            let ports = ports.map(|(it, port)| self.srv_record(&key, it, port.number));
            return Answer::Records(sorted_unique_records(ports));
        }
        Answer::Records(address_records(named.iter().map(|(_, it)| it.address), query_type))
    }

    /// Resolves the name of a Service port, `_PORT._PROTOCOL.NAME.NAMESPACE.svc`, to its SRV records.
    fn resolve_port(
        &self,
        namespace: &str,
        name: &str,
        port: &str,
        protocol: &str,
        query_type: QueryType,
    ) -> Answer {
        let Some((key, service)) = self.find_service(namespace, name) else { return Answer::NxDomain };
        let ports = self.srv_records(&key, service, |a, b| a == port && b == protocol);
        match (ports.is_empty(), query_type) {
            (true, _) => Answer::NxDomain,
            (false, QueryType::Srv) => Answer::Records(ports),
            (false, _) => Answer::Records(Vec::new()),
        }
    }

    /// Returns the SRV records of the ports of a Service that `wanted` selects by name and protocol.
    fn srv_records(
        &self,
        key: &ObjectKey,
        service: &Service,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Vec<Record> {
        match &service.kind {
            ServiceType::External(_) => Vec::new(),
            ServiceType::Cluster(addresses) => {
                let ports = service.ports.iter().filter(|it| wanted(&it.name, it.protocol.as_str()));
                let target = self.service_fqdn(key);
                sorted_unique_records(ports.map(|it| Record::Srv {
                    number: it.number,
                    target: target.clone(),
                    addresses: addresses.clone(),
                }))
            }
            ServiceType::Headless => {
                sorted_unique_records(self.ready_endpoints(key).flat_map(|(slice, endpoint)| {
                    let ports = slice.ports.iter().filter(|it| wanted(&it.name, it.protocol.as_str()));
                    ports.map(|it| self.srv_record(key, endpoint, it.number)).collect::<Vec<_>>()
                }))
            }
        }
    }

    /// Returns the SRV record of a port of an endpoint. `number` is the port number.
    fn srv_record(&self, key: &ObjectKey, endpoint: &Endpoint, number: u16) -> Record {
        let target = format!("{}.{}", endpoint_hostname(endpoint), self.service_fqdn(key));
        Record::Srv { number, target, addresses: [endpoint.address].into() }
    }

    /// Returns the ready endpoints of a Service, each with its EndpointSlice.
    fn ready_endpoints(&self, key: &ObjectKey) -> impl Iterator<Item = (&'a Slice, &'a Endpoint)> + use<'a> {
        let slices = self.state.slices.get(key).into_iter().flat_map(|it| it.values());
        slices.flat_map(|slice| slice.endpoints.iter().filter(|it| it.ready).map(move |it| (slice, it)))
    }

    /// Returns the fully qualified DNS name of a Service.
    fn service_fqdn(&self, key: &ObjectKey) -> String {
        format!("{}.{}.svc.{}", key.name, key.namespace, self.domain)
    }
}

/// Answers a reverse query (`in-addr.arpa`), which asks for the name of an address.
///
/// Rule: a cluster IP resolves to the name of its Service, and the address of a ready endpoint to the name of the
/// endpoint within its Service. A query for a pod address without a name is not forwarded: the answer is that the name
/// does not exist.
fn resolve_reverse(state: &ProxyState, domain: &str, address: Ipv4Addr, query_type: QueryType) -> Answer {
    let resolver = Resolver { state, domain };
    let address = IpAddr::V4(address);
    let is_its = |it: &&ObjectKey| matches!(&state.services[*it].kind, ServiceType::Cluster(its) if its.contains(&address));
    let of_service = state.services.keys().find(is_its).map(|it| resolver.service_fqdn(it));
    let names: Vec<String> = match of_service {
        Some(name) => [name].into(),
        None => {
            let keys = state.slices.keys().filter(|it| state.services.contains_key(it));
            let all = keys.flat_map(|key| resolver.ready_endpoints(key).map(move |(_, it)| (key, it)));
            let its = all.filter(|(_, it)| it.address == address);
            its.map(|(key, it)| format!("{}.{}", endpoint_hostname(it), resolver.service_fqdn(key))).collect()
        }
    };
    let is_pods =
        |it: Ipv4Addr| state.nodes.values().filter_map(|it| it.range).any(|range| range.contains(it));
    match address {
        _ if !names.is_empty() && query_type == QueryType::Ptr => {
            Answer::Records(sorted_unique_records(names.into_iter().map(Record::Ptr)))
        }
        _ if !names.is_empty() => Answer::Records(Vec::new()),
        IpAddr::V4(it) if is_pods(it) => Answer::NxDomain,
        _ => Answer::OutsideDomain,
    }
}

/// Returns the hostname of an endpoint. If it has none, returns its address with dashes instead of dots or colons.
fn endpoint_hostname(endpoint: &Endpoint) -> String {
    match (&endpoint.hostname, endpoint.address) {
        (Some(hostname), _) => hostname.to_string(),
        (None, IpAddr::V4(it)) => it.to_string().replace('.', "-"),
        (None, IpAddr::V6(it)) => it.to_string().replace(':', "-"),
    }
}

/// Parses an IP address with dashes instead of dots or colons. `None` if it is not an address.
fn parse_dashed_address(host: &str) -> Option<IpAddr> {
    let v4 = host.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    v4.ok().or_else(|| host.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6).ok())
}

/// Returns the records of the addresses that match the queried type: `A` for IPv4 and `AAAA` for IPv6 addresses. Empty
/// for any other type.
fn address_records(addresses: impl IntoIterator<Item = IpAddr>, query_type: QueryType) -> Vec<Record> {
    let wanted = addresses.into_iter().filter(|it| match query_type {
        QueryType::A => it.is_ipv4(),
        QueryType::Aaaa => it.is_ipv6(),
        _ => false,
    });
    sorted_unique_records(wanted.map(Record::Address))
}

/// Sorts the records, and removes duplicates.
fn sorted_unique_records(records: impl Iterator<Item = Record>) -> Vec<Record> {
    records.collect::<BTreeSet<_>>().into_iter().collect()
}
