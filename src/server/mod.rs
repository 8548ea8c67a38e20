//! Listeners, drain and the admin surface.
