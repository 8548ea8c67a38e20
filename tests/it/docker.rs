//! The Dockerfile's commands against the real program: no engine builds it here, but what it would
//! start and ask is run as it stands, only on ports of the system's choice.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::Gateway;

/// The image's facts that matter to a running container.
struct Image {
    environment: BTreeMap<String, String>,
    entry: Vec<String>,
    command: Vec<String>,
    health: Vec<String>,
    user: String,
}

impl Image {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile");
        let text = std::fs::read_to_string(path).unwrap();
        // Continued lines are one instruction; only the last stage is run.
        let text = text.replace("\\\n", " ");
        let stage = text.rsplit("\nFROM ").next().unwrap();
        let of = |name: &str| {
            let start = format!("{name} ");
            let line = stage.lines().find(|l| l.starts_with(&start));
            line.unwrap_or_else(|| panic!("no {name}"))[start.len()..].to_owned()
        };
        let list = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap();
        let pair = |word: &str| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let health = of("HEALTHCHECK");
        Self {
            environment: of("ENV").split_whitespace().map(pair).collect(),
            entry: list(&of("ENTRYPOINT")),
            command: list(&of("CMD")),
            health: list(health.split_once("CMD ").unwrap().1.trim()),
            user: of("USER"),
        }
    }

    /// Runs a command of the image with its environment, some of it overridden.
    fn run(&self, words: &[String], set: &[(&str, &str)]) -> Output {
        assert_eq!(
            words[0], self.entry[0],
            "another program than the image has"
        );
        Command::new(env!("CARGO_BIN_EXE_prefixgate"))
            .args(&words[1..])
            .env_clear()
            .envs(&self.environment)
            .envs(set.iter().copied())
            .output()
            .unwrap()
    }
}

#[test]
fn the_image_has_no_rights_and_listens_for_others() {
    let image = Image::read();
    let (user, group) = image.user.split_once(':').unwrap();
    // Numbers, so that a cluster can see that it is not root.
    assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0);
    assert!(image.environment["PREFIXGATE_LISTEN"].starts_with("0.0.0.0:"));
    assert_eq!(image.command, ["serve"]);
}

#[test]
fn the_images_settings_are_valid() {
    let image = Image::read();
    let data = tempfile::tempdir().unwrap();
    let check = [image.entry[0].clone(), "check".to_owned()];
    let data = data.path().display().to_string();
    let output = image.run(&check, &[("PREFIXGATE_DATA_DIR", &data)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_health_check_tells_a_running_gateway_from_none() {
    let image = Image::read();
    // Being ready does not depend on the provider: restarting the gateway would not help it.
    let gateway = Gateway::start("http://127.0.0.1:9");
    let admin = gateway.admin.to_string();
    let ask = || image.run(&image.health, &[("PREFIXGATE_ADMIN", &admin)]);
    let output = ask();
    assert!(output.status.success(), "{output:?}");
    drop(gateway);
    let output = ask();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!output.stderr.is_empty(), "it says why");
}
