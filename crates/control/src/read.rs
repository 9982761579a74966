//! Reads objects for `muster explain` and `muster plan`, page by page. Errors name the missing permission.

use std::time::Duration;

use http::Request;
use kube::Client;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::Verb;
use muster_engine::daemonset::facts::Kind;
use tokio::time::timeout;

use crate::paged_list::{Page, page_query};
use crate::request::request;

/// Timeout of one request of `muster explain` or `muster plan`.
const READ_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Any error, as the cause of a [`ReadError`].
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an object or list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("you may not {operation}: a Role or ClusterRole must grant you the verb {verb} on {resource}")]
    Forbidden { operation: String, verb: String, resource: String },
    #[error(
        "{operation}: the API server rejected your credentials: check that the kubeconfig belongs to this cluster and has not expired"
    )]
    Unauthorized { operation: String },
    #[error("{operation}: {message}")]
    Refused { operation: String, code: u16, message: String },
    #[error("{operation}: the API server did not respond in time")]
    Timeout { operation: String },
    #[error("{operation}: the response cannot be parsed")]
    Unreadable { operation: String, source: BoxError },
    #[error("{operation}")]
    Call { operation: String, source: Box<kube::Error> },
}

/// The permission that a request needs, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permission<'a> {
    /// The verb, as RBAC names it.
    pub(crate) verb: &'a str,
    pub(crate) kind: Kind,
    /// The namespace of the objects. `None` for all namespaces, or for a cluster-scoped kind.
    pub(crate) namespace: Option<&'a str>,
}

impl Permission<'_> {
    /// Returns the operation in words, such as `list pods in the namespace a`.
    fn describe_operation(self) -> String {
        let is_namespaced = self.kind.watch().resource.namespaced;
        match self.namespace.filter(|_| is_namespaced) {
            Some(namespace) => format!("{} {} in the namespace {namespace}", self.verb, self.kind.plural()),
            None if !is_namespaced => format!("{} {}", self.verb, self.kind.plural()),
            None => format!("{} {} of all namespaces", self.verb, self.kind.plural()),
        }
    }

    /// Returns the resource and its API group in words, such as `daemonsets of the group apps`.
    fn describe_resource(self) -> String {
        match self.kind.group() {
            "" => self.kind.plural().to_owned(),
            group => format!("{} of the group {group}", self.kind.plural()),
        }
    }
}

/// Sends one request, without retries, and returns the body of the response. `permission` is what the request needs,
/// for error messages.
pub(crate) async fn send(
    client: &Client,
    permission: Permission<'_>,
    request: Request<Vec<u8>>,
) -> Result<String, ReadError> {
    let operation = permission.describe_operation();
    let response = timeout(READ_REQUEST_TIMEOUT, client.request_text(request)).await;
    let response = response.map_err(|_| ReadError::Timeout { operation: operation.clone() })?;
    response.map_err(|error| {
        let kube::Error::Api(status) = error else {
            return ReadError::Call { operation, source: Box::new(error) };
        };
        match status.code {
            403 => {
                let (verb, resource) = (permission.verb.to_owned(), permission.describe_resource());
                ReadError::Forbidden { operation, verb, resource }
            }
            401 => ReadError::Unauthorized { operation },
            code => ReadError::Refused { operation, code, message: status.message.clone() },
        }
    })
}

/// Reads the object or list at a URL path. Returns the body of the response.
pub(crate) async fn get(
    client: &Client,
    permission: Permission<'_>,
    path: String,
) -> Result<String, ReadError> {
    send(client, permission, request(Verb::Get, path, JSON_MEDIA_TYPE, String::new())).await
}

/// Lists the objects of a kind in one namespace, or in all namespaces if `namespace` is `None`, and calls `visit` with
/// the JSON of each object. `field` is `labelSelector` or `fieldSelector`, and `selector` its value. An empty
/// `selector` selects all objects. Only one page of the list is in memory at a time.
pub(crate) async fn for_each_object(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    (field, selector): (&str, &str),
    mut visit: impl FnMut(&[u8]) -> Result<(), BoxError>,
) -> Result<(), ReadError> {
    let permission = Permission { verb: "list", kind, namespace };
    let unreadable =
        |source: BoxError| ReadError::Unreadable { operation: permission.describe_operation(), source };
    let selector = Some((field, selector)).filter(|(_, it)| !it.is_empty());
    let mut page_token: Option<String> = None;
    loop {
        let query = page_query(selector, page_token.as_deref());
        let path = format!("{}?{query}", kind.watch().resource.collection_path(namespace));
        let text = get(client, permission, path).await?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(|it| unreadable(it.into()))?;
        for object in page.objects() {
            visit(object).map_err(unreadable)?;
        }
        page_token = page.next_page_token();
        if page_token.is_none() {
            return Ok(());
        }
    }
}
