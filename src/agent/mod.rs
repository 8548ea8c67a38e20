//! The reference loop client. Not built yet; the demo's scripted runs live in `sim`.
