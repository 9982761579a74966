//! Tests that start a program which may be missing have an attribute that names it, so that ci/test counts them as not
//! run without it.

use std::collections::BTreeSet;

use super::{Tree, assert_no_problems, assert_problems, first_word, repository};

/// Calls of helpers in other files that start a program.
const HELPERS: &[(&str, &str)] = &[
    ("kubectls()", "kubectl"),
    ("Etcd::start()", "etcd"),
    (".save_snapshot()", "etcdctl"),
    ("serve_balanced(", "etcd"),
    ("\"--servers\"", "etcd"),
];

/// Requirements that include a program, see ci/setup.
const INCLUDED: &[(&str, &str)] = &[("real nodes", "kubectl"), ("etcd in network namespaces", "etcd")];

#[test]
fn tests_that_start_a_program_require_it() {
    assert_no_problems(unnamed_programs(&repository()));
}

/// A function of a file, with its text up to the next function.
struct Function<'a> {
    name: &'a str,
    is_test: bool,
    /// The text after `needs ` in its attribute `ignore`, up to a colon.
    requirements: &'a str,
    body: String,
}

/// The tests that start one of the `programs` in ci/ignored, themselves or through functions of their file, and do not
/// require it.
fn unnamed_programs(tree: &Tree) -> Vec<String> {
    let programs = tree.text("ci/ignored").lines().find_map(|it| it.strip_prefix("programs=("));
    let programs: Vec<&str> =
        programs.map(|it| it.trim_end_matches(')').split(' ').collect()).unwrap_or_default();
    if programs.is_empty() {
        return vec!["ci/ignored has no line programs=(…)".to_owned()];
    }
    let mut problems = Vec::new();
    let sources = tree.under("crates/").filter(|(path, _)| path.ends_with(".rs"));
    for (path, text) in sources.filter(|(path, _)| !path.starts_with("crates/tidy/")) {
        let functions = functions(text);
        for program in &programs {
            let started = format!("Command::new(\"{program}\")");
            let helpers = HELPERS.iter().filter(|(_, of)| of == program).map(|(call, _)| *call);
            let starts: Vec<&str> = helpers.chain([started.as_str()]).collect();
            let mut starting: BTreeSet<&str> = BTreeSet::new();
            loop {
                let found = functions.iter().filter(|it| {
                    starts.iter().any(|call| it.body.contains(call))
                        || starting.iter().any(|name| calls(&it.body, name))
                });
                let found: BTreeSet<&str> = found.map(|it| it.name).collect();
                if found == starting {
                    break;
                }
                starting = found;
            }
            let includes =
                |requirement: &str| requirement == *program || INCLUDED.contains(&(requirement, program));
            let unnamed = functions.iter().filter(|it| {
                it.is_test && starting.contains(it.name) && !it.requirements.split(" and ").any(includes)
            });
            problems.extend(unnamed.map(|it| {
                format!("{path}: {} starts {program}: add #[ignore = \"needs {program}\"]", it.name)
            }));
        }
    }
    problems
}

/// Whether the text contains the name as a whole word, followed by an argument list.
fn calls(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        text[at + name.len()..].starts_with('(')
            && !before.is_some_and(|it| it.is_alphanumeric() || it == '_')
    })
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let mut found: Vec<Function<'_>> = Vec::new();
    let (mut is_test, mut requirements) = (false, "");
    for line in text.lines() {
        let code = line.trim_start();
        if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            (is_test, requirements) = (true, "");
            continue;
        }
        if let Some(needs) = code.strip_prefix("#[ignore = \"needs ") {
            requirements = needs.split([':', '"']).next().unwrap_or_default();
            continue;
        }
        let words =
            code.split(' ').skip_while(|it| it.starts_with("pub") || matches!(*it, "async" | "const"));
        let mut words = words.take(2);
        if words.next() == Some("fn")
            && let Some(name) = words.next().and_then(first_word)
        {
            // The line of the declaration is left out: it has the form of a call.
            found.push(Function { name, is_test, requirements, body: String::new() });
            (is_test, requirements) = (false, "");
        } else if let Some(function) = found.last_mut().filter(|_| !code.starts_with("//")) {
            function.body.push_str(line);
            function.body.push('\n');
        }
    }
    found
}

mod can_fail {
    use super::*;

    #[test]
    fn tests_without_the_program_that_they_start() {
        let tests = "\
fn sign() {
    Command::new(\"openssl\");
}
fn signed() {
    sign();
}
// sign() is not called here.
#[test]
fn other() {
    design();
}
#[test]
fn unnamed() {
    signed();
}
#[tokio::test]
#[ignore = \"needs root and openssl: a key\"]
async fn named() {
    signed();
}
#[test]
#[ignore = \"needs real nodes\"]
fn included() {
    kubectls();
}
#[test]
#[ignore = \"needs root\"]
fn another() {
    kubectls();
}
";
        let tree =
            Tree::of(&[("ci/ignored", "a\nprograms=(kubectl openssl)\n"), ("crates/a/tests/x.rs", tests)]);
        assert_problems(
            unnamed_programs(&tree),
            &[
                "crates/a/tests/x.rs: another starts kubectl: add #[ignore = \"needs kubectl\"]",
                "crates/a/tests/x.rs: unnamed starts openssl: add #[ignore = \"needs openssl\"]",
            ],
        );
        assert_problems(unnamed_programs(&Tree::of(&[])), &["ci/ignored has no line programs=(…)"]);
    }
}
