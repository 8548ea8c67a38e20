use serde_json::Value;

use super::super::samples::{MINUTE, START, USD, digest, event, level, of_event, of_turn};
use super::*;
use crate::config::Form;
use crate::trace::{EventKind, EventRecord, Outcome};

fn watch(change: impl FnOnce(&mut Alerts)) -> Watch {
    let mut settings = Alerts::default();
    change(&mut settings);
    Watch::new(&settings, TimeZone::UTC)
}

fn hear(watch: &mut Watch, event: EventRecord) -> Option<Alert> {
    let now_ms = event.at_ms;
    let mut alerts = watch.hear(&of_event(event), now_ms);
    assert!(alerts.len() <= 1);
    alerts.pop()
}

fn turn(watch: &mut Watch, digest: Digest) -> Vec<Kind> {
    let now_ms = digest.at_ms;
    let alerts = watch.hear(&of_turn(digest), now_ms);
    alerts.iter().map(|alert| alert.kind).collect()
}

fn json(alert: &Alert) -> Value {
    serde_json::from_slice(&alert.body(Form::Json)).unwrap()
}

#[test]
fn d13_each_level_is_told_once_for_each_cap_and_in_order() {
    let mut watch = watch(|_| {});
    // Wall time 1 h, 200 turns, 5 USD; a request a minute that costs 0.04. The books of several
    // gateways may report the same level again and again.
    let caps = [
        ("wall_time", 60_000, 3_600_000),
        ("turns", 1, 200),
        ("usd", USD / 25, 5 * USD),
    ];
    let mut told: Vec<(String, u32)> = Vec::new();
    for minute in 1..=200_u64 {
        for (cap, each, limit) in caps {
            let value = each * minute;
            let reached = value * 100 / limit;
            let Some(level) = [100, 80, 50].into_iter().find(|level| reached >= *level) else {
                continue;
            };
            let crossing = EventRecord {
                value: Some(value),
                limit: Some(limit),
                level: u32::try_from(level).ok(),
                ..event(EventKind::CapLevel, cap, "nightly", START + MINUTE)
            };
            if let Some(alert) = hear(&mut watch, crossing) {
                assert_eq!(reached, level, "told by the request that crosses it");
                let body = json(&alert);
                assert_eq!(body["run"], "nightly");
                told.push((cap.to_owned(), u32::try_from(level).unwrap()));
            }
        }
    }
    let expected = |cap: &str| -> Vec<(String, u32)> {
        [50, 80, 100].map(|level| (cap.to_owned(), level)).into()
    };
    for (cap, ..) in caps {
        let of_cap: Vec<_> = told
            .iter()
            .filter(|(name, _)| name == cap)
            .cloned()
            .collect();
        assert_eq!(of_cap, expected(cap));
        // That it then refuses is known from the last level.
        let refused = event(EventKind::CapRefused, cap, "nightly", START);
        assert_eq!(hear(&mut watch, refused), None);
    }
    assert_eq!(told.len(), 9);
    // A lower level that comes late is no news, and another run is another matter.
    assert_eq!(hear(&mut watch, level("nightly", 50)), None);
    assert!(hear(&mut watch, level("weekly", 50)).is_some());
}

#[test]
fn d13_the_payload_names_run_cap_value_and_limit() {
    let mut watch = watch(|_| {});
    let event = EventRecord {
        app: Some("etl".to_owned()),
        ..level("nightly", 80)
    };
    let id = event.id;
    let alert = hear(&mut watch, event).unwrap();
    let body = json(&alert);
    for (key, value) in [
        ("kind", "cap_level"),
        ("severity", "warning"),
        ("run", "nightly"),
        ("app", "etl"),
        ("scope", "run"),
        ("cap", "usd"),
        ("value", "4"),
        ("limit", "5"),
        ("unit", "usd"),
        (
            "title",
            "Run nightly has used 80 % of the cap usd: 4 of 5 USD",
        ),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    assert_eq!(body["level"], 80);
    assert_eq!(body["id"], id.to_string(), "the id of the record");
    assert_eq!(alert.record(), None, "it is recorded already");
}

#[test]
fn only_the_levels_that_are_asked_for_are_told() {
    let mut watch = watch(|settings| settings.cap_levels = vec![80]);
    assert_eq!(hear(&mut watch, level("r", 50)), None);
    assert!(hear(&mut watch, level("r", 80)).is_some());
    assert_eq!(hear(&mut watch, level("r", 100)), None);
    // Since the last level was not told, the refusal is, once.
    let refused = || EventRecord {
        value: Some(5 * USD),
        limit: Some(5 * USD),
        ..event(EventKind::CapRefused, "usd", "r", START)
    };
    let alert = hear(&mut watch, refused()).unwrap();
    assert_eq!(
        (alert.kind, alert.severity),
        (Kind::CapRefused, Severity::Critical)
    );
    assert_eq!(json(&alert)["action"], "refused");
    assert_eq!(hear(&mut watch, refused()), None);
    // A cap that lets the same request pass later stops nothing.
    let rate = event(EventKind::CapRefused, "requests_per_minute", "r", START);
    assert_eq!(hear(&mut watch, rate).unwrap().severity, Severity::Warning);
}

#[test]
fn caps_of_a_key_are_told_anew_each_day_and_for_all_of_its_runs_at_once() {
    let mut watch = watch(|_| {});
    let day = 24 * 60 * MINUTE;
    let crossing = |run: &str, at_ms| EventRecord {
        scope: "key".to_owned(),
        at_ms,
        ..level(run, 100)
    };
    let refused = |run: &str, at_ms| EventRecord {
        scope: "key".to_owned(),
        ..event(EventKind::CapRefused, "usd", run, at_ms)
    };
    assert!(hear(&mut watch, crossing("a", START)).is_some());
    assert_eq!(hear(&mut watch, crossing("a", START + 1)), None);
    for run in ["a", "b", ""] {
        assert_eq!(hear(&mut watch, refused(run, START + 2)), None);
    }
    assert!(hear(&mut watch, crossing("a", START + day)).is_some());
    // Where no run is named, a crossing may be of any key.
    assert!(hear(&mut watch, crossing("", START)).is_some());
    let title = hear(&mut watch, crossing("", START)).unwrap().title;
    assert!(
        title.starts_with("A key has used 100 % of the cap usd"),
        "{title}"
    );
    // On a day without a level it is the refusal that is told.
    assert!(hear(&mut watch, refused("c", START + 2 * day)).is_some());
    assert_eq!(hear(&mut watch, refused("d", START + 2 * day)), None);
}

#[test]
fn an_unenforced_cap_is_told_once_for_each_run_and_model() {
    let mut watch = watch(|_| {});
    let flagged = |run: &str, model: &str| event(EventKind::CapUnenforced, model, run, START);
    let alert = hear(&mut watch, flagged("r", "new-model")).unwrap();
    let body = json(&alert);
    assert_eq!(
        (&body["model"], &body["cap"]),
        (&"new-model".into(), &"usd".into())
    );
    assert_eq!(hear(&mut watch, flagged("r", "new-model")), None);
    assert!(hear(&mut watch, flagged("r", "other")).is_some());
    assert!(hear(&mut watch, flagged("q", "new-model")).is_some());
    let alert = hear(&mut watch, flagged("r", "usd")).unwrap();
    let title = "The cap usd cannot be enforced for run r: its model has no price";
    assert_eq!(alert.title, title);
    assert!(json(&alert).get("model").is_none());
}

#[test]
fn a_loop_is_told_at_each_step_of_its_ladder() {
    let step = |thread: &str, action: &str| EventRecord {
        thread_id: thread.to_owned(),
        scope: String::new(),
        action: action.to_owned(),
        value: Some(6),
        limit: Some(3),
        pico: Some(USD / 2),
        tools: vec!["bash".to_owned(), "read".to_owned()],
        ..event(EventKind::Loop, "cycle", "r", START)
    };
    let mut loud = watch(|_| {});
    let alert = hear(&mut loud, step("main", "warn")).unwrap();
    assert_eq!(alert.severity, Severity::Warning);
    let body = json(&alert);
    assert_eq!(body["tools"], serde_json::json!(["bash", "read"]));
    for (key, value) in [
        ("count", Value::from(6)),
        ("threshold", 3.into()),
        ("detector", "cycle".into()),
        ("action", "warn".into()),
        ("usd", "0.5".into()),
        ("thread", "main".into()),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    assert!(body.get("scope").is_none());
    assert_eq!(hear(&mut loud, step("main", "warn")), None);
    let blocked = hear(&mut loud, step("main", "block")).unwrap();
    assert_eq!(blocked.severity, Severity::Critical);
    assert!(hear(&mut loud, step("agent-2", "warn")).is_some());
    let mut quiet = watch(|settings| settings.loops = false);
    assert_eq!(hear(&mut quiet, step("main", "block")), None);
}

fn costing(minute: i64, pico: u64) -> Digest {
    Digest {
        cost_pico: Some(pico),
        ..digest(START + minute * MINUTE)
    }
}

#[test]
fn the_cost_of_an_hour_is_told_when_it_is_reached_and_again_only_after_a_calm() {
    let mut watch = watch(|settings| settings.cost_per_hour_pico = Some(10 * USD));
    for minute in 0..9 {
        assert_eq!(turn(&mut watch, costing(minute, USD)), []);
    }
    assert_eq!(turn(&mut watch, costing(9, USD)), [Kind::CostRate]);
    // It stays there, falls a little, and rises again: nothing new.
    for minute in 10..60 {
        assert_eq!(turn(&mut watch, costing(minute, 0)), []);
    }
    assert_eq!(turn(&mut watch, costing(61, 0)), [], "8 USD are not calm");
    assert_eq!(turn(&mut watch, costing(61, 3 * USD)), []);
    // Calm for less than ten minutes.
    assert_eq!(turn(&mut watch, costing(65, 0)), []);
    assert_eq!(turn(&mut watch, costing(71, 10 * USD)), []);
    // All calm for long, though nothing was heard in the meantime.
    assert_eq!(turn(&mut watch, costing(71 + 59, 0)), []);
    assert_eq!(turn(&mut watch, costing(300, 9 * USD)), []);
    let digest = costing(301, USD + 1);
    let alerts = watch.hear(&of_turn(digest), START + 301 * MINUTE);
    let body = json(&alerts[0]);
    for (key, value) in [
        ("kind", "cost_rate"),
        ("value", "10.000000000001"),
        ("limit", "10"),
        ("unit", "usd"),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    let record = alerts[0].record().unwrap();
    assert_eq!(
        (record.kind, record.name.as_str()),
        (EventKind::Alert, "cost_rate")
    );
    assert_eq!(
        (record.value, record.limit),
        (Some(10 * USD + 1), Some(10 * USD))
    );
    assert_eq!(record.id, alerts[0].id);
}

fn prompt(minute: i64, read: u64, uncached: u64) -> Digest {
    let mut digest = digest(START + minute * MINUTE);
    digest.usage.read = Some(read);
    digest.usage.uncached = Some(uncached);
    digest
}

#[test]
fn a_drop_of_the_hit_ratio_is_told_once_and_again_after_a_recovery() {
    let mut watch = watch(|settings| settings.hit_ratio_drop = Some(20));
    let mut told = Vec::new();
    let mut minutes = |range: std::ops::Range<i64>, read: u64| {
        for minute in range {
            let digest = prompt(minute, read, 100_000 - read);
            let alerts = watch.hear(&of_turn(digest), START + minute * MINUTE);
            told.extend(alerts.into_iter().map(|alert| (minute, alert)));
        }
        told.len()
    };
    assert_eq!(minutes(0..60, 90_000), 0);
    // Five of 15 minutes at 30 % bring the ratio from 90 to 70 %.
    assert_eq!(minutes(60..64, 30_000), 0);
    assert_eq!(minutes(64..65, 30_000), 1);
    // It stays low until that is the usual ratio, and recovers.
    assert_eq!(minutes(65..200, 30_000), 1);
    assert_eq!(minutes(200..300, 90_000), 1);
    assert_eq!(minutes(300..330, 10_000), 2);
    let (minute, alert) = &told[0];
    assert_eq!(*minute, 64);
    let body = json(alert);
    for (key, value) in [
        ("kind", "hit_ratio"),
        ("ratio_before", "90"),
        ("ratio_now", "70"),
        ("value", "20"),
        ("limit", "20"),
        ("unit", "percentage_points"),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
}

#[test]
fn hit_ratios_are_not_compared_on_few_tokens_nor_on_our_own_requests() {
    let mut watch = watch(|settings| settings.hit_ratio_drop = Some(20));
    for minute in 0..60 {
        assert_eq!(turn(&mut watch, prompt(minute, 90_000, 10_000)), []);
    }
    // 15 minutes later none of that is recent.
    assert_eq!(turn(&mut watch, prompt(75, 0, 199_999)), []);
    let ping = Digest {
        kind: RequestKind::KeepWarm,
        ..prompt(75, 0, 900_000)
    };
    assert_eq!(turn(&mut watch, ping), []);
    let mut unknown = prompt(75, 0, 900_000);
    unknown.usage.read = None;
    assert_eq!(turn(&mut watch, unknown), []);
    assert_eq!(turn(&mut watch, prompt(75, 0, 1)), [Kind::HitRatio]);
}

fn breaking(minute: i64, run: &str, path: &str, pico: u64) -> Digest {
    Digest {
        run_id: run.to_owned(),
        culprit: Some((path.to_owned(), pico)),
        ..digest(START + minute * MINUTE)
    }
}

#[test]
fn a_culprit_is_told_once_a_day_for_each_path_and_app() {
    let mut watch = watch(|settings| settings.culprit_pico = Some(USD));
    // Places of the growing conversation are one path; two runs are two sums.
    let path = |n: u32| format!("messages[{n}].content[0]");
    assert_eq!(turn(&mut watch, breaking(0, "a", &path(1), USD / 2)), []);
    assert_eq!(turn(&mut watch, breaking(1, "b", &path(1), USD / 2)), []);
    let digest = breaking(2, "a", &path(7), USD / 2);
    let alert = watch.hear(&of_turn(digest), START + 2 * MINUTE).remove(0);
    let body = json(&alert);
    for (key, value) in [
        ("kind", "culprit"),
        ("path", "messages[*].content[*]"),
        ("run", "a"),
        ("app", "etl"),
        ("value", "1"),
        ("usd", "1"),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    let record = alert.record().unwrap();
    assert_eq!((record.run_id.as_str(), record.pico), ("a", Some(USD)));
    assert_eq!(turn(&mut watch, breaking(3, "b", &path(9), USD)), []);
    assert_eq!(
        turn(&mut watch, breaking(4, "b", "system[0]", USD)),
        [Kind::Culprit]
    );
    let mut other = breaking(5, "c", &path(1), USD);
    other.app = None;
    assert_eq!(turn(&mut watch, other), [Kind::Culprit]);
    let day = 24 * 60;
    assert_eq!(turn(&mut watch, breaking(day + 1, "a", &path(1), 1)), []);
    assert_eq!(
        turn(&mut watch, breaking(day + 2, "a", &path(1), 1)),
        [Kind::Culprit]
    );
}

#[test]
fn a_model_without_a_price_is_told_once() {
    let of = |model: &str| Digest {
        model: Some(model.to_owned()),
        unpriced: true,
        ..digest(START)
    };
    let mut loud = watch(|_| {});
    assert_eq!(turn(&mut loud, of("a")), [Kind::Unpriced]);
    assert_eq!(turn(&mut loud, of("a")), []);
    assert_eq!(turn(&mut loud, of("b")), [Kind::Unpriced]);
    // A name that no answer stands behind is anybody's.
    let failed = Digest {
        outcome: Outcome::UpstreamError,
        usage: Usage::default(),
        ..of("no-such-model")
    };
    assert_eq!(turn(&mut loud, failed), []);
    let mut quiet = watch(|settings| settings.unpriced = false);
    assert_eq!(turn(&mut quiet, of("a")), []);
}

#[test]
fn dropped_records_are_told_at_most_every_ten_minutes_with_their_number() {
    let of = |minute: i64, dropped| Digest {
        dropped,
        ..digest(START + minute * MINUTE)
    };
    let mut watch = watch(|_| {});
    assert_eq!(turn(&mut watch, of(0, 0)), []);
    assert_eq!(turn(&mut watch, of(1, 5)), [Kind::Store]);
    assert_eq!(turn(&mut watch, of(2, 7)), []);
    assert_eq!(turn(&mut watch, of(10, 9)), []);
    let alerts = watch.hear(&of_turn(of(11, 9)), START + 11 * MINUTE);
    let body = json(&alerts[0]);
    assert_eq!(
        (&body["value"], &body["unit"]),
        (&"4".into(), &"records".into())
    );
    assert_eq!(body["dropped_in_all"], 9);
    assert_eq!(turn(&mut watch, of(40, 9)), [], "nothing new");
}

#[test]
fn nothing_grows_without_bound() {
    let mut watch = watch(|settings| settings.culprit_pico = Some(2));
    for n in 0..8_500_u32 {
        let name = format!("{n}-{}", "x".repeat(300));
        let mut digest = breaking(i64::from(n), &name, &name, 2);
        digest.unpriced = true;
        digest.model = Some(name.clone());
        digest.app = Some(name.clone());
        for alert in watch.hear(&of_turn(digest), START + i64::from(n) * MINUTE) {
            assert!(json(&alert).to_string().len() < 2_500);
        }
        for (kind, cap) in [
            (EventKind::CapLevel, "usd"),
            (EventKind::CapRefused, "turns"),
            (EventKind::CapUnenforced, "m"),
            (EventKind::Loop, "cycle"),
        ] {
            let event = EventRecord {
                level: Some(50),
                tools: vec![name.clone(); 100],
                ..event(kind, cap, &name, START)
            };
            assert!(json(&hear(&mut watch, event).unwrap()).to_string().len() < 4_000);
        }
    }
    assert_eq!(watch.losses.len(), MAX_LOSSES);
    assert_eq!(watch.culprits.len(), MAX_CULPRITS);
    assert_eq!(watch.unpriced.len(), MAX_UNPRICED);
    assert_eq!(watch.events.sizes(), [8_192, 8_192, 1_024, 4_096]);
    // What is still in use is not what is forgotten.
    assert_eq!(
        hear(&mut watch, level(&format!("8499-{}", "x".repeat(300)), 50)),
        None
    );
}
