//! Properties of random object graphs.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A step of the property test.
#[derive(Clone, Debug)]
enum Step {
    /// A user deletes an object.
    Delete { at: usize, propagation: Propagation },
    /// The watches deliver all delayed events.
    DeliverWatches,
    /// The collector runs until it has nothing to do.
    RunCollector,
}

fn propagation() -> impl Strategy<Value = Propagation> {
    prop_oneof![Just(Propagation::Background), Just(Propagation::Foreground), Just(Propagation::Orphan)]
}

/// A line of a scenario for each object. Owners may be any of them, missing ones, or ones with a wrong name.
fn scenarios() -> impl Strategy<Value = Vec<String>> {
    let owner = (0..8_usize, any::<bool>(), 0..6_u8);
    let one = (0..SERVED.len(), 0..2_u8, vec(owner, 0..3), 0..8_u8);
    vec(one, 1..7).prop_map(|all| {
        let kinds: Vec<&str> = all.iter().map(|(kind, ..)| SERVED[*kind].1).collect();
        let line = |(at, (kind, namespace, owners, finalizer)): (usize, &(usize, u8, Vec<_>, u8))| {
            let mut line = format!("{} o{at}", SERVED[*kind].1);
            if *namespace == 1 {
                line += " ns=b";
            }
            for (of, blocks, wrong) in owners {
                let kind = kinds.get(*of).copied().unwrap_or("ConfigMap");
                let name = if *wrong == 0 { "other" } else { &format!("o{of}") };
                line += &format!(" of={kind}/{name}@o{of}{}", if *blocks { "!" } else { "" });
            }
            line += match finalizer {
                0 => " finalizer=orphan",
                1 => " finalizer=foregroundDeletion",
                2 => " unwatched",
                _ => "",
            };
            line
        };
        all.iter().enumerate().map(line).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delete = (0..7_usize, propagation()).prop_map(|(at, propagation)| Step::Delete { at, propagation });
    vec(prop_oneof![3 => delete, 1 => Just(Step::DeliverWatches), 2 => Just(Step::RunCollector)], 0..8)
}

proptest! {
    /// However delayed the watches are: no object with an owner is deleted, and in the end no object without one
    /// remains.
    #[test]
    fn owned_objects_stay_and_unowned_objects_are_deleted(scenario in scenarios(), steps in steps()) {
        let mut cluster = TestCluster::of(&scenario.join("\n"));
        for step in steps {
            match step {
                Step::Delete { at, propagation } => {
                    let Some(object) = cluster.server.get(format!("o{at}").as_str()) else { continue };
                    let call = GarbageCollectorCall::Delete { object: Arc::new(object.clone()), propagation, why: Why::OwnersAbsent };
                    cluster.delayed.get_or_insert_default();
                    cluster.make(&call).1.into_iter().for_each(|it| cluster.notify(it));
                }
                Step::DeliverWatches => cluster.deliver(),
                Step::RunCollector => {
                    cluster.until = cluster.now + Duration::from_secs(1);
                    cluster.run();
                }
            }
        }
        cluster.deliver();
        // Deliver the objects that were never watched.
        let all: Vec<TrackedObject> = cluster.server.values().cloned().collect();
        all.into_iter().for_each(|it| cluster.apply(applied(it)));
        cluster.until = cluster.now + Duration::from_secs(20);
        cluster.run();
        for object in cluster.server.values() {
            let dependents = cluster.server.values().filter(|it| it.blocks_deletion_of(&object.uid)).count();
            let is_unowned = !object.owners.is_empty()
                && object.owners.iter().all(|it| cluster.actual_owner_state(object, it) == Some(OwnerState::Absent));
            prop_assert!(!is_unowned || object.deleting, "{object} remains without an owner:\n{}", cluster.report());
            prop_assert!(object.owner_state() != OwnerState::OrphaningDependents, "{object} still has the finalizer orphan:\n{}", cluster.report());
            prop_assert!(
                object.owner_state() != OwnerState::WaitingForDependents || 0 < dependents,
                "{object} waits for no dependent:\n{}",
                cluster.report()
            );
        }
    }
}
