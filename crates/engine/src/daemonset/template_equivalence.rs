//! Equivalence of pod templates: two templates are equivalent if they create the same pods.
//!
//! Upstream compares templates byte by byte, so a default that a newer API server sets makes a new revision of the same
//! template. This controller compares normalized templates instead.
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use muster_api::go_json;
use muster_api::image_reference::default_pull_policy;
use muster_api::quantity::Quantity;
use muster_api::well_known::{DEFAULT_SCHEDULER_NAME, DEFAULT_TERMINATION_GRACE_PERIOD_S};
use serde_json::{Map, Value};

/// Hash of a normalized pod template. Equivalent templates have the same hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateIdentity(u128);

/// Returns the hash by which equivalent templates are recognized.
///
/// Rule: two templates are equivalent if they differ only in null fields, in fields whose value means the same as an
/// absent field (the default of the API or, for many fields, an empty value), or in notations that the API treats as
/// equal, such as `1000m` and `1`. Unknown fields are compared as they are, except that null fields are ignored.
pub fn template_identity(template: &Value) -> TemplateIdentity {
    TemplateIdentity(fnv1a_128(&go_json::to_string(&normalize(template))))
}

/// Returns the identity of the template in the `data` of a ControllerRevision. `None` if the data is not a patch that
/// replaces the whole template.
pub fn revision_identity(data: &Value) -> Option<TemplateIdentity> {
    let only =
        |value: &Value, key: &str| Some(value.as_object().filter(|it| it.len() == 1)?.get(key)?.clone());
    let template = only(&only(data, "spec")?, "template")?;
    (template.get("$patch")?.as_str()? == "replace").then(|| template_identity(&template))
}

/// The values of a field that are equivalent to an absent field.
#[derive(Debug, Clone, Copy)]
enum EquivalentToAbsent {
    /// A field with this string or with the empty string is equivalent to an absent field.
    Text(&'static str),
    /// A field with this number or with 0 is equivalent to an absent field.
    NumberOrZero(i64),
    /// A field with this number is equivalent to an absent field. A field with the number 0 is not.
    Number(i64),
    /// A field with the value `false` is equivalent to an absent field.
    False,
    /// A field with the value `true` is equivalent to an absent field.
    True,
    /// A field with an empty value (`{}`, `[]` or `""`) is equivalent to an absent field.
    Empty,
}
use EquivalentToAbsent::{Empty, False, Number, NumberOrZero, Text, True};

/// Fields with the values that are equivalent to an absent field: defaults that kube-apiserver sets, defaults of the
/// API documentation, and values that Go's `omitempty` does not write.
///
/// In a path, `[]` stands for any item of a list and `**` for any prefix. At least two names follow `**`, because a
/// single name could also be the key of a user's label. Names in capitals are defined in [`FIELD_GROUPS`].
/// No path ends in `labelSelector` or `namespaceSelector`, because `{}` and an absent selector have different meanings.
/// Only fields inside of selectors are listed.
#[rustfmt::skip]
const EQUIVALENT_TO_ABSENT: &[(&str, EquivalentToAbsent)] = &[
    ("metadata", Empty),
    ("metadata.labels", Empty),
    ("metadata.annotations", Empty),
    ("metadata.finalizers", Empty),

    ("spec.restartPolicy", Text("Always")),
    ("spec.dnsPolicy", Text("ClusterFirst")),
    ("spec.schedulerName", Text(DEFAULT_SCHEDULER_NAME)),
    ("spec.terminationGracePeriodSeconds", Number(DEFAULT_TERMINATION_GRACE_PERIOD_S)),
    ("spec.enableServiceLinks", True),
    ("spec.securityContext", Empty),
    ("spec.securityContext.supplementalGroups", Empty),
    ("spec.securityContext.sysctls", Empty),
    ("spec.securityContext.fsGroupChangePolicy", Text("Always")),
    ("spec.securityContext.supplementalGroupsPolicy", Text("Merge")),
    ("spec.hostNetwork", False),
    ("spec.hostPID", False),
    ("spec.hostIPC", False),
    ("spec.hostUsers", True),
    ("spec.setHostnameAsFQDN", False),
    ("spec.shareProcessNamespace", False),
    ("spec.nodeName", Empty),
    ("spec.hostname", Empty),
    ("spec.subdomain", Empty),
    ("spec.priorityClassName", Empty),
    ("spec.serviceAccountName", Empty),
    ("spec.serviceAccount", Empty),
    ("spec.nodeSelector", Empty),
    ("spec.volumes", Empty),
    ("spec.initContainers", Empty),
    ("spec.ephemeralContainers", Empty),
    ("spec.imagePullSecrets", Empty),
    ("spec.tolerations", Empty),
    ("spec.hostAliases", Empty),
    ("spec.readinessGates", Empty),
    ("spec.topologySpreadConstraints", Empty),
    ("spec.schedulingGates", Empty),
    ("spec.resourceClaims", Empty),
    ("spec.overhead", Empty),
    ("spec.resources", Empty),
    ("spec.dnsConfig", Empty),
    ("spec.dnsConfig.nameservers", Empty),
    ("spec.dnsConfig.searches", Empty),
    ("spec.dnsConfig.options", Empty),

    ("spec.tolerations[].operator", Text("Equal")),
    ("spec.tolerations[].key", Empty),
    ("spec.tolerations[].value", Empty),
    ("spec.tolerations[].effect", Empty),
    ("spec.affinity", Empty),
    ("spec.affinity.AFFINITY", Empty),
    ("spec.affinity.AFFINITY.preferredDuringSchedulingIgnoredDuringExecution", Empty),
    ("spec.affinity.PODAFFINITY.requiredDuringSchedulingIgnoredDuringExecution", Empty),
    ("**.PODTERM.namespaces", Empty),
    ("**.PODTERM.matchLabelKeys", Empty),
    ("**.PODTERM.mismatchLabelKeys", Empty),
    ("**.SELECTOR.matchLabels", Empty),
    ("**.SELECTOR.matchExpressions", Empty),
    ("**.TERM.matchExpressions", Empty),
    ("**.TERM.matchFields", Empty),
    ("**.matchExpressions[].values", Empty),
    ("**.matchFields[].values", Empty),
    ("spec.topologySpreadConstraints[].matchLabelKeys", Empty),
    ("spec.topologySpreadConstraints[].minDomains", Number(1)),
    ("spec.topologySpreadConstraints[].nodeAffinityPolicy", Text("Honor")),
    ("spec.topologySpreadConstraints[].nodeTaintsPolicy", Text("Ignore")),

    ("spec.CONTAINER.command", Empty),
    ("spec.CONTAINER.args", Empty),
    ("spec.CONTAINER.workingDir", Empty),
    ("spec.CONTAINER.ports", Empty),
    ("spec.CONTAINER.ports[].name", Empty),
    ("spec.CONTAINER.ports[].hostIP", Empty),
    ("spec.CONTAINER.ports[].hostPort", NumberOrZero(0)),
    ("spec.CONTAINER.ports[].protocol", Text("TCP")),
    ("spec.CONTAINER.env", Empty),
    ("spec.CONTAINER.env[].value", Empty),
    ("spec.CONTAINER.env[].valueFrom.REFERENCE.optional", False),
    ("spec.CONTAINER.envFrom", Empty),
    ("spec.CONTAINER.envFrom[].prefix", Empty),
    ("spec.CONTAINER.envFrom[].REFERENCE.optional", False),
    ("spec.CONTAINER.resources", Empty),
    ("**.resources.limits", Empty),
    ("**.resources.requests", Empty),
    ("**.resources.claims", Empty),
    ("spec.CONTAINER.resizePolicy", Empty),
    ("spec.CONTAINER.restartPolicyRules", Empty),
    ("spec.CONTAINER.volumeDevices", Empty),
    ("spec.CONTAINER.volumeMounts", Empty),
    ("spec.CONTAINER.volumeMounts[].readOnly", False),
    ("spec.CONTAINER.volumeMounts[].subPath", Empty),
    ("spec.CONTAINER.volumeMounts[].subPathExpr", Empty),
    ("spec.CONTAINER.volumeMounts[].mountPropagation", Text("None")),
    ("spec.CONTAINER.volumeMounts[].recursiveReadOnly", Text("Disabled")),
    ("spec.CONTAINER.lifecycle", Empty),
    ("spec.CONTAINER.terminationMessagePath", Text("/dev/termination-log")),
    ("spec.CONTAINER.terminationMessagePolicy", Text("File")),
    ("spec.CONTAINER.imagePullPolicy", Empty),
    ("spec.CONTAINER.securityContext", Empty),
    ("spec.CONTAINER.securityContext.procMount", Text("Default")),
    ("spec.CONTAINER.securityContext.privileged", False),
    ("spec.CONTAINER.securityContext.readOnlyRootFilesystem", False),
    ("spec.CONTAINER.securityContext.capabilities", Empty),
    ("spec.CONTAINER.securityContext.capabilities.add", Empty),
    ("spec.CONTAINER.securityContext.capabilities.drop", Empty),
    ("spec.CONTAINER.stdin", False),
    ("spec.CONTAINER.stdinOnce", False),
    ("spec.CONTAINER.tty", False),

    ("spec.CONTAINER.PROBE.initialDelaySeconds", NumberOrZero(0)),
    ("spec.CONTAINER.PROBE.timeoutSeconds", NumberOrZero(1)),
    ("spec.CONTAINER.PROBE.periodSeconds", NumberOrZero(10)),
    ("spec.CONTAINER.PROBE.successThreshold", NumberOrZero(1)),
    ("spec.CONTAINER.PROBE.failureThreshold", NumberOrZero(3)),
    ("spec.CONTAINER.PROBE.grpc.service", Empty),
    ("**.httpGet.path", Text("/")),
    ("**.httpGet.scheme", Text("HTTP")),
    ("**.httpGet.host", Empty),
    ("**.httpGet.httpHeaders", Empty),
    ("**.tcpSocket.host", Empty),
    ("**.exec.command", Empty),
    ("**.fieldRef.apiVersion", Text("v1")),
    ("**.resourceFieldRef.containerName", Empty),
    ("**.resourceFieldRef.divisor", Text("0")),
    ("**.resourceFieldRef.divisor", Text("1")),

    ("spec.volumes[].emptyDir", Empty),
    ("spec.volumes[].emptyDir.medium", Empty),
    ("spec.volumes[].hostPath.type", Empty),
    ("spec.volumes[].secret.defaultMode", Number(0o644)),
    ("spec.volumes[].secret.optional", False),
    ("spec.volumes[].secret.items", Empty),
    ("spec.volumes[].configMap.defaultMode", Number(0o644)),
    ("spec.volumes[].configMap.optional", False),
    ("spec.volumes[].configMap.items", Empty),
    ("spec.volumes[].downwardAPI.defaultMode", Number(0o644)),
    ("spec.volumes[].downwardAPI.items", Empty),
    ("spec.volumes[].projected.defaultMode", Number(0o644)),
    ("spec.volumes[].projected.sources[].REFERENCE.optional", False),
    ("spec.volumes[].projected.sources[].REFERENCE.items", Empty),
    ("spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds", Number(3600)),
    ("spec.volumes[].projected.sources[].serviceAccountToken.audience", Empty),
    ("spec.volumes[].csi.readOnly", False),
    ("spec.volumes[].csi.volumeAttributes", Empty),
    ("spec.volumes[].persistentVolumeClaim.readOnly", False),
    ("spec.volumes[].nfs.readOnly", False),
    ("spec.volumes[].image.pullPolicy", Empty),
    ("spec.volumes[].ephemeral.volumeClaimTemplate.metadata", Empty),
    ("spec.volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode", Text("Filesystem")),
    ("spec.volumes[].iscsi.iscsiInterface", Text("default")),
    ("spec.volumes[].rbd.pool", Text("rbd")),
    ("spec.volumes[].rbd.user", Text("admin")),
    ("spec.volumes[].rbd.keyring", Text("/etc/ceph/keyring")),
    ("spec.volumes[].azureDisk.cachingMode", Text("ReadWrite")),
    ("spec.volumes[].azureDisk.fsType", Text("ext4")),
    ("spec.volumes[].azureDisk.readOnly", False),
    ("spec.volumes[].azureDisk.kind", Text("Shared")),
    ("spec.volumes[].scaleIO.storageMode", Text("ThinProvisioned")),
    ("spec.volumes[].scaleIO.fsType", Text("xfs")),
];

/// Path patterns of fields with a quantity, and whether the API server rounds the quantity up to thousandths. `*`
/// matches any name.
const QUANTITY_FIELDS: &[(&str, bool)] = &[
    ("**.resources.limits.*", true),
    ("**.resources.requests.*", true),
    ("spec.overhead.*", true),
    ("spec.volumes[].emptyDir.sizeLimit", false),
    ("**.resourceFieldRef.divisor", false),
];

/// Names in path patterns that stand for several fields of the same type.
const FIELD_GROUPS: &[(&str, &[&str])] = &[
    ("CONTAINER", &["containers", "initContainers", "ephemeralContainers"]),
    ("PROBE", &["livenessProbe", "readinessProbe", "startupProbe"]),
    ("AFFINITY", &["nodeAffinity", "podAffinity", "podAntiAffinity"]),
    ("PODAFFINITY", &["podAffinity", "podAntiAffinity"]),
    ("PODTERM", &["requiredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"]),
    ("SELECTOR", &["labelSelector", "namespaceSelector"]),
    ("TERM", &["nodeSelectorTerms", "preference"]),
    (
        "REFERENCE",
        &[
            "configMapKeyRef",
            "secretKeyRef",
            "fileKeyRef",
            "configMapRef",
            "secretRef",
            "configMap",
            "secret",
        ],
    ),
];

/// Returns the normalized template: without fields that mean the same as absent ones, and with quantities in one
/// notation. The normalized forms of equivalent templates are equal.
fn normalize(template: &Value) -> Value {
    let mut out = without_fields_equivalent_to_absent(template, &mut Vec::new());
    if let Some(template) = out.as_object_mut() {
        // `$patch` is a directive of the revision's patch, not part of the template.
        template.remove("$patch");
        if let Some(Value::Object(spec)) = template.get_mut("spec") {
            remove_dependent_defaults(spec);
        }
    }
    out
}

/// Returns a copy of `value` without the fields that mean the same as absent ones ([`EQUIVALENT_TO_ABSENT`]), and with
/// quantities in one notation. `path` is the path of `value` in the template.
///
/// Rule: fields that are null or mean the same as an absent field are removed. List items are never removed, because
/// their position matters.
fn without_fields_equivalent_to_absent<'a>(value: &'a Value, path: &mut Vec<&'a str>) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (key, value) in fields.iter().filter(|it| !it.1.is_null()) {
                path.push(key);
                let value = without_fields_equivalent_to_absent(value, path);
                if !EQUIVALENT_TO_ABSENT
                    .iter()
                    .any(|(pattern, absent)| absent.matches(&value) && path_matches(pattern, path))
                {
                    out.insert(key.clone(), value);
                }
                path.pop();
            }
            out.into()
        }
        Value::Array(items) => items.iter().map(|it| without_fields_equivalent_to_absent(it, path)).collect(),
        Value::String(_) | Value::Number(_) => {
            match QUANTITY_FIELDS.iter().find(|it| path_matches(it.0, path)) {
                Some((_, in_thousandths)) => canonical_quantity(value, *in_thousandths),
                None => value.clone(),
            }
        }
        _ => value.clone(),
    }
}

/// Removes fields of a pod spec that have their default, where the default depends on another field. Also replaces
/// `serviceAccount` by `serviceAccountName`.
fn remove_dependent_defaults(spec: &mut Map<String, Value>) {
    merge_service_account(spec);
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in objects_in_list(spec, list) {
            remove_if_default(container, "imagePullPolicy", pull_policy_default(container.get("image")));
            remove_default_requests(container);
            if host_network {
                // With `hostNetwork`, `hostPort` defaults to `containerPort`.
                for port in objects_in_list(container, "ports") {
                    remove_if_default(port, "hostPort", port.get("containerPort").cloned());
                }
            }
        }
    }
    for volume in objects_in_list(spec, "volumes") {
        if let Some(Value::Object(image)) = volume.get_mut("image") {
            remove_if_default(image, "pullPolicy", pull_policy_default(image.get("reference")));
        }
    }
}

/// Replaces `serviceAccount` by `serviceAccountName`.
///
/// Rule: `serviceAccount` is the deprecated alias of `serviceAccountName`. If both are set, `serviceAccountName` is
/// used.
fn merge_service_account(spec: &mut Map<String, Value>) {
    if let Some(old) = spec.remove("serviceAccount")
        && !spec.contains_key("serviceAccountName")
    {
        spec.insert("serviceAccountName".to_string(), old);
    }
}

/// Returns the default pull policy of an image. `None` if there is no image.
fn pull_policy_default(image: Option<&Value>) -> Option<Value> {
    let image = image?.as_str().filter(|it| !it.is_empty())?;
    Some(default_pull_policy(image).into())
}

/// Removes the resource requests of a container that equal its limits.
///
/// Rule: a container's resource requests default to its limits.
fn remove_default_requests(container: &mut Map<String, Value>) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(Value::Object(requests)) = resources.get_mut("requests") {
        requests.retain(|name, value| limits.get(name) != Some(value));
        if requests.is_empty() {
            resources.remove("requests");
        }
    }
}

impl EquivalentToAbsent {
    /// Whether a field with this value is equivalent to an absent field.
    fn matches(self, value: &Value) -> bool {
        let is_number = |wanted: i64| value.as_i64() == Some(wanted);
        match self {
            Text(text) => value.as_str().is_some_and(|it| it == text || it.is_empty()),
            NumberOrZero(number) => is_number(number) || is_number(0),
            Number(number) => is_number(number),
            False => value == false,
            True => value == true,
            Empty => match value {
                Value::Object(fields) => fields.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            },
        }
    }
}

/// Whether a path pattern, such as those in [`EQUIVALENT_TO_ABSENT`], matches a path. The comparison starts at the end,
/// where most paths differ.
fn path_matches(pattern: &str, path: &[&str]) -> bool {
    let mut keys = path.iter().rev();
    for part in pattern.rsplit('.') {
        if part == "**" {
            return true;
        }
        let Some(&key) = keys.next() else { return false };
        let part = part.strip_suffix("[]").unwrap_or(part);
        let named = FIELD_GROUPS.iter().find(|it| it.0 == part);
        if !(part == "*" || named.map_or(part == key, |it| it.1.contains(&key))) {
            return false;
        }
    }
    keys.next().is_none()
}

/// Returns a quantity in a notation that depends only on its value. If `in_thousandths` is true, the quantity is
/// rounded up to thousandths.
///
/// Rule: quantities are compared by the value that upstream parses, whatever their suffix. `1000m` equals `1`, and `1Gi`
/// equals `1024Mi`. `8Ei` and `10Ei` are equal, because a binary suffix has a maximum of 2⁶³-1. A value that is not a
/// quantity stays as it is.
fn canonical_quantity(value: &Value, in_thousandths: bool) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let Ok(quantity) = Quantity::parse(&text) else { return value.clone() };
    let quantity = if in_thousandths { quantity.rounded_to_millis() } else { quantity };
    quantity.decimal_text().into()
}

/// Returns the items of the list field `list` that are JSON objects. Other items are skipped.
fn objects_in_list<'a>(
    fields: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Removes a field if its value equals `default`.
fn remove_if_default(fields: &mut Map<String, Value>, key: &str, default: Option<Value>) {
    if default.is_some() && fields.get(key) == default.as_ref() {
        fields.remove(key);
    }
}

/// Returns the 128-bit FNV-1a hash of a text.
fn fnv1a_128(text: &str) -> u128 {
    const FNV_OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(FNV_OFFSET_BASIS, |sum, byte| (sum ^ u128::from(byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests;
