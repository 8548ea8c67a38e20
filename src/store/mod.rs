//! Where records go, and the questions asked of them.
