//! The scheduler on the real server with simulated nodes: who gets room, who waits and is told why, and that nobody waits
//! for ever.

use expect_test::{Expect, expect};
use http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, with};
use crate::nodes::becomes;

/// A pod that asks for so many of a simulated node's four cores.
fn pod(name: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "r/c:v1", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn important(pod: Value, class: &str) -> Value {
    with(pod, "spec.priorityClassName", json!(class))
}

async fn class(bed: &Bed, name: &str, value: i64, policy: &str) {
    let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
    bed.send(Method::POST, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.unwrap();
}

async fn delete(bed: &Bed, pod: &str) {
    let path = format!("/api/v1/namespaces/default/pods/{pod}");
    bed.send(Method::DELETE, &path, &Value::Null).await.unwrap();
}

/// Every pod: where it is and how it does, or what it was told.
async fn pods(bed: &Bed) -> String {
    let line = |pod: &Value| {
        let (name, status) = (pod["metadata"]["name"].as_str().unwrap(), &pod["status"]);
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            return format!("{name}  {node} {}\n", status["phase"].as_str().unwrap_or("?"));
        }
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.iter().find(|it| it["type"] == "PodScheduled" && it["status"] == "False");
        let told = told.and_then(|it| it["message"].as_str()).unwrap_or("?");
        format!("{name}  waits: {told}\n")
    };
    let mut lines: Vec<String> = bed.pods().await.iter().map(line).collect();
    lines.sort();
    lines.concat()
}

async fn pods_become(bed: &Bed, expect: Expect) {
    becomes(expect, async || pods(bed).await).await;
}

/// What was recorded of a pod by the scheduler, without what differs from run to run.
async fn told(bed: &Bed, reason: &str) -> String {
    let events = bed.get("/api/v1/namespaces/default/events").await["items"].take();
    let events = events.as_array().cloned().unwrap_or_default();
    let mut lines: Vec<String> = events
        .iter()
        .filter(|it| it["reason"] == reason)
        .map(|it| {
            let message = it["message"].as_str().unwrap();
            let message = message.split_once("by pod ").map_or(message, |(before, _)| before);
            format!("{}: {message}\n", it["involvedObject"]["name"].as_str().unwrap())
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_until_a_node_can_take_it() {
    let bed = Bed::new(1).await;
    bed.create(pod("big", "6")).await;
    bed.create(with(pod("picky", "1"), "spec.nodeSelector", json!({"disk": "ssd"}))).await;
    pods_become(&bed, expect![[r#"
        big  waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.
        picky  waits: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.
    "#]]).await;
    bed.patch_node("sim-1", json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    let mut node = bed.get("/api/v1/nodes/sim-1").await;
    node["metadata"] = json!({"name": "large"});
    node["status"]["allocatable"]["cpu"] = "8".into();
    bed.add_node(&node).await;
    pods_become(
        &bed,
        expect![[r#"
        big  large Pending
        picky  sim-1 Running
    "#]],
    )
    .await;
    let scheduled = expect![[r#"
        big: Successfully assigned default/big to large
        picky: Successfully assigned default/picky to sim-1
    "#]];
    becomes(scheduled, async || told(&bed, "Scheduled").await).await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_more_important_pod_gets_the_room_of_others() {
    let bed = Bed::new(1).await;
    class(&bed, "high", 1000, "PreemptLowerPriority").await;
    class(&bed, "patient", 500, "Never").await;
    bed.create(pod("low", "3")).await;
    pods_become(&bed, expect![["low  sim-1 Running\n"]]).await;
    bed.create(important(pod("patient", "3"), "patient")).await;
    pods_become(&bed, expect![[r#"
        low  sim-1 Running
        patient  waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.
    "#]])
    .await;
    bed.create(important(pod("high", "3"), "high")).await;
    let preempted = expect![["low: Preempted \n"]];
    becomes(preempted, async || told(&bed, "Preempted").await).await;
    pods_become(&bed, expect![[r#"
        high  sim-1 Running
        patient  waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.
    "#]])
    .await;
    delete(&bed, "high").await;
    pods_become(&bed, expect![["patient  sim-1 Running\n"]]).await;
    bed.ends_well().await;
}

/// Whoever came first gets the next room, however many came later; and one that is more important does not wait behind
/// them at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_ever_behind_a_stream_of_others() {
    let bed = Bed::new(1).await;
    class(&bed, "high", 1000, "PreemptLowerPriority").await;
    bed.create(pod("first", "4")).await;
    pods_become(&bed, expect![["first  sim-1 Running\n"]]).await;
    bed.create(pod("old", "4")).await;
    becomes(expect![["true"]], async || pods(&bed).await.contains("old  waits").to_string()).await;
    // Creation is told in seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    for number in 0..40 {
        bed.create(pod(&format!("young-{number}"), "4")).await;
    }
    let running = async || {
        let pods = pods(&bed).await;
        pods.lines().filter(|it| it.contains("sim-1")).map(|it| format!("{it}\n")).collect::<String>()
    };
    delete(&bed, "first").await;
    becomes(expect![["old  sim-1 Running\n"]], running).await;
    bed.create(important(pod("vip", "4"), "high")).await;
    becomes(expect![["vip  sim-1 Running\n"]], running).await;
    bed.ends_well().await;
}
