//! The ClusterRoles and ClusterRoleBindings that every cluster has: upstream's, for the kinds that this server serves,
//! and Muster's own. Upstream: `bootstrappolicy`.

use std::collections::BTreeMap;

use muster_api::muster_v1alpha1::GROUP;
use muster_api::well_known::{
    API_GROUP_AUTHENTICATION, API_GROUP_CERTIFICATES, API_GROUP_RBAC, USER_GROUP_MASTERS, USER_GROUP_NODES,
};
use serde_json::{Value, json};

use crate::kinds::ServedKinds;
use crate::request::{
    DAEMONSET_CONTROLLER_USER, DISRUPTION_USER, ENDPOINTS_USER, GARBAGE_COLLECTOR_USER, NODE_LIFECYCLE_USER,
    ROLLOUT_POLICY_USER, SCHEDULER_USER, SIMULATED_NODES_USER,
};

/// Group of nodes that authenticate with a bootstrap token, before they have a certificate.
pub(crate) const BOOTSTRAPPERS_GROUP: &str = "system:bootstrappers";

/// API group of the access reviews, such as SubjectAccessReview.
const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";
/// API group of Lease.
const COORDINATION_GROUP: &str = "coordination.k8s.io";
/// Placeholder for the core API group in the arguments of [`resource_rule`]. The real name of the group is empty.
const CORE_GROUP: &str = "core";
/// The two API groups that serve events, separated by a space.
const EVENT_GROUPS: &str = "core events.k8s.io";
/// API group of PodDisruptionBudget.
const POLICY_GROUP: &str = "policy";
/// API group of NodeMetrics and PodMetrics.
const METRICS_GROUP: &str = "metrics.k8s.io";
/// API group of EndpointSlice.
const DISCOVERY_GROUP: &str = "discovery.k8s.io";
/// The two API groups that serve DaemonSets, separated by a space.
const DAEMONSET_GROUPS: &str = "apps extensions";

/// Verbs that read, separated by spaces.
const READ_VERBS: &str = "get list watch";
/// Verbs that write, separated by spaces.
const WRITE_VERBS: &str = "create delete deletecollection patch update";
/// The verbs of `READ_VERBS` and `WRITE_VERBS`, separated by spaces.
const READ_WRITE_VERBS: &str = "get list watch create delete deletecollection patch update";

/// Annotation of default roles and bindings. Unless its value is `false`, the server reconciles the role or binding
/// with the default at each start.
pub(crate) const AUTO_UPDATE_ANNOTATION: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Returns the ClusterRoles that every cluster has.
pub(crate) fn default_cluster_roles(kinds: &ServedKinds) -> Vec<Value> {
    let mut roles = vec![
        cluster_role("cluster-admin", [resource_rule("*", "*", "*"), url_rule("*", "*")]),
        cluster_role(
            "system:discovery",
            [url_rule(
                "get",
                "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*",
            )],
        ),
        cluster_role(
            "system:monitoring",
            [
                url_rule(
                    "get",
                    "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*",
                ),
                resource_rule("get", CORE_GROUP, "nodes/metrics"),
            ],
        ),
        cluster_role(
            "system:basic-user",
            [
                resource_rule(
                    "create",
                    AUTHORIZATION_GROUP,
                    "selfsubjectaccessreviews selfsubjectrulesreviews",
                ),
                resource_rule("create", API_GROUP_AUTHENTICATION, "selfsubjectreviews"),
            ],
        ),
        cluster_role(
            "system:public-info-viewer",
            [url_rule("get", "/livez /readyz /healthz /version /version/")],
        ),
        aggregated_role("admin", None),
        aggregated_role("edit", Some("admin")),
        aggregated_role("view", Some("edit")),
        role_aggregated_to(
            "admin",
            [
                resource_rule("create", AUTHORIZATION_GROUP, "localsubjectaccessreviews"),
                resource_rule(READ_WRITE_VERBS, API_GROUP_RBAC, "roles rolebindings"),
            ],
        ),
        role_aggregated_to(
            "edit",
            [
                resource_rule(
                    READ_VERBS,
                    CORE_GROUP,
                    "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy",
                ),
                resource_rule("impersonate", CORE_GROUP, "serviceaccounts"),
                resource_rule(
                    WRITE_VERBS,
                    CORE_GROUP,
                    "pods pods/attach pods/proxy pods/exec pods/portforward",
                ),
                resource_rule("create", CORE_GROUP, "pods/eviction"),
                resource_rule(
                    WRITE_VERBS,
                    CORE_GROUP,
                    "serviceaccounts services services/proxy configmaps secrets",
                ),
                resource_rule("create", CORE_GROUP, "serviceaccounts/token"),
                resource_rule(WRITE_VERBS, EVENT_GROUPS, "events"),
                resource_rule(WRITE_VERBS, DAEMONSET_GROUPS, "daemonsets"),
                resource_rule(WRITE_VERBS, POLICY_GROUP, "poddisruptionbudgets"),
                resource_rule(READ_WRITE_VERBS, COORDINATION_GROUP, "leases"),
            ],
        ),
        role_aggregated_to(
            "view",
            [
                resource_rule(
                    READ_VERBS,
                    CORE_GROUP,
                    "pods serviceaccounts services services/status endpoints configmaps",
                ),
                resource_rule(
                    READ_VERBS,
                    CORE_GROUP,
                    "limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status pods/log",
                ),
                resource_rule(READ_VERBS, CORE_GROUP, "namespaces"),
                resource_rule(READ_VERBS, EVENT_GROUPS, "events"),
                resource_rule(READ_VERBS, DISCOVERY_GROUP, "endpointslices"),
                resource_rule(READ_VERBS, DAEMONSET_GROUPS, "daemonsets daemonsets/status"),
                resource_rule(READ_VERBS, "apps", "controllerrevisions"),
                resource_rule("get list", METRICS_GROUP, "nodes pods"),
                resource_rule(READ_VERBS, POLICY_GROUP, "poddisruptionbudgets poddisruptionbudgets/status"),
            ],
        ),
        cluster_role(
            "system:node-bootstrapper",
            [resource_rule("create get list watch", API_GROUP_CERTIFICATES, "certificatesigningrequests")],
        ),
        cluster_role(
            "system:auth-delegator",
            [
                resource_rule("create", API_GROUP_AUTHENTICATION, "tokenreviews"),
                resource_rule("create", AUTHORIZATION_GROUP, "subjectaccessreviews"),
            ],
        ),
        cluster_role(
            "system:service-account-issuer-discovery",
            [url_rule(
                "get",
                "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
            )],
        ),
        cluster_role(
            "system:kubelet-api-admin",
            [
                resource_rule(READ_VERBS, CORE_GROUP, "nodes"),
                resource_rule("proxy", CORE_GROUP, "nodes"),
                resource_rule(
                    "*",
                    CORE_GROUP,
                    "nodes/proxy nodes/metrics nodes/stats nodes/log nodes/pods nodes/healthz nodes/configz",
                ),
            ],
        ),
        cluster_role_from_json("system:node", node_rules()),
        cluster_role(
            "system:node-proxier",
            [
                resource_rule("list watch", CORE_GROUP, "services endpoints"),
                resource_rule(READ_VERBS, CORE_GROUP, "nodes"),
                resource_rule("create patch update", EVENT_GROUPS, "events"),
                resource_rule("list watch", DISCOVERY_GROUP, "endpointslices"),
            ],
        ),
        cluster_role(
            DAEMONSET_CONTROLLER_USER,
            [
                resource_rule(READ_VERBS, "apps", "daemonsets controllerrevisions"),
                resource_rule("update", "apps", "daemonsets/status daemonsets/finalizers"),
                resource_rule(READ_VERBS, CORE_GROUP, "nodes pods"),
                resource_rule("create delete patch", CORE_GROUP, "pods"),
                resource_rule("create", CORE_GROUP, "pods/eviction"),
                resource_rule("create delete patch", "apps", "controllerrevisions"),
                resource_rule("list watch", CORE_GROUP, "namespaces"),
                resource_rule("list watch", GROUP, "clusterrolloutpolicies daemonrollouts rolloutpolicies"),
                resource_rule("create", GROUP, "daemonrollouts"),
                resource_rule("update", GROUP, "daemonrollouts/status"),
                resource_rule("create patch update", EVENT_GROUPS, "events"),
            ],
        ),
        cluster_role(
            DISRUPTION_USER,
            [
                resource_rule(READ_VERBS, CORE_GROUP, "pods"),
                resource_rule("patch", CORE_GROUP, "pods/status"),
                resource_rule(READ_VERBS, POLICY_GROUP, "poddisruptionbudgets"),
                resource_rule("patch", POLICY_GROUP, "poddisruptionbudgets/status"),
                resource_rule("create patch update", EVENT_GROUPS, "events"),
            ],
        ),
        cluster_role(
            ENDPOINTS_USER,
            [
                resource_rule(READ_VERBS, CORE_GROUP, "nodes pods services"),
                // Owner references with blockOwnerDeletion require permission to update the owner's finalizers.
                resource_rule("update", CORE_GROUP, "services/finalizers endpoints/finalizers"),
                resource_rule("create delete get list patch watch", CORE_GROUP, "endpoints"),
                resource_rule("create delete get list patch watch", DISCOVERY_GROUP, "endpointslices"),
                resource_rule("create patch update", EVENT_GROUPS, "events"),
            ],
        ),
        cluster_role_from_json(GARBAGE_COLLECTOR_USER, garbage_collector_rules(kinds)),
        cluster_role(
            NODE_LIFECYCLE_USER,
            [
                resource_rule("get list patch update watch", CORE_GROUP, "nodes"),
                resource_rule("patch update", CORE_GROUP, "nodes/status pods/status"),
                resource_rule("delete get list watch", CORE_GROUP, "pods"),
                resource_rule(READ_VERBS, COORDINATION_GROUP, "leases"),
                resource_rule("create patch update", EVENT_GROUPS, "events"),
            ],
        ),
        cluster_role(
            ROLLOUT_POLICY_USER,
            [
                resource_rule("list watch", "apps", "daemonsets"),
                resource_rule("list watch", CORE_GROUP, "namespaces"),
                resource_rule("list watch", GROUP, "clusterrolloutpolicies daemonrollouts rolloutpolicies"),
                resource_rule("update", GROUP, "clusterrolloutpolicies/status rolloutpolicies/status"),
            ],
        ),
        cluster_role(
            SCHEDULER_USER,
            [
                resource_rule(READ_VERBS, CORE_GROUP, "namespaces nodes"),
                resource_rule("delete get list watch", CORE_GROUP, "pods"),
                resource_rule("create", CORE_GROUP, "bindings pods/binding"),
                resource_rule("patch update", CORE_GROUP, "pods/status"),
                resource_rule(READ_VERBS, POLICY_GROUP, "poddisruptionbudgets"),
                resource_rule("create patch update", EVENT_GROUPS, "events"),
            ],
        ),
        cluster_role(
            SIMULATED_NODES_USER,
            [
                resource_rule("create delete list patch watch", CORE_GROUP, "nodes"),
                resource_rule("patch", CORE_GROUP, "nodes/status pods/status"),
                resource_rule("list watch delete", CORE_GROUP, "pods"),
                resource_rule("create patch", COORDINATION_GROUP, "leases"),
            ],
        ),
    ];
    roles.extend(rollout_roles());
    for subresource in ["nodeclient", "selfnodeclient"] {
        let resource = format!("certificatesigningrequests/{subresource}");
        roles.push(cluster_role(
            &format!("system:certificates.k8s.io:certificatesigningrequests:{subresource}"),
            [resource_rule("create", API_GROUP_CERTIFICATES, &resource)],
        ));
    }
    for signer in ["kubelet-serving", "kube-apiserver-client", "kube-apiserver-client-kubelet"] {
        let mut rule = resource_rule("approve", API_GROUP_CERTIFICATES, "signers");
        rule["resourceNames"] = json!([format!("kubernetes.io/{signer}")]);
        roles.push(cluster_role(&format!("system:certificates.k8s.io:{signer}-approver"), [rule]));
    }
    roles
}

/// Returns the ClusterRoles for the kinds of `muster.dev`. They are aggregated to `view`, `edit` and `admin`. For other
/// API servers, deploy/kubernetes/access/rollout-roles.yaml has the same ClusterRoles.
fn rollout_roles() -> Vec<Value> {
    /// Resource names of ClusterRolloutPolicies and RolloutPolicies, separated by a space.
    const POLICY_RESOURCES: &str = "clusterrolloutpolicies rolloutpolicies";
    /// Resource name of DaemonRollouts.
    const ROLLOUT_RESOURCE: &str = "daemonrollouts";
    let all = format!("{POLICY_RESOURCES} {ROLLOUT_RESOURCE}");
    let read = || resource_rule(READ_VERBS, GROUP, &all);
    let roles = [
        ("viewer", "view", vec![read()]),
        (
            "operator",
            "edit",
            vec![read(), resource_rule("create delete patch update", GROUP, ROLLOUT_RESOURCE)],
        ),
        ("admin", "admin", vec![resource_rule(READ_WRITE_VERBS, GROUP, &all)]),
    ];
    let role = |(name, to, rules): (&str, &str, Vec<Value>)| {
        let mut role = cluster_role_from_json(&format!("muster-rollout-{name}"), rules.into());
        role["metadata"]["labels"][aggregate_label(to)] = json!("true");
        role
    };
    roles.map(role).into()
}

/// Returns the ClusterRoleBindings that every cluster has.
pub(crate) fn default_cluster_role_bindings() -> Vec<Value> {
    let group = |it: &str| json!({"apiGroup": API_GROUP_RBAC, "kind": "Group", "name": it});
    let user = |it: &str| json!({"apiGroup": API_GROUP_RBAC, "kind": "User", "name": it});
    let everyone = || vec![group("system:authenticated")];
    let csrs = "system:certificates.k8s.io:certificatesigningrequests";
    vec![
        cluster_role_binding("cluster-admin", "cluster-admin", vec![group(USER_GROUP_MASTERS)]),
        cluster_role_binding("system:monitoring", "system:monitoring", vec![group("system:monitoring")]),
        cluster_role_binding("system:discovery", "system:discovery", everyone()),
        cluster_role_binding("system:basic-user", "system:basic-user", everyone()),
        cluster_role_binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            vec![group("system:authenticated"), group("system:unauthenticated")],
        ),
        cluster_role_binding("system:node", "system:node", Vec::new()),
        cluster_role_binding("system:node-proxier", "system:node-proxier", vec![user("system:kube-proxy")]),
        // Nodes read Services and endpoints to route packets of their pods.
        cluster_role_binding("muster:node-proxiers", "system:node-proxier", vec![group(USER_GROUP_NODES)]),
        cluster_role_binding(
            "system:service-account-issuer-discovery",
            "system:service-account-issuer-discovery",
            vec![group("system:serviceaccounts")],
        ),
        cluster_role_binding(
            DAEMONSET_CONTROLLER_USER,
            DAEMONSET_CONTROLLER_USER,
            vec![user(DAEMONSET_CONTROLLER_USER)],
        ),
        cluster_role_binding(DISRUPTION_USER, DISRUPTION_USER, vec![user(DISRUPTION_USER)]),
        cluster_role_binding(ENDPOINTS_USER, ENDPOINTS_USER, vec![user(ENDPOINTS_USER)]),
        cluster_role_binding(
            GARBAGE_COLLECTOR_USER,
            GARBAGE_COLLECTOR_USER,
            vec![user(GARBAGE_COLLECTOR_USER)],
        ),
        cluster_role_binding(NODE_LIFECYCLE_USER, NODE_LIFECYCLE_USER, vec![user(NODE_LIFECYCLE_USER)]),
        cluster_role_binding(ROLLOUT_POLICY_USER, ROLLOUT_POLICY_USER, vec![user(ROLLOUT_POLICY_USER)]),
        cluster_role_binding(SCHEDULER_USER, SCHEDULER_USER, vec![user(SCHEDULER_USER)]),
        cluster_role_binding(SIMULATED_NODES_USER, SIMULATED_NODES_USER, vec![user(SIMULATED_NODES_USER)]),
        // A node joins with a bootstrap token, gets a certificate, and renews it without approval by an administrator.
        cluster_role_binding(
            "muster:node-bootstrappers",
            "system:node-bootstrapper",
            vec![group(BOOTSTRAPPERS_GROUP)],
        ),
        cluster_role_binding(
            "muster:approve-new-nodes",
            &format!("{csrs}:nodeclient"),
            vec![group(BOOTSTRAPPERS_GROUP)],
        ),
        cluster_role_binding(
            "muster:approve-node-renewals",
            &format!("{csrs}:selfnodeclient"),
            vec![group(USER_GROUP_NODES)],
        ),
    ]
}

/// Returns the RBAC rules of the garbage collector. They cover every deletable kind, because any object can be a
/// dependent. The kinds are listed one by one, because a rule on all resources would include `pods/exec`.
fn garbage_collector_rules(kinds: &ServedKinds) -> Value {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in kinds.writable().filter(|it| it.verbs.contains(&"delete")) {
        groups
            .entry(if kind.group.is_empty() { CORE_GROUP } else { kind.group })
            .or_default()
            .push(kind.plural);
    }
    let rules = groups
        .iter()
        .map(|(group, plurals)| resource_rule("delete get list patch watch", group, &plurals.join(" ")));
    // Pods of deleted nodes are marked as failed before they are deleted.
    Value::Array(rules.chain([resource_rule("patch", CORE_GROUP, "pods/status")]).collect())
}

/// Returns the rules of the ClusterRole `system:node`. The node authorizer restricts some of them to objects related to
/// the node.
pub(crate) fn node_rules() -> Value {
    Value::Array(vec![
        resource_rule("create", API_GROUP_AUTHENTICATION, "tokenreviews"),
        resource_rule("create", AUTHORIZATION_GROUP, "subjectaccessreviews localsubjectaccessreviews"),
        resource_rule(READ_VERBS, CORE_GROUP, "services"),
        resource_rule("create get list watch", CORE_GROUP, "nodes"),
        resource_rule("patch update", CORE_GROUP, "nodes/status"),
        resource_rule("patch update", CORE_GROUP, "nodes"),
        resource_rule("create patch update", EVENT_GROUPS, "events"),
        resource_rule(READ_VERBS, CORE_GROUP, "pods"),
        resource_rule("create delete", CORE_GROUP, "pods"),
        resource_rule("patch update", CORE_GROUP, "pods/status"),
        resource_rule("create", CORE_GROUP, "pods/eviction"),
        resource_rule(READ_VERBS, CORE_GROUP, "secrets configmaps"),
        resource_rule("get", CORE_GROUP, "endpoints"),
        resource_rule("create get list watch", API_GROUP_CERTIFICATES, "certificatesigningrequests"),
        resource_rule("create delete get patch update", COORDINATION_GROUP, "leases"),
        resource_rule("create", CORE_GROUP, "serviceaccounts/token"),
        resource_rule("get", CORE_GROUP, "serviceaccounts"),
        resource_rule(READ_VERBS, "node.k8s.io", "runtimeclasses"),
    ])
}

/// Builds a default ClusterRole with these RBAC rules.
fn cluster_role<const N: usize>(name: &str, rules: [Value; N]) -> Value {
    cluster_role_from_json(name, Value::Array(rules.into()))
}

/// Builds a default ClusterRole. `rules` is a JSON array of RBAC rules.
fn cluster_role_from_json(name: &str, rules: Value) -> Value {
    json!({"metadata": default_metadata(name), "rules": rules})
}

/// Builds the default ClusterRole `name`, which aggregates the rules of all ClusterRoles with the label
/// `aggregate_label(name)`. If `to` is given, the ClusterRole `to` aggregates the rules of `name`.
fn aggregated_role(name: &str, to: Option<&str>) -> Value {
    let mut role = json!({
        "metadata": default_metadata(name),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {aggregate_label(name): "true"}}]},
        "rules": [],
    });
    if let Some(to) = to {
        role["metadata"]["labels"][aggregate_label(to)] = json!("true");
    }
    role
}

/// Builds the ClusterRole `system:aggregate-to-TO`, whose rules the ClusterRole `to` aggregates.
fn role_aggregated_to<const N: usize>(to: &str, rules: [Value; N]) -> Value {
    let mut role = cluster_role(&format!("system:aggregate-to-{to}"), rules);
    role["metadata"]["labels"][aggregate_label(to)] = json!("true");
    role
}

/// Returns the key of the label that marks the ClusterRoles whose rules the ClusterRole `to` aggregates.
fn aggregate_label(to: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{to}")
}

/// Builds a default ClusterRoleBinding that grants the ClusterRole `role` to the subjects.
fn cluster_role_binding(name: &str, role: &str, subjects: Vec<Value>) -> Value {
    let mut binding = json!({
        "metadata": default_metadata(name),
        "roleRef": {"apiGroup": API_GROUP_RBAC, "kind": "ClusterRole", "name": role},
    });
    if !subjects.is_empty() {
        binding["subjects"] = Value::Array(subjects);
    }
    binding
}

/// Returns the metadata of a default role or binding, with the label and annotation that mark it as a default.
fn default_metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTO_UPDATE_ANNOTATION: "true"},
    })
}

/// Builds an RBAC rule on resources from space-separated lists. `core` in `groups` stands for the core API group.
fn resource_rule(verbs: &str, groups: &str, resources: &str) -> Value {
    let groups: Vec<_> =
        sorted_words(groups).into_iter().map(|it| if it == CORE_GROUP { "" } else { it }).collect();
    json!({"apiGroups": groups, "resources": sorted_words(resources), "verbs": sorted_words(verbs)})
}

/// Builds an RBAC rule on non-resource URLs from space-separated lists.
fn url_rule(verbs: &str, urls: &str) -> Value {
    json!({"nonResourceURLs": sorted_words(urls), "verbs": sorted_words(verbs)})
}

/// Splits a text at whitespace and sorts the words.
fn sorted_words(text: &str) -> Vec<&str> {
    let mut words: Vec<_> = text.split_whitespace().collect();
    words.sort_unstable();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollout_roles_are_those_of_the_manifests() {
        const MANIFESTS: &str = include_str!("../../../../deploy/kubernetes/access/rollout-roles.yaml");
        // Order has no meaning in a rule.
        let outline = |role: &Value| {
            let mut rules = role["rules"].clone();
            for list in rules
                .as_array_mut()
                .into_iter()
                .flatten()
                .flat_map(|it| it.as_object_mut().into_iter().flatten())
            {
                list.1.as_array_mut().into_iter().for_each(|it| it.sort_by_key(Value::to_string));
            }
            let labels = role["metadata"]["labels"].as_object().into_iter().flatten();
            let aggregated: Vec<_> = labels.filter(|(name, _)| name.contains("aggregate-to")).collect();
            format!("{} {aggregated:?} {rules}", role["metadata"]["name"])
        };
        let ours: Vec<String> = rollout_roles().iter().map(outline).collect();
        let documents = MANIFESTS
            .split("\n---\n")
            .map(|it| serde_saphyr::from_str::<Value>(it).expect("a manifest is YAML"));
        let shipped: Vec<String> = documents.map(|it| outline(&it)).collect();
        assert_eq!(ours, shipped);
    }
}
