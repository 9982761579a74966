//! What clients did and saw, and whether one store could have answered so.
//!
//! The commits, in the order of their revisions, are known from the watches. That order must explain every answer: each
//! operation took effect at one place in it, between its beginning and its end, and saw what stood there. So the check
//! is a walk, not a search.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Revision = u64;

/// A tick of one clock that all clients share. What ended before something began has the lower tick.
pub(crate) type Tick = u64;

/// When an answer came; never, if none came.
pub(crate) const NEVER: Tick = Tick::MAX;

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    /// What each watcher was told, in its order. All began before the first operation.
    pub(crate) watches: Vec<Vec<Told>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) begin: Tick,
    pub(crate) end: Tick,
    pub(crate) what: What,
}

/// Values are never written twice, so a value names its write.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Put { key: String, value: String, on: Option<Revision>, outcome: Outcome },
    Delete { key: String, on: Revision, outcome: Outcome },
    Get { key: String, seen: Option<Version> },
    List { at: Revision, seen: BTreeMap<String, Version> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The revision, where the answer tells it.
    Done(Option<Revision>),
    /// The key was not as the writer believed.
    Refused,
    /// The server answered with an error that says that the write was not made.
    NotMade,
    /// No answer came, or one that does not say whether the write was made.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) value: String,
    pub(crate) revision: Revision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) at: Tick,
    pub(crate) commit: Commit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) revision: Revision,
    pub(crate) key: String,
    /// Nothing if it deleted the key.
    pub(crate) value: Option<String>,
}

/// Everything that no single store could have done.
pub(crate) fn check(history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, watch) in history.watches.iter().enumerate() {
        for pair in watch.windows(2) {
            let (one, next) = (&pair[0].commit, &pair[1].commit);
            if next.revision <= one.revision {
                wrong.push(format!("watch {number} told {} and then {}", one.revision, next.revision));
            }
        }
    }
    let commits = |watch: &Vec<Told>| watch.iter().map(|it| it.commit.clone()).collect::<Vec<_>>();
    let all: Vec<Vec<Commit>> = history.watches.iter().map(commits).collect();
    for (number, other) in all.iter().enumerate().skip(1) {
        for missing in all[0].iter().filter(|it| !other.contains_sorted(it)) {
            wrong.push(format!("watch {number} was not told {missing:?}, and watch 0 was"));
        }
        for missing in other.iter().filter(|it| !all[0].contains_sorted(it)) {
            wrong.push(format!("watch 0 was not told {missing:?}, and watch {number} was"));
        }
    }
    if !wrong.is_empty() {
        // Without one line of commits nothing else can be said.
        return wrong;
    }
    let line = Line::of(all.into_iter().next().unwrap_or_default());
    wrong.extend(line.unexplained(&history.operations));
    wrong.extend(line.out_of_time(history));
    wrong
}

trait ContainsSorted {
    fn contains_sorted(&self, commit: &Commit) -> bool;
}

impl ContainsSorted for Vec<Commit> {
    fn contains_sorted(&self, commit: &Commit) -> bool {
        self.binary_search_by_key(&commit.revision, |it| it.revision).is_ok_and(|at| self[at] == *commit)
    }
}

/// The commits, and by key which value stood from which revision on.
struct Line {
    commits: BTreeMap<Revision, Commit>,
    keys: BTreeMap<String, BTreeMap<Revision, Option<String>>>,
    /// The commit of each value. A value is written once.
    values: BTreeMap<String, Revision>,
}

/// Where an operation may have taken effect.
enum Place {
    /// At any revision, or not at all.
    Anywhere,
    /// At this revision or later.
    From(Revision),
    Nowhere,
}

impl Line {
    fn of(commits: Vec<Commit>) -> Self {
        let mut keys: BTreeMap<String, BTreeMap<Revision, Option<String>>> = BTreeMap::new();
        let mut values = BTreeMap::new();
        for commit in &commits {
            keys.entry(commit.key.clone()).or_default().insert(commit.revision, commit.value.clone());
            if let Some(value) = &commit.value {
                values.entry(value.clone()).or_insert(commit.revision);
            }
        }
        Self { commits: commits.into_iter().map(|it| (it.revision, it)).collect(), keys, values }
    }

    /// What stood under a key at a revision, and since which revision.
    fn at(&self, key: &str, revision: Revision) -> (Revision, Option<&str>) {
        let last = self.keys.get(key).and_then(|it| it.range(..=revision).next_back());
        last.map_or((0, None), |(since, value)| (*since, value.as_deref()))
    }

    /// What stood under a key from a revision on, with the revision since which it stood.
    fn since(&self, key: &str, floor: Revision) -> impl Iterator<Item = (Revision, Option<&str>)> {
        let later = self.keys.get(key).into_iter().flat_map(move |it| it.range(floor + 1..));
        let later = later.map(|(since, value)| (*since, value.as_deref()));
        [self.at(key, floor)].into_iter().chain(later)
    }

    /// The revision of what stood before this commit.
    fn before(&self, commit: &Commit) -> Option<Revision> {
        let (revision, value) = self.keys[&commit.key].range(..commit.revision).next_back()?;
        value.as_ref().map(|_| *revision)
    }

    /// The commit of an operation, if it has one.
    fn commit_of(&self, what: &What) -> Option<&Commit> {
        match what {
            What::Put { key, value, .. } => {
                let commit = &self.commits[self.values.get(value)?];
                (commit.key == *key).then_some(commit)
            }
            What::Delete { key, on, .. } => {
                let (revision, value) = self.keys.get(key)?.range(on + 1..).next()?;
                let commit = &self.commits[revision];
                (value.is_none() && self.before(commit) == Some(*on)).then_some(commit)
            }
            What::Get { .. } | What::List { .. } => None,
        }
    }

    /// Every commit is someone's write and did what that write asked for; every write that was told has its commit.
    fn unexplained(&self, operations: &[Operation]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut explained = BTreeSet::new();
        // Of two that delete the same version, one was told, or neither was.
        let mut deletions = BTreeMap::new();
        for Operation { what, .. } in operations {
            let commit = self.commit_of(what);
            match (what, commit) {
                (What::Put { outcome: Outcome::Refused | Outcome::NotMade, .. }, Some(commit)) => {
                    wrong.push(format!("{what:?} was refused, and yet there is {commit:?}"));
                }
                (What::Put { on, outcome, .. }, Some(commit)) => {
                    explained.insert(commit.revision);
                    if self.before(commit) != *on {
                        wrong.push(format!("{commit:?} is not on the version it was to be on: {what:?}"));
                    }
                    if let Outcome::Done(Some(told)) = outcome
                        && *told != commit.revision
                    {
                        wrong.push(format!("{what:?} was told another revision than {commit:?}"));
                    }
                }
                (What::Delete { outcome, .. }, Some(commit)) => {
                    let told = deletions.entry(commit.revision).or_insert((0, 0));
                    match outcome {
                        Outcome::Done(_) => told.0 += 1,
                        Outcome::Unknown => told.1 += 1,
                        Outcome::Refused | Outcome::NotMade => {}
                    }
                }
                (What::Put { outcome, .. } | What::Delete { outcome, .. }, None) => {
                    if matches!(outcome, Outcome::Done(_)) {
                        wrong.push(format!("{what:?} was told, and there is no commit of it"));
                    }
                }
                (What::Get { .. } | What::List { .. }, _) => {}
            }
        }
        for (revision, (told, unknown)) in deletions {
            match (told, unknown) {
                (0, 0) => {}
                (0, _) | (1, _) => drop(explained.insert(revision)),
                _ => wrong.push(format!("the deletion {revision} was told to {told} clients")),
            }
        }
        let invented = self.commits.values().filter(|it| !explained.contains(&it.revision));
        wrong.extend(invented.map(|it| format!("nobody asked for {it:?}")));
        wrong
    }

    /// Every operation took effect between its beginning and its end: so nothing that began after the end of another, or
    /// after a watcher was told of it, may lie before it.
    fn out_of_time(&self, history: &History) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut operations: Vec<&Operation> = history.operations.iter().collect();
        operations.sort_by_key(|it| it.begin);
        // By the tick at which it was known: how far the store had come by then.
        let mut known: Vec<(Tick, Revision)> =
            history.watches.iter().flatten().map(|it| (it.at, it.commit.revision)).collect();
        known.sort_unstable();
        let mut known = known.into_iter().peekable();
        let mut ended: BTreeMap<Tick, Revision> = BTreeMap::new();
        let mut floor = 0;
        for operation in operations {
            while let Some((_, revision)) = known.next_if(|it| it.0 < operation.begin) {
                floor = floor.max(revision);
            }
            while let Some(entry) = ended.first_entry().filter(|it| *it.key() < operation.begin) {
                floor = floor.max(entry.remove());
            }
            // The earliest place is the best: it forbids the least of what comes after.
            match self.earliest(&operation.what, floor) {
                Place::Nowhere => wrong.push(format!("at {floor} or later it cannot be that {operation:?}")),
                Place::From(at) if operation.end != NEVER => drop(ended.insert(operation.end, at)),
                Place::From(_) | Place::Anywhere => {}
            }
        }
        let mut begins: BTreeMap<Revision, Tick> = BTreeMap::new();
        for operation in &history.operations {
            if let Some(commit) = self.commit_of(&operation.what) {
                let first = begins.entry(commit.revision).or_insert(operation.begin);
                *first = operation.begin.min(*first);
            }
        }
        for (number, watch) in history.watches.iter().enumerate() {
            for told in watch {
                if begins.get(&told.commit.revision).is_some_and(|begin| told.at < *begin) {
                    wrong.push(format!("watch {number} was told {told:?} before anyone asked for it"));
                }
            }
        }
        wrong
    }

    /// The earliest revision from `floor` on at which the operation may have taken effect, from what was seen alone.
    fn earliest(&self, what: &What, floor: Revision) -> Place {
        let first = |key: &str, holds: &dyn Fn(Revision, Option<&str>) -> bool| {
            let found = self.since(key, floor).find(|(since, value)| holds(*since, *value));
            found.map_or(Place::Nowhere, |(since, _)| Place::From(since.max(floor)))
        };
        let only = |at: Revision| if floor <= at { Place::From(at) } else { Place::Nowhere };
        match what {
            What::Put { key, on, outcome: Outcome::Refused, .. } => {
                first(key, &|since, value| value.map(|_| since) != *on)
            }
            What::Delete { key, on, outcome: Outcome::Refused } => {
                first(key, &|since, value| value.map(|_| since) != Some(*on))
            }
            // Several may have tried the same deletion: one without an answer may not be the one that did it.
            What::Put { outcome: Outcome::NotMade, .. }
            | What::Delete { outcome: Outcome::Unknown | Outcome::NotMade, .. } => Place::Anywhere,
            What::Put { .. } | What::Delete { .. } => {
                self.commit_of(what).map_or(Place::Anywhere, |it| only(it.revision))
            }
            What::Get { key, seen } => {
                let seen = seen.as_ref().map(|it| (it.revision, it.value.as_str()));
                first(key, &|since, value| value.map(|value| (since, value)) == seen)
            }
            What::List { at, seen } => {
                let there = |key: &String| {
                    let (since, value) = self.at(key, *at);
                    Some(Version { value: value?.to_owned(), revision: since })
                };
                let is_snapshot =
                    seen.keys().chain(self.keys.keys()).all(|it| there(it).as_ref() == seen.get(it));
                if is_snapshot { only(*at) } else { Place::Nowhere }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(
        begin: Tick,
        end: Tick,
        key: &str,
        value: &str,
        on: Option<Revision>,
        outcome: Outcome,
    ) -> Operation {
        Operation { begin, end, what: What::Put { key: key.into(), value: value.into(), on, outcome } }
    }

    fn delete(begin: Tick, end: Tick, key: &str, on: Revision, outcome: Outcome) -> Operation {
        Operation { begin, end, what: What::Delete { key: key.into(), on, outcome } }
    }

    fn get(begin: Tick, end: Tick, key: &str, seen: Option<(&str, Revision)>) -> Operation {
        Operation { begin, end, what: What::Get { key: key.into(), seen: seen.map(version) } }
    }

    fn list(begin: Tick, end: Tick, at: Revision, seen: &[(&str, (&str, Revision))]) -> Operation {
        let seen = seen.iter().map(|(key, it)| (key.to_string(), version(*it))).collect();
        Operation { begin, end, what: What::List { at, seen } }
    }

    fn version((value, revision): (&str, Revision)) -> Version {
        Version { value: value.into(), revision }
    }

    fn told(at: Tick, revision: Revision, key: &str, value: Option<&str>) -> Told {
        Told { at, commit: Commit { revision, key: key.into(), value: value.map(str::to_owned) } }
    }

    const DONE: fn(Revision) -> Outcome = |it| Outcome::Done(Some(it));

    /// A history in which all is well, whatever breaks it.
    fn sound() -> History {
        let watch = vec![
            told(4, 2, "a", Some("x")),
            told(8, 3, "a", Some("y")),
            told(12, 4, "b", Some("z")),
            told(16, 5, "a", None),
            told(99, 6, "a", Some("w")),
        ];
        History {
            operations: vec![
                put(1, 5, "a", "x", None, DONE(2)),
                put(6, 9, "a", "y", Some(2), DONE(3)),
                // Its answer was lost, and yet it happened.
                put(7, NEVER, "b", "z", None, Outcome::Unknown),
                // It overlaps the second write: it may see either.
                get(6, 10, "a", Some(("x", 2))),
                put(10, 11, "a", "v", Some(2), Outcome::Refused),
                list(13, 14, 4, &[("a", ("y", 3)), ("b", ("z", 4))]),
                // One of the two did it.
                delete(14, 17, "a", 3, Outcome::Done(None)),
                delete(14, NEVER, "a", 3, Outcome::Unknown),
                get(18, 19, "a", None),
                put(20, NEVER, "c", "lost", None, Outcome::Unknown),
                put(21, 30, "a", "w", None, DONE(6)),
            ],
            watches: vec![watch.clone(), watch],
        }
    }

    fn check_broken(break_it: impl FnOnce(&mut History), complaint: &str) {
        let mut history = sound();
        break_it(&mut history);
        let wrong = check(&history);
        assert!(wrong.iter().any(|it| it.contains(complaint)), "{complaint} is not among {wrong:#?}");
    }

    fn in_both(history: &mut History, change: impl Fn(&mut Vec<Told>)) {
        history.watches.iter_mut().for_each(change);
    }

    #[test]
    fn a_sound_history_is_sound() {
        assert_eq!(check(&sound()), [""; 0]);
    }

    #[test]
    fn a_watch_is_ordered_unique_and_complete() {
        check_broken(|it| it.watches[1].swap(1, 2), "watch 1 told 4 and then 3");
        check_broken(|it| it.watches[0].insert(2, told(9, 3, "a", Some("y"))), "watch 0 told 3 and then 3");
        check_broken(|it| drop(it.watches[1].remove(2)), "watch 1 was not told");
        check_broken(|it| drop(it.watches[0].pop()), "watch 0 was not told");
    }

    #[test]
    fn what_was_told_is_there() {
        check_broken(|it| in_both(it, |watch| drop(watch.pop())), "was told, and there is no commit of it");
        check_broken(|it| it.operations[0] = put(1, 5, "a", "x", None, DONE(1)), "was told another revision");
        let deleted_twice =
            |it: &mut History| it.operations.push(delete(14, 17, "a", 3, Outcome::Done(None)));
        check_broken(deleted_twice, "was told to 2 clients");
    }

    #[test]
    fn nothing_happens_that_nobody_asked_for() {
        check_broken(|it| drop(it.operations.remove(2)), "nobody asked for");
        check_broken(
            |it| it.operations[2] = put(7, 8, "b", "z", None, Outcome::Refused),
            "was refused, and yet",
        );
        check_broken(
            |it| it.operations[2] = put(7, 8, "b", "z", None, Outcome::NotMade),
            "was refused, and yet",
        );
        check_broken(
            |it| {
                it.operations[6] = delete(14, 17, "a", 3, Outcome::NotMade);
                it.operations.remove(7);
            },
            "nobody asked for",
        );
        check_broken(|it| in_both(it, |watch| watch[2].at = 6), "before anyone asked for it");
    }

    #[test]
    fn a_write_is_on_the_version_it_names() {
        check_broken(|it| it.operations[1] = put(6, 9, "a", "y", None, DONE(3)), "is not on the version");
        check_broken(
            |it| it.operations[10] = put(21, 30, "a", "w", Some(3), DONE(6)),
            "is not on the version",
        );
        // Refused for no reason: the key was at 3 all the while.
        check_broken(
            |it| it.operations[4] = put(10, 11, "a", "v", Some(3), Outcome::Refused),
            "at 5 or later it cannot be that",
        );
    }

    #[test]
    fn reads_see_what_is_durable_and_nothing_old() {
        // It was gone after the crash.
        check_broken(|it| it.operations.push(get(22, 23, "c", Some(("lost", 6)))), "it cannot be that");
        check_broken(
            |it| it.operations.push(get(10, 11, "a", Some(("x", 2)))),
            "at 3 or later it cannot be that",
        );
        // A watcher had seen the newer one already.
        check_broken(
            |it| it.operations.push(get(9, 10, "a", Some(("x", 2)))),
            "at 3 or later it cannot be that",
        );
        check_broken(
            |it| it.operations.push(get(18, 19, "a", Some(("y", 3)))),
            "at 5 or later it cannot be that",
        );
    }

    #[test]
    fn a_list_is_one_moment() {
        check_broken(|it| it.operations[5] = list(13, 14, 4, &[("a", ("y", 3))]), "it cannot be that");
        check_broken(
            |it| it.operations[5] = list(13, 14, 4, &[("a", ("x", 2)), ("b", ("z", 4))]),
            "it cannot be that",
        );
        check_broken(
            |it| it.operations[5] = list(13, 14, 3, &[("a", ("y", 3))]),
            "at 4 or later it cannot be that",
        );
    }

    #[test]
    fn writes_are_in_the_order_of_time() {
        // It began after the first had ended, and has the lower revision.
        let watch = vec![told(20, 2, "b", Some("y")), told(21, 3, "a", Some("x"))];
        let operations = vec![put(1, 2, "a", "x", None, DONE(3)), put(5, 6, "b", "y", None, DONE(2))];
        let wrong = check(&History { operations, watches: vec![watch] });
        assert_eq!(wrong.len(), 1, "{wrong:#?}");
    }
}
