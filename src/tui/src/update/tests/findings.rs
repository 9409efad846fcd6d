//! The findings.

use std::sync::Arc;

use gpumem_channel::{BlockState, DeviceKind, Life, SegmentKind};
use gpumem_probe::NvmlState;

use super::sample::*;
use crate::event::Key;
use crate::model::*;

use BlockState::{Allocated, Free, PendingFree};

fn findings(model: &Model) -> Vec<(Severity, String)> {
    model
        .world()
        .findings
        .iter()
        .map(|f| (f.severity, f.text.clone()))
        .collect()
}

#[test]
fn fragmented_cache_is_a_finding_and_a_whole_one_is_not() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![channel(4, &[&holes])])]);
    let text = "python job4 (4): 8.0 GiB cached: requests over 1.0 GiB take new memory";
    assert_eq!(
        findings(&model),
        [(Severity::Info, text.into())],
        "nothing needs doing yet"
    );
    assert_eq!(model.world().findings[0].process, Some(model.world().processes[0].id));
    feed(
        &mut model,
        [channels(
            2 * SECOND,
            vec![channel(4, &[&[(8 * GIB, Free), (8 * GIB, Allocated)]])],
        )],
    );
    assert_eq!(findings(&model), []);
    let small: Vec<_> = (0..8).flat_map(|_| [(MIB, Free), (MIB, Allocated)]).collect();
    feed(&mut model, [channels(3 * SECOND, vec![channel(4, &[&small])])]);
    assert_eq!(findings(&model), [], "8 MiB are too little");
}

/// A cache of 8 GiB in holes of 1 GiB. A `budget` of 0 is none.
fn fragmented(budget: u64) -> Channel {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut channel = channel(4, &[&holes]);
    let map = &mut Arc::make_mut(&mut channel.snapshot).devices[0];
    map.device.budget = budget;
    channel.figures = [Figures::of(map, &[], None)].into();
    channel
}

#[test]
fn larger_request_fails_if_no_new_memory_is_left() {
    let mut model = model();
    let mut reported = |budget, used| {
        let events = [
            nvml(SECOND, used, &[(4, used)]),
            channels(SECOND, vec![fragmented(budget)]),
        ];
        feed(&mut model, events);
        let texts = findings(&model).into_iter().map(|(_, text)| text);
        let mut texts: Vec<_> = texts
            .filter(|text| text.starts_with("python job4 (4): ") && text.contains("cached"))
            .collect();
        texts.remove(0)
    };
    let new = "python job4 (4): 8.0 GiB cached: requests over 1.0 GiB take new memory";
    let fails = "requests over 1.0 GiB fail unless the cache is released";
    assert_eq!(reported(0, 17 * GIB), new);
    assert_eq!(reported(18 * GIB, 17 * GIB), new);
    let budget = format!("python job4 (4): 8.0 GiB cached, budget 17.0 GiB: {fails}");
    assert_eq!(reported(17 * GIB, 17 * GIB), budget);
    let device = format!("python job4 (4): 8.0 GiB cached: {fails}");
    assert_eq!(reported(0, 79 * GIB), device);
    assert_eq!(reported(0, 78 * GIB), new, "1.5 GiB are left");
}

/// The cached bytes change with every sample, and findings that keep changing places cannot be read.
#[test]
fn findings_about_caches_keep_their_order() {
    let holes = |free, held| [(free, Free), (held, Allocated)].repeat(4);
    let mut model = model();
    for (at, large) in [(1, 3 * GIB), (2, GIB), (3, 3 * GIB)] {
        let list = vec![
            channel(4, &[&holes(GIB * 3 / 2, GIB / 2)]),
            channel(5, &[&holes(large, 4 * GIB - large)]),
        ];
        feed(&mut model, [channels(at * SECOND, list)]);
        let first = &findings(&model)[0].1;
        assert!(first.starts_with("python job5 (5): "), "{first}");
    }
}

/// 76 of 80 GB: the part that no allocator has is named, and only once for a process with two allocators.
#[test]
fn memory_outside_of_the_allocator_is_a_finding() {
    let mut torch = channel(4, &[&[(20 * GIB, Allocated)]]);
    let snapshot = Arc::make_mut(&mut torch.snapshot);
    snapshot.strings = ["".into(), "NCCL (2 groups)".into()].into();
    let map = &mut snapshot.devices[0];
    map.outside = Some(gpumem_channel::Outside {
        at_start: GIB / 2,
        measured_at: 1,
        users: gpumem_channel::StringId(1),
    });
    torch.figures = [Figures::of(
        map,
        &snapshot.strings,
        Some(&gpumem_channel::Sampled::default()),
    )]
    .into();
    let mut other = channel(4, &[&[(GIB, Allocated)]]);
    other.key = ChannelKey(2, 4);
    let mut model = model();
    let mut outside = |used, list| {
        feed(&mut model, [nvml(SECOND, used, &[(4, used)]), channels(SECOND, list)]);
        let texts = findings(&model).into_iter().map(|(_, text)| text);
        texts.filter(|text| text.contains("outside")).collect::<Vec<_>>()
    };
    let said = "python job4 (4): 2.0 GiB outside of PyTorch's allocator: 512 MiB at the start (context), 1.5 GiB since (kernels, libraries, NCCL (2 \
                groups))";
    assert_eq!(outside(22 * GIB, vec![torch.clone()]), [said]);
    assert_eq!(outside(23 * GIB, vec![torch.clone(), other]), [said]);
    assert_eq!(outside(21 * GIB - 1, vec![torch]), [""; 0], "any process has some");
}

#[test]
fn memory_without_a_listed_owner_is_a_finding() {
    let mut model = model();
    let text =
        "GPU 0: 16.0 GiB are in use, but by no process NVML lists: a container, a process that ended, or the driver";
    let reported = |model: &Model| findings(model).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    feed(&mut model, [nvml(SECOND, 60 * GIB, &[(5, 41 * GIB), (6, 3 * GIB)])]);
    assert_eq!(findings(&model), [(Severity::Info, text.into())]);
    assert_eq!(model.world().findings[0].process, None);
    feed(&mut model, [nvml(SECOND, 46 * GIB - 410 * MIB, &[(5, 44 * GIB)])]);
    assert_eq!(reported(&model), [""; 0], "less than 2 % of 80 GiB");
    // A publisher is known even if NVML does not list it.
    feed(
        &mut model,
        [
            nvml(SECOND, 60 * GIB, &[(6, 3 * GIB)]),
            channels(SECOND, vec![channel(5, &[&[(56 * GIB, Allocated)]])]),
        ],
    );
    assert_eq!(reported(&model), [""; 0]);
    feed(
        &mut model,
        [channels(SECOND, vec![channel(5, &[&[(41 * GIB, Allocated)]])])],
    );
    assert_eq!(reported(&model), [text]);
}

#[test]
fn unowned_memory_is_no_finding_if_it_is_unknown() {
    use gpumem_probe::{Gpu, MigDevice, Reading};
    let unknowns: [fn(&mut Gpu); 4] = [
        |gpu| gpu.processes = Reading::Failed("Unknown Error".into()),
        |gpu| gpu.host = Some(gpumem_probe::HostMemory::default()),
        |gpu| gpu.mig = vec![MigDevice::default()],
        |gpu| {
            if let Reading::Value(list) = &mut gpu.processes {
                list[0].used = Reading::NotSupported;
            }
        },
    ];
    for (n, change) in unknowns.iter().enumerate() {
        let mut model = model();
        feed(&mut model, [nvml_but(SECOND, 60 * GIB, &[(5, 41 * GIB)], change)]);
        let reported: Vec<String> = findings(&model).into_iter().map(|(_, text)| text).collect();
        let why = "GPU 0: NVML cannot list processes (Unknown Error): only those that publish are listed";
        assert_eq!(reported, if n == 0 { vec![why] } else { vec![] }, "{n}");
    }
}

#[test]
fn finding_names_the_device_if_there_are_several() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let (first, mut second) = (channel(4, &[&holes]), channel(4, &[&holes[..8]]));
    second.key.1 += 1;
    let device = &mut Arc::make_mut(&mut second.snapshot).devices[0].device;
    (device.uuid, device.ordinal) = ([8; 16], 1);
    let mut model = model();
    feed(
        &mut model,
        [
            nvml_state(SECOND, NvmlState::Missing),
            channels(SECOND, vec![first, second]),
        ],
    );
    let findings: Vec<_> = findings(&model).into_iter().map(|(_, text)| text).collect();
    assert!(
        findings[0].starts_with("python job4 (4, CUDA 0): 8.0 GiB cached"),
        "{findings:?}"
    );
    assert!(
        findings[1].starts_with("python job4 (4, CUDA 1): 4.0 GiB cached"),
        "{findings:?}"
    );
}

#[test]
fn pending_blocks_are_cached_but_not_fragmentation() {
    let mut model = model();
    let blocks = [(8 * GIB, PendingFree), (GIB, Free), (8 * GIB, Allocated)];
    feed(&mut model, [channels(SECOND, vec![channel(4, &[&blocks])])]);
    let figures = model.world().processes[0].figures.as_ref().unwrap();
    assert_eq!((figures.cached, figures.pending), (9 * GIB, 8 * GIB));
    assert_eq!(findings(&model), []);
    // The cached bytes are those of the table.
    let holes = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]);
    let blocks: Vec<_> = holes.chain([(4 * GIB, PendingFree)]).collect();
    feed(&mut model, [channels(2 * SECOND, vec![channel(4, &[&blocks])])]);
    let text = &findings(&model)[0].1;
    assert!(
        text.starts_with("python job4 (4): 12.0 GiB cached (4.0 GiB of it pending): requests over 1.0 GiB"),
        "{text}"
    );
}

#[test]
fn fragmented_cache_that_is_stitched_is_no_finding() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let fragmented = channel(4, &[&holes]);
    let mut map = fragmented.snapshot.devices[0].clone();
    for segment in &mut map.segments {
        Arc::make_mut(segment).segment.kind = SegmentKind::Stitched;
    }
    let stitched = Channel {
        figures: [Figures::of(&map, &[], None)].into(),
        ..fragmented
    };
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![stitched])]);
    assert_eq!(findings(&model), []);
}

#[test]
fn full_card_comes_before_a_death() {
    let mut model = model();
    let list = |life| vec![channel_on(4, &[&[(79 * GIB, Allocated)]], DeviceKind::Cuda, life)];
    feed(
        &mut model,
        [
            nvml(SECOND, 79 * GIB, &[(4, 79 * GIB)]),
            channels(SECOND, list(Life::Alive)),
        ],
    );
    assert_eq!(
        findings(&model),
        [(Severity::Warning, "GPU 0: 512 MiB of 80.0 GiB left".into())]
    );
    feed(&mut model, [channels(2 * SECOND, list(Life::Died))]);
    let died = (Severity::Info, "python job4 (4) died holding 79.0 GiB".into());
    assert_eq!(
        findings(&model),
        [(Severity::Warning, "GPU 0: 512 MiB of 80.0 GiB left".into()), died]
    );
}

#[test]
fn broken_channels_are_named_with_their_reason() {
    let mut model = model();
    let mut broken = channel(4, &[&[(GIB, Allocated)]]);
    broken.error = Some("the file was cut short while it was open".into());
    feed(&mut model, [channels(SECOND, vec![broken])]);
    assert_eq!(
        findings(&model),
        [(
            Severity::Warning,
            "python job4 (4): the file was cut short while it was open".into()
        )]
    );
    let mut with_problem = |at, file: &str, kind, text: &str| {
        let problem = Problem {
            file: file.into(),
            kind,
            text: text.into(),
        };
        let sample = ChannelSample {
            problems: vec![problem],
            ..ChannelSample::default()
        };
        feed(&mut model, [channel_sample(at, sample)]);
        findings(&model)
    };
    let text = "channel 1-2-0.gpumem cannot be read: not a gpumem channel";
    assert_eq!(
        with_problem(2 * SECOND, "1-2-0.gpumem", ProblemKind::File, "not a gpumem channel"),
        [(Severity::Info, text.into())]
    );
    let text = "channel directory /dev/shm/x is refused: it belongs to another user. Programs that publish there are not shown";
    assert_eq!(
        with_problem(
            3 * SECOND,
            "/dev/shm/x",
            ProblemKind::Directory,
            "it belongs to another user"
        ),
        [(Severity::Warning, text.into())]
    );
    let text = "/dev/shm/x: it has more than 9 entries. Some publishers may not be shown";
    assert_eq!(
        with_problem(
            4 * SECOND,
            "/dev/shm/x",
            ProblemKind::Overflow,
            "it has more than 9 entries"
        ),
        [(Severity::Warning, text.into())]
    );
}

/// If the card has free memory, nothing else explains why a request failed.
#[test]
fn budget_is_named_with_the_request_that_it_refused() {
    let mut short = channel(4, &[&[(9 * GIB, Allocated)]]);
    let mut map = short.snapshot.devices[0].clone();
    map.device.budget = 24 * GIB;
    let mut figures = Figures::of(&map, &[], None).unwrap();
    figures.ooms = 1;
    figures.ran_out = Some(RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        device_free: None,
        largest_free: None,
        served: false,
        ..RanOut::default()
    });
    short.figures = [Some(figures)].into();
    let mut model = model();
    feed(&mut model, [channels(11 * SECOND, vec![short])]);
    let text = "python job4 (4): ran out of memory: tried to allocate 20.0 GiB, budget 24.0 GiB. Fix: raise the budget";
    assert_eq!(findings(&model), [(Severity::Error, text.into())]);
}

/// Returns the findings at a time about a process that failed `ooms` times, the last time with this failure.
fn findings_for(model: &mut Model, at: Nanos, failure: RanOut, ooms: u64) -> Vec<(Severity, String)> {
    let mut short = channel(4, &[&[(9 * GIB, Allocated)]]);
    let mut figures = short.figures[0].clone().unwrap();
    figures.ooms = ooms;
    figures.ran_out = Some(failure);
    short.figures = [Some(figures)].into();
    feed(model, [channels(at, vec![short])]);
    findings(model)
}

/// Returns the findings about a request of 20 GiB that failed at second 10, when the largest free block had 5 GiB.
fn ran_out(model: &mut Model, at: Nanos, served: bool, ooms: u64) -> Vec<(Severity, String)> {
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        device_free: None,
        largest_free: Some(5 * GIB),
        served,
        ..RanOut::default()
    };
    findings_for(model, at, failure, ooms)
}

/// A black box of another clock may have such a time, so it is not known whether the failure is recent.
#[test]
fn failure_in_the_future_has_no_age() {
    for served in [false, true] {
        let mut model = Model::default();
        let findings = ran_out(&mut model, 9 * SECOND, served, 1);
        let (severity, text) = findings
            .iter()
            .find(|(_, text)| text.contains("ran out of memory"))
            .unwrap();
        assert_eq!(*severity, Severity::Warning, "{text}");
        assert!(
            !text.contains("ago") && text.contains("succeeded since") == served,
            "{text}"
        );
    }
}

/// If the device had enough free memory, something else refused the request, such as the budget of a pool.
#[test]
fn free_memory_of_the_device_is_shown_with_the_failure() {
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        device_free: Some(60 * GIB),
        largest_free: None,
        served: false,
        ..RanOut::default()
    };
    let text = "python job4 (4): ran out of memory: tried to allocate 20.0 GiB, the device had 60.0 GiB free";
    let findings = findings_for(&mut model(), 11 * SECOND, failure, 1);
    assert_eq!(findings, [(Severity::Error, text.into())]);
}

#[test]
fn tag_and_pool_are_shown_with_the_failure() {
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        tag: Some("optimizer".into()),
        pool: Some("tenant".into()),
        device_free: Some(60 * GIB),
        ..RanOut::default()
    };
    let text = "python job4 (4): ran out of memory: optimizer tried to allocate 20.0 GiB in pool tenant, the device had 60.0 GiB free";
    let findings = findings_for(&mut model(), 11 * SECOND, failure.clone(), 1);
    assert_eq!(findings, [(Severity::Error, text.into())]);
    // A pool without a name of the program is called a private pool already.
    let failure = RanOut {
        pool: Some("private pool 1".into()),
        ..failure
    };
    let findings = &findings_for(&mut model(), 11 * SECOND, failure, 1)[0].1;
    assert!(
        findings.contains("tried to allocate 20.0 GiB in private pool 1, "),
        "{findings}"
    );
}

#[test]
fn advice_is_shown_until_as_much_was_served_and_a_minute_has_passed() {
    let advised = |words: &str, bytes, served| {
        let failure = RanOut {
            at: 10 * SECOND,
            requested: 20 * GIB,
            advice: Some((words.into(), bytes)),
            served,
            ..RanOut::default()
        };
        findings_for(&mut model(), 11 * SECOND, failure, 1)[0].1.clone()
    };
    let text = "python job4 (4): ran out of memory: tried to allocate 20.0 GiB. Fix: ";
    assert_eq!(advised("wait for the GPU", 0, false), format!("{text}wait for the GPU"));
    // Sizes are rounded up.
    let raise = advised("raise the budget by", (2 << 30) + 1, false);
    assert_eq!(raise, format!("{text}raise the budget by 2.1 GiB"));
    // But not to the whole request.
    let smaller = advised("a request smaller by", (20 << 30) - (50 << 20), false);
    assert_eq!(smaller, format!("{text}a request smaller by 20430.0 MiB"));
    // A program that fails and goes on in turn would have a line that changes all the time.
    assert_eq!(advised("wait for the GPU", 0, true), format!("{text}wait for the GPU"));
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        advice: Some(("wait for the GPU".into(), 0)),
        served: true,
        ..RanOut::default()
    };
    let served = &findings_for(&mut model(), 71 * SECOND, failure, 1)[0].1;
    assert!(!served.contains("Fix"), "{served}");
}

#[test]
fn failed_request_is_an_error_until_served_or_old() {
    let mut model = model();
    let asked = "tried to allocate 20.0 GiB, largest free block 5.0 GiB";
    let text = format!("python job4 (4): ran out of memory: {asked}");
    assert_eq!(ran_out(&mut model, 11 * SECOND, false, 1), [(Severity::Error, text)]);
    let text = format!(
        "python job4 (4): ran out of memory 2 times, 1 min ago: {asked}; a request of that size succeeded since"
    );
    assert_eq!(ran_out(&mut model, 75 * SECOND, true, 2), [(Severity::Warning, text)]);
    let text = format!("python job4 (4): ran out of memory, 10 min ago: {asked}");
    assert_eq!(ran_out(&mut model, 610 * SECOND, false, 1), [(Severity::Warning, text)]);
}

#[test]
fn most_bytes_at_stake_come_first_at_equal_severity() {
    let holes = |n: u64| -> Vec<_> { (0..8).flat_map(|_| [(n, Free), (n, Allocated)]).collect() };
    let mut model = model();
    let (small, large) = (holes(GIB), holes(2 * GIB));
    let list = vec![channel(3, &[&small]), channel(4, &[&large]), channel(5, &[&small])];
    feed(&mut model, [channels(SECOND, list)]);
    let first: Vec<String> = findings(&model)
        .into_iter()
        .map(|(_, text)| text[..25].to_owned())
        .collect();
    assert_eq!(
        first,
        [
            "python job4 (4): 16.0 GiB",
            "python job3 (3): 8.0 GiB ",
            "python job5 (5): 8.0 GiB "
        ]
    );
}

/// Nothing can be done for a process that ended. If only one finding fits, it must not hide one about a live process.
#[test]
fn findings_about_live_processes_come_first() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut ended = channel_on(4, &[&[(9 * GIB, Allocated)]], DeviceKind::Cuda, Life::Closed);
    let mut figures = ended.figures[0].clone().unwrap();
    figures.ooms = 1;
    figures.ran_out = Some(RanOut {
        at: SECOND,
        requested: 20 * GIB,
        device_free: None,
        largest_free: None,
        served: false,
        ..RanOut::default()
    });
    ended.figures = [Some(figures)].into();
    let mut model = model();
    let alive = Channel {
        snapshot: channel(4, &[]).snapshot,
        ..ended.clone()
    };
    let reported = |model: &Model| findings(model).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let mut living = channel(5, &[&holes]);
    let map = &mut Arc::make_mut(&mut living.snapshot).devices[0];
    map.device.budget = 17 * GIB;
    living.figures = [Figures::of(map, &[], None)].into();
    feed(&mut model, [channels(SECOND, vec![alive, living.clone()])]);
    assert!(
        reported(&model)[0].starts_with("python job4 (4): ran out of memory"),
        "{:?}",
        reported(&model)
    );
    feed(&mut model, [channels(2 * SECOND, vec![ended, living])]);
    let reported = reported(&model);
    assert!(
        reported[0].starts_with("python job5 (5): 8.0 GiB cached"),
        "{reported:?}"
    );
    assert!(
        reported[1].starts_with("python job4 (4), exited: ran out of memory"),
        "{reported:?}"
    );
}

#[test]
fn filter_hides_findings_about_other_processes() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut model = model();
    let list = vec![channel(3, &[&holes]), channel(4, &[&holes])];
    feed(&mut model, [nvml(SECOND, 79 * GIB, &[]), channels(SECOND, list)]);
    let reported = |model: &Model| -> Vec<String> {
        model
            .findings()
            .map(|f| f.text.split(':').next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(
        reported(&model),
        ["GPU 0", "python job3 (3)", "python job4 (4)", "GPU 0"]
    );
    press(
        &mut model,
        &[
            Key::Char('/'),
            Key::Char('j'),
            Key::Char('o'),
            Key::Char('b'),
            Key::Char('4'),
        ],
    );
    assert_eq!(reported(&model), ["GPU 0", "python job4 (4)", "GPU 0"]);
}

/// The user probably starts the dashboard because that program ran out of memory.
#[test]
fn recent_out_of_memory_is_shown_though_never_seen_alive() {
    let reported = |ago_minutes: u64| {
        let mut ended = channel_on(4, &[&[(9 * GIB, Allocated)]], DeviceKind::Cuda, Life::Died);
        let mut figures = ended.figures[0].clone().unwrap();
        figures.ooms = 81;
        figures.ran_out = Some(RanOut {
            at: 0,
            requested: 2 * GIB,
            device_free: None,
            largest_free: Some(GIB),
            served: false,
            ..RanOut::default()
        });
        ended.figures = [Some(figures)].into();
        ended.last_sign = Some(0);
        let mut model = model();
        let now = ago_minutes * 60 * SECOND + SECOND;
        feed(&mut model, [nvml(now, GIB, &[]), channels(now, vec![ended])]);
        (findings(&model), model.listed().count())
    };
    let (findings, rows) = reported(7);
    let text = &findings[0].1;
    assert!(
        text.contains(", died 7 min ago: ran out of memory 81 times: tried to allocate 2.0 GiB"),
        "{findings:?}"
    );
    assert_eq!(rows, 1);
    assert_eq!(reported(61), (vec![], 0), "later it is a black box like any other");
}

#[test]
fn hidden_channels_are_reported_per_user_or_together() {
    let user = |uid: u32, hidden_channels, hidden_devices| LeftOut {
        uid,
        user: format!("u{uid}"),
        channels: 1000,
        hidden_channels,
        hidden_devices,
    };
    let reported = |left_out: Vec<LeftOut>| {
        let mut model = model();
        let sample = ChannelSample {
            left_out,
            ..ChannelSample::default()
        };
        feed(&mut model, [channel_sample(SECOND, sample)]);
        findings(&model).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    let why = "not shown, because they exceed the limit for one user";
    assert_eq!(reported(Vec::new()), [""; 0]);
    assert_eq!(
        reported(vec![user(7, 936, 0), user(8, 0, 1), user(9, 2, 5000)]),
        [
            format!("user u7: 936 of 1,000 channels are {why}"),
            format!("user u8: 1 device is {why}"),
            format!("user u9: 2 of 1,000 channels and 5,000 devices are {why}"),
        ]
    );
    let many = (0..5).map(|uid| user(uid, 3, 0)).collect();
    assert_eq!(reported(many), [format!("5 users: 15 of 5,000 channels are {why}")]);
}

/// A finding leads to the view that shows more of it, and one that was dismissed comes back when it gets worse.
#[test]
fn findings_lead_somewhere_and_can_be_dismissed() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![channel(3, &[&holes])])]);
    press(&mut model, &[Key::Char('m'), Key::Enter]);
    assert_eq!((model.ui.view, model.ui.popup.clone()), (View::Blocks, None));
    assert!(model.ui.blocks.cursor.is_some(), "the largest hole");
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        ..RanOut::default()
    };
    findings_for(&mut model, 11 * SECOND, failure.clone(), 1);
    press(&mut model, &[Key::Char('m'), Key::Enter]);
    assert_eq!(model.ui.view, View::Triage);
    let errors = |model: &Model| {
        model
            .findings()
            .filter(|finding| finding.severity == Severity::Error)
            .count()
    };
    assert_eq!(errors(&model), 1);
    press(&mut model, &[Key::Char('m'), Key::Char('d'), Key::Esc]);
    assert_eq!(errors(&model), 0);
    // Dismissed as a warning, it is shown again as an error.
    model
        .ui
        .dismissed
        .values_mut()
        .for_each(|then| *then = Severity::Warning);
    assert_eq!(errors(&model), 1);
}

/// The least of each quarter of a minute counts: first for a minute and a half, and then for three.
#[test]
fn leak_is_said_to_rise_and_then_confirmed() {
    let mut model = model();
    let mut after = |from: u64, to: u64| {
        for second in from..to {
            let held = GIB + second * 4 * MIB;
            let events = [
                nvml(second * SECOND, 40 * GIB, &[(4, 2 * GIB), (5, GIB + second * 8 * MIB)]),
                channels(second * SECOND, vec![channel(4, &[&[(held, Allocated)]])]),
            ];
            feed(&mut model, events);
        }
        let about = model.world().findings.iter().filter(|f| f.about == About::Growth);
        about.map(|f| (f.severity, f.text.clone())).collect::<Vec<_>>()
    };
    assert_eq!(after(0, 105), []);
    let rising = "has risen for 90 s, from";
    let found = after(105, 106);
    assert_eq!(
        found,
        [
            (
                Severity::Info,
                format!("5: what NVML counts for it {rising} 1.0 GiB to 1.7 GiB")
            ),
            (
                Severity::Info,
                format!("python job4 (4): the least that it has allocated {rising} 1.0 GiB to 1.4 GiB")
            ),
        ]
    );
    let found = after(106, 200);
    let text = "python job4 (4): a leak, or a cache without a limit: the least that it has allocated has risen for 3 min, from 1.0 GiB to 1.7 GiB, \
                240 MiB a minute; GPU 0 is full in about 2 h 48 min";
    assert_eq!(found[1], (Severity::Warning, text.into()));
    press(&mut model, &[Key::Char('m'), Key::Enter]);
    assert_eq!((model.ui.view, model.ui.timeline.span), (View::Timeline, 600 * SECOND));
    assert_eq!(model.world().growth.len(), 2);
    feed(&mut model, [nvml(201 * SECOND, 0, &[]), channels(201 * SECOND, vec![])]);
    assert_eq!(model.world().growth.len(), 0, "who is gone is forgotten");
}

/// Returns the black box of a program that ran out of memory at its end.
fn died_at(pid: u32, at: Nanos) -> Channel {
    let mut channel = channel_on(pid, &[&[(GIB, Allocated)]], DeviceKind::Cuda, Life::Died);
    channel.last_sign = Some(at);
    let mut figures = channel.figures[0].clone().unwrap();
    figures.ooms = 1;
    figures.ran_out = Some(RanOut {
        at,
        requested: GIB,
        ..RanOut::default()
    });
    channel.figures = [Some(figures)].into();
    channel
}

#[test]
fn older_findings_share_a_line_and_each_end_leads_to_its_moment() {
    let mut model = model();
    let now = 1000 * SECOND;
    let boxes: Vec<Channel> = (1..=5).map(|n| died_at(n as u32, n * 195 * SECOND)).collect();
    feed(&mut model, [nvml(now, 0, &[]), channels(now, boxes)]);
    let texts = |model: &Model| model.findings().map(|f| f.text.clone()).collect::<Vec<_>>();
    let found = texts(&model);
    let folded =
        "6 older findings, of failures and ends over 5 min ago: python job3 (3), python job2 (2), python job1 (1)";
    assert_eq!((found.len(), found[4].as_str()), (5, folded), "{found:#?}");
    let enter = |model: &mut Model, place: usize| {
        press(model, &[Key::Char('1'), Key::Char('m')]);
        press(model, &vec![Key::Down; place]);
        model.ui.hits.finding_lines = (vec![(0, 1); 10], 10);
        press(model, &[Key::Home]);
        (0..place).for_each(|_| drop(press(model, &[Key::Down])));
        press(model, &[Key::Enter]);
    };
    enter(&mut model, 4);
    assert!(
        model.ui.popup.is_some() && texts(&model).len() == 10,
        "they are listed in place"
    );
    press(&mut model, &[Key::Esc]);
    let ended = texts(&model)
        .iter()
        .rposition(|text| text.starts_with("python job2 (2) died"))
        .unwrap();
    feed(&mut model, [nvml(now + SECOND, 0, &[])]);
    enter(&mut model, ended);
    assert_eq!(
        (model.ui.view, model.ui.timeline.until),
        (View::Timeline, Some(405 * SECOND))
    );
    press(&mut model, &[Key::Char('6'), Key::Char('t')]);
    assert_eq!(
        (model.ui.view, model.ui.timeline.until),
        (View::Timeline, Some(405 * SECOND))
    );
}

/// PyTorch frees what a failed step held before its next sample, so what is cached then says nothing of the failure.
#[test]
fn figures_that_are_not_of_the_failure_give_no_fix() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let whole = [(8 * GIB, Free), (8 * GIB, Allocated)];
    let told = |blocks: &[(u64, BlockState)], sampled, mapped| {
        let mut short = channel(4, &[blocks]);
        let mut figures = short.figures[0].clone().unwrap();
        (figures.ooms, figures.sampled, figures.mapped) = (1, sampled, mapped);
        figures.ran_out = Some(RanOut {
            at: SECOND,
            requested: 2 * GIB,
            device_free: Some(GIB),
            ..RanOut::default()
        });
        short.figures = [Some(figures)].into();
        let mut model = model();
        feed(
            &mut model,
            [nvml(SECOND, 79 * GIB, &[(4, 79 * GIB)]), channels(SECOND, vec![short])],
        );
        let failure = model.world().findings.iter().find(|f| f.about == About::Failure);
        failure.unwrap().text.contains(". Fix: let ")
    };
    assert!(
        told(&holes, true, true) && told(&holes, false, true),
        "its pieces are known"
    );
    assert!(
        !told(&whole, true, true) && !told(&whole, false, true),
        "a block would fit"
    );
    assert!(!told(&holes, true, false), "nothing is known of the pieces");
}
