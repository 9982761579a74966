use expect_test::expect;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const LEVELS: [PriorityLevel; 3] = PriorityLevel::ALL;

fn queue(seats: usize, waiting_max: usize) -> FairQueue<u32> {
    let share = |reserved, max| PriorityLevelLimits { reserved, max, flow_queue_max: 5 };
    FairQueue::new(seats, [share(3, 8), share(2, 6), share(1, 2)], waiting_max)
}

fn granted(queue: &mut FairQueue<u32>) -> Vec<(FlowId, u32)> {
    std::iter::from_fn(|| queue.dispatch_next()).collect()
}

#[test]
fn a_released_seat_goes_to_the_flow_with_the_fewest_seats() {
    let mut queue = queue(12, 100);
    let busy: Vec<_> =
        (0..6).map(|_| queue.try_acquire(PriorityLevel::Workload, "busy", 6).unwrap()).collect();
    assert_eq!(queue.try_acquire(PriorityLevel::Workload, "late", 6), None, "the level is full");
    for request in 0..3 {
        queue.enqueue(PriorityLevel::Workload, "busy", 6, request).unwrap();
    }
    for request in 10..12 {
        queue.enqueue(PriorityLevel::Workload, "late", 6, request).unwrap();
    }
    let mut order = Vec::new();
    for id in busy {
        queue.release_seat(id);
        order.extend(granted(&mut queue).into_iter().map(|(_, request)| request));
    }
    // The busy flow still has seats when the first ones are released, so the other flow comes first.
    expect!["[10, 11, 0, 1, 2]"].assert_eq(&format!("{order:?}"));
}

#[test]
fn flows_with_as_many_seats_take_turns_by_arrival() {
    let mut queue = queue(12, 100);
    let held: Vec<_> =
        (0..6).map(|at| queue.try_acquire(PriorityLevel::Workload, &format!("h{at}"), 6).unwrap()).collect();
    for (name, request) in [("a", 0), ("a", 1), ("b", 2), ("c", 3), ("b", 4)] {
        queue.enqueue(PriorityLevel::Workload, name, 6, request).unwrap();
    }
    let mut order = Vec::new();
    for id in held {
        queue.release_seat(id);
        for (id, request) in granted(&mut queue) {
            order.push(request);
            queue.release_seat(id);
            order.extend(granted(&mut queue).into_iter().map(|(_, request)| request));
        }
    }
    expect!["[0, 1, 2, 3, 4]"].assert_eq(&format!("{order:?}"));
}

#[test]
fn a_level_leaves_the_reserves_of_others_alone() {
    let mut queue = queue(8, 100);
    let taken = |queue: &mut FairQueue<u32>, level, name: &str| {
        std::iter::from_fn(|| queue.try_acquire(level, name, 100)).count()
    };
    let counts = [
        taken(&mut queue, PriorityLevel::Workload, "w"),
        taken(&mut queue, PriorityLevel::Anonymous, "a"),
        taken(&mut queue, PriorityLevel::System, "s"),
    ];
    // Of 8 seats, 3 are reserved for `system` and 1 for `anonymous`.
    assert_eq!(counts, [4, 1, 3]);
}

#[test]
fn one_flow_cannot_keep_others_out_of_the_queue() {
    let mut queue = queue(8, 6);
    while queue.try_acquire(PriorityLevel::Workload, "w", 100).is_some() {}
    for request in 0..5 {
        queue.enqueue(PriorityLevel::Workload, "w", 100, request).unwrap();
    }
    assert_eq!(
        queue.enqueue(PriorityLevel::Workload, "w", 100, 5),
        Err((RejectReason::QueueFull, 5)),
        "its queue is full"
    );
    assert_eq!(queue.enqueue(PriorityLevel::Workload, "x", 100, 6).unwrap().evicted, None);
    let waiting = queue.enqueue(PriorityLevel::Workload, "y", 100, 7).unwrap();
    assert_eq!(waiting.evicted, Some(4), "the last request of the longest queue makes room");
    assert_eq!(queue.waiting_requests(PriorityLevel::Workload), 6);
}

#[test]
fn idle_flows_are_forgotten() {
    let mut queue = queue(8, 6);
    let held = queue.try_acquire(PriorityLevel::Workload, "held", 1).unwrap();
    for at in 0..3 * IDLE_FLOWS_MAX {
        let id = queue.try_acquire(PriorityLevel::Workload, &format!("u{at}"), 1).unwrap();
        queue.release_seat(id);
        assert!(queue.flows.len() <= IDLE_FLOWS_MAX + 3, "{at}");
    }
    assert_eq!(queue.try_acquire(PriorityLevel::Workload, "held", 1), None, "a flow with a seat is kept");
    queue.release_seat(held);
    assert!(queue.try_acquire(PriorityLevel::Workload, "held", 1).is_some());
}

#[derive(Debug, Clone)]
enum Step {
    Request { level: usize, flow: u8 },
    Leave { nth: usize },
    Cancel { nth: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_usize, 0..6_u8).prop_map(|(level, flow)| Step::Request { level, flow }),
        2 => (0..64_usize).prop_map(|nth| Step::Leave { nth }),
        1 => (0..64_usize).prop_map(|nth| Step::Cancel { nth }),
    ]
}

proptest! {
    /// For every order of requests, releases and cancellations: seats are never exceeded, reserves are kept, no flow has more than
    /// its maximum, queues are bounded, nothing waits that could have a seat, and everything that waits is served in the end.
    #[test]
    fn seats_are_bounded_and_no_flow_starves(steps in vec(step(), 0..400)) {
        const FLOW_SEATS: usize = 4;
        let (seats, waiting_max) = (10, 12);
        let mut queue = queue(seats, waiting_max);
        let mut seated: Vec<(FlowId, usize, u8)> = Vec::new();
        let mut waiting: Vec<(u32, FlowId, QueuedRequestId, usize, u8)> = Vec::new();
        let mut number = 0;
        let check = |queue: &FairQueue<u32>,
                         seated: &[(FlowId, usize, u8)],
                         waiting: &[(u32, FlowId, QueuedRequestId, usize, u8)]| {
            prop_assert_eq!(queue.seats_in_use, seated.len());
            prop_assert_eq!(queue.waiting, waiting.len());
            prop_assert!(seated.len() <= seats && waiting.len() <= waiting_max);
            let unmet: usize = queue.levels.iter().map(|it| it.limits.reserved.saturating_sub(it.seats_in_use)).sum();
            prop_assert!(unmet <= seats - seated.len());
            for (at, level) in LEVELS.into_iter().enumerate() {
                let of_level = seated.iter().filter(|it| it.1 == at).count();
                prop_assert_eq!(queue.seats_in_use(level), of_level);
                prop_assert!(of_level <= queue.levels[at].limits.max);
                for flow in 0..6 {
                    let own = seated.iter().filter(|it| (it.1, it.2) == (at, flow)).count();
                    let queued = waiting.iter().filter(|it| (it.3, it.4) == (at, flow)).count();
                    prop_assert!(own <= FLOW_SEATS && queued <= 5);
                    prop_assert!(queued == 0 || FLOW_SEATS <= own || !queue.has_free_seat(level));
                }
            }
            Ok(())
        };
        for step in steps {
            match step {
                Step::Request { level, flow } => {
                    let name = flow.to_string();
                    number += 1;
                    if let Some(id) = queue.try_acquire(LEVELS[level], &name, FLOW_SEATS) {
                        seated.push((id, level, flow));
                    } else if let Ok(it) = queue.enqueue(LEVELS[level], &name, FLOW_SEATS, number) {
                        waiting.retain(|waiter| Some(waiter.0) != it.evicted);
                        waiting.push((number, it.flow, it.request_id, level, flow));
                    }
                }
                Step::Leave { nth } if !seated.is_empty() => {
                    let (id, ..) = seated.swap_remove(nth % seated.len());
                    queue.release_seat(id);
                }
                Step::Cancel { nth } if !waiting.is_empty() => {
                    let (request, id, request_id, ..) = waiting.swap_remove(nth % waiting.len());
                    prop_assert_eq!(queue.cancel_request(id, request_id), Some(request));
                }
                _ => {}
            }
            let fewest = |level: usize, flow: u8, seated: &[(FlowId, usize, u8)]| {
                seated.iter().filter(|it| (it.1, it.2) == (level, flow)).count()
            };
            while let Some((id, request)) = queue.dispatch_next() {
                let at = waiting.iter().position(|it| it.0 == request).unwrap();
                let (_, _, _, level, flow) = waiting.remove(at);
                let own = fewest(level, flow, &seated);
                for other in waiting.iter().filter(|it| it.3 == level) {
                    prop_assert!(own <= fewest(level, other.4, &seated), "a flow with fewer seats waits");
                }
                seated.push((id, level, flow));
            }
            check(&queue, &seated, &waiting)?;
        }
        // Once all seats are released, every waiting request is served.
        let mut served = 0;
        let expected = waiting.len();
        while let Some((id, ..)) = seated.pop() {
            queue.release_seat(id);
            while let Some((id, _)) = queue.dispatch_next() {
                served += 1;
                seated.push((id, 0, 0));
            }
        }
        prop_assert_eq!((served, queue.seats_in_use, queue.waiting), (expected, 0, 0));
    }
}
