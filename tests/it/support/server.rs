//! A server that a test started itself, to be killed, frozen and thawed.

use std::process::{Child, Command};

/// A child process, which is killed when this is dropped.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Makes it hang: the system still takes connections for it, and nothing is answered.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.0.id();
        let done = Command::new("sh")
            .args(["-c", &format!("kill -{name} {id}")])
            .status();
        assert!(done.expect("a shell").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
