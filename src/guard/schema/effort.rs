//! How much work a schema can make of an input, told before it is done.
//!
//! A few lines of schema can ask for more steps than there is time: alternatives that refer to
//! alternatives double with each level, of the schema or of the input. So the schema is read as a
//! graph of rules, and the number of rules that can meet one value is counted for each depth of an
//! input, never too low. The same goes for how deep a validator has to recurse.

use std::collections::HashMap;

use serde_json::Value;

/// Deepest input that is checked.
const MAX_DEPTH: usize = 64;
/// Rules times values that are allowed; about a tenth of a second.
const MAX_WORK: u64 = 1_000_000;
/// Rules inside of rules while an input is checked or a schema is compiled; a bound on the stack.
const MAX_NESTED: u64 = 512;
/// Rules of one schema.
const MAX_RULES: usize = 16_384;
/// A pattern is so much dearer than a comparison.
const PATTERN_STEPS: u64 = 64;
/// As many bytes of text count as one value.
const BYTES_PER_VALUE: u64 = 64;

/// Keys whose value maps names to schemas.
const MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
];

/// By the depth of an input.
#[derive(Debug)]
pub(super) struct Effort(Vec<Cost>);

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Rules that can meet one value.
    steps: u64,
    /// Rules that can stand inside each other.
    nested: u64,
}

impl Effort {
    /// Of a schema; `None` where it refers to something outside itself or in a way that is not
    /// followed here, where it has no end, or is too large.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let rules = Rules::read(schema)?;
        if (rules.targets + 1).saturating_mul(nesting(schema)) > MAX_NESTED {
            return None;
        }
        let order = rules.in_order()?;
        let mut costs = Vec::with_capacity(MAX_DEPTH + 1);
        let mut row = vec![Cost::default(); rules.all.len()];
        for _ in 0..=MAX_DEPTH {
            let below = row;
            row = vec![Cost::default(); rules.all.len()];
            for &at in &order {
                row[at] = rules.all[at].cost(&row, &below);
            }
            costs.push(row.first().copied()?);
        }
        Some(Self(costs))
    }

    /// Whether an input can be checked within bounds.
    pub(super) fn allows(&self, input: &Value) -> bool {
        let mut size = Size::default();
        size.add(input, 0);
        let Some(cost) = self.0.get(size.depth) else {
            return false;
        };
        let values = size.values + size.bytes / BYTES_PER_VALUE;
        cost.nested <= MAX_NESTED && cost.steps.saturating_mul(values) <= MAX_WORK
    }
}

#[derive(Default)]
struct Size {
    values: u64,
    bytes: u64,
    depth: usize,
}

impl Size {
    /// The reader of the input has bounded how deep this goes.
    fn add(&mut self, value: &Value, depth: usize) {
        self.values += 1;
        self.depth = self.depth.max(depth);
        match value {
            Value::String(text) => self.bytes += text.len() as u64,
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1)),
            Value::Object(members) => {
                for (key, value) in members {
                    self.bytes += key.len() as u64;
                    self.add(value, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// One schema of those inside a schema.
#[derive(Default)]
struct Rule {
    /// Steps of its own.
    own: u64,
    /// Its parts are gone through once more.
    twice: bool,
    /// Schemas for the same value.
    here: Vec<usize>,
    /// Schemas of which one applies to a value inside.
    one_below: Vec<usize>,
    /// Schemas that all can apply to a value inside.
    all_below: Vec<usize>,
}

impl Rule {
    fn cost(&self, row: &[Cost], below: &[Cost]) -> Cost {
        let steps = |of: &[Cost], at: &Vec<usize>| {
            at.iter()
                .fold(0_u64, |sum, at| sum.saturating_add(of[*at].steps))
        };
        let deepest = |of: &[Cost], at: &Vec<usize>| at.iter().map(|at| of[*at].nested).max();
        let one = self.one_below.iter().map(|at| below[*at].steps).max();
        let sum = self
            .own
            .saturating_add(steps(row, &self.here))
            .saturating_add(one.unwrap_or(0))
            .saturating_add(steps(below, &self.all_below));
        let nested = [
            deepest(row, &self.here),
            deepest(below, &self.one_below),
            deepest(below, &self.all_below),
        ];
        Cost {
            steps: sum.saturating_mul(1 + u64::from(self.twice)),
            nested: nested
                .into_iter()
                .flatten()
                .max()
                .unwrap_or(0)
                .saturating_add(1),
        }
    }
}

/// All schemas inside a schema that can be reached; the whole one is the first.
struct Rules<'a> {
    root: &'a Value,
    all: Vec<Rule>,
    /// By address: what is referred to twice is one rule.
    by_place: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'a Value)>,
    /// References to different places.
    targets: u64,
}

impl<'a> Rules<'a> {
    fn read(root: &'a Value) -> Option<Self> {
        let mut rules = Self {
            root,
            all: Vec::new(),
            by_place: HashMap::new(),
            waiting: Vec::new(),
            targets: 0,
        };
        rules.at(root);
        let mut referred = std::collections::HashSet::new();
        while let Some((at, schema)) = rules.waiting.pop() {
            let rule = rules.rule(schema, at == 0, &mut referred)?;
            rules.all[at] = rule;
            if rules.all.len() > MAX_RULES {
                return None;
            }
        }
        rules.targets = referred.len() as u64;
        Some(rules)
    }

    fn at(&mut self, schema: &'a Value) -> usize {
        let next = self.all.len();
        let at = *self.by_place.entry(schema).or_insert(next);
        if at == next {
            self.all.push(Rule::default());
            self.waiting.push((at, schema));
        }
        at
    }

    fn rule(
        &mut self,
        schema: &'a Value,
        is_root: bool,
        referred: &mut std::collections::HashSet<usize>,
    ) -> Option<Rule> {
        let mut rule = Rule {
            own: 1,
            ..Rule::default()
        };
        let Value::Object(members) = schema else {
            return Some(rule);
        };
        for (key, value) in members {
            rule.own += 1;
            match key.as_str() {
                "$ref" => {
                    let target = self.target(value.as_str()?)?;
                    referred.insert(target);
                    rule.here.push(target);
                }
                // Where these lead depends on how a schema was reached.
                "$dynamicRef" | "$recursiveRef" => return None,
                // From here on references would start somewhere else.
                "$id" | "id" if !is_root && value.is_string() => return None,
                "allOf" | "anyOf" | "oneOf" => self.each(value, &mut rule.here),
                "not" | "if" | "then" | "else" | "contentSchema" => rule.here.push(self.at(value)),
                "dependentSchemas" | "dependencies" => self.each(value, &mut rule.here),
                "properties" | "prefixItems" => {
                    rule.own += length(value);
                    self.each(value, &mut rule.one_below);
                }
                "patternProperties" => {
                    rule.own += length(value).saturating_mul(PATTERN_STEPS);
                    self.each(value, &mut rule.all_below);
                }
                "items" if value.is_array() => self.each(value, &mut rule.one_below),
                "items"
                | "additionalItems"
                | "contains"
                | "additionalProperties"
                | "propertyNames" => {
                    rule.all_below.push(self.at(value));
                }
                "unevaluatedItems" | "unevaluatedProperties" => {
                    rule.twice = true;
                    rule.all_below.push(self.at(value));
                }
                "pattern" => rule.own += PATTERN_STEPS,
                "enum" | "required" | "dependentRequired" => rule.own += length(value),
                _ => {}
            }
        }
        Some(rule)
    }

    /// The schemas in a list, or in a map by name.
    fn each(&mut self, value: &'a Value, into: &mut Vec<usize>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| into.push(self.at(item))),
            Value::Object(members) => members.values().for_each(|item| into.push(self.at(item))),
            _ => {}
        }
    }

    /// Where a reference leads: a JSON pointer into this schema, or nowhere.
    fn target(&mut self, reference: &str) -> Option<usize> {
        let pointer = reference.strip_prefix('#')?;
        if pointer.contains('%') {
            return None;
        }
        let target = self.root.pointer(pointer)?;
        Some(self.at(target))
    }

    /// Such that rules for the same value come before those that hold them; `None` if they go in a
    /// circle.
    fn in_order(&self) -> Option<Vec<usize>> {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Not,
            Open,
            Done,
        }
        let mut seen = vec![Seen::Not; self.all.len()];
        let mut order = Vec::with_capacity(self.all.len());
        let mut path: Vec<(usize, usize)> = Vec::new();
        for start in 0..self.all.len() {
            if seen[start] != Seen::Not {
                continue;
            }
            seen[start] = Seen::Open;
            path.push((start, 0));
            while let Some((at, next)) = path.last_mut() {
                let Some(&part) = self.all[*at].here.get(*next) else {
                    seen[*at] = Seen::Done;
                    order.push(*at);
                    path.pop();
                    continue;
                };
                *next += 1;
                match seen[part] {
                    Seen::Open => return None,
                    Seen::Done => {}
                    Seen::Not => {
                        seen[part] = Seen::Open;
                        path.push((part, 0));
                    }
                }
            }
        }
        Some(order)
    }
}

fn length(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.len() as u64,
        Value::Object(members) => members.len() as u64,
        _ => 0,
    }
}

/// How deep schemas stand inside each other, references aside.
fn nesting(schema: &Value) -> u64 {
    match schema {
        Value::Array(items) => items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => {
            let inner = members.iter().map(|(key, value)| match value {
                Value::Object(named) if MAPS.contains(&key.as_str()) => {
                    named.values().map(nesting).max().unwrap_or(0)
                }
                _ => nesting(value),
            });
            1 + inner.max().unwrap_or(0)
        }
        _ => 0,
    }
}
