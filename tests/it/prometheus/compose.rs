//! The compose file and Grafana's provisioning. No container engine runs here; what can be held
//! against the files it names is.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::dashboards::boards;
use crate::support::prometheus::{root, yaml};

fn config(path: &str) -> PathBuf {
    root().join("config").join(path)
}

fn compose() -> Value {
    yaml(&config("compose.yml"))
}

fn words(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[test]
fn the_compose_file_is_whole() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    let names: BTreeSet<&str> = services.keys().map(String::as_str).collect();
    let wanted = [
        "alertmanager",
        "clickhouse",
        "gateway",
        "grafana",
        "prometheus",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    let volumes = compose["volumes"].as_object().unwrap();
    let mut used = BTreeSet::new();
    for (name, service) in services {
        let image = service["image"].as_str();
        let build = service["build"]["context"].as_str();
        match (image, build) {
            // A tag, so that it is the same tomorrow.
            (Some(image), None) => {
                let tag = image.rsplit_once(':').unwrap().1;
                assert!(tag != "latest" && tag.contains('.'), "{name}");
            }
            (None, Some(context)) => assert!(config(context).join("Dockerfile").is_file()),
            _ => panic!("{name}"),
        }
        for volume in words(&service["volumes"]) {
            let mut parts = volume.split(':');
            let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
            assert!(to.starts_with('/'), "{name}: {volume}");
            if from.starts_with('.') {
                assert!(config(from).exists(), "{name}: there is no {from}");
                assert_eq!(parts.next(), Some("ro"), "{name}: {volume}");
            } else {
                assert!(volumes.contains_key(from), "{name}: {from}");
                used.insert(from);
            }
        }
        for port in words(&service["ports"]) {
            assert!(
                port.starts_with("127.0.0.1:"),
                "{name}: {port} is open to all"
            );
        }
        let needs = match &service["depends_on"] {
            Value::Object(needs) => needs.keys().map(String::as_str).collect(),
            needs => words(needs),
        };
        for need in needs {
            assert!(services.contains_key(need), "{name}: {need}");
        }
    }
    assert_eq!(used.len(), volumes.len(), "a volume that nobody uses");
}

#[test]
fn prometheus_finds_what_the_compose_file_mounts() {
    let compose = compose();
    let mounted: BTreeSet<&str> = words(&compose["services"]["prometheus"]["volumes"])
        .into_iter()
        .filter_map(|volume| volume.split(':').nth(1))
        .collect();
    let prometheus = yaml(&config("prometheus/prometheus.yml"));
    for rules in words(&prometheus["rule_files"]) {
        assert!(
            mounted.contains(format!("/etc/prometheus/{rules}").as_str()),
            "{rules}"
        );
    }
    assert!(mounted.contains("/etc/prometheus/targets"));
    // Both sets of targets have the same files, and those are what the configuration reads.
    let text = std::fs::read_to_string(config("prometheus/prometheus.yml")).unwrap();
    for file in ["gateways.yml", "alertmanagers.yml"] {
        assert!(text.contains(&format!("targets/{file}")), "{file}");
        for set in ["targets", "compose-targets"] {
            let targets = yaml(&config("prometheus").join(set).join(file));
            assert_eq!(words(&targets[0]["targets"]).len(), 1, "{set}/{file}");
        }
    }
    // The gateway has the address that is scraped, on the port of its admin listener.
    let gateway = &compose["services"]["gateway"];
    let address = gateway["networks"]["default"]["ipv4_address"]
        .as_str()
        .unwrap();
    let admin = gateway["environment"]["PREFIXGATE_ADMIN"].as_str().unwrap();
    let port = admin.rsplit_once(':').unwrap().1;
    let targets = yaml(&config("prometheus/compose-targets/gateways.yml"));
    assert_eq!(words(&targets[0]["targets"]), [format!("{address}:{port}")]);
    let subnet = compose["networks"]["default"]["ipam"]["config"][0]["subnet"]
        .as_str()
        .unwrap();
    let network = subnet.strip_suffix("0/24").unwrap();
    assert!(address.starts_with(network), "{address} is not in {subnet}");
    let alertmanagers = yaml(&config("prometheus/compose-targets/alertmanagers.yml"));
    let (host, _) = words(&alertmanagers[0]["targets"])[0]
        .split_once(':')
        .unwrap();
    assert!(compose["services"].get(host).is_some());
}

#[test]
fn the_gateways_settings_are_valid() {
    let compose = compose();
    let environment = compose["services"]["gateway"]["environment"]
        .as_object()
        .unwrap();
    let data = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_prefixgate"))
        .arg("check")
        .arg("--config")
        .arg(config("compose.prefixgate.toml"))
        .env_clear()
        .envs(
            environment
                .iter()
                .map(|(name, value)| (name, value.as_str().unwrap())),
        )
        .env("PREFIXGATE_DATA_DIR", data.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn gateway_and_grafana_know_the_clickhouse_of_the_compose_file() {
    let compose = compose();
    let server = &compose["services"]["clickhouse"]["environment"];
    let text = std::fs::read_to_string(config("compose.prefixgate.toml")).unwrap();
    let settings: toml::Table = text.parse().unwrap();
    let of_gateway = |key: &str| settings["clickhouse"][key].as_str().unwrap();
    assert_eq!(of_gateway("url"), "http://clickhouse:8123");
    assert_eq!(of_gateway("database"), server["CLICKHOUSE_DB"]);
    assert_eq!(of_gateway("user"), server["CLICKHOUSE_USER"]);
    let sources = yaml(&config("grafana/provisioning/datasources/prefixgate.yml"));
    let source = &sources["datasources"][1]["jsonData"];
    assert_eq!(source["defaultDatabase"], server["CLICKHOUSE_DB"]);
    assert_eq!(source["username"], server["CLICKHOUSE_USER"]);
    assert_eq!(source["port"], 8123);
    // One password, said once, and in no file of settings.
    let password = &server["CLICKHOUSE_PASSWORD"];
    for (service, name) in [
        ("gateway", "PREFIXGATE_CLICKHOUSE_PASSWORD"),
        ("grafana", "CLICKHOUSE_PASSWORD"),
    ] {
        let environment = &compose["services"][service]["environment"];
        assert_eq!(&environment[name], password, "{service}");
    }
    assert!(settings["clickhouse"].get("password").is_none());
}

#[test]
fn grafana_is_provisioned_with_what_the_dashboards_expect() {
    let compose = compose();
    let grafana = &compose["services"]["grafana"];
    let environment = grafana["environment"].as_object().unwrap();
    let path = config("grafana/provisioning/datasources/prefixgate.yml");
    let provisioned = yaml(&path);
    assert_eq!(provisioned["apiVersion"], 1);
    let sources = provisioned["datasources"].as_array().unwrap();
    let uid_of = |kind: &str| {
        let source = sources
            .iter()
            .find(|source| source["type"] == kind)
            .unwrap();
        source["uid"].as_str().unwrap()
    };
    for (directory, kind) in [
        ("prometheus", "prometheus"),
        ("clickhouse", "grafana-clickhouse-datasource"),
    ] {
        for (file, board) in boards(directory) {
            let variables = board["templating"]["list"].as_array().unwrap();
            let source = variables
                .iter()
                .find(|v| v["name"] == "datasource")
                .unwrap();
            assert_eq!(source["query"], kind, "{file}");
            assert_eq!(source["current"]["value"], uid_of(kind), "{file}");
        }
    }
    // What the files take from the environment is there.
    let text = std::fs::read_to_string(&path).unwrap();
    for after in text.split("${").skip(1) {
        let name = after.split('}').next().unwrap();
        assert!(environment.contains_key(name), "{name} is not set");
    }
    // Dashboards are looked for where they are mounted.
    let providers = yaml(&config("grafana/provisioning/dashboards/prefixgate.yml"));
    let from = providers["providers"][0]["options"]["path"]
        .as_str()
        .unwrap();
    let mount = format!("../dashboards:{from}:ro");
    assert!(words(&grafana["volumes"]).contains(&mount.as_str()));
    let home = environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        .as_str()
        .unwrap();
    let home = home.strip_prefix(from).unwrap().trim_start_matches('/');
    assert!(root().join("dashboards").join(home).is_file(), "{home}");
}
