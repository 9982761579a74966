//! A scenario: the state of a cluster as text, one object per line. Tests describe clusters in this language. The
//! simulator prints the cluster of a failing seed in the same language, so that it can be pasted into a test.
//!
//! ```text
//! now  1000                                  # all times are in seconds
//! set  web    template=2 max-unavailable=25% tolerate=gpu:NoSchedule
//! node n1     label=zone:a
//! node n2     taint=gpu=yes:NoSchedule unknown since=900
//! pod  web-1  on=n1 rev=2 ready since=950    # bound
//! pod  web-2  for=n2 rev=1 deleting          # not bound yet, created for n2
//! rev  web-a  template=1
//! ```
//!
//! A `set` line is a DaemonSet, and a `rev` line is a ControllerRevision. NAME is the name of the DaemonSet.
//! `template=N` means template N of the DaemonSet, whose container has the image `NAME:N`. `rev=N` on a pod means that
//! the pod was created from template N. `unknown since=T` on a node means that its condition `Ready` has been `Unknown`
//! since T.
//!
//! Absent keywords have defaults. For example, `of=` is the only DaemonSet of the scenario, the `rev=` of a pod is the
//! `template=` of its DaemonSet, and a DaemonSet selects the label `app:NAME`.
//!
//! Some of the keywords:
//!
//! | keyword | meaning |
//! |---|---|
//! | `taint=KEY[=VALUE]:EFFECT[@TIME]` | a taint, and its `timeAdded` |
//! | `tolerate=KEY[=VALUE][:EFFECT][@SECONDS]` | a toleration; the key `*` is every key; the tolerations of a pod replace the tolerations of its template, and `none` removes them all |
//! | `affinity=KEY:OPERATOR[:V,V]+…` | one required node affinity term; if the keyword is repeated, any one of the terms suffices; `metadata.name` is a field |
//! | `status=desired:3,ready:2` | the counts in the status of a DaemonSet |
//! | `of=none` | a pod or revision that belongs to no DaemonSet |
//! | `hash=none` | no hash label |
//! | `orphan`, `owner=UID` | without an owner reference, or with an owner reference that has this UID |
//! | `direct` | bound by the DaemonSet controller, not by the scheduler |
//! | `deleting`, `deleting=TIME` | with a `deletionTimestamp`: the current time, or `TIME` |
//! | `failed`, `failed=REASON` | the pod failed |
//! | `new` | a node without conditions |
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use jiff::Timestamp;
use muster_api::well_known::ANNOTATION_TEMPLATE_GENERATION;
use serde_json::{Map, Value, json};

use crate::daemonset::manifest::{self, REVISION_HASH_LABEL};

/// Parses the text of a scenario.
mod read;
/// Formats a cluster state as the text of a scenario.
mod write;

/// The state of a cluster: its API objects and the current time. The objects are complete enough for an API server to
/// store them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// The current time, in seconds since [`EPOCH_S`].
    pub now: i64,
    /// The JSON of the DaemonSets.
    pub sets: Vec<Value>,
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    /// The JSON of the ControllerRevisions.
    pub revisions: Vec<Value>,
}

/// A syntax error in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Number of the line with the error, counted from one.
    pub line: usize,
    /// The word with the error.
    pub word: String,
    /// Message that says why the word is invalid.
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, `{}`: {}", self.line, self.word, self.problem)
    }
}

impl core::error::Error for Error {}

/// Time 0 of every scenario, as a Unix time: 2026-01-01T00:00:00Z.
pub const EPOCH_S: i64 = 1_767_225_600;

/// Formats seconds since [`EPOCH_S`] as an API timestamp. A time out of range becomes the latest timestamp.
pub fn to_timestamp(second: i64) -> String {
    Timestamp::from_second(EPOCH_S.saturating_add(second)).unwrap_or(Timestamp::MAX).to_string()
}

/// Parses an API timestamp into seconds since [`EPOCH_S`]. `None` if the text is not a timestamp.
pub fn parse_timestamp(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(|it| it.as_second() - EPOCH_S)
}

/// Parses the text of a scenario. Lines of different kinds may be in any order. Objects of one kind keep the order of
/// their lines.
pub fn parse(text: &str) -> Result<World, Error> {
    read::parse_world(text)
}

/// Formats a cluster state as the text of a scenario. Fields that the language cannot express are left out. For a
/// parsed scenario, parsing the returned text returns the same objects.
pub fn print(world: &World) -> String {
    write::print_world(world)
}

// The grammar: the words of each kind of line.

/// The kind of a line: what the line describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// The line with the current time.
    Now,
    /// The line of a DaemonSet.
    Set,
    Node,
    Pod,
    /// The line of a ControllerRevision.
    Rev,
}

/// How a keyword may occur on a line: with or without a value, once or several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeywordArity {
    /// The keyword has no value, such as `ready`.
    Nothing,
    /// The keyword has a value, such as `on=n1`.
    One,
    /// The keyword may have a value, such as `failed` or `failed=Evicted`.
    Maybe,
    /// The keyword has a value and may occur several times, such as `label=a:b`.
    Many,
}
use KeywordArity::{Many, Maybe, Nothing, One};

/// The first word of each kind of line.
const LINE_KEYWORDS: [(&str, LineKind); 5] = [
    ("now", LineKind::Now),
    ("set", LineKind::Set),
    ("node", LineKind::Node),
    ("pod", LineKind::Pod),
    ("rev", LineKind::Rev),
];

/// A keyword and how it may occur on a line.
type KeywordRule = (&'static str, KeywordArity);

/// Keywords that the lines of all kinds of objects may have.
const COMMON_KEYWORDS: &[KeywordRule] =
    &[("made", One), ("deleting", Maybe), ("finalizer", Many), ("uid", One), ("rv", One)];

/// Keywords of the line of a DaemonSet, in addition to [`COMMON_KEYWORDS`].
const SET_KEYWORDS: &[KeywordRule] = &[
    ("ns", One),
    ("template", One),
    ("on-delete", Nothing),
    ("max-unavailable", One),
    ("max-surge", One),
    ("min-ready", One),
    ("history", One),
    ("select", Many),
    ("pod-label", Many),
    ("node-selector", Many),
    ("affinity", Many),
    ("tolerate", Many),
    ("host-network", Nothing),
    ("node-name", One),
    ("gen", One),
    ("observed", One),
    ("status", One),
    ("collisions", One),
    ("template-generation", One),
];

/// Keywords of the line of a node, in addition to [`COMMON_KEYWORDS`].
const NODE_KEYWORDS: &[KeywordRule] = &[
    ("label", Many),
    ("taint", Many),
    ("cordoned", Nothing),
    ("ready", Nothing),
    ("not-ready", Nothing),
    ("unknown", Nothing),
    ("new", Nothing),
    ("since", One),
];

/// Keywords of the line of a pod, in addition to [`COMMON_KEYWORDS`].
const POD_KEYWORDS: &[KeywordRule] = &[
    ("ns", One),
    ("of", One),
    ("orphan", Nothing),
    ("owner", One),
    ("on", One),
    ("for", One),
    ("direct", Nothing),
    ("rev", One),
    ("hash", One),
    ("generation-label", One),
    ("label", Many),
    ("unlabel", Many),
    ("tolerate", Many),
    ("ready", Nothing),
    ("unready", Nothing),
    ("starting", Nothing),
    ("failed", Maybe),
    ("succeeded", Nothing),
    ("waiting", One),
    ("since", One),
];

/// Keywords of the line of a ControllerRevision, in addition to [`COMMON_KEYWORDS`].
const REVISION_KEYWORDS: &[KeywordRule] = &[
    ("ns", One),
    ("of", One),
    ("orphan", Nothing),
    ("owner", One),
    ("template", One),
    ("number", One),
    ("hash", One),
];

/// Groups of mutually exclusive keywords. A line may have only one keyword of each group.
const EXCLUSIVE_KEYWORDS: &[&[&str]] = &[
    &["on-delete", "max-unavailable"],
    &["on-delete", "max-surge"],
    &["ready", "not-ready", "unknown", "new"],
    &["ready", "unready", "starting", "failed", "succeeded", "waiting"],
    &["orphan", "owner"],
    &["direct", "for"],
];

/// Keywords that the line of a pod may have only if the pod belongs to a DaemonSet.
const DAEMON_POD_KEYWORDS: &[&str] =
    &["orphan", "for", "direct", "rev", "hash", "generation-label", "unlabel"];

/// The value of the keywords `of=`, `hash=` and `tolerate=` that means "none".
const NONE_VALUE: &str = "none";

/// The names of counts in the value of the keyword `status=`, each with its field in the status of a DaemonSet.
const STATUS_COUNTS: [(&str, &str); 7] = [
    ("current", "currentNumberScheduled"),
    ("misscheduled", "numberMisscheduled"),
    ("desired", "desiredNumberScheduled"),
    ("ready", "numberReady"),
    ("updated", "updatedNumberScheduled"),
    ("available", "numberAvailable"),
    ("unavailable", "numberUnavailable"),
];

/// The names of operators in the value of the keyword `affinity=`, each with its operator in a Kubernetes node selector
/// requirement.
const SELECTOR_OPERATORS: [(&str, &str); 6] = [
    ("in", "In"),
    ("not-in", "NotIn"),
    ("exists", "Exists"),
    ("not-exists", "DoesNotExist"),
    ("gt", "Gt"),
    ("lt", "Lt"),
];

/// The effects that a taint can have.
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Keywords for the readiness of a node, each with the status of the condition `Ready` that it stands for.
const NODE_READY_STATUSES: [(&str, &str); 3] =
    [("ready", "True"), ("not-ready", "False"), ("unknown", "Unknown")];

// Shared by parser and printer.

/// A taint or toleration in the notation `KEY[=VALUE][:EFFECT][@N]`.
struct TaintText<'a> {
    key: &'a str,
    value: Option<&'a str>,
    effect: Option<&'a str>,
    /// The number after `@`: the `timeAdded` of a taint in seconds since [`EPOCH_S`], or the `tolerationSeconds` of a
    /// toleration. `None` if the text has no `@`.
    at: Option<i64>,
}

impl<'a> TaintText<'a> {
    /// The notation of a taint, for error messages about taints and tolerations.
    const FORMAT: &'static str =
        "KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute";

    /// Parses a taint or toleration in the notation `KEY[=VALUE][:EFFECT][@N]`. `None` if the text has another format.
    fn parse(text: &'a str) -> Option<TaintText<'a>> {
        let (text, at) = match text.rsplit_once('@') {
            Some((text, at)) => (text, Some(at.parse::<i32>().ok()?.into())),
            None => (text, None),
        };
        let (text, effect) = match text.rsplit_once(':') {
            Some((text, effect)) if TAINT_EFFECTS.contains(&effect) => (text, Some(effect)),
            Some(_) => return None,
            None => (text, None),
        };
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        (!key.is_empty()).then_some(TaintText { key, value, effect, at })
    }

    /// Creates the notation of a taint from its JSON object.
    fn of_taint(taint: &'a Value) -> TaintText<'a> {
        TaintText {
            key: text_at(taint, "/key"),
            value: taint["value"].as_str().filter(|it| !it.is_empty()),
            effect: taint["effect"].as_str(),
            at: parse_timestamp(text_at(taint, "/timeAdded")),
        }
    }

    /// Creates the notation of a toleration from its JSON object.
    fn of_toleration(toleration: &'a Value) -> TaintText<'a> {
        TaintText {
            key: toleration["key"].as_str().filter(|it| !it.is_empty()).unwrap_or("*"),
            value: match text_at(toleration, "/operator") {
                "Exists" => None,
                _ => Some(text_at(toleration, "/value")),
            },
            effect: toleration["effect"].as_str().filter(|it| !it.is_empty()),
            at: toleration["tolerationSeconds"].as_i64(),
        }
    }
}

impl fmt::Display for TaintText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.value.map_or(Ok(()), |it| write!(f, "={it}"))?;
        self.effect.map_or(Ok(()), |it| write!(f, ":{it}"))?;
        self.at.map_or(Ok(()), |it| write!(f, "@{it}"))
    }
}

/// JSON pointer to the name of an object.
const NAME_POINTER: &str = "/metadata/name";
/// JSON pointer to the namespace of an object.
const NAMESPACE_POINTER: &str = "/metadata/namespace";
/// JSON pointer to the UID of an object.
const UID_POINTER: &str = "/metadata/uid";
/// Waiting reason of a container that has crashed and waits for its restart. The phase of its pod is Running.
const CRASHED_REASON: &str = "CrashLoopBackOff";
/// Waiting reason of a container whose pod is starting.
const STARTING_REASON: &str = "ContainerCreating";
/// JSON pointer, in a pod's spec, to the terms of required node affinity.
const REQUIRED_TERMS_POINTER: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Keywords that the line of a pod may have only if the pod is bound to a node.
const BOUND_POD_KEYWORDS: &[&str] = &["ready", "unready", "waiting", "since"];

/// Returns the DaemonSet to which a pod or revision belongs, out of the DaemonSets in its namespace. `None` if it
/// belongs to none.
///
/// Rule: a pod or revision belongs to the DaemonSet to which its controller reference refers, by UID or else by name.
/// An object without a controller reference belongs to the DaemonSet whose name is in its image `NAME:N`, and to no
/// DaemonSet if the image is `none:N`. With any other image, the object belongs to the first DaemonSet whose selector
/// matches it.
fn set_of<'w>(object: &Value, world: &'w World) -> Option<&'w Value> {
    let mut sets =
        world.sets.iter().filter(|it| text_at(it, NAMESPACE_POINTER) == text_at(object, NAMESPACE_POINTER));
    if let Some(owner) = controller_reference(object) {
        return sets
            .clone()
            .find(|it| text_at(it, UID_POINTER) == text_at(owner, "/uid"))
            .or_else(|| sets.find(|it| text_at(it, NAME_POINTER) == text_at(owner, "/name")));
    }
    if let Some((name, _)) = image_name_and_number(object)
        .filter(|it| it.0 == NONE_VALUE || sets.clone().any(|set| text_at(set, NAME_POINTER) == it.0))
    {
        return sets.find(|it| text_at(it, NAME_POINTER) == name);
    }
    let labels = fields_at(object, "/metadata/labels");
    sets.find(|set| {
        let select = fields_at(set, "/spec/selector/matchLabels");
        !select.is_empty() && select.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

/// Returns the owner reference of an object that has `controller: true`. `None` if there is none.
fn controller_reference(object: &Value) -> Option<&Value> {
    list_at(object, "/metadata/ownerReferences").iter().find(|it| it["controller"] == true)
}

/// Returns the name and number in the image `NAME:N` of the first container of a DaemonSet, a pod or a
/// ControllerRevision. `None` if there is no image, or if it has no number.
fn image_name_and_number(object: &Value) -> Option<(&str, i64)> {
    ["", "/spec/template", "/data/spec/template"]
        .iter()
        .find_map(|at| object.pointer(at)?.pointer("/spec/containers/0/image")?.as_str())
        .and_then(|it| it.rsplit_once(':'))
        .and_then(|(name, number)| Some((name, number.parse().ok()?)))
}

/// Returns the number N of a DaemonSet's template, from its image `NAME:N`, or 1 if the image has no number.
fn template_number(set: &Value) -> i64 {
    image_name_and_number(set).map_or(1, |it| it.1)
}

/// Returns the pod template of a DaemonSet, with its image replaced by `NAME:number`.
///
/// Rule: template N is the template of the DaemonSet with image number N. A template whose image has no number stays as
/// it is.
fn template_of(set: &Value, number: i64) -> Value {
    let mut template = set["spec"]["template"].clone();
    if image_name_and_number(set).is_some_and(|it| it.1 != number) {
        put_field_at(
            &mut template,
            "/spec",
            "containers",
            containers_json(text_at(set, NAME_POINTER), number),
        );
    }
    template
}

/// Returns a pod template that contains only one container with the image `NAME:N`.
fn bare_template(name: &str, number: i64) -> Value {
    json!({"metadata": {}, "spec": {"containers": containers_json(name, number)}})
}

/// Returns the field `containers`: one container with the image `NAME:N`.
fn containers_json(name: &str, number: i64) -> Value {
    json!([{"name": name, "image": format!("{name}:{number}")}])
}

/// Returns the default hash label of a pod that has template `number` of the DaemonSet (image `NAME:number`). The
/// default is used if the line of the pod has no keyword `hash=`.
///
/// Rule: the hash label of a pod is the hash label of the DaemonSet's revision with the same template number. If there
/// is no such revision, or if it has no hash label, the hash is computed.
fn default_hash(set: &Value, number: i64, world: &World) -> String {
    let same = |it: &&Value| {
        let of = set_of(it, world);
        of.is_some_and(|of| text_at(of, UID_POINTER) == text_at(set, UID_POINTER))
            && image_name_and_number(it).is_some_and(|it| it.1 == number)
    };
    match world.revisions.iter().find(same).map(hash_label) {
        Some(hash) if !hash.is_empty() => hash.to_string(),
        _ => computed_hash(Some(set), &template_of(set, number)),
    }
}

/// Returns the hash that the DaemonSet controller computes for a pod template. The hash depends on the `collisionCount`
/// of the DaemonSet `set`, if there is one.
fn computed_hash(set: Option<&Value>, template: &Value) -> String {
    let collisions = set.and_then(|it| it["status"]["collisionCount"].as_i64());
    manifest::revision_hash(template, collisions.and_then(|it| it.try_into().ok()))
}

/// Returns the value of the hash label (`controller-revision-hash`). Empty if the object does not have the label.
fn hash_label(object: &Value) -> &str {
    object["metadata"]["labels"][REVISION_HASH_LABEL].as_str().unwrap_or_default()
}

/// Returns the UID of an object whose line has no keyword `uid=`. The UID is made from the kind, namespace and name.
fn default_uid(kind: LineKind, namespace: Option<&str>, name: &str) -> String {
    let letter = match kind {
        LineKind::Now | LineKind::Set => 'u',
        LineKind::Node => 'n',
        LineKind::Pod => 'p',
        LineKind::Rev => 'r',
    };
    match namespace {
        None | Some("default") => format!("{letter}-{name}"),
        Some(namespace) => format!("{letter}-{namespace}.{name}"),
    }
}

/// Returns the creation time of an object, in seconds since [`EPOCH_S`]. 0 if the object has none.
fn creation_time_s(object: &Value) -> i64 {
    parse_timestamp(text_at(object, "/metadata/creationTimestamp")).unwrap_or(0)
}

/// Returns the `lastTransitionTime` of a condition, in seconds since [`EPOCH_S`]. 0 if the condition has none.
fn transition_time_s(condition: &Value) -> i64 {
    parse_timestamp(text_at(condition, "/lastTransitionTime")).unwrap_or(0)
}

/// Returns the condition `Ready` of a node or pod. `None` if the object does not have the condition.
fn ready_condition(object: &Value) -> Option<&Value> {
    list_at(object, "/status/conditions").iter().find(|it| text_at(it, "/type") == "Ready")
}

// JSON access that never panics.

/// Returns the string at a JSON pointer. Empty if there is no string.
fn text_at<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list at a JSON pointer. Empty if there is no list.
fn list_at<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value.pointer(at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns a copy of the JSON object at a JSON pointer. Empty if there is no JSON object.
fn fields_at(value: &Value, at: &str) -> Map<String, Value> {
    value.pointer(at).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Returns a mutable reference to the JSON object at a JSON pointer. `None` if there is no JSON object.
fn object_mut<'a>(value: &'a mut Value, at: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(at).and_then(Value::as_object_mut)
}

/// Inserts a field into a JSON object, unless `value` is `None`.
fn put_field(fields: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        fields.insert(key.to_string(), value.into());
    }
}

/// Sets a field of the JSON object at a JSON pointer. Does nothing if there is no JSON object.
fn put_field_at(value: &mut Value, at: &str, key: &str, new: impl Into<Value>) {
    if let Some(fields) = object_mut(value, at) {
        fields.insert(key.to_string(), new.into());
    }
}

/// Formats a JSON value as a word of a line: a string without quotes, and null as the empty string.
fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Replaces each whitespace character by `_`, because whitespace separates the words of a line.
fn to_one_word(text: &str) -> String {
    text.replace(char::is_whitespace, "_")
}

/// Joins the names in a table with commas, for error messages. The name is the first element of each pair.
fn join_names<T>(table: &[(&str, T)]) -> String {
    table.iter().map(|it| it.0).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
