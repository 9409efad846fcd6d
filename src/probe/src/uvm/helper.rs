//! The helper process, which holds the trackers.
//!
//! The dashboard can be stopped (Ctrl-Z), swapped out or busy when a watched process dies, and while a tracker is open that process's GPU
//! memory is not released. So a separate process holds the trackers. It has a session of its own, so that no terminal stops it, does
//! nothing but wait, and ends when the dashboard does.
//!
//! Its descriptor 0 is a socket to the dashboard, its descriptor 1 the memory that both share (see `board`). One message is one
//! line: `count NUMBER SLOT PID START`, `events NUMBER PID START` and `stop NUMBER` one way; `on NUMBER` and `off NUMBER REASON` the
//! other way. The dashboard gives each request a number of its own, so that a late answer is not taken for one about the
//! process that has the slot now. A request is answered once it holds or does not, and again when its tracker is closed; `stop` is
//! always answered.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Signal;

use super::board::{self, SLOTS, Writer};
use super::causes::Aggregator;
use super::sys::Shared;
use super::tracker::{Flusher, Target, Tracker};
use super::{MESSAGE, PAGE};
use crate::Root;

/// How often it checks that a process still runs the same program.
const CHECK: Duration = Duration::from_millis(50);
/// How often it takes queued events.
const DRAIN: Duration = Duration::from_millis(10);
/// How often it publishes what it counted of events, and makes the driver deliver the rest.
const PUBLISH: Duration = Duration::from_millis(250);

/// Why a tracker is closed.
const ENDED: &str = "the process has ended";
const REPLACED: &str = "the program closed the driver, or was replaced";
const STOPPED: &str = "it is no longer watched";

/// Runs the helper until the dashboard is gone. Call this in a process of its own, before anything else.
///
/// # Errors
/// If its descriptors are not those that the dashboard passes.
pub fn run_helper(root: &Root) -> io::Result<()> {
    // This fails if the process leads a session already. Then no terminal can stop it either.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"gpumem-uvm");
    // A stopped helper would not notice that the dashboard is gone.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let board = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Helper {
        root: root.clone(),
        socket,
        board,
        slots: std::iter::repeat_with(|| None).take(SLOTS).collect(),
        events: None,
        checked: Instant::now(),
    }
    .run()
}

/// A process whose bytes and faults are counted.
struct Counting {
    number: u64,
    tracker: Tracker,
}

/// The one process whose events are delivered.
struct Listening {
    number: u64,
    tracker: Tracker,
    flusher: Option<Flusher>,
    aggregator: Aggregator,
    writer: Writer,
    published: Instant,
    news: bool,
}

struct Helper {
    root: Root,
    socket: OwnedFd,
    board: File,
    slots: Vec<Option<Counting>>,
    events: Option<Listening>,
    checked: Instant,
}

impl Helper {
    fn run(mut self) -> io::Result<()> {
        loop {
            let ready = match self.wait() {
                Err(Errno::INTR) => continue,
                ready => ready?,
            };
            // Processes that have ended come first: their memory is held until their trackers are closed.
            self.release(&ready);
            if ready.first() == Some(&true) && !self.obey()? {
                return Ok(());
            }
            if self.checked.elapsed() >= CHECK {
                self.checked = Instant::now();
                self.release_replaced();
            }
            self.take_events();
        }
    }

    fn trackers(&self) -> impl Iterator<Item = &Tracker> {
        let listening = self.events.iter().map(|events| &events.tracker);
        let counting = self.slots.iter().flatten().map(|counting| &counting.tracker);
        counting.chain(listening)
    }

    /// Waits for a message, the end of a process, or the next thing to do. Returns which are ready: the socket, then the trackers.
    fn wait(&self) -> rustix::io::Result<Vec<bool>> {
        let timeout = match (&self.events, self.trackers().next()) {
            (Some(_), _) => Some(DRAIN),
            (None, Some(_)) => Some(CHECK),
            (None, None) => None,
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let fds: Vec<BorrowedFd<'_>> = std::iter::once(self.socket.as_fd())
            .chain(self.trackers().map(Tracker::pidfd))
            .collect();
        let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        poll(&mut polled, timeout.as_ref())?;
        Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    /// Closes the trackers of processes that have ended, and then tells the dashboard.
    fn release(&mut self, ready: &[bool]) {
        let mut ended = ready.iter().skip(1).copied();
        let mut told = Vec::new();
        for slot in &mut self.slots {
            if slot.is_some() && ended.next() == Some(true) {
                told.extend(close(slot, ENDED));
            }
        }
        if self.events.is_some() && ended.next() == Some(true) {
            self.end_events(ENDED);
        }
        told.iter().for_each(|message| self.tell(message));
    }

    fn release_replaced(&mut self) {
        let mut told = Vec::new();
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|counting| !counting.tracker.is_current()) {
                told.extend(close(slot, REPLACED));
            }
        }
        if self.events.as_ref().is_some_and(|events| !events.tracker.is_current()) {
            self.end_events(REPLACED);
        }
        told.iter().for_each(|message| self.tell(message));
    }

    fn end_events(&mut self, why: &str) {
        if let Some(Listening {
            number,
            tracker,
            aggregator,
            writer,
            ..
        }) = self.events.take()
        {
            let processors = tracker.processors().to_vec();
            drop(tracker);
            writer.write(&aggregator.sums, &aggregator.blocks, &processors);
            self.tell(&off(number, why));
        }
    }

    /// Sends a message to the dashboard. A stopped dashboard reads it later.
    fn tell(&self, message: &str) {
        let _ = send(
            &self.socket,
            message.as_bytes(),
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }

    /// Handles one message. Returns `false` if the dashboard is gone.
    fn obey(&mut self) -> io::Result<bool> {
        let mut bytes = [0; MESSAGE];
        let length = match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(false),
            Ok((length, _)) => length,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
            Err(e) => return Err(e.into()),
        };
        let message = String::from_utf8_lossy(&bytes[..length]);
        let mut words = message.split(' ');
        let verb = words.next();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match verb {
            Some("count") => {
                if let (Some(n), Some(slot), Some(pid), Some(start)) = (number(), number(), number(), number()) {
                    self.count(n, slot as usize, target(pid, start));
                }
            }
            Some("events") => {
                if let (Some(n), Some(pid), Some(start)) = (number(), number(), number()) {
                    self.listen(n, target(pid, start));
                }
            }
            Some("stop") => {
                if let Some(n) = number() {
                    self.stop(n);
                }
            }
            _ => {}
        }
        Ok(true)
    }

    fn count(&mut self, number: u64, slot: usize, target: Target) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        *place = None;
        let page = Shared::of_file(&self.board, board::slot_offset(slot), PAGE as usize);
        let tracker = page
            .map_err(|e| e.to_string())
            .and_then(|page| Tracker::count(&self.root, target, page));
        match tracker {
            Ok(tracker) => {
                *place = Some(Counting { number, tracker });
                self.tell(&on(number));
            }
            Err(why) => self.tell(&off(number, &why)),
        }
    }

    fn stop(&mut self, number: u64) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|counting| counting.number == number) {
                *slot = None;
            }
        }
        if self.events.as_ref().is_some_and(|events| events.number == number) {
            self.events = None;
        }
        self.tell(&off(number, STOPPED));
    }

    fn listen(&mut self, number: u64, target: Target) {
        self.events = None;
        let listening = Tracker::listen(&self.root, target).and_then(|tracker| {
            let writer = Writer::new(&self.board).map_err(|e| e.to_string())?;
            let aggregator = Aggregator::default();
            writer.write(&aggregator.sums, &[], tracker.processors());
            Ok(Listening {
                number,
                tracker,
                flusher: Flusher::open(&self.root),
                aggregator,
                writer,
                published: Instant::now(),
                news: false,
            })
        });
        match listening {
            Ok(listening) => {
                self.events = Some(listening);
                self.tell(&on(number));
            }
            Err(why) => self.tell(&off(number, &why)),
        }
    }

    fn take_events(&mut self) {
        let Some(events) = &mut self.events else { return };
        events.news |= events.tracker.drain(&mut events.aggregator);
        if events.published.elapsed() < PUBLISH {
            return;
        }
        events.published = Instant::now();
        if let Some(flusher) = &events.flusher {
            flusher.flush();
        }
        if std::mem::take(&mut events.news) {
            let Aggregator { sums, blocks, .. } = &events.aggregator;
            events.writer.write(sums, blocks, events.tracker.processors());
        }
    }
}

/// Closes the tracker of a slot. Returns the message for the dashboard.
fn close(slot: &mut Option<Counting>, why: &str) -> Option<String> {
    let Counting { number, tracker } = slot.take()?;
    drop(tracker);
    Some(off(number, why))
}

fn on(number: u64) -> String {
    format!("on {number}")
}

fn off(number: u64, why: &str) -> String {
    format!("off {number} {why}")
}

fn target(pid: u64, start_time: u64) -> Target {
    Target {
        pid: u32::try_from(pid).unwrap_or(0),
        start_time,
    }
}
