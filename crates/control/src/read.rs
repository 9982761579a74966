//! Reads objects for the client commands, page by page, and explains missing permissions.

use std::time::Duration;

use http::Request;
use kube::Client;
use muster_engine::controller::Verb;
use muster_engine::daemonset::facts::Kind;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::request::{JSON, collection, request};

/// Objects in one page: a megabyte or two of text.
const PAGE: usize = 500;
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an object or list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("you may not {what}: have a role grant you the verb {verb} on {resource}")]
    Forbidden { what: String, verb: String, resource: String },
    #[error(
        "{what}: the API server rejected your credentials: check that the kubeconfig belongs to this cluster and has not expired"
    )]
    Unauthorized { what: String },
    #[error("{what}: {message}")]
    Refused { what: String, code: u16, message: String },
    #[error("{what}: the API server did not answer in time")]
    Timeout { what: String },
    #[error("{what}: the answer cannot be read")]
    Unreadable { what: String, source: BoxError },
    #[error("{what}")]
    Call { what: String, source: Box<kube::Error> },
}

/// The permission that a read needs, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permission<'a> {
    pub(crate) verb: &'a str,
    pub(crate) kind: Kind,
    /// `None`: all namespaces.
    pub(crate) namespace: Option<&'a str>,
}

impl Permission<'_> {
    fn what(self) -> String {
        match self.namespace.filter(|_| self.kind != Kind::Nodes) {
            Some(namespace) => format!("{} {} in the namespace {namespace}", self.verb, self.kind.plural()),
            None if self.kind == Kind::Nodes => format!("{} nodes", self.verb),
            None => format!("{} {} of all namespaces", self.verb, self.kind.plural()),
        }
    }

    fn resource(self) -> String {
        match self.kind.group() {
            "" => self.kind.plural().to_owned(),
            group => format!("{} of the group {group}", self.kind.plural()),
        }
    }
}

/// Sends one request, without retries.
pub(crate) async fn send(
    client: &Client,
    right: Permission<'_>,
    request: Request<Vec<u8>>,
) -> Result<String, ReadError> {
    let what = right.what();
    let answered = timeout(CALL_TIMEOUT, client.request_text(request)).await;
    let answered = answered.map_err(|_| ReadError::Timeout { what: what.clone() })?;
    answered.map_err(|error| {
        let kube::Error::Api(status) = error else {
            return ReadError::Call { what, source: Box::new(error) };
        };
        match status.code {
            403 => {
                let (verb, resource) = (right.verb.to_owned(), right.resource());
                ReadError::Forbidden { what, verb, resource }
            }
            401 => ReadError::Unauthorized { what },
            code => ReadError::Refused { what, code, message: status.message.clone() },
        }
    })
}

pub(crate) async fn get(client: &Client, right: Permission<'_>, path: String) -> Result<String, ReadError> {
    send(client, right, request(Verb::Get, path, JSON, String::new())).await
}

/// Calls `take` for each object of a list, holding one page at a time.
pub(crate) async fn each(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    (field, wanted): (&str, &str),
    mut take: impl FnMut(&[u8]) -> Result<(), BoxError>,
) -> Result<(), ReadError> {
    #[derive(Deserialize)]
    struct Page<'a> {
        metadata: Head,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        r#continue: String,
    }
    let right = Permission { verb: "list", kind, namespace };
    let unreadable = |source: BoxError| ReadError::Unreadable { what: right.what(), source };
    let mut after = String::new();
    loop {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &PAGE.to_string());
        for (name, value) in [(field, wanted), ("continue", &after)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        let path = format!("{}?{}", collection(kind, namespace), query.finish());
        let text = get(client, right, path).await?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(|it| unreadable(it.into()))?;
        for item in page.items.into_iter().flatten() {
            take(item.get().as_bytes()).map_err(unreadable)?;
        }
        after = page.metadata.r#continue;
        if after.is_empty() {
            return Ok(());
        }
    }
}
