//! The documented setting of each backend leads to the request that it wants.

use prefixgate::config::from_otel_env;
use prefixgate::export::otlp::BACKENDS;

use super::*;

#[tokio::test]
async fn each_documented_setting_leads_to_its_request() {
    for backend in BACKENDS {
        let receiver = Upstream::start(|_, _| answer("200 OK", "", b"")).await;
        // Only the host is another one.
        let (_, path) = backend
            .traces
            .split_once("://")
            .unwrap()
            .1
            .split_once('/')
            .unwrap();
        let here = format!("{}/{path}", receiver.url());
        let variables = backend.environment();
        let env = from_otel_env(|name| match name {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => Some(here.clone()),
            _ => {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.replace("${", "").replace('}', ""))
            }
        });
        let settings = env.unwrap().unwrap().settings().unwrap();
        let (mut exporter, _) = exporter(&settings);
        exporter
            .deliver_entries(vec![of(&turn("run-1", "main", 1, 0))])
            .await
            .unwrap();
        let seen = receiver.last();
        assert_eq!(seen.line(), format!("POST /{path}"), "{}", backend.name);
        assert_eq!(spans(&seen).len(), 1);
        let wanted: &[(&str, &str)] = match backend.name {
            "Langfuse" => &[
                ("authorization", "Basic BASE64_OF_PUBLIC_AND_SECRET_KEY"),
                ("x-langfuse-ingestion-version", "4"),
            ],
            "LangSmith" => &[
                ("x-api-key", "LANGSMITH_API_KEY"),
                ("langsmith-project", "LANGSMITH_PROJECT"),
            ],
            "Phoenix" => &[("authorization", "Bearer PHOENIX_API_KEY")],
            "Helicone" => &[("authorization", "Bearer HELICONE_API_KEY")],
            "Datadog" => &[("dd-api-key", "DD_API_KEY"), ("dd-otlp-source", "llmobs")],
            "Honeycomb" => &[("x-honeycomb-team", "HONEYCOMB_API_KEY")],
            _ => &[],
        };
        for (name, value) in wanted {
            assert_eq!(seen.header(name), Some(*value), "{}", backend.name);
        }
        let packed = seen.header("content-encoding") == Some("gzip");
        assert_eq!(packed, backend.gzip, "{}", backend.name);
    }
}
