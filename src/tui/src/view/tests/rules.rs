//! Rules that hold for every screen at every size.

use ratatui::style::Color;

use super::fixture;
use super::gallery::drawn;
use super::screens::text;
use crate::model::*;

pub(super) const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

#[test]
fn no_size_panics_and_no_hit_lies_outside() {
    for (name, model) in fixture::screens() {
        let sizes = (0..=24).flat_map(|w| (0..=14).map(move |h| (w, h)));
        let long = [
            (1, 200),
            (300, 1),
            (300, 3),
            (500, 120),
            (79, 23),
            (59, 11),
            (110, 12),
            (150, 8),
        ];
        for (w, h) in sizes.chain(long) {
            for (colors, ascii) in [(Colors::True, false), (Colors::Mono, true)] {
                let (_, hits) = drawn(model.clone(), w, h, colors, ascii);
                for hit in &hits.areas {
                    let (right, bottom) = (hit.area.x + hit.area.width, hit.area.y + hit.area.height);
                    assert!(right <= w && bottom <= h, "{name} at {w}x{h}: {hit:?}");
                }
            }
        }
    }
}

#[test]
fn ascii_mode_sends_nothing_but_ascii() {
    for (name, model) in fixture::screens() {
        for (w, h) in SIZES {
            let (buffer, _) = drawn(model.clone(), w, h, Colors::True, true);
            assert!(text(&buffer).is_ascii(), "{name} at {w}x{h}:\n{}", text(&buffer));
        }
    }
}

pub(super) fn at_80x24(model: &Model) -> String {
    text(&drawn(model.clone(), 80, 24, Colors::Mono, false).0)
}

/// A device is shown on one line.
#[test]
fn device_line_shows_a_problem_once() {
    let mut model = fixture::several();
    let more: Vec<Device> = (0..8).map(|_| model.live.devices[0].clone()).collect();
    model.live.devices.extend(more);
    let drawn = at_80x24(&model);
    let line = |label: &str| drawn.lines().find(|line| line.contains(label)).unwrap();
    assert!(line("GPU 0").contains("GiB used"), "{drawn}");
    assert!(
        line("GPU 1").contains("LOST") && !line("GPU 1").contains("used"),
        "{drawn}"
    );
    assert_eq!(line("GPU 2").matches("not supported").count(), 1, "{drawn}");
}

/// Narrow screens drop figures before the state of a process that is stopped or has ended.
#[test]
fn unusual_states_are_shown_on_narrow_screens() {
    let row = |model: &Model, width| {
        let screen = text(&drawn(model.clone(), width, 20, Colors::Mono, false).0);
        let row = screen.lines().find(|line| line.trim_start().starts_with("4121 "));
        row.unwrap().to_owned()
    };
    let mut usual = fixture::h100();
    usual.rows = vec![0, 1, 2];
    let has_state = |model: &Model, width| {
        let screen = text(&drawn(model.clone(), width, 20, Colors::Mono, false).0);
        screen.contains(" STATE")
    };
    assert!(!has_state(&usual, 60), "figures matter more for running processes");
    let cases = [
        ("exited", ProcessState::Exited, None),
        ("died", ProcessState::Died, None),
        ("stopped", ProcessState::Publishing, Some(true)),
        ("stopped", ProcessState::NotPublishing, Some(true)),
        ("inconsistent", ProcessState::Inconsistent("torn".into()), None),
    ];
    for (word, state, stopped) in cases {
        let mut model = usual.clone();
        let process = &mut model.live.processes[0];
        (process.state, process.stopped) = (state, stopped);
        for width in [30, 36, 40, 50, 59, 60, 66, 79] {
            assert!(row(&model, width).contains(word), "{width}: {}", row(&model, width));
        }
    }
}

/// NVML's column is shown with every figure or not at all: a missing one would be misread.
#[test]
fn narrow_table_drops_a_column_instead_of_figures() {
    let mut model = fixture::h100();
    for (rows, least) in [(4, 31), (3, 26)] {
        model.rows.truncate(rows);
        for width in 12..=60 {
            let screen = text(&drawn(model.clone(), width, 20, Colors::Mono, false).0);
            let shown_text = ["NVML▾", "41.5G", "9.5G", "2.1G"].map(|figure| screen.contains(figure));
            assert_eq!(shown_text, [width >= least; 4], "{width}:\n{screen}");
        }
    }
}

/// A program that fails in a loop has a figure, too.
#[test]
fn large_number_of_failures_fits_its_column() {
    let mut model = fixture::h100();
    for (process, (ooms, shown_text)) in [(2_446, "  2446 "), (123_456, "  123k ")].into_iter().enumerate() {
        model.live.processes[process].figures.as_mut().unwrap().ooms = ooms;
        let screen = text(&drawn(model.clone(), 200, 50, Colors::Mono, false).0);
        assert!(screen.contains(shown_text), "{screen}");
    }
}

#[test]
fn mono_sends_no_colour() {
    for (name, model) in fixture::screens() {
        let (buffer, _) = drawn(model, 120, 40, Colors::Mono, false);
        let plain = |c: &ratatui::buffer::Cell| c.fg == Color::Reset && c.bg == Color::Reset;
        assert!(buffer.content().iter().all(plain), "{name}");
    }
}

#[test]
fn clock_alone_changes_no_cell() {
    for (name, model) in fixture::screens() {
        let (before, _) = drawn(model.clone(), 120, 40, Colors::True, false);
        let mut later = model.clone();
        later.now += SECOND;
        let (after, _) = drawn(later, 120, 40, Colors::True, false);
        assert_eq!(before, after, "{name}");
    }
}

#[test]
fn stale_figures_show_their_age() {
    for (width, height) in [(200, 50), (120, 40), (80, 24), (60, 20)] {
        for view in [View::Overview, View::Timeline] {
            let mut model = fixture::h100();
            model.ui.view = view;
            model.now += 12 * SECOND;
            let (buffer, _) = drawn(model, width, height, Colors::Mono, false);
            let text = text(&buffer);
            assert!(text.contains("NVML answered 12.0 s ago"), "{text}");
            assert!(text.contains(" 12 s ago"), "on the axis: {text}");
        }
    }
}

#[test]
fn paused_label_is_shown_on_small_screens() {
    for (width, height) in [(80, 24), (60, 20)] {
        let mut model = fixture::h100();
        model.frozen = Some(Box::new(model.live.clone()));
        let (buffer, _) = drawn(model, width, height, Colors::Mono, false);
        assert!(text(&buffer).contains("PAUSED"), "{}", text(&buffer));
    }
}

#[test]
fn missing_figure_is_explained_and_never_zero() {
    let (buffer, _) = drawn(fixture::several(), 200, 50, Colors::Mono, false);
    let text = text(&buffer);
    for reason in [
        "not supported by driver or card",
        "no permission",
        "LOST",
        "not publishing",
    ] {
        assert!(text.contains(reason), "{reason}:\n{text}");
    }
    let quiet = text.lines().find(|l| l.contains("6011")).unwrap().replace("GPU 0", "");
    assert!(!quiet.split_whitespace().any(|w| w == "0"), "{quiet}");
}

#[test]
fn failed_reading_of_a_dead_process_is_not_shown() {
    let (buffer, _) = drawn(fixture::h100(), 200, 50, Colors::Mono, false);
    let text = text(&buffer);
    let dead = text.lines().find(|l| l.contains("3977") && l.contains("died")).unwrap();
    assert!(!dead.contains("failed"), "{dead}");
}

#[test]
fn ended_process_is_not_shown_as_current() {
    let mut model = fixture::simulated();
    let living = model.clone();
    model.live.devices[0].state = DeviceState::Gone;
    model.live.processes[0].state = ProcessState::Died;
    let screen = |model: &Model, view| {
        let mut model = model.clone();
        model.ui.view = view;
        text(&drawn(model, 120, 40, Colors::Mono, false).0)
    };
    let timeline = |model: &Model| {
        let text = screen(model, View::Timeline);
        let is_now = |line: &&str| line.contains(" now ") && !line.contains("contiguous");
        (text.lines().filter(is_now).count(), text.contains("GiB last known"))
    };
    assert!(timeline(&living).0 >= 2, "the axis and the legend");
    assert_eq!(timeline(&model), (0, true), "{}", screen(&model, View::Timeline));
    let axis = |model: &Model, end: &str| {
        let text = screen(model, View::Overview);
        text.lines().any(|line| line.contains(" s ago ") && line.contains(end))
    };
    let ends = |model: &Model| (axis(model, " now "), axis(model, " last known "));
    assert_eq!((ends(&living), ends(&model)), ((true, false), (false, true)));
    let title = |model: &Model| screen(model, View::Blocks).contains("7720 died on SIM 7720");
    assert_eq!((title(&living), title(&model)), (false, true));
    let mut stopped = living.clone();
    stopped.live.processes[0].stopped = Some(true);
    assert!(screen(&stopped, View::Blocks).contains("7720 stopped on SIM 7720"));
    assert!(screen(&stopped, View::Overview).contains("SIMULATED, stopped"));
}

#[test]
fn replay_shows_its_figures_once() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    let demo = model.demo.as_mut().unwrap();
    (demo.kind, demo.phase) = (Some(DemoKind::Looping), DemoPhase::Running);
    let shown_text = |model: &Model| {
        let text = text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
        text.matches("allocated ").count()
    };
    assert_eq!(shown_text(&model), 2, "a demo's step, and its memory");
    model.demo.as_mut().unwrap().kind = Some(DemoKind::Paced);
    assert_eq!(shown_text(&model), 1, "its memory");
}

#[test]
fn holes_left_out_of_the_map_are_in_its_legend() {
    let mut model = fixture::h100();
    model.ui.view = View::Blocks;
    let legend = |model: &Model| {
        let text = text(&drawn(model.clone(), 80, 24, Colors::Mono, false).0);
        text.lines().find(|l| l.contains("1 cell")).unwrap().to_owned()
    };
    assert!(!legend(&model).contains("left out"), "{}", legend(&model));
    model.map.as_mut().unwrap().left_out = 8 << 30;
    let shown_text = legend(&model);
    assert!(shown_text.contains("  8.0 GiB unmapped left out"), "{shown_text}");
}

#[test]
fn process_without_memory_holds_no_memory_now() {
    let mut model = fixture::h100();
    model.ui.view = View::Blocks;
    model.map.as_mut().unwrap().segments.clear();
    let shown_text = text(&drawn(model, 80, 24, Colors::Mono, false).0);
    assert!(shown_text.contains("holds no memory now"), "{shown_text}");
}

/// The text in place of a map names keys that the footer has.
#[test]
fn keys_named_in_place_of_a_map_exist() {
    for state in [ProcessState::NotPublishing, ProcessState::Exited, ProcessState::Died] {
        let mut model = fixture::h100();
        model.ui.view = View::Blocks;
        model.map = None;
        let selected = model.ui.process;
        let process = model
            .live
            .processes
            .iter_mut()
            .find(|p| Some(p.id) == selected)
            .unwrap();
        process.state = state;
        process.figures.as_mut().unwrap().segments = 0;
        let text = text(&drawn(model, 120, 24, Colors::Mono, false).0);
        assert!(
            text.contains("n and N go to other processes") && text.contains("n N process"),
            "{text}"
        );
    }
}

#[test]
fn every_line_of_the_map_answers_a_click() {
    let mut model = fixture::h100();
    model.ui.view = View::Blocks;
    let map = model.map.clone().unwrap();
    let (_, hits) = drawn(model, 120, 40, Colors::True, false);
    let strips: Vec<_> = hits
        .areas
        .iter()
        .filter(|h| matches!(h.target, Target::Bytes { .. }))
        .collect();
    assert!(strips.len() >= map.segments.len());
    assert!(hits.map.layout.bytes_per_cell > 0 && hits.map.layout.columns > 0);
    for hit in strips {
        let Target::Bytes { addr, bytes_per_cell } = hit.target else {
            unreachable!()
        };
        assert!(map.at(addr).is_some(), "{addr:#x}");
        assert_eq!(bytes_per_cell, hits.map.layout.bytes_per_cell);
    }
}

#[test]
fn figures_of_the_legend_add_up_to_the_device() {
    let (buffer, _) = drawn(fixture::h100(), 120, 40, Colors::Mono, false);
    let text = text(&buffer);
    let line = text.lines().find(|l| l.contains("allocated")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let figure = |two: &[&str]| match two[1] {
        "GiB" => two[0].parse::<f64>().ok(),
        "MiB" => two[0].parse::<f64>().ok().map(|mib| mib / 1024.0),
        _ => None,
    };
    let figures: f64 = words.windows(2).filter_map(figure).sum();
    assert!((figures - 79.6).abs() < 0.25, "{figures}: {line}");
}

/// The full word is used where it fits, and a shorter one where it would push out a figure.
#[test]
fn utilization_is_spelled_out_where_it_fits() {
    let said = |model: &Model, width| text(&drawn(model.clone(), width, 40, Colors::Mono, false).0);
    assert!(said(&fixture::h100(), 80).contains("  utilization "));
    assert!(crate::report::text(&fixture::h100(), u16::MAX).contains("utilization 97%"));
    let several = said(&fixture::several(), 120);
    assert!(several.contains(" utilization 97%   memory bus 61%"), "{several}");
    assert!(
        several.contains(" util 3% ") && several.contains("temperature 41"),
        "{several}"
    );
}

#[test]
fn control_characters_in_names_are_not_drawn() {
    let mut model = fixture::h100();
    let hostile = "a\u{1b}[31mb\u{202e}c\n日本語".repeat(40);
    (model.live.processes[0].label, model.live.processes[0].command) = (hostile.clone(), hostile);
    model.live.processes[0].user = "\u{7}".into();
    for view in [View::Overview, View::Blocks] {
        model.ui.view = view;
        let (buffer, _) = drawn(model.clone(), 80, 24, Colors::Mono, false);
        assert!(!text(&buffer).chars().any(|c| c.is_control() && c != '\n'));
    }
}

/// The tags of a black box are drawn at the time it was read, which is after the program held the memory.
#[test]
fn timeline_by_tag_says_that_its_program_has_ended() {
    let (_, mut model) = fixture::screens()
        .into_iter()
        .find(|(name, _)| *name == "timeline-tags")
        .unwrap();
    assert!(at_80x24(&model).contains(" 4121 by tag, "));
    let id = model.ui.process.unwrap();
    for (state, shown_text) in [
        (ProcessState::Died, " 4121 died, by tag, "),
        (ProcessState::Exited, " 4121 exited, by tag, "),
    ] {
        let process = model.live.processes.iter_mut().find(|p| p.id == id).unwrap();
        process.state = state;
        let drawn = at_80x24(&model);
        assert!(drawn.contains(shown_text), "{drawn}");
    }
}

/// Frozen figures are not labelled `now`.
#[test]
fn frozen_figures_show_their_age() {
    let mut model = fixture::h100();
    model.ui.view = View::Timeline;
    assert!(at_80x24(&model).contains(" now "));
    model.frozen = Some(Box::new(model.live.clone()));
    model.now += 12 * SECOND;
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains(" 12 s ago ") && !shown_text.contains(" now "),
        "{shown_text}"
    );
    assert!(shown_text.contains("\n Space resume  "), "{shown_text}");
    model.ui.view = View::Overview;
    let shown_text = text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
    assert!(
        shown_text.contains(" 12 s ago ") && !shown_text.contains(" now "),
        "{shown_text}"
    );
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    assert!(!at_80x24(&model).contains("paused"));
    model.frozen = Some(Box::new(model.live.clone()));
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("SIMULATED, paused") && shown_text.contains("Space resume"),
        "{shown_text}"
    );
    assert!(!shown_text.contains("Space next step"), "{shown_text}");
}

/// The label at the end of a narrow axis may be long.
#[test]
fn time_labels_do_not_touch() {
    let mut model = fixture::simulated();
    model.ui.view = View::Timeline;
    model.live.devices[0].state = DeviceState::Gone;
    for width in 30..130 {
        for span in TimelineUi::SPANS {
            model.ui.timeline.span = span;
            let shown_text = text(&drawn(model.clone(), width, 24, Colors::Mono, false).0);
            let axis = shown_text
                .lines()
                .find(|line| line.contains(" last known"))
                .unwrap_or_default();
            assert!(!axis.contains("slast") && !axis.contains("nlast"), "{width}: {axis}");
        }
    }
}

/// This holds for few columns, and when tags take most lines.
#[test]
fn every_drawn_event_is_in_the_legend() {
    for by_tag in [false, true] {
        let (_, mut model) = fixture::screens()
            .into_iter()
            .find(|(name, _)| *name == "timeline-tags")
            .unwrap();
        (model.ui.timeline.by_tag, model.ui.timeline.span) = (by_tag, 150 * SECOND);
        let shown_text = at_80x24(&model);
        let legend = shown_text.lines().find(|line| line.contains("OOM")).unwrap_or_default();
        for name in ["retry", "monitor", "released", "joined", "returned", "taken"] {
            assert!(legend.contains(name), "{name}:\n{shown_text}");
        }
    }
}

/// The lost events may have been of memory taken or returned.
#[test]
fn lost_events_are_not_reported_as_no_events() {
    let mut model = fixture::h100();
    model.ui.view = View::Timeline;
    model.live.devices[0].history.marks.clear();
    let says_none = |model: &Model| {
        let text = text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
        let unknown = text.contains("Memory taken and returned is not known");
        let none = text.contains("no publisher took or returned memory");
        assert!(unknown != none, "{text}");
        none
    };
    assert!(says_none(&model));
    let newest = model.live.devices[0].history.long.back().unwrap().at;
    model.live.devices[0].history.lost_until = newest - SECOND;
    assert!(!says_none(&model));
    // The events were lost before the shown span.
    model.live.devices[0].history.lost_until = newest - model.ui.timeline.span - 2 * SECOND;
    assert!(says_none(&model));
}

/// A figure cut without an ellipsis, or one that touches its label, would be misread.
#[test]
fn cut_texts_end_in_an_ellipsis() {
    let mut model = fixture::simulated();
    model.ui.view = View::Blocks;
    let screen = text(&drawn(model.clone(), 20, 60, Colors::Mono, false).0);
    let address = screen.lines().find(|line| line.contains("address"));
    assert!(address.is_some_and(|line| line.contains('…')), "{screen}");
    model.ui.view = View::Demo;
    let screen = text(&drawn(model, 20, 60, Colors::Mono, false).0);
    let allocated = screen.lines().find(|line| line.contains("▇ al"));
    assert!(allocated.is_some_and(|line| line.contains("… ")), "{screen}");
}
