//! Everybody but the controllers.

pub mod chaos;
pub mod kubelet;
pub mod nodes;
pub mod users;
