//! Errors, as whoever reads a log or a terminal wants them.

use std::error::Error;

/// An error and its causes on one line, each said once: many errors repeat their cause in their own words.
pub(crate) fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut words = own(error);
    let mut cause = error.source();
    while let Some(it) = cause {
        let more = own(it);
        if !words.ends_with(&more) {
            words = format!("{words}: {more}");
        }
        cause = it.source();
    }
    words
}

/// What an API server refuses is said in its own words, and not with all that its answer has.
fn own(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => format!("{} ({})", status.message, status.code),
        Some(kube::Error::Service(cause)) => cause.to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use expect_test::expect;
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Tried {
        #[error("ask for it")]
        Ask { source: kube::Error },
        #[error("read it: {source}")]
        Read { source: io::Error },
    }

    #[test]
    fn each_cause_is_said_once() {
        let status = Status { message: "Unauthorized".into(), code: 401, ..Status::default() };
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens");
        let all = [
            Tried::Ask { source: kube::Error::Api(status.into()) },
            Tried::Ask { source: kube::Error::Service(Box::new(refused())) },
            Tried::Read { source: refused() },
        ];
        expect![[r#"
            ask for it: Unauthorized (401): Unauthorized: 
            ask for it: nobody listens
            read it: nobody listens"#]]
        .assert_eq(&all.map(|it| in_words(&it)).join("\n"));
    }
}
