//! `prefixgate check`: is the configuration valid, what is in force, and who said so.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::config::{Config, Options};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Print the configuration in force as a file that gives the same
    #[arg(long)]
    print: bool,
}

/// Prints the settings in force with their origin, warnings, and `ok`; binds and creates nothing.
///
/// # Errors
/// Every problem of the configuration (exit code 2), or that stdout cannot be written.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.options)?;
    let text = if args.print {
        config.to_toml()
    } else {
        summary(&config)
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn summary(config: &Config) -> String {
    let file = config.file.as_ref().map(|path| path.display().to_string());
    let mut out = format!(
        "configuration: {}\n\n",
        file.as_deref().unwrap_or("no file, defaults")
    );
    // Prices have no key of their own: the model stands for the entry.
    let settings = config.settings();
    let rows: Vec<(&str, &str, String)> = settings
        .iter()
        .filter(|setting| !setting.path.is_empty() || setting.key == "model")
        .map(|setting| match setting.path.as_str() {
            "" => ("price", setting.value.as_str(), String::new()),
            path => (
                path,
                setting.value.as_str(),
                config.origin(path).to_string(),
            ),
        })
        .collect();
    let width = |of: fn(&(&str, &str, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (keys, values) = (width(|row| row.0.len()), width(|row| row.1.chars().count()));
    for (key, value, origin) in &rows {
        let line = format!("{key:keys$}  {value:values$}  {origin}");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for warning in &config.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    out.push_str("ok\n");
    out
}
