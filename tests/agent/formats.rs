//! Wire formats: requests, and answers however they come in.
