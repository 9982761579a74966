//! Somebody in this process who knows what no object says.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

type Answer = BoxFuture<'static, Result<String, String>>;

#[derive(Clone)]
pub(crate) struct Knower(Arc<dyn Fn(String, String) -> Answer + Send + Sync>);

impl fmt::Debug for Knower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Knower").finish_non_exhaustive()
    }
}

impl Knower {
    pub(crate) fn new<F>(ask: impl Fn(String, String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        Self(Arc::new(move |namespace, name| ask(namespace, name).boxed()))
    }

    pub(crate) async fn ask(&self, namespace: String, name: String) -> Result<String, String> {
        (self.0)(namespace, name).await
    }
}
