use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point::Value};
use uuid::Uuid;

use super::*;
use crate::config::Semconv;
use crate::export::otlp::naming::Provider;
use crate::trace::Outcome;
use crate::usage::Usage;

const T: i64 = 1_796_083_200_000;

fn naming() -> Naming {
    let provider = Provider {
        name: "anthropic".into(),
        address: "api.anthropic.com".into(),
        port: 443,
    };
    Naming {
        providers: vec![("anthropic".into(), provider)],
        semconv: Semconv::Latest,
        sample_ppm: 0,
    }
}

fn turn(model: &str, app: Option<&str>, cost: Option<u64>) -> Entry {
    let mut turn = TurnRecord::begin(Uuid::now_v7(), RequestKind::Turn, "anthropic", T);
    turn.outcome = Outcome::Ok;
    turn.model_requested = Some(model.into());
    turn.app = app.map(Into::into);
    turn.duration_us = 1_500_000;
    turn.streamed = true;
    turn.first_token_us = Some(20_000);
    turn.usage = Usage {
        uncached: Some(200),
        read: Some(900),
        write_5m: Some(100),
        write_1h: Some(0),
        output: Some(80),
        ..Usage::default()
    };
    turn.cost_pico = cost;
    Entry::Turn(Box::new(turn))
}

fn named<'a>(metrics: &'a [Metric], name: &str) -> &'a Data {
    let found: Vec<_> = metrics
        .iter()
        .filter(|metric| metric.name == name)
        .collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0].data.as_ref().unwrap()
}

fn numbers(data: &Data) -> Vec<Value> {
    let Data::Sum(sum) = data else {
        panic!("{data:?}")
    };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
    sum.data_points
        .iter()
        .map(|point| point.value.unwrap())
        .collect()
}

#[test]
fn turns_are_counted_and_spread() {
    let mut meter = Meter::new(T, &naming(), &[]);
    let turns = [
        turn("claude-opus-5", None, Some(4_075_000_000)),
        turn("claude-opus-5", None, Some(1)),
    ];
    meter.add(&turns, &naming());
    let metrics = meter.metrics(nanos(T + 5));
    let usage = |kind: &str| {
        numbers(named(
            &metrics,
            &format!("gen_ai.client.inference.usage.{kind}"),
        ))
    };
    assert_eq!(usage("input_tokens"), [Value::AsInt(2_400)]);
    assert_eq!(usage("cache_read.input_tokens"), [Value::AsInt(1_800)]);
    assert_eq!(usage("cache_write.input_tokens"), [Value::AsInt(200)]);
    assert_eq!(usage("output_tokens"), [Value::AsInt(160)]);
    assert_eq!(
        numbers(named(&metrics, "prefixgate.cost")),
        [Value::AsDouble(4_075_000_001.0 / 1e12)]
    );
    let unknown = "gen_ai.client.inference.usage.reasoning.output_tokens";
    assert!(
        metrics.iter().all(|metric| metric.name != unknown),
        "unknown is no zero"
    );
    let Data::Histogram(first) = named(&metrics, "gen_ai.client.inference.time_to_first_chunk")
    else {
        panic!()
    };
    let point = &first.data_points[0];
    // 20 ms belongs to the bucket that ends there.
    assert_eq!((point.count, point.bucket_counts[1]), (2, 2));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert!((point.sum.unwrap() - 0.04).abs() < 1e-12);
    assert_eq!(
        (point.start_time_unix_nano, point.time_unix_nano),
        (nanos(T), nanos(T + 5))
    );
}

#[test]
fn older_names_come_besides_when_wanted() {
    let both = Naming {
        semconv: Semconv::Both,
        ..naming()
    };
    let mut meter = Meter::new(T, &both, &[]);
    meter.add(&[turn("claude-opus-5", None, Some(1))], &both);
    let metrics = meter.metrics(nanos(T));
    let Data::Histogram(usage) = named(&metrics, "gen_ai.client.token.usage") else {
        panic!()
    };
    assert_eq!(usage.data_points.len(), 2, "input and output");
    named(&metrics, "gen_ai.client.operation.duration");
    named(&metrics, "gen_ai.client.inference.duration");
}

#[test]
fn e01_labels_are_bounded() {
    let mut meter = Meter::new(T, &naming(), &["review".into()]);
    let mut strange = Vec::new();
    for n in 0..20_000 {
        // Models that do not exist, and models that are priced under ever other names.
        strange.push(turn(&format!("x-{n}"), Some(&format!("app-{n}")), None));
        strange.push(turn(&format!("opus-{n}"), Some("review"), Some(1)));
    }
    meter.add(&strange, &naming());
    assert_eq!(meter.models.len(), MAX_MODELS);
    assert_eq!(meter.turns.len(), MAX_MODELS + 2);

    let mut meter = Meter::new(
        T,
        &naming(),
        &(0..500).map(|n| format!("app-{n}")).collect::<Vec<_>>(),
    );
    let many: Vec<Entry> = (0..100 * 500)
        .map(|n| {
            turn(
                &format!("m-{}", n % 60),
                Some(&format!("app-{}", n / 100)),
                Some(1),
            )
        })
        .collect();
    meter.add(&many, &naming());
    assert_eq!(meter.turns.len(), MAX_SERIES + 1);
    let metrics = meter.metrics(nanos(T));
    let Data::Histogram(input) = named(&metrics, "gen_ai.client.inference.operation.input_tokens")
    else {
        panic!()
    };
    let counted: u64 = input.data_points.iter().map(|point| point.count).sum();
    assert_eq!(counted, 50_000, "none is lost");
}
