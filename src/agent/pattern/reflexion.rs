//! Reflexion: attempts that learn from those before them.

use sha2::{Digest as _, Sha256};

use super::{Check, Lessons, PatternError, Report, Site, can_be_asked, ended, is_final};
use crate::agent::driver::Agent;
use crate::agent::journal::MAIN;
use crate::agent::machine::Outcome;
use crate::agent::memory::{MAX_NOTE, find, recalled};
use crate::agent::notice::Notice;

/// Longest reflection that is kept, in bytes.
const MAX_REFLECTION: usize = 4 << 10;

const REFLECT: &str = "This attempt at the task has failed. Look back at it and write down, for \
someone who tries again without having seen any of it: what was tried, why it failed, and what to do \
differently, concretely. At most 200 words. Call no tool.";

/// Attempts until the check succeeds or there are no more.
///
/// An attempt has failed when the check does, or when its agent did not end by itself. Then the
/// model writes a reflection, over the conversation that it has in the cache. It is put into the
/// memory, under a name that follows from the task, and stands before the task in the next attempt,
/// and in those of later runs.
#[derive(Clone)]
pub struct Reflexion {
    /// Most attempts.
    pub attempts: u32,
    /// What decides; without one an agent that ends by itself has succeeded.
    pub check: Option<Check>,
    /// Where reflections are kept.
    pub memory: Lessons,
}

impl Reflexion {
    pub(super) async fn work(
        &self,
        site: &mut Site<'_>,
        task: &str,
    ) -> Result<Report, PatternError> {
        let note = note(task);
        let attempts = self.attempts.max(1);
        let mut number = 1;
        loop {
            let name = match number {
                1 => MAIN.to_owned(),
                _ => format!("attempt-{number}"),
            };
            let known = find(&*self.memory, &note).await?;
            let heading = format!("## {} {name}\n", site.setup.run);
            let mut agent = site.agent(&name, recalled(task, known.as_deref())).await?;
            let outcome = ended(&agent);
            // What was reflected upon has failed, whatever the directory looks like by now.
            let reflected = known.is_some_and(|known| known.contains(&heading));
            let failed = match reflected || agent.run().aside().is_some() {
                true => Some("it has failed before".to_owned()),
                false => self.judge(&agent, &outcome).await,
            };
            let why = failed.as_deref();
            if !reflected {
                site.tell(
                    &agent,
                    Notice::Judged {
                        passed: why.is_none(),
                        why: why.unwrap_or("it succeeded"),
                    },
                );
            }
            let stop = site.used_up().filter(|_| why.is_some());
            if why.is_none() || is_final(&outcome) || stop.is_some() || number == attempts {
                return Ok(Report {
                    passed: why.is_none(),
                    outcome: stop.unwrap_or(outcome),
                    answer: agent.run().answer(),
                    why: failed,
                });
            }
            if !reflected {
                let why = why.unwrap_or_default();
                let reflection = reflect(&mut agent, &outcome, why).await?;
                site.tell(&agent, Notice::Reflected(&reflection));
                self.keep(&note, &heading, &reflection).await?;
            }
            number += 1;
        }
    }

    /// Why an attempt has failed; `None` where it has not.
    async fn judge(&self, agent: &Agent, outcome: &Outcome) -> Option<String> {
        if *outcome != Outcome::EndTurn {
            let turns = agent.run().turns();
            return Some(format!(
                "it ended with {} after {turns} turns",
                outcome.as_str()
            ));
        }
        let checked = self.check.as_ref()?.run().await;
        (!checked.passed).then_some(checked.told)
    }

    /// Adds a reflection to what is known of the task; the oldest are forgotten where it would
    /// become too long.
    async fn keep(&self, note: &str, heading: &str, text: &str) -> Result<(), PatternError> {
        let text = crate::text::prefix(text.trim(), MAX_REFLECTION);
        let old = find(&*self.memory, note).await?.unwrap_or_default();
        let mut all = format!("{old}{heading}{text}\n\n");
        while all.len() > MAX_NOTE {
            match all.find("\n## ") {
                Some(next) => drop(all.drain(..=next)),
                None => all = format!("{heading}{text}\n\n"),
            }
        }
        self.memory.write(note, &all).await?;
        Ok(())
    }
}

/// The model's words about its failure, or what is known without it.
async fn reflect(agent: &mut Agent, outcome: &Outcome, why: &str) -> Result<String, PatternError> {
    if let Some(said) = agent.run().aside() {
        return Ok(said.to_owned());
    }
    let said = match can_be_asked(outcome) {
        true => {
            agent
                .aside(&format!("{REFLECT}\n\nWhy it failed: {why}"))
                .await?
        }
        false => None,
    };
    Ok(said.unwrap_or_else(|| format!("The attempt failed: {why}")))
}

/// The note of a task.
fn note(task: &str) -> String {
    let hash = Sha256::digest(task.trim().as_bytes());
    let hash: String = hash
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("reflexion-{hash}")
}
