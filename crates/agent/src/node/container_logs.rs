//! The log files of a pod's containers, and the links to them that log shippers follow.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::{container, sandbox};
use crate::config::Config;

/// The logs of one pod. Log shippers expect links to all container logs in `/var/log/containers`. The links are
/// relative, so that they do not depend on where `/var/log` is mounted.
pub(super) struct ContainerLogs<'a> {
    pub config: &'a Config,
    pub pod: &'a Pod,
}

impl ContainerLogs<'_> {
    /// Creates the link to the log of one container instance. A failure is only logged. `id` is the container ID.
    pub(super) fn link_log(&self, container: &str, attempt: u32, id: &str) {
        let (name, namespace, uid) = sandbox::pod_ids(self.pod);
        let target = format!("../pods/{namespace}_{name}_{uid}/{}", container::log_path(container, attempt));
        let dir = self.link_dir();
        let linked = fs::create_dir_all(&dir).and_then(|()| symlink(target, self.link_path(container, id)));
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::warn!(
                    namespace,
                    pod = name,
                    container,
                    "cannot link the container's log in {}: {error}",
                    dir.display()
                );
            }
            _ => {}
        }
    }

    /// Removes the log of one container instance, its rotated files and its link. Failures are ignored. `id` is the
    /// container ID.
    pub(super) fn remove_log(&self, container: &str, attempt: u32, id: &str) {
        fs::remove_file(self.link_path(container, id)).ok();
        let log = self.log_dir().join(container::log_path(container, attempt));
        let (Some(dir), Some(file)) = (log.parent(), log.file_name().and_then(|it| it.to_str())) else {
            return;
        };
        for it in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
            if it.file_name().to_str().is_some_and(|it| it == file || it.starts_with(&format!("{file}."))) {
                fs::remove_file(it.path()).ok();
            }
        }
    }

    /// Removes all logs of the pod, the links to them, and the pod's log marker.
    pub(super) fn remove_all_logs(&self) -> Result<(), String> {
        let dir = self.log_dir();
        let removed = remove_links(&self.link_dir(), &dir).and_then(|()| remove_dir_if_exists(&dir));
        removed.map_err(|error| format!("remove {}: {error}", dir.display()))?;
        if let Some(name) = dir.file_name() {
            fs::remove_file(self.config.log_markers_dir().join(name)).ok();
        }
        Ok(())
    }

    fn log_dir(&self) -> PathBuf {
        let (name, namespace, uid) = sandbox::pod_ids(self.pod);
        self.config.log_dir(namespace, name, uid)
    }

    /// Returns the directory of the links to container logs.
    fn link_dir(&self) -> PathBuf {
        self.config.var_log.join("containers")
    }

    /// Returns the path of the link to a container's log. `id` is the container ID.
    fn link_path(&self, container: &str, id: &str) -> PathBuf {
        let (name, namespace, _) = sandbox::pod_ids(self.pod);
        self.link_dir().join(format!("{name}_{namespace}_{container}-{id}.log"))
    }
}

/// Removes all links in `links` that point into the directory `logs`.
fn remove_links(links: &Path, logs: &Path) -> io::Result<()> {
    let Some(name) = logs.file_name() else { return Ok(()) };
    let into = Path::new("../pods").join(name);
    let all = match fs::read_dir(links) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        all => all?,
    };
    for link in all.filter_map(Result::ok) {
        if fs::read_link(link.path()).is_ok_and(|it| it.starts_with(&into)) {
            fs::remove_file(link.path())?;
        }
    }
    Ok(())
}

fn remove_dir_if_exists(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
