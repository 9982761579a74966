//! Discovery: the versions, API groups and resources that the server serves.
//!
//! Clients before version 1.26 request the groups one by one. Later clients use aggregated discovery: `v2beta1` from
//! 1.26 on, `v2` from 1.30 on.

/// Discovery and OpenAPI documents that are built when the served kinds change and served with an ETag.
mod document;

use std::sync::Arc;

use muster_api::well_known::JSON_MEDIA_TYPE;
use serde_json::{Value, json};

pub(crate) use self::document::{ApiDocument, DocumentCache};
use crate::health;
use crate::kinds::{Kind, ServedKinds, group_version};

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
pub(crate) fn root_paths(kinds: &ServedKinds) -> Value {
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
    paths.extend(non_core_groups(kinds).iter().map(|it| format!("/apis/{it}")));
    paths.extend(kinds.group_versions().into_iter().map(|(group, version)| match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }));
    paths.sort();
    json!({ "paths": paths })
}

/// The documents of `/api` or `/apis`.
#[derive(Debug)]
struct DiscoveryDocuments {
    /// The list of the versions or groups, for clients without aggregated discovery.
    unaggregated: ApiDocument,
    /// The aggregated discovery documents in version `v2` and `v2beta1`.
    aggregated: [ApiDocument; 2],
}

/// Returns the discovery document of the core group (`/api`). `accept` is the Accept header of the request.
pub(crate) fn core_discovery(kinds: &Arc<ServedKinds>, accept: &str) -> ApiDocument {
    static DOCUMENTS: DocumentCache<DiscoveryDocuments> = DocumentCache::new();
    let documents = DOCUMENTS.get(kinds, |kinds| {
        let versions: Vec<_> = versions_of_group(kinds, "").collect();
        let list = json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []});
        DiscoveryDocuments {
            unaggregated: ApiDocument::new(JSON_MEDIA_TYPE, list.to_string()),
            aggregated: aggregated_discovery(kinds, &[""]),
        }
    });
    documents.negotiate(accept).clone()
}

/// Returns the discovery document of all groups except the core group (`/apis`). `accept` is the Accept header of the
/// request.
pub(crate) fn groups_discovery(kinds: &Arc<ServedKinds>, accept: &str) -> ApiDocument {
    static DOCUMENTS: DocumentCache<DiscoveryDocuments> = DocumentCache::new();
    let documents = DOCUMENTS.get(kinds, |kinds| {
        let names = non_core_groups(kinds);
        let groups: Vec<_> = names.iter().filter_map(|it| api_group(kinds, it)).collect();
        let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
        DiscoveryDocuments {
            unaggregated: ApiDocument::new(JSON_MEDIA_TYPE, list.to_string()),
            aggregated: aggregated_discovery(kinds, &names),
        }
    });
    documents.negotiate(accept).clone()
}

/// Returns the `APIGroup` at `/apis/GROUP`, or `None` if the server does not serve the group or it is the core group.
pub(crate) fn api_group(kinds: &ServedKinds, name: &str) -> Option<Value> {
    let versions: Vec<Value> = versions_of_group(kinds, name)
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
pub(crate) fn api_resource_list(kinds: &ServedKinds, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds_of_group_version(kinds, group, version) {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs,
        });
        set_short_names_and_categories(&mut resource, kind);
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

impl DiscoveryDocuments {
    /// Returns the document for the first media type in `accept` that the server supports, or the unaggregated document
    /// if there is none.
    fn negotiate(&self, accept: &str) -> &ApiDocument {
        let document_for = |it: &str| {
            let mut parameters = it.split(';').map(str::trim);
            let is_json = matches!(parameters.next(), Some(JSON_MEDIA_TYPE | "*/*"));
            let parameters: Vec<&str> = parameters.collect();
            let is_aggregated = parameters.contains(&"g=apidiscovery.k8s.io")
                && parameters.contains(&"as=APIGroupDiscoveryList");
            match (is_json, is_aggregated) {
                (true, true) if parameters.contains(&"v=v2") => Some(&self.aggregated[0]),
                (true, true) if parameters.contains(&"v=v2beta1") => Some(&self.aggregated[1]),
                (true, false) => Some(&self.unaggregated),
                _ => None,
            }
        };
        accept.split(',').find_map(|it| document_for(it.trim())).unwrap_or(&self.unaggregated)
    }
}

/// Returns the aggregated discovery documents of the groups in version `v2` and `v2beta1`. They contain the versions,
/// resources and subresources of each group.
fn aggregated_discovery(kinds: &ServedKinds, groups: &[&str]) -> [ApiDocument; 2] {
    let versions = [
        ("v2", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
        ("v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
    ];
    versions.map(|(version, media_type)| {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": groups.iter().map(|it| group_discovery(kinds, it)).collect::<Vec<_>>(),
        });
        ApiDocument::new(media_type, list.to_string())
    })
}

/// Returns the `APIGroupDiscovery` of a group for the aggregated discovery documents.
fn group_discovery(kinds: &ServedKinds, group: &str) -> Value {
    let versions = versions_of_group(kinds, group).map(|version| {
        let resources: Vec<_> =
            kinds_of_group_version(kinds, group, version).into_iter().map(resource_discovery).collect();
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
    set_short_names_and_categories(&mut resource, kind);
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

/// Sets the fields `shortNames` and `categories` of a resource. Each is omitted if it is empty.
fn set_short_names_and_categories(resource: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
}

/// The description of a subresource in discovery documents. `group`, `version` and `kind` describe the request and
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

/// Returns the names of all API groups except the core group, in the order of the served kinds. If two groups serve a
/// resource, clients use the first group.
fn non_core_groups(kinds: &ServedKinds) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for (group, _) in kinds.group_versions() {
        if !group.is_empty() && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// Returns the versions of a group, the preferred version first.
fn versions_of_group(kinds: &ServedKinds, group: &str) -> impl Iterator<Item = &'static str> {
    kinds.group_versions().into_iter().filter(move |(it, _)| *it == group).map(|(_, version)| version)
}

/// Returns the kinds of a group and version, sorted by plural name.
fn kinds_of_group_version(kinds: &ServedKinds, group: &str, version: &str) -> Vec<&'static Kind> {
    let mut kinds: Vec<_> = kinds.all().filter(|it| (it.group, it.version) == (group, version)).collect();
    kinds.sort_by_key(|it| it.plural);
    kinds
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::kinds::KindRegistry;

    #[test]
    fn a_group_with_its_resources() {
        let kinds = KindRegistry::builtin().served();
        let resources = api_resource_list(&kinds, "apps", "v1").expect("a known group");
        expect![[r#"
            {"apiVersion":"v1","groupVersion":"apps/v1","kind":"APIResourceList","resources":[{"kind":"ControllerRevision","name":"controllerrevisions","namespaced":true,"singularName":"controllerrevision","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"categories":["all"],"kind":"DaemonSet","name":"daemonsets","namespaced":true,"shortNames":["ds"],"singularName":"daemonset","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"kind":"DaemonSet","name":"daemonsets/status","namespaced":true,"singularName":"","verbs":["get","patch","update"]}]}
        "#]].assert_eq(&format!("{resources}\n"));
        expect![[r#"
            {"apiVersion":"v1","kind":"APIGroup","name":"apps","preferredVersion":{"groupVersion":"apps/v1","version":"v1"},"versions":[{"groupVersion":"apps/v1","version":"v1"}]}
        "#]].assert_eq(&format!("{}\n", api_group(&kinds, "apps").expect("a known group")));
        expect![[r#"
            {"metadata":{"name":"apps"},"versions":[{"freshness":"Current","resources":[{"resource":"controllerrevisions","responseKind":{"group":"","kind":"ControllerRevision","version":""},"scope":"Namespaced","singularResource":"controllerrevision","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"categories":["all"],"resource":"daemonsets","responseKind":{"group":"","kind":"DaemonSet","version":""},"scope":"Namespaced","shortNames":["ds"],"singularResource":"daemonset","subresources":[{"responseKind":{"group":"","kind":"DaemonSet","version":""},"subresource":"status","verbs":["get","patch","update"]}],"verbs":["create","delete","deletecollection","get","list","patch","update","watch"]}],"version":"v1"}]}
        "#]].assert_eq(&format!("{}\n", group_discovery(&kinds, "apps")));
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
        let kinds = KindRegistry::builtin().served();
        let lines = asked.map(|it| format!("{it:?}\n    {}\n", groups_discovery(&kinds, &it).media_type));
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
        let groups = non_core_groups(&KindRegistry::builtin().served());
        let at = |name: &str| groups.iter().position(|it| *it == name);
        assert!(at("extensions").is_none_or(|it| at("apps") < Some(it)), "{groups:?}");
    }
}
