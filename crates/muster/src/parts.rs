//! The parts of the process that run beside the server: each has a name, asks the server as itself, and is started anew if
//! it ends although nobody asked it to.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use muster_server::Who;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// A loop that runs beside every server of ours, until it is told to stop.
pub(crate) struct Loop {
    pub(crate) name: &'static str,
    pub(crate) who: Who,
    pub(crate) run: fn(kube::Client, CancellationToken) -> Running,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All of them: whoever adds one adds it here.
pub(crate) const LOOPS: &[Loop] = &[
    Loop {
        name: "disruption",
        who: Who::Disruption,
        run: |client, stop| Box::pin(muster_control::disruption(client, stop)),
    },
    Loop {
        name: "endpoints",
        who: Who::Endpoints,
        run: |client, stop| Box::pin(muster_control::endpoints(client, stop)),
    },
    Loop {
        name: "garbage-collector",
        who: Who::GarbageCollector,
        run: |client, stop| Box::pin(muster_control::garbage(client, stop)),
    },
];

/// Stands for every loop where they are left out.
const ALL: &str = "all";

/// A part that ended is started anew after this, and after twice as long each time that it ends soon again.
const RESTART_AFTER: Duration = Duration::from_millis(500);
const RESTART_AFTER_MAX: Duration = Duration::from_secs(60);

/// The names of the loops, for the command line.
pub(crate) fn names() -> PossibleValuesParser {
    LOOPS.iter().map(|it| it.name).chain([ALL]).collect::<Vec<_>>().into()
}

/// The loops that remain without these.
pub(crate) fn loops(without: &[String]) -> impl Iterator<Item = &'static Loop> {
    LOOPS.iter().filter(|it| !without.iter().any(|out| out == it.name || out == ALL))
}

/// The parts that run now.
#[derive(Debug)]
pub(crate) struct Parts {
    stop: CancellationToken,
    running: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Parts {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, running: JoinSet::new(), names: HashMap::new() }
    }

    /// The parts that run are told here to stop.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// A part without which there is nothing: the process ends with it.
    pub(crate) fn need<F>(&mut self, name: &'static str, part: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let id = self.running.spawn(part).id();
        self.names.insert(id, name);
    }

    /// A part that is started anew whenever it ends, for it learns all it knows from the server.
    pub(crate) fn keep<F>(&mut self, name: &'static str, start: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let stop = self.stop();
        self.need(name, async move {
            keep(name, start, &stop).await;
            Ok(())
        });
    }

    /// Waits until one that is needed ends, and says which and why.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        let Some(ended) = self.running.join_next_with_id().await else {
            return anyhow!("nothing runs that could end");
        };
        match ended {
            Ok((id, Ok(()))) => anyhow!("the {} ended", self.name(id)),
            Ok((id, Err(error))) => error.context(format!("the {} failed", self.name(id))),
            Err(error) => anyhow!("the {} panicked: {}", self.name(error.id()), said(error)),
        }
    }

    /// Waits until all have ended, which they do once they are told to stop.
    pub(crate) async fn all_ended(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            self.names.remove(&id);
        }
    }

    /// Those that have not ended yet.
    pub(crate) fn still_running(&self) -> String {
        let mut names: Vec<_> = self.names.values().copied().collect();
        names.sort_unstable();
        names.join(", ")
    }

    fn name(&mut self, id: Id) -> &'static str {
        self.names.remove(&id).unwrap_or("part of the process")
    }
}

async fn keep<F>(name: &str, start: impl Fn() -> F, stop: &CancellationToken)
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut after = RESTART_AFTER;
    loop {
        let began = Instant::now();
        // A task of its own, so that a panic ends nothing else.
        let mut running = JoinSet::new();
        running.spawn(start());
        let ended = running.join_next().await;
        if stop.is_cancelled() {
            return;
        }
        let why = match ended {
            None | Some(Ok(Ok(()))) => "ended".to_owned(),
            Some(Ok(Err(error))) => format!("failed: {error:#}"),
            Some(Err(error)) => format!("panicked: {}", said(error)),
        };
        if RESTART_AFTER_MAX < began.elapsed() {
            after = RESTART_AFTER;
        }
        tracing::error!("the {name} {why}; it is started anew in {} ms", after.as_millis());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(after) => {}
        }
        after = (after * 2).min(RESTART_AFTER_MAX);
    }
}

/// What a part said when it panicked.
fn said(error: JoinError) -> String {
    let Ok(said) = error.try_into_panic() else { return "it was cancelled".to_owned() };
    let text = said.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| said.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it did not say why".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_is_started_anew_and_one_that_is_needed_is_named() {
        let stop = CancellationToken::new();
        let mut parts = Parts::new(stop.clone());
        let starts = Arc::new(AtomicUsize::new(0));
        let (third, came) = tokio::sync::oneshot::channel();
        let third = Arc::new(std::sync::Mutex::new(Some(third)));
        let counted = starts.clone();
        let waits = stop.clone();
        parts.keep("loop", move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            let (third, waits) = (third.clone(), waits.clone());
            async move {
                match nth {
                    0 => panic!("of old age"),
                    1 => Err(anyhow!("no mood")),
                    _ => {
                        let _ = third.lock().unwrap().take().unwrap().send(());
                        waits.cancelled().await;
                        Ok(())
                    }
                }
            }
        });
        came.await.unwrap();
        parts.need("server", async { panic!("at once") });
        assert_eq!(parts.ended().await.to_string(), "the server panicked: at once");
        assert_eq!(parts.still_running(), "loop");
        stop.cancel();
        parts.all_ended().await;
        assert_eq!((parts.still_running().as_str(), starts.load(Ordering::Relaxed)), ("", 3));
    }

    #[test]
    fn loops_are_left_out_by_name_or_all_at_once() {
        let left = |without: &[&str]| {
            let without: Vec<_> = without.iter().map(|it| (*it).to_owned()).collect();
            loops(&without).map(|it| it.name).collect::<Vec<_>>()
        };
        let all: Vec<_> = LOOPS.iter().map(|it| it.name).collect();
        assert_eq!(left(&[]), all);
        assert_eq!(left(&[all[0]]), all[1..]);
        assert_eq!(left(&["all"]), Vec::<&str>::new());
    }
}
