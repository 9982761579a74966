//! Facts are small: a hundred thousand nodes and their pods fit where upstream's informers do not.

use std::alloc::System;
use std::sync::Arc;

use muster_api::interner::Interner;
use muster_engine::controller::Event;
use muster_engine::daemonset::facts::{self, Kind};
use muster_engine::daemonset::planner::Planner;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[path = "world/fleet.rs"]
#[allow(dead_code, reason = "the bench uses the rest")]
mod fleet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const COUNT: usize = 1_000;

/// Bytes that are still held once `make` has run, per object; the value itself among them.
fn held_by_each<T>(objects: &[String], mut make: impl FnMut(&[u8]) -> T) -> usize {
    let mut made: Vec<Arc<T>> = Vec::with_capacity(objects.len());
    let region = Region::new(ALLOCATOR);
    made.extend(objects.iter().map(|it| Arc::new(make(it.as_bytes()))));
    let change = region.change();
    // What a reallocation added or gave back is in these two as well.
    let held = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    assert_eq!(made.len(), COUNT);
    usize::try_from(held).expect("more than nothing") / COUNT
}

fn texts(object: impl Fn(usize) -> Value) -> Vec<String> {
    (0..COUNT).map(|it| object(it).to_string()).collect()
}

/// All in one test: what other threads allocate would be counted too.
#[test]
fn cached_pods_and_nodes_take_a_few_hundred_bytes() {
    let mut shared = Interner::default();
    let nodes = texts(|it| fleet::node(it, 1));
    let node = held_by_each(&nodes, |it| facts::decode_node(it, &mut shared).expect("a node"));
    let pods = texts(|it| fleet::pod(1, it, true, 1));
    let pod = held_by_each(&pods, |it| facts::decode_pod(it, &mut shared).expect("a pod").expect("of a set"));
    println!("a node takes {node} bytes, a pod {pod}; as JSON {} and {}", nodes[0].len(), pods[0].len());
    assert!(pod < 400, "a pod takes {pod} bytes");
    assert!(node < 1536, "a node takes {node} bytes");

    // As they come from a watch into the cache: with all its indices, and with no set that wants them.
    let mut planner = Planner::default();
    for kind in Kind::ALL {
        let _ = planner.apply(Event::Listed { kind: kind.index(), facts: Vec::new(), resource_version: 1 });
    }
    let mut owned_by = |owners: Value, from: usize| {
        let lines = texts(|it| {
            let mut pod = fleet::pod(1, from + it, true, (2 + from + it) as u64);
            pod["metadata"]["ownerReferences"] = owners.clone();
            json!({"type": "ADDED", "object": pod})
        });
        held_by_each(&lines, |it| {
            let pod = facts::decode_watch_event(Kind::Pods, it, &mut shared)
                .expect("a pod")
                .into_fact()
                .expect("a fact");
            let _ = planner.apply(pod.into_event());
        })
    };
    let of_a_deployment = owned_by(json!([{"kind": "ReplicaSet", "uid": "r", "controller": true}]), 0);
    let of_nobody = owned_by(json!([]), COUNT);
    println!("a pod of a Deployment costs {of_a_deployment} bytes, a pod of nobody {of_nobody}");
    // The measure itself counts an `Arc` of nothing.
    assert!(
        of_a_deployment <= size_of::<[usize; 2]>(),
        "a pod of a Deployment takes {of_a_deployment} bytes"
    );
    assert!(of_nobody < 700, "a pod of nobody takes {of_nobody} bytes");
}
