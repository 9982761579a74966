//! The rules for Services, as nft is told them.

use std::sync::Arc;

use muster_engine::service_proxy::Table;

use super::{NetError, flows, tool};

/// What nft was told last; nothing: whatever is there is not known.
#[derive(Debug)]
pub(super) struct Services {
    told: Option<Arc<Table>>,
}

impl Services {
    pub(super) fn new() -> Self {
        Self { told: None }
    }

    pub(super) async fn apply(&mut self, table: Table) -> Result<(), NetError> {
        // What is half told is not known.
        let before = self.told.take();
        let script = match &before {
            None => table.replacement(),
            Some(before) => table.difference(before),
        };
        let table = Arc::new(table);
        if !script.is_empty() {
            tracing::debug!(lines = script.lines().count(), "tell nft");
            tool::run("nft", &["-f", "-"], &script).await?;
            forget_flows(before.unwrap_or_default(), table.clone()).await?;
        }
        self.told = Some(table);
        Ok(())
    }

    /// Whether what was told is still there.
    pub(super) async fn stands(&self) -> bool {
        self.told.is_none()
            || tool::run("nft", &["list", "chain", "ip", "muster", "balance"], "").await.is_ok()
    }
}

/// New rules are for new flows alone: what still goes where nobody is any more is forgotten.
async fn forget_flows(before: Arc<Table>, now: Arc<Table>) -> Result<(), NetError> {
    if !now.moves_flows(&before) {
        return Ok(());
    }
    let forgotten = tokio::task::spawn_blocking(move || flows::forget(|it| now.is_astray(&before, it))).await;
    let forgotten = forgotten.unwrap_or_else(|it| Err(std::io::Error::other(it)));
    let count = forgotten.map_err(|source| NetError::Flows { source })?;
    if count != 0 {
        tracing::info!(count, "flows of UDP to endpoints that are gone were sent elsewhere");
    }
    Ok(())
}
