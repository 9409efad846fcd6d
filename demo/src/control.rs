//! The inputs of a running demo: lines of its parent, and signals.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::protocol::{Command, MAX_LINE, ParseError};

/// An input of a demo.
#[derive(Debug)]
pub(crate) enum Input {
    /// A command.
    Command(Command),
    /// A line that is not a command.
    Invalid(ParseError),
    /// The demo has to end.
    End(End),
}

/// Why a demo ends before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Stdin was closed, so the parent is gone.
    ParentGone,
    /// The command `quit`.
    Quit,
    /// A signal, by number.
    Signal(i32),
}

/// A queue of the inputs from both sources.
#[derive(Debug)]
pub(crate) struct Control {
    queue: Receiver<Input>,
    /// What was heard during a pause and is still to be answered.
    kept: RefCell<VecDeque<Input>>,
    /// Keeps the queue open when there is no source.
    _sender: Sender<Input>,
}

/// The queue's end for signals; see [`Control::new`].
#[derive(Clone, Debug)]
pub(crate) struct Signals(Sender<Input>);

impl Signals {
    pub(crate) fn send(&self, signal: i32) {
        // A closed queue means that the demo has ended already, as the signal wants.
        let _ = self.0.send(Input::End(End::Signal(signal)));
    }
}

impl Control {
    /// Starts a thread that reads `input`. The thread ends with the input or with the process.
    pub(crate) fn new(input: Option<Box<dyn BufRead + Send>>) -> (Control, Signals) {
        let (sender, queue) = channel();
        if let Some(input) = input {
            let sender = sender.clone();
            std::thread::spawn(move || read_lines(input, &sender));
        }
        (
            Control {
                queue,
                kept: RefCell::default(),
                _sender: sender.clone(),
            },
            Signals(sender),
        )
    }

    /// Waits for the next input.
    pub(crate) fn wait(&self) -> Input {
        if let Some(kept) = self.kept.borrow_mut().pop_front() {
            return kept;
        }
        // The sender in `self` keeps the queue open.
        self.queue.recv().unwrap_or(Input::End(End::ParentGone))
    }

    /// Waits for the next input until `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<Input> {
        let kept = self.kept.borrow_mut().pop_front();
        kept.or_else(|| self.hear(deadline))
    }

    /// Waits until `deadline` in the middle of a step. Returns false as soon as anything is heard, at once if it was before. What is heard
    /// is kept for the next [`Control::wait`].
    pub(crate) fn pause_until(&self, deadline: Instant) -> bool {
        if !self.kept.borrow().is_empty() {
            return false;
        }
        match self.hear(deadline) {
            None => true,
            Some(heard) => {
                self.kept.borrow_mut().push_back(heard);
                false
            }
        }
    }

    fn hear(&self, deadline: Instant) -> Option<Input> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return match self.queue.try_recv() {
                Ok(heard) => Some(heard),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Input::End(End::ParentGone)),
            };
        }
        match self.queue.recv_timeout(left) {
            Ok(heard) => Some(heard),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Input::End(End::ParentGone)),
        }
    }
}

fn read_lines(mut input: Box<dyn BufRead + Send>, sender: &Sender<Input>) {
    loop {
        let heard = match read_line(&mut *input) {
            Ok(None) | Err(_) => Input::End(End::ParentGone),
            Ok(Some(line)) if line.trim().is_empty() => continue,
            Ok(Some(line)) => match Command::parse(&line) {
                Ok(Command::Quit) => Input::End(End::Quit),
                Ok(command) => Input::Command(command),
                Err(error) => Input::Invalid(error),
            },
        };
        let last = matches!(heard, Input::End(_));
        if sender.send(heard).is_err() || last {
            return;
        }
    }
}

/// Reads a line, or returns `None` at the end of input. Only the beginning of a line that is too long for the protocol is kept.
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
                Input::Command(c) => all.push(c.to_string()),
                Input::Invalid(e) => all.push(format!("? {e}")),
                Input::End(end) => {
                    all.push(format!("{end:?}"));
                    return all;
                }
            }
        }
    }

    #[test]
    fn end_of_input_means_the_parent_is_gone() {
        assert_eq!(heard(""), ["ParentGone"]);
        assert_eq!(heard("next\n"), ["next", "ParentGone"]);
        assert_eq!(heard("fix remap"), ["fix remap", "ParentGone"]);
    }

    #[test]
    fn nothing_is_read_after_quit() {
        assert_eq!(heard("next\nquit\nnext\n"), ["next", "Quit"]);
    }

    #[test]
    fn invalid_line_is_passed_on_as_invalid() {
        let all = heard(b"\n\xff\xfe\nnext\n".to_vec());
        assert!(all[0].starts_with("? unknown command"), "{all:?}");
        assert_eq!(all[1..], ["next", "ParentGone"]);
    }

    #[test]
    fn endless_line_takes_bounded_memory() {
        let mut input = vec![b'x'; 3 * MAX_LINE];
        input.extend_from_slice(b"\nnext\n");
        let all = heard(input);
        assert!(all[0].len() < 200 && all[0].starts_with("? unknown command"));
        assert_eq!(all[1..], ["next", "ParentGone"]);
    }

    #[test]
    fn pause_keeps_what_ends_it() {
        let (control, signals) = Control::new(None);
        let soon = || Instant::now() + Duration::from_millis(5);
        let late = || Instant::now() + Duration::from_secs(60);
        assert!(control.pause_until(soon()));
        control._sender.send(Input::Command(Command::Next)).unwrap();
        signals.send(15);
        assert!(!control.pause_until(late()) && !control.pause_until(late()));
        assert!(matches!(control.wait(), Input::Command(Command::Next)));
        assert!(matches!(control.wait(), Input::End(End::Signal(15))));
        assert!(control.pause_until(soon()));
    }

    #[test]
    fn without_input_only_signals_arrive() {
        let (control, signals) = Control::new(None);
        assert!(control.wait_until(Instant::now() + Duration::from_millis(5)).is_none());
        signals.send(15);
        assert!(matches!(
            control.wait_until(Instant::now()),
            Some(Input::End(End::Signal(15)))
        ));
    }
}
