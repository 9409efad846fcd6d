//! Property test: any snapshot is the same when it is written and read again.

use gpumem_snapshot::{
    Action, Annotation, Block, BlockState, Frame, Segment, SegmentType, Snapshot, StackId, TraceEntry, Value, ValueId,
};
use proptest::prelude::*;

use crate::common::{json, pickle};

/// A value before it is added to the tables.
#[derive(Clone, Debug)]
enum Plain {
    One(Value),
    Text(String),
    List(Vec<Plain>),
    Dict(Vec<Plain>),
}

fn plain() -> impl Strategy<Value = Plain> {
    let leaf = prop_oneof![
        Just(Plain::One(Value::None)),
        any::<bool>().prop_map(|value| Plain::One(Value::Bool(value))),
        any::<i64>().prop_map(|value| Plain::One(Value::Int(value))),
        (-300i64..70_000).prop_map(|value| Plain::One(Value::Int(value))),
        (1u64 << 63..).prop_map(|value| Plain::One(Value::Unsigned(value))),
        (-1e9..1e9).prop_map(|value: f64| Plain::One(Value::Float(value.to_bits()))),
        ".{0,300}".prop_map(Plain::Text),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Plain::List),
            prop::collection::vec(inner, 0..5).prop_map(Plain::Dict),
        ]
    })
}

fn keep(snapshot: &mut Snapshot, value: &Plain) -> ValueId {
    let value = match value {
        Plain::One(value) => value.clone(),
        Plain::Text(text) => Value::Text(snapshot.tables.text(text)),
        Plain::List(items) => Value::List(items.iter().map(|item| keep(snapshot, item)).collect()),
        Plain::Dict(items) => {
            let pair = |(i, item): (usize, &Plain)| {
                let key = Value::Text(snapshot.tables.text(&format!("key{i}")));
                (snapshot.tables.value(key), keep(snapshot, item))
            };
            Value::Dict(items.iter().enumerate().map(pair).collect())
        }
    };
    snapshot.tables.value(value)
}

/// The random data of which everything is made: numbers, a choice, and a value.
type Seed = (u64, u64, u32, u8, Plain);

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u8>(), plain()), 0..12)
}

fn made(seeds: &[Seed]) -> Snapshot {
    let mut snapshot = Snapshot {
        device_traces: vec![Vec::new(), Vec::new()],
        ..Snapshot::default()
    };
    for (i, (a, b, c, choice, value)) in seeds.iter().enumerate() {
        let value = keep(&mut snapshot, value);
        let tables = &mut snapshot.tables;
        let text = tables.text(&format!("text{}", c % 4));
        let frame = Frame {
            name: text,
            filename: tables.text("file.py"),
            line: i64::from(*c),
            extra: None,
        };
        let frame = tables.frame(frame);
        let stack = tables.stack(&vec![frame; usize::from(choice % 4)]);
        let flag = |bit: u8| choice & bit != 0;
        let key = tables.value(Value::Text(text));
        let extra = flag(8).then(|| tables.value(Value::Dict([(key, value)].as_slice().into())));
        let states = [
            BlockState::ActiveAllocated,
            BlockState::ActivePendingFree,
            BlockState::Other(text),
        ];
        let block = Block {
            address: *a,
            size: *b,
            requested_size: u64::from(*c),
            state: states[i % 3],
            frames: stack,
            extra,
        };
        let entry = TraceEntry {
            action: [Action::Oom, Action::SegmentUnmap, Action::Snapshot, Action::Other(text)][i % 4],
            addr: *b,
            size: *a,
            stream: a.cast_signed(),
            time_us: b % 3,
            frames: flag(16).then_some(stack),
            compile_context: flag(32).then_some(text),
            user_metadata: flag(64).then_some(value),
            extra,
        };
        snapshot.device_traces[i % 2].push(entry);
        snapshot.segments.push(Segment {
            device: c.cast_signed(),
            address: *a,
            total_size: *b,
            allocated_size: a ^ b,
            active_size: u64::from(*c),
            requested_size: 0,
            stream: -i64::from(*c),
            segment_type: [SegmentType::Small, SegmentType::Large, SegmentType::Other(text)][i % 3],
            segment_pool_id: (*b, *a),
            is_expandable: flag(128),
            frames: StackId::EMPTY,
            blocks: vec![block; i % 3],
            extra,
        });
        snapshot.external_annotations.push(Annotation {
            device: -1,
            time_us: *a,
            metadata: extra,
        });
        snapshot.allocator_settings = extra;
        if flag(4) && !snapshot.extra.iter().any(|(key, _)| *key == text) {
            snapshot.extra.push((text, value));
        }
    }
    snapshot
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn written_snapshot_reads_back_the_same(seeds in seeds()) {
        let snapshot = made(&seeds);
        let pickled = pickle(&snapshot);
        let read = Snapshot::from_bytes(&pickled).unwrap();
        prop_assert_eq!(pickle(&read), pickled.clone());
        let text = json(&snapshot);
        prop_assert_eq!(&json(&read), &text);
        // JSON has no tuples, but the pool's ids are recognised as pairs.
        let mut bytes = Vec::new();
        snapshot.write_json(&mut bytes).unwrap();
        let read = Snapshot::from_bytes(&bytes).unwrap();
        prop_assert_eq!(pickle(&read), pickled);
        read.check();
        read.requests(0).count();
    }
}
