//! Reads a cluster for whoever only looks: by pages, with nothing but the right to read, and in words when that is
//! missing.

use std::time::Duration;

use http::Request;
use kube::Client;
use muster_engine::daemonset::facts::Kind;
use muster_engine::daemonset::manifest::Verb;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::request::{JSON, collection, request};

/// Objects in one page: a megabyte or two of text.
const PAGE: usize = 500;
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    #[error("you may not {what}: have a role grant you the verb {verb} on {resource}")]
    Forbidden { what: String, verb: String, resource: String },
    #[error(
        "{what}: the API server does not know who you are: is the kubeconfig this cluster's, and not too old?"
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

/// What is asked for, for those who read why it was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) verb: &'a str,
    pub(crate) kind: Kind,
    /// `None`: of the whole cluster.
    pub(crate) namespace: Option<&'a str>,
}

impl Right<'_> {
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

/// Asks once.
pub(crate) async fn send(
    client: &Client,
    right: Right<'_>,
    request: Request<Vec<u8>>,
) -> Result<String, NotRead> {
    let what = right.what();
    let answered = timeout(CALL_TIMEOUT, client.request_text(request)).await;
    let answered = answered.map_err(|_| NotRead::Timeout { what: what.clone() })?;
    answered.map_err(|error| {
        let kube::Error::Api(status) = error else {
            return NotRead::Call { what, source: Box::new(error) };
        };
        match status.code {
            403 => {
                let (verb, resource) = (right.verb.to_owned(), right.resource());
                NotRead::Forbidden { what, verb, resource }
            }
            401 => NotRead::Unauthorized { what },
            code => NotRead::Refused { what, code, message: status.message.clone() },
        }
    })
}

pub(crate) async fn get(client: &Client, right: Right<'_>, path: String) -> Result<String, NotRead> {
    send(client, right, request(Verb::Get, path, JSON, String::new())).await
}

/// Hands each object of a list on as it comes: no more than a page is held.
pub(crate) async fn each(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    (field, wanted): (&str, &str),
    mut take: impl FnMut(&[u8]) -> Result<(), BoxError>,
) -> Result<(), NotRead> {
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
    let right = Right { verb: "list", kind, namespace };
    let unreadable = |source: BoxError| NotRead::Unreadable { what: right.what(), source };
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
