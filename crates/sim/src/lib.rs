//! A seeded, deterministic world around engine and store: the shipped rules under faults.
//!
//! One seed draws a world, a mix of faults and a history of what people do. It runs in two phases: in the first,
//! everything may fail and safety is checked at every step; then all faults stop, and the world must get to where it
//! should be and stay there. `cargo sim SEED` replays one seed with its trace; `cargo sim --seeds N` runs many.

pub mod actors;
pub mod case;
pub mod faults;
pub mod invariants;
pub mod judge;
pub mod machine;
pub mod parts;
pub mod pod;
pub mod replica;
pub mod rng;
pub mod run;
pub mod server;
pub mod trace;
pub mod world;
