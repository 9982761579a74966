//! Allocates cluster IPs and node ports of Services. Upstream: the allocators of the Service registry.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use muster_api::cidr::Ipv4Cidr;
use serde_json::{Value, json};

use super::AdmissionChain;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::RequestContext;
use crate::small_map::{SmallMap, SmallSet};
use crate::storage::{ObjectChange, ObjectChangeReader, PendingAllocations};
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};
use crate::validation::FieldError;

/// Cluster IP of the Service `kubernetes`.
pub(crate) const API_SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Cluster IP of the Service `kube-dns`, the DNS service of the cluster.
pub(crate) const DNS_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The cluster IP range of Services.
pub(super) const SERVICE_RANGE: Ipv4Cidr = Ipv4Cidr::new(Ipv4Addr::new(10, 96, 0, 0), 16);
/// Number of addresses in the cluster IP range of Services.
const SERVICE_RANGE_SIZE: u32 = 1 << (32 - SERVICE_RANGE.prefix_length());

/// Number of addresses at the start of the cluster IP range that are reserved for Services that choose their cluster
/// IP. Other Services get them only if no other address is free. Upstream: `calculateRangeOffset`, at most 256.
const STATIC_ADDRESS_COUNT: u32 = 256;

/// Range of node ports. Upstream: default of `--service-node-port-range`.
const NODE_PORT_RANGE: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Allocates cluster IPs and node ports to Services. Keeps the cluster IPs and node ports of all stored Services in
/// memory, and updates them from the changes in the store, so that an allocation does not list all Services.
#[derive(Debug, Default)]
pub(crate) struct ServiceAllocator(Mutex<ServiceAllocations>);

/// The cluster IPs and node ports in use.
#[derive(Debug, Default)]
struct ServiceAllocations {
    /// Reads the changes of stored Services that `allocated` does not include yet.
    services: ObjectChangeReader,
    /// Cluster IPs and node ports of stored Services, each with the storage key of its Service.
    allocated: HashMap<AllocatedResource, String>,
    /// Recently allocated or requested cluster IPs and node ports, each with the storage key of its Service. The
    /// Service may not be stored yet.
    pending: PendingAllocations<AllocatedResource, String>,
    /// Offset at which the search for the next free cluster IP begins. Offset 0 is the first address after the
    /// `STATIC_ADDRESS_COUNT` reserved addresses.
    next_offset: u32,
}

/// A cluster IP or node port that belongs to one Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AllocatedResource {
    ClusterIp(Ipv4Addr),
    NodePort(i64),
}

/// Allocates the cluster IP and node ports that a Service needs. If the Service requests an address or port, allocates
/// that one, and fails if it is in use or outside its range. Removes obsolete fields before that, see
/// [`drop_type_dependent_fields`].
pub(super) fn mutate(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    service: &mut Value,
) -> Result<(), ApiError> {
    let old = match attributes.operation {
        AdmissionOperation::Update { old } => old,
        _ => &Value::Null,
    };
    let mut allocated = admission.service_addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
    allocated.sync_services(admission, context.now);
    // A Service with `generateName` has no name yet. Its key is unique, and the same in each attempt of the request.
    let name = match str_at(service, "metadata.name") {
        "" => context.id().to_string(),
        name => name.to_owned(),
    };
    let key = attributes.target.kind.store_key(attributes.target.namespace.as_deref(), &name);
    let mut allocator = RequestAllocator {
        allocations: &mut allocated,
        key,
        now: context.now,
        is_persistent: !context.dry_run,
        attributes,
    };
    drop_type_dependent_fields(service, old);
    allocator.allocate_cluster_ip(service, old)?;
    allocator.allocate_node_ports(service, old)
}

/// Whether a write gives a Service a cluster IP or node port that `old`, the stored Service, does not have. `old` is
/// null for a create.
pub(super) fn allocates(service: &Value, old: &Value) -> bool {
    let before: HashSet<AllocatedResource> = allocated_resources(old).collect();
    allocated_resources(service).any(|it| !before.contains(&it))
}

/// Removes the fields that the stored Service was allowed to have and the updated Service is not, such as node ports
/// after a change of the type. Keeps a field if the update changes its value. Upstream: `dropTypeDependentFields`.
fn drop_type_dependent_fields(service: &mut Value, old: &Value) {
    let is_load_balancer = |it: &Value| it["spec"]["type"] == "LoadBalancer";
    let has_cluster_ip = |it: &Value| it["spec"]["type"] != "ExternalName";
    let has_health_port = |it: &Value| is_load_balancer(it) && it["spec"]["externalTrafficPolicy"] == "Local";
    let is_obsolete = |has: &dyn Fn(&Value) -> bool, field: &str| {
        has(old) && !has(service) && service["spec"][field] == old["spec"][field]
    };
    let mut obsolete = Vec::new();
    for (has, field) in [
        (&is_load_balancer as &dyn Fn(&Value) -> bool, "allocateLoadBalancerNodePorts"),
        (&is_load_balancer, "loadBalancerClass"),
        (&has_cluster_ip, "internalTrafficPolicy"),
        (&has_health_port, "healthCheckNodePort"),
        (&is_externally_accessible, "externalTrafficPolicy"),
    ] {
        if is_obsolete(has, field) {
            obsolete.push(field);
        }
    }
    let node_ports = |it: &Value| -> Vec<i64> {
        let ports = list_at(&it["spec"], "ports").iter().map(|it| it["nodePort"].as_i64().unwrap_or(0));
        let mut ports: Vec<i64> = ports.filter(|it| *it != 0).collect();
        ports.sort_unstable();
        ports
    };
    let lose_ports =
        needs_node_ports(old) && !needs_node_ports(service) && node_ports(old) == node_ports(service);
    let spec = map_at_mut(service, "spec");
    for field in obsolete {
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

/// Whether every port of the Service needs a node port.
fn needs_node_ports(service: &Value) -> bool {
    match str_at(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// Whether clients outside the cluster can reach the Service. Upstream: `ExternallyAccessible`.
fn is_externally_accessible(service: &Value) -> bool {
    let spec = &service["spec"];
    matches!(str_at(spec, "type"), "NodePort" | "LoadBalancer") || is_set(&spec["externalIPs"])
}

/// Allocates the cluster IP and the node ports of the Service that one request creates or updates.
struct RequestAllocator<'a> {
    allocations: &'a mut ServiceAllocations,
    /// Storage key of the Service. A create with `generateName` has no name yet: the key then has the ID of the request.
    key: String,
    now: Timestamp,
    /// Whether allocations are recorded. `false` for a dry run.
    is_persistent: bool,
    /// The write that creates or updates the Service.
    attributes: AdmissionAttributes<'a>,
}

impl RequestAllocator<'_> {
    /// Sets `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` of the Service. A Service of the type
    /// `ExternalName` gets no cluster IP, and an update removes these fields from it. `old` is the stored Service, or
    /// null for a create.
    fn allocate_cluster_ip(&mut self, service: &mut Value, old: &Value) -> Result<(), ApiError> {
        if service["spec"]["type"] == "ExternalName" {
            // A Service that becomes ExternalName releases its cluster IP. Validation refuses a new one that sets a
            // cluster IP.
            let spec = map_at_mut(service, "spec");
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
        // An update without a cluster IP keeps the stored one.
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
        let requested = str_at(service, "spec.clusterIP").to_owned();
        let address = match requested.as_str() {
            "None" => requested,
            // A stored cluster IP stays: validation refuses a change.
            _ if !requested.is_empty() && is_set(&old["spec"]["clusterIP"]) => requested,
            "" => self.allocate_free_address(service)?.to_string(),
            _ => self.allocate_requested_address(service, &requested)?,
        };
        // A headless Service without a selector may have endpoints of both IP families.
        let both = address == "None" && !is_set(&service["spec"]["selector"]);
        let spec = map_at_mut(service, "spec");
        if spec.get("clusterIPs").is_none_or(|it| !is_set(it)) {
            spec.insert("clusterIPs".into(), json!([address]));
        }
        spec.insert("clusterIP".into(), json!(address));
        // A headless Service without a selector is dual-stack unless it sets families or a policy.
        let is_headless_without_selector = address == "None" && !spec.get("selector").is_some_and(is_set);
        if is_headless_without_selector
            && !spec.contains_key("ipFamilyPolicy")
            && !spec.contains_key("ipFamilies")
        {
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

    /// Allocates a free cluster IP. Returns a 422 error if the range is full.
    fn allocate_free_address(&mut self, service: &Value) -> Result<Ipv4Addr, ApiError> {
        // The search continues where the last one ended, so that a released address is not reused immediately.
        let dynamic = SERVICE_RANGE_SIZE - 1 - STATIC_ADDRESS_COUNT;
        let any = (0..dynamic)
            .map(|it| STATIC_ADDRESS_COUNT + (self.allocations.next_offset + it) % dynamic)
            .chain(2..STATIC_ADDRESS_COUNT);
        let mut free = any.map(|it| (it, SERVICE_RANGE.nth(it)));
        let Some((offset, address)) = free.find(|(_, it)| {
            !self.allocations.is_allocated_to_other(AllocatedResource::ClusterIp(*it), &self.key)
        }) else {
            let why = format!("failed to allocate IP {SERVICE_RANGE}: range is full");
            let error = FieldError::invalid("spec.clusterIPs", &json!([]), &why);
            return Err(self.invalid_service(service, vec![error]));
        };
        if self.is_persistent {
            self.allocations.next_offset = (offset + 1).saturating_sub(STATIC_ADDRESS_COUNT) % dynamic;
        }
        self.record_pending(AllocatedResource::ClusterIp(address));
        Ok(address)
    }

    /// Allocates the cluster IP that the Service requests. Fails if it is in use or outside the range. Returns
    /// `requested` unchanged if it is not an IPv4 address. Validation refuses it later.
    fn allocate_requested_address(&mut self, service: &Value, requested: &str) -> Result<String, ApiError> {
        let refuse = |why: &str| {
            let value = json!([requested]);
            self.invalid_service(service, vec![FieldError::invalid("spec.clusterIPs", &value, why)])
        };
        // Validation refuses an invalid address.
        let Ok(address) = requested.parse::<Ipv4Addr>() else { return Ok(requested.to_owned()) };
        // The first and the last address of the range are not allocated.
        if SERVICE_RANGE.offset_of(address).is_none_or(|it| it == 0 || it == SERVICE_RANGE_SIZE - 1) {
            return Err(refuse(&format!(
                "failed to allocate IP {requested}: the provided network does not match the current range"
            )));
        }
        if self.allocations.is_allocated_to_other(AllocatedResource::ClusterIp(address), &self.key) {
            return Err(refuse(&format!(
                "failed to allocate IP {requested}: provided IP is already allocated"
            )));
        }
        self.record_pending(AllocatedResource::ClusterIp(address));
        Ok(requested.to_owned())
    }

    /// Allocates the node ports that the Service requests. If the Service needs node ports, sets a node port for each
    /// port that has none. Such a port keeps the node port that the stored Service has for the same port and protocol,
    /// or else gets a free one. `old` is the stored Service, or null for a create.
    fn allocate_node_ports(&mut self, service: &mut Value, old: &Value) -> Result<(), ApiError> {
        let needs_node_ports = needs_node_ports(service);
        let old_ports = list_at(&old["spec"], "ports");
        let mut ports = list_at(&service["spec"], "ports").to_vec();
        let mut chosen = HashSet::new();
        let mut used: HashSet<i64> = ports.iter().filter_map(|it| it["nodePort"].as_i64()).collect();
        let old_node_ports: SmallMap<(&Value, &Value), i64> = old_ports
            .iter()
            .map(|it| ((&it["port"], &it["protocol"]), it["nodePort"].as_i64().unwrap_or(0)))
            .collect();
        let all_old_node_ports: SmallSet<i64> =
            old_ports.iter().filter_map(|it| it["nodePort"].as_i64()).collect();
        for (at, port) in ports.iter_mut().enumerate() {
            let before = old_node_ports.get(&(&port["port"], &port["protocol"])).copied().unwrap_or(0);
            match (port["nodePort"].as_i64().unwrap_or(0), before) {
                (0, _) if !needs_node_ports => {}
                (0, 0) => {
                    let free = self.allocate_free_node_port(service, at, &used)?;
                    used.insert(free);
                    port["nodePort"] = json!(free);
                }
                (0, before) => port["nodePort"] = json!(before),
                // Ports with different protocols may share a node port.
                (requested, _) if all_old_node_ports.contains(&requested) || !chosen.insert(requested) => {}
                (requested, _) => self.allocate_requested_node_port(service, at, requested)?,
            }
        }
        if !ports.is_empty() {
            service["spec"]["ports"] = Value::Array(ports);
        }
        Ok(())
    }

    /// Allocates the lowest free node port to `spec.ports[at]` of the Service. Ports of the Service itself have the node
    /// ports `used`. Returns a 422 error if the range is full.
    fn allocate_free_node_port(
        &mut self,
        service: &Value,
        at: usize,
        used: &HashSet<i64>,
    ) -> Result<i64, ApiError> {
        // A repeated create gets the same node port, unless a Service got it through another server.
        let Some(port) = NODE_PORT_RANGE.into_iter().find(|it| {
            !used.contains(it) && self.allocations.is_free(AllocatedResource::NodePort(*it), &self.key)
        }) else {
            let cause = FieldError::invalid(
                format!("spec.ports[{at}].nodePort"),
                &json!(0),
                "failed to allocate a nodePort: range is full",
            );
            return Err(self.invalid_service(service, vec![cause]));
        };
        self.record_pending(AllocatedResource::NodePort(port));
        Ok(port)
    }

    /// Allocates the node port that `spec.ports[at]` of the Service requests. Fails if it is in use or outside the
    /// range.
    fn allocate_requested_node_port(
        &mut self,
        service: &Value,
        at: usize,
        port: i64,
    ) -> Result<(), ApiError> {
        let field = format!("spec.ports[{at}].nodePort");
        let why = if !NODE_PORT_RANGE.contains(&port) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if self.allocations.is_allocated_to_other(AllocatedResource::NodePort(port), &self.key) {
            "provided port is already allocated"
        } else {
            self.record_pending(AllocatedResource::NodePort(port));
            return Ok(());
        };
        Err(self.invalid_service(service, vec![FieldError::invalid(field, &json!(port), why)]))
    }

    /// Records an allocation to the Service of the request as pending, except in a dry run.
    fn record_pending(&mut self, resource: AllocatedResource) {
        if self.is_persistent {
            self.allocations.pending.insert(resource, self.key.clone(), self.now);
        }
    }

    /// Returns a 422 error for the Service, with its validation errors.
    fn invalid_service(&self, service: &Value, causes: Vec<FieldError>) -> ApiError {
        ApiError::invalid(self.attributes.target.kind, str_at(service, "metadata.name"), &causes)
    }
}

impl ServiceAllocations {
    /// Whether the address or port is allocated to a Service other than the one with the storage key `key`.
    fn is_allocated_to_other(&self, resource: AllocatedResource, key: &str) -> bool {
        let stored = self.allocated.get(&resource);
        let pending = self.pending.get(&resource);
        stored.into_iter().chain(pending).any(|it| it != key)
    }

    /// Whether no stored Service has the address or port, and it was not recently allocated to a Service other than the
    /// one with the storage key `key`.
    fn is_free(&self, resource: AllocatedResource, key: &str) -> bool {
        !self.allocated.contains_key(&resource) && self.pending.get(&resource).is_none_or(|it| it == key)
    }

    /// Updates `allocated` from the stored Services, and drops expired allocations from `pending`.
    fn sync_services(&mut self, admission: &AdmissionChain, now: Timestamp) {
        let Self { services, allocated, pending, .. } = self;
        pending.drop_expired(now);
        services.for_each_change(&admission.storage, Kind::builtin("", "v1", "services"), |change| {
            match change {
                ObjectChange::Reset => allocated.clear(),
                ObjectChange::Put { now, before } => {
                    if let Some(before) = before {
                        release_service(allocated, &unstructured::parse_stored(before));
                    }
                    let service = unstructured::parse_stored(now);
                    let key = storage_key(&service);
                    allocated.extend(allocated_resources(&service).map(|it| (it, key.clone())));
                }
                ObjectChange::Delete { before } => {
                    release_service(allocated, &unstructured::parse_stored(before));
                }
            }
        });
    }
}

/// Removes from `allocated` the cluster IPs and node ports of a Service that was changed or deleted.
fn release_service(allocated: &mut HashMap<AllocatedResource, String>, service: &Value) {
    let key = storage_key(service);
    for resource in allocated_resources(service) {
        if allocated.get(&resource) == Some(&key) {
            allocated.remove(&resource);
        }
    }
}

/// Returns the key of a Service in the store.
fn storage_key(service: &Value) -> String {
    let kind = Kind::builtin("", "v1", "services");
    kind.store_key(service["metadata"]["namespace"].as_str(), str_at(service, "metadata.name"))
}

/// Returns the cluster IPs and node ports in a Service's spec.
fn allocated_resources(service: &Value) -> impl Iterator<Item = AllocatedResource> {
    let addresses = list_at(&service["spec"], "clusterIPs").iter().filter_map(|it| it.as_str()?.parse().ok());
    let ports = list_at(&service["spec"], "ports").iter().filter_map(|it| it["nodePort"].as_i64());
    addresses
        .map(AllocatedResource::ClusterIp)
        .chain(ports.filter(|it| *it != 0).map(AllocatedResource::NodePort))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::registry::Registry;
    use crate::request::RequestTarget;
    use crate::subresource::Subresource;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    /// Number of attempts of a create that loses every time.
    const ATTEMPTS: usize = 64;

    fn context(now: Timestamp) -> RequestContext {
        RequestContext::for_server("create", now)
    }

    fn service(metadata: Value, ports: Value) -> Value {
        json!({"metadata": metadata, "spec": {"type": "NodePort", "ports": ports}})
    }

    /// Admits a Service in the namespace `default`. Returns its node ports, or the error. `old` is the stored Service, or
    /// null for a create.
    fn admit(
        registry: &Registry,
        context: &RequestContext,
        mut service: Value,
        old: &Value,
    ) -> Result<Vec<i64>, String> {
        let target = RequestTarget {
            kind: Kind::builtin("", "v1", "services"),
            namespace: Some("default".to_owned()),
            name: str_at(&service, "metadata.name").to_owned(),
            subresource: Subresource::Whole,
        };
        let operation = match old {
            Value::Null => AdmissionOperation::Create,
            old => AdmissionOperation::Update { old },
        };
        let attributes = AdmissionAttributes { target: &target, operation };
        mutate(&registry.admission, context, attributes, &mut service)
            .map_err(|it| it.message().to_owned())?;
        let ports = list_at(&service["spec"], "ports").iter();
        Ok(ports.map(|it| it["nodePort"].as_i64().unwrap()).collect())
    }

    /// Admission runs again after another server has allocated from the same pool.
    #[tokio::test]
    async fn a_create_that_is_repeated_holds_no_node_ports_of_its_earlier_attempts() {
        let registry = Registry::new(100);
        let two = || json!([{"port": 80}, {"port": 81}]);
        let named = || service(json!({"name": "a"}), two());
        let create = context(NOW);
        for _ in 0..ATTEMPTS {
            assert_eq!(admit(&registry, &create, named(), &Value::Null), Ok(vec![30_000, 30_001]));
        }
        // A Service got a port through another server.
        let taken = AllocatedResource::NodePort(30_000);
        registry.admission.service_addresses.0.lock().unwrap().allocated.insert(taken, "b".to_owned());
        assert_eq!(admit(&registry, &create, named(), &Value::Null), Ok(vec![30_001, 30_002]));
        // Two requests without a name are for different Services.
        let unnamed = || {
            let mut unnamed = service(json!({"generateName": "a-"}), two());
            unnamed["spec"]["clusterIP"] = json!("10.96.0.20");
            unnamed
        };
        let (create, other) = (context(NOW), context(NOW));
        for _ in 0..ATTEMPTS {
            assert_eq!(admit(&registry, &create, unnamed(), &Value::Null), Ok(vec![30_003, 30_004]));
        }
        let refused = admit(&registry, &other, unnamed(), &Value::Null).unwrap_err();
        assert!(refused.contains("provided IP is already allocated"), "{refused}");
        let mut unnamed = unnamed();
        map_at_mut(&mut unnamed, "spec").remove("clusterIP");
        assert_eq!(admit(&registry, &other, unnamed, &Value::Null), Ok(vec![30_005, 30_006]));
    }

    #[tokio::test]
    async fn the_ports_of_a_service_get_different_node_ports() {
        let registry = Registry::new(100);
        crate::bootstrap::ensure_test_objects(&registry, NOW).await.unwrap();
        let kind = Kind::builtin("", "v1", "services");
        let stored = service(json!({"name": "a"}), json!([{"name": "a", "port": 80, "protocol": "TCP"}]));
        let stored = registry.create(&context(NOW), kind, Some("default"), stored).await.unwrap();
        let stored = unstructured::parse_stored(&stored);
        assert_eq!(stored["spec"]["ports"][0]["nodePort"], 30_000);
        // The allocation is no longer pending.
        let later = context(NOW + SignedDuration::from_mins(3));
        let mut updated = stored.clone();
        updated["spec"]["ports"] = json!([
            {"name": "b", "port": 81, "protocol": "TCP"},
            {"name": "a", "port": 80, "protocol": "TCP"},
        ]);
        assert_eq!(admit(&registry, &later, updated, &stored), Ok(vec![30_001, 30_000]));
        let requested =
            service(json!({"name": "c"}), json!([{"port": 80}, {"port": 81, "nodePort": 30_002}]));
        assert_eq!(admit(&registry, &later, requested, &Value::Null), Ok(vec![30_003, 30_002]));
    }
}
