//! Where a text that was not found may have been meant.

/// Lines of a file that are compared.
const MAX_LINES: usize = 20_000;
/// How much of a line is compared and shown, in bytes.
const MAX_LINE: usize = 200;
/// Places that are told.
const PLACES: usize = 3;
/// From here on, of 1, a line is like another.
const LIKE: f64 = 0.5;

/// What to tell about a text that does not stand in a file.
pub fn advice(text: &str, wanted: &str) -> String {
    if text.contains("\r\n") && !wanted.contains('\r') && wanted.contains('\n') {
        return "the lines of this file end with \\r\\n; write them so, or name one line only"
            .to_owned();
    }
    if let Some(line) = but_for_space(text, wanted) {
        return format!(
            "from line {line} on it stands there with other white space; read_file shows it as it is"
        );
    }
    let places = nearest(text, wanted);
    if places.is_empty() {
        return "no line is like it; read the file again, it may have changed".to_owned();
    }
    let places: Vec<String> = places
        .iter()
        .map(|(number, line)| format!("line {number}: {line}"))
        .collect();
    format!("nearest lines:\n{}", places.join("\n"))
}

/// The line from which on `wanted` stands there, but for white space at the ends of lines.
fn but_for_space(text: &str, wanted: &str) -> Option<usize> {
    let wanted: Vec<&str> = wanted.trim().lines().map(str::trim).collect();
    let lines: Vec<&str> = text.lines().take(MAX_LINES).map(str::trim).collect();
    let first = wanted.first().filter(|first| !first.is_empty())?;
    let mut starts = (0..lines.len()).filter(|at| lines[*at] == *first);
    starts
        .find(|at| lines[*at..].starts_with(&wanted))
        .map(|at| at + 1)
}

/// The lines that are most like the first one of `wanted` with words in it, in their order.
fn nearest<'a>(text: &'a str, wanted: &str) -> Vec<(usize, &'a str)> {
    let Some(wanted) = wanted.lines().map(str::trim).find(|line| !line.is_empty()) else {
        return Vec::new();
    };
    let wanted = crate::text::prefix(wanted, MAX_LINE);
    let mut found: Vec<(f64, usize, &str)> = text
        .lines()
        .take(MAX_LINES)
        .enumerate()
        .map(|(at, line)| (at + 1, crate::text::prefix(line.trim(), MAX_LINE)))
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| (strsim::sorensen_dice(line, wanted), number, line))
        .filter(|(like, ..)| *like >= LIKE)
        .collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    found.truncate(PLACES);
    found.sort_by_key(|(_, number, _)| *number);
    found
        .into_iter()
        .map(|(_, number, line)| (number, line))
        .collect()
}
