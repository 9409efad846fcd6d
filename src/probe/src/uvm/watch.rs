//! The dashboard's side of the helper process: which processes are watched, and the state of each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::board::{self, BYTES, Events, SLOTS};
use super::tracker::Target;
use super::{Counters, MESSAGE};

/// How long the helper may take to close a tracker whose process has ended. A helper that takes longer is stopped or starved of CPU time.
/// It is killed, which closes all trackers.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the helper may take to answer a message.
const ANSWER: Duration = Duration::from_secs(2);
/// How long the watch waits before it tries again after the helper did not start or did not answer.
const PAUSE: Duration = Duration::from_secs(10);

/// The state of the watch over a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watching {
    /// The helper was asked to watch it.
    Pending,
    /// It is watched.
    On,
    /// It is not watched. The message says why, and which permission is missing.
    Off(String),
}

#[derive(Debug)]
struct Watched {
    /// The number of the request to the helper.
    number: u64,
    /// The slot of its counters. `None` for events, and for a process that is not watched.
    slot: Option<usize>,
    state: Watching,
    /// Becomes readable when the process ends. `None` if the kernel gives no such descriptor.
    pidfd: Option<OwnedFd>,
    asked: Instant,
}

#[derive(Debug)]
struct Helper {
    child: Child,
    socket: OwnedFd,
    board: File,
}

impl Helper {
    /// Whether a signal has stopped it. Only its parent, which is this process, can find that out.
    fn is_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), options);
        status.is_ok_and(|status| status.is_some_and(|status| status.stopped()))
    }
}

/// The watch over processes. It starts the helper when the first process is to be watched, and ends it after the last.
#[derive(Debug)]
pub struct UvmWatch {
    command: fn() -> Command,
    helper: Option<Helper>,
    watched: BTreeMap<Target, Watched>,
    /// The process whose events are wanted, and the state of their delivery.
    events: Option<(Target, Watched)>,
    /// Processes that the helper was asked to stop watching, until it confirms that it has closed their trackers.
    leaving: Vec<Watched>,
    /// Number of requests so far.
    requests: u64,
    failed: Option<(Instant, String)>,
}

impl UvmWatch {
    /// Makes a watch over no process. `command` runs the helper: a program that calls [`run_helper`](super::run_helper). The helper ends
    /// with the thread that starts it, which is the one that calls [`set`](Self::set).
    pub fn new(command: fn() -> Command) -> UvmWatch {
        UvmWatch {
            command,
            helper: None,
            watched: BTreeMap::new(),
            events: None,
            leaving: Vec::new(),
            requests: 0,
            failed: None,
        }
    }

    /// Watches these processes and no others, and the events of `events` alone. One that could not be watched is tried again every
    /// ten seconds.
    pub fn set(&mut self, targets: &[Target], events: Option<Target>) {
        let gone: Vec<Target> = self.watched.keys().filter(|t| !targets.contains(t)).copied().collect();
        for target in gone {
            if let Some(watched) = self.watched.remove(&target) {
                self.leave(watched);
            }
        }
        if self.events.as_ref().map(|(target, _)| *target) != events {
            if let Some((_, watched)) = self.events.take() {
                self.leave(watched);
            }
            if let Some(target) = events {
                let watched = self.ask(target, None);
                self.events = Some((target, watched));
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
            let watched = match free {
                Some(slot) => self.ask(target, Some(slot)),
                None => Watched::off(format!("{SLOTS} processes are watched, and no more can be")),
            };
            self.watched.insert(target, watched);
        }
        if targets.is_empty() && events.is_none() {
            self.end();
        }
    }

    /// Returns the state of the watch over a process. `None` for one that is not to be watched.
    pub fn state(&self, target: Target) -> Option<&Watching> {
        self.watched.get(&target).map(|watched| &watched.state)
    }

    /// Returns the state of the delivery of events.
    pub fn events_state(&self) -> Option<(Target, &Watching)> {
        self.events.as_ref().map(|(target, watched)| (*target, &watched.state))
    }

    /// Returns the counters of a watched process, since the watch over it began.
    pub fn counters(&self, target: Target) -> Option<Counters> {
        let watched = self.watched.get(&target)?;
        let slot = watched.slot.filter(|_| watched.state == Watching::On)?;
        board::read_counters(&self.helper.as_ref()?.board, slot).ok()
    }

    /// Returns the events so far. `None` if none are delivered, or while the helper writes.
    pub fn events(&self) -> Option<Events> {
        let (_, watched) = self.events.as_ref()?;
        let delivered = watched.state == Watching::On;
        board::read_events(&self.helper.as_ref().filter(|_| delivered)?.board).ok()?
    }

    /// Waits for `time`, takes the helper's messages meanwhile, and makes sure that the trackers of processes that end are closed.
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

    /// Sleeps until there is a message from the helper, a process ends, or `time` has passed.
    fn sleep(&self, time: Duration) {
        let Some(helper) = &self.helper else {
            return std::thread::sleep(time);
        };
        let fds: Vec<_> = std::iter::once(&helper.socket).chain(self.held()).collect();
        let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
        // A stop of the helper does not wake this thread, so it wakes up by itself to check.
        let time = if polled.len() > 1 { time.min(PATIENCE) } else { time };
        let timeout = Timespec::try_from(time).ok();
        // An interrupted wait is fine: the caller checks the time.
        let _ = poll(&mut polled, timeout.as_ref());
    }

    fn all(&self) -> impl Iterator<Item = &Watched> {
        let events = self.events.iter().map(|(_, watched)| watched);
        self.watched.values().chain(events).chain(&self.leaving)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Watched> {
        let events = self.events.iter_mut().map(|(_, watched)| watched);
        self.watched.values_mut().chain(events).chain(&mut self.leaving)
    }

    /// Returns the descriptors of the processes for which the helper has a tracker open, as far as is known.
    fn held(&self) -> impl Iterator<Item = &OwnedFd> {
        let on = self.all().filter(|watched| watched.state == Watching::On);
        on.filter_map(|watched| watched.pidfd.as_ref())
    }

    /// Returns whether a watched process has ended.
    fn ended(&self) -> bool {
        let mut polled: Vec<_> = self.held().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let now = Timespec::default();
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Kills a helper that is stopped, does not close the tracker of a process that has ended, or does not answer.
    fn insist(&mut self, ended: bool) {
        let Some(helper) = &self.helper else { return };
        if helper.is_stopped() {
            return self.fail("its helper process was stopped and has been ended".into());
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
        let awaited = self.all().filter(|w| w.state == Watching::Pending).chain(&self.leaving);
        if awaited.into_iter().any(|w| w.asked.elapsed() > ANSWER) {
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
        let mut words = message.splitn(3, ' ');
        let verb = words.next();
        let Some(number) = words.next().and_then(|number| number.parse().ok()) else {
            return;
        };
        let reason = words.next().unwrap_or_default();
        if verb == Some("off") {
            self.leaving.retain(|watched| watched.number != number);
        }
        // A message about an earlier request is ignored: another process may have its slot now.
        let Some(watched) = self.all_mut().find(|watched| watched.number == number) else {
            return;
        };
        match verb {
            Some("on") => watched.state = Watching::On,
            Some("off") => watched.turn_off(reason.to_owned()),
            _ => {}
        }
    }

    /// Asks the helper to watch a process: to count in a slot, or to deliver events. Starts the helper if there is none.
    fn ask(&mut self, target: Target, slot: Option<usize>) -> Watched {
        if let Some((at, why)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Watched::off(why.clone());
        }
        if self.helper.is_none() {
            match start((self.command)()) {
                Ok(helper) => self.helper = Some(helper),
                Err(e) => self.fail(format!("its helper process cannot be started: {e}")),
            }
        }
        self.requests += 1;
        let number = self.requests;
        let Target { pid, start_time } = target;
        self.send(&match slot {
            Some(slot) => format!("count {number} {slot} {pid} {start_time}"),
            None => format!("events {number} {pid} {start_time}"),
        });
        match (&self.helper, &self.failed) {
            (None, Some((_, why))) => Watched::off(why.clone()),
            _ => Watched::pending(number, slot, pid),
        }
    }

    /// Tells the helper to close a tracker. Until it has, it must not keep what the process holds if that ends.
    fn leave(&mut self, mut watched: Watched) {
        if matches!(watched.state, Watching::Off(_)) {
            return;
        }
        self.send(&format!("stop {}", watched.number));
        if self.helper.is_some() {
            (watched.state, watched.asked) = (Watching::On, Instant::now());
            self.leaving.push(watched);
        }
    }

    fn send(&mut self, message: &str) {
        if let Some(helper) = &self.helper {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if send(&helper.socket, message.as_bytes(), flags).is_err() {
                self.fail("its helper process does not listen".into());
            }
        }
    }

    /// Ends the helper, and sets the reason for all processes.
    fn fail(&mut self, why: String) {
        self.end();
        for watched in self.all_mut().filter(|w| !matches!(w.state, Watching::Off(_))) {
            watched.turn_off(why.clone());
        }
        self.failed = Some((Instant::now(), why));
    }

    /// Ends the helper, which closes every tracker.
    fn end(&mut self) {
        self.leaving.clear();
        if let Some(Helper { mut child, .. }) = self.helper.take() {
            // Neither call fails for a child that was not waited for.
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

impl Watched {
    fn pending(number: u64, slot: Option<usize>, pid: u32) -> Watched {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Watched {
            number,
            slot,
            state: Watching::Pending,
            pidfd: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            asked: Instant::now(),
        }
    }

    /// Makes an entry for a process without a request. No request has its number.
    fn off(why: String) -> Watched {
        Watched {
            number: 0,
            slot: None,
            state: Watching::Off(why),
            pidfd: None,
            asked: Instant::now(),
        }
    }

    /// Frees its slot for another process.
    fn turn_off(&mut self, why: String) {
        (self.slot, self.state) = (None, Watching::Off(why));
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
    // The command keeps its ends of the descriptors until it is dropped. A socket whose other end is closed means that the helper is gone.
    drop(command);
    Ok(Helper {
        child,
        socket: ours,
        board: File::from(board),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns a helper that sends no messages.
    fn silent() -> Command {
        let mut command = Command::new("sleep");
        command.arg("20");
        command
    }

    fn target(pid: u32) -> Target {
        Target { pid, start_time: 0 }
    }

    fn own() -> Target {
        target(std::process::id())
    }

    #[test]
    fn late_messages_are_not_about_the_next_process() {
        let mut watch = UvmWatch::new(silent);
        let [first, second] = [target(1), own()];
        watch.set(&[first], Some(first));
        watch.set(&[second], Some(second));
        assert_eq!(watch.watched[&second].slot, watch.leaving[0].slot);
        for late in [
            "on 1",
            "off 1 the process has ended",
            "on 2",
            "off 2 gone",
            "off 1 again",
            "on 99",
        ] {
            watch.note(late);
            assert_eq!(watch.state(second), Some(&Watching::Pending), "{late}");
            assert_eq!(watch.events_state(), Some((second, &Watching::Pending)), "{late}");
        }
        assert!(watch.leaving.is_empty());
        let numbers = [watch.watched[&second].number, watch.events.as_ref().unwrap().1.number];
        watch.note(&format!("on {}", numbers[0]));
        watch.note(&format!("off {} why it is so", numbers[1]));
        assert_eq!(watch.state(second), Some(&Watching::On));
        let off = Watching::Off("why it is so".into());
        assert_eq!(watch.events_state(), Some((second, &off)));
    }

    #[test]
    fn messages_that_make_no_sense_change_nothing() {
        let mut watch = UvmWatch::new(silent);
        watch.set(&[own()], None);
        let too_large = "on 18446744073709551616";
        for message in [
            "", " ", "on", "off", "on x", "on -1", "off 0 x", "1 on", too_large, "mad 1", "on  1",
        ] {
            watch.note(message);
            assert_eq!(watch.state(own()), Some(&Watching::Pending), "{message}");
        }
    }

    /// Processes that cannot be watched stay listed, and must not take the place of others.
    #[test]
    fn processes_that_are_not_watched_take_no_slots() {
        let mut watch = UvmWatch::new(silent);
        let named = |start_time| Target { start_time, ..own() };
        let mut targets: Vec<Target> = (0..10).map(named).collect();
        watch.set(&targets, None);
        for number in 1..=10 {
            watch.note(&format!("off {number} it has no managed memory"));
        }
        targets.extend((100..=100 + SLOTS as u64).map(named));
        watch.set(&targets, None);
        let pending = |target: &&Target| watch.state(**target) == Some(&Watching::Pending);
        assert_eq!(targets.iter().filter(pending).count(), SLOTS);
        // A process that is not watched has no slot, and dropping it frees none.
        watch.set(&targets[5..], None);
        assert!(watch.leaving.is_empty());
    }

    /// The helper runs, but does not close a tracker in time.
    #[test]
    fn busy_helper_is_ended_when_a_dropped_process_ends() {
        let mut watch = UvmWatch::new(silent);
        let mut program = silent().spawn().unwrap();
        watch.set(&[target(program.id()), own()], None);
        watch.note("on 1");
        watch.note("on 2");
        watch.set(&[own()], None);
        watch.wait(Duration::from_millis(5));
        assert_eq!(watch.state(own()), Some(&Watching::On));
        program.kill().unwrap();
        watch.wait(Duration::from_millis(100));
        assert!(matches!(watch.state(own()), Some(Watching::Off(_))));
        assert!(watch.helper.is_none() && watch.leaving.is_empty());
        program.wait().unwrap();
    }

    #[test]
    fn a_helper_that_does_not_start_is_not_tried_again_at_once() {
        let mut watch = UvmWatch::new(|| Command::new("/nonexistent"));
        watch.set(&[own(), target(1)], Some(own()));
        let states = [watch.state(own()), watch.events_state().map(|(_, state)| state)];
        for state in states {
            let Some(Watching::Off(why)) = state else {
                unreachable!("{state:?}")
            };
            assert!(why.starts_with("its helper process cannot be started: "), "{why}");
        }
    }

    #[test]
    fn a_helper_that_ends_at_once_is_not_waited_for() {
        let mut watch = UvmWatch::new(|| Command::new("true"));
        watch.set(&[own()], None);
        let begin = Instant::now();
        while watch.state(own()) == Some(&Watching::Pending) && begin.elapsed() < ANSWER {
            watch.wait(Duration::from_millis(5));
        }
        let Some(Watching::Off(why)) = watch.state(own()) else {
            unreachable!("{watch:?}")
        };
        assert!(why.starts_with("its helper process "), "{why}");
        assert!(begin.elapsed() < ANSWER);
    }
}
