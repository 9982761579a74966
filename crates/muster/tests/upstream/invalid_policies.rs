//! Invalid objects of muster.dev: kube-apiserver, which has the CustomResourceDefinitions, refuses the same ones as
//! Muster's own server, and names the same fields.

use std::collections::BTreeSet;

use http::Method;
use kube::Client;
use regex::Regex;
use serde_json::{Value, json};

use crate::agreement_cases::{Case, cases_of_long_lists, listed_cases};
use crate::bed::{DaemonSetController, POLICIES, ROLLOUTS, UpstreamCluster, binaries, connect, send};

/// The field of the cause with which kube-apiserver says that it evaluated no CEL rules, because the schema refused the
/// object already.
const NO_FIELD: &str = "<nil>";

const CLUSTER_POLICIES: &str = "/apis/muster.dev/v1alpha1/clusterrolloutpolicies";

/// An answer to a create or update: the HTTP status code, the paths of the invalid fields, and the message.
#[derive(Debug)]
struct Answer {
    code: u64,
    fields: BTreeSet<String>,
    message: String,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn both_servers_refuse_the_same_objects_with_the_same_fields() {
    let cluster = UpstreamCluster::start("invalid", DaemonSetController::Muster, 0).await;
    let muster = binaries::Muster::up("upstream-invalid", 0);
    let ours = connect(&muster.kubeconfig()).await;
    for client in [&cluster.client, &ours] {
        // The objects whose status is replaced.
        for (path, kind) in [(POLICIES, "RolloutPolicy"), (ROLLOUTS, "DaemonRollout")] {
            let stored = object(kind, "stored", "spec", base_spec(kind));
            send(client, Method::POST, path, &stored).await.unwrap();
        }
    }
    let mut differences = Vec::new();
    let mut refused = 0;
    for case in listed_cases().chain(cases_of_long_lists()) {
        let (upstream, ours) = (answer(&cluster.client, &case).await, answer(&ours, &case).await);
        refused += usize::from(upstream.code == 422);
        let is_accepted = |it: &Answer| it.code < 300;
        let are_right = is_accepted(&upstream) == case.is_valid && is_accepted(&ours) == case.is_valid;
        if !are_right || !names_the_same_fields(&upstream, &ours) {
            differences.push(format!(
                "{} {}\n  kube-apiserver: {upstream:?}\n  muster: {ours:?}",
                case.what, case.content
            ));
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    assert!(300 < refused, "only {refused} cases were refused");
    muster.stop();
}

/// Whether both answers name the same fields. kube-apiserver names the field that has a CEL rule, and the item of a
/// list with keys; Muster names the field inside it. Muster refuses a value of the wrong JSON type when it decodes the
/// object, as kube-apiserver does for built-in kinds: the message has the path without the indices of list items.
fn names_the_same_fields(upstream: &Answer, ours: &Answer) -> bool {
    if ours.code == 400 {
        let index = Regex::new(r"\[\d+\]").unwrap();
        let is_named = |field: &String| ours.message.contains(&*index.replace_all(field, ""));
        return upstream.code == 422 && upstream.fields.iter().all(is_named);
    }
    let is_inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|it| it.is_empty() || it.starts_with(['.', '[']))
    };
    let is_named = |field: &String, others: &BTreeSet<String>| {
        others.iter().any(|it| is_inside(field, it) || is_inside(it, field))
    };
    upstream.code == ours.code
        && upstream.fields.iter().all(|it| is_named(it, &ours.fields))
        && ours.fields.iter().all(|it| is_named(it, &upstream.fields))
}

/// Sends the object of a case as a dry run.
async fn answer(client: &Client, case: &Case) -> Answer {
    let (path, kind, field) = match case.what.as_str() {
        "policy" => (POLICIES, "RolloutPolicy", "spec"),
        "cluster" => (CLUSTER_POLICIES, "ClusterRolloutPolicy", "spec"),
        "rollout" => (ROLLOUTS, "DaemonRollout", "spec"),
        "policy-status" => (POLICIES, "RolloutPolicy", "status"),
        "rollout-status" => (ROLLOUTS, "DaemonRollout", "status"),
        other => panic!("{other} is no kind"),
    };
    let sent = if field == "spec" {
        let new = object(kind, "new", "spec", case.content.clone());
        send(client, Method::POST, &format!("{path}?dryRun=All"), &new).await
    } else {
        let mut changed = send(client, Method::GET, &format!("{path}/stored"), &Value::Null).await.unwrap();
        changed["status"] = case.content.clone();
        send(client, Method::PUT, &format!("{path}/stored/status?dryRun=All"), &changed).await
    };
    match sent {
        Ok(_) => Answer { code: 200, fields: BTreeSet::new(), message: String::new() },
        Err(kube::Error::Api(status)) => {
            let status = serde_json::to_value(&status).unwrap();
            let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
            let fields = causes.iter().filter_map(|it| it["field"].as_str()).filter(|it| *it != NO_FIELD);
            Answer {
                code: status["code"].as_u64().unwrap(),
                fields: fields.map(str::to_owned).collect(),
                message: status["message"].as_str().unwrap_or_default().to_owned(),
            }
        }
        Err(error) => panic!("{case:?}: {error}"),
    }
}

fn object(kind: &str, name: &str, field: &str, content: Value) -> Value {
    let mut object = json!({"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}});
    object[field] = content;
    object
}

fn base_spec(kind: &str) -> Value {
    if kind == "DaemonRollout" { json!({}) } else { json!({"selector": {}}) }
}
