//! Errors in the API's own shape.

use super::json::quote;

/// A refusal by the simulated provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.message`.
    pub message: String,
    /// `error.details.error_code`.
    pub code: Option<&'static str>,
    /// `error.details.unsupported`, for refusals that name features.
    pub unsupported: Option<&'static str>,
    /// Extra response headers.
    pub headers: Vec<(&'static str, String)>,
}

impl ApiError {
    /// An error with the type that belongs to `status`.
    #[must_use]
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: kind_of(status),
            message: message.into(),
            code: None,
            unsupported: None,
            headers: Vec::new(),
        }
    }

    /// `400 invalid_request_error`.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// Adds `error.details.error_code`.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The body, as the API writes it.
    #[must_use]
    pub fn body(&self, request_id: &str) -> String {
        let details = self.code.map_or(String::new(), |code| {
            let features = self.unsupported.map_or(String::new(), |feature| {
                format!(r#","unsupported":[{}]"#, quote(feature))
            });
            format!(r#","details":{{"error_code":{}{features}}}"#, quote(code))
        });
        format!(
            r#"{{"type":"error","error":{{"type":"{}","message":{}{details}}},"request_id":{}}}"#,
            self.kind,
            quote(&self.message),
            quote(request_id),
        )
    }
}

/// The `error.type` of a status. Source: provider docs, Aug 2026.
#[must_use]
pub fn kind_of(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_the_documented_shape() {
        let error = ApiError::new(404, "No \"state\"").code("thread_not_found");
        let body: serde_json::Value = serde_json::from_str(&error.body("req_1")).unwrap();
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], "not_found_error");
        assert_eq!(body["error"]["message"], "No \"state\"");
        assert_eq!(body["error"]["details"]["error_code"], "thread_not_found");
        assert_eq!(body["request_id"], "req_1");
        let plain = ApiError::invalid("x").body("r");
        assert!(!plain.contains("details"));
    }
}
