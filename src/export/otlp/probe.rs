//! Whether a receiver takes what it is sent: an empty export, which is a valid one.

use super::post::{Meaning, Post, Target};
use crate::config::Otlp;
use crate::proxy::upstream::UpstreamClient;

/// Whose fault an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nobody's: it was taken.
    None,
    /// The settings': a wrong path or key.
    Settings,
    /// The receiver has too much to do, or is failing.
    Receiver,
    /// It does not like what it was sent: it may not speak this protocol.
    Protocol,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// `traces` or `metrics`.
    pub signal: &'static str,
    /// Status, with what the receiver says of it; why there is no answer otherwise.
    pub said: String,
    /// Whose fault that is.
    pub fault: Fault,
}

/// Sends an empty export for each signal that is sent.
pub async fn probe(settings: &Otlp, client: UpstreamClient) -> Vec<Probe> {
    let post = Post::new(client, settings);
    let metrics = settings.metrics.as_ref().map(|uri| {
        let headers = settings.metrics_headers.as_ref();
        ("metrics", uri, headers.unwrap_or(&settings.headers))
    });
    let traces = ("traces", &settings.traces, &settings.headers);
    let mut probes = Vec::new();
    for (signal, uri, headers) in std::iter::once(traces).chain(metrics) {
        let target = Target {
            uri: uri.clone(),
            headers: headers.clone(),
        };
        let (said, fault) = match post.probe(&target).await {
            Err(failure) => (failure.to_string(), Fault::Receiver),
            Ok((meaning, said)) => {
                let fault = match meaning {
                    Meaning::Taken => Fault::None,
                    Meaning::Settings => Fault::Settings,
                    Meaning::Later | Meaning::Unclear => Fault::Receiver,
                    Meaning::Refused => Fault::Protocol,
                };
                (said, fault)
            }
        };
        probes.push(Probe {
            signal,
            said,
            fault,
        });
    }
    probes
}
