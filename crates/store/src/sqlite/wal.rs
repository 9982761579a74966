//! Verifies SQLite's write-ahead log before SQLite reads it. SQLite treats the first frame with a wrong checksum as the
//! end of the log. That is correct after a crash, which leaves one transaction unfinished. If the disk has damaged
//! frames that were synced earlier, all later commits would be lost silently.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Magic numbers of the log header, one for each byte order of the checksums.
const SUMS_LITTLE: u32 = 0x377f_0682;
const SUMS_BIG: u32 = 0x377f_0683;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Largest page size of SQLite.
const PAGE_BYTES_MAX: usize = 65_536;

/// Whether synced transactions can no longer be read. A transaction begins only after the previous one is synced, so if
/// two or more end at or after a frame with a wrong checksum, the first of them was synced. Damage to the last
/// transaction cannot be distinguished from a crash.
pub(super) fn is_damaged(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut file, &mut header)? {
        return Ok(false);
    }
    let Some(mut sum) = Sum::of_header(&header) else {
        // The header is synced before any frame, so a file without a header has no commits.
        let mut rest = Vec::new();
        file.take(PAGE_BYTES_MAX as u64).read_to_end(&mut rest)?;
        return Ok(header != [0; HEADER_BYTES] && rest.iter().any(|it| *it != 0));
    };
    let page_bytes = usize::try_from(word(&header, 8)).unwrap_or(usize::MAX);
    if PAGE_BYTES_MAX < page_bytes {
        return Ok(true);
    }
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let (mut is_whole, mut lost) = (true, 0);
    while fill(&mut file, &mut frame)? {
        // Frames of earlier log generations remain after the end until they are overwritten.
        let is_current = frame[8..16] == header[16..24];
        is_whole = is_whole && is_current && sum.holds(&frame);
        let ends_transaction = word(&frame, 4) != 0;
        if !is_whole && is_current && ends_transaction {
            lost += 1;
        }
    }
    Ok(1 < lost)
}

/// The running checksum of the log, starting with the header.
struct Sum {
    is_big: bool,
    sum: [u32; 2],
}

impl Sum {
    /// The checksum after the header; `None` if the header is damaged.
    fn of_header(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let is_big = match word(header, 0) {
            SUMS_LITTLE => false,
            SUMS_BIG => true,
            _ => return None,
        };
        let mut sum = Self { is_big, sum: [0, 0] };
        sum.add(&header[..24]);
        (sum.sum == [word(header, 24), word(header, 28)]).then_some(sum)
    }

    fn holds(&mut self, frame: &[u8]) -> bool {
        self.add(&frame[..8]);
        self.add(&frame[FRAME_HEADER_BYTES..]);
        self.sum == [word(frame, 16), word(frame, 20)]
    }

    fn add(&mut self, bytes: &[u8]) {
        let [mut one, mut two] = self.sum;
        let read = |it: [u8; 4]| if self.is_big { u32::from_be_bytes(it) } else { u32::from_le_bytes(it) };
        for pair in bytes.as_chunks::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *pair;
            one = one.wrapping_add(read([a, b, c, d])).wrapping_add(two);
            two = two.wrapping_add(read([e, f, g, h])).wrapping_add(one);
        }
        self.sum = [one, two];
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |all, it| all << 8 | u32::from(*it))
}

/// Fills `bytes` from the file; returns `false` at the end of the file.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}
