//! Choosing among the tools that a request declares, and inventing valid input for them.

use serde_json::{Map, Value};

use super::json::Json;

const SHELL: &[&str] = &[
    "Bash",
    "bash",
    "run_shell_command",
    "exec_command",
    "shell_command",
    "shell",
    "execute_command",
    "run_commands",
    "local_shell",
    "run_bash",
    "execute_bash",
    "terminal",
];
const READ: &[&str] = &[
    "Read",
    "read",
    "read_file",
    "view",
    "view_file",
    "read_files",
];
const AGENT: &[&str] = &[
    "Agent",
    "Task",
    "task",
    "agent",
    "spawn_agent",
    "use_subagents",
    "delegate_to_agent",
    "subagent",
    "invoke_agent",
];
const SEARCH: &[&str] = &["ToolSearch", "tool_search"];

/// Deepest schema that is followed.
const MAX_DEPTH: u32 = 4;

/// A declared tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its input schema.
    pub schema: Option<Json>,
}

/// A call the model makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// The input, as JSON text.
    pub input: String,
}

impl Call {
    fn new(tool: &Tool, input: Map<String, Value>) -> Self {
        Self {
            name: tool.name.clone(),
            input: Value::Object(input).to_string(),
        }
    }
}

/// The tools a model can call by itself: those with a schema, and the built-in shell.
#[must_use]
pub fn declared(tools: &[Json]) -> Vec<Tool> {
    tools
        .iter()
        .filter_map(|tool| {
            let name = tool.text_of("name")?;
            let schema = tool.given("input_schema").cloned();
            (schema.is_some() || name == "bash").then_some(Tool { name, schema })
        })
        .collect()
}

/// The call for one word of a plan; `None` when no declared tool can serve it.
#[must_use]
pub fn choose(word: &str, tools: &[Tool], step: usize, workdir: &str) -> Option<Call> {
    match word {
        "shell_ok" => shell(tools, &format!("echo hello-{step}")),
        "shell_fail" => shell(tools, &format!("ls /nonexistent-{step}")),
        "same_fail" => shell(tools, "cat /nonexistent-same"),
        "shell_big" => shell(tools, "seq 1 3000"),
        "shell_submit" => shell(tools, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        "read" | "read_missing" => {
            let missing = word == "read_missing";
            let Some(tool) = find(tools, READ) else {
                return choose(
                    if missing { "shell_fail" } else { "shell_ok" },
                    tools,
                    step,
                    workdir,
                );
            };
            let file = format!(
                "{workdir}/{}",
                if missing { "missing.txt" } else { "hello.txt" }
            );
            Some(read(tool, &file))
        }
        "badargs" => {
            let tool = find(tools, SHELL).or(tools.first())?;
            let input = Map::from_iter([("wrong_parameter".to_owned(), Value::from(1))]);
            Some(Call::new(tool, input))
        }
        "unknown" => Some(Call {
            name: "no_such_tool".to_owned(),
            input: r#"{"a":1}"#.to_owned(),
        }),
        "agent" | "agent_cap" | "agent_fg" | "agent_haiku" | "nest" => match find(tools, AGENT) {
            Some(tool) => Some(agent(tool, word)),
            None => choose("shell_ok", tools, step, workdir),
        },
        "ts" => match find(tools, SEARCH) {
            Some(tool) => {
                let mut input = filled(tool);
                input.insert("query".to_owned(), "select:WebFetch,Monitor".into());
                Some(Call::new(tool, input))
            }
            None => choose("shell_ok", tools, step, workdir),
        },
        other => {
            let named = other.strip_prefix("tool=").unwrap_or_default();
            let (name, members) = named.split_once(';').unwrap_or((named, ""));
            let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
                return tools.first().map(call_with_filled_input);
            };
            let mut input = filled(tool);
            for (key, value) in members.split(';').filter_map(|one| one.split_once('=')) {
                let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
                input.insert(key.to_owned(), value);
            }
            Some(Call::new(tool, input))
        }
    }
}

/// A call with the least input that the schema allows.
#[must_use]
pub fn call_with_filled_input(tool: &Tool) -> Call {
    Call::new(tool, filled(tool))
}

fn find<'a>(tools: &'a [Tool], names: &[&str]) -> Option<&'a Tool> {
    let exact = names
        .iter()
        .find_map(|name| tools.iter().find(|tool| tool.name == *name));
    exact.or_else(|| {
        names.iter().find_map(|name| {
            let name = name.to_lowercase();
            tools.iter().find(|tool| {
                let own = tool.name.to_lowercase();
                own.ends_with(&format!("__{name}")) || own.ends_with(&format!(".{name}"))
            })
        })
    })
}

fn property<'a>(tool: &'a Tool, name: &str) -> Option<&'a Json> {
    tool.schema.as_ref()?.given("properties")?.given(name)
}

fn requires(tool: &Tool, name: &str) -> bool {
    let required = tool
        .schema
        .as_ref()
        .and_then(|schema| schema.given("required"));
    required.is_some_and(|names| names.items().iter().any(|item| item.is(name)))
}

fn is_array(schema: &Json) -> bool {
    schema
        .text_of("type")
        .is_some_and(|kind| kind.eq_ignore_ascii_case("array"))
}

fn filled(tool: &Tool) -> Map<String, Value> {
    tool.schema
        .as_ref()
        .map_or_else(Map::new, |schema| object(schema, 0))
}

fn shell(tools: &[Tool], command: &str) -> Option<Call> {
    let Some(tool) = find(tools, SHELL) else {
        return tools.first().map(call_with_filled_input);
    };
    let mut input = filled(tool);
    let keys = ["command", "cmd", "commands", "script", "input", "code"];
    if let Some((key, schema)) = keys
        .iter()
        .find_map(|key| Some((*key, property(tool, key)?)))
    {
        let value = if !is_array(schema) {
            command.into()
        } else if key == "command" {
            Value::from(vec!["bash", "-lc", command])
        } else if let Some(Value::Object(mut item)) =
            schema.given("items").map(|items| fill(Some(items), 1))
        {
            item.insert("command".to_owned(), command.into());
            Value::Array(vec![Value::Object(item)])
        } else {
            Value::from(vec![command])
        };
        input.insert(key.to_owned(), value);
    } else if tool.schema.is_none() {
        input.insert("command".to_owned(), command.into());
    }
    if property(tool, "description").is_some() {
        input.insert("description".to_owned(), "Run a test command".into());
    }
    if requires(tool, "is_background") {
        input.insert("is_background".to_owned(), false.into());
    }
    if property(tool, "requires_approval").is_some() {
        input.insert("requires_approval".to_owned(), false.into());
    }
    if requires(tool, "timeout") {
        input.insert("timeout".to_owned(), 20_000.into());
    }
    Some(Call::new(tool, input))
}

fn read(tool: &Tool, file: &str) -> Call {
    let mut input = filled(tool);
    for key in ["file_path", "filePath", "path", "absolute_path"] {
        if property(tool, key).is_some() {
            input.insert(key.to_owned(), file.into());
        }
    }
    if let Some(files) = property(tool, "files")
        && let Value::Object(mut item) = fill(files.given("items"), 1)
    {
        item.insert("path".to_owned(), file.into());
        input.insert("files".to_owned(), Value::Array(vec![Value::Object(item)]));
    }
    if property(tool, "paths").is_some() {
        input.insert("paths".to_owned(), Value::from(vec![file]));
    }
    Call::new(tool, input)
}

fn agent(tool: &Tool, word: &str) -> Call {
    let task = match word {
        "agent_cap" => "Sub [[plan:shell_ok,shell_ok,end]] [[inject:400bill x99 @1]]",
        "nest" => "Sub task: delegate. [[plan:agent,shell_ok,end]]",
        _ => "Sub task: run one command and report. [[plan:shell_ok,end]]",
    };
    let mut input = filled(tool);
    for key in [
        "prompt",
        "message",
        "task",
        "objective",
        "prompt_1",
        "instructions",
        "query",
    ] {
        let is_text = property(tool, key).is_some_and(|schema| {
            schema
                .given("type")
                .is_none_or(|kind| kind.is("string") || kind.is("STRING"))
        });
        if is_text {
            input.insert(key.to_owned(), task.into());
        }
    }
    if property(tool, "description").is_some() {
        input.insert("description".to_owned(), "run sub task".into());
    }
    if word == "agent_haiku" && property(tool, "model").is_some() {
        input.insert("model".to_owned(), "haiku".into());
    }
    for (key, default) in [
        ("subagent_type", "general-purpose"),
        ("agent_name", "generalist"),
    ] {
        if let Some(schema) = property(tool, key) {
            let first = schema
                .given("enum")
                .and_then(|names| names.items().first()?.text());
            input.insert(
                key.to_owned(),
                first.unwrap_or_else(|| default.to_owned()).into(),
            );
        }
    }
    if property(tool, "tasks").is_some() {
        input.insert("tasks".to_owned(), Value::from(vec![task]));
    }
    if property(tool, "task_name").is_some() {
        input.insert("task_name".to_owned(), "sub_one".into());
    }
    if word == "agent_fg" && property(tool, "run_in_background").is_some() {
        input.insert("run_in_background".to_owned(), false.into());
    }
    Call::new(tool, input)
}

/// The least value that a schema allows.
#[must_use]
pub fn fill(schema: Option<&Json>, depth: u32) -> Value {
    let Some(schema) = schema.filter(|_| depth <= MAX_DEPTH) else {
        return "x".into();
    };
    let plain = |json: &Json| serde_json::from_str(&json.compact()).unwrap_or(Value::Null);
    if let Some(first) = schema
        .given("enum")
        .and_then(|values| values.items().first())
    {
        return plain(first);
    }
    if let Some(value) = schema.given("const") {
        return plain(value);
    }
    let options = schema.given("anyOf").or_else(|| schema.given("oneOf"));
    if let Some(options) = options {
        return fill(options.items().first(), depth + 1);
    }
    let kind = match schema.given("type") {
        Some(Json::Arr(kinds)) => kinds
            .iter()
            .find(|kind| !kind.is("null"))
            .and_then(Json::text),
        other => other.and_then(Json::text),
    };
    match kind.unwrap_or_default().to_lowercase().as_str() {
        "object" => Value::Object(object(schema, depth)),
        "array" => Value::Array(vec![fill(schema.given("items"), depth + 1)]),
        "number" | "integer" => 1.into(),
        "boolean" => false.into(),
        _ => "x".into(),
    }
}

fn object(schema: &Json, depth: u32) -> Map<String, Value> {
    let properties = schema.given("properties");
    schema
        .given("required")
        .map_or(&[][..], Json::items)
        .iter()
        .filter_map(Json::text)
        .map(|key| {
            let value = fill(properties.and_then(|all| all.given(&key)), depth + 1);
            (key, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(list: &str) -> Vec<Tool> {
        declared(Json::parse(list.as_bytes()).unwrap().items())
    }

    #[test]
    fn input_is_invented_from_the_schema() {
        let schema = r#"{"type":"object","required":["a","b","c","d","e"],"properties":{
            "a":{"enum":["first","second"]},"b":{"type":["null","integer"]},"c":{"type":"array","items":{"type":"boolean"}},
            "d":{"anyOf":[{"type":"object","required":["x"],"properties":{"x":{"const":7}}}]}}}"#;
        let value = fill(Some(&Json::parse(schema.as_bytes()).unwrap()), 0);
        assert_eq!(
            value.to_string(),
            r#"{"a":"first","b":1,"c":[false],"d":{"x":7},"e":"x"}"#
        );
    }

    #[test]
    fn each_shape_of_shell_gets_its_command() {
        let check = |name: &str, properties: &str, expected: &str| {
            let list = format!(
                r#"[{{"name":"{name}","input_schema":{{"type":"object","properties":{properties}}}}}]"#
            );
            let call = choose("shell_ok", &tools(&list), 2, "/w").unwrap();
            assert_eq!((call.name.as_str(), call.input.as_str()), (name, expected));
        };
        check(
            "Bash",
            r#"{"command":{"type":"string"}}"#,
            r#"{"command":"echo hello-2"}"#,
        );
        check(
            "shell",
            r#"{"command":{"type":"array"}}"#,
            r#"{"command":["bash","-lc","echo hello-2"]}"#,
        );
        check(
            "run_commands",
            r#"{"commands":{"type":"array","items":{"type":"string"}}}"#,
            r#"{"commands":["echo hello-2"]}"#,
        );
        check(
            "mcp__box__bash",
            r#"{"cmd":{"type":"string"}}"#,
            r#"{"cmd":"echo hello-2"}"#,
        );
    }

    #[test]
    fn steps_fall_back_to_what_is_declared() {
        let only =
            tools(r#"[{"name":"lookup","input_schema":{"type":"object","required":["q"]}}]"#);
        for word in ["shell_ok", "read", "agent", "ts", "badargs", "whatever"] {
            assert_eq!(
                choose(word, &only, 0, "/w").unwrap().name,
                "lookup",
                "{word}"
            );
        }
        assert_eq!(
            choose("unknown", &only, 0, "/w").unwrap().name,
            "no_such_tool"
        );
        assert_eq!(choose("shell_ok", &[], 0, "/w"), None);
        assert_eq!(
            choose("tool=lookup;x", &only, 0, "/w").unwrap().input,
            r#"{"q":"x"}"#
        );
        let call = choose("tool=lookup;q=/a b=c;n=7", &only, 0, "/w").unwrap();
        let input: Value = serde_json::from_str(&call.input).unwrap();
        assert_eq!(input, serde_json::json!({"q": "/a b=c", "n": 7}));
        let other = choose("tool=other;q=y", &only, 0, "/w").unwrap();
        assert_eq!(other.input, r#"{"q":"x"}"#);
    }

    #[test]
    fn files_and_agents_get_their_fields() {
        let list = tools(
            r#"[{"name":"Read","input_schema":{"type":"object","properties":{"file_path":{"type":"string"}}}},
                {"name":"Agent","input_schema":{"type":"object","properties":{"prompt":{"type":"string"},"subagent_type":{"enum":["general"]}}}}]"#,
        );
        assert_eq!(
            choose("read", &list, 0, "/w").unwrap().input,
            r#"{"file_path":"/w/hello.txt"}"#
        );
        let agent = choose("agent_cap", &list, 0, "/w").unwrap();
        assert!(
            agent.input.contains("400bill") && agent.input.contains(r#""subagent_type":"general""#)
        );
    }
}
