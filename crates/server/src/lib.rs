//! The API server: serves `kubectl` and any other Kubernetes client.
//!
//! The modules are layers. A module imports only from the layers that are below it in this list:
//!
//! - `loopback`, `bootstrap`, `controllers`: clients and controllers in the server's process
//! - `http`: filters (authentication, authorization, limits, audit), handlers for each verb, responses
//! - `registry`: create, update and delete, the same for every kind
//! - `admission`: plugins that mutate or refuse a write
//! - `auth`: authentication and authorization
//! - `storage`: objects by key, over the store
//! - `decode`, `patch`, `selector`, `server_side_apply`: request bodies and parameters
//! - `request`, `error`: the context of a request, and the error of a failed request
//! - `kinds`: the kind table, with one row for each kind
//! - `validation`, `defaulting`, `conversion`, `table_printer`: functions that the rows of the kind table refer to
//! - `types`, `unstructured`: the fields of every type, and objects as JSON

/// Admission plugins, which mutate or refuse a write before it is stored.
mod admission;
/// The HTTPS client that forwards logs, exec and other requests to the agents of nodes.
mod agents;
/// The audit log, with one line for each request.
mod audit;
/// Authentication and authorization.
mod auth;
/// Creates the objects that every cluster has, such as the namespace `default`.
mod bootstrap;
/// The keys that all servers of a cluster share.
mod cluster_keys;
/// The settings that all servers of a cluster must have in common.
mod cluster_settings;
/// Backup and restore of a cluster on etcd, and migration to or from etcd.
mod cluster_transfer;
/// Tracks the client connections and enforces their limits.
mod connections;
/// Controllers that run in the server.
mod controllers;
/// Conversion between the served versions and the storage version of a kind.
mod conversion;
/// The endpoint `/debug/explain`.
mod debug_explain;
/// Decoding and normalization of request bodies.
mod decode;
/// Default values of absent fields.
mod defaulting;
/// The discovery documents at `/api` and `/apis`.
mod discovery;
/// `ApiError`: why a request failed. Clients receive it as a `Status`.
mod error;
/// Priority and fairness: limits how many requests execute at the same time, and the resources that each user may hold.
mod flow_control;
/// Formats values as Go does, for error messages as in upstream.
mod go_format;
/// Decodes the headers of a request.
mod headers;
/// The endpoints `/livez`, `/readyz` and `/healthz`.
mod health;
/// HTTP filters and handlers, from a request to its response.
mod http;
/// Closes connections that make no progress: the client does not read what the server sends, or sends nothing although
/// a read timeout is set.
mod idle_timeout;
/// The kind table, which defines how the server serves each kind.
mod kinds;
/// Limits and timeouts of connections and requests.
mod limits;
/// In-process clients for the components of Muster.
mod loopback;
/// Finds the IP address of this machine.
mod machine_address;
/// The metrics at `/metrics`.
mod metrics;
/// Builds the OpenAPI documents.
mod openapi;
/// JSON patch, merge patch and strategic merge patch.
mod patch;
/// The CA of the cluster, certificates and kubeconfigs.
mod pki;
/// Create, update and delete of objects of all kinds.
mod registry;
/// User, target and options of a request.
mod request;
/// Label and field selectors.
mod selector;
/// Managed fields and server-side apply.
mod server_side_apply;
/// Lists and changes the signing keys of a cluster.
mod signing_key_admin;
/// The keys that sign service account tokens.
mod signing_keys;
/// Background tasks that only one of the servers of a cluster runs at a time.
mod singleton_tasks;
/// Maps and sets for lists whose length the client chooses.
mod small_map;
/// Reads and writes API objects in the store.
mod storage;
/// `Subresource`: the part of an object that a request reads or writes, such as `status`.
mod subresource;
/// Columns and cells of the tables that `kubectl get` prints.
mod table_printer;
/// The type table: the fields of every API type.
mod types;
/// Functions for API objects that are represented as JSON values.
mod unstructured;
/// Validation of objects before they are stored.
mod validation;

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use jiff::{SignedDuration, Timestamp};
use muster_store::{DataFileGuard, Db, DbOptions, LogError, Sqlite};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{self, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::agents::AgentClient;
use crate::audit::AuditLog;
use crate::auth::TokenSigner;
use crate::bootstrap::ApiEndpoints;
pub use crate::bootstrap::server_leases::LeasePreference;
use crate::bootstrap::server_leases::{self, LiveServers, ServerRegistration};
use crate::cluster_keys::ClusterKeysFollower;
use crate::connections::{ConnectionGuard, ConnectionPermit, RequestClient};
use crate::controllers::{certificate_records, certificate_signing, cluster_roles};
use crate::debug_explain::ExplainProvider;
use crate::error::ApiError;
use crate::flow_control::response::StreamExecutor;
use crate::http::Api;
use crate::idle_timeout::IdleTimeoutStream;
use crate::limits::ServerLimits;
use crate::loopback::SharedLoopbackState;
use crate::metrics::GaugeGuard;
use crate::pki::{PeerCertificate, Pki, ServingCertificate};
use crate::registry::Registry;
use crate::storage::{HISTORY_WINDOW, data_dir};

pub use crate::admission::{
    LevelVersion as PodSecurityLevelVersion, PodSecurityConfiguration, PodSecurityLevel,
    PolicyVersion as PodSecurityVersion,
};
pub use crate::auth::revoked_subject_key;
pub use crate::cluster_keys::{
    CLUSTER_KEYS_CHECK_INTERVAL, ClusterKeysError, ENCRYPTION_KEY_FILE, SERVER_TOKEN_FILE,
    create_server_token_if_missing, rotate_server_token,
};
pub use crate::cluster_settings::{ClusterPolicy, ClusterSettings, DEFAULT_CLUSTER_CIDR, SettingsError};
pub use crate::cluster_transfer::{
    EtcdTransferOptions, TransferError, TransferSummary, backup_etcd, install_backup_keys, migrate_to_etcd,
    migrate_to_sqlite, restore_etcd,
};
pub use crate::limits::LimitsConfig;
pub use crate::loopback::{LoopbackClient, LoopbackError};
pub use crate::pki::{BuiltinUser, PkiError, certificate_serial, issue_kubeconfig};
pub use crate::signing_key_admin::{LaggingServer, SigningKeyAdmin, SigningKeyAdminError};
pub use crate::signing_keys::{SigningKeyError, SigningKeyInfo, SigningKeyState};
pub use crate::singleton_tasks::SingletonTask;
pub use crate::storage::data_dir::{
    DEFAULT_STORE_BYTES_MAX, DataError, StoreOptions, backup, check_encryption_keys, has_store,
    reencrypt_secrets, restore,
};
pub use crate::storage::etcd::{DEFAULT_ETCD_PREFIX, EtcdOptions, EtcdStoreError, EtcdTlsFiles};
pub use crate::storage::fence::LeaderFence;
pub use muster_etcd::FEATURE_LEVEL;
pub use muster_store::{EncryptionKeys, KeyFileError};

/// Timeout of the TLS handshake of a connection.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the server checks whether its serving certificate is due for renewal. A long interval is
/// sufficient, because renewal is due months before the certificate expires.
const CERTIFICATE_RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Interval at which a server that started with a full disk or a full etcd tries again to create the bootstrap objects.
const BOOTSTRAP_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum time that a stopping server waits for requests in flight. After that, it aborts the remaining requests.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{address} is in use: is another server running? Choose another with --listen")]
    InUse { address: SocketAddr },
    #[error("listen on {address}{}", listen_hint(source))]
    Listen { address: SocketAddr, source: io::Error },
    #[error("choose another --audit-log: {path} cannot be written")]
    Audit { path: PathBuf, source: io::Error },
    #[error("set up the certificates")]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Etcd(#[from] EtcdStoreError),
    #[error(transparent)]
    ClusterKeys(#[from] ClusterKeysError),
    #[error("create the bootstrap objects: {0}")]
    Bootstrap(String),
}

/// Where the objects of a server are stored. [`StoreSource::open`] opens the store for reads and writes of objects.
enum StoreSource<'a> {
    /// An SQLite database in the data directory.
    Sqlite(Box<Sqlite>),
    /// An etcd cluster, which other servers may share.
    Etcd { options: &'a EtcdOptions, encryption: EncryptionKeys },
}

impl<'a> StoreSource<'a> {
    /// Opens the database file of the data directory. With etcd, writes the certificates and keys of the cluster to the
    /// data directory instead, see [`cluster_keys::install_cluster_keys`].
    async fn prepare(data_dir: &Path, options: &'a StoreOptions) -> Result<Self, StartError> {
        match &options.etcd {
            None => Ok(Self::Sqlite(Box::new(data_dir::open_database(data_dir, options)?))),
            Some(etcd) => {
                let encryption =
                    cluster_keys::install_cluster_keys(etcd, data_dir, options.new_cluster).await?;
                Ok(Self::Etcd { options: etcd, encryption })
            }
        }
    }

    /// Returns the guard that detects that the files of the database were removed or replaced. Returns `None` with
    /// etcd, or if the database is not in a data directory.
    fn file_guard(&self) -> Option<DataFileGuard> {
        match self {
            Self::Sqlite(log) => log.file_guard(),
            Self::Etcd { .. } => None,
        }
    }

    fn open(self, db_options: DbOptions) -> Result<Db, StartError> {
        match self {
            Self::Sqlite(log) => Ok(Db::open(*log, db_options).map_err(DataError::from)?),
            Self::Etcd { options, encryption } => Ok(options.open(Some(encryption), db_options)?),
        }
    }
}

/// Returns the end of the error message for an address on which the server cannot listen: advice for the administrator,
/// or "" if there is none.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => ": choose an address of this machine with --listen",
        io::ErrorKind::PermissionDenied => ": choose a port from 1024 on with --listen",
        _ => "",
    }
}

/// Why a running server stopped with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("set up the certificates")]
    Pki(#[from] PkiError),
    /// The store has failed, or its files were removed or replaced. A write that got no response may or may not be
    /// durable. Only a restart of the server shows whether the write is durable.
    #[error("the store can no longer be written, so the server ends")]
    Data(#[from] DataError),
    #[error("the background task {what} panicked, so the server ends: start it again")]
    BackgroundTask { what: &'static str },
}

/// An API server that listens and has opened its store and certificates, but does not accept connections yet.
#[derive(Debug)]
pub struct ApiServer {
    /// The listening sockets. The first socket has the configured address. If nodes on this machine reach the server at
    /// another address, a second socket has the other address.
    listeners: Vec<TcpListener>,
    /// The addresses and the CA certificate of this server, which some bootstrap objects contain.
    identity: bootstrap::ServerIdentity,
    /// Whether the bootstrap objects were created when the server started. `false` if the disk or etcd was too full for
    /// them.
    is_bootstrapped: bool,
    /// The registration of this server, and the channels on which it publishes the live servers. `None` if no other
    /// server can share the store.
    registration: Option<(ServerRegistration, LiveServers)>,
    /// Follows the keys of the cluster. `None` if no other server can share them.
    cluster_keys: Option<ClusterKeysFollower>,
    /// The endpoints of the Service `kubernetes`.
    endpoints: ApiEndpoints,
    /// The URL that clients use, if it is not the listen address.
    advertised: Option<AdvertisedUrl>,
    /// Time for which the server continues to serve requests after a shutdown has begun.
    shutdown_delay: Duration,
    /// Whether the server runs the singleton tasks itself, see [`ApiServer::take_singleton_tasks`].
    runs_singleton_tasks: bool,
    pki: Arc<Pki>,
    api: Api,
    /// State that all loopback clients share.
    loopback_clients: SharedLoopbackState,
    /// Maximum lifetime of the certificates that the server signs for CertificateSigningRequests.
    certificate_lifetime_max: SignedDuration,
    /// Receives the error after which the store can no longer be written.
    failure: oneshot::Receiver<DataError>,
    /// Detects that the database file or the cluster marker was removed or replaced. `None` if the database is not in a
    /// data directory.
    guard: Option<DataFileGuard>,
}

impl ApiServer {
    /// Prepares a server: listens on the address `listen`, opens the certificates and the store in `data_dir`, and
    /// creates missing bootstrap objects. The directory must exist, and no other server may use the directory. After
    /// this call, [`ApiServer::serve`] accepts connections.
    ///
    /// Nodes on this machine that have their own network namespace reach the server at the address `nodes`, on the same
    /// port. `nodes` is `None` if there are no such nodes.
    pub async fn open(
        listen: SocketAddr,
        nodes: Option<IpAddr>,
        data_dir: &Path,
    ) -> Result<Self, StartError> {
        Self::open_with_options(listen, nodes, data_dir, &StoreOptions::default(), None).await
    }

    /// Like [`ApiServer::open`], with options for the store and the settings of the cluster. With `None`, nodes get no
    /// pod CIDRs. Fails if the servers on etcd have other settings.
    pub async fn open_with_options(
        listen: SocketAddr,
        nodes: Option<IpAddr>,
        data_dir: &Path,
        options: &StoreOptions,
        settings: Option<ClusterSettings>,
    ) -> Result<Self, StartError> {
        let (listener, address) = listen_on(listen).await?;
        let mut listeners = vec![listener];
        let to_nodes = nodes.map(|it| SocketAddr::new(it, address.port()));
        if let Some(to_nodes) = to_nodes.filter(|it| !address.ip().is_unspecified() && *it != address) {
            listeners.push(listen_on(to_nodes).await?.0);
        }
        let store = StoreSource::prepare(data_dir, options).await?;
        let etcd_and_settings = options.etcd.as_ref().zip(settings.as_ref());
        if let Some((etcd, settings)) = etcd_and_settings {
            settings.store_or_replace_if_alone(etcd).await?;
        }
        let guard = store.file_guard();
        let pki = Arc::new(Pki::open(data_dir)?);
        let (failed, failure) = oneshot::channel();
        let on_failure = Box::new(move |error: &LogError| drop(failed.send(error.clone().into())));
        let tokens = TokenSigner::new(pki.signing_keys().clone());
        let registry = Registry::open(
            |options| store.open(options),
            HISTORY_WINDOW,
            options.store_limits(),
            on_failure,
            tokens,
        )?;
        if let Some((etcd, settings)) = etcd_and_settings {
            // A server that started since the settings were compared may have changed them.
            settings.compare(etcd).await?;
        }
        if let Some(settings) = &settings {
            settings.apply(&registry);
        }
        registry.storage.warn_about_oversized_objects();
        let now = Timestamp::now();
        let refused = |it: ApiError| StartError::Bootstrap(it.message().to_owned());
        let own = bootstrap::ServerIdentity {
            listen_address: address,
            node_facing_address: nodes,
            ca_pem: pki.ca_pem().to_owned(),
        };
        let registration = options.etcd.as_ref().map(|etcd| {
            let id = uuid::Uuid::new_v4().to_string();
            let feature_level = etcd.feature_level;
            let own = ServerRegistration { id, endpoint: own.endpoint(), feature_level };
            (own, LiveServers::default())
        });
        let follow = |it| ClusterKeysFollower::new(it, data_dir);
        let cluster_keys = options.etcd.as_ref().map(follow).transpose()?;
        let endpoints = match &registration {
            None => ApiEndpoints::Fixed(own.endpoint().into_iter().collect()),
            Some((_, live)) => ApiEndpoints::Watched(live.endpoints.subscribe()),
        };
        let is_complete =
            ensure_bootstrap_objects_and_roles(&registry, &own, &endpoints, now).await.map_err(refused)?;
        let mut api = Api::new(Arc::new(registry), CancellationToken::new());
        api.agents = Some(Arc::new(AgentClient::new(&pki)?));
        api.limits = Arc::new(ServerLimits::new(fit_limits_to_open_files(LimitsConfig::default())));
        let lifetime_max = settings
            .as_ref()
            .map_or(certificate_signing::DEFAULT_LIFETIME_MAX, ClusterSettings::certificate_lifetime_max);
        Ok(Self {
            listeners,
            identity: own,
            is_bootstrapped: is_complete,
            registration,
            cluster_keys,
            endpoints,
            advertised: None,
            shutdown_delay: Duration::ZERO,
            runs_singleton_tasks: true,
            pki,
            api,
            loopback_clients: SharedLoopbackState::new(),
            certificate_lifetime_max: lifetime_max,
            failure,
            guard,
        })
    }

    /// Issues a client certificate for a built-in user, and returns a kubeconfig that contains it. The certificate of
    /// the administrator is valid for one year, and the certificate of a component of Muster is valid for ten years.
    pub fn issue_kubeconfig(&self, user: BuiltinUser) -> Result<String, PkiError> {
        if let Some(advertised) = &self.advertised {
            return self.pki.issue_kubeconfig(&advertised.url, user);
        }
        let ip = if self.identity.listen_address.ip().is_unspecified() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            self.identity.listen_address.ip()
        };
        self.pki.issue_kubeconfig(
            &format!("https://{}", SocketAddr::new(ip, self.identity.listen_address.port())),
            user,
        )
    }

    /// Returns the address on which the server listens. If port 0 was configured, the address contains the port that
    /// the kernel selected.
    pub fn listen_address(&self) -> SocketAddr {
        self.identity.listen_address
    }

    /// Returns an in-process client whose requests are authorized as `user`. The client can be used at once, even
    /// before [`ApiServer::serve`] is called, and until the server stops.
    pub fn loopback_client(&self, user: BuiltinUser) -> LoopbackClient {
        self.loopback_clients.client(self.api.clone(), user.user())
    }

    /// Enables the audit log at `path`, which gets one line for each request. Requests of loopback clients that were
    /// created before this call are not logged.
    pub fn enable_audit_log(&mut self, path: &Path) -> Result<(), StartError> {
        let failed = |source| StartError::Audit { path: path.to_owned(), source };
        self.api.audit = Some(Arc::new(AuditLog::open(path).map_err(failed)?));
        Ok(())
    }

    /// Sets the limits and timeouts of connections and requests. Loopback clients that were created before this call
    /// keep the previous limits.
    pub fn set_limits(&mut self, config: LimitsConfig) {
        self.api.limits = Arc::new(ServerLimits::new(fit_limits_to_open_files(config)));
    }

    /// Sets the URL that clients use, such as the URL of a load balancer. Kubeconfigs contain it, and the serving
    /// certificate is valid for its host.
    pub fn set_advertised_url(&mut self, url: AdvertisedUrl) {
        self.advertised = Some(url);
    }

    /// Sets the time for which the server continues to serve requests after a shutdown has begun. `/readyz` fails
    /// during this time, so that load balancers and agents move to other servers. The default is zero.
    pub fn set_shutdown_delay(&mut self, delay: Duration) {
        self.shutdown_delay = delay;
    }

    /// Sets the function that answers `/debug/explain`. The function takes the namespace and name of a DaemonSet, and
    /// returns the controller's in-memory state as JSON, or an error message.
    pub fn set_explain_provider<F>(&mut self, ask: impl Fn(String, String) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.api.explain_provider = Some(ExplainProvider::new(ask));
    }

    /// Returns the background tasks that one server at a time must run, and prevents [`ApiServer::serve`] from running
    /// them. The caller must run each task while it holds a Lease. Without this call, [`ApiServer::serve`] runs the
    /// tasks.
    pub fn take_singleton_tasks(&mut self) -> Vec<SingletonTask> {
        self.runs_singleton_tasks = false;
        self.singleton_tasks()
    }

    /// Returns the [`LeasePreference`] of this server, which spreads the Leases of controllers over the servers that
    /// share the store.
    pub fn lease_preference(&self) -> LeasePreference {
        match &self.registration {
            Some((own, live)) => LeasePreference::new(own, live),
            None => LeasePreference::always(),
        }
    }

    fn singleton_tasks(&self) -> Vec<SingletonTask> {
        let (registry, lifetime_max) = (&self.api.registry, self.certificate_lifetime_max);
        singleton_tasks::all_tasks(registry, &self.identity, &self.endpoints, &self.pki, lifetime_max)
    }

    /// Serves requests until `stop` is cancelled, and after that for the shutdown delay. Then waits for the requests in
    /// flight, at most for `DRAIN_TIMEOUT`, and closes the store. If the store or a background task fails, returns an
    /// error immediately.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), ServeError> {
        let addresses = [Some(self.identity.listen_address.ip()), self.identity.node_facing_address]
            .into_iter()
            .flatten()
            .collect();
        let singleton_tasks = if self.runs_singleton_tasks { self.singleton_tasks() } else { Vec::new() };
        let advertised_host = self.advertised.map(|it| it.host);
        let serving =
            ServingCertificate::new(self.pki.clone(), addresses, advertised_host, Timestamp::now())?;
        let serving = Arc::new(serving);
        let tls = TlsAcceptor::from(Arc::new(serving.server_config()?));
        let (api, mut failure) = (self.api, self.failure);
        let (stop_requested, stop) = (stop, api.stop.clone());
        let registry = api.registry.clone();
        let mut background = BackgroundTasks::default();
        for task in singleton_tasks {
            background.spawn_task(task.name, task.run(stop.clone()));
        }
        if !self.is_bootstrapped {
            let completing = retry_bootstrap(registry.clone(), self.identity, self.endpoints, stop.clone());
            background.spawn_task("missing-bootstrap-objects", completing);
        }
        let levels = self.registration.as_ref().map(|(_, live)| live.feature_level.subscribe());
        if let Some((registration, live)) = self.registration {
            let shutting_down = api.shutting_down.clone();
            let renewing =
                server_leases::run(registry.clone(), registration, live, shutting_down, stop.clone());
            background.spawn_task("server-lease", renewing);
        }
        if let Some((keys, feature_level)) = self.cluster_keys.zip(levels) {
            let following = keys.run(registry.clone(), feature_level, stop.clone());
            background.spawn_task("cluster-keys", following);
        }
        let records = certificate_records::run(registry.clone(), self.pki.clone(), stop.clone());
        background.spawn_task("certificate-records", records);
        background.spawn_task("certificate-renewal", run_certificate_renewal(serving, stop.clone()));
        let (gone, mut is_gone) = oneshot::channel();
        background
            .spawn_task("data-directory-files", data_dir::watch_data_files(self.guard, gone, stop.clone()));
        let graceful = Arc::new(GracefulShutdown::new());
        let end_of_delay = async {
            stop_requested.cancelled().await;
            api.shutting_down.cancel();
            tokio::time::sleep(self.shutdown_delay).await;
        };
        let mut end_of_delay = pin!(end_of_delay);
        loop {
            let accepted = tokio::select! {
                () = &mut end_of_delay => break,
                // The server must not serve reads once it cannot tell what is durable.
                Ok(error) = &mut failure => return Err(error.into()),
                Ok(error) = &mut is_gone => return Err(error.into()),
                // Without the background task the server would degrade unnoticed.
                what = background.wait_for_ended_task() => return Err(ServeError::BackgroundTask { what }),
                accepted = accept_connection(&self.listeners) => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let Some(permit) = api.limits.connections.admit_connection(peer.ip()) else {
                        tracing::debug!(%peer, "too many connections");
                        continue;
                    };
                    let (tls, api, watcher) = (tls.clone(), api.clone(), graceful.watcher());
                    let permit = Arc::new(permit);
                    let served = permit.clone();
                    let task = tokio::spawn(async move {
                        if let Err(error) =
                            serve_connection(stream, peer.ip(), permit, tls, api, watcher).await
                        {
                            tracing::debug!(%peer, error, "a connection ended early");
                        }
                    });
                    served.set_task(task.abort_handle());
                }
                Err(error) => {
                    // Most likely out of file descriptors: wait until connections are closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        stop.cancel();
        let graceful = Arc::into_inner(graceful).expect("connections hold watchers only");
        let finished = async { tokio::join!(graceful.shutdown(), self.loopback_clients.close()) };
        if tokio::time::timeout(DRAIN_TIMEOUT, finished).await.is_err() {
            tracing::warn!("some requests in flight were aborted");
        }
        background.join_all().await;
        drop(tokio::task::spawn_blocking(move || registry.storage.close()).await);
        Ok(())
    }
}

/// A URL of the server other than its listen address, such as the URL of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisedUrl {
    /// The URL without a trailing slash.
    url: String,
    /// Host of the URL: a DNS name, or an IP address without brackets.
    host: String,
}

impl fmt::Display for AdvertisedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl FromStr for AdvertisedUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not https://HOST or https://HOST:PORT");
        let url: hyper::Uri = text.parse().map_err(|_| invalid())?;
        let host = url.host().map(|it| it.trim_matches(['[', ']'])).filter(|it| !it.is_empty());
        let is_name = |it: &str| it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-.".contains(&it));
        let is_host = |it: &&str| it.parse::<IpAddr>().is_ok() || is_name(it);
        let is_plain = url.path() == "/" && url.query().is_none();
        match host.filter(is_host) {
            Some(host) if url.scheme_str() == Some("https") && is_plain && !text.contains('@') => {
                Ok(Self { url: text.trim_end_matches('/').to_owned(), host: host.to_owned() })
            }
            _ => Err(invalid()),
        }
    }
}

/// Raises the limit on open files of this process, and returns `config` with the maximum number of connections reduced
/// to what this limit allows.
fn fit_limits_to_open_files(config: LimitsConfig) -> LimitsConfig {
    LimitsConfig { connections: limits::raise_open_file_limit(config.connections), ..config }
}

/// Listens on an address. Returns the listener and the bound address, which contains the port that the kernel selected
/// if `address` has port 0.
async fn listen_on(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse { address },
        _ => StartError::Listen { address, source },
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Accepts the next connection on any of the listeners.
async fn accept_connection(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|context| {
        let accepted = listeners.iter().map(|it| it.poll_accept(context)).find(Poll::is_ready);
        accepted.unwrap_or(Poll::Pending)
    })
    .await
}

/// The background tasks of the server, with their names for error messages.
#[derive(Default)]
struct BackgroundTasks {
    tasks: JoinSet<()>,
    /// Name of each task in `tasks`, for error messages.
    names: HashMap<task::Id, &'static str>,
}

impl BackgroundTasks {
    fn spawn_task(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits until a background task ends, and returns its name. Returns the text "nothing" immediately if there are no
    /// tasks, and "unknown work" for a task without a name. Before the server stops, a task ends only by a panic.
    async fn wait_for_ended_task(&mut self) -> &'static str {
        let id = match self.tasks.join_next_with_id().await {
            None => return "nothing",
            Some(Ok((id, ()))) => id,
            Some(Err(panicked)) => panicked.id(),
        };
        self.names.get(&id).copied().unwrap_or("unknown work")
    }

    async fn join_all(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Creates or updates the bootstrap objects and default roles. Returns `false` if the disk or etcd is too full for
/// them.
///
/// Rule: a server starts even on a full disk or a full etcd, and then serves reads and deletes.
async fn ensure_bootstrap_objects_and_roles(
    registry: &Registry,
    own: &bootstrap::ServerIdentity,
    endpoints: &ApiEndpoints,
    now: Timestamp,
) -> Result<bool, ApiError> {
    let make = async {
        bootstrap::ensure_bootstrap_objects(registry, own, endpoints.fixed(), now).await?;
        cluster_roles::ensure_default_roles(registry, now).await
    };
    match make.await {
        Ok(()) => Ok(true),
        Err(refusal) if registry.storage.is_full() => {
            tracing::warn!(
                status = %refusal.status(),
                "the disk or the database of etcd is full: serving reads and deletes only; the bootstrap objects are updated once there is space"
            );
            Ok(false)
        }
        Err(refusal) => Err(refusal),
    }
}

/// Retries [`ensure_bootstrap_objects_and_roles`] until it succeeds, and then waits until the server stops, because a
/// background task must not end earlier.
async fn retry_bootstrap(
    registry: Arc<Registry>,
    own: bootstrap::ServerIdentity,
    endpoints: ApiEndpoints,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(BOOTSTRAP_RETRY_INTERVAL) => {}
        }
        match ensure_bootstrap_objects_and_roles(&registry, &own, &endpoints, Timestamp::now()).await {
            Ok(true) => return stop.cancelled().await,
            Ok(false) => {}
            Err(refusal) => {
                tracing::warn!(status = %refusal.status(), "cannot create the bootstrap objects")
            }
        }
    }
}

/// Checks hourly whether the serving certificate is due for renewal, and renews a certificate that is due. Runs until
/// the server stops.
async fn run_certificate_renewal(serving: Arc<ServingCertificate>, stop: CancellationToken) {
    let mut due = tokio::time::interval(CERTIFICATE_RENEWAL_CHECK_INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = due.tick() => {}
        }
        match serving.renew_if_due(Timestamp::now()) {
            Ok(true) => tracing::info!("renewed the server's certificate"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot renew the server's certificate; trying again"),
        }
    }
}

/// Serves one TCP connection. Closes the connection if the client does not read a response for `response_timeout`, or
/// if the client exceeds one of the timeouts of [`serve_tls`] and [`serve_http`].
async fn serve_connection(
    stream: TcpStream,
    address: IpAddr,
    permit: Arc<ConnectionPermit>,
    tls: TlsAcceptor,
    api: Api,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // Watch events are small and must not be delayed by Nagle's algorithm.
    stream.set_nodelay(true)?;
    let stream_with_timeout = IdleTimeoutStream::new(stream, api.limits.config.response_timeout);
    serve_tls(stream_with_timeout, address, permit, tls, api, watcher).await
}

/// Performs the TLS handshake, authenticates the client certificate and serves the connection.
async fn serve_tls<S>(
    stream_with_timeout: IdleTimeoutStream<S>,
    address: IpAddr,
    permit: Arc<ConnectionPermit>,
    tls: TlsAcceptor,
    api: Api,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stream = match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.accept(stream_with_timeout)).await
    {
        Ok(Ok(stream)) => stream,
        failed => {
            api.registry.metrics.handshakes_failed.inc();
            return failed?.map(drop).map_err(Into::into);
        }
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|it| it.first());
    let peer = certificate.and_then(|it| PeerCertificate::from_der(it));
    let user = peer.as_ref().and_then(|it| it.user(Timestamp::now()));
    permit.finish_handshake(user);
    let streams_max = limits::http2_streams_max(user);
    let connection = permit.connection.clone();
    let counted = GaugeGuard::new(&api.registry.metrics.connections);
    let client = Arc::new(RequestClient {
        address,
        connection: Some(connection),
        guard: Some(ConnectionGuard::new((permit, counted))),
        peer,
        is_in_process: false,
    });
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if is_http2 {
        // The client must respond to pings, so a silent connection is dead.
        stream.get_mut().0.set_read_timeout(limits::HEADER_TIMEOUT);
    }
    serve_http(stream, is_http2, streams_max, client, api, watcher).await
}

/// Serves the HTTP requests of a connection after the TLS handshake. `is_http2` says which protocol ALPN selected. The
/// server does not detect the protocol from the first bytes of the connection, because it would have to wait until the
/// client sends these bytes.
async fn serve_http<S>(
    stream: S,
    is_http2: bool,
    streams_max: u32,
    client: Arc<RequestClient>,
    api: Api,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stop, read_timeout) = (api.stop.clone(), api.limits.config.response_timeout);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        let (api, client) = (api.clone(), client.clone());
        async move {
            let user = client.peer.as_ref().and_then(|it| it.user(Timestamp::now()));
            Ok::<_, std::convert::Infallible>(api.handle(user, request).await)
        }
    });
    if !is_http2 {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEADER_TIMEOUT)
            .max_headers(limits::HEADERS_MAX)
            .max_buf_size(limits::HEADER_BYTES_MAX);
        let mut connection = pin!(http1.serve_connection(TokioIo::new(stream), service).with_upgrades());
        // The graceful shutdown waits until the watcher is dropped.
        let _watcher = watcher;
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(Into::into),
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        return connection.await.map_err(Into::into);
    }
    let mut http2 = http2::Builder::new(StreamExecutor { read_timeout });
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_header_list_size(limits::HEADER_BYTES_MAX as u32)
        .max_send_buf_size(limits::STREAM_BUFFER_BYTES)
        .keep_alive_interval(limits::HTTP2_PING_INTERVAL)
        .keep_alive_timeout(limits::HTTP2_PING_TIMEOUT);
    watcher.watch(http2.serve_connection(TokioIo::new(stream), service)).await.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_url_has_a_host_and_maybe_a_port() {
        let parse = |text: &str| text.parse::<AdvertisedUrl>().map(|it| format!("{} {}", it.url, it.host));
        for (text, expected) in [
            ("https://api.example.com:6443", "https://api.example.com:6443 api.example.com"),
            ("https://api.example.com/", "https://api.example.com api.example.com"),
            ("https://10.0.0.9:443", "https://10.0.0.9:443 10.0.0.9"),
            ("https://[fd00::1]:6443", "https://[fd00::1]:6443 fd00::1"),
        ] {
            assert_eq!(parse(text), Ok(expected.to_owned()));
        }
        for text in [
            "api.example.com",
            "http://a:6443",
            "https://",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a_b",
        ] {
            assert_eq!(parse(text), Err(format!("{text:?} is not https://HOST or https://HOST:PORT")));
        }
    }
}
