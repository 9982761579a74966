//! What a pod template means, apart from how it is spelt. Upstream compares templates by their bytes, so an
//! API server that starts to write one more default restarts every daemon of the cluster; we compare by this.
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use serde_json::{Map, Value};

use crate::go_json;

/// Two templates with the same meaning make the same pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meaning(u128);

/// Rule: two templates mean the same when they differ only in nulls, in fields that hold the API's default,
/// or in spellings that the API treats as equal. What we do not know counts as it stands.
pub fn of_template(template: &Value) -> Meaning {
    Meaning(fnv1a_128(&go_json::to_string(&normal(template))))
}

/// The meaning of a revision's data, which has to be a patch that replaces the whole template; any other
/// patch says too little to tell.
pub fn of_revision(data: &Value) -> Option<Meaning> {
    let only =
        |value: &Value, key: &str| Some(value.as_object().filter(|it| it.len() == 1)?.get(key)?.clone());
    let template = only(&only(data, "spec")?, "template")?;
    (template.get("$patch")?.as_str()? == "replace").then(|| of_template(&template))
}

/// What a field may hold and say no more than if it were not there.
#[derive(Debug, Clone, Copy)]
enum Absent {
    /// This text, or none.
    Text(&'static str),
    /// This number, or 0.
    Count(i64),
    /// This number, and not 0, which means something else.
    Number(i64),
    /// `false`.
    No,
    /// `true`.
    Yes,
    /// `{}`, `[]` or `""`.
    Empty,
}
use Absent::{Count, Empty, No, Number, Text, Yes};

/// Field by field, what the API takes its absence for: what kube-apiserver fills in, what the API's
/// documentation says of it, and what Go's `omitempty` does not write.
///
/// `[]` is any item, `**` any way down (and then two words at least, or a user's label of that name would be
/// meant too); words in capitals are in `NAMES`. A `labelSelector` or
/// `namespaceSelector` is never here: `{}` selects everything, none selects nothing.
#[rustfmt::skip]
const ABSENT: &[(&str, Absent)] = &[
    ("metadata", Empty),
    ("metadata.labels", Empty),
    ("metadata.annotations", Empty),
    ("metadata.finalizers", Empty),

    ("spec.restartPolicy", Text("Always")),
    ("spec.dnsPolicy", Text("ClusterFirst")),
    ("spec.schedulerName", Text("default-scheduler")),
    ("spec.terminationGracePeriodSeconds", Number(30)),
    ("spec.enableServiceLinks", Yes),
    ("spec.securityContext", Empty),
    ("spec.securityContext.supplementalGroups", Empty),
    ("spec.securityContext.sysctls", Empty),
    ("spec.securityContext.fsGroupChangePolicy", Text("Always")),
    ("spec.securityContext.supplementalGroupsPolicy", Text("Merge")),
    ("spec.hostNetwork", No),
    ("spec.hostPID", No),
    ("spec.hostIPC", No),
    ("spec.hostUsers", Yes),
    ("spec.setHostnameAsFQDN", No),
    ("spec.shareProcessNamespace", No),
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
    ("spec.CONTAINER.ports[].hostPort", Count(0)),
    ("spec.CONTAINER.ports[].protocol", Text("TCP")),
    ("spec.CONTAINER.env", Empty),
    ("spec.CONTAINER.env[].value", Empty),
    ("spec.CONTAINER.env[].valueFrom.REFERENCE.optional", No),
    ("spec.CONTAINER.envFrom", Empty),
    ("spec.CONTAINER.envFrom[].prefix", Empty),
    ("spec.CONTAINER.envFrom[].REFERENCE.optional", No),
    ("spec.CONTAINER.resources", Empty),
    ("**.resources.limits", Empty),
    ("**.resources.requests", Empty),
    ("**.resources.claims", Empty),
    ("spec.CONTAINER.resizePolicy", Empty),
    ("spec.CONTAINER.restartPolicyRules", Empty),
    ("spec.CONTAINER.volumeDevices", Empty),
    ("spec.CONTAINER.volumeMounts", Empty),
    ("spec.CONTAINER.volumeMounts[].readOnly", No),
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
    ("spec.CONTAINER.securityContext.privileged", No),
    ("spec.CONTAINER.securityContext.readOnlyRootFilesystem", No),
    ("spec.CONTAINER.securityContext.capabilities", Empty),
    ("spec.CONTAINER.securityContext.capabilities.add", Empty),
    ("spec.CONTAINER.securityContext.capabilities.drop", Empty),
    ("spec.CONTAINER.stdin", No),
    ("spec.CONTAINER.stdinOnce", No),
    ("spec.CONTAINER.tty", No),

    ("spec.CONTAINER.PROBE.initialDelaySeconds", Count(0)),
    ("spec.CONTAINER.PROBE.timeoutSeconds", Count(1)),
    ("spec.CONTAINER.PROBE.periodSeconds", Count(10)),
    ("spec.CONTAINER.PROBE.successThreshold", Count(1)),
    ("spec.CONTAINER.PROBE.failureThreshold", Count(3)),
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
    ("spec.volumes[].secret.optional", No),
    ("spec.volumes[].secret.items", Empty),
    ("spec.volumes[].configMap.defaultMode", Number(0o644)),
    ("spec.volumes[].configMap.optional", No),
    ("spec.volumes[].configMap.items", Empty),
    ("spec.volumes[].downwardAPI.defaultMode", Number(0o644)),
    ("spec.volumes[].downwardAPI.items", Empty),
    ("spec.volumes[].projected.defaultMode", Number(0o644)),
    ("spec.volumes[].projected.sources[].REFERENCE.optional", No),
    ("spec.volumes[].projected.sources[].REFERENCE.items", Empty),
    ("spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds", Number(3600)),
    ("spec.volumes[].projected.sources[].serviceAccountToken.audience", Empty),
    ("spec.volumes[].csi.readOnly", No),
    ("spec.volumes[].csi.volumeAttributes", Empty),
    ("spec.volumes[].persistentVolumeClaim.readOnly", No),
    ("spec.volumes[].nfs.readOnly", No),
    ("spec.volumes[].image.pullPolicy", Empty),
    ("spec.volumes[].ephemeral.volumeClaimTemplate.metadata", Empty),
    ("spec.volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode", Text("Filesystem")),
    ("spec.volumes[].iscsi.iscsiInterface", Text("default")),
    ("spec.volumes[].rbd.pool", Text("rbd")),
    ("spec.volumes[].rbd.user", Text("admin")),
    ("spec.volumes[].rbd.keyring", Text("/etc/ceph/keyring")),
    ("spec.volumes[].azureDisk.cachingMode", Text("ReadWrite")),
    ("spec.volumes[].azureDisk.fsType", Text("ext4")),
    ("spec.volumes[].azureDisk.readOnly", No),
    ("spec.volumes[].azureDisk.kind", Text("Shared")),
    ("spec.volumes[].scaleIO.storageMode", Text("ThinProvisioned")),
    ("spec.volumes[].scaleIO.fsType", Text("xfs")),
];

/// Fields that hold a quantity, and whether the API rounds it up to thousandths.
const QUANTITIES: &[(&str, bool)] = &[
    ("**.resources.limits.*", true),
    ("**.resources.requests.*", true),
    ("spec.overhead.*", true),
    ("spec.volumes[].emptyDir.sizeLimit", false),
    ("**.resourceFieldRef.divisor", false),
];

/// One word in a path for several fields of the same shape.
const NAMES: &[(&str, &[&str])] = &[
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

/// The template with one spelling for everything that can be spelt in several ways: the shortest.
fn normal(template: &Value) -> Value {
    let mut out = without_absent(template, &mut Vec::new());
    if let Some(template) = out.as_object_mut() {
        // A revision's mark for the patch, not part of the template.
        template.remove("$patch");
        if let Some(Value::Object(spec)) = template.get_mut("spec") {
            drop_what_follows(spec);
        }
    }
    out
}

/// Rule: nulls, and whatever the table takes for absent, say nothing. Items of a list stay, whatever they
/// are: their place has a meaning.
fn without_absent<'a>(value: &'a Value, path: &mut Vec<&'a str>) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (key, value) in fields.iter().filter(|it| !it.1.is_null()) {
                path.push(key);
                let value = without_absent(value, path);
                if !ABSENT.iter().any(|(pattern, absent)| absent.is(&value) && matches(pattern, path)) {
                    out.insert(key.clone(), value);
                }
                path.pop();
            }
            out.into()
        }
        Value::Array(items) => items.iter().map(|it| without_absent(it, path)).collect(),
        Value::String(_) | Value::Number(_) => match QUANTITIES.iter().find(|it| matches(it.0, path)) {
            Some((_, in_thousandths)) => canonical_quantity(value, *in_thousandths),
            None => value.clone(),
        },
        _ => value.clone(),
    }
}

/// Defaults that depend on another field.
fn drop_what_follows(spec: &mut Map<String, Value>) {
    same_account(spec);
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in objects(spec, list) {
            drop_if(container, "imagePullPolicy", default_pull_policy(container.get("image")));
            requests_follow_limits(container);
            if host_network {
                // With the host's network, a container's port is the host's.
                for port in objects(container, "ports") {
                    drop_if(port, "hostPort", port.get("containerPort").cloned());
                }
            }
        }
    }
    for volume in objects(spec, "volumes") {
        if let Some(Value::Object(image)) = volume.get_mut("image") {
            drop_if(image, "pullPolicy", default_pull_policy(image.get("reference")));
        }
    }
}

/// Rule: `serviceAccount` is the old name of `serviceAccountName`, which wins.
fn same_account(spec: &mut Map<String, Value>) {
    if let Some(old) = spec.remove("serviceAccount")
        && !spec.contains_key("serviceAccountName")
    {
        spec.insert("serviceAccountName".to_string(), old);
    }
}

/// Rule: an image that may move (`latest`, or no tag and no digest) is always pulled, any other if it is not
/// there.
fn default_pull_policy(image: Option<&Value>) -> Option<Value> {
    let image = image?.as_str().filter(|it| !it.is_empty())?;
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let moves = match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag == "latest",
        (None, digest) => digest.is_none(),
    };
    Some(if moves { "Always" } else { "IfNotPresent" }.into())
}

/// Rule: what a container may use at most is also what it asks for, unless it says otherwise.
fn requests_follow_limits(container: &mut Map<String, Value>) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(Value::Object(requests)) = resources.get_mut("requests") {
        requests.retain(|name, value| limits.get(name) != Some(value));
        if requests.is_empty() {
            resources.remove("requests");
        }
    }
}

impl Absent {
    fn is(self, value: &Value) -> bool {
        let is_number = |wanted: i64| value.as_i64() == Some(wanted);
        match self {
            Text(text) => value.as_str().is_some_and(|it| it == text || it.is_empty()),
            Count(count) => is_number(count) || is_number(0),
            Number(number) => is_number(number),
            No => value == false,
            Yes => value == true,
            Empty => match value {
                Value::Object(fields) => fields.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            },
        }
    }
}

/// Whether a pattern of the tables means this path. Read from the end, where most differ.
fn matches(pattern: &str, path: &[&str]) -> bool {
    let mut keys = path.iter().rev();
    for part in pattern.rsplit('.') {
        if part == "**" {
            return true;
        }
        let Some(&key) = keys.next() else { return false };
        let part = part.strip_suffix("[]").unwrap_or(part);
        let named = NAMES.iter().find(|it| it.0 == part);
        if !(part == "*" || named.map_or(part == key, |it| it.1.contains(&key))) {
            return false;
        }
    }
    keys.next().is_none()
}

/// Rule: a quantity is its number, whatever the unit: `1000m` is `1`, `1Gi` is `1024Mi`. What cannot be
/// read stays as it is.
fn canonical_quantity(value: &Value, in_thousandths: bool) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let Some(mut billionths) = billionths(&text) else { return value.clone() };
    if in_thousandths {
        const THOUSANDTH: i128 = 1_000_000;
        billionths = round_away(billionths, THOUSANDTH).saturating_mul(THOUSANDTH);
    }
    const ONE: i128 = 1_000_000_000;
    match billionths % ONE {
        0 => (billionths / ONE).to_string().into(),
        _ => format!("{billionths}n").into(),
    }
}

fn billionths(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let mut count: i128 = digits.parse().ok()?;
    let mut tens: i32 = 9 - i32::try_from(fraction.len()).ok()?;
    match unit {
        "" => {}
        "n" => tens -= 9,
        "u" => tens -= 6,
        "m" => tens -= 3,
        "k" => tens += 3,
        "M" => tens += 6,
        "G" => tens += 9,
        "T" => tens += 12,
        "P" => tens += 15,
        "E" => tens += 18,
        "Ki" => count = count.checked_mul(1 << 10)?,
        "Mi" => count = count.checked_mul(1 << 20)?,
        "Gi" => count = count.checked_mul(1 << 30)?,
        "Ti" => count = count.checked_mul(1 << 40)?,
        "Pi" => count = count.checked_mul(1 << 50)?,
        "Ei" => count = count.checked_mul(1 << 60)?,
        _ => tens = tens.checked_add(unit.strip_prefix(['e', 'E'])?.parse().ok()?)?,
    }
    let scale = 10i128.checked_pow(tens.unsigned_abs())?;
    let count = if tens < 0 { round_away(count, scale) } else { count.checked_mul(scale)? };
    Some(if negative { -count } else { count })
}

/// Divides, away from zero, as quantities are rounded.
fn round_away(value: i128, by: i128) -> i128 {
    let rest = value % by;
    value / by + rest.signum()
}

fn objects<'a>(
    fields: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn drop_if(fields: &mut Map<String, Value>, key: &str, default: Option<Value>) {
    if default.is_some() && fields.get(key) == default.as_ref() {
        fields.remove(key);
    }
}

fn fnv1a_128(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |sum, byte| (sum ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::manifest;

    fn same(one: Value, other: Value) {
        assert_eq!(of_template(&one), of_template(&other), "{} and {}", normal(&one), normal(&other));
    }

    fn differ(one: Value, other: Value) {
        assert_ne!(of_template(&one), of_template(&other), "{}", normal(&one));
    }

    fn spec(spec: Value) -> Value {
        json!({"spec": spec})
    }

    fn container(fields: Value) -> Value {
        let mut container = json!({"name": "c", "image": "c:1"});
        for (key, value) in fields.as_object().unwrap() {
            container[key] = value.clone();
        }
        spec(json!({"containers": [container]}))
    }

    fn volume(source: Value) -> Value {
        let mut volume = json!({"name": "v"});
        for (key, value) in source.as_object().unwrap() {
            volume[key] = value.clone();
        }
        spec(json!({"volumes": [volume]}))
    }

    /// A template as its author wrote it, and as two API servers show it.
    fn written() -> Value {
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "hostNetwork": true,
                "serviceAccountName": "web",
                "containers": [{
                    "name": "web",
                    "image": "web:1",
                    "ports": [{"containerPort": 80}],
                    "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "securityContext": {"privileged": true},
                    "livenessProbe": {"httpGet": {"port": 80}},
                }],
                "volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "tmp"}],
            },
        })
    }

    fn served() -> Value {
        json!({
            "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
            "spec": {
                "hostNetwork": true,
                "serviceAccountName": "web",
                "serviceAccount": "web",
                "restartPolicy": "Always",
                "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30,
                "securityContext": {},
                "containers": [{
                    "name": "web",
                    "image": "web:1",
                    "imagePullPolicy": "IfNotPresent",
                    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                    "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "securityContext": {"privileged": true},
                    "livenessProbe": {
                        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }],
                "volumes": [
                    {"name": "v", "configMap": {"name": "c", "defaultMode": 420}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        })
    }

    #[test]
    fn what_the_api_server_fills_in_changes_nothing() {
        same(written(), served());
    }

    /// K07: Kubernetes 1.12 began to fill in procMount, and every daemon was restarted.
    #[test]
    fn a_newer_server_that_fills_in_one_more_field_changes_nothing() {
        let mut newer = served();
        newer["spec"]["containers"][0]["securityContext"]["procMount"] = "Default".into();
        newer["spec"]["enableServiceLinks"] = true.into();
        newer["spec"]["containers"][0]["volumeMounts"] = json!([]);
        newer["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
        same(served(), newer);
    }

    #[test]
    fn a_revision_means_what_its_template_means() {
        let data: Value = serde_json::from_str(&manifest::revision_data(&served())).unwrap();
        assert_eq!(of_revision(&data), Some(of_template(&written())));
    }

    #[test]
    fn other_patches_have_no_meaning() {
        for data in [
            json!(null),
            json!({}),
            json!({"spec": {}}),
            json!({"spec": {"template": null}}),
            json!({"spec": {"template": {"spec": {}}}}),
            json!({"spec": {"template": {"$patch": "merge"}}}),
            json!({"spec": {"template": {"$patch": "replace"}, "minReadySeconds": 1}}),
            json!({"spec": {"template": {"$patch": "replace"}}, "metadata": {}}),
        ] {
            assert_eq!(of_revision(&data), None, "{data}");
        }
        assert!(of_revision(&json!({"spec": {"template": {"$patch": "replace"}}})).is_some());
    }

    /// Every entry of the table, on the path that it names: the default is as good as nothing, another value
    /// is not.
    #[test]
    fn every_entry_of_the_table_holds() {
        for (pattern, absent) in ABSENT {
            let defaults = match absent {
                Text(text) => vec![json!(text), json!("")],
                Count(count) => vec![json!(count), json!(0)],
                Number(number) => vec![json!(number)],
                No => vec![json!(false)],
                Yes => vec![json!(true)],
                Empty => vec![json!({}), json!([]), json!("")],
            };
            let other = match absent {
                Text(_) => json!("other"),
                Count(_) | Number(_) => json!(77),
                No => json!(true),
                Yes => json!(false),
                Empty => json!({"other": "x"}),
            };
            for path in paths(pattern) {
                for default in &defaults {
                    same(at(&path, Some(default.clone())), at(&path, None));
                }
                differ(at(&path, Some(other.clone())), at(&path, None));
                differ(at(&path, Some(other.clone())), at(&path, Some(defaults[0].clone())));
            }
        }
    }

    /// The paths that a pattern names, `**` standing for somewhere.
    fn paths(pattern: &str) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = vec![vec![]];
        for part in pattern.split('.') {
            let names: Vec<String> = match NAMES.iter().find(|it| it.0 == part) {
                // Probes and affinities are single, containers and terms come in lists.
                Some((_, names)) if part == "CONTAINER" => names.iter().map(|it| format!("{it}[]")).collect(),
                Some((_, names)) => names.iter().map(|it| it.to_string()).collect(),
                None if part == "**" => vec!["somewhere".to_string()],
                None => vec![part.to_string()],
            };
            all = all
                .iter()
                .flat_map(|path| names.iter().map(move |name| path.iter().chain([name]).cloned().collect()))
                .collect();
        }
        all
    }

    /// A template with something else beside every step of the path, so that nothing becomes empty.
    fn at(path: &[String], value: Option<Value>) -> Value {
        let Some((first, rest)) = path.split_first() else { return value.unwrap_or(json!({"beside": 1})) };
        let (key, in_list) = first.strip_suffix("[]").map_or((first.as_str(), false), |it| (it, true));
        let mut fields = json!({"beside": 1});
        if rest.is_empty() {
            if let Some(value) = value {
                fields[key] = value;
            }
        } else {
            let inner = at(rest, value);
            fields[key] = if in_list { json!([inner]) } else { inner };
        }
        fields
    }

    #[test]
    fn no_pattern_of_the_tables_is_misspelt() {
        for pattern in ABSENT.iter().map(|it| it.0).chain(QUANTITIES.iter().map(|it| it.0)) {
            let (first, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
            assert!(["metadata", "spec", "**"].contains(&first), "{pattern}");
            assert!(!rest.contains("**"), "{pattern}");
            assert!(first != "**" || rest.contains('.'), "{pattern}");
            for part in pattern.split('.').filter(|it| it.chars().all(|it| it.is_ascii_uppercase())) {
                assert!(NAMES.iter().any(|it| it.0 == part), "{pattern}");
            }
        }
    }

    #[test]
    fn zero_seconds_of_grace_and_mode_zero_are_not_the_default() {
        differ(spec(json!({"terminationGracePeriodSeconds": 0})), spec(json!({})));
        differ(volume(json!({"secret": {"defaultMode": 0}})), volume(json!({"secret": {}})));
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("web", "Always"),
            ("web:latest", "Always"),
            ("host:5000/web", "Always"),
            ("host:5000/team/web:latest", "Always"),
            ("web:latest@sha256:00", "Always"),
            ("web:1", "IfNotPresent"),
            ("host:5000/web:1", "IfNotPresent"),
            ("web@sha256:00", "IfNotPresent"),
            ("web:1@sha256:00", "IfNotPresent"),
        ] {
            let with = |policy: &str| container(json!({"image": image, "imagePullPolicy": policy}));
            same(with(policy), container(json!({"image": image})));
            let other = if policy == "Always" { "IfNotPresent" } else { "Always" };
            differ(with(other), container(json!({"image": image})));
            differ(with("Never"), container(json!({"image": image})));
            let mounted = |fields: Value| volume(json!({"image": fields}));
            same(
                mounted(json!({"reference": image, "pullPolicy": policy})),
                mounted(json!({"reference": image})),
            );
        }
    }

    #[test]
    fn a_host_port_is_the_container_s_only_on_the_host_network() {
        let with = |host_network: bool, port: Value| {
            let ports = json!([{"name": "c", "image": "c:1", "ports": [port]}]);
            spec(json!({"hostNetwork": host_network, "containers": ports, "initContainers": ports}))
        };
        let (both, one) = (json!({"containerPort": 80, "hostPort": 80}), json!({"containerPort": 80}));
        same(with(true, both.clone()), with(true, one.clone()));
        differ(with(false, both), with(false, one.clone()));
        differ(with(true, json!({"containerPort": 80, "hostPort": 81})), with(true, one));
    }

    #[test]
    fn the_old_name_of_the_service_account() {
        let new = || spec(json!({"serviceAccountName": "a"}));
        same(new(), spec(json!({"serviceAccount": "a"})));
        same(new(), spec(json!({"serviceAccount": "a", "serviceAccountName": "a"})));
        same(new(), spec(json!({"serviceAccount": "a", "serviceAccountName": ""})));
        differ(new(), spec(json!({"serviceAccountName": "b"})));
        differ(new(), spec(json!({})));
    }

    #[test]
    fn requests_follow_limits_one_by_one() {
        let resources = |value: Value| container(json!({"resources": value}));
        let limits = || resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        same(
            limits(),
            resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}})),
        );
        same(
            limits(),
            resources(json!({"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"memory": "1Gi"}})),
        );
        differ(
            limits(),
            resources(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0"}})),
        );
        differ(limits(), resources(json!({"requests": {"cpu": "1", "memory": "1Gi"}})));
    }

    #[test]
    fn quantities() {
        for (one, other) in [
            ("1", "1000m"),
            ("1Gi", "1024Mi"),
            ("1Ki", "1024"),
            ("1k", "1000"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("1.5", "1500m"),
            ("0.5Gi", "512Mi"),
            ("+1", "1.0"),
            ("1.", "1"),
            (".5", "500m"),
            ("100n", "0.1u"),
            ("1E", "1000P"),
            ("-0.5", "-500m"),
            ("2Ei", "2048Pi"),
        ] {
            assert_eq!(billionths(one), billionths(other), "{one} {other}");
            assert!(billionths(one).is_some());
        }
        for odd in [
            "",
            "-",
            ".",
            "Gi",
            "1Q",
            "1mm",
            "1e",
            "1ee3",
            "1.2.3",
            "1 ",
            "99999999999999999999999999999999999999999",
            "1e99",
            "1e-2147483648",
            "9e2147483647",
        ] {
            assert_eq!(billionths(odd), None, "{odd}");
        }
        let text = |it: &str, rounded| canonical_quantity(&json!(it), rounded);
        assert_eq!(text("0.0001", true), "1000000n");
        assert_eq!(text("-0.0001", true), "-1000000n");
        assert_eq!(text("0.0001", false), "100000n");
        assert_eq!(text("64Mi", true), "67108864");
        assert_eq!(text("lots", true), "lots");
        assert_eq!(canonical_quantity(&json!(2), true), "2");
        assert_eq!(canonical_quantity(&json!(0.5), true), "500000000n");
    }

    #[test]
    fn quantities_are_read_where_they_stand_and_only_there() {
        let size = |it: &str| volume(json!({"emptyDir": {"sizeLimit": it}}));
        same(size("1Gi"), size("1024Mi"));
        differ(size("1Gi"), size("1G"));
        let overhead = |it: &str| spec(json!({"overhead": {"cpu": it}}));
        same(overhead("250m"), overhead("0.25"));
        let gpus = |it: Value| container(json!({"resources": {"limits": {"nvidia.com/gpu": it}}}));
        same(gpus(json!(1)), gpus(json!("1")));
        let value = |it: &str| container(json!({"env": [{"name": "CPU", "value": it}]}));
        differ(value("1"), value("1000m"));
    }

    #[test]
    fn an_empty_selector_is_not_an_absent_one() {
        for selector in ["labelSelector", "namespaceSelector"] {
            let term = |fields: Value| {
                let mut term = json!({"topologyKey": "zone"});
                if !fields.is_null() {
                    term[selector] = fields;
                }
                spec(
                    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
                )
            };
            differ(term(json!({})), term(Value::Null));
            same(term(json!({})), term(json!({"matchLabels": {}, "matchExpressions": []})));
            differ(term(json!({})), term(json!({"matchLabels": {"a": ""}})));
        }
        let spread = |fields: Value| spec(json!({"topologySpreadConstraints": [fields]}));
        differ(spread(json!({"labelSelector": {}})), spread(json!({})));
    }

    #[test]
    fn a_required_term_without_expressions_still_requires() {
        let required = |terms: Value| {
            spec(json!({"affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}))
        };
        differ(required(json!([])), spec(json!({})));
        differ(required(json!([{}])), required(json!([])));
        same(required(json!([{}])), required(json!([{"matchExpressions": [], "matchFields": null}])));
    }

    #[test]
    fn what_a_user_can_see_makes_a_difference() {
        differ(container(json!({"image": "c:1"})), container(json!({"image": "c:2"})));
        differ(container(json!({"command": ["a", "b"]})), container(json!({"command": ["b", "a"]})));
        differ(container(json!({"args": [""]})), container(json!({})));
        differ(container(json!({"unheardOf": {}})), container(json!({})));
        differ(container(json!({"unheardOf": false})), container(json!({})));
        differ(spec(json!({"automountServiceAccountToken": false})), spec(json!({})));
        differ(
            spec(json!({"containers": [{"name": "a"}, {"name": "b"}]})),
            spec(json!({"containers": [{"name": "b"}, {"name": "a"}]})),
        );
        differ(json!({"metadata": {"labels": {"a": ""}}}), json!({"metadata": {"labels": {}}}));
        differ(json!({"metadata": {"annotations": {"a": "1"}}}), json!({}));
        differ(json!({"metadata": {"annotations": {"namespaces": "", "path": ""}}}), json!({}));
        differ(volume(json!({"emptyDir": {"medium": "Memory"}})), volume(json!({})));
        differ(volume(json!({"hostPath": {"path": "/a"}})), volume(json!({})));
        differ(container(json!({"securityContext": {"runAsNonRoot": false}})), container(json!({})));
        differ(container(json!({"livenessProbe": {}})), container(json!({})));
    }

    #[test]
    fn an_empty_value_of_a_variable_is_none() {
        same(
            container(json!({"env": [{"name": "A", "value": ""}]})),
            container(json!({"env": [{"name": "A"}]})),
        );
    }

    #[test]
    fn odd_input_has_a_meaning_too() {
        for odd in [
            json!(null),
            json!(7),
            json!("x"),
            json!([null]),
            json!({"spec": [{"containers": 1}]}),
            json!({"spec": {"containers": {}, "volumes": [7, null], "serviceAccount": 5}}),
        ] {
            let _ = of_template(&odd);
            let _ = of_revision(&odd);
        }
    }

    #[test]
    fn fnv() {
        assert_eq!(fnv1a_128(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    /// Fields of a served template, any of which may be missing.
    fn some_of(value: Value) -> impl Strategy<Value = Value> {
        let fields: Vec<(String, Value)> = value.as_object().unwrap().clone().into_iter().collect();
        let most = fields.len();
        prop::sample::subsequence(fields, 0..=most).prop_map(|it| it.into_iter().collect())
    }

    proptest! {
        #[test]
        fn what_is_normal_stays_as_it_is(
            spec in some_of(served()["spec"].clone()),
            container in some_of(served()["spec"]["containers"][0].clone()),
        ) {
            let mut template = json!({"spec": spec});
            template["spec"]["containers"] = json!([container]);
            let once = normal(&template);
            prop_assert_eq!(normal(&once), once);
        }

        #[test]
        fn any_subset_of_the_defaults_means_the_same(
            spec in some_of(json!({
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30, "securityContext": {}, "hostPID": false, "volumes": [],
                "serviceAccount": "web", "affinity": {"nodeAffinity": {}}, "priority": null,
            })),
            container in some_of(json!({
                "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "securityContext": {"procMount": "Default", "privileged": true},
                "tty": false, "command": [], "lifecycle": null,
            })),
        ) {
            let mut template = written();
            for (key, value) in spec.as_object().unwrap() {
                if key != "volumes" {
                    template["spec"][key] = value.clone();
                }
            }
            for (key, value) in container.as_object().unwrap() {
                template["spec"]["containers"][0][key] = value.clone();
            }
            prop_assert_eq!(of_template(&template), of_template(&written()));
        }

        #[test]
        fn no_quantity_makes_it_panic(text in "[+-]?[0-9.]{0,40}[a-zA-Z]{0,2}[+-]?[0-9]{0,12}") {
            let _ = canonical_quantity(&json!(text), true);
        }
    }
}
