//! What may be given away, and what a node may write.

use expect_test::expect;

use super::*;
use crate::admission::{node_restriction, rbac_escalation};
use crate::auth::reviews;
use crate::request::RequestTarget;
use crate::subresource::Subresource;

fn target(group: &str, plural: &str, namespace: &str, name: &str) -> RequestTarget {
    let kind = Kind::builtin(group, "v1", plural);
    let namespace = Some(namespace).filter(|it| !it.is_empty()).map(str::to_owned);
    RequestTarget { kind, namespace, name: name.to_owned(), subresource: Subresource::Whole }
}

/// A merge patch, as far as these tests need one.
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(changes) = change else {
        *object = change.clone();
        return;
    };
    for (name, change) in changes {
        match change {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            change => merge(&mut object[name], change),
        }
    }
}

fn said(checked: Result<(), ApiError>) -> String {
    checked.map_or_else(|it| it.message().to_owned(), |()| "ok".to_owned())
}

#[tokio::test]
async fn users_cannot_grant_permissions_they_lack() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [API_GROUP_RBAC], "resources": ["clusterroles"], "resourceNames": ["edit"], "verbs": ["bind"]},
        {"apiGroups": [API_GROUP_RBAC], "resources": ["roles"], "resourceNames": ["free"], "verbs": ["escalate"]},
    ]);
    world.bind("some", "default", rules, json!({"kind": "User", "name": "eve"})).await;
    let eve = someone("eve");
    let role = |name: &str, rules: Value, old: Option<&Value>| {
        let object = json!({"metadata": {"name": name}, "rules": rules});
        let target = target(API_GROUP_RBAC, "roles", "default", name);
        said(rbac_escalation::check_rbac_write(&world.registry.access, &eve, &target, &object, old))
    };
    let binding = |role: &str| {
        let object = json!({"roleRef": {"apiGroup": API_GROUP_RBAC, "kind": "ClusterRole", "name": role}});
        let target = target(API_GROUP_RBAC, "rolebindings", "default", "b");
        said(rbac_escalation::check_rbac_write(&world.registry.access, &eve, &target, &object, None))
    };
    let pods = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let gathered = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": []});
    let lines = [
        role("r", pods("get"), None),
        role("r", pods("delete"), None),
        role("free", pods("delete"), Some(&json!({}))),
        role("free", pods("delete"), None),
        role(
            "r",
            pods("delete"),
            Some(&json!({"metadata": {"name": "r", "finalizers": ["a"]}, "rules": pods("delete")})),
        ),
        binding("edit"),
        binding("system:basic-user"),
        binding("cluster-admin").split('{').next().unwrap().to_owned(),
        binding("nothing"),
        said(rbac_escalation::check_rbac_write(
            &world.registry.access,
            &eve,
            &target(API_GROUP_RBAC, "clusterroles", "", "g"),
            &gathered,
            None,
        )),
        said(rbac_escalation::check_rbac_write(
            &world.registry.access,
            &User::server(),
            &target(API_GROUP_RBAC, "clusterroles", "", "g"),
            &gathered,
            None,
        )),
    ];
    expect![[r#"
        ok
        roles.rbac.authorization.k8s.io "r" is forbidden: user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
        {APIGroups:[""], Resources:["pods"], Verbs:["delete"]}
        ok
        roles.rbac.authorization.k8s.io "free" is forbidden: user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
        {APIGroups:[""], Resources:["pods"], Verbs:["delete"]}
        ok
        ok
        ok
        rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:

        clusterroles.rbac.authorization.k8s.io "nothing" not found
        clusterroles.rbac.authorization.k8s.io "g" is forbidden: must have cluster-admin privileges to use the aggregationRule
        ok"#]].assert_eq(&lines.join("\n"));
}

#[tokio::test]
async fn a_node_writes_only_its_own_objects() {
    let world = World::new().await;
    for node in ["n1", "n2"] {
        let pod = json!({
            "metadata": {"name": format!("on-{node}")},
            "spec": {
                "nodeName": node,
                "serviceAccountName": "default",
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
            },
        });
        world.create("", "pods", "default", pod).await;
        world.create("", "nodes", "", json!({"metadata": {"name": node}})).await;
    }
    let n1 = User::new("system:node:n1", ["system:nodes", "system:authenticated"]);
    let check = |target: &RequestTarget, subresource: &str, write: node_restriction::NodeWrite<'_>| {
        said(node_restriction::check_node_write(&world.registry.access, &n1, target, subresource, write))
    };
    let read = |target: &RequestTarget| {
        unstructured::parse_stored(
            &world.registry.storage.find(target.kind, target.namespace.as_deref(), &target.name).unwrap(),
        )
    };
    let (mine, theirs) = (target("", "pods", "default", "on-n1"), target("", "pods", "default", "on-n2"));
    let status = |target: &RequestTarget| {
        let old = read(target);
        let mut new = old.clone();
        new["status"]["phase"] = json!("Running");
        check(target, "status", node_restriction::NodeWrite::Update { new: &new, old: &old })
    };
    let (one, two) = (target("", "nodes", "", "n1"), target("", "nodes", "", "n2"));
    let node = |target: &RequestTarget, change: Value| {
        let old = read(target);
        let mut new = old.clone();
        merge(&mut new, &change);
        check(target, "", node_restriction::NodeWrite::Update { new: &new, old: &old })
    };
    let token = |pod: &str, audience: &[&str]| {
        let uid = read(&target("", "pods", "default", pod))["metadata"]["uid"].clone();
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
        let request = json!({"spec": {"boundObjectRef": bound, "audiences": audience}});
        let target = target("", "serviceaccounts", "default", "default");
        check(&target, "token", node_restriction::NodeWrite::Create { new: &request })
    };
    let lease = |namespace: &str, name: &str| {
        let lease = json!({"metadata": {"name": name}});
        let target = target("coordination.k8s.io", "leases", namespace, "");
        check(&target, "", node_restriction::NodeWrite::Create { new: &lease })
    };
    let mirror = |change: Value| {
        let uid = read(&one)["metadata"]["uid"].clone();
        let mut pod = json!({
            "metadata": {
                "name": "m",
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true}],
            },
            "spec": {"nodeName": "n1"},
        });
        merge(&mut pod, &change);
        check(&target("", "pods", "default", ""), "", node_restriction::NodeWrite::Create { new: &pod })
    };
    let lines = [
        status(&mine),
        status(&theirs),
        check(&mine, "", node_restriction::NodeWrite::Delete),
        check(&theirs, "", node_restriction::NodeWrite::Delete),
        check(&theirs, "eviction", node_restriction::NodeWrite::Create { new: &json!({}) }),
        check(&mine, "", node_restriction::NodeWrite::Update { new: &read(&mine), old: &read(&mine) }),
        mirror(json!({})),
        mirror(json!({"metadata": {"annotations": null}})),
        mirror(json!({"spec": {"nodeName": "n2"}})),
        mirror(json!({"metadata": {"ownerReferences": null}})),
        mirror(json!({"spec": {"volumes": [{"name": "s", "secret": {"secretName": "s"}}]}})),
        mirror(json!({"spec": {"volumes": [{"name": "s", "flexVolume": {"secretRef": {"name": "s"}}}]}})),
        mirror(json!({"spec": {"imagePullSecrets": [{"name": "s"}]}})),
        mirror(json!({"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}})),
        mirror(json!({"spec": {"initContainers": [{"env": [
            {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}]}]}})),
        mirror(json!({"spec": {"serviceAccountName": "default"}})),
        mirror(json!({"spec": {"volumes": [{"name": "s", "projected": {"sources": []}}]}})),
        node(&one, json!({"metadata": {"labels": {"mine": "1", "kubernetes.io/hostname": "n1"}}})),
        node(&one, json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "1"}}})),
        node(&one, json!({"metadata": {"labels": {"kubernetes.io/role": "master"}}})),
        node(&one, json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})),
        node(&two, json!({"metadata": {"labels": {"mine": "1"}}})),
        lease("kube-node-lease", "n1"),
        lease("kube-node-lease", "n2"),
        lease("default", "n1"),
        token("on-n1", &[]),
        token("on-n1", &["vault"]),
        token("on-n2", &[]),
        check(
            &target("", "serviceaccounts", "default", "default"),
            "token",
            node_restriction::NodeWrite::Create { new: &json!({}) },
        ),
    ];
    expect![[r#"
        ok
        pods "on-n2" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself
        ok
        pods "on-n2" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself
        pods "on-n2" is forbidden: node n1 can only evict pods with spec.nodeName set to itself
        pods "on-n1" is forbidden: unexpected operation "UPDATE", node "n1" can only create and delete mirror pods
        ok
        pods "m" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods
        pods "m" is forbidden: node "n1" can only create pods with spec.nodeName set to itself
        pods "m" is forbidden: node "n1" can only create pods with an owner reference set to itself
        pods "m" is forbidden: node "n1" can not create pods that reference secrets
        pods "m" is forbidden: node "n1" can not create pods that reference secrets
        pods "m" is forbidden: node "n1" can not create pods that reference secrets
        pods "m" is forbidden: node "n1" can not create pods that reference secrets
        pods "m" is forbidden: node "n1" can not create pods that reference configmaps
        pods "m" is forbidden: node "n1" can not create pods that reference serviceaccountname
        pods "m" is forbidden: node "n1" can not create pods that reference projecteds
        ok
        nodes "n1" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x
        nodes "n1" is forbidden: is not allowed to modify labels: kubernetes.io/role
        nodes "n1" is forbidden: node "n1" is not allowed to modify taints
        nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"
        ok
        leases.coordination.k8s.io "n2" is forbidden: can only access node lease with the same name as the requesting node
        leases.coordination.k8s.io "n1" is forbidden: can only access leases in the "kube-node-lease" system namespace
        ok
        serviceaccounts "default" is forbidden: audience "vault" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience
        serviceaccounts "default" is forbidden: node requested token bound to a pod scheduled on a different node
        serviceaccounts "default" is forbidden: node requested token not bound to a pod"#]].assert_eq(&lines.join("\n"));
    let all = node_restriction::check_node_write(
        &world.registry.access,
        &User::server(),
        &theirs,
        "",
        node_restriction::NodeWrite::Delete,
    );
    assert_eq!(said(all), "ok", "only nodes are restricted");
}

#[tokio::test]
async fn reviews_of_access() {
    let world = World::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    world.bind("some", "default", rules, json!({"kind": "User", "name": "eve"})).await;
    let eve = someone("eve");
    let context = RequestContext::new(eve.clone(), "create", world.now);
    // The rows of the reviews are not needed to answer them: any kind of the cluster, or of a namespace, will do.
    let (of_cluster, of_namespace) = (target("", "nodes", "", ""), target("", "pods", "default", ""));
    let status = |answer: Result<Value, ApiError>| {
        answer.map_or_else(|it| it.message().to_owned(), |it| it["status"].to_string())
    };
    let pods = |namespace: &str| json!({"verb": "get", "resource": "pods", "namespace": namespace});
    let own = |spec: Value| {
        status(reviews::review_own_access(
            &world.registry.access,
            &context,
            &of_cluster,
            json!({"spec": spec}),
        ))
    };
    let of = |target: &RequestTarget, spec: Value| {
        status(reviews::review_access(&world.registry.access, target, json!({"spec": spec})))
    };
    let lines = [
        own(json!({"resourceAttributes": pods("default")})),
        own(json!({"resourceAttributes": pods("kube-system")})),
        own(json!({"nonResourceAttributes": {"path": "/api", "verb": "get"}})),
        own(json!({})),
        of(&of_cluster, json!({"user": "eve", "resourceAttributes": pods("default")})),
        of(&of_cluster, json!({"groups": ["system:masters"], "resourceAttributes": pods("default")})),
        of(&of_cluster, json!({"resourceAttributes": pods("default")})),
        of(&of_namespace, json!({"user": "eve", "resourceAttributes": pods("kube-system")})),
        status(reviews::review_own_rules(
            &world.registry.access,
            &context,
            json!({"spec": {"namespace": "default"}}),
        )),
    ];
    expect![[r#"
        {"allowed":true,"reason":"RBAC: allowed by RoleBinding \"some/default\" of Role \"some\" to User \"eve\""}
        {"allowed":false}
        {"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\""}
        Node "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified
        {"allowed":true,"reason":"RBAC: allowed by RoleBinding \"some/default\" of Role \"some\" to User \"eve\""}
        {"allowed":true}
        Node "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified
        Pod "" is invalid: spec.resourceAttributes.namespace: Invalid value: "kube-system": must match metadata.namespace
        {"incomplete":false,"nonResourceRules":[{"nonResourceURLs":["/api","/api/*","/apis","/apis/*","/healthz","/livez","/openapi","/openapi/*","/readyz","/version","/version/"],"verbs":["get"]},{"nonResourceURLs":["/healthz","/livez","/readyz","/version","/version/"],"verbs":["get"]}],"resourceRules":[{"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectaccessreviews","selfsubjectrulesreviews"],"verbs":["create"]},{"apiGroups":["authentication.k8s.io"],"resources":["selfsubjectreviews"],"verbs":["create"]},{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#]].assert_eq(&lines.join("\n"));
}
