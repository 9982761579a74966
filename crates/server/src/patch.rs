//! JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch.

use serde_json::{Map, Value};

use crate::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    const ACCEPTED: &str = "application/merge-patch+json, application/strategic-merge-patch+json";

    pub(crate) fn of(content_type: &str) -> Result<Self, Refusal> {
        match content_type {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Refusal::unsupported_media(Self::ACCEPTED)),
        }
    }

    pub(crate) fn apply(self, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
        match self {
            Self::Merge => {
                merge(object, patch);
                Ok(())
            }
            Self::Apply => {
                Err(Refusal::bad_request("server-side apply is not a change of the object that stands"))
            }
            Self::Strategic => strategic(object, patch)
                .map_err(|why| Refusal::bad_request(format!("unable to apply strategic merge patch: {why}"))),
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = as_map(target);
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Lists of objects that merge item by item, and the fields that name an item. The first field that the
/// items have counts: `ports` are a container's or a service's.
const MERGE_KEYS: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    ("ports", &["containerPort", "port"]),
    ("resourceClaims", &["name"]),
    ("secrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Lists of plain values that merge as sets. All other lists are replaced.
const MERGED_SETS: &[&str] = &["finalizers", "podCIDRs"];

const ORDER: &str = "$setElementOrder/";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

fn strategic(target: &mut Value, patch: &Value) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").map(|it| it.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *target = Value::Object(without_directives(patch));
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(format!("unknown $patch {other:?}")),
    }
    let target = as_map(target);
    if let Some(retained) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|name, _| retained.iter().any(|it| it == name));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_VALUES) {
            let gone = value.as_array().ok_or_else(|| format!("{name} is not a list"))?;
            if let Some(values) = target.get_mut(list).and_then(Value::as_array_mut) {
                values.retain(|it| !gone.contains(it));
            }
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let slot = target.entry(name).or_insert(Value::Null);
        match (value, merge_key(name, value)) {
            (Value::Array(items), Some(key)) => merge_items(slot, items, key)?,
            (Value::Array(values), None) if MERGED_SETS.contains(&name.as_str()) => {
                let set = as_list(slot);
                set.extend(values.iter().filter(|it| !set.contains(it)).cloned().collect::<Vec<_>>());
            }
            _ => strategic(slot, value)?,
        }
    }
    for (name, order) in patch {
        let Some(list) = name.strip_prefix(ORDER) else { continue };
        let order = order.as_array().ok_or_else(|| format!("{name} is not a list"))?;
        if let Some(items) = target.get_mut(list).and_then(Value::as_array_mut) {
            let key = order.first().and_then(|first| merge_key_among(list, first));
            reorder(items, order, key);
        }
    }
    Ok(())
}

fn merge_key(list: &str, items: &Value) -> Option<&'static str> {
    let first = items.as_array()?.iter().find(|it| it.get("$patch") != Some(&Value::from("replace")))?;
    merge_key_among(list, first)
}

fn merge_key_among(list: &str, item: &Value) -> Option<&'static str> {
    let (_, keys) = MERGE_KEYS.iter().find(|(name, _)| *name == list)?;
    keys.iter().copied().find(|key| item.get(key).is_some())
}

fn merge_items(slot: &mut Value, patches: &[Value], key: &str) -> Result<(), String> {
    let items = as_list(slot);
    let is_replace = |it: &Value| it.get(key).is_none() && it.get("$patch") == Some(&Value::from("replace"));
    if patches.iter().any(is_replace) {
        items.clear();
    }
    for patch in patches.iter().filter(|it| !is_replace(it)) {
        let name = patch.get(key).ok_or_else(|| format!("an item of the patch has no {key}"))?;
        let at = items.iter().position(|it| it.get(key) == Some(name));
        match (patch.get("$patch").and_then(Value::as_str), at) {
            (Some("delete"), Some(at)) => {
                items.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => strategic(&mut items[at], patch)?,
            (_, None) => {
                let mut item = Value::Null;
                strategic(&mut item, patch)?;
                items.push(item);
            }
        }
    }
    Ok(())
}

/// Puts the items that `order` names into that order; the others, which the patch's writer did not know
/// of, stay before whatever they stood before.
fn reorder(items: &mut Vec<Value>, order: &[Value], key: Option<&str>) {
    let name = |it: &Value| key.map_or_else(|| it.clone(), |key| it[key].clone());
    let order: Vec<Value> = order.iter().map(name).collect();
    let place = |it: &Value| order.iter().position(|named| *named == name(it));
    let (mut named, unnamed): (Vec<_>, Vec<_>) =
        items.drain(..).enumerate().partition(|(_, it)| place(it).is_some());
    named.sort_by_key(|(_, it)| place(it));

    let mut unnamed = unnamed.into_iter().peekable();
    for (stood_at, item) in named {
        while let Some((_, it)) = unnamed.next_if(|(at, _)| *at < stood_at) {
            items.push(it);
        }
        items.push(item);
    }
    items.extend(unnamed.map(|(_, it)| it));
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(name, _)| !name.starts_with('$')).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("just made one")
}

fn as_list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("just made one")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(patch_type: PatchType, object: &str, patch: &str, golden: &Expect) {
        let mut object: Value = serde_json::from_str(object).unwrap();
        patch_type.apply(&mut object, &serde_json::from_str(patch).unwrap()).unwrap();
        golden.assert_eq(&object.to_string());
    }

    fn strategic(object: &str, patch: &str, golden: &Expect) {
        check(PatchType::Strategic, object, patch, golden);
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_deletes_nulls() {
        check(
            PatchType::Merge,
            r#"{"a":{"b":1,"c":[1,2]},"d":1}"#,
            r#"{"a":{"b":null,"c":[3],"e":{"f":null,"g":1}}}"#,
            &expect![[r#"{"a":{"c":[3],"e":{"g":1}},"d":1}"#]],
        );
    }

    #[test]
    fn containers_merge_by_name_and_keep_what_others_set() {
        strategic(
            r#"{"containers":[{"name":"a","image":"a:1","env":[{"name":"X","value":"1"}]},{"name":"b"}]}"#,
            r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],
                "containers":[{"name":"c","image":"c:1"},{"name":"a","image":"a:2","env":[{"name":"Y","value":"2"}]},
                              {"name":"b","$patch":"delete"}]}"#,
            &expect![[
                r#"{"containers":[{"image":"c:1","name":"c"},{"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}],"image":"a:2","name":"a"}]}"#
            ]],
        );
    }

    #[test]
    fn ports_merge_by_the_key_they_have() {
        strategic(
            r#"{"ports":[{"containerPort":80,"name":"http"}]}"#,
            r#"{"ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":81}]}"#,
            &expect![[
                r#"{"ports":[{"containerPort":80,"name":"http","protocol":"UDP"},{"containerPort":81}]}"#
            ]],
        );
        strategic(
            r#"{"ports":[{"port":80,"targetPort":8080}]}"#,
            r#"{"ports":[{"port":80,"targetPort":9090}]}"#,
            &expect![[r#"{"ports":[{"port":80,"targetPort":9090}]}"#]],
        );
    }

    #[test]
    fn a_rollback_replaces_the_whole_template() {
        strategic(
            r#"{"spec":{"selector":1,"template":{"spec":{"containers":[{"name":"a"}],"hostNetwork":true}}}}"#,
            r#"{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"b"}]}}}}"#,
            &expect![[r#"{"spec":{"selector":1,"template":{"spec":{"containers":[{"name":"b"}]}}}}"#]],
        );
    }

    #[test]
    fn a_list_that_is_not_in_the_table_is_replaced() {
        strategic(
            r#"{"spec":{"taints":[{"key":"a"}],"tolerations":[{"key":"a"}]}}"#,
            r#"{"spec":{"taints":null,"tolerations":[{"key":"b"}]}}"#,
            &expect![[r#"{"spec":{"tolerations":[{"key":"b"}]}}"#]],
        );
    }

    #[test]
    fn a_list_can_be_replaced_item_by_item_notwithstanding() {
        strategic(
            r#"{"volumes":[{"name":"a"},{"name":"b"}]}"#,
            r#"{"volumes":[{"$patch":"replace"},{"name":"c"}]}"#,
            &expect![[r#"{"volumes":[{"name":"c"}]}"#]],
        );
    }

    #[test]
    fn retained_keys_drop_the_old_source_of_a_volume() {
        strategic(
            r#"{"volumes":[{"name":"a","emptyDir":{}}]}"#,
            r#"{"volumes":[{"name":"a","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]}"#,
            &expect![[r#"{"volumes":[{"hostPath":{"path":"/x"},"name":"a"}]}"#]],
        );
    }

    #[test]
    fn finalizers_are_a_set() {
        strategic(
            r#"{"metadata":{"finalizers":["a","b"]}}"#,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["b","c"]}}"#,
            &expect![[r#"{"metadata":{"finalizers":["b","c"]}}"#]],
        );
    }

    #[test]
    fn items_nobody_ordered_stay_before_what_they_stood_before() {
        strategic(
            r#"{"env":[{"name":"injected"},{"name":"a"},{"name":"b"},{"name":"last"}]}"#,
            r#"{"$setElementOrder/env":[{"name":"b"},{"name":"a"}],"env":[{"name":"a","value":"1"}]}"#,
            &expect![[
                r#"{"env":[{"name":"injected"},{"name":"b"},{"name":"a","value":"1"},{"name":"last"}]}"#
            ]],
        );
    }
}
