//! The page. Not built yet.
