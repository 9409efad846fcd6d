//! Order, filter and selection of the process table.

use gpumem_channel::BlockState::Allocated;

use super::sample::*;
use crate::event::{Event, Key};
use crate::model::*;

#[test]
fn sorts_by_column_and_reverses() {
    // pid: 11 12 13 99, NVML: 5 3 2 2 GiB, cached: 1 0 0.5 - GiB.
    let cases = [
        (Column::Nvml, false, [11, 12, 13, 99]),
        (Column::Pid, false, [11, 12, 13, 99]),
        (Column::Pid, true, [99, 13, 12, 11]),
        (Column::Cached, false, [11, 13, 12, 99]),
        (Column::Cached, true, [12, 13, 11, 99]),
        (Column::LargestFree, false, [11, 13, 12, 99]),
        (Column::State, false, [99, 11, 12, 13]),
    ];
    for (column, again, expected) in cases {
        let mut model = busy();
        model.ui.sort = Sort {
            column: Column::User,
            descending: false,
        };
        for _ in 0..=usize::from(again) {
            crate::update::popup::sort_by(&mut model, column);
        }
        assert_eq!(pids(&model), expected, "{column:?}, reversed: {again}");
    }
}

/// A column that comes and goes with each sample would move all others.
#[test]
fn column_keeps_its_place_until_the_list_or_its_order_changes() {
    let without_publishers = || {
        let mut model = busy();
        assert!(model.has_values(Column::Cached) && !model.has_values(Column::Managed));
        feed(&mut model, [channels(2 * SECOND, vec![])]);
        assert!(model.listed().len() > 0 && model.listed().all(|p| !p.has(Column::Cached)));
        assert!(model.has_values(Column::Cached));
        model
    };
    let changes: [&[Key]; 3] = [
        &[Key::Char('s'), Key::Down, Key::Enter],
        &[Key::Char('/'), Key::Char('1')],
        &[Key::Char('b')],
    ];
    for keys in changes {
        let mut model = without_publishers();
        press(&mut model, keys);
        assert!(!model.has_values(Column::Cached), "{keys:?}");
        assert!(model.has_values(Column::Nvml), "{keys:?}");
    }
    let mut model = without_publishers();
    press(&mut model, &[Key::Down]);
    feed(&mut model, [channels(3 * SECOND, vec![])]);
    assert!(
        model.has_values(Column::Cached),
        "the selected row is not part of the list"
    );
}

#[test]
fn filter_finds_a_rank_as_shown() {
    let mut model = model();
    let rank = |pid, rank| {
        let mut channel = channel(pid, &[&[(GIB, Allocated)]]);
        let identity = &mut std::sync::Arc::make_mut(&mut channel.snapshot).identity;
        let identity = std::sync::Arc::make_mut(identity);
        (identity.job, identity.rank) = ("pretrain".into(), Some(rank));
        channel
    };
    feed(&mut model, [channels(SECOND, vec![rank(11, 2), rank(12, 3)])]);
    type_text(&mut model, "/pretrain:3");
    assert_eq!(pids(&model), [12]);
}

#[test]
fn sort_menu_sorts() {
    let mut model = busy();
    press(&mut model, &[Key::Char('s'), Key::Home, Key::Enter]);
    assert_eq!(
        model.ui.sort,
        Sort {
            column: Column::Pid,
            descending: false
        }
    );
    assert!(model.ui.popup.is_none());
}

/// They are sorted by RESERVED, and choosing that column reverses the order.
#[test]
fn rows_without_nvml_are_sorted_by_reserved() {
    let mut model = model();
    let list = [(11, 2 * GIB), (12, 3 * GIB)].map(|(pid, size)| channel(pid, &[&[(size, Allocated)]]));
    let without = nvml_state(SECOND, gpumem_probe::NvmlState::Missing);
    feed(&mut model, [without, channels(SECOND, list.into())]);
    assert_eq!(
        (model.ui.sort.column, model.order(), pids(&model)),
        (Column::Nvml, Column::Reserved, vec![12, 11])
    );
    crate::update::popup::sort_by(&mut model, Column::Reserved);
    assert_eq!(pids(&model), [11, 12]);
    assert_eq!(busy().order(), Column::Nvml);
}

#[test]
fn selection_follows_the_process() {
    let mut model = busy();
    press(&mut model, &[Key::Down]);
    assert_eq!(model.selected_process().unwrap().pid, 12);
    crate::update::popup::sort_by(&mut model, Column::Pid);
    crate::update::popup::sort_by(&mut model, Column::Pid);
    assert_eq!(
        (model.selected_process().unwrap().pid, model.selected_row()),
        (12, Some(2))
    );
    // It grows larger than all others, which moves it to another row. It stays selected.
    let again = model.inputs.channels.channels.clone();
    feed(
        &mut model,
        [
            nvml(2 * SECOND, 40 * GIB, &[(12, 30 * GIB), (11, GIB)]),
            channels(2 * SECOND, again),
        ],
    );
    assert_eq!(model.selected_process().unwrap().pid, 12);
}

/// Channels are read before the driver answers for the first time, which must not decide which row is selected.
#[test]
fn first_row_is_selected_until_the_user_chooses() {
    let selected = |keys: &[Key]| {
        let mut model = model();
        feed(
            &mut model,
            [channels(SECOND, vec![channel(11, &[&[(GIB, Allocated)]])])],
        );
        assert_eq!(model.selected_process().unwrap().pid, 11);
        press(&mut model, keys);
        feed(&mut model, [nvml(SECOND, 9 * GIB, &[(11, 2 * GIB), (99, 5 * GIB)])]);
        assert_eq!(pids(&model), [99, 11]);
        feed(&mut model, [nvml(2 * SECOND, 9 * GIB, &[(11, 6 * GIB), (99, GIB)])]);
        model.selected_process().unwrap().pid
    };
    assert_eq!(selected(&[]), 99, "and it stays selected");
    assert_eq!(selected(&[Key::Home]), 11);
    assert_eq!(selected(&[Key::Char('2')]), 11, "its blocks are seen");
}

/// A narrow table does not show the device of each row, so the marked device must be that of the selected row.
#[test]
fn device_of_the_first_row_is_selected_at_first() {
    let mut model = model();
    let mut other = channel(12, &[&[(2 * GIB, Allocated)]]);
    std::sync::Arc::make_mut(&mut other.snapshot).devices[0].device.uuid = [9; 16];
    let list = || vec![channel(11, &[&[(GIB, Allocated)]]), other.clone()];
    feed(&mut model, [channels(SECOND, list())]);
    let marked = |model: &Model| model.selected_device().unwrap().key;
    assert_eq!(model.selected_process().unwrap().pid, 12);
    assert_eq!(marked(&model), DeviceKey::Uuid([9; 16]));
    assert_eq!(model.world().devices[0].key, DeviceKey::Uuid(CARD));
    press(&mut model, &[Key::Left]);
    assert_eq!(marked(&model), DeviceKey::Uuid(CARD), "the user chose it");
    feed(&mut model, [channels(2 * SECOND, list())]);
    assert_eq!(marked(&model), DeviceKey::Uuid(CARD));
}

#[test]
fn first_row_is_selected_once_the_process_is_gone() {
    let mut model = busy();
    press(&mut model, &[Key::Down]);
    let without = model
        .inputs
        .channels
        .channels
        .iter()
        .filter(|c| c.pid != Some(12))
        .cloned()
        .collect();
    feed(
        &mut model,
        [
            nvml(2 * SECOND, 9 * GIB, &[(11, 5 * GIB)]),
            channels(2 * SECOND, without),
        ],
    );
    assert_eq!(model.selected_process().unwrap().pid, 11);
}

/// The user might otherwise take the new row for the old one.
#[test]
fn selection_of_another_process_is_reported() {
    let reported = |keys: &[Key], after: &[Key]| {
        let mut model = busy();
        let list = model.inputs.channels.channels.clone();
        press(&mut model, keys);
        let without = |pid| list.iter().filter(|c| c.pid != Some(pid)).cloned().collect();
        let listed = |at| nvml(at, 9 * GIB, &[(11, 5 * GIB)]);
        // A process that is not selected ends.
        feed(&mut model, [listed(2 * SECOND), channels(2 * SECOND, without(13))]);
        assert_eq!(model.ui.toast, None);
        feed(&mut model, [channels(3 * SECOND, without(12))]);
        press(&mut model, after);
        model.ui.toast.map(|toast| toast.text)
    };
    let text = Some("python job12 (12) is no longer known: python job11 (11) is selected".to_owned());
    assert_eq!(reported(&[Key::Down], &[]), text);
    assert_eq!(reported(&[Key::Down, Key::Char('2')], &[]), text);
    let paused = [Key::Down, Key::Char('p')];
    assert_eq!(reported(&paused, &[]), None, "it is still shown");
    assert_eq!(reported(&paused, &[Key::Char('p')]), text);
    assert_eq!(reported(&[], &[]), None);
}

#[test]
fn moves_stop_at_the_ends_of_the_list() {
    let mut model = busy();
    for (keys, pid) in [
        (vec![Key::Up], 11),
        (vec![Key::End], 99),
        (vec![Key::Down, Key::PageDown], 99),
        (vec![Key::Home], 11),
        (vec![Key::Char('j'), Key::Char('k'), Key::Char('j')], 12),
    ] {
        press(&mut model, &keys);
        assert_eq!(model.selected_process().unwrap().pid, pid, "{keys:?}");
    }
}

#[test]
fn filter_takes_words_in_any_order_and_case() {
    let mut model = busy();
    let cases = [
        ("job12", vec![12]),
        ("PUBLISHING 11", vec![11]),
        ("not", vec![99]),
        ("nothing", vec![]),
        ("ml", vec![11, 12, 13]),
    ];
    press(&mut model, &[Key::Down]);
    for (text, expected) in cases {
        press(&mut model, &[Key::Char('/'), Key::Ctrl('u')]);
        type_text(&mut model, text);
        press(&mut model, &[Key::Enter]);
        assert_eq!(pids(&model), expected, "{text:?}");
        let selected = model.selected_process().unwrap().pid;
        assert!(
            expected.is_empty() || expected.contains(&selected),
            "what does not pass the filter is not selected while anything does"
        );
    }
    press(&mut model, &[Key::Esc]);
    assert_eq!(pids(&model).len(), 4);
    assert_eq!(
        model.selected_process().unwrap().pid,
        12,
        "the selection outlives the filter"
    );
}

#[test]
fn pasted_text_does_not_act_as_keys() {
    let mut model = busy();
    assert!(feed(&mut model, [Event::Paste("q\nq".into())]).is_empty());
    press(&mut model, &[Key::Char('/')]);
    feed(
        &mut model,
        [Event::Paste("job\x1b[2J\n12".into()), Event::Paste("x".repeat(500))],
    );
    assert!(model.ui.filter.text.starts_with("job[2J12"));
    assert_eq!(model.ui.filter.text.chars().count(), 64);
}

#[test]
fn an_empty_table_takes_every_key() {
    let mut model = model();
    for key in [
        Key::Up,
        Key::Down,
        Key::PageUp,
        Key::End,
        Key::Enter,
        Key::Left,
        Key::Right,
        Key::Char('2'),
        Key::Down,
    ] {
        press(&mut model, &[key]);
    }
    assert_eq!(model.selected_row(), None);
}

#[test]
fn selection_stays_when_the_process_begins_to_publish() {
    let mut model = model();
    let listed = || nvml(SECOND, 8 * GIB, &[(11, 5 * GIB), (12, 3 * GIB)]);
    feed(&mut model, [channels(SECOND, vec![]), listed()]);
    press(&mut model, &[Key::Down]);
    assert_eq!(model.selected_process().map(|p| p.pid), Some(12));
    let begins = channel(12, &[&[(2 * GIB, Allocated)]]);
    feed(&mut model, [channels(2 * SECOND, vec![begins]), listed()]);
    let selected = model.selected_process().unwrap();
    assert_eq!((selected.pid, &selected.state), (12, &ProcessState::Publishing));
}

/// The text of `not publishing` contains that of `publishing`.
#[test]
fn filter_matches_states_as_shown() {
    let mut model = busy();
    for (text, expected) in [
        ("publishing", vec![11, 12, 13]),
        ("not publishing", vec![99]),
        ("-publishing", vec![99]),
        ("state:not", vec![99]),
        ("publishing !pid:12", vec![11, 13]),
        ("gpu:0 pid:99,13", vec![13, 99]),
        ("gpu:1", vec![]),
        ("pid:x", vec![]),
    ] {
        press(&mut model, &[Key::Char('/'), Key::Ctrl('u')]);
        type_text(&mut model, text);
        assert_eq!(pids(&model), expected, "{text:?}");
        press(&mut model, &[Key::Enter]);
    }
}

/// Two cards: 11 and 12 use the first, 13 uses the second.
fn two_cards() -> Model {
    let mut model = model();
    let mut other = channel(13, &[&[(3 * GIB, Allocated)]]);
    std::sync::Arc::make_mut(&mut other.snapshot).devices[0].device.uuid = [9; 16];
    let list = vec![
        channel(11, &[&[(2 * GIB, Allocated)]]),
        channel(12, &[&[(GIB, Allocated)]]),
        other,
    ];
    feed(&mut model, [channels(SECOND, list)]);
    model
}

#[test]
fn list_follows_the_selected_device_while_restricted_to_it() {
    let mut model = two_cards();
    assert_eq!(pids(&model), [13, 11, 12]);
    let state = |model: &Model| {
        let selected = model.selected_process().unwrap().pid;
        (pids(model), selected)
    };
    press(&mut model, &[Key::Char('d')]);
    assert_eq!(state(&model), (vec![13], 13), "the first row's device");
    press(&mut model, &[Key::Left]);
    assert_eq!(state(&model), (vec![11, 12], 11), "the other one");
    press(&mut model, &[Key::Down]);
    let again = model.inputs.channels.channels.clone();
    feed(&mut model, [channels(2 * SECOND, again)]);
    assert_eq!(state(&model), (vec![11, 12], 12), "a sample changes nothing");
    type_text(&mut model, "/pid:11,13");
    assert_eq!(pids(&model), [11], "the filter narrows it further");
    press(&mut model, &[Key::Esc, Key::Char('d')]);
    assert_eq!(state(&model), (vec![13, 11, 12], 12), "the selection outlives it");
}

#[test]
fn click_on_a_device_moves_a_restricted_list() {
    use crate::event::{Mouse, MouseAction};
    let mut model = two_cards();
    press(&mut model, &[Key::Char('d')]);
    let area = Area {
        x: 0,
        y: 2,
        width: 80,
        height: 1,
    };
    model.ui.hits.areas = vec![Hit {
        area,
        target: Target::Device(DeviceKey::Uuid(CARD)),
    }];
    let (x, y, action) = (9, 2, MouseAction::Click);
    feed(&mut model, [Event::Mouse(Mouse { x, y, action })]);
    assert_eq!(pids(&model), [11, 12]);
}

/// A GPU in MIG mode has no processes of its own.
#[test]
fn list_of_a_gpu_includes_its_mig_devices() {
    let mut model = two_cards();
    let gpu = model.live.devices[0].key;
    model.live.devices[1].part_of = Some(PartOf {
        gpu,
        index: 0,
        profile: String::new(),
        uuid: String::new(),
    });
    press(&mut model, &[Key::Left, Key::Char('d')]);
    assert_eq!(pids(&model), [13, 11, 12]);
    press(&mut model, &[Key::Right]);
    assert_eq!(pids(&model), [13], "a MIG device is listed alone");
}

#[test]
fn only_device_needs_no_restriction() {
    let mut model = busy();
    press(&mut model, &[Key::Char('d')]);
    assert!(!model.ui.one_device);
    assert_eq!(model.ui.toast.unwrap().text, "GPU 0 is the only device");
    let mut model = super::sample::model();
    press(&mut model, &[Key::Char('d')]);
    assert!(!model.ui.one_device, "there is no device at all");
}

#[test]
fn findings_follow_a_restricted_list() {
    let mut model = two_cards();
    let about = |pid: u32| Finding {
        about: About::Process,
        severity: Severity::Warning,
        process: model.world().processes.iter().find(|p| p.pid == pid).map(|p| p.id),
        text: pid.to_string(),
    };
    model.live.findings = vec![about(11), about(13)];
    let texts = |model: &Model| model.findings().map(|f| f.text.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&model), ["11", "13"]);
    press(&mut model, &[Key::Char('d')]);
    assert_eq!(texts(&model), ["13"]);
}

/// A model with these publishers on the card: pid, bytes, and when it ran out of memory.
fn publishers(list: &[(u32, u64, Option<Nanos>)]) -> Model {
    let mut model = model();
    let publisher = |&(pid, bytes, at): &(u32, u64, Option<Nanos>)| {
        let blocks = [(bytes, Allocated)];
        let segments = [&blocks[..]];
        let mut channel = channel(pid, if bytes > 0 { &segments } else { &[] });
        let mut figures = channel.figures[0].clone().unwrap();
        figures.ran_out = at.map(|at| RanOut {
            at,
            ..RanOut::default()
        });
        channel.figures = [Some(figures)].into();
        channel
    };
    let list = list.iter().map(publisher).collect();
    feed(
        &mut model,
        [channels(SECOND, list), nvml(SECOND, 70 * GIB, &[(99, 60 * GIB)])],
    );
    model
}

#[test]
fn blocks_of_the_publisher_that_matters_most_are_opened() {
    let opened = |list: &[(u32, u64, Option<Nanos>)], keys: &[Key]| {
        let mut model = publishers(list);
        // It uses most memory, and does not publish.
        assert_eq!(pids(&model)[0], 99);
        press(&mut model, keys);
        assert_eq!(model.ui.view, View::Blocks);
        assert_eq!(
            model.map.as_ref().map(|map| map.process),
            model.selected_process().filter(|p| p.has_map()).map(|p| p.id)
        );
        model.selected_process().unwrap().pid
    };
    let two = Key::Char('2');
    let plain = [(11, GIB, None), (12, 3 * GIB, None), (13, 2 * GIB, None)];
    let failed = [(11, GIB, Some(5)), (12, 3 * GIB, None), (13, 2 * GIB, Some(7))];
    assert_eq!(opened(&plain, &[two]), 12, "most reserved");
    assert_eq!(opened(&plain, &[Key::Tab]), 12);
    assert_eq!(opened(&failed, &[two]), 13, "ran out of memory last");
    assert_eq!(opened(&[(11, 0, Some(9)), (12, GIB, None)], &[two]), 12, "it has a map");
    assert_eq!(opened(&[(11, 0, None)], &[two]), 99, "none has one");
    // What the user selected is shown, even if it has no map.
    assert_eq!(opened(&plain, &[Key::Home, two]), 99);
    assert_eq!(opened(&plain, &[Key::Down, Key::Down, two]), 13);
    assert_eq!(opened(&failed, &[Key::Char('3'), two]), 99, "only from the Overview");
}

/// The first row is selected when that of the user is gone.
#[test]
fn publisher_that_matters_most_is_opened_again_once_the_selected_one_is_gone() {
    let mut model = publishers(&[(11, GIB, None), (12, 3 * GIB, None)]);
    press(&mut model, &[Key::End]);
    assert_eq!(model.selected_process().unwrap().pid, 11);
    let rest = model
        .inputs
        .channels
        .channels
        .iter()
        .filter(|c| c.pid != Some(11))
        .cloned()
        .collect();
    feed(&mut model, [channels(2 * SECOND, rest)]);
    assert_eq!(model.selected_process().unwrap().pid, 99);
    press(&mut model, &[Key::Char('2')]);
    assert_eq!(model.selected_process().unwrap().pid, 12);
    press(&mut model, &[Key::Char('1'), Key::Char('2')]);
    assert_eq!(
        model.selected_process().unwrap().pid,
        12,
        "it stays while the user goes back and forth"
    );
}

#[test]
fn a_publisher_on_the_selected_device_comes_first() {
    let mut model = two_cards();
    press(&mut model, &[Key::Left, Key::Char('2')]);
    assert_eq!(
        model.selected_process().unwrap().pid,
        11,
        "13 has more memory on the other device"
    );
}

#[test]
fn next_process_in_blocks_has_a_map() {
    let mut model = publishers(&[(11, GIB, None), (12, 0, None), (13, 2 * GIB, None)]);
    assert_eq!(pids(&model), [99, 13, 11, 12]);
    let (next, previous) = (Key::Char('n'), Key::Char('N'));
    press(&mut model, &[Key::Home, Key::Char('2')]);
    for (key, pid) in [(next, 13), (next, 11), (next, 11), (previous, 13), (previous, 13)] {
        press(&mut model, &[key]);
        assert_eq!(model.selected_process().unwrap().pid, pid);
    }
    press(&mut model, &[Key::Char('3'), previous]);
    assert_eq!(model.selected_process().unwrap().pid, 99, "the Timeline needs no map");
    let mut model = publishers(&[(12, 0, None)]);
    press(&mut model, &[Key::Home, Key::Char('2'), next]);
    assert_eq!(model.selected_process().unwrap().pid, 12, "no process has one");
}

/// The process that ran out of memory a moment ago comes first, in whatever order, and says so.
#[test]
fn process_that_just_ran_out_comes_first() {
    let failing = |at: Nanos| {
        let mut channel = channel(4, &[&[(GIB, Allocated)]]);
        let mut figures = channel.figures[0].clone().unwrap();
        figures.ooms = 82;
        figures.ran_out = Some(RanOut {
            at,
            requested: GIB,
            ..RanOut::default()
        });
        channel.figures = [Some(figures)].into();
        channel
    };
    let large = || channel(3, &[&[(9 * GIB, Allocated)]]);
    let mut model = model();
    for (at, first, text) in [
        (10, 4, Some("OOM x82, now")),
        (13, 4, Some("OOM x82, 3 s ago")),
        (75, 4, Some("OOM x82, 1 min ago")),
        (311, 3, None),
    ] {
        feed(&mut model, [channels(at * SECOND, vec![large(), failing(10 * SECOND)])]);
        assert_eq!(model.listed().next().map(|p| p.pid), Some(first), "{at}");
        let four = model.listed().find(|p| p.pid == 4).unwrap();
        assert_eq!(four.failing.map(|failing| failing.text()).as_deref(), text, "{at}");
    }
}
