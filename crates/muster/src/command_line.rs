//! The flags on the command line of this process, for the command lines of other processes.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

/// Returns the flags of `A` that are given on the command line and whose ID `is_selected` accepts, in the order in which
/// `A` defines them. `matches` are those of the subcommand. Paths are absolute.
pub(crate) fn find_given_flags<A: Args>(
    matches: &ArgMatches,
    is_selected: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let mut flags = Vec::new();
    for arg in A::augment_args(Command::new("")).get_arguments() {
        let id = arg.get_id().as_str();
        let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let Some(name) = arg.get_long().filter(|_| is_given && is_selected(id)) else {
            continue;
        };
        if !arg.get_action().takes_values() {
            flags.push(format!("--{name}").into());
            continue;
        }
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let values = matches.get_raw(id).into_iter().flatten().map(|it| match std::path::absolute(it) {
            Ok(path) if is_path => path.into_os_string(),
            _ => it.to_owned(),
        });
        let values: Vec<OsString> = values.collect();
        let values = match arg.get_value_delimiter() {
            Some(delimiter) => vec![values.join(&*OsString::from(delimiter.to_string()))],
            None => values,
        };
        for value in values {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(value);
            flags.push(flag);
        }
    }
    flags
}

/// Formats a text as a shell word, quoted if necessary.
pub(crate) fn quote_for_shell(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%,=".contains(it);
    let is_word = !text.is_empty() && text.chars().all(is_plain);
    if is_word { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_other_characters_are_quoted() {
        assert_eq!(quote_for_shell("--etcd=https://10.0.0.1:2379,x"), "--etcd=https://10.0.0.1:2379,x");
        assert_eq!(quote_for_shell("--etcd=https://[::1]:2379"), "'--etcd=https://[::1]:2379'");
        assert_eq!(quote_for_shell("--user=it's $me"), r"'--user=it'\''s $me'");
        assert_eq!(quote_for_shell(""), "''");
    }
}
