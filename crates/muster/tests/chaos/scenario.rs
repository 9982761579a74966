//! A cluster under load, to which one fault after the other happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::fault::{Fault, Impact, SERVERS};
use super::history::{self, History, Revision};
use super::load::{Load, Reply, WatcherProgress, WriteAttempt};
use super::recorder::{Answer, Watcher, random, summary};
use super::report::{AwayWindow, Observed, QuietWindow, RECOVERY_MAX, RefusalWindow, Report, say, seconds};
use super::servers::ApiServer;

/// Minimum duration of a fault under which all writes are made at some server, and of one under which all are refused at
/// some server. A random time of up to [`HOLD_RANDOM_MS`] is added.
const SERVING_HOLD: Duration = Duration::from_secs(3);
const REFUSING_HOLD: Duration = Duration::from_secs(6);
const HOLD_RANDOM_MS: u64 = 2000;

/// Time between two faults, at least and at most.
const PAUSE_MS: (u64, u64) = (300, 1000);

/// Time after which the test no longer waits for something that must happen earlier.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which the test looks at servers and writes.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

const ALL_SERVERS: [usize; SERVERS] = [0, 1, 2];

/// A cluster under load.
pub(crate) struct Scenario {
    cluster: Cluster,
    load: Arc<Load>,
    clients: Vec<JoinHandle<()>>,
    watchers: Vec<WatcherProgress>,
    watching: Vec<JoinHandle<Result<Watcher, String>>>,
    report: Report,
    started: Instant,
}

/// A point in time, after which writes are looked at.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    /// Number of writes that had ended.
    writes: usize,
}

impl Scenario {
    /// Starts the load, and waits until all servers acknowledge writes.
    pub(crate) async fn start(cluster: Cluster) -> Self {
        let mut clients = Vec::new();
        for server in &cluster.servers {
            clients.push(server.client().await);
        }
        let away = cluster.servers.iter().map(ApiServer::is_away).collect();
        let load = Arc::new(Load::new(&clients, away));
        let (watchers, watching) = load.start_watchers().await;
        let clients = load.start_clients();
        let (report, started) = (Report::default(), Instant::now());
        let mut scenario = Self { cluster, load, clients, watchers, watching, report, started };
        let mark = scenario.mark();
        let served = scenario.wait_for_acknowledgements(&ALL_SERVERS, mark).await;
        assert!(served.is_some(), "a server acknowledges no writes");
        scenario
    }

    /// Makes a fault, waits until it has had its effect, repairs it, and waits until all servers and members work.
    pub(crate) async fn run_fault(&mut self, number: usize, fault: Fault) {
        let quiet_since = Instant::now();
        let pause = PAUSE_MS.0 + random() % (PAUSE_MS.1 - PAUSE_MS.0);
        self.wait(Duration::from_millis(pause), |_| None::<()>).await;
        let leader = self.cluster.leader().await;
        let what = fault.describe(leader);
        let Impact { serving, refusing } = fault.impact();
        let deletable = match fault {
            Fault::FullDatabase => self.create_deletable(number).await,
            _ => Vec::new(),
        };

        let reloads = self.count_reloads(fault).await;
        let begun = Instant::now();
        self.report.quiet.push(QuietWindow { from: quiet_since, to: begun });
        if let Err(why) = self.cluster.inject(fault, leader).await {
            self.violation(&what, format_args!("it could not be made: {why}"));
        }
        let made = self.mark();
        let mut observed = Observed::default();
        if !serving.is_empty() {
            let served = self.wait_for_acknowledgements(&serving, made).await;
            observed.acknowledged = Some(served.unwrap_or(PATIENCE));
            self.check_recovery(&what, served, "write was acknowledged through each server in reach of etcd");
        }
        if !refusing.is_empty() {
            let has_answered = |it: &Self| it.slowest_first(&refusing, made, |_| true);
            if self.wait(PATIENCE, has_answered).await.is_none() {
                self.violation(&what, format_args!("a server that runs answered no write"));
            }
        }
        for (server, key, revision) in deletable {
            self.delete_while_full(&what, server, &key, revision).await;
        }
        let hold = if refusing.is_empty() { SERVING_HOLD } else { REFUSING_HOLD };
        let hold = hold + Duration::from_millis(random() % HOLD_RANDOM_MS);
        self.wait(hold.saturating_sub(made.at.elapsed()), |_| None::<()>).await;

        if !refusing.is_empty() {
            self.report.refusals.push(RefusalWindow {
                fault: what.clone(),
                kind: fault.kind(),
                servers: refusing.clone(),
                from: made.at,
                to: Instant::now(),
                is_full: fault == Fault::FullDatabase,
            });
        }
        if let Err(why) = self.cluster.repair(fault).await {
            self.violation(&what, format_args!("it could not be repaired: {why}"));
        }
        let repaired = self.mark();
        self.recover(&what, repaired, &mut observed).await;
        if reloads.is_some() && self.count_reloads(fault).await <= reloads {
            self.violation(
                &what,
                format_args!("it had no effect: the server did not load all objects again"),
            );
        }
        for server in (0..SERVERS).filter(|it| !serving.contains(it) && !refusing.contains(it)) {
            self.report.away.push(AwayWindow { server, from: begun, to: Instant::now() });
        }
        self.report.add(fault.kind(), &observed);
        say(&format!(
            "{number:>3} {what:<50} at {:>9} acknowledged {:>7}   repaired at {:>9} resumed {:>7} watched {:>7}",
            seconds(made.at - self.started),
            observed.acknowledged.map_or_else(|| "-".to_owned(), seconds),
            seconds(repaired.at - self.started),
            seconds(observed.resumed),
            seconds(observed.watched),
        ));
    }

    /// Waits until all servers acknowledge writes, all watchers have seen them, and all members have caught up.
    async fn recover(&mut self, what: &str, repaired: Mark, observed: &mut Observed) {
        let resumed = self.wait_for_acknowledgements(&ALL_SERVERS, repaired).await;
        observed.resumed = resumed.unwrap_or(PATIENCE);
        self.check_recovery(what, resumed, "write was acknowledged through each server after the repair");
        let written = self.load.acknowledged_revision();
        let has_seen = |it: &WatcherProgress| written <= it.seen.load(Ordering::Relaxed);
        let watched = |it: &Self| it.watchers.iter().all(has_seen).then(|| repaired.at.elapsed());
        let watched = self.wait(PATIENCE, watched).await;
        observed.watched = watched.unwrap_or(PATIENCE);
        self.check_recovery(what, watched, "write after the repair was seen by each watcher");
        match self.cluster.settle().await {
            Ok(false) => {}
            Ok(true) => say("    the history of older faults was compacted, because the databases are large"),
            Err(why) => self.violation(what, format_args!("{why}")),
        }
    }

    /// Ends the load, and checks all that the clients saw.
    pub(crate) async fn finish(mut self) -> Report {
        self.load.finish_clients();
        for client in std::mem::take(&mut self.clients) {
            client.await.unwrap();
        }
        for server in ALL_SERVERS {
            let listed = self.load.list(server).await;
            if !matches!(listed, Answer::Done(())) {
                self.violation("at the end", format_args!("list through server {}: {listed:?}", server + 1));
            }
        }
        // The last write, which every watcher must see.
        let last = self.load.put(0, "last", None).await;
        let Answer::Done(last) = last else { panic!("the last write was not acknowledged: {last:?}") };
        self.load.finish_watchers(last);
        let mut watches = Vec::new();
        for (number, watcher) in std::mem::take(&mut self.watching).into_iter().enumerate() {
            match tokio::time::timeout(PATIENCE, watcher).await {
                Ok(ended) => match ended.unwrap() {
                    Ok(watcher) => watches.push(watcher.told),
                    Err(why) => self.violation("at the end", format_args!("watcher {number}: {why}")),
                },
                Err(_) => {
                    self.violation("at the end", format_args!("watcher {number} did not see the last write"));
                }
            }
        }
        let resumed: usize = self.watchers.iter().map(|it| it.resumed.load(Ordering::Relaxed)).sum();
        let history = History { operations: self.load.recorder.operations(), watches };
        let commits = history.watches.first().map_or(0, Vec::len);
        say(&format!(
            "{}; {commits} commits seen by each of {} watchers, which resumed {resumed} times",
            summary(&history.operations),
            history.watches.len()
        ));
        for wrong in history::check(&history) {
            self.violation("history", format_args!("{wrong}"));
        }
        self.report.check_writes(&self.load.writes_since(0));
        self.report
    }

    /// For a compaction under a stopped watch, returns how often the server has loaded all objects again. `None` for
    /// other faults.
    async fn count_reloads(&self, fault: Fault) -> Option<u64> {
        let Fault::CompactUnderStoppedServer(server) = fault else { return None };
        Some(self.cluster.servers[server].reloads_after_compaction().await)
    }

    /// Creates one object for each server, which is deleted while the databases are full.
    async fn create_deletable(&mut self, number: usize) -> Vec<(usize, String, Revision)> {
        let mut created = Vec::new();
        for server in ALL_SERVERS {
            let key = format!("full-{number}-{server}");
            match self.load.put(server, &key, None).await {
                Answer::Done(revision) => created.push((server, key, revision)),
                answer => self.violation(&key, format_args!("it was not created: {answer:?}")),
            }
        }
        created
    }

    async fn delete_while_full(&mut self, what: &str, server: usize, key: &str, revision: Revision) {
        let began = Instant::now();
        loop {
            let answer = self.load.delete(server, key, revision).await;
            // An earlier attempt may have been made without an answer.
            if matches!(answer, Answer::Done(()) | Answer::Refused) {
                return;
            }
            if RECOVERY_MAX < began.elapsed() {
                let server = server + 1;
                return self.violation(what, format_args!("a delete through server {server}: {answer:?}"));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn mark(&self) -> Mark {
        Mark { at: Instant::now(), writes: self.load.write_count() }
    }

    /// Returns the time from the mark until each of these servers had acknowledged a write that began after the mark.
    async fn wait_for_acknowledgements(&mut self, servers: &[usize], mark: Mark) -> Option<Duration> {
        let acknowledged = |it: &WriteAttempt| it.reply == Reply::Acknowledged;
        self.wait(PATIENCE, |it| it.slowest_first(servers, mark, acknowledged)).await
    }

    /// Returns the time from the mark until each of these servers had given such an answer to a write that began after
    /// the mark. `None` if one has not.
    fn slowest_first(
        &self,
        servers: &[usize],
        mark: Mark,
        is_such: impl Fn(&WriteAttempt) -> bool,
    ) -> Option<Duration> {
        let writes = self.load.writes_since(mark.writes);
        let first = |server: &usize| {
            let answered = writes.iter().filter(|it| it.server == *server && mark.at <= it.began);
            answered.filter(|it| is_such(it)).map(|it| it.ended - mark.at).min()
        };
        servers.iter().map(first).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Adds a violation if something came too late, or not at all.
    fn check_recovery(&mut self, what: &str, took: Option<Duration>, which: &str) {
        if took.is_none_or(|it| RECOVERY_MAX < it) {
            self.violation(what, format_args!("no {which} within {}", seconds(RECOVERY_MAX)));
        }
    }

    fn violation(&mut self, what: &str, why: std::fmt::Arguments<'_>) {
        self.report.violation(format!("{what}: {why}"));
    }

    /// Waits until `look` finds something. A server that has ended by itself is a violation under every fault. It is
    /// started again, so that the next faults find it.
    async fn wait<T>(&mut self, timeout: Duration, look: impl Fn(&Self) -> Option<T>) -> Option<T> {
        let began = Instant::now();
        loop {
            for number in ALL_SERVERS {
                if let Some(ended) = self.cluster.servers[number].supervise() {
                    self.report.violation(ended);
                }
            }
            if let Some(found) = look(self) {
                return Some(found);
            }
            if timeout <= began.elapsed() {
                return None;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}
