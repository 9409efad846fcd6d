//! The channel of a PyTorch process.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use gpumem_channel::{
    self as channel, DeviceKind, Event, EventKind, Options, PastFigures, Publisher, Ranks, Sampled, StringId, Touched,
};
use gpumem_snapshot::Snapshot;
use gpumem_text::{clean, uuid};

use crate::history::History;
use crate::map::Map;
use crate::message::{Device, Hello, Mark, Oom};
use crate::outside::Measuring;
use crate::run::Measure;
use crate::stats::device_stats;
use crate::tags::Tags;

/// How long after somebody last asked for blocks they are still wanted. Viewers ask with each of their samples, once a second by default.
const WANTED: Duration = Duration::from_secs(4);

/// The channel of a PyTorch process.
#[derive(Debug)]
pub(crate) struct Publishing {
    publisher: Publisher,
    pid: u32,
    /// The devices that were described, by PyTorch's numbers.
    devices: BTreeMap<u8, Described>,
    /// Who takes memory outside of PyTorch's allocator.
    users: StringId,
    map: Map,
    history: History,
    tags: Tags,
    /// The folder of PyTorch's Python files.
    torch_folder: String,
    sampled: Sampled,
    /// Whether the published map is of the moment of a failed request, and so is kept.
    of_failure: bool,
    /// When somebody last asked for blocks, and when this was noticed.
    wanted: (Option<u64>, Option<Instant>),
}

/// A device that was described.
#[derive(Debug)]
struct Described {
    uuid: [u8; 16],
    measuring: Measuring,
}

impl Publishing {
    /// Makes the channel of process `pid`.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub(crate) fn new(hello: &Hello, pid: u32) -> Result<Publishing, String> {
        let defaults = Options::default();
        let job = clean(&hello.job);
        // Whoever attached has not the environment of the process.
        let ranks = Ranks {
            rank: hello.rank,
            local_rank: hello.local_rank,
            world_size: hello.world_size,
        };
        let options = Options {
            sampled: true,
            process: Some(pid),
            ranks: Some(ranks).filter(|ranks| *ranks != Ranks::default()),
            program: Some(clean(&hello.program)).filter(|program| !program.is_empty()),
            job: if job.is_empty() { defaults.job.clone() } else { job },
            // It has none.
            lanes: 0,
            managed: 0,
            ..defaults
        };
        let publisher = Publisher::create(&options).map_err(|error| error.to_string())?;
        Ok(Publishing {
            publisher,
            pid,
            devices: BTreeMap::new(),
            users: StringId(0),
            map: Map::default(),
            history: History::default(),
            tags: Tags::default(),
            torch_folder: hello.torch_folder.clone(),
            sampled: Sampled::default(),
            of_failure: false,
            wanted: (None, None),
        })
    }

    /// Describes a device.
    pub(crate) fn device(&mut self, device: &Device) {
        let uuid = uuid::bytes(&device.uuid).unwrap_or_default();
        let described = channel::Device {
            uuid,
            kind: DeviceKind::Cuda,
            ordinal: device.index.into(),
            total: device.total,
            granularity: 2 << 20,
            budget: device.limit.unwrap_or(0),
            name: clean(&device.name),
        };
        self.publisher.set_device(device.index, &described);
        let described = self.devices.entry(device.index).or_insert_with(|| Described {
            uuid,
            measuring: Measuring::default(),
        });
        if self.users != StringId(0) {
            self.publisher
                .outside(device.index, &described.measuring.known(self.users));
        }
    }

    /// Publishes a device's figures. Those of a device that was not described are dropped.
    pub(crate) fn stats(&mut self, device: u8, stats: &HashMap<String, i64>, measure: Measure<'_>) {
        let Some(described) = self.devices.get_mut(&device) else {
            return;
        };
        let published = device_stats(stats);
        self.publisher.stats(device, &published, Touched::ALL);
        self.sampled.figures_at = self.publisher.now();
        self.publisher.sampled(&self.sampled);
        let all = published.all();
        self.publisher.past_figures(&PastFigures {
            time: self.sampled.figures_at,
            device,
            allocated: all.allocated_bytes.current,
            reserved: all.reserved_bytes.current,
        });
        let process = (described.uuid, self.pid);
        if described.measuring.take(stats, process, &mut self.publisher, measure) {
            self.publisher.outside(device, &described.measuring.known(self.users));
        }
    }

    /// Publishes who takes memory outside of PyTorch's allocator.
    pub(crate) fn users(&mut self, names: &str) {
        self.users = self.publisher.intern(&clean(names));
        for (device, described) in &mut self.devices {
            self.publisher.outside(*device, &described.measuring.known(self.users));
        }
    }

    /// Publishes a map, and why it lacks a history.
    pub(crate) fn map(&mut self, pickle: &[u8], events_skipped: &str) {
        match Snapshot::from_bytes(pickle) {
            Ok(snapshot) => {
                let publisher = &mut self.publisher;
                self.history.take(publisher, &snapshot, &self.tags, &self.torch_folder);
                let told = snapshot.device_traces.iter().any(|trace| !trace.is_empty());
                let continues = self.sampled.blocks_at > 0 && !self.of_failure && !told;
                self.map.show(publisher, &snapshot, &self.history, continues);
                self.sampled.blocks_at = self.publisher.now();
                self.sampled.skipped = StringId(0);
                self.sampled.events_skipped = self.publisher.intern(&clean(events_skipped));
                self.publisher.sampled(&self.sampled);
                self.of_failure = false;
            }
            Err(error) => self.skip(&format!("PyTorch's snapshot cannot be read: {error}")),
        }
    }

    /// Says why there is no map.
    pub(crate) fn skip(&mut self, reason: &str) {
        self.forget_map();
        self.sampled.skipped = self.publisher.intern(&clean(reason));
        self.publisher.sampled(&self.sampled);
    }

    /// Publishes a mark.
    pub(crate) fn mark(&mut self, mark: &Mark) {
        if let Some(tag) = &mark.tag {
            let tag = self.publisher.intern_mark(&clean(tag));
            self.tags.begin(mark.at, tag);
        }
        let tag = self.publisher.intern_mark(&clean(&mark.name));
        self.publisher.event(&Event {
            kind: EventKind::Mark,
            size: mark.number.unwrap_or(0),
            tag,
            ..Event::default()
        });
    }

    /// Publishes a failed request. The map that follows is of this moment, and is kept.
    pub(crate) fn oom(&mut self, oom: &Oom) {
        // The line of Python stands for the tag of the request. It is needed most when a long run has used all names of marks.
        let tag = self.publisher.intern(&clean(&oom.place));
        self.publisher.event(&Event {
            kind: EventKind::OutOfMemory,
            device: oom.device,
            requested: oom.requested,
            addr: oom.free,
            tag,
            ..Event::default()
        });
    }

    /// Says that the map that was published last is of the moment of a failed request.
    pub(crate) fn keep_map(&mut self) {
        self.of_failure = self.sampled.blocks_at > 0;
    }

    /// Checks whether somebody wants to see the block map, at time `now`. If nobody does any more, it is removed, because it would be
    /// outdated: but not that of a failed request.
    pub(crate) fn watched(&mut self, now: Instant) -> bool {
        let at = self.publisher.wanted_at();
        if at != self.wanted.0 {
            self.wanted = (at, Some(now));
        }
        let watched = self
            .wanted
            .1
            .is_some_and(|changed| now.saturating_duration_since(changed) < WANTED);
        if !watched && !self.of_failure && self.sampled.blocks_at > 0 {
            self.forget_map();
            self.publisher.sampled(&self.sampled);
        }
        watched
    }

    fn forget_map(&mut self) {
        self.map.clear(&mut self.publisher);
        self.sampled.blocks_at = 0;
        self.of_failure = false;
    }

    /// Ends the channel, and leaves nothing.
    pub(crate) fn withdraw(self) {
        let path = self.publisher.path().to_owned();
        drop(self);
        let _ = std::fs::remove_file(path);
    }

    /// Ends the channel without closing it, as when its program was killed.
    pub(crate) fn abandon(self) {
        // The kernel releases the lock when this process ends.
        std::mem::forget(self.publisher);
    }
}
