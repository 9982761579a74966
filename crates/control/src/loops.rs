//! The shell of every loop but the DaemonSets': it lists and watches, makes the calls and records the events that the
//! engine's queue asks for, and asks it again in time.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use muster_engine::controller::{Controller, Event, Outcome, Request, Watched, WorkQueue};
use muster_engine::daemonset::execution::Refusal;
use muster_events::{EventRecorder, EventSource};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::call::{CALL_TIMEOUT, send};
use crate::daemonset::{SLEEP_MAX, now};
use crate::reflect::{Brought, OfLoop, reflect};
use crate::request::{JSON, METADATA, request};

/// Events taken in before the loop looks: a burst is looked at once.
const EVENTS_MAX: usize = 1024;

/// A loop that ended although nobody had asked it to begins anew after this.
const ANEW_AFTER: Duration = Duration::from_secs(1);

/// How one loop is run.
pub(crate) struct Terms {
    /// What events say who recorded them, and logs.
    pub(crate) component: &'static str,
    /// Calls under way at once.
    pub(crate) calls_max: usize,
}

/// Runs a loop until `stop`. One that panics, or whose API server shows another store than before, begins anew: nothing
/// that it knew is trusted.
pub(crate) async fn run<L>(
    client: Client,
    terms: Terms,
    begin: impl Fn() -> BoxFuture<'static, L>,
    stop: CancellationToken,
) where
    L: Controller<Fact: Send, Key: Send, Call: Send + Sync> + Send + 'static,
{
    let running = async {
        loop {
            let inner = begin().await;
            let ended = AssertUnwindSafe(run_once(&client, &terms, inner)).catch_unwind().await;
            match ended {
                Ok(_) => tracing::warn!(component = terms.component, "it begins anew"),
                Err(_) => {
                    tracing::error!(
                        component = terms.component,
                        "it panicked, which is a bug: it begins anew"
                    );
                }
            }
            tokio::time::sleep(ANEW_AFTER).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        never = running => { let _: Infallible = never; }
    }
}

/// Ends when a watch does.
async fn run_once<L>(client: &Client, terms: &Terms, inner: L)
where
    L: Controller<Fact: Send, Key: Send, Call: Send + Sync> + Send + 'static,
{
    let (sender, brought) = mpsc::channel(EVENTS_MAX);
    let relist = watch::Sender::new(0);
    let reflecting = inner.watches().into_iter().enumerate().map(|(kind, watch)| {
        let path = watch.resource.collection(None);
        let source = OfLoop::<L>::new(kind, watch);
        reflect(client.clone(), source, path, sender.clone(), relist.subscribe()).boxed()
    });
    let reflecting = futures::future::select_all(reflecting);
    let (recorder, recording) =
        EventRecorder::new(client.clone(), EventSource::component(terms.component), Counter::default());
    let driving = drive(client, WorkQueue::new(inner, terms.calls_max), &recorder, brought);
    tokio::select! {
        _ = reflecting => {}
        () = recording => {}
        () = driving => {}
    }
}

async fn drive<L>(
    client: &Client,
    mut queue: WorkQueue<L>,
    recorder: &EventRecorder,
    mut brought: mpsc::Receiver<(usize, Brought<Watched<L::Fact>>)>,
) where
    L: Controller<Call: Send + Sync> + 'static,
{
    let mut acting: FuturesUnordered<BoxFuture<'static, (L::Call, Outcome)>> = FuturesUnordered::new();
    let mut events = Vec::new();
    loop {
        let step = queue.next(now());
        for call in step.calls {
            tracing::debug!(%call);
            acting.push(make::<L>(client.clone(), call).boxed());
        }
        step.events.into_iter().for_each(|it| recorder.record(it));
        let sleep = step.wake_at.map_or(SLEEP_MAX, |at| at.since(now()).min(SLEEP_MAX));
        tokio::select! {
            biased;
            Some((call, outcome)) = acting.next() => {
                if let Outcome::Refused(refusal) = &outcome {
                    tracing::debug!(%call, %refusal);
                }
                queue.done(&call, outcome, now());
            }
            taken = brought.recv_many(&mut events, EVENTS_MAX) => {
                if taken == 0 {
                    return;
                }
                for (kind, brought) in events.drain(..) {
                    if let Some(event) = event(kind, brought) {
                        queue.apply(event, now());
                    }
                }
            }
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

fn event<F>(kind: usize, brought: Brought<Watched<F>>) -> Option<Event<F>> {
    let put = |it| match it {
        Watched::Put(fact) => Some(fact),
        Watched::Gone(_) | Watched::Bookmark { .. } | Watched::Error { .. } => None,
    };
    match brought {
        Brought::Listed { items, .. } => {
            Some(Event::Listed { kind, facts: items.into_iter().filter_map(put).collect() })
        }
        Brought::Watched(Watched::Put(fact)) => Some(Event::Applied { kind, fact }),
        Brought::Watched(Watched::Gone(fact)) => Some(Event::Deleted { kind, fact }),
        Brought::Watched(Watched::Bookmark { .. } | Watched::Error { .. }) => None,
    }
}

async fn make<L: Controller>(client: Client, call: L::Call) -> (L::Call, Outcome) {
    let Request { verb, path, body, metadata_only } = L::request(&call);
    let accept = if metadata_only { METADATA } else { JSON };
    let request = request(verb, path, accept, body.map(|it| it.to_string()).unwrap_or_default());
    let outcome = match tokio::time::timeout(CALL_TIMEOUT, send(&client, request)).await {
        Err(_) => Outcome::Refused(Refusal::NoAnswer),
        Ok(Err(refusal)) => Outcome::Refused(refusal),
        Ok(Ok(answer)) => Outcome::Done(answer.as_ref().to_vec()),
    };
    (call, outcome)
}
