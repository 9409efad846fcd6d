//! Recorded allocations, in the three formats that `replay` reads.

use std::fmt::Write;
use std::path::Path;

use gpumem_demo::trace::{Op, Trace};
use gpumem_tests::{Random, World};

use super::snapshots::{self, SMALL};
use super::{PROGRAM, TRACE, Tally, attempt, mutate, replay, run_with};

/// How many operations of a real program are mutated.
const OPERATIONS: usize = 120;

const PIECES: [&[u8]; 18] = [
    b",",
    b"\n",
    b"\r\n",
    b"-",
    b"0x",
    b"a,1,0,0\n",
    b"f,1\n",
    b"op,id,bytes,stream\n",
    b"Thread,Time,Action,Pointer,Size,Stream\n",
    b"18446744073709551615",
    b"9223372036854775808",
    b"999999999999999999999999",
    b"(nil)",
    b"allocate failure",
    b"\x1f\x8b",
    b"\x80\x04",
    b"{\"segments\": [",
    b"\x1b[31m",
];

/// Returns a real program's first operations as a file of ours, and as a log of RMM.
fn real() -> [Vec<u8>; 2] {
    let trace = Trace::open(Path::new(TRACE)).unwrap();
    let mut csv = "op,id,bytes,stream\n".to_owned();
    let mut log = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned();
    let mut sizes = vec![0; trace.slots];
    for op in &trace.ops[..OPERATIONS] {
        match *op {
            Op::Alloc { slot, stream, bytes } => {
                sizes[slot as usize] = bytes;
                writeln!(csv, "a,{slot},{bytes},{stream}").unwrap();
                writeln!(log, "1,2,allocate,0x{:x},{bytes},{stream:x}", slot + 1).unwrap();
            }
            Op::Free { slot } => {
                writeln!(csv, "f,{slot}").unwrap();
                writeln!(log, "1,2,free,0x{:x},{},0", slot + 1, sizes[slot as usize]).unwrap();
            }
        }
    }
    [csv.into_bytes(), log.into_bytes()]
}

/// Tries `count` mutated traces.
pub(crate) fn traces(random: &mut Random, count: u64) -> Tally {
    let [csv, log] = real();
    let files = [csv, log, SMALL.as_bytes().to_vec(), snapshots::pickle()];
    let (world, folder) = (World::without_gpu(), tempfile::tempdir().unwrap());
    let file = folder.path().join("trace");
    let mut tally = Tally::default();
    for n in 0..count {
        let mut bytes = files[random.below(files.len() as u64) as usize].clone();
        mutate(random, &mut bytes, &PIECES);
        let read = attempt(&bytes, || {
            Trace::read(&bytes[..]).map_err(|problem| problem.to_string())
        });
        if let Some(trace) = &read {
            assert_sound(trace);
        }
        tally.inputs += 1;
        tally.read += u64::from(read.is_some());
        tally.refused += u64::from(read.is_none());
        if n % PROGRAM == 0 {
            std::fs::write(&file, &bytes).unwrap();
            tally.runs += 1;
            run_with(&bytes, replay(&world, &file), if read.is_some() { &[0] } else { &[1] });
        }
    }
    tally
}

/// Checks that blocks begin before they end, in slots that are free, and that no block is live that was not requested.
fn assert_sound(trace: &Trace) {
    let mut live: Vec<Option<u64>> = vec![None; trace.slots];
    let (mut now, mut peak) = (0u64, 0);
    for op in &trace.ops {
        match *op {
            Op::Alloc { slot, stream, bytes } => {
                assert!(usize::from(stream) < trace.streams.len() && bytes > 0);
                assert_eq!(live[slot as usize].replace(bytes), None);
                now += bytes;
                peak = peak.max(now);
            }
            Op::Free { slot } => now -= live[slot as usize].take().unwrap(),
        }
    }
    assert_eq!((trace.peak_requested, trace.live_bytes), (peak, now));
    assert_eq!(trace.live_blocks, live.iter().flatten().count() as u64);
}
