//! What `kubectl get` shows of each kind, column by column. Upstream: `printers/internalversion`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{is_set, list, str_at};

#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// The OpenAPI type of the cells: kubectl aligns and sorts by it.
    pub(crate) cells: &'static str,
    /// Shown only with `-o wide`.
    pub(crate) wide: bool,
    pub(crate) cell: fn(&Value, Timestamp) -> Value,
}

const fn text(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, cells: "string", wide: false, cell }
}

const fn number(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, cells: "integer", wide: false, cell }
}

const fn wide(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, cells: "string", wide: true, cell }
}

const NAME: Column = text("Name", |it, _| it["metadata"]["name"].clone());
const AGE: Column = text("Age", |it, now| json!(age(&it["metadata"]["creationTimestamp"], now)));

pub(crate) const NAME_AND_AGE: &[Column] = &[NAME, AGE];

pub(crate) const NAMESPACE: &[Column] = &[NAME, text("Status", |it, _| it["status"]["phase"].clone()), AGE];

pub(crate) const NODE: &[Column] = &[
    NAME,
    text("Status", |it, _| json!(node_status(it))),
    text("Roles", |it, _| json!(node_roles(it))),
    AGE,
    text("Version", |it, _| it["status"]["nodeInfo"]["kubeletVersion"].clone()),
    wide("Internal-IP", |it, _| json!(node_address(it, "InternalIP"))),
    wide("External-IP", |it, _| json!(node_address(it, "ExternalIP"))),
    wide("OS-Image", |it, _| json!(or(str_at(it, "status.nodeInfo.osImage"), "<unknown>"))),
    wide("Kernel-Version", |it, _| json!(or(str_at(it, "status.nodeInfo.kernelVersion"), "<unknown>"))),
    wide("Container-Runtime", |it, _| {
        json!(or(str_at(it, "status.nodeInfo.containerRuntimeVersion"), "<unknown>"))
    }),
];

pub(crate) const POD: &[Column] = &[
    NAME,
    text("Ready", |it, _| {
        let ready = container_statuses(it).iter().filter(|it| it["ready"] == true).count();
        json!(format!("{ready}/{}", list(&it["spec"], "containers").len()))
    }),
    text("Status", |it, _| json!(pod_status(it))),
    text("Restarts", |it, _| {
        let restarts =
            container_statuses(it).iter().filter_map(|it| it["restartCount"].as_u64()).sum::<u64>();
        json!(restarts.to_string())
    }),
    AGE,
    wide("IP", |it, _| json!(or(str_at(it, "status.podIP"), "<none>"))),
    wide("Node", |it, _| json!(or(str_at(it, "spec.nodeName"), "<none>"))),
    wide("Nominated Node", |it, _| json!(or(str_at(it, "status.nominatedNodeName"), "<none>"))),
    wide("Readiness Gates", |it, _| {
        let gates = list(&it["spec"], "readinessGates");
        let is_true = |kind: &Value| {
            list(&it["status"], "conditions").iter().any(|it| it["type"] == *kind && it["status"] == "True")
        };
        let passed = gates.iter().filter(|it| is_true(&it["conditionType"])).count();
        json!(if gates.is_empty() { "<none>".to_owned() } else { format!("{passed}/{}", gates.len()) })
    }),
];

pub(crate) const CONFIG_MAP: &[Column] =
    &[NAME, text("Data", |it, _| json!((size(&it["data"]) + size(&it["binaryData"])).to_string())), AGE];

pub(crate) const SECRET: &[Column] = &[
    NAME,
    text("Type", |it, _| it["type"].clone()),
    text("Data", |it, _| json!(size(&it["data"]).to_string())),
    AGE,
];

pub(crate) const SERVICE_ACCOUNT: &[Column] =
    &[NAME, text("Secrets", |it, _| json!(list(it, "secrets").len().to_string())), AGE];

pub(crate) const EVENT: &[Column] = &[
    text("Last Seen", |it, now| {
        json!(age(first_set(it, &["lastTimestamp", "eventTime", "firstTimestamp"]), now))
    }),
    text("Type", |it, _| it["type"].clone()),
    text("Reason", |it, _| it["reason"].clone()),
    text("Object", |it, _| {
        let kind = str_at(it, "involvedObject.kind").to_lowercase();
        json!(format!("{kind}/{}", str_at(it, "involvedObject.name")))
    }),
    wide("Subobject", |it, _| json!(str_at(it, "involvedObject.fieldPath"))),
    wide("Source", |it, _| {
        let component = or(str_at(it, "source.component"), str_at(it, "reportingComponent"));
        let host = str_at(it, "source.host");
        json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
    }),
    text("Message", |it, _| json!(str_at(it, "message").trim())),
    wide("First Seen", |it, now| json!(age(first_set(it, &["firstTimestamp", "eventTime"]), now))),
    wide("Count", |it, _| json!(it["count"].as_u64().unwrap_or(1).to_string())),
    wide("Name", |it, _| it["metadata"]["name"].clone()),
];

pub(crate) const SERVICE: &[Column] = &[
    NAME,
    text("Type", |it, _| json!(or(str_at(it, "spec.type"), "ClusterIP"))),
    text("Cluster-IP", |it, _| json!(or(str_at(it, "spec.clusterIP"), "<none>"))),
    text("External-IP", |_, _| json!("<none>")),
    text("Port(s)", |it, _| {
        let port = |it: &Value| format!("{}/{}", it["port"], or(str_at(it, "protocol"), "TCP"));
        let ports: Vec<_> = list(&it["spec"], "ports").iter().map(port).collect();
        json!(or(&ports.join(","), "<none>"))
    }),
    AGE,
    wide("Selector", |it, _| json!(label_list(&it["spec"]["selector"]))),
];

pub(crate) const DAEMON_SET: &[Column] = &[
    NAME,
    number("Desired", |it, _| count(&it["status"]["desiredNumberScheduled"])),
    number("Current", |it, _| count(&it["status"]["currentNumberScheduled"])),
    number("Ready", |it, _| count(&it["status"]["numberReady"])),
    number("Up-to-date", |it, _| count(&it["status"]["updatedNumberScheduled"])),
    number("Available", |it, _| count(&it["status"]["numberAvailable"])),
    text("Node Selector", |it, _| json!(label_list(&it["spec"]["template"]["spec"]["nodeSelector"]))),
    AGE,
    wide("Containers", |it, _| json!(containers(it, "name"))),
    wide("Images", |it, _| json!(containers(it, "image"))),
    wide("Selector", |it, _| json!(selector(&it["spec"]["selector"]))),
];

pub(crate) const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    text("Controller", |it, _| {
        let owner = list(&it["metadata"], "ownerReferences").iter().find(|it| it["controller"] == true);
        json!(owner.map_or_else(|| "<none>".to_owned(), owner_name))
    }),
    text("Revision", |it, _| json!(it["revision"].to_string())),
    AGE,
];

pub(crate) const LEASE: &[Column] =
    &[NAME, text("Holder", |it, _| it["spec"]["holderIdentity"].clone()), AGE];

/// How long ago, as kubectl says it: at most two units, and the second only while it matters.
/// Upstream: `duration.HumanDuration`.
fn age(since: &Value, now: Timestamp) -> String {
    let Some(since) = since.as_str().and_then(|it| it.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let s = now.as_second() - since.as_second();
    let (m, h, d) = (s / 60, s / 3600, s / 86400);
    let two = |much: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{much}{unit}"),
        rest => format!("{much}{unit}{rest}{rest_unit}"),
    };
    match () {
        // A clock that is a little behind is no news.
        () if s < -1 => "<invalid>".to_owned(),
        () if s < 0 => "0s".to_owned(),
        () if s < 120 => format!("{s}s"),
        () if m < 10 => two(m, "m", s % 60, "s"),
        () if m < 180 => format!("{m}m"),
        () if h < 8 => two(h, "h", m % 60, "m"),
        () if h < 48 => format!("{h}h"),
        () if h < 24 * 8 => two(d, "d", h % 24, "h"),
        () if d < 365 * 2 => format!("{d}d"),
        () if d < 365 * 8 => two(d / 365, "y", d % 365, "d"),
        () => format!("{}y", d / 365),
    }
}

fn node_status(node: &Value) -> String {
    let ready = list(&node["status"], "conditions").iter().find(|it| it["type"] == "Ready");
    let mut status = match ready.map(|it| &it["status"]) {
        None => "Unknown",
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<_> = labels
        .filter_map(|(name, value)| match name.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if name == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|it| !it.is_empty())
        .collect();
    or(&roles.join(","), "<none>").to_owned()
}

fn node_address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let address = list(&node["status"], "addresses").iter().find(|it| it["type"] == kind);
    address.map_or("<none>", |it| str_at(it, "address"))
}

fn container_statuses(pod: &Value) -> &[Value] {
    list(&pod["status"], "containerStatuses")
}

/// The one word for a pod: the reason of the first thing that keeps it from running, else its phase.
fn pod_status(pod: &Value) -> String {
    if is_set(&pod["metadata"]["deletionTimestamp"]) {
        return if pod["status"]["reason"] == "NodeLost" { "Unknown" } else { "Terminating" }.to_owned();
    }
    let waiting_or_ended = container_statuses(pod).iter().rev().find_map(|it| {
        let (waiting, ended) = (&it["state"]["waiting"], &it["state"]["terminated"]);
        match (str_at(waiting, "reason"), str_at(ended, "reason")) {
            ("", "") if ended.is_object() => Some(format!("ExitCode:{}", ended["exitCode"])),
            ("", "") => None,
            ("", reason) | (reason, _) => Some(reason.to_owned()),
        }
    });
    waiting_or_ended
        .unwrap_or_else(|| or(str_at(pod, "status.reason"), str_at(pod, "status.phase")).to_owned())
}

fn containers(set: &Value, field: &str) -> String {
    let containers = list(&set["spec"]["template"]["spec"], "containers");
    containers.iter().map(|it| str_at(it, field)).collect::<Vec<_>>().join(",")
}

fn owner_name(owner: &Value) -> String {
    let group = str_at(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = str_at(owner, "kind").to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    format!("{kind}/{}", str_at(owner, "name"))
}

fn selector(selector: &Value) -> String {
    let labels = label_list(&selector["matchLabels"]);
    let expressions = list(selector, "matchExpressions").iter().map(|it| {
        let values: Vec<_> = list(it, "values").iter().filter_map(Value::as_str).collect();
        let (key, values) = (str_at(it, "key"), values.join(","));
        match str_at(it, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    let all: Vec<_> = [labels].into_iter().filter(|it| it != "<none>").chain(expressions).collect();
    or(&all.join(","), "<none>").to_owned()
}

fn label_list(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let labels: Vec<_> = labels.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    or(&labels.join(","), "<none>").to_owned()
}

fn first_set<'a>(object: &'a Value, names: &[&str]) -> &'a Value {
    names.iter().map(|it| &object[it]).find(|it| is_set(it)).unwrap_or(&Value::Null)
}

fn count(value: &Value) -> Value {
    json!(value.as_u64().unwrap_or(0))
}

fn size(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_said_as_kubectl_says_them() {
        let now = "2026-01-10T00:00:00Z".parse::<Timestamp>().unwrap();
        let ago = |s: i64| age(&json!(Timestamp::from_second(now.as_second() - s).unwrap().to_string()), now);
        let said =
            [-1, 0, 119, 120, 599, 600, 10_799, 10_800, 28_801, 172_800, 700_000, 86_400 * 800].map(ago);
        let kubectl = ["0s", "0s", "119s", "2m", "9m59s", "10m", "179m", "3h", "8h", "2d", "8d", "2y70d"]
            .map(str::to_owned);
        assert_eq!(said, kubectl);
        assert_eq!(age(&Value::Null, now), "<unknown>");
    }

    #[test]
    fn a_pods_status_is_what_keeps_it_from_running() {
        let check = |pod: Value, word: &str| assert_eq!(pod_status(&pod), word);
        check(
            json!({"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}}),
            "Running",
        );
        let waiting = json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}});
        check(json!({"status": {"phase": "Pending", "containerStatuses": [waiting]}}), "ImagePullBackOff");
        let ended = json!({"state": {"terminated": {"exitCode": 3}}});
        check(json!({"status": {"phase": "Failed", "containerStatuses": [ended]}}), "ExitCode:3");
        check(json!({"status": {"phase": "Failed", "reason": "Evicted"}}), "Evicted");
        check(json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}), "Terminating");
    }
}
