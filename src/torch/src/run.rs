//! The publisher process.

use std::io::{BufRead, Write};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::input::{self, Input};
use crate::message::{Answer, Message};
use crate::parent::Parent;
use crate::publish::Publishing;

/// How often it is checked whether somebody looks, and whether the PyTorch process is still there.
const TICK: Duration = Duration::from_millis(250);
/// Messages that wait: the PyTorch process would rather lose some than wait for long.
const WAITING: usize = 4;

/// Tells how many bytes of the device with a UUID a process uses, as the driver counts them; `None` if the driver does not tell.
pub type Measure<'a> = &'a dyn Fn([u8; 16], u32) -> Option<u64>;

/// Publishes what comes from `input`, until it ends or the PyTorch process is gone. Answers go to `output`. `measure` is called a few times
/// for each device.
pub fn run(input: impl BufRead + Send + 'static, output: &mut dyn Write, measure: Measure<'_>) {
    let parent = Parent::of_this_process();
    let (sender, messages) = sync_channel(WAITING);
    let mut input = input;
    std::thread::spawn(move || {
        while let Ok(Some(message)) = input::next(&mut input) {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    let mut session = Session {
        publishing: None,
        failed: false,
        after_failure: false,
        watched: false,
        output,
        measure,
    };
    let mut due = Instant::now() + TICK;
    let closed = loop {
        match messages.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Input::Message(Message::Bye)) => break true,
            Ok(message) => session.take(message, &parent),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break false,
        }
        if Instant::now() >= due {
            due = Instant::now() + TICK;
            if parent.has_ended() {
                break false;
            }
            session.look();
        }
    };
    if let Some(publishing) = session.publishing.filter(|_| !closed) {
        publishing.abandon();
    }
}

struct Session<'a> {
    /// `None` before the first message, and if there is no channel.
    publishing: Option<Publishing>,
    /// Whether there is none because it could not be made.
    failed: bool,
    /// Whether the last message was about a failed request, so that the map that follows is of its moment.
    after_failure: bool,
    /// What was said last.
    watched: bool,
    output: &'a mut dyn Write,
    measure: Measure<'a>,
}

impl Session<'_> {
    fn take(&mut self, input: Input, parent: &Parent) {
        if let Input::Message(Message::Hello(hello)) = &input {
            if self.publishing.is_some() || self.failed {
                return;
            }
            let made = match parent.pid().filter(|pid| *pid == hello.pid) {
                Some(pid) => Publishing::new(hello, pid),
                None => Err("the messages come from another process than they say".to_owned()),
            };
            match made {
                Ok(publishing) => self.publishing = Some(publishing),
                Err(why) => {
                    self.failed = true;
                    self.answer(&Answer::Error(why));
                }
            }
            return;
        }
        let Some(publishing) = &mut self.publishing else { return };
        match input {
            Input::Map(pickle, events_skipped) => {
                publishing.map(&pickle, &events_skipped);
                if std::mem::take(&mut self.after_failure) {
                    publishing.keep_map();
                }
            }
            Input::Message(message) => match message {
                Message::Device(device) => publishing.device(&device),
                Message::Stats { device, stats } => publishing.stats(device, &stats, self.measure),
                Message::MapSkipped { reason } => {
                    publishing.skip(&reason);
                    self.after_failure = false;
                }
                Message::Mark(mark) => publishing.mark(&mark),
                Message::Users { names } => publishing.users(&names),
                Message::Oom(oom) => {
                    publishing.oom(&oom);
                    self.after_failure = true;
                }
                Message::Hello(_) | Message::Map { .. } | Message::Bye => {}
            },
        }
    }

    /// Says whether somebody wants to see the map, when that changes.
    fn look(&mut self) {
        let Some(publishing) = &mut self.publishing else { return };
        let watched = publishing.watched(Instant::now());
        if watched != self.watched {
            self.watched = watched;
            self.answer(&Answer::Watched(watched));
        }
    }

    fn answer(&mut self, answer: &Answer) {
        // Nobody may read it any more; the end of input says so.
        if let Ok(line) = serde_json::to_string(answer) {
            let _ = writeln!(self.output, "{line}").and_then(|()| self.output.flush());
        }
    }
}
