//! What a client is told of caps: in a refusal, an answer, a header.

use http::{HeaderName, HeaderValue, StatusCode};

use super::End;
use super::most::UNREAD;
use crate::guard::caps::show::show;
use crate::guard::caps::{Cap, Denied, Left, Limits, Scope};
use crate::proxy::Shared;
use crate::proxy::account::Account;
use crate::proxy::guard::events;
use crate::proxy::refusal::{BILLING, Refusal, retry_after_s};
use crate::usage::price::COST_OVERFLOW;

/// What is left, told to the client.
static LEFT: [HeaderName; 4] = [
    HeaderName::from_static("x-prefixgate-left-turns"),
    HeaderName::from_static("x-prefixgate-left-tokens"),
    HeaderName::from_static("x-prefixgate-left-usd"),
    HeaderName::from_static("x-prefixgate-left-seconds"),
];

/// Tells that a cap was passed, where that only warns.
pub(super) static OVER: HeaderName = HeaderName::from_static("x-prefixgate-over-cap");

/// `usd of run: 1.02 of 1`
pub(super) fn over(denied: &Denied) -> String {
    format!(
        "{} of {}: {} of {}",
        denied.cap.as_str(),
        events::word(&denied.scope),
        show(denied.cap, denied.spent),
        show(denied.cap, denied.limit)
    )
}

/// What a request costs at most cannot be told; why, and what to do.
pub(super) fn unpriced(model: &str, reason: &str) -> String {
    match reason {
        UNREAD => "prefixgate: a cap on usd holds for this request, but its body could not be read, so \
                   that what it may cost is unknown: it has to be one JSON object, in an encoding that is \
                   known, and no larger than server.max_inspect (or setting caps.unpriced)"
            .to_owned(),
        COST_OVERFLOW => format!(
            "prefixgate: a cap on usd holds for this request, and what it may cost at most is beyond \
             all bounds: `{model}` with this max_tokens"
        ),
        _ => format!(
            "prefixgate: a cap on usd holds for this request, but what `{model}` costs is unknown \
             ({reason}); add a [[price]] for it, or let such requests pass (setting caps.unpriced)"
        ),
    }
}

/// Says which cap it is, how far it is used, and where it is set.
pub(super) fn denial(
    shared: &Shared,
    account: &mut Account,
    denied: &Denied,
    lowered: &Limits,
) -> String {
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
    let name = cap.as_str();
    match cap {
        Cap::Depth => {
            return format!(
                "cap reached: {name} of {whose}: the agent that asks is a sub-agent at depth {asked}, and \
                 {limit} is allowed (the main agent is at 0). It will not pass later: let the agent above \
                 do this itself, or raise the limit (setting {setting})"
            );
        }
        Cap::Agents => {
            return format!(
                "cap reached: {name} of {whose}: {spent} of {limit} are at work. A further one can begin \
                 when one of them has ended (setting {setting})"
            );
        }
        Cap::RequestsPerMinute => {
            let seconds = retry_after_s(denied.after_ms.unwrap_or(0));
            return format!(
                "cap reached: {name} of this key: {spent} of {limit} within the last minute. There is room \
                 again in {seconds} s (setting {setting})"
            );
        }
        Cap::Concurrency => {
            return format!(
                "cap reached: {name} of this key: {spent} of {limit} requests at a time are under way. \
                 There is room as soon as one of them ends (setting {setting})"
            );
        }
        _ => {}
    }
    let mut used = format!("{} of {}", show(*cap, *spent), show(*cap, *limit));
    if *held > 0 {
        used.push_str(&format!(", {} more under way", show(*cap, *held)));
    }
    if *asked > 0 && *cap != Cap::Turns {
        used.push_str(&format!(", this request up to {}", show(*cap, *asked)));
    }
    format!("cap reached: {name} of {whose}: {used} (setting {setting})")
}

/// Ends the turn in order, with what [`denial`] says.
pub(super) fn answered(denial: &str) -> End {
    End::Answer(format!(
        "[prefixgate] This turn was ended by the gateway, and the model was not asked: {denial}."
    ))
}

/// Refuses the request with what [`denial`] says.
pub(super) fn refused(denied: &Denied, status: StatusCode, denial: &str) -> End {
    let message = format!("prefixgate: {denial}");
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
pub(super) fn tell_left(account: &mut Account, left: &[(Scope, Left)]) {
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
