//! Finds the pods that have files on the node's disk. The caller cleans up those that the node does not run (orphans).

use std::collections::BTreeMap;
use std::path::PathBuf;

use muster_api::object_key::ObjectKey;

use crate::config::Config;

/// Finds the pods that have a directory or logs on this node, by UID. The namespace and name come from the marker file
/// that the node keeps for each pod with logs. They are empty for a pod that has only a directory. Entries with an
/// invalid UID are left out.
pub(super) fn pods_on_disk(config: &Config) -> BTreeMap<String, ObjectKey> {
    let names = |dir: PathBuf| {
        let all = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        all.filter_map(|it| it.file_name().into_string().ok())
    };
    let dirs = names(config.root_dir.join("pods")).map(|uid| (uid, ObjectKey::new("", "")));
    let logs = names(config.log_markers_dir()).filter_map(|name| {
        let mut parts = name.splitn(3, '_');
        let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
        Some((uid.to_owned(), ObjectKey::new(namespace, name)))
    });
    dirs.chain(logs).filter(|(uid, _)| is_path_safe_uid(uid)).collect()
}

/// Whether a UID can be part of a path: it has 1 to 128 characters, all of them ASCII letters, digits or hyphens.
pub(super) fn is_path_safe_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.len() <= 128 && uid.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn pods_on_disk_are_found() {
        let root = tempfile::tempdir().unwrap();
        let config = Config { root_dir: root.path().to_owned(), ..crate::config::example() };
        for dir in ["pods/u-1", "pods/u-2", "pods/..u", "logs"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        for name in ["shop_web_u-1", "shop_db_u-3", "no-names", "a_b_../u"] {
            std::fs::write(config.log_markers_dir().join(name.replace('/', "%")), "").unwrap();
        }
        let found = pods_on_disk(&config);
        let lines: Vec<String> = found.iter().map(|(uid, key)| format!("{uid}: {key}")).collect();
        expect![[r#"
            u-1: shop/web
            u-2: /
            u-3: shop/db"#]]
        .assert_eq(&lines.join("\n"));
    }
}
