//! What changes files. A trait, so that a test can have writes fail, or end half way.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Everything that a spool does to its files while it works.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// An empty file to append to, readable by its owner only. One that is there is emptied.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .and_then(|file| file.set_len(0).map(|()| file))
    }

    /// Appends everything, or fails after a part.
    fn append(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Overwrites.
    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Cuts off.
    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    /// Waits until the data are on the medium.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// The machine's.
#[derive(Debug)]
pub(super) struct Real;

impl Disk for Real {}
