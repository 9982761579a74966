//! Everybody but the controllers.

pub mod chaos;
mod cluster;
pub mod kubelet;
pub mod users;
