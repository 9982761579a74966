//! A real node: its pods run as containers.

mod config;

pub use self::config::Config;
