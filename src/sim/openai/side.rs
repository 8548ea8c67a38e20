//! The smaller routes: models, embeddings, compaction, counting, conversations.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::cache::Tokens;
use super::error::OpenAiError;
use super::http::items_of;
use super::items::kind_of;
use super::models::{self, MODELS, Model};
use super::prompt;
use super::request::Asked;
use super::responses::{Over, Reader, Wishes};
use super::seal::Seal;
use super::told::Told;
use super::validate;
use crate::sim::json::{Json, quote};
use crate::sim::prompt::of_bytes;
use crate::sim::provider::Provider;

/// When all models were made, in Unix seconds.
const CREATED: u64 = 1_767_225_600;

/// Dimensions of a vector without another wish, and at most.
const DIMENSIONS: (u64, u64) = (1_536, 3_072);

/// Texts in one request of embeddings. Source: SDK docs, Nov 2026.
const MAX_TEXTS: usize = 2_048;

/// Output tokens of a compaction.
const SUMMARY_TOKENS: u64 = 200;

fn model_document(id: &str) -> String {
    format!(r#"{{"id":"{id}","object":"model","created":{CREATED},"owned_by":"openai"}}"#)
}

/// `GET /v1/models`.
#[must_use]
pub fn models() -> String {
    let names = |model: &'static Model| [Some(model.id), model.alias];
    let list: Vec<String> = MODELS
        .iter()
        .flat_map(names)
        .flatten()
        .map(model_document)
        .collect();
    format!(r#"{{"object":"list","data":[{}]}}"#, list.join(","))
}

/// `GET /v1/models/{id}`.
///
/// # Errors
/// 404 for an unknown one.
pub fn model(id: &str) -> Result<String, OpenAiError> {
    models::find(id).map(|_| model_document(id)).ok_or_else(|| {
        OpenAiError::new(404, format!("The model '{id}' does not exist."))
            .code("model_not_found")
            .param("model")
    })
}

/// `POST /v1/conversations`.
///
/// # Errors
/// 400 for another shape.
pub fn conversation(
    provider: &Provider,
    scope: &str,
    body: &[u8],
    now_ms: u64,
) -> Result<String, OpenAiError> {
    let items = if body.is_empty() {
        Vec::new()
    } else {
        let body = Json::parse(body)
            .map_err(|error| OpenAiError::invalid(format!("The body is no JSON: {error}")))?;
        validate::members(&body, "", &["items", "metadata"])?;
        items_of(&body)?
    };
    let id = provider.id("conv_");
    let document = format!(
        r#"{{"id":"{id}","object":"conversation","created_at":{},"metadata":{{}}}}"#,
        now_ms / 1000
    );
    provider
        .state()
        .openai
        .held
        .open(id, scope.to_owned(), items);
    Ok(document)
}

/// `POST /v1/embeddings`: vectors that depend on the text and on nothing else.
///
/// # Errors
/// The API's refusals.
pub fn embeddings(body: &Json) -> Result<String, OpenAiError> {
    let model = validate::model(body, true)?;
    validate::members(
        body,
        "",
        &["input", "model", "dimensions", "encoding_format", "user"],
    )?;
    let base64 = validate::word(body, "", "encoding_format", &["float", "base64"])?.as_deref()
        == Some("base64");
    let dimensions = validate::count(body, "", "dimensions", 1)?.unwrap_or(DIMENSIONS.0);
    if dimensions > DIMENSIONS.1 {
        return Err(OpenAiError::invalid("Invalid 'dimensions': too large.").param("dimensions"));
    }
    let texts: Vec<String> = match body.given("input") {
        None => return Err(OpenAiError::missing("input")),
        Some(input @ Json::Str(_)) => vec![input.compact()],
        // One list of tokens is one text.
        Some(Json::Arr(items)) if items.iter().all(|item| matches!(item, Json::Num(_))) => {
            vec![Json::Arr(items.clone()).compact()]
        }
        Some(Json::Arr(items)) => items.iter().map(Json::compact).collect(),
        Some(_) => return Err(OpenAiError::kind_of_value("input", "a string or an array")),
    };
    if texts.is_empty() || texts.len() > MAX_TEXTS || texts.iter().any(|text| text.len() <= 2) {
        return Err(OpenAiError::invalid("'$.input' is invalid.").param("input"));
    }
    let mut tokens = 0;
    let mut data = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        tokens += of_bytes(text.len());
        let vector = vector(text, usize::try_from(dimensions).unwrap_or(usize::MAX));
        let written = if base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|n| n.to_le_bytes()).collect();
            format!("\"{}\"", encoded(&bytes))
        } else {
            let numbers: Vec<String> = vector.iter().map(ToString::to_string).collect();
            format!("[{}]", numbers.join(","))
        };
        data.push(format!(
            r#"{{"object":"embedding","index":{index},"embedding":{written}}}"#
        ));
    }
    Ok(format!(
        r#"{{"object":"list","data":[{}],"model":"{}","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#,
        data.join(","),
        model.id
    ))
}

/// A vector of length one.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut raw: Vec<f32> = Vec::with_capacity(dimensions);
    let mut round = 0_u32;
    while raw.len() < dimensions {
        let hash = Sha256::new()
            .chain_update(round.to_le_bytes())
            .chain_update(text)
            .finalize();
        let left = dimensions - raw.len();
        raw.extend(hash.iter().take(left).map(|byte| f32::from(*byte) - 127.5));
        round += 1;
    }
    let length = raw.iter().map(|n| n * n).sum::<f32>().sqrt();
    raw.into_iter().map(|n| n / length).collect()
}

/// Base64 with padding.
fn encoded(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = 0_u32;
        for at in 0..3 {
            word = word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            out.push(if at > chunk.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    out
}

fn read(provider: &Provider, scope: &str, body: &Json) -> Result<(Asked, Wishes), OpenAiError> {
    let state = provider.state();
    Reader {
        scope,
        options: &provider.options,
        held: &state.openai.held,
        over: Over::Http,
    }
    .read(body)
}

/// `POST /v1/responses/input_tokens`.
///
/// # Errors
/// What `POST /v1/responses` would refuse, too.
pub fn input_tokens(provider: &Provider, scope: &str, body: &Json) -> Result<String, OpenAiError> {
    let (asked, _) = read(provider, scope, body)?;
    let total = prompt::walk(&asked.key, &asked.pieces).total;
    Ok(format!(
        r#"{{"object":"response.input_tokens","input_tokens":{total}}}"#
    ))
}

/// A compaction as it was answered.
#[derive(Debug)]
pub struct Compacted {
    /// Its id.
    pub id: String,
    /// Its input tokens.
    pub tokens: Tokens,
    /// The answer.
    pub document: String,
}

/// `POST /v1/responses/compact`: the messages of the user, then one sealed item for all the rest.
///
/// # Errors
/// What `POST /v1/responses` would refuse, too.
pub fn compact(
    provider: &Arc<Provider>,
    scope: &str,
    body: &Json,
    now_ms: u64,
) -> Result<Compacted, OpenAiError> {
    let (mut asked, wishes) = read(provider, scope, body)?;
    asked.generate = false;
    let mut ready = provider.openai(asked, None, now_ms)?;
    let tokens = provider.begin_openai(&mut ready);
    ready.answer.output = SUMMARY_TOKENS;
    let mut output = String::new();
    for item in &wishes.items {
        let user = item.get("role").is_some_and(|role| role.is("user"));
        if kind_of(item) == "message" && user {
            output.push_str(&as_output(item, provider));
            output.push(',');
        }
    }
    let item = provider.id("cmp_");
    let seal = Seal {
        seed: provider.options.seed,
    };
    let _ = write!(
        output,
        r#"{{"id":"{item}","type":"compaction","encrypted_content":"{}"}}"#,
        seal.close(item.trim_start_matches("cmp_"))
    );
    let id = ready.answer.id.clone();
    let told = Told {
        answer: ready.answer,
        echo: wishes.echo,
        background: false,
        background_failure: None,
        streamed: false,
        generate: false,
    };
    let document = format!(
        r#"{{"id":"{id}","object":"response.compaction","created_at":{},"output":[{output}],"usage":{}}}"#,
        now_ms / 1000,
        told.usage()
    );
    Ok(Compacted {
        id,
        tokens,
        document,
    })
}

/// A message of the user as an item of output: with its id, its content as parts.
fn as_output(item: &Json, provider: &Provider) -> String {
    let id = item.text_of("id").unwrap_or_else(|| provider.id("msg_"));
    let content = match item.get("content") {
        Some(text @ Json::Str(_)) => {
            format!(r#"[{{"type":"input_text","text":{}}}]"#, text.compact())
        }
        Some(parts) => parts.compact(),
        None => "[]".to_owned(),
    };
    format!(
        r#"{{"id":{},"type":"message","status":"completed","role":"user","content":{content}}}"#,
        quote(&id)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encoded(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn equal_texts_have_equal_vectors_of_length_one() {
        let (a, b) = (vector("a", 100), vector("b", 100));
        assert_eq!(a, vector("a", 100));
        assert_ne!(a, b);
        let length: f32 = a.iter().map(|n| n * n).sum();
        assert!((length - 1.0).abs() < 1e-4);
    }
}
