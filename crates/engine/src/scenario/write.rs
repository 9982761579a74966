//! Formats a cluster state as the text of a scenario, one line for each object.
use super::*;

/// Formats a cluster state as the text of a scenario. The names of all objects are aligned in one column.
pub(super) fn print_world(world: &World) -> String {
    let mut rows = Vec::new();
    rows.extend(world.sets.iter().map(|it| print_set(it, world)));
    rows.extend(world.nodes.iter().map(|it| print_node(it, world)));
    rows.extend(world.pods.iter().map(|it| print_pod(it, world)));
    rows.extend(world.revisions.iter().map(|it| print_revision(it, world)));
    let width = rows.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
    let mut out = format!("now  {}\n", world.now);
    for PrintedLine { kind, name, words } in rows {
        out.push_str(format!("{kind:<4} {name:<width$}  {}", words.join(" ")).trim_end());
        out.push('\n');
    }
    out
}

/// One line of the printed scenario, except the line `now`.
struct PrintedLine {
    /// The first word of the line, such as `pod`.
    kind: &'static str,
    name: String,
    /// The keywords with their values, such as `on=n1`.
    words: Vec<String>,
}

impl PrintedLine {
    /// Creates the line of an object, with its name and no keywords.
    fn new(kind: &'static str, object: &Value) -> PrintedLine {
        let name = text_at(object, NAME_POINTER);
        PrintedLine { kind, name: to_one_word(if name.is_empty() { "-" } else { name }), words: Vec::new() }
    }

    /// Adds a keyword without a value if `is_set` is true.
    fn add_flag(&mut self, key: &str, is_set: bool) {
        if is_set {
            self.words.push(key.to_string());
        }
    }

    /// Adds a keyword with its value.
    fn add_word(&mut self, key: &str, value: impl fmt::Display) {
        self.words.push(to_one_word(&format!("{key}={value}")));
    }

    /// Adds a keyword and its value, unless the value is empty or equal to `default`.
    fn add_unless_default(&mut self, default: impl fmt::Display, key: &str, value: impl fmt::Display) {
        let value = value.to_string();
        if !value.is_empty() && value != default.to_string() {
            self.add_word(key, value);
        }
    }

    /// Adds a keyword with the value `NAME:VALUE` for each pair.
    fn add_pairs<'a>(&mut self, key: &str, pairs: impl IntoIterator<Item = (&'a String, &'a Value)>) {
        for (name, value) in pairs {
            self.add_word(key, format_args!("{name}:{}", plain_text(value)));
        }
    }

    /// Adds the keywords that the lines of all kinds of objects may have ([`COMMON_KEYWORDS`]).
    fn with_common_keywords(mut self, kind: LineKind, object: &Value, now: i64) -> PrintedLine {
        self.add_unless_default(0, "made", creation_time_s(object));
        if let Some(at) = parse_timestamp(text_at(object, "/metadata/deletionTimestamp")) {
            match at == now {
                true => self.add_flag("deleting", true),
                false => self.add_word("deleting", at),
            }
        }
        for finalizer in list_at(object, "/metadata/finalizers") {
            self.add_word("finalizer", plain_text(finalizer));
        }
        let namespace = object["metadata"]["namespace"].as_str();
        self.add_unless_default(
            default_uid(kind, namespace, text_at(object, NAME_POINTER)),
            "uid",
            text_at(object, UID_POINTER),
        );
        self.add_unless_default(1, "rv", text_at(object, "/metadata/resourceVersion"));
        self
    }

    /// Adds the keywords for the namespace, the DaemonSet and the owner of a pod or revision. `set` is the DaemonSet to
    /// which the object belongs, `None` if it belongs to none.
    fn add_set_and_owner(&mut self, object: &Value, set: Option<&Value>, world: &World) {
        let namespace = text_at(object, NAMESPACE_POINTER);
        let alike = world
            .sets
            .iter()
            .filter(|it| set.is_some_and(|set| text_at(it, NAME_POINTER) == text_at(set, NAME_POINTER)));
        if alike.count() > 1 {
            self.add_word("ns", namespace);
        } else {
            self.add_unless_default("default", "ns", namespace);
        }
        let owner = controller_reference(object).map(|it| text_at(it, "/uid"));
        match set {
            Some(set) => {
                if world.sets.len() > 1 {
                    self.add_word("of", text_at(set, NAME_POINTER));
                }
                self.add_flag("orphan", owner.is_none());
                self.add_unless_default(text_at(set, UID_POINTER), "owner", owner.unwrap_or_default());
            }
            None => {
                if !world.sets.is_empty() {
                    self.add_word("of", NONE_VALUE);
                }
                self.add_unless_default(NONE_VALUE, "owner", owner.unwrap_or_default());
            }
        }
    }

    /// Adds the keyword `hash=` for the hash label of an object, unless the label has the value `default`. Adds
    /// `hash=none` if the object does not have the label.
    fn add_hash(&mut self, object: &Value, default: &str) {
        let hash = hash_label(object);
        match hash.is_empty() {
            true => self.add_unless_default(default, "hash", NONE_VALUE),
            false => self.add_unless_default(default, "hash", hash),
        }
    }
}

/// Formats a DaemonSet as a line of the scenario.
fn print_set(set: &Value, world: &World) -> PrintedLine {
    let mut row = PrintedLine::new("set", set);
    let number = template_number(set);
    row.add_unless_default("default", "ns", text_at(set, NAMESPACE_POINTER));
    row.add_unless_default(1, "template", number);
    let rolling = &set["spec"]["updateStrategy"]["rollingUpdate"];
    let (surge, unavailable) = (plain_text(&rolling["maxSurge"]), plain_text(&rolling["maxUnavailable"]));
    row.add_flag("on-delete", text_at(set, "/spec/updateStrategy/type") == "OnDelete");
    row.add_unless_default(
        if surge.is_empty() || surge == "0" { 1 } else { 0 },
        "max-unavailable",
        unavailable,
    );
    row.add_unless_default(0, "max-surge", surge);
    row.add_unless_default(0, "min-ready", plain_text(&set["spec"]["minReadySeconds"]));
    row.add_unless_default(10, "history", plain_text(&set["spec"]["revisionHistoryLimit"]));

    let select = fields_at(set, "/spec/selector/matchLabels");
    let plain_select = select.len() == 1 && select.get("app") == Some(&set["metadata"]["name"]);
    row.add_pairs("select", select.iter().filter(|_| !plain_select));
    let labels = fields_at(set, "/spec/template/metadata/labels");
    row.add_pairs("pod-label", labels.iter().filter(|(key, value)| select.get(*key) != Some(value)));

    let spec = &set["spec"]["template"]["spec"];
    row.add_pairs("node-selector", &fields_at(spec, "/nodeSelector"));
    for term in list_at(spec, REQUIRED_TERMS_POINTER) {
        row.add_word("affinity", term_text(term));
    }
    for toleration in list_at(spec, "/tolerations") {
        row.add_word("tolerate", TaintText::of_toleration(toleration));
    }
    row.add_flag("host-network", spec["hostNetwork"] == true);
    row.add_unless_default("", "node-name", plain_text(&spec["nodeName"]));
    let generation = plain_text(&set["metadata"]["generation"]);
    row.add_unless_default(number, "gen", &generation);
    row.add_unless_default(&generation, "observed", plain_text(&set["status"]["observedGeneration"]));
    let counts: Vec<String> = STATUS_COUNTS
        .iter()
        .filter_map(|(name, field)| Some((name, set["status"][field].as_u64().filter(|it| *it != 0)?)))
        .map(|(name, count)| format!("{name}:{count}"))
        .collect();
    row.add_unless_default("", "status", counts.join(","));
    row.add_unless_default("", "collisions", plain_text(&set["status"]["collisionCount"]));
    row.add_unless_default(
        "",
        "template-generation",
        plain_text(&set["metadata"]["annotations"][ANNOTATION_TEMPLATE_GENERATION]),
    );
    row.with_common_keywords(LineKind::Set, set, world.now)
}

/// Formats a node as a line of the scenario.
fn print_node(node: &Value, world: &World) -> PrintedLine {
    let mut row = PrintedLine::new("node", node);
    row.add_pairs("label", &fields_at(node, "/metadata/labels"));
    for taint in list_at(node, "/spec/taints") {
        row.add_word("taint", TaintText::of_taint(taint));
    }
    row.add_flag("cordoned", node["spec"]["unschedulable"] == true);
    match ready_condition(node) {
        None => row.add_flag("new", true),
        Some(ready) => {
            let state = NODE_READY_STATUSES
                .iter()
                .find(|it| it.1 == text_at(ready, "/status"))
                .unwrap_or(&NODE_READY_STATUSES[2]);
            row.add_flag(state.0, state.0 != "ready");
            row.add_unless_default(creation_time_s(node), "since", transition_time_s(ready));
        }
    }
    row.with_common_keywords(LineKind::Node, node, world.now)
}

/// Formats a pod as a line of the scenario.
fn print_pod(pod: &Value, world: &World) -> PrintedLine {
    let mut row = PrintedLine::new("pod", pod);
    let set = set_of(pod, world);
    row.add_set_and_owner(pod, set, world);
    row.add_unless_default("", "on", text_at(pod, "/spec/nodeName"));
    match set {
        None => {
            row.add_pairs("label", &fields_at(pod, "/metadata/labels"));
            for toleration in list_at(pod, "/spec/tolerations") {
                row.add_word("tolerate", TaintText::of_toleration(toleration));
            }
        }
        Some(set) => add_daemon_pod_keywords(&mut row, pod, set, world),
    }

    let waiting = text_at(pod, "/status/containerStatuses/0/state/waiting/reason");
    let ready = ready_condition(pod);
    match text_at(pod, "/status/phase") {
        "Failed" => match text_at(pod, "/status/reason") {
            "" => row.add_flag("failed", true),
            reason => row.add_word("failed", reason),
        },
        "Succeeded" => row.add_flag("succeeded", true),
        "Running" if ready.is_some_and(|it| text_at(it, "/status") == "True") => row.add_flag("ready", true),
        "Running" if waiting.is_empty() => row.add_flag("unready", true),
        _ if !waiting.is_empty() && waiting != STARTING_REASON => row.add_word("waiting", waiting),
        _ => row.add_flag("starting", !text_at(pod, "/spec/nodeName").is_empty()),
    }
    if let Some(ready) = ready {
        row.add_unless_default(creation_time_s(pod), "since", transition_time_s(ready));
    }
    row.with_common_keywords(LineKind::Pod, pod, world.now)
}

/// Adds the keywords for the node, template, labels and tolerations of a pod that belongs to a DaemonSet.
fn add_daemon_pod_keywords(row: &mut PrintedLine, pod: &Value, set: &Value, world: &World) {
    let terms = list_at(&pod["spec"], REQUIRED_TERMS_POINTER);
    let node = terms.first().map_or("", |it| text_at(it, "/matchFields/0/values/0"));
    let pinned = if terms == [manifest::node_name_term(node)] { node } else { "" };
    let direct = text_at(pod, "/spec/schedulerName") == manifest::DIRECT_BINDING_SCHEDULER_NAME;
    row.add_flag("direct", direct);
    if !direct {
        row.add_unless_default(text_at(pod, "/spec/nodeName"), "for", pinned);
    }

    let number = image_name_and_number(pod).map_or_else(|| template_number(set), |it| it.1);
    row.add_unless_default(template_number(set), "rev", number);
    let template = template_of(set, number);
    row.add_hash(pod, &default_hash(set, number, world));
    let labels = fields_at(pod, "/metadata/labels");
    row.add_unless_default(
        "",
        "generation-label",
        labels.get(manifest::TEMPLATE_GENERATION_LABEL).map(plain_text).unwrap_or_default(),
    );
    let expected = fields_at(&template, "/metadata/labels");
    let ours = |key: &str| key == REVISION_HASH_LABEL || key == manifest::TEMPLATE_GENERATION_LABEL;
    row.add_pairs(
        "label",
        labels.iter().filter(|(key, value)| !ours(key) && expected.get(*key) != Some(value)),
    );
    for key in expected.keys().filter(|it| !ours(it) && !labels.contains_key(*it)) {
        row.add_word("unlabel", key);
    }

    // The shortest list that, with the automatic tolerations added, equals the tolerations of the pod.
    let spec = fields_at(&template, "/spec");
    let whole = list_at(pod, "/spec/tolerations");
    let becomes_whole = |own: &[Value]| {
        let mut spec = spec.clone();
        put_field(&mut spec, "tolerations", Some(own.to_vec()));
        manifest::add_automatic_tolerations(&mut spec);
        spec.get("tolerations").and_then(Value::as_array).is_some_and(|it| it == whole)
    };
    if !becomes_whole(list_at(&template, "/spec/tolerations")) {
        let own = (0..=whole.len()).map(|to| &whole[..to]).find(|it| becomes_whole(it)).unwrap_or(whole);
        for toleration in own {
            row.add_word("tolerate", TaintText::of_toleration(toleration));
        }
        if own.is_empty() {
            row.add_word("tolerate", NONE_VALUE);
        }
    }
}

/// Formats a ControllerRevision as a line of the scenario.
fn print_revision(revision: &Value, world: &World) -> PrintedLine {
    let mut row = PrintedLine::new("rev", revision);
    let set = set_of(revision, world);
    row.add_set_and_owner(revision, set, world);
    let default = set.map_or(1, template_number);
    let number = image_name_and_number(revision).map_or(default, |it| it.1);
    row.add_unless_default(default, "template", number);
    row.add_unless_default(number, "number", plain_text(&revision["revision"]));
    let template = set.map_or_else(|| bare_template(NONE_VALUE, number), |set| template_of(set, number));
    row.add_hash(revision, &computed_hash(set, &template));
    row.with_common_keywords(LineKind::Rev, revision, world.now)
}

/// Formats a node selector term as the value of the keyword `affinity=`.
fn term_text(term: &Value) -> String {
    let requirement = |it: &Value| {
        let operator = SELECTOR_OPERATORS
            .iter()
            .find(|pair| pair.1 == text_at(it, "/operator"))
            .unwrap_or(&SELECTOR_OPERATORS[0])
            .0;
        let values: Vec<String> = list_at(it, "/values").iter().map(plain_text).collect();
        let colon = if values.is_empty() { "" } else { ":" };
        format!("{}:{operator}{colon}{}", text_at(it, "/key"), values.join(","))
    };
    let both = list_at(term, "/matchExpressions").iter().chain(list_at(term, "/matchFields"));
    both.map(requirement).collect::<Vec<_>>().join("+")
}
