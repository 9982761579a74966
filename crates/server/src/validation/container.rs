//! Validation of regular, init and ephemeral containers.

use serde_json::Value;

use super::pod::PodSpecToValidate;
use super::{
    check_choice, check_required, check_required_name, downward_api, file_path, has_field, probe, security,
};
use crate::go_format;
use crate::small_map::SmallSet;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{names, resources};
use muster_api::core_v1::is_sidecar_policy;
use muster_api::quantity::Quantity;

/// Upstream's message for `restartPolicyRules` without `restartPolicy`.
const RESTART_RULES_NEED_POLICY_MESSAGE: &str = "must specify restartPolicy when restart rules are used";
/// Supported protocols of a container port.
const SUPPORTED_PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Checks the regular containers of a pod.
pub(super) fn check_containers(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let containers = list_at(spec.json, "containers");
    if containers.is_empty() {
        return out.required(at, "");
    }
    let mut seen = SmallSet::default();
    for (index, it) in containers.iter().enumerate() {
        let at = at.index(index);
        check_common_fields(it, spec, &at, out);
        if !seen.insert(str_at(it, "name")) {
            out.duplicate(&at.field("name"), str_at(it, "name"));
        }
        probe::check_lifecycle_and_probes(it, spec, &at, out);
        check_restart_policy(it, &at, out);
    }
    check_host_port_conflicts(containers, at, out);
}

/// Checks the init containers of a pod, including sidecars.
pub(super) fn check_init_containers(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen: SmallSet<_> =
        list_at(spec.json, "containers").iter().map(|it| str_at(it, "name")).collect();
    for (index, it) in list_at(spec.json, "initContainers").iter().enumerate() {
        let parent = at;
        let at = at.index(index);
        check_common_fields(it, spec, &at, out);
        if it["restartPolicy"].is_null() && is_set(&it["restartPolicyRules"]) {
            out.required(&at.field("restartPolicy"), RESTART_RULES_NEED_POLICY_MESSAGE);
        } else {
            check_restart_policy(it, &at, out);
        }
        let name = str_at(it, "name");
        if seen.contains(name) || (!name.is_empty() && !seen.insert(name)) {
            out.duplicate(&at.field("name"), name);
        }
        // Init containers run one after the other, so host ports are checked for each alone.
        check_host_port_conflicts(std::slice::from_ref(it), parent, out);
        if is_sidecar_policy(it["restartPolicy"].as_str()) {
            probe::check_lifecycle_and_probes(it, spec, &at, out);
            continue;
        }
        for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if has_field(it, name) {
                out.forbidden(
                    &at.field(name),
                    "may not be set for init containers without restartPolicy=Always",
                );
            }
        }
        for (index, policy) in list_at(it, "resizePolicy").iter().enumerate() {
            if policy["restartPolicy"] == "RestartContainer" {
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                let at = at.field("resizePolicy");
                out.invalid(&at.index(index).field("restartPolicy"), "RestartContainer", why);
            }
        }
    }
}

pub(super) fn check_ephemeral_containers(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    /// Fields that an ephemeral container must not set.
    const EPHEMERAL_CONTAINER_FORBIDDEN_FIELDS: &[&str] = &[
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    /// Upstream's message for a field that an ephemeral container must not set.
    const FORBIDDEN_FIELD_MESSAGE: &str = "cannot be set for an Ephemeral Container";
    let names_of = |list_name| list_at(spec.json, list_name).iter().map(|it| str_at(it, "name"));
    let others: SmallSet<_> = names_of("containers").chain(names_of("initContainers")).collect();
    let mut seen: SmallSet<_> = SmallSet::default();
    for (index, it) in list_at(spec.json, "ephemeralContainers").iter().enumerate() {
        let at = at.index(index);
        check_common_fields(it, spec, &at, out);
        check_pod_image(it, &at, out);
        let name = str_at(it, "name");
        if others.contains(name) || !seen.insert(name) {
            out.duplicate(&at.field("name"), name);
        }
        let target = str_at(it, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            out.not_found(&at.field("targetContainerName"), target);
        }
        for field in EPHEMERAL_CONTAINER_FORBIDDEN_FIELDS.iter().filter(|field| is_set(&it[**field])) {
            out.forbidden(&at.field(field), FORBIDDEN_FIELD_MESSAGE);
        }
        for (index, mount) in list_at(it, "volumeMounts").iter().enumerate() {
            let at = at.field("volumeMounts");
            for field in ["subPath", "subPathExpr"].into_iter().filter(|field| is_set(&mount[field])) {
                out.forbidden(&at.index(index).field(field), FORBIDDEN_FIELD_MESSAGE);
            }
        }
    }
}

/// Checks that the image of a container in a pod has no leading or trailing whitespace. Images in pod templates are not
/// checked, because they may be placeholders.
pub(super) fn check_pod_image(container: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let image = str_at(container, "image");
    if image.trim().len() != image.len() {
        out.invalid(&at.field("image"), image, "must not have leading or trailing whitespace");
    }
}

/// Checks that an image pull policy is set and supported.
pub(super) fn check_pull_policy(policy: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    match policy.as_str().unwrap_or_default() {
        "Always" | "IfNotPresent" | "Never" => {}
        "" => out.required(at, ""),
        other => out.unsupported(at, other, &["Always", "IfNotPresent", "Never"]),
    }
}

/// Checks the fields that regular, init and ephemeral containers have.
fn check_common_fields(it: &Value, spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    check_required_name(str_at(it, "name"), names::dns_label_errors, &at.field("name"), out);
    check_required(it, &["image"], at, out);
    match str_at(it, "terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => out.required(&at.field("terminationMessagePolicy"), ""),
        other => {
            let supported = &["File", "FallbackToLogsOnError"];
            out.unsupported(&at.field("terminationMessagePolicy"), other, supported);
        }
    }
    check_ports(list_at(it, "ports"), &at.field("ports"), out);
    check_env(list_at(it, "env"), &at.field("env"), out);
    check_env_from(list_at(it, "envFrom"), &at.field("envFrom"), out);
    check_volume_mounts(it, spec, &at.field("volumeMounts"), out);
    check_volume_devices(it, spec, &at.field("volumeDevices"), out);
    check_pull_policy(&it["imagePullPolicy"], &at.field("imagePullPolicy"), out);
    check_resources(
        &it["resources"],
        resources::check_container_resource_name,
        spec,
        &at.field("resources"),
        out,
    );
    check_resize_policy(it, spec, &at.field("resizePolicy"), out);
    security::check_container_context(&it["securityContext"], spec, &at.field("securityContext"), out);
}

/// Checks the names, numbers and protocols of the ports of a container.
fn check_ports(ports: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        let name = str_at(port, "name");
        if !name.is_empty() {
            let errors = names::port_name_errors(name);
            if !errors.is_empty() {
                out.invalid_for_each(&at.field("name"), name, errors);
            } else if !seen.insert(name) {
                out.duplicate(&at.field("name"), name);
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => out.required(&at.field("containerPort"), ""),
            number => check_port(number, &at.field("containerPort"), out),
        }
        match port["hostPort"].as_i64().unwrap_or(0) {
            0 => {}
            number => check_port(number, &at.field("hostPort"), out),
        }
        match str_at(port, "protocol") {
            "" => out.required(&at.field("protocol"), ""),
            _ => check_choice(&port["protocol"], SUPPORTED_PROTOCOLS, &at.field("protocol"), out),
        }
    }
}

/// Checks that a port number is between 1 and 65535.
pub(super) fn check_port(number: i64, at: &ErrorPath, out: &mut FieldErrors) {
    for why in names::port_number_errors(number) {
        out.invalid(at, number, &why);
    }
}

/// Checks that no two ports of these containers have the same host port, host IP and protocol.
fn check_host_port_conflicts(containers: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, container) in containers.iter().enumerate() {
        let at = at.index(index);
        let at = at.field("ports");
        for (index, port) in list_at(container, "ports").iter().enumerate() {
            let number = port["hostPort"].as_i64().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let (protocol, ip) = (str_at(port, "protocol"), str_at(port, "hostIP"));
            if !seen.insert((protocol, ip, number)) {
                out.duplicate(&at.index(index).field("hostPort"), &format!("{protocol}/{ip}/{number}"));
            }
        }
    }
}

fn check_env(env: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    for (index, it) in env.iter().enumerate() {
        let at = at.index(index);
        check_required_name(str_at(it, "name"), names::env_name_errors, &at.field("name"), out);
        if has_field(it, "valueFrom") {
            check_value_from(it, &at.field("valueFrom"), out);
        }
    }
}

/// Checks `valueFrom` of an environment variable, which must contain exactly one source.
fn check_value_from(env: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let from = &env["valueFrom"];
    let mut sources = 0;
    for name in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let source = &from[name];
        if source.is_null() {
            continue;
        }
        sources += 1;
        let at = at.field(name);
        match name {
            "fieldRef" => downward_api::check_field_ref(source, downward_api::ENV_FIELDS, &at, out),
            "resourceFieldRef" => downward_api::check_resource_field_ref(source, false, &at, out),
            "fileKeyRef" => {
                check_required_name(str_at(source, "key"), names::env_name_errors, &at.field("key"), out);
                check_required_name(
                    str_at(source, "volumeName"),
                    names::dns_label_errors,
                    &at.field("volumeName"),
                    out,
                );
                check_required(source, &["path"], &at, out);
                file_path::check_no_parent_references(str_at(source, "path"), &at.field("path"), out);
            }
            _ => {
                let name = str_at(source, "name");
                out.invalid_for_each(&at.field("name"), name, names::dns_subdomain_errors(name));
                check_required_name(str_at(source, "key"), names::config_key_errors, &at.field("key"), out);
            }
        }
    }
    if sources == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                   `fileKeyRef`";
        out.invalid(at, "", why);
    } else if is_set(&env["value"]) {
        out.invalid(at, "", "may not be specified when `value` is not empty");
    } else if 1 < sources {
        out.invalid(at, "", "may not have more than one field specified at a time");
    }
}

/// Checks `envFrom`: the ConfigMaps and Secrets whose entries become environment variables.
fn check_env_from(sources: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    for (index, it) in sources.iter().enumerate() {
        let parent = at;
        let at = at.index(index);
        let prefix = str_at(it, "prefix");
        if !prefix.is_empty() {
            out.invalid_for_each(&at.field("prefix"), prefix, names::env_name_errors(prefix));
        }
        let sources_given: Vec<_> =
            ["configMapRef", "secretRef"].into_iter().filter(|name| has_field(it, name)).collect();
        for name in &sources_given {
            let (at, reference) = (at.field(name), str_at(&it[*name], "name"));
            if reference.is_empty() {
                out.required(&at.field("name"), "");
            } else {
                out.invalid_for_each(
                    &at.field("name"),
                    reference,
                    names::dns_subdomain_name_errors(reference, true),
                );
            }
        }
        match sources_given.len() {
            0 => out.invalid(parent, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => out.invalid(parent, "", "may not have more than one field specified at a time"),
        }
    }
}

fn check_volume_mounts(container: &Value, spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let (mounts, devices) = (list_at(container, "volumeMounts"), list_at(container, "volumeDevices"));
    if mounts.is_empty() {
        return;
    }
    let device_names = strings_at(devices, "name");
    let device_paths = strings_at(devices, "devicePath");
    let mut seen = SmallSet::default();
    for (index, it) in mounts.iter().enumerate() {
        let parent = at;
        let at = at.index(index);
        let (name, path) = (str_at(it, "name"), str_at(it, "mountPath"));
        check_required(it, &["name"], &at, out);
        if spec.find_volume(name).is_none() {
            out.not_found(&at.field("name"), name);
        }
        check_required(it, &["mountPath"], &at, out);
        if !seen.insert(path) {
            out.invalid(&at.field("mountPath"), path, "must be unique");
        }
        if device_names.contains(name) {
            out.invalid(&at.field("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path) {
            out.invalid(&at.field("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        // From here on upstream uses the path of the list, not of the mount.
        let (sub_path, expression) = (str_at(it, "subPath"), str_at(it, "subPathExpr"));
        file_path::check_relative_path(sub_path, &parent.field("subPath"), out);
        if !expression.is_empty() && !sub_path.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            out.invalid(&at.field("subPathExpr"), expression, why);
        }
        file_path::check_relative_path(expression, &parent.field("subPathExpr"), out);
        let propagation_at = parent.field("mountPropagation");
        check_choice(
            &it["mountPropagation"],
            &["Bidirectional", "HostToContainer", "None"],
            &propagation_at,
            out,
        );
        if it["mountPropagation"] == "Bidirectional" && container["securityContext"]["privileged"] != true {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            out.forbidden(&propagation_at, why);
        }
        check_recursive_read_only(it, &parent.field("recursiveReadOnly"), out);
    }
}

/// Returns the strings in the field `name` of the items.
fn strings_at<'a>(items: &'a [Value], name: &str) -> SmallSet<&'a str> {
    items.iter().map(|it| str_at(it, name)).collect()
}

/// Checks `recursiveReadOnly` of a volume mount.
fn check_recursive_read_only(mount: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    match mount["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount["readOnly"] != true {
                out.forbidden(at, "may only be specified when readOnly is true");
            }
            if !matches!(mount["mountPropagation"].as_str(), None | Some("None")) {
                out.forbidden(at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => out.unsupported(at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Checks the block devices (`volumeDevices`) of a container.
fn check_volume_devices(container: &Value, spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let (mounts, devices) = (list_at(container, "volumeMounts"), list_at(container, "volumeDevices"));
    if devices.is_empty() {
        return;
    }
    let (mount_names, mount_paths) = (strings_at(mounts, "name"), strings_at(mounts, "mountPath"));
    let (mut seen_names, mut seen_paths) = (SmallSet::default(), SmallSet::default());
    for (index, it) in devices.iter().enumerate() {
        let at = at.index(index);
        let (name, path) = (str_at(it, "name"), str_at(it, "devicePath"));
        let (name_at, path_at) = (at.field("name"), at.field("devicePath"));
        check_required(it, &["name"], &at, out);
        if !name.is_empty() && !seen_names.insert(name) {
            out.invalid(&name_at, name, "must be unique");
        }
        match spec.find_volume(name) {
            None => out.not_found(&name_at, name),
            Some(volume) if has_field(volume, "persistentVolumeClaim") || has_field(volume, "ephemeral") => {}
            Some(_) => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                out.invalid(&name_at, name, why);
            }
        }
        check_required(it, &["devicePath"], &at, out);
        if !seen_paths.insert(path) {
            out.invalid(&path_at, path, "must be unique");
        }
        if path.split('/').any(|it| it == "..") {
            out.invalid(&path_at, path, "can not contain backsteps ('..')");
        }
        if mount_names.contains(name) {
            out.invalid(&name_at, name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path) {
            out.invalid(&path_at, path, "must not already exist as a path in volumeMounts");
        }
    }
}

/// A function that checks the name of a resource in requests or limits.
type ResourceNameCheck = fn(&str, &ErrorPath, &mut FieldErrors);

/// Checks the requests, limits and dynamic resource claims of a container or pod. `check_name` checks the names of the
/// resources.
pub(super) fn check_resources(
    it: &Value,
    check_name: ResourceNameCheck,
    spec: &PodSpecToValidate,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let (limits, requests) = (&it["limits"], &it["requests"]);
    let (limits_at, requests_at) = (at.field("limits"), at.field("requests"));
    let (mut has_compute, mut has_huge_pages) = (false, false);
    for (name, amount) in limits.as_object().into_iter().flatten() {
        let at = limits_at.key(name);
        check_name(name, &at, out);
        resources::check_quantity(name, amount, &at, out);
        has_huge_pages |= check_huge_pages(name, amount, &at, out);
        has_compute |= matches!(name.as_str(), "cpu" | "memory");
    }
    for (name, amount) in requests.as_object().into_iter().flatten() {
        let at = requests_at.key(name);
        check_name(name, &at, out);
        resources::check_quantity(name, amount, &at, out);
        let limit = &limits[name];
        if limit.is_null() {
            if !resources::is_overcommittable(name) {
                out.required(&limits_at, "Limit must be set for non overcommitable resources");
            }
        } else {
            let limit_text = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
            let (request_quantity, limit_quantity) =
                (Quantity::from_json(amount), Quantity::from_json(limit));
            if request_quantity != limit_quantity && !resources::is_overcommittable(name) {
                out.invalid(&requests_at, amount, &format!("must be equal to {name} limit of {limit_text}"));
            } else if limit_quantity < request_quantity {
                out.invalid(
                    &requests_at,
                    amount,
                    &format!("must be less than or equal to {name} limit of {limit_text}"),
                );
            }
        }
        has_huge_pages |= check_huge_pages(name, amount, &at, out);
        has_compute |= matches!(name.as_str(), "cpu" | "memory");
    }
    if has_huge_pages && !has_compute {
        out.forbidden(at, "HugePages require cpu or memory");
    }
    check_container_claims(list_at(it, "claims"), spec, &at.field("claims"), out);
}

/// If the resource is huge pages, checks that the amount is a multiple of the page size. Returns whether the resource
/// is huge pages.
fn check_huge_pages(name: &str, amount: &Value, at: &ErrorPath, out: &mut FieldErrors) -> bool {
    let Some(size) = name.strip_prefix("hugepages-") else { return false };
    let size = Quantity::parse(size).map_or(0, |it| if it.is_whole() { it.units() } else { 0 });
    if size <= 0 || Quantity::from_json(amount).units() % size != 0 {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        out.invalid(at, &text, &format!("{text} is not positive integer multiple of {name}"));
    }
    true
}

/// Checks that the claims of a container are unique and declared in `spec.resourceClaims` of the pod. A container may
/// refer to one claim with several values of `request`, but not both with and without `request`.
fn check_container_claims(claims: &[Value], spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    if claims.is_empty() {
        return;
    }
    let declared = list_at(spec.json, "resourceClaims").iter().map(|it| str_at(it, "name"));
    let declared: Vec<_> = declared.filter(|it| !it.is_empty()).collect();
    let declared_in_error = match &declared[..] {
        [] => " which is empty".into(),
        names => format!(": {}", go_format::truncate_quoted(&names.join(", "))),
    };
    let declared: SmallSet<_> = declared.into_iter().collect();
    // The keys of the claims so far, and the names of those with a request.
    let (mut seen, mut requested) = (SmallSet::<String>::default(), SmallSet::default());
    for (index, claim) in claims.iter().enumerate() {
        let at = at.index(index);
        let (name, request) = (str_at(claim, "name"), str_at(claim, "request"));
        if name.is_empty() {
            out.required(&at, "");
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if !request.is_empty() {
            out.invalid_for_each(&at.field("request"), request, names::dns_label_errors(request));
        }
        let is_seen = seen.contains(name);
        if is_seen || seen.contains(&key) || (request.is_empty() && requested.contains(name)) {
            out.duplicate(&at, if is_seen { name } else { &key });
        }
        if !request.is_empty() {
            requested.insert(name);
        }
        seen.insert(key);
        if !declared.contains(name) {
            let why = format!("must be one of the names in pod.spec.resourceClaims{declared_in_error}");
            out.not_found_because(&at, name, &why);
        }
    }
}

/// Checks `resizePolicy` of a container, which says for each resource whether a resize restarts the container.
fn check_resize_policy(container: &Value, spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let policies = list_at(container, "resizePolicy");
    let mut seen = SmallSet::default();
    for (index, it) in policies.iter().enumerate() {
        let (resource, policy) = (str_at(it, "resourceName"), str_at(it, "restartPolicy"));
        if !seen.insert(resource) {
            out.duplicate(&at.index(index), resource);
        }
        for (value, supported) in
            [(resource, ["cpu", "memory"]), (policy, ["NotRequired", "RestartContainer"])]
        {
            if value.is_empty() {
                out.required(at, "");
            } else if !supported.contains(&value) {
                out.unsupported(at, value, &supported);
            }
        }
        if spec.json["restartPolicy"] == "Never" && policy != "NotRequired" {
            out.invalid(at, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// Checks the restart policy and restart rules of a container.
fn check_restart_policy(container: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let rules = list_at(container, "restartPolicyRules");
    let policy = &container["restartPolicy"];
    if policy.is_null() && !rules.is_empty() {
        out.required(&at.field("restartPolicy"), RESTART_RULES_NEED_POLICY_MESSAGE);
    }
    check_choice(policy, &["Always", "Never", "OnFailure"], &at.field("restartPolicy"), out);
    let at = at.field("restartPolicyRules");
    if 20 < rules.len() {
        out.too_many(&at, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = at.index(index);
        let action = str_at(rule, "action");
        if !matches!(action, "Restart" | "RestartAllContainers") {
            out.unsupported(&at.field("action"), action, &["Restart", "RestartAllContainers"]);
        }
        let codes_at = at.field("exitCodes");
        if !has_field(rule, "exitCodes") {
            out.required(&codes_at, "must be specified");
            continue;
        }
        let operator = str_at(rule, "exitCodes.operator");
        if !matches!(operator, "In" | "NotIn") {
            out.unsupported(&codes_at.field("operator"), operator, &["In", "NotIn"]);
        }
        let count = list_at(&rule["exitCodes"], "values").len();
        if 255 < count {
            out.too_many(&codes_at.field("values"), count, 255);
        }
    }
}
