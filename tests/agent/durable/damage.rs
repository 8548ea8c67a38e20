//! Journals that something has happened to.

use std::fs;
use std::path::{Path, PathBuf};

use prefixgate::agent::journal::{Database, Directory, Fsync, JournalError, Journals};
use prefixgate::agent::machine::{AgentRun, Event, Happened};
use rusqlite::Connection;

use super::world::{World, happened, main_of};

fn events(world: &World) -> Vec<Happened> {
    let said = |text: &str| {
        happened(Event::Said {
            text: text.to_owned(),
        })
    };
    let mut events = vec![happened(Event::Began(Box::new(world.setup("r"))))];
    events.extend(["one", "two", "three", "four", "five"].map(said));
    events
}

fn fill(journals: &dyn Journals, events: &[Happened], checkpoint_at: usize) {
    let mut journal = journals.create("r", "main").unwrap();
    for (at, happened) in events.iter().enumerate() {
        journal.append(happened).unwrap();
        if at + 1 == checkpoint_at {
            journal
                .checkpoint(&AgentRun::fold(&events[..=at]).unwrap())
                .unwrap();
        }
    }
}

fn lines(data_dir: &Path, events: &[Happened]) -> (Directory, PathBuf) {
    let journals = Directory::new(data_dir, Fsync::Never);
    fill(&journals, events, 3);
    (journals, main_of(data_dir, "r"))
}

fn assert_whole(journals: &dyn Journals, events: &[Happened], what: &str) {
    let loaded = journals.open("r", "main").unwrap().load().unwrap().unwrap();
    let folded = AgentRun::fold(events).unwrap();
    let [loaded, folded] = [loaded, folded].map(|run| serde_json::to_value(run).unwrap());
    assert_eq!(loaded, folded, "{what}");
}

#[tokio::test]
async fn an_unreadable_line_is_named_and_nothing_is_lost() {
    let world = World::start();
    let events = events(&world);
    let dir = tempfile::tempdir().unwrap();
    let (journals, main) = lines(dir.path(), &events);
    fs::remove_file(main.with_extension("checkpoint")).unwrap();
    let text = fs::read_to_string(&main).unwrap();
    // The last line is whole as well: it has its end.
    for number in [3, 5, text.lines().count()] {
        let mut broken: Vec<&str> = text.lines().collect();
        broken[number - 1] = "{\"at_ms\":1,\"event\":\"unheard_of\"}";
        let broken = broken.join("\n") + "\n";
        fs::write(&main, &broken).unwrap();
        let mut journal = journals.open("r", "main").unwrap();
        for error in [
            journal.load().err(),
            journal.events().err(),
            journals.summary("r").err(),
        ] {
            let Some(JournalError::Unreadable { line, reason, .. }) = error else {
                panic!("{error:?}");
            };
            assert_eq!(line, number);
            assert!(reason.contains("unheard_of"), "{reason}");
        }
        assert_eq!(fs::read_to_string(&main).unwrap(), broken);
        let listed = journals.list().unwrap();
        assert!(listed.len() == 1 && listed[0].summary.is_err());
    }
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_left_alone() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let (journals, main) = lines(dir.path(), &events(&world));
    let newer = fs::read_to_string(&main)
        .unwrap()
        .replacen("\"version\":1", "\"version\":2", 1);
    for content in [
        "a note\nwithout an end",
        "\n",
        "{}\n",
        "\0\0\0",
        newer.as_str(),
    ] {
        fs::write(&main, content).unwrap();
        for refused in [
            journals.open("r", "main").err(),
            journals.create("r", "main").err(),
        ] {
            let Some(JournalError::Unreadable { line: 1, .. }) = refused else {
                panic!("{content:?}: {refused:?}");
            };
        }
        assert_eq!(fs::read_to_string(&main).unwrap(), content);
    }
    fs::write(&main, &newer).unwrap();
    let error = journals.open("r", "main").err().unwrap().to_string();
    assert!(
        error.contains("version 2, this program knows version 1"),
        "{error}"
    );
}

#[tokio::test]
async fn killed_while_a_journal_was_begun_it_is_begun_again() {
    let world = World::start();
    let events = events(&world);
    let dir = tempfile::tempdir().unwrap();
    let (journals, main) = lines(dir.path(), &events);
    let text = fs::read(&main).unwrap();
    let head = memchr::memchr(b'\n', &text).unwrap() + 1;
    for cut in 0..=head {
        fs::write(&main, &text[..cut]).unwrap();
        assert!(journals.list().unwrap().is_empty(), "cut at {cut}");
        fill(&journals, &events, 0);
        assert_eq!(fs::read(&main).unwrap(), text, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_checkpoint_that_does_not_fit_is_as_good_as_none() {
    let world = World::start();
    let events = events(&world);
    let dir = tempfile::tempdir().unwrap();
    let (journals, main) = lines(dir.path(), &events);
    let checkpoint = main.with_extension("checkpoint");
    assert!(!main.with_extension("tmp").exists());
    let good = fs::read_to_string(&checkpoint).unwrap();
    assert_whole(&journals, &events, "whole");

    // That it is read at all: one that lies, but fits.
    fs::write(&checkpoint, good.replace("\"one\"", "\"another\"")).unwrap();
    let run = journals.open("r", "main").unwrap().load().unwrap().unwrap();
    assert!(serde_json::to_string(&run).unwrap().contains("another"));

    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let half = &good[..good.len() / 2];
    let older = good.replace(&version, "\"version\":\"0.0.0\"");
    let other = good.replace("\"hash\":", "\"hash\":1");
    let ahead = good.replace("\"bytes\":", "\"bytes\":9");
    assert_ne!(older, good);
    for bad in ["", "null", half, &older, &other, &ahead] {
        fs::write(&checkpoint, bad).unwrap();
        assert_whole(&journals, &events, bad);
    }
    fs::remove_file(&checkpoint).unwrap();
    assert_whole(&journals, &events, "missing");

    // One of events that the disk has lost since, with others in their place.
    fs::write(&checkpoint, &good).unwrap();
    let text = fs::read_to_string(&main)
        .unwrap()
        .replace("\"one\"", "\"uno\"");
    fs::write(&main, text).unwrap();
    let run = journals.open("r", "main").unwrap().load().unwrap().unwrap();
    assert!(serde_json::to_string(&run).unwrap().contains("uno"));
}

#[cfg(unix)]
#[tokio::test]
async fn what_was_said_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let (_, main) = lines(dir.path(), &events(&world));
    drop(Database::open(&dir.path().join("agent.db"), Fsync::Never).unwrap());
    let run = main.parent().unwrap();
    let database = dir.path().join("agent.db");
    for path in [&main, &main.with_extension("checkpoint"), run, &database] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_named() {
    let world = World::start();
    let events = events(&world);
    let dir = tempfile::tempdir().unwrap();
    let journals = Database::open(&dir.path().join("agent.db"), Fsync::Never).unwrap();
    fill(&journals, &events, 3);
    let raw = Connection::open(dir.path().join("agent.db")).unwrap();
    assert_whole(&journals, &events, "whole");
    for bad in [
        "state = '{}'",
        "version = '0.0.0'",
        "events = 77",
        "events = 0",
    ] {
        raw.execute_batch(&format!("UPDATE checkpoints SET {bad}"))
            .unwrap();
        assert_whole(&journals, &events, bad);
    }
    for damage in [
        "UPDATE events SET event = 'x' WHERE seq = 4",
        "DELETE FROM events WHERE seq = 4",
    ] {
        raw.execute_batch(damage).unwrap();
        let error = journals.open("r", "main").unwrap().load().err();
        let Some(JournalError::Unreadable { line: 5, path, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(path.ends_with("r/main"), "{path}");
    }
    raw.execute_batch("PRAGMA user_version = 9").unwrap();
    let error = Database::open(&dir.path().join("agent.db"), Fsync::Never)
        .unwrap_err()
        .to_string();
    assert!(error.contains("schema 9"), "{error}");
}

/// Were locks to fail, two writers still could not both go on.
#[tokio::test]
async fn rows_have_one_writer_even_without_locks() {
    let world = World::start();
    let events = events(&world);
    let dir = tempfile::tempdir().unwrap();
    let journals = Database::open(&dir.path().join("agent.db"), Fsync::Never).unwrap();
    fill(&journals, &events[..2], 0);
    let other = Database::open(&dir.path().join("agent.db"), Fsync::Never).unwrap();
    let mut first = journals.open("r", "main").unwrap();
    assert!(matches!(
        other.open("r", "main"),
        Err(JournalError::Busy(_))
    ));
    fs::remove_file(dir.path().join("agent.locks").join("r@main")).unwrap();
    let mut second = other.open("r", "main").unwrap();
    second.append(&events[2]).unwrap();
    assert!(matches!(
        first.append(&events[3]),
        Err(JournalError::Busy(_))
    ));
    second.append(&events[3]).unwrap();
    assert_eq!(journals.events("r", "main").unwrap(), &events[..4]);
}
