//! The rule index and the invariants of ARCHITECTURE.md.

use std::collections::BTreeSet;

use super::{
    Tree, assert_no_problems, assert_problems, code, first_word, items, missing, quoted, repository, rows,
};

#[test]
fn the_rule_index_is_complete_and_correct() {
    assert_no_problems(rules(&repository()));
}

#[test]
fn every_reason_is_built() {
    assert_no_problems(reasons(&repository()));
}

#[test]
fn the_simulator_checks_the_listed_invariants() {
    assert_no_problems(invariants(&repository()));
}

/// Each row of the rule index names items that exist, and each function with a `Rule:` is in it.
fn rules(tree: &Tree) -> Vec<String> {
    let listed: Vec<&str> = rows(tree.text("ARCHITECTURE.md"), "## Where is the rule that decides X?")
        .flat_map(|cells| quoted(cells[1]))
        .collect();
    let mut problems: Vec<String> = listed.iter().filter_map(|it| missing(tree, it)).collect();
    if listed.is_empty() {
        problems.push("ARCHITECTURE.md has no table of rules".to_string());
    }
    let mut seen = BTreeSet::new();
    for item in &listed {
        if !seen.insert(item) {
            problems.push(format!("{item} is in the table of rules twice"));
        }
    }
    for (path, text) in tree.under("crates/engine/src/").chain(tree.under("crates/api/src/")) {
        let file = path.strip_prefix("crates/").unwrap_or(path);
        for item in items(text).iter().filter(|it| it.is_rule) {
            let item = format!("{file}::{}", item.name);
            if !listed.contains(&item.as_str()) {
                problems.push(format!("{item} states a rule and is not in the table of rules"));
            }
        }
    }
    problems
}

/// Every variant of `Why` is built in the engine.
fn reasons(tree: &Tree) -> Vec<String> {
    let path = "crates/engine/src/daemonset/why.rs";
    let body = tree.text(path).split_once("pub enum Why {").map_or("", |(_, it)| it);
    let body = body.split("\n}").next().unwrap_or_default();
    let variants: Vec<&str> = body
        .lines()
        .map(str::trim)
        .filter(|it| it.starts_with(char::is_uppercase))
        .filter_map(first_word)
        .collect();
    let is_built = |variant: &str| {
        let sources =
            tree.under("crates/engine/src/").filter(|(it, _)| *it != path && !it.ends_with("tests.rs"));
        sources.flat_map(|(_, text)| code(text)).any(|line| builds(line, variant))
    };
    let mut problems: Vec<String> = variants
        .iter()
        .filter(|it| !is_built(it))
        .map(|it| format!("{path}: no function gives the reason {it}"))
        .collect();
    if variants.is_empty() {
        problems.push(format!("{path} has no reasons"));
    }
    problems
}

/// Whether the line builds the variant instead of matching it: a pattern is followed by `=>` or `=`.
fn builds(line: &str, variant: &str) -> bool {
    let name = format!("Why::{variant}");
    line.match_indices(&name).any(|(at, _)| {
        let after = &line[at + name.len()..];
        let is_longer = after.starts_with(|it: char| it.is_alphanumeric() || it == '_');
        !is_longer && !after.contains("=>") && !after.contains(" = ") && !after.starts_with(" { .. }")
    })
}

/// ARCHITECTURE.md lists the invariants that the simulator checks, all of them and no others.
fn invariants(tree: &Tree) -> Vec<String> {
    let listed: BTreeSet<&str> = rows(tree.text("ARCHITECTURE.md"), "## The invariants of the simulation")
        .filter_map(|cells| cells.first().copied())
        .collect();
    let is_id = |it: &&str| {
        let number = it.strip_prefix(['W', 'S', 'L']);
        number.is_some_and(|it| !it.is_empty() && it.chars().all(|it| it.is_ascii_digit()))
    };
    let in_sources = tree.under("crates/sim/src/").flat_map(|(_, text)| text.lines());
    // Invariants over several runs are checked by a test.
    let in_tests = tree.under("crates/sim/tests/").flat_map(|(_, text)| text.lines());
    let lines = in_sources.chain(in_tests.filter(|it| it.contains("invariant: \"")));
    let checked: BTreeSet<&str> =
        lines.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(is_id).collect();
    let unlisted = checked.difference(&listed).map(|it| format!("ARCHITECTURE.md does not say what {it} is"));
    let unchecked = listed.difference(&checked).map(|it| format!("the simulator does not check {it}"));
    unlisted.chain(unchecked).collect()
}

mod can_fail {
    use super::*;

    #[test]
    fn rules_that_moved_or_are_not_listed() {
        let table = "## Where is the rule that decides X?\n| question | rule |\n|---|---|\n\
            | a | `engine/src/a.rs::kept`, `engine/src/a.rs::Gate::opens` |\n\
            | b | `engine/src/a.rs::renamed` |\n\
            | c | `engine/src/gone.rs::x`, `engine/src/a.rs::kept` |\n\
            | d | `engine/src/a.rs::Door::opens` |\n## Next\n| e | `not here` |\n";
        let code = "/// Rule: one.\npub(crate) fn kept() {}\nimpl Gate {\n    /// Rule: two,\n    /// of two lines.\n    \
            #[inline]\n    pub fn opens(&self) {}\n}\nimpl Door {}\n/// Rule: three.\nconst LIMIT: usize = 1;\n";
        let tree = Tree::of(&[("ARCHITECTURE.md", table), ("crates/engine/src/a.rs", code)]);
        assert_problems(
            rules(&tree),
            &[
                "engine/src/a.rs::renamed: crates/engine/src/a.rs has no such item",
                "engine/src/gone.rs::x: there is no file crates/engine/src/gone.rs",
                "engine/src/a.rs::Door::opens: crates/engine/src/a.rs has no such item",
                "engine/src/a.rs::kept is in the table of rules twice",
                "engine/src/a.rs::LIMIT states a rule and is not in the table of rules",
            ],
        );
        assert_problems(rules(&Tree::of(&[])), &["ARCHITECTURE.md has no table of rules"]);
    }

    #[test]
    fn reasons_that_no_function_builds() {
        let why = "pub enum Why {\n    // a comment\n    Given { at: u8 },\n    Matched,\n    Tested,\n    Taken,\n    Given2,\n}\n";
        let code = "plan.why = Why::Given { at: 1 };\nWhy::Matched => {}\nif let Why::Taken = why {}\n\
            #[cfg(test)]\nmod tests {\n    f(Why::Tested);\n}\n";
        let tree = Tree::of(&[("crates/engine/src/daemonset/why.rs", why), ("crates/engine/src/a.rs", code)]);
        assert_problems(
            reasons(&tree),
            &[
                "crates/engine/src/daemonset/why.rs: no function gives the reason Matched",
                "crates/engine/src/daemonset/why.rs: no function gives the reason Tested",
                "crates/engine/src/daemonset/why.rs: no function gives the reason Taken",
                "crates/engine/src/daemonset/why.rs: no function gives the reason Given2",
            ],
        );
        assert_problems(reasons(&Tree::of(&[])), &["crates/engine/src/daemonset/why.rs has no reasons"]);
    }

    #[test]
    fn invariants_that_are_only_listed_or_only_checked() {
        let table = "## The invariants of the simulation\n| id | what |\n|---|---|\n| W1 | a |\n| L10 | b |\n| S2 | c |\n| L8 | d |\n";
        let code = "self.fail(\"W1\", || String::new());\nfail(\"S9\", x);\nf(\"L10\", \"W\", \"W14.x\");\n";
        let test = "const INVARIANTS: [&str; 1] = [\"S2\"];\nKilled { invariant: \"L8\" }\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", table),
            ("crates/sim/src/checks.rs", code),
            ("crates/sim/tests/mutants/main.rs", test),
        ]);
        assert_problems(
            invariants(&tree),
            &["ARCHITECTURE.md does not say what S9 is", "the simulator does not check S2"],
        );
    }
}
