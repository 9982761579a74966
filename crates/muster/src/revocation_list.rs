//! The revocation list: a ConfigMap with the credentials that the server rejects.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use muster_api::time::Time;
use muster_api::well_known::{CONFIG_MAP_REVOKED_CREDENTIALS, NAMESPACE_SYSTEM};
use serde_json::{Value, json};

/// Time for which an entry is kept after its credential has expired. The server accepts an expired token for another
/// minute, and the server's clock may differ from the clock of this machine.
const REVOCATION_RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// Maximum number of attempts to update the revocation list when writes conflict.
const UPDATE_ATTEMPTS_MAX: usize = 10;

/// Returns the entry of the revocation list for a credential that is revoked now. `subject` is the user or the Secret
/// of the credential, or empty if it is unknown. `not_after` is the expiry, or empty if the credential never expires or
/// its expiry is unknown.
pub(crate) fn revocation_entry(subject: &str, not_after: &str) -> Value {
    json!({"subject": subject, "notAfter": not_after, "revokedAt": Time::from(Timestamp::now()).to_rfc3339()})
}

/// Whether the entry is no longer needed: its credential expired more than [`REVOCATION_RETENTION`] ago. A credential
/// without an expiry time never expires.
fn is_entry_expired(entry: &str, now: Timestamp) -> bool {
    let until = json_string_field(entry, "notAfter").parse::<Timestamp>();
    until.is_ok_and(|it| it < now - REVOCATION_RETENTION)
}

/// Adds entries to the revocation list, removes expired entries, and returns the stored list. Retries the write if it
/// conflicts with another one.
pub(crate) async fn add_to_revocation_list(
    client: &Client,
    entries: BTreeMap<String, Value>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE_SYSTEM);
    for _ in 0..UPDATE_ATTEMPTS_MAX {
        let stored = read_revocation_list(client).await?;
        let is_new = stored.is_none();
        let mut map = stored.unwrap_or_default();
        map.metadata.name = Some(CONFIG_MAP_REVOKED_CREDENTIALS.to_owned());
        let data = map.data.get_or_insert_default();
        let now = Timestamp::now();
        data.retain(|_, it| !is_entry_expired(it, now));
        data.extend(entries.iter().map(|(key, it)| (key.clone(), it.to_string())));
        let written = match is_new {
            true => maps.create(&PostParams::default(), &map).await,
            false => maps.replace(CONFIG_MAP_REVOKED_CREDENTIALS, &PostParams::default(), &map).await,
        };
        match written {
            Ok(map) => return Ok(map.data.unwrap_or_default()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("update the revocation list"),
        }
    }
    bail!("update the revocation list: too many write conflicts; try again")
}

/// Reads the ConfigMap with the revocation list. Returns `None` if nothing was revoked yet.
pub(crate) async fn read_revocation_list(client: &Client) -> anyhow::Result<Option<ConfigMap>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE_SYSTEM);
    maps.get_opt(CONFIG_MAP_REVOKED_CREDENTIALS).await.context("read the revocation list")
}

/// Parses a JSON object and returns one of its string fields. Returns an empty string if the field is missing or not a
/// string, or if the JSON is invalid.
pub(crate) fn json_string_field(record: &str, name: &str) -> String {
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    record[name].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_outlives_its_credential() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        for (until, is_dropped) in [
            ("2026-01-03T00:00:00Z", false),
            // A token is accepted for a minute longer.
            ("2026-01-01T23:59:30Z", false),
            ("2026-01-01T00:00:00Z", false),
            ("2025-12-31T23:59:59Z", true),
            ("", false),
        ] {
            assert_eq!(is_entry_expired(&json!({"notAfter": until}).to_string(), now), is_dropped, "{until}");
        }
        assert!(!is_entry_expired("{}", now) && !is_entry_expired("no JSON", now));
    }
}
