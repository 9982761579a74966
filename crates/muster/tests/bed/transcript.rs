//! Transcripts: commands of the shell, with what each must print. `matrix.rs` says how they are written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed;

/// The versions whose output is recorded, as the N of 1.N. Another one is judged by its exit codes alone.
pub(crate) const RECORDED: &[u32] = &[20, 27, 28, 29, 30, 31, 32, 33];

/// None takes more than a few seconds, or a minute if others need the processors; what takes longer than this hangs.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Every kubectl on this machine, by the N of 1.N; or those that MUSTER_TEST_VERSIONS names.
pub(crate) fn kubectls() -> BTreeMap<u32, PathBuf> {
    let mut kubectls: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for (version, path) in bed::kubectls() {
        kubectls.entry(minor(&version)).or_insert(path);
    }
    if let Ok(only) = std::env::var("MUSTER_TEST_VERSIONS") {
        kubectls.retain(|version, _| only.split(',').any(|it| it == format!("1.{version}")));
    }
    kubectls
}

/// What differs from the transcripts.
pub(crate) struct Judgement {
    /// By version and the number of the command.
    pub(crate) wrong: BTreeMap<(u32, usize), String>,
    /// The versions that fail as they are known to, by the number of the command.
    pub(crate) known: BTreeMap<usize, Vec<u32>>,
}

pub(crate) fn judge(entries: &[&Entry], outcomes: &BTreeMap<u32, Vec<String>>) -> Judgement {
    let mut judgement = Judgement { wrong: BTreeMap::new(), known: BTreeMap::new() };
    for (at, entry) in entries.iter().enumerate() {
        let complaints: BTreeMap<u32, String> = outcomes
            .iter()
            .filter_map(|(version, said)| Some((*version, entry.complaint(*version, &said[at])?)))
            .collect();
        if entry.note("known to fail:").is_none() {
            judgement.wrong.extend(complaints.into_iter().map(|(version, it)| ((version, at), it)));
        } else if !complaints.is_empty() {
            judgement.known.insert(at, complaints.into_keys().collect());
        } else if RECORDED.iter().all(|it| outcomes.contains_key(it)) {
            // Without some of the versions it may be the missing ones that fail.
            let text = format!("$ {}\n  does not fail: take the line `known to fail` away\n", entry.line);
            judgement.wrong.insert((RECORDED[0], at), text);
        }
    }
    judgement
}

/// One file of commands, with what each must print.
pub(crate) struct Transcript {
    path: PathBuf,
    pub(crate) entries: Vec<Entry>,
    /// What stands behind the last command.
    rest: Vec<String>,
}

pub(crate) struct Entry {
    /// The lines above the command: comments and empty ones.
    notes: Vec<String>,
    pub(crate) line: String,
    /// What it must print, by the first version that prints it.
    expected: BTreeMap<u32, String>,
}

impl Entry {
    /// What follows a note's first words, if there is such a note.
    pub(crate) fn note(&self, first: &str) -> Option<&str> {
        self.notes.iter().find_map(|it| it.strip_prefix("# ")?.strip_prefix(first))
    }

    fn expected_of(&self, version: u32) -> &str {
        let of_older = self.expected.range(..=version).next_back();
        of_older.or_else(|| self.expected.first_key_value()).map_or("", |(_, text)| text)
    }

    fn complaint(&self, version: u32, said: &str) -> Option<String> {
        let expected = self.expected_of(version);
        let differs = if RECORDED.contains(&version) {
            expected != said
        } else {
            exit_line(expected) != exit_line(said)
        };
        differs.then(|| format!("kubectl 1.{version}: $ {}\n{}", self.line, difference(expected, said)))
    }
}

fn exit_line(text: &str) -> Option<&str> {
    text.lines().last().filter(|it| it.starts_with("  exit "))
}

/// The lines that differ, with a few of those around them.
fn difference(expected: &str, said: &str) -> String {
    let (expected, said): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), said.lines().collect());
    let same_before = expected.iter().zip(&said).take_while(|(a, b)| a == b).count();
    let left = |lines: &[&str]| lines.len() - same_before;
    let same_after = expected.iter().rev().zip(said.iter().rev()).take_while(|(a, b)| a == b).count();
    let same_after = same_after.min(left(&expected)).min(left(&said));
    let mut text = String::new();
    for line in &expected[same_before.saturating_sub(3)..same_before] {
        let _ = writeln!(text, "      {line}");
    }
    for (sign, lines) in [('-', &expected), ('+', &said)] {
        for line in &lines[same_before..lines.len() - same_after] {
            let _ = writeln!(text, "    {sign} {line}");
        }
    }
    text
}

pub(crate) fn read(dir: &Path) -> Vec<Transcript> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).collect();
    paths.retain(|it| it.extension().is_some_and(|it| it == "txt"));
    paths.sort();
    let read = |path: PathBuf| {
        let (entries, rest) = parse(&fs::read_to_string(&path).unwrap());
        Transcript { path, entries, rest }
    };
    paths.into_iter().map(read).collect()
}

fn parse(text: &str) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut notes): (Vec<Entry>, Vec<String>) = (Vec::new(), Vec::new());
    let mut version = 0;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            version = 0;
            let notes = std::mem::take(&mut notes);
            entries.push(Entry { notes, line: command.to_owned(), expected: BTreeMap::new() });
        } else if let Some(later) = line.strip_prefix("  -- kubectl 1.") {
            version = later.parse().expect("`-- kubectl 1.N`");
        } else if line.starts_with("  ") {
            let entry = entries.last_mut().expect("what is printed stands below a command");
            let expected = entry.expected.entry(version).or_default();
            let _ = writeln!(expected, "{line}");
        } else {
            notes.push(line.to_owned());
        }
    }
    (entries, notes)
}

pub(crate) fn update(transcripts: &[Transcript], outcomes: &BTreeMap<u32, Vec<String>>) {
    let mut at = 0;
    for transcript in transcripts {
        let mut text = String::new();
        for entry in &transcript.entries {
            for note in &entry.notes {
                let _ = writeln!(text, "{note}");
            }
            let _ = writeln!(text, "$ {}", entry.line);
            let is_known = entry.note("known to fail:").is_some();
            let mut before = "";
            for (index, version) in RECORDED.iter().enumerate() {
                let said = if is_known { entry.expected_of(*version) } else { &outcomes[version][at] };
                if index == 0 {
                    text += said;
                } else if said != before {
                    let _ = write!(text, "  -- kubectl 1.{version}\n{said}");
                }
                before = said;
            }
            at += 1;
        }
        for line in &transcript.rest {
            let _ = writeln!(text, "{line}");
        }
        fs::write(&transcript.path, text).unwrap();
    }
}

/// A directory for one version to run in: `bin/kubectl` is that version, and these files are there.
pub(crate) fn home(name: &str, kubectl: &Path, files: &[PathBuf]) -> PathBuf {
    let home = bed::fresh_dir(name);
    fs::create_dir_all(home.join("bin")).unwrap();
    fs::create_dir_all(home.join("tmp")).unwrap();
    std::os::unix::fs::symlink(kubectl, home.join("bin/kubectl")).unwrap();
    for file in files {
        fs::copy(file, home.join(file.file_name().unwrap())).unwrap();
    }
    home
}

/// What a line of the shell prints, in the form of a transcript.
pub(crate) fn run_line(line: &str, home: &Path, kubeconfig: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let [stdout, stderr] = ["stdout", "stderr"].map(|it| home.join(it));
    let mut child = Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .current_dir(home)
        .env("PATH", format!("{}:{path}", home.join("bin").display()))
        .env("KUBECONFIG", kubeconfig)
        // So that no discovery cached from another server is believed.
        .env("HOME", home)
        .env("TMPDIR", home.join("tmp"))
        // The time of an entry of managedFields differs only if a second went by since the last write.
        .env("KUBECTL_EXTERNAL_DIFF", "diff -u -N -I time")
        .stdin(Stdio::null())
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if COMMAND_TIMEOUT < began.elapsed() {
            // The shell replaces itself by its only command, so this ends kubectl.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    for (file, indent) in [(stdout, "    "), (stderr, "  ! ")] {
        for line in String::from_utf8_lossy(&fs::read(file).unwrap()).lines() {
            let _ = writeln!(text, "{indent}{line}");
        }
    }
    match code {
        Some(0) => {}
        Some(code) => drop(writeln!(text, "  exit {code}")),
        None => text += "  exit: it was still running\n",
    }
    text
}

/// The N of 1.N.
fn minor(version: &str) -> u32 {
    let minor = version.split('.').nth(1).unwrap_or_default();
    minor.parse().unwrap_or_else(|_| panic!("{version} is no version of kubectl"))
}
