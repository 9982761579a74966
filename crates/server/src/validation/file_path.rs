//! Validation of file paths in pod specs.

use crate::validation::field_error::{ErrorPath, FieldErrors};

/// Checks that a path is relative and contains no segment `..`.
pub(super) fn check_relative_path(path: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if path.starts_with('/') {
        out.invalid(at, path, "must be a relative path");
    }
    check_no_parent_references(path, at, out);
}

/// Checks that a path contains no segment `..`.
pub(super) fn check_no_parent_references(path: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if path.split('/').any(|it| it == "..") {
        out.invalid(at, path, "must not contain '..'");
    }
}

/// Checks that a path is relative and contains no segment `..`. Also checks that the path does not start with `..`, as
/// in `..data`, because the kubelet uses such file names itself.
pub(super) fn check_local_path(path: &str, at: &ErrorPath, out: &mut FieldErrors) {
    check_relative_path(path, at, out);
    if path.starts_with("..") && !path.starts_with("../") {
        out.invalid(at, path, "must not start with '..'");
    }
}
