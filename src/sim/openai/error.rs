//! Errors in OpenAI's shape.

use crate::sim::error::ApiError;
use crate::sim::json::quote;

/// A refusal by the OpenAI side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiError {
    /// HTTP status.
    pub status: u16,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.message`.
    pub message: String,
    /// `error.param`: the path of what is wrong.
    pub param: Option<String>,
    /// `error.code`.
    pub code: Option<&'static str>,
    /// Extra response headers.
    pub headers: Vec<(&'static str, String)>,
}

impl OpenAiError {
    /// An error with the type that belongs to `status`.
    #[must_use]
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            429 => "requests",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        Self {
            status,
            kind,
            message: message.into(),
            param: None,
            code: None,
            headers: Vec::new(),
        }
    }

    /// `400 invalid_request_error`.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// 400 for a member that must be there.
    #[must_use]
    pub fn missing(param: impl Into<String>) -> Self {
        let param = param.into();
        Self::invalid(format!("Missing required parameter: '{param}'."))
            .code("missing_required_parameter")
            .param(param)
    }

    /// 400 for a member that does not exist.
    #[must_use]
    pub fn unknown(param: impl Into<String>) -> Self {
        let param = param.into();
        Self::invalid(format!("Unknown parameter: '{param}'."))
            .code("unknown_parameter")
            .param(param)
    }

    /// 400 for a member that the model or the mode does not take.
    #[must_use]
    pub fn unsupported(param: impl Into<String>, why: &str) -> Self {
        let param = param.into();
        Self::invalid(format!("Unsupported parameter: '{param}' {why}."))
            .code("unsupported_parameter")
            .param(param)
    }

    /// 400 for a value outside of a list.
    #[must_use]
    pub fn value(param: impl Into<String>, got: &str, allowed: &[&str]) -> Self {
        let param = param.into();
        Self::invalid(format!(
            "Invalid value: '{got}'. Supported values are: '{}'.",
            allowed.join("', '")
        ))
        .code("invalid_value")
        .param(param)
    }

    /// 400 for a value of the wrong type.
    #[must_use]
    pub fn kind_of_value(param: impl Into<String>, expected: &str) -> Self {
        let param = param.into();
        Self::invalid(format!("Invalid type for '{param}': expected {expected}."))
            .code("invalid_type")
            .param(param)
    }

    /// Adds `error.param`.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Adds `error.code`.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The `error` object.
    #[must_use]
    pub fn object(&self) -> String {
        self.object_with("")
    }

    /// The `error` object of a WebSocket, which carries the headers too.
    #[must_use]
    pub fn object_with_headers(&self) -> String {
        if self.headers.is_empty() {
            return self.object();
        }
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, value)| format!("{}:{}", quote(name), quote(value)))
            .collect();
        self.object_with(&format!(r#","headers":{{{}}}"#, headers.join(",")))
    }

    fn object_with(&self, more: &str) -> String {
        let word = |word: Option<&str>| word.map_or_else(|| "null".to_owned(), quote);
        format!(
            r#"{{"message":{},"type":"{}","param":{},"code":{}{more}}}"#,
            quote(&self.message),
            self.kind,
            word(self.param.as_deref()),
            word(self.code),
        )
    }

    /// The body, as the API writes it.
    #[must_use]
    pub fn body(&self) -> String {
        format!(r#"{{"error":{}}}"#, self.object())
    }

    /// A scripted refusal, said in this API's words. `name` is the script's.
    #[must_use]
    pub fn scripted(error: ApiError, name: &str) -> Self {
        let status = if error.status == 529 {
            503
        } else {
            error.status
        };
        let mut own = Self::new(status, error.message);
        own.code = match status {
            401 => Some("invalid_api_key"),
            429 => Some("rate_limit_exceeded"),
            503 => Some("server_is_overloaded"),
            _ => None,
        };
        if name.ends_with("quota") {
            own.kind = "insufficient_quota";
            own.code = Some("insufficient_quota");
        }
        if matches!(error.kind, "billing_error" | "gateway_cap_error") {
            own.kind = error.kind;
        }
        for (header, value) in error.headers {
            match header {
                "anthropic-ratelimit-requests-remaining" => {
                    own.headers.push(("x-ratelimit-remaining-requests", value));
                }
                "anthropic-ratelimit-requests-reset" => {
                    own.headers
                        .push(("x-ratelimit-reset-requests", "5s".to_owned()));
                }
                _ => own.headers.push((header, value)),
            }
        }
        own
    }

    /// What the shared readers of bodies refuse, said in this API's words.
    #[must_use]
    pub fn of_body(error: ApiError) -> Self {
        Self::new(error.status, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::failure::{Failure, named};

    #[test]
    fn the_body_has_the_documented_members_and_no_others() {
        let error = OpenAiError::missing("model");
        let body: serde_json::Value = serde_json::from_str(&error.body()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "message": "Missing required parameter: 'model'.",
                "type": "invalid_request_error",
                "param": "model",
                "code": "missing_required_parameter",
            }})
        );
    }

    #[test]
    fn scripted_refusals_speak_this_api() {
        let check = |name: &str, status: u16, kind: &str, code: Option<&str>, headers: usize| {
            let Some(Failure::Refuse(error)) = named(name, 0) else {
                panic!("{name}");
            };
            let own = OpenAiError::scripted(error, name);
            assert_eq!((own.status, own.kind, own.code), (status, kind, code));
            assert_eq!(own.headers.len(), headers, "{name}");
            assert!(own.headers.iter().all(|(h, _)| !h.contains("anthropic")));
        };
        check("529", 503, "server_error", Some("server_is_overloaded"), 0);
        check("429ra", 429, "requests", Some("rate_limit_exceeded"), 1);
        check("429reset", 429, "requests", Some("rate_limit_exceeded"), 3);
        check(
            "429quota",
            429,
            "insufficient_quota",
            Some("insufficient_quota"),
            0,
        );
        check("400bill", 400, "billing_error", None, 0);
        check("500", 500, "server_error", None, 0);
    }
}
