//! User actions on the cluster. They are drawn at random, or read from a script of a case with one action per line.

use muster_api::interner::Interner;
use muster_engine::daemonset::execution::PlannedCall;
use muster_engine::daemonset::facts::{self, Kind, WatchedObject};
use muster_engine::daemonset::plan::{RevisionWrite, RolloutWrite};
use serde_json::{Value, json};

use crate::faults::RequestFault;
use crate::invariants::rollout_oracle::admitted_names;
use crate::kubelet::ImageBehaviour;
use crate::lagging_server::ServerId;

/// An action of a user or an administrator, an injected failure, or a control step of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserAction {
    /// Changes the image of the template to `NAME:number`, where `NAME` is the name of the set.
    ChangeTemplate { set: String, number: u64 },
    /// Changes the update strategy. `strategy` is `on-delete`, `max-unavailable=N`, `max-surge=N`, or
    /// `only-max-unavailable=N`, which leaves `maxSurge` unset. N is a number or a percentage.
    ChangeStrategy { set: String, strategy: String },
    /// Changes `minReadySeconds`.
    ChangeMinReadySeconds { set: String, seconds: u64 },
    /// Changes `revisionHistoryLimit`.
    ChangeRevisionHistoryLimit { set: String, limit: u64 },
    /// Replaces the template's tolerations with one toleration of this key. If `key` is `None`, removes all
    /// tolerations.
    ChangeTolerations { set: String, key: Option<String> },
    /// Replaces the template's node selector with this label. If `label` is `None`, removes the node selector.
    ChangeNodeSelector { set: String, label: Option<(String, String)> },
    /// Sets defaults in two fields of the template, as a newer API server does for fields that are absent.
    ApplyNewDefaults { set: String },
    /// Sets an empty selector, which validation in a real API server would reject.
    ClearSelector { set: String },
    /// Adds a condition and an unknown field to the status, as another client does.
    AddForeignCondition { set: String },
    /// Deletes a set with the propagation policy `how`.
    DeleteSet { set: String, how: SetDeletion },
    /// Adds objects from lines of a scenario: sets, nodes, pods or revisions.
    AddObjects { lines: String },
    /// Deletes a pod. With `force`, a pod without finalizers is deleted immediately.
    DeletePod { pod: ScriptPodRef, force: bool },
    /// Removes the owner references of a pod.
    OrphanPod { pod: ScriptPodRef },
    /// Changes the labels of a pod so that the selector of its set no longer matches it.
    RelabelPod { pod: ScriptPodRef },
    /// Replaces the finalizers of a pod with one finalizer.
    AddPodFinalizer { pod: ScriptPodRef },
    /// Removes the finalizers of a pod.
    RemovePodFinalizers { pod: ScriptPodRef },
    /// Changes the revision hash label of a pod.
    ChangePodRevisionHash { pod: ScriptPodRef, hash: String },
    /// Creates a pod on a node, with the labels and the spec of a set's template, but without an owner.
    CreateLookalikePod { set: String, node: String },
    /// Creates a copy of the newest revision of a set.
    DuplicateRevision { set: String },
    /// Deletes the newest revision of a set.
    DeleteRevision { set: String },
    /// Removes the owner references of the newest revision of a set.
    OrphanRevision { set: String },
    /// Changes the labels of the newest revision of a set so that the selector of the set no longer matches it.
    RelabelRevision { set: String },
    /// Creates a revision under the name that the revision for the image `SET:number` would get, but with another
    /// template.
    CreateCollidingRevision { set: String, number: u64 },
    /// Sets a label of a node, or removes it if `value` is `None`.
    LabelNode { node: String, key: String, value: Option<String> },
    /// Adds a taint to a node.
    TaintNode { node: String, key: String, effect: String },
    /// Removes all taints with this key from a node.
    UntaintNode { node: String, key: String },
    /// Deletes a Node object, and removes the kubelet of the node.
    RemoveNode { node: String },
    /// Crashes a node, which stays down.
    CrashNode { node: String },
    /// Crashes all nodes with this label. They stay down.
    CrashNodes { label: (String, String) },
    /// Reboots a crashed node.
    RebootNode { node: String },
    /// Reboots all crashed nodes with this label.
    RebootNodes { label: (String, String) },
    /// Starts a graceful shutdown of a node.
    ShutDownNode { node: String },
    /// Restarts the kubelet of a node.
    RestartKubelet { node: String },
    /// Changes the time that containers on a node take to stop.
    ChangeContainerStopDelay { node: String, seconds: u64 },
    /// Changes the behaviour of the containers of an image.
    ChangeImageBehaviour { image: String, behaviour: ImageBehaviour },
    /// Changes the maximum number of pods. `None` removes the limit.
    ChangePodQuota { max: Option<usize> },
    /// Marks the namespace as terminating, or as active again if `terminating` is false.
    MarkNamespaceTerminating { terminating: bool },
    /// Switches the scheduler on if `runs` is true, and off otherwise.
    SetSchedulerRunning { runs: bool },
    /// Switches the garbage collector on if `runs` is true, and off otherwise.
    SetGarbageCollectorRunning { runs: bool },
    /// Crashes all replicas of the DaemonSet controller.
    CrashReplicas,
    /// Crashes the replica that is the leader.
    CrashLeader,
    /// Freezes the process of the replica that is the leader, for this time. If there is no leader, freezes the first
    /// replica.
    FreezeLeader { seconds: u64 },
    /// Moves all replicas of the DaemonSet controller to the other one of two API servers.
    SwitchServer,
    /// Kills one of two API servers. The killed server starts again later.
    KillServer(ServerId),
    /// Stalls the watches of one kind on all replicas, for this time.
    StallWatches { kind: Kind, seconds: u64 },
    /// Steps the clocks of all replicas, backward if `seconds` is negative.
    StepClocks { seconds: i64 },
    /// Enqueues all sets on the replica that is the leader.
    ResyncSets,
    /// Creates the policy of this kind and name: a RolloutPolicy or a ClusterRolloutPolicy. If the policy already
    /// exists, replaces its spec. `spec` is JSON.
    ApplyPolicy { kind: Kind, name: String, spec: String },
    /// Deletes the policy of this kind and name.
    DeletePolicy { kind: Kind, name: String },
    /// Pauses the RolloutPolicy with this name, or resumes it if `paused` is false.
    PausePolicy { name: String, paused: bool },
    /// Pauses the rollout of a set, or resumes it if `paused` is false.
    PauseRollout { set: String, paused: bool },
    /// Approves a step of the rollout of a set. The request names the revision whose image tag is `template`, or the
    /// current revision if `template` is `None`.
    ApproveStep { set: String, step: String, template: Option<u64> },
    /// Aborts the rollout of a set. The request names the revision whose image tag is `template`, or the current
    /// revision if `template` is `None`.
    AbortRollout { set: String, template: Option<u64> },
    /// Requests a new attempt of the rollout of a set. The request names the revision whose image tag is `template`, or
    /// the current revision if `template` is `None`.
    RetryRollout { set: String, template: Option<u64> },
    /// Deletes the DaemonRollout of a set.
    DeleteRollout { set: String },
    /// Removes the status of a set's DaemonRollout.
    WipeRolloutStatus { set: String },
    /// Runs the simulation for this time.
    Wait { seconds: u64 },
    /// Runs the simulation until the cluster has converged. It is a violation if the cluster does not converge.
    WaitUntilConverged,
    /// Runs the simulation until the cluster has converged. It is a violation if the cluster does not converge within
    /// this time.
    WaitUntilConvergedWithin { seconds: u64 },
    /// Injects a fault at the next write of the DaemonSet controller that `trigger` selects.
    InjectFault { trigger: FaultTrigger, fault: RequestFault },
}

/// Selects the writes of the DaemonSet controller at which a script can inject a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultTrigger {
    /// Any write.
    Write,
    /// A write of a DaemonRollout status that admits more nodes than the stored status.
    Admission,
    /// A write that stores or removes the verdict about a revision.
    Verdict,
}

impl FaultTrigger {
    /// Whether the trigger selects this write.
    pub fn selects(self, call: &PlannedCall) -> bool {
        match (self, call) {
            (Self::Write, _) => true,
            (Self::Admission, PlannedCall::WriteRollout(RolloutWrite::PutStatus { record, status, .. })) => {
                !admitted_names(status).is_subset(&admitted_names(&record.status))
            }
            (Self::Verdict, PlannedCall::WriteRevision(RevisionWrite::StoreVerdict { .. })) => true,
            _ => false,
        }
    }
}

/// The propagation policy of a delete request for a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetDeletion {
    Background,
    Foreground,
    Orphan,
}

/// A reference to a pod in a script, by set and node (`d@a`) or by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScriptPodRef {
    OnNode { set: String, node: String },
    ByName(String),
}

impl UserAction {
    /// Parses one line of a script.
    pub fn parse(line: &str) -> Result<Self, String> {
        if let Some((head, spec)) = line.split_once(" {") {
            let spec = format!("{{{spec}");
            return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["policy", name] => parse_policy(Kind::Policies, name, spec),
                ["cluster-policy", name] => parse_policy(Kind::ClusterPolicies, name, spec),
                _ => Err(format!("{head:?} is neither `policy NAME` nor `cluster-policy NAME`")),
            };
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = |it: &str| it.to_owned();
        let number = |it: &str| it.parse::<u64>().map_err(|_| format!("{it:?} is not a number"));
        let pod = |it: &str| match it.split_once('@') {
            Some((set, node)) => ScriptPodRef::OnNode { set: own(set), node: own(node) },
            None => ScriptPodRef::ByName(own(it)),
        };
        Ok(match words.as_slice() {
            ["template", set, n] => Self::ChangeTemplate { set: own(set), number: number(n)? },
            ["strategy", set, how] => Self::ChangeStrategy { set: own(set), strategy: own(how) },
            ["min-ready", set, n] => Self::ChangeMinReadySeconds { set: own(set), seconds: number(n)? },
            ["history", set, n] => Self::ChangeRevisionHistoryLimit { set: own(set), limit: number(n)? },
            ["tolerate", set, "nothing"] => Self::ChangeTolerations { set: own(set), key: None },
            ["tolerate", set, key] => Self::ChangeTolerations { set: own(set), key: Some(own(key)) },
            ["node-selector", set, "none"] => Self::ChangeNodeSelector { set: own(set), label: None },
            ["node-selector", set, label] => {
                let (key, value) = label.split_once('=').ok_or("node-selector SET KEY=VALUE")?;
                Self::ChangeNodeSelector { set: own(set), label: Some((own(key), own(value))) }
            }
            ["defaulted", set] => Self::ApplyNewDefaults { set: own(set) },
            ["select-all", set] => Self::ClearSelector { set: own(set) },
            ["condition", set] => Self::AddForeignCondition { set: own(set) },
            ["delete-set", set] => Self::DeleteSet { set: own(set), how: SetDeletion::Background },
            ["delete-set", set, "foreground"] => {
                Self::DeleteSet { set: own(set), how: SetDeletion::Foreground }
            }
            ["delete-set", set, "orphan"] => Self::DeleteSet { set: own(set), how: SetDeletion::Orphan },
            ["add", ..] => {
                let object = line.trim().trim_start_matches("add").trim();
                Self::AddObjects { lines: expand_node_range(object)?.join("\n") }
            }
            ["delete", it] => Self::DeletePod { pod: pod(it), force: false },
            ["force-delete", it] => Self::DeletePod { pod: pod(it), force: true },
            ["orphan", it] => Self::OrphanPod { pod: pod(it) },
            ["relabel", it] => Self::RelabelPod { pod: pod(it) },
            ["hold", it] => Self::AddPodFinalizer { pod: pod(it) },
            ["free", it] => Self::RemovePodFinalizers { pod: pod(it) },
            ["rehash", it, hash] => Self::ChangePodRevisionHash { pod: pod(it), hash: own(hash) },
            ["impostor", set, node] => Self::CreateLookalikePod { set: own(set), node: own(node) },
            ["duplicate-revision", set] => Self::DuplicateRevision { set: own(set) },
            ["delete-revision", set] => Self::DeleteRevision { set: own(set) },
            ["orphan-revision", set] => Self::OrphanRevision { set: own(set) },
            ["relabel-revision", set] => Self::RelabelRevision { set: own(set) },
            ["squat-revision", set, n] => Self::CreateCollidingRevision { set: own(set), number: number(n)? },
            ["label", node, label] => {
                let (key, value) = label.split_once('=').ok_or("label NODE KEY=VALUE")?;
                Self::LabelNode { node: own(node), key: own(key), value: Some(own(value)) }
            }
            ["unlabel", node, key] => Self::LabelNode { node: own(node), key: own(key), value: None },
            ["taint", node, taint] => {
                let (key, effect) = taint.split_once(':').ok_or("taint NODE KEY:EFFECT")?;
                Self::TaintNode { node: own(node), key: own(key), effect: own(effect) }
            }
            ["untaint", node, key] => Self::UntaintNode { node: own(node), key: own(key) },
            ["remove-node", node] => Self::RemoveNode { node: own(node) },
            ["kill", nodes] => match nodes.split_once('=') {
                Some((key, value)) => Self::CrashNodes { label: (own(key), own(value)) },
                None => Self::CrashNode { node: own(nodes) },
            },
            ["revive", nodes] => match nodes.split_once('=') {
                Some((key, value)) => Self::RebootNodes { label: (own(key), own(value)) },
                None => Self::RebootNode { node: own(nodes) },
            },
            ["shut-down", node] => Self::ShutDownNode { node: own(node) },
            ["crash-agent", node] => Self::RestartKubelet { node: own(node) },
            ["slow-stop", node, n] => Self::ChangeContainerStopDelay { node: own(node), seconds: number(n)? },
            ["image", image, behaviour] => {
                Self::ChangeImageBehaviour { image: own(image), behaviour: parse_image_behaviour(behaviour)? }
            }
            ["quota", "none"] => Self::ChangePodQuota { max: None },
            ["quota", n] => Self::ChangePodQuota { max: usize::try_from(number(n)?).ok() },
            ["terminate-namespace"] => Self::MarkNamespaceTerminating { terminating: true },
            ["restore-namespace"] => Self::MarkNamespaceTerminating { terminating: false },
            ["no-scheduler"] => Self::SetSchedulerRunning { runs: false },
            ["scheduler"] => Self::SetSchedulerRunning { runs: true },
            ["no-garbage-collection"] => Self::SetGarbageCollectorRunning { runs: false },
            ["garbage-collection"] => Self::SetGarbageCollectorRunning { runs: true },
            ["crash"] => Self::CrashReplicas,
            ["crash-leader"] => Self::CrashLeader,
            ["freeze", n] => Self::FreezeLeader { seconds: number(n)? },
            ["switch-server"] => Self::SwitchServer,
            ["kill-server", "current"] => Self::KillServer(ServerId::Current),
            ["kill-server", "lagging"] => Self::KillServer(ServerId::Lagging),
            ["stick", kind, n] => Self::StallWatches { kind: parse_kind(kind)?, seconds: number(n)? },
            ["step-clock", n] => Self::StepClocks { seconds: n.parse().map_err(|_| "step-clock SECONDS")? },
            ["resync"] => Self::ResyncSets,
            ["delete-policy", name] => Self::DeletePolicy { kind: Kind::Policies, name: own(name) },
            ["delete-cluster-policy", name] => {
                Self::DeletePolicy { kind: Kind::ClusterPolicies, name: own(name) }
            }
            ["pause-policy", name] => Self::PausePolicy { name: own(name), paused: true },
            ["resume-policy", name] => Self::PausePolicy { name: own(name), paused: false },
            ["pause", set] => Self::PauseRollout { set: own(set), paused: true },
            ["resume", set] => Self::PauseRollout { set: own(set), paused: false },
            ["approve", set, step] => Self::ApproveStep { set: own(set), step: own(step), template: None },
            ["approve", set, step, n] => {
                Self::ApproveStep { set: own(set), step: own(step), template: Some(number(n)?) }
            }
            ["abort", set] => Self::AbortRollout { set: own(set), template: None },
            ["abort", set, n] => Self::AbortRollout { set: own(set), template: Some(number(n)?) },
            ["retry", set] => Self::RetryRollout { set: own(set), template: None },
            ["retry", set, n] => Self::RetryRollout { set: own(set), template: Some(number(n)?) },
            ["delete-rollout", set] => Self::DeleteRollout { set: own(set) },
            ["wipe-rollout", set] => Self::WipeRolloutStatus { set: own(set) },
            ["wait", n] => Self::Wait { seconds: number(n)? },
            ["settle"] => Self::WaitUntilConverged,
            ["settle", n] => Self::WaitUntilConvergedWithin { seconds: number(n)? },
            ["lose-answer"] => {
                Self::InjectFault { trigger: FaultTrigger::Write, fault: RequestFault::LostApplied }
            }
            ["lose-write"] => {
                Self::InjectFault { trigger: FaultTrigger::Write, fault: RequestFault::LostNotApplied }
            }
            ["crash-before", trigger] => {
                Self::InjectFault { trigger: parse_trigger(trigger)?, fault: RequestFault::CrashBefore }
            }
            ["crash-after", trigger] => {
                Self::InjectFault { trigger: parse_trigger(trigger)?, fault: RequestFault::CrashAfter }
            }
            _ => return Err(format!("{line:?} is not a user action; `UserAction::parse` lists all")),
        })
    }
}

/// Returns the action that applies a policy with this kind, name and spec (JSON). Returns an error if the spec is not
/// valid.
fn parse_policy(kind: Kind, name: &str, spec: String) -> Result<UserAction, String> {
    let value: Value = serde_json::from_str(&spec).map_err(|it| format!("policy {name}: {it}"))?;
    let object = json!({"metadata": {"name": name}, "spec": value}).to_string();
    let fact = facts::decode_object(kind, object.as_bytes(), &mut Interner::default());
    match fact.map_err(|it| it.to_string())? {
        WatchedObject::Policy(policy) if policy.invalid.is_empty() => {
            Ok(UserAction::ApplyPolicy { kind, name: name.to_owned(), spec })
        }
        WatchedObject::Policy(policy) => Err(format!("policy {name}: {}", policy.invalid.join("; "))),
        _ => Err(format!("policy {name} is not a policy")),
    }
}

/// Expands the range of nodes in the first two words of a line of a case. The line `node n1..n3 label=zone:a` or
/// `n1..n3  d@1 ready` becomes one line for each of the nodes. Returns a line without such a range unchanged. Returns
/// an error unless the first and last name of the range have the same prefix and a number with the same number of
/// digits, and the first number is not the higher one.
pub fn expand_node_range(line: &str) -> Result<Vec<String>, String> {
    let Some(range) = line.split_whitespace().take(2).find(|it| it.contains("..")) else {
        return Ok(vec![line.to_owned()]);
    };
    let names = node_range(range).ok_or_else(|| format!("{range:?} is not a range such as n01..n20"))?;
    Ok(names.iter().map(|name| line.replacen(range, name, 1)).collect())
}

/// Returns the names of the nodes in a range such as `n01..n20`. Returns `None` if the text is not a range.
fn node_range(range: &str) -> Option<Vec<String>> {
    let (first, last) = range.split_once("..")?;
    let prefix = first.trim_end_matches(|it: char| it.is_ascii_digit());
    let (first, last) = (first.strip_prefix(prefix)?, last.strip_prefix(prefix)?);
    let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let digits = first.len();
    (from <= to && last.len() == digits)
        .then(|| (from..=to).map(|it| format!("{prefix}{it:0digits$}")).collect())
}

/// Parses a [`FaultTrigger`], as a script spells it.
fn parse_trigger(text: &str) -> Result<FaultTrigger, String> {
    Ok(match text {
        "write" => FaultTrigger::Write,
        "admission" => FaultTrigger::Admission,
        "verdict" => FaultTrigger::Verdict,
        other => return Err(format!("{other:?} is not write, admission or verdict")),
    })
}

/// Parses the behaviour of an image, as a script spells it.
fn parse_image_behaviour(text: &str) -> Result<ImageBehaviour, String> {
    Ok(match text {
        "good" => ImageBehaviour::BecomesReady,
        "never-ready" => ImageBehaviour::NeverReady,
        "fails" => ImageBehaviour::PodFails,
        "ends" => ImageBehaviour::Completes,
        "kills-its-node" => ImageBehaviour::CrashesNode,
        "crashes" => ImageBehaviour::CrashLoops,
        "cannot-be-pulled" => ImageBehaviour::CannotBePulled,
        other => {
            return Err(format!(
                "{other:?} is not good, never-ready, fails, ends, kills-its-node, crashes or cannot-be-pulled"
            ));
        }
    })
}

/// Parses a kind, as a script spells it.
fn parse_kind(text: &str) -> Result<Kind, String> {
    Ok(match text {
        "sets" => Kind::Sets,
        "nodes" => Kind::Nodes,
        "pods" => Kind::Pods,
        "revisions" => Kind::Revisions,
        "policies" => Kind::Policies,
        "rollouts" => Kind::Rollouts,
        other => {
            return Err(format!("{other:?} is not sets, nodes, pods, revisions, policies or rollouts"));
        }
    })
}
