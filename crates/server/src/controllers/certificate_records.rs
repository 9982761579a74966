//! Which client certificates were issued: a few ConfigMaps in `kube-system`, from which `muster cert list` reads.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::auth::revoked::{NAMESPACE, RECORDS_PREFIX};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::pki::{Issued, Pki};
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::subresource::Subresource;
use crate::unstructured::{self, map_mut, str_at};

/// Records of one ConfigMap: 500 at some 200 bytes are 100 kB, of which each record rewrites one.
const RECORDS_MAX: usize = 500;

/// 5,000 nodes with two certificates each that are valid take 20; beyond these nothing is recorded.
const MAPS_MAX: usize = 200;

/// Records certificates as they are issued, until `stop`.
pub(crate) async fn keep(registry: Arc<Registry>, pki: Arc<Pki>, stop: CancellationToken) {
    loop {
        let issued = pki.take_issued();
        if !issued.is_empty()
            && let Err(refusal) = record(&registry, &issued, Timestamp::now()).await
        {
            tracing::warn!(status = %refusal.status(), "cannot record issued certificates: `muster cert list` lacks them");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = pki.issued_more() => {}
        }
    }
}

/// Rule: each client certificate that leaves the server is recorded with its serial number, subject and end, and the
/// record is removed once the certificate has expired.
pub(crate) async fn record(registry: &Registry, issued: &[Issued], now: Timestamp) -> Result<(), ApiError> {
    let kind = Kind::builtin("", "v1", "configmaps");
    let mut issued = issued.iter().peekable();
    for number in 0..MAPS_MAX {
        if issued.peek().is_none() {
            return Ok(());
        }
        let name = format!("{RECORDS_PREFIX}{number}");
        let stored = registry.storage.peek(kind, Some(NAMESPACE), &name).map(|it| unstructured::parse(&it));
        let mut object = stored.clone().unwrap_or_else(|| json!({"metadata": {"name": name}}));
        let records = map_mut(&mut object, "data");
        records.retain(|_, it| is_valid(it, now));
        if RECORDS_MAX <= records.len() {
            continue;
        }
        while records.len() < RECORDS_MAX
            && let Some(it) = issued.next()
        {
            let record = json!({
                "subject": it.subject,
                "groups": it.groups,
                "issuedAt": unstructured::time(it.at),
                "notAfter": unstructured::time(it.until),
            });
            records.insert(it.serial.clone(), json!(record.to_string()));
        }
        if stored.is_none() {
            let context = Context::of_server("create", now);
            registry.create(&context, kind, Some(NAMESPACE), object).await?;
        } else {
            let target =
                Target { kind, namespace: Some(NAMESPACE.to_owned()), name, subresource: Subresource::Whole };
            let context = Context::of_server("update", now);
            registry.update(&context, &target, |_| Ok(object.clone())).await?;
        }
    }
    Ok(())
}

fn is_valid(record: &Value, now: Timestamp) -> bool {
    let record: Option<Value> = record.as_str().and_then(|it| serde_json::from_str(it).ok());
    let until: Option<Timestamp> = record.and_then(|it| str_at(&it, "notAfter").parse().ok());
    until.is_some_and(|it| now <= it)
}
