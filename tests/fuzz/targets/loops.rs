//! Loops in any body that has a view: never panics, the same twice, within its bounds.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use prefixgate::guard::calls::results;
use prefixgate::guard::loops::{Action, Memo, Policy, look};
use prefixgate::provider::anthropic::request::view;

fuzz_target!(|body: &[u8]| {
    static MEMO: OnceLock<Memo> = OnceLock::new();
    let memo = MEMO.get_or_init(Memo::default);
    let Ok(view) = view(body) else { return };
    let policy = Policy::of(Action::Hint);
    let seen = look(body, &view, &policy, memo, None);
    // What is remembered changes nothing.
    assert_eq!(seen, look(body, &view, &policy, &Memo::default(), None));
    assert!(seen.findings.len() <= 4);
    assert!(seen.hints.is_sorted_by(|one, next| one.message < next.message));
    assert!(seen.hints.iter().all(|hint| (hint.message as usize) < view.messages.len()));
    let warned = look(body, &view, &policy.without_hints(), memo, None);
    assert!(warned.hints.is_empty() && warned.findings.len() == seen.findings.len());
    let newest = results(body, &view, memo, None);
    let continued = look(body, &view, &policy, memo, Some(&seen.history));
    assert!(continued.findings.len() <= 4);
    assert_eq!(newest, results(body, &view, memo, None));
});
