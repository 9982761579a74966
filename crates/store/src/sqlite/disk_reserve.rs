//! The disk reserve: a file that occupies disk space. On a full disk the file is shortened step by step, so that
//! objects can still be deleted.
//!
//! The blocks of the database file are allocated before a commit is acknowledged, so that a checkpoint of the
//! write-ahead log succeeds on a full disk. After the checkpoint, SQLite reuses the space of the write-ahead log.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

/// Maximum size of the reserve in bytes. This is enough to delete several of the largest objects or thousands of small
/// objects on a full disk. A delete writes only a few pages to the write-ahead log, except that a delete of an object
/// with finalizers first writes the whole object with its deletion timestamp.
const RESERVE_BYTES_MAX: u64 = 8 << 20;

/// The reserve is at most the size of the file system divided by this number.
const RESERVE_FILE_SYSTEM_DIVISOR: u64 = 16;

/// Number of bytes by which the reserve is shortened in one step: the size of two of the largest objects.
const RELEASE_STEP_BYTES: u64 = 3 << 20;

/// Number of bytes by which the allocated blocks of the database file grow at a time, so that most commits need not
/// allocate blocks.
const ALLOCATION_STEP_BYTES: u64 = 1 << 20;

/// Minimum time between two attempts to refill the reserve, and between a release and the next attempt.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps disk space available for deletes on a full disk. It has a reserve file beside the database, and allocates
/// blocks of the database file before they are needed.
#[derive(Debug)]
pub(super) struct DiskReserve {
    file: File,
    /// Target size of the reserve file in bytes.
    target_bytes: u64,
    /// Current size of the reserve file in bytes.
    held_bytes: u64,
    /// Time of the last attempt to refill the reserve, or of the last release of a piece.
    last_attempt: Instant,
    /// The database file, open for allocating blocks.
    database: File,
    /// Length in bytes up to which blocks of the database file are allocated. `u64::MAX` if the file system does not
    /// support `fallocate`.
    allocated_bytes: u64,
}

impl DiskReserve {
    /// Opens the reserve of a database. If the disk is full now, the reserve is filled later, because a server must
    /// start even on a full disk.
    pub(super) fn open(database: &Path) -> io::Result<Self> {
        let file = muster_files::open_private_file(&reserve_path(database))?;
        let held_bytes = file.metadata()?.len();
        let found = fstatvfs(&file)?;
        let target_bytes = (found.f_blocks.saturating_mul(found.f_frsize) / RESERVE_FILE_SYSTEM_DIVISOR)
            .min(RESERVE_BYTES_MAX);
        let database = OpenOptions::new().write(true).open(database)?;
        let mut reserve = Self {
            file,
            target_bytes,
            held_bytes,
            last_attempt: Instant::now(),
            database,
            allocated_bytes: 0,
        };
        reserve.refill_reserve();
        Ok(reserve)
    }

    /// Returns the target size of the reserve file in bytes.
    pub(super) fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    /// Refills the reserve if it is smaller than its target size, with at most one attempt per `REFILL_INTERVAL`.
    /// Returns whether the reserve has its target size.
    pub(super) fn ensure_full_size(&mut self) -> bool {
        if self.held_bytes < self.target_bytes && REFILL_INTERVAL <= self.last_attempt.elapsed() {
            self.last_attempt = Instant::now();
            self.refill_reserve();
        }
        self.target_bytes <= self.held_bytes
    }

    /// Shortens the reserve by `RELEASE_STEP_BYTES`. Returns `false` if the reserve is already empty or cannot be
    /// shortened.
    pub(super) fn release_piece(&mut self) -> bool {
        if self.held_bytes == 0 {
            return false;
        }
        self.last_attempt = Instant::now();
        self.held_bytes = self.held_bytes.saturating_sub(RELEASE_STEP_BYTES);
        self.file.set_len(self.held_bytes).is_ok()
    }

    /// Allocates blocks for a database file of `bytes` bytes, without changing the length of the file. Does nothing if
    /// the file system does not support `fallocate`.
    pub(super) fn allocate_database(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.allocated_bytes {
            return Ok(());
        }
        let allocate = |to: u64| {
            let (from, flags) = (self.allocated_bytes, FallocateFlags::KEEP_SIZE);
            fallocate(&self.database, flags, from, to - from).map(|()| to)
        };
        self.allocated_bytes =
            match allocate(bytes.next_multiple_of(ALLOCATION_STEP_BYTES)).or_else(|_| allocate(bytes)) {
                Ok(allocated) => allocated,
                // The file system does not support fallocate: a checkpoint may fail on a full disk.
                Err(Errno::OPNOTSUPP) => u64::MAX,
                Err(error) => return Err(error.into()),
            };
        Ok(())
    }

    /// Updates `allocated_bytes` after a checkpoint, which truncates the database file after its last page and so frees
    /// the blocks after that page.
    pub(super) fn update_after_checkpoint(&mut self) {
        if self.allocated_bytes != u64::MAX {
            self.allocated_bytes =
                self.database.metadata().map_or(0, |it| it.len().min(self.allocated_bytes));
        }
    }

    /// Restores the target size of the reserve if at least twice the missing space is free on the disk. Ignores errors.
    /// If the file system does not support `fallocate`, lowers the target size to the current size instead.
    fn refill_reserve(&mut self) {
        let missing = self.target_bytes.saturating_sub(self.held_bytes);
        let free = |found: rustix::fs::StatVfs| found.f_bavail.saturating_mul(found.f_frsize);
        if missing == 0 || fstatvfs(&self.file).map_or(0, free) < 2 * missing {
            return;
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, self.target_bytes) {
            Ok(()) => self.held_bytes = self.target_bytes,
            // The file system does not support fallocate: there is no reserve.
            Err(Errno::OPNOTSUPP) => self.target_bytes = self.held_bytes,
            Err(_) => {}
        }
    }
}

/// Returns the path of the reserve file: the file `reserve` beside the database.
fn reserve_path(database: &Path) -> PathBuf {
    database.with_file_name("reserve")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const NO_FALLOCATE: &str = "the file system of temporary files does not support fallocate";

    #[test]
    fn the_reserve_is_released_in_pieces_and_refilled() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("muster.db"), "").unwrap();
        let mut reserve = DiskReserve::open(&dir.path().join("muster.db")).unwrap();
        assert_ne!(reserve.target_bytes, 0, "{NO_FALLOCATE}");
        let len = || std::fs::metadata(dir.path().join("reserve")).unwrap().len();
        assert!(reserve.ensure_full_size());
        assert_eq!(len(), reserve.target_bytes);
        assert!(reserve.release_piece() && !reserve.ensure_full_size());
        assert_eq!(len(), reserve.target_bytes.saturating_sub(RELEASE_STEP_BYTES));
        while reserve.release_piece() {}
        assert_eq!(len(), 0);
        reserve.last_attempt -= REFILL_INTERVAL;
        assert!(reserve.ensure_full_size());
        assert_eq!(len(), reserve.target_bytes);
    }

    #[test]
    fn blocks_are_allocated_before_the_database_file_grows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("muster.db");
        std::fs::write(&path, "").unwrap();
        let mut reserve = DiskReserve::open(&path).unwrap();
        reserve.allocate_database(5000).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.len(), 0);
        assert_ne!(reserve.allocated_bytes, u64::MAX, "{NO_FALLOCATE}");
        assert!(5000 <= found.blocks() * 512, "{} blocks", found.blocks());
        reserve.update_after_checkpoint();
        assert_eq!(reserve.allocated_bytes, 0);
    }
}
