//! Validation of file paths.

use crate::validation::field_error::{ErrorPath, FieldErrors};

/// Checks that the path is relative and contains no `..`.
pub(super) fn check_relative_path(path: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if path.starts_with('/') {
        out.invalid(at, path, "must be a relative path");
    }
    check_no_parent_references(path, at, out);
}

pub(super) fn check_no_parent_references(path: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if path.split('/').any(|it| it == "..") {
        out.invalid(at, path, "must not contain '..'");
    }
}

/// Checks that the path is relative, contains no `..`, and does not start with `..`, which the kubelet reserves.
pub(super) fn check_local_path(path: &str, at: &ErrorPath, out: &mut FieldErrors) {
    check_relative_path(path, at, out);
    if path.starts_with("..") && !path.starts_with("../") {
        out.invalid(at, path, "must not start with '..'");
    }
}
