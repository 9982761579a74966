//! The downward API: fields and resources of a pod as environment variables and files. Also expands references to
//! environment variables, such as `$(NAME)`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt;
use core::fmt::Write as _;

use muster_api::quantity::Quantity;
use muster_api::resources::{ResourceQuantities, is_huge_pages};
use serde_json::Value;

/// The error for a `fieldRef` or `resourceFieldRef` that cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownwardApiError {
    /// The `fieldPath` of a `fieldRef` does not name a field that can be referenced. Holds the path.
    Field(String),
    /// The `fieldPath` of a `fieldRef` has a subscript, such as `spec.nodeSelector['a']`, but only labels and
    /// annotations may have one. Holds the path.
    Subscript(String),
    /// The `resource` of a `resourceFieldRef` cannot be referenced. Holds the `resource`.
    Resource(String),
    /// The pod has no container with the `containerName` of a `resourceFieldRef`. Holds the name.
    Container(String),
}

impl fmt::Display for DownwardApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(path) => write!(f, "unsupported fieldPath: {path}"),
            Self::Subscript(path) => write!(f, "fieldPath {path:?} does not support subscript"),
            Self::Resource(name) => write!(f, "unsupported container resource : {name}"),
            Self::Container(name) => write!(f, "container {name} not found"),
        }
    }
}

impl core::error::Error for DownwardApiError {}

/// The current IP addresses of a pod and of its node. The `status` of the pod object may not have them yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PodAddresses<'a> {
    pub pod: &'a [String],
    pub node: &'a [String],
}

/// Returns the value of a `fieldRef` with this `fieldPath`. `pod` is the pod object in JSON, of which the status is not
/// read. The error says why the path cannot be referenced.
///
/// Rule: only these fields can be referenced: name, namespace, UID, labels and annotations of the pod, its node name,
/// its service account name, its addresses and the addresses of its node. A field that is not set is empty. Upstream:
/// `fieldpath.ExtractFieldPathAsString`, `podFieldSelectorRuntimeValue`.
pub fn field_value(pod: &Value, addresses: PodAddresses<'_>, path: &str) -> Result<String, DownwardApiError> {
    let first = |addresses: &[String]| addresses.first().cloned().unwrap_or_default();
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|it| it.split_once("['")) {
        let map = match map {
            "metadata.labels" => &pod["metadata"]["labels"],
            "metadata.annotations" => &pod["metadata"]["annotations"],
            _ => return Err(DownwardApiError::Subscript(path.into())),
        };
        return Ok(map[key].as_str().unwrap_or_default().to_string());
    }
    Ok(match path {
        "metadata.name" => text("/metadata/name"),
        "metadata.namespace" => text("/metadata/namespace"),
        "metadata.uid" => text("/metadata/uid"),
        "metadata.labels" => format_map(&pod["metadata"]["labels"]),
        "metadata.annotations" => format_map(&pod["metadata"]["annotations"]),
        "spec.nodeName" => text("/spec/nodeName"),
        "spec.serviceAccountName" => text("/spec/serviceAccountName"),
        "status.hostIP" => first(addresses.node),
        "status.hostIPs" => addresses.node.join(","),
        "status.podIP" => first(addresses.pod),
        "status.podIPs" => addresses.pod.join(","),
        _ => return Err(DownwardApiError::Field(path.into())),
    })
}

/// Returns the value of a `resourceFieldRef`. `resource` is, for example, `limits.cpu`. `allocatable` are the
/// allocatable resources of the node. A `divisor` that is empty, invalid or not positive counts as 1. The error says
/// why the resource cannot be referenced.
///
/// Rule: if the container has no limit, the pod-level limit counts. If the pod has none either, the allocatable amount
/// of the node counts. A request that the container does not have is 0. The amount is divided by the divisor and
/// rounded up. Upstream: `ExtractResourceValueByContainerName`.
pub fn resource_value(
    pod: &Value,
    container: &str,
    resource: &str,
    divisor: &str,
    allocatable: &ResourceQuantities,
) -> Result<String, DownwardApiError> {
    let unsupported = || DownwardApiError::Resource(resource.into());
    let (side, name) = resource.split_once('.').ok_or_else(unsupported)?;
    let is_known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
    if !matches!(side, "limits" | "requests") || !is_known {
        return Err(unsupported());
    }
    let spec = &pod["spec"];
    let all = ["containers", "initContainers", "ephemeralContainers"].into_iter();
    let found = all.filter_map(|kind| spec[kind].as_array()).flatten().find(|it| it["name"] == container);
    let found = found.ok_or_else(|| DownwardApiError::Container(container.into()))?;

    let own = |of: &Value| Some(Quantity::from_json(of["resources"][side].get(name)?));
    let inherited = || own(spec).or_else(|| allocatable.get(name).copied());
    let amount = own(found).or_else(|| if side == "limits" { inherited() } else { None });
    let amount = amount.unwrap_or(Quantity::ZERO);

    let divisor = Quantity::parse(divisor).ok().filter(|it| !it.is_zero() && !it.is_negative());
    let divisor = divisor.unwrap_or(Quantity::from_units(1));
    let (amount, divisor) =
        if name == "cpu" { (amount.millis(), divisor.millis()) } else { (amount.units(), divisor.units()) };
    Ok((amount.max(0) as u128).div_ceil(divisor.max(1) as u128).to_string())
}

/// Formats a map as lines `key="value"`, sorted by key. Values are quoted by [`push_quoted`].
fn format_map(map: &Value) -> String {
    let sorted: BTreeMap<&String, &Value> = map.as_object().into_iter().flatten().collect();
    let mut text = String::new();
    for (key, value) in sorted {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(key);
        text.push('=');
        push_quoted(&mut text, value.as_str().unwrap_or_default());
    }
    text
}

/// Appends `value` to `text` in double quotes, with the escapes of Go's `%q`. Outside of ASCII, only control characters
/// and white space are escaped.
fn push_quoted(text: &mut String, value: &str) {
    text.push('"');
    for char in value.chars() {
        match char {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{b}' => text.push_str("\\v"),
            ' '..='~' => text.push(char),
            // Control characters and non-ASCII spaces are escaped.
            _ if char.is_control() || char.is_whitespace() => {
                let number = u32::from(char);
                let written = match number {
                    0..0x80 => write!(text, "\\x{number:02x}"),
                    0x80..0x1_0000 => write!(text, "\\u{number:04x}"),
                    _ => write!(text, "\\U{number:08x}"),
                };
                debug_assert!(written.is_ok(), "text grows");
            }
            _ => text.push(char),
        }
    }
    text.push('"');
}

/// Replaces each `$(NAME)` in `text` by the value of the variable `NAME`, and each `$$` by `$`. `value_of` returns the
/// value of a variable, or `None` if the variable is unknown.
///
/// A reference to an unknown variable stays as it is, and `unknown` is called with the name of the variable. Upstream:
/// `expansion.Expand`.
pub fn expand_variables(
    text: &str,
    value_of: impl Fn(&str) -> Option<String>,
    unknown: &mut dyn FnMut(&str),
) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.chars().next() {
            Some('$') => {
                expanded.push('$');
                rest = &rest[1..];
            }
            Some('(') => match rest[1..].find(')') {
                Some(end) => {
                    let name = &rest[1..=end];
                    expanded.push_str(&value_of(name).unwrap_or_else(|| {
                        unknown(name);
                        format!("$({name})")
                    }));
                    rest = &rest[end + 2..];
                }
                None => expanded.push('$'),
            },
            _ => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields() {
        let pod = json!({
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u",
                "labels": {"b": "2", "a": "1"}, "annotations": {"note": "two\nlines \"quoted\" \u{1}é\u{a0}"}},
            "spec": {"nodeName": "n1"},
            "status": {"podIP": "192.0.2.1"},
        });
        let addresses = ["10.0.0.1", "fd00::1"].map(String::from);
        let addresses = PodAddresses { pod: &addresses, node: &["10.0.0.9".into()] };
        let paths = [
            "metadata.name",
            "metadata.labels",
            "metadata.labels['a']",
            "metadata.labels['none']",
            "metadata.annotations",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.podIP",
            "status.podIPs",
            "status.hostIP",
            "status.hostIPs",
            "spec.containers",
            "spec.nodeSelector['x']",
        ];
        let report: Vec<String> = paths
            .into_iter()
            .map(|path| match field_value(&pod, addresses, path) {
                Ok(text) => format!("{path}: {text}"),
                Err(why) => format!("{path}! {why}"),
            })
            .collect();
        expect![[r#"
            metadata.name: web-1
            metadata.labels: a="1"
            b="2"
            metadata.labels['a']: 1
            metadata.labels['none']: 
            metadata.annotations: note="two\nlines \"quoted\" \x01é\u00a0"
            spec.nodeName: n1
            spec.serviceAccountName: 
            status.podIP: 10.0.0.1
            status.podIPs: 10.0.0.1,fd00::1
            status.hostIP: 10.0.0.9
            status.hostIPs: 10.0.0.9
            spec.containers! unsupported fieldPath: spec.containers
            spec.nodeSelector['x']! fieldPath "spec.nodeSelector['x']" does not support subscript"#]]
        .assert_eq(&report.join("\n"));
    }

    #[test]
    fn amounts() {
        let pod = json!({"spec": {
            "containers": [{"name": "a", "resources":
                {"requests": {"cpu": "150m"}, "limits": {"memory": "100Mi", "hugepages-2Mi": "4Mi"}}}],
            "initContainers": [{"name": "i"}],
        }});
        let node: ResourceQuantities =
            [("cpu".into(), Quantity::from_units(2)), ("memory".into(), Quantity::from_units(1 << 30))]
                .into();
        let references = [
            ("a", "requests.cpu", ""),
            ("a", "requests.cpu", "1m"),
            ("a", "limits.cpu", "0"),
            ("a", "limits.memory", "1Mi"),
            ("a", "limits.memory", "3M"),
            ("a", "requests.memory", ""),
            ("a", "limits.hugepages-2Mi", ""),
            ("i", "limits.memory", "1Gi"),
            ("i", "limits.nvidia.com/gpu", ""),
            ("i", "cpu", ""),
            ("z", "limits.cpu", ""),
        ];
        let report: Vec<String> = references
            .into_iter()
            .map(|(container, name, divisor)| match resource_value(&pod, container, name, divisor, &node) {
                Ok(text) => format!("{container} {name} by {divisor}: {text}"),
                Err(why) => format!("{container} {name}! {why}"),
            })
            .collect();
        expect![[r#"
            a requests.cpu by : 1
            a requests.cpu by 1m: 150
            a limits.cpu by 0: 2
            a limits.memory by 1Mi: 100
            a limits.memory by 3M: 35
            a requests.memory by : 0
            a limits.hugepages-2Mi by : 4194304
            i limits.memory by 1Gi: 1
            i limits.nvidia.com/gpu! unsupported container resource : limits.nvidia.com/gpu
            i cpu! unsupported container resource : cpu
            z limits.cpu! container z not found"#]]
        .assert_eq(&report.join("\n"));
    }

    #[test]
    fn expansion() {
        let value_of = |name: &str| (name == "A").then(|| "1".to_string());
        let mut report = Vec::new();
        for text in ["$(A)", "x$(A)y$(A)", "$$(A)", "$(B)", "$(A", "$A", "$", "$$", "é$(A)$", "$()", "$$$(A)"]
        {
            let mut unknown = Vec::new();
            let expanded = expand_variables(text, value_of, &mut |name| unknown.push(name.to_string()));
            report.push(format!("{text} -> {expanded} {unknown:?}"));
        }
        expect![[r#"
            $(A) -> 1 []
            x$(A)y$(A) -> x1y1 []
            $$(A) -> $(A) []
            $(B) -> $(B) ["B"]
            $(A -> $(A []
            $A -> $A []
            $ -> $ []
            $$ -> $ []
            é$(A)$ -> é1$ []
            $() -> $() [""]
            $$$(A) -> $1 []"#]]
        .assert_eq(&report.join("\n"));
    }
}
