//! A program in a pseudo-terminal, whose screen is read back as a person would see it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};
use rustix::termios::{self, OptionalActions};

use crate::{Ended, Modes, PATIENCE, World};

/// Takes what arrived at the terminal; nothing at all is the end. Returns whether it is closed.
fn arrive(seen: &(Mutex<Screen>, Condvar), bytes: &[u8]) -> bool {
    let screen = seen.0.lock().unwrap();
    let mut screen = seen.1.wait_while(screen, |screen| screen.stalled).unwrap();
    screen.take(bytes);
    screen.first.get_or_insert_with(Instant::now);
    screen.closed = bytes.is_empty() || screen.hung_up;
    if screen.closed {
        let end = screen.raw.len();
        screen.show(end);
    }
    seen.1.notify_all();
    screen.closed
}

/// Begin and end of a frame in synchronized output (DEC private mode 2026).
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

struct Screen {
    parser: vt100::Parser,
    /// Everything the program wrote.
    raw: Vec<u8>,
    /// How many of these bytes are on the screen. A frame appears as a whole, as on a terminal that supports the mode.
    shown: usize,
    /// When it first wrote something.
    first: Option<Instant>,
    closed: bool,
    /// The terminal is being closed while the program runs.
    hung_up: bool,
    /// The program's output is not read.
    stalled: bool,
}

impl Screen {
    /// Takes output of the program, and shows it unless it belongs to a frame that has not ended.
    fn take(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        let mut marks = self.raw.windows(BEGIN.len()).enumerate().rev();
        let begun = marks.find(|(_, mark)| [BEGIN, END].contains(mark));
        let whole = match begun {
            Some((at, BEGIN)) => at.max(self.shown),
            _ => self.raw.len(),
        };
        self.show(whole);
    }

    /// Shows everything up to `end`.
    fn show(&mut self, end: usize) {
        self.parser.process(&self.raw[self.shown..end]);
        self.shown = end;
    }
}

/// A connection between a program and the terminal, such as SSH over a bad line.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Bytes a second that it carries to the terminal.
    pub bytes_per_second: u32,
    /// How long a byte is on its way, in either direction.
    pub latency: Duration,
}

/// A running program and its terminal.
pub struct Terminal {
    master: Option<Box<dyn MasterPty + Send>>,
    keys: Option<Box<dyn Write + Send>>,
    child: Box<dyn Child + Send + Sync>,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    line_mode: String,
    started: Instant,
    connection: Option<Connection>,
}

impl Terminal {
    /// Starts `gpumem-tui` with `args` in `world`, on a terminal of this size.
    pub fn start(world: &World, args: &[&str], columns: u16, rows: u16) -> Terminal {
        Terminal::start_with(world, args, columns, rows, &[])
    }

    /// The same with more environment; an empty value removes a variable.
    pub fn start_with(world: &World, args: &[&str], columns: u16, rows: u16, environment: &[(&str, &str)]) -> Terminal {
        Terminal::start_program(&crate::gpumem_tui(), world, args, columns, rows, environment)
    }

    /// The same with another program.
    pub fn start_program(
        program: &Path,
        world: &World,
        args: &[&str],
        columns: u16,
        rows: u16,
        environment: &[(&str, &str)],
    ) -> Terminal {
        Terminal::connect(program, world, args, (columns, rows), environment, None)
    }

    /// Starts `gpumem-tui` with `args` in `world`, on a terminal of this size at the other end of a connection.
    pub fn start_over(connection: Connection, world: &World, args: &[&str], columns: u16, rows: u16) -> Terminal {
        Terminal::connect(
            &crate::gpumem_tui(),
            world,
            args,
            (columns, rows),
            &[],
            Some(connection),
        )
    }

    fn connect(
        program: &Path,
        world: &World,
        args: &[&str],
        (columns, rows): (u16, u16),
        environment: &[(&str, &str)],
        connection: Option<Connection>,
    ) -> Terminal {
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env_remove("NO_COLOR");
        for (name, value) in world.environment() {
            command.env(name, value);
        }
        for (name, value) in environment {
            if value.is_empty() {
                command.env_remove(name);
            } else {
                command.env(name, value);
            }
        }
        let line_mode = line_mode(&*pair.master);
        let started = Instant::now();
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let screen = Screen {
            parser: vt100::Parser::new(cells(rows), cells(columns), 0),
            raw: Vec::new(),
            shown: 0,
            first: None,
            closed: false,
            hung_up: false,
            stalled: false,
        };
        let screen = Arc::new((Mutex::new(screen), Condvar::new()));
        let mut output = pair.master.try_clone_reader().unwrap();
        let seen = screen.clone();
        match connection {
            None => std::thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                loop {
                    let n = output.read(&mut buffer).unwrap_or(0);
                    if arrive(&seen, &buffer[..n]) {
                        return;
                    }
                }
            }),
            Some(connection) => {
                let (sender, arrivals) = std::sync::mpsc::channel::<(Instant, Vec<u8>)>();
                std::thread::spawn(move || {
                    // What is not read yet waits in the terminal, and then the program does.
                    let mut buffer = [0; 256];
                    loop {
                        let n = output.read(&mut buffer).unwrap_or(0);
                        std::thread::sleep(Duration::from_secs(1) * n as u32 / connection.bytes_per_second);
                        let due = Instant::now() + connection.latency;
                        if sender.send((due, buffer[..n].to_vec())).is_err() || n == 0 {
                            return;
                        }
                    }
                });
                std::thread::spawn(move || {
                    for (due, bytes) in arrivals {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        if arrive(&seen, &bytes) {
                            return;
                        }
                    }
                })
            }
        };
        let keys = pair.master.take_writer().unwrap();
        Terminal {
            master: Some(pair.master),
            keys: Some(keys),
            child,
            screen,
            line_mode,
            started,
            connection,
        }
    }

    /// Returns the program's process id.
    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("a started process")
    }

    /// Returns the text on the screen, one line for each row.
    pub fn text(&self) -> String {
        self.screen.0.lock().unwrap().parser.screen().contents()
    }

    /// Returns everything the program wrote so far.
    pub fn raw(&self) -> Vec<u8> {
        self.screen.0.lock().unwrap().raw.clone()
    }

    /// Returns how many bytes the program wrote so far.
    pub fn written(&self) -> usize {
        self.screen.0.lock().unwrap().raw.len()
    }

    /// Returns the current modes of the terminal.
    pub fn modes(&self) -> Modes {
        let screen = self.screen.0.lock().unwrap();
        let screen = screen.parser.screen();
        Modes {
            alternate: screen.alternate_screen(),
            hidden_cursor: screen.hide_cursor(),
            mouse: screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None,
            paste: screen.bracketed_paste(),
        }
    }

    /// Returns whether line editing and echo are as they were before the program started.
    pub fn line_mode_is_back(&self) -> bool {
        line_mode(&**self.master.as_ref().expect("an open terminal")) == self.line_mode
    }

    /// Returns whether the first occurrence of a text on the screen is highlighted as a selected line is.
    pub fn selected(&self, text: &str) -> bool {
        let screen = self.screen.0.lock().unwrap();
        let screen = screen.parser.screen();
        let columns = screen.size().1.get();
        let rows = screen.rows(0, columns).collect::<Vec<_>>();
        let Some((y, line)) = (0..).zip(&rows).find(|(_, line)| line.contains(text)) else {
            return false;
        };
        let before = line.find(text).map_or("", |at| &line[..at]);
        // Every character of the dashboard takes one cell.
        let cell = screen.cell(y, before.chars().count() as u16);
        cell.is_some_and(|cell| cell.inverse() || cell.bgcolor() != vt100::Color::Default)
    }

    /// Returns how long the program took to its first output. Panics if there is none yet.
    pub fn first_output_after(&self) -> Duration {
        let first = self.screen.0.lock().unwrap().first;
        first.expect("some output") - self.started
    }

    /// Waits until the screen satisfies `wanted`. Panics with the screen if it does not in time.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut screen = self.screen.0.lock().unwrap();
        loop {
            let text = screen.parser.screen().contents();
            if wanted(&text) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || screen.closed {
                drop(screen);
                panic!("never saw {what}; the screen:\n{text}");
            }
            screen = self.screen.1.wait_timeout(screen, left).unwrap().0;
        }
    }

    /// Waits until the screen shows all of `texts`.
    #[track_caller]
    pub fn wait_for(&self, texts: &[&str]) {
        self.wait(&format!("{texts:?}"), |screen| {
            texts.iter().all(|text| screen.contains(text))
        });
    }

    /// Sends keys, as if they were typed.
    pub fn keys(&mut self, keys: &str) {
        self.bytes(keys.as_bytes());
    }

    /// Sends bytes that need not be valid keys.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if let Some(connection) = self.connection {
            std::thread::sleep(connection.latency);
        }
        let writer = self.keys.as_mut().expect("an open terminal");
        writer.write_all(bytes).unwrap();
        writer.flush().unwrap();
    }

    /// Changes the terminal's size.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.screen
            .0
            .lock()
            .unwrap()
            .parser
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        self.master.as_ref().expect("an open terminal").resize(size).unwrap();
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Closes the terminal while the program runs, as a dropped connection does.
    pub fn hang_up(&mut self) {
        let mut screen = self.screen.0.lock().unwrap();
        screen.hung_up = true;
        let (rows, columns) = screen.parser.screen().size();
        drop(screen);
        // The reading thread keeps the terminal open until there is something to read. A new size makes the program draw.
        self.resize(columns.get() + 1, rows.get());
        self.keys = None;
        self.master = None;
        self.until_closed();
    }

    /// Fills the terminal, so that it takes nothing more until [`Terminal::go_on`], as behind a connection that hangs. It is filled with
    /// bytes that show nothing.
    pub fn stall(&self) {
        self.screen.0.lock().unwrap().stalled = true;
        let mut tty = self.tty();
        // Without output processing the kernel takes some more bytes.
        let before = termios::tcgetattr(&tty).unwrap();
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(&tty, OptionalActions::Now, &raw).unwrap();
        // The kernel passes the bytes on a moment later and then has room again.
        let mut refused = 0;
        while refused < 20 {
            match tty.write(&[0; 4096]) {
                Ok(_) => refused = 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
        }
        termios::tcsetattr(&tty, OptionalActions::Now, &before).unwrap();
    }

    /// Makes the terminal take the waiting output, and go on.
    pub fn go_on(&self) {
        self.screen.0.lock().unwrap().stalled = false;
        self.screen.1.notify_all();
    }

    /// Opens the program's side of the terminal again, in non-blocking mode.
    pub fn tty(&self) -> File {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        options.open(format!("/proc/{}/fd/0", self.pid())).unwrap()
    }

    /// Waits for the program to end, and for the last of its output.
    pub fn ended(&mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.until_closed();
                return match status.signal() {
                    Some(_) => Ended::Signal,
                    None => Ended::Code(status.exit_code()),
                };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ended::Never
    }

    fn until_closed(&self) {
        let screen = self.screen.0.lock().unwrap();
        let (_screen, late) = self
            .screen
            .1
            .wait_timeout_while(screen, PATIENCE, |screen| !screen.closed)
            .unwrap();
        assert!(!late.timed_out(), "another process keeps the terminal open");
    }

    /// Returns the program's current children.
    pub fn children(&self) -> Vec<u32> {
        crate::children(self.pid())
    }
}

/// Returns the terminal's line settings as text that can be compared.
fn line_mode(master: &dyn MasterPty) -> String {
    let modes = master.get_termios().expect("a terminal has modes");
    format!(
        "{:?} {:?} {:?} {:o} {:?}",
        modes.input_flags,
        modes.output_flags,
        modes.local_flags,
        modes.control_flags.bits(),
        modes.control_chars
    )
}

/// Returns a number of rows or columns. The emulator has no size 0, so 0 becomes 1.
fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap_or(NonZero::<u16>::MIN)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
