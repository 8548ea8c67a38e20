use crate::provider::json::Fault;
use crate::provider::view::{Block, RequestView};

pub(in crate::provider) fn view(_body: &[u8]) -> Result<RequestView, Fault> {
    Err("not_read_yet")
}

pub(in crate::provider) fn path(block: &Block) -> String {
    format!("[{}]", block.place)
}
