//! Reference-counted strings.

use alloc::sync::Arc;

/// An immutable, reference-counted string.
pub type Text = Arc<str>;
