//! `muster cert`: lists the client certificates that the server issued, and revokes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use muster_api::well_known::{CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX, NAMESPACE_SYSTEM};
use serde_json::{Value, json};

use crate::admin::AdminFlags;
use crate::logging::{aligned_table, print_to_stdout};
use crate::revocation_list::{
    add_to_revocation_list, json_string_field, read_revocation_list, revocation_entry,
};

#[derive(Debug, clap::Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CertCommand {
    List(ListCertificatesArgs),
    Revoke(RevokeCertificatesArgs),
}

/// List the client certificates that the server issued and that have not expired
///
/// The server issues an administrator certificate at each start, and certificates of nodes and users through the
/// CertificateSigningRequest API. Certificates issued before the server kept records are not listed. Revoke them with
/// --file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster cert list
  muster cert list --data-dir /var/lib/muster")]
struct ListCertificatesArgs {
    #[command(flatten)]
    administrator: AdminFlags,
}

/// Revoke client certificates: the next request that uses a revoked certificate is rejected
///
/// Watches and streams that use a revoked certificate end within a minute. Revocation is final. To let a node rejoin,
/// remove the agent's pki directory and give the agent a new bootstrap token.
///
/// --subject also revokes certificates that the user obtains in the next five seconds, and rejects signing requests
/// that the user makes in that time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster cert revoke 4f3a09c2b1                 by serial number, as `muster cert list` prints it
  muster cert revoke --subject system:node:n7   all certificates of a node
  muster cert revoke --subject kubernetes-admin all administrator certificates except the one in use
  muster cert revoke --file stolen.crt          the certificate in a PEM file")]
struct RevokeCertificatesArgs {
    /// Serial numbers in hexadecimal, with or without colons
    #[arg(value_name = "SERIAL", required_unless_present_any = ["subject", "file"])]
    serials: Vec<String>,
    /// Revoke all certificates issued to this user so far, recorded or not, except the one that this command uses
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Revoke the certificate in this PEM file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    administrator: AdminFlags,
}

/// The server's record of a client certificate that it issued.
struct CertificateRecord {
    serial: String,
    /// User name in the certificate.
    subject: String,
    groups: String,
    /// Time of issue, in RFC 3339.
    issued: String,
    /// Time of expiry, in RFC 3339.
    not_after: String,
}

/// Executes `muster cert`.
pub(crate) async fn run(args: CertArgs) -> anyhow::Result<()> {
    match args.command {
        CertCommand::List(args) => list_certificates(args).await,
        CertCommand::Revoke(args) => revoke_certificates(args).await,
    }
}

/// Executes `muster cert list`.
async fn list_certificates(args: ListCertificatesArgs) -> anyhow::Result<()> {
    let client = args.administrator.connect().await?.client;
    let revoked = read_revocation_list(&client).await?.and_then(|it| it.data).unwrap_or_default();
    let mut rows = vec![["SERIAL", "SUBJECT", "GROUPS", "ISSUED", "EXPIRES", "REVOKED"].map(str::to_owned)];
    for it in list_unexpired_certificates(&client).await? {
        let since = revoked_at(&revoked, &it).unwrap_or_else(|| "-".to_owned());
        rows.push([it.serial, it.subject, it.groups, it.issued, it.not_after, since]);
    }
    print_to_stdout(aligned_table(&rows));
    Ok(())
}

/// Executes `muster cert revoke`.
async fn revoke_certificates(args: RevokeCertificatesArgs) -> anyhow::Result<()> {
    let connected = args.administrator.connect().await?;
    let recorded = list_unexpired_certificates(&connected.client).await?;
    let mut serials = Vec::new();
    for text in &args.serials {
        serials.push(parse_serial(text)?);
    }
    if let Some(path) = &args.file {
        let pem = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let serial = muster_server::certificate_serial(&pem);
        serials.push(serial.with_context(|| format!("{} holds no certificate", path.display()))?);
    }
    let entries = serials.iter().map(|serial| {
        let record = recorded.iter().find(|it| it.serial == *serial);
        let subject = record.map_or("", |it| it.subject.as_str());
        let entry = revocation_entry(subject, record.map_or("", |it| it.not_after.as_str()));
        (format!("certificate.{serial}"), entry)
    });
    let mut entries: BTreeMap<String, Value> = entries.collect();
    // The server adds the times.
    entries.extend(args.subject.iter().map(|subject| {
        let entry = json!({"subject": subject, "kept": connected.serial.as_deref().unwrap_or_default()});
        (muster_server::revoked_subject_key(subject), entry)
    }));
    let written = add_to_revocation_list(&connected.client, entries).await?;
    for serial in &serials {
        let subject =
            recorded.iter().find(|it| it.serial == *serial).map_or("not recorded", |it| it.subject.as_str());
        print_to_stdout(format_args!("revoked {serial} ({subject})"));
    }
    if let Some(subject) = &args.subject {
        let entry =
            written.get(&muster_server::revoked_subject_key(subject)).context("read the new entry")?;
        let is_kept = |it: &CertificateRecord| Some(&it.serial) == connected.serial.as_ref();
        let of_subject = || recorded.iter().filter(|it| it.subject == *subject);
        let count = of_subject().filter(|it| !is_kept(it)).count();
        let except = if of_subject().any(is_kept) { ", except the one in use" } else { "" };
        print_to_stdout(format_args!(
            "revoked all certificates of {subject:?} issued up to {}{except} ({count} recorded)",
            json_string_field(entry, "issuedUntil")
        ));
    }
    Ok(())
}

/// Returns the time at which a recorded certificate was revoked, or `None` if it is not revoked. `revoked` is the
/// revocation list. An entry of the list revokes either the certificate with a serial number, or all certificates that
/// were issued to a user until a certain time. An entry for a user exempts the certificate whose serial number is in
/// its field `kept`.
fn revoked_at(revoked: &BTreeMap<String, String>, it: &CertificateRecord) -> Option<String> {
    if let Some(entry) = revoked.get(&format!("certificate.{}", it.serial)) {
        return Some(json_string_field(entry, "revokedAt"));
    }
    let entry = revoked.get(&muster_server::revoked_subject_key(&it.subject))?;
    let [issued, until] =
        [it.issued.clone(), json_string_field(entry, "issuedUntil")].map(|it| it.parse::<Timestamp>());
    let is_valid = json_string_field(entry, "kept") == it.serial
        || issued.ok().zip(until.ok()).is_some_and(|(a, b)| b < a);
    (!is_valid).then(|| json_string_field(entry, "revokedAt"))
}

/// Reads the records of issued certificates from the API server. Returns the records of certificates that have not
/// expired, sorted by subject and time of issue.
async fn list_unexpired_certificates(client: &Client) -> anyhow::Result<Vec<CertificateRecord>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE_SYSTEM);
    let maps = maps.list(&ListParams::default()).await.context("read the records of certificates")?;
    let mut all = Vec::new();
    for map in maps.items.into_iter().filter(|it| {
        it.metadata.name.as_deref().is_some_and(|it| it.starts_with(CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX))
    }) {
        for (serial, record) in map.data.unwrap_or_default() {
            let parsed: Value = serde_json::from_str(&record).unwrap_or_default();
            let groups = parsed["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let groups = groups.collect::<Vec<_>>().join(",");
            all.push(CertificateRecord {
                serial,
                subject: json_string_field(&record, "subject"),
                groups: if groups.is_empty() { "-".to_owned() } else { groups },
                issued: json_string_field(&record, "issuedAt"),
                not_after: json_string_field(&record, "notAfter"),
            });
        }
    }
    let now = Timestamp::now();
    all.retain(|it| it.not_after.parse::<Timestamp>().is_ok_and(|not_after| now <= not_after));
    all.sort_by(|a, b| (&a.subject, &a.issued, &a.serial).cmp(&(&b.subject, &b.issued, &b.serial)));
    Ok(all)
}

/// Parses a serial number, and returns it in the server's form: lower-case hexadecimal digits without leading zeros.
fn parse_serial(text: &str) -> anyhow::Result<String> {
    let digits: String = text.chars().filter(|it| *it != ':').collect::<String>().to_lowercase();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits).trim_start_matches('0').to_owned();
    if digits.is_empty() || 64 < digits.len() || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
        bail!("{text:?} is not a serial number: give hexadecimal digits, as `muster cert list` prints them");
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_listed_as_revoked_by_its_serial_number_or_its_user() {
        let record = |serial: &str, subject: &str, issued: &str| CertificateRecord {
            serial: serial.to_owned(),
            subject: subject.to_owned(),
            groups: String::new(),
            issued: format!("2026-01-01T00:00:{issued}Z"),
            not_after: String::new(),
        };
        let by_subject =
            json!({"subject": "eve", "kept": "3", "revokedAt": "T1", "issuedUntil": "2026-01-01T00:00:05Z"});
        let revoked = BTreeMap::from([
            ("certificate.4".to_owned(), json!({"revokedAt": "T0"}).to_string()),
            (muster_server::revoked_subject_key("eve"), by_subject.to_string()),
        ]);
        let at = |it: &CertificateRecord| revoked_at(&revoked, it);
        assert_eq!(at(&record("1", "eve", "05")).as_deref(), Some("T1"));
        assert_eq!(at(&record("2", "eve", "06")), None);
        assert_eq!(at(&record("3", "eve", "01")), None);
        assert_eq!(at(&record("4", "adam", "01")).as_deref(), Some("T0"));
        assert_eq!(at(&record("5", "adam", "01")), None);
    }

    #[test]
    fn serial_numbers_are_read_in_every_usual_spelling() {
        for text in ["4f3a09", "4F3A09", "004f3a09", "0x4f3a09", "4f:3a:09", "00:4F:3A:09"] {
            assert_eq!(parse_serial(text).unwrap(), "4f3a09", "{text}");
        }
        for text in ["", "0", "xyz", "4f 3a", "-1"] {
            assert!(parse_serial(text).is_err(), "{text:?}");
        }
    }
}
