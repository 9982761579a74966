//! `/healthz`, `/livez` and `/readyz`, in upstream's words.

use std::fmt::Write as _;

use hyper::StatusCode;

/// One of the three, and whether it is asked whole or for one check: `/readyz`, `/livez/ping`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) which: &'static str,
    pub(crate) check: Option<String>,
}

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// It takes no new work.
    pub(crate) is_stopping: bool,
    /// Writes are possible.
    pub(crate) is_writable: bool,
}

/// Rule: the server is alive while it answers; it is ready while it can write and is not stopping.
pub(crate) fn answer(
    asked: &Asked,
    state: State,
    is_verbose: bool,
    excluded: &[&str],
) -> (StatusCode, String) {
    let readiness = asked.which == "readyz";
    let mut checks = vec![("ping", true), ("log", true)];
    if asked.which != "livez" {
        checks.push(("store", state.is_writable));
    }
    checks.push(("poststarthook/rbac/bootstrap-roles", true));
    if readiness {
        checks.push(("shutdown", !state.is_stopping));
    }
    if let Some(wanted) = &asked.check {
        return match checks.iter().find(|(name, _)| name == wanted) {
            Some((_, true)) => (StatusCode::OK, "ok".to_owned()),
            Some((_, false)) => {
                let text = "internal server error: reason withheld\n".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            None => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        };
    }
    let which = asked.which;
    let mut text = String::new();
    let mut is_good = true;
    for (name, is_ok) in checks {
        let line = if excluded.contains(&name) {
            format!("[+]{name} excluded: ok")
        } else if is_ok {
            format!("[+]{name} ok")
        } else {
            is_good = false;
            format!("[-]{name} failed: reason withheld")
        };
        writeln!(text, "{line}").expect("a String takes everything");
    }
    match (is_good, is_verbose) {
        (true, false) => (StatusCode::OK, "ok".to_owned()),
        (true, true) => (StatusCode::OK, format!("{text}{which} check passed\n")),
        (false, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{which} check failed\n")),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(which: &'static str, check: Option<&str>, state: State, is_verbose: bool, expected: &Expect) {
        let asked = Asked { which, check: check.map(str::to_owned) };
        let (code, text) = answer(&asked, state, is_verbose, &["log"]);
        expected.assert_eq(&format!("{} {text}", code.as_u16()));
    }

    #[test]
    fn in_upstreams_words() {
        let well = State { is_stopping: false, is_writable: true };
        let full = State { is_stopping: true, is_writable: false };
        check("healthz", None, well, false, &expect!["200 ok"]);
        check(
            "livez",
            None,
            full,
            true,
            &expect![[r#"
            200 [+]ping ok
            [+]log excluded: ok
            [+]poststarthook/rbac/bootstrap-roles ok
            livez check passed
        "#]],
        );
        check(
            "readyz",
            None,
            full,
            false,
            &expect![[r#"
            500 [+]ping ok
            [+]log excluded: ok
            [-]store failed: reason withheld
            [+]poststarthook/rbac/bootstrap-roles ok
            [-]shutdown failed: reason withheld
            readyz check failed
        "#]],
        );
        check(
            "readyz",
            Some("shutdown"),
            full,
            false,
            &expect![[r#"
            500 internal server error: reason withheld
        "#]],
        );
        check("readyz", Some("ping"), full, false, &expect!["200 ok"]);
        check(
            "readyz",
            Some("etcd"),
            well,
            false,
            &expect![[r#"
            404 404 page not found
        "#]],
        );
    }
}
