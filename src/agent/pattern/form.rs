//! Answers in a form: JSON that a schema describes, written into the text of an answer. This works
//! with every model and format, leaves the tools as they are, and so the cache of the prompt.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Violations that are told.
const MAX_VIOLATIONS: usize = 10;

/// Reads a form out of an answer; the error tells the model everything that is wrong.
pub fn read<T: DeserializeOwned>(text: &str, schema: &str) -> Result<T, String> {
    let value = object(text).ok_or("there is no JSON object in the answer")?;
    // The schemas are this crate's own.
    let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let validator = jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
    let wrong: Vec<String> = validator
        .iter_errors(&value)
        .take(MAX_VIOLATIONS)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The object in a text, which may stand in a fence or between sentences: the first brace from
/// which on a whole object can be read.
fn object(text: &str) -> Option<Value> {
    let starts = text.match_indices('{').map(|(at, _)| at);
    starts.take(64).find_map(|at| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        values.next()?.ok().filter(Value::is_object)
    })
}
