//! Dependencies: between our crates, on other crates, and on the machine.

use std::collections::{BTreeMap, BTreeSet};

use super::{Tree, assert_no_problems, assert_problems, code, quoted, repository, rows};

/// Our crates, and on which of our crates each depends. ARCHITECTURE.md has the same table.
const CRATES: &[(&str, &[&str])] = &[
    ("agent", &["api", "engine", "events", "files"]),
    ("api", &[]),
    ("control", &["api", "engine", "events"]),
    ("engine", &["api"]),
    ("events", &["api", "engine"]),
    ("files", &[]),
    ("muster", &["agent", "api", "control", "files", "server"]),
    ("etcd", &["store"]),
    ("server", &["api", "etcd", "files", "store"]),
    ("sim", &["api", "engine", "store"]),
    ("store", &["files"]),
    ("tidy", &[]),
];

#[test]
fn crates_depend_only_on_the_listed_crates() {
    assert_no_problems(crates(&repository(), CRATES));
}

#[test]
fn api_engine_and_simulator_are_pure() {
    assert_no_problems(purity(&repository()));
}

#[test]
fn each_dependency_has_one_version_and_a_reason() {
    assert_no_problems(dependencies(&repository()));
}

#[test]
fn no_file_contains_local_paths_or_registries() {
    assert_no_problems(local_paths(&repository()));
}

/// The dependencies between our crates are those of `table`, in Cargo.toml and in ARCHITECTURE.md.
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
    let mut problems = Vec::new();
    let names: BTreeSet<&str> = wanted.keys().chain(built.keys()).chain(drawn.keys()).copied().collect();
    for name in names {
        let wanted = wanted.get(name);
        for (place, says) in [("Cargo.toml", built.get(name)), ("ARCHITECTURE.md", drawn.get(name))] {
            if wanted != says {
                problems.push(format!("{name}: the table here says {wanted:?}, {place} says {says:?}"));
            }
        }
    }
    problems
}

/// `api` and `engine` have no clock and no IO, and they and the simulator have no unordered containers.
fn purity(tree: &Tree) -> Vec<String> {
    const UNORDERED: [&str; 2] = ["HashMap", "HashSet"];
    const OUTSIDE: [&str; 4] = ["k8s_openapi", "SystemTime", "Instant::now", "extern crate std"];
    let mut problems = Vec::new();
    for path in ["crates/api/src/lib.rs", "crates/engine/src/lib.rs"] {
        if !tree.text(path).contains("#![no_std]") {
            problems.push(format!("{path} is not #![no_std]"));
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
                problems.push(format!("{path} says {word}"));
            }
        }
    }
    problems
}

/// Versions are in the root manifest only; each dependency is used, and docs/dependencies.md has its reason.
fn dependencies(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for member in tree.members() {
        let path = format!("crates/{member}/Cargo.toml");
        for (_, name, value) in dependency_lines(tree.text(&path)) {
            used.insert(name);
            if !value.replace(' ', "").contains("workspace=true") {
                problems.push(format!("{path}: {name} must say workspace = true"));
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
            problems.push(format!("Cargo.toml: {name} is used by no crate"));
        }
        if !explained.contains(name) {
            problems.push(format!("docs/dependencies.md does not say why {name} is taken"));
        }
    }
    for name in explained.difference(&known) {
        problems.push(format!("docs/dependencies.md explains {name}, which nothing depends on"));
    }
    problems
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

/// No file contains a path of a local machine, or a registry other than crates.io.
fn local_paths(tree: &Tree) -> Vec<String> {
    // In pieces, so that this file does not contain them.
    let paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"]].map(|it| it.concat());
    let registries =
        [["replace", "-with"], ["[regis", "tries"], ["[sou", "rce."], ["spar", "se+"]].map(|it| it.concat());
    const PUBLIC: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let mut problems = Vec::new();
    for (path, text) in tree.all() {
        for (number, line) in text.lines().enumerate() {
            let found = paths.iter().chain(&registries).find(|it| line.contains(it.as_str()));
            if let Some(found) = found {
                problems.push(format!("{path}:{} says {found}", number + 1));
            }
            if path == "Cargo.lock" && line.starts_with("source = ") && !line.contains(PUBLIC) {
                problems.push(format!("{path}:{} takes a crate from elsewhere: {line}", number + 1));
            }
        }
    }
    problems
}

mod can_fail {
    use super::*;

    #[test]
    fn crates_with_other_dependencies_than_listed() {
        let tree = Tree::of(&[
            ("crates/agent/Cargo.toml", "[dependencies]\nmuster-server.workspace = true\n"),
            ("crates/server/Cargo.toml", "[dev-dependencies]\nmuster-agent.workspace = true\n"),
            ("crates/extra/Cargo.toml", ""),
            (
                "ARCHITECTURE.md",
                "## The crates\n| crate | knows |\n|--|--|\n| `agent` | none |\n| `server` | `agent` |\n",
            ),
        ]);
        assert_problems(
            crates(&tree, &[("agent", &[]), ("server", &[])]),
            &[
                r#"agent: the table here says Some({}), Cargo.toml says Some({"server"})"#,
                "extra: the table here says None, Cargo.toml says Some({})",
                r#"server: the table here says Some({}), ARCHITECTURE.md says Some({"agent"})"#,
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
        assert_problems(
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
    fn dependencies_with_own_versions_or_without_a_reason() {
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
        assert_problems(
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
    fn files_with_local_paths() {
        let home = ["/ho", "me/me/muster"].concat();
        let config =
            [["[sou", "rce.crates-io]"].concat(), ["replace", "-with = \"mine\""].concat()].join("\n");
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"git+https://example.com/x\"\n";
        let tree = Tree::of(&[("README.md", &home), (".cargo/config.toml", &config), ("Cargo.lock", lock)]);
        assert_problems(
            local_paths(&tree),
            &[
                &format!(".cargo/config.toml:1 says {}", ["[sou", "rce."].concat()),
                &format!(".cargo/config.toml:2 says {}", ["replace", "-with"].concat()),
                "Cargo.lock:2 takes a crate from elsewhere: source = \"git+https://example.com/x\"",
                &format!("README.md:1 says {}", ["/ho", "me/"].concat()),
            ],
        );
    }
}
