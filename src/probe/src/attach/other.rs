//! Processors for which nobody has written it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Route;

/// A process that can be attached to: none.
#[derive(Debug)]
pub enum Attach {}

/// What was done.
#[derive(Debug)]
pub struct Injected {
    /// How the text got to run.
    pub route: Route,
    /// How long the main thread stood still.
    pub stopped: Duration,
    /// This end of the socket pair.
    pub socket: OwnedFd,
}

impl Attach {
    /// Refuses.
    ///
    /// # Errors
    /// Always: a sentence.
    pub fn examine(_pid: u32) -> Result<Attach, String> {
        Err("attaching works on x86-64 only: start the program with `gpumem-tui run -- COMMAND`".to_owned())
    }

    /// Returns its number in its own pid namespace.
    pub fn own_pid(&self) -> u32 {
        match *self {}
    }

    /// Returns the file that has its interpreter.
    pub fn python(&self) -> &str {
        match *self {}
    }

    /// Returns the version of its interpreter.
    pub fn version(&self) -> Option<(u8, u8)> {
        match *self {}
    }

    /// Checks whether it has loaded PyTorch with CUDA.
    pub fn uses_torch(&self) -> bool {
        match *self {}
    }

    /// Has the process execute a text.
    ///
    /// # Errors
    /// None: there is no such process.
    pub fn inject(&self, _text: [&str; 2]) -> Result<Injected, String> {
        match *self {}
    }

    /// Takes back what the text left.
    ///
    /// # Errors
    /// None: there is no such process.
    pub fn take_back(&self, _injected: &Injected) -> Result<(), String> {
        match *self {}
    }
}
