//! Validation of pods and pod templates.

use serde_json::Value;

use super::container::{
    check_containers, check_ephemeral_containers, check_init_containers, check_pod_image, check_resources,
};
use super::{
    WriteToValidate, check_choice, check_optional_name, check_required, has_field, pod_update, scheduling,
    security, volume,
};
use crate::small_map::{SmallMap, SmallSet};
use crate::subresource::Subresource;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{address, labels, metadata, names, resources};
use muster_api::quantity::Quantity;
use muster_api::resources::{is_huge_pages, is_pod_level_resource, spec_container_total};
use muster_api::well_known::{
    ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_CONFIG_MIRROR, ANNOTATION_SECCOMP_CONTAINER_PREFIX,
    ANNOTATION_SECCOMP_POD,
};

/// Validates a pod or one of its subresources. Upstream: `ValidatePodCreate`, `ValidatePodUpdate`.
pub(crate) fn validate_pod(write: &WriteToValidate, out: &mut FieldErrors) {
    let (new, at) = (write.new, ErrorPath::new("spec"));
    match (write.old, write.subresource) {
        (Some(old), Subresource::Status) => pod_update::check_status_update(new, old, out),
        (None, _) => {
            check_pod_object(new, out);
            if is_set(&new["spec"]["ephemeralContainers"]) {
                out.forbidden(&at.field("ephemeralContainers"), "cannot be set on create");
            }
            if is_set(&new["spec"]["nodeName"]) && is_set(&new["spec"]["schedulingGates"]) {
                out.forbidden(
                    &at.field("nodeName"),
                    "cannot be set until all schedulingGates have been cleared",
                );
            }
            check_profile_annotations(&new["metadata"], &new["spec"], &at, out);
        }
        (Some(old), subresource) => {
            metadata::validate_object_metadata(new, names::dns_subdomain_name_errors, true, out);
            check_pod_object(new, out);
            pod_update::check_pod_update(new, old, subresource, out);
        }
    }
}

pub(crate) fn validate_pod_template(write: &WriteToValidate, out: &mut FieldErrors) {
    check_template(&write.new["template"], &ErrorPath::new("template"), out);
}

/// Checks a pod template that another object contains. Upstream: `ValidatePodTemplateSpec`.
pub(super) fn check_template(template: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let (meta, spec) = (&template["metadata"], &template["spec"]);
    labels::check_labels(&meta["labels"], &at.field("labels"), out);
    metadata::check_annotations(&meta["annotations"], &at.field("annotations"), out);
    check_pod_annotations(&meta["annotations"], spec, &at.field("annotations"), out);
    check_spec(spec, None, &at.field("spec"), out);
    check_profile_annotations(meta, spec, &at.field("spec"), out);
    if is_set(&spec["ephemeralContainers"]) {
        let why = "ephemeral containers not allowed in pod template";
        out.forbidden(&at.field("spec.ephemeralContainers"), why);
    }
}

/// Checks the annotations and the spec of a pod, on create and on update.
fn check_pod_object(pod: &Value, out: &mut FieldErrors) {
    let (meta, spec, at) = (&pod["metadata"], &pod["spec"], ErrorPath::new("spec"));
    check_pod_annotations(&meta["annotations"], spec, &ErrorPath::new("metadata.annotations"), out);
    check_spec(spec, Some(str_at(meta, "name")), &at, out);
    if !is_set(&spec["serviceAccountName"]) {
        for (index, volume) in list_at(spec, "volumes").iter().enumerate() {
            let at = at.field("volumes");
            let at = at.index(index);
            for (index, source) in list_at(&volume["projected"], "sources").iter().enumerate() {
                if has_field(source, "serviceAccountToken") {
                    let at = at.field("projected.sources");
                    let why = "must not be specified when serviceAccountName is not set";
                    out.forbidden(&at.index(index).field("serviceAccountToken"), why);
                }
            }
        }
    }
    for name in ["containers", "initContainers"] {
        for (index, container) in list_at(spec, name).iter().enumerate() {
            check_pod_image(container, &at.field(name).index(index), out);
        }
    }
}

/// A pod spec to validate, with the volumes that its containers may mount.
pub(super) struct PodSpecToValidate<'a> {
    pub(super) json: &'a Value,
    /// Those volumes of the pod that passed validation, by name. Containers may mount only these.
    volumes: SmallMap<&'a str, &'a Value>,
}

impl<'a> PodSpecToValidate<'a> {
    /// Returns the valid volume with this name, or `None` if the pod has no such volume.
    pub(super) fn find_volume(&self, name: &str) -> Option<&'a Value> {
        self.volumes.get(name).copied()
    }

    /// Returns `terminationGracePeriodSeconds` of the pod, or `None` if it is not set.
    pub(super) fn termination_grace_s(&self) -> Option<i64> {
        self.json["terminationGracePeriodSeconds"].as_i64()
    }

    /// Returns `os.name` of the pod, or `None` if it is not set.
    pub(super) fn os_name(&self) -> Option<&'a str> {
        self.json["os"]["name"].as_str()
    }

    /// Whether the pod runs in the user namespace of the host, which is the default of `hostUsers`.
    pub(super) fn uses_host_users(&self) -> bool {
        self.json["hostUsers"] != false
    }

    /// Calls `visit` for each container, see [`for_each_container`].
    pub(super) fn for_each_container(&self, at: &ErrorPath, visit: impl FnMut(&Value, &ErrorPath)) {
        for_each_container(self.json, at, visit);
    }
}

/// Calls `visit` for each container of a pod spec, in upstream's order: init, regular and ephemeral containers.
pub(super) fn for_each_container(spec: &Value, at: &ErrorPath, mut visit: impl FnMut(&Value, &ErrorPath)) {
    for name in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list_at(spec, name).iter().enumerate() {
            visit(container, &at.field(name).index(index));
        }
    }
}

/// Checks a pod spec. `pod` is the name of the pod, or `None` for a pod template.
fn check_spec(json: &Value, pod: Option<&str>, at: &ErrorPath, out: &mut FieldErrors) {
    if json["terminationGracePeriodSeconds"].is_null() {
        out.required(&at.field("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::check_volumes(list_at(json, "volumes"), pod, &at.field("volumes"), out);
    let spec = &PodSpecToValidate { json, volumes };
    check_resource_claims(list_at(json, "resourceClaims"), &at.field("resourceClaims"), out);
    check_containers(spec, &at.field("containers"), out);
    check_init_containers(spec, &at.field("initContainers"), out);
    check_ephemeral_containers(spec, &at.field("ephemeralContainers"), out);
    check_pod_resources(spec, &at.field("resources"), out);
    check_host_network_ports(json, pod.is_some(), at, out);
    check_required_choice(json, "restartPolicy", &["Always", "OnFailure", "Never"], at, out);
    check_required_choice(
        json,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        at,
        out,
    );
    labels::check_labels(&json["nodeSelector"], &at.field("nodeSelector"), out);
    security::check_pod_context(spec, &at.field("securityContext"), out);
    scheduling::check_affinity(&json["affinity"], &at.field("affinity"), out);
    check_dns_config(json, &at.field("dnsConfig"), out);
    for (index, gate) in list_at(json, "readinessGates").iter().enumerate() {
        let kind = str_at(gate, "conditionType");
        labels::check_label_key(kind, &at.field("readinessGates").index(index).field("conditionType"), out);
    }
    check_scheduling_gates(list_at(json, "schedulingGates"), &at.field("schedulingGates"), out);
    let spreading_at = at.field("topologySpreadConstraints");
    scheduling::check_topology_spread(list_at(json, "topologySpreadConstraints"), &spreading_at, out);
    security::check_host_process(spec, at, out);
    security::check_host_users(spec, at, out);
    check_hostname_override(json, at, out);
    check_optional_name(json, "serviceAccountName", at, out);
    check_optional_name(json, "nodeName", at, out);
    if let Some(seconds) = json["activeDeadlineSeconds"].as_i64() {
        for why in names::range_errors(seconds, 1, i64::from(i32::MAX)) {
            out.invalid(&at.field("activeDeadlineSeconds"), seconds, &why);
        }
    }
    for name in ["hostname", "subdomain"] {
        let value = str_at(json, name);
        if !value.is_empty() {
            out.invalid_for_each(&at.field(name), value, names::dns_label_errors(value));
        }
    }
    scheduling::check_tolerations(list_at(json, "tolerations"), &at.field("tolerations"), out);
    check_host_aliases(list_at(json, "hostAliases"), &at.field("hostAliases"), out);
    check_optional_name(json, "priorityClassName", at, out);
    if let Some(class) = json["runtimeClassName"].as_str() {
        out.invalid_for_each(&at.field("runtimeClassName"), class, names::dns_subdomain_errors(class));
    }
    if has_field(json, "preemptionPolicy") {
        check_required_choice(json, "preemptionPolicy", &["PreemptLowerPriority", "Never"], at, out);
    }
    if has_field(json, "overhead") {
        check_overhead(&json["overhead"], &at.field("overhead"), out);
    }
    security::check_os_fields(spec, at, out);
    check_file_key_refs(spec, at, out);
}

/// Checks the overhead of a pod or RuntimeClass. The messages mention limits, because upstream checks overhead like the
/// limits of a container.
pub(super) fn check_overhead(overhead: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let limits = serde_json::json!({"limits": overhead});
    let empty_spec = PodSpecToValidate { json: &Value::Null, volumes: SmallMap::default() };
    check_resources(&limits, resources::check_container_resource_name, &empty_spec, at, out);
}

/// Checks that the required string in the field `name` is one of the supported values.
fn check_required_choice(
    json: &Value,
    name: &str,
    supported: &[&str],
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    check_required(json, &[name], at, out);
    if is_set(&json[name]) {
        check_choice(&json[name], supported, &at.field(name), out);
    }
}

/// Checks `spec.resourceClaims` of a pod.
fn check_resource_claims(claims: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, claim) in claims.iter().enumerate() {
        let at = at.index(index);
        let name = str_at(claim, "name");
        if !name.is_empty() && !seen.insert(name) {
            out.duplicate(&at.field("name"), name);
        } else {
            super::check_required_name(name, names::dns_label_errors, &at.field("name"), out);
        }
        let fields = &[
            ("Name", "name"),
            ("ResourceClaimName", "resourceClaimName"),
            ("ResourceClaimTemplateName", "resourceClaimTemplateName"),
        ];
        match (has_field(claim, "resourceClaimName"), has_field(claim, "resourceClaimTemplateName")) {
            (true, true) => {
                let why =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                out.invalid(&at, super::format_as_go_struct(claim, fields), why);
            }
            (false, false) => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                out.invalid(&at, super::format_as_go_struct(claim, fields), why);
            }
            _ => {}
        }
        check_optional_name(claim, "resourceClaimName", &at, out);
        check_optional_name(claim, "resourceClaimTemplateName", &at, out);
    }
}

/// Checks the pod-level requests and limits (`spec.resources`). The pod-level requests, and the pod-level limits of
/// huge pages, must be at least the sum over the containers. No regular container may have a higher limit than the pod.
fn check_pod_resources(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let pod_resources = &spec.json["resources"];
    if pod_resources.is_null() {
        return;
    }
    if spec.os_name() == Some("windows") {
        return out.forbidden(at, "may not be set for a windows pod");
    }
    if has_field(pod_resources, "claims") {
        out.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    check_resources(pod_resources, check_pod_level_resource_name, spec, at, out);
    for (name, sum) in spec_container_total(spec.json, "requests") {
        let pod_quantity = &pod_resources["requests"][&name];
        if !pod_quantity.is_null() && Quantity::from_json(pod_quantity) < sum {
            let why = format!("must be greater than or equal to aggregate container requests of {sum}");
            out.invalid(&at.field("requests").key(&name), pod_quantity, &why);
        }
    }
    for (name, sum) in spec_container_total(spec.json, "limits") {
        let pod_quantity = &pod_resources["limits"][&name];
        if is_huge_pages(&name) && !pod_quantity.is_null() && Quantity::from_json(pod_quantity) < sum {
            let why = format!("must be greater than or equal to aggregate container limits of {sum}");
            out.invalid(&at.field("limits").key(&name), pod_quantity, &why);
        }
    }
    for (index, container) in list_at(spec.json, "containers").iter().enumerate() {
        for (name, limit) in container["resources"]["limits"].as_object().into_iter().flatten() {
            let pod_limit = &pod_resources["limits"][name];
            if !pod_limit.is_null() && Quantity::from_json(pod_limit) < Quantity::from_json(limit) {
                let why = format!(
                    "must be less than or equal to pod limits of {}",
                    pod_limit.as_str().unwrap_or_default()
                );
                let at = at.field("containers");
                out.invalid(&at.index(index).key(name).field("limits"), limit, &why);
            }
        }
    }
}

/// Checks that `name` is a resource for which a pod as a whole may have requests and limits: CPU, memory or huge pages.
fn check_pod_level_resource_name(name: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let before = out.len();
    resources::check_resource_name(name, at, out);
    if out.len() == before && !is_pod_level_resource(name) {
        out.unsupported(at, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// Checks that each host port of the regular containers equals its container port if the pod uses the host network.
/// `is_pod` is `false` for a pod template, where a host port may be absent.
fn check_host_network_ports(json: &Value, is_pod: bool, at: &ErrorPath, out: &mut FieldErrors) {
    if json["hostNetwork"] != true {
        return;
    }
    for (index, container) in list_at(json, "containers").iter().enumerate() {
        let at = at.field("containers");
        let at = at.index(index);
        for (index, port) in list_at(container, "ports").iter().enumerate() {
            let number = |name| port[name].as_i64().unwrap_or(0);
            let host_port = number("hostPort");
            if (is_pod || host_port != 0) && host_port != number("containerPort") {
                let at = at.field("ports");
                let why = "must match `containerPort` when `hostNetwork` is true";
                out.invalid(&at.index(index).field("hostPort"), host_port, why);
            }
        }
    }
}

/// Checks `spec.dnsConfig`, which is required if `dnsPolicy` is `None`.
fn check_dns_config(json: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Maximum number of name servers in `spec.dnsConfig`.
    const NAMESERVERS_MAX: usize = 3;
    /// Maximum number of search domains in `spec.dnsConfig`.
    const SEARCH_DOMAINS_MAX: usize = 32;
    /// Maximum total length of the search domains in bytes, with one space between them.
    const SEARCH_DOMAINS_BYTES_MAX: usize = 2048;
    let config = &json["dnsConfig"];
    let servers = list_at(config, "nameservers");
    if json["dnsPolicy"] == "None" {
        if config.is_null() {
            return out.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return out.required(&at.field("nameservers"), why);
        }
    }
    if NAMESERVERS_MAX < servers.len() {
        let why = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        out.invalid(&at.field("nameservers"), &config["nameservers"], &why);
    }
    for (index, server) in servers.iter().enumerate() {
        address::check_ip(server.as_str().unwrap_or_default(), &at.field("nameservers").index(index), out);
    }
    let searches: Vec<_> =
        list_at(config, "searches").iter().map(|it| it.as_str().unwrap_or_default()).collect();
    let searches_at = at.field("searches");
    if SEARCH_DOMAINS_MAX < searches.len() {
        let why = format!("must not have more than {SEARCH_DOMAINS_MAX} search paths");
        out.invalid(&searches_at, &config["searches"], &why);
    }
    if SEARCH_DOMAINS_BYTES_MAX < searches.join(" ").len() {
        let why = format!(
            "must not have more than {SEARCH_DOMAINS_BYTES_MAX} characters (including spaces) in the search list"
        );
        out.invalid(&searches_at, &config["searches"], &why);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, it)| **it != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        out.invalid_for_each(
            &searches_at.index(index),
            search,
            names::dns_subdomain_with_underscore_errors(search),
        );
    }
    for (index, option) in list_at(config, "options").iter().enumerate() {
        if !is_set(&option["name"]) {
            out.required(&at.field("options").index(index), "must not be empty");
        }
    }
}

/// Checks the names of scheduling gates, which must be unique.
fn check_scheduling_gates(gates: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, gate) in gates.iter().enumerate() {
        let (at, name) = (at.index(index), str_at(gate, "name"));
        labels::check_label_key(name, &at, out);
        if !seen.insert(name) {
            out.duplicate(&at, name);
        }
    }
}

fn check_hostname_override(json: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let Some(name) = json["hostnameOverride"].as_str() else { return };
    let name_at = at.field("hostnameOverride");
    if json["setHostnameAsFQDN"] == true {
        out.forbidden(&name_at, "may not be specified when setHostnameAsFQDN is true");
    }
    if json["hostNetwork"] == true {
        out.forbidden(&name_at, "may not be specified when hostNetwork is true");
    }
    if 64 < name.len() {
        out.too_long(&name_at, 64);
    }
    out.invalid_for_each(&name_at, name, names::dns_subdomain_errors(name));
}

/// Checks the IP addresses and host names of `spec.hostAliases`.
fn check_host_aliases(aliases: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    for (index, alias) in aliases.iter().enumerate() {
        let at = at.index(index);
        address::check_ip(str_at(alias, "ip"), &at.field("ip"), out);
        for (index, name) in list_at(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            out.invalid_for_each(
                &at.field("hostnames").index(index),
                name,
                names::dns_subdomain_errors(name),
            );
        }
    }
}

/// Checks that each `fileKeyRef` of an environment variable refers to an `emptyDir` volume.
fn check_file_key_refs(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let volumes: SmallMap<&str, &Value> =
        list_at(spec.json, "volumes").iter().map(|it| (str_at(it, "name"), it)).collect();
    spec.for_each_container(at, |container, at| {
        for (index, env) in list_at(container, "env").iter().enumerate() {
            let reference = &env["valueFrom"]["fileKeyRef"];
            if reference.is_null() {
                continue;
            }
            let at = at.field("env");
            let at = at.index(index);
            let at = at.field("valueFrom.fileKeyRef.volumeName");
            let name = str_at(reference, "volumeName");
            match volumes.get(name).copied() {
                None => out.not_found(&at, name),
                Some(volume) if has_field(volume, "emptyDir") => {}
                Some(_) => out.invalid(&at, name, "referenced volume must be of type emptyDir"),
            }
        }
    });
}

/// Checks the annotations `kubernetes.io/config.mirror` and `controller.kubernetes.io/pod-deletion-cost`, and the
/// deprecated annotations for seccomp and AppArmor profiles.
fn check_pod_annotations(annotations: &Value, spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Key of the annotation that sets the cost of deleting a pod, a 32-bit integer.
    const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
    let Some(annotations) = annotations.as_object() else { return };
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers: SmallSet<_> =
        lists.iter().flat_map(|it| list_at(spec, it)).map(|it| str_at(it, "name")).collect();
    if let Some(mirror) = annotations.get(ANNOTATION_CONFIG_MIRROR)
        && !is_set(&spec["nodeName"])
    {
        out.invalid(
            &at.key(ANNOTATION_CONFIG_MIRROR),
            mirror,
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    if let Some(cost) = annotations.get(DELETION_COST_ANNOTATION).map(text) {
        let digits = cost.strip_prefix('-').unwrap_or(&cost);
        let is_plain = digits == "0" && !cost.starts_with('-') || !digits.starts_with(['0', '+']);
        if cost.parse::<i32>().is_err() || !is_plain {
            out.invalid(&at.key(DELETION_COST_ANNOTATION), &cost, "must be a 32bit integer");
        }
    }
    for (key, profile) in annotations {
        let profile = text(profile);
        if key == ANNOTATION_SECCOMP_POD || key.starts_with(ANNOTATION_SECCOMP_CONTAINER_PREFIX) {
            match profile.strip_prefix("localhost/") {
                Some(path) => super::file_path::check_relative_path(path, &at.field(key), out),
                None if matches!(profile.as_str(), "runtime/default" | "docker/default" | "unconfined") => {}
                None => out.invalid(&at.field(key), &profile, "must be a valid seccomp profile"),
            }
        }
        if let Some(container) = key.strip_prefix(ANNOTATION_APP_ARMOR_PREFIX) {
            if !containers.contains(container) {
                out.invalid(&at.key(key), container, "container not found");
            }
            let is_known = matches!(profile.as_str(), "" | "runtime/default" | "unconfined");
            if !is_known && !profile.starts_with("localhost/") {
                out.invalid(&at.key(key), &profile, &format!("invalid AppArmor profile name: {profile:?}"));
            }
        }
    }
}

/// Checks that a seccomp or AppArmor profile that is set both by an annotation and by a field is the same in both.
/// AppArmor profiles of Windows pods are not compared.
fn check_profile_annotations(meta: &Value, json: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let annotations = &meta["annotations"];
    if !annotations.is_object() {
        return;
    }
    let spec = PodSpecToValidate { json, volumes: SmallMap::default() };
    let pod_context = &json["securityContext"];
    if let Some(annotation) = annotations[ANNOTATION_SECCOMP_POD].as_str() {
        check_profile_equals_annotation(
            "seccomp",
            annotation,
            &pod_context["seccompProfile"],
            &at.field("securityContext.seccompProfile"),
            out,
        );
    }
    spec.for_each_container(at, |container, at| {
        let key = format!("{ANNOTATION_SECCOMP_CONTAINER_PREFIX}{}", str_at(container, "name"));
        if let Some(annotation) = annotations[&key].as_str() {
            let profile = &container["securityContext"]["seccompProfile"];
            check_profile_equals_annotation(
                "seccomp",
                annotation,
                profile,
                &at.field("securityContext.seccompProfile"),
                out,
            );
        }
    });
    if spec.os_name() == Some("windows") {
        return;
    }
    spec.for_each_container(at, |container, at| {
        let key = format!("{ANNOTATION_APP_ARMOR_PREFIX}{}", str_at(container, "name"));
        if let Some(annotation) = annotations[&key].as_str() {
            let own = &container["securityContext"]["appArmorProfile"];
            let profile = if own.is_null() { &pod_context["appArmorProfile"] } else { own };
            check_profile_equals_annotation(
                "apparmor",
                annotation,
                profile,
                &at.field("securityContext.appArmorProfile"),
                out,
            );
        }
    });
}

/// Checks that the profile in a field is the one in the annotation. A profile without a known type is not compared.
/// `what` is `seccomp` or `apparmor`.
fn check_profile_equals_annotation(
    what: &str,
    annotation: &str,
    profile: &Value,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let is_same = match str_at(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => return,
    };
    if !is_same {
        out.forbidden(&at.field("type"), &format!("{what} type in annotation and field must match"));
    } else if let Some(path) = annotation.strip_prefix("localhost/")
        && profile["localhostProfile"].as_str() != Some(path)
    {
        out.forbidden(
            &at.field("localhostProfile"),
            &format!("{what} profile in annotation and field must match"),
        );
    }
}

/// Checks that an update of a pod does not add, change or remove the mirror pod annotation or an AppArmor annotation.
pub(super) fn check_immutable_annotations(new: &Value, old: &Value, out: &mut FieldErrors) {
    let at = ErrorPath::new("metadata.annotations");
    let (new, old) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let annotation_type = |key: &str| match key {
        ANNOTATION_CONFIG_MIRROR => Some("mirror pod annotation"),
        other if other.starts_with(ANNOTATION_APP_ARMOR_PREFIX) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, value) in old.as_object().into_iter().flatten() {
        if let Some(what) = annotation_type(key)
            && new[key] != *value
        {
            out.forbidden(&at.key(key), &format!("may not remove or update {what}"));
        }
    }
    for (key, _) in new.as_object().into_iter().flatten() {
        if let Some(what) = annotation_type(key)
            && old[key].is_null()
        {
            out.forbidden(&at.key(key), &format!("may not add {what}"));
        }
    }
}
