//! Runs in a list, and what they have used.

use prefixgate::agent::journal::{Database, Directory, Fsync, Journals, Scratch};
use prefixgate::agent::machine::{Bill, Event, Happened, Outcome, Spent};
use prefixgate::usage::Usage;

use super::world::{MODEL, World, happened};

fn kinds(data_dir: &std::path::Path) -> [Box<dyn Journals>; 3] {
    [
        Box::new(Directory::new(data_dir, Fsync::Never)),
        Box::new(Database::open(&data_dir.join("agent.db"), Fsync::Never).unwrap()),
        Box::new(Scratch::default()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_with_what_became_of_them() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    for journals in kinds(dir.path()) {
        for (run, at_ms) in [("old", 10), ("new", 20)] {
            let mut journal = journals.create(run, "main").unwrap();
            let events = [
                Event::Began(Box::new(world.setup(run))),
                Event::Said {
                    text: "\n  Find the bug.\nThen mend it.".to_owned(),
                },
                Event::Ended(Outcome::MaxTurns),
            ];
            for event in events.into_iter().take(if run == "old" { 3 } else { 2 }) {
                journal.append(&Happened { at_ms, event }).unwrap();
            }
        }
        let writing = journals.open("old", "main").unwrap();
        let mut listed = journals
            .list()
            .unwrap()
            .into_iter()
            .map(|listed| listed.summary.unwrap());
        let new = listed.next().unwrap();
        assert_eq!(
            (new.run.as_str(), new.under_way, &new.outcome),
            ("new", false, &None)
        );
        let old = listed.next().unwrap();
        assert_eq!(
            (old.run.as_str(), old.under_way, &old.outcome),
            ("old", true, &None)
        );
        drop(writing);
        let old = journals.summary("old").unwrap();
        assert_eq!(
            (old.under_way, old.outcome),
            (false, Some(Outcome::MaxTurns))
        );
        assert_eq!(old.task, "Find the bug.");
        assert_eq!(old.model, MODEL);
        assert_eq!((old.turns, old.began_ms, old.last_ms), (0, 10, 10));
        assert!(listed.next().is_none());
    }
}

fn cost(output: u64) -> Event {
    Event::Abandoned {
        reason: "cut off".to_owned(),
        bill: Bill {
            usage: Usage {
                uncached: Some(100),
                output: Some(output),
                ..Usage::default()
            },
            pico: Some(output),
        },
    }
}

/// A sub-agent was at work when the program was killed: what it used is in its own journal only.
#[tokio::test(flavor = "multi_thread")]
async fn what_sub_agents_used_before_a_kill_is_not_forgotten() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    for journals in kinds(dir.path()) {
        let write = |agent: &str, events: Vec<Event>| {
            let mut journal = journals.create("r", agent).unwrap();
            let mut setup = world.setup("r");
            agent.clone_into(&mut setup.agent);
            journal
                .append(&happened(Event::Began(Box::new(setup))))
                .unwrap();
            for event in events {
                journal.append(&happened(event)).unwrap();
            }
        };
        let told = Spent {
            answers: 1,
            uncached: 100,
            output: 20,
            pico: 20,
            ..Spent::default()
        };
        let said = Event::Said {
            text: "Go. [[plan:end]]".to_owned(),
        };
        let delegated = Event::Delegated {
            call: "t1".to_owned(),
            spent: told,
        };
        write("main", vec![said, cost(1), delegated]);
        write("first", vec![cost(20)]);
        write("second", vec![cost(300), cost(4000)]);
        let whole = journals.spent("r").unwrap();
        assert_eq!((whole.answers, whole.output, whole.pico), (4, 4321, 4321));
    }
}
