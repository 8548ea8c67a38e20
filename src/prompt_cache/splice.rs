//! Edits of a body as insertions into the original bytes.
