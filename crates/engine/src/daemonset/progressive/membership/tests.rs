use alloc::format;

use super::*;

const NOW: Time = Time::from_secs(1_000);

fn labels(zone: &str) -> Labels {
    let zone = (!zone.is_empty()).then(|| (Text::from("zone"), Text::from(zone)));
    Labels::new(zone.into_iter().collect())
}

fn candidate(name: &str, created: i64) -> Candidate {
    Candidate {
        key: NodeOrder::Name.key("s", name, &labels("")),
        node: name.into(),
        created: Time::from_secs(created),
    }
}

fn group(held: &[&str]) -> GroupCandidates {
    GroupCandidates { held: held.iter().map(|it| candidate(it, 0)).collect(), ..GroupCandidates::default() }
}

fn names(admitted: &[NodeAdmission]) -> Vec<(Text, Vec<Text>)> {
    let listed = |it: &NodeAdmission| match &it.members {
        AdmittedMembers::Names(names) => names.iter().cloned().collect(),
        AdmittedMembers::UpTo { key, .. } => [Text::from(format!("up to {}", key.as_text()))].into(),
    };
    admitted.iter().map(|it| (it.group.clone(), listed(it))).collect()
}

fn membership(scope: MembershipScope, admitted: Vec<NodeAdmission>, steps: Vec<Step>) -> RolloutMembership {
    RolloutMembership {
        scope,
        order: NodeOrder::Name,
        stable_hash: "s".into(),
        admitted,
        steps,
        admitted_if_created_after: None,
    }
}

fn is_admitted(membership: &RolloutMembership, name: &str, zone: &str, created: i64) -> bool {
    let (name, labels) = (Text::from(name), labels(zone));
    membership.is_admitted(MembershipInput {
        name: &name,
        labels: &labels,
        created: Time::from_secs(created),
    })
}

#[test]
fn a_step_admits_nodes_in_order_up_to_its_target() {
    let groups = BTreeMap::from([("".into(), group(&["n3", "n1", "n2"]))]);
    let admitted = admit(&[], &"canary".into(), &groups, 2, NOW).unwrap();
    assert_eq!(names(&admitted), [("".into(), ["n1".into(), "n2".into()].into())]);
    assert_eq!(admit(&[], &"canary".into(), &groups, 0, NOW), None);
}

#[test]
fn nodes_that_are_exposed_already_are_admitted_first_and_use_no_quota() {
    let mut candidates = group(&["n1", "n2"]);
    candidates.exposed.insert(candidate("n9", 0));
    let groups = BTreeMap::from([("".into(), candidates)]);
    let admitted = admit(&[], &"canary".into(), &groups, 0, NOW).unwrap();
    assert_eq!(names(&admitted), [("".into(), ["n9".into()].into())]);
}

#[test]
fn a_step_with_spread_takes_from_the_group_with_the_fewest_exposed_nodes() {
    let mut a = group(&["a1", "a2", "a3"]);
    a.exposed_count = 1;
    let groups = BTreeMap::from([("a".into(), a), ("b".into(), group(&["b1", "b2", "b3"]))]);
    let admitted = admit(&[], &"canary".into(), &groups, 3, NOW).unwrap();
    let chosen = [("a".into(), ["a1".into()].into()), ("b".into(), ["b1".into(), "b2".into()].into())];
    assert_eq!(names(&admitted), chosen);
}

#[test]
fn a_node_that_joined_just_now_is_not_admitted() {
    let mut candidates = group(&["n2"]);
    candidates.held.insert(candidate("n1", 995));
    let groups = BTreeMap::from([("".into(), candidates)]);
    let admitted = admit(&[], &"canary".into(), &groups, 2, NOW).unwrap();
    assert_eq!(names(&admitted), [("".into(), ["n2".into()].into())]);
}

#[test]
fn more_nodes_than_can_be_listed_are_admitted_by_position() {
    let all: Vec<Text> = (0..500).map(|it| Text::from(format!("n{it:03}"))).collect();
    let held: Vec<&str> = all.iter().map(|it| &**it).collect();
    let groups = BTreeMap::from([("".into(), group(&held))]);
    let first = admit(&[], &"half".into(), &groups, 100, NOW).unwrap();
    assert_eq!(first[0].members, AdmittedMembers::Names(all[..100].iter().cloned().collect()));
    let groups = BTreeMap::from([("".into(), group(&held[100..]))]);
    let second = admit(&first, &"half".into(), &groups, 150, NOW).unwrap();
    assert_eq!(names(&second)[1], ("".into(), ["up to n249".into()].into()));
    let step = Step { name: "half".into(), ..Step::default() };
    let membership = membership(MembershipScope::Admitted, second, [step].into());
    assert!(is_admitted(&membership, "n000", "", 0));
    assert!(is_admitted(&membership, "n249", "", 0));
    assert!(!is_admitted(&membership, "n250", "", 0));
    assert!(!is_admitted(&membership, "n100x", "", 999), "a node that joins later is not admitted");
}

#[test]
fn a_position_never_moves_back() {
    let up_to = |key: &str, before: i64| NodeAdmission {
        step: "half".into(),
        group: "".into(),
        members: AdmittedMembers::UpTo {
            key: OrderKey::from_stored(key.into()),
            created_before: Time::from_secs(before),
        },
    };
    let mut admitted = [up_to("n5", 100)].to_vec();
    advance_position(
        &mut admitted,
        &"half".into(),
        &"".into(),
        OrderKey::from_stored("n3".into()),
        Time::from_secs(50),
    );
    assert_eq!(admitted, [up_to("n5", 100)]);
    advance_position(
        &mut admitted,
        &"half".into(),
        &"".into(),
        OrderKey::from_stored("n7".into()),
        Time::from_secs(200),
    );
    assert_eq!(admitted, [up_to("n7", 200)]);
}

#[test]
fn a_position_counts_only_for_nodes_of_its_group_and_selector() {
    let step = Step { name: "zones".into(), spread: Some("zone".into()), ..Step::default() };
    let admission = NodeAdmission {
        step: "zones".into(),
        group: "a".into(),
        members: AdmittedMembers::UpTo { key: OrderKey::from_stored("n5".into()), created_before: NOW },
    };
    let membership = membership(MembershipScope::Admitted, [admission].into(), [step].into());
    assert!(is_admitted(&membership, "n1", "a", 0));
    assert!(!is_admitted(&membership, "n1", "b", 0));
    assert!(!is_admitted(&membership, "n6", "a", 0));
    assert!(!is_admitted(&membership, "n1", "", 0), "nodes without the label are a group of their own");
}

/// A position must not reach up to an exposed node: held nodes before it would be admitted beyond the target.
#[test]
fn an_exposed_node_does_not_extend_a_position() {
    let all: Vec<Text> = (0..500).map(|it| Text::from(format!("n{it:03}"))).collect();
    let held: Vec<&str> = all.iter().map(|it| &**it).collect();
    let mut candidates = group(&held);
    candidates.exposed.extend(["n150x", "n490x"].map(|it| candidate(it, 0)));
    candidates.exposed.insert(candidate("n001x", 999));
    let groups = BTreeMap::from([("".into(), candidates)]);
    let admitted = admit(&[], &"half".into(), &groups, 250, NOW).unwrap();
    let listed: Vec<Text> = ["n001x", "n490x"].map(Text::from).into();
    assert_eq!(names(&admitted), [("".into(), ["up to n249".into()].into()), ("".into(), listed)]);
    let step = Step { name: "half".into(), ..Step::default() };
    let membership = membership(MembershipScope::Admitted, admitted, [step].into());
    assert_eq!(all.iter().filter(|it| is_admitted(&membership, it, "", 0)).count(), 250);
    assert!(is_admitted(&membership, "n150x", "", 0) && is_admitted(&membership, "n490x", "", 0));
    assert!(
        is_admitted(&membership, "n001x", "", 999),
        "a node that is too young for the position has its name stored"
    );
}

#[test]
fn every_node_is_assigned_the_stable_revision_during_a_rollback() {
    let admission = NodeAdmission {
        step: "canary".into(),
        group: "".into(),
        members: AdmittedMembers::Names([Text::from("n1")].into()),
    };
    let scope = |phase, has_stable| {
        let scope = MembershipScope::for_phase(phase, has_stable);
        let membership = membership(scope, [admission.clone()].into(), Vec::new());
        (is_admitted(&membership, "n1", "", 0), is_admitted(&membership, "n2", "", 0))
    };
    for phase in Phase::ALL {
        let expected = match phase {
            Phase::Complete => (true, true),
            Phase::RollingBack | Phase::RolledBack => (false, false),
            _ => (true, false),
        };
        assert_eq!(scope(phase, true), expected, "{phase:?}");
        assert_eq!(scope(phase, false), (true, true), "{phase:?} without a stable revision");
    }
}

#[test]
fn nodes_that_join_after_the_revision_are_admitted_with_new_nodes_latest() {
    let mut membership = membership(MembershipScope::Admitted, Vec::new(), Vec::new());
    membership.admitted_if_created_after = Some(Time::from_secs(500));
    assert!(is_admitted(&membership, "n1", "", 501));
    assert!(!is_admitted(&membership, "n1", "", 500));
}
