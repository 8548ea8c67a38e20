//! What the name of a model says of it, but for its cache ([`super::caching`]).
//!
//! Sources: the Python SDK 3.57.0, November 2026: the names of `ChatModel`, and of `reasoning`
//! that it is for models of gpt-5 and the o series only. That the models of the chat product
//! (`gpt-5-chat-latest`, `chatgpt-4o-latest`) are none that reason, it does not say.

/// The first generation that reasons.
const REASONS: u32 = 5;

/// Whether a model is one of OpenAI's, under its own name or behind that of a reseller.
#[must_use]
pub fn is_own(model: &str) -> bool {
    let name = name(model);
    generation(name).is_some()
        || is_of_o_series(name)
        || name.starts_with("chatgpt")
        || name.starts_with("codex")
}

/// Whether a model may reason. Those that never do refuse to be asked for their reasoning. One whose
/// name is unknown here is taken for one that may.
#[must_use]
pub fn may_reason(model: &str) -> bool {
    let name = name(model);
    let never = |generation| generation < REASONS || name.contains("-chat");
    !(name.starts_with("chatgpt") || generation(name).is_some_and(never))
}

/// Whether a model is one of Anthropic's, as resellers name them.
#[must_use]
pub fn is_claude(model: &str) -> bool {
    name(model).contains("claude")
}

/// The name without that of a reseller before it.
#[must_use]
pub fn name(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// `o3`, `o4-mini`.
fn is_of_o_series(name: &str) -> bool {
    let rest = name.strip_prefix('o');
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// 5 for `gpt-5.6-sol`, 4 for `gpt-4o`; `None` for other names.
fn generation(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("gpt-")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_whose_a_model_is_and_whether_it_may_reason() {
        for (model, own, reasons) in [
            ("gpt-6.2-sol", true, true),
            ("openai/gpt-5.6-luna", true, true),
            ("gpt-5-mini-2025-08-07", true, true),
            ("gpt-5.3-chat-latest", true, false),
            ("gpt-4.1", true, false),
            ("gpt-4o", true, false),
            ("gpt-3.5-turbo", true, false),
            ("o4-mini", true, true),
            ("chatgpt-4o-latest", true, false),
            ("codex-mini-latest", true, true),
            ("gpt-oss-120b", false, true),
            ("olmo-3", false, true),
            ("test-gpt-old", false, true),
            ("", false, true),
        ] {
            assert_eq!(
                (is_own(model), may_reason(model)),
                (own, reasons),
                "{model}"
            );
        }
    }
}
