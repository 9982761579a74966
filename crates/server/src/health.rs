//! The health endpoints `/healthz`, `/livez` and `/readyz`, in upstream's format.

use std::fmt::Write as _;

use hyper::StatusCode;

/// A request to a health endpoint, parsed from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthRequest {
    /// Name of the endpoint: `healthz`, `livez` or `readyz`.
    pub(crate) endpoint: &'static str,
    /// Name of a single check if the path has one, such as `ping` in `/livez/ping`.
    pub(crate) check: Option<String>,
}

/// The state that the health checks evaluate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthState {
    /// Whether the server is shutting down. It then still serves requests, but `/readyz` fails.
    pub(crate) is_stopping: bool,
    /// Whether the store accepts writes and its state is current.
    pub(crate) is_writable: bool,
    /// Whether the storage that several servers share is full, so that it accepts only reads and deletions.
    pub(crate) is_shared_storage_full: bool,
    /// Total size of all stored objects and the maximum of this size, both in bytes.
    pub(crate) store_bytes: (usize, usize),
}

/// Returns the status code and text of the response to a health request. `excluded` lists the names of the checks to
/// skip, from the query parameter `exclude`.
///
/// Rule: the server is alive while it responds. It is ready while the store accepts writes and the server is not
/// shutting down. `healthz` fails only while the store does not accept writes. A full etcd alone fails no check: all
/// servers share it, and a load balancer that stopped using all of them would keep away the deletes that free space.
pub(crate) fn health_response(
    request: &HealthRequest,
    state: HealthState,
    is_verbose: bool,
    excluded: &[&str],
) -> (StatusCode, String) {
    let mut checks = health_checks(request.endpoint, state);
    if let Some(wanted) = &request.check {
        // Monitoring asks for the store by upstream's name, etcd.
        checks.push(("etcd", state.is_writable));
        return match checks.iter().find(|(name, _)| name == wanted) {
            Some((_, true)) => (StatusCode::OK, "ok".to_owned()),
            Some((_, false)) => {
                let text = "internal server error: reason withheld\n".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            None => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        };
    }
    let which = request.endpoint;
    let mut text = String::new();
    let mut is_good = true;
    for (name, is_ok) in checks {
        let line = if excluded.contains(&name) {
            format!("[+]{name} excluded: ok")
        } else if is_ok && name == "store" {
            let (bytes, bytes_max) = state.store_bytes;
            let full = match state.is_shared_storage_full {
                true => "; the database of etcd is full (alarm NOSPACE), only reads and deletes work",
                false => "",
            };
            format!("[+]{name} ok: {bytes} of {bytes_max} bytes are used{full}")
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

/// Returns the results of all health checks as metrics in OpenMetrics format, for `/metrics/slis`.
pub(crate) fn health_metrics(state: HealthState) -> String {
    let mut text = "# HELP kubernetes_healthcheck Result of a single health check.\n\
                    # TYPE kubernetes_healthcheck gauge\n"
        .to_owned();
    for which in ["healthz", "livez", "readyz"] {
        for (name, is_ok) in health_checks(which, state) {
            let is_ok = u8::from(is_ok);
            writeln!(text, "kubernetes_healthcheck{{name=\"{name}\",type=\"{which}\"}} {is_ok}")
                .expect("a String takes everything");
        }
    }
    text.push_str("# EOF\n");
    text
}

/// Returns the paths of all health endpoints and of their checks, for the list of paths at `GET /`.
pub(crate) fn health_paths() -> Vec<String> {
    let well = HealthState {
        is_stopping: false,
        is_writable: true,
        is_shared_storage_full: false,
        store_bytes: (0, 0),
    };
    let of = |which: &str| {
        health_checks(which, well).into_iter().map(|(name, _)| format!("/{which}/{name}")).collect()
    };
    ["healthz", "livez", "readyz"]
        .iter()
        .flat_map(|which| [vec![format!("/{which}")], of(which)].concat())
        .collect()
}

/// Returns the name of each check of a health endpoint, and whether it passes. `which` is `healthz`, `livez` or
/// `readyz`.
fn health_checks(which: &str, state: HealthState) -> Vec<(&'static str, bool)> {
    let mut checks = vec![("ping", true), ("log", true)];
    if which != "livez" {
        checks.push(("store", state.is_writable));
    }
    checks.push(("poststarthook/rbac/bootstrap-roles", true));
    if which == "readyz" {
        checks.push(("shutdown", !state.is_stopping));
    }
    checks
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(
        which: &'static str,
        check: Option<&str>,
        state: HealthState,
        is_verbose: bool,
        expected: &Expect,
    ) {
        let request = HealthRequest { endpoint: which, check: check.map(str::to_owned) };
        let (code, text) = health_response(&request, state, is_verbose, &["log"]);
        expected.assert_eq(&format!("{} {text}", code.as_u16()));
    }

    #[test]
    fn in_upstreams_words() {
        let well = HealthState {
            is_stopping: false,
            is_writable: true,
            is_shared_storage_full: false,
            store_bytes: (5, 10),
        };
        let full = HealthState { is_stopping: true, is_writable: false, ..well };
        check("healthz", None, well, false, &expect!["200 ok"]);
        check(
            "readyz",
            None,
            well,
            true,
            &expect![[r#"
            200 [+]ping ok
            [+]log excluded: ok
            [+]store ok: 5 of 10 bytes are used
            [+]poststarthook/rbac/bootstrap-roles ok
            [+]shutdown ok
            readyz check passed
        "#]],
        );
        check(
            "readyz",
            None,
            HealthState { is_shared_storage_full: true, ..well },
            true,
            &expect![[r#"
            200 [+]ping ok
            [+]log excluded: ok
            [+]store ok: 5 of 10 bytes are used; the database of etcd is full (alarm NOSPACE), only reads and deletes work
            [+]poststarthook/rbac/bootstrap-roles ok
            [+]shutdown ok
            readyz check passed
        "#]],
        );
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
        check("healthz", Some("etcd"), well, false, &expect!["200 ok"]);
        check(
            "readyz",
            Some("etcd"),
            full,
            false,
            &expect![[r#"
            500 internal server error: reason withheld
        "#]],
        );
        check(
            "readyz",
            Some("other"),
            well,
            false,
            &expect![[r#"
            404 404 page not found
        "#]],
        );
    }
}
