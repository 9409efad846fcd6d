//! Signals as values.

use std::io;

use rustix::process::{Signal as Number, getpgrp, getsid, kill_process_group};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A signal that the dashboard handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// It asks the dashboard to end. Carries its number.
    End(u8),
    /// The terminal changed its size.
    Resize,
    /// The dashboard was stopped by another process and has been resumed.
    Resume,
    /// SIGTSTP asks the dashboard to suspend.
    Stop,
}

pub(super) struct Signals {
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
    quit: Stream,
    resize: Stream,
    stop: Stream,
    resume: Stream,
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
            resume: signal(number(Number::CONT))?,
        })
    }

    /// Waits for the next signal. Cancelling the future loses nothing.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End(15),
            _ = self.interrupt.recv() => Signal::End(2),
            _ = self.hangup.recv() => Signal::End(1),
            _ = self.quit.recv() => Signal::End(3),
            _ = self.resize.recv() => Signal::Resize,
            _ = self.stop.recv() => Signal::Stop,
            _ = self.resume.recv() => Signal::Resume,
        }
    }

    /// Stops this process and its process group (a `cargo run` around it, its demo) until it is continued, and then continues
    /// the whole group.
    pub(super) async fn stop(&mut self) -> io::Result<()> {
        // Discard earlier SIGCONTs, which are not the one to wait for.
        while matches!(
            tokio::time::timeout(std::time::Duration::ZERO, self.resume.recv()).await,
            Ok(Some(()))
        ) {}
        kill_process_group(getpgrp(), Number::STOP)?;
        self.resume.recv().await;
        // The SIGCONT may have been sent to this process only, so the rest of the group is continued here.
        kill_process_group(getpgrp(), Number::CONT)?;
        Ok(())
    }
}

/// Checks whether a shell with job control started us, which can continue a stopped program. Such a shell puts each job into its
/// own process group.
pub(super) fn has_shell() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}
