//! The simulated actors other than controllers: kubelets, users and injected faults.

pub mod chaos;
pub mod kubelet;
pub mod nodes;
pub mod users;
