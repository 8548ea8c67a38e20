//! A request before the books: what it may use at most, and what becomes of it.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};

use super::events::{self, Place};
use crate::config::{CapAction, Reserve, Unpriced};
use crate::guard::caps::show::show;
use crate::guard::caps::{Amounts, Ask, Cap, Crossing, Denied, Left, Limits, Scope};
use crate::provider::view::{BlockKind, History, RequestView, Ttl};
use crate::proxy::Shared;
use crate::proxy::account::Account;
use crate::proxy::ledger::Reserved;
use crate::proxy::ledger::seeds::day;
use crate::proxy::refusal::{BILLING, Refusal};
use crate::run::Seat;
use crate::trace::{Outcome, RequestKind, TurnRecord};
use crate::usage::{Metered, Priced, Speed, Usage};

/// The least bytes that stand for a token, in thousandths, where a thread has not shown its own:
/// dense code and foreign scripts come close to it.
const DENSE_MILLI: u64 = 2_000;
/// How much denser than its own average a thread's new text may be, as a fraction of the average.
const DENSER: (u64, u64) = (4, 5);
/// A picture or document that is only named may be this small in the body ...
const NAMED_BYTES: u32 = 2_048;
/// ... and is taken to have this many tokens: the most that a picture has (provider docs, Nov 2026).
const NAMED_TOKENS: u64 = 5_000;

/// The credential of requests that carry none, as the books have it.
pub(in crate::proxy) use crate::proxy::ledger::seeds::NO_CREDENTIAL;

/// What is left, told to the client.
static LEFT: [HeaderName; 4] = [
    HeaderName::from_static("x-prefixgate-left-turns"),
    HeaderName::from_static("x-prefixgate-left-tokens"),
    HeaderName::from_static("x-prefixgate-left-usd"),
    HeaderName::from_static("x-prefixgate-left-seconds"),
];

/// Tells that a cap was passed, where that only warns.
static OVER: HeaderName = HeaderName::from_static("x-prefixgate-over-cap");

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

/// Tokens that a request can have at most.
fn bounds(shared: &Shared, seat: &Seat, asking: &Asking<'_>) -> (u64, u64) {
    let bytes = asking.bytes as u64;
    let milli = seat.bytes_per_token_milli.map(u64::from);
    let milli = milli
        .map_or(DENSE_MILLI, |milli| milli * DENSER.0 / DENSER.1)
        .max(1);
    let mut input = bytes.saturating_mul(1_000).div_ceil(milli);
    let blocks = asking.view.map_or(&[][..], |view| &view.blocks);
    let named = |kind| matches!(kind, BlockKind::Image | BlockKind::Document);
    let pictures = blocks
        .iter()
        .filter(|block| named(block.kind) && block.span.len() <= NAMED_BYTES);
    input = input.saturating_add(NAMED_TOKENS.saturating_mul(pictures.count() as u64));
    if let Some(History::Continues(_)) = asking.view.map(|view| &view.history) {
        input = input.saturating_add(seat.last_tokens.unwrap_or(0));
    }
    let limit = asking.view.and_then(|view| view.max_tokens);
    (
        input,
        limit.unwrap_or(shared.config.caps.default_max_tokens),
    )
}

/// The most that so many tokens can cost, in pico-USD, or why that is unknown.
fn price(
    shared: &Shared,
    asking: &Asking<'_>,
    input: u64,
    output: u64,
    now_ms: i64,
) -> Result<u64, &'static str> {
    let view = asking.view.ok_or("unread_body")?;
    let zero = Some(0);
    let (uncached, write_5m, write_1h) = match asking.writes {
        None => (Some(input), zero, zero),
        Some(Ttl::M5) => (zero, Some(input), zero),
        Some(Ttl::H1) => (zero, zero, Some(input)),
    };
    let metered = Metered {
        usage: Usage {
            uncached,
            read: zero,
            write_5m,
            write_1h,
            output: Some(output),
            web_searches: zero,
            ..Usage::default()
        },
        speed: if view.fast {
            Speed::Fast
        } else {
            Speed::Standard
        },
        ..Metered::default()
    };
    let model = view.model.as_deref();
    match shared
        .prices
        .price(asking.price_provider, &metered, model, now_ms)
    {
        Priced::Known { pico, .. } => Ok(pico),
        Priced::Unpriced { reason, .. } => Err(reason),
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
            return Err(End::Refuse(unpriced(account, status, reason)));
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
                    (CapAction::Answer, _) => return Err(End::Answer(text)),
                    _ => return Err(refused(&denied, status, text)),
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
        CapAction::Warn => "warn",
    };
    events::cap_refused(shared, record, denied, word);
}

/// `usd of run: 1.02 of 1`
fn over(denied: &Denied) -> String {
    format!(
        "{} of {}: {} of {}",
        denied.cap.as_str(),
        events::word(&denied.scope),
        show(denied.cap, denied.spent),
        show(denied.cap, denied.limit)
    )
}

fn unpriced(account: &mut Account, status: StatusCode, reason: &str) -> Refusal {
    let mut model = String::new();
    if let Some(record) = account.record() {
        record.guard.cap = Some(Cap::Usd.as_str().to_owned());
        record.guard.cap_scope = Some("run".to_owned());
        model = record.model_requested.clone().unwrap_or_default();
    }
    Refusal {
        status,
        kind: BILLING,
        message: format!(
            "prefixgate: a cap on usd holds for this request, but what `{model}` costs is unknown \
             ({reason}); add a [[price]] for it, or let such requests pass (setting caps.unpriced)"
        ),
        retry: Some(false),
        after_ms: None,
    }
}

/// Says which cap it is, how far it is used, and where it is set.
fn denial(shared: &Shared, account: &mut Account, denied: &Denied, lowered: &Limits) -> String {
    let Denied {
        scope,
        cap,
        spent,
        held,
        asked,
        limit,
        ..
    } = denied;
    let app = account.record().and_then(|record| record.app.as_deref());
    let own = app.filter(|app| {
        let own = shared.config.apps.get(*app);
        own.is_some_and(|own| own.run.of(*cap).is_some())
    });
    let whose = match scope {
        Scope::Run(run) => format!("run {run}"),
        Scope::Unnamed(_, day) => {
            format!("what this key sent on {day} without naming a run (x-prefixgate-run)")
        }
        Scope::Key(_, day) => format!("this key on {day}"),
    };
    let setting = setting(scope, *cap, lowered, *limit, own);
    let mut used = format!("{} of {}", show(*cap, *spent), show(*cap, *limit));
    if *held > 0 {
        used.push_str(&format!(", {} more under way", show(*cap, *held)));
    }
    if *asked > 0 && !matches!(cap, Cap::Turns | Cap::Agents | Cap::Concurrency) {
        used.push_str(&format!(", this request up to {}", show(*cap, *asked)));
    }
    format!(
        "prefixgate: cap reached: {} of {whose}: {used} (setting {setting})",
        cap.as_str()
    )
}

fn refused(denied: &Denied, status: StatusCode, message: String) -> End {
    End::Refuse(if denied.cap.passes_later() {
        Refusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            message,
            retry: Some(true),
            after_ms: denied.after_ms,
        }
    } else {
        Refusal {
            status,
            kind: BILLING,
            message,
            retry: Some(false),
            after_ms: None,
        }
    })
}

/// Where the limit was set.
fn setting(scope: &Scope, cap: Cap, lowered: &Limits, limit: u64, app: Option<&str>) -> String {
    let word = cap.as_str();
    match scope {
        Scope::Run(_) if lowered.of(cap) == Some(limit) => {
            format!("x-prefixgate-max-{} of the request", word.replace('_', "-"))
        }
        Scope::Run(_) => match app {
            Some(app) => format!("app.{app}.{word}"),
            None => format!("caps.run.{word}"),
        },
        Scope::Unnamed(..) => format!("caps.unnamed.{word}, or else caps.run.{word}"),
        Scope::Key(..) => match cap {
            Cap::Usd | Cap::Tokens => format!("caps.key.{word}_per_day"),
            _ => format!("caps.key.{word}"),
        },
    }
}

/// The least that is left over all scopes, as headers of the answer.
fn tell_left(account: &mut Account, left: &[(Scope, Left)]) {
    let least = |of: fn(&Left) -> Option<u64>| left.iter().filter_map(|(_, left)| of(left)).min();
    let values = [
        least(|left| left.turns).map(|n| show(Cap::Turns, n)),
        least(|left| left.tokens).map(|n| show(Cap::Tokens, n)),
        least(|left| left.usd_pico).map(|n| show(Cap::Usd, n)),
        least(|left| left.wall_ms).map(|n| (n / 1_000).to_string()),
    ];
    for (name, value) in LEFT.iter().zip(values) {
        account.tell(
            name,
            value.and_then(|value| HeaderValue::from_str(&value).ok()),
        );
    }
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

/// What an ended request has used, and what was booked in place of an unknown cost.
pub(in crate::proxy) fn used(
    record: &TurnRecord,
    finished: bool,
    most: &Amounts,
) -> (Amounts, Option<u64>) {
    let answered = record.status.is_some_and(|s| (200..300).contains(&s))
        && record.outcome != Outcome::Refused
        && matches!(record.kind, RequestKind::Turn | RequestKind::KeepWarm);
    if !answered {
        // Nothing was generated, or nothing is known of it that could be booked.
        return (Amounts::default(), None);
    }
    let usage = &record.usage;
    let known = [usage.uncached, usage.read, usage.write_5m, usage.write_1h];
    let input = known
        .iter()
        .flatten()
        .fold(0_u64, |sum, n| sum.saturating_add(*n));
    let input_known = known.iter().any(Option::is_some);
    // A whole answer that does not say what it used is taken at the most it could have used.
    let or_most = |told: Option<u64>, most: u64| told.unwrap_or(if finished { most } else { 0 });
    let pico = or_most(record.cost_pico, most.pico);
    let booked = (record.cost_pico.is_none() && pico > 0).then_some(pico);
    let amounts = Amounts {
        turns: u64::from(record.kind == RequestKind::Turn),
        input: or_most(input_known.then_some(input), most.input),
        output: or_most(usage.output, most.output),
        pico,
    };
    (amounts, booked)
}
