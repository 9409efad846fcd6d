//! The parts around every view: the header with its tabs, the findings, the line of keys.

mod findings;

use std::borrow::Cow;

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Tabs;

use super::theme::{Ink, Theme};
use super::{Screen, badge};
use crate::model::{Finding, Model, SECOND, Severity, Target, VIEWS, View, ViewRow, footer as footer_keys};
use crate::view::layout::{clip, split_bottom, split_left, split_top};
use crate::wrap::width;

/// A key and what it does.
type Key<'a> = (&'a str, &'a str);

/// Draws the parts around the view and returns the area left for it.
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
    // The Overview shows a failure of NVML at its top, so the findings below it leave that out.
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

/// Shown in the header while the user has paused the screen.
const PAUSED: &str = " PAUSED ";

fn header(screen: &mut Screen<'_>, area: Rect) {
    let left = tabs(screen, area);
    let area = Rect {
        width: left.saturating_sub(1),
        ..area
    };
    let theme = screen.theme;
    let simulated = badge::all_simulated(screen.model);
    // The program's name is left out before the label SIMULATED is.
    let must = required_columns(screen.model);
    let mut spans = vec![Span::raw(" ")];
    if area.width >= must + if simulated { 9 + badge::MIN_WIDTH } else { 8 } {
        let accent = theme.ink(Ink::Accent).add_modifier(Modifier::BOLD);
        spans.extend([Span::styled("gpumem", accent), GAP]);
    }
    if simulated {
        spans.extend(badge::label(screen, area, columns(&spans), area.width));
        spans.push(GAP);
    }
    if screen.model.paused() {
        let style = theme.ink(Ink::Warning).add_modifier(Modifier::REVERSED);
        spans.extend([Span::styled(PAUSED, style), GAP]);
    }
    for (ink, text) in facts(screen) {
        if columns(&spans) + width(&text) > area.width {
            break;
        }
        spans.extend([Span::styled(text, theme.ink(ink)), GAP]);
    }
    screen.render(Line::from(spans), area);
}

/// Blank columns between two parts of a line.
const GAP: Span<'_> = Span {
    content: Cow::Borrowed("  "),
    style: Style::new(),
};

/// Returns the columns that spans take together.
fn columns(spans: &[Span<'_>]) -> u16 {
    spans.iter().map(|span| width(&span.content)).sum()
}

/// Returns the columns of the header that the tabs must leave free: the labels for simulated, paused and late figures.
fn required_columns(model: &Model) -> u16 {
    let badge = if badge::all_simulated(model) {
        badge::MIN_WIDTH + 2
    } else {
        0
    };
    match (model.paused(), late(model)) {
        (true, _) => badge + width(PAUSED) + 2,
        (false, Some(text)) => badge + width(&text) + 2,
        (false, None) => 0,
    }
}

/// Returns how long ago NVML answered, if it is late.
fn late(model: &Model) -> Option<String> {
    let age = model.nvml_late_by()?;
    Some(format!("NVML answered {} ago", units::duration(age / SECOND * SECOND)))
}

/// Returns the host and the driver's versions, after the age of the driver's figures when they are stale.
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

/// Draws the tabs at the right edge and returns their first column. Where they do not fit, first the gaps between them are dropped, then
/// titles.
fn tabs(screen: &mut Screen<'_>, area: Rect) -> u16 {
    let open = screen.model.ui.view;
    // Level 0 shows every title, level 1 does so without gaps, level 2 shows the open view's title, level 3 none.
    let label = |row: &ViewRow, level: u8| match level {
        1 => format!(" {} {}", row.key, row.title),
        0 => format!(" {} {} ", row.key, row.title),
        2 if row.view == open => format!(" {} {} ", row.key, row.title),
        _ => format!(" {} ", row.key),
    };
    let help = |level: u8| match level {
        0 => " ? Help ",
        1 => " ?",
        _ => " ? ",
    };
    let total = |level| VIEWS.iter().map(|row| width(&label(row, level))).sum::<u16>() + width(help(level));
    let must = required_columns(screen.model);
    // The program's name has room beside all titles at 80 columns.
    let name = |level| if level < 2 { 9 } else { 0 };
    let fits = |level: &u8| total(*level) <= area.width.saturating_sub(must.max(name(*level)));
    let Some(level) = (0..4).find(fits).or_else(|| (total(3) <= area.width).then_some(3)) else {
        return area.width;
    };
    let start = area.width - total(level);
    let theme = screen.theme;
    let closed = |label: String| {
        let (key, name) = label.split_at(2);
        let [key, name] =
            [(key, Ink::Accent), (name, Ink::Dim)].map(|(text, ink)| Span::styled(text.to_owned(), theme.ink(ink)));
        Line::from_iter([key, name])
    };
    let labels: Vec<(String, Target)> = VIEWS
        .iter()
        .map(|row| (label(row, level), Target::View(row.view)))
        .chain([(help(level).to_owned(), Target::Help)])
        .collect();
    let selected = VIEWS.iter().position(|row| row.view == open);
    let mut x = area.x + start;
    for (label, target) in &labels {
        let width = width(label);
        screen.hit(Rect { x, width, ..area }, *target);
        x += width;
    }
    let titles = labels
        .into_iter()
        .enumerate()
        .map(|(i, (label, _))| match Some(i) == selected {
            true => Line::raw(label),
            false => closed(label),
        });
    let tabs = Tabs::new(titles)
        .select(selected)
        .highlight_style(theme.selected().add_modifier(Modifier::BOLD))
        .divider("")
        .padding("", "");
    screen.render(tabs, split_left(area, start).1);
    start
}

/// Returns the mark and the style of a severity.
pub(super) fn severity(screen: &Screen<'_>, severity: Severity) -> (&'static str, Style) {
    match severity {
        Severity::Info => ("i", screen.theme.ink(Ink::Accent)),
        Severity::Warning => ("!", screen.theme.ink(Ink::Warning)),
        Severity::Error => ("✗", screen.theme.ink(Ink::Warning)),
    }
}

fn footer(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    if model.ui.filter.editing {
        return filter_line(screen, area);
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

/// Draws the filter while it is typed, and the keys that end typing.
fn filter_line(screen: &mut Screen<'_>, area: Rect) {
    let theme = screen.theme;
    let model = screen.model;
    let mut spans = vec![
        Span::raw(" "),
        Span::styled("/", theme.ink(Ink::Accent)),
        Span::raw(model.ui.filter.text.as_str()),
        // The cursor.
        Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
        GAP,
    ];
    let filter = model.filter();
    match filter.problem() {
        Some(why) => {
            let room = area.width.saturating_sub(columns(&spans));
            spans.push(Span::styled(clip(why, room), theme.ink(Ink::Warning)));
        }
        None => spans.push(Span::styled(model.matches(), theme.ink(Ink::Dim))),
    }
    spans.push(GAP);
    push_keys(&theme, &mut spans, area.width, &[("Enter", "keep"), ("Esc", "clear")]);
    screen.render(Line::from(spans), area);
}

/// Draws the keys of the open view.
fn hints(screen: &mut Screen<'_>, area: Rect) {
    let theme = screen.theme;
    let model = screen.model;
    // Help and quit always keep their place.
    let last = [("?", "help"), ("q", "quit")];
    let most = area.width - if area.width > 40 { 16 } else { 0 };
    let mut spans = vec![Span::raw(" ")];
    filter(&theme, &mut spans, most, model);
    push_keys(&theme, &mut spans, most, &footer_keys(model));
    push_keys(&theme, &mut spans, area.width, &last);
    screen.render(Line::from(spans), area);
}

/// Adds the device and the filter that hide rows of the table, and the keys that show them again.
fn filter(theme: &Theme, spans: &mut Vec<Span<'_>>, room: u16, model: &Model) {
    if model.ui.view != View::Overview {
        return;
    }
    let text = &model.ui.filter.text;
    let device = model.only_device();
    if let Some(device) = device {
        spans.push(Span::styled(format!("{} only", device.label), theme.ink(Ink::Accent)));
        if text.is_empty() {
            let listed = format!(" {} of {}", model.rows.len(), model.listable());
            spans.push(Span::styled(listed, theme.ink(Ink::Warning)));
        }
        spans.push(GAP);
    }
    if !text.is_empty() {
        let shown = clip(&format!("/{text}"), (room / 3).max(8));
        spans.push(Span::styled(shown, theme.ink(Ink::Accent)));
        let parsed = model.filter();
        let matches = parsed.problem().map_or_else(|| model.matches(), str::to_owned);
        // The key that clears the filter keeps its place.
        let left = room.saturating_sub(columns(spans) + width(" ") + 2 * width("  ") + width("Esc clear"));
        let matches = format!(" {}", clip(&matches, left));
        spans.extend([Span::styled(matches, theme.ink(Ink::Warning)), GAP]);
        push_keys(theme, spans, room, &[("Esc", "clear")]);
    }
    if device.is_some() {
        push_keys(theme, spans, room, &[("d", "all devices")]);
    }
}

/// Adds as many keys as fit into a line of `room` columns without being cut.
fn push_keys<'a>(theme: &Theme, spans: &mut Vec<Span<'a>>, room: u16, keys: &[Key<'a>]) {
    for (key, action) in keys {
        if columns(spans) + width(key) + 1 + width(action) > room {
            break;
        }
        spans.extend([
            Span::styled(*key, theme.ink(Ink::Accent)),
            Span::raw(" "),
            Span::styled(*action, theme.ink(Ink::Dim)),
            GAP,
        ]);
    }
}
