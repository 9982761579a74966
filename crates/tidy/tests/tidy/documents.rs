//! Documents: each behaviour names its test, each field is described, and each promise names its check.

use std::collections::BTreeMap;

use super::{Tree, assert_no_problems, assert_problems, items, missing, quoted, repository, rows};

#[test]
fn every_behaviour_has_its_test() {
    assert_no_problems(behaviours(&repository()));
}

#[test]
fn every_promise_names_its_check() {
    assert_no_problems(promises(&repository()));
}

#[test]
fn every_difference_names_its_code() {
    assert_no_problems(differences(&repository()));
}

#[test]
fn every_type_in_the_glossary_exists() {
    assert_no_problems(glossary(&repository()));
}

#[test]
fn every_field_is_in_the_manual() {
    assert_no_problems(fields(&repository()));
}

#[test]
fn the_kubectl_table_matches_the_transcripts() {
    assert_no_problems(kubectl(&repository()));
}

#[test]
fn the_translated_readme_has_the_same_headings_and_code() {
    assert_no_problems(translation(&repository()));
}

#[test]
fn code_blocks_of_the_readme_can_be_pasted() {
    assert_no_problems(not_pasteable(&repository()));
}

#[test]
fn the_changelog_has_the_version_of_the_workspace() {
    assert_no_problems(changelog(&repository()));
}

#[test]
fn documents_are_wrapped() {
    assert_no_problems(wrapped(&repository()));
}

/// Each promise names the benchmark or test that checks it.
fn promises(tree: &Tree) -> Vec<String> {
    items_named_in_column(tree, "PROMISES.md", "## What is promised", 1)
}

/// Each difference from upstream names its code.
fn differences(tree: &Tree) -> Vec<String> {
    items_named_in_column(tree, "docs/differences.md", "# ", 4)
}

/// Each `crate::module::Type` in the last column of the glossary exists.
fn glossary(tree: &Tree) -> Vec<String> {
    let rows = rows(tree.text("docs/glossary.md"), "# ");
    let named = rows.flat_map(|cells| cells.last().into_iter().flat_map(|it| quoted(it)).collect::<Vec<_>>());
    let missing = named.filter(|it| it.contains("::") && !is_module_or_item(tree, it));
    missing.map(|it| format!("docs/glossary.md: {it} does not exist")).collect()
}

/// Whether `crate::module`, `crate::module::item` or `crate::module::Type::item` exists. The file of the module declares
/// the item or re-exports its first name.
fn is_module_or_item(tree: &Tree, path: &str) -> bool {
    let mut names = path.split("::").peekable();
    let Some(krate) = names.next() else { return false };
    let mut folder = format!("crates/{krate}/src");
    let mut file = format!("{folder}/lib.rs");
    while let Some(module) = names.peek() {
        let inner = format!("{folder}/{module}");
        let files = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
        let Some(found) = files.into_iter().find(|it| tree.has(it)) else { break };
        (folder, file) = (inner, found);
        names.next();
    }
    let item: Vec<&str> = names.collect();
    let Some(first) = item.first() else { return true };
    let text = tree.text(&file);
    let is_word = |it: &str| it.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == *first);
    let is_reexport = |it: &str| it.trim_start().starts_with("pub") && it.contains(" use ") && is_word(it);
    items(text).iter().any(|it| it.name == item.join("::")) || text.split_inclusive(';').any(is_reexport)
}

/// The column of each row names at least one item, and all named items exist.
fn items_named_in_column(tree: &Tree, document: &str, heading: &str, column: usize) -> Vec<String> {
    let mut problems = Vec::new();
    let mut any = false;
    for cells in rows(tree.text(document), heading) {
        any = true;
        let named: Vec<&str> = cells.get(column).into_iter().flat_map(|it| quoted(it)).collect();
        if named.is_empty() {
            problems.push(format!("{document}: \"{}\" names nothing that holds it", cells[0]));
        }
        problems
            .extend(named.iter().filter_map(|it| missing(tree, it)).map(|it| format!("{document}: {it}")));
    }
    if !any {
        problems.push(format!("{document} has no table under \"{heading}\""));
    }
    problems
}

/// Each behaviour names the tests that show it.
fn behaviours(tree: &Tree) -> Vec<String> {
    const DOCUMENT: &str = "docs/behaviour.md";
    let mut problems = items_named_in_column(tree, DOCUMENT, "# ", 1);
    for cells in rows(tree.text(DOCUMENT), "# ") {
        for named in cells.get(1).into_iter().flat_map(|it| quoted(it)) {
            let (file, name) = named.split_once("::").unwrap_or_default();
            let items = items(tree.text(&format!("crates/{file}")));
            if items.iter().any(|it| it.name == name && !it.is_test) {
                problems.push(format!("{DOCUMENT}: {named} is no test"));
            }
        }
    }
    problems
}

/// The manual names every field of a DaemonSet except those of the pod template.
fn fields(tree: &Tree) -> Vec<String> {
    const DOCUMENT: &str = "docs/daemonset.md";
    let table = tree.text("crates/server/src/types/generated.rs");
    let manual = tree.text(DOCUMENT);
    let mut problems = Vec::new();
    let named = |field: &str| {
        let spellings = manual.lines().flat_map(quoted);
        spellings.flat_map(|it| it.split([' ', '.'])).any(|it| it == field)
    };
    let types = ["DaemonSet", "DaemonSetSpec", "DaemonSetUpdateStrategy", "RollingUpdateDaemonSet"];
    for name in types.into_iter().chain(["DaemonSetStatus", "DaemonSetCondition"]) {
        let declared = table.split_once(&format!("name: \"io.k8s.api.apps.v1.{name}\""));
        let own = declared.and_then(|(_, rest)| rest.split("\n};").next()).unwrap_or_default();
        let fields: Vec<&str> =
            own.split("Field { name: \"").skip(1).filter_map(|it| it.split('"').next()).collect();
        if fields.is_empty() {
            problems.push(format!("the table of types has no {name}"));
        }
        let missing = fields.into_iter().filter(|it| !named(it));
        problems.extend(missing.map(|it| format!("{DOCUMENT} does not say what {name}.{it} is")));
    }
    problems
}

/// The table of commands matches the transcripts.
fn kubectl(tree: &Tree) -> Vec<String> {
    const DOCUMENT: &str = "docs/kubectl.md";
    let shown = tree.text(DOCUMENT).lines().filter(|it| it.starts_with('|')).collect::<Vec<_>>().join("\n");
    let wanted = kubectl_table(tree);
    if shown == wanted { Vec::new() } else { vec![format!("{DOCUMENT}: the table should be\n{wanted}")] }
}

const YES: &str = "yes";

/// The output of one command, by the first kubectl version that printed it.
type Outcomes<'a> = BTreeMap<u32, Vec<&'a str>>;

fn kubectl_table(tree: &Tree) -> String {
    let mut verbs: BTreeMap<String, Vec<(bool, Outcomes<'_>)>> = BTreeMap::new();
    let transcripts = ["crates/muster/tests/matrix/", "crates/muster/tests/real/"].map(|it| tree.under(it));
    for (_, text) in transcripts.into_iter().flatten().filter(|(path, _)| path.ends_with(".txt")) {
        let (mut needs_agent, mut version, mut at) = (false, 0, String::new());
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                at = verb(command);
                let outcomes = BTreeMap::from([(0, Vec::new())]);
                verbs.entry(at.clone()).or_default().push((needs_agent, outcomes));
                (needs_agent, version) = (false, 0);
            } else if let Some(later) = line.strip_prefix("  -- kubectl 1.") {
                version = later.parse().unwrap_or_default();
            } else if line.starts_with("  ") {
                let last = verbs.get_mut(&at).and_then(|it| it.last_mut());
                last.into_iter().for_each(|(_, it)| it.entry(version).or_default().push(line));
            } else {
                needs_agent |= line == "# needs a node's agent";
            }
        }
    }
    let mut table = vec!["| command | 1.20 | 1.27 to 1.33 |".to_owned(), "|---|---|---|".to_owned()];
    // A command without a verb only checks the effect of others.
    for (verb, entries) in verbs.iter().filter(|(verb, _)| !verb.is_empty()) {
        let old = verdict(verb, entries, 20);
        let new = match (27..=33).find(|version| verdict(verb, entries, *version) == YES) {
            Some(27) => YES.to_owned(),
            Some(first) => format!("from 1.{first}"),
            None => verdict(verb, entries, 33),
        };
        table.push(format!("| `kubectl {verb}` | {old} | {new} |"));
    }
    table.join("\n")
}

/// `rollout undo` of `EDITOR=x kubectl rollout undo ds/ds`.
fn verb(command: &str) -> String {
    const WITH_PARTS: [&str; 5] = ["auth", "create", "rollout", "set", "cluster"];
    let mut words = command.split_whitespace().skip_while(|it| *it != "kubectl").skip(1);
    let first = words.next().unwrap_or_default();
    let second = words.next().filter(|it| WITH_PARTS.contains(&first) && !it.starts_with('-'));
    second.map_or_else(|| first.to_owned(), |it| format!("{first} {it}"))
}

/// Whether one of the commands works with this version, or else the error of the last one.
fn verdict(verb: &str, entries: &[(bool, Outcomes<'_>)], version: u32) -> String {
    let said = |(_, outcomes): &(bool, Outcomes<'_>)| -> Vec<String> {
        let lines = outcomes.range(..=version).next_back().map(|(_, lines)| lines.as_slice());
        lines.unwrap_or_default().iter().map(|it| (*it).to_owned()).collect()
    };
    // `kubectl diff` exits with 1 if it finds a difference.
    let works = |lines: &[String]| {
        let exit = lines.last().and_then(|it| it.strip_prefix("  exit "));
        exit.is_none_or(|it| verb == "diff" && it == "1")
    };
    if entries.iter().all(|(needs_agent, _)| *needs_agent) {
        return "no: needs a node that runs containers".to_owned();
    }
    if entries.iter().any(|it| works(&said(it))) {
        return YES.to_owned();
    }
    let last = entries.last().map(said).unwrap_or_default();
    let error = last.iter().find_map(|it| it.strip_prefix("  ! ")).unwrap_or_default();
    let error = error.strip_prefix("error: ").unwrap_or(error);
    format!("no: {}", error.replace('|', "\\|"))
}

/// CHANGELOG.md has a heading `Unreleased`, and one for the version of the workspace.
fn changelog(tree: &Tree) -> Vec<String> {
    let version =
        tree.text("Cargo.toml").lines().find_map(|it| it.strip_prefix("version = \"")?.strip_suffix('"'));
    let has =
        |name: &str| tree.text("CHANGELOG.md").lines().any(|it| it.starts_with(&format!("## [{name}]")));
    let wanted = ["Unreleased", version.unwrap_or("the version of Cargo.toml")];
    wanted.into_iter().filter(|it| !has(it)).map(|it| format!("CHANGELOG.md has no heading [{it}]")).collect()
}

/// Lines of prose have at most 120 characters. Tables, code, images and code spans cannot be wrapped.
fn wrapped(tree: &Tree) -> Vec<String> {
    const COLUMNS: usize = 120;
    let is_checked = |path: &str| path.ends_with(".md") && !path.ends_with(".zh-CN.md");
    let mut problems = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| is_checked(path)) {
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let is_prose = !fenced && !line.starts_with(['|', '!', '<']) && !line.starts_with("    ");
            let can_break = line.trim().split('`').step_by(2).any(|it| it.contains(' '));
            if is_prose && COLUMNS < line.chars().count() && can_break {
                problems.push(format!("{path}:{} is longer than {COLUMNS} characters", number + 1));
            }
        }
    }
    problems
}

/// README.zh-CN.md has the headings of README.md, by level and in order, and the same code blocks.
fn translation(tree: &Tree) -> Vec<String> {
    const TRANSLATED: &str = "README.zh-CN.md";
    let (levels, blocks) = skeleton(tree.text("README.md"));
    let (own_levels, own_blocks) = skeleton(tree.text(TRANSLATED));
    let mut problems = Vec::new();
    if levels != own_levels {
        problems.push(format!("{TRANSLATED} has headings of levels {own_levels:?}, README.md {levels:?}"));
    }
    if blocks.len() != own_blocks.len() {
        let (count, own) = (blocks.len(), own_blocks.len());
        problems.push(format!("{TRANSLATED} has {own} blocks of code, README.md {count}"));
    }
    for (block, own) in blocks.iter().zip(&own_blocks).filter(|(block, own)| block != own) {
        problems.push(format!("{TRANSLATED}: this block of code\n{own}\nshould be\n{block}"));
    }
    problems
}

/// The lines of README.md's code blocks that cannot be pasted into a shell: those with a prompt, and a command that runs
/// until Ctrl-C beside other commands of its block.
fn not_pasteable(tree: &Tree) -> Vec<String> {
    let (_, blocks) = skeleton(tree.text("README.md"));
    let mut problems = Vec::new();
    for block in &blocks {
        let lines: Vec<&str> = block.lines().filter(|it| !it.starts_with("```")).collect();
        for line in lines.iter().filter(|it| it.starts_with("$ ")) {
            problems.push(format!("README.md: `{line}` has a prompt"));
        }
        let runs_on = |line: &&&str| line.starts_with("make up") || line.starts_with("muster up");
        for line in lines.iter().filter(runs_on).filter(|_| 1 < lines.len()) {
            problems.push(format!("README.md: `{line}` runs until Ctrl-C, and is not alone in its block"));
        }
    }
    problems
}

/// The levels of a document's headings, and its code blocks with their fences.
fn skeleton(text: &str) -> (Vec<usize>, Vec<String>) {
    let (mut levels, mut blocks) = (Vec::new(), Vec::new());
    let mut fenced = false;
    for line in text.lines() {
        let is_fence = line.starts_with("```");
        if is_fence && !fenced {
            blocks.push(String::new());
        }
        if is_fence || fenced {
            blocks.last_mut().into_iter().for_each(|block: &mut String| *block += &format!("{line}\n"));
        } else if line.starts_with('#') {
            levels.push(line.len() - line.trim_start_matches('#').len());
        }
        fenced ^= is_fence;
    }
    (levels, blocks)
}

mod can_fail {
    use super::*;

    #[test]
    fn promises_without_a_check() {
        let tree = Tree::of(&[
            (
                "PROMISES.md",
                "## What is promised\n| what | held by |\n|---|---|\n| fast | `engine/benches/a.rs::main` |\n\
                 | small | `engine/tests/size.rs::pod` |\n| kind | good will |\n",
            ),
            ("crates/engine/benches/a.rs", "fn main() {}\n"),
        ]);
        assert_problems(
            promises(&tree),
            &[
                "PROMISES.md: engine/tests/size.rs::pod: there is no file crates/engine/tests/size.rs",
                "PROMISES.md: \"kind\" names nothing that holds it",
            ],
        );
        assert_problems(
            promises(&Tree::of(&[])),
            &["PROMISES.md has no table under \"## What is promised\""],
        );
    }

    #[test]
    fn differences_without_code() {
        let tree = Tree::of(&[(
            "docs/differences.md",
            "# D\n| what | upstream | Muster | why | where |\n|---|---|---|---|---|\n| order | random | hash | calm | `engine/src/a.rs::order` |\n",
        )]);
        assert_problems(
            differences(&tree),
            &["docs/differences.md: engine/src/a.rs::order: there is no file crates/engine/src/a.rs"],
        );
    }

    #[test]
    fn glossary_types_that_do_not_exist() {
        let document = "# Glossary\n| term | type |\n|---|---|\n| **Heading** | |\n\
            | cell | `engine::set::Cell`, `engine::set::Cell::count` and its neighbours |\n\
            | node | `engine::Node` |\n| rules | `engine::set::rules` |\n| mutant | `crates/sim/mutants` |\n\
            | gone | `engine::set::Gone` |\n| private | `engine::Cell` |\n| moved | `engine::old::Cell` |\n\
            | method | `engine::set::Cell::gone` |\n| crate | `other::Cell` |\n";
        let tree = Tree::of(&[
            ("docs/glossary.md", document),
            (
                "crates/engine/src/lib.rs",
                "mod node;\nmod set;\nuse set::Cell;\npub use node::{\n    Node,\n};\n",
            ),
            ("crates/engine/src/node.rs", "pub struct Node;\n"),
            ("crates/engine/src/set/mod.rs", "pub struct Cell;\nimpl Cell {\n    fn count(&self) {}\n}\n"),
            ("crates/engine/src/set/rules.rs", ""),
        ]);
        assert_problems(
            glossary(&tree),
            &[
                "engine::set::Gone",
                "engine::Cell",
                "engine::old::Cell",
                "engine::set::Cell::gone",
                "other::Cell",
            ]
            .map(|it| format!("docs/glossary.md: {it} does not exist"))
            .each_ref()
            .map(String::as_str),
        );
    }

    #[test]
    fn lines_that_are_too_long() {
        let long = "word ".repeat(30);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\nshort\n`{long}`\n- {long}\n");
        let tree = Tree::of(&[("docs/a.md", &text), ("README.zh-CN.md", &long), ("a.txt", &long)]);
        let problems = wrapped(&tree);
        assert_eq!(problems, [1, 8].map(|it| format!("docs/a.md:{it} is longer than 120 characters")));
    }

    #[test]
    fn versions_without_a_heading() {
        let manifest = ("Cargo.toml", "[workspace.package]\nversion = \"0.2.0\"\n");
        let tree = Tree::of(&[manifest, ("CHANGELOG.md", "# Changelog\n## [0.1.0]\n")]);
        assert_eq!(
            changelog(&tree),
            ["CHANGELOG.md has no heading [Unreleased]", "CHANGELOG.md has no heading [0.2.0]"]
        );
    }

    #[test]
    fn translations_that_lag_behind() {
        let document = "# A\n## B\n```sh\n# no heading\nmake up\n```\n```\nx\n```\n";
        let translated = "# A\n### B\n```sh\n# no heading\nmake down\n```\n";
        let tree = Tree::of(&[("README.md", document), ("README.zh-CN.md", translated)]);
        assert_eq!(
            translation(&tree),
            [
                "README.zh-CN.md has headings of levels [1, 3], README.md [1, 2]",
                "README.zh-CN.md has 1 blocks of code, README.md 2",
                "README.zh-CN.md: this block of code\n```sh\n# no heading\nmake down\n```\n\nshould be\n```sh\n# no heading\n\
                 make up\n```\n",
            ]
        );
        assert_no_problems(translation(&Tree::of(&[("README.md", document), ("README.zh-CN.md", document)])));
    }

    #[test]
    fn code_that_cannot_be_pasted() {
        let document = "```sh\nmake up ARGS=1\n```\n```sh\nmake up\nkubectl get ds\n```\n\n$ prose\n```console\n$ ls\nfile\n```\n";
        assert_problems(
            not_pasteable(&Tree::of(&[("README.md", document)])),
            &[
                "README.md: `make up` runs until Ctrl-C, and is not alone in its block",
                "README.md: `$ ls` has a prompt",
            ],
        );
    }

    #[test]
    fn behaviours_without_a_test() {
        let document = "# B\n| what | shown by |\n|---|---|\n| seen | `engine/tests/a.rs::seen` |\n\
            | helped | `engine/tests/a.rs::help` |\n| gone | `engine/tests/a.rs::gone` |\n| said | nothing |\n";
        let code = "#[test]\nfn seen() {}\nfn help() {}\n";
        let tree = Tree::of(&[("docs/behaviour.md", document), ("crates/engine/tests/a.rs", code)]);
        assert_eq!(
            behaviours(&tree),
            [
                "docs/behaviour.md: engine/tests/a.rs::gone: crates/engine/tests/a.rs has no such item",
                "docs/behaviour.md: \"said\" names nothing that holds it",
                "docs/behaviour.md: engine/tests/a.rs::help is no test",
            ]
        );
    }

    #[test]
    fn fields_that_are_not_described() {
        let table = "name: \"io.k8s.api.apps.v1.DaemonSetSpec\",\n  Field { name: \"template\", x }\n  \
            Field { name: \"replicas\", x }\n};\n  Field { name: \"other\", x }\n";
        let manual = "| `spec.template` | the pod |\n";
        let tree =
            Tree::of(&[("crates/server/src/types/generated.rs", table), ("docs/daemonset.md", manual)]);
        let problems = fields(&tree);
        assert!(
            problems.contains(&"docs/daemonset.md does not say what DaemonSetSpec.replicas is".to_owned())
        );
        assert!(problems.contains(&"the table of types has no DaemonSetStatus".to_owned()));
        assert!(!problems.iter().any(|it| it.contains("template") || it.contains("other")));
    }

    #[test]
    fn a_table_that_differs_from_the_transcripts() {
        let transcript = "$ kubectl auth whoami\n  ! error: unknown\n  exit 1\n  -- kubectl 1.28\n    me\n\
            # needs a node's agent\n$ kubectl logs x\n  ! no\n  exit 1\n$ kubectl diff -f x\n    a\n  exit 1\n";
        let table = "| command | 1.20 | 1.27 to 1.33 |\n|---|---|---|\n\
            | `kubectl auth whoami` | no: unknown | from 1.28 |\n\
            | `kubectl diff` | yes | yes |\n\
            | `kubectl logs` | no: needs a node that runs containers | no: needs a node that runs containers |";
        let matrix = ("crates/muster/tests/matrix/1.txt", transcript);
        assert_no_problems(kubectl(&Tree::of(&[matrix, ("docs/kubectl.md", table)])));
        assert_eq!(
            kubectl(&Tree::of(&[matrix, ("docs/kubectl.md", "")])),
            [format!("docs/kubectl.md: the table should be\n{table}")]
        );
    }
}
