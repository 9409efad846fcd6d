//! Random programs, and random configurations to run them with.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use crate::config::{Config, SegmentMode};
use crate::device::Timeline;
use crate::pool::{Overflow, PoolConfig};
use crate::publish::Publish;
use crate::rounding::Divisions;

const MIB: u64 = 1 << 20;
/// Memory of the device they run on.
pub(in crate::heap) const TOTAL: u64 = 192 * MIB;

#[derive(Clone, Debug)]
pub(in crate::heap) enum Op {
    Alloc {
        bytes: u64,
        stream: u64,
    },
    Free(prop::sample::Index),
    /// A loop: sizes and streams, each used by work on its stream that is done at once or not; so many blocks are held at a time, and
    /// the round comes so many times.
    Loop {
        requests: Vec<(u64, u64, bool)>,
        held: usize,
        rounds: usize,
    },
    /// A block is given back, and one like it is asked for at once.
    Again(prop::sample::Index),
    /// Another stream uses a block: work is queued there, and the allocator is told.
    Use {
        block: prop::sample::Index,
        stream: u64,
    },
    /// The block's own stream uses it.
    Work(prop::sample::Index),
    Advance {
        stream: u64,
        steps: u64,
    },
    /// A stream is retired and destroyed. The one that comes in its place has the same handle again or another one.
    Retire {
        stream: u64,
        again: bool,
    },
    Poll,
    Release,
    Compact,
    Join {
        bytes: u64,
        stream: u64,
    },
    /// A pool is made.
    Pool {
        config: PoolConfig,
        private: bool,
    },
    PoolAlloc {
        pool: prop::sample::Index,
        bytes: u64,
        stream: u64,
    },
    /// A block of a pool that was given back is wanted again where it was.
    PoolAgain(prop::sample::Index),
    PoolClose(prop::sample::Index),
    /// The capture of a graph in a private pool begins or ends.
    Capture(prop::sample::Index),
    /// The budget changes.
    Budget(Option<u64>),
    /// A history is begun anew, with room for so many events, or ended.
    Record(Option<usize>),
    /// A step of the program's ends.
    Step,
    /// Peaks count from now on.
    ResetPeaks,
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        1u64..5_000,
        1u64..MIB,
        MIB..4 * MIB,
        2 * MIB..24 * MIB,
        16 * MIB..80 * MIB,
        prop::sample::select(vec![512u64, 700, 4096, 3 * MIB, 20 * MIB])
    ]
}

pub(in crate::heap) fn program(len: usize) -> impl Strategy<Value = Vec<Op>> {
    let index = any::<prop::sample::Index>;
    let op = prop_oneof![
        9 => (bytes(), 0u64..3).prop_map(|(bytes, stream)| Op::Alloc { bytes, stream }),
        7 => index().prop_map(Op::Free),
        1 => (prop::collection::vec((bytes(), 0u64..3, any::<bool>()), 3..20), 1usize..6, 2usize..5)
            .prop_map(|(requests, held, rounds)| Op::Loop { requests, held, rounds }),
        4 => index().prop_map(Op::Again),
        2 => (index(), 0u64..3).prop_map(|(block, stream)| Op::Use { block, stream }),
        2 => index().prop_map(Op::Work),
        3 => (0u64..3, 1u64..4).prop_map(|(stream, steps)| Op::Advance { stream, steps }),
        1 => (0u64..3, any::<bool>()).prop_map(|(stream, again)| Op::Retire { stream, again }),
        1 => Just(Op::Poll),
        1 => Just(Op::Release),
        1 => Just(Op::Compact),
        1 => prop_oneof![
            Just(Op::Record(None)),
            prop_oneof![0usize..40, Just(1 << 20), Just(1 << 20)].prop_map(|events| Op::Record(Some(events)))
        ],
        1 => (pool(), any::<bool>()).prop_map(|(config, private)| Op::Pool { config, private }),
        5 => (index(), bytes(), 0u64..3).prop_map(|(pool, bytes, stream)| Op::PoolAlloc { pool, bytes, stream }),
        2 => index().prop_map(Op::PoolAgain),
        1 => index().prop_map(Op::PoolClose),
        1 => index().prop_map(Op::Capture),
        1 => budget().prop_map(Op::Budget),
        1 => Just(Op::Step),
        1 => Just(Op::ResetPeaks),
        1 => (2 * MIB..100 * MIB, 0u64..3).prop_map(|(bytes, stream)| Op::Join { bytes, stream }),
    ];
    prop::collection::vec(op, 1..len)
}

fn pool() -> impl Strategy<Value = PoolConfig> {
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::Shared)];
    (budget(), overflow, -1i32..2).prop_map(|(budget, overflow, priority)| PoolConfig {
        budget,
        overflow,
        priority,
    })
}

fn budget() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (8 * MIB..TOTAL).prop_map(Some)]
}

/// Work is done when told, or in the midst of what the heap does, between two driver calls.
pub(in crate::heap) fn timeline() -> impl Strategy<Value = Timeline> {
    prop_oneof![
        2 => Just(Timeline::Manual),
        1 => (1u64..30).prop_map(Timeline::After),
        1 => (1u64..30).prop_map(Timeline::Behind)
    ]
}

pub(in crate::heap) fn config() -> impl Strategy<Value = Config> {
    let budget = budget();
    let segments = prop_oneof![
        Just(SegmentMode::Plain),
        Just(SegmentMode::Virtual),
        Just(SegmentMode::Stitched)
    ];
    let options = (
        prop_oneof![2 => Just(None), 1 => (20 * MIB..60 * MIB).prop_map(Some)],
        20 * MIB..24 * MIB,
        prop_oneof![2 => Just(None), 1 => (0.05..0.95).prop_map(Some)],
        prop_oneof![2 => Just(0), 1 => 1u32..5],
        prop::sample::select(vec![1, 2 * MIB, 8 * MIB, 8 * MIB, 64 * MIB]),
    );
    (segments, any::<bool>(), budget, options).prop_map(
        |(segments, release_on_oom, budget, (split, rounding, collect, parts, max_chunk))| {
            let plain = segments == SegmentMode::Plain;
            Config {
                budget,
                segments,
                max_chunk,
                max_split_size: split.filter(|_| plain),
                max_non_split_rounding: rounding,
                garbage_collection_threshold: collect.filter(|_| plain && budget.is_some()),
                roundup_power2_divisions: Divisions::all(1 << parts).unwrap(),
                release_on_oom,
                publish: Publish::Off,
                ..Config::default()
            }
        },
    )
}
