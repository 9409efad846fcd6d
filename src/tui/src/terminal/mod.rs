//! The terminal: takes it over, restores it however the program ends, and writes to it without blocking.

mod colors;
mod last_resort;
mod output;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) use colors::{Environment, colors, utf8};
pub(crate) use output::{Frame, Output};

/// Enters the alternate screen, hides the cursor, and enables SGR mouse reports for buttons, drags and the wheel, and bracketed paste.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?1000h\x1b[?1002h\x1b[?1006h\x1b[?2004h";
/// Reverses [`ENTER`], after ending a frame that may have been cut off.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[?1049l";

/// The terminal. It is opened once and kept open, since there may be no free descriptor when it has to be restored.
#[derive(Debug)]
struct Tty {
    /// Keys are read from it, and its mode is changed.
    keyboard: OwnedFd,
    /// Frames are written to it, in non-blocking mode.
    screen: OwnedFd,
}

static TTY: OnceLock<Tty> = OnceLock::new();

/// What is needed to restore the terminal.
struct Taken {
    tty: &'static Tty,
    before: Termios,
}

impl Taken {
    /// Restores the terminal. It only makes system calls, since a signal handler calls it.
    fn restore(&self) {
        // Nothing can be done about a terminal that is gone.
        let _ = output::write_within(self.tty.screen.as_fd(), LEAVE, Duration::from_millis(300));
        let _ = termios::tcsetattr(&self.tty.keyboard, OptionalActions::Flush, &self.before);
    }
}

/// Held while the terminal is written to, taken over or restored.
static WRITING: Mutex<()> = Mutex::new(());

/// Opens the terminal, which stays open. Keys come from stdin if that is a terminal, else from the controlling terminal.
///
/// # Errors
/// When there is no terminal.
pub(crate) fn open() -> io::Result<()> {
    if TTY.get().is_none() {
        let stdin = io::stdin();
        let keyboard = match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned()?,
            false => File::open("/dev/tty")?.into(),
        };
        let screen = output::nonblocking_stdout()?;
        // If another thread was first, it has opened the same terminal.
        let _ = TTY.set(Tty { keyboard, screen });
    }
    Ok(())
}

fn tty() -> io::Result<&'static Tty> {
    TTY.get().ok_or_else(|| io::Error::other("the terminal is not open"))
}

/// Returns the descriptor to read keys from.
///
/// # Errors
/// When the terminal is not open.
pub(crate) fn keyboard() -> io::Result<BorrowedFd<'static>> {
    Ok(tty()?.keyboard.as_fd())
}

/// Returns the terminal's columns and lines; 0 if it does not report them.
pub(crate) fn size() -> (u16, u16) {
    termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row))
}

/// Returns the columns of stdout or stderr; [`u16::MAX`] if that is not a terminal.
pub(crate) fn columns(stream: impl AsFd) -> u16 {
    match termios::tcgetwinsize(stream).map_or(0, |size| size.ws_col) {
        0 => u16::MAX,
        columns => columns,
    }
}

/// Registers a terminal with tokio.
///
/// # Errors
/// When it cannot be polled, as a regular file cannot.
pub(crate) fn watch(tty: BorrowedFd<'static>, interest: Interest) -> io::Result<AsyncFd<BorrowedFd<'static>>> {
    #[expect(
        deprecated,
        reason = "unsound only for types that lie about their descriptor; BorrowedFd does not"
    )]
    AsyncFd::with_interest(tty, interest)
}

/// Takes the terminal over: raw mode and the alternate screen.
///
/// # Errors
/// When it is not open, its mode cannot be changed or it cannot be written to. The terminal is restored then.
pub(crate) fn enter() -> io::Result<()> {
    let tty = tty()?;
    let before = termios::tcgetattr(&tty.keyboard)?;
    let mut raw = before.clone();
    raw.make_raw();
    // Locked, so that a panic on another thread finds either the original mode or what is needed to restore it.
    let writing = lock();
    last_resort::arm(Taken { tty, before });
    let set = termios::tcsetattr(&tty.keyboard, OptionalActions::Now, &raw);
    drop(writing);
    set.map_err(io::Error::from)
        .and_then(|()| output::write_all(io::stdout().as_fd(), ENTER))
        .inspect_err(|_| {
            leave();
        })
}

/// Restores the terminal. Returns whether it was taken over. May be called more than once.
pub(crate) fn leave() -> bool {
    // Held to the end, so that no other thread writes to the terminal meanwhile.
    let _writing = lock();
    let taken = last_resort::disarm();
    if let Some(taken) = &taken {
        taken.restore();
    }
    taken.is_some()
}

fn lock() -> std::sync::MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Writes a line to the restored terminal, which [`unsay`] clears.
pub(crate) fn say(text: &str) {
    let Ok(tty) = tty() else { return };
    let text = format!("\r{text}");
    let _ = output::write_within(tty.screen.as_fd(), text.as_bytes(), Duration::from_millis(100));
}

/// Clears the line of [`say`].
pub(crate) fn unsay() {
    say("\x1b[K");
}

/// Installs handlers that restore the terminal when a signal or a library ends the program.
pub(crate) fn restore_on_abort() {
    last_resort::install();
}

/// Restores the terminal and ends the program with this exit code, without waiting for libraries' exit handlers. Stdout must have
/// been flushed.
pub(crate) fn exit_at_once(code: u8) -> ! {
    leave();
    last_resort::exit_at_once(code)
}

/// Installs a panic hook that restores the terminal, prints the panic, calls `last`, and ends the program with exit code 101. This
/// holds for every thread: without it, the figures of a sampler that panicked would never change.
pub(crate) fn restore_on_panic(last: fn()) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        leave();
        before(info);
        last();
        exit_at_once(101);
    }));
}
