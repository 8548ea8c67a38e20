//! What the OpenAI side refuses in single members: names, types, ranges.

use super::cache::Life;
use super::error::OpenAiError;
use super::models::{self, Model};
use super::prompt::Marker;
use crate::sim::json::Json;

/// Pairs in `metadata`. Source: SDK docs, Nov 2026.
const MAX_METADATA: usize = 16;

type Checked<T> = Result<T, OpenAiError>;

/// `parent.member`, or the member alone at the top.
#[must_use]
pub fn path(parent: &str, member: &str) -> String {
    if parent.is_empty() {
        member.to_owned()
    } else {
        format!("{parent}.{member}")
    }
}

/// Refuses members that are not in `known`.
///
/// # Errors
/// 400 `unknown_parameter`.
pub fn members(value: &Json, at: &str, known: &[&str]) -> Checked<()> {
    let other = value
        .members()
        .iter()
        .find(|(name, _)| !known.contains(&name.as_str()));
    match other {
        Some((name, _)) => Err(OpenAiError::unknown(path(at, name))),
        None => Ok(()),
    }
}

/// A string, if it is given.
///
/// # Errors
/// 400 `invalid_type`.
pub fn text(value: &Json, at: &str, member: &str) -> Checked<Option<String>> {
    value
        .given(member)
        .map(|given| {
            given
                .text()
                .ok_or_else(|| OpenAiError::kind_of_value(path(at, member), "a string"))
        })
        .transpose()
}

/// A string that must be there.
///
/// # Errors
/// 400 `missing_required_parameter`, `invalid_type`.
pub fn needed_text(value: &Json, at: &str, member: &str) -> Checked<String> {
    text(value, at, member)?.ok_or_else(|| OpenAiError::missing(path(at, member)))
}

/// A switch, if it is given.
///
/// # Errors
/// 400 `invalid_type`.
pub fn switch(value: &Json, at: &str, member: &str) -> Checked<Option<bool>> {
    match value.given(member) {
        None => Ok(None),
        Some(Json::Bool(on)) => Ok(Some(*on)),
        Some(_) => Err(OpenAiError::kind_of_value(path(at, member), "a boolean")),
    }
}

/// A count of at least `least`, if it is given.
///
/// # Errors
/// 400 `invalid_type`, `integer_below_min_value`.
pub fn count(value: &Json, at: &str, member: &str, least: u64) -> Checked<Option<u64>> {
    let Some(given) = value.given(member) else {
        return Ok(None);
    };
    let param = path(at, member);
    let below = |got: &str| {
        OpenAiError::invalid(format!(
            "Invalid '{param}': integer below minimum value. Expected a value >= {least}, got {got}."
        ))
        .code("integer_below_min_value")
        .param(param.clone())
    };
    match given {
        Json::Num(raw) if raw.parse::<i64>().is_ok_and(|number| number < 0) => Err(below(raw)),
        Json::Num(raw) => match given.count() {
            Some(number) if number < least => Err(below(raw)),
            Some(number) => Ok(Some(number)),
            None => Err(OpenAiError::kind_of_value(param, "an integer")),
        },
        _ => Err(OpenAiError::kind_of_value(param, "an integer")),
    }
}

/// A number in a range, if it is given.
///
/// # Errors
/// 400 `invalid_type`, `decimal_above_max_value`, `decimal_below_min_value`.
pub fn number(value: &Json, member: &str, range: (f64, f64)) -> Checked<Option<f64>> {
    let Some(given) = value.given(member) else {
        return Ok(None);
    };
    let number: f64 = match given {
        Json::Num(raw) => raw.parse().unwrap_or(f64::NAN),
        _ => return Err(OpenAiError::kind_of_value(member, "a decimal")),
    };
    let bound = |code, what: &str, limit: f64| {
        OpenAiError::invalid(format!(
            "Invalid '{member}': decimal {what}. The limit is {limit}."
        ))
        .code(code)
        .param(member)
    };
    if number < range.0 {
        return Err(bound(
            "decimal_below_min_value",
            "below minimum value",
            range.0,
        ));
    }
    if number > range.1 {
        return Err(bound(
            "decimal_above_max_value",
            "above maximum value",
            range.1,
        ));
    }
    Ok(Some(number))
}

/// One of a list of words, if it is given.
///
/// # Errors
/// 400 `invalid_type`, `invalid_value`.
pub fn word(value: &Json, at: &str, member: &str, allowed: &[&str]) -> Checked<Option<String>> {
    let given = text(value, at, member)?;
    match given {
        Some(word) if !allowed.contains(&word.as_str()) => {
            Err(OpenAiError::value(path(at, member), &word, allowed))
        }
        given => Ok(given),
    }
}

/// An array, if it is given.
///
/// # Errors
/// 400 `invalid_type`.
pub fn list<'a>(value: &'a Json, at: &str, member: &str) -> Checked<Option<&'a [Json]>> {
    match value.given(member) {
        None => Ok(None),
        Some(Json::Arr(items)) => Ok(Some(items)),
        Some(_) => Err(OpenAiError::kind_of_value(path(at, member), "an array")),
    }
}

/// The model that is asked for.
///
/// # Errors
/// 400 without one, 404 `model_not_found` for an unknown one.
pub fn model(body: &Json, embeds: bool) -> Checked<&'static Model> {
    let id = needed_text(body, "", "model")?;
    models::find(&id)
        .filter(|model| model.embeds == embeds)
        .ok_or_else(|| {
            OpenAiError::new(
                404,
                format!("The model '{id}' does not exist or is not open to this key."),
            )
            .code("model_not_found")
        })
}

/// The tier that will serve, as answers name it.
///
/// # Errors
/// 400 for an unknown tier, or one the model does not have.
pub fn tier(body: &Json, model: &Model, allowed: &[&str]) -> Checked<&'static str> {
    let given = word(body, "", "service_tier", allowed)?;
    match given.as_deref() {
        Some("flex") => Ok("flex"),
        Some("fast" | "priority") => Ok("priority"),
        Some("scale") => Ok("scale"),
        Some("ultrafast") if model.id == "gpt-5.6-sol" => Ok("ultrafast"),
        Some("ultrafast") => Err(OpenAiError::invalid(
            "The service tier 'ultrafast' is not available for this model.",
        )
        .param("service_tier")
        .code("unsupported_value")),
        _ => Ok("default"),
    }
}

/// The effort, where the model takes it; the default is `medium`.
///
/// # Errors
/// 400 for a model that does not reason, or does not take this effort.
pub fn effort(value: &Json, at: &str, member: &str, model: &Model) -> Checked<String> {
    let all = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    let given = word(value, at, member, &all)?;
    let Some(effort) = given else {
        return Ok(if model.reasons() { "medium" } else { "none" }.to_owned());
    };
    let param = path(at, member);
    if !model.reasons() {
        return Err(OpenAiError::unsupported(
            param,
            "is not supported with this model",
        ));
    }
    if !model.efforts.contains(&effort.as_str()) {
        return Err(OpenAiError::invalid(format!(
            "Unsupported value: '{effort}' is not supported with the '{}' model. Supported values are: '{}'.",
            model.id,
            model.efforts.join("', '")
        ))
        .code("unsupported_value")
        .param(param));
    }
    Ok(effort)
}

/// Sampling, which reasoning models leave at its default.
///
/// # Errors
/// 400 for numbers out of range, and for any other value than 1 on a reasoning model.
pub fn sampling(body: &Json, model: &Model) -> Checked<()> {
    for (member, range) in [("temperature", (0.0, 2.0)), ("top_p", (0.0, 1.0))] {
        let given = number(body, member, range)?;
        let default = given.is_none_or(|number| (number - 1.0).abs() < f64::EPSILON);
        if model.reasons() && !default {
            return Err(OpenAiError::invalid(format!(
                "Unsupported value: '{member}' is only supported at its default (1) with this model."
            ))
            .code("unsupported_value")
            .param(member));
        }
    }
    Ok(())
}

/// `metadata`.
///
/// # Errors
/// 400 for more or longer pairs than are allowed.
pub fn metadata(body: &Json) -> Checked<()> {
    let Some(metadata) = body.given("metadata") else {
        return Ok(());
    };
    let Json::Obj(pairs) = metadata else {
        return Err(OpenAiError::kind_of_value("metadata", "an object"));
    };
    if pairs.len() > MAX_METADATA {
        return Err(OpenAiError::invalid(format!(
            "Invalid 'metadata': too many properties. Expected at most {MAX_METADATA}."
        ))
        .code("object_above_max_properties")
        .param("metadata"));
    }
    for (key, value) in pairs {
        let param = format!("metadata.{key}");
        let Some(value) = value.text() else {
            return Err(OpenAiError::kind_of_value(param, "a string"));
        };
        if key.chars().count() > 64 || value.chars().count() > 512 {
            return Err(
                OpenAiError::invalid(format!("Invalid '{param}': string too long."))
                    .code("string_above_max_length")
                    .param(param),
            );
        }
    }
    Ok(())
}

/// `prompt_cache_retention`: whether a day of retention is asked for.
///
/// # Errors
/// 400 for `in_memory` on models that know only `24h`.
pub fn retention(body: &Json, model: &Model) -> Checked<bool> {
    let allowed: &[&str] = if model.only_24h {
        &["24h"]
    } else {
        &["in_memory", "24h"]
    };
    Ok(word(body, "", "prompt_cache_retention", allowed)?.as_deref() == Some("24h"))
}

/// `prompt_cache_options`: whether the implicit breakpoint is wanted, and the lifetime. `more` names
/// the further members of the format.
///
/// # Errors
/// 400 on models before gpt-5.6, and for unknown members or values.
pub fn cache_options(
    body: &Json,
    model: &Model,
    lives: &[&str],
    more: &[&str],
) -> Checked<(bool, Life)> {
    const AT: &str = "prompt_cache_options";
    let Some(options) = body.given(AT) else {
        return Ok((true, Life::default()));
    };
    if !matches!(options, Json::Obj(_)) {
        return Err(OpenAiError::kind_of_value(AT, "an object"));
    }
    if !model.breakpoints {
        return Err(OpenAiError::unsupported(
            AT,
            "is not supported with this model",
        ));
    }
    let known: Vec<&str> = ["mode", "ttl"].iter().chain(more).copied().collect();
    members(options, AT, &known)?;
    let mode = word(options, AT, "mode", &["implicit", "explicit"])?;
    let life = word(options, AT, "ttl", lives)?;
    Ok((
        mode.as_deref() != Some("explicit"),
        life.and_then(|word| Life::named(&word)).unwrap_or_default(),
    ))
}

/// `prompt_cache_breakpoint` of a part.
///
/// # Errors
/// 400 on models before gpt-5.6, and for another shape.
pub fn breakpoint(part: &Json, at: &str, model: &Model) -> Checked<Option<Marker>> {
    let Some(given) = part.given("prompt_cache_breakpoint") else {
        return Ok(None);
    };
    let at = path(at, "prompt_cache_breakpoint");
    if !model.breakpoints {
        return Err(OpenAiError::unsupported(
            at,
            "is not supported with this model",
        ));
    }
    if !matches!(given, Json::Obj(_)) {
        return Err(OpenAiError::kind_of_value(at, "an object"));
    }
    members(given, &at, &["mode", "ttl"])?;
    if word(given, &at, "mode", &["explicit"])?.is_none() {
        return Err(OpenAiError::missing(path(&at, "mode")));
    }
    let life = word(given, &at, "ttl", &["30m", "12h"])?;
    Ok(Some(Marker {
        life: life.and_then(|word| Life::named(&word)),
    }))
}

/// Whether a name is one that tools may have.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// A name that must match the pattern of tool names.
///
/// # Errors
/// 400 `missing_required_parameter`, `invalid_value`.
pub fn tool_name(value: &Json, at: &str) -> Checked<String> {
    let name = needed_text(value, at, "name")?;
    if !is_tool_name(&name) {
        let param = path(at, "name");
        return Err(OpenAiError::invalid(format!(
            "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        ))
        .code("invalid_value")
        .param(param));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn numbers_are_held_to_their_range_and_type() {
        let check = |body: &str, code: Option<&str>| {
            let error = count(&json(body), "", "max_output_tokens", 16).err();
            assert_eq!(error.and_then(|error| error.code), code, "{body}");
        };
        check(r#"{"max_output_tokens":16}"#, None);
        check(r#"{"max_output_tokens":null}"#, None);
        check(
            r#"{"max_output_tokens":15}"#,
            Some("integer_below_min_value"),
        );
        check(
            r#"{"max_output_tokens":-1}"#,
            Some("integer_below_min_value"),
        );
        check(r#"{"max_output_tokens":1.5}"#, Some("invalid_type"));
        check(r#"{"max_output_tokens":"16"}"#, Some("invalid_type"));
        assert!(number(&json(r#"{"top_p":1.1}"#), "top_p", (0.0, 1.0)).is_err());
    }

    #[test]
    fn breakpoints_and_options_belong_to_gpt_5_6_and_later() {
        let new = models::find("gpt-5.6-sol").unwrap();
        let old = models::find("gpt-5.5").unwrap();
        let part = json(r#"{"prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}}"#);
        let marker = breakpoint(&part, "input[0].content[0]", new).unwrap();
        assert_eq!(marker.unwrap().life, Some(Life::HalfDay));
        let error = breakpoint(&part, "input[0].content[0]", old).unwrap_err();
        assert_eq!(
            error.param.as_deref(),
            Some("input[0].content[0].prompt_cache_breakpoint")
        );
        let body = json(r#"{"prompt_cache_options":{"mode":"explicit","ttl":"12h"}}"#);
        let both: &[&str] = &["30m", "12h"];
        assert_eq!(
            cache_options(&body, new, both, &[]),
            Ok((false, Life::HalfDay))
        );
        assert!(cache_options(&body, new, &["30m"], &[]).is_err());
        assert!(cache_options(&body, old, both, &[]).is_err());
        let more = json(r#"{"prompt_cache_options":{"prewarm":true}}"#);
        assert!(cache_options(&more, new, both, &["prewarm"]).is_ok());
        assert!(cache_options(&more, new, both, &[]).is_err());
    }

    #[test]
    fn efforts_are_those_of_the_model() {
        let ask = |id: &str, effort_: &str| {
            let body = json(&format!(r#"{{"effort":"{effort_}"}}"#));
            effort(&body, "reasoning", "effort", models::find(id).unwrap())
        };
        assert_eq!(ask("gpt-6-sol", "minimal").unwrap(), "minimal");
        assert_eq!(
            ask("gpt-6.2-sol", "minimal").unwrap_err().code,
            Some("unsupported_value")
        );
        assert_eq!(
            ask("gpt-4.1", "low").unwrap_err().code,
            Some("unsupported_parameter")
        );
        assert_eq!(
            ask("gpt-5", "huge").unwrap_err().code,
            Some("invalid_value")
        );
    }
}
