//! No path leads out of the directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prefixgate::agent::tools::{Commands, Root, Toolbox, builtin, run_command};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::{bad, good, one, toolbox};

/// `base/inside` is the root; beside it there is what nobody may see or change.
fn world() -> (TempDir, PathBuf, Arc<Toolbox>) {
    let base = tempfile::tempdir().unwrap();
    let at = base.path().canonicalize().unwrap();
    fs::create_dir_all(at.join("inside/a/b")).unwrap();
    fs::create_dir_all(at.join("outside/deep")).unwrap();
    // The name of the root is the beginning of this one's.
    fs::create_dir_all(at.join("inside-too")).unwrap();
    fs::write(at.join("inside/a/file"), "public").unwrap();
    fs::write(at.join("outside/file"), "SECRET").unwrap();
    fs::write(at.join("outside/treasure"), "SECRET").unwrap();
    fs::write(at.join("outside/deep/treasure"), "SECRET").unwrap();
    fs::write(at.join("inside-too/file"), "SECRET").unwrap();
    symlink("../../outside", at.join("inside/a/out")).unwrap();
    symlink(at.join("outside/file"), at.join("inside/a/leak")).unwrap();
    symlink("b/../out", at.join("inside/a/twice")).unwrap();
    symlink("../../outside/new", at.join("inside/a/dangling")).unwrap();
    symlink("loop", at.join("inside/loop")).unwrap();
    symlink("a", at.join("inside/home")).unwrap();
    symlink("..", at.join("inside/a/b/up")).unwrap();
    let root = Root::new(&at.join("inside")).unwrap();
    let mut tools = builtin(&root);
    tools.push(run_command(&root, Commands::allowing(["*"])));
    (base, at, toolbox(tools))
}

/// Every file outside of the root with its text.
fn outside(at: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![at.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path == at.join("inside") {
                continue;
            }
            if path.is_dir() {
                todo.push(path);
            } else {
                all.insert(path.clone(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    all
}

fn path_of(at: &Path, absolute: bool, parts: &[&str]) -> String {
    let joined = parts.join("/");
    match absolute {
        true => at
            .join("inside")
            .join(joined)
            .to_string_lossy()
            .into_owned(),
        false => joined,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_path_of_links_and_steps_escapes(
        absolute: bool,
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "out", "leak", "twice", "dangling", "loop", "home", "up", "file", "new",
                "..", ".", "", "outside", "deep", "inside", "inside-too",
            ]),
            1..8,
        ),
    ) {
        let (_base, at, tools) = world();
        let before = outside(&at);
        let path = path_of(&at, absolute, &parts);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (tool, input) in [
                ("read_file", json!({"path": path})),
                ("list_files", json!({"path": path})),
                ("search_files", json!({"path": path, "pattern": "SECRET"})),
                ("edit_file", json!({"path": path, "old": "SECRET", "new": "gone"})),
                ("edit_file", json!({"path": path, "new": "mine", "create": true})),
                ("write_file", json!({"path": path, "content": "mine"})),
            ] {
                let result = one(&tools, tool, input).await;
                for seen in ["SECRET", "treasure"] {
                    assert!(!result.text.contains(seen), "{tool} {path}: {}", result.text);
                }
            }
        });
        prop_assert_eq!(before, outside(&at));
    }
}

#[tokio::test]
async fn ways_out_are_refused_by_name() {
    let (_base, at, tools) = world();
    let absolute = at.join("outside/file");
    for path in [
        "../outside/file",
        "a/../../outside/file",
        "a/out/file",
        "a/leak",
        "a/twice/deep/treasure",
        "a/dangling",
        "loop",
        "../inside-too/file",
        "/etc/passwd",
        absolute.to_str().unwrap(),
    ] {
        for (tool, input) in [
            ("read_file", json!({ "path": path })),
            ("write_file", json!({"path": path, "content": "x"})),
        ] {
            let told = bad(&tools, tool, input).await;
            assert_eq!(told["kind"], "outside", "{tool} {path}: {told}");
        }
    }
    let told = bad(
        &tools,
        "run_command",
        json!({"command": "cat file", "cwd": "a/out"}),
    )
    .await;
    assert_eq!(told["kind"], "outside");
    let told = bad(&tools, "read_file", json!({"path": "a\u{0}b"})).await;
    assert_eq!(told["kind"], "invalid_path");
}

#[tokio::test]
async fn ways_that_stay_inside_are_open_whatever_they_look_like() {
    let (_base, at, tools) = world();
    let absolute = at.join("inside/a/file");
    for path in [
        "a/file",
        "./a//file",
        "home/file",
        "a/b/../file",
        "a/b/up/file",
        "home/b/up/b/up/file",
        "../inside/a/file",
        absolute.to_str().unwrap(),
    ] {
        assert_eq!(
            good(&tools, "read_file", json!({ "path": path })).await,
            "public",
            "{path}"
        );
    }
}

#[test]
fn a_root_is_a_directory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Root::new(file.path()).is_err());
    assert!(Root::new(Path::new("/no/such/directory")).is_err());
}
