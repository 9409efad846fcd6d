//! What a running demo listens to: lines of its parent, and signals.

use std::io::{BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::protocol::{Command, MAX_LINE, ParseError};

/// What a demo can hear.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A command.
    Command(Command),
    /// A line that was none.
    Garbage(ParseError),
    /// The demo shall end.
    End(End),
}

/// Why a demo ends before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Input ended: the parent is gone.
    ParentGone,
    /// Told to quit.
    Quit,
    /// A signal, by number.
    Signal(i32),
}

/// The two sources in one queue.
#[derive(Debug)]
pub(crate) struct Control {
    queue: Receiver<Heard>,
    /// Keeps the queue open when neither source is there.
    _sender: Sender<Heard>,
}

/// Where signals are handed in; see [`Control::new`].
#[derive(Clone, Debug)]
pub(crate) struct Signals(Sender<Heard>);

impl Signals {
    pub(crate) fn send(&self, signal: i32) {
        // A closed queue means the demo has ended already, which is what the signal asked for.
        let _ = self.0.send(Heard::End(End::Signal(signal)));
    }
}

impl Control {
    /// Reads `input` on a thread of its own. That thread ends with the input, or with the process.
    pub(crate) fn new(input: Option<Box<dyn BufRead + Send>>) -> (Control, Signals) {
        let (sender, queue) = channel();
        if let Some(input) = input {
            let sender = sender.clone();
            std::thread::spawn(move || read_lines(input, &sender));
        }
        (
            Control {
                queue,
                _sender: sender.clone(),
            },
            Signals(sender),
        )
    }

    /// The next thing heard, waiting as long as it takes.
    pub(crate) fn wait(&self) -> Heard {
        // The sender in `self` keeps the queue open.
        self.queue.recv().unwrap_or(Heard::End(End::ParentGone))
    }

    /// The next thing heard until `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<Heard> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return match self.queue.try_recv() {
                Ok(heard) => Some(heard),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Heard::End(End::ParentGone)),
            };
        }
        match self.queue.recv_timeout(left) {
            Ok(heard) => Some(heard),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Heard::End(End::ParentGone)),
        }
    }
}

fn read_lines(mut input: Box<dyn BufRead + Send>, sender: &Sender<Heard>) {
    loop {
        let heard = match read_line(&mut *input) {
            Ok(None) | Err(_) => Heard::End(End::ParentGone),
            Ok(Some(line)) if line.trim().is_empty() => continue,
            Ok(Some(line)) => match Command::parse(&line) {
                Ok(Command::Quit) => Heard::End(End::Quit),
                Ok(command) => Heard::Command(command),
                Err(error) => Heard::Garbage(error),
            },
        };
        let last = matches!(heard, Heard::End(_));
        if sender.send(heard).is_err() || last {
            return;
        }
    }
}

/// One line; `None` at the end of input. Of a longer one than the protocol allows only the beginning is kept in memory.
fn read_line(input: &mut dyn BufRead) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    if input.take(MAX_LINE as u64).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let mut ended = line.ends_with(b"\n");
    while !ended {
        let chunk = input.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        ended = end.is_some();
        let used = end.map_or(chunk.len(), |at| at + 1);
        input.consume(used);
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::io::Cursor;

    fn heard(input: impl Into<Vec<u8>>) -> Vec<String> {
        let (control, _signals) = Control::new(Some(Box::new(Cursor::new(input.into()))));
        let mut all = Vec::new();
        loop {
            match control.wait() {
                Heard::Command(c) => all.push(c.to_string()),
                Heard::Garbage(e) => all.push(format!("? {e}")),
                Heard::End(end) => {
                    all.push(format!("{end:?}"));
                    return all;
                }
            }
        }
    }

    #[test]
    fn the_end_of_input_means_the_parent_is_gone() {
        assert_eq!(heard(""), ["ParentGone"]);
        assert_eq!(heard("next\n"), ["next", "ParentGone"]);
        assert_eq!(heard("fix remap"), ["fix remap", "ParentGone"]);
    }

    #[test]
    fn quit_ends_whatever_follows() {
        assert_eq!(heard("next\nquit\nnext\n"), ["next", "Quit"]);
    }

    #[test]
    fn a_line_that_is_no_command_is_passed_on_as_such() {
        let all = heard(b"\n\xff\xfe\nnext\n".to_vec());
        assert!(all[0].starts_with("? unknown command"), "{all:?}");
        assert_eq!(all[1..], ["next", "ParentGone"]);
    }

    #[test]
    fn an_endless_line_takes_bounded_memory_and_spoils_only_itself() {
        let mut input = vec![b'x'; 3 * MAX_LINE];
        input.extend_from_slice(b"\nnext\n");
        let all = heard(input);
        assert!(all[0].len() < 200 && all[0].starts_with("? unknown command"));
        assert_eq!(all[1..], ["next", "ParentGone"]);
    }

    #[test]
    fn without_input_only_a_signal_is_heard() {
        let (control, signals) = Control::new(None);
        assert!(control.wait_until(Instant::now() + Duration::from_millis(5)).is_none());
        signals.send(15);
        assert!(matches!(
            control.wait_until(Instant::now()),
            Some(Heard::End(End::Signal(15)))
        ));
    }
}
