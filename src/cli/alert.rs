//! `prefixgate alert --test`: do alerts arrive?

use std::fmt::Write as _;
use std::process::ExitCode;

use http::Uri;

use crate::clock::Clock;
use crate::config::{Config, Options};
use crate::export::alerts::{Alert, Post};
use crate::proxy::upstream;

/// What to write into the file where no webhook is configured.
const HOW: &str = "\
no webhook is configured: alerts go nowhere. Name one in the configuration file:

[webhook.ops]
url = \"https://...\"
form = \"slack\"    # or \"json\"
";

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Send one test alert to every webhook and say what became of it
    #[arg(long, required = true)]
    test: bool,
}

/// Sends one test alert to every webhook, once; the exit code is 1 when one of them did not take
/// it, 2 when there is none.
///
/// # Errors
/// Every problem of the configuration (exit code 2), an unreadable CA bundle, or that stdout cannot
/// be written.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.options)?;
    if config.webhooks.is_empty() {
        eprint!("{HOW}");
        return Ok(ExitCode::from(super::EXIT_USAGE));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (text, all_sent) = runtime.block_on(test(&config, Clock::Real.utc_ms()))?;
    super::print(&text)?;
    Ok(if all_sent {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A line for each webhook, and whether all of them took the alert.
async fn test(config: &Config, now_ms: i64) -> anyhow::Result<(String, bool)> {
    let client = upstream::clients(config)?.pooled;
    let alert = Alert::test(now_ms);
    // All at once: each may take long to fail.
    let tries: Vec<_> = config
        .webhooks
        .iter()
        .map(|webhook| {
            let (post, alert) = (Post::new(client.clone(), webhook), alert.clone());
            tokio::spawn(async move { post.once(&alert).await })
        })
        .collect();
    let (mut text, mut all_sent) = (String::new(), true);
    for (webhook, reply) in config.webhooks.iter().zip(tries) {
        let (name, reply) = (&webhook.name, reply.await?);
        // Writing to a string cannot fail.
        let _ = match reply.sent_status() {
            Some(status) => writeln!(text, "{name}: sent ({status})"),
            None => writeln!(
                text,
                "{name}: not sent: {reply} ({}); {}",
                masked(&webhook.url),
                reply.advice()
            ),
        };
        all_sent &= reply.is_sent();
    }
    Ok((text, all_sent))
}

/// Scheme, host and port: the rest of a webhook's URL is a secret.
fn masked(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("http");
    let host = url.host().unwrap_or("?");
    let port = url.port().map(|port| format!(":{port}"));
    format!("{scheme}://{host}{}/...", port.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{Form, Webhook};

    /// Answers its first request with this status, and gives what it was sent.
    async fn webhook(status: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            // The JSON form ends with the object.
            while !seen.ends_with(b"}") {
                assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
            }
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(seen).unwrap()
        });
        (address, seen)
    }

    fn config(urls: &[(&str, String)]) -> Config {
        let mut config = Config::embedded("unused".into());
        config.webhooks = urls
            .iter()
            .map(|(name, url)| Webhook {
                name: (*name).to_owned(),
                url: url.parse().unwrap(),
                form: Form::Json,
            })
            .collect();
        config
    }

    #[tokio::test]
    async fn every_webhook_is_tried_and_each_says_what_became_of_it() {
        let (good, seen) = webhook("200 OK").await;
        let (gone, _) = webhook("404 Not Found").await;
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = closed.local_addr().unwrap();
        drop(closed);
        let config = config(&[
            ("ops", format!("http://{good}/hook?token=s3cret")),
            ("old", format!("http://{gone}/s3cret")),
            ("off", format!("http://user:s3cret@{nobody}/s3cret")),
        ]);
        let (text, all_sent) = test(&config, 1_796_083_200_000).await.unwrap();
        assert!(!all_sent);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ops: sent (200)");
        let old = format!("old: not sent: answered 404 (http://{gone}/...); nothing takes alerts");
        assert!(lines[1].starts_with(&old), "{text}");
        let off =
            format!("off: not sent: connection refused (http://{nobody}/...); check the host");
        assert!(lines[2].starts_with(&off), "{text}");
        assert_eq!((lines.len(), text.contains("s3cret")), (3, false));

        let seen = seen.await.unwrap();
        assert!(
            seen.starts_with("POST /hook?token=s3cret HTTP/1.1\r\n"),
            "{seen}"
        );
        let (_, body) = seen.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            (&body["kind"], &body["at"]),
            (&"test".into(), &"2026-12-01T00:00:00Z".into())
        );
    }

    #[tokio::test]
    async fn all_sent_is_a_success() {
        let (good, seen) = webhook("204 No Content").await;
        let config = config(&[("ops", format!("http://{good}/hook"))]);
        let (text, all_sent) = test(&config, 0).await.unwrap();
        assert_eq!((text.as_str(), all_sent), ("ops: sent (204)\n", true));
        seen.await.unwrap();
    }
}
