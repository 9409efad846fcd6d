//! The channels that mutants are made from: real ones of several shapes, made in each run by a publisher.

use gpumem_channel::{
    Block, BlockState, Device, DeviceKind, DeviceStats, Event, EventKind, Lane, LaneFigures, LanePool, MANAGED_BLOCK,
    ManagedBlock, ManagedCounters, ManagedFigures, ManagedRange, Operation, Options, PoolId, Publisher, Segment,
    SegmentKind, Split, Stat, Touched,
};
use gpumem_tests::{Random, World, uuid_of};

const KIB: u64 = 1 << 10;
/// How far the peak of each figure is above its current value.
const PASSED: u64 = 4 * KIB;

/// A real channel, which mutants start from.
pub(crate) struct Base {
    /// Its name in the lines of mutants.
    pub(crate) name: &'static str,
    /// The whole file.
    pub(crate) bytes: Vec<u8>,
    /// Whether its lock is held while it is judged, as that of a running program is.
    pub(crate) alive: bool,
}

/// Makes a channel of each shape.
pub(crate) fn bases() -> Vec<Base> {
    let base = |name, alive, shape: &Shape| Base {
        name,
        alive,
        bytes: shape.publish(),
    };
    let heap = Shape::default();
    vec![
        base("empty", true, &Shape { devices: 0, ..heap }),
        base("idle", true, &Shape { segments: 0, ..heap }),
        base("heap", true, &heap),
        base("lanes", true, &Shape { lanes: 2, ..heap }),
        base("oom", true, &Shape { oom: true, ..heap }),
        base("two", true, &Shape { devices: 2, ..heap }),
        base("managed", true, &Shape { managed: true, ..heap }),
        base(
            "wide",
            true,
            &Shape {
                blocks: 2_048,
                segments: 30,
                blocks_per_segment: 60,
                ..heap
            },
        ),
        base("exited", false, &Shape { closed: true, ..heap }),
        base("died", false, &Shape { oom: true, ..heap }),
    ]
}

/// What a channel contains.
#[derive(Clone, Copy)]
struct Shape {
    devices: u8,
    /// Segments of each device, blocks of each segment, and the capacity for blocks.
    segments: u32,
    blocks_per_segment: u64,
    blocks: u32,
    lanes: u32,
    /// A request failed, and there is advice.
    oom: bool,
    /// Its device is simulated and has managed memory.
    managed: bool,
    /// The publisher closed the channel.
    closed: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            devices: 1,
            segments: 5,
            blocks_per_segment: 9,
            blocks: 256,
            lanes: 0,
            oom: false,
            managed: false,
            closed: false,
        }
    }
}

impl Shape {
    /// Returns the file of such a channel.
    fn publish(&self) -> Vec<u8> {
        // Each in its own directory: creating a channel sweeps the directory.
        let world = World::without_gpu();
        let options = Options {
            dir: Some(world.channels().to_owned()),
            blocks: self.blocks,
            segments: 64,
            events: 64,
            strings: 16,
            devices: 2,
            lanes: 2,
            managed: 8 * u32::from(self.managed),
            managed_blocks: 8 * u32::from(self.managed),
            lane_events: 16,
            job: "base".to_owned(),
            program: Some("trainer".to_owned()),
            fit: false,
            ..Options::default()
        };
        let mut publisher = Publisher::create(&options).unwrap();
        let path = publisher.path().to_owned();
        let mut work = Work {
            publisher: &mut publisher,
            random: Random::new(7),
            segment: 0,
            block: 0,
        };
        let stats: Vec<DeviceStats> = (0..self.devices).map(|device| work.device(device, self)).collect();
        // After the last event, and into both cells.
        for _ in 0..2 {
            for (device, stats) in (0..).zip(&stats) {
                publisher.stats(device, stats, Touched::ALL);
            }
        }
        if self.managed {
            publish_managed(&mut publisher);
        }
        let bytes = std::fs::read(&path).unwrap();
        if !self.closed {
            return bytes;
        }
        drop(publisher);
        std::fs::read(path).unwrap()
    }
}

/// Publishes managed memory with the pages of a model.
fn publish_managed(publisher: &mut Publisher) {
    let tag = publisher.intern("weights");
    for slot in 0..3u32 {
        let addr = (1 << 40) + u64::from(slot) * 8 * MANAGED_BLOCK;
        let range = ManagedRange {
            addr,
            size: 3 * MANAGED_BLOCK,
            tag,
            ..ManagedRange::default()
        };
        publisher.managed_range(slot, Some(&range));
        let block = ManagedBlock {
            addr,
            on_cpu: [0xff; 8],
            on_gpu: 0xff00,
            ..ManagedBlock::default()
        };
        publisher.managed_block(slot, Some(&block));
    }
    publisher.managed_figures(&ManagedFigures {
        counters: Some(ManagedCounters::default()),
        ..ManagedFigures::default()
    });
}

/// A program that fills its channel.
struct Work<'a> {
    publisher: &'a mut Publisher,
    random: Random,
    /// The next free slots.
    segment: u32,
    block: u32,
}

impl Work<'_> {
    /// Fills a device. Its figures are not published yet.
    fn device(&mut self, device: u8, shape: &Shape) -> DeviceStats {
        let simulated = device > 0 || shape.managed;
        self.publisher.set_device(
            device,
            &Device {
                uuid: if simulated { [0; 16] } else { uuid_of(0) },
                kind: if simulated {
                    DeviceKind::Simulated
                } else {
                    DeviceKind::Cuda
                },
                ordinal: device.into(),
                total: 80 << 30,
                granularity: 2 << 20,
                budget: 8 << 30,
                name: "H100".to_owned(),
            },
        );
        let mut stats = DeviceStats::default();
        let lanes = (0..shape.lanes).filter_map(|stream| self.publisher.lane(device, u64::from(stream) + 1));
        let mut lanes: Vec<(Lane, LaneFigures)> = lanes.map(|lane| (lane, LaneFigures::default())).collect();
        for n in 0..shape.segments {
            let pool = if n % 2 == 0 { PoolId::SMALL } else { PoolId::LARGE };
            self.segment(device, pool, shape.blocks_per_segment, &mut stats, &mut lanes);
        }
        if shape.oom {
            self.run_out(device, &mut stats);
        }
        let mark = self.publisher.intern_mark("step 1");
        self.publisher.event(&Event {
            kind: EventKind::Mark,
            device,
            tag: mark,
            ..Event::default()
        });
        for (lane, figures) in &mut lanes {
            lane.figures(figures);
        }
        for pool in [&mut stats.small, &mut stats.large] {
            for figure in pool.figures_mut() {
                figure.add(PASSED);
                figure.sub(PASSED);
            }
        }
        stats.all_peaks = stats.all().figures().map(|figure| figure.current + 2 * PASSED);
        for (_, figures) in &lanes {
            for part in [&figures.small, &figures.large] {
                let held = [
                    part.allocation,
                    part.allocation,
                    part.requested_bytes,
                    part.allocated_bytes,
                    part.allocated_bytes,
                ];
                for (peak, held) in stats.all_peaks.iter_mut().zip(held) {
                    *peak += held.current;
                }
            }
        }
        stats
    }

    fn segment(
        &mut self,
        device: u8,
        pool: PoolId,
        blocks: u64,
        stats: &mut DeviceStats,
        lanes: &mut [(Lane, LaneFigures)],
    ) {
        let (slot, first) = (self.segment, self.block);
        let addr = (u64::from(slot) + 1) << 32;
        let tag = self.publisher.intern(["weights", "optimizer"][slot as usize % 2]);
        let pool_name = self.publisher.intern(["", "tenant"][slot as usize / 2 % 2]);
        let sizes: Vec<u64> = (0..blocks).map(|_| 512 * (1 + self.random.below(64))).collect();
        let size = sizes.iter().sum();
        let segment = Segment {
            addr,
            size,
            mapped: size,
            device,
            pool,
            kind: SegmentKind::Plain,
            tag,
            pool_name,
            ..Segment::default()
        };
        self.publisher.event(&Event {
            kind: EventKind::SegmentAlloc,
            device,
            pool,
            addr,
            size,
            ..Event::default()
        });
        let figures = if pool == PoolId::SMALL {
            &mut stats.small
        } else {
            &mut stats.large
        };
        figures.segment.add(1);
        figures.reserved_bytes.add(size);
        self.publisher.segment_begin(slot);
        let mut at = addr;
        for (n, size) in sizes.iter().copied().enumerate() {
            let state = match self.random.below(8) {
                0..4 => BlockState::Allocated,
                4 => BlockState::PendingFree,
                5 => BlockState::Quick,
                _ => BlockState::Free,
            };
            let held = state == BlockState::Allocated;
            let active = held || state == BlockState::PendingFree;
            let block = Block {
                addr: at,
                size,
                requested: if active { size - self.random.below(512) } else { 0 },
                stream: 0,
                state,
                device,
                pool,
                segment: slot,
                tag,
                time: 0,
            };
            at += size;
            let next = (n + 1 < sizes.len()).then_some(self.block + 1);
            self.publisher.block(self.block, &block, next);
            let lane = self.random.below(3 * lanes.len().max(1) as u64) as usize;
            match lanes.get_mut(lane).filter(|_| held) {
                Some(lane) => hand_out(lane, &block, self.block, next),
                None => {
                    let (mut pending, mut pending_bytes) = (Stat::default(), Stat::default());
                    let (count, bytes) = match (held, active) {
                        (true, _) => (&mut figures.allocation, &mut figures.allocated_bytes),
                        // Only what it is active for counts it.
                        (_, true) => (&mut pending, &mut pending_bytes),
                        _ => (&mut figures.inactive_split, &mut figures.inactive_split_bytes),
                    };
                    count.add(1);
                    bytes.add(size);
                    if active {
                        figures.active.add(1);
                        figures.active_bytes.add(size);
                        figures.requested_bytes.add(block.requested);
                    }
                }
            }
            self.block += 1;
        }
        self.publisher.segment_end(slot, Some((&segment, Some(first))));
        self.segment += 1;
    }

    fn run_out(&mut self, device: u8, stats: &mut DeviceStats) {
        self.publisher.event(&Event {
            kind: EventKind::OutOfMemory,
            device,
            pool: PoolId::LARGE,
            requested: 12 << 30,
            addr: 1 << 30,
            ..Event::default()
        });
        let tag = self.publisher.intern("raise the budget by");
        self.publisher.event(&Event {
            kind: EventKind::Advice,
            device,
            size: 4 << 30,
            tag,
            ..Event::default()
        });
        (stats.num_ooms, stats.num_alloc_retries) = (1, 2);
    }
}

/// Makes a lane hand out a block, and count it.
fn hand_out((lane, figures): &mut (Lane, LaneFigures), block: &Block, slot: u32, next: Option<u32>) {
    lane.operation(&Operation {
        kind: EventKind::Alloc,
        slot,
        state: block.state,
        block,
        next,
        split: Split::NO,
    });
    let pool: &mut LanePool = match block.pool {
        PoolId::SMALL => &mut figures.small,
        _ => &mut figures.large,
    };
    for (figure, n) in [
        (&mut pool.allocation, 1),
        (&mut pool.requested_bytes, block.requested),
        (&mut pool.allocated_bytes, block.size),
    ] {
        figure.current += n;
        figure.allocated += n;
    }
}
