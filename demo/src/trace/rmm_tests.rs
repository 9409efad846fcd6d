//! RMM's logs, including those that begin after their program.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::tests::{RMM, alloc, free, read};
use super::{Format, Odd, Op, Trace};

/// Returns a row; the last two fields are size and stream.
fn row(action: &str, pointer: u64, size: u64, stream: u64) -> String {
    format!("1,2,{action},0x{pointer:x},{size},{stream:x}\n")
}

fn log(rows: &[String]) -> Trace {
    read(format!("{RMM}{}", rows.concat())).unwrap()
}

#[test]
fn rmm_log_is_read() {
    let text = "\
Thread,Time,Action,Pointer,Size,Stream
2342727,15:47:02.841961,allocate,0x10012400000,1048576,0
2342727,15:47:02.841962,allocate,(nil),0,0
2342727,15:47:02.841963,allocate failure,(nil),99999999999,0
2342728,15:47:02.841970,allocate,0x10012500000,512,0x7f8a38001020
2342727,15:47:02.841977,free,0x10012400000,1048576,0
2342727,15:47:02.841978,free,(nil),0,0
2342727,15:47:02.841980,allocate,0x10012400000,256,0x0
";
    let trace = read(text).unwrap();
    assert_eq!(
        trace.ops,
        [alloc(0, 0, 1 << 20), alloc(1, 1, 512), free(0), alloc(0, 0, 256)]
    );
    assert_eq!(
        (trace.format, &trace.streams[..]),
        (Format::RmmLog, &[0, 0x7f8a_3800_1020][..])
    );
    assert_eq!(
        (
            trace.zero_sized,
            trace.recorded_failures,
            trace.others,
            trace.live_blocks
        ),
        (1, 1, 1, 2)
    );
}

/// They come first, in the order of their addresses, and live until they are freed.
#[test]
fn blocks_freed_but_not_allocated_were_live_before() {
    let trace = log(&[
        row("allocate", 0x10, 100, 0),
        row("free", 0x10, 100, 0),
        row("free", 0x30, 50, 7),
        row("allocate", 0x30, 5, 0),
        row("free", 0x20, 8, 0),
    ]);
    let expected = [
        alloc(2, 0, 8),
        alloc(1, 1, 50),
        alloc(0, 0, 100),
        free(0),
        free(1),
        alloc(1, 0, 5),
        free(2),
    ];
    assert_eq!(trace.ops, expected);
    assert_eq!((trace.assumed, trace.slots, trace.peak_requested), (2, 3, 158));
    assert_eq!((&trace.streams[..], trace.live_bytes), (&[0, 7][..], 5));
}

#[test]
fn second_free_is_not_of_an_older_block() {
    let (allocate, of_it) = (row("allocate", 0x10, 8, 0), row("free", 0x10, 8, 0));
    // Once allocated in the log, and once assumed.
    for rows in [&[&allocate, &of_it, &of_it][..], &[&of_it, &of_it]] {
        let rows: Vec<String> = rows.iter().map(|row| (*row).clone()).collect();
        let trace = log(&rows);
        let twice = "column 10: the block at 0x10 is not live (never allocated, or freed before); expected one that is";
        assert_eq!(trace.odd.first, format!("line {}, {twice}", rows.len() + 1));
        assert_eq!((trace.odd.rows, trace.ops.len()), (1, 2));
    }
    let nothing = read(format!("{RMM}1,2,free,(nil),8,0\n")).unwrap_err().to_string();
    assert!(nothing.starts_with("line 2, column 10: found \"(nil)\""), "{nothing}");
    let large = [u64::MAX, 1].map(|size| row("free", size, size, 0)).concat();
    let trace = read(format!("{RMM}{large}")).unwrap();
    let said = &trace.odd.first;
    assert!(
        said.starts_with("line 3, column 14: the sum of all live blocks"),
        "{said}"
    );
}

/// RMM before 0.15 did not log the size.
#[test]
fn free_of_0_bytes_has_an_unknown_size() {
    let trace = log(&[
        row("allocate", 0x10, 8, 0),
        row("free", 0x10, 0, 0),
        row("free", 0x20, 0, 0),
    ]);
    assert_eq!(trace.ops, [alloc(0, 0, 8), free(0)]);
    assert_eq!((trace.others, trace.assumed, trace.odd), (1, 0, Odd::default()));
}

/// A thread logs its free after another thread has got the address.
#[test]
fn late_free_is_of_the_previous_block() {
    let (one, two) = (row("allocate", 0x10, 8, 0), row("allocate", 0x10, 5, 7));
    let (free_one, free_two) = (row("free", 0x10, 8, 0), row("free", 0x10, 5, 7));
    let ops = [alloc(0, 0, 8), free(0), alloc(0, 1, 5), free(0)];
    let trace = log(&[one.clone(), two.clone(), free_one.clone(), free_two.clone()]);
    assert_eq!((&trace.ops[..], trace.assumed, trace.odd.sizes), (&ops[..], 0, 0));
    assert_eq!(trace.odd, Odd::default());
    // A missing free is assumed.
    let trace = log(&[one, two]);
    assert_eq!((&trace.ops[..], trace.assumed), (&ops[..3], 1));
    assert_eq!(trace.odd, Odd::default());
}

/// CUDA's handles of the default stream and of the per-thread default stream.
#[test]
fn per_thread_streams_are_distinguished() {
    let row = |thread: &str, stream: &str| format!("{thread},2,allocate,0x{thread},8,{stream}\n");
    let rows = [
        ("1", "0x2"),
        ("2", "0x2"),
        ("3", "0"),
        ("4", "0x1"),
        ("5", "(nil)"),
        ("6", "default"),
    ];
    let rows: Vec<String> = rows.iter().map(|(thread, stream)| row(thread, stream)).collect();
    let trace = log(&[
        &rows[..],
        &[row("1a", "per_thread").replace("1a,", "1,"), row("8", "other")],
    ]
    .concat());
    let streams: Vec<u16> = trace
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Alloc { stream, .. } => Some(*stream),
            Op::Free { .. } => None,
        })
        .collect();
    assert_eq!((&streams[..], trace.odd.rows), (&[0, 1, 2, 2, 2, 2, 0][..], 1));
}

/// Returns the operations without their slots, which may differ.
fn ops_without_slots(trace: &Trace) -> Vec<(u64, Option<u64>)> {
    let mut slots = vec![0; trace.slots];
    let ops = trace.ops.iter();
    ops.map(|op| match *op {
        Op::Alloc { slot, stream, bytes } => {
            let was = std::mem::replace(&mut slots[slot as usize], bytes);
            assert_eq!(was, 0, "the slot is taken");
            (bytes, Some(trace.streams[usize::from(stream)]))
        }
        Op::Free { slot } => (std::mem::take(&mut slots[slot as usize]), None),
    })
    .collect()
}

proptest! {
    /// A log without its first rows is read as if these allocated what the others free.
    #[test]
    fn log_without_its_beginning_begins_with_older_blocks(
        choices in prop::collection::vec((1u64..9, 1u64..1000, 0u64..3), 0..100),
        cut in 0usize..50,
    ) {
        let mut live = std::collections::BTreeMap::new();
        let (mut rows, mut older) = (Vec::new(), String::new());
        for (id, bytes, stream) in choices {
            match live.remove(&id) {
                Some((bytes, stream)) => rows.push(row("free", id, bytes, stream)),
                None => {
                    live.insert(id, (bytes, stream));
                    rows.push(row("allocate", id, bytes, stream));
                }
            }
        }
        let rest = &rows[cut.min(rows.len())..];
        let of = |id: u64| move |row: &&String| row.contains(&format!(",0x{id:x},"));
        for first in (1..9).filter_map(|id| rest.iter().find(of(id))) {
            if first.contains("free") {
                older += &first.replace("free", "allocate");
            }
        }
        let (cut, whole) = (log(rest), log(&[&[older.clone()], rest].concat()));
        prop_assert_eq!(ops_without_slots(&cut), ops_without_slots(&whole));
        prop_assert_eq!((cut.slots, cut.peak_requested), (whole.slots, whole.peak_requested));
        prop_assert_eq!((cut.live_blocks, cut.live_bytes), (whole.live_blocks, whole.live_bytes));
        prop_assert_eq!((cut.assumed, whole.assumed), (older.lines().count() as u64, 0));
    }
}
