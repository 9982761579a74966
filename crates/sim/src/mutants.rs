//! Every bug that the catalogue can put back, and where it must be noticed.
//!
//! A mutant is a line `mutant::is("NAME")` in the engine, or in a part of the simulated cluster. The test of the same
//! name runs the cases until something is broken; together the mutants break every invariant there is, so that no check
//! is one that can never fail.
//!
//! Bugs of the catalogue without a mutant of their own: B07 is B08's; B17 is B16's; B34 and B49 are B33's; B47 is W13; B54
//! is B74's for revisions; B57 cannot be written, for no patch is made of text; B67 is `W14.burst`; B70 to B72 have no
//! counterpart here; B73 is `stale-total`; K05 is kept as it is; K09 is B63; K10 is L11; X09 is B06.

/// A bug that can be put back.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub name: &'static str,
    pub bug: &'static str,
    /// Cases that are expected to notice.
    pub cases: &'static [&'static str],
}

const fn of(name: &'static str, bug: &'static str, cases: &'static [&'static str]) -> Mutant {
    Mutant { name, bug, cases }
}

/// Invariants that are checked, each by its id.
pub const INVARIANTS: &[&str] = &[
    "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "W12", "W13", "W14", "W15", "W16",
    "W17", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "L1", "L2", "L3", "L4", "L5", "L6",
    "L7", "L8", "L9", "L10", "L11",
];

pub const MUTANTS: &[Mutant] = &[
    of("B01", "decides before pods were listed", &["B01"]),
    of("B02", "decides before revisions were listed", &["B02"]),
    of("B03", "a new leader trusts an old list", &["B03-failover", "B03-stalled-watch", "two-leaders"]),
    of("B04", "a terminating pod leaves its node free", &["B04"]),
    of("B05", "an unbound pod is on no node", &["B05"]),
    of("B06", "what is remembered survives a new UID", &["B06", "X09"]),
    of("B08", "a leaving pod is deleted again", &["B08"]),
    of("B09", "a delete that found nothing is waited for", &["B09"]),
    of("B10", "a delete has come back only when the pod is gone", &["B10"]),
    of("B11", "after a failed batch the creates are not waited for", &["B11"]),
    of("B12", "a create without an answer is not tried again", &["B12-lost"]),
    of("B12.twice", "a create without an answer is made again unasked", &["B12-lost"]),
    of("B13", "an adoption is not waited for", &["B13"]),
    of("B14", "a node with a failed pod is not counted as down", &["B14"]),
    of("B15", "a new node concerns the first set only", &["B15"]),
    of("B16", "only labels of a node are compared", &["B16"]),
    of("B19", "NoSchedule sends pods off", &["B19"]),
    of("B20", "OnDelete replaces all the same", &["B20"]),
    of("B23", "a node must be ready", &["B24"]),
    of("B24", "the pod lacks the tolerations that were decided with", &["B24"]),
    of("B25", "taints are left to the scheduler", &["B25"]),
    of("B26", "the decision lacks the tolerations that pods get", &["B26-cordoned"]),
    of("B27", "pid-pressure is not tolerated", &["B27"]),
    of("B29", "pending pods of a missing node stay", &["B29"]),
    of("B30", "a node with a pod is not looked at again", &["B30"]),
    of("B32", "a leaving pod counts as up", &["B32"]),
    of("B33", "no timer while a pod settles", &["B33"]),
    of("B35", "a node that is down stops the rollout of all", &["B35"]),
    of("B37", "no maxSurge, no update", &["B37"]),
    of("B38", "\"5\" is five per cent", &["B38"]),
    of("B40", "the wrong one of two pods goes", &["B40"]),
    of("B41", "the youngest pod stays", &["B41"]),
    of("B42", "nodes without pods are misscheduled", &["B42"]),
    of("B43", "the node's name is not asked", &["B43"]),
    of("B44", "a refused status is not written again", &["B44"]),
    of("B45", "a generation is observed before it is handled", &["B45"]),
    of("B46", "no status after a failed create", &["B46"]),
    of("B48", "a set that is being deleted is still worked on", &["B48"]),
    of("B50", "the hash label is not the name's", &["B50"]),
    of("B51", "a collision is swallowed", &["B51"]),
    of("B52", "the collision count goes up on a stale set", &["B52"]),
    of("B53", "what is no longer selected is not released", &["user-edited-pod"]),
    of("B55", "pods are relabelled with an update", &["B55", "X12"]),
    of("B56", "a taken name is looked up with a list", &["B51"]),
    of("B58", "pods are a set's by name", &["B58"]),
    of("B59", "adopts without asking whether the set lives", &["B59"]),
    of("B60", "references do not block deletion", &["B60"]),
    of("B61", "an empty selector selects everything", &["B61"]),
    of("B62", "a failed pod is the pod of its node", &["B62"]),
    of("B63", "no wait between failures", &["B63"]),
    of("B64", "an ended pod is the pod of its node", &["B64"]),
    of("B65", "a finished pod that is held blocks its node", &["B65"]),
    of("B66", "all creates at once", &["B66"]),
    of("B68", "a terminating namespace is an error like any other", &["B68"]),
    of("B69", "what a list no longer shows is kept", &["B69-pods", "B69-sets"]),
    of("B74", "orphans of other namespaces are adopted", &["B74"]),
    of("B75", "pods are a set's by labels", &["B75"]),
    of("K03", "a pod that is leaving when first seen was never created", &["K03"]),
    of("K04", "a lost node is charged", &["K04"]),
    of("K06", "the oldest pod of a node counts", &["K06"]),
    of("K07", "templates are compared byte by byte", &["K07"]),
    of("K08", "young pods are replaced without a budget", &["K08"]),
    of("X01", "deletes are not waited for", &["X01"]),
    of("X02", "no timer while own writes are waited for", &["X02"]),
    of("X05", "a missing node stops a surge", &["X05"]),
    of("X10", "the template generation makes no pod new", &["X10"]),
    of("X11", "a kept pod is replaced", &["X11"]),
    of("X12", "relabelled pods are not waited for", &["X12"]),
    of("X13", "a create that a terminating namespace refused is waited for", &["X13"]),
    of("stale-cell", "a node that changed keeps its old assessment", &["B16", "B73"]),
    of("stale-timer", "a cell whose time has come is not assessed anew", &["B33"]),
    of("stale-total", "totals keep what is gone", &["B73"]),
    of("brake", "a node the revision killed is not counted", &["brake-drain", "brake-surge"]),
    of("lost", "a node that was lost later is not counted either", &["lost-after"]),
    of("taken", "a node that was taken and seems lost is not counted", &["taken"]),
    of("W6", "one more surge than the budget", &["B73", "brake-surge", "X05"]),
    of("W7", "an old pod goes before the new one is available", &["K06", "moved-by-template-surge"]),
    of("W10", "leaving pods are released", &["B32"]),
    of("W11", "a status is written over any version", &["B50"]),
    of("W12", "a leader that slept goes on writing", &["two-leaders"]),
    of("W13", "a cached set is changed in place", &["B47"]),
    of("W14.burst", "more creates than the burst", &["B67"]),
    of("W14.retry", "failed calls are tried again at once", &["quota", "B46"]),
    of("W14.status", "a status that is right is written", &["B50"]),
    of("W14.surge", "with surge no wait between failures", &["failed-backoff-surge-down"]),
    of("W15.prune", "a revision that a pod carries is pruned", &["B65"]),
    of("W16", "a template rolled back to keeps its old number", &["rollback"]),
    of("S1", "the server makes two pods of one", &["B12"]),
    of("S2", "an owner is recorded twice", &["B13"]),
    of("S3", "unavailable is one too many", &["B50"]),
    of("S4", "a watch swallows an event of another object", &["B15", "B73"]),
    of("S5", "new pods carry another hash", &["B50"]),
    of("S6", "containers outlive a pod that was removed by force", &["B69-pods"]),
    of("S8", "plans before own writes came back", &["B13"]),
    of("S9", "a set that goes is a panic", &["delete-background"]),
    of("S10", "delays that the seed does not know of", &[]),
    of("L6", "a set in the foreground never goes", &["delete-foreground"]),
    of("L7", "nothing is pruned", &["history"]),
    of("L8", "daemons die with their controller", &["B12"]),
    of("L9", "a status is written for the time of day", &["B50"]),
    of("L10", "a lease that ran out is not taken", &["B03-failover"]),
    of("L11", "nothing is scheduled", &["K10"]),
];
