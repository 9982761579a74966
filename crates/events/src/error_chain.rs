//! Formats an error and its causes as one line.

use std::error::Error;

/// Formats an error and its causes, separated by colons. A cause is omitted if the text already ends with it, because
/// many errors print their causes themselves. An API error is formatted as the message and code of its Status, without
/// causes.
pub fn format_error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        let message = match error.downcast_ref::<kube::Error>() {
            // The cause is the whole Status, whose message this is.
            Some(kube::Error::Api(status)) => {
                next = None;
                format!("{} ({})", status.message, status.code)
            }
            Some(kube::Error::Service(cause)) => cause.to_string(),
            _ => error.to_string(),
        };
        if text.is_empty() {
            text = message;
        } else if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use expect_test::expect;
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Tried {
        #[error("get the pod")]
        Get { source: kube::Error },
        #[error("read the file: {source}")]
        Read { source: io::Error },
    }

    #[test]
    fn each_cause_is_printed_once() {
        let status = Status { message: "Unauthorized".into(), code: 401, ..Status::default() };
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let all = [
            Tried::Get { source: kube::Error::Api(status.into()) },
            Tried::Get { source: kube::Error::Service(Box::new(refused())) },
            Tried::Read { source: refused() },
        ];
        expect![[r#"
            get the pod: Unauthorized (401)
            get the pod: connection refused
            read the file: connection refused"#]]
        .assert_eq(&all.map(|it| format_error_chain(&it)).join("\n"));
    }
}
