//! Loops, caps, applications, alerts and webhooks.

use super::super::file::{self, File};
use super::*;
use crate::guard::caps::Limits;
use crate::guard::loops::{Action, Detector, Policy};

/// What the full file shows of the guards, for the test that it shows everything.
pub(super) fn shown_in(file: &File, add: &mut dyn FnMut(&str, &[&str])) {
    add("loops", &file.loops.typed);
    add("caps", &file.caps.typed);
    add("caps.run", &file.run_caps.typed);
    add("caps.unnamed", &file.unnamed_caps.typed);
    add("caps.key", &file.key_caps.typed);
    add("app.NAME", &file.apps[0].section.typed);
    add("alerts", &file.alerts.typed);
    add("webhook.NAME", &file.webhooks[0].section.typed);
    assert_eq!(file.loops.typed, file::Loops::KEYS);
    assert_eq!(file.caps.typed, file::Caps::KEYS);
    assert_eq!(file.run_caps.typed, file::RunCaps::KEYS);
    assert_eq!(file.unnamed_caps.typed, file::UnnamedCaps::KEYS);
    assert_eq!(file.key_caps.typed, file::KeyCaps::KEYS);
    assert_eq!(file.apps[0].section.typed, file::App::KEYS);
    assert_eq!(file.alerts.typed, file::Alerts::KEYS);
    assert_eq!(file.webhooks[0].section.typed, file::Webhook::KEYS);
}

fn load(file: &str) -> Config {
    Case::new(file).load().unwrap()
}

#[test]
fn errors_of_the_guards_say_where_what_and_how() {
    let run =
        "(known keys: turns, input_tokens, output_tokens, tokens, usd, wall_time, depth, agents)";
    let key = "(known keys: usd_per_day, tokens_per_day, requests_per_minute, concurrency)";
    let ladder = "must be one of \"off\", \"warn\", \"hint\", \"block\", \"answer\", or a list of up to 3 of them, \
                  each stricter than the one before and \"off\" only alone";
    for (file, expected) in [
        (
            "[loops]\nacton = \"warn\"",
            "f.toml:2: unknown key `acton` in [loops]; did you mean `action`? (known keys: action, same_call, same_error, \
             cycle, no_progress, same_call_action, same_error_action, cycle_action, no_progress_action)"
                .to_owned(),
        ),
        ("[caps.run]\nturn = 5", format!("f.toml:2: unknown key `turn` in [caps.run]; did you mean `turns`? {run}")),
        (
            "[caps.run]\nstatus = 400",
            format!("f.toml:2: unknown key `status` in [caps.run]; it belongs into [caps] {run}"),
        ),
        (
            "[caps]\nusd = 5",
            "f.toml:2: unknown key `usd` in [caps]; it belongs into [caps.run] (known keys: action, status, reserve, unpriced, \
             default_max_tokens, headers, zone, redis, redis_down, run, unnamed, key)"
                .to_owned(),
        ),
        (
            "[caps.key]\nusd = 5\ntokens = 6",
            format!(
                "f.toml:2: unknown key `usd` in [caps.key]; did you mean `usd_per_day`? {key}\n\
                 f.toml:3: unknown key `tokens` in [caps.key]; did you mean `tokens_per_day`? {key}"
            ),
        ),
        ("[caps]\nrun = 5", "f.toml:2: `run` must be a section: [caps.run]".to_owned()),
        (
            "[app]\nturns = 5",
            "f.toml:2: `turns` stands in [app], which holds sections with names only: [app.NAME]".to_owned(),
        ),
        (
            "[app.\"a b\"]\nturns = 5",
            "f.toml:1: the name of an application must be 1 to 64 letters, digits, `.`, `_` and `-`; \"a b\" is not"
                .to_owned(),
        ),
        (
            "[caps.run]\nturns = 0",
            "f.toml:2: caps.run.turns = 0: must be a whole number from 1 to 1000000000000000".to_owned(),
        ),
        (
            "[caps.run]\nturns = \"5\"",
            "f.toml:2: caps.run.turns = \"5\": must be a whole number from 1 to 1000000000000000, without quotes or unit"
                .to_owned(),
        ),
        (
            "[caps.run]\nusd = 0.0000000000001",
            "f.toml:2: caps.run.usd = 0.0000000000001: must be USD as a plain decimal above 0 and up to 1000000, with at \
             most 12 decimals, such as 2.50"
                .to_owned(),
        ),
        ("[caps.run]\nwall_time = \"0s\"", "f.toml:2: caps.run.wall_time = \"0s\": must be from 1s to 8760h".to_owned()),
        ("[caps.run]\ndepth = 65", "f.toml:2: caps.run.depth = 65: must be a whole number from 0 to 64".to_owned()),
        ("[caps]\nstatus = 500", "f.toml:2: caps.status = 500: must be a whole number from 400 to 499".to_owned()),
        (
            "[caps]\nzone = \"Mars/Olympus\"",
            "f.toml:2: caps.zone = \"Mars/Olympus\": must be a name of the time-zone database, such as \"Europe/Berlin\" \
             or \"UTC\""
                .to_owned(),
        ),
        (
            "[caps]\nredis = \"rediss://:secret@h\"",
            "f.toml:2: caps.redis = ***: must start with redis:// or unix://, as TLS to Redis is not built in".to_owned(),
        ),
        ("[loops]\naction = [\"hint\", \"warn\"]", format!("f.toml:2: loops.action = [\"hint\", \"warn\"]: {ladder}")),
        ("[app.x]\nloops = \"on\"", format!("f.toml:2: app.x.loops = \"on\": {ladder}")),
        ("[loops]\ncycle = 1", "f.toml:2: loops.cycle = 1: must be a whole number from 2 to 1000".to_owned()),
        (
            "[alerts]\ncap_levels = [80, 50]",
            "f.toml:2: alerts.cap_levels = [80, 50]: must be a list of at most 10 whole percentages from 1 to 100, \
             ascending, such as [50, 80, 100]"
                .to_owned(),
        ),
        (
            "[webhook.x]\nurl = \"https://h/secret\"",
            "f.toml:1: [webhook.x] needs both `url` and `form` (form: \"json\" for all of an alert, \"slack\" for a message)"
                .to_owned(),
        ),
        (
            "[webhook.x]\nurl = \"h/secret\"\nform = \"json\"",
            "f.toml:2: webhook.x.url = ***: must be a whole URL that starts with http:// or https://".to_owned(),
        ),
        (
            "turns = 5",
            "f.toml:1: unknown key `turns`; did you mean `turns` in [caps.run]? (known sections: server, timeouts, \
             upstream, cache, anthropic, openai, loops, caps, app, alerts, webhook, store, clickhouse, otlp, spool, capture, metrics, tls, price, agent)"
                .to_owned(),
        ),
    ] {
        assert_eq!(Case::new(file).problems(), expected, "{file}");
    }
}

#[test]
fn actions_of_single_loops_go_before_the_one_of_all() {
    let config =
        load("[loops]\naction = [\"hint\", \"answer\"]\nsame_call = 4\ncycle_action = \"off\"\n");
    assert_eq!(config.loops.same_call.threshold, 4);
    assert_eq!(
        config.loops.same_call.ladder,
        [Action::Hint, Action::Answer]
    );
    assert_eq!(config.loops.cycle.ladder, [Action::Off]);
    assert_eq!(
        (config.loops.cycle.at(9), config.loops.same_call.at(8)),
        (None, Some(Action::Answer))
    );
    let printed = config.to_toml();
    assert!(
        printed.contains("same_error_action = [\"hint\", \"answer\"]\n"),
        "{printed}"
    );
    assert!(
        printed.contains("cycle_action = \"off\"\n") && !printed.contains("[loops]\naction ="),
        "{printed}"
    );
    assert_eq!(load(&printed).loops, config.loops);
    // Who said so is told of each.
    assert!(
        config
            .origin("loops.no_progress_action")
            .to_string()
            .ends_with("f.toml:2")
    );
    assert!(
        config
            .origin("loops.cycle_action")
            .to_string()
            .ends_with("f.toml:4")
    );
}

#[test]
fn an_application_has_its_own_loops_limits_and_status() {
    let config = load(
        "[loops]\naction = \"hint\"\ncycle = 7\n[caps]\nstatus = 402\n[caps.run]\nturns = 10\nusd = 1\n\
         [app.\"x.y\"]\nsame_call_action = \"block\"\nusd = 2.5\nstatus = 403\n[app.quiet]\nloops = \"off\"\n",
    );
    let own = config.loops_for(Some("x.y"));
    assert_eq!(
        (own.cycle.threshold, &*own.cycle.ladder),
        (7, &[Action::Hint][..])
    );
    assert_eq!(own.same_call.ladder, [Action::Block]);
    assert!(config.loops_for(Some("quiet")).is_off());
    assert_eq!(config.loops_for(Some("other")), &config.loops);
    let limits = config.run_limits(Some("x.y"));
    assert_eq!(
        (limits.turns, limits.usd_pico),
        (Some(10), Some(2_500_000_000_000))
    );
    assert_eq!(config.run_limits(Some("quiet")), config.caps.run);
    assert_eq!(config.run_limits(None), config.caps.run);
    assert_eq!(config.refusal_status(Some("x.y")), 403);
    assert_eq!(
        (
            config.refusal_status(None),
            config.refusal_status(Some("quiet"))
        ),
        (402, 402)
    );

    let printed = config.to_toml();
    assert!(
        printed.contains("[app.\"x.y\"]\nsame_call_action = \"block\"\n"),
        "{printed}"
    );
    let again = load(&printed);
    assert_eq!(again.loops_for(Some("x.y")), own);
    assert_eq!(again.run_limits(Some("x.y")), limits);
}

#[test]
fn what_names_no_run_has_the_limits_of_a_run_unless_it_has_its_own() {
    let config = load(
        "[caps.run]\nturns = 10\nusd = 1\nwall_time = \"1h\"\ndepth = 0\n[caps.unnamed]\nusd = 9\ntokens = 5\n",
    );
    let expected = Limits {
        turns: Some(10),
        tokens: Some(5),
        usd_pico: Some(9_000_000_000_000),
        ..Limits::default()
    };
    assert_eq!(config.caps.unnamed, expected);
    assert_eq!(config.caps.run.depth, Some(0));
    assert_eq!(config.caps.run.wall_ms, Some(3_600_000));
    assert!(
        config
            .origin("caps.unnamed.turns")
            .to_string()
            .ends_with("f.toml:2")
    );
    assert!(
        config
            .origin("caps.unnamed.usd")
            .to_string()
            .ends_with("f.toml:7")
    );
    let key = load("[caps.key]\nusd_per_day = 0.000000000001\ntokens_per_day = 3\nrequests_per_minute = 2\nconcurrency = 1").caps.key;
    let expected = Limits {
        usd_pico: Some(1),
        tokens: Some(3),
        requests_per_minute: Some(2),
        concurrency: Some(1),
        ..Limits::default()
    };
    assert_eq!(key, expected);
}

#[test]
fn flags_and_variables_of_the_guards_go_before_the_file() {
    let file =
        "[caps.run]\nturns = 1\nusd = 1\ntokens = 1\nagents = 3\n[loops]\naction = \"off\"\n";
    let case = Case::new(file)
        .set("PREFIXGATE_MAX_TURNS", "2")
        .set("PREFIXGATE_MAX_USD", "0.25")
        .set("PREFIXGATE_LOOPS", "hint,answer")
        .flags(|flags| {
            flags.guards.max_turns = Some("3".to_owned());
            flags.guards.max_tokens = Some("400".to_owned());
        });
    let config = case.load().unwrap();
    let expected = Limits {
        turns: Some(3),
        usd_pico: Some(250_000_000_000),
        tokens: Some(400),
        agents: Some(3),
        ..Limits::default()
    };
    assert_eq!(config.caps.run, expected);
    assert_eq!(config.loops.cycle.ladder, [Action::Hint, Action::Answer]);
    assert_eq!(
        config.origin("caps.run.turns"),
        &Origin::Flag("--max-turns")
    );
    assert_eq!(
        config.origin("caps.unnamed.turns"),
        &Origin::Flag("--max-turns")
    );
    assert_eq!(
        config.origin("caps.run.usd"),
        &Origin::Environment("PREFIXGATE_MAX_USD")
    );
    assert_eq!(
        config.origin("loops.action"),
        &Origin::Environment("PREFIXGATE_LOOPS")
    );
    let wrong = Case::new("").flags(|flags| {
        flags.guards.max_usd = Some("-1".to_owned());
        flags.guards.max_turns = Some("many".to_owned());
    });
    assert_eq!(
        wrong.problems(),
        "--max-turns: caps.run.turns = \"many\": must be a whole number from 1 to 1000000000000000\n\
         --max-usd: caps.run.usd = \"-1\": must be USD as a plain decimal above 0 and up to 1000000, with at most 12 \
         decimals, such as 2.50"
    );
}

#[test]
fn alerts_and_webhooks_are_read_and_secrets_are_not_shown() {
    let config = load(
        "[caps]\nredis = \"redis://me:hush@127.0.0.1:6379/2\"\nredis_down = \"local\"\nzone = \"europe/berlin\"\n\
         [alerts]\ncap_levels = []\nloops = false\nculprit_usd = 0.5\nhit_ratio_drop = 20\n\
         [webhook.ops]\nurl = \"https://hooks.example.com/T0/hush\"\nform = \"json\"\n[webhook.b]\nurl = \"http://127.0.0.1:1/hush\"\nform = \"slack\"\n",
    );
    assert_eq!(config.caps.zone_name, "Europe/Berlin");
    assert_eq!(
        config.caps.redis.as_deref(),
        Some("redis://me:hush@127.0.0.1:6379/2")
    );
    assert_eq!(config.caps.redis_down, RedisDown::Local);
    let expected = Alerts {
        cap_levels: Vec::new(),
        loops: false,
        culprit_pico: Some(500_000_000_000),
        hit_ratio_drop: Some(20),
        ..Alerts::default()
    };
    assert_eq!(config.alerts, expected);
    let names: Vec<&str> = config.webhooks.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["ops", "b"]);
    assert_eq!(config.webhooks[0].url, "https://hooks.example.com/T0/hush");
    let printed = config.to_toml();
    assert!(!printed.contains("hush"), "{printed}");
    assert!(
        printed.contains("url = \"https://hooks.example.com/***\"\nform = \"json\"\n"),
        "{printed}"
    );
    assert!(
        printed.contains("redis = \"redis://me:***@127.0.0.1:6379/2\"\n"),
        "{printed}"
    );
    assert_eq!(load(&printed).to_toml(), printed);
    assert!(!format!("{:?}", config.webhooks).contains("hush"));
}

#[test]
fn a_status_that_clients_retry_on_is_warned_about() {
    let warnings =
        load("[caps]\nstatus = 429\n[app.a]\nstatus = 403\n[app.b]\nstatus = 409\n").warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("caps.status = 429: "),
        "{warnings:?}"
    );
    assert!(
        warnings[1].starts_with("app.b.status = 409: "),
        "{warnings:?}"
    );
}

#[test]
fn defaults_are_those_of_the_guards_themselves() {
    let config = load("");
    assert_eq!(config.loops, Policy::default());
    assert!(
        config.caps.run.is_empty() && config.caps.unnamed.is_empty() && config.caps.key.is_empty()
    );
    assert!(
        Detector::ALL
            .iter()
            .all(|d| config.loops.rule(*d).ladder == [Action::Warn])
    );
}
