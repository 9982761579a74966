//! Converts deprecated AppArmor annotations of new pods to `securityContext.appArmorProfile` fields, which the kubelet
//! and Pod Security read. Upstream: `applyAppArmorVersionSkew`.

use std::collections::BTreeMap;

use muster_api::well_known::ANNOTATION_APP_ARMOR_PREFIX;
use serde_json::{Value, json};

use super::AdmissionAttributes;
use crate::request::RequestContext;
use crate::unstructured::str_at;
use crate::validation::is_valid_app_armor_profile;

/// For each AppArmor annotation of a container in a new pod, sets the field `appArmorProfile` of the container and
/// warns that the annotation is deprecated. An invalid annotation only causes the warning. Skips a container that sets
/// the field, or whose annotation equals the profile of the pod. Does nothing for Windows pods.
pub(super) fn mutate(context: &RequestContext, attributes: AdmissionAttributes<'_>, pod: &mut Value) {
    let Some(annotations) = pod["metadata"]["annotations"].as_object() else { return };
    let profiles: BTreeMap<String, String> = annotations
        .iter()
        .filter_map(|(key, value)| {
            Some((key.strip_prefix(ANNOTATION_APP_ARMOR_PREFIX)?.to_owned(), value.as_str()?.to_owned()))
        })
        .collect();
    if profiles.is_empty() || !attributes.is_create() || str_at(pod, "spec.os.name") == "windows" {
        return;
    }
    let pod_profile = pod["spec"]["securityContext"]["appArmorProfile"].clone();
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod["spec"].get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = str_at(container, "name").to_owned();
            let Some(annotation) = profiles.get(&name) else { continue };
            if !container["securityContext"]["appArmorProfile"].is_null() {
                continue;
            }
            let profile = profile_from_annotation(annotation);
            if profile.as_ref() == Some(&pod_profile) {
                continue;
            }
            if let Some(profile) = profile {
                container["securityContext"]["appArmorProfile"] = profile;
            }
            context.add_warning(format!(
                "metadata.annotations[{ANNOTATION_APP_ARMOR_PREFIX}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            ));
        }
    }
}

/// Converts the value of an AppArmor annotation to an `appArmorProfile` field. Returns `None` for an invalid value.
fn profile_from_annotation(annotation: &str) -> Option<Value> {
    let profile = match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        other => json!({"type": "Localhost", "localhostProfile": other.strip_prefix("localhost/")?}),
    };
    is_valid_app_armor_profile(&profile).then_some(profile)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use jiff::Timestamp;

    use super::super::AdmissionOperation;
    use super::*;
    use crate::kinds::Kind;
    use crate::request::RequestTarget;
    use crate::request::User;
    use crate::subresource::Subresource;

    #[test]
    fn annotations_of_new_pods_become_fields() {
        let kind = Kind::builtin("", "v1", "pods");
        let target = RequestTarget {
            kind,
            namespace: Some("a".into()),
            name: "p".into(),
            subresource: Subresource::Whole,
        };
        let admitted = |annotation: &str, of_pod: &Value, is_create: bool| {
            let mut pod = json!({
                "metadata": {"annotations": {format!("{ANNOTATION_APP_ARMOR_PREFIX}c"): annotation}},
                "spec": {"securityContext": {"appArmorProfile": of_pod}, "containers": [{"name": "c"}, {"name": "d"}]},
            });
            let old = pod.clone();
            let operation =
                if is_create { AdmissionOperation::Create } else { AdmissionOperation::Update { old: &old } };
            let context = RequestContext::new(User::server(), "create", Timestamp::UNIX_EPOCH);
            mutate(&context, AdmissionAttributes { target: &target, operation }, &mut pod);
            assert_eq!(pod["spec"]["containers"][1], json!({"name": "d"}));
            let field = &pod["spec"]["containers"][0]["securityContext"];
            format!("{annotation:?} {field} {} warnings\n", context.take_warnings().len())
        };
        let none = Value::Null;
        let lines = [
            admitted("unconfined", &none, true),
            admitted("localhost/x", &none, true),
            admitted("runtime/default", &json!({"type": "RuntimeDefault"}), true),
            admitted("runtime/default", &json!({"type": "Unconfined"}), true),
            admitted("localhost/", &none, true),
            admitted("localhost/ a", &none, true),
            admitted("", &none, true),
            admitted("unconfined", &none, false),
        ];
        // As kube-apiserver 1.36.4.
        expect![[r#"
            "unconfined" {"appArmorProfile":{"type":"Unconfined"}} 1 warnings
            "localhost/x" {"appArmorProfile":{"localhostProfile":"x","type":"Localhost"}} 1 warnings
            "runtime/default" null 0 warnings
            "runtime/default" {"appArmorProfile":{"type":"RuntimeDefault"}} 1 warnings
            "localhost/" null 1 warnings
            "localhost/ a" null 1 warnings
            "" null 1 warnings
            "unconfined" null 0 warnings
        "#]]
        .assert_eq(&lines.concat());
    }
}
