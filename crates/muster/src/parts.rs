//! The parts of the process: the server, and what runs beside it. Each of those has a name, asks the server as itself, and
//! is started anew if it ends although nobody asked it to.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use muster_control::NodeLifecycleSettings;
use muster_server::{ApiServer, BuiltinUser};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::span;

/// ApplyMode long the parts beside the server may take to finish what they are doing before it stops too.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The server gives its answers five seconds to end; whatever hangs longer is left behind.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// A loop that runs beside every server of ours, until it is told to stop.
pub(crate) struct Loop {
    pub(crate) name: &'static str,
    pub(crate) who: BuiltinUser,
    pub(crate) run: fn(kube::Client, &Choices, CancellationToken) -> Running,
}

/// What may be chosen of the loops.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Choices {
    /// A node that is not heard of for so long is lost: nobody knows how it is
    #[arg(long, value_name = "TIME", default_value = "50s", value_parser = span::parse)]
    node_monitor_grace_period: Duration,
    /// The same for a node that has never said how it is
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span::parse)]
    node_startup_grace_period: Duration,
}

impl Choices {
    fn node_lifecycle(self) -> NodeLifecycleSettings {
        NodeLifecycleSettings {
            grace: self.node_monitor_grace_period,
            startup_grace: self.node_startup_grace_period,
            ..NodeLifecycleSettings::default()
        }
    }
}

pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All of them: whoever adds one adds it here.
pub(crate) const LOOPS: &[Loop] = &[
    Loop {
        name: "disruption",
        who: BuiltinUser::Disruption,
        run: |client, _, stop| Box::pin(muster_control::disruption(client, stop)),
    },
    Loop {
        name: "endpoints",
        who: BuiltinUser::Endpoints,
        run: |client, _, stop| Box::pin(muster_control::endpoints(client, stop)),
    },
    Loop {
        name: "garbage-collector",
        who: BuiltinUser::GarbageCollector,
        run: |client, _, stop| Box::pin(muster_control::garbage_collector(client, stop)),
    },
    Loop {
        name: "node-lifecycle",
        who: BuiltinUser::NodeLifecycle,
        run: |client, it, stop| Box::pin(muster_control::node_lifecycle(client, it.node_lifecycle(), stop)),
    },
    Loop {
        name: "scheduler",
        who: BuiltinUser::Scheduler,
        run: |client, _, stop| Box::pin(muster_control::scheduler(client, stop)),
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
#[derive(Debug, Default)]
pub(crate) struct Parts {
    stop: CancellationToken,
    /// They are to stop at once, whatever they are doing.
    hurry: CancellationToken,
    server_stop: CancellationToken,
    server: JoinSet<anyhow::Result<()>>,
    others: JoinSet<()>,
    /// The others' names.
    names: HashMap<Id, String>,
    /// ApplyMode long they may take to finish, if that is longer than usual.
    grace: Duration,
}

impl Parts {
    /// The parts beside the server are told here to stop.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// And here not to finish anything.
    pub(crate) fn hurry(&self) -> CancellationToken {
        self.hurry.clone()
    }

    /// Without the server there is nothing: the process ends with it.
    pub(crate) fn serve(&mut self, server: ApiServer) {
        let serving = server.serve(self.server_stop.clone());
        self.server.spawn(async move { Ok(serving.await?) });
    }

    /// A part beside the server, which learns all it knows from it: it is started anew whenever it ends.
    pub(crate) fn keep<F>(&mut self, name: impl Into<String>, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (stop, name) = (self.stop(), name.into());
        let called = name.clone();
        let id = self.others.spawn(async move { keep(&called, start, &stop).await }).id();
        self.names.insert(id, name);
    }

    /// Some part may need so long to finish what it is doing.
    pub(crate) fn wait_for(&mut self, grace: Duration) {
        self.grace = self.grace.max(grace);
    }

    /// Waits until the server ends, and says why.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.server.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow!("the server panicked: {}", said(error)),
            None | Some(Ok(Ok(()))) => anyhow!("the server ended"),
        }
    }

    /// Ends them all: the server last, so that the others can finish what they are doing.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        let others = async {
            while let Some(ended) = self.others.join_next_with_id().await {
                self.names.remove(&ended.map_or_else(|it| it.id(), |(id, ())| id));
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT.max(self.grace), others).await.is_err() {
            let mut names: Vec<_> = self.names.into_values().collect();
            names.sort_unstable();
            tracing::warn!("did not end in time: {}", names.join(", "));
        }
        self.server_stop.cancel();
        let server = async { while self.server.join_next().await.is_some() {} };
        if tokio::time::timeout(SERVER_STOP_TIMEOUT, server).await.is_err() {
            tracing::warn!("the server did not end in time");
        }
    }
}

/// Rule: a part that ends, fails or panics, even before it runs, is logged and restarted, until `stop`.
async fn keep<F>(name: &str, mut start: impl FnMut() -> F, stop: &CancellationToken)
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut after = RESTART_AFTER;
    loop {
        let began = Instant::now();
        // A task of its own, so that a panic ends nothing else.
        let mut running = JoinSet::new();
        let ended = match catch_unwind(AssertUnwindSafe(&mut start)) {
            Ok(part) => {
                running.spawn(part);
                running.join_next().await
            }
            Err(panic) => Some(Ok(Err(anyhow!("panicked: {}", message(&*panic))))),
        };
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
        tracing::error!("the {name} {why}; it is restarted in {} ms", after.as_millis());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(after) => {}
        }
        after = (after * 2).min(RESTART_AFTER_MAX);
    }
}

/// What a part said when it panicked.
fn said(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "it was cancelled".to_owned() };
    message(&*panic)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_or_panics_is_restarted() {
        let mut parts = Parts::default();
        let (said, mut told) = tokio::sync::mpsc::unbounded_channel();
        let (stop, starts) = (parts.stop(), AtomicUsize::new(0));
        parts.keep("loop", move || {
            let nth = starts.fetch_add(1, Ordering::Relaxed);
            let (said, stop) = (said.clone(), stop.clone());
            said.send(format!("start {nth}")).unwrap();
            assert_ne!(nth, 3, "before it runs");
            async move {
                match nth {
                    0 => panic!("of old age"),
                    1 => return Err(anyhow!("no mood")),
                    2 => return Ok(()),
                    _ => stop.cancelled().await,
                }
                said.send("told to stop".to_owned()).unwrap();
                Ok(())
            }
        });
        for nth in 0..5 {
            assert_eq!(told.recv().await, Some(format!("start {nth}")));
        }
        parts.end().await;
        assert_eq!(told.recv().await.as_deref(), Some("told to stop"));
        assert_eq!(told.recv().await, None);
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
