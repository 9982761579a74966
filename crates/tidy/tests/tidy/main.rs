//! Checks of the source tree that the compiler does not make.
//!
//! A check is a function from a tree of files to a list of problems. It runs on this repository, and on a small broken
//! tree that shows that it can fail.

mod documents;
mod files;
mod language;
mod layering;
mod requirements;
mod rule_index;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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

/// The files of this repository, except those that .gitignore excludes.
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

fn assert_no_problems(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Asserts that a check finds exactly these problems.
fn assert_problems(found: Vec<String>, expected: &[&str]) {
    assert_eq!(found, expected);
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

/// The problem with a `crate/path.rs::item` or `crate/path.rs::Type::item` that does not exist.
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

/// The lines of a source file without comments, up to its tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The cells of each row of the tables under a heading, up to the next heading of the same level.
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

/// The code spans of a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
