//! What the headers of a request say: credential, version, betas.

use super::error::ApiError;

/// The version of Oct 2026, which no longer takes sampling parameters.
pub const VERSION_2026: &str = "2026-10-21";
/// The version before it.
pub const VERSION_2023: &str = "2023-06-01";

/// What the headers of a request say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The credential, which is the cache scope too.
    pub scope: String,
    /// `anthropic-version`.
    pub version: String,
    /// All `anthropic-beta` values.
    pub betas: Vec<String>,
}

impl Head {
    /// Reads the headers. `get` gives all values of a header.
    ///
    /// # Errors
    /// 401 without a credential (or with `invalid`), 400 without a known version.
    pub fn read(headers: &http::HeaderMap) -> Result<Self, ApiError> {
        let one = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::trim)
        };
        let bearer = one("authorization").and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then_some(token.trim())
        });
        let key = one("x-api-key").or(bearer).unwrap_or_default();
        if key.is_empty() {
            return Err(ApiError::new(401, "x-api-key header is required"));
        }
        if key == "invalid" {
            return Err(ApiError::new(401, "invalid x-api-key"));
        }
        let betas = headers
            .get_all("anthropic-beta")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
            .collect();
        Ok(Self {
            scope: key.to_owned(),
            version: version(one("anthropic-version"))?,
            betas,
        })
    }

    /// Whether a beta with this prefix was asked for.
    #[must_use]
    pub fn beta(&self, prefix: &str) -> bool {
        self.betas.iter().any(|beta| beta.starts_with(prefix))
    }
}

fn version(given: Option<&str>) -> Result<String, ApiError> {
    match given {
        None => Err(ApiError::invalid("anthropic-version: header is required")),
        Some(known @ (VERSION_2023 | VERSION_2026)) => Ok(known.to_owned()),
        Some(other) => Err(ApiError::invalid(format!(
            "anthropic-version: \"{other}\" is not a valid version"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_decide_scope_version_and_betas() {
        let read = |pairs: &[(&'static str, &'static str)]| {
            let mut map = http::HeaderMap::new();
            for (name, value) in pairs {
                map.append(*name, http::HeaderValue::from_static(value));
            }
            Head::read(&map)
        };
        let version = ("anthropic-version", "2023-06-01");
        assert_eq!(read(&[version]).unwrap_err().status, 401);
        assert_eq!(
            read(&[version, ("x-api-key", "invalid")])
                .unwrap_err()
                .status,
            401
        );
        assert_eq!(read(&[("x-api-key", "k")]).unwrap_err().status, 400);
        assert_eq!(
            read(&[("x-api-key", "k"), ("anthropic-version", "2030-01-01")])
                .unwrap_err()
                .status,
            400
        );
        let bearer = read(&[
            ("authorization", "Bearer k2"),
            ("anthropic-version", "2026-10-21"),
            ("anthropic-beta", "a, b"),
            ("anthropic-beta", "c"),
        ])
        .unwrap();
        assert_eq!(bearer.scope, "k2");
        assert_eq!(bearer.betas, ["a", "b", "c"]);
    }
}
