use alloc::sync::Arc;

use muster_api::labels::LabelRequirement;

use super::*;

fn policy(
    kind: PolicyKind,
    namespace: &str,
    name: &str,
    created: i64,
    selection: SetSelection,
) -> Arc<Policy> {
    Arc::new(Policy {
        kind,
        key: ObjectKey::new(namespace, name),
        resource_version: 1,
        generation: 1,
        created: Time::from_secs(created),
        selection,
        spec: PolicySpec::default(),
        invalid: Vec::new(),
    })
}

fn label(key: &str, value: &str) -> Selector {
    Selector::AllOf([LabelRequirement::equals(key, value)].into())
}

fn labels(key: &str, value: &str) -> Labels {
    Labels::new([(Text::from(key), Text::from(value))].into())
}

fn everything() -> Selector {
    Selector::AllOf(Vec::new())
}

fn governing(policies: &[Arc<Policy>], namespace_labels: Option<&Labels>) -> (Option<Text>, Vec<Text>) {
    let key = ObjectKey::new("logging", "agent");
    let set = SelectableSet { key: &key, labels: &labels("tier", "agent"), namespace_labels };
    let (governs, conflicted) = governing_policy(policies.iter(), set);
    let name = |it: &Arc<Policy>| it.key.name.clone();
    (governs.map(name), conflicted.into_iter().map(name).collect())
}

#[test]
fn a_name_takes_precedence_over_a_selector_and_a_selector_over_a_cluster_policy() {
    let cluster = policy(
        PolicyKind::ClusterRolloutPolicy,
        "",
        "cluster",
        1,
        SetSelection::Cluster { sets: everything(), namespaces: everything() },
    );
    let selecting = policy(
        PolicyKind::RolloutPolicy,
        "logging",
        "selecting",
        2,
        SetSelection::Selector(label("tier", "agent")),
    );
    let naming = policy(
        PolicyKind::RolloutPolicy,
        "logging",
        "naming",
        3,
        SetSelection::Names([Text::from("agent")].into()),
    );
    let all = [cluster, selecting, naming];
    assert_eq!(governing(&all, None), (Some("naming".into()), ["selecting".into(), "cluster".into()].into()));
    assert_eq!(governing(&all[..2], None), (Some("selecting".into()), ["cluster".into()].into()));
    assert_eq!(governing(&all[..1], None), (Some("cluster".into()), Vec::new()));
    assert_eq!(governing(&[], None), (None, Vec::new()));
}

#[test]
fn among_equals_the_oldest_policy_governs_then_the_first_by_name() {
    let selecting = |name, created| {
        policy(PolicyKind::RolloutPolicy, "logging", name, created, SetSelection::Selector(everything()))
    };
    let (old, new) = (selecting("z-old", 1), selecting("a-new", 2));
    assert_eq!(governing(&[new.clone(), old.clone()], None).0, Some("z-old".into()));
    assert_eq!(governing(&[selecting("b", 1), selecting("a", 1)], None).0, Some("a".into()));
}

#[test]
fn a_policy_selects_only_daemonsets_of_its_namespace_and_a_cluster_policy_by_namespace_labels() {
    let elsewhere =
        policy(PolicyKind::RolloutPolicy, "other", "elsewhere", 1, SetSelection::Selector(everything()));
    assert_eq!(governing(&[elsewhere], None).0, None);
    let cluster = policy(
        PolicyKind::ClusterRolloutPolicy,
        "",
        "cluster",
        1,
        SetSelection::Cluster { sets: everything(), namespaces: label("env", "prod") },
    );
    let all = [cluster];
    assert_eq!(governing(&all, Some(&labels("env", "prod"))).0, Some("cluster".into()));
    assert_eq!(governing(&all, Some(&labels("env", "test"))).0, None);
    assert_eq!(governing(&all, None).0, None, "the labels of the namespace are not known yet");
}

#[test]
fn the_failure_budget_is_a_share_of_the_nodes_with_the_revision_rounded_down() {
    let allowed =
        |max_nodes, nodes| FailureRules { max_nodes, ..FailureRules::default() }.tolerated_failures(nodes);
    assert_eq!(allowed(IntOrPercent::Percent(2), 1), 0);
    assert_eq!(allowed(IntOrPercent::Percent(2), 49), 0);
    assert_eq!(allowed(IntOrPercent::Percent(2), 50), 1);
    assert_eq!(allowed(IntOrPercent::Percent(2), 500), 10);
    assert_eq!(allowed(IntOrPercent::Count(3), 1), 3);
    assert_eq!(allowed(IntOrPercent::Percent(50), 15_000), LISTED_NODES_MAX - 1);
}

#[test]
fn groups_are_ranked_by_sequence_then_name_and_nodes_without_the_label_come_last() {
    let groups = NodeGroups {
        label: "zone".into(),
        sequence: ["c".into()].into(),
        max_concurrent: 1,
        max_unavailable: IntOrPercent::Percent(100),
        soak: Duration::ZERO,
    };
    let mut zones = ["", "b", "c", "a"];
    zones.sort_by_key(|it| groups.rank(it));
    assert_eq!(zones, ["c", "a", "b", ""]);
}
