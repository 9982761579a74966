//! Reads objects for `muster explain` and `muster plan`, page by page, and explains missing permissions.

use std::time::Duration;

use http::Request;
use kube::Client;
use muster_engine::controller::Verb;
use muster_engine::daemonset::facts::Kind;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::request::{JSON, collection, request};

/// Number of objects in one page of a list: a megabyte or two of JSON.
const PAGE_SIZE: usize = 500;
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an object or list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("you may not {operation}: have a role grant you the verb {verb} on {resource}")]
    Forbidden { operation: String, verb: String, resource: String },
    #[error(
        "{operation}: the API server rejected your credentials: check that the kubeconfig belongs to this cluster and has not expired"
    )]
    Unauthorized { operation: String },
    #[error("{operation}: {message}")]
    Refused { operation: String, code: u16, message: String },
    #[error("{operation}: the API server did not answer in time")]
    Timeout { operation: String },
    #[error("{operation}: the answer cannot be read")]
    Unreadable { operation: String, source: BoxError },
    #[error("{operation}")]
    Call { operation: String, source: Box<kube::Error> },
}

/// The permission that a read needs, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permission<'a> {
    pub(crate) verb: &'a str,
    pub(crate) kind: Kind,
    /// The namespace of the objects; `None` for all namespaces.
    pub(crate) namespace: Option<&'a str>,
}

impl Permission<'_> {
    /// The operation in words, such as `list pods in the namespace a`.
    fn operation(self) -> String {
        match self.namespace.filter(|_| self.kind != Kind::Nodes) {
            Some(namespace) => format!("{} {} in the namespace {namespace}", self.verb, self.kind.plural()),
            None if self.kind == Kind::Nodes => format!("{} nodes", self.verb),
            None => format!("{} {} of all namespaces", self.verb, self.kind.plural()),
        }
    }

    /// The resource and its API group in words.
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
    permission: Permission<'_>,
    request: Request<Vec<u8>>,
) -> Result<String, ReadError> {
    let operation = permission.operation();
    let response = timeout(CALL_TIMEOUT, client.request_text(request)).await;
    let response = response.map_err(|_| ReadError::Timeout { operation: operation.clone() })?;
    response.map_err(|error| {
        let kube::Error::Api(status) = error else {
            return ReadError::Call { operation, source: Box::new(error) };
        };
        match status.code {
            403 => {
                let (verb, resource) = (permission.verb.to_owned(), permission.resource());
                ReadError::Forbidden { operation, verb, resource }
            }
            401 => ReadError::Unauthorized { operation },
            code => ReadError::Refused { operation, code, message: status.message.clone() },
        }
    })
}

pub(crate) async fn get(
    client: &Client,
    permission: Permission<'_>,
    path: String,
) -> Result<String, ReadError> {
    send(client, permission, request(Verb::Get, path, JSON, String::new())).await
}

/// Calls `visit` for every object of a list, holding one page at a time.
pub(crate) async fn for_each_object(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    (field, selector): (&str, &str),
    mut visit: impl FnMut(&[u8]) -> Result<(), BoxError>,
) -> Result<(), ReadError> {
    #[derive(Deserialize)]
    struct Page<'a> {
        metadata: ListMeta,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    struct ListMeta {
        #[serde(default)]
        r#continue: String,
    }
    let permission = Permission { verb: "list", kind, namespace };
    let unreadable = |source: BoxError| ReadError::Unreadable { operation: permission.operation(), source };
    let mut continue_token = String::new();
    loop {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &PAGE_SIZE.to_string());
        for (name, value) in [(field, selector), ("continue", &continue_token)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        let path = format!("{}?{}", collection(kind, namespace), query.finish());
        let text = get(client, permission, path).await?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(|it| unreadable(it.into()))?;
        for item in page.items.into_iter().flatten() {
            visit(item.get().as_bytes()).map_err(unreadable)?;
        }
        continue_token = page.metadata.r#continue;
        if continue_token.is_empty() {
            return Ok(());
        }
    }
}
