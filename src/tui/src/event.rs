//! What can happen, and what the main loop then has to do. Plain values on both sides of [`crate::update`].

use crate::model::{Demo, DemoOutcome, DemoStep, Hits, Sampled};

pub(crate) use crate::model::Key;

/// What the mouse did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MouseAction {
    /// The left button went down.
    Click,
    /// The left button is held and the pointer moved.
    Drag,
    /// The wheel turned away from the user.
    WheelUp,
    /// The wheel turned towards the user.
    WheelDown,
}

/// The mouse on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mouse {
    /// What it did.
    pub action: MouseAction,
    /// Column from 0.
    pub x: u16,
    /// Line from 0.
    pub y: u16,
}

/// What a demo's child said or did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DemoEvent {
    /// It runs.
    Spawned {
        /// Its process id.
        pid: u32,
    },
    /// Its first line; carries only what that line tells.
    Start(Box<Demo>),
    /// A step is done; with what the user may choose now.
    Step(Box<DemoStep>, Vec<crate::model::Choice>),
    /// It cannot publish what it does; why.
    Unpublished(String),
    /// Something it had to say.
    Notice(String),
    /// It ran to its end.
    Result {
        /// It showed what it promises.
        ok: bool,
        /// How it ended.
        outcome: DemoOutcome,
    },
    /// It could not go on, or could not be started, or said something we do not understand.
    Failed(String),
    /// It could not go on, as it says itself.
    GaveUp {
        /// The reason, as it told it.
        text: String,
        /// The exit code that it ends with.
        exit_code: u8,
    },
    /// Its process is gone; how, in words.
    Exited(String),
}

/// Why the dashboard has to end, apart from the user's wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    /// A signal by number.
    Signal(u8),
    /// The terminal is gone (end of input, hang-up).
    TerminalGone,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(Key),
    /// Text was pasted.
    Paste(String),
    /// The mouse did something.
    Mouse(Mouse),
    /// The terminal has a new size.
    Resize {
        /// Columns.
        width: u16,
        /// Lines.
        height: u16,
    },
    /// A source sampled.
    Sampled(Box<Sampled>),
    /// News of the demo's child.
    Demo(DemoEvent),
    /// The view drew, and found this out.
    Drawn(Hits),
    /// Time passed.
    Tick,
    /// The dashboard was stopped (Ctrl-Z) and goes on.
    Resumed,
    /// Ctrl-Z was pressed and there is no shell that could let the dashboard go on.
    CannotSuspend,
    /// The dashboard has to end.
    End(Ending),
}

#[cfg(test)]
impl Event {
    /// A sample of a source that samples once a second.
    pub(crate) fn sampled(at: crate::model::Nanos, sample: crate::model::Sample) -> Event {
        let taken = crate::model::Taken::new(at, std::time::Duration::from_secs(1));
        Event::Sampled(Box::new(Sampled { taken, sample }))
    }
}

/// Something the main loop has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Draw as soon as the frame rate allows: the user waits for it.
    Draw,
    /// Draw everything anew: what is on the screen is not what we think.
    Repaint,
    /// Draw soon; more may come at the same moment (samplers sample in step).
    DrawSoon,
    /// Leave with this exit code.
    Quit(u8),
    /// Stop as Ctrl-Z does.
    Suspend,
    /// End the demo that runs, and start this one as a child once that is gone. The latest such wish wins.
    StartDemo {
        /// Its name.
        name: String,
        /// On the simulated device, whatever else there is.
        simulated: bool,
    },
    /// Send a line to the demo's child.
    TellDemo(String),
    /// End the demo's child.
    StopDemo,
}
