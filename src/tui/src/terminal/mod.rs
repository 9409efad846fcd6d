//! The terminal: taking it over, giving it back whatever happens, and writing to it without ever waiting for it.

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

/// Alternate screen, hidden cursor, mouse buttons, drags and wheel with SGR coordinates, bracketed paste.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?1000h\x1b[?1002h\x1b[?1006h\x1b[?2004h";
/// The reverse, after ending a frame that may have been cut off.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[?1049l";

/// The terminal, opened once and kept: when it is to be given back there may be no descriptor left to open it with.
#[derive(Debug)]
struct Kept {
    /// Keys come from here, and this is the terminal whose mode is changed.
    keyboard: OwnedFd,
    /// Frames go here, which never waits.
    screen: OwnedFd,
}

static KEPT: OnceLock<Kept> = OnceLock::new();

/// What is needed to give the terminal back.
struct Taken {
    kept: &'static Kept,
    before: Termios,
}

impl Taken {
    /// Makes system calls and nothing else: a signal's handler calls it.
    fn give_back(&self) {
        // Nothing can be done about a terminal that is gone.
        let _ = output::write_within(self.kept.screen.as_fd(), LEAVE, Duration::from_millis(300));
        let _ = termios::tcsetattr(&self.kept.keyboard, OptionalActions::Flush, &self.before);
    }
}

/// Held by who writes to the terminal, or takes it or gives it back.
static WRITING: Mutex<()> = Mutex::new(());

/// Opens the terminal, for as long as the program runs. Keys come from stdin if it is one, else from the controlling terminal.
///
/// # Errors
/// When there is neither.
pub(crate) fn open() -> io::Result<()> {
    if KEPT.get().is_none() {
        let stdin = io::stdin();
        let keyboard = match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned()?,
            false => File::open("/dev/tty")?.into(),
        };
        let screen = output::nonblocking_stdout()?;
        // Whoever was first has opened the same.
        let _ = KEPT.set(Kept { keyboard, screen });
    }
    Ok(())
}

fn kept() -> io::Result<&'static Kept> {
    KEPT.get().ok_or_else(|| io::Error::other("the terminal is not open"))
}

/// Where keys come from.
///
/// # Errors
/// When the terminal is not open.
pub(crate) fn keyboard() -> io::Result<BorrowedFd<'static>> {
    Ok(kept()?.keyboard.as_fd())
}

/// Columns and lines; 0 where the terminal does not tell.
pub(crate) fn size() -> (u16, u16) {
    termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row))
}

/// Columns of a line on stdout or stderr; no end of them where that is no terminal.
pub(crate) fn columns(stream: impl AsFd) -> u16 {
    match termios::tcgetwinsize(stream).map_or(0, |size| size.ws_col) {
        0 => u16::MAX,
        columns => columns,
    }
}

/// Lets tokio wait for a terminal.
///
/// # Errors
/// When it is nothing that can be waited for (a regular file).
pub(crate) fn watch(tty: BorrowedFd<'static>, interest: Interest) -> io::Result<AsyncFd<BorrowedFd<'static>>> {
    #[expect(
        deprecated,
        reason = "unsound only for types that lie about their descriptor; BorrowedFd does not"
    )]
    AsyncFd::with_interest(tty, interest)
}

/// Takes the terminal over: raw mode, own screen.
///
/// # Errors
/// When it is not open, its mode cannot be changed or it cannot be written to. The terminal is then as it was.
pub(crate) fn enter() -> io::Result<()> {
    let kept = kept()?;
    let before = termios::tcgetattr(&kept.keyboard)?;
    let mut raw = before.clone();
    raw.make_raw();
    // Locked meanwhile: a panic on another thread finds the mode as it was, or what gives it back.
    let writing = lock();
    last_resort::arm(Taken { kept, before });
    let set = termios::tcsetattr(&kept.keyboard, OptionalActions::Now, &raw);
    drop(writing);
    set.map_err(io::Error::from)
        .and_then(|()| output::write_all(io::stdout().as_fd(), ENTER))
        .inspect_err(|_| {
            leave();
        })
}

/// Gives the terminal back; whether it was taken. Every way out may call it.
pub(crate) fn leave() -> bool {
    // Held to the end: nobody else writes to it meanwhile.
    let _writing = lock();
    let taken = last_resort::disarm();
    if let Some(taken) = &taken {
        taken.give_back();
    }
    taken.is_some()
}

fn lock() -> std::sync::MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says something on the terminal that was given back, on a line that [`unsay`] blanks.
pub(crate) fn say(text: &str) {
    let Ok(kept) = kept() else { return };
    let text = format!("\r{text}");
    let _ = output::write_within(kept.screen.as_fd(), text.as_bytes(), Duration::from_millis(100));
}

/// Blanks the line of [`say`].
pub(crate) fn unsay() {
    say("\x1b[K");
}

/// From now on a signal that ends the program, or a library that does, gives the terminal back first.
pub(crate) fn restore_on_abort() {
    last_resort::install();
}

/// Ends the program now, with this exit code, having given the terminal back: nothing that a library does at the end is
/// waited for. What was written to stdout has to be flushed.
pub(crate) fn exit_at_once(code: u8) -> ! {
    leave();
    last_resort::exit_at_once(code)
}

/// From now on a panic, on whichever thread, gives the terminal back, says what happened, does what `last` does, and
/// ends the program with exit code 101. A sampler that died silently would leave figures that never change.
pub(crate) fn restore_on_panic(last: fn()) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        leave();
        before(info);
        last();
        exit_at_once(101);
    }));
}
