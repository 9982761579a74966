#![no_std]
//! Every decision Muster takes: facts in, plans out.
extern crate alloc;

pub mod go_json;
pub mod manifest;
pub mod meaning;
pub mod scenario;
