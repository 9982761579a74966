//! `muster rollout`, as an operator uses it: the real binary beside a cluster with simulated nodes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use expect_test::expect;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// Time within which a state must be reached, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const ROLLOUTS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/daemonrollouts";
const POLICIES: &str = "/apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies";

#[tokio::test]
async fn a_canary_is_approved() {
    let cluster = Cluster::start("canary").await;
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
    let cluster = Cluster::start("retry").await;
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
    let cluster = Cluster::start("pause").await;
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
async fn an_external_check_is_reported() {
    let cluster = Cluster::start("report").await;
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
        No step passes while the check fails.
        `muster rollout abort ds/web` returns all nodes to the stable revision.

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

    // A check that the controller runs itself has no report.
    let path = format!("{POLICIES}/careful");
    let measured = json!({"spec": {"checks": [{"name": "errors", "prometheus": prometheus}]}});
    cluster.merge(&path, &measured).await;
    cluster.set_image("web:3").await;
    cluster
        .until("the rollout of web:3 has started", async || {
            cluster.rollout().await["status"]["phase"] != "Complete"
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
    let cluster = Cluster::start("forbidden").await;
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
    let source = fs::read_to_string(root.join("tests/rollout.rs")).unwrap();
    let printed: Vec<&str> = source.lines().map(|it| it.strip_prefix("        ").unwrap_or(it)).collect();
    let printed = printed.join("\n");
    let blocks = document.split("```console\n").skip(1).filter_map(|it| it.split("\n```").next());
    let blocks: Vec<&str> = blocks.filter(|it| it.starts_with("$ muster rollout")).collect();
    assert!(5 < blocks.len());
    for block in blocks {
        assert!(printed.contains(&format!("\n{block}\n")), "no test here prints:\n{block}");
    }
}

/// `muster up` with three simulated nodes.
struct Cluster {
    child: Child,
    dir: PathBuf,
    client: Client,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rollout-{name}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["up", "--listen", "127.0.0.1:0", "--sim-nodes", "3", "--data-dir"]).arg(&dir);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{line}");
        let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self { child, dir, client: Client::try_from(config).unwrap() }
    }

    /// Runs `muster rollout` with these words, and returns what it printed, with its exit code.
    fn run(&self, words: &str) -> String {
        self.run_as(&self.dir.join("kubeconfig"), words)
    }

    fn run_as(&self, kubeconfig: &Path, words: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.arg("rollout").args(words.split(' ')).arg("--kubeconfig").arg(kubeconfig);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let code = output.status.code().unwrap_or(-1);
        let exit = if code == 0 { String::new() } else { format!("[exit {code}]\n") };
        normalised(&(text(&output) + &exit))
    }

    /// Runs commands, and returns them with what they printed, as a console shows it.
    fn all(&self, commands: &[&str]) -> String {
        self.all_as(&self.dir.join("kubeconfig"), commands)
    }

    fn all_as(&self, kubeconfig: &Path, commands: &[&str]) -> String {
        let shown =
            commands.iter().map(|it| format!("$ muster rollout {it}\n{}", self.run_as(kubeconfig, it)));
        shown.collect::<Vec<_>>().join("\n")
    }

    async fn send(&self, request: http::request::Builder, media_type: &str, body: &Value) -> Value {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.header("Content-Type", media_type).body(body).unwrap();
        self.client.request(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.send(Request::get(path), "application/json", &Value::Null).await
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        self.send(Request::post(path), "application/json", &object).await
    }

    async fn merge(&self, path: &str, patch: &Value) {
        self.send(Request::patch(path), "application/merge-patch+json", patch).await;
    }

    async fn create_set(&self) {
        let container = json!({"name": "c", "image": "web:1"});
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
        let object = json!({
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
            },
        });
        self.create(SETS, object).await;
    }

    async fn set_image(&self, image: &str) {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        self.merge(&format!("{SETS}/web"), &patch).await;
    }

    /// Waits until every node has an available pod.
    async fn complete_without_policy(&self) {
        self.until("all pods are available", async || {
            let status = self.get(&format!("{SETS}/web")).await["status"].clone();
            status["numberAvailable"] == 3 && status["updatedNumberScheduled"] == 3
        })
        .await;
    }

    async fn rollout(&self) -> Value {
        let list = self.get(ROLLOUTS).await;
        list["items"].as_array().and_then(|it| it.first()).cloned().unwrap_or_default()
    }

    /// Waits until the rollout of the present template is in this phase.
    async fn phase(&self, phase: &str) {
        self.state(phase, false).await;
    }

    /// Waits until the rollout of the present template is in this phase, and paused.
    async fn paused(&self, phase: &str) {
        self.state(phase, true).await;
    }

    async fn state(&self, phase: &str, is_paused: bool) {
        self.until(&format!("the rollout is {phase}"), async || {
            let set = self.get(&format!("{SETS}/web")).await;
            let status = self.rollout().await["status"].clone();
            let revisions = self.get("/apis/apps/v1/namespaces/default/controllerrevisions").await;
            let revisions = revisions["items"].as_array().unwrap().clone();
            let newest = revisions.iter().map(|it| it["revision"].as_i64().unwrap()).max();
            set["status"]["observedGeneration"] == set["metadata"]["generation"]
                && status["current"]["number"].as_i64() == newest
                && status["phase"] == phase
                && status["paused"] == is_paused
        })
        .await;
    }

    async fn until(&self, expected: &str, is_reached: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_reached().await {
            let rollout = self.rollout().await;
            assert!(began.elapsed() < TIMEOUT, "not reached: {expected}\n{rollout:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
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

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn policy(settings: Value) -> Value {
    let mut spec = settings;
    spec["daemonSets"] = json!(["web"]);
    json!({"metadata": {"name": "careful"}, "spec": spec})
}

/// One node that an operator approves, and then all.
fn canary_steps() -> Value {
    json!([{"name": "canary", "nodes": 1, "approval": "Manual"}, {"name": "rest"}])
}

/// Replaces times.
fn normalised(said: &str) -> String {
    let time = regex::Regex::new(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z").unwrap();
    time.replace_all(said, "2026-08-23T10:00:00Z").into_owned()
}

/// The last line, and the exit code if it is not 0.
fn last_line(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let count = if said.contains("[exit ") { 2 } else { 1 };
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
