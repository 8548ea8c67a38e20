//! Records as rows of the server's tables, both directions.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::store::StoreError;

mod call;
mod event;
mod turn;

pub(super) use call::{CallRow, version};
pub(super) use event::EventRow;
pub(super) use turn::TurnRow;

/// Bytes in a column of type String.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob(pub(super) Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }

            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Blob, E> {
                Ok(Blob(bytes))
            }
        }
        from.deserialize_byte_buf(Bytes)
    }
}

/// The value of a word.
pub(super) fn word<T>(
    column: &'static str,
    word: &str,
    known: impl Fn(&str) -> Option<T>,
) -> Result<T, StoreError> {
    known(word).ok_or_else(|| StoreError::Value {
        column,
        value: word.to_owned(),
    })
}

/// The value of a word that may be missing.
pub(super) fn word_or_none<T>(
    column: &'static str,
    told: Option<&str>,
    known: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    told.map(|told| word(column, told, known)).transpose()
}
