//! A real Prometheus scrapes a real gateway at work, and a real Alertmanager tells a webhook.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::dashboards::{boards, queries, variables};
use super::{Replica, Scene};
use crate::support::eventually;
use crate::support::prometheus::{Alertmanager, Hook, Prometheus};

/// Time for all of it to be scraped, evaluated and sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// A dashboard's variables at `All`, and its windows at what suits a scrape a second.
fn expanded(query: &str) -> String {
    let mut text = query.to_owned();
    for (name, value) in [
        ("$__rate_interval", "10s"),
        ("$__interval", "5s"),
        ("$__range", "60s"),
        ("$upstream", ".*"),
        ("$app", ".*"),
        ("$model", ".*"),
    ] {
        text = text.replace(name, value);
    }
    assert!(!text.contains('$'), "{text}");
    text
}

struct Stack {
    scene: Scene,
    replica: Replica,
    prometheus: Prometheus,
    _alertmanager: Alertmanager,
    hook: Hook,
}

impl Stack {
    /// Everything at work, and both gateways scraped once.
    async fn start() -> Self {
        let scene = Scene::start();
        let hook = Hook::start().await;
        let alertmanager = Alertmanager::start(hook.addr);
        let replica = Replica::start(&scene).await;
        let gateways = [scene.gateway.admin, replica.gateway.admin];
        let prometheus = Prometheus::start(&gateways, alertmanager.addr());
        let deadline = Instant::now() + PATIENCE;
        // It answers before it is ready to be asked.
        while prometheus.values(r#"up{job="prefixgate"}"#).await != Ok(vec![1.0, 1.0]) {
            assert!(Instant::now() < deadline, "the gateways are never scraped");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Self {
            scene,
            replica,
            prometheus,
            _alertmanager: alertmanager,
            hook,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_is_told_from_the_gateway_to_the_webhook() {
    let mut stack = Stack::start().await;
    stack.scene.round().await;
    let told = async {
        loop {
            let message = stack.hook.told.recv().await.unwrap();
            let alerts = message["alerts"].as_array().unwrap();
            let found = alerts
                .iter()
                .find(|alert| alert["labels"]["alertname"] == "PrefixgateLoop");
            if let Some(alert) = found {
                return alert.clone();
            }
        }
    };
    let alert = tokio::time::timeout(PATIENCE, told)
        .await
        .expect("told in time");
    assert_eq!(alert["status"], "firing");
    assert_eq!(alert["labels"]["severity"], "warning");
    assert_eq!(alert["labels"]["detector"], "same_call");
    assert_eq!(
        alert["annotations"]["summary"],
        "An agent goes round in circles (same_call)"
    );
    assert_eq!(
        alert["annotations"]["runbook"],
        "config/prometheus/RUNBOOK.md#prefixgateloop"
    );
    // What Prometheus has is what the gateway says.
    let (gateway, prometheus) = (&stack.scene.gateway, &stack.prometheus);
    eventually("the same cost in both", async || {
        let cost = gateway.metric("prefixgate_cost_usd_total", &[]).await;
        let scraped = prometheus.values("sum(prefixgate_cost_usd_total)").await;
        let scraped = scraped.ok()?.first().copied()?;
        (cost > 0.0 && (cost - scraped).abs() < 1e-9).then_some(())
    })
    .await;
    stack.scene.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_every_dashboard_and_rule_returns_data() {
    let Stack {
        mut scene,
        mut replica,
        prometheus,
        ..
    } = Stack::start().await;
    let mut pending: Vec<(String, String, bool)> = Vec::new();
    for (file, board) in boards("prometheus") {
        for (panel, target) in queries(&board) {
            let expr = expanded(target["expr"].as_str().unwrap());
            pending.push((format!("{file}: {panel}"), expr, target["instant"] == true));
        }
    }
    let count = pending.len();
    assert!(count > 80, "{count}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Rates need traffic that goes on.
        scene.round().await;
        replica.round().await;
        let mut missing = Vec::new();
        for (whose, expr, instant) in pending {
            let values = if instant {
                prometheus.values(&expr).await
            } else {
                prometheus.values_of_late(&expr).await
            };
            let values = values.unwrap_or_else(|error| panic!("{whose}: {expr}: {error}"));
            if values.is_empty() {
                missing.push((whose, expr, instant));
            }
        }
        pending = missing;
        if pending.is_empty() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{} of {count} without data: {pending:#?}",
            pending.len()
        );
    }

    // The panels of stores have shown what was really delivered.
    replica.delivered().await;
    for kept in [
        r#"prefixgate_spool_delivered_total{store="clickhouse"}"#,
        r#"prefixgate_spool_delivered_total{store="otlp"}"#,
        r#"prefixgate_otlp_spans_total{result="sent"}"#,
        "sum(prefixgate_captured_turns_total)",
    ] {
        eventually(kept, async || {
            let values = prometheus.values(kept).await.unwrap();
            (values.first().copied()? > 0.0).then_some(())
        })
        .await;
    }

    for (file, board) in boards("prometheus") {
        for query in variables(&board) {
            let inner = query
                .strip_prefix("label_values(")
                .unwrap()
                .strip_suffix(')')
                .unwrap();
            let (metric, label) = inner.split_once(", ").unwrap();
            let path = format!("label/{label}/values");
            let values = prometheus.api(&path, &[("match[]", metric)]).await.unwrap();
            assert!(!values.as_array().unwrap().is_empty(), "{file}: {query}");
        }
    }

    // Every rule was evaluated without an error, and what is recorded is there.
    let rules = prometheus.api("rules", &[]).await.unwrap();
    let rules = rules["groups"].as_array().unwrap().iter();
    let rules: Vec<_> = rules
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    let recorded = super::rules::recorded();
    let names: BTreeSet<String> = rules
        .iter()
        .map(|rule| rule["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.is_superset(recorded));
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }
    for name in recorded {
        let values = prometheus.values(name).await.unwrap();
        assert!(!values.is_empty(), "{name} is never recorded");
    }
    scene.sim.shutdown().await;
}
