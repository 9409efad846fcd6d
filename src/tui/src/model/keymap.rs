//! The key map: what each key does in each view, and its text in the footer, in help and in `--help`.
//!
//! A row binds keys to actions, which `update` performs. A view's rows come before those that apply everywhere.

use super::views::{VIEWS, View};
use super::{Key, Model};

/// A move of a selection, a cursor or a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Move {
    /// To the left.
    Left,
    /// To the right.
    Right,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Up by a page.
    PageUp,
    /// Down by a page.
    PageDown,
    /// To the beginning.
    First,
    /// To the end.
    Last,
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Moves the selection, cursor or window of the view.
    Move(Move),
    /// Scrolls text by this many lines; down if positive.
    Scroll(i8),
    /// Opens or starts the selected item.
    Enter,
    /// Zooms in (positive) or out. Makes a demo faster or slower.
    Zoom(i8),
    /// Zooms out until everything is shown.
    ZoomOut,
    /// Opens the ranks of the selected process's job.
    Ranks,
    /// Restricts the list of processes to the selected device, or lifts that.
    OneDevice,
    /// Asks whether to attach to the selected process.
    Attach,
    /// Selects the next (positive) or previous process of the list.
    Process(i8),
    /// Toggles whether memory of others is shown.
    HideOther,
    /// Toggles between stacking by tag and by state.
    ByTag,
    /// Asks the driver why memory of the shown process moves, or stops asking.
    Causes,
    /// Toggles between one process's managed memory and the list of all processes.
    ListManaged,
    /// Measures the memory hierarchy of the selected device, or stops that.
    Measure,
    /// Halts a replay in the Demo view. Pauses elsewhere.
    Space,
    /// Explains the shown step of the demo in full.
    Explain,
    /// Toggles whether what is shown is frozen.
    Pause,
    /// Opens the menu of fixes.
    ChooseFix,
    /// Ends the demo.
    StopDemo,
    /// Opens the Timeline at the moment that is shown.
    Moment,
    /// Starts editing the filter.
    Filter,
    /// Opens the menu of columns to sort by.
    Sort,
    /// Toggles whether programs that ended before the dashboard began are listed.
    BlackBoxes,
    /// Opens the list of findings.
    Findings,
    /// Opens help.
    Help,
    /// Opens a view.
    Open(View),
    /// Opens the next view.
    NextView,
    /// Opens the previous view.
    PreviousView,
    /// Clears the filter, else returns to the Overview.
    Back,
    /// Ends the dashboard.
    Quit,
    /// Suspends the dashboard.
    Suspend,
    /// Redraws the whole screen.
    Repaint,
}

/// Returns the footer's current text for an action; `None` to leave it out.
type Hint = fn(&Model) -> Option<&'static str>;

/// Keys with their actions and their texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    keys: &'static [(Key, Action)],
    /// The footer's name for the keys, and its text for the action.
    footer: Option<(&'static str, Hint)>,
    /// Help's name for the keys, and its text for the action.
    help: Option<(&'static str, &'static str)>,
}

impl Binding {
    /// Creates a binding without texts.
    pub(super) const fn new(keys: &'static [(Key, Action)]) -> Binding {
        Binding {
            keys,
            footer: None,
            help: None,
        }
    }

    pub(super) const fn footer(self, keys: &'static str, hint: Hint) -> Binding {
        Binding {
            footer: Some((keys, hint)),
            ..self
        }
    }

    pub(super) const fn help(self, keys: &'static str, text: &'static str) -> Binding {
        Binding {
            help: Some((keys, text)),
            ..self
        }
    }
}

// Bindings that several views share.
pub(super) const UP: (Key, Action) = (Key::Up, Action::Move(Move::Up));
pub(super) const DOWN: (Key, Action) = (Key::Down, Action::Move(Move::Down));
pub(super) const LEFT: (Key, Action) = (Key::Left, Action::Move(Move::Left));
pub(super) const RIGHT: (Key, Action) = (Key::Right, Action::Move(Move::Right));
pub(super) const PAGE_UP: (Key, Action) = (Key::PageUp, Action::Move(Move::PageUp));
pub(super) const PAGE_DOWN: (Key, Action) = (Key::PageDown, Action::Move(Move::PageDown));
pub(super) const FIRST: (Key, Action) = (Key::Home, Action::Move(Move::First));
pub(super) const LAST: (Key, Action) = (Key::End, Action::Move(Move::Last));
pub(super) const ZOOM: &[(Key, Action)] = &[
    (Key::Char('+'), Action::Zoom(1)),
    (Key::Char('='), Action::Zoom(1)),
    (Key::Char('-'), Action::Zoom(-1)),
    (Key::Char('_'), Action::Zoom(-1)),
];
pub(super) const ATTACH: (Key, Action) = (Key::Char('a'), Action::Attach);
pub(super) const PROCESSES: &[(Key, Action)] = &[
    (Key::Char('n'), Action::Process(1)),
    (Key::Char('N'), Action::Process(-1)),
];
const PAUSE: &[(Key, Action)] = &[(Key::Char(' '), Action::Pause), (Key::Char('p'), Action::Pause)];
pub(super) const CHOOSE_FIX: &[(Key, Action)] = &[(Key::Char('f'), Action::ChooseFix)];

/// Letters that act as other keys where the view does not bind them itself.
const LETTERS: [(char, Key); 6] = [
    ('h', Key::Left),
    ('j', Key::Down),
    ('k', Key::Up),
    ('l', Key::Right),
    ('g', Key::Home),
    ('G', Key::End),
];

/// Keys that work in every view, in the order in which help lists them.
pub(crate) const EVERYWHERE: &[Binding] = &[
    Binding::new(&[(Key::Tab, Action::NextView), (Key::BackTab, Action::PreviousView)])
        .help("Tab, Shift-Tab", "next view, previous view"),
    Binding::new(&[]).help("h j k l, g G", "the same as the arrows, Home and End"),
    Binding::new(PAUSE).help("Space, p", "pause, resume"),
    Binding::new(CHOOSE_FIX).footer("f", fix),
    Binding::new(&[(Key::Char('/'), Action::Filter)]).help(
        "/",
        "filter processes by words, or by gpu: user: pid: state: job: rank: (- before one leaves those out)",
    ),
    Binding::new(&[(Key::Char('s'), Action::Sort)]).help("s", "sort processes"),
    Binding::new(&[(Key::Char('b'), Action::BlackBoxes)]).help("b", "list ended programs, too (black boxes)"),
    Binding::new(&[(Key::Char('m'), Action::Findings)]).help("m", "more: every finding in full"),
    Binding::new(&[]).help("f", "choose a fix, when a demo offers some"),
    Binding::new(&[(Key::Esc, Action::Back)]).help("Esc", "close, clear the filter, back to the Overview"),
    Binding::new(&[(Key::Char('?'), Action::Help), (Key::F(1), Action::Help)]).help("?, F1", "this help"),
    Binding::new(&[
        (Key::Char('q'), Action::Quit),
        (Key::Ctrl('c'), Action::Quit),
        (Key::Ctrl('z'), Action::Suspend),
        (Key::Ctrl('l'), Action::Repaint),
    ])
    .help("q, Ctrl-C", "quit (Ctrl-Z: background, Ctrl-L: redraw)"),
    // Pausing comes last in the footer.
    Binding::new(&[]).footer("Space", pause),
];

pub(super) fn pause(model: &Model) -> Option<&'static str> {
    (!model.paused()).then_some("pause")
}

pub(super) fn fix(model: &Model) -> Option<&'static str> {
    let demo = model.demo.as_ref().filter(|demo| demo.running());
    demo.filter(|demo| !demo.choices.is_empty()).map(|_| "choose a fix")
}

/// Returns the action of a key in a view.
pub(crate) fn action_of(view: View, key: Key) -> Option<Action> {
    let bound = |wanted: Key| {
        let rows = view.row().bindings.iter().chain(EVERYWHERE);
        let mut keys = rows.flat_map(|binding| binding.keys);
        keys.find(|(key, _)| *key == wanted).map(|(_, action)| *action)
    };
    let opens = || match key {
        Key::Char(c) => VIEWS.iter().find(|row| row.key == c).map(|row| Action::Open(row.view)),
        _ => None,
    };
    let letter = || LETTERS.iter().find(|(letter, _)| key == Key::Char(*letter));
    bound(key)
        .or_else(opens)
        .or_else(|| letter().and_then(|(_, same)| bound(*same)))
}

/// Returns the keys of the footer in the open view, each with its current text, the most important first.
pub(crate) fn footer(model: &Model) -> Vec<(&'static str, &'static str)> {
    // A user who does not know that the screen is paused looks for this first.
    let resume = model.paused().then_some(("Space", "resume"));
    let row = model.ui.view.row();
    let everywhere = if row.own_footer { &[][..] } else { EVERYWHERE };
    let rows = row.bindings.iter().chain(everywhere);
    let hints = rows.filter_map(|binding| {
        let (keys, hint) = binding.footer?;
        Some((keys, hint(model)?))
    });
    resume.into_iter().chain(hints).collect()
}

/// Keys under a heading, each with what it does.
pub(crate) struct HelpGroup {
    /// The heading.
    pub title: &'static str,
    /// The keys, and what they do.
    pub keys: Vec<(String, String)>,
}

/// Returns every key for help, grouped by view.
pub(crate) fn help() -> Vec<HelpGroup> {
    let lines = |bindings: &[Binding]| -> Vec<(String, String)> {
        let help = bindings.iter().filter_map(|binding| binding.help);
        help.map(|(keys, text)| (keys.to_owned(), text.to_owned())).collect()
    };
    let views = VIEWS.iter().map(|row| (row.key.to_string(), row.title));
    let (keys, titles): (Vec<String>, Vec<&str>) = views.unzip();
    let mut everywhere = vec![(keys.join(" "), titles.join(", "))];
    everywhere.extend(lines(EVERYWHERE));
    let first = HelpGroup {
        title: "Everywhere",
        keys: everywhere,
    };
    let of_views = VIEWS.iter().map(|row| HelpGroup {
        title: row.title,
        keys: lines(row.bindings),
    });
    std::iter::once(first).chain(of_views).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns help's name for a key.
    fn name(key: Key) -> String {
        match key {
            Key::Char(' ') => "Space".into(),
            Key::Char(c) => c.into(),
            Key::Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
            Key::Up => "↑".into(),
            Key::Down => "↓".into(),
            Key::Left => "←".into(),
            Key::Right => "→".into(),
            Key::PageUp => "PgUp".into(),
            Key::PageDown => "PgDn".into(),
            Key::BackTab => "Shift-Tab".into(),
            Key::F(n) => format!("F{n}"),
            key => format!("{key:?}"),
        }
    }

    #[test]
    fn every_bound_key_is_in_the_help() {
        let help = help();
        let explains = |title: &str, key: Key| {
            let group = help.iter().find(|group| group.title == title);
            let mut words = group
                .into_iter()
                .flat_map(|group| &group.keys)
                .map(|(keys, text)| format!("{keys} {text}"));
            words.any(|line| line.contains(&name(key)))
        };
        let aliases = [Key::Char('='), Key::Char('_')];
        for (title, bindings) in VIEWS
            .iter()
            .map(|row| (row.title, row.bindings))
            .chain([("Everywhere", EVERYWHERE)])
        {
            for (key, _) in bindings.iter().flat_map(|binding| binding.keys) {
                let known = explains(title, *key) || explains("Everywhere", *key) || aliases.contains(key);
                assert!(known, "{title} does not explain {key:?}");
            }
        }
    }

    #[test]
    fn no_view_binds_a_key_twice_or_the_key_of_a_view() {
        for row in &VIEWS {
            let keys: Vec<Key> = row.bindings.iter().flat_map(|b| b.keys).map(|(key, _)| *key).collect();
            for (i, key) in keys.iter().enumerate() {
                assert!(!keys[..i].contains(key), "{} binds {key:?} twice", row.title);
                let opens = VIEWS.iter().any(|other| *key == Key::Char(other.key));
                assert!(!opens, "{} takes {key:?} from a view", row.title);
            }
        }
    }

    #[test]
    fn letters_move_as_arrows_do() {
        assert_eq!(action_of(View::Blocks, Key::Char('h')), Some(Action::Move(Move::Left)));
        assert_eq!(
            action_of(View::Overview, Key::Char('G')),
            Some(Action::Move(Move::Last))
        );
        assert_eq!(
            action_of(View::Overview, Key::Char('3')),
            Some(Action::Open(View::Timeline))
        );
        assert_eq!(action_of(View::Overview, Key::Char('8')), None, "no view has this key");
    }
}
