//! The configuration as a whole: messages word by word, precedence, the shipped files.

use std::path::Path;

use super::file::{File, SECTIONS};
use super::*;

mod guards;
mod stores;

const SHORT: &str = include_str!("../../config/prefixgate.toml");
const FULL: &str = include_str!("../../config/prefixgate.full.toml");

struct Case {
    directory: tempfile::TempDir,
    options: Options,
    environment: Vec<(&'static str, String)>,
}

impl Case {
    fn new(file: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        std::fs::write(&path, file).unwrap();
        let options = Options {
            config: Some(path),
            ..Options::default()
        };
        Self {
            directory,
            options,
            environment: vec![("HOME", "/home/someone".to_owned())],
        }
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn flags(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load_in(&self.options, &self.environment.iter().cloned().collect())
    }

    /// The problems, with the temporary directory left out.
    fn problems(&self) -> String {
        let directory = format!("{}/", self.directory.path().display());
        self.load()
            .map(|config| config.to_toml())
            .unwrap_err()
            .to_string()
            .replace(&directory, "")
    }
}

fn defaults() -> Config {
    Config::embedded("/home/someone/.local/state/prefixgate".into())
}

#[test]
fn every_error_says_where_what_and_how() {
    for (file, expected) in [
        // Unknown names.
        (
            "\n[cache]\npolcy = \"fill\"\n",
            "f.toml:3: unknown key `polcy` in [cache]; did you mean `policy`? (known keys: policy, holdout_percent, memory, native_diagnostics, excerpts, stable_tool_order, warm_first, keep_warm_max_usd)",
        ),
        (
            "[timeouts]\nmax_body = \"1MiB\"",
            "f.toml:2: unknown key `max_body` in [timeouts]; it belongs into [server] \
             (known keys: connect, idle, pool_idle, drain)",
        ),
        (
            "[tls]\nwhatever = 1",
            "f.toml:2: unknown key `whatever` in [tls] (known keys: extra_ca)",
        ),
        (
            "[server]\nport = 80",
            "f.toml:2: unknown key `port` in [server]; the port is part of `listen`, such as \"127.0.0.1:8787\" \
             (known keys: listen, admin, admin_allow_remote, max_body, max_buffered, max_inspect)",
        ),
        (
            "[upstream.anthropic]\napi_key = \"sk\"",
            "f.toml:2: unknown key `api_key` in [upstream.anthropic]; keys are not configured: the client's own are \
             passed on (known keys: profile, url, format, prices, ask_usage, cached_beside, reasoning_beside, absent_cached, writes, cost, cache_step, cache_min, cache_ttl, cache_options, cache_control)",
        ),
        (
            "[cahce]",
            "f.toml:1: unknown section [cahce]; did you mean [cache]? (known sections: server, timeouts, upstream, \
             cache, anthropic, openai, loops, caps, app, alerts, webhook, store, clickhouse, otlp, spool, capture, metrics, tls, price, agent)",
        ),
        (
            "lisen = \"127.0.0.1:1\"",
            "f.toml:1: unknown key `lisen`; did you mean `listen` in [server]? (known sections: server, timeouts, \
             upstream, cache, anthropic, openai, loops, caps, app, alerts, webhook, store, clickhouse, otlp, spool, capture, metrics, tls, price, agent)",
        ),
        (
            "cache = \"fill\"",
            "f.toml:1: `cache` must be a section: [cache]",
        ),
        (
            "[price]\nmodel = \"m\"",
            "f.toml:1: prices are a list: write [[price]] with two brackets",
        ),
        // Values.
        (
            "[cache]\npolicy = \"full\"",
            "f.toml:2: cache.policy = \"full\": must be one of \"off\", \"dry-run\", \"fill\", \"replace\"",
        ),
        (
            "[cache]\npolicy = true",
            "f.toml:2: cache.policy = true: must be one of \"off\", \"dry-run\", \"fill\", \"replace\" (in quotes, not a boolean)",
        ),
        (
            "[server]\nmax_body = 32",
            "f.toml:2: server.max_body = 32: must be a whole number with a unit, such as \"32MiB\" (units: B, KiB, \
             MiB, GiB, kB, MB, GB) (in quotes, not an integer)",
        ),
        (
            "[server]\nmax_body = \"2GiB\"",
            "f.toml:2: server.max_body = \"2GiB\": must be from 1KiB to 1GiB",
        ),
        (
            "[server]\nlisten = \"localhost:8787\"",
            "f.toml:2: server.listen = \"localhost:8787\": must be IP:PORT, such as \"127.0.0.1:8787\" or \
             \"[::1]:8787\" (port 0: the system chooses)",
        ),
        (
            "[server]\nadmin_allow_remote = \"yes\"",
            "f.toml:2: server.admin_allow_remote = \"yes\": must be true or false, without quotes",
        ),
        (
            "[timeouts]\nidle = \"15\"",
            "f.toml:2: timeouts.idle = \"15\": must be a whole number with a unit, such as \"10s\" or \"15m\" \
             (units: ms, s, m, h)",
        ),
        (
            "[timeouts]\nidle = \"0s\"",
            "f.toml:2: timeouts.idle = \"0s\": must be from 1s to 24h",
        ),
        (
            "[store]\nretention_days = \"90d\"",
            "f.toml:2: store.retention_days = \"90d\": must be a whole number, without quotes or unit",
        ),
        (
            "[store]\nretention_days = 0",
            "f.toml:2: store.retention_days = 0: must be from 1 to 36500",
        ),
        (
            "[store]\ndata_dir = \"f.toml\"",
            "f.toml:2: store.data_dir = \"f.toml\": must be a directory, but is a file",
        ),
        (
            "[metrics]\napps = [\"a b\"]",
            "f.toml:2: metrics.apps = [\"a b\"]: must be names of letters, digits, `.`, `_` and `-`, up to 64; \
             \"a b\" is not",
        ),
        (
            "[tls]\nextra_ca = \"f.toml\"",
            "f.toml:2: tls.extra_ca = \"f.toml\": must hold certificates in PEM (-----BEGIN CERTIFICATE-----), but \
             holds none",
        ),
        // Addresses.
        (
            "[server]\nadmin = \"0.0.0.0:1\"",
            "f.toml:2: server.admin = \"0.0.0.0:1\": must be a loopback address, such as 127.0.0.1:8788, because the \
             admin listener has no authentication; `admin_allow_remote = true` in [server] allows others",
        ),
        (
            "[server]\nadmin = \"127.0.0.1:8787\"",
            "f.toml:2: server.listen and server.admin must differ, both are 127.0.0.1:8787",
        ),
        (
            "[server]\nmax_buffered = \"16MiB\"",
            "f.toml:2: server.max_buffered (16MiB) must not be below server.max_body (32MiB): the largest body would \
             never fit",
        ),
        // Upstreams.
        (
            "[upstream.anthropic]\nurl = \"https://me:secret@u\"",
            "f.toml:2: upstream.anthropic.url = \"https://***@u\": must not hold a user or password: the client's own \
             credentials are passed on",
        ),
        (
            "[upstream.x]\nurl = \"http://127.0.0.1:1\"",
            "f.toml:1: [upstream.x] needs both `url` and `format` (format must be one of \"anthropic\", \"openai\", \
             \"opaque\"), or a `profile` that has them",
        ),
        (
            "[upstream.X]\nurl = \"http://u\"\nformat = \"opaque\"",
            "f.toml:1: the name of an upstream must be 1 to 32 of a-z, 0-9, `_` and `-`; \"X\" is not",
        ),
        (
            "[upstream.default]\nurl = \"http://u\"",
            "f.toml:1: `default` cannot be the name of an upstream: it says which one is the default",
        ),
        (
            "[upstream]\ndefault = \"anthropc\"",
            "f.toml:2: upstream.default = \"anthropc\": no upstream is named \"anthropc\"; did you mean \
             \"anthropic\"? (known upstreams: anthropic, openai)",
        ),
        (
            "[upstream]\ndefault = [\"openai\", \"openai\"]",
            "f.toml:2: upstream.default = [\"openai\", \"openai\"]: names \"openai\" twice",
        ),
        (
            "[upstream]\ndefault = []",
            "f.toml:2: upstream.default = []: must name an upstream",
        ),
        (
            "[upstream.anthropic]\nurl = \"http://localhost:8787\"",
            "f.toml:2: upstream.anthropic.url = \"http://localhost:8787\": must not be prefixgate's own address: \
             requests would go round in circles",
        ),
        // Prices.
        (
            "\n[[price]]\nmodel = \"m\"\ninput = 3\noutput = \"15,0\"",
            "f.toml:5: price.output = \"15,0\": must be USD per million tokens as a plain decimal from 0 to 1000000 \
             with at most 6 decimals, such as 0.30\n\
             f.toml:2: [[price]] needs read, write_5m, write_1h; write the input price where a model has no cache \
             price of that kind",
        ),
        // The language itself.
        (
            "[cache]\npolicy = on",
            "f.toml:2: string values must be quoted, expected literal string",
        ),
        ("[cache]\n[cache]", "f.toml:2: duplicate key"),
    ] {
        assert_eq!(Case::new(file).problems(), expected, "{file}");
    }
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let problems =
        Case::new("[store]\nque = 1\n[cache]\npolicy = \"x\"\n[server]\nlisten = \"y\"\n")
            .set("PREFIXGATE_ADMIN", "z")
            .flags(|flags| flags.upstream = Some("ftp://u".to_owned()))
            .problems();
    let places: Vec<&str> = problems
        .lines()
        .filter_map(|line| line.split(": ").next())
        .collect();
    assert_eq!(
        places,
        [
            "f.toml:2",
            "f.toml:4",
            "f.toml:6",
            "PREFIXGATE_ADMIN",
            "--upstream"
        ]
    );
}

#[test]
fn flags_and_environment_are_named() {
    let case = Case::new("")
        .set("PREFIXGATE_CACHE", "on")
        .flags(|flags| flags.listen = Some("8787".to_owned()));
    assert_eq!(
        case.problems(),
        "--listen: server.listen = \"8787\": must be IP:PORT, such as \"127.0.0.1:8787\" or \"[::1]:8787\" (port 0: \
         the system chooses)\n\
         PREFIXGATE_CACHE: cache.policy = \"on\": must be one of \"off\", \"dry-run\", \"fill\", \"replace\""
    );
    // A wrong variable is not hidden by a right flag.
    let case = Case::new("")
        .set("PREFIXGATE_CACHE", "on")
        .flags(|flags| flags.cache = Some("off".to_owned()));
    assert!(
        case.problems().starts_with("PREFIXGATE_CACHE: "),
        "{}",
        case.problems()
    );
}

#[test]
fn flag_before_environment_before_file_before_default() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n[cache]\npolicy = \"off\"\n\
                [store]\ndata_dir = \"data\"\n[upstream.anthropic]\nurl = \"http://127.0.0.1:3\"\n";
    let case = Case::new(file);
    let config = case.load().unwrap();
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.admin.port(), 2);
    assert_eq!(config.cache, CachePolicy::Off);
    assert_eq!(config.data_dir, case.directory.path().join("data"));
    assert_eq!(config.upstreams[0].base, "http://127.0.0.1:3/");
    let place = format!("{}:2", case.options.config.as_ref().unwrap().display());
    assert_eq!(config.origin("server.listen"), &Origin::File(place));
    assert_eq!(config.origin("timeouts.idle"), &Origin::Default);

    let case = case
        .set("PREFIXGATE_LISTEN", "127.0.0.1:11")
        .set("PREFIXGATE_ADMIN", "127.0.0.1:12")
        .set("PREFIXGATE_CACHE", "dry-run")
        .set("PREFIXGATE_DATA_DIR", "/env")
        .set("PREFIXGATE_UPSTREAM", "http://127.0.0.1:13/p/");
    let config = case.load().unwrap();
    assert_eq!((config.listen.port(), config.admin.port()), (11, 12));
    assert_eq!(config.cache, CachePolicy::DryRun);
    assert_eq!(config.data_dir, Path::new("/env"));
    assert_eq!(config.upstreams[0].base, "http://127.0.0.1:13/p");
    assert_eq!(
        config.origin("cache.policy"),
        &Origin::Environment("PREFIXGATE_CACHE")
    );

    let case = case.flags(|flags| {
        flags.listen = Some("127.0.0.1:21".to_owned());
        flags.admin = Some("127.0.0.1:22".to_owned());
        flags.cache = Some("fill".to_owned());
        flags.data_dir = Some("/flag".into());
        flags.upstream = Some("http://127.0.0.1:23".to_owned());
    });
    let config = case.load().unwrap();
    assert_eq!((config.listen.port(), config.admin.port()), (21, 22));
    assert_eq!(config.cache, CachePolicy::Fill);
    assert_eq!(config.data_dir, Path::new("/flag"));
    assert_eq!(config.upstreams[0].base, "http://127.0.0.1:23/");
    assert_eq!(
        config.origin("upstream.anthropic.url"),
        &Origin::Flag("--upstream")
    );
}

#[test]
fn the_file_is_found_and_a_named_one_must_exist() {
    let home = tempfile::tempdir().unwrap();
    let environment: Environment = [("HOME", home.path().to_str().unwrap())]
        .into_iter()
        .collect();
    let none = Config::load_in(&Options::default(), &environment).unwrap();
    assert_eq!(none.file, None);

    let usual = home.path().join(".config/prefixgate/prefixgate.toml");
    std::fs::create_dir_all(usual.parent().unwrap()).unwrap();
    std::fs::write(&usual, "[cache]\npolicy = \"off\"\n").unwrap();
    let found = Config::load_in(&Options::default(), &environment).unwrap();
    assert_eq!((found.file, found.cache), (Some(usual), CachePolicy::Off));

    let missing = Case::new("")
        .set("PREFIXGATE_CONFIG", "/nowhere/x.toml")
        .flags(|flags| flags.config = None);
    assert_eq!(
        missing.problems(),
        "PREFIXGATE_CONFIG: cannot read /nowhere/x.toml: No such file or directory (os error 2)"
    );
}

#[test]
fn upstreams_keep_the_order_of_preference() {
    let own = "[upstream.zeta]\nurl = \"http://127.0.0.1:1\"\nformat = \"openai\"\n\
               [upstream.alpha]\nurl = \"http://127.0.0.1:2/x/\"\nformat = \"opaque\"\n";
    let names = |file: &str| -> Vec<String> {
        let config = Case::new(file).load().unwrap();
        config
            .upstreams
            .into_iter()
            .map(|upstream| upstream.name)
            .collect()
    };
    assert_eq!(names(own), ["anthropic", "openai", "zeta", "alpha"]);
    assert_eq!(
        names(&format!("{own}[upstream]\ndefault = \"alpha\"")),
        ["alpha", "anthropic", "openai", "zeta"]
    );
    let two = format!("{own}[upstream]\ndefault = [\"anthropic\", \"zeta\"]");
    assert_eq!(names(&two), ["anthropic", "zeta", "openai", "alpha"]);

    let config = Case::new(own).load().unwrap();
    assert_eq!(config.upstreams[2].price_provider, "openai");
    assert_eq!(config.upstreams[3].price_provider, "alpha");
    assert_eq!(config.upstreams[3].base, "http://127.0.0.1:2/x");
    // The flag replaces the url of the first one, whichever it is.
    let first = format!("{own}[upstream]\ndefault = \"zeta\"");
    let case =
        Case::new(&first).flags(|flags| flags.upstream = Some("http://127.0.0.1:9".to_owned()));
    let config = case.load().unwrap();
    assert_eq!(
        (
            config.upstreams[0].name.as_str(),
            config.upstreams[0].format
        ),
        ("zeta", Format::OpenAi)
    );
    assert_eq!(config.upstreams[0].base, "http://127.0.0.1:9/");
    // ... and then nothing goes where nobody has said.
    let names: Vec<&str> = config.upstreams.iter().map(|u| u.name.as_str()).collect();
    assert_eq!(names, ["zeta", "alpha"]);
    let moved = "[upstream.anthropic]\nurl = \"http://127.0.0.1:1\"";
    assert_eq!(Case::new(moved).load().unwrap().upstreams.len(), 1);
}

#[test]
fn where_breakpoints_for_claude_are_taken_is_said_by_profile_or_by_hand() {
    use crate::provider::dialect::CacheControl;

    let own = "[upstream.openrouter]\n[upstream.litellm]\n[upstream.groq]\n\
               [upstream.mine]\nprofile = \"litellm\"\ncache_control = \"none\"\n";
    let config = Case::new(own).load().unwrap();
    let of = |name: &str| {
        let mut upstreams = config.upstreams.iter();
        let found = upstreams.find(|upstream| upstream.name == name);
        found.unwrap().dialect.cache_control
    };
    assert_eq!(of("openrouter"), CacheControl::Results);
    assert_eq!(of("litellm"), CacheControl::Texts);
    for none in ["openai", "groq", "mine"] {
        assert_eq!(of(none), CacheControl::None, "{none}");
    }
}

#[test]
fn own_address_is_no_upstream() {
    for (listen, url, refused) in [
        ("127.0.0.1:7", "http://127.0.0.1:7", true),
        ("127.0.0.1:7", "http://127.0.0.1:8", false),
        ("127.0.0.1:7", "http://127.0.0.2:7", false),
        ("0.0.0.0:7", "http://127.0.0.2:7", true),
        ("[::]:7", "http://localhost:7/x", true),
        ("127.0.0.1:80", "http://127.0.0.1", true),
        ("127.0.0.1:443", "https://127.0.0.1", true),
        ("127.0.0.1:7", "http://other.example:7", false),
        ("127.0.0.1:0", "http://127.0.0.1:7", false),
    ] {
        let case = Case::new("").flags(|flags| {
            flags.listen = Some(listen.to_owned());
            flags.upstream = Some(url.to_owned());
        });
        assert_eq!(case.load().is_err(), refused, "{listen} {url}");
    }
}

#[test]
fn what_is_risky_is_warned_about() {
    let file = "[server]\nlisten = \"0.0.0.0:1\"\nadmin = \"0.0.0.0:2\"\nadmin_allow_remote = true\n\
                [timeouts]\nidle = \"5m\"\npool_idle = \"20s\"\n[upstream.anthropic]\nurl = \"http://u.example\"\n";
    let warnings = Case::new(file)
        .set("PREFIXGATE_LISTN", "x")
        .load()
        .unwrap()
        .warnings;
    let starts = [
        "environment variable PREFIXGATE_LISTN means nothing; did you mean PREFIXGATE_LISTEN?",
        "server.listen = 0.0.0.0:1: ",
        "server.admin = 0.0.0.0:2: ",
        "timeouts.idle = 5m: ",
        "timeouts.pool_idle = 20s: ",
        "upstream.anthropic.url = http://u.example: ",
    ];
    assert_eq!(warnings.len(), starts.len(), "{warnings:?}");
    for (warning, start) in warnings.iter().zip(starts) {
        assert!(warning.starts_with(start), "{warning}");
    }
    assert_eq!(Case::new("").load().unwrap().warnings, Vec::<String>::new());
}

#[test]
fn prices_are_taken_from_their_spelling() {
    let file = "[[price]]\nmodel = \"m\"\ninput = 3\noutput = \"15\"\nread = 0.1\nwrite_5m = 3.75\nwrite_1h = 0.000001\n\
                min_cache_tokens = 1024\n";
    let expected = PriceOverride {
        model: "m".to_owned(),
        input_pico: 3_000_000,
        output_pico: 15_000_000,
        read_pico: 100_000,
        write_5m_pico: 3_750_000,
        write_1h_pico: 1,
        min_cache_tokens: Some(1024),
    };
    assert_eq!(Case::new(file).load().unwrap().prices, [expected]);
    let twice = Case::new(&format!("{file}{file}")).problems();
    assert_eq!(twice, "f.toml:9: [[price]] 2: \"m\" has a price already");
}

#[test]
fn the_shipped_files_are_the_defaults() {
    for file in [SHORT, FULL, ""] {
        assert_eq!(
            Case::new(file).load().unwrap().to_toml(),
            defaults().to_toml()
        );
    }
}

/// The full file with its examples switched on: a line that starts with `#` and no space.
fn full_with_examples() -> String {
    let switched = FULL.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest,
        _ => line,
    });
    switched.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_full_file_shows_every_setting() {
    let text = full_with_examples();
    let (file, problems) = File::parse("full", &text);
    assert_eq!(problems, []);
    let mut shown = Vec::new();
    let mut add = |section: &str, keys: &[&str]| {
        shown.extend(keys.iter().map(|key| format!("{section}.{key}")))
    };
    add("server", &file.server.typed);
    add("timeouts", &file.timeouts.typed);
    add(
        "upstream",
        if file.default_upstream.is_some() {
            &["default"]
        } else {
            &[]
        },
    );
    for upstream in &file.upstreams {
        let all = file::Upstream::KEYS;
        let shown = match upstream.name.as_str() {
            "eu" => all,
            _ => &["url", "format", "prices"][..],
        };
        assert_eq!(upstream.section.typed, shown, "{}", upstream.name);
    }
    let keys = file::Upstream::KEYS.iter();
    let keys: Vec<String> = keys.map(|key| format!("NAME.{key}")).collect();
    add(
        "upstream",
        &keys.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    add("cache", &file.cache.typed);
    add("anthropic", &file.anthropic.typed);
    add("openai", &file.openai.typed);
    guards::shown_in(&file, &mut add);
    add("store", &file.store.typed);
    stores::shown_in(&file, &mut add);
    add("metrics", &file.metrics.typed);
    add("tls", &file.tls.typed);
    add("price", &file.prices[0].section.typed);
    add("agent", &file.agent.typed);
    let known: Vec<String> = SECTIONS
        .iter()
        .flat_map(|(section, keys)| keys.iter().map(move |key| format!("{section}.{key}")))
        .collect();
    assert_eq!(shown, known);
    assert_eq!(file.upstreams.last().unwrap().name, "eu");
}

#[test]
fn what_is_printed_gives_the_same_configuration() {
    let authority = tempfile::NamedTempFile::new().unwrap();
    let certificate = rcgen::generate_simple_self_signed(["u.example".to_owned()]).unwrap();
    std::fs::write(authority.path(), certificate.cert.pem()).unwrap();
    let text = full_with_examples()
        .replace(
            "/etc/ssl/certs/company-ca.pem",
            authority.path().to_str().unwrap(),
        )
        .replace("retention_days = 90", "retention_days = 7")
        .replace("apps = []", "apps = [\"ci\", \"x.y\"]");
    let first = Case::new(&text).load().unwrap();
    assert_eq!(first.prices.len(), 1);
    assert_eq!(first.extra_ca.as_deref(), Some(authority.path()));
    assert_eq!(
        first.data_dir,
        Path::new("/home/someone/.local/state/prefixgate")
    );
    let printed = first.to_toml();
    let second = Case::new(&printed).load().unwrap();
    assert_eq!(second.to_toml(), printed);
    assert_eq!(
        (second.prices, second.upstreams),
        (first.prices, first.upstreams)
    );
    assert_eq!(
        (second.loops, second.caps.run),
        (first.loops, first.caps.run)
    );
    assert_eq!(second.caps.unnamed, first.caps.unnamed);
    assert_eq!(second.caps.key, first.caps.key);
    assert_eq!(second.alerts, first.alerts);
    assert_eq!(format!("{:?}", second.apps), format!("{:?}", first.apps));
    assert_eq!(second.webhooks[0].form, Form::Slack);
    assert_eq!(second.app_labels, ["ci", "x.y"]);
    assert_eq!(second.retention_days, 7);
}

proptest::proptest! {
    /// Whatever the file holds, it is read to its end, and every problem has a line of the file.
    #[test]
    fn no_file_is_too_broken_to_read(cut in 0..FULL.len(), noise in "\\PC{0,12}", text in "[a-z\\[\\]=\"'.#{},0-9\n ]{0,80}") {
        let at = (0..=cut).rev().find(|at| FULL.is_char_boundary(*at)).unwrap();
        let (head, tail) = FULL.split_at(at);
        for text in [format!("{head}{noise}{tail}"), text] {
            let lines = text.lines().count().max(1) + 1;
            for problem in File::parse("f", &text).1 {
                let line = problem.place.strip_prefix("f:").unwrap().parse::<usize>().unwrap();
                proptest::prop_assert!((1..=lines).contains(&line), "{problem}");
            }
        }
    }
}
