//! Where to place breakpoints.
