//! What a request may do is decided before anything is done, by what the server reads of it and by nothing else.

use std::collections::BTreeSet;

use http_body_util::BodyExt as _;
use hyper::header::{HeaderName, HeaderValue};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::agents::Bed;
use super::*;
use crate::http::query::READ_NAMES;

const SECRETS: &str = "/api/v1/namespaces/samples/secrets";

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Spellings of a boolean parameter: absent, those that upstream reads as false, and those it reads as true.
const SPELLINGS: &[(&str, bool)] = &[
    ("", false),
    ("watch", true),
    ("watch=", true),
    ("watch=0", false),
    ("watch=1", true),
    ("watch=t", true),
    ("watch=T", true),
    ("watch=true", true),
    ("watch=True", true),
    ("watch=TRUE", true),
    ("watch=false", false),
    ("watch=False", false),
    ("watch=FALSE", false),
    ("watch=fAlSe", false),
    ("watch=f", true),
    ("watch=no", true),
    ("watch=yes", true),
    ("watch=2", true),
    ("watch=0&watch=1", false),
    ("watch=1&watch=0", true),
    ("watch=%66alse", false),
    ("Watch=1", false),
];

fn someone(name: &str, groups: &[&str]) -> User {
    User::new(name, groups.iter().copied().chain(["system:authenticated"]))
}

impl Server {
    async fn answered(&self, user: Option<&User>, request: Request<Full<Bytes>>) -> OutgoingResponse {
        self.handle(user, request).await
    }

    async fn grant(&self, user: &str, rules: Value) {
        let role = json!({"metadata": {"name": user}, "rules": rules});
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        });
        let root = "/apis/rbac.authorization.k8s.io/v1";
        assert_eq!(self.json("POST", &format!("{root}/clusterroles"), role).await.0, 201);
        assert_eq!(self.json("POST", &format!("{root}/clusterrolebindings"), binding).await.0, 201);
    }
}

#[tokio::test]
async fn the_verb_that_is_authorized_is_the_verb_that_is_served() {
    let server = samples::server().await;
    for verb in ["list", "watch"] {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]);
        server.grant(&format!("only-{verb}"), rules).await;
    }
    for (spelling, is_watch) in SPELLINGS {
        for allowed in ["list", "watch"] {
            let user = someone(&format!("only-{allowed}"), &[]);
            let uri = format!("/api/v1/namespaces/samples/configmaps?timeoutSeconds=5&{spelling}");
            let request = Request::builder().uri(&uri).body(Full::new(Bytes::new())).unwrap();
            let response = server.answered(Some(&user), request).await;
            let wanted = if *is_watch { "watch" } else { "list" };
            let code = response.status().as_u16();
            assert_eq!(code, if wanted == allowed { 200 } else { 403 }, "{spelling} with {allowed}");
            if code != 200 {
                continue;
            }
            let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
            let first = String::from_utf8_lossy(&frame).into_owned();
            let served = if first.starts_with("{\"type\":") { "watch" } else { "list" };
            assert_eq!(served, wanted, "{spelling}: {first}");
        }
    }
}

/// Each request needs its own verb and no other, in each spelling of `watch`.
#[tokio::test]
async fn every_method_and_path_needs_one_verb() {
    let server = Server::new().await;
    for verb in VERBS {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]);
        server.grant(&format!("only-{verb}"), rules).await;
    }
    let (collection, watched) =
        ("/api/v1/namespaces/default/configmaps", "/api/v1/watch/namespaces/default/configmaps");
    let sample = format!("{collection}/sample");
    let map = json!({"metadata": {"name": "sample"}});
    assert_eq!(server.json("POST", collection, map.clone()).await.0, 201);
    let mut requests = Vec::new();
    for (spelling, is_watch) in SPELLINGS {
        let (read, query) =
            (if *is_watch { "watch" } else { "list" }, format!("timeoutSeconds=1&{spelling}"));
        requests.extend([
            ("HEAD", format!("{collection}?{query}"), read),
            ("HEAD", format!("{sample}?{query}"), "get"),
            ("GET", format!("{watched}?{query}"), "watch"),
            ("GET", format!("{watched}/sample?{query}"), "watch"),
            ("POST", format!("{collection}?dryRun=All&{spelling}"), "create"),
            ("PUT", format!("{sample}?dryRun=All&{spelling}"), "update"),
            ("PATCH", format!("{sample}?dryRun=All&{spelling}"), "patch"),
            ("DELETE", format!("{sample}?dryRun=All&{spelling}"), "delete"),
            ("DELETE", format!("{collection}?dryRun=All&{spelling}"), "deletecollection"),
        ]);
    }
    for (method, uri, wanted) in requests {
        for allowed in VERBS {
            let user = someone(&format!("only-{allowed}"), &[]);
            let body =
                if matches!(method, "POST" | "PUT" | "PATCH") { map.to_string() } else { String::new() };
            let mut request = Request::builder().method(method).uri(&uri);
            if method == "PATCH" {
                request = request.header(CONTENT_TYPE, "application/merge-patch+json");
            }
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let code = server.answered(Some(&user), request).await.status().as_u16();
            // Objects have no HEAD, as upstream, and only who may read them is told so.
            let expected = if method == "HEAD" { [405; 3] } else { [200, 201, 409] };
            let is_right = if wanted == allowed { expected.contains(&code) } else { code == 403 };
            assert!(is_right, "{method} {uri} with {allowed}: {code}");
        }
    }
}

/// A list of one object by its name needs the right to that object, and an apply that creates needs the right to create.
#[tokio::test]
async fn names_of_resources_are_those_of_the_request() {
    let server = Server::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["sample"],
        "verbs": ["list", "watch", "patch"]}]);
    server.grant("of-sample", rules).await;
    let user = someone("of-sample", &[]);
    let collection = "/api/v1/namespaces/samples/configmaps";
    for (query, expected) in [
        ("fieldSelector=metadata.name%3Dsample", 200),
        ("fieldSelector=metadata.name%3D%3Dsample", 200),
        ("fieldSelector=metadata.name%3Dother", 403),
        ("fieldSelector=metadata.name!%3Dother", 403),
        ("fieldSelector=metadata.namespace%3Dsamples", 403),
        ("labelSelector=name%3Dsample", 403),
        ("", 403),
    ] {
        for watch in ["", "&watch=1"] {
            let uri = format!("{collection}?timeoutSeconds=1&{query}{watch}");
            let request = Request::builder().uri(&uri).body(Full::new(Bytes::new())).unwrap();
            assert_eq!(server.answered(Some(&user), request).await.status(), expected, "{uri}");
        }
    }
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]);
    server.grant("patcher", rules).await;
    let revision = server.api.registry.storage.revision();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}).to_string();
    let request = Request::builder()
        .method("PATCH")
        .uri(format!("{collection}/new?fieldManager=m"))
        .header(CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    assert_eq!(server.answered(Some(&someone("patcher", &[])), request).await.status(), 403);
    assert_eq!(server.api.registry.storage.revision(), revision);
}

/// Query parameters that do not change the verb of a request, and values of each beside those of SPELLINGS.
const OTHER_PARAMETERS: &[(&str, &[&str])] = &[
    ("allowWatchBookmarks", &[]),
    ("sendInitialEvents", &[]),
    ("pretty", &[]),
    ("follow", &[]),
    ("timestamps", &[]),
    ("dryRun", &["All"]),
    ("force", &[]),
    ("orphanDependents", &[]),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", &[]),
    ("timeout", &["5s"]),
    ("as", &["kubernetes-admin"]),
    ("verb", &["delete", "watch"]),
    ("method", &["DELETE", "GET"]),
    ("labelSelector", &["watch", "watch%3Dtrue", "watch+in+(true)", "!watch"]),
    (
        "fieldSelector",
        &[
            "metadata.name%3Dsample",
            "metadata.name%3D%3Dother",
            "metadata.name!%3Dsample",
            "metadata.namespace%3Dsamples",
            "watch%3Dtrue",
        ],
    ),
    ("limit", &["500", "-1"]),
    ("continue", &["sample"]),
    ("resourceVersion", &["999999999"]),
    ("resourceVersionMatch", &["Exact&resourceVersion=7", "NotOlderThan&resourceVersion=0"]),
    ("timeoutSeconds", &["5", "-1"]),
    ("fieldManager", &["watch"]),
    ("fieldValidation", &["Strict", "Warn", "Ignore"]),
    ("gracePeriodSeconds", &["30", "-1"]),
    ("propagationPolicy", &["Orphan", "Background", "Foreground"]),
    ("includeObject", &["None", "Metadata", "Object"]),
    ("preconditions.uid", &["sample"]),
    ("preconditions.resourceVersion", &["1"]),
];

/// Each request is allowed with its verb alone, and refused with all verbs but that.
#[tokio::test]
async fn no_other_parameter_changes_the_verb() {
    let server = samples::server().await;
    for verb in VERBS {
        let others: Vec<&str> = VERBS.into_iter().filter(|it| *it != verb).collect();
        for (user, verbs) in [(format!("only-{verb}"), vec![verb]), (format!("all-but-{verb}"), others)] {
            let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
            server.grant(&user, rules).await;
        }
    }
    let collection = "/api/v1/namespaces/samples/configmaps";
    let object = format!("{collection}/sample");
    let mut asked = Vec::new();
    // An object is got, whatever is said of a watch.
    for (spelling, _) in SPELLINGS {
        asked.push(("watch", "GET", format!("{object}?timeoutSeconds=5&{spelling}"), "get"));
    }
    for (parameter, values) in OTHER_PARAMETERS {
        let spellings = SPELLINGS.iter().map(|(it, _)| it.replace("watch", parameter));
        let values = values.iter().map(|it| format!("{parameter}={it}"));
        for query in spellings.chain(values) {
            let dry_run = format!("dryRun=All&{query}");
            asked.extend([
                (*parameter, "GET", format!("{collection}?{query}"), "list"),
                (*parameter, "GET", format!("{object}?{query}"), "get"),
                (*parameter, "POST", format!("{collection}?{dry_run}"), "create"),
                (*parameter, "PUT", format!("{object}?{dry_run}"), "update"),
                (*parameter, "PATCH", format!("{object}?{dry_run}"), "patch"),
                (*parameter, "DELETE", format!("{object}?{dry_run}"), "delete"),
                (*parameter, "DELETE", format!("{collection}?{dry_run}"), "deletecollection"),
            ]);
        }
    }
    let revision = server.api.registry.storage.revision();
    let mut unserved: BTreeSet<(&str, &str)> = asked.iter().map(|(it, .., verb)| (*verb, *it)).collect();
    for (parameter, method, uri, verb) in asked {
        let name = if verb == "create" { "new" } else { "sample" };
        let body = match method {
            "GET" | "DELETE" => String::new(),
            _ => json!({"metadata": {"name": name}}).to_string(),
        };
        let media_type = if method == "PATCH" { "application/merge-patch+json" } else { JSON_MEDIA_TYPE };
        for (user, is_allowed) in [(format!("only-{verb}"), true), (format!("all-but-{verb}"), false)] {
            let request = Request::builder()
                .method(method)
                .uri(&uri)
                .header(CONTENT_TYPE, media_type)
                .body(Full::new(Bytes::from(body.clone())))
                .unwrap();
            let response = server.answered(Some(&someone(&user, &[])), request).await;
            let code = response.status().as_u16();
            // A parameter that cannot be read is refused before anything else.
            let is_right = match code {
                200 => is_allowed && verb != "create",
                201 => is_allowed && verb == "create",
                400 => true,
                409 | 422 | 504 => is_allowed,
                403 => !is_allowed,
                _ => false,
            };
            assert!(is_right, "{method} {uri} by {user}: {code}");
            if !matches!(code, 200 | 201) {
                continue;
            }
            if !uri.ends_with('?') && !uri.ends_with('&') {
                unserved.remove(&(verb, parameter));
            }
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            let kind = match verb {
                "list" | "deletecollection" => "ConfigMapList",
                // An object that waits for its dependents is not deleted yet.
                "delete" if unstructured::is_set(&answer["metadata"]["deletionTimestamp"]) => "ConfigMap",
                "delete" => "Status",
                _ => "ConfigMap",
            };
            assert_eq!(answer["kind"], kind, "{method} {uri}");
        }
    }
    assert_eq!(server.api.registry.storage.revision(), revision, "dry runs write nothing");
    let tested = OTHER_PARAMETERS.iter().map(|(it, _)| *it).chain(["watch"]);
    assert_all_read_parameters_are_in(&tested.collect());
    // These parameters are refused with any value.
    let unserved: Vec<String> = unserved.iter().map(|(verb, it)| format!("{verb} {it}")).collect();
    expect![[r#""#]].assert_eq(&unserved.join("\n"));
}

/// Checks that the requests of this test have all query parameters that the server has read of them.
fn assert_all_read_parameters_are_in(tested: &BTreeSet<&str>) {
    let read = READ_NAMES.take();
    let missing: Vec<&String> = read.iter().filter(|it| !tested.contains(it.as_str())).collect();
    assert!(missing.is_empty(), "the server reads parameters that no request of this test has: {missing:?}");
}

/// Boolean query parameters of log, exec and attach requests, and those of other requests that could change the verb.
const STREAM_FLAGS: &[&str] =
    &["follow", "previous", "timestamps", "stdin", "stdout", "stderr", "tty", "watch", "pretty"];

/// Other query parameters of log, exec, attach, port-forward and proxy requests, with values of each.
const STREAM_PARAMETERS: &[(&str, &[&str])] = &[
    ("command", &["id", "id&command=-u"]),
    ("container", &["c"]),
    ("dryRun", &["All"]),
    ("fieldManager", &["exec"]),
    ("fieldSelector", &["metadata.name%3Dother"]),
    ("fieldValidation", &["Strict"]),
    ("insecureSkipTLSVerifyBackend", &["true"]),
    ("labelSelector", &["app%3Da"]),
    ("limitBytes", &["9"]),
    ("method", &["POST", "GET"]),
    ("path", &["exec", "..%2F..%2Fexec"]),
    ("ports", &["80", "80,81"]),
    ("resourceVersion", &["0"]),
    ("sinceSeconds", &["3"]),
    ("sinceTime", &["2026-01-01T00:00:00Z"]),
    ("stream", &["Stdout", "All"]),
    ("tailLines", &["5"]),
    ("timeout", &["5s"]),
    ("verb", &["create", "get"]),
];

/// The requests for which an agent is asked: method, path below the pods of a namespace, subresource, the verbs that are
/// all needed for it, and the start of the agent's URL.
const STREAM_REQUESTS: &[(&str, &str, &str, &[&str], &str)] = &[
    ("GET", "p/log", "log", &["get"], "/containerLogs/default/p/c"),
    ("GET", "p/exec", "exec", &["get", "create"], "/exec/default/p/c"),
    ("POST", "p/exec", "exec", &["create"], "/exec/default/p/c"),
    ("GET", "p/attach", "attach", &["get", "create"], "/attach/default/p/c"),
    ("POST", "p/attach", "attach", &["create"], "/attach/default/p/c"),
    ("GET", "p/portforward", "portforward", &["get", "create"], "/portForward/default/p"),
    ("POST", "p/portforward", "portforward", &["create"], "/portForward/default/p"),
    ("GET", "p:8080/proxy/", "proxy", &["get"], "/podProxy/default/p/http/8080/"),
    ("POST", "p:8080/proxy/", "proxy", &["create"], "/podProxy/default/p/http/8080/"),
    ("PUT", "p:8080/proxy/", "proxy", &["update"], "/podProxy/default/p/http/8080/"),
    ("PATCH", "p:8080/proxy/", "proxy", &["patch"], "/podProxy/default/p/http/8080/"),
    ("DELETE", "p:8080/proxy/", "proxy", &["delete"], "/podProxy/default/p/http/8080/"),
];

/// Each log, exec, attach, port-forward and proxy request is allowed with its subresource and verbs alone, and refused
/// with all permissions but one of these. The agent is asked for what was authorized, with the method of the request.
#[tokio::test]
async fn agents_are_asked_for_what_is_authorized() {
    let (server, mut asked) = Bed::new("system:node:n", "system:nodes").await.serve_agent();
    let subresources: BTreeSet<&str> = STREAM_REQUESTS.iter().map(|it| it.2).collect();
    let rule = |subresource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [format!("pods/{subresource}")], "verbs": verbs});
    let mut granted = BTreeSet::new();
    for (_, _, subresource, verbs, _) in STREAM_REQUESTS {
        let user = format!("only-{}-{subresource}", verbs.join("-"));
        if granted.insert(user.clone()) {
            server.grant(&user, json!([rule(subresource, verbs)])).await;
        }
        for verb in *verbs {
            let user = format!("all-but-{verb}-{subresource}");
            if !granted.insert(user.clone()) {
                continue;
            }
            let others: Vec<&str> = VERBS.into_iter().filter(|it| it != verb).collect();
            let rules: Vec<Value> = subresources
                .iter()
                .map(|it| rule(it, if it == subresource { &others } else { &VERBS }))
                .chain([json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]})])
                .collect();
            server.grant(&user, json!(rules)).await;
        }
    }
    READ_NAMES.take();

    // Each request is over a TLS connection of its own, so there are a few spellings of each kind only.
    let spelled = STREAM_FLAGS
        .iter()
        .flat_map(|name| SPELLINGS.iter().step_by(4).map(move |(it, _)| (*name, it.replace("watch", name))));
    let parameters = STREAM_PARAMETERS.iter().flat_map(|(name, values)| {
        let unset = (*name, (*name).to_owned());
        [unset].into_iter().chain(values.iter().map(move |it| (*name, format!("{name}={it}"))))
    });
    let queries: Vec<(&str, String)> = spelled.chain(parameters).collect();
    let mut unserved: BTreeSet<(&str, &str)> =
        queries.iter().flat_map(|(name, _)| subresources.iter().map(|it| (*it, *name))).collect();
    for (parameter, query) in &queries {
        for (method, path, subresource, verbs, agent_path) in STREAM_REQUESTS {
            let uri = format!("{PODS}/{path}?{query}");
            let mut code = async |user: String| {
                let mut request = Request::builder().method(*method).uri(&uri);
                if !matches!(*subresource, "log" | "proxy") {
                    request = request.header("connection", "upgrade").header("upgrade", "SPDY/3.1");
                }
                let request = request.body(Full::new(Bytes::new())).unwrap();
                let response = server.answered(Some(&someone(&user, &[])), request).await;
                (response.status().as_u16(), asked.try_recv().ok())
            };
            for verb in *verbs {
                let refused = code(format!("all-but-{verb}-{subresource}")).await;
                assert_eq!(refused, (403, None), "{method} {uri} without {verb}");
            }
            match code(format!("only-{}-{subresource}", verbs.join("-"))).await {
                (_, Some(asked)) => {
                    assert!(asked.starts_with(&format!("{method} {agent_path}")), "{method} {uri}: {asked}");
                    unserved.remove(&(*subresource, *parameter));
                }
                // A parameter that cannot be read.
                (code, None) => assert!(matches!(code, 400 | 422), "{method} {uri}: {code}"),
            }
        }
    }
    assert!(unserved.is_empty(), "refused with any value: {unserved:?}");
    let tested = STREAM_FLAGS.iter().copied().chain(STREAM_PARAMETERS.iter().map(|(it, _)| *it));
    assert_all_read_parameters_are_in(&tested.collect());
}

/// A refused fence delays the writes of others that are in the same transaction, so it needs rights to the Lease.
#[tokio::test]
async fn a_lease_fence_needs_the_right_to_update_its_lease() {
    let server = samples::server().await;
    let maps = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]});
    let leases = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]});
    server.grant("writer", json!([maps])).await;
    server.grant("leader", json!([maps, leases])).await;
    let code = async |user: &str, fence: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(MAPS)
            .header(CONTENT_TYPE, JSON_MEDIA_TYPE)
            .header("muster-lease-fence", fence)
            .body(Full::new(Bytes::from(json!({"metadata": {"generateName": "m"}}).to_string())))
            .unwrap();
        server.answered(Some(&someone(user, &[])), request).await.status().as_u16()
    };
    let lease = "kube-system/muster-controller/1";
    assert_eq!(code("writer", lease).await, 403);
    assert_eq!(code("leader", lease).await, 201);
    for other in ["kube-system/kube-scheduler/1", "kube-node-lease/muster-a/1", "muster-controller/1", ""] {
        assert_eq!(code("leader", other).await, 400, "{other:?}");
    }
}

/// A header of any bytes gives no request more than it has without the header.
#[test]
fn no_header_gives_a_request_more_rights() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(samples::server());
    let names = prop::sample::select(crate::http::fuzz::header_names());
    let text = prop_oneof![
        prop::collection::vec(prop_oneof![0x20..=0x7e_u8, 0x80..=0xff_u8], 0..12),
        prop::sample::select(vec![
            "",
            "system:masters",
            "kubernetes-admin",
            "jörg",
            "Bearer x",
            "Bearer \u{e9}"
        ])
        .prop_map(|it| it.as_bytes().to_vec()),
    ];
    let headers = prop::collection::vec((names, text), 1..4);
    let mut runner = TestRunner::new(Config { cases: 600, source_file: Some(file!()), ..Config::default() });
    let administrator = someone("kubernetes-admin", &["system:masters"]);
    let checked = runner.run(&headers, |headers| {
        let request = || {
            let mut request = Request::builder().uri(SECRETS).body(Full::new(Bytes::new())).unwrap();
            for (name, value) in &headers {
                let Ok(value) = HeaderValue::from_bytes(value) else { continue };
                request.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
            }
            request
        };
        let code = |user: Option<&User>| runtime.block_on(server.answered(user, request())).status().as_u16();
        prop_assert_ne!(code(None), 200, "an anonymous client");
        prop_assert_ne!(code(Some(&someone("eve", &[]))), 200, "a user without rights");
        // With the group of masters among those that are asked for, and a user, the administrator stays one.
        let has = |wanted: &str| headers.iter().any(|(name, _)| name.starts_with(wanted));
        let is_master =
            headers.iter().any(|(name, value)| *name == "impersonate-group" && value == b"system:masters");
        if has("impersonate-") && !is_master {
            prop_assert_ne!(code(Some(&administrator)), 200, "an administrator who acts as somebody else");
        }
        Ok(())
    });
    checked.unwrap_or_else(|why| panic!("{why}"));
}

#[tokio::test]
async fn a_name_with_letters_beyond_ascii_is_impersonated_and_audited() {
    let mut server = samples::server().await;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit");
    server.api.audit = Some(Arc::new(AuditLog::open(&log).unwrap()));
    let administrator = someone("kubernetes-admin", &["system:masters"]);
    let ask = async |value: &[u8]| {
        let request = Request::builder()
            .uri(SECRETS)
            .header("impersonate-user", HeaderValue::from_bytes(value).unwrap())
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = server.answered(Some(&administrator), request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let said: Value = serde_json::from_slice(&body).unwrap();
        format!("{code} {}", str_at(&said, "message"))
    };
    expect![[r#"403 secrets is forbidden: User "jörg" cannot list resource "secrets" in API group "" in the namespace "samples""#]]
        .assert_eq(&ask("jörg".as_bytes()).await);
    expect!["400 the header impersonate-user is not UTF-8 text"].assert_eq(&ask(b"j\xf6rg").await);
    drop(server);
    let lines = std::fs::read_to_string(log).unwrap();
    let names: Vec<Value> = lines
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["impersonatedUser"]["username"].clone())
        .collect();
    assert_eq!(names, [json!("jörg"), Value::Null]);
}

/// A refused request writes nothing, for any user and any request.
#[tokio::test]
async fn a_request_that_is_refused_changes_nothing() {
    let server = samples::server().await;
    let registry = server.api.registry.clone();
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    server.grant("all-but-masters", rules).await;
    // A budget that one eviction would use up, and a running pod of another node.
    let budget = "/apis/policy/v1/namespaces/samples/poddisruptionbudgets/sample";
    let pod = "/api/v1/namespaces/samples/pods/sample";
    let bound = json!({"metadata": {"name": "sample"}, "target": {"kind": "Node", "name": "other"}});
    assert_eq!(server.json("POST", &format!("{pod}/binding"), bound).await.0, 201);
    let labels = json!({"metadata": {"labels": {"app": "a"}}});
    assert_eq!(server.merge(pod, labels).await.0, 200);
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(server.merge(&format!("{pod}/status"), ready).await.0, 200);
    let allowed = json!({"status": {
        "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1,
    }});
    assert_eq!(server.merge(&format!("{budget}/status"), allowed).await.0, 200);
    let quota = json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "50"}}});
    assert_eq!(server.json("POST", "/api/v1/namespaces/samples/resourcequotas", quota).await.0, 201);

    let users = [
        None,
        Some(someone("eve", &[])),
        Some(someone("system:node:n1", &["system:nodes"])),
        Some(someone("system:node:", &["system:nodes"])),
        Some(someone("all-but-masters", &[])),
        Some(someone("kubernetes-admin", &["system:masters"])),
    ];
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "sample"}});
    let other_uid = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "sample"},
        "deleteOptions": {"preconditions": {"uid": "another"}},
    });
    let bad = ["{", "[]", "{\"metadata\": {\"name\": \"other\"}}", "{\"metadata\": {\"name\": 7}}", "\u{0}"];
    let (mut refused, mut made) = (0, 0);
    for (kind, sample) in samples::all() {
        let collection = samples::path(kind);
        let object = format!("{collection}/{}", str_at(&sample, "metadata.name"));
        let parts = [
            "",
            "/status",
            "/approval",
            "/finalize",
            "/binding",
            "/eviction",
            "/ephemeralcontainers",
            "/token",
        ];
        for user in &users {
            // Those who may do anything are refused for what they send only.
            let is_mighty = user
                .as_ref()
                .is_some_and(|it| it.is_in_group("system:masters") || it.name.starts_with("all"));
            let mut requests = vec![("POST", collection.clone(), JSON_MEDIA_TYPE, sample.to_string())];
            for body in bad {
                requests.push(("POST", collection.clone(), JSON_MEDIA_TYPE, body.to_owned()));
                for subresource in parts.iter().filter(|it| it.is_empty() || body.starts_with(['[', '{'])) {
                    requests.push((
                        "PUT",
                        format!("{object}{subresource}"),
                        JSON_MEDIA_TYPE,
                        body.to_owned(),
                    ));
                    for media_type in [
                        "application/merge-patch+json",
                        "application/json-patch+json",
                        "application/apply-patch+yaml",
                    ] {
                        requests.push((
                            "PATCH",
                            format!("{object}{subresource}"),
                            media_type,
                            body.to_owned(),
                        ));
                    }
                }
            }
            for body in [&eviction, &other_uid] {
                if !is_mighty || body == &other_uid {
                    requests.push(("POST", format!("{object}/eviction"), JSON_MEDIA_TYPE, body.to_string()));
                }
            }
            if !is_mighty {
                let labels = "{\"metadata\": {\"labels\": {\"a\": \"b\"}}}";
                for subresource in parts {
                    requests.push((
                        "PATCH",
                        format!("{object}{subresource}"),
                        "application/merge-patch+json",
                        labels.to_owned(),
                    ));
                    requests.push((
                        "PUT",
                        format!("{object}{subresource}"),
                        JSON_MEDIA_TYPE,
                        sample.to_string(),
                    ));
                }
                requests.push(("DELETE", object.clone(), JSON_MEDIA_TYPE, String::new()));
                requests.push(("DELETE", collection.clone(), JSON_MEDIA_TYPE, String::new()));
            }
            requests.push((
                "DELETE",
                object.clone(),
                JSON_MEDIA_TYPE,
                "{\"preconditions\": {\"uid\": \"another\"}}".to_owned(),
            ));
            requests.push((
                "DELETE",
                format!("{object}?propagationPolicy=Other"),
                JSON_MEDIA_TYPE,
                String::new(),
            ));
            for (method, uri, media_type, body) in requests {
                let before = registry.storage.revision();
                let request = Request::builder()
                    .method(method)
                    .uri(&uri)
                    .header(CONTENT_TYPE, media_type)
                    .body(Full::new(Bytes::from(body.clone())))
                    .unwrap();
                let response = server.answered(user.as_ref(), request).await;
                let code = response.status().as_u16();
                if code < 400 {
                    made += 1;
                    continue;
                }
                refused += 1;
                let who = user.as_ref().map_or("anonymous", |it| it.name.as_str());
                assert_eq!(
                    registry.storage.revision(),
                    before,
                    "{code} to {method} {uri} by {who} with {body}"
                );
            }
        }
    }
    assert!(10_000 < refused, "{refused} were refused and {made} were not");
}

/// Only `system:masters` may delete the records of credentials: without that, the deletion of a collection that contains
/// one deletes nothing.
#[tokio::test]
async fn a_collection_is_not_deleted_if_one_of_its_objects_may_not_be() {
    const SYSTEM_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
    let server = Server::new().await;
    server.grant("editor", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}])).await;
    for name in ["a", "muster-revoked-credentials", "z"] {
        let object = json!({"metadata": {"name": name, "labels": {"of": "the-test"}}});
        assert_eq!(server.json("POST", SYSTEM_MAPS, object).await.0, 201, "{name}");
    }
    let revision = server.api.registry.storage.revision();
    let delete = async |user: &User| {
        let uri = format!("{SYSTEM_MAPS}?labelSelector=of%3Dthe-test");
        let request = Request::builder().method("DELETE").uri(uri).body(Full::new(Bytes::new())).unwrap();
        server.answered(Some(user), request).await.status().as_u16()
    };
    assert_eq!(delete(&someone("editor", &[])).await, 403);
    assert_eq!(server.api.registry.storage.revision(), revision, "nothing was deleted");
    assert_eq!(delete(&User::server()).await, 200);
    assert_eq!(server.get(&format!("{SYSTEM_MAPS}/a")).await.0, 404);
}
