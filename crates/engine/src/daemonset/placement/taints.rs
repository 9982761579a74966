use alloc::sync::Arc;

use muster_api::taints::{Taint, TaintEffect, Toleration, any_tolerates};
use muster_api::well_known::{TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE};

use super::Verdict;
use crate::daemonset::facts::Node;
use crate::daemonset::why::Why;

/// Rule: an untolerated taint keeps new pods away; only `NoExecute` also sends the old ones off. `PreferNoSchedule`
/// and effects no rule knows do nothing.
pub(super) fn verdict(tolerations: &[Toleration], node: &Node) -> Verdict {
    let untolerated =
        |effect| node.taints.iter().find(|it| it.effect == effect && !any_tolerates(tolerations, it));
    if let Some(taint) = untolerated(TaintEffect::NoExecute) {
        return Verdict::Leave(Why::TaintSendsOff { taint: Arc::new(taint.clone()) });
    }
    if let Some(taint) = untolerated(TaintEffect::NoSchedule) {
        return Verdict::Keep(Why::TaintKeepsAway { taint: Arc::new(taint.clone()) });
    }
    Verdict::Run
}

/// Rule: the taints that node trouble itself puts on a node are never a reason to keep an old pod or not to count it:
/// a revision that makes nodes not ready would excuse itself.
pub(crate) fn is_node_trouble(taint: &Taint) -> bool {
    matches!(taint.key.as_ref(), TAINT_NODE_NOT_READY | TAINT_NODE_UNREACHABLE)
}
