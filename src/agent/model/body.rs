//! The body of a request, written member by member: the same members give the same bytes.

use std::fmt::Display;

use super::members::quote;
use crate::agent::machine::Setup;

/// A body that has its first members.
#[derive(Debug)]
pub struct Body(String);

impl Body {
    /// Begins with the model.
    pub fn of(setup: &Setup) -> Self {
        let mut out = String::with_capacity(4096);
        out.push_str("{\"model\":");
        out.push_str(&quote(&setup.model));
        Self(out)
    }

    /// Adds a member; its value is JSON.
    pub fn member(&mut self, name: &str, value: impl Display) {
        self.0.push_str(&format!(",\"{name}\":{value}"));
    }

    /// Adds an array; its elements are JSON.
    pub fn list(&mut self, name: &str, elements: &[String]) {
        let length: usize = elements.iter().map(|element| element.len() + 1).sum();
        // What is behind it is short.
        self.0.reserve(length + name.len() + 128);
        self.0.push_str(&format!(",\"{name}\":["));
        for (at, element) in elements.iter().enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            self.0.push_str(element);
        }
        self.0.push(']');
    }

    /// Adds the tools, as the format declares them. Where there are none, there is no list either.
    pub fn tools(&mut self, declared: &[String]) {
        if !declared.is_empty() {
            self.list("tools", declared);
        }
    }

    /// The body.
    pub fn end(mut self) -> Vec<u8> {
        self.0.push('}');
        self.0.into_bytes()
    }
}
