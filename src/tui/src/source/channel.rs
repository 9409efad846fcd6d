//! Finds and reads channels on a thread of its own, and looks up the processes behind the rows.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use gpumem_channel::{Life, Reader, Snapshot, clean, discover};
use gpumem_probe::{ForeignPid, PidTranslator, Processes};

use super::{NvmlPids, Slot, marks, sleep_to_beat, spawn};
use crate::clock;
use crate::model::{Channel, ChannelKey, ChannelSample, Figures, FreeBlocks, MAX_MARKS, Problem};

/// How often new channels are looked for.
const DISCOVER: Duration = Duration::from_secs(2);

/// Starts sampling.
///
/// # Errors
/// When the system allows no more threads.
pub fn start(interval: Duration, slot: Arc<Slot<ChannelSample>>, pids: NvmlPids) -> std::io::Result<()> {
    spawn("channels", move || {
        let mut channels = Channels::default();
        loop {
            let also = pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
            slot.put(channels.sample(&also), merge);
            sleep_to_beat(interval);
        }
    })
}

/// The newer sample, with the events of the one that nobody took. Bounded: the timeline keeps no more anyway.
fn merge(old: ChannelSample, mut new: ChannelSample) -> ChannelSample {
    let mut marks = old.marks;
    marks.append(&mut new.marks);
    let surplus = marks.len().saturating_sub(MAX_MARKS);
    new.marks = marks.split_off(surplus);
    new.lost.extend(old.lost);
    new.lost.truncate(MAX_MARKS);
    new
}

/// Every channel this user may read.
#[derive(Default)]
pub struct Channels {
    open: HashMap<ChannelKey, Open>,
    refused: Vec<(ChannelKey, Problem)>,
    places: Vec<Problem>,
    looked: Option<Instant>,
    translator: PidTranslator,
    processes: Processes,
}

struct Open {
    /// `None` once the publisher is dead and its black box was read: that does not change, and costs no mapping.
    reader: Option<Reader>,
    /// The newest good state. `None` only before the first good pass.
    newest: Option<Channel>,
    /// Sums over free blocks of each device, kept from pass to pass.
    free: Vec<FreeBlocks>,
}

impl Channels {
    /// Looks for channels when it is time to, and reads them all. `also` are pids to look up besides publishers'.
    pub fn sample(&mut self, also: &[u32]) -> ChannelSample {
        if self.looked.is_none_or(|at| at.elapsed() >= DISCOVER) {
            self.look();
            self.looked = Some(Instant::now());
        }
        let mut sample = ChannelSample::default();
        for (key, open) in &mut self.open {
            open.pass(*key, &mut sample);
        }
        sample.channels.sort_by_key(|c| c.key);
        sample.marks.sort_by_key(|m| m.at);
        self.translate(&mut sample.channels);
        sample.processes = self.look_up(&sample.channels, also);
        sample
            .problems
            .extend(self.places.iter().chain(self.refused.iter().map(|(_, p)| p)).cloned());
        sample.at = clock::now();
        sample
    }

    /// Opens what is new and forgets what is gone. A file that was refused is not tried again while it is there: a
    /// publisher renames its file into place when it is whole.
    fn look(&mut self) {
        let scan = discover();
        self.places = scan.problems.iter().map(|p| problem(&p.path, &p.reason)).collect();
        let here = |key: &ChannelKey| scan.found.iter().any(|f| ChannelKey(f.key.0, f.key.1) == *key);
        self.open.retain(|key, _| here(key));
        self.refused.retain(|(key, _)| here(key));
        for found in &scan.found {
            let key = ChannelKey(found.key.0, found.key.1);
            if self.open.contains_key(&key) || self.refused.iter().any(|(refused, _)| *refused == key) {
                continue;
            }
            match Reader::open(&found.path) {
                Ok(reader) => drop(self.open.insert(
                    key,
                    Open {
                        reader: Some(reader),
                        newest: None,
                        free: Vec::new(),
                    },
                )),
                Err(error) => self.refused.push((key, problem(&found.path, &error))),
            }
        }
    }

    /// Finds publishers' pids in our namespace.
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
            })
            .collect();
        let found = self.translator.translate(&wanted, Instant::now());
        for (channel, pid) in living.iter_mut().zip(found) {
            channel.pid = pid;
        }
    }

    fn look_up(&mut self, channels: &[Channel], also: &[u32]) -> Vec<gpumem_probe::Process> {
        let mut pids: Vec<u32> = channels
            .iter()
            .filter_map(|c| c.pid)
            .chain(also.iter().copied())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        self.processes.look_up(&pids).into_iter().flatten().collect()
    }
}

impl Open {
    /// Reads what changed; keeps what it had where that fails, and says so.
    fn pass(&mut self, key: ChannelKey, sample: &mut ChannelSample) {
        if let Some(reader) = &mut self.reader {
            match reader.refresh() {
                Ok(snapshot) => {
                    if let Ok(events) = reader.events() {
                        sample.marks.extend(marks::of(key, &snapshot, &events.events));
                        sample.lost.extend((events.lost > 0).then_some((key, events.lost)));
                    }
                    if snapshot.life != Life::Alive {
                        self.reader = None;
                    }
                    self.newest = Some(channel(key, snapshot, &mut self.free));
                    if self.reader.is_none() {
                        self.free = Vec::new();
                    }
                }
                Err(error) => match &mut self.newest {
                    Some(channel) => channel.error = Some(error.to_string()),
                    None => sample.problems.push(Problem {
                        file: format!("of {}", reader.identity().program),
                        text: error.to_string(),
                    }),
                },
            }
        }
        sample.channels.extend(self.newest.clone());
    }
}

fn channel(key: ChannelKey, snapshot: Snapshot, free: &mut Vec<FreeBlocks>) -> Channel {
    free.resize_with(snapshot.devices.len(), FreeBlocks::default);
    let figures: Vec<_> = snapshot
        .devices
        .iter()
        .zip(free)
        .map(|(map, free)| Figures::of(map, free))
        .collect();
    let read_at = snapshot.read_at;
    Channel {
        key,
        pid: None,
        snapshot: Arc::new(snapshot),
        figures: figures.into(),
        error: None,
        read_at,
    }
}

fn problem(path: &Path, error: &impl ToString) -> Problem {
    Problem {
        file: clean(&path.to_string_lossy()),
        text: clean(&error.to_string()),
    }
}
