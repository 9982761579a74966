//! Files: every source file is compiled, every document is linked, and no link is broken.

use std::collections::BTreeSet;

use super::{Tree, assert_no_problems, assert_problems, missing, quoted, repository};

#[test]
fn every_file_is_compiled_or_linked() {
    assert_no_problems(orphans(&repository()));
}

#[test]
fn links_and_named_items_exist() {
    assert_no_problems(links(&repository()));
}

/// Every source file is compiled, every case of the catalogue is a text, every document is linked.
fn orphans(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
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
            problems.push(format!("{path} is reached by no `mod` and is no target"));
        }
        let in_catalogue = path.starts_with("crates/sim/catalogue/") && !path.ends_with("/README.md");
        if in_catalogue && (!path.ends_with(".txt") || text.trim().is_empty()) {
            problems.push(format!("{path} is no scenario: a catalogue entry is a .txt that says something"));
        }
    }
    for (path, _) in tree.under("docs/") {
        let is_linked = tree.all().any(|(from, text)| {
            from != path && from.ends_with(".md") && targets_of_links(from, text).any(|it| it == path)
        });
        if !is_linked {
            problems.push(format!("{path} is linked from no document"));
        }
    }
    problems
}

/// The root files of the targets that cargo compiles.
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

/// The files of the modules that a file declares.
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

/// Every relative link of a document names a file or a folder, and every `path::item` an item.
fn links(tree: &Tree) -> Vec<String> {
    let leads =
        |to: &str| tree.has(to) || tree.under(&format!("{}/", to.trim_end_matches('/'))).next().is_some();
    let mut problems = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| path.ends_with(".md")) {
        let dead = targets_of_links(path, text).filter(|to| !leads(to));
        problems.extend(dead.map(|to| format!("{path} links to {to}, which is not there")));
        let named = text.lines().flat_map(quoted).filter(|it| it.contains(".rs::"));
        problems.extend(named.filter_map(|it| missing(tree, it)).map(|it| format!("{path}: {it}")));
    }
    problems
}

/// The targets of links to files of this repository, as paths from its root.
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

mod can_fail {
    use super::*;

    #[test]
    fn files_that_are_not_compiled_or_linked() {
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
        assert_problems(
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
    fn links_to_missing_files() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md) [b](docs) [c](https://example.com/x) [d](#here) [e](docs/b.md)\n"),
            (
                "docs/a.md",
                "[up](../README.md) [out](../LICENSE)\nAs `a/src/lib.rs::kept` and `a/src/lib.rs::gone` do.\n",
            ),
            ("crates/a/src/lib.rs", "pub fn kept() {}\n"),
        ]);
        assert_problems(
            links(&tree),
            &[
                "README.md links to docs/b.md, which is not there",
                "docs/a.md links to LICENSE, which is not there",
                "docs/a.md: a/src/lib.rs::gone: crates/a/src/lib.rs has no such item",
            ],
        );
    }
}
