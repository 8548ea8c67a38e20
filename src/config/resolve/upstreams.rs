//! Upstreams: the built-in ones, changed and joined by those of the file, in order of preference.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::super::error::{nearest, shown};
use super::super::file::{Entry, Located, Upstream as Typed};
use super::super::options::{Options, VARIABLES};
use super::super::value::{BaseUrl, Value, Words};
use super::super::{Config, Format, Origin, Upstream};
use super::{Picked, Resolver, is_local, text};

/// Longest name of an upstream; it is a part of a URL path and a metric label.
const NAME_MAX_CHARS: usize = 32;

impl Resolver<'_> {
    pub(super) fn upstreams(
        &mut self,
        config: &mut Config,
        options: &Options,
        order: Option<Located<Words>>,
        typed: Vec<Entry<Typed>>,
    ) {
        let in_file: Vec<String> = typed.iter().map(|entry| entry.name.clone()).collect();
        let standard = config
            .upstreams
            .first()
            .map(|upstream| upstream.name.clone());
        let mut moved = typed
            .iter()
            .any(|entry| entry.section.url.is_some() && Some(&entry.name) == standard.as_ref());
        for entry in typed {
            self.upstream(&mut config.upstreams, entry);
        }
        if let Some(order) = self.in_file("upstream.default", order) {
            self.order(&mut config.upstreams, &order);
        }
        let flag = text("--upstream", &options.upstream);
        let Some(first) = config.upstreams.first_mut() else {
            return;
        };
        let key = format!("upstream.{}.url", first.name);
        if let Some(url) = self.above::<BaseUrl>(&key, None, flag, VARIABLES[3]) {
            first.base = url.value.0;
            moved = true;
        }
        if moved {
            // Whoever sends the standard upstream elsewhere means it for everything: no path may
            // take a key to a provider that nobody has named.
            let first = config
                .upstreams
                .first()
                .map(|upstream| upstream.name.clone());
            config.upstreams.retain(|upstream| {
                Some(&upstream.name) == first.as_ref() || in_file.contains(&upstream.name)
            });
        }
        for upstream in &config.upstreams {
            self.destination(config, upstream);
        }
    }

    /// Changes a known upstream or adds a new one.
    fn upstream(&mut self, upstreams: &mut Vec<Upstream>, entry: Entry<Typed>) {
        let Entry {
            name,
            line,
            section,
        } = entry;
        let known = upstreams.iter().position(|upstream| upstream.name == name);
        let allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        if name.is_empty() || name.len() > NAME_MAX_CHARS || !name.bytes().all(allowed) {
            self.problem_in_file(
                line,
                format!(
                    "the name of an upstream must be 1 to {NAME_MAX_CHARS} of a-z, 0-9, `_` and `-`; {:?} is not",
                    shown(&name)
                ),
            );
            return;
        }
        let url = self.in_file(&format!("upstream.{name}.url"), section.url);
        let format = self.in_file(&format!("upstream.{name}.format"), section.format);
        let prices = self.in_file(&format!("upstream.{name}.prices"), section.prices);
        if let Some(known) = known.and_then(|index| upstreams.get_mut(index)) {
            if let Some(url) = url {
                known.base = url.value.0;
            }
            if let Some(format) = format {
                known.format = format.value;
            }
            if let Some(prices) = prices {
                known.price_provider = prices.value;
            }
            return;
        }
        let (Some(url), Some(format)) = (url, format) else {
            // A value that is there and wrong has been reported already.
            if !(section.typed.contains(&"url") && section.typed.contains(&"format")) {
                let formats = Format::parse("").err().unwrap_or_default();
                self.problem_in_file(
                    line,
                    format!("[upstream.{name}] needs both `url` and `format` (format {formats})"),
                );
            }
            return;
        };
        let price_provider = prices.map_or_else(
            || match format.value {
                Format::Anthropic => "anthropic".to_owned(),
                Format::OpenAi => "openai".to_owned(),
                Format::Opaque => name.clone(),
            },
            |prices| prices.value,
        );
        upstreams.push(Upstream {
            name,
            base: url.value.0,
            format: format.value,
            price_provider,
        });
    }

    /// Moves the named upstreams to the front.
    fn order(&mut self, upstreams: &mut Vec<Upstream>, order: &Picked<Words>) {
        let names = &order.value.0;
        if names.is_empty() {
            self.wrong(
                &order.origin,
                "upstream.default",
                &order.shown,
                "must name an upstream",
            );
        }
        for (rank, name) in names.iter().enumerate() {
            let Some(at) = upstreams.iter().position(|upstream| upstream.name == *name) else {
                let known: Vec<&str> = upstreams
                    .iter()
                    .map(|upstream| upstream.name.as_str())
                    .collect();
                let meant = nearest(name, known.iter().copied())
                    .map(|name| format!("did you mean {name:?}? "));
                let allowed = format!(
                    "no upstream is named {:?}; {}(known upstreams: {})",
                    shown(name),
                    meant.unwrap_or_default(),
                    known.join(", ")
                );
                self.wrong(&order.origin, "upstream.default", &order.shown, &allowed);
                return;
            };
            if at < rank {
                self.wrong(
                    &order.origin,
                    "upstream.default",
                    &order.shown,
                    &format!("names {name:?} twice"),
                );
                return;
            }
            let upstream = upstreams.remove(at);
            upstreams.insert(rank, upstream);
        }
    }

    fn destination(&mut self, config: &Config, upstream: &Upstream) {
        let host = upstream
            .base
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']']);
        let ip: Option<IpAddr> = if host == "localhost" {
            Some(Ipv4Addr::LOCALHOST.into())
        } else {
            host.parse().ok()
        };
        let plain = upstream.base.scheme_str() == Some("http");
        let port = upstream
            .base
            .port_u16()
            .unwrap_or(if plain { 80 } else { 443 });
        let key = format!("upstream.{}.url", upstream.name);
        let url = BaseUrl::spelled(&upstream.base);
        let own =
            |own: SocketAddr| ip.is_some_and(|ip| port == own.port() && reaches(ip, own.ip()));
        if own(config.listen) || own(config.admin) {
            let origin = self.origins.get(&key).cloned().unwrap_or(Origin::Default);
            let allowed =
                "must not be prefixgate's own address: requests would go round in circles";
            self.wrong(&origin, &key, &format!("{url:?}"), allowed);
        } else if plain && !ip.is_some_and(is_local) {
            self.warnings.push(format!(
                "{key} = {url}: keys and prompts travel unencrypted"
            ));
        }
    }
}

/// Whether a connection to `ip` would arrive at a listener on `own`.
fn reaches(ip: IpAddr, own: IpAddr) -> bool {
    let (ip, own) = (ip.to_canonical(), own.to_canonical());
    ip == own
        || (is_local(ip) || ip.is_unspecified())
            && (own.is_unspecified() || is_local(own) && ip.is_unspecified())
}
