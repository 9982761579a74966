//! Disk space that is set aside while there is some: on a full disk it is given back, a piece at a time, so that objects can be deleted.
//!
//! And the space of the database file itself, which is allocated before a commit is acknowledged: a checkpoint finds room on a full
//! disk, and afterwards the write-ahead log is written from its start again.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

/// On a full disk a delete writes a few pages to the write-ahead log, and marks an object with a finalizer by writing it once more:
/// this is room for the largest a few times, and for thousands of small ones.
const BYTES_MAX: u64 = 8 << 20;

/// On a small file system it is not more than this part.
const SHARE: u64 = 16;

/// What is given back at once: two of the largest objects.
const PIECE_BYTES: u64 = 3 << 20;

/// The database file is allocated in steps of this, so that most commits allocate nothing.
const STEP_BYTES: u64 = 1 << 20;

/// After the disk was full, it is looked at this often whether there is room again.
const REFILL_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    /// As it should be.
    bytes: u64,
    /// As it is.
    held: u64,
    tried: Instant,
    database: File,
    /// How much of the database file has its blocks.
    allocated: u64,
}

impl Reserve {
    /// A reserve that cannot be set aside now is set aside later: a full disk does not keep a server from starting.
    pub(super) fn open(beside: &Path) -> io::Result<Self> {
        let file = muster_files::open_private(&path(beside))?;
        let held = file.metadata()?.len();
        let found = fstatvfs(&file)?;
        let bytes = (found.f_blocks.saturating_mul(found.f_frsize) / SHARE).min(BYTES_MAX);
        let database = OpenOptions::new().write(true).open(beside)?;
        let mut reserve = Self { file, bytes, held, tried: Instant::now(), database, allocated: 0 };
        reserve.fill();
        Ok(reserve)
    }

    /// How much it should be.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether all of it is there. What was given back is set aside again once there is twice as much room.
    pub(super) fn is_whole(&mut self) -> bool {
        if self.held < self.bytes && REFILL_EVERY <= self.tried.elapsed() {
            self.tried = Instant::now();
            self.fill();
        }
        self.bytes <= self.held
    }

    /// Gives a piece of it back to the file system. `false` if nothing is left.
    pub(super) fn release(&mut self) -> bool {
        if self.held == 0 {
            return false;
        }
        self.tried = Instant::now();
        self.held = self.held.saturating_sub(PIECE_BYTES);
        self.file.set_len(self.held).is_ok()
    }

    /// Has the file system provide for a database file of this length; the length itself stays as it is.
    pub(super) fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.allocated {
            return Ok(());
        }
        let allocate = |to: u64| {
            let (from, flags) = (self.allocated, FallocateFlags::KEEP_SIZE);
            fallocate(&self.database, flags, from, to - from).map(|()| to)
        };
        self.allocated = match allocate(bytes.next_multiple_of(STEP_BYTES)).or_else(|_| allocate(bytes)) {
            Ok(allocated) => allocated,
            // Where the file system cannot, a checkpoint may find no room.
            Err(Errno::OPNOTSUPP) => u64::MAX,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    /// A checkpoint cuts the database file off behind its last page.
    pub(super) fn checkpointed(&mut self) {
        if self.allocated != u64::MAX {
            self.allocated = self.database.metadata().map_or(0, |it| it.len().min(self.allocated));
        }
    }

    fn fill(&mut self) {
        let missing = self.bytes.saturating_sub(self.held);
        let free = |found: rustix::fs::StatVfs| found.f_bavail.saturating_mul(found.f_frsize);
        if missing == 0 || fstatvfs(&self.file).map_or(0, free) < 2 * missing {
            return;
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => self.held = self.bytes,
            // Not all file systems can: then there is nothing to give back, and nothing to wait for.
            Err(Errno::OPNOTSUPP) => self.bytes = self.held,
            Err(_) => {}
        }
    }
}

fn path(beside: &Path) -> PathBuf {
    beside.with_file_name("reserve")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn it_is_given_back_in_pieces_and_set_aside_again() {
        let dir = std::env::temp_dir().join(format!("muster-reserve-{}", std::process::id()));
        muster_files::create_private_dir(&dir).unwrap();
        std::fs::write(dir.join("muster.db"), "").unwrap();
        let mut reserve = Reserve::open(&dir.join("muster.db")).unwrap();
        if reserve.bytes == 0 {
            return;
        }
        let len = || std::fs::metadata(dir.join("reserve")).unwrap().len();
        assert!(reserve.is_whole());
        assert_eq!(len(), reserve.bytes);
        assert!(reserve.release() && !reserve.is_whole());
        assert_eq!(len(), reserve.bytes.saturating_sub(PIECE_BYTES));
        while reserve.release() {}
        assert_eq!(len(), 0);
        reserve.tried -= REFILL_EVERY;
        assert!(reserve.is_whole());
        assert_eq!(len(), reserve.bytes);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_database_file_has_its_blocks_before_it_grows() {
        let dir = std::env::temp_dir().join(format!("muster-allocated-{}", std::process::id()));
        muster_files::create_private_dir(&dir).unwrap();
        let path = dir.join("muster.db");
        std::fs::write(&path, "").unwrap();
        let mut reserve = Reserve::open(&path).unwrap();
        reserve.allocate(5000).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.len(), 0);
        if reserve.allocated != u64::MAX {
            assert!(5000 <= found.blocks() * 512, "{} blocks", found.blocks());
            reserve.checkpointed();
            assert_eq!(reserve.allocated, 0);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
