//! Revisions, history and watches: synchronous, no HTTP.
