//! Every `muster` and `make` command that a document shows exists, with its flags.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn every_documented_command_exists() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/muster is two levels down");
    let mut documents = Vec::new();
    for folder in [root.to_owned(), root.join("docs")] {
        for entry in fs::read_dir(folder).expect("list a folder") {
            let path = entry.expect("read an entry of a folder").path();
            if path.extension().is_some_and(|it| it == "md") {
                let text = fs::read_to_string(&path).expect("read a document");
                documents.push((path.strip_prefix(root).unwrap_or(&path).display().to_string(), text));
            }
        }
    }
    let makefile = fs::read_to_string(root.join("Makefile")).expect("read the Makefile");
    let unknown = unknown_commands(&documents, &makefile, help);
    assert!(10 < documents.len() && unknown.is_empty(), "\n{}\n", unknown.join("\n"));
}

/// What `muster WORDS --help` prints, if there is such a command.
fn help(words: &[&str]) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_muster")).args(words).arg("--help").output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The `muster …` and `make …` commands in the documents that do not exist, or that use an unknown flag.
fn unknown_commands(
    documents: &[(String, String)],
    makefile: &str,
    help: impl Fn(&[&str]) -> Option<String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut known: BTreeMap<Vec<String>, Option<String>> = BTreeMap::new();
    for (path, command) in documents.iter().flat_map(|(path, text)| shown(text).map(move |it| (path, it))) {
        let words: Vec<&str> = command.split_whitespace().collect();
        if let ["make", target, ..] = words[..] {
            let is_target = makefile.lines().any(|it| it.starts_with(&format!("{target}:")));
            if !is_target {
                complaints.push(format!("{path}: `{command}`: there is no target {target}"));
            }
            continue;
        }
        // A command has parts, and then arguments: the longest that there is help for.
        let is_part =
            |it: &&&str| it.chars().all(|it| it.is_ascii_lowercase() || it == '-') && !it.starts_with('-');
        let parts: Vec<&str> = words[1..].iter().take_while(is_part).copied().collect();
        let mut text_of = |parts: &[&str]| {
            let key = parts.iter().map(|it| (*it).to_owned()).collect();
            known.entry(key).or_insert_with(|| help(parts)).clone()
        };
        let is_there = parts.first().is_none_or(|first| text_of(&[first]).is_some());
        let found = (0..=parts.len()).rev().find_map(|count| text_of(&parts[..count]));
        let (true, Some(text)) = (is_there, found) else {
            complaints.push(format!("{path}: `{command}`: there is no such command"));
            continue;
        };
        for flag in words.iter().filter(|it| it.starts_with("--")) {
            let flag = flag.split('=').next().unwrap_or_default();
            let is_there = flag == "--help" || text.split([' ', ',', '\n', '=']).any(|it| it == flag);
            if !is_there {
                complaints.push(format!("{path}: `{command}`: there is no flag {flag}"));
            }
        }
    }
    complaints
}

/// The commands of ours in a document: lines of blocks of code, and what stands between backticks.
fn shown(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut fenced = false;
    let in_blocks = text.lines().filter_map(move |line| {
        if line.starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let inside = if fenced { Some(line) } else { line.strip_prefix("    ") };
        inside.map(|it| it.strip_prefix("$ ").unwrap_or(it).to_owned())
    });
    let in_lines = text.lines().flat_map(|it| it.split('`').skip(1).step_by(2)).map(str::to_owned);
    let ours = |it: &String| it.starts_with("muster ") || it.starts_with("make ");
    // What follows is a comment, or for another program.
    let bare = |it: String| it.split([';', '|', '>', '#', '\'']).next().unwrap_or_default().trim().to_owned();
    in_blocks.chain(in_lines).map(|it| it.replace('…', "")).filter(ours).map(bare)
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let document = "`muster up --nodes 3` and `muster token create`; `make tea`\n\
        ```console\n$ muster up --no-such=1 # word\n$ muster fly\n```\n    muster up FILE --sim-nodes 2\n";
    let help = |words: &[&str]| match words {
        [] => Some("Commands: up token".to_owned()),
        ["up"] => Some("--nodes <N>\n --sim-nodes".to_owned()),
        ["token"] | ["token", "create"] => Some(String::new()),
        _ => None,
    };
    assert_eq!(
        unknown_commands(&[("README.md".to_owned(), document.to_owned())], "up: ## x\n", help),
        [
            "README.md: `muster up --no-such=1`: there is no flag --no-such",
            "README.md: `muster fly`: there is no such command",
            "README.md: `make tea`: there is no target tea",
        ]
    );
}
