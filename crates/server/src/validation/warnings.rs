//! Warnings about valid but deprecated or suspicious fields, sent as `Warning` headers with upstream's messages.
//!
//! Upstream: `pkg/api/pod/warnings.go`.

use std::collections::HashMap;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use serde_json::{Value, json};

use super::WriteToValidate;
use super::field_error::ErrorPath;
use super::names;
use super::pod::for_each_container;
use crate::small_map::SmallSet;
use crate::subresource::Subresource;
use crate::unstructured::{is_set, list_at, str_at};
use muster_api::quantity::Quantity;
use muster_api::well_known::{
    ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_SECCOMP_CONTAINER_PREFIX, ANNOTATION_SECCOMP_POD,
    LABEL_BETA_ARCH, LABEL_BETA_INSTANCE_TYPE, LABEL_BETA_OS, LABEL_FAILURE_DOMAIN_BETA_REGION,
    LABEL_FAILURE_DOMAIN_BETA_ZONE,
};

/// Maximum number of warnings about one request. A response contains 4,096 characters of them, which are fewer.
pub(crate) const WARNINGS_MAX: usize = 500;

/// Maximum total size of the warnings about an object, which the last warning may exceed. A response contains 4,096
/// characters of them.
const WARNINGS_BYTES_MAX: usize = 256 << 10;

/// The first warnings about an object, up to `WARNINGS_MAX` and `WARNINGS_BYTES_MAX`.
#[derive(Default)]
struct Warnings {
    texts: Vec<String>,
    /// Total size of `texts`.
    bytes: usize,
}

impl Warnings {
    /// Whether further warnings are dropped.
    fn is_full(&self) -> bool {
        WARNINGS_MAX <= self.texts.len() || WARNINGS_BYTES_MAX <= self.bytes
    }

    /// Adds a warning.
    fn push(&mut self, text: String) {
        if !self.is_full() {
            self.bytes += text.len();
            self.texts.push(text);
        }
    }

    /// Adds all warnings of `others`.
    fn append(&mut self, others: Self) {
        others.texts.into_iter().for_each(|it| self.push(it));
    }
}

/// Returns no warnings. It is the warning function of kinds that cause none.
pub(crate) fn no_warnings(_: &WriteToValidate) -> Vec<String> {
    Vec::new()
}

/// Returns the warnings about a new pod. Updates cause no warnings, because controllers update pods often.
pub(crate) fn pod_warnings(write: &WriteToValidate) -> Vec<String> {
    if write.old.is_some() {
        return Vec::new();
    }
    let mut out = Warnings::default();
    let errors = names::dns_label_errors(str_at(write.new, "metadata.name"));
    if !errors.is_empty() {
        out.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            errors.join(" ")
        ));
    }
    add_template_warnings(
        write.new,
        &ErrorPath::new("spec"),
        &ErrorPath::new("metadata.annotations"),
        &mut out,
    );
    out.texts
}

/// Returns the warnings about a PodTemplate whose template is new or changed.
pub(crate) fn pod_template_warnings(write: &WriteToValidate) -> Vec<String> {
    let mut out = Warnings::default();
    if write.old.is_none_or(|old| old["template"] != write.new["template"]) {
        let at = ErrorPath::new("template");
        add_template_warnings(
            &write.new["template"],
            &at.field("spec"),
            &at.field("metadata.annotations"),
            &mut out,
        );
    }
    out.texts
}

/// Returns the warnings about a DaemonSet whose template is new or changed.
pub(crate) fn daemonset_warnings(write: &WriteToValidate) -> Vec<String> {
    let mut out = Warnings::default();
    let is_new = |old: &Value| old["spec"]["template"] != write.new["spec"]["template"];
    if write.subresource == Subresource::Whole && write.old.is_none_or(is_new) {
        let at = ErrorPath::new("spec.template");
        add_template_warnings(
            &write.new["spec"]["template"],
            &at.field("spec"),
            &at.field("metadata.annotations"),
            &mut out,
        );
    }
    out.texts
}

/// Returns the warnings about fields of a Service that are deprecated or ignored. Writes of a subresource cause no
/// warnings.
pub(crate) fn service_warnings(write: &WriteToValidate) -> Vec<String> {
    let spec = &write.new["spec"];
    let mut out = Vec::new();
    let is_headless = spec["type"] == "ClusterIP" && spec["clusterIP"] == "None";
    let is_external_name = spec["type"] == "ExternalName";
    let has_external = is_set(&spec["externalIPs"]);
    if is_headless && is_set(&spec["loadBalancerIP"]) {
        out.push("spec.loadBalancerIP is ignored for headless services".into());
    }
    if is_headless && has_external {
        out.push("spec.externalIPs is ignored for headless services".into());
    }
    if is_headless && spec["sessionAffinity"] != "None" {
        out.push("spec.SessionAffinity is ignored for headless services".into());
    }
    if has_external && !is_headless && !is_external_name {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    if has_external && is_external_name {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if !is_external_name && is_set(&spec["externalName"]) {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    if write.subresource == Subresource::Whole { out } else { Vec::new() }
}

/// Returns the warning about the deprecated field `spec.externalID`, if the Node sets it.
pub(crate) fn node_warnings(write: &WriteToValidate) -> Vec<String> {
    let is_used = write.subresource == Subresource::Whole && is_set(&write.new["spec"]["externalID"]);
    let why = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
    is_used.then(|| why.to_owned()).into_iter().collect()
}

/// Returns the warnings about deprecated node labels in the node selector of a RuntimeClass.
pub(crate) fn runtime_class_warnings(write: &WriteToValidate) -> Vec<String> {
    let selector = write.new["scheduling"]["nodeSelector"].as_object().into_iter().flatten();
    selector
        .filter_map(|(label, _)| {
            Some(format!("scheduling.nodeSelector: {}", deprecated_node_label_warning(label)?))
        })
        .collect()
}

/// Returns the warning about a TLS Secret whose certificate or key contains no PEM data. If neither contains PEM data,
/// warns only about the certificate.
pub(crate) fn secret_warnings(write: &WriteToValidate) -> Vec<String> {
    if write.new["type"] != "kubernetes.io/tls" {
        return Vec::new();
    }
    let is_pem = |key: &str| {
        let text = BASE64.decode(write.new["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&text).contains("-----BEGIN ")
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !is_pem(key));
    missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

/// Returns the warning about the deprecated address type `FQDN`, if the EndpointSlice has it.
pub(crate) fn endpoint_slice_warnings(write: &WriteToValidate) -> Vec<String> {
    let why = "spec.addressType: FQDN endpoints are deprecated";
    (write.new["addressType"] == "FQDN").then(|| why.to_owned()).into_iter().collect()
}

/// Adds the warnings about a pod or a pod template. `at` is the path of the pod spec, and `annotations_at` is the path
/// of the annotations.
fn add_template_warnings(template: &Value, at: &ErrorPath, annotations_at: &ErrorPath, out: &mut Warnings) {
    let spec = &template["spec"];
    // The spec of a pod itself has the path `spec`.
    let is_template = at.to_string() != "spec";
    add_node_label_warnings(spec, at, out);
    add_topology_spread_warnings(spec, at, out);
    add_annotation_warnings(&template["metadata"]["annotations"], annotations_at, out);
    add_volume_warnings(spec, at, out);
    add_alias_and_pull_secret_warnings(spec, at, out);
    add_fractional_byte_warnings(&spec["overhead"], &at.field("overhead"), out);
    let annotations = &template["metadata"]["annotations"];
    add_seccomp_warnings(annotations, ANNOTATION_SECCOMP_POD, spec, annotations_at, out);
    for_each_container(spec, at, |container, at| {
        let key = format!("{ANNOTATION_SECCOMP_CONTAINER_PREFIX}{}", str_at(container, "name"));
        add_seccomp_warnings(annotations, &key, container, annotations_at, out);
        if is_template {
            add_app_armor_warnings(annotations, container, spec, annotations_at, out);
        }
        for list in ["limits", "requests"] {
            add_fractional_byte_warnings(
                &container["resources"][list],
                &at.field("resources").field(list),
                out,
            );
        }
        add_environment_warnings(list_at(container, "env"), &at.field("env"), out);
    });
    add_port_warnings(spec, at, out);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|it| it < 0) {
        let at = at.field("terminationGracePeriodSeconds");
        out.push(format!("{at}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    add_pod_affinity_warnings(&spec["affinity"], &at.field("affinity"), out);
}

/// Returns the warning about a node label, or `None` if the label is not deprecated.
fn deprecated_node_label_warning(label: &str) -> Option<&'static str> {
    Some(match label {
        LABEL_BETA_ARCH => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        LABEL_BETA_OS => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        LABEL_FAILURE_DOMAIN_BETA_REGION => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        LABEL_FAILURE_DOMAIN_BETA_ZONE => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        LABEL_BETA_INSTANCE_TYPE => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

/// Adds warnings about deprecated node labels in the node selector and node affinity, and about invalid label values in
/// preferred node affinity terms.
fn add_node_label_warnings(spec: &Value, at: &ErrorPath, out: &mut Warnings) {
    for (label, _) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(why) = deprecated_node_label_warning(label) {
            out.push(format!("{}: {why}", at.field("nodeSelector").key(label)));
        }
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let at = at.field("affinity.nodeAffinity");
    let mut term = |term: &Value, is_preference: bool, at: &ErrorPath| {
        for (index, it) in list_at(term, "matchExpressions").iter().enumerate() {
            let key = str_at(it, "key");
            if let Some(why) = deprecated_node_label_warning(key) {
                out.push(format!(
                    "{}: {key} is {why}",
                    at.field("matchExpressions").index(index).field("key")
                ));
            }
            for (value_index, value) in list_at(it, "values").iter().enumerate().filter(|_| is_preference) {
                let errors = names::label_value_errors(value.as_str().unwrap_or_default());
                if let Some(why) = errors.first() {
                    let at = at.field("matchExpressions");
                    let at = at.index(index);
                    let at = at.field("values");
                    out.push(format!("{}: {value} is invalid, {why}", at.index(value_index)));
                }
            }
        }
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (index, it) in list_at(&affinity[required], "nodeSelectorTerms").iter().enumerate() {
        term(it, false, &at.field(required).field("nodeSelectorTerms").index(index));
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, it) in list_at(affinity, preferred).iter().enumerate() {
        term(&it["preference"], true, &at.field(preferred).index(index).field("preference"));
    }
}

/// Upstream's warning about an affinity term or spread constraint without a label selector.
const NULL_SELECTOR_MESSAGE: &str = "a null labelSelector results in matching no pod";

/// Adds warnings about topology spread constraints with deprecated node labels or without a label selector.
fn add_topology_spread_warnings(spec: &Value, at: &ErrorPath, out: &mut Warnings) {
    for (index, it) in list_at(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = at.field("topologySpreadConstraints");
        let at = at.index(index);
        let key = str_at(it, "topologyKey");
        if let Some(why) = deprecated_node_label_warning(key) {
            out.push(format!("{}: {key} is {why}", at.field("topologyKey")));
        }
        if it["labelSelector"].is_null() {
            out.push(format!("{}: {NULL_SELECTOR_MESSAGE}", at.field("labelSelector")));
        }
    }
}

/// Adds warnings about pod affinity and pod anti-affinity terms without a label selector.
fn add_pod_affinity_warnings(affinity: &Value, at: &ErrorPath, out: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pod, at) = (&affinity[kind], at.field(kind));
        for (index, it) in list_at(pod, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            if it["labelSelector"].is_null() {
                let at = at.field("requiredDuringSchedulingIgnoredDuringExecution");
                out.push(format!("{}: {NULL_SELECTOR_MESSAGE}", at.index(index).field("labelSelector")));
            }
        }
        for (index, it) in list_at(pod, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            if it["podAffinityTerm"]["labelSelector"].is_null() {
                let at = at.field("preferredDuringSchedulingIgnoredDuringExecution");
                out.push(format!(
                    "{}: {NULL_SELECTOR_MESSAGE}",
                    at.index(index).field("podAffinityTerm.labelSelector")
                ));
            }
        }
    }
}

/// Adds warnings about annotations that no longer have an effect.
fn add_annotation_warnings(annotations: &Value, at: &ErrorPath, out: &mut Warnings) {
    /// Annotations that no longer have an effect, each with its warning.
    const NON_FUNCTIONAL_ANNOTATIONS: &[(&str, &str)] = &[
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
    ];
    for (key, why) in NON_FUNCTIONAL_ANNOTATIONS.iter().filter(|(key, _)| !annotations[*key].is_null()) {
        out.push(format!("{}: {why}", at.key(key)));
    }
}

/// Adds a warning if the seccomp profile of a pod or container is set only by the annotation `key`. `object` is the pod
/// spec or container to which the annotation applies.
fn add_seccomp_warnings(annotations: &Value, key: &str, object: &Value, at: &ErrorPath, out: &mut Warnings) {
    if !annotations[key].is_null() && object["securityContext"]["seccompProfile"].is_null() {
        out.push(format!(
            "{}: non-functional in v1.27+; use the \"seccompProfile\" field instead",
            at.key(key)
        ));
    }
}

/// Adds a warning about the AppArmor annotation of a container, unless the container sets the field `appArmorProfile`
/// or the annotation equals the profile of the pod.
fn add_app_armor_warnings(
    annotations: &Value,
    container: &Value,
    spec: &Value,
    at: &ErrorPath,
    out: &mut Warnings,
) {
    let key = format!("{ANNOTATION_APP_ARMOR_PREFIX}{}", str_at(container, "name"));
    let Some(annotation) = annotations[&key].as_str() else { return };
    if !container["securityContext"]["appArmorProfile"].is_null() {
        return;
    }
    let profile = match (annotation, annotation.strip_prefix("localhost/")) {
        ("unconfined", _) => json!({"type": "Unconfined"}),
        ("runtime/default", _) => json!({"type": "RuntimeDefault"}),
        (_, Some(name)) if !name.is_empty() => json!({"type": "Localhost", "localhostProfile": name}),
        _ => Value::Null,
    };
    let pod_profile = &spec["securityContext"]["appArmorProfile"];
    if pod_profile.is_null() || *pod_profile != profile {
        out.push(format!(
            "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
            at.key(&key)
        ));
    }
}

/// Adds warnings about deprecated volume types, overlapping file paths and empty projected sources.
fn add_volume_warnings(spec: &Value, at: &ErrorPath, out: &mut Warnings) {
    /// Deprecated volume sources: the field, its name in the warning, and the warning.
    const DEPRECATED_VOLUMES: &[(&str, &str, &str)] = &[
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let volumes = list_at(spec, "volumes");
    for (index, volume) in volumes.iter().enumerate() {
        for (_, name, why) in DEPRECATED_VOLUMES.iter().filter(|(field, ..)| !volume[*field].is_null()) {
            out.push(format!("{}: {why}", at.field("volumes").index(index).field(name)));
        }
    }
    for volume in volumes {
        add_path_overlap_warnings(volume, out);
    }
}

/// Adds warnings about overlapping file paths in a volume, and about empty sources of a projected volume.
fn add_path_overlap_warnings(volume: &Value, out: &mut Warnings) {
    let name = str_at(volume, "name");
    let mut empty = Warnings::default();
    let items = |source: &Value, source_name: &str| -> Vec<(String, String)> {
        let path = |it: &Value| (str_at(it, "path").trim_end_matches('/').to_owned(), source_name.to_owned());
        list_at(source, "items").iter().map(path).collect()
    };
    let mut warn_overlaps = |what: &str, paths: Vec<(String, String)>| {
        let format_path = |(path, source): &(String, String)| match source.as_str() {
            "" => format!("{path:?}"),
            source => format!("{path:?} ({source})"),
        };
        for (at, other_at) in overlapping_paths(&paths) {
            if out.is_full() {
                break;
            }
            let (it, other) = (format_path(&paths[at]), format_path(&paths[other_at]));
            out.push(format!("volume {name:?} ({what}): overlapping paths: {it} with {other}"));
        }
    };
    let (map, secret) = (&volume["configMap"], &volume["secret"]);
    warn_overlaps(&format!("ConfigMap {:?}", str_at(map, "name")), items(map, ""));
    warn_overlaps(&format!("Secret {:?}", str_at(secret, "secretName")), items(secret, ""));
    warn_overlaps("DownwardAPI", items(&volume["downwardAPI"], ""));
    let mut all = Vec::new();
    for source in list_at(&volume["projected"], "sources") {
        if !is_set(source) {
            empty.push(format!("volume {name:?} (Projected) has no sources provided"));
            continue;
        }
        let (map, secret) = (&source["configMap"], &source["secret"]);
        all.extend(items(map, &format!("ConfigMap {:?}", str_at(map, "name"))));
        all.extend(items(secret, &format!("Secret {:?}", str_at(secret, "name"))));
        all.extend(items(&source["downwardAPI"], "DownwardAPI"));
        let token = &source["serviceAccountToken"];
        if !token.is_null() {
            all.push((str_at(token, "path").trim_end_matches('/').to_owned(), "ServiceAccountToken".into()));
        }
    }
    warn_overlaps("Projected", all);
    out.append(empty);
}

/// Returns the indices of the first pairs of paths that are equal or one of which contains the other, sorted, with the
/// larger index first. Empty paths are ignored.
fn overlapping_paths(paths: &[(String, String)]) -> Vec<(usize, usize)> {
    let mut sorted: Vec<(String, usize)> = paths
        .iter()
        .enumerate()
        .filter(|(_, (path, _))| !path.is_empty())
        .map(|(at, (path, _))| (format!("{path}/"), at))
        .collect();
    if sorted.len() < 2 {
        return Vec::new();
    }
    // A path is directly followed by the paths below it.
    sorted.sort_unstable();
    let mut pairs = Vec::new();
    let mut parents: Vec<&(String, usize)> = Vec::new();
    for it in &sorted {
        while parents.pop_if(|parent| !it.0.starts_with(&parent.0)).is_some() {}
        pairs.extend(parents.iter().map(|parent| (it.1.max(parent.1), it.1.min(parent.1))));
        parents.push(it);
        if WARNINGS_MAX <= pairs.len() {
            break;
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Adds warnings about duplicate host aliases and about duplicate or unnamed image pull secrets.
fn add_alias_and_pull_secret_warnings(spec: &Value, at: &ErrorPath, out: &mut Warnings) {
    for (name, field, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut seen = SmallSet::default();
        for (index, it) in list_at(spec, name).iter().enumerate() {
            let value = str_at(it, field);
            if !seen.insert(value) {
                out.push(format!("{}: duplicate {what} {value:?}", at.field(name).index(index).field(field)));
            }
        }
    }
    for (index, it) in list_at(spec, "imagePullSecrets").iter().enumerate() {
        if !is_set(&it["name"]) {
            let at = at.field("imagePullSecrets");
            out.push(format!("{}: invalid empty name \"\"", at.index(index).field("name")));
        }
    }
}

/// Adds warnings about quantities of memory or ephemeral storage that are not whole bytes.
fn add_fractional_byte_warnings(amounts: &Value, at: &ErrorPath, out: &mut Warnings) {
    for name in ["memory", "ephemeral-storage"] {
        let amount = &amounts[name];
        if Quantity::from_json(amount).millis() % 1000 != 0 {
            let text = amount.as_str().unwrap_or_default();
            out.push(format!(
                "{}: fractional byte value {text:?} is invalid, must be an integer",
                at.key(name)
            ));
        }
    }
}

/// Adds warnings about environment variables that are defined twice, unless the value of the later definition contains
/// a reference to the earlier one and more text.
fn add_environment_warnings(env: &[Value], at: &ErrorPath, out: &mut Warnings) {
    let mut seen = SmallSet::default();
    for (index, it) in env.iter().enumerate() {
        let name = str_at(it, "name");
        if seen.insert(name) {
            continue;
        }
        // A definition that refers to the previous one is fine.
        let (value, reference) = (str_at(it, "value"), format!("$({name})"));
        if !it["valueFrom"].is_null() || value == reference || !value.contains(&reference) {
            let at = at.index(index);
            out.push(format!(
                "{at}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// Adds warnings about ports with the same number and protocol if they are duplicates or if their host ports overlap or
/// are ambiguous, about duplicate port names, and about a `hostIP` without a `hostPort`.
fn add_port_warnings(spec: &Value, at: &ErrorPath, out: &mut Warnings) {
    /// Maximum number of earlier ports, with the same number and protocol, with which a port is compared.
    const COMPARED_PORTS_MAX: usize = 100;
    let mut seen: HashMap<String, Vec<(String, String, i64)>> = HashMap::new();
    let mut name_warnings = Warnings::default();
    let mut names: HashMap<String, String> = HashMap::new();
    for_each_container(spec, at, |container, at| {
        for (index, port) in list_at(container, "ports").iter().enumerate() {
            let at = at.field("ports").index(index).to_string();
            let (host_ip, host_port) = (str_at(port, "hostIP"), port["hostPort"].as_i64().unwrap_or(0));
            if !host_ip.is_empty() && host_port == 0 {
                let (name, number, protocol) =
                    (str_at(port, "name"), &port["containerPort"], str_at(port, "protocol"));
                out.push(format!(
                    "{at}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                     Protocol:{protocol} HostIP:{host_ip}}}"
                ));
            }
            let key = format!("{}/{}", port["containerPort"], str_at(port, "protocol"));
            let others = seen.entry(key).or_default();
            for (other_at, other_ip, other_port) in others.iter().take(COMPARED_PORTS_MAX) {
                if host_ip == other_ip && host_port == *other_port {
                    out.push(format!("{at}: duplicate port definition with {other_at}"));
                } else if host_port == 0 || *other_port == 0 {
                    out.push(format!("{at}: overlapping port definition with {other_at}"));
                } else if host_port == *other_port && host_ip.is_empty() != other_ip.is_empty() {
                    out.push(format!("{at}: dangerously ambiguous port definition with {other_at}"));
                }
            }
            others.push((at.clone(), host_ip.to_owned(), host_port));
            let name = str_at(port, "name");
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                None => drop(names.insert(name.to_owned(), at)),
                Some(other) => name_warnings.push(format!(
                    "{at}: duplicate port name {name:?} with {other}, services and probes that select ports by name \
                     will use {other}"
                )),
            }
        }
    });
    out.append(name_warnings);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_source(paths: Vec<String>) -> Vec<(String, String)> {
        paths.into_iter().map(|it| (it, String::new())).collect()
    }

    proptest! {
        #[test]
        fn overlapping_paths_are_those_of_a_comparison_of_all(
            paths in proptest::collection::vec("([ab.-]{1,2}/){0,2}[ab.-]{0,2}", 0..20),
        ) {
            let is_under = |a: &str, b: &str| format!("{a}/").starts_with(&format!("{b}/"));
            let mut expected = Vec::new();
            for (at, it) in paths.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
                for (other_at, other) in paths[..at].iter().enumerate().filter(|(_, it)| !it.is_empty()) {
                    if is_under(it, other) || is_under(other, it) {
                        expected.push((at, other_at));
                    }
                }
            }
            prop_assert_eq!(overlapping_paths(&with_source(paths)), expected);
        }
    }

    #[test]
    fn the_warnings_about_one_object_are_bounded() {
        let equal = vec![json!({"key": "k", "path": "p"}); 50_000];
        let different: Vec<_> = (0..50_000).map(|it| json!({"key": "k", "path": format!("p{it}")})).collect();
        let port = json!({"containerPort": 1, "protocol": "TCP"});
        let container =
            json!({"name": "c", "ports": vec![port; 50_000], "env": vec![json!({"name": "E"}); 50_000]});
        for items in [equal, different] {
            let pod = json!({"metadata": {"name": "a"}, "spec": {
                "volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}], "containers": [container],
            }});
            let write = WriteToValidate { new: &pod, old: None, subresource: Subresource::Whole };
            assert_eq!(pod_warnings(&write).len(), WARNINGS_MAX);
        }
        let long = vec![json!({"key": "k", "path": "p".repeat(100_000)}); 30];
        let pod = json!({"metadata": {"name": "a"}, "spec": {
            "volumes": [{"name": "v", "configMap": {"name": "m", "items": long}}]}});
        let write = WriteToValidate { new: &pod, old: None, subresource: Subresource::Whole };
        let bytes: usize = pod_warnings(&write).iter().map(String::len).sum();
        assert!(bytes < 1 << 20, "{bytes}");
    }
}
