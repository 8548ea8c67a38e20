use proptest::prelude::*;

use super::script::{Spelling, body, messages};
use crate::guard::calls::results;
use crate::guard::loops::{Action, Detector, Hint, Memo, Policy, Rule, Seen, look};
use crate::provider::anthropic::request::view;
use crate::provider::view::{Block, BlockKind, Form, Message, RequestView, Role, Section, Span};

/// Lines of a conversation that is rich in repetition: answers with one to three calls, and what
/// users and harnesses say.
pub(super) fn script() -> impl Strategy<Value = String> {
    let call = (0..3_u8, 0..3_u8, 0..2_u8, 0..6_u8);
    let step = (prop::collection::vec(call, 1..4), 0..12_u8).prop_map(|(calls, beside)| {
        let mut step = String::new();
        for (tool, target, variant, _) in &calls {
            step += &format!("> t{tool} {{\"path\":\"p{target}\",\"v\":{variant}}}\n");
        }
        for (_, target, _, how) in &calls {
            step += match how {
                0 => "= fine\n",
                1 => ". fine\n",
                2 => "= Error: nothing at 10:00:01\n",
                3 => "! no match\n",
                4 => "= other text\n",
                _ => "! Exit code 1\n",
            };
            let _ = target;
        }
        step += match beside {
            0 => "+ odd text\n",
            1 => "+ <x>wrapped</x>\n",
            2 => "said: so\nuser: <system-reminder>r</system-reminder>\n",
            3 => "sys: note\n",
            _ => "",
        };
        step
    });
    let part = prop_oneof![
        20 => step,
        1 => Just("said: so\nuser: go on\n".to_owned()),
    ];
    let block = (prop::collection::vec(part, 1..4), 1..5_usize)
        .prop_map(|(parts, times)| parts.concat().repeat(times));
    prop::collection::vec(block, 1..5).prop_map(|blocks| format!("user: go\n{}", blocks.concat()))
}

fn seen(body: &[u8], policy: &Policy, memo: &Memo) -> Seen {
    look(body, &view(body).unwrap(), policy, memo, None)
}

pub(super) fn policies() -> [Policy; 2] {
    let mut low = Policy::of(Action::Hint);
    for detector in Detector::ALL {
        *low.rule_mut(detector) = Rule {
            threshold: 2,
            ladder: vec![Action::Hint, Action::Warn, Action::Hint],
        };
    }
    [Policy::of(Action::Hint), low]
}

/// A body is anything, and so is what a view says about it.
fn any_view() -> impl Strategy<Value = (Vec<u8>, RequestView)> {
    let span = || (0..80_u32, 0..80_u32).prop_map(|(start, end)| Span { start, end });
    let kind = prop_oneof![
        Just(BlockKind::ToolUse),
        Just(BlockKind::ToolResult),
        Just(BlockKind::ToolResult),
        Just(BlockKind::Text),
    ];
    let some = || prop::option::of(span());
    let block = (
        kind,
        some(),
        some(),
        some(),
        some(),
        any::<(Option<bool>, bool)>(),
    );
    let block = block.prop_map(
        |(kind, call_id, name, content, plain, (is_error, compact))| Block {
            section: Section::Messages,
            kind,
            form: Form::Object,
            outer: 0,
            inner: 0,
            place: 0,
            span: Span { start: 0, end: 0 },
            marker: None,
            unmarkable: None,
            call_id,
            name,
            is_error,
            content,
            plain,
            marker_member: None,
            compact,
        },
    );
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant), Just(Role::System)];
    let message = (role, 0..30_u32, 0..6_u32).prop_map(|(role, start, length)| Message {
        role,
        span: Span { start: 0, end: 0 },
        blocks: start..start + length,
    });
    let bytes = prop::collection::vec(
        prop_oneof![
            any::<u8>(),
            prop::sample::select(&b"\"\\{}[]:,<>/ u0errorn"[..])
        ],
        0..80,
    );
    let blocks = prop::collection::vec(block, 0..30);
    (bytes, blocks, prop::collection::vec(message, 0..20)).prop_map(|(bytes, blocks, messages)| {
        let view = RequestView {
            blocks,
            messages,
            ..RequestView::default()
        };
        (bytes, view)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn nothing_makes_it_panic((body, view) in any_view()) {
        let memo = Memo::default();
        for policy in policies().iter().chain([&Policy::default()]) {
            let seen = look(&body, &view, policy, &memo, None);
            let again = look(&body, &view, policy, &memo, Some(&seen.history));
            let _ = results(&body, &view, &memo, Some(&again.history));
        }
        let _ = results(&body, &view, &memo, None);
    }

    #[test]
    fn what_was_hinted_once_is_hinted_for_ever(script in script()) {
        let messages = messages(&script);
        for policy in policies() {
            let all = seen(&body(&messages, Spelling::default()), &policy, &Memo::default()).hints;
            let memo = Memo::default();
            for until in 1..messages.len() {
                let part = seen(&body(&messages[..until], Spelling::default()), &policy, &memo).hints;
                let expected: Vec<Hint> = all.iter().filter(|hint| (hint.message as usize) < until).cloned().collect();
                prop_assert_eq!(part, expected);
            }
        }
    }

    #[test]
    fn spelling_and_the_order_of_results_change_nothing(
        script in script(),
        (lists, pretty, messages_first, reversed) in any::<(bool, bool, bool, bool)>(),
    ) {
        let messages = messages(&script);
        let spelling = Spelling { lists, pretty, messages_first, reversed };
        for policy in policies().iter().chain([&Policy::default()]) {
            let usual = seen(&body(&messages, Spelling::default()), policy, &Memo::default());
            let other = seen(&body(&messages, spelling), policy, &Memo::default());
            prop_assert_eq!(usual, other);
        }
    }

    #[test]
    fn without_hints_the_same_is_found(script in script()) {
        let body = body(&messages(&script), Spelling::default());
        for mut policy in policies() {
            // One action, so that both order their findings alike.
            for detector in Detector::ALL {
                policy.rule_mut(detector).ladder = vec![Action::Hint];
            }
            let memo = Memo::default();
            let words = |seen: Seen| -> Vec<_> {
                seen.findings.into_iter().map(|f| (f.detector, f.tools, f.count, f.turns, f.fresh)).collect()
            };
            prop_assert_eq!(
                words(seen(&body, &policy, &memo)),
                words(seen(&body, &policy.without_hints(), &memo))
            );
        }
    }
}
