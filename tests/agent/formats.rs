//! The wire formats and the endpoint.

mod broken;
mod endpoint;
mod requests;
mod sample;
mod stops;
mod streams;
mod support;
