//! Parses the text of a scenario: splits it into lines, and builds an API object from each line.
use super::*;
use crate::daemonset::manifest::{Binding, Owner};

/// Parses the text of a scenario. Revisions are parsed before pods, because the hash label of a pod may come from a
/// revision.
pub(super) fn parse_world(text: &str) -> Result<World, Error> {
    let lines = read_lines(text)?;
    let of = |kind| lines.iter().filter(move |it| it.kind == kind);
    let mut world = World::default();
    for line in of(LineKind::Now) {
        world.now = line.parse_seconds("now", line.name)?;
    }
    for line in of(LineKind::Set) {
        world.sets.push(parse_set(line, world.now)?);
    }
    for line in of(LineKind::Node) {
        world.nodes.push(parse_node(line, world.now)?);
    }
    for line in of(LineKind::Rev) {
        world.revisions.push(parse_revision(line, &world)?);
    }
    for line in of(LineKind::Pod) {
        world.pods.push(parse_pod(line, &world)?);
    }
    Ok(world)
}

/// One line of a scenario, split into its kind, name and keywords.
struct ScenarioLine<'a> {
    /// Number of the line in the text, counted from one.
    line_number: usize,
    kind: LineKind,
    /// The second word of the line: the name of the object, or the time on a line `now`.
    name: &'a str,
    /// The keywords, each with its value. `None` if the keyword has no value.
    words: Vec<(&'a str, Option<&'a str>)>,
}

/// Splits the text of a scenario into lines and words. Skips comments and empty lines. Returns an error for the first
/// line that the grammar does not allow, or that describes the same object as an earlier line.
fn read_lines(text: &str) -> Result<Vec<ScenarioLine<'_>>, Error> {
    let mut lines: Vec<ScenarioLine<'_>> = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let at = at + 1;
        let wrong = |word: &str, problem: String| Error { line: at, word: word.to_string(), problem };
        let mut parts = raw.split_whitespace().take_while(|it| !it.starts_with('#'));
        let Some(kind_text) = parts.next() else { continue };
        let Some(&(_, kind)) = LINE_KEYWORDS.iter().find(|it| it.0 == kind_text) else {
            return Err(wrong(
                kind_text,
                format!("not a kind of line; allowed: {}", join_names(&LINE_KEYWORDS)),
            ));
        };
        let Some(name) = parts.next() else {
            let wants = if kind == LineKind::Now { "a time, in seconds" } else { "a name" };
            return Err(wrong(kind_text, format!("wants {wants}")));
        };
        let mut line = ScenarioLine { line_number: at, kind, name, words: Vec::new() };
        for part in parts {
            line.add_word(part)?;
        }
        let same = |it: &&ScenarioLine<'_>| {
            it.kind == kind && (kind == LineKind::Now || it.namespace_and_name() == line.namespace_and_name())
        };
        if let Some(first) = lines.iter().find(same) {
            return Err(wrong(name, format!("given twice; first on line {}", first.line_number)));
        }
        lines.push(line);
    }
    Ok(lines)
}

impl<'a> ScenarioLine<'a> {
    /// Adds a word to the line. Returns an error if the grammar does not allow the word there.
    fn add_word(&mut self, part: &'a str) -> Result<(), Error> {
        let (key, value) = match part.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (part, None),
        };
        let own = match self.kind {
            LineKind::Now => &[],
            LineKind::Set => SET_KEYWORDS,
            LineKind::Node => NODE_KEYWORDS,
            LineKind::Pod => POD_KEYWORDS,
            LineKind::Rev => REVISION_KEYWORDS,
        };
        let any = if self.kind == LineKind::Now { &[] } else { COMMON_KEYWORDS };
        let Some(&(key, takes)) = own.iter().chain(any).find(|it| it.0 == key) else {
            let allowed = match self.kind {
                LineKind::Now => "nothing more".to_string(),
                _ => format!("{}, {}", join_names(own), join_names(any)),
            };
            return Err(self.error_at(part, format!("not a word of this line; allowed: {allowed}")));
        };
        match (takes, value) {
            (Nothing, Some(_)) => return Err(self.error_at(part, format!("`{key}` has no value"))),
            (One | Many, None | Some("")) | (Maybe, Some("")) => {
                return Err(self.error_at(part, format!("wants a value: `{key}=…`")));
            }
            _ => {}
        }
        if takes != Many && self.has(key) {
            return Err(self.error_at(part, "given twice".to_string()));
        }
        for group in EXCLUSIVE_KEYWORDS.iter().filter(|it| it.contains(&key)) {
            if let Some(other) = group.iter().find(|it| **it != key && self.has(it)) {
                let allowed = group.join(", ");
                return Err(
                    self.error_at(part, format!("contradicts `{other}`; allowed is one of: {allowed}"))
                );
            }
        }
        self.words.push((key, value));
        Ok(())
    }

    /// Creates an error about a word of this line.
    fn error_at(&self, word: &str, problem: impl Into<String>) -> Error {
        Error { line: self.line_number, word: word.to_string(), problem: problem.into() }
    }

    /// Creates an error about the value of a keyword. `wants` describes a valid value.
    fn value_error(&self, key: &str, value: &str, wants: &str) -> Error {
        let word = if self.kind == LineKind::Now { value.to_string() } else { format!("{key}={value}") };
        self.error_at(&word, format!("wants {wants}"))
    }

    /// Whether the line has the keyword.
    fn has(&self, key: &str) -> bool {
        self.words.iter().any(|it| it.0 == key)
    }

    /// Returns the value of a keyword. `None` if the line does not have it, or has it without a value.
    fn value(&self, key: &str) -> Option<&'a str> {
        self.words.iter().find(|it| it.0 == key).and_then(|it| it.1)
    }

    /// Returns all values of a keyword that may occur several times.
    fn values(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.words.iter().filter(move |it| it.0 == key).filter_map(|it| it.1)
    }

    /// Returns the value of a keyword as a whole number. `None` if the line does not have the keyword.
    fn number(&self, key: &str) -> Result<Option<i64>, Error> {
        self.value(key).map(|text| self.parse_number(key, text)).transpose()
    }

    /// Parses `text`, the value of a keyword, as a whole number.
    fn parse_number(&self, key: &str, text: &str) -> Result<i64, Error> {
        text.parse().map_err(|_| self.value_error(key, text, "a whole number"))
    }

    /// Returns the value of a keyword as a time in seconds since [`EPOCH_S`]. `None` if the line does not have the
    /// keyword.
    fn seconds(&self, key: &str) -> Result<Option<i64>, Error> {
        self.value(key).map(|text| self.parse_seconds(key, text)).transpose()
    }

    /// Parses `text`, the value of a keyword, as a time in seconds since [`EPOCH_S`].
    fn parse_seconds(&self, key: &str, text: &str) -> Result<i64, Error> {
        let wrong = || self.value_error(key, text, "a time, in seconds");
        let second: i64 = text.parse().map_err(|_| wrong())?;
        Timestamp::from_second(EPOCH_S.saturating_add(second)).map_err(|_| wrong())?;
        Ok(second)
    }

    /// Returns the value of a keyword as a number or a percentage such as `25%`. `None` if the line does not have the
    /// keyword.
    fn number_or_percentage(&self, key: &str) -> Result<Option<Value>, Error> {
        let Some(text) = self.value(key) else { return Ok(None) };
        let digits = text.strip_suffix('%').unwrap_or(text);
        let number: u32 =
            digits.parse().map_err(|_| self.value_error(key, text, "a number, or a share such as 25%"))?;
        Ok(Some(if digits == text { number.into() } else { format!("{number}%").into() }))
    }

    /// Returns the values `KEY:VALUE` of a keyword that may occur several times, as one JSON object.
    fn pairs(&self, key: &str) -> Result<Map<String, Value>, Error> {
        let pair = |text: &'a str| match text.split_once(':') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.into())),
            _ => Err(self.value_error(key, text, "KEY:VALUE")),
        };
        self.values(key).map(pair).collect()
    }

    /// Parses the `taint=` words of the line into taint objects.
    fn taints(&self) -> Result<Vec<Value>, Error> {
        let taint = |text| {
            let wrong = |wants| self.value_error("taint", text, wants);
            let mark = TaintText::parse(text).ok_or_else(|| wrong(TaintText::FORMAT))?;
            let mut taint = Map::new();
            taint.insert("key".to_string(), mark.key.into());
            put_field(&mut taint, "value", mark.value);
            let effect = mark.effect.ok_or_else(|| wrong(TaintText::FORMAT))?;
            taint.insert("effect".to_string(), effect.into());
            put_field(&mut taint, "timeAdded", mark.at.map(to_timestamp));
            Ok(taint.into())
        };
        self.values("taint").map(taint).collect()
    }

    /// Parses the `tolerate=` words of the line into toleration objects. Skips the word `tolerate=none`.
    fn tolerations(&self) -> Result<Vec<Value>, Error> {
        let toleration = |text| {
            let mark = TaintText::parse(text)
                .ok_or_else(|| self.value_error("tolerate", text, TaintText::FORMAT))?;
            let mut toleration = Map::new();
            put_field(&mut toleration, "key", Some(mark.key).filter(|it| *it != "*"));
            let operator = if mark.value.is_some() { "Equal" } else { "Exists" };
            toleration.insert("operator".to_string(), operator.into());
            put_field(&mut toleration, "value", mark.value);
            put_field(&mut toleration, "effect", mark.effect);
            put_field(&mut toleration, "tolerationSeconds", mark.at);
            Ok(toleration.into())
        };
        self.values("tolerate").filter(|it| *it != NONE_VALUE).map(toleration).collect()
    }

    /// Parses the `affinity=` words of the line into terms of required node affinity.
    fn affinity_terms(&self) -> Result<Vec<Value>, Error> {
        self.values("affinity").map(|text| self.affinity_term(text)).collect()
    }

    /// Parses the value of one `affinity=` word into a term of required node affinity.
    fn affinity_term(&self, text: &str) -> Result<Value, Error> {
        let mut term = Map::new();
        for part in text.split('+') {
            let mut pieces = part.splitn(3, ':');
            let key = pieces.next().unwrap_or_default();
            let operator = pieces.next().and_then(|it| SELECTOR_OPERATORS.iter().find(|pair| pair.0 == it));
            let (Some((_, operator)), false) = (operator, key.is_empty()) else {
                let wants =
                    format!("KEY:OPERATOR:V,V with operator one of: {}", join_names(&SELECTOR_OPERATORS));
                return Err(self.value_error("affinity", text, &wants));
            };
            let mut requirement = Map::new();
            requirement.insert("key".to_string(), key.into());
            requirement.insert("operator".to_string(), (*operator).into());
            put_field(&mut requirement, "values", pieces.next().map(|it| it.split(',').collect::<Vec<_>>()));
            let list = if key == "metadata.name" { "matchFields" } else { "matchExpressions" };
            if let Value::Array(items) = term.entry(list).or_insert(json!([])) {
                items.push(requirement.into());
            }
        }
        Ok(term.into())
    }

    /// Returns the DaemonSet to which the pod or revision on this line belongs: the one with the name in `of=` and the
    /// namespace in `ns=`. Without these keywords, any name and any namespace match. `None` if the line has `of=none`,
    /// or if it has no `of=` and no DaemonSet matches. Returns an error if no DaemonSet has the name in `of=`, or if
    /// several DaemonSets match.
    fn find_set<'w>(&self, world: &'w World) -> Result<Option<&'w Value>, Error> {
        let here = |set: &&Value| self.value("ns").is_none_or(|ns| text_at(set, NAMESPACE_POINTER) == ns);
        let named = |set: &&Value| self.value("of").is_none_or(|name| text_at(set, NAME_POINTER) == name);
        let found: Vec<&Value> = world.sets.iter().filter(here).filter(named).collect();
        match (self.value("of"), &found[..]) {
            (Some(NONE_VALUE), _) | (None, []) => Ok(None),
            (_, [set]) => Ok(Some(set)),
            (of, _) => {
                let word = of.map_or_else(|| self.name.to_string(), |it| format!("of={it}"));
                let mut allowed = alloc::vec!["of=none".to_string()];
                let sets = world.sets.iter();
                allowed.extend(sets.map(|it| {
                    format!("of={} ns={}", text_at(it, NAME_POINTER), text_at(it, NAMESPACE_POINTER))
                }));
                Err(self.error_at(&word, format!("of which set? allowed: {}", allowed.join(", "))))
            }
        }
    }

    /// Returns the namespace and name of the object on this line. The namespace is `default` if the line has no `ns=`.
    fn namespace_and_name(&self) -> (&'a str, &'a str) {
        (self.value("ns").unwrap_or("default"), self.name)
    }

    /// Builds the metadata of the object from the name on the line and the [`COMMON_KEYWORDS`]. If the line has the
    /// keyword `deleting` without a time, the `deletionTimestamp` is `now`.
    fn metadata(&self, namespace: Option<&str>, now: i64) -> Result<Map<String, Value>, Error> {
        let mut metadata = Map::new();
        metadata.insert("name".to_string(), self.name.into());
        put_field(&mut metadata, "namespace", namespace);
        let uid = self
            .value("uid")
            .map_or_else(|| default_uid(self.kind, namespace, self.name), ToString::to_string);
        metadata.insert("uid".to_string(), uid.into());
        metadata.insert("resourceVersion".to_string(), self.value("rv").unwrap_or("1").into());
        let made = self.seconds("made")?.unwrap_or(0);
        metadata.insert("creationTimestamp".to_string(), to_timestamp(made).into());
        if self.has("deleting") {
            metadata.insert(
                "deletionTimestamp".to_string(),
                to_timestamp(self.seconds("deleting")?.unwrap_or(now)).into(),
            );
            let grace_s = if self.kind == LineKind::Pod { 30 } else { 0 };
            metadata.insert("deletionGracePeriodSeconds".to_string(), grace_s.into());
        }
        let finalizers: Vec<&str> = self.values("finalizer").collect();
        put_field(&mut metadata, "finalizers", Some(finalizers).filter(|it| !it.is_empty()));
        Ok(metadata)
    }
}

/// Builds a DaemonSet from its line.
fn parse_set(line: &ScenarioLine<'_>, now: i64) -> Result<Value, Error> {
    let mut select = line.pairs("select")?;
    if select.is_empty() {
        select.insert("app".to_string(), line.name.into());
    }
    let mut labels = select.clone();
    labels.extend(line.pairs("pod-label")?);
    let number = line.number("template")?.unwrap_or(1);
    let mut template = bare_template(line.name, number);
    if let Some(spec) = object_mut(&mut template, "/spec") {
        put_field(spec, "hostNetwork", line.has("host-network").then_some(true));
        put_field(spec, "nodeName", line.value("node-name"));
        put_field(spec, "nodeSelector", Some(line.pairs("node-selector")?).filter(|it| !it.is_empty()));
        put_field(spec, "tolerations", Some(line.tolerations()?).filter(|it| !it.is_empty()));
        let required = |terms| {
            json!({"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
        };
        put_field(spec, "affinity", Some(line.affinity_terms()?).filter(|it| !it.is_empty()).map(required));
    }
    put_field_at(&mut template, "/metadata", "labels", labels);

    let surge = line.number_or_percentage("max-surge")?.unwrap_or(json!(0));
    let unavailable =
        line.number_or_percentage("max-unavailable")?.unwrap_or(json!(if surge == 0 { 1 } else { 0 }));
    let strategy = match line.has("on-delete") {
        true => json!({"type": "OnDelete"}),
        false => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}})
        }
    };

    let mut metadata = line.metadata(Some(line.namespace_and_name().0), now)?;
    let generation = line.number("gen")?.unwrap_or(number);
    metadata.insert("generation".to_string(), generation.into());
    if let Some(generation) = line.number("template-generation")? {
        let annotations = json!({ANNOTATION_TEMPLATE_GENERATION: generation.to_string()});
        metadata.insert("annotations".to_string(), annotations);
    }

    let mut status = Map::new();
    status.insert("observedGeneration".to_string(), line.number("observed")?.unwrap_or(generation).into());
    put_field(&mut status, "collisionCount", line.number("collisions")?);
    status.extend(STATUS_COUNTS.iter().map(|it| (it.1.to_string(), 0.into())));
    for part in line.value("status").into_iter().flat_map(|it| it.split(',')) {
        let count = part.split_once(':').and_then(|(name, count)| {
            let (_, field) = STATUS_COUNTS.iter().find(|it| it.0 == name)?;
            Some((field.to_string(), Value::from(count.parse::<u32>().ok()?)))
        });
        let Some((field, count)) = count else {
            let wants = format!("NAME:COUNT,… with names of: {}", join_names(&STATUS_COUNTS));
            return Err(line.value_error("status", part, &wants));
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

/// Builds a node from its line.
fn parse_node(line: &ScenarioLine<'_>, now: i64) -> Result<Value, Error> {
    let mut metadata = line.metadata(None, now)?;
    metadata.insert("labels".to_string(), line.pairs("label")?.into());
    let mut spec = Map::new();
    put_field(&mut spec, "unschedulable", line.has("cordoned").then_some(true));
    put_field(&mut spec, "taints", Some(line.taints()?).filter(|it| !it.is_empty()));
    let since = to_timestamp(line.seconds("since")?.or(line.seconds("made")?).unwrap_or(0));
    let ready = NODE_READY_STATUSES.iter().find(|it| line.has(it.0)).unwrap_or(&NODE_READY_STATUSES[0]).1;
    let conditions = match line.has("new") {
        true => json!([]),
        false => {
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": since}])
        }
    };
    if line.has("new") && line.has("since") {
        return Err(line.error_at("since", "a new node has no condition that could have a time"));
    }
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }))
}

/// Builds a ControllerRevision from its line.
fn parse_revision(line: &ScenarioLine<'_>, world: &World) -> Result<Value, Error> {
    let set = line.find_set(world)?;
    let number = line.number("template")?.unwrap_or_else(|| set.map_or(1, template_number));
    let template = set.map_or_else(|| bare_template(NONE_VALUE, number), |set| template_of(set, number));
    let hash = match line.value("hash") {
        Some(hash) => hash.to_string(),
        None => computed_hash(set, &template),
    };
    let owner = owner_of(line, set);
    let annotations = set.map_or(&Value::Null, |it| &it["metadata"]["annotations"]);
    let revision = line.number("number")?.unwrap_or(number);
    let mut made = manifest::controller_revision(owner, annotations, &template, &hash, revision);
    add_metadata(&mut made, line, set, world)?;
    if hash == NONE_VALUE
        && let Some(labels) = object_mut(&mut made, "/metadata/labels")
    {
        labels.remove(REVISION_HASH_LABEL);
    }
    Ok(made)
}

/// Builds a pod from its line.
fn parse_pod(line: &ScenarioLine<'_>, world: &World) -> Result<Value, Error> {
    let set = line.find_set(world)?;
    let mut pod = match set {
        Some(set) => daemon_pod(line, set, world)?,
        None => unmanaged_pod(line)?,
    };
    add_metadata(&mut pod, line, set, world)?;
    put_field_at(&mut pod, "/metadata", "generation", 1);
    if let Some(labels) = object_mut(&mut pod, "/metadata/labels") {
        labels.extend(line.pairs("label")?);
        line.values("unlabel").for_each(|key| drop(labels.remove(key)));
    }

    let bound = pod["spec"]["nodeName"].is_string();
    if !bound && let Some(word) = BOUND_POD_KEYWORDS.iter().find(|it| line.has(it)) {
        return Err(line.error_at(word, "wants a node: say on="));
    }
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let made = line.seconds("made")?.unwrap_or(0);
    let since = to_timestamp(line.seconds("since")?.unwrap_or(made));
    let (phase, container) = match (line.value("waiting"), line.value("failed")) {
        // A pod whose container crashed has been running. With any other waiting reason, it has not.
        (Some(CRASHED_REASON), _) => ("Running", waiting(CRASHED_REASON)),
        (Some(reason), _) => ("Pending", waiting(reason)),
        _ if line.has("ready") || line.has("unready") => {
            ("Running", json!({"running": {"startedAt": since}}))
        }
        _ if line.has("failed") => ("Failed", json!({"terminated": {"exitCode": 1, "finishedAt": since}})),
        _ if line.has("succeeded") => {
            ("Succeeded", json!({"terminated": {"exitCode": 0, "finishedAt": since}}))
        }
        _ => ("Pending", waiting(STARTING_REASON)),
    };
    let mut status = Map::new();
    status.insert("phase".to_string(), phase.into());
    put_field(&mut status, "reason", line.value("failed"));
    if bound {
        let ready = if line.has("ready") { "True" } else { "False" };
        let image = pod["spec"]["containers"][0]["image"].clone();
        let name = pod["spec"]["containers"][0]["name"].clone();
        status.insert("startTime".to_string(), to_timestamp(made).into());
        status.insert(
            "conditions".to_string(),
            json!([
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": to_timestamp(made)},
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

/// Builds the pod on this line as the DaemonSet controller would create it, unless a keyword says otherwise. `on=` names
/// the node to which the pod is bound. `for=` names the node for which the pod was created, to which its node affinity
/// pins it; by default, this is the node of `on=`. With neither, the pod has the node affinity of the template.
fn daemon_pod(line: &ScenarioLine<'_>, set: &Value, world: &World) -> Result<Value, Error> {
    let number = line.number("rev")?.unwrap_or_else(|| template_number(set));
    let mut template = template_of(set, number);
    if line.has("tolerate") {
        put_field_at(&mut template, "/spec", "tolerations", line.tolerations()?);
    }
    let hash = match line.value("hash") {
        Some(NONE_VALUE) => String::new(),
        Some(hash) => hash.to_string(),
        None => default_hash(set, number, world),
    };
    if line.has("direct") && !line.has("on") {
        return Err(line.error_at("direct", "wants a node: say on="));
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
        put_field(spec, "nodeName", line.value("on"));
        if node.is_none() {
            spec.remove("affinity");
            put_field(spec, "affinity", template["spec"].get("affinity").cloned());
        }
    }
    Ok(pod)
}

/// Builds the pod on this line, which belongs to no DaemonSet. Returns an error if the line has a keyword that only
/// pods of DaemonSets may have.
fn unmanaged_pod(line: &ScenarioLine<'_>) -> Result<Value, Error> {
    if let Some(word) = DAEMON_POD_KEYWORDS.iter().find(|it| line.has(it)) {
        return Err(line.error_at(word, "wants a set: say of="));
    }
    let mut spec = Map::new();
    spec.insert("containers".to_string(), containers_json(NONE_VALUE, 1));
    put_field(&mut spec, "nodeName", line.value("on"));
    put_field(&mut spec, "tolerations", Some(line.tolerations()?).filter(|it| !it.is_empty()));
    let mut pod = manifest::daemon_pod(owner_of(line, None), &json!({}), "", "", None, Binding::Direct);
    if let Some(pod) = object_mut(&mut pod, "") {
        pod.insert("spec".to_string(), spec.into());
    }
    Ok(pod)
}

/// Adds the metadata of a line to a pod or revision. Removes its owner reference in two cases: the object belongs to a
/// DaemonSet and the line has `orphan`, or the object belongs to no DaemonSet and the line has no `owner=`. `set` is
/// the DaemonSet to which the object belongs, `None` if it belongs to none.
fn add_metadata(
    made: &mut Value,
    line: &ScenarioLine<'_>,
    set: Option<&Value>,
    world: &World,
) -> Result<(), Error> {
    let namespace = set.map_or(line.namespace_and_name().0, |it| text_at(it, NAMESPACE_POINTER));
    let own = line.metadata(Some(namespace), world.now)?;
    if let Some(metadata) = object_mut(made, "/metadata") {
        metadata.extend(own);
        let owned = if set.is_some() { !line.has("orphan") } else { line.has("owner") };
        if !owned {
            metadata.remove("ownerReferences");
        }
    }
    Ok(())
}

/// Returns the owner for the owner reference of a pod or revision: its DaemonSet, with the UID of `owner=` if the line
/// has this keyword. If the object belongs to no DaemonSet, namespace and name are `none`, and so is the UID if the
/// line has no `owner=`.
fn owner_of<'a>(line: &ScenarioLine<'a>, set: Option<&'a Value>) -> Owner<'a> {
    let of_set = |at| set.map_or(NONE_VALUE, |it| text_at(it, at));
    Owner {
        namespace: of_set(NAMESPACE_POINTER),
        name: of_set(NAME_POINTER),
        uid: line.value("owner").unwrap_or(of_set(UID_POINTER)),
    }
}
