//! A run that goes on from the middle of another one.

use super::{Journal, JournalError, Journals, MAIN};
use crate::agent::machine::{AgentRun, Event, Happened};

/// Copies a run up to a turn into a new one, which is then resumed like any other. The original
/// stays as it is. Turn 0 is the task alone; `None` is the newest turn whose calls all have their
/// results. What was used until then counts for the new run too.
///
/// The id of a run is part of the idempotency keys of its calls, so no call that the new run makes
/// has the key of one that the original has made.
///
/// # Errors
/// There is no such run or turn, its calls have not all ended, the new run is there already, or a
/// journal cannot be read or written. A copy that was broken off is a run up to an earlier point.
pub fn fork(
    journals: &dyn Journals,
    from: &str,
    turn: Option<u32>,
    into: &str,
    now_ms: i64,
) -> Result<u32, JournalError> {
    let events = journals.events(from, MAIN)?;
    let ends = ends(&events);
    let turn = turn.unwrap_or_else(|| ends.last().map_or(0, |(turn, _)| *turn));
    let end = ends.iter().find(|(number, _)| *number == turn);
    let Some((_, end)) = end else {
        let last = AgentRun::fold(&events).map_or(0, |run| run.turns());
        return Err(JournalError::Fork {
            run: from.to_owned(),
            turn,
            reason: match turn > last {
                true => "it has not come that far",
                false => "calls of that turn have no result",
            },
        });
    };
    let mut journal = journals.create(into, MAIN)?;
    copy(&events[..*end], from, turn, into, now_ms, journal.as_mut())?;
    Ok(turn)
}

fn copy(
    events: &[Happened],
    from: &str,
    turn: u32,
    into: &str,
    now_ms: i64,
    journal: &mut dyn Journal,
) -> Result<(), JournalError> {
    for happened in events {
        let mut happened = happened.clone();
        if let Event::Began(setup) = &mut happened.event {
            into.clone_into(&mut setup.run);
        }
        journal.append(&happened)?;
    }
    journal.append(&Happened {
        at_ms: now_ms,
        event: Event::Forked {
            run: from.to_owned(),
            turn,
        },
    })?;
    journal.settle()
}

/// For each turn that was completed, how many events lead up to that.
fn ends(events: &[Happened]) -> Vec<(u32, usize)> {
    let mut ends: Vec<(u32, usize)> = Vec::new();
    let Some((first, rest)) = events.split_first() else {
        return ends;
    };
    let Some(mut run) = AgentRun::fold([first]) else {
        return ends;
    };
    for (at, happened) in rest.iter().enumerate() {
        run.apply(happened);
        let known = ends.last().map(|(turn, _)| *turn);
        let told = run.turns() > 0 || !run.entries().is_empty();
        if told && run.is_settled() && known != Some(run.turns()) {
            ends.push((run.turns(), at + 2));
        }
    }
    ends
}
