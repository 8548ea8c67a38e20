//! The Prometheus exposition, behind one module so that the library can be exchanged.

use prometheus::TextEncoder;

use crate::trace::metrics::Metrics;

/// Content type of [`render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics as text.
///
/// # Errors
/// When the library cannot encode them: a fault of this program.
pub fn render(metrics: &Metrics) -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(&metrics.registry().gather())
}
