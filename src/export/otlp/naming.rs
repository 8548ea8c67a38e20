//! What spans and metrics call an upstream.

use crate::config::{Otlp, Semconv, Upstream};

/// `gen_ai.provider.name` for the providers whose id in the price data is another.
const PROVIDERS: &[(&str, &str)] = &[
    ("aws", "aws.bedrock"),
    ("azure", "azure.ai.openai"),
    ("google", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("moonshotai", "moonshot_ai"),
    ("x-ai", "x_ai"),
];

/// An upstream, as spans name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// `gen_ai.provider.name`.
    pub name: String,
    /// `server.address`.
    pub address: String,
    /// `server.port`.
    pub port: u16,
}

impl Provider {
    /// That of an upstream: by the provider whose prices hold for it.
    #[must_use]
    pub fn of(upstream: &Upstream) -> Self {
        let id = upstream.price_provider.as_str();
        let known = PROVIDERS.iter().find(|(ours, _)| *ours == id);
        let tls = upstream.base.scheme_str() == Some("https");
        Self {
            name: known.map_or(id, |(_, theirs)| theirs).to_owned(),
            address: upstream.base.host().unwrap_or_default().to_owned(),
            port: upstream
                .base
                .port_u16()
                .unwrap_or(if tls { 443 } else { 80 }),
        }
    }
}

/// What is needed, beside the records, to make spans of them.
#[derive(Debug, Clone)]
pub struct Naming {
    /// By the name of the upstream.
    pub providers: Vec<(String, Provider)>,
    /// Which names attributes have.
    pub semconv: Semconv,
    /// Share of runs that is exported, in millionths.
    pub sample_ppm: u32,
}

impl Naming {
    /// By the settings.
    #[must_use]
    pub fn new(settings: &Otlp, upstreams: &[Upstream]) -> Self {
        Self {
            providers: upstreams
                .iter()
                .map(|upstream| (upstream.name.clone(), Provider::of(upstream)))
                .collect(),
            semconv: settings.semconv,
            sample_ppm: settings.sample_ppm,
        }
    }

    pub(super) fn provider(&self, upstream: &str) -> Option<&Provider> {
        let found = self.providers.iter().find(|(name, _)| name == upstream);
        found.map(|(_, provider)| provider)
    }

    pub(super) fn both(&self) -> bool {
        self.semconv == Semconv::Both
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Format;

    #[test]
    fn providers_have_the_names_of_the_conventions() {
        let of = |id: &str, url: &str| {
            let provider = Provider::of(&Upstream {
                name: "up".into(),
                base: url.parse().unwrap(),
                format: Format::Opaque,
                price_provider: id.into(),
                dialect: crate::provider::dialect::Dialect::default(),
            });
            (provider.name, provider.address, provider.port)
        };
        assert_eq!(
            of("anthropic", "https://api.anthropic.com"),
            ("anthropic".into(), "api.anthropic.com".into(), 443)
        );
        assert_eq!(
            of("aws", "http://h:81/x"),
            ("aws.bedrock".into(), "h".into(), 81)
        );
        assert_eq!(of("openrouter", "http://h").0, "openrouter");
    }
}
