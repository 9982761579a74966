//! Values of query parameters, which the API server and the agents read in the same way.

/// Parses a boolean query parameter.
///
/// Rule: a boolean query parameter that is present is true, even if it is empty. Only the values `0` and `false`, in
/// any letter case, are false. Upstream: `Convert_Slice_string_To_bool`, whose comparison also accepts `ſ` for `s`.
pub fn parse_bool_parameter(value: &str) -> bool {
    value != "0" && !value.replace('\u{17f}', "s").eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_and_false_are_false() {
        for text in ["0", "false", "False", "FALSE", "fAlSe", "fal\u{17f}e"] {
            assert!(!parse_bool_parameter(text), "{text:?}");
        }
        for text in ["", "1", "t", "T", "true", "True", "TRUE", "yes", "no", "f", "00", "false ", " 0", "x"] {
            assert!(parse_bool_parameter(text), "{text:?}");
        }
    }
}
