//! The helpers' requests before the strict simulated provider: nothing of it is refused, and the
//! cache does what they are for.

use super::*;
use crate::config::Config;
use crate::prompt_cache::diagnosis;
use crate::prompt_cache::helpers::tool_order;
use crate::prompt_cache::splice;
use crate::provider::anthropic::diagnosis::meaning;
use crate::provider::anthropic::request::view;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::{Answer, Diagnosis};
use crate::provider::wire::Wire;
use crate::proxy::upstream::{self, Clients, SendBody};
use crate::sim;

struct Provider {
    sim: sim::Sim,
    clients: Clients,
    hand: sim::ManualClock,
}

impl Provider {
    fn new() -> Self {
        let (clock, hand) = sim::Clock::manual();
        let sim = sim::Sim::start(sim::Options {
            clock,
            ..sim::Options::default()
        });
        let clients = upstream::clients(&Config::embedded("unused".into())).unwrap();
        Self {
            sim: sim.unwrap(),
            clients,
            hand,
        }
    }

    fn uri(&self) -> Uri {
        let uri = format!("{}/v1/messages", self.sim.base_url());
        uri.parse().unwrap()
    }

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_static(SECRET));
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers
    }

    async fn send(&self, pieces: Vec<Bytes>) -> Answer {
        let mut request = http::Request::new(SendBody::pieces(pieces));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri();
        *request.headers_mut() = Self::headers();
        self.answer(request).await
    }

    async fn answer(&self, request: http::Request<SendBody>) -> Answer {
        let answer = self.clients.request(request).await.unwrap();
        let status = answer.status().as_u16();
        let kind = answer.headers()["content-type"].to_str().unwrap();
        let mut reader = Reader::new(
            Wire::Messages,
            Shape::of(status, Some(kind)),
            Limits::default(),
        );
        reader.feed(&answer.into_body().collect().await.unwrap().to_bytes());
        reader.end(Some(Ttl::M5));
        let answer = reader.into_answer();
        assert_eq!(answer.error, None);
        assert!(answer.finished);
        answer
    }
}

/// A request whose tools and system are worth caching.
fn request(tools: &[&str], system: &str) -> Bytes {
    let tools: Vec<String> = tools
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","description":"does {name}","input_schema":{{"type":"object"}}}}"#))
        .collect();
    let system = format!("{system} ").repeat(3000);
    Bytes::from(format!(
        r#"{{"model":"claude-sonnet-5-5","max_tokens":64,"stream":true,"tools":[{}],"system":[{{"type":"text","text":"{system}","cache_control":{{"type":"ephemeral"}}}}],"messages":[{{"role":"user","content":"hello"}}]}}"#,
        tools.join(", ")
    ))
}

#[tokio::test]
async fn a_pinged_prefix_outlives_a_pause_that_others_do_not() {
    let provider = Provider::new();
    let (kept, left) = (request(&["a"], "kept"), request(&["a"], "left"));
    let first = provider.send(vec![kept.clone()]).await;
    provider.send(vec![left.clone()]).await;
    let prefix = first.metered.usage.write_5m.filter(|n| *n > 1000).unwrap();

    let turn = TurnRecord::begin(Uuid::new_v4(), RequestKind::Turn, "anthropic", 5);
    let sent = [kept.slice(..40), kept.slice(40..)];
    let held = Held::new(provider.uri(), Provider::headers(), &sent, &turn).unwrap();
    for _ in 0..2 {
        provider.hand.advance(280_000);
        let ping = provider.answer(held.ping(1).request).await;
        assert_eq!(ping.metered.usage.read, Some(prefix));
        assert_eq!(ping.metered.usage.written(), Some(0));
        assert_eq!(ping.metered.usage.output, Some(0));
        assert!(!ping.content_begun);
    }
    provider.hand.advance(280_000);
    let resumed = provider.send(vec![kept]).await;
    assert_eq!(resumed.metered.usage.read, Some(prefix));
    let cold = provider.send(vec![left]).await;
    assert_eq!(cold.metered.usage.read, Some(0));
}

#[tokio::test]
async fn the_providers_diagnosis_is_asked_for_and_understood() {
    let provider = Provider::new();
    let ask = async |body: Bytes, previous: Option<&str>| {
        let question = diagnosis::ask(&view(&body).unwrap(), previous).unwrap();
        let answer = provider.send(splice::apply(&body, &[question])).await;
        let word = diagnosis::recorded(answer.native_diagnosis.as_deref(), true, true);
        (answer.id.clone().unwrap(), meaning(word.unwrap()))
    };
    let (first, _) = ask(request(&["a"], "s"), None).await;
    let (second, said) = ask(request(&["a"], "s"), Some(&first)).await;
    assert_eq!(said, Diagnosis::NoDifference);
    let (third, said) = ask(request(&["a", "b"], "s"), Some(&second)).await;
    assert_eq!(said, Diagnosis::Tools);
    let (_, said) = ask(request(&["a", "b"], "t"), Some(&third)).await;
    assert_eq!(said, Diagnosis::System);
    let (_, said) = ask(request(&["a"], "s"), Some("msg_of_another_workspace")).await;
    assert_eq!(said, Diagnosis::Nothing);
}

#[tokio::test]
async fn tools_in_a_stable_order_are_read_whatever_the_clients_order() {
    let provider = Provider::new();
    let (one, other) = (
        request(&["b", "c", "a"], "s"),
        request(&["c", "a", "b"], "s"),
    );
    let sorted = |body: &Bytes| {
        let mut seen = view(body).unwrap();
        tool_order::rewritten(body, &mut seen).unwrap()
    };
    let first = provider.send(vec![sorted(&one)]).await;
    let second = provider.send(vec![sorted(&other)]).await;
    let prefix = first.metered.usage.write_5m.filter(|n| *n > 1000);
    assert_eq!(second.metered.usage.read, prefix);
    // As the client sent it, it would have been written again.
    let plain = provider.send(vec![other]).await;
    assert_eq!(plain.metered.usage.read, Some(0));
}
