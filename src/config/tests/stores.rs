//! The remote stores and captured content.

use super::super::file::File;
use super::*;
use crate::config::{Capture, CaptureMode, ClickHouse, Otlp, Semconv, SpoolFull};

/// What the full file shows of them, for the test that it shows everything.
pub(super) fn shown_in(file: &File, add: &mut dyn FnMut(&str, &[&str])) {
    add("clickhouse", &file.clickhouse.typed);
    add("otlp", &file.otlp.typed);
    add("spool", &file.spool.typed);
    add("capture", &file.capture.typed);
}

fn load(file: &str) -> Config {
    Case::new(file).load().unwrap()
}

#[test]
fn nothing_goes_anywhere_and_nothing_is_captured_by_default() {
    let config = load("");
    assert_eq!((config.clickhouse, config.otlp), (None, None));
    assert_eq!(config.capture, Capture::default());
    assert_eq!(config.capture.mode, CaptureMode::None);
}

#[test]
fn a_url_is_enough_from_the_file_a_variable_or_a_flag() {
    let file = "[clickhouse]\nurl = \"http://one:8123\"\n[otlp]\nendpoint = \"http://one:4318\"\n";
    let urls = |config: Config| {
        let (store, otlp) = (config.clickhouse.unwrap(), config.otlp.unwrap());
        (store.url, otlp.traces.to_string())
    };
    let at = |n: &str| {
        (
            format!("http://{n}:8123"),
            format!("http://{n}:4318/v1/traces"),
        )
    };
    assert_eq!(urls(load(file)), at("one"));
    let case = Case::new(file)
        .set("PREFIXGATE_CLICKHOUSE", "http://two:8123")
        .set("PREFIXGATE_OTLP", "http://two:4318");
    assert_eq!(urls(case.load().unwrap()), at("two"));
    let case = case.flags(|options| {
        options.clickhouse = Some("http://three:8123".to_owned());
        options.otlp = Some("http://three:4318/".to_owned());
    });
    assert_eq!(urls(case.load().unwrap()), at("three"));
    let alone = Case::new("").flags(|o| o.clickhouse = Some("http://four:8123".to_owned()));
    let store = alone.load().unwrap().clickhouse.unwrap();
    assert_eq!(store, ClickHouse::at("http://four:8123".to_owned()));
}

#[test]
fn what_stands_in_the_url_gives_way_to_keys_of_their_own() {
    let url = "[clickhouse]\nurl = \"https://me:hush@h:8443/traces\"\n";
    let store = load(url).clickhouse.unwrap();
    assert_eq!(store.url, "https://h:8443");
    assert_eq!(store.database, "traces");
    assert_eq!(store.user.as_deref(), Some("me"));
    assert_eq!(store.password.as_deref(), Some("hush"));
    let keys = "user = \"other\"\npassword = \"hush2\"\ndatabase = \"own\"\n";
    let case = Case::new(&format!("{url}{keys}"));
    let store = case.load().unwrap().clickhouse.unwrap();
    assert_eq!(
        (store.user.as_deref(), &*store.database),
        (Some("other"), "own")
    );
    assert_eq!(store.password.as_deref(), Some("hush2"));
    let case = case.set("PREFIXGATE_CLICKHOUSE_PASSWORD", "hush3");
    let config = case.load().unwrap();
    assert_eq!(
        config.clickhouse.as_ref().unwrap().password.as_deref(),
        Some("hush3")
    );
    let shown = format!("{}{:?}", config.to_toml(), config.clickhouse);
    assert!(!shown.contains("hush"), "{shown}");
    assert!(shown.contains("password = \"***\""), "{shown}");
}

#[test]
fn headers_are_sent_and_never_shown_and_resource_attributes_replace_defaults() {
    let config = load(
        "[otlp]\nendpoint = \"https://b.example.com/otel/v1/traces\"\nmetrics = true\nsample = 0.25\nsemconv = \"both\"\n\
         headers = { authorization = \"Basic hush\", \"x-team\" = \"hush\" }\nresource = { \"service.name\" = \"mine\", zone = \"a\" }\n",
    );
    let otlp = config.otlp.as_ref().unwrap();
    assert_eq!(otlp.headers.len(), 2);
    assert_eq!(otlp.headers[0].1, "Basic hush");
    assert_eq!(otlp.sample_ppm, 250_000);
    assert_eq!(otlp.semconv, Semconv::Both);
    assert_eq!(
        otlp.metrics.as_ref().unwrap(),
        "https://b.example.com/otel/v1/metrics"
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        otlp.resource,
        [pair("service.name", "mine"), pair("zone", "a")]
    );
    let printed = config.to_toml();
    assert!(!format!("{printed}{otlp:?}").contains("hush"), "{printed}");
    let again = load(&printed);
    assert_eq!(again.to_toml(), printed);
    let plain = Otlp::at("http://h/v1/traces".parse().unwrap());
    assert_eq!(plain.metrics, None);
}

#[test]
fn applications_may_be_captured_more_or_less_than_the_rest() {
    let config = load(
        "[capture]\nmode = \"redacted\"\nrules = { ticket = \"T-[0-9]+\" }\n[app.ci]\ncapture = \"full\"\n[app.hr]\ncapture = \"none\"\n\
         [spool]\nfull = \"drop-newest\"\nmax_size = \"2MiB\"\n",
    );
    let of = |app| config.capture_for(app);
    assert_eq!(of(None), CaptureMode::Redacted);
    assert_eq!(of(Some("ci")), CaptureMode::Full);
    assert_eq!(of(Some("hr")), CaptureMode::None);
    assert_eq!(config.spool.full, SpoolFull::DropNewest);
    assert_eq!(config.spool.max_bytes, 2 << 20);
    assert_eq!(load(&config.to_toml()).to_toml(), config.to_toml());
}

#[test]
fn errors_say_where_what_and_how_and_never_repeat_a_secret() {
    for (file, expected) in [
        (
            "[clickhouse]\nurl = \"clickhouse://u:hush@h:9000\"",
            "f.toml:2: clickhouse.url = ***: must be the HTTP interface",
        ),
        (
            "[clickhouse]\nurl = \"http://h\"\ndatabase = \"a-b\"",
            "f.toml:3: clickhouse.database = \"a-b\": must be a name of letters",
        ),
        (
            "[clickhouse]\nurl = \"http://h\"\nretention_days = 0",
            "f.toml:3: clickhouse.retention_days = 0: must be from 1 to 18250",
        ),
        (
            "[clickhouse]\nurl = \"http://h\"\n\nretention_days = 18251",
            "f.toml:4: clickhouse.retention_days = 18251: must be from 1 to 18250",
        ),
        (
            "[otlp]\nendpoint = \"http://u:hush@h\"",
            "must not hold a user or password: credentials go into `headers`",
        ),
        (
            "[otlp]\nendpoint = \"http://h\"\nheaders = { \"x y\" = \"hush\" }",
            "f.toml:3: otlp.headers = ***: the header `x y` has a name",
        ),
        (
            "[otlp]\nendpoint = \"http://h\"\nsample = 1.5",
            "f.toml:3: otlp.sample = 1.5: must be a share from 0 to 1",
        ),
        (
            "[capture]\nrules = { a = \"(\" }",
            "the rule `a` is no regular expression that can be used: error: unclosed group",
        ),
        (
            "[capture]\nrules = { a = \"x*\" }",
            "the rule `a` matches the empty text",
        ),
        (
            "[capture]\nmode = \"all\"",
            "f.toml:2: capture.mode = \"all\": must be one of \"none\", \"redacted\", \"full\"",
        ),
        (
            "[spool]\nmax_size = \"1KiB\"",
            "f.toml:2: spool.max_size = \"1KiB\": must be from 1MiB to 1024GiB",
        ),
    ] {
        let found = Case::new(file).problems();
        assert!(found.contains(expected), "{found}\n{expected}");
        assert!(!found.contains("hush"), "{found}");
    }
}

#[test]
fn a_section_without_its_place_and_a_bare_password_are_warned_about() {
    let warnings = load("[otlp]\ngzip = false\n[clickhouse]\ncluster = \"c\"\n").warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("[clickhouse] has no effect without `url`"));
    assert!(warnings[1].starts_with("[otlp] has no effect without `endpoint`"));
    let bare = |host: &str| load(&format!("[clickhouse]\nurl = \"http://u:p@{host}\"\n")).warnings;
    assert_eq!(bare("127.0.0.1:8123"), [""; 0]);
    assert!(bare("far:8123")[0].contains("without TLS"));
}

#[test]
fn the_standard_variables_set_otlp_up_below_what_the_file_says() {
    let of = |file: &str| {
        Case::new(file)
            .set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://env:4318")
            .set("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hush")
            .set("OTEL_SERVICE_NAME", "gate")
    };
    let config = of("").load().unwrap();
    let otlp = config.otlp.as_ref().unwrap();
    assert_eq!(otlp.traces, "http://env:4318/v1/traces");
    assert_eq!(otlp.headers[0].1, "hush");
    assert_eq!(otlp.metrics, None);
    assert!(
        otlp.resource
            .contains(&("service.name".to_owned(), "gate".to_owned()))
    );
    let origin = config.origin("otlp.endpoint").to_string();
    assert_eq!(origin, "OTEL_EXPORTER_OTLP_ENDPOINT");

    let file =
        "[otlp]\nendpoint = \"http://file:4318\"\nmetrics = true\nresource = { zone = \"a\" }\n";
    let otlp = of(file).load().unwrap().otlp.unwrap();
    assert_eq!(otlp.traces, "http://file:4318/v1/traces");
    assert_eq!(otlp.metrics.unwrap(), "http://file:4318/v1/metrics");
    // What the file does not say stands as the environment has it.
    assert_eq!(otlp.headers[0].1, "hush");
    assert!(
        otlp.resource
            .contains(&("service.name".to_owned(), "gate".to_owned()))
    );
    assert!(otlp.resource.contains(&("zone".to_owned(), "a".to_owned())));

    let off = of("").set("OTEL_SDK_DISABLED", "true").load().unwrap();
    assert_eq!(off.otlp, None);
    // The variables may be meant for an agent: only who asks for OTLP here has to put them right.
    let grpc = |file| of(file).set("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let wrong = grpc(file).problems();
    assert!(wrong.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{wrong}");
    let beside = grpc("").load().unwrap();
    assert_eq!(beside.otlp, None);
    assert!(beside.warnings[0].starts_with("no spans are sent: OTEL_EXPORTER_OTLP_PROTOCOL"));
}
