//! Plain tables: aligned columns, no lines, safe to print.

/// Longest cell; a name beyond it is cut in the middle.
const MAX_CELL: usize = 48;

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Align {
    Left,
    Right,
}

/// Rows under a head.
#[derive(Debug)]
pub(in crate::cli) struct Table {
    head: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(in crate::cli) fn new(head: &[(&'static str, Align)]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells beyond the head are not shown.
    pub(in crate::cli) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text, every line ended. A column without any content is left out.
    pub(in crate::cli) fn render(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| clean(cell)).collect())
            .collect();
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let shown: Vec<(usize, usize)> = (0..self.head.len())
            .filter_map(|column| {
                let widest = rows.iter().map(|row| width(&cell(row, column))).max()?;
                (widest > 0).then(|| (column, widest.max(width(self.head[column].0))))
            })
            .collect();
        let head = self
            .head
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&rows) {
            let mut line = String::new();
            for (column, width_of) in &shown {
                let cell = cell(row, *column);
                let pad = " ".repeat(width_of - width(&cell));
                match self.head[*column].1 {
                    Align::Left => line.extend([cell, pad]),
                    Align::Right => line.extend([pad, cell]),
                }
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// A value from the outside as it may be printed: nothing that steers a terminal, nothing endless.
pub(in crate::cli) fn clean(text: &str) -> String {
    let safe: Vec<char> = text
        .chars()
        .map(|c| match c {
            // Controls, and the marks that turn the direction of writing.
            c if c.is_control() => '\u{fffd}',
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                '\u{fffd}'
            }
            c => c,
        })
        .collect();
    if safe.len() <= MAX_CELL {
        return safe.into_iter().collect();
    }
    let (front, back) = (MAX_CELL / 2, MAX_CELL - MAX_CELL / 2 - 1);
    let tail = &safe[safe.len() - back..];
    safe[..front]
        .iter()
        .chain(&['\u{2026}'])
        .chain(tail)
        .collect()
}

/// A number of tokens in at most five characters: `950`, `12.3k`, `1.2M`.
pub(in crate::cli) fn count(n: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    for (unit, name) in UNITS {
        // From where it rounds up to one of this unit.
        if n >= unit - unit / 2_000 {
            let tenths = (u128::from(n) * 10 + u128::from(unit) / 2) / u128::from(unit);
            return if tenths < 1_000 {
                format!("{}.{}{name}", tenths / 10, tenths % 10)
            } else {
                format!(
                    "{}{name}",
                    (u128::from(n) + u128::from(unit) / 2) / u128::from(unit)
                )
            };
        }
    }
    n.to_string()
}

/// A duration in the two units that matter: `850ms`, `12.3s`, `4m05s`, `2h07m`, `3d04h`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = (ms + 500) / 1_000;
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..59_950 => {
            let tenths = (ms + 50) / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        _ if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A ratio in per cent.
pub(in crate::cli) fn percent(ratio: f64) -> String {
    format!("{:.1}%", ratio * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut table = Table::new(&[
            ("NAME", Align::Left),
            ("NONE", Align::Left),
            ("N", Align::Right),
        ]);
        table.row(vec!["a".into(), String::new(), "1".into()]);
        table.row(vec!["long name".into(), String::new(), "1,000".into()]);
        assert_eq!(
            table.render(),
            "NAME           N\n\
             a              1\n\
             long name  1,000\n"
        );
    }

    #[test]
    fn what_steers_a_terminal_is_not_printed() {
        let text = clean("a\u{1b}[2Jb\r\nc\u{202e}d\u{9b}");
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}");
        let long = clean(&"\u{e4}".repeat(500));
        assert_eq!(long.chars().count(), MAX_CELL);
    }

    #[test]
    fn numbers_for_people() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (12_345, "12.3k"),
            (99_949, "99.9k"),
            (99_950, "100k"),
            (999_400, "999k"),
            (999_500, "1.0M"),
            (1_250_000, "1.3M"),
            (u64::MAX, "18446744T"),
        ] {
            assert_eq!(count(n), text, "{n}");
        }
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (59_949, "59.9s"),
            (59_950, "1m00s"),
            (245_000, "4m05s"),
            (3_599_600, "1h00m"),
            (7_620_000, "2h07m"),
            (86_400_000 * 3 + 4 * 3_600_000, "3d04h"),
        ] {
            assert_eq!(duration(ms), text, "{ms}");
        }
        assert_eq!(percent(0.8594), "85.9%");
    }
}
