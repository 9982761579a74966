//! Applies the nftables rules of Services.

use std::sync::Arc;

use muster_engine::service_proxy::Table;

use super::{NetError, flows, tool};

/// The nftables table that was last applied; `None`: the kernel's state is unknown.
#[derive(Debug)]
pub(super) struct Services {
    told: Option<Arc<Table>>,
}

impl Services {
    pub(super) fn new() -> Self {
        Self { told: None }
    }

    pub(super) async fn apply(&mut self, table: Table) -> Result<(), NetError> {
        // If this fails, the kernel's state is unknown.
        let before = self.told.take();
        let script = match &before {
            None => table.replacement(),
            Some(before) => table.difference(before),
        };
        let table = Arc::new(table);
        if !script.is_empty() {
            tracing::debug!(lines = script.lines().count(), "applying nftables rules");
            tool::run("nft", &["-f", "-"], &script).await?;
            forget_flows(before.unwrap_or_default(), table.clone()).await?;
        }
        self.told = Some(table);
        Ok(())
    }

    /// Whether the applied table still exists.
    pub(super) async fn stands(&self) -> bool {
        self.told.is_none()
            || tool::run("nft", &["list", "chain", "ip", "muster", "balance"], "").await.is_ok()
    }
}

/// Deletes conntrack entries of UDP flows to removed endpoints: new rules affect new flows only.
async fn forget_flows(before: Arc<Table>, now: Arc<Table>) -> Result<(), NetError> {
    if !now.moves_flows(&before) {
        return Ok(());
    }
    let forgotten = tokio::task::spawn_blocking(move || flows::forget(|it| now.is_astray(&before, it))).await;
    let forgotten = forgotten.unwrap_or_else(|it| Err(std::io::Error::other(it)));
    let count = forgotten.map_err(|source| NetError::Flows { source })?;
    if count != 0 {
        tracing::info!(count, "deleted conntrack entries of removed UDP endpoints");
    }
    Ok(())
}
