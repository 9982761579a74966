//! User actions on the cluster: drawn at random, or read from a script with one action per line.

use muster_engine::daemonset::facts::Kind;

use crate::kubelet::ImageBehaviour;

/// An action of a user or an administrator, an injected failure, or a control step of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserAction {
    Template {
        set: String,
        number: u64,
    },
    Strategy {
        set: String,
        strategy: String,
    },
    MinReady {
        set: String,
        seconds: u64,
    },
    History {
        set: String,
        limit: u64,
    },
    /// Sets the tolerations of the template; `None` removes them.
    Tolerate {
        set: String,
        key: Option<String>,
    },
    NodeSelector {
        set: String,
        label: Option<(String, String)>,
    },
    /// A newer API server defaults a field that is absent from the template.
    Defaulted {
        set: String,
    },
    /// Sets an empty selector, which validation would reject.
    SelectAll {
        set: String,
    },
    /// Another client adds a condition to the status.
    ForeignCondition {
        set: String,
    },
    DeleteSet {
        set: String,
        how: SetDeletion,
    },
    /// Adds an object from a line of a scenario: a set, a node, a pod or a revision.
    Add {
        line: String,
    },
    DeletePod {
        pod: ScriptPodRef,
        force: bool,
    },
    OrphanPod {
        pod: ScriptPodRef,
    },
    RelabelPod {
        pod: ScriptPodRef,
    },
    HoldPod {
        pod: ScriptPodRef,
    },
    FreePod {
        pod: ScriptPodRef,
    },
    /// Sets the revision hash label of a pod to another value.
    RehashPod {
        pod: ScriptPodRef,
        hash: String,
    },
    /// Creates a pod without an owner that has a set's labels.
    Impostor {
        set: String,
        node: String,
    },
    DuplicateRevision {
        set: String,
    },
    DeleteRevision {
        set: String,
    },
    OrphanRevision {
        set: String,
    },
    /// Changes the labels of a revision so that the selector no longer matches it.
    RelabelRevision {
        set: String,
    },
    /// Creates a revision with another template under the name that the template of this number would get.
    SquatRevision {
        set: String,
        number: u64,
    },
    Label {
        node: String,
        key: String,
        value: Option<String>,
    },
    Taint {
        node: String,
        key: String,
        effect: String,
    },
    Untaint {
        node: String,
        key: String,
    },
    RemoveNode {
        node: String,
    },
    Kill {
        node: String,
    },
    Revive {
        node: String,
    },
    ShutDown {
        node: String,
    },
    /// The kubelet of the node restarts.
    CrashAgent {
        node: String,
    },
    /// Sets the time that containers on this node take to stop.
    SlowStop {
        node: String,
        seconds: u64,
    },
    ImageBehaviour {
        image: String,
        behaviour: ImageBehaviour,
    },
    Quota {
        max: Option<usize>,
    },
    Terminate {
        terminating: bool,
    },
    Scheduler {
        runs: bool,
    },
    Garbage {
        runs: bool,
    },
    Crash,
    CrashLeader,
    Freeze {
        seconds: u64,
    },
    /// The watches of one kind stall on all replicas.
    Stick {
        kind: Kind,
        seconds: u64,
    },
    StepClock {
        seconds: i64,
    },
    Resync,
    Wait {
        seconds: u64,
    },
    /// Waits until the cluster has converged.
    Settle,
    /// Waits until the cluster has converged, at most for this time.
    SettleWithin {
        seconds: u64,
    },
    /// The response to the controller's next write is lost; `applied` is whether the write itself succeeds.
    NoAnswer {
        applied: bool,
    },
}

/// The propagation policy of a deletion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetDeletion {
    Background,
    Foreground,
    Orphan,
}

/// A pod by its set and node: `d@a`, or by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScriptPodRef {
    Of { set: String, node: String },
    Named(String),
}

impl UserAction {
    /// Parses one line of a script.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = |it: &str| it.to_owned();
        let number = |it: &str| it.parse::<u64>().map_err(|_| format!("{it:?} is not a number"));
        let pod = |it: &str| match it.split_once('@') {
            Some((set, node)) => ScriptPodRef::Of { set: own(set), node: own(node) },
            None => ScriptPodRef::Named(own(it)),
        };
        Ok(match words.as_slice() {
            ["template", set, n] => Self::Template { set: own(set), number: number(n)? },
            ["strategy", set, how] => Self::Strategy { set: own(set), strategy: own(how) },
            ["min-ready", set, n] => Self::MinReady { set: own(set), seconds: number(n)? },
            ["history", set, n] => Self::History { set: own(set), limit: number(n)? },
            ["tolerate", set, "nothing"] => Self::Tolerate { set: own(set), key: None },
            ["tolerate", set, key] => Self::Tolerate { set: own(set), key: Some(own(key)) },
            ["node-selector", set, "none"] => Self::NodeSelector { set: own(set), label: None },
            ["node-selector", set, label] => {
                let (key, value) = label.split_once('=').ok_or("node-selector SET KEY=VALUE")?;
                Self::NodeSelector { set: own(set), label: Some((own(key), own(value))) }
            }
            ["defaulted", set] => Self::Defaulted { set: own(set) },
            ["select-all", set] => Self::SelectAll { set: own(set) },
            ["condition", set] => Self::ForeignCondition { set: own(set) },
            ["delete-set", set] => Self::DeleteSet { set: own(set), how: SetDeletion::Background },
            ["delete-set", set, "foreground"] => {
                Self::DeleteSet { set: own(set), how: SetDeletion::Foreground }
            }
            ["delete-set", set, "orphan"] => Self::DeleteSet { set: own(set), how: SetDeletion::Orphan },
            ["add", ..] => Self::Add { line: line.trim().trim_start_matches("add").trim().to_owned() },
            ["delete", it] => Self::DeletePod { pod: pod(it), force: false },
            ["force-delete", it] => Self::DeletePod { pod: pod(it), force: true },
            ["orphan", it] => Self::OrphanPod { pod: pod(it) },
            ["relabel", it] => Self::RelabelPod { pod: pod(it) },
            ["hold", it] => Self::HoldPod { pod: pod(it) },
            ["free", it] => Self::FreePod { pod: pod(it) },
            ["rehash", it, hash] => Self::RehashPod { pod: pod(it), hash: own(hash) },
            ["impostor", set, node] => Self::Impostor { set: own(set), node: own(node) },
            ["duplicate-revision", set] => Self::DuplicateRevision { set: own(set) },
            ["delete-revision", set] => Self::DeleteRevision { set: own(set) },
            ["orphan-revision", set] => Self::OrphanRevision { set: own(set) },
            ["relabel-revision", set] => Self::RelabelRevision { set: own(set) },
            ["squat-revision", set, n] => Self::SquatRevision { set: own(set), number: number(n)? },
            ["label", node, label] => {
                let (key, value) = label.split_once('=').ok_or("label NODE KEY=VALUE")?;
                Self::Label { node: own(node), key: own(key), value: Some(own(value)) }
            }
            ["unlabel", node, key] => Self::Label { node: own(node), key: own(key), value: None },
            ["taint", node, taint] => {
                let (key, effect) = taint.split_once(':').ok_or("taint NODE KEY:EFFECT")?;
                Self::Taint { node: own(node), key: own(key), effect: own(effect) }
            }
            ["untaint", node, key] => Self::Untaint { node: own(node), key: own(key) },
            ["remove-node", node] => Self::RemoveNode { node: own(node) },
            ["kill", node] => Self::Kill { node: own(node) },
            ["revive", node] => Self::Revive { node: own(node) },
            ["shut-down", node] => Self::ShutDown { node: own(node) },
            ["crash-agent", node] => Self::CrashAgent { node: own(node) },
            ["slow-stop", node, n] => Self::SlowStop { node: own(node), seconds: number(n)? },
            ["image", image, behaviour] => {
                Self::ImageBehaviour { image: own(image), behaviour: parse_image_behaviour(behaviour)? }
            }
            ["quota", "none"] => Self::Quota { max: None },
            ["quota", n] => Self::Quota { max: usize::try_from(number(n)?).ok() },
            ["terminate-namespace"] => Self::Terminate { terminating: true },
            ["restore-namespace"] => Self::Terminate { terminating: false },
            ["no-scheduler"] => Self::Scheduler { runs: false },
            ["scheduler"] => Self::Scheduler { runs: true },
            ["no-garbage-collection"] => Self::Garbage { runs: false },
            ["garbage-collection"] => Self::Garbage { runs: true },
            ["crash"] => Self::Crash,
            ["crash-leader"] => Self::CrashLeader,
            ["freeze", n] => Self::Freeze { seconds: number(n)? },
            ["stick", kind, n] => Self::Stick { kind: parse_kind(kind)?, seconds: number(n)? },
            ["step-clock", n] => Self::StepClock { seconds: n.parse().map_err(|_| "step-clock SECONDS")? },
            ["resync"] => Self::Resync,
            ["wait", n] => Self::Wait { seconds: number(n)? },
            ["settle"] => Self::Settle,
            ["settle", n] => Self::SettleWithin { seconds: number(n)? },
            ["lose-answer"] => Self::NoAnswer { applied: true },
            ["lose-write"] => Self::NoAnswer { applied: false },
            _ => return Err(format!("{line:?} is not a user action; `UserAction::parse` lists all")),
        })
    }
}

fn parse_image_behaviour(text: &str) -> Result<ImageBehaviour, String> {
    Ok(match text {
        "good" => ImageBehaviour::Good,
        "never-ready" => ImageBehaviour::NeverReady,
        "fails" => ImageBehaviour::Fails,
        "ends" => ImageBehaviour::Ends,
        "kills-its-node" => ImageBehaviour::KillsNode,
        "crashes" => ImageBehaviour::Crashes,
        other => {
            return Err(format!(
                "{other:?} is not good, never-ready, fails, ends, kills-its-node or crashes"
            ));
        }
    })
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    Ok(match text {
        "sets" => Kind::Sets,
        "nodes" => Kind::Nodes,
        "pods" => Kind::Pods,
        "revisions" => Kind::Revisions,
        other => return Err(format!("{other:?} is not sets, nodes, pods or revisions")),
    })
}
