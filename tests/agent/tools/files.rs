//! Files below a directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use prefixgate::agent::tools::{Root, Toolbox, builtin};
use serde_json::json;
use tempfile::TempDir;

use super::{bad, good, toolbox};

fn tree(files: &[(&str, &str)]) -> (TempDir, Arc<Toolbox>) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let full = dir.path().join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, text).unwrap();
    }
    let root = Root::new(dir.path()).unwrap();
    (dir, toolbox(builtin(&root)))
}

#[tokio::test]
async fn a_file_is_read_whole_in_part_and_numbered() {
    let (_dir, tools) = tree(&[("a.txt", "one\ntwo\nthree"), ("empty", "")]);
    assert_eq!(
        good(&tools, "read_file", json!({"path": "a.txt"})).await,
        "one\ntwo\nthree"
    );
    assert_eq!(
        good(
            &tools,
            "read_file",
            json!({"path": "a.txt", "from_line": 2, "lines": 1})
        )
        .await,
        "two\n[lines 2 to 2 of 3; the next is from_line 3]\n"
    );
    assert_eq!(
        good(
            &tools,
            "read_file",
            json!({"path": "a.txt", "from_line": 2, "numbered": true})
        )
        .await,
        "     2\ttwo\n     3\tthree"
    );
    assert_eq!(
        good(&tools, "read_file", json!({"path": "empty"})).await,
        "(the file is empty)"
    );
    let beyond = bad(
        &tools,
        "read_file",
        json!({"path": "a.txt", "from_line": 4}),
    )
    .await;
    assert_eq!(beyond["message"], "a.txt has only 3 lines");
    let zero = bad(
        &tools,
        "read_file",
        json!({"path": "a.txt", "from_line": 0}),
    )
    .await;
    assert_eq!(zero["violations"][0]["path"], "/from_line");
}

#[tokio::test]
async fn a_long_file_is_read_on_where_the_note_says() {
    let all: String = (1..=5000).map(|line| format!("line {line} é\n")).collect();
    let (_dir, tools) = tree(&[("long.txt", &all)]);
    let mut from = 1;
    let mut read = String::new();
    loop {
        let text = good(
            &tools,
            "read_file",
            json!({"path": "long.txt", "from_line": from}),
        )
        .await;
        assert!(text.len() < 30_000, "cut by the tool, at a line");
        let Some((lines, note)) = text.split_once('[') else {
            read.push_str(&text);
            break;
        };
        read.push_str(lines);
        from = note
            .split("from_line ")
            .nth(1)
            .unwrap()
            .trim_end_matches("]\n")
            .parse()
            .unwrap();
    }
    assert_eq!(read, all);
}

#[tokio::test]
async fn a_line_without_end_is_shortened() {
    let (_dir, tools) = tree(&[("min.js", &"é".repeat(100_000))]);
    let text = good(&tools, "read_file", json!({"path": "min.js"})).await;
    assert!(text.len() < 5_000 && text.contains("bytes left out"));
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_with_the_reason() {
    let (dir, tools) = tree(&[("sub/x", "x"), ("readme.md", "hello")]);
    fs::write(dir.path().join("image.png"), b"\x89PNG\0\0").unwrap();
    let kind = |path: &str| {
        let tools = Arc::clone(&tools);
        let input = json!({ "path": path });
        async move { bad(&tools, "read_file", input).await }
    };
    assert_eq!(kind("image.png").await["kind"], "binary");
    assert_eq!(kind("sub").await["kind"], "is_directory");
    let missing = kind("raedme.md").await;
    assert_eq!(missing["kind"], "not_found");
    let hint = missing["hint"].as_str().unwrap();
    assert!(hint.starts_with("nearest names in .: readme.md"), "{hint}");
    // A pipe would never end.
    let pipe = dir.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(kind("pipe").await["kind"], "not_a_file");
    let huge = fs::File::create(dir.path().join("huge")).unwrap();
    huge.set_len(50 << 20).unwrap();
    assert_eq!(kind("huge").await["kind"], "too_large");
}

#[tokio::test]
async fn a_file_is_written_whole_with_its_mode_kept_and_nothing_left_beside_it() {
    let (dir, tools) = tree(&[("run.sh", "old")]);
    let script = dir.path().join("run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o754)).unwrap();
    let told = good(
        &tools,
        "write_file",
        json!({"path": "run.sh", "content": "new\n"}),
    )
    .await;
    assert_eq!(told, "wrote 4 bytes, 1 lines to run.sh (replaced)");
    assert_eq!(fs::read_to_string(&script).unwrap(), "new\n");
    assert_eq!(
        fs::metadata(&script).unwrap().permissions().mode() & 0o777,
        0o754
    );
    let told = good(
        &tools,
        "write_file",
        json!({"path": "a/b/c.txt", "content": "é"}),
    )
    .await;
    assert_eq!(told, "wrote 2 bytes, 1 lines to a/b/c.txt (new file)");
    let failed = bad(&tools, "write_file", json!({"path": "a", "content": ""})).await;
    assert_eq!(failed["kind"], "is_directory");
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|at| at.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "run.sh"]);
}

#[tokio::test]
async fn writing_through_a_link_changes_what_it_leads_to() {
    let (dir, tools) = tree(&[("real.txt", "old")]);
    symlink("real.txt", dir.path().join("link.txt")).unwrap();
    good(
        &tools,
        "write_file",
        json!({"path": "link.txt", "content": "new"}),
    )
    .await;
    assert_eq!(
        fs::read_to_string(dir.path().join("real.txt")).unwrap(),
        "new"
    );
    assert!(
        dir.path()
            .join("link.txt")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
}

#[tokio::test]
async fn a_text_is_replaced_where_it_stands_alone() {
    let (dir, tools) = tree(&[("lib.rs", "fn a() {}\nfn b() {}\nfn c() {}\n")]);
    let input = json!({"path": "lib.rs", "old": "fn b() {}", "new": "fn b() -> u8 {\n    1\n}"});
    let told = good(&tools, "edit_file", input).await;
    assert_eq!(
        told,
        "replaced 1 place in lib.rs, line 2:\n     1\tfn a() {}\n     2\tfn b() -> u8 {\n     3\t    1\n     4\t}\n     5\tfn c() {}\n"
    );
    let now = fs::read_to_string(dir.path().join("lib.rs")).unwrap();
    assert_eq!(now, "fn a() {}\nfn b() -> u8 {\n    1\n}\nfn c() {}\n");
}

#[tokio::test]
async fn an_ambiguous_text_is_not_replaced_unless_all_of_it_is_meant() {
    let (dir, tools) = tree(&[("a.txt", "x\ny\nx\n")]);
    let told = bad(
        &tools,
        "edit_file",
        json!({"path": "a.txt", "old": "x", "new": "z"}),
    )
    .await;
    assert_eq!(told["kind"], "ambiguous");
    assert_eq!(
        told["message"],
        "the text stands in 2 places of a.txt: lines 1, 3"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("a.txt")).unwrap(),
        "x\ny\nx\n"
    );
    let input = json!({"path": "a.txt", "old": "x", "new": "z", "replace_all": true});
    let told = good(&tools, "edit_file", input).await;
    assert!(
        told.starts_with("replaced 2 places, the first in a.txt, line 1:"),
        "{told}"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("a.txt")).unwrap(),
        "z\ny\nz\n"
    );
}

#[tokio::test]
async fn a_text_that_is_not_there_is_answered_with_what_may_have_been_meant() {
    let text = "fn main() {\n    let limit = 10;\n\tlet other = 20;\n}\n";
    let (_dir, tools) = tree(&[("a.rs", text), ("dos.txt", "one\r\ntwo\r\n")]);
    let hint = |path: &str, old: &str| {
        let tools = Arc::clone(&tools);
        let input = json!({"path": path, "old": old, "new": "x"});
        async move {
            let told = bad(&tools, "edit_file", input).await;
            assert_eq!(told["kind"], "no_match");
            told["hint"].as_str().unwrap().to_owned()
        }
    };
    let near = hint("a.rs", "let limits = 10;").await;
    assert!(
        near.starts_with("nearest lines:\nline 2: let limit = 10;"),
        "{near}"
    );
    let space = hint("a.rs", "let limit = 10;\n    let other = 20;").await;
    assert!(
        space.starts_with("from line 2 on it stands there with other white space"),
        "{space}"
    );
    assert!(hint("dos.txt", "one\ntwo").await.contains("\\r\\n"));
    assert!(
        hint("a.rs", "zzzzzz qqqqqq")
            .await
            .starts_with("no line is like it")
    );
}

#[tokio::test]
async fn an_edit_may_create_a_file_but_not_over_another() {
    let (dir, tools) = tree(&[("old.txt", "old")]);
    let create = |path: &str| json!({"path": path, "new": "hello\n", "create": true});
    good(&tools, "edit_file", create("new/file.txt")).await;
    assert_eq!(
        fs::read_to_string(dir.path().join("new/file.txt")).unwrap(),
        "hello\n"
    );
    assert_eq!(
        bad(&tools, "edit_file", create("old.txt")).await["kind"],
        "exists"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("old.txt")).unwrap(),
        "old"
    );
    let same = json!({"path": "old.txt", "old": "old", "new": "old"});
    assert_eq!(
        bad(&tools, "edit_file", same).await["kind"],
        "invalid_input"
    );
    let empty = json!({"path": "old.txt", "new": "x"});
    assert_eq!(
        bad(&tools, "edit_file", empty).await["kind"],
        "invalid_input"
    );
}

const TREE: &[(&str, &str)] = &[
    ("src/main.rs", "fn main() {\n    parse(1);\n}\n"),
    (
        "src/deep/parse.rs",
        "pub fn parse(n: u8) -> u8 {\n    n\n}\n",
    ),
    ("src/deep/parse.py", "def parse(n): pass\n"),
    ("README.md", "Parse things.\n"),
    (".hidden/x.rs", "parse\n"),
    (".git/config", "parse\n"),
];

#[tokio::test]
async fn a_directory_is_listed_and_patterns_find_files_at_any_depth() {
    let (dir, tools) = tree(TREE);
    symlink("/", dir.path().join("src/away")).unwrap();
    assert_eq!(
        good(&tools, "list_files", json!({})).await,
        "README.md\nsrc/\n"
    );
    assert_eq!(
        good(&tools, "list_files", json!({"path": "src"})).await,
        "src/away\nsrc/deep/\nsrc/main.rs\n"
    );
    for (pattern, found) in [
        ("*.rs", "src/deep/parse.rs\nsrc/main.rs\n"),
        ("src/*.rs", "src/main.rs\n"),
        ("src/**/*.rs", "src/deep/parse.rs\nsrc/main.rs\n"),
        ("**/parse.{rs,py}", "src/deep/parse.py\nsrc/deep/parse.rs\n"),
        ("[A-Z]*.md", "README.md\n"),
        ("[!R]*.md", "(nothing fits)"),
        ("mai?.rs", "src/main.rs\n"),
        ("*.r", "(nothing fits)"),
    ] {
        assert_eq!(
            good(&tools, "list_files", json!({"pattern": pattern})).await,
            found,
            "{pattern}"
        );
    }
    let hidden = good(
        &tools,
        "list_files",
        json!({"pattern": "*", "hidden": true}),
    )
    .await;
    assert!(
        hidden.contains(".hidden/x.rs") && !hidden.contains(".git/"),
        "{hidden}"
    );
    let below = json!({"path": "src", "pattern": "deep/*"});
    assert_eq!(
        good(&tools, "list_files", below).await,
        "src/deep/parse.py\nsrc/deep/parse.rs\n"
    );
    for pattern in ["[a", "{a,b", "[z-a]"] {
        let told = bad(&tools, "list_files", json!({"pattern": pattern})).await;
        assert_eq!(told["kind"], "invalid_pattern", "{pattern}");
    }
}

#[tokio::test]
async fn texts_are_found_with_their_lines() {
    let (dir, tools) = tree(TREE);
    fs::write(dir.path().join("data.bin"), b"parse\0").unwrap();
    let found = good(&tools, "search_files", json!({"pattern": "parse\\("})).await;
    assert_eq!(
        found,
        "src/deep/parse.py:1: def parse(n): pass\nsrc/deep/parse.rs:1: pub fn parse(n: u8) -> u8 {\nsrc/main.rs:2:     parse(1);\n"
    );
    let only = json!({"pattern": "parse", "files": "*.rs", "path": "src/deep"});
    let found = good(&tools, "search_files", only).await;
    assert_eq!(found, "src/deep/parse.rs:1: pub fn parse(n: u8) -> u8 {\n");
    let case = json!({"pattern": "PARSE things.", "literal": true, "ignore_case": true});
    assert_eq!(
        good(&tools, "search_files", case).await,
        "README.md:1: Parse things.\n"
    );
    let file = json!({"pattern": "main", "path": "src/main.rs"});
    assert_eq!(
        good(&tools, "search_files", file).await,
        "src/main.rs:1: fn main() {\n"
    );
    let none = good(&tools, "search_files", json!({"pattern": "nowhere"})).await;
    assert_eq!(none, "(no match in 5 files)");
    let wrong = bad(&tools, "search_files", json!({"pattern": "parse("})).await;
    assert_eq!(wrong["kind"], "invalid_pattern");
    assert_eq!(wrong["hint"], "set literal to search for it as plain text");
}

#[tokio::test]
async fn lists_and_matches_without_end_stop_and_say_so() {
    let names: Vec<String> = (0..600).map(|number| format!("f{number:03}.txt")).collect();
    let line = format!("needle {}", "x".repeat(1000));
    let files: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), line.as_str()))
        .collect();
    let (_dir, tools) = tree(&files);
    let listed = good(&tools, "list_files", json!({})).await;
    assert_eq!(listed.lines().count(), 501);
    assert!(listed.ends_with("[there is more; narrow it by path or pattern]\n"));
    let found = good(
        &tools,
        "search_files",
        json!({"pattern": "needle", "limit": 7}),
    )
    .await;
    assert_eq!(found.lines().count(), 8);
    assert!(
        found.lines().all(|line| line.len() < 400),
        "long lines are shortened"
    );
    assert!(found.ends_with("[there is more; narrow it by path, files or pattern]\n"));
}
