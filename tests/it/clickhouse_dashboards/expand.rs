//! What Grafana and its ClickHouse data source make of a query before it is sent.

use std::collections::BTreeMap;

/// What is chosen in a dashboard: its range, in UTC milliseconds, and its variables.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub from: i64,
    pub to: i64,
    /// Seconds that a point stands for.
    pub interval: u32,
    /// Values of the variables. None: all of them; of a text field: empty.
    pub variables: BTreeMap<&'static str, Vec<String>>,
}

impl Chosen {
    /// A range with all of everything.
    pub fn all(from: i64, to: i64, interval: u32) -> Self {
        Self {
            from,
            to,
            interval,
            variables: BTreeMap::new(),
        }
    }

    pub fn with(mut self, name: &'static str, values: &[&str]) -> Self {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        self.variables.insert(name, values);
        self
    }

    fn values(&self, name: &str) -> &[String] {
        self.variables.get(name).map_or(&[], Vec::as_slice)
    }

    /// The query as it is sent.
    pub fn expand(&self, query: &str) -> String {
        let mut sql = self.conditions(query);
        sql = self.formatted(&sql);
        let seconds = |ms: i64| format!("toDateTime({})", ms.div_euclid(1000));
        let millis = |ms: i64| format!("fromUnixTimestamp64Milli({ms})");
        let within = |column: &str, time: &dyn Fn(i64) -> String| {
            let (from, to) = (time(self.from), time(self.to));
            format!("{column} >= {from} AND {column} <= {to}")
        };
        sql = called(&sql, "timeFilter_ms", |column| within(column, &millis));
        sql = called(&sql, "timeFilter", |column| within(column, &seconds));
        sql = called(&sql, "timeInterval", |column| {
            let interval = self.interval;
            format!("toStartOfInterval(toDateTime({column}), INTERVAL {interval} second)")
        });
        // The longer names first, as some begin with others.
        for (name, value) in [
            ("$__fromTime_ms", millis(self.from)),
            ("$__toTime_ms", millis(self.to)),
            ("$__fromTime", seconds(self.from)),
            ("$__toTime", seconds(self.to)),
            ("$__interval_s", self.interval.to_string()),
        ] {
            sql = sql.replace(name, &value);
        }
        assert!(!sql.contains('$'), "not expanded: {sql}");
        sql
    }

    /// `$__conditionalAll(condition, $variable)`: the condition, or what is always true.
    fn conditions(&self, query: &str) -> String {
        const MACRO: &str = "$__conditionalAll";
        let mut sql = query.to_owned();
        while let Some(at) = sql.rfind(MACRO) {
            let (arguments, end) = arguments(&sql, at + MACRO.len());
            let [condition, variable] = arguments.as_slice() else {
                panic!("two arguments in {query}");
            };
            let name = variable.trim().strip_prefix('$').unwrap();
            let phrase = match self.values(name) {
                [] => "1=1",
                _ => condition,
            };
            sql = format!("{}{phrase}{}", &sql[..at], &sql[end..]);
        }
        sql
    }

    /// `${variable:sqlstring}`: the values in quotes, with quotes inside of them escaped.
    fn formatted(&self, sql: &str) -> String {
        let mut text = String::new();
        let mut rest = sql;
        while let Some((before, after)) = rest.split_once("${") {
            let (place, behind) = after.split_once('}').unwrap();
            let name = place.strip_suffix(":sqlstring");
            let name = name.unwrap_or_else(|| panic!("{place} is not quoted"));
            let quoted = |value: &String| {
                let escaped = value.replace('\'', "''").replace('"', "\\\"");
                format!("'{escaped}'")
            };
            let values: Vec<_> = match self.values(name) {
                [] => vec!["''".to_owned()],
                values => values.iter().map(quoted).collect(),
            };
            text.push_str(before);
            text.push_str(&values.join(","));
            rest = behind;
        }
        text + rest
    }
}

/// Replaces `$__name(argument)`.
fn called(sql: &str, name: &str, with: impl Fn(&str) -> String) -> String {
    let opened = format!("$__{name}(");
    let mut text = String::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(&opened) {
        // The data source ends an argument at the first bracket.
        let (argument, behind) = after.split_once(')').unwrap();
        assert!(!argument.contains('('), "{argument}");
        text.push_str(before);
        text.push_str(&with(argument));
        rest = behind;
    }
    text + rest
}

/// The arguments in the brackets that open at `at`, and where those end.
fn arguments(sql: &str, at: usize) -> (Vec<String>, usize) {
    let (mut depth, mut last) = (0, at + 1);
    let mut all = Vec::new();
    for (place, c) in sql.char_indices().skip_while(|(place, _)| *place < at) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 1 => {
                all.push(sql[last..place].to_owned());
                last = place + 1;
            }
            _ => {}
        }
        if depth == 0 {
            all.push(sql[last..place].to_owned());
            return (all, place + 1);
        }
    }
    panic!("brackets do not close in {sql}");
}

#[test]
fn macros_and_variables_become_what_the_data_source_makes_of_them() {
    let chosen = Chosen::all(1_500, 3_600_999, 60).with("app", &["it's", "b"]);
    for (query, sql) in [
        (
            "$__timeFilter_ms(at) AND $__conditionalAll(f(a, 1) IN (${app:sqlstring}), $app)",
            "at >= fromUnixTimestamp64Milli(1500) AND at <= fromUnixTimestamp64Milli(3600999) \
            AND f(a, 1) IN ('it''s','b')",
        ),
        (
            "$__conditionalAll(m IN (${model:sqlstring}), $model)",
            "1=1",
        ),
        (
            "$__timeInterval(at), $__interval_s, $__toTime, ${run:sqlstring}",
            "toStartOfInterval(toDateTime(at), INTERVAL 60 second), 60, toDateTime(3600), ''",
        ),
    ] {
        assert_eq!(chosen.expand(query), sql);
    }
}
