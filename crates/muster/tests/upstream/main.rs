//! Progressive rollouts on upstream's kube-apiserver, with hundreds of simulated nodes: `muster controller` in place of
//! the DaemonSet controller of kube-controller-manager, and `muster controller --assist` beside it.
//!
//! The tests need the binaries of Kubernetes and etcd in the directory that MUSTER_TEST_UPSTREAM names, so they are
//! ignored by default. They fail if the variable is not set or a binary is missing.

#[path = "../../../server/tests/types/agreement_cases.rs"]
mod agreement_cases;
mod assist;
mod bed;
mod canary;
mod held;
mod invalid_policies;
mod pod_history;
mod restarts;
