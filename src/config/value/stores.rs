//! Kinds of value of the remote stores and of captured content: addresses, names, secrets, lists.

use http::{HeaderName, HeaderValue, Uri};
use toml::de::DeValue;

use super::super::{CaptureMode, Semconv, SpoolFull};
use super::{Value, decimal};

/// Longest URL, in bytes.
const URL_MAX_BYTES: usize = 2_048;
/// Most entries of a table.
const ENTRIES_MAX: usize = 64;
/// Largest compiled rule, in bytes.
const RULE_BYTES: usize = 1 << 20;
/// Longest name in ClickHouse, in bytes.
const NAME_MAX_BYTES: usize = 64;

choice!(SpoolFull, "drop-oldest" => SpoolFull::DropOldest, "drop-newest" => SpoolFull::DropNewest);
choice!(Semconv, "latest" => Semconv::Latest, "both" => Semconv::Both);
choice!(CaptureMode, "none" => CaptureMode::None, "redacted" => CaptureMode::Redacted, "full" => CaptureMode::Full);

/// Scheme, host and port of an HTTP URL, checked; with what stands before the host and behind the port.
struct Parts<'a> {
    user: Option<&'a str>,
    base: String,
    path: &'a str,
}

fn parts(text: &str) -> Result<Parts<'_>, String> {
    let allowed = || "must be a URL that starts with http:// or https://".to_owned();
    if text.len() > URL_MAX_BYTES {
        return Err(format!("must be at most {URL_MAX_BYTES} bytes long"));
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(allowed)?;
    if !matches!(scheme, "http" | "https") {
        return Err(allowed());
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains(['?', '#']) {
        return Err("must not hold a query or fragment".to_owned());
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host: http::uri::Authority = host
        .parse()
        .map_err(|_| "must name a host, and a port up to 65535 if any".to_owned())?;
    let port = host.as_str().len() > host.host().len();
    if host.host().is_empty() || (port && host.port_u16().is_none()) {
        return Err("must name a host, and a port up to 65535 if any".to_owned());
    }
    Ok(Parts {
        user,
        base: format!("{scheme}://{host}"),
        path,
    })
}

/// Where ClickHouse is. May hold user, password and database.
#[derive(Clone, PartialEq, Eq)]
pub struct ClickHouseUrl {
    /// Scheme, host and port.
    pub url: String,
    /// User before the host.
    pub user: Option<String>,
    /// Password before the host.
    pub password: Option<String>,
    /// Database behind the port.
    pub database: Option<String>,
}

impl std::fmt::Debug for ClickHouseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

impl Value for ClickHouseUrl {
    const SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        if ["clickhouse://", "tcp://", "native://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            return Err(
                "must be the HTTP interface, such as \"http://127.0.0.1:8123\": the native protocol is not spoken"
                    .to_owned(),
            );
        }
        let parts = parts(text).map_err(|why| {
            format!("{why}, such as \"http://127.0.0.1:8123\" or \"https://user:password@host:8443/database\"")
        })?;
        let unescape = |text: &str| {
            percent_decoded(text)
                .ok_or_else(|| "has a % that two hexadecimal digits do not follow".to_owned())
        };
        let (user, password) = match parts
            .user
            .map(|user| user.split_once(':').unwrap_or((user, "")))
        {
            None => (None, None),
            Some((user, password)) => (
                Some(unescape(user)?).filter(|user| !user.is_empty()),
                Some(unescape(password)?).filter(|password| !password.is_empty()),
            ),
        };
        let database = match parts.path.trim_matches('/') {
            "" => None,
            name => Some(Name::parse(name)?.0),
        };
        Ok(Self {
            url: parts.base,
            user,
            password,
            database,
        })
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push(u8::try_from(16 * high + low).ok()?);
    }
    String::from_utf8(out).ok()
}

/// A name that may stand in a statement as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(pub String);

impl Value for Name {
    fn parse(text: &str) -> Result<Self, String> {
        let first = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        let all = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !first || !all || text.len() > NAME_MAX_BYTES {
            return Err(format!(
                "must be a name of letters, digits and `_` that does not begin with a digit, up to {NAME_MAX_BYTES}"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Value for Secret {
    const SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        String::parse(text).map(Self)
    }
}

/// Where spans are posted to: a base URL, to which `/v1/traces` is added unless it ends so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpUrl(pub Uri);

/// The path of traces below the base URL, by the protocol.
const TRACES: &str = "/v1/traces";

impl Value for OtlpUrl {
    fn parse(text: &str) -> Result<Self, String> {
        let parts =
            parts(text).map_err(|why| format!("{why}, such as \"http://127.0.0.1:4318\""))?;
        if parts.user.is_some() {
            return Err(
                "must not hold a user or password: credentials go into `headers`".to_owned(),
            );
        }
        let path = parts.path.trim_end_matches('/');
        let path = path.strip_suffix(TRACES).unwrap_or(path);
        format!("{}{path}{TRACES}", parts.base)
            .parse()
            .map(Self)
            .map_err(|_| "must be a URL".to_owned())
    }
}

impl OtlpUrl {
    /// The same place for metrics.
    #[must_use]
    pub fn metrics(traces: &Uri) -> Option<Uri> {
        let text = traces.to_string();
        let base = text.strip_suffix(TRACES)?;
        format!("{base}/v1/metrics").parse().ok()
    }

    /// As a user would write it.
    #[must_use]
    pub fn spelled(traces: &Uri) -> String {
        let text = traces.to_string();
        text.strip_suffix(TRACES).map(str::to_owned).unwrap_or(text)
    }
}

/// A share from 0 to 1, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(pub u32);

impl Value for Share {
    fn parse(text: &str) -> Result<Self, String> {
        let allowed = "must be a share from 0 to 1 with at most 6 decimals, such as 0.25";
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 || whole.len() > 1 {
            return Err(allowed.to_owned());
        }
        let ppm = format!("{whole}{part:0<6}").parse().ok();
        ppm.filter(|ppm| *ppm <= 1_000_000)
            .map(Self)
            .ok_or_else(|| allowed.to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        Self::parse(decimal(value))
    }
}

impl Share {
    /// As a decimal.
    #[must_use]
    pub fn spelled(ppm: u32) -> String {
        let text = format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// A table of texts, in the order of the file.
fn texts(value: &DeValue<'_>, allowed: &str) -> Result<Vec<(String, String)>, String> {
    let table = value.as_table().ok_or(allowed)?;
    if table.len() > ENTRIES_MAX {
        return Err(format!("must have at most {ENTRIES_MAX} entries"));
    }
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    (entries.into_iter())
        .map(|(key, text)| {
            let text = text.get_ref().as_str().ok_or(allowed)?;
            Ok((key.get_ref().to_string(), text.to_owned()))
        })
        .collect()
}

/// Headers of our own, whose values are secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Headers(pub Vec<(HeaderName, HeaderValue)>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

const HEADERS: &str = "must be a table of header names and their values in quotes, such as { authorization = \"Bearer ...\" }";

impl Value for Headers {
    const SECRET: bool = true;

    fn parse(_: &str) -> Result<Self, String> {
        Err(HEADERS.to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let header = |(name, value): (String, String)| {
            let wrong =
                || format!("the header `{name}` has a name or value that HTTP does not allow");
            let parsed: HeaderName = name.parse().map_err(|_| wrong())?;
            let mut value: HeaderValue = value.parse().map_err(|_| wrong())?;
            value.set_sensitive(true);
            Ok((parsed, value))
        };
        let entries = texts(value, HEADERS)?.into_iter().map(header);
        entries.collect::<Result<_, String>>().map(Self)
    }
}

/// Names with a text each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

impl Value for Pairs {
    fn parse(_: &str) -> Result<Self, String> {
        Err("must be a table of names and texts, such as { \"deployment.environment.name\" = \"production\" }".to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let Err(allowed) = Self::parse("") else {
            return Ok(Self(Vec::new()));
        };
        texts(value, &allowed).map(Self)
    }
}

/// Names with a regular expression each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules(pub Vec<(String, String)>);

const RULES: &str =
    "must be a table of names and regular expressions, such as { ticket = \"TICKET-[0-9]+\" }";

impl Value for Rules {
    fn parse(_: &str) -> Result<Self, String> {
        Err(RULES.to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let rules = texts(value, RULES)?;
        for (name, rule) in &rules {
            let compiled = regex::RegexBuilder::new(rule)
                .size_limit(RULE_BYTES)
                .build();
            let regex = compiled.map_err(|why| {
                let why = why.to_string();
                let last = why.lines().last().unwrap_or_default();
                format!("the rule `{name}` is no regular expression that can be used: {last}")
            })?;
            if regex.is_match("") {
                return Err(format!(
                    "the rule `{name}` matches the empty text, which stands everywhere"
                ));
            }
        }
        Ok(Self(rules))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clickhouse_is_named_by_one_url() {
        let of = |text: &str| ClickHouseUrl::parse(text);
        let plain = of("http://127.0.0.1:8123").ok().unwrap();
        assert_eq!(plain.url, "http://127.0.0.1:8123");
        assert_eq!(
            (plain.user, plain.password, plain.database),
            (None, None, None)
        );
        let whole = of("https://gate:p%40ss:w@ch.example.com:8443/traces/")
            .ok()
            .unwrap();
        assert_eq!(whole.url, "https://ch.example.com:8443");
        assert_eq!(whole.user.as_deref(), Some("gate"));
        assert_eq!(whole.password.as_deref(), Some("p@ss:w"));
        assert_eq!(whole.database.as_deref(), Some("traces"));
        for wrong in [
            "clickhouse://h:9000",
            "h:8123",
            "http://",
            "http://h:99999",
            "http://h/a-b",
            "http://h?database=x",
            "http://u:%zz@h",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn endpoints_get_the_path_of_the_protocol_once() {
        let of = |text: &str| OtlpUrl::parse(text).map(|url| url.0.to_string());
        for same in [
            "http://c:4318",
            "http://c:4318/",
            "http://c:4318/v1/traces",
            "http://c:4318/v1/traces/",
        ] {
            assert_eq!(of(same).unwrap(), "http://c:4318/v1/traces", "{same}");
        }
        let behind = "https://cloud.example.com/api/public/otel";
        assert_eq!(of(behind).unwrap(), format!("{behind}/v1/traces"));
        let uri = of(behind).unwrap().parse().unwrap();
        assert_eq!(OtlpUrl::spelled(&uri), behind);
        let metrics = OtlpUrl::metrics(&uri).unwrap();
        assert_eq!(metrics.to_string(), format!("{behind}/v1/metrics"));
        assert!(of("c:4318").is_err());
        assert!(of("http://u:p@c:4318").unwrap_err().contains("headers"));
    }

    #[test]
    fn shares_are_exact() {
        for (text, ppm) in [
            ("0", 0),
            ("1", 1_000_000),
            ("0.1", 100_000),
            ("0.000001", 1),
            ("1.0", 1_000_000),
        ] {
            assert_eq!(Share::parse(text), Ok(Share(ppm)), "{text}");
        }
        for wrong in ["", "1.1", "2", "-1", "0.0000001", ".5", "1e-3", "50%"] {
            assert!(Share::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Share::spelled(250_000), "0.25");
        assert_eq!(Share::spelled(1_000_000), "1");
        assert_eq!(Share::spelled(0), "0");
    }
}
