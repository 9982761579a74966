//! Authorization: a table of requests, and the outcome of each.

mod credentials;
mod writes;

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::policy_rule::PolicyRule;
use super::*;
use crate::controllers::cluster_roles;
use crate::registry::Registry;
use crate::request::{
    DAEMONSET_CONTROLLER_USER, DISRUPTION_USER, ENDPOINTS_USER, GARBAGE_COLLECTOR_USER, NODE_LIFECYCLE_USER,
    ROLLOUT_POLICY_USER, RequestContext, SCHEDULER_USER, SIMULATED_NODES_USER,
};

const NOW: &str = "2026-01-01T00:00:00Z";

pub(super) struct World {
    pub(super) registry: Registry,
    pub(super) now: Timestamp,
}

impl World {
    pub(super) async fn new() -> Self {
        let world = Self { registry: Registry::new(100), now: NOW.parse().unwrap() };
        crate::bootstrap::ensure_bootstrap_objects(
            &world.registry,
            &crate::bootstrap::ServerIdentity::for_test(),
            None,
            world.now,
        )
        .await
        .unwrap();
        cluster_roles::ensure_default_roles(&world.registry, world.now).await.unwrap();
        world
    }

    pub(super) async fn create(&self, group: &str, plural: &str, namespace: &str, object: Value) -> Value {
        let kind = Kind::builtin(group, "v1", plural);
        let namespace = Some(namespace).filter(|it| !it.is_empty());
        let context = RequestContext::for_server("create", self.now);
        let created = self.registry.create(&context, kind, namespace, object).await.unwrap();
        unstructured::parse_stored(&created)
    }

    /// Makes a role and gives it to someone: in a namespace, or everywhere.
    pub(super) async fn bind(&self, name: &str, namespace: &str, rules: Value, subject: Value) {
        let (role, binding) = if namespace.is_empty() {
            ("clusterroles", "clusterrolebindings")
        } else {
            ("roles", "rolebindings")
        };
        self.create(API_GROUP_RBAC, role, namespace, json!({"metadata": {"name": name}, "rules": rules}))
            .await;
        let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        let binding_object = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": API_GROUP_RBAC, "kind": kind, "name": name},
            "subjects": [subject],
        });
        self.create(API_GROUP_RBAC, binding, namespace, binding_object).await;
    }

    /// The outcome of a request: `METHOD URI`.
    pub(super) fn ask(&self, user: &User, request: &str) -> String {
        let (method, uri) = request.split_once(' ').unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let get = |name: &str| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(it, _)| it == name);
            found.map(|(_, value)| value.into_owned())
        };
        let attributes = RequestAttributes::from_request(&method.parse().unwrap(), path, get);
        match authorize(&self.registry.access, user, &attributes) {
            Ok(AuthorizationGrant::Masters) => "yes: a master".to_owned(),
            Ok(AuthorizationGrant::Node) => "yes: its own".to_owned(),
            Ok(grant) => format!("yes: {grant}"),
            Err(why) => {
                format!(
                    "no: {}",
                    forbidden_error(user, &attributes, &why).status()["message"].as_str().unwrap()
                )
            }
        }
    }

    fn check(&self, user: &User, requests: &[&str], expected: &Expect) {
        let mut said = String::new();
        for request in requests {
            writeln!(said, "{request}\n    {}", self.ask(user, request)).unwrap();
        }
        expected.assert_eq(&said);
    }
}

pub(super) fn someone(name: &str) -> User {
    User::new(name, ["system:authenticated"])
}

#[tokio::test]
async fn everyone_may_look_around_and_no_more() {
    let world = World::new().await;
    world.check(
        &someone("eve"),
        &[
            "GET /api/v1/pods",
            "GET /api/v1/namespaces/default/pods/p",
            "PUT /apis/apps/v1/namespaces/default/daemonsets/d/status",
            "GET /api",
            "GET /apis/apps/v1",
            "GET /openapi/v2",
            "POST /apis",
            "GET /metrics",
            "GET /healthz",
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "GET /apis/<b>/v1/x",
        ],
        &expect![[r#"
            GET /api/v1/pods
                no: pods is forbidden: User "eve" cannot list resource "pods" in API group "" at the cluster scope
            GET /api/v1/namespaces/default/pods/p
                no: pods "p" is forbidden: User "eve" cannot get resource "pods" in API group "" in the namespace "default"
            PUT /apis/apps/v1/namespaces/default/daemonsets/d/status
                no: daemonsets.apps "d" is forbidden: User "eve" cannot update resource "daemonsets/status" in API group "apps" in the namespace "default"
            GET /api
                yes: RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"
            GET /apis/apps/v1
                yes: RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"
            GET /openapi/v2
                yes: RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"
            POST /apis
                no: forbidden: User "eve" cannot post path "/apis"
            GET /metrics
                no: forbidden: User "eve" cannot get path "/metrics"
            GET /healthz
                yes: RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"
            POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews
                yes: RBAC: allowed by ClusterRoleBinding "system:basic-user" of ClusterRole "system:basic-user" to Group "system:authenticated"
            GET /apis/<b>/v1/x
                no: x.<b> is forbidden: User "eve" cannot list resource "x" in API group "&lt;b&gt;" at the cluster scope
        "#]],
    );
}

#[tokio::test]
async fn roles_grant_their_rules_where_they_are_bound() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods", "*/status"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["*"]},
    ]);
    world.bind("reader", "default", rules, json!({"kind": "ServiceAccount", "name": "bot"})).await;
    let bot = User::service_account("default", "bot");
    world.check(
        &bot,
        &[
            "GET /api/v1/namespaces/default/pods/p",
            "GET /api/v1/namespaces/default/pods",
            "GET /api/v1/namespaces/default/pods?watch=1",
            "GET /api/v1/namespaces/default/pods/p/log",
            "GET /api/v1/namespaces/default/services/s/status",
            "GET /api/v1/namespaces/kube-system/pods/p",
            "GET /api/v1/pods",
            "DELETE /api/v1/namespaces/default/configmaps/one",
            "DELETE /api/v1/namespaces/default/configmaps/two",
            "POST /api/v1/namespaces/default/configmaps",
            "GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=one",
            "GET /api/v1/namespaces/default/configmaps",
        ],
        &expect![[r#"
            GET /api/v1/namespaces/default/pods/p
                yes: RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "bot/default"
            GET /api/v1/namespaces/default/pods
                yes: RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "bot/default"
            GET /api/v1/namespaces/default/pods?watch=1
                no: pods is forbidden: User "system:serviceaccount:default:bot" cannot watch resource "pods" in API group "" in the namespace "default"
            GET /api/v1/namespaces/default/pods/p/log
                no: pods "p" is forbidden: User "system:serviceaccount:default:bot" cannot get resource "pods/log" in API group "" in the namespace "default"
            GET /api/v1/namespaces/default/services/s/status
                yes: RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "bot/default"
            GET /api/v1/namespaces/kube-system/pods/p
                no: pods "p" is forbidden: User "system:serviceaccount:default:bot" cannot get resource "pods" in API group "" in the namespace "kube-system"
            GET /api/v1/pods
                no: pods is forbidden: User "system:serviceaccount:default:bot" cannot list resource "pods" in API group "" at the cluster scope
            DELETE /api/v1/namespaces/default/configmaps/one
                yes: RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "bot/default"
            DELETE /api/v1/namespaces/default/configmaps/two
                no: configmaps "two" is forbidden: User "system:serviceaccount:default:bot" cannot delete resource "configmaps" in API group "" in the namespace "default"
            POST /api/v1/namespaces/default/configmaps
                no: configmaps is forbidden: User "system:serviceaccount:default:bot" cannot create resource "configmaps" in API group "" in the namespace "default"
            GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=one
                yes: RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "bot/default"
            GET /api/v1/namespaces/default/configmaps
                no: configmaps is forbidden: User "system:serviceaccount:default:bot" cannot list resource "configmaps" in API group "" in the namespace "default"
        "#]],
    );
}

#[tokio::test]
async fn a_change_acts_at_once() {
    let world = World::new().await;
    let eve = someone("eve");
    let request = "GET /api/v1/nodes";
    let mut said = vec![world.ask(&eve, request)];
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]);
    world.bind("nodes", "", rules, json!({"kind": "User", "name": "eve"})).await;
    said.push(world.ask(&eve, request));
    for plural in ["clusterroles", "clusterrolebindings"] {
        let kind = Kind::builtin(API_GROUP_RBAC, "v1", plural);
        let target = crate::request::RequestTarget {
            kind,
            namespace: None,
            name: "nodes".to_owned(),
            subresource: crate::subresource::Subresource::Whole,
        };
        let context = RequestContext::for_server("delete", world.now);
        world.registry.delete(&context, &target, &Default::default()).await.unwrap();
        said.push(world.ask(&eve, request));
    }
    expect![[r#"
        no: nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the cluster scope
        yes: RBAC: allowed by ClusterRoleBinding "nodes" of ClusterRole "nodes" to User "eve"
        no: nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "nodes" not found
        no: nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the cluster scope"#]].assert_eq(&said.join("\n"));
}

#[tokio::test]
async fn admin_edit_and_view_are_gathered() {
    let world = World::new().await;
    let mut said = String::new();
    for role in ["admin", "edit", "view"] {
        let subject = json!({"kind": "User", "name": role});
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": API_GROUP_RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        });
        world.create(API_GROUP_RBAC, "rolebindings", "default", binding).await;
        let may = |request: &str| {
            if world.ask(&someone(role), request).starts_with("yes") { "yes" } else { "no" }
        };
        writeln!(
            said,
            "{role}: see pods {}, see secrets {}, write sets {}, write roles {}, write quotas {}, elsewhere {}",
            may("GET /api/v1/namespaces/default/pods"),
            may("GET /api/v1/namespaces/default/secrets"),
            may("POST /apis/apps/v1/namespaces/default/daemonsets"),
            may("POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"),
            may("POST /api/v1/namespaces/default/resourcequotas"),
            may("GET /api/v1/namespaces/kube-system/pods"),
        )
        .unwrap();
    }
    expect![[r#"
        admin: see pods yes, see secrets yes, write sets yes, write roles yes, write quotas no, elsewhere no
        edit: see pods yes, see secrets yes, write sets yes, write roles no, write quotas no, elsewhere no
        view: see pods yes, see secrets no, write sets no, write roles no, write quotas no, elsewhere no
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn parts_of_muster_may_do_their_work_and_no_more() {
    let world = World::new().await;
    world.check(
        &someone(DAEMONSET_CONTROLLER_USER),
        &[
            "GET /apis/apps/v1/daemonsets?watch=true",
            "PUT /apis/apps/v1/namespaces/default/daemonsets/d/status",
            "PUT /apis/apps/v1/namespaces/default/daemonsets/d",
            "POST /api/v1/namespaces/default/pods",
            "POST /api/v1/namespaces/default/pods/p/eviction",
            "PUT /apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies/r/status",
            "DELETE /api/v1/nodes/n",
            "GET /api/v1/namespaces/default/secrets/s",
        ],
        &expect![[r#"
            GET /apis/apps/v1/daemonsets?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-controller" of ClusterRole "system:muster-controller" to User "system:muster-controller"
            PUT /apis/apps/v1/namespaces/default/daemonsets/d/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-controller" of ClusterRole "system:muster-controller" to User "system:muster-controller"
            PUT /apis/apps/v1/namespaces/default/daemonsets/d
                no: daemonsets.apps "d" is forbidden: User "system:muster-controller" cannot update resource "daemonsets" in API group "apps" in the namespace "default"
            POST /api/v1/namespaces/default/pods
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-controller" of ClusterRole "system:muster-controller" to User "system:muster-controller"
            POST /api/v1/namespaces/default/pods/p/eviction
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-controller" of ClusterRole "system:muster-controller" to User "system:muster-controller"
            PUT /apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies/r/status
                no: rolloutpolicies.muster.dev "r" is forbidden: User "system:muster-controller" cannot update resource "rolloutpolicies/status" in API group "muster.dev" in the namespace "default"
            DELETE /api/v1/nodes/n
                no: nodes "n" is forbidden: User "system:muster-controller" cannot delete resource "nodes" in API group "" at the cluster scope
            GET /api/v1/namespaces/default/secrets/s
                no: secrets "s" is forbidden: User "system:muster-controller" cannot get resource "secrets" in API group "" in the namespace "default"
        "#]],
    );
    world.check(
        &someone(GARBAGE_COLLECTOR_USER),
        &[
            "GET /api/v1/configmaps?watch=true",
            "DELETE /apis/apps/v1/namespaces/default/controllerrevisions/r",
            "PATCH /api/v1/nodes/n",
            "POST /api/v1/namespaces/default/pods",
            "GET /api/v1/namespaces/default/pods/p/exec",
        ],
        &expect![[r#"
            GET /api/v1/configmaps?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-garbage-collector" of ClusterRole "system:muster-garbage-collector" to User "system:muster-garbage-collector"
            DELETE /apis/apps/v1/namespaces/default/controllerrevisions/r
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-garbage-collector" of ClusterRole "system:muster-garbage-collector" to User "system:muster-garbage-collector"
            PATCH /api/v1/nodes/n
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-garbage-collector" of ClusterRole "system:muster-garbage-collector" to User "system:muster-garbage-collector"
            POST /api/v1/namespaces/default/pods
                no: pods is forbidden: User "system:muster-garbage-collector" cannot create resource "pods" in API group "" in the namespace "default"
            GET /api/v1/namespaces/default/pods/p/exec
                no: pods "p" is forbidden: User "system:muster-garbage-collector" cannot get resource "pods/exec" in API group "" in the namespace "default"
        "#]],
    );
    world.check(
        &someone(SCHEDULER_USER),
        &[
            "GET /api/v1/pods?watch=true",
            "POST /api/v1/namespaces/default/pods/p/binding",
            "PATCH /api/v1/namespaces/default/pods/p/status",
            "DELETE /api/v1/namespaces/default/pods/p",
            "PATCH /api/v1/namespaces/default/pods/p",
            "PATCH /api/v1/nodes/n",
        ],
        &expect![[r#"
            GET /api/v1/pods?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-scheduler" of ClusterRole "system:muster-scheduler" to User "system:muster-scheduler"
            POST /api/v1/namespaces/default/pods/p/binding
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-scheduler" of ClusterRole "system:muster-scheduler" to User "system:muster-scheduler"
            PATCH /api/v1/namespaces/default/pods/p/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-scheduler" of ClusterRole "system:muster-scheduler" to User "system:muster-scheduler"
            DELETE /api/v1/namespaces/default/pods/p
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-scheduler" of ClusterRole "system:muster-scheduler" to User "system:muster-scheduler"
            PATCH /api/v1/namespaces/default/pods/p
                no: pods "p" is forbidden: User "system:muster-scheduler" cannot patch resource "pods" in API group "" in the namespace "default"
            PATCH /api/v1/nodes/n
                no: nodes "n" is forbidden: User "system:muster-scheduler" cannot patch resource "nodes" in API group "" at the cluster scope
        "#]],
    );
    world.check(
        &someone(NODE_LIFECYCLE_USER),
        &[
            "GET /apis/coordination.k8s.io/v1/leases?watch=true",
            "PATCH /api/v1/nodes/n",
            "PATCH /api/v1/nodes/n/status",
            "DELETE /api/v1/namespaces/default/pods/p",
            "DELETE /api/v1/nodes/n",
            "POST /api/v1/namespaces/default/pods/p/binding",
        ],
        &expect![[r#"
            GET /apis/coordination.k8s.io/v1/leases?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-node-lifecycle" of ClusterRole "system:muster-node-lifecycle" to User "system:muster-node-lifecycle"
            PATCH /api/v1/nodes/n
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-node-lifecycle" of ClusterRole "system:muster-node-lifecycle" to User "system:muster-node-lifecycle"
            PATCH /api/v1/nodes/n/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-node-lifecycle" of ClusterRole "system:muster-node-lifecycle" to User "system:muster-node-lifecycle"
            DELETE /api/v1/namespaces/default/pods/p
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-node-lifecycle" of ClusterRole "system:muster-node-lifecycle" to User "system:muster-node-lifecycle"
            DELETE /api/v1/nodes/n
                no: nodes "n" is forbidden: User "system:muster-node-lifecycle" cannot delete resource "nodes" in API group "" at the cluster scope
            POST /api/v1/namespaces/default/pods/p/binding
                no: pods "p" is forbidden: User "system:muster-node-lifecycle" cannot create resource "pods/binding" in API group "" in the namespace "default"
        "#]],
    );
    world.check(
        &someone(ROLLOUT_POLICY_USER),
        &[
            "GET /apis/muster.dev/v1alpha1/rolloutpolicies?watch=true",
            "PUT /apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies/r/status",
            "PUT /apis/muster.dev/v1alpha1/clusterrolloutpolicies/r/status",
            "PUT /apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies/r",
            "PUT /apis/muster.dev/v1alpha1/namespaces/default/daemonrollouts/r/status",
            "PUT /apis/apps/v1/namespaces/default/daemonsets/d/status",
        ],
        &expect![[r#"
            GET /apis/muster.dev/v1alpha1/rolloutpolicies?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-rollout-policy" of ClusterRole "system:muster-rollout-policy" to User "system:muster-rollout-policy"
            PUT /apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies/r/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-rollout-policy" of ClusterRole "system:muster-rollout-policy" to User "system:muster-rollout-policy"
            PUT /apis/muster.dev/v1alpha1/clusterrolloutpolicies/r/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-rollout-policy" of ClusterRole "system:muster-rollout-policy" to User "system:muster-rollout-policy"
            PUT /apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies/r
                no: rolloutpolicies.muster.dev "r" is forbidden: User "system:muster-rollout-policy" cannot update resource "rolloutpolicies" in API group "muster.dev" in the namespace "default"
            PUT /apis/muster.dev/v1alpha1/namespaces/default/daemonrollouts/r/status
                no: daemonrollouts.muster.dev "r" is forbidden: User "system:muster-rollout-policy" cannot update resource "daemonrollouts/status" in API group "muster.dev" in the namespace "default"
            PUT /apis/apps/v1/namespaces/default/daemonsets/d/status
                no: daemonsets.apps "d" is forbidden: User "system:muster-rollout-policy" cannot update resource "daemonsets/status" in API group "apps" in the namespace "default"
        "#]],
    );
    world.check(
        &someone(DISRUPTION_USER),
        &[
            "GET /apis/policy/v1/poddisruptionbudgets?watch=true",
            "PATCH /apis/policy/v1/namespaces/default/poddisruptionbudgets/b/status",
            "PUT /apis/policy/v1/namespaces/default/poddisruptionbudgets/b",
            "DELETE /api/v1/namespaces/default/pods/p",
        ],
        &expect![[r#"
            GET /apis/policy/v1/poddisruptionbudgets?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-disruption" of ClusterRole "system:muster-disruption" to User "system:muster-disruption"
            PATCH /apis/policy/v1/namespaces/default/poddisruptionbudgets/b/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-disruption" of ClusterRole "system:muster-disruption" to User "system:muster-disruption"
            PUT /apis/policy/v1/namespaces/default/poddisruptionbudgets/b
                no: poddisruptionbudgets.policy "b" is forbidden: User "system:muster-disruption" cannot update resource "poddisruptionbudgets" in API group "policy" in the namespace "default"
            DELETE /api/v1/namespaces/default/pods/p
                no: pods "p" is forbidden: User "system:muster-disruption" cannot delete resource "pods" in API group "" in the namespace "default"
        "#]],
    );
    world.check(
        &someone(ENDPOINTS_USER),
        &[
            "GET /api/v1/services?watch=true",
            "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            "PATCH /api/v1/namespaces/default/endpoints/e",
            "PUT /api/v1/namespaces/default/services/s",
            "PATCH /api/v1/namespaces/default/pods/p/status",
        ],
        &expect![[r#"
            GET /api/v1/services?watch=true
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-endpoints" of ClusterRole "system:muster-endpoints" to User "system:muster-endpoints"
            POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-endpoints" of ClusterRole "system:muster-endpoints" to User "system:muster-endpoints"
            PATCH /api/v1/namespaces/default/endpoints/e
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-endpoints" of ClusterRole "system:muster-endpoints" to User "system:muster-endpoints"
            PUT /api/v1/namespaces/default/services/s
                no: services "s" is forbidden: User "system:muster-endpoints" cannot update resource "services" in API group "" in the namespace "default"
            PATCH /api/v1/namespaces/default/pods/p/status
                no: pods "p" is forbidden: User "system:muster-endpoints" cannot patch resource "pods/status" in API group "" in the namespace "default"
        "#]],
    );
    world.check(
        &someone(SIMULATED_NODES_USER),
        &[
            "POST /api/v1/nodes",
            "PATCH /api/v1/nodes/n/status",
            "PATCH /api/v1/namespaces/default/pods/p/status",
            "POST /api/v1/namespaces/default/pods",
        ],
        &expect![[r#"
            POST /api/v1/nodes
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-simulated-nodes" of ClusterRole "system:muster-simulated-nodes" to User "system:muster-simulated-nodes"
            PATCH /api/v1/nodes/n/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-simulated-nodes" of ClusterRole "system:muster-simulated-nodes" to User "system:muster-simulated-nodes"
            PATCH /api/v1/namespaces/default/pods/p/status
                yes: RBAC: allowed by ClusterRoleBinding "system:muster-simulated-nodes" of ClusterRole "system:muster-simulated-nodes" to User "system:muster-simulated-nodes"
            POST /api/v1/namespaces/default/pods
                no: pods is forbidden: User "system:muster-simulated-nodes" cannot create resource "pods" in API group "" in the namespace "default"
        "#]],
    );
    assert_eq!(world.ask(&User::server(), "DELETE /api/v1/nodes"), "yes: a master");
}

#[tokio::test]
async fn a_node_reads_its_own_objects_and_those_its_pods_use() {
    let world = World::new().await;
    for name in ["mine", "theirs"] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": if name == "mine" { "n1" } else { "n2" },
                "serviceAccountName": name,
                "containers": [{
                    "name": "c",
                    "image": "i",
                    "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}],
                }],
                "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": name}}]}}],
            },
        });
        for kind in ["serviceaccounts", "pods"] {
            let object = if kind == "pods" { pod.clone() } else { json!({"metadata": {"name": name}}) };
            world.create("", kind, "default", object).await;
        }
    }
    world.check(
        &User::new("system:node:n1", ["system:nodes", "system:authenticated"]),
        &[
            "GET /api/v1/nodes/n1",
            "GET /api/v1/nodes/n2",
            "GET /api/v1/nodes",
            "PATCH /api/v1/nodes/n1/status",
            "DELETE /api/v1/nodes/n1",
            "GET /api/v1/pods?fieldSelector=spec.nodeName=n1&watch=1",
            "GET /api/v1/pods?fieldSelector=spec.nodeName=n2",
            "GET /api/v1/namespaces/default/pods/mine",
            "GET /api/v1/namespaces/default/pods/theirs",
            "GET /api/v1/namespaces/default/secrets/mine",
            "GET /api/v1/namespaces/default/secrets/theirs",
            "GET /api/v1/namespaces/default/secrets",
            "GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=mine&watch=1",
            "POST /api/v1/namespaces/default/serviceaccounts/mine/token",
            "POST /api/v1/namespaces/default/serviceaccounts/theirs/token",
            "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
            "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2",
            "GET /apis/coordination.k8s.io/v1/namespaces/default/leases/n1",
            "GET /api/v1/services",
            "GET /apis/apps/v1/daemonsets",
            "GET /api/v1/namespaces/kube-system",
            "GET /api/v1/namespaces/default",
            "GET /api/v1/namespaces",
            "PATCH /api/v1/namespaces/kube-system",
        ],
        &expect![[r#"
            GET /api/v1/nodes/n1
                yes: its own
            GET /api/v1/nodes/n2
                yes: RBAC: allowed by ClusterRoleBinding "muster:node-proxiers" of ClusterRole "system:node-proxier" to Group "system:nodes"
            GET /api/v1/nodes
                yes: RBAC: allowed by ClusterRoleBinding "muster:node-proxiers" of ClusterRole "system:node-proxier" to Group "system:nodes"
            PATCH /api/v1/nodes/n1/status
                yes: its own
            DELETE /api/v1/nodes/n1
                no: nodes "n1" is forbidden: User "system:node:n1" cannot delete resource "nodes" in API group "" at the cluster scope
            GET /api/v1/pods?fieldSelector=spec.nodeName=n1&watch=1
                yes: its own
            GET /api/v1/pods?fieldSelector=spec.nodeName=n2
                no: pods is forbidden: User "system:node:n1" cannot list resource "pods" in API group "" at the cluster scope: can only list/watch pods with spec.nodeName field selector
            GET /api/v1/namespaces/default/pods/mine
                yes: its own
            GET /api/v1/namespaces/default/pods/theirs
                no: pods "theirs" is forbidden: User "system:node:n1" cannot get resource "pods" in API group "" in the namespace "default": no relationship found between node 'n1' and this object
            GET /api/v1/namespaces/default/secrets/mine
                yes: its own
            GET /api/v1/namespaces/default/secrets/theirs
                no: secrets "theirs" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the namespace "default": no relationship found between node 'n1' and this object
            GET /api/v1/namespaces/default/secrets
                no: secrets is forbidden: User "system:node:n1" cannot list resource "secrets" in API group "" in the namespace "default": No Object name found
            GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=mine&watch=1
                yes: its own
            POST /api/v1/namespaces/default/serviceaccounts/mine/token
                yes: its own
            POST /api/v1/namespaces/default/serviceaccounts/theirs/token
                no: serviceaccounts "theirs" is forbidden: User "system:node:n1" cannot create resource "serviceaccounts/token" in API group "" in the namespace "default": no relationship found between node 'n1' and this object
            PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1
                yes: its own
            PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2
                no: leases.coordination.k8s.io "n2" is forbidden: User "system:node:n1" cannot patch resource "leases" in API group "coordination.k8s.io" in the namespace "kube-node-lease": can only access node lease with the same name as the requesting node
            GET /apis/coordination.k8s.io/v1/namespaces/default/leases/n1
                no: leases.coordination.k8s.io "n1" is forbidden: User "system:node:n1" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "default": can only access leases in the "kube-node-lease" system namespace
            GET /api/v1/services
                yes: its own
            GET /apis/apps/v1/daemonsets
                no: daemonsets.apps is forbidden: User "system:node:n1" cannot list resource "daemonsets" in API group "apps" at the cluster scope
            GET /api/v1/namespaces/kube-system
                yes: its own
            GET /api/v1/namespaces/default
                no: namespaces "default" is forbidden: User "system:node:n1" cannot get resource "namespaces" in API group "" in the namespace "default": can only get the namespace "kube-system"
            GET /api/v1/namespaces
                no: namespaces is forbidden: User "system:node:n1" cannot list resource "namespaces" in API group "" at the cluster scope: can only get the namespace "kube-system"
            PATCH /api/v1/namespaces/kube-system
                no: namespaces "kube-system" is forbidden: User "system:node:n1" cannot patch resource "namespaces" in API group "" in the namespace "kube-system": can only get the namespace "kube-system"
        "#]],
    );
}

#[tokio::test]
async fn one_may_ask_as_another_with_the_right_to() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scope"], "verbs": ["impersonate"]},
    ]);
    world.bind("as", "", rules, json!({"kind": "User", "name": "eve"})).await;
    let ask = |user: &User, headers: &[(&'static str, &str)]| {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        match impersonation::impersonated_user(&world.registry.access, user, &map) {
            Ok(None) => "oneself".to_owned(),
            Ok(Some(it)) => format!("{} {:?} {:?}", it.name, it.groups, it.extra),
            Err(it) => it.status()["message"].as_str().unwrap().to_owned(),
        }
    };
    let eve = someone("eve");
    let said = [
        ask(&eve, &[]),
        ask(&eve, &[("impersonate-user", "ann")]),
        ask(
            &eve,
            &[("impersonate-user", "ann"), ("impersonate-group", "dev"), ("impersonate-extra-scope", "a")],
        ),
        ask(&eve, &[("impersonate-user", "ann"), ("impersonate-group", "system:masters")]),
        ask(&eve, &[("impersonate-user", "bob")]),
        ask(&eve, &[("impersonate-group", "dev")]),
        ask(&User::server(), &[("impersonate-user", "system:serviceaccount:default:bot")]),
        ask(&User::server(), &[("impersonate-user", "system:anonymous")]),
    ];
    expect![[r#"
        oneself
        ann ["system:authenticated"] {}
        ann ["dev", "system:authenticated"] {"scope": ["a"]}
        groups "system:masters" is forbidden: User "eve" cannot impersonate resource "groups" in API group "" at the cluster scope
        users "bob" is forbidden: User "eve" cannot impersonate resource "users" in API group "" at the cluster scope
        requested groups, extra or uid without impersonating a user: send Impersonate-User too
        system:serviceaccount:default:bot ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"] {}
        system:anonymous ["system:unauthenticated"] {}"#]].assert_eq(&said.join("\n"));
}

/// Two servers that share a store begin at the same time: each finds nothing and creates all default objects.
#[tokio::test]
async fn default_roles_are_created_by_two_servers_at_once() {
    let world = World { registry: Registry::new(100), now: NOW.parse().unwrap() };
    let ensure = || cluster_roles::ensure_default_roles(&world.registry, world.now);
    let (one, other) = tokio::join!(ensure(), ensure());
    one.unwrap();
    other.unwrap();
}

#[tokio::test]
async fn a_second_start_changes_nothing_and_restores_missing_roles() {
    let world = World::new().await;
    let before = world.registry.storage.revision();
    cluster_roles::ensure_default_roles(&world.registry, world.now).await.unwrap();
    assert_eq!(world.registry.storage.revision(), before);

    let kind = Kind::builtin(API_GROUP_RBAC, "v1", "clusterroles");
    let target = |name: &str| crate::request::RequestTarget {
        kind,
        namespace: None,
        name: name.to_owned(),
        subresource: crate::subresource::Subresource::Whole,
    };
    let context = RequestContext::for_server("update", world.now);
    let spoil = |role: &Value| {
        let mut role = role.clone();
        role["rules"] = json!([{"apiGroups": ["x"], "resources": ["y"], "verbs": ["z"]}]);
        Ok(role)
    };
    world.registry.update(&context, &target("system:basic-user"), spoil).await.unwrap();
    world.registry.update(&context, &target("view"), spoil).await.unwrap();
    cluster_roles::ensure_default_roles(&world.registry, world.now).await.unwrap();
    let rules = |name: &str| {
        let role = unstructured::parse_stored(&world.registry.storage.find(kind, None, name).unwrap());
        PolicyRule::parse_list(&role["rules"]).iter().map(PolicyRule::format_compact).collect::<Vec<_>>()
    };
    expect![[r#"
        {APIGroups:["x"], Resources:["y"], Verbs:["z"]}
        {APIGroups:["authorization.k8s.io"], Resources:["selfsubjectaccessreviews"], Verbs:["create"]}
        {APIGroups:["authorization.k8s.io"], Resources:["selfsubjectrulesreviews"], Verbs:["create"]}
        {APIGroups:["authentication.k8s.io"], Resources:["selfsubjectreviews"], Verbs:["create"]}"#]]
    .assert_eq(&rules("system:basic-user").join("\n"));
    assert_eq!(rules("view").len(), 10);
}

#[tokio::test]
async fn roles_for_rollouts_are_part_of_view_edit_and_admin() {
    let world = World::new().await;
    let kind = Kind::builtin(API_GROUP_RBAC, "v1", "clusterroles");
    let mut said = Vec::new();
    for name in ["view", "edit", "admin"] {
        let role = unstructured::parse_stored(&world.registry.storage.find(kind, None, name).unwrap());
        let rules = unstructured::list_at(&role, "rules")
            .iter()
            .filter(|it| it["apiGroups"] == json!(["muster.dev"]));
        said.extend(rules.map(|it| format!("{name} {} {}", it["resources"], it["verbs"])));
    }
    expect![[r#"
        view ["clusterrolloutpolicies","daemonrollouts","rolloutpolicies"] ["get","list","watch"]
        edit ["clusterrolloutpolicies","daemonrollouts","rolloutpolicies"] ["get","list","watch"]
        edit ["daemonrollouts"] ["create","delete","patch","update"]
        admin ["clusterrolloutpolicies","daemonrollouts","rolloutpolicies"] ["get","list","watch"]
        admin ["daemonrollouts"] ["create","delete","patch","update"]
        admin ["clusterrolloutpolicies","daemonrollouts","rolloutpolicies"] ["create","delete","deletecollection","get","list","patch","update","watch"]"#]].assert_eq(&said.join("\n"));
}
