//! Events, and the effects that the main loop has to perform. Both are plain values, on either side of [`crate::update`].

use crate::model::{Demo, DemoOutcome, DemoStep, Hierarchy, Hits, Sampled};

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

/// A mouse event on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mouse {
    /// What the mouse did.
    pub action: MouseAction,
    /// Column from 0.
    pub x: u16,
    /// Line from 0.
    pub y: u16,
}

/// What the child reported or did: a demo, or a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DemoEvent {
    /// It was started.
    Spawned {
        /// Its process id.
        pid: u32,
    },
    /// Its first line. Only the fields of that line are set.
    Start(Box<Demo>),
    /// A step is done. Carries the fixes that the user may choose now.
    Step(Box<DemoStep>, Vec<crate::model::Choice>),
    /// It cannot publish; the text says why.
    Unpublished(String),
    /// A message.
    Notice(String),
    /// It ran to its end.
    Result {
        /// Whether it showed what it is meant to show.
        ok: bool,
        /// How it ended.
        outcome: DemoOutcome,
    },
    /// It is a benchmark, and says how far it is.
    Bench(BenchEvent),
    /// It could not be started, it failed, or it wrote something that is not understood.
    Failed(String),
    /// It reported that it cannot continue.
    GaveUp {
        /// The reason that it gave.
        text: String,
        /// The exit code that it ends with.
        exit_code: u8,
    },
    /// Its process has ended; the text says how.
    Exited(String),
}

/// What a benchmark's child reported or did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BenchEvent {
    /// A part of it begins.
    Progress {
        /// Finished parts, and all of them.
        done: (u64, u64),
        /// What is measured now.
        what: String,
        /// An estimate of the time left.
        left: crate::model::Nanos,
    },
    /// What it measured, and why that was not kept for the next time, if it was not.
    Hierarchy(Box<Hierarchy>, Option<String>),
}

/// Why the dashboard has to end, other than by a key.
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
    /// A source took a sample.
    Sampled(Box<Sampled>),
    /// An event of the demo's child.
    Demo(DemoEvent),
    /// Attaching to a process has ended: with what was done, or why it was not.
    Attached {
        /// The process.
        pid: u32,
        /// A sentence.
        result: Result<String, String>,
    },
    /// Alerts have fired, or the command of one has failed: a message for the user.
    Alert(String),
    /// The view has drawn a frame with these areas.
    Drawn(Box<Hits>),
    /// Time passed.
    Tick,
    /// The dashboard was suspended (Ctrl-Z) and has been resumed.
    Resumed,
    /// Ctrl-Z was pressed, but there is no shell that could resume the dashboard.
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
    /// Redraw the whole screen, whose contents are not known.
    Repaint,
    /// Draw soon. More changes may follow, since samplers sample at the same moment.
    DrawSoon,
    /// Quit with this exit code.
    Quit(u8),
    /// Suspend, as Ctrl-Z does.
    Suspend,
    /// End the running demo, and start this one as a child once that is gone. A later request replaces this one.
    StartDemo {
        /// Its name.
        name: String,
        /// Whether it runs on the simulated device even if there is a GPU.
        simulated: bool,
    },
    /// End the running demo or benchmark, and measure this device's memory hierarchy once that is gone.
    StartBench {
        /// UUIDs of the device and of its peers, separated by commas.
        devices: String,
    },
    /// Send a line to the demo's child.
    SendToDemo(String),
    /// End the demo's child.
    StopDemo,
    /// Attach to a process.
    Attach {
        /// The process.
        pid: u32,
    },
}
