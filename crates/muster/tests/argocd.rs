//! The Lua scripts of `deploy/argocd`, run by Lua 5.1 as Argo CD runs them: health and actions of the objects of a rollout.

use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect;
use serde_json::{Value, json};

const CONFIG_MAP: &str = include_str!("../../../deploy/argocd/argocd-cm.yaml");

/// Returns one entry of the ConfigMap.
fn entry(name: &str) -> String {
    let config: Value = serde_saphyr::from_str(CONFIG_MAP).unwrap();
    config["data"][name].as_str().unwrap_or_else(|| panic!("no entry {name}")).to_owned()
}

/// Writes a JSON value as a Lua expression. A missing field is nil in Lua, as it is for Argo CD.
fn lua_value(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(it) => it.to_string(),
        Value::Number(it) => it.to_string(),
        Value::String(it) => format!("{it:?}"),
        Value::Array(items) => {
            format!("{{{}}}", items.iter().map(lua_value).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, it)| format!("[{name:?}] = {}", lua_value(it)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Runs a script with the global `obj`. `print` is a Lua statement that prints the `result`.
fn run(script: &str, object: &Value, print: &str) -> String {
    let program = format!(
        "obj = {}\nlocal function script()\n{script}\nend\nlocal result = script()\n{print}\n",
        lua_value(object)
    );
    let mut lua = Command::new("lua5.1")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lua5.1 is installed by ci/setup");
    lua.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    let output = lua.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{program}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn health(entry_name: &str, object: &Value) -> String {
    run(&entry(entry_name), object, "print(result.status .. \": \" .. tostring(result.message))")
}

/// A DaemonSet of four nodes with this condition beside `Available`.
fn daemon_set(condition: Option<(&str, &str, &str)>, updated: i64) -> Value {
    let mut conditions = vec![json!({"type": "Available", "status": "True", "reason": "EnoughAvailable"})];
    conditions.extend(condition.map(|(kind, reason, message)| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message})
    }));
    json!({
        "metadata": {"name": "agent", "generation": 3},
        "spec": {"updateStrategy": {"type": "RollingUpdate"}},
        "status": {
            "observedGeneration": 3, "desiredNumberScheduled": 4, "updatedNumberScheduled": updated,
            "numberAvailable": 4, "conditions": conditions,
        },
    })
}

#[test]
#[ignore = "needs lua5.1"]
fn the_health_of_a_daemonset_follows_its_conditions_and_then_its_counts() {
    let mut unseen = daemon_set(None, 4);
    unseen["metadata"]["generation"] = 4.into();
    let mut on_delete = daemon_set(None, 1);
    on_delete["spec"]["updateStrategy"]["type"] = "OnDelete".into();
    let cases = [
        ("complete", daemon_set(None, 4)),
        ("plain rollout", daemon_set(None, 1)),
        ("not observed", unseen),
        ("no status", json!({"metadata": {"name": "agent", "generation": 1}, "spec": {}})),
        ("on delete", on_delete),
        ("soaking", daemon_set(Some(("Reconciling", "Soaking", "0 of 1 nodes have soaked")), 1)),
        ("waiting", daemon_set(Some(("Reconciling", "WaitingForApproval", "step canary waits")), 1)),
        ("paused", daemon_set(Some(("Reconciling", "Paused", "paused by the policy")), 1)),
        ("rolled back", daemon_set(Some(("Stalled", "RolledBack", "revision 3 failed on 1 of 1 nodes")), 0)),
    ];
    let shown: String = cases
        .iter()
        .map(|(name, object)| {
            let said = health("resource.customizations.health.apps_DaemonSet", object);
            format!("{name:14} {said}")
        })
        .collect();
    expect![[r#"
        complete       Healthy: 4 nodes have an available pod
        plain rollout  Progressing: 1 of 4 nodes are up to date
        not observed   Progressing: Waiting for the controller to observe the newest generation
        no status      Progressing: Waiting for the controller to observe the newest generation
        on delete      Healthy: Pods are updated when they are deleted
        soaking        Progressing: 0 of 1 nodes have soaked
        waiting        Suspended: step canary waits
        paused         Suspended: paused by the policy
        rolled back    Degraded: revision 3 failed on 1 of 1 nodes
    "#]]
    .assert_eq(&shown);
}

/// A DaemonRollout in this phase.
fn rollout(phase: &str, paused: bool) -> Value {
    json!({
        "metadata": {"name": "agent"},
        "spec": {"paused": paused},
        "status": {
            "phase": phase, "paused": paused, "attempt": 1, "message": "",
            "current": {"revision": "abc", "number": 3}, "step": {"name": "canary"},
        },
    })
}

const PHASES: [&str; 9] = [
    "Complete",
    "Rolling",
    "Soaking",
    "Waiting",
    "PartiallyComplete",
    "Stopped",
    "RollingBack",
    "RolledBack",
    "Future",
];

#[test]
#[ignore = "needs lua5.1"]
fn the_health_and_the_actions_of_a_rollout_follow_its_phase() {
    let actions: Value =
        serde_saphyr::from_str(&entry("resource.customizations.actions.muster.dev_DaemonRollout")).unwrap();
    let discovery = actions["discovery.lua"].as_str().unwrap();
    let enabled = "local names = {}\nfor name, it in pairs(result) do\nif not it.disabled then table.insert(names, name) \
                   end\nend\ntable.sort(names)\nprint(table.concat(names, \" \"))";
    let mut shown = String::new();
    for (phase, paused) in PHASES.into_iter().map(|it| (it, false)).chain([("Rolling", true)]) {
        let object = rollout(phase, paused);
        let said = health("resource.customizations.health.muster.dev_DaemonRollout", &object);
        let paused = if paused { " (paused)" } else { "" };
        shown += &format!("{phase}{paused}: {} | {}", said.trim(), run(discovery, &object, enabled));
    }
    expect![[r#"
        Complete: Healthy: Complete | pause
        Rolling: Progressing: Rolling | abort pause promote-full
        Soaking: Progressing: Soaking | abort pause promote-full
        Waiting: Suspended: Waiting | abort pause promote promote-full
        PartiallyComplete: Suspended: PartiallyComplete | abort pause promote-full
        Stopped: Degraded: Stopped | pause retry
        RollingBack: Progressing: RollingBack | pause
        RolledBack: Degraded: RolledBack | pause retry
        Future: Unknown: Future | abort pause promote-full
        Rolling (paused): Suspended: Rolling | abort promote-full resume
    "#]]
    .assert_eq(&shown);
}

#[test]
#[ignore = "needs lua5.1"]
fn an_action_writes_the_request_of_the_operator() {
    let actions: Value =
        serde_saphyr::from_str(&entry("resource.customizations.actions.muster.dev_DaemonRollout")).unwrap();
    let print = "local approve, abort, retry = result.spec.approve or {}, result.spec.abort or {}, result.spec.retry or {}\n\
                 print(result.spec.paused, approve.revision, approve.step, abort.revision, retry.revision, retry.attempt)";
    let mut shown = String::new();
    for definition in actions["definitions"].as_array().unwrap() {
        let script = definition["action.lua"].as_str().unwrap();
        let said = run(script, &rollout("Waiting", true), print).replace('\t', " ");
        shown += &format!("{}: {said}", definition["name"].as_str().unwrap());
    }
    expect![[r#"
        pause: true nil nil nil nil nil
        resume: false nil nil nil nil nil
        promote: true abc canary nil nil nil
        promote-full: true abc * nil nil nil
        abort: false nil nil abc nil nil
        retry: true nil nil nil abc 2
    "#]]
    .assert_eq(&shown);
}
