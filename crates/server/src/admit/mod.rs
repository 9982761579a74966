//! What the server makes of an object before it is stored: defaults, and what it will not take.
//!
//! Pure functions over JSON. The table of kinds points to those of a kind: `default` and `check`.

pub(crate) mod address;
pub(crate) mod cause;
pub(crate) mod check;
pub(crate) mod default;
mod labels;
mod metadata;
pub(crate) mod names;
pub(crate) mod resources;
pub(crate) mod warn;

use self::cause::Causes;
pub(crate) use self::cause::{Cause, go_quoted};
use self::check::Write;
pub(crate) use self::labels::selects;
use crate::kinds::Kind;

/// All that is wrong with an object that would be stored.
pub(crate) fn check(kind: &Kind, write: &Write) -> Vec<Cause> {
    let mut out = Causes::default();
    if kind.plain_metadata {
        (kind.check)(write, &mut out);
        if out.is_empty() {
            check_metadata(kind, write, &mut out);
        }
    } else {
        check_metadata(kind, write, &mut out);
        metadata::check_standard_finalizers(write.new, &mut out);
        (kind.check)(write, &mut out);
    }
    out.into_inner()
}

fn check_metadata(kind: &Kind, write: &Write, out: &mut Causes) {
    match write.old {
        None => metadata::check_new(write.new, kind.name, kind.namespaced, out),
        Some(old) => metadata::check_change(write.new, old, out),
    }
}

#[cfg(test)]
mod tests;
