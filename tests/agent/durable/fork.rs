//! A run that goes on from the middle of another one.

use std::fs;

use prefixgate::agent::driver::Agent;
use prefixgate::agent::journal::{Database, Directory, Fsync, JournalError, Journals, fork};
use prefixgate::agent::machine::{Event, Outcome};
use prefixgate::agent::talk::Entry;

use super::world::{World, main_of, resumed};

const TASK: &str = "Go. [[plan:tool=charge+tool=look,tool=charge,tool=send,end]]";

async fn whole(world: &World, journals: &dyn Journals) -> Vec<Entry> {
    let journal = journals.create("r", "main").unwrap();
    let mut agent = Agent::begin(world.parts(journal), world.setup("r"), TASK).unwrap();
    assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
    agent.run().entries().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_the_turns_up_to_there_and_leaves_the_original_alone() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let journals = Directory::new(dir.path(), Fsync::Never);
    let entries = whole(&world, &journals).await;
    let original = fs::read(main_of(dir.path(), "r")).unwrap();
    for turn in 0..=4 {
        let into = format!("fork-{turn}");
        assert_eq!(fork(&journals, "r", Some(turn), &into, 99).unwrap(), turn);
        let run = journals
            .open(&into, "main")
            .unwrap()
            .load()
            .unwrap()
            .unwrap();
        assert_eq!(run.turns(), turn);
        assert_eq!(run.setup().run, into);
        // The task; then an answer and its results for each turn, but for the last answer.
        let kept = (2 * turn as usize + 1).min(entries.len());
        assert_eq!(run.entries(), &entries[..kept], "turn {turn}");
        let last = journals.events(&into, "main").unwrap().pop().unwrap();
        let origin = Event::Forked {
            run: "r".to_owned(),
            turn,
        };
        assert_eq!((last.at_ms, last.event), (99, origin));
    }
    assert_eq!(fs::read(main_of(dir.path(), "r")).unwrap(), original);
    assert_eq!(fork(&journals, "r", None, "newest", 99).unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_fork_have_keys_of_their_own() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let journals = Database::open(&dir.path().join("agent.db"), Fsync::Never).unwrap();
    let entries = whole(&world, &journals).await;
    let original = world.made();
    assert_eq!(original.len(), 4);
    world.asked();
    fork(&journals, "r", Some(1), "f", 99).unwrap();
    let journal = journals.open("f", "main").unwrap();
    let mut agent = Agent::resume(world.parts(journal), resumed())
        .unwrap()
        .unwrap();
    assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
    assert_eq!(agent.run().entries().len(), entries.len());
    let made = world.made();
    assert_eq!(made.len(), 2, "those of the first turn are not made again");
    for (_, key) in &made {
        assert!(key.starts_with("f/main/"), "{key}");
        assert!(original.iter().all(|(_, known)| known != key));
    }
    assert!(
        world.asked()[0].contains(&original_id(&original[0].1)),
        "what came before stays"
    );
}

/// The id of a call, the last part of its key.
fn original_id(key: &str) -> String {
    key.rsplit('/').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_in_the_middle_of_calls_is_refused() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let journals = Directory::new(dir.path(), Fsync::Never);
    whole(&world, &journals).await;
    let main = main_of(dir.path(), "r");
    let text = fs::read_to_string(&main).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let second = lines
        .iter()
        .filter(|line| line.contains("\"call_ended\""))
        .nth(1)
        .unwrap();
    let end = lines.iter().position(|line| line == second).unwrap();
    // The second turn has been answered by the model, and its call has no result.
    let upto = lines[end + 1..]
        .iter()
        .position(|line| line.contains("\"call_ended\""))
        .unwrap();
    fs::write(&main, lines[..end + 1 + upto].join("\n") + "\n").unwrap();
    let refused = |turn, reason: &str| {
        let error = fork(&journals, "r", Some(turn), "f", 99).unwrap_err();
        assert!(matches!(error, JournalError::Fork { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused(2, "no result");
    refused(3, "not come that far");
    assert!(journals.runs().unwrap() == ["r"], "nothing is left of it");
    assert_eq!(fork(&journals, "r", None, "f", 99).unwrap(), 1);
    let again = fork(&journals, "r", None, "f", 99);
    assert!(matches!(again, Err(JournalError::Exists(_))));
    let missing = fork(&journals, "q", None, "g", 99);
    assert!(matches!(missing, Err(JournalError::Missing(_))));
}
