//! What a snapshot with a history tells beside who holds what.

use std::time::{SystemTime, UNIX_EPOCH};

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Allocator, Buffer, Config, Error, History, SegmentMode, Snapshot, Stacks, Stream};
use gpumem_snapshot::{Action, StackId, TraceEntry, Value, ValueId};

use crate::common::{MIB, get, of, start};

/// One of plain segments that may take 64 MiB.
fn small(max_events: usize) -> Allocator {
    let config = Config {
        budget: Some(64 << 20),
        history: History::On {
            max_events,
            stacks: Stacks::All,
        },
        ..of(SegmentMode::Plain)
    };
    start(1 << 30, Timeline::Immediate, config).1
}

#[inline(never)]
fn weights(alloc: &Allocator) -> Buffer<u8> {
    let _scope = alloc.scope("weights");
    alloc.alloc(20 * MIB, Stream::DEFAULT).unwrap()
}

#[inline(never)]
fn forgets(held: Buffer<u8>) {
    drop(held);
    // Otherwise an optimised test has a jump here.
    std::hint::black_box(());
}

fn text(snapshot: &Snapshot, value: &Value) -> String {
    match value {
        Value::Text(text) => snapshot.tables.get_text(*text).to_owned(),
        other => panic!("{other:?}"),
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let name = |metadata: ValueId| text(snapshot, snapshot.lookup(metadata, "name").unwrap());
    let all = snapshot.external_annotations.iter();
    all.map(|annotation| name(annotation.metadata.unwrap())).collect()
}

/// The function that a call stack begins in.
fn innermost(snapshot: &Snapshot, stack: StackId) -> &str {
    let frame = snapshot.tables.get_stack(stack).first().unwrap();
    let name = snapshot.tables.get_frame(*frame).unwrap().name;
    snapshot.tables.get_text(name).rsplit("::").next().unwrap()
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[test]
fn events_say_who_when_and_for_what() {
    let began = micros();
    let alloc = small(100);
    forgets(weights(&alloc));
    let _held = weights(&alloc);
    let snapshot = alloc.snapshot().unwrap();
    let trace = &snapshot.device_traces[0];
    let actions: Vec<Action> = trace.iter().map(|entry| entry.action).collect();
    let given_back = [Action::FreeRequested, Action::FreeCompleted];
    let expected = [
        vec![Action::SegmentAlloc, Action::Alloc],
        given_back.to_vec(),
        vec![Action::Alloc],
    ];
    assert_eq!(actions, expected.concat());
    let thread = Value::Int(i64::from(rustix::thread::gettid().as_raw_nonzero().get()));
    let mut last = began;
    for entry in trace {
        let TraceEntry {
            user_metadata, extra, ..
        } = *entry;
        assert_eq!(snapshot.lookup(extra.unwrap(), "thread"), Some(&thread));
        let tag = text(&snapshot, snapshot.tables.get_value(user_metadata.unwrap()));
        assert_eq!(tag, "weights");
        let is_free = given_back.contains(&entry.action);
        let by = if is_free { "forgets" } else { "weights" };
        assert_eq!(innermost(&snapshot, entry.frames.unwrap()), by, "{:?}", entry.action);
        assert!((last..=micros()).contains(&entry.time_us), "{entry:?} after {last}");
        last = entry.time_us;
    }
    assert_eq!(innermost(&snapshot, snapshot.segments[0].frames), "weights");
}

#[test]
fn what_is_about_no_block_is_told_in_words() {
    let alloc = small(100);
    drop(weights(&alloc));
    alloc.mark("forward");
    alloc.step();
    let _held = get(&alloc, 60);
    let refused = alloc.alloc::<u8>(40 * MIB, Stream::DEFAULT);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    let snapshot = alloc.snapshot().unwrap();
    let made_room = ["gpumem: cache released", "gpumem: request served after making room"];
    assert_eq!(
        names(&snapshot),
        [&["forward", "step 1 ended"], &made_room[..]].concat()
    );
    let last = snapshot.device_traces[0].last().unwrap();
    let free = (1 << 30) - (60 << 20);
    assert_eq!((last.action, last.size, last.addr), (Action::Oom, 40 << 20, free));
    assert_eq!(snapshot.setting("history_events_dropped"), Some(&Value::Int(0)));
}

#[test]
fn how_many_events_are_missing_is_told() {
    let alloc = small(2);
    (0..3).for_each(|_| drop(weights(&alloc)));
    let snapshot = alloc.snapshot().unwrap();
    assert_eq!(snapshot.setting("history_events_dropped"), Some(&Value::Int(5)));
    assert_eq!(snapshot.device_traces[0].len(), 3, "a free is two events of PyTorch's");
}
