//! Journals: killed anywhere, resumed, forked.
