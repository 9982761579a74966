//! Every `muster` and `make` command that a document shows exists, with its flags, and so do the files of this
//! repository that a `kubectl` command names.

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
    let mut unknown = unknown_commands(&documents, &makefile, help);
    unknown.extend(missing_files(&documents, |path| root.join(path).exists()));
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
    let all = documents
        .iter()
        .flat_map(|(path, text)| shown(text).map(bare).filter(|it| is_ours(it)).map(move |it| (path, it)));
    for (path, command) in all {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        if let ["make", target, ..] = words[..] {
            let is_target = makefile.lines().any(|it| it.starts_with(&format!("{target}:")));
            if !is_target {
                complaints.push(format!("{path}: `{command}`: there is no target {target}"));
            }
            // `make up` runs `muster up` with the flags in ARGS.
            let Some((_, flags)) = command.split_once("ARGS=\"").filter(|_| target == "up") else { continue };
            let flags = flags.split('"').next().unwrap_or_default();
            words = ["muster", "up"].into_iter().chain(flags.split_whitespace()).collect();
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

/// The files in `examples` and `deploy/kubernetes` that a `kubectl` command of a document names and that do not exist.
fn missing_files(documents: &[(String, String)], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let all = documents.iter().flat_map(|(path, text)| shown(text).map(move |it| (path, bare(it))));
    let mut complaints = Vec::new();
    for (path, command) in all.filter(|(_, it)| it.starts_with("kubectl ")) {
        let files = command
            .split_whitespace()
            .filter(|it| it.starts_with("examples/") || it.starts_with("deploy/kubernetes"));
        let missing = files.filter(|it| !exists(it.trim_end_matches('/')));
        complaints.extend(missing.map(|it| format!("{path}: `{command}`: there is no file {it}")));
    }
    complaints
}

/// Whether a command is one of `muster` or `make`.
fn is_ours(command: &str) -> bool {
    command.starts_with("muster ") || command.starts_with("make ")
}

/// A command without what follows it: a comment, or a part for another program.
fn bare(command: String) -> String {
    command.split([';', '|', '>', '#', '\'']).next().unwrap_or_default().trim().to_owned()
}

/// The code in a document: lines of blocks, and what stands between backticks.
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
    in_blocks.chain(in_lines).map(|it| it.replace('…', ""))
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let document = "`muster up --nodes 3` and `muster token create`; `make tea`\n\
        ```console\n$ muster up --no-such=1 # word\n$ muster fly\n```\n    muster up FILE --sim-nodes 2\n\
        ```sh\nmake up ARGS=\"--sim-nodes 2 --other\"\nkubectl apply -f examples/a.yaml -k deploy/kubernetes/b/\n```\n";
    let help = |words: &[&str]| match words {
        [] => Some("Commands: up token".to_owned()),
        ["up"] => Some("--nodes <N>\n --sim-nodes".to_owned()),
        ["token"] | ["token", "create"] => Some(String::new()),
        _ => None,
    };
    let documents = [("README.md".to_owned(), document.to_owned())];
    assert_eq!(
        missing_files(&documents, |path| path == "deploy/kubernetes/b"),
        [
            "README.md: `kubectl apply -f examples/a.yaml -k deploy/kubernetes/b/`: there is no file examples/a.yaml"
        ]
    );
    assert_eq!(
        unknown_commands(&documents, "up: ## x\n", help),
        [
            "README.md: `muster up --no-such=1`: there is no flag --no-such",
            "README.md: `muster fly`: there is no such command",
            "README.md: `make up ARGS=\"--sim-nodes 2 --other\"`: there is no flag --other",
            "README.md: `make tea`: there is no target tea",
        ]
    );
}
