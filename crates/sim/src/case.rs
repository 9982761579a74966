//! Cases of the catalogue. A case is a text file with an initial cluster, a script of user actions, and the expected
//! final state.
//!
//! ```text
//! An unbound pod belongs to the node it is meant for.
//! A label change before binding made another pod each time.
//!
//! world                    # a scenario; also `replicas 2` and `burst 3`; `node n1..n9` are nine nodes;
//!                          # `lagging-server 20` is a second API server, up to 20 commits behind, for all controllers
//!   node a
//!   set d
//! run                      # user actions, see `UserAction::parse`
//!   no-scheduler
//!   wait 5
//!   see                    # expected pods at this point; checked in the run without faults only
//!     a  d@1 pending
//!   see status
//!     d  desired:1 ready:0
//!   see rollout
//!     d  phase:Rolling
//!   faults                 # no fault is injected before this line; without this line, faults are injected anywhere
//!   scheduler
//! writes create<=1 delete<=0
//! end                      # expected pods when the cluster has converged
//!   a  d@1 ready
//! end anywhere             # instead of `end`: the names of the nodes do not matter
//! end status               # expected counts of the status
//!   d  desired:1 misscheduled:0
//! end revisions            # template#number; revisions without a set: the namespace in parentheses
//!   d  1#1
//! end events               # expected number of Events by reason
//!   FailedDaemonPod 1
//! end rollout              # expected state of DaemonRollouts; every field can be left out
//!   d  phase:RolledBack step:canary attempt:1 admitted:a failed:a verdicts:1=Good,2=Bad
//! ```
//!
//! The script can have progressive rollouts. A policy is a spec in JSON, which may continue on lines with more
//! indentation:
//!
//! ```text
//!   policy careful                                # or `cluster-policy`; later `delete-policy`, `pause-policy` …
//!     {"daemonSets": ["d"], "order": {"by": "Name"},
//!      "steps": [{"name": "canary", "nodes": 1, "soak": "10s"}, {"name": "all", "nodes": "100%"}]}
//!   template d 2
//!   image d:2 crashes      # from now on, also in containers that run: good, never-ready, cannot-be-pulled …
//!   add node n1..n9        # nine nodes join
//!   kill zone=b            # all nodes with this label crash; `revive zone=b` reboots them
//!   crash-after admission  # kills the controller after its next write that admits nodes; or `verdict`, `write`
//!   approve d canary       # requests of an operator: also `pause`, `resume`, `abort`, `retry`; `approve d *`
//!   wipe-rollout d         # removes the status of the DaemonRollout; `delete-rollout d` deletes the object
//! ```
//!
//! In `end rollout` and `see rollout`, `admitted` and `failed` are names of nodes, or `none`. `verdicts` are those of
//! all revisions of the set, in the order of their numbers: the number of the template and the verdict, or `none`. The
//! phase of a set without a DaemonRollout is `none`.
//!
//! `loose REASON` exempts a case from the limit on creates and deletes in a run with a fault. `once REASON` exempts a
//! case from runs with faults. After the script, the cluster must converge and stay converged. Every invariant is
//! checked at every step.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use muster_api::text::{Text, panic_message};
use muster_engine::daemonset::facts::{Kind, Revision};
use muster_engine::daemonset::progressive::record::Phase;
use muster_engine::daemonset::progressive::verdict::RevisionVerdict;
use muster_engine::scenario;

use crate::faults::{FaultRates, InjectedFault, RequestFault, WatchFault};
use crate::invariants::Violation;
use crate::invariants::rollout_oracle::{admitted_names, verdict};
use crate::lagging_server::ServerFaults;
use crate::user_action::{UserAction, expand_node_range};
use crate::world::World;

/// A parsed case: an initial cluster, a script of user actions, and the expected final state.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// Description of the case: the text before its first section.
    pub about: String,
    /// Number of replicas of the DaemonSet controller.
    replicas: usize,
    /// Maximum number of creates in one plan, and of deletes in one plan. `None` keeps the shipped default.
    burst: Option<usize>,
    /// Maximum number of commits that a second API server is behind. `None` if there is one API server.
    lagging_server: Option<usize>,
    /// The initial cluster.
    world: scenario::World,
    /// Section `run`: the user actions and the checks between them.
    script: Vec<ScriptLine>,
    /// Section `writes`: `create` or `delete`, and the maximum number of pods that controllers may create or delete.
    /// Checked only in a run without faults.
    limits: Vec<(String, u64)>,
    /// Section `end`: the expected pods of each node after the cluster has converged.
    end: String,
    /// Whether the comparison with `end` ignores the names of the nodes (`end anywhere`).
    anywhere: bool,
    /// Section `end status`: the expected counts of the final DaemonSet statuses.
    status: Vec<ExpectedCounts>,
    /// Section `end revisions`: the expected ControllerRevisions, such as `d 1#1` (template number and revision
    /// number). `None` if they are not checked.
    revisions: Option<String>,
    /// Section `end events`: reason and expected number of Kubernetes Events. Checked only in a run without faults.
    events: Vec<(String, usize)>,
    /// Section `end rollout`: the expected state of the final DaemonRollouts.
    rollouts: Vec<ExpectedRollout>,
    /// Section `loose`: why the number of creates and deletes is not limited in runs with a fault. `None` if it is
    /// limited.
    pub loose: Option<String>,
    /// Section `once`: why the case is run only without faults. `None` if it is also run with faults.
    pub once: Option<String>,
}

/// One line of a case's script.
#[derive(Clone, Debug)]
enum ScriptLine {
    Action(UserAction),
    /// `see`: the expected pods of each node.
    See(String),
    /// `see status`: the expected counts of the DaemonSet statuses.
    SeeStatus(Vec<ExpectedCounts>),
    /// `see rollout`: the expected state of the DaemonRollouts.
    SeeRollout(Vec<ExpectedRollout>),
    /// `faults`: no fault is injected before this line. In a script without this line, a fault may be injected
    /// anywhere.
    Faults,
}

/// The name of a DaemonSet, and the expected counts of its status by name, such as `desired`.
type ExpectedCounts = (String, Vec<(String, i64)>);

/// The name of a DaemonSet, and the expected fields of its DaemonRollout by name, such as `phase`.
type ExpectedRollout = (String, Vec<(RolloutField, String)>);

/// A field of a DaemonRollout in the sections `see rollout` and `end rollout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RolloutField {
    Phase,
    /// Name of the step.
    Step,
    /// Number of the attempt.
    Attempt,
    /// Names of the admitted nodes.
    Admitted,
    /// Names of the failed nodes.
    Failed,
    /// The verdicts of all revisions of the set.
    Verdicts,
}

impl RolloutField {
    /// All fields, with their names in case files.
    const ALL: [(&str, Self); 6] = [
        ("phase", Self::Phase),
        ("step", Self::Step),
        ("attempt", Self::Attempt),
        ("admitted", Self::Admitted),
        ("failed", Self::Failed),
        ("verdicts", Self::Verdicts),
    ];
}

/// A syntax error in a case file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaseSyntaxError {
    pub file: String,
    pub line: usize,
    pub problem: String,
}

impl std::fmt::Display for CaseSyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.problem)
    }
}

impl std::error::Error for CaseSyntaxError {}

/// The result of running a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    pub violation: Option<Violation>,
    /// Hash of the trace. Two runs with the same hash had the same steps.
    pub hash: u64,
    /// Number of executed steps.
    pub steps: u64,
    /// Number of write requests of the DaemonSet controller until the cluster had converged, including those that
    /// failed. [`Self::possible_faults`] has faults for each of them after the line `faults` of the script.
    pub writes: usize,
    /// Number of delivered watch events. [`Self::possible_faults`] has faults for each of them after the line `faults`.
    pub deliveries: usize,
    /// Number of controller writes and of delivered watch events before the line `faults` of the script, where no fault
    /// is injected. Zero if the script has no such line.
    spared: (usize, usize),
    /// Number of pods that controllers created and deleted, by node and by `create` or `delete`.
    pub summary: BTreeMap<(Text, &'static str), u64>,
    /// The pods of each node at the end of the case, as [`World::format_pods_by_node`] formats them.
    pub end: String,
    /// The cluster at the end of the case, as scenario text.
    pub scenario: String,
    /// The log lines of the run. Empty unless the case was run by [`trace_case`].
    pub trace: Vec<String>,
}

impl CaseResult {
    /// Returns the faults to inject, one for each further run of the case: every fault at every write and at every
    /// watch event after the line `faults` of the script. Must be called on the result of the run without faults.
    pub fn possible_faults(&self) -> impl Iterator<Item = InjectedFault> + use<> {
        let writes = (self.spared.0 + 1..=self.writes).flat_map(|at| RequestFault::ALL.map(|it| (at, it)));
        let watches = (self.spared.1 + 1..=self.deliveries).flat_map(|at| WatchFault::ALL.map(|it| (at, it)));
        let writes = writes.map(|it| InjectedFault { write: Some(it), watch: None });
        writes.chain(watches.map(|it| InjectedFault { write: None, watch: Some(it) }))
    }
}

/// Time at the start of every case, as the `now` line of its scenario.
const START_TIME_S: i64 = 1000;
/// Maximum number of steps of a case, far above that of the longest case.
const CASE_STEPS_MAX: u64 = 200_000;
/// Maximum time that a case may take to converge. It is longer than any backoff in the cases, and shorter than the ten
/// minutes after which a stalled rollout is reported.
const CASE_CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(550);
/// The random seed of all cases.
const CASE_SEED: u64 = 1;

impl Case {
    /// Parses a case file. `name` is the name of the case.
    pub fn parse(name: &str, text: &str) -> Result<Self, CaseSyntaxError> {
        CaseParser::new(name, text).parse_case()
    }

    /// Reads all cases of a folder, sorted by name.
    pub fn read_folder(folder: &Path) -> Result<Vec<Self>, CaseSyntaxError> {
        let unreadable = |file: &Path, problem: String| CaseSyntaxError {
            file: file.display().to_string(),
            line: 0,
            problem,
        };
        let files = std::fs::read_dir(folder).map_err(|it| unreadable(folder, it.to_string()))?;
        let mut files: Vec<_> = files.filter_map(|it| Some(it.ok()?.path())).collect();
        files.retain(|it| it.extension().is_some_and(|it| it == "txt"));
        files.sort();
        let read = |file: &std::path::PathBuf| {
            let text = std::fs::read_to_string(file).map_err(|it| unreadable(file, it.to_string()))?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            Self::parse(&name, &text)
        };
        files.iter().map(read).collect()
    }
}

/// Runs a case with the injected fault `fault`. The default of [`InjectedFault`] injects no fault.
pub fn run_case(case: &Case, fault: InjectedFault) -> CaseResult {
    run_case_with(case, fault, false)
}

/// Runs a case like [`run_case`], and records the log lines of the run.
pub fn trace_case(case: &Case, fault: InjectedFault) -> CaseResult {
    run_case_with(case, fault, true)
}

/// Runs a case with the injected fault `fault`. If `verbose` is true, the result contains the log lines of the run.
fn run_case_with(case: &Case, fault: InjectedFault, verbose: bool) -> CaseResult {
    let mut world = World::new(CASE_SEED, case.replicas, FaultRates::without_faults());
    world.trace.lines = verbose.then(Vec::new);
    world.injected_fault = fault;
    world.steps_max = CASE_STEPS_MAX;
    world.convergence_timeout = CASE_CONVERGENCE_TIMEOUT;
    world.checks.is_fault_free = fault == InjectedFault::default();
    if let Some(burst) = case.burst {
        world.settings.burst = burst;
    }
    if let Some(lag_max) = case.lagging_server {
        world.add_lagging_server(ServerFaults::only_lag(u64::try_from(lag_max).unwrap_or(u64::MAX)));
    }
    let is_fault_free = fault == InjectedFault::default();
    let (mut writes, mut spared) = (0, (0, 0));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        world.load_scenario(case.world.clone());
        world.start_processes();
        for line in &case.script {
            if world.violation().is_some() {
                return;
            }
            match line {
                ScriptLine::Action(action) => world.execute_user_action(action),
                ScriptLine::See(expected) if is_fault_free => {
                    let found = world.format_pods_by_node();
                    expect_text(&mut world, "see", expected, &found);
                }
                ScriptLine::SeeStatus(expected) if is_fault_free => {
                    expect_counts(&mut world, "see", expected)
                }
                ScriptLine::SeeRollout(expected) if is_fault_free => {
                    expect_rollouts(&mut world, "see", expected)
                }
                ScriptLine::See(_) | ScriptLine::SeeStatus(_) | ScriptLine::SeeRollout(_) => {}
                ScriptLine::Faults => spared = (world.writes, world.deliveries),
            }
        }
        world.run_until_converged();
        // Events that a restarted controller records again do not count.
        let events = world.events.clone();
        // A write that is rejected during the check of L9 is a change that the status may report.
        writes = world.writes;
        world.check_stays_converged();
        world.events = events;
        compare_final_state(case, &mut world, fault);
    }));
    if let Err(panic) = outcome {
        let message = panic_message(&*panic).unwrap_or("a panic");
        world.checks.report_violation("S9", || message.to_owned());
    }
    CaseResult {
        violation: world.violation().cloned(),
        hash: world.trace.hash(),
        steps: world.trace.steps,
        writes,
        deliveries: world.deliveries,
        spared,
        summary: world.checks.summary.clone(),
        end: world.format_pods_by_node(),
        scenario: world.server.scenario_text(),
        trace: world.trace.lines.take().unwrap_or_default(),
    }
}

/// Compares the final state of the cluster with the sections `end`, `end status`, `end revisions` and `end rollout` of
/// the case. In a run without faults, also compares the number of Events with the section `end events`, and checks that
/// controllers created and deleted no more pods than the section `writes` allows. Reports each mismatch as a violation.
fn compare_final_state(case: &Case, world: &mut World, fault: InjectedFault) {
    // L14: a fault at any write, such as a kill of the controller, does not change the phase and the verdicts at the
    // end.
    let what = if fault.write.is_some() { "L14" } else { "end" };
    expect_rollouts(world, what, &case.rollouts);
    let found = world.format_pods_by_node();
    if case.anywhere {
        expect_text(world, "end", &without_node_names(&case.end), &without_node_names(&found));
    } else {
        expect_text(world, "end", &case.end, &found);
    }
    expect_counts(world, "end", &case.status);
    if let Some(expected) = &case.revisions {
        let found = revisions_text(world);
        expect_text(world, "end", expected, &found);
    }
    if fault != InjectedFault::default() {
        return;
    }
    for (reason, expected) in &case.events {
        let found = world.events.get(reason.as_str()).copied().unwrap_or(0);
        if found != *expected {
            world.checks.report_violation("end", || format!("{found} events {reason}, expected {expected}"));
        }
    }
    for (what, most) in &case.limits {
        let done: u64 =
            world.checks.summary.iter().filter(|((_, it), _)| it == what).map(|(_, count)| count).sum();
        if *most < done {
            world.checks.report_violation("end", || format!("{done} times {what}, expected at most {most}"));
        }
    }
}

/// Reports a violation if the text `found` differs from the expected text, apart from white space at the end. `what` is
/// the ID of the violation: `see` for an expectation in the script, `end` for one about the final state.
fn expect_text(world: &mut World, what: &'static str, expected: &str, found: &str) {
    if expected.trim_end() != found.trim_end() {
        world.checks.report_violation(what, || format!("expected\n{expected}found\n{found}"));
    }
}

/// Removes the node names from the lines of [`World::format_pods_by_node`], and sorts the lines.
fn without_node_names(pods_by_node: &str) -> String {
    let of_line = |line: &str| line.split_once("  ").map_or("", |(_, pods)| pods).to_owned() + "\n";
    let mut lines: Vec<String> = pods_by_node.lines().map(of_line).collect();
    lines.sort();
    lines.concat()
}

/// Reports a violation if a count in the status of a DaemonSet differs from its expected value. `what` is the ID of the
/// violation: `see` for an expectation in the script, `end` for one about the final state.
fn expect_counts(world: &mut World, what: &'static str, expected: &[ExpectedCounts]) {
    for (set, counts) in expected {
        for (count, expected) in counts {
            let found = status_count(world, set, count);
            if found != Some(*expected) {
                world
                    .checks
                    .report_violation(what, || format!("{count} of {set} is {found:?}, expected {expected}"));
            }
        }
    }
}

/// Returns a count in the status of a DaemonSet by its name in case files, such as `desired`. Returns `None` if the set
/// does not exist or the name is unknown.
fn status_count(world: &World, set: &str, count: &str) -> Option<i64> {
    let set = world.server.sets.values().find(|it| it.key.name.as_ref() == set)?;
    let counts = &set.status.counts;
    Some(match count {
        "desired" => counts.desired,
        "current" => counts.current,
        "ready" => counts.ready,
        "updated" => counts.updated,
        "available" => counts.available,
        "unavailable" => counts.unavailable,
        "misscheduled" => counts.misscheduled,
        "observed" => set.status.observed_generation,
        "collisions" => i64::from(set.status.collisions.unwrap_or(0)),
        _ => return None,
    })
}

/// Reports a violation if a field of a DaemonRollout differs from its expected value. `what` is the ID of the
/// violation: `see` for an expectation in the script, `end` or the invariant `L14` for one about the final state.
fn expect_rollouts(world: &mut World, what: &'static str, expected: &[ExpectedRollout]) {
    for (set, fields) in expected {
        for (field, expected) in fields {
            let found = rollout_field(world, set, *field);
            if found != *expected {
                world
                    .checks
                    .report_violation(what, || format!("{field:?} of {set} is {found}, expected {expected}"));
            }
        }
    }
}

/// Returns the value of a field of the DaemonRollout of the DaemonSet `set`, written as in a case file. Returns `none`
/// if the DaemonRollout or the field is absent.
fn rollout_field(world: &World, set: &str, field: RolloutField) -> String {
    let none = || "none".to_owned();
    let names = |names: Vec<String>| if names.is_empty() { none() } else { names.join(",") };
    if field == RolloutField::Verdicts {
        return names(verdicts(world, set));
    }
    let rollout = world.server.rollouts.values().find(|it| it.key.name.as_ref() == set);
    let Some(status) = rollout.map(|it| &it.status) else { return none() };
    match field {
        RolloutField::Phase => status.phase.map_or_else(none, |it| Phase::as_str(it).to_owned()),
        RolloutField::Step => status.step.as_ref().map_or_else(none, |it| it.name.to_string()),
        RolloutField::Attempt => status.attempt.to_string(),
        RolloutField::Admitted => names(admitted_names(status).iter().map(ToString::to_string).collect()),
        RolloutField::Failed => {
            let mut failed: Vec<String> =
                status.failures.nodes.iter().map(|it| it.node.to_string()).collect();
            failed.sort();
            names(failed)
        }
        RolloutField::Verdicts => none(),
    }
}

/// Returns the template number and the verdict of each revision of a set, such as `1=Good`, in the order of the
/// revision numbers.
fn verdicts(world: &World, set: &str) -> Vec<String> {
    let Some(set) = world.server.sets.values().find(|it| it.key.name.as_ref() == set) else {
        return Vec::new();
    };
    let mut revisions: Vec<_> =
        world.server.revisions.values().filter(|it| it.owner.as_ref() == Some(&set.uid)).collect();
    revisions.sort_by_key(|it| it.number);
    let text = |it: &&std::sync::Arc<Revision>| {
        let verdict = verdict(it).map_or("none", RevisionVerdict::as_str);
        format!("{}={verdict}", template_number(world, it))
    };
    revisions.iter().map(text).collect()
}

/// Returns the number of a revision's template, which is the tag of the first container's image. Returns `?` if there
/// is no image.
fn template_number(world: &World, revision: &Revision) -> String {
    let object = world.server.object(Kind::Revisions, &revision.key);
    let image =
        object.and_then(|it| it["data"]["spec"]["template"]["spec"]["containers"][0]["image"].as_str());
    image.unwrap_or("?").rsplit(':').next().unwrap_or("?").to_owned()
}

/// Returns all ControllerRevisions as text with one line per set, such as `d  1#1, 2#2` (template number and revision
/// number). The line of revisions without a set begins with their namespace in parentheses.
fn revisions_text(world: &World) -> String {
    let mut lines: BTreeMap<String, Vec<(i64, String)>> = BTreeMap::new();
    for (key, revision) in &world.server.revisions {
        let set = world.server.sets.values().find(|it| revision.owner.as_ref() == Some(&it.uid));
        let name = set.map_or_else(|| format!("({})", key.namespace), |it| it.key.name.to_string());
        let text = format!("{}#{}", template_number(world, revision), revision.number);
        lines.entry(name).or_default().push((revision.number, text));
    }
    let mut out = String::new();
    for (name, mut of_set) in lines {
        of_set.sort();
        let texts: Vec<String> = of_set.into_iter().map(|(_, text)| text).collect();
        let _ = writeln!(out, "{name}  {}", texts.join(", "));
    }
    out
}

/// Parser of a case file, section by section.
struct CaseParser<'a> {
    file: String,
    /// The lines that are not parsed yet, with their line numbers.
    lines: Vec<(usize, &'a str)>,
    /// The case with the sections that are parsed so far.
    case: Case,
}

/// Names of all sections of a case file, for error messages.
const SECTION_NAMES: &str = "world, run, writes, end, end anywhere, end status, end revisions, end events, end rollout, loose or once";

impl<'a> CaseParser<'a> {
    fn new(name: &str, text: &'a str) -> Self {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        let case = Case {
            name: name.to_owned(),
            about: String::new(),
            replicas: 1,
            burst: None,
            lagging_server: None,
            world: scenario::World::default(),
            script: Vec::new(),
            limits: Vec::new(),
            end: String::new(),
            anywhere: false,
            status: Vec::new(),
            revisions: None,
            events: Vec::new(),
            rollouts: Vec::new(),
            loose: None,
            once: None,
        };
        Self { file: format!("{name}.txt"), lines, case }
    }

    /// Returns an error at this line of the case file.
    fn syntax_error(&self, line: usize, problem: impl Into<String>) -> CaseSyntaxError {
        CaseSyntaxError { file: self.file.clone(), line, problem: problem.into() }
    }

    /// Parses all sections of the case file.
    fn parse_case(mut self) -> Result<Case, CaseSyntaxError> {
        let mut lines = std::mem::take(&mut self.lines).into_iter().peekable();
        while let Some((_, line)) = lines.next_if(|(_, line)| line.trim() != "world") {
            self.case.about += line.trim();
            self.case.about.push('\n');
        }
        if self.case.about.trim().is_empty() {
            return Err(self.syntax_error(1, "a case begins with a description in words"));
        }
        let mut ended = false;
        while let Some((at, line)) = lines.next() {
            if is_blank_or_comment(line) {
                continue;
            }
            let mut block = Vec::new();
            while let Some(it) = lines.next_if(|(_, line)| line.starts_with(' ') || line.trim().is_empty()) {
                block.push(it);
            }
            block.retain(|(_, line)| !is_blank_or_comment(line));
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, rest.trim()) {
                ("world", "") => self.parse_world(&block)?,
                ("run", "") => self.parse_script(&block)?,
                ("writes", limits) => self.parse_write_limits(at, limits)?,
                ("end", "") => (self.case.end, ended) = (self.parse_pods(&block)?, true),
                ("end", "anywhere") => {
                    (self.case.end, self.case.anywhere, ended) = (self.parse_pods(&block)?, true, true);
                }
                ("end", "status") => self.case.status = self.parse_counts(&block)?,
                ("end", "revisions") => self.case.revisions = Some(join_trimmed_lines(&block)),
                ("end", "events") => self.parse_events(&block)?,
                ("end", "rollout") => self.case.rollouts = self.parse_rollouts(&block)?,
                ("loose", why) if !why.is_empty() => self.case.loose = Some(why.to_owned()),
                ("once", why) if !why.is_empty() => self.case.once = Some(why.to_owned()),
                _ => return Err(self.syntax_error(at, format!("{line:?} is not {SECTION_NAMES}"))),
            }
        }
        if !ended {
            return Err(self.syntax_error(0, "the section `end` is missing"));
        }
        Ok(self.case)
    }

    /// Parses the section `world`: the initial cluster, the number of controller replicas, the burst limit and the lag
    /// of a second API server.
    fn parse_world(&mut self, block: &[(usize, &str)]) -> Result<(), CaseSyntaxError> {
        let mut text = format!("now {START_TIME_S}\n");
        let mut places = vec![0];
        for (at, line) in block {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["replicas", n] => self.case.replicas = self.parse_number(*at, n)?,
                ["burst", n] => self.case.burst = Some(self.parse_number(*at, n)?),
                ["lagging-server", n] => self.case.lagging_server = Some(self.parse_number(*at, n)?),
                _ => {
                    for line in expand_node_range(line).map_err(|it| self.syntax_error(*at, it))? {
                        text += &line;
                        text.push('\n');
                        places.push(*at);
                    }
                }
            }
        }
        self.case.world = scenario::parse(&text).map_err(|it| {
            let line = places.get(it.line - 1).copied().unwrap_or(0);
            self.syntax_error(line, format!("`{}`: {}", it.word, it.problem))
        })?;
        Ok(())
    }

    /// Parses a number. `at` is the line number for the error.
    fn parse_number(&self, at: usize, text: &str) -> Result<usize, CaseSyntaxError> {
        text.parse().map_err(|_| self.syntax_error(at, format!("{text:?} is not a number")))
    }

    /// Parses the section `run`: the user actions and the expectations between them.
    fn parse_script(&mut self, block: &[(usize, &str)]) -> Result<(), CaseSyntaxError> {
        let mut lines = block.iter().peekable();
        while let Some((at, line)) = lines.next() {
            let sees = line.split_whitespace().collect::<Vec<_>>();
            let mut block = Vec::new();
            while let Some(it) = lines.next_if(|(_, it)| indent_width(line) < indent_width(it)) {
                block.push(*it);
            }
            self.case.script.push(match sees.as_slice() {
                ["see"] => ScriptLine::See(self.parse_pods(&block)?),
                ["see", "status"] => ScriptLine::SeeStatus(self.parse_counts(&block)?),
                ["see", "rollout"] => ScriptLine::SeeRollout(self.parse_rollouts(&block)?),
                ["faults"] => ScriptLine::Faults,
                _ => {
                    let lines = core::iter::once(*line).chain(block.iter().map(|(_, line)| *line));
                    let text: Vec<&str> = lines.map(|it| without_comment(it).trim()).collect();
                    let action = UserAction::parse(&text.join(" "));
                    ScriptLine::Action(action.map_err(|it| self.syntax_error(*at, it))?)
                }
            });
        }
        Ok(())
    }

    /// Parses the section `writes`: the maximum number of creates and deletes.
    fn parse_write_limits(&mut self, at: usize, text: &str) -> Result<(), CaseSyntaxError> {
        for limit in text.split_whitespace() {
            let (what, most) =
                limit.split_once("<=").ok_or_else(|| self.syntax_error(at, "writes create<=2 delete<=0"))?;
            if !matches!(what, "create" | "delete") {
                return Err(self.syntax_error(at, format!("{what:?} is neither create nor delete")));
            }
            let most = self.parse_number(at, most)?;
            self.case.limits.push((what.to_owned(), u64::try_from(most).unwrap_or(u64::MAX)));
        }
        Ok(())
    }

    /// Parses the expected status counts in the sections `see status` and `end status`.
    fn parse_counts(&self, block: &[(usize, &str)]) -> Result<Vec<ExpectedCounts>, CaseSyntaxError> {
        let of_line = |(at, line): &(usize, &str)| {
            let mut words = line.split_whitespace();
            let set = words.next().unwrap_or_default().to_owned();
            let counts = words.map(|word| {
                let wrong = || self.syntax_error(*at, format!("{word:?} is not COUNT:NUMBER"));
                let (count, number) = word.split_once(':').ok_or_else(wrong)?;
                Ok((count.to_owned(), number.parse().map_err(|_| wrong())?))
            });
            Ok((set, counts.collect::<Result<Vec<_>, CaseSyntaxError>>()?))
        };
        block.iter().map(of_line).collect()
    }

    /// Parses the expected pods of nodes in the sections `see` and `end`, one line per node or range of nodes.
    fn parse_pods(&self, block: &[(usize, &str)]) -> Result<String, CaseSyntaxError> {
        let mut text = String::new();
        for (at, line) in block {
            for line in expand_node_range(line.trim()).map_err(|it| self.syntax_error(*at, it))? {
                text += &line;
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// Parses the expected fields of DaemonRollouts in the sections `see rollout` and `end rollout`.
    fn parse_rollouts(&self, block: &[(usize, &str)]) -> Result<Vec<ExpectedRollout>, CaseSyntaxError> {
        let of_line = |(at, line): &(usize, &str)| {
            let mut words = without_comment(line).split_whitespace();
            let set = words.next().unwrap_or_default().to_owned();
            let fields = words.map(|word| {
                let named = word.split_once(':').and_then(|(name, value)| {
                    let field = RolloutField::ALL.iter().find(|(it, _)| *it == name)?;
                    Some((field.1, value.to_owned()))
                });
                let names: Vec<&str> = RolloutField::ALL.iter().map(|(name, _)| *name).collect();
                let problem = format!("{word:?} is not FIELD:VALUE with a field of {names:?}");
                named.ok_or_else(|| self.syntax_error(*at, problem))
            });
            Ok((set, fields.collect::<Result<Vec<_>, CaseSyntaxError>>()?))
        };
        block.iter().map(of_line).collect()
    }

    /// Parses the section `end events`: the expected number of Kubernetes Events by reason.
    fn parse_events(&mut self, block: &[(usize, &str)]) -> Result<(), CaseSyntaxError> {
        for (at, line) in block {
            let (reason, count) =
                line.trim().split_once(' ').ok_or_else(|| self.syntax_error(*at, "REASON COUNT"))?;
            let count = self.parse_number(*at, count.trim())?;
            self.case.events.push((reason.to_owned(), count));
        }
        Ok(())
    }
}

/// Returns the part of a line before its comment, which starts with `#`.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

fn is_blank_or_comment(line: &str) -> bool {
    without_comment(line).trim().is_empty()
}

/// Returns the number of leading whitespace bytes.
fn indent_width(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Joins the lines of a block without their indentation.
fn join_trimmed_lines(block: &[(usize, &str)]) -> String {
    block.iter().fold(String::new(), |mut text, (_, line)| {
        text += line.trim();
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let wrong = |text: &str| Case::parse("x", text).unwrap_err().to_string();
        let text = "About.\nworld\n  node a\n  set d colour=red\nend\n  a  -\n";
        assert!(wrong(text).starts_with("x.txt:4: `colour=red`"), "{}", wrong(text));
        let text = "About.\nworld\n  node a\nrun\n  dance\nend\n  a  -\n";
        assert!(wrong(text).starts_with("x.txt:5: "), "{}", wrong(text));
        assert!(wrong("About.\nworld\n  node a\n").contains("the section `end` is missing"));
        assert!(wrong("world\n  node a\nend\n  a  -\n").contains("in words"));
        let text = "About.\nworld\n  node a2..a1\nend\n  a  -\n";
        assert!(wrong(text).starts_with("x.txt:3: \"a2..a1\" is not a range"), "{}", wrong(text));
        let text = "About.\nworld\n  node a\nrun\n  policy p\n    {\"daemonSets\": [\"d\"],\n     \"steps\": []}\nend\n  a  -\n";
        assert!(wrong(text).starts_with("x.txt:5: policy p: spec.steps"), "{}", wrong(text));
        let text = "About.\nworld\n  node a\nend\n  a  -\nend rollout\n  d  faze:Complete\n";
        assert!(wrong(text).starts_with("x.txt:7: \"faze:Complete\" is not"), "{}", wrong(text));
    }

    #[test]
    fn a_range_stands_for_all_its_nodes() {
        let text = "About.\nworld\n  node n08..n10 label=zone:a\nend\n  n08..n10  -\n";
        let case = Case::parse("x", text).unwrap();
        assert_eq!(case.world.nodes.len(), 3);
        assert_eq!(case.end, "n08  -\nn09  -\nn10  -\n");
    }
}
