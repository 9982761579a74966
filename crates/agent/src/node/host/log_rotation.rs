//! Rotation of container logs.
//!
//! File names are the kubelet's. `0.log` is being written, `0.log.20060102-150405` is the last rotated file, and older
//! rotated files end in `.gz`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::runtime::{Runtime, label, v1};

/// Format of the timestamp that is appended to the name of a rotated log.
const ROTATION_TIME_FORMAT: &str = "%Y%m%d-%H%M%S";

/// Rotates the logs of running containers that are larger than `bytes_max`. Keeps at most `files_max` files per log,
/// including the current file. Values below 2 count as 2. `dir` has one directory for each pod, and in it one directory
/// for each container.
pub(super) async fn rotate_logs<R: Runtime>(runtime: &R, dir: &Path, bytes_max: u64, files_max: u16) {
    let dir = dir.to_owned();
    let large =
        tokio::task::spawn_blocking(move || find_large_logs(&dir, bytes_max)).await.unwrap_or_default();
    if large.is_empty() {
        return;
    }
    let containers = match runtime.list_containers(None).await {
        Ok(containers) => containers,
        Err(error) => {
            tracing::warn!(%error, "cannot rotate large logs");
            return;
        }
    };
    for log in large {
        // The log of a container that has ended does not grow.
        let Some(id) = containers.iter().find(|it| writes_log(it, &log)).map(|it| it.id.clone()) else {
            continue;
        };
        let path = log.path.clone();
        let kept = usize::from(files_max).saturating_sub(2);
        let rotation = tokio::task::spawn_blocking(move || {
            prune_rotated_logs(&path, kept)?;
            rename_log(&path)
        });
        let rotated = match rotation.await {
            Ok(Ok(rotated)) => rotated,
            Ok(Err(error)) => {
                tracing::warn!(path = %log.path.display(), %error, "cannot rotate a log");
                continue;
            }
            Err(_) => continue,
        };
        if let Err(error) = runtime.reopen_log(&id).await {
            tracing::warn!(path = %log.path.display(), %error, "the runtime cannot reopen the log");
            // The runtime still writes to the renamed file.
            let _ = fs::rename(&rotated, &log.path);
        }
    }
}

/// The log file of one container instance, with the pod UID, container name and attempt from its path.
#[derive(Debug, PartialEq, Eq)]
struct ContainerLogFile {
    path: PathBuf,
    pod_uid: String,
    /// Name of the container in the pod spec.
    container: String,
    /// Number of earlier instances of the container.
    attempt: u32,
}

/// Whether the container is running and writes to this log file.
fn writes_log(container: &v1::Container, log: &ContainerLogFile) -> bool {
    container.state == v1::ContainerState::ContainerRunning as i32
        && container.labels.get(label::POD_UID).is_some_and(|it| *it == log.pod_uid)
        && container.metadata.as_ref().is_some_and(|it| it.name == log.container && it.attempt == log.attempt)
}

/// Finds the current logs below `dir` that are larger than `bytes_max`. Symbolic links are not followed.
fn find_large_logs(dir: &Path, bytes_max: u64) -> Vec<ContainerLogFile> {
    let dirs = |dir: &Path| {
        let is_dir = |it: &fs::DirEntry| it.file_type().is_ok_and(|it| it.is_dir());
        dir_entries(dir).unwrap_or_default().into_iter().filter(is_dir)
    };
    let mut large = Vec::new();
    for pod in dirs(dir) {
        let pod_name = pod.file_name();
        let Some((_, uid)) = pod_name.to_str().and_then(|it| it.rsplit_once('_')) else { continue };
        for container in dirs(&pod.path()) {
            for log in dir_entries(&container.path()).unwrap_or_default() {
                let name = log.file_name();
                let attempt = name.to_str().and_then(|it| it.strip_suffix(".log")?.parse().ok());
                let (Some(attempt), Ok(found)) = (attempt, log.metadata()) else { continue };
                if found.is_file() && bytes_max < found.len() {
                    large.push(ContainerLogFile {
                        path: log.path(),
                        pod_uid: uid.to_owned(),
                        container: container.file_name().to_string_lossy().into_owned(),
                        attempt,
                    });
                }
            }
        }
    }
    large
}

/// Removes all but the newest `kept` rotated files of a log, and compresses those that are kept. Also removes the
/// leftovers of interrupted compressions. The current log `log` is not touched.
fn prune_rotated_logs(log: &Path, kept: usize) -> io::Result<()> {
    let mut rotated = rotated_files(log)?;
    rotated.retain(|it| !it.to_string_lossy().ends_with(".tmp") || fs::remove_file(it).is_err());
    // If both exist, the compressed file is complete, because it gets its name last.
    let compressed: BTreeSet<PathBuf> = rotated
        .iter()
        .filter(|it| it.extension().is_some_and(|it| it == "gz"))
        .map(|it| it.with_extension(""))
        .collect();
    rotated.retain(|it| !compressed.contains(it) || fs::remove_file(it).is_err());
    // The order by name is the order by time.
    rotated.sort();
    let excess = rotated.len().saturating_sub(kept);
    for old in rotated.drain(..excess) {
        fs::remove_file(old)?;
    }
    for path in rotated.iter().filter(|it| it.extension().is_none_or(|it| it != "gz")) {
        compress_log(path)?;
    }
    Ok(())
}

/// Replaces a rotated log with a gzip file.
fn compress_log(path: &Path) -> io::Result<()> {
    let with = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let temporary = with(".tmp");
    let mut encoder = GzEncoder::new(File::create(&temporary)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&temporary, with(".gz"))?;
    fs::remove_file(path)
}

/// Renames a log to its name as a rotated log, and returns the new path.
fn rename_log(log: &Path) -> io::Result<PathBuf> {
    let now = jiff::Timestamp::now().strftime(ROTATION_TIME_FORMAT);
    let rotated = PathBuf::from(format!("{}.{now}", log.display()));
    fs::rename(log, &rotated)?;
    Ok(rotated)
}

/// Lists the rotated files of a log and the temporary files of their compression, in no particular order.
fn rotated_files(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|it| it.to_str())) else {
        return Ok(Vec::new());
    };
    let is_rotated = |it: &fs::DirEntry| {
        it.file_name().to_str().and_then(|it| it.strip_prefix(name)).is_some_and(|it| it.starts_with('.'))
    };
    Ok(dir_entries(dir)?.into_iter().filter(is_rotated).map(|it| it.path()).collect())
}

/// Lists the entries of a directory. A missing directory, or a path that is not a directory, has no entries.
fn dir_entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The paths of all files and directories in a directory.
    fn listed(root: &Path) -> String {
        let mut all: Vec<String> = Vec::new();
        let mut waiting = vec![root.to_owned()];
        while let Some(dir) = waiting.pop() {
            for entry in dir_entries(&dir).unwrap() {
                let path = entry.path();
                all.push(path.strip_prefix(root).unwrap().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    waiting.push(path);
                }
            }
        }
        all.sort();
        all.join("\n")
    }

    #[test]
    fn old_logs_are_compressed_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "0.log",
            "0.log.20260101-000000.gz",
            "0.log.20260102-000000.gz",
            "0.log.20260103-000000",
            "0.log.20260103-000000.gz",
            "0.log.20260104-000000",
            "0.log.20260104-000000.tmp",
            "1.log",
        ] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        prune_rotated_logs(&dir.path().join("0.log"), 3).unwrap();
        expect_test::expect![[r#"
            0.log
            0.log.20260102-000000.gz
            0.log.20260103-000000.gz
            0.log.20260104-000000.gz
            1.log"#]]
        .assert_eq(&listed(dir.path()));
        let compressed = File::open(dir.path().join("0.log.20260104-000000.gz")).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "0.log.20260104-000000");
        let rotated = rename_log(&dir.path().join("0.log")).unwrap();
        assert!(!dir.path().join("0.log").exists() && rotated.exists());
    }

    #[test]
    fn large_logs_are_found_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let log = |pod: &str| dir.path().join(pod).join("main/0.log");
        for pod in ["default_a_uid-1", "default_b_uid-2"] {
            fs::create_dir_all(log(pod).parent().unwrap()).unwrap();
            fs::write(log(pod), "a line").unwrap();
        }
        fs::write(dir.path().join("a file"), "not ours").unwrap();
        symlink(log("default_a_uid-1"), dir.path().join("default_b_uid-2/main/1.log")).unwrap();
        assert_eq!(find_large_logs(dir.path(), 10), []);
        let mut large: Vec<_> = find_large_logs(dir.path(), 5).into_iter().map(|it| it.pod_uid).collect();
        large.sort();
        assert_eq!(large, ["uid-1", "uid-2"]);
    }
}
