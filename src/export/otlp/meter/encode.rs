//! The counters as metrics of the protocol.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    self as otlp, AggregationTemporality, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric::Data, number_data_point::Value,
};

use super::super::attr::Attributes;
use super::{Histogram, Labels, Meter, Turns};

/// Microseconds in a second.
const SECOND: f64 = 1e6;

/// Which counter of a series.
type Count = fn(&Turns) -> Option<u64>;
/// Which distribution of a series.
type Spread = fn(&Turns) -> &Histogram;

const COUNTERS: &[(&str, Count)] = &[
    ("input_tokens", |t| sum(&t.input)),
    ("output_tokens", |t| sum(&t.output)),
    ("cache_read.input_tokens", |t| t.read),
    ("cache_write.input_tokens", |t| t.written),
    ("reasoning.output_tokens", |t| t.reasoning),
];

impl Meter {
    /// All metrics as they stand at `now`, in nanoseconds since 1970.
    pub(in super::super) fn metrics(&self, now: u64) -> Vec<Metric> {
        let now = now.max(self.start);
        let mut metrics = Vec::new();
        for (kind, value) in COUNTERS {
            let name = format!("gen_ai.client.inference.usage.{kind}");
            let points = self.turns.iter().filter_map(|(labels, turns)| {
                let value = i64::try_from(value(turns)?).unwrap_or(i64::MAX);
                let mut put = attributes(labels);
                put.text("gen_ai.token.modality", "unknown");
                Some(self.number(now, put.done(), Value::AsInt(value)))
            });
            metrics.extend(counter(&name, "{token}", points.collect()));
        }
        let cost = self.turns.iter().filter_map(|(labels, turns)| {
            let usd = scaled(turns.cost_pico?, 1e12);
            Some(self.number(now, attributes(labels).done(), Value::AsDouble(usd)))
        });
        metrics.extend(counter("prefixgate.cost", "USD", cost.collect()));
        let tokens = "gen_ai.client.inference.operation";
        let mut spread = |name: &str, unit: &str, scale: f64, of: Spread, kind: Option<&str>| {
            let points = self.turns.iter().map(|(labels, turns)| {
                let mut put = attributes(labels);
                put.text("gen_ai.token.type", kind);
                self.histogram(now, put.done(), of(turns), scale)
            });
            metrics.extend(distribution(name, unit, points.flatten().collect()));
        };
        spread(
            &format!("{tokens}.input_tokens"),
            "{token}",
            1.0,
            |t| &t.input,
            None,
        );
        spread(
            &format!("{tokens}.output_tokens"),
            "{token}",
            1.0,
            |t| &t.output,
            None,
        );
        spread(
            "gen_ai.client.inference.duration",
            "s",
            SECOND,
            |t| &t.duration,
            None,
        );
        spread(
            "gen_ai.client.inference.time_to_first_chunk",
            "s",
            SECOND,
            |t| &t.first,
            None,
        );
        if self.both {
            spread(
                "gen_ai.client.operation.duration",
                "s",
                SECOND,
                |t| &t.duration,
                None,
            );
            let name = "gen_ai.client.token.usage";
            spread(name, "{token}", 1.0, |t| &t.input, Some("input"));
            spread(name, "{token}", 1.0, |t| &t.output, Some("output"));
        }
        metrics.extend(self.calls(now));
        joined(metrics)
    }

    fn calls(&self, now: u64) -> Option<Metric> {
        let points = self
            .calls
            .iter()
            .zip([None, Some("tool_failed")])
            .filter_map(|(of, error)| {
                let mut put = Attributes::default();
                put.text("gen_ai.operation.name", "execute_tool");
                put.text("error.type", error);
                self.histogram(now, put.done(), of, SECOND)
            });
        distribution("gen_ai.execute_tool.duration", "s", points.collect())
    }

    fn number(&self, now: u64, attributes: Vec<KeyValue>, value: Value) -> NumberDataPoint {
        NumberDataPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    fn histogram(
        &self,
        now: u64,
        attributes: Vec<KeyValue>,
        of: &Histogram,
        scale: f64,
    ) -> Option<HistogramDataPoint> {
        let count = of.count();
        (count > 0).then(|| HistogramDataPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: now,
            count,
            sum: Some(scaled(of.sum, scale)),
            bucket_counts: of.counts.clone(),
            explicit_bounds: of
                .bounds
                .iter()
                .map(|b| scaled(u128::from(*b), scale))
                .collect(),
            ..HistogramDataPoint::default()
        })
    }
}

fn attributes(labels: &Labels) -> Attributes {
    let mut put = Attributes::default();
    if labels.overflow {
        put.flag("otel.metric.overflow", true);
        return put;
    }
    put.text("gen_ai.operation.name", "chat");
    put.text("gen_ai.provider.name", labels.provider.as_str());
    put.text("gen_ai.request.model", labels.model.as_str());
    put.text("error.type", labels.error);
    put.text("prefixgate.app", labels.app.as_deref());
    put
}

/// A sum over nothing is unknown.
fn sum(of: &Histogram) -> Option<u64> {
    (of.count() > 0).then(|| u64::try_from(of.sum).unwrap_or(u64::MAX))
}

fn counter(name: &str, unit: &str, data_points: Vec<NumberDataPoint>) -> Option<Metric> {
    (!data_points.is_empty()).then(|| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        })),
        ..Metric::default()
    })
}

fn distribution(name: &str, unit: &str, data_points: Vec<HistogramDataPoint>) -> Option<Metric> {
    (!data_points.is_empty()).then(|| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(Data::Histogram(otlp::Histogram {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        })),
        ..Metric::default()
    })
}

/// Two of the same name become one with the points of both.
fn joined(metrics: Vec<Metric>) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::with_capacity(metrics.len());
    for metric in metrics {
        match (all.last_mut(), metric) {
            (
                Some(Metric {
                    name,
                    data: Some(Data::Histogram(kept)),
                    ..
                }),
                Metric {
                    name: same,
                    data: Some(Data::Histogram(more)),
                    ..
                },
            ) if *name == same => kept.data_points.extend(more.data_points),
            (_, metric) => all.push(metric),
        }
    }
    all
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the protocol has doubles; the counters are exact"
)]
fn scaled(value: u128, scale: f64) -> f64 {
    value as f64 / scale
}
