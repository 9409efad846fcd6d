//! Joining devices and processes from several sources.

use gpumem_channel::{BlockState, DeviceKind as Published, Life};
use gpumem_probe::{NvmlState, Reading};

use super::sample::*;
use crate::event::{Effect, Event, Key};
use crate::model::*;

use BlockState::{Allocated, Free};

#[test]
fn card_known_to_both_is_one_row_that_adds_up() {
    let model = busy();
    let [device] = model.world().devices.as_slice() else {
        panic!("one device")
    };
    let memory = device.memory.value().unwrap();
    assert_eq!(device.publishers, 3);
    assert_eq!(memory.allocated, 11 * GIB / 2);
    assert_eq!(memory.cached, 3 * GIB / 2);
    assert_eq!(memory.other, 5 * GIB);
    assert_eq!(memory.driver, Some(GIB / 2));
    assert_eq!(
        memory.allocated + memory.cached + memory.other + memory.driver.unwrap_or(0) + memory.free,
        memory.total
    );
    assert!(!memory.skewed);
}

/// A program that is given a MIG device publishes the UUID of that device, not of its GPU.
#[test]
fn publisher_on_a_mig_device_joins_its_row_by_uuid() {
    let mut published = channel(11, &[&[(GIB, Allocated)]]);
    std::sync::Arc::make_mut(&mut published.snapshot).devices[0].device.uuid = [0xab; 16];
    let split = nvml_but(SECOND, 2 * GIB, &[], |gpu| {
        gpu.mig = vec![gpumem_probe::MigDevice {
            uuid: format!("MIG-{}", "ab".repeat(16)),
            ..Default::default()
        }];
    });
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![published]), split]);
    let devices = model.world().devices.iter();
    let labels: Vec<_> = devices.map(|d| (d.label.as_str(), d.publishers)).collect();
    assert_eq!(labels, [("GPU 0", 1), ("GPU 0:0", 1)]);
}

#[test]
fn processes_join_by_pid_and_the_rest_do_not_publish() {
    let model = busy();
    let row = |pid| model.world().processes.iter().find(|p| p.pid == pid).unwrap();
    assert_eq!(row(11).nvml, Reading::Value(5 * GIB));
    assert_eq!(row(11).figures.as_ref().unwrap().cached, GIB);
    assert_eq!(row(11).state, ProcessState::Publishing);
    assert_eq!(row(99).state, ProcessState::NotPublishing);
    assert!(row(99).figures.is_none());
}

/// Ranks of a job often open a context on the first card, too. Their rows there belong to the job as well.
#[test]
fn unpublished_row_of_a_publisher_has_its_job() {
    let mut model = model();
    let mut rank = channel(11, &[&[(GIB, Allocated)]]);
    let snapshot = std::sync::Arc::make_mut(&mut rank.snapshot);
    snapshot.devices[0].device.uuid = [9; 16];
    let identity = std::sync::Arc::make_mut(&mut snapshot.identity);
    (identity.job, identity.rank) = ("pretrain".into(), Some(3));
    let mut gone = channel_on(99, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died);
    gone.snapshot = {
        let mut snapshot = (*gone.snapshot).clone();
        std::sync::Arc::make_mut(&mut snapshot.identity).job = "earlier".into();
        snapshot.into()
    };
    let listed = nvml(SECOND, 2 * GIB, &[(11, GIB / 2), (99, GIB / 2)]);
    feed(&mut model, [channels(SECOND, vec![rank, gone]), listed]);
    let card = DeviceKey::Uuid(CARD);
    let rows = model.world().processes.iter();
    let job = |pid| {
        let on_card = |p: &&Process| p.pid == pid && p.id.device == card && p.state.alive();
        rows.clone().find(on_card).unwrap().job_text()
    };
    assert_eq!([job(11), job(99)], ["pretrain:3", ""]);
}

#[test]
fn stopped_publisher_is_shown_as_stopped_until_it_continues() {
    let mut model = model();
    let mut reported = |at, stopped| {
        let mut processes = people(&[(11, "ana", 0)]);
        processes[0].stopped = stopped;
        let publisher = channel(11, &[&[(GIB, Allocated)]]);
        let looked_up = Event::sampled(at, Sample::Processes(processes));
        feed(&mut model, [channels(at, vec![publisher]), looked_up]);
        let row = model.listed().next().unwrap();
        assert_eq!((&row.state, row.stopped), (&ProcessState::Publishing, Some(stopped)));
        (row.state_text(), crate::report::text(&model, u16::MAX))
    };
    assert_eq!(reported(SECOND, false).0, "publishing");
    let (state, report) = reported(2 * SECOND, true);
    assert_eq!(state, "stopped");
    assert!(report.contains("  stopped\n"), "{report}");
    assert_eq!(reported(3 * SECOND, false).0, "publishing");
}

#[test]
fn pid_with_another_start_time_is_another_process() {
    let mut model = model();
    let mut old = channel(11, &[&[(GIB, Allocated)]]);
    let identity = gpumem_channel::Identity {
        start_time: 500,
        ..(*old.snapshot.identity).clone()
    };
    let snapshot = gpumem_channel::Snapshot {
        identity: identity.into(),
        ..(*old.snapshot).clone()
    };
    old.snapshot = snapshot.into();
    feed(
        &mut model,
        [channels(SECOND, vec![old]), processes(SECOND, &[(11, "ana", 900)])],
    );
    let row = model.listed().next().unwrap();
    assert_eq!(
        (row.user.as_str(), row.command.as_str()),
        ("ml", "python job11"),
        "the name of the newer process is not shown"
    );
}

/// Any user can claim in a channel file to be a process of root.
#[test]
fn false_claim_is_a_row_of_the_owner_of_the_file() {
    let mut model = model();
    model.setup.root = true;
    let mut false_one = channel(11, &[&[(GIB, Allocated)]]);
    let snapshot = std::sync::Arc::make_mut(&mut false_one.snapshot);
    std::sync::Arc::make_mut(&mut snapshot.identity).uid = 65534;
    (false_one.pid, false_one.disputed) = (None, Some(11));
    let claim = channels(SECOND, vec![false_one]);
    let listed = nvml(SECOND, 2 * GIB, &[(11, 2 * GIB)]);
    feed(&mut model, [claim, listed, processes(SECOND, &[(11, "root", 900)])]);
    let rows = &model.world().processes;
    let why = "the channel of user 65534 claims to be process 11, which another user owns";
    let row = |state: &ProcessState| rows.iter().find(|row| row.state == *state).unwrap();
    let disputed = row(&ProcessState::Disputed(why.into()));
    assert_eq!(
        (disputed.user.as_str(), disputed.command.as_str()),
        ("65534", "python job11")
    );
    assert_eq!(disputed.nvml, Reading::Failed(PROCESS_NOT_LISTED.into()));
    let real = row(&ProcessState::NotPublishing);
    assert_eq!((real.user.as_str(), real.nvml.value()), ("root", Some(&(2 * GIB))));
    assert!(
        model
            .findings()
            .any(|finding| finding.text == format!("python job11 (11): {why}"))
    );
    let document: serde_json::Value = serde_json::from_str(&crate::report::document(&model).unwrap()).unwrap();
    let reported = document["processes"].as_array().unwrap().iter();
    let reported: Vec<_> = reported.filter(|process| process["state"] == "disputed").collect();
    assert_eq!(reported.len(), 1);
    assert_eq!(
        (&reported[0]["user"], &reported[0]["unavailable"]["state"]),
        (&"65534".into(), &why.into())
    );
    assert!(crate::report::text(&model, u16::MAX).contains("claim does not hold"));
}

#[test]
fn simulated_device_has_its_own_row_despite_a_real_uuid() {
    let mut model = busy();
    let simulated = channel_on(50, &[&[(GIB, Allocated)]], Published::Simulated, Life::Alive);
    feed(&mut model, [channels(2 * SECOND, vec![simulated])]);
    let kinds: Vec<_> = model
        .world()
        .devices
        .iter()
        .map(|d| (d.kind, d.label.as_str()))
        .collect();
    assert_eq!(kinds, [(DeviceKind::Nvml, "GPU 0"), (DeviceKind::Simulated, "SIM 50")]);
    assert_eq!(
        model.world().devices[0].memory.value().unwrap().allocated,
        0,
        "it takes nothing from the card"
    );
    assert!(model.simulated());
}

#[test]
fn card_known_only_from_channels_has_a_row() {
    let mut model = model();
    feed(
        &mut model,
        [
            nvml_state(SECOND, NvmlState::Missing),
            channels(SECOND, vec![channel(1, &[&[(GIB, Free)]])]),
        ],
    );
    let [device] = model.world().devices.as_slice() else {
        panic!("one device")
    };
    let memory = device.memory.value().unwrap();
    assert_eq!(
        (device.kind, memory.basis, memory.cached),
        (DeviceKind::Published, Basis::Publishers, GIB)
    );
    assert_eq!(
        memory.allocated + memory.cached + memory.other + memory.driver.unwrap_or(0) + memory.free,
        memory.total
    );
}

#[test]
fn black_box_is_not_counted_and_is_listed_last() {
    let mut model = model();
    let dead = channel_on(5, &[&[(9 * GIB, Allocated)]], Published::Cuda, Life::Died);
    feed(
        &mut model,
        [
            channels(SECOND, vec![channel(5, &[&[(9 * GIB, Allocated)]])]),
            nvml(SECOND, GIB, &[(5, GIB)]),
            channels(2 * SECOND, vec![dead]),
        ],
    );
    assert_eq!(model.world().devices[0].memory.value().unwrap().allocated, 0);
    let states: Vec<_> = model.listed().map(|p| (p.pid, p.state.text())).collect();
    assert_eq!(
        states,
        [(5, "not publishing"), (5, "died (black box)")],
        "NVML's pid 5 is a new process"
    );
}

/// A program that is killed publishes until then. Its row and its device show the same moment.
#[test]
fn killed_program_keeps_its_command_and_last_figures() {
    let mut model = model();
    let simulated = |gib: u64, life| channel_on(5, &[&[(gib * GIB, Allocated)]], Published::Simulated, life);
    let alive = channels(SECOND, vec![simulated(3, Life::Alive)]);
    feed(&mut model, [alive, processes(SECOND, &[(5, "ada", 0)])]);
    for life in [Life::Died, Life::Closed] {
        feed(&mut model, [channels(2 * SECOND, vec![simulated(9, life)])]);
        let device = &model.world().devices[0];
        assert_eq!((&device.state, device.publishers), (&DeviceState::Gone, 0));
        assert_eq!(device.memory.value().unwrap().allocated, 9 * GIB);
        let row = model.listed().next().unwrap();
        assert_eq!(row.figures.as_ref().unwrap().allocated, 9 * GIB);
        let named = [&row.user, &row.command, &row.label].map(String::as_str);
        assert_eq!(named, ["ada", "command 5", "label 5"]);
    }
}

/// The screen may not show all devices, and those of running programs matter more.
#[test]
fn gone_devices_come_after_present_ones() {
    let mut model = model();
    let simulated = |pid, life| channel_on(pid, &[&[(GIB, Allocated)]], Published::Simulated, life);
    let labels = |model: &Model| -> Vec<String> { model.world().devices.iter().map(|d| d.label.clone()).collect() };
    for (life, expected) in [(Life::Alive, ["SIM 5", "SIM 6"]), (Life::Died, ["SIM 6", "SIM 5"])] {
        feed(
            &mut model,
            [channels(SECOND, vec![simulated(5, life), simulated(6, Life::Alive)])],
        );
        assert_eq!(labels(&model), expected);
    }
}

#[test]
fn old_black_boxes_are_listed_on_demand() {
    let mut model = busy();
    let mut list = model.inputs.channels.channels.clone();
    list.push(channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Closed));
    feed(&mut model, [channels(2 * SECOND, list)]);
    assert!(!pids(&model).contains(&5));
    press(&mut model, &[Key::Char('b')]);
    assert_eq!(pids(&model).last(), Some(&5));
}

/// `--no-black-boxes`: a program that ran out of memory is listed at once otherwise, with its finding.
#[test]
fn black_boxes_can_be_left_out() {
    let failed = |life| {
        let mut channel = channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, life);
        channel.last_sign = Some(SECOND);
        let mut figures = channel.figures.to_vec();
        figures.iter_mut().flatten().for_each(|figures| figures.ooms = 1);
        channel.figures = figures.into();
        channel
    };
    for (setting, ended_before, ended_now) in [
        (BlackBoxes::Recent, true, true),
        (BlackBoxes::SeenAlive, false, true),
        (BlackBoxes::None, false, false),
    ] {
        let mut model = model();
        model.setup.black_boxes = setting;
        feed(&mut model, [channels(SECOND, vec![failed(Life::Died)])]);
        let about = |model: &Model| model.findings().any(|finding| finding.process.is_some());
        assert_eq!(
            (!pids(&model).is_empty(), about(&model)),
            (ended_before, ended_before),
            "{setting:?}"
        );
        assert!(model.ui.toast.is_none(), "{setting:?}");
        press(&mut model, &[Key::Char('b')]);
        assert_eq!(pids(&model), [5], "{setting:?}: on demand");
        press(&mut model, &[Key::Char('b')]);
        let moments = [(2, Life::Alive), (3, Life::Died)];
        feed(
            &mut model,
            moments.map(|(at, life)| channels(at * SECOND, vec![failed(life)])),
        );
        assert_eq!(!pids(&model).is_empty(), ended_now, "{setting:?}");
    }
}

/// Their devices ended with them, so no other choice of a device can include them.
#[test]
fn choosing_simulated_devices_includes_their_black_boxes() {
    let rows = |only| {
        let mut model = model();
        model.setup.only = vec![only];
        let real = channel_on(6, &[&[(GIB, Allocated)]], Published::Cuda, Life::Closed);
        feed(
            &mut model,
            [channels(
                SECOND,
                vec![channel_on(5, &[], Published::Simulated, Life::Died), real],
            )],
        );
        press(&mut model, &[Key::Char('b')]);
        pids(&model)
    };
    assert_eq!(rows(Only::Simulated), [5]);
    assert_eq!(rows(Only::Index(0)), [0; 0]);
}

#[test]
fn unlisted_black_boxes_are_mentioned_once() {
    let mut model = model();
    let list = || vec![channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died)];
    feed(&mut model, [channels(SECOND, list())]);
    assert!(model.ui.toast.take().unwrap().text.contains("1 program that ended"));
    feed(&mut model, [channels(2 * SECOND, list())]);
    assert!(model.ui.toast.is_none());
}

/// Once they are listed, b hides them, so the message would be wrong.
#[test]
fn message_about_black_boxes_ends_once_they_are_listed() {
    let mut model = model();
    let list = vec![channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died)];
    feed(&mut model, [channels(SECOND, list)]);
    assert!(model.ui.toast.is_some());
    press(&mut model, &[Key::Char('b')]);
    assert_eq!((pids(&model), model.ui.toast.is_none()), (vec![5], true));
}

#[test]
fn key_for_black_boxes_says_when_there_are_none() {
    let mut model = busy();
    press(&mut model, &[Key::Char('b')]);
    assert_eq!(
        model.ui.toast.take().unwrap().text,
        "no program that ended left a black box"
    );
    press(&mut model, &[Key::Char('b')]);
    assert!(model.ui.toast.is_none());
    let died = channel_on(11, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died);
    feed(&mut model, [channels(2 * SECOND, vec![died])]);
    press(&mut model, &[Key::Char('b')]);
    let text = model.ui.toast.take().unwrap().text;
    assert_eq!(text, "there are no black boxes but those that are listed");
}

#[test]
fn message_counts_black_boxes_and_not_programs() {
    let mut model = model();
    let mut other = channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Closed);
    other.key.1 += 1;
    let one = channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Closed);
    feed(&mut model, [channels(SECOND, vec![one, other])]);
    let text = model.ui.toast.take().unwrap().text;
    assert!(text.starts_with("programs that ended left 2 black boxes"), "{text}");
}

/// A sample in which the card has fallen off the bus.
fn lost(at: Nanos) -> Event {
    nvml_but(at, GIB, &[], |gpu| {
        gpu.state = gpumem_probe::GpuState::Lost("fell off the bus".into());
        gpu.memory = Reading::Failed("GPU is lost".into());
    })
}

#[test]
fn lost_card_keeps_its_last_figures() {
    let mut model = busy();
    feed(&mut model, [lost(2 * SECOND)]);
    let device = &model.world().devices[0];
    assert!(matches!(device.state, DeviceState::Lost(_)));
    assert_eq!(device.memory.value().unwrap().used(), 12 * GIB);
    assert_eq!(device.history.long.len(), 1, "no new point: nothing was measured");
    assert_eq!(model.world().findings[0].severity, Severity::Error);
}

#[test]
fn card_lost_before_the_first_sample_has_no_figures() {
    let mut model = model();
    feed(&mut model, [lost(SECOND)]);
    assert_eq!(model.world().findings[0].text, "GPU 0 is lost: fell off the bus");
}

/// Its colour depends on its number.
#[test]
fn phase_keeps_its_number_when_others_come_and_go() {
    let mut model = busy();
    let process = model.live.processes[0].id;
    let mut at = 0;
    let mut pass = |model: &mut Model, names: &[&str]| {
        let mark = |name: &&str| {
            at += SECOND / 10;
            Mark {
                at,
                kind: MarkKind::Phase,
                process,
                bytes: 0,
                number: 0,
                text: (*name).into(),
            }
        };
        let sample = ChannelSample {
            channels: model.inputs.channels.channels.clone(),
            marks: names.iter().map(mark).collect(),
            ..ChannelSample::default()
        };
        feed(model, [channel_sample(2 * SECOND, sample)]);
        ["forward", "backward", "eval"].map(|name| model.looks.phases.of(name))
    };
    assert_eq!(pass(&mut model, &["forward", "eval"]), [Some(0), None, Some(1)]);
    // By name, this one comes first.
    assert_eq!(pass(&mut model, &["backward"]), [Some(0), Some(2), Some(1)]);
    let many = ["step"; 2 * MAX_MARKS];
    assert_eq!(pass(&mut model, &many), [Some(0), Some(2), Some(1)]);
    let marks = &model.live.devices[0].history.marks;
    assert!(
        marks.iter().all(|mark| &*mark.text == "step"),
        "the others are forgotten"
    );
}

#[test]
fn marks_go_to_their_device_in_order_and_stay_bounded() {
    let mut model = busy();
    let process = model.world().processes[0].id;
    let marks = (0..MAX_MARKS as u64 + 10)
        .map(|i| Mark {
            at: i,
            kind: MarkKind::Phase,
            process,
            bytes: 0,
            number: 0,
            text: "forward".into(),
        })
        .collect();
    let again = model.inputs.channels.channels.clone();
    let lost = vec![(again[0].key, 5)];
    let sample = ChannelSample {
        channels: again,
        marks,
        lost,
        ..ChannelSample::default()
    };
    feed(&mut model, [channel_sample(2 * SECOND, sample)]);
    let history = &model.world().devices[0].history;
    assert_eq!((history.marks_lost, history.marks_dropped), (5, 10));
    assert_eq!(history.lost_until, 2 * SECOND);
    assert_eq!(history.marks.len(), MAX_MARKS);
    assert!(
        history
            .marks
            .iter()
            .zip(history.marks.iter().skip(1))
            .all(|(a, b)| a.at <= b.at)
    );
}

#[test]
fn only_the_chosen_device_is_shown() {
    let cases = [
        (Only::Index(0), 1),
        (Only::Index(1), 0),
        (Only::Uuid("GPU-0707".into()), 1),
        (Only::Uuid("0707".into()), 1),
        (Only::Uuid("08".into()), 0),
        (Only::Simulated, 0),
    ];
    for (only, count) in cases {
        let mut model = model();
        model.setup.only = vec![only.clone()];
        feed(&mut model, [nvml(SECOND, GIB, &[(9, GIB)])]);
        assert_eq!(model.world().devices.len(), count, "{only:?}");
        assert_eq!(model.rows.len(), count, "{only:?}: processes follow their device");
    }
}

#[test]
fn several_devices_can_be_chosen() {
    let mut model = model();
    model.setup.only = vec![Only::Uuid("09".into()), Only::Simulated, Only::Index(7)];
    let mut other = channel(12, &[&[(GIB, Allocated)]]);
    std::sync::Arc::make_mut(&mut other.snapshot).devices[0].device.uuid = [9; 16];
    let simulated = channel_on(13, &[&[(GIB, Allocated)]], Published::Simulated, Life::Alive);
    let list = vec![channel(11, &[&[(GIB, Allocated)]]), other, simulated];
    feed(&mut model, [nvml(SECOND, GIB, &[]), channels(SECOND, list)]);
    assert_eq!(model.world().devices.len(), 2);
    let mut listed = pids(&model);
    listed.sort_unstable();
    assert_eq!(listed, [12, 13]);
    assert_eq!(model.missing_devices().unwrap(), "no such device: 7");
}

#[test]
fn nothing_is_simulated_when_the_library_fails() {
    let failed = NvmlState::Failed {
        error: "driver mismatch".into(),
        hint: "reboot".into(),
    };
    let mut model = model();
    let effects = feed(&mut model, [channels(SECOND, vec![]), nvml_state(SECOND, failed)]);
    assert_eq!(effects, [Effect::DrawSoon]);
    assert_eq!(model.world().findings[0].text, "NVML: driver mismatch. Reboot");
}

#[test]
fn demo_is_simulated_once_without_the_library() {
    let mut model = model();
    feed(&mut model, [nvml_state(SECOND, NvmlState::Missing)]);
    assert!(model.demo.is_none(), "channels have not been looked for yet");
    let effects = feed(&mut model, [channels(SECOND, vec![])]);
    assert!(effects.contains(&Effect::StartDemo {
        name: "train".into(),
        simulated: true
    }));
    let effects = feed(&mut model, [channels(2 * SECOND, vec![])]);
    assert!(!effects.iter().any(|e| matches!(e, Effect::StartDemo { .. })));
}

#[test]
fn map_that_contradicts_itself_is_inconsistent() {
    let mut model = model();
    let mut broken = channel_on(50, &[&[(GIB, Allocated)]], Published::Cuda, Life::Alive);
    std::sync::Arc::make_mut(&mut broken.snapshot).malformed_segments = 1;
    feed(&mut model, [channels(SECOND, vec![broken])]);
    assert!(matches!(
        model.world().processes[0].state,
        ProcessState::Inconsistent(_)
    ));
}

/// Such figures could show a device as full or as empty.
#[test]
fn figures_that_contradict_themselves_are_in_no_sum() {
    let mut model = model();
    let sound = channel(50, &[&[(GIB, Allocated)]]);
    let mut broken = channel(51, &[&[(9 * GIB, Allocated)]]);
    let map = &mut std::sync::Arc::make_mut(&mut broken.snapshot).devices[0];
    map.contradiction = Some("it has allocated more than it has reserved");
    broken.figures = [Figures::of(map, &[], None)].into();
    feed(&mut model, [channels(SECOND, vec![sound, broken])]);
    let device = &model.world().devices[0];
    let memory = device.memory.value().unwrap();
    assert_eq!((device.publishers, memory.allocated, memory.reserved()), (2, GIB, GIB));
    let row = model.listed().find(|row| row.pid == 51).unwrap();
    let why = "it has allocated more than it has reserved";
    assert_eq!(row.state, ProcessState::Inconsistent(why.into()));
    assert_eq!(row.figures, None);
    assert!(
        model
            .findings()
            .any(|finding| finding.text == format!("python job51 (51): {why}"))
    );
}

#[test]
fn nothing_is_simulated_after_a_real_program() {
    let mut model = model();
    let alive = channel_on(50, &[&[(GIB, Allocated)]], Published::Cuda, Life::Alive);
    let dead = channel_on(50, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died);
    feed(&mut model, [nvml_state(SECOND, NvmlState::Missing)]);
    feed(&mut model, [channels(SECOND, vec![alive])]);
    let effects = feed(&mut model, [channels(2 * SECOND, vec![dead])]);
    assert!(!effects.iter().any(|e| matches!(e, Effect::StartDemo { .. })));
}

/// One sample a second would show a training loop as a flat line or as steps.
#[test]
fn glances_between_samples_are_points_of_the_history() {
    let mut model = model();
    let publisher = || vec![channel(4, &[&[(GIB, Allocated), (3 * GIB, Free)]])];
    feed(
        &mut model,
        [nvml(SECOND, 6 * GIB, &[(4, 5 * GIB)]), channels(SECOND, publisher())],
    );
    feed(&mut model, [nvml(SECOND + 9, 6 * GIB, &[(4, 5 * GIB)])]);
    let device = model.live.devices[0].key;
    let held = |allocated| Held {
        device,
        allocated,
        reserved: 4 * GIB,
    };
    let glance = |tenth, allocated| Glance {
        at: SECOND + tenth * SECOND / 10,
        held: vec![held(allocated)],
    };
    let next = ChannelSample {
        channels: publisher(),
        glances: vec![glance(2, 2 * GIB), glance(4, 3 * GIB), glance(6, GIB)],
        ..ChannelSample::default()
    };
    // NVML's sample of the same tick may come first.
    feed(
        &mut model,
        [
            nvml(2 * SECOND, 6 * GIB, &[(4, 5 * GIB)]),
            channel_sample(2 * SECOND, next),
        ],
    );
    let history = &model.live.devices[0].history;
    let allocated: Vec<u64> = history.long.iter().map(|p| p.memory.allocated / GIB).collect();
    assert_eq!(allocated, [0, 1, 2, 3, 1, 1]);
    let others = |p: &Point| (p.memory.other, p.memory.used(), p.memory.basis);
    assert!(
        history
            .long
            .iter()
            .skip(1)
            .all(|p| others(p) == (2 * GIB, 6 * GIB, Basis::Driver))
    );
}
