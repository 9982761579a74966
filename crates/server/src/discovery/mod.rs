//! Discovery: the versions, API groups and resources that the server serves.
//!
//! Clients before version 1.26 request the groups one by one. Later clients use aggregated discovery: `v2beta1` from
//! 1.26 on, `v2` from 1.30 on.

/// Discovery and OpenAPI documents that are built once and served with an ETag.
mod document;

use std::sync::LazyLock;

use serde_json::{Value, json};

pub(crate) use self::document::StaticDocument;
use crate::decode::JSON_MEDIA_TYPE;
use crate::health;
use crate::kinds::{Kind, group_version, group_versions, served_kinds};

/// Minor version of the Kubernetes API that the server serves.
pub(crate) const KUBERNETES_MINOR: &str = "36";

/// Returns the response to `GET /version`.
pub(crate) fn version_info() -> Value {
    json!({
        "major": "1",
        "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v1.{KUBERNETES_MINOR}.0+muster-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Returns the response to `GET /`: a list of paths of the server. Paths of resources and some other paths are left
/// out.
pub(crate) fn root_paths() -> Value {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.extend(health::health_paths());
    paths.extend(non_core_groups().iter().map(|it| format!("/apis/{it}")));
    paths.extend(group_versions().into_iter().map(|(group, version)| match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }));
    paths.sort();
    json!({ "paths": paths })
}

/// Returns the discovery document of the core group (`/api`). `accept` is the Accept header of the request.
pub(crate) fn core_discovery(accept: &str) -> &'static StaticDocument {
    /// The list of the versions of the core group, for clients without aggregated discovery.
    static UNAGGREGATED_DOCUMENT: LazyLock<StaticDocument> = LazyLock::new(|| {
        let versions = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []});
        StaticDocument::new(JSON_MEDIA_TYPE, versions.to_string())
    });
    /// The aggregated discovery documents of the core group, in version `v2` and `v2beta1`.
    static AGGREGATED_DOCUMENTS: LazyLock<[StaticDocument; 2]> =
        LazyLock::new(|| aggregated_discovery(&[""]));
    negotiate_document(accept, &UNAGGREGATED_DOCUMENT, &AGGREGATED_DOCUMENTS)
}

/// Returns the discovery document of all groups except the core group (`/apis`). `accept` is the Accept header of the
/// request.
pub(crate) fn groups_discovery(accept: &str) -> &'static StaticDocument {
    /// The list of all groups except the core group, for clients without aggregated discovery.
    static UNAGGREGATED_DOCUMENT: LazyLock<StaticDocument> = LazyLock::new(|| {
        let groups: Vec<_> = non_core_groups().into_iter().filter_map(api_group).collect();
        let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
        StaticDocument::new(JSON_MEDIA_TYPE, list.to_string())
    });
    /// The aggregated discovery documents of all groups except the core group, in version `v2` and `v2beta1`.
    static AGGREGATED_DOCUMENTS: LazyLock<[StaticDocument; 2]> =
        LazyLock::new(|| aggregated_discovery(&non_core_groups()));
    negotiate_document(accept, &UNAGGREGATED_DOCUMENT, &AGGREGATED_DOCUMENTS)
}

/// Returns the `APIGroup` at `/apis/GROUP`, or `None` if the server does not serve the group or it is the core group.
pub(crate) fn api_group(name: &str) -> Option<Value> {
    let versions: Vec<Value> = versions_of_group(name)
        .map(|version| json!({"groupVersion": group_version(name, version), "version": version}))
        .collect();
    let preferred = versions.first().filter(|_| !name.is_empty())?.clone();
    Some(json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": preferred,
    }))
}

/// Returns the `APIResourceList` of a group and version, or `None` if the server does not serve them.
pub(crate) fn api_resource_list(group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds_of_group_version(group, version) {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs,
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        for subresource in subresources_of(kind) {
            let mut resource = json!({
                "name": format!("{}/{}", kind.plural, subresource.name),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": subresource.kind,
                "verbs": subresource.verbs,
            });
            // `group` and `version` are only set if they differ from those of the list.
            if (subresource.group, subresource.version) != (group, version) {
                resource["group"] = subresource.group.into();
                resource["version"] = subresource.version.into();
            }
            resources.push(resource);
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

/// Returns the document for the first media type in `accept` that the server supports, or `unaggregated` if there is
/// none. `aggregated` has the documents in version `v2` and `v2beta1`.
fn negotiate_document(
    accept: &str,
    unaggregated: &'static StaticDocument,
    aggregated: &'static [StaticDocument; 2],
) -> &'static StaticDocument {
    let document_for = |it: &str| {
        let mut parameters = it.split(';').map(str::trim);
        let is_json = matches!(parameters.next(), Some(JSON_MEDIA_TYPE | "*/*"));
        let parameters: Vec<&str> = parameters.collect();
        let is_aggregated =
            parameters.contains(&"g=apidiscovery.k8s.io") && parameters.contains(&"as=APIGroupDiscoveryList");
        match (is_json, is_aggregated) {
            (true, true) if parameters.contains(&"v=v2") => Some(&aggregated[0]),
            (true, true) if parameters.contains(&"v=v2beta1") => Some(&aggregated[1]),
            (true, false) => Some(unaggregated),
            _ => None,
        }
    };
    accept.split(',').find_map(|it| document_for(it.trim())).unwrap_or(unaggregated)
}

/// Returns the aggregated discovery documents of the groups in version `v2` and `v2beta1`. They contain the versions,
/// resources and subresources of each group.
fn aggregated_discovery(groups: &[&str]) -> [StaticDocument; 2] {
    let versions = [
        ("v2", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
        ("v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
    ];
    versions.map(|(version, media_type)| {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": groups.iter().map(|it| group_discovery(it)).collect::<Vec<_>>(),
        });
        StaticDocument::new(media_type, list.to_string())
    })
}

/// Returns the `APIGroupDiscovery` of a group for the aggregated discovery documents.
fn group_discovery(group: &str) -> Value {
    let versions = versions_of_group(group).map(|version| {
        let resources: Vec<_> =
            kinds_of_group_version(group, version).into_iter().map(resource_discovery).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    });
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
}

/// Returns the `APIResourceDiscovery` of a kind for the aggregated discovery documents.
fn resource_discovery(kind: &Kind) -> Value {
    // `group` and `version` are empty if they are the resource's own.
    let kind_of = |group: &str, version: &str, name: &str| {
        let is_own = (group, version) == (kind.group, kind.version);
        let (group, version) = if is_own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": name})
    };
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": kind_of(kind.group, kind.version, kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular(),
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    let parts = subresources_of(kind).into_iter().map(|it| {
        json!({
            "subresource": it.name,
            "responseKind": kind_of(it.group, it.version, it.kind),
            "verbs": it.verbs,
        })
    });
    let parts: Vec<_> = parts.collect();
    if !parts.is_empty() {
        resource["subresources"] = parts.into();
    }
    resource
}

/// The description of a subresource in discovery documents. `group`, `version` and `kind` are those of its request and
/// response bodies.
struct DiscoveredSubresource {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

/// Returns the subresources of a kind, sorted by name.
fn subresources_of(kind: &Kind) -> Vec<DiscoveredSubresource> {
    let own = (kind.group, kind.version, kind.kind);
    let subresource =
        |name, (group, version, kind), verbs| DiscoveredSubresource { name, group, version, kind, verbs };
    let mut parts: Vec<DiscoveredSubresource> =
        kind.subresources.iter().map(|it| subresource(it.name, it.body.unwrap_or(own), it.verbs)).collect();
    if kind.has_status_subresource() {
        parts.push(subresource("status", own, &["get", "patch", "update"]));
    }
    parts.sort_by_key(|it| it.name);
    parts
}

/// Returns the names of all API groups except the core group, in the order of the table of kinds. If two groups serve a
/// resource, clients use the first group.
fn non_core_groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = group_versions().into_iter().map(|(group, _)| group).collect();
    groups.dedup();
    groups.retain(|it| !it.is_empty());
    groups
}

/// Returns the versions of a group, the preferred version first.
fn versions_of_group(group: &str) -> impl Iterator<Item = &'static str> {
    group_versions().into_iter().filter(move |(it, _)| *it == group).map(|(_, version)| version)
}

/// Returns the kinds of a group and version, sorted by plural name.
fn kinds_of_group_version(group: &str, version: &str) -> Vec<&'static Kind> {
    let mut kinds: Vec<_> = served_kinds().filter(|it| (it.group, it.version) == (group, version)).collect();
    kinds.sort_by_key(|it| it.plural);
    kinds
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_group_with_its_resources() {
        let resources = api_resource_list("apps", "v1").expect("a known group");
        expect![[r#"
            {"apiVersion":"v1","groupVersion":"apps/v1","kind":"APIResourceList","resources":[{"kind":"ControllerRevision","name":"controllerrevisions","namespaced":true,"singularName":"controllerrevision","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"categories":["all"],"kind":"DaemonSet","name":"daemonsets","namespaced":true,"shortNames":["ds"],"singularName":"daemonset","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"kind":"DaemonSet","name":"daemonsets/status","namespaced":true,"singularName":"","verbs":["get","patch","update"]}]}
        "#]].assert_eq(&format!("{resources}\n"));
        expect![[r#"
            {"apiVersion":"v1","kind":"APIGroup","name":"apps","preferredVersion":{"groupVersion":"apps/v1","version":"v1"},"versions":[{"groupVersion":"apps/v1","version":"v1"}]}
        "#]].assert_eq(&format!("{}\n", api_group("apps").expect("a known group")));
        expect![[r#"
            {"metadata":{"name":"apps"},"versions":[{"freshness":"Current","resources":[{"resource":"controllerrevisions","responseKind":{"group":"","kind":"ControllerRevision","version":""},"scope":"Namespaced","singularResource":"controllerrevision","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"categories":["all"],"resource":"daemonsets","responseKind":{"group":"","kind":"DaemonSet","version":""},"scope":"Namespaced","shortNames":["ds"],"singularResource":"daemonset","subresources":[{"responseKind":{"group":"","kind":"DaemonSet","version":""},"subresource":"status","verbs":["get","patch","update"]}],"verbs":["create","delete","deletecollection","get","list","patch","update","watch"]}],"version":"v1"}]}
        "#]].assert_eq(&format!("{}\n", group_discovery("apps")));
    }

    #[test]
    fn a_client_gets_the_newest_answer_that_it_reads() {
        let aggregated = |version: &str| {
            format!("{JSON_MEDIA_TYPE};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
        };
        let asked = [
            String::new(),
            "*/*".to_owned(),
            "application/json, */*".to_owned(),
            format!("{},{},{JSON_MEDIA_TYPE}", aggregated("v2"), aggregated("v2beta1")),
            format!("{},{JSON_MEDIA_TYPE}", aggregated("v2beta1")),
            format!("{},{JSON_MEDIA_TYPE}", aggregated("v9")),
            "application/vnd.kubernetes.protobuf".to_owned(),
        ];
        let lines = asked.map(|it| format!("{it:?}\n    {}\n", groups_discovery(&it).media_type));
        expect![[r#"
            ""
                application/json
            "*/*"
                application/json
            "application/json, */*"
                application/json
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
                application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
                application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList
            "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"
                application/json
            "application/vnd.kubernetes.protobuf"
                application/json
        "#]].assert_eq(&lines.concat());
    }

    /// Of two groups that have DaemonSets, `kubectl get ds` takes the first.
    #[test]
    fn apps_is_listed_before_extensions() {
        let groups = non_core_groups();
        let at = |name: &str| groups.iter().position(|it| *it == name);
        assert!(at("extensions").is_none_or(|it| at("apps") < Some(it)), "{groups:?}");
    }
}
