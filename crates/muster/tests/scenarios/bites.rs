//! The judge bites: each of these controllers has a bug, put between it and the server, and each is found.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, set, with};
use crate::line::{Tamper, Weather};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_controller_is_found() {
    let request = |it: fn(&Method, &str, &mut Value)| Tamper { request: Some(it), ..Tamper::default() };
    let broken = [
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
            "W11",
            "writes the status over any version",
            request(|_, resource, body| {
                if resource == "daemonsets/status" {
                    body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                }
            }),
        ),
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
            "W3",
            "forgets the tolerations",
            request(|method, resource, body| {
                if *method == Method::POST && resource == "pods" {
                    body["spec"]["tolerations"] = json!([]);
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
        ("S1", "creates every pod twice", Tamper { twice: Some("POST pods"), ..Tamper::default() }),
    ];
    join_all(broken.map(async |(invariant, bug, tamper)| {
        let mut bed = Bed::new(2).await;
        bed.start_broken(0, Weather::fair(), tamper);
        let all_at_once = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
        bed.create(with(set("a", "v1"), "spec.updateStrategy", all_at_once)).await;
        bed.has_sent(2, "POST pods").await;
        bed.has_sent(1, "PUT daemonsets/status").await;
        bed.set_image("a", "v2").await;
        bed.has_sent(2, "DELETE pods").await;
        let found = bed.judge().await.map(|it| it.invariant);
        assert_eq!(found, Some(invariant), "a controller that {bug}");
    }))
    .await;
}
