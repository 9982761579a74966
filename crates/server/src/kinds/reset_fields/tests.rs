//! For each kind and each subresource that can be written: random objects, and no field changes that may not.

use std::fmt::Write as _;

use expect_test::expect;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::json;

use super::*;
use crate::decode::arbitrary;
use crate::kinds::WRITABLE_KINDS;

/// Every subresource through which an object of the kind is written.
fn parts(kind: &Kind) -> Vec<Subresource> {
    let status = kind.has_status_subresource().then_some(Subresource::Status);
    let own = kind.subresources.iter().filter(|it| !it.mutable_fields.is_empty()).map(|it| it.subresource);
    [Subresource::Whole].into_iter().chain(status).chain(own).collect()
}

fn stored() -> impl Iterator<Item = &'static Kind> {
    WRITABLE_KINDS.iter().copied().filter(|it| it.create_action.is_none())
}

fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |it, name| it.get(name))
}

/// The fields that differ from the stored object although the subresource may not change them.
fn violations(kind: &Kind, subresource: Subresource, new: &Value, old: &Value) -> Vec<String> {
    let mut wrong: Vec<String> = kind
        .reset_fields(subresource)
        .chain(IMMUTABLE_METADATA.into_iter().filter(|it| it[1] != "generation"))
        .filter(|path| at(new, path) != at(old, path))
        .map(|path| path.join("."))
        .collect();
    let Some(changes) = kind.mutable_fields(subresource) else { return wrong };
    // With what may change taken out of both, the rest is equal.
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for path in changes {
            copy_field(path, &Value::Null, &mut rest);
        }
        for name in ["apiVersion", "kind"] {
            copy_field(&[name], &Value::Null, &mut rest);
        }
        for path in [["metadata", "generation"], ["metadata", "annotations"]] {
            copy_field(&path, &Value::Null, &mut rest);
        }
        // An object without fields is as good as none.
        if let Some(rest) = rest.as_object_mut() {
            rest.retain(|_, it| is_set(it));
        }
        rest
    };
    if rest(new) != rest(old) {
        wrong.push(format!("{} is not {}", rest(new), rest(old)));
    }
    wrong
}

/// Configuration of the random objects. The seeds of failures are kept in `proptest-regressions`.
fn config() -> Config {
    Config { cases: 60, source_file: Some(file!()), ..Config::default() }
}

fn check(config: &Config, write: fn(&Kind, Subresource, &mut Value, &Value)) -> Result<(), String> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    for kind in stored() {
        for subresource in parts(kind) {
            let mut runner = TestRunner::new(config.clone());
            let checked = runner.run(&(bytes(), bytes()), |(old, new)| {
                let gvk = kind.storage_kind().gvk();
                let object = |bytes: &[u8]| {
                    let mut object = arbitrary::valid_object_of_kind(gvk, bytes);
                    object["metadata"]["name"] = json!("x");
                    object
                };
                let (old, mut new) = (object(&old), object(&new));
                write(kind, subresource, &mut new, &old);
                let wrong = violations(kind, subresource, &new, &old);
                if wrong.is_empty() { Ok(()) } else { Err(TestCaseError::fail(wrong.join("; "))) }
            });
            checked.map_err(|why| format!("{} {subresource:?}: {why}", kind.kind))?;
        }
    }
    Ok(())
}

#[test]
fn no_write_changes_a_field_that_its_subresource_may_not_change() {
    check(&config(), Kind::prepare_for_update).unwrap_or_else(|why| panic!("{why}"));
}

/// Mutants of the rule: each is found.
#[test]
fn a_write_that_changes_such_a_field_is_found() {
    // These failures are expected, so their seeds are not kept.
    let config = Config { failure_persistence: None, ..config() };
    assert!(check(&config, |_, _, _, _| {}).is_err(), "nothing is kept");
    let keeps_status_alone = |kind: &Kind, subresource: Subresource, new: &mut Value, old: &Value| {
        let request = new["spec"].clone();
        kind.prepare_for_update(subresource, new, old);
        if kind.kind == "CertificateSigningRequest" && subresource == Subresource::Whole {
            new["spec"] = request;
        }
    };
    let found = check(&config, keeps_status_alone).unwrap_err();
    assert!(found.starts_with("CertificateSigningRequest Whole"), "{found}");
}

#[test]
fn a_field_is_copied_as_it_is_or_removed() {
    let check = |path: &[&str], from: Value, mut to: Value, expected: Value| {
        copy_field(path, &from, &mut to);
        assert_eq!(to, expected, "{path:?} of {from}");
    };
    check(&["a"], json!({"a": 1}), json!({"a": 2, "b": 3}), json!({"a": 1, "b": 3}));
    check(&["a"], json!({}), json!({"a": 2, "b": 3}), json!({"b": 3}));
    check(&["a", "b"], json!({"a": {"b": 1}}), json!({}), json!({"a": {"b": 1}}));
    check(&["a", "b"], json!({"a": {"b": 1}}), json!({"a": 7}), json!({"a": {"b": 1}}));
    check(&["a", "b"], json!({}), json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 2}}));
    check(&["a", "b"], json!({}), json!({"a": 7}), json!({"a": 7}));
    check(&["a", "b"], json!({}), json!({}), json!({}));
}

/// The table that the property tests use, compared with upstream's `GetResetFields` and `PrepareForUpdate`.
#[test]
fn which_fields_each_write_may_change() {
    let join = |paths: &mut dyn Iterator<Item = FieldPath>| {
        paths.map(|it| it.join(".")).collect::<Vec<_>>().join(" ")
    };
    let mut table = String::new();
    for kind in stored() {
        for subresource in parts(kind) {
            let reset = join(&mut kind.reset_fields(subresource));
            let mutable = match kind.mutable_fields(subresource) {
                Some(paths) => join(&mut paths.iter().copied()),
                None => "all".to_owned(),
            };
            let except = if reset.is_empty() { String::new() } else { format!(" except {reset}") };
            writeln!(table, "{} {subresource:?}: {mutable}{except}", kind.kind).unwrap();
        }
    }
    expect![[r#"
        ConfigMap Whole: all
        Endpoints Whole: all
        Event Whole: all
        LimitRange Whole: all
        Namespace Whole: all except status spec.finalizers
        Namespace Status: metadata status except spec
        Namespace Finalize: metadata spec except status
        Node Whole: all except status
        Node Status: metadata status except spec
        Pod Whole: all except status
        Pod Status: metadata status except spec metadata.deletionTimestamp metadata.ownerReferences
        Pod Binding: metadata.annotations spec.nodeName status.conditions status.nominatedNodeName
        Pod EphemeralContainers: spec.ephemeralContainers
        PodTemplate Whole: all
        ResourceQuota Whole: all except status
        ResourceQuota Status: metadata status except spec
        Secret Whole: all
        ServiceAccount Whole: all
        Service Whole: all except status
        Service Status: metadata status except spec
        ControllerRevision Whole: all
        DaemonSet Whole: all except status
        DaemonSet Status: metadata status except spec
        Event Whole: all
        CertificateSigningRequest Whole: all except status spec
        CertificateSigningRequest Status: metadata status except spec
        CertificateSigningRequest Approval: metadata status.conditions except spec status.certificate
        PodDisruptionBudget Whole: all except status
        PodDisruptionBudget Status: metadata status except spec
        ClusterRoleBinding Whole: all
        ClusterRole Whole: all
        RoleBinding Whole: all
        Role Whole: all
        PriorityClass Whole: all
        Lease Whole: all
        RuntimeClass Whole: all
        EndpointSlice Whole: all
        ClusterRolloutPolicy Whole: all except status
        ClusterRolloutPolicy Status: metadata status except spec metadata.annotations metadata.finalizers metadata.labels metadata.ownerReferences
        DaemonRollout Whole: all except status
        DaemonRollout Status: metadata status except spec metadata.annotations metadata.finalizers metadata.labels metadata.ownerReferences
        RolloutPolicy Whole: all except status
        RolloutPolicy Status: metadata status except spec metadata.annotations metadata.finalizers metadata.labels metadata.ownerReferences
        DaemonSet Whole: all except status
        DaemonSet Status: metadata status except spec
    "#]].assert_eq(&table);
}
