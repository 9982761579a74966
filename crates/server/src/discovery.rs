//! What the server can do, as clients ask before they do anything: versions, groups, resources.

use serde_json::{Value, json};

use crate::kinds::{KINDS, group_version, group_versions};

/// The version of Kubernetes whose API this is.
pub(crate) const MINOR: &str = "33";

pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": format!("v1.{MINOR}.0+muster-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(crate) fn groups() -> Value {
    let named = group_versions().into_iter().filter(|(group, _)| !group.is_empty());
    let groups: Vec<_> = named.filter_map(|(group, _)| self::group(group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn group(name: &str) -> Option<Value> {
    let (group, version) =
        group_versions().into_iter().find(|(group, _)| *group == name && !name.is_empty())?;
    let version = json!({"groupVersion": group_version(group, version), "version": version});
    Some(json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": [version],
        "preferredVersion": version,
    }))
}

pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in KINDS.iter().filter(|it| it.group == group && it.version == version) {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs,
        });
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        let mut part = |name: &str, of: &str, verbs: &[&str]| {
            resources.push(json!({
                "name": format!("{}/{name}", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": of,
                "verbs": verbs,
            }));
        };
        if kind.has_status_subresource() {
            part("status", kind.kind, &["get", "patch", "update"]);
        }
        for it in kind.parts {
            part(it.name, it.body.map_or(kind.kind, |(_, _, kind)| kind), it.verbs);
        }
    }
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version(group, version),
            "resources": resources,
        })
    })
}
