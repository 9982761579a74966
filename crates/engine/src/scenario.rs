//! A world as text: one fact a line, read aloud as it stands. Tests are written in it, `plan` reads it, and
//! the simulator prints its failures in it, so that a failing seed becomes a test by pasting.
//!
//! ```text
//! now  1000                                  # seconds; every time is one
//! set  web    template=2 max-unavailable=25% tolerate=gpu:NoSchedule
//! node n1     label=zone:a
//! node n2     taint=gpu=yes:NoSchedule unknown since=900
//! pod  web-1  on=n1 rev=2 ready since=950    # bound
//! pod  web-2  for=n2 rev=1 deleting          # not yet bound, made for n2
//! rev  web-a  template=1
//! ```
//!
//! What is not said has a default: `of=` is the only set, a pod's `rev=` is its set's `template=`, a set
//! selects `app:NAME`. Template N is the set's template with the image `NAME:N`.
//!
//! | word | meaning |
//! |---|---|
//! | `taint=KEY[=VALUE]:EFFECT[@TIME]` | a taint, and since when |
//! | `tolerate=KEY[=VALUE][:EFFECT][@SECONDS]` | a toleration; `*` is every key; on a pod, it replaces the template's, and `none` is none |
//! | `affinity=KEY:OPERATOR[:V,V]+…` | one required term; the terms of several words are alternatives; `metadata.name` is a field |
//! | `status=desired:3,ready:2` | a set's counts, as they were last written |
//! | `of=none` | a pod that has nothing to do with any set |
//! | `hash=none` | no hash label |
//! | `orphan`, `owner=UID` | without an owner, or with this one |
//! | `direct` | bound by us, and not by a scheduler |
//! | `deleting`, `deleting=TIME` | deletion was asked for: now, or then |
//! | `failed`, `failed=REASON` | the pod failed |
//! | `new` | a node that never reported |
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::manifest::{self, Binding, HASH_LABEL, Owner};

/// API objects, whole enough for an API server to keep them, and the time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// Seconds since the scenario's epoch.
    pub now: i64,
    pub sets: Vec<Value>,
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    pub revisions: Vec<Value>,
}

/// Where a text stops making sense, and what would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub line: usize,
    pub word: String,
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, `{}`: {}", self.line, self.word, self.problem)
    }
}

impl core::error::Error for Error {}

/// Second 0 of every scenario: 2026-01-01T00:00:00Z.
pub const EPOCH_S: i64 = 1_767_225_600;

/// A scenario's second as the API writes times.
pub fn time(second: i64) -> String {
    Timestamp::from_second(EPOCH_S.saturating_add(second)).unwrap_or(Timestamp::MAX).to_string()
}

/// The scenario's second of a time that the API wrote.
pub fn second(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(|it| it.as_second() - EPOCH_S)
}

/// Reads a world. The order of lines does not matter between kinds, and is kept within one.
pub fn parse(text: &str) -> Result<World, Error> {
    let lines = read_lines(text)?;
    let of = |kind| lines.iter().filter(move |it| it.kind == kind);
    let mut world = World::default();
    for line in of(Kind::Now) {
        world.now = line.seconds_of("now", line.name)?;
    }
    for line in of(Kind::Set) {
        world.sets.push(parse_set(line, world.now)?);
    }
    for line in of(Kind::Node) {
        world.nodes.push(parse_node(line, world.now)?);
    }
    for line in of(Kind::Rev) {
        world.revisions.push(parse_revision(line, &world)?);
    }
    for line in of(Kind::Pod) {
        world.pods.push(parse_pod(line, &world)?);
    }
    Ok(world)
}

/// Writes a world. What the language has no word for is left out; a world that came from text comes back
/// the same.
pub fn print(world: &World) -> String {
    let mut rows = Vec::new();
    rows.extend(world.sets.iter().map(|it| print_set(it, world)));
    rows.extend(world.nodes.iter().map(|it| print_node(it, world)));
    rows.extend(world.pods.iter().map(|it| print_pod(it, world)));
    rows.extend(world.revisions.iter().map(|it| print_revision(it, world)));
    let width = rows.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
    let mut out = format!("now  {}\n", world.now);
    for Row { kind, name, words } in rows {
        out.push_str(format!("{kind:<4} {name:<width$}  {}", words.join(" ")).trim_end());
        out.push('\n');
    }
    out
}

// The grammar: which words each kind of line takes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Now,
    Set,
    Node,
    Pod,
    Rev,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    One,
    Maybe,
    Many,
}
use Takes::{Many, Maybe, Nothing, One};

const KINDS: [(&str, Kind); 5] =
    [("now", Kind::Now), ("set", Kind::Set), ("node", Kind::Node), ("pod", Kind::Pod), ("rev", Kind::Rev)];

type Word = (&'static str, Takes);

const ANY_WORDS: &[Word] =
    &[("made", One), ("deleting", Maybe), ("finalizer", Many), ("uid", One), ("rv", One)];

const SET_WORDS: &[Word] = &[
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

const NODE_WORDS: &[Word] = &[
    ("label", Many),
    ("taint", Many),
    ("cordoned", Nothing),
    ("ready", Nothing),
    ("not-ready", Nothing),
    ("unknown", Nothing),
    ("new", Nothing),
    ("since", One),
];

const POD_WORDS: &[Word] = &[
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

const REV_WORDS: &[Word] = &[
    ("ns", One),
    ("of", One),
    ("orphan", Nothing),
    ("owner", One),
    ("template", One),
    ("number", One),
    ("hash", One),
];

/// Words of which a line can hold one only.
const EXCLUSIVE: &[&[&str]] = &[
    &["on-delete", "max-unavailable"],
    &["on-delete", "max-surge"],
    &["ready", "not-ready", "unknown", "new"],
    &["ready", "unready", "starting", "failed", "succeeded", "waiting"],
    &["orphan", "owner"],
    &["direct", "for"],
];

/// Words that say how a pod stands to its set.
const NEEDS_SET: &[&str] = &["orphan", "for", "direct", "rev", "hash", "generation-label", "unlabel"];

/// What takes the place of a set's name in `of=`, and of a hash or of tolerations.
const NONE: &str = "none";

const COUNTS: [(&str, &str); 7] = [
    ("current", "currentNumberScheduled"),
    ("misscheduled", "numberMisscheduled"),
    ("desired", "desiredNumberScheduled"),
    ("ready", "numberReady"),
    ("updated", "updatedNumberScheduled"),
    ("available", "numberAvailable"),
    ("unavailable", "numberUnavailable"),
];

const OPERATORS: [(&str, &str); 6] = [
    ("in", "In"),
    ("not-in", "NotIn"),
    ("exists", "Exists"),
    ("not-exists", "DoesNotExist"),
    ("gt", "Gt"),
    ("lt", "Lt"),
];

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

const NODE_STATES: [(&str, &str); 3] = [("ready", "True"), ("not-ready", "False"), ("unknown", "Unknown")];

// Text to lines.

struct Line<'a> {
    at: usize,
    kind: Kind,
    name: &'a str,
    words: Vec<(&'a str, Option<&'a str>)>,
}

fn read_lines(text: &str) -> Result<Vec<Line<'_>>, Error> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let at = at + 1;
        let wrong = |word: &str, problem: String| Error { line: at, word: word.to_string(), problem };
        let mut parts = raw.split_whitespace().take_while(|it| !it.starts_with('#'));
        let Some(kind_text) = parts.next() else { continue };
        let Some(&(_, kind)) = KINDS.iter().find(|it| it.0 == kind_text) else {
            return Err(wrong(kind_text, format!("not a kind of line; allowed: {}", first_of(&KINDS))));
        };
        let Some(name) = parts.next() else {
            let wants = if kind == Kind::Now { "a time, in seconds" } else { "a name" };
            return Err(wrong(kind_text, format!("wants {wants}")));
        };
        let mut line = Line { at, kind, name, words: Vec::new() };
        for part in parts {
            line.take_word(part)?;
        }
        let same = |it: &&Line<'_>| it.kind == kind && (kind == Kind::Now || it.id() == line.id());
        if let Some(first) = lines.iter().find(same) {
            return Err(wrong(name, format!("said twice; first on line {}", first.at)));
        }
        lines.push(line);
    }
    Ok(lines)
}

impl<'a> Line<'a> {
    fn take_word(&mut self, part: &'a str) -> Result<(), Error> {
        let (key, value) = match part.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (part, None),
        };
        let own = match self.kind {
            Kind::Now => &[],
            Kind::Set => SET_WORDS,
            Kind::Node => NODE_WORDS,
            Kind::Pod => POD_WORDS,
            Kind::Rev => REV_WORDS,
        };
        let any = if self.kind == Kind::Now { &[] } else { ANY_WORDS };
        let Some(&(key, takes)) = own.iter().chain(any).find(|it| it.0 == key) else {
            let allowed = match self.kind {
                Kind::Now => "nothing more".to_string(),
                _ => format!("{}, {}", first_of(own), first_of(any)),
            };
            return Err(self.wrong(part, format!("not a word of this line; allowed: {allowed}")));
        };
        match (takes, value) {
            (Nothing, Some(_)) => return Err(self.wrong(part, format!("`{key}` stands alone"))),
            (One | Many, None | Some("")) | (Maybe, Some("")) => {
                return Err(self.wrong(part, format!("wants a value: `{key}=…`")));
            }
            _ => {}
        }
        if takes != Many && self.has(key) {
            return Err(self.wrong(part, "said twice".to_string()));
        }
        for group in EXCLUSIVE.iter().filter(|it| it.contains(&key)) {
            if let Some(other) = group.iter().find(|it| **it != key && self.has(it)) {
                let allowed = group.join(", ");
                return Err(self.wrong(part, format!("contradicts `{other}`; allowed is one of: {allowed}")));
            }
        }
        self.words.push((key, value));
        Ok(())
    }

    fn wrong(&self, word: &str, problem: impl Into<String>) -> Error {
        Error { line: self.at, word: word.to_string(), problem: problem.into() }
    }

    fn wrong_value(&self, key: &str, value: &str, wants: &str) -> Error {
        let word = if self.kind == Kind::Now { value.to_string() } else { format!("{key}={value}") };
        self.wrong(&word, format!("wants {wants}"))
    }

    fn has(&self, key: &str) -> bool {
        self.words.iter().any(|it| it.0 == key)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.words.iter().find(|it| it.0 == key).and_then(|it| it.1)
    }

    fn values(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.words.iter().filter(move |it| it.0 == key).filter_map(|it| it.1)
    }

    fn number(&self, key: &str) -> Result<Option<i64>, Error> {
        self.value(key).map(|text| self.number_of(key, text)).transpose()
    }

    fn number_of(&self, key: &str, text: &str) -> Result<i64, Error> {
        text.parse().map_err(|_| self.wrong_value(key, text, "a whole number"))
    }

    fn seconds(&self, key: &str) -> Result<Option<i64>, Error> {
        self.value(key).map(|text| self.seconds_of(key, text)).transpose()
    }

    fn seconds_of(&self, key: &str, text: &str) -> Result<i64, Error> {
        let wrong = || self.wrong_value(key, text, "a time, in seconds");
        let second: i64 = text.parse().map_err(|_| wrong())?;
        Timestamp::from_second(EPOCH_S.saturating_add(second)).map_err(|_| wrong())?;
        Ok(second)
    }

    /// `25%`, or a number.
    fn share(&self, key: &str) -> Result<Option<Value>, Error> {
        let Some(text) = self.value(key) else { return Ok(None) };
        let digits = text.strip_suffix('%').unwrap_or(text);
        let number: u32 =
            digits.parse().map_err(|_| self.wrong_value(key, text, "a number, or a share such as 25%"))?;
        Ok(Some(if digits == text { number.into() } else { format!("{number}%").into() }))
    }

    fn pairs(&self, key: &str) -> Result<Map<String, Value>, Error> {
        let pair = |text: &'a str| match text.split_once(':') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.into())),
            _ => Err(self.wrong_value(key, text, "KEY:VALUE")),
        };
        self.values(key).map(pair).collect()
    }

    fn taints(&self) -> Result<Vec<Value>, Error> {
        let taint = |text| {
            let wrong = |wants| self.wrong_value("taint", text, wants);
            let mark = Mark::read(text).ok_or_else(|| wrong(Mark::WANTS))?;
            let mut taint = Map::new();
            taint.insert("key".to_string(), mark.key.into());
            put(&mut taint, "value", mark.value);
            let effect = mark.effect.ok_or_else(|| wrong(Mark::WANTS))?;
            taint.insert("effect".to_string(), effect.into());
            put(&mut taint, "timeAdded", mark.at.map(time));
            Ok(taint.into())
        };
        self.values("taint").map(taint).collect()
    }

    fn tolerations(&self) -> Result<Vec<Value>, Error> {
        let toleration = |text| {
            let mark = Mark::read(text).ok_or_else(|| self.wrong_value("tolerate", text, Mark::WANTS))?;
            let mut toleration = Map::new();
            put(&mut toleration, "key", Some(mark.key).filter(|it| *it != "*"));
            let operator = if mark.value.is_some() { "Equal" } else { "Exists" };
            toleration.insert("operator".to_string(), operator.into());
            put(&mut toleration, "value", mark.value);
            put(&mut toleration, "effect", mark.effect);
            put(&mut toleration, "tolerationSeconds", mark.at);
            Ok(toleration.into())
        };
        self.values("tolerate").filter(|it| *it != NONE).map(toleration).collect()
    }

    fn terms(&self) -> Result<Vec<Value>, Error> {
        self.values("affinity").map(|text| self.term(text)).collect()
    }

    fn term(&self, text: &str) -> Result<Value, Error> {
        let mut term = Map::new();
        for part in text.split('+') {
            let mut pieces = part.splitn(3, ':');
            let key = pieces.next().unwrap_or_default();
            let operator = pieces.next().and_then(|it| OPERATORS.iter().find(|pair| pair.0 == it));
            let (Some((_, operator)), false) = (operator, key.is_empty()) else {
                let wants = format!("KEY:OPERATOR:V,V with operator one of: {}", first_of(&OPERATORS));
                return Err(self.wrong_value("affinity", text, &wants));
            };
            let mut requirement = Map::new();
            requirement.insert("key".to_string(), key.into());
            requirement.insert("operator".to_string(), (*operator).into());
            put(&mut requirement, "values", pieces.next().map(|it| it.split(',').collect::<Vec<_>>()));
            let list = if key == "metadata.name" { "matchFields" } else { "matchExpressions" };
            if let Value::Array(items) = term.entry(list).or_insert(json!([])) {
                items.push(requirement.into());
            }
        }
        Ok(term.into())
    }

    /// The set that this pod or revision is of.
    fn set<'w>(&self, world: &'w World) -> Result<Option<&'w Value>, Error> {
        let here = |set: &&Value| self.value("ns").is_none_or(|ns| text(set, NAMESPACE) == ns);
        let named = |set: &&Value| self.value("of").is_none_or(|name| text(set, NAME) == name);
        let found: Vec<&Value> = world.sets.iter().filter(here).filter(named).collect();
        match (self.value("of"), &found[..]) {
            (Some(NONE), _) | (None, []) => Ok(None),
            (_, [set]) => Ok(Some(set)),
            (of, _) => {
                let word = of.map_or_else(|| self.name.to_string(), |it| format!("of={it}"));
                let mut allowed = alloc::vec!["of=none".to_string()];
                let sets = world.sets.iter();
                allowed.extend(sets.map(|it| format!("of={} ns={}", text(it, NAME), text(it, NAMESPACE))));
                Err(self.wrong(&word, format!("of which set? allowed: {}", allowed.join(", "))))
            }
        }
    }

    fn id(&self) -> (&'a str, &'a str) {
        (self.value("ns").unwrap_or("default"), self.name)
    }

    fn metadata(&self, namespace: Option<&str>, now: i64) -> Result<Map<String, Value>, Error> {
        let mut metadata = Map::new();
        metadata.insert("name".to_string(), self.name.into());
        put(&mut metadata, "namespace", namespace);
        let uid = self
            .value("uid")
            .map_or_else(|| default_uid(self.kind, namespace, self.name), ToString::to_string);
        metadata.insert("uid".to_string(), uid.into());
        metadata.insert("resourceVersion".to_string(), self.value("rv").unwrap_or("1").into());
        let made = self.seconds("made")?.unwrap_or(0);
        metadata.insert("creationTimestamp".to_string(), time(made).into());
        if self.has("deleting") {
            metadata.insert(
                "deletionTimestamp".to_string(),
                time(self.seconds("deleting")?.unwrap_or(now)).into(),
            );
            let grace_s = if self.kind == Kind::Pod { 30 } else { 0 };
            metadata.insert("deletionGracePeriodSeconds".to_string(), grace_s.into());
        }
        let finalizers: Vec<&str> = self.values("finalizer").collect();
        put(&mut metadata, "finalizers", Some(finalizers).filter(|it| !it.is_empty()));
        Ok(metadata)
    }
}

/// `KEY[=VALUE][:EFFECT][@N]`: a taint or a toleration.
struct Mark<'a> {
    key: &'a str,
    value: Option<&'a str>,
    effect: Option<&'a str>,
    at: Option<i64>,
}

impl<'a> Mark<'a> {
    const WANTS: &'static str =
        "KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute";

    fn read(text: &'a str) -> Option<Mark<'a>> {
        let (text, at) = match text.rsplit_once('@') {
            Some((text, at)) => (text, Some(at.parse::<i32>().ok()?.into())),
            None => (text, None),
        };
        let (text, effect) = match text.rsplit_once(':') {
            Some((text, effect)) if EFFECTS.contains(&effect) => (text, Some(effect)),
            Some(_) => return None,
            None => (text, None),
        };
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        (!key.is_empty()).then_some(Mark { key, value, effect, at })
    }

    fn of_taint(taint: &'a Value) -> Mark<'a> {
        Mark {
            key: text(taint, "/key"),
            value: taint["value"].as_str().filter(|it| !it.is_empty()),
            effect: taint["effect"].as_str(),
            at: second(text(taint, "/timeAdded")),
        }
    }

    fn of_toleration(toleration: &'a Value) -> Mark<'a> {
        Mark {
            key: toleration["key"].as_str().filter(|it| !it.is_empty()).unwrap_or("*"),
            value: match text(toleration, "/operator") {
                "Exists" => None,
                _ => Some(text(toleration, "/value")),
            },
            effect: toleration["effect"].as_str().filter(|it| !it.is_empty()),
            at: toleration["tolerationSeconds"].as_i64(),
        }
    }
}

impl fmt::Display for Mark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.value.map_or(Ok(()), |it| write!(f, "={it}"))?;
        self.effect.map_or(Ok(()), |it| write!(f, ":{it}"))?;
        self.at.map_or(Ok(()), |it| write!(f, "@{it}"))
    }
}

// Lines to objects.

fn parse_set(line: &Line<'_>, now: i64) -> Result<Value, Error> {
    let mut select = line.pairs("select")?;
    if select.is_empty() {
        select.insert("app".to_string(), line.name.into());
    }
    let mut labels = select.clone();
    labels.extend(line.pairs("pod-label")?);
    let number = line.number("template")?.unwrap_or(1);
    let mut template = bare_template(line.name, number);
    if let Some(spec) = object_mut(&mut template, "/spec") {
        put(spec, "hostNetwork", line.has("host-network").then_some(true));
        put(spec, "nodeName", line.value("node-name"));
        put(spec, "nodeSelector", Some(line.pairs("node-selector")?).filter(|it| !it.is_empty()));
        put(spec, "tolerations", Some(line.tolerations()?).filter(|it| !it.is_empty()));
        let required = |terms| {
            json!({"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
        };
        put(spec, "affinity", Some(line.terms()?).filter(|it| !it.is_empty()).map(required));
    }
    put_at(&mut template, "/metadata", "labels", labels);

    let surge = line.share("max-surge")?.unwrap_or(json!(0));
    let unavailable = line.share("max-unavailable")?.unwrap_or(json!(if surge == 0 { 1 } else { 0 }));
    let strategy = match line.has("on-delete") {
        true => json!({"type": "OnDelete"}),
        false => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}})
        }
    };

    let mut metadata = line.metadata(Some(line.id().0), now)?;
    let generation = line.number("gen")?.unwrap_or(number);
    metadata.insert("generation".to_string(), generation.into());
    if let Some(generation) = line.number("template-generation")? {
        let annotations = json!({TEMPLATE_GENERATION: generation.to_string()});
        metadata.insert("annotations".to_string(), annotations);
    }

    let mut status = Map::new();
    status.insert("observedGeneration".to_string(), line.number("observed")?.unwrap_or(generation).into());
    put(&mut status, "collisionCount", line.number("collisions")?);
    status.extend(COUNTS.iter().map(|it| (it.1.to_string(), 0.into())));
    for part in line.value("status").into_iter().flat_map(|it| it.split(',')) {
        let count = part.split_once(':').and_then(|(name, count)| {
            let (_, field) = COUNTS.iter().find(|it| it.0 == name)?;
            Some((field.to_string(), Value::from(count.parse::<u32>().ok()?)))
        });
        let Some((field, count)) = count else {
            let wants = format!("NAME:COUNT,… with names of: {}", first_of(&COUNTS));
            return Err(line.wrong_value("status", part, &wants));
        };
        status.insert(field, count);
    }

    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": select},
            "template": template,
            "updateStrategy": strategy,
            "minReadySeconds": line.number("min-ready")?.unwrap_or(0),
            "revisionHistoryLimit": line.number("history")?.unwrap_or(10),
        },
        "status": status,
    }))
}

fn parse_node(line: &Line<'_>, now: i64) -> Result<Value, Error> {
    let mut metadata = line.metadata(None, now)?;
    metadata.insert("labels".to_string(), line.pairs("label")?.into());
    let mut spec = Map::new();
    put(&mut spec, "unschedulable", line.has("cordoned").then_some(true));
    put(&mut spec, "taints", Some(line.taints()?).filter(|it| !it.is_empty()));
    let since = time(line.seconds("since")?.or(line.seconds("made")?).unwrap_or(0));
    let ready = NODE_STATES.iter().find(|it| line.has(it.0)).unwrap_or(&NODE_STATES[0]).1;
    let conditions = match line.has("new") {
        true => json!([]),
        false => {
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": since}])
        }
    };
    if line.has("new") && line.has("since") {
        return Err(line.wrong("since", "a new node has no condition that could have a time"));
    }
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {"capacity": room, "allocatable": room, "conditions": conditions},
    }))
}

fn parse_revision(line: &Line<'_>, world: &World) -> Result<Value, Error> {
    let set = line.set(world)?;
    let number = line.number("template")?.unwrap_or_else(|| set.map_or(1, template_number));
    let template = set.map_or_else(|| bare_template(NONE, number), |set| template_of(set, number));
    let hash = match line.value("hash") {
        Some(hash) => hash.to_string(),
        None => computed_hash(set, &template),
    };
    let owner = owner_of(line, set);
    let annotations = set.map_or(&Value::Null, |it| &it["metadata"]["annotations"]);
    let revision = line.number("number")?.unwrap_or(number);
    let mut made = manifest::controller_revision(owner, annotations, &template, &hash, revision);
    finish(&mut made, line, set, world)?;
    if hash == NONE
        && let Some(labels) = object_mut(&mut made, "/metadata/labels")
    {
        labels.remove(HASH_LABEL);
    }
    Ok(made)
}

fn parse_pod(line: &Line<'_>, world: &World) -> Result<Value, Error> {
    let set = line.set(world)?;
    let mut pod = match set {
        Some(set) => daemon_pod(line, set, world)?,
        None => stray_pod(line)?,
    };
    finish(&mut pod, line, set, world)?;
    put_at(&mut pod, "/metadata", "generation", 1);
    if let Some(labels) = object_mut(&mut pod, "/metadata/labels") {
        labels.extend(line.pairs("label")?);
        line.values("unlabel").for_each(|key| drop(labels.remove(key)));
    }

    let bound = pod["spec"]["nodeName"].is_string();
    if !bound && let Some(word) = NEEDS_NODE.iter().find(|it| line.has(it)) {
        return Err(line.wrong(word, "wants a node: say on="));
    }
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let made = line.seconds("made")?.unwrap_or(0);
    let since = time(line.seconds("since")?.unwrap_or(made));
    let (phase, container) = match (line.value("waiting"), line.value("failed")) {
        // A container that crashed has been running, and so has its pod; one with any other trouble has not.
        (Some(CRASHED), _) => ("Running", waiting(CRASHED)),
        (Some(reason), _) => ("Pending", waiting(reason)),
        _ if line.has("ready") || line.has("unready") => {
            ("Running", json!({"running": {"startedAt": since}}))
        }
        _ if line.has("failed") => ("Failed", json!({"terminated": {"exitCode": 1, "finishedAt": since}})),
        _ if line.has("succeeded") => {
            ("Succeeded", json!({"terminated": {"exitCode": 0, "finishedAt": since}}))
        }
        _ => ("Pending", waiting(STARTING)),
    };
    let mut status = Map::new();
    status.insert("phase".to_string(), phase.into());
    put(&mut status, "reason", line.value("failed"));
    if bound {
        let ready = if line.has("ready") { "True" } else { "False" };
        let image = pod["spec"]["containers"][0]["image"].clone();
        let name = pod["spec"]["containers"][0]["name"].clone();
        status.insert("startTime".to_string(), time(made).into());
        status.insert(
            "conditions".to_string(),
            json!([
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": time(made)},
                {"type": "Ready", "status": ready, "lastTransitionTime": since},
            ]),
        );
        status.insert(
            "containerStatuses".to_string(),
            json!([{"name": name, "image": image, "ready": line.has("ready"), "restartCount": 0, "state": container}]),
        );
    }
    if let Some(pod) = object_mut(&mut pod, "") {
        pod.insert("status".to_string(), status.into());
    }
    Ok(pod)
}

/// A pod as the engine itself would make it, on the way to its node or already there.
fn daemon_pod(line: &Line<'_>, set: &Value, world: &World) -> Result<Value, Error> {
    let number = line.number("rev")?.unwrap_or_else(|| template_number(set));
    let mut template = template_of(set, number);
    if line.has("tolerate") {
        put_at(&mut template, "/spec", "tolerations", line.tolerations()?);
    }
    let hash = match line.value("hash") {
        Some(NONE) => String::new(),
        Some(hash) => hash.to_string(),
        None => default_hash(set, number, world),
    };
    if line.has("direct") && !line.has("on") {
        return Err(line.wrong("direct", "wants a node: say on="));
    }
    let node = line.value("for").or(line.value("on"));
    let binding = if line.has("direct") { Binding::Direct } else { Binding::Scheduler };
    let generation = line.number("generation-label")?;
    let mut pod = manifest::daemon_pod(
        owner_of(line, Some(set)),
        &template,
        node.unwrap_or_default(),
        &hash,
        generation,
        binding,
    );
    if let Some(spec) = object_mut(&mut pod, "/spec") {
        put(spec, "nodeName", line.value("on"));
        if node.is_none() {
            spec.remove("affinity");
            put(spec, "affinity", template["spec"].get("affinity").cloned());
        }
    }
    Ok(pod)
}

/// A pod that no set knows.
fn stray_pod(line: &Line<'_>) -> Result<Value, Error> {
    if let Some(word) = NEEDS_SET.iter().find(|it| line.has(it)) {
        return Err(line.wrong(word, "wants a set: say of="));
    }
    let mut spec = Map::new();
    spec.insert("containers".to_string(), containers(NONE, 1));
    put(&mut spec, "nodeName", line.value("on"));
    put(&mut spec, "tolerations", Some(line.tolerations()?).filter(|it| !it.is_empty()));
    let mut pod = manifest::daemon_pod(owner_of(line, None), &json!({}), "", "", None, Binding::Direct);
    if let Some(pod) = object_mut(&mut pod, "") {
        pod.insert("spec".to_string(), spec.into());
    }
    Ok(pod)
}

/// What every pod and revision says of itself.
fn finish(made: &mut Value, line: &Line<'_>, set: Option<&Value>, world: &World) -> Result<(), Error> {
    let namespace = set.map_or(line.id().0, |it| text(it, NAMESPACE));
    let said = line.metadata(Some(namespace), world.now)?;
    if let Some(metadata) = object_mut(made, "/metadata") {
        metadata.extend(said);
        let owned = if set.is_some() { !line.has("orphan") } else { line.has("owner") };
        if !owned {
            metadata.remove("ownerReferences");
        }
    }
    Ok(())
}

fn owner_of<'a>(line: &Line<'a>, set: Option<&'a Value>) -> Owner<'a> {
    let of_set = |at| set.map_or(NONE, |it| text(it, at));
    Owner {
        namespace: of_set(NAMESPACE),
        name: of_set(NAME),
        uid: line.value("owner").unwrap_or(of_set(UID)),
    }
}

// Objects to lines.

struct Row {
    kind: &'static str,
    name: String,
    words: Vec<String>,
}

impl Row {
    fn new(kind: &'static str, object: &Value) -> Row {
        let name = text(object, NAME);
        Row { kind, name: one_word(if name.is_empty() { "-" } else { name }), words: Vec::new() }
    }

    fn flag(&mut self, key: &str, said: bool) {
        if said {
            self.words.push(key.to_string());
        }
    }

    fn say(&mut self, key: &str, value: impl fmt::Display) {
        self.words.push(one_word(&format!("{key}={value}")));
    }

    /// Says it unless it is the default, which goes without saying.
    fn unless(&mut self, default: impl fmt::Display, key: &str, value: impl fmt::Display) {
        let value = value.to_string();
        if !value.is_empty() && value != default.to_string() {
            self.say(key, value);
        }
    }

    fn pairs<'a>(&mut self, key: &str, pairs: impl IntoIterator<Item = (&'a String, &'a Value)>) {
        for (name, value) in pairs {
            self.say(key, format_args!("{name}:{}", plain(value)));
        }
    }

    fn common(mut self, kind: Kind, object: &Value, now: i64) -> Row {
        self.unless(0, "made", made(object));
        if let Some(at) = second(text(object, "/metadata/deletionTimestamp")) {
            match at == now {
                true => self.flag("deleting", true),
                false => self.say("deleting", at),
            }
        }
        for finalizer in list(object, "/metadata/finalizers") {
            self.say("finalizer", plain(finalizer));
        }
        let namespace = object["metadata"]["namespace"].as_str();
        self.unless(default_uid(kind, namespace, text(object, NAME)), "uid", text(object, UID));
        self.unless(1, "rv", text(object, "/metadata/resourceVersion"));
        self
    }

    /// Of which set, in which namespace, and owned by whom.
    fn belonging(&mut self, object: &Value, set: Option<&Value>, world: &World) {
        let namespace = text(object, NAMESPACE);
        let alike = world.sets.iter().filter(|it| set.is_some_and(|set| text(it, NAME) == text(set, NAME)));
        if alike.count() > 1 {
            self.say("ns", namespace);
        } else {
            self.unless("default", "ns", namespace);
        }
        let owner = controller(object).map(|it| text(it, "/uid"));
        match set {
            Some(set) => {
                if world.sets.len() > 1 {
                    self.say("of", text(set, NAME));
                }
                self.flag("orphan", owner.is_none());
                self.unless(text(set, UID), "owner", owner.unwrap_or_default());
            }
            None => {
                if !world.sets.is_empty() {
                    self.say("of", NONE);
                }
                self.unless(NONE, "owner", owner.unwrap_or_default());
            }
        }
    }

    /// The hash label, where it is not the one that goes without saying.
    fn hash(&mut self, object: &Value, default: &str) {
        let hash = hash_label(object);
        match hash.is_empty() {
            true => self.unless(default, "hash", NONE),
            false => self.unless(default, "hash", hash),
        }
    }
}

fn print_set(set: &Value, world: &World) -> Row {
    let mut row = Row::new("set", set);
    let number = template_number(set);
    row.unless("default", "ns", text(set, NAMESPACE));
    row.unless(1, "template", number);
    let rolling = &set["spec"]["updateStrategy"]["rollingUpdate"];
    let (surge, unavailable) = (plain(&rolling["maxSurge"]), plain(&rolling["maxUnavailable"]));
    row.flag("on-delete", text(set, "/spec/updateStrategy/type") == "OnDelete");
    row.unless(if surge.is_empty() || surge == "0" { 1 } else { 0 }, "max-unavailable", unavailable);
    row.unless(0, "max-surge", surge);
    row.unless(0, "min-ready", plain(&set["spec"]["minReadySeconds"]));
    row.unless(10, "history", plain(&set["spec"]["revisionHistoryLimit"]));

    let select = fields(set, "/spec/selector/matchLabels");
    let plain_select = select.len() == 1 && select.get("app") == Some(&set["metadata"]["name"]);
    row.pairs("select", select.iter().filter(|_| !plain_select));
    let labels = fields(set, "/spec/template/metadata/labels");
    row.pairs("pod-label", labels.iter().filter(|(key, value)| select.get(*key) != Some(value)));

    let spec = &set["spec"]["template"]["spec"];
    row.pairs("node-selector", &fields(spec, "/nodeSelector"));
    for term in list(spec, REQUIRED_TERMS) {
        row.say("affinity", term_text(term));
    }
    for toleration in list(spec, "/tolerations") {
        row.say("tolerate", Mark::of_toleration(toleration));
    }
    row.flag("host-network", spec["hostNetwork"] == true);
    row.unless("", "node-name", plain(&spec["nodeName"]));
    let generation = plain(&set["metadata"]["generation"]);
    row.unless(number, "gen", &generation);
    row.unless(&generation, "observed", plain(&set["status"]["observedGeneration"]));
    let counts: Vec<String> = COUNTS
        .iter()
        .filter_map(|(name, field)| Some((name, set["status"][field].as_u64().filter(|it| *it != 0)?)))
        .map(|(name, count)| format!("{name}:{count}"))
        .collect();
    row.unless("", "status", counts.join(","));
    row.unless("", "collisions", plain(&set["status"]["collisionCount"]));
    row.unless("", "template-generation", plain(&set["metadata"]["annotations"][TEMPLATE_GENERATION]));
    row.common(Kind::Set, set, world.now)
}

fn print_node(node: &Value, world: &World) -> Row {
    let mut row = Row::new("node", node);
    row.pairs("label", &fields(node, "/metadata/labels"));
    for taint in list(node, "/spec/taints") {
        row.say("taint", Mark::of_taint(taint));
    }
    row.flag("cordoned", node["spec"]["unschedulable"] == true);
    match ready_condition(node) {
        None => row.flag("new", true),
        Some(ready) => {
            let state =
                NODE_STATES.iter().find(|it| it.1 == text(ready, "/status")).unwrap_or(&NODE_STATES[2]);
            row.flag(state.0, state.0 != "ready");
            row.unless(made(node), "since", since(ready));
        }
    }
    row.common(Kind::Node, node, world.now)
}

fn print_pod(pod: &Value, world: &World) -> Row {
    let mut row = Row::new("pod", pod);
    let set = set_of(pod, world);
    row.belonging(pod, set, world);
    row.unless("", "on", text(pod, "/spec/nodeName"));
    match set {
        None => {
            row.pairs("label", &fields(pod, "/metadata/labels"));
            for toleration in list(pod, "/spec/tolerations") {
                row.say("tolerate", Mark::of_toleration(toleration));
            }
        }
        Some(set) => print_daemon_words(&mut row, pod, set, world),
    }

    let waiting = text(pod, "/status/containerStatuses/0/state/waiting/reason");
    let ready = ready_condition(pod);
    match text(pod, "/status/phase") {
        "Failed" => match text(pod, "/status/reason") {
            "" => row.flag("failed", true),
            reason => row.say("failed", reason),
        },
        "Succeeded" => row.flag("succeeded", true),
        "Running" if ready.is_some_and(|it| text(it, "/status") == "True") => row.flag("ready", true),
        "Running" if waiting.is_empty() => row.flag("unready", true),
        _ if !waiting.is_empty() && waiting != STARTING => row.say("waiting", waiting),
        _ => row.flag("starting", !text(pod, "/spec/nodeName").is_empty()),
    }
    if let Some(ready) = ready {
        row.unless(made(pod), "since", since(ready));
    }
    row.common(Kind::Pod, pod, world.now)
}

fn print_daemon_words(row: &mut Row, pod: &Value, set: &Value, world: &World) {
    let terms = list(&pod["spec"], REQUIRED_TERMS);
    let node = terms.first().map_or("", |it| text(it, "/matchFields/0/values/0"));
    let pinned = if terms == [manifest::only_on(node)] { node } else { "" };
    let direct = text(pod, "/spec/schedulerName") == manifest::DIRECT_SCHEDULER;
    row.flag("direct", direct);
    if !direct {
        row.unless(text(pod, "/spec/nodeName"), "for", pinned);
    }

    let number = image(pod).map_or_else(|| template_number(set), |it| it.1);
    row.unless(template_number(set), "rev", number);
    let template = template_of(set, number);
    row.hash(pod, &default_hash(set, number, world));
    let labels = fields(pod, "/metadata/labels");
    row.unless("", "generation-label", labels.get(manifest::GENERATION_LABEL).map(plain).unwrap_or_default());
    let expected = fields(&template, "/metadata/labels");
    let ours = |key: &str| key == HASH_LABEL || key == manifest::GENERATION_LABEL;
    row.pairs("label", labels.iter().filter(|(key, value)| !ours(key) && expected.get(*key) != Some(value)));
    for key in expected.keys().filter(|it| !ours(it) && !labels.contains_key(*it)) {
        row.say("unlabel", key);
    }

    // The shortest list that becomes the pod's once the automatic ones are added.
    let spec = fields(&template, "/spec");
    let whole = list(pod, "/spec/tolerations");
    let becomes_whole = |own: &[Value]| {
        let mut spec = spec.clone();
        put(&mut spec, "tolerations", Some(own.to_vec()));
        manifest::tolerate(&mut spec);
        spec.get("tolerations").and_then(Value::as_array).is_some_and(|it| it == whole)
    };
    if !becomes_whole(list(&template, "/spec/tolerations")) {
        let own = (0..=whole.len()).map(|to| &whole[..to]).find(|it| becomes_whole(it)).unwrap_or(whole);
        for toleration in own {
            row.say("tolerate", Mark::of_toleration(toleration));
        }
        if own.is_empty() {
            row.say("tolerate", NONE);
        }
    }
}

fn print_revision(revision: &Value, world: &World) -> Row {
    let mut row = Row::new("rev", revision);
    let set = set_of(revision, world);
    row.belonging(revision, set, world);
    let default = set.map_or(1, template_number);
    let number = image(revision).map_or(default, |it| it.1);
    row.unless(default, "template", number);
    row.unless(number, "number", plain(&revision["revision"]));
    let template = set.map_or_else(|| bare_template(NONE, number), |set| template_of(set, number));
    row.hash(revision, &computed_hash(set, &template));
    row.common(Kind::Rev, revision, world.now)
}

fn term_text(term: &Value) -> String {
    let requirement = |it: &Value| {
        let operator =
            OPERATORS.iter().find(|pair| pair.1 == text(it, "/operator")).unwrap_or(&OPERATORS[0]).0;
        let values: Vec<String> = list(it, "/values").iter().map(plain).collect();
        let colon = if values.is_empty() { "" } else { ":" };
        format!("{}:{operator}{colon}{}", text(it, "/key"), values.join(","))
    };
    let both = list(term, "/matchExpressions").iter().chain(list(term, "/matchFields"));
    both.map(requirement).collect::<Vec<_>>().join("+")
}

// What both directions have to agree on.

const NAME: &str = "/metadata/name";
const NAMESPACE: &str = "/metadata/namespace";
const UID: &str = "/metadata/uid";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const CRASHED: &str = "CrashLoopBackOff";
const STARTING: &str = "ContainerCreating";
const REQUIRED_TERMS: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Words that only a pod on a node can have.
const NEEDS_NODE: &[&str] = &["ready", "unready", "waiting", "since"];

/// Rule: the set of an object is its owner; of an orphan, the one whose image it runs, or that selects it.
fn set_of<'w>(object: &Value, world: &'w World) -> Option<&'w Value> {
    let mut sets = world.sets.iter().filter(|it| text(it, NAMESPACE) == text(object, NAMESPACE));
    if let Some(owner) = controller(object) {
        return sets
            .clone()
            .find(|it| text(it, UID) == text(owner, "/uid"))
            .or_else(|| sets.find(|it| text(it, NAME) == text(owner, "/name")));
    }
    if let Some((name, _)) =
        image(object).filter(|it| it.0 == NONE || sets.clone().any(|set| text(set, NAME) == it.0))
    {
        return sets.find(|it| text(it, NAME) == name);
    }
    let labels = fields(object, "/metadata/labels");
    sets.find(|set| {
        let select = fields(set, "/spec/selector/matchLabels");
        !select.is_empty() && select.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

fn controller(object: &Value) -> Option<&Value> {
    list(object, "/metadata/ownerReferences").iter().find(|it| it["controller"] == true)
}

/// Name and number of the image that a set, a pod or a revision runs.
fn image(object: &Value) -> Option<(&str, i64)> {
    ["", "/spec/template", "/data/spec/template"]
        .iter()
        .find_map(|at| object.pointer(at)?.pointer("/spec/containers/0/image")?.as_str())
        .and_then(|it| it.rsplit_once(':'))
        .and_then(|(name, number)| Some((name, number.parse().ok()?)))
}

fn template_number(set: &Value) -> i64 {
    image(set).map_or(1, |it| it.1)
}

/// Rule: template N is the set's template with image number N.
fn template_of(set: &Value, number: i64) -> Value {
    let mut template = set["spec"]["template"].clone();
    if image(set).is_some_and(|it| it.1 != number) {
        put_at(&mut template, "/spec", "containers", containers(text(set, NAME), number));
    }
    template
}

fn bare_template(name: &str, number: i64) -> Value {
    json!({"metadata": {}, "spec": {"containers": containers(name, number)}})
}

fn containers(name: &str, number: i64) -> Value {
    json!([{"name": name, "image": format!("{name}:{number}")}])
}

/// Rule: a pod's hash is that of its set's revision with the same template, or what that would be.
fn default_hash(set: &Value, number: i64, world: &World) -> String {
    let same = |it: &&Value| {
        let of = set_of(it, world);
        of.is_some_and(|of| text(of, UID) == text(set, UID)) && image(it).is_some_and(|it| it.1 == number)
    };
    match world.revisions.iter().find(same).map(hash_label) {
        Some(hash) if !hash.is_empty() => hash.to_string(),
        _ => computed_hash(Some(set), &template_of(set, number)),
    }
}

fn computed_hash(set: Option<&Value>, template: &Value) -> String {
    let collisions = set.and_then(|it| it["status"]["collisionCount"].as_i64());
    manifest::revision_hash(template, collisions.and_then(|it| it.try_into().ok()))
}

fn hash_label(object: &Value) -> &str {
    object["metadata"]["labels"][HASH_LABEL].as_str().unwrap_or_default()
}

fn default_uid(kind: Kind, namespace: Option<&str>, name: &str) -> String {
    let letter = match kind {
        Kind::Now | Kind::Set => 'u',
        Kind::Node => 'n',
        Kind::Pod => 'p',
        Kind::Rev => 'r',
    };
    match namespace {
        None | Some("default") => format!("{letter}-{name}"),
        Some(namespace) => format!("{letter}-{namespace}.{name}"),
    }
}

fn made(object: &Value) -> i64 {
    second(text(object, "/metadata/creationTimestamp")).unwrap_or(0)
}

fn since(condition: &Value) -> i64 {
    second(text(condition, "/lastTransitionTime")).unwrap_or(0)
}

fn ready_condition(object: &Value) -> Option<&Value> {
    list(object, "/status/conditions").iter().find(|it| text(it, "/type") == "Ready")
}

// Reading and writing JSON without a panic.

fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value.pointer(at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn fields(value: &Value, at: &str) -> Map<String, Value> {
    value.pointer(at).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn object_mut<'a>(value: &'a mut Value, at: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(at).and_then(Value::as_object_mut)
}

fn put(fields: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        fields.insert(key.to_string(), value.into());
    }
}

fn put_at(value: &mut Value, at: &str, key: &str, new: impl Into<Value>) {
    if let Some(fields) = object_mut(value, at) {
        fields.insert(key.to_string(), new.into());
    }
}

/// A value as it stands in a line: text without its quotes, and nothing for null.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A line is split at spaces, so no word may hold one.
fn one_word(text: &str) -> String {
    text.replace(char::is_whitespace, "_")
}

fn first_of<T>(table: &[(&str, T)]) -> String {
    table.iter().map(|it| it.0).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    /// A text and how it is printed: in canonical order, without what goes without saying. Printing it again
    /// gives the same text, and reading it the same world.
    fn check(text: &str, want: Expect) {
        let world = parse(text).unwrap();
        let printed = print(&world);
        want.assert_eq(&printed);
        assert_eq!(parse(&printed).unwrap(), world);
    }

    fn check_error(text: &str, want: Expect) {
        want.assert_eq(&parse(text).unwrap_err().to_string());
    }

    fn pretty(value: &Value) -> String {
        serde_json::to_string_pretty(value).unwrap()
    }

    #[test]
    fn every_word_comes_back() {
        check(
            "
            now  1000
            set  web     template=2 max-unavailable=25% min-ready=10 history=3 select=app:web select=tier:x pod-label=team:ops node-selector=zone:a affinity=zone:in:a,b+disk:exists affinity=metadata.name:in:n1 tolerate=gpu=yes:NoSchedule tolerate=*:NoExecute@300 host-network gen=7 observed=6 status=desired:3,ready:2 collisions=1 template-generation=5 deleting=990 finalizer=a/b uid=abc rv=9 made=5
            set  log     ns=ops on-delete
            set  net     max-surge=10% node-name=n1
            node n1      label=zone:a label=disk:ssd ready since=3
            node n2      taint=gpu=yes:NoSchedule taint=x:NoExecute@900 cordoned not-ready since=900 deleting
            node n3      unknown made=2
            node n4      new
            pod  web-1   of=web on=n1 ready since=950 made=900
            pod  web-2   of=web for=n2 rev=1
            pod  web-3   of=web on=n2 for=n3 starting deleting finalizer=x
            pod  web-4   of=web on=n1 direct waiting=CrashLoopBackOff rv=77
            pod  web-5   of=web on=n1 waiting=ErrImagePull hash=none generation-label=5
            pod  web-6   of=web on=n1 failed=Evicted orphan label=tier:y label=more:z unlabel=app
            pod  web-7   of=web on=n1 succeeded owner=old tolerate=none hash=xyz
            pod  web-8   of=web on=n1 unready tolerate=a:NoSchedule tolerate=node.kubernetes.io/not-ready:NoExecute tolerate=b
            pod  web-9   of=web deleting=995
            pod  log-1   of=log on=n3 failed
            pod  other   of=none on=n1 ready label=app:web tolerate=gpu
            pod  ghost   of=none owner=u-gone
            rev  web-a   of=web template=1 made=100
            rev  web-b   of=web number=4 hash=xyz orphan
            rev  web-c   of=web template=3 hash=none owner=old
            rev  left    of=none template=2 owner=u-gone
            ",
            expect![[r#"
                now  1000
                set  web    template=2 max-unavailable=25% min-ready=10 history=3 select=app:web select=tier:x pod-label=team:ops node-selector=zone:a affinity=zone:in:a,b+disk:exists affinity=metadata.name:in:n1 tolerate=gpu=yes:NoSchedule tolerate=*:NoExecute@300 host-network gen=7 observed=6 status=desired:3,ready:2 collisions=1 template-generation=5 made=5 deleting=990 finalizer=a/b uid=abc rv=9
                set  log    ns=ops on-delete
                set  net    max-surge=10% node-name=n1
                node n1     label=disk:ssd label=zone:a since=3
                node n2     taint=gpu=yes:NoSchedule taint=x:NoExecute@900 cordoned not-ready since=900 deleting
                node n3     unknown made=2
                node n4     new
                pod  web-1  of=web on=n1 ready since=950 made=900
                pod  web-2  of=web for=n2 rev=1
                pod  web-3  of=web on=n2 for=n3 starting deleting finalizer=x
                pod  web-4  of=web on=n1 direct waiting=CrashLoopBackOff rv=77
                pod  web-5  of=web on=n1 hash=none generation-label=5 waiting=ErrImagePull
                pod  web-6  of=web orphan on=n1 label=more:z label=tier:y unlabel=app failed=Evicted
                pod  web-7  of=web owner=old on=n1 tolerate=none succeeded
                pod  web-8  of=web on=n1 tolerate=a:NoSchedule tolerate=node.kubernetes.io/not-ready:NoExecute tolerate=b unready
                pod  web-9  of=web deleting=995
                pod  log-1  ns=ops of=log on=n3 failed
                pod  other  of=none on=n1 label=app:web tolerate=gpu ready
                pod  ghost  of=none owner=u-gone
                rev  web-a  of=web template=1 made=100
                rev  web-b  of=web orphan number=4 hash=xyz
                rev  web-c  of=web owner=old template=3 hash=none
                rev  left   of=none owner=u-gone template=2
            "#]],
        );
    }

    #[test]
    fn short_lines_are_enough() {
        check(
            "set web\nnode a\npod x on=a ready\nrev web-1",
            expect![[r#"
            now  0
            set  web
            node a
            pod  x      on=a ready
            rev  web-1
        "#]],
        );
        check(
            "",
            expect![[r#"
            now  0
        "#]],
        );
        check(
            "  # nothing\n\nnow 5 # seconds\npod x",
            expect![[r#"
            now  5
            pod  x
        "#]],
        );
    }

    #[test]
    fn what_is_the_default_goes_without_saying() {
        check(
            "now 0\nset web ns=default template=1 max-unavailable=1 max-surge=0 min-ready=0 history=10 select=app:web pod-label=app:web gen=1 observed=1 status=ready:0 uid=u-web rv=1 made=0
             node a ready since=0 uid=n-a
             pod x of=web ns=default on=a for=a rev=1 hash=794686fc5b label=app:web starting since=0 made=0 owner=u-web
             rev r of=web template=1 number=1",
            expect![[r#"
                now  0
                set  web
                node a
                pod  x    on=a starting
                rev  r
            "#]],
        );
    }

    #[test]
    fn a_set_a_node_a_pod_and_a_revision_are_whole() {
        let world = parse("now 60\nset web tolerate=gpu:NoSchedule\nnode a\npod web-1 on=a ready made=30 since=40\nrev web-r").unwrap();
        expect![[r#"
            {
              "apiVersion": "apps/v1",
              "kind": "DaemonSet",
              "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "generation": 1,
                "name": "web",
                "namespace": "default",
                "resourceVersion": "1",
                "uid": "u-web"
              },
              "spec": {
                "minReadySeconds": 0,
                "revisionHistoryLimit": 10,
                "selector": {
                  "matchLabels": {
                    "app": "web"
                  }
                },
                "template": {
                  "metadata": {
                    "labels": {
                      "app": "web"
                    }
                  },
                  "spec": {
                    "containers": [
                      {
                        "image": "web:1",
                        "name": "web"
                      }
                    ],
                    "tolerations": [
                      {
                        "effect": "NoSchedule",
                        "key": "gpu",
                        "operator": "Exists"
                      }
                    ]
                  }
                },
                "updateStrategy": {
                  "rollingUpdate": {
                    "maxSurge": 0,
                    "maxUnavailable": 1
                  },
                  "type": "RollingUpdate"
                }
              },
              "status": {
                "currentNumberScheduled": 0,
                "desiredNumberScheduled": 0,
                "numberAvailable": 0,
                "numberMisscheduled": 0,
                "numberReady": 0,
                "numberUnavailable": 0,
                "observedGeneration": 1,
                "updatedNumberScheduled": 0
              }
            }"#]]
        .assert_eq(&pretty(&world.sets[0]));
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Node",
              "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {},
                "name": "a",
                "resourceVersion": "1",
                "uid": "n-a"
              },
              "spec": {},
              "status": {
                "allocatable": {
                  "cpu": "4",
                  "memory": "8Gi",
                  "pods": "110"
                },
                "capacity": {
                  "cpu": "4",
                  "memory": "8Gi",
                  "pods": "110"
                },
                "conditions": [
                  {
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "status": "True",
                    "type": "Ready"
                  }
                ]
              }
            }"#]]
        .assert_eq(&pretty(&world.nodes[0]));
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Pod",
              "metadata": {
                "creationTimestamp": "2026-01-01T00:00:30Z",
                "generateName": "web-",
                "generation": 1,
                "labels": {
                  "app": "web",
                  "controller-revision-hash": "6d7d7dc4d6"
                },
                "name": "web-1",
                "namespace": "default",
                "ownerReferences": [
                  {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": true,
                    "controller": true,
                    "kind": "DaemonSet",
                    "name": "web",
                    "uid": "u-web"
                  }
                ],
                "resourceVersion": "1",
                "uid": "p-web-1"
              },
              "spec": {
                "affinity": {
                  "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                      "nodeSelectorTerms": [
                        {
                          "matchFields": [
                            {
                              "key": "metadata.name",
                              "operator": "In",
                              "values": [
                                "a"
                              ]
                            }
                          ]
                        }
                      ]
                    }
                  }
                },
                "containers": [
                  {
                    "image": "web:1",
                    "name": "web"
                  }
                ],
                "nodeName": "a",
                "tolerations": [
                  {
                    "effect": "NoSchedule",
                    "key": "gpu",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoExecute",
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoExecute",
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/disk-pressure",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/memory-pressure",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/pid-pressure",
                    "operator": "Exists"
                  },
                  {
                    "effect": "NoSchedule",
                    "key": "node.kubernetes.io/unschedulable",
                    "operator": "Exists"
                  }
                ]
              },
              "status": {
                "conditions": [
                  {
                    "lastTransitionTime": "2026-01-01T00:00:30Z",
                    "status": "True",
                    "type": "PodScheduled"
                  },
                  {
                    "lastTransitionTime": "2026-01-01T00:00:40Z",
                    "status": "True",
                    "type": "Ready"
                  }
                ],
                "containerStatuses": [
                  {
                    "image": "web:1",
                    "name": "web",
                    "ready": true,
                    "restartCount": 0,
                    "state": {
                      "running": {
                        "startedAt": "2026-01-01T00:00:40Z"
                      }
                    }
                  }
                ],
                "phase": "Running",
                "startTime": "2026-01-01T00:00:30Z"
              }
            }"#]]
        .assert_eq(&pretty(&world.pods[0]));
        expect![[r#"
            {
              "apiVersion": "apps/v1",
              "data": {
                "spec": {
                  "template": {
                    "$patch": "replace",
                    "metadata": {
                      "labels": {
                        "app": "web"
                      }
                    },
                    "spec": {
                      "containers": [
                        {
                          "image": "web:1",
                          "name": "web"
                        }
                      ],
                      "tolerations": [
                        {
                          "effect": "NoSchedule",
                          "key": "gpu",
                          "operator": "Exists"
                        }
                      ]
                    }
                  }
                }
              },
              "kind": "ControllerRevision",
              "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {
                  "app": "web",
                  "controller-revision-hash": "6d7d7dc4d6"
                },
                "name": "web-r",
                "namespace": "default",
                "ownerReferences": [
                  {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": true,
                    "controller": true,
                    "kind": "DaemonSet",
                    "name": "web",
                    "uid": "u-web"
                  }
                ],
                "resourceVersion": "1",
                "uid": "r-web-r"
              },
              "revision": 1
            }"#]]
        .assert_eq(&pretty(&world.revisions[0]));
    }

    #[test]
    fn a_pod_has_the_hash_of_its_revision() {
        let world = parse("set web template=2\npod a rev=1\npod b\nrev one template=1 hash=first").unwrap();
        assert_eq!(hash_label(&world.pods[0]), "first");
        assert_eq!(
            hash_label(&world.pods[1]),
            manifest::revision_hash(&world.sets[0]["spec"]["template"], None)
        );
        let collided = parse("set web template=2 collisions=1\npod b\nrev two").unwrap();
        assert_ne!(hash_label(&collided.pods[0]), hash_label(&world.pods[1]));
        assert_eq!(hash_label(&collided.pods[0]), hash_label(&collided.revisions[0]));
    }

    #[test]
    fn the_order_of_lines_does_not_matter_between_kinds() {
        let one = parse("set web\nnode a\npod x on=a ready\nrev r hash=h\nnow 5").unwrap();
        let other = parse("now 5\nrev r hash=h\npod x on=a ready\nnode a\nset web").unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn sets_of_one_name_are_told_apart_by_namespace() {
        check(
            "set web\nset web ns=ops\npod x of=web ns=ops\npod x of=web ns=default\npod y of=none ns=ops",
            expect![[r#"
                now  0
                set  web
                set  web  ns=ops
                pod  x    ns=ops of=web
                pod  x    ns=default of=web
                pod  y    ns=ops of=none
            "#]],
        );
    }

    #[test]
    fn times() {
        assert_eq!(time(0), "2026-01-01T00:00:00Z");
        assert_eq!(time(1000), "2026-01-01T00:16:40Z");
        assert_eq!(second("2026-01-01T00:16:40Z"), Some(1000));
        assert_eq!(second("2026-01-01T00:16:40.5Z"), Some(1000));
        assert_eq!(second("yesterday"), None);
        assert!(second(&time(i64::MAX)).is_some());
        assert!(second(&time(i64::MIN)).is_some());
    }

    #[test]
    fn errors_name_line_and_word_and_say_what_is_allowed() {
        check_error(
            "sett web",
            expect!["line 1, `sett`: not a kind of line; allowed: now, set, node, pod, rev"],
        );
        check_error("now", expect!["line 1, `now`: wants a time, in seconds"]);
        check_error("set web\nnode", expect!["line 2, `node`: wants a name"]);
        check_error("now soon", expect!["line 1, `soon`: wants a time, in seconds"]);
        check_error("now 1 2", expect!["line 1, `2`: not a word of this line; allowed: nothing more"]);
        check_error("now 1\nnow 2", expect!["line 2, `2`: said twice; first on line 1"]);
        check_error("now 9999999999999", expect!["line 1, `9999999999999`: wants a time, in seconds"]);
        check_error(
            "set web colour=red",
            expect![
                "line 1, `colour=red`: not a word of this line; allowed: ns, template, on-delete, max-unavailable, max-surge, min-ready, history, select, pod-label, node-selector, affinity, tolerate, host-network, node-name, gen, observed, status, collisions, template-generation, made, deleting, finalizer, uid, rv"
            ],
        );
        check_error(
            "node a zone=b",
            expect![
                "line 1, `zone=b`: not a word of this line; allowed: label, taint, cordoned, ready, not-ready, unknown, new, since, made, deleting, finalizer, uid, rv"
            ],
        );
        check_error(
            "pod a onn=b",
            expect![
                "line 1, `onn=b`: not a word of this line; allowed: ns, of, orphan, owner, on, for, direct, rev, hash, generation-label, label, unlabel, tolerate, ready, unready, starting, failed, succeeded, waiting, since, made, deleting, finalizer, uid, rv"
            ],
        );
        check_error(
            "rev a on=b",
            expect![
                "line 1, `on=b`: not a word of this line; allowed: ns, of, orphan, owner, template, number, hash, made, deleting, finalizer, uid, rv"
            ],
        );
        check_error(
            "set web host-network=yes",
            expect!["line 1, `host-network=yes`: `host-network` stands alone"],
        );
        check_error("set web template", expect!["line 1, `template`: wants a value: `template=…`"]);
        check_error("set web template=", expect!["line 1, `template=`: wants a value: `template=…`"]);
        check_error("set web template=two", expect!["line 1, `template=two`: wants a whole number"]);
        check_error("set web gen=1 gen=2", expect!["line 1, `gen=2`: said twice"]);
        check_error(
            "set web max-surge=half",
            expect!["line 1, `max-surge=half`: wants a number, or a share such as 25%"],
        );
        check_error(
            "set web on-delete max-surge=1",
            expect![
                "line 1, `max-surge=1`: contradicts `on-delete`; allowed is one of: on-delete, max-surge"
            ],
        );
        check_error("set web select=app", expect!["line 1, `select=app`: wants KEY:VALUE"]);
        check_error(
            "set web affinity=zone:within:a",
            expect![
                "line 1, `affinity=zone:within:a`: wants KEY:OPERATOR:V,V with operator one of: in, not-in, exists, not-exists, gt, lt"
            ],
        );
        check_error(
            "set web tolerate=gpu:Never",
            expect![
                "line 1, `tolerate=gpu:Never`: wants KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute"
            ],
        );
        check_error(
            "set web status=happy:1",
            expect![
                "line 1, `status=happy:1`: wants NAME:COUNT,… with names of: current, misscheduled, desired, ready, updated, available, unavailable"
            ],
        );
        check_error(
            "node a taint=gpu",
            expect![
                "line 1, `taint=gpu`: wants KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute"
            ],
        );
        check_error(
            "node a taint=gpu:NoExecute@noon",
            expect![
                "line 1, `taint=gpu:NoExecute@noon`: wants KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute"
            ],
        );
        check_error(
            "node a ready unknown",
            expect![
                "line 1, `unknown`: contradicts `ready`; allowed is one of: ready, not-ready, unknown, new"
            ],
        );
        check_error(
            "node a new since=4",
            expect!["line 1, `since`: a new node has no condition that could have a time"],
        );
        check_error("node a\n\nnode a", expect!["line 3, `a`: said twice; first on line 1"]);
        check_error("set web\npod x ready", expect!["line 2, `ready`: wants a node: say on="]);
        check_error("set web\npod x for=a since=4", expect!["line 2, `since`: wants a node: say on="]);
        check_error(
            "set web\npod x on=a ready failed",
            expect![
                "line 2, `failed`: contradicts `ready`; allowed is one of: ready, unready, starting, failed, succeeded, waiting"
            ],
        );
        check_error("set web\npod x direct", expect!["line 2, `direct`: wants a node: say on="]);
        check_error(
            "set web\npod x orphan owner=u",
            expect!["line 2, `owner=u`: contradicts `orphan`; allowed is one of: orphan, owner"],
        );
        check_error("set web\npod x made=dawn", expect!["line 2, `made=dawn`: wants a time, in seconds"]);
        check_error(
            "set web\npod x of=log",
            expect!["line 2, `of=log`: of which set? allowed: of=none, of=web ns=default"],
        );
        check_error(
            "set web\nset log\npod x",
            expect!["line 3, `x`: of which set? allowed: of=none, of=web ns=default, of=log ns=default"],
        );
        check_error(
            "set web\nset log\nrev x",
            expect!["line 3, `x`: of which set? allowed: of=none, of=web ns=default, of=log ns=default"],
        );
        check_error("pod x of=web", expect!["line 1, `of=web`: of which set? allowed: of=none"]);
        check_error("pod x for=a", expect!["line 1, `for`: wants a set: say of="]);
    }

    #[test]
    fn printing_never_panics_on_odd_objects() {
        for odd in [
            json!(null),
            json!([]),
            json!({"metadata": 3, "spec": [], "status": "x"}),
            json!({"metadata": {"name": "a b"}}),
        ] {
            let all = || alloc::vec![odd.clone(), odd.clone()];
            let world = World { now: i64::MIN, sets: all(), nodes: all(), pods: all(), revisions: all() };
            assert!(!print(&world).is_empty());
        }
    }

    /// Lines that make sense, of every kind and with every sort of word.
    fn scenario() -> impl Strategy<Value = String> {
        fn some(words: &'static [&'static str]) -> impl Strategy<Value = String> {
            prop::sample::subsequence(words, 0..=words.len().min(5)).prop_map(|it| it.join(" "))
        }
        fn one(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
            prop::sample::select(words)
        }
        let any = || some(&["made=7", "deleting", "finalizer=f", "uid=odd", "rv=3"]);
        let set = (
            any(),
            one(&[
                "",
                "on-delete",
                "max-surge=1",
                "max-surge=5%",
                "max-unavailable=0",
                "max-surge=0 max-unavailable=3",
            ]),
            some(&[
                "template=2",
                "min-ready=4",
                "history=0",
                "select=a:b",
                "pod-label=app:z",
                "node-selector=k:v",
                "affinity=k:in:a,b+metadata.name:not-in:n",
                "affinity=k:not-exists",
                "tolerate=*",
                "tolerate=k=:NoSchedule",
                "tolerate=node.kubernetes.io/unreachable:NoExecute@5",
                "host-network",
                "gen=4",
                "observed=0",
                "status=current:1,unavailable:2",
                "collisions=0",
                "template-generation=2",
            ]),
        );
        let node = (
            any(),
            one(&["", "new", "ready", "not-ready since=3", "unknown since=-4"]),
            some(&["label=a:b", "label=c:", "taint=x:NoExecute@9", "taint=y=z:PreferNoSchedule", "cordoned"]),
        );
        let pod = (
            any(),
            one(&[
                "of=s0",
                "of=s1 ns=ops",
                "of=none",
                "of=s0 orphan",
                "of=s1 owner=other",
                "of=none owner=gone",
            ]),
            one(&[
                "",
                "on=n0",
                "on=n1 ready",
                "on=n0 unready since=6",
                "on=n0 starting",
                "on=n1 waiting=CrashLoopBackOff",
                "on=n1 waiting=ErrImagePull",
                "on=n0 failed=Evicted",
                "failed",
                "on=n1 succeeded",
            ]),
            some(&[
                "tolerate=*",
                "label=app:q",
                "label=z:z",
                "tolerate=node.kubernetes.io/not-ready:NoExecute",
            ]),
            some(&["rev=1", "rev=3", "hash=h", "generation-label=2", "unlabel=app", "unlabel=nope"]),
        );
        let rev = (
            any(),
            one(&["of=s0", "of=s1", "of=s0 orphan", "of=s1 owner=other", "of=none", "of=none owner=gone"]),
            some(&["template=1", "template=3", "number=9"]),
            one(&["", "hash=none", "hash=h"]),
        );
        (
            prop::collection::vec(set, 2),
            prop::collection::vec(node, 2),
            prop::collection::vec(pod, 0..4),
            prop::collection::vec(rev, 0..4),
            0i64..10,
        )
            .prop_map(|(sets, nodes, pods, revs, now)| {
                let mut out = format!("now {now}\n");
                for (at, (any, strategy, rest)) in sets.into_iter().enumerate() {
                    let namespace = ["", "ns=ops"][at];
                    out += &format!("set s{at} {namespace} {any} {strategy} {rest}\n")
                        .replace("uid=odd", ["uid=odd", ""][at]);
                }
                for (at, (any, state, rest)) in nodes.into_iter().enumerate() {
                    out += &format!("node n{at} {any} {state} {rest}\n");
                }
                for (at, (any, of, state, rest, daemon)) in pods.into_iter().enumerate() {
                    let daemon = if of.starts_with("of=none") { String::new() } else { daemon };
                    let daemon =
                        if daemon.contains("rev=1 rev=3") { daemon.replace("rev=3", "") } else { daemon };
                    out += &format!("pod p{at} {any} {of} {state} {rest} {daemon}\n");
                }
                for (at, (any, of, rest, hash)) in revs.into_iter().enumerate() {
                    let rest = if rest.contains("template=1 template=3") {
                        rest.replace("template=3", "")
                    } else {
                        rest
                    };
                    out += &format!("rev r{at} {any} {of} {rest} {hash}\n");
                }
                out
            })
    }

    proptest! {
        #[test]
        fn a_world_comes_back_from_its_text(text in scenario()) {
            let world = parse(&text).map_err(|it| TestCaseError::fail(format!("{it}\n{text}")))?;
            let printed = print(&world);
            let again = parse(&printed).map_err(|it| TestCaseError::fail(format!("{it}\n{printed}")))?;
            prop_assert_eq!(print(&again), printed.clone());
            prop_assert!(again == world, "{}\nprinted\n{}", text, printed);
        }

        #[test]
        fn no_text_makes_it_panic(text in "((now|set|node|pod|rev|x) ?[a-z0-9]{0,2}( (of|on|taint|tolerate|affinity|status|made|since|hash|select)=[a-z:=@+,*0-9%]{0,6})*\n){0,4}") {
            if let Ok(world) = parse(&text) {
                let _ = print(&world);
            }
        }
    }
}
