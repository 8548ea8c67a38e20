//! Journals that end with the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Journal, JournalError, Journals, MAIN, Summary, main_first, named};
use crate::agent::machine::{AgentRun, Happened};

#[derive(Debug, Default)]
struct Kept {
    events: Vec<Happened>,
    open: bool,
}

type Shared = Arc<Mutex<Kept>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Kept> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A journal in memory.
#[derive(Debug, Default)]
pub struct InMemory(Shared);

impl Journal for InMemory {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        lock(&self.0).events.push(happened.clone());
        Ok(())
    }

    fn settle(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn checkpoint(&mut self, _run: &AgentRun) -> Result<(), JournalError> {
        Ok(())
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        Ok(AgentRun::fold(&lock(&self.0).events))
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        Ok(lock(&self.0).events.clone())
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        lock(&self.0).open = false;
    }
}

/// The journals of this process. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Scratch(Arc<Mutex<BTreeMap<(String, String), Shared>>>);

impl Scratch {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, String), Shared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, run: &str, agent: &str) -> Result<Shared, JournalError> {
        named([run, agent])?;
        let known = self.all().get(&(run.to_owned(), agent.to_owned())).cloned();
        known.ok_or_else(|| JournalError::Missing(run.to_owned()))
    }
}

impl Journals for Scratch {
    fn create(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError> {
        named([run, agent])?;
        let mut all = self.all();
        let shared = all.entry((run.to_owned(), agent.to_owned())).or_default();
        let mut kept = lock(shared);
        if kept.open || !kept.events.is_empty() {
            return Err(JournalError::Exists(format!("{run}/{agent}")));
        }
        kept.open = true;
        drop(kept);
        Ok(Box::new(InMemory(Arc::clone(shared))))
    }

    fn open(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError> {
        let shared = self.find(run, agent)?;
        if std::mem::replace(&mut lock(&shared).open, true) {
            return Err(JournalError::Busy(format!("{run}/{agent}")));
        }
        Ok(Box::new(InMemory(shared)))
    }

    fn events(&self, run: &str, agent: &str) -> Result<Vec<Happened>, JournalError> {
        Ok(lock(&self.find(run, agent)?).events.clone())
    }

    fn summary(&self, run: &str) -> Result<Summary, JournalError> {
        let shared = self.find(run, MAIN)?;
        let kept = lock(&shared);
        Summary::of_events(&kept.events, kept.open)
            .ok_or_else(|| JournalError::Missing(run.to_owned()))
    }

    fn agents(&self, run: &str) -> Result<Vec<String>, JournalError> {
        let all = self.all();
        let agents = all
            .keys()
            .filter(|(of, _)| of == run)
            .map(|(_, agent)| agent.clone());
        Ok(main_first(agents.collect()))
    }

    fn runs(&self) -> Result<Vec<String>, JournalError> {
        let mut runs: Vec<String> = self.all().keys().map(|(run, _)| run.clone()).collect();
        runs.dedup();
        Ok(runs)
    }
}
