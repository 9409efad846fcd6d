//! The table of views: a row for each, with its key, its title and its keys. How a view is drawn is a row of the table in `view`.

use super::keymap::{
    Action, Binding, CHOOSE_FIX, DOWN, FIRST, LAST, LEFT, Move, PAGE_DOWN, PAGE_UP, PAUSE, PROCESSES, RIGHT, SPACE, UP,
    ZOOM, fix, pause, step,
};
use super::{Demo, Key, Model};

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
    /// The running demo, or the list of demos.
    Demo,
}

impl View {
    /// Its row in the table.
    pub(crate) fn row(self) -> &'static ViewRow {
        // The order of the table is that of the type, which a test holds.
        &VIEWS[self as usize]
    }
}

/// What is known of a view besides how it is drawn.
#[derive(Debug)]
pub(crate) struct ViewRow {
    /// The view.
    pub view: View,
    /// The key that opens it. Views 4 to 6 do not exist yet; the keys of the others never change.
    pub key: char,
    /// Its name.
    pub title: &'static str,
    /// What the wheel does when it turns away from the user, and towards the user.
    pub wheel: [Action; 2],
    /// Its footer has none of the keys that work everywhere but those in its own rows.
    pub own_footer: bool,
    /// Its keys, in the order in which footer and help tell them.
    pub bindings: &'static [Binding],
}

const LINES: [Action; 2] = [Action::Move(Move::Up), Action::Move(Move::Down)];

/// Those that exist now, in the order of their keys.
pub(crate) static VIEWS: [ViewRow; 4] = [
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
            Binding::new(&[]).footer("s", |_| Some("sort")),
            Binding::new(&[]).footer("/", |_| Some("filter")),
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
                .help("n N", "next, previous process"),
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
        view: View::Demo,
        key: '7',
        title: "Demo",
        wheel: [Action::Scroll(-1), Action::Scroll(1)],
        own_footer: true,
        bindings: &[
            Binding::new(SPACE).footer("Space", |model| match demo(model) {
                Some(demo) if demo.stepped() => step(model),
                _ => None,
            }),
            Binding::new(ZOOM).footer("+ -", |model| is_paced(model).then_some("speed")),
            Binding::new(&[]).footer("Space", |model| {
                (is_paced(model) && !model.paused()).then_some("halt, go on")
            }),
            Binding::new(CHOOSE_FIX).footer("f", fix),
            Binding::new(&[]).footer("2", |model| demo(model).map(|_| "blocks")),
            Binding::new(&[]).footer("3", |model| demo(model).map(|_| "timeline")),
            Binding::new(&[UP, DOWN, FIRST, LAST])
                .footer("↑↓", |model| demo(model).is_none().then_some("choose"))
                .help("↑ ↓, Enter", "choose a demo, start it"),
            Binding::new(&[(Key::Enter, Action::Enter)])
                .footer("Enter", |model| demo(model).is_none().then_some("start"))
                .help("Space, Enter", "next step; of a replay: Space halts, + - speed"),
            Binding::new(&[(Key::Char('x'), Action::StopDemo), PAGE_UP, PAGE_DOWN])
                .footer("x", |model| demo(model).map(|_| "stop"))
                .help("x, PgUp PgDn", "stop it; scroll what it tells"),
            Binding::new(PAUSE).footer("p", |model| match space_is_taken(model) {
                true => pause(model),
                false => None,
            }),
            Binding::new(&[]).footer("Space", |model| match space_is_taken(model) {
                true => None,
                false => pause(model),
            }),
        ],
    },
];

/// The demo that runs.
fn demo(model: &Model) -> Option<&Demo> {
    model.demo.as_ref().filter(|demo| demo.running())
}

fn is_paced(model: &Model) -> bool {
    demo(model).is_some_and(Demo::paced)
}

/// Whether Space in the Demo view is for the demo, and only p pauses what is shown.
fn space_is_taken(model: &Model) -> bool {
    let stepped = demo(model).is_some_and(Demo::stepped);
    stepped || is_paced(model) || model.demo.as_ref().is_some_and(Demo::over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_finds_its_own_row() {
        for (place, row) in VIEWS.iter().enumerate() {
            assert_eq!(row.view as usize, place, "{}", row.title);
        }
        assert!(VIEWS.is_sorted_by_key(|row| row.key));
    }
}
