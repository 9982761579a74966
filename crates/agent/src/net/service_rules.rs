//! Applies the nftables rules of Services.

use std::sync::Arc;

use muster_engine::service_proxy::NftTable;

use super::{NetworkError, command, conntrack};

/// The nftables table of Services, as it was last applied to the kernel.
#[derive(Debug)]
pub(super) struct ServiceRules {
    /// The table that was last applied. `None` if the kernel's state is unknown.
    applied: Option<Arc<NftTable>>,
}

impl ServiceRules {
    pub(super) fn new() -> Self {
        Self { applied: None }
    }

    /// Applies the table if it differs from the applied table, and deletes stale conntrack entries of UDP flows.
    pub(super) async fn apply_table(&mut self, table: NftTable) -> Result<(), NetworkError> {
        // If this fails, the kernel's state is unknown.
        let before = self.applied.take();
        let script = match &before {
            None => table.replacement_script(),
            Some(before) => table.incremental_script(before),
        };
        let table = Arc::new(table);
        if !script.is_empty() {
            tracing::debug!(lines = script.lines().count(), "applying nftables rules");
            command::run_program("nft", &["-f", "-"], &script).await?;
            delete_stale_udp_flows(before.unwrap_or_default(), table.clone()).await?;
        }
        self.applied = Some(table);
        Ok(())
    }

    /// Whether the table that was last applied still exists in the kernel. Changed rules are not detected. Also true if
    /// `applied` is `None`, because the next [`Self::apply_table`] then writes the whole table.
    pub(super) async fn is_table_present(&self) -> bool {
        self.applied.is_none()
            || command::run_program("nft", &["list", "chain", "ip", "muster", "balance"], "").await.is_ok()
    }
}

/// Deletes the conntrack entries of UDP flows to removed endpoints, because new rules affect only new flows.
async fn delete_stale_udp_flows(before: Arc<NftTable>, now: Arc<NftTable>) -> Result<(), NetworkError> {
    if !now.changes_udp_endpoints(&before) {
        return Ok(());
    }
    let forgotten =
        tokio::task::spawn_blocking(move || conntrack::delete_udp_flows(|it| now.is_stale_flow(&before, it)))
            .await;
    let forgotten = forgotten.unwrap_or_else(|it| Err(std::io::Error::other(it)));
    let count = forgotten.map_err(|source| NetworkError::DeleteFlows { source })?;
    if count != 0 {
        tracing::info!(count, "deleted conntrack entries of removed UDP endpoints");
    }
    Ok(())
}
