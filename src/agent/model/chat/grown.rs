//! A member of a message that comes in pieces.

use super::super::members::{Members, said};
use crate::agent::text::quote;

/// Members of an element whose pieces are joined; of all others the last value counts.
const JOINED: &[&str] = &["text", "summary", "thinking", "data"];

/// What has come of a member.
#[derive(Debug)]
pub enum Grown {
    /// As it came.
    Json(String),
    /// A text, joined.
    Text(String),
    /// Elements of an array; those with one `index` and `type` are pieces of one.
    List(Vec<Element>),
}

/// An element of an array.
#[derive(Debug)]
pub struct Element {
    members: Members,
    joined: Vec<(&'static str, String)>,
}

impl Grown {
    /// A member that begins with this, or that came `whole` and stays as it is.
    pub fn new(json: &str, whole: bool) -> Self {
        if whole {
            return Self::Json(json.to_owned());
        }
        let mut grown = match json.as_bytes().first() {
            Some(b'"') => Self::Text(String::new()),
            Some(b'[') => Self::List(Vec::new()),
            _ => return Self::Json(json.to_owned()),
        };
        grown.add(json);
        grown
    }

    /// Takes the next piece. What does not fit takes the place of what there was.
    pub fn add(&mut self, json: &str) {
        match self {
            Self::Text(text) => match said(json) {
                Some(piece) => text.push_str(&piece),
                None => text.push_str(&parts(json)),
            },
            Self::List(elements) => {
                for piece in serde_json::from_str::<Vec<Members>>(json).unwrap_or_default() {
                    let known = elements
                        .iter_mut()
                        .rfind(|element| element.continues(&piece));
                    match known {
                        Some(element) => element.add(&piece),
                        None => elements.push(Element::new(piece)),
                    }
                }
            }
            Self::Json(_) => *self = Self::Json(json.to_owned()),
        }
    }

    /// The text of it: the string, or the texts of its parts.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Json(json) => said(json).map_or_else(|| parts(json), Into::into),
            Self::List(_) => String::new(),
        }
    }

    /// As JSON.
    pub fn write(&self) -> String {
        match self {
            Self::Json(json) => json.clone(),
            Self::Text(text) => quote(text),
            Self::List(elements) => {
                let elements: Vec<String> = elements.iter().map(Element::write).collect();
                format!("[{}]", elements.join(","))
            }
        }
    }
}

impl Element {
    fn new(members: Members) -> Self {
        let text = |name: &&'static str| Some((*name, members.text(name)?));
        Self {
            joined: JOINED.iter().filter_map(text).collect(),
            members,
        }
    }

    fn continues(&self, piece: &Members) -> bool {
        let same = |name: &str| self.members.get(name) == piece.get(name);
        piece.get("index").is_some() && same("index") && same("type")
    }

    fn add(&mut self, piece: &Members) {
        for (name, json) in piece.iter().filter(|(_, json)| *json != "null") {
            let joined = JOINED.iter().find(|joined| **joined == name);
            let Some((joined, text)) = joined.zip(said(json)) else {
                self.members.set(name, json.to_owned());
                continue;
            };
            match self.joined.iter_mut().find(|(known, _)| known == joined) {
                Some((_, all)) => all.push_str(&text),
                None => self.joined.push((joined, text.into_owned())),
            }
        }
    }

    fn write(&self) -> String {
        let mut members = self.members.clone();
        for (name, text) in &self.joined {
            members.set(name, quote(text));
        }
        members.write()
    }
}

/// The texts of content in parts.
fn parts(json: &str) -> String {
    let parts = serde_json::from_str::<Vec<Members>>(json).unwrap_or_default();
    let is_text = |part: &&Members| part.text("type").as_deref() == Some("text");
    let texts = parts.iter().filter(is_text);
    texts.filter_map(|part| part.text("text")).collect()
}
