//! The tools a request declares: for the script that chooses among them, and for writing its calls.

use super::error::OpenAiError;
use super::validate;
use crate::sim::json::{Json, quote};

/// Types of tools that Responses knows beside functions, custom tools, namespaces and shells.
/// Source: SDK types, Nov 2026.
const HOSTED: &[&str] = &[
    "file_search",
    "computer",
    "computer_use_preview",
    "computer-use-preview",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "mcp",
    "code_interpreter",
    "programmatic_tool_calling",
    "image_generation",
    "tool_search",
    "apply_patch",
];

/// How a call of a tool is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// With JSON arguments; in the namespace, if any.
    Function(Option<String>),
    /// With free text.
    Custom(Option<String>),
    /// With a script that calls a shell: how Codex lets the newest models work.
    Code(Option<String>),
    /// `local_shell_call`.
    LocalShell,
    /// `shell_call`.
    Shell,
}

/// A tool that the model can call by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name in the script: with its namespace, where it has one.
    pub known_as: String,
    /// Its own name.
    pub name: String,
    /// How it is called.
    pub form: Form,
    schema: String,
}

impl Declared {
    fn new(name: String, namespace: Option<&str>, form: Form, schema: String) -> Self {
        let known_as = namespace.map_or_else(|| name.clone(), |space| format!("{space}.{name}"));
        Self {
            known_as,
            name,
            form,
            schema,
        }
    }

    /// The tool as the script reads it.
    #[must_use]
    pub fn for_script(&self) -> Json {
        let text = format!(
            r#"{{"name":{},"input_schema":{}}}"#,
            quote(&self.known_as),
            self.schema
        );
        // Both parts came out of JSON.
        Json::parse(text.as_bytes()).unwrap_or(Json::Null)
    }
}

/// The shell that scripts call.
const SHELL_IN_CODE: &str = "exec_command";

/// What a custom tool's input is called in the script.
const INPUT: &str = "input";

const CUSTOM_SCHEMA: &str =
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

const LOCAL_SHELL_SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}}},"required":["command"]}"#;

const SHELL_SCHEMA: &str = r#"{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}}},"required":["commands"]}"#;

fn function(
    tool: &Json,
    at: &str,
    namespace: Option<&str>,
    strict: bool,
) -> Result<Declared, OpenAiError> {
    let name = validate::tool_name(tool, at)?;
    let schema = match tool.given("parameters") {
        None => r#"{"type":"object","properties":{}}"#.to_owned(),
        Some(schema @ Json::Obj(_)) => schema.compact(),
        Some(_) => {
            return Err(OpenAiError::kind_of_value(
                validate::path(at, "parameters"),
                "an object",
            ));
        }
    };
    if strict {
        validate::switch(tool, at, "strict")?;
    }
    let form = Form::Function(namespace.map(str::to_owned));
    Ok(Declared::new(name, namespace, form, schema))
}

fn custom(tool: &Json, at: &str, namespace: Option<&str>) -> Result<Declared, OpenAiError> {
    let name = validate::tool_name(tool, at)?;
    let code = name == "exec"
        && tool
            .text_of("description")
            .is_some_and(|about| about.contains("JavaScript") && about.contains(SHELL_IN_CODE));
    if code {
        return Ok(Declared {
            known_as: SHELL_IN_CODE.to_owned(),
            name,
            form: Form::Code(namespace.map(str::to_owned)),
            schema: CUSTOM_SCHEMA.to_owned(),
        });
    }
    let form = Form::Custom(namespace.map(str::to_owned));
    Ok(Declared::new(
        name,
        namespace,
        form,
        CUSTOM_SCHEMA.to_owned(),
    ))
}

/// The tools of a Chat request.
///
/// # Errors
/// 400 for another shape, and for an empty list.
pub fn of_chat(body: &Json, strict: bool) -> Result<Vec<Declared>, OpenAiError> {
    let Some(tools) = validate::list(body, "", "tools")? else {
        return Ok(Vec::new());
    };
    if tools.is_empty() && strict {
        return Err(OpenAiError::invalid(
            "Invalid 'tools': empty array. Expected an array with minimum length 1.",
        )
        .code("empty_array")
        .param("tools"));
    }
    let mut declared = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let at = format!("tools[{index}]");
        let kind = validate::needed_text(tool, &at, "type")?;
        let inner = validate::path(&at, &kind);
        let part = || {
            tool.given(&kind)
                .ok_or_else(|| OpenAiError::missing(inner.clone()))
        };
        declared.push(match kind.as_str() {
            "function" => function(part()?, &inner, None, strict)?,
            "custom" => custom(part()?, &inner, None)?,
            other => {
                return Err(OpenAiError::value(
                    validate::path(&at, "type"),
                    other,
                    &["function", "custom"],
                ));
            }
        });
    }
    Ok(declared)
}

/// The tools of a Responses request. Hosted tools are accepted and never called.
///
/// # Errors
/// 400 for an unknown type or another shape.
pub fn of_responses(body: &Json, strict: bool) -> Result<Vec<Declared>, OpenAiError> {
    let mut declared = Vec::new();
    within(body, "", strict, &mut declared)?;
    Ok(declared)
}

/// The `tools` of a body, or of an item that brings more of them.
///
/// # Errors
/// 400 for an unknown type or another shape.
pub fn within(
    holder: &Json,
    at: &str,
    strict: bool,
    declared: &mut Vec<Declared>,
) -> Result<(), OpenAiError> {
    let tools = validate::list(holder, at, "tools")?.unwrap_or_default();
    let at = validate::path(at, "tools");
    for (index, tool) in tools.iter().enumerate() {
        one(tool, &format!("{at}[{index}]"), None, strict, declared)?;
    }
    Ok(())
}

fn one(
    tool: &Json,
    at: &str,
    namespace: Option<&str>,
    strict: bool,
    declared: &mut Vec<Declared>,
) -> Result<(), OpenAiError> {
    let kind = validate::needed_text(tool, at, "type")?;
    match kind.as_str() {
        "function" => declared.push(function(tool, at, namespace, strict)?),
        "custom" => declared.push(custom(tool, at, namespace)?),
        "local_shell" => declared.push(Declared::new(
            kind,
            None,
            Form::LocalShell,
            LOCAL_SHELL_SCHEMA.to_owned(),
        )),
        "shell" => declared.push(Declared::new(
            kind,
            None,
            Form::Shell,
            SHELL_SCHEMA.to_owned(),
        )),
        "namespace" if namespace.is_none() => {
            let name = validate::tool_name(tool, at)?;
            let inner = validate::list(tool, at, "tools")?
                .ok_or_else(|| OpenAiError::missing(validate::path(at, "tools")))?;
            for (index, tool) in inner.iter().enumerate() {
                one(
                    tool,
                    &format!("{at}.tools[{index}]"),
                    Some(&name),
                    strict,
                    declared,
                )?;
            }
        }
        other if HOSTED.contains(&other) => {}
        other => {
            let known: Vec<&str> = ["function", "custom", "namespace", "shell", "local_shell"]
                .iter()
                .chain(HOSTED)
                .copied()
                .collect();
            return Err(OpenAiError::value(
                validate::path(at, "type"),
                other,
                &known,
            ));
        }
    }
    Ok(())
}

/// The text that a custom tool is called with.
#[must_use]
pub fn custom_input(input: &str) -> String {
    Json::parse(input.as_bytes())
        .ok()
        .and_then(|input| input.text_of(INPUT))
        .unwrap_or_else(|| input.to_owned())
}

/// The script that a code tool is called with.
#[must_use]
pub fn code_input(input: &str) -> String {
    format!(
        "const result = await tools.{SHELL_IN_CODE}({{\"cmd\": {}}});\ntext(result);\n",
        quote(&custom_input(input))
    )
}

/// Reads `tool_choice`: the name of the tool that must be called, if one must; whether tools may be
/// called at all.
///
/// # Errors
/// 400 for an unknown word, and for a choice without tools.
pub fn choice(
    body: &Json,
    declared: &[Declared],
    has_tools: bool,
) -> Result<(Option<String>, bool), OpenAiError> {
    let Some(choice) = body.given("tool_choice") else {
        return Ok((None, true));
    };
    let first = || declared.first().map(|tool| tool.known_as.clone());
    if let Some(word) = choice.text() {
        return match word.as_str() {
            "none" => Ok((None, false)),
            "auto" => Ok((None, true)),
            "required" if has_tools => Ok((first(), true)),
            "required" => Err(OpenAiError::invalid(
                "Tool choice 'required' must be specified with 'tools'.",
            )
            .param("tool_choice")),
            other => Err(OpenAiError::value(
                "tool_choice",
                other,
                &["none", "auto", "required"],
            )),
        };
    }
    let kind = validate::needed_text(choice, "tool_choice", "type")?;
    if kind == "allowed_tools" {
        let inner = choice.given("allowed_tools").unwrap_or(choice);
        let required = inner.get("mode").is_some_and(|mode| mode.is("required"));
        return Ok((first().filter(|_| required), true));
    }
    let name = choice
        .text_of("name")
        .or_else(|| choice.given(&kind).and_then(|inner| inner.text_of("name")));
    let Some(name) = name else {
        // A hosted tool, which is never called here.
        return Ok((None, true));
    };
    let named = declared.iter().find(|tool| tool.name == name);
    match named {
        Some(tool) => Ok((Some(tool.known_as.clone()), true)),
        None => Err(OpenAiError::invalid(format!(
            "Tool choice '{name}' not found in 'tools' parameter."
        ))
        .param("tool_choice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn tools_of_both_formats_are_read() {
        let chat = json(
            r#"{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"custom","custom":{"name":"c"}}]}"#,
        );
        let names = |declared: Vec<Declared>| {
            declared
                .into_iter()
                .map(|tool| tool.known_as)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(of_chat(&chat, true).unwrap()), ["f", "c"]);
        let responses = json(
            r#"{"tools":[{"type":"function","name":"f","parameters":null,"strict":true},{"type":"web_search"},
                {"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"g"}]},{"type":"local_shell"}]}"#,
        );
        assert_eq!(
            names(of_responses(&responses, true).unwrap()),
            ["f", "n.g", "local_shell"]
        );
    }

    #[test]
    fn the_shape_of_one_format_is_refused_by_the_other() {
        let flat = json(r#"{"tools":[{"type":"function","name":"f"}]}"#);
        let error = of_chat(&flat, true).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tools[0].function"));
        let nested = json(r#"{"tools":[{"type":"function","function":{"name":"f"}}]}"#);
        let error = of_responses(&nested, true).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tools[0].name"));
        assert!(of_chat(&json(r#"{"tools":[]}"#), true).is_err());
        assert!(of_responses(&json(r#"{"tools":[{"type":"x"}]}"#), true).is_err());
    }

    #[test]
    fn a_choice_names_a_declared_tool() {
        let tools = of_responses(&json(r#"{"tools":[{"type":"function","name":"f"}]}"#), true);
        let tools = tools.unwrap();
        let ask = |text: &str| choice(&json(text), &tools, true);
        assert_eq!(ask("{}"), Ok((None, true)));
        assert_eq!(ask(r#"{"tool_choice":"none"}"#), Ok((None, false)));
        assert_eq!(
            ask(r#"{"tool_choice":"required"}"#),
            Ok((Some("f".into()), true))
        );
        assert_eq!(
            ask(r#"{"tool_choice":{"type":"function","function":{"name":"f"}}}"#),
            Ok((Some("f".into()), true))
        );
        assert!(ask(r#"{"tool_choice":{"type":"function","name":"g"}}"#).is_err());
        assert!(choice(&json(r#"{"tool_choice":"required"}"#), &[], false).is_err());
    }
}
