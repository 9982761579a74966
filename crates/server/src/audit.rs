//! The audit log: one line of JSON for each request, like upstream's events at level `Metadata`. Lines are dropped if
//! the disk is too slow. The log never contains request or response bodies.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use jiff::Timestamp;
use muster_api::time::Time;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::metrics::ServerMetrics;
use crate::request::{AccessTarget, AuditAnnotation, RequestAttributes, User};

/// Maximum number of audit log lines that wait to be written. These are the lines of two seconds at 5,000 requests per
/// second. They take about 10 MB at 1 kB for each line.
const QUEUED_LINES_MAX: usize = 10_000;

/// Size in bytes at which the audit log file is rotated. Upstream: the value suggested for `--audit-log-maxsize`.
const FILE_BYTES_MAX: u64 = 100_000_000;
/// Number of rotated audit log files that are kept. Upstream: the value suggested for `--audit-log-maxbackup`.
const ROTATED_FILES_MAX: usize = 10;

/// Writes audit events to a file in a separate thread.
#[derive(Debug)]
pub(crate) struct AuditLog {
    /// Queue of encoded lines to the writer thread. `None` once the log is closing.
    lines: Option<SyncSender<Vec<u8>>>,
    /// The writer thread. `None` once the log is closing.
    writer: Option<JoinHandle<()>>,
}

/// One request as recorded in the audit log.
#[derive(Debug)]
pub(crate) struct AuditEvent<'a> {
    pub(crate) attributes: &'a RequestAttributes,
    pub(crate) uri: &'a str,
    /// The authenticated user. `None` if the request failed at authentication or before.
    pub(crate) user: Option<&'a User>,
    /// The user that the authenticated user impersonates, if any.
    pub(crate) impersonated: Option<&'a User>,
    /// IP address of the client. `None` if it is unknown.
    pub(crate) source_ip: Option<std::net::IpAddr>,
    pub(crate) user_agent: &'a str,
    /// HTTP status code of the response.
    pub(crate) code: u16,
    /// Why authorization allowed the request. `None` if the request was not allowed, or failed before authorization.
    pub(crate) reason: Option<String>,
    /// Audit annotations that admission plugins have added.
    pub(crate) annotations: &'a [AuditAnnotation],
    /// Time at which the request was received.
    pub(crate) received_at: Timestamp,
    /// Time at which the response was ready to be sent. For a watch or another stream, the time at which it started.
    pub(crate) completed_at: Timestamp,
}

impl AuditLog {
    /// Opens the log file and starts the writer thread.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let log = RotatingFile::open(path.to_owned(), FILE_BYTES_MAX)?;
        let (lines, queued) = sync_channel(QUEUED_LINES_MAX);
        let writer =
            std::thread::Builder::new().name("audit".into()).spawn(move || log.write_lines(&queued))?;
        Ok(Self { lines: Some(lines), writer: Some(writer) })
    }

    /// Queues an event for the writer thread.
    ///
    /// Rule: requests never wait for the audit log. Lines that do not fit into the queue are dropped and counted.
    pub(crate) fn record_event(&self, event: &AuditEvent<'_>, metrics: &ServerMetrics) {
        let mut line = event_json(event).to_string().into_bytes();
        line.push(b'\n');
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = lines.try_send(line)
            && metrics.audit_dropped.inc() == 0
        {
            tracing::warn!("the audit log is too slow: dropping lines, counted in /metrics");
        }
    }
}

/// Closes the queue, and waits until the writer thread has written all queued lines.
impl Drop for AuditLog {
    fn drop(&mut self) {
        drop(self.lines.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Returns the event as an `Event` of `audit.k8s.io/v1`.
fn event_json(event: &AuditEvent<'_>) -> Value {
    let is_watch = event.attributes.verb == "watch";
    let time = |at: Timestamp| Time::from(at).to_rfc3339_micros();
    let mut annotations = json!({});
    if event.user.is_some() {
        let decision = if event.reason.is_some() { "allow" } else { "forbid" };
        annotations["authorization.k8s.io/decision"] = json!(decision);
        annotations["authorization.k8s.io/reason"] = json!(event.reason.as_deref().unwrap_or_default());
    }
    for (key, value) in event.annotations {
        annotations[*key] = json!(value);
    }
    let latency = event.completed_at.duration_since(event.received_at);
    annotations["apiserver.latency.k8s.io/total"] = json!(format!("{}µs", latency.as_micros()));
    let mut json = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": Uuid::new_v4().to_string(),
        // A watch is recorded when it begins, because it may never end.
        "stage": if is_watch { "ResponseStarted" } else { "ResponseComplete" },
        "requestURI": event.uri,
        "verb": event.attributes.verb,
        "user": event.user.map_or_else(|| json!({}), User::user_info),
        "sourceIPs": event.source_ip.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "userAgent": event.user_agent,
        "responseStatus": {"metadata": {}, "code": event.code},
        "requestReceivedTimestamp": time(event.received_at),
        "stageTimestamp": time(event.completed_at),
        "annotations": annotations,
    });
    if let Some(user) = event.impersonated {
        json["impersonatedUser"] = user.user_info();
    }
    if let AccessTarget::Resource(resource) = &event.attributes.target {
        let fields = [
            ("resource", &resource.plural),
            ("namespace", &resource.namespace),
            ("name", &resource.name),
            ("apiGroup", &resource.group),
            ("apiVersion", &resource.version),
            ("subresource", &resource.subresource),
        ];
        json["objectRef"] = fields
            .into_iter()
            .filter(|(_, it)| !it.is_empty())
            .map(|(name, it)| (name.to_owned(), json!(it)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    json
}

/// The audit log file that is currently written. The rotated files beside it are `FILE.1` (the newest), `FILE.2` and so
/// on.
struct RotatingFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// Size of the current file in bytes.
    bytes: u64,
    /// Size in bytes at which the current file is rotated.
    bytes_max: u64,
}

impl RotatingFile {
    /// Opens the file for appending, or creates it. Only its owner may read it. Fails if `path` is a symbolic link.
    fn open(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        let file = muster_files::append_to_private_file(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file: BufWriter::new(file), bytes, bytes_max })
    }

    /// Writes the lines that arrive on the channel until it is closed. Flushes the file when no line is waiting.
    fn write_lines(mut self, lines: &Receiver<Vec<u8>>) {
        let mut is_failing = false;
        while let Ok(line) = lines.recv() {
            let mut next = Some(line);
            let mut written = Ok(());
            while let Some(line) = next {
                written = written.and(self.write_line(&line));
                next = lines.try_recv().ok();
            }
            // All queued lines are written before one flush.
            match written.and_then(|()| self.file.flush()) {
                Ok(()) => is_failing = false,
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::error!(path = %self.path.display(), %error, "cannot write the audit log");
                }
                Err(_) => {}
            }
        }
    }

    /// Writes one line. Rotates the file first if it is not empty and would become larger than `bytes_max`.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes_max < self.bytes + line.len() as u64 && 0 < self.bytes {
            self.rotate_file()?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Renames `FILE.n` to `FILE.n+1` and the current file to `FILE.1`, and opens a new file. The oldest of
    /// `ROTATED_FILES_MAX` rotated files is overwritten.
    fn rotate_file(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let nth = |it: usize| self.path.with_added_extension(it.to_string());
        for it in (1..ROTATED_FILES_MAX).rev() {
            match fs::rename(nth(it), nth(it + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, nth(1))?;
        *self = Self::open(self.path.clone(), self.bytes_max)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn an_audit_line_has_user_request_and_response() {
        let attributes = RequestAttributes::from_request(
            &hyper::Method::PUT,
            "/apis/apps/v1/namespaces/a/daemonsets/d/status",
            |_| None,
        );
        let event = AuditEvent {
            attributes: &attributes,
            uri: "/apis/apps/v1/namespaces/a/daemonsets/d/status?dryRun=All",
            user: Some(&User::server()),
            impersonated: Some(&User::new("ann", ["dev"])),
            source_ip: Some([127, 0, 0, 1].into()),
            user_agent: "kubectl/v1.33.0",
            code: 200,
            reason: Some("RBAC: allowed".to_owned()),
            annotations: &[("pod-security.kubernetes.io/enforce-policy", "baseline:latest".into())],
            received_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            completed_at: "2026-01-01T00:00:00.001500Z".parse().unwrap(),
        };
        let mut event = event_json(&event);
        event["auditID"] = json!("ID");
        expect![[r#"
            {
              "annotations": {
                "apiserver.latency.k8s.io/total": "1500µs",
                "authorization.k8s.io/decision": "allow",
                "authorization.k8s.io/reason": "RBAC: allowed",
                "pod-security.kubernetes.io/enforce-policy": "baseline:latest"
              },
              "apiVersion": "audit.k8s.io/v1",
              "auditID": "ID",
              "impersonatedUser": {
                "groups": [
                  "dev"
                ],
                "username": "ann"
              },
              "kind": "Event",
              "level": "Metadata",
              "objectRef": {
                "apiGroup": "apps",
                "apiVersion": "v1",
                "name": "d",
                "namespace": "a",
                "resource": "daemonsets",
                "subresource": "status"
              },
              "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
              "requestURI": "/apis/apps/v1/namespaces/a/daemonsets/d/status?dryRun=All",
              "responseStatus": {
                "code": 200,
                "metadata": {}
              },
              "sourceIPs": [
                "127.0.0.1"
              ],
              "stage": "ResponseComplete",
              "stageTimestamp": "2026-01-01T00:00:00.001500Z",
              "user": {
                "groups": [
                  "system:masters",
                  "system:authenticated"
                ],
                "username": "system:apiserver"
              },
              "userAgent": "kubectl/v1.33.0",
              "verb": "update"
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&event).unwrap());
    }

    #[test]
    fn files_are_rotated_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log = RotatingFile::open(path.clone(), 10).unwrap();
        for line in 0..=2 * ROTATED_FILES_MAX + 2 {
            log.write_line(format!("{line:04}\n").as_bytes()).unwrap();
        }
        log.file.flush().unwrap();
        let mut said: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|it| {
                let it = it.unwrap();
                let text = fs::read_to_string(it.path()).unwrap().replace('\n', " ");
                format!("{} {text}", it.file_name().to_string_lossy())
            })
            .collect();
        said.sort();
        expect![[r#"
            audit.log 0022 
            audit.log.1 0020 0021 
            audit.log.10 0002 0003 
            audit.log.2 0018 0019 
            audit.log.3 0016 0017 
            audit.log.4 0014 0015 
            audit.log.5 0012 0013 
            audit.log.6 0010 0011 
            audit.log.7 0008 0009 
            audit.log.8 0006 0007 
            audit.log.9 0004 0005 "#]]
        .assert_eq(&said.join("\n"));
    }

    #[test]
    fn a_planted_file_is_made_private_and_a_symbolic_link_is_not_followed() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

        let dir = tempfile::tempdir().unwrap();
        let (planted, link) = (dir.path().join("audit.log"), dir.path().join("link"));
        fs::write(&planted, "").unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
        let mut log = RotatingFile::open(planted.clone(), 10).unwrap();
        log.write_line(b"0000\n").unwrap();
        log.file.flush().unwrap();
        assert_eq!(fs::metadata(&planted).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&planted).unwrap(), b"0000\n");
        symlink(&planted, &link).unwrap();
        assert!(RotatingFile::open(link, 10).is_err());
        assert_eq!(fs::read(&planted).unwrap(), b"0000\n");
    }
}
