//! The members of etcd: their processes, and calls of their JSON gateway.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use muster_etcd::EtcdVersion;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::file_system::FileSystem;
use super::process;
use super::topology::Host;

/// Port for the API servers, with TLS.
pub(crate) const CLIENT_PORT: u16 = 2379;
/// Port for the other members.
pub(crate) const PEER_PORT: u16 = 2380;
/// Port for this test, without TLS.
const TEST_PORT: u16 = 2378;

/// Size at which the database of a member is full. The load of the test stays below half of it.
pub(crate) const QUOTA_BYTES: u64 = 64 << 20;

/// Size of one value with which the database is filled. A request has at most 1.5 MiB.
const FILLER_BYTES: usize = 1 << 20;

/// Number of lines at the end of the log of a member that has exited, in which the reason is. A panic has the stacks of
/// the goroutines.
const EXIT_LINES: usize = 500;

/// Maximum time for a call. A defragmentation takes the longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// One member of etcd.
pub(crate) struct Member {
    pub(crate) host: Host,
    /// Number of the member, from 0.
    number: usize,
    program: String,
    /// The directory with the certificates and the log.
    dir: PathBuf,
    /// The file system with the data.
    pub(crate) file_system: FileSystem,
    initial_cluster: String,
    child: Option<Child>,
    is_stopped: bool,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// etcd rejected the call with this message.
    Rejected(String),
    NoResponse(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(why) => write!(f, "etcd rejected a call: {why}"),
            Self::NoResponse(why) => write!(f, "etcd did not respond: {why}"),
        }
    }
}

/// The files with which the API servers connect to etcd.
pub(crate) struct ClientFiles {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Prepares one member on each host. `dir` has the data, the certificates and the logs of all of them.
pub(crate) fn create_members(hosts: Vec<Host>, program: &str, dir: &Path) -> (Vec<Member>, ClientFiles) {
    let files = write_certificates(dir, &hosts.iter().map(|it| it.address).collect::<Vec<_>>());
    let peers: Vec<String> =
        hosts.iter().map(|it| format!("{}=http://{}:{PEER_PORT}", it.name(), it.address)).collect();
    let initial_cluster = peers.join(",");
    let members = hosts.into_iter().enumerate().map(|(number, host)| Member {
        file_system: FileSystem::mount(&dir.join(host.name())),
        host,
        number,
        program: program.to_owned(),
        dir: dir.to_owned(),
        initial_cluster: initial_cluster.clone(),
        child: None,
        is_stopped: false,
    });
    (members.collect(), files)
}

/// Writes the certificates of a CA, of the members and of their clients.
fn write_certificates(dir: &Path, addresses: &[Ipv4Addr]) -> ClientFiles {
    let write = |name: &str, content: String| {
        let path = dir.join(name);
        muster_files::write_private_file(&path, content.as_bytes()).unwrap();
        path
    };
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, "etcd-ca");
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca_file = write("etcd-ca.crt", ca.self_signed(&ca_key).unwrap().pem());
    let ca = rcgen::Issuer::new(ca, ca_key);
    let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let issue = |name: &str, usage: rcgen::ExtendedKeyUsagePurpose| {
        let mut params = rcgen::CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![usage, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = write(&format!("{name}.crt"), params.signed_by(&key, &ca).unwrap().pem());
        (cert, write(&format!("{name}.key"), key.serialize_pem()))
    };
    issue("etcd-member", rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    let (cert, key) = issue("etcd-client", rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    ClientFiles { ca: ca_file, cert, key }
}

impl Member {
    /// URL for the API servers.
    pub(crate) fn client_url(&self) -> String {
        format!("https://{}:{CLIENT_PORT}", self.host.address)
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.host.name());
        let address = self.host.address;
        let file = |name: &str| self.dir.join(name).display().to_string();
        let peer_url = format!("http://{address}:{PEER_PORT}");
        let client_url = self.client_url();
        let client_urls = format!("{client_url},http://{address}:{TEST_PORT}");
        let quota = QUOTA_BYTES.to_string();
        let mut command = self.host.command(&self.program);
        command
            .args(["--name", self.host.name(), "--data-dir"])
            .arg(self.file_system.dir())
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &self.initial_cluster])
            .args(["--listen-client-urls", &client_urls, "--advertise-client-urls", &client_url])
            .args(["--cert-file", &file("etcd-member.crt"), "--key-file", &file("etcd-member.key")])
            .args(["--client-cert-auth", "--trusted-ca-file", &file("etcd-ca.crt")])
            // The default of the supported versions. Without it a member that hears no other member disturbs them.
            .arg("--pre-vote=true")
            // Members that were away for some time get snapshots.
            .args(["--snapshot-count", "2000", "--quota-backend-bytes", &quota]);
        self.child = Some(process::spawn(&mut command, &self.log()));
    }

    fn log(&self) -> PathBuf {
        self.dir.join(self.host.name()).with_extension("log")
    }

    pub(crate) fn kill(&mut self) {
        process::kill(&mut self.child);
    }

    pub(crate) fn stop(&mut self) {
        process::signal(self.child.as_ref(), "STOP");
        self.is_stopped = true;
    }

    /// Starts the member if it was killed, and continues it if it is stopped.
    pub(crate) fn ensure_running(&mut self) {
        if self.child.is_none() {
            self.start();
        } else if self.is_stopped {
            process::signal(self.child.as_ref(), "CONT");
            self.is_stopped = false;
        }
    }

    /// Whether the member has exited because its file system is full. Fails if the member has exited for another reason.
    pub(crate) fn has_exited_without_space(&mut self) -> Result<bool, String> {
        let Some(child) = &mut self.child else { return Ok(true) };
        let Some(status) = child.try_wait().unwrap() else { return Ok(false) };
        self.child = None;
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(EXIT_LINES).collect();
        match last.iter().any(|it| it.contains("no space left on device")) {
            true => Ok(true),
            false => Err(format!("etcd member {} has ended: {status}: {last:?}", self.number + 1)),
        }
    }

    /// Fails if the member has ended by itself.
    pub(crate) fn check_running(&mut self) -> Result<(), String> {
        match self.child.as_mut().and_then(|it| it.try_wait().unwrap()) {
            Some(status) => Err(format!("etcd member {} has ended: {status}", self.number + 1)),
            None => Ok(()),
        }
    }

    pub(crate) async fn version(&self) -> Result<EtcdVersion, CallError> {
        let version = self.send(Request::get("/version"), Bytes::new()).await?;
        let text = version["etcdserver"].as_str().unwrap_or_default();
        EtcdVersion::parse(text).ok_or_else(|| CallError::NoResponse(format!("version {text:?}")))
    }

    /// Whether this member is the leader, and the size of its database in bytes.
    pub(crate) async fn status(&self) -> Result<(bool, u64), CallError> {
        let status = self.call("maintenance/status", json!({})).await?;
        let is_leader = !status["leader"].is_null() && status["leader"] == status["header"]["member_id"];
        Ok((is_leader, number(&status["dbSize"])))
    }

    /// Returns the revision. A quorum must agree, and this member must have applied all that is committed.
    pub(crate) async fn read_revision(&self) -> Result<u64, CallError> {
        let read = self.call("kv/range", json!({"key": BASE64.encode("/chaos"), "keys_only": true})).await?;
        Ok(number(&read["header"]["revision"]))
    }

    /// Writes a large value beside the objects of the API servers.
    pub(crate) async fn write_filler(&self, key: usize) -> Result<(), CallError> {
        let value = BASE64.encode(vec![b'x'; FILLER_BYTES]);
        let key = BASE64.encode(format!("/chaos/{key:06}"));
        self.call("kv/put", json!({"key": key, "value": value})).await.map(drop)
    }

    pub(crate) async fn delete_fillers(&self) -> Result<(), CallError> {
        let range = json!({"key": BASE64.encode("/chaos/"), "range_end": BASE64.encode("/chaos0")});
        self.call("kv/deleterange", range).await.map(drop)
    }

    pub(crate) async fn compact(&self, revision: u64) -> Result<(), CallError> {
        self.call("kv/compaction", json!({"revision": revision, "physical": true})).await.map(drop)
    }

    pub(crate) async fn defragment(&self) -> Result<(), CallError> {
        self.call("maintenance/defragment", json!({})).await.map(drop)
    }

    /// Deactivates the alarms of all members.
    pub(crate) async fn disarm(&self) -> Result<(), CallError> {
        let active = self.call("maintenance/alarm", json!({"action": "GET"})).await?;
        for alarm in active["alarms"].as_array().into_iter().flatten() {
            let (member, alarm) = (&alarm["memberID"], &alarm["alarm"]);
            let request = json!({"action": "DEACTIVATE", "memberID": member, "alarm": alarm});
            self.call("maintenance/alarm", request).await?;
        }
        Ok(())
    }

    async fn call(&self, path: &str, body: Value) -> Result<Value, CallError> {
        self.send(Request::post(format!("/v3/{path}")), body.to_string().into()).await
    }

    async fn send(&self, request: http::request::Builder, body: Bytes) -> Result<Value, CallError> {
        let address = SocketAddr::from((self.host.address, TEST_PORT));
        let request = request.header("Host", address.to_string()).body(Full::new(body)).unwrap();
        let exchange = async {
            let stream = TcpStream::connect(address).await.map_err(|it| it.to_string())?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|it| it.to_string())?;
            let request = async {
                let response = sender.send_request(request).await?;
                let status = response.status();
                Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
            };
            tokio::select! {
                response = request => response.map_err(|it| it.to_string()),
                closed = connection => Err(format!("the connection was closed: {closed:?}")),
            }
        };
        let (status, body) = match tokio::time::timeout(CALL_TIMEOUT, exchange).await {
            Ok(Ok(response)) => response,
            Ok(Err(why)) => return Err(CallError::NoResponse(why)),
            Err(_) => return Err(CallError::NoResponse("no response in time".to_owned())),
        };
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(body);
        }
        Err(CallError::Rejected(body["message"].as_str().unwrap_or_default().to_owned()))
    }
}

impl CallError {
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self, Self::Rejected(why) if why.contains("space exceeded"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The gateway writes 64-bit numbers as strings.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|it| it.parse().ok()).unwrap_or(0)
}
