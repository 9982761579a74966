//! Instructions per request: a create, a list of 500 objects, and a watch event, counted by callgrind in one thread. Counts do not
//! depend on the load of the machine, so two commits can be compared: `cargo bench --package muster-server --bench requests`.
//!
//! The requests go through an in-process client: the work from authorization to commit and encoding is measured, TLS is not.
//! Each row is the difference of two runs with different counts, so start-up is not in it.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::net::Ipv4Addr;
use std::process::{Command, ExitCode};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use muster_server::{ApiServer, BuiltinUser, LoopbackClient};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Objects in the list that is read.
const LISTED: usize = 500;

/// Watchers that each receive every event. They are many, because the instructions of a create vary by up to 1 % between
/// runs with the state of the allocator, and the difference is divided among the watchers.
const WATCHERS: usize = 200;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    match args.as_slice() {
        [work, count] => {
            run(work, count.parse().expect("the second argument is a count"));
            ExitCode::SUCCESS
        }
        [] => table(),
        _ => {
            eprintln!("usage: requests [create|list|watch|unwatched COUNT]");
            ExitCode::from(2)
        }
    }
}

fn table() -> ExitCode {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not on PATH: install the package valgrind");
        return ExitCode::FAILURE;
    }
    let each =
        |work, few: u64, many: u64| (instructions(work, many) - instructions(work, few)) / (many - few);
    println!("{:<44}{:>14}", "work", "instructions");
    println!("{:<44}{:>14}", "create of a pod", each("create", 200, 600));
    println!("{:<44}{:>14}", format!("list of {LISTED} pods"), each("list", 5, 25));
    let watched = each("watch", 100, 300);
    let event = watched.saturating_sub(each("unwatched", 100, 300)) / WATCHERS as u64;
    println!("{:<44}{event:>14}", format!("watch event, each of {WATCHERS} watchers"));
    ExitCode::SUCCESS
}

/// Instructions of the whole process that does the work.
fn instructions(work: &str, count: u64) -> u64 {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program has a path"))
        .args([work, &count.to_string()])
        .output()
        .expect("valgrind runs");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}");
    let collected =
        stderr.lines().find_map(|it| it.split_once("Collected : ")).expect("callgrind prints a count");
    collected.1.trim().parse().expect("the count is a number")
}

fn run(work: &str, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let server = ApiServer::open((Ipv4Addr::LOCALHOST, 0).into(), None, dir.path())
            .await
            .expect("the server starts");
        let client = server.loopback_client(BuiltinUser::Controller);
        match work {
            "create" => create(&client, count).await,
            "list" => {
                create(&client, LISTED).await;
                for _ in 0..count {
                    send(&client, "GET", PODS, None).await;
                }
            }
            "watch" => watch(&client, WATCHERS, count).await,
            "unwatched" => watch(&client, 0, count).await,
            _ => panic!("unknown work: {work}"),
        }
    });
}

async fn create(client: &LoopbackClient, count: usize) {
    for index in 0..count {
        send(client, "POST", PODS, Some(pod(index))).await;
    }
}

async fn watch(client: &LoopbackClient, watchers: usize, events: usize) {
    let mut bodies = Vec::new();
    for _ in 0..watchers {
        let request = Request::get(format!("{PODS}?watch=1")).body(Full::<Bytes>::default()).unwrap();
        bodies.push(client.send(request).await.expect("the watch begins").into_body());
    }
    for index in 0..events {
        send(client, "POST", PODS, Some(pod(index))).await;
        for body in &mut bodies {
            body.frame().await.expect("an event").expect("no error");
        }
    }
}

async fn send(client: &LoopbackClient, method: &str, path: &str, body: Option<Value>) {
    let body = body.map_or_else(Bytes::new, |it| it.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("user-agent", "bench")
        .body(Full::new(body))
        .unwrap();
    let response = client.send(request).await.expect("the server answers");
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    response.into_body().collect().await.expect("the response is whole");
}

fn pod(index: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("bench-{index}"), "labels": {"bench": "yes"}},
        "spec": {
            "containers": [{
                "name": "c",
                "image": "app:1",
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"memory": "100Mi"}},
                "volumeMounts": [{"name": "log", "mountPath": "/var/log"}],
            }],
            "volumes": [{"name": "log", "hostPath": {"path": "/var/log"}}],
            "tolerations": [{"operator": "Exists"}],
        },
    })
}
