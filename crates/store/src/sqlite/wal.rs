//! Verifies SQLite's write-ahead log before SQLite reads it.
//!
//! SQLite assumes that the log ends at the first frame with a wrong checksum. This is correct after a crash, which
//! leaves one transaction unfinished. But if the disk has damaged a frame that was synced earlier, SQLite would
//! silently lose all later commits.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Magic number in the header of a write-ahead log whose checksums are computed from little-endian words.
const WAL_MAGIC_LITTLE_ENDIAN: u32 = 0x377f_0682;
/// Magic number in the header of a write-ahead log whose checksums are computed from big-endian words.
const WAL_MAGIC_BIG_ENDIAN: u32 = 0x377f_0683;

/// Length of the header of the write-ahead log in bytes.
const WAL_HEADER_BYTES: usize = 32;
/// Length of the header of each frame in bytes. The content of one database page follows.
const FRAME_HEADER_BYTES: usize = 24;

/// Largest page size of SQLite in bytes.
const PAGE_BYTES_MAX: usize = 65_536;

/// Whether the write-ahead log contains synced transactions that can no longer be read. A missing log is not damaged.
///
/// A transaction begins only after the previous one is synced. If two or more transactions end at or after a frame with
/// a wrong checksum, the first of them was synced, so the log is damaged. Damage to the last transaction cannot be
/// distinguished from a crash.
pub(super) fn is_damaged(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; WAL_HEADER_BYTES];
    if !read_exact_or_end(&mut file, &mut header)? {
        return Ok(false);
    }
    let Some(mut sum) = WalChecksum::from_header(&header) else {
        // The header is synced before any frame, so a file without a header has no commits.
        let mut rest = Vec::new();
        file.take(PAGE_BYTES_MAX as u64).read_to_end(&mut rest)?;
        return Ok(header != [0; WAL_HEADER_BYTES] && rest.iter().any(|it| *it != 0));
    };
    let page_bytes = usize::try_from(read_u32(&header, 8)).unwrap_or(usize::MAX);
    if PAGE_BYTES_MAX < page_bytes {
        return Ok(true);
    }
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let (mut is_whole, mut lost) = (true, 0);
    while read_exact_or_end(&mut file, &mut frame)? {
        // Frames of earlier log generations remain after the end until they are overwritten.
        let is_current = frame[8..16] == header[16..24];
        is_whole = is_whole && is_current && sum.add_and_verify_frame(&frame);
        let ends_transaction = read_u32(&frame, 4) != 0;
        if !is_whole && is_current && ends_transaction {
            lost += 1;
        }
    }
    Ok(1 < lost)
}

/// The running checksum of the write-ahead log, starting with the header.
struct WalChecksum {
    /// Whether checksums are computed from big-endian words.
    is_big_endian: bool,
    /// The two words of the checksum.
    sum: [u32; 2],
}

impl WalChecksum {
    /// Starts the running checksum with the header. Returns `None` if the header has no known magic number, or if its
    /// checksum is wrong.
    fn from_header(header: &[u8; WAL_HEADER_BYTES]) -> Option<Self> {
        let is_big_endian = match read_u32(header, 0) {
            WAL_MAGIC_LITTLE_ENDIAN => false,
            WAL_MAGIC_BIG_ENDIAN => true,
            _ => return None,
        };
        let mut sum = Self { is_big_endian, sum: [0, 0] };
        sum.add_bytes(&header[..24]);
        (sum.sum == [read_u32(header, 24), read_u32(header, 28)]).then_some(sum)
    }

    /// Adds the next frame to the running checksum. Returns whether the checksum in the frame is the same.
    fn add_and_verify_frame(&mut self, frame: &[u8]) -> bool {
        self.add_bytes(&frame[..8]);
        self.add_bytes(&frame[FRAME_HEADER_BYTES..]);
        self.sum == [read_u32(frame, 16), read_u32(frame, 20)]
    }

    /// Adds bytes to the checksum. Their number must be a multiple of eight.
    fn add_bytes(&mut self, bytes: &[u8]) {
        let [mut one, mut two] = self.sum;
        let read =
            |it: [u8; 4]| if self.is_big_endian { u32::from_be_bytes(it) } else { u32::from_le_bytes(it) };
        for pair in bytes.as_chunks::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *pair;
            one = one.wrapping_add(read([a, b, c, d])).wrapping_add(two);
            two = two.wrapping_add(read([e, f, g, h])).wrapping_add(one);
        }
        self.sum = [one, two];
    }
}

/// Returns the big-endian integer at offset `at`.
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |all, it| all << 8 | u32::from(*it))
}

/// Fills `bytes` from the file. Returns `false` if the file has fewer bytes left.
fn read_exact_or_end(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}
