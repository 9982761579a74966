//! [`Text`], the string type of decoded objects, the truncation of texts, and the message of a panic.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;

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

/// Returns the message of a panic from the payload of the panic. `None` if the panic has no message.
pub fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;

    #[test]
    fn a_panic_has_the_message_of_its_payload() {
        assert_eq!(panic_message(&"static"), Some("static"));
        assert_eq!(panic_message(&String::from("formatted")), Some("formatted"));
        let boxed: Box<dyn Any + Send> = Box::new("boxed");
        assert_eq!(panic_message(&*boxed), Some("boxed"));
        assert_eq!(panic_message(&7), None);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(truncate("für", 4, "..."), "für");
        assert_eq!(truncate("für", 3, "..."), "fü...");
        assert_eq!(truncate("für", 2, "..."), "f...");
        assert_eq!(truncate("für", 0, ""), "");
        assert_eq!(truncate("", 0, "..."), "");
    }
}
