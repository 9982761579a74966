//! Pod Security admission as clients see it: refusals, warnings, and what the audit log holds.

use std::collections::BTreeMap;

use super::*;
use crate::PodSecurityConfiguration;
use crate::audit::AuditLog;

const NAMESPACES: &str = "/api/v1/namespaces";

/// Code, message, and the warnings.
async fn ask(server: &Server, user: &User, method: &str, path: &str, body: &Value) -> String {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { JSON_MEDIA_TYPE };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, media_type)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = server.handle(Some(user), request).await;
    let mut lines = response.status().as_u16().to_string();
    let warnings: Vec<_> = response.headers().get_all("warning").iter().cloned().collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    if body["kind"] == "Status" {
        lines += &format!(" {} {}", str_at(&body, "reason"), str_at(&body, "message"));
    }
    for warning in warnings {
        let text = warning.to_str().unwrap().trim_start_matches("299 - ").replace("\\\"", "'");
        lines += &format!("\n  Warning: {text}");
    }
    lines + "\n"
}

impl Server {
    async fn ask(&self, method: &str, path: &str, body: &Value) -> String {
        ask(self, &User::server(), method, path, body).await
    }

    async fn namespace(&self, name: &str, labels: &[(&str, &str)]) -> String {
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value)).collect();
        let answer =
            self.ask("POST", NAMESPACES, &json!({"metadata": {"name": name, "labels": labels}})).await;
        let account = json!({"metadata": {"name": "default"}});
        self.ask("POST", &format!("{NAMESPACES}/{name}/serviceaccounts"), &account).await;
        answer
    }

    async fn relabel(&self, name: &str, labels: &[(&str, Option<&str>)]) -> String {
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value)).collect();
        self.ask("PATCH", &format!("{NAMESPACES}/{name}"), &json!({"metadata": {"labels": labels}})).await
    }
}

fn pods(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/pods")
}

fn privileged(name: &str) -> Value {
    let mut pod = pod(name, "");
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    pod
}

#[tokio::test]
async fn pods_that_violate_the_enforce_level_are_refused() {
    let server = Server::new().await;
    let mut said = server.namespace("a", &[("enforce", "baseline"), ("warn", "restricted")]).await;
    said += &server.ask("POST", &pods("a"), &pod("plain", "")).await;
    said += &server.ask("POST", &pods("a"), &privileged("root")).await;
    said += &server.ask("POST", &format!("{}?dryRun=All", pods("a")), &privileged("root")).await;
    said += &server.ask("POST", &pods("default"), &privileged("root")).await;
    let mut generated = privileged("");
    generated["metadata"] = json!({"generateName": "made-"});
    let refused = server.ask("POST", &pods("a"), &generated).await;
    assert!(refused.starts_with("403 Forbidden pods \"made-"), "{refused}");
    assert!(!refused.contains("\"made-\""), "the message has the generated name: {refused}");
    expect![[r#"
        201
        201
          Warning: "would violate PodSecurity 'restricted:latest': allowPrivilegeEscalation != false (container 'c' must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container 'c' must set securityContext.capabilities.drop=['ALL']), runAsNonRoot != true (pod or container 'c' must set securityContext.runAsNonRoot=true), seccompProfile (pod or container 'c' must set securityContext.seccompProfile.type to 'RuntimeDefault' or 'Localhost')"
        403 Forbidden pods "root" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)
        403 Forbidden pods "root" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)
        201
    "#]].assert_eq(&said);
    let (_, list) = server.get(&pods("a")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn updates_are_checked_when_an_image_changes_or_an_ephemeral_container_comes() {
    let server = Server::new().await;
    server.namespace("a", &[]).await;
    for mut pod in [privileged("root"), pod("plain", "")] {
        // No token is mounted, so that a patch can replace the containers.
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        server.ask("POST", &pods("a"), &pod).await;
    }
    server.relabel("a", &[("enforce", Some("baseline"))]).await;
    let at = |name: &str| format!("{}/{name}", pods("a"));
    let containers = |security: Value| json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "securityContext": security}]}});
    let mut said = String::new();
    said += &server.ask("PATCH", &at("root"), &json!({"metadata": {"labels": {"x": "y"}}})).await;
    said += &server.ask("PATCH", &at("root"), &json!({"spec": {"activeDeadlineSeconds": 9}})).await;
    said += &server
        .ask("PATCH", &format!("{}/status", at("root")), &json!({"status": {"phase": "Running"}}))
        .await;
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other", "securityContext": {"privileged": true}}]}});
    said += &server.ask("PATCH", &at("root"), &image).await;
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    said += &server.ask("PATCH", &at("plain"), &image).await;
    let ephemeral = format!("{}/ephemeralcontainers", at("plain"));
    said += &server.ask("PATCH", &ephemeral, &containers(json!({"privileged": true}))).await;
    said += &server.ask("PATCH", &ephemeral, &containers(json!({}))).await;
    said += &server.ask("DELETE", &format!("{}?gracePeriodSeconds=0", at("root")), &json!({})).await;
    expect![[r#"
        200
        200
        200
        403 Forbidden pods "root" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)
        200
        403 Forbidden pods "plain" is forbidden: violates PodSecurity "baseline:latest": privileged (container "e" must not set securityContext.privileged=true)
        200
        200
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn templates_are_warned_about_and_never_refused() {
    let server = Server::new().await;
    server.namespace("a", &[("enforce", "restricted"), ("enforce-version", "v1.24")]).await;
    server.namespace("quiet", &[("enforce", "restricted"), ("warn", "privileged")]).await;
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}]},
    });
    let set = json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let mut said = String::new();
    let sets = |group: &str, namespace: &str| format!("/apis/{group}/namespaces/{namespace}/daemonsets");
    said += &server.ask("POST", &sets("apps/v1", "a"), &set).await;
    said += &server.ask("POST", &format!("{}?dryRun=All", sets("extensions/v1beta1", "quiet")), &set).await;
    said += &server.ask("POST", &sets("apps/v1", "quiet"), &set).await;
    let path = format!("{}/d", sets("apps/v1", "a"));
    said += &server.ask("PATCH", &path, &json!({"spec": {"template": {"spec": {"hostPID": false}}}})).await;
    said += &server.ask("PATCH", &format!("{path}/status"), &json!({"status": {"numberReady": 1}})).await;
    let template = json!({"metadata": {"name": "t"}, "template": template});
    said += &server.ask("POST", &format!("{NAMESPACES}/a/podtemplates"), &template).await;
    expect![[r#"
        201
          Warning: "would violate PodSecurity 'restricted:v1.24': host namespaces (hostPID=true), allowPrivilegeEscalation != false (container 'c' must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container 'c' must set securityContext.capabilities.drop=['ALL']), runAsNonRoot != true (pod or container 'c' must set securityContext.runAsNonRoot=true), seccompProfile (pod or container 'c' must set securityContext.seccompProfile.type to 'RuntimeDefault' or 'Localhost')"
        201
        201
        200
          Warning: "would violate PodSecurity 'restricted:v1.24': allowPrivilegeEscalation != false (container 'c' must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container 'c' must set securityContext.capabilities.drop=['ALL']), runAsNonRoot != true (pod or container 'c' must set securityContext.runAsNonRoot=true), seccompProfile (pod or container 'c' must set securityContext.seccompProfile.type to 'RuntimeDefault' or 'Localhost')"
        200
        201
          Warning: "would violate PodSecurity 'restricted:v1.24': host namespaces (hostPID=true), allowPrivilegeEscalation != false (container 'c' must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container 'c' must set securityContext.capabilities.drop=['ALL']), runAsNonRoot != true (pod or container 'c' must set securityContext.runAsNonRoot=true), seccompProfile (pod or container 'c' must set securityContext.seccompProfile.type to 'RuntimeDefault' or 'Localhost')"
    "#]].assert_eq(&said);
}

#[tokio::test]
async fn a_stricter_namespace_warns_about_its_pods_and_keeps_them() {
    let server = Server::new().await;
    server.namespace("a", &[]).await;
    for name in ["root-3", "root-1", "root-2"] {
        server.ask("POST", &pods("a"), &privileged(name)).await;
    }
    for name in ["plain-2", "plain-1"] {
        server.ask("POST", &pods("a"), &pod(name, "")).await;
    }
    let mut host = pod("host", "");
    host["spec"]["hostNetwork"] = json!(true);
    server.ask("POST", &pods("a"), &host).await;
    let mut said = String::new();
    said += &server.relabel("a", &[("warn", Some("restricted")), ("audit", Some("restricted"))]).await;
    said += &server.relabel("a", &[("enforce", Some("baseline"))]).await;
    said +=
        &server.relabel("a", &[("enforce", Some("restricted")), ("enforce-version", Some("v1.20"))]).await;
    said += "the same again, other labels, a looser level: ";
    said += &server.relabel("a", &[("enforce", Some("restricted"))]).await;
    said +=
        &server.ask("PATCH", &format!("{NAMESPACES}/a"), &json!({"metadata": {"labels": {"x": "y"}}})).await;
    said += &server.relabel("a", &[("enforce", Some("baseline"))]).await;
    said += "another version: ";
    said += &server.relabel("a", &[("enforce-version", Some("latest"))]).await;
    said += "privileged, and in a dry run strict: ";
    said += &server.relabel("a", &[("enforce", None), ("enforce-version", None)]).await;
    let patch = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    said += &server.ask("PATCH", &format!("{NAMESPACES}/a?dryRun=All"), &patch).await;
    expect![[r#"
        200
        200
          Warning: "existing pods in namespace 'a' violate the new PodSecurity enforce level 'baseline:latest'"
          Warning: "host: host namespaces"
          Warning: "root-1 (and 2 other pods): privileged"
        200
          Warning: "existing pods in namespace 'a' violate the new PodSecurity enforce level 'restricted:v1.20'"
          Warning: "host: host namespaces, allowPrivilegeEscalation != false, runAsNonRoot != true, seccompProfile"
          Warning: "plain-1 (and 1 other pod): allowPrivilegeEscalation != false, runAsNonRoot != true, seccompProfile"
          Warning: "root-1 (and 2 other pods): privileged, allowPrivilegeEscalation != false, runAsNonRoot != true, seccompProfile"
        the same again, other labels, a looser level: 200
        200
        200
        another version: 200
          Warning: "existing pods in namespace 'a' violate the new PodSecurity enforce level 'baseline:latest'"
          Warning: "host: host namespaces"
          Warning: "root-1 (and 2 other pods): privileged"
        privileged, and in a dry run strict: 200
        200
          Warning: "existing pods in namespace 'a' violate the new PodSecurity enforce level 'baseline:latest'"
          Warning: "host: host namespaces"
          Warning: "root-1 (and 2 other pods): privileged"
    "#]]
    .assert_eq(&said);
    let (_, list) = server.get(&pods("a")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(6));
}

#[tokio::test]
async fn labels_that_cannot_be_read_are_refused() {
    let server = Server::new().await;
    let mut said = server.namespace("a", &[("enforce", "none"), ("warn-version", "1.30")]).await;
    server.namespace("b", &[]).await;
    said += &server.relabel("b", &[("audit", Some("Restricted"))]).await;
    said += &server.relabel("b", &[("audit", Some("restricted"))]).await;
    expect![[r#"
        422 Invalid Namespace "a" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.30": must be "latest" or "v1.x"]
        422 Invalid Namespace "b" is invalid: metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: "Restricted": must be one of privileged, baseline, restricted
        200
    "#]].assert_eq(&said);
}

#[tokio::test]
async fn defaults_and_exemptions_are_those_of_the_flags() {
    let settings = |namespaces: &[&str], users: &[&str]| PodSecurityConfiguration {
        enforce: "baseline".parse().unwrap(),
        audit: "privileged".parse().unwrap(),
        warn: "baseline".parse().unwrap(),
        exempt_namespaces: namespaces.iter().map(ToString::to_string).collect(),
        exempt_users: users.iter().map(ToString::to_string).collect(),
        exempt_runtime_classes: vec!["vm".into()],
    };
    let server = Server::new().await;
    let memory = &server.api.registry.admission.pod_security;
    expect![[r#"invalid namespace name "A b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]].assert_eq(&memory.set_configuration(settings(&["A b"], &[])).unwrap_err());
    for it in server.registries() {
        it.admission.pod_security.set_configuration(settings(&["free"], &["ann"])).unwrap();
    }
    let mut said = server.ask("POST", PODS, &privileged("p")).await;
    let ann = User::new("ann", ["system:masters"]);
    said += &ask(&server, &ann, "POST", PODS, &privileged("by-ann")).await;
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm"});
    said += &server.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    let mut isolated = privileged("isolated");
    isolated["spec"]["runtimeClassName"] = json!("vm");
    said += &server.ask("POST", PODS, &isolated).await;
    said += "exempt namespace: ";
    said += &server.namespace("free", &[("enforce", "restricted"), ("audit", "baseline")]).await;
    said += &server.ask("POST", &pods("free"), &privileged("p")).await;
    said += &server.relabel("free", &[("enforce-version", Some("v1.30"))]).await;
    said += "a label replaces the default: ";
    said += &server.namespace("loose", &[("enforce", "privileged"), ("warn", "privileged")]).await;
    said += &server.ask("POST", &pods("loose"), &privileged("p")).await;
    said += "runtime class of existing pods: ";
    said += &server.relabel("default", &[("enforce", Some("restricted"))]).await;
    expect![[r#"
        403 Forbidden pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)
        201
        201
        201
        exempt namespace: 201
          Warning: "namespace 'free' is exempt from Pod Security, and the policy (enforce=restricted:latest, audit=baseline:latest) will be ignored"
        201
        200
          Warning: "namespace 'free' is exempt from Pod Security, and the policy (enforce=restricted:v1.30, audit=baseline:latest) will be ignored"
        a label replaces the default: 201
        201
        runtime class of existing pods: 200
          Warning: "existing pods in namespace 'default' violate the new PodSecurity enforce level 'restricted:latest'"
          Warning: "by-ann: privileged, allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"
    "#]].assert_eq(&said);
    let metrics = server.api.metrics_text();
    let lines: Vec<_> = metrics.lines().filter(|it| it.starts_with("pod_security")).collect();
    let mut lines: Vec<_> = lines.into_iter().map(str::to_owned).collect();
    lines.sort();
    expect![[r#"
        pod_security_evaluations_total{decision="allow",policy_level="privileged",policy_version="latest",mode="enforce",request_operation="create",resource="pod",subresource=""} 1
        pod_security_evaluations_total{decision="deny",policy_level="baseline",policy_version="latest",mode="enforce",request_operation="create",resource="pod",subresource=""} 1
        pod_security_exemptions_total{request_operation="create",resource="pod",subresource=""} 3"#]].assert_eq(&lines.join("\n"));
}

#[tokio::test]
async fn the_audit_log_holds_the_policy_and_its_violations() {
    let mut server = Server::new().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    server.api.audit = Some(Arc::new(AuditLog::open(&path).unwrap()));
    server.namespace("a", &[("enforce", "baseline"), ("audit", "restricted")]).await;
    let mut compliant = pod("ok", "");
    compliant["spec"]["securityContext"] =
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    compliant["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    server.ask("POST", &pods("a"), &compliant).await;
    server.ask("POST", &pods("a"), &pod("plain", "")).await;
    server.ask("POST", &pods("a"), &privileged("root")).await;
    server.ask("POST", PODS, &privileged("root")).await;
    drop(server.api.audit.take());
    let log = std::fs::read_to_string(&path).unwrap();
    let mut said = String::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        writeln!(said, "{} {}", event["requestURI"], event["responseStatus"]["code"]).unwrap();
        for (key, value) in event["annotations"].as_object().unwrap() {
            if let Some(key) = key.strip_prefix("pod-security.kubernetes.io/") {
                writeln!(said, "  {key}: {}", value.as_str().unwrap()).unwrap();
            }
        }
    }
    expect![[r#"
        "/api/v1/namespaces" 201
        "/api/v1/namespaces/a/serviceaccounts" 201
        "/api/v1/namespaces/a/pods" 201
          enforce-policy: baseline:latest
        "/api/v1/namespaces/a/pods" 201
          audit-violations: would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
          enforce-policy: baseline:latest
        "/api/v1/namespaces/a/pods" 403
          audit-violations: would violate PodSecurity "restricted:latest": privileged (container "c" must not set securityContext.privileged=true), allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
          enforce-policy: baseline:latest
        "/api/v1/namespaces/default/pods" 201
          enforce-policy: privileged:latest
    "#]]
    .assert_eq(&said);
}

/// What kube-apiserver 1.36.4 answered to generated pods, at both levels and at every version that changed a control. Each line
/// is a pod with rows of level, first version, last version and the message; it is empty where the pod was admitted.
const UPSTREAM: &str = include_str!("pod_security.jsonl");

#[tokio::test]
async fn every_generated_pod_gets_the_answer_of_kube_apiserver() {
    let server = Server::new().await;
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in UPSTREAM.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let pod = &case["pod"];
        for row in case["answers"].as_array().unwrap() {
            let [level, from, to, message] = [0, 1, 2, 3].map(|at| row[at].as_str().unwrap());
            for version in if from == to { vec![from] } else { vec![from, to] } {
                let namespace = format!("{level}-{}", version.replace('.', "-"));
                if server.get(&format!("{NAMESPACES}/{namespace}")).await.0 == 404 {
                    server.namespace(&namespace, &[("enforce", level), ("enforce-version", version)]).await;
                }
                let (code, answer) =
                    server.json("POST", &format!("{}?dryRun=All", pods(&namespace)), pod.clone()).await;
                count += 1;
                let (wanted, wanted_code) = if message.is_empty() {
                    (String::new(), 201)
                } else {
                    (format!("{}{message}", prefix(pod, level, version)), 403)
                };
                if code != wanted_code || code == 403 && str_at(&answer, "message") != wanted {
                    wrong.push(format!(
                        "{level}:{version} {pod}\n  ours: {code} {}\n  theirs: {wanted_code} {wanted}",
                        str_at(&answer, "message")
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} answers differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(1_500 < count, "only {count} answers were compared");
}

fn prefix(pod: &Value, level: &str, version: &str) -> String {
    format!(
        "pods \"{}\" is forbidden: violates PodSecurity \"{level}:{version}\": ",
        str_at(pod, "metadata.name")
    )
}
