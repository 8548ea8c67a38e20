//! Integration tests: one binary, real sockets, the real program.

mod support;
