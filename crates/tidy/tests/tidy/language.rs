//! The names of the code base: one type name for one thing, the field's words, and modules without import cycles.
//!
//! Each check counts, and the count must not exceed its bound. Lower a bound when its count has fallen; never raise one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Tree, assert_no_problems, assert_problems, first_word, repository};

/// Percentage of types that share their name with another type of the workspace.
const SHARED_PERCENT_MAX: usize = 10;

/// Type names that one crate declares more than once, summed over all crates.
const DECLARED_TWICE_MAX: usize = 5;

/// Occurrences of banned words in identifiers.
const BANNED_MAX: usize = 0;

/// Top-level modules that are part of an import cycle, by crate. A crate that is not listed has none.
const IN_CYCLES_MAX: &[(&str, usize)] = &[];

/// Layers of the API server: top-level modules, from the highest layer to the lowest. A module imports from these only
/// modules of a lower layer. Other modules are not restricted, except that there are no cycles.
const SERVER_LAYERS: &[&[&str]] =
    &[&["http"], &["registry"], &["kinds"], &["validation", "defaulting", "table_printer"]];

/// Type names that several modules of a crate may declare, because each stands for the same concept: the facts that a
/// controller of the engine has about a node or a pod. Other modules write them with their module.
const ALLOWED_TWICE: [&str; 2] = ["Node", "Pod"];

/// Files that import a name of [`ALLOWED_TWICE`] from another module instead of writing it with its module.
const UNQUALIFIED_MAX: usize = 0;

/// Words for which Kubernetes or Rust has a better one; docs/glossary.md has it.
const BANNED: [&str; 28] = [
    "anew",
    "brought",
    "course",
    "deed",
    "deeds",
    "doer",
    "door",
    "doors",
    "guest",
    "guests",
    "inquiries",
    "inquiry",
    "knower",
    "knows",
    "look",
    "looks",
    "rival",
    "room",
    "rooms",
    "sieve",
    "speaks",
    "taken",
    "tell",
    "tells",
    "told",
    "upkeep",
    "whoever",
    "witness",
];

#[test]
fn few_types_share_their_name() {
    let tree = repository();
    let percent = shared_percent(&tree);
    println!("{percent} % of the types share their name with another type (at most {SHARED_PERCENT_MAX} %)");
    assert_no_problems(above(
        "types that share their name, in percent",
        percent,
        SHARED_PERCENT_MAX,
        Vec::new(),
    ));
}

#[test]
fn no_more_type_names_are_declared_twice_in_a_crate() {
    let found = declared_twice(&repository());
    println!("{} type names are declared twice in a crate (at most {DECLARED_TWICE_MAX})", found.len());
    assert_no_problems(above("type names declared twice in a crate", found.len(), DECLARED_TWICE_MAX, found));
}

#[test]
fn no_more_names_of_several_types_are_imported_from_other_modules() {
    let found = unqualified(&repository());
    println!("{} files import a name of several types (at most {UNQUALIFIED_MAX})", found.len());
    assert_no_problems(above(
        "files that import a name of several types",
        found.len(),
        UNQUALIFIED_MAX,
        found,
    ));
}

#[test]
fn no_more_banned_words_are_used_in_identifiers() {
    let tree = repository();
    let found = banned(&tree);
    let count = found.values().sum();
    println!("{count} banned words in identifiers (at most {BANNED_MAX})");
    let places = found.iter().map(|((path, word), count)| format!("{path}: {word}, {count} times")).collect();
    assert_no_problems(above("banned words in identifiers", count, BANNED_MAX, places));
}

#[test]
fn no_more_modules_are_in_import_cycles() {
    let found = in_cycles(&repository());
    for (krate, modules) in &found {
        println!("{krate}: {} modules in import cycles: {}", modules.len(), modules.join(", "));
    }
    assert_no_problems(cycles_above(found, IN_CYCLES_MAX));
}

#[test]
fn layers_of_the_server_import_only_lower_layers() {
    assert_no_problems(imports_against_layers(&repository(), "server", SERVER_LAYERS));
}

fn above(what: &str, count: usize, most: usize, found: Vec<String>) -> Vec<String> {
    if count <= most {
        return Vec::new();
    }
    let mut problems =
        vec![format!("{what}: {count}, and at most {most} are allowed; docs/glossary.md has the names")];
    problems.extend(found);
    problems
}

fn cycles_above(found: BTreeMap<String, Vec<String>>, bounds: &[(&str, usize)]) -> Vec<String> {
    let bound = |krate: &str| bounds.iter().find(|(name, _)| *name == krate).map_or(0, |(_, most)| *most);
    let too_many = found.into_iter().filter(|(krate, modules)| bound(krate) < modules.len());
    let problem = |(krate, modules): (String, Vec<String>)| {
        let most = bound(&krate);
        format!("{krate}: {} modules in import cycles, at most {most}: {}", modules.len(), modules.join(", "))
    };
    too_many.map(problem).collect()
}

/// A source file of a crate that is not compiled for tests alone, up to its tests.
struct Source<'a> {
    krate: &'a str,
    path: &'a str,
    /// The names of its module and of those around it, without the crate.
    module: Vec<&'a str>,
    text: &'a str,
}

fn sources(tree: &Tree) -> Vec<Source<'_>> {
    const TESTS: &str = "#[cfg(test)]\nmod tests {";
    let mut found = Vec::new();
    for (path, text) in tree.under("crates/").filter(|(path, _)| path.ends_with(".rs")) {
        let Some((krate, inside)) = path["crates/".len()..].split_once("/src/") else { continue };
        let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let module: Vec<&str> = inside.split('/').filter(|it| !matches!(*it, "lib" | "main")).collect();
        let text = text.split(TESTS).next().unwrap_or_default();
        found.push(Source { krate, path, module, text });
    }
    let for_tests: BTreeSet<String> = found.iter().flat_map(modules_for_tests).collect();
    let is_for_tests = |source: &Source<'_>| {
        let name = format!("{}::{}::", source.krate, source.module.join("::"));
        source.module.contains(&"tests") || for_tests.iter().any(|it| name.starts_with(it.as_str()))
    };
    found.retain(|it| !is_for_tests(it));
    found
}

/// The modules that a file declares for tests only, as `crate::module::`.
fn modules_for_tests(source: &Source<'_>) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let for_tests = lines.windows(2).filter(|it| it[0] == "#[cfg(test)]");
    let declared =
        for_tests.filter_map(|it| it[1].trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let path = |name: &str| {
        let parts = std::iter::once(source.krate).chain(source.module.iter().copied()).chain([name]);
        parts.map(|it| format!("{it}::")).collect()
    };
    declared.map(path).collect()
}

/// Types by crate and name, with the files that declare them.
fn types(tree: &Tree) -> BTreeMap<(&str, &str), Vec<&str>> {
    let mut types: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for source in sources(tree) {
        for name in source.text.lines().filter_map(declared_type) {
            types.entry((source.krate, name)).or_default().push(source.path);
        }
    }
    types
}

/// The name of the type that a line declares. Associated types and types within functions are indented, and left out.
fn declared_type(line: &str) -> Option<&str> {
    let mut words = line.split(' ').skip_while(|it| it.starts_with("pub"));
    matches!(words.next()?, "struct" | "enum" | "trait" | "type")
        .then(|| words.next().and_then(first_word))
        .flatten()
}

/// Of a hundred types, so many have a name that is declared elsewhere too.
fn shared_percent(tree: &Tree) -> usize {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for ((_, name), paths) in types(tree) {
        *by_name.entry(name).or_default() += paths.len();
    }
    let all: usize = by_name.values().sum();
    let shared: usize = by_name.values().filter(|it| 1 < **it).sum();
    (100 * shared).checked_div(all).unwrap_or(0)
}

fn declared_twice(tree: &Tree) -> Vec<String> {
    let twice =
        types(tree).into_iter().filter(|((_, name), paths)| 1 < paths.len() && !ALLOWED_TWICE.contains(name));
    twice
        .map(|((krate, name), paths)| format!("{krate}: {name} is declared in {}", paths.join(", ")))
        .collect()
}

/// Files that import a type by a name that several modules of its crate declare ([`ALLOWED_TWICE`]), although another
/// top-level module declares it.
fn unqualified(tree: &Tree) -> Vec<String> {
    let types = types(tree);
    let mut found = Vec::new();
    for source in sources(tree) {
        let imported = imported_types(&source).into_iter().filter(|(krate, module, name)| {
            let is_shared = types.get(&(*krate, *name)).is_some_and(|it| 1 < it.len());
            let is_own = *krate == source.krate && source.module.first() == Some(module);
            is_shared && ALLOWED_TWICE.contains(name) && !is_own
        });
        found.extend(imported.map(|(krate, module, name)| {
            format!("{} imports {name}: write it with its module, as in {krate}::{module}", source.path)
        }));
    }
    found
}

/// The names that the `use` declarations of a file import from this crate's root or from another crate of the
/// workspace, each with its crate and top-level module.
fn imported_types<'a>(source: &Source<'a>) -> BTreeSet<(&'a str, &'a str, &'a str)> {
    let tokens = tokens(source.text);
    let mut found = BTreeSet::new();
    let mut rest = &tokens[..];
    while let Some(at) = rest.iter().position(|it| *it == "use") {
        rest = &rest[at + 1..];
        let (krate, tree) = match rest {
            ["crate", "::", tree @ ..] => (source.krate, tree),
            [krate, "::", tree @ ..] if krate.starts_with("muster_") => (&krate["muster_".len()..], tree),
            _ => continue,
        };
        let mut names = BTreeMap::new();
        rest = add_used_names(tree, None, &mut names);
        found.extend(names.into_iter().map(|(name, module)| (krate, module, name)));
    }
    found
}

/// Files and banned words that their identifiers contain, with how often: the sources, and the benchmarks, whose names
/// PROMISES.md has. Tests are left out.
fn banned(tree: &Tree) -> BTreeMap<(&str, String), usize> {
    let sources = sources(tree).into_iter().map(|it| (it.path, it.text));
    let benches =
        tree.under("crates/").filter(|(path, _)| path.contains("/benches/") && path.ends_with(".rs"));
    let mut found = BTreeMap::new();
    for (path, text) in sources.chain(benches) {
        for token in tokens(text) {
            for word in words(token).into_iter().filter(|it| BANNED.contains(&it.as_str())) {
                *found.entry((path, word)).or_default() += 1;
            }
        }
    }
    found
}

/// `set`, `key` and `2` of `setKey_2`, and of `SetKey_2`.
fn words(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut after_lowercase = false;
    for it in identifier.chars() {
        if it == '_' || (it.is_uppercase() && after_lowercase) {
            words.push(String::new());
        }
        after_lowercase = it.is_lowercase() || it.is_numeric();
        if it != '_' {
            words.last_mut().expect("there is one").extend(it.to_lowercase());
        }
    }
    words
}

/// For each crate, its top-level modules, and the other top-level modules that each imports.
fn imports(tree: &Tree) -> BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> {
    let sources = sources(tree);
    let mut imports: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for source in &sources {
        if let Some(top) = source.module.first().filter(|it| **it != "bin") {
            imports.entry(source.krate).or_default().entry(top).or_default();
        }
    }
    let mut imported_by_root: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for source in sources.iter().filter(|it| it.module.is_empty()) {
        imported_by_root.entry(source.krate).or_default().extend(used_names(source));
    }
    for source in &sources {
        let Some(top) = source.module.first() else { continue };
        let Some(modules) = imports.get_mut(source.krate) else { continue };
        let known: BTreeSet<&str> = modules.keys().copied().collect();
        // A module may also import a name that the crate's root imports from another module.
        let resolve = |name| match known.get(name) {
            Some(module) => Some(*module),
            None => known.get(imported_by_root.get(source.krate)?.get(name)?).copied(),
        };
        let imported = names_at_the_root(source).into_iter().filter_map(resolve).filter(|it| it != top);
        modules.entry(top).or_default().extend(imported);
    }
    imports
}

/// The names that the `use` declarations of a crate's root bring into scope, each with the first segment of its path.
fn used_names<'a>(root: &Source<'a>) -> BTreeMap<&'a str, &'a str> {
    let tokens = tokens(root.text);
    let mut names = BTreeMap::new();
    let mut rest = &tokens[..];
    while let Some(at) = rest.iter().position(|it| *it == "use") {
        rest = &rest[at + 1..];
        rest = add_used_names(rest, None, &mut names);
    }
    names
}

/// Adds the names of a use tree, such as `a::{b, c as d}`, and returns the tokens after it. `first` is the first segment
/// of the path before the tree.
fn add_used_names<'a, 'b>(
    tree: &'b [&'a str],
    first: Option<&'a str>,
    names: &mut BTreeMap<&'a str, &'a str>,
) -> &'b [&'a str] {
    match tree {
        ["{", rest @ ..] => {
            let mut rest = rest;
            while !matches!(rest, [] | ["}", ..]) {
                rest = add_used_names(rest, first, names);
                rest = rest.strip_prefix(&[","]).unwrap_or(rest);
            }
            rest.get(1..).unwrap_or_default()
        }
        ["crate" | "self", "::", rest @ ..] => add_used_names(rest, first, names),
        [segment, "::", rest @ ..] => add_used_names(rest, first.or(Some(*segment)), names),
        [segment, "as", name, rest @ ..] => {
            names.insert(*name, first.unwrap_or(*segment));
            rest
        }
        [name, rest @ ..] => {
            names.insert(*name, first.unwrap_or(*name));
            rest
        }
        [] => &[],
    }
}

/// The imports between the layers of a crate that are not from a higher layer to a lower one.
fn imports_against_layers(tree: &Tree, krate: &str, layers: &[&[&str]]) -> Vec<String> {
    let rank = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let imports = imports(tree).remove(krate).unwrap_or_default();
    let missing = layers.iter().copied().flatten().filter(|it| !imports.contains_key(*it));
    let mut problems: Vec<String> = missing.map(|it| format!("{krate} has no module {it}")).collect();
    for (module, imported) in &imports {
        let Some(own) = rank(module) else { continue };
        let against = imported.iter().filter(|it| rank(it).is_some_and(|other| other <= own));
        problems
            .extend(against.map(|it| format!("{krate}: {module} imports {it}, which is not a lower layer")));
    }
    problems
}

/// For each crate, the top-level modules that import each other in a circle.
fn in_cycles(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let mut cycles = BTreeMap::new();
    for (krate, modules) in imports(tree) {
        let is_in_cycle = |module: &str| reached_from(module, &modules).contains(module);
        let found: Vec<String> =
            modules.keys().filter(|it| is_in_cycle(it)).map(|it| (*it).to_owned()).collect();
        if !found.is_empty() {
            cycles.insert(krate.to_owned(), found);
        }
    }
    cycles
}

/// What can be reached from a module in one import or more.
fn reached_from<'a>(module: &str, imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = imports.get(module).into_iter().flatten().copied().collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(imports.get(next).into_iter().flatten());
        }
    }
    reached
}

/// The first names of all paths that begin at the crate's root: with `crate::`, or with enough of `super::`.
fn names_at_the_root<'a>(source: &Source<'a>) -> Vec<&'a str> {
    let tokens = tokens(source.text);
    let mut names = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut supers = 0;
        while tokens.get(at) == Some(&"super") && tokens.get(at + 1) == Some(&"::") {
            supers += 1;
            at += 2;
        }
        let is_root = match tokens.get(at) {
            Some(&"crate") if tokens.get(at + 1) == Some(&"::") => {
                at += 2;
                true
            }
            _ => 0 < supers && supers == source.module.len(),
        };
        if is_root {
            names.extend(first_names(&tokens[at..]));
        }
        at += 1;
    }
    names
}

/// `a` of `a::b`; `a` and `b` of `{a::c, b}`.
fn first_names<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    if tokens.first() != Some(&"{") {
        return tokens.first().copied().into_iter().collect();
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut is_first = true;
    for token in tokens {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => is_first = true,
            name if is_first && depth == 1 => {
                names.push(name);
                is_first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Identifiers, `::` and single other characters, without comments and literals.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => string_length(rest),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#\"") => raw_string_length(rest),
            '\'' => char_length(rest),
            it if it.is_alphabetic() || it == '_' => {
                let length = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
                found.push(&rest[..length]);
                length
            }
            it if it.is_whitespace() => it.len_utf8(),
            it => {
                let length = if rest.starts_with("::") { 2 } else { it.len_utf8() };
                found.push(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    found
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, it) in text.char_indices().skip(1) {
        match it {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|it| *it == '#').count();
    let begin = 2 + hashes;
    let end = format!("\"{}", "#".repeat(hashes));
    text[begin..].find(&end).map_or(text.len(), |it| begin + it + end.len())
}

/// A character, or the mark of a lifetime.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => text[at + 1..].find('\'').map_or(1, |it| at + 1 + it + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

mod can_fail {
    use super::*;

    #[test]
    fn types_that_share_their_name() {
        let tree = Tree::of(&[
            (
                "crates/a/src/lib.rs",
                "pub struct Line;\nenum Other {}\nimpl X for Other {\n    type Line = u8;\n}\n",
            ),
            (
                "crates/b/src/x.rs",
                "pub(crate) struct Line<S> {\n}\n#[cfg(test)]\nmod tests {\nstruct Other;\n",
            ),
            ("crates/b/src/tests/y.rs", "struct Other;\n"),
            ("crates/b/src/lib.rs", "#[cfg(test)]\nmod stage;\ntype Plain = u8;\n"),
            ("crates/b/src/stage.rs", "struct Other;\n"),
        ]);
        assert_eq!(shared_percent(&tree), 50);
        assert_eq!(
            above("types", 57, 56, Vec::new()),
            ["types: 57, and at most 56 are allowed; docs/glossary.md has the names"]
        );
        assert!(above("types", 56, 56, Vec::new()).is_empty());
    }

    #[test]
    fn type_names_that_a_crate_declares_twice() {
        let tree = Tree::of(&[
            ("crates/a/src/x.rs", "pub struct Line;\nstruct Pod;\n"),
            ("crates/a/src/y.rs", "enum Line {}\nstruct Pod;\n"),
            ("crates/b/src/lib.rs", "struct Line;\n"),
        ]);
        assert_eq!(declared_twice(&tree), ["a: Line is declared in crates/a/src/x.rs, crates/a/src/y.rs"]);
    }

    #[test]
    fn names_of_several_types_that_are_imported_from_another_module() {
        let tree = Tree::of(&[
            ("crates/a/src/x/facts.rs", "pub struct Pod;\n"),
            ("crates/a/src/x/mod.rs", "use crate::x::facts::Pod;\nuse k8s_openapi::api::Node;\n"),
            ("crates/a/src/y.rs", "pub struct Pod;\nuse crate::x::{self, facts};\n"),
            ("crates/a/src/z.rs", "use crate::{y, x::facts::{Other, Pod}};\n"),
            ("crates/b/src/lib.rs", "use muster_a::y::Pod;\nuse muster_c::z::Pod;\n"),
            ("crates/c/src/z.rs", "pub struct Pod;\n"),
        ]);
        assert_eq!(
            unqualified(&tree),
            [
                "crates/a/src/z.rs imports Pod: write it with its module, as in a::x",
                "crates/b/src/lib.rs imports Pod: write it with its module, as in a::y",
            ]
        );
    }

    #[test]
    fn identifiers_with_banned_words() {
        let code = "// a door\nfn open_door() {\n    let Doors = \"door\"; lookup(); outdoor; let c = '\\''; doer()\n}\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", code),
            ("crates/a/tests/x.rs", "fn door() {}\n"),
            ("crates/a/benches/x.rs", "fn rooms() {}\n"),
        ]);
        let found = [("doer", 1), ("door", 1), ("doors", 1)];
        let found = found.map(|(word, count)| (("crates/a/src/lib.rs", word.to_owned()), count));
        let in_bench = (("crates/a/benches/x.rs", "rooms".to_owned()), 1);
        assert_eq!(banned(&tree), found.into_iter().chain([in_bench]).collect());
    }

    #[test]
    fn layers_that_import_higher_layers() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod high;\nmod low;\nmod side;\nmod other;\n"),
            ("crates/a/src/high.rs", "use crate::{low, side, other};\n"),
            ("crates/a/src/low.rs", "use crate::side;\nuse crate::other;\n"),
            ("crates/a/src/side.rs", "use super::high::High;\n"),
            ("crates/a/src/other.rs", "use crate::high;\n"),
        ]);
        assert_problems(
            imports_against_layers(&tree, "a", &[&["high"], &["low", "side"], &["gone"]]),
            &[
                "a has no module gone",
                "a: low imports side, which is not a lower layer",
                "a: side imports high, which is not a lower layer",
            ],
        );
    }

    #[test]
    fn modules_that_import_each_other() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod one;\nmod two;\nmod three;\nmod four;\n"),
            ("crates/a/src/one.rs", "use crate::{\n    two::{Two, three},\n    four,\n};\n"),
            ("crates/a/src/two/mod.rs", "// crate::four\n"),
            ("crates/a/src/two/inner.rs", "fn f() { super::super::three::g() }\n"),
            ("crates/a/src/three.rs", "use super::one::One;\n"),
            ("crates/a/src/four.rs", "use self::three;\n"),
        ]);
        let re_exported = Tree::of(&[
            (
                "crates/b/src/lib.rs",
                "mod one;\nmod two;\nmod three;\npub use crate::one::{inner::A, B as C};\nuse two::D;\nuse std::three;\n",
            ),
            ("crates/b/src/one.rs", "use crate::{D, three};\n"),
            ("crates/b/src/two.rs", "use crate::C;\n"),
            ("crates/b/src/three.rs", "use super::Unknown;\n"),
        ]);
        assert_eq!(
            in_cycles(&re_exported),
            BTreeMap::from([("b".to_owned(), ["one", "two"].map(str::to_owned).to_vec())])
        );
        let found = in_cycles(&tree);
        let modules = ["one", "three", "two"].map(str::to_owned).to_vec();
        assert_eq!(found, BTreeMap::from([("a".to_owned(), modules)]));
        assert_eq!(
            cycles_above(found.clone(), &[("a", 2)]),
            ["a: 3 modules in import cycles, at most 2: one, three, two"]
        );
        assert!(cycles_above(found, &[("a", 3)]).is_empty());
    }
}
