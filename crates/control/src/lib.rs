//! The controllers' shells: they list and watch, ask the engine what to do, and make the calls it says.
//!
//! Nothing is decided here. What to do next is `muster_engine::cache`'s word, how to carry it out and what each answer
//! means is `muster_engine::act`'s, and the bodies are `muster_engine::manifest`'s. The API server may be anyone's.

mod call;
mod daemonset;
mod garbage;
mod record;
mod reflect;

pub use daemonset::daemonsets;
pub use garbage::garbage;
pub use muster_engine::manifest::Binding;
pub use muster_engine::plan::Settings;
