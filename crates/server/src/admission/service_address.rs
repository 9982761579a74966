//! Every service has an address of its own, and a port of its own on the nodes where it asks for one.
//! Upstream: the allocators of the service registry.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_store::{Change, Revision};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Admission;
use super::{AdmissionAttributes, Operation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::Context;
use crate::selector::Selector;
use crate::unstructured::{self, is_set, list, map_mut, str_at};
use crate::validation::FieldError;

/// 10.96.0.0/16. The first address is the server's own.
const NETWORK: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const HOSTS: u32 = 1 << 16;
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Where nodes answer for the names of the cluster.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The first address, and how many leading bits all have in common.
pub(super) const RANGE: (u32, u8) = (NETWORK, 16);

pub(super) fn is_in_range(address: Ipv4Addr) -> bool {
    u32::from(address).checked_sub(NETWORK).is_some_and(|it| it < HOSTS)
}

/// The first addresses are left to those who choose one themselves. Upstream: `calculateRangeOffset`, at most 256.
const CHOSEN: u32 = 256;

/// As upstream's `--service-node-port-range`.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// What is promised to a service is kept for it until its write must have come through.
const PROMISE: SignedDuration = SignedDuration::from_mins(2);

/// Addresses and ports that are taken. Follows the store, so that a new service costs what changed since the last.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<AllocatedAddresses>);

#[derive(Debug, Default)]
struct AllocatedAddresses {
    /// Everything up to this revision is in `held`.
    seen: Option<Revision>,
    /// By whom: the key of the service.
    held: HashMap<Claim, String>,
    promised: HashMap<Claim, (String, Timestamp)>,
    /// Where the search for the next free address begins.
    next: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Claim {
    Address(Ipv4Addr),
    NodePort(i64),
}

pub(super) fn mutate(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    service: &mut Value,
) -> Result<(), ApiError> {
    let old = match attributes.operation {
        Operation::Update { old } => old,
        _ => &Value::Null,
    };
    let mut taken = admission.service_addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
    taken.follow(admission, context.now);
    // One that has no name yet is like no other.
    let name = match str_at(service, "metadata.name") {
        "" => Uuid::new_v4().to_string(),
        name => name.to_owned(),
    };
    let key = attributes.target.kind.key(attributes.target.namespace.as_deref(), &name);
    let mut wanted =
        RequestedAddresses { taken: &mut taken, key, now: context.now, keeps: !context.dry_run, attributes };
    forget_what_ends(service, old);
    wanted.address(service, old)?;
    wanted.node_ports(service, old)
}

/// What a service was given for its type goes with the type, unless its user says something new about it. Upstream:
/// `dropTypeDependentFields`.
fn forget_what_ends(service: &mut Value, old: &Value) {
    let is_balanced = |it: &Value| it["spec"]["type"] == "LoadBalancer";
    let is_inside = |it: &Value| it["spec"]["type"] != "ExternalName";
    let has_health_port = |it: &Value| is_balanced(it) && it["spec"]["externalTrafficPolicy"] == "Local";
    let ends = |has: &dyn Fn(&Value) -> bool, field: &str| {
        has(old) && !has(service) && service["spec"][field] == old["spec"][field]
    };
    let mut ended = Vec::new();
    for (has, field) in [
        (&is_balanced as &dyn Fn(&Value) -> bool, "allocateLoadBalancerNodePorts"),
        (&is_balanced, "loadBalancerClass"),
        (&is_inside, "internalTrafficPolicy"),
        (&has_health_port, "healthCheckNodePort"),
        (&is_reached_from_outside, "externalTrafficPolicy"),
    ] {
        if ends(has, field) {
            ended.push(field);
        }
    }
    let node_ports = |it: &Value| -> Vec<i64> {
        let ports = list(&it["spec"], "ports").iter().map(|it| it["nodePort"].as_i64().unwrap_or(0));
        let mut ports: Vec<i64> = ports.filter(|it| *it != 0).collect();
        ports.sort_unstable();
        ports
    };
    let lose_ports =
        has_node_ports(old) && !has_node_ports(service) && node_ports(old) == node_ports(service);
    let spec = map_mut(service, "spec");
    for field in ended {
        spec.remove(field);
    }
    if lose_ports {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
}

fn has_node_ports(service: &Value) -> bool {
    match str_at(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn is_reached_from_outside(service: &Value) -> bool {
    let spec = &service["spec"];
    matches!(str_at(spec, "type"), "NodePort" | "LoadBalancer") || is_set(&spec["externalIPs"])
}

struct RequestedAddresses<'a> {
    taken: &'a mut AllocatedAddresses,
    key: String,
    now: Timestamp,
    keeps: bool,
    attributes: AdmissionAttributes<'a>,
}

impl RequestedAddresses<'_> {
    fn address(&mut self, service: &mut Value, old: &Value) -> Result<(), ApiError> {
        if service["spec"]["type"] == "ExternalName" {
            // One that becomes such gives its address up; a new one must not say any, which the checks see to.
            let spec = map_mut(service, "spec");
            for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !old.is_null() {
                    spec.remove(name);
                }
            }
            if let Some(address) = spec.get("clusterIP").filter(|it| is_set(it)).cloned() {
                spec.entry("clusterIPs").or_insert_with(|| json!([address]));
            }
            return Ok(());
        }
        // A client that leaves the address out of an update means the one that stands.
        if !is_set(&service["spec"]["clusterIP"]) && old["spec"]["type"] != "ExternalName" {
            for name in ["clusterIP", "clusterIPs"] {
                if is_set(&old["spec"][name]) {
                    service["spec"][name] = old["spec"][name].clone();
                }
            }
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            if !is_set(&service["spec"][name]) && is_set(&old["spec"][name]) {
                service["spec"][name] = old["spec"][name].clone();
            }
        }
        let said = str_at(service, "spec.clusterIP").to_owned();
        let address = match said.as_str() {
            "None" => said,
            // One that stands stays: the checks refuse another.
            _ if !said.is_empty() && is_set(&old["spec"]["clusterIP"]) => said,
            "" => self.free_address(service)?.to_string(),
            _ => self.claim_address(service, &said)?,
        };
        // Whoever writes the endpoints of a service without a selector may write both families.
        let both = address == "None" && !is_set(&service["spec"]["selector"]);
        let spec = map_mut(service, "spec");
        if spec.get("clusterIPs").is_none_or(|it| !is_set(it)) {
            spec.insert("clusterIPs".into(), json!([address]));
        }
        spec.insert("clusterIP".into(), json!(address));
        // Nobody but its user knows where a service without address and selector leads.
        let leads_anywhere = address == "None" && !spec.get("selector").is_some_and(is_set);
        if leads_anywhere && !spec.contains_key("ipFamilyPolicy") && !spec.contains_key("ipFamilies") {
            spec.insert("ipFamilies".into(), json!(["IPv4", "IPv6"]));
            spec.insert("ipFamilyPolicy".into(), json!("RequireDualStack"));
        }
        let (families, policy) = if both {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        spec.entry("ipFamilies").or_insert(families);
        spec.entry("ipFamilyPolicy").or_insert_with(|| json!(policy));
        Ok(())
    }

    fn free_address(&mut self, service: &Value) -> Result<Ipv4Addr, ApiError> {
        // From where the last search ended, so that an address that was given up is not at once another's.
        let dynamic = HOSTS - 1 - CHOSEN;
        let any = (0..dynamic).map(|it| CHOSEN + (self.taken.next + it) % dynamic).chain(2..CHOSEN);
        let mut free = any.map(|it| Ipv4Addr::from(NETWORK + it));
        let Some(address) = free.find(|it| !self.taken.has(Claim::Address(*it), &self.key)) else {
            let why = "failed to allocate IP 10.96.0.0/16: range is full";
            return Err(self.refuse(service, vec![FieldError::invalid("spec.clusterIPs", &json!([]), why)]));
        };
        if self.keeps {
            self.taken.next = (u32::from(address) - NETWORK + 1).saturating_sub(CHOSEN) % dynamic;
        }
        self.promise(Claim::Address(address));
        Ok(address)
    }

    fn claim_address(&mut self, service: &Value, said: &str) -> Result<String, ApiError> {
        let refuse = |why: &str| {
            let value = json!([said]);
            self.refuse(service, vec![FieldError::invalid("spec.clusterIPs", &value, why)])
        };
        // What is no address is for the checks to refuse.
        let Ok(address) = said.parse::<Ipv4Addr>() else { return Ok(said.to_owned()) };
        let host = u32::from(address).wrapping_sub(NETWORK);
        if !(1..HOSTS - 1).contains(&host) {
            return Err(refuse(&format!(
                "failed to allocate IP {said}: the provided network does not match the current range"
            )));
        }
        if self.taken.has(Claim::Address(address), &self.key) {
            return Err(refuse(&format!("failed to allocate IP {said}: provided IP is already allocated")));
        }
        self.promise(Claim::Address(address));
        Ok(said.to_owned())
    }

    fn node_ports(&mut self, service: &mut Value, old: &Value) -> Result<(), ApiError> {
        let needs = has_node_ports(service);
        let standing = list(&old["spec"], "ports");
        let mut ports = list(&service["spec"], "ports").to_vec();
        let mut chosen = HashSet::new();
        for (at, port) in ports.iter_mut().enumerate() {
            let same = |it: &&Value| it["port"] == port["port"] && it["protocol"] == port["protocol"];
            let before = standing.iter().find(same).and_then(|it| it["nodePort"].as_i64()).unwrap_or(0);
            match (port["nodePort"].as_i64().unwrap_or(0), before) {
                (0, _) if !needs => {}
                (0, 0) => port["nodePort"] = json!(self.free_node_port(service, at)?),
                (0, before) => port["nodePort"] = json!(before),
                // Two protocols of one service may share a port.
                (said, _) if standing.iter().any(|it| it["nodePort"] == said) || !chosen.insert(said) => {}
                (said, _) => self.claim_node_port(service, at, said)?,
            }
        }
        if !ports.is_empty() {
            service["spec"]["ports"] = Value::Array(ports);
        }
        Ok(())
    }

    fn free_node_port(&mut self, service: &Value, at: usize) -> Result<i64, ApiError> {
        let Some(port) = NODE_PORTS.into_iter().find(|it| {
            !self.taken.has(Claim::NodePort(*it), &self.key) && !self.taken.is_promised(Claim::NodePort(*it))
        }) else {
            let cause = FieldError::invalid(
                format!("spec.ports[{at}].nodePort"),
                &json!(0),
                "failed to allocate a nodePort: range is full",
            );
            return Err(self.refuse(service, vec![cause]));
        };
        self.promise(Claim::NodePort(port));
        Ok(port)
    }

    fn claim_node_port(&mut self, service: &Value, at: usize, port: i64) -> Result<(), ApiError> {
        let field = format!("spec.ports[{at}].nodePort");
        let why = if !NODE_PORTS.contains(&port) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if self.taken.has(Claim::NodePort(port), &self.key) {
            "provided port is already allocated"
        } else {
            self.promise(Claim::NodePort(port));
            return Ok(());
        };
        Err(self.refuse(service, vec![FieldError::invalid(field, &json!(port), why)]))
    }

    fn promise(&mut self, claim: Claim) {
        if self.keeps {
            self.taken.promised.insert(claim, (self.key.clone(), self.now));
        }
    }

    fn refuse(&self, service: &Value, causes: Vec<FieldError>) -> ApiError {
        ApiError::invalid(self.attributes.target.kind, str_at(service, "metadata.name"), &causes)
    }
}

impl AllocatedAddresses {
    /// Whether another service than the one under `key` has it.
    fn has(&self, claim: Claim, key: &str) -> bool {
        let holder = self.held.get(&claim);
        let promised = self.promised.get(&claim).map(|(key, _)| key);
        holder.into_iter().chain(promised).any(|it| it != key)
    }

    fn is_promised(&self, claim: Claim) -> bool {
        self.promised.contains_key(&claim)
    }

    fn follow(&mut self, admission: &Admission, now: Timestamp) {
        self.promised.retain(|_, (_, at)| now.duration_since(*at) < PROMISE);
        let kind = Kind::builtin("", "v1", "services");
        let news = self.seen.and_then(|seen| admission.storage.since(&kind.prefix(None), seen).ok());
        let Some((events, revision)) = news else {
            let (services, revision) = admission.storage.list(kind, None, &Selector::default());
            self.held.clear();
            for service in &services {
                self.put(&unstructured::parse(service));
            }
            self.seen = Some(revision);
            return;
        };
        for event in events {
            match &event.change {
                Change::Put { now, before } => {
                    if let Some(before) = before {
                        self.release(&unstructured::parse(&before.value));
                    }
                    self.put(&unstructured::parse(&now.value));
                }
                Change::Delete { before, .. } => self.release(&unstructured::parse(&before.value)),
            }
        }
        self.seen = Some(revision);
    }

    fn put(&mut self, service: &Value) {
        let key = key_of(service);
        self.held.extend(claims(service).map(|it| (it, key.clone())));
    }

    fn release(&mut self, service: &Value) {
        let key = key_of(service);
        for claim in claims(service) {
            if self.held.get(&claim) == Some(&key) {
                self.held.remove(&claim);
            }
        }
    }
}

fn key_of(service: &Value) -> String {
    let kind = Kind::builtin("", "v1", "services");
    kind.key(service["metadata"]["namespace"].as_str(), str_at(service, "metadata.name"))
}

fn claims(service: &Value) -> impl Iterator<Item = Claim> {
    let addresses = list(&service["spec"], "clusterIPs").iter().filter_map(|it| it.as_str()?.parse().ok());
    let ports = list(&service["spec"], "ports").iter().filter_map(|it| it["nodePort"].as_i64());
    addresses.map(Claim::Address).chain(ports.filter(|it| *it != 0).map(Claim::NodePort))
}
