//! Keys and clicks.

use gpumem_probe::NvmlState;

use super::sample::*;
use crate::event::{Effect, Ending, Event, Key, Mouse, MouseAction};
use crate::model::*;

#[test]
fn keys_open_views() {
    let cases: &[(&[Key], View)] = &[
        (&[Key::Char('2')], View::Blocks),
        (&[Key::Char('3')], View::Timeline),
        (&[Key::Char('7')], View::Demo),
        (&[Key::Char('4')], View::Hierarchy),
        (&[Key::Char('6')], View::Triage),
        (&[Key::Char('8')], View::Overview),
        (&[Key::Tab], View::Blocks),
        (&[Key::BackTab], View::Demo),
        (&[Key::Char('5')], View::Unified),
        (&[Key::Tab; 7], View::Overview),
        (&[Key::Char('3'), Key::Esc], View::Overview),
        (&[Key::Enter], View::Blocks),
        (&[Key::Char('3'), Key::Char('/')], View::Overview),
    ];
    for (keys, view) in cases {
        let mut model = busy();
        press(&mut model, keys);
        assert_eq!(model.ui.view, *view, "{keys:?}");
    }
}

/// The blocks of a black box are read only once it is selected.
#[test]
fn black_box_with_unread_blocks_opens_its_map() {
    use gpumem_channel::{DeviceKind, Life};
    let black_box = |segments| {
        let mut dead = channel_on(5, &[], DeviceKind::Cuda, Life::Died);
        let mut figures = dead.figures[0].clone().unwrap();
        figures.segments = segments;
        dead.figures = [Some(figures)].into();
        let mut model = busy();
        let alive = channel(11, &[]);
        feed(&mut model, [channels(2 * SECOND, vec![alive, dead])]);
        press(&mut model, &[Key::Char('b'), Key::End, Key::Enter]);
        model
    };
    let model = black_box(3);
    assert_eq!(model.selected_process().unwrap().pid, 5);
    assert_eq!((model.ui.view, model.map.is_some()), (View::Blocks, false));
    assert!(model.ui.toast.is_none());
    let unread = |model: &Model| {
        let process = model.selected_process().unwrap();
        process.has_unread_blocks(model.map.as_ref())
    };
    assert!(unread(&model));
    assert!(!unread(&black_box(0)), "there is nothing to read");
}

/// The process may publish on another device and have a map there.
#[test]
fn missing_map_is_reported_with_the_device() {
    let mut model = model();
    let mut other = channel(11, &[&[(GIB, gpumem_channel::BlockState::Allocated)]]);
    std::sync::Arc::make_mut(&mut other.snapshot).devices[0].device.uuid = [9; 16];
    feed(
        &mut model,
        [channels(SECOND, vec![other]), nvml(SECOND, 4 * GIB, &[(11, 3 * GIB)])],
    );
    press(&mut model, &[Key::Home, Key::Enter]);
    let said = &model.ui.toast.as_ref().unwrap().text;
    assert_eq!(said, "11 on GPU 0 has no block map: not publishing");
}

/// No line may be skipped, however low the screen is.
#[test]
fn page_of_a_popup_is_its_visible_height() {
    for (height, lines) in [(3, 1), (5, 2), (24, 21), (50, 47)] {
        let mut model = busy();
        (model.ui.term.height, model.ui.hits.popup_lines) = (height, 200);
        press(&mut model, &[Key::Char('?'), Key::PageDown]);
        assert_eq!(model.ui.popup, Some(Popup::Help { scroll: lines }));
        press(&mut model, &[Key::PageDown, Key::PageUp, Key::PageUp]);
        assert_eq!(model.ui.popup, Some(Popup::Help { scroll: 0 }));
    }
}

#[test]
fn findings_open_over_every_view_and_are_chosen() {
    for view in ['1', '2', '3', '7'] {
        let mut model = busy();
        press(&mut model, &[Key::Char(view), Key::Char('m')]);
        assert_eq!(
            model.ui.popup,
            Some(Popup::Findings {
                chosen: None,
                scroll: 0
            })
        );
        let about = |text: &str| Finding {
            severity: Severity::Info,
            process: None,
            about: About::Machine,
            text: text.into(),
        };
        model.live.findings = ["one", "two", "three"].map(about).into();
        // The third takes more lines than fit.
        model.ui.hits.finding_lines = (vec![(0, 2), (3, 4), (5, 12)], 4);
        for (key, place, line) in [
            (Key::Down, 1, 0),
            (Key::Down, 2, 5),
            (Key::Down, 2, 6),
            (Key::Up, 2, 5),
            (Key::Up, 1, 3),
            (Key::Home, 0, 0),
            (Key::End, 2, 5),
        ] {
            press(&mut model, &[key]);
            let Some(Popup::Findings { chosen, scroll }) = &model.ui.popup else {
                panic!("{key:?}");
            };
            assert_eq!(
                (model.chosen_finding(chosen.as_ref()), *scroll),
                (place, line),
                "{key:?}"
            );
        }
        // One that comes before it changes nothing of the choice.
        model.live.findings.insert(0, about("worse"));
        press(&mut model, &[Key::Char('d')]);
        let left: Vec<_> = model.findings().map(|finding| finding.text.as_str()).collect();
        assert_eq!(left, ["worse", "one", "two"]);
        press(&mut model, &[Key::Char('m')]);
        assert_eq!(model.ui.popup, None);
    }
    let mut model = busy();
    let area = Area {
        x: 0,
        y: 22,
        width: 80,
        height: 1,
    };
    model.ui.hits.areas = vec![Hit {
        area,
        target: Target::Findings,
    }];
    let (x, y, action) = (9, 22, MouseAction::Click);
    feed(&mut model, [Event::Mouse(Mouse { x, y, action })]);
    assert_eq!(
        model.ui.popup,
        Some(Popup::Findings {
            chosen: None,
            scroll: 0
        })
    );
}

#[test]
fn ways_to_quit() {
    let mut model = busy();
    assert_eq!(press(&mut model, &[Key::Char('q')]), [Effect::Quit(0)]);
    assert_eq!(press(&mut model, &[Key::Ctrl('c')]), [Effect::Quit(0)]);
    assert_eq!(feed(&mut model, [Event::End(Ending::Signal(15))]), [Effect::Quit(143)]);
    assert_eq!(
        feed(&mut model, [Event::End(Ending::TerminalGone)]),
        [Effect::Quit(129)]
    );
    press(&mut model, &[Key::Char('/')]);
    assert_eq!(
        press(&mut model, &[Key::Char('q')]),
        [Effect::Draw],
        "a q in the filter is a letter"
    );
    assert_eq!(press(&mut model, &[Key::Ctrl('c')]), [Effect::Quit(0)]);
}

#[test]
fn k_never_kills_and_unknown_keys_do_nothing() {
    let mut model = busy();
    for view in ['1', '2', '3', '7'] {
        for key in [
            Key::Char('k'),
            Key::Char('K'),
            Key::F(9),
            Key::Delete,
            Key::Char('\u{1F600}'),
        ] {
            let effects = press(&mut model, &[Key::Char(view), key]);
            assert!(
                effects.iter().all(|e| *e == Effect::Draw),
                "{view} {key:?}: {effects:?}"
            );
        }
    }
}

#[test]
fn pause_freezes_only_what_is_shown() {
    let mut model = busy();
    press(&mut model, &[Key::Char(' ')]);
    assert!(model.paused());
    let effects = feed(&mut model, [nvml(2 * SECOND, 20 * GIB, &[])]);
    assert!(effects.is_empty(), "nothing to draw");
    assert_eq!(model.world().devices[0].memory.value().unwrap().used(), 12 * GIB);
    assert_eq!(model.live.devices[0].memory.value().unwrap().used(), 20 * GIB);
    assert_eq!(model.live.devices[0].history.long.len(), 2);
    press(&mut model, &[Key::Char('p')]);
    assert!(!model.paused());
    assert_eq!(model.world().devices[0].memory.value().unwrap().used(), 20 * GIB);
}

/// Whatever is open, also where a demo waits.
#[test]
fn space_pauses_and_resumes_in_every_view() {
    for row in &VIEWS {
        for popup in [None, Some(Popup::Help { scroll: 0 }), Some(Popup::Fix { selected: 0 })] {
            let mut model = busy();
            model.ui.view = row.view;
            model.demo = Some(Demo {
                kind: Some(DemoKind::Stepped),
                phase: DemoPhase::Waiting,
                choices: vec![Choice::default()],
                total_steps: 5,
                ..Demo::default()
            });
            model.ui.popup = popup.clone();
            assert_eq!(press(&mut model, &[Key::Char(' ')]), [Effect::Draw], "{}", row.title);
            assert!(model.paused() && model.ui.popup == popup, "{}", row.title);
            press(&mut model, &[Key::Char(' ')]);
            assert!(!model.paused(), "{}", row.title);
        }
    }
}

#[test]
fn enter_is_the_next_step_of_a_demo_that_waits() {
    let mut model = busy();
    model.ui.view = View::Demo;
    model.demo = Some(Demo {
        kind: Some(DemoKind::Stepped),
        phase: DemoPhase::Waiting,
        total_steps: 5,
        ..Demo::default()
    });
    assert_eq!(
        press(&mut model, &[Key::Enter]),
        [Effect::SendToDemo("next".into()), Effect::Draw]
    );
    let effects = press(&mut model, &[Key::Enter]);
    assert_eq!(effects, [Effect::Draw], "further presses are not queued");
}

#[test]
fn open_popup_takes_all_keys() {
    let mut model = busy();
    press(&mut model, &[Key::Char('?'), Key::Char('2')]);
    assert_eq!((model.ui.view, model.ui.popup.is_some()), (View::Overview, true));
    press(&mut model, &[Key::Esc, Key::Char('2')]);
    assert_eq!((model.ui.view, model.ui.popup.is_some()), (View::Blocks, false));
    press(&mut model, &[Key::Char('?'), Key::Char('q')]);
    assert!(model.ui.popup.is_none(), "q closes the popup, not the dashboard");
}

#[test]
fn timeline_stays_within_the_history() {
    let mut model = busy();
    feed(&mut model, (2..100).map(|s| nvml(s * SECOND, 12 * GIB, &[])));
    press(&mut model, &[Key::Char('3'), Key::Char('+')]);
    assert_eq!(model.ui.timeline.span, 15 * SECOND);
    press(&mut model, &[Key::Home]);
    assert_eq!(model.ui.timeline.until, Some(16 * SECOND));
    press(&mut model, &[Key::Right]);
    assert_eq!(model.ui.timeline.until, Some(16 * SECOND + 15 * SECOND / 4));
    feed(&mut model, [nvml(100 * SECOND, 12 * GIB, &[])]);
    assert_eq!(
        model.ui.timeline.until,
        Some(16 * SECOND + 15 * SECOND / 4),
        "it stands still"
    );
    for _ in 0..10 {
        press(&mut model, &[Key::Char('-')]);
    }
    assert_eq!((model.ui.timeline.span, model.ui.timeline.until), (600 * SECOND, None));
}

#[test]
fn click_acts_on_the_area_under_it() {
    let mut model = busy();
    let id = model.listed().nth(2).unwrap().id;
    let area = |y| Area {
        x: 2,
        y,
        width: 10,
        height: 1,
    };
    let hits = Hits {
        areas: vec![
            Hit {
                area: area(0),
                target: Target::View(View::Timeline),
            },
            Hit {
                area: area(1),
                target: Target::Process(id),
            },
            Hit {
                area: area(2),
                target: Target::Column(Column::Pid),
            },
        ],
        ..Hits::default()
    };
    feed(&mut model, [Event::Drawn(Box::new(hits))]);
    let click = |x, y| {
        Event::Mouse(Mouse {
            action: MouseAction::Click,
            x,
            y,
        })
    };
    feed(&mut model, [click(4, 1)]);
    assert_eq!(model.ui.process, Some(id));
    feed(&mut model, [click(4, 2)]);
    assert_eq!(
        model.ui.sort,
        Sort {
            column: Column::Pid,
            descending: false
        }
    );
    assert!(feed(&mut model, [click(1, 0)]).is_empty(), "outside");
    feed(&mut model, [click(2, 0)]);
    assert_eq!(model.ui.view, View::Timeline);
}

#[test]
fn tick_draws_only_when_a_source_is_late() {
    let mut model = busy();
    assert!(feed(&mut model, [Event::Tick]).is_empty());
    model.now += 10 * SECOND;
    assert_eq!(feed(&mut model, [Event::Tick]), [Effect::DrawSoon]);
    model.live.nvml = NvmlState::Missing;
    model.live.times = Times::at(model.now, &[SourceId::Channels]);
    assert!(
        feed(&mut model, [Event::Tick]).is_empty(),
        "a missing library is not late"
    );
}

#[test]
fn messages_disappear_after_their_time() {
    let mut model = model();
    press(&mut model, &[Key::Char('7'), Key::Esc, Key::Char('f')]);
    model.ui.toast = Some(Toast {
        text: "hello".into(),
        severity: Severity::Info,
        until: model.now + SECOND,
    });
    assert!(feed(&mut model, [Event::Tick]).is_empty());
    model.now += SECOND;
    assert_eq!(feed(&mut model, [Event::Tick]), [Effect::Draw]);
    assert!(model.ui.toast.is_none());
}

#[test]
fn timeline_is_stacked_by_tag_if_there_are_tags() {
    let mut model = busy();
    press(&mut model, &[Key::Char('3'), Key::Char('o')]);
    assert!(model.ui.timeline.own);
    press(&mut model, &[Key::Char('t')]);
    assert!(!model.ui.timeline.by_tag, "nothing has a tag");
    let text = &model.ui.toast.as_ref().unwrap().text;
    assert!(text.contains("does not tag its memory"), "{text}");
    let mut alone = model.clone();
    alone.rows.truncate(1);
    press(&mut alone, &[Key::Char('t')]);
    let reported = &alone.ui.toast.as_ref().unwrap().text;
    assert!(
        text.ends_with("(n: the next process)") && !reported.contains("(n"),
        "{text}, {reported}"
    );
    let process = model.ui.process.unwrap();
    let mut past = TagPast::new(process);
    past.points.push_back(TagPoint {
        at: SECOND,
        tags: vec![("weights".into(), GIB)],
        rest: 0,
    });
    model.tags = Some(past);
    press(&mut model, &[Key::Char('t')]);
    assert!(model.ui.timeline.by_tag);
    assert_eq!(model.ui.device, Some(process.device));
    // Another process has its own history.
    press(&mut model, &[Key::Char('n')]);
    assert_ne!(model.ui.process, Some(process));
    assert_ne!(model.tags.as_ref().unwrap().process, process);
    press(&mut model, &[Key::Char('t')]);
    assert!(!model.ui.timeline.by_tag);
}

/// The process whose tags are shown is on the selected device, not on that of the row selected before.
#[test]
fn timeline_by_tag_stays_on_the_selected_device() {
    use gpumem_channel::{BlockState, DeviceKind, Life};
    let on = |pid: u32, uuid: u8, life, blocks: &[&[(u64, BlockState)]]| {
        let mut channel = channel_on(pid, blocks, DeviceKind::Cuda, life);
        let snapshot = std::sync::Arc::make_mut(&mut channel.snapshot);
        snapshot.devices[0].device.uuid = [uuid; 16];
        channel.figures = [Figures::of(&snapshot.devices[0], &[], None)].into();
        if life == Life::Died {
            // Its blocks are read once it is selected.
            snapshot.devices[0].segments.clear();
            channel.figures = channel
                .figures
                .iter()
                .cloned()
                .map(|f| f.map(|f| Figures { segments: 1, ..f }))
                .collect();
        }
        channel
    };
    let two = |sizes: [u64; 2]| {
        let mut model = model();
        let list = vec![
            on(11, 1, Life::Alive, &[&[(sizes[0], BlockState::Allocated)]]),
            on(12, 2, Life::Alive, &[&[(sizes[1], BlockState::Allocated)]]),
        ];
        feed(&mut model, [channels(SECOND, list)]);
        model
    };
    let named = |model: &Model| {
        let device = model.selected_device().unwrap().key;
        (
            model.selected_process().unwrap().pid,
            device == DeviceKey::Uuid([2; 16]),
        )
    };
    let mut model = two([2 * GIB, GIB]);
    assert_eq!(named(&model), (11, false));
    press(&mut model, &[Key::Char('3'), Key::Down, Key::Char('t')]);
    assert_eq!(named(&model), (12, true));
    // The same holds if it is stacked by tag already.
    model.ui.timeline.by_tag = true;
    press(&mut model, &[Key::Up]);
    assert_eq!(named(&model), (11, false));
    press(&mut model, &[Key::Down]);
    assert_eq!(named(&model), (12, true));

    // Whether the blocks of a black box have tags is not known before they are read.
    let mut model = two([2 * GIB, GIB]);
    let list = vec![
        on(11, 1, Life::Alive, &[&[(2 * GIB, BlockState::Allocated)]]),
        on(12, 2, Life::Died, &[&[(GIB, BlockState::Allocated)]]),
    ];
    feed(&mut model, [channels(2 * SECOND, list)]);
    press(&mut model, &[Key::Char('3'), Key::Down, Key::Char('t')]);
    assert_eq!(named(&model), (12, true));
    assert!(model.ui.timeline.by_tag && model.ui.toast.is_none());

    // Without a publisher on the device, a message says so and the device stays selected.
    let mut model = two([2 * GIB, GIB]);
    feed(&mut model, [nvml(2 * SECOND, 3 * GIB, &[(99, GIB)])]);
    let devices = model.world().devices.iter();
    let card = devices.clone().position(|d| d.key == DeviceKey::Uuid(CARD)).unwrap();
    model.ui.device = Some(DeviceKey::Uuid(CARD));
    press(&mut model, &[Key::Char('3'), Key::Char('t')]);
    assert_eq!(model.selected_device().unwrap().key, model.world().devices[card].key);
    let said = &model.ui.toast.as_ref().unwrap().text;
    assert_eq!(said, "GPU 0: no listed program publishes there");
    assert!(!model.ui.timeline.by_tag);
}

#[test]
fn space_resumes_before_it_halts_a_replay() {
    let mut model = busy();
    model.ui.view = View::Demo;
    model.demo = Some(Demo {
        kind: Some(DemoKind::Paced),
        phase: DemoPhase::Running,
        ..Demo::default()
    });
    press(&mut model, &[Key::Char('p')]);
    assert!(model.paused());
    assert_eq!(press(&mut model, &[Key::Char(' ')]), [Effect::Draw]);
    assert!(!model.paused());
    assert_eq!(
        press(&mut model, &[Key::Char(' ')])[0],
        Effect::SendToDemo("pause".into())
    );
}

/// The shown age of the figures grows.
#[test]
fn tick_draws_while_paused() {
    let mut model = busy();
    press(&mut model, &[Key::Char('p')]);
    assert_eq!(feed(&mut model, [Event::Tick]), [Effect::DrawSoon]);
}
