//! What only the running controller knows of a set, for whoever asks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use muster_engine::daemonset::explain::Controller;
use muster_engine::daemonset::facts::Key;
use tokio::sync::{mpsc, oneshot};

/// Questions that wait at most: whoever asks when there are more is told so.
const QUESTIONS_MAX: usize = 16;

/// Where a running controller can be asked. It stays the same when one controller ends and the next begins.
#[derive(Clone, Default)]
pub struct Inquiries(Arc<Mutex<Vec<mpsc::Sender<Question>>>>);

impl fmt::Debug for Inquiries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inquiries").finish_non_exhaustive()
    }
}

pub(crate) struct Question {
    pub(crate) key: Key,
    pub(crate) answer: oneshot::Sender<Option<Controller>>,
}

/// Why there is no answer, as the endpoint says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswered {
    #[error("this replica does not act: it waits to lead, or has just begun")]
    NobodyActs,
    #[error("the controller does not look after such a DaemonSet")]
    NoSuchSet,
}

impl Inquiries {
    /// Where the endpoint is, on every server that has it.
    pub const PATH: &'static str = "/debug/explain";

    /// What is known of a set now, as JSON. The query is the endpoint's: `namespace=…&name=…`.
    pub async fn answer(&self, query: &str) -> Result<String, NotAnswered> {
        let of = |wanted: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        self.ask(&of("namespace"), &of("name")).await
    }

    /// The same, of this set.
    pub async fn ask(&self, namespace: &str, name: &str) -> Result<String, NotAnswered> {
        let known = self.known(&Key::new(namespace, name)).await?;
        Ok(known.to_json().to_string())
    }

    async fn known(&self, key: &Key) -> Result<Controller, NotAnswered> {
        let askable = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|it| !it.is_closed());
            all.clone()
        };
        let mut result = Err(NotAnswered::NobodyActs);
        for sender in askable {
            let (answer, answered) = oneshot::channel();
            if sender.try_send(Question { key: key.clone(), answer }).is_err() {
                continue;
            }
            match answered.await {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => result = Err(NotAnswered::NoSuchSet),
                Err(_) => {}
            }
        }
        result
    }

    pub(crate) fn open(&self) -> mpsc::Receiver<Question> {
        let (sender, questions) = mpsc::channel(QUESTIONS_MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        questions
    }
}
