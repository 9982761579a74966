//! What the server makes of an object before it is stored: defaults, and what it will not take.

#[allow(dead_code, reason = "the rest of the checks comes next")]
mod cause;
#[allow(dead_code, reason = "the rest of the checks comes next")]
mod labels;
pub(crate) mod metadata;
#[allow(dead_code, reason = "the rest of the checks comes next")]
pub(crate) mod names;
#[allow(dead_code, reason = "the rest of the checks comes next")]
pub(crate) mod quantity;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use serde_json::{Value, json};

pub(crate) use self::cause::Cause;
use self::cause::Causes;
pub(crate) use self::labels::selects;
use crate::kinds::Kind;
use crate::object::{is_set, list, map_mut, str_at};
use crate::route::Part;

/// All that is wrong with an object that would be stored, given the one that stands.
pub(crate) fn check(kind: &Kind, new: &Value, old: Option<&Value>, _: Part) -> Vec<Cause> {
    let mut out = Causes::default();
    match old {
        None => metadata::check_new(new, kind.name, kind.namespaced, &mut out),
        Some(old) => metadata::check_change(new, old, &mut out),
    }
    let mut causes = out.into_inner();
    causes.extend((kind.check)(new, old));
    causes
}

pub(crate) fn no_defaults(_: &mut Value) {}

pub(crate) fn no_checks(_: &Value, _: Option<&Value>) -> Vec<Cause> {
    Vec::new()
}

/// Selectors of other objects choose namespaces by this label.
pub(crate) fn default_namespace(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    map_mut(&mut namespace["metadata"], "labels").insert("kubernetes.io/metadata.name".into(), name);
}

pub(crate) fn default_secret(secret: &mut Value) {
    set_default(secret, "type", json!("Opaque"));
    // `stringData` is a way to write `data`, and is never read back.
    let Some(Value::Object(plain)) = secret.as_object_mut().and_then(|it| it.remove("stringData")) else {
        return;
    };
    let data = map_mut(secret, "data");
    for (name, value) in plain {
        data.insert(name, json!(BASE64.encode(value.as_str().unwrap_or_default())));
    }
}

pub(crate) fn default_pod(pod: &mut Value) {
    with(pod, "spec", |spec| {
        default_pod_spec(spec);
        // Only pods get this one, and not templates: it came late, and must not change templates that stand.
        set_default(spec, "enableServiceLinks", json!(true));
    });
}

pub(crate) fn check_pod(pod: &Value, _: Option<&Value>) -> Vec<Cause> {
    check_pod_spec(&pod["spec"], "spec")
}

pub(crate) fn default_daemonset(set: &mut Value) {
    with(set, "spec", |spec| {
        set_default(spec, "revisionHistoryLimit", json!(10));
        set_default(spec, "updateStrategy", json!({}));
        with(spec, "updateStrategy", |strategy| {
            set_default(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                set_default(strategy, "rollingUpdate", json!({}));
                with(strategy, "rollingUpdate", |rolling| {
                    set_default(rolling, "maxUnavailable", json!(1));
                    set_default(rolling, "maxSurge", json!(0));
                });
            }
        });
        with(spec, "template.spec", default_pod_spec);
    });
}

pub(crate) fn check_daemonset(set: &Value, before: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &set["spec"];
    let (selector, labels) = (&spec["selector"], &spec["template"]["metadata"]["labels"]);
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else if !is_set(&selector["matchLabels"]) && !is_set(&selector["matchExpressions"]) {
        let why = "empty selector is invalid for daemonset";
        causes.push(Cause::invalid("spec.selector", selector, why));
    } else if !selects(selector, labels) {
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, why));
    }
    if before.is_some_and(|before| before["spec"]["selector"] != *selector) {
        causes.push(Cause::invalid("spec.selector", selector, "field is immutable"));
    }
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy != "Always" {
        causes.push(Cause::unsupported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    let strategy = &spec["updateStrategy"]["type"];
    if strategy != "RollingUpdate" && strategy != "OnDelete" {
        let supported = ["OnDelete", "RollingUpdate"];
        causes.push(Cause::unsupported("spec.updateStrategy.type", strategy, &supported));
    }
    causes.extend(check_pod_spec(&spec["template"]["spec"], "spec.template.spec"));
    causes
}

fn check_pod_spec(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = list(spec, "containers");
    if containers.is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    for (at, container) in containers.iter().enumerate() {
        let path = format!("{path}.containers[{at}]");
        let name = str_at(container, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        } else {
            for why in names::dns_label(name) {
                causes.push(Cause::invalid(format!("{path}.name"), name, &why));
            }
        }
        if containers[..at].iter().any(|it| str_at(it, "name") == name) {
            let message = format!("Duplicate value: {name:?}");
            causes.push(Cause { reason: "FieldValueDuplicate", field: format!("{path}.name"), message });
        }
        if str_at(container, "image").is_empty() {
            causes.push(Cause::required(format!("{path}.image"), ""));
        }
        for (mount_at, mount) in list(container, "volumeMounts").iter().enumerate() {
            let volume = &mount["name"];
            if !list(spec, "volumes").iter().any(|it| it["name"] == *volume) {
                let field = format!("{path}.volumeMounts[{mount_at}].name");
                let message = format!("Not found: {volume}");
                causes.push(Cause { reason: "FieldValueNotFound", field, message });
            }
        }
    }
    causes
}

/// Upstream: `SetDefaults_PodSpec` and what it calls.
fn default_pod_spec(spec: &mut Value) {
    set_default(spec, "dnsPolicy", json!("ClusterFirst"));
    set_default(spec, "restartPolicy", json!("Always"));
    set_default(spec, "schedulerName", json!("default-scheduler"));
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "terminationGracePeriodSeconds", json!(30));
    // The old name of the field is kept in step with the new one.
    for (from, to) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        if is_set(&spec[from]) {
            spec[to] = spec[from].clone();
        }
    }
    let host_network = spec["hostNetwork"] == true;
    for containers in ["initContainers", "containers"] {
        each(spec, containers, |it| default_container(it, host_network));
    }
    each(spec, "volumes", default_volume);
}

fn default_container(container: &mut Value, host_network: bool) {
    let pull = if has_moving_tag(str_at(container, "image")) { "Always" } else { "IfNotPresent" };
    set_default(container, "imagePullPolicy", json!(pull));
    set_default(container, "resources", json!({}));
    set_default(container, "terminationMessagePath", json!("/dev/termination-log"));
    set_default(container, "terminationMessagePolicy", json!("File"));
    each(container, "ports", |port| {
        set_default(port, "protocol", json!("TCP"));
        if host_network {
            let number = port["containerPort"].clone();
            set_default(port, "hostPort", number);
        }
    });
    each(container, "env", |env| {
        with(env, "valueFrom.fieldRef", |it| set_default(it, "apiVersion", json!("v1")));
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with(container, probe, default_probe);
    }
    if let Some(limits) = container["resources"]["limits"].as_object().cloned() {
        let requests = map_mut(&mut container["resources"], "requests");
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn default_probe(probe: &mut Value) {
    set_default(probe, "failureThreshold", json!(3));
    set_default(probe, "periodSeconds", json!(10));
    set_default(probe, "successThreshold", json!(1));
    set_default(probe, "timeoutSeconds", json!(1));
    with(probe, "httpGet", |it| {
        set_default(it, "path", json!("/"));
        set_default(it, "scheme", json!("HTTP"));
    });
}

fn default_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|it| it.keys().all(|it| it == "name")) {
        volume["emptyDir"] = json!({});
    }
    // Upstream writes the empty type down, and its absence would be another template.
    with(volume, "hostPath", |it| set_default(it, "type", json!("")));
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        with(volume, source, |it| set_default(it, "defaultMode", json!(0o644)));
    }
}

/// `latest`, said or not, may be another image tomorrow; a digest or any other tag is taken as fixed.
fn has_moving_tag(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn set_default(object: &mut Value, name: &str, value: Value) {
    if object[name].is_null() {
        object[name] = value;
    }
}

/// Changes the object at a dotted path, if one is there.
fn with(object: &mut Value, path: &str, change: impl FnOnce(&mut Value)) {
    let found = path.split('.').try_fold(object, |at, name| at.get_mut(name));
    found.filter(|it| it.is_object()).map(change);
}

fn each(object: &mut Value, name: &str, change: impl FnMut(&mut Value)) {
    if let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) {
        items.iter_mut().filter(|it| it.is_object()).for_each(change);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn set(spec: Value) -> Value {
        json!({"metadata": {"name": "d"}, "spec": spec})
    }

    #[test]
    fn a_daemonset_gets_upstreams_defaults() {
        let mut it = set(json!({
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "hostNetwork": true,
                    "containers": [{
                        "name": "c",
                        "image": "registry:5000/c",
                        "ports": [{"containerPort": 80}],
                        "livenessProbe": {"httpGet": {"port": 80}},
                    }],
                    "volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}, {"name": "tmp"}],
                },
            },
        }));
        default_daemonset(&mut it);
        expect![[r#"
            {
              "revisionHistoryLimit": 10,
              "selector": {
                "matchLabels": {
                  "a": "b"
                }
              },
              "template": {
                "metadata": {
                  "labels": {
                    "a": "b"
                  }
                },
                "spec": {
                  "containers": [
                    {
                      "image": "registry:5000/c",
                      "imagePullPolicy": "Always",
                      "livenessProbe": {
                        "failureThreshold": 3,
                        "httpGet": {
                          "path": "/",
                          "port": 80,
                          "scheme": "HTTP"
                        },
                        "periodSeconds": 10,
                        "successThreshold": 1,
                        "timeoutSeconds": 1
                      },
                      "name": "c",
                      "ports": [
                        {
                          "containerPort": 80,
                          "hostPort": 80,
                          "protocol": "TCP"
                        }
                      ],
                      "resources": {},
                      "terminationMessagePath": "/dev/termination-log",
                      "terminationMessagePolicy": "File"
                    }
                  ],
                  "dnsPolicy": "ClusterFirst",
                  "hostNetwork": true,
                  "restartPolicy": "Always",
                  "schedulerName": "default-scheduler",
                  "securityContext": {},
                  "terminationGracePeriodSeconds": 30,
                  "volumes": [
                    {
                      "hostPath": {
                        "path": "/var/log",
                        "type": ""
                      },
                      "name": "logs"
                    },
                    {
                      "emptyDir": {},
                      "name": "tmp"
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
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&it["spec"]).unwrap());
        let once = it.clone();
        default_daemonset(&mut it);
        assert_eq!(it, once, "defaults are set once");
    }

    fn wrong(set: &Value, before: Option<&Value>, golden: &Expect) {
        let mut set = set.clone();
        default_daemonset(&mut set);
        let causes = check_daemonset(&set, before);
        let said: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        golden.assert_eq(&said.join("\n"));
    }

    #[test]
    fn what_a_daemonset_must_say() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let good = set(json!({"selector": {"matchLabels": {"a": "b"}}, "template": template}));
        wrong(&good, Some(&good), &expect![""]);

        let other = set(json!({"selector": {"matchLabels": {"a": "x"}}, "template": template}));
        wrong(
            &other,
            Some(&good),
            &expect![[r#"
                spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`
                spec.selector: Invalid value: {"matchLabels":{"a":"x"}}: field is immutable"#]],
        );

        let empty = set(json!({
            "selector": {},
            "updateStrategy": {"type": "Never"},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "C"}, {"volumeMounts": [{"name": "v"}]}]}},
        }));
        wrong(
            &empty,
            None,
            &expect![[r#"
                spec.selector: Invalid value: {}: empty selector is invalid for daemonset
                spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
                spec.updateStrategy.type: Unsupported value: "Never": supported values: "OnDelete", "RollingUpdate"
                spec.template.spec.containers[0].name: Invalid value: "C": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
                spec.template.spec.containers[0].image: Required value
                spec.template.spec.containers[1].name: Required value
                spec.template.spec.containers[1].image: Required value
                spec.template.spec.containers[1].volumeMounts[0].name: Not found: "v""#]],
        );
    }

    #[test]
    fn only_latest_moves() {
        let moving = ["a", "a:latest", "host:5000/a"].map(has_moving_tag);
        let fixed = ["a:1", "host:5000/a:1", "a@sha256:0", "a:latest@sha256:0"].map(has_moving_tag);
        assert_eq!((moving, fixed), ([true; 3], [false; 4]));
    }
}
