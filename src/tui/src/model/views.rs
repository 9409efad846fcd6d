//! The table of views. Each row has the view's title and keys. How it is drawn is a row of the table in `view`.

use super::keymap::{
    ATTACH, Action, Binding, CHOOSE_FIX, DOWN, FIRST, LAST, LEFT, Move, PAGE_DOWN, PAGE_UP, PROCESSES, RIGHT, UP, ZOOM,
    fix, pause,
};
use super::{Demo, DemoPhase, Key, Model};

/// A full-screen view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// Devices and processes.
    #[default]
    Overview,
    /// Block map of the selected process.
    Blocks,
    /// The selected device over time.
    Timeline,
    /// The memory hierarchy of the selected device, measured.
    Hierarchy,
    /// Managed memory: where its pages are, and how they move.
    Unified,
    /// What ran out of memory, why, and what helps: of a process, or of a pasted log.
    Triage,
    /// The running demo, or the list of demos.
    Demo,
}

impl View {
    /// Returns its row in the table.
    pub(crate) fn row(self) -> &'static ViewRow {
        // The table is in the order of the variants; a test checks that.
        &VIEWS[self as usize]
    }
}

/// The properties of a view, except how it is drawn.
#[derive(Debug)]
pub(crate) struct ViewRow {
    /// The view.
    pub view: View,
    /// The key that opens it.
    pub key: char,
    /// Its title.
    pub title: &'static str,
    /// The actions of the mouse wheel: turned up, turned down.
    pub wheel: [Action; 2],
    /// Whether its footer shows only the keys in its own rows, not those that work everywhere.
    pub own_footer: bool,
    /// Its keys, in the order in which the footer and help list them.
    pub bindings: &'static [Binding],
}

const LINES: [Action; 2] = [Action::Move(Move::Up), Action::Move(Move::Down)];

/// All views, in the order of their keys.
pub(crate) static VIEWS: [ViewRow; 7] = [
    ViewRow {
        view: View::Overview,
        key: '1',
        title: "Overview",
        wheel: LINES,
        own_footer: false,
        bindings: &[
            Binding::new(&[UP, DOWN, PAGE_UP, PAGE_DOWN, FIRST, LAST])
                .footer("↑↓", |_| Some("select"))
                .help("↑ ↓, PgUp PgDn", "select a process (Home End: the first, the last)"),
            Binding::new(&[LEFT, RIGHT]).help("← →", "select a device"),
            Binding::new(&[(Key::Enter, Action::Enter)])
                .footer("Enter", |_| Some("blocks"))
                .help("Enter", "its blocks"),
            Binding::new(&[(Key::Char('r'), Action::Ranks)])
                .footer("r", |model| model.selected_job().map(|_| "ranks"))
                .help("r", "the ranks of its job side by side"),
            Binding::new(&[ATTACH])
                .footer("a", |model| model.attachable().map(|_| "attach"))
                .help("a", "look into a PyTorch process that does not publish"),
            Binding::new(&[]).footer("s", |_| Some("sort")),
            Binding::new(&[]).footer("/", |_| Some("filter")),
            Binding::new(&[(Key::Char('d'), Action::OneDevice)])
                // While the list is restricted, the footer begins with this key.
                .footer("d", |model| match model.only_device() {
                    None => (model.world().devices.len() > 1).then_some("GPU"),
                    Some(_) => None,
                })
                .help("d", "list only the selected device's processes, or all"),
        ],
    },
    ViewRow {
        view: View::Blocks,
        key: '2',
        title: "Blocks",
        wheel: LINES,
        own_footer: false,
        bindings: &[
            Binding::new(&[LEFT, RIGHT])
                .footer("←↑↓→", |_| Some("move"))
                .help("← →", "the next block"),
            Binding::new(&[UP, DOWN, PAGE_UP, PAGE_DOWN, FIRST, LAST])
                .help("↑ ↓, PgUp PgDn", "lines of the map (Home End: its ends)"),
            Binding::new(ZOOM).footer("+ -", |_| Some("zoom")),
            Binding::new(&[(Key::Char('0'), Action::ZoomOut)]).help("+ -, 0", "zoom in, out, everything"),
            Binding::new(PROCESSES)
                .footer("n N", |_| Some("process"))
                .help("n N", "next, previous process with a map"),
            Binding::new(&[ATTACH]).footer("a", |model| model.attachable().map(|_| "attach")),
        ],
    },
    ViewRow {
        view: View::Timeline,
        key: '3',
        title: "Timeline",
        wheel: [Action::Zoom(1), Action::Zoom(-1)],
        own_footer: false,
        bindings: &[
            Binding::new(&[LEFT, RIGHT, FIRST, LAST])
                .footer("←→", |_| Some("scroll"))
                .help("← →, Home End", "back and forth in time"),
            Binding::new(ZOOM)
                .footer("+ -", |_| Some("span"))
                .help("+ -", "less, more time"),
            Binding::new(&[UP, DOWN])
                .footer("↑↓", |model| (model.world().devices.len() > 1).then_some("device"))
                .help("↑ ↓, n N", "another device, another process"),
            Binding::new(PROCESSES),
            Binding::new(&[(Key::Char('o'), Action::HideOther)])
                .footer("o", |model| match model.ui.timeline {
                    ui if ui.by_tag => None,
                    ui if ui.own => Some("show other"),
                    _ => Some("hide other"),
                })
                .help("o", "hide what others use: the rest grows"),
            Binding::new(&[(Key::Char('t'), Action::ByTag)])
                .footer("t", |model| match model.ui.timeline.by_tag {
                    true => Some("by state"),
                    false => Some("by tag"),
                })
                .help("t", "by tag: what a process allocated for"),
        ],
    },
    ViewRow {
        view: View::Hierarchy,
        key: '4',
        title: "Hierarchy",
        wheel: LINES,
        own_footer: false,
        bindings: &[
            Binding::new(&[UP, DOWN, FIRST, LAST])
                .footer("↑↓", |_| Some("level"))
                .help("↑ ↓, Home End", "select a level"),
            Binding::new(&[LEFT, RIGHT])
                .footer("←→", |model| (model.world().devices.len() > 1).then_some("device"))
                .help("← →", "another device"),
            Binding::new(&[(Key::Enter, Action::Enter)])
                .footer("Enter", |model| {
                    Some(match model.ui.hierarchy.explained {
                        true => "curve",
                        false => "explain",
                    })
                })
                .help("Enter", "explain the level, or show the curve again"),
            Binding::new(&[(Key::Char('r'), Action::Measure)])
                .footer("r", |model| match &model.hierarchies.measuring {
                    Some(_) => Some("stop"),
                    None => model.measurable().map(|_| "measure"),
                })
                .help("r", "measure this device, which takes some seconds"),
        ],
    },
    ViewRow {
        view: View::Unified,
        key: '5',
        title: "Unified",
        wheel: LINES,
        own_footer: false,
        bindings: &[
            Binding::new(&[LEFT, RIGHT, UP, DOWN])
                .footer("←↑↓→", |model| model.managed_selected().map(|_| "move"))
                .help("← → ↑ ↓", "move in the map or in the list"),
            Binding::new(&[PAGE_UP, PAGE_DOWN, FIRST, LAST]).help("PgUp PgDn", "by a page (Home End: to its ends)"),
            Binding::new(&[(Key::Enter, Action::Enter)])
                .footer("Enter", |model| match model.managed_selected() {
                    Some(_) => None,
                    None => model.world().managed.with_memory().next().map(|_| "show"),
                })
                .help("Enter", "show the chosen process"),
            Binding::new(ZOOM).footer("+ -", |model| model.managed_selected().map(|_| "zoom")),
            Binding::new(&[(Key::Char('0'), Action::ZoomOut)]).help("+ -, 0", "zoom in, out, everything"),
            Binding::new(&[(Key::Char('c'), Action::Causes)])
                .footer("c", |model| {
                    let shown = model.managed_selected()?;
                    Some(match model.ui.unified.causes == Some(shown) {
                        true => "stop causes",
                        false => "causes",
                    })
                })
                .help("c", "why pages move; slows the process while it is on"),
            Binding::new(&[(Key::Char('a'), Action::ListManaged)])
                .footer("a", |model| model.managed_selected().map(|_| "all"))
                .help("a", "the list of all processes with managed memory"),
            Binding::new(PROCESSES)
                .footer("n N", |model| {
                    (model.world().managed.with_memory().count() > 1).then_some("process")
                })
                .help("n N", "next, previous process"),
        ],
    },
    ViewRow {
        view: View::Triage,
        key: '6',
        title: "Triage",
        wheel: [Action::Scroll(-1), Action::Scroll(1)],
        own_footer: false,
        bindings: &[
            Binding::new(&[UP, DOWN, PAGE_UP, PAGE_DOWN, FIRST, LAST])
                .footer("↑↓", |model| (model.ui.hits.triage_lines > 1).then_some("scroll"))
                .help("↑ ↓, PgUp PgDn", "scroll (Home End: to the ends)"),
            Binding::new(&[(Key::Enter, Action::Enter)])
                .footer("Enter", |model| model.triaged().map(|_| "blocks"))
                .help("Enter", "the blocks of the process"),
            Binding::new(&[(Key::Char('t'), Action::Moment)])
                .footer("t", |model| model.triaged_failure().map(|_| "that moment"))
                .help("t", "the Timeline at the moment when it ran out of memory"),
            Binding::new(PROCESSES)
                .footer("n N", |model| (model.failed().len() > 1).then_some("process"))
                .help("n N", "next, previous process that ran out of memory"),
            Binding::new(&[(Key::Char('x'), Action::StopDemo)])
                .footer("x", |model| model.ui.triage.pasted.as_ref().map(|_| "drop text"))
                .help("x", "drop the pasted text; to paste one, use the terminal's key"),
        ],
    },
    ViewRow {
        view: View::Demo,
        key: '7',
        title: "Demo",
        wheel: [Action::Scroll(-1), Action::Scroll(1)],
        own_footer: true,
        bindings: &[
            Binding::new(&[(Key::Enter, Action::Enter), LEFT, RIGHT])
                .footer("Enter →", |model| waits(model).then_some("next step"))
                .help("Enter →, ←", "next step of a demo, back to an earlier one"),
            Binding::new(&[]).footer("←→", |model| {
                model
                    .demo
                    .as_ref()
                    .filter(|demo| demo.over() && !model.ui.demo_list)
                    .map(|_| "steps")
            }),
            Binding::new(CHOOSE_FIX).footer("f", fix),
            Binding::new(&[(Key::Char('e'), Action::Explain)])
                .footer("e", |model| explainable(model).map(|_| "explain"))
                .help("e", "explain the step in full"),
            Binding::new(&[]).footer("Space", |model| match is_paced(model) {
                true => None,
                false => pause(model),
            }),
            Binding::new(ZOOM).footer("+ -", |model| is_paced(model).then_some("speed")),
            Binding::new(&[(Key::Char(' '), Action::Space)])
                .footer("Space", |model| {
                    (is_paced(model) && !model.paused()).then_some("pause, resume")
                })
                .help("Space, + -", "pause or resume a replay, change its speed"),
            Binding::new(&[]).footer("←", |model| {
                let steps = demo(model).map_or(0, |demo| demo.steps.len());
                (waits(model) && steps > 1).then_some("back")
            }),
            Binding::new(&[]).footer("2", |model| demo(model).map(|_| "blocks")),
            Binding::new(&[]).footer("3", |model| demo(model).map(|_| "timeline")),
            Binding::new(&[UP, DOWN, FIRST, LAST])
                .footer("↑↓", |model| lists(model).then_some("choose"))
                .help("↑ ↓, Enter", "choose a demo, start it"),
            Binding::new(&[]).footer("Enter", |model| lists(model).then_some("start")),
            Binding::new(&[(Key::Char('x'), Action::StopDemo), PAGE_UP, PAGE_DOWN])
                .footer("x", |model| match (demo(model), &model.demo) {
                    (Some(_), _) => Some("stop"),
                    (None, Some(demo)) if demo.over() => Some(match model.ui.demo_list {
                        true => "the last demo",
                        false => "other demos",
                    }),
                    _ => None,
                })
                .help("x, PgUp PgDn", "stop it, list the demos; scroll its text"),
            Binding::new(&[]).footer("p", |model| match is_paced(model) {
                true => pause(model),
                false => None,
            }),
        ],
    },
];

/// Returns the demo if it runs.
fn demo(model: &Model) -> Option<&Demo> {
    model.demo.as_ref().filter(|demo| demo.running())
}

fn is_paced(model: &Model) -> bool {
    demo(model).is_some_and(Demo::paced)
}

/// Checks whether a stepped demo waits for the next step and what is shown is not paused.
fn waits(model: &Model) -> bool {
    let waiting = demo(model).filter(|demo| demo.stepped() && demo.phase == DemoPhase::Waiting);
    waiting.is_some() && !model.paused()
}

/// Returns the demo if the shown step has more to say than is on the screen.
fn explainable(model: &Model) -> Option<&Demo> {
    let shown = model.demo.as_ref().filter(|_| !lists(model))?;
    shown.current().filter(|step| !step.summary.is_empty()).map(|_| shown)
}

/// Checks whether the arrows choose from the list of demos.
fn lists(model: &Model) -> bool {
    demo(model).is_none() && (model.ui.demo_list || !model.demo.as_ref().is_some_and(Demo::over))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_its_own_row() {
        for (place, row) in VIEWS.iter().enumerate() {
            assert_eq!(row.view as usize, place, "{}", row.title);
        }
        assert!(VIEWS.is_sorted_by_key(|row| row.key));
    }
}
