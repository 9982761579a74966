//! `muster rollout`, as an operator uses it: the real binary beside a cluster with simulated nodes.

/// Rollouts in assist mode.
#[path = "rollout/assist.rs"]
mod assist;
#[path = "rollout_bed/mod.rs"]
mod bed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use expect_test::expect;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use bed::{Cluster, POLICIES, ROLLOUTS, SETS, normalised, policy, text};

#[tokio::test]
async fn a_canary_is_approved() {
    let cluster = Cluster::start("canary", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: no DaemonRollout, it follows its update strategy RollingUpdate

        revision    1 (66cc47f568)
        nodes       3 desired: 3 updated, 3 available, 0 unavailable

        $ muster rollout status daemonset/web --watch
        default/web: 3 of 3 nodes updated, 3 available

        $ muster rollout status web -o json
        muster: DaemonSet default/web has no DaemonRollout: it follows its update strategy
        [exit 1]

        $ muster rollout promote ds/web
        muster: nothing to approve: DaemonSet default/web has no DaemonRollout, so it follows its update strategy: a RolloutPolicy that selects it has steps and checks, and `muster rollout pause ds/web` holds it
        [exit 1]

        $ muster rollout resume ds/web
        muster: DaemonSet default/web is not paused by an operator: `muster rollout status ds/web` shows its state
        [exit 1]

        $ muster rollout retry ds/web
        muster: nothing to retry: DaemonSet default/web has no DaemonRollout, and its current revision has not failed
        [exit 1]

        $ muster rollout abort ds/web
        muster: nothing to abort: DaemonSet default/web has no DaemonRollout, so it follows its update strategy: a RolloutPolicy that selects it has steps and checks, and `muster rollout pause ds/web` holds it
        [exit 1]

        $ muster rollout forget ds/web --yes
        muster: nothing to forget: DaemonSet default/web has no DaemonRollout
        [exit 1]

        $ muster rollout status ds/nothing
        muster: DaemonSet default/nothing not found: `kubectl get daemonsets -n default` lists those of the namespace
        [exit 1]

        $ muster rollout pause ds/nothing
        muster: DaemonSet default/nothing not found: `kubectl get daemonsets -n default` lists those of the namespace
        [exit 1]

        $ muster rollout status deploy/web
        muster: deploy is not a DaemonSet: name one as ds/NAME
        [exit 1]

        $ muster rollout history ds/web
        REVISION  HASH        VERDICT  REASON  TIME  IMAGES
        1         66cc47f568  -        -       -     web:1   current
    "#]].assert_eq(&cluster.all(&[
        "status ds/web",
        "status daemonset/web --watch",
        "status web -o json",
        "promote ds/web",
        "resume ds/web",
        "retry ds/web",
        "abort ds/web",
        "forget ds/web --yes",
        "status ds/nothing",
        "pause ds/nothing",
        "status deploy/web",
        "history ds/web",
    ]));

    cluster.create(POLICIES, policy(json!({"steps": canary_steps()}))).await;
    cluster.phase("Complete").await;
    expect![[r#"
        $ muster rollout status ds/web -n default
        DaemonSet default/web: Complete

        revision    1 (66cc47f568), attempt 1; it is the stable revision
        policy      RolloutPolicy careful
        nodes       3 eligible: 3 admitted, 3 updated, 3 available, 3 soaked, 0 held
        failures    0 nodes, at most 0 allowed

        $ muster rollout promote ds/web
        muster: nothing to approve: revision 1 (66cc47f568) of DaemonSet default/web is complete
        [exit 1]

        $ muster rollout abort ds/web
        muster: nothing to abort: revision 1 (66cc47f568) of DaemonSet default/web is complete: `kubectl rollout undo ds/web -n default` returns to the one before
        [exit 1]

        $ muster rollout retry ds/web
        muster: nothing to retry: revision 1 (66cc47f568) of DaemonSet default/web has not failed, it is Complete
        [exit 1]

        $ muster rollout resume ds/web
        muster: DaemonSet default/web is not paused by an operator: `muster rollout status ds/web` shows its state
        [exit 1]

        $ muster rollout report ds/web smoke pass
        muster: nothing to report on: the rollout of revision 1 (66cc47f568) of DaemonSet default/web is Complete
        [exit 1]
    "#]].assert_eq(&cluster.all(&[
        "status ds/web -n default",
        "promote ds/web",
        "abort ds/web",
        "retry ds/web",
        "resume ds/web",
        "report ds/web smoke pass",
    ]));

    cluster.set_image("web:2").await;
    let followed = cluster.run("status ds/web --watch --exit-on-wait --timeout 10m");
    expect![[r#"
        default/web: Waiting, step canary (1 of 2): step "canary" waits for approval
        [exit 2]"#]]
    .assert_eq(&last_line(&followed));
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Waiting, step canary (1 of 2)
        step "canary" waits for approval

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        nodes       3 eligible: 1 admitted, 1 updated, 1 available, 1 soaked, 2 held
        failures    0 nodes, at most 0 allowed
        next        `muster rollout promote ds/web` approves step canary
                    `muster rollout abort ds/web` returns all nodes to the stable revision

        $ muster rollout status ds/web --watch --timeout 1s
        default/web: Waiting, step canary (1 of 2): step "canary" waits for approval
        muster: the rollout has not ended after 1 s: default/web: Waiting, step canary (1 of 2): step "canary" waits for approval
        [exit 1]

        $ muster rollout promote ds/web --step nothing
        muster: the policy of DaemonSet default/web has no step "nothing": it has canary, rest
        [exit 1]

        $ muster rollout promote ds/web --step rest
        muster: nothing to approve: step "rest" has approval: Automatic, so it passes without one
        [exit 1]

        $ muster rollout promote ds/web --step canary --full
        error: the argument '--step <NAME>' cannot be used with '--full'

        Usage: muster rollout promote --step <NAME> --kubeconfig <FILE> <ds/NAME>

        For more information, try '--help'.
        [exit 2]

        $ muster rollout retry ds/web
        muster: nothing to retry: revision 2 (75d7c47879) of DaemonSet default/web has not failed, it is Waiting
        [exit 1]

        $ muster rollout promote ds/web --dry-run
        default/web: step "canary" of revision 2 (75d7c47879) approved (dry run)
        When the step has passed, step "rest" starts.
    "#]].assert_eq(&cluster.all(&[
        "status ds/web",
        "status ds/web --watch --timeout 1s",
        "promote ds/web --step nothing",
        "promote ds/web --step rest",
        "promote ds/web --step canary --full",
        "retry ds/web",
        "promote ds/web --dry-run",
    ]));
    let spec = cluster.rollout().await["spec"].clone();
    assert_eq!(spec["approve"], Value::Null, "a dry run stores nothing: {spec}");
    let as_json: Value = serde_json::from_str(&cluster.run("status ds/web -o json")).unwrap();
    let as_yaml: Value = serde_saphyr::from_str(&cluster.run("status ds/web -o yaml")).unwrap();
    assert_eq!((&as_json["kind"], &as_json["status"]["phase"]), (&json!("DaemonRollout"), &json!("Waiting")));
    assert_eq!(as_yaml, as_json);

    expect![[r#"
        $ muster rollout promote ds/web
        default/web: step "canary" of revision 2 (75d7c47879) approved
        When the step has passed, step "rest" starts.
    "#]]
    .assert_eq(&cluster.all(&["promote ds/web"]));
    let followed = cluster.run("status ds/web --watch");
    expect!["default/web: Complete"].assert_eq(&last_line(&followed));
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Complete

        revision    2 (75d7c47879), attempt 1; it is the stable revision
        policy      RolloutPolicy careful
        nodes       3 eligible: 3 admitted, 3 updated, 3 available, 3 soaked, 0 held
        failures    0 nodes, at most 0 allowed

        $ muster rollout history ds/web
        REVISION  HASH        VERDICT  REASON   TIME                  IMAGES
        1         66cc47f568  Good     Adopted  2026-08-23T10:00:00Z  web:1
        2         75d7c47879  Good     Passed   2026-08-23T10:00:00Z  web:2   current, stable
    "#]]
    .assert_eq(&cluster.all(&["status ds/web", "history ds/web"]));
    assert_eq!(cluster.images().await, "web:2 web:2 web:2");
}

#[tokio::test]
async fn a_failed_revision_is_retried() {
    let cluster = Cluster::start("retry", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    let failures = json!({"immediateFailureReasons": ["ErrImagePull", "ImagePullBackOff"]});
    cluster.create(POLICIES, policy(json!({"steps": canary_steps(), "failures": failures}))).await;
    cluster.phase("Complete").await;

    cluster.set_image("non-existent:2").await;
    let followed = cluster.run("status ds/web --watch");
    expect![[r#"
        muster: the rollout of DaemonSet default/web is RolledBack: revision 2 failed on 1 of 1 nodes (ErrImagePull: sim-1)
        [exit 1]"#]].assert_eq(&last_line(&followed));
    assert_eq!(cluster.images().await, "web:1 web:1 web:1");
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: RolledBack
        revision 2 failed on 1 of 1 nodes (ErrImagePull: sim-1)

        revision    2 (559df7c5c9), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        nodes       3 eligible: 0 admitted, 0 updated, 0 available, 0 soaked, 3 held
        failures    1 node, at most 0 allowed
                    sim-1: ErrImagePull at 2026-08-23T10:00:00Z
        next        change the template, or:
                    `muster rollout retry ds/web` starts the revision again

        $ muster rollout history ds/web
        REVISION  HASH        VERDICT  REASON   TIME                  IMAGES
        1         66cc47f568  Good     Adopted  2026-08-23T10:00:00Z  web:1           stable
        2         559df7c5c9  Bad      Failed   2026-08-23T10:00:00Z  non-existent:2  current

        $ muster rollout abort ds/web
        muster: nothing to abort: DaemonSet default/web has returned to the stable revision
        [exit 1]

        $ muster rollout promote ds/web
        muster: nothing to approve: revision 2 (559df7c5c9) of DaemonSet default/web failed: change the template, or start it again with `muster rollout retry ds/web`
        [exit 1]

        $ muster rollout promote ds/web --full
        muster: nothing to approve: revision 2 (559df7c5c9) of DaemonSet default/web failed: change the template, or start it again with `muster rollout retry ds/web`
        [exit 1]

        $ muster rollout retry ds/web --dry-run
        default/web: attempt 2 of revision 2 (559df7c5c9) requested (dry run)
        The rollout starts again at step "canary", without the failures of the last attempt.
    "#]].assert_eq(&cluster.all(&[
        "status ds/web",
        "history ds/web",
        "abort ds/web",
        "promote ds/web",
        "promote ds/web --full",
        "retry ds/web --dry-run",
    ]));
    let spec = cluster.rollout().await["spec"].clone();
    assert_eq!(spec["retry"], Value::Null, "a dry run stores nothing: {spec}");
    expect![[r#"
        $ muster explain ds/web
        DaemonSet default/web: revision 2, generation 2
        3 nodes: 3 should run it (3 outdated), 0 should not

          NODES  STATE        WHY
              3  outdated     held by the rollout
                              sim-1, sim-2, sim-3

        rollout     follows RolloutPolicy careful
                    RolledBack, step "canary" (1 of 2): revision 2 failed on 1 of 1
                    nodes (ErrImagePull: sim-1)
                    0 of 3 nodes admitted; 3 nodes held at revision 1
                    failed: sim-1 (ErrImagePull); 0 tolerated
                    change the template, or try again with: muster rollout retry ds/web
                    0 of 3 nodes up to date, 3 available
                    maxUnavailable 100% (3 nodes): 0 unavailable, 3 left
    "#]]
    .assert_eq(&cluster.explain());

    // The image is still in no registry: the second attempt fails like the first.
    expect![[r#"
        $ muster rollout retry ds/web
        default/web: attempt 2 of revision 2 (559df7c5c9) requested
        The rollout starts again at step "canary", without the failures of the last attempt.
    "#]]
    .assert_eq(&cluster.all(&["retry ds/web"]));
    let followed = cluster.run("status ds/web --watch");
    expect![[r#"
        muster: the rollout of DaemonSet default/web is RolledBack: revision 2 failed on 1 of 1 nodes (ErrImagePull: sim-1)
        [exit 1]"#]].assert_eq(&last_line(&followed));
    assert_eq!(cluster.rollout().await["status"]["attempt"], 2);

    expect![[r#"
        $ muster rollout forget ds/web
        muster: forget asks before it deletes, and standard input is not a terminal: give --yes
        [exit 1]

        $ muster rollout forget ds/web --dry-run
        default/web: DaemonRollout deleted at revision 2 (559df7c5c9) (dry run)
        The current revision has the verdict Bad, which is kept: the DaemonSet is still held until `muster rollout retry ds/web` or a change of the template.
        The controller creates a new DaemonRollout, because the RolloutPolicy careful applies; a rollout starts at its first step.
    "#]].assert_eq(&cluster.all(&["forget ds/web", "forget ds/web --dry-run"]));
    let before = cluster.rollout().await["metadata"]["uid"].clone();
    expect![[r#"
        $ muster rollout forget ds/web --yes
        default/web: DaemonRollout deleted at revision 2 (559df7c5c9)
        The current revision has the verdict Bad, which is kept: the DaemonSet is still held until `muster rollout retry ds/web` or a change of the template.
        The controller creates a new DaemonRollout, because the RolloutPolicy careful applies; a rollout starts at its first step.
    "#]].assert_eq(&cluster.all(&["forget ds/web --yes"]));
    cluster
        .until("a new DaemonRollout is stopped", async || {
            let rollout = cluster.rollout().await;
            rollout["metadata"]["uid"] != before && rollout["status"]["phase"] == "Stopped"
        })
        .await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Stopped
        the revision failed before: retry it, or change the template

        revision    2 (559df7c5c9), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        nodes       3 eligible: 0 admitted, 0 updated, 0 available, 0 soaked, 3 held
        failures    0 nodes, at most 0 allowed
        next        change the template, or:
                    `muster rollout retry ds/web` starts the revision again
                    `muster rollout abort ds/web` returns all nodes to the stable revision

        $ muster rollout promote ds/web --full
        muster: nothing to approve: the rollout of DaemonSet default/web has stopped (the revision failed before: retry it, or change the template): `muster rollout retry ds/web` starts it again
        [exit 1]
    "#]]
    .assert_eq(&cluster.all(&["status ds/web", "promote ds/web --full"]));

    cluster.set_image("web:3").await;
    let followed = cluster.run("status ds/web --watch --exit-on-wait");
    expect![[r#"
        default/web: Waiting, step canary (1 of 2): step "canary" waits for approval
        [exit 2]"#]]
    .assert_eq(&last_line(&followed));
    expect![[r#"
        $ muster rollout promote ds/web --full
        default/web: all steps of revision 3 (7fb847ff66) approved
        Every eligible node gets the revision, without soak time and approvals. The failure budget still applies.
    "#]].assert_eq(&cluster.all(&["promote ds/web --full"]));
    cluster.phase("Complete").await;
    expect![[r#"
        $ muster rollout history ds/web
        REVISION  HASH        VERDICT  REASON   TIME                  IMAGES
        1         66cc47f568  Good     Adopted  2026-08-23T10:00:00Z  web:1
        2         559df7c5c9  Bad      Failed   2026-08-23T10:00:00Z  non-existent:2
        3         7fb847ff66  Good     Passed   2026-08-23T10:00:00Z  web:3           current, stable
    "#]]
    .assert_eq(&cluster.all(&["history ds/web"]));
}

#[tokio::test]
async fn a_set_without_a_policy_is_paused_and_aborted() {
    let cluster = Cluster::start("pause", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    expect![[r#"
        $ muster rollout pause ds/web --dry-run
        default/web: paused at revision 1 (66cc47f568), DaemonRollout created (dry run)
        No node gets a new revision: a change of the template is held.
        `muster rollout resume ds/web` ends the pause.
    "#]]
    .assert_eq(&cluster.all(&["pause ds/web --dry-run"]));
    assert_eq!(cluster.get(ROLLOUTS).await["items"], json!([]), "a dry run stores nothing");

    expect![[r#"
        $ muster rollout pause ds/web -n default
        default/web: paused at revision 1 (66cc47f568), DaemonRollout created
        No node gets a new revision: a change of the template is held.
        `muster rollout resume ds/web -n default` ends the pause.

        $ muster rollout pause ds/web
        muster: DaemonSet default/web is already paused: `muster rollout resume ds/web` ends the pause
        [exit 1]
    "#]]
    .assert_eq(&cluster.all(&["pause ds/web -n default", "pause ds/web"]));
    let set_uid = cluster.get(&format!("{SETS}/web")).await["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": set_uid}]);
    let rollout = cluster.rollout().await;
    assert_eq!(rollout["metadata"]["ownerReferences"], owner, "{rollout:#}");
    cluster.phase("Complete").await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Complete

        revision    1 (66cc47f568), attempt 1; it is the stable revision
        policy      none
        nodes       3 eligible: 3 admitted, 3 updated, 3 available, 3 soaked, 0 held
        failures    0 nodes, at most 0 allowed
        next        `muster rollout resume ds/web` ends the pause
    "#]]
    .assert_eq(&cluster.all(&["status ds/web"]));

    cluster.set_image("web:2").await;
    cluster.paused("Rolling").await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Rolling (paused), step all (1 of 1)
        paused by the DaemonRollout (spec.paused)

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      none
        nodes       3 eligible: 0 admitted, 0 updated, 0 available, 0 soaked, 3 held
        failures    0 nodes, at most 0 allowed
        next        `muster rollout resume ds/web` ends the pause
                    `muster rollout abort ds/web` returns all nodes to the stable revision

        $ muster rollout resume ds/web --dry-run
        default/web: resumed at revision 2 (75d7c47879) (dry run)
        The rollout continues with step "all".

        $ muster rollout resume ds/web
        default/web: resumed at revision 2 (75d7c47879)
        The rollout continues with step "all".
    "#]]
    .assert_eq(&cluster.all(&["status ds/web", "resume ds/web --dry-run", "resume ds/web"]));
    let followed = cluster.run("status ds/web --watch");
    expect!["default/web: Complete"].assert_eq(&last_line(&followed));
    assert_eq!(cluster.images().await, "web:2 web:2 web:2");

    expect![[r#"
        $ muster rollout pause ds/web
        default/web: paused at revision 2 (75d7c47879)
        No node gets a new revision: a change of the template is held.
        `muster rollout resume ds/web` ends the pause.
    "#]]
    .assert_eq(&cluster.all(&["pause ds/web"]));
    cluster.set_image("web:3").await;
    cluster.paused("Rolling").await;
    expect![[r#"
        $ muster rollout abort ds/web --dry-run
        default/web: aborted revision 3 (7fb847ff66) (dry run)
        All nodes return to revision 2 (75d7c47879), within maxUnavailable of the DaemonSet.
        The pause ends, because it would stop the rollback.
        The revision gets the verdict Bad: `muster rollout retry ds/web` starts it again, and a changed template starts a new one.

        $ muster rollout abort ds/web
        default/web: aborted revision 3 (7fb847ff66)
        All nodes return to revision 2 (75d7c47879), within maxUnavailable of the DaemonSet.
        The pause ends, because it would stop the rollback.
        The revision gets the verdict Bad: `muster rollout retry ds/web` starts it again, and a changed template starts a new one.
    "#]].assert_eq(&cluster.all(&["abort ds/web --dry-run", "abort ds/web"]));
    cluster.phase("RolledBack").await;
    assert_eq!(cluster.images().await, "web:2 web:2 web:2");
    assert_eq!(cluster.rollout().await["spec"]["paused"], false);
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: RolledBack
        aborted by an operator

        revision    3 (7fb847ff66), attempt 1; stable is 2 (75d7c47879)
        policy      none
        nodes       3 eligible: 0 admitted, 0 updated, 0 available, 0 soaked, 3 held
        failures    0 nodes, at most 0 allowed
        next        change the template, or:
                    `muster rollout retry ds/web` starts the revision again

        $ muster rollout history ds/web
        REVISION  HASH        VERDICT  REASON   TIME                  IMAGES
        1         66cc47f568  Good     Adopted  2026-08-23T10:00:00Z  web:1
        2         75d7c47879  Good     Passed   2026-08-23T10:00:00Z  web:2   stable
        3         7fb847ff66  Bad      Aborted  2026-08-23T10:00:00Z  web:3   current

        $ muster rollout forget ds/web --yes
        default/web: DaemonRollout deleted at revision 3 (7fb847ff66)
        The current revision has the verdict Bad, which is kept: the DaemonSet is still held until `muster rollout retry ds/web` or a change of the template.
        No policy applies: then the DaemonSet follows its update strategy.
    "#]].assert_eq(&cluster.all(&["status ds/web", "history ds/web", "forget ds/web --yes"]));

    // The verdict outlives the DaemonRollout.
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: no DaemonRollout, held by the verdict Bad of its revision

        revision    3 (7fb847ff66)
        nodes       3 desired: 0 updated, 3 available, 0 unavailable
        next        no pod is replaced: change the template, or `muster rollout retry ds/web` starts the revision again

        $ muster rollout status ds/web --watch
        default/web: 0 of 3 nodes updated, 3 available
        muster: DaemonSet default/web is held: no pod is replaced: change the template, or `muster rollout retry ds/web` starts the revision again
        [exit 1]

        $ muster rollout retry ds/web
        default/web: attempt 2 of revision 3 (7fb847ff66) requested, DaemonRollout created
        The verdict Bad is removed, and the rollout starts at the first step.
    "#]].assert_eq(&cluster.all(&["status ds/web", "status ds/web --watch", "retry ds/web"]));
    let followed = cluster.run("status ds/web --watch");
    expect!["default/web: Complete"].assert_eq(&last_line(&followed));
    assert_eq!(cluster.images().await, "web:3 web:3 web:3");
}

#[tokio::test]
async fn zones_are_updated_one_after_the_other() {
    let cluster = Cluster::start("zones", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    let groups = json!({"labelKey": "topology.kubernetes.io/zone", "maxConcurrent": 1, "soak": "15m"});
    let steps = json!([{"name": "zones", "nodes": "100%", "groups": groups}]);
    cluster.create(POLICIES, policy(json!({"steps": steps}))).await;
    cluster.phase("Complete").await;
    cluster.wait_for_node_age().await;
    expect![[r#"
        $ muster plan -f web.yaml
        DaemonSet default/web: new revision 2
        3 nodes: 0 gain a pod, 0 lose it, 3 get a new one, 0 keep theirs, 0 without

        replaces    3 nodes in 3 batches, maxUnavailable 100%, policy careful: 45m at
                    least
                    1. sim-1 (step zones)
                    2. sim-2 (step zones)
                    3. sim-3 (step zones)

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&cluster.plan("web:2").await);
    cluster.set_image("web:2").await;
    cluster
        .until("the first zone is updated", async || {
            cluster.rollout().await["status"]["nodes"]["available"] == 1
                && cluster.images().await == "web:1 web:1 web:2"
        })
        .await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Rolling, step zones (1 of 1)
        1 of 3 nodes of step "zones" are updated

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        nodes       3 eligible: 1 admitted, 1 updated, 1 available, 1 soaked, 2 held
        failures    0 nodes, at most 0 allowed
        next        `muster rollout pause ds/web` holds the other nodes
                    `muster rollout abort ds/web` returns all nodes to the stable revision
    "#]]
    .assert_eq(&cluster.all(&["status ds/web"]));
}

#[tokio::test]
async fn a_rollout_whose_policy_was_deleted_is_held_until_it_is_promoted() {
    let cluster = Cluster::start("promote", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    cluster.create(POLICIES, policy(json!({"steps": canary_steps()}))).await;
    cluster.phase("Complete").await;
    cluster.set_image("web:2").await;
    cluster.phase("Waiting").await;
    cluster.send(Request::delete(format!("{POLICIES}/careful")), "application/json", &Value::Null).await;
    cluster.phase("Stopped").await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Stopped, step canary (1 of 1)
        the policy was deleted or no longer selects the DaemonSet

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      none
        nodes       3 eligible: 1 admitted, 1 updated, 1 available, 1 soaked, 2 held
        failures    0 nodes, at most 0 allowed
        next        create a policy that selects the DaemonSet, or:
                    `muster rollout promote ds/web --full` lets the rollout go on to all nodes
                    `muster rollout abort ds/web` returns all nodes to the stable revision

        $ muster rollout promote ds/web
        muster: nothing to approve: the rollout of DaemonSet default/web has stopped (the policy was deleted or no longer selects the DaemonSet): `muster rollout promote ds/web --full` lets it go on to all nodes
        [exit 1]

        $ muster rollout promote ds/web --full
        default/web: all steps of revision 2 (75d7c47879) approved
        Every eligible node gets the revision, without soak time and approvals. The failure budget still applies.
    "#]].assert_eq(&cluster.all(&["status ds/web", "promote ds/web", "promote ds/web --full"]));
    cluster.phase("Complete").await;
    assert_eq!(cluster.images().await, "web:2 web:2 web:2");
}

#[tokio::test]
async fn an_external_check_is_reported() {
    let cluster = Cluster::start("report", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    let prometheus = json!({"url": "http://127.0.0.1:9", "query": "up == 0"});
    let checks = json!([{"name": "smoke", "external": {}}]);
    cluster.create(POLICIES, policy(json!({"checks": checks}))).await;
    cluster.phase("Complete").await;
    cluster.set_image("web:2").await;
    cluster.phase("Waiting").await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Waiting, step all (1 of 1)
        check "smoke" has not passed: not reported yet

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        nodes       3 eligible: 3 admitted, 3 updated, 3 available, 3 soaked, 0 held
        failures    0 nodes, at most 0 allowed
        checks      smoke Inconclusive since 2026-08-23T10:00:00Z: not reported yet
        next        `muster rollout report ds/web smoke pass` reports the result of the check: pass or fail
                    `muster rollout abort ds/web` returns all nodes to the stable revision

        $ muster rollout promote ds/web
        muster: nothing to approve: DaemonSet default/web waits for check "smoke", not for an approval: `muster rollout report ds/web smoke pass` reports its result
        [exit 1]

        $ muster rollout report ds/web nothing pass
        muster: the policy of DaemonSet default/web has no check "nothing": its external checks are: smoke
        [exit 1]

        $ muster rollout report ds/web smoke maybe
        error: invalid value 'maybe' for '<pass|fail>'
          [possible values: pass, fail]

        For more information, try '--help'.
        [exit 2]

        $ muster rollout report ds/web smoke fail --message broken --dry-run
        default/web: check "smoke" of revision 2 (75d7c47879) reported: Fail (dry run)
        The revision fails: onFailure of the policy decides whether its nodes return to the stable revision.

        $ muster rollout report ds/web smoke pass --message fine
        default/web: check "smoke" of revision 2 (75d7c47879) reported: Pass
        The check no longer keeps a step from passing.
    "#]].assert_eq(&cluster.all(&[
        "status ds/web",
        "promote ds/web",
        "report ds/web nothing pass",
        "report ds/web smoke maybe",
        "report ds/web smoke fail --message broken --dry-run",
        "report ds/web smoke pass --message fine",
    ]));
    let followed = cluster.run("status ds/web --watch");
    expect!["default/web: Complete"].assert_eq(&last_line(&followed));
    let reports = cluster.rollout().await["spec"]["checkReports"].clone();
    assert_eq!(reports[0]["message"], "fine", "{reports}");

    // One reported failure fails the revision. In the last step its nodes keep it.
    cluster.set_image("web:3").await;
    cluster.phase("Waiting").await;
    expect![[r#"
        $ muster rollout report ds/web smoke fail --message login-fails
        default/web: check "smoke" of revision 3 (7fb847ff66) reported: Fail
        The revision fails: onFailure of the policy decides whether its nodes return to the stable revision.
    "#]]
    .assert_eq(&cluster.all(&["report ds/web smoke fail --message login-fails"]));
    let followed = cluster.run("status ds/web --watch");
    expect![[r#"
        muster: the rollout of DaemonSet default/web is Stopped: check "smoke" failed: login-fails
        [exit 1]"#]]
    .assert_eq(&last_line(&followed));
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Stopped, step all (1 of 1)
        check "smoke" failed: login-fails

        revision    3 (7fb847ff66), attempt 1; stable is 2 (75d7c47879)
        policy      RolloutPolicy careful
        nodes       3 eligible: 3 admitted, 3 updated, 3 available, 3 soaked, 0 held
        failures    0 nodes, at most 0 allowed
        checks      smoke Fail since 2026-08-23T10:00:00Z: login-fails
        next        change the template, or:
                    `muster rollout retry ds/web` starts the revision again
                    `muster rollout abort ds/web` returns all nodes to the stable revision

        $ muster rollout history ds/web
        REVISION  HASH        VERDICT  REASON   TIME                  IMAGES
        1         66cc47f568  Good     Adopted  2026-08-23T10:00:00Z  web:1
        2         75d7c47879  Good     Passed   2026-08-23T10:00:00Z  web:2   stable
        3         7fb847ff66  Bad      Failed   2026-08-23T10:00:00Z  web:3   current
    "#]]
    .assert_eq(&cluster.all(&["status ds/web", "history ds/web"]));

    // A check that the controller runs itself has no report.
    let path = format!("{POLICIES}/careful");
    let measured = json!({"spec": {"checks": [{"name": "errors", "prometheus": prometheus}]}});
    cluster.merge(&path, &measured).await;
    cluster.set_image("web:4").await;
    cluster
        .until("the rollout of web:4 has started", async || {
            cluster.rollout().await["status"]["current"]["number"] == 4
        })
        .await;
    expect![[r#"
        $ muster rollout report ds/web errors pass
        muster: the controller runs check "errors" itself: only external checks are reported
        [exit 1]
    "#]]
    .assert_eq(&cluster.all(&["report ds/web errors pass"]));
}

#[tokio::test]
async fn a_user_without_the_role_is_refused() {
    let cluster = Cluster::start("forbidden", &[]).await;
    cluster.create_set().await;
    cluster.complete_without_policy().await;
    cluster.create(POLICIES, policy(json!({"steps": canary_steps()}))).await;
    cluster.phase("Complete").await;
    let user = cluster.service_account("viewer").await;
    expect![[r#"
        $ muster rollout status ds/web
        muster: you may not read daemonrollouts in the namespace default: bind the ClusterRole muster-rollout-viewer to your user: daemonrollouts.muster.dev "web" is forbidden: User "system:serviceaccount:default:viewer" cannot get resource "daemonrollouts" in API group "muster.dev" in the namespace "default"
        [exit 1]

        $ muster rollout pause ds/web
        muster: you may not read daemonrollouts in the namespace default: bind the ClusterRole muster-rollout-operator to your user: daemonrollouts.muster.dev "web" is forbidden: User "system:serviceaccount:default:viewer" cannot get resource "daemonrollouts" in API group "muster.dev" in the namespace "default"
        [exit 1]
    "#]].assert_eq(&cluster.all_as(&user, &["status ds/web", "pause ds/web"]));
    cluster.bind("viewer", "muster-rollout-viewer").await;
    cluster
        .until("the role is in effect", async || !cluster.all_as(&user, &["pause ds/web"]).contains("read"))
        .await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Complete

        revision    1 (66cc47f568), attempt 1; it is the stable revision
        policy      RolloutPolicy careful
        nodes       3 eligible: 3 admitted, 3 updated, 3 available, 3 soaked, 0 held
        failures    0 nodes, at most 0 allowed

        $ muster rollout pause ds/web
        muster: you may not patch daemonrollouts in the namespace default: bind the ClusterRole muster-rollout-operator to your user: daemonrollouts.muster.dev "web" is forbidden: User "system:serviceaccount:default:viewer" cannot patch resource "daemonrollouts" in API group "muster.dev" in the namespace "default"
        [exit 1]
    "#]].assert_eq(&cluster.all_as(&user, &["status ds/web", "pause ds/web"]));
    cluster.bind("viewer", "muster-rollout-operator").await;
    cluster
        .until("the role is in effect", async || {
            !cluster.all_as(&user, &["pause ds/web --dry-run"]).contains("may not")
        })
        .await;
    expect![[r#"
        $ muster rollout pause ds/web
        default/web: paused at revision 1 (66cc47f568)
        No node gets a new revision: a change of the template is held.
        `muster rollout resume ds/web` ends the pause.

        $ muster rollout resume ds/web
        default/web: resumed at revision 1 (66cc47f568)
        The rollout is Complete: nothing moves until the template changes.
    "#]]
    .assert_eq(&cluster.all_as(&user, &["pause ds/web", "resume ds/web"]));
}

#[test]
fn the_document_shows_what_the_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/rollouts.md")).unwrap();
    let sources = ["rollout.rs", "rollout/assist.rs", "prometheus.rs"];
    let sources = sources.map(|it| fs::read_to_string(root.join("tests").join(it)).unwrap());
    let lines = sources.iter().flat_map(|it| it.lines());
    let printed: Vec<&str> = lines.map(|it| it.strip_prefix("        ").unwrap_or(it)).collect();
    let printed = printed.join("\n");
    let blocks = document.split("```console\n").skip(1).filter_map(|it| it.split("\n```").next());
    let ours = ["$ muster rollout", "$ muster explain", "$ muster plan"];
    let blocks: Vec<&str> = blocks.filter(|it| ours.iter().any(|ours| it.starts_with(ours))).collect();
    for command in ours {
        assert!(blocks.iter().any(|it| it.starts_with(command)), "the document has no block of {command}");
    }
    for block in blocks {
        assert!(printed.contains(&format!("\n{block}\n")), "no test here prints:\n{block}");
    }
}

impl Cluster {
    /// Runs another command than `muster rollout`, and returns it with what it printed.
    fn muster(&self, shown: &str, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(args).arg("--kubeconfig").arg(self.dir.join("kubeconfig"));
        let said = normalised(&text(&command.stdin(Stdio::null()).output().unwrap()));
        // What the controller has in memory changes from second to second.
        let controller = regex::Regex::new(r"(?m)^controller  .*\n( {12}.*\n)*").unwrap();
        format!("$ {shown}\n{}", controller.replace_all(&said, ""))
    }

    fn explain(&self) -> String {
        self.muster("muster explain ds/web", &["explain", "ds/web"])
    }

    /// Runs `muster plan` with the DaemonSet and this image.
    async fn plan(&self, image: &str) -> String {
        let mut set = self.get(&format!("{SETS}/web")).await;
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        let spec = &set["spec"];
        let manifest =
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}, "spec": spec});
        let file = self.dir.join("web.yaml");
        fs::write(&file, manifest.to_string()).unwrap();
        self.muster("muster plan -f web.yaml", &["plan", "-f", file.to_str().unwrap()])
    }

    /// Waits until the rollout of the present template is in this phase, and paused.
    async fn paused(&self, phase: &str) {
        self.state(phase, true).await;
    }

    /// Waits until no node is so young that a step does not admit it yet.
    async fn wait_for_node_age(&self) {
        let nodes = self.get("/api/v1/nodes").await;
        let created = nodes["items"].as_array().unwrap().iter();
        let newest = created.map(|it| it["metadata"]["creationTimestamp"].as_str().unwrap()).max().unwrap();
        let newest = muster_api::time::Time::parse(newest).unwrap();
        self.until("the nodes are old enough", async || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            let now = muster_api::time::Time::from_secs(i64::try_from(now.as_secs()).unwrap());
            Duration::from_secs(15) < now.since(newest)
        })
        .await;
    }

    /// Images of all pods, in order.
    async fn images(&self) -> String {
        let list = self.get("/api/v1/namespaces/default/pods").await;
        let pods = list["items"].as_array().unwrap().iter();
        let pods = pods.filter(|it| it["metadata"]["deletionTimestamp"].is_null());
        let mut images: Vec<&str> =
            pods.map(|it| it["spec"]["containers"][0]["image"].as_str().unwrap()).collect();
        images.sort_unstable();
        images.join(" ")
    }

    /// Creates a service account that may read DaemonSets, and returns a kubeconfig with its token.
    async fn service_account(&self, name: &str) -> PathBuf {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.create(accounts, json!({"metadata": {"name": name}})).await;
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = self.create(&format!("{accounts}/{name}/token"), request).await;
        let rules = json!([{"apiGroups": ["apps"], "resources": ["daemonsets", "controllerrevisions"], "verbs": ["get", "list"]}]);
        let role = json!({"metadata": {"name": "sets"}, "rules": rules});
        self.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
        self.bind(name, "sets").await;
        let text = fs::read_to_string(self.dir.join("kubeconfig")).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": token["status"]["token"]});
        let path = self.dir.join(name);
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    async fn bind(&self, account: &str, role: &str) {
        let object = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
        });
        self.create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", object).await;
    }
}

/// One node that an operator approves, and then all.
fn canary_steps() -> Value {
    json!([{"name": "canary", "nodes": 1, "approval": "Manual"}, {"name": "rest"}])
}

/// The last line, and the exit code if it is not 0.
fn last_line(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let count = if said.contains("[exit ") { 2 } else { 1 };
    lines[lines.len().saturating_sub(count)..].join("\n")
}
