//! What a server answers, as text.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// The text of a result. What is no text is told as a note; a structured result is told where there
/// is nothing else, since servers repeat it as text.
pub fn text(result: CallToolResult) -> String {
    let parts: Vec<String> = result.content.into_iter().map(part).collect();
    match (parts.is_empty(), result.structured_content) {
        (true, Some(value)) => value.to_string(),
        _ => parts.join("\n"),
    }
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[resource {uri}]\n{text}")
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                left_out("resource", &uri, blob.len())
            }
            _ => "[resource of an unknown kind left out]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[link to {}: {}]", link.name, link.uri),
        _ => "[content of an unknown kind left out]".to_owned(),
    }
}

/// A note about data in base64.
fn left_out(what: &str, kind: &str, base64: usize) -> String {
    format!("[{what} left out: {kind}, about {} bytes]", base64 / 4 * 3)
}
