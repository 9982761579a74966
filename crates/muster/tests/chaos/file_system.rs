//! A small file system for the data of one member of etcd, which can be made full.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::run;

/// Size of a file system. etcd allocates segments of 64 MiB for its log, one in advance, and keeps five older ones. Beside
/// them are the database, a copy of the database while it is defragmented, and one that another member sends.
const SIZE_BYTES: u64 = 768 << 20;

/// Sizes of the writes that fill a file system: the small one leaves less than a page.
const FILL_BYTES: [usize; 2] = [1 << 20, 512];

/// A tmpfs, which is unmounted on drop. It also ends with the mount namespace of the test.
pub(crate) struct FileSystem {
    dir: PathBuf,
}

impl FileSystem {
    /// Mounts an empty file system on a new directory.
    pub(crate) fn mount(dir: &Path) -> Self {
        fs::create_dir(dir).unwrap();
        let options = format!("size={SIZE_BYTES},mode=700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir));
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes to a file until the file system has no space.
    pub(crate) fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.filler()).unwrap();
        for size in FILL_BYTES {
            let zeros = vec![0; size];
            let full = loop {
                if let Err(error) = file.write_all(&zeros) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        }
    }

    /// Deletes the file with which [`Self::fill`] fills the file system, if there is one.
    pub(crate) fn free(&self) {
        match fs::remove_file(self.filler()) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    fn filler(&self) -> PathBuf {
        self.dir.join("filler")
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.dir).status();
    }
}
