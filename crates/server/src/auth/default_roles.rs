//! The ClusterRoles and ClusterRoleBindings of every cluster: upstream's, for the kinds that are served here, and those
//! of Muster's own components. Upstream: `bootstrappolicy`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kinds::KINDS;
use crate::request::{
    CONTROLLER, DISRUPTION, ENDPOINTS, GARBAGE_COLLECTOR, NODE_LIFECYCLE, SCHEDULER, SIMULATED_NODES,
};

/// Group of nodes that authenticate with a bootstrap token, before they have a certificate.
pub(crate) const BOOTSTRAPPERS: &str = "system:bootstrappers";

const RBAC: &str = "rbac.authorization.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const LEASES: &str = "coordination.k8s.io";
/// Stands for the core API group, whose name is empty, in the rules below.
const CORE: &str = "core";
/// The API groups of events, which are served in both.
const EVENTS: &str = "core events.k8s.io";
const POLICY: &str = "policy";
const METRICS: &str = "metrics.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";
/// The API groups of DaemonSets, which are served in both.
const APPS: &str = "apps extensions";

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const READ_WRITE: &str = "get list watch create delete deletecollection patch update";

/// Annotation of roles and bindings that are reconciled with the defaults at each start.
pub(crate) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The default ClusterRoles.
pub(crate) fn cluster_roles() -> Vec<Value> {
    let mut roles = vec![
        role("cluster-admin", [on("*", "*", "*"), at("*", "*")]),
        role(
            "system:discovery",
            [at(
                "get",
                "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*",
            )],
        ),
        role(
            "system:monitoring",
            [
                at("get", "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*"),
                on("get", CORE, "nodes/metrics"),
            ],
        ),
        role(
            "system:basic-user",
            [
                on("create", AUTHORIZATION, "selfsubjectaccessreviews selfsubjectrulesreviews"),
                on("create", AUTHENTICATION, "selfsubjectreviews"),
            ],
        ),
        role("system:public-info-viewer", [at("get", "/livez /readyz /healthz /version /version/")]),
        aggregated("admin", None),
        aggregated("edit", Some("admin")),
        aggregated("view", Some("edit")),
        aggregate_to(
            "admin",
            [
                on("create", AUTHORIZATION, "localsubjectaccessreviews"),
                on(READ_WRITE, RBAC, "roles rolebindings"),
            ],
        ),
        aggregate_to(
            "edit",
            [
                on(READ, CORE, "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy"),
                on("impersonate", CORE, "serviceaccounts"),
                on(WRITE, CORE, "pods pods/attach pods/proxy pods/exec pods/portforward"),
                on("create", CORE, "pods/eviction"),
                on(WRITE, CORE, "serviceaccounts services services/proxy configmaps secrets"),
                on("create", CORE, "serviceaccounts/token"),
                on(WRITE, EVENTS, "events"),
                on(WRITE, APPS, "daemonsets"),
                on(WRITE, POLICY, "poddisruptionbudgets"),
                on(READ_WRITE, LEASES, "leases"),
            ],
        ),
        aggregate_to(
            "view",
            [
                on(READ, CORE, "pods serviceaccounts services services/status endpoints configmaps"),
                on(
                    READ,
                    CORE,
                    "limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status pods/log",
                ),
                on(READ, CORE, "namespaces"),
                on(READ, EVENTS, "events"),
                on(READ, DISCOVERY, "endpointslices"),
                on(READ, APPS, "daemonsets daemonsets/status"),
                on(READ, "apps", "controllerrevisions"),
                on("get list", METRICS, "nodes pods"),
                on(READ, POLICY, "poddisruptionbudgets poddisruptionbudgets/status"),
            ],
        ),
        role(
            "system:node-bootstrapper",
            [on("create get list watch", CERTIFICATES, "certificatesigningrequests")],
        ),
        role(
            "system:auth-delegator",
            [
                on("create", AUTHENTICATION, "tokenreviews"),
                on("create", AUTHORIZATION, "subjectaccessreviews"),
            ],
        ),
        role(
            "system:service-account-issuer-discovery",
            [at(
                "get",
                "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
            )],
        ),
        role(
            "system:kubelet-api-admin",
            [
                on(READ, CORE, "nodes"),
                on("proxy", CORE, "nodes"),
                on(
                    "*",
                    CORE,
                    "nodes/proxy nodes/metrics nodes/stats nodes/log nodes/pods nodes/healthz nodes/configz",
                ),
            ],
        ),
        with_rules("system:node", node_rules()),
        role(
            "system:node-proxier",
            [
                on("list watch", CORE, "services endpoints"),
                on(READ, CORE, "nodes"),
                on("create patch update", EVENTS, "events"),
                on("list watch", DISCOVERY, "endpointslices"),
            ],
        ),
        role(
            CONTROLLER,
            [
                on(READ, "apps", "daemonsets controllerrevisions"),
                on("update", "apps", "daemonsets/status daemonsets/finalizers"),
                on(READ, CORE, "nodes pods"),
                on("create delete patch", CORE, "pods"),
                on("create delete patch", "apps", "controllerrevisions"),
                on("create patch update", EVENTS, "events"),
            ],
        ),
        role(
            DISRUPTION,
            [
                on(READ, CORE, "pods"),
                on("patch", CORE, "pods/status"),
                on(READ, POLICY, "poddisruptionbudgets"),
                on("patch", POLICY, "poddisruptionbudgets/status"),
                on("create patch update", EVENTS, "events"),
            ],
        ),
        role(
            ENDPOINTS,
            [
                on(READ, CORE, "nodes pods services"),
                // Owner references with blockOwnerDeletion require permission to update the owner's finalizers.
                on("update", CORE, "services/finalizers endpoints/finalizers"),
                on("create delete get list patch watch", CORE, "endpoints"),
                on("create delete get list patch watch", DISCOVERY, "endpointslices"),
                on("create patch update", EVENTS, "events"),
            ],
        ),
        with_rules(GARBAGE_COLLECTOR, garbage_rules()),
        role(
            NODE_LIFECYCLE,
            [
                on("get list patch update watch", CORE, "nodes"),
                on("patch update", CORE, "nodes/status pods/status"),
                on("delete get list watch", CORE, "pods"),
                on(READ, LEASES, "leases"),
                on("create patch update", EVENTS, "events"),
            ],
        ),
        role(
            SCHEDULER,
            [
                on(READ, CORE, "namespaces nodes"),
                on("delete get list watch", CORE, "pods"),
                on("create", CORE, "bindings pods/binding"),
                on("patch update", CORE, "pods/status"),
                on(READ, POLICY, "poddisruptionbudgets"),
                on("create patch update", EVENTS, "events"),
            ],
        ),
        role(
            SIMULATED_NODES,
            [
                on("create delete list patch watch", CORE, "nodes"),
                on("patch", CORE, "nodes/status pods/status"),
                on("list watch delete", CORE, "pods"),
                on("create patch", LEASES, "leases"),
            ],
        ),
    ];
    for subresource in ["nodeclient", "selfnodeclient"] {
        let resource = format!("certificatesigningrequests/{subresource}");
        roles.push(role(
            &format!("system:certificates.k8s.io:certificatesigningrequests:{subresource}"),
            [on("create", CERTIFICATES, &resource)],
        ));
    }
    for signer in ["kubelet-serving", "kube-apiserver-client", "kube-apiserver-client-kubelet"] {
        let mut rule = on("approve", CERTIFICATES, "signers");
        rule["resourceNames"] = json!([format!("kubernetes.io/{signer}")]);
        roles.push(role(&format!("system:certificates.k8s.io:{signer}-approver"), [rule]));
    }
    roles
}

/// The default ClusterRoleBindings.
pub(crate) fn cluster_role_bindings() -> Vec<Value> {
    let group = |it: &str| json!({"apiGroup": RBAC, "kind": "Group", "name": it});
    let user = |it: &str| json!({"apiGroup": RBAC, "kind": "User", "name": it});
    let everyone = || vec![group("system:authenticated")];
    let csrs = "system:certificates.k8s.io:certificatesigningrequests";
    vec![
        binding("cluster-admin", "cluster-admin", vec![group("system:masters")]),
        binding("system:monitoring", "system:monitoring", vec![group("system:monitoring")]),
        binding("system:discovery", "system:discovery", everyone()),
        binding("system:basic-user", "system:basic-user", everyone()),
        binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            vec![group("system:authenticated"), group("system:unauthenticated")],
        ),
        binding("system:node", "system:node", Vec::new()),
        binding("system:node-proxier", "system:node-proxier", vec![user("system:kube-proxy")]),
        // Nodes read Services and endpoints to route packets of their pods.
        binding("muster:node-proxiers", "system:node-proxier", vec![group("system:nodes")]),
        binding(
            "system:service-account-issuer-discovery",
            "system:service-account-issuer-discovery",
            vec![group("system:serviceaccounts")],
        ),
        binding(CONTROLLER, CONTROLLER, vec![user(CONTROLLER)]),
        binding(DISRUPTION, DISRUPTION, vec![user(DISRUPTION)]),
        binding(ENDPOINTS, ENDPOINTS, vec![user(ENDPOINTS)]),
        binding(GARBAGE_COLLECTOR, GARBAGE_COLLECTOR, vec![user(GARBAGE_COLLECTOR)]),
        binding(NODE_LIFECYCLE, NODE_LIFECYCLE, vec![user(NODE_LIFECYCLE)]),
        binding(SCHEDULER, SCHEDULER, vec![user(SCHEDULER)]),
        binding(SIMULATED_NODES, SIMULATED_NODES, vec![user(SIMULATED_NODES)]),
        // A node joins with a bootstrap token, gets a certificate, and renews it without approval by an administrator.
        binding("muster:node-bootstrappers", "system:node-bootstrapper", vec![group(BOOTSTRAPPERS)]),
        binding("muster:approve-new-nodes", &format!("{csrs}:nodeclient"), vec![group(BOOTSTRAPPERS)]),
        binding(
            "muster:approve-node-renewals",
            &format!("{csrs}:selfnodeclient"),
            vec![group("system:nodes")],
        ),
    ]
}

/// Rules of the garbage collector: every deletable kind, because any object can be a dependent. The kinds are listed
/// one by one, because a rule on all resources would include `pods/exec`.
fn garbage_rules() -> Value {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in KINDS.iter().filter(|it| it.verbs.contains(&"delete")) {
        groups.entry(if kind.group.is_empty() { CORE } else { kind.group }).or_default().push(kind.plural);
    }
    let rules =
        groups.iter().map(|(group, plurals)| on("delete get list patch watch", group, &plurals.join(" ")));
    // Pods of deleted nodes are marked as failed before they are deleted.
    Value::Array(rules.chain([on("patch", CORE, "pods/status")]).collect())
}

/// Rules of the role `system:node`. The node authorizer further restricts them to objects related to the node.
pub(crate) fn node_rules() -> Value {
    Value::Array(vec![
        on("create", AUTHENTICATION, "tokenreviews"),
        on("create", AUTHORIZATION, "subjectaccessreviews localsubjectaccessreviews"),
        on(READ, CORE, "services"),
        on("create get list watch", CORE, "nodes"),
        on("patch update", CORE, "nodes/status"),
        on("patch update", CORE, "nodes"),
        on("create patch update", EVENTS, "events"),
        on(READ, CORE, "pods"),
        on("create delete", CORE, "pods"),
        on("patch update", CORE, "pods/status"),
        on("create", CORE, "pods/eviction"),
        on(READ, CORE, "secrets configmaps"),
        on("get", CORE, "endpoints"),
        on("create get list watch", CERTIFICATES, "certificatesigningrequests"),
        on("create delete get patch update", LEASES, "leases"),
        on("create", CORE, "serviceaccounts/token"),
        on("get", CORE, "serviceaccounts"),
        on(READ, "node.k8s.io", "runtimeclasses"),
    ])
}

fn role<const N: usize>(name: &str, rules: [Value; N]) -> Value {
    with_rules(name, Value::Array(rules.into()))
}

fn with_rules(name: &str, rules: Value) -> Value {
    json!({"metadata": metadata(name), "rules": rules})
}

/// A ClusterRole that aggregates the rules of all roles labelled for it, and is itself aggregated to `to`.
fn aggregated(name: &str, to: Option<&str>) -> Value {
    let mut role = json!({
        "metadata": metadata(name),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {aggregate_label(name): "true"}}]},
        "rules": [],
    });
    if let Some(to) = to {
        role["metadata"]["labels"][aggregate_label(to)] = json!("true");
    }
    role
}

/// The role `system:aggregate-to-…`, whose rules are aggregated to the role `to`.
fn aggregate_to<const N: usize>(to: &str, rules: [Value; N]) -> Value {
    let mut role = role(&format!("system:aggregate-to-{to}"), rules);
    role["metadata"]["labels"][aggregate_label(to)] = json!("true");
    role
}

fn aggregate_label(to: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{to}")
}

fn binding(name: &str, role: &str, subjects: Vec<Value>) -> Value {
    let mut binding = json!({
        "metadata": metadata(name),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
    });
    if !subjects.is_empty() {
        binding["subjects"] = Value::Array(subjects);
    }
    binding
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTO_UPDATE: "true"},
    })
}

/// A rule on resources, from space-separated lists; `core` is the core API group.
fn on(verbs: &str, groups: &str, resources: &str) -> Value {
    let groups: Vec<_> = words(groups).into_iter().map(|it| if it == CORE { "" } else { it }).collect();
    json!({"apiGroups": groups, "resources": words(resources), "verbs": words(verbs)})
}

/// A rule on non-resource URLs, from space-separated lists.
fn at(verbs: &str, urls: &str) -> Value {
    json!({"nonResourceURLs": words(urls), "verbs": words(verbs)})
}

/// Splits at whitespace and sorts.
fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<_> = text.split_whitespace().collect();
    words.sort_unstable();
    words
}
