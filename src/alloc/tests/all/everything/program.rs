//! Random programs, and random configurations to run them with.

use std::time::Duration;

use gpumem_alloc::device::{Call, Timeline};
use gpumem_alloc::{
    Action, Config, Divisions, History, Listener, Measure, MonitorConfig, Overflow, PoolConfig, SegmentMode, Stacks,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
/// Memory of the device.
pub(crate) const TOTAL: u64 = 192 * MIB;
/// Streams that all threads use, and that no thread ends. Each thread has one more of its own.
pub(crate) const SHARED: u64 = 3;

pub(crate) type Index = prop::sample::Index;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// For a stream, or from a pool; as a buffer or a raw address.
    Alloc {
        bytes: u64,
        stream: u64,
        raw: bool,
    },
    PoolAlloc {
        pool: Index,
        bytes: u64,
        stream: u64,
        raw: bool,
    },
    Free(Index),
    /// The raw ones that follow a stream.
    FreeAfter {
        block: Index,
        stream: u64,
    },
    /// To whichever thread takes it.
    Send(Index),
    Take,
    Use {
        block: Index,
        stream: u64,
    },
    Work(Index),
    Advance {
        stream: u64,
        steps: u64,
    },
    /// The thread's own stream ends; the next one has its handle or another.
    Retire {
        again: bool,
    },
    Pool {
        config: PoolConfig,
        private: bool,
    },
    PoolClose(Index),
    PoolRelease(Index),
    Begin {
        pool: Index,
        stream: Option<u64>,
    },
    End(Index),
    Budget(Option<u64>),
    Fraction(f64),
    Others(u64),
    Record(Option<(usize, Stacks)>),
    Step,
    Release,
    Compact,
    Join {
        bytes: u64,
        stream: u64,
    },
    Reserve {
        bytes: u64,
        stream: u64,
    },
    Poll,
    Look,
    Misuse(Index),
    Fail {
        skip: u64,
        out_of_memory: bool,
    },
    /// The next calls of a kind, whenever they come.
    FailNext {
        call: Call,
        times: u64,
    },
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        1u64..5_000,
        1u64..MIB,
        MIB..4 * MIB,
        2 * MIB..24 * MIB,
        16 * MIB..80 * MIB,
        prop::sample::select(vec![0u64, 512, 700, 4096, 3 * MIB, 20 * MIB])
    ]
}

fn budget() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        Just(None),
        (1u64..TOTAL).prop_map(Some),
        (8 * MIB..TOTAL).prop_map(Some)
    ]
}

fn pool() -> impl Strategy<Value = PoolConfig> {
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::Shared)];
    (budget(), overflow, -1i32..2).prop_map(|(budget, overflow, priority)| PoolConfig {
        budget,
        overflow,
        priority,
    })
}

fn history() -> impl Strategy<Value = Option<(usize, Stacks)>> {
    // To look names up takes longer than all the rest.
    let stacks = prop_oneof![60 => Just(Stacks::None), 1 => Just(Stacks::Alloc), 1 => Just(Stacks::All)];
    let events = prop_oneof![0usize..40, Just(1 << 16)];
    prop_oneof![Just(None), (events, stacks).prop_map(Some)]
}

/// Of a kind, those fail that are made next. The test's own calls are copies.
pub(crate) fn calls() -> impl Strategy<Value = (Call, u64)> {
    let calls = Call::ALL.into_iter().filter(|call| *call != Call::Copy);
    (prop::sample::select(calls.collect::<Vec<_>>()), 1u64..4)
}

fn fault() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0u64..8, any::<bool>()).prop_map(|(skip, out_of_memory)| Op::Fail { skip, out_of_memory }),
        calls().prop_map(|(call, times)| Op::FailNext { call, times }),
    ]
}

pub(crate) fn op(faulty: bool) -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    let stream = || 0u64..=SHARED;
    prop_oneof![
        9 => (bytes(), stream(), any::<bool>()).prop_map(|(bytes, stream, raw)| Op::Alloc { bytes, stream, raw }),
        6 => (index(), bytes(), stream(), any::<bool>())
            .prop_map(|(pool, bytes, stream, raw)| Op::PoolAlloc { pool, bytes, stream, raw }),
        8 => index().prop_map(Op::Free),
        2 => (index(), stream()).prop_map(|(block, stream)| Op::FreeAfter { block, stream }),
        2 => index().prop_map(Op::Send),
        2 => Just(Op::Take),
        3 => (index(), stream()).prop_map(|(block, stream)| Op::Use { block, stream }),
        2 => index().prop_map(Op::Work),
        3 => (stream(), 1u64..4).prop_map(|(stream, steps)| Op::Advance { stream, steps }),
        1 => any::<bool>().prop_map(|again| Op::Retire { again }),
        2 => (pool(), any::<bool>()).prop_map(|(config, private)| Op::Pool { config, private }),
        1 => index().prop_map(Op::PoolClose),
        1 => index().prop_map(Op::PoolRelease),
        1 => (index(), prop::option::of(stream())).prop_map(|(pool, stream)| Op::Begin { pool, stream }),
        2 => index().prop_map(Op::End),
        1 => budget().prop_map(Op::Budget),
        1 => (0.01..1.0).prop_map(Op::Fraction),
        1 => prop_oneof![Just(0), 0..TOTAL].prop_map(Op::Others),
        1 => history().prop_map(Op::Record),
        1 => Just(Op::Step),
        1 => Just(Op::Release),
        1 => Just(Op::Compact),
        1 => (2 * MIB..100 * MIB, stream()).prop_map(|(bytes, stream)| Op::Join { bytes, stream }),
        1 => (bytes(), stream()).prop_map(|(bytes, stream)| Op::Reserve { bytes, stream }),
        1 => Just(Op::Poll),
        1 => Just(Op::Look),
        1 => index().prop_map(Op::Misuse),
        3 => fault().prop_map(move |fault| if faulty { fault } else { Op::Poll }),
    ]
}

pub(crate) fn config() -> impl Strategy<Value = Config> {
    let segments = prop::sample::select(SegmentMode::ALL.to_vec());
    let parts = prop_oneof![2 => Just(0), 1 => 1u32..5];
    let split = prop_oneof![2 => Just(None), 1 => (20 * MIB..60 * MIB).prop_map(Some)];
    let monitor = prop_oneof![
        Just(None),
        (
            prop::sample::select(vec![Action::Warn, Action::Release, Action::Compact]),
            any::<bool>()
        )
            .prop_map(Some)
    ];
    let chunk = prop::sample::select(vec![1u64, 2 * MIB, 8 * MIB, 64 * MIB]);
    let collect = prop_oneof![2 => Just(None), 1 => (0.05..0.95).prop_map(Some)];
    (
        (segments, any::<bool>(), budget(), parts),
        (split, monitor, history(), chunk, collect),
    )
        .prop_map(
            |((segments, release_on_oom, budget, parts), (split, monitor, history, max_chunk, collect))| {
                let plain = matches!(segments, SegmentMode::Plain | SegmentMode::Auto);
                Config {
                    budget,
                    segments,
                    release_on_oom,
                    max_chunk,
                    max_split_size: split.filter(|_| plain),
                    garbage_collection_threshold: collect.filter(|_| plain && budget.is_some()),
                    roundup_power2_divisions: Divisions::all(1 << parts).unwrap(),
                    history: on(history),
                    monitor: monitor.map(|(action, external)| MonitorConfig {
                        measure: if external { Measure::External } else { Measure::Cached },
                        above: 0.05,
                        lasting: Duration::ZERO,
                        least: 1,
                        every: Duration::from_millis(1),
                        action,
                        listener: Some(Listener::new(|_| {})),
                        ..MonitorConfig::default()
                    }),
                    ..Config::default()
                }
            },
        )
}

pub(crate) fn on(history: Option<(usize, Stacks)>) -> History {
    history.map_or(History::Off, |(max_events, stacks)| History::On { max_events, stacks })
}

pub(crate) fn timeline() -> impl Strategy<Value = Timeline> {
    prop_oneof![
        Just(Timeline::Immediate),
        Just(Timeline::Manual),
        (1u64..30).prop_map(Timeline::After)
    ]
}
