//! The publisher process.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A process that was attached to, while it ran.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Its process id here. In its own pid namespace it may have another one, which it says.
    pub pid: u32,
    /// Set once publishing is to end.
    pub stop: Arc<AtomicBool>,
}

/// How long a program that is killed takes to end, and how often that is looked at.
const ENDING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// How long nobody has to look at the blocks of a process that was attached to until that ends.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Publishes what comes from `input`, until it ends or the PyTorch process is gone. Answers go to `output`. `measure` is called a few times
/// for each device. `attached` is the process at the other end, if that did not start this one.
pub fn run(
    input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
    measure: Measure<'_>,
    attached: Option<&Attached>,
) {
    let parent = Parent::of_this_process();
    if let Some(attached) = attached {
        // Whoever attached may end, and its terminal with it.
        let _ = rustix::process::setsid();
        if parent.pid() != Some(attached.pid) {
            return;
        }
    }
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
        attached,
        looked_at: Instant::now(),
    };
    let mut due = Instant::now() + TICK;
    let end = loop {
        match messages.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Input::Message(Message::Bye)) => break End::Closed,
            Ok(message) => session.take(message, &parent),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break session.cut_off(&parent),
        }
        if Instant::now() >= due {
            due = Instant::now() + TICK;
            if parent.has_ended() {
                break End::Died;
            }
            session.look();
            if session.is_over() {
                break End::Withdrawn;
            }
        }
    };
    match (session.publishing, end) {
        (Some(publishing), End::Died) => publishing.abandon(),
        (Some(publishing), End::Withdrawn) => publishing.withdraw(),
        _ => {}
    }
}

/// How publishing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The program ended in order.
    Closed,
    /// The program was killed, or its thread.
    Died,
    /// The program goes on, so it leaves no black box.
    Withdrawn,
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
    attached: Option<&'a Attached>,
    /// When somebody last looked at the blocks.
    looked_at: Instant,
}

impl Session<'_> {
    fn take(&mut self, input: Input, parent: &Parent) {
        if let Input::Message(Message::Hello(hello)) = &input {
            if self.publishing.is_some() || self.failed {
                return;
            }
            // One that was attached to is known, and may be in another pid namespace.
            let is_known = |pid: &u32| *pid == hello.pid || self.attached.is_some();
            let made = match parent.pid().filter(is_known) {
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
        let now = Instant::now();
        let watched = publishing.watched(now);
        if watched {
            self.looked_at = now;
        }
        if watched != self.watched {
            self.watched = watched;
            self.answer(&Answer::Watched(watched));
        }
    }

    /// Returns how publishing ends after the input has without a word. A program that is killed closes its connections a moment before it
    /// has ended.
    fn cut_off(&self, parent: &Parent) -> End {
        let until = Instant::now() + ENDING;
        while self.attached.is_some() && Instant::now() < until {
            if parent.has_ended() {
                return End::Died;
            }
            std::thread::sleep(LOOK);
        }
        if self.attached.is_some() {
            End::Withdrawn
        } else {
            End::Died
        }
    }

    /// Checks whether publishing is to end although the program goes on.
    fn is_over(&self) -> bool {
        let Some(attached) = self.attached else { return false };
        attached.stop.load(Ordering::Relaxed) || self.looked_at.elapsed() > IDLE
    }

    fn answer(&mut self, answer: &Answer) {
        // Nobody may read it any more; the end of input says so.
        if let Ok(line) = serde_json::to_string(answer) {
            let _ = writeln!(self.output, "{line}").and_then(|()| self.output.flush());
        }
    }
}
