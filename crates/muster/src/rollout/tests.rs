use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::json;

use super::*;

/// An API server with scripted responses to the requests for DaemonRollouts and policies. It records all requests.
#[derive(Clone, Default)]
struct ScriptedServer {
    /// The response to each request for the DaemonSet.
    set: Arc<Mutex<(u16, Value)>>,
    responses: Arc<Mutex<Vec<(u16, Value)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    fn new(responses: Vec<(u16, Value)>) -> Self {
        let set = Arc::new(Mutex::new((200, daemon_set("muster-controller", "RollingUpdate"))));
        Self { set, responses: Arc::new(Mutex::new(responses)), requests: Arc::default() }
    }

    /// Replaces the response to requests for the DaemonSet.
    fn with_set(self, code: u16, set: Value) -> Self {
        *self.set.lock().unwrap() = (code, set);
        self
    }

    fn api(&self) -> RolloutApi {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let line = format!("{} {}", request.method(), request.uri());
                let body = request.into_body().collect().await?.to_bytes();
                server
                    .requests
                    .lock()
                    .unwrap()
                    .push(format!("{line} {}", String::from_utf8_lossy(&body)).trim_end().to_owned());
                let (code, body) = {
                    let mut responses = server.responses.lock().unwrap();
                    if line.ends_with("/daemonsets/web") {
                        server.set.lock().unwrap().clone()
                    } else if responses.is_empty() {
                        (500, json!({"message": "not scripted"}))
                    } else {
                        responses.remove(0)
                    }
                };
                let response = Response::builder().status(code);
                Ok::<_, tower::BoxError>(response.body(Body::from(body.to_string().into_bytes()))?)
            }
        });
        let set = SetName { namespace: "logging".into(), name: "web".into(), is_namespace_given: true };
        RolloutApi::new(Client::new(service, "logging"), set, OPERATOR_ROLE)
    }

    /// Sends a request of an operator, and compares the HTTP requests and the output.
    async fn check(&self, action: &OperatorAction, dry_run: bool, expected: Expect) {
        let said = match submit_request(&self.api(), action, dry_run).await {
            Ok(text) => text,
            Err(error) => format!("error: {error:#}\n"),
        };
        let requests = self.requests.lock().unwrap().join("\n");
        expected.assert_eq(&format!("{requests}\n\n{said}"));
    }
}

/// A DaemonSet with this update strategy, whose status was last written by this field manager.
fn daemon_set(manager: &str, strategy: &str) -> Value {
    let entry = json!({
        "manager": manager, "subresource": "status", "time": "2026-08-23T10:00:00Z",
        "fieldsV1": {"f:status": {"f:conditions": {}}},
    });
    json!({
        "metadata": {"uid": "s", "generation": 2, "managedFields": [entry]},
        "spec": {"updateStrategy": {"type": strategy}},
        "status": {"observedGeneration": 2},
    })
}

/// The ControllerRevisions 1, with the verdict Good, and 2, with this verdict.
fn revisions(verdict: &str) -> (u16, Value) {
    let revision = |number: i64, hash: &str, verdict: &str| {
        json!({
            "revision": number,
            "metadata": {
                "labels": {"controller-revision-hash": hash},
                "annotations": {"muster.dev/verdict": verdict},
                "ownerReferences": [{"kind": "DaemonSet", "uid": "s", "controller": true}],
            },
        })
    };
    (200, json!({"items": [revision(1, "a", "Good"), revision(2, "b", verdict)]}))
}

fn forbidden(message: &str) -> Value {
    json!({"code": 403, "reason": "Forbidden", "message": message})
}

/// A policy with the steps canary, which an operator approves, and rest, and two checks.
fn policy() -> (u16, Value) {
    let steps = json!([{"name": "canary", "nodes": 1, "approval": "Manual"}, {"name": "rest"}]);
    let checks = json!([{"name": "smoke", "external": {}}, {"name": "load", "external": {}}]);
    (200, json!({"spec": {"daemonSets": ["web"], "steps": steps, "checks": checks}}))
}

/// A DaemonRollout with this resourceVersion, spec and status. Its revision 2 is `b`, and revision 1, `a`, is stable.
fn rollout(version: &str, spec: Value, status: Value) -> (u16, Value) {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "logging", "uid": "u", "resourceVersion": version, "generation": 1},
        "spec": spec,
        "status": {
            "observedGeneration": 1,
            "attempt": 1,
            "current": {"revision": "b", "number": 2},
            "stable": {"revision": "a", "number": 1},
            "policy": {"kind": "RolloutPolicy", "name": "careful"},
        },
    });
    for (key, value) in status.as_object().unwrap() {
        object["status"][key] = value.clone();
    }
    (200, object)
}

fn conflict() -> (u16, Value) {
    (409, json!({"code": 409, "reason": "Conflict", "message": "the object has been modified"}))
}

#[tokio::test]
async fn a_conflict_is_retried_once_with_the_objects_as_they_are_then() {
    let rolling = |version: &str| rollout(version, json!({}), json!({"phase": "Rolling"}));
    let server = ScriptedServer::new(vec![
        rolling("7"),
        policy(),
        conflict(),
        rolling("8"),
        policy(),
        (200, json!({})),
    ]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout&dryRun=All {"metadata":{"resourceVersion":"7"},"spec":{"paused":true}}
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout&dryRun=All {"metadata":{"resourceVersion":"8"},"spec":{"paused":true}}

        logging/web: paused at revision 2 (b) (dry run)
        No node gets a new revision. Failures are still counted.
        `muster rollout resume ds/web -n logging` ends the pause.
    "#]];
    server.check(&OperatorAction::Pause, true, expected).await;

    let server =
        ScriptedServer::new(vec![rolling("7"), policy(), conflict(), rolling("8"), policy(), conflict()]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"paused":true}}
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"8"},"spec":{"paused":true}}

        error: the DaemonRollout logging/web changed twice meanwhile: try again: the object has been modified
    "#]];
    server.check(&OperatorAction::Pause, false, expected).await;

    // Between the two reads another operator has paused it.
    let paused = rollout("8", json!({"paused": true}), json!({"phase": "Rolling", "paused": true}));
    let server = ScriptedServer::new(vec![rolling("7"), policy(), conflict(), paused, policy()]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"paused":true}}
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful

        error: DaemonSet logging/web is already paused: `muster rollout resume ds/web -n logging` ends the pause
    "#]];
    server.check(&OperatorAction::Pause, false, expected).await;
}

#[tokio::test]
async fn an_abort_ends_the_pause_in_the_same_request() {
    let paused = rollout("7", json!({"paused": true}), json!({"phase": "RollingBack", "paused": true}));
    let server = ScriptedServer::new(vec![paused, policy(), (200, json!({}))]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"abort":{"revision":"b"},"paused":false}}

        logging/web: aborted revision 2 (b)
        All nodes return to revision 1 (a), within maxUnavailable of the DaemonSet.
        The pause ends, because it would stop the rollback.
        The revision gets the verdict Bad: `muster rollout retry ds/web -n logging` starts it again, and a changed template starts a new one.
    "#]];
    server.check(&OperatorAction::Abort, false, expected).await;
}

#[tokio::test]
async fn a_retry_removes_the_requests_of_the_last_attempt() {
    let spec = json!({"abort": {"revision": "b"}, "approve": {"revision": "b", "step": "*"}});
    let failed = rollout("7", spec, json!({"phase": "RolledBack", "attempt": 4}));
    let server = ScriptedServer::new(vec![failed, policy(), (200, json!({}))]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"abort":null,"approve":null,"checkReports":null,"retry":{"attempt":5,"revision":"b"}}}

        logging/web: attempt 5 of revision 2 (b) requested
        The rollout starts again at step "canary", without the failures of the last attempt.
    "#]];
    server.check(&OperatorAction::Retry, false, expected).await;

    let spec = json!({"retry": {"revision": "b", "attempt": 5}});
    let pending = rollout("7", spec, json!({"phase": "RolledBack", "attempt": 4}));
    let server = ScriptedServer::new(vec![pending, policy()]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful

        error: a retry of revision 2 (b) is requested already: is `muster controller` running?
    "#]];
    server.check(&OperatorAction::Retry, false, expected).await;
}

#[tokio::test]
async fn a_report_keeps_the_other_reports_on_the_revision() {
    let reports = json!([
        {"check": "load", "revision": "b", "result": "Pass"},
        {"check": "smoke", "revision": "b", "result": "Fail"},
        {"check": "old", "revision": "a", "result": "Pass"},
    ]);
    let status = json!({"phase": "Waiting", "checks": [{"name": "smoke", "result": "Fail"}]});
    let waiting = rollout("7", json!({"checkReports": reports}), status);
    let server = ScriptedServer::new(vec![waiting, policy(), (200, json!({}))]);
    let report =
        OperatorAction::Report { check: "smoke".into(), result: ReportedResult::Pass, message: None };
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"checkReports":[{"check":"load","result":"Pass","revision":"b"},{"check":"smoke","result":"Pass","revision":"b"}]}}

        logging/web: check "smoke" of revision 2 (b) reported: Pass
        The check no longer keeps a step from passing.
    "#]];
    server.check(&report, false, expected).await;
}

#[tokio::test]
async fn a_step_is_approved_in_advance_only_by_its_name() {
    let step = json!({"name": "canary", "index": 0});
    let soaking = || rollout("7", json!({}), json!({"phase": "Soaking", "step": step}));
    let server = ScriptedServer::new(vec![soaking(), policy()]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful

        error: nothing to approve: DaemonSet logging/web is Soaking and does not wait for an approval: `muster rollout promote ds/web --step canary -n logging` approves step "canary" in advance
    "#]];
    server.check(&OperatorAction::Promote(ApprovedSteps::Waiting), false, expected).await;

    let server = ScriptedServer::new(vec![soaking(), policy(), (200, json!({}))]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"approve":{"revision":"b","step":"canary"}}}

        logging/web: step "canary" of revision 2 (b) approved
        When the step has passed, step "rest" starts.
    "#]];
    server.check(&OperatorAction::Promote(ApprovedSteps::Named("canary".into())), false, expected).await;

    let approved = json!({"approve": {"revision": "b", "step": "canary"}});
    let waiting = rollout("7", approved, json!({"phase": "Waiting", "step": step}));
    let server = ScriptedServer::new(vec![waiting, policy()]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful

        error: step "canary" of revision 2 (b) is approved already: `muster rollout status ds/web -n logging` shows what the rollout waits for
    "#]];
    server.check(&OperatorAction::Promote(ApprovedSteps::Waiting), false, expected).await;

    // The approval of an earlier revision is no approval of this one.
    let approved = json!({"approve": {"revision": "a", "step": "canary"}});
    let waiting = rollout("7", approved, json!({"phase": "Waiting", "step": step}));
    let server = ScriptedServer::new(vec![waiting, policy(), (200, json!({}))]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"approve":{"revision":"b","step":"canary"}}}

        logging/web: step "canary" of revision 2 (b) approved
        When the step has passed, step "rest" starts.
    "#]];
    server.check(&OperatorAction::Promote(ApprovedSteps::Waiting), false, expected).await;
}

#[tokio::test]
async fn a_cluster_without_the_kinds_is_named() {
    let missing = (404, json!("404 page not found"));
    let server = ScriptedServer::new(vec![missing, (200, json!({"items": []}))]);
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

        error: the API server does not have the kinds of muster.dev/v1alpha1: `kubectl apply -k deploy/kubernetes/crds` adds them
    "#]];
    server.check(&OperatorAction::Pause, false, expected).await;
}

#[tokio::test]
async fn in_assist_mode_an_abort_stops_the_rollout() {
    let rolling = || rollout("7", json!({"paused": true}), json!({"phase": "Rolling", "paused": true}));
    let server = ScriptedServer::new(vec![rolling(), policy(), (200, json!({}))])
        .with_set(200, daemon_set("muster-assist", "OnDelete"));
    server.check(&OperatorAction::Abort, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"abort":{"revision":"b"},"paused":false}}

        logging/web: aborted revision 2 (b)
        The rollout stops, and nodes keep their pods: assist mode cannot roll back.
        Revert the template: then all nodes return to revision 1 (a).
        The pause ends, because it would hold the reverted template too.
        The revision gets the verdict Bad: `muster rollout retry ds/web -n logging` starts it again, and a changed template starts a new one.
    "#]]).await;

    // Without the right to read the DaemonSet, the mode is not known.
    let server = ScriptedServer::new(vec![rolling(), policy(), (200, json!({}))])
        .with_set(403, forbidden("cannot get daemonsets"));
    server.check(&OperatorAction::Abort, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"abort":{"revision":"b"},"paused":false}}

        logging/web: aborted revision 2 (b)
        All nodes return to revision 1 (a), within maxUnavailable of the DaemonSet.
        If the controller runs in assist mode, the rollout stops instead: revert the template then.
        The pause ends, because it would stop the rollback.
        The revision gets the verdict Bad: `muster rollout retry ds/web -n logging` starts it again, and a changed template starts a new one.
    "#]]).await;

    let stopped = rollout("7", json!({}), json!({"phase": "Stopped", "message": "revision 2 failed"}));
    let server = ScriptedServer::new(vec![stopped, policy(), revisions("Bad")])
        .with_set(200, daemon_set("muster-assist", "OnDelete"));
    server.check(&OperatorAction::Abort, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

        error: nothing to abort: revision 2 (b) of DaemonSet logging/web has the verdict Bad, and assist mode cannot roll back: revert the template
    "#]]).await;
}

#[tokio::test]
async fn in_assist_mode_a_pause_does_not_hold_a_node_whose_pod_goes() {
    let server = ScriptedServer::new(vec![
        rollout("7", json!({}), json!({"phase": "Complete"})),
        policy(),
        (200, json!({})),
    ])
    .with_set(200, daemon_set("muster-assist", "OnDelete"));
    server.check(&OperatorAction::Pause, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"paused":true}}

        logging/web: paused at revision 2 (b)
        No pod is replaced after a change of the template. In assist mode a new node, or one whose pod is deleted, still gets the newest revision.
        `muster rollout resume ds/web -n logging` ends the pause.
    "#]]).await;

    let server = ScriptedServer::new(vec![
        rollout("7", json!({}), json!({"phase": "Rolling"})),
        policy(),
        (200, json!({})),
    ])
    .with_set(403, forbidden("cannot get daemonsets"));
    server.check(&OperatorAction::Pause, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/rolloutpolicies/careful
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"paused":true}}

        logging/web: paused at revision 2 (b)
        No node gets a new revision. Failures are still counted. If the controller runs in assist mode, a new node, or one whose pod is deleted, still gets the newest revision.
        `muster rollout resume ds/web -n logging` ends the pause.
    "#]]).await;
}

#[tokio::test]
async fn assist_mode_refuses_a_set_that_is_not_on_delete() {
    let missing =
        || (404, json!({"code": 404, "reason": "NotFound", "message": "m", "details": {"name": "web"}}));
    let refused = || daemon_set("muster-assist", "RollingUpdate");
    let server = ScriptedServer::new(vec![missing(), revisions("")]).with_set(200, refused());
    server.check(&OperatorAction::Pause, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

        error: DaemonSet logging/web is not rolled out by a policy (NotOnDelete): kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
    "#]]).await;
    let server = ScriptedServer::new(vec![missing(), revisions("")]).with_set(200, refused());
    let snapshot = server.api().read_all().await.unwrap();
    expect![[r#"
        DaemonSet logging/web: no DaemonRollout, it follows its update strategy RollingUpdate

        revision    2 (b)
        nodes       0 desired: 0 updated, 0 available, 0 unavailable
        refused     NotOnDelete: kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
    "#]].assert_eq(&progress::status_text(&snapshot));
}

#[tokio::test]
async fn a_stopped_rollout_goes_on_if_its_revision_has_not_failed() {
    let stopped = || {
        let message = "the policy was deleted or no longer selects the DaemonSet";
        rollout("7", json!({}), json!({"phase": "Stopped", "message": message, "policy": null}))
    };
    let full = OperatorAction::Promote(ApprovedSteps::All);
    let server = ScriptedServer::new(vec![stopped(), revisions(""), (200, json!({}))]);
    server.check(&full, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"approve":{"revision":"b","step":"*"}}}

        logging/web: all steps of revision 2 (b) approved
        Every eligible node gets the revision, without soak time and approvals. The failure budget still applies.
    "#]]).await;
    let server = ScriptedServer::new(vec![stopped(), revisions("")]);
    server.check(&OperatorAction::Promote(ApprovedSteps::Waiting), false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

        error: nothing to approve: the rollout of DaemonSet logging/web has stopped (the policy was deleted or no longer selects the DaemonSet): `muster rollout promote ds/web --full -n logging` lets it go on to all nodes
    "#]]).await;
    let server = ScriptedServer::new(vec![stopped(), revisions("Bad")]);
    server.check(&full, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

        error: nothing to approve: the rollout of DaemonSet logging/web has stopped (the policy was deleted or no longer selects the DaemonSet): `muster rollout retry ds/web -n logging` starts it again
    "#]]).await;
    let server = ScriptedServer::new(vec![stopped(), (403, forbidden("cannot list controllerrevisions"))]);
    server.check(&full, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

        error: nothing to approve: the rollout of DaemonSet logging/web has stopped (the policy was deleted or no longer selects the DaemonSet), and whether the revision failed is not known: the ClusterRole view lets you read it
    "#]]).await;
    // A retry does not need the verdict.
    let server = ScriptedServer::new(vec![
        stopped(),
        (403, forbidden("cannot list controllerrevisions")),
        (200, json!({})),
    ]);
    server.check(&OperatorAction::Retry, false, expect![[r#"
        GET /apis/apps/v1/namespaces/logging/daemonsets/web
        GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
        GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000
        PATCH /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web?fieldManager=muster-rollout {"metadata":{"resourceVersion":"7"},"spec":{"abort":null,"approve":null,"checkReports":null,"retry":{"attempt":2,"revision":"b"}}}

        logging/web: attempt 2 of revision 2 (b) requested
        The rollout starts again at step "all", without the failures of the last attempt.
    "#]]).await;

    let server = ScriptedServer::new(vec![stopped(), revisions("")]);
    let snapshot = server.api().read_all().await.unwrap();
    expect![[r#"
        DaemonSet logging/web: Stopped
        the policy was deleted or no longer selects the DaemonSet

        revision    2 (b), attempt 1; stable is 1 (a)
        policy      none
        nodes       0 eligible: 0 admitted, 0 updated, 0 available, 0 soaked, 0 held
        failures    0 nodes, at most 0 allowed
        next        create a policy that selects the DaemonSet, or:
                    `muster rollout promote ds/web --full -n logging` lets the rollout go on to all nodes
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
    "#]]
    .assert_eq(&progress::status_text(&snapshot));
}

#[tokio::test]
async fn the_daemonrollout_of_a_deleted_daemonset_counts_as_not_there() {
    let stale = || {
        let (code, mut object) = rollout("7", json!({"paused": true}), json!({"phase": "Rolling"}));
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "another"}]);
        (code, object)
    };
    for action in [OperatorAction::Pause, OperatorAction::Resume, OperatorAction::Abort] {
        let server = ScriptedServer::new(vec![stale(), revisions("")]);
        server
            .check(
                &action,
                false,
                expect![[r#"
                    GET /apis/apps/v1/namespaces/logging/daemonsets/web
                    GET /apis/muster.dev/v1alpha1/namespaces/logging/daemonrollouts/web
                    GET /apis/apps/v1/namespaces/logging/controllerrevisions?limit=1000

                    error: the DaemonRollout logging/web belongs to a deleted DaemonSet of the same name: try again when the garbage collector has deleted it
                "#]],
            )
            .await;
    }
    let server = ScriptedServer::new(vec![stale(), revisions("")]);
    let snapshot = server.api().read_all().await.unwrap();
    expect![[r#"
        DaemonSet logging/web: no DaemonRollout, it follows its update strategy RollingUpdate

        revision    2 (b)
        nodes       0 desired: 0 updated, 0 available, 0 unavailable
        next        the garbage collector deletes the DaemonRollout of an earlier DaemonSet with this name
    "#]]
    .assert_eq(&progress::status_text(&snapshot));
    let error = change::plan_forget(&snapshot).unwrap_err();
    assert!(error.to_string().contains("belongs to a deleted DaemonSet"), "{error}");
}

#[tokio::test]
async fn what_to_do_about_each_phase() {
    let step = json!({"name": "canary", "index": 0});
    let phases = [
        json!({"phase": "Rolling", "step": step}),
        json!({"phase": "Soaking", "step": {"name": "canary", "index": 0, "passesAt": "2026-08-23T10:00:00Z"}}),
        json!({"phase": "PartiallyComplete", "step": step}),
        json!({"phase": "Stopped", "step": step, "message": "no progress for 600 s\u{1b}[31m"}),
        json!({"phase": "RollingBack", "step": step}),
        json!({"phase": "Exploding"}),
        json!({"phase": "Waiting", "step": step, "observedGeneration": 0}),
    ];
    let mut said = String::new();
    for status in phases {
        for spec in [json!({}), json!({"paused": true})] {
            let mut status = status.clone();
            status["paused"] = spec["paused"].as_bool().unwrap_or(false).into();
            let (_, object) = rollout("7", spec, status);
            let snapshot = RolloutSnapshot {
                set: SetName { namespace: "logging".into(), name: "web".into(), is_namespace_given: true },
                rollout: Some(snapshot::StoredRollout::decode(object).unwrap()),
                has_stale_rollout: false,
                are_kinds_served: true,
                policy: None,
                daemon_set: Some(daemon_set("muster-controller", "RollingUpdate")),
                revisions: revisions("").1["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(snapshot::RevisionRecord::decode)
                    .collect(),
            };
            let text = progress::status_text(&snapshot);
            let next = text.split_once("next").map_or("-", |(_, next)| next.trim());
            said += &format!("{}\n  {next}\n", progress::summary_line(&snapshot));
        }
    }
    expect![[r#"
        logging/web: Rolling, step canary (1)
          `muster rollout pause ds/web -n logging` holds the other nodes
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: Rolling (paused), step canary (1)
          `muster rollout resume ds/web -n logging` ends the pause
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: Soaking, step canary (1)
          the step passes at 2026-08-23T10:00:00Z at the earliest
                    `muster rollout pause ds/web -n logging` holds the other nodes
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: Soaking (paused), step canary (1)
          `muster rollout resume ds/web -n logging` ends the pause
                    the step passes at 2026-08-23T10:00:00Z at the earliest
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: PartiallyComplete, step canary (1)
          `muster rollout promote ds/web --full -n logging` updates the other nodes too
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: PartiallyComplete (paused), step canary (1)
          `muster rollout resume ds/web -n logging` ends the pause
                    `muster rollout promote ds/web --full -n logging` updates the other nodes too
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: Stopped, step canary (1): no progress for 600 s\u{1b}[31m
          change the template, or:
                    `muster rollout retry ds/web -n logging` starts the revision again
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: Stopped (paused), step canary (1): no progress for 600 s\u{1b}[31m
          `muster rollout resume ds/web -n logging` ends the pause
                    change the template, or:
                    `muster rollout retry ds/web -n logging` starts the revision again
                    `muster rollout abort ds/web -n logging` returns all nodes to the stable revision
        logging/web: RollingBack, step canary (1)
          nodes are returning to the stable revision
        logging/web: RollingBack (paused), step canary (1)
          `muster rollout resume ds/web -n logging` ends the pause
        logging/web: Exploding
          this version of muster does not have the phase: use that of the controller
        logging/web: Exploding (paused)
          `muster rollout resume ds/web -n logging` ends the pause
                    this version of muster does not have the phase: use that of the controller
        logging/web: Waiting, step canary (1)
          the controller has not observed the DaemonRollout yet: is `muster controller` running?
        logging/web: Waiting (paused), step canary (1)
          the controller has not observed the DaemonRollout yet: is `muster controller` running?
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_unreadable_object_is_refused() {
    let error = snapshot::StoredRollout::decode(json!({"spec": {"paused": "yes"}})).unwrap_err();
    expect![[r#"the spec of the DaemonRollout is unreadable: a newer version of muster may have written it: invalid type: string "yes", expected a boolean"#]].assert_eq(&format!("{error:#}"));
}

#[test]
fn text_of_the_server_is_one_bounded_line() {
    assert_eq!(printable("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
    assert_eq!(printable(&"x".repeat(5000)).chars().count(), 1001);
}
