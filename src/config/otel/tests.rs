use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpEnv>, Vec<Problem>> {
    from_env(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn settings(variables: &[(&str, &str)]) -> Otlp {
    read(variables).unwrap().unwrap().settings().unwrap()
}

/// The variables that are wrong.
fn wrong(variables: &[(&str, &str)]) -> Vec<String> {
    let problems = read(variables).unwrap_err();
    problems.into_iter().map(|problem| problem.place).collect()
}

const AT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

#[test]
fn nothing_is_sent_unless_an_endpoint_is_named() {
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[("OTEL_SERVICE_NAME", "x")]), Ok(None));
    assert_eq!(
        read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]),
        Ok(None),
        "empty is not set"
    );
    assert_eq!(read(&[AT, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
    assert_eq!(read(&[AT, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
    let list = read(&[AT, ("OTEL_TRACES_EXPORTER", "console, otlp")]);
    assert!(list.unwrap().unwrap().traces.is_some());
}

#[test]
fn the_path_of_a_signal_is_put_behind_the_base() {
    for (base, traces) in [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        (
            "https://h/api/public/otel",
            "https://h/api/public/otel/v1/traces",
        ),
        ("https://h/otel/?k=v", "https://h/otel/v1/traces?k=v"),
    ] {
        let settings = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", base)]);
        assert_eq!(settings.traces.to_string(), traces);
        assert_eq!(settings.metrics, None, "many take traces only");
    }
    let own = settings(&[
        AT,
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/as/it/is"),
    ]);
    assert_eq!(own.traces.to_string(), "https://t/as/it/is");
    let both = settings(&[AT, ("OTEL_METRICS_EXPORTER", "otlp")]);
    assert_eq!(
        both.metrics.unwrap().to_string(),
        "http://collector:4318/v1/metrics"
    );
    let none = settings(&[
        AT,
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/v1/metrics"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ]);
    assert_eq!(none.metrics, None);
}

#[test]
fn headers_are_decoded_and_those_of_a_signal_go_first() {
    let headers = |of: &Headers| -> Vec<(String, String)> {
        of.iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    };
    let settings = settings(&[
        AT,
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-all=1"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "Authorization=Basic%20cGs6c2s=, x-odd = a%2Cb%zz ,,",
        ),
    ]);
    assert_eq!(
        headers(&settings.headers),
        [
            ("authorization".to_owned(), "Basic cGs6c2s=".to_owned()),
            ("x-odd".to_owned(), "a,b%zz".to_owned())
        ]
    );
    assert!(
        settings
            .headers
            .iter()
            .all(|(_, value)| value.is_sensitive())
    );
    // What is a secret of the one receiver is not told the other.
    assert_eq!(
        headers(&settings.metrics_headers.unwrap()),
        [("x-all".to_owned(), "1".to_owned())]
    );
}

#[test]
fn the_rest_is_read() {
    let read = settings(&[
        AT,
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=a,team=r%26d,deployment.environment.name=prod",
        ),
        ("OTEL_SERVICE_NAME", "gate"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        (
            "OTEL_SEMCONV_STABILITY_OPT_IN",
            "http, gen_ai_latest_experimental/dup",
        ),
    ]);
    assert_eq!(read.timeout, Duration::from_millis(2_500));
    assert!(!read.gzip);
    assert_eq!((read.sample_ppm, read.semconv), (250_000, Semconv::Both));
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        read.resource,
        [
            pair("service.name", "gate"),
            pair("team", "r&d"),
            pair("deployment.environment.name", "prod")
        ]
    );
    for (sampler, ppm) in [("always_on", 1_000_000), ("parentbased_always_off", 0)] {
        assert_eq!(
            settings(&[AT, ("OTEL_TRACES_SAMPLER", sampler)]).sample_ppm,
            ppm
        );
    }
    let latest = settings(&[
        AT,
        (
            "OTEL_SEMCONV_STABILITY_OPT_IN",
            "gen_ai_latest_experimental",
        ),
    ]);
    assert_eq!(latest.semconv, Semconv::Latest);
}

#[test]
fn what_is_wrong_is_told_for_each_variable_without_its_secret() {
    let all = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "https://user:hunter2@h/v1/traces",
        ),
        ("OTEL_EXPORTER_OTLP_HEADERS", "good=1,hunter2"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ];
    // One that is right makes the others be looked at.
    let good = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/v1/metrics");
    let with: Vec<_> = all.into_iter().chain([good]).collect();
    let mut places = wrong(&with);
    places.sort();
    places.dedup();
    let mut expected: Vec<_> = all.iter().map(|(name, _)| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(places, expected);
    for problem in read(&with).unwrap_err() {
        assert!(!problem.message.contains("hunter2"), "{problem}");
    }
    let grpc = read(&[AT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
    assert_eq!(grpc.len(), 1, "told once");
    assert!(grpc[0].message.contains("http/protobuf"), "{}", grpc[0]);
}

#[test]
fn a_share_is_read_without_rounding_up() {
    for (text, ppm) in [
        ("0", Some(0)),
        ("1", Some(1_000_000)),
        ("1.0", Some(1_000_000)),
        ("0.1", Some(100_000)),
        (".5", Some(500_000)),
        ("0.0000019", Some(1)),
        ("0.999999999", Some(999_999)),
        ("1.0000001", None),
        ("2", None),
        ("", None),
        (".", None),
        ("-0.1", None),
        ("1e-3", None),
        ("99999999999", None),
    ] {
        assert_eq!(millionths(text), ppm, "{text}");
    }
}
