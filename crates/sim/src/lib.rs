//! A seeded, deterministic world around engine and store.
