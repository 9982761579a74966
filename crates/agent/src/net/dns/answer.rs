//! Decides how a DNS query is answered, and builds the response, without IO.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use muster_engine::service_proxy::{self as decide, Answer, ProxyState, QueryType, Question};

/// TTL of records in seconds. It is short because endpoints change. Upstream: CoreDNS' `ttl`.
const RECORD_TTL_S: u32 = 5;

/// Maximum size of a response over UDP, even if the client advertises a larger size. Responses stay on this machine, so
/// fragmentation is not a concern.
const UDP_RESPONSE_BYTES_MAX: u16 = 4_096;

/// Maximum length of a chain of CNAMEs. A longer chain is assumed to be a loop.
const CNAME_DEPTH_MAX: usize = 8;

/// The data from which queries for names in the cluster domain are answered.
pub(super) struct ZoneData<'a> {
    /// The Services and endpoints of the cluster. `None` until the service cache is synced. Until then, a name that is
    /// not in the cache may exist.
    pub(super) proxy_state: Option<&'a ProxyState>,
    /// The cluster domain, usually `cluster.local`.
    pub(super) domain: &'a str,
}

/// What the DNS server does with a request.
#[derive(Debug, PartialEq)]
pub(super) enum DnsAction {
    /// Send no response, because the request is not a query, or is too malformed to be answered.
    Ignore,
    /// Respond immediately with the encoded response.
    Respond(Vec<u8>),
    /// Forward the request to an upstream resolver.
    Forward,
    /// Resolve the target of the last CNAME of the response, which is outside the cluster domain, with an upstream
    /// resolver. Then add the records of the target to the response, and send the response.
    CompleteAlias(Box<PartialResponse>),
}

/// A response that ends with a CNAME to a name outside the cluster domain. The records of that name are still missing.
#[derive(Debug, PartialEq)]
pub(super) struct PartialResponse {
    response: Message,
    /// Maximum size of the response in bytes.
    bytes_max: usize,
    /// The query for the target of the last CNAME, to be sent to an upstream resolver.
    pub(super) query: Query,
}

/// Decides what the DNS server does with a request. The records of a response are rotated by `rotation` positions, so
/// that clients spread over all endpoints.
///
/// Rule: a query for a name in the cluster domain is answered from the service cache. A query for any other name is
/// forwarded to the node's own resolvers. A malformed or unsupported query, such as a zone transfer, gets an error
/// response.
pub(super) fn decide_action(zone: &ZoneData<'_>, request: &[u8], is_udp: bool, rotation: usize) -> DnsAction {
    let message = match Message::from_vec(request) {
        Ok(message) => message,
        // A response needs the ID of the request.
        Err(_) => match request {
            [a, b, flags, ..] if flags & 0x80 == 0 => {
                let id = u16::from_be_bytes([*a, *b]);
                let refusal = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
                return DnsAction::Respond(refusal.to_vec().unwrap_or_default());
            }
            _ => return DnsAction::Ignore,
        },
    };
    if message.metadata.message_type != MessageType::Query {
        return DnsAction::Ignore;
    }
    let mut response = new_response(&message);
    let bytes_max = if is_udp {
        usize::from(message.max_payload().min(UDP_RESPONSE_BYTES_MAX))
    } else {
        usize::from(u16::MAX)
    };
    let code = match (&message.queries[..], message.metadata.op_code) {
        (_, op_code) if op_code != OpCode::Query => ResponseCode::NotImp,
        _ if message.version() != 0 => ResponseCode::BADVERS,
        ([query], _) if !matches!(query.query_class, DNSClass::IN | DNSClass::ANY) => ResponseCode::Refused,
        ([query], _) if matches!(query.query_type, RecordType::AXFR | RecordType::IXFR) => {
            ResponseCode::Refused
        }
        ([query], _) => return resolve_query(zone, query, response, bytes_max, rotation),
        _ => ResponseCode::FormErr,
    };
    response.metadata.response_code = code;
    DnsAction::Respond(encode_with_limit(response, bytes_max))
}

/// Builds the SERVFAIL response that is sent if no upstream resolver responds. Returns `None` if the request cannot be
/// parsed.
pub(super) fn servfail_response(request: &[u8]) -> Option<Vec<u8>> {
    let message = Message::from_vec(request).ok()?;
    let mut response = new_response(&message);
    response.metadata.response_code = ResponseCode::ServFail;
    response.to_vec().ok()
}

impl PartialResponse {
    /// Adds the records of `rest`, the response of an upstream resolver, and encodes the response. If no resolver
    /// responded (`None`), or `rest` does not match the query, the response is SERVFAIL.
    pub(super) fn complete_alias(self, rest: Option<&[u8]>) -> Vec<u8> {
        let Self { mut response, bytes_max, query } = self;
        match rest.and_then(|it| Message::from_vec(it).ok()).filter(|it| it.queries.contains(&query)) {
            Some(rest) => {
                response.metadata.response_code = rest.metadata.response_code;
                response.answers.extend(rest.answers);
                response.authorities.extend(rest.authorities);
            }
            None => response.metadata.response_code = ResponseCode::ServFail,
        }
        encode_with_limit(response, bytes_max)
    }
}

/// Returns a response to this request that has no records yet.
fn new_response(request: &Message) -> Message {
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.checking_disabled = request.metadata.checking_disabled;
    response.add_queries(request.queries.iter().take(1).cloned());
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_RESPONSE_BYTES_MAX);
        response.set_edns(edns);
    }
    response
}

/// Resolves the query of a request, and follows CNAMEs within the cluster domain. Returns [`DnsAction::Forward`] for a
/// name outside the cluster domain, and [`DnsAction::CompleteAlias`] for a CNAME to such a name.
fn resolve_query(
    zone: &ZoneData<'_>,
    query: &Query,
    mut response: Message,
    bytes_max: usize,
    rotation: usize,
) -> DnsAction {
    let mut name = query.name.clone();
    for _ in 0..CNAME_DEPTH_MAX {
        let labels: Vec<String> =
            name.iter().map(|it| String::from_utf8_lossy(it).to_ascii_lowercase()).collect();
        let question = Question { labels: &labels, query_type: to_query_type(query.query_type) };
        // Whether a name is in the cluster domain does not depend on the cache.
        let nothing = ProxyState::default();
        let answer = decide::resolve(zone.proxy_state.unwrap_or(&nothing), zone.domain, question);
        match answer {
            Answer::OutsideDomain if response.answers.is_empty() => return DnsAction::Forward,
            Answer::OutsideDomain => {
                let mut query = query.clone();
                query.name = name;
                return DnsAction::CompleteAlias(Box::new(PartialResponse { response, bytes_max, query }));
            }
            _ if zone.proxy_state.is_none() => {
                response.metadata.response_code = ResponseCode::ServFail;
                return DnsAction::Respond(encode_with_limit(response, bytes_max));
            }
            Answer::NxDomain => {
                response.metadata.authoritative = true;
                response.metadata.response_code = ResponseCode::NXDomain;
                response.authorities.extend(soa_record(zone.domain));
                return DnsAction::Respond(encode_with_limit(response, bytes_max));
            }
            Answer::Records(records) => {
                response.metadata.authoritative = true;
                if records.is_empty() {
                    response.authorities.extend(soa_record(zone.domain));
                }
                let count = records.len();
                for at in 0..count {
                    add_record(&mut response, &name, zone.domain, &records[(rotation + at) % count]);
                }
                return DnsAction::Respond(encode_with_limit(response, bytes_max));
            }
            Answer::Alias(target) => {
                response.metadata.authoritative = true;
                let Some(target) = absolute_name(&target) else { break };
                response.add_answer(Record::from_rdata(
                    name,
                    RECORD_TTL_S,
                    RData::CNAME(CNAME(target.clone())),
                ));
                if query.query_type == RecordType::CNAME {
                    return DnsAction::Respond(encode_with_limit(response, bytes_max));
                }
                name = target;
            }
        }
    }
    response.answers.clear();
    response.metadata.response_code = ResponseCode::ServFail;
    DnsAction::Respond(encode_with_limit(response, bytes_max))
}

/// Converts the record type of a query to the type that the engine's rules use.
fn to_query_type(kind: RecordType) -> QueryType {
    match kind {
        RecordType::A => QueryType::A,
        RecordType::AAAA => QueryType::Aaaa,
        RecordType::SRV => QueryType::Srv,
        RecordType::PTR => QueryType::Ptr,
        RecordType::TXT => QueryType::Txt,
        RecordType::SOA => QueryType::Soa,
        RecordType::NS => QueryType::Ns,
        _ => QueryType::Other,
    }
}

/// Adds a record for `name` to the response. With an SRV record, also adds the addresses of its target.
fn add_record(response: &mut Message, name: &Name, domain: &str, record: &decide::Record) {
    let data = match record {
        decide::Record::Address(address) => Some(address_data(*address)),
        decide::Record::Srv { number, target, addresses } => absolute_name(target).map(|target| {
            for address in addresses {
                response.add_additional(Record::from_rdata(
                    target.clone(),
                    RECORD_TTL_S,
                    address_data(*address),
                ));
            }
            RData::SRV(SRV::new(0, 100, *number, target))
        }),
        decide::Record::Ptr(target) => absolute_name(target).map(|it| RData::PTR(PTR(it))),
        decide::Record::Txt(text) => Some(RData::TXT(TXT::new(vec![(*text).to_owned()]))),
        decide::Record::Soa => soa_record(domain).map(|it| it.data),
        decide::Record::Ns => absolute_name(&format!("ns.dns.{domain}")).map(|it| RData::NS(NS(it))),
    };
    if let Some(data) = data {
        response.add_answer(Record::from_rdata(name.clone(), RECORD_TTL_S, data));
    }
}

/// Returns the data of an A or AAAA record with this address.
fn address_data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(it) => RData::A(A(it)),
        IpAddr::V6(it) => RData::AAAA(AAAA(it)),
    }
}

/// Builds the SOA record of the cluster domain, from which clients take the TTL of negative responses. Returns `None`
/// if the domain is not a valid name.
fn soa_record(domain: &str) -> Option<Record> {
    let (server, mail) =
        (absolute_name(&format!("ns.dns.{domain}"))?, absolute_name(&format!("hostmaster.{domain}"))?);
    let soa = SOA::new(server, mail, 1, 7_200, 1_800, 86_400, RECORD_TTL_S);
    Some(Record::from_rdata(absolute_name(domain)?, RECORD_TTL_S, RData::SOA(soa)))
}

/// Parses a name and makes it fully qualified. Returns `None` if it is not a valid name.
fn absolute_name(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// Encodes the response in at most `bytes_max` bytes. A larger response first loses its additional records. If it is
/// still too large, it is truncated and has the TC bit set, so that clients retry over TCP.
fn encode_with_limit(mut response: Message, bytes_max: usize) -> Vec<u8> {
    loop {
        let bytes = response.to_vec().unwrap_or_default();
        if bytes.len() <= bytes_max || (response.answers.is_empty() && response.authorities.is_empty()) {
            return bytes;
        }
        if !response.additionals.is_empty() {
            response.additionals.clear();
            continue;
        }
        response.metadata.truncation = true;
        response.authorities.clear();
        // The smallest record takes 16 bytes.
        let too_many = (bytes.len() - bytes_max).div_ceil(64).max(1);
        response.answers.truncate(response.answers.len().saturating_sub(too_many));
    }
}

#[cfg(test)]
mod tests;
