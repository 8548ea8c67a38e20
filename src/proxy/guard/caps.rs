//! A request before the books: what it may use at most, and what becomes of it.

mod most;
mod words;

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

pub(in crate::proxy) use self::most::used;
use self::most::{bounds, price};
use self::words::{OVER, answered, denial, over, refused, tell_left, unpriced};
use super::events::{self, Place};
use crate::config::{CapAction, Reserve, Unpriced};
use crate::guard::caps::{Amounts, Ask, Cap, Crossing, Denied, Limits, Scope};
use crate::provider::view::{RequestView, Ttl};
use crate::proxy::Shared;
use crate::proxy::account::Account;
use crate::proxy::ledger::Reserved;
use crate::proxy::ledger::seeds::day;
use crate::proxy::refusal::{BILLING, Refusal};
use crate::trace::TurnRecord;

/// The credential of requests that carry none, as the books have it.
pub(in crate::proxy) use crate::proxy::ledger::seeds::NO_CREDENTIAL;

/// A request that goes no further.
#[derive(Debug)]
pub(in crate::proxy) enum End {
    /// It is refused.
    Refuse(Refusal),
    /// It is answered in the model's place; with what text.
    Answer(String),
}

/// A request that has to ask.
#[derive(Debug)]
pub struct Asked {
    ask: Ask,
    /// A cap on money is among its limits, and its price is unknown; the word says why.
    unpriced: Option<&'static str>,
    /// What the request itself allows, for messages.
    lowered: Limits,
}

/// What is known of a request that has to ask.
#[derive(Debug)]
pub(in crate::proxy) struct Asking<'a> {
    /// The price data's provider.
    pub(in crate::proxy) price_provider: &'a str,
    /// Hash of the credential, as records have it.
    pub(in crate::proxy) credential: &'a str,
    /// Limits that the request brings along.
    pub(in crate::proxy) lowered: &'a Limits,
    /// Bytes of the body.
    pub(in crate::proxy) bytes: usize,
    /// The body as it is sent, if it could be read.
    pub(in crate::proxy) view: Option<&'a RequestView>,
    /// The longest lifetime among the breakpoints that are sent; `None` where there are none.
    pub(in crate::proxy) writes: Option<Ttl>,
}

/// What a request has to ask for; `None` where nothing limits it.
pub(in crate::proxy) fn asked(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
) -> Option<Asked> {
    let caps = &shared.config.caps;
    let seat = account.seat()?.clone();
    let now_ms = shared.clock.utc_ms();
    let record = account.record()?;
    let scopes = scopes(shared, record, asking.credential, asking.lowered, now_ms);
    if scopes.is_empty() {
        return None;
    }
    let money = scopes.iter().any(|(_, limits)| limits.usd_pico.is_some());
    let (input, output) = bounds(shared, &seat, asking);
    let mut most = Amounts {
        turns: 1,
        input,
        output,
        pico: 0,
    };
    let mut unpriced = None;
    if money {
        match price(shared, asking, input, output, now_ms) {
            Ok(pico) => most.pico = pico,
            Err(reason) => unpriced = Some(reason),
        }
    }
    if caps.reserve == Reserve::Nothing {
        most = Amounts {
            turns: 1,
            ..Amounts::default()
        };
    }
    let ask = Ask {
        scopes,
        most,
        agent: seat.thread_id.to_string(),
        depth: seat.depth,
        now_ms,
    };
    Some(Asked {
        ask,
        unpriced,
        lowered: *asking.lowered,
    })
}

/// Every scope in which something limits a request.
fn scopes(
    shared: &Shared,
    record: &TurnRecord,
    credential: &str,
    lowered: &Limits,
    now_ms: i64,
) -> Vec<(Scope, Limits)> {
    let caps = &shared.config.caps;
    let run = shared.config.run_limits(record.app.as_deref());
    let run = run.lowered(lowered);
    let named = matches!(record.run_source, "label" | "header" | "client" | "body");
    let unnamed = if named {
        Limits::default()
    } else {
        caps.unnamed
    };
    let mut scopes = Vec::new();
    if !run.is_empty() {
        scopes.push((Scope::Run(record.run_id.clone()), run));
    }
    if unnamed.is_empty() && caps.key.is_empty() {
        return scopes;
    }
    let (key, day) = (credential.to_owned(), day(now_ms, &caps.zone));
    if !unnamed.is_empty() {
        scopes.push((Scope::Unnamed(key.clone(), day.clone()), unnamed));
    }
    if !caps.key.is_empty() {
        scopes.push((Scope::Key(key, day), caps.key));
    }
    scopes
}

/// Asks for a request of our own, which may cost so much; `false` where a cap does not let it. It
/// is no turn, and none of an agent.
pub(in crate::proxy) async fn enter_own(
    shared: &Shared,
    account: &mut Account,
    most_pico: u64,
) -> bool {
    let now_ms = shared.clock.utc_ms();
    let Some(record) = account.record() else {
        return false;
    };
    let credential = record.credential.clone();
    let credential = credential.as_deref().unwrap_or(NO_CREDENTIAL);
    let mut scopes = scopes(shared, record, credential, &Limits::default(), now_ms);
    for (_, limits) in &mut scopes {
        for cap in [
            Cap::Depth,
            Cap::Agents,
            Cap::RequestsPerMinute,
            Cap::Concurrency,
        ] {
            limits.lift(cap);
        }
    }
    scopes.retain(|(_, limits)| !limits.is_empty());
    if scopes.is_empty() {
        return true;
    }
    let ask = Ask {
        scopes,
        most: Amounts {
            pico: match shared.config.caps.reserve {
                Reserve::Worst => most_pico,
                Reserve::Nothing => 0,
            },
            ..Amounts::default()
        },
        agent: String::new(),
        depth: 0,
        now_ms,
    };
    match shared.guards.ledger.reserve(ask).await {
        Reserved::Granted {
            hold, crossings, ..
        } => {
            if let Some(record) = account.record() {
                events::crossed(shared, &Place::of(record), &crossings);
            }
            account.hold(hold);
            true
        }
        Reserved::Denied { .. } | Reserved::Unavailable(_) => false,
    }
}

/// Asks the books. What is granted is held by the account.
pub(in crate::proxy) async fn enter(
    shared: &Shared,
    account: &mut Account,
    asked: Asked,
) -> Result<(), End> {
    let status = super::status(shared, account);
    if let Some(reason) = asked.unpriced {
        if shared.config.caps.unpriced == Unpriced::Refuse {
            return Err(End::Refuse(refuse_unpriced(
                shared, account, status, reason,
            )));
        }
        account.warn("cap_not_enforceable");
        if let Some(record) = account.record() {
            let model = record.model_requested.clone().unwrap_or_default();
            if shared.guards.first_unenforced(&record.run_id, &model) {
                events::unenforced(shared, record);
            }
        }
    }
    let mut ask = asked.ask;
    loop {
        let warns = shared.config.caps.action == CapAction::Warn;
        let again = warns.then(|| ask.clone());
        match shared.guards.ledger.reserve(ask).await {
            Reserved::Granted {
                hold,
                left,
                crossings,
            } => {
                if let Some(record) = account.record() {
                    events::crossed(shared, &Place::of(record), &crossings);
                }
                account.hold(hold);
                if shared.config.caps.headers {
                    tell_left(account, &left);
                }
                return Ok(());
            }
            Reserved::Denied { denied, crossings } => {
                let action = match shared.config.caps.action {
                    _ if denied.cap.passes_later() => CapAction::Block,
                    action => action,
                };
                let text = denial(shared, account, &denied, &asked.lowered);
                note(shared, account, &denied, &crossings, action);
                match (action, again) {
                    (CapAction::Warn, Some(again)) => {
                        account.tell(&OVER, HeaderValue::from_str(&over(&denied)).ok());
                        // Without this limit, so that what it uses is booked all the same.
                        ask = again.beyond(&denied);
                    }
                    (CapAction::Answer, _) => return Err(answered(&text)),
                    _ => return Err(refused(&denied, status, &text)),
                }
            }
            Reserved::Unavailable(why) => {
                shared.metrics.ledger_unavailable();
                let message = format!(
                    "prefixgate: the books of caps cannot be reached, and without them nothing goes \
                     upstream (setting caps.redis_down): {why}"
                );
                return Err(End::Refuse(Refusal {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    kind: "api_error",
                    message,
                    retry: Some(true),
                    after_ms: None,
                }));
            }
        }
    }
}

/// A request whose cost is unknown, under a cap on money: recorded and told like any refusal.
fn refuse_unpriced(
    shared: &Shared,
    account: &mut Account,
    status: StatusCode,
    reason: &str,
) -> Refusal {
    let mut model = String::new();
    if let Some(record) = account.record() {
        record.guard.cap = Some(Cap::Usd.as_str().to_owned());
        record.guard.cap_scope = Some("run".to_owned());
        model = record.model_requested.clone().unwrap_or_default();
        let first = shared.guards.first_unenforced(&record.run_id, &model);
        events::unpriced_refused(shared, record, first);
    }
    Refusal {
        status,
        kind: BILLING,
        message: unpriced(&model, reason),
        retry: Some(false),
        after_ms: None,
    }
}

/// Writes down that a cap did not let a request pass, and what was done about it.
fn note(
    shared: &Shared,
    account: &mut Account,
    denied: &Denied,
    crossings: &[Crossing],
    action: CapAction,
) {
    let Some(record) = account.record() else {
        return;
    };
    events::crossed(shared, &Place::of(record), crossings);
    record.guard.cap = Some(denied.cap.as_str().to_owned());
    record.guard.cap_scope = Some(events::word(&denied.scope).to_owned());
    let word = match action {
        CapAction::Block => "refused",
        CapAction::Answer => "answer",
        CapAction::Warn => events::WARNED,
    };
    events::cap_refused(shared, record, denied, word);
}

/// Tells of levels that a request has reached once it has ended, which shared books say later.
#[derive(Debug)]
pub(in crate::proxy) struct Teller {
    shared: Arc<Shared>,
    place: Place,
}

impl Teller {
    /// For the request of this record.
    pub(in crate::proxy) fn new(shared: &Arc<Shared>, record: &TurnRecord) -> Self {
        Self {
            shared: shared.clone(),
            place: Place::of(record),
        }
    }

    /// These levels.
    pub(in crate::proxy) fn crossed(&self, crossings: &[Crossing]) {
        events::crossed(&self.shared, &self.place, crossings);
    }
}
