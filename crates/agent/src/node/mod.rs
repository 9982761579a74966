//! A real node: its pods run as containers.

mod config;
pub mod host;

pub use self::config::{Config, Upkeep};
