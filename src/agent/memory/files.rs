//! A file for each note, in one directory.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::{MAX_NOTES, Memory, MemoryError, Note, Remembered, blocking, check_name, check_size};

const SUFFIX: &str = ".md";
/// Held by whoever changes notes, also in another process.
const LOCK: &str = ".lock";
/// What a note is written to before it takes its place.
const NEW: &str = ".new";

/// Notes in files, for people to read and edit.
#[derive(Debug, Clone)]
pub struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// Changes are made one after the other.
    gate: Mutex<()>,
}

impl Files {
    /// The notes in a directory, which is made where there is none, for its owner only.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path) -> Remembered<Self> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(dir).map_err(|error| broken(dir, &error))?;
        Ok(Self(Arc::new(Inner {
            dir: dir.to_owned(),
            gate: Mutex::default(),
        })))
    }

    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Remembered<T> + Send + 'static,
    ) -> Remembered<T> {
        let inner = Arc::clone(&self.0);
        blocking(inner.dir.display().to_string(), move || work(&inner)).await
    }
}

fn broken(path: &Path, error: &std::io::Error) -> MemoryError {
    MemoryError::Broken {
        place: path.display().to_string(),
        reason: error.to_string(),
    }
}

impl Inner {
    fn path(&self, name: &str) -> Remembered<PathBuf> {
        check_name(name)?;
        Ok(self.dir.join(format!("{name}{SUFFIX}")))
    }

    fn list(&self) -> Remembered<Vec<Note>> {
        let fault = |error| broken(&self.dir, &error);
        let mut notes = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(name) = name.filter(|name| check_name(name).is_ok()) else {
                continue;
            };
            notes.push(Note {
                name: name.to_owned(),
                bytes: entry.metadata().map_err(fault)?.len(),
            });
        }
        notes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(notes)
    }

    fn read(&self, name: &str) -> Remembered<String> {
        let path = self.path(name)?;
        match std::fs::read(&path) {
            // People may have edited it.
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(MemoryError::Missing(name.to_owned()))
            }
            Err(error) => Err(broken(&path, &error)),
        }
    }

    /// Gives a note the text that `change` makes of the one it has.
    fn change(
        &self,
        name: &str,
        change: impl FnOnce(Option<String>) -> Remembered<String>,
    ) -> Remembered<()> {
        let path = self.path(name)?;
        let _alone = self.alone()?;
        let old = match self.read(name) {
            Ok(text) => Some(text),
            Err(MemoryError::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        if old.is_none() && self.list()?.len() >= MAX_NOTES {
            return Err(MemoryError::Full);
        }
        let text = change(old)?;
        check_size(text.len())?;
        let new = self.dir.join(NEW);
        let fault = |error| broken(&new, &error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new).map_err(fault)?;
        file.write_all(text.as_bytes()).map_err(fault)?;
        file.sync_data().map_err(fault)?;
        std::fs::rename(&new, &path).map_err(fault)
    }

    fn delete(&self, name: &str) -> Remembered<()> {
        let path = self.path(name)?;
        let _alone = self.alone()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(MemoryError::Missing(name.to_owned()))
            }
            done => done.map_err(|error| broken(&path, &error)),
        }
    }

    /// Nobody else changes notes while this is held.
    fn alone(&self) -> Remembered<(std::sync::MutexGuard<'_, ()>, File)> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.dir.join(LOCK);
        let fault = |error| broken(&path, &error);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fault)?;
        file.lock().map_err(fault)?;
        Ok((gate, file))
    }
}

impl Memory for Files {
    fn list(&self) -> BoxFuture<'_, Remembered<Vec<Note>>> {
        Box::pin(self.on(Inner::list))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<String>> {
        let name = name.to_owned();
        Box::pin(self.on(move |inner| inner.read(&name)))
    }

    fn write<'a>(&'a self, name: &'a str, text: &'a str) -> BoxFuture<'a, Remembered<()>> {
        let (name, text) = (name.to_owned(), text.to_owned());
        Box::pin(self.on(move |inner| inner.change(&name, |_| Ok(text))))
    }

    fn append<'a>(&'a self, name: &'a str, text: &'a str) -> BoxFuture<'a, Remembered<()>> {
        let (name, text) = (name.to_owned(), text.to_owned());
        Box::pin(
            self.on(move |inner| inner.change(&name, |old| Ok(old.unwrap_or_default() + &text))),
        )
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<()>> {
        let name = name.to_owned();
        Box::pin(self.on(move |inner| inner.delete(&name)))
    }
}
