//! [`Text`], the string type of decoded objects.

use alloc::sync::Arc;

/// An immutable, reference-counted string, so that many objects can share one name in memory.
pub type Text = Arc<str>;
