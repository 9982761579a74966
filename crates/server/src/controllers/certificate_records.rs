//! Records issued client certificates in the ConfigMaps `muster-issued-certificates-…` in `kube-system`. `muster cert
//! list` reads these ConfigMaps.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::auth::revocation::{CREDENTIALS_NAMESPACE, ISSUED_CERTIFICATES_NAME_PREFIX};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::pki::{IssuedCertificate, Pki};
use crate::registry::Registry;
use crate::request::{RequestContext, RequestTarget};
use crate::subresource::Subresource;
use crate::unstructured::{self, map_at_mut, str_at};

/// Maximum number of certificate records in one ConfigMap. Each new record rewrites its ConfigMap, which has at most
/// 100 kB with records of 200 bytes.
const RECORDS_PER_CONFIG_MAP_MAX: usize = 500;

/// Maximum number of ConfigMaps with certificate records. 5,000 nodes with two valid certificates each need 20
/// ConfigMaps. When all ConfigMaps are full, new certificates are not recorded.
const CONFIG_MAPS_MAX: usize = 200;

/// Records client certificates as they are issued, until `stop` is cancelled.
pub(crate) async fn run(registry: Arc<Registry>, pki: Arc<Pki>, stop: CancellationToken) {
    loop {
        let issued = pki.take_issued_certificates();
        if !issued.is_empty()
            && let Err(error) = record_issued_certificates(&registry, &issued, Timestamp::now()).await
        {
            tracing::warn!(status = %error.status(), "cannot record issued certificates: `muster cert list` lacks them");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = pki.wait_for_issued_certificate() => {}
        }
    }
}

/// Writes the records of issued client certificates to the first ConfigMaps with fewer than
/// `RECORDS_PER_CONFIG_MAP_MAX` records.
///
/// Rule: each issued client certificate is recorded with its serial number, subject, groups, time of issue and
/// expiration, unless all ConfigMaps are full. The record of an expired certificate is removed when its ConfigMap is
/// next written.
pub(crate) async fn record_issued_certificates(
    registry: &Registry,
    issued: &[IssuedCertificate],
    now: Timestamp,
) -> Result<(), ApiError> {
    let kind = Kind::builtin("", "v1", "configmaps");
    let mut issued = issued.iter().peekable();
    for number in 0..CONFIG_MAPS_MAX {
        if issued.peek().is_none() {
            return Ok(());
        }
        let name = format!("{ISSUED_CERTIFICATES_NAME_PREFIX}{number}");
        let stored = registry
            .storage
            .find(kind, Some(CREDENTIALS_NAMESPACE), &name)
            .map(|it| unstructured::parse_stored(&it));
        let mut object = stored.clone().unwrap_or_else(|| json!({"metadata": {"name": name}}));
        let records = map_at_mut(&mut object, "data");
        records.retain(|_, it| is_unexpired(it, now));
        if RECORDS_PER_CONFIG_MAP_MAX <= records.len() {
            continue;
        }
        while records.len() < RECORDS_PER_CONFIG_MAP_MAX
            && let Some(it) = issued.next()
        {
            let record = json!({
                "subject": it.subject,
                "groups": it.groups,
                "issuedAt": unstructured::format_time(it.issued_at),
                "notAfter": unstructured::format_time(it.not_after),
            });
            records.insert(it.serial.clone(), json!(record.to_string()));
        }
        if stored.is_none() {
            let context = RequestContext::for_server("create", now);
            registry.create(&context, kind, Some(CREDENTIALS_NAMESPACE), object).await?;
        } else {
            let target = RequestTarget {
                kind,
                namespace: Some(CREDENTIALS_NAMESPACE.to_owned()),
                name,
                subresource: Subresource::Whole,
            };
            let context = RequestContext::for_server("update", now);
            registry.update(&context, &target, |_| Ok(object.clone())).await?;
        }
    }
    Ok(())
}

/// Whether the certificate of a record is still valid at `now`. A record that cannot be parsed counts as expired.
fn is_unexpired(record: &Value, now: Timestamp) -> bool {
    let record: Option<Value> = record.as_str().and_then(|it| serde_json::from_str(it).ok());
    let not_after: Option<Timestamp> = record.and_then(|it| str_at(&it, "notAfter").parse().ok());
    not_after.is_some_and(|it| now <= it)
}
