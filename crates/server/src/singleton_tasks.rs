//! Background tasks that only one server at a time runs if several servers share a store.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::bootstrap::{self, ApiEndpoints, ServerIdentity};
use crate::controllers::{certificate_signing, cluster_roles, namespace_deletion};
use crate::pki::Pki;
use crate::registry::Registry;
use crate::storage::fence::LeaderFence;
use crate::storage::run_housekeeping;

/// A background task of the server that must not run on two servers of one store at the same time.
pub struct SingletonTask {
    /// Name of the task, which is also a valid name of a Lease.
    pub name: &'static str,
    start: Box<dyn Fn(CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl SingletonTask {
    fn new<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        start: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
    ) -> Self {
        Self { name, start: Box::new(move |stop| Box::pin(start(stop))) }
    }

    /// Runs the task until `stop` is cancelled. It can be run again after that.
    pub(crate) fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        (self.start)(stop)
    }

    /// Like [`Self::run`], for a leader: the writes of the task are refused once the Lease of the fence has another
    /// holder.
    pub fn run_fenced(&self, fence: LeaderFence, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(fence.run_fenced(self.run(stop)))
    }
}

impl fmt::Debug for SingletonTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SingletonTask").field(&self.name).finish()
    }
}

/// Returns all singleton tasks of a server. `certificate_lifetime_max` is the maximum lifetime of the certificates that
/// the server signs for CertificateSigningRequests.
pub(crate) fn all_tasks(
    registry: &Arc<Registry>,
    server: &ServerIdentity,
    endpoints: &ApiEndpoints,
    pki: &Arc<Pki>,
    certificate_lifetime_max: SignedDuration,
) -> Vec<SingletonTask> {
    let with_registry = || registry.clone();
    let (history, bootstrapped, namespaces, roles, signed) =
        (with_registry(), with_registry(), with_registry(), with_registry(), with_registry());
    let (server, endpoints, pki) = (server.clone(), endpoints.clone(), pki.clone());
    vec![
        SingletonTask::new("history", move |stop| run_housekeeping(history.storage.clone(), stop)),
        SingletonTask::new("bootstrap-objects", move |stop| {
            bootstrap::run(bootstrapped.clone(), server.clone(), endpoints.clone(), stop)
        }),
        SingletonTask::new("namespace-deletion", move |stop| {
            namespace_deletion::run(namespaces.clone(), stop)
        }),
        SingletonTask::new("cluster-roles", move |stop| cluster_roles::run(roles.clone(), stop)),
        SingletonTask::new("certificate-signing", move |stop| {
            certificate_signing::run(signed.clone(), pki.clone(), certificate_lifetime_max, stop)
        }),
    ]
}
