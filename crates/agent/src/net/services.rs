//! The rules for Services, as nft is told them.

use muster_engine::services::Table;

use super::{NetError, tool};

/// What nft was told last; nothing: whatever is there is not known.
#[derive(Debug)]
pub(super) struct Services {
    told: Option<Table>,
}

impl Services {
    pub(super) fn new() -> Self {
        Self { told: None }
    }

    pub(super) async fn apply(&mut self, table: Table) -> Result<(), NetError> {
        let script = match &self.told {
            None => table.replacement(),
            Some(told) => table.difference(told),
        };
        if !script.is_empty() {
            tracing::debug!(lines = script.lines().count(), "tell nft");
            tool::run("nft", &["-f", "-"], &script).await?;
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
