//! Settings whose check needs more than a range.

use std::net::SocketAddr;
use std::path::PathBuf;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::super::error::{Problem, shown};
use super::super::file::{Entry, PriceEntry};
use super::super::value::Words;
use super::super::{Config, PriceOverride};
use super::{Picked, Resolver, is_local};

/// Applications with a metric label of their own: each is a set of series.
const APPS_MAX: usize = 100;
/// Longest name of an application.
pub(super) const APP_MAX_CHARS: usize = 64;

/// Whether an application (or a webhook) can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=APP_MAX_CHARS).contains(&name.len()) && name.bytes().all(allowed)
}

/// What is wrong with certificates of authorities, if anything.
fn unusable(authorities: &[CertificateDer<'static>]) -> Option<String> {
    let mut roots = rustls::RootCertStore::empty();
    let wrong = (authorities.iter()).find_map(|one| roots.add(one.clone()).err());
    wrong.map(|error| format!("must be certificates of authorities: {error}"))
}

impl Resolver<'_> {
    pub(super) fn addresses(
        &mut self,
        config: &mut Config,
        listen: Option<Picked<SocketAddr>>,
        admin: Option<Picked<SocketAddr>>,
    ) {
        if let Some(listen) = &listen {
            config.listen = listen.value;
            if !is_local(listen.value.ip()) {
                self.warnings.push(format!(
                    "server.listen = {}: other machines may reach the proxy, and it does not ask who they are",
                    listen.value
                ));
            }
        }
        if let Some(admin) = &admin {
            config.admin = admin.value;
            if !is_local(admin.value.ip()) {
                if config.admin_allow_remote {
                    self.warnings.push(format!(
                        "server.admin = {}: other machines may reach metrics and records without a password",
                        admin.value
                    ));
                } else {
                    let allowed = "must be a loopback address, such as 127.0.0.1:8788, because the admin listener \
                                   has no authentication; `admin_allow_remote = true` in [server] allows others";
                    self.wrong(&admin.origin, "server.admin", &admin.shown, allowed);
                }
            }
        }
        if config.listen == config.admin && config.listen.port() != 0 {
            // One of them was typed, as the defaults differ.
            if let Some(typed) = admin.or(listen) {
                let message = format!(
                    "server.listen and server.admin must differ, both are {}",
                    config.listen
                );
                self.problems.push(Problem {
                    place: typed.origin.to_string(),
                    message,
                });
            }
        }
    }

    pub(super) fn data_dir(&mut self, config: &mut Config, picked: &Picked<PathBuf>) {
        let Some(path) = self.path("store.data_dir", picked) else {
            return;
        };
        if path.exists() && !path.is_dir() {
            self.wrong(
                &picked.origin,
                "store.data_dir",
                &picked.shown,
                "must be a directory, but is a file",
            );
        }
        config.data_dir = path;
    }

    pub(super) fn extra_ca(&mut self, config: &mut Config, picked: &Picked<PathBuf>) {
        let Some(path) = self.path("tls.extra_ca", picked) else {
            return;
        };
        let wrong = match CertificateDer::pem_file_iter(&path) {
            Err(error) => Some(format!("cannot be read: {error}")),
            Ok(certificates) => match certificates.collect::<Result<Vec<_>, _>>() {
                Err(error) => Some(format!("must be certificates in PEM: {error}")),
                Ok(found) if found.is_empty() => Some(
                    "must hold certificates in PEM (-----BEGIN CERTIFICATE-----), but holds none"
                        .to_owned(),
                ),
                Ok(found) => {
                    let unusable = unusable(&found);
                    if let Some(store) = &mut config.clickhouse {
                        store.extra_ca = found;
                    }
                    unusable
                }
            },
        };
        if let Some(wrong) = wrong {
            self.wrong(&picked.origin, "tls.extra_ca", &picked.shown, &wrong);
        }
        config.extra_ca = Some(path);
    }

    pub(super) fn apps(&mut self, config: &mut Config, picked: Picked<Words>) {
        let wrong = if picked.value.0.len() > APPS_MAX {
            Some(format!(
                "must be at most {APPS_MAX} names, as each is a set of time series"
            ))
        } else {
            picked.value.0.iter().find(|app| !is_name(app)).map(|app| {
                format!("must be names of letters, digits, `.`, `_` and `-`, up to {APP_MAX_CHARS}; {:?} is not", shown(app))
            })
        };
        if let Some(wrong) = wrong {
            self.wrong(&picked.origin, "metrics.apps", &picked.shown, &wrong);
        }
        config.app_labels = picked.value.0;
    }

    pub(super) fn prices(&mut self, entries: Vec<Entry<PriceEntry>>) -> Vec<PriceOverride> {
        let mut prices: Vec<PriceOverride> = Vec::with_capacity(entries.len());
        for Entry {
            name: number,
            line,
            section,
        } in entries
        {
            let reported = self.problems.len();
            let min_cache_tokens = section
                .min_cache_tokens
                .as_ref()
                .map(|count| u32::try_from(count.value.0));
            if let (Some(Err(_)), Some(typed)) = (&min_cache_tokens, &section.min_cache_tokens) {
                let message = format!(
                    "price.min_cache_tokens = {}: must be at most {}",
                    typed.shown,
                    u32::MAX
                );
                self.problem_in_file(typed.line, message);
            }
            if let Some(price) = self.price(&section, line) {
                if prices.iter().any(|other| other.model == price.model) {
                    self.problem_in_file(
                        line,
                        format!("[[price]] {number}: {:?} has a price already", price.model),
                    );
                }
                if reported == self.problems.len() {
                    prices.push(price);
                }
            }
        }
        prices
    }

    fn price(&mut self, section: &PriceEntry, line: usize) -> Option<PriceOverride> {
        let PriceEntry {
            model,
            input,
            output,
            read,
            write_5m,
            write_1h,
            min_cache_tokens,
            ..
        } = section;
        let missing: Vec<&str> = PriceEntry::KEYS
            .iter()
            .copied()
            .filter(|key| *key != "min_cache_tokens" && !section.typed.contains(key))
            .collect();
        if !missing.is_empty() {
            let advice = "write the input price where a model has no cache price of that kind";
            self.problem_in_file(
                line,
                format!("[[price]] needs {}; {advice}", missing.join(", ")),
            );
            return None;
        }
        Some(PriceOverride {
            model: model.as_ref()?.value.clone(),
            input_pico: input.as_ref()?.value.0,
            output_pico: output.as_ref()?.value.0,
            read_pico: read.as_ref()?.value.0,
            write_5m_pico: write_5m.as_ref()?.value.0,
            write_1h_pico: write_1h.as_ref()?.value.0,
            min_cache_tokens: min_cache_tokens
                .as_ref()
                .and_then(|count| u32::try_from(count.value.0).ok()),
        })
    }
}
