//! Validation of Services, Endpoints and EndpointSlices.

use serde_json::Value;

use super::container::check_port;
use super::probe::check_port_or_name;
use super::{WriteToValidate, check_choice, check_immutable, check_required, check_required_name, has_field};
use crate::small_map::SmallSet;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors, InvalidValue};
use crate::validation::{address, labels, names};

/// Supported protocols of the ports of a Service, Endpoints object or EndpointSlice.
const SUPPORTED_PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Validates a Service. Upstream: `ValidateService`.
pub(crate) fn validate_service(write: &WriteToValidate, out: &mut FieldErrors) {
    let (new, at) = (write.new, ErrorPath::new("spec"));
    let spec = &new["spec"];
    if write.is_status_update() {
        return check_load_balancer_status(new, &ErrorPath::new("status.loadBalancer.ingress"), out);
    }
    let kind = str_at(spec, "type");
    if kind != "ExternalName" {
        // Upstream checks the cluster IPs when it allocates them, and returns only those errors.
        let mut cluster_ip_errors = FieldErrors::default();
        check_cluster_ips(spec, write.old, &at, &mut cluster_ip_errors);
        if !cluster_ip_errors.is_empty() {
            *out = cluster_ip_errors;
            return;
        }
    }
    if let Some(old) = write.old {
        check_service_update(spec, &old["spec"], &at, out);
    }
    let ports = list_at(spec, "ports");
    if ports.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        out.required(&at.field("ports"), "");
    }
    let ips_at = at.field("clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            out.invalid(&ips_at.index(0), "None", &format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if is_set(&spec[field]) {
                    out.forbidden(&at.field(field), "may not be set for ExternalName services");
                }
            }
            let name = str_at(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            check_required_name(name, names::dns_subdomain_errors, &at.field("externalName"), out);
        }
        _ => {}
    }
    let mut seen = SmallSet::default();
    for (index, port) in ports.iter().enumerate() {
        check_service_port(port, &mut seen, 1 < ports.len(), &at.field("ports").index(index), out);
    }
    labels::check_labels(&spec["selector"], &at.field("selector"), out);
    check_session_affinity(spec, &at, out);
    for (index, ip) in list_at(spec, "externalIPs").iter().enumerate() {
        let (ip, at) = (ip.as_str().unwrap_or_default(), at.field("externalIPs"));
        let before = out.len();
        address::check_ip(ip, &at.index(index), out);
        if out.len() == before {
            address::check_non_special_ip(ip, &at.index(index), out);
        }
    }
    check_required(spec, &["type"], &at, out);
    if !kind.is_empty() {
        let kinds = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        check_choice(&spec["type"], kinds, &at.field("type"), out);
    }
    check_port_conflicts(kind, ports, &at.field("ports"), out);
    check_load_balancer_fields(spec, &at, out);
    check_traffic_policies(spec, &at, out);
}

/// Whether a Service is headless: its cluster IP is the string `None`.
fn is_headless(spec: &Value) -> bool {
    spec["clusterIP"] == "None" || list_at(spec, "clusterIPs") == ["None"]
}

/// Checks that an update of a Service does not change cluster IPs and IP families that are set, or the load balancer
/// class. A second cluster IP or IP family may be added or removed. The IP families may change if the Service becomes
/// or stops being headless. The class is checked only if the type is `LoadBalancer` before and after the update.
/// Nothing is checked if the type is or was `ExternalName`, or if the Service was headless and stays headless.
fn check_service_update(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if new["type"] == "ExternalName"
        || old["type"] == "ExternalName"
        || (is_headless(old) && is_headless(new))
    {
        return;
    }
    for (name, noun) in [("clusterIPs", "clusterIP"), ("ipFamilies", "ipFamily")] {
        let (now, before) = (list_at(new, name), list_at(old, name));
        let at = at.field(name);
        if name == "ipFamilies" && is_headless(new) != is_headless(old) {
            continue;
        }
        if before.is_empty() {
        } else if now.is_empty() {
            out.invalid(&at.index(0), &new[name], &format!("primary {noun} can not be unset"));
        } else if now.len() == before.len() {
            for (index, _) in now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before) {
                out.invalid(&at.index(index), &new[name], "may not change once set");
            }
        } else if now[0] != before[0] {
            out.invalid(&at.index(0), &new[name], "may not change once set");
        }
    }
    let is_load_balancer = |it: &Value| it["type"] == "LoadBalancer";
    if is_load_balancer(new) && is_load_balancer(old) && new["loadBalancerClass"] != old["loadBalancerClass"]
    {
        out.invalid(&at.field("loadBalancerClass"), &new["loadBalancerClass"], "may not change once set");
    }
}

/// Checks a port of a Service. `seen` contains the names of the ports before it in the list, and gets its name.
/// `needs_name` is `true` if the Service has several ports, so that each must have a name.
fn check_service_port<'a>(
    port: &'a Value,
    seen: &mut SmallSet<&'a str>,
    needs_name: bool,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let name = str_at(port, "name");
    if needs_name || !name.is_empty() {
        check_required_name(name, names::dns_label_errors, &at.field("name"), out);
    }
    if !name.is_empty() && !seen.insert(name) {
        out.duplicate(&at.field("name"), name);
    }
    check_port(port["port"].as_i64().unwrap_or(0), &at.field("port"), out);
    check_protocol(port, at, out);
    check_port_or_name(&port["targetPort"], &at.field("targetPort"), out);
    if let Some(protocol) = port["appProtocol"].as_str() {
        labels::check_label_key(protocol, &at.field("appProtocol"), out);
    }
}

/// Checks that a port has a protocol and that it is one of `SUPPORTED_PROTOCOLS`.
fn check_protocol(port: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(port, &["protocol"], at, out);
    if is_set(&port["protocol"]) {
        check_choice(&port["protocol"], SUPPORTED_PROTOCOLS, &at.field("protocol"), out);
    }
}

/// Checks `sessionAffinity` and its configuration.
fn check_session_affinity(spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Maximum timeout of session affinity in seconds: one day.
    const SESSION_AFFINITY_TIMEOUT_S_MAX: i64 = 86_400;
    let config = &spec["sessionAffinityConfig"];
    match str_at(spec, "sessionAffinity") {
        "" => out.required(&at.field("sessionAffinity"), ""),
        "None" if !config.is_null() => {
            let why = "must not be set when session affinity is None";
            out.forbidden(&at.field("sessionAffinityConfig"), why);
        }
        "None" => {}
        "ClientIP" => {
            let at = at.field("sessionAffinityConfig.clientIP.timeoutSeconds");
            match config["clientIP"]["timeoutSeconds"].as_i64() {
                None => out.required(&at, "when session affinity type is ClientIP"),
                Some(seconds) if !(1..=SESSION_AFFINITY_TIMEOUT_S_MAX).contains(&seconds) => {
                    let why =
                        format!("must be greater than 0 and less than {SESSION_AFFINITY_TIMEOUT_S_MAX}");
                    out.invalid(&at, seconds, &why);
                }
                Some(_) => {}
            }
        }
        other => out.unsupported(&at.field("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

/// Checks the cluster IPs and IP families of a Service. `old` is the Service before an update, or `None` on create.
fn check_cluster_ips(spec: &Value, old: Option<&Value>, at: &ErrorPath, out: &mut FieldErrors) {
    let (ip, ips) = (str_at(spec, "clusterIP"), list_at(spec, "clusterIPs"));
    let ips_at = at.field("clusterIPs");
    if let Some(first) = ips.first() {
        if ip.is_empty() {
            out.invalid(&ips_at, &spec["clusterIPs"], "must be empty when `clusterIP` is not specified");
        } else if first != ip {
            out.invalid(&ips_at, &spec["clusterIPs"], "first value must match `clusterIP`");
        }
    }
    let families = list_at(spec, "ipFamilies");
    let mut seen = SmallSet::default();
    for (index, family) in families.iter().enumerate() {
        let at = at.field("ipFamilies");
        check_choice(family, &["IPv4", "IPv6"], &at.index(index), out);
        if !seen.insert(family) {
            out.duplicate(&at.index(index), family);
        }
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    check_choice(&spec["ipFamilyPolicy"], policies, &at.field("ipFamilyPolicy"), out);
    let before = out.len();
    let old_ips: SmallSet<_> = old.into_iter().flat_map(|old| list_at(&old["spec"], "clusterIPs")).collect();
    for (index, ip) in ips.iter().enumerate() {
        if index == 0 && ip == "None" {
            if 1 < ips.len() {
                out.invalid(&ips_at, &spec["clusterIPs"], "'None' must be the first and only value");
            }
        } else if !old_ips.contains(ip) {
            address::check_ip(ip.as_str().unwrap_or_default(), &ips_at.index(index), out);
        }
    }
    let has_invalid = out.len() != before;
    if 2 < ips.len() {
        out.invalid(&ips_at, &spec["clusterIPs"], "may only hold up to 2 values");
    }
    if has_invalid {
        return;
    }
    let is_6 = |ip: &Value| ip.as_str().is_some_and(|it| it.contains(':'));
    if 1 < ips.len() && ips.iter().filter(|it| is_6(it)).count() != 1 {
        let why = "may specify no more than one IP for each IP family";
        out.invalid(&ips_at, &spec["clusterIPs"], why);
    }
    for (index, (ip, family)) in ips.iter().zip(families).enumerate().filter(|_| !is_headless(spec)) {
        let family_name = family.as_str().unwrap_or_default();
        if (family_name == "IPv4" && is_6(ip)) || (family_name == "IPv6" && !is_6(ip)) {
            let why = format!("expected an {family_name} value as indicated by `ipFamilies[{index}]`");
            out.invalid(&ips_at.index(index), ip, &why);
        }
    }
}

/// Checks that no two ports of a Service have the same number and protocol, and that no two have the same node port and
/// protocol. Also checks that a Service of the type `ClusterIP` has no node ports. `kind` is the type of the Service.
fn check_port_conflicts(kind: &str, ports: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let node_port = |it: &Value| it["nodePort"].as_i64().unwrap_or(0);
    for (index, port) in ports.iter().enumerate() {
        if kind == "ClusterIP" && node_port(port) != 0 {
            out.forbidden(&at.index(index).field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut seen = SmallSet::default();
    for (index, port) in ports.iter().enumerate().filter(|(_, it)| node_port(it) != 0) {
        if !seen.insert((&port["protocol"], node_port(port))) {
            out.duplicate(&at.index(index).field("nodePort"), node_port(port));
        }
    }
    let mut seen = SmallSet::default();
    for (index, port) in ports.iter().enumerate() {
        if !seen.insert((&port["protocol"], &port["port"])) {
            let port_in_go = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port["protocol"], port["port"]
            );
            out.duplicate(&at.index(index), InvalidValue::Formatted(port_in_go.into()));
        }
    }
}

/// Checks the fields that only a Service of the type `LoadBalancer` may set, for a Service of any type.
fn check_load_balancer_fields(spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Upstream's message for a field that only a Service of the type `LoadBalancer` may set.
    const ONLY_LOAD_BALANCER_MESSAGE: &str = "may only be used when `type` is 'LoadBalancer'";
    let is_load_balancer = spec["type"] == "LoadBalancer";
    let ranges = list_at(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let at = at.field("LoadBalancerSourceRanges");
        if !is_load_balancer {
            out.forbidden(&at, ONLY_LOAD_BALANCER_MESSAGE);
        }
        for (index, range) in ranges.iter().enumerate() {
            address::check_cidr(range.as_str().unwrap_or_default().trim(), &at.index(index), out);
        }
    }
    if has_field(spec, "allocateLoadBalancerNodePorts") && !is_load_balancer {
        out.forbidden(&at.field("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER_MESSAGE);
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        let at = at.field("loadBalancerClass");
        if is_load_balancer {
            labels::check_label_key(class, &at, out);
        } else {
            out.forbidden(&at, ONLY_LOAD_BALANCER_MESSAGE);
        }
    }
}

/// Checks the external and internal traffic policies, `healthCheckNodePort` and `trafficDistribution`.
fn check_traffic_policies(spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let kind = str_at(spec, "type");
    let is_externally_accessible =
        matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && is_set(&spec["externalIPs"]));
    let (policy, policy_at) = (str_at(spec, "externalTrafficPolicy"), at.field("externalTrafficPolicy"));
    match (is_externally_accessible, policy) {
        (false, "") => {}
        (false, _) => out.invalid(&policy_at, policy, "may only be set for externally-accessible services"),
        (true, "") => out.required(&policy_at, ""),
        (true, _) => check_choice(&spec["externalTrafficPolicy"], &["Cluster", "Local"], &policy_at, out),
    }
    let health = spec["healthCheckNodePort"].as_i64().unwrap_or(0);
    if health != 0 && !(kind == "LoadBalancer" && policy == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        out.invalid(&at.field("healthCheckNodePort"), health, why);
    }
    check_choice(
        &spec["internalTrafficPolicy"],
        &["Cluster", "Local"],
        &at.field("internalTrafficPolicy"),
        out,
    );
    let distributions = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    check_choice(&spec["trafficDistribution"], distributions, &at.field("trafficDistribution"), out);
}

/// Checks `status.loadBalancer` of a Service.
fn check_load_balancer_status(service: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let ingress = list_at(&service["status"]["loadBalancer"], "ingress");
    if service["spec"]["type"] != "LoadBalancer" && !ingress.is_empty() {
        return out.forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for (index, it) in ingress.iter().enumerate() {
        let at = at.index(index);
        let (ip, name) = (str_at(it, "ip"), str_at(it, "hostname"));
        if !ip.is_empty() {
            address::check_ip(ip, &at.field("ip"), out);
        }
        if has_field(it, "ipMode") && ip.is_empty() {
            out.forbidden(&at.field("ipMode"), "may not be specified when `ip` is not set");
        } else {
            check_choice(&it["ipMode"], &["Proxy", "VIP"], &at.field("ipMode"), out);
        }
        if !name.is_empty() {
            out.invalid_for_each(&at.field("hostname"), name, names::dns_subdomain_errors(name));
            if name.parse::<std::net::IpAddr>().is_ok() {
                out.invalid(&at.field("hostname"), name, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// Validates Endpoints. An update that does not change `subsets` is not checked. Upstream: `ValidateEndpoints`.
pub(crate) fn validate_endpoints(write: &WriteToValidate, out: &mut FieldErrors) {
    let subsets = &write.new["subsets"];
    if write.old.is_some_and(|old| old["subsets"] == *subsets) {
        return;
    }
    for (index, subset) in subsets.as_array().into_iter().flatten().enumerate() {
        let at = ErrorPath::new("subsets");
        let at = at.index(index);
        if !is_set(&subset["addresses"]) && !is_set(&subset["notReadyAddresses"]) {
            out.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for name in ["addresses", "notReadyAddresses"] {
            for (index, it) in list_at(subset, name).iter().enumerate() {
                check_endpoint_address(it, &at.field(name).index(index), out);
            }
        }
        let ports = list_at(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            let at = at.field("ports");
            let (at, name) = (at.index(index), str_at(port, "name"));
            if 1 < ports.len() || !name.is_empty() {
                check_required_name(name, names::dns_label_errors, &at.field("name"), out);
            }
            check_port(port["port"].as_i64().unwrap_or(0), &at.field("port"), out);
            check_protocol(port, &at, out);
            if let Some(protocol) = port["appProtocol"].as_str() {
                labels::check_label_key(protocol, &at.field("appProtocol"), out);
            }
        }
    }
}

/// Checks one address of an Endpoints object.
fn check_endpoint_address(it: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let (ip, hostname) = (str_at(it, "ip"), str_at(it, "hostname"));
    address::check_ip(ip, &at.field("ip"), out);
    if !hostname.is_empty() {
        out.invalid_for_each(&at.field("hostname"), hostname, names::dns_label_errors(hostname));
    }
    if let Some(node) = it["nodeName"].as_str() {
        out.invalid_for_each(&at.field("nodeName"), node, names::dns_subdomain_errors(node));
    }
    address::check_non_special_ip(ip, &at.field("ip"), out);
}

/// Validates an EndpointSlice. If an update does not change `endpoints`, they are not checked. Upstream:
/// `ValidateEndpointSlice`.
pub(crate) fn validate_endpoint_slice(write: &WriteToValidate, out: &mut FieldErrors) {
    /// Maximum number of endpoints in an EndpointSlice.
    const SLICE_ENDPOINTS_MAX: usize = 1000;
    /// Maximum number of addresses of an endpoint in an EndpointSlice.
    const ENDPOINT_ADDRESSES_MAX: usize = 100;
    /// Maximum number of ports in an EndpointSlice.
    const SLICE_PORTS_MAX: usize = 20_000;
    let slice = write.new;
    let kind = str_at(slice, "addressType");
    match kind {
        "" => out.required(&ErrorPath::new("addressType"), ""),
        _ => check_choice(
            &slice["addressType"],
            &["FQDN", "IPv4", "IPv6"],
            &ErrorPath::new("addressType"),
            out,
        ),
    }
    let (ports, ports_at) = (list_at(slice, "ports"), ErrorPath::new("ports"));
    if SLICE_PORTS_MAX < ports.len() {
        out.too_many(&ports_at, ports.len(), SLICE_PORTS_MAX);
    } else {
        let mut seen = SmallSet::default();
        for (index, port) in ports.iter().enumerate() {
            let (at, name) = (ports_at.index(index), str_at(port, "name"));
            if !name.is_empty() {
                out.invalid_for_each(&at.field("name"), name, names::dns_label_errors(name));
            }
            if !seen.insert(name) {
                out.duplicate(&at.field("name"), name);
            }
            check_protocol(port, &at, out);
            if let Some(protocol) = port["appProtocol"].as_str() {
                labels::check_label_key(protocol, &at.field("appProtocol"), out);
            }
        }
    }
    if let Some(old) = write.old {
        check_immutable(&slice["addressType"], &old["addressType"], &ErrorPath::new("addressType"), out);
        if slice["endpoints"] == old["endpoints"] {
            return;
        }
    }
    let (endpoints, at) = (list_at(slice, "endpoints"), ErrorPath::new("endpoints"));
    if SLICE_ENDPOINTS_MAX < endpoints.len() {
        return out.too_many(&at, endpoints.len(), SLICE_ENDPOINTS_MAX);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = at.index(index);
        let (addresses, addresses_at) = (list_at(endpoint, "addresses"), at.field("addresses"));
        if addresses.is_empty() {
            out.required(&addresses_at, "must contain at least 1 address");
        } else if ENDPOINT_ADDRESSES_MAX < addresses.len() {
            out.too_many(&addresses_at, addresses.len(), ENDPOINT_ADDRESSES_MAX);
        }
        for (index, it) in addresses.iter().enumerate() {
            check_slice_address(
                kind,
                it.as_str().unwrap_or_default(),
                &addresses_at.index(index),
                &addresses_at,
                out,
            );
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            out.invalid_for_each(&at.field("nodeName"), node, names::dns_subdomain_errors(node));
        }
        if let Some(name) = endpoint["hostname"].as_str() {
            out.invalid_for_each(&at.field("hostname"), name, names::dns_label_errors(name));
        }
        check_hints(&endpoint["hints"], &at.field("hints"), out);
    }
}

/// Checks one address of an EndpointSlice. `kind` is the address type of the slice, and `list_at` is the path of the
/// address list.
fn check_slice_address(kind: &str, text: &str, at: &ErrorPath, list_at: &ErrorPath, out: &mut FieldErrors) {
    let before = out.len();
    match kind {
        "IPv4" | "IPv6" => {
            address::check_ip(text, at, out);
            if out.len() == before {
                if text.contains(':') != (kind == "IPv6") {
                    out.invalid(list_at, text, &format!("must be an {kind} address"));
                }
                address::check_non_special_ip(text, at, out);
            }
        }
        "FQDN" => {
            let name = text.strip_suffix('.').unwrap_or(text);
            if text.is_empty() {
                out.required(at, "");
            } else if !names::dns_subdomain_errors(name).is_empty() {
                out.invalid(at, name, &names::dns_subdomain_errors(name).join(","));
            } else if !name.contains('.') {
                out.invalid(at, name, "should be a domain with at least two segments separated by dots");
            }
        }
        _ => {}
    }
}

/// Checks the topology hints of an endpoint.
fn check_hints(hints: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Maximum number of zones or nodes in the hints of an endpoint.
    const ENDPOINT_HINTS_MAX: usize = 8;
    for (field, rule) in [
        ("forZones", names::label_value_errors as fn(&str) -> Vec<String>),
        ("forNodes", names::dns_subdomain_errors),
    ] {
        let (items, at) = (list_at(hints, field), at.field(field));
        if ENDPOINT_HINTS_MAX < items.len() {
            return out.too_many(&at, items.len(), ENDPOINT_HINTS_MAX);
        }
        for (index, it) in items.iter().enumerate() {
            let at = at.index(index);
            let (at, name) = (at.field("name"), str_at(it, "name"));
            if items[..index].iter().any(|it| str_at(it, "name") == name) {
                out.duplicate(&at, name);
            }
            out.invalid_for_each(&at, name, rule(name));
        }
    }
}
