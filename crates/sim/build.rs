//! With the feature `mutants`: copies the engine and the simulator to `OUT_DIR`, with the mutants of `mutants/*.diff`
//! built in. `mutants/README.md` describes the format; `tests/mutants/main.rs` compiles and runs the copy.
//!
//! The body of a function that mutants change becomes a `match`: an arm with the changed body for each of these
//! mutants, and one with the original body. The shipped sources contain no switch, one build contains every mutant,
//! and mutants may change the same lines.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A prefix of paths in the source, and its replacement in the copy.
type PathPrefix = (&'static str, &'static str);

/// Folders of `crates` to copy, the module that each becomes, and how its paths change: two crates become one.
const FOLDERS: [(&str, &str, &[PathPrefix]); 3] = [
    ("engine/src", "engine", &[("crate::", "crate::engine::")]),
    ("sim/src", "sim", &[("crate::", "crate::sim::"), ("muster_engine::", "crate::engine::")]),
    ("engine/tests", "tests", &[("muster_engine::", "crate::engine::")]),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_MUTANTS").is_some()
        && let Err(error) = build()
    {
        error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=mutants");
    let mutants = catalogue(Path::new("mutants"))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut missing: BTreeSet<&str> =
        mutants.iter().flat_map(|it| &it.hunks).map(|it| it.file.as_str()).collect();
    let mut errors = Vec::new();
    for (folder, module, paths) in FOLDERS {
        let crates = Path::new("..");
        println!("cargo::rerun-if-changed=../{folder}");
        let copy = out.join(module);
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        for source in sources(&crates.join(folder), "rs")? {
            let file = source.strip_prefix(crates)?.to_string_lossy();
            missing.remove(&*file);
            let text = fs::read_to_string(&source)?;
            let text = mutate(&file, &text, &mutants).unwrap_or_else(|it| {
                errors.extend(it);
                text
            });
            // The copy is compiled as a test, and must not contain the unit tests.
            let mut text = text.replace("#[cfg(test)]", "#[cfg(false)]");
            for (from, to) in paths {
                text = text.replace(from, to);
            }
            let to = copy.join(Path::new(&*file).strip_prefix(folder)?);
            fs::create_dir_all(to.parent().unwrap_or(&copy))?;
            fs::write(to, text)?;
        }
    }
    errors.extend(missing.iter().map(|it| format!("mutants/*.diff: there is no file crates/{it}")));
    if !errors.is_empty() {
        return Err(errors.join("\n").into());
    }
    Ok(fs::write(out.join("mutants.rs"), root(&out, &mutants))?)
}

pub(crate) struct Mutant {
    name: String,
    bug: String,
    /// Cases of the catalogue that are expected to notice.
    cases: Vec<String>,
    hunks: Vec<Hunk>,
}

/// Lines of a file, and what the mutant makes of them.
#[derive(Default)]
struct Hunk {
    file: String,
    /// Lines above those that change.
    above: String,
    before: String,
    after: String,
    /// Lines below those that change.
    below: String,
}

fn catalogue(folder: &Path) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let mut mutants = Vec::new();
    let mut files = sources(folder, "diff")?;
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file)?;
        parse(&text, &mut mutants).map_err(|it| format!("{}:{it}", file.display()))?;
    }
    Ok(mutants)
}

fn sources(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Adds the mutants of one file of the catalogue. An error begins with the number of its line.
pub(crate) fn parse(text: &str, mutants: &mut Vec<Mutant>) -> Result<(), String> {
    let mut file = "";
    let mut in_hunk = false;
    for (at, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("{}: {what}: {line:?}", at + 1);
        let was_in_hunk = std::mem::take(&mut in_hunk);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix("mutant ") {
            let (name, bug) = head.split_once(": ").ok_or_else(|| wrong("not `mutant NAME: BUG`"))?;
            if mutants.iter().any(|it| it.name == name) {
                return Err(wrong("this name is taken"));
            }
            let (cases, hunks) = (Vec::new(), Vec::new());
            mutants.push(Mutant { name: name.to_owned(), bug: bug.to_owned(), cases, hunks });
            file = "";
            continue;
        }
        let mutant = mutants.last_mut().ok_or_else(|| wrong("a line before the first mutant"))?;
        if let Some(cases) = line.strip_prefix("cases: ") {
            mutant.cases = cases.split_whitespace().map(str::to_owned).collect();
            continue;
        }
        if let Some(name) = line.strip_prefix("--- ") {
            file = name;
            continue;
        }
        if !was_in_hunk {
            mutant.hunks.push(Hunk { file: file.to_owned(), ..Hunk::default() });
        }
        in_hunk = true;
        let Some(hunk) = mutant.hunks.last_mut().filter(|it| !it.file.is_empty()) else {
            return Err(wrong("a change without a line `--- FILE`"));
        };
        let is_changed = !hunk.before.is_empty() || !hunk.after.is_empty();
        let place = match line.as_bytes()[0] {
            b' ' if is_changed => &mut hunk.below,
            b' ' => &mut hunk.above,
            _ if !hunk.below.is_empty() => return Err(wrong("a blank line must divide two changes")),
            b'-' => &mut hunk.before,
            b'+' => &mut hunk.after,
            _ => return Err(wrong("a line of a change begins with `-`, `+` or a space")),
        };
        place.extend([&line[1..], "\n"]);
    }
    match mutants.iter().find(|it| it.hunks.is_empty()) {
        Some(it) => Err(format!(" mutant {} changes nothing", it.name)),
        None => Ok(()),
    }
}

/// The text of a file with its mutants built in. `mutants::active()` is the number of a mutant, counted from one.
pub(crate) fn mutate(file: &str, text: &str, mutants: &[Mutant]) -> Result<String, Vec<String>> {
    type Changes<'a> = Vec<(Range<usize>, &'a str)>;
    let mut bodies: BTreeMap<(usize, usize), BTreeMap<usize, Changes<'_>>> = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, mutant) in mutants.iter().enumerate() {
        for hunk in mutant.hunks.iter().filter(|it| it.file == file) {
            match place(text, hunk) {
                Ok((body, lines)) => {
                    let mutants = bodies.entry((body.start, body.end)).or_default();
                    mutants.entry(index + 1).or_default().push((lines, &hunk.after));
                }
                Err(why) => {
                    let Hunk { above, before, below, .. } = hunk;
                    let lines = [above.as_str(), before, below].concat();
                    errors.push(format!("mutant {}: crates/{file} {why}:\n{lines}", mutant.name));
                }
            }
        }
    }
    let mut mutated = text.to_owned();
    let mut done_from = text.len();
    // From the end, so that the places before stay where they are.
    for ((start, end), mutants) in bodies.into_iter().rev() {
        if done_from < end {
            errors.push(format!("crates/{file}: mutants change a function and one inside it"));
            break;
        }
        done_from = start;
        let mut arms = String::new();
        for (number, mut changes) in mutants {
            let mut changed = text[start..end].to_owned();
            changes.sort_by_key(|(lines, _)| lines.start);
            for (lines, after) in changes.iter().rev() {
                changed.replace_range(lines.start - start..lines.end - start, after);
            }
            arms.extend([&format!("{number} => {{\n"), changed.as_str(), "}\n"]);
        }
        let body = format!("match mutants::active() {{\n{arms}_ => {{\n{}}}\n}}\n", &text[start..end]);
        mutated.replace_range(start..end, &body);
    }
    if errors.is_empty() { Ok(mutated) } else { Err(errors) }
}

/// The function that a change is in, and the lines that it replaces.
fn place(text: &str, hunk: &Hunk) -> Result<(Range<usize>, Range<usize>), String> {
    match find(text, [&hunk.above, &hunk.before, &hunk.below]).as_slice() {
        [lines] => {
            let body = body_around(text, lines).ok_or("has no function around these lines")?;
            Ok((body, lines.clone()))
        }
        [] => Err("does not contain these lines".to_owned()),
        several => Err(format!("contains these lines {} times", several.len())),
    }
}

/// Where a file contains these lines, whatever their indentation and wherever they are broken: the places of those in
/// the middle, which change.
fn find(text: &str, lines: [&str; 3]) -> Vec<Range<usize>> {
    let dense = |text: &str| text.char_indices().filter(|(_, it)| !it.is_whitespace()).unzip();
    let (places, chars): (Vec<usize>, Vec<char>) = dense(text);
    let (_, wanted): (Vec<usize>, Vec<char>) = dense(&lines.concat());
    let [above, _, below] = lines.map(|it| it.chars().filter(|it| !it.is_whitespace()).count());
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |it| it + 1);
    let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |it| at + it + 1);
    let is_start = |at: usize| text[line_start(at)..at].trim().is_empty();
    let is_end = |at: usize| text[at..line_end(at)].chars().skip(1).all(char::is_whitespace);
    let mut found = Vec::new();
    for first in 0..(chars.len() + 1).saturating_sub(wanted.len().max(1)) {
        let last = first + wanted.len() - 1;
        if chars[first..=last] == wanted && is_start(places[first]) && is_end(places[last]) {
            let from =
                if above == 0 { line_start(places[first]) } else { line_end(places[first + above - 1]) };
            let to = if below == 0 { line_end(places[last]) } else { line_start(places[last + 1 - below]) };
            found.push(from..to);
        }
    }
    found
}

/// The lines between the braces of the innermost function around these lines, in sources that rustfmt has formatted.
fn body_around(text: &str, lines: &Range<usize>) -> Option<Range<usize>> {
    let is_function = |line: &str| {
        let line = line.trim_start();
        let line =
            line.strip_prefix("pub").map_or(line, |it| it.trim_start_matches(|c| c != ' ').trim_start());
        line.starts_with("fn ")
    };
    let starts = text[..lines.start].rmatch_indices('\n').map(|(at, _)| at + 1);
    starts.chain([0]).find_map(|start| {
        let header = text[start..].lines().next().filter(|it| is_function(it))?;
        let indent = &header[..header.len() - header.trim_start().len()];
        let body = start + text[start..].find("{\n")? + 2;
        let end = body + text[body..].find(&format!("\n{indent}}}\n"))? + 1;
        (body <= lines.start && lines.end <= end).then_some(body..end)
    })
}

/// What `tests/mutants/main.rs` includes: the copied modules, and the table of the mutants.
fn root(out: &Path, mutants: &[Mutant]) -> String {
    let mut root = String::new();
    for (name, file) in
        [("engine", "engine/lib.rs"), ("sim", "sim/lib.rs"), ("incremental", "tests/incremental.rs")]
    {
        let path = out.join(file);
        root.push_str(&format!("#[path = {path:?}]\n#[allow(warnings, clippy::all)]\nmod {name};\n"));
    }
    root.push_str("const MUTANTS: &[Mutant] = &[\n");
    for Mutant { name, bug, cases, .. } in mutants {
        root.push_str(&format!("    Mutant {{ name: {name:?}, bug: {bug:?}, cases: &{cases:?} }},\n"));
    }
    root.push_str("];\n");
    root
}
