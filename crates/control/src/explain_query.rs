//! Answers `/debug/explain` from the in-memory state of the running controller.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use muster_api::object_key::ObjectKey;
use muster_engine::explain::ControllerState;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of queries in the queue of one controller. While it is full, the controller gets no further queries.
const QUEUED_QUERIES_MAX: usize = 16;

/// Sends explain queries to the running controllers. It outlives a controller, so that after a restart the new
/// controller answers the queries.
#[derive(Clone, Default)]
pub struct ExplainQueries(Arc<Mutex<Vec<mpsc::Sender<ExplainQuery>>>>);

impl fmt::Debug for ExplainQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExplainQueries").finish_non_exhaustive()
    }
}

/// Asks the running controller for its in-memory state about one DaemonSet.
pub(crate) struct ExplainQuery {
    /// Namespace and name of the DaemonSet.
    pub(crate) key: ObjectKey,
    /// Channel to which the controller sends its state about the DaemonSet, or `None` if it has no such DaemonSet.
    pub(crate) answer: oneshot::Sender<Option<ControllerState>>,
}

/// Why an explain query has no answer. The endpoint responds with the message of this error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("this replica is not the leader, or has just become it")]
    NotLeading,
    #[error("the controller has no such DaemonSet")]
    NoSuchSet,
}

impl ExplainQueries {
    /// URL path of the endpoint that answers explain queries.
    pub const PATH: &'static str = "/debug/explain";

    /// Answers a request to the endpoint with JSON. `query` is the query string, `namespace=…&name=…`.
    pub async fn answer(&self, query: &str) -> Result<String, QueryError> {
        let parameter = |wanted: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        self.query(&parameter("namespace"), &parameter("name")).await
    }

    /// Returns the controller's in-memory state about one DaemonSet, as JSON.
    pub async fn query(&self, namespace: &str, name: &str) -> Result<String, QueryError> {
        let state = self.find_controller_state(&ObjectKey::new(namespace, name)).await?;
        Ok(state.to_json().to_string())
    }

    /// Queries each running controller until one has the DaemonSet, and returns that controller's state.
    async fn find_controller_state(&self, key: &ObjectKey) -> Result<ControllerState, QueryError> {
        let senders = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|it| !it.is_closed());
            all.clone()
        };
        let mut result = Err(QueryError::NotLeading);
        for sender in senders {
            let (answer, answered) = oneshot::channel();
            if sender.try_send(ExplainQuery { key: key.clone(), answer }).is_err() {
                continue;
            }
            match answered.await {
                Ok(Some(state)) => return Ok(state),
                Ok(None) => result = Err(QueryError::NoSuchSet),
                Err(_) => {}
            }
        }
        result
    }

    /// Registers a running controller. Returns the channel from which the controller receives the queries to answer.
    pub(crate) fn subscribe(&self) -> mpsc::Receiver<ExplainQuery> {
        let (sender, queries) = mpsc::channel(QUEUED_QUERIES_MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        queries
    }
}
