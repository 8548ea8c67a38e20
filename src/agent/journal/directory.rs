//! Journals as files: a directory for each run, a file for each of its agents.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::{self, sync_directory};
use super::jsonl::{Lines, beside};
use super::{
    Fsync, Happened, Journal, JournalError, Journals, JsonLines, MAIN, Summary, lock, main_first,
    named,
};

const SUFFIX: &str = ".jsonl";
/// Events at the start that are read for the task of a run.
const FIRST: usize = 4;

/// Journals below `<data dir>/agent`.
#[derive(Debug, Clone)]
pub struct Directory {
    root: PathBuf,
    fsync: Fsync,
}

impl Directory {
    /// Those of a data directory. It is made with the first run.
    #[must_use]
    pub fn new(data_dir: &Path, fsync: Fsync) -> Self {
        Self {
            root: data_dir.join("agent"),
            fsync,
        }
    }

    /// The file of a journal.
    ///
    /// # Errors
    /// These are no names.
    pub fn path(&self, run: &str, agent: &str) -> Result<PathBuf, JournalError> {
        named([run, agent])?;
        Ok(self.root.join(run).join(format!("{agent}{SUFFIX}")))
    }

    fn make(&self, run: &str) -> io::Result<()> {
        let directory = self.root.join(run);
        if directory.is_dir() {
            return Ok(());
        }
        private_directory(&directory)?;
        if self.fsync == Fsync::Never {
            return Ok(());
        }
        sync_directory(&self.root)?;
        self.root.parent().map_or(Ok(()), sync_directory)
    }

    fn read(&self, run: &str, agent: &str) -> Result<(PathBuf, Vec<u8>), JournalError> {
        let path = self.path(run, agent)?;
        match fs::read(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(error) => Err(missing_or(run, &path, error)),
        }
    }
}

impl Journals for Directory {
    fn create(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError> {
        let path = self.path(run, agent)?;
        self.make(run).map_err(|source| JournalError::Io {
            path: self.root.join(run).display().to_string(),
            source,
        })?;
        let journal = match JsonLines::open(&path, self.fsync) {
            Err(JournalError::Busy(path)) => return Err(JournalError::Exists(path)),
            other => other?,
        };
        if !journal.is_empty() {
            return Err(JournalError::Exists(path.display().to_string()));
        }
        Ok(Box::new(journal))
    }

    fn open(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError> {
        let path = self.path(run, agent)?;
        match JsonLines::existing(&path, self.fsync) {
            Ok(journal) => Ok(Box::new(journal)),
            Err(JournalError::Io { source, .. }) => Err(missing_or(run, &path, source)),
            Err(other) => Err(other),
        }
    }

    fn events(&self, run: &str, agent: &str) -> Result<Vec<Happened>, JournalError> {
        let (path, bytes) = self.read(run, agent)?;
        Lines::of(&path, &bytes)?.events(0).collect()
    }

    fn summary(&self, run: &str) -> Result<Summary, JournalError> {
        let (path, bytes) = self.read(run, MAIN)?;
        let missing = || JournalError::Missing(run.to_owned());
        let lines = Lines::of(&path, &bytes)?;
        let state = lines
            .run(checkpoint::read(&beside(&path)))?
            .ok_or_else(missing)?;
        let first: Vec<Happened> = lines.events(0).take(FIRST).collect::<Result<_, _>>()?;
        let last_ms = lines.last().ok_or_else(missing)??.at_ms;
        Ok(Summary::of(&state, &first, last_ms, lock::is_taken(&path)))
    }

    fn agents(&self, run: &str) -> Result<Vec<String>, JournalError> {
        named([run])?;
        let names = names(&self.root.join(run))?;
        let agents = names.iter().filter_map(|name| name.strip_suffix(SUFFIX));
        Ok(main_first(agents.map(str::to_owned).collect()))
    }

    fn runs(&self) -> Result<Vec<String>, JournalError> {
        let mut runs = names(&self.root)?;
        runs.retain(|run| self.path(run, MAIN).is_ok_and(|path| path.is_file()));
        Ok(runs)
    }
}

/// Lets new files be read by their owner only.
pub(super) fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

/// Makes a directory that is its owner's only, with those above it.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn missing_or(run: &str, path: &Path, source: io::Error) -> JournalError {
    if source.kind() == io::ErrorKind::NotFound {
        return JournalError::Missing(run.to_owned());
    }
    JournalError::Io {
        path: path.display().to_string(),
        source,
    }
}

/// Names in a directory; none where it is not there.
fn names(path: &Path) -> Result<Vec<String>, JournalError> {
    let failed = |source| JournalError::Io {
        path: path.display().to_string(),
        source,
    };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        // What is no text is no name of ours.
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    Ok(names)
}
