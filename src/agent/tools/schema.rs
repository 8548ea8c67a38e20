//! Inputs and their schemas.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::{ToolError, Violation};

/// Violations that are told; the model mends what it reads and meets the rest then.
const MAX_VIOLATIONS: usize = 20;
/// How much of a wrong value is shown, in bytes.
const MAX_GOT: usize = 80;
/// How much of what was expected is shown, in bytes.
const MAX_EXPECTED: usize = 400;

/// Compiles a schema. References to elsewhere are not followed.
///
/// # Errors
/// It is not JSON, or no usable schema; why.
pub fn compile(text: &str) -> Result<Validator, String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    // Patterns in linear time where they can be had so, else with a limit on going back.
    let linear = jsonschema::options().with_pattern_options(PatternOptions::regex());
    linear
        .build(&schema)
        .or_else(|_| jsonschema::options().build(&schema))
        .map_err(|error| error.to_string())
}

/// Checks an input: all violations in one error.
///
/// # Errors
/// It breaks the schema.
pub fn check(validator: &Validator, input: &Value) -> Result<(), ToolError> {
    let mut errors = validator.iter_errors(input);
    let found: Vec<Violation> = errors
        .by_ref()
        .take(MAX_VIOLATIONS)
        .map(violation)
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    let more = if errors.next().is_some() {
        " at least"
    } else {
        ""
    };
    let places = if found.len() == 1 { "place" } else { "places" };
    let message = format!("the input is wrong in{more} {} {places}", found.len());
    Err(ToolError::failed("invalid_input", message)
        .violations(found)
        .hint("nothing was done; call it again with all of these mended"))
}

fn violation(error: ValidationError<'_>) -> Violation {
    let mut path = error.instance_path().to_string();
    let (expected, got) = match error.kind() {
        ValidationErrorKind::Type { kind } => (types(kind), shown(error.instance())),
        ValidationErrorKind::Required { property } => {
            path.push('/');
            path.push_str(property.as_str().unwrap_or_default());
            ("a value (it is required)".to_owned(), "nothing".to_owned())
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = "no members but those of the schema".to_owned();
            (known, unexpected.join(", "))
        }
        ValidationErrorKind::Enum { options } => {
            (format!("one of {options}"), shown(error.instance()))
        }
        ValidationErrorKind::Constant { expected_value } => {
            (expected_value.to_string(), shown(error.instance()))
        }
        // The rest says it well enough by itself, with the value taken out.
        _ => (error.masked().to_string(), shown(error.instance())),
    };
    Violation {
        path,
        expected: crate::text::prefix(&expected, MAX_EXPECTED).to_owned(),
        got,
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(many) => {
            let names: Vec<String> = many.iter().map(|one| one.to_string()).collect();
            names.join(" or ")
        }
    }
}

/// A value and what it is: `5` alone does not say whether it was a number or a string.
fn shown(value: &Value) -> String {
    let (kind, size) = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(_) => ("boolean", None),
        Value::Number(_) => ("number", None),
        Value::String(_) => ("string", None),
        Value::Array(items) => ("array", Some(items.len())),
        Value::Object(members) => ("object", Some(members.len())),
    };
    if let Some(size) = size {
        return format!("{kind} of {size}");
    }
    let text = value.to_string();
    let short = crate::text::prefix(&text, MAX_GOT);
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{kind} {short}{dots}")
}
