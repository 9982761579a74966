//! What the compiler cannot check: that the crates stay apart, that the maps show the land, that nothing lies around.
//!
//! A check is a function from a tree of files to complaints. It runs on this repository, and on a small tree that is
//! broken on purpose, to show that it can fail.

mod documents;
mod language;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Our crates, and which of the others each one knows. ARCHITECTURE.md has the same table.
const CRATES: &[(&str, &[&str])] = &[
    ("agent", &["api", "engine", "files"]),
    ("api", &[]),
    ("control", &["api", "engine"]),
    ("engine", &["api"]),
    ("files", &[]),
    ("muster", &["agent", "control", "files", "server"]),
    ("server", &["api", "files", "store"]),
    ("sim", &["api", "engine", "store"]),
    ("store", &["files"]),
    ("tidy", &[]),
];

#[test]
fn crates_know_only_whom_they_should() {
    nothing_wrong(crates(&repository(), CRATES));
}

#[test]
fn the_table_of_rules_is_whole_and_true() {
    nothing_wrong(rules(&repository()));
}

#[test]
fn no_file_is_an_orphan() {
    nothing_wrong(orphans(&repository()));
}

#[test]
fn links_lead_somewhere() {
    nothing_wrong(links(&repository()));
}

#[test]
fn engine_and_simulator_stay_pure() {
    nothing_wrong(purity(&repository()));
}

#[test]
fn each_dependency_has_one_version_and_a_reason() {
    nothing_wrong(dependencies(&repository()));
}

#[test]
fn no_machine_is_named() {
    nothing_wrong(machines(&repository()));
}

#[test]
fn every_promise_has_its_check() {
    nothing_wrong(promises(&repository()));
}

#[test]
fn every_difference_says_where() {
    nothing_wrong(differences(&repository()));
}

#[test]
fn the_simulator_checks_what_is_listed() {
    nothing_wrong(invariants(&repository()));
}

#[test]
fn every_reason_is_given_somewhere() {
    nothing_wrong(reasons(&repository()));
}

/// Files by their path from the root of the repository.
struct Tree(BTreeMap<String, String>);

impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
    }

    fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    fn text(&self, path: &str) -> &str {
        self.0.get(path).map_or("", String::as_str)
    }

    fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn under<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.all().filter(move |(path, _)| path.starts_with(folder))
    }

    fn members(&self) -> BTreeSet<&str> {
        self.under("crates/")
            .filter_map(|(path, _)| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
            .filter(|name| !name.contains('/'))
            .collect()
    }
}

/// This repository, without what .gitignore leaves out.
fn repository() -> Tree {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/tidy is two levels down");
    let ignored = fs::read_to_string(root.join(".gitignore")).expect("read .gitignore");
    let mut ignored: BTreeSet<String> = ignored.lines().map(|it| it.trim_matches('/').to_string()).collect();
    ignored.insert(".git".to_string());
    let mut files = BTreeMap::new();
    read_folder(root, "", &ignored, &mut files);
    Tree(files)
}

fn read_folder(root: &Path, folder: &str, ignored: &BTreeSet<String>, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(folder)).expect("list a folder") {
        let entry = entry.expect("read an entry of a folder");
        let name = entry.file_name().to_string_lossy().into_owned();
        if ignored.contains(&name) {
            continue;
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type().expect("read the type of a file").is_dir() {
            read_folder(root, &path, ignored, files);
        } else {
            let bytes = fs::read(entry.path()).expect("read a file");
            files.insert(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

fn nothing_wrong(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Our crates depend on each other as `table` says, and ARCHITECTURE.md says the same.
fn crates(tree: &Tree, table: &[(&str, &[&str])]) -> Vec<String> {
    let wanted: BTreeMap<&str, BTreeSet<&str>> =
        table.iter().map(|(name, knows)| (*name, knows.iter().copied().collect())).collect();
    let built: BTreeMap<&str, BTreeSet<&str>> = tree
        .members()
        .into_iter()
        .map(|name| {
            let manifest = tree.text(&format!("crates/{name}/Cargo.toml"));
            let ours = dependency_lines(manifest).filter(|(section, _, _)| !section.starts_with("dev-"));
            (name, ours.filter_map(|(_, dependency, _)| dependency.strip_prefix("muster-")).collect())
        })
        .collect();
    let drawn: BTreeMap<&str, BTreeSet<&str>> = rows(tree.text("ARCHITECTURE.md"), "## The crates")
        .map(|cells| (quoted(cells[0]).next().unwrap_or_default(), quoted(cells[1]).collect()))
        .collect();
    let mut complaints = Vec::new();
    let names: BTreeSet<&str> = wanted.keys().chain(built.keys()).chain(drawn.keys()).copied().collect();
    for name in names {
        let wanted = wanted.get(name);
        for (place, says) in [("Cargo.toml", built.get(name)), ("ARCHITECTURE.md", drawn.get(name))] {
            if wanted != says {
                complaints.push(format!("{name}: the table here says {wanted:?}, {place} says {says:?}"));
            }
        }
    }
    complaints
}

/// Each row of the table of rules names things that exist, and each function with a `Rule:` is in it.
fn rules(tree: &Tree) -> Vec<String> {
    let listed: Vec<&str> = rows(tree.text("ARCHITECTURE.md"), "## Where is the rule that decides X?")
        .flat_map(|cells| quoted(cells[1]))
        .collect();
    let mut complaints: Vec<String> = listed.iter().filter_map(|it| missing(tree, it)).collect();
    if listed.is_empty() {
        complaints.push("ARCHITECTURE.md has no table of rules".to_string());
    }
    let mut seen = BTreeSet::new();
    for item in &listed {
        if !seen.insert(item) {
            complaints.push(format!("{item} is in the table of rules twice"));
        }
    }
    for (path, text) in tree.under("crates/engine/src/").chain(tree.under("crates/api/src/")) {
        let file = path.strip_prefix("crates/").unwrap_or(path);
        for item in items(text).iter().filter(|it| it.is_rule) {
            let item = format!("{file}::{}", item.name);
            if !listed.contains(&item.as_str()) {
                complaints.push(format!("{item} states a rule and is not in the table of rules"));
            }
        }
    }
    complaints
}

/// An item that a file declares: `Type::name` if it is in an `impl`.
struct Item {
    name: String,
    /// Its doc comment begins with `Rule:`.
    is_rule: bool,
    is_test: bool,
}

fn items(text: &str) -> Vec<Item> {
    let mut found = Vec::new();
    let mut of_type = None;
    let (mut is_rule, mut is_test) = (false, false);
    for line in text.lines() {
        if line.starts_with("impl") {
            of_type = implemented(line).filter(|_| !line.ends_with('}'));
        } else if line.starts_with('}') {
            of_type = None;
        }
        let line = line.trim();
        if line.starts_with("/// Rule:") {
            is_rule = true;
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("//") && !line.starts_with("#[") {
            let name = declared(line).or(Some(line).filter(|_| is_rule));
            let named = |it: &str| of_type.map_or_else(|| it.to_string(), |of| format!("{of}::{it}"));
            found.extend(name.map(|it| Item { name: named(it), is_rule, is_test }));
            (is_rule, is_test) = (false, false);
        }
    }
    found
}

/// `Gate` of `impl Gate {`, `impl<T> Gate<T> {` and `impl fmt::Display for Gate {`.
fn implemented(line: &str) -> Option<&str> {
    let of = line.split(" for ").last()?.trim_start_matches("impl");
    let of = if of.starts_with('<') { of.split_once('>')?.1 } else { of };
    first_word(of.trim())
}

/// The name of the function, type or constant that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|it| {
        it.starts_with("pub") || it.ends_with(')') || matches!(*it, "async" | "unsafe" | "extern")
    });
    let mut kind = words.next()?;
    let mut name = words.next()?;
    if kind == "const" && name == "fn" {
        (kind, name) = (name, words.next()?);
    }
    let is_item = matches!(kind, "fn" | "struct" | "enum" | "const" | "static" | "trait" | "type");
    first_word(name).filter(|_| is_item)
}

fn first_word(text: &str) -> Option<&str> {
    let end = text.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(text.len());
    Some(&text[..end]).filter(|it| !it.is_empty())
}

/// What is wrong with a `crate/path.rs::item` or a `crate/path.rs::Type::item`.
fn missing(tree: &Tree, named: &str) -> Option<String> {
    let Some((file, item)) = named.split_once("::") else {
        return Some(format!("{named} is not of the form path::item"));
    };
    let path = format!("crates/{file}");
    if !tree.has(&path) {
        return Some(format!("{named}: there is no file {path}"));
    }
    let is_there = items(tree.text(&path)).iter().any(|it| it.name == item);
    (!is_there).then(|| format!("{named}: {path} has no such item"))
}

/// Every source file is compiled, every entry of the catalogue says something, every document is linked.
fn orphans(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut reached = BTreeSet::new();
    for member in tree.members() {
        let mut left: Vec<String> = targets(tree, member);
        while let Some(path) = left.pop() {
            if reached.insert(path.clone()) {
                left.extend(modules(tree, &path));
            }
        }
    }
    for (path, text) in tree.under("crates/") {
        if path.ends_with(".rs") && !reached.contains(path) {
            complaints.push(format!("{path} is reached by no `mod` and is no target"));
        }
        let in_catalogue = path.starts_with("crates/sim/catalogue/") && !path.ends_with("/README.md");
        if in_catalogue && (!path.ends_with(".txt") || text.trim().is_empty()) {
            complaints
                .push(format!("{path} is no scenario: a catalogue entry is a .txt that says something"));
        }
    }
    for (path, _) in tree.under("docs/") {
        let is_linked = tree.all().any(|(from, text)| {
            from != path && from.ends_with(".md") && targets_of_links(from, text).any(|it| it == path)
        });
        if !is_linked {
            complaints.push(format!("{path} is linked from no document"));
        }
    }
    complaints
}

/// The files that cargo compiles on its own.
fn targets(tree: &Tree, member: &str) -> Vec<String> {
    let folder = format!("crates/{member}/");
    let is_target = |path: &str| {
        let Some(inside) = path.strip_prefix(&folder) else { return false };
        match inside.split('/').collect::<Vec<_>>()[..] {
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
            ["src", "bin", name] | ["tests" | "benches" | "examples", name] => name.ends_with(".rs"),
            ["src", "bin", _, "main.rs"] | ["tests" | "benches" | "examples", _, "main.rs"] => true,
            _ => false,
        }
    };
    tree.under(&folder).map(|(path, _)| path.to_string()).filter(|path| is_target(path)).collect()
}

/// The files that the `mod` lines of a file name.
fn modules(tree: &Tree, path: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = folder.rsplit('/').next().unwrap_or_default();
    let is_root = matches!(name, "lib.rs" | "main.rs" | "mod.rs")
        || matches!(parent, "tests" | "benches" | "bin" | "examples");
    let inside =
        if is_root { folder.to_string() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) };
    let mut found = Vec::new();
    let mut elsewhere = None;
    for line in tree.text(path).lines().map(str::trim) {
        if let Some(it) = line.strip_prefix("#[path = \"") {
            elsewhere = it.split('"').next();
            continue;
        }
        let declaration =
            line.split_once("mod ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        if let Some(module) = declaration.and_then(|(_, it)| it.strip_suffix(';')) {
            let places = match elsewhere.take() {
                Some(it) => vec![joined(folder, it)],
                None => vec![format!("{inside}/{module}.rs"), format!("{inside}/{module}/mod.rs")],
            };
            found.extend(places.into_iter().filter(|it| tree.has(it)));
        }
    }
    found
}

/// Every relative link of a document leads to a file or a folder, and every `path::item` in it to an item.
fn links(tree: &Tree) -> Vec<String> {
    let leads =
        |to: &str| tree.has(to) || tree.under(&format!("{}/", to.trim_end_matches('/'))).next().is_some();
    let mut complaints = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| path.ends_with(".md")) {
        let dead = targets_of_links(path, text).filter(|to| !leads(to));
        complaints.extend(dead.map(|to| format!("{path} links to {to}, which is not there")));
        let named = text.lines().flat_map(quoted).filter(|it| it.contains(".rs::"));
        complaints.extend(named.filter_map(|it| missing(tree, it)).map(|it| format!("{path}: {it}")));
    }
    complaints
}

/// Paths from the root, for the links to files of this repository.
fn targets_of_links<'a>(from: &'a str, text: &'a str) -> impl Iterator<Item = String> + 'a {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let all = text.split("](").skip(1).filter_map(|it| it.split(')').next());
    all.filter(|it| !it.contains("://") && !it.starts_with('#'))
        .map(move |it| joined(folder, it.split('#').next().unwrap_or_default()))
}

fn joined(folder: &str, path: &str) -> String {
    let mut steps = Vec::new();
    for step in folder.split('/').chain(path.split('/')) {
        match step {
            ".." => drop(steps.pop()),
            "." | "" => {}
            step => steps.push(step),
        }
    }
    steps.join("/")
}

/// Words that a crate's sources must not contain outside of comments.
fn purity(tree: &Tree) -> Vec<String> {
    const UNORDERED: [&str; 2] = ["HashMap", "HashSet"];
    const OUTSIDE: [&str; 4] = ["k8s_openapi", "SystemTime", "Instant::now", "extern crate std"];
    let mut complaints = Vec::new();
    for path in ["crates/api/src/lib.rs", "crates/engine/src/lib.rs"] {
        if !tree.text(path).contains("#![no_std]") {
            complaints.push(format!("{path} is not #![no_std]"));
        }
    }
    for (path, text) in tree.under("crates/") {
        let pure = path.starts_with("crates/api/src/") || path.starts_with("crates/engine/src/");
        let simulator = path.starts_with("crates/sim/src/");
        if !path.ends_with(".rs") || !(pure || simulator) {
            continue;
        }
        let outside = OUTSIDE.iter().filter(|_| pure);
        for word in UNORDERED.iter().chain(outside) {
            if code(text).any(|line| line.contains(word)) {
                complaints.push(format!("{path} says {word}"));
            }
        }
    }
    complaints
}

/// Lines without comments, up to the tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// Versions are in the root manifest only; each dependency is used, and docs/dependencies.md says why.
fn dependencies(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut used = BTreeSet::new();
    for member in tree.members() {
        let path = format!("crates/{member}/Cargo.toml");
        for (_, name, value) in dependency_lines(tree.text(&path)) {
            used.insert(name);
            if !value.replace(' ', "").contains("workspace=true") {
                complaints.push(format!("{path}: {name} must say workspace = true"));
            }
        }
    }
    let root = tree.text("Cargo.toml");
    let known: BTreeSet<&str> =
        dependency_lines(root).map(|(_, name, _)| name).filter(|it| !it.starts_with("muster-")).collect();
    let explained: BTreeSet<&str> = tree
        .text("docs/dependencies.md")
        .lines()
        .filter_map(|line| quoted(line.strip_prefix("| ")?.split(" | ").next()?).next())
        .collect();
    for name in &known {
        if !used.contains(name) {
            complaints.push(format!("Cargo.toml: {name} is used by no crate"));
        }
        if !explained.contains(name) {
            complaints.push(format!("docs/dependencies.md does not say why {name} is taken"));
        }
    }
    for name in explained.difference(&known) {
        complaints.push(format!("docs/dependencies.md explains {name}, which nothing depends on"));
    }
    complaints
}

/// Section, name and the rest of each line that declares a dependency.
fn dependency_lines(manifest: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').trim_start_matches("workspace.");
            return None;
        }
        let (name, rest) = line.split_once(['.', ' ', '=']).filter(|_| !line.starts_with('#'))?;
        section.ends_with("dependencies").then_some((section, name, rest))
    })
}

/// No file names a path of somebody's machine, or a registry other than the public one.
fn machines(tree: &Tree) -> Vec<String> {
    // In pieces, or this file would name them.
    let paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"]].map(|it| it.concat());
    let registries =
        [["replace", "-with"], ["[regis", "tries"], ["[sou", "rce."], ["spar", "se+"]].map(|it| it.concat());
    const PUBLIC: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let mut complaints = Vec::new();
    for (path, text) in tree.all() {
        for (number, line) in text.lines().enumerate() {
            let found = paths.iter().chain(&registries).find(|it| line.contains(it.as_str()));
            if let Some(found) = found {
                complaints.push(format!("{path}:{} says {found}", number + 1));
            }
            if path == "Cargo.lock" && line.starts_with("source = ") && !line.contains(PUBLIC) {
                complaints.push(format!("{path}:{} takes a crate from elsewhere: {line}", number + 1));
            }
        }
    }
    complaints
}

/// Each promise names the bench or test that holds it.
fn promises(tree: &Tree) -> Vec<String> {
    held(tree, "PROMISES.md", "## What is promised", 1)
}

/// Each difference from upstream names the code that makes it.
fn differences(tree: &Tree) -> Vec<String> {
    held(tree, "docs/differences.md", "# ", 4)
}

/// The column of each row names at least one item, and all that it names exist.
fn held(tree: &Tree, document: &str, heading: &str, column: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut any = false;
    for cells in rows(tree.text(document), heading) {
        any = true;
        let named: Vec<&str> = cells.get(column).into_iter().flat_map(|it| quoted(it)).collect();
        if named.is_empty() {
            complaints.push(format!("{document}: \"{}\" names nothing that holds it", cells[0]));
        }
        complaints
            .extend(named.iter().filter_map(|it| missing(tree, it)).map(|it| format!("{document}: {it}")));
    }
    if !any {
        complaints.push(format!("{document} has no table under \"{heading}\""));
    }
    complaints
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
    // Invariants of several runs, which a test compares.
    let in_tests = tree.under("crates/sim/tests/").flat_map(|(_, text)| text.lines());
    let lines = in_sources.chain(in_tests.filter(|it| it.contains("invariant: \"")));
    let checked: BTreeSet<&str> =
        lines.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(is_id).collect();
    let unlisted = checked.difference(&listed).map(|it| format!("ARCHITECTURE.md does not say what {it} is"));
    let unchecked = listed.difference(&checked).map(|it| format!("the simulator does not check {it}"));
    unlisted.chain(unchecked).collect()
}

/// Every `Why` is built in the engine.
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
    let mut complaints: Vec<String> = variants
        .iter()
        .filter(|it| !is_built(it))
        .map(|it| format!("{path}: no function gives the reason {it}"))
        .collect();
    if variants.is_empty() {
        complaints.push(format!("{path} has no reasons"));
    }
    complaints
}

/// Whether the variant is made here, and not matched: a pattern has its arrow or its `=` behind it.
fn builds(line: &str, variant: &str) -> bool {
    let name = format!("Why::{variant}");
    line.match_indices(&name).any(|(at, _)| {
        let after = &line[at + name.len()..];
        let is_longer = after.starts_with(|it: char| it.is_alphanumeric() || it == '_');
        !is_longer && !after.contains("=>") && !after.contains(" = ") && !after.starts_with(" { .. }")
    })
}

/// The cells of each row of the tables under a heading, up to the next heading of its rank.
fn rows<'a>(document: &'a str, heading: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
    let rank = heading.split(' ').next().unwrap_or_default().len();
    let rank_of = |line: &str| {
        line.split(' ').next().filter(|it| !it.is_empty() && it.chars().all(|c| c == '#')).map(str::len)
    };
    let section = document.lines().skip_while(move |line| !line.starts_with(heading)).skip(1);
    let section = section.take_while(move |line| rank_of(line).is_none_or(|it| rank < it));
    let mut head = true;
    section.filter_map(move |line| {
        let Some(row) = line.strip_prefix('|') else {
            head = true;
            return None;
        };
        if row.trim_start().starts_with("--") {
            head = false;
            return None;
        }
        let cells = row.trim_end().trim_end_matches('|').split('|').map(str::trim).collect();
        Some(cells).filter(|_| !head)
    })
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

mod can_fail {
    use super::*;

    /// A check must find exactly these things wrong with these files.
    fn finds(complaints: Vec<String>, wanted: &[&str]) {
        assert_eq!(complaints, wanted);
    }

    #[test]
    fn crates_that_know_too_much_or_are_drawn_wrong() {
        let tree = Tree::of(&[
            ("crates/agent/Cargo.toml", "[dependencies]\nmuster-server.workspace = true\n"),
            ("crates/server/Cargo.toml", "[dev-dependencies]\nmuster-agent.workspace = true\n"),
            ("crates/extra/Cargo.toml", ""),
            (
                "ARCHITECTURE.md",
                "## The crates\n| crate | knows |\n|--|--|\n| `agent` | none |\n| `server` | `agent` |\n",
            ),
        ]);
        finds(
            crates(&tree, &[("agent", &[]), ("server", &[])]),
            &[
                r#"agent: the table here says Some({}), Cargo.toml says Some({"server"})"#,
                "extra: the table here says None, Cargo.toml says Some({})",
                r#"server: the table here says Some({}), ARCHITECTURE.md says Some({"agent"})"#,
            ],
        );
    }

    #[test]
    fn rules_that_moved_or_were_never_listed() {
        let table = "## Where is the rule that decides X?\n| question | rule |\n|---|---|\n\
            | a | `engine/src/a.rs::kept`, `engine/src/a.rs::Gate::opens` |\n\
            | b | `engine/src/a.rs::renamed` |\n\
            | c | `engine/src/gone.rs::x`, `engine/src/a.rs::kept` |\n\
            | d | `engine/src/a.rs::Door::opens` |\n## Next\n| e | `not here` |\n";
        let code = "/// Rule: one.\npub(crate) fn kept() {}\nimpl Gate {\n    /// Rule: two,\n    /// of two lines.\n    \
            #[inline]\n    pub fn opens(&self) {}\n}\nimpl Door {}\n/// Rule: three.\nconst LIMIT: usize = 1;\n";
        let tree = Tree::of(&[("ARCHITECTURE.md", table), ("crates/engine/src/a.rs", code)]);
        finds(
            rules(&tree),
            &[
                "engine/src/a.rs::renamed: crates/engine/src/a.rs has no such item",
                "engine/src/gone.rs::x: there is no file crates/engine/src/gone.rs",
                "engine/src/a.rs::Door::opens: crates/engine/src/a.rs has no such item",
                "engine/src/a.rs::kept is in the table of rules twice",
                "engine/src/a.rs::LIMIT states a rule and is not in the table of rules",
            ],
        );
        finds(rules(&Tree::of(&[])), &["ARCHITECTURE.md has no table of rules"]);
    }

    #[test]
    fn files_that_nothing_reaches() {
        let tree = Tree::of(&[
            ("crates/sim/Cargo.toml", ""),
            ("crates/sim/src/lib.rs", "pub mod a;\nmod b;\n#[cfg(test)]\nmod tests;\n"),
            ("crates/sim/src/a.rs", "mod inner;\n// mod commented;\n"),
            ("crates/sim/src/a/inner.rs", ""),
            ("crates/sim/src/a/commented.rs", ""),
            ("crates/sim/src/b/mod.rs", "#[path = \"other.rs\"]\nmod odd;\n"),
            ("crates/sim/src/b/other.rs", ""),
            ("crates/sim/src/tests.rs", ""),
            ("crates/sim/tests/rules/main.rs", "mod one;\n#[path = \"../shared/mod.rs\"]\nmod shared;\n"),
            ("crates/sim/tests/shared/mod.rs", ""),
            ("crates/sim/tests/rules/one.rs", ""),
            ("crates/sim/tests/rules/two.rs", ""),
            ("crates/sim/catalogue/X01.txt", "set web\n"),
            ("crates/sim/catalogue/X02.txt", " \n"),
            ("crates/sim/catalogue/notes.md", "a note\n"),
            ("README.md", "[see](docs/seen.md)\n"),
            ("docs/seen.md", "[see](also.md#there)\n"),
            ("docs/also.md", ""),
            ("docs/forgotten.md", "[me](forgotten.md)\n"),
        ]);
        finds(
            orphans(&tree),
            &[
                "crates/sim/catalogue/X02.txt is no scenario: a catalogue entry is a .txt that says something",
                "crates/sim/catalogue/notes.md is no scenario: a catalogue entry is a .txt that says something",
                "crates/sim/src/a/commented.rs is reached by no `mod` and is no target",
                "crates/sim/tests/rules/two.rs is reached by no `mod` and is no target",
                "docs/forgotten.md is linked from no document",
            ],
        );
    }

    #[test]
    fn links_to_nowhere() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md) [b](docs) [c](https://example.com/x) [d](#here) [e](docs/b.md)\n"),
            (
                "docs/a.md",
                "[up](../README.md) [out](../LICENSE)\nAs `a/src/lib.rs::kept` and `a/src/lib.rs::gone` do.\n",
            ),
            ("crates/a/src/lib.rs", "pub fn kept() {}\n"),
        ]);
        finds(
            links(&tree),
            &[
                "README.md links to docs/b.md, which is not there",
                "docs/a.md links to LICENSE, which is not there",
                "docs/a.md: a/src/lib.rs::gone: crates/a/src/lib.rs has no such item",
            ],
        );
    }

    #[test]
    fn impure_sources() {
        let tree = Tree::of(&[
            ("crates/engine/src/lib.rs", "use k8s_openapi::api;\nfn f() { Instant::now(); }\n"),
            ("crates/engine/src/a.rs", "// A HashMap would not do.\nlet t: SystemTime;\n"),
            ("crates/engine/tests/a.rs", "use std::collections::HashMap;\n"),
            ("crates/sim/src/lib.rs", "use std::collections::HashSet;\nlet t = Instant::now();\n"),
        ]);
        finds(
            purity(&tree),
            &[
                "crates/api/src/lib.rs is not #![no_std]",
                "crates/engine/src/lib.rs is not #![no_std]",
                "crates/engine/src/a.rs says SystemTime",
                "crates/engine/src/lib.rs says k8s_openapi",
                "crates/engine/src/lib.rs says Instant::now",
                "crates/sim/src/lib.rs says HashSet",
            ],
        );
    }

    #[test]
    fn dependencies_with_versions_of_their_own_or_without_a_reason() {
        let tree = Tree::of(&[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nmuster-a = { path = \"a\" }\nbytes = \"1\"\nclap = \"4\"\nidle = \"1\"\n",
            ),
            (
                "crates/a/Cargo.toml",
                "[package]\nversion.workspace = true\n[dependencies]\nbytes = { workspace = true, features = [\"std\"] }\n\
                 clap = \"3\"\n[features]\nstd = []\n",
            ),
            (
                "docs/dependencies.md",
                "| `bytes` | why | what else |\n| `gone` | why | what else |\n| `idle` | x | y |\n",
            ),
        ]);
        finds(
            dependencies(&tree),
            &[
                "crates/a/Cargo.toml: clap must say workspace = true",
                "docs/dependencies.md does not say why clap is taken",
                "Cargo.toml: idle is used by no crate",
                "docs/dependencies.md explains gone, which nothing depends on",
            ],
        );
    }

    #[test]
    fn files_that_name_a_machine() {
        let home = ["/ho", "me/me/muster"].concat();
        let config =
            [["[sou", "rce.crates-io]"].concat(), ["replace", "-with = \"mine\""].concat()].join("\n");
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"git+https://example.com/x\"\n";
        let tree = Tree::of(&[("README.md", &home), (".cargo/config.toml", &config), ("Cargo.lock", lock)]);
        finds(
            machines(&tree),
            &[
                &format!(".cargo/config.toml:1 says {}", ["[sou", "rce."].concat()),
                &format!(".cargo/config.toml:2 says {}", ["replace", "-with"].concat()),
                "Cargo.lock:2 takes a crate from elsewhere: source = \"git+https://example.com/x\"",
                &format!("README.md:1 says {}", ["/ho", "me/"].concat()),
            ],
        );
    }

    #[test]
    fn promises_that_nothing_holds() {
        let tree = Tree::of(&[
            (
                "PROMISES.md",
                "## What is promised\n| what | held by |\n|---|---|\n| fast | `engine/benches/a.rs::main` |\n\
                 | small | `engine/tests/size.rs::pod` |\n| kind | good will |\n",
            ),
            ("crates/engine/benches/a.rs", "fn main() {}\n"),
        ]);
        finds(
            promises(&tree),
            &[
                "PROMISES.md: engine/tests/size.rs::pod: there is no file crates/engine/tests/size.rs",
                "PROMISES.md: \"kind\" names nothing that holds it",
            ],
        );
        finds(promises(&Tree::of(&[])), &["PROMISES.md has no table under \"## What is promised\""]);
    }

    #[test]
    fn differences_that_no_code_makes() {
        let tree = Tree::of(&[(
            "docs/differences.md",
            "# D\n| what | upstream | Muster | why | where |\n|---|---|---|---|---|\n| order | random | hash | calm | `engine/src/a.rs::order` |\n",
        )]);
        finds(
            differences(&tree),
            &["docs/differences.md: engine/src/a.rs::order: there is no file crates/engine/src/a.rs"],
        );
    }

    #[test]
    fn invariants_that_are_listed_or_checked_but_not_both() {
        let table = "## The invariants of the simulation\n| id | what |\n|---|---|\n| W1 | a |\n| L10 | b |\n| S2 | c |\n| L8 | d |\n";
        let code = "self.fail(\"W1\", || String::new());\nfail(\"S9\", x);\nf(\"L10\", \"W\", \"W14.x\");\n";
        let test = "const INVARIANTS: [&str; 1] = [\"S2\"];\nKilled { invariant: \"L8\" }\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", table),
            ("crates/sim/src/checks.rs", code),
            ("crates/sim/tests/mutants/main.rs", test),
        ]);
        finds(
            invariants(&tree),
            &["ARCHITECTURE.md does not say what S9 is", "the simulator does not check S2"],
        );
    }

    #[test]
    fn reasons_that_nobody_gives() {
        let why = "pub enum Why {\n    // a comment\n    Given { at: u8 },\n    Matched,\n    Tested,\n    Taken,\n    Given2,\n}\n";
        let code = "plan.why = Why::Given { at: 1 };\nWhy::Matched => {}\nif let Why::Taken = why {}\n\
            #[cfg(test)]\nmod tests {\n    f(Why::Tested);\n}\n";
        let tree = Tree::of(&[("crates/engine/src/daemonset/why.rs", why), ("crates/engine/src/a.rs", code)]);
        finds(
            reasons(&tree),
            &[
                "crates/engine/src/daemonset/why.rs: no function gives the reason Matched",
                "crates/engine/src/daemonset/why.rs: no function gives the reason Tested",
                "crates/engine/src/daemonset/why.rs: no function gives the reason Taken",
                "crates/engine/src/daemonset/why.rs: no function gives the reason Given2",
            ],
        );
        finds(reasons(&Tree::of(&[])), &["crates/engine/src/daemonset/why.rs has no reasons"]);
    }
}
