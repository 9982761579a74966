//! [`Text`], the string type of decoded objects, and how long texts are shortened.

use alloc::borrow::Cow;
use alloc::format;
use alloc::sync::Arc;

/// An immutable, reference-counted string, so that many objects can share one name in memory.
pub type Text = Arc<str>;

/// Shortens a text of more than `bytes_max` bytes to at most `bytes_max` bytes, and appends `mark`. Never cuts within a
/// character. Returns a shorter text unchanged.
pub fn truncate<'a>(text: &'a str, bytes_max: usize, mark: &str) -> Cow<'a, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    format!("{}{mark}", &text[..text.floor_char_boundary(bytes_max)]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(truncate("für", 4, "..."), "für");
        assert_eq!(truncate("für", 3, "..."), "fü...");
        assert_eq!(truncate("für", 2, "..."), "f...");
        assert_eq!(truncate("für", 0, ""), "");
        assert_eq!(truncate("", 0, "..."), "");
    }
}
