//! The victim: a program that embeds the allocator on two devices, and makes random calls as programs do.
//!
//! The size of a request decides its stream, its tag and whether a second stream uses it. So a reader can tell whether all fields of a
//! block were written together.

use std::time::Duration;

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, Error, Options, Publish, SegmentMode, Stream, scope};
use gpumem_tests::Random;

const MIB: u64 = 1 << 20;
/// Devices of one victim, each with its allocator and channel.
pub(crate) const DEVICES: u32 = 2;
/// Operations after which a victim only waits to be killed, so that it never publishes more events than [`RING`].
const OPERATIONS: u32 = 5_000;
/// Events that a channel keeps if none may be lost.
pub(crate) const RING: u32 = 16_384;

/// Returns the stream of a request of `requested` bytes.
pub(crate) fn stream_of(requested: u64) -> u64 {
    requested % 3
}

pub(crate) const TAGS: [&str; 5] = ["weights", "gradients", "activations", "optimizer", "workspace"];

/// Returns the tag of a request of `requested` bytes.
pub(crate) fn tag_of(requested: u64) -> &'static str {
    TAGS[requested as usize % TAGS.len()]
}

/// Returns whether a second stream uses such a block, so that it waits for that stream when it is freed.
pub(crate) fn waits(requested: u64) -> bool {
    requested % 8 == 5
}

/// Returns the kind of segments of a seed's victim.
pub(crate) fn segments_of(seed: u64) -> SegmentMode {
    [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched][seed as usize % 3]
}

/// Returns whether the channels of a seed's victim keep every event.
pub(crate) fn every_event(seed: u64) -> bool {
    !seed.is_multiple_of(7)
}

/// Publishes until it is killed. A victim with a small ring loses events and never waits.
pub(crate) fn publish(seed: u64, small_ring: bool) {
    let mut random = Random::new(seed);
    let segments = segments_of(seed);
    let events = if small_ring { 64 } else { RING };
    let mut programs: Vec<Program> = (0..DEVICES)
        .map(|ordinal| Program::new(ordinal, segments, events, &mut random))
        .collect();
    for n in 0.. {
        if n >= OPERATIONS && !small_ring {
            std::thread::sleep(Duration::from_secs(60));
        }
        let one = random.below(u64::from(DEVICES)) as usize;
        programs[one].step(&mut random);
    }
}

/// Returns a random size. Small ones are more likely, except with stitched segments.
fn size(segments: SegmentMode, random: &mut Random) -> u64 {
    let likely = match segments {
        SegmentMode::Stitched => [0, 1, 2, 3, 3, 3, 3, 4],
        _ => [0, 0, 1, 1, 2, 2, 3, 4],
    };
    let most = [4 << 10, 64 << 10, MIB, 8 * MIB, 40 * MIB][likely[random.below(8) as usize]];
    1 + random.below(most)
}

struct Program {
    alloc: Allocator,
    held: Vec<Buffer<u8>>,
    usual: [u64; 12],
    segments: SegmentMode,
}

impl Program {
    fn new(ordinal: u32, segments: SegmentMode, events: u32, random: &mut Random) -> Program {
        let sim = Sim::new(SimConfig {
            total: 256 * MIB,
            ordinal,
            timeline: Timeline::After(12),
            ..SimConfig::default()
        });
        let config = Config {
            // Little enough that requests fail and the cache has to go.
            budget: Some(160 * MIB),
            segments,
            max_chunk: 4 * MIB,
            release_on_oom: true,
            publish: Publish::On(Options {
                blocks: 4096,
                segments: 256,
                events,
                strings: 16,
                devices: 1,
                ..Options::default()
            }),
            ..Config::default()
        };
        let alloc = Allocator::new(sim.device(), config).unwrap();
        alloc.channel().unwrap();
        Program {
            alloc,
            held: Vec::new(),
            usual: std::array::from_fn(|_| size(segments, random)),
            segments,
        }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(400) {
            0 => drop(self.alloc.release_cached().unwrap()),
            1..5 => self.join(random),
            5 => self.alloc.poll(),
            6 => self.alloc.mark("step"),
            7..200 if !self.held.is_empty() => {
                let one = random.below(self.held.len() as u64) as usize;
                drop(self.held.swap_remove(one));
            }
            _ => self.take(random),
        }
        if self.held.len() > 96 {
            self.held.drain(..48);
        }
    }

    fn take(&mut self, random: &mut Random) {
        // Mostly a size that was requested before, which the cache has.
        let usual = self.usual[random.below(self.usual.len() as u64) as usize];
        let bytes = if random.below(8) == 0 {
            size(self.segments, random)
        } else {
            usual
        };
        let _tag = scope(tag_of(bytes));
        let stream = stream_of(bytes);
        match self.alloc.alloc::<u8>(bytes as usize, Stream(stream)) {
            Ok(buffer) => {
                if waits(bytes) {
                    buffer.record_stream(Stream((stream + 1) % 3)).unwrap();
                }
                self.held.push(buffer);
            }
            Err(Error::OutOfMemory(_)) => drop(self.held.pop()),
            Err(other) => panic!("{other}"),
        }
    }

    fn join(&mut self, random: &mut Random) {
        let stream = Stream(random.below(3));
        match self.alloc.join_holes((1 + random.below(24)) * MIB, stream) {
            Ok(_) | Err(Error::NotVirtual | Error::HolesTooSmall { .. } | Error::OutOfMemory(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
