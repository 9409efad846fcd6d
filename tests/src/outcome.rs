//! How a program ended, and the state in which it left its terminal.

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(u32),
    /// A signal that it did not handle ended it.
    Signal,
    /// It did not end within the time a test waits.
    Never,
}

/// Modes of a terminal that a program may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// It shows the alternate screen.
    pub alternate: bool,
    /// Its cursor is hidden.
    pub hidden_cursor: bool,
    /// It reports the mouse.
    pub mouse: bool,
    /// It marks pasted text (bracketed paste).
    pub paste: bool,
}

impl Modes {
    /// The modes that a shell expects.
    pub const OF_A_SHELL: Modes = Modes {
        alternate: false,
        hidden_cursor: false,
        mouse: false,
        paste: false,
    };
}
