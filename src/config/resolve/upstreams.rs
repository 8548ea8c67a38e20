//! Upstreams: the built-in ones, changed and joined by those of the file, in order of preference.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;

use super::super::error::{nearest, shown};
use super::super::file::{Entry, File, Located, Upstream as Typed};
use super::super::options::{Options, VARIABLES};
use super::super::value::{AbsentCached, BaseUrl, CostBy, Count, Value, Words};
use super::super::{Config, Format, Origin, Upstream};
use super::{Picked, Resolver, is_local, text};
use crate::provider::dialect::Dialect;
use crate::provider::view::Automatic;

/// The profiles of this build, in the grammar of the configuration file.
const PROFILES: &str = include_str!("../../../config/upstreams.toml");

/// Longest name of an upstream; it is a part of a URL path and a metric label.
const NAME_MAX_CHARS: usize = 32;

/// The profiles of this build.
fn profiles() -> Vec<Entry<Typed>> {
    File::parse("built-in profiles", PROFILES).0.upstreams
}

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
        let mut section = section;
        let profile = self.profile(&name, section.profile.take());
        let known = upstreams.iter().position(|upstream| upstream.name == name);
        let blank = || Upstream {
            name: name.clone(),
            base: Uri::default(),
            format: Format::Opaque,
            price_provider: String::new(),
            dialect: Dialect::default(),
        };
        let mut upstream = match known.and_then(|at| upstreams.get(at)) {
            Some(known) if profile.is_none() => known.clone(),
            _ => blank(),
        };
        let (mut url, mut format) = (known.is_some(), known.is_some());
        if let Some(profile) = profile {
            url = profile.url.is_some();
            format = profile.format.is_some();
            self.settle(&mut upstream, profile, false);
        }
        // A value that is there and wrong has been reported already.
        url |= section.typed.contains(&"url");
        format |= section.typed.contains(&"format");
        self.settle(&mut upstream, section, true);
        if !(url && format) {
            let formats = Format::parse("").err().unwrap_or_default();
            self.problem_in_file(
                line,
                format!("[upstream.{name}] needs both `url` and `format` (format {formats}), or a `profile` that has them"),
            );
            return;
        }
        if upstream.price_provider.is_empty() {
            upstream.price_provider = match upstream.format {
                Format::Anthropic => "anthropic".to_owned(),
                Format::OpenAi => "openai".to_owned(),
                Format::Opaque => name,
            };
        }
        match known.and_then(|at| upstreams.get_mut(at)) {
            Some(known) => *known = upstream,
            None => upstreams.push(upstream),
        }
    }

    /// The profile that a section asks for, by its key or by its own name.
    fn profile(&mut self, name: &str, asked: Option<Located<String>>) -> Option<Typed> {
        let key = format!("upstream.{name}.profile");
        let asked = self.in_file(&key, asked);
        let wanted = asked.as_ref().map_or(name, |asked| asked.value.as_str());
        let profiles = profiles();
        let found = profiles.iter().find(|entry| entry.name == wanted);
        if let (None, Some(asked)) = (found, &asked) {
            let names: Vec<&str> = profiles.iter().map(|entry| entry.name.as_str()).collect();
            let meant = nearest(wanted, names.iter().copied())
                .map(|name| format!("did you mean {name:?}? "))
                .unwrap_or_default();
            let allowed = format!("is no profile; {meant}(profiles: {})", names.join(", "));
            self.wrong(&asked.origin, &key, &asked.shown, &allowed);
        }
        found.map(|entry| entry.section.clone())
    }

    /// Puts what is typed over whatever the upstream has already. What does not stand in the user's
    /// file (but in a profile) has no place that could be told.
    fn settle(&mut self, upstream: &mut Upstream, section: Typed, in_file: bool) {
        let name = upstream.name.clone();
        macro_rules! take {
            ($key:ident) => {
                if in_file {
                    let key = format!("upstream.{name}.{}", stringify!($key));
                    self.in_file(&key, section.$key).map(|picked| picked.value)
                } else {
                    section.$key.map(|located| located.value)
                }
            };
        }
        if let Some(url) = take!(url) {
            upstream.base = url.0;
        }
        if let Some(format) = take!(format) {
            upstream.format = format;
        }
        if let Some(prices) = take!(prices) {
            upstream.price_provider = prices;
        }
        let dialect = &mut upstream.dialect;
        if let Some(ask) = take!(ask_usage) {
            dialect.ask_usage = ask;
        }
        let counting = &mut dialect.counting;
        if let Some(beside) = take!(cached_beside) {
            counting.cached_beside = beside;
        }
        if let Some(beside) = take!(reasoning_beside) {
            counting.reasoning_beside = beside;
        }
        if let Some(absent) = take!(absent_cached) {
            counting.absent_is_none = absent == AbsentCached::None;
        }
        if let Some(ttl) = take!(writes) {
            counting.writes = ttl;
        }
        if let Some(by) = take!(cost) {
            dialect.tells_cost = by == CostBy::Provider;
        }
        if let Some(known) = take!(cache_options) {
            dialect.cache_options = known;
        }
        if let Some(places) = take!(cache_control) {
            dialect.cache_control = places;
        }
        let (step, min, ttl) = (take!(cache_step), take!(cache_min), take!(cache_ttl));
        if step.is_some() || min.is_some() || ttl.is_some() {
            let mut rules = dialect.caching.unwrap_or(Automatic {
                step: 1,
                min_tokens: 1,
                ttl: None,
                at_breakpoints: false,
            });
            // Numbers beyond any prompt mean the same as the largest one.
            let tokens = |count: Count| u32::try_from(count.0).unwrap_or(u32::MAX).max(1);
            rules.step = step.map_or(rules.step, tokens);
            rules.min_tokens = min.map_or(rules.min_tokens, tokens);
            rules.ttl = ttl.or(rules.ttl);
            dialect.caching = Some(rules);
        }
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
