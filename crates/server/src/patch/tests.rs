use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::types::{GroupVersionKind, TypedKind};

const POD: GroupVersionKind<'_> = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
const SET: GroupVersionKind<'_> = GroupVersionKind { group: "apps", version: "v1", kind: "DaemonSet" };
const NODE: GroupVersionKind<'_> = GroupVersionKind { group: "", version: "v1", kind: "Node" };
const SERVICE: GroupVersionKind<'_> = GroupVersionKind { group: "", version: "v1", kind: "Service" };

fn check(patch_type: PatchType, of: GroupVersionKind<'_>, object: &str, patch: &str, golden: &Expect) {
    let object: Value = serde_json::from_str(object).unwrap();
    golden.assert_eq(&match patch_type.apply(TypedKind::from(of).object_type, &object, patch.as_bytes()) {
        Ok((object, complaints)) if complaints.is_empty() => object.to_string(),
        Ok((object, complaints)) => format!("{object} {complaints:?}"),
        Err(refusal) => {
            let status = refusal.status();
            format!("{} {}", status["code"], status["message"].as_str().unwrap())
        }
    });
}

fn strategic(of: GroupVersionKind<'_>, object: &str, patch: &str, golden: &Expect) {
    check(PatchType::Strategic, of, object, patch, golden);
}

/// Of a pod's spec.
fn spec(object: &str, patch: &str, golden: &Expect) {
    strategic(POD, &format!(r#"{{"spec":{object}}}"#), &format!(r#"{{"spec":{patch}}}"#), golden);
}

fn json(object: &str, patch: &str, golden: &Expect) {
    check(PatchType::Json, POD, object, patch, golden);
}

#[test]
fn a_merge_patch_replaces_lists_and_deletes_nulls() {
    check(
        PatchType::Merge,
        POD,
        r#"{"a":{"b":1,"c":[1,2]},"d":1,"o":{"x":1}}"#,
        r#"{"a":{"b":null,"c":[3,{"n":null}],"e":{"f":null,"g":[{"h":null}]}},"o":[{"n":null}]}"#,
        &expect![[r#"{"a":{"c":[3,{}],"e":{"g":[{}]}},"d":1,"o":[{"n":null}]}"#]],
    );
    for body in ["null", "[]", "1", "{", "{\"a\":1,\"a\":{\"b\":2,\"b\":3}}"] {
        check(PatchType::Merge, POD, "{}", body, &by_body(body));
    }
}

fn by_body(body: &str) -> Expect {
    match body {
        "null" => expect!["400 Invalid JSON Patch"],
        "[]" => expect![[
            r#"400 error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"#
        ]],
        "1" => expect![[
            r#"400 error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"#
        ]],
        "{" => expect!["400 error decoding patch: unexpected end of JSON input"],
        _ => expect![[r#"{"a":{"b":3}} ["duplicate field \"a\"", "duplicate field \"a.b\""]"#]],
    }
}

#[test]
fn a_json_patch_counts_from_the_end_and_treats_absent_as_null() {
    json(
        r#"{"a":[1,2,3],"m":{"x/y":{"~1":1}}}"#,
        r#"[{"op":"add","path":"/a/-1","value":4},{"op":"remove","path":"/a/0"},{"op":"add","path":"/a/-","value":5},
            {"op":"replace","path":"/new","value":{}},{"op":"test","path":"/gone","value":null},
            {"op":"copy","from":"/a","path":"/new/b"},{"op":"move","from":"/m/x~1y/~01","path":"/n"},
            {"op":"add","path":"/nothing"},{"op":"replace","path":"/a/1","value":9}]"#,
        &expect![[r#"{"a":[2,9,4,5],"m":{"x/y":{}},"n":1,"new":{"b":[2,3,4,5]},"nothing":null}"#]],
    );
    json("{}", "null", &expect!["{}"]);
    json(
        "{}",
        r#"{"op":"add"}"#,
        &expect![
            "400 error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        ],
    );
    json(
        "{}",
        r#"[{"op":"test","path":"","value":{}},{"op":"replace","path":"","value":{"a":1},"x":1}]"#,
        &expect![[r#"{"a":1} ["json patch unknown field \"[1].x\""]"#]],
    );
    for operation in [
        r#"{"op":"remove","path":"/b"}"#,
        r#"{"op":"add","path":"/a/5","value":1}"#,
        r#"{"op":"add","path":"/a/-4","value":1}"#,
        r#"{"op":"replace","path":"/a/2","value":1}"#,
        r#"{"op":"add","path":"a","value":1}"#,
        r#"{"op":"test","path":"/a/0","value":1.0}"#,
        r#"{"op":"shout","path":"/a"}"#,
        r#"{"op":"add","path":"/s/t","value":1}"#,
        r#"{"op":"replace","path":"","value":1}"#,
        r#"{"path":"/a"}"#,
    ] {
        json(
            r#"{"a":[1,2],"s":"t"}"#,
            &format!("[{operation}]"),
            &expect!["422 the server rejected our request due to an error in our request"],
        );
    }
}

#[test]
fn a_json_patch_cannot_blow_an_object_up() {
    let doubling = vec![r#"{"op":"copy","from":"/a","path":"/a/-"}"#; 64].join(",");
    json(
        r#"{"a":[1]}"#,
        &format!("[{doubling}]"),
        &expect!["422 the server rejected our request due to an error in our request"],
    );
    let deeper = vec![r#"{"op":"add","path":"/b","value":{}},{"op":"move","from":"/a","path":"/b/a"},{"op":"move","from":"/b","path":"/a"}"#; 3000].join(",");
    json(
        r#"{"a":{}}"#,
        &format!("[{deeper}]"),
        &expect!["422 the server rejected our request due to an error in our request"],
    );
    let many = vec![r#"{"op":"test","path":"/b","value":null}"#; 10_001].join(",");
    json(
        "{}",
        &format!("[{many}]"),
        &expect![
            "413 Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        ],
    );
}

#[test]
fn containers_merge_by_name_and_keep_other_fields() {
    spec(
        r#"{"containers":[{"name":"a","image":"a:1","env":[{"name":"X","value":"1"}]},{"name":"b"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],
            "containers":[{"name":"c","image":"c:1"},{"name":"a","image":"a:2","env":[{"name":"Y","value":"2"}]},
                          {"name":"b","$patch":"delete"}]}"#,
        &expect![[
            r#"{"spec":{"containers":[{"image":"c:1","name":"c"},{"env":[{"name":"Y","value":"2"},{"name":"X","value":"1"}],"image":"a:2","name":"a"}]}}"#
        ]],
    );
}

#[test]
fn items_missing_in_the_patch_keep_upstreams_order_after_a_deletion() {
    // The deleted item's room is taken by the next one, so `d` now stands first.
    strategic(
        SERVICE,
        r#"{"spec":{"ports":[{"name":"b","port":53},{"name":"d","port":81}]}}"#,
        r#"{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53},{"port":80}],
            "ports":[{"name":"b","port":53},{"$patch":"delete","port":53},{"name":"c","port":80}]}}"#,
        &expect![[
            r#"{"spec":{"ports":[{"name":"d","port":81},{"name":"b","port":53},{"name":"c","port":80}]}}"#
        ]],
    );
    // `c3` is new, and takes the room of `c2`.
    spec(
        r#"{"containers":[{"name":"c2"},{"name":"c1"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"c2"},{"name":"c3"}],
            "containers":[{"$patch":"delete","name":"c2"},{"name":"c3"}]}"#,
        &expect![[r#"{"spec":{"containers":[{"name":"c1"},{"name":"c3"}]}}"#]],
    );
    // The last one leaves its mark behind.
    spec(
        r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"b"},{"name":"d"}],
            "containers":[{"$patch":"delete","name":"c"},{"name":"d"}]}"#,
        &expect![[r#"{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"d"}]}}"#]],
    );
    // Replaced by what no order names.
    spec(
        r#"{"containers":[{"name":"a"}]}"#,
        r#"{"$setElementOrder/containers":[],"containers":[{"$patch":"replace"},{"name":"x"},{"name":"y"},{"name":"z"}]}"#,
        &expect![[r#"{"spec":{"containers":[{"name":"z"},{"name":"y"},{"name":"x"}]}}"#]],
    );
}

#[test]
fn each_list_has_its_own_key() {
    spec(
        r#"{"containers":[{"name":"c","ports":[{"containerPort":80,"name":"http"}]}]}"#,
        r#"{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":81}]}]}"#,
        &expect![[
            r#"{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80,"name":"http","protocol":"UDP"},{"containerPort":81}]}]}}"#
        ]],
    );
    strategic(
        SERVICE,
        r#"{"spec":{"ports":[{"port":80,"targetPort":8080},{"port":81}]}}"#,
        r#"{"spec":{"ports":[{"port":80,"targetPort":9090}]}}"#,
        &expect![[r#"{"spec":{"ports":[{"port":80,"targetPort":9090},{"port":81}]}}"#]],
    );
    strategic(
        NODE,
        r#"{"status":{"addresses":[{"type":"InternalIP","address":"1"}],"conditions":[{"type":"Ready","status":"True"}]}}"#,
        r#"{"status":{"$setElementOrder/conditions":[{"type":"Disk"},{"type":"Ready"}],"conditions":[{"type":"Disk","status":"False"}],
            "addresses":[{"type":"Hostname","address":"h"}]}}"#,
        &expect![[
            r#"{"status":{"addresses":[{"address":"h","type":"Hostname"},{"address":"1","type":"InternalIP"}],"conditions":[{"status":"False","type":"Disk"},{"status":"True","type":"Ready"}]}}"#
        ]],
    );
}

#[test]
fn a_rollback_replaces_the_whole_template() {
    strategic(
        SET,
        r#"{"spec":{"selector":{},"template":{"spec":{"containers":[{"name":"a"}],"hostNetwork":true}}}}"#,
        r#"{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"b"}]}}}}"#,
        &expect![[r#"{"spec":{"selector":{},"template":{"spec":{"containers":[{"name":"b"}]}}}}"#]],
    );
}

#[test]
fn atomic_lists_are_replaced_and_strategies_obeyed() {
    spec(
        r#"{"tolerations":[{"key":"a"}],"volumes":[{"name":"v","emptyDir":{}}],"securityContext":{"runAsUser":1}}"#,
        r#"{"tolerations":[{"key":"b"}],"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}],
            "securityContext":{"$patch":"delete"}}"#,
        &expect![[
            r#"{"spec":{"securityContext":{},"tolerations":[{"key":"b"}],"volumes":[{"hostPath":{"path":"/x"},"name":"v"}]}}"#
        ]],
    );
    strategic(
        SET,
        r#"{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"updateStrategy":{"$retainKeys":["type"],"type":"OnDelete"}}}"#,
        &expect![[r#"{"spec":{"updateStrategy":{"type":"OnDelete"}}}"#]],
    );
    strategic(
        NODE,
        r#"{"spec":{"taints":[{"key":"a"}]}}"#,
        r#"{"spec":{"taints":null}}"#,
        &expect![[r#"{"spec":{}}"#]],
    );
}

#[test]
fn a_list_can_be_replaced_notwithstanding() {
    spec(
        r#"{"volumes":[{"name":"a"},{"name":"b"}]}"#,
        r#"{"volumes":[{"$patch":"replace"},{"name":"c"}]}"#,
        &expect![[r#"{"spec":{"volumes":[{"name":"c"}]}}"#]],
    );
}

#[test]
fn finalizers_are_a_set() {
    strategic(
        POD,
        r#"{"metadata":{"finalizers":["a","b"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"$setElementOrder/finalizers":["c","b"],"finalizers":["c"]}}"#,
        &expect![[r#"{"metadata":{"finalizers":["c","b"]}}"#]],
    );
}

#[test]
fn a_set_that_was_none_becomes_one() {
    strategic(
        POD,
        r#"{"metadata":{"finalizers":["a","b","a"]}}"#,
        r#"{"metadata":{"finalizers":["c"]}}"#,
        &expect![[r#"{"metadata":{"finalizers":["c","a","b"]}}"#]],
    );
}

#[test]
fn unordered_items_stay_before_their_successors() {
    spec(
        r#"{"containers":[{"name":"injected"},{"name":"a"},{"name":"b"},{"name":"last"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"1"}]}"#,
        &expect![[
            r#"{"spec":{"containers":[{"name":"injected"},{"name":"b"},{"image":"1","name":"a"},{"name":"last"}]}}"#
        ]],
    );
    spec(
        r#"{"containers":[{"name":"1"},{"name":"2"},{"name":"3"}]}"#,
        r#"{"containers":[{"name":"4"},{"name":"2","image":"i"}]}"#,
        &expect![[
            r#"{"spec":{"containers":[{"name":"4"},{"name":"1"},{"image":"i","name":"2"},{"name":"3"}]}}"#
        ]],
    );
}

#[test]
fn new_values_contain_no_directives_and_no_nulls() {
    spec(
        r#"{"hostNetwork":true}"#,
        r#"{"containers":[{"name":"a","image":null},{"name":"b","$patch":"delete"}],"affinity":{"$patch":"delete"},"nodeName":null}"#,
        &expect![[r#"{"spec":{"containers":[{"name":"a"}],"hostNetwork":true}}"#]],
    );
}

#[test]
fn an_invalid_patch_is_refused_with_a_reason() {
    let object = r#"{"containers":[{"name":"a"}],"volumes":[{"name":"v"}],"tolerations":[{"key":"a"}]}"#;
    for (patch, golden) in [
        (r#"{"$patch":"merge"}"#, expect!["500 unknown patch type: merge in map: map[$patch:merge]"]),
        (r#"{"$retainKeys":1}"#, expect!["400 invalid patch format of retainKeys"]),
        (r#"{"$retainKeys":["volumes"],"containers":[]}"#, expect!["400 invalid patch format of retainKeys"]),
        (r#"{"$setElementOrder":[]}"#, expect!["400 invalid patch format of setElementOrder list"]),
        (
            r#"{"$setElementOrder/containers":1}"#,
            expect!["500 expected a []interface {}, but received a int64"],
        ),
        (
            r#"{"$setElementOrder/bogus":[]}"#,
            expect![[r#"500 unable to find api field in struct PodSpec for the json field "bogus""#]],
        ),
        (
            r#"{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"a"}]}"#,
            expect![[r#"
            500 The order in patch list:
            [map[name:a]]
             doesn't match $setElementOrder list:
            [map[name:b]]
        "#]],
        ),
        (
            r#"{"containers":[{"image":"i"}]}"#,
            expect!["500 map: map[image:i] does not contain declared merge key: name"],
        ),
        (r#"{"containers":[1]}"#, expect!["500 list element types are not identical: [[map[name:a]] [1]]"]),
        (
            r#"{"containers":[{"$patch":"merge"}]}"#,
            expect!["500 merging lists cannot yet be specified in the patch"],
        ),
        (r#"{"$patch":null}"#, expect!["500 unknown patch type: %!s(<nil>) in map: map[$patch:<nil>]"]),
        (
            r#"{"hostname":1}"#,
            expect![[
                r#"422  "" is invalid: patch: Invalid value: "map[spec:map[hostname:1]]": cannot convert int64 to string"#
            ]],
        ),
        (
            r#"{"hostname":[]}"#,
            expect![[
                r#"422  "" is invalid: patch: Invalid value: "map[spec:map[hostname:[]]]": unrecognized type: string"#
            ]],
        ),
        (
            r#"{"affinity":1}"#,
            expect![[
                r#"422  "" is invalid: patch: Invalid value: "map[spec:map[affinity:1]]": cannot restore struct from: int64"#
            ]],
        ),
        (r#"{"$deleteFromPrimitiveList":["a"]}"#, expect!["400 invalid patch format of primitive list"]),
    ] {
        spec(object, patch, &golden);
    }
    strategic(
        POD,
        "{}",
        "[]",
        &expect!["400 json: cannot unmarshal array into Go value of type map[string]interface {}"],
    );
    strategic(POD, "{\"a\":1}", "null", &expect![[r#"{"a":1}"#]]);
}

/// Bodies that look like patches, and are not always ones.
fn bodies() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("spec"),
        Just("metadata"),
        Just("containers"),
        Just("name"),
        Just("finalizers"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$setElementOrder/finalizers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("env"),
        Just("labels"),
        Just("op"),
        Just("path"),
        Just("from"),
        Just("value"),
        Just("volumes"),
        Just("hostPath"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(Value::from(1)),
        Just(Value::from(1.5)),
        Just(Value::from(true)),
        "(add|remove|move|copy|test|replace|delete|merge|/spec|/spec/containers/0|/metadata/-|a|b)"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|it| it.into_iter().map(|(name, it)| (name.to_owned(), it)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_is_too_strange(object in bodies(), patch in bodies(), bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for patch_type in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            let _ = patch_type.apply(TypedKind::from(POD).object_type, &object, patch.to_string().as_bytes());
            let _ = patch_type.apply(TypedKind::from(POD).object_type, &object, &bytes);
        }
        let _ = decode::decode_apply_configuration(&bytes);
        let _ = decode::decode_apply_configuration(patch.to_string().as_bytes());
    }
}

#[test]
fn copies_of_small_values_are_bounded_by_the_memory_they_take() {
    let list: Vec<Value> = vec![json!({"": 0}); 20_000];
    let object = json!({"metadata": {"name": "a"}, "data": {"a": list}});
    let copies: Vec<Value> =
        (0..10).map(|it| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{it}")})).collect();
    let body = Value::Array(copies).to_string();
    let of = GroupVersionKind { group: "", version: "v1", kind: "ConfigMap" };
    let refused =
        PatchType::Json.apply(TypedKind::from(of).object_type, &object, body.as_bytes()).unwrap_err();
    assert_eq!(refused.status()["code"], 422);
}

/// With a loop over the list for each item, this takes minutes.
#[test]
fn long_lists_are_merged_in_linear_time() {
    const COUNT: usize = 50_000;
    // Objects take more of the memory that a decoded patch may take.
    const OBJECT_COUNT: usize = 8_000;
    let started = std::time::Instant::now();
    let of_pod = TypedKind::from(POD).object_type;
    let apply = |object: &Value, patch: &Value| {
        PatchType::Strategic.apply(of_pod, object, patch.to_string().as_bytes()).unwrap().0
    };
    let names = |first: usize| -> Value { (first..first + COUNT).map(|it| format!("a/{it}")).collect() };
    let object = json!({"metadata": {"finalizers": names(0)}});
    let merged = apply(&object, &json!({"metadata": {"finalizers": names(COUNT / 2)}}));
    assert_eq!(merged["metadata"]["finalizers"].as_array().unwrap().len(), COUNT + COUNT / 2);
    let deletion = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": names(COUNT / 2)}});
    assert_eq!(apply(&object, &deletion)["metadata"]["finalizers"].as_array().unwrap().len(), COUNT / 2);
    let items = |first: usize, more: &Value| -> Value {
        let item = |it| {
            let mut item = json!({"name": format!("n{it}")});
            item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            item
        };
        (first..first + OBJECT_COUNT).map(item).collect()
    };
    let object = json!({"spec": {"containers": items(0, &json!({"image": "i"}))}});
    let count = |object: &Value| object["spec"]["containers"].as_array().unwrap().len();
    let order = items(OBJECT_COUNT / 2, &json!({}));
    let patch = items(OBJECT_COUNT / 2, &json!({"image": "j"}));
    let merged =
        apply(&object, &json!({"spec": {"containers": patch, "$setElementOrder/containers": order}}));
    assert_eq!(count(&merged), OBJECT_COUNT + OBJECT_COUNT / 2);
    let deletions = items(OBJECT_COUNT / 2, &json!({"$patch": "delete"}));
    let order = items(0, &json!({}));
    let patch = json!({"spec": {"containers": deletions, "$setElementOrder/containers": order}});
    assert_eq!(count(&apply(&object, &patch)), OBJECT_COUNT / 2);
    let retained: Vec<String> = (0..COUNT).map(|it| it.to_string()).collect();
    let fields: serde_json::Map<_, _> = retained.iter().map(|it| (it.clone(), json!(1))).collect();
    let mut patch = json!({"data": fields});
    patch["data"]["$retainKeys"] = json!(retained);
    let _ = PatchType::Strategic.apply(of_pod, &json!({"data": {}}), patch.to_string().as_bytes());
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn a_json_patch_moves_a_bounded_number_of_items() {
    let list = |count: usize| json!({"a": vec![1; count]}).to_string();
    let moves = |count| {
        let operations = [r#"{"op":"remove","path":"/a/0"}"#, r#"{"op":"add","path":"/a/0","value":1}"#];
        format!("[{}]", operations.into_iter().cycle().take(count).collect::<Vec<_>>().join(","))
    };
    let apply = |count: usize, operations: usize| {
        let object: Value = serde_json::from_str(&list(count)).unwrap();
        let of_pod = TypedKind::from(POD).object_type;
        PatchType::Json.apply(of_pod, &object, moves(operations).as_bytes()).map(drop).map_err(|it| it.code)
    };
    assert_eq!(apply(1_000, 10_000), Ok(()));
    assert_eq!(apply(500_000, 40), Ok(()));
    assert_eq!(apply(500_000, 41), Err(hyper::StatusCode::UNPROCESSABLE_ENTITY));
}
