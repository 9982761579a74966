//! Records issued client certificates in the ConfigMaps `muster-issued-certificates-…` in `kube-system`. `muster cert
//! list` reads these ConfigMaps.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_api::well_known::{CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX, NAMESPACE_SYSTEM};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

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

/// Maximum total size in bytes of the serial numbers and records in one ConfigMap. The data of a ConfigMap has at most 1
/// MiB.
const CONFIG_MAP_BYTES_MAX: usize = 900_000;

/// Maximum number of ConfigMaps with certificate records. 5,000 nodes with two valid certificates each need 20
/// ConfigMaps. When all ConfigMaps are full, new certificates are not recorded.
const CONFIG_MAPS_MAX: usize = 200;

/// Time after which certificates are recorded again that could not be recorded, for example because the disk was full.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Records client certificates as they are issued, until `stop` is cancelled. Keeps the certificates that it could not
/// record, and retries at `RETRY_INTERVAL` and when the next certificate is issued.
pub(crate) async fn run(registry: Arc<Registry>, pki: Arc<Pki>, stop: CancellationToken) {
    let mut unrecorded = Vec::new();
    loop {
        unrecorded.extend(pki.take_issued_certificates());
        if let Err(error) = record_issued_certificates(&registry, &mut unrecorded, Timestamp::now()).await {
            tracing::warn!(
                count = unrecorded.len(),
                status = %error.status(),
                "cannot record issued certificates, will retry: until then `muster cert list` lacks them"
            );
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = pki.wait_for_issued_certificate() => {}
            () = tokio::time::sleep(RETRY_INTERVAL), if !unrecorded.is_empty() => {}
        }
    }
}

/// Writes the records of issued client certificates to the first ConfigMaps with space for them. Removes the recorded
/// certificates from `unrecorded`, also if a later write fails.
///
/// Rule: each issued client certificate is recorded with its serial number, subject, groups, time of issue and
/// expiration. Exceptions: the record is larger than `CONFIG_MAP_BYTES_MAX`, all ConfigMaps are full, or the server ends
/// before it can write the record. The record of an expired certificate is removed when its ConfigMap is next written.
pub(crate) async fn record_issued_certificates(
    registry: &Registry,
    unrecorded: &mut Vec<IssuedCertificate>,
    now: Timestamp,
) -> Result<(), ApiError> {
    unrecorded.retain(|it| {
        let bytes = record_bytes(&it.serial, &json!(record_text(it)));
        let fits = bytes <= CONFIG_MAP_BYTES_MAX;
        if !fits {
            tracing::error!(serial = %it.serial, bytes, "cannot record an issued certificate: its record is too large");
        }
        fits
    });
    for number in 0..CONFIG_MAPS_MAX {
        if unrecorded.is_empty() {
            return Ok(());
        }
        let name = format!("{CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX}{number}");
        let config_map = record_in_config_map(registry, &name, unrecorded, now).await?;
        unrecorded.retain(|it| config_map["data"].get(&it.serial).is_none());
    }
    // All ConfigMaps are full.
    unrecorded.clear();
    Ok(())
}

/// Adds as many records to a ConfigMap as it can hold, removes the records of expired certificates, and returns the
/// ConfigMap. A ConfigMap that can hold no additional record is left unchanged. A missing ConfigMap is created.
///
/// Several servers may record certificates at the same time, so the records are added to the ConfigMap that is stored
/// when the write is committed.
async fn record_in_config_map(
    registry: &Registry,
    name: &str,
    issued: &[IssuedCertificate],
    now: Timestamp,
) -> Result<Value, ApiError> {
    let kind = Kind::builtin("", "v1", "configmaps");
    if registry.storage.find(kind, Some(NAMESPACE_SYSTEM), name).is_none() {
        let object = with_records(&json!({"metadata": {"name": name}}), issued, now);
        let context = RequestContext::for_server("create", now);
        match registry.create(&context, kind, Some(NAMESPACE_SYSTEM), object).await {
            // Another server has created it.
            Err(error) if error.is_already_exists() => {}
            created => return created.map(|it| unstructured::parse_stored(&it)),
        }
    }
    let target = RequestTarget {
        kind,
        namespace: Some(NAMESPACE_SYSTEM.to_owned()),
        name: name.to_owned(),
        subresource: Subresource::Whole,
    };
    let context = RequestContext::for_server("update", now);
    let updated = registry.update(&context, &target, |stored| Ok(with_records(stored, issued, now))).await?;
    Ok(unstructured::parse_stored(&updated))
}

/// Returns a ConfigMap with as many additional records as it can hold, without the records of expired certificates. A
/// ConfigMap that can hold no additional record is returned unchanged.
fn with_records(stored: &Value, issued: &[IssuedCertificate], now: Timestamp) -> Value {
    let mut object = stored.clone();
    let records = map_at_mut(&mut object, "data");
    records.retain(|_, it| is_unexpired(it, now));
    let mut bytes: usize = records.iter().map(|(serial, it)| record_bytes(serial, it)).sum();
    let mut added = 0;
    for it in issued.iter().take(RECORDS_PER_CONFIG_MAP_MAX.saturating_sub(records.len())) {
        let record = json!(record_text(it));
        bytes += record_bytes(&it.serial, &record);
        if CONFIG_MAP_BYTES_MAX < bytes {
            break;
        }
        records.insert(it.serial.clone(), record);
        added += 1;
    }
    if added == 0 { stored.clone() } else { object }
}

/// Returns the record of a certificate: a JSON object as text.
fn record_text(certificate: &IssuedCertificate) -> String {
    json!({
        "subject": certificate.subject,
        "groups": certificate.groups,
        "issuedAt": unstructured::format_time(certificate.issued_at),
        "notAfter": unstructured::format_time(certificate.not_after),
    })
    .to_string()
}

/// Returns the size in bytes of a record in the data of a ConfigMap, with its key.
fn record_bytes(serial: &str, record: &Value) -> usize {
    serial.len() + record.as_str().map_or(0, str::len)
}

/// Whether the certificate of a record is still valid at `now`. A record that cannot be parsed counts as expired.
fn is_unexpired(record: &Value, now: Timestamp) -> bool {
    let record: Option<Value> = record.as_str().and_then(|it| serde_json::from_str(it).ok());
    let not_after: Option<Timestamp> = record.and_then(|it| str_at(&it, "notAfter").parse().ok());
    not_after.is_some_and(|it| now <= it)
}
