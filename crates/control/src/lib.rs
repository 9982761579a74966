//! The controllers' shells: they list and watch, ask the engine what to do, and make the calls it says.
//!
//! Nothing is decided here. What to do next is `muster_engine::cache`'s word, how to carry it out and what each answer
//! means is `muster_engine::act`'s, and the bodies are `muster_engine::manifest`'s. The API server may be anyone's.
//!
//! ```text
//! let client = muster_control::client(config)?;
//! Controller::new(client, Options::default()).run(stop).await?;
//! ```

mod call;
mod daemonset;
mod garbage;
mod record;
mod reflect;

use std::fmt;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

pub use garbage::garbage;
pub use muster_engine::manifest::Binding;
pub use muster_engine::plan::Settings;

/// What may be chosen by whoever runs the controllers.
#[derive(Debug, Clone)]
pub struct Options {
    pub settings: Settings,
    /// Only the sets in these are looked at; none means all of them.
    pub namespaces: Vec<String>,
    /// Sets whose plans are carried out side by side.
    pub workers: usize,
}

/// A plan of a settled set is done in milliseconds, and one that is not has calls enough to keep the server busy.
pub const WORKERS: usize = 16;

impl Default for Options {
    fn default() -> Self {
        Self { settings: Settings::default(), namespaces: Vec::new(), workers: WORKERS }
    }
}

/// Why the controllers ended although nobody had asked them to.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("the controller's own loops ended")]
    Alone,
}

/// A client that asks in the controllers' name. Nothing is tried again behind the engine's back: it alone knows what a
/// write without an answer means.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    const NAME: &str = concat!("muster-controller/", env!("CARGO_PKG_VERSION"));
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, HeaderValue::from_static(NAME)));
    Client::try_from(config)
}

/// The controllers, ready to run.
pub struct Controller {
    client: Client,
    options: Options,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Controller {
    pub fn new(client: Client, options: Options) -> Self {
        Self { client, options }
    }

    /// Runs until `stop`. Calls that are under way then are left as they are: the next start finds out.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Ended> {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            () = daemonset::run(self.client.clone(), &self.options) => Err(Ended::Alone),
        }
    }
}
