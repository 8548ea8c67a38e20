//! The tools that come with it: files below one directory, commands, pages.
//!
//! | file | what is there |
//! |---|---|
//! | `root` | the directory that they see, and the way to a file in it |
//! | `read`, `write`, `edit` | one file |
//! | `nearest` | where a text that was not found may have been meant |
//! | `walk`, `pattern` | all files of a directory, and patterns of names |
//! | `list`, `search` | many files |
//! | `command`, `output` | programs, and what they write |
//! | `fetch`, `address` | pages, and the addresses that they must not come from |

mod address;
mod command;
mod edit;
mod fetch;
mod list;
mod nearest;
mod output;
mod pattern;
mod read;
mod root;
mod search;
mod walk;
mod write;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

pub use command::{CALL_KEY, Commands, run_command};
pub use edit::edit_file;
pub use fetch::{Fetch, fetch_url};
pub use list::list_files;
pub use read::read_file;
pub use root::Root;
pub use search::search_files;
pub use write::write_file;

use super::{Manners, Tool, ToolResult, typed};

/// All tools for the files of this directory. Commands and pages are to be added by whoever wants
/// to allow them: [`run_command`], [`fetch_url`].
#[must_use]
pub fn builtin(root: &Root) -> Vec<Arc<dyn Tool>> {
    vec![
        list_files(root),
        search_files(root),
        read_file(root),
        edit_file(root),
        write_file(root),
    ]
}

/// A tool whose work is on files, and so on a thread that may block. Long work looks at the token.
fn on_files<Input>(
    root: &Root,
    name: &str,
    description: &str,
    manners: Manners,
    work: fn(&Root, Input, &CancellationToken) -> ToolResult,
) -> Arc<dyn Tool>
where
    Input: DeserializeOwned + JsonSchema + Send + 'static,
{
    let root = root.clone();
    typed(name, description, manners, move |input: Input, context| {
        let root = root.clone();
        async move {
            let token = context.cancelled.clone();
            context.blocking(move || work(&root, input, &token)).await
        }
    })
}
