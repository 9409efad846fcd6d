//! The channel of a PyTorch process.

use std::time::{Duration, Instant};

use gpumem_channel::{self as channel, DeviceKind, Event, EventKind, Options, Publisher, Sampled, StringId, Touched};
use gpumem_snapshot::Snapshot;
use gpumem_text::{clean, uuid};

use crate::map::Map;
use crate::message::{Device, Hello, Oom};
use crate::stats::device_stats;

/// How long after somebody last asked for blocks they are still wanted. Viewers ask with each of their samples, once a second by default.
const WANTED: Duration = Duration::from_secs(4);

/// The channel of a PyTorch process.
#[derive(Debug)]
pub(crate) struct Publishing {
    publisher: Publisher,
    /// Which devices were described, by PyTorch's numbers.
    devices: Vec<bool>,
    map: Map,
    sampled: Sampled,
    /// Whether the published map is of the moment of a failed request, and so is kept.
    of_failure: bool,
    /// The file's access time, and when it was seen to change.
    wanted: (Option<u64>, Option<Instant>),
}

impl Publishing {
    /// Makes the channel of process `pid`.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub(crate) fn new(hello: &Hello, pid: u32) -> Result<Publishing, String> {
        let defaults = Options::default();
        let job = clean(&hello.job);
        let options = Options {
            sampled: true,
            process: Some(pid),
            program: Some(clean(&hello.program)).filter(|program| !program.is_empty()),
            job: if job.is_empty() { defaults.job.clone() } else { job },
            // It has none.
            lanes: 0,
            managed: 0,
            ..defaults
        };
        let publisher = Publisher::create(&options).map_err(|error| error.to_string())?;
        let seen = publisher.wanted_at();
        Ok(Publishing {
            publisher,
            devices: Vec::new(),
            map: Map::default(),
            sampled: Sampled::default(),
            of_failure: false,
            wanted: (seen, None),
        })
    }

    /// Describes a device.
    pub(crate) fn device(&mut self, device: &Device) {
        let described = channel::Device {
            uuid: uuid::bytes(&device.uuid).unwrap_or_default(),
            kind: DeviceKind::Cuda,
            ordinal: device.index.into(),
            total: device.total,
            granularity: 2 << 20,
            budget: device.limit.unwrap_or(0),
            name: clean(&device.name),
        };
        self.publisher.set_device(device.index, &described);
        let index = usize::from(device.index);
        self.devices.resize(self.devices.len().max(index + 1), false);
        self.devices[index] = true;
    }

    /// Publishes a device's figures. Those of a device that was not described are dropped.
    pub(crate) fn stats(&mut self, device: u8, stats: &std::collections::HashMap<String, i64>) {
        if self.devices.get(usize::from(device)) == Some(&true) {
            self.publisher.stats(device, &device_stats(stats), Touched::ALL);
            self.sampled.figures_at = self.publisher.now();
            self.publisher.sampled(&self.sampled);
        }
    }

    /// Publishes a map.
    pub(crate) fn map(&mut self, pickle: &[u8]) {
        match Snapshot::from_bytes(pickle) {
            Ok(snapshot) => {
                let continues = self.sampled.blocks_at > 0 && !self.of_failure;
                self.map.show(&mut self.publisher, &snapshot, continues);
                self.sampled.blocks_at = self.publisher.now();
                self.sampled.skipped = StringId(0);
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
    pub(crate) fn mark(&mut self, name: &str) {
        let tag = self.publisher.intern_mark(&clean(name));
        self.publisher.event(&Event {
            kind: EventKind::Mark,
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

    /// Ends the channel without closing it, as when its program was killed.
    pub(crate) fn abandon(self) {
        // The kernel releases the lock when this process ends.
        std::mem::forget(self.publisher);
    }
}
