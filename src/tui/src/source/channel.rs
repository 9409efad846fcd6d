//! Finds and reads channels, and finds the processes that publish them.

mod checks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpumem_channel::{Life, OpenError, discover, removed_channel_of};
use gpumem_probe::{Claim, Facts, ForeignPid, PidTranslator, Users};
use gpumem_text::clean;

use super::open::Open;
use super::others::Others;
use super::sampler::{sleep_until_tick, tick_after};
use super::{Requests, Source, descriptors};
use crate::check::Check;
use crate::clock;
use crate::model::{
    Channel, ChannelKey, ChannelSample, DISCOVER, DeviceKey, Glance, Held, Inputs, LeftOut, MAX_MARKS, MAX_POINTS,
    Problem, ProblemKind, Request, Sample,
};

/// Most glances from one sample to the next.
const GLANCES: u32 = 5;
/// Least time between two glances.
const MIN_GLANCE: Duration = Duration::from_millis(200);

/// Time between samples while a view shows the pages of a simulated device, which move as fast as one can follow, or while a program
/// that was just started is looked for.
const OFTEN: Duration = Duration::from_millis(100);
/// The most scans for one program that was just started.
const AWAITED: u32 = 50;

/// How often the open files of programs without a known channel are searched for a removed one.
const SEARCH: Duration = Duration::from_secs(30);

/// How many users with hidden channels are looked up by name. The others are listed by uid.
const NAMED: usize = 64;

/// Every channel that this user may read.
#[derive(Default)]
pub(super) struct Channels {
    open: HashMap<ChannelKey, Open>,
    /// What is known of other users' channels, open or not.
    others: Others,
    refused: BTreeMap<ChannelKey, Refused>,
    /// The glances since the last sample.
    glances: Vec<Glance>,
    /// What was held at the last glance.
    held: BTreeMap<DeviceKey, Held>,
    /// Channels of `open` whose files were removed while their publishers live.
    removed: HashSet<ChannelKey>,
    /// Programs without a known channel that still hold the file of a removed one, with its former path.
    unseen: Vec<(u32, PathBuf)>,
    /// Programs whose open files were searched for a removed channel since `searched_since`.
    searched: HashSet<u32>,
    searched_since: Option<Instant>,
    /// Sum of the event counts of live channels at the last sample.
    events: u64,
    /// Whether `events` changed with the last sample.
    busy: bool,
    /// Problems of the directories in the last scan.
    directory_problems: Vec<Problem>,
    /// What the last scan did not reach.
    unreached: Option<Problem>,
    scanned: Option<Instant>,
    /// The program that was looked for last before a scan was due, and how often.
    awaited: (u32, u32),
    translator: PidTranslator,
    users: Users,
}

impl Source for Channels {
    fn name(&self) -> &'static str {
        "channels"
    }

    fn sample(&mut self, request: &Request) -> Sample {
        Sample::Channels(self.pass(request))
    }

    fn merge(&self, old: Sample, new: Sample) -> Sample {
        match (old, new) {
            (Sample::Channels(old), Sample::Channels(new)) => Sample::Channels(merge(old, new)),
            (_, new) => new,
        }
    }

    fn wait(&mut self, pace: Duration, requests: &Requests) -> bool {
        let awaited = self.awaited;
        let often = |request: &Request| request.managed.simulated || may_await(awaited, request.expected);
        if often(&requests.newest()) {
            sleep_until_tick(pace.min(OFTEN));
            return true;
        }
        let glance = (pace / GLANCES).max(MIN_GLANCE);
        // Without new events there is nothing to see between samples.
        while self.busy && tick_after(glance) < tick_after(pace) {
            sleep_until_tick(glance);
            self.glance();
        }
        requests.sleep_unless(pace, often);
        true
    }

    fn checks(&self, facts: &Facts, inputs: &Inputs) -> Vec<Check> {
        checks::all(facts, &inputs.channels)
    }
}

/// Adds the events of a sample that was not taken to the newer one. The lists are cut to what the timeline keeps.
fn merge(old: ChannelSample, mut new: ChannelSample) -> ChannelSample {
    let mut glances = old.glances;
    glances.append(&mut new.glances);
    let surplus = glances.len().saturating_sub(MAX_POINTS);
    new.glances = glances.split_off(surplus);
    let mut marks = old.marks;
    marks.append(&mut new.marks);
    let surplus = marks.len().saturating_sub(MAX_MARKS);
    new.marks = marks.split_off(surplus);
    new.past.extend(old.past);
    new.lost.extend(old.lost);
    new.lost.truncate(MAX_MARKS);
    new
}

/// A file that could not be opened.
struct Refused {
    problem: Problem,
    /// The system failed to open it, so it is tried again.
    is_transient: bool,
}

impl Channels {
    /// Reads all channels, and scans for new ones first when that is due.
    fn pass(&mut self, request: &Request) -> ChannelSample {
        let due = self
            .scanned
            .is_none_or(|at| at.elapsed() >= Duration::from_nanos(DISCOVER));
        let scan = due || self.awaits(request.expected);
        if scan {
            self.scan();
            self.scanned = Some(Instant::now());
        }
        let mut sample = ChannelSample {
            glances: std::mem::take(&mut self.glances),
            ..ChannelSample::default()
        };
        for (key, open) in &mut self.open {
            open.pass(*key, request.blocks_of == Some(*key), &mut sample);
        }
        self.note_events(&sample.channels);
        sample.channels.sort_by_key(|c| c.key);
        sample.marks.sort_by_key(|m| m.at);
        self.translate(&mut sample.channels);
        if scan {
            self.search_for_removed(&sample.channels, &request.listed);
        }
        sample.problems.extend(
            self.directory_problems
                .iter()
                .chain(self.refused.values().map(|r| &r.problem))
                .chain(&self.unreached)
                .cloned(),
        );
        sample.problems.extend(self.removed(&sample.channels));
        sample.left_out = self.left_out();
        sample
    }

    /// Checks whether to look for a program that was just started, and counts it.
    fn awaits(&mut self, expected: Option<u32>) -> bool {
        let Some(pid) = expected.filter(|_| may_await(self.awaited, expected)) else {
            return false;
        };
        self.awaited = match self.awaited {
            (last, times) if last == pid => (pid, times + 1),
            _ => (pid, 1),
        };
        true
    }

    /// Notes whether the live channels have new events.
    fn note_events(&mut self, channels: &[Channel]) {
        // What was sampled changes no more often than the samples are taken.
        let tells = |c: &&Channel| c.snapshot.life == Life::Alive && c.snapshot.sampled.is_none();
        let living = channels.iter().filter(tells);
        let events = living.fold(0, |sum: u64, c| sum.wrapping_add(c.snapshot.event_count));
        self.busy = events != self.events;
        self.events = events;
    }

    /// Reads only what every publisher holds now.
    fn glance(&mut self) {
        let mut held = BTreeMap::new();
        for (key, open) in &mut self.open {
            open.glance(*key, &mut held);
        }
        let changed: Vec<Held> = held
            .values()
            .filter(|h| self.held.get(&h.device) != Some(h))
            .copied()
            .collect();
        self.held = held;
        if !changed.is_empty() {
            self.glances.push(Glance {
                at: clock::now(),
                held: changed,
            });
        }
    }

    /// Opens new channels and forgets those that are gone.
    ///
    /// A file that was refused is not tried again while it exists, because a publisher renames its file into place when it is
    /// complete. A file that the system could not open, for example for lack of descriptors, is tried again.
    fn scan(&mut self) {
        let scan = discover();
        self.directory_problems = scan
            .problems
            .iter()
            .map(|p| problem(&p.path, kind(p.kind), &p.reason))
            .collect();
        let keys: HashSet<ChannelKey> = scan.found.iter().map(|f| ChannelKey(f.key.0, f.key.1)).collect();
        let us = rustix::process::geteuid().as_raw();
        // After an incomplete scan a missing channel may still exist.
        if !scan.incomplete {
            self.keep_found(&keys);
        }
        let limit = descriptors::limit();
        let held = self.open.values().filter(|open| open.holds_file()).count() as u64;
        let mut room = descriptors::for_channels(limit).saturating_sub(held);
        let mut left_out = 0;
        for found in scan.found {
            let key = ChannelKey(found.key.0, found.key.1);
            if self.open.contains_key(&key) || self.others.knows(&key) || self.refused.contains_key(&key) {
                continue;
            }
            if room == 0 {
                left_out += 1;
                continue;
            }
            match found.open() {
                Ok(reader) if reader.identity().uid == us && found.is_own() => {
                    self.open.insert(key, Open::new(found, reader, None));
                    room -= 1;
                }
                Ok(mut reader) => self.others.note(key, found, &mut reader),
                Err(OpenError::Io(error)) if descriptors::out_of_descriptors(&error) => left_out += 1,
                Err(error) => {
                    let refused = Refused {
                        problem: problem(&found.path, ProblemKind::File, &error),
                        is_transient: matches!(error, OpenError::Io(_)),
                    };
                    self.refused.insert(key, refused);
                }
            }
        }
        left_out += self.others.open_chosen(&mut self.open, room);
        self.unreached = unreached(left_out, scan.incomplete, limit);
    }

    /// Forgets channels whose files are not in `keys`, unless the publisher lives and only its file was removed.
    fn keep_found(&mut self, keys: &HashSet<ChannelKey>) {
        self.removed.clear();
        let removed = &mut self.removed;
        self.open.retain(|key, open| {
            let there = keys.contains(key);
            if !there && open.is_removed_alive() {
                removed.insert(*key);
            }
            there || removed.contains(key)
        });
        // Removed ones still count against the limits of their users.
        self.others.retain(|key| keys.contains(key) || removed.contains(key));
        self.refused
            .retain(|key, refused| !refused.is_transient && keys.contains(key));
    }

    /// Sets the pids of live publishers in our namespace.
    fn translate(&mut self, channels: &mut [Channel]) {
        let alive = |c: &&mut Channel| c.snapshot.life == Life::Alive;
        let mut living: Vec<&mut Channel> = channels.iter_mut().filter(alive).collect();
        let wanted: Vec<ForeignPid> = living
            .iter()
            .map(|c| &c.snapshot.identity)
            .map(|i| ForeignPid {
                namespace: i.pid_namespace,
                pid: i.pid,
                start_time: i.start_time,
                uid: i.uid,
            })
            .collect();
        let found = self.translator.translate(&wanted, Instant::now());
        for (channel, claim) in living.iter_mut().zip(found) {
            match claim {
                Claim::Holds(pid) => channel.pid = Some(pid),
                Claim::OtherUser(pid) => channel.disputed = Some(pid),
                Claim::NotHere => {}
            }
        }
    }

    /// Finds programs among `pids` whose channel file was removed before it was opened here.
    ///
    /// A program is searched when it is new, and again every [`SEARCH`]. Reading a link for each of its open files with every
    /// scan would cost more than everything else that is sampled.
    fn search_for_removed(&mut self, channels: &[Channel], pids: &[u32]) {
        let known: HashSet<u32> = channels.iter().filter_map(|c| c.pid).collect();
        let unknown: Vec<u32> = pids.iter().copied().filter(|pid| !known.contains(pid)).collect();
        if self.searched_since.is_none_or(|since| since.elapsed() >= SEARCH) {
            self.searched.clear();
            self.unseen.clear();
            self.searched_since = Some(Instant::now());
        }
        let listed: HashSet<u32> = unknown.iter().copied().collect();
        self.searched.retain(|pid| listed.contains(pid));
        self.unseen.retain(|(pid, _)| listed.contains(pid));
        for pid in unknown {
            if self.searched.insert(pid)
                && let Some(path) = removed_channel_of(pid)
            {
                self.unseen.push((pid, path));
            }
        }
    }

    /// Returns a problem for each living program whose channel file was removed. Viewers that start later cannot see it.
    fn removed(&self, channels: &[Channel]) -> Vec<Problem> {
        let removed = |path: &Path, text: String| problem(path, ProblemKind::Removed, &text);
        let open = channels
            .iter()
            .filter(|c| self.removed.contains(&c.key))
            .filter_map(|c| {
                let pid = c.pid.unwrap_or(c.snapshot.identity.pid);
                let text = format!("removed while {pid} runs. Viewers that start now do not see what it publishes");
                Some(removed(self.open.get(&c.key)?.path(), text))
            });
        let unseen = self.unseen.iter().map(|(pid, path)| {
            let text = format!("removed while {pid} runs. What it publishes is not shown until it is restarted");
            removed(path, text)
        });
        open.chain(unseen).collect()
    }

    /// Returns what is not shown, by user. Only the first [`NAMED`] users have names, since looking up a name takes time.
    fn left_out(&mut self) -> Vec<LeftOut> {
        let mut left_out = self.others.left_out.clone();
        for (place, user) in left_out.iter_mut().enumerate() {
            user.user = match place < NAMED {
                true => self.users.name(user.uid),
                false => user.uid.to_string(),
            };
        }
        left_out
    }
}

/// Checks whether to look for a program that was just started. `awaited` says for which one that was done last, and how often.
fn may_await(awaited: (u32, u32), expected: Option<u32>) -> bool {
    expected.is_some_and(|pid| awaited.0 != pid || awaited.1 < AWAITED)
}

/// Returns the problem of a scan that did not reach every channel: `left_out` were found and could not be kept open, and after
/// an `incomplete` search there may be more.
fn unreached(left_out: u64, incomplete: bool, limit: u64) -> Option<Problem> {
    let left_out = (left_out > 0).then(|| format!("{left_out} of them were found and left out"));
    let search = incomplete.then(|| "the search ran out of open files or memory, so there may be more".to_owned());
    let parts: Vec<String> = left_out.into_iter().chain(search).collect();
    (!parts.is_empty()).then(|| Problem {
        kind: ProblemKind::Overflow,
        file: "files that were not reached".into(),
        text: format!(
            "{}. This program may have {limit} files open, some of them for other uses: raise ulimit -n",
            parts.join("; ")
        ),
    })
}

fn kind(kind: gpumem_channel::ProblemKind) -> ProblemKind {
    match kind {
        gpumem_channel::ProblemKind::Refused => ProblemKind::Directory,
        gpumem_channel::ProblemKind::Overflow => ProblemKind::Overflow,
    }
}

fn problem(path: &Path, kind: ProblemKind, error: &impl ToString) -> Problem {
    Problem {
        kind,
        file: clean(&path.to_string_lossy()),
        text: clean(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{DirBuilderExt, chown};
    use std::sync::Arc;

    use gpumem_channel::{Found, Options, Publisher, Snapshot};

    use super::*;

    fn channel(life: Life, event_count: u64) -> Channel {
        Channel {
            key: ChannelKey(1, 1),
            pid: None,
            disputed: None,
            snapshot: Arc::new(Snapshot {
                life,
                event_count,
                ..Snapshot::default()
            }),
            figures: Arc::from([]),
            error: None,
            read_at: 0,
            last_sign: None,
        }
    }

    #[test]
    fn unreached_channels_are_reported() {
        let text = |left_out, incomplete| unreached(left_out, incomplete, 1024).map(|problem| problem.text);
        assert_eq!(text(0, false), None);
        assert!(
            text(3, false)
                .is_some_and(|text| text.starts_with("3 of them were found and left out. This program may have 1024 "))
        );
        assert!(text(0, true).is_some_and(|text| text.starts_with("the search ran out ")));
        assert!(
            text(3, true)
                .is_some_and(|text| text.starts_with("3 of them were found and left out; the search ran out "))
        );
    }

    #[test]
    fn glances_are_taken_only_while_there_are_events() {
        let mut channels = Channels::default();
        let mut busy_after = |list: &[Channel]| {
            channels.note_events(list);
            channels.busy
        };
        assert!(!busy_after(&[]));
        assert!(!busy_after(&[channel(Life::Died, 9)]), "the dead do nothing");
        assert!(busy_after(&[channel(Life::Alive, 9)]));
        assert!(!busy_after(&[channel(Life::Alive, 9)]));
        assert!(busy_after(&[channel(Life::Alive, 10), channel(Life::Died, 9)]));
    }

    fn small(dir: &Path) -> Options {
        Options {
            dir: Some(dir.to_owned()),
            blocks: 1024,
            segments: 64,
            events: 64,
            ..Options::default()
        }
    }

    /// Otherwise a program that keeps publishing and removing files could make us keep any number of them open.
    #[test]
    fn removed_channel_counts_until_its_publisher_ends() {
        let dir = tempdir("removed");
        let publisher = Publisher::create(&small(&dir)).unwrap();
        let found = Found::named(publisher.path()).unwrap();
        let key = ChannelKey(found.key.0, found.key.1);
        let mut channels = Channels::default();
        channels.others.note(key, found.clone(), &mut found.open().unwrap());
        channels
            .open
            .insert(key, Open::new(found.clone(), found.open().unwrap(), None));
        std::fs::remove_file(publisher.path()).unwrap();
        channels.keep_found(&HashSet::new());
        let state = |channels: &Channels| (channels.others.knows(&key), channels.open.contains_key(&key));
        assert_eq!(state(&channels), (true, true));
        drop(publisher);
        channels.pass(&Request::default());
        channels.keep_found(&HashSet::new());
        assert_eq!(state(&channels), (false, false));
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Hundreds of programs may have thousands of open files each.
    #[test]
    fn open_files_are_not_searched_with_every_scan() {
        let dir = tempdir("search");
        let pid = std::process::id();
        let publisher = Publisher::create(&small(&dir)).unwrap();
        let path = publisher.path().to_owned();
        std::fs::remove_file(&path).unwrap();
        let mut channels = Channels::default();
        // Other tests of this process may have removed channels meanwhile, too.
        let is_reported = |channels: &Channels| channels.unseen.iter().any(|(of, _)| *of == pid);
        channels.search_for_removed(&[], &[pid]);
        assert!(is_reported(&channels));
        assert_eq!((channels.searched.len(), channels.unseen.len()), (1, 1));
        drop(publisher);
        channels.search_for_removed(&[], &[pid]);
        assert!(is_reported(&channels), "not searched again so soon");
        channels.search_for_removed(&[], &[]);
        assert!(!is_reported(&channels), "NVML does not list it any more");
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn tempdir(name: &str) -> PathBuf {
        let dir = PathBuf::from(format!("/dev/shm/gpumem-{name}-test-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        dir
    }

    /// Reads a channel of this process from a file that belongs to `uid`. `None` if the file cannot be given to that user.
    fn channel_owned_by(uid: u32) -> Option<Channel> {
        let dir = std::path::PathBuf::from(format!("/dev/shm/gpumem-claim-test-{uid}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let publisher = Publisher::create(&small(&dir)).unwrap();
        let given = chown(publisher.path(), Some(uid), None).is_ok();
        let channel = given.then(|| {
            let found = Found::named(publisher.path()).unwrap();
            let reader = found.open().unwrap();
            let mut channels = Channels {
                scanned: Some(Instant::now()),
                ..Channels::default()
            };
            channels.open.insert(ChannelKey(1, 1), Open::new(found, reader, None));
            channels.pass(&Request::default()).channels.remove(0)
        });
        std::fs::remove_dir_all(dir).unwrap();
        channel
    }

    #[test]
    fn file_cannot_claim_another_users_process() {
        let us = rustix::process::geteuid().as_raw();
        let pid = std::process::id();
        let own = channel_owned_by(us).unwrap();
        assert_eq!((own.pid, own.disputed), (Some(pid), None));
        let Some(others) = channel_owned_by(us + 54321) else {
            eprintln!("SKIPPED: only root can give a file to another user");
            return;
        };
        assert_eq!(others.snapshot.life, Life::Alive);
        assert_eq!((others.pid, others.disputed), (None, Some(pid)));
    }
}
