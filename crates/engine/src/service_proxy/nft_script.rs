//! Writes the script for `nft` that creates or updates the nftables table.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::nft_table::{NftSet, NftTable};

/// Family (`ip`) and name (`muster`) of the nftables table. It contains all rules of the service proxy, and no others.
const TABLE_NAME: &str = "ip muster";

/// Maximum number of set elements on one line of the script. A low number keeps error messages of `nft` short, because
/// they repeat the whole line.
const ELEMENTS_PER_LINE_MAX: usize = 256;

impl NftTable {
    /// Returns the `nft` script that replaces the whole table in one transaction.
    pub fn replacement_script(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "add table {TABLE_NAME}\ndelete table {TABLE_NAME}\nadd table {TABLE_NAME}");
        self.write_changes(&Self::default(), &mut out);
        out
    }

    /// Returns the `nft` script with only the changes from the table `before` to this table, which `nft` makes in one
    /// transaction. It is empty if nothing changes. Unchanged sets stay, so that clients keep their session affinity.
    pub fn incremental_script(&self, before: &Self) -> String {
        let mut out = String::new();
        self.write_changes(before, &mut out);
        out
    }

    /// Writes the commands that change the table from `before` to this table. A rule that refers to a set or chain is
    /// deleted before the set or chain, and added after it.
    fn write_changes(&self, before: &Self, out: &mut String) {
        let is_same_kind = |one: &NftSet, other: &NftSet| one.declaration == other.declaration;
        for (name, set) in &before.sets {
            // A set with another declaration is deleted and added again below.
            let now = self.sets.get(name).filter(|it| is_same_kind(it, set));
            let is_unchanged =
                |key: &String, value: &String| now.is_some_and(|it| it.elements.get(key) == Some(value));
            let gone = set.elements.iter().filter(|(key, value)| !is_unchanged(key, value));
            write_elements(out, "delete", name, gone.map(|(key, _)| key.clone()).collect());
        }
        let changed: Vec<_> =
            self.chains.iter().filter(|(name, chain)| before.chains.get(*name) != Some(chain)).collect();
        let gone: Vec<_> = before.chains.keys().filter(|name| !self.chains.contains_key(*name)).collect();
        for name in changed.iter().map(|(name, _)| *name).chain(gone.iter().copied()) {
            if before.chains.contains_key(name) {
                let _ = writeln!(out, "flush chain {TABLE_NAME} {name}");
            }
        }
        for name in gone {
            let _ = writeln!(out, "delete chain {TABLE_NAME} {name}");
        }
        for (name, set) in &before.sets {
            if !self.sets.get(name).is_some_and(|it| is_same_kind(it, set)) {
                let _ = writeln!(out, "delete {} {TABLE_NAME} {name}", nft_set_keyword(set));
            }
        }
        for (name, set) in &self.sets {
            if !before.sets.get(name).is_some_and(|it| is_same_kind(it, set)) {
                let _ = writeln!(
                    out,
                    "add {} {TABLE_NAME} {name} {{ {} }}",
                    nft_set_keyword(set),
                    set.declaration
                );
            }
        }
        for (name, chain) in &changed {
            if !before.chains.contains_key(*name) {
                let hook = if chain.hook.is_empty() {
                    String::new()
                } else {
                    alloc::format!(" {{ {} policy accept; }}", chain.hook)
                };
                let _ = writeln!(out, "add chain {TABLE_NAME} {name}{hook}");
            }
        }
        for (name, chain) in &changed {
            for rule in &chain.rules {
                let _ = writeln!(out, "add rule {TABLE_NAME} {name} {rule}");
            }
        }
        for (name, set) in &self.sets {
            let was = before.sets.get(name).filter(|it| is_same_kind(it, set));
            let existed =
                |key: &String, value: &String| was.is_some_and(|it| it.elements.get(key) == Some(value));
            let new = set.elements.iter().filter(|(key, value)| !existed(key, value));
            let new = new.map(|(key, value)| match set.is_map {
                true => alloc::format!("{key} : {value}"),
                false => key.clone(),
            });
            write_elements(out, "add", name, new.collect());
        }
    }
}

/// Returns the keyword for a set in `nft` commands: `map` or `set`.
fn nft_set_keyword(set: &NftSet) -> &'static str {
    if set.is_map { "map" } else { "set" }
}

/// Writes the commands that add elements to a set or delete them. `verb` is `add` or `delete`.
fn write_elements(out: &mut String, verb: &str, set: &str, elements: Vec<String>) {
    for elements in elements.chunks(ELEMENTS_PER_LINE_MAX) {
        let _ = writeln!(out, "{verb} element {TABLE_NAME} {set} {{ {} }}", elements.join(", "));
    }
}
