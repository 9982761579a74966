//! The printer: objects to lines.
use super::*;

pub(super) fn world(world: &World) -> String {
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

    fn flag(&mut self, key: &str, is_set: bool) {
        if is_set {
            self.words.push(key.to_string());
        }
    }

    fn add(&mut self, key: &str, value: impl fmt::Display) {
        self.words.push(one_word(&format!("{key}={value}")));
    }

    /// Adds a keyword and its value, unless the value is the default.
    fn add_unless_default(&mut self, default: impl fmt::Display, key: &str, value: impl fmt::Display) {
        let value = value.to_string();
        if !value.is_empty() && value != default.to_string() {
            self.add(key, value);
        }
    }

    fn pairs<'a>(&mut self, key: &str, pairs: impl IntoIterator<Item = (&'a String, &'a Value)>) {
        for (name, value) in pairs {
            self.add(key, format_args!("{name}:{}", plain(value)));
        }
    }

    fn common(mut self, kind: LineKind, object: &Value, now: i64) -> Row {
        self.add_unless_default(0, "made", made(object));
        if let Some(at) = second(text(object, "/metadata/deletionTimestamp")) {
            match at == now {
                true => self.flag("deleting", true),
                false => self.add("deleting", at),
            }
        }
        for finalizer in list(object, "/metadata/finalizers") {
            self.add("finalizer", plain(finalizer));
        }
        let namespace = object["metadata"]["namespace"].as_str();
        self.add_unless_default(default_uid(kind, namespace, text(object, NAME)), "uid", text(object, UID));
        self.add_unless_default(1, "rv", text(object, "/metadata/resourceVersion"));
        self
    }

    /// Adds the keywords for the namespace, the DaemonSet and the owner of an object.
    fn add_set_and_owner(&mut self, object: &Value, set: Option<&Value>, world: &World) {
        let namespace = text(object, NAMESPACE);
        let alike = world.sets.iter().filter(|it| set.is_some_and(|set| text(it, NAME) == text(set, NAME)));
        if alike.count() > 1 {
            self.add("ns", namespace);
        } else {
            self.add_unless_default("default", "ns", namespace);
        }
        let owner = controller(object).map(|it| text(it, "/uid"));
        match set {
            Some(set) => {
                if world.sets.len() > 1 {
                    self.add("of", text(set, NAME));
                }
                self.flag("orphan", owner.is_none());
                self.add_unless_default(text(set, UID), "owner", owner.unwrap_or_default());
            }
            None => {
                if !world.sets.is_empty() {
                    self.add("of", NONE);
                }
                self.add_unless_default(NONE, "owner", owner.unwrap_or_default());
            }
        }
    }

    /// Adds the keyword for the hash label, unless it has the default value.
    fn hash(&mut self, object: &Value, default: &str) {
        let hash = hash_label(object);
        match hash.is_empty() {
            true => self.add_unless_default(default, "hash", NONE),
            false => self.add_unless_default(default, "hash", hash),
        }
    }
}

fn print_set(set: &Value, world: &World) -> Row {
    let mut row = Row::new("set", set);
    let number = template_number(set);
    row.add_unless_default("default", "ns", text(set, NAMESPACE));
    row.add_unless_default(1, "template", number);
    let rolling = &set["spec"]["updateStrategy"]["rollingUpdate"];
    let (surge, unavailable) = (plain(&rolling["maxSurge"]), plain(&rolling["maxUnavailable"]));
    row.flag("on-delete", text(set, "/spec/updateStrategy/type") == "OnDelete");
    row.add_unless_default(
        if surge.is_empty() || surge == "0" { 1 } else { 0 },
        "max-unavailable",
        unavailable,
    );
    row.add_unless_default(0, "max-surge", surge);
    row.add_unless_default(0, "min-ready", plain(&set["spec"]["minReadySeconds"]));
    row.add_unless_default(10, "history", plain(&set["spec"]["revisionHistoryLimit"]));

    let select = fields(set, "/spec/selector/matchLabels");
    let plain_select = select.len() == 1 && select.get("app") == Some(&set["metadata"]["name"]);
    row.pairs("select", select.iter().filter(|_| !plain_select));
    let labels = fields(set, "/spec/template/metadata/labels");
    row.pairs("pod-label", labels.iter().filter(|(key, value)| select.get(*key) != Some(value)));

    let spec = &set["spec"]["template"]["spec"];
    row.pairs("node-selector", &fields(spec, "/nodeSelector"));
    for term in list(spec, REQUIRED_TERMS) {
        row.add("affinity", term_text(term));
    }
    for toleration in list(spec, "/tolerations") {
        row.add("tolerate", TaintText::of_toleration(toleration));
    }
    row.flag("host-network", spec["hostNetwork"] == true);
    row.add_unless_default("", "node-name", plain(&spec["nodeName"]));
    let generation = plain(&set["metadata"]["generation"]);
    row.add_unless_default(number, "gen", &generation);
    row.add_unless_default(&generation, "observed", plain(&set["status"]["observedGeneration"]));
    let counts: Vec<String> = COUNTS
        .iter()
        .filter_map(|(name, field)| Some((name, set["status"][field].as_u64().filter(|it| *it != 0)?)))
        .map(|(name, count)| format!("{name}:{count}"))
        .collect();
    row.add_unless_default("", "status", counts.join(","));
    row.add_unless_default("", "collisions", plain(&set["status"]["collisionCount"]));
    row.add_unless_default(
        "",
        "template-generation",
        plain(&set["metadata"]["annotations"][TEMPLATE_GENERATION]),
    );
    row.common(LineKind::Set, set, world.now)
}

fn print_node(node: &Value, world: &World) -> Row {
    let mut row = Row::new("node", node);
    row.pairs("label", &fields(node, "/metadata/labels"));
    for taint in list(node, "/spec/taints") {
        row.add("taint", TaintText::of_taint(taint));
    }
    row.flag("cordoned", node["spec"]["unschedulable"] == true);
    match ready_condition(node) {
        None => row.flag("new", true),
        Some(ready) => {
            let state =
                NODE_STATES.iter().find(|it| it.1 == text(ready, "/status")).unwrap_or(&NODE_STATES[2]);
            row.flag(state.0, state.0 != "ready");
            row.add_unless_default(made(node), "since", since(ready));
        }
    }
    row.common(LineKind::Node, node, world.now)
}

fn print_pod(pod: &Value, world: &World) -> Row {
    let mut row = Row::new("pod", pod);
    let set = set_of(pod, world);
    row.add_set_and_owner(pod, set, world);
    row.add_unless_default("", "on", text(pod, "/spec/nodeName"));
    match set {
        None => {
            row.pairs("label", &fields(pod, "/metadata/labels"));
            for toleration in list(pod, "/spec/tolerations") {
                row.add("tolerate", TaintText::of_toleration(toleration));
            }
        }
        Some(set) => print_daemon_words(&mut row, pod, set, world),
    }

    let waiting = text(pod, "/status/containerStatuses/0/state/waiting/reason");
    let ready = ready_condition(pod);
    match text(pod, "/status/phase") {
        "Failed" => match text(pod, "/status/reason") {
            "" => row.flag("failed", true),
            reason => row.add("failed", reason),
        },
        "Succeeded" => row.flag("succeeded", true),
        "Running" if ready.is_some_and(|it| text(it, "/status") == "True") => row.flag("ready", true),
        "Running" if waiting.is_empty() => row.flag("unready", true),
        _ if !waiting.is_empty() && waiting != STARTING => row.add("waiting", waiting),
        _ => row.flag("starting", !text(pod, "/spec/nodeName").is_empty()),
    }
    if let Some(ready) = ready {
        row.add_unless_default(made(pod), "since", since(ready));
    }
    row.common(LineKind::Pod, pod, world.now)
}

fn print_daemon_words(row: &mut Row, pod: &Value, set: &Value, world: &World) {
    let terms = list(&pod["spec"], REQUIRED_TERMS);
    let node = terms.first().map_or("", |it| text(it, "/matchFields/0/values/0"));
    let pinned = if terms == [manifest::node_name_term(node)] { node } else { "" };
    let direct = text(pod, "/spec/schedulerName") == manifest::DIRECT_SCHEDULER;
    row.flag("direct", direct);
    if !direct {
        row.add_unless_default(text(pod, "/spec/nodeName"), "for", pinned);
    }

    let number = image(pod).map_or_else(|| template_number(set), |it| it.1);
    row.add_unless_default(template_number(set), "rev", number);
    let template = template_of(set, number);
    row.hash(pod, &default_hash(set, number, world));
    let labels = fields(pod, "/metadata/labels");
    row.add_unless_default(
        "",
        "generation-label",
        labels.get(manifest::GENERATION_LABEL).map(plain).unwrap_or_default(),
    );
    let expected = fields(&template, "/metadata/labels");
    let ours = |key: &str| key == HASH_LABEL || key == manifest::GENERATION_LABEL;
    row.pairs("label", labels.iter().filter(|(key, value)| !ours(key) && expected.get(*key) != Some(value)));
    for key in expected.keys().filter(|it| !ours(it) && !labels.contains_key(*it)) {
        row.add("unlabel", key);
    }

    // The shortest list that becomes the pod's once the automatic ones are added.
    let spec = fields(&template, "/spec");
    let whole = list(pod, "/spec/tolerations");
    let becomes_whole = |own: &[Value]| {
        let mut spec = spec.clone();
        put(&mut spec, "tolerations", Some(own.to_vec()));
        manifest::add_automatic_tolerations(&mut spec);
        spec.get("tolerations").and_then(Value::as_array).is_some_and(|it| it == whole)
    };
    if !becomes_whole(list(&template, "/spec/tolerations")) {
        let own = (0..=whole.len()).map(|to| &whole[..to]).find(|it| becomes_whole(it)).unwrap_or(whole);
        for toleration in own {
            row.add("tolerate", TaintText::of_toleration(toleration));
        }
        if own.is_empty() {
            row.add("tolerate", NONE);
        }
    }
}

fn print_revision(revision: &Value, world: &World) -> Row {
    let mut row = Row::new("rev", revision);
    let set = set_of(revision, world);
    row.add_set_and_owner(revision, set, world);
    let default = set.map_or(1, template_number);
    let number = image(revision).map_or(default, |it| it.1);
    row.add_unless_default(default, "template", number);
    row.add_unless_default(number, "number", plain(&revision["revision"]));
    let template = set.map_or_else(|| bare_template(NONE, number), |set| template_of(set, number));
    row.hash(revision, &computed_hash(set, &template));
    row.common(LineKind::Rev, revision, world.now)
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
