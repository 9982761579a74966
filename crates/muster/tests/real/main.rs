//! Real nodes: `muster up --nodes N` with real containerds, and what is seen from inside real containers.
//!
//! The tests need root, containerd and other programs, so they are ignored by default. They fail if one is missing.

mod alone;
mod bed;
mod clients;
mod cluster;
mod deaths;
mod fields;
mod host;
mod hostile;
mod images;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../bed/installed.rs"]
mod installed;
mod join;
mod names;
mod net;
mod reach;
#[path = "../bed/redact.rs"]
mod redact;
mod registry;
mod repair;
mod rollout;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../bed/rollout_judge.rs"]
mod rollout_judge;
mod servers;
#[path = "../bed/transcript.rs"]
mod transcript;
