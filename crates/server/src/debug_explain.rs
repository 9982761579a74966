//! Answers `/debug/explain` from the controller's in-memory state.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Future that resolves to an explanation as JSON, or to an error message.
type ExplainFuture = BoxFuture<'static, Result<String, String>>;

/// Callback of the DaemonSet controller that explains the state of a DaemonSet from the controller's memory. The
/// function takes the namespace and name of the DaemonSet, and returns JSON or an error message.
#[derive(Clone)]
pub(crate) struct ExplainProvider(Arc<dyn Fn(String, String) -> ExplainFuture + Send + Sync>);

impl fmt::Debug for ExplainProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExplainProvider").finish_non_exhaustive()
    }
}

impl ExplainProvider {
    pub(crate) fn new<F>(explain: impl Fn(String, String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        Self(Arc::new(move |namespace, name| explain(namespace, name).boxed()))
    }

    /// Returns the explanation of a DaemonSet as JSON, or an error message.
    pub(crate) async fn explain(&self, namespace: String, name: String) -> Result<String, String> {
        (self.0)(namespace, name).await
    }
}
