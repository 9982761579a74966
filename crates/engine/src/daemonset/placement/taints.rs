use alloc::sync::Arc;

use muster_api::taints::{Taint, TaintEffect, Toleration, any_tolerates};
use muster_api::well_known::{TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE};

use super::Verdict;
use crate::daemonset::facts::Node;
use crate::daemonset::why::Why;

/// Returns the verdict that follows from the taints of a node, for a pod with these tolerations.
///
/// Rule: an untolerated `NoSchedule` or `NoExecute` taint prevents new pods. If it is a `NoExecute` taint, existing
/// pods are deleted too. `PreferNoSchedule` and unknown effects are ignored.
pub(super) fn taint_verdict(tolerations: &[Toleration], node: &Node) -> Verdict {
    let untolerated =
        |effect| node.taints.iter().find(|it| it.effect == effect && !any_tolerates(tolerations, it));
    if let Some(taint) = untolerated(TaintEffect::NoExecute) {
        return Verdict::Leave(Why::UntoleratedNoExecuteTaint { taint: Arc::new(taint.clone()) });
    }
    if let Some(taint) = untolerated(TaintEffect::NoSchedule) {
        return Verdict::Keep(Why::UntoleratedNoScheduleTaint { taint: Arc::new(taint.clone()) });
    }
    Verdict::Run
}

/// Whether a taint is `node.kubernetes.io/not-ready` or `node.kubernetes.io/unreachable`.
///
/// Rule: a rollout never keeps an old pod because of the taints `not-ready` and `unreachable`, and these taints alone
/// never exempt a node from the budget. Otherwise nodes that a revision makes not Ready would not count against the
/// budget.
pub(crate) fn is_readiness_taint(taint: &Taint) -> bool {
    matches!(taint.key.as_ref(), TAINT_NODE_NOT_READY | TAINT_NODE_UNREACHABLE)
}
