//! What is told, whole.
