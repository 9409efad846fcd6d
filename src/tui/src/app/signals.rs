//! Signals as values.

use std::io;

use rustix::process::{Signal as Number, getpgrp, getsid, kill_process_group};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A signal that means something to the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// End, by number.
    End(u8),
    /// The terminal changed its size.
    Resize,
    /// It was stopped by somebody else, and goes on.
    GoOn,
    /// Stop, as Ctrl-Z asks a program to that does not read the key itself.
    Stop,
}

pub(super) struct Signals {
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
    quit: Stream,
    resize: Stream,
    stop: Stream,
    go_on: Stream,
}

impl Signals {
    pub(super) fn new() -> io::Result<Signals> {
        let number = |n: Number| SignalKind::from_raw(n.as_raw());
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            resize: signal(SignalKind::window_change())?,
            stop: signal(number(Number::TSTP))?,
            go_on: signal(number(Number::CONT))?,
        })
    }

    /// The next signal. Cancelling the future loses nothing.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End(15),
            _ = self.interrupt.recv() => Signal::End(2),
            _ = self.hangup.recv() => Signal::End(1),
            _ = self.quit.recv() => Signal::End(3),
            _ = self.resize.recv() => Signal::Resize,
            _ = self.stop.recv() => Signal::Stop,
            _ = self.go_on.recv() => Signal::GoOn,
        }
    }

    /// Stops this process and everyone in its group (a `cargo run` around it, its demo), until somebody continues it; then
    /// all of them go on.
    pub(super) async fn stop(&mut self) -> io::Result<()> {
        // One that came earlier must not be taken for the one to wait for.
        while matches!(
            tokio::time::timeout(std::time::Duration::ZERO, self.go_on.recv()).await,
            Ok(Some(()))
        ) {}
        kill_process_group(getpgrp(), Number::STOP)?;
        self.go_on.recv().await;
        // Whoever continues us may mean us alone; who was stopped along with us goes on with us.
        kill_process_group(getpgrp(), Number::CONT)?;
        Ok(())
    }
}

/// Whether a shell with job control started us: without one nobody would ever let a stopped program go on. Such a
/// shell puts each job into a group of its own.
pub(super) fn has_shell() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}
