//! Settings for receivers that are known to take OTLP over HTTP with protobuf.

/// What one receiver needs, as variables of the OpenTelemetry environment. `${...}` stands for what
/// only the user knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Its name.
    pub name: &'static str,
    /// Where spans are posted to, with the path.
    pub traces: &'static str,
    /// Headers, as `OTEL_EXPORTER_OTLP_TRACES_HEADERS` has them.
    pub headers: &'static str,
    /// Attributes of the resource that it looks at.
    pub resource: &'static str,
    /// It takes compressed posts.
    pub gzip: bool,
    /// It has to be told the older names as well.
    pub both: bool,
    /// Where metrics are posted to, if it takes them.
    pub metrics: Option<&'static str>,
    /// Spans of ours were sent to it and looked at.
    pub tried: bool,
}

/// The known receivers; BACKENDS.md says more of each.
pub const BACKENDS: &[Backend] = &[
    Backend {
        name: "Collector",
        traces: "http://127.0.0.1:4318/v1/traces",
        headers: "",
        resource: "",
        gzip: true,
        both: false,
        metrics: Some("http://127.0.0.1:4318/v1/metrics"),
        tried: true,
    },
    Backend {
        name: "Langfuse",
        traces: "https://cloud.langfuse.com/api/public/otel/v1/traces",
        headers: "Authorization=Basic%20${BASE64_OF_PUBLIC_AND_SECRET_KEY},x-langfuse-ingestion-version=4",
        resource: "",
        gzip: true,
        both: false,
        metrics: None,
        tried: false,
    },
    Backend {
        name: "LangSmith",
        traces: "https://api.smith.langchain.com/otel/v1/traces",
        headers: "x-api-key=${LANGSMITH_API_KEY},Langsmith-Project=${LANGSMITH_PROJECT}",
        resource: "",
        gzip: true,
        both: false,
        metrics: None,
        tried: false,
    },
    Backend {
        name: "Phoenix",
        traces: "http://127.0.0.1:6006/v1/traces",
        headers: "Authorization=Bearer%20${PHOENIX_API_KEY}",
        resource: "openinference.project.name=${PROJECT}",
        gzip: true,
        both: true,
        metrics: None,
        tried: true,
    },
    Backend {
        name: "Helicone",
        traces: "https://api.helicone.ai/v1/trace/log-python",
        headers: "Authorization=Bearer%20${HELICONE_API_KEY}",
        resource: "",
        gzip: false,
        both: false,
        metrics: None,
        tried: false,
    },
    Backend {
        name: "Datadog",
        traces: "https://otlp.datadoghq.com/v1/traces",
        headers: "dd-api-key=${DD_API_KEY},dd-otlp-source=llmobs",
        resource: "",
        gzip: true,
        both: false,
        metrics: None,
        tried: false,
    },
    Backend {
        name: "Honeycomb",
        traces: "https://api.honeycomb.io/v1/traces",
        headers: "x-honeycomb-team=${HONEYCOMB_API_KEY}",
        resource: "",
        gzip: true,
        both: false,
        metrics: Some("https://api.honeycomb.io/v1/metrics"),
        tried: false,
    },
];

impl Backend {
    /// The variables that set it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, &'static str)> {
        let mut variables = vec![("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", self.traces)];
        let mut add = |name, value: &'static str| {
            if !value.is_empty() {
                variables.push((name, value));
            }
        };
        add("OTEL_EXPORTER_OTLP_TRACES_HEADERS", self.headers);
        add("OTEL_RESOURCE_ATTRIBUTES", self.resource);
        add(
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            if self.gzip { "" } else { "none" },
        );
        let both = "gen_ai_latest_experimental/dup";
        add(
            "OTEL_SEMCONV_STABILITY_OPT_IN",
            if self.both { both } else { "" },
        );
        add(
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            self.metrics.unwrap_or_default(),
        );
        if self.metrics.is_some() {
            add("OTEL_EXPORTER_OTLP_METRICS_HEADERS", self.headers);
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_otel_env;

    #[test]
    fn every_setting_is_understood_and_stands_in_the_table() {
        let table = include_str!("BACKENDS.md");
        for backend in BACKENDS {
            let variables = backend.environment();
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let env = from_otel_env(get).unwrap().unwrap();
            let settings = env.settings().unwrap();
            assert_eq!(settings.traces.to_string(), backend.traces);
            assert_eq!(settings.gzip, backend.gzip, "{}", backend.name);
            let both = settings.semconv == crate::config::Semconv::Both;
            assert_eq!(both, backend.both, "{}", backend.name);
            let headers = backend.headers.split(',').filter(|h| !h.is_empty()).count();
            assert_eq!(settings.headers.len(), headers, "{}", backend.name);
            let row = table
                .lines()
                .find(|line| line.starts_with(&format!("| {} |", backend.name)))
                .unwrap_or_else(|| panic!("no row for {}", backend.name));
            assert!(row.contains(backend.traces), "{row}");
            for header in backend.headers.split(',') {
                assert!(row.contains(header), "{row}: {header}");
            }
            let tried = if backend.tried {
                "| tried"
            } else {
                "| not tried here"
            };
            assert!(row.contains(tried), "{row}");
        }
    }
}
