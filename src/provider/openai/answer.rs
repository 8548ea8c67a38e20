//! An answer that prefixgate gives in the model's place.

pub(in crate::provider) fn completion(_id: &str, _model: &str, _text: &str, _at_s: i64) -> Vec<u8> {
    Vec::new()
}

pub(in crate::provider) fn completion_stream(
    _id: &str,
    _model: &str,
    _text: &str,
    _at_s: i64,
) -> Vec<u8> {
    Vec::new()
}

pub(in crate::provider) fn response(_id: &str, _model: &str, _text: &str, _at_s: i64) -> Vec<u8> {
    Vec::new()
}

pub(in crate::provider) fn response_stream(
    _id: &str,
    _model: &str,
    _text: &str,
    _at_s: i64,
) -> Vec<u8> {
    Vec::new()
}
