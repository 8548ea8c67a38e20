//! Added breakpoints as JSON: a column of every store.

use serde::{Deserialize, Serialize};

use crate::provider::view::Ttl;
use crate::trace::Placed;

/// [`Placed`] as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct PlacedJson<'a> {
    path: std::borrow::Cow<'a, str>,
    ttl: TtlJson,
    offset: u32,
}

#[derive(Serialize, Deserialize)]
enum TtlJson {
    #[serde(rename = "5m")]
    M5,
    #[serde(rename = "30m")]
    M30,
    #[serde(rename = "1h")]
    H1,
    #[serde(rename = "12h")]
    H12,
}

impl<'a> From<&'a Placed> for PlacedJson<'a> {
    fn from(placed: &'a Placed) -> Self {
        Self {
            path: placed.path.as_str().into(),
            ttl: match placed.ttl {
                Ttl::M5 => TtlJson::M5,
                Ttl::M30 => TtlJson::M30,
                Ttl::H1 => TtlJson::H1,
                Ttl::H12 => TtlJson::H12,
            },
            offset: placed.offset,
        }
    }
}

impl From<PlacedJson<'_>> for Placed {
    fn from(json: PlacedJson<'_>) -> Self {
        Self {
            path: json.path.into_owned(),
            ttl: match json.ttl {
                TtlJson::M5 => Ttl::M5,
                TtlJson::M30 => Ttl::M30,
                TtlJson::H1 => Ttl::H1,
                TtlJson::H12 => Ttl::H12,
            },
            offset: json.offset,
        }
    }
}

/// As text.
pub(super) fn text(placed: &[Placed]) -> Result<String, serde_json::Error> {
    let items: Vec<_> = placed.iter().map(PlacedJson::from).collect();
    serde_json::to_string(&items)
}

/// From text.
pub(super) fn read(text: &str) -> Result<Vec<Placed>, serde_json::Error> {
    let items: Vec<PlacedJson<'_>> = serde_json::from_str(text)?;
    Ok(items.into_iter().map(Placed::from).collect())
}
