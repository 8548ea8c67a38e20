//! What a model is told about a loop: fixed sentences, so that the same history gives the same text.

use super::Detector;

/// Longest name of a tool in a text or a finding, in characters.
pub(super) const MAX_NAME: usize = 64;

/// The text for a loop of these tools.
pub(super) fn text(detector: Detector, tools: &[String], count: u32) -> String {
    let quoted: Vec<String> = tools.iter().map(|tool| format!("`{tool}`")).collect();
    let tool = quoted.first().map_or("a tool", String::as_str);
    match detector {
        Detector::SameCall => format!(
            "[prefixgate] {tool} has now failed {count} times with the same arguments and the same \
             error. Repeating it will not help: read the error again and change what causes it, \
             or use another way. If there is none, stop and say what is missing."
        ),
        Detector::SameError => format!(
            "[prefixgate] {tool} has now failed {count} times with the same error, although its \
             arguments were varied. Varying them further will not help: look at what the error is \
             about before the next attempt, or use another way. If there is none, stop and say \
             what is missing."
        ),
        Detector::Cycle => format!(
            "[prefixgate] The calls {} have now been repeated in turn {count} times, each time with \
             the same results. Another round will not give anything new: decide from what is \
             already known, or do something else. If nothing is left to do, stop and say so.",
            quoted.join(", ")
        ),
        Detector::NoProgress => format!(
            "[prefixgate] {tool} has now given the same result {count} times for the same arguments, \
             and nothing new was learnt in between. Calling it again will not help: go on from this \
             result, or wait for longer before asking again. If nothing is left to do, stop and say \
             so."
        ),
    }
}

/// A tool's name as it may stand in a text: cut, and without what could be taken for markup.
pub(super) fn name(raw: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    let kept = raw.chars().take(MAX_NAME);
    let name: String = kept.map(|c| if plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "tool".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_tools_and_count_and_nothing_else_of_the_history() {
        for detector in Detector::ALL {
            let text = text(detector, &["read_file".into(), "search".into()], 7);
            assert!(text.starts_with("[prefixgate] "), "{text}");
            assert!(text.contains("`read_file`") && text.contains('7'), "{text}");
            assert_eq!(text.contains("`search`"), detector == Detector::Cycle);
            assert!(!text.contains("  "), "{text}");
        }
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(name("mcp__files.read:v1/x"), "mcp__files.read:v1/x");
        assert_eq!(name("a`b\n<c>"), "a_b__c_");
        assert_eq!(name(""), "tool");
        assert_eq!(name(&"é".repeat(100)), "é".repeat(64));
    }
}
