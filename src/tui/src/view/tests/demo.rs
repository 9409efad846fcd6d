//! What the Demo view explains.

use super::fixture;
use super::gallery::drawn;
use super::rules::at_80x24;
use super::screens::text;
use crate::model::*;

/// A demo that runs, and whose channel is not seen.
fn alone() -> Model {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    model.map = None;
    model.live.processes.clear();
    model.rows.clear();
    model
}

/// The words on a screen, one space apart and without frames, of the columns from `from` on.
fn words(screen: &str, from: usize) -> String {
    let part = |line: &str| {
        line.chars()
            .skip(from)
            .map(|c| if c == '│' { ' ' } else { c })
            .collect::<String>()
    };
    let all: Vec<String> = screen.lines().map(part).collect();
    all.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn why_there_is_no_map_is_told_in_full() {
    let mut model = alone();
    let told = words(&at_80x24(&model), 44);
    assert!(
        told.contains("gpumem-tui doctor says where programs can publish."),
        "{told}"
    );
    let looked = model.live.channels_at();
    let demo = model.demo.as_mut().unwrap();
    demo.has_memory_since = looked;
    let told = words(&at_80x24(&model), 44);
    assert!(told.contains("Its channel is looked for every 2 s."), "{told}");
    model.demo.as_mut().unwrap().unpublished = Some("/tmp/x is not in memory (tmpfs)".into());
    let told = words(&at_80x24(&model), 44);
    assert!(
        told.contains("It does not publish: /tmp/x is not in memory (tmpfs)"),
        "{told}"
    );
}

/// Whatever a demo tells can be scrolled to, and where there is more to come the frame says how.
#[test]
fn what_a_demo_tells_can_be_read_to_its_end() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    let demo = model.demo.as_mut().unwrap();
    let numbered = |from: usize, n: usize| (from..from + n).map(|n| format!("w{n}.")).collect::<Vec<_>>().join(" ");
    let step = demo.steps.last_mut().unwrap();
    step.detail = numbered(100, 30);
    step.oom.as_mut().unwrap().report = numbered(200, 30);
    for (choice, from) in demo.choices.iter_mut().zip([300, 400, 500]) {
        choice.title = numbered(from, 20);
    }
    let all: Vec<String> = [(100, 30), (200, 30), (300, 20), (400, 20), (500, 20)]
        .iter()
        .flat_map(|&(from, n)| (from..from + n).map(|n| format!("w{n}.")))
        .collect();
    for (width, height) in [(80, 24), (60, 20), (40, 12)] {
        let at = |scroll| {
            let mut model = model.clone();
            model.ui.demo_scroll = scroll;
            drawn(model, width, height, Colors::Mono, false)
        };
        let (first, hits) = at(0);
        assert!(text(&first).contains(" PgDn more ─"), "{}", text(&first));
        assert_eq!(at(9999).0, at(hits.told.below.into()).0);
        let (top, end) = (-i32::from(hits.told.above), i32::from(hits.told.below));
        let mut pages = text(&at(top).0) + &text(&at(end).0);
        let mut scroll = 0;
        while scroll < end {
            let (page, hits) = at(scroll);
            pages += &text(&page);
            scroll += i32::from(hits.told.page);
        }
        let missing: Vec<&String> = all.iter().filter(|word| !pages.contains(*word)).collect();
        assert_eq!(missing, [""; 0], "{width}x{height}:\n{pages}");
        assert!(pages.contains("1  Allocate eight"), "{pages}");
    }
    assert!(!text(&drawn(model, 200, 50, Colors::Mono, false).0).contains("PgDn"));
}

#[test]
fn how_a_demo_ended_is_told_in_full() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    let demo = model.demo.as_mut().unwrap();
    demo.choices.clear();
    demo.phase = DemoPhase::Done { ok: false };
    demo.outcome = Some(DemoOutcome {
        failed_before: Some(false),
        ..DemoOutcome::default()
    });
    model.ui.demo_scroll = 99;
    let told = words(
        &at_80x24(&model)
            .lines()
            .map(|l| l.chars().take(44).collect::<String>() + "\n")
            .collect::<String>(),
        0,
    );
    assert!(
        told.contains("✗ not so: the large request failed before the fix"),
        "{told}"
    );
}

#[test]
fn what_never_started_is_not_said_to_have_ended() {
    let mut model = alone();
    let demo = model.demo.as_mut().unwrap();
    demo.phase = DemoPhase::Failed("no driver".into());
    assert!(at_80x24(&model).contains("It has ended"), "{}", at_80x24(&model));
    *model.demo.as_mut().unwrap() = Demo {
        phase: DemoPhase::Failed("no driver".into()),
        ..Demo::default()
    };
    let told = at_80x24(&model);
    assert!(
        told.contains("It never started") && !told.contains("It has ended"),
        "{told}"
    );
}

/// Its process is stopped by a signal, and does not tell.
#[test]
fn a_suspended_child_is_not_said_to_run() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    model.demo.as_mut().unwrap().phase = DemoPhase::Running;
    assert!(at_80x24(&model).contains(" running "));
    model.live.processes[0].stopped = Some(true);
    let told = at_80x24(&model);
    assert!(told.contains(" suspended ") && !told.contains(" running "), "{told}");
    model.demo.as_mut().unwrap().phase = DemoPhase::Done { ok: true };
    assert!(at_80x24(&model).contains("done"));
}

/// A failure is explained in the lines that are free, what would have helped first.
#[test]
fn a_report_has_the_lines_that_are_left() {
    let mut model = alone();
    let demo = model.demo.as_mut().unwrap();
    (demo.kind, demo.phase, demo.choices) = (Some(DemoKind::Paced), DemoPhase::Running, vec![]);
    let step = demo.steps.last_mut().unwrap();
    step.detail = "moe.csv.gz: 827 operations a second.".into();
    step.oom.as_mut().unwrap().report = "out of GPU memory: 24.0 MiB requested; device 79.0 GiB of 80.0 GiB free, \
        budget 1.0 GiB; reserved 1022.0 MiB, allocated 1006.4 MiB; 15.6 MiB free in cache, largest free block 3.4 MiB; \
        what would have helped: raise the budget by 10.0 MiB, or smaller by 7.4 MiB"
        .into();
    let told = |h| words(&text(&drawn(model.clone(), 60, h, Colors::Mono, false).0), 0);
    assert!(
        told(15).contains("out of GPU memory: 24.0 MiB requested;"),
        "{}",
        told(15)
    );
    for (h, shown) in [
        (
            12,
            "what would have helped: raise the budget by 10.0 MiB, or smaller by 7.4 MiB",
        ),
        (9, "moe.csv.gz"),
    ] {
        assert!(told(h).contains(shown), "{}", told(h));
        assert!(!told(h).contains("out of GPU memory"), "{}", told(h));
    }
}

/// A replay that ends did what it was to do; that a request failed in its last pass is still so.
#[test]
fn a_last_pass_with_a_failed_request_has_no_tick() {
    let mut model = alone();
    let demo = model.demo.as_mut().unwrap();
    (demo.kind, demo.phase, demo.choices) = (Some(DemoKind::Paced), DemoPhase::Done { ok: true }, vec![]);
    let title = |model: &Model| {
        let screen = at_80x24(model);
        let line = screen.lines().find(|line| line.contains("Ask for 500 MiB")).unwrap();
        line.chars().find(|c| "✓✗".contains(*c))
    };
    assert_eq!(title(&model), Some('✗'));
    model.demo.as_mut().unwrap().steps.last_mut().unwrap().oom = None;
    assert_eq!(title(&model), Some('✓'));
}

/// Where most of a segment has no memory any more its holes are cut out of the map, and the text speaks of them.
#[test]
fn holes_that_are_not_drawn_are_told_of() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    assert!(!at_80x24(&model).contains("not drawn"));
    model.map.as_mut().unwrap().left_out = 3 << 29;
    let told = words(&at_80x24(&model), 44);
    assert!(told.contains("unmapped, not drawn 1.5 GiB"), "{told}");
}

/// Beside them stands what it holds now, which is another figure under the same name.
#[test]
fn figures_of_a_step_of_a_demo_that_goes_on_are_said_to_be_of_its_end() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    let says = |model: &Model| words(&at_80x24(model), 0).contains("and at the step's end");
    assert!(!says(&model), "it waits: they are those of now");
    let demo = model.demo.as_mut().unwrap();
    (demo.kind, demo.phase) = (Some(DemoKind::Looping), DemoPhase::Running);
    demo.steps.last_mut().unwrap().oom = None;
    assert!(says(&model), "{}", at_80x24(&model));
}
