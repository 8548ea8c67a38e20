//! Tools from a type or a schema, and a function.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{CallContext, Manners, Tool, ToolError, ToolResult};
use crate::agent::machine::ToolSpec;

/// A tool whose input is a Rust type.
///
/// The model reads the type: names of its fields, their doc comments, which of them are optional
/// (`Option`, `#[serde(default)]`). Members that it does not have are refused, so that a model
/// learns of a misspelt one. `work` is called with every input that satisfies the schema.
///
/// The description is what the model chooses by. A good one says when to use the tool, when not,
/// gives an example of an input, and says what comes out.
pub fn typed<Input, Work, Doing>(
    name: &str,
    description: &str,
    manners: Manners,
    work: Work,
) -> Arc<dyn Tool>
where
    Input: DeserializeOwned + JsonSchema + Send + 'static,
    Work: Fn(Input, CallContext) -> Doing + Send + Sync + 'static,
    Doing: Future<Output = ToolResult> + Send + 'static,
{
    let schema = schema_of::<Input>();
    raw(
        name,
        description,
        &schema,
        manners,
        move |input, context| {
            // What a type asks for beyond its schema shows only here.
            let doing = serde_json::from_value(input)
                .map(|input| work(input, context))
                .map_err(|error| ToolError::failed("invalid_input", error.to_string()));
            async move { doing?.await }
        },
    )
}

/// A tool whose input is described by a JSON Schema, given as JSON text; its root is an object.
///
/// `work` is called with every input that satisfies the schema. For the description see [`typed`].
pub fn raw<Work, Doing>(
    name: &str,
    description: &str,
    schema: &str,
    manners: Manners,
    work: Work,
) -> Arc<dyn Tool>
where
    Work: Fn(Value, CallContext) -> Doing + Send + Sync + 'static,
    Doing: Future<Output = ToolResult> + Send + 'static,
{
    Arc::new(Declared {
        spec: ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            schema: schema.to_owned(),
        },
        manners,
        work,
    })
}

struct Declared<Work> {
    spec: ToolSpec,
    manners: Manners,
    work: Work,
}

impl<Work, Doing> Tool for Declared<Work>
where
    Work: Fn(Value, CallContext) -> Doing + Send + Sync,
    Doing: Future<Output = ToolResult> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn manners(&self) -> Manners {
        self.manners
    }

    fn call(&self, input: Value, context: CallContext) -> BoxFuture<'static, ToolResult> {
        Box::pin((self.work)(input, context))
    }
}

/// The schema of a type without what a model has no use for, the same bytes every time.
fn schema_of<Input: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<Input>();
    schema.remove("title");
    // A doc comment of the type is for readers of the code; the tool has its own description.
    schema.remove("description");
    let open = [
        "additionalProperties",
        "unevaluatedProperties",
        "allOf",
        "anyOf",
        "oneOf",
    ];
    if !open.iter().any(|word| schema.get(*word).is_some()) {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    // A type without fields has no list of them, which some providers insist on.
    if schema.get("properties").is_none() {
        schema.insert(
            "properties".to_owned(),
            Value::Object(serde_json::Map::new()),
        );
    }
    schema.as_value().to_string()
}
