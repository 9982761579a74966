//! The judge bites: each of these controllers has a bug, put between it and the server, and each is found.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use muster_engine::daemonset::facts::Kind;
use serde_json::{Value, json};

use crate::bed::{Bed, set, stray, with};
use crate::line::{Fault, Tamper, WatchFault, Weather};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_controller_is_found() {
    let request = |it: fn(&Method, &str, &mut Value)| Tamper { request: Some(it), ..Tamper::default() };
    let broken = [
        (
            "W3",
            "forgets the tolerations",
            request(|method, resource, body| {
                if *method == Method::POST && resource == "pods" {
                    body["spec"]["tolerations"] = json!([]);
                }
            }),
        ),
        (
            "W4",
            "deletes by name alone",
            request(|method, resource, body| {
                if *method == Method::DELETE && resource == "pods" {
                    body["preconditions"] = json!({});
                }
            }),
        ),
        (
            "W9",
            "adopts whatever has the name by now",
            request(|method, resource, body| {
                let meta = &mut body["metadata"];
                if *method == Method::PATCH
                    && resource == "pods"
                    && meta["ownerReferences"][0]["controller"] == true
                {
                    meta.as_object_mut().unwrap().remove("uid");
                }
            }),
        ),
        (
            "W10",
            "takes the labels of what it releases",
            request(|method, resource, body| {
                let meta = &mut body["metadata"];
                if *method == Method::PATCH
                    && resource == "pods"
                    && meta["ownerReferences"][0]["$patch"] == "delete"
                {
                    meta["labels"] = json!({"app": null});
                }
            }),
        ),
        (
            "W11",
            "writes the status over any version",
            request(|_, resource, body| {
                if resource == "daemonsets/status" {
                    body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                }
            }),
        ),
        (
            "W15",
            "names its revisions as it likes",
            request(|method, resource, body| {
                if *method == Method::POST && resource == "controllerrevisions" {
                    body["metadata"]["name"] = format!("mine-{}", body["revision"]).into();
                }
            }),
        ),
        ("S1", "creates every pod twice", Tamper { twice: Some("POST pods"), ..Tamper::default() }),
        (
            "S3",
            "counts one too many",
            request(|_, resource, body| {
                if resource == "daemonsets/status" {
                    body["status"]["numberReady"] = 99.into();
                }
            }),
        ),
        (
            "S5",
            "labels pods with a hash of its own",
            request(|method, resource, body| {
                if *method == Method::POST && resource == "pods" {
                    body["metadata"]["labels"]["controller-revision-hash"] = "mine".into();
                }
            }),
        ),
    ];
    join_all(broken.map(async |(invariant, bug, tamper)| {
        let mut bed = Bed::new(2).await;
        // One pod to adopt, and one to release.
        bed.create(stray("a", "stray", "sim-1")).await;
        bed.start_broken(0, Weather::fair(), tamper);
        let all_at_once = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
        bed.create(with(set("a", "v1"), "spec.updateStrategy", all_at_once)).await;
        bed.has_sent(1, "POST pods").await;
        bed.has_sent(1, "PATCH pods").await;
        bed.has_sent(1, "PUT daemonsets/status").await;
        bed.pod_on("sim-2").await;
        bed.relabel_pods_on("sim-2", "b").await;
        bed.are_released("b").await;
        bed.set_image("a", "v2").await;
        bed.has_sent(1, "DELETE pods").await;
        let found = bed.judge().await.map(|it| it.invariant);
        assert_eq!(found, Some(invariant), "a controller that {bug}");
    }))
    .await;
}

/// A controller whose pods' watch lags, so that only care keeps it from making every pod twice.
async fn found_while_pods_lag(tamper: Tamper, fault: Option<Fault>) -> Option<&'static str> {
    let mut bed = Bed::new(1).await;
    bed.start_broken(0, Weather::fair(), tamper);
    // Once it has a status, everything is listed.
    let nowhere = json!({"disk": "none"});
    bed.create(with(set("b", "v1"), "spec.template.spec.nodeSelector", nowhere)).await;
    bed.settles().await;
    let weather = bed.controller(0).weather.clone();
    weather.strike_watch(Kind::Pods, WatchFault::Freeze(Duration::from_secs(20)));
    if let Some(fault) = fault {
        weather.strike("POST pods", fault);
    }
    bed.create(set("a", "v1")).await;
    bed.has_sent(2, "POST pods").await;
    bed.judge().await.map(|it| it.invariant)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_does_not_wait_for_its_own_writes_is_found() {
    // It is told that its write was the first ever: whatever it has seen is newer.
    let long_ago = |method: &Method, resource: &str, answer: &mut Value| {
        if *method == Method::POST && resource == "pods" {
            answer["metadata"]["resourceVersion"] = "1".into();
        }
    };
    let no_gate = Tamper { answer: Some(long_ago), ..Tamper::default() };
    assert_eq!(found_while_pods_lag(no_gate, None).await, Some("S8"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_takes_a_lost_answer_for_a_refusal_is_found() {
    assert_eq!(found_while_pods_lag(Tamper::default(), Some(Fault::InvalidApplied)).await, Some("W2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_leaves_something_out_is_found() {
    let mut bed = Bed::new(2).await;
    bed.start(0, Weather::fair());
    bed.create(with(set("a", "v1"), "spec.template.spec.nodeSelector", json!({"disk": "ssd"}))).await;
    bed.settles().await;
    bed.controller(0).weather.strike_watch(Kind::Nodes, WatchFault::Swallow);
    for node in ["sim-1", "sim-2"] {
        bed.patch_node(node, json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    }
    bed.pod_on("sim-2").await;
    assert_eq!(bed.judge().await.map(|it| it.invariant), Some("S4"));
}
