//! How a program ends, and in what state it leaves its terminal.

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(u32),
    /// By a signal that it did not handle.
    Signal,
    /// Not within the time a test waits.
    Never,
}

/// What a program may leave a terminal in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// It shows the alternate screen.
    pub alternate: bool,
    /// Its cursor is hidden.
    pub hidden_cursor: bool,
    /// It reports the mouse.
    pub mouse: bool,
    /// It marks pasted text.
    pub paste: bool,
}

impl Modes {
    /// A terminal as a shell wants it.
    pub const OF_A_SHELL: Modes = Modes {
        alternate: false,
        hidden_cursor: false,
        mouse: false,
        paste: false,
    };
}
