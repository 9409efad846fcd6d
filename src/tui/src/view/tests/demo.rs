//! The texts of the Demo view.

use super::fixture;
use super::gallery::drawn;
use super::rules::at_80x24;
use super::screens::text;
use crate::model::*;

/// Returns a model with a running demo whose channel is not found.
fn alone() -> Model {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    model.map = None;
    model.live.processes.clear();
    model.rows.clear();
    model
}

/// Returns the words on a screen from column `from` on, one space apart and without frames.
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
fn missing_map_is_explained_in_full() {
    let mut model = alone();
    let shown_text = words(&at_80x24(&model), 44);
    assert!(
        shown_text.contains("gpumem-tui doctor says where programs can publish."),
        "{shown_text}"
    );
    let looked = model.live.channels_at();
    let demo = model.demo.as_mut().unwrap();
    demo.has_memory_since = looked;
    let shown_text = words(&at_80x24(&model), 44);
    assert!(
        shown_text.contains("Its channel is looked for every 2 s."),
        "{shown_text}"
    );
    model.demo.as_mut().unwrap().unpublished = Some("/tmp/x is not in memory (tmpfs)".into());
    let shown_text = words(&at_80x24(&model), 44);
    assert!(
        shown_text.contains("It does not publish: /tmp/x is not in memory (tmpfs)"),
        "{shown_text}"
    );
}

/// Every line of a demo can be scrolled to, and the frame names the keys while there is more.
#[test]
fn steps_of_a_demo_can_be_scrolled_to_the_end() {
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
fn outcome_of_a_demo_is_shown_in_full() {
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
    let shown_text = words(
        &at_80x24(&model)
            .lines()
            .map(|l| l.chars().take(44).collect::<String>() + "\n")
            .collect::<String>(),
        0,
    );
    assert!(
        shown_text.contains("✗ not so: the large request failed before the fix"),
        "{shown_text}"
    );
}

#[test]
fn demo_that_never_started_is_not_called_ended() {
    let mut model = alone();
    let demo = model.demo.as_mut().unwrap();
    demo.phase = DemoPhase::Failed("no driver".into());
    assert!(at_80x24(&model).contains("It has ended"), "{}", at_80x24(&model));
    *model.demo.as_mut().unwrap() = Demo {
        phase: DemoPhase::Failed("no driver".into()),
        ..Demo::default()
    };
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("It never started") && !shown_text.contains("It has ended"),
        "{shown_text}"
    );
}

/// A signal stopped its process, which cannot report it.
#[test]
fn suspended_child_is_not_shown_as_running() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    model.demo.as_mut().unwrap().phase = DemoPhase::Running;
    assert!(at_80x24(&model).contains(" running "));
    model.live.processes[0].stopped = Some(true);
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains(" suspended ") && !shown_text.contains(" running "),
        "{shown_text}"
    );
    model.demo.as_mut().unwrap().phase = DemoPhase::Done { ok: true };
    assert!(at_80x24(&model).contains("done"));
}

/// The report of a failure takes the free lines. If they are few, it begins at what would have helped.
#[test]
fn report_of_a_failure_takes_the_free_lines() {
    let mut model = alone();
    let demo = model.demo.as_mut().unwrap();
    (demo.kind, demo.phase, demo.choices) = (Some(DemoKind::Paced), DemoPhase::Running, vec![]);
    let step = demo.steps.last_mut().unwrap();
    step.detail = "moe.csv.gz: 827 operations a second.".into();
    step.oom.as_mut().unwrap().report = "out of GPU memory: 24.0 MiB requested; device 79.0 GiB of 80.0 GiB free, \
        budget 1.0 GiB; reserved 1022 MiB, allocated 1006 MiB; 15.6 MiB free in cache, largest free block 3.4 MiB; \
        what would have helped: raise the budget by 10.0 MiB, or smaller by 7.4 MiB"
        .into();
    let shown_text = |h| words(&text(&drawn(model.clone(), 60, h, Colors::Mono, false).0), 0);
    assert!(
        shown_text(15).contains("out of GPU memory: 24.0 MiB requested;"),
        "{}",
        shown_text(15)
    );
    for (h, shown) in [
        (
            12,
            "what would have helped: raise the budget by 10.0 MiB, or smaller by 7.4 MiB",
        ),
        (9, "moe.csv.gz"),
    ] {
        assert!(shown_text(h).contains(shown), "{}", shown_text(h));
        assert!(!shown_text(h).contains("out of GPU memory"), "{}", shown_text(h));
    }
}

/// A replay that ends has succeeded, but a request may have failed in its last pass.
#[test]
fn last_pass_with_a_failed_request_has_no_tick() {
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

/// The holes of a mostly unmapped segment are left out of the map, and the text says so.
#[test]
fn holes_left_out_of_the_map_are_mentioned() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    assert!(!at_80x24(&model).contains("not drawn"));
    model.map.as_mut().unwrap().left_out = 3 << 29;
    let shown_text = words(&at_80x24(&model), 44);
    assert!(shown_text.contains("unmapped, not drawn 1.5 GiB"), "{shown_text}");
}

/// The memory panel beside them shows the current figures under the same names.
#[test]
fn figures_of_a_running_demos_step_are_dated() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    let says = |model: &Model| words(&at_80x24(model), 0).contains("and at the step's end");
    assert!(!says(&model), "a waiting demo's figures are current");
    let demo = model.demo.as_mut().unwrap();
    (demo.kind, demo.phase) = (Some(DemoKind::Looping), DemoPhase::Running);
    demo.steps.last_mut().unwrap().oom = None;
    assert!(says(&model), "{}", at_80x24(&model));
}
