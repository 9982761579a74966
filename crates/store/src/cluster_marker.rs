//! The cluster marker: a small file beside the database with the UID of the cluster and the revision of a recent
//! commit.
//!
//! The revision in the marker is updated after each batch of commits and never synced, so it adds no latency. An update
//! survives a crash of the process. After a power loss the marker may be behind the durable commits, but never ahead of
//! them. If the last revision of a database is below the revision in its marker, the database has therefore lost
//! commits.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::{LogError, Revision};

/// First line of the marker file, and the label of the UID in the second line.
const MARKER_HEADER: &str = "muster cluster 1\nuid ";
/// Text between the UID and the revision in the marker file.
const REVISION_LABEL: &str = "\nrevision ";
/// Length of a UID in bytes.
const UID_LEN: usize = 36;
/// Number of decimal digits of the revision in the marker file. The revision has leading zeros.
const REVISION_DIGITS: usize = 20;
/// Byte offset of the revision in the marker file.
const REVISION_OFFSET: usize = MARKER_HEADER.len() + UID_LEN + REVISION_LABEL.len();
/// Length of the marker file in bytes. The last byte is a newline.
const MARKER_LEN: usize = REVISION_OFFSET + REVISION_DIGITS + 1;

/// The content of the cluster marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterMarker {
    pub(crate) uid: String,
    /// A revision that the database had reached when the marker was written. The database may be ahead of it.
    pub(crate) revision: Revision,
}

impl ClusterMarker {
    /// Reads a marker. Returns `None` if the file does not exist. Fails with [`io::ErrorKind::InvalidData`] if the file
    /// is not a marker.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(content) => Self::parse(&content).ok_or(io::ErrorKind::InvalidData.into()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the marker file atomically.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        muster_files::write_private_file(path, self.to_text().as_bytes())
    }

    /// Returns the content of the marker file.
    fn to_text(&self) -> String {
        let Self { uid, revision } = self;
        format!("{MARKER_HEADER}{uid}{REVISION_LABEL}{revision:0REVISION_DIGITS$}\n")
    }

    /// Parses the content of a marker file. Returns `None` if it is not a marker.
    fn parse(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok().filter(|it| it.len() == MARKER_LEN)?;
        let (uid, revision) =
            text.strip_prefix(MARKER_HEADER)?.strip_suffix('\n')?.split_once(REVISION_LABEL)?;
        let is_digits = revision.bytes().all(|it| it.is_ascii_digit());
        (uid.len() == UID_LEN && is_digits)
            .then_some(Self { uid: uid.to_owned(), revision: revision.parse().ok()? })
    }
}

/// The open marker file of a database that a server uses.
#[derive(Debug)]
pub(crate) struct ClusterMarkerFile {
    /// The open file, into which the revision is written.
    file: File,
    /// Device and inode of the open file, by which a replaced file is detected.
    id: FileId,
    path: PathBuf,
}

impl ClusterMarkerFile {
    /// Opens the marker file for writing its revision. The file must already contain a marker.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = muster_files::open_private_file(path)?;
        let id = FileId::from_metadata(&file.metadata()?);
        Ok(Self { file, id, path: path.to_owned() })
    }

    /// Writes a revision that is durable in the database into the marker. Errors are ignored, because the marker may be
    /// behind the database.
    pub(crate) fn advance_revision(&self, revision: Revision) {
        let _ = self
            .file
            .write_all_at(format!("{revision:0REVISION_DIGITS$}").as_bytes(), REVISION_OFFSET as u64);
    }

    /// Fails if the marker file was removed or replaced.
    pub(crate) fn check_not_replaced(&self) -> Result<(), LogError> {
        self.id.check_not_replaced(&self.path)
    }
}

/// Identity of a file: its device number and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// Returns the identity of the file with this metadata.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }

    /// Fails if the file at `path` does not exist or does not have this identity. Other IO errors are ignored.
    pub(crate) fn check_not_replaced(self, path: &Path) -> Result<(), LogError> {
        match fs::metadata(path) {
            Ok(found) if Self::from_metadata(&found) == self => Ok(()),
            // Only NotFound means removed; other errors are ignored.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Ok(()),
            _ => Err(LogError::Replaced { path: path.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_and_other_content_is_rejected() {
        let content = ClusterMarker { uid: "0b6c1a5e-9a53-4a0b-8d1e-2f6f6d3c1b9a".into(), revision: 42 };
        assert_eq!(content.to_text().len(), MARKER_LEN);
        assert_eq!(ClusterMarker::parse(content.to_text().as_bytes()), Some(content.clone()));
        for broken in [
            "",
            &content.to_text()[1..],
            &content.to_text().replace("42", "4x"),
            &format!("{}x", content.to_text()),
        ] {
            assert_eq!(ClusterMarker::parse(broken.as_bytes()), None, "{broken:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marker");
        content.write(&path).unwrap();
        let marker = ClusterMarkerFile::open(&path).unwrap();
        marker.advance_revision(u64::MAX);
        assert_eq!(
            ClusterMarker::read(&path).unwrap(),
            Some(ClusterMarker { revision: u64::MAX, ..content })
        );
        assert_eq!(marker.check_not_replaced(), Ok(()));
        fs::remove_file(&path).unwrap();
        assert_eq!(marker.check_not_replaced(), Err(LogError::Replaced { path: path.clone() }));
        assert_eq!(ClusterMarker::read(&path).unwrap(), None);
    }
}
