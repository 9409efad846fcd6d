//! The dashboard's side of the helper process: which processes are watched, and what is known of each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::board::{self, BYTES, Events, SLOTS};
use super::tracker::Target;
use super::{Counters, MESSAGE};

/// How long the helper may take to close a tracker whose process has ended. Then it is killed, which closes all: it was stopped, or starves.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the helper may take to answer a message.
const ANSWER: Duration = Duration::from_secs(2);
/// How long nothing is tried again after the helper did not start or did not answer.
const PAUSE: Duration = Duration::from_secs(10);

/// What is known of a watched process's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watching {
    /// The helper was asked to watch it.
    Pending,
    /// It is watched.
    On,
    /// It is not: a sentence on why, and what grants it.
    Off(String),
}

#[derive(Debug)]
struct Watched {
    slot: Option<usize>,
    state: Watching,
    /// Readable at the process's end; `None` where the kernel gives none.
    pidfd: Option<OwnedFd>,
    asked: Instant,
}

#[derive(Debug)]
struct Helper {
    child: Child,
    socket: OwnedFd,
    board: File,
}

/// The watch over processes: it starts the helper when somebody is to be watched and ends it when nobody is.
#[derive(Debug)]
pub struct UvmWatch {
    command: fn() -> Command,
    helper: Option<Helper>,
    watched: BTreeMap<Target, Watched>,
    /// The process whose events are wanted, and how that stands.
    events: Option<(Target, Watched)>,
    failed: Option<(Instant, String)>,
}

impl UvmWatch {
    /// Nobody is watched yet. `command` runs the helper: a program that calls [`run_helper`](super::run_helper).
    pub fn new(command: fn() -> Command) -> UvmWatch {
        UvmWatch {
            command,
            helper: None,
            watched: BTreeMap::new(),
            events: None,
            failed: None,
        }
    }

    /// Watches these processes and no others, and the events of `events` alone. One that could not be watched is tried again every
    /// ten seconds.
    pub fn set(&mut self, targets: &[Target], events: Option<Target>) {
        let gone: Vec<Target> = self.watched.keys().filter(|t| !targets.contains(t)).copied().collect();
        for target in gone {
            if let Some(slot) = self.watched.remove(&target).and_then(|watched| watched.slot) {
                self.send(&format!("stop {slot}"));
            }
        }
        if self.events.as_ref().map(|(target, _)| *target) != events {
            if self.events.take().is_some() {
                self.send("quiet");
            }
            if let Some(target) = events {
                let state = self.ask(&format!("events {} {}", target.pid, target.start_time));
                self.events = Some((target, watched(target, None, state)));
            }
        }
        for &target in targets {
            let before = self.watched.get(&target);
            if before.is_some_and(|w| !matches!(w.state, Watching::Off(_)) || w.asked.elapsed() < PAUSE) {
                continue;
            }
            self.watched.remove(&target);
            let used: Vec<usize> = self.watched.values().filter_map(|w| w.slot).collect();
            let free = (0..SLOTS).find(|slot| !used.contains(slot));
            let state = match free {
                Some(slot) => self.ask(&format!("count {slot} {} {}", target.pid, target.start_time)),
                None => Watching::Off(format!("{SLOTS} processes are watched, and no more can be")),
            };
            self.watched.insert(target, watched(target, free, state));
        }
        if targets.is_empty() && events.is_none() {
            self.end();
        }
    }

    /// How the watch over a process stands; `None` for one that is not to be watched.
    pub fn state(&self, target: Target) -> Option<&Watching> {
        self.watched.get(&target).map(|watched| &watched.state)
    }

    /// How the delivery of events stands.
    pub fn events_state(&self) -> Option<(Target, &Watching)> {
        self.events.as_ref().map(|(target, watched)| (*target, &watched.state))
    }

    /// The counters of a process that is watched, since then.
    pub fn counters(&self, target: Target) -> Option<Counters> {
        let watched = self.watched.get(&target)?;
        let slot = watched.slot.filter(|_| watched.state == Watching::On)?;
        board::read_counters(&self.helper.as_ref()?.board, slot).ok()
    }

    /// What events say so far; `None` where none are delivered, or while the helper writes.
    pub fn events(&self) -> Option<Events> {
        let (_, watched) = self.events.as_ref()?;
        let delivered = watched.state == Watching::On;
        board::read_events(&self.helper.as_ref().filter(|_| delivered)?.board).ok()?
    }

    /// Waits so long, hears what the helper says meanwhile, and makes sure that it lets go of whoever ends.
    pub fn wait(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.hear();
            let ended = self.ended();
            self.insist(ended);
            if left.is_zero() {
                return;
            }
            self.sleep(left);
        }
    }

    /// Sleeps until the helper says something, a process ends, or `time` has passed.
    fn sleep(&self, time: Duration) {
        let Some(helper) = &self.helper else {
            return std::thread::sleep(time);
        };
        let pidfds = self
            .all()
            .filter(|w| w.state == Watching::On)
            .filter_map(|w| w.pidfd.as_ref());
        let fds: Vec<_> = std::iter::once(&helper.socket).chain(pidfds).collect();
        let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(time).ok();
        // Interrupted or not, the caller looks at the clock.
        let _ = poll(&mut polled, timeout.as_ref());
    }

    fn all(&self) -> impl Iterator<Item = &Watched> {
        self.watched
            .values()
            .chain(self.events.iter().map(|(_, watched)| watched))
    }

    /// Whether somebody who is watched has ended.
    fn ended(&self) -> bool {
        let pidfds: Vec<_> = self
            .all()
            .filter(|w| w.state == Watching::On)
            .filter_map(|w| w.pidfd.as_ref())
            .collect();
        let mut polled: Vec<_> = pidfds.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
        let now = Timespec::default();
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Kills a helper that does not let go of a process that has ended, or does not answer.
    fn insist(&mut self, ended: bool) {
        if self.helper.is_none() {
            return;
        }
        if ended {
            let until = Instant::now() + PATIENCE;
            while self.ended() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return self.fail("its helper process did not close a tracker in time and was ended".into());
                }
                std::thread::sleep(left.min(Duration::from_millis(2)));
                self.hear();
            }
        }
        let late = |w: &Watched| w.state == Watching::Pending && w.asked.elapsed() > ANSWER;
        if self.all().any(late) {
            self.fail("its helper process does not answer".into());
        }
    }

    /// Takes the helper's messages.
    fn hear(&mut self) {
        let mut bytes = [0; MESSAGE];
        while let Some(helper) = &self.helper {
            match recv(&helper.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return self.fail("its helper process has ended".into()),
                Ok((length, _)) => {
                    let message = gpumem_text::clean_line(&bytes[..length], MESSAGE);
                    self.note(&message);
                }
                Err(_) => return,
            }
        }
    }

    fn note(&mut self, message: &str) {
        let (verb, rest) = message.split_once(' ').unwrap_or((message, ""));
        let slot = rest.split(' ').next().and_then(|slot| slot.parse().ok());
        let of_slot = self.watched.values_mut().filter(|w| w.slot.is_some() && w.slot == slot);
        let reason = || rest.split_once(' ').map_or("", |(_, reason)| reason).to_owned();
        match verb {
            "on" => of_slot.for_each(|w| w.state = Watching::On),
            "off" => of_slot.for_each(|w| w.state = Watching::Off(reason())),
            "events-on" | "events-off" => {
                if let Some((_, events)) = &mut self.events {
                    events.state = match verb {
                        "events-on" => Watching::On,
                        _ => Watching::Off(rest.to_owned()),
                    };
                }
            }
            _ => {}
        }
    }

    /// Sends a message that asks for an answer, to a helper that is started if there is none.
    fn ask(&mut self, message: &str) -> Watching {
        if let Some((at, why)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Watching::Off(why.clone());
        }
        if self.helper.is_none() {
            match start((self.command)()) {
                Ok(helper) => self.helper = Some(helper),
                Err(e) => {
                    self.fail(format!("its helper process cannot be started: {e}"));
                    return self.ask(message);
                }
            }
        }
        self.send(message);
        Watching::Pending
    }

    fn send(&mut self, message: &str) {
        if let Some(helper) = &self.helper {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if send(&helper.socket, message.as_bytes(), flags).is_err() {
                self.fail("its helper process does not listen".into());
            }
        }
    }

    /// Ends the helper, and says of everybody why nothing is known.
    fn fail(&mut self, why: String) {
        self.end();
        let all = self.watched.values_mut().chain(self.events.iter_mut().map(|(_, w)| w));
        for watched in all.filter(|w| !matches!(w.state, Watching::Off(_))) {
            watched.state = Watching::Off(why.clone());
        }
        self.failed = Some((Instant::now(), why));
    }

    /// Ends the helper, which closes every tracker.
    fn end(&mut self) {
        if let Some(Helper { mut child, .. }) = self.helper.take() {
            // Neither fails for a child that was not waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for UvmWatch {
    fn drop(&mut self) {
        self.end();
    }
}

fn watched(target: Target, slot: Option<usize>, state: Watching) -> Watched {
    let pid = i32::try_from(target.pid).ok().and_then(Pid::from_raw);
    Watched {
        slot,
        state,
        pidfd: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        asked: Instant::now(),
    }
}

fn start(mut command: Command) -> io::Result<Helper> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let board = rustix::fs::memfd_create(c"gpumem-uvm", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&board, BYTES)?;
    let shared = board.as_fd().try_clone_to_owned()?;
    command
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(shared))
        .stderr(Stdio::null());
    let child = command.spawn()?;
    // The command keeps its ends of them until it is dropped; a socket without another end tells that the helper is gone.
    drop(command);
    Ok(Helper {
        child,
        socket: ours,
        board: File::from(board),
    })
}
