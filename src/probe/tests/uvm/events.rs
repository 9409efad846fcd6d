//! What the events of a watched process say.

use std::fmt::Write;

use gpumem_probe::{BLOCK, BlockMoves, Cause, Direction, Events, Moves, Target, UvmWatch, Watching};

use crate::stage::{Process, Stage, run_until};

/// Runs the watch until the events satisfy `is`.
fn events_when(watch: &mut UvmWatch, what: &str, is: impl Fn(&Events) -> bool) -> Events {
    let mut found = None;
    run_until(watch, what, |watch| {
        found = watch.events().filter(|events| is(events));
        found.is_some()
    });
    found.unwrap()
}

fn listen(stage: &Stage) -> (Process, Target, UvmWatch) {
    let target = stage.target();
    let mut watch = stage.watch();
    watch.set(&[], Some(target.target()));
    let who = target.target();
    (target, who, watch)
}

/// The sums of events recorded on an H200 are right.
pub(crate) fn recorded_events() {
    let stage = Stage::new(include_str!("../../../../tests/fake-uvm/fixtures/ping-pong.scenario"));
    let (_target, who, mut watch) = listen(&stage);
    let events = events_when(&mut watch, "all", |e| {
        e.sums.moves(Cause::Prefetch, Direction::HostToDevice).count == 14_846
    });
    assert_eq!(watch.events_state(), Some((who, &Watching::On)));
    let sums = events.sums;
    let moves = |count, bytes| Moves { count, bytes };
    for (cause, direction, expected) in [
        (Cause::Fault, Direction::HostToDevice, moves(11_485, 194_494_464)),
        (Cause::Fault, Direction::DeviceToHost, moves(3744, 15_335_424)),
        (Cause::Prefetch, Direction::HostToDevice, moves(14_846, 1_147_682_816)),
        (Cause::Prefetch, Direction::DeviceToHost, moves(3744, 1_293_287_424)),
        (Cause::User, Direction::HostToDevice, moves(0, 0)),
    ] {
        assert_eq!(sums.moves(cause, direction), expected, "{cause:?} {direction:?}");
    }
    assert_eq!((sums.cpu_faults, sums.gpu_faults, sums.dropped), (3744, 86_716, 0));
    assert_eq!(
        stage.descriptors(stage.helpers()[0], "dev/nvidia-uvm"),
        1,
        "the one that flushes"
    );
}

pub(crate) fn blocks() {
    let stage = Stage::new(
        "\
0 event migration cause=1 from=0 to=2 address=0x10000000000 bytes=0x200000 times=3 step=0x200000
1 event migration cause=4 from=2 to=0 address=0x10000200000 bytes=0x10000
2 event thrashing from=0 address=0x10000400000 bytes=4096 times=5 step=4096
2 event throttling address=0x10000400000 times=2
2 event map_remote address=0x10000400000
",
    );
    let (_target, _, mut watch) = listen(&stage);
    let events = events_when(&mut watch, "all", |events| events.sums.remote == 1);
    let block = |n: u64| BlockMoves {
        start: 0x100_0000_0000 + n * BLOCK,
        to_gpu: BLOCK,
        count: 1,
        place: 2,
        on_gpu: u32::MAX,
        ..BlockMoves::default()
    };
    let evicted = BlockMoves {
        to_cpu: 0x1_0000,
        count: 2,
        place: 0,
        on_gpu: !1,
        evicted: 1,
        ..block(1)
    };
    let thrashed = BlockMoves {
        thrashed: true,
        ..block(2)
    };
    assert_eq!(events.blocks, [block(0), evicted, thrashed]);
    assert_eq!((events.sums.thrashing, events.sums.throttled), (5, 2));
    assert_eq!(events.processors[2], *b"fake-uvm-gpu-two");
}

/// The driver keeps some events back until a copy completes; the helper makes it look.
pub(crate) fn events_that_wait_for_a_flush() {
    let stage = Stage::new("0 event migration cause=2 from=0 to=1 address=0x10000000000 bytes=4096 held");
    let (_target, _, mut watch) = listen(&stage);
    events_when(&mut watch, "the event", |events| !events.blocks.is_empty());
    assert!(
        stage
            .fake
            .requests()
            .unwrap()
            .iter()
            .any(|request| request.number == 67)
    );
}

/// The queue has room for 262,143 events.
pub(crate) fn dropped_events() {
    let stage = Stage::new("0 event gpu_fault times=262153\n0 event cpu_fault");
    let (_target, _, mut watch) = listen(&stage);
    let events = events_when(&mut watch, "all", |events| events.sums.gpu_faults > 0);
    assert_eq!(events.sums.gpu_faults, 262_143);
    assert!([10, 11].contains(&events.sums.dropped), "{:?}", events.sums);
}

/// Whatever the driver writes, the helper keeps running and reports what it understands.
pub(crate) fn hostile_entries() {
    let mut scenario = String::new();
    // A simple generator is enough to give each byte of the entries many values.
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    for n in 0..2000 {
        let mut entry: Vec<u8> = (0..64).map(|_| byte()).collect();
        // Half of them have types that the helper takes.
        if n % 2 == 0 {
            entry[0] = [1, 2, 3, 10, 11, 13][n / 2 % 6];
        }
        let hex = entry.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(scenario, "0 event raw={hex}").unwrap();
    }
    // A flood that fills the queue, and then an event that is still understood, repeated because it may be dropped.
    scenario += "1 event map_remote times=300000\n";
    for at in (100..4000).step_by(100) {
        writeln!(
            scenario,
            "{at} event migration cause=2 from=0 to=1 address=0x1234200000 bytes=4096"
        )
        .unwrap();
    }
    let stage = Stage::new(&scenario);
    let (_target, who, mut watch) = listen(&stage);
    let events = events_when(&mut watch, "the last", |events| {
        events.blocks.iter().any(|block| block.start == 0x12_3420_0000)
    });
    assert_eq!(watch.events_state(), Some((who, &Watching::On)));
    assert!(
        events.sums.cpu_faults > 100 && events.sums.thrashing > 100,
        "{:?}",
        events.sums
    );
}

/// Events of one process are not shown as another's.
pub(crate) fn another_process() {
    let stage = Stage::new("space=1 0 event cpu_fault times=10\nspace=2 50 event gpu_fault times=20");
    let (one, two) = (stage.target_with(&["1"]), stage.target_with(&["2"]));
    let mut watch = stage.watch();
    watch.set(&[], Some(one.target()));
    events_when(&mut watch, "the first's", |events| events.sums.cpu_faults == 10);
    watch.set(&[], Some(two.target()));
    run_until(&mut watch, "the second's", |watch| {
        let Some(events) = watch.events() else { return false };
        assert_eq!(events.sums.cpu_faults, 0);
        events.sums.gpu_faults == 20
    });
    two.kill();
    stage.wait_for_trackers(0);
    run_until(&mut watch, "it has ended", |watch| match watch.events_state() {
        Some((_, Watching::Off(why))) => why == "the process has ended",
        _ => false,
    });
}
