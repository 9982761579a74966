//! Sets the defaults of the kinds of `muster.dev`. The types in the crate `api` declare the defaults, so controllers
//! and the CustomResourceDefinitions have the same defaults.

use muster_api::muster_v1alpha1::{
    CLUSTER_ROLLOUT_POLICY, DAEMON_ROLLOUT, GROUP, KindNames, ROLLOUT_POLICY, VERSION,
};
use serde_json::Value;

use crate::types::{self, Shape, Type};

/// Sets the absent fields of a RolloutPolicy that have a default.
pub(crate) fn set_rollout_policy_defaults(policy: &mut Value) {
    set_kind_defaults(policy, &ROLLOUT_POLICY);
}

/// Sets the absent fields of a ClusterRolloutPolicy that have a default.
pub(crate) fn set_cluster_rollout_policy_defaults(policy: &mut Value) {
    set_kind_defaults(policy, &CLUSTER_ROLLOUT_POLICY);
}

/// Sets the absent fields of a DaemonRollout that have a default.
pub(crate) fn set_daemon_rollout_defaults(rollout: &mut Value) {
    set_kind_defaults(rollout, &DAEMON_ROLLOUT);
}

/// Sets the defaults that the type of a kind of `muster.dev` declares.
fn set_kind_defaults(object: &mut Value, names: &KindNames) {
    if let Some(of) = types::find_type(GROUP, VERSION, names.kind) {
        set_type_defaults(object, of);
    }
}

/// Sets each absent field of an object to the default that the type `of` declares for it, if any. Does the same in
/// nested objects and lists. An absent nested object without a default stays absent. Upstream: `defaulting.Default` of
/// custom resources.
fn set_type_defaults(object: &mut Value, of: &'static Type) {
    for field in of.fields.iter().filter(|it| it.name != "metadata") {
        if let Some(default) = field.default.filter(|_| object[field.name].is_null()) {
            object[field.name] = serde_json::from_str(default).unwrap_or_default();
        }
        let Some(value) = object.get_mut(field.name) else { continue };
        match (field.shape, value) {
            (Shape::Object(of), value @ Value::Object(_)) => set_type_defaults(value, of),
            (Shape::List(Shape::Object(of), _), Value::Array(items)) => {
                items.iter_mut().filter(|it| it.is_object()).for_each(|it| set_type_defaults(it, of));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_api::muster_v1alpha1::policy::RolloutPolicySpec;
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;

    /// The server sets the defaults that a controller reads from the same object without them.
    #[test]
    fn defaults_are_those_of_the_types() {
        let sparse = json!({"selector": {}, "windows": [{"start": "09:00", "end": "17:00"}], "steps": [{"name": "a",
            "groups": {"labelKey": "zone"}}], "failures": {"maxNodes": 0}, "checks": [{"name": "c", "webhook": {"url": "http://a",
            "secretRef": {"name": "s"}}}]});
        let mut policy = json!({"metadata": {"name": "p"}, "spec": sparse});
        set_rollout_policy_defaults(&mut policy);
        let decoded = RolloutPolicySpec::deserialize(&sparse).expect("a valid spec decodes");
        assert_eq!(policy["spec"], serde_json::to_value(decoded).expect("a spec is JSON"));
        let once = policy.clone();
        set_rollout_policy_defaults(&mut policy);
        assert_eq!(policy, once);
    }
}
