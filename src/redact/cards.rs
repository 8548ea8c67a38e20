//! Card numbers: 13 to 19 digits in one piece or in the groups in which they are printed, whose
//! check digit is right. One number in ten would pass that check, so the first digit has to be one
//! under which cards are issued: times in milliseconds and most counters begin with another.

use std::ops::Range;

const DIGITS: Range<usize> = 13..20;
/// Digits of every group but the last.
const GROUP_DIGITS: usize = 4;

/// All of them, in order.
pub(super) fn find(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if !text[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        groups.clear();
        loop {
            let start = at;
            at += text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            groups.push(start..at);
            let joined = matches!(text.get(at), Some(b' ' | b'-'))
                && text.get(at + 1).is_some_and(u8::is_ascii_digit);
            if !joined {
                break;
            }
            at += 1;
        }
        in_groups(text, &groups, &mut found);
    }
    found
}

fn in_groups(text: &[u8], groups: &[Range<usize>], found: &mut Vec<Range<usize>>) {
    let mut first = 0;
    while first < groups.len() {
        match longest(text, &groups[first..]).filter(|_| !is_fraction(text, groups[first].start)) {
            Some(count) => {
                found.push(groups[first].start..groups[first + count - 1].end);
                first += count;
            }
            None => first += 1,
        }
    }
}

/// How many groups from the first one on are a card number.
fn longest(text: &[u8], groups: &[Range<usize>]) -> Option<usize> {
    if !(b'2'..=b'6').contains(text.get(groups.first()?.start)?) {
        return None;
    }
    let mut digits = Vec::with_capacity(DIGITS.end);
    let mut best = None;
    for (index, group) in groups.iter().enumerate() {
        if digits.len() + group.len() >= DIGITS.end {
            break;
        }
        digits.extend(text[group.clone()].iter().map(|byte| byte - b'0'));
        if DIGITS.contains(&digits.len()) && checks(&digits) {
            best = Some(index + 1);
        }
        if group.len() < GROUP_DIGITS {
            break;
        }
    }
    best
}

/// Behind a decimal point stand digits of any number.
fn is_fraction(text: &[u8], start: usize) -> bool {
    let before = |by: usize| start.checked_sub(by).and_then(|at| text.get(at));
    before(1) == Some(&b'.') && before(2).is_some_and(u8::is_ascii_digit)
}

/// The check digit is right (Luhn).
fn checks(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, u32::from(*digit)) {
            (0, digit) => digit,
            (_, digit @ 0..=4) => digit * 2,
            (_, digit) => digit * 2 - 9,
        })
        .sum();
    sum.is_multiple_of(10)
}
