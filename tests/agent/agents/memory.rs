//! Notes that outlive a run: the same promises in files, SQLite and Redis.

use std::collections::HashMap;
use std::sync::Arc;

use prefixgate::agent::memory::{
    Files, MAX_NAME, MAX_NOTE, MAX_NOTES, Memory, MemoryError, Redis, Sqlite, find, recalled, tool,
};
use prefixgate::agent::tools::{CallContext, ToolError};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::it_support::Redis as Server;

/// Something that can be opened again and again and holds the same notes.
trait Place {
    fn open(&self) -> Arc<dyn Memory>;
}

impl<F: Fn() -> Arc<dyn Memory>> Place for F {
    fn open(&self) -> Arc<dyn Memory> {
        self()
    }
}

async fn promises(place: &dyn Place) {
    let memory = place.open();
    assert!(memory.list().await.unwrap().is_empty());
    assert!(matches!(
        memory.read("none").await,
        Err(MemoryError::Missing(_))
    ));
    assert!(matches!(
        memory.delete("none").await,
        Err(MemoryError::Missing(_))
    ));
    assert_eq!(find(&*memory, "none").await.unwrap(), None);

    // Whatever text, it comes back as it was.
    let odd = "two\nlines, \u{1F980} ' \" \\ \0 \r\n";
    memory.write("b.note-1", odd).await.unwrap();
    assert_eq!(memory.read("b.note-1").await.unwrap(), odd);
    memory.write("b.note-1", "").await.unwrap();
    assert_eq!(memory.read("b.note-1").await.unwrap(), "");
    memory.append("a", "one ").await.unwrap();
    memory.append("a", "two é").await.unwrap();
    assert_eq!(
        find(&*memory, "a").await.unwrap().as_deref(),
        Some("one two é")
    );
    let notes = memory.list().await.unwrap();
    let notes: Vec<_> = notes
        .iter()
        .map(|note| (note.name.as_str(), note.bytes))
        .collect();
    assert_eq!(notes, [("a", 10), ("b.note-1", 0)]);

    // They outlive whoever opened them, and several see the same.
    let other = place.open();
    assert_eq!(other.read("a").await.unwrap(), "one two é");
    other.delete("a").await.unwrap();
    assert!(matches!(
        memory.read("a").await,
        Err(MemoryError::Missing(_))
    ));

    for name in [
        "",
        "..",
        "../up",
        ".hidden",
        "a/b",
        "a b",
        "ä",
        "-x",
        &"x".repeat(MAX_NAME + 1),
    ] {
        for end in [
            memory.write(name, "x").await.err(),
            memory.append(name, "x").await.err(),
            memory.read(name).await.err(),
            memory.delete(name).await.err(),
        ] {
            assert!(
                matches!(end, Some(MemoryError::Name(_))),
                "{name:?}: {end:?}"
            );
        }
    }

    // What is too large is refused whole.
    let most = "x".repeat(MAX_NOTE);
    memory.write("large", &most).await.unwrap();
    assert!(
        matches!(memory.append("large", "y").await, Err(MemoryError::TooLong(n)) if n == MAX_NOTE + 1)
    );
    assert!(matches!(
        memory.write("large", &(most.clone() + "y")).await,
        Err(MemoryError::TooLong(_))
    ));
    assert_eq!(memory.read("large").await.unwrap(), most);

    // Nothing is lost where many add at the same time.
    let others: Vec<_> = (0..4).map(|_| place.open()).collect();
    let added = (0..40).map(|n| {
        let memory = Arc::clone(&others[n % 4]);
        async move { memory.append("many", "x").await }
    });
    for done in futures_util::future::join_all(added).await {
        done.unwrap();
    }
    assert_eq!(memory.read("many").await.unwrap().len(), 40);

    for n in memory.list().await.unwrap().len()..MAX_NOTES {
        memory.write(&format!("n{n}"), "x").await.unwrap();
    }
    assert!(matches!(
        memory.write("more", "x").await,
        Err(MemoryError::Full)
    ));
    assert!(matches!(
        memory.append("more", "x").await,
        Err(MemoryError::Full)
    ));
    memory
        .write("many", "there is room for what is there")
        .await
        .unwrap();
    memory.delete("many").await.unwrap();
    memory.write("more", "x").await.unwrap();
    assert_eq!(memory.list().await.unwrap().len(), MAX_NOTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_keep_what_every_memory_promises() {
    let dir = TempDir::new().unwrap();
    let notes = dir.path().join("deep/notes");
    promises(&|| Arc::new(Files::open(&notes).unwrap()) as Arc<dyn Memory>).await;
    // People may read and edit them.
    std::fs::write(notes.join("more.md"), "edited by hand").unwrap();
    let memory = Files::open(&notes).unwrap();
    assert_eq!(memory.read("more").await.unwrap(), "edited by hand");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&notes), mode(&notes.join("large.md"))),
            (0o700, 0o600)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_what_every_memory_promises() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("notes.db");
    promises(&|| Arc::new(Sqlite::open(&file).unwrap()) as Arc<dyn Memory>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_keeps_what_every_memory_promises() {
    let server = Server::start();
    let url = server.url();
    promises(&|| Arc::new(Redis::new(&url, "notes:test").unwrap()) as Arc<dyn Memory>).await;
}

#[tokio::test]
async fn redis_that_was_gone_is_connected_to_again_and_tells_no_address() {
    let mut server = Server::start();
    let memory = Redis::new(&server.url(), "notes").unwrap();
    memory.write("a", "x").await.unwrap();
    server.kill();
    let error = memory.read("a").await.unwrap_err();
    assert!(
        matches!(&error, MemoryError::Broken { place, .. } if place == "redis"),
        "{error:?}"
    );
    server.run();
    // The first answer after that may still be the old connection's.
    let _ = memory.list().await;
    assert!(memory.list().await.unwrap().is_empty());
}

async fn use_tool(memory: &Arc<dyn Memory>, input: Value) -> Result<String, ToolError> {
    let context = CallContext::new("r/main/1/a", "a", CancellationToken::new());
    tool(Arc::clone(memory)).call(input, context).await
}

#[tokio::test]
async fn the_tool_does_each_of_it_and_says_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let memory: Arc<dyn Memory> = Arc::new(Files::open(dir.path()).unwrap());
    let steps = [
        (json!({"action": "list"}), "no notes"),
        (
            json!({"action": "write", "name": "build", "text": "make first\n"}),
            "kept",
        ),
        (
            json!({"action": "append", "name": "build", "text": "then test\n"}),
            "kept",
        ),
        (
            json!({"action": "read", "name": "build"}),
            "make first\nthen test\n",
        ),
        (json!({"action": "list"}), "build (21)\n"),
        (json!({"action": "delete", "name": "build"}), "forgotten"),
    ];
    for (input, expected) in steps {
        assert_eq!(use_tool(&memory, input).await.unwrap(), expected);
    }
    let mut kinds = HashMap::new();
    for input in [
        json!({"action": "read", "name": "build"}),
        json!({"action": "read"}),
        json!({"action": "write", "name": "x"}),
        json!({"action": "write", "name": "../x", "text": ""}),
        json!({"action": "write", "name": "x", "text": "x".repeat(MAX_NOTE + 1)}),
    ] {
        let error = use_tool(&memory, input.clone()).await.unwrap_err();
        let ToolError::Failed { kind, .. } = &error else {
            panic!("{error:?}")
        };
        *kinds.entry(*kind).or_insert(0) += 1;
    }
    assert_eq!(
        kinds,
        HashMap::from([("not_found", 1), ("invalid_input", 3), ("too_large", 1)])
    );
    let spec = tool(memory).spec();
    let schema: Value = serde_json::from_str(&spec.schema).unwrap();
    assert!(
        schema["allOf"].is_null() && schema["anyOf"].is_null(),
        "providers refuse those"
    );
}

#[test]
fn what_is_remembered_stands_before_the_task() {
    assert_eq!(recalled("do it", None), "do it");
    assert_eq!(recalled("do it", Some(" \n")), "do it");
    let text = recalled("do it", Some("it failed"));
    assert!(text.contains("<memory>\nit failed\n</memory>") && text.ends_with("\n\ndo it"));
}
