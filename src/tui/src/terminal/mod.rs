//! The terminal: taking it over, giving it back whatever happens, and writing to it without ever waiting for it.

mod colors;
mod output;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use colors::{Environment, colors, utf8};
pub use output::{Frame, Output};

/// Alternate screen, hidden cursor, mouse buttons, drags and wheel with SGR coordinates, bracketed paste.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?1000h\x1b[?1002h\x1b[?1006h\x1b[?2004h";
/// The reverse, after ending a frame that may have been cut off.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[?1049l";

/// What is needed to give the terminal back: kept here so that a panic can do it, too.
struct Taken {
    tty: OwnedFd,
    before: Termios,
}

static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// The terminal that keys come from: stdin if it is one, else the controlling terminal.
///
/// # Errors
/// When there is neither.
pub fn keyboard() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return stdin.as_fd().try_clone_to_owned();
    }
    Ok(File::open("/dev/tty")?.into())
}

/// Columns and lines; 0 where the terminal does not tell.
pub fn size() -> (u16, u16) {
    termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row))
}

/// Columns of a line on stdout or stderr; no end of them where that is no terminal.
pub fn columns(stream: impl AsFd) -> u16 {
    match termios::tcgetwinsize(stream).map_or(0, |size| size.ws_col) {
        0 => u16::MAX,
        columns => columns,
    }
}

/// Lets tokio wait for a terminal.
///
/// # Errors
/// When it is nothing that can be waited for (a regular file).
pub fn watch(tty: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "unsound only for types that lie about their descriptor; OwnedFd does not"
    )]
    AsyncFd::with_interest(tty, interest)
}

/// Takes the terminal over: raw mode, own screen. `keyboard` is the terminal whose mode is changed.
///
/// # Errors
/// When its mode cannot be changed or it cannot be written to. The terminal is then as it was.
pub fn enter(keyboard: &impl AsFd) -> io::Result<()> {
    // Without stdout's buffer: what is left in that is written at the program's end, after the terminal was given back.
    let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let taken = Taken {
        tty: keyboard.as_fd().try_clone_to_owned()?,
        before: termios::tcgetattr(keyboard)?,
    };
    let mut raw = taken.before.clone();
    raw.make_raw();
    // Locked meanwhile: a panic on another thread finds the mode as it was, or what gives it back.
    let mut terminal = lock();
    termios::tcsetattr(keyboard, OptionalActions::Now, &raw)?;
    *terminal = Some(taken);
    drop(terminal);
    stdout.write_all(ENTER).inspect_err(|_| leave())
}

/// Gives the terminal back. Does nothing when it is not taken, so that every way out may call it.
pub fn leave() {
    // Held to the end: nobody else writes to it meanwhile.
    let mut terminal = lock();
    let Some(taken) = terminal.take() else { return };
    // Nothing can be done about a terminal that is gone.
    let _ = output::write_within(LEAVE, std::time::Duration::from_millis(300));
    let _ = termios::tcsetattr(&taken.tty, OptionalActions::Flush, &taken.before);
}

fn lock() -> std::sync::MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says something on the terminal that was given back, on a line that [`unsay`] blanks.
pub fn say(text: &str) {
    let _ = output::write_within(format!("\r{text}").as_bytes(), std::time::Duration::from_millis(100));
}

/// Blanks the line of [`say`].
pub fn unsay() {
    say("\x1b[K");
}

/// From now on a panic, on whichever thread, gives the terminal back, says what happened, does what `last` does, and
/// ends the program with exit code 101. A sampler that died silently would leave figures that never change.
pub fn restore_on_panic(last: fn()) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        leave();
        before(info);
        last();
        std::process::exit(101);
    }));
}
