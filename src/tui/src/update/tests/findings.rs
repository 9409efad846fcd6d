//! What is said in words, and when it is not.

use std::sync::Arc;

use gpumem_channel::{BlockState, DeviceKind, Life, SegmentKind};
use gpumem_probe::NvmlState;

use super::sample::*;
use crate::event::Key;
use crate::model::*;

use BlockState::{Allocated, Free, PendingFree};

fn said(model: &Model) -> Vec<(Severity, String)> {
    model
        .world()
        .findings
        .iter()
        .map(|f| (f.severity, f.text.clone()))
        .collect()
}

#[test]
fn a_cut_up_cache_is_worth_a_warning_and_a_whole_one_is_not() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![channel(4, &[&holes])])]);
    let text = "4: 8.0 GiB cached, largest free block 1.0 GiB: the next larger request takes new memory";
    assert_eq!(
        said(&model),
        [(Severity::Info, text.into())],
        "nobody has to do anything yet"
    );
    assert_eq!(model.world().findings[0].process, Some(model.world().processes[0].id));
    feed(
        &mut model,
        [channels(
            2 * SECOND,
            vec![channel(4, &[&[(8 * GIB, Free), (8 * GIB, Allocated)]])],
        )],
    );
    assert_eq!(said(&model), []);
    let small: Vec<_> = (0..8).flat_map(|_| [(MIB, Free), (MIB, Allocated)]).collect();
    feed(&mut model, [channels(3 * SECOND, vec![channel(4, &[&small])])]);
    assert_eq!(said(&model), [], "8 MiB are not worth a sentence");
}

/// A cache of 8 GiB in holes of 1 GiB, with a budget if it is not 0.
fn cut_up(budget: u64) -> Channel {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut channel = channel(4, &[&holes]);
    let map = &mut Arc::make_mut(&mut channel.snapshot).devices[0];
    map.device.budget = budget;
    channel.figures = [Figures::of(map, &[])].into();
    channel
}

#[test]
fn where_there_is_no_room_for_new_memory_a_larger_request_is_said_to_fail() {
    let mut model = model();
    let mut told = |budget, used| {
        let events = [nvml(SECOND, used, &[(4, used)]), channels(SECOND, vec![cut_up(budget)])];
        feed(&mut model, events);
        let texts = said(&model).into_iter().map(|(_, text)| text);
        let mut texts: Vec<_> = texts.filter(|text| text.starts_with("4: ")).collect();
        texts.remove(0)
    };
    let new = "4: 8.0 GiB cached, largest free block 1.0 GiB: the next larger request takes new memory";
    let fails = "the next larger request fails unless released cache makes room";
    assert_eq!(told(0, 17 * GIB), new);
    assert_eq!(told(18 * GIB, 17 * GIB), new);
    let budget = format!("4: 8.0 GiB cached, largest free block 1.0 GiB, budget 17.0 GiB: {fails}");
    assert_eq!(told(17 * GIB, 17 * GIB), budget);
    let device = format!("4: 8.0 GiB cached, largest free block 1.0 GiB: {fails}");
    assert_eq!(told(0, 79 * GIB), device);
    assert_eq!(told(0, 78 * GIB), new, "1.5 GiB are left");
}

/// What is cached changes with every sample; sentences that change places with it cannot be read.
#[test]
fn caches_that_come_and_go_do_not_change_places() {
    let holes = |free, held| [(free, Free), (held, Allocated)].repeat(4);
    let mut model = model();
    for (at, large) in [(1, 3 * GIB), (2, GIB), (3, 3 * GIB)] {
        let list = vec![
            channel(4, &[&holes(GIB * 3 / 2, GIB / 2)]),
            channel(5, &[&holes(large, 4 * GIB - large)]),
        ];
        feed(&mut model, [channels(at * SECOND, list)]);
        let first = &said(&model)[0].1;
        assert!(first.starts_with("5: "), "{first}");
    }
}

#[test]
fn memory_that_nobody_listed_has_is_told_where_it_is_much() {
    let mut model = model();
    let text = "GPU 0: 16.0 GiB are used by nobody that NVML lists: a container, a process that ended, or the driver";
    let told = |model: &Model| said(model).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    feed(&mut model, [nvml(SECOND, 60 * GIB, &[(5, 41 * GIB), (6, 3 * GIB)])]);
    assert_eq!(said(&model), [(Severity::Info, text.into())]);
    assert_eq!(model.world().findings[0].process, None);
    feed(&mut model, [nvml(SECOND, 46 * GIB - 410 * MIB, &[(5, 44 * GIB)])]);
    assert_eq!(told(&model), [""; 0], "less than 2 % of 80 GiB");
    // One that publishes is known even if NVML does not list it.
    feed(
        &mut model,
        [
            nvml(SECOND, 60 * GIB, &[(6, 3 * GIB)]),
            channels(SECOND, vec![channel(5, &[&[(56 * GIB, Allocated)]])]),
        ],
    );
    assert_eq!(told(&model), [""; 0]);
    feed(
        &mut model,
        [channels(SECOND, vec![channel(5, &[&[(41 * GIB, Allocated)]])])],
    );
    assert_eq!(told(&model), [text]);
}

#[test]
fn nothing_is_said_of_nobodys_memory_where_it_cannot_be_told() {
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
        let told: Vec<String> = said(&model).into_iter().map(|(_, text)| text).collect();
        let why = "GPU 0: NVML does not tell its processes (Unknown Error): only those that publish are listed";
        assert_eq!(told, if n == 0 { vec![why] } else { vec![] }, "{n}");
    }
}

#[test]
fn what_is_said_of_a_program_with_several_devices_names_them() {
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
    let said: Vec<_> = said(&model).into_iter().map(|(_, text)| text).collect();
    assert!(said[0].starts_with("4 on CUDA 0: 8.0 GiB cached"), "{said:?}");
    assert!(said[1].starts_with("4 on CUDA 1: 4.0 GiB cached"), "{said:?}");
}

#[test]
fn what_waits_for_the_gpu_is_cached_and_not_cut_up() {
    let mut model = model();
    let blocks = [(8 * GIB, PendingFree), (GIB, Free), (8 * GIB, Allocated)];
    feed(&mut model, [channels(SECOND, vec![channel(4, &[&blocks])])]);
    let figures = model.world().processes[0].figures.as_ref().unwrap();
    assert_eq!((figures.cached, figures.pending), (9 * GIB, 8 * GIB));
    assert_eq!(said(&model), []);
    // As much is cached there as in the table.
    let holes = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]);
    let blocks: Vec<_> = holes.chain([(4 * GIB, PendingFree)]).collect();
    feed(&mut model, [channels(2 * SECOND, vec![channel(4, &[&blocks])])]);
    let text = &said(&model)[0].1;
    assert!(
        text.starts_with("4: 12.0 GiB cached (4.0 GiB of it pending), largest free block 1.0 GiB"),
        "{text}"
    );
}

#[test]
fn a_cut_up_cache_that_is_stitched_is_no_news() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let cut_up = channel(4, &[&holes]);
    let mut map = cut_up.snapshot.devices[0].clone();
    for segment in &mut map.segments {
        Arc::make_mut(segment).segment.kind = SegmentKind::Stitched;
    }
    let stitched = Channel {
        figures: [Figures::of(&map, &[])].into(),
        ..cut_up
    };
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![stitched])]);
    assert_eq!(said(&model), []);
}

#[test]
fn a_full_card_and_a_death_are_told_worst_first() {
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
        said(&model),
        [(Severity::Warning, "GPU 0: 512.0 MiB of 80.0 GiB left".into())]
    );
    feed(&mut model, [channels(2 * SECOND, list(Life::Died))]);
    let died = (Severity::Info, "4 died holding 79.0 GiB".into());
    assert_eq!(
        said(&model),
        [(Severity::Warning, "GPU 0: 512.0 MiB of 80.0 GiB left".into()), died]
    );
}

#[test]
fn a_channel_that_contradicts_itself_is_named_with_its_reason() {
    let mut model = model();
    let mut broken = channel(4, &[&[(GIB, Allocated)]]);
    broken.error = Some("the file was cut short while it was open".into());
    feed(&mut model, [channels(SECOND, vec![broken])]);
    assert_eq!(
        said(&model),
        [(Severity::Warning, "4: the file was cut short while it was open".into())]
    );
    let mut hear_of = |at, file: &str, kind, text: &str| {
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
        said(&model)
    };
    let text = "channel 1-2-0.gpumem cannot be read: not a gpumem channel";
    assert_eq!(
        hear_of(2 * SECOND, "1-2-0.gpumem", ProblemKind::File, "not a gpumem channel"),
        [(Severity::Info, text.into())]
    );
    let text = "channel directory /dev/shm/x is refused: it belongs to another user. What publishes there is not seen";
    assert_eq!(
        hear_of(
            3 * SECOND,
            "/dev/shm/x",
            ProblemKind::Directory,
            "it belongs to another user"
        ),
        [(Severity::Warning, text.into())]
    );
    let text = "/dev/shm/x: it has more than 9 entries. Publishers there may not be seen";
    assert_eq!(
        hear_of(
            4 * SECOND,
            "/dev/shm/x",
            ProblemKind::Overflow,
            "it has more than 9 entries"
        ),
        [(Severity::Warning, text.into())]
    );
}

/// Beside a card with room to spare nothing else says why a request failed.
#[test]
fn a_budget_is_named_with_the_request_that_it_refused() {
    let mut short = channel(4, &[&[(9 * GIB, Allocated)]]);
    let mut map = short.snapshot.devices[0].clone();
    map.device.budget = 24 * GIB;
    let mut figures = Figures::of(&map, &[]).unwrap();
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
    let text = "4: ran out of memory: asked for 20.0 GiB, budget 24.0 GiB";
    assert_eq!(said(&model), [(Severity::Error, text.into())]);
}

/// What is said at a time of a process with this failure, of so many.
fn told_of(model: &mut Model, at: Nanos, failure: RanOut, ooms: u64) -> Vec<(Severity, String)> {
    let mut short = channel(4, &[&[(9 * GIB, Allocated)]]);
    let mut figures = short.figures[0].clone().unwrap();
    figures.ooms = ooms;
    figures.ran_out = Some(failure);
    short.figures = [Some(figures)].into();
    feed(model, [channels(at, vec![short])]);
    said(model)
}

/// A request of 20 GiB failed at second 10, when the largest free block had 5.
fn ran_out(model: &mut Model, at: Nanos, served: bool, ooms: u64) -> Vec<(Severity, String)> {
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        device_free: None,
        largest_free: Some(5 * GIB),
        served,
        ..RanOut::default()
    };
    told_of(model, at, failure, ooms)
}

/// Of a black box that had another clock: nobody knows whether that is news.
#[test]
fn a_failure_that_is_to_come_has_no_age() {
    for served in [false, true] {
        let mut model = Model::default();
        let said = ran_out(&mut model, 9 * SECOND, served, 1);
        let (severity, text) = said
            .iter()
            .find(|(_, text)| text.contains("ran out of memory"))
            .unwrap();
        assert_eq!(*severity, Severity::Warning, "{text}");
        assert!(
            !text.contains("ago") && text.contains("as much was served") == served,
            "{text}"
        );
    }
}

/// What no budget of the process refused, and the device had: a pool's did, and who looks for it on the device looks in vain.
#[test]
fn what_the_device_had_free_is_told_with_the_request_that_failed() {
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        device_free: Some(60 * GIB),
        largest_free: None,
        served: false,
        ..RanOut::default()
    };
    let text = "4: ran out of memory: asked for 20.0 GiB, the device had 60.0 GiB free";
    let said = told_of(&mut model(), 11 * SECOND, failure, 1);
    assert_eq!(said, [(Severity::Error, text.into())]);
}

#[test]
fn who_asked_for_what_failed_and_of_which_pool_is_told() {
    let failure = RanOut {
        at: 10 * SECOND,
        requested: 20 * GIB,
        tag: Some("optimizer".into()),
        pool: Some("tenant".into()),
        device_free: Some(60 * GIB),
        ..RanOut::default()
    };
    let text = "4: ran out of memory: optimizer asked for 20.0 GiB in pool tenant, the device had 60.0 GiB free";
    let said = told_of(&mut model(), 11 * SECOND, failure.clone(), 1);
    assert_eq!(said, [(Severity::Error, text.into())]);
    // Those that the program did not name say that they are pools.
    let failure = RanOut {
        pool: Some("private pool 1".into()),
        ..failure
    };
    let said = &told_of(&mut model(), 11 * SECOND, failure, 1)[0].1;
    assert!(said.contains("asked for 20.0 GiB in private pool 1, "), "{said}");
}

/// It is what to do next; once as much was served nobody has to do it.
#[test]
fn what_would_have_helped_is_told_until_as_much_was_served() {
    let advised = |words: &str, bytes, served| {
        let failure = RanOut {
            at: 10 * SECOND,
            requested: 20 * GIB,
            advice: Some((words.into(), bytes)),
            served,
            ..RanOut::default()
        };
        told_of(&mut model(), 11 * SECOND, failure, 1)[0].1.clone()
    };
    let text = "4: ran out of memory: asked for 20.0 GiB; would have helped: ";
    assert_eq!(advised("wait for the GPU", 0, false), format!("{text}wait for the GPU"));
    // No less than it takes.
    let raise = advised("raise the budget by", (2 << 30) + 1, false);
    assert_eq!(raise, format!("{text}raise the budget by 2.1 GiB"));
    // Nor all that was asked for.
    let smaller = advised("a request smaller by", (20 << 30) - (50 << 20), false);
    assert_eq!(smaller, format!("{text}a request smaller by 20430.0 MiB"));
    let served = advised("wait for the GPU", 0, true);
    assert!(!served.contains("helped"), "{served}");
}

#[test]
fn a_failed_request_is_an_error_until_as_much_is_served_or_it_is_old() {
    let mut model = model();
    let asked = "asked for 20.0 GiB, largest free block 5.0 GiB";
    let text = format!("4: ran out of memory: {asked}");
    assert_eq!(ran_out(&mut model, 11 * SECOND, false, 1), [(Severity::Error, text)]);
    let text = format!("4: ran out of memory 2 times: {asked}; 1 min ago, and as much was served since");
    assert_eq!(ran_out(&mut model, 75 * SECOND, true, 2), [(Severity::Warning, text)]);
    let text = format!("4: ran out of memory: {asked}; 10 min ago");
    assert_eq!(ran_out(&mut model, 610 * SECOND, false, 1), [(Severity::Warning, text)]);
}

#[test]
fn among_equals_most_memory_at_stake_comes_first() {
    let holes = |n: u64| -> Vec<_> { (0..8).flat_map(|_| [(n, Free), (n, Allocated)]).collect() };
    let mut model = model();
    let (small, large) = (holes(GIB), holes(2 * GIB));
    let list = vec![channel(3, &[&small]), channel(4, &[&large]), channel(5, &[&small])];
    feed(&mut model, [channels(SECOND, list)]);
    let first: Vec<String> = said(&model)
        .into_iter()
        .map(|(_, text)| text[..11].to_owned())
        .collect();
    assert_eq!(first, ["4: 16.0 GiB", "3: 8.0 GiB ", "5: 8.0 GiB "]);
}

/// Nobody can help it any more, and where one finding is shown it would hide what can be helped.
#[test]
fn what_ended_is_told_after_what_lives() {
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
    let told = |model: &Model| said(model).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let mut living = channel(5, &[&holes]);
    let map = &mut Arc::make_mut(&mut living.snapshot).devices[0];
    map.device.budget = 17 * GIB;
    living.figures = [Figures::of(map, &[])].into();
    feed(&mut model, [channels(SECOND, vec![alive, living.clone()])]);
    assert!(
        told(&model)[0].starts_with("4: ran out of memory"),
        "{:?}",
        told(&model)
    );
    feed(&mut model, [channels(2 * SECOND, vec![ended, living])]);
    let told = told(&model);
    assert!(told[0].starts_with("5: 8.0 GiB cached"), "{told:?}");
    assert!(told[1].starts_with("4 (exited): ran out of memory"), "{told:?}");
}

#[test]
fn a_filter_leaves_out_what_is_said_of_others() {
    let holes: Vec<_> = (0..8).flat_map(|_| [(GIB, Free), (GIB, Allocated)]).collect();
    let mut model = model();
    let list = vec![channel(3, &[&holes]), channel(4, &[&holes])];
    feed(&mut model, [nvml(SECOND, 79 * GIB, &[]), channels(SECOND, list)]);
    let told = |model: &Model| -> Vec<String> { model.findings().map(|f| f.text[..5].to_owned()).collect() };
    assert_eq!(told(&model), ["GPU 0", "3: 8.", "4: 8.", "GPU 0"]);
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
    assert_eq!(told(&model), ["GPU 0", "4: 8.", "GPU 0"]);
}

/// Somebody looks because it ran out: that is what there is to say, whoever was looking then.
#[test]
fn who_ran_out_of_memory_and_ended_a_short_while_ago_is_told_of_though_nobody_saw_it_alive() {
    let told = |ago_minutes: u64| {
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
        (said(&model), model.listed().count())
    };
    let (said, rows) = told(7);
    let text = &said[0].1;
    assert!(
        text.contains("(died 7 min ago): ran out of memory 81 times: asked for 2.0 GiB"),
        "{said:?}"
    );
    assert_eq!(rows, 1);
    assert_eq!(told(61), (vec![], 0), "what is long ago is a black box among others");
}

#[test]
fn what_is_not_shown_of_other_users_is_said_of_each_or_of_many_at_once() {
    let user = |uid: u32, hidden_channels, hidden_devices| LeftOut {
        uid,
        user: format!("u{uid}"),
        channels: 1000,
        hidden_channels,
        hidden_devices,
    };
    let told = |left_out: Vec<LeftOut>| {
        let mut model = model();
        let sample = ChannelSample {
            left_out,
            ..ChannelSample::default()
        };
        feed(&mut model, [channel_sample(SECOND, sample)]);
        said(&model).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    let why = "not shown, beyond what one user may have shown here";
    assert_eq!(told(Vec::new()), [""; 0]);
    assert_eq!(
        told(vec![user(7, 936, 0), user(8, 0, 1), user(9, 2, 5000)]),
        [
            format!("user u7: 936 of 1,000 channels are {why}"),
            format!("user u8: 1 device is {why}"),
            format!("user u9: 2 of 1,000 channels and 5,000 devices are {why}"),
        ]
    );
    let many = (0..5).map(|uid| user(uid, 3, 0)).collect();
    assert_eq!(told(many), [format!("5 users: 15 of 5,000 channels are {why}")]);
}
