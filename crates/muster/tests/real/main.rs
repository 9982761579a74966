//! Real nodes: `muster up --nodes N` with real containerds, and what is seen from inside real containers.
//!
//! They need root and containerd. Where either is missing they say so and pass, unless MUSTER_TEST_REAL asks for them.

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
#[path = "../bed/transcript.rs"]
mod transcript;
