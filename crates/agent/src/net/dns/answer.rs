//! Builds the response to a DNS query, without IO.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use muster_engine::service_proxy::{self as decide, Answer, Asked, Picture, Question};

/// TTL of records in seconds: short, because endpoints change. Upstream: CoreDNS' `ttl`.
const TTL_S: u32 = 5;

/// Largest response over UDP, whatever the client advertises. Responses stay on this machine, so fragmentation is
/// no concern.
const UDP_MAX: u16 = 4_096;

/// Longest chain of CNAMEs; a longer one is a loop.
const ALIASES_MAX: usize = 8;

/// The data that queries are answered from.
pub(super) struct Known<'a> {
    /// The Services and endpoints of the cluster. `None` until the cache is synced: an unknown name may still
    /// exist.
    pub(super) picture: Option<&'a Picture>,
    pub(super) domain: &'a str,
}

/// How a request is answered.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// Not a query: no response.
    Nothing,
    /// Respond immediately with these bytes.
    Now(Vec<u8>),
    /// Forward the request unchanged to an upstream resolver.
    Forward,
    /// A CNAME leads outside the cluster: its target must be resolved upstream and added to the response.
    Complete(Box<Half>),
}

/// A response that lacks the records of its last CNAME's target.
#[derive(Debug, PartialEq)]
pub(super) struct Half {
    response: Message,
    max: usize,
    /// The query for the target, to be resolved upstream.
    pub(super) ask: Query,
}

/// Rule: a query in the cluster domain is answered from the service cache; every other query is forwarded to the
/// node's own resolvers. `turn` rotates the order of records.
pub(super) fn answer(zone: &Known<'_>, request: &[u8], is_udp: bool, turn: usize) -> Reply {
    let message = match Message::from_vec(request) {
        Ok(message) => message,
        // A response needs the ID of the request.
        Err(_) => match request {
            [a, b, flags, ..] if flags & 0x80 == 0 => {
                let id = u16::from_be_bytes([*a, *b]);
                let refusal = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
                return Reply::Now(refusal.to_vec().unwrap_or_default());
            }
            _ => return Reply::Nothing,
        },
    };
    if message.metadata.message_type != MessageType::Query {
        return Reply::Nothing;
    }
    let mut response = begin(&message);
    let max = if is_udp { usize::from(message.max_payload().min(UDP_MAX)) } else { usize::from(u16::MAX) };
    let code = match (&message.queries[..], message.metadata.op_code) {
        (_, op_code) if op_code != OpCode::Query => ResponseCode::NotImp,
        _ if message.version() != 0 => ResponseCode::BADVERS,
        ([query], _) if !matches!(query.query_class, DNSClass::IN | DNSClass::ANY) => ResponseCode::Refused,
        ([query], _) if matches!(query.query_type, RecordType::AXFR | RecordType::IXFR) => {
            ResponseCode::Refused
        }
        ([query], _) => return resolve(zone, query, response, max, turn),
        _ => ResponseCode::FormErr,
    };
    response.metadata.response_code = code;
    Reply::Now(fit(response, max))
}

/// A SERVFAIL response, for when no upstream resolver responds.
pub(super) fn failure(request: &[u8]) -> Option<Vec<u8>> {
    let message = Message::from_vec(request).ok()?;
    let mut response = begin(&message);
    response.metadata.response_code = ResponseCode::ServFail;
    response.to_vec().ok()
}

impl Half {
    /// Completes the response with the records that upstream returned; `None`: upstream did not respond.
    pub(super) fn complete(self, rest: Option<&[u8]>) -> Vec<u8> {
        let Self { mut response, max, ask } = self;
        match rest.and_then(|it| Message::from_vec(it).ok()).filter(|it| it.queries.contains(&ask)) {
            Some(rest) => {
                response.metadata.response_code = rest.metadata.response_code;
                response.answers.extend(rest.answers);
                response.authorities.extend(rest.authorities);
            }
            None => response.metadata.response_code = ResponseCode::ServFail,
        }
        fit(response, max)
    }
}

fn begin(request: &Message) -> Message {
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.checking_disabled = request.metadata.checking_disabled;
    response.add_queries(request.queries.iter().take(1).cloned());
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_MAX);
        response.set_edns(edns);
    }
    response
}

fn resolve(zone: &Known<'_>, query: &Query, mut response: Message, max: usize, turn: usize) -> Reply {
    let mut name = query.name.clone();
    for _ in 0..ALIASES_MAX {
        let labels: Vec<String> =
            name.iter().map(|it| String::from_utf8_lossy(it).to_ascii_lowercase()).collect();
        let question = Question { labels: &labels, asked: asked(query.query_type) };
        // Whether a name is in the cluster domain does not depend on the cache.
        let nothing = Picture::default();
        let answer = decide::resolve(zone.picture.unwrap_or(&nothing), zone.domain, question);
        match answer {
            Answer::NotOurs if response.answers.is_empty() => return Reply::Forward,
            Answer::NotOurs => {
                let mut ask = query.clone();
                ask.name = name;
                return Reply::Complete(Box::new(Half { response, max, ask }));
            }
            _ if zone.picture.is_none() => {
                response.metadata.response_code = ResponseCode::ServFail;
                return Reply::Now(fit(response, max));
            }
            Answer::NoName => {
                response.metadata.authoritative = true;
                response.metadata.response_code = ResponseCode::NXDomain;
                response.authorities.extend(authority(zone.domain));
                return Reply::Now(fit(response, max));
            }
            Answer::Records(records) => {
                response.metadata.authoritative = true;
                if records.is_empty() {
                    response.authorities.extend(authority(zone.domain));
                }
                let count = records.len();
                for at in 0..count {
                    add(&mut response, &name, zone.domain, &records[(turn + at) % count]);
                }
                return Reply::Now(fit(response, max));
            }
            Answer::Alias(target) => {
                response.metadata.authoritative = true;
                let Some(target) = absolute(&target) else { break };
                response.add_answer(Record::from_rdata(name, TTL_S, RData::CNAME(CNAME(target.clone()))));
                if query.query_type == RecordType::CNAME {
                    return Reply::Now(fit(response, max));
                }
                name = target;
            }
        }
    }
    response.answers.clear();
    response.metadata.response_code = ResponseCode::ServFail;
    Reply::Now(fit(response, max))
}

fn asked(kind: RecordType) -> Asked {
    match kind {
        RecordType::A => Asked::A,
        RecordType::AAAA => Asked::Aaaa,
        RecordType::SRV => Asked::Srv,
        RecordType::PTR => Asked::Ptr,
        RecordType::TXT => Asked::Txt,
        RecordType::SOA => Asked::Soa,
        RecordType::NS => Asked::Ns,
        _ => Asked::Other,
    }
}

fn add(response: &mut Message, name: &Name, domain: &str, record: &decide::Record) {
    let data = match record {
        decide::Record::Address(address) => Some(of_address(*address)),
        decide::Record::Port { number, target, addresses } => absolute(target).map(|target| {
            for address in addresses {
                response.add_additional(Record::from_rdata(target.clone(), TTL_S, of_address(*address)));
            }
            RData::SRV(SRV::new(0, 100, *number, target))
        }),
        decide::Record::Pointer(target) => absolute(target).map(|it| RData::PTR(PTR(it))),
        decide::Record::Text(text) => Some(RData::TXT(TXT::new(vec![(*text).to_owned()]))),
        decide::Record::Authority => authority(domain).map(|it| it.data),
        decide::Record::NameServer => absolute(&format!("ns.dns.{domain}")).map(|it| RData::NS(NS(it))),
    };
    if let Some(data) = data {
        response.add_answer(Record::from_rdata(name.clone(), TTL_S, data));
    }
}

fn of_address(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(it) => RData::A(A(it)),
        IpAddr::V6(it) => RData::AAAA(AAAA(it)),
    }
}

/// The SOA record, from which clients take the TTL of negative responses.
fn authority(domain: &str) -> Option<Record> {
    let (server, mail) = (absolute(&format!("ns.dns.{domain}"))?, absolute(&format!("hostmaster.{domain}"))?);
    let soa = SOA::new(server, mail, 1, 7_200, 1_800, 86_400, TTL_S);
    Some(Record::from_rdata(absolute(domain)?, TTL_S, RData::SOA(soa)))
}

fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// Encodes the response in at most `max` bytes. A larger one is truncated and marked so; clients retry over TCP.
fn fit(mut response: Message, max: usize) -> Vec<u8> {
    loop {
        let bytes = response.to_vec().unwrap_or_default();
        if bytes.len() <= max || (response.answers.is_empty() && response.authorities.is_empty()) {
            return bytes;
        }
        if !response.additionals.is_empty() {
            response.additionals.clear();
            continue;
        }
        response.metadata.truncation = true;
        response.authorities.clear();
        // The smallest record takes 16 bytes.
        let too_many = (bytes.len() - max).div_ceil(64).max(1);
        response.answers.truncate(response.answers.len().saturating_sub(too_many));
    }
}

#[cfg(test)]
mod tests;
