//! The standard environment of OpenTelemetry exporters, as far as it means something here.
//!
//! `OTEL_EXPORTER_OTLP_*`: `ENDPOINT`, `HEADERS`, `TIMEOUT`, `COMPRESSION` and `PROTOCOL`, each also
//! with `TRACES_` or `METRICS_` in front, which goes first; `OTEL_TRACES_EXPORTER` and
//! `OTEL_METRICS_EXPORTER` (`otlp`, `none`); `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`;
//! `OTEL_TRACES_SAMPLER` and its `_ARG`; `OTEL_SEMCONV_STABILITY_OPT_IN`; `OTEL_SDK_DISABLED`. An
//! empty variable is one that is not set.
//!
//! In two things it departs from the specification. Nothing is sent unless an endpoint is named: the
//! default address of a collector is no wish to send there. And metrics are sent only to an endpoint
//! of their own, or with `OTEL_METRICS_EXPORTER=otlp`: many receivers take traces only.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

use super::{Otlp, Problem, Semconv};

/// Where spans are posted to, whatever is said of other signals.
pub(super) const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// Headers of a post.
type Headers = Vec<(HeaderName, HeaderValue)>;

/// What the environment says. `None` is what it does not say.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpEnv {
    /// Where spans are posted to.
    pub traces: Option<Uri>,
    /// Where metrics are posted to.
    pub metrics: Option<Uri>,
    /// Headers of posts of spans.
    pub headers: Option<Headers>,
    /// Headers of posts of metrics.
    pub metrics_headers: Option<Headers>,
    /// Whether posts are compressed.
    pub gzip: Option<bool>,
    /// How long a post may take.
    pub timeout: Option<Duration>,
    /// Share of runs, in millionths.
    pub sample_ppm: Option<u32>,
    /// Attributes of the resource, `service.name` among them where it is said.
    pub resource: Vec<(String, String)>,
    /// Names.
    pub semconv: Option<Semconv>,
}

impl std::fmt::Debug for OtlpEnv {
    /// Without the headers, which hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OtlpEnv")
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}

impl OtlpEnv {
    /// The settings that it gives by itself; `None` where it names no endpoint for spans.
    #[must_use]
    pub fn settings(self) -> Option<Otlp> {
        let mut settings = Otlp::at(self.traces.clone()?);
        self.apply(&mut settings);
        Some(settings)
    }

    /// Puts what it says in the place of what `settings` have.
    pub fn apply(self, settings: &mut Otlp) {
        if let Some(traces) = self.traces {
            settings.traces = traces;
        }
        settings.metrics = self.metrics.or(settings.metrics.take());
        if let Some(headers) = self.headers {
            settings.headers = headers;
        }
        settings.metrics_headers = self.metrics_headers.or(settings.metrics_headers.take());
        settings.gzip = self.gzip.unwrap_or(settings.gzip);
        settings.timeout = self.timeout.unwrap_or(settings.timeout);
        settings.sample_ppm = self.sample_ppm.unwrap_or(settings.sample_ppm);
        settings.semconv = self.semconv.unwrap_or(settings.semconv);
        for (key, value) in self.resource {
            match settings
                .resource
                .iter_mut()
                .find(|(known, _)| *known == key)
            {
                Some((_, old)) => *old = value,
                None => settings.resource.push((key, value)),
            }
        }
    }
}

/// Reads the environment by `get`. `None` where it asks for nothing: no endpoint is named, or all is
/// switched off.
///
/// # Errors
/// Each variable that is wrong, with what would be right. Values are not repeated where they may hold
/// credentials.
pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Option<OtlpEnv>, Vec<Problem>> {
    let mut reader = Reader {
        get: &get,
        problems: Vec::new(),
    };
    let env = reader.read();
    if reader.problems.is_empty() {
        Ok(env)
    } else {
        Err(reader.problems)
    }
}

struct Reader<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(&mut self) -> Option<OtlpEnv> {
        if self
            .value("OTEL_SDK_DISABLED")
            .is_some_and(|v| v.eq_ignore_ascii_case("true"))
        {
            return None;
        }
        let traces = self.exporter("OTEL_TRACES_EXPORTER") != Some(false);
        let metrics = self.exporter("OTEL_METRICS_EXPORTER");
        let base = self.uri("OTEL_EXPORTER_OTLP_ENDPOINT");
        let own_traces = self.uri(TRACES_ENDPOINT);
        let own_metrics = self.uri("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        if base.is_none() && own_traces.is_none() && own_metrics.is_none() {
            return None;
        }
        let below = |path: &str| base.as_ref().and_then(|base| join(base, path));
        let metrics = match metrics {
            Some(false) => None,
            Some(true) => own_metrics.or_else(|| below("v1/metrics")),
            None => own_metrics,
        };
        let env = OtlpEnv {
            traces: own_traces.or_else(|| below("v1/traces")).filter(|_| traces),
            metrics,
            headers: self.headers("TRACES_"),
            metrics_headers: self.headers("METRICS_"),
            gzip: self.gzip(),
            timeout: self.timeout(),
            sample_ppm: self.sampler(),
            resource: self.resource(),
            semconv: self.semconv(),
        };
        self.protocol();
        let silent = env.traces.is_none() && env.metrics.is_none();
        (!silent).then_some(env)
    }

    fn value(&self, name: &str) -> Option<String> {
        let value = (self.get)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn wrong(&mut self, name: &str, message: impl Into<String>) {
        self.problems.push(Problem {
            place: name.to_owned(),
            message: message.into(),
        });
    }

    /// The variable of a signal, or the one for all signals.
    fn specific(&self, signal: &str, what: &str) -> Option<(String, String)> {
        [signal, ""].iter().find_map(|signal| {
            let name = format!("OTEL_EXPORTER_OTLP_{signal}{what}");
            self.value(&name).map(|value| (name, value))
        })
    }

    /// A list: others may stand beside `otlp`, as for a library that knows them.
    fn exporter(&mut self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        if value.split(',').any(|word| word.trim() == "otlp") {
            return Some(true);
        }
        if value != "none" {
            self.wrong(
                name,
                "must be `otlp` or `none`: there are no other exporters here",
            );
        }
        Some(false)
    }

    fn uri(&mut self, name: &str) -> Option<Uri> {
        let value = self.value(name)?;
        let uri: Option<Uri> = value.parse().ok();
        let good = uri.filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.authority().is_some_and(|at| !at.as_str().contains('@'))
        });
        if good.is_none() {
            self.wrong(
                name,
                "must be a URL such as http://127.0.0.1:4318, without user and password",
            );
        }
        good
    }

    fn headers(&mut self, signal: &str) -> Option<Headers> {
        let (name, value) = self.specific(signal, "HEADERS")?;
        let mut headers = Headers::new();
        for (index, pair) in pairs(&value).enumerate() {
            let header = pair.and_then(|(key, value)| {
                let key = HeaderName::from_bytes(key.as_bytes()).ok()?;
                let mut value = HeaderValue::from_bytes(&percent_decoded(value)).ok()?;
                value.set_sensitive(true);
                Some((key, value))
            });
            match header {
                Some(header) => headers.push(header),
                None => self.wrong(
                    &name,
                    format!(
                        "its entry {} is not a header: must be name=value,name=value",
                        index + 1
                    ),
                ),
            }
        }
        Some(headers)
    }

    fn gzip(&mut self) -> Option<bool> {
        let (name, value) = self.specific("TRACES_", "COMPRESSION")?;
        match value.as_str() {
            "gzip" => Some(true),
            "none" => Some(false),
            _ => {
                self.wrong(&name, "must be `gzip` or `none`");
                None
            }
        }
    }

    fn timeout(&mut self) -> Option<Duration> {
        let (name, value) = self.specific("TRACES_", "TIMEOUT")?;
        match value.parse::<u64>() {
            Ok(ms) if ms > 0 => Some(Duration::from_millis(ms)),
            _ => {
                self.wrong(&name, "must be a number of milliseconds from 1");
                None
            }
        }
    }

    fn protocol(&mut self) {
        for signal in ["TRACES_", "METRICS_"] {
            let Some((name, value)) = self.specific(signal, "PROTOCOL") else {
                continue;
            };
            if value != "http/protobuf" && !self.problems.iter().any(|p| p.place == name) {
                self.wrong(
                    &name,
                    "must be `http/protobuf`: OTLP over gRPC or with JSON is not spoken here (receivers \
                     take http/protobuf mostly on port 4318, and gRPC on 4317)",
                );
            }
        }
    }

    fn sampler(&mut self) -> Option<u32> {
        let name = "OTEL_TRACES_SAMPLER";
        let value = self.value(name)?;
        match value.as_str() {
            "always_on" | "parentbased_always_on" => Some(1_000_000),
            "always_off" | "parentbased_always_off" => Some(0),
            "traceidratio" | "parentbased_traceidratio" => {
                let name = "OTEL_TRACES_SAMPLER_ARG";
                let Some(ratio) = self.value(name) else {
                    return Some(1_000_000);
                };
                let ppm = millionths(&ratio);
                if ppm.is_none() {
                    self.wrong(name, "must be a share from 0 to 1, such as 0.25");
                }
                ppm
            }
            _ => {
                self.wrong(
                    name,
                    "must be one of always_on, always_off, traceidratio, parentbased_always_on, \
                     parentbased_always_off, parentbased_traceidratio",
                );
                None
            }
        }
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource = Vec::new();
        for pair in pairs(&self.value(name).unwrap_or_default()) {
            let text = pair.and_then(|(key, value)| {
                let text = |raw| String::from_utf8(percent_decoded(raw)).ok();
                Some((text(key)?, text(value)?))
            });
            match text {
                Some(pair) => resource.push(pair),
                None => self.wrong(name, "must be key=value,key=value, in UTF-8"),
            }
        }
        if let Some(service) = self.value("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), service));
        }
        resource
    }

    /// There is no word for both in the conventions of GenAI; those of others end in `/dup`.
    fn semconv(&self) -> Option<Semconv> {
        let value = self.value("OTEL_SEMCONV_STABILITY_OPT_IN")?;
        let mut words = value.split(',').map(str::trim);
        words.find_map(|word| match word {
            "gen_ai_latest_experimental" => Some(Semconv::Latest),
            "gen_ai_latest_experimental/dup" | "gen_ai/dup" => Some(Semconv::Both),
            _ => None,
        })
    }
}

/// `key=value` pairs between commas; `None` for what is none. Properties behind a semicolon are part
/// of the value: keys may hold one, and there is no receiver that wants any.
fn pairs(list: &str) -> impl Iterator<Item = Option<(&str, &str)>> {
    let entries = list
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries.map(|entry| {
        let (key, value) = entry.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        (!key.is_empty()).then_some((key, value))
    })
}

/// Bytes behind `%`; what is no such escape stays as it is.
fn percent_decoded(text: &str) -> Vec<u8> {
    let digit = |d: Option<&u8>| {
        let digit = char::from(*d?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = (*byte == b'%')
            .then(|| Some(digit(bytes.get(at + 1))? << 4 | digit(bytes.get(at + 2))?))
            .flatten();
        decoded.push(escape.unwrap_or(*byte));
        at += if escape.is_some() { 3 } else { 1 };
    }
    decoded
}

/// A path below that of a base URL, whether or not it ends in a slash. A query stays behind it.
fn join(base: &Uri, path: &str) -> Option<Uri> {
    let mut parts = base.clone().into_parts();
    let query = base
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let joined = format!("{}/{path}{query}", base.path().trim_end_matches('/'));
    parts.path_and_query = Some(joined.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// A share from 0 to 1 in decimals, cut to millionths.
fn millionths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || (whole.is_empty() && decimals.is_empty()) {
        return None;
    }
    let six: String = decimals
        .chars()
        .chain(std::iter::repeat('0'))
        .take(6)
        .collect();
    let whole: u32 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let ppm = whole
        .checked_mul(1_000_000)?
        .checked_add(six.parse().ok()?)?;
    let cut = decimals.bytes().skip(6).any(|b| b != b'0');
    (ppm <= 1_000_000 && !(ppm == 1_000_000 && cut)).then_some(ppm)
}

#[cfg(test)]
mod tests;
