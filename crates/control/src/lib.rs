//! The controllers' shells: they list and watch, ask the engine what to do, and make the calls it says.
//!
//! Nothing is decided here. What to do next is `muster_engine::daemonset::cache`'s word, how to carry it out and what each answer
//! means is `muster_engine::daemonset::execution`'s, and the bodies are `muster_engine::daemonset::manifest`'s. The API server may be anyone's.
//!
//! ```text
//! let client = muster_control::client(config)?;
//! Controller::new(client, Options::default()).run(stop).await?;
//! ```

mod call;
mod daemonset;
mod disruption;
mod endpoints;
mod explain;
mod forecast;
mod garbage;
mod inquiry;
mod lanes;
mod lease;
mod loops;
mod monitor;
mod node_lifecycle;
mod read;
mod record;
mod reflect;
mod release;
mod request;
mod rival;
mod scheduler;
mod witness;

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::CALL_TIMEOUT;
use crate::lanes::Lanes;
use crate::lease::{Elector, Term};

pub use crate::disruption::disruption;
pub use crate::endpoints::endpoints;
pub use crate::explain::{NotExplained, explain};
pub use crate::forecast::{How, NotPlanned, Planned, forecast};
pub use crate::garbage::garbage;
pub use crate::inquiry::{Inquiries, NotAnswered};
pub use crate::lanes::Limits;
pub use crate::lease::Lease;
pub use crate::monitor::Monitor;
pub use crate::node_lifecycle::node_lifecycle;
pub use crate::read::NotRead;
pub use crate::release::{NotReleased, Released, release};
pub use crate::scheduler::scheduler;
pub use muster_engine::controller::lease::{Lost, Terms};
pub use muster_engine::daemonset::explain::Explanation;
pub use muster_engine::daemonset::manifest::Binding;
pub use muster_engine::daemonset::plan::Settings;
pub use muster_engine::daemonset::preview::Forecast;
pub use muster_engine::node_lifecycle::Settings as NodeLifecycleSettings;
pub use witness::{Moment, Witness};

/// What the controllers are called wherever they ask, write and record.
pub(crate) const NAME: &str = "muster-controller";

/// What may be chosen by whoever runs the controllers.
#[derive(Debug, Clone)]
pub struct Options {
    pub settings: Settings,
    /// Only the sets in these are looked at; none means all of them.
    pub namespaces: Vec<String>,
    /// Sets whose plans are carried out side by side.
    pub workers: usize,
    pub limits: Limits,
    /// None: there is one replica, and it acts at once.
    pub lease: Option<Lease>,
}

/// A plan of a settled set is done in milliseconds, and one that is not has calls enough to keep the server busy.
pub const WORKERS: usize = 16;

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            namespaces: Vec::new(),
            workers: WORKERS,
            limits: Limits::default(),
            lease: None,
        }
    }
}

/// Why the controllers ended although nobody had asked them to.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Whatever else would be written might undo what another replica does: the process ends, and starts afresh.
    #[error("no longer the leader: {0}")]
    Lost(Lost),
    /// As after a restore: nothing that was known holds.
    #[error("the API server shows another state than before, and all must be learnt anew")]
    OtherStore,
}

/// A client that asks in the controllers' name. Nothing is tried again behind the engine's back: it alone knows what a
/// write without an answer means.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    let agent = format!("{NAME}/{}", env!("CARGO_PKG_VERSION"));
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, HeaderValue::from_str(&agent).expect("a version is plain text")));
    Client::try_from(config)
}

/// The controllers, ready to run.
pub struct Controller {
    client: Client,
    options: Options,
    monitor: Arc<Monitor>,
    inquiries: Inquiries,
    witness: Option<Witness>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What all calls of one replica have in common.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) lanes: Lanes,
    pub(crate) term: Term,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) inquiries: Inquiries,
    witness: Option<Witness>,
}

impl Context {
    pub(crate) fn tell(&self, moment: Moment<'_>) {
        if let Some(witness) = &self.witness {
            witness(moment);
        }
    }
}

impl Controller {
    pub fn new(client: Client, options: Options) -> Self {
        Self { client, options, monitor: Arc::default(), inquiries: Inquiries::default(), witness: None }
    }

    /// Whoever asks there is answered by this one.
    pub fn answers(self, inquiries: Inquiries) -> Self {
        Self { inquiries, ..self }
    }

    /// Somebody looks over its shoulder.
    pub fn watched_by(self, witness: Witness) -> Self {
        Self { witness: Some(witness), ..self }
    }

    /// To see from outside how it is.
    pub fn monitor(&self) -> Arc<Monitor> {
        self.monitor.clone()
    }

    /// Runs until `stop`, and then finishes what is under way: no new plan, the calls of those that are being carried out,
    /// the lease given back.
    ///
    /// With a lease it first waits to lead, and reads nothing until then: what the last leader did must be seen, so
    /// everything would have to be listed anew anyway, and a replica that only waits costs nobody anything.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Ended> {
        let Some(lease) = self.options.lease.clone() else {
            return self.work(Term::unlimited(CALL_TIMEOUT), &stop).await;
        };
        let mut elector = Elector::new(self.client.clone(), lease, CALL_TIMEOUT);
        let monitor = self.monitor.clone();
        let asked = stop.cancelled();
        tokio::select! {
            () = asked => return Ok(()),
            () = elector.win(&monitor) => {}
        }
        let term = elector.term();
        // A task of its own, so that nothing that takes long here keeps the lease from being renewed.
        let (mut holding, done) = (JoinSet::new(), CancellationToken::new());
        holding.spawn(elector.hold_until(done.clone()));
        tokio::select! {
            Some(lost) = holding.join_next() => match lost {
                Ok(Some(lost)) => Err(Ended::Lost(lost)),
                _ => Err(Ended::Lost(Lost::TooLate)),
            },
            ended = self.work(term, &stop) => {
                done.cancel();
                holding.join_next().await;
                ended
            }
        }
    }

    async fn work(self, term: Term, stop: &CancellationToken) -> Result<(), Ended> {
        let Self { client, options, monitor, inquiries, witness } = self;
        let lanes = Lanes::new(options.limits);
        let context = Arc::new(Context { client, options, lanes, term, monitor, inquiries, witness });
        daemonset::run(context, stop).await;
        if stop.is_cancelled() { Ok(()) } else { Err(Ended::OtherStore) }
    }
}
