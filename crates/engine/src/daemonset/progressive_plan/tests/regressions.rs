//! Bugs of progressive rollouts that the simulator found.

use super::*;

/// The stable revision is the one with the latest verdict `Good`, so a verdict must not be older than the one before.
#[test]
fn a_clock_that_is_set_back_does_not_keep_an_older_revision_stable() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.run(1000);
    fleet.apply_image("v2");
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
    fleet.cluster.now = Time::from_secs(300);
    fleet.apply_image("v3");
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v3: 4"));
    assert_eq!(fleet.run(600), "", "a complete rollout writes nothing");
    fleet.apply_image("bad");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v3: 4"));
}

/// With `newNodes: Latest`, a node that joins during a rollout gets the new revision at once. When the template is
/// applied again later, its old ControllerRevision becomes current, and the node is no longer new.
#[test]
fn nodes_that_joined_during_the_first_rollout_of_a_template_are_not_new_in_the_second() {
    let mut spec = canary();
    spec["newNodes"] = json!("Latest");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("v2");
    fleet.run(10);
    let now = fleet.cluster.now;
    (5..9).for_each(|it| fleet.cluster.put(node(&format!("n{it}"), now)));
    fleet.run(10);
    assert_eq!(fleet.images(), "v1: 3, v2: 5");
    fleet.apply_image("v1");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 8"));
    fleet.apply_image("v2");
    fleet.run(10);
    assert_eq!(fleet.images(), "v1: 7, v2: 1");
}

#[test]
fn nodes_that_joined_before_a_retry_are_not_new() {
    let mut spec = canary();
    spec["newNodes"] = json!("Latest");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("bad");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 4"));
    let now = fleet.cluster.now;
    (5..9).for_each(|it| fleet.cluster.put(node(&format!("n{it}"), now)));
    fleet.run(60);
    assert_eq!((fleet.exposed("bad"), fleet.images().as_str()), (1, "v1: 8"));
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"retry": {"revision": revision, "attempt": 2}}));
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 8"));
    assert_eq!(fleet.exposed("bad"), 1);
}

#[test]
fn nodes_that_joined_between_two_rollouts_of_a_template_are_not_new() {
    let mut spec = canary();
    spec["newNodes"] = json!("Latest");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("v2");
    fleet.run(10);
    fleet.apply_image("v1");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 4"));
    let now = fleet.cluster.now;
    (5..9).for_each(|it| fleet.cluster.put(node(&format!("n{it}"), now)));
    fleet.run(60);
    assert_eq!(fleet.images(), "v1: 8");
    fleet.apply_image("v2");
    fleet.run(10);
    assert_eq!(fleet.images(), "v1: 7, v2: 1");
}

/// With `newNodes: Latest` a node that joins gets the new revision at once, but not after the revision has failed. The
/// controller that wrote the verdict ended before it wrote the status.
#[test]
fn a_node_that_joins_does_not_get_a_revision_whose_failure_is_not_in_the_status_yet() {
    let mut spec = canary();
    spec["newNodes"] = json!("Latest");
    spec["onFailure"] = json!("Stop");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("v2");
    fleet.run(10);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 3, v2: 1"));
    let mut revisions = fleet.cluster.all("ControllerRevision");
    revisions.sort_by_key(|it| it["revision"].as_i64());
    let failed = revisions.pop().unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let now = fleet.cluster.now;
    let verdict = json!({
        "muster.dev/verdict": "Bad", "muster.dev/verdict-reason": "Failed", "muster.dev/verdict-time": now.to_rfc3339(),
    });
    fleet.cluster.patch("ControllerRevision", &failed, &json!({"metadata": {"annotations": verdict}}));
    fleet.cluster.put(node("n5", now));
    fleet.run(10);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Stopped", "v1: 4, v2: 1"));
    assert_eq!(fleet.exposed("v2"), 1);
}

/// The verdict `Bad` is stored, the status that follows from it is not, and an operator asks for a retry. The retry
/// begins with the first step, so a node that only a later step of the first attempt admitted does not get the revision.
#[test]
fn a_retry_gives_the_revision_to_no_node_that_it_has_not_admitted() {
    let mut fleet = Fleet::new(6, &canary());
    fleet.apply_image("v2");
    fleet.run(10);
    while fleet.rollout()["status"]["nodes"]["admitted"] != 6 {
        fleet.run(1);
    }
    let exposed = fleet.exposed("v2");
    assert!(exposed < 6, "{}", fleet.images());
    let mut revisions = fleet.cluster.all("ControllerRevision");
    revisions.sort_by_key(|it| it["revision"].as_i64());
    let failed = revisions.pop().unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let verdict = json!({
        "muster.dev/verdict": "Bad", "muster.dev/verdict-reason": "Failed",
        "muster.dev/verdict-time": fleet.cluster.now.to_rfc3339(),
    });
    fleet.cluster.patch("ControllerRevision", &failed, &json!({"metadata": {"annotations": verdict}}));
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    // The pause keeps the new attempt from admitting nodes.
    fleet.patch_rollout(&json!({"retry": {"revision": revision, "attempt": 2}, "paused": true}));
    let pods = fleet.cluster.all("Pod");
    let outdated = pods.iter().find(|it| it["spec"]["containers"][0]["image"] == "v1").unwrap();
    fleet.cluster.delete("Pod", outdated["metadata"]["name"].as_str().unwrap());
    fleet.run(5);
    assert_eq!(fleet.rollout()["status"]["attempt"], 2);
    assert_eq!(fleet.exposed("v2"), exposed, "{}", fleet.images());
}
