//! Answers: what the scripts return.

use redis::Value;

use super::call::CAPS;
use crate::guard::caps::{Ask, Cap, Crossing, Denied, Left, Limits, Scope};

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Granted {
        left: Vec<(Scope, Left)>,
        crossings: Vec<Crossing>,
    },
    Denied {
        denied: Box<Denied>,
        crossings: Vec<Crossing>,
    },
}

pub(super) fn short() -> String {
    "an answer of Redis is too short".into()
}

/// An answer that is one word.
pub(super) fn text(value: Value) -> Result<String, String> {
    redis::from_redis_value(value).map_err(|e| format!("an answer of Redis is not text: {e}"))
}

/// The parts of an answer, in order.
struct Parts(std::vec::IntoIter<String>);

impl Parts {
    fn new(value: Value) -> Result<Self, String> {
        redis::from_redis_value::<Vec<String>>(value)
            .map(|parts| Self(parts.into_iter()))
            .map_err(|e| format!("not an answer of the script: {e}"))
    }

    fn text(&mut self) -> Result<String, String> {
        self.0.next().ok_or_else(short)
    }

    /// A sum may be larger than an amount can say.
    fn sum(&mut self) -> Result<u128, String> {
        let text = self.text()?;
        text.parse()
            .map_err(|_| "a number in an answer of Redis is none".into())
    }

    fn count(&mut self) -> Result<u64, String> {
        Ok(u64::try_from(self.sum()?).unwrap_or(u64::MAX))
    }

    fn index(&mut self) -> Result<usize, String> {
        let n = usize::try_from(self.count()?).unwrap_or(usize::MAX);
        n.checked_sub(1).ok_or_else(short)
    }

    fn scope(&mut self, ask: &Ask) -> Result<Scope, String> {
        let (scope, _) = ask.scopes.get(self.index()?).ok_or_else(short)?;
        Ok(scope.clone())
    }

    fn cap(&mut self) -> Result<Cap, String> {
        CAPS.get(self.index()?).copied().ok_or_else(short)
    }

    fn crossings(&mut self, ask: &Ask) -> Result<Vec<Crossing>, String> {
        let mut crossings = Vec::new();
        for _ in 0..self.count()? {
            crossings.push(Crossing {
                scope: self.scope(ask)?,
                cap: self.cap()?,
                level: u32::try_from(self.count()?).unwrap_or(u32::MAX),
                value: self.count()?,
                limit: self.count()?,
            });
        }
        Ok(crossings)
    }

    fn denied(&mut self, ask: &Ask) -> Result<Denied, String> {
        Ok(Denied {
            scope: self.scope(ask)?,
            cap: self.cap()?,
            spent: self.count()?,
            held: self.count()?,
            asked: self.count()?,
            limit: self.count()?,
            after_ms: match self.text()?.as_str() {
                "" => None,
                ms => ms.parse().ok(),
            },
        })
    }

    fn left(&mut self, limits: &Limits) -> Result<Left, String> {
        let mut taken = [0_u128; 4];
        for _ in 0..2 {
            for sum in &mut taken {
                *sum = sum.saturating_add(self.sum()?);
            }
        }
        let [turns, input, output, pico] = taken;
        let elapsed = self.count()?;
        let less = |limit: Option<u64>, taken: u128| {
            let left = u128::from(limit?).saturating_sub(taken);
            u64::try_from(left).ok()
        };
        let tokens = [
            less(limits.input_tokens, input),
            less(limits.output_tokens, output),
            less(limits.tokens, input.saturating_add(output)),
        ];
        Ok(Left {
            turns: less(limits.turns, turns),
            tokens: tokens.into_iter().flatten().min(),
            usd_pico: less(limits.usd_pico, pico),
            wall_ms: limits.wall_ms.map(|limit| limit.saturating_sub(elapsed)),
        })
    }
}

/// What Redis says to a request.
pub(super) fn read_answer(ask: &Ask, value: Value) -> Result<Answer, String> {
    let mut parts = Parts::new(value)?;
    let word = parts.text()?;
    let crossings = parts.crossings(ask)?;
    if word == "denied" {
        let denied = Box::new(parts.denied(ask)?);
        return Ok(Answer::Denied { denied, crossings });
    }
    let mut left = Vec::new();
    for (scope, limits) in &ask.scopes {
        let of = parts.left(limits)?;
        if !limits.is_empty() {
            left.push((scope.clone(), of));
        }
    }
    Ok(Answer::Granted { left, crossings })
}

/// The levels that were reached by settling.
pub(super) fn read_settled(ask: &Ask, value: Value) -> Result<Vec<Crossing>, String> {
    let mut parts = Parts::new(value)?;
    parts.text()?;
    parts.crossings(ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::caps::Amounts;

    fn ask() -> Ask {
        let limits = Limits {
            usd_pico: Some(100),
            ..Limits::default()
        };
        Ask {
            scopes: vec![(Scope::Run("r".into()), limits)],
            most: Amounts::default(),
            agent: "a".into(),
            depth: 0,
            now_ms: 0,
        }
    }

    fn value(parts: &[&str]) -> Value {
        let part = |part: &&str| Value::BulkString(part.as_bytes().to_vec());
        Value::Array(parts.iter().map(part).collect())
    }

    #[test]
    fn sums_beyond_an_amount_are_read() {
        let most = "36893488147419103230";
        let parts = ["granted", "0", "0", "0", "0", most, "0", "0", "0", "1", "7"];
        let Ok(Answer::Granted { left, .. }) = read_answer(&ask(), value(&parts)) else {
            panic!("it is an answer");
        };
        assert_eq!(left[0].1.usd_pico, Some(0));
        let parts = ["denied", "0", "1", "2", most, "0", "1", "100", ""];
        let Ok(Answer::Denied { denied, .. }) = read_answer(&ask(), value(&parts)) else {
            panic!("it is an answer");
        };
        assert_eq!((denied.cap, denied.spent), (Cap::Usd, u64::MAX));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for parts in [
            &[][..],
            &["granted"],
            &["granted", "0"],
            &["granted", "many"],
            &["denied", "0", "2", "2", "0", "0", "1", "100", ""],
            &["denied", "0", "0", "2", "0", "0", "1", "100", ""],
            &["denied", "0", "1", "11", "0", "0", "1", "100", ""],
            &["denied", "1", "1", "2", "50"],
        ] {
            assert!(read_answer(&ask(), value(parts)).is_err(), "{parts:?}");
        }
        assert!(read_settled(&ask(), Value::Nil).is_err());
    }
}
