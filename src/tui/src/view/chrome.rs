//! What surrounds every view: header with tabs, findings, the line of keys.

mod findings;

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::pen::{clip, split_bottom, split_right, split_top, width};
use super::theme::Ink;
use super::{Screen, badge};
use crate::model::{Demo, Finding, Model, SECOND, Severity, Target, View};

/// A key and what it does.
type Key = (&'static str, &'static str);

/// Draws the surroundings and returns the area they leave to the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) -> Rect {
    let (header_area, body) = split_top(area, 1);
    header(screen, header_area);
    let (_, body) = split_top(body, u16::from(area.height >= 30));
    let keys = u16::from(area.height >= 5);
    let room = match area.height {
        ..12 => 0,
        12..30 => 1,
        30..45 => 3,
        _ => 5,
    };
    let model = screen.model;
    // The Overview says above everything else how NVML fails: below there is room for what else is wrong.
    let said = model.world().nvml_failure().filter(|_| model.ui.view == View::Overview);
    let unsaid = |finding: &&Finding| said.as_ref() != Some(&finding.text);
    let findings: Vec<&Finding> = model.findings().filter(unsaid).collect();
    let certain = findings.len().min(room);
    let (view, below) = split_bottom(body, keys + certain as u16);
    let foot = findings::plan(screen, area, view, &findings, certain);
    let (view, more) = split_bottom(view, foot.taken);
    let below = Rect {
        y: more.y,
        height: more.height + below.height,
        ..below
    };
    let (mut rest, line) = split_bottom(below, keys + foot.message);
    for (i, (finding, &lines)) in findings.iter().zip(&foot.lines).enumerate() {
        let (lines, below) = split_top(rest, lines);
        let hidden = match i + 1 == foot.lines.len() {
            true => findings.len() - foot.lines.len(),
            false => 0,
        };
        findings::draw(screen, lines, finding, hidden);
        rest = below;
    }
    footer(screen, line);
    view
}

/// Said where nothing moves because the user said so.
const PAUSED: &str = " PAUSED ";

fn header(screen: &mut Screen<'_>, area: Rect) {
    let left = tabs(screen, area);
    let area = Rect {
        width: left.saturating_sub(1),
        ..area
    };
    let accent = screen.pen.theme.ink(Ink::Accent).add_modifier(Modifier::BOLD);
    let simulated = badge::all_simulated(screen.model);
    // Where there is no room for both, what is simulated is more than a name.
    let mut x = 1;
    let must = must_be_known(screen.model);
    if area.width >= must + if simulated { 9 + badge::LEAST } else { 8 } {
        x = screen.pen.text(area, 1, 0, "gpumem", accent) + 2;
    }
    if simulated {
        x = badge::draw(&mut screen.pen, area, x, area.width) + 2;
    }
    if screen.model.paused() {
        let style = screen.pen.theme.ink(Ink::Warning).add_modifier(Modifier::REVERSED);
        x = screen.pen.text(area, x, 0, PAUSED, style) + 2;
    }
    for (ink, text) in facts(screen) {
        if x + width(&text) > area.width {
            return;
        }
        let style = screen.pen.theme.ink(ink);
        x = screen.pen.text(area, x, 0, &text, style) + 2;
    }
}

/// Columns of what says that the figures are not new.
fn must_be_known(model: &Model) -> u16 {
    let badge = if badge::all_simulated(model) {
        badge::LEAST + 2
    } else {
        0
    };
    match (model.paused(), late(model)) {
        (true, _) => badge + width(PAUSED) + 2,
        (false, Some(text)) => badge + width(&text) + 2,
        (false, None) => 0,
    }
}

/// Since when the figures on the screen are not new any more, if they are not.
fn late(model: &Model) -> Option<String> {
    let age = model.nvml_late_by()?;
    Some(format!("NVML answered {} ago", units::duration(age / SECOND * SECOND)))
}

/// Machine and driver, and how old the driver's figures are when they are stale.
fn facts(screen: &Screen<'_>) -> Vec<(Ink, String)> {
    let model = screen.model;
    let world = model.world();
    let mut facts = vec![];
    if let Some(text) = late(model) {
        facts.push((Ink::Warning, text));
    }
    if !model.setup.host.is_empty() {
        facts.push((Ink::Plain, model.setup.host.clone()));
    }
    if let Some(version) = &world.driver.version {
        facts.push((Ink::Dim, format!("driver {version}")));
    }
    if let Some((major, minor)) = world.driver.cuda {
        facts.push((Ink::Dim, format!("CUDA {major}.{minor}")));
    }
    facts
}

/// Draws the tabs at the right edge, with names while they fit beside what must be known of the figures; returns their first column.
fn tabs(screen: &mut Screen<'_>, area: Rect) -> u16 {
    let open = screen.model.ui.view;
    // Name, and for the open view only, and for none.
    let named = |view: View, level: u8| level == 0 || (level == 1 && view == open);
    let label = |view: View, level: u8| {
        if named(view, level) {
            format!(" {} {} ", view.key(), view.title())
        } else {
            format!(" {} ", view.key())
        }
    };
    let help = |level: u8| if level == 0 { " ? Help " } else { " ? " };
    let total = |level| View::ALL.iter().map(|&v| width(&label(v, level))).sum::<u16>() + width(help(level));
    let must = must_be_known(screen.model);
    let name = |level| if level == 0 { 10 } else { 0 };
    let fits = |level: &u8| total(*level) <= area.width.saturating_sub(must.max(name(*level)));
    let Some(level) = (0..3).find(fits).or_else(|| (total(2) <= area.width).then_some(2)) else {
        return area.width;
    };
    let start = area.width - total(level);
    let mut x = start;
    for view in View::ALL {
        x = tab(screen, area, x, &label(view, level), view == open, Target::View(view));
    }
    tab(screen, area, x, help(level), false, Target::Help);
    start
}

fn tab(screen: &mut Screen<'_>, area: Rect, x: u16, label: &str, open: bool, target: Target) -> u16 {
    let theme = screen.pen.theme;
    let end = if open {
        screen
            .pen
            .text(area, x, 0, label, theme.selected().add_modifier(Modifier::BOLD))
    } else {
        let (key, name) = label.split_at(2);
        screen.pen.spans(
            area,
            x,
            0,
            &[(key, theme.ink(Ink::Accent)), (name, theme.ink(Ink::Dim))],
        )
    };
    screen.hit(
        Rect {
            x: area.x + x,
            width: end - x,
            ..area
        },
        target,
    );
    end
}

/// Mark and style of a severity.
pub(super) fn severity(screen: &Screen<'_>, severity: Severity) -> (&'static str, Style) {
    match severity {
        Severity::Info => ("i", screen.pen.theme.ink(Ink::Accent)),
        Severity::Warning => ("!", screen.pen.theme.ink(Ink::Warning)),
        Severity::Error => ("✗", screen.pen.theme.ink(Ink::Warning)),
    }
}

fn footer(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    if model.ui.filter.editing {
        let theme = screen.pen.theme;
        let x = screen.pen.spans(
            area,
            1,
            0,
            &[("/", theme.ink(Ink::Accent)), (&model.ui.filter.text, Style::new())],
        );
        screen
            .pen
            .cell(area, x, 0, ' ', Style::new().add_modifier(Modifier::REVERSED));
        let x = screen.pen.text(area, x + 3, 0, &model.matches(), theme.ink(Ink::Dim));
        keys(screen, area, x + 2, &[("Enter", "keep"), ("Esc", "clear")]);
        return;
    }
    let mut line = area;
    if let Some(toast) = &model.ui.toast {
        let (above, last) = split_bottom(area, 1);
        let all = findings::message_lines(&toast.text, area) > above.height;
        let lines = if all { area } else { above };
        findings::message(screen, lines, toast);
        if all {
            return;
        }
        line = last;
    }
    hints(screen, line);
}

/// The keys of the open view.
fn hints(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    // How to get help and how to leave is never pushed out.
    let last = [("?", "help"), ("q", "quit")];
    let (most, _) = split_right(area, if area.width > 40 { 16 } else { 0 });
    let x = filter(screen, most);
    let x = keys(screen, most, x, &view_keys(model));
    keys(screen, area, x, &last);
}

/// The filter that hides rows of the table, and how to be rid of it; returns the column after them.
fn filter(screen: &mut Screen<'_>, area: Rect) -> u16 {
    let model = screen.model;
    let text = &model.ui.filter.text;
    if text.is_empty() || model.ui.view != View::Overview {
        return 1;
    }
    let theme = screen.pen.theme;
    let matches = format!(" {}  ", model.matches());
    let shown = clip(&format!("/{text}"), (area.width / 3).max(8));
    let spans = [
        (shown.as_str(), theme.ink(Ink::Accent)),
        (&matches, theme.ink(Ink::Warning)),
    ];
    let x = screen.pen.spans(area, 1, 0, &spans);
    keys(screen, area, x, &[("Esc", "clear")])
}

fn view_keys(model: &Model) -> Vec<Key> {
    let mut keys: Vec<Key> = match model.ui.view {
        View::Overview => vec![("↑↓", "select"), ("Enter", "blocks"), ("s", "sort"), ("/", "filter")],
        View::Blocks => vec![("←↑↓→", "move"), ("+ -", "zoom"), ("n N", "process")],
        View::Timeline => {
            let ui = &model.ui.timeline;
            let mut keys = vec![("←→", "scroll"), ("+ -", "span")];
            if model.world().devices.len() > 1 {
                keys.push(("↑↓", "device"));
            }
            if !ui.by_tag {
                keys.push(("o", if ui.own { "show other" } else { "hide other" }));
            }
            keys.push(("t", if ui.by_tag { "by state" } else { "by tag" }));
            keys
        }
        View::Demo => vec![],
    };
    let demo = model.demo.as_ref().filter(|d| d.running());
    let stepped = demo.is_some_and(|d| d.stepped());
    // Space in its view is the replay's, and then p pauses what is shown.
    let paced = model.ui.view == View::Demo && demo.is_some_and(|d| d.paced());
    let paused = model.paused();
    if stepped && !paused {
        keys.push(("Space", "next step"));
    }
    if paced {
        keys.push(("+ -", "speed"));
        keys.extend((!paused).then_some(("Space", "halt, go on")));
    }
    if demo.is_some_and(|d| !d.choices.is_empty()) {
        keys.push(("f", "choose a fix"));
    }
    if model.ui.view == View::Demo {
        match demo {
            Some(_) => keys.extend([("2", "blocks"), ("3", "timeline"), ("x", "stop")]),
            None => keys.extend([("↑↓", "choose"), ("Enter", "start")]),
        }
    }
    let over = model.ui.view == View::Demo && model.demo.as_ref().is_some_and(Demo::over);
    match (stepped || paced || over, paused) {
        (true, false) => keys.push(("p", "pause")),
        (false, false) => keys.push(("Space", "pause")),
        // Whoever is stuck looks for this first.
        (_, true) => keys.insert(0, ("Space", "resume")),
    }
    keys
}

/// Keys from a column on, as many as fit whole; returns the column after them.
fn keys(screen: &mut Screen<'_>, area: Rect, mut x: u16, keys: &[Key]) -> u16 {
    let theme = screen.pen.theme;
    for (key, action) in keys {
        if x + width(key) + 1 + width(action) > area.width {
            break;
        }
        x = screen.pen.spans(
            area,
            x,
            0,
            &[
                (key, theme.ink(Ink::Accent)),
                (" ", Style::new()),
                (action, theme.ink(Ink::Dim)),
            ],
        );
        x += 2;
    }
    x
}
