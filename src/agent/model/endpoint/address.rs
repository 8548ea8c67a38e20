//! Where a request goes: a base URL as people have it, and the path of a format.

/// The URL of a path (`/v1/...`) behind a base URL.
///
/// People paste what they find: with `/v1` behind it or without, with the version of another
/// provider (`/api/paas/v4`, `/v1beta/openai`), with a slash at the end, or the whole URL of the
/// call. A base that names a version has it already; one that ends with the call is the URL.
///
/// # Errors
/// What is wrong with the base URL, for people.
pub fn address(base: &str, path: &str) -> Result<String, String> {
    let base = base.trim().trim_end_matches('/');
    let Some((scheme, rest)) = base.split_once("://") else {
        return Err(format!(
            "the base URL `{base}` needs https:// or http:// in front of it"
        ));
    };
    if !matches!(scheme, "http" | "https") {
        return Err(format!("the base URL `{base}` is neither https nor http"));
    }
    if rest.contains(['?', '#']) {
        return Err(format!("the base URL `{base}` must end with its path"));
    }
    let own = rest.split_once('/').map_or("", |(_, own)| own);
    let call = path.strip_prefix("/v1").unwrap_or(path);
    if format!("/{own}").ends_with(call) {
        Ok(base.to_owned())
    } else if own.split('/').any(is_version) {
        Ok(format!("{base}{call}"))
    } else {
        Ok(format!("{base}{path}"))
    }
}

/// `v1`, `v4`, `v1beta` ...
fn is_version(segment: &str) -> bool {
    let number = segment.strip_prefix('v');
    number.is_some_and(|number| {
        number.starts_with(|c: char| c.is_ascii_digit())
            && number.chars().all(|c| c.is_ascii_alphanumeric())
    })
}
