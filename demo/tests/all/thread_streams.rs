//! Recordings of programs with per-thread default streams. The streams' numbers are not those of the replay's threads.

use std::fmt::Write;
use std::path::Path;

use gpumem_channel::PER_THREAD_STREAMS;
use gpumem_demo::DeviceChoice;
use gpumem_demo::replay::{ReplayArgs, run};
use gpumem_demo::trace::{Op, Trace};

/// Replays a program whose streams have these numbers, and returns the memory it took.
fn replayed(trace: &Trace, number: impl Fn(u64) -> u64) -> String {
    let mut rows = "op,id,bytes,stream\n".to_owned();
    for op in &trace.ops {
        match *op {
            Op::Alloc { slot, stream, bytes } => {
                let stream = number(trace.streams[usize::from(stream)]);
                writeln!(rows, "a,{slot},{bytes},{stream}").unwrap();
            }
            Op::Free { slot } => writeln!(rows, "f,{slot}").unwrap(),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, rows).unwrap();
    let report = run(&ReplayArgs {
        trace: path,
        device: DeviceChoice::Sim,
        publish: false,
        ..ReplayArgs::default()
    });
    let report = report.unwrap();
    format!("{:?} {:?}", report.memory, report.time.passes[0].driver_calls)
}

#[test]
fn recorded_threads_are_not_taken_for_ended_ones() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/multi_stream_2000.csv.gz");
    let trace = Trace::open(&recorded).unwrap();
    let of_threads = |stream: u64| PER_THREAD_STREAMS.start + 0x1000 + stream;
    assert_eq!(replayed(&trace, of_threads), replayed(&trace, |stream| stream + 10));
}
