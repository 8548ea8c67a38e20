//! Which tools a request declares.

use crate::provider::view::{DeclaredTools, RequestView};

pub(in crate::provider) fn declared(_body: &[u8], _view: &RequestView) -> DeclaredTools {
    DeclaredTools {
        tools: Vec::new(),
        open: true,
    }
}
